"""Networks of `hardware.residual` trained on measured kernels: what the fitted constants of a class leave over.

One network a class of kernels, for all accelerators, frameworks and number formats together. The physics stay as they
were fitted; the network learns log(measured / physics) of whole rows, so that of rows of several launches each has its
own factor. Accelerators are dropped at random while it learns: what is left serves those that nobody measured.

Source: [loshchilov2019] for the optimizer; loss, sizes and steps are assumed, chosen on rows held out.
"""

import dataclasses
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from ...model.hardware.residual import (
    BOUND,
    EDITION,
    FARTHEST,
    LAYERS,
    FitContext,
    ShapeNetwork,
    applied,
    features,
    learnt,
    logistic_unit,
    network_of,
)
from .constants import Node, build, inherited, node
from .fit import NOISY_S, NOISY_WEIGHT, SCALE, described_array, fit, in_buckets, launch_seconds, rows_of, score, work_of
from .gpus import accelerators, stand_ins
from .kernels import TableGroup

HIDDEN, STEPS, BATCH, RATE, DECAY = 64, 6000, 1024, 3e-3, 0.1
WIDER = {"moe_gemm": 96}  # class -> its hidden layers: routing and two products are more to tell
DROPPED = 0.1  # share of rows whose accelerator is not told
AVERAGED = 0.998  # of the weights so far, in each step: their mean over the last five hundred is kept
FEWEST = 400  # rows of a class below which nothing is learned
HELD_OUT = 0.3
LEARNED = ("gemm", "attention_prefill", "attention_decode", "mla_prefill", "mla_decode", "moe_gemm")
"""Classes whose launches say their shapes; those of element-wise kernels are bytes alone."""


class FactorModel(nn.Module):
    """Log of the factor from scaled features and places in the lists of names."""

    sizes: tuple[int, ...]
    hidden: int = HIDDEN

    @nn.compact
    def __call__(self, scaled: jax.Array, places: jax.Array) -> jax.Array:
        """Apply the network to rows [rows, launches, features] with places [rows, 3]."""
        start = nn.initializers.normal(0.1)
        context = jnp.zeros(self.hidden)
        for number, size in enumerate(self.sizes):
            embed = nn.Embed(size, self.hidden, embedding_init=start, name=f"embedding_{number}")
            context = context + embed(places[:, number])
        hidden = nn.Dense(self.hidden, name="layer_0")(scaled) + context[:, None]
        for number in range(1, LAYERS):
            last = number == LAYERS - 1
            init = nn.initializers.normal(0.01 / np.sqrt(self.hidden)) if last else nn.initializers.lecun_normal()
            hidden = nn.Dense(1 if last else self.hidden, name=f"layer_{number}", kernel_init=init)(
                logistic_unit(hidden)
            )
        return BOUND * jnp.tanh(hidden[..., 0])


class Launches(NamedTuple):
    """Launches of one class: features [n, launches, features], places [n, 3], seconds of the physics [n, launches]."""

    features: np.ndarray
    places: np.ndarray
    physics_s: np.ndarray
    measured_s: np.ndarray
    owner: np.ndarray  # number of the group of each row

    def some(self, chosen: np.ndarray) -> "Launches":
        """Only these."""
        return Launches(*(column[chosen] for column in self))


def label_of(group: TableGroup) -> FitContext:
    """Label of a group's constants."""
    return FitContext(group.table.name, group.device.accelerator, group.framework, group.number_format)


def launches_of(groups: Sequence[TableGroup], kernels: Sequence[Any]) -> Launches:
    """All rows of the groups of one class, with the physics of each launch."""
    names = names_of(groups)
    parts = []
    for number, (group, kernel) in enumerate(zip(groups, kernels, strict=True)):
        count = len(group.measured_s)
        described = np.asarray(features(work_of(np.moveaxis(described_array(group), -1, 0)), kernel.chip))
        rows = [words.index(word) + 1 for words, word in zip(names, label_of(group)[1:], strict=True)]
        parts.append(
            Launches(
                described,
                np.tile(rows, (count, 1)),
                launch_seconds(kernel, group),
                group.measured_s,
                np.full(count, number),
            )
        )
    return Launches(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def names_of(groups: Sequence[TableGroup]) -> tuple[tuple[str, ...], ...]:
    """Accelerators, frameworks and number formats, each in alphabetical order."""
    return tuple(tuple(sorted(set(words))) for words in zip(*(label_of(group)[1:] for group in groups), strict=True))


def train(
    rows: Launches, names: tuple[tuple[str, ...], ...], seed: int = 0, steps: int = STEPS, hidden: int = HIDDEN
) -> ShapeNetwork:
    """The network of one class, its hidden layers so wide."""
    mean = rows.features.mean(axis=(0, 1))
    spread = rows.features.std(axis=(0, 1)) + 1e-3
    scaled = np.clip((rows.features - mean) / spread, -FARTHEST, FARTHEST).astype(np.float32)
    model = FactorModel(tuple(len(words) + 1 for words in names), hidden)
    key, first = jax.random.split(jax.random.PRNGKey(seed))
    weights = model.init(first, jnp.asarray(scaled[:1]), jnp.asarray(rows.places[:1]))
    rule = optax.adamw(optax.cosine_decay_schedule(RATE, steps), weight_decay=DECAY)
    physics, measured = rows.physics_s.astype(np.float32), rows.measured_s.astype(np.float32)

    def loss(weights: Any, chosen: jax.Array, key: jax.Array) -> jax.Array:
        untold = jax.random.bernoulli(key, DROPPED, chosen.shape)
        places = jnp.asarray(rows.places)[chosen]
        places = places.at[:, 0].set(jnp.where(untold, 0, places[:, 0]))
        factors = jnp.exp(model.apply(weights, jnp.asarray(scaled)[chosen], places))
        seconds = jnp.asarray(measured)[chosen]
        missed = jnp.log((factors * jnp.asarray(physics)[chosen]).sum(axis=1) / seconds)
        weight = jnp.where(seconds > NOISY_S, 1.0, NOISY_WEIGHT)
        return SCALE * (weight * (jnp.sqrt(1 + (missed / SCALE) ** 2) - 1)).mean()

    @jax.jit
    def step(state: Any, _: Any) -> Any:
        weights, average, memory, key = state
        key, for_rows, for_drop = jax.random.split(key, 3)
        chosen = jax.random.randint(for_rows, (min(BATCH, len(measured)),), 0, len(measured))
        updates, memory = rule.update(jax.grad(loss)(weights, chosen, for_drop), memory, weights)
        weights = optax.apply_updates(weights, updates)
        average = jax.tree.map(lambda old, new: AVERAGED * old + (1 - AVERAGED) * new, average, weights)
        return (weights, average, memory, key), None

    (_, average, _, _), _ = jax.lax.scan(step, (weights, weights, rule.init(weights), key), length=steps)
    result = jax.tree.map(np.asarray, average)["params"]
    layers = [result[f"layer_{i}"] for i in range(LAYERS)]
    return ShapeNetwork(
        tuple(layer["kernel"] for layer in layers), tuple(layer["bias"] for layer in layers), mean, spread, names,
        tuple(result[f"embedding_{i}"]["embedding"] for i in range(len(names))),
    )  # fmt: skip


def corrected(
    rows: Launches, groups: Sequence[TableGroup], kernels: Sequence[Any], network: ShapeNetwork
) -> np.ndarray:
    """Seconds of rows, each launch with its factor."""
    result = np.empty(len(rows.measured_s))
    for number, (group, kernel) in enumerate(zip(groups, kernels, strict=True)):
        mine = rows.owner == number
        result[mine] = (factors(kernel, group, lambda _: network) * rows.physics_s[mine]).sum(axis=1)
    return result


_applied = eqx.filter_jit(applied)


def factors(kernel: Any, group: TableGroup, find: Callable[[str], ShapeNetwork | None]) -> np.ndarray:
    """Learned factor of every launch of every row [rows, launches]."""
    work, learned = described_array(group), learnt(kernel, find)
    if learned is None:
        return np.ones(work.shape[:2])
    chip, context = dataclasses.replace(learned.chip, label=""), jnp.asarray(learned.context)
    result = [
        np.asarray(_applied(learned.network, context, work_of(jnp.asarray(piece).T), chip))[:count]
        for piece, count in in_buckets(work.reshape(-1, work.shape[-1]))
    ]
    return np.concatenate(result).reshape(work.shape[:2])


class KernelSeconds(NamedTuple):
    """Seconds of every row: by the formulas alone, and with the learned factors that come with the package."""

    physics: np.ndarray
    learned: np.ndarray


def predicted(kernel: Any, group: TableGroup) -> KernelSeconds:
    """Seconds of every row by a kernel model."""
    apart = launch_seconds(kernel, group)
    return KernelSeconds(apart.sum(axis=1), (factors(kernel, group, network_of) * apart).sum(axis=1))


def as_bytes(network: ShapeNetwork) -> bytes:
    """The content of its file: arrays alone, the same for the same network."""
    arrays = {f"weight_{i}": part for i, part in enumerate(network.weights)}
    arrays |= {f"bias_{i}": part for i, part in enumerate(network.biases)}
    arrays |= {f"embedding_{i}": part for i, part in enumerate(network.embeddings)}
    arrays |= {f"names_{i}": np.asarray(words) for i, words in enumerate(network.names)}
    arrays |= {"mean": network.mean, "spread": network.spread, "edition": np.asarray(EDITION)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


class Learned(NamedTuple):
    """Networks that a calibration leaves: content of each file, and a row of the card a class and stratum."""

    files: dict[str, bytes]
    card: list[dict[str, object]]


def learn(
    groups: Sequence[TableGroup], fitted: Mapping[tuple[str, str, str, str], Node], progress: Callable[[str], None]
) -> Learned:
    """Networks of every class that was measured often enough, on top of fitted constants."""
    together: dict[str, list[TableGroup]] = defaultdict(list)
    for group in groups:
        if group.table.name in LEARNED:
            together[group.table.name].append(group)
    learned = Learned({}, [])
    for kind, members in sorted(together.items()):
        count = sum(len(group.measured_s) for group in members)
        if count < FEWEST:
            progress(f"{kind}: {count} rows are too few to learn what the constants leave over ({FEWEST} at least)")
            continue
        kernels = [build(fitted[_key(group)]) for group in members]
        rows, names = launches_of(members, kernels), names_of(members)
        hidden, width = np.random.default_rng(0).random(count) < HELD_OUT, WIDER.get(kind, HIDDEN)
        tried = corrected(rows, members, kernels, train(rows.some(~hidden), names, hidden=width))
        network = train(rows, names, hidden=width)
        learned.files[f"{kind}.npz"] = as_bytes(network)
        card = list(_card(kind, members, rows, hidden, tried))
        learned.card.extend(card)
        progress(
            f"{kind}: learned on {count} rows, median {card[0]['physics']:.1%} -> {card[0]['held_out']:.1%} held out"
        )
    return learned


def _key(group: TableGroup) -> tuple[str, str, str, str]:
    return (group.device.accelerator, group.framework, group.table.name, group.number_format)


def _card(
    kind: str, groups: Sequence[TableGroup], rows: Launches, hidden: np.ndarray, tried: np.ndarray
) -> list[dict[str, object]]:
    """Errors on rows above 10 us that the network of a second training did not see: of all, and by number format."""
    formats = np.asarray([group.number_format for group in groups])[rows.owner]
    physics, seen = rows.physics_s.sum(axis=1), hidden & (rows.measured_s > NOISY_S)
    result: list[dict[str, object]] = []
    for name in ("all", *sorted(set(formats))):
        mine = seen & ((formats == name) | (name == "all"))
        if mine.any():
            before, after = (score(values[mine], rows.measured_s[mine]) for values in (physics, tried))
            gpus = {group.device.name for group in groups if name in ("all", group.number_format)}
            row = {"class": kind, "number_format": name, "gpus": " ".join(sorted(gpus)), "rows": len(rows.measured_s)}
            errors = {"held_out_rows": after.n, "physics": before.median, "held_out": after.median}
            result.append(row | errors | {"physics_p90": before.p90, "held_out_p90": after.p90})
    return result


# Kernel times of devices that were left out: what errors to expect where nobody measured.
#
# Each device with a relative of its generation is left out alone, each generation as a whole. Nothing of what is left
# out enters its own prediction: constants come from relatives fitted on a pool without it, and the network is trained
# without its rows. Rows at random are left out too. Errors are log(measured / predicted) of rows above 10 us.


POOL_PULL, DEVICE_PULL = 0.03, 0.1  # as of the constants themselves
CROSS_STEPS = 2500  # of training: enough to tell how well it carries over
MEASURED, RELATIVE, NEW = "measured", "relative", "new"
"""Regimes: rows of a measured device; a device whose generation was measured; one of another generation."""


class LeftOut(NamedTuple):
    """Accelerators that a prediction does not know, and what that makes of them."""

    accelerators: frozenset[str]
    regime: str


def generation_of(accelerator: str) -> str:
    """The family of chips; its own name where none is said."""
    entry = accelerators().get(accelerator)
    return entry.generation if entry is not None and entry.generation else accelerator


def cases(measured: Iterable[str]) -> list[LeftOut]:
    """Every device that has a measured relative of its generation, then every generation."""
    families: dict[str, set[str]] = defaultdict(set)
    for name in measured:
        families[generation_of(name)].add(name)
    alone = [LeftOut(frozenset({name}), RELATIVE) for f in families.values() if len(f) > 1 for name in sorted(f)]
    return alone + [LeftOut(frozenset(family), NEW) for _, family in sorted(families.items())]


def lent(group: TableGroup, others: Sequence[TableGroup]) -> Node:
    """Constants of a device from its relatives, fitted on a pool that lacks it; empty where none was measured.

    Args:
        group: rows of the device: what is asked for.
        others: groups of the same class, framework and number format of devices that are not left out.
    """
    groups_by_device = {other.device.accelerator: other for other in others}
    lenders = stand_ins(group.device.accelerator, lambda name: name in groups_by_device)
    if not lenders:
        return {}
    pooled = fit(group.table, rows_of(list(others)), None, POOL_PULL)
    entries = []
    for name in lenders:
        theta = fit(group.table, rows_of([groups_by_device[name]]), pooled, DEVICE_PULL)
        constants = dict(zip(group.table.ranges, np.exp(theta).tolist(), strict=True))
        entries.append(node(group.table, constants, groups_by_device[name]))
    return inherited(group.table.name, entries, group.device.accelerator, group.number_format)


class Crossing(NamedTuple):
    """One class of kernels, ready to be left out of."""

    groups: Sequence[TableGroup]
    kernels: Sequence[Any]
    rows: Launches
    names: tuple[tuple[str, ...], ...]


def prepared(groups: Sequence[TableGroup], fitted: Mapping[tuple[str, str, str, str], Node]) -> Crossing:
    """The groups of one class with constants of their own."""
    keys = [(g.device.accelerator, g.framework, g.table.name, g.number_format) for g in groups]
    kernels = [build(fitted[key]) for key in keys]
    return Crossing(groups, kernels, launches_of(groups, kernels), names_of(groups))


def _frame(
    group: TableGroup, regime: str, case: str, physics_s: np.ndarray, learned_s: np.ndarray, seen: np.ndarray
) -> Any:
    columns = {
        "class": group.table.name, "number_format": group.number_format, "framework": group.framework,
        "gpu": group.device.name, "regime": regime, "case": case,
    }  # fmt: skip
    measured = group.measured_s[seen]
    errors = {
        "physics": np.log(measured / physics_s[seen]), "learned": np.log(measured / learned_s[seen]),
        "measured_s": measured,
    }  # fmt: skip
    return pd.DataFrame(columns | errors)


def at_random(crossing: Crossing) -> list[pd.DataFrame]:
    """Errors of rows left out at random; constants have seen them, networks have not."""
    hidden = np.random.default_rng(0).random(len(crossing.rows.measured_s)) < HELD_OUT
    width = WIDER.get(crossing.groups[0].table.name, HIDDEN)
    network = train(crossing.rows.some(~hidden), crossing.names, hidden=width)
    learned = corrected(crossing.rows, crossing.groups, crossing.kernels, network)
    physics, result = crossing.rows.physics_s.sum(axis=1), []
    for number, group in enumerate(crossing.groups):
        mine = crossing.rows.owner == number
        seen = hidden[mine] & _slow(group)
        result.append(_frame(group, MEASURED, "random rows", physics[mine], learned[mine], seen))
    return result


def left_out(crossing: Crossing, case: LeftOut) -> list[pd.DataFrame]:
    """Errors of the devices left out, by constants and a network that never saw them."""
    out = [group for group in crossing.groups if group.device.accelerator in case.accelerators]
    remaining = np.asarray([group.device.accelerator not in case.accelerators for group in crossing.groups])
    training, taken = crossing.rows.some(remaining[crossing.rows.owner]), []
    for group in out:
        others = [
            other for other, stays in zip(crossing.groups, remaining, strict=True) if stays and _alike(other, group)
        ]
        entry = lent(group, others) if others else {}
        if entry:
            taken.append((group, build(entry)))
    if not taken or not len(training.measured_s):
        return []
    width = WIDER.get(out[0].table.name, HIDDEN)
    network = train(training, crossing.names, steps=CROSS_STEPS, hidden=width)
    network = _forgetting(network, case)
    groups, kernels = zip(*taken, strict=True)
    rows = launches_of(groups, kernels)
    learned, physics = corrected(rows, groups, kernels, network), rows.physics_s.sum(axis=1)
    label = " ".join(sorted(case.accelerators))
    return [
        _frame(group, case.regime, label, physics[rows.owner == i], learned[rows.owner == i], _slow(group))
        for i, group in enumerate(groups)
    ]


def _slow(group: TableGroup) -> np.ndarray:
    return group.measured_s > NOISY_S


def _forgetting(network: ShapeNetwork, case: LeftOut) -> ShapeNetwork:
    """Without the rows of embeddings that stand for what is left out: they were never trained."""
    devices, *others = network.names
    remaining = [index for index, name in enumerate(devices) if name not in case.accelerators]
    rows = network.embeddings[0][[0, *(position + 1 for position in remaining)]]
    names = (tuple(devices[position] for position in remaining), *others)
    return network._replace(names=names, embeddings=(rows, *network.embeddings[1:]))


def _alike(other: TableGroup, group: TableGroup) -> bool:
    return (other.framework, other.number_format) == (group.framework, group.number_format)
