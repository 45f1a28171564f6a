"""Fits how long libraries take to send tokens to experts and back, to rows of measurements: `config.exchanges`."""

import numpy as np
import pandas as pd
from scipy.optimize import least_squares, minimize

from ...config.exchanges import COUNTED, KEYS, Exchange

__all__ = ["fit_exchange", "table_of"]

POSITIVE = {"start_8_s": 40e-6, "start_4_s": 40e-6, "expert_s": 2e-8, "rate_bytes_per_s": 270e9, "token_s": 3e-8,
            "processors_power": 0.3}  # fmt: skip
POWERS = {"start_power": 0.0, "link_power": 0.5}  # halfway between what processors and what links would do
HELD = 1e-3  # of a squared log step from these: what rows do not tell stays there
SOFT = 0.1  # log error from which on a row counts by its size, no more by its square
FEWEST = 20
FURTHEST = 6.0  # log steps from these
RESTARTS = 2  # of a simplex that shrank on a ridge
COLUMNS = ("link", "node", "processors", "experts", "arrivals", "measured_s", *(f"{name}_bytes" for name in COUNTED))


def _of(values: np.ndarray, counted: str) -> Exchange:
    logs, powers = np.split(values, [len(POSITIVE)])
    return Exchange._make((*np.exp(logs), *powers, counted))


def fit_exchange(rows: pd.DataFrame) -> Exchange:
    """Least mean absolute log error on `measured_s`, of the three ways to count bytes the best."""
    held = np.array([*np.log(list(POSITIVE.values())), *POWERS.values()])
    columns = {name: rows[name].to_numpy(dtype=float) for name in COLUMNS}  # a frame costs ten times its numbers
    weight = np.sqrt(HELD * len(rows))

    def missed(values: np.ndarray, counted: str) -> np.ndarray:
        return np.log(_of(values, counted).seconds(columns) / columns["measured_s"])

    def loss(values: np.ndarray, counted: str) -> float:
        return float(np.mean(np.abs(missed(values, counted))) + HELD * np.sum((values - held) ** 2))

    def near(values: np.ndarray, counted: str) -> np.ndarray:
        return np.concatenate([missed(values, counted), weight * (values - held)])

    tried = []
    for counted in COUNTED:
        reach = (held - FURTHEST, held + FURTHEST)
        result = least_squares(near, held, bounds=reach, args=(counted,), loss="soft_l1", f_scale=SOFT).x
        for _ in range(RESTARTS):
            result = minimize(loss, result, args=(counted,), method="Nelder-Mead", options={"maxfev": 800}).x
        tried.append((loss(result, counted), counted, result))
    _, counted, values = min(tried, key=lambda one: one[0])
    *numbers, _ = _of(values, counted)
    return Exchange._make((*(float(f"{value:.4g}") for value in numbers), counted))


def table_of(rows: pd.DataFrame) -> str:
    """The file: constants of every library, phase, format and reach of at least 20 rows; empty where there is none."""
    result = []
    for key, part in rows.groupby(KEYS, sort=True):
        if len(part) >= FEWEST:
            constants = fit_exchange(part)
            missed = np.median(np.abs(constants.seconds(part) / part["measured_s"] - 1))
            result.append({**dict(zip(KEYS, key, strict=True)), **constants._asdict(), "rows": len(part),
                          "median_residual": round(float(missed), 4)})  # fmt: skip
    return pd.DataFrame(result).to_csv(index=False, lineterminator="\n") if result else ""
