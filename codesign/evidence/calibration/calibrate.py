"""Fit everything a folder of measurements holds, and write it as configuration."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from ...core.errors import DataError
from .board_power import calibrate_power
from .collectives import calibrate_collectives
from .constants import REFERENCE, SOURCE, Kernels, Node, chip_provenance, constants_file, inherited, node, publish, text
from .fit import NOISY_S, Score, fit, predict, rows_of, score
from .gpus import accelerators, calibrated, stand_ins
from .kernels import LEAST_ROWS, ROOFLINES, TABLES, KernelTable, TableGroup, kernel_groups, unknown
from .learned_factors import Learned, learn

Progress = Callable[[str], None]
POOL_PULL, DEVICE_PULL, HELD_OUT = 0.03, 0.1, 0.3


class Fitted(dict[tuple[str, str, str, str], Node]):
    """(accelerator, framework, class, number format) -> kernel node."""


def part(group: TableGroup, chosen: np.ndarray) -> TableGroup:
    """Some rows of a group."""
    works = [{name: column[chosen] for name, column in columns.items()} for columns in group.works]
    return group._replace(works=works, measured_s=group.measured_s[chosen])


def fit_together(table: KernelTable, members: list[TableGroup]) -> list[np.ndarray]:
    """Log constants of devices measured under one framework and number format.

    All are first fitted as one; each device then stays near that.
    """
    pooled = fit(table, rows_of(members), None, POOL_PULL)
    return [fit(table, rows_of([group]), pooled, DEVICE_PULL) for group in members]


def held_out(table: KernelTable, members: list[TableGroup]) -> list[float]:
    """Median error of each device on the 30 % of its rows above 10 us that a second fit did not see."""
    rng = np.random.default_rng(0)
    hidden = [rng.random(len(group.measured_s)) < HELD_OUT for group in members]
    seen = [part(group, ~rows) for group, rows in zip(members, hidden, strict=True)]
    result = []
    for theta, group, rows in zip(fit_together(table, seen), members, hidden, strict=True):
        rest = part(group, rows & (group.measured_s > NOISY_S))
        result.append(score(predict(table, theta, rest), rest.measured_s).median)
    return result


def fit_kernels(
    groups: list[TableGroup], tables: Iterable[KernelTable], progress: Progress
) -> tuple[Fitted, dict[tuple[str, ...], Node], list[dict[str, object]]]:
    """Constants, provenance and residuals of every group."""
    fitted, provenance, residuals = Fitted(), {}, []
    for table in tables:
        together: dict[tuple[str, str], list[TableGroup]] = defaultdict(list)
        for group in groups:
            if group.table.name == table.name.removesuffix("_roofline"):
                together[group.framework, group.number_format].append(group)
        for (framework, number_format), members in sorted(together.items()):
            started, errors = time.perf_counter(), []
            hidden = held_out(table, members)
            for group, theta, unseen in zip(members, fit_together(table, members), hidden, strict=True):
                constants = dict(zip(table.ranges, np.exp(theta).tolist(), strict=True))
                slow = group.measured_s > NOISY_S
                result = score(predict(table, theta, group)[slow], group.measured_s[slow])
                key = (group.device.accelerator, framework, group.table.name, number_format)
                fitted[key] = node(table, constants, group)
                provenance[key] = _origin(group, result, unseen)
                label = {"gpu": group.device.name, "framework": framework, "class": table.name}
                residuals.append({**label, "number_format": number_format, **result._asdict(), "held_out": unseen})
                errors.append(result.median)
            spent, error = time.perf_counter() - started, 100 * float(np.median(errors))
            what = f"{table.name} {number_format} {framework}"
            progress(f"{what}: {len(members)} devices, median {error:.1f} %, {spent:.1f} s")
    return fitted, provenance, residuals


def _origin(group: TableGroup, score: Score, unseen: float) -> Node:
    note = f"{score.n} rows above 10 us, median residual {100 * score.median:.1f} %, {100 * unseen:.1f} % held out"
    at = group.table.pattern.removesuffix(".csv").rstrip("_*")
    return {"source": SOURCE, "at": at, "kind": "fitted", "note": f"{group.framework}, {note}"}


def inherit(
    accelerator: str, framework: str, fitted: Fitted, provenance: dict[tuple[str, ...], Node]
) -> tuple[Kernels, dict[str, Node]]:
    """All classes and number formats of one accelerator; what was not measured comes from its relatives."""
    kernels: Kernels = defaultdict(dict)
    notes: dict[str, Node] = {}
    wanted = sorted({key[2:] for key in fitted if key[1] == framework}, key=lambda k: (_order(k[0]), k[1]))
    for kind, number_format in wanted:

        def measured(other: str, what: tuple[str, str, str] = (framework, kind, number_format)) -> bool:
            return (other, *what) in fitted

        owners = [accelerator] if measured(accelerator) else stand_ins(accelerator, measured)
        keys = [(owner, framework, kind, number_format) for owner in owners]
        entry, origin = _entry(accelerator, keys, fitted, provenance)
        if entry:
            kernels[kind][number_format] = entry
            notes[f"{kind}.{number_format}"] = origin
            if "chip" in entry:
                notes[f"{kind}.{number_format}.chip"] = chip_provenance(accelerator)
    return dict(kernels), notes


def _entry(
    accelerator: str, keys: list[tuple[str, str, str, str]], fitted: Fitted, provenance: dict[tuple[str, ...], Node]
) -> tuple[Node, Node]:
    """A device's own entry with its origin, or what its relatives lend it."""
    if not keys:
        return {}, {}
    if keys[0][0] == accelerator:
        return fitted[keys[0]], provenance[keys[0]]
    entry = inherited(keys[0][2], [fitted[key] for key in keys], accelerator, keys[0][3])
    lenders = " and ".join(f"{key[0]} ({provenance[key]['note']})" for key in keys)
    note = f"inherited from {lenders}; not measured on this device"
    return entry, provenance[keys[0]] | {"kind": "derived", "note": note}


def _order(kind: str) -> int:
    return [table.name for table in TABLES].index(kind)


def _texts(out: Path, fitted: Fitted, provenance: dict[tuple[str, ...], Node], variant: str) -> dict[Path, str]:
    """Path -> content of the files of all accelerators."""
    texts: dict[Path, str] = {}
    measured = {key[0] for key in fitted}
    for framework in sorted({key[1] for key in fitted}):
        mine = {key[0] for key in fitted if key[1] == framework}
        targets = (
            calibrated() if framework == REFERENCE else mine | {name for name in calibrated() if _other_cut(name, mine)}
        )
        for accelerator in sorted(targets):
            kernels, notes = inherit(accelerator, framework, fitted, provenance)
            if not kernels:
                continue
            title = f"Kernel constants of {accelerator} under {framework}, fitted by `codesign calibrate`."
            if accelerator not in measured:
                title = f"Kernel constants of {accelerator}: not measured, taken from its nearest relative."
            texts[constants_file(out, accelerator, framework, variant)] = text(title, kernels, notes)
    return texts


def _other_cut(accelerator: str, measured: set[str]) -> bool:
    """True for a chip of a measured generation with another number of processors: an engine's tiles fall otherwise."""
    here = accelerators()[accelerator]
    lenders = [accelerators()[name] for side in here.relatives for name in side if name in measured]
    return any(one.generation == here.generation and one.processors != here.processors for one in lenders)


def calibrate(directory: str | Path, out: str | Path = "conf/calibration", progress: Progress = print) -> list[Path]:
    """Fit every table of kernels, collectives and board power below a folder; write constants and residuals.

    Nothing is written before everything is fitted; the same tables give the same files.

    Args:
        directory: tables in the schema of `docs`, any subset of them, at any depth.
        out: folder of the `calibration` group; `collective` beside it takes the collectives.
        progress: called with a line for each step, and for each table or column that is not used.

    Returns:
        Files written.

    Raises:
        DataError: the folder holds no table that can be fitted, or a table lacks columns.
    """
    directory, out = Path(directory), Path(out)
    if not directory.is_dir():
        raise DataError(f"{directory} is no folder")
    messages: list[str] = unknown(directory)
    groups = [group for group in kernel_groups(directory, messages, least=LEAST_ROWS) if group.device.exact]
    texts: dict[Path, str | bytes] = {}
    residuals: list[dict[str, object]] = []
    learned = Learned({}, [])
    for tables, variant in ((TABLES, ""), (ROOFLINES, "_roofline")):
        mine = groups if variant == "" else [group for group in groups if group.framework == REFERENCE]
        fitted, provenance, result = fit_kernels(mine, tables, progress)
        texts |= _texts(out, fitted, provenance, variant)
        residuals += result
        if variant == "":
            learned = learn(groups, fitted, progress)
            texts |= {out / "residual" / name: content for name, content in learned.files.items()}
    for others in (
        calibrate_collectives(directory, out.parent / "collective", messages, progress),
        calibrate_power(directory, out / "power", messages, progress),
    ):
        texts |= others[0]
        residuals += others[1]
    if not texts:
        raise DataError(f"{directory} holds no table of kernels, collectives or board power that can be fitted")
    for message in dict.fromkeys(messages):
        progress(message)
    if learned.card:
        card = pd.DataFrame(learned.card).round(4)
        texts[out / "residual" / "card.csv"] = card.to_csv(index=False, lineterminator="\n")
    texts[out / "residuals.csv"] = pd.DataFrame(residuals).round(4).to_csv(index=False, lineterminator="\n")
    return publish(texts)
