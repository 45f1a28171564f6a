"""Plan axes made from model, machine and engine: their values, their words, and what an engine runs."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from codesign.config import study_from_config
from codesign.config.checks import check_plan
from codesign.core.errors import ConfigError
from codesign.model.workloads import Plan, SupportedLayouts, Transformer
from codesign.search.branch_and_bound import node_relaxation
from codesign.search.branch_and_bound.node_relaxation import GroupOracle
from codesign.search.branch_and_bound.oracle import rows_of
from codesign.study.design_space import MOST_LISTED
from codesign.study.feasible_plans import Rules, violations

SERVING = ("workload=at_rate", "space=every_serving_plan")


def axes(*overrides: str) -> dict[str, list[int]]:
    return {name: list(values) for name, values in study_from_config(*SERVING, *overrides).space.plan.items()}


@pytest.fixture(scope="module")
def rack() -> dict[str, list[int]]:
    return axes("model=deepseek_v3", "accelerator=gb200", "framework=vllm_async", "++space.plan.device_count=[72]")


def test_a_rack_of_72_offers_its_divisors_to_experts(rack):
    assert {1, 8, 9, 18, 24, 36, 72} <= {*rack["ep"]}
    assert all(72 % each == 0 for each in rack["ep"])


def test_tensor_ranks_divide_heads_and_experts_where_these_are_cut(rack):
    assert rack["tp"] == [1, 2, 4, 8]  # of 72 devices; 3, 9, ... divide neither 128 heads nor 2,048 columns
    assert rack["attention_dp"] == [1, 2, 4, 8]


def test_batches_and_budgets_are_powers_of_two_and_one_and_a_half_times_these(rack):
    assert rack["micro_batch"][:6] == [1, 2, 3, 4, 6, 8]
    assert rack["micro_batch"][-1] == 1024
    assert rack["token_budget"][0] == 64
    assert rack["token_budget"][-1] == 16384


def test_a_dense_model_has_no_experts_and_vllm_no_attention_groups_of_it():
    result = axes("model=llama31_70b", "accelerator=h100_sxm", "framework=vllm_async", "++space.plan.device_count=[24]")
    assert result["ep"] == [1]
    assert result["attention_dp"] == [1]
    assert result["tp"] == [1, 2, 4, 8]  # 3, 6, 12 and 24 do not divide 64 heads
    assert 3 in result["pp"]
    other = axes("model=llama31_70b", "accelerator=h100_sxm", "framework=sglang", "++space.plan.device_count=[24]")
    assert len(other["attention_dp"]) > 1


def test_96_heads_take_three_ranks():
    result = axes(
        "model=llama31_70b", "accelerator=h100_sxm", "framework=none", "++space.plan.device_count=[24]",
        "workload.model.attention.heads=96",
    )  # fmt: skip
    assert {3, 6, 12, 24} <= {*result["tp"]}
    kept = axes(
        "model=llama31_70b", "accelerator=h100_sxm", "framework=vllm_async", "++space.plan.device_count=[24]",
        "workload.model.attention.heads=96", "workload.model.feed_forward.width=24576",
    )  # fmt: skip
    assert 3 not in kept["tp"]  # of 8 key-value heads
    assert 24 in kept["tp"]  # each copied to three ranks


def test_a_list_takes_the_place_of_a_word_and_powers_are_among_every():
    overrides = ("model=deepseek_v3", "accelerator=gb200", "framework=vllm_async", "++space.plan.device_count=[72]")
    study = study_from_config(*SERVING, *overrides, "space.plan.tp=[2]", "space.plan.ep=powers")
    assert list(study.space.plan["tp"]) == [2]
    assert study.space.plan["ep"] == [1, 2, 4, 8]  # 1, 2 or 4 of 36 replicas of two ranks with whole experts
    assert study.space.words == {
        "pp": "every", "ep": "powers", "etp": "every", "attention_dp": "every", "micro_batch": "every",
        "token_budget": "every",
    }  # fmt: skip
    assert study.resolved["space"]["plan"]["ep"] == [1, 2, 4, 8]


def test_a_space_says_what_it_is():
    study = study_from_config(
        *SERVING, "model=deepseek_v3", "accelerator=gb200", "framework=vllm_async", "++space.plan.device_count=[36,72]"
    )
    count = len(study.space.plans(study.scenario)["tp"])
    assert study.space.text(study.scenario) == (
        "every layout by tp, pp, ep, etp and attention_dp that vLLM runs on 36 or 72 devices, 20 batch sizes from 1 to"
        f" 1,024, 17 step budgets from 64 to 16,384: {count:,} plans"
    )
    assert study_from_config("workload=at_rate").space.text(study.scenario) == ""


@pytest.mark.slow
def test_a_claim_says_which_values_an_axis_leaves_out():
    where = ("model=gpt_oss_120b", "accelerator=h200", "++space.plan.device_count=[32]")
    cut = study_from_config(*SERVING, *where, "framework=sglang")
    plan = Plan(**{name: jnp.asarray(value) for name, value in {"tp": 32.0, "ep": 2.0, "etp": 16.0}.items()})
    layouts, model = cut.scenario.workload.layouts, cut.scenario.workload.model
    assert all(float(value) <= 0 for value in layouts.violations(model, plan).values())  # SGLang: --tp 32 --ep 2
    assert 16 not in cut.space.plan["etp"]
    assert "by tp, pp, ep, etp (up to 8) and attention_dp" in cut.space.text(cut.scenario)
    some = study_from_config(*SERVING, *where, "framework=vllm_async", "space.plan.ep=powers")
    assert "by tp, pp, ep (powers of two), etp and attention_dp" in some.space.text(some.scenario)
    apart = study_from_config(
        "workload=disaggregated_at_rate", "prefill=same", "space=every_disaggregated_plan", "model=llama31_8b",
        "framework=vllm_async", "accelerator=h200", "++space.plan.device_count=[8,16]",
    )  # fmt: skip
    assert "by prefill_devices (0, 8 or 16), prefill_tp" in apart.space.text(apart.scenario)
    trained = study_from_config("model=llama31_8b", "space=every_training_plan", "cluster.device_count=64")
    text = trained.space.text(trained.scenario)
    assert "by tp (up to 8), pp, cp, virtual_stages (up to 8), recompute" in text
    assert "offload_optimizer (0 or 1)" in text


@pytest.mark.slow
def test_engines_give_stages_a_layer_more_or_less():
    """vLLM and SGLang divide 61 layers over 32 stages: 29 have two, 3 have one."""
    axis = axes("model=deepseek_v3", "accelerator=gb200", "framework=sglang", "++space.plan.device_count=[64]")["pp"]
    assert axis == [1, 2, 4, 8, 16, 32]
    with pytest.raises(ConfigError, match=r"plan\.pp = 64 exceeds model layers = 61"):
        check_plan(study_from_config(
            *SERVING, "model=deepseek_v3", "framework=none", "cluster.device_count=64", "plan.tp=1", "plan.pp=64",
            "plan.micro_batch=64",
        ).scenario)  # fmt: skip
    with pytest.raises(ConfigError, match=r"plan\.prefill_pp = 64 exceeds model layers = 61"):
        check_plan(study_from_config(
            "workload=disaggregated_at_rate", "prefill=same", "model=deepseek_v3", "framework=none",
            "cluster.device_count=64", "~space.plan.device_count",
            "plan.prefill_devices=64", "plan.prefill_pp=64", "plan.tp=1", "plan.micro_batch=64",
        ).scenario)  # fmt: skip


@pytest.mark.slow
def test_rare_legal_plans_are_listed_and_drawn(monkeypatch):
    """Of 25 million combinations some hundred are legal: drawn one by one, none of 16 million would be."""
    study = study_from_config(
        "model=llama31_8b", "space=every_training_plan", "cluster.device_count=8", "workload.global_batch=8",
        "space.plan.tp=[1,2,3,4,5,6,7,8]", "space.plan.pp=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]",
        "space.plan.cp=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]",
        "space.plan.virtual_stages=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]",
        "space.plan.micro_batch=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]",
    )  # fmt: skip
    assert study.space.combinations > MOST_LISTED
    drawn = study.space.legal_sample(study.scenario, 10**6)
    assert len(drawn) == study.space.size(study.scenario) > 1000
    assert len(np.unique(drawn, axis=0)) == len(drawn)
    assert Rules(study.space.lists, study.scenario)(dict(zip(study.space.plan, drawn.T, strict=True)))[0].all()
    assert GroupOracle(study.problem, rows_of(study.problem)).doubt == ""  # a search bounds them all
    monkeypatch.setattr(node_relaxation, "MOST_LISTED", 1_000_000)
    assert GroupOracle(study.problem, rows_of(study.problem)).doubt == ""
    monkeypatch.setattr(node_relaxation, "MOST_CHECKED", MOST_LISTED)
    every = GroupOracle(study.problem, rows_of(study.problem))
    assert "too many for a proof that can be checked; all that are legal were searched" in every.doubt


def test_training_axes_divide_layers_and_batch():
    study = study_from_config("model=llama31_8b", "space=every_training_plan", "cluster.device_count=64")
    plan = study.space.plan
    assert plan["tp"] == [1, 2, 4, 8]
    assert plan["pp"] == [1, 2, 4, 8, 16, 32]
    assert plan["ep"] == [1]
    assert plan["zero"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("space.plan.tp=evry", "must be a list of values, or one of every, powers; did you mean 'every'"),
        ("++space.plan.device_count=every", "no rule says which values device_count may have"),
        ("space.plan.tp=[3]", "no value is possible: none of"),
        ("space.plan.tp=[]", "must be a non-empty list of values"),
    ],
)
def test_a_wrong_axis_is_refused_in_one_line(override, expected):
    with pytest.raises(ConfigError, match=expected.split(";")[0].replace("(", r"\(")) as caught:
        study_from_config(*SERVING, "model=llama31_70b", "framework=vllm_async", override)
    assert "\n" not in str(caught.value)


def test_words_are_for_transformers():
    with pytest.raises(ConfigError, match="rules of axes are for transformers"):
        study_from_config("workload=recommendation", "space.plan.tp=every")


@pytest.mark.slow
def test_joined_rules_keep_what_every_combination_alone_keeps():
    study = study_from_config("workload=continuous", "model=mixtral_8x7b", "framework=none", "cluster.device_count=24")
    lists = {
        name: np.array(values, dtype=float)
        for name, values in {"tp": [1, 2, 3, 8], "pp": [1, 2, 3], "ep": [1, 3, 8], "micro_batch": [1, 8, 64],
                             "token_budget": [64, 2048]}.items()
    }  # fmt: skip
    rules = Rules(lists, study.scenario)
    (numbers, none), refused = rules.of_all(10_000), rules.refused
    assert none == {}
    kept, broken = [], dict.fromkeys(refused, 0)
    for number, values in enumerate(itertools.product(*lists.values())):
        result = violations(study.scenario, {k: jnp.asarray(v) for k, v in zip(lists, values, strict=True)})
        for rule, value in result.items():
            broken[rule] += not float(value) <= 0
        if all(float(value) <= 0 for value in result.values()):
            kept.append(number)
    assert numbers.tolist() == kept
    assert refused == broken


VLLM = SupportedLayouts(
    engine="vLLM", dense_groups=False, groups_beside_experts=False, whole_experts=True, divided_heads=True,
    divided_widths=True,
)  # fmt: skip
TRTLLM = SupportedLayouts(engine="TensorRT-LLM", partial_attention=False)


def runs(layouts: SupportedLayouts, model: Transformer, **degrees: float) -> bool:
    result = layouts.violations(model, Plan(**{name: jnp.asarray(value) for name, value in degrees.items()}))
    return all(float(value) <= 0 for value in result.values())


@pytest.fixture(scope="module")
def models() -> dict[str, Transformer]:
    return {
        name: study_from_config("workload=continuous", f"model={name}").scenario.workload.model
        for name in ("llama31_70b", "deepseek_v3")
    }


@pytest.mark.parametrize(
    ("layouts", "model", "degrees", "expected"),
    [
        (VLLM, "llama31_70b", {"tp": 8.0}, True),
        (VLLM, "llama31_70b", {"tp": 8.0, "attention_dp": 2.0}, False),
        (VLLM, "llama31_70b", {"tp": 16.0}, True),  # each of 8 key-value heads on two ranks
        (VLLM, "deepseek_v3", {"tp": 8.0, "attention_dp": 8.0}, True),  # experts cut by tensor x data ranks
        (VLLM, "deepseek_v3", {"tp": 8.0, "attention_dp": 8.0, "ep": 2.0}, False),
        (VLLM, "deepseek_v3", {"tp": 1.0, "ep": 72.0}, True),
        (VLLM, "deepseek_v3", {"tp": 3.0, "attention_dp": 3.0}, False),  # 2,048 columns by three
        (TRTLLM, "deepseek_v3", {"tp": 8.0, "attention_dp": 8.0, "ep": 2.0}, True),
        (TRTLLM, "deepseek_v3", {"tp": 8.0, "attention_dp": 2.0}, False),
        (SupportedLayouts(), "llama31_70b", {"tp": 8.0, "attention_dp": 2.0}, True),
    ],
)
def test_an_engine_runs_what_its_documentation_says(models, layouts, model, degrees, expected):
    assert runs(layouts, models[model], **degrees) is expected


def test_what_an_engine_refuses_is_said_in_one_line():
    overrides = ("workload=disaggregated_at_rate", "prefill=same", "framework=vllm_async", "plan.prefill_devices=8")
    study = study_from_config(*overrides, "model=llama31_70b", "plan.prefill_tp=8", "plan.prefill_attention_dp=2")
    layout = study.scenario.layout
    result = study.scenario.workload.violations(layout)
    assert float(result["prefill_engine_groups"]) > 0
    text = study.scenario.workload.broken_rule("prefill_engine_groups", layout)
    assert text == (
        "plan.prefill_attention_dp = 2: vLLM runs no attention groups of a model without experts; framework=none prices"
        " it all the same"
    )
