"""Contract of every runner: each task is done, in whatever order; errors of work are raised; no tasks, no results."""

import operator

from ..executors import AbstractRunner
from .keeping import must

TASKS = tuple(range(7))


def does_every_task_once(runner: AbstractRunner) -> None:
    """More tasks than workers."""
    found = sorted(result for result in runner.results(operator.neg, TASKS) if result is not None)
    must(found == sorted(map(operator.neg, TASKS)), f"results() of {len(TASKS)} tasks are {found}")


def raises_what_work_raises(runner: AbstractRunner) -> None:
    """Check that an exception of the work arrives with its message."""
    try:
        list(runner.results(int, ("no number",)))
    except ValueError as error:
        must("no number" in str(error), f"what work raises arrives as {str(error)!r}")
        return
    must(False, "what work raises is lost")


def has_nothing_to_do_where_there_is_nothing(runner: AbstractRunner) -> None:
    """And tells what it needs before, not within."""
    runner.refuse()
    must(list(runner.results(int, ())) == [], "no tasks leave results")
    must(runner.count >= 1 and runner.chunk_s > 0, "count or chunk_s is not positive")


PROMISES = (does_every_task_once, raises_what_work_raises, has_nothing_to_do_where_there_is_nothing)
