"""How a job is laid out on devices: parallel degrees, micro-batches, recomputation, sharding, offload.

Every choice is a traced number, so a search prices plans as data with one compilation.
"""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ConfigError, suggestion
from ..fabrics import ALGORITHMS, Group
from ..fields import as_leaf, quantity, switch
from ..showing import as_text
from ..smooth import at_least, at_most

RECOMPUTE = ("none", "selective", "full")
AXES = ("tp", "attention_tp", "cp", "dp", "data", "ep", "expert_data", "pp", "rows", "tables", "world")
MOST = 1e9  # members of an axis, stages, sequences: beyond any cluster, so that what is left of devices is a number


NAMED = {"recompute": RECOMPUTE, "tp_algorithm": ALGORITHMS, "data_algorithm": ALGORITHMS}
"""Field of a plan whose values have names -> the names, in the order of the numbers that stand for them."""


def plan_value(field: str, value: Any) -> Any:
    """The number that stands for a named value of a field (0, 1, 2 for none, selective, full); numbers pass.

    Raises:
        ConfigError: a word that is no name there.
    """
    if isinstance(value, str) and field in NAMED:
        if value not in NAMED[field]:
            names = ", ".join(NAMED[field])
            raise ConfigError(f"{field} = {value!r} is not one of {names}{suggestion(value, NAMED[field])}")
        return as_leaf(float(NAMED[field].index(value)))
    return as_leaf(value)


def _named(field: str, default: float, doc: str) -> Any:
    """A number of the plan whose values have names."""
    high = float(len(NAMED[field]) - 1)
    metadata = {"low": 0.0, "high": high, "doc": doc}
    return eqx.field(converter=functools.partial(plan_value, field), default=default, metadata=metadata)


class Plan(eqx.Module):
    """The parallelisation of one job.

    dp is no field: it is what the devices leave, devices / (tp cp pp). A plan with a `device_count` buys that many,
    whatever the cluster says, so that a search can choose it with the degrees that divide it. Expert parallelism is
    carved out of the data (and context) dimension. `micro_batch` counts sequences: per micro-batch in training, decoded
    together by one replica in serving, where a step of continuous batching adds up to `chunk` prompt tokens (2048 is
    vLLM's budget for a step). With `attention_dp` the tensor ranks of a replica form so many groups with sequences of
    their own in attention, and join for the feed-forward network. The `*_overlap` numbers are the share of the covering
    work that can hide the communication.
    With `prefill_devices` a pool of so many accelerators (`Cluster.prefill`) computes prompts by the degrees of
    `prefill_*` in steps of `chunk` tokens, and the others decode.
    Embedding tables are cut into row_shards x column_shards pieces over the tp ranks; what is left of tp spreads
    whole tables. `tp_algorithm` and `data_algorithm` count on networks that leave the algorithm to the plan (`Chosen`).
    """

    tp: Float[Array, "*b"] = quantity(low=1.0, high=MOST, default=1.0, doc="tensor parallel")
    pp: Float[Array, "*b"] = quantity(low=1.0, high=1e5, default=1.0, doc="pipeline stages")
    cp: Float[Array, "*b"] = quantity(low=1.0, high=MOST, default=1.0, doc="context parallel (ring attention)")
    ep: Float[Array, "*b"] = quantity(low=1.0, high=MOST, default=1.0, doc="expert parallel")
    row_shards: Float[Array, "*b"] = quantity(
        low=1.0, high=MOST, default=1.0, doc="pieces of an embedding table, by rows"
    )
    column_shards: Float[Array, "*b"] = quantity(
        low=1.0, high=MOST, default=1.0, doc="pieces of an embedding table, by columns"
    )
    virtual_stages: Float[Array, "*b"] = quantity(
        low=1.0, high=MOST, default=1.0, doc="model chunks per stage (interleaving)"
    )
    micro_batch: Float[Array, "*b"] = quantity(low=1.0, high=MOST, default=1.0, doc="sequences")
    chunk: Float[Array, "*b"] = quantity(
        low=1.0, high=MOST, default=2048.0, doc="prompt tokens that one step of continuous batching takes at most"
    )
    attention_dp: Float[Array, "*b"] = quantity(
        low=1.0, high=MOST, default=1.0, doc="groups of tensor ranks that attend sequences of their own (serving)"
    )
    recompute: Float[Array, "*b"] = _named("recompute", 0.0, "none, selective or full")
    sequence_parallel: Float[Array, "*b"] = switch(default=0.0)
    zero: Float[Array, "*b"] = quantity(high=3.0, default=0.0, doc="ZeRO stage: optimiser, + gradients, + parameters")
    reduce_often: Float[Array, "*b"] = switch(default=1.0, doc="ZeRO 2 and 3 reduce gradients every micro-batch")
    offload_weights: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share kept in the second tier")
    offload_activations: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share kept in the second tier")
    offload_optimizer: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share kept in the second tier")
    offload_gradients: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share kept in the second tier")
    shard_checkpoints: Float[Array, "*b"] = switch(default=1.0, doc="full recomputation keeps a rank's own share")
    regather: Float[Array, "*b"] = switch(default=1.0, doc="gather sequence-parallel inputs again for the backward")
    scatter_sends: Float[Array, "*b"] = switch(default=1.0, doc="pipeline messages divided over the tensor ranks")
    tp_overlap: Float[Array, "*b"] = quantity(high=1.0, default=0.0)
    cp_overlap: Float[Array, "*b"] = quantity(high=1.0, default=0.8)
    ep_overlap: Float[Array, "*b"] = quantity(high=1.0, default=0.0)
    dp_overlap: Float[Array, "*b"] = quantity(high=1.0, default=0.8)
    pp_overlap: Float[Array, "*b"] = quantity(high=1.0, default=0.0)
    offload_overlap: Float[Array, "*b"] = quantity(high=1.0, default=1.0)
    tp_algorithm: Float[Array, "*b"] = _named("tp_algorithm", 0.0, "of collectives inside tensor-parallel groups")
    data_algorithm: Float[Array, "*b"] = _named("data_algorithm", 0.0, "of all other collectives")
    prefill_devices: Float[Array, "*b"] = quantity(
        high=MOST, default=0.0, doc="accelerators of a pool that computes prompts; 0: prompts beside decodes (serving)"
    )
    prefill_tp: Float[Array, "*b"] = quantity(low=1.0, high=MOST, default=1.0, doc="tensor parallel in that pool")
    prefill_pp: Float[Array, "*b"] = quantity(low=1.0, high=1e5, default=1.0, doc="pipeline stages in that pool")
    prefill_ep: Float[Array, "*b"] = quantity(low=1.0, high=MOST, default=1.0, doc="expert parallel in that pool")
    prefill_load: Float[Array, "*b"] = quantity(
        low=0.01, high=0.99, default=0.8, doc="share of its time that an engine of that pool works, at most"
    )
    device_count: Float[Array, "*b"] | None = quantity(
        low=1.0, high=MOST, default=None, doc="in place of the cluster's"
    )

    __repr__ = as_text


class Layout(eqx.Module):
    """A plan on a number of devices: everything derived that the lowering needs."""

    plan: Plan
    devices: Float[Array, "*b"] = quantity(low=1.0)

    def __getattr__(self, name: str) -> Array:
        """Fields of the plan, read through."""
        if name.startswith("__") or name == "plan":
            raise AttributeError(name)
        return getattr(self.plan, name)

    @property
    def dp(self) -> Array:
        """Data-parallel replicas."""
        return self.devices / (self.plan.tp * self.plan.cp * self.plan.pp)

    @property
    def selective(self) -> Array:
        """1 where the attention core is recomputed (selective or full)."""
        return at_most(self.plan.recompute, 1.0)

    @property
    def full(self) -> Array:
        """1 where whole layers are recomputed."""
        return at_least(self.plan.recompute - 1.0, 0.0)

    @property
    def scattered(self) -> Array:
        """1 where activations outside the tensor-parallel regions are sharded over the tensor ranks."""
        return jnp.where(self.plan.tp > 1, self.plan.sequence_parallel, 0.0)

    @property
    def prefill(self) -> "Layout":
        """The plan on the pool that computes prompts, at least one engine of it, one prompt an engine."""
        plan = self.plan
        degrees = {"tp": plan.prefill_tp, "pp": plan.prefill_pp, "ep": plan.prefill_ep}
        one = jnp.ones_like(plan.prefill_tp)
        own = dataclasses.replace(plan, **degrees, cp=one, attention_dp=one, micro_batch=one, device_count=None)
        return Layout(own, at_least(plan.prefill_devices, plan.prefill_tp * plan.prefill_pp * plan.prefill_ep))

    def shards(self, stage: int) -> Array:
        """Members that share what ZeRO `stage` (1, 2 or 3) shards: data ranks, or 1 where it is not sharded."""
        on = at_most(at_least(self.plan.zero - (stage - 1), 0.0), 1.0)
        return 1 + on * (self.dp * self.plan.cp - 1)

    def expert_shards(self, stage: int) -> Array:
        """The same for expert weights, whose replicas are fewer."""
        on = at_most(at_least(self.plan.zero - (stage - 1), 0.0), 1.0)
        return 1 + on * (self.dp * self.plan.cp / self.plan.ep - 1)

    def group(self, axis: str) -> Group:
        """The process group of a mesh axis, ranks ordered tp, cp, dp, pp from the inside out, with its algorithm."""
        algorithm = self.plan.tp_algorithm if axis == "tp" else self.plan.data_algorithm
        return dataclasses.replace(self._members(axis), algorithm=algorithm)

    def _members(self, axis: str) -> Group:
        """Size and stride of the group of a mesh axis."""
        plan = self.plan
        if axis == "tp":
            return Group(plan.tp, jnp.ones_like(plan.tp))
        if axis == "attention_tp":
            return Group(plan.tp / plan.attention_dp, jnp.ones_like(plan.tp))
        if axis == "cp":
            return Group(plan.cp, plan.tp)
        if axis == "ep":
            return Group(plan.ep, plan.tp)
        if axis == "expert_data":
            return Group(self.dp * plan.cp / plan.ep, plan.tp * plan.ep)
        if axis == "data":
            return Group(self.dp * plan.cp, plan.tp)
        if axis == "rows":
            return Group(plan.row_shards, jnp.ones_like(plan.row_shards))
        if axis == "tables":
            return Group(plan.tp / plan.row_shards, plan.row_shards)
        if axis == "world":
            return Group(self.devices, jnp.ones_like(self.devices))
        if axis == "pp":
            return Group(plan.pp, plan.tp * plan.cp * self.dp)
        raise ConfigError(f"mesh axis {axis!r} is not one of {', '.join(AXES)}")
