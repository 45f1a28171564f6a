"""One draw: a factor for each class of operations and for the source. Many: what every metric may turn out to be.

The same model prices all draws at once: its program, traced with doubts in the tree, is run by NumPy with an axis of
draws. Draws of a class on a device are the same whichever design asks, so that designs are compared under errors that
they share.
"""

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import Float

from ..core.errors import ConfigError
from ..core.fields import as_leaf, get_path, replace
from ..core.jax_typed import asarray
from ..core.json_yaml import is_some
from ..model.error_factors import ErrorFactors
from ..model.hardware import Accelerator
from ..model.hardware.residual import FitContext
from ..model.scenario import Cluster, Scenario
from ..model.workloads import AbstractServing, AbstractWorkload
from ..model.workloads.continuous import AbstractContinuousServing
from ..study.design_space import DesignSpace
from .spreads import ANY, LEARNED, MEASURED, NEW, PHYSICS, RELATIVE, Spread, find, spreads

__all__ = [
    "COUNT", "among", "beyond", "draw_doubts", "factors", "named_so", "no_doubts", "one_by_one", "regime",
    "source_names", "strata_of", "under", "wires_of",
]  # fmt: skip


COUNT = 400  # draws: ends of an interval then move by a twentieth of its width from seed to seed
BUS_BYTES_PER_S = 128e9  # PCIe Gen6 x16, one direction: cards on a slower link share a bus [pcie_cem]
MOVED, FAR = 1.05, 2.0  # a rate so many times the measured chip's is another chip's, or another generation's (assumed)
KERNELS = (
    "gemm", "moe_gemm", "attention_prefill", "attention_decode", "mla_prefill", "mla_decode", "elementwise",
    "optimizer",
)  # fmt: skip
SHARDED_FROM = 3  # stage of ZeRO that gathers parameters
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")


def among(accelerator: Accelerator, measured: Spread | None) -> str:
    """Regime of an accelerator: one of those measured, of the generation of one, or neither."""
    members = [member.split(":") for member in (measured.members if measured is not None else ())]
    if accelerator.name in {name for name, _ in members}:
        return MEASURED
    return RELATIVE if accelerator.generation in {family for _, family in members if family} else NEW


def format_of(job: AbstractWorkload, kind: str) -> str:
    """Number format of most products of a class of kernels; experts may have one of their own."""
    if kind in ("elementwise", "optimizer"):
        return "vector"
    precision = getattr(job, "precision", None)
    return precision.product("moe_up") if kind == "moe_gemm" and precision is not None else job.number_format()


def wires_of(cluster: Cluster) -> str:
    """Name of the errors of collectives that nobody measured on links of this kind: of cards on a bus, or of a fabric.

    Cards that share a bus are up to ten times slower than their links, by how the board is wired; no fabric of
    accelerators is.
    """
    level = cluster.network.get("scale_up")
    rate = getattr(getattr(level, "fabric", None), "bandwidth_bytes_per_s", np.inf)
    return f"{ANY} on a bus" if float(np.max(rate)) < BUS_BYTES_PER_S else f"{ANY} in a domain"


def regime(cluster: Cluster, kind: str, number_format: str) -> str:
    """Regime of a class of kernels: measured on this device, on one of its generation, or on neither."""
    accelerator = cluster.accelerator
    chip = getattr(accelerator.kernel(kind, number_format), "chip", None)
    label = FitContext.of(chip.label) if chip is not None else None
    names = ((label.kind if label is not None else kind), ANY)
    result = among(accelerator, find("kernel", names, PHYSICS, MEASURED))
    if result == NEW:
        return NEW
    if chip is None or label is None or accelerator.arithmetic(number_format) not in accelerator.peak_flops_per_s:
        return RELATIVE
    rates = [(accelerator.hbm.bandwidth(), chip.bandwidth_bytes_per_s)]
    rates += (
        []
        if kind == "elementwise"
        else [(accelerator.peak_flops_per_s[accelerator.arithmetic(number_format)], chip.peak_flops_per_s)]
    )
    moved = max(abs(float(np.log(float(live) / float(then)))) for live, then in rates)
    if moved > np.log(FAR):
        return NEW
    here = result == MEASURED and accelerator.name == label.accelerator and moved <= np.log(MOVED)
    return MEASURED if here else RELATIVE


def named_so(cluster: Cluster, kind: str, number_format: str, origin: str) -> tuple[str, ...]:
    """Names under which the errors of a class of kernels stand in a regime, the narrowest first.

    Constants that were fitted on no chip say no more of one class than of another: on a family that nobody measured
    (a TPU, say) every class errs as all do together.
    """
    accelerator = cluster.accelerator
    fitted = getattr(accelerator.kernel(kind, number_format), "chip", None) is not None
    return (f"{kind} {number_format}", kind, ANY) if fitted or origin != NEW or not accelerator.generation else (ANY,)


@functools.cache
def _levels(key: str, count: int) -> np.ndarray:
    """Evenly spread numbers between 0 and 1, shuffled by a name: the same for the same name."""
    even = (np.arange(count) + 0.5) / count
    return np.random.default_rng(zlib.crc32(key.encode())).permutation(even)


def factors(spread: Spread | None, key: str, count: int, share: float = 1.0, seed: int = 0) -> np.ndarray:
    """Measured over predicted in each draw, `share` of the way from the median; one where no error is known."""
    if spread is None:
        return np.ones(count)
    middle = spread.at(np.asarray(0.5))
    return np.exp(middle + share * (spread.at(_levels(f"{key} {seed}" if seed else key, count)) - middle))


def source_names(scenario: Scenario) -> tuple[str, str]:
    """Names of the errors of whole jobs: of the first token, and of a step."""
    job = scenario.workload
    added = (("kernel_slowdown", 1.0), ("request_overhead_s", 0.0))
    named = any(float(np.max(getattr(job, name, none))) != none for name, none in added)
    said = getattr(job, "framework_errors", "")
    named = said == "named" if said else named
    if isinstance(job, AbstractServing):
        batches = isinstance(job, AbstractContinuousServing)
        engine = ", framework named" if named and batches else ""
        apart = engine and float(np.max(getattr(scenario.plan, "prefill_devices", 0.0))) > 0
        loop = "two pools" if apart else "closed loop"
        first = f"ttft, {loop}{engine}" if apart else f"ttft{engine}"
        return first, f"tpot, {loop}{engine}" if batches else "tpot"
    sharded = float(np.max(getattr(scenario.plan, "zero", 0.0))) >= SHARDED_FROM
    training = f"training{', parameters sharded' if sharded else ''}{', framework named' if named else ''}"
    return training, training


def draw_doubts(scenario: Scenario, count: int = COUNT, seed: int = 0) -> ErrorFactors:
    """Draws of everything that can be off, each leaf [count]; another seed, other draws.

    Assumes: errors of classes are independent of each other; a class that was not measured errs as any does.
    """
    cluster, job = scenario.cluster, scenario.workload
    accelerator, model = cluster.accelerator, LEARNED if cluster.accelerator.kernel_correction is not None else PHYSICS
    kernels: dict[str, Any] = {}
    for kind in KERNELS:
        number_format = format_of(job, kind)
        where = regime(cluster, kind, number_format)
        result = find("kernel", named_so(cluster, kind, number_format, where), model, where)
        kernels[kind] = factors(result, f"{accelerator.name} {kind}", count, seed=seed)
    wires: dict[str, Any] = {}
    wired, links = among(accelerator, find("collective", (ANY,), PHYSICS, MEASURED)), wires_of(cluster)
    for operation in COLLECTIVES:
        result = find("collective", (operation, links, ANY), PHYSICS, wired)
        wires[operation] = factors(result, f"{accelerator.name} {operation}", count, seed=seed)
    serving = isinstance(job, AbstractServing)

    first_token, step = source_names(scenario)

    def sampled(name: str, inside: Spread | None) -> Any:
        """Factors for errors of whole jobs beyond those they include."""
        result = find("source", (name,), PHYSICS, NEW)
        return factors(result, f"source {name}", count, beyond(result, inside), seed)

    gemm = find("kernel", ("gemm", ANY), PHYSICS, MEASURED)
    # errors of jobs without a framework, part of which the typical slowdown is
    within = float(np.max(job.kernel_slowdown)) if getattr(job, "framework_errors", "") == "typical" else 1.0
    first = sampled(first_token, find("source", (step,), PHYSICS, NEW)) if serving else as_leaf(np.ones(count))
    return ErrorFactors(kernels, wires, sampled(step, gemm) / within, first, sampled("power", None))


def beyond(outer: Spread | None, inside: Spread | None) -> float:
    """Share of the size of errors of the whole that is not those inside it, as of independent logarithms."""
    if outer is None or inside is None:
        return 1.0
    return float(np.sqrt(max(0.0, 1 - (inside.half_width() / outer.half_width()) ** 2)))


def no_doubts() -> ErrorFactors:
    """Factors of one: the model itself, in a tree that has room for draws."""
    one = as_leaf(np.asarray(1.0))
    kernels: dict[str, Any] = dict.fromkeys(KERNELS, one)
    wires: dict[str, Any] = dict.fromkeys(COLLECTIVES, one)
    return ErrorFactors(kernels, wires, one, one, one)


def one_by_one(drawn: ErrorFactors, count: int) -> list[ErrorFactors]:
    """Draws whose leaves are [count], each on its own."""

    def one(index: int) -> ErrorFactors:
        def sample_of(leaf: Any) -> Any:
            return leaf[index]

        return jax.tree.map(sample_of, drawn)

    return [one(index) for index in range(count)]


def under(scenario: Scenario, doubts: ErrorFactors) -> Scenario:
    """The scenario with its times and energies as a draw has them."""
    leaves = jax.tree.map(asarray, doubts)
    return dataclasses.replace(scenario, cluster=dataclasses.replace(scenario.cluster, doubts=leaves))


# Known errors that a design's numbers rest on: strata of cross-validation, as the page tells them.


IN_WORDS = {
    MEASURED: "measured on this device", RELATIVE: "measured on its generation", NEW: "measured on other devices",
}  # fmt: skip


def strata_of(scenario: Scenario) -> list[dict[str, Any]]:
    """A row for each stratum: what was predicted, on what it was measured, rows, and the 90 % interval of its error.

    `low` and `high` are measured / predicted - 1; classes of kernels and collectives that share errors are one row.
    """
    cluster, job = scenario.cluster, scenario.workload
    accelerator, model = cluster.accelerator, LEARNED if cluster.accelerator.kernel_correction is not None else PHYSICS
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}

    def add_stratum(what: str, spread: Spread | None) -> None:
        if spread is not None and (spread.kind, spread.name, spread.regime) not in rows:
            low, high = np.expm1(spread.interval())
            rows[spread.kind, spread.name, spread.regime] = {
                "what": what.replace("_", " "),
                "regime": "other published jobs" if spread.kind == "source" else IN_WORDS[spread.regime],
                "rows": spread.rows, "low": float(low), "high": float(high),
            }  # fmt: skip

    for name in dict.fromkeys(source_names(scenario)):
        add_stratum(f"whole jobs: {name}", find("source", (name,), PHYSICS, NEW))
    add_stratum("power", find("source", ("power",), PHYSICS, NEW))
    for kind in KERNELS:
        number_format = format_of(job, kind)
        names = (f"{kind} {number_format}", kind, ANY)
        add_stratum(f"kernels: {kind}", find("kernel", names, model, regime(cluster, kind, number_format)))
    wired = among(accelerator, find("collective", (ANY,), PHYSICS, MEASURED))
    for operation in COLLECTIVES:
        add_stratum(f"collectives: {operation}", find("collective", (operation, ANY), PHYSICS, wired))
    return list(rows.values())


# Constants that are not known: the cases that a design is judged in, each with its own values of uncertain leaves.
#
# Efficiencies, prices, latencies are guesses or change with the years. What may be off of the model itself, its errors
# in cross-validation, are cases as well: `draws` of them, those that intervals are made of, each a positive factor on
# costs.


@dataclass(frozen=True)
class Uncertain:
    """A leaf whose value is not known: factors of its nominal value.

    Args:
        path: dotted path of the leaf.
        factors: values to reckon with, as multiples of the scenario's.
        tied: further leaves that move by the same factor.
    """

    path: str
    factors: Sequence[float]
    tied: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Some positive factors."""
        given = cast(Any, self.factors)
        if not is_some(given) or any(not isinstance(f, int | float) or f <= 0 for f in given):
            raise ConfigError(f"factors of {self.path} = {self.factors!r} must be a non-empty list of positive numbers")

    def leaves(self, scenario: Scenario, factor: float) -> dict[str, Any]:
        """Dotted path -> value in a case."""
        return {path: get_path(scenario, path) * factor for path in (self.path, *self.tied)}


@dataclass(frozen=True)
class Cases:
    """The cases that a robust design is judged in.

    Every combination of the listed factors, or `samples` random ones: each factor log-uniform between its least and
    its largest. Where a row is log-convex in the leaves as well, its worst value over their box lies at a corner, so
    the two ends of each range cover the whole box. With `draws` each of these in every one of so many joint draws of
    the model's errors (`uncertainty.draws`).
    """

    uncertain: dict[str, Uncertain] = field(default_factory=dict[str, Uncertain])
    samples: int = 0
    draws: int = 0

    def __post_init__(self) -> None:
        """No negative number of samples or draws, and no draws of errors that nobody knows."""
        for name in ("samples", "draws"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} = {getattr(self, name)} must not be negative")
        if self.draws and not spreads():
            raise ConfigError(
                f"draws = {self.draws}: no errors of the model are known (`codesign calibrate --intervals`)"
            )

    def check(self, scenario: Scenario, space: DesignSpace) -> None:
        """Refuse leaves that do not exist, or that the space sets itself.

        Raises:
            ConfigError: naming the entry.
        """
        chosen = {variable.path: name for name, variable in space.hardware.items()}
        for name, entry in self.uncertain.items():
            for path in (entry.path, *entry.tied):
                try:
                    get_path(scenario, path)
                except ConfigError as error:
                    raise ConfigError(f"search.cases.uncertain.{name}: {error}") from error
                if path in chosen:
                    raise ConfigError(
                        f"search.cases.uncertain.{name}: {path} is chosen by space.hardware.{chosen[path]},"
                        " so it cannot be uncertain as well"
                    )

    def factors(self, seed: int) -> Float[np.ndarray, "cases entries"]:
        """Factors of each case, along the entries."""
        lists = [np.asarray(entry.factors, dtype=float) for entry in self.uncertain.values()]
        if not self.samples:
            every = list(itertools.product(*lists))
            return np.array(every, dtype=float).reshape(len(every), len(lists))
        rng = np.random.default_rng(seed)
        ends = np.log([[factors.min(), factors.max()] for factors in lists]).reshape(-1, 2)
        return np.exp(ends[:, 0] + (ends[:, 1] - ends[:, 0]) * rng.uniform(size=(self.samples, len(lists))))

    def leaves(self, scenario: Scenario, seed: int) -> list[dict[str, Any]]:
        """Dotted path -> value, in each case."""
        result: list[dict[str, Any]] = []
        for row in self.factors(seed):
            leaves: dict[str, Any] = {}
            for entry, factor in zip(self.uncertain.values(), row, strict=True):
                leaves |= entry.leaves(scenario, float(factor))
            result += [leaves] * max(self.draws, 1)
        return result

    def named(self, seed: int) -> list[dict[str, float]]:
        """Entry -> factor, and the number of the draw, in each case."""
        rows = [dict(zip(self.uncertain, map(float, row), strict=True)) for row in self.factors(seed)]
        if not self.draws:
            return rows
        return [row | {"draw": float(number)} for row in rows for number in range(self.draws)]

    def scenarios(self, scenario: Scenario, seed: int) -> list[Scenario]:
        """The scenario in each case."""
        moved = [replace(scenario, leaves) for leaves in self.leaves(scenario, seed)]
        if not self.draws:
            return moved
        drawn = one_by_one(draw_doubts(scenario, self.draws), self.draws)
        return [under(one, drawn[index % self.draws]) for index, one in enumerate(moved)]

    def with_room(self, scenario: Scenario) -> Scenario:
        """The scenario with the structure that its cases have."""
        return under(scenario, no_doubts()) if self.draws else scenario
