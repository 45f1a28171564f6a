"""The whole check of a front: its designs, the statements behind them, what follows from these, and an attack."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ..core.jax_typed import asarray
from ..study.objective import feasible_logs
from .attack import EXTREME, Attack, AttackTarget, aims_of, sample
from .bound_check import VALUE as PRICED
from .bound_check import described, listed_plans
from .coverage import cover, covered_by
from .curvature_of_rows import check_directions, check_structure
from .derivation import (
    Answer,
    AttackEffort,
    Derivation,
    Refuted,
    Report,
    alike,
    answered,
    attacked,
    derivation_of,
    least_designs,
    quiet,
    refuse_unread,
)
from .inequality import SINGLE, UNIT, WeightedSums, derive, per_unit
from .model_answers import CheckedModel, VerifiedProblem

# A front as it was left: its designs, what is claimed of each, and the statements that these claims follow from.


SAME = 1e-8  # relative; how far a design may lie beyond what holds it, for rounding
VALUE = 1e-11  # how well claimed values and those derived here must agree; statements must hold as they stand


@dataclass(frozen=True)
class Statements:
    """Statements: a metric is at least `bound` wherever the others keep to their levels; logs, less is better.

    metric: its place among the front's; level: inf where any value does; bound: inf where nothing keeps to the levels.
    """

    metric: Int[np.ndarray, " statements"]
    level: Float[np.ndarray, "statements metrics"]
    bound: Float[np.ndarray, " statements"]

    def __len__(self) -> int:
        return len(self.bound)

    def some(self, which: np.ndarray) -> "Statements":
        """Selected statements."""
        return Statements(self.metric[which], self.level[which], self.bound[which])

    def words(self, one: int, metrics: Sequence[str], signs: Sequence[float]) -> str:
        """`that time_s is at least 3.8 where usd_per_million_tokens keeps to 0.95`."""
        level_texts = [
            f"{name} keeps to {math.exp(sign * level):.9g}"
            for name, sign, level in zip(metrics, signs, self.level[one].tolist(), strict=True)
            if math.isfinite(level)
        ]
        k, bound = int(self.metric[one]), float(self.bound[one])
        where = f" where {' and '.join(level_texts)}" if level_texts else ""
        if math.isinf(bound):
            return f"that no design is feasible{where}"
        side = "at least" if signs[k] > 0 else "at most"
        return f"that {metrics[k]} is {side} {math.exp(signs[k] * bound):.9g}{where}"

    def strongest(self) -> "Statements":
        """Without those that follow from others."""
        more = (self.level[:, None] <= self.level[None]).all(axis=2) & (self.bound[:, None] <= self.bound[None])
        more &= self.metric[:, None] == self.metric[None]
        equal = more & more.T
        more &= ~equal | (np.arange(len(self))[:, None] > np.arange(len(self))[None])  # of equal ones the first stays
        return self.some(np.flatnonzero(~more.any(axis=1)))

    def broken(self, values: Float[np.ndarray, "designs metrics"]) -> Float[np.ndarray, " designs"]:
        """Log by which each design lies within what the worst statement for it says is impossible."""
        room = (self.level[None] - values[:, None]).min(axis=2)
        return np.minimum(room, self.bound - values[:, self.metric]).max(axis=1)

    def reached(self, one: int, sums: WeightedSums, columns: Sequence[int]) -> Bool[np.ndarray, " nodes"]:
        """Nodes whose weighted tangents say it: metrics at most their levels, taken off with outward rounding.

        Args:
            one: which statement.
            sums: of the nodes.
            columns: places of the front's metrics among the rows.
        """
        least, size = sums.least.copy(), np.abs(sums.least)
        for k, level in enumerate(self.level[one].tolist()):
            weight = sums.weights[:, columns[k]]
            if k == self.metric[one]:
                continue
            taken = np.where(weight > 0, level, 0.0) * weight
            least, size = least - taken, size + np.abs(taken)
        goal_weight = sums.weights[:, columns[self.metric[one]]]
        least = np.where(
            np.isfinite(size), least - 4 * len(columns) * UNIT * np.where(np.isfinite(size), size, 0.0), -np.inf
        )
        bound = np.where(np.abs(goal_weight - 1.0) <= SINGLE, per_unit(least, goal_weight), -np.inf)
        bound = np.where((goal_weight == 0) & (least > 0), np.inf, bound)
        return bound >= self.bound[one]


@dataclass(frozen=True)
class Front:
    """Claims of a front.

    metrics, signs: the first metric is the one that is bounded; -1 where more is better. values: of the designs.
    designs: plan fields and hardware -> values. of: statement of each design. summary: as the report has it.
    """

    metrics: tuple[str, ...]
    signs: tuple[float, ...]
    values: Float[np.ndarray, "designs metrics"]
    designs: dict[str, np.ndarray]
    of: Int[np.ndarray, " designs"]
    statements: Statements
    summary: Mapping[str, Any]

    @property
    def logs(self) -> Float[np.ndarray, "designs metrics"]:
        """Values, less is better."""
        return np.log(self.values) * np.array(self.signs)

    @property
    def worst(self) -> float:
        """Largest relative distance of a design from its bound; inf where one has none."""
        return float(np.expm1(self.logs[:, 0] - self.statements.bound[self.of]).max(initial=0.0))

    def logs_of(self, values: Sequence[Mapping[str, float]] | Sequence[Sequence[float]]) -> np.ndarray:
        """Logs of values given one point after the other."""
        result = np.array(list(values), dtype=float).reshape(-1, len(self.metrics))
        return np.log(result) * np.array(self.signs)


def front_of(header: Mapping[str, Any], tables: Mapping[str, Mapping[str, np.ndarray]]) -> Front:
    """The front of a certificate.

    Raises:
        Refuted: missing parts, statements about nothing, numbers that no claim can have.
    """
    try:
        summary = header["front"]
        metrics, more = tuple(map(str, summary["metrics"])), set(map(str, summary["maximised"]))
        signs = tuple(-1.0 if name in more else 1.0 for name in metrics)
        values = np.array([[float(one["values"][name]) for name in metrics] for one in summary["points"]])
        stored, designs = tables["statements"], dict(tables["designs"])
        of = np.asarray(designs.pop("statement"), dtype=np.int64)
        refuse_unread("statements", stored, {"metric", "bound", *(f"level.{name}" for name in metrics[1:])})
        level = [np.asarray(stored[f"level.{name}"], dtype=float) for name in metrics[1:]]
        level = np.stack([np.full(len(stored["bound"]), np.inf), *level], axis=-1)
        metric = np.asarray(stored["metric"], dtype=np.int64)
        statements = Statements(metric, level, np.asarray(stored["bound"], dtype=float))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refuted(f"the front cannot be read: {type(error).__name__} {error}") from error
    result = Front(metrics, signs, values.reshape(-1, len(metrics)), designs, of, statements, summary)
    _check(result)
    return result


def _check(front: Front) -> None:
    statements, count = front.statements, len(front.metrics)
    if not (np.isfinite(front.values).all() and (front.values > 0).all()):
        raise Refuted("a design of the front has a value that is no positive number")
    if np.isnan(statements.level).any() or np.isnan(statements.bound).any():
        raise Refuted("statements.parquet: a level or a bound is no number")
    if ((statements.metric < 0) | (statements.metric >= count)).any():
        raise Refuted("statements.parquet: a statement is about no metric of the front")
    if len(front.of) != len(front.values) or any(len(column) != len(front.of) for column in front.designs.values()):
        raise Refuted(f"designs.parquet has {len(front.of)} designs, the front {len(front.values)}")
    if ((front.of < 0) | (front.of >= len(statements))).any():
        raise Refuted("designs.parquet: a design rests on a statement that does not exist")


def check_points(front: Front) -> str:
    """Each design keeps to the levels of its statement, and its bound and gap are what the statement says.

    Raises:
        Refuted: naming the first design that does not.
    """
    logs, statements = front.logs, front.statements
    for i, (one, statement) in enumerate(zip(front.summary["points"], front.of.tolist(), strict=True)):
        bound = float(statements.bound[statement])  # -inf where a search that was cut off has none
        if statements.metric[statement] != 0 or not feasible_logs((logs[i] - statements.level[statement]).max()):
            raise Refuted(f"design {i} of the front rests on a statement about other designs")
        levels = [one.get("levels", {}).get(name, math.inf) for name in front.metrics]
        level = np.exp(statements.level[statement] * np.array(front.signs))
        if not np.allclose(
            levels, np.where(np.isfinite(statements.level[statement]), level, np.inf), rtol=VALUE, atol=0
        ):
            raise Refuted(f"design {i} of the front is told to be bounded at levels other than its statement's")
        level = {"bound": None, "gap": None}
        if math.isfinite(bound):
            level = {"bound": math.exp(front.signs[0] * bound), "gap": math.expm1(logs[i, 0] - bound)}
        for name, value in level.items():
            said = one.get(name)
            if said is None or value is None:
                wrong = said is not value
            else:
                wrong = not math.isclose(said, value, rel_tol=VALUE, abs_tol=VALUE)
            if wrong:
                raise Refuted(f"design {i} of the front: its {name} is {_shown(value)}, claimed is {_shown(said)}")
        if one.get("certified") and not math.isfinite(bound):
            raise Refuted(f"design {i} of the front is called certified, but nothing bounds it")
        # One beyond its level, as far as rounding may be, says nothing against the bound, however steep the level's
        # price: the inequality of its node is tested at it like at every design of the attack.
        if (logs[i] <= statements.level[statement] + VALUE).all() and logs[i, 0] < bound - SAME:
            raise Refuted(f"design {i} of the front is better than its bound")
    for i in range(len(logs)):
        better = (logs <= logs[i]).all(axis=1) & (logs < logs[i] - SAME).any(axis=1)
        if better.any():
            raise Refuted(f"design {i} of the front is worse in everything than design {int(np.argmax(better))}")
    return f"{len(logs)} designs, none better than another in everything, the worst {front.worst:.3%} above its bound"


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.9g}"


# Envelope of a front's statements: the least that they leave the first metric, over all values of the others.


@dataclass(frozen=True)
class Envelope:
    """Cells between all levels, in each of which the same statements hold.

    edges: of each metric but the first, rising: what it is at least, the levels, infinity; bound: of the first metric
    within each cell, its upper edges included.
    """

    edges: list[Float[np.ndarray, " _"]]
    bound: Float[np.ndarray, "*cells"]

    def cell(self, values: Float[np.ndarray, "designs metrics"]) -> tuple[Int[np.ndarray, " designs"], ...]:
        """Cell of each design; -1 along a metric that is less than it can be."""
        return tuple(np.searchsorted(edge, values[:, k]) - 1 for k, edge in enumerate(self.edges, start=1))

    def impossible(self, values: Float[np.ndarray, "designs metrics"]) -> Int[np.ndarray, " some"]:
        """Designs that some statement says cannot be."""
        at = self.cell(values)
        below = np.logical_or.reduce([indices_of_axis < 0 for indices_of_axis in at])
        return np.flatnonzero(
            below | (values[:, 0] < self.bound[tuple(np.maximum(indices_of_axis, 0) for indices_of_axis in at)])
        )


def envelope(statements: Statements, more: Float[np.ndarray, "points metrics"]) -> Envelope:
    """Return the envelope of these statements; `more` are points whose coordinates are edges too."""
    goal_bounds, edges = statements.some(np.flatnonzero(statements.metric == 0)), list[np.ndarray]()
    for k in range(1, statements.level.shape[1]):
        alone = (statements.metric == k) & np.isinf(statements.level).all(axis=1)
        least = float(statements.bound[alone].max(initial=-np.inf))
        places = np.unique(np.concatenate([goal_bounds.level[:, k], more[:, k]]))
        edges.append(np.concatenate([[least], places[np.isfinite(places) & (places > least)], [np.inf]]))
    bound = np.full([len(edge) - 1 for edge in edges], -np.inf)
    last = [np.searchsorted(edge, goal_bounds.level[:, k], side="right") - 2 for k, edge in enumerate(edges, start=1)]
    some = np.logical_and.reduce([at >= 0 for at in last])
    np.maximum.at(bound, tuple(at[some] for at in last), goal_bounds.bound[some])
    for axis in range(bound.ndim):
        bound = np.flip(np.maximum.accumulate(np.flip(bound, axis), axis=axis), axis)
    return Envelope(edges, bound)


def check_corners(front: Front) -> str:
    """The corners lie below every design that the statements allow, and the volumes are those of corners and designs.

    In each cell a corner at its lower edges or below must be no more than what the statements leave there.

    Raises:
        Refuted: a cell that no corner covers, or another volume.
    """
    summary = front.summary
    reference = front.logs_of([[summary["reference"][name] for name in front.metrics]])[0]
    _check_volume("hypervolume", summary, front.logs, reference)
    if summary["hypervolume_at_most"] is None and not summary["corners"]:
        return f"hypervolume {summary['hypervolume']:.6g}; nothing is claimed of any front whatever"
    corners = front.logs_of(summary["corners"])
    left = envelope(front.statements, corners)
    corner = np.full(left.bound.shape, np.inf)
    first = [np.searchsorted(edge, corners[:, k] - SAME) for k, edge in enumerate(left.edges, start=1)]
    some = np.logical_and.reduce([at < size for at, size in zip(first, corner.shape, strict=True)])
    np.minimum.at(corner, tuple(at[some] for at in first), corners[some, 0])
    for axis in range(corner.ndim):
        corner = np.minimum.accumulate(corner, axis=axis)
    if not ((corner <= left.bound + SAME) | np.isposinf(left.bound)).all():
        raise Refuted("the corners do not lie below every design that the statements allow")
    _check_volume("hypervolume_at_most", summary, corners, reference)
    return (
        f"hypervolume {summary['hypervolume']:.6g}, of any front whatever at most {summary['hypervolume_at_most']:.6g}"
    )


def _check_volume(name: str, stated: Mapping[str, Any], points: np.ndarray, reference: np.ndarray) -> None:
    derived = volume(points, reference)
    if stated[name] is None or not math.isclose(stated[name], derived, rel_tol=1e-9, abs_tol=VALUE):
        raise Refuted(f"{name} is {derived:.9g}, claimed is {stated[name]}")


def volume(points: Float[np.ndarray, "points metrics"], reference: Float[np.ndarray, " metrics"]) -> float:
    """Hypervolume: of all that some point is no worse than, up to the reference.

    Slab by slab along the first metric; each is a sum over the cells of the grid of all other coordinates.
    """
    inside = points[(points < reference).all(axis=1)]
    inside = inside[np.argsort(inside[:, 0], kind="stable")]
    edges = [np.unique(column) for column in inside[:, 1:].T]
    sizes = [np.diff(np.append(edge, last)) for edge, last in zip(edges, reference[1:], strict=True)]
    indices: list[np.ndarray] = [
        np.searchsorted(edge, column) for edge, column in zip(edges, inside[:, 1:].T, strict=True)
    ]
    filled, total = np.zeros([len(edge) for edge in edges], dtype=bool), 0.0
    for i, width in enumerate(np.diff(np.append(inside[:, 0], reference[0]))):
        filled[tuple(slice(at[i], None) for at in indices)] = True
        if width > 0:
            area = filled.astype(float)
            for size in reversed(sizes):
                area = area @ size
            total += float(width * area)
    return total


AIMS = 16  # statements, spread over the front, that designs are searched against


def verify_front(
    problem: VerifiedProblem,
    header: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, np.ndarray]],
    attack: int | AttackEffort,
    seed: int,
    report: Report = quiet,
    model: CheckedModel | None = None,
) -> Answer:
    """Check all that is claimed of a front.

    Args:
        problem: the study; its goal is the front's first metric, `levelled` are the others.
        header, tables: the certificate as it was left.
        attack: designs to try.
        seed: of these.
        report: hears stage, done and total.
        model: that of the study, where it is traced already.
    """

    def check(answer: Answer) -> None:
        front, certificate = front_of(header, tables), derivation_of(header, tables)
        _verify(answer, problem, front, certificate, model or CheckedModel(problem), attack, seed, report)

    return answered(check)


def _verify(
    answer: Answer,
    problem: VerifiedProblem,
    front: Front,
    certificate: Derivation,
    model: CheckedModel,
    attack: int | AttackEffort,
    seed: int,
    report: Report,
) -> None:
    rng, checks = np.random.default_rng(seed), answer.checks
    if (front.metrics, front.signs) != ((problem.goal, *problem.levelled), (problem.sign, *problem.levelled.values())):
        raise Refuted(f"the certificate is of a front of {', '.join(front.metrics)}, the study asks for another")
    checks.append(check_points(front))
    index, u = _check_designs(front.designs, front.values, problem, model)
    checks.append(f"all {len(index)} designs are legal and feasible, with the values that are claimed")
    report("covering the space", 0, 1)
    covered = cover(certificate, problem, model)
    problem.legal.check(rng)
    report("curvature", 0, 1)
    proven, text = check_structure(certificate, model)
    checks.append(text)
    sums = derive(certificate, model, lambda done, total: report("bounds anew", done, total))
    columns = [0, *(model.names.index(name) for name in model.levelled)]
    reached = (front.statements.reached(one, sums, columns) for one in range(len(front.statements)))
    for one, missing in enumerate(covered_by(certificate, problem, model, reached)):
        report("statements", one, len(front.statements))
        if missing:
            said = front.statements.words(one, front.metrics, front.signs)
            raise Refuted(f"statement {one}, {said}: {missing}")
    checks.append(
        f"{len(front.statements)} statements derived anew for {covered.text} from"
        f" {len(certificate.node):,} weighted tangents at {len(certificate.u):,} points"
    )
    checks.append(check_corners(front))
    directions = check_directions(
        certificate, model, rng, proven, lambda done, total: report("directions", done, total)
    )
    checks.extend([directions.text] * bool(directions.text))
    tried = _attacker(front, problem, model, certificate)
    tried = dataclasses.replace(tried, start=(index, u), certificate=certificate, sums=sums, covered=covered)
    alike(tried.compare(least_designs(attack), rng))
    lanes = attacked(tried, attack, rng, report)
    tried.refuse(
        lambda at, there: described(problem, tried.lists, at, there), "a statement of the front says it cannot be"
    )
    checks.append(
        f"attack: {tried.tried:,} designs, {tried.feasible:,} feasible, {lanes} polished, none beyond a statement;"
        f" the inequality of its node held at {tried.held:,} of them"
    )
    answer.numbers |= {"nodes": len(certificate.low), "cuts": len(certificate.node), "plans": covered.plans}
    answer.numbers |= {"every_plan": covered.exact, "distinct_plans": covered.distinct}
    answer.numbers |= {"statements": len(front.statements), "designs": len(index), "tried": tried.tried}
    answer.numbers |= {"feasible": tried.feasible, "polished": lanes, "held": tried.held}
    answer.line = (
        f"verified: at the levels of each of the {len(index)} designs of the front no design has a {front.metrics[0]}"
        f" better by more than {front.worst:.3%}"
    )


def verify_unproven(problem: VerifiedProblem, designs: Mapping[str, np.ndarray], values: np.ndarray) -> Answer:
    """Verify a front that nothing is proven of: its designs, with the values [designs, metrics] that are shown."""

    def check(answer: Answer) -> None:
        index, _ = _check_designs(designs, values, problem, CheckedModel(problem))
        answer.line = (
            f"nothing claimed to verify: the search proves nothing; its {len(index)} designs are feasible and have the"
            " values that are shown"
        )

    return answered(check)


def _check_designs(
    designs: Mapping[str, np.ndarray],
    values: Float[np.ndarray, "designs metrics"],
    problem: VerifiedProblem,
    model: CheckedModel,
) -> tuple[Int[np.ndarray, "designs fields"], Float[np.ndarray, "designs variables"]]:
    """Places and coordinates of all designs, which are listed, legal, inside the box, feasible and as good as claimed.

    Raises:
        Refuted: naming the first that is not.
    """
    space = problem.space
    if set(designs) != {*space.plan, *space.hardware}:
        raise Refuted("designs.parquet has other variables than the study")
    for name, listed in space.lists.items():
        wrong = np.flatnonzero(~np.isin(designs[name], listed))
        if len(wrong):
            raise Refuted(f"design {wrong[0]}: {name} = {designs[name][wrong[0]]:g} is not listed in space.plan")
    for name, variable in space.hardware.items():
        inside = (designs[name] >= variable.low * (1 - SAME)) & (designs[name] <= variable.high * (1 + SAME))
        wrong = np.flatnonzero(~inside)
        if len(wrong):
            value = designs[name][wrong[0]]
            raise Refuted(f"design {wrong[0]}: {name} = {value:g} is outside {variable.low:g} to {variable.high:g}")
    legal = np.broadcast_to(problem.legal.keeps({name: designs[name] for name in space.plan}), len(values))
    if not np.all(legal):
        raise Refuted(f"design {int(np.argmin(legal))}: its plan is not legal")
    result = space.coordinates({name: asarray(designs[name]) for name in problem.variables})
    count = len(values)
    u = np.stack([np.zeros(count), *(np.clip(np.asarray(result[name]), 0.0, 1.0) for name in problem.variables)], -1)[
        :, 1:
    ]
    plan = np.stack([np.zeros(count), *(designs[name] for name in space.plan)], axis=-1)[:, 1:]
    exact = model.exact(plan, u)
    broken = exact.rows[:, 1 : 1 + len(model.constraints)].max(axis=1, initial=-np.inf)
    if not feasible_logs(broken.max(initial=-np.inf)) or not np.isfinite(exact.rows[:, 0]).all():
        raise Refuted(f"design {int(np.argmax(broken))} breaks a constraint by {broken.max():.3g}")
    columns = [0, *(model.names.index(name) for name in model.levelled)]
    signs = np.array([problem.sign, *problem.levelled.values()])
    apart = np.abs(exact.rows[:, columns] - signs * np.log(values))
    if apart.max(initial=0.0) > PRICED:
        lane, k = np.unravel_index(int(apart.argmax()), apart.shape)
        value, name = float(np.exp(signs[k] * exact.rows[lane, columns[k]])), (problem.goal, *problem.levelled)[k]
        raise Refuted(f"design {lane}: {name} is {value:.9g}, claimed is {values[lane, k]:.9g}")
    return sample(plan, list(problem.lists.values())), u


def _attacker(front: Front, problem: VerifiedProblem, model: CheckedModel, certificate: Derivation) -> Attack:
    """Against all statements; designs are kept and polished for some of them, spread over the front."""
    lists, strongest = list(problem.lists.values()), front.statements.strongest()
    columns = [0, *(model.names.index(name) for name in model.levelled)]
    left = envelope(strongest, np.zeros((0, len(columns))))

    def below(rows: np.ndarray) -> np.ndarray:
        values, result = rows[:, columns], np.full(len(rows), -np.inf)
        some = left.impossible(values)  # few or none: the others need not be compared with every statement
        result[some] = strongest.broken(values[some])
        return result

    about = strongest.some(np.flatnonzero((strongest.metric == 0) & np.isfinite(strongest.level).any(axis=1)))
    order = np.argsort(about.level[:, 1], kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, AIMS).astype(int))] if len(order) else order
    held = np.zeros(len(model.constraints))
    aims = [AttackTarget(0, EXTREME, np.concatenate([held, level])) for level in about.level[chosen, 1:]]
    return Attack(
        model, lists, listed_plans(problem), certificate.low, certificate.high, below, [*aims_of(model), *aims],
    )  # fmt: skip
