"""Kernel times of devices that were left out: what errors to expect where nobody measured.

Each device with a relative of its generation is left out alone, each generation as a whole. Nothing of what is left
out enters its own prediction: constants come from relatives fitted on a pool without it, and the network is trained
without its rows. Rows at random are left out too. Errors are log(measured / predicted) of rows above 10 us.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...model.hardware.residual import ShapeNetwork
from .constants import Node, build, inherited, node
from .fit import NOISY_S, fit, rows_of
from .gpus import accelerators, stand_ins
from .kernel_tables import TableGroup
from .learned_factors import HELD_OUT, HIDDEN, WIDER, Launches, corrected, launches_of, names_of, train

POOL_PULL, OWN_PULL = 0.03, 0.1  # as of the constants themselves
CROSS_STEPS = 2500  # of training: enough to tell how well it carries over
MEASURED, RELATIVE, NEW = "measured", "relative", "new"
"""Regimes: rows of a measured device; a device whose generation was measured; one of another generation."""


class LeftOut(NamedTuple):
    """Accelerators that a prediction does not know, and what that makes of them."""

    accelerators: frozenset[str]
    regime: str


def generation_of(accelerator: str) -> str:
    """The family of chips; its own name where none is said."""
    known = accelerators().get(accelerator)
    return known.generation if known is not None and known.generation else accelerator


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
    known = {other.device.accelerator: other for other in others}
    lenders = stand_ins(group.device.accelerator, lambda name: name in known)
    if not lenders:
        return {}
    pooled = fit(group.table, rows_of(list(others)), None, POOL_PULL)
    entries = []
    for name in lenders:
        theta = fit(group.table, rows_of([known[name]]), pooled, OWN_PULL)
        constants = dict(zip(group.table.ranges, np.exp(theta).tolist(), strict=True))
        entries.append(node(group.table, constants, known[name]))
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
    told = {
        "class": group.table.name, "number_format": group.number_format, "framework": group.framework,
        "gpu": group.device.name, "regime": regime, "case": case,
    }  # fmt: skip
    measured = group.measured_s[seen]
    errors = {
        "physics": np.log(measured / physics_s[seen]), "learned": np.log(measured / learned_s[seen]),
        "measured_s": measured,
    }  # fmt: skip
    return pd.DataFrame(told | errors)


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
    kept = np.asarray([group.device.accelerator not in case.accelerators for group in crossing.groups])
    told, taken = crossing.rows.some(kept[crossing.rows.owner]), []
    for group in out:
        others = [other for other, stays in zip(crossing.groups, kept, strict=True) if stays and _alike(other, group)]
        entry = lent(group, others) if others else {}
        if entry:
            taken.append((group, build(entry)))
    if not taken or not len(told.measured_s):
        return []
    width = WIDER.get(out[0].table.name, HIDDEN)
    network = train(told, crossing.names, steps=CROSS_STEPS, hidden=width)
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
    kept = [index for index, name in enumerate(devices) if name not in case.accelerators]
    rows = network.embeddings[0][[0, *(place + 1 for place in kept)]]
    names = (tuple(devices[place] for place in kept), *others)
    return network._replace(names=names, embeddings=(rows, *network.embeddings[1:]))


def _alike(other: TableGroup, group: TableGroup) -> bool:
    return (other.framework, other.number_format) == (group.framework, group.number_format)
