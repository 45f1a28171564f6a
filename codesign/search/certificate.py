"""Numbers of a search's claim: made here, read by terminal, report, `summary.json` and `codesign verify`."""

import dataclasses
import decimal
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from ..core.errors import ConfigError
from ..core.pretty import html_table, lines_text, number_text
from ..core.units import percent

__all__ = [
    "CLAIMED", "DIGITS", "LATE", "MARGIN", "SHORT", "Binding", "Certificate", "Convexity", "Edge", "FrontPoint",
    "GoalQuantity", "ProvenFront", "RequiredRelaxation", "Robustness", "Shared", "certify", "certify_front",
    "claim_of_best", "claim_of_front", "claim_of_integer", "claim_of_mix", "claim_of_none", "closed", "columns_of",
]  # fmt: skip


T = TypeVar("T")
CLAIMED = ("goal", "sense", "best", "bound", "gap")  # what is kept beside the derivation of a bound as well
OPTIONAL = ("convexity", "history", "constraints", "at_bounds", "infeasible", "front", "robust", "amortised")
OF_MIX = ("bound_of_own_hardware", "alone_infeasible", "workloads")
MARGIN = 4e-9  # log taken off a bound before it is told: what deriving it anew may lose to rounding
ACTIVE = 0.999  # used share from which a constraint is shown as active
DIGITS = 9  # of a bound that is told, rounded so that it says less


class GoalQuantity(NamedTuple):
    """Quantity whose log is the goal's row, and its sign: 1 where less is better, -1 where more is."""

    name: str
    sign: float = 1.0

    def value(self, log: float) -> float | None:
        """The quantity of a value of the row; None where there is none."""
        return math.exp(self.sign * log) if math.isfinite(log) else None

    def told(self, log: float) -> float | None:
        """The quantity of a bound as it is told: a little less than was found, in few digits, so that it holds anew."""
        result = self.value(log - MARGIN)
        if result is None or not 0 < result < math.inf:
            return result
        way = decimal.ROUND_FLOOR if self.sign > 0 else decimal.ROUND_CEILING
        return float(decimal.Context(prec=DIGITS, rounding=way).create_decimal_from_float(result))

    @property
    def sense(self) -> str:
        """Direction of optimisation as a verb."""
        return "minimise" if self.sign > 0 else "maximise"


@dataclass(frozen=True)
class Convexity:
    """Pairs of points that rows were tested on, their worst excess over convexity, why rows are not proven convex."""

    pairs: int = 0
    worst: dict[str, float | None] = field(default_factory=dict[str, float | None])
    unproven: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Binding:
    """A constraint at the optimum: its used share, d log goal / d log allowed to both sides, relative changes over
    which these hold (None: any), the relative change of the goal for a tenth more, and whether that is another plan's.
    """

    constraint: str
    used: float
    elasticity_fewer: float
    elasticity_more: float
    valid_down: float | None
    valid_up: float | None
    tenth_more: float
    changes_plan: bool


@dataclass(frozen=True)
class Edge:
    """A variable at an end of its range: `low` or `high`."""

    variable: str
    at: str


@dataclass(frozen=True)
class RequiredRelaxation:
    """A constraint where nothing is feasible: whether it can give enough `alone`, and by which `factor`; by how much
    with the others `together`; `factor_at_least`, `needed`: the same proven not to do, alone and whatever others give.
    """

    constraint: str
    alone: bool
    factor: float | None = None
    factor_at_least: float | None = None
    needed: float | None = None
    together: float | None = None


@dataclass(frozen=True)
class Shared:
    """A workload of a mix: its goal on the common hardware, how much that counts, used shares, its design; on hardware
    of its own the best, the bound and the design, and what sharing costs relatively (None where that was not searched).
    """

    workload: str
    weight: float
    goal: str
    value: float | None
    used: dict[str, float]
    design: dict[str, float]
    counts: float | None = None
    own_best: float | None = None
    own_bound: float | None = None
    costs: float | None = None
    own_design: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Robustness:
    """Cases that a design is judged in: factors of uncertain constants, and its goal there."""

    how: str
    tail: float
    cases: tuple[dict[str, float | None], ...]


@dataclass(frozen=True)
class FrontPoint:
    """A design of a front: metrics, bound of the first at its levels, whether that was proven to the gap asked for."""

    values: dict[str, float]
    bound: float | None
    gap: float | None
    certified: bool = False
    levels: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class ProvenFront:
    """Designs of which none is better in all metrics.

    knee: place of the design where the front bends. hypervolume: between the designs and the reference, in logs;
    hypervolume_at_most: of any front whatever. corners: points of which one is no worse in any metric, for any design.
    """

    metrics: tuple[str, ...]
    maximised: tuple[str, ...]
    points: tuple[FrontPoint, ...]
    knee: int
    hypervolume: float | None = None
    hypervolume_at_most: float | None = None
    corners: tuple[tuple[float, ...], ...] = ()
    reference: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, repr=False)
class Certificate:
    """Proven result of a search, in values of its goal.

    certified: the gap that was asked for is proven, or that nothing is feasible. convex: the model was found to keep
    what bounds rest on; reason: why something is not proven. goal, sense: what is searched for (of a front: nothing).
    best: of the best design; bound: what no design is better than; gap: how far they are apart, relatively; None where
    there is none. history: seconds, best, bound. constraints, at_bounds: what holds the best design; infeasible: what
    must give where there is none. workloads, alone_infeasible, bound_of_own_hardware: of a mix. amortised: facts of
    the network. assuming: what all of it holds under, beside the rules of the proof. All else is None where the search
    has no such thing.
    """

    certified: bool = False
    convex: bool = False
    reason: str = ""
    goal: str = ""
    sense: str = "minimise"
    best: float | None = None
    bound: float | None = None
    gap: float | None = None
    convexity: Convexity | None = None
    history: tuple[tuple[float, float | None, float | None], ...] | None = None
    constraints: tuple[Binding, ...] | None = None
    at_bounds: tuple[Edge, ...] | None = None
    infeasible: tuple[RequiredRelaxation, ...] | None = None
    workloads: tuple[Shared, ...] | None = None
    alone_infeasible: tuple[str, ...] = ()
    bound_of_own_hardware: float | None = None
    front: ProvenFront | None = None
    robust: Robustness | None = None
    amortised: dict[str, Any] | None = None
    assuming: str = ""

    def __repr__(self) -> str:
        """Claim, then best design, bound, gap and active constraints, a line each."""
        return lines_text(f"Certificate({self._claim})", self._summary())

    def _repr_html_(self) -> str:
        """Return the display as an HTML table."""
        return html_table(f"Certificate: {self._claim}", self._summary())

    @property
    def _claim(self) -> str:
        return "certified" if self.certified else "convex, gap not reached" if self.convex else "not proven"

    def _summary(self) -> list[tuple[str, str]]:
        """(what, in words) of all that is claimed."""
        rows: list[tuple[str, str]] = []
        if self.goal:
            rows.append((self.goal, "none" if self.best is None else number_text(self.best, self.goal)))
        if self.bound is not None:
            rows.append(("at least" if self.sense == "minimise" else "at most", number_text(self.bound, self.goal)))
        if self.gap is not None:
            rows.append(("gap", percent(self.gap)))
        active = [f"{one.constraint} {percent(one.used)}" for one in self.constraints or () if one.used >= ACTIVE]
        ends = [f"{one.variable} {one.at}" for one in self.at_bounds or ()]
        must = [one.constraint for one in self.infeasible or ()]
        rows += [
            (name, ", ".join(texts))
            for name, texts in (("active", active), ("at bounds", ends), ("infeasible", must))
            if texts
        ]
        if self.front is not None:
            rows.append(("front", f"{len(self.front.points)} designs over {', '.join(self.front.metrics)}"))
        if self.workloads:
            rows.append(("workloads", ", ".join(one.workload for one in self.workloads)))
        rows += [(name, text) for name, text in (("why", self.reason), ("assuming", self.assuming)) if text]
        return rows

    def claimed(self, design: Mapping[str, float] | None = None, *, infeasible: bool = False) -> dict[str, Any]:
        """Return the claim, to be kept beside the derivation of the bound; `design` is the best one's values."""
        return {name: getattr(self, name) for name in CLAIMED} | {
            "infeasible": infeasible,
            "design": dict(design or {}),
        }

    def as_plain(self) -> dict[str, Any]:
        """Plain values; what a search has not is left out."""
        left = {name for name in OPTIONAL if getattr(self, name) is None}
        left |= set(OF_MIX) if self.workloads is None else set()
        left |= set(CLAIMED) if not self.goal else set()
        left |= set() if self.assuming else {"assuming"}
        return {name: value for name, value in _plain(self).items() if name not in left}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Certificate":
        """Read what `as_plain` wrote, now or by an earlier version: what is missing was not known then.

        Raises:
            ConfigError: a part that cannot be one.
        """
        try:
            read: dict[str, Any] = {f.name: data[f.name] for f in dataclasses.fields(cls) if f.name in data}
            for name, kind in (
                ("constraints", Binding),
                ("at_bounds", Edge),
                ("infeasible", RequiredRelaxation),
                ("workloads", Shared),
            ):
                if read.get(name) is not None:
                    read[name] = tuple(_of(kind, row) for row in read[name])
            if read.get("front") is not None:
                points = tuple(_of(FrontPoint, row) for row in read["front"]["points"])
                read["front"] = _of(ProvenFront, dict(read["front"]) | {"points": points})
            for name, kind in (("convexity", Convexity), ("robust", Robustness)):
                if read.get(name) is not None:
                    read[name] = _of(kind, read[name])
            if read.get("history") is not None:
                read["history"] = tuple((row[0], row[1], row[2]) for row in read["history"])
            read["alone_infeasible"] = tuple(read.get("alone_infeasible") or ())
            _refuse_kinds(cls, read)
            return cls(**read)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise ConfigError(f"summary.json: certificate cannot be read: {str(error).splitlines()[0]}") from error


def certify(
    wanted: GoalQuantity,
    upper: float,
    lower: float,
    *,
    convex: bool,
    closed: bool,
    reason: str,
    bounded: bool = True,
    **more: Any,
) -> Certificate:
    """The claim of a search: nothing is called certified, and no bound is told, of a model that may break it.

    Args:
        wanted: what the goal is.
        upper, lower: logs of the best design's goal and of the bound; infinite where there is none.
        convex: every row is proven convex.
        closed: what was asked for was reached.
        reason: why not, where one of both fails.
        bounded: the bound is of all designs.
        more: further parts.
    """
    bound = wanted.told(lower) if convex and bounded else None
    gap = upper - (wanted.sign * math.log(bound) if bound else -math.inf)
    return Certificate(
        certified=convex and bounded and closed, convex=convex, reason=reason, goal=wanted.name, sense=wanted.sense,
        best=wanted.value(upper), bound=bound, **more,
        gap=math.expm1(gap) if bound is not None and math.isfinite(gap) else None,
    )  # fmt: skip


def certify_front(front: ProvenFront, *, convex: bool, closed: bool, reason: str) -> Certificate:
    """The claim of a front: certified where every design of it is."""
    every = all(point.certified for point in front.points)
    return Certificate(certified=convex and closed and every, convex=convex, reason=reason, front=front)


def _plain(value: Any) -> Any:
    """Values that JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        result: dict[str, Any] = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, Shared):
            return {name: part for name, part in result.items() if part is not None and part != {}}
        return result
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in cast(Mapping[str, Any], value).items()}
    return [_plain(part) for part in cast(Sequence[Any], value)] if isinstance(value, tuple | list) else value


def _of(kind: type[T], data: Mapping[str, Any]) -> T:
    """A part from what JSON holds of it; lists become tuples."""
    names = [f.name for f in dataclasses.fields(cast(Any, kind))]
    read = {name: _tuple(data[name]) for name in names if name in data}
    _refuse_kinds(kind, read)
    return kind(**read)


def _refuse_kinds(kind: type, read: Mapping[str, Any]) -> None:
    """Refuse values that the fields of a class cannot have.

    Raises:
        TypeError: naming the first field.
    """
    hints = get_type_hints(kind)
    for name, value in read.items():
        if not _fits(value, hints[name]):
            raise TypeError(f"{name} is {str(value)[:60]!r}, no {getattr(hints[name], '__name__', hints[name])}")


def _fits(value: Any, hint: Any) -> bool:
    """True if a value is of a type: plain ones, mappings and tuples of such, or one of several."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in inside)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(one, inside[1]) for one in cast(dict[str, Any], value).values())
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        parts = cast(tuple[Any, ...], value)
        kinds = [inside[0]] * len(parts) if inside[-1] is Ellipsis else inside
        return len(kinds) == len(parts) and all(map(_fits, parts, kinds))
    if hint in (float, int):
        return isinstance(value, (int, float) if hint is float else int) and not isinstance(value, bool)
    return isinstance(value, type(None) if hint is None else hint)


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, cast(list[Any], value))) if isinstance(value, list) else value


def columns_of(rows: Sequence[Shared]) -> dict[str, np.ndarray]:
    """One row per workload: goals, used shares (limit.*) and its design (var.*); no number where it lacks one."""
    flat: list[dict[str, Any]] = []
    for row in rows:
        parts: dict[str, Any] = {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
        result = {name: value for name, value in parts.items() if value is not None and not isinstance(value, dict)}
        result |= {f"limit.{name}": share for name, share in row.used.items()}
        flat.append(result | {f"var.{name}": value for name, value in row.design.items()})
    names = dict.fromkeys(name for one in flat for name in one)
    return {name: np.array([one.get(name, math.nan) for one in flat]) for name in names}


# Claim of a search in words, made of its certificate: `codesign verify` makes them anew and compares.


CERTIFIED = "certified: "
LEAST = 1e-6  # share that a distance is told as, where it is less
LATE = 1.001  # of the gap asked for: within it a mix counts as closed
SHORT = 2e-8  # log by which a proof may fall short of the gap asked for: what is taken off bounds before they are told


def closed(gap: float | None, required: float) -> bool:
    """True if a gap is the one that was asked for, up to what is taken off a bound before it is told."""
    return gap is not None and math.log1p(gap) <= math.log1p(required) + SHORT


def claim_of_best(certificate: Certificate, plans: int) -> str:
    """Claim of `search=certified` and its kin, where there is a best design.

    Args:
        certificate: has the gap, and why it is not closed.
        plans: legal ones.
    """
    if not certificate.convex:
        return f"heuristic solution, no certificate: {certificate.reason}"
    if certificate.gap is None:
        return f"heuristic solution, nothing proven yet: {certificate.reason}"
    proven = f"within {percent(certificate.gap, LEAST)} of the optimum over {plans:,} plans"
    if not certificate.certified:
        return f"best found, {certificate.reason}: proven {proven}"
    return f"{CERTIFIED}proven {proven} and the whole box of hardware"


def claim_of_none(certificate: Certificate, plans: int) -> str:
    """Claim of `search=certified` and its kin, where no design is feasible."""
    if certificate.certified:
        return f"{CERTIFIED}no design of {plans:,} plans keeps all constraints, whatever the hardware"
    return f"no feasible design found, no certificate: {certificate.reason}"


def claim_of_integer(certificate: Certificate) -> str:
    """Claim of `search=integer` about its best integer design."""
    if certificate.certified and certificate.gap is not None:
        return f"{CERTIFIED}within {percent(certificate.gap, LEAST)} of the bound on all designs, whole or not"
    return f"heuristic solution, no certificate: {certificate.reason}"


def claim_of_mix(certificate: Certificate, plans: int, required_gap: float) -> str:
    """Claim of `search=mix`.

    Args:
        certificate: has the gap, and why it is not closed.
        plans: of all workloads together.
        required_gap: relative gap at which it counts as closed.
    """
    if certificate.best is None:
        hopeless = ", ".join(certificate.alone_infeasible)
        return f"no feasible design: {hopeless} has none alone" if hopeless else "no feasible design found"
    if not certificate.convex:
        return f"heuristic solution, no certificate: {certificate.reason}"
    if certificate.gap is None:
        return f"heuristic solution, nothing proven yet; {certificate.reason}"
    proven = f"within {percent(certificate.gap, LEAST)} of the optimum over all tuples of {plans:,} plans"
    if not closed(certificate.gap, required_gap * LATE):
        return f"best found, proven {proven}{'; ' + certificate.reason if certificate.reason else ''}"
    return f"{CERTIFIED}proven {proven} and the whole box of hardware"


def claim_of_front(certificate: Certificate, required_gap: float) -> str:
    """Claim of `search=pareto`.

    Args:
        certificate: has the front.
        required_gap: relative gap at which a design of it counts as proven.
    """
    if not certificate.convex or certificate.front is None:
        return f"heuristic front, no certificate: {certificate.reason}"
    points = certificate.front.points
    proven = sum(point.certified for point in points)
    words = f"{proven} of {len(points)} designs of the front are proven to {percent(required_gap)}"
    if proven < len(points):
        words += f", the worst to {percent(max(math.inf if p.gap is None else p.gap for p in points))}"
    return f"front so far, {certificate.reason}: {words}" if certificate.reason else f"{CERTIFIED}{words}"
