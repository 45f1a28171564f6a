"""Promises of every search on every kind of problem, and one table of what comes of each pair."""

import functools
import json
import math
from typing import NamedTuple

import numpy as np
import pytest
from contracts.problems import FRONT, PROBLEMS, STOPS, Priced, Stop, exhaustive, priced, problem_of
from contracts.searches import SEARCHES, VALUES, search_of

from codesign.core.errors import ConfigError
from codesign.core.json_yaml import dumps
from codesign.search import AbstractSearch, Certificate, Integer, Inverse, Trace

pytestmark = pytest.mark.slow

WORDS = {
    "P": "proven", "I": "proven impossible", "B": "best found", "N": "nothing found", "R": "refused", "S": "stopped",
    "A": "as it stands",
}  # fmt: skip
"""What may come of a search. stopped: interrupted, what is known is told; as it stands: priced, nothing searched."""

TABLE = """
                       feasible most infeasible illegal point hardware plans line ties kink reserve bumpy stop_1 stop_3
single                 A        A    A          A       A     A        A     A    A    A    A       A     A      A
grid                   B        B    N          R       R     B        B     B    B    B    B       B     S      B
certified              P        P    I          R       R     P        P     P    P    P    P       B     S      S
grid_then_proof        P        P    I          R       R     P        P     P    P    P    P       B     P      S
integer                P        P    I          R       R     P        R     P    P    P    P       B     S      S
counted                P        P    I          R       R     P        R     P    P    P    P       B     S      S
inverse                P        P    I          R       R     P        R     P    P    P    P       B     S      S
robust                 P        P    I          R       I     P        P     P    P    P    P       B     S      S
mix                    P        P    I          R       I     P        P     P    P    P    P       B     S      P
pareto                 P        P    I          R       R     P        P     P    P    P    P       B     S      S
grid_then_gradient     B        B    N          R       R     B        B     B    B    B    B       B     S      S
gradient               B        B    N          R       R     B        B     B    B    B    N       B     S      S
amortised              B        R    N          R       R     R        R     R    R    R    B       R     B      B
random                 B        B    N          R       R     B        B     B    B    B    B       B     B      B
tpe                    B        B    N          R       R     B        B     B    B    B    B       B     B      B
cma_es                 B        B    N          R       R     B        B     B    B    B    B       B     B      B
nsga2                  B        B    N          R       R     B        B     B    B    B    B       B     B      B
differential_evolution B        B    N          R       R     B        B     B    B    B    B       B     B      B
"""
"""Search x problem. Where nothing varies the one design breaks its limit, which robust and mix prove; the configuration
puts `single` there. grid_then_proof goes on to its proof when its grid is stopped; mix has reached its gap when it is
stopped at its third report. The black-box searches and the network report only when all is found. The descent of
`gradient` is too short here to leave what holds no reserve; what it has seen before it is stopped is not feasible."""

COLUMNS, *ROWS = (line.split() for line in TABLE.strip().splitlines())
EXPECTED = {(row[0], name): WORDS[cell] for row in ROWS for name, cell in zip(COLUMNS, row[1:], strict=True)}
REPEATED = "ties"  # of this the same seed is asked twice
ROUNDING = 1e-6  # log: designs may exceed their limits by 1e-7, bounds are for those that do not


class Told(NamedTuple):
    """What came of a search: a trace or the line with which it was refused, and what it reported meanwhile."""

    trace: Trace | None
    refused: str
    stop: Stop


def told(search: str, name: str, seed: int = 0) -> Told:
    """Run a search on a problem."""
    stop = Stop(STOPS.get(name, 0))
    try:
        return Told(search_of(search).run(problem_of(name), seed, stop), "", stop)
    except ConfigError as error:
        return Told(None, str(error), stop)
    except KeyboardInterrupt:
        return Told(None, "", stop)


first = functools.cache(told)


def trace_of(search: str, name: str) -> Trace:
    """Its trace, run once."""
    trace = first(search, name).trace
    assert trace is not None
    return trace


def proven(trace: Trace) -> Certificate:
    """What it proves; of a search that can prove nothing an empty claim."""
    return trace.certificate or Certificate()


def proves_impossible(trace: Trace) -> bool:
    """Whether what is kept for others to check says that nothing is feasible."""
    return trace.evidence is not None and trace.evidence.header["claim"]["infeasible"]


def outcome(search: str, name: str) -> str:
    """What came of it, in the words of the table."""
    result = first(search, name)
    if result.trace is None:
        return "refused" if result.refused else "lost with the interrupt"
    if result.trace.method == ["single"]:
        return "as it stands"
    if "interrupted" in result.trace.claim:
        return "stopped"
    if proves_impossible(result.trace):
        return "proven impossible"
    if proven(result.trace).certified:
        return "proven"
    return "best found" if shown(search, name).feasible.any() else "nothing found"


@functools.cache
def shown(search: str, name: str) -> Priced:
    """The designs of a trace by the plain model."""
    return priced(name, {key: np.asarray(column, dtype=float) for key, column in trace_of(search, name).points.items()})


def rank(trace: Trace, key: str) -> float:
    """A value of the certificate as a log of which less is better."""
    sign = 1.0 if proven(trace).sense == "minimise" else -1.0
    return sign * math.log(getattr(proven(trace), key))


def own_goal(search: AbstractSearch, points: dict[str, np.ndarray], found: Priced) -> np.ndarray:
    """Logs of what a search minimises."""
    return np.log(points["up"]) if isinstance(search, Inverse) else found.goal


def chosen_of(search: AbstractSearch, points: dict[str, np.ndarray]) -> np.ndarray:
    """Which designs have values that the search may choose, where it may not choose all."""
    if not isinstance(search, Integer):
        return np.ones(1, dtype=bool)
    if search.allowed_values:
        return np.isin(np.round(points["up"]), VALUES)
    count = points["up"] / search.step["up"]
    return np.abs(count - np.round(count)) < 1e-6


def test_the_table_has_every_pair():
    assert set(EXPECTED) == {(search, name) for search in SEARCHES for name in PROBLEMS}


def test_the_problems_are_what_they_are_called():
    for name in PROBLEMS:
        if name != "illegal":
            assert exhaustive(name)[1].feasible.any() == (name not in ("infeasible", "point")), name
    tied = np.sort(exhaustive("ties")[1].goal)
    assert (tied[::2] == tied[1::2]).all()
    best = {key: column[:1] for key, column in trace_of("certified", "kink").points.items()}
    for key, share in (("hbm", 0.99), ("hbm", 1.01), ("up", 0.99), ("up", 1.01)):  # worse on either side, at once
        moved = priced("kink", best | {key: best[key] * share}).goal - priced("kink", best).goal
        assert moved > 1e-4, (key, share)


def designs_are_of_the_space(search, name):
    trace, problem = trace_of(search, name), problem_of(name)
    assert len(trace.method) > 0
    assert {len(column) for column in trace.points.values()} <= {len(trace.method)}
    for key, column in trace.points.items():
        if key in problem.space.hardware:
            variable = problem.space.hardware[key]
            assert (column >= variable.low * (1 - 1e-9)).all()
            assert (column <= variable.high * (1 + 1e-9)).all()
        elif key in problem.space.plan and trace.method != ["single"]:
            assert set(column) <= set(problem.space.lists[key])
        else:
            assert set(column) == {float(getattr(problem.scenario.plan, key))}
    if trace.method != ["single"]:
        assert set(trace.points) >= {*problem.space.plan, *problem.space.hardware}
    chosen = search_of(search)
    if isinstance(chosen, Integer) and set(trace.method) == {"integer"}:
        whole = trace.points["up"] / chosen.step.get("up", 1.0)
        assert set(whole) <= (set(VALUES) if chosen.allowed_values else set(np.round(whole)))


def what_is_said_of_the_best_is_so(search, name):
    """The plain model has the same goal, and the same opinion of whether limits are kept."""
    trace, result, chosen = trace_of(search, name), shown(search, name), search_of(search)
    best = proven(trace).best
    if proven(trace).goal and best is None:
        assert not (result.feasible & chosen_of(chosen, trace.points)).any(), "an answer is shown and not called one"
    if best is not None:
        place = next(at for at, method in enumerate(trace.method) if method not in ("grid", "pareto"))
        assert result.feasible[place], "the best design breaks a limit"
        goal = own_goal(chosen, trace.points, result)[place]
        assert rank(trace, "best") == pytest.approx(goal, abs=ROUNDING)
    if "feasible" in trace.counts:
        assert (trace.counts["feasible"] > 0) == result.feasible[np.array(trace.method) == "grid"].any()
    if trace.claim.startswith("best found") or (outcome(search, name) == "stopped" and search != "gradient"):
        assert result.feasible.any()
    if "no feasible" in trace.claim or proves_impossible(trace):
        assert not result.feasible.any()
        assert best is None


def no_bound_is_wrong(search, name):
    """Against the exhaustive optimum, and the bound of the certified search against what any other search found."""
    trace, chosen, (points, grid) = trace_of(search, name), search_of(search), exhaustive(name)
    some = grid.feasible & chosen_of(chosen, points)
    least = own_goal(chosen, points, grid)[some].min(initial=math.inf) if some.any() else math.inf
    assert not (proves_impossible(trace) and some.any())
    gap = proven(trace).gap
    if proven(trace).bound is not None:  # of whole numbers it bounds what lies between them too
        assert rank(trace, "bound") <= least + ROUNDING, "a design is better than the bound"
    if gap is not None:
        assert rank(trace, "bound") <= rank(trace, "best") + 1e-9
        assert rank(trace, "best") - rank(trace, "bound") <= math.log1p(gap) + 1e-9
        assert rank(trace, "best") <= least + math.log1p(gap) + ROUNDING, "missed a better design"
    if proven(trace).front is not None:
        no_design_beats_the_front(trace, grid)
    proof = first("certified", name).trace
    if proof is not None and proven(proof).bound is not None:
        result = shown(search, name)
        assert result.goal[result.feasible].min(initial=math.inf) >= rank(proof, "bound") - ROUNDING


def no_design_beats_the_front(trace: Trace, grid: Priced) -> None:
    """No feasible design is better than the bound at its levels; some corner is no worse than it in any metric."""
    front = proven(trace).front
    assert front is not None
    for row in front.points:
        if row.bound is not None:
            assert row.bound <= row.values[FRONT[0]] * (1 + ROUNDING)
            within = grid.feasible.copy()
            for metric, level in row.levels.items():
                within &= grid.front[:, FRONT.index(metric)] <= math.log(level)
            assert math.log(row.bound) <= grid.front[within, 0].min(initial=math.inf) + ROUNDING
    if front.corners and not proven(trace).reason:
        corners = np.log(front.corners)
        beaten = (corners[None] <= grid.front[grid.feasible][:, None] + ROUNDING).all(axis=2).any(axis=1)
        assert beaten.all()
        assert front.hypervolume <= front.hypervolume_at_most + ROUNDING


def proven_is_what_the_walk_proves(search, name):
    trace = trace_of(search, name)
    result = proven(trace)
    assert result.certified >= proves_impossible(trace)
    if result.certified:
        assert result.convex
        assert trace.evidence is not None
        assert result.reason == ""
    if not result.convex:
        assert not result.certified
        assert result.bound is None
        assert result.gap is None
        assert not proves_impossible(trace)
        assert "certified: " not in trace.claim
    if name == "bumpy":
        assert not result.convex
    if result.bound is not None or proves_impossible(trace):
        assert trace.evidence is not None
        claim = trace.evidence.header["claim"]
        assert [claim[key] for key in ("best", "bound", "gap")] == [
            getattr(result, key) for key in ("best", "bound", "gap")
        ]
    if trace.evidence is not None:
        for table in trace.evidence.tables.values():
            assert len({len(column) for column in table.values()}) <= 1


def what_is_kept_can_be_written(search, name):
    trace = trace_of(search, name)
    kept = proven(trace).as_plain()
    assert json.loads(dumps(kept)) == json.loads(json.dumps(kept, allow_nan=False))
    assert Certificate.from_json(json.loads(dumps(kept))) == proven(trace)
    for table in trace.tables.values():
        assert len({len(column) for column in table.values()}) == 1
    assert trace.claim
    assert "\n" not in trace.claim
    assert all(count >= 0 for count in trace.counts.values())
    assert all(seconds >= 0 for seconds in trace.seconds.values())


def progress_is_within_its_total(search, name):
    for progress in first(search, name).stop.heard:
        assert progress.stage
        assert 0 <= progress.done <= progress.total
        assert not progress.gap < -1e-9
        if progress.proven and search != "integer":  # which may prove what it says of one value and not of the next
            assert proven(trace_of(search, name)).convex


def the_same_seed_leaves_the_same(search, name):
    if name != REPEATED:
        return
    one, again = trace_of(search, name), told(search, name).trace
    assert again is not None
    assert one.method == again.method
    assert one.claim == again.claim
    assert set(one.points) == set(again.points)
    for key, column in one.points.items():
        np.testing.assert_array_equal(column, again.points[key])
    for key in ("best", "bound", "gap", "certified"):
        assert getattr(proven(one), key) == getattr(proven(again), key)


PROMISES = [
    designs_are_of_the_space, what_is_said_of_the_best_is_so, no_bound_is_wrong, proven_is_what_the_walk_proves,
    what_is_kept_can_be_written, progress_is_within_its_total, the_same_seed_leaves_the_same,
]  # fmt: skip


@pytest.mark.parametrize(("search", "name"), [pytest.param(*pair, id="-".join(pair)) for pair in EXPECTED])
def test_search_keeps_every_promise(search, name):
    result = first(search, name)
    assert outcome(search, name) == EXPECTED[search, name], result.refused or (result.trace and result.trace.claim)
    if result.trace is None:
        assert result.refused
        assert "\n" not in result.refused
        assert not result.stop.heard
        return
    for promise in PROMISES:
        promise(search, name)
