"""A day of load on the design that meets an SLO: what following it saves, and of what."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import study_from_config
from codesign.commands.day import day, hours
from codesign.evidence.reproduction import Claim
from codesign.model.workloads import read_load
from codesign.report import day_figure

NAME = "serve_by_the_hour"
LOAD = Path(__file__).resolve().parent / "load.csv"
FOUND = {
    "tp": 8.0, "pp": 1.0, "micro_batch": 64.0, "token_budget": 1024.0, "scale_up_bandwidth": 1.8e12, "hbm_to_ddr": 0.64,
}  # fmt: skip
"""The best design of `codesign optimize experiment=serve_goodput`."""


@cache
def found() -> tuple[pd.DataFrame, dict[str, dict[str, float]]]:
    """Hours and what they come to."""
    study = study_from_config("experiment=serve_goodput")
    design = study.space.place(study.scenario, {name: np.asarray(value) for name, value in FOUND.items()})
    table = hours(design, read_load(LOAD))
    return table, day(design, table)


def saved(way: str, name: str) -> float:
    """Share of what all replicas on all day need."""
    told = found()[1]
    return 1 - told[way][name] / told["peak"][name]


def claims() -> list[Claim]:
    """Orderings, then shares and dollars."""
    table, told = found()

    def ordering(text: str, holds: bool) -> Claim:
        return Claim(NAME, text, 1.0, float(holds), 0.0, "derived", error=float(not holds))

    return [
        ordering("every hour keeps both limits",
                 bool((table["ttft_p99_s"] <= 2.0).all() and (table["tpot_p99_s"] <= 0.05).all())),
        ordering("following never draws more than all replicas on",
                 bool((table["power_w"] <= table["power_all_on_w"] * (1 + 1e-9)).all())),
        ordering("with owned accelerators following saves less than a twentieth of the dollars",
                 0 < saved("owned", "usd") < 0.05),
        ordering("paid by the hour it saves more than a third", saved("hourly", "usd") > 1 / 3),
        *(Claim(NAME, f"share of {what} that following saves", None, saved(way, name), None, "derived")
          for what, way, name in (("accelerator-hours", "hourly", "accelerator_hours"), ("energy", "owned", "kwh"),
                                  ("dollars, owned", "owned", "usd"), ("dollars, by the hour", "hourly", "usd"))),
        *(Claim(NAME, f"USD a day: {way}", None, told[way]["usd"], None, "derived") for way in told),
    ]  # fmt: skip


def tables() -> dict[str, pd.DataFrame]:
    """Hours, and ways to run the day."""
    table, told = found()
    return {"Hours of the day": table, "Ways to run the day": pd.DataFrame(told).T.rename_axis("way").reset_index()}


def figures() -> dict[str, Figure]:
    """Load, replicas, power."""
    return {"Load and replicas and power": day_figure(found()[0])}
