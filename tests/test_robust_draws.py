"""`search.cases.draws`: a design chosen under joint draws of the model's errors, proven and verified."""

import numpy as np
import pytest
from builders import training

from codesign.commands.left_files import read_evidence, write_evidence
from codesign.commands.verify import cases_of
from codesign.core.errors import ConfigError
from codesign.model.metrics import evaluate
from codesign.search import Cases, Certified, Problem, Robust, Uncertain
from codesign.search.blend import Blend
from codesign.search.branch_and_bound.model_oracle import Oracle
from codesign.search.branch_and_bound.oracle import rows_of
from codesign.search.robust import robust_oracle
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective
from codesign.uncertainty import metrics_under_draws, spreads
from codesign.uncertainty.metrics import at_centre
from codesign.verification import VerifiedProblem, derivation_of, verify

GOAL, DRAWS, TAIL = "time_s * capex_usd", 6, 0.34
SPACE = DesignSpace(
    plan={"pp": [2, 8]},
    hardware={"up": Continuous("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 5e10, 1e12)},
)  # fmt: skip
PROBLEM = Problem(training(), SPACE, Objective(GOAL))
PROOF = Certified(gap=2e-3, convexity_samples=8, batch_size=64, explain=False)
SEARCH = Robust(Cases(draws=DRAWS), "cvar", TAIL, PROOF)


@pytest.fixture(scope="module")
def trace():
    return SEARCH.run(PROBLEM, 0)


def in_draws(point) -> np.ndarray:
    """Log of the goal of a design in each draw, by the model alone."""
    placed = SPACE.place(PROBLEM.scenario, point)
    result = [evaluate(case) for case in Cases(draws=DRAWS).scenarios(placed, 0)]
    return np.log([float(one.time_s * one.capex_usd) for one in result])


@pytest.mark.slow
def test_goals_of_cases_are_those_of_the_draws_that_intervals_are_made_of(trace):
    assert spreads()
    point = {name: values[0] for name, values in trace.points.items()}
    told = [case["goal"] for case in trace.certificate.robust.cases]
    assert [case["draw"] for case in trace.certificate.robust.cases] == list(range(DRAWS))
    assert np.log(told) == pytest.approx(in_draws(point), abs=1e-6)
    assert np.ptp(np.log(told)) > 0.1  # draws differ
    times = metrics_under_draws(SPACE.place(PROBLEM.scenario, point), DRAWS)["time_s"]
    assert np.diff(np.log(times)) == pytest.approx(np.diff(np.log(told)), abs=1e-6)


@pytest.mark.slow
def test_its_tail_is_no_worse_than_that_of_the_design_chosen_without_draws(trace):
    blend = Blend("cvar", np.ones(DRAWS), TAIL)
    plain = PROOF.run(PROBLEM, 0)
    ours, theirs = (
        float(blend.value(in_draws({name: values[0] for name, values in one.points.items()})[None])[0])
        for one in (trace, plain)
    )
    assert ours <= theirs + 1e-9
    assert trace.certificate.best == pytest.approx(np.exp(ours), rel=1e-6)
    assert trace.certificate.bound <= trace.certificate.best <= trace.certificate.bound * (1 + 2.1e-3)


@pytest.mark.slow
def test_the_proof_over_draws_is_verified(trace, tmp_path):
    write_evidence(trace.evidence, tmp_path)
    certificate = derivation_of(*read_evidence(tmp_path))
    cases = cases_of(PROBLEM, SEARCH.cases, SEARCH.aggregate, SEARCH.tail, 0)
    asked = VerifiedProblem(
        SEARCH.cases.with_room(PROBLEM.scenario), SPACE, PROBLEM.objective, GOAL, targets=(), cases=cases
    )
    answer = verify(asked, certificate.claim, certificate, 64, 0)
    assert answer.verified, answer.line


def test_draws_go_with_factors_of_leaves():
    price = Uncertain("cluster.accelerator.price_usd", (0.5, 2.0))
    cases = Cases({"price": price}, draws=3)
    result = cases.scenarios(PROBLEM.scenario, 0)
    assert len(result) == len(cases.named(0)) == 6
    assert cases.named(0)[4] == {"price": 2.0, "draw": 1.0}
    assert float(result[1].cluster.doubts.source) == float(result[4].cluster.doubts.source)
    assert float(result[4].cluster.accelerator.price_usd) == 4 * float(result[1].cluster.accelerator.price_usd)


def test_what_cannot_be_drawn_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match=r"draws = -1 must not be negative"):
        Cases(draws=-1)
    with pytest.raises(ConfigError, match=r"search\.cases\.uncertain.* or search\.cases\.draws"):
        Robust(Cases())
    with pytest.raises(ConfigError, match=r"draws = 2: only search=robust draws"):
        robust_oracle(Oracle(PROBLEM, rows_of(PROBLEM), 64), Cases(draws=2), "worst", 0.1, 0)
    monkeypatch.setattr("codesign.uncertainty.draws.spreads", dict)
    with pytest.raises(ConfigError, match=r"draws = 2: no errors of the model are known"):
        Cases(draws=2)


def test_numbers_at_the_centre_are_those_of_the_model_alone():
    told = at_centre(
        PROBLEM.scenario, lambda account: {"time": account.metrics.time_s, "usd": account.metrics.capex_usd}
    )
    alone = evaluate(PROBLEM.scenario)
    assert told == pytest.approx({"time": float(alone.time_s), "usd": float(alone.capex_usd)}, rel=1e-12)


SLOWER = Cases({"slower": Uncertain("workload.kernel_slowdown", (1.0, 1.5, 0.8))})
PLANS = DesignSpace(plan={"tp": [1, 2, 4, 8], "pp": [1, 2, 4, 8], "micro_batch": [1, 2, 4]})


@pytest.mark.parametrize("how", ["sum", "worst", "log_sum", "cvar"])
def test_a_plan_that_one_case_rules_out_is_priced_in_that_case_alone(how):
    free = Oracle(
        Problem(training(), PLANS, Objective("time_s")), rows_of(Problem(training(), PLANS, Objective("time_s")))
    )
    times = np.exp(free.values(np.arange(free.count), np.zeros((free.count, 0)))[0][:, 0])
    problem = Problem(training(), PLANS, Objective("time_s", limits={"time_s": 1.8 * float(times.min())}))
    inner = Oracle(problem, rows_of(problem))
    oracle = robust_oracle(inner, SLOWER, how, 0.5, 0)
    plan, u = np.arange(inner.count), np.zeros((inner.count, 0))
    alone = [inner.tangents(plan, u, 1.0, scenario=case) for case in oracle.scenarios]
    limits = np.max([part.exact[:, 1:].max(axis=1) for part in alone], axis=0)
    goal = oracle.blend.value(np.stack([part.exact[:, 0] for part in alone]).T)
    met = limits <= 0
    assert 0 < met.sum() < len(met)

    for result in (oracle.tangents(plan, u, 1.0), oracle.tangents(plan, u, 1.0)):  # again: the hardest case first
        assert ((result.exact[:, 1:].max(axis=1) <= 0) == met).all()
        assert result.exact[met, 0] == pytest.approx(goal[met])
        assert result.affine[met, 0, 0] == pytest.approx(goal[met])
        assert (result.affine[:, 0, 0] <= goal + 1e-9).all()
        assert (result.affine[:, 1:, 0].max(axis=1) <= limits + 1e-9).all()
        assert ((result.affine[:, 1:, 0].max(axis=1) > 0) == ~met).all()
    assert oracle.values(plan, u)[0][met] == pytest.approx(oracle.tangents(plan, u, 1.0).exact[met])
    before = inner.evaluated
    oracle.tangents(plan, u, 1.0)
    assert inner.evaluated - before == len(plan) + 2 * met.sum()  # the slowest case rules out all that are too slow
    found = Robust(SLOWER, how, 0.5, PROOF).run(problem, 0).certificate
    assert found.best == pytest.approx(np.exp(goal[met].min()), rel=1e-9)
    assert found.bound == pytest.approx(found.best, rel=2.1e-3)
