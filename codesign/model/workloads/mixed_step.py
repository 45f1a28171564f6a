"""One step of an engine that batches continuously: decodes and a chunk of prompts together."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.computed_once import computed_once, one_call
from ...core.fields import Module, quantity
from ...core.smooth import at_least, at_most
from .layer_operations import BlockComm, BlockOp, Precision, Shard
from .lowering import comm_ops, encoder_ops, forward_ops
from .plan import Layout
from .schedule import CommOp, Op
from .transformer import Transformer


def divided_cache(shard: Shard) -> Shard:
    """Decodes of tensor ranks that divide the cached tokens: all of their heads, each over its part of the tokens."""
    plan = shard.layout.plan
    together = Layout(dataclasses.replace(plan, tp=plan.tp / plan.decode_cp), shard.layout.devices)
    return dataclasses.replace(shard, layout=together, keys=shard.keys / plan.decode_cp)


class MixedStep(Module):
    """Contents of one pass of a stage, as one attention group of a replica sees it.

    `decodes` sequences with `context` tokens each, of which a step verifies `queries` (one without speculation), and
    `prompt_tokens` of prompts, `prompts` of them together, each attending `keys` tokens at its end. Products, norms and
    communication run on all tokens together, so that weights are read once; the two attention cores run apart. With
    `plan.attention_dp` groups a feed-forward network sees the tokens of all of them, `shared_tokens` of prompts.
    `images` are those that a vision encoder encodes for these prompts; `drafted` tokens of each sequence are those that
    the model's own modules predict.
    """

    model: Transformer
    precision: Precision
    decodes: Float[Array, "*b"] = quantity()
    queries: Float[Array, "*b"] = quantity()
    context: Float[Array, "*b"] = quantity()
    prompt_tokens: Float[Array, "*b"] = quantity()
    prompts: Float[Array, "*b"] = quantity()
    keys: Float[Array, "*b"] = quantity()
    shared_tokens: Float[Array, "*b"] = quantity()
    images: Float[Array, "*b"] | None = quantity(default=None)
    drafted: Float[Array, "*b"] | None = quantity(default=None)

    @computed_once
    def attention_layout(self, layout: Layout) -> Layout:
        """Layout of the tensor ranks of one attention group."""
        plan = dataclasses.replace(layout.plan, tp=layout.plan.tp / layout.plan.attention_dp)
        return Layout(plan, layout.devices)

    @computed_once
    def attention_shard(self, layout: Layout) -> Shard:
        """All tokens of one attention group, on its tensor ranks."""
        return self._shard(self.attention_layout(layout), self.decodes * self.queries + self.prompt_tokens)

    @computed_once
    def joint_shard(self, layout: Layout) -> Shard:
        """The tokens of all attention groups of the replica, gathered and scattered where there are several."""
        plan = layout.plan
        scattered = jnp.where(plan.attention_dp > 1, 1.0, plan.sequence_parallel)
        joint = Layout(dataclasses.replace(plan, sequence_parallel=scattered), layout.devices)
        return self._shard(joint, plan.attention_dp * (self.decodes * self.queries + self.shared_tokens))

    def _shard(self, layout: Layout, tokens: Array) -> Shard:
        return Shard(layout, self.precision, tokens, jnp.asarray(1.0), at_least(self.context, 1.0), decode=True)

    @computed_once
    def layer_ops(self, layout: Layout) -> list[BlockOp]:
        """All operations of an average layer except its attention cores."""
        model, options = self.model, {"dropout": False, "norm_vectors": self.model.norm_vectors}
        attention = model.attention.ops(self.attention_shard(layout), model.hidden, **options)
        joint = model.feed_forward.ops(self.joint_shard(layout), model.hidden, model.layers, **options)
        return [op for op in attention if not op.core] + joint

    def cores(self, layout: Layout, *, mixed: bool, decodes: bool = True) -> list[BlockOp]:
        """Attention of the decodes, and of the chunk, where the step carries them."""
        shard, result = self.attention_shard(layout), []
        if decodes:
            result = self._core(divided_cache(dataclasses.replace(shard, sequences=self.decodes, queries=self.queries)))
        if mixed:
            queries = self.prompt_tokens / self.prompts
            chunk = {"sequences": self.prompts, "queries": queries, "keys": at_least(self.keys, 1.0), "decode": False}
            result += self._core(dataclasses.replace(shard, **chunk))
        return result

    def _core(self, shard: Shard) -> list[BlockOp]:
        model = self.model
        ops = model.attention.ops(shard, model.hidden, dropout=False, norm_vectors=model.norm_vectors)
        return [op for op in ops if op.core]

    def attention_comms(self, layout: Layout) -> list[BlockComm]:
        """Communication of an average layer's attention; its own joins go round one attention group."""
        comms = self.model.attention.comms(self.attention_shard(layout), self.model.hidden)
        comms = [dataclasses.replace(comm, axis="attention_tp") if comm.axis == "tp" else comm for comm in comms]
        return comms + self.cache_comms(layout)

    def layer_comms(self, layout: Layout) -> list[BlockComm]:
        """Communication of an average layer."""
        model = self.model
        return self.attention_comms(layout) + model.feed_forward.comms(
            self.joint_shard(layout), model.hidden, model.layers
        )

    def cache_comms(self, layout: Layout) -> list[BlockComm]:
        """Messages of tensor ranks that divide the cached tokens of each sequence (decode context parallelism).

        Queries of all their heads are gathered before the core of the decodes; its partial results, each with the
        logarithm of its weights in fp32, are summed and scattered after it. A chunk of a prompt gathers the keys and
        values before it. Source: `--decode-context-parallel-size` of [vllm_source].
        """
        widths = self.model.attention.decode_widths
        if widths is None:
            return []
        ranks, one, none = self.attention_layout(layout), jnp.asarray(1.0), jnp.asarray(0.0)
        act, divided = self.precision.bytes_of("activations"), layout.plan.decode_cp
        heads = self.decodes * self.queries * self.model.attention.heads / ranks.plan.tp * divided
        before = self.prompts * at_least(self.keys - self.prompt_tokens / self.prompts, 0.0)
        cached = self.model.attention.cache_bytes(before, ranks.plan.tp, self.precision)
        return [
            BlockComm(name, operation, "decode_cp", nbytes, one, none, none)
            for name, operation, nbytes in (
                ("decode_queries", "all_gather", heads * widths[0] * act),
                ("decode_weights", "all_gather", heads * divided * 4.0),
                ("decode_results", "reduce_scatter", heads * widths[1] * act),
                ("chunk_cache", "all_gather", jnp.where(divided > 1, cached, 0.0)),
            )
        ]

    def lower(
        self, layout: Layout, layers: Array, scored: Array, *, phase: str, mixed: bool, decodes: bool = True
    ) -> list[Op]:
        """Operations of a stage of `layers`, with `scored` tokens of the replica through the head, and the send."""
        ops = self._lowered(layout, layers, scored, mixed=mixed, decodes=decodes)
        return [dataclasses.replace(op, phase=phase) for op in ops]

    @one_call("mixed", "decodes")
    def _lowered(self, layout: Layout, layers: Array, scored: Array, *, mixed: bool, decodes: bool) -> list[Op]:
        """`lower`, under one name for all phases: steps that differ in numbers alone are traced once."""
        phase = "step"
        cores = forward_ops(self.cores(layout, mixed=mixed, decodes=decodes), layers, phase=phase)
        ops = forward_ops(self.layer_ops(layout), layers, phase=phase)
        encoded = self.encoded(layout, phase) if mixed else []
        drafts = self.drafts(layout, phase, mixed=mixed, decodes=decodes)
        return ops + cores + encoded + drafts + self.after_layers(layout, layers, scored, phase=phase)

    def module_ops(self, layout: Layout) -> list[BlockOp]:
        """All operations of a multi-token prediction module except its attention cores."""
        module = dataclasses.replace(self, model=self.model.ahead())
        return [self.model.ahead_projection(self.joint_shard(layout)), *module.layer_ops(layout)]

    def drafts(self, layout: Layout, phase: str, *, mixed: bool, decodes: bool) -> list[Op]:
        """Passes of such modules, one for each token drafted.

        The first is over all tokens of the step, whose keys it caches; the others are over one token of each sequence.
        Each token of a draft takes the head.
        """
        if self.drafted is None:
            return []
        first, more = at_most(self.drafted, 1.0), at_least(self.drafted - 1, 0.0)
        none, one = jnp.asarray(0.0), jnp.asarray(1.0)
        next_ = dataclasses.replace(self, queries=one, prompt_tokens=none, shared_tokens=none)
        ops = self._module(layout, first, phase, mixed=mixed, decodes=decodes)
        if decodes:
            ops += next_._module(layout, more, phase, mixed=False, decodes=True)
            joint = next_.joint_shard(layout)
            head = self.model.head_ops(joint, joint.tokens)
            ops += forward_ops(head, self.drafted, phase=phase)
        return [dataclasses.replace(op, name=f"draft_{op.name}") for op in ops]

    def _module(self, layout: Layout, times: Array, phase: str, *, mixed: bool, decodes: bool) -> list[Op]:
        """Passes of a module over the tokens of the step, `times` of them."""
        module = dataclasses.replace(self, model=self.model.ahead())
        ops: list[Op] = forward_ops(self.module_ops(layout), times, phase=phase)
        ops += forward_ops(module.cores(layout, mixed=mixed, decodes=decodes), times, phase=phase)
        for op in comm_ops(module.layer_comms(layout), times, ("forward",), trained=False):
            ops.append(dataclasses.replace(op, phase=phase, local=None))
        return ops

    def encoded(self, layout: Layout, phase: str) -> list[Op]:
        """Passes of a vision encoder over the images of the prompts."""
        if self.model.vision is None or self.images is None:
            return []
        ranks = self.attention_layout(layout)
        return encoder_ops(self.model.vision, ranks, self.precision, self.images, phase=phase, axis="attention_tp")

    def around(self, layout: Layout, layers: Array, scored: Array, *, phase: str) -> list[Op]:
        """Operations of the step without attention cores."""
        ops = forward_ops(self.layer_ops(layout), layers, phase=phase) + self.encoded(layout, phase)
        return ops + self.after_layers(layout, layers, scored, phase=phase)

    def after_layers(self, layout: Layout, layers: Array, scored: Array, *, phase: str) -> list[Op]:
        """The head, communication of all layers and the send."""
        one, joint = jnp.asarray(1.0), self.joint_shard(layout)
        head = dataclasses.replace(joint, sequences=scored)
        ops: list[Op] = forward_ops(self.model.head_ops(head, scored), one, phase=phase, edge=True)
        for op in comm_ops(self.layer_comms(layout), layers, ("forward",), trained=False):
            ops.append(dataclasses.replace(op, phase=phase, local=None))
        nbytes = joint.tokens * self.model.hidden * self.precision.bytes_of("activations") / layout.plan.tp
        return [*ops, CommOp("stage_send", "send", "pp", phase, nbytes, one)]
