"""Folders of `codesign serve`, `train` and `compare` changed by somebody who knows what stands where.

Each change is made in every file that says the same, with the checksums of the run made anew, and given to `codesign
verify`, which must refuse it. What an answer itself says is not checked may be accepted.

    codesign compare accelerator=h200,b200 ... && python qa/tamper_answers.py runs/*
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from tamper import EVERY, sums_anew, unchecked, verified

JOB = "0"


def of_text(name: str, old: str, new: str) -> Callable[[Path], bool]:
    """Replace a pattern in a file of the job."""

    def change(folder: Path) -> bool:
        path = folder / JOB / name
        text = path.read_text(encoding="utf-8")
        after = re.sub(old, new, text, count=1)
        path.write_text(after, encoding="utf-8")
        return after != text

    return change


def of_claim(**values: Callable[[Any, dict[str, Any]], Any]) -> Callable[[Path], bool]:
    """Change what the certificate says, in both files that have it."""

    def change(folder: Path) -> bool:
        path, proof = folder / JOB / "summary.json", folder / JOB / "certificate/certificate.json"
        told, header = json.loads(path.read_text()), json.loads(proof.read_text())
        own = told["certificate"]
        for name, other in values.items():
            own[name] = other(own[name], own)
            if name in header.get("claim", {}):
                header["claim"][name] = own[name]
        path.write_text(json.dumps(told, indent=2))
        proof.write_text(json.dumps(header, indent=2))
        return True

    return change


def of_summary(place: str, other: Callable[[Any], Any]) -> Callable[[Path], bool]:
    """Change one value of the summary."""

    def change(folder: Path) -> bool:
        path = folder / JOB / "summary.json"
        told = node = json.loads(path.read_text())
        *keys, last = place.split(".")
        for key in keys:
            node = node[key]
        if last not in node:
            return False
        node[last] = other(node[last])
        path.write_text(json.dumps(told, indent=2))
        return True

    return change


def of_table(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Path], bool]:
    """Change the joint table."""

    def changed(folder: Path) -> bool:
        frame = pd.read_parquet(folder / "comparison.parquet")
        other = change(frame.copy())
        other.to_parquet(folder / "comparison.parquet")
        return not other.equals(frame)

    return changed


def swapped(folder: Path) -> bool:
    """The second design first."""
    path = folder / JOB / "designs.parquet"
    frame = pd.read_parquet(path)
    if len(frame) < 2:
        return False
    frame.iloc[[1, 0, *range(2, len(frame))]].to_parquet(path, index=False)
    return True


def without_candidate(folder: Path) -> bool:
    """One candidate left out of table and folder, as if nobody had asked."""
    frame = pd.read_parquet(folder / "comparison.parquet")
    if len(frame) < 2:
        return False
    frame.iloc[1:].to_parquet(folder / "comparison.parquet")
    shutil.rmtree(folder / str(frame["run"].iloc[0]))
    return True


def other_command(folder: Path) -> bool:
    """The page tells of another command."""
    path = folder / "comparison.json"
    text = path.read_text()
    after = re.sub(r"(--rate |--tokens |arrivals_per_s=)(\d)", r"\g<1>9\2", text)
    path.write_text(after)
    return after != text


def scaled(name: str, factor: float) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Multiply a column."""
    return lambda frame: frame.assign(**{name: frame[name] * factor})


CHANGES: dict[str, Callable[[Path], bool]] = {
    "bound raised to the best": of_claim(bound=lambda _, own: own["best"], gap=lambda *_: 0.0),
    "bound raised by half the gap": of_claim(bound=lambda bound, own: float(f"{(bound + own['best']) / 2:.8e}")),
    "gap of 0": of_claim(gap=lambda *_: 0.0),
    "best lowered": of_claim(best=lambda best, _: best * 0.999),
    "another design first": swapped,
    "a list of the plan shortened in the configuration": of_text(
        "config.yaml", r"(token_budget:\n\s+)- \d+\n\s+", r"\1"
    ),
    "a list of the plan shortened in the overrides": of_text("overrides.txt", r"token_budget=\[\d+,", "token_budget=["),
    "a limit loosened in the overrides": of_text("overrides.txt", r"(objective\.limits\.\w+=)(\d)", r"\g<1>9\2"),
    "a limit loosened in the summary": of_summary("limits", lambda limits: {k: 2 * v for k, v in limits.items()} or 1),
    "price halved in the configuration": of_text("config.yaml", r"(price_usd: )(\d+)", r"\g<1>1\2"),
    "plans counted tenfold": of_summary("counts.plans", lambda count: 10 * count),
    "nothing left open": of_summary("counts.open", lambda count: count + 5),
    "more devices in the words of the space": of_summary(
        "space", lambda text: text.replace(" on ", " on 1 to 4,096, ")
    ),
    "the claim in words": of_summary("claim", lambda text: text.replace("within 0.", "within 0.0")),
    "cost in the joint table": of_table(scaled("usd_per_million_tokens", 0.9)),
    "devices in the joint table": of_table(scaled("devices", 2)),
    "words of the space in the joint table": of_table(lambda frame: frame.assign(space="every layout that there is")),
    "bound in the joint table": of_table(scaled("bound", 1.01)),
    "a candidate left out": without_candidate,
    "another command on the page": other_command,
}


def main() -> int:
    """Change each folder in every way; 1 where a change was accepted that the answer does not name as unchecked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="changes with these words alone")
    given = parser.parse_args()
    wrong = tried = 0
    for run in given.runs:
        for name, change in CHANGES.items():
            if given.only not in name:
                continue
            with tempfile.TemporaryDirectory() as where:
                folder = Path(where) / run.name
                shutil.copytree(run, folder)
                if not change(folder):
                    print(f"  none     {name}", flush=True)
                    continue
                for job in folder.glob("*/written.json"):
                    sums_anew(job.parent, EVERY)
                outcome, text = verified(folder)
            tried, wrong = tried + 1, wrong + (outcome != "refused")
            left = f"; not checked: {', '.join(unchecked(text))}" if outcome == "accepted" else ""
            print(f"  {outcome:8s} {name}: {' '.join(text.split())[-200:]}{left}", flush=True)
    print(f"{tried} changes, {wrong} accepted or worse")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
