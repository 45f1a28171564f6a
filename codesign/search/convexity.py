"""Whether a proof may be called one: the log-log-convexity of this very model over this very space, put to the test.

A certified search relies on one property: for every plan and row, the tangent at any point lies below the row
everywhere in the box. Here it is tested where it is used: exact rows against tangents taken elsewhere, and midpoints
against ends, at random pairs, along single variables and from corner to corner. A test is no proof of convexity; it
is what separates a model that keeps the rules (`Assumes:` of each class) from one that does not.
"""

from dataclasses import dataclass

import numpy as np

from .oracle import AbstractOracle

TOLERANCE = 1e-9  # of a log; float64 leaves 1e-12


@dataclass(frozen=True)
class Verdict:
    """What the test found. worst: row -> largest excess over convexity (log); empty `reason` means it passed."""

    pairs: int
    worst: dict[str, float]
    reason: str = ""

    @property
    def convex(self) -> bool:
        """Nothing contradicts convexity."""
        return not self.reason


def check(oracle: AbstractOracle, seed: int, pairs: int = 1024) -> Verdict:
    """Test random pairs of points of random plans.

    A third of the pairs are anywhere in the cube, a third differ in one variable only, a third join corners. An
    objective whose form denies convexity is not saved by pairs that do not show it.
    """
    n = len(oracle.variables)
    if n == 0:
        return Verdict(0, {})
    rng = np.random.default_rng(seed)
    plan = rng.choice(oracle.sample(rng, pairs), pairs)
    a, b = rng.uniform(size=(2, pairs, n))
    kind = np.arange(pairs) % 3
    axis = rng.integers(0, n, pairs)
    single = (np.arange(n)[None] != axis[:, None]) & (kind == 1)[:, None]
    b = np.where(single, a, b)
    a, b = (np.where((kind == 2)[:, None], np.round(end), end) for end in (a, b))
    sharpness = 10.0 ** rng.uniform(1, 5, pairs)
    ends, far, middle = (oracle.tangents(plan, u, sharpness) for u in (a, b, 0.5 * (a + b)))

    predicted = ends.affine[..., 0] + np.einsum("prv,pv->pr", ends.affine[..., 1:], b)
    nowhere = (ends.exact == np.inf) | (far.exact == np.inf)  # a row may be infinite: then so is the chord
    with np.errstate(invalid="ignore"):
        excess = np.maximum(predicted - far.exact, middle.exact - 0.5 * (ends.exact + far.exact))
    known = np.isfinite(ends.exact) & np.isfinite(far.exact) & np.isfinite(middle.exact)
    excess = np.where(nowhere, -np.inf, np.where(known, excess, np.inf))
    worst = {name: float(excess[:, row].max()) for row, name in enumerate(oracle.names)}
    broken = np.max([part.broken.max() for part in (ends, far, middle)])
    return Verdict(pairs, worst, oracle.doubt or _reason(oracle, excess, axis, kind, float(broken)))


def _reason(oracle: AbstractOracle, excess: np.ndarray, axis: np.ndarray, kind: np.ndarray, broken: float) -> str:
    """Why the property fails, naming the row and, where one alone shows it, the variables."""
    if broken > 0:
        return "a rule of the plan depends on a hardware variable"
    failing = [name for row, name in enumerate(oracle.names) if excess[:, row].max() > TOLERANCE]
    if not failing:
        return ""
    name = max(failing, key=lambda row: excess[:, oracle.names.index(row)].max())
    rows = excess[:, oracle.names.index(name)]
    if not np.isfinite(rows).all():
        return f"{name} is no number in {np.mean(~np.isfinite(rows)):.1%} of the space"
    alone = sorted({oracle.variables[axis[i]] for i in np.flatnonzero((kind == 1) & (rows > TOLERANCE))})
    along = f" along {', '.join(alone)}" if alone else ""
    return (
        f"{name} is not log-convex{along}: {rows.max():.2g} above convexity in {np.mean(rows > TOLERANCE):.1%} of pairs"
    )
