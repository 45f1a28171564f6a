"""Constants of libraries that send tokens to experts and back, fitted on rows of measurements: `config.engines`."""

import numpy as np
import pandas as pd
from scipy.optimize import least_squares, minimize

from ...config.engines import COUNTED, EXCHANGE_KEYS, Exchange

__all__ = ["FEWEST", "fit_exchange", "table_of"]

POSITIVE = {"start_8_s": 40e-6, "start_4_s": 40e-6, "expert_s": 2e-8, "rate_bytes_per_s": 270e9, "token_s": 3e-8,
            "processors_power": 0.3}  # fmt: skip
POWERS = {"start_power": 0.0, "link_power": 0.5}  # halfway between what processors and what links would do
HELD = 1e-3  # of a squared log step from these: what rows do not tell stays there
SOFT = 0.1  # log error from which on a row counts by its size, no more by its square
FEWEST = 20
FURTHEST = 6.0  # log steps from these
COLUMNS = ("link", "node", "processors", "experts", "arrivals", "measured_s", *(f"{name}_bytes" for name in COUNTED))


def _of(values: np.ndarray, counted: str) -> Exchange:
    return Exchange._make((*np.exp(values[: len(POSITIVE)]), *values[len(POSITIVE) :], counted))


def fit_exchange(rows: pd.DataFrame) -> Exchange:
    """Least mean absolute log error on `measured_s`, of the three ways to count bytes the best."""
    held = np.array([*np.log(list(POSITIVE.values())), *POWERS.values()])
    columns = {name: rows[name].to_numpy(dtype=float) for name in COLUMNS}  # a frame costs ten times its numbers
    machines = np.stack([columns[name] for name in ("link", "node", "processors")])
    (link, node, processors), machine = np.unique(machines, axis=1, return_inverse=True)  # few: powers are dear
    weight = np.sqrt(HELD * len(rows))

    def missed(values: np.ndarray, counted: str) -> np.ndarray:
        tried = _of(values, counted)
        start_s, rate = tried.start_s(link, node)[machine], tried.rate(link, processors)[machine]
        return np.log(tried.sum_s(columns, start_s, rate) / columns["measured_s"])

    def loss(values: np.ndarray, counted: str) -> float:
        log, step = np.abs(missed(values, counted)), values - held
        return float(log.sum() / len(log) + HELD * (step @ step))

    def near(values: np.ndarray, counted: str) -> np.ndarray:
        return np.concatenate([missed(values, counted), weight * (values - held)])

    def closer(values: np.ndarray, counted: str) -> np.ndarray:
        return minimize(loss, values, args=(counted,), method="Nelder-Mead", options={"maxfev": 800}).x

    reach, tried = (held - FURTHEST, held + FURTHEST), dict[str, np.ndarray]()
    for counted in COUNTED:
        squares = least_squares(near, held, bounds=reach, args=(counted,), loss="soft_l1", f_scale=SOFT).x
        tried[counted] = closer(squares, counted)
    counted = min(tried, key=lambda name: loss(tried[name], name))
    values = closer(tried[counted], counted)  # a simplex that shrank on a ridge begins anew
    *numbers, _ = _of(values, counted)
    return Exchange._make((*(float(f"{value:.4g}") for value in numbers), counted))


def table_of(rows: pd.DataFrame) -> str:
    """The file: constants of every library, phase, format and reach of at least 20 rows; empty where there is none."""
    result = []
    for key, part in rows.groupby(EXCHANGE_KEYS, sort=True):
        if len(part) >= FEWEST:
            constants = fit_exchange(part)
            missed = np.median(np.abs(constants.seconds(part) / part["measured_s"] - 1))
            result.append({**dict(zip(EXCHANGE_KEYS, key, strict=True)), **constants._asdict(), "rows": len(part),
                          "median_residual": round(float(missed), 4)})  # fmt: skip
    return pd.DataFrame(result).to_csv(index=False, lineterminator="\n") if result else ""
