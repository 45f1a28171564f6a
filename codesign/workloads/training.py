"""Training steps of a transformer."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..cost import partly_hidden_s
from ..fields import quantity
from ..hardware import Work
from ..smooth import at_least, at_most, ceil
from .base import AbstractWorkload
from .blocks import BlockOp, Precision, Shard
from .lowering import backward_ops, comm_ops, forward_ops, indivisible, recompute_ops, weights_held
from .ops import CommOp, ComputeOp, Op, TransferOp
from .plan import Layout
from .schedule import Priced, Timeline, one_pass, total
from .transformer import Transformer


class Adam(eqx.Module):
    """Adam with a master copy: state, traffic and arithmetic per parameter.

    12 bytes of state are an fp32 master copy and two fp32 moments; a step reads gradient and state and writes state
    and the working copy.
    """

    state_bytes: Float[Array, "*b"] = quantity(default=12.0)
    traffic_bytes: Float[Array, "*b"] = quantity(default=30.0)
    flops: Float[Array, "*b"] = quantity(default=11.0)


class Training(AbstractWorkload):
    """One optimiser step over `global_batch` sequences of `sequence` tokens.

    `step_overhead_s` is what a framework adds to every step, `kernel_slowdown` what it adds to every kernel.
    """

    model: Transformer
    sequence: Float[Array, "*b"] = quantity(low=1.0, doc="tokens per sequence")
    global_batch: Float[Array, "*b"] = quantity(low=1.0, doc="sequences per step")
    precision: Precision = Precision()
    optimizer: Adam = Adam()
    step_overhead_s: Float[Array, "*b"] = quantity(default=0.0)
    kernel_slowdown: Float[Array, "*b"] = quantity(low=0.1, default=1.0)

    def micro_batches(self, layout: Layout) -> Array:
        """Micro-batches each pipeline runs in one step."""
        return self.global_batch / (layout.dp * layout.plan.micro_batch)

    def tokens_per_step(self) -> Array:
        """Tokens of one step on all devices."""
        return self.global_batch * self.sequence

    def model_flops_per_step(self) -> Array:
        """Forward and both gradients of one step, nothing recomputed: the numerator of MFU."""
        return 3 * self.tokens_per_step() * self.model.forward_flops_per_token(self._attended())

    def _attended(self) -> Array:
        causal = getattr(self.model.attention, "causal", jnp.asarray(1.0))
        return self.sequence * (1 - 0.5 * causal)

    def layers_per_stage(self, layout: Layout) -> Array:
        """Layers of the fullest stage."""
        return ceil(self.model.layers / layout.plan.pp)

    def shard(self, layout: Layout) -> Shard:
        """One micro-batch on one device."""
        plan = layout.plan
        return Shard(layout, self.precision, plan.micro_batch, self.sequence / plan.cp, self.sequence)

    def number_format(self) -> str:
        """Format of the matrix products."""
        return self.precision.compute

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Forward, backward, recomputation, pipeline messages, gradient and parameter exchange, optimiser."""
        shard, layers = self.shard(layout), self.layers_per_stage(layout)
        block, comms = self.model.layer_ops(shard), self.model.layer_comms(shard)
        head, once = self.model.head_ops(shard, shard.tokens), jnp.asarray(1.0)
        return (
            *forward_ops(block, layers),
            *forward_ops(head, once, edge=True),
            *backward_ops(block, layers),
            *backward_ops(head, once, edge=True),
            *recompute_ops(block, layers, layout),
            *comm_ops(comms, layers, ("forward", "backward", "recompute")),
            *self._sends(shard),
            *self._data_parallel(layout, block, layers),
            *self._optimizer(layout, block, layers),
            *self._transfers(layout, block, layers),
        )

    def _sends(self, shard: Shard) -> list[Op]:
        """Activations forward and gradients backward across each stage boundary, once per model chunk."""
        layout = shard.layout
        whole = shard.tokens * self.model.hidden * shard.precision.bytes_of("activations")
        scattered = jnp.maximum(layout.scattered, layout.plan.scatter_sends)
        nbytes = whole / (1 + scattered * (layout.plan.tp - 1))
        chunks = layout.plan.virtual_stages
        return [CommOp("stage_send", "send", "pp", phase, nbytes, chunks) for phase in ("forward", "backward")]

    def _held(self, layout: Layout, block: list[BlockOp], layers: Array) -> tuple[Array, Array]:
        """(ordinary, expert) weights of one device, the embedding with the first stage."""
        single = jnp.where(layout.plan.pp > 1, 1.0, 2 - self.model.tied_embeddings)
        table = self.model.vocab * self.model.hidden / layout.plan.tp * single
        ordinary = weights_held(block, layers, expert=False) + table
        return ordinary, weights_held(block, layers, expert=True)

    def _data_parallel(self, layout: Layout, block: list[BlockOp], layers: Array) -> list[Op]:
        """Gradient reduction and parameter gathering of each ZeRO stage.

        0: one all-reduce; 1: reduce-scatter of gradients and all-gather of parameters once a step; 2: the
        reduce-scatter after every micro-batch; 3: parameters gathered before every forward and backward as well.
        Source: [rajbhandari2020] section 7.
        """
        stage = [at_most(at_least(layout.plan.zero - s, 0.0), 1.0) for s in range(3)]
        gradient, weight = self.precision.bytes_of("gradients"), self.precision.bytes_of("weights")
        ops: list[Op] = []
        for axis, held in zip(("data", "expert_data"), self._held(layout, block, layers), strict=True):
            if axis == "expert_data" and not any(op.expert for op in block):
                continue
            grads, params = held * gradient, held * weight
            ops += [
                CommOp("gradient_sync", "all_reduce", axis, "gradients", grads, 1 - stage[0]),
                CommOp("gradient_sync", "reduce_scatter", axis, "gradients", grads, stage[0] - stage[1]),
                CommOp("gradient_sync", "reduce_scatter", axis, "backward", grads, stage[1]),
                CommOp("parameter_gather", "all_gather", axis, "parameters", params, stage[0] - stage[2]),
                CommOp("parameter_gather", "all_gather", axis, "forward", params, stage[2]),
                CommOp("parameter_gather", "all_gather", axis, "backward", params, stage[2]),
            ]
        return ops

    def _optimizer(self, layout: Layout, block: list[BlockOp], layers: Array) -> list[Op]:
        """The update of the share of the weights that this device owns."""
        ordinary, expert = self._held(layout, block, layers)
        owned = ordinary / layout.shards(1) + expert / layout.expert_shards(1)
        work = Work(owned * self.optimizer.flops, owned * self.optimizer.traffic_bytes)
        return [ComputeOp("optimizer", "optimizer", "vector", "optimizer", work, jnp.asarray(1.0))]

    def _transfers(self, layout: Layout, block: list[BlockOp], layers: Array) -> list[Op]:
        """Traffic to the second tier: weights in for each pass, activations out and in, optimiser state in and out."""
        plan, held = layout.plan, self.footprint(layout)
        weights = held["weights"][0] * plan.offload_weights
        stored = self._stored_per_layer(layout, block) * layers * plan.offload_activations
        state = (held["optimizer"][0]) * plan.offload_optimizer
        once = jnp.asarray(1.0)
        return [
            TransferOp("offload_weights", "forward", weights, once),
            TransferOp("offload_weights", "backward", weights, once),
            TransferOp("offload_activations", "forward", stored, once),
            TransferOp("offload_activations", "backward", stored, once),
            TransferOp("offload_optimizer", "optimizer", 2 * state, once),
        ]

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """A 1F1B pipeline of m micro-batches over p stages and v model chunks each.

        T = (m + (p-1)/v) (forward + recompute + backward of one stage) + m (head) + optimiser + overhead, where the
        last backward hides the gradient exchange and the first forward the parameter gathering.
        Source: [narayanan2021] section 2.2; the bubble is (p-1)/v micro-batches.
        """
        plan, m = layout.plan, self.micro_batches(layout)
        bubbles = (plan.pp - 1) / plan.virtual_stages
        passes = {f: one_pass(priced, f, plan, self.kernel_slowdown) for f in ("forward", "recompute", "backward")}
        sync = total(priced, "gradients", CommOp)
        gather = total(priced, "parameters", CommOp)
        forward, backward = passes["forward"].busy_s, passes["backward"].busy_s
        last = partly_hidden_s(backward, sync.time_s, plan.dp_overlap)
        first = partly_hidden_s(forward, gather.time_s, plan.dp_overlap)
        update, state = total(priced, "optimizer", ComputeOp), total(priced, "optimizer", TransferOp)
        step = partly_hidden_s(update.time_s * self.kernel_slowdown, state.time_s, plan.offload_overlap)

        stage = forward + backward + passes["recompute"].busy_s
        edge = m * (passes["forward"].edge_s + passes["backward"].edge_s)
        repeated = (m + bubbles - 1) * (forward + backward) + (m + bubbles) * passes["recompute"].busy_s
        time = repeated + last + first + edge + step + self.step_overhead_s

        breakdown = {name: m * part.compute_s for name, part in passes.items()}
        for axis in passes["forward"].exposed_s:
            breakdown[axis] = sum(m * part.exposed_s[axis] for part in passes.values())
        breakdown["dp"] = breakdown["dp"] + (last - backward) + (first - forward)
        breakdown |= {"head": edge, "bubble": bubbles * stage, "overhead": self.step_overhead_s + 0 * time}
        breakdown["optimizer"] = update.time_s * self.kernel_slowdown
        breakdown["offload"] = breakdown["offload"] + step - update.time_s * self.kernel_slowdown
        energy = m * sum(part.energy_j for part in passes.values())
        for once in (sync, gather, update, state):
            energy = energy + once.energy_j
        return Timeline(time, breakdown, energy, self.tokens_per_step(), self.model_flops_per_step(), {})

    def _stored_per_layer(self, layout: Layout, block: list[BlockOp]) -> Array:
        """Bytes a layer keeps of one micro-batch between forward and backward; only its input under full."""
        kept = jnp.asarray(0.0)
        for op in block:
            kept = kept + op.stored_bytes * op.per_layer
        shard = self.shard(layout)
        entry = shard.tokens * self.model.hidden * self.precision.bytes_of("activations") / shard.outside
        return kept * (1 - layout.full) + entry * layout.full

    def in_flight(self, layout: Layout) -> Array:
        """Micro-batches whose activations the first stage holds: 1F1B, a little more when interleaved.

        Source: [korthikanti2022] section 4.2.3.
        """
        pp, v = layout.plan.pp, layout.plan.virtual_stages
        extra = jnp.where(v > 1, (pp - 1) / v, 0.0)
        return at_most(pp + extra, self.micro_batches(layout))

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Weights, gradients, optimiser state, activations, and one layer's working set."""
        shard, layers = self.shard(layout), self.layers_per_stage(layout)
        block = self.model.layer_ops(shard)
        ordinary, expert = self._held(layout, block, layers)
        two_layers = at_most(2 / at_least(layers, 1.0), 1.0)

        def sharded(stage: int) -> Array:
            return ordinary / layout.shards(stage) + expert / layout.expert_shards(stage)

        weights = sharded(3) * self.precision.bytes_of("weights")
        gradients = sharded(2) * self.precision.bytes_of("gradients")
        state = sharded(1) * self.optimizer.state_bytes
        stored = self._stored_per_layer(layout, block)
        activations = stored * layers * self.in_flight(layout)
        gathered = (ordinary + expert - sharded(3)) * two_layers * self.precision.bytes_of("weights")
        whole_layer = jnp.asarray(0.0)
        for op in block:
            whole_layer = whole_layer + op.working_bytes * op.per_layer
        logits = shard.tokens * self.model.vocab / layout.plan.tp * 6.0
        return {
            "weights": (weights, weights * two_layers),
            "gradients": (gradients, gradients),
            "optimizer": (state, state * two_layers),
            "activations": (activations, 2 * stored),
            "working": (whole_layer + gathered + logits, whole_layer + gathered + logits),
        }

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
