"""Megatron's published step times on A100, from constants fitted on kernels and collectives alone.

Then with one further constant, the slowdown of kernels inside the framework, fitted on one paper and judged on the
other.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

from codesign.evidence.reproduction import Claim
from codesign.evidence.validation import adjustment, measured_cluster
from codesign.evidence.validation.published_training import Prepared, korthikanti, prepare_rows, sc21

NAME = "megatron_training"
PAPERS = {"korthikanti2022": korthikanti, "narayanan2021": sc21}
KERNEL_BAR, FITTED_BAR = 0.15, 0.08


def published() -> pd.DataFrame:
    """Printed layouts and times."""
    table = pd.read_csv(Path(__file__).parent / "published.csv")
    return table.assign(paper=table["source"].str.split().str[0], scheme=table["method"])


def ready(table: pd.DataFrame) -> dict[str, Prepared]:
    """Each paper's runs, read."""
    return {
        paper: prepare_rows(table[table["paper"] == paper], reader, measured_cluster)
        for paper, reader in PAPERS.items()
    }


def predicted(runs: Prepared, slowdown: float = 1.0) -> pd.DataFrame:
    """A paper's rows with measured and predicted seconds."""
    return runs.predict(adjustment({"kernel_slowdown": slowdown})).frame


def slowdown_of(runs: Prepared) -> float:
    """The one constant: least mean absolute log error."""

    def loss(slowdown: float) -> float:
        frame = predicted(runs, slowdown)
        return float(np.mean(np.abs(np.log(frame["predicted_s"] / frame["measured_s"]))))

    return float(minimize_scalar(loss, bounds=(1.0, 1.4), method="bounded", options={"xatol": 2e-3}).x)


def median_error(frame: pd.DataFrame) -> float:
    """Median of |predicted / measured - 1|."""
    return float(np.median(np.abs(frame["predicted_s"] / frame["measured_s"] - 1)))


def claims() -> list[Claim]:
    """Every run, then the medians that the bars are set on."""
    runs = ready(published())
    alone = pd.concat([predicted(each) for each in runs.values()])
    result = [
        Claim(NAME, f"{row.source}, {row.name_}: step time, s", row.measured_s, row.predicted_s, None, "derived")
        for row in alone.rename(columns={"name": "name_"}).itertuples()
    ]
    result.append(summary("both papers, kernels alone", alone, KERNEL_BAR, "derived"))
    for fitted, judged in (("narayanan2021", "korthikanti2022"), ("korthikanti2022", "narayanan2021")):
        slowdown = slowdown_of(runs[fitted])
        text = f"{judged}, kernel slowdown {slowdown:.3f} fitted on {fitted}"
        result.append(summary(text, predicted(runs[judged], slowdown), FITTED_BAR, standing(runs[fitted])))
    return result


def standing(fitted: Prepared) -> str:
    """How much a figure proves that rests on the constant fitted on a paper."""
    return f"fitted 1 on {len(fitted.measured)} (other source)"


def summary(text: str, frame: pd.DataFrame, bar: float, standing: str) -> Claim:
    """The median error of some runs as a claim."""
    words = f"{text}: median error over {len(frame)} runs"
    return Claim(NAME, words, None, None, bar, standing, error=median_error(frame))
