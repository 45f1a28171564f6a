"""A proof cut into parts of the plans: put together in any order it is that of the whole, nothing is claimed early."""

import dataclasses
import itertools
import math
import pickle

import numpy as np
import pytest
from contracts.problems import PROBLEMS, exhaustive, made

from codesign.core.errors import CodesignError
from codesign.executors import AbstractRunner, Local, Serial
from codesign.search import Certified, Pareto, Problem, Robust
from codesign.search.branch_and_bound.part_work import PartProof, PartWork, RowsOfProblem, merged, number_of, plan_parts

SEARCH = Certified(gap=1e-3, convexity_samples=64, batch_size=64, explain=False)
MAKER = RowsOfProblem(64, 0)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return made(plan={"tp": [1, 2, 4], "pp": [1, 2], "micro_batch": [1, 4], "sequence_parallel": [False, True]})


@pytest.fixture(scope="module")
def proofs(problem) -> list[PartProof]:
    work = PartWork(problem, MAKER, SEARCH.effort, 0, 3)
    return [work(part) for part in plan_parts(problem, 6)]


def alike(a: PartProof, b: PartProof) -> bool:
    return (a.lower, a.designs, a.reports.keys()) == (b.lower, b.designs, b.reports.keys())


def test_parts_hold_every_legal_plan_once(problem):
    whole = MAKER(problem)
    for least in (1, 2, 6, 100):
        parts = plan_parts(problem, least)
        numbers = []
        for part in parts:
            some = MAKER(part.of(problem))
            rows = [{n: float(c[0]) for n, c in some.columns(np.array([k])).items()} for k in range(some.count)]
            numbers += [number_of(whole, row) for row in rows]
        listed = [number for number in numbers if number >= 0]  # others are equal to one that is listed
        assert sorted(listed) == list(range(whole.count))


@pytest.mark.parametrize("seed", range(12))
def test_any_order_is_the_same(proofs, seed):
    rng = np.random.default_rng(seed)
    heap = [proofs[i] for i in rng.permutation(len(proofs))] + [proofs[i] for i in rng.integers(0, len(proofs), 4)]
    while len(heap) > 1:
        i, j = sorted(rng.choice(len(heap), 2, replace=False).tolist())
        b, a = heap.pop(j), heap.pop(i)
        heap.append(merged(a, b))
    assert heap[0].lower == min(one.lower for one in proofs)
    assert list(heap[0].designs) == sorted(d for one in proofs for d in one.designs)[:3]
    assert sorted(heap[0].reports) == list(range(len(proofs)))


def test_merging_is_associative_commutative_and_idempotent(proofs):
    for a, b, c in itertools.permutations(proofs[:4], 3):
        assert alike(merged(a, b), merged(b, a))
        assert alike(merged(merged(a, b), c), merged(a, merged(b, c)))
        assert alike(merged(a, a), a)


@pytest.mark.parametrize("name", ["feasible", "most", "plans", "ties", "kink", "reserve", "infeasible"])
def test_parts_prove_what_the_whole_does(name):
    problem = PROBLEMS[name]()
    one, parts = SEARCH.run(problem, 0), SEARCH.over(Serial()).run(problem, 0)
    a, b = one.certificate, parts.certificate
    assert a is not None
    assert b is not None
    assert (a.certified, a.convex) == (b.certified, b.convex) == (True, True)
    assert (a.best is None) == (b.best is None)
    if a.best is not None and b.best is not None and b.bound is not None and a.bound is not None:
        assert b.best == pytest.approx(a.best, rel=2e-3)
        low, high = sorted([b.best, b.bound])
        assert high / low <= 1.001 * (1 + 1e-9)
        assert min(a.best, a.bound) <= high * (1 + 1e-9)  # the two claims do not contradict each other
        assert low <= max(a.best, a.bound) * (1 + 1e-9)
    assert parts.evidence is not None
    assert parts.counts["parts"] > 1


def test_the_optimum_is_bracketed_by_an_exhaustive_search():
    problem = made()
    result = SEARCH.over(Serial()).run(problem, 0).certificate
    assert result is not None
    assert result.bound is not None
    _, priced = exhaustive("feasible")
    assert result.bound <= math.exp(priced.goal[priced.feasible].min()) * (1 + 1e-9)


@pytest.mark.slow
def test_work_goes_to_another_process(problem, proofs):
    work = pickle.loads(pickle.dumps(PartWork(problem, MAKER, SEARCH.effort, 0, 3)))
    assert alike(work(plan_parts(problem, 6)[2]), proofs[2])
    trace = SEARCH.over(Local(2, chunk_s=1.0)).run(made(), 0)
    assert trace.certificate is not None
    assert trace.certificate.certified


@dataclasses.dataclass(frozen=True)
class Losing(AbstractRunner):
    """Loses its worker at the third part, or is told to stop there."""

    error: type[BaseException] = CodesignError
    workers: int = 1
    chunk_s: float = 1.0
    retries: int = 0

    def results(self, work, tasks):
        for number, task in enumerate(tasks):
            if number == 2:
                raise self.error("a worker was lost")
            yield work(task)


@pytest.mark.parametrize("error", [CodesignError, KeyboardInterrupt])
def test_what_is_missing_loosens_the_bound(problem, error, proofs):
    """The design found stands, with the bound that was known before the parts; it is not called certified."""
    trace = SEARCH.over(Losing(error)).run(problem, 0)
    result = trace.certificate
    assert result is not None
    assert not result.certified
    assert result.best is not None
    assert result.bound is None or result.bound <= math.exp(min(one.designs[0].value for one in proofs if one.designs))
    assert trace.evidence is None
    assert "best found" in trace.claim


def test_a_bound_is_the_least_of_all_parts(proofs):
    """Also where one of them is far below: min, never the mean or the last."""
    lost = dataclasses.replace(proofs[0], lower=-math.inf)
    assert merged(lost, proofs[1]).lower == merged(proofs[1], lost).lower == -math.inf


def test_robust_designs_are_proven_in_parts():
    problem = made()
    search = dataclasses.replace(Robust.example(problem), proof=dataclasses.replace(SEARCH, gap=5e-3))
    one, parts = search.run(problem, 0).certificate, search.over(Serial()).run(problem, 0).certificate
    assert one is not None
    assert parts is not None
    assert parts.certified
    assert parts.best == pytest.approx(one.best, rel=1e-2)


def test_a_front_is_proven_level_by_level():
    """Its designs keep their own bounds, and none of the ordinary front's is below what is claimed of its level."""
    problem = made()
    search = dataclasses.replace(Pareto.example(problem), levels=3, between=0)
    one, parts = search.run(problem, 0), search.over(Serial()).run(problem, 0)
    assert parts.certificate is not None
    assert one.certificate is not None
    assert parts.certificate.certified
    result, known = parts.certificate.front, one.certificate.front
    assert result is not None
    assert known is not None
    assert len(result.points) >= 4
    first, other = result.metrics
    for point in result.points:
        assert point.bound is not None
        for rival in known.points:
            if rival.values[other] <= point.levels.get(other, math.inf):
                assert rival.values[first] >= point.bound * (1 - 1e-9)
    assert parts.evidence is not None
    assert {"statements", "designs"} <= parts.evidence.tables.keys()


def test_levels_in_any_order_are_the_same_front():
    problem = made()
    search = dataclasses.replace(Pareto.example(problem), levels=3, between=0)
    traces = [search.over(Shuffled(seed)).run(problem, 0) for seed in (0, 1, 2)]
    for trace in traces[1:]:
        assert all(np.array_equal(column, traces[0].points[name]) for name, column in trace.points.items())
        assert trace.certificate is not None
        assert traces[0].certificate is not None
        assert trace.certificate.front == traces[0].certificate.front


@dataclasses.dataclass(frozen=True)
class Shuffled(AbstractRunner):
    """In random order, the first one twice."""

    seed: int
    workers: int = 1
    chunk_s: float = 1.0
    retries: int = 0

    def results(self, work, tasks):
        order = np.random.default_rng(self.seed).permutation(len(tasks)).tolist()
        for number in [*order, order[0]]:
            yield work(tasks[number])
            yield None
