"""SciPy's SLSQP from many designs at once: the searches run side by side and share each call of the model."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Protocol, runtime_checkable

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for
from jaxtyping import Float, Int

SHARPNESS = 1e4  # of the weighted maxima: their value lies at most 4e-5 below the hard one
MARGIN = 1e-4  # log by which constraints are kept, so that designs hold by the hard model too
ROUNDS, CALLS = 40, 100  # iterations and designs of one search; it is a line search without end that takes more
PRECISION = 1e-9


@runtime_checkable
class FreedRows(Protocol):
    """Rows to polish (the goal, constraints, further targets) and their slopes at points of plans."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        ...

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of the rows behind the first that are at most 0."""
        ...

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and slopes of all rows."""
        ...


class _Enough(Exception):
    """A search has had its designs."""


class _Together:
    """Calls of the model by several threads, answered when all that still run have asked."""

    def __init__(self, model: FreedRows, plans: Float[np.ndarray, "lanes fields"]):
        self.model, self.plans = model, plans
        self.asked: dict[int, np.ndarray] = {}
        self.answers: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.running = len(plans)
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []  # (lanes, coordinates) of every call
        self.change = threading.Condition()
        self.failed = False

    def tangents(self, lane: int, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and slopes of one lane's plan."""
        with self.change:
            self.asked[lane] = np.clip(u, 0.0, 1.0)
            self._answer()
            self.change.wait_for(lambda: lane in self.answers or self.failed)
            if self.failed:
                raise RuntimeError("another search failed")
            return self.answers.pop(lane)

    def leave(self) -> None:
        """One lane is done."""
        with self.change:
            self.running -= 1
            self._answer()

    def _answer(self) -> None:
        if not self.asked or len(self.asked) < self.running:
            return
        lanes = np.array(sorted(self.asked))
        u = np.array([self.asked[lane] for lane in lanes.tolist()])
        self.asked.clear()
        try:
            value, slope = self.model.tangents(self.plans[lanes], u, np.full(len(lanes), SHARPNESS))
        except BaseException:
            self.failed = True
            self.change.notify_all()
            raise
        self.seen.append((lanes, u))
        for k, lane in enumerate(lanes.tolist()):
            self.answers[lane] = value[k], slope[k]
        self.change.notify_all()


class _Lane:
    """One search: the row `target` of one plan, the rows behind the goal's at most `upper` where that is finite."""

    def __init__(self, together: _Together, lane: int, target: int, upper: np.ndarray):
        self.together, self.lane, self.target = together, lane, target
        self.rows, self.upper = 1 + np.flatnonzero(np.isfinite(upper)), upper[np.isfinite(upper)]
        self.at, self.found, self.calls = np.zeros(0), (np.zeros(0), np.zeros((0, 0))), 0

    def _rows(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not np.array_equal(u, self.at):
            if self.calls == CALLS:
                raise _Enough
            self.calls += 1
            value, slope = self.together.tangents(self.lane, u)
            self.found = np.nan_to_num(value, posinf=1e3, neginf=-1e3), np.nan_to_num(slope)
            self.at = u.copy()
        return self.found

    def run(self, start: np.ndarray, rounds: int) -> None:
        """Minimise; where it went is known to `together`."""

        def goal(u: np.ndarray) -> float:
            return self._rows(u)[0][self.target]

        def slope(u: np.ndarray) -> np.ndarray:
            return self._rows(u)[1][self.target]

        def room(u: np.ndarray) -> np.ndarray:
            return self.upper - MARGIN - self._rows(u)[0][self.rows]

        def slopes(u: np.ndarray) -> np.ndarray:
            return -self._rows(u)[1][self.rows]

        limits = {"type": "ineq", "fun": room, "jac": slopes}
        try:
            scipy.optimize.minimize(
                goal, start, jac=slope, method="SLSQP", bounds=scipy.optimize.Bounds(0.0, 1.0),
                constraints=[limits] if len(self.rows) else [],
                options={"maxiter": rounds, "ftol": PRECISION},
            )  # fmt: skip
        except _Enough:
            pass
        finally:
            self.together.leave()


def polish(
    model: FreedRows,
    plan: Float[np.ndarray, "lanes fields"],
    u: Float[np.ndarray, "lanes variables"],
    target: Int[np.ndarray, " lanes"],
    upper: Float[np.ndarray, "lanes rows"],
    rounds: int = ROUNDS,
) -> tuple[Int[np.ndarray, " k"], Float[np.ndarray, "k variables"]]:
    """(lane, coordinates) of every design that searches for the least `target` row met, each from its own start.

    `upper` is what rows behind the goal's may be at most, inf where anything; `rounds` the iterations of a search.
    """
    if len(plan) == 0 or not model.variables:
        return np.arange(len(plan)), u
    together = _Together(model, plan)
    lanes = [_Lane(together, lane, int(row), upper[lane]) for lane, row in enumerate(target)]
    with ThreadPoolExecutor(len(lanes)) as pool:
        list(pool.map(_Lane.run, lanes, u, repeat(rounds)))
    result, places = zip(*together.seen, strict=True)
    return np.concatenate(result), np.concatenate(places)
