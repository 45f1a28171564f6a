"""Memory of a training step by moment and pipeline stage: what each stage holds in which moment, and the peak of both.

A stage holds its share of weights, gradients and optimizer state throughout, the activations of the micro-batches that
its schedule keeps in flight, and beside them what a moment needs:

    backward   the layer at work, weights gathered ahead and gradients not yet scattered (ZeRO 2 and 3)
    loss       logits of one piece of a micro-batch, input and input gradient of the head: on the last stage alone
    update     nothing more; activations are gone

Source: stages and in-flight micro-batches [korthikanti2022] section 4; shards [rajbhandari2020] section 5.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError, suggestion
from ...core.fields import Module, quantity, static
from ...core.smooth import at_least, at_most
from .layer_operations import BlockOp
from .plan import Layout

UNITS = ("layer", "tensor")
"""Units of gathers and scatters: whole layers (FSDP2, DeepSpeed, Megatron-FSDP) or single tensors (XLA)."""
Bytes = tuple[Array, Array]
"""(bytes per device, the part of them that stays in tier 1 if the class is offloaded)."""
Classes = dict[str, Bytes]
"""Class of data -> its bytes."""
WORKING = ("layer", "gathered", "logits", "matrices", "allocator")
"""Classes of a moment that metrics show as one, `working`."""


class TrainerBuffers(Module):
    """Memory of a training framework beside the tensors that a plan and a model name.

    `logits_bytes`: bytes of one logit while the loss is computed. 6: the bf16 product and its fp32 copy, turned in
    place into softmax and gradient (Megatron's vocabulary-parallel cross entropy). 4: one fp32 copy, fused (XLA).
    `gathers`: one of `UNITS`. `gradient_buffers`: gradients have memory of their own from the first step on; else they
    are allocated in the first backward pass of a step, after the loss. `allocator_share`: what a caching allocator
    holds beyond living tensors, in shares of activations and working memory; 0 leaves it to the memory's
    `reserved_bytes`, which is said to cover it: runs that were measured leave room for 7 % more at most
    [mosaicml_llm_foundry]. `own_gradients`: gradients of activations that are alive are those of
    one operation, of its result and what it reads, as a compiler frees each after its last reader; else twice the
    largest of a layer. `weighted_results`: router weights are applied to what experts give, which stays until their
    gradient.

    Source: [shoeybi2019] and its code.
    """

    logits_bytes: Float[Array, "*b"] = quantity(low=2.0, high=16.0, default=6.0, doc="bytes of a logit in the loss")
    allocator_share: Float[Array, "*b"] = quantity(
        high=1.0, default=0.0, doc="held by the allocator beyond living tensors, share of what comes and goes"
    )
    gathers: str = static(default="layer")
    gradient_buffers: bool = static(default=True)
    own_gradients: bool = static(default=False)
    weighted_results: bool = static(default=False)

    def __check_init__(self) -> None:
        if self.gathers not in UNITS:
            raise ConfigError(f"gathers = {self.gathers!r} does not exist{suggestion(self.gathers, UNITS)}")


@dataclasses.dataclass(frozen=True)
class StageMemory:
    """One stage of a pipeline: its layers, its copies of the vocabulary table, micro-batches in flight.

    `scores`: whether it computes the loss, a constant of the program. `copies`: stages of its length whose weights it
    holds; ZeRO shards what both hold over the replicas of both.
    """

    layers: Array
    tables: Array
    in_flight: Array
    scores: bool = False
    copies: Array | float = 1.0


class Parts(NamedTuple):
    """Bytes of which the moments of every stage are made.

    Of one layer: `ordinary` and `expert` weights (counts), what it stores of a micro-batch, the share of that which the
    plan's modules let go to the host, its working set, its largest tensor (a count). Of the vocabulary: weights of one
    table (a count), bytes in the loss beside the table. Of a number: formats, and bytes of optimizer state, those of
    tables apart where they differ. `update`: bytes beside the state while weights are updated, where there are some.
    """

    ordinary: Array
    expert: Array
    stored: Array
    offloadable: Array
    working: Array
    largest: Array
    table: Array
    loss: Array
    weight_bytes: float
    gathered_bytes: float
    gradient_bytes: float
    buffer_bytes: float
    state_bytes: Array
    table_state_bytes: Array | None = None
    update: Array | None = None


def moments(
    stages: Mapping[str, StageMemory], parts: Parts, layout: Layout, buffers: TrainerBuffers, micro_batches: Array
) -> dict[tuple[str, str], Classes]:
    """(stage, moment) -> classes of data in memory then."""
    result: dict[tuple[str, str], Classes] = {}
    for name, stage in stages.items():
        held = _held(stage, parts, layout)
        activations = parts.stored * stage.layers * stage.in_flight
        there = jnp.where(stage.layers > 0, 1.0, 0.0)
        stays = (1 - parts.offloadable) * activations + 2 * parts.offloadable * parts.stored * there
        stored = {"activations": (activations, stays)}
        backward = {"layer": parts.working * there, "gathered": _gathered(parts, layout, buffers) * there}
        result[name, "backward"] = _moment(held | stored, backward, buffers, layout)
        if stage.scores:
            buffered = 1.0 if buffers.gradient_buffers else jnp.where(micro_batches > 1, 1.0, 0.0)
            gradients = held["gradients"]
            scoring = held | stored | {"gradients": (gradients[0] * buffered, gradients[1] * buffered)}
            scored = {"logits": parts.loss, "gathered": _unsharded(parts.table, parts, layout)}
            result[name, "loss"] = _moment(scoring, scored, buffers, layout)
        beside = {} if parts.update is None else {"matrices": parts.update * there}
        result[name, "update"] = _moment(held, beside, buffers, layout)
    return result


PRODUCTS = ("gemm", "moe_gemm")


def gradients_alive(op: BlockOp, reader: BlockOp | None) -> Array:
    """Bytes of gradients while an operation's backward is at work: of its result, and of what it reads.

    Products say the gradient of their result and keep what they read; others hand on the gradient of what they read,
    and their result is what the next operation keeps.
    """
    beside = op if op.kernel in PRODUCTS else reader
    alive = op.gradient_bytes + (0.0 if beside is None else beside.working_bytes)
    return jnp.where(op.per_layer > 0, alive, 0.0)


def _moment(held: Classes, working: Mapping[str, Array], buffers: TrainerBuffers, layout: Layout) -> Classes:
    """Classes of a moment with the allocator's share of those that come and go."""
    result = dict(held) | {name: (nbytes, nbytes) for name, nbytes in working.items()}
    passing = {name: result[name] for name in ("activations", *working) if name in result}
    extra = near_bytes(passing, layout) * buffers.allocator_share
    return result | {"allocator": (extra, extra)}


def _held(stage: StageMemory, parts: Parts, layout: Layout) -> Classes:
    """Weights, gradients and optimizer state of a stage, as ZeRO shards them."""
    ordinary = parts.ordinary * stage.layers * stage.copies + parts.table * stage.tables
    expert = parts.expert * stage.layers * stage.copies

    def sharded(zero: int) -> Array:
        together = jnp.where(layout.plan.zero >= zero, stage.copies, 1.0)
        return (ordinary / layout.shards(zero) + expert / layout.expert_shards(zero)) / together

    near = at_most(2 / at_least(stage.layers, 1.0), 1.0)
    weights, state = sharded(3) * parts.weight_bytes, sharded(1) * parts.state_bytes
    if parts.table_state_bytes is not None:
        together = jnp.where(layout.plan.zero >= 1, stage.copies, 1.0)
        tables = parts.table * stage.tables / layout.shards(1) / together
        state = state + tables * (parts.table_state_bytes - parts.state_bytes)
    owned, layer = sharded(2) * parts.gradient_bytes, 1 / at_least(stage.layers, 1.0)
    gradients = (owned, owned * near)
    if parts.buffer_bytes:
        buffer = (ordinary + expert) * layer * parts.buffer_bytes
        gradients = (buffer + owned * (1 - layer), buffer + owned * layer)
    return {"weights": (weights, weights * near), "gradients": gradients, "optimizer": (state, state * near)}


def _gathered(parts: Parts, layout: Layout, buffers: TrainerBuffers) -> Array:
    """Weights of ZeRO 3 beyond a device's own shard, at work and ahead; gradients before they are scattered."""
    layer = parts.ordinary + parts.expert
    ordinary, expert = (1 - 1 / shards(3) for shards in (layout.shards, layout.expert_shards))
    unit = ordinary * parts.ordinary + expert * parts.expert
    tensor = parts.largest if buffers.gathers == "tensor" else layer
    units = unit * tensor / at_least(layer, 1.0)
    weights = units * (1 + layout.plan.prefetch) * parts.gathered_bytes
    return weights + _scattered(tensor, parts, layout)


def _scattered(count: Array, parts: Parts, layout: Layout) -> Array:
    """Gradients in the format of gathered weights, as products leave them before ZeRO 2 and 3 scatter them."""
    if parts.buffer_bytes:
        return 0.0 * count  # declared: one layer's, with the gradients
    on = jnp.where(layout.shards(2) > 1, 1.0, 0.0)
    return on * count * parts.gathered_bytes


def _unsharded(count: Array, parts: Parts, layout: Layout) -> Array:
    """A tensor of ordinary weights gathered, with its gradient before that is scattered."""
    return count * (1 - 1 / layout.shards(3)) * parts.gathered_bytes + _scattered(count, parts, layout)


def near_bytes(classes: Classes, layout: Layout) -> Array:
    """Bytes of classes that lie in tier 1 under the plan's offload."""
    total = jnp.asarray(0.0)
    for name, (class_bytes, buffer) in classes.items():
        share = layout.plan.offloaded(name)
        total = total + (class_bytes if share is None else (1 - share) * class_bytes + share * buffer)
    return total


def peak(by_moment: Mapping[tuple[str, str], Classes], layout: Layout) -> Classes:
    """Classes at the moment and on the stage that hold most in tier 1, what only that moment needs as `working`.

    All of it follows from the plan: the choice is exact in every reading.
    """
    best: Classes = {}
    most = jnp.asarray(-1.0)
    for moment in by_moment.values():
        classes = as_shown(moment)
        here = near_bytes(classes, layout)
        larger = here > most
        nothing = jnp.asarray(0.0)
        names = tuple(dict.fromkeys((*best, *classes)))
        best = {
            name: (
                jnp.where(larger, classes.get(name, (nothing,))[0], best.get(name, (nothing,))[0]),
                jnp.where(larger, classes.get(name, (nothing, nothing))[1], best.get(name, (nothing, nothing))[1]),
            )
            for name in names
        }
        most = jnp.where(larger, here, most)
    return best


def as_shown(moment: Classes) -> Classes:
    """A moment's classes with what only it needs as one."""
    shown = {name: nbytes for name, nbytes in moment.items() if name not in WORKING}
    working = jnp.asarray(0.0)
    for name in WORKING:
        if name in moment:
            working = working + moment[name][0]
    return shown | {"working": (working, working)}


def most_of(by_moment: Mapping[tuple[str, str], Classes], name: str) -> Array:
    """The most that any stage holds of a class, near and far together."""
    most = jnp.asarray(0.0)
    for moment in by_moment.values():
        if name in moment:
            most = at_least(most, moment[name][0])
    return most
