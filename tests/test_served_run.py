"""A model trained once and served: what it costs to serve is that of the shape, what it is worth is the law's."""

import math

import pytest
from builders import cluster

from codesign import scenario_from_config
from codesign.model.metrics import evaluate
from codesign.model.scaling_laws import BitWidths, PrecisionLaw
from codesign.model.scenario import Scenario
from codesign.model.workloads import ContinuousServing, Plan, Precision, ServedRun, ShapedPlan, Transformer

ASKED = (4096.0, 256.0)


def run(plan=None, work=None, **changes):
    told = {"tokens": 1e10, "scaling_law": PrecisionLaw.example()} | changes
    job = work or ServedRun(Transformer.example(), *ASKED, **told)
    return evaluate(Scenario(cluster(8.0), job, plan or Plan(tp=2.0, micro_batch=8.0)))


@pytest.mark.slow
def test_serves_as_continuous_batching_does():
    own, plain = run(), run(work=ContinuousServing(Transformer.example(), *ASKED))
    mine = own.flat()
    assert all(float(mine[name]) == float(value) for name, value in plain.flat().items())


@pytest.mark.slow
def test_a_shape_of_the_plan_is_that_model():
    plan = ShapedPlan(tp=2.0, micro_batch=8.0, layers=8.0, hidden=1024.0, tokens=2e10)
    shaped = plan.shaped(Transformer.example())
    assert float(shaped.layers) == 8
    chosen = run(plan).flat()
    given = run(work=ServedRun(shaped, *ASKED, tokens=2e10, scaling_law=PrecisionLaw.example())).flat()
    for name in ("tpot_s", "ttft_s", "usage.hbm", "loss", "training_flops", "parameters"):
        assert float(chosen[name]) == pytest.approx(float(given[name]), rel=1e-12), name


def test_flops_of_training_and_loss_by_hand():
    result, model, law = run().flat(), Transformer.example(), PrecisionLaw.example()
    active = float(model.active_parameters() + model.vocab * model.hidden)
    assert float(result["training_flops"]) == pytest.approx(6 * active * 1e10, rel=1e-12)
    kept = float(law.kept(BitWidths()))
    inner = float(model.inner_parameters())
    assert float(result["loss"]) == pytest.approx(2.8 + 4300 * (inner * kept) ** -0.5 + 18000 * 1e10**-0.5, rel=1e-9)


def rounding(tokens: float, bits: float) -> float:
    """C_T D^gamma_D / N^gamma_N exp(-P / gamma) of the example."""
    law = PrecisionLaw.example()
    inner = float(Transformer.example().inner_parameters())
    grown = float(law.rounding_scale) * tokens ** float(law.rounding_tokens_power)
    return grown * inner ** -float(law.rounding_parameters_power) * math.exp(-bits / float(law.rounding_bits))


@pytest.mark.slow
def test_rounding_after_training_hurts_more_the_more_was_learnt():
    """By the format that weights are served in; in that of training or a wider one nothing is rounded."""

    def loss(tokens: float, weights: str) -> float:
        return float(run(tokens=tokens, precision=Precision(weights=weights)).flat()["loss"])

    few, many = (loss(tokens, "fp4") - loss(tokens, "bf16") for tokens in (2e9, 2e10))
    assert 0 < few < many
    assert loss(2e10, "bf16") == loss(2e10, "fp32") < loss(2e10, "fp8") < loss(2e10, "fp4")
    assert few == pytest.approx(rounding(2e9, 4.0), rel=1e-6)


def test_without_a_law_no_loss_is_told():
    result = run(scaling_law=None).flat()
    assert "loss" not in result
    assert float(result["training_flops"]) > 0


def test_composed_from_yaml_with_a_range():
    job = scenario_from_config("workload=served_run", "scaling_law=kumar", "model=llama31_8b").workload
    assert isinstance(job, ServedRun)
    assert float(job.tokens) == 3e11
    assert isinstance(job.scaling_law, PrecisionLaw)
