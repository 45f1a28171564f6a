"""Plans drawn at random, priced under joint draws of the model's errors, against answers of `serve --confidence`.

Each question is answered by `codesign serve`, then asked again of plans that the rules allow, on the counts that were
searched, with the limits as they were said. Of the cheapest and of some others below the answer's bound the share of
draws that keep all limits is counted. One of listed values that costs less than a bound said to hold of this chance
refutes it; an answer without such a bound is told by how much it is beaten. Draws are those of the search (seed 0),
and others (seed 1) of the answer.

    python qa/independent_chances.py "llama31_8b --on h200 --rate 30/s --ttft-p99 2s --tpot-p99 50ms"
"""

import argparse
import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from held_out_chance import QUESTIONS
from independent_plans import Attacked

from codesign import prepare_jax
from codesign import study_from_config as composed
from codesign.study import feasible
from codesign.uncertainty import under_draws

COUNT = "space.plan.device_count="
DRAWS, OTHERS = 400, 2000
BLOCK = 8  # plans under all draws at once
UNCLAIMED = "cheaper, as its claim allows"
SAME = 1e-6  # relative, of a cost that is the answer's
TOO_FEW = 0.85  # of the held-out draws


class Chances(NamedTuple):
    """What an attack on an answer found: plans drawn, feasible at the centre, cheaper than it, cheaper that keep."""

    drawn: int
    feasible: int
    cheaper: int
    keeping: int
    least: float
    plan: dict[str, float]
    listed: bool


def shares(study: Any, plans: Sequence[dict[str, float]], draws: int, seed: int) -> np.ndarray:
    """Share of the draws in which each plan keeps all limits."""
    scenarios = [study.space.place(study.scenario, plan) for plan in plans]
    parts: list[np.ndarray] = []
    for first in range(0, len(scenarios), BLOCK):
        excess = under_draws(
            scenarios[first : first + BLOCK], lambda account: {"": study.objective.excess(account.metrics)}, draws, seed
        )[""]
        parts.append(np.asarray(feasible(excess)).mean(-1))
    return np.concatenate(parts) if parts else np.zeros(0)


def attacked(study: Any, told: float, chance: float, count: int, tries: int, seed: int) -> Chances:
    """Draw plans of a study and look for one below a cost that keeps the limits with a chance."""
    rng = np.random.default_rng(seed)
    made = Attacked(study, rng)
    drawn = made.drawn(count)
    size = len(next(iter(drawn.values())))
    value = made.priced(drawn, made.places(size))
    inside = made.inside(drawn)
    below = np.flatnonzero(value < told * (1 - SAME))
    below = below[np.argsort(value[below])]
    half = below[: tries // 2]
    rest = below[tries // 2 :]
    some = np.concatenate([half, rng.permutation(rest)[: tries - len(half)]]).astype(int)
    rows = [{name: float(column[at]) for name, column in drawn.items()} for at in some]
    good = np.flatnonzero(shares(study, rows, DRAWS, 0) >= chance)
    if not len(good):
        return Chances(size, int(np.isfinite(value).sum()), len(below), 0, math.inf, {}, False)
    first = good[np.lexsort((value[some[good]], ~inside[some[good]]))[0]]
    return Chances(
        size, int(np.isfinite(value).sum()), len(below), len(good), float(value[some[first]]), rows[first],
        bool(inside[some[first]]),
    )  # fmt: skip


def asked(question: str, chance: float, arguments: argparse.Namespace) -> bool:
    """Answer a question, attack each candidate's answer; True where something is wrong."""
    words = ["serve", *shlex.split(question), "--confidence", f"{chance:g}"]
    done = subprocess.run([sys.executable, "-m", "codesign", *words], capture_output=True, text=True)
    page = re.search(r"page: (\S+)", done.stdout)
    if page is None:
        print(f"none    {question}: {(done.stderr or done.stdout).strip().splitlines()[-1]}", flush=True)
        return False
    wrong, said = False, " ".join(done.stdout.split())
    shown = subprocess.run([sys.executable, "-m", "codesign", *words, "--show-config"], capture_output=True, text=True)
    studies = [line for line in shown.stdout.splitlines() if line.startswith("codesign ")]
    for number, line in enumerate(studies):
        overrides = [text for text in shlex.split(line)[2:] if COUNT not in text]
        label = next(text for text in overrides if text.startswith("accelerator=")).partition("=")[2]
        folder = Path(page[1]).parent / str(number)
        if not (folder / "summary.json").is_file():
            continue
        counts = [text for text in (folder / "overrides.txt").read_text().splitlines() if COUNT in text]
        study = composed(*overrides, *counts)
        summary = json.loads((folder / "summary.json").read_text())
        told = float(summary["certificate"]["best"])
        claimed = bool(re.search(rf"{re.escape(label)}: proven the best of", said))
        result = attacked(study, told, chance, arguments.count, arguments.tries, arguments.seed)
        held = re.search(r"\((\d+)% of 2,000 others\)", said)
        few = held is not None and int(held[1]) < 100 * TOO_FEW
        false = claimed and result.listed
        wrong |= false or few
        verdict = "FALSE" if false else "TOO FEW" if few else UNCLAIMED if result.keeping else "holds"
        beaten = f"beaten by {1 - result.least / told:.1%}, {result.plan}" if result.keeping else "not beaten"
        print(
            f"{verdict}: {label}, {question}: {told:.6g}"
            f"{', said to be proven' if claimed else ''}; of {result.drawn:,} drawn {result.feasible:,} feasible,"
            f" {result.cheaper:,} cheaper, {result.keeping:,} of those tried keep the limits in {chance:.0%}: {beaten};"
            f" held out {held[1] if held else '?'} %",
            flush=True,
        )
    return wrong


def main() -> int:
    """Attack answers; 1 where a bound is refuted, or a design keeps its limits in too few draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", default=QUESTIONS, help="words after `codesign serve`")
    parser.add_argument("--confidence", type=float, default=0.9)
    parser.add_argument("--count", type=int, default=5_000, help="plans drawn for each candidate")
    parser.add_argument("--tries", type=int, default=160, help="cheaper ones that are priced in all draws")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    prepare_jax()
    wrong = [asked(question, given.confidence, given) for question in given.questions]
    print(f"{sum(wrong)} of {len(wrong)} answers are wrong")
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
