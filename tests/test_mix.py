"""Mixes: blends, bounds against every tuple solved for itself, robust designs, configuration, refusals."""

import dataclasses
import itertools
import math
import time

import numpy as np
import pytest
from builders import training
from posynomial_oracles import Posynomials

from codesign.config import study_from_config
from codesign.core.errors import ConfigError
from codesign.jaxprs.program import likeness
from codesign.search import Cases, Certified, Mix, MixEntry, Problem, Robust, Uncertain
from codesign.search.blend import HOW, Blend
from codesign.search.branch_and_bound.bounding import SearchEffort
from codesign.search.branch_and_bound.branch_and_bound import BranchAndBound
from codesign.search.branch_and_bound.oracle import GOAL, Programme
from codesign.search.mix.alternating import Alternating, JointOracle, Member
from codesign.search.mix.pricing import Proof
from codesign.search.mix.workload_oracles import Searches
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective

UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
HBM = "cluster.accelerator.hbm.capacity_bytes"
PRICE = "cluster.accelerator.hbm.usd_per_byte"


@pytest.mark.parametrize("how", HOW)
def test_blend_is_convex_increasing_and_shift_equivariant(how):
    rng = np.random.default_rng(0)
    blend = Blend(how, np.array([1.0, 2.0, 3.0]), 0.4)
    a, b = rng.normal(size=(2, 200, 3))
    value, slopes = blend.tangent(a)
    assert (slopes >= 0).all()
    assert slopes.sum(axis=1) == pytest.approx(1.0)
    assert (value + (slopes * (b - a)).sum(axis=1) <= blend.value(b) + 1e-12).all()
    assert blend.value(a + 2.5) == pytest.approx(value + 2.5)


def test_blends_by_hand():
    """Costs 1, 2, 4 with weights 1/4, 1/4, 1/2: mean 2.75; the worst half is the 4; the worst 3/4 hold 2 and 4."""
    logs, weights = np.log([1.0, 2.0, 4.0]), np.array([1.0, 1.0, 2.0])
    assert np.exp(Blend("sum", weights).value(logs)) == pytest.approx(2.75)
    assert np.exp(Blend("worst", weights).value(logs)) == pytest.approx(4.0)
    assert np.exp(Blend("cvar", weights, 0.5).value(logs)) == pytest.approx(4.0)
    assert np.exp(Blend("cvar", weights, 0.75).value(logs)) == pytest.approx((0.5 * 4 + 0.25 * 2) / 0.75)
    assert np.exp(Blend("cvar", weights, 1.0).value(logs)) == pytest.approx(2.75)
    assert np.exp(Blend("log_sum", weights).value(logs)) == pytest.approx(2**0.25 * 4**0.5)
    assert np.exp(Blend("worst", weights, 1.0, logs).value(logs)) == pytest.approx(1.0)


def workload(rng: np.random.Generator, plans: int) -> Posynomials:
    """Plans that want two resources in different proportions, under one budget."""
    axes, rows = np.eye(2), {GOAL: [], "money": []}
    for _ in range(plans):
        c, m = np.exp(rng.normal(size=2) * 1.2), np.exp(rng.normal(size=2) * 0.3) / 40
        rates = [[(c[i], -axes[i] * rng.uniform(0.5, 1.0))] for i in range(2)]
        rows[GOAL].append([*rates, [(0.3 * c.mean(), -rng.uniform(0, 0.5, 2)), (0.2, np.zeros(2))]])
        rows["money"].append([[(m[i], axes[i]) for i in range(2)]])
    return Posynomials(rows, np.full(2, np.log(100.0)))


@pytest.mark.slow
@pytest.mark.parametrize(("how", "seed"), [("log_sum", 0), ("sum", 2), ("worst", 0), ("cvar", 1)])
def test_bound_and_design_against_every_tuple_solved_for_itself(how, seed):
    rng = np.random.default_rng(seed)
    members = [Member(f"w{k}", Programme(workload(rng, 5))) for k in range(3)]
    blend = Blend(how, np.array([1.0, 2.0, 1.0]), 0.5)
    tuples = np.array(list(itertools.product(range(5), repeat=3)))
    apart = [Member(m.name, m.programme) for m in members]
    every = BranchAndBound(Programme(JointOracle(apart, blend, tuples)), SearchEffort(gap=1e-4), 0).run()

    search = Alternating(members, blend, 1e-4, 0)
    search.run()
    own = sum(
        w * BranchAndBound(Programme(m.programme.oracle), SearchEffort(gap=1e-4), 0).run().lower
        for w, m in zip(blend.weights, members, strict=True)
    )
    stages: list[tuple[float, float]] = []
    searches = Searches(members, 0)
    proof = Proof(
        searches, blend, search, 2e-3, time.perf_counter() + 60, lambda _: stages.append((search.upper, proof.lower))
    )
    proof.run()
    assert search.upper >= every.lower - 1e-6
    assert search.upper <= every.upper + 2e-3
    assert all(lower <= every.upper + 1e-6 for _, lower in stages)  # at any moment
    assert proof.lower >= search.upper - 2e-3 - 1e-9
    if how == "log_sum":
        assert own < every.lower - 0.01  # sharing costs something here, so the bound had work to do


def test_no_more_is_claimed_than_what_dropped_plans_reach():
    """A plan of the best tuple, dropped since its tuples reach what was asked for then, still counts in the bound."""
    members = [Member(f"w{k}", Programme(workload(np.random.default_rng(k), 4))) for k in range(2)]
    blend = Blend("log_sum", np.ones(2))
    tuples = np.array(list(itertools.product(range(4), repeat=2)))
    apart = [Member(m.name, m.programme) for m in members]
    every = BranchAndBound(Programme(JointOracle(apart, blend, tuples)), SearchEffort(gap=1e-4), 0).run()
    best = int(tuples[every.bounding.plan][0])

    search = Alternating(members, blend, 1e-4, 0)
    search.run()
    gap = 0.2
    search.upper = every.lower + 0.5 * gap  # a search that found no better
    proof = Proof(Searches(members, 0), blend, search, gap, time.perf_counter() + 60, lambda _: None)
    side = proof.sides[0]
    side.floor[best] = every.lower  # what a round of duals can prove at most
    side.drop(-math.inf, search.upper - gap)
    assert not side.alive[best]
    proof.choose(1)
    assert proof.lower <= every.upper + 1e-6
    assert proof.lower >= every.lower - 1e-6

    asked = side.asking(1.0, np.zeros(2), SearchEffort(gap=0.1, seconds=10.0))
    side.priced(asked.run(side.member.programme, 0))  # another round, of the plans that are left
    side.drop(1.0, search.upper - gap)
    assert side.dropped <= every.lower


def test_kick_changes_the_plans_of_all_workloads_together():
    """Plans that need 3 units of memory, or 1 at a tenth more: with all on the first, no single change pays."""
    m, plans = np.ones(1), [(1.0, 3.0), (1.1, 1.0), *[(2.0, 2.0)] * 8]
    rows = {
        GOAL: [[[(c, 0 * m), (0.5 * c, m)]] for c, _ in plans],  # cost (1 + m / 2) c
        "memory": [[[(need, -m)]] for _, need in plans],
    }
    members = [Member(f"w{k}", Programme(Posynomials(rows, np.log([4.0])))) for k in range(3)]
    search = Alternating(members, Blend("log_sum", np.ones(3)), 1e-4, 0)
    search.take(np.zeros((1, 3), dtype=int), np.array([[0.9]]))
    assert math.exp(search.upper) == pytest.approx(2.5, rel=1e-3)
    assert not search.exchange()
    assert search.kick()
    assert search.plans.tolist() == [1, 1, 1]
    assert math.exp(search.upper) == pytest.approx(1.65, rel=1e-3)


SPACE = DesignSpace(
    {"tp": [4, 8], "pp": [4, 8], "zero": [0, 1], "micro_batch": [1, 2]},
    {"scale_up": Continuous(UP, 100e9, 1800e9), "hbm": Continuous(HBM, 40e9, 160e9)},
)


def problem(goal: str = "usd_per_million_tokens", seconds: float = 12.0, batch: float = 1024.0) -> Problem:
    scenario = training()
    workload = dataclasses.replace(scenario.workload, global_batch=batch)
    scenario = dataclasses.replace(scenario, workload=workload)
    return Problem(scenario, SPACE, Objective(goal, limits={"time_s": seconds}))


@pytest.fixture(scope="module")
def mixed():
    problems = {"short": problem(seconds=9.0, batch=512.0), "long": problem(seconds=20.0, batch=1024.0)}
    mix = Mix(
        {name: MixEntry() for name in problems}, aggregate="worst", relative=True, gap=5e-3, convexity_samples=64
    ).bound(problems)
    return mix, problems, mix.run(problems["short"], 0)


@pytest.mark.slow
def test_mix_on_the_model_is_certified_and_shares_its_hardware(mixed):
    _, problems, trace = mixed
    result = trace.certificate
    assert result.certified, trace.claim
    assert result.bound <= result.best <= result.bound * 1.0051
    own = [entry.own_bound / entry.own_best for entry in result.workloads]
    assert result.bound_of_own_hardware == pytest.approx(max(own))  # of relative goals
    assert result.best >= 1 - 2.6e-3  # no workload is better than its own best, which is known to half the gap
    designs = [entry.design for entry in result.workloads]
    assert designs[0]["hbm"] == designs[1]["hbm"]
    assert trace.tables["workloads"]["workload"].tolist() == list(problems)
    assert trace.tables["workloads"]["limit.time_s"].max() <= 1 + 1e-6
    for entry in result.workloads:
        assert max(entry.used.values()) <= 1 + 1e-6
        assert entry.value >= entry.own_bound * (1 - 1e-9)
    assert result.best == pytest.approx(max(1 + entry.costs for entry in result.workloads), rel=1e-6)


@pytest.mark.slow
def test_workloads_of_one_structure_compile_once(mixed):
    mix, _, _ = mixed
    members = mix.members()
    first, second = (member.programme.oracle for member in members)
    asked, other = (likeness(oracle.program.program, values=False) for oracle in (first, second))
    assert asked == other
    limit = members[1].programme.allowed["time_s"]
    assert math.exp(limit) == pytest.approx(20.0 / 9.0)


def test_mix_has_one_hardware():
    other = dataclasses.replace(SPACE, hardware=SPACE.hardware | {"hbm": Continuous(HBM, 40e9, 100e9)})
    problems = {"a": problem(), "b": dataclasses.replace(problem(), space=other)}
    with pytest.raises(ConfigError, match=r"space\.hardware\.hbm of b differs"):
        Mix({"a": MixEntry(), "b": MixEntry()}).bound(problems)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workloads": {}}, "search.workloads is empty"),
        ({"workloads": {"a": {"weight": -1}}}, "search.workloads.a.weight"),
        ({"workloads": {"a": {"wait": 1}}}, "must be a mapping"),
        ({"workloads": {"a": {}}, "aggregate": "best"}, "search.aggregate = 'best'"),
        ({"workloads": {"a": {}}, "tail": 0.0}, "search.tail"),
    ],
)
def test_refusals(given, said):
    with pytest.raises(ConfigError, match=said):
        Mix(**given)


@pytest.mark.slow
def test_mix_from_the_configuration():
    study = study_from_config("search=mix", "cluster.device_count=512")
    assert list(study.search.problems) == ["gpt3_175b", "megatron_22b"]
    assert {float(p.scenario.cluster.device_count) for p in study.search.problems.values()} == {512.0}
    assert study.scenario.workload.model.name == "gpt3_175b"
    with pytest.raises(ConfigError, match=r"search\.workloads\.megatron_22b: .*nope"):
        study_from_config("search=mix", 'search.workloads.megatron_22b.overrides=["model=nope"]')


@pytest.mark.slow
def test_robust_design_holds_in_every_case_and_is_proven():
    """The least worst case over prices and sizes of HBM, against a fine grid over hardware and all plans."""
    cases = Cases(
        {
            "price": Uncertain(PRICE, (0.5, 2.0)),
            "speed": Uncertain("cluster.accelerator.peak_flops_per_s.bf16", (0.8, 1.1)),
        }
    )
    proof = Certified(gap=1e-3, convexity_samples=64, explain=False)
    trace = Robust(cases, "worst", proof=proof).run(problem(), 0)
    assert trace.certificate.certified, trace.claim
    goals = [case["goal"] for case in trace.certificate.robust.cases]
    assert len(goals) == 4
    assert trace.certificate.best == pytest.approx(max(goals), rel=1e-6)
    nominal = proof.run(problem(), 0).certificate.best
    assert min(goals) < nominal < max(goals)


def test_robust_refuses_what_the_space_sets():
    cases = Cases({"hbm": Uncertain(HBM, (0.9, 1.1))})
    with pytest.raises(ConfigError, match=r"chosen by space\.hardware\.hbm"):
        cases.check(problem().scenario, problem().space)
    with pytest.raises(ConfigError, match="non-empty list of positive"):
        Uncertain(PRICE, (-1.0,))
