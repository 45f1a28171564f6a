"""The whole check of a front: its designs, the statements behind them, what follows from these, and an attack."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..core.jax_typed import asarray
from ..study.objective import feasible_logs
from .attack import EXTREME, Aim, Attack, aims_of, sample
from .attacked import Answer, AttackEffort, Told, alike, answered, attacked, quiet
from .coverage import cover, covered_by
from .curvature_of_rows import check_structure
from .derivation import Derivation, Refuted, derivation_of
from .directions import check_directions
from .envelope import check_corners, envelope
from .front_claims import SAME, Front, check_points, front_of
from .inequality import derive
from .model_answers import Asked, CheckedModel
from .whole_check import VALUE as PRICED
from .whole_check import described, listed_plans

AIMS = 16  # statements, spread over the front, that designs are searched against


def verify_front(
    asked: Asked,
    header: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, np.ndarray]],
    attack: int | AttackEffort,
    seed: int,
    told: Told = quiet,
    model: CheckedModel | None = None,
) -> Answer:
    """Check all that is claimed of a front.

    Args:
        asked: the study; its goal is the front's first metric, `levelled` are the others.
        header, tables: the certificate as it was left.
        attack: designs to try.
        seed: of these.
        told: hears stage, done and total.
        model: that of the study, where it is traced already.
    """

    def check(answer: Answer) -> None:
        front, certificate = front_of(header, tables), derivation_of(header, tables)
        _verify(answer, asked, front, certificate, model or CheckedModel(asked), attack, seed, told)

    return answered(check)


def _verify(
    answer: Answer,
    asked: Asked,
    front: Front,
    certificate: Derivation,
    model: CheckedModel,
    attack: int | AttackEffort,
    seed: int,
    told: Told,
) -> None:
    rng, checks = np.random.default_rng(seed), answer.checks
    if (front.metrics, front.signs) != ((asked.goal, *asked.levelled), (asked.sign, *asked.levelled.values())):
        raise Refuted(f"the certificate is of a front of {', '.join(front.metrics)}, the study asks for another")
    checks.append(check_points(front))
    place, u = _check_designs(front.designs, front.values, asked, model)
    checks.append(f"all {len(place)} designs are legal and feasible, with the values that are claimed")
    told("covering the space", 0, 1)
    covered = cover(certificate, asked, model)
    asked.legal.check(rng)
    told("curvature", 0, 1)
    proven, text = check_structure(certificate, model)
    checks.append(text)
    sums = derive(certificate, model, lambda done, total: told("bounds anew", done, total))
    columns = [0, *(model.names.index(name) for name in model.levelled)]
    reached = (front.statements.reached(one, sums, columns) for one in range(len(front.statements)))
    for one, missing in enumerate(covered_by(certificate, asked, model, reached)):
        told("statements", one, len(front.statements))
        if missing:
            said = front.statements.words(one, front.metrics, front.signs)
            raise Refuted(f"statement {one}, {said}: {missing}")
    checks.append(
        f"{len(front.statements)} statements derived anew for {covered.text} from"
        f" {len(certificate.node):,} weighted tangents at {len(certificate.u):,} points"
    )
    checks.append(check_corners(front))
    directions = check_directions(certificate, model, rng, proven, lambda done, total: told("directions", done, total))
    checks.extend([directions.text] * bool(directions.text))
    tried = _attacker(front, asked, model, certificate)
    tried = dataclasses.replace(tried, start=(place, u), certificate=certificate, sums=sums, covered=covered)
    alike(tried.compare(rng))
    lanes = attacked(tried, attack, rng, told)
    tried.refuse(
        lambda at, there: described(asked, tried.lists, at, there), "a statement of the front says it cannot be"
    )
    checks.append(
        f"attack: {tried.tried:,} designs, {tried.feasible:,} feasible, {lanes} polished, none beyond a statement;"
        f" the inequality of its node held at {tried.held:,} of them"
    )
    answer.numbers |= {"nodes": len(certificate.low), "cuts": len(certificate.node), "plans": covered.plans}
    answer.numbers |= {"every_plan": covered.exact, "distinct_plans": covered.distinct}
    answer.numbers |= {"statements": len(front.statements), "designs": len(place), "tried": tried.tried}
    answer.numbers |= {"feasible": tried.feasible, "polished": lanes, "held": tried.held}
    answer.line = (
        f"verified: at the levels of each of the {len(place)} designs of the front no design has a {front.metrics[0]}"
        f" better by more than {front.worst:.3%}"
    )


def verify_unproven(asked: Asked, designs: Mapping[str, np.ndarray], values: np.ndarray) -> Answer:
    """Verify a front that nothing is proven of: its designs, with the values [designs, metrics] that are shown."""

    def check(answer: Answer) -> None:
        place, _ = _check_designs(designs, values, asked, CheckedModel(asked))
        answer.line = (
            f"nothing claimed to verify: the search proves nothing; its {len(place)} designs are feasible and have the"
            " values that are shown"
        )

    return answered(check)


def _check_designs(
    designs: Mapping[str, np.ndarray], values: Float[np.ndarray, "designs metrics"], asked: Asked, model: CheckedModel
) -> tuple[Int[np.ndarray, "designs fields"], Float[np.ndarray, "designs variables"]]:
    """Places and coordinates of all designs, which are listed, legal, inside the box, feasible and as good as claimed.

    Raises:
        Refuted: naming the first that is not.
    """
    space = asked.space
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
    legal = np.broadcast_to(asked.legal.keeps({name: designs[name] for name in space.plan}), len(values))
    if not np.all(legal):
        raise Refuted(f"design {int(np.argmin(legal))}: its plan is not legal")
    result = space.coordinates({name: asarray(designs[name]) for name in asked.variables})
    count = len(values)
    u = np.stack([np.zeros(count), *(np.clip(np.asarray(result[name]), 0.0, 1.0) for name in asked.variables)], -1)[
        :, 1:
    ]
    plan = np.stack([np.zeros(count), *(designs[name] for name in space.plan)], axis=-1)[:, 1:]
    exact = model.exact(plan, u)
    broken = exact.rows[:, 1 : 1 + len(model.constraints)].max(axis=1, initial=-np.inf)
    if not feasible_logs(broken.max(initial=-np.inf)) or not np.isfinite(exact.rows[:, 0]).all():
        raise Refuted(f"design {int(np.argmax(broken))} breaks a constraint by {broken.max():.3g}")
    columns = [0, *(model.names.index(name) for name in model.levelled)]
    signs = np.array([asked.sign, *asked.levelled.values()])
    apart = np.abs(exact.rows[:, columns] - signs * np.log(values))
    if apart.max(initial=0.0) > PRICED:
        lane, k = np.unravel_index(int(apart.argmax()), apart.shape)
        value, name = float(np.exp(signs[k] * exact.rows[lane, columns[k]])), (asked.goal, *asked.levelled)[k]
        raise Refuted(f"design {lane}: {name} is {value:.9g}, claimed is {values[lane, k]:.9g}")
    return sample(plan, list(asked.lists.values())), u


def _attacker(front: Front, asked: Asked, model: CheckedModel, certificate: Derivation) -> Attack:
    """Against all statements; designs are kept and polished for some of them, spread over the front."""
    lists, strongest = list(asked.lists.values()), front.statements.strongest()
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
    aims = [Aim(0, EXTREME, np.concatenate([held, level])) for level in about.level[chosen, 1:]]
    return Attack(
        model, lists, listed_plans(asked), certificate.low, certificate.high, below, [*aims_of(model), *aims],
    )  # fmt: skip
