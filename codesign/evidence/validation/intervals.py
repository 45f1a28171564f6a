"""Intervals of predictions, fitted on errors of cross-validation: `codesign calibrate DIR --intervals`.

Kernels: rows, devices and generations left out (`calibration.crossed`). Collectives: devices left out. Whole jobs: each
table of measured steps or requests is a source; those whose framework was fitted, and those read without one.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...core.errors import ConfigError, suggestion
from ...uncertainty.draws import wires_of
from ...uncertainty.spreads import ANY, FILE, LEARNED, MEASURED, NEW, PHYSICS, RELATIVE, PredictionErrors, as_text
from ..calibration import learned_factors
from ..calibration.constants import publish
from ..calibration.gpus import accelerator_of
from ..calibration.kernels import LEAST_ROWS, TableGroup, kernel_groups
from ..calibration.learned_factors import LEARNED as LEARNED_CLASSES
from ..measurements import survey
from .measured_kernels import STRATA, constants
from .row_overrides import measured_cluster
from .scores import Errors, observed, stratum_name, word

FEWEST = 10  # rows of a kind below which nothing is said
LEAST_SHARE = 0.05  # of all rows: a device and model of fewer is no group of its own
PARTS = 5  # of rows at random: each is held against the quantiles of the others
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
RATES = ("output_tokens_per_s_per_gpu",)  # measured over predicted the other way round
SHARDED = ("ZeRO-3", "MosaicML")  # strata whose parameters are gathered in every pass
UNNAMED = ", engine not named"
OTHERS = ", GPU and model left out"
FIRST_TOKENS = ("static-batch inference", f"concurrency to 4{UNNAMED}")
"""Strata in which the first token does not wait for others: beyond, the error is that of a queue, not of a machine."""


def _sharded(stratum: str) -> bool:
    return any(name in stratum for name in SHARDED)


SOURCES: dict[str, tuple[tuple[str, ...], Callable[[str], bool]]] = {
    "training": (("step_time",), lambda stratum: "," not in stratum and "ZeRO-3" not in stratum),
    "training, parameters sharded": (("step_time",), lambda stratum: "," not in stratum and _sharded(stratum)),
    "training, framework named": (("step_time",), lambda stratum: ", framework" in stratum and "ZeRO-3" not in stratum),
    "training, parameters sharded, framework named": (
        ("step_time",),
        lambda stratum: ", framework" in stratum and _sharded(stratum),
    ),
    "ttft": (("first_token_latency", "ttft"), lambda stratum: stratum in FIRST_TOKENS),
    "tpot": ((RATES[0],), lambda stratum: "," not in stratum),
    "tpot, closed loop": (("tpot",), lambda stratum: stratum.endswith(UNNAMED)),
    "tpot, closed loop, framework named": (
        ("tpot", "itl"),
        lambda stratum: stratum in (f"every concurrency{OTHERS}", "this model"),
    ),
    "ttft, framework named": (("ttft",), lambda stratum: stratum in (f"concurrency to 4{OTHERS}", "this model")),
    "tpot, two pools, framework named": (("tpot",), lambda stratum: stratum == "every concurrency"),
    "ttft, two pools, framework named": (("ttft",), lambda stratum: stratum.startswith("concurrency ")),
    "power": (("board_power",), lambda stratum: stratum != "steady decoding"),
}
"""Errors of whole jobs -> quantities of suites, and strata that are read without anything fitted on them."""
OF_ONE_SUITE: dict[str, str] = dict.fromkeys(
    ("tpot, two pools, framework named", "ttft, two pools, framework named"), "disaggregated"
)
"""Source -> the suite that alone is read for it: another has a stratum of that name, which was fitted."""


class SuiteErrors(NamedTuple):
    """Errors of what a suite compared."""

    suite: str
    quantity: str
    errors: Errors


def crossings(directory: Path, progress: Callable[[str], None]) -> pd.DataFrame:
    """Errors of every row left out, of every class that has learned factors."""
    groups = [group for group in kernel_groups(directory, [], least=LEAST_ROWS) if group.device.exact]
    frames: list[pd.DataFrame] = []
    for kind in LEARNED_CLASSES:
        members = [group for group in groups if group.table.name == kind and _has_constants(group)]
        if not members:
            continue
        fitted = {_key(group): constants(group.device.accelerator, group.framework)[kind][group.number_format]
                  for group in members}  # fmt: skip
        crossing = learned_factors.prepared(members, fitted)
        frames += learned_factors.at_random(crossing)
        for case in learned_factors.cases({group.device.accelerator for group in members}):
            result = learned_factors.left_out(crossing, case)
            frames += result
            if result:
                errors = pd.concat(result)
                before, after = (float(np.median(np.abs(np.expm1(-errors[name])))) for name in (PHYSICS, LEARNED))
                what = f"{kind}: {' '.join(sorted(case.accelerators))} left out ({case.regime})"
                progress(f"{what}, {len(errors)} rows, median {before:.1%}, learned {after:.1%}")
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _key(group: TableGroup) -> tuple[str, str, str, str]:
    return (group.device.accelerator, group.framework, group.table.name, group.number_format)


def _has_constants(group: TableGroup) -> bool:
    return group.number_format in constants(group.device.accelerator, group.framework).get(group.table.name, {})


def of_kernels(frame: pd.DataFrame) -> Iterator[PredictionErrors]:
    """Errors of a class, of a class and number format, of strata that `codesign validate` names, and of any class."""
    frame = frame.assign(
        name=frame["class"], group=frame["case"] + " " + frame["framework"],
        both=frame["class"] + " " + frame["number_format"],
    )  # fmt: skip
    for regime, rows in frame.groupby("regime", sort=True):
        if regime == MEASURED:  # rows at random: a device and framework stands for what it shares
            rows = rows.assign(group=rows["gpu"] + " " + rows["framework"])
        else:
            rows = rows.assign(group=rows["gpu"])
        for model in (PHYSICS, LEARNED):
            for column in ("name", "both"):
                for name, part in rows.groupby(column, sort=True):
                    yield from _missed("kernel", str(name), model, str(regime), part[model], part["group"], part["gpu"])
            yield from _missed("kernel", ANY, model, str(regime), rows[model], rows["class"], rows["gpu"])
        yield from _strata_of_kernels(rows, str(regime))


def _strata_of_kernels(rows: pd.DataFrame, regime: str) -> Iterator[PredictionErrors]:
    names = rows["class"].map(STRATA).fillna(rows["both"])
    for stratum, part in rows.groupby(names, sort=True):
        for model, suffix in ((LEARNED, ""), (PHYSICS, ", physics alone"), (PHYSICS, ", GPU left out")):
            if suffix != ", GPU left out" or regime != MEASURED:
                name = stratum_name("kernels", f"{stratum}{suffix}", "latency")
                yield from _missed("stratum", name, LEARNED, regime, part[model], part["group"], part["gpu"])


def _missed(
    kind: str,
    name: str,
    model: str,
    regime: str,
    errors: "pd.Series[float]",
    groups: "pd.Series[str]",
    gpus: "pd.Series[str]",
) -> Iterator[PredictionErrors]:
    if len(errors) >= FEWEST:
        members = _members(set(gpus)) if regime == MEASURED else ()
        yield PredictionErrors(kind, name, model, regime, errors.to_numpy(), groups.to_numpy(), members)


def _members(gpus: set[str]) -> tuple[str, ...]:
    return tuple(sorted({f"{accelerator_of(gpu) or gpu}:{_generation(gpu)}" for gpu in gpus}))


def _generation(gpu: str) -> str:
    return learned_factors.generation_of(accelerator_of(gpu) or gpu)


def _log(seen: SuiteErrors, of_times: bool) -> np.ndarray:
    """log(measured / predicted); of rates the other way round where what is drawn are times."""
    ratio = np.log(seen.errors.measured / seen.errors.predicted)
    return -ratio if of_times and seen.quantity in RATES else ratio


def _together(
    kind: str, name: str, regime: str, seen: Sequence[SuiteErrors], groups: Sequence[str]
) -> Iterator[PredictionErrors]:
    errors = np.concatenate([_log(one, of_times=kind != "stratum") for one in seen]) if seen else np.empty(0)
    named = np.concatenate(
        [np.full(len(one.errors.measured), g) for one, g in zip(seen, groups, strict=True)] or [errors]
    )
    finite = np.isfinite(errors)
    if finite.sum() >= FEWEST:
        yield PredictionErrors(
            kind, name, PHYSICS if kind != "stratum" else LEARNED, regime, errors[finite], named[finite]
        )


def of_collectives(seen: Sequence[SuiteErrors]) -> Iterator[PredictionErrors]:
    """Errors of an operation: rows of measured devices; devices left out with and without one of their generation."""
    mine = [one for one in seen if one.suite == "collectives" and one.errors.stratum.startswith("collectives ")]
    gpus = {one.errors.group.rpartition(" ")[0] for one in mine}
    members = _members(gpus)
    for operation in (*OPERATIONS, ANY):
        rows = [one for one in mine if operation in (ANY, one.errors.group.split()[-1])]
        for regime in (MEASURED, RELATIVE, NEW) if operation == ANY else (MEASURED, RELATIVE):
            chosen = [one for one in rows if _regime_of_wire(one, gpus) == regime]
            groups = [one.errors.group.rpartition(" ")[0] for one in chosen]
            for missed in _together("collective", operation, regime, chosen, groups):
                yield missed._replace(members=members if regime == MEASURED else ())
            kinds = [wires_of(measured_cluster(gpu)) for gpu in groups] if regime == NEW else []
            for kind in sorted(set(kinds)):
                indices = [index for index, other in enumerate(kinds) if other == kind]
                alike, theirs = ([several[position] for position in indices] for several in (chosen, groups))
                yield from _together("collective", kind, NEW, alike, theirs)


def _regime_of_wire(seen: SuiteErrors, gpus: set[str]) -> str:
    if not seen.errors.stratum.endswith(", GPU left out"):
        return MEASURED
    device = seen.errors.group.rpartition(" ")[0]
    family = {_generation(gpu) for gpu in gpus - {device}}
    return RELATIVE if _generation(device) in family else NEW


def of_sources(seen: Sequence[SuiteErrors]) -> Iterator[PredictionErrors]:
    """Errors of whole jobs: a source is a stratum of a suite, or a device of one."""
    for name, (quantities, chosen) in SOURCES.items():
        rows = [one for one in seen if one.quantity in quantities and chosen(one.errors.stratum)
                and one.suite == OF_ONE_SUITE.get(name, one.suite)]  # fmt: skip
        least = max(FEWEST, LEAST_SHARE * sum(len(one.errors.measured) for one in rows))
        sizes: dict[tuple[str, str], int] = {}
        for one in rows:
            key = (one.errors.stratum, one.errors.group)
            sizes[key] = sizes.get(key, 0) + len(one.errors.measured)
        groups = [_source(one, sizes[one.errors.stratum, one.errors.group] < least) for one in rows]
        yield from _together("source", name, NEW, rows, groups)


def _source(seen: SuiteErrors, small: bool) -> str:
    """Source measured together: a table of training steps; of requests a device and model, of few rows the table."""
    few = seen.quantity == "step_time" or small
    return seen.errors.stratum if few else f"{seen.errors.stratum} {seen.errors.group}"


def of_strata(seen: Sequence[SuiteErrors]) -> Iterator[PredictionErrors]:
    """Errors of every stratum that a suite scores, kernels apart, and of its parts: rows at random, groups left out.

    A group that was measured is covered as rows that were left out at random are; any other as groups that were.
    """
    names: dict[str, list[SuiteErrors]] = {}
    for one in seen:
        if not one.errors.stratum.startswith("peer "):
            for name in one.errors.spreads(one.suite, one.quantity):
                names.setdefault(name, []).append(one)
    learned = {*STRATA.values()} - {"elementwise"}
    for name, rows in sorted(names.items()):
        stratum = rows[0].errors.stratum.partition(",")[0]
        if rows[0].suite != "kernels" or (stratum not in learned and not stratum.startswith("gemm ")):
            groups = [one.errors.group for one in rows]
            for missed in _together("stratum", name, MEASURED, rows, groups):
                parts = np.random.default_rng(0).permutation(len(missed.errors)) % PARTS
                yield missed._replace(groups=parts, members=tuple(sorted(set(map(word, groups)))))
                yield from _apart(missed)


def _apart(missed: PredictionErrors) -> Iterator[PredictionErrors]:
    """Errors of groups left out, the smallest of them together; nothing of what is one group."""
    names, counts = np.unique(missed.groups, return_counts=True)
    few = names[counts < max(FEWEST, LEAST_SHARE * len(missed.errors))]
    groups = np.where(np.isin(missed.groups, few), "", missed.groups)
    if len(set(groups)) > 1:
        yield missed._replace(regime=NEW, groups=groups)


def of_elementwise(seen: Sequence[SuiteErrors]) -> Iterator[PredictionErrors]:
    """Errors of passes over memory, which have no learned factor."""
    for stratum, regime in (("elementwise", MEASURED), ("elementwise, GPU left out", RELATIVE)):
        rows = [one for one in seen if one.suite == "kernels" and one.errors.stratum == stratum]
        yield from _together("kernel", "elementwise", regime, rows, [one.errors.group for one in rows])


def text_of(frame: pd.DataFrame, seen: Sequence[SuiteErrors]) -> str:
    """The file of intervals."""
    result = [*of_kernels(frame)] if len(frame) else []
    result += [*of_elementwise(seen), *of_collectives(seen), *of_sources(seen), *of_strata(seen)]
    return as_text(result)


def card_of(frame: pd.DataFrame) -> str:
    """Median and 90th percentile of errors by class and what was left out."""
    rows = []
    for (kind, regime, case), part in frame.groupby(["class", "regime", "case"], sort=True):
        row: dict[str, object] = {"class": kind, "regime": regime, "left_out": case, "rows": len(part)}
        for model in (PHYSICS, LEARNED):
            size = np.abs(np.expm1(-part[model].to_numpy()))
            row |= {model: float(np.median(size)), f"{model}_p90": float(np.quantile(size, 0.9))}
        rows.append(row)
    return pd.DataFrame(rows).round(4).to_csv(index=False, lineterminator="\n")


def renewed(old: str, new: str, suites: Sequence[str]) -> str:
    """A file of intervals in which those of some suites, and of sources and classes fitted anew, are replaced.

    A source whose errors come from several suites stays where fewer rows of them were validated again.
    """
    before, after = (pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False) for text in (old, new))
    key = ["kind", "name", "model", "regime"]
    gone = before["name"].str.startswith(tuple(f"{suite}: " for suite in suites)) & (before["kind"] == "stratum")
    rows = before.set_index(key)["rows"].astype(int)
    fewer = after.set_index(key)["rows"].astype(int) < rows.reindex(after.set_index(key).index).fillna(0)
    after = after[~((after["kind"] == "source") & fewer.to_numpy())]
    again = before.set_index(key).index.isin(after.set_index(key).index)
    merged = pd.concat([before[~gone & ~again], after], ignore_index=True)
    order = merged["kind"].map({kind: rank for rank, kind in enumerate(before["kind"].unique())})
    return merged.iloc[np.argsort(order.fillna(len(order)), kind="stable")].to_csv(index=False, lineterminator="\n")


def fit_intervals(
    directory: str | Path, out: str | Path, progress: Callable[[str], None] = print, only: Sequence[str] = ()
) -> list[Path]:
    """Cross-validate everything a folder holds with the constants at hand; write intervals and what was left out.

    Args:
        directory: of tables.
        out: folder of the `calibration` group.
        progress: called with a line for each suite and each device that was left out.
        only: suites that are validated again, in place of all; the other intervals of the file stay.

    Raises:
        ConfigError: no such suite.
        DataError: no such folder, no table any suite understands, or a damaged table.
    """
    from . import SUITES, understood, validate

    directory, out = Path(directory), Path(out)
    names = [suite.name for suite in SUITES]
    for name in only:
        if name not in names:
            raise ConfigError(f"--only: no suite {name!r}{suggestion(name, names)}; allowed: {', '.join(names)}")
    chosen = tuple(suite for suite in SUITES if suite.name in (only or names))
    understood(survey(directory), directory, chosen)  # before anything is said
    progress(f"validating {', '.join(suite.name for suite in chosen)} ...")
    with observed() as result:
        validate(directory, chosen)
    frame = crossings(directory, progress) if not only or "kernels" in only else pd.DataFrame()
    text = text_of(frame, [SuiteErrors(*one) for one in result])
    if only and (out / FILE).is_file():
        text = renewed((out / FILE).read_text(encoding="utf-8"), text, only)
    texts: dict[Path, str | bytes] = {out / FILE: text}
    if len(frame):
        texts[out / "residual" / "left_out.csv"] = card_of(frame)
    return publish(texts)
