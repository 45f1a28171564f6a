"""Families of studies that one network of `amortised` answers: what is drawn, and between which bounds."""

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core.errors import ConfigError
from ....core.fields import get_path, replace
from ...base import Problem
from ...branch_and_bound.bounding import SearchEffort
from ...branch_and_bound.branch_and_bound import BranchAndBound
from ...branch_and_bound.model_oracle import Oracle
from ...branch_and_bound.oracle import Programme, rows_of
from ...mix.workload_oracles import moved_limits
from ..amortised import Instant, InstantAnswer, with_plans
from ..guesser import TrainedPredictor


@dataclass(frozen=True)
class StudyFamily:
    """Studies that one network answers.

    Args:
        name: of the file of weights.
        overrides: the study that the others vary.
        shapes: path -> value, one mapping for each shape of model.
        choices: path -> values of workload and cluster, drawn independently.
        factors: path -> largest factor by which a price or constant is changed, up or down, drawn log-uniform.
        budgets: limit -> (least, most), of a device where `per_device`.
    """

    name: str
    overrides: tuple[str, ...]
    shapes: tuple[dict[str, float], ...]
    choices: dict[str, tuple[float, ...]]
    factors: dict[str, float]
    budgets: dict[str, tuple[float, float, bool]]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Paths whose values are features."""
        return (*self.shapes[0], *self.choices, *self.factors)

    def draw(self, problem: Problem, rng: np.random.Generator, count: int) -> np.ndarray:
        """[count, inputs + limits] values of random studies."""
        nominal = {path: float(get_path(problem.scenario, path)) for path in self.factors}
        rows: list[list[float]] = []
        for _ in range(count):
            row = dict(self.shapes[rng.integers(len(self.shapes))])
            row |= {path: float(rng.choice(values)) for path, values in self.choices.items()}
            row |= {p: nominal[p] * float(np.exp(rng.uniform(-1, 1) * np.log(f))) for p, f in self.factors.items()}
            devices = row.get("cluster.device_count", float(problem.scenario.cluster.device_count))
            for name in sorted(self.budgets):
                low, high, each = self.budgets[name]
                edges = float(np.log(low)), float(np.log(high))
                row[name] = float(np.exp(rng.uniform(*edges))) * (devices if each else 1.0)
            rows.append([row[key] for key in (*self.inputs, *sorted(self.budgets))])
        return np.array(rows)

    def problem(self, base: Problem, row: np.ndarray) -> Problem:
        """The study of one drawn row."""
        count = len(self.inputs)
        scenario = replace(base.scenario, dict(zip(self.inputs, map(float, row[:count]), strict=True)))
        limits = dict(zip(sorted(self.budgets), map(float, row[count:]), strict=True))
        return dataclasses.replace(
            base, scenario=scenario, objective=dataclasses.replace(base.objective, limits=limits)
        )


def _shape(hidden: float, layers: float, heads: float) -> dict[str, float]:
    model = "workload.model"
    return {
        f"{model}.hidden": hidden, f"{model}.layers": layers, f"{model}.attention.heads": heads,
        f"{model}.attention.kv_heads": heads, f"{model}.attention.head_dim": hidden / heads,
        f"{model}.feed_forward.width": 4 * hidden,
    }  # fmt: skip


def _gated(hidden: float, layers: float, heads: float, width: float) -> dict[str, float]:
    return _shape(hidden, layers, heads) | {
        "workload.model.attention.kv_heads": 8.0, "workload.model.feed_forward.width": width
    }  # fmt: skip


UP, OUT = "cluster.network.scale_up.fabric", "cluster.network.scale_out.fabric"
PRICES = {
    "cluster.accelerator.price_usd": 1.4, "cluster.accelerator.hbm.usd_per_byte": 1.6,
    "cluster.host.memory.usd_per_byte": 1.6, f"{UP}.usd_per_bytes_per_s": 1.6, f"{OUT}.usd_per_bytes_per_s": 1.6,
    "cluster.facility.usd_per_j": 1.6,
}  # fmt: skip
TRAINING = StudyFamily(
    "training",
    ("experiment=train_gpt3_175b",),
    tuple(
        _shape(128.0 * heads, layers, heads)
        for heads, least in ((32, 32), (48, 32), (64, 48), (80, 48), (96, 64), (128, 80), (160, 96))
        for layers in (32, 40, 48, 64, 80, 96, 128)
        if least <= layers <= 2.5 * least
    ),
    {
        "workload.sequence": (2048.0, 4096.0), "workload.global_batch": (1024.0, 1536.0, 2048.0, 3072.0),
        "cluster.device_count": (512.0, 1024.0, 2048.0, 4096.0),
    },
    PRICES,
    {"capex_usd": (46e3, 70e3, True), "provisioned_power_w": (1200.0, 1700.0, True)},
)  # fmt: skip
SERVING = StudyFamily(
    "serving",
    ("experiment=serve_llama31_405b_static",),
    tuple(
        _gated(*shape)
        for shape in (
            (8192.0, 80.0, 64.0, 28672.0), (8192.0, 64.0, 64.0, 28672.0), (12288.0, 96.0, 96.0, 40960.0),
            (12288.0, 80.0, 96.0, 36864.0), (16384.0, 126.0, 128.0, 53248.0), (16384.0, 96.0, 128.0, 53248.0),
        )
    ),
    {
        "workload.input_tokens": (512.0, 1024.0, 2048.0, 4096.0), "workload.output_tokens": (256.0, 512.0, 1024.0),
        "cluster.device_count": (32.0, 64.0, 128.0),
    },
    PRICES,
    {
        "capex_usd": (46e3, 75e3, True), "provisioned_power_w": (1250.0, 1900.0, True), "ttft_s": (4.0, 30.0, False),
        "tpot_s": (0.03, 0.12, False),
    },
)  # fmt: skip
FAMILIES = {family.name: family for family in (TRAINING, SERVING)}


# Regret of the instant answers of `amortised`, against the certified optimum of studies held out.


HELD_OUT = 1_000_003  # added to a seed: of studies that no training draws


def regrets(
    guesser: TrainedPredictor, family: StudyFamily, base: Problem, studies: int, seed: int = 0, gap: float = 1e-3,
    note: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:  # fmt: skip
    """One row per random study that has a feasible design: regret of the answer over the certified bound, seconds.

    The reference is proven to `gap`; regret is measured against its best design, or against its bound where that is
    worse for the answer than `gap`.
    """
    rng = np.random.default_rng(seed + HELD_OUT)
    oracle, instant = Oracle(base, rows_of(base)), Instant(base, guesser.shape)
    oracle.tangents(np.zeros(1, dtype=int), np.full((1, len(base.space.names)), 0.5), 50.0)
    rows: list[dict[str, Any]] = []
    names = (*family.inputs, *sorted(family.budgets))
    InstantAnswer(guesser, instant, base).run()  # warm
    while len(rows) < studies:
        drawn = family.draw(base, rng, 1)[0]
        problem = family.problem(base, drawn)
        allowed = moved_limits(base, problem)
        began, cpu = time.perf_counter(), time.process_time()
        answer = InstantAnswer(guesser, instant, problem, allowed).run()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        try:
            plans = problem.space.plans(problem.scenario)
        except ConfigError:
            continue
        table = np.stack([plans[name] for name in oracle.plans], axis=-1)
        outcome = BranchAndBound(
            Programme(with_plans(oracle, problem, table), allowed=allowed), SearchEffort(gap=gap), 0
        ).run()
        if not math.isfinite(outcome.upper):
            continue
        rows.append({
            "regret": math.expm1(answer.upper - outcome.upper) if math.isfinite(answer.upper) else math.inf,
            "proven": math.expm1(outcome.gap), "seconds": seconds, "cpu_s": cpu, "plans": len(table),
            "points": answer.evaluated, "study": dict(zip(names, map(float, drawn), strict=True)),
        })  # fmt: skip
        note(rows[-1])
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarise a measurement of regret, as kept in `facts`."""
    regret = np.array([row["regret"] for row in rows])
    seconds = np.array([row["seconds"] for row in rows])
    finite = regret[np.isfinite(regret)]
    return {
        "studies": len(rows), "within_1_percent": float((regret <= 0.01).mean()), "median": float(np.median(regret)),
        "worst": float(finite.max(initial=0.0)), "without_answer": int((~np.isfinite(regret)).sum()),
        "seconds_median": float(np.median(seconds)), "seconds_worst": float(seconds.max()),
        "proven_to": float(max(row["proven"] for row in rows)),
    }  # fmt: skip
