"""Claim of a search in words, made of its certificate: `codesign verify` makes them anew and compares."""

import math

from ..core.units import percent
from .certificate import Certificate

CERTIFIED = "certified: "
LEAST = 1e-6  # share that a distance is told as, where it is less
LATE = 1.001  # of the gap asked for: within it a mix counts as closed
SHORT = 2e-8  # log by which a proof may fall short of the gap asked for: what is taken off bounds before they are told


def closed(gap: float | None, asked: float) -> bool:
    """True if a gap is the one that was asked for, up to what is taken off a bound before it is told."""
    return gap is not None and math.log1p(gap) <= math.log1p(asked) + SHORT


def claim_of_best(found: Certificate, plans: int) -> str:
    """Claim of `search=certified` and its kin, where there is a best design.

    Args:
        found: has the gap, and why it is not closed.
        plans: legal ones.
    """
    if not found.convex:
        return f"heuristic solution, no certificate: {found.reason}"
    if found.gap is None:
        return f"heuristic solution, nothing proven yet: {found.reason}"
    proven = f"within {percent(found.gap, LEAST)} of the optimum over {plans:,} plans"
    if not found.certified:
        return f"best found, {found.reason}: proven {proven}"
    return f"{CERTIFIED}proven {proven} and the whole box of hardware"


def claim_of_none(found: Certificate, plans: int) -> str:
    """Claim of `search=certified` and its kin, where no design is feasible."""
    if found.certified:
        return f"{CERTIFIED}no design of {plans:,} plans keeps all constraints, whatever the hardware"
    return f"no feasible design found, no certificate: {found.reason}"


def claim_of_whole(found: Certificate) -> str:
    """Claim of `search=integer` about its best integer design."""
    if found.certified and found.gap is not None:
        return f"{CERTIFIED}within {percent(found.gap, LEAST)} of the bound on all designs, whole or not"
    return f"heuristic solution, no certificate: {found.reason}"


def claim_of_mix(found: Certificate, plans: int, asked: float) -> str:
    """Claim of `search=mix`.

    Args:
        found: has the gap, and why it is not closed.
        plans: of all workloads together.
        asked: relative gap at which it counts as closed.
    """
    if found.best is None:
        hopeless = ", ".join(found.alone_infeasible)
        return f"no feasible design: {hopeless} has none alone" if hopeless else "no feasible design found"
    if not found.convex:
        return f"heuristic solution, no certificate: {found.reason}"
    if found.gap is None:
        return f"heuristic solution, nothing proven yet; {found.reason}"
    proven = f"within {percent(found.gap, LEAST)} of the optimum over all tuples of {plans:,} plans"
    if not closed(found.gap, asked * LATE):
        return f"best found, proven {proven}{'; ' + found.reason if found.reason else ''}"
    return f"{CERTIFIED}proven {proven} and the whole box of hardware"


def claim_of_front(found: Certificate, asked: float) -> str:
    """Claim of `search=pareto`.

    Args:
        found: has the front.
        asked: relative gap at which a design of it counts as proven.
    """
    if not found.convex or found.front is None:
        return f"heuristic front, no certificate: {found.reason}"
    points = found.front.points
    proven = sum(point.certified for point in points)
    words = f"{proven} of {len(points)} designs of the front are proven to {percent(asked)}"
    if proven < len(points):
        words += f", the worst to {percent(max(math.inf if p.gap is None else p.gap for p in points))}"
    return f"front so far, {found.reason}: {words}" if found.reason else f"{CERTIFIED}{words}"
