"""Intervals: how they are fitted, which errors a design takes, and what draws of them make of its metrics."""

import dataclasses
import io
from collections import OrderedDict

import jax
import numpy as np
import pandas as pd
import pytest

from codesign.config import scenario_from_config
from codesign.core import disk_cache as kept_on_disk
from codesign.core.errors import ConfigError
from codesign.core.fields import as_leaf, with_numpy
from codesign.model.metrics import account, evaluate
from codesign.search.results import numbers_of
from codesign.staging import at_points, base_of, model
from codesign.uncertainty import (  # fmt: skip
    intervals,
    metrics_under_draws,
    of_designs,
    spreads,
    trace_with_draws,
    wins,
    with_room,
)
from codesign.uncertainty.draws import beyond, draw_doubts, factors, no_doubts, regime, source_names, under, wires_of
from codesign.uncertainty.spreads import (
    APART,
    LEARNED,
    LEVELS,
    MEASURED,
    NEW,
    PHYSICS,
    RELATIVE,
    TRIED,
    PredictionErrors,
    covered,
    find,
    fitted,
    parts_of,
    quantiles,
    widened,
)


@pytest.fixture(scope="module")
def scenario():
    return scenario_from_config("framework=megatron")


def missed(errors, groups):
    return PredictionErrors("kernel", "gemm", PHYSICS, NEW, np.asarray(errors), np.asarray(groups))


def test_groups_count_alike_and_left_out_ones_are_covered():
    rng = np.random.default_rng(1)
    errors = np.concatenate([rng.normal(0.0, 0.1, 300), rng.normal(0.05, 0.1, 30), rng.normal(-0.02, 0.1, 30)])
    groups = np.repeat(["a", "b", "c"], [300, 30, 30])
    row = fitted(missed(errors, groups))
    assert (row["groups"], row["rows"]) == (3, 360)
    assert row["coverage"] >= 0.9
    assert row["width"] == pytest.approx(np.exp((row["p95"] - row["p05"]) / 2), rel=0.02)
    assert quantiles([np.zeros(1000), np.ones(10)], (0.25, 0.75)) == pytest.approx([0.0, 1.0], abs=0.01)


def test_widening_stops_where_groups_have_nothing_in_common():
    apart = np.concatenate([np.full(50, level) + np.linspace(0, 1e-3, 50) for level in (-9.0, 0.0, 2.0)])
    row = fitted(missed(apart, np.repeat(["a", "b", "c"], 50)))
    assert row["inflation"] == pytest.approx(APART)
    assert row["coverage"] < 0.9  # and it says so


def test_errors_of_one_sign_need_no_tail_on_the_other_side():
    """An interval holds the prediction itself: where all errors are far below, one end lets nothing out."""
    rng = np.random.default_rng(2)
    sided = missed(rng.normal(-1.0, 0.1, 1000), np.repeat(list("abcde"), 200))
    row = fitted(sided)
    assert covered(parts_of(sided), np.array([1.0]))[0] > 0.94
    assert row["inflation"] < 0.9
    assert 0.9 <= row["coverage"] < 0.91


def test_more_is_covered_by_wider_intervals():
    rng = np.random.default_rng(3)
    parts = [rng.normal(shift, 0.1, 80) for shift in (-0.1, 0.0, 0.2)]
    shares = covered(parts, TRIED)
    assert (np.diff(shares) >= 0).all()
    low, _, high = widened(quantiles(parts[1:], (0.05, 0.5, 0.95)), 1, 1.4)
    alone = np.mean((parts[0] >= min(low, 0.0)) & (parts[0] <= max(high, 0.0)))
    rest = [covered([parts[0], *parts[1:]], np.array([1.4]))[0] * 3]
    for mine, others in ((parts[1], [parts[0], parts[2]]), (parts[2], parts[:2])):
        low, _, high = widened(quantiles(others, (0.05, 0.5, 0.95)), 1, 1.4)
        alone += np.mean((mine >= min(low, 0.0)) & (mine <= max(high, 0.0)))
    assert rest[0] == pytest.approx(alone)


def test_the_file_is_sound():
    table = spreads()
    assert {row.kind for row in table.values()} == {"kernel", "collective", "source", "stratum"}
    for row in table.values():
        low, high = row.interval()
        assert low <= 0 <= high
        assert list(row.sizes) == sorted(row.sizes)
        assert len(row.sizes) == len(LEVELS)
        assert row.rows >= row.groups >= 1
    assert (
        find("kernel", ("gemm",), LEARNED, MEASURED).half_width() < find("kernel", ("gemm",), LEARNED, NEW).half_width()
    )
    assert find("kernel", ("nothing",), PHYSICS, MEASURED) is None


def test_another_chip_is_less_certain(scenario):
    cluster = scenario.cluster
    assert regime(cluster, "gemm", "bf16") == MEASURED
    for change, expected in ((1.02, MEASURED), (1.3, RELATIVE), (4.0, NEW)):
        peaks = {name: value * change for name, value in cluster.accelerator.peak_flops_per_s.items()}
        other = dataclasses.replace(cluster.accelerator, peak_flops_per_s=peaks)
        assert regime(dataclasses.replace(cluster, accelerator=other), "gemm", "bf16") == expected
    unknown = dataclasses.replace(cluster.accelerator, name="mine", generation="")
    assert regime(dataclasses.replace(cluster, accelerator=unknown), "gemm", "bf16") == NEW


def test_collectives_of_a_machine_that_nobody_measured_err_as_those_of_its_kind_of_links():
    """Cards on a bus by how a board is wired, fabrics of accelerators far less."""
    result = {}
    for name in ("mi300x", "a100_pcie"):
        cluster = scenario_from_config(f"accelerator={name}", "workload=continuous", "framework=none").cluster
        result[name] = find("collective", (wires_of(cluster),), PHYSICS, NEW)
    assert result["mi300x"].half_width() < 2.5 < result["a100_pcie"].half_width()


@pytest.mark.slow
def test_room_for_draws_changes_nothing(scenario):
    assert numbers_of(with_room(scenario)) == numbers_of(scenario)


@pytest.mark.slow
def test_one_trace_serves_the_model_and_its_draws(scenario, monkeypatch):
    """The account that is left when the factors go is the one that is traced without them, to the last bit."""
    monkeypatch.setattr(kept_on_disk, "_folder", [])  # a command that ran before may have kept the program
    plain = with_numpy(scenario)
    leaves, made = jax.tree.leaves(plain), []
    alone = at_points(base_of(plain).program, leaves)
    monkeypatch.setattr(model, "_bases", OrderedDict())
    monkeypatch.setattr(model, "account", lambda one: made.append(one) or account(one))
    trace_with_draws(plain)
    together = at_points(base_of(plain).program, leaves)
    assert [one.cluster.doubts is None for one in made] == [False]
    assert all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True))


@pytest.mark.slow
def test_intervals_hold_the_prediction_and_errors_of_the_source_are_shared(scenario):
    result, numbers = intervals(scenario), numbers_of(scenario)
    for name, (low, high) in result.items():
        assert low < numbers[name] < high, name
    drawn = metrics_under_draws(scenario)
    assert {"time_s", "mfu", "joules_per_token", "usd_per_million_tokens"} <= set(drawn)
    assert drawn["time_s"] * drawn["tokens_per_s"] == pytest.approx(numbers["time_s"] * numbers["tokens_per_s"])
    shared = np.log(draw_doubts(scenario).kernels["gemm"])  # by all launches of the class that most time goes to
    assert np.corrcoef(np.log(drawn["time_s"]), shared)[0, 1] > 0.6
    same = wins(scenario, scenario)
    assert same == (0.0, (1.0, 1.0))
    with pytest.raises(ConfigError, match="'capex_usd' has no interval"):
        wins(scenario, scenario, "capex_usd")


def test_no_errors_no_factors():
    assert np.all(factors(None, "x", 5) == 1)
    assert beyond(None, None) == 1
    gemm = find("kernel", ("gemm",), PHYSICS, MEASURED)
    assert beyond(gemm, gemm) == 0


@pytest.mark.slow
def test_regret_of_the_best_of_two(scenario):
    from codesign.study.objective import Objective

    slower = dataclasses.replace(scenario, workload=dataclasses.replace(scenario.workload, step_overhead_s=0.05))
    result = of_designs(Objective(minimise="time_s"), [scenario, slower])
    assert result is not None
    assert (result.regret.stays, result.regret.high, result.regret.designs) == (1, 0, 2)
    assert "optimal among 2 in 100%" in result.regret.text()
    turned = of_designs(Objective(minimise="time_s"), [slower, scenario])
    assert turned is not None
    assert turned.regret.stays == 0 < turned.regret.typical


@pytest.mark.slow
def test_errors_of_suites_and_of_devices_left_out_become_rows_of_the_file():
    from codesign.evidence.validation.intervals import SuiteErrors, card_of, text_of
    from codesign.evidence.validation.scores import Errors

    rng = np.random.default_rng(0)
    regimes, gpus = np.repeat([MEASURED, RELATIVE, NEW], 40), np.tile(["H100-SXM", "B200"], 60)
    frame = pd.DataFrame({"class": "gemm", "number_format": "bf16", "framework": "trtllm", "gpu": gpus})
    frame = frame.assign(regime=regimes, case=gpus, physics=rng.normal(0, 0.2, 120), learned=rng.normal(0, 0.1, 120))

    def seen(suite: str, quantity: str, stratum: str, group: str) -> SuiteErrors:
        return SuiteErrors(suite, quantity, Errors(stratum, group, np.full(20, 1.0), np.exp(rng.normal(0, 0.1, 20))))

    compared = [
        seen("training", "step_time", "training A", "B200 x"),
        seen("training", "step_time", "training A, framework fitted", "B200 x"),
        seen("collectives", "latency", "collectives from 1 MiB", "H100-SXM all_reduce"),
        seen("collectives", "latency", "collectives from 1 MiB, GPU left out", "H100-SXM all_reduce"),
        seen("collectives", "latency", "collectives from 1 MiB, GPU left out", "L40S all_reduce"),
    ]
    rows = pd.read_csv(io.StringIO(text_of(frame, compared)))
    result = {tuple(row) for row in rows[["kind", "name", "model", "regime"]].itertuples(index=False)}
    assert ("kernel", "gemm bf16", LEARNED, NEW) in result
    assert ("stratum", "kernels: gemm bf16, GPU left out: latency", LEARNED, RELATIVE) in result
    assert ("source", "training", PHYSICS, NEW) in result
    assert ("source", "training, framework named", PHYSICS, NEW) in result
    assert ("collective", "all_reduce", PHYSICS, MEASURED) in result
    assert {("collective", f"any {links}", PHYSICS, NEW) for links in ("on a bus", "in a domain")} <= result
    assert rows.set_index(["kind", "name", "model", "regime"]).loc[("kernel", "gemm", LEARNED, MEASURED), "members"]
    assert len(card_of(frame).splitlines()) == 1 + 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "framework", "names"),
    [
        ("static_batch_fp8", "none", ("ttft", "tpot")),
        ("continuous_fp8", "none", ("ttft", "tpot, closed loop")),
        ("continuous_fp8", "vllm", ("ttft, framework named", "tpot, closed loop, framework named")),
        ("at_rate", "vllm", ("ttft, framework named", "tpot, closed loop, framework named")),
        ("goodput", "sglang", ("ttft, framework named", "tpot, closed loop, framework named")),
    ],
)
def test_errors_are_those_of_engines_that_batch_continuously(workload, framework, names):
    """Also of open loops: they had those of static batches, whose first tokens are measured at twice the model's."""
    asked = (f"workload={workload}", f"framework={framework}", "model=llama31_70b", "accelerator=h100_sxm")
    assert source_names(scenario_from_config(*asked)) == names


@pytest.mark.parametrize(
    ("devices", "begin", "loop"), [(0, "ttft", "closed loop"), (8, "ttft, two pools", "two pools")]
)
def test_two_pools_have_errors_of_their_own(devices, begin, loop):
    asked = ("workload=disaggregated_fp8", "framework=sglang", "prefill=same", f"plan.prefill_devices={devices}",
             "model=llama31_70b", "accelerator=h100_sxm")  # fmt: skip
    first, step = source_names(scenario_from_config(*asked))
    assert (first, step) == (f"{begin}, framework named", f"tpot, {loop}, framework named")
    assert all(find("source", (name,), PHYSICS, NEW) for name in (first, step))


@pytest.mark.slow
@pytest.mark.parametrize("words", [
    ("workload=disaggregated", "prefill=same", "plan.prefill_devices=8", "plan.prefill_tp=8", "plan.tp=8",
     "model=llama31_70b", "cluster.device_count=16"),
    ("workload=mixed_training", "later_stages=other", "model=llama31_8b", "plan.tp=8", "plan.pp=4",
     "plan.virtual_stages=1", "plan.later_stages=3", "plan.later_layers=31", "cluster.device_count=32"),
])  # fmt: skip
def test_pools_beside_err_too(words):
    """The pool that paces a job takes as long in a draw as that says; it took its predicted time in all of them."""
    base = scenario_from_config("framework=none", "calibration=h200_roofline", "accelerator=h200", *words)
    plain = evaluate(under(base, no_doubts())).flat()
    twice = evaluate(under(base, dataclasses.replace(no_doubts(), source=as_leaf(2.0)))).flat()
    assert float(plain["time_s"]) == pytest.approx(float(evaluate(base).flat()["time_s"]), rel=1e-6)
    assert float(twice["time_s"]) == pytest.approx(2 * float(plain["time_s"]), rel=2e-3)


def test_percentiles_err_as_means_do():
    """First tokens later by a factor, whole requests by as much time; nothing else moves."""
    late = dataclasses.replace(no_doubts(), first_token=as_leaf(3.0))
    told = {
        "ttft_s": 2.0,
        "ttft_p99_s": 5.0,
        "tpot_p99_s": 0.1,
        "e2e_s": 10.0,
        "e2e_p50_s": 9.0,
        "slot_utilisation": 0.5,
    }
    result = late.of_first_token({name: as_leaf(value) for name, value in told.items()})
    moved = {"ttft_s": 6.0, "ttft_p99_s": 15.0, "e2e_s": 14.0, "e2e_p50_s": 13.0}
    assert {name: float(value) for name, value in result.items()} == pytest.approx(told | moved)
    assert late.of_first_token({"mfu": as_leaf(0.5)}) == {"mfu": as_leaf(0.5)}
