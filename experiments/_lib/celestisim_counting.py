"""Traffic of pre-training as CelestiSim's energy tables count it, recovered from the tables themselves.

Three rules differ from what moves: a collective counts its full tensor once per rank, without (t-1)/t; bytes are given
in TiB and read as TB (a factor of 0.9095); one path average, over the peers of the whole model-parallel group, serves
every scheme. What moves is `codesign.model.metrics.evaluation`.

Source: inferred from [ding2025pfa] tables 2 to 4; its text prints neither plans nor volumes.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from codesign.core import at_least, integer
from codesign.model import Scenario
from codesign.model.networks.fabrics import Group, PathEnergy
from codesign.model.workloads import GroupedQueryAttention, Training

__all__ = ["Family", "counted_bytes", "counted_j", "model_parallel_group", "offloaded_bytes_per_element"]

TEBI_AS_TERA = 1e12 / 2**40
COLLECTIVES_PER_LAYER = 8.0  # forward, backward and their halves of sequence parallelism
BLOCK_CROSSINGS = 2.0  # forward and backward, across every block's boundary


class Family(eqx.Module):
    """A model of the tables' family and the batch: `heads` equals `layers`, the feed-forward is four times as wide."""

    layers: Float[Array, "*b"] = integer(low=1.0)
    hidden: Float[Array, "*b"] = integer(low=1.0)
    head_dim: Float[Array, "*b"] = integer(low=1.0)
    sequence: Float[Array, "*b"] = integer(low=1.0, default=2048.0)
    batch: Float[Array, "*b"] = integer(low=1.0, default=3072.0, doc="sequences a step")

    def elements(self) -> Array:
        """Activation elements of one step over all layers."""
        return self.batch * self.sequence * self.hidden * self.layers


def counted_bytes(
    model: Family, tp: Array, pp: Array, micro_batch: Array, recompute: Array, element_bytes: float = 2.0
) -> dict[str, Array]:
    """Bytes of one step on the whole cluster by scheme, as the tables count them: `tp`, `pp` and `offload`.

    Args:
        recompute: 1 where the attention core is recomputed.
        element_bytes: per activation element of the `tp` and `pp` traffic.
    """
    moved = model.elements() * TEBI_AS_TERA
    return {
        "tp": moved * COLLECTIVES_PER_LAYER * element_bytes * tp,
        "pp": moved * BLOCK_CROSSINGS * element_bytes,
        "offload": moved * offloaded_bytes_per_element(model, tp, pp, micro_batch, recompute),
    }


def offloaded_bytes_per_element(model: Family, tp: Array, pp: Array, micro_batch: Array, recompute: Array) -> Array:
    """Bytes to and from outside memory per activation element: activations, recomputation, weights and gradients.

    With two pipeline stages the tables hold half of all four terms; eleven cells say so and nothing explains it.
    """
    width = model.head_dim * model.layers / model.hidden
    scores = model.sequence * model.layers / model.hidden
    tokens = micro_batch * model.sequence
    weights = 2 * (8 * model.hidden + 4 * width * model.hidden + 4 * tp) / tokens
    weight_gradient = 36 + 8 * width + weights
    forward = 62 + 8 * tp + 16 * width + 13 * scores + weights
    input_gradient = 86 + 16 * width + 13 * scores + weights
    again = 12 + 6 * tp + 30 * width + 19 * scores + 6 * (3 * width * model.hidden + 2 * tp) / tokens
    redone = recompute * again
    return jnp.where(pp > 2, weight_gradient + redone, 0.5 * (forward + redone + input_gradient + weight_gradient))


def model_parallel_group(tp: Array, pp: Array) -> Group:
    """The t p neighbours over whose peers the tables average every path."""
    return Group(at_least(tp * pp, 1.0))


def counted_j(scenario: Scenario, paths: PathEnergy) -> dict[str, Array]:
    """Joules of a pre-training step on these paths as the tables count it: `tp`, `pp` and `offload`.

    Assumes: a dense model of the tables' family, all state outside the accelerator; the replicas' exchange is not
    counted.
    """
    job, plan = scenario.workload, scenario.plan
    assert isinstance(job, Training)
    model = job.model
    assert isinstance(model.attention, GroupedQueryAttention)
    family = Family(model.layers, model.hidden, model.attention.head_dim, job.sequence, job.global_batch)
    nbytes = counted_bytes(family, plan.tp, plan.pp, plan.micro_batch, scenario.layout.selective)
    mean = paths.mean_j_per_byte(paths.to_any_peer(model_parallel_group(plan.tp, plan.pp)))
    each = {"tp": mean, "pp": mean, "offload": paths.offload_j_per_byte}
    return {scheme: nbytes[scheme] * joules for scheme, joules in each.items()}
