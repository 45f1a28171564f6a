"""Mixes, listed and whole numbers, and the least of a number, over runners: the undivided answer, to the bit."""

import dataclasses
import pickle

import numpy as np
import pytest
from contracts.problems import PROBLEMS, made
from test_plan_parts import Losing, Shuffled

from codesign.core.errors import CodesignError
from codesign.executors import Local, Serial
from codesign.search import Certified, Integer, Inverse, Mix, Problem
from codesign.search.branch_and_bound.integer import FixedCoordinateTask, FixedCoordinateWork

PROOF = Certified(gap=1e-3, convexity_samples=64, batch_size=64, explain=True)
RUNNERS = [Serial(), Shuffled(3)]


def same(one, other) -> None:
    """Two traces are equal in every number but seconds."""
    assert one.points.keys() == other.points.keys()
    assert all(np.array_equal(column, other.points[name]) for name, column in one.points.items())
    assert (one.claim, one.counts, one.method) == (other.claim, other.counts, other.method)
    assert (one.evidence is None) == (other.evidence is None)
    a, b = (dataclasses.replace(trace.certificate, history=()) for trace in (one, other))
    assert a == b
    if one.evidence is not None and other.evidence is not None:
        assert one.evidence.header == other.evidence.header
        for name, table in one.evidence.tables.items():
            for column, values in table.items():
                assert np.array_equal(values, other.evidence.tables[name][column]), f"{name}.{column}"


def listed(problem: Problem) -> Integer:
    """Each of three values of the last variable."""
    name = problem.space.names[-1]
    low, high = problem.space.hardware[name].low, problem.space.hardware[name].high
    return Integer({}, PROOF, {name: [float(f"{low * (high / low) ** at:.12g}") for at in (0.0, 0.5, 1.0)]})


def counted(problem: Problem) -> Integer:
    """Whole multiples of a tenth of its highest value."""
    name = problem.space.names[-1]
    return Integer({name: problem.space.hardware[name].high / 10}, PROOF)


@pytest.mark.parametrize("runner", RUNNERS, ids=lambda runner: type(runner).__name__)
@pytest.mark.parametrize("search", [listed, counted])
def test_whole_numbers_over_a_runner(search, runner):
    problem = made()
    whole = search(problem)
    same(whole.run(problem, 0), whole.over(runner).run(problem, 0))


def two(**changed) -> Mix:
    """Two workloads that differ in their size."""
    first = made()
    workload = dataclasses.replace(first.scenario.workload, tokens=512)
    scenario = dataclasses.replace(first.scenario, workload=workload)
    other = Problem(scenario, first.space, first.objective)
    return Mix({"one": {}, "other": {}}, gap=5e-3, convexity_samples=64, batch_size=64, **changed).bound(
        {"one": first, "other": other}
    )


MIXES = {
    "log_sum": {},
    "relative": {"aggregate": "worst", "relative": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("runner", [Serial(chunk_s=1e-9), Shuffled(1, chunk_s=1e-9)], ids=["alone", "shuffled"])
@pytest.mark.parametrize("name", MIXES)
def test_mixes_over_a_runner(name, runner):
    """Also with every round of duals sent to it."""
    mix = two(**MIXES[name])
    problem = next(iter(mix.problems.values()))
    same(mix.run(problem, 0), mix.over(runner).run(problem, 0))


@pytest.mark.slow
def test_other_processes_say_the_same():
    mix, problem = two(), made()
    same(mix.run(problem, 0), mix.over(Local(2, chunk_s=1.0)).run(problem, 0))
    same(listed(problem).run(problem, 0), listed(problem).over(Local(2, chunk_s=1.0)).run(problem, 0))


@pytest.mark.parametrize("error", [CodesignError, KeyboardInterrupt])
def test_of_values_that_are_missing_nothing_is_claimed(error):
    """The two values that were searched answer; nothing is certified, nothing is kept as a proof."""
    problem = made()
    trace = listed(problem).over(Losing(error)).run(problem, 0)
    result = trace.certificate
    assert result is not None
    assert result.best is not None
    assert not result.certified
    assert trace.evidence is None
    assert len(trace.points["tp"]) == 2


def test_a_mix_that_lost_a_workload_says_so():
    """The tuple that was found before stands."""
    problems = {name: made() for name in "abc"}
    mix = Mix({name: {} for name in problems}, gap=5e-3, convexity_samples=64, batch_size=64).bound(problems)
    trace = mix.over(Losing()).run(made(), 0)
    assert trace.certificate is not None
    assert trace.certificate.best is not None
    assert not trace.certificate.certified
    assert "a worker was lost" in trace.claim


@pytest.mark.parametrize("name", ["feasible", "infeasible"])
def test_the_least_of_a_number_is_proven_in_parts(name):
    problem = PROBLEMS[name]()
    search = Inverse.example(problem)
    one, parts = search.run(problem, 0).certificate, search.over(Serial()).run(problem, 0)
    assert one is not None
    assert parts.certificate is not None
    assert (parts.certificate.best is None) == (one.best is None)
    assert parts.counts["parts"] > 1
    assert parts.evidence is not None
    if one.best is not None and parts.certificate.best is not None:
        assert parts.certificate.certified
        assert parts.certificate.best == pytest.approx(one.best, rel=6e-3)


def test_what_is_sent_has_no_model_in_it():
    """A worker makes its own, once, whatever was run here before."""
    problem = made()
    work = FixedCoordinateWork(problem, PROOF, True, 0)
    fresh, part = len(pickle.dumps(work)), FixedCoordinateTask(0, ((0, 0.5),), True)
    here = work(part)
    assert len(pickle.dumps(work)) == fresh
    there = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(work))(part)))
    assert there.lower == here.lower
    assert np.array_equal(there.outcome.state["table"].lower, here.outcome.state["table"].lower)
    assert not there.outcome.state["table"].lower.flags.writeable
