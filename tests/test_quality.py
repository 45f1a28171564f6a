"""What rounded sums do to a language model, as a metric: which sums count, on which level, and what is refused."""

import dataclasses

import builders
import jax
import jax.numpy as jnp
import pytest

from codesign.config import study_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
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
    found = evaluate(rounded(SERVED)).flat()
    by_hand = 0.0434 * (7 / 127) ** (2 * 0.828)
    assert float(found[METRIC]) == pytest.approx(by_hand)
    assert float(found[f"{METRIC}_high"]) == pytest.approx(by_hand * PERPLEXITY_FACTOR)
    assert float(found[f"{METRIC}_low"]) == pytest.approx(by_hand / PERPLEXITY_FACTOR)


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
    found, wanted = evaluate(quantised).flat(), evaluate(plain).flat()
    assert {name: float(found[name]) for name in wanted} == {name: float(value) for name, value in wanted.items()}
    assert float(found[METRIC]) == 0.0


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
        found = evaluate(replace(base, {BITS: point[0], BLOCK: point[1]})).flat()
        return jnp.stack([found[METRIC], found["ttft_s"]])

    points = jnp.asarray([[6.0, 64.0], [4.5, 200.0], [7.5, 33.0]])
    plain = jnp.stack([both(point) for point in points])
    together = jax.jit(jax.vmap(both))(points)
    assert jnp.allclose(plain, together, rtol=1e-12, atol=0)
    slope, step = jax.jacfwd(both)(points[0]), 1e-5
    for place in range(2):
        shift = jnp.zeros(2).at[place].set(step)
        by_differences = (both(points[0] + shift) - both(points[0] - shift)) / (2 * step)
        assert jnp.allclose(slope[:, place], by_differences, rtol=1e-5)


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
    "workload=serving",
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
