"""Plans drawn without a space's lists, priced by plain evaluation against the bound that a run proved.

Every job of a run folder (`codesign optimize`, `compare`, `serve`, `train`) is made again from its overrides. Plans are
drawn from the rules alone: any whole number of ranks, stages, sequences and tokens between the ends of each list, on
the listed numbers of devices, with hardware anywhere in the box; then the best of them, and the run's own designs, are
changed field by field, numbers in ever smaller steps. A
design of listed values below the bound refutes the proof. Better designs with values that no list holds, and legal
degrees that an axis made from the rules lacks, are told apart: the claim names its sizes.

    codesign serve llama31_70b --on h100 --rate 10/s && python qa/independent_plans.py runs/*
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from codesign import prepare_jax
from codesign import study_from_config as composed
from codesign.config import Study
from codesign.jaxprs import interpreted
from codesign.search import Robust
from codesign.study import Rules, feasible

EVERY, SIZES = "every", ("micro_batch", "token_budget", "prefill_token_budget")  # words and fields of spaces
SAME = 1e-7  # relative, of a bound that a design may be below
BLOCK = 2048  # designs priced at once
DRAWN = 1 << 17  # plans looked at at once while legal ones are sought
LOOKS = 24
KEPT, ROUNDS = 64, 6  # designs that are changed, and how often
WORDS = ("recompute", "sequence_parallel", "zero", "offload_optimizer", "schedule")  # fields of which all values count


class Result(NamedTuple):
    """What an attack found: designs below the bound of listed values, others below it, and missing degrees."""

    priced: int
    feasible: int
    inside: float
    outside: float
    design: Mapping[str, float]
    missing: Mapping[str, list[float]]


def blended(search: Any, goals: np.ndarray) -> np.ndarray:
    """Goal over equally likely cases, as a search blends them: [designs, cases] -> [designs]."""
    if not isinstance(search, Robust) or search.aggregate == "sum":
        return goals.mean(axis=-1)
    if search.aggregate == "worst":
        return goals.max(axis=-1)
    raise SystemExit(f"search.aggregate = {search.aggregate}: only sum and worst are attacked")


class Attacked:
    """A study whose plans are drawn, judged by its rules and priced in all of its cases."""

    def __init__(self, study: Study, rng: np.random.Generator):
        self.study, self.rng = study, rng
        scenario, search = study.scenario, study.search
        self.scenarios = [scenario]
        if isinstance(search, Robust):
            self.scenarios = search.cases.scenarios(search.cases.with_room(scenario), study.seed)
        self.lists = {name: np.asarray(values, dtype=float) for name, values in study.space.lists.items()}
        self.degrees = {n for n, word in study.space.words.items() if word == EVERY and n not in (*SIZES, *WORDS)}

        def priced(asked: Any, point: Any) -> Any:
            from codesign import evaluate

            metrics = evaluate(study.space.place(asked, point))
            return study.objective.value(metrics, study.objective.goal), study.objective.excess(metrics)

        self._priced = interpreted(jax.vmap(priced, in_axes=(None, 0)), always=True)

    def drawn(self, count: int) -> dict[str, np.ndarray]:
        """Legal plans; half of each field's values are listed ones or divisors."""
        found: list[np.ndarray] = []
        rules, names = Rules(self.lists, self.study.scenario), list(self.lists)
        for _ in range(LOOKS):
            table = self._values(DRAWN)
            legal, _ = rules(table)
            found.append(np.stack([table[name][legal] for name in names], axis=-1))
            if sum(map(len, found)) >= count:
                break
        some = np.unique(np.concatenate(found), axis=0)
        some = some[self.rng.permutation(len(some))[:count]]
        return {name: some[:, place] for place, name in enumerate(names)}

    def _values(self, count: int) -> dict[str, np.ndarray]:
        rng, table = self.rng, {}
        if "device_count" in self.lists:
            where = rng.choice(self.lists["device_count"], count)
        else:
            where = np.full(count, float(self.study.scenario.cluster.device_count))
        pool = rng.choice(self.lists["prefill_devices"], count) if "prefill_devices" in self.lists else where
        for name, values in self.lists.items():
            if name == "device_count":
                table[name] = where
                continue
            if name == "prefill_devices":
                free = 8.0 * np.ceil(rng.uniform(0, max(values.max() / 8, 1), count))
                pool = np.where(rng.uniform(size=count) < 0.5, pool, free)
                table[name] = pool
                continue
            listed = rng.choice(values, count)
            if name in WORDS or (len(values) == 1 and values[0] <= 1 and name not in self.study.space.words):
                table[name] = listed
                continue
            least, most = values.min(), values.max()
            free = np.round(np.exp(rng.uniform(np.log(max(least, 1) * 0.999), np.log(max(most, 1) * 1.001), count)))
            free = np.clip(free, least, most)
            table[name] = np.where(rng.uniform(size=count) < 0.6, listed, free)
        return table

    def priced(self, plans: dict[str, np.ndarray], u: dict[str, np.ndarray]) -> np.ndarray:
        """The goal of designs over all cases; inf where a limit or rule is broken in one."""
        points = plans | {n: np.asarray(v) for n, v in self.study.space.values(u).items()}
        size = len(next(iter(points.values())))
        parts = []
        for first in range(0, size, BLOCK):
            at = np.minimum(np.arange(first, first + min(BLOCK, size)), size - 1)
            some = {name: column[at] for name, column in points.items()}
            goals, kept = [], np.ones(len(at), dtype=bool)
            for scenario in self.scenarios:
                goal, excess = (np.asarray(each, dtype=float) for each in self._priced(scenario, some))
                goals.append(goal)
                kept &= np.asarray(feasible(excess)) & np.isfinite(goal)
            value = blended(self.study.search, np.stack(goals, axis=-1))
            parts.append(np.where(kept, value, np.inf)[: size - first])
        return np.concatenate(parts)

    def places(self, count: int) -> dict[str, np.ndarray]:
        """Random coordinates of the hardware, a third at an end of its range."""
        result: dict[str, np.ndarray] = {}
        for name in self.study.space.hardware:
            share, ends = self.rng.uniform(size=(2, count))
            result[name] = np.where(ends < 1 / 3, np.round(share), share)
        return result

    def changed(self, plans: dict[str, np.ndarray], u: dict[str, np.ndarray], best: np.ndarray) -> Any:
        """Neighbours of some designs: one or two fields drawn anew, coordinates moved."""
        rng, many = self.rng, 32 * len(best)
        base = np.repeat(best, 32)
        fresh = self._values(many)
        table = {}
        for name, column in plans.items():
            swap = rng.uniform(size=many) < 1.5 / max(len(plans), 1)
            table[name] = np.where(swap, fresh[name], column[base])
        if table:
            legal, _ = Rules(self.lists, self.study.scenario)(table)
            table = {name: column[legal] for name, column in table.items()}
        else:
            legal = np.ones(many, dtype=bool)
        width = 10 ** rng.uniform(-6, -0.5, size=many)
        moved = {n: np.clip(c[base] + width * rng.normal(size=many), 0, 1)[legal] for n, c in u.items()}
        return table, moved

    def inside(self, plans: dict[str, np.ndarray]) -> np.ndarray:
        """True of plans all of whose values are listed."""
        result = np.ones(len(next(iter(plans.values()))), dtype=bool)
        for name, column in plans.items():
            result &= np.isin(column, self.lists[name])
        return result


def designs_of(study: Study, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Plans and coordinates of the designs that a run left."""
    frame = pd.read_parquet(folder / "designs.parquet").head(KEPT)
    plans = {name: frame[f"var.{name}"].to_numpy(float) for name in study.space.lists}
    values = {name: frame[f"var.{name}"].to_numpy(float) for name in study.space.hardware}
    u = {name: np.clip(np.asarray(column), 0, 1) for name, column in study.space.coordinates(values).items()}
    return plans, u


def attacked(study: Study, count: int, seed: int, folder: Path | None = None) -> Result:
    """Draw, price and change plans of a study, from the designs of a run's folder on where there is one."""
    made = Attacked(study, np.random.default_rng(seed))
    sign = 1.0 if study.objective.minimise else -1.0
    plans = made.drawn(count)
    size = len(next(iter(plans.values()))) if plans else count
    u = made.places(size)
    if folder is not None:
        found, at = designs_of(study, folder)
        plans = {name: np.concatenate([column, found[name]]) for name, column in plans.items()}
        u = {name: np.concatenate([column, at[name]]) for name, column in u.items()}
        size = len(next(iter({**plans, **u}.values())))
    missing: dict[str, list[float]] = {}
    pool = plans.get("prefill_devices", np.zeros(size))
    for name in made.degrees:
        used = pool > 0 if name.startswith("prefill_") else np.ones(size, dtype=bool)  # of no pool they say nothing
        out = np.unique(plans[name][used & ~np.isin(plans[name], made.lists[name])])
        if len(out):
            missing[name] = out.tolist()
    best, kept, priced = {True: math.inf, False: math.inf}, 0, 0
    design: dict[str, float] = {}
    for step in range(ROUNDS + 1):
        value = sign * made.priced(plans, u)
        inside = made.inside(plans) if plans else np.ones(len(value), dtype=bool)
        priced, kept = priced + len(value), kept + int(np.isfinite(value).sum())
        for which in (True, False):
            some = np.where(inside == which, value, np.inf)
            if len(some) and some.min() < best[which]:
                best[which] = float(some.min())
                if which or not design:
                    at = int(np.argmin(some))
                    hardware = study.space.values({n: c[at] for n, c in u.items()})
                    design = {n: float(c[at]) for n, c in plans.items()} | {n: float(v) for n, v in hardware.items()}
        if step == ROUNDS or not np.isfinite(value).any():
            break
        order = np.argsort(value)[:KEPT]
        order = order[np.isfinite(value[order])]
        plans, u = made.changed(plans, u, order)
        if not len(next(iter({**plans, **u}.values()))):
            break
    return Result(priced, kept, sign * best[True], sign * best[False], design, missing)


def jobs(run: Path) -> list[Path]:
    """Folders of a run that have a certificate."""
    return sorted(path.parent.parent for path in run.rglob("certificate/certificate.json"))


def main() -> int:
    """Attack the jobs of run folders; 1 where a bound is refuted or a degree is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=20_000, help="plans drawn for each job")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    prepare_jax()
    wrong = 0
    folders = [job for run in given.runs for job in jobs(run)]
    if not folders:
        parser.error(f"no certified job below {', '.join(map(str, given.runs))}: name run folders")
    for folder in folders:
        words = (folder / "overrides.txt").read_text().splitlines()
        study = composed(*[text for text in words if text])
        told = json.loads((folder / "summary.json").read_text())["certificate"]
        if told.get("goal") is None:
            print(f"none: {folder}: a front or a mix", flush=True)
            continue
        bound, sign = told["bound"], 1.0 if study.objective.minimise else -1.0
        result = attacked(study, given.count, given.seed, folder)
        limit = math.inf * sign if bound is None else bound * (1 - sign * SAME)
        false = sign * result.inside < sign * limit and math.isfinite(result.inside)
        if bound is None and not told["certified"]:
            false = False
        outside = 1 - result.outside / bound if bound else math.nan
        wrong += false + bool(result.missing)
        print(
            f"{'FALSE' if false else 'holds'}: {folder}: {study.objective.goal}, best {told['best']}, bound {bound};"
            f" of {result.priced:,} drawn {result.feasible:,} feasible, best of listed values {result.inside:.9g},"
            f" of others {result.outside:.9g} ({max(sign * outside, 0):.2%} beyond the bound);"
            f" missing degrees {dict(result.missing)}",
            flush=True,
        )
        if false:
            print(f"  {result.design}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
