"""Calibrate from little: some kernel rows and a few whole steps of one's own machine, near the constants at hand.

Constants of a class are pulled towards those the device has now, its own or what relatives lend it, so that ten to
thirty rows move what they tell and nothing else. A training step's kernel_slowdown is the mean logarithm of measured
over predicted, as of one row more that found nothing. Each is judged on rows left out of its own fit, before and after.

With a generation left out, 10 rows a class bring its error from about 15 to 8 %, 30 to 6 or 7; fewer make it worse.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...config.groups import conf_dir
from ...core.errors import DataError
from ...model.scenario import Cluster
from ..calibration.calibrate import part
from ..calibration.constants import Node, constants_file, load, node, provenance_lines, publish, text
from ..calibration.fit import bounds, fit, predict, rows_of
from ..calibration.kernels import TableGroup, kernel_groups
from ..measurements import tables
from .framework import adjustment, judged
from .measured_kernels import kernel_node
from .published_training import TABLES, prepare
from .scores import Row, set_aside

__all__ = ["FEWEST_ROWS", "FEWEST_STEPS", "calibrate_near", "near", "slowdown_of"]

FEWEST_ROWS, FEWEST_STEPS = 10, 3
PULL = 0.3  # residual per e-fold away from the constants at hand: the best of 0.1, 0.3, 1 with generations left out
FOLDS = 5
Progress = Callable[[str], None]


class HeldOut(NamedTuple):
    """Errors of a fit: what was fitted, of how many rows, and median errors of rows left out, before and after."""

    what: str
    rows: int
    before: float
    after: float

    def row(self) -> Row:
        """For a table."""
        return self._asdict()


def prior_of(group: TableGroup, constants: Node) -> np.ndarray:
    """Log constants at hand, in the order of the table."""
    start, low, high = bounds(group.table)
    start_values = [
        float(constants[name]) if name in constants else float(np.exp(s))
        for name, s in zip(group.table.ranges, start, strict=True)
    ]
    return np.clip(np.log(np.maximum(start_values, 1e-300)), low, high)


def near(group: TableGroup, prior: np.ndarray) -> tuple[np.ndarray, HeldOut]:
    """Log constants near a prior, and the error of each fifth of the rows by a fit on the others."""
    count = len(group.measured_s)
    fold = np.random.default_rng(0).permutation(count) % FOLDS
    after = np.empty(count)
    for number in range(FOLDS):
        seen = part(group, fold != number)
        mine = part(group, fold == number)
        after[fold == number] = predict(group.table, fit(group.table, rows_of([seen]), prior, PULL), mine)
    before = predict(group.table, prior, group)
    errors = (float(np.median(np.abs(seconds / group.measured_s - 1))) for seconds in (before, after))
    return fit(group.table, rows_of([group]), prior, PULL), HeldOut(group.label, count, *errors)


def slowdown_of(ratios: np.ndarray) -> float:
    """kernel_slowdown of measured over predicted steps, as of one row more that found nothing."""
    return float(np.exp(np.log(ratios).sum() / (len(ratios) + 1)))


def kernels_near(directory: Path, progress: Progress) -> Iterator[tuple[TableGroup, dict[str, Any], HeldOut]]:
    """Every group of enough rows with constants to start from."""
    messages: list[str] = []
    for group in kernel_groups(directory, messages, least=FEWEST_ROWS):
        entry = kernel_node(group, group.device.accelerator, messages)
        if entry is None:
            messages.append(f"{group.label}: no constants to start from, not fitted")
            continue
        theta, outcome = near(group, prior_of(group, entry))
        constants = dict(zip(group.table.ranges, np.exp(theta).tolist(), strict=True))
        yield group, node(group.table, constants, group), outcome
    for message in dict.fromkeys(messages):
        progress(message)


def steps_near(
    directory: Path, clusters: Callable[[str], Cluster], progress: Progress
) -> Iterator[tuple[str, float, HeldOut]]:
    """Every table of at least three steps that can be priced."""
    for table in tables(directory, *TABLES):
        messages: list[str] = []
        prepared = prepare(table, clusters, messages)
        frame = judged(prepared.predict().frame)
        messages += set_aside(table.shown, prepared.refused)
        if len(frame) < FEWEST_STEPS:
            messages.append(f"{table.shown}: {len(frame)} steps, not fitted; allowed: at least {FEWEST_STEPS}")
        else:
            measured = frame["measured_s"].to_numpy(dtype=float)
            plain = measured / frame["predicted_s"].to_numpy(dtype=float)
            others = [slowdown_of(np.delete(plain, i)) for i in range(len(plain))]
            after = [
                float(judged(prepared.predict(adjustment({"kernel_slowdown": g})).frame)["predicted_s"].iloc[i])
                / measured[i]
                for i, g in enumerate(others)
            ]
            errors = (float(np.median(np.abs(np.asarray(ours) - 1))) for ours in (1 / plain, after))
            yield table.path.stem, slowdown_of(plain), HeldOut(f"{table.shown}: steps", len(plain), *errors)
        for message in messages:
            progress(message)


def calibrate_near(
    directory: str | Path, out: str | Path, clusters: Callable[[str], Cluster], progress: Progress
) -> tuple[list[Path], list[Row]]:
    """Fit what a small folder tells and write it under `out`: kernels of each device, slowdown of each table of steps.

    Raises:
        DataError: nothing of it is enough.
    """
    directory, out = Path(directory), Path(out)
    outcomes: list[Row] = []
    kernels: dict[tuple[str, str], dict[str, Any]] = {}
    origins: dict[tuple[str, str], dict[str, Any]] = {}
    for group, entry, outcome in kernels_near(directory, progress):
        outcomes.append(outcome.row())
        if outcome.after >= outcome.before:
            progress(f"{outcome.what}: the constants at hand are no worse, they stay")
            continue
        key, kind = (group.device.accelerator, group.framework), group.table.name
        stored = load(constants_file(conf_dir() / "calibration", *key))
        kernels.setdefault(key, {name: dict(formats) for name, formats in stored.items() if name != "provenance"})
        origins.setdefault(key, dict(stored.get("provenance", {})))
        kernels[key].setdefault(kind, {})[group.number_format] = entry
        note = (
            f"{outcome.rows} rows near the constants at hand, {outcome.before:.1%} before, {outcome.after:.1%} held out"
        )
        origin = {"source": directory.name, "at": kind, "kind": "fitted", "note": note}
        origins[key][f"{kind}.{group.number_format}"] = origin
    texts: dict[Path, str | bytes] = {}
    for key, formats in kernels.items():
        title = f"Kernel constants of {key[0]} under {key[1]}, fitted by `codesign calibrate --few-shot`."
        texts[constants_file(out, *key)] = text(title, formats, origins[key])
    for stem, slowdown, outcome in steps_near(directory, clusters, progress):
        note = f"{outcome.rows} steps, {outcome.before:.1%} before, {outcome.after:.1%} held out"
        origin = {"kernel_slowdown": {"source": stem, "at": stem, "kind": "fitted", "note": note}}
        lines = (
            f"# @package workload\n# Fitted by `codesign calibrate --few-shot` on {stem}\n"
            f"kernel_slowdown: {slowdown:.4g}\n"
        )
        texts[out / "framework" / f"{stem}.yaml"] = lines + "".join(provenance_lines(origin))
        outcomes.append(outcome.row())
    if not outcomes:
        raise DataError(
            f"{directory}: too little to fit on; allowed: at least {FEWEST_ROWS} rows of a class of kernels, framework"
            f" and number format, or {FEWEST_STEPS} steps"
        )
    return publish(texts) if texts else [], outcomes
