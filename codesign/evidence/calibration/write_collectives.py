"""Fitted collectives as the `collective` configuration group."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .collectives import (  # fmt: skip
    LINK_LATENCY_S,
    RANGES,
    SMALL_BYTES,
    CollectiveGroup,
    fit_collective,
    predict_collective,
    rounds,
    scale_out_groups,
    scale_up_groups,
)
from .constants import SOURCE, inline, provenance_lines, significant
from .fit_pipelined import pipelined, two_levels
from .gpus import calibrated, wired_alike
from .prediction_errors import score

HEADER = "# @package cluster.network.scale_up.collectives\n"
WIDEST = "gb200"  # most group sizes: the shape of curves beyond what a device was measured at
ORDER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
PIPELINED = "pipelined"
TOLD = ("norm", "hop_s", "tree_hops", "short_ratio", "switch_bytes")  # of `Pipelined`: the first three are fitted
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
    known = [name for name in (*ORDER, PIPELINED) if name in operations]
    for name in known:
        lines.append(f"{name}:\n")
        lines += [f"  {key}: {inline(value)}\n" for key, value in operations[name][0].items()]
    return "".join([*lines, *provenance_lines({name: operations[name][1] for name in known})])


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
        own = group.device.accelerator

        def measured(other: str, what: tuple[str, str] = (group.variant, group.operation)) -> bool:
            return (other, *what) in fits

        shape = lent(fits, [*wired_alike(own, measured), *filter(measured, [WIDEST])][:1], group)
        if group.device.exact:
            key = (own, group.variant, group.operation)
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
    node |= {key: significant(float(getattr(result, key))) for key in TOLD}
    note = f"{fitted}; {NOT_FITTED}"
    return {PIPELINED: (node, {"source": "nccl_cluster", "at": cluster, "kind": "fitted", "note": note})}
