"""Training steps of a transformer."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.cost import partly_hidden_s
from ...core.fields import integer, quantity, static
from ...core.smooth import at_least, at_most, ceil, ratio
from .base import AbstractWorkload
from .broken_rules import broken
from .layer_operations import BlockOp, Precision, Shard
from .lowering import backward_ops, comm_ops, forward_ops, indivisible, layer_bytes, recompute_ops, weights_held
from .ops import PER_MICRO_BATCH, PER_STEP, CommOp, ComputeOp, Op, TransferOp
from .optimizer import Adam, exchange_ops
from .plan import Layout
from .schedule import Priced, Timeline, one_pass, total
from .slowdowns import Slowdowns
from .transformer import Transformer
from .words import TRAINING, Words


class AbstractTraining(AbstractWorkload):
    """One optimizer step over `global_batch` sequences of `sequence` tokens.

    `step_overhead_s` is what a framework adds to every step, `kernel_slowdown` what it adds to every kernel, `launch_s`
    how long its host takes to issue one, `slowdowns` what it adds to classes of operations. `copy_before_collective`
    adds a pass over local memory to each tensor-parallel collective. `release_gradients` frees the gradient of an
    activation as soon as it has been used, so that two of them are alive; else a whole layer's are. `state_every_pass`
    moves an offloaded optimizer's state with every micro-batch instead of once a step. `forward_only` is a batch
    without backward pass and update: evaluation, scoring, embedding.
    """

    words: ClassVar[Words] = TRAINING

    model: Transformer
    sequence: Float[Array, "*b"] = integer(
        low=1.0, doc="tokens per sequence", usual=(1.0, 1e7, "the longest published context")
    )
    global_batch: Float[Array, "*b"] = integer(low=1.0, doc="sequences per step")
    precision: Precision = Precision()
    optimizer: Adam = eqx.field(default_factory=Adam)
    step_overhead_s: Float[Array, "*b"] = quantity(default=0.0)
    kernel_slowdown: Float[Array, "*b"] = quantity(low=0.1, default=1.0)
    launch_s: Float[Array, "*b"] = quantity(default=0.0, doc="the host's time to issue one kernel")
    slowdowns: Slowdowns | None = None
    copy_before_collective: bool = static(default=False)
    release_gradients: bool = static(default=True)
    state_every_pass: bool = static(default=False)
    forward_only: bool = static(default=False)

    def micro_batches(self, layout: Layout) -> Array:
        """Micro-batches each pipeline runs in one step."""
        return self.global_batch / (layout.dp * layout.plan.micro_batch)

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Passes run once per micro-batch, the rest once per step."""
        once = jnp.asarray(1.0)
        return dict.fromkeys(PER_MICRO_BATCH, self.micro_batches(layout)) | dict.fromkeys(PER_STEP, once)

    def tokens_per_step(self) -> Array:
        """Tokens of one step on all devices."""
        return self.global_batch * self.sequence

    def model_flops_per_step(self) -> Array:
        """Forward and both gradients of one step, nothing recomputed: the numerator of MFU."""
        return (
            (1 if self.forward_only else 3)
            * self.tokens_per_step()
            * self.model.forward_flops_per_token(self._attended())
        )

    def _attended(self) -> Array:
        causal = getattr(self.model.attention, "causal", jnp.asarray(1.0))
        return self.sequence * (1 - 0.5 * causal)

    def layers_per_stage(self, layout: Layout) -> Array:
        """Layers of the fullest stage."""
        return ceil(self.model.layers / layout.plan.pp)

    def shard(self, layout: Layout) -> Shard:
        """One micro-batch on one device."""
        plan = layout.plan
        queries = self.sequence / plan.cp
        return Shard(
            layout, self.precision, plan.micro_batch, queries, self.sequence, staged=self.copy_before_collective
        )

    def number_format(self) -> str:
        """Format of the matrix products."""
        return self.precision.compute

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Forward, backward, recomputation, pipeline messages, gradient and parameter exchange, optimizer."""
        shard, layers = self.shard(layout), self.layers_per_stage(layout)
        block, comms = self.model.layer_ops(shard), self.model.layer_comms(shard)
        head, once = self.model.head_ops(shard, shard.tokens), jnp.asarray(1.0)
        phases = ("forward",) if self.forward_only else ("forward", "backward", "recompute")
        forward = (
            *forward_ops(block, layers),
            *forward_ops(head, once, edge=True),
            *comm_ops(comms, layers, phases, trained=not self.forward_only),
            *self._sends(shard, phases),
        )
        if self.forward_only:
            return (*forward, *self._transfers(layout, block, layers))
        held = self._held(layout, block, layers)
        return (
            *forward,
            *backward_ops(block, layers),
            *backward_ops(head, once, edge=True),
            *recompute_ops(block, layers, layout),
            *exchange_ops(layout, self.precision, held, experts=any(op.expert for op in block)),
            *self.optimizer.update_ops(layout, block, held, layers),
            *self._transfers(layout, block, layers),
        )

    def _sends(self, shard: Shard, phases: tuple[str, ...]) -> list[Op]:
        """Activations forward and gradients backward across each stage boundary, once per model chunk.

        A message that was cut over the tensor ranks only to be sent is gathered where it arrives.
        """
        layout = shard.layout
        whole = shard.tokens * self.model.hidden * shard.precision.bytes_of("activations")
        scattered = jnp.maximum(layout.scattered, layout.plan.scatter_gather_p2p)
        nbytes = whole / (1 + scattered * (layout.plan.tp - 1))
        chunks = layout.plan.virtual_stages
        gathers = jnp.where(layout.plan.pp > 1, chunks * (scattered - layout.scattered), 0.0)
        ops: list[Op] = []
        for phase in phases[:2]:
            ops.append(CommOp("stage_send", "send", "pp", phase, nbytes, chunks))
            ops.append(CommOp("stage_gather", "all_gather", "tp", phase, whole, gathers))
        return ops

    def _held(self, layout: Layout, block: list[BlockOp], layers: Array) -> tuple[Array, Array]:
        """(ordinary, expert) weights of one device, the embedding with the first stage."""
        single = jnp.where(layout.plan.pp > 1, 1.0, 2 - self.model.tied_embeddings)
        table = self.model.vocab * self.model.hidden / layout.plan.tp * single
        ordinary = weights_held(block, layers, expert=False) + table
        return ordinary, weights_held(block, layers, expert=True)

    def _transfers(self, layout: Layout, block: list[BlockOp], layers: Array) -> list[Op]:
        """Traffic to the second tier: weights in for each pass, activations out and in, optimizer state in and out.

        The link carries both directions at once: weights come in while activations go out.
        """
        plan, held = layout.plan, self.footprint(layout)
        weights, once = held["weights"][0] * plan.offload_weights, jnp.asarray(1.0)
        if self.forward_only:
            return [TransferOp("offload_forward", "forward", weights, once)]
        stored = self._stored_per_layer(layout, block) * layers * plan.offload_activations
        state = (held["optimizer"][0]) * plan.offload_optimizer
        out = held["gradients"][0] * plan.offload_gradients
        forward = TransferOp("offload_forward", "forward", at_least(weights, stored), once)
        if self.state_every_pass:
            return [forward, TransferOp("offload_backward", "backward", weights + stored + state, once)]
        return [
            forward,
            TransferOp("offload_backward", "backward", weights + stored, once),
            TransferOp("offload_optimizer", "optimizer", state + at_least(state, out), once),
        ]

    def bubbles(self, layout: Layout) -> Array:
        """Idle time of the fullest stage, in passes of a micro-batch through it.

        (p-1)/v to fill and drain the pipeline, less where other stages hold fewer layers; an interleaved schedule works
        on p micro-batches at a time and waits where they do not divide. Source: [narayanan2021] section 2.2.
        """
        pp, v, m = layout.plan.pp, layout.plan.virtual_stages, self.micro_batches(layout)
        layers = self.layers_per_stage(layout)
        missing = ratio(pp * layers - self.model.layers, layers)
        waiting = jnp.where(pp > 1, pp * ceil(m / pp) - m, 0.0)
        return (pp - 1 - missing + (v - 1) * waiting) / v

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """A 1F1B pipeline of m micro-batches over p stages and v model chunks each.

        T = (m + bubbles) (forward + recompute + backward of one stage) + m (head) + optimizer + overhead, where the
        first forward hides the parameter gathering and the last backward the gradient exchange: of the last chunk
        behind one micro-batch, of earlier chunks behind the p that are interleaved; the first layer's gradients come
        last and stay exposed.
        """
        plan, m, bubbles = layout.plan, self.micro_batches(layout), self.bubbles(layout)
        if self.slowdowns is not None:
            priced = self.slowdowns.over(priced, self.layers_per_stage(layout) * (layout.shards(2) - 1))
        passes = {
            f: one_pass(priced, f, plan, self.kernel_slowdown, self.launch_s)
            for f in ("forward", "recompute", "backward")
        }
        sync = total(priced, "gradients", CommOp)
        gather = total(priced, "parameters", CommOp)
        forward, backward = passes["forward"].busy_s, passes["backward"].busy_s + passes["recompute"].busy_s
        covers = (1 + (plan.virtual_stages - 1) * at_most(plan.pp, m)) / plan.virtual_stages
        late = 1 / at_least(self.layers_per_stage(layout), 1.0)
        last = partly_hidden_s(covers * backward, sync * (1 - late), plan.dp_overlap) + late * sync.time_s
        first = partly_hidden_s(forward, gather, plan.dp_overlap)
        update, state = total(priced, "optimizer", ComputeOp), total(priced, "optimizer", TransferOp)
        step = partly_hidden_s(update.time_s * self.kernel_slowdown, state, plan.offload_overlap)

        edge = m * (passes["forward"].edge_s + passes["backward"].edge_s)
        repeated = (m + bubbles - 1) * forward + (m + bubbles - covers) * backward
        time = repeated + last + first + edge + step + self.step_overhead_s

        breakdown = {name: m * part.compute_s for name, part in passes.items()}
        for axis in passes["forward"].exposed_s:
            breakdown[axis] = sum(m * part.exposed_s[axis] for part in passes.values())
        breakdown["dp"] = breakdown["dp"] + (last - covers * backward) + (first - forward)
        bubble = bubbles * (forward + backward)
        breakdown |= {"head": edge, "bubble": bubble, "overhead": self.step_overhead_s + 0 * time}
        breakdown["optimizer"] = update.time_s * self.kernel_slowdown
        breakdown["offload"] = breakdown["offload"] + step - update.time_s * self.kernel_slowdown
        energy = m * sum(part.energy_j for part in passes.values())
        for once in (sync, gather, update, state):
            energy = energy + once.energy_j
        return Timeline(time, breakdown, energy, self.tokens_per_step(), self.model_flops_per_step(), {})

    def _stored_per_layer(self, layout: Layout, block: list[BlockOp]) -> Array:
        """Bytes a layer keeps of one micro-batch between forward and backward; only its input under full."""
        entry = self.shard(layout).tokens * self.model.hidden * self.precision.bytes_of("activations")
        own = 1 + layout.scattered * layout.plan.partition_activations * (layout.plan.tp - 1)
        return layer_bytes(block, "stored_bytes") * (1 - layout.full) + entry / own * layout.full

    def in_flight(self, layout: Layout) -> Array:
        """Micro-batches whose activations the first stage holds: 1F1B, a little more when interleaved.

        Source: [korthikanti2022] section 4.2.3.
        """
        pp, v = layout.plan.pp, layout.plan.virtual_stages
        extra = jnp.where(v > 1, (pp - 1) / v, 0.0)
        return at_most(pp + extra, self.micro_batches(layout))

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Weights, gradients, optimizer state, activations, and the working set of the layer that is at work."""
        shard, layers = self.shard(layout), self.layers_per_stage(layout)
        block = self.model.layer_ops(shard)
        ordinary, expert = self._held(layout, block, layers)
        two_layers = at_most(2 / at_least(layers, 1.0), 1.0)

        def sharded(stage: int) -> Array:
            return ordinary / layout.shards(stage) + expert / layout.expert_shards(stage)

        weights = sharded(3) * self.precision.bytes_of("weights")
        gathered = (ordinary + expert - sharded(3)) * two_layers * self.precision.bytes_of("weights")
        logits = shard.tokens * self.model.vocab / layout.plan.tp * 6.0
        if self.forward_only:
            working = layer_bytes(block, "working_bytes") + gathered + logits
            return {"weights": (weights, weights * two_layers), "working": (working, working)}
        state = sharded(1) * self.optimizer.state_bytes
        stored = self._stored_per_layer(layout, block)
        activations = stored * layers * self.in_flight(layout)
        working = self._working_set(layout, block) + gathered + logits
        return {
            "weights": (weights, weights * two_layers),
            "gradients": self._gradients(ordinary + expert, sharded(2), layers),
            "optimizer": (state, state * two_layers),
            "activations": (activations, 2 * stored),
            "working": (working, working),
        }

    def _gradients(self, whole: Array, owned: Array, layers: Array) -> tuple[Array, Array]:
        """(all, what stays near) of the gradients: one layer's in a buffer of their own format if there is one."""
        kept, layer = owned * self.precision.bytes_of("gradients"), 1 / at_least(layers, 1.0)
        if self.precision.gradient_buffer == "none":
            return kept, kept * at_most(2 * layer, 1.0)
        buffer = whole * layer * self.precision.bytes_of("gradient_buffer")
        return buffer + kept * (1 - layer), buffer + kept * layer

    def _working_set(self, layout: Layout, block: list[BlockOp]) -> Array:
        """What the layer at work holds beyond what is stored of it: dropped activations, gradients of activations."""
        redone = layer_bytes(block, "working_bytes") - layer_bytes(block, "stored_bytes") * (1 - layout.full)
        if not self.release_gradients:
            return redone + layer_bytes(block, "gradient_bytes")
        largest = jnp.asarray(0.0)
        for op in block:
            largest = at_least(largest, op.gradient_bytes)
        return redone + 2 * largest

    def saved_bytes(self, layout: Layout) -> Array | None:
        """Weights and the optimizer's state, once."""
        each = self.precision.bytes_of("weights") + (0.0 if self.forward_only else self.optimizer.state_bytes)
        return self.model.parameters() * each

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """A transformer's."""
        return broken(self, rule, layout)

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Divisibility of heads, layers, batch and devices; interleaving only in a pipeline; nothing negative."""
        plan, model = layout.plan, self.model
        per_stage = self.layers_per_stage(layout)
        idle = at_least(per_stage * (plan.pp - 1) / at_least(model.layers, 1.0) - 1, 0.0)
        experts = getattr(model.feed_forward, "experts", plan.ep)
        return {
            "devices": indivisible(layout.devices, plan.tp * plan.cp * plan.pp),
            "heads": indivisible(model.attention.heads, plan.tp),
            "layers": indivisible(per_stage, plan.virtual_stages) + idle,
            "batch": indivisible(self.global_batch, layout.dp * plan.micro_batch),
            "experts": indivisible(experts, plan.ep) + indivisible(layout.dp * plan.cp, plan.ep),
            "interleaving": jnp.where((plan.pp <= 1) & (plan.virtual_stages > 1), 1.0, 0.0),
            "sequence": indivisible(self.sequence, plan.cp * plan.tp),
        }


class Training(AbstractTraining):
    """One optimizer step after the other, of a model whose shape is given."""

    @classmethod
    def example(cls) -> "Training":
        """Eight sequences of 512 tokens."""
        return cls(Transformer.example(), 512.0, 8.0)
