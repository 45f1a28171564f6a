"""`runner=serial`: one task after the other, here: chunks and their files without processes."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from .base import AbstractRunner, Result, Task


@dataclass(frozen=True)
class Serial(AbstractRunner):
    """Runner that computes all tasks in this process.

    Args:
        chunk_s: seconds that one task should take.
    """

    chunk_s: float = 10.0
    workers: int | None = 1
    retries: int = 0

    def __post_init__(self) -> None:
        """Settings that can be kept."""
        self.check()

    def results(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Generator[Result | None, None, None]:
        """Yield the results in the order of the tasks."""
        for task in tasks:
            yield work(task)
