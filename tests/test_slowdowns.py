"""What a training framework adds to classes of operations: by hand, its derivative, its curvature, its options."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from builders import training

from codesign.config import scenario_from_config
from codesign.config.groups import conf_dir
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.core.json_yaml import read_yaml
from codesign.evidence.validation import published_training
from codesign.evidence.validation.framework import OF_CLASSES, SCALES, adjustment, parts_of, stored
from codesign.evidence.validation.row_overrides import measured_cluster
from codesign.evidence.validation.vectorise import batches, grouped, sized, vectorised
from codesign.model.metrics import evaluate
from codesign.model.scenario import Scenario
from codesign.model.workloads import Plan, Slowdowns
from codesign.search import Certified, Problem
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective

SHARDED = Plan(tp=1.0, pp=1.0, micro_batch=1.0, zero=3.0, recompute="full", dp_overlap=0.0)
OPTIONS = {
    "megatron": "megatron_sc21",
    "megatron_selective": "korthikanti2022_recompute",
    "deepspeed_zero3": "megatron_sc21-zero3",
    "mosaic_fsdp": "mosaicml_llm_foundry-ampere",
    "mosaic_fsdp_h100": "mosaicml_llm_foundry-hopper",
    "nemo": "nemo_megatron_bridge",
    "nemo_26_06": "nemo_megatron_bridge-since_26_06",
    "nemo_h100": "nemo_megatron_bridge-hopper",
    "eager_node": "vtrain_single_node",
}


def under(scenario: Scenario, **factors: float) -> Scenario:
    return dataclasses.replace(
        scenario, workload=dataclasses.replace(scenario.workload, slowdowns=Slowdowns(**factors))
    )


def seconds(scenario: Scenario) -> float:
    return float(evaluate(scenario).time_s)


@pytest.mark.slow
def test_factors_of_one_change_nothing():
    plain = training(plan=SHARDED)
    assert seconds(under(plain)) == seconds(plain)


@pytest.mark.parametrize("name", ["attention", "elementwise", "exchange"])
def test_a_factor_adds_what_its_operations_take(name):
    """Nothing hides and the time is a sum: twice and three times the factor are equally far apart."""
    plain = training(plan=SHARDED)
    once, twice, thrice = (seconds(under(plain, **{name: factor})) for factor in (1.0, 2.0, 3.0))
    assert once < twice
    assert thrice - twice == pytest.approx(twice - once, rel=1e-9)
    assert seconds(under(plain, experts=5.0, dispatch=5.0)) == once  # it has no experts


def test_a_ring_passes_each_layer_on_rank_by_rank():
    """Gathered twice and reduced once by 1024 ranks, 96 layers."""
    plain = training(plan=SHARDED)
    hop = 1e-5
    assert seconds(under(plain, hop_s=hop)) - seconds(plain) == pytest.approx(3 * 96 * 1023 * hop, rel=1e-6)
    whole = training()
    assert seconds(under(whole, hop_s=hop)) == seconds(whole)  # nothing is exchanged in its passes


def test_experts_that_are_issued_one_by_one_take_as_long_each():
    """By hand, an expert a rank: 32 layers, 4 micro-batches, 2 products, each once forward and twice backward."""
    plain = scenario_from_config(
        "model=mixtral_8x7b", "workload=training", "framework=none", "plan=data_parallel", "cluster.device_count=8",
        "plan.ep=8", "plan.micro_batch=1", "workload.global_batch=32", "plan.recompute=none",
    )  # fmt: skip
    each = 1e-5
    assert seconds(under(plain, expert_s=each)) - seconds(under(plain)) == pytest.approx(768 * each, rel=1e-6)
    assert seconds(under(training(), expert_s=each)) == seconds(under(training()))


@pytest.mark.slow
def test_derivative_and_vmap_are_those_of_the_plain_call():
    plain = under(training(plan=SHARDED), exchange=2.0, hop_s=1e-6)

    def at(value):
        return evaluate(replace(plain, {"workload.slowdowns.exchange": value})).time_s

    slope, step = float(jax.grad(at)(jnp.asarray(2.0))), 1e-4
    assert slope == pytest.approx((float(at(2 + step)) - float(at(2 - step))) / (2 * step), rel=1e-6)
    values = jnp.array([1.0, 2.5])
    assert np.allclose(jax.vmap(at)(values), [float(at(value)) for value in values], rtol=1e-12)


def test_a_study_with_slowdowns_keeps_its_proof():
    space = DesignSpace(
        plan={"micro_batch": [1, 2]},
        hardware={"out": Continuous("cluster.network.scale_out.fabric.bandwidth_bytes_per_s", 1e10, 2e11)},
    )  # fmt: skip
    scenario = under(training(plan=SHARDED), attention=2.0, exchange=3.0, hop_s=4e-5, expert_s=1e-5)
    proof = Certified(gap=5e-3, convexity_samples=8, batch_size=64, explain=False)
    result = proof.run(Problem(scenario, space, Objective("time_s * capex_usd")), 0).certificate
    assert result.certified
    assert result.gap < 5.1e-3


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_options_are_what_was_fitted(option):
    fitted = stored()[OPTIONS[option]]
    shipped = read_yaml((conf_dir() / "framework" / f"{option}.yaml").read_text(encoding="utf-8"))
    known = {name: value for name, value in shipped.items() if name in (*SCALES, "kernel_slowdown")}
    known |= {name: value for name, value in shipped.get("slowdowns", {}).items() if name in OF_CLASSES}
    assert known == pytest.approx(fitted)
    job = scenario_from_config(f"framework={option}").workload
    assert float(job.kernel_slowdown) == pytest.approx(fitted["kernel_slowdown"])


def test_an_unknown_class_is_refused():
    with pytest.raises(ConfigError, match="slowdowns"):
        scenario_from_config("framework=mosaic_fsdp", "+workload.slowdowns.attenton=2")


def test_parts_of_a_table_are_generations_and_releases():
    """Hopper is a part whatever its release, racks are with a fused recipe; another source finds its generation's."""
    rows = [
        ("H100-SXM", "26.08 NeMo Container", "DeepSeekV3", "hopper"),
        ("H100-SXM", "25.09 x", "DeepSeekV3", "hopper"),
        ("GB200", "26.06 NeMo Container", "DeepSeekV3 [w/o MTP]", "since_26_06"),
        ("GB200", "26.06.01 NeMo Container", "GPT OSS 120B", ""),  # the release that lost its fused products
        ("GB300", "26.08 NeMo Container", "Nemotron_3_Super", ""),
        ("B300", "26.06 NeMo Container", "DeepSeekV3", ""),
        ("B200", "26.04.01 x", "DeepSeekV3", ""),
    ]
    nemo = pd.DataFrame(rows, columns=["gpu", "release", "model", "part"])
    assert parts_of(nemo).tolist() == nemo["part"].tolist()
    assert parts_of(pd.DataFrame({"gpu": ["H100-SXM", "A100-SXM-80GB"]})).tolist() == ["hopper", "ampere"]
    assert "attention" not in stored()["nemo_megatron_bridge-hopper"]


def test_a_loss_that_is_not_fused_reads_its_logits_again_and_again():
    """38 and 14 bytes a logit of 6 and 6; nothing else of the step changes."""
    plain = training(plan=SHARDED)
    ops = {}
    for fused in (True, False):
        job = dataclasses.replace(plain.workload, model=dataclasses.replace(plain.workload.model, fused_loss=fused))
        lowered = job.lower(plain.layout)
        ops[fused] = {(op.name, op.phase, i): op.work.nbytes for i, op in enumerate(lowered) if hasattr(op, "work")}
    moved = {key[:2]: float(ops[False][key] / ops[True][key]) for key in ops[True] if ops[True][key] != ops[False][key]}
    assert moved == {
        ("head_softmax", "forward"): pytest.approx(38 / 6),
        ("head_softmax", "backward"): pytest.approx(14 / 6),
    }


@pytest.mark.slow
def test_devices_and_frameworks_are_one_structure():
    """Steps of two devices, with and without a framework, are traced once, and cost what each costs alone."""
    model = published_training.megatron_model(pd.Series({"hidden": 1024.0, "num_heads": 16.0, "num_layers": 4.0}))
    gpus, plan = ("H100-SXM", "B200"), {"tp": 2.0, "micro_batch": 2.0}
    runs = [published_training.Run(gpu, model, plan, 8.0, 512.0, 32.0, 1.0) for gpu in gpus]
    scenarios = [run.scenario(measured_cluster(run.gpu)) for run in runs]
    (batch,) = batches(scenarios)
    plain, slow = published_training.with_slowdowns(batch.scenarios), adjustment({"elementwise": 2.0})(batch.scenarios)
    assert jax.tree.structure(plain) == jax.tree.structure(slow)
    (result,) = grouped([batch], vectorised(lambda one: (evaluate(one).time_s,)), published_training.with_slowdowns)
    named = [run.job for run in runs]
    alone = [
        seconds(Scenario(sized(measured_cluster(run.gpu), 8.0), *job)) for run, job in zip(runs, named, strict=True)
    ]
    assert result == pytest.approx(alone, rel=1e-12)
