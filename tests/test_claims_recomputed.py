"""Every experiment's claims, run anew, against the numbers of its committed page."""

import math

import pandas as pd
import pytest

from codesign.evidence.reproduction import available, experiments_folder, forget, reproduce

pytestmark = pytest.mark.slow

CLOSE = 1e-2  # of a number: what another processor's rounding may move of a fit or of a simulation's mean
APART = {"paper": 0.0, "model": 1e-9, "error": 1e-3, "tolerance": 1e-12}  # beside that, absolute
PROVEN = "gap"  # in the words of a claim on how far a bound lies away: below its bar is all that a search promises
COLUMNS = ("paper", "model", "error", "tolerance")


def moved(committed: pd.DataFrame, rows: list[dict]) -> list[str]:
    """Claims that are on one side alone, and numbers and verdicts that differ."""
    anew = {row["claim"]: row for row in rows}
    lines = [f"not on the page: {claim}" for claim in anew if claim not in set(committed["claim"])]
    for old in committed.to_dict("records"):
        new = anew.get(old["claim"])
        if new is None:
            lines.append(f"no longer claimed: {old['claim']}")
            continue
        for column in COLUMNS:
            was, now = (math.nan if each.get(column) is None else float(each[column]) for each in (old, new))
            if PROVEN in old["claim"] and column in ("model", "error") and not math.isnan(now):
                continue
            if math.isnan(was) is not math.isnan(now) or abs(was - now) > APART[column] + CLOSE * abs(was):
                lines.append(f"{old['claim']}: {column} {was:.6g} is now {now:.6g}")
        verdicts = {True: "True", False: "False", None: "nan"}
        if str(old["ok"]) != verdicts[new["ok"]]:
            lines.append(f"{old['claim']}: met {old['ok']} is now {new['ok']}")
    return lines


TIMED = ("search_comparison",)
"""Experiments whose claims are of what searches find in seconds: another machine's page is another page."""


@pytest.mark.parametrize("name", [name for name in available() if name not in TIMED])
def test_the_committed_page_is_what_the_experiment_says(name):
    page = experiments_folder().parent / "reports" / name / "claims.csv"
    if not page.parent.parent.is_dir():
        pytest.skip("the committed reports lie in a checkout only")
    assert page.is_file(), f"no outcome: codesign reproduce {name} --reports reports"
    lines = moved(pd.read_csv(page), reproduce([name]))
    forget(name)
    assert not lines, "\n".join([*lines, f"write it anew: codesign reproduce {name} --reports reports"])
