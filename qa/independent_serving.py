"""Engines as vLLM, SGLang and TensorRT-LLM are started, drawn by their own rules, against answers of `codesign serve`.

What is drawn are options of a launch: tensor ranks, stages, data ranks or attention groups, expert ranks, copies, and
with a pool of prompts the same of it. They are put into fields of a plan here, not by the product. One that the plan's
rules refuse, or whose degrees no axis has though the claim does not say so, refutes the words of the claim. All are
priced by plain evaluation in the cases of the search; one of listed values below the bound refutes the proof.

    codesign serve gpt_oss_120b --on h200 --rate 20/s && python qa/independent_serving.py runs/*
"""

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from independent_plans import SAME, SIZES, Attacked, jobs

from codesign import prepare_jax
from codesign import study_from_config as composed
from codesign.study import Rules

Table = dict[str, np.ndarray]
KEPT, NEIGHBOURS, ROUNDS = 64, 48, 5
LOADED = ("prompts", "batch")  # rules of how much an engine has to do, which drawn sizes may break
DEGREES = ("tp", "pp", "ep", "etp", "attention_dp")


class Launched:
    """Random launches of one engine for a study."""

    def __init__(self, made: Attacked):
        self.made, self.rng, scenario = made, made.rng, made.study.scenario
        model = scenario.workload.model
        network, attention = model.feed_forward, model.attention
        self.engine = scenario.workload.layouts.engine
        self.heads, self.layers = float(attention.heads), float(model.layers)
        self.kv_heads = float(getattr(attention, "kv_heads", 0))
        self.experts = float(getattr(network, "experts", 0))
        self.width = float(network.expert_width if self.experts else network.width)
        self.dense = float(getattr(network, "dense_width", 0))
        own = float(scenario.cluster.device_count)
        self.counts = made.lists.get("device_count", np.asarray([own]))
        self.pools = "prefill_devices" in made.lists

    def launch(self, count: int, devices: np.ndarray) -> Table:
        """Degrees of engines that fill these devices, each by a product of divisors; others are dropped by `works`."""
        rng = self.rng

        def part(most: np.ndarray) -> np.ndarray:
            power = 2.0 ** np.floor(rng.uniform(0, np.log2(np.maximum(most, 1)) + 1))
            odd = rng.choice([1.0, 1, 1, 1, 3, 5, 9], count)
            return np.minimum(power * odd, np.maximum(np.floor(most), 1))

        tensor = part(devices)
        stages = np.where(rng.uniform(size=count) < 0.6, 1.0, part(np.minimum(devices / tensor, self.layers)))
        data = part(devices / (tensor * stages))
        experts = np.where(rng.uniform(size=count) < 0.5, tensor, part(tensor))
        if self.engine == "vLLM":  # --enable-expert-parallel or not
            experts = rng.choice([1.0, 2.0], count)
        return {"tensor": tensor, "stages": stages, "data": data, "experts": experts, "devices": devices}

    def works(self, asked: Table) -> np.ndarray:
        """Whether the engine starts so: what its documentation and argument checks say."""
        tensor, stages, data = asked["tensor"], asked["stages"], asked["data"]
        whole = lambda a, b: np.abs(a / b - np.round(a / b)) < 1e-9  # noqa: E731
        groups = np.ones_like(data) if self.engine == "vLLM" else data  # attention over tensor / groups ranks
        ranks = tensor / groups
        okay = whole(asked["devices"], tensor * stages * np.where(groups > 1, 1, data)) & (stages <= self.layers)
        okay &= whole(tensor, groups) & whole(self.heads, np.maximum(ranks, 1e-9))
        if self.kv_heads:
            okay &= whole(np.maximum(self.kv_heads, ranks), np.minimum(self.kv_heads, ranks))
        if self.engine == "TensorRT-LLM":
            okay &= (data == 1) | (data == tensor)
        cut = self._cut(asked)
        if self.experts:
            ep = np.where(asked["experts"] > 1, tensor * data, 1) if self.engine == "vLLM" else asked["experts"]
            okay &= (ep <= 2 * self.experts) & whole(self.width, cut)  # redundant experts included
            okay &= (self.engine == "vLLM") | whole(tensor, asked["experts"])
            okay &= (self.dense == 0) | whole(self.dense, ranks)
        else:
            okay &= whole(self.width, tensor)
            okay &= (groups == 1) | (self.engine != "vLLM")
        return okay

    def _cut(self, asked: Table) -> np.ndarray:
        """Ranks among which one expert is cut."""
        if self.engine == "vLLM":  # --enable-expert-parallel, or every expert over all tensor and data ranks
            return np.where(asked["experts"] > 1, 1.0, asked["tensor"] * asked["data"])
        return asked["tensor"] / asked["experts"]

    def fields(self, asked: Table, begins: str = "") -> Table:
        """The same as fields of a plan."""
        tensor, data, spread = asked["tensor"], asked["data"], asked["experts"] > 1
        one = np.ones_like(tensor)
        if not self.experts:
            groups = one if self.engine == "vLLM" else data
            result = {"tp": tensor, "attention_dp": groups, "ep": one, "etp": 0 * one}
        elif self.engine == "vLLM":
            result = {
                "tp": np.where(spread, tensor, tensor * data), "attention_dp": np.where(spread, 1, data),
                "ep": np.where(spread, tensor * data, 1), "etp": np.where(spread & (tensor > 1), 1.0, 0.0),
            }  # fmt: skip
        else:
            cut = tensor / asked["experts"]
            result = {"tp": tensor, "attention_dp": data, "ep": asked["experts"], "etp": np.where(spread, cut, 0.0)}
        return {f"{begins}{name}": column for name, column in (result | {"pp": asked["stages"]}).items()}

    def sizes(self, count: int) -> Table:
        """Sequences and tokens of a step: mostly those that are listed."""
        result: Table = {}
        for name in SIZES:
            if name in self.made.lists:
                listed = self.made.lists[name]
                free = np.round(np.exp(self.rng.uniform(0, np.log(listed.max() + 1), count)))
                known = self.rng.uniform(size=count) < 0.9
                result[name] = np.where(known, self.rng.choice(listed, count), np.maximum(free, listed.min()))
        return result

    def drawn(self, count: int) -> tuple[Table, Table]:
        """(what is asked for, its fields), of whole engines alone."""
        asked = self.launch(count, self.rng.choice(self.counts, count)) | self.sizes(count)
        okay = self.works(asked)
        if self.pools:
            free = 2.0 ** np.floor(self.rng.uniform(0, np.log2(2 * self.counts.max()) + 1, count))
            pool = np.where(
                self.rng.uniform(size=count) < 0.7, self.rng.choice(self.made.lists["prefill_devices"], count), free
            )
            other = self.launch(count, np.maximum(pool, 1))
            other["data"] = np.where(self.engine == "vLLM", other["data"], 1)
            okay &= (pool == 0) | self.works(other)
            asked |= {f"pool_{name}": column for name, column in other.items()} | {"pool": pool}
        return {name: column[okay] for name, column in asked.items()}, {}

    def planned(self, asked: Table) -> Table:
        """Plans of the launches; fields without an axis keep what the study has."""
        table = self.fields(asked) | {"device_count": asked["devices"]}
        table |= {name: asked[name] for name in SIZES if name in asked}
        if self.pools:
            pool = {name[5:]: column for name, column in asked.items() if name.startswith("pool_")}
            beside = self.fields(pool, "prefill_")
            beside["prefill_attention_dp"] = np.where(asked["pool"] > 0, beside["prefill_attention_dp"], 1)
            table |= beside | {"prefill_devices": asked["pool"]}
        plan = self.made.study.scenario.plan
        known = np.ones(len(table["tp"]), dtype=bool)
        for name, column in table.items():
            if name not in self.made.lists:
                own = getattr(plan, name)
                known &= column == float(self.made.study.scenario.cluster.device_count if own is None else own)
        return {name: column[known] for name, column in table.items() if name in self.made.lists} | {
            " ": np.flatnonzero(known)
        }

    def changed(self, asked: Table, best: np.ndarray) -> Table:
        """Neighbours: one or two options drawn anew."""
        base, many = np.repeat(best, NEIGHBOURS), NEIGHBOURS * len(best)
        fresh: Table = {}
        while len(fresh.get("tensor", ())) < many:
            fresh, _ = self.drawn(many * 8)
        result = {
            name: np.where(self.rng.uniform(size=many) < 2 / len(asked), fresh[name][:many], column[base])
            for name, column in asked.items()
        }
        okay = self.works(result)
        if self.pools:
            okay &= (result["pool"] == 0) | self.works(
                {name[5:]: column for name, column in result.items() if name.startswith("pool_")}
                | {"devices": result["pool"]}
            )
            result["pool_devices"] = np.maximum(result["pool"], 1)
        return {name: column[okay] for name, column in result.items()}


def claimed_fields(space: str, lists: Mapping[str, Any]) -> set[str]:
    """Fields whose every legal value the words of a space claim; `etp (up to 8)` says what it lacks."""
    if "powers of two" in space:
        return set()
    unlimited = re.sub(r"\w+ \([^)]*\)", "", space.partition(" that ")[0])
    return {*re.findall(r"\w+", unlimited)} & {*lists}


def first_launches(launched: Launched, count: int) -> Table:
    """So many random launches."""
    result: Table = {}
    while len(result.get("tensor", ())) < count:
        more, _ = launched.drawn(1 << 16)
        result = {name: np.concatenate([result.get(name, column[:0]), column]) for name, column in more.items()}
    return {name: column[:count] for name, column in result.items()}


def row(plans: Table, number: int) -> dict[str, float]:
    """One plan of a table."""
    return {name: float(column[number]) for name, column in plans.items()}


@dataclass
class Tally:
    """Result of an attack: refused launches by rule, values that no axis has, one plan of each, the least goals.

    least: of plans whose values are all listed (True), and of the others.
    """

    refused: Counter[str] = field(default_factory=Counter[str])
    lacking: Counter[str] = field(default_factory=Counter[str])
    shown: dict[str, dict[str, float]] = field(default_factory=dict[str, Any])
    least: dict[bool, float] = field(default_factory=lambda: {True: math.inf, False: math.inf})
    design: dict[bool, dict[str, float]] = field(default_factory=dict[bool, Any])
    launches: int = 0
    within: int = 0

    def broken(self, plans: Table, legal: np.ndarray, rules: Mapping[str, int]) -> None:
        """Count what rules refuse, those of the load apart."""
        self.refused.update({name: number for name, number in rules.items() if number and name not in LOADED})
        if self.refused and not legal.all():
            self.shown.setdefault("refused", row(plans, int(np.argmin(legal))))

    def listed(self, plans: Table, lists: Mapping[str, Any], claimed: set[str]) -> np.ndarray:
        """True for plans whose every value is on its list; values of claimed fields that are not are counted."""
        inside = np.ones(len(plans["tp"]), dtype=bool)
        for name, column in plans.items():
            out = ~np.isin(column, lists[name])
            if name.startswith("prefill_") and name != "prefill_devices":
                pool = plans["prefill_devices"]
                out &= (pool > 0) & np.isin(pool, lists["prefill_devices"])
            inside &= ~out
            if name in claimed and out.any():
                self.lacking[name] += int(out.sum())
                self.shown.setdefault(name, row(plans, int(np.argmax(out))))
        return inside

    def priced(self, plans: Table, value: np.ndarray, inside: np.ndarray) -> None:
        """Keep the least goal of either kind."""
        self.launches, self.within = self.launches + len(value), self.within + int(np.isfinite(value).sum())
        for which in (True, False):
            some = np.where(inside == which, value, np.inf)
            if some.min() < self.least[which]:
                self.least[which], self.design[which] = float(some.min()), row(plans, int(np.argmin(some)))


def attacked(folder: Path, count: int, seed: int) -> bool:
    """Attack one answer; True where its proof or the words of its claim are refuted."""
    study = composed(*[text for text in (folder / "overrides.txt").read_text().splitlines() if text])
    summary = json.loads((folder / "summary.json").read_text())
    certificate: dict[str, Any] = summary["certificate"]
    bound = certificate["bound"]
    if bound is None and certificate["certified"]:
        bound = math.inf
    made, tally = Attacked(study, np.random.default_rng(seed)), Tally()
    launched, rules = Launched(made), Rules(made.lists, study.scenario)
    claimed = claimed_fields(summary["space"], made.lists)
    asked = first_launches(launched, count)
    for step in range(ROUNDS + 1):
        plans = launched.planned(asked)
        place = plans.pop(" ").astype(int)
        legal, broken = rules(plans)
        tally.broken(plans, legal, broken)
        plans = {name: column[legal] for name, column in plans.items()}
        asked = {name: column[place][legal] for name, column in asked.items()}
        if not len(plans["tp"]):
            break
        value = made.priced(plans, {})
        tally.priced(plans, value, tally.listed(plans, made.lists, claimed))
        order = np.argsort(value)[:KEPT]
        order = order[np.isfinite(value[order])]
        if step == ROUNDS or not len(order):
            break
        asked = launched.changed(asked, order)
    least, below = tally.least, math.inf if bound is None else bound * (1 - SAME)
    false = bound is not None and least[True] < below
    print(
        f"{'FALSE' if false else 'no proof' if bound is None else 'holds'}: {folder}: {launched.engine}, best"
        f" {certificate['best']}, bound {certificate['bound']}; {tally.launches:,} launches, {tally.within:,} keep the"
        f" limits, least of listed values {least[True]:.8g}, of others {least[False]:.8g}; degrees that no axis has"
        f" {dict(tally.lacking)}, refused by a rule {dict(tally.refused)}; {summary['space']!r}",
        flush=True,
    )
    for name, plan in tally.shown.items():
        print(f"  {name}: {plan}")
    if bound is not None and min(least.values()) < below:
        print(f"  below: {tally.design[least[True] < below]}")
    return false or bool(tally.lacking) or bool(tally.refused)


def main() -> int:
    """Attack the jobs of run folders; 1 where a bound or the words of a claim are refuted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=20_000, help="launches drawn for each job")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    prepare_jax()
    folders = [job for run in given.runs for job in jobs(run)]
    if not folders:
        parser.error(f"no certified job below {', '.join(map(str, given.runs))}: name run folders")
    wrong = [attacked(folder, given.count, given.seed) for folder in folders]
    print(f"{sum(wrong)} of {len(wrong)} answers are wrong")
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
