"""Decoding with attention and feed-forward networks on accelerators of their own (attention-FFN disaggregation, AFD).

Micro-batches go to and fro between both sides: while one of them is at the networks, attention works on the next.
"""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...core.computed_once import computed_once
from ...core.smooth import at_least, maximum
from .disaggregated import AbstractTwoPools
from .engine_memory import layer_peak_bytes, padding_bytes
from .layer_operations import BlockComm, BlockOp, Shard
from .lowering import beyond, comm_ops, forward_ops, indivisible, unspread
from .mixed_step import MixedStep
from .plan import Layout
from .schedule import FFN, FROM_FFN, TO_FFN, CommOp, Op, Pass, Priced, Timeline, one_pass, total

__all__ = ["AttentionFfnServing", "MicroBatchSeconds", "ping_pong_s"]

ATTENTION = "attention"
"""The phase in which one micro-batch is at the attention devices, in all layers and the head."""
BEFORE = ("mlp_branch", "mlp_norm", "moe_router", "moe_latent_down", "moe_latent_up", "mlp_residual", "mlp_dropout")
"""Operations of a feed-forward network that stay with attention: norm, router, what makes tokens shorter, residual.

The router beside attention sends each token to the ranks of its experts alone [zhu2025megascale].
"""


class MicroBatchSeconds(NamedTuple):
    """Seconds of one micro-batch in all layers: attention, to the networks, the networks, back."""

    attention: Array
    to_ffn: Array
    ffn: Array
    from_ffn: Array

    def slowest(self) -> Array:
        """The side or way that takes longest."""
        return maximum(maximum(self.attention, self.ffn), maximum(self.to_ffn, self.from_ffn))


def ping_pong_s(sides: MicroBatchSeconds, micro_batches: Array, layers: Array) -> Array:
    """Seconds until the last of m micro-batches has passed L layers, each of all four stations in turn.

    With s the seconds of a micro-batch in one layer, their sum S over stations and the largest of them b:

        T = S + (m - 1) b + (L - 1) max(S, m b)

    The first layer of the first micro-batch, the others behind it as far apart as the slowest station is long, then
    layers at the pace of the loop, or of the slowest station where m of its turns are longer: m b >= S, as with
    m >= 2 (1 + c / f) where both sides take f, each way c < f. Exact for equal layers and one micro-batch at a
    station at a time, first come first served.

    Source: [zhu2025megascale], its conditions of a full pipeline; this sum derived here, held against
    `simulation.ping_pong`.
    """
    alone, slowest = sides.attention + sides.to_ffn + sides.ffn + sides.from_ffn, sides.slowest()
    first = (alone + (micro_batches - 1) * slowest) / layers
    return first + at_least(1 - 1 / layers, 0.0) * maximum(alone, micro_batches * slowest)


class AttentionFfnServing(AbstractTwoPools):
    """Serving from two pools of which the one that decodes may have its feed-forward networks in a third.

    `plan.ffn_devices` accelerators (`Cluster.ffn`) hold feed-forward networks and experts, those of the cluster
    attention with norms, routers, embedding, head and the key-value cache. The batch of a replica, `micro_batch`
    sequences, is cut into `ffn_micro_batches` parts; all replicas (tp ranks each) send the tokens of a part to
    ffn_tp x ffn_ep ranks at a time, or to several such groups alike, which take even parts. A step takes `ping_pong_s`
    of both sides and the ways between them, the head, and what the engine adds. With `ffn_devices` = 0 it is
    `DisaggregatedServing`: both layouts stand in one space.

    Assumes: replicas decode alike contexts and wait for each other; an average layer stands for all; prompts have a
    pool of their own, whose networks lie beside its attention; each side sends and takes at the link's rate.
    Source: [zhu2025megascale], [stepfun2025step3]; layouts [vllm_afd].
    """

    ffn_apart: ClassVar[bool] = True

    def _chosen(self, layout: Layout) -> Array:
        return layout.plan.ffn_devices > 0

    def part(self, layout: Layout) -> MixedStep:
        """A step of one micro-batch, as an attention replica sees it."""
        step = self.decode_step(layout)
        return dataclasses.replace(step, decodes=step.decodes / layout.plan.ffn_micro_batches)

    def part_tokens(self, layout: Layout) -> Array:
        """Tokens of one micro-batch of all replicas."""
        part = self.part(layout)
        return part.decodes * part.queries * layout.dp

    def ffn_shard(self, layout: Layout) -> Shard:
        """The tokens of a micro-batch of which the tensor ranks of one expert rank have their experts."""
        pool = layout.ffn
        tokens = self.part_tokens(layout) / pool.dp
        one = jnp.asarray(1.0)
        return Shard(pool, self.precision, tokens, one, at_least(self.context(), 1.0), decode=True)

    @computed_once
    def ffn_block(self, layout: Layout) -> list[BlockOp]:
        """Operations of an average layer on a device of the pool."""
        model, shard = self.model, self.ffn_shard(layout)
        options = {"dropout": False, "norm_vectors": model.norm_vectors}
        every = model.feed_forward.ops(shard, model.hidden, model.layers, **options)
        return [op for op in every if op.name not in BEFORE]

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Phases `attention`, `ffn`, `to_ffn` and `from_ffn` of one micro-batch in all layers, beside those of both
        pools."""
        layers, part, model = self.layers_per_stage(layout), self.part(layout), self.model
        away = {op.name for op in self.ffn_block(layout)}
        attention_ops = [op for op in part.layer_ops(layout) if op.name not in away]
        ops = forward_ops([*attention_ops, *part.cores(layout, mixed=False)], layers, phase=ATTENTION)
        step = self.decode_step(layout)
        rows = step.decodes * step.queries
        head = dataclasses.replace(step.joint_shard(layout), sequences=rows)
        share = 1 / layout.plan.ffn_micro_batches  # of a pass over all rows
        ops += forward_ops(model.head_ops(head, rows), share, phase=ATTENTION, edge=True)
        ops += self._comms([*part.attention_comms(layout), self._gathered(layout)], layers, ATTENTION)
        ops += forward_ops(self.ffn_block(layout), layers, phase=FFN)
        joins = model.feed_forward.comms(self.ffn_shard(layout), model.hidden, model.layers)
        ops += self._comms([comm for comm in joins if comm.axis != "ep"], layers, FFN)
        return (*super().lower(layout), *ops, *self.crossings(layout))

    def _comms(self, comms: list[BlockComm], layers: Array, phase: str) -> list[Op]:
        ops = comm_ops(comms, layers, ("forward",), trained=False)
        return [dataclasses.replace(op, phase=phase, local=None) for op in ops]

    def _gathered(self, layout: Layout) -> BlockComm:
        """Results, of which each tensor rank of attention gets its part, where all ranks need all of them."""
        shard, one, none = self.part(layout).joint_shard(layout), jnp.asarray(1.0), jnp.asarray(0.0)
        nbytes = shard.tokens * self.model.hidden * self.precision.bytes_of("activations")
        return BlockComm("ffn_results", "all_gather", "attention_tp", nbytes, one - layout.scattered, none, none)

    def crossings(self, layout: Layout) -> list[CommOp]:
        """Messages of a micro-batch on both ways, as large as those of the side whose devices send or take more."""
        layers = self.layers_per_stage(layout)
        return [
            CommOp(phase, "send", "pools", phase, maximum(*self._sent(layout, tensor)), layers)
            for phase, tensor in ((TO_FFN, "dispatch"), (FROM_FFN, "activations"))
        ]

    def _sent(self, layout: Layout, tensor: str) -> tuple[Array, Array]:
        """Bytes of a layer that a device of either side sends or takes: of attention, of the networks."""
        pool, network = layout.ffn, self.model.feed_forward
        copies, elements = network.sent_elements(self.model.hidden, self.model.layers, pool.plan.ep)
        nbytes = self.part_tokens(layout) * self.precision.bytes_of(tensor)
        taken = nbytes * (copies * network.busiest(pool) + elements) / pool.devices
        return nbytes * (copies + elements) / layout.devices, taken

    @computed_once
    def sides(self, priced: Priced, layout: Layout) -> tuple[Pass, Pass, MicroBatchSeconds]:
        """Passes of one micro-batch on either side, and the seconds of all four stations."""
        attention = one_pass(priced, ATTENTION, layout.plan, self.kernel_slowdown, self.launch_s)
        there = one_pass(priced, FFN, layout.ffn.plan, self.kernel_slowdown, self.launch_s)
        ways = (total(priced, phase, CommOp).time_s for phase in (TO_FFN, FROM_FFN))
        to_ffn, from_ffn = ways
        sorting = self.expert_layer_s * self.layers_per_stage(layout) if self.model.has_experts else 0.0
        return attention, there, MicroBatchSeconds(attention.busy_s, to_ffn, there.busy_s + sorting, from_ffn)

    def decode_pass(self, priced: Priced, layout: Layout) -> Pass:
        """A step without prompts: of the attention devices and what they wait for, or of whole layers."""
        alone = super().decode_pass(priced, layout)
        alone = dataclasses.replace(alone, exposed_s=alone.exposed_s | {FFN: 0.0 * alone.busy_s})
        attention, _, sides = self.sides(priced, layout)
        parts = layout.plan.ffn_micro_batches
        busy = ping_pong_s(sides, parts, self.layers_per_stage(layout))
        exposed = {name: parts * seconds for name, seconds in attention.exposed_s.items()}
        energy = attention.energy_j
        for phase, tensor in ((TO_FFN, "dispatch"), (FROM_FFN, "activations")):
            sent, taken = self._sent(layout, tensor)
            energy = energy + total(priced, phase, CommOp).energy_j * (sent / maximum(sent, taken))
        apart = Pass(
            parts * attention.compute_s,
            busy,
            parts * attention.edge_s,
            exposed | {FFN: busy - parts * attention.busy_s},
            parts * energy,
        )
        chosen = self._chosen(layout)
        return jax.tree.map(lambda one, other: jnp.where(chosen, other, one), alone, apart)

    def unlisted_s(self, decodes: Array, layout: Layout) -> Array:
        """Choosing tokens; what an expert layer adds to a step is the networks' own where they are apart."""
        choosing = self.sampling_s * self.model.vocab * decodes * self.verified_tokens
        return jnp.where(self._chosen(layout), choosing, super().unlisted_s(decodes, layout))

    def devices_beside(self, layout: Layout) -> Array:
        """Accelerators of both pools."""
        return super().devices_beside(layout) + layout.plan.ffn_devices

    def _apart(self, priced: Priced, layout: Layout) -> Timeline:
        result, plan, chosen = super()._apart(priced, layout), layout.plan, self._chosen(layout)
        attention, there, sides = self.sides(priced, layout)
        parts, rounds = plan.ffn_micro_batches, self.rhythm(layout).steps * plan.pp
        busy = ping_pong_s(sides, parts, self.layers_per_stage(layout))
        shares = {
            "attention_busy_ratio": parts * attention.busy_s / busy,
            "ffn_busy_ratio": parts * sides.ffn / busy,
            "ffn_link_busy_ratio": parts * maximum(sides.to_ffn, sides.from_ffn) / busy,
        }
        each = result.extra["decode_tokens_per_s"] / (layout.devices + plan.ffn_devices)
        extra = {name: jnp.where(chosen, share, 0.0) for name, share in shares.items()}
        return dataclasses.replace(
            result, extra=result.extra | extra | {"decode_tokens_per_s_per_device": each},
            ffn_j=jnp.where(chosen, rounds * parts * there.energy_j, 0.0),
        )  # fmt: skip

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Steps of whole layers, or micro-batches of these."""
        result, chosen = dict(super().repeats(layout)), self._chosen(layout)
        parts = jnp.where(chosen, result["decode"] * layout.plan.ffn_micro_batches, 0.0)
        result["decode"] = jnp.where(chosen, 0.0, result["decode"])
        return result | dict.fromkeys((ATTENTION, FFN, TO_FFN, FROM_FFN), parts)

    def weight_block(self, layout: Layout) -> list[BlockOp]:
        """Operations of an average layer; the networks' weigh nothing where they are apart."""
        return self._kept(super().weight_block(layout), layout)

    def profiled_block(self, layout: Layout, tokens: Array) -> list[BlockOp]:
        """Operations of a step, of which the networks' leave nothing where they are apart."""
        return self._kept(super().profiled_block(layout, tokens), layout)

    def _kept(self, block: list[BlockOp], layout: Layout) -> list[BlockOp]:
        here, away = jnp.where(self._chosen(layout), 0.0, 1.0), {op.name for op in self.ffn_block(layout)}
        names = ("weights", "stored_bytes", "working_bytes", "gradient_bytes")
        return [
            dataclasses.replace(op, **{name: here * getattr(op, name) for name in names}) if op.name in away else op
            for op in block
        ]

    def ffn_bytes(self, layout: Layout) -> dict[str, Array]:
        """Weights of all layers, activations of a micro-batch and of the one that arrives meanwhile, graphs."""
        block, layers = self.ffn_block(layout), self.layers_per_stage(layout)
        model, precision = self.model, self.precision
        held = [op.weights * op.per_layer * precision.weight_bytes(op.name) for op in block]
        weights = layers * sum(held[1:], held[0])
        added = padding_bytes(block, layers, model.hidden, precision)
        stream = self.ffn_shard(layout).tokens * model.hidden * precision.bytes_of("activations")
        arriving = maximum(self._sent(layout, "dispatch")[1], self._sent(layout, "activations")[1])
        engine = self.engine_memory
        result = {
            "weights": weights if added is None else weights + added,
            "working": layer_peak_bytes(block, stream) * (1 + engine.fragmentation) + 2 * arriving,
            "graphs": engine.graphs_bytes(self.part(layout).decodes),
        }
        return {name: jnp.where(self._chosen(layout), nbytes, 0.0) for name, nbytes in result.items()}

    def hopeless(self, layout: Layout, capacity: dict[str, float]) -> str | None:
        """One line where all lies together and cannot fit; None where sides are apart, each with room of its own."""
        return None if float(layout.plan.ffn_devices) > 0 else super().hopeless(layout, capacity)

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Rules of all pools: whole groups of ranks, experts and columns to cut, sequences for each micro-batch."""
        plan, network = layout.plan, self.model.feed_forward
        experts = unspread(network.experts, plan.ffn_ep) if self.model.has_experts else plan.ffn_ep - 1
        width = getattr(network, "expert_width", getattr(network, "width", None))
        rest = (plan.pp - 1) + (plan.cp - 1) + (plan.ep - 1) + (plan.attention_dp - 1)
        rules = {
            "ffn_devices": indivisible(jnp.where(self._chosen(layout), plan.ffn_devices, plan.ffn_tp * plan.ffn_ep),
                                       plan.ffn_tp * plan.ffn_ep),
            "ffn_experts": experts,
            "ffn_width": 0.0 * plan.ffn_tp if width is None else indivisible(width, plan.ffn_tp),
            "ffn_micro_batches": beyond(plan.ffn_micro_batches, at_least(plan.micro_batch, 1e-6)),
            "ffn_layout": rest,
            "ffn_prompts": jnp.where(plan.prefill_devices > 0, 0.0, 1.0),
            "ffn_drafts": jnp.asarray(1.0 if self.own_drafts else 0.0),
        }  # fmt: skip
        chosen = self._chosen(layout)
        return super().violations(layout) | {name: jnp.where(chosen, value, 0.0) for name, value in rules.items()}

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """Pools of networks that do not add up, and layouts of attention that have none beside it."""
        plan, network = layout.plan, self.model.feed_forward
        values = {name: f"plan.{name} = {float(getattr(plan, name)):g}" for name in NAMED}
        ranks = f"plan.ffn_tp {float(plan.ffn_tp):g} * plan.ffn_ep {float(plan.ffn_ep):g}"
        width = float(getattr(network, "expert_width", getattr(network, "width", 0.0)))
        over = [values[name] for name in ("pp", "cp", "ep", "attention_dp") if float(getattr(plan, name)) > 1]
        texts = {
            "ffn_devices": f"{ranks} does not divide {values['ffn_devices']}",
            "ffn_experts": (
                f"{values['ffn_ep']} must be at most twice model experts = {float(network.experts):g}"
                if self.model.has_experts
                else f"{values['ffn_ep']}: {type(network).__name__} has no experts to spread; cut it by plan.ffn_tp"
            ),
            "ffn_width": f"{values['ffn_tp']} does not divide the {width:g} columns of a feed-forward network",
            "ffn_micro_batches": (
                f"{values['ffn_micro_batches']} is more than the sequences of a replica, plan.micro_batch ="
                f" {float(plan.micro_batch):g}"
            ),
            "ffn_layout": (
                f"{', '.join(over)} beside {values['ffn_devices']}: attention of its own is cut by plan.tp and copied"
                " to the other devices; experts are spread by plan.ffn_ep"
            ),
            "ffn_prompts": (
                f"{values['ffn_devices']} without plan.prefill_devices: where feed-forward networks are apart, prompts"
                " need a pool of their own"
            ),
            "ffn_drafts": (
                f"{values['ffn_devices']}: modules of the model that draft (workload.own_drafts) have networks of their"
                " own; allowed: workload.own_drafts=false"
            ),
        }
        return texts.get(rule) or super().broken_rule(rule, layout)


NAMED = ("ffn_devices", "ffn_tp", "ffn_ep", "ffn_micro_batches", "pp", "cp", "ep", "attention_dp")
