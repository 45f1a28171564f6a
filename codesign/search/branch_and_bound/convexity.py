"""Convexity of this very model over this very space, proven by rules or tested: a proof rests on it.

A certified search relies on one property: for every plan and row, the tangent at any point lies below the row
everywhere in the box. `curvature` proves it by a walk over the traced program of the rows. What the walk does not prove
is tested where it is used: exact rows against tangents taken elsewhere, and midpoints against ends, at random pairs,
along single variables and from corner to corner (`check_convexity`), then around the designs found (`doubted`). A test
proves nothing, and no result that rests on one is called proven.

Source: see docs/optimisation.md, section 4.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from ...curvature import ROUNDING
from .oracle import AbstractOracle

TOLERANCE = 1e-9  # of a log; float64 leaves 1e-12
LOCAL, CLIMBERS, ASCENTS = 512, 128, 12  # pairs around designs; those moved where it gets worse, and how often


@dataclass(frozen=True)
class Verdict:
    """Verdict on the convexity of the rows.

    pairs: of points that rows were tested on; worst: row -> largest excess over convexity (log) that they showed;
    unproven: row -> why the walk does not prove it; broken: what a test showed, or why plans are missing.
    """

    pairs: int = 0
    worst: dict[str, float] = field(default_factory=dict[str, float])
    unproven: dict[str, str] = field(default_factory=dict[str, str])
    broken: str = ""

    @property
    def convex(self) -> bool:
        """Proven by the rules, every row."""
        return not self.unproven and not self.broken

    @property
    def reason(self) -> str:
        """Reason why nothing is proven; empty if the verdict is proven."""
        off = next(((name, why) for name, why in self.unproven.items() if why.startswith(ROUNDING)), None)
        if off is not None:
            return f"not proven: {off[0]}: {off[1]}"
        if self.broken or not self.unproven:
            return self.broken
        name, why = next(iter(self.unproven.items()))
        more = f" (and {len(self.unproven) - 1} more rows)" if len(self.unproven) > 1 else ""
        return f"tested on {self.pairs:,} pairs of points, not proven: {name}{more}: {why}"


PROVEN = Verdict()


def check_convexity(oracle: AbstractOracle, seed: int, pairs: int = 1024) -> Verdict:
    """Ask the walk; test what it does not prove, on random pairs of points of random plans.

    A third of the pairs are anywhere in the cube, a third differ in one variable only, a third join corners.
    """
    unproven = oracle.unproven()
    if not unproven or not oracle.variables or oracle.doubt:
        return Verdict(unproven=unproven, broken=oracle.doubt)
    n, rng = len(oracle.variables), np.random.default_rng(seed)
    plan = rng.choice(oracle.sample(rng, pairs), pairs)
    a, b = rng.uniform(size=(pairs, n)), rng.uniform(size=(pairs, n))
    kind = np.arange(pairs) % 3
    axis = rng.integers(0, n, pairs)
    single = (np.arange(n)[None] != axis[:, None]) & (kind == 1)[:, None]
    b = np.where(single, a, b)
    a, b = (np.where((kind == 2)[:, None], np.round(end), end) for end in (a, b))
    sharpness = 10.0 ** rng.uniform(1, 5, pairs)
    excess, ends, broken = _excess(oracle, plan, a, b, sharpness)
    excess = np.where((ends == np.inf).any(axis=0), -np.inf, np.where(np.isnan(excess), np.inf, excess))
    worst = {name: float(excess[:, row].max()) for row, name in enumerate(oracle.names)}
    return Verdict(pairs, worst, unproven, _reason(oracle, excess, axis, kind, broken))


def look_again(oracle: AbstractOracle, verdict: Verdict, designs: dict[int, np.ndarray], seed: int) -> Verdict:
    """Test what is not proven where it matters: around designs found, then wherever convexity seems weakest.

    Pairs lie around each design at distances from a tenth to a hundred-thousandth of the box, on one line through it;
    the worst of them are moved by random steps that are kept where they make the excess worse.

    Args:
        oracle: has the rows.
        verdict: what is known of them already.
        designs: plan -> coordinates.
        seed: of the pairs.
    """
    n = len(oracle.variables)
    if not verdict.unproven or verdict.broken or not designs or n == 0:
        return verdict
    rng, pairs = np.random.default_rng(seed), verdict.pairs
    chosen = rng.integers(0, len(designs), LOCAL)
    plan, at = np.array(list(designs))[chosen], np.array(list(designs.values()))[chosen]
    way = rng.normal(size=(LOCAL, n)) * 10.0 ** rng.uniform(-5, -1, (LOCAL, 1))
    a, b = np.clip(at - way, 0, 1), np.clip(at + way * rng.uniform(size=(LOCAL, 1)), 0, 1)
    excess = _finite_excess(oracle, plan, a, b)
    worst, reach = excess.max(axis=0), 0.1
    for _ in range(ASCENTS):
        top = np.argsort(-excess.max(axis=1), kind="stable")[:CLIMBERS]
        plan, a, b, excess, pairs = plan[top], a[top], b[top], excess[top], pairs + len(excess)
        moved = [np.clip(end + reach * rng.normal(size=end.shape), 0, 1) for end in (a, b)]
        result = _finite_excess(oracle, plan, *moved)
        better = result.max(axis=1) > excess.max(axis=1)
        a, b = (np.where(better[:, None], new, old) for new, old in zip(moved, (a, b), strict=True))
        excess, reach = np.where(better[:, None], result, excess), 0.7 * reach
        worst = np.maximum(worst, result.max(axis=0))
    excess_by_name = {
        name: max(verdict.worst.get(name, -np.inf), float(w)) for name, w in zip(oracle.names, worst, strict=True)
    }
    broken = [name for name, w in excess_by_name.items() if w > TOLERANCE]
    text = (
        f"{broken[0]} is not log-convex: {excess_by_name[broken[0]]:.2g} above convexity near a design"
        if broken
        else ""
    )
    return replace(verdict, pairs=pairs, worst=excess_by_name, broken=text)


def _excess(
    oracle: AbstractOracle, plan: np.ndarray, a: np.ndarray, b: np.ndarray, sharpness: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray, float]:
    """(how far rows lie below tangents taken elsewhere, or at the middle above the mean of the ends: not at all; exact
    rows of both ends, which may be infinite: then so is the chord; worst violation of a rule)."""
    ends = oracle.tangents(plan, a, sharpness)
    (far, far_broken), (middle, middle_broken) = (oracle.values(plan, u) for u in (b, 0.5 * (a + b)))
    predicted = ends.affine[..., 0] + np.einsum("prv,pv->pr", ends.affine[..., 1:], b)
    with np.errstate(invalid="ignore"):
        excess = np.maximum(predicted - far, middle - 0.5 * (ends.exact + far))
    broken = float(np.max([part.max() for part in (ends.broken, far_broken, middle_broken)]))
    return excess, np.stack([ends.exact, far]), broken


def _finite_excess(oracle: AbstractOracle, plan: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Excess over convexity, -inf where an end or the excess is no number."""
    excess, ends, _ = _excess(oracle, plan, a, b, 1e4)
    return np.where(np.isfinite(ends).all(axis=0) & ~np.isnan(excess), excess, -np.inf)


def _reason(oracle: AbstractOracle, excess: np.ndarray, axis: np.ndarray, kind: np.ndarray, broken: float) -> str:
    """Reason why the property fails, with the row and, where one alone shows it, the variables."""
    if broken > 0:
        return "a rule of the plan depends on a hardware variable"
    failing = [name for row, name in enumerate(oracle.names) if excess[:, row].max() > TOLERANCE]
    if not failing:
        return ""
    name = max(failing, key=lambda row: excess[:, oracle.names.index(row)].max())
    rows = excess[:, oracle.names.index(name)]
    if not np.isfinite(rows).all():
        return f"{name} is no number in {np.mean(~np.isfinite(rows)):.1%} of the space"
    alone = sorted({oracle.variables[int(axis[i])] for i in np.flatnonzero((kind == 1) & (rows > TOLERANCE))})
    along = f" along {', '.join(alone)}" if alone else ""
    return (
        f"{name} is not log-convex{along}: {rows.max():.2g} above convexity in {np.mean(rows > TOLERANCE):.1%} of pairs"
    )
