"""What is proven of a generated space holds for layouts that were drawn without it, from the engine's own switches."""

import dataclasses
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from codesign.config import Study, study_from_config
from codesign.model.metrics import evaluate
from codesign.search.solve import solve
from codesign.staging import at_many
from codesign.study.objective import feasible

pytestmark = pytest.mark.slow
DRAWN = 200
SEQUENCES = [each for power in range(11) for each in (2**power, 3 * 2**power // 2) if 1 <= each <= 1024]
BUDGETS = [each for power in range(6, 15) for each in (2**power, 3 * 2**power // 2) if 64 <= each <= 16384]
LIMITS = ("++objective.limits.ttft_p99_s=2.0", "++objective.limits.tpot_p99_s=0.05")
LENGTHS = ("workload.input_tokens=2048.0", "workload.output_tokens=512.0")


@dataclasses.dataclass(frozen=True)
class Served:
    """What vLLM's documentation says of a model: numbers of its config.json."""

    heads: int
    kv_heads: int  # 0: latent attention, one cache on every rank
    layers: int
    experts: int
    widths: tuple[int, ...]  # of the dense network; of an expert, and of dense layers beside them


LLAMA = Served(64, 8, 80, 0, (28672,))
DEEPSEEK = Served(128, 0, 61, 256, (2048, 18432))


def divisors(count: int) -> list[int]:
    return [each for each in range(1, count + 1) if count % each == 0]


def engines(served: Served, devices: int) -> Iterator[dict[str, float]]:
    """Every engine of --tensor-, --pipeline- and --data-parallel-size, with and without --enable-expert-parallel.

    As many of it as make up all devices; of a dense model data parallelism is more engines.
    """
    for tensor in divisors(devices):
        if served.heads % tensor:
            continue
        if served.kv_heads and served.kv_heads % tensor and tensor % served.kv_heads:
            continue
        for stages in divisors(devices // tensor):
            if stages > served.layers:  # some stages have a layer more than others, none has none
                continue
            if not served.experts:
                if all(width % tensor == 0 for width in served.widths):
                    yield {"tp": tensor, "pp": stages, "ep": 1, "etp": 0, "attention_dp": 1}
                continue
            for data in divisors(devices // tensor // stages):
                expert, dense = served.widths
                if expert % (tensor * data) == 0 and dense % tensor == 0:
                    yield {"tp": tensor * data, "pp": stages, "ep": 1, "etp": 0, "attention_dp": data}
                ranks = tensor * data  # whole experts lie on all of them
                if 1 < ranks <= 2 * served.experts and dense % tensor == 0:
                    yield {"tp": tensor, "pp": stages, "ep": ranks, "etp": int(tensor > 1), "attention_dp": 1}


def beside(served: Served, counts: list[int], rng: np.random.Generator, count: int) -> list[dict[str, float]]:
    """Random deployments in which prompts are computed beside decodes."""
    layouts = [each | {"device_count": devices} for devices in counts for each in engines(served, devices)]
    drawn = list[dict[str, float]]()
    while len(drawn) < count:
        plan = layouts[rng.integers(len(layouts))] | {"micro_batch": rng.choice(SEQUENCES)}
        if plan["micro_batch"] >= plan["pp"] * plan["attention_dp"]:
            drawn.append(plan | {"token_budget": rng.choice(BUDGETS)})
    return drawn


def cheapest_drawn(study: Study, drawn: list[dict[str, float]]) -> float:
    """The least goal among drawn deployments that keep every limit; inf where none does."""
    columns = {name: np.array([float(plan[name]) for plan in drawn]) for name in drawn[0]}

    def priced(plan: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        result = evaluate(study.space.place(study.scenario, plan))
        return result.get(study.objective.goal), feasible(study.objective.excess(result))

    goal, kept = at_many(priced)(columns)
    return float(np.min(np.where(kept, goal, np.inf)))


CASES = {
    "dense": (LLAMA, [8, 16, 24], ("model=llama31_70b", "accelerator=h100_sxm", "workload.arrivals_per_s=10.0")),
    "experts on a rack": (
        DEEPSEEK,
        [36],  # of a rack of 72; all of it is the next test's
        ("model=deepseek_v3", "accelerator=gb200", "workload.arrivals_per_s=30.0"),
    ),
}


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize("case", CASES)
def test_no_drawn_deployment_is_better_than_what_is_proven(case):
    served, counts, overrides = CASES[case]
    study = study_from_config(
        "search=certified", "workload=at_rate", "space=every_serving_plan", "framework=vllm_async", *overrides, *LIMITS,
        *LENGTHS, "precision=checkpoint", f"++space.plan.device_count=[{','.join(map(str, counts))}]",
    )  # fmt: skip
    result = solve(study.problem, study.search, seed=0)
    assert result.certificate is not None
    assert result.certificate.certified
    rng = np.random.default_rng(0)
    drawn = beside(served, counts, rng, DRAWN)
    lists = study.space.plan
    for plan in drawn:  # and none of them is missing
        assert all(value in lists[name] for name, value in plan.items()), plan
    bound = result.certificate.bound
    assert bound is not None
    assert cheapest_drawn(study, drawn) >= bound * (1 - 1e-9)


def test_experts_over_a_whole_rack_are_among_the_plans_of_a_rack():
    served = CASES["experts on a rack"][0]
    study = study_from_config(
        "workload=at_rate", "space=every_serving_plan", "framework=vllm_async", "model=deepseek_v3",
        "accelerator=gb200", "++space.plan.device_count=[72]",
    )  # fmt: skip
    plans = study.space.plans(study.scenario)
    names = ("tp", "pp", "ep", "etp", "attention_dp")
    legal = {*zip(*(plans[name].astype(int).tolist() for name in names), strict=True)}
    own = {tuple(int(plan[name]) for name in names) for plan in engines(served, 72)}
    assert {(1, 1, 72, 0, 1), (8, 1, 72, 1, 1), (8, 1, 8, 1, 1)} <= own
    assert own == legal


def test_no_drawn_pair_of_pools_is_better_than_what_is_proven():
    study = study_from_config(
        "search=certified", "workload=disaggregated_at_rate", "prefill=same", "space=every_disaggregated_plan",
        "framework=vllm_async", "model=llama31_70b", "accelerator=h100_sxm", "workload.arrivals_per_s=10.0", *LIMITS,
        *LENGTHS, "precision=checkpoint", "++space.plan.device_count=[8,16]",
    )  # fmt: skip
    result = solve(study.problem, study.search, seed=0)
    assert result.certificate is not None
    assert result.certificate.certified
    rng, drawn = np.random.default_rng(1), list[dict[str, float]]()
    few = {"micro_batch": [16, 32, 64, 128, 256, 512], "token_budget": [512, 2048, 8192]}  # that its file lists
    while len(drawn) < DRAWN:
        devices, pool = int(rng.choice([8, 16])), int(rng.choice([0, 8, 16]))
        here, there = ([*engines(LLAMA, count)] for count in (devices, pool or 8))
        decode, prefill = here[rng.integers(len(here))], there[rng.integers(len(there))]
        if max(decode["pp"], prefill["pp"]) > 2:  # nor are longer pipelines
            continue
        drawn.append(
            {"device_count": devices, "prefill_devices": pool, **{name: rng.choice(each) for name, each in few.items()}}
            | decode | {f"prefill_{name}": prefill[name] for name in ("tp", "pp", "ep")}
        )  # fmt: skip
    bound = result.certificate.bound
    assert bound is not None
    assert cheapest_drawn(study, drawn) >= bound * (1 - 1e-9)
