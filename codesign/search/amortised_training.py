"""How the networks of `amortised` are trained: backpropagation through the model, no labels.

Each step draws studies of the family, asks the network for relaxed designs, prices them by the model with its maxima
read as p-norms, and follows the slopes of log goal + penalties. Slopes by degrees and hardware come from the model
itself (forward mode, a direction each) and go on through the network in reverse; categories are drawn from their
probabilities and pushed by the score function, each draw against the mean of the others (leave-one-out).
"""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from ..compiling import quick_jit
from ..fields import get_path, replace
from ..metrics import evaluate
from ..scenario import Scenario
from ..smooth import at_least, reading_with_sharpness
from .amortised_guesser import Guesser, Shape
from .amortised_network import Network
from .base import Problem

DRAWS = 4  # of the categories, for each study of a step
SHARPNESS, PENALTY = (6.0, 60.0), (0.5, 8.0)


@dataclass(frozen=True)
class Family:
    """Studies that one network answers.

    Args:
        name: of the file of weights.
        overrides: the study that the others vary.
        shapes: path -> value, one mapping for each shape of model.
        choices: path -> values of workload and cluster, drawn independently.
        factors: path -> largest factor by which a price or constant is changed, up or down, drawn log-uniform.
        budgets: limit -> (least, most), of a device where `per_device`.
    """

    name: str
    overrides: tuple[str, ...]
    shapes: tuple[dict[str, float], ...]
    choices: dict[str, tuple[float, ...]]
    factors: dict[str, float]
    budgets: dict[str, tuple[float, float, bool]]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Paths whose values are features."""
        return (*self.shapes[0], *self.choices, *self.factors)

    def draw(self, problem: Problem, rng: np.random.Generator, count: int) -> np.ndarray:
        """[count, inputs + limits] values of random studies."""
        nominal = {path: float(get_path(problem.scenario, path)) for path in self.factors}
        rows = []
        for _ in range(count):
            row = dict(self.shapes[rng.integers(len(self.shapes))])
            row |= {path: float(rng.choice(values)) for path, values in self.choices.items()}
            row |= {p: nominal[p] * float(np.exp(rng.uniform(-1, 1) * np.log(f))) for p, f in self.factors.items()}
            devices = row.get("cluster.device_count", float(problem.scenario.cluster.device_count))
            for name in sorted(self.budgets):
                low, high, each = self.budgets[name]
                row[name] = float(np.exp(rng.uniform(np.log(low), np.log(high)))) * (devices if each else 1.0)
            rows.append([row[key] for key in (*self.inputs, *sorted(self.budgets))])
        return np.array(rows)

    def problem(self, base: Problem, row: np.ndarray) -> Problem:
        """The study of one drawn row."""
        count = len(self.inputs)
        scenario = replace(base.scenario, dict(zip(self.inputs, map(float, row[:count]), strict=True)))
        limits = dict(zip(sorted(self.budgets), map(float, row[count:]), strict=True))
        return dataclasses.replace(
            base, scenario=scenario, objective=dataclasses.replace(base.objective, limits=limits)
        )


def _shape(hidden: float, layers: float, heads: float) -> dict[str, float]:
    model = "workload.model"
    return {
        f"{model}.hidden": hidden, f"{model}.layers": layers, f"{model}.attention.heads": heads,
        f"{model}.attention.kv_heads": heads, f"{model}.attention.head_dim": hidden / heads,
        f"{model}.feed_forward.width": 4 * hidden,
    }  # fmt: skip


def _gated(hidden: float, layers: float, heads: float, width: float) -> dict[str, float]:
    return _shape(hidden, layers, heads) | {
        "workload.model.attention.kv_heads": 8.0, "workload.model.feed_forward.width": width
    }  # fmt: skip


UP, OUT = "cluster.network.scale_up.fabric", "cluster.network.scale_out.fabric"
PRICES = {
    "cluster.accelerator.price_usd": 1.4, "cluster.accelerator.hbm.usd_per_byte": 1.6,
    "cluster.host.memory.usd_per_byte": 1.6, f"{UP}.usd_per_bytes_per_s": 1.6, f"{OUT}.usd_per_bytes_per_s": 1.6,
    "cluster.facility.usd_per_j": 1.6,
}  # fmt: skip
TRAINING = Family(
    "training",
    ("experiment=train_gpt3_175b",),
    tuple(
        _shape(128.0 * heads, layers, heads)
        for heads, least in ((32, 32), (48, 32), (64, 48), (80, 48), (96, 64), (128, 80), (160, 96))
        for layers in (32, 40, 48, 64, 80, 96, 128)
        if least <= layers <= 2.5 * least
    ),
    {
        "workload.sequence": (2048.0, 4096.0), "workload.global_batch": (1024.0, 1536.0, 2048.0, 3072.0),
        "cluster.device_count": (512.0, 1024.0, 2048.0, 4096.0),
    },
    PRICES,
    {"capex_usd": (46e3, 70e3, True), "provisioned_power_w": (1200.0, 1700.0, True)},
)  # fmt: skip
SERVING = Family(
    "serving",
    ("experiment=serve_llama31_405b",),
    tuple(
        _gated(*shape)
        for shape in (
            (8192.0, 80.0, 64.0, 28672.0), (8192.0, 64.0, 64.0, 28672.0), (12288.0, 96.0, 96.0, 40960.0),
            (12288.0, 80.0, 96.0, 36864.0), (16384.0, 126.0, 128.0, 53248.0), (16384.0, 96.0, 128.0, 53248.0),
        )
    ),
    {
        "workload.input_tokens": (512.0, 1024.0, 2048.0, 4096.0), "workload.output_tokens": (256.0, 512.0, 1024.0),
        "cluster.device_count": (32.0, 64.0, 128.0),
    },
    PRICES,
    {
        "capex_usd": (46e3, 75e3, True), "provisioned_power_w": (1250.0, 1900.0, True), "ttft_s": (4.0, 30.0, False),
        "tpot_s": (0.03, 0.12, False),
    },
)  # fmt: skip
FAMILIES = {family.name: family for family in (TRAINING, SERVING)}


def losses(family: Family, base: Problem, shape: Shape) -> Callable[..., Any]:
    """(scenario, row, degrees and hardware, categories, sharpness, weight) -> loss of one relaxed design."""
    limits, inputs, n = sorted(family.budgets), family.inputs, len(shape.degrees)
    priced = reading_with_sharpness(lambda scenario: evaluate(scenario))

    def loss(scenario: Scenario, row: Array, y: Array, categories: Array, sharpness: Array, weight: Array) -> Array:
        tree = replace(scenario, {path: row[i] for i, path in enumerate(inputs)})
        plan = dict(zip(shape.degrees, jnp.exp(y[:n]), strict=True)) | dict(
            zip(shape.categories, categories, strict=True)
        )
        values = base.space.values({name: y[n + i] for i, name in enumerate(shape.hardware)})
        placed = base.space.place(tree, plan | values)
        metrics, layout = priced(sharpness, placed), placed.layout
        over = [jnp.log(at_least(share, 1e-9)) for share in metrics.usage.values()]
        over += [jnp.log(metrics.get(name) / row[len(inputs) + i]) for i, name in enumerate(limits)]
        over += [-jnp.log(layout.dp)]  # at least one replica, and a micro-batch for each
        if hasattr(tree.workload, "global_batch"):
            over += [jnp.log(layout.dp * layout.plan.micro_batch / tree.workload.global_batch)]
        goal = (1.0 if base.objective.minimise else -1.0) * jnp.log(metrics.get(base.objective.goal))
        return goal + weight * sum(at_least(term + 0.01, 0.0) for term in over)

    return loss


def train(
    family: Family, base: Problem, seed: int = 0, steps: int = 2000, batch: int = 96, rate: float = 2e-3,
    note: Callable[[int, float], None] = lambda step, loss: None,
) -> Guesser:  # fmt: skip
    """A network for the family, its recipe in `facts`.

    Args:
        family: what to draw.
        base: the study that the others vary.
        seed: of weights and draws.
        steps, batch, rate: of Adam, studies a step, first learning rate (cosine).
        note: told the mean loss now and then.
    """
    began, rng, shape = time.perf_counter(), np.random.default_rng(seed), Shape.of(base.space)
    spread = np.log(family.draw(base, rng, 4096))
    scale = np.stack([spread.mean(axis=0), np.maximum(spread.std(axis=0), 1e-3)])
    network = Network(shape.outputs)
    parameters = network.init(jax.random.key(seed), jnp.zeros(spread.shape[1]))
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(rate, steps, 0.02)))
    state = optimiser.init(parameters)
    step = quick_jit(_step(family, base, shape, network, optimiser, scale))
    for index in range(steps):
        rows, progress = jnp.asarray(family.draw(base, rng, batch)), index / steps
        sharpness, weight = (a * (b / a) ** progress for a, b in (SHARPNESS, PENALTY))
        key = jax.random.key(int(rng.integers(2**31)))
        parameters, state, mean = step(parameters, state, base.scenario, rows, key, sharpness, weight)
        if index % 100 == 0 or index == steps - 1:
            note(index, float(mean))
    facts = {
        "kind": "fitted", "goal": base.objective.goal, "seed": seed, "steps": steps, "batch": batch, "rate": rate,
        "recipe": f"codesign train-amortised {family.name}", "overrides": list(family.overrides),
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip
    limits = tuple(sorted(family.budgets))
    return Guesser(family.name, shape, family.inputs, limits, scale, jax.device_get(parameters), facts)


def _step(
    family: Family, base: Problem, shape: Shape, network: Network, optimiser: optax.GradientTransformation,
    scale: np.ndarray,
) -> Callable[..., Any]:  # fmt: skip
    loss = losses(family, base, shape)
    levels = [jnp.array(values) for values in shape.categories.values()]

    def sloped(scenario: Scenario, row: Array, y: Array, categories: Array, sharpness: Array, weight: Array) -> Any:
        def twice(y: Array) -> tuple[Array, Array]:
            value = loss(scenario, row, y, categories, sharpness, weight)
            return value, value

        return jax.jacfwd(twice, has_aux=True)(y)

    priced = jax.vmap(jax.vmap(sloped, in_axes=(None, None, None, 0, None, None)), in_axes=(None, 0, 0, 0, None, None))

    def step(parameters: Any, state: Any, scenario: Scenario, rows: Array, key: Array, sharpness: Array, weight: Array):
        features = (jnp.log(rows) - scale[0]) / scale[1]
        degrees, logits, u = shape.split(network.apply(parameters, features))
        y = jnp.concatenate([degrees, u], axis=-1)
        keys = jax.random.split(key, max(len(levels), 1))
        drawn = [
            jax.random.categorical(k, jnp.broadcast_to(each[:, None], (len(rows), DRAWS, each.shape[-1])))
            for k, each in zip(keys, logits.values(), strict=False)
        ]
        categories = jnp.stack([v[d] for v, d in zip(levels, drawn, strict=True)], axis=-1) if levels else (
            jnp.zeros((len(rows), DRAWS, 0))
        )  # fmt: skip
        slopes, values = priced(scenario, rows, y, categories, sharpness, weight)
        known = jnp.isfinite(values) & jnp.isfinite(slopes).all(axis=-1)
        mean = jnp.where(known, values, 0.0).mean()
        values = jnp.where(known, jnp.clip(values - values.min(axis=1, keepdims=True), 0.0, 20.0), 20.0)
        slopes = jnp.where(known[..., None], slopes, 0.0).mean(axis=1)
        advantage = (values - (values.sum(axis=1, keepdims=True) - values) / (DRAWS - 1)) * DRAWS / (DRAWS - 1)

        def surrogate(parameters: Any) -> Array:
            degrees, logits, u = shape.split(network.apply(parameters, features))
            total = (jnp.concatenate([degrees, u], axis=-1) * slopes).sum(axis=-1).mean()
            for each, chosen in zip(logits.values(), drawn, strict=True):
                logs = jax.nn.log_softmax(each)
                picked = jnp.take_along_axis(logs[:, None], chosen[..., None], axis=-1)[..., 0]
                entropy = -(jnp.exp(logs) * logs).sum(axis=-1).mean()
                total += (picked * advantage).mean() - 0.01 * entropy
            return total

        gradient = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0.0), jax.grad(surrogate)(parameters))
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(parameters, updates), state, mean

    return step
