"""Deep calls find room: what crosses the end of a piece of frames asks the system for nothing."""

import resource
import sys
import threading
from collections.abc import Callable

import jax
import pytest

from codesign.core.deep_stack import roomy
from codesign.core.jax_typed import make_jaxpr

TURNS = 300


def nothing() -> None:
    """A frame, and no more."""


def deeper(depth: int) -> None:
    """Calls from a loop at every depth, so that some loop stands at the end of each piece."""
    for _ in range(TURNS):
        nothing()
    if depth:
        deeper(depth - 1)


def faults_of(function: Callable[[int], None]) -> int:
    """Pages that a thread with frames of its own touched first while it ran, after it ran once."""
    found: list[int] = []

    def counted() -> None:
        function(400)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        function(400)
        found.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

    thread = threading.Thread(target=counted)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="the system does not count faults by thread")
def test_loops_at_any_depth_map_no_memory() -> None:
    plain, with_room = faults_of(deeper), faults_of(lambda depth: roomy(deeper)(depth))
    assert with_room < TURNS / 2  # the piece itself, touched as far as it is used
    if sys.version_info < (3, 14):  # later ones were not tried: where pieces are kept, no room is needed
        assert plain > TURNS  # at least one of the loops stands at the end of a piece


def test_what_is_given_room_is_the_same_function() -> None:
    def told(first: float, *more: float, scale: float = 1.0) -> float:
        """What it says."""
        if scale == 0:
            raise ZeroDivisionError("no scale")
        return (first + sum(more)) / scale

    given = roomy(told)
    assert given(1.0, 2.0, scale=2.0) == told(1.0, 2.0, scale=2.0) == 1.5
    assert (given.__name__, given.__doc__) == (told.__name__, told.__doc__)
    with pytest.raises(ZeroDivisionError, match="no scale"):
        given(1.0, scale=0)
    assert roomy(roomy(told))(3.0) == 3.0  # room within room


def test_recursion_ends_as_ever() -> None:
    def endless(depth: int) -> int:
        return endless(depth + 1)

    with pytest.raises(RecursionError):
        roomy(endless)(0)


def test_a_trace_with_room_is_the_trace() -> None:
    def area(side: jax.Array) -> jax.Array:
        return side * side

    assert str(make_jaxpr(area)(2.0)) == str(jax.make_jaxpr(area)(2.0))
