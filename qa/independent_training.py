"""Plans that trainers run, drawn from the rules alone, priced by plain evaluation, against answers of `codesign train`.

Each question is asked, then plans are drawn on counts in whole boxes, up to twice the answer's: every field that
Megatron, FSDP, torchtitan or MaxText have a switch for, whether the space lists it or not, with any whole number.
One below the bound refutes the proof where all its values are listed, or lack from an axis that the claim names. Fields
are put back to the study's values, one after the other, as long as the design stays below the bound, so that what is
left is what the space lacks: told, and no refutation where the claim does not name it.

    python qa/independent_training.py "llama31_8b --tokens 1T --days 30d --on h200"
    python qa/independent_training.py --kept "llama31_8b --tokens 1T --days 60d --on h200"
"""

import argparse
import dataclasses
import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from codesign import evaluate, prepare_jax, replace
from codesign import study_from_config as composed
from codesign.jaxprs import interpreted
from codesign.study import Rules, feasible

QUESTIONS = (
    "llama31_8b --tokens 1T --days 30d --on h200",
    "llama31_70b --tokens 2T --days 60d --on b200",
    "mixtral_8x7b --tokens 1T --days 30d --on h100_sxm",
    "qwen3_32b --tokens 1T --days 40d --on h200 --sequence 32k --batch 8M",
    "qwen3_30b_a3b --tokens 1T --days 20d --on b200 --format fp8",
    "llama31_8b --tokens 200B --days 20d --on h100_sxm --sequence 128k",
    "llama31_405b --tokens 1T --days 60d --on h100_sxm",
    "deepseek_v3 --tokens 1T --days 60d --on h800",
)
BOX = 8
BLOCK = 2048
SAME = 1e-6  # relative, of a cost that is the bound
LOOKS, KEPT, ROUNDS, NEIGHBOURS = 40, 64, 5, 48
SIZES = ("micro_batch", "device_count")
"""Fields of which the claim says how many values it took."""


class Trainer:
    """A study of training whose plans are drawn of all fields that trainers have, and priced."""

    def __init__(self, study: Any, rng: np.random.Generator, most: int):
        self.study, self.rng, self.most = study, rng, most
        plan = study.scenario.plan
        every = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
        self.own = {name: float(value) for name, value in every.items() if value is not None}
        self.lists = {name: np.asarray(values, float) for name, values in study.space.lists.items()}

        def priced(point: Mapping[str, Any]) -> Any:
            metrics = evaluate(replace(study.scenario, {f"plan.{name}": value for name, value in point.items()}))
            return study.objective.value(metrics, study.objective.goal), study.objective.excess(metrics)

        self._priced = interpreted(jax.vmap(priced), always=True)

    def drawn(self, count: int) -> dict[str, np.ndarray]:
        """Random fields, by what trainers take; few break no rule."""
        rng, model = self.rng, self.study.scenario.workload.model
        batch, layers = float(self.study.scenario.workload.global_batch), float(model.layers)
        experts = float(getattr(model.feed_forward, "experts", 1))

        def power(most: float, shape: Any = count) -> np.ndarray:
            return 2.0 ** np.floor(rng.uniform(0, np.log2(np.maximum(most, 1)) + 1, size=shape))

        def often(values: np.ndarray, usual: float, share: float) -> np.ndarray:
            return np.where(rng.uniform(size=count) < share, usual, values)

        boxes = np.floor(np.exp(rng.uniform(0, np.log(self.most / BOX + 1), count)))
        devices = BOX * np.clip(boxes, 1, self.most / BOX)
        if "device_count" in self.lists:
            devices = np.where(rng.uniform(size=count) < 0.5, rng.choice(self.lists["device_count"], count), devices)
        odd = rng.choice([1.0, 1, 1, 1, 3, 5, 7], count)  # a factor that no power of two has
        tp = power(8)
        pp = np.minimum(power(layers) * odd, layers)
        cp = often(power(16), 1, 0.5)
        data = np.maximum(devices / (tp * pp * cp), 1)
        table = {
            "device_count": devices, "tp": tp, "pp": pp, "cp": cp,
            "ulysses": often(power(cp), 1, 0.4),
            "ep": often(power(min(experts, 256)), 1, 0.2) if experts > 1 else np.ones(count),
            "etp": often(power(8), 0, 0.5) if experts > 1 else np.zeros(count),
            "micro_batch": power(np.minimum(batch / data, 32)) * often(np.full(count, 3.0), 1, 0.8),
            "virtual_stages": np.where(pp > 1, np.round(np.exp(rng.uniform(0, np.log(np.maximum(layers / pp, 1))))), 1),
            "schedule": often(rng.integers(0, 4, count).astype(float), 0, 0.6),
            "first_stage_less": np.where(pp > 1, often(rng.integers(0, 3, count).astype(float), 0, 0.6), 0),
            "last_stage_less": np.where(pp > 1, often(rng.integers(0, 3, count).astype(float), 0, 0.6), 0),
            "recompute": rng.integers(0, 3, count).astype(float),
            "sequence_parallel": rng.integers(0, 2, count).astype(float),
            "zero": rng.integers(0, 4, count).astype(float),
            "offload_optimizer": often(rng.choice([0.0, 0.25, 0.5, 1.0], count), 0, 0.6),
            "offload_activations": often(rng.choice([0.5, 1.0], count), 0, 0.8),
            "loss_chunks": often(power(16), 1, 0.6),
            "reduce_grads_every_microbatch": often(np.zeros(count), 1, 0.7),
        }  # fmt: skip
        return {name: column for name, column in table.items() if name in self.own or name == "device_count"}

    def legal(self, count: int) -> dict[str, np.ndarray]:
        """Plans that break no rule."""
        found: list[np.ndarray] = []
        names: list[str] = []
        for _ in range(LOOKS):
            table = self.drawn(1 << 16)
            names, kept = list(table), Rules(self.lists, self.study.scenario)(table)[0]
            found.append(np.stack([table[name][kept] for name in names], axis=-1))
            if sum(map(len, found)) >= count:
                break
        some = np.unique(np.concatenate(found), axis=0)
        some = some[self.rng.permutation(len(some))[:count]]
        return {name: some[:, place] for place, name in enumerate(names)}

    def near(self, plans: Mapping[str, np.ndarray], best: np.ndarray) -> dict[str, np.ndarray]:
        """Legal neighbours of some plans: one to three fields drawn anew."""
        many = NEIGHBOURS * len(best)
        base, fresh = np.repeat(best, NEIGHBOURS), self.drawn(many)
        swaps = {name: self.rng.uniform(size=many) < 2.0 / len(plans) for name in plans}
        table = {name: np.where(swaps[name], fresh[name], column[base]) for name, column in plans.items()}
        kept = Rules(self.lists, self.study.scenario)(table)[0]
        return {name: column[kept] for name, column in table.items()}

    def priced(self, plans: Mapping[str, np.ndarray]) -> np.ndarray:
        """The goal of plans; inf where a limit or a rule is broken."""
        size, parts = len(plans["tp"]), []
        for first in range(0, size, BLOCK):
            at = np.minimum(np.arange(first, first + min(BLOCK, size)), size - 1)
            goal, excess = self._priced({name: column[at] for name, column in plans.items()})
            goal, kept = np.asarray(goal, float), np.asarray(feasible(excess))
            parts.append(np.where(kept & np.isfinite(goal), goal, np.inf)[: size - first])
        return np.concatenate(parts) if parts else np.zeros(0)

    def foreign(self, plans: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Field -> plans whose value is not one that the space has."""
        count = len(plans["tp"])
        result = {}
        for name, column in plans.items():
            known = self.lists.get(name, np.asarray([self.own.get(name, math.nan)]))
            if name == "recompute" or len(column) != count:
                continue
            result[name] = ~np.isin(column, known)
        return result


def with_answer(plans: dict[str, np.ndarray], folder: Path, made: Trainer) -> dict[str, np.ndarray]:
    """Drawn plans and the answer's own, whose neighbours are looked at first."""
    row = pd.read_parquet(folder / "designs.parquet").iloc[0]
    told = {name: float(row[f"var.{name}"]) for name in made.lists}
    return {name: np.append(column, told.get(name, made.own.get(name, math.nan))) for name, column in plans.items()}


def without(made: Trainer, plan: Mapping[str, float], bound: float) -> dict[str, float]:
    """A plan below a bound, with as many values of the space as leave it below."""
    plan = dict(plan)
    for name, value in sorted(plan.items()):
        known = made.lists.get(name, np.asarray([made.own.get(name, value)]))
        if value in known:
            continue
        for other in known[np.argsort(np.abs(known - value))]:
            tried = {key: np.asarray([other if key == name else each]) for key, each in plan.items()}
            if Rules(made.lists, made.study.scenario)(tried)[0][0] and made.priced(tried)[0] < bound * (1 - SAME):
                plan[name] = float(other)
                break
    return plan


def attacked(
    made: Trainer, plans: dict[str, np.ndarray], bound: float
) -> tuple[int, int, float, dict[str, tuple[float, dict[str, float]]]]:
    """Price plans, then neighbours of the best, round by round.

    Returns:
        Plans priced, how many of them keep the limits, the least goal, and the best plan below the bound by the fields
        whose values the space lacks.
    """
    drawn, feasible_count, least = 0, 0, math.inf
    below: dict[str, tuple[float, dict[str, float]]] = {}
    for step in range(ROUNDS + 1):
        if not len(plans["tp"]):
            break
        value, foreign = made.priced(plans), made.foreign(plans)
        drawn, feasible_count = drawn + len(value), feasible_count + int(np.isfinite(value).sum())
        least = min(least, float(value.min()))
        for at in np.argsort(value)[:4]:
            if value[at] < bound * (1 - SAME):
                plan = without(made, {name: float(column[at]) for name, column in plans.items()}, bound)
                single = {name: np.asarray([each]) for name, each in plan.items()}
                lacks = " ".join(name for name, column in made.foreign(single).items() if column[0])
                cost = float(made.priced(single)[0])
                if lacks not in below or cost < below[lacks][0]:
                    below[lacks] = cost, plan
        if step == ROUNDS or not np.isfinite(value).any():
            break
        inside = ~np.any(list(foreign.values()), axis=0)
        best = [np.argsort(np.where(some, value, np.inf))[:KEPT] for some in (np.full(len(value), True), inside)]
        order = np.unique(np.concatenate(best))
        plans = made.near(plans, order[np.isfinite(value[order])])
    return drawn, feasible_count, least, below


def asked(question: str, count: int, seed: int, where: Path | None, *, buys: bool = False) -> bool:
    """Ask, attack each candidate's answer; True where something is wrong.

    buys: ask `codesign buy`, whose answer speaks of no counts: any whole boxes that cost less refute it.
    """
    words = ["train", *shlex.split(question)]
    if buys:
        place = words.index("--on")
        words = ["buy", *words[place : place + 2], "--train", shlex.join([*words[1:place], *words[place + 2 :]])]
    done = subprocess.run([sys.executable, "-m", "codesign", *words], capture_output=True, text=True, cwd=where)
    page = re.search(r"page: (\S+)", done.stdout)
    if page is None:
        print(f"none    {question}: {(done.stderr or done.stdout).strip().splitlines()[-1]}", flush=True)
        return False
    wrong, run = False, (where or Path()) / Path(page[1]).parent
    for folder in sorted(path.parent for path in run.glob("*/summary.json")):
        summary = json.loads((folder / "summary.json").read_text())
        told = summary["certificate"]
        if told["best"] is None:
            print(f"none    {question}: {folder}: no design", flush=True)
            continue
        study = composed(*[text for text in (folder / "overrides.txt").read_text().splitlines() if text])
        most = 2 * int(max(study.space.plan["device_count"]))
        made = Trainer(study, np.random.default_rng(seed), most)
        plans = with_answer(made.legal(count), folder, made)
        bound = float(told["best"] if told["bound"] is None else told["bound"])
        drawn, feasible_count, least, below = attacked(made, plans, bound)
        named = summary["space"]
        unlimited = re.sub(r"\w+ \([^)]*\)", "", named)  # `virtual_stages (up to 8)` says what it lacks
        by = ({*re.findall(r"\w+", unlimited)} - {*SIZES}) | ({"device_count"} if buys else set[str]())
        false = {lacks: found for lacks, found in below.items() if {*lacks.split()} <= by}
        claimed = told["bound"] is not None
        wrong |= claimed and bool(false)
        print(
            f"{('FALSE' if false else 'holds') if claimed else 'no proof'}: {question}: {told['goal']}"
            f" {told['best']:.8g}, bound {told['bound']},"
            f" {named!r}; {drawn:,} drawn, {feasible_count:,} keep the limits, the cheapest"
            f" {least:.8g}",
            flush=True,
        )
        for lacks, (cost, plan) in sorted(below.items(), key=lambda item: item[1][0]):
            own = {name: value for name, value in plan.items() if value != made.own.get(name)}
            print(f"  {1 - cost / bound:.2%} below with {lacks or 'listed values alone'}: {own}", flush=True)
    return wrong


def main() -> int:
    """Attack answers; 1 where a bound or the words of a claim are refuted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", default=QUESTIONS, help="words after `codesign train`")
    parser.add_argument("--count", type=int, default=20_000, help="plans drawn for each candidate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", action="store_true", help="ask `codesign buy` what costs least over years")
    parser.add_argument("--out", type=Path, help="folder in which the questions are asked (here)")
    given = parser.parse_args()
    prepare_jax()
    wrong = [asked(question, given.count, given.seed, given.out, buys=given.kept) for question in given.questions]
    print(f"{sum(wrong)} of {len(wrong)} answers are wrong")
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
