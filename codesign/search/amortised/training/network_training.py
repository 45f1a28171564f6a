"""Training of the networks of `amortised`: backpropagation through the model, no labels.

Each step draws studies of the family, and for each the plans that the network scores highest (with noise, so that all
come up), which the model prices, each at the hardware that the network proposes for it: log goal + dear violations.

    hardware   follows the model's slopes (forward mode, a direction each) at the best of those plans, on through the
               network in reverse
    scores     learn to rank the plans as the model does
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Array

from ....core.fields import replace
from ....core.jax_typed import asarray, einsum, grad, jacfwd, jit, zeros
from ....core.smooth import WeightedMaximum, at_least, reading
from ....jaxprs.evaluator import quick_jit
from ....model.metrics import evaluate
from ....model.scenario import Scenario
from ...base import Problem
from ...branch_and_bound.oracle import GOAL, rows_of
from ...descent.gradient import annealed
from ..guesser import NetworkShape, TrainedPredictor
from ..network import Network
from .families import StudyFamily

PLANS, SLOPED = 32, 8  # priced for each study of a step; of these, followed
PRICE = 3.0  # of a unit of log-violation
SHARPNESS = (10.0, 100.0)  # of slopes at kinks, from the first step to the last
RANKING = (0.2, 0.02)  # log of the goal by which a plan must be worse to count e times less, likewise
NOISE = (0.7, 4.0)  # of scores when plans are picked, drawn for each study


def losses(family: StudyFamily, base: Problem, shape: NetworkShape) -> Callable[..., Array]:
    """(scenario, row of a study, plan, coordinates) -> log goal + dear violations; inf where a rule is broken."""
    limits, inputs, rows = sorted(family.budgets), family.inputs, rows_of(base)

    def loss(scenario: Scenario, row: Array, plan: Array, u: Array) -> Array:
        tree = replace(scenario, {path: row[i] for i, path in enumerate(inputs)})
        values = base.space.values({name: u[i] for i, name in enumerate(shape.hardware)})
        metrics = evaluate(base.space.place(tree, dict(zip(shape.fields, plan, strict=True)) | values))
        result = rows(metrics, values)
        moved = {name: jnp.log(row[len(inputs) + i] / base.objective.limits[name]) for i, name in enumerate(limits)}
        over = sum(at_least(result[name] - moved.get(name, 0.0), 0.0) for name in result if name != GOAL)
        broken = jnp.max(jnp.stack([*map(asarray, metrics.violations.values()), asarray(0.0)]))
        return jnp.where(broken > 0, jnp.inf, result[GOAL] + PRICE * over)

    return loss


def train(
    family: StudyFamily, base: Problem, seed: int = 0, steps: int = 4000, batch: int = 64, rate: float = 2e-3,
    note: Callable[[int, float], None] = lambda step, loss: None,
) -> TrainedPredictor:  # fmt: skip
    """A network for the family, its recipe in `facts`.

    Args:
        family: what to draw.
        base: the study that the others vary.
        seed: of weights and draws.
        steps, batch, rate: of Adam, studies a step, first learning rate (cosine).
        note: told the mean loss now and then: log of the goal with violations, of the best plan.
    """
    began, rng, shape = time.perf_counter(), np.random.default_rng(seed), NetworkShape.of(base.space)
    centre, whiten = _whitening(np.log(family.draw(base, rng, 4096)))
    network: Any = Network(shape.outputs)
    parameters = network.init(jax.random.key(seed), zeros(whiten.shape[1]))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(rate, steps, 0.01)))
    state, plans = optimizer.init(parameters), min(PLANS, len(shape.table))

    def scored(parameters: Any, features: Any) -> Any:
        return shape.split(network.apply(parameters, features))[0]

    ask = jit(scored)
    step = quick_jit(_step(family, base, shape, network, optimizer))
    quiet, loud = (float(np.log(edge)) for edge in NOISE)
    noise = rng.gumbel(size=2 * len(shape.table)).astype(np.float32)
    for index in range(steps):
        rows, progress = family.draw(base, rng, batch), index / steps
        features = asarray((np.log(rows) - centre) @ whiten, dtype=jnp.float32)
        scores = shape.scores(np.asarray(ask(parameters, features)))
        for row, first in zip(scores, rng.integers(len(shape.table), size=batch), strict=True):
            row += float(np.exp(rng.uniform(quiet, loud))) * noise[first : first + len(row)]
        picked = np.argpartition(scores, -plans, axis=1)[:, -plans:]
        table = shape.table[picked]
        has = shape.has(table.reshape(-1, table.shape[-1])).reshape(batch, plans, -1)
        now = [annealed(pair, progress) for pair in (SHARPNESS, RANKING)]
        parameters, state, mean = step(parameters, state, base.scenario, features, rows, table, has, *now)
        if index % 100 == 0 or index == steps - 1:
            note(index, float(mean))
    facts = {
        "kind": "fitted", "goal": base.objective.goal, "seed": seed, "steps": steps, "batch": batch, "rate": rate,
        "recipe": f"codesign train-amortised {family.name}", "overrides": list(family.overrides),
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip
    limits = tuple(sorted(family.budgets))
    return TrainedPredictor(
        family.name, shape, family.inputs, limits, centre, whiten, jax.device_get(parameters), facts
    )


def _whitening(logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre, and the matrix that makes logs uncorrelated: a budget of a device shows beside one of thousands."""
    centre = logs.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov((logs - centre).T))
    significant = values > 1e-8 * values[-1]
    return centre, vectors[:, significant] / np.sqrt(values[significant])


def _finite(slopes: Array) -> Array:
    return jnp.where(jnp.isfinite(slopes), slopes, 0.0)


def _step(family: StudyFamily, base: Problem, shape: NetworkShape, network: Any, optimizer: Any) -> Callable[..., Any]:
    loss = losses(family, base, shape)
    priced = jax.vmap(jax.vmap(loss, in_axes=(None, None, 0, 0)), in_axes=(None, 0, 0, 0))

    def slope(scenario: Scenario, row: Array, plan: Array, u: Array, sharpness: Array) -> Array:
        def at(u: Array) -> Array:
            return reading(WeightedMaximum(sharpness), loss)(scenario, row, plan, u)

        return jacfwd(at)(u)

    sloped = jax.vmap(jax.vmap(slope, in_axes=(None, None, 0, 0, None)), in_axes=(None, 0, 0, 0, None))

    def step(parameters: Any, state: Any, scenario: Scenario, features: Any, rows: Any, table: Any, has: Any,
             sharpness: Any, ranking: Any):  # fmt: skip
        u = jnp.clip(shape.suits(shape.split(network.apply(parameters, features))[1], has), 0.0, 1.0)
        values = priced(scenario, rows, table, u)  # [studies, plans]
        values = jnp.where(jnp.isfinite(values), values, 1e3)
        best = jnp.argsort(values, axis=1)[:, :SLOPED, None]
        followed, at = (jnp.take_along_axis(part, best, axis=1) for part in (table, u))
        slopes = sloped(scenario, rows, followed, at, sharpness)
        slopes = jnp.clip(jnp.where(jnp.isfinite(slopes), slopes, 0.0), -10.0, 10.0)
        slopes = slopes * (jnp.take_along_axis(values, best[..., 0], axis=1) < 1e3)[..., None]
        wanted = jax.nn.softmax(-values / ranking, axis=-1)

        def surrogate(parameters: Any) -> Array:
            pairs, logits = shape.split(network.apply(parameters, features))
            u = shape.suits(logits, jnp.take_along_axis(has, best, axis=1))
            scores = einsum("bci,bij,bcj->bc", has, pairs, has)
            ranked = -(wanted * jax.nn.log_softmax(scores, axis=-1)).sum(axis=-1)
            return (u * slopes).sum(axis=-1).mean() + 0.1 * ranked.mean()

        gradient = jax.tree.map(_finite, grad(surrogate)(parameters))
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(parameters, updates), state, values.min(axis=1).mean()

    return step
