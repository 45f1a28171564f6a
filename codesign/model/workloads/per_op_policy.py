"""Selective checkpointing per operation, as torchtitan has it: what a layer keeps, and what runs again.

Saved are the results of matrix products but every second one in the order of the forward pass, those of attention, of
reduce-scatters and of exchanges with experts, whether a pass reads them or not; all else runs again from there. So of a
gated dense layer (queries, keys, values, output; gate, up, down) keys, output and up run again. The router is not
counted, and grouped products of experts are none that the policy saves.

    tensor                        kept where
    queries, keys, values         their product is an odd one
    result of attention           always (read by the output projection)
    input of the network          its product is an odd one; its reduce-scattered share besides
    results of gate and up        their product is an odd one
    result of down                its product is an odd one (nothing reads it); its reduce-scattered share besides
    token copies, both ways       experts lie on several ranks
    results of norms, activation  never

Assumes: keys as wide as values; of several kinds of attention in one model, products as many as of the first.
Source: `_apply_op_sac`, `SelectiveAC` of [torchtitan].
"""

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array

from ...core.smooth import at_least, ratio
from .layer_operations import BlockComm, BlockOp
from .plan import Layout

__all__ = ["kept_per_op", "redone_per_op"]

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


def _projections(ops: Mapping[str, BlockOp], prefix: str, found: dict[str, tuple[Array, Array]]) -> Array:
    """Products up to the attention core of one kind, whose inputs are what they give; how many there are."""
    core, out = ops.get(f"{prefix}attention_core"), ops[f"{prefix}attention_out"]
    names = [f"{prefix}attention_{part}" for part in ("qkv", "q", "k", "v", "gate_in")]
    count, kept = jnp.asarray(0.0), jnp.asarray(0.0)
    if f"{prefix}attention_down" in ops:
        return _latent_projections(ops, prefix, found)
    for name in names:
        if name not in ops:
            continue
        result = ops[name].gradient_bytes
        if name.endswith("qkv") and core is not None:
            keys = at_least(core.stored_bytes - out.stored_bytes, 0.0) / 2
            parts = [core.stored_bytes - 2 * keys, keys, keys]
            found[name] = (found[name][0], ratio(keys, core.stored_bytes))  # the second of three
            kept, count = kept + parts[0] + parts[2], count + 3
            continue
        odd = _odd(count + 1)
        found[name] = (found[name][0], 1 - odd)
        kept, count = kept + odd * result, count + 1
    if core is not None:
        found[core.name] = (kept, 0.0 * kept)
    return count


def _latent_projections(ops: Mapping[str, BlockOp], prefix: str, found: dict[str, tuple[Array, Array]]) -> Array:
    """Latent attention: down and up for queries, then for keys and values; without the first down, one less.

    Keys and values that are attended as they are (`CompressedAttention`) have no product up.
    """
    down, query = (ops[f"{prefix}{name}"] for name in LATENT[:2])
    expanded = ops.get(f"{prefix}{LATENT[2]}")
    reduced = jnp.where(query.stored_bytes > 0, 1.0, 0.0)  # queries have a latent vector of their own
    # with it: q_a, q_b, kv_a, kv_b are 1 to 4; without: q, kv_a, kv_b are 1 to 3
    found[query.name] = (query.stored_bytes, reduced)
    found[down.name] = (0.0 * down.stored_bytes, 1 - reduced)
    if expanded is not None:
        found[expanded.name] = (reduced * expanded.stored_bytes, reduced)
    core = ops.get(f"{prefix}attention_core")
    count = (2 if expanded is None else 3) + reduced
    if f"{prefix}attention_gate_in" in ops:
        found[f"{prefix}attention_gate_in"] = (ops[f"{prefix}attention_gate_in"].stored_bytes, 1 - _odd(count + 1))
        count = count + 1
    if core is not None:
        gradients = query.gradient_bytes if expanded is None else query.gradient_bytes + expanded.gradient_bytes
        found[core.name] = ((1 - reduced) * gradients, 0.0 * reduced)
    return count


def _network(
    ops: Mapping[str, BlockOp], name: str, before: Array, shared: Array, found: dict[str, tuple[Array, Array]]
) -> None:
    """Gate and up (or up alone), activation, down."""
    up, inner, down = (ops[f"{name}_{part}"] for part in ("up", "activation", "down"))
    pieces = ratio(up.gradient_bytes, at_least(down.stored_bytes, 1.0))  # tensors of a fused product
    first, second = _odd(before + 1), _odd(before + 2)
    kept = (first + (pieces - 1) * second) / pieces
    found[up.name] = (0.0 * up.stored_bytes, 1 - kept)
    found[inner.name] = (kept * up.gradient_bytes, jnp.asarray(1.0))
    odd = _odd(before + pieces + 1)
    found[down.name] = ((odd + shared) * down.gradient_bytes, 1 - odd)


def _experts(ops: Mapping[str, BlockOp], layout: Layout, found: dict[str, tuple[Array, Array]]) -> None:
    """Routed experts: token copies stay where they were exchanged, all products run again."""
    if "moe_up" not in ops:
        return
    sent, one = jnp.where(layout.plan.ep > 1, 1.0, 0.0), jnp.asarray(1.0)
    found["moe_router"] = (found["moe_router"][0], one)
    found["moe_up"] = (sent * ops["moe_up"].stored_bytes, one)
    found["moe_activation"] = (0.0 * ops["moe_activation"].stored_bytes, one)
    found["moe_down"] = (sent * ops["moe_down"].gradient_bytes, one)


def redone_per_op(comm: BlockComm) -> Array:
    """Times that a communication runs again: those that neither scatter sums nor exchange copies."""
    return 0.0 * comm.forward if comm.operation in SAVED_COMMS else comm.forward


def _odd(number: Array) -> Array:
    """1 for an odd whole number, 0 for an even one."""
    return number - 2 * jnp.floor(number / 2)
