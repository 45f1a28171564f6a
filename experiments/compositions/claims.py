"""What the matrix of compositions says: which cells are optimised and proven, what denies the others, what is free."""

import functools
from pathlib import Path

import pandas as pd

from codesign.evidence.reproduction import Claim

NAME = "compositions"
MATRIX = Path(__file__).parent / "matrix.csv"
AXES = ["fabric", "memory", "job", "goal"]
CERTIFIED, OPEN, OVERFULL, REFUSED = "certified", "not certified", "nothing fits", "refused"


@functools.cache
def matrix() -> pd.DataFrame:
    """The committed cells, as `matrix.py` wrote them."""
    return pd.read_csv(MATRIX, keep_default_na=False, na_values={"value": [""], "gap": [""]})


def listed(column: str) -> pd.DataFrame:
    """One row for each name in a column of lists: the cell's axes and the name."""
    frame = matrix()
    parts = frame.assign(name=frame[column].str.split(", ")).explode("name")
    return parts[parts["name"] != ""][[*AXES, "name"]]


def claims() -> list[Claim]:
    """Counts, and the three things that every cell must do."""
    frame = matrix()
    counts = frame["verdict"].value_counts()
    silent = int(((frame["verdict"] == OPEN) & (frame["why"] == "")).sum())
    optimised = len(frame) - int(counts.get(REFUSED, 0))
    gaps = frame.loc[frame["verdict"] == CERTIFIED, "gap"].astype(float)
    rows = [
        Claim(NAME, "cells of the matrix", None, float(len(frame)), None, "derived"),
        Claim(NAME, "cells that are evaluated and optimised", float(len(frame)), float(optimised), 0.0, "derived"),
        Claim(NAME, "cells that are certified", None, float(counts.get(CERTIFIED, 0)), None, "derived"),
        Claim(NAME, "largest proven gap of these", None, float(gaps.max()), 0.0021, "derived", float(gaps.max())),
        Claim(NAME, "cells without a proof that do not say which operation denies it", 0.0, float(silent), 0.0,
              "derived", float(silent)),
        Claim(NAME, "cells in which nothing fits", None, float(counts.get(OVERFULL, 0)), None, "derived"),
    ]  # fmt: skip
    for name, part in listed("unpriced").groupby("name"):
        text = f"cells whose optimum drives a number to its bound free of money, power and limits: {name}"
        rows.append(Claim(NAME, text, None, float(len(part)), None, "derived"))
    return rows


def tables() -> dict[str, pd.DataFrame]:
    """Verdicts, what denies proofs, what runs to a bound, and every cell."""
    frame = matrix()
    verdicts = frame.groupby(["fabric", "memory", "job"])["verdict"].agg(lambda each: ", ".join(sorted(set(each))))
    denied = frame[frame["verdict"] == OPEN].groupby(["fabric", "memory", "why"]).size().rename("cells").reset_index()
    edges = listed("at a bound").groupby(["name", "goal"]).size().unstack(fill_value=0).reset_index()
    free = listed("unpriced").groupby(["name", "fabric"]).size().rename("cells").reset_index()
    return {
        "Verdicts by fabric, memory and job": verdicts.unstack().reset_index(),
        "What denies a proof": denied,
        "What runs to a bound, cells by goal": edges.rename(columns={"name": "number and bound"}),
        "What runs there for free": free,
        "Every cell": frame,
    }
