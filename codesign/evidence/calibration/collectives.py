"""Collectives: the curves of each operation on each device's scale-up fabric, and on a scale-out network."""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.optimize import least_squares, minimize

from ...core.cost import Cost
from ...core.errors import DataError
from ...model.hardware import Link
from ...model.networks.collectives import AbstractCollective, Measured, Pipelined
from ...model.networks.fabrics import Group as Members
from ..measurements import FoundTable, tables
from .constants import SOURCE, inline, provenance_lines, significant
from .fit import score
from .gpus import Device, calibrated, device, wired_alike
from .kernels import read_peaks

OPERATIONS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
              "alltoall": "all_to_all", "all_to_all": "all_to_all", "sendrecv": "send"}  # fmt: skip
LINK_LATENCY_S = 1e-6  # of the fabric measured; what a table shows beyond it is the library's own time
SCALE, SMALL_BYTES, SMALL_WEIGHT, PULL, TIE = 0.03, 2.0**20, 0.5, 0.03, 0.02
BUCKETS = (64, 256, 1024, 4096)

US = 1e-6
RANGES = {
    "base_2_s": (8 * US, 0.5 * US, 100 * US), "base_4_s": (10 * US, 0.5 * US, 200 * US),
    "base_8_s": (15 * US, 0.5 * US, 400 * US), "base_16_s": (30 * US, 0.5 * US, 800 * US),
    "base_64_s": (60 * US, 0.5 * US, 3000 * US), "ratio_2": (0.6, 1e-2, 4), "ratio_4": (0.7, 1e-2, 4),
    "ratio_8": (0.8, 1e-2, 4), "ratio_16": (0.8, 1e-2, 4), "ratio_64": (0.8, 1e-2, 4), "ramp": (1, 1e-2, 30),
    "ramp_power": (0.4, 0.02, 0.75), "switch_bytes": (3e5, 1e3, 1e8),
}  # fmt: skip
MAY_EXCEED_WIRE = "all_reduce"  # in-switch reduction sends less than a ring; no other operation can beat the wire


def _bounds(operation: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logarithms of start, least and largest value of each constant, in the order of `RANGES`."""
    start, low, high = np.log(np.asarray(list(RANGES.values()), dtype=float).T)
    is_ratio = np.asarray([name.startswith("ratio_") for name in RANGES])
    return start, low, high if operation == MAY_EXCEED_WIRE else np.where(is_ratio, 0.0, high)


class CollectiveGroup(NamedTuple):
    """Rows of one operation on one device's fabric."""

    suite: str
    operation: str
    device: Device
    variant: str
    bandwidth_bytes_per_s: float
    members: np.ndarray
    nbytes: np.ndarray
    measured_s: np.ndarray


def rounds(operation: str) -> float:
    """Times the buffer goes round."""
    return 2.0 if operation == "all_reduce" else 1.0


def scale_up_groups(directory: Path, messages: list[str], kind: str = "scale_up") -> Iterator[CollectiveGroup]:
    """Groups of collectives inside one scale-up domain: the library's (`scale_up`), or `custom_all_reduce`."""
    folder = read_peaks(directory)
    custom = kind == "custom_all_reduce"
    for table in tables(directory, kind):
        rows = table.rows(messages)
        rows = rows.assign(collective="all_reduce") if custom else rows
        keys = ["gpu", "collective"] + (["kernel_source"] if custom else [])
        for (gpu, collective, *kernel), group in rows.groupby(keys, sort=True):
            if collective not in OPERATIONS:
                messages.append(f"{table.shown}: {len(group)} rows of collective {collective!r} set aside")
                continue
            try:
                who = device(str(gpu), folder)
            except DataError as error:
                messages.append(f"{table.shown}: {len(group)} rows set aside: {error}")
                continue
            yield CollectiveGroup(
                "custom" if custom else "scale_up", OPERATIONS[collective], who, str(kernel[0]) if kernel else "nccl",
                who.peaks.scale_up, *_arrays(group),
            )  # fmt: skip


def _arrays(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        rows["num_gpus"].to_numpy(dtype=float), rows["message_bytes"].to_numpy(dtype=float),
        rows["latency_us"].to_numpy(dtype=float) * 1e-6,
    )  # fmt: skip


def seconds(collective: AbstractCollective, members: jax.Array, nbytes: jax.Array, bandwidth: jax.Array) -> jax.Array:
    """Predicted seconds of rows."""
    link = Link(LINK_LATENCY_S, 1 / bandwidth)
    return jax.vmap(lambda n, b: collective.cost(b, Members(n), link).time_s)(members, nbytes)


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float, float]


@lru_cache
def _functions() -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
    def residual(theta, members, nbytes, log_measured, weight, bandwidth, turns):
        constants = dict(zip(RANGES, jnp.exp(theta), strict=True))
        predicted = seconds(Measured(**constants, rounds=turns), members, nbytes, bandwidth)
        return (jnp.log(predicted) - log_measured) * weight

    return jax.jit(residual), jax.jit(jax.jacfwd(residual))


def _padded(group: CollectiveGroup) -> Arrays:
    count = len(group.nbytes)
    size = next((b for b in BUCKETS if b >= count), count)
    index = np.concatenate([np.arange(count), np.zeros(size - count, dtype=int)])
    weight = np.where(group.nbytes >= SMALL_BYTES, 1.0, SMALL_WEIGHT)[index] * (np.arange(size) < count)
    arrays = group.members[index], group.nbytes[index], np.log(group.measured_s[index]), weight
    return *arrays, group.bandwidth_bytes_per_s, rounds(group.operation)


def _links(relative: dict[str, float] | None) -> tuple[np.ndarray, np.ndarray]:
    """Weak rows that tie neighbouring knots of a curve: equal, or in the proportion they have on a relative."""
    names = list(RANGES)
    pairs = [
        (f"{kind}_{x}{end}", f"{kind}_{y}{end}")
        for kind, end in (("base", "_s"), ("ratio", ""))
        for x, y in ((2, 4), (4, 8), (8, 16), (16, 64))
    ]
    rows, target = np.zeros((len(pairs), len(names))), np.zeros(len(pairs))
    for row, (a, b) in enumerate(pairs):
        rows[row, names.index(a)], rows[row, names.index(b)] = TIE, -TIE
        target[row] = TIE * np.log(relative[a] / relative[b]) if relative else 0.0
    return rows, target


def fit_collective(group: CollectiveGroup, relative: dict[str, float] | None = None) -> dict[str, float]:
    """Constants of `Measured` that explain these rows.

    Args:
        relative: constants of a device with more group sizes; curves beyond the sizes measured follow its shape.
    """
    start, low, high = _bounds(group.operation)
    residual, jacobian = _functions()
    arrays, names = _padded(group), list(RANGES)
    ties, target = _links(relative)
    ends = [names.index(name) for name in ("ramp", "ramp_power", "switch_bytes")]
    pull = PULL * np.eye(len(names))[ends]

    def values(theta: np.ndarray) -> np.ndarray:
        measured = np.asarray(residual(theta, *arrays))
        return np.concatenate([measured, ties @ theta - target, pull @ (theta - start)])

    def slopes(theta: np.ndarray) -> np.ndarray:
        return np.concatenate([np.asarray(jacobian(theta, *arrays)), ties, pull])

    best = None
    for power in (0.2, 0.6):  # the curve has several local fits
        first = start.copy()
        first[names.index("ramp_power")] = np.log(power)
        done = least_squares(values, first, jac=slopes, bounds=(low, high), loss="soft_l1", f_scale=SCALE, max_nfev=40)
        best = done if best is None or done.cost < best.cost else best
    return dict(zip(names, np.exp(best.x).tolist(), strict=True))


def predict_collective(constants: dict[str, float], group: CollectiveGroup) -> np.ndarray:
    """Predicted seconds of every row."""
    collective = Measured(**constants, rounds=rounds(group.operation))
    bandwidth = jnp.asarray(group.bandwidth_bytes_per_s)
    return np.asarray(seconds(collective, jnp.asarray(group.members), jnp.asarray(group.nbytes), bandwidth))


SCALE_OUT_RATES = {"100G": 13.6e9, "400G": 50e9}  # payload per device: what sends reach, and the class of its name


def scale_out_rows(table: FoundTable, messages: list[str]) -> pd.DataFrame:
    """A table of collectives across nodes, with `rate` of each cluster's network; unknown clusters are set aside."""
    rows = table.rows(messages)
    rate = rows["cluster"].map(lambda name: next((v for k, v in SCALE_OUT_RATES.items() if k in str(name)), np.nan))
    if rate.isna().any():
        names = ", ".join(sorted({str(name) for name in rows["cluster"][rate.isna()]}))
        messages.append(f"{table.shown}: {int(rate.isna().sum())} rows set aside, no rate known for cluster(s) {names}")
    return rows.assign(rate=rate)[rate.notna()]


def scale_out_groups(directory: Path, messages: list[str]) -> Iterator[CollectiveGroup]:
    """Groups with one device a node: nothing but the scale-out network between them."""
    folder = read_peaks(directory)
    for table in tables(directory, "clusters"):
        rows = scale_out_rows(table, messages)
        alone = rows[(rows["gpus_per_node"] == 1) & (rows["num_nodes"] > 1)]
        for (gpu, cluster, collective, rate), group in alone.groupby(
            ["gpu", "cluster", "collective", "rate"], sort=True
        ):
            if collective not in OPERATIONS:
                messages.append(f"{table.shown}: {len(group)} rows of collective {collective!r} set aside")
                continue
            try:
                who = device(str(gpu), folder)
            except DataError as error:
                messages.append(f"{table.shown}: {len(group)} rows set aside: {error}")
                continue
            yield CollectiveGroup("scale_out", OPERATIONS[collective], who, str(cluster), rate, *_arrays(group))


# Phases of collectives pipelined inside and between nodes: three constants, fitted on nodes of several devices.


PHASES = ("all_reduce", "all_gather", "reduce_scatter")
"""Operations whose phases are pipelined; the blocks of an all-to-all are independent of each other."""
HOP_SCALE_S = 1e-6
START = (6.0, 3.0, 6.0)
Constants = Mapping[str, dict[str, float]]  # of `Measured`, by operation


class TwoLevels(NamedTuple):
    """Rows of devices on several nodes, with the seconds of both phases as fitted alone."""

    operation: np.ndarray
    members: np.ndarray
    domains: np.ndarray
    inside_s: np.ndarray
    outside_s: np.ndarray
    nbytes: np.ndarray
    measured_s: np.ndarray

    def some(self, chosen: np.ndarray) -> "TwoLevels":
        """Subset of the rows."""
        return TwoLevels(*(column[chosen] for column in self))

    def errors(self, constants: np.ndarray) -> np.ndarray:
        """log(predicted / measured) under `constants`, see `pipelined_of`."""
        law, predicted = pipelined_of(constants), np.zeros(len(self.measured_s))
        for operation in np.unique(self.operation):
            mine = self.operation == operation
            inside, outside, members, domains, nbytes = (
                column[mine] for column in (self.inside_s, self.outside_s, self.members, self.domains, self.nbytes)
            )
            phases = [Cost(seconds, 0 * seconds) for seconds in (inside, outside)]
            predicted[mine] = _cost(law, str(operation), *phases, members, domains, nbytes)
        return np.log(predicted / self.measured_s)


def pipelined_of(constants: np.ndarray) -> Pipelined:
    """Collective with these constants: (hop in `HOP_SCALE_S`, power of the norm, hops of a tree's level)."""
    hop, power, level = np.abs(constants)
    return Pipelined(norm=float(max(power, 1.0)), hop_s=float(hop * HOP_SCALE_S), tree_hops=float(max(level, 1.0)))


@functools.partial(eqx.filter_jit)
def _cost(law: Pipelined, operation: str, *of_rows: Any) -> jax.Array:
    """Seconds of rows of one operation."""
    return law.cost(operation, *of_rows).time_s


def two_levels(directory: Path, cluster: str, inside: Constants, outside: Constants) -> TwoLevels | None:
    """Rows of a cluster with more than one device on each of several nodes; None if there are none."""
    folder, parts = read_peaks(directory), []
    for table in tables(directory, "clusters"):
        rows = scale_out_rows(table, [])
        rows = rows[(rows["cluster"] == cluster) & (rows["gpus_per_node"] > 1) & (rows["num_nodes"] > 1)]
        rows = rows[rows["collective"].map(OPERATIONS).isin(PHASES)]
        for (gpu, collective, rate), part in rows.groupby(["gpu", "collective", "rate"], sort=True):
            operation, who = OPERATIONS[str(collective)], device(str(gpu), folder)
            members, domains, nbytes, measured = (
                part[name].to_numpy(dtype=float)
                for name in ("gpus_per_node", "num_nodes", "message_bytes", "latency_us")
            )
            within = _alone(inside[operation], operation, who, who.peaks.scale_up, members, nbytes)
            between = _alone(outside[operation], operation, who, float(rate), domains, nbytes / members)
            names = np.full(len(part), operation)
            parts.append(TwoLevels(names, members, domains, within, between, nbytes, measured * 1e-6))
    return TwoLevels(*(np.concatenate(column) for column in zip(*parts, strict=True))) if parts else None


def _alone(
    constants: dict[str, float], operation: str, who: Device, rate: float, members: np.ndarray, nbytes: np.ndarray
) -> np.ndarray:
    """Seconds of an operation on one level."""
    return predict_collective(constants, CollectiveGroup("", operation, who, "", rate, members, nbytes, nbytes))


def fit_pipelined(rows: TwoLevels) -> np.ndarray:
    """The least mean absolute log error, by Nelder-Mead."""
    return minimize(lambda x: float(np.mean(np.abs(rows.errors(x)))), np.array(START), method="Nelder-Mead").x


def pipelined(rows: TwoLevels) -> tuple[Pipelined, str]:
    """The constants, and in words the median error of these rows, of operations and of sizes of nodes left out."""
    result = fit_pipelined(rows)
    said = [f"{len(rows.members)} rows, median residual {_median(rows.errors(result)):.1f} %"]
    for what, groups in (("operations", rows.operation), ("devices a node", rows.members)):
        apart = [
            rows.some(groups == one).errors(fit_pipelined(rows.some(groups != one)))
            for one in np.unique(groups)
            if (groups != one).any()
        ]
        if apart:
            said.append(f"{_median(np.concatenate(apart)):.1f} % of {what} left out")
    return pipelined_of(result), ", ".join(said)


def _median(errors: np.ndarray) -> float:
    """Per cent."""
    return 100 * float(np.median(np.abs(np.expm1(errors))))


# Fitted collectives as the `collective` configuration group.


HEADER = "# @package cluster.network.scale_up.collectives\n"
WIDEST = "gb200"  # most group sizes: the shape of curves beyond what a device was measured at
ORDER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
PIPELINED = "pipelined"
CURVE = (
    "norm",
    "hop_s",
    "tree_hops",
    "short_ratio",
    "switch_bytes",
)  # of `Pipelined`: the first three are fitted
NOT_FITTED = (
    "short_ratio: 1.8 x 0.47 us of 1.9 x 3.4 us [nccl_tuning]; switch_bytes assumed, the rows have 4e5 a member or more"
)
Node = dict[str, Any]
Operations = dict[str, tuple[Node, Node]]  # operation -> (node, provenance)


def fit_group(
    group: CollectiveGroup, relative: dict[str, float] | None, residuals: list[Node]
) -> tuple[dict[str, float], Node]:
    """Constants of one operation, their provenance, and a row of residuals above and below 1 MiB."""
    constants = fit_collective(group, relative)
    predicted = predict_collective(constants, group)
    large = group.nbytes >= SMALL_BYTES
    for label, chosen in (("from 1 MiB", large), ("below 1 MiB", ~large)):
        result = score(predicted[chosen], group.measured_s[chosen])
        residuals.append({"gpu": group.device.name, "framework": group.variant, "class": f"{group.operation} {label}",
                          "number_format": group.suite, **result._asdict()})  # fmt: skip
    chosen, where = (large, "from") if large.any() else (~large, "below")
    result = score(predicted[chosen], group.measured_s[chosen])
    sizes = ", ".join(f"{n:g}" for n in np.unique(group.members))
    return constants, {
        "source": "nccl_cluster" if group.suite == "scale_out" else SOURCE, "at": f"{group.variant}, n = {sizes}",
        "kind": "fitted",
        "note": f"{len(predicted)} rows, median residual {where} 1 MiB {100 * result.median:.1f} %, "
        f"at a link latency of {LINK_LATENCY_S:g} s",
    }  # fmt: skip


def _node(operation: str, constants: dict[str, float]) -> Node:
    numbers = {key: significant(value) for key, value in constants.items()}
    return {"_target_": "codesign.model.networks.collectives.Measured", "rounds": rounds(operation)} | numbers


def _send(all_to_all: Node, origin: Node) -> tuple[Node, Node]:
    """A message to a neighbour runs at the rate of an exchange between two."""
    node = {
        "_target_": "codesign.model.networks.collectives.Tuned",
        "inner": {"_target_": "codesign.model.networks.collectives.Send"},
        "launch_s": all_to_all["base_2_s"], "bandwidth_ratio": all_to_all["ratio_2"],
    }  # fmt: skip
    return node, origin | {"kind": "derived", "note": "base_2_s and ratio_2 of the all-to-all"}


def _measured_send(group: CollectiveGroup | None, all_to_all: tuple[Node, Node]) -> tuple[Node, Node]:
    """A message to a neighbour at the median rate of the large ones measured."""
    node, origin = _send(*all_to_all)
    if group is None:
        return node, origin
    rate = float(np.median(group.nbytes / group.measured_s)) / group.bandwidth_bytes_per_s
    note = f"{len(group.nbytes)} rows: median rate over the link's; launch as base_2_s of the all-to-all"
    return node | {"bandwidth_ratio": significant(rate)}, origin | {"kind": "fitted", "note": note}


def text(title: str, operations: Operations) -> str:
    """One file of the `collective` group."""
    lines = [HEADER, f"# {title}\n", "_target_: codesign.model.networks.collectives.Collectives\n"]
    named = [name for name in (*ORDER, PIPELINED) if name in operations]
    for name in named:
        lines.append(f"{name}:\n")
        lines += [f"  {key}: {inline(value)}\n" for key, value in operations[name][0].items()]
    return "".join([*lines, *provenance_lines({name: operations[name][1] for name in named})])


def calibrate_collectives(
    directory: Path, out: Path, messages: list[str], progress: Callable[[str], None]
) -> tuple[dict[Path, str], list[Node]]:
    """Fit all collective tables below a folder: content of `nccl_<accelerator>.yaml` and its variants, residuals."""
    residuals: list[Node] = []
    library, origins = _fit(list(scale_up_groups(directory, messages)), residuals, progress)
    custom, custom_origins = _fit(list(scale_up_groups(directory, messages, "custom_all_reduce")), residuals, progress)
    texts, sets = {}, {}
    for accelerator in calibrated():
        operations = _complete(accelerator, library, origins)
        if operations:
            sets[accelerator] = operations
            title = f"NCCL inside one scale-up domain of {accelerator}, fitted by `codesign calibrate`."
            texts[out / f"nccl_{accelerator}.yaml"] = text(title, operations)
    for (accelerator, variant, operation), constants in sorted(custom.items()):
        if accelerator not in sets:
            continue
        origin = custom_origins[accelerator, variant, operation]
        operations = sets[accelerator] | {operation: (_node(operation, constants), origin)}
        title = f"NCCL on {accelerator} with the all-reduce {variant}, fitted by `codesign calibrate`."
        texts[out / "custom" / f"{variant.lower()}_{accelerator}.yaml"] = text(title, operations)
    return texts | _scale_out(directory, out, sets, messages, residuals, progress), residuals


Fits = dict[tuple[str, str, str], dict[str, float]]


def _fit(
    groups: list[CollectiveGroup], residuals: list[Node], progress: Callable[[str], None]
) -> tuple[Fits, dict[tuple[str, str, str], Node]]:
    """Fit devices with most group sizes first, so that others may follow the shape of their curves."""
    fits, origins = Fits(), {}
    for group in sorted(groups, key=lambda g: -len(np.unique(g.members))):
        accelerator = group.device.accelerator

        def measured(other: str, what: tuple[str, str] = (group.variant, group.operation)) -> bool:
            return (other, *what) in fits

        shape = lent(fits, [*wired_alike(accelerator, measured), *filter(measured, [WIDEST])][:1], group)
        if group.device.exact:
            key = (accelerator, group.variant, group.operation)
            fits[key], origins[key] = fit_group(group, shape, residuals)
            progress(f"{group.operation} {group.variant} {group.device.name}: {origins[key]['note']}")
    return fits, origins


def lent(fits: Fits, owners: list[str], group: CollectiveGroup) -> dict[str, float] | None:
    """Constants that owners lend to a group, or None."""
    return between([fits[owner, group.variant, group.operation] for owner in owners]) if owners else None


def between(constants: list[dict[str, Any]]) -> dict[str, float]:
    """Logarithmic mean of the constants of relatives."""
    return {name: float(np.exp(np.mean([np.log(each[name]) for each in constants]))) for name in RANGES}


def _complete(accelerator: str, fits: Fits, origins: dict[tuple[str, str, str], Node]) -> Operations:
    """All five operations of an accelerator; what was not measured comes from the device wired most alike."""
    result: Operations = {}
    for operation in ORDER[:-1]:

        def measured(other: str, operation: str = operation) -> bool:
            return (other, "nccl", operation) in fits

        if measured(accelerator):
            key = (accelerator, "nccl", operation)
            result[operation] = (_node(operation, fits[key]), origins[key])
            continue
        owners = wired_alike(accelerator, measured)
        if owners:
            keys = [(owner, "nccl", operation) for owner in owners]
            lenders = " and ".join(f"{key[0]} ({origins[key]['note']})" for key in keys)
            note = f"inherited from {lenders}; not measured on this device"
            origin = origins[keys[0]] | {"kind": "derived", "note": note}
            result[operation] = (_node(operation, between([fits[key] for key in keys])), origin)
    if len(result) < len(ORDER) - 1:
        return {}
    return result | {"send": _send(*result["all_to_all"])}


def _scale_out(
    directory: Path, out: Path, sets: dict[str, Operations], messages: list[str], residuals: list[Node],
    progress: Callable[[str], None],
) -> dict[Path, str]:  # fmt: skip
    """The library between nodes, from groups with one device a node; sends as measured; both levels at once."""
    by_cluster: dict[tuple[str, str], dict[str, CollectiveGroup]] = defaultdict(dict)
    for group in scale_out_groups(directory, messages):
        by_cluster[group.device.accelerator, group.variant][group.operation] = group
    texts = {}
    for (accelerator, cluster), groups in by_cluster.items():
        if not set(ORDER[:-1]) <= set(groups):
            messages.append(f"scale-out cluster {cluster}: not every operation measured with one device a node")
            continue
        operations: Operations = {}
        for operation in ORDER[:-1]:
            constants, origin = fit_group(groups[operation], None, residuals)
            operations[operation] = (_node(operation, constants), origin)
            progress(f"{operation} {cluster}: {origin['note']}")
        operations["send"] = _measured_send(groups.get("send"), operations["all_to_all"])
        operations |= _pipelined(directory, cluster, sets.get(accelerator, {}), operations)
        name = accelerator.removesuffix("_sxm")
        title = f"NCCL between nodes of {accelerator}, cluster {cluster}, fitted by `codesign calibrate`."
        texts[out / f"nccl_scaleout_{name}.yaml"] = text(title, operations)
    return texts


def _pipelined(directory: Path, cluster: str, inside: Operations, outside: Operations) -> Operations:
    """Fitted pipelining of collective phases across both levels, with its provenance; empty if it was not measured."""
    if not inside:
        return {}
    of_levels = [
        {name: {key: level[name][0][key] for key in RANGES} for name in ORDER[:-1]} for level in (inside, outside)
    ]
    rows = two_levels(directory, cluster, *of_levels)
    if rows is None:
        return {}
    result, fitted = pipelined(rows)
    node = {"_target_": "codesign.model.networks.collectives.Pipelined"}
    node |= {key: significant(float(getattr(result, key))) for key in CURVE}
    note = f"{fitted}; {NOT_FITTED}"
    return {PIPELINED: (node, {"source": "nccl_cluster", "at": cluster, "kind": "fitted", "note": note})}
