"""What rounded sums do to a language model, as a metric: which sums count, on which level, and what is refused."""

import dataclasses

import builders
import jax
import jax.numpy as jnp
import pytest

from codesign.commands.evaluate import evaluate_design
from codesign.config import scenario_from_config, study_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.jaxprs.evaluator import interpreted
from codesign.model.metrics import evaluate
from codesign.model.networks.collectives import PERPLEXITY_FACTOR, Quantised, RingAllReduce
from codesign.model.networks.collectives.quantised import log_perplexity_penalty
from codesign.model.workloads import Plan, Precision

METRIC = "log_perplexity_penalty"
BITS = "cluster.network.scale_up.collectives.all_reduce.bits"
BLOCK = "cluster.network.scale_up.collectives.all_reduce.block_elements"
SERVED = builders.serving(8.0, Plan(tp=8.0, micro_batch=16.0))


def rounded(scenario, **changes):
    """With sums inside the node on 8 bits."""
    level = scenario.cluster.network["scale_up"]
    algorithms = dataclasses.replace(level.collectives, all_reduce=Quantised(RingAllReduce(), **changes))
    network = scenario.cluster.network | {"scale_up": dataclasses.replace(level, collectives=algorithms)}
    return dataclasses.replace(scenario, cluster=dataclasses.replace(scenario.cluster, network=network))


def test_it_is_there_where_sums_are_rounded_and_only_there():
    assert METRIC not in evaluate(SERVED).flat()
    result = evaluate(rounded(SERVED)).flat()
    by_hand = 0.0434 * (7 / 127) ** (2 * 0.828)
    assert float(result[METRIC]) == pytest.approx(by_hand)
    assert float(result[f"{METRIC}_high"]) == pytest.approx(by_hand * PERPLEXITY_FACTOR)
    assert float(result[f"{METRIC}_low"]) == pytest.approx(by_hand / PERPLEXITY_FACTOR)


def test_one_device_sums_nothing():
    assert float(evaluate(rounded(builders.serving(8.0, Plan(micro_batch=16.0)))).flat()[METRIC]) == 0.0


def test_a_sum_that_leaves_the_node_is_rounded_by_none_of_its_levels():
    """The level inside scatters and gathers, which are exact; the sum of the shards is the outer level's."""
    assert float(evaluate(rounded(builders.serving(16.0, Plan(tp=16.0, micro_batch=16.0)))).flat()[METRIC]) == 0.0


@pytest.mark.slow
def test_numbers_of_eight_bits_change_nothing():
    narrow = {"precision": Precision(activations="fp8")}
    plain, quantised = (
        dataclasses.replace(made, workload=dataclasses.replace(made.workload, **narrow))
        for made in (SERVED, rounded(SERVED, codec_s=1e-6))
    )
    result, wanted = evaluate(quantised).flat(), evaluate(plain).flat()
    assert {name: float(result[name]) for name in wanted} == {name: float(value) for name, value in wanted.items()}
    assert float(result[METRIC]) == 0.0


@pytest.mark.slow
def test_what_a_model_that_is_trained_sums_is_not_rounded():
    """Table 1 measured inference; of gradients nothing is stated."""
    trained = builders.training(8.0, Plan(tp=4.0, micro_batch=1.0))
    assert float(evaluate(rounded(trained)).time_s) == float(evaluate(trained).time_s)
    assert float(evaluate(rounded(trained)).flat()[METRIC]) == 0.0


@pytest.mark.slow
def test_slopes_by_differences_and_the_same_in_every_way_of_calling():
    base = rounded(SERVED)

    def both(point):
        result = evaluate(replace(base, {BITS: point[0], BLOCK: point[1]})).flat()
        return jnp.stack([result[METRIC], result["ttft_s"]])

    points = jnp.asarray([[6.0, 64.0], [4.5, 200.0], [7.5, 33.0]])
    plain = jnp.stack([both(point) for point in points])
    together = jax.jit(jax.vmap(both))(points)
    assert jnp.allclose(plain, together, rtol=1e-12, atol=0)
    slope, step = interpreted(jax.jacfwd(both), always=True)(points[0]), 1e-5
    for index in range(2):
        shift = jnp.zeros(2).at[index].set(step)
        by_differences = (both(points[0] + shift) - both(points[0] - shift)) / (2 * step)
        assert jnp.allclose(slope[:, index], by_differences, rtol=1e-5)


@pytest.mark.parametrize("corner", [(4.0, 32.0), (4.0, 512.0), (8.0, 32.0), (8.0, 512.0)])
def test_finite_in_every_corner_of_the_stated_box(corner):
    bits, block = (jnp.asarray(x) for x in corner)
    value, slope = jax.value_and_grad(lambda x: log_perplexity_penalty(x[0], x[1], jnp.asarray(2.25)))(
        jnp.stack([bits, block])
    )
    assert jnp.isfinite(value)
    assert jnp.isfinite(slope).all()


NODE = (
    "fabric=scin",
    "collective=scin_inq",
    "workload=static_batch",
    "space=dense_serving_plans",
    "experiment=serve_llama31_405b_static",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "words"),
    [(f"{BITS}=2", "bits = 2 is outside [4, 8]"), (f"{BITS}=12", "bits = 12 is outside [4, 8]"),
     (f"{BLOCK}=1024", "block_elements = 1024 is outside [32, 512]")],
)  # fmt: skip
def test_bits_and_blocks_that_were_not_measured_are_refused_in_one_line(override, words):
    with pytest.raises(ConfigError) as told:
        study_from_config(*NODE, override)
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_a_limit_on_what_nothing_rounds_is_refused_with_the_way_out():
    with pytest.raises(ConfigError, match="collective=scin_inq"):
        study_from_config(*NODE, "collective=scin", f"+objective.limits.{METRIC}=0.001")


SWITCHED = ("accelerator=h200", "fabric=scin", "model=llama2_70b", "plan.tp=8", "cluster.device_count=8")
POOLS = (
    *SWITCHED[:-1],
    "workload=disaggregated",
    "cluster.device_count=16",
    "plan.prefill_devices=8",
    "plan.prefill_tp=8",
)


def served(*overrides):
    """Numbers of a configured server."""
    return {name: float(value) for name, value in evaluate(scenario_from_config(*overrides)).flat().items()}


class TestContinuousServing:
    """Steps that carry prompts and decodes sum as a static batch does."""

    @pytest.mark.slow
    def test_quantised_sums_shorten_steps_and_cost_what_they_cost_a_static_batch(self):
        plain, quantised = (served(*SWITCHED, "workload=continuous", f"collective={c}") for c in ("scin", "scin_inq"))
        assert quantised["time_s"] < 0.99 * plain["time_s"]
        assert quantised[METRIC] == pytest.approx(0.0434 * (7 / 127) ** (2 * 0.828))

    @pytest.mark.slow
    def test_a_pool_that_computes_prompts_rounds_alone(self):
        """As the document has it: quantised where prompts are computed, exact where tokens are decoded."""
        exact = served(*POOLS, "prefill=same", "collective=scin")
        like = ("cluster.prefill.like.accelerator=h200", "+cluster.prefill.like.fabric=scin")
        rounds = served(*POOLS, "collective=scin", "prefill=other", *like, "+cluster.prefill.like.collective=scin_inq")
        assert METRIC not in exact
        assert rounds[METRIC] == pytest.approx(0.0434 * (7 / 127) ** (2 * 0.828))
        assert rounds["ttft_s"] < 0.97 * exact["ttft_s"]
        assert rounds["tpot_s"] == pytest.approx(exact["tpot_s"], rel=1e-3)

    def test_no_pool_no_rounding_there(self):
        like = ("cluster.prefill.like.accelerator=h200", "+cluster.prefill.like.fabric=scin")
        none = ("workload=disaggregated", "collective=scin", "prefill=other", *like)
        assert served(*SWITCHED, *none, "+cluster.prefill.like.collective=scin_inq")[METRIC] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("overrides", "said"), [(("workload=static_batch",), False), (("workload=training",), True)])
def test_a_choice_without_effect_is_remarked(capsys, overrides, said):
    model = "model=llama2_7b" if said else SWITCHED[2]
    evaluate_design([*SWITCHED[:2], model, *SWITCHED[3:], "collective=scin_inq", *overrides])
    assert ("rounds no sum of this job" in " ".join(capsys.readouterr().out.split())) is said
