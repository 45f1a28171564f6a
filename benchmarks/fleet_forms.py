"""Closed forms of a fleet beside its simulation, by burstiness, load and router: `python benchmarks/fleet_forms.py`.

Each row is a condition of an engine of Llama 3.1 8B on an H100; errors are closed form over the mean of three seeds,
and `said` is what `codesign simulate --replicas` says of the 99th percentile of times to a first token there.
"""

import dataclasses
import sys

from codesign import prepare_jax

prepare_jax()

import numpy as np
import pandas as pd

from codesign import ConfigError
from codesign.commands.simulate import engine_of
from codesign.commands.simulate_fleet import untrusted
from codesign.commands.simulate_forms import cached_tokens, closed_form_of, form_numbers, load_of
from codesign.config import scenario_from_config
from codesign.simulation.fleet import simulate_fleet
from codesign.simulation.serving import Requests, arrivals, lengths, mean_request, most_rate

DESIGN = (
    "model=llama31_8b", "accelerator=h100_sxm", "workload=at_rate", "cluster.device_count=1", "plan.tp=1",
    "plan.micro_batch=128", "workload.output_tokens=256", "workload.output_cv=0.7", "workload.input_tokens=1024",
)  # fmt: skip
SHAPES = {
    "even": ("workload.input_cv=0", "plan.token_budget=2048"),
    "varied": ("workload.input_cv=0.7", "plan.token_budget=512"),
}
SLOTS = 128
LOADS, VARIATIONS, SEEDS = (0.3, 0.6, 0.75, 0.9), (1.0, 1.5, 2.0, 3.0, 4.0), (0, 1, 2)
REQUESTS = 6000  # of a replica


def requests(scenario, rate: float, cv: float, count: int, seed: int) -> Requests:
    """Drawn for a design."""
    rng = np.random.default_rng(seed)
    came = arrivals(rng, rate, cv, count)
    work = scenario.workload
    prompts = lengths(rng, float(work.input_tokens), float(work.input_cv), count)
    answers = lengths(rng, float(work.output_tokens), float(work.output_cv), count, least=2)
    return Requests(prompts, answers, came * ((count - 1) / (rate * np.ptp(came))))


def rows(router: str, replicas: int):
    """One a condition."""
    for shape, words in SHAPES.items():
        scenario = scenario_from_config(*DESIGN, *words)
        engine = dataclasses.replace(engine_of(scenario)[0], sequences=SLOTS)
        most = most_rate(engine.times, mean_request(requests(scenario, 1.0, 1.0, 4000, 9), engine.sequences))
        for cv in VARIATIONS:
            for load in LOADS:
                drawn = [requests(scenario, load * most * replicas, cv, REQUESTS * replicas, s) for s in SEEDS]
                try:
                    cached = cached_tokens(engine, drawn[0], router, replicas)
                    share, form = closed_form_of(engine, drawn[0], cached, replicas)
                except ConfigError as error:
                    yield {"prompts": shape, "cv": cv, "rate / most": load, "said": f"refused: {str(error)[:40]}"}
                    continue
                closed = form_numbers(form)
                served = [simulate_fleet(engine, one, router, replicas=replicas).served for one in drawn]
                p99 = [float(np.percentile(one.ttft_s, 99)) for one in served]
                yield {
                    "prompts": shape, "cv": cv, "rate / most": load, "load": load_of(form),
                    "queued": float(form.places.late),
                    "ttft %": 100 * (closed["ttft_s"] / np.mean([one.ttft_s.mean() for one in served]) - 1),
                    "ttft p99 %": 100 * (closed["ttft_s.p99"] / np.mean(p99) - 1),
                    "tpot %": 100 * (closed["tpot_s"] / np.mean([one.tpot_s.mean() for one in served]) - 1),
                    "seeds %": 100 * np.ptp(p99) / np.mean(p99),
                    "said": "; ".join(untrusted(share, form, router))[:60],
                }  # fmt: skip


if __name__ == "__main__":
    router, replicas = (sys.argv[1] if len(sys.argv) > 1 else "round_robin"), int([*sys.argv, "", "1"][2] or 1)
    table = pd.DataFrame(rows(router, replicas))
    print(table.round(2).to_string(index=False))
    kept = table[(table["said"] == "") & table["ttft p99 %"].notna()]
    worst = kept["ttft p99 %"].abs().max()
    print(f"{router}, {replicas} replicas: {len(kept)} of {len(table)} conditions trusted, p99 within {worst:.1f} %")
