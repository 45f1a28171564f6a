"""Layout of a job on devices: parallel degrees, micro-batches, recomputation, sharding, offload.

Every choice is a traced number, so a search prices plans as data with one compilation.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.computed_once import computed_once
from ...core.errors import ConfigError
from ...core.fields import Module, integer, quantity, switch
from ...core.jax_typed import ones_like
from ...core.smooth import at_least, at_most
from ..networks.fabrics import ALGORITHMS, Group
from .plan_fields import AbstractPlan, Change, combination, named

RECOMPUTE = ("none", "selective", "full")
MEGATRON_MODULES = ("layernorm", "mla_up_proj", "moe_act", "mlp", "moe", "shared_experts")  # beside core_attn
PER_OP = "per_op"  # torchtitan's policy, which goes with no module beside it
RECOMPUTE_MODULES = (*MEGATRON_MODULES, *("qkv_proj", "context", "out_proj", "mlp_act"), PER_OP)
"""Beside core_attn: Megatron's, those of MaxText's policies, torchtitan's policy."""
OFFLOAD_MODULES = (
    *("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"),  # Megatron's
    "mlp_act",  # MaxText: mlpwi
)
CP_ORDERS = ("zigzag", "contiguous")
SCHEDULES = ("1f1b", "zb_h1", "zb_v", "dual_pipe")
MOST = 1e9  # members of an axis, stages, sequences: beyond any cluster, so that what is left of devices is a number
MORE_MODULES = 3  # that one suggestion adds to a list
PREFILL = (  # of a pool that may be left out
    "prefill_tp", "prefill_pp", "prefill_ep", "prefill_etp", "prefill_attention_dp", "prefill_token_budget",
    "prefill_max_utilisation",
)  # fmt: skip
USUAL = (  # fields by which a design is told where they are not as usual
    *("later_stages", "later_layers"),
    *("virtual_stages", "schedule", "first_stage_less", "last_stage_less", "cp", "ulysses", "cp_order", "ep", "etp"),
    "capacity_factor",
    "recompute",
    *("recompute_share", "recompute_modules", "decode_cp"),
    *("ffn_devices", "ffn_tp", "ffn_ep", "ffn_micro_batches"),
    *("sequence_parallel", "zero", "prefetch", "loss_chunks", "row_shards", "column_shards"),
    *("offload_weights", "offload_activations", "offload_optimizer", "offload_kv_cache"),
    "offload_modules",
)


class AbstractModelPlan(AbstractPlan):
    """The parallelisation of a transformer or a recommendation model.

    dp is no field: it is what the devices leave, devices / (tp cp pp). Experts are laid over the same ranks of a
    stage with degrees of their own (parallel folding [liu2025folding]): tp cp dp = etp ep x replicas of experts,
    with `etp` ranks to an expert, as many as `tp` where nothing is said. `micro_batch` counts sequences: per micro-
    batch in training, decoded together by one replica in serving, where a step of continuous batching adds up to
    `token_budget` prompt tokens. With `attention_dp` the tensor ranks of a replica form so many groups with
    sequences of their own in attention, and join for the feed-forward network. The `*_overlap` numbers are the
    share of the covering work that can hide the communication. With `prefill_devices` a pool of so many
    accelerators (`Cluster.prefill`) computes prompts by the degrees of `prefill_*` in steps of
    `prefill_token_budget` tokens (`token_budget`, where that is 0), and the others decode. With `ffn_devices` the
    feed-forward networks of what is decoded lie in another pool (`Cluster.ffn`), by the degrees of `ffn_*`.
    Embedding tables are cut into row_shards x column_shards pieces over the tp ranks; what is left of tp spreads whole
    tables. `tp_algorithm` and `data_algorithm` count on networks that leave the algorithm to the plan (`Chosen`).
    """

    tp: Float[Array, "*b"] = integer(low=1.0, high=MOST, default=1.0, doc="tensor parallel")
    pp: Float[Array, "*b"] = integer(low=1.0, high=1e5, default=1.0, doc="pipeline stages")
    cp: Float[Array, "*b"] = integer(low=1.0, high=MOST, default=1.0, doc="context parallel ranks")
    ulysses: Float[Array, "*b"] = integer(
        low=1.0,
        high=MOST,
        default=1.0,
        doc="context ranks that exchange heads (Ulysses); cp / ulysses pass keys and values in a ring (training)",
    )
    cp_order: Float[Array, "*b"] = named(
        "cp_order", CP_ORDERS, 0.0, "of a sequence over a ring: zigzag gives ranks equal work, contiguous the last most"
    )
    ep: Float[Array, "*b"] = integer(low=1.0, high=MOST, default=1.0, doc="expert parallel")
    etp: Float[Array, "*b"] = integer(
        high=MOST,
        default=0.0,
        doc="tensor parallel inside experts; 0: as many ranks as tp; 1: ep counts tensor ranks too, with whole experts",
    )
    capacity_factor: Float[Array, "*b"] = quantity(
        high=64.0,
        default=0.0,
        doc="tokens of an expert over the mean, up to which all are padded and beyond which they are dropped"
        " (training); 0: as workload.expert_load says",
    )
    row_shards: Float[Array, "*b"] = integer(
        low=1.0, high=MOST, default=1.0, doc="pieces of an embedding table, by rows"
    )
    column_shards: Float[Array, "*b"] = integer(
        low=1.0, high=MOST, default=1.0, doc="pieces of an embedding table, by columns"
    )
    virtual_stages: Float[Array, "*b"] = integer(
        low=1.0, high=MOST, default=1.0, doc="model chunks per stage (interleaving)"
    )
    schedule: Float[Array, "*b"] = named(
        "schedule", SCHEDULES, 0.0, "of a pipeline: 1f1b (interleaved by virtual_stages), zb_h1, zb_v or dual_pipe"
    )
    first_stage_less: Float[Array, "*b"] = integer(
        high=1e5, default=0.0, doc="layers that the first stage has less than others, for the embedding (training)"
    )
    last_stage_less: Float[Array, "*b"] = integer(
        high=1e5, default=0.0, doc="layers that the last stage has less than others, for head and loss (training)"
    )
    later_stages: Float[Array, "*b"] = integer(
        high=1e5, default=0.0, doc="last stages that are accelerators of the cluster's second kind (mixed training)"
    )
    later_layers: Float[Array, "*b"] = integer(
        high=1e5, default=0.0, doc="layers of each of these; 0: as many as if all stages were alike (mixed training)"
    )
    micro_batch: Float[Array, "*b"] = integer(low=1.0, high=MOST, default=1.0, doc="sequences")
    token_budget: Float[Array, "*b"] = integer(
        low=1.0, high=MOST, default=2048.0, doc="prompt tokens that one step of continuous batching takes at most"
    )
    attention_dp: Float[Array, "*b"] = integer(
        low=1.0, high=MOST, default=1.0, doc="groups of tensor ranks that attend sequences of their own (serving)"
    )
    decode_cp: Float[Array, "*b"] = integer(
        low=1.0,
        high=MOST,
        default=1.0,
        doc="tensor ranks among which a decoding sequence's cached tokens are divided (continuous batching)",
    )
    recompute: Float[Array, "*b"] = named("recompute", RECOMPUTE, 0.0, "none, selective or full")
    recompute_share: Float[Array, "*b"] = quantity(
        high=1.0, default=1.0, doc="share of the layers that `recompute=full` runs again; the others keep all"
    )
    recompute_modules: Float[Array, "*b"] = combination(
        "recompute_modules",
        RECOMPUTE_MODULES,
        "parts of a layer that run again, beside the attention core of `selective`",
    )
    sequence_parallel: Float[Array, "*b"] = switch(
        default=0.0, doc="norms and dropout on a tensor rank's share of tokens"
    )
    zero: Float[Array, "*b"] = integer(high=3.0, default=0.0, doc="ZeRO stage: optimizer, + gradients, + parameters")
    reduce_grads_every_microbatch: Float[Array, "*b"] = switch(
        default=1.0, doc="ZeRO 2 and 3 reduce gradients every micro-batch"
    )
    prefetch: Float[Array, "*b"] = integer(
        high=100.0,
        default=1.0,
        doc="layers whose weights ZeRO 3 gathers ahead of the one at work; 0 hides no gathering",
    )
    loss_chunks: Float[Array, "*b"] = integer(
        low=1.0, high=MOST, default=1.0, doc="pieces of a micro-batch whose logits exist one after the other"
    )
    offload_weights: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share kept in the second tier")
    offload_activations: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share kept in the second tier")
    offload_modules: Float[Array, "*b"] = combination(
        "offload_modules", OFFLOAD_MODULES, "modules whose inputs `offload_activations` is of; none: all activations"
    )
    offload_optimizer: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share kept in the second tier")
    offload_gradients: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share kept in the second tier")
    offload_kv_cache: Float[Array, "*b"] = quantity(
        high=1.0, default=0.0, doc="share kept in the second tier, brought back each step (serving)"
    )
    pool_kv_cache: Float[Array, "*b"] | None = quantity(
        high=1.0,
        default=None,
        doc="share of the cache in the accelerator's pool; null: as the memory places it (serving)",
    )
    partition_activations: Float[Array, "*b"] = switch(default=1.0, doc="full recomputation keeps a rank's own share")
    sequence_parallel_regather: Float[Array, "*b"] = switch(
        default=1.0, doc="gather sequence-parallel inputs again for the backward"
    )
    scatter_gather_p2p: Float[Array, "*b"] = switch(default=1.0, doc="pipeline messages divided over the tensor ranks")
    tp_overlap: Float[Array, "*b"] = quantity(
        high=1.0, default=0.0, doc="share of the work beside behind which tensor-parallel collectives hide"
    )
    cp_overlap: Float[Array, "*b"] = quantity(
        high=1.0, default=0.8, doc="share of the work beside behind which context-parallel rings hide"
    )
    ep_overlap: Float[Array, "*b"] = quantity(
        high=1.0, default=0.0, doc="share of the work beside behind which exchanges with experts hide"
    )
    dp_overlap: Float[Array, "*b"] = quantity(
        high=1.0, default=0.8, doc="share of the work beside behind which exchanges of gradients and weights hide"
    )
    pp_overlap: Float[Array, "*b"] = quantity(
        high=1.0, default=0.0, doc="share of the work beside behind which sends between stages hide"
    )
    offload_overlap: Float[Array, "*b"] = quantity(
        high=1.0, default=1.0, doc="share of the work beside behind which offloaded traffic hides"
    )
    tp_algorithm: Float[Array, "*b"] = named("tp_algorithm", ALGORITHMS, 0.0, "inside tensor-parallel groups")
    data_algorithm: Float[Array, "*b"] = named("data_algorithm", ALGORITHMS, 0.0, "of all other collectives")
    prefill_devices: Float[Array, "*b"] = integer(
        high=MOST, default=0.0, doc="accelerators of a pool that computes prompts; 0: prompts beside decodes (serving)"
    )
    prefill_tp: Float[Array, "*b"] = integer(low=1.0, high=MOST, default=1.0, doc="tensor parallel in that pool")
    prefill_pp: Float[Array, "*b"] = integer(low=1.0, high=1e5, default=1.0, doc="pipeline stages in that pool")
    prefill_ep: Float[Array, "*b"] = integer(low=1.0, high=MOST, default=1.0, doc="expert parallel in that pool")
    prefill_etp: Float[Array, "*b"] = integer(high=MOST, default=0.0, doc="tensor parallel inside experts of that pool")
    prefill_attention_dp: Float[Array, "*b"] = integer(
        low=1.0, high=MOST, default=1.0, doc="groups of tensor ranks in that pool that attend prompts of their own"
    )
    prefill_token_budget: Float[Array, "*b"] = integer(
        high=MOST,
        default=0.0,
        doc="tokens of prompts that a step of that pool takes at most; 0: as many as `token_budget`",
    )
    prefill_max_utilisation: Float[Array, "*b"] = quantity(
        low=0.01, high=0.99, default=0.8, doc="share of full steps that an engine of that pool computes, at most"
    )
    ffn_devices: Float[Array, "*b"] = integer(
        high=MOST, default=0.0, doc="accelerators of a pool for feed-forward networks; 0: beside attention (decoding)"
    )
    ffn_tp: Float[Array, "*b"] = integer(low=1.0, high=MOST, default=1.0, doc="tensor parallel in that pool")
    ffn_ep: Float[Array, "*b"] = integer(low=1.0, high=MOST, default=1.0, doc="expert parallel in that pool")
    ffn_micro_batches: Float[Array, "*b"] = integer(
        low=1.0,
        high=1e3,
        default=1.0,
        doc="parts of a batch that go to and fro between attention and that pool",
    )
    device_count: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="in place of the cluster's")

    axes: ClassVar[tuple[str, ...]] = (
        "tp", "attention_tp", "expert_tp", "cp", "cp_heads", "data", "ep", "expert_data", "pp", "rows", "tables",
        "decode_cp",
    )  # fmt: skip
    placed_as: ClassVar[Mapping[str, str]] = {
        "data": "dp", "expert_data": "dp", "attention_tp": "tp", "expert_tp": "tp", "cp_heads": "cp", "decode_cp": "tp",
    }  # fmt: skip
    said: ClassVar[tuple[str, ...]] = ("tp", "pp", "micro_batch")

    def ranks(self) -> Array:
        """Tensor, context and pipeline parallel ranks."""
        return self.tp * self.cp * self.pp

    @computed_once
    def members(self, axis: str, layout: "Layout") -> Group:
        """Ranks are ordered tp, cp, dp, pp from the inside out, of cp first those that exchange heads.

        Those of experts are ordered etp, ep, replicas, pp.
        """
        etp = layout.expert_tp
        one = ones_like(self.tp)
        groups = {
            "tp": lambda: Group(self.tp, one),
            "attention_tp": lambda: Group(self.tp / self.attention_dp, one),
            "cp": lambda: Group(self.cp / self.ulysses, self.tp * self.ulysses),
            "decode_cp": lambda: Group(self.decode_cp, one),
            "cp_heads": lambda: Group(self.ulysses, self.tp),
            "expert_tp": lambda: Group(etp, one),
            "ep": lambda: Group(self.ep, etp),
            "expert_data": lambda: Group(layout.expert_replicas, etp * self.ep),
            "data": lambda: Group(layout.dp * self.cp, self.tp),
            "rows": lambda: Group(self.row_shards, ones_like(self.row_shards)),
            "tables": lambda: Group(self.tp / self.row_shards, self.row_shards),
            "pp": lambda: Group(self.pp, self.tp * self.cp * layout.dp),
        }
        return groups[axis]()

    def algorithm(self, axis: str) -> Array:
        """One choice for tensor-parallel groups, one for all others."""
        return self.tp_algorithm if axis in ("tp", "expert_tp") else self.data_algorithm

    def offloaded(self, data: str) -> Array | None:
        """By the fields `offload_*`; embedding tables are weights."""
        kind = {"tables": "weights"}.get(data, data)
        return getattr(self, f"offload_{kind}", None)

    def changes(self) -> dict[str, Change]:
        """Smaller micro-batches, more recomputed, more ranks, more offloaded."""
        return {
            "micro_batch": lambda x: [float(x // 2**i) for i in range(1, 9) if x >= 2**i],
            "sequence_parallel": lambda x: [1.0] if x < 1 else [],
            "zero": lambda x: [float(z) for z in range(int(x) + 1, 4)],
            "recompute": lambda x: [float(r) for r in range(int(x) + 1, 3)],
            "recompute_modules": more_modules,
            "tp": lambda x: [x * 2**i for i in range(1, 7)],
            "pp": lambda x: [x * 2**i for i in range(1, 7)],
            "ep": lambda x: [x * 2**i for i in range(1, 7)],
            "cp": lambda x: [x * 2**i for i in range(1, 7)],
            "offload_optimizer": lambda x: [1.0] if x < 1 else [],
            "offload_activations": lambda x: [1.0] if x < 1 else [],
            "offload_weights": lambda x: [1.0] if x < 1 else [],
            "offload_kv_cache": lambda x: [1.0] if x < 1 else [],
        }

    def told(self) -> dict[str, Array]:
        """The degrees and the micro-batch, and what is not as usual."""
        usual = Plan()
        other = [name for name in USUAL if float(getattr(self, name)) != float(getattr(usual, name))]
        return {name: getattr(self, name) for name in (*self.said, *other)}

    @classmethod
    def example(cls) -> "AbstractModelPlan":
        """One device."""
        return Plan() if cls is AbstractModelPlan else cls()


class Plan(AbstractModelPlan):
    """Degrees of parallelism and what is kept where, of a model whose shape is given."""


def more_modules(chosen: float) -> list[float]:
    """Lists with up to `MORE_MODULES` modules more than the one that a number stands for, the fewest first.

    None beside `per_op`, which stands alone.
    """
    policy = RECOMPUTE_MODULES.index(PER_OP)
    if int(chosen) >> policy & 1:
        return []
    left = [2**bit for bit in range(policy) if not int(chosen) >> bit & 1]
    result: list[float] = []
    for count in range(1, MORE_MODULES + 1):
        result += [chosen + sum(some) for some in itertools.combinations(left, count)]
    return result


class Layout(Module):
    """A plan on a number of devices: everything derived that the lowering needs.

    `rhythm` is what a workload asks of this plan again and again, where it has been computed (`laid_out`).
    """

    plan: Any  # an `AbstractPlan`; a workload knows which
    devices: Float[Array, "*b"] = quantity(low=1.0)
    rhythm: Any = None

    def __getattr__(self, name: str) -> Array:
        """Fields of the plan, read through."""
        if name.startswith("__") or name == "plan":
            raise AttributeError(name)
        return getattr(self.plan, name)

    @property
    @computed_once
    def dp(self) -> Array:
        """Data-parallel replicas."""
        return self.plan.replicas(self.devices)

    @property
    @computed_once
    def expert_tp(self) -> Array:
        """Ranks among which one expert is cut."""
        return jnp.where(self.plan.etp > 0, self.plan.etp, self.plan.tp)

    @property
    @computed_once
    def sharing(self) -> Array:
        """Tensor groups (data x context ranks) that share one set of experts; below 1 where experts span no group."""
        return self.plan.ep * (self.expert_tp / self.plan.tp)

    @property
    @computed_once
    def expert_replicas(self) -> Array:
        """Copies of each expert in a stage."""
        return self.dp * self.plan.cp * (self.plan.tp / self.expert_tp) / self.plan.ep

    @property
    @computed_once
    def selective(self) -> Array:
        """Share of the layers whose attention core is recomputed (selective: all of them; full)."""
        return at_most(self.plan.recompute, 1.0) * (1 - self._whole) + self.full

    @property
    @computed_once
    def keeps_no_core(self) -> Array:
        """1 where layers that are not recomputed whole drop their attention core (selective)."""
        return at_most(self.plan.recompute, 1.0) - self._whole

    @property
    @computed_once
    def _whole(self) -> Array:
        """1 for `recompute=full`."""
        return at_least(self.plan.recompute - 1.0, 0.0)

    @property
    @computed_once
    def full(self) -> Array:
        """Share of the layers that are recomputed whole."""
        return self._whole * self.plan.recompute_share

    @property
    @computed_once
    def scattered(self) -> Array:
        """1 where activations outside the tensor-parallel regions are sharded over the tensor ranks."""
        return jnp.where(self.plan.tp > 1, self.plan.sequence_parallel, 0.0)

    @property
    @computed_once
    def prefill(self) -> "Layout":
        """The plan on the pool that computes prompts, at least one engine of it."""
        plan = self.plan
        chunk = jnp.where(plan.prefill_token_budget > 0, plan.prefill_token_budget, plan.token_budget)
        degrees = {"tp": plan.prefill_tp, "pp": plan.prefill_pp, "ep": plan.prefill_ep, "etp": plan.prefill_etp}
        degrees |= {"token_budget": chunk}
        one, groups = ones_like(plan.prefill_tp), plan.prefill_attention_dp
        prefill_plan = dataclasses.replace(
            plan, **degrees, cp=one, ulysses=one, decode_cp=one, attention_dp=groups, micro_batch=one, device_count=None
        )
        return Layout(
            prefill_plan,
            at_least(
                plan.prefill_devices,
                prefill_plan.tp * prefill_plan.pp * at_least(Layout(prefill_plan, one).sharing, 1.0),
            ),
        )

    @property
    @computed_once
    def ffn(self) -> "Layout":
        """The plan on the pool of networks, at least one engine of it; tokens come scattered over its ranks."""
        plan, one = self.plan, ones_like(self.plan.ffn_tp)
        alone = dict.fromkeys(("pp", "cp", "ulysses", "decode_cp", "attention_dp", "sequence_parallel"), one)
        ffn_plan = dataclasses.replace(plan, **alone, tp=plan.ffn_tp, ep=plan.ffn_ep, etp=0 * one, device_count=None)
        return Layout(ffn_plan, at_least(plan.ffn_devices, plan.ffn_tp * plan.ffn_ep))

    @computed_once
    def shards(self, stage: int) -> Array:
        """Members that share what ZeRO `stage` (1, 2 or 3) shards: data ranks, or 1 where it is not sharded."""
        on = at_most(at_least(self.plan.zero - (stage - 1), 0.0), 1.0)
        return 1 + on * (self.dp * self.plan.cp - 1)

    @computed_once
    def expert_shards(self, stage: int) -> Array:
        """Members that share the expert weights that ZeRO `stage` shards; expert replicas are fewer."""
        on = at_most(at_least(self.plan.zero - (stage - 1), 0.0), 1.0)
        return 1 + on * (self.expert_replicas - 1)

    @computed_once
    def group(self, axis: str) -> Group:
        """The process group of a mesh axis, with its algorithm; `world` is everybody.

        Raises:
            ConfigError: the plan has no such axis.
        """
        if axis == "world":
            result = Group(self.devices, ones_like(self.devices))
        elif axis in self.plan.axes:
            result = self.plan.members(axis, self)
        else:
            raise ConfigError(f"mesh axis {axis!r} is not one of {', '.join((*self.plan.axes, 'world'))}")
        return dataclasses.replace(result, algorithm=self.plan.algorithm(axis))
