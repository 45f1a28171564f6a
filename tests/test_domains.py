"""Domains: a share of nothing is infinite, one decision says what is feasible, values stay in their legal range."""

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import training

from codesign.commands.evaluate import _marked
from codesign.core.errors import ConfigError
from codesign.core.fields import check_ranges, get_path, replace
from codesign.core.json_yaml import dumps
from codesign.core.smooth import used_share
from codesign.model.hardware import CachedPool, Link, MemoryTier, TieredMemory
from codesign.model.hardware.memory import Placement
from codesign.model.hardware.memory_pool import WorkingSet, ZipfLru
from codesign.model.metrics import evaluate
from codesign.search import Grid, Problem
from codesign.search.results import designs
from codesign.staging.model import reserve_rows, reserve_shares, tight_tiers
from codesign.study.design_space import Continuous, DesignSpace, Ratio
from codesign.study.objective import TOLERANCE, Objective, feasible, feasible_logs, share_text

PACKAGE = Path(__file__).resolve().parent.parent / "codesign"
HBM, DDR = "cluster.accelerator.hbm.capacity_bytes", "cluster.host.memory.capacity_bytes"
RATE, LATENCY = "cluster.accelerator.hbm.bandwidth_bytes_per_s", "cluster.accelerator.hbm.latency_s"
RESERVE, PUE = "cluster.accelerator.hbm.reserved_bytes", "cluster.facility.pue"


class TestUsedShare:
    @pytest.mark.parametrize(
        ("used", "usable", "share"),
        [(3.0, 4.0, 0.75), (0.0, 4.0, 0.0), (3.0, 0.0, np.inf), (3.0, -1.0, np.inf), (0.0, 0.0, 0.0), (0.0, -1.0, 0.0)],
    )
    def test_shares_and_finite_slopes(self, used, usable, share):
        assert float(used_share(used, usable)) == share
        slopes = jax.grad(used_share, argnums=(0, 1))(used, usable)
        assert np.isfinite(slopes).all()
        assert float(jax.jit(used_share)(used, usable)) == share

    def test_near_nothing_in_both_precisions(self):
        for kind in (jnp.float32, jnp.float64):
            usable = jnp.asarray([-1e-9, 0.0, 1e-20, 1e-9], kind)
            share = np.asarray(used_share(jnp.asarray(1.0, kind), usable))
            assert not np.isnan(share).any()
            assert (np.diff(share[1:]) < 0).all()

    def test_tier_smaller_than_its_reserve(self):
        scenario = replace(training(), {HBM: 1e9, RESERVE: 4e9})
        metrics = evaluate(scenario)
        assert float(metrics.usage["hbm"]) == np.inf
        assert not feasible(Objective("time_s").excess(metrics))
        others = {name: float(value) for name, value in metrics.flat().items() if name != "usage.hbm"}
        assert all(np.isfinite(value) and value >= 0 for value in others.values())

    def test_search_over_a_tier_that_may_have_no_capacity(self):
        """Grid over capacities below and above the reserve: what has none is infeasible, shown, and never the best."""
        space = DesignSpace({"tp": [8], "pp": [8]}, {"hbm": Continuous(HBM, 1e9, 8e10, grid=5)})
        problem = Problem(replace(training(), {RESERVE: 2e10}), space, Objective("capex_usd"))
        trace = Grid().run(problem, 0)
        assert 0 < trace.counts["feasible"] < 5
        trace.points = problem.space.grid() | {name: np.full(5, 8.0) for name in ("tp", "pp")}
        trace.method = ["grid"] * 5
        frame = designs(problem, trace, 0)
        nothing = frame["usage.hbm"] == np.inf
        assert nothing.sum() == 3
        assert not frame.loc[nothing, "feasible"].any()
        assert frame["active_constraints"][nothing].str.contains("hbm no capacity").all()
        assert frame.loc[frame["feasible"], "capex_usd"].is_monotonic_increasing
        assert frame.loc[~frame["feasible"], "excess"].is_monotonic_increasing

    def test_a_row_leads_back_from_where_nothing_is_usable(self):
        """Only where the box reaches below the reserve; finite, at most 0 where anything is usable, falling with it."""
        scenario, path = replace(training(), {RESERVE: 2e10}), "cluster.accelerator.hbm"
        low, high = (
            Problem(scenario, DesignSpace({}, {"hbm": Continuous(HBM, low, 8e10)}), Objective("time_s"))
            for low in (1e9, 3e10)
        )
        assert tight_tiers(high.scenario, high.space) == ()
        assert tight_tiers(low.scenario, low.space) == (path,)

        def row(capacity):
            return reserve_rows(reserve_shares(low.space.place(scenario, {"hbm": capacity}), (path,)))[
                f"reserve.{path}"
            ]

        for capacity in (1e9, 2e10, 8e10):
            value, slope = jax.value_and_grad(row)(capacity)
            assert float(value) == pytest.approx(np.log(2e10 / capacity))
            assert float(slope) == pytest.approx(-1 / capacity)


class TestMemoryWithoutCapacity:
    def test_no_tier_counts_below_nothing(self):
        near, far = MemoryTier(8e10, 3e12), MemoryTier(1e9, 1e12)
        memory = TieredMemory({"near": near, "far": far}, {"weights": Placement({"near": 0.5, "far": 0.5})}, "near")
        memory = replace(memory, {"tiers.far.reserved_bytes": 5e9})
        assert float(memory.usable_bytes()) == 8e10
        used = memory.limits({"weights": jnp.asarray(1e9), "activations": jnp.asarray(1e9)})
        assert float(used["far"]) == np.inf
        assert float(used["near"]) == pytest.approx(1.5e9 / 8e10)

    @pytest.mark.parametrize("hits", [WorkingSet(1e10), ZipfLru(1.05, 1e8, 512.0)])
    def test_cache_smaller_than_its_reserve_answers_nothing(self, hits):
        pool = CachedPool(
            MemoryTier(1e9, 3e12, reserved_bytes=5e9), MemoryTier(1e12, 3e11), Link(0.0, 1e-11), hits=hits
        )
        assert float(pool.hit()) == pytest.approx(0.0, abs=1e-3)
        assert 0 < float(pool.bandwidth()) <= 3e11


class TestOneDecision:
    EXCESS = (-1.0, 0.0, 0.5 * TOLERANCE, TOLERANCE, 2 * TOLERANCE, 1e-6, 1.0, np.inf, np.nan)
    HOLDS = (True, True, True, True, False, False, False, False, False)

    def test_shares_and_their_logs_agree(self):
        assert tuple(bool(feasible(excess)) for excess in self.EXCESS) == self.HOLDS
        inner = [1, 2, 4, 5, 6, 7, 8]  # the edge itself is a matter of rounding
        with np.errstate(divide="ignore"):
            logs = np.log1p(np.array(self.EXCESS))[inner]
        assert feasible_logs(logs).tolist() == [self.HOLDS[i] for i in inner]

    def test_no_number_is_infeasible(self):
        metrics = evaluate(training())
        for bad in (np.nan, np.inf):
            asked = Objective("bad", custom={"bad": lambda _, bad=bad: jnp.asarray(bad)})
            assert not feasible(asked.excess(metrics))
            limited = Objective("time_s", limits={"bad": 1.0}, custom=asked.custom)
            assert not feasible(limited.excess(metrics))

    def test_nobody_else_has_a_tolerance(self):
        """No comparison of an excess, a share or a violation with a number of its own."""
        own = re.compile(r"((excess|violation)\w*\)? *[<>]=? *|share\w*\)? *[<>]=? *1 *[+] *)[0-9.]+e-")
        result = [
            f"{path.name}: {line.strip()}"
            for path in PACKAGE.rglob("*.py")
            if "validation" not in path.parts
            for line in path.read_text(encoding="utf-8").splitlines()
            if own.search(line)
        ]
        assert not result

    def test_shown_in_words(self):
        assert share_text(0.984) == "98%"
        assert share_text(np.inf) == "no capacity"
        assert _marked(np.inf) == "[red]no capacity"
        assert _marked(1.0) == "100.0%"


class TestLegalRanges:
    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"plan.tp": "8"}, "plan.tp = '8' is not a number"),
            ({"plan.tp": 0.5}, "plan.tp = 0.5 is outside [1, 1e+09]"),
            ({"plan.tp": None}, "plan.tp = None is not a number"),
            ({PUE: float("nan")}, f"{PUE} = nan is outside [1, 4]"),
            ({HBM: 1e400}, f"{HBM} = inf is not finite"),
            ({HBM: 10**400}, f"{HBM} = inf is not finite"),
            ({PUE: np.array([1.1, 5.0])}, f"{PUE} = 5 is outside [1, 4]"),
            ({"cluster.accelerator.peak_flops_per_s": {"bf16": -1.0}}, "peak_flops_per_s.bf16 = -1 is outside"),
            ({"cluster": 1.0}, "cluster = 1.0: no number stands there"),
        ],
    )
    def test_replaced_values(self, values, words):
        with pytest.raises(ConfigError) as refused:
            replace(training(), values)
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)

    def test_inside_a_trace_nothing_raises(self):
        scenario = training()
        price = jax.jit(lambda pue: replace(scenario, {PUE: pue}).cluster.facility.pue)
        assert float(price(5.0)) == 5.0

    def test_infinite_numbers_are_refused_wherever_a_study_is_built(self):
        with pytest.raises(ConfigError, match="usd_per_byte = inf is not finite"):
            check_ranges(MemoryTier(8e10, 3e12, usd_per_byte=np.inf))
        with pytest.raises(ConfigError, match="must be a positive number below inf"):
            Objective("time_s", limits={"capex_usd": np.inf})

    @pytest.mark.parametrize(
        ("hardware", "words"),
        [
            ({"a": Continuous(PUE, 0.5, 2.0)}, f"space.hardware.a.low = 0.5: {PUE} = 0.5 is outside [1, 4]"),
            ({"a": Continuous(PUE, 1.1, 5.0)}, f"space.hardware.a.high = 5: {PUE} = 5 is outside [1, 4]"),
            ({"a": Continuous(HBM, 1e9, 1e10, tied=(PUE,))}, f"space.hardware.a.low = 1e+09: {PUE} = 0.015"),
            ({"a": Ratio(PUE, HBM, 1e-12, 1e-11)}, f"space.hardware.a.low = 1e-12: {PUE} = 0.08"),
            ({"a": Continuous(LATENCY, 1e-9, 2e-9, tied=(RATE,))}, f"{LATENCY} is 0"),
            ({"a": Continuous(HBM, 1e9, 1e400)}, "must be 0 < low < high < inf"),
            ({"a": Continuous("cluster.accelerator", 1.0, 2.0)}, "cluster.accelerator is no number"),
            ({"a": Continuous("plan.device_count", 1.0, 2.0)}, "plan.device_count is not set"),
            (
                {"a": Continuous(HBM, 1e9, 2e9), "b": Continuous(HBM, 3e9, 4e9)},
                f"{HBM} is moved by",
            ),
            ({"a": Continuous(HBM, 1e9, 2e9, tied=(RATE,)), "b": Continuous(RATE, 1e9, 2e9)}, f"{RATE} is moved by"),
            (
                {"a": Ratio(HBM, DDR, 0.1, 0.5), "b": Continuous(HBM, 1e9, 2e9)},
                f"{HBM} is moved by",
            ),
            ({"a": Continuous(HBM, 1e9, 2e9, tied=(HBM,))}, f"{HBM} is moved twice by space.hardware.a"),
            ({"a": Ratio(HBM, DDR, 0.1, 0.5), "b": Ratio(DDR, HBM, 1.0, 2.0)}, "would move its own denominator"),
            ({"a": Continuous("plan.tp", 1.0, 2.0)}, "plan.tp is moved by space.plan.tp and by space.hardware.a"),
            ({"tp": Continuous(HBM, 1e9, 2e9)}, "space.hardware.tp: tp is a field of a plan"),
        ],
    )
    def test_bounds_and_movers(self, hardware, words):
        with pytest.raises(ConfigError) as refused:
            Problem(training(), DesignSpace({"tp": [4, 8]}, hardware), Objective("time_s"))
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)

    def test_ratio_of_a_moved_denominator(self):
        """The denominator moves first, whatever the names and the order of the point; both bounds follow from both."""
        space = DesignSpace({}, {"a": Ratio(HBM, DDR, 0.1, 0.5, tied=(RATE,)), "b": Continuous(DDR, 1e11, 2e11)})
        space.check(training())
        for point in ({"a": 0.2, "b": 1.5e11}, {"b": 1.5e11, "a": 0.2}):
            placed = space.place(training(), point)
            assert float(get_path(placed, DDR)) == 1.5e11
            assert float(get_path(placed, HBM)) == pytest.approx(3e10, rel=1e-15)
            assert float(get_path(placed, RATE)) == pytest.approx(3.35e12 * 3 / 8, rel=1e-15)
        wide = {"a": Ratio(PUE, DDR, 1e-11, 1.9e-11), "b": Continuous(DDR, 1e11, 3e11)}
        with pytest.raises(ConfigError, match=r"space.hardware.a.high = 1.9e-11: .* = 5.7 is outside"):
            DesignSpace({}, wide).check(training())

    def test_both_ends_of_a_legal_range_can_be_placed(self):
        space = DesignSpace({}, {"a": Continuous(PUE, 1.0, 4.0)})
        space.check(training())
        ends = space.values({"a": jnp.asarray([0.0, 1.0])})["a"]
        assert np.asarray(ends).tolist() == [1.0, 4.0]
        for end in np.asarray(ends):
            assert float(get_path(space.place(training(), {"a": end}), PUE)) == end


class TestStrictJson:
    def test_numbers_that_are_none_become_null(self):
        text = dumps({"a": np.float64(np.inf), "b": [np.nan, 1, True, None], 3: jnp.asarray([1.0, -np.inf]), "c": "x"})
        assert json.loads(text) == {"a": None, "b": [None, 1, True, None], "3": [1.0, None], "c": "x"}
