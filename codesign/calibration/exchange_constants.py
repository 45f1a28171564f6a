"""How long libraries take to send tokens to experts and back, fitted by library, phase and whether nodes are left.

t = start + bytes / (rate link),  rate = rate_ratio (processors / 24)^processors_power

start is one of two, by the devices of a node (8, or 4 as in racks whose nodes are small); bytes are those that leave a
rank, link its scale-up bandwidth; the power counts where a library says how many processors it takes, else 24 are.
Kept in `conf/calibration/exchange.csv` with rows and residual.

Assumes: tokens spread evenly over experts; payloads as stated.
"""

import io
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from ..shipped import conf_dir

__all__ = ["FILE", "Exchange", "fit_exchange", "known", "table_of"]

FILE = "exchange.csv"
USUAL_PROCESSORS = 24.0
MOST_PROCESSORS = 1.5  # what more than the usual number brings at most
START = (np.log(40e-6), np.log(60e-6), np.log(0.3), np.log(0.3))
HELD = 1e-3  # of a squared log step from START: what rows do not tell stays there
FEWEST = 20
RESTARTS = 3  # of a simplex that shrank on a ridge
KEYS = ["library", "phase", "across"]


class Exchange(NamedTuple):
    """Constants of one library, phase and reach."""

    start_8_s: float
    start_4_s: float
    rate_ratio: float
    processors_power: float

    def seconds(self, rows: "pd.DataFrame | dict[str, np.ndarray]") -> np.ndarray:
        """Of rows with `nbytes`, `link` (bytes/s), `node` (devices of one) and `processors`."""
        start = np.where(rows["node"] < 8, self.start_4_s, self.start_8_s)
        more = np.minimum((rows["processors"] / USUAL_PROCESSORS) ** self.processors_power, MOST_PROCESSORS)
        return np.asarray(start + rows["nbytes"] / (self.rate_ratio * more * rows["link"]), dtype=float)


def fit_exchange(rows: pd.DataFrame) -> Exchange:
    """Least mean absolute log error on `measured_s`."""
    start, names = np.asarray(START), ("nbytes", "link", "node", "processors", "measured_s")
    columns = {name: rows[name].to_numpy(dtype=float) for name in names}  # a frame costs ten times its numbers

    def loss(logs: np.ndarray) -> float:
        ratio = Exchange(*np.exp(logs)).seconds(columns) / columns["measured_s"]
        return float(np.mean(np.abs(np.log(ratio))) + HELD * np.sum((logs - start) ** 2))

    found = start
    for _ in range(RESTARTS):
        found = minimize(loss, found, method="Nelder-Mead", options={"maxfev": 600}).x
    return Exchange(*(float(f"{value:.4g}") for value in np.exp(found)))


def table_of(rows: pd.DataFrame) -> str:
    """The file: constants of every library, phase and reach of at least 20 rows; empty where there is none."""
    found = []
    for key, part in rows.groupby(KEYS, sort=True):
        if len(part) >= FEWEST:
            constants = fit_exchange(part)
            missed = np.median(np.abs(constants.seconds(part) / part["measured_s"] - 1))
            found.append({**dict(zip(KEYS, key, strict=True)), **constants._asdict(), "rows": len(part),
                          "median_residual": round(float(missed), 4)})  # fmt: skip
    return pd.DataFrame(found).to_csv(index=False, lineterminator="\n") if found else ""


@lru_cache
def known() -> dict[tuple[str, str, bool], Exchange]:
    """Constants by library, phase and whether nodes are left, as last fitted."""
    path = conf_dir() / "calibration" / FILE
    if not path.is_file():
        return {}
    table = pd.read_csv(io.StringIO(path.read_text(encoding="utf-8")))
    fields = list(Exchange._fields)
    return {
        (str(row["library"]), str(row["phase"]), bool(row["across"])): Exchange(*(float(row[f]) for f in fields))
        for row in table.to_dict("records")
    }
