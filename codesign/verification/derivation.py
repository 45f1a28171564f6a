"""A certificate as it was left: nodes that stand for plans, points, weights; refused where that cannot be one."""

import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

GOAL = "goal"  # the row of the goal; all others are logs of used shares, at most 0 where a design is feasible
VERSION = 1


class Refuted(Exception):
    """The first thing that is wrong; the message is one line."""


@dataclass(frozen=True)
class StatedClaim:
    """Claim in values of the goal; `bound` None where nothing is proven, `best` where nothing was found.

    infeasible: that no design keeps all constraints. design: plan fields and hardware values of the best design.
    """

    goal: str
    sense: str
    best: float | None
    bound: float | None
    gap: float | None
    infeasible: bool
    design: dict[str, float]

    @property
    def sign(self) -> float:
        """1 where less is better, -1 where more is."""
        return 1.0 if self.sense == "minimise" else -1.0

    @property
    def log_bound(self) -> float:
        """The bound as a log that no design's lies below; inf where no design is feasible, -inf without a claim."""
        if self.infeasible:
            return np.inf
        return -np.inf if self.bound is None else self.sign * float(np.log(self.bound))


@dataclass(frozen=True)
class Derivation:
    """Derivation of a bound.

    rows: names, the goal's first; plan: field -> its values, those of listed variables (held) behind the plan's own;
    view: of each row, which of a group's plans it is taken at. low, high: places in the fields' values that a node
    stands for; best: of each view. ranges: a field is open entirely or not at all, and rows have ranges. u, sharpness:
    points. node, point, row, weight: the terms of the nodes' weighted sums of tangents.
    """

    claim: StatedClaim
    rows: tuple[str, ...]
    variables: tuple[str, ...]
    plan: dict[str, np.ndarray]
    held: tuple[str, ...]
    view: Int[np.ndarray, " rows"]
    low: Int[np.ndarray, "nodes fields"]
    high: Int[np.ndarray, "nodes fields"]
    best: Int[np.ndarray, "views nodes fields"]
    u: Float[np.ndarray, "points variables"]
    sharpness: Float[np.ndarray, " points"]
    node: Int[np.ndarray, " cuts"]
    point: Int[np.ndarray, " cuts"]
    row: Int[np.ndarray, " cuts"]
    weight: Float[np.ndarray, " cuts"]
    ranges: bool = False

    @property
    def sizes(self) -> np.ndarray:
        """Values of each plan field."""
        return np.array([len(values) for values in self.plan.values()], dtype=np.int64)

    @property
    def weights(self) -> np.ndarray:
        """Plans, legal or not, that each node stands for."""
        return (self.high - self.low + 1).prod(axis=1)

    def values(self, index: Int[np.ndarray, "k fields"]) -> Float[np.ndarray, "k fields"]:
        """Plan fields at these places."""
        columns = [values[index[:, j]] for j, values in enumerate(self.plan.values())]
        return np.stack(columns, axis=-1) if columns else np.zeros((len(index), 0))

    def named(self, node: int) -> str:
        """A node as a reader wants it: `node 17 (tp 8, pp 4, offload_optimizer 0 to 1)`."""
        words: list[str] = []
        for j, (name, values) in enumerate(self.plan.items()):
            low, high = values[self.low[node, j]], values[self.high[node, j]]
            words.append(f"{name} {low:g}" + (f" to {high:g}" if high > low else ""))
        return f"node {node} ({', '.join(words)})" if words else f"node {node}"


def derivation_of(header: Mapping[str, Any], tables: Mapping[str, Mapping[str, np.ndarray]]) -> Derivation:
    """The certificate of these numbers, with everything checked that needs no model.

    Raises:
        Refuted: missing or superfluous parts, lengths that differ, numbers that point nowhere, signs that are wrong.
    """
    try:
        claim = claim_of(header["claim"])
        rows, variables = tuple(map(str, header["rows"])), tuple(map(str, header["variables"]))
        held = dict(header.get("held") or {})
        listed = dict(header["plan"]) | held
        plan = {str(name): np.asarray(values, dtype=float) for name, values in listed.items()}
        ranges = header.get("ranges", False)
        views, counts = dict[str, list[Any]](header["views"]), dict[str, Any](header["counts"])
        version = header["version"]
        if any(values.ndim != 1 or not np.isfinite(values).all() for values in plan.values()):
            raise ValueError("values of a plan field are no list of numbers")
        views = {str(int(number)): [str(name) for name in names] for number, names in views.items()}
        if sorted(map(int, views)) != list(range(len(views))):
            raise ValueError("views are not numbered from 0")
        if not isinstance(ranges, bool):
            raise ValueError(f"ranges is {ranges!r}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refuted(f"certificate.json cannot be read: {type(error).__name__} {error}") from error
    if version != VERSION:
        raise Refuted(f"certificate.json has layout {version}, known is {VERSION}")
    for name in ("nodes", "points", "cuts"):
        lengths = {len(column) for column in tables.get(name, {}).values()}
        if lengths != {counts.get(name)}:
            result = " and ".join(map(str, sorted(lengths))) or "no"
            raise Refuted(f"{name}.parquet has {result} rows, certificate.json says {counts.get(name)}")
    nodes, points, cuts = (tables[name] for name in ("nodes", "points", "cuts"))
    _refuse_others(nodes, points, cuts, plan, views, variables)
    low, high = (column_table(nodes, [f"{end}.{name}" for name in plan], "nodes", int) for end in ("low", "high"))
    result = Derivation(
        claim, rows, variables, plan, tuple(map(str, held)),
        _views(rows, views), low, high, _best(nodes, plan, low, views),
        column_table(points, [f"u.{name}" for name in variables], "points", float),
        column_table(points, ["sharpness"], "points", float)[:, 0],
        column_table(cuts, ["node"], "cuts", int)[:, 0],
        column_table(cuts, ["point"], "cuts", int)[:, 0],
        column_table(cuts, ["row"], "cuts", int)[:, 0],
        column_table(cuts, ["weight"], "cuts", float)[:, 0],
        ranges,
    )  # fmt: skip
    _check(result)
    return result


def _refuse_others(
    nodes: Mapping[str, np.ndarray],
    points: Mapping[str, np.ndarray],
    cuts: Mapping[str, np.ndarray],
    plan: Mapping[str, Any],
    views: Mapping[str, Any],
    variables: tuple[str, ...],
) -> None:
    """Nothing is kept that is not read.

    Raises:
        Refuted: naming the column.
    """
    ends = ("low", "high", *(f"best.{k}" for k in range(len(views))))
    columns_read = {
        "nodes": {"number", *(f"{end}.{name}" for end in ends for name in plan)},
        "points": {"sharpness", *(f"u.{name}" for name in variables)},
        "cuts": {"node", "point", "row", "weight", "round"},
    }
    for (file, names), columns in zip(columns_read.items(), (nodes, points, cuts), strict=True):
        refuse_unread(file, columns, names)


def refuse_unread(file: str, columns: Iterable[str], names: Container[str]) -> None:
    """A table has no column but these.

    Raises:
        Refuted: naming the first other one.
    """
    others = [name for name in columns if name not in names]
    if others:
        raise Refuted(f"{file}.parquet: nobody reads column {others[0]!r}")


def claim_of(raw: Any) -> StatedClaim:
    """The claim as it was written.

    Raises:
        Refuted: numbers that no claim can have, or what is no claim.
    """
    try:
        return _claim_of(dict[str, Any](raw))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise Refuted(f"the claim cannot be read: {type(error).__name__} {error}") from error


def _claim_of(raw: Mapping[str, Any]) -> StatedClaim:
    values = {name: None if raw.get(name) is None else float(raw[name]) for name in ("best", "bound", "gap")}
    design = {str(name): float(value) for name, value in dict[str, Any](raw.get("design") or {}).items()}
    if raw["sense"] not in ("minimise", "maximise"):
        raise Refuted(f"claim: sense is {raw['sense']!r}, neither minimise nor maximise")
    for name, value in values.items():
        if value is not None and (not np.isfinite(value) or (name != "gap" and value <= 0)):
            raise Refuted(f"claim: {name} is {value:g}")
    if not isinstance(raw["infeasible"], bool):
        raise ValueError(f"infeasible is {raw['infeasible']!r}")
    return StatedClaim(str(raw["goal"]), str(raw["sense"]), **values, infeasible=raw["infeasible"], design=design)


def column_table(columns: Mapping[str, np.ndarray], names: list[str], file: str, kind: type) -> np.ndarray:
    """Named columns of a table side by side."""
    absent = [name for name in names if name not in columns]
    if absent:
        raise Refuted(f"{file}.parquet has no column {absent[0]!r}")
    length = len(next(iter(columns.values())))
    parts = [np.asarray(columns[name]) for name in names]
    for name, part in zip(names, parts, strict=True):
        if part.dtype.kind not in ("iu" if kind is int else "iuf"):
            raise Refuted(f"{file}.parquet: column {name!r} holds no {'whole ' * (kind is int)}numbers")
        if not np.isfinite(part).all():
            raise Refuted(f"{file}.parquet: column {name!r} is not finite in row {int(np.argmin(np.isfinite(part)))}")
    kinds = np.int64 if kind is int else np.float64
    return np.stack(parts, axis=-1).astype(kinds) if parts else np.zeros((length, 0), dtype=kinds)


def _views(rows: tuple[str, ...], views: Mapping[str, Any]) -> np.ndarray:
    """View of each row."""
    result = np.zeros(len(rows), dtype=np.int64)
    for number, names in views.items():
        for name in names:
            if name in rows:
                result[rows.index(name)] = int(number)
    named = {name for names in views.values() for name in names}
    absent = [name for name in rows if views and name not in named]
    if absent:
        raise Refuted(f"certificate.json: row {absent[0]!r} belongs to no view")
    return result


def _best(
    nodes: Mapping[str, np.ndarray], plan: Mapping[str, np.ndarray], low: np.ndarray, views: Mapping[str, Any]
) -> np.ndarray:
    """Places that each view takes nodes at; those of fields that are never open are their only ones."""
    result = np.tile(low, (max(len(views), 1), 1, 1))
    for k in range(len(views)):
        for j, name in enumerate(plan):
            if f"best.{k}.{name}" in nodes:
                result[k, :, j] = column_table(nodes, [f"best.{k}.{name}"], "nodes", int)[:, 0]
    return result


def _check(derivation: Derivation) -> None:
    """Check that all indices point into their tables and that no weight is negative.

    Raises:
        Refuted: naming the first that does not.
    """
    if not derivation.rows or derivation.rows[0] != GOAL or len(set(derivation.rows)) < len(derivation.rows):
        raise Refuted(f"certificate.json: rows must be {GOAL!r} and constraints, each once")
    for name, column, count in (
        ("node", derivation.node, len(derivation.low)), ("point", derivation.point, len(derivation.u)),
        ("row", derivation.row, len(derivation.rows)),
    ):  # fmt: skip
        wrong = np.flatnonzero((column < 0) | (column >= count))
        if len(wrong):
            raise Refuted(f"cut {wrong[0]}: {name} {column[wrong[0]]} does not exist, there are {count}")
    wrong = np.flatnonzero(derivation.weight < 0)
    if len(wrong):
        cut = int(wrong[0])
        where = f"{derivation.named(int(derivation.node[cut]))}, row {derivation.rows[derivation.row[cut]]}"
        raise Refuted(f"cut {cut} of {where}: its multiplier is negative, {derivation.weight[cut]:g}")
    wrong = np.flatnonzero(((derivation.u < 0) | (derivation.u > 1)).any(axis=1) | (derivation.sharpness <= 0))
    if len(wrong):
        raise Refuted(f"point {wrong[0]} lies outside the box, or its sharpness is not positive")
    plan_fields = len(derivation.plan) - len(derivation.held)
    if (derivation.low[:, plan_fields:] != derivation.high[:, plan_fields:]).any():
        raise Refuted("nodes.parquet: a node leaves a listed variable open: each must be of one value")
    if derivation.ranges and (derivation.variables or derivation.held or len(derivation.best) > 1):
        raise Refuted("certificate.json: ranges bound plans that nothing else varies with, and have no views")
    some = (derivation.low < derivation.high) & ((derivation.low > 0) | (derivation.high < derivation.sizes - 1))
    if derivation.ranges and some.any():
        raise Refuted(f"node {np.argmax(some.any(axis=1))}: leaves some values of a field open, and ranges need all")
    inside = (derivation.low >= 0) & (derivation.low <= derivation.high) & (derivation.high < derivation.sizes)
    inside &= ((derivation.best >= derivation.low) & (derivation.best <= derivation.high)).all(axis=0)
    wrong = np.flatnonzero(~inside.all(axis=1))
    if len(wrong):
        raise Refuted(f"node {wrong[0]}: its ranges, or the values that it is taken at, are no places of the lists")


# The two ends that every check has: what it refutes becomes the answer's one line, and what it found none against is
# attacked.


FLOOR, MOST = 1 << 14, 1_000_000  # designs tried where nobody says how many: at least and at most
FEWEST = 1 << 10  # the same where every design has a bound of its own
FEW = 0.2  # of the best designs are polished where there is no more time than for the fewest designs
ALIKE = 1e-9  # what rounding may leave between two ways to price a design, in a logarithm
Report = Callable[[str, int, int], None]


@dataclass
class Answer:
    """Result of a verification.

    verified: nothing that was claimed is false. line: the answer. checks: what was done, in order. numbers: for JSON.
    """

    verified: bool
    line: str
    checks: list[str] = field(default_factory=list[str])
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class AttackEffort:
    """Number of designs to try: as asked, or as many as the time allows.

    until: of this process, in seconds of a processor.
    """

    designs: int | None = None
    until: float = 0.0


@runtime_checkable
class Attempt(Protocol):
    """Designs that are tried against a claim: `Attack`, `MixAttack`."""

    @property
    def listed_fully(self) -> bool:
        """True if each design has a bound of its own, derived anew: others lie nowhere between."""
        ...

    def run(self, count: int, rng: np.random.Generator, report: Callable[[int, int], None]) -> None:
        """Try so many."""
        ...

    def polish(self, share: float = 1.0) -> int:
        """Improve a share of the best; says how many."""
        ...


def quiet(stage: str, done: int, total: int) -> None:
    """Tell nobody."""


def answered(check: Callable[[Answer], None]) -> Answer:
    """Run a check, which writes into the answer, and return that."""
    answer = Answer(False, "")
    try:
        check(answer)
        answer.verified = True
    except Refuted as result:
        answer.line = f"not verified: {result}"
    return answer


def alike(apart: float, whose: str = "") -> None:
    """Designs are priced with tables of the plan, all of them; some without as well.

    Args:
        apart: how far these differ at most, in a logarithm.
        whose: begins the refusal.

    Raises:
        Refuted: by more than rounding.
    """
    if apart > ALIKE:
        raise Refuted(f"{whose}designs priced with tables of the plan and without differ by {apart:.3g} in a logarithm")


def least_designs(designs: int | AttackEffort) -> int:
    """Number of designs that an attack tries at least."""
    return designs if isinstance(designs, int) else designs.designs or 0


def attacked(tried: Attempt, designs: int | AttackEffort, rng: np.random.Generator, report: Report) -> int:
    """Try random designs, then polish the best; says how many of these."""

    def tell(done: int, total: int) -> None:
        report("attack", done, total)

    requested, share = designs if isinstance(designs, int) else designs.designs, 1.0
    if requested is not None or isinstance(designs, int):
        tried.run(requested or 0, rng, tell)
    elif tried.listed_fully:
        tried.run(FEWEST, rng, tell)
    else:
        began = time.process_time()
        tried.run(FLOOR, rng, tell)
        there = time.process_time()
        possible = FLOOR * (1 + (designs.until - there) / max(there - began, 1e-3))
        if possible >= 2 * FLOOR:
            tried.run(min(int(possible), MOST), rng, tell)
        else:
            share = FEW
    report("polishing", 0, 1)
    return tried.polish(share)
