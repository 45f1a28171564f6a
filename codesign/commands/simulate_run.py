"""`codesign simulate --num-prompts`: a benchmark's run on a design, from its first request to its last."""

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from ..config import check_plan
from ..config.consistency import check_boxes
from ..core.errors import ConfigError
from ..core.json_io import dumps
from ..core.units import engineering
from ..model.metrics.simulated import finite_run, has_two_pools
from ..model.scenario import Scenario
from ..model.workloads.continuous import AbstractContinuousServing
from ..model.workloads.under_load import AbstractOpenServing
from ..search.results import numbers_of
from .setup import prepare_jax
from .simulate import MOST, design_of
from .terminal import console, job_text

__all__ = ["simulate_prompts"]

MOST_PROMPTS = 1_000_000
TIMES = {"ttft_s": "time to first token", "tpot_s": "time per output token", "e2e_s": "whole request"}


def simulate_prompts(
    what: Sequence[str], prompts: int, *, design: int, seed: int, rate: float, cv: float | None, as_json: bool
) -> int:
    """Simulate such a run and print its latencies and throughput.

    Raises:
        ConfigError: no such run or design, one that serves no continuous batches, or a request that never fits.
    """
    if not 1 <= prompts <= MOST_PROMPTS:
        raise ConfigError(f"simulate: --num-prompts {prompts} is outside [1, {MOST_PROMPTS}]")
    if not rate >= 0:
        raise ConfigError(f"simulate: --rate {rate:g} is no rate; allowed: requests/s from 0 on, inf for all at once")
    if not 0 <= (cv or 0.0) <= MOST["cv"] or not 0 <= seed <= MOST["seed"]:
        raise ConfigError(f"simulate: --cv is in [0, {MOST['cv']:g}] and --seed in [0, {MOST['seed']}]")
    if cv is not None and not 0 < rate < math.inf:
        raise ConfigError(f"simulate: --cv {cv:g} is of requests at a rate: say its --rate, in requests/s")
    prepare_jax()
    _, scenario = design_of(what, design)
    _check(scenario)
    work: Any = scenario.workload
    if isinstance(work, AbstractOpenServing):
        rate, cv = rate or numbers_of(scenario)["requests_per_s"], float(work.arrival_cv) if cv is None else cv
    clients = float(scenario.plan.micro_batch)
    result = finite_run(scenario, prompts, clients=clients, rate=rate, cv=1.0 if cv is None else cv, seed=seed)
    told = result.summary()
    answers = float(work.output_tokens)
    told |= {"requests": prompts, "duration_s": prompts / result.rate, "output_tokens_per_s": result.rate * answers}
    if as_json:
        print(dumps(told, indent=2))
        return 0
    how = f"{clients:g} clients" if rate == 0 else "all at once" if math.isinf(rate) else f"{rate:g} requests/s"
    _show(console(), f"{job_text(scenario)}: a run of {prompts:,} requests, {how}, simulated", told)
    return 0


def _check(scenario: Scenario) -> None:
    work = scenario.workload
    if not isinstance(work, AbstractContinuousServing):
        raise ConfigError(
            f"{type(work).__name__} serves no continuous batches: simulate needs workload=continuous or continuous_fp8"
        )
    if has_two_pools(scenario):
        raise ConfigError("simulate: --num-prompts is of one pool; leave it out for workload=disaggregated")
    check_plan(scenario)
    check_boxes(scenario)


def _show(out: Console, title: str, told: dict[str, Any]) -> None:
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in ("", "mean", "p50", "p90", "p99"):
        table.add_column(name, justify="right" if name else "left")
    for name, label in TIMES.items():
        table.add_row(label, *(_seconds(told[key]) for key in (name, *(f"{name}.p{q}" for q in (50, 90, 99)))))
    out.print(table)
    out.print(
        f"from the first request to the last answer {engineering(told['duration_s'], 's')}:"
        f" {told['output_tokens_per_s']:,.4g} output tokens/s, {told['rate']:.4g} requests/s"
    )
    if told["preempted"]:
        out.print(f"{told['preempted']:,.0f} times a sequence lost its blocks and was computed again")


def _seconds(value: float) -> str:
    return engineering(value, "s") if math.isfinite(value) else ""
