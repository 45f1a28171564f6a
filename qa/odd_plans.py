"""Random small spaces with odd plan values, each certified and compared with every listed combination.

A study has one workload family, a device count and batch that are no powers of two, lists of odd values (1, 2, 3, 5, 6,
7, 12, 72) in random fields, sometimes a variable of the hardware, a limit, or a goal that is an expression. The
certified optimum must equal the best of all listed combinations by plain `evaluate`; what is called infeasible must
have no feasible combination; `codesign.verification` must confirm each claim.

    python qa/odd_plans.py --count 400 --seed 0
"""

import argparse
import itertools
import math
import sys
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from codesign import ConfigError, Continuous, DesignSpace, Objective, Problem, Scenario, evaluate, replace
from codesign import study_from_config as composed
from codesign.jaxprs import interpreted
from codesign.search import Certified
from codesign.study import Rules, feasible
from codesign.verification import VerifiedProblem, derivation_of, verify

A = "cluster.accelerator"
VALUES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 72)
DEVICES = (6, 12, 24, 48, 60, 72, 84, 96, 120, 144, 168, 192, 336, 504, 576)
MOST = 300  # combinations of a study
LEVELS = 9  # hardware points for each combination, where the hardware varies
GAP = 1e-4
SAME = 1e-7
KINDS = [1, 2, 5, 10, 17, 28]  # tokens of prompts, of which no step lies between
TRIES = 200  # lists that are drawn until two plans are legal
MOST_PLANS = 20_000_000
HARDWARE = {
    "hbm_bandwidth": f"{A}.hbm.bandwidth_bytes_per_s",
    "compute": f"{A}.peak_flops_per_s.bf16",
    "hbm": f"{A}.hbm.capacity_bytes",
}
TRAINING = {
    "tp": VALUES, "pp": VALUES, "cp": (1, 2, 3), "ep": VALUES, "virtual_stages": (1, 2, 3, 5),
    "micro_batch": (1, 2, 3, 6),
    "recompute": (0, 1, 2), "zero": (0, 1, 2, 3), "sequence_parallel": (0, 1), "offload_optimizer": (0, 0.5, 1),
    "offload_activations": (0, 0.3, 1), "scatter_gather_p2p": (0, 1), "reduce_grads_every_microbatch": (0, 1),
    "etp": (0, 1, 2, 3), "first_stage_less": (0, 1, 2), "last_stage_less": (0, 1, 2), "prefetch": (0, 1),
    "loss_chunks": (1, 3), "capacity_factor": (0, 1.25), "schedule": (0, 1, 2, 3),
}  # fmt: skip
STATIC = {"tp": VALUES, "pp": VALUES, "ep": VALUES, "micro_batch": (1, 2, 3, 5, 7, 12, 72), "cp": (1, 2, 3)}
STEPS = STATIC | {"token_budget": (72, 512, 700, 2048), "attention_dp": (1, 2, 3, 4)}
POOLS = STEPS | {
    "prefill_devices": (0, 4, 6, 12, 72), "prefill_tp": (1, 2, 3, 4, 6), "prefill_pp": (1, 2, 3),
    "prefill_ep": (1, 2, 3),
    "prefill_attention_dp": (1, 2), "prefill_token_budget": (0, 700, 2048), "prefill_max_utilisation": (0.5, 0.8),
}  # fmt: skip
SIDES = POOLS | {
    "prefill_devices": (6, 12, 72), "ffn_devices": (0, 3, 6, 7, 12, 72), "ffn_tp": (1, 2, 3),
    "ffn_ep": (1, 2, 3, 6, 72), "ffn_micro_batches": (1, 2, 3, 5),
}  # fmt: skip
TABLES = {
    "tp": (1, 2, 3, 6, 12, 72), "row_shards": (1, 2, 3, 6), "column_shards": (1, 2, 3), "micro_batch": (72, 700, 4096),
    "offload_weights": (0, 0.5, 1), "pp": (1, 2), "ep": (1, 3),
}  # fmt: skip
DENSE = ("gpt3_175b", "llama2_70b", "llama31_8b", "megatron_22b", "gpt_j_6b")
EXPERTS = ("mixtral_8x7b", "qwen3_30b_a3b", "deepseek_v3", "gpt_oss_20b", "dbrx")


class Family(NamedTuple):
    """A workload, models that it may have, and plan fields with values that lists are drawn from."""

    workload: str
    models: tuple[str, ...]
    fields: Mapping[str, Sequence[float]]
    batch: str = ""
    words: tuple[str, ...] = ()
    space: tuple[str, ...] = ("space=fixed",)
    engines: tuple[str, ...] = ("none",)


ENGINES = ("none", "vllm", "sglang", "trtllm")
AT_RATE = (*ENGINES, "vllm_async")
TRAINERS = ("none", "typical", "nemo", "megatron")
FAMILIES = {
    "training": Family("training", DENSE, TRAINING, "workload.global_batch", engines=TRAINERS),
    "training_experts": Family("training", EXPERTS, TRAINING, "workload.global_batch", engines=TRAINERS),
    "static": Family("static_batch", (*DENSE, *EXPERTS), STATIC),
    "continuous": Family("continuous", (*DENSE, *EXPERTS), STEPS, engines=ENGINES),
    "at_rate": Family("at_rate", (*DENSE, *EXPERTS), STEPS, engines=AT_RATE),
    "goodput": Family("goodput", ("llama31_8b", "mixtral_8x7b"), STEPS, engines=ENGINES),
    "any_schedule": Family("any_schedule", DENSE, {"tp": VALUES, "pp": VALUES}, space=("space=kinds_of_steps",)),
    "disaggregated": Family("disaggregated", (*DENSE, *EXPERTS), POOLS, words=("prefill=same",), engines=ENGINES),
    "disaggregated_at_rate": Family(
        "disaggregated_at_rate", ("llama31_8b", "mixtral_8x7b"), POOLS, words=("prefill=same",), engines=AT_RATE
    ),
    "attention_ffn": Family(
        "attention_ffn", (*DENSE, *EXPERTS), SIDES, words=("prefill=same", "ffn=same"), engines=ENGINES
    ),
    "recommendation": Family("recommendation", ("dlrm_criteo",), TABLES),
    "recommendation_training": Family("recommendation_training", ("dlrm_12t",), TABLES),
    "images": Family("images", ("flux_1_dev",), {"tp": VALUES[:-1], "images": (1, 2, 3, 7), "guide": (1, 2)}),
}
GOALS = {
    "training": ("time_s", "energy_j", "usd_per_million_tokens", "time_s ** 0.5 * joules_per_token"),
    "recommendation_training": ("time_s", "usd_per_million_tokens"),
}
OTHER_GOALS = ("time_s", "usd_per_million_tokens", "joules_per_token")


class Study(NamedTuple):
    """A problem and the words that make it again."""

    family: str
    words: str
    problem: Problem


def drawn(family: str, rng: np.random.Generator) -> Study | None:
    """A random study of a family; None where its scenario cannot be built."""
    how = FAMILIES[family]
    devices, model = int(rng.choice(DEVICES)), str(rng.choice(how.models))
    device = str(rng.choice(["h100_sxm", "h200_sxm", "b200", "mi300x", "a100_80gb_sxm"]))
    words = [f"workload={how.workload}", f"model={model}", f"accelerator={device}", *how.words]
    words += [f"cluster.device_count={devices}", f"framework={rng.choice(how.engines)}"]
    words += (
        [f"{how.batch}={int(rng.choice([devices, 2 * devices, 3 * devices, 5 * devices, 72]))}"] if how.batch else []
    )
    try:
        study = composed(*words, *how.space, "search=certified")
    except ConfigError:
        return None
    for _ in range(TRIES):
        lists, scenario = _lists(how, study.scenario, rng)
        listed = {name: np.array(values, dtype=float) for name, values in lists.items()}
        legal, _ = Rules(listed, scenario).of_all(MOST_PLANS)
        if len(legal) > 1 or (len(legal) and rng.uniform() < 0.1):
            break
    else:
        return None
    hardware = {}
    if rng.uniform() < 0.4:
        name = str(rng.choice(list(HARDWARE)))
        value = float(_leaf(scenario, HARDWARE[name]))
        hardware = {name: Continuous(HARDWARE[name], 0.7 * value, 1.4 * value)}
    goal = str(rng.choice(GOALS.get(family.removesuffix("_experts"), OTHER_GOALS)))
    problem = Problem(scenario, DesignSpace(lists, hardware), Objective(minimise=goal))
    return Study(
        family, " ".join([*words, f"space.plan={lists}", f"hardware={list(hardware)}", f"goal={goal}"]), problem
    )


def _lists(how: Family, base: Scenario, rng: np.random.Generator) -> tuple[dict[str, list[float]], Scenario]:
    """Random lists of some fields, values in any order, and the scenario with random degrees that are not listed."""
    names = [str(name) for name in rng.permutation(list(how.fields))]
    steps = how.space != ("space=fixed",)
    kinds = {"micro_batch": list(range(1, int(rng.integers(3, 8)))), "token_budget": KINDS[: int(rng.integers(2, 6))]}
    lists: dict[str, list[float]] = dict(kinds) if steps else {}
    for name in names[: int(rng.integers(3, 7))]:
        values = rng.permutation(how.fields[name])[: int(rng.integers(1, 4))].tolist()
        if math.prod(map(len, lists.values())) * len(values) <= MOST:
            lists[name] = values
    degrees = [name for name in names if name in ("tp", "pp") and name not in lists and hasattr(base.plan, name)]
    own = {f"plan.{name}": jnp.asarray(float(rng.choice(how.fields[name]))) for name in degrees}
    return lists, replace(base, own)


def _leaf(scenario: Scenario, path: str) -> Any:
    for part in path.split("."):
        scenario = scenario[part] if isinstance(scenario, dict) else getattr(scenario, part)
    return scenario


def _priced(scenario: Scenario, point: dict[str, Any], space: DesignSpace, objective: Objective) -> tuple[Any, Any]:
    metrics = evaluate(space.place(scenario, point))
    return objective.value(metrics, objective.goal), objective.excess(metrics)


def brute_force(problem: Problem, rng: np.random.Generator) -> tuple[float, dict[str, float]]:
    """(least goal of a feasible design, the design) over all listed combinations at random hardware, by `evaluate`."""
    lists = {name: list(values) for name, values in problem.space.lists.items()}
    combinations = list(itertools.product(*lists.values()))
    columns = {
        name: np.array(column, dtype=float) for name, column in zip(lists, zip(*combinations, strict=True), strict=True)
    }
    shares = {name: [0.0, 1.0, *rng.uniform(size=LEVELS - 2)] for name in problem.space.hardware}
    levels = LEVELS if shares else 1
    points = {name: np.repeat(column, levels) for name, column in columns.items()}
    for name, variable in problem.space.hardware.items():
        values = variable.low * (variable.high / variable.low) ** np.array(shares[name])
        points[name] = np.tile(values, len(combinations))
    priced = interpreted(
        jax.vmap(lambda scenario, point: _priced(scenario, point, problem.space, problem.objective), in_axes=(None, 0)),
        always=True,
    )
    goal, excess = (np.asarray(each, dtype=float) for each in priced(problem.scenario, points))
    kept = feasible(excess) & np.isfinite(goal)
    if not kept.any():
        return math.inf, {}
    at = int(np.argmin(np.where(kept, goal, math.inf)))
    design = {name: float(column[at]) for name, column in points.items()}
    value, over = _priced(
        problem.scenario, {name: jnp.asarray(x) for name, x in design.items()}, problem.space, problem.objective
    )
    assert feasible(float(over)), design
    assert abs(float(value) / goal[at] - 1) < 1e-9, design
    return float(goal[at]), design


def judged(study: Study, rng: np.random.Generator, attack: int) -> tuple[str, str]:
    """(verdict, why): `right`, `unproven`, `empty`; or `false`, `not verified`, `refused` with what is wrong."""
    problem = study.problem
    least, design = brute_force(problem, rng)
    try:
        trace = Certified(gap=GAP, convexity_samples=64, explain=False).run(problem, 0)
    except ConfigError as error:
        if "space is empty" in str(error) or "varies" in str(error):
            return ("false", f"refused, but {design} is {least:.9g}") if design else ("empty", str(error))
        return "refused", str(error)
    result = trace.certificate
    assert result is not None
    if not result.convex:
        return "unproven", trace.claim
    if result.bound is None and not result.certified:
        return "unproven", trace.claim
    if result.bound is None:
        if design:
            return "false", f"nothing is feasible, but {design} is {least:.9g}"
    elif least < result.bound * (1 - SAME):
        return "false", f"no design below {result.bound:.9g}, but {design} is {least:.9g}"
    elif not problem.space.hardware and abs(result.best / least - 1) > GAP + SAME:
        return "false", f"best {result.best:.9g}, by evaluation {least:.9g}"
    asked = VerifiedProblem(problem.scenario, problem.space, problem.objective, problem.objective.goal)
    assert trace.evidence is not None
    counts = {name: len(next(iter(columns.values()))) for name, columns in trace.evidence.tables.items()}
    proof = derivation_of(trace.evidence.header | {"counts": counts}, trace.evidence.tables)
    answer = verify(asked, proof.claim, proof, attack, 0)
    return ("right", trace.claim) if answer.verified else ("not verified", answer.line)


def run(
    count: int, seed: int, attack: int, families: Sequence[str] = tuple(FAMILIES), quiet: bool = False
) -> Counter[str]:
    """Judge so many studies; prints what is wrong as it is found."""
    counts: Counter[str] = Counter()
    began = time.perf_counter()
    for i in range(count):
        family = families[i % len(families)]
        rng = np.random.default_rng([seed, i, zlib.crc32(family.encode())])
        study = None
        while study is None:
            study = drawn(family, rng)
        verdict, why = judged(study, rng, attack)
        counts[verdict] += 1
        counts[f"{verdict}, {family}"] += 1
        if verdict in ("false", "not verified", "refused", "unproven"):
            print(f"{verdict}: study {i} of seed {seed}: {study.words}\n  {why}", flush=True)
        if not quiet:
            print(f"{i + 1} of {count} studies, {time.perf_counter() - began:.0f} s: {_words(counts)}", file=sys.stderr)
    return counts


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items()) if ", " not in name)


def main() -> int:
    """Judge studies; 1 where a claim is false or not confirmed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400, help="studies (400 take about 40 minutes on one core)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attack", type=int, default=20_000, help="designs that each verification tries")
    parser.add_argument("--family", choices=tuple(FAMILIES), help="only this workload family")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    counts = run(given.count, given.seed, given.attack, [given.family] if given.family else tuple(FAMILIES))
    print(_words(counts))
    return 1 if counts["false"] or counts["not verified"] else 0


if __name__ == "__main__":
    sys.exit(main())
