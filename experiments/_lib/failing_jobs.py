"""A job that fails and begins again from its last checkpoint, event by event, with spares and repairs.

Times between failures of each kind are exponential. Work goes on for an interval, then a checkpoint stops it; what was
done since the last complete checkpoint is lost with a failure. A restart takes its time, begins anew with each further
failure, and waits for a repair where no spare is left. An error that is silent is noticed late: all since it struck,
and the restart, is lost. What the closed form of `codesign.model.reliability` is held against.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["FinishedJob", "Kind", "simulate_job"]


@dataclass(frozen=True)
class Kind:
    """Failures of one kind: a second of the whole job, work lost beyond the checkpoint, whether parts are replaced."""

    rate_hz: float
    lost_s: float = 0.0
    replaced: bool = False


@dataclass(frozen=True)
class FinishedJob:
    """elapsed_s: of the job; productive_s: of what was kept; failures; waited_s: for repairs, no spare being left."""

    elapsed_s: float
    productive_s: float
    failures: int
    waited_s: float

    @property
    def goodput(self) -> float:
        """Share of productive time."""
        return self.productive_s / self.elapsed_s


def simulate_job(
    kinds: Sequence[Kind],
    work_s: float,
    interval_s: float,
    checkpoint_s: float,
    restart_s: float,
    seed: int,
    spares: float = np.inf,
    repair_s: float = 0.0,
) -> FinishedJob:
    """Run until `work_s` seconds of work lie in checkpoints.

    Args:
        kinds: what fails.
        work_s: wanted, whole intervals of it.
        interval_s: of work between checkpoints.
        checkpoint_s: during which nothing else happens.
        restart_s: from a failure until work begins.
        seed: of all draws.
        spares: that stand ready at the beginning.
        repair_s: until a failed part is a spare again.
    """
    rng = np.random.default_rng(seed)
    rates = np.array([kind.rate_hz for kind in kinds])
    total: float = rates.sum()
    shares = rates.cumsum() / total
    stretch, wanted = interval_s + checkpoint_s, int(np.ceil(work_s / interval_s))
    now = waited = 0.0
    done = failures = 0
    repaired: list[float] = []  # times at which parts come back
    ready = spares
    while done < wanted:
        up = rng.exponential(1 / total)
        finished = min(int(up / stretch), wanted - done)
        done += finished
        if done == wanted:
            now += finished * stretch
            break
        now += up
        kind = kinds[int(np.searchsorted(shares, rng.random(), side="right"))]
        while True:  # until a restart is through
            failures += 1
            now += kind.lost_s
            if kind.replaced:
                while repaired and repaired[0] <= now:
                    heapq.heappop(repaired)
                    ready += 1
                heapq.heappush(repaired, now + repair_s)
                if ready < 1:
                    back = heapq.heappop(repaired)
                    waited, now, ready = waited + back - now, back, ready + 1
                ready -= 1
            again = rng.exponential(1 / total)
            if again >= restart_s:
                now += restart_s
                break
            now += again
            kind = kinds[int(np.searchsorted(shares, rng.random(), side="right"))]
    return FinishedJob(now, done * interval_s, failures, waited)
