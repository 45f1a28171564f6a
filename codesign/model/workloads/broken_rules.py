"""Rules of a plan that a transformer's layout breaks, in numbers and the words of the configuration."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ...core.fields import Module, static
from ...core.jax_typed import zeros_like
from ...core.smooth import at_least
from .lowering import beyond, indivisible, unspread_ranks
from .pipeline_schedules import broken_schedule
from .plan import Layout
from .recomputation import broken_modules
from .steady_state import FULLEST
from .transformer import Transformer

__all__ = ["SupportedLayouts", "batching_violations", "broken", "broken_batching"]


# Layouts that a serving engine can run, as its documentation states them.
#
# A replica of tp ranks whose attention forms g groups, e of which share experts, is one engine with g e attention
# groups of tp / g tensor ranks. Engines differ in what they accept of that:
#
# | engine | attention groups of a dense model | groups beside expert parallelism | attention cut over some ranks only |
# |---|---|---|---|
# | vLLM | no: each group holds the whole network | no: tensor ranks x data ranks are the expert ranks | yes |
# | SGLang | yes | yes | yes |
# | TensorRT-LLM | yes | yes | no: over all ranks or over none |
#
# All of them divide the key-value heads by the tensor ranks or copy each to as many ranks, and cut feed-forward
# networks into equal columns.
#
# Source: [vllm_parallel], [sglang_parallel], [trtllm_parallel].


class SupportedLayouts(Module):
    """Layouts that one engine accepts; by default everything.

    Args:
        engine: its name, for messages and for what a search says of its space.
        dense_groups: attention groups in a model without experts.
        groups_beside_experts: attention groups in replicas that share experts.
        partial_attention: groups of more than one tensor rank.
        whole_experts: experts that are spread are not cut besides, and lie on tensor ranks too.
        divided_heads: key-value heads divide by the tensor ranks of a group, or the ranks by the heads.
        divided_widths: columns of feed-forward networks divide by the ranks among which they are cut.
    """

    engine: str = static(default="")
    dense_groups: bool = static(default=True)
    groups_beside_experts: bool = static(default=True)
    partial_attention: bool = static(default=True)
    whole_experts: bool = static(default=False)
    divided_heads: bool = static(default=False)
    divided_widths: bool = static(default=False)

    def runs_groups(self, model: Transformer) -> bool:
        """True if a model's attention may be cut into groups at all."""
        return self.dense_groups or bool(model.has_experts)

    def violations(self, model: Transformer, plan: Any) -> dict[str, Array]:
        """By how much a plan breaks each rule of the engine; 0 where it keeps it.

        Args:
            model: what is served.
            plan: degrees of one pool.
        """
        groups, ranks = plan.attention_dp, plan.tp / plan.attention_dp
        none = zeros_like(groups * plan.ep)
        spread = jnp.where(plan.etp > 0, plan.etp, plan.tp) * plan.ep / plan.tp  # tensor groups that share experts
        apart = none
        if not self.runs_groups(model):
            apart = apart + groups - 1
        if not self.groups_beside_experts:
            apart = apart + jnp.where(plan.ep > 1, groups - 1, 0.0)
        if not self.partial_attention:
            apart = apart + jnp.where(groups * spread > 1, jnp.abs(ranks - 1), 0.0)
        heads = getattr(model.attention, "kv_heads", None) if self.divided_heads else None
        copied = none if heads is None else indivisible(jnp.maximum(heads, ranks), jnp.minimum(heads, ranks))
        cut = self._cut(model, plan) if self.divided_widths else none
        besides = jnp.where(plan.etp > 0, jnp.abs(plan.etp - 1), jnp.where(plan.ep > 1, plan.tp - 1, 0.0))
        return {
            "engine_groups": apart, "engine_heads": none + copied, "engine_widths": none + cut,
            "engine_experts": besides if self.whole_experts else none,
        }  # fmt: skip

    def _cut(self, model: Transformer, plan: Any) -> Array:
        """By how much columns do not divide: of experts, of dense layers beside them, or of the only network."""
        network: Any = model.feed_forward
        ranks = plan.tp / plan.attention_dp
        if not model.has_experts:
            width = getattr(network, "width", None)
            return zeros_like(ranks) if width is None else indivisible(width, plan.tp)
        each = jnp.where(plan.etp > 0, plan.etp, plan.tp)
        dense = jnp.where(network.dense_width > 0, network.dense_width, ranks)
        return indivisible(network.expert_width, each) + indivisible(dense, ranks)

    def broken(self, rule: str, model: Transformer, plan: Any, pool: str = "") -> str | None:
        """One line on a rule that a plan breaks; None where it is none of these.

        Args:
            rule: as `violations` names it.
            model: what is served.
            plan: degrees of one pool.
            pool: what its fields begin with.
        """
        tp, groups, ep = (
            f"plan.{pool}{name} = {float(getattr(plan, name)):g}" for name in ("tp", "attention_dp", "ep")
        )
        runs = "; framework=none prices it all the same"
        if rule == "engine_groups":
            if not self.runs_groups(model):
                return f"{groups}: {self.engine} runs no attention groups of a model without experts{runs}"
            if not self.groups_beside_experts and float(plan.ep) > 1 and float(plan.attention_dp) > 1:
                said = f"{self.engine} spreads experts over all its ranks; take as many more replicas"
                return f"{groups} beside {ep}: {said}, plan.{pool}attention_dp = 1{runs}"
            return f"{groups} of {tp}: {self.engine} cuts attention over all ranks of an engine or over none{runs}"
        ranks = float(plan.tp / plan.attention_dp)
        if rule == "engine_heads":
            heads = float(getattr(model.attention, "kv_heads", 1.0))
            said = (
                f"{ranks:g} ranks of {self.engine} neither divide {heads:g} key-value heads nor are a multiple of them"
            )
            return f"{tp}, {groups}: {said}{runs}"
        if rule == "engine_experts" and not model.has_experts:
            return f"{ep}: {model.name or 'this model'} has no experts to spread"
        if rule == "engine_experts":
            said = f"{self.engine} spreads whole experts over all ranks: plan.{pool}etp = 1, plan.{pool}ep counts them"
            return f"{ep} of {tp}: {said}{runs}"
        if rule == "engine_widths":
            return f"{tp}: {self.engine} cuts feed-forward networks into equal columns, which these ranks do not{runs}"
        return None


def broken(workload: Any, rule: str, layout: Layout) -> str | None:
    """One line on a rule; None where it is not one of a transformer's.

    Args:
        workload: whose model is a `Transformer`; a text asks only for what the workloads with its rule have.
        rule: as `violations` names it.
        layout: the plan on its devices.
    """
    plan, model, devices = layout.plan, workload.model, float(layout.devices)
    ranks = {axis: float(getattr(plan, axis)) for axis in ("tp", "cp", "pp")}
    product = " * ".join(f"{axis} {degree:g}" for axis, degree in ranks.items() if degree != 1) or "tp 1"
    counted = "cluster.device_count" if plan.device_count is None else "plan.device_count"
    replicas, micro, trains = float(layout.dp), float(plan.micro_batch), hasattr(workload, "global_batch")
    texts: dict[str, Callable[[], str]] = {
        "devices": lambda: (
            f"plan: {product} does not divide {counted} = {devices:g}"
            f" ({_whose(trains, 'world size = tensor * context * pipeline * data ranks', 'whole engines')})"
        ),
        "heads": lambda: (
            f"plan.tp = {ranks['tp']:g}{_groups(plan)} does not divide model heads = {float(model.attention.heads):g}"
            f" ({_whose(trains, 'num_attention_heads % tensor_model_parallel_size', 'num_attention_heads % tp')} = 0)"
        ),
        "layers": lambda: (
            broken_ends(workload, layout)
            or (
                f"plan.pp = {ranks['pp']:g} exceeds model layers = {float(model.layers):g}: a stage has one or more"
                if not trains
                else f"plan.pp = {ranks['pp']:g} with plan.virtual_stages = {float(plan.virtual_stages):g} does not"
                f" divide model layers = {float(model.layers):g} into equal chunks"
                f" ({float(workload.layers_per_stage(layout)):g} layers a stage;"
                " Megatron: num_layers % (pipeline stages * virtual stages) = 0)"
            )
        ),
        "batch": lambda: (
            f"plan.micro_batch = {micro:g} times {replicas:g} replicas does not divide"
            f" workload.global_batch = {float(workload.global_batch):g} (Megatron: global_batch_size %"
            " (micro_batch_size * data_parallel_size) = 0)"
            if hasattr(workload, "global_batch")
            else f"plan.micro_batch = {micro:g} is less than one sequence"
        ),
        "experts": lambda: (
            broken_folding(workload, layout)
            or (
                f"plan.ep = {float(plan.ep):g}: {type(model.feed_forward).__name__} has no experts to spread"
                if not hasattr(model.feed_forward, "experts")
                else f"plan.ep = {float(plan.ep):g} must {'divide' if trains else 'be at most twice'} model experts ="
                f" {float(model.feed_forward.experts):g} and {'' if trains else 'divide '}the"
                f" {replicas * ranks['cp']:g} data ranks{_spread_over_tensor(layout)}"
            )
        ),
        "schedule": lambda: broken_schedule(layout, float(workload.micro_batches(layout))),
        "interleaving": lambda: (
            f"plan.virtual_stages = {float(plan.virtual_stages):g} needs a pipeline, but plan.pp = {ranks['pp']:g}"
            " (Megatron: interleaving is of pipeline_model_parallel_size > 1)"
        ),
        "sequence": lambda: (
            f"plan: cp {ranks['cp']:g} * tp {ranks['tp']:g} does not divide"
            f" workload.sequence = {float(workload.sequence):g} (Megatron: seq_length % (context * tensor ranks) = 0)"
        ),
        "context": lambda: broken_context(workload, layout),
        "modules": lambda: broken_modules(model.layer_ops(workload.shard(layout)), plan),
    }
    return texts[rule]() if rule in texts else None


def _whose(trains: bool, trained: str, served: str) -> str:
    """A framework with its rule."""
    return f"Megatron: {trained}" if trains else f"vLLM, SGLang, TensorRT-LLM: {served}"


def _groups(plan: Any) -> str:
    """The attention groups of a replica, where it has several."""
    return f" / plan.attention_dp = {float(plan.attention_dp):g}" if float(plan.attention_dp) > 1 else ""


def _spread_over_tensor(layout: Layout) -> str:
    """The way to expert ranks out of tensor ranks, where a plan has them and does not take it."""
    plan = layout.plan
    if float(plan.tp) <= 1 or float(plan.etp):
        return ""
    ranks = float(layout.dp * plan.cp * plan.tp)
    return f" (plan.etp = 0 cuts each expert over tp; 1 spreads whole ones over the {ranks:g} ranks of a stage)"


def broken_context(workload: Any, layout: Layout) -> str:
    """One line on context ranks that cannot exchange heads, or an order without a ring."""
    plan, attention = layout.plan, workload.model.attention
    exchanged, cp, tp = float(plan.ulysses), float(plan.cp), float(plan.tp)
    if float(plan.decode_cp) > 1 and exchanged <= 1 and not float(plan.cp_order):
        return f"plan.decode_cp = {float(plan.decode_cp):g} is of serving with continuous batching"
    if not hasattr(workload, "global_batch"):
        text = f"plan.ulysses = {exchanged:g}" if exchanged > 1 else "plan.cp_order = contiguous"
        return f"{text} is of training: engines pass keys and values round context ranks in equal parts"
    if exchanged <= 1:
        return "plan.cp_order = contiguous needs context ranks, but plan.cp = 1"
    heads = float(getattr(attention, "kv_heads", attention.heads))
    if cp % exchanged:
        return (
            f"plan.ulysses = {exchanged:g} does not divide plan.cp = {cp:g} (Megatron: a2a ranks are among those of cp;"
            f" Transformer Engine: with tp = {tp:g} they divide {heads:g} key-value heads)"
        )
    if attention.exchanges_heads:
        return (
            f"plan.ulysses = {exchanged:g} with plan.tp = {tp:g} does not divide {heads:g} key-value heads (Transformer"
            " Engine: heads must be divisible by the ranks of cp_comm_type a2a)"
        )
    return f"plan.ulysses = {exchanged:g}: {type(attention).__name__} has no heads of keys and values to exchange"


def broken_ends(workload: Any, layout: Layout) -> str | None:
    """One line on stages that are to be shorter at their ends; None where none is."""
    plan = layout.plan
    first, last = float(plan.first_stage_less), float(plan.last_stage_less)
    pp, chunks = float(plan.pp), float(plan.pp * plan.virtual_stages)
    layers = float(workload.model.layers)
    if not first + last or not hasattr(workload, "global_batch"):
        return None
    text = f"plan.first_stage_less = {first:g} and plan.last_stage_less = {last:g}"
    if pp <= 1:
        return f"{text} need a pipeline, but plan.pp = 1"
    if (layers + first + last) % chunks:
        return (
            f"{text}: {layers:g} layers with these do not divide over {chunks:g} chunks (Megatron:"
            f" --account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split)"
        )
    each = (layers + first + last) / chunks
    if max(first, last) > each:
        return f"{text}: a chunk has {each:g} layers and cannot have fewer than none"
    if chunks == 2 and first and last:
        return f"{text}: of two chunks one has all its layers, so one of the two is 0"
    return None


def broken_folding(workload: Any, layout: Layout) -> str | None:
    """One line on experts with a tensor degree of their own; None where the plan gives them none."""
    plan = layout.plan
    etp, ep, each = float(plan.etp), float(plan.ep), float(layout.dp * plan.cp * plan.tp)
    capacity = float(plan.capacity_factor)
    if capacity and not hasattr(workload, "global_batch"):
        return f"plan.capacity_factor = {capacity:g} is of training: engines drop no tokens"
    if capacity and not workload.model.has_experts:
        return f"plan.capacity_factor = {capacity:g}: this model has no experts"
    if 0 < capacity < 1:
        return f"plan.capacity_factor = {capacity:g} is neither 0 nor at least 1: below 1 even experts drop tokens"
    if not etp:
        return None
    experts = getattr(workload.model.feed_forward, "experts", None)
    trains = hasattr(workload, "global_batch")
    if experts is None:
        return None if trains else f"plan.etp = {etp:g}: {workload.model.name or 'this model'} has no experts"
    width = float(workload.model.feed_forward.expert_width)
    if width % etp:
        return f"plan.etp = {etp:g} does not divide the expert width {width:g} (Megatron: expert_tensor_parallel_size)"
    if not trains:
        return _unspread(workload, layout)
    if float(experts) % ep:
        return f"plan.ep = {ep:g} must divide model experts = {float(experts):g}"
    return (
        f"plan: ep {ep:g} * etp {etp:g} does not divide the {each:g} ranks of a stage"
        f" (Megatron: world = expert_tensor_parallel_size * expert_model_parallel_size * pipeline * expert data)"
    )


def _unspread(workload: Any, layout: Layout) -> str:
    """One line on expert ranks of a server that make no whole tensor groups, or too many."""
    etp, ep, tp = (float(getattr(layout.plan, name)) for name in ("etp", "ep", "tp"))
    experts, groups = float(workload.model.feed_forward.experts), float(layout.dp * layout.plan.cp)
    if etp > tp:
        return f"plan.etp = {etp:g} is more than plan.tp = {tp:g}: take a larger plan.tp with plan.attention_dp groups"
    if etp == tp:
        return f"plan.etp = {etp:g} equals plan.tp: write plan.etp = 0"
    if float(workload.model.feed_forward.expert_width) % etp:
        return (
            f"plan.etp = {etp:g} does not divide the expert width {float(workload.model.feed_forward.expert_width):g}"
        )
    if ep > 2 * experts:
        return f"plan.ep = {ep:g} must be at most twice model experts = {experts:g}"
    return (
        f"plan: ep {ep:g} * etp {etp:g} ranks of experts are not 1 to {groups:g} whole groups of tp {tp:g}"
        f" (vLLM: expert ranks = tensor * data ranks; SGLang, TensorRT-LLM: moe_tp * moe_ep = tp)"
    )


def broken_batching(workload: Any, rule: str, layout: Layout) -> str | None:
    """One line on a rule of continuous batching: prompts that pile up, parts without a sequence, groups of ranks."""
    plan = layout.plan
    batch, chunk = float(plan.micro_batch), float(plan.token_budget)
    groups, stages, tp = float(plan.attention_dp), float(plan.pp), float(plan.tp)
    if rule == "attention_groups":
        return f"plan.attention_dp = {groups:g} does not divide plan.tp = {tp:g} (SGLang: tp_size % dp_size = 0)"
    if rule == "batch":
        return (
            f"plan.micro_batch = {batch:g} leaves some of pp {stages:g} * attention_dp {groups:g} parts without a"
            f" sequence: at least {stages * groups:g}"
        )
    if rule == "cache":
        return broken_cache(workload.model, plan)
    if rule != "prompts":
        return broken(workload, rule, layout)
    state = workload.rhythm(layout).state
    load, comes = float(state.load), float(state.arrivals * workload.computed_tokens())
    fewer = int(batch / load * 0.98)
    by = f"{load - 1:+.1%}" if load < 2 else f"{load:.4g} times as many"
    most = f", or plan.micro_batch of {fewer} or fewer" if fewer >= stages * groups else ""
    return (
        f"prefill is overloaded: {comes:,.0f} prompt tokens arrive in a step that takes plan.token_budget = {chunk:g}"
        f" ({by}); take plan.token_budget of {comes * 1.02 + 1:.0f} or more{most}, or longer answers"
    )


def undivided_cache(model: Any, plan: Any) -> Array:
    """Violation of the rules of ranks that divide cached tokens: they divide the ranks of each key-value head."""
    ranks = plan.tp / plan.attention_dp
    heads = 1.0 if hasattr(model.attention, "kv_rank") else getattr(model.attention, "kv_heads", 1.0)
    unable = 1.0 if model.attention.decode_widths is None else 0.0
    broken = indivisible(ranks, plan.decode_cp) + beyond(plan.decode_cp * heads, ranks) + unable
    return jnp.where(plan.decode_cp > 1, broken, 0.0)


def broken_cache(model: Any, plan: Any) -> str:
    """One line on ranks that cannot divide cached tokens."""
    divided, ranks = float(plan.decode_cp), float(plan.tp / plan.attention_dp)
    text = f"plan.decode_cp = {divided:g}"
    if model.attention.decode_widths is None:
        return f"{text}: {type(model.attention).__name__} keeps no cache that is divided by tokens"
    if ranks % divided:
        return f"{text} does not divide the {ranks:g} tensor ranks of an attention group (vLLM: tensor_parallel_size)"
    heads = float(getattr(model.attention, "kv_heads", 1.0))
    return (
        f"{text}: {ranks:g} tensor ranks hold {heads:g} key-value heads {ranks / heads:g} times (vLLM:"
        " decode_context_parallel_size takes copies of a head, tensor_parallel_size / heads at most)"
    )


def batching_violations(workload: Any, layout: Layout) -> dict[str, Array]:
    """By how much a plan breaks each rule of continuous batching; 0 where it keeps it."""
    plan, model = layout.plan, workload.model
    streams = plan.pp * plan.attention_dp
    return {
        "devices": indivisible(layout.devices, plan.tp * plan.cp * plan.pp),
        "attention_groups": indivisible(plan.tp, plan.attention_dp),
        "heads": indivisible(model.attention.heads, at_least(plan.tp / plan.attention_dp, 1.0)),
        "layers": beyond(plan.pp, at_least(model.layers, 1.0)),  # engines give stages a layer more or less
        "experts": unspread_ranks(model, layout, layout.dp * plan.cp) + plan.capacity_factor,
        "context": at_least(plan.ulysses - 1, 0.0) + plan.cp_order,
        "cache": undivided_cache(model, plan),
        "batch": jnp.where(plan.micro_batch < streams, streams / at_least(plan.micro_batch, 1e-6) - 1, 0.0),
        "prompts": at_least(workload.rhythm(layout).state.load / FULLEST - 1, 0.0),
    }
