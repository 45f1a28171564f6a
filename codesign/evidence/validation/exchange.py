"""Dispatch and combine of experts: constants of the library where it was measured, else the model's all-to-all.

A token goes once to each rank that has an expert for it. Strata of suite `expert exchange`, own and with the GPU left
out of the fit:

    inside nodes, across nodes           a library and format that `calibration.exchange_constants` knows
    ... , as all-to-all                  what the model takes for it in a study: nothing is fitted on these rows
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from ...config.exchanges import BYTES, FILE, KEYS, Exchange, known, reached
from ...core.errors import ConfigError, DataError
from ..calibration.exchange_constants import fit_exchange, table_of
from ..calibration.gpus import device
from ..calibration.publish import publish
from ..measurements import tables
from .across_nodes import RACK, predicted
from .scores import Errors, Row, rows
from .suites import Suite

UNSTATED = "default"  # a format that the source does not name: its constants are its own
DISPATCHED, COMBINED = "fp8", "bfloat16"  # of the library that says both phases in a row
NODE = 8.0
SMALLER = {"GB200": 4.0, "GB300": 4.0}  # devices of a node
USUAL = 24.0  # processors, where none are stated
FEWEST = 20
REACH = ("inside nodes", "across nodes")


def _formats(found: pd.DataFrame, shown: str, messages: list[str]) -> pd.DataFrame:
    """Rows whose payload has a weight, in bytes an element."""
    unnamed = found["comm_dtype"] == UNSTATED
    if unnamed.any():
        messages.append(f"{shown}: what a payload weighs is not stated in {int(unnamed.sum())} rows, taken as 16 bits")
    element = found["comm_dtype"].map(BYTES)
    if element.isna().any():
        lost = int(element.isna().sum())
        messages.append(f"{shown}: {lost} rows set aside, what a payload weighs is not stated")
    found = found.assign(element=element, format=found["comm_dtype"])
    return found[element.notna()]


def observations(directory: Path, messages: list[str]) -> pd.DataFrame:
    """Every phase of every table: library, phase, across, gpu, nbytes, link, node, processors, measured_s."""
    frames = []
    for table in tables(directory, "expert_exchange"):
        result = table.rows(messages)
        result = _formats(result, table.shown, messages)
        frames.append(result.assign(library=result["comm_backend"], ranks=result["ep_size"].astype(float),
                                   measured_s=result["latency_us"] * 1e-6))  # fmt: skip
    for table in tables(directory, "dispatch_combine"):
        result = table.rows(messages)
        ranks = result["num_nodes"] * result["gpu"].map(SMALLER).fillna(NODE)
        for phase, form in (("dispatch", DISPATCHED), ("combine", COMBINED)):
            frames.append(result.assign(library="deepep_" + result["mode"], phase=phase, ranks=ranks, format=form,
                                       element=BYTES[form], measured_s=result[f"{phase}_us"] * 1e-6))  # fmt: skip
    if not frames:
        return pd.DataFrame()
    every = pd.concat(frames, ignore_index=True)
    links = {gpu: _link(str(gpu), messages) for gpu in every["gpu"].unique()}
    every = every.assign(
        link=every["gpu"].map(links), across=every["num_nodes"] > 1, node=every["ranks"] / every["num_nodes"],
        processors=every["num_sms"].where(every["num_sms"] > 0, USUAL).fillna(USUAL),
        experts=every["num_experts"].astype(float), arrivals=every["num_tokens"] * every["topk"] / every["num_experts"],
    )  # fmt: skip
    every = _weighed(every)
    return every[every["link"].notna()].reset_index(drop=True)


def _weighed(every: pd.DataFrame) -> pd.DataFrame:
    """With the bytes that leave a rank, a token counted for each rank, expert or node that it goes to."""
    ranks, nodes = every["ranks"], every["num_nodes"]
    token = every["element"] * every["num_tokens"] * every["hidden_size"]
    sent, others = token * reached(ranks, every["topk"]), (ranks - 1) / ranks
    return every.assign(
        sent=sent, ranks_bytes=sent * others, copies_bytes=token * every["topk"] * others,
        nodes_bytes=token * reached(nodes, every["topk"]) * np.where(nodes > 1, (nodes - 1) / nodes, others),
    )  # fmt: skip


def _link(gpu: str, messages: list[str]) -> float:
    try:
        return device(gpu, {}).peaks.scale_up
    except DataError as error:
        messages.append(f"expert exchange: {error}")
        return float("nan")


def exchange_errors(every: pd.DataFrame, messages: list[str]) -> Iterator[Errors]:
    """Predicted and measured seconds, own constants and those of a fit without the GPU, and as an all-to-all."""
    stored = known()
    for (library, phase, form, across), part in every.groupby(KEYS, sort=True):
        stratum, own = REACH[int(across)], _constants(stored, str(library), str(phase), str(form), bool(across))
        for gpu, mine in part.groupby("gpu", sort=True):
            label, theirs = f"{gpu} {library} {phase} {form}", mine["measured_s"].to_numpy(dtype=float)
            others = part[part["gpu"] != gpu]
            lent = fit_exchange(others) if len(others) >= FEWEST else None
            if own is not None and (library, phase, form, bool(across)) not in stored:
                messages.append(f"{label}: this format was not fitted, taken as another of the library")
            if own is None:
                messages.append(f"{label}: no constants of this library, taken as an all-to-all")
            else:
                yield Errors(stratum, label, own.seconds(mine), theirs)
            if lent is not None:
                yield Errors(f"{stratum}, GPU left out", label, lent.seconds(mine), theirs)
            yield from _as_all_to_all(f"{stratum}, as all-to-all", label, str(gpu), mine, messages)


def _constants(stored: dict[tuple[str, str, str, bool], Exchange], *key: str | bool) -> Exchange | None:
    """Constants of this key, or of the library's first format where this one was not measured."""
    library, phase, _, across = key
    others = (one for known_key, one in stored.items() if (*known_key[:2], known_key[3]) == (library, phase, across))
    return next((one for known_key, one in stored.items() if known_key == key), next(others, None))


def _as_all_to_all(stratum: str, label: str, gpu: str, mine: pd.DataFrame, messages: list[str]) -> Iterator[Errors]:
    members = mine["ranks"].to_numpy(dtype=float)
    inner = np.minimum(members, RACK.get(gpu, NODE))
    try:
        result = predicted(gpu, "all_to_all", inner, members / inner, mine["sent"].to_numpy(dtype=float))
    except ConfigError as error:
        messages.append(f"{label}: {len(mine)} rows set aside: {error}")
        return
    yield Errors(stratum, label, result, mine["measured_s"].to_numpy(dtype=float))


def calibrate_exchange(directory: Path, out: Path) -> list[Path]:
    """Fit every library of the tables below a folder and write `exchange.csv` under `out`; the file, if any."""
    every = observations(directory, [])
    text = table_of(every) if len(every) else ""
    return publish({out / FILE: text}) if text else []


def run_exchange(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all of these tables."""
    every = observations(directory, messages)
    return rows("expert exchange", "latency", exchange_errors(every, messages)) if len(every) else []


EXCHANGE = Suite("expert exchange", ("expert_exchange", "dispatch_combine"), run_exchange)
