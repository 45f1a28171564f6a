"""Recomputation: activations of a layer, kept, recomputed or on the host; policies of torchtitan and MaxText."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ...core.computed_once import one_call
from ...core.errors import ConfigError, suggestion
from ...core.smooth import at_least, ratio
from .layer_operations import BlockComm, BlockOp
from .lowering import layer_bytes
from .plan import OFFLOAD_MODULES, PER_OP, RECOMPUTE, RECOMPUTE_MODULES, Layout

__all__ = [
    "PLACES", "REMAT_POLICIES", "TENSORS", "Networks", "broken_modules", "custom_policy", "dropped", "module_switches",
    "module_violations", "modules_of", "offloaded_share", "plan_of_policy", "redone_comms", "without_unread",
    "without_unread_sums",
]  # fmt: skip


# Selective checkpointing per operation, as torchtitan has it: what a layer keeps, and what runs again.
#
# Saved are the results of matrix products but every second one in the order of the forward pass, those of attention,
# of reduce-scatters and of exchanges with experts, whether a pass reads them or not; all else runs again from there.
# So of a gated dense layer (queries, keys, values, output; gate, up, down) keys, output and up run again. The router
# is not counted, and grouped products of experts are none that the policy saves.
#
#     tensor                        kept where
#     queries, keys, values         their product is an odd one
#     result of attention           always (read by the output projection)
#     input of the network          its product is an odd one; its reduce-scattered share besides
#     results of gate and up        their product is an odd one
#     result of down                its product is an odd one (nothing reads it); its reduce-scattered share besides
#     token copies, both ways       experts lie on several ranks
#     results of norms, activation  never
#
# Assumes: keys as wide as values; of several kinds of attention in one model, products as many as of the first.
# Source: `_apply_op_sac`, `SelectiveAC` of [torchtitan].


SAVED_COMMS = ("reduce_scatter", "all_to_all", "send")
LATENT = ("attention_down", "attention_q_up", "attention_kv_up")
NETWORKS = ("mlp", "moe_shared")


def kept_per_op(block: list[BlockOp], layout: Layout) -> dict[str, tuple[Array, Array]]:
    """Name of an operation -> (bytes that it keeps, share of its forward that runs again).

    Args:
        block: of an average layer.
        layout: degrees that say which results are scattered or exchanged.
    """
    ops, one = {op.name: op for op in block}, jnp.asarray(1.0)
    result = {op.name: (op.stored_bytes, one if op.kernel == "elementwise" else 0.0 * one) for op in block}
    shared = layout.scattered / layout.plan.tp
    for op in block:  # results of norms are inputs of their readers
        if op.name.endswith(("attention_qkv", "attention_qkv_branch", "attention_down", "mlp_up", "moe_router")):
            result[op.name] = (0.0 * op.stored_bytes, result[op.name][1])
    prefixes = [name.removesuffix("attention_out") for name in ops if name.endswith("attention_out")]
    counts: list[Array] = []
    inputs, layers = jnp.asarray(0.0), jnp.asarray(0.0)
    for prefix in prefixes:
        count = _projections(ops, prefix, result)
        out = ops[f"{prefix}attention_out"]
        odd = _odd(count + 1)
        result[out.name] = (out.stored_bytes, 1 - odd)
        inputs, layers = inputs + (odd + shared) * out.gradient_bytes * out.per_layer, layers + out.per_layer
        counts.append(count + 1)
    if counts and "mlp_branch" in ops:
        result["mlp_branch"] = (ratio(inputs, layers), result["mlp_branch"][1])
    before = counts[0] if counts else jnp.asarray(0.0)
    for name in NETWORKS:
        if f"{name}_up" in ops:
            _network(ops, name, before, shared, result)
    _experts(ops, layout, result)
    return result


def _projections(ops: Mapping[str, BlockOp], prefix: str, switches: dict[str, tuple[Array, Array]]) -> Array:
    """Products up to the attention core of one kind, whose inputs are what they give; how many there are."""
    core, out = ops.get(f"{prefix}attention_core"), ops[f"{prefix}attention_out"]
    names = [f"{prefix}attention_{part}" for part in ("qkv", "q", "k", "v", "gate_in")]
    count, stored = jnp.asarray(0.0), jnp.asarray(0.0)
    if f"{prefix}attention_down" in ops:
        return _latent_projections(ops, prefix, switches)
    for name in names:
        if name not in ops:
            continue
        result = ops[name].gradient_bytes
        if name.endswith("qkv") and core is not None:
            keys = at_least(core.stored_bytes - out.stored_bytes, 0.0) / 2
            parts = [core.stored_bytes - 2 * keys, keys, keys]
            switches[name] = (switches[name][0], ratio(keys, core.stored_bytes))  # the second of three
            stored, count = stored + parts[0] + parts[2], count + 3
            continue
        odd = _odd(count + 1)
        switches[name] = (switches[name][0], 1 - odd)
        stored, count = stored + odd * result, count + 1
    if core is not None:
        switches[core.name] = (stored, 0.0 * stored)
    return count


def _latent_projections(ops: Mapping[str, BlockOp], prefix: str, switches: dict[str, tuple[Array, Array]]) -> Array:
    """Latent attention: down and up for queries, then for keys and values; without the first down, one less.

    Keys and values that are attended as they are (`CompressedAttention`) have no product up.
    """
    down, query = (ops[f"{prefix}{name}"] for name in LATENT[:2])
    expanded = ops.get(f"{prefix}{LATENT[2]}")
    reduced = jnp.where(query.stored_bytes > 0, 1.0, 0.0)  # queries have a latent vector of their own
    # with it: q_a, q_b, kv_a, kv_b are 1 to 4; without: q, kv_a, kv_b are 1 to 3
    switches[query.name] = (query.stored_bytes, reduced)
    switches[down.name] = (0.0 * down.stored_bytes, 1 - reduced)
    if expanded is not None:
        switches[expanded.name] = (reduced * expanded.stored_bytes, reduced)
    core = ops.get(f"{prefix}attention_core")
    count = (2 if expanded is None else 3) + reduced
    if f"{prefix}attention_gate_in" in ops:
        switches[f"{prefix}attention_gate_in"] = (ops[f"{prefix}attention_gate_in"].stored_bytes, 1 - _odd(count + 1))
        count = count + 1
    if core is not None:
        gradients = query.gradient_bytes if expanded is None else query.gradient_bytes + expanded.gradient_bytes
        switches[core.name] = ((1 - reduced) * gradients, 0.0 * reduced)
    return count


def _network(
    ops: Mapping[str, BlockOp], name: str, before: Array, shared: Array, switches: dict[str, tuple[Array, Array]]
) -> None:
    """Gate and up (or up alone), activation, down."""
    up, inner, down = (ops[f"{name}_{part}"] for part in ("up", "activation", "down"))
    pieces = ratio(up.gradient_bytes, at_least(down.stored_bytes, 1.0))  # tensors of a fused product
    first, second = _odd(before + 1), _odd(before + 2)
    stored = (first + (pieces - 1) * second) / pieces
    switches[up.name] = (0.0 * up.stored_bytes, 1 - stored)
    switches[inner.name] = (stored * up.gradient_bytes, jnp.asarray(1.0))
    odd = _odd(before + pieces + 1)
    switches[down.name] = ((odd + shared) * down.gradient_bytes, 1 - odd)


def _experts(ops: Mapping[str, BlockOp], layout: Layout, switches: dict[str, tuple[Array, Array]]) -> None:
    """Routed experts: token copies stay where they were exchanged, all products run again."""
    if "moe_up" not in ops:
        return
    sent, one = jnp.where(layout.plan.ep > 1, 1.0, 0.0), jnp.asarray(1.0)
    switches["moe_router"] = (switches["moe_router"][0], one)
    switches["moe_up"] = (sent * ops["moe_up"].stored_bytes, one)
    switches["moe_activation"] = (0.0 * ops["moe_activation"].stored_bytes, one)
    switches["moe_down"] = (sent * ops["moe_down"].gradient_bytes, one)


def redone_per_op(comm: BlockComm) -> Array:
    """Times that a communication runs again: those that neither scatter sums nor exchange copies."""
    return 0.0 * comm.forward if comm.operation in SAVED_COMMS else comm.forward


def _odd(number: Array) -> Array:
    """1 for an odd whole number, 0 for an even one."""
    return number - 2 * jnp.floor(number / 2)


# Rematerialisation policies of MaxText by name, as levels, modules and shares of a plan.
#
# A policy says which tensors of a layer are saved, which go to the host, and lets the rest run again. `full` saves a
# layer's input; the custom policy of a recipe with `decoder_layer_input: offload` is `full` with the input on the
# host. `mlpwo`, the network's result, is saved by policies that save all products; nothing reads it in the backward
# pass. Experts' products have the names of a dense network's; what exchanges copies of tokens has none and runs again.
#
# Source: `remat_policy` of [maxtext], names of tensors in its attention and expert layers.


class Networks(NamedTuple):
    """Feed-forward networks that a model's layers have: dense ones, routed experts, shared experts."""

    dense: bool = True
    routed: bool = False
    shared: bool = False

    def whole(self) -> list[str]:
        """Modules that run networks again from their input."""
        named = zip(("mlp", "moe", "shared_experts"), self, strict=True)
        return [name for name, there in named if there]

    def activations(self) -> list[str]:
        """Modules that run activation functions again, those of shared experts aside, which have none."""
        return [name for name, there in zip(("mlp_act", "moe_act"), self, strict=False) if there]


DENSE = Networks()
ALWAYS = ("layernorm", "mlp_act")  # no policy names results of norms and activation functions
QKV = ("query_proj", "key_proj", "value_proj")
DOTS = (*QKV, "out_proj", "mlpwi", "mlpwo")
REMAT_POLICIES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "full": ((), ()),
    "minimal": (DOTS, ()),
    "minimal_with_context": ((*DOTS, "context"), ()),
    "save_dot_except_mlp": ((*QKV, "out_proj"), ()),
    "save_dot_with_context_except_mlp": ((*QKV, "out_proj", "context"), ()),
    "save_dot_except_mlpwi": ((*QKV, "out_proj", "mlpwo"), ()),
    "save_qkv_proj": (QKV, ()),
    "save_out_proj": (("out_proj",), ()),
    "qkv_proj_offloaded": ((), QKV),
    "minimal_offloaded": ((), DOTS),
}
"""Policy -> (tensors saved, tensors on the host)."""
TENSORS = ("decoder_layer_input", "context", *QKV, "qkv_proj", "out_proj", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo")
PLACES = ("remat", "device", "offload")
READ_AS = {
    "decoder_layer_input": "attn_norm", "query_proj": "core_attn", "context": "attn_proj", "out_proj": "mlp_norm",
}  # fmt: skip
"""Tensor -> the module to offload whose input it is; that of the first products is the activation function."""


def plan_of_policy(name: str, networks: Networks = DENSE) -> dict[str, str]:
    """Fields of a plan that a policy sets in a model with such networks.

    Raises:
        ConfigError: no such policy.
    """
    if name not in REMAT_POLICIES:
        raise ConfigError(f"remat_policy = {name!r} does not exist{suggestion(name, REMAT_POLICIES)}")
    saved, far = REMAT_POLICIES[name]
    return _fields({"decoder_layer_input", *saved}, set(far), networks)


def custom_policy(places: Mapping[str, str], networks: Networks = DENSE) -> dict[str, str]:
    """Fields of a plan for `remat_policy: custom`, of tensor -> `remat`, `device` or `offload`.

    Raises:
        ConfigError: a tensor or a place that does not exist.
    """
    for tensor, where in places.items():
        if tensor not in TENSORS:
            raise ConfigError(f"{tensor!r} is no tensor of a layer{suggestion(tensor, TENSORS)}")
        if where not in PLACES:
            raise ConfigError(f"{tensor} = {where!r} does not exist{suggestion(where, PLACES)}")
    saved = {_tensor(tensor) for tensor, where in places.items() if where == "device"}
    far = {_tensor(tensor) for tensor, where in places.items() if where == "offload"}
    return _fields(saved | ({"decoder_layer_input"} - far), far, networks)


def _tensor(name: str) -> str:
    """Name of the tensors that are saved or dropped together."""
    return {"qkv_proj": "query_proj", "mlpwi_0": "mlpwi", "mlpwi_1": "mlpwi"}.get(name, name)


def _fields(saved: set[str], far: set[str], networks: Networks) -> dict[str, str]:
    stored = saved | far
    inside = stored - {"decoder_layer_input", "mlpwo"}
    result = {"recompute": "none" if inside else "full"}
    if inside:
        gone = list(ALWAYS[:1])
        gone += ["qkv_proj"] if "query_proj" not in stored else []
        gone += ["context"] if "context" not in stored else []
        gone += ["out_proj"] if "out_proj" not in stored else []
        gone += networks.activations() if "mlpwi" in stored else networks.whole()
        result["recompute_modules"] = "+".join(gone)
    named = [READ_AS[tensor] for tensor in READ_AS if tensor in far]
    named += networks.activations() if "mlpwi" in far else []
    if named:
        result |= {"offload_activations": "1", "offload_modules": "+".join(named)}
    return result


# Activations by module of a layer: what is recomputed or kept on the host, by the names that trainers give.
#
# Frameworks save, redo or offload a layer's activations by module, not by a share. A list of modules is one number of
# a plan (`combination`): a search takes lists as data. Recomputed modules keep less and run again:
#
#     module          dropped between passes              run again in the backward pass
#     layernorm       both norms' results                 both norms
#     mla_up_proj     queries, keys, values               the up-projections of latent attention
#     qkv_proj        queries, keys, values, what they    the projections to them, those of latent attention both
#                     are projected from in latent ones   down and up
#     context         the attention's result              the attention core
#     out_proj        the feed-forward network's input    the output projection, its joins over tensor ranks
#     mlp_act moe_act the activation function's result    the activation function
#     mlp             everything inside a dense network   the network, its joins
#     shared_experts  everything inside shared experts    the shared experts
#     moe             everything inside a layer of experts router, experts, shared experts, both exchanges
#     per_op          what torchtitan does not save       the same (below)
#
# The layer's input stays, as does what is not named. `plan.recompute` adds the attention core (`selective`,
# Megatron's `core_attn`) or takes everything but the layer's input (`full`). Modules to offload are named by what
# reads them.
#
# Source: `recompute_modules` and `offload_modules` of [shoeybi2019]'s code, tensors of [maxtext]'s rematerialisation.


DROPPED: Mapping[str, tuple[str, ...]] = {
    "attention_core": ("mla_up_proj", "qkv_proj"),
    "attention_q_up": ("qkv_proj",),
    "attention_kv_up": ("qkv_proj",),
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
    "attention_down": ("qkv_proj",),
    "attention_q_up": ("mla_up_proj", "qkv_proj"),
    "attention_kv_up": ("mla_up_proj", "qkv_proj"),
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
    "mla_up_proj": ("attention_kv_up",), "qkv_proj": ("attention_qkv", "attention_q", "attention_down"),
    "context": ("attention_core",),
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
        policy, (held, run) = switches[PER_OP], per_op[op.name]
        stored, again = stored + policy * (held - stored), again + policy * (run - again)
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

    Of layers that are recomputed whole only the input is stored, which `attn_norm` reads.
    """
    chosen = layout.plan.offload_modules
    switches = module_switches(chosen, modules=OFFLOAD_MODULES)
    named, inputs = jnp.asarray(0.0), jnp.asarray(0.0)
    for op in block:
        if plain(op.name) in READ_BY:
            named = named + op.stored_bytes * op.per_layer * switches[READ_BY[plain(op.name)]]
        if plain(op.name) == "attention_branch":
            inputs = inputs + op.stored_bytes * op.per_layer
    named = (1 - layout.full) * named + layout.full * inputs * switches["attn_norm"]
    offloadable = (1 - layout.full) * layer_bytes(block, "stored_bytes") + layout.full * inputs
    part = ratio(named, at_least(offloadable, 1.0))
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
    text = f"plan.recompute_modules = {'+'.join(chosen)}"
    layers = _layers_with(block)
    absent = [name for name in chosen if name in layers and not float(layers[name])]
    if PER_OP in chosen and (len(chosen) > 1 or float(plan.recompute) == 1):
        return (
            f"{text} with plan.recompute = {RECOMPUTE[round(float(plan.recompute))]}: per_op is a policy of its own,"
            " which saves what attention gives (torchtitan: selective)"
        )
    if not absent:
        return f"{text} is part of plan.recompute = full (Megatron: --recompute-modules is of granularity selective)"
    return f"{text}: this model has no {', '.join(absent)}" + (
        " (Megatron: mla_up_proj needs --multi-latent-attention)" if "mla_up_proj" in absent else ""
    )


def plain(name: str) -> str:
    """Name of an operation without its layers' window."""
    return name.removeprefix("local_")


def modules_of(chosen: Any, modules: Sequence[str]) -> tuple[str, ...]:
    """Names that a number of a plan stands for."""
    return tuple(name for index, name in enumerate(modules) if int(chosen) >> index & 1)
