"""Training steps of a transformer."""

import dataclasses
import itertools
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.computed_once import computed_once
from ...core.cost import partly_hidden_s
from ...core.errors import ConfigError, suggestion
from ...core.fields import integer, quantity, static
from ...core.smooth import at_least, at_most, ceil, maximum, ratio
from .base import TRAINING, AbstractWorkload, FamilyVocabulary, Moments
from .broken_rules import broken
from .layer_operations import BlockOp, Precision, Shard
from .lowering import backward_ops, beyond, comm_ops, forward_ops, indivisible, layer_bytes, recompute_ops, weights_held
from .optimizer import AbstractOptimizer, Adam, exchange_ops, gathered_bytes
from .pipeline_schedules import chunked_length, flying, model_copies, schedule_violation, turned
from .plan import Layout
from .recomputation import (
    dropped,
    module_violations,
    offloaded_share,
    redone_comms,
    without_unread,
    without_unread_sums,
)
from .schedule import (
    PER_MICRO_BATCH,
    PER_STEP,
    CommOp,
    ComputeOp,
    Op,
    Pass,
    Priced,
    Slowdowns,
    Timeline,
    TransferOp,
    deferred,
    one_pass,
    total,
)
from .training_memory import Classes, Parts, StageMemory, TrainerBuffers, gradients_alive, moments, most_of, peak
from .transformer import Transformer

FUSED_UP = ("mlp_up", "moe_up", "moe_shared_up")
"""Products that are two tensors where the network is gated."""


class StageWork(NamedTuple):
    """Work of one stage in a step, seconds but for `energy_j` of a device.

    passes by phase; forward, backward (recomputation included) of a micro-batch; inputs: backward without the weight
    gradients, which are `weights`; head, on the last stage; covers: micro-batches behind which exchanges hide; first:
    the first forward with gathered parameters; last: the last `covers` backwards with exchanged gradients; step: the
    update, with `updated` its kernels and `gathers` its exchanges.
    """

    passes: dict[str, Pass]
    forward: Array
    backward: Array
    inputs: Array
    weights: Array
    head: Array
    covers: Array
    first: Array
    last: Array
    step: Array
    updated: Array
    gathers: Array
    energy_j: Array


FRAMEWORK_ERRORS = ("", "named", "typical")


class AbstractTraining(AbstractWorkload):
    """One optimizer step over `global_batch` sequences of `sequence` tokens.

    `step_overhead_s` is what a framework adds to every step, `kernel_slowdown` what it adds to every kernel, `launch_s`
    how long its host takes to issue one, `slowdowns` what it adds to classes of operations. `copy_before_collective`
    adds a pass over local memory to each tensor-parallel collective. `release_gradients` frees the gradient of an
    activation as soon as it has been used, so that two of them are alive; else a whole layer's are. `state_every_pass`
    moves an offloaded optimizer's state with every micro-batch instead of once a step. `forward_only` is a batch
    without backward pass and update: evaluation, scoring, embedding. `redo_unread` False recomputes no results that no
    gradient reads (`activation_modules.without_unread`). `buffers` is what a framework holds in memory
    beside tensors. `framework_errors` says which errors of whole steps were met under these constants where they do not
    say so themselves: `named`, those of a framework that was measured; `typical`, those of all. Memory is the peak over
    moments and stages (`training_memory`).
    """

    words: ClassVar[FamilyVocabulary] = TRAINING

    model: Transformer
    sequence: Float[Array, "*b"] = integer(
        low=1.0, doc="tokens per sequence", usual=(1.0, 1e7, "the longest published context")
    )
    global_batch: Float[Array, "*b"] = integer(low=1.0, doc="sequences per step")
    precision: Precision = Precision()
    optimizer: AbstractOptimizer = eqx.field(default_factory=Adam)
    step_overhead_s: Float[Array, "*b"] = quantity(default=0.0)
    kernel_slowdown: Float[Array, "*b"] = quantity(low=0.1, high=1e3, default=1.0)
    launch_s: Float[Array, "*b"] = quantity(default=0.0, doc="the host's time to issue one kernel")
    slowdowns: Slowdowns | None = None
    copy_before_collective: bool = static(default=False)
    release_gradients: bool = static(default=True)
    state_every_pass: bool = static(default=False)
    forward_only: bool = static(default=False)
    redo_unread: bool = static(default=True)
    buffers: TrainerBuffers = eqx.field(default_factory=TrainerBuffers)
    framework_errors: Literal["", "named", "typical"] = static(default="")
    document_tokens: Float[Array, "*b"] = quantity(
        default=0.0, doc="mean length of documents packed into a sequence, which attend themselves alone; 0: one each"
    )
    document_cv: Float[Array, "*b"] = quantity(high=10.0, default=0.0, doc="standard deviation over mean of theirs")

    def __check_init__(self) -> None:
        """Errors that are kept under a name."""
        if self.framework_errors not in FRAMEWORK_ERRORS:
            raise ConfigError(
                f"workload.framework_errors = {self.framework_errors!r} is none of"
                f" {', '.join(repr(name) for name in FRAMEWORK_ERRORS)}"
                f"{suggestion(str(self.framework_errors), FRAMEWORK_ERRORS[1:])}"
            )

    @computed_once
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
        return self._document() * (1 - 0.5 * causal)

    def _document(self) -> Array:
        """Length of documents all of one length, whose tokens attend as many as those of the packed ones.

        Half of E[l^2] / E[l] = m (1 + cv^2) where causal; no document is longer than a sequence.
        """
        packed = self.document_tokens * (1 + self.document_cv**2)
        return jnp.where(packed > 0, at_most(packed, self.sequence), self.sequence)

    @computed_once
    def layers_per_stage(self, layout: Layout) -> Array:
        """Layers of the fullest stage; embedding and head count as layers where the plan says so."""
        return ceil((self.model.layers + self._less(layout)) / layout.plan.pp)

    def _less(self, layout: Layout) -> Array:
        """Layers whose places embedding and head take."""
        return layout.plan.first_stage_less + layout.plan.last_stage_less

    @computed_once
    def shard(self, layout: Layout) -> Shard:
        """One micro-batch on one device."""
        plan, document = layout.plan, self._document()
        documents = plan.micro_batch * (self.sequence / document)
        return Shard(
            layout, self.precision, documents, document / plan.cp, document, staged=self.copy_before_collective
        )

    def _block(self, layout: Layout) -> list[BlockOp]:
        """Operations of a layer with what the plan drops and redoes of them."""
        block = dropped(self.model.layer_ops(self.shard(layout)), layout)
        return block if self.redo_unread else without_unread(block)

    def number_format(self) -> str:
        """Format of the matrix products."""
        return self.precision.compute

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Forward, backward, recomputation, pipeline messages, gradient and parameter exchange, optimizer."""
        shard, layers = self.shard(layout), self.layers_per_stage(layout)
        block = self._block(layout)
        dense = self.model.feed_forward.dense_share(self.model.layers)
        comms = redone_comms(self.model.layer_comms(shard), layout, dense)
        comms = comms if self.redo_unread else without_unread_sums(comms, dense)
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
        held, copies = self._held(layout, block, layers), model_copies(layout)
        both = held[0] * copies, held[1] * copies
        return (
            *forward,
            *backward_ops(block, layers),
            *backward_ops(head, once, edge=True),
            *recompute_ops(block, layers),
            *exchange_ops(layout, self.precision, both, experts=any(op.expert for op in block)),
            *self.optimizer.update_ops(layout, block, held, layers),
            *self._transfers(layout, block, layers),
        )

    def _sends(self, shard: Shard, phases: tuple[str, ...]) -> list[Op]:
        """Activations forward and gradients backward across each stage boundary, once per model chunk.

        A message that was cut over the tensor ranks only to be sent is gathered where it arrives.
        """
        layout = shard.layout
        full = shard.tokens * self.model.hidden * shard.precision.bytes_of("activations")
        scattered = jnp.maximum(layout.scattered, layout.plan.scatter_gather_p2p)
        nbytes = full / (1 + scattered * (layout.plan.tp - 1))
        chunks = layout.plan.virtual_stages
        gathers = jnp.where(layout.plan.pp > 1, chunks * (scattered - layout.scattered), 0.0)
        ops: list[Op] = []
        for phase in phases[:2]:
            ops.append(CommOp("stage_send", "send", "pp", phase, nbytes, chunks))
            ops.append(CommOp("stage_gather", "all_gather", "tp", phase, full, gathers))
        return ops

    @computed_once
    def _held(self, layout: Layout, block: list[BlockOp], layers: Array) -> tuple[Array, Array]:
        """(ordinary, expert) weights of the fullest device, the embedding with the first stage."""
        each, ordinary = weights_held(block, jnp.asarray(1.0), expert=False), jnp.asarray(0.0)
        for stage in self.stages(layout).values():
            ordinary = at_least(ordinary, each * stage.layers + self._table(layout) * stage.tables)
        return ordinary, weights_held(block, layers, expert=True)

    @computed_once
    def _table(self, layout: Layout) -> Array:
        """Weights of a device's part of one vocabulary table."""
        return self.model.vocab * self.model.hidden / layout.plan.tp

    @computed_once
    def stages(self, layout: Layout) -> dict[str, StageMemory]:
        """First, second and last stage; those between hold no more than the second.

        Embedding with the first, head with the last (where they are tied each has a copy), both where there is one
        and where one device holds both ends.
        """
        plan, layers = layout.plan, self.layers_per_stage(layout)
        pipeline, two = plan.pp > 1, 2 - self.model.tied_embeddings
        both, copies = turned(layout), model_copies(layout)
        tables = jnp.where(pipeline & (both < 1), 1.0, two)
        last = at_least(plan.pp - 1, 0.0)
        return {
            "first": StageMemory(
                layers - plan.first_stage_less, tables, self.in_flight(layout, jnp.asarray(0.0)), copies=copies
            ),
            "middle": StageMemory(
                jnp.where(plan.pp > 2, layers, 0.0),
                jnp.asarray(0.0),
                self.in_flight(layout, jnp.asarray(1.0)),
                copies=copies,
            ),
            "last": StageMemory(
                layers - plan.last_stage_less, tables, self.in_flight(layout, last), scores=True, copies=copies
            ),
        }

    def _transfers(self, layout: Layout, block: list[BlockOp], layers: Array) -> list[Op]:
        """Traffic to the second tier: weights in for each pass, activations out and in, optimizer state in and out.

        The link carries both directions at once: weights come in while activations go out.
        """
        plan, held = layout.plan, self.afar_bytes(layout)
        weights, once = held["weights"] * plan.offload_weights, jnp.asarray(1.0)
        if self.forward_only:
            return [TransferOp("offload_forward", "forward", weights, once)]
        stored = self._stored_per_layer(layout, block) * layers * plan.offload_activations
        stored = stored * offloaded_share(block, layout)
        state = held["optimizer"] * plan.offload_optimizer
        out = held["gradients"] * plan.offload_gradients
        forward = TransferOp("offload_forward", "forward", at_least(weights, stored), once)
        if self.state_every_pass:
            return [forward, TransferOp("offload_backward", "backward", weights + stored + state, once)]
        return [
            forward,
            TransferOp("offload_backward", "backward", weights + stored, once),
            TransferOp("offload_optimizer", "optimizer", state + at_least(state, out), once),
        ]

    @computed_once
    def bubbles(self, layout: Layout) -> Array:
        """Idle time of the fullest stage, in passes of a micro-batch through it.

        (p-1)/v to fill and drain the pipeline, less where other stages hold fewer layers; an interleaved schedule works
        on p micro-batches at a time and waits where they do not divide. Source: [narayanan2021] section 2.2.
        """
        pp, v, m = layout.plan.pp, layout.plan.virtual_stages, self.micro_batches(layout)
        layers = self.layers_per_stage(layout)
        missing = ratio(pp * layers - self.model.layers, layers)  # embedding and head in their places take no pass
        waiting = jnp.where(pp > 1, pp * ceil(m / pp) - m, 0.0)
        return (pp - 1 - missing + (v - 1) * waiting) / v

    def pieces(self, priced: Priced, layout: Layout) -> StageWork:
        """Times and energy of what a stage does in a step, before a schedule says when."""
        plan, m = layout.plan, self.micro_batches(layout)
        if self.slowdowns is not None:
            priced = self.slowdowns.over(priced, self.layers_per_stage(layout) * (layout.shards(2) - 1))
        passes = {
            f: one_pass(priced, f, plan, self.kernel_slowdown, self.launch_s)
            for f in ("forward", "recompute", "backward")
        }
        early, weights = deferred(priced, "backward", self.kernel_slowdown)
        early = one_pass(early, "backward", plan, self.kernel_slowdown, self.launch_s)
        zero_bubble = plan.schedule > 0
        later = dataclasses.replace(early, compute_s=early.compute_s + weights, busy_s=early.busy_s + weights)
        later = dataclasses.replace(later, energy_j=passes["backward"].energy_j)
        passes["backward"] = jax.tree.map(lambda a, b: jnp.where(zero_bubble, a, b), later, passes["backward"])
        sync = total(priced, "gradients", CommOp)
        gather = total(priced, "parameters", CommOp)
        forward, backward = passes["forward"].busy_s, passes["backward"].busy_s + passes["recompute"].busy_s
        covers = jnp.where(
            zero_bubble, 1.0, (1 + (plan.virtual_stages - 1) * at_most(plan.pp, m)) / plan.virtual_stages
        )
        late = 1 / at_least(self.layers_per_stage(layout), 1.0)
        last = partly_hidden_s(covers * backward, sync * (1 - late), plan.dp_overlap) + late * sync.time_s
        first = partly_hidden_s(forward, gather, plan.dp_overlap)
        update, state = total(priced, "optimizer", ComputeOp), total(priced, "optimizer", TransferOp)
        gathers = total(priced, "optimizer", CommOp)  # of matrices that are updated whole
        step = partly_hidden_s(update.time_s * self.kernel_slowdown, state, plan.offload_overlap) + gathers.time_s

        head = passes["forward"].edge_s + passes["backward"].edge_s
        inputs = passes["recompute"].busy_s + early.busy_s
        energy = m * sum(part.energy_j for part in passes.values())
        for once in (sync, gather, update, state, gathers):
            energy = energy + once.energy_j
        updated = update.time_s * self.kernel_slowdown
        return StageWork(
            passes, forward, backward, inputs, weights, head, covers, first, last, step, updated, gathers.time_s, energy
        )

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """A 1F1B pipeline of m micro-batches over p stages and v model chunks each, or a schedule that defers weights.

        T = (m + bubbles) (forward + recompute + backward of one stage) + m (head) + optimizer + overhead, where the
        first forward hides the parameter gathering and the last backward the gradient exchange: of the last chunk
        behind one micro-batch, of earlier chunks behind the p that are interleaved; the first layer's gradients come
        last and stay exposed.
        """
        m, bubbles, of = self.micro_batches(layout), self.bubbles(layout), self.pieces(priced, layout)
        zero_bubble = layout.plan.schedule > 0
        passes, forward, backward, head, covers = of.passes, of.forward, of.backward, of.head, of.covers
        repeated = (m + bubbles - 1) * forward + (m + bubbles - covers) * backward
        repeated = jnp.where(zero_bubble, chunked_length(layout, m - 1, forward, of.inputs, of.weights), repeated)
        paced, edge = self._paced(repeated, forward, backward, head, layout, covers)
        time = paced + of.last + of.first + edge + of.step + self.step_overhead_s
        edge = edge + (paced - repeated)

        breakdown = {name: m * part.compute_s for name, part in passes.items()}
        for axis in passes["forward"].exposed_s:
            breakdown[axis] = sum(m * part.exposed_s[axis] for part in passes.values())
        breakdown["dp"] = breakdown["dp"] + (of.last - covers * backward) + (of.first - forward)
        idle = repeated - (m - 1) * (forward + backward)
        bubble = jnp.where(zero_bubble, idle, bubbles * (forward + backward))
        breakdown |= {"head": edge, "bubble": bubble, "overhead": self.step_overhead_s + 0 * time}
        breakdown["optimizer"] = of.updated
        breakdown["dp"] = breakdown["dp"] + of.gathers
        breakdown["offload"] = breakdown["offload"] + of.step - of.gathers - of.updated
        return Timeline(
            time,
            breakdown,
            of.energy_j,
            self.tokens_per_step(),
            self.model_flops_per_step(),
            self.model.feed_forward.capacity_shares(layout),
        )

    def _paced(
        self, repeated: Array, forward: Array, backward: Array, head: Array, layout: Layout, covers: Array
    ) -> tuple[Array, Array]:
        """(passes but for those that hide exchanges of data ranks: one forward, `covers` backward; heads).

        A last stage as full as others paces with its layers and the head: m + bubbles passes and m heads. One with
        fewer layers paces only where what it has, head included, takes longer than a full stage.
        """
        m, less = self.micro_batches(layout), layout.plan.last_stage_less
        both, share = forward + backward, 1 - ratio(less, self.layers_per_stage(layout))
        slowest = maximum(both, share * both + head)
        shorter = (m - covers) * slowest + self.bubbles(layout) * both + (covers - 1) * forward
        return jnp.where(less > 0, shorter, repeated), jnp.where(less > 0, covers, m) * head

    def _stored_per_layer(self, layout: Layout, block: list[BlockOp]) -> Array:
        """Bytes an average layer keeps of one micro-batch between forward and backward; only its input under full."""
        entry = self.shard(layout).tokens * self.model.hidden * self.precision.bytes_of("activations")
        gathered = 1 + layout.scattered * layout.plan.partition_activations * (layout.plan.tp - 1)
        return layer_bytes(block, "stored_bytes") * (1 - layout.full) + entry / gathered * layout.full

    def in_flight(self, layout: Layout, stage: Array) -> Array:
        """Micro-batches whose activations a stage (0 is the first) holds: 1F1B, more when interleaved.

        p - i on stage i of p; with v chunks 2 (p - 1 - i) + (v - 1) p + 1 chunks of 1 / v each. Other schedules:
        `pipeline_schedules`. Source: [korthikanti2022] section 4.2.3, [narayanan2021] section 2.2.
        """
        pp, v = layout.plan.pp, layout.plan.virtual_stages
        left = pp - 1 - stage
        chunks = 2 * left + (v - 1) * pp + 1
        count = self.micro_batches(layout)
        return flying(layout, count, at_most(jnp.where(v > 1, chunks / v, left + 1), count))

    @computed_once
    def moments(self, layout: Layout) -> dict[tuple[str, str], Classes]:
        """(stage, moment) -> class of data -> (bytes per device, what of them stays near if offloaded)."""
        block = self._block(layout)
        return moments(
            self.stages(layout), self._parts(layout, block), layout, self.buffers, self.micro_batches(layout)
        )

    def memory_moments(self, layout: Layout) -> Moments:
        """Memory moments of the first, a middle and the last stage."""
        return {f"{stage} stage, {moment}": parts for (stage, moment), parts in self.moments(layout).items()}

    def _parts(self, layout: Layout, block: list[BlockOp]) -> Parts:
        shard, once, precision = self.shard(layout), jnp.asarray(1.0), self.precision
        largest = jnp.asarray(0.0)
        pieces = 1 + getattr(self.model.feed_forward, "gated", jnp.asarray(0.0))  # tensors of a fused product
        for op in block:
            largest = at_least(largest, op.weights / pieces if op.name in FUSED_UP else op.weights)
        scored = ceil(shard.tokens / layout.plan.loss_chunks)
        hidden = jnp.where(self.model.vocab > 0, self.model.hidden, 0.0) * precision.bytes_of("activations")
        return Parts(
            ordinary=weights_held(block, once, expert=False),
            expert=weights_held(block, once, expert=True),
            stored=self._stored_per_layer(layout, block),
            offloadable=offloaded_share(block, layout),
            working=self._working_set(layout, block),
            largest=largest,
            table=self._table(layout),
            loss=scored * self.model.vocab / layout.plan.tp * self.buffers.logits_bytes + 2 * shard.tokens * hidden,
            weight_bytes=precision.bytes_of("weights"),
            gathered_bytes=gathered_bytes(precision),
            gradient_bytes=precision.bytes_of("gradients"),
            buffer_bytes=precision.bytes_of("gradient_buffer"),
            state_bytes=self.optimizer.state_bytes,
            table_state_bytes=self.optimizer.table_state_bytes,
            update=self.optimizer.update_bytes(layout, block),
        )

    @computed_once
    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Weights, gradients, optimizer state, activations, and what else the moment of the peak needs."""
        if self.forward_only:
            return self._scored_alone(layout)
        return peak(self.moments(layout), layout)

    @computed_once
    def afar_bytes(self, layout: Layout) -> dict[str, Array]:
        """Bytes of the stage that holds most of a class, which need not be that of the peak."""
        if self.forward_only:
            return {"weights": self._scored_alone(layout)["weights"][0]}
        result = self.moments(layout)
        most = {name: most_of(result, name) for name in ("weights", "gradients", "optimizer", "activations")}
        return most | {"activations": most["activations"] * offloaded_share(self._block(layout), layout)}

    def _scored_alone(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Weights, and the larger of a layer at work and the logits of a piece, without a backward pass."""
        block, layers = self._block(layout), self.layers_per_stage(layout)
        ordinary, expert = self._held(layout, block, layers)
        parts, near = self._parts(layout, block), at_most(2 / at_least(layers, 1.0), 1.0)
        parameters = ordinary / layout.shards(3) + expert / layout.expert_shards(3)
        weights = parameters * self.precision.bytes_of("weights")
        gathered = (ordinary + expert - parameters) * near * gathered_bytes(self.precision)
        working = at_least(layer_bytes(block, "working_bytes") + gathered, parts.loss)
        return {"weights": (weights, weights * near), "working": (working, working)}

    def _working_set(self, layout: Layout, block: list[BlockOp]) -> Array:
        """Bytes of the layer at work beyond what is stored of it: dropped activations, gradients of activations.

        Where some layers are recomputed whole, one of these is at work while the others' activations are stored.
        """
        stored = jnp.where(layout.full > 0, 0.0, layer_bytes(block, "stored_bytes"))
        redone = layer_bytes(block, "working_bytes") - stored
        if not self.release_gradients:
            return redone + layer_bytes(block, "gradient_bytes")
        if self.buffers.weighted_results:
            for op in block:
                redone = redone + (op.gradient_bytes * op.per_layer if op.name == "moe_down" else 0.0)
        largest = jnp.asarray(0.0)
        if self.buffers.own_gradients:
            for op, reader in itertools.pairwise((*block, None)):
                largest = at_least(largest, gradients_alive(op, reader))
            return redone + largest
        for op in block:
            largest = at_least(largest, op.gradient_bytes)
        return redone + 2 * largest

    def saved_bytes(self, layout: Layout) -> Array | None:
        """Weights and the optimizer's state, once."""
        each = self.precision.bytes_of("weights") + (0.0 if self.forward_only else self.optimizer.state_bytes)
        tables = self.optimizer.table_state_bytes
        saved = self.model.parameters() * each
        if tables is None or self.forward_only:
            return saved
        return saved + self.model.embedding_parameters() * (tables - self.optimizer.state_bytes)

    def _unfolded(self, layout: Layout) -> Array:
        """Violation of the rule that expert ranks divide a stage's ranks; an expert is cut into equal widths."""
        plan = layout.plan
        if not self.model.has_experts:
            return indivisible(layout.dp * plan.cp, plan.ep) + plan.capacity_factor
        few = jnp.where(plan.capacity_factor > 0, at_least(1 - plan.capacity_factor, 0.0), 0.0)
        width = self.model.feed_forward.expert_width
        folded = jnp.where(plan.etp > 0, indivisible(width, layout.expert_tp), 0.0)
        return indivisible(layout.dp * plan.cp * plan.tp, plan.ep * layout.expert_tp) + folded + few

    def _uneven(self, layout: Layout) -> Array:
        """Violation by a layout with embedding or head as layers of the rule that its pipeline has whole, equal stages.

        Megatron's `account_for_embedding_in_pipeline_split` and `account_for_loss_in_pipeline_split`: layers with
        those two divide over stages and chunks, and neither takes more than its chunk; of two chunks one is full.
        """
        plan, less = layout.plan, self._less(layout)
        chunks = plan.pp * plan.virtual_stages
        chunk = (self.model.layers + less) / chunks
        most = at_least(plan.first_stage_less, plan.last_stage_less)
        longer = beyond(most, at_least(chunk, 1.0)) + jnp.where(plan.pp > 1, 0.0, less)
        both = jnp.where(chunks <= 2, at_most(plan.first_stage_less, plan.last_stage_less), 0.0)
        return jnp.where(less > 0, indivisible(self.model.layers + less, chunks) + longer + both, 0.0)

    def _unexchanged(self, layout: Layout) -> Array:
        """Violation of the rules of ranks that exchange heads: they divide context ranks and key-value heads."""
        plan, attention = layout.plan, self.model.attention
        heads = getattr(attention, "kv_heads", attention.heads)
        unable = 0.0 if attention.exchanges_heads else 1.0
        broken = indivisible(plan.cp, plan.ulysses) + indivisible(heads, plan.tp * plan.ulysses) + unable
        return (
            jnp.where(plan.ulysses > 1, broken, 0.0)
            + jnp.where(plan.cp > 1, 0.0, plan.cp_order)
            + (at_least(plan.decode_cp - 1, 0.0))
        )

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """A transformer's."""
        return broken(self, rule, layout)

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Divisibility of heads, layers, batch and devices; interleaving only in a pipeline; nothing negative."""
        plan, model = layout.plan, self.model
        per_stage = self.layers_per_stage(layout)
        idle = beyond(per_stage * (plan.pp - 1), at_least(model.layers + self._less(layout), 1.0))
        experts = getattr(model.feed_forward, "experts", plan.ep)
        return {
            "devices": indivisible(layout.devices, plan.tp * plan.cp * plan.pp),
            "heads": indivisible(model.attention.heads, plan.tp),
            "layers": indivisible(per_stage, plan.virtual_stages) + idle + self._uneven(layout),
            "batch": indivisible(self.global_batch, layout.dp * plan.micro_batch),
            "experts": indivisible(experts, plan.ep) + self._unfolded(layout),
            "schedule": schedule_violation(layout, self.micro_batches(layout)),
            "interleaving": jnp.where((plan.pp <= 1) & (plan.virtual_stages > 1), 1.0, 0.0),
            "sequence": indivisible(self.sequence, plan.cp * plan.tp),
            "context": self._unexchanged(layout),
            **module_violations(self.model.layer_ops(self.shard(layout)), layout),
        }


class Training(AbstractTraining):
    """One optimizer step after the other, of a model whose shape is given."""

    @classmethod
    def example(cls) -> "Training":
        """Eight sequences of 512 tokens."""
        return cls(Transformer.example(), 512.0, 8.0)
