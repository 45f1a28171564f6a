"""One draw: a factor for each class of operations and for the source. Many: what every metric may turn out to be.

The same model prices all draws at once: its program, traced with doubts in the tree, is run by NumPy with an axis of
draws. Draws of a class on a device are the same whichever design asks, so that designs are compared under errors that
they share.
"""

import dataclasses
import functools
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ..calibration.gpus import accelerators
from ..doubts import Doubts
from ..fields import with_numpy
from ..hardware.residual import FittedOn
from ..scenario import Cluster, Scenario
from ..staging import base_of, running
from ..workloads import AbstractServing
from .spreads import ANY, LEARNED, MEASURED, NEW, PHYSICS, RELATIVE, SHARE, Spread, find, spreads

COUNT = 400  # draws: ends of an interval then move by a tenth of its width from seed to seed
MOVED, FAR = 1.05, 2.0  # a peak or bandwidth so many times the measured chip's is another chip, or another generation
KERNELS = (
    "gemm",
    "moe_gemm",
    "attention_prefill",
    "attention_decode",
    "mla_prefill",
    "mla_decode",
    "elementwise",
    "optimizer",
)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
NAMES = (
    "time_s",
    "ttft_s",
    "tpot_s",
    "tokens_per_s",
    "mfu",
    "energy_j",
    "joules_per_token",
    "power_w",
    "usd_per_million_tokens",
)
"""Metrics that have an interval, where the job has them; and what an output or input token costs."""

Factors = dict[str, Any]


def generation(name: str) -> str:
    """The family of chips an accelerator is of; its own name where none is said."""
    known = accelerators().get(name)
    return (known.generation if known is not None else "") or name


def regime(cluster: Cluster, kind: str, number_format: str) -> str:
    """Whether a class of kernels was measured on this device, on one of its generation, or on neither."""
    own = cluster.accelerator
    chip = getattr(own.kernel(kind, number_format), "chip", None)
    label = FittedOn.of(chip.label) if chip is not None else None
    known = [row for row in spreads().values() if row.kind == "kernel" and row.name == (label.kind if label else kind)]
    measured = {name for row in known if row.regime == MEASURED for name in row.members}
    found = NEW
    if label is not None and own.name == label.accelerator and own.name in measured:
        found = MEASURED
    elif generation(own.name) in {generation(name) for name in measured}:
        found = RELATIVE
    if chip is not None and found != NEW and number_format in own.peak_flops_per_s and label is not None:
        rates = (own.peak(number_format), chip.peak_flops_per_s), (own.hbm.bandwidth(), chip.bandwidth_bytes_per_s)
        moved = max(abs(float(np.log(float(live) / float(then)))) for live, then in rates if kind != "elementwise")
        found = NEW if moved > np.log(FAR) else RELATIVE if moved > np.log(MOVED) else found
    return found


@functools.cache
def _levels(key: str, count: int) -> np.ndarray:
    """Evenly spread numbers in (-1, 1), shuffled by a name: the same for the same name."""
    even = 2 * (np.arange(count) + 0.5) / count - 1
    return np.random.default_rng(zlib.crc32(key.encode())).permutation(even)


def factors(spread: Spread | None, key: str, count: int) -> np.ndarray:
    """Measured over predicted in each draw; one where no error is known."""
    if spread is None:
        return np.ones(count)
    level = _levels(key, count)
    return np.exp(np.sign(level) * spread.at(np.abs(level)))


def doubts(scenario: Scenario, count: int = COUNT) -> Doubts:
    """Draws of everything that can be off, each leaf [count]."""
    cluster, job = scenario.cluster, scenario.workload
    own, model = cluster.accelerator, LEARNED if cluster.accelerator.residual is not None else PHYSICS
    formats = (job.number_format(), "vector")
    kernels: Factors = {}
    for kind in KERNELS:
        number_format = formats[kind in ("elementwise", "optimizer")]
        names = (f"{kind} {number_format}", kind, ANY)
        found = find("kernel", names, model, regime(cluster, kind, number_format))
        kernels[kind] = factors(found, f"{own.name} {kind}", count)
    wires: Factors = {}
    for operation in COLLECTIVES:
        found = find("collective", (operation, ANY), PHYSICS, regime(cluster, "gemm", formats[0]))
        wires[operation] = factors(found, f"{own.name} {operation}", count)
    serving = isinstance(job, AbstractServing)
    step = "tpot" if serving else "training"

    def whole(name: str) -> np.ndarray:
        return factors(find("source", (name,), PHYSICS, NEW), f"source {name}", count)

    first = whole("ttft") if serving else np.ones(count)
    return Doubts(kernels, wires, whole(step), first, whole("energy"))


def with_doubts(scenario: Scenario, drawn: Doubts) -> Scenario:
    """The scenario under draws."""
    return dataclasses.replace(scenario, cluster=dataclasses.replace(scenario.cluster, doubts=drawn))


def drawn(scenario: Scenario, count: int = COUNT) -> dict[str, np.ndarray]:
    """What every metric that has an interval is in each draw; empty where no errors are known."""
    if not spreads():
        return {}
    found = doubts(scenario, count)
    one = with_doubts(with_numpy(scenario), jax.tree.map(lambda leaf: np.asarray(1.0), found))
    base = base_of(one)
    names = [name for name in base.account.metrics.flat() if has_interval(name)]
    program = base.asked(lambda account: [account.metrics.flat()[name] for name in names])
    pairs = zip(*map(jax.tree.leaves, (one, with_doubts(one, found))), strict=True)
    given = [wide if np.ndim(wide) > np.ndim(leaf) else np.asarray(leaf)[..., None] for leaf, wide in pairs]
    kinds = (program.kinds[slot] for slot in program.inputs)
    values = running(program)(*(np.asarray(leaf, dtype=kind) for leaf, kind in zip(given, kinds, strict=True)))
    return {name: np.broadcast_to(np.asarray(v, dtype=float), (count,)) for name, v in zip(names, values, strict=True)}


def has_interval(name: str) -> bool:
    """Whether a metric is uncertain because times and energies are."""
    return name in NAMES or name.startswith("usd_per_million_")


def ends(values: np.ndarray, share: float = SHARE) -> tuple[float, float]:
    """Ends of the interval that holds this share of the draws."""
    low, high = np.quantile(values, ((1 - share) / 2, (1 + share) / 2))
    return float(low), float(high)


def intervals(scenario: Scenario, count: int = COUNT) -> dict[str, tuple[float, float]]:
    """Metric -> ends of its 90 % interval."""
    return {name: ends(values) for name, values in drawn(scenario, count).items()}


def as_columns(found: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Intervals as numbers: `time_s_low`, `time_s_high` and so on."""
    return {
        f"{name}_{end}": value for name, pair in found.items() for end, value in zip(("low", "high"), pair, strict=True)
    }
