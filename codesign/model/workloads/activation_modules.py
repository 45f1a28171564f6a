"""Activations by module of a layer: what is recomputed or kept on the host, by the names that trainers give.

Frameworks save, redo or offload a layer's activations by module, not by a share. A list of modules is one number of a
plan (`combination`): a search takes lists as data. Recomputed modules keep less and run again:

    module          dropped between passes              run again in the backward pass
    layernorm       both norms' results                 both norms
    mla_up_proj     queries, keys, values               the up-projections of latent attention
    qkv_proj        queries, keys, values               the projections to them
    context         the attention's result              the attention core
    out_proj        the feed-forward network's input    the output projection, its joins over tensor ranks
    mlp_act moe_act the activation function's result    the activation function
    mlp             everything inside a dense network   the network, its joins
    shared_experts  everything inside shared experts    the shared experts
    moe             everything inside a layer of experts router, experts, shared experts, both exchanges
    per_op          what torchtitan does not save       the same (`per_op_policy`)

The layer's input stays, as does what is not named. `plan.recompute` adds the attention core (`selective`, Megatron's
`core_attn`) or takes everything but the layer's input (`full`). Modules to offload are named by what reads them.

Source: `recompute_modules` and `offload_modules` of [shoeybi2019]'s code, tensors of [maxtext]'s rematerialisation.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ...core.computed_once import one_call
from ...core.smooth import at_least, ratio
from .layer_operations import BlockComm, BlockOp
from .lowering import layer_bytes
from .per_op_policy import kept_per_op, redone_per_op
from .plan import OFFLOAD_MODULES, PER_OP, RECOMPUTE, RECOMPUTE_MODULES, Layout

__all__ = [
    "broken_modules",
    "dropped",
    "module_switches",
    "module_violations",
    "modules_of",
    "offloaded_share",
    "redone_comms",
    "without_unread",
    "without_unread_sums",
]

DROPPED: Mapping[str, tuple[str, ...]] = {
    "attention_core": ("mla_up_proj", "qkv_proj"),
    "attention_out": ("context",),
    "mlp_branch": ("out_proj",),
    "mlp_activation": ("mlp",),
    "mlp_down": ("mlp", "mlp_act"),
    "moe_shared_activation": ("moe", "shared_experts"),
    "moe_shared_down": ("moe", "shared_experts"),
    "moe_up": ("moe",),
    "moe_activation": ("moe",),
    "moe_down": ("moe", "moe_act"),
}
"""Operation -> modules with which what it keeps is dropped; the inputs of a norm's readers are `layernorm`'s."""
REDONE: Mapping[str, tuple[str, ...]] = {
    "attention_norm": ("layernorm",),
    "mlp_norm": ("layernorm",),
    "attention_qkv": ("qkv_proj",),
    "attention_q": ("qkv_proj",),
    "attention_k": ("qkv_proj",),
    "attention_v": ("qkv_proj",),
    "attention_q_up": ("mla_up_proj",),
    "attention_kv_up": ("mla_up_proj",),
    "attention_core": ("context",),
    "attention_out": ("out_proj",),
    "mlp_up": ("mlp",),
    "mlp_activation": ("mlp", "mlp_act"),
    "mlp_down": ("mlp",),
    "moe_router": ("moe",),
    "moe_latent_down": ("moe",),
    "moe_latent_up": ("moe",),
    "moe_shared_up": ("moe", "shared_experts"),
    "moe_shared_activation": ("moe", "shared_experts"),
    "moe_shared_down": ("moe", "shared_experts"),
    "moe_up": ("moe",),
    "moe_activation": ("moe", "moe_act"),
    "moe_down": ("moe",),
}
"""Operation -> modules with which its forward runs again."""
REDONE_COMMS: Mapping[str, tuple[str, ...]] = {
    "attention_tp": ("out_proj",),
    "attention_ring": ("context",),
    "attention_heads_in": ("context",),
    "attention_heads_out": ("context",),
    "moe_dispatch": ("moe",),
    "moe_dispatch_tp": ("moe",),
    "moe_combine_tp": ("moe",),
    "moe_combine": ("moe",),
}
NORMED = {
    "attention_qkv": "attention_norm",
    "attention_qkv_branch": "attention_norm",
    "attention_down": "attention_norm",
    "mlp_up": "mlp_norm",
    "moe_router": "mlp_norm",
}
"""Operation that keeps a norm's result -> the norm."""
READ_BY: Mapping[str, str] = {
    "attention_branch": "attn_norm",
    "attention_qkv": "qkv_linear",
    "attention_qkv_branch": "qkv_linear",
    "attention_down": "qkv_linear",
    "attention_core": "core_attn",
    "attention_out": "attn_proj",
    "mlp_branch": "mlp_norm",
    "moe_up": "expert_fc1",
    "moe_activation": "moe_act",
    "mlp_activation": "mlp_act",
}
"""Operation that keeps activations -> the module to offload whose input they are."""
PARTS_OF: Mapping[str, tuple[str, ...]] = {
    "mla_up_proj": ("attention_kv_up",), "qkv_proj": ("attention_qkv", "attention_q"), "context": ("attention_core",),
    "mlp_act": ("mlp_activation",), "mlp": ("mlp_up",), "moe_act": ("moe_activation",), "moe": ("moe_up",),
    "shared_experts": ("moe_shared_up",),
}  # fmt: skip
"""Module -> operations of which every model with this module has one."""


@one_call("modules")
def module_switches(chosen: Array, *, modules: Sequence[str]) -> dict[str, Array]:
    """Module -> 1 where a number of a plan names it, else 0: the digits of the number to base 2."""
    result: dict[str, Array] = {}
    for index, name in enumerate(modules):
        result[name] = jnp.floor(chosen / 2.0**index) - 2 * jnp.floor(chosen / 2.0 ** (index + 1))
    return result


def _any(switches: Mapping[str, Array], names: Sequence[str]) -> Array | None:
    """1 where one of some modules is named; None where there are none."""
    result: Array | None = None
    for name in names:
        result = switches[name] if result is None else jnp.maximum(result, switches[name])
    return result


def dropped(block: list[BlockOp], layout: Layout) -> list[BlockOp]:
    """Operations of a layer that keep what `plan.recompute_modules` leaves, and say how often they run again.

    Args:
        block: of an average layer; its working set stays, since a module's activations come back while it is at work.
        layout: whose plan names modules.
    """
    switches = module_switches(layout.plan.recompute_modules, modules=RECOMPUTE_MODULES)
    results = {op.name: op.gradient_bytes for op in block}
    per_op = kept_per_op(block, layout)
    result: list[BlockOp] = []
    for op in block:
        stored, again, name = op.stored_bytes, layout.selective if op.core else layout.full, plain(op.name)
        gone, redone = _any(switches, DROPPED.get(name, ())), _any(switches, REDONE.get(name, ()))
        if gone is not None:
            stored = stored * (1 - gone)
        norm = NORMED.get(name)
        if norm in results:
            stored = at_least(stored - switches["layernorm"] * results[norm], 0.0)
        if redone is not None:
            again = jnp.maximum(again, redone)
        policy, (kept, run) = switches[PER_OP], per_op[op.name]
        stored, again = stored + policy * (kept - stored), again + policy * (run - again)
        result.append(dataclasses.replace(op, stored_bytes=stored, recomputed=again))
    return result


def redone_comms(comms: list[BlockComm], layout: Layout, dense_share: Array) -> list[BlockComm]:
    """Communication of a layer that also runs again with the modules that it joins.

    Args:
        comms: of an average layer.
        layout: whose plan names modules.
        dense_share: share of the layers whose feed-forward network has no experts.
    """
    switches = module_switches(layout.plan.recompute_modules, modules=RECOMPUTE_MODULES)
    network = switches["mlp"] * dense_share + switches["moe"] * (1 - dense_share)
    result: list[BlockComm] = []
    for comm in comms:
        again = network if comm.name == "mlp_tp" else _any(switches, REDONE_COMMS.get(comm.name, ()))
        if again is not None:
            comm = dataclasses.replace(comm, recompute=jnp.maximum(comm.recompute, again * comm.forward))
        policy = jnp.maximum(comm.recompute, switches[PER_OP] * redone_per_op(comm))
        comm = dataclasses.replace(comm, recompute=policy)
        result.append(comm)
    return result


UNREAD = ("mlp_down", "mlp_residual", "moe_shared_down")
"""Operations whose results no gradient of their own layer reads."""


def without_unread(block: list[BlockOp]) -> list[BlockOp]:
    """Operations of a layer that run again only where a gradient reads their result.

    A compiler that removes dead code from the backward pass leaves out the last product of a layer and what follows
    it; checkpoints that call the layer's forward again do not. Experts' results stay: router scores read them.
    """
    return [dataclasses.replace(op, recomputed=0.0 * op.recomputed) if plain(op.name) in UNREAD else op for op in block]


def without_unread_sums(comms: list[BlockComm], dense_share: Array) -> list[BlockComm]:
    """Communication without the repeated sum over tensor ranks of a dense network's result, which nothing reads."""
    result: list[BlockComm] = []
    for comm in comms:
        if comm.name == "mlp_tp" and comm.operation in ("all_reduce", "reduce_scatter"):
            comm = dataclasses.replace(comm, recompute=comm.recompute * (1 - dense_share))
        result.append(comm)
    return result


def offloaded_share(block: list[BlockOp], layout: Layout) -> Array:
    """Share of a layer's stored activations that modules to offload keep; all of them where none is named.

    Under full recomputation only the layer's input is stored, which `attn_norm` reads.
    """
    chosen = layout.plan.offload_modules
    switches = module_switches(chosen, modules=OFFLOAD_MODULES)
    named = jnp.asarray(0.0)
    for op in block:
        if plain(op.name) in READ_BY:
            named = named + op.stored_bytes * op.per_layer * switches[READ_BY[plain(op.name)]]
    part = ratio(named, at_least(layer_bytes(block, "stored_bytes"), 1.0))
    part = layout.full * switches["attn_norm"] + (1 - layout.full) * part
    return jnp.where(chosen > 0, part, 1.0)


def _layers_with(block: list[BlockOp]) -> dict[str, Array]:
    """Module to recompute -> how often an average layer has one of its operations."""
    result: dict[str, Array] = {}
    for name, parts in PARTS_OF.items():
        result[name] = jnp.asarray(0.0)
        for op in block:
            if plain(op.name) in parts:
                result[name] = result[name] + op.per_layer
    return result


def module_violations(block: list[BlockOp], layout: Layout) -> dict[str, Array]:
    """By how much a list of modules to recompute breaks a rule: modules beside `full`, or of another model.

    No rule ties `offload_modules` to a share above 0: a group of plans is bounded over all shares at once.
    """
    plan = layout.plan
    switches = module_switches(plan.recompute_modules, modules=RECOMPUTE_MODULES)
    absent = jnp.where(plan.recompute_modules > 0, layout.full, 0.0)
    alone = 2.0 ** RECOMPUTE_MODULES.index(PER_OP)
    beside = jnp.where(plan.recompute_modules == alone, 0.0, 1.0) + layout.selective
    absent = absent + switches[PER_OP] * beside
    for name, layers in _layers_with(block).items():
        absent = absent + jnp.where(layers > 0, 0.0, switches[name])
    return {"modules": absent}


def broken_modules(block: list[BlockOp], plan: Any) -> str:
    """One line on a list of modules that breaks a rule."""
    chosen = modules_of(plan.recompute_modules, RECOMPUTE_MODULES)
    told = f"plan.recompute_modules = {'+'.join(chosen)}"
    layers = _layers_with(block)
    absent = [name for name in chosen if name in layers and not float(layers[name])]
    if PER_OP in chosen and (len(chosen) > 1 or float(plan.recompute) == 1):
        return (
            f"{told} with plan.recompute = {RECOMPUTE[round(float(plan.recompute))]}: per_op is a policy of its own,"
            " which saves what attention gives (torchtitan: selective)"
        )
    if not absent:
        return f"{told} is part of plan.recompute = full (Megatron: --recompute-modules is of granularity selective)"
    return f"{told}: this model has no {', '.join(absent)}" + (
        " (Megatron: mla_up_proj needs --multi-latent-attention)" if "mla_up_proj" in absent else ""
    )


def plain(name: str) -> str:
    """Name of an operation without its layers' window."""
    return name.removeprefix("local_")


def modules_of(chosen: Any, modules: Sequence[str]) -> tuple[str, ...]:
    """Names that a number of a plan stands for."""
    return tuple(name for index, name in enumerate(modules) if int(chosen) >> index & 1)
