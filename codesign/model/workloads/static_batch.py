"""Serving a transformer: prefill and decode of a static batch."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import quantity, switch
from ...core.smooth import at_least, at_most
from .base import Moments
from .engine_memory import EngineMemory
from .layer_operations import BlockOp, Precision, Shard
from .lowering import beyond, comm_ops, encoder_ops, forward_ops, held_weight_bytes, indivisible, unspread_ranks
from .plan import Layout
from .schedule import CommOp, Op, Priced, Timeline, TransferOp, one_pass
from .served import AbstractServing
from .transformer import Transformer

STEP_TOKENS = 8192.0
"""Tokens of a prefill step of an engine, so that a batch is not prefilled at once.

Source: [trtllm_source], `max_num_tokens` where nothing is said; [vllm_source] on devices of 70 GB and more.
"""


class StaticBatch(AbstractServing):
    """Requests of `input_tokens` answered with `output_tokens`, `plan.micro_batch` of them at a time in a replica.

    The batch is static: all requests are prefilled, then decoded together to the end. With pipeline stages the batch
    is cut into as many parts as there are stages, so that every stage works (unless `split_batch` is 0). A replica is
    tp x cp x pp devices, the rest are replicas; `ep` is carved out of them. `step_overhead_s` is the engine's own time
    per decode step, `kernel_slowdown` what it adds to every kernel; `request_overhead_s` comes on top of TTFT alone.

    Assumes: decode at the mean context, input + output / 2 (attention is linear in it).
    """

    model: Transformer
    input_tokens: Float[Array, "*b"] = quantity(low=1.0, usual=(1.0, 1e7, "the longest published context"))
    output_tokens: Float[Array, "*b"] = quantity(low=1.0, usual=(1.0, 1e7, "the longest published context"))
    precision: Precision = Precision()
    step_overhead_s: Float[Array, "*b"] = quantity(default=0.0)
    request_overhead_s: Float[Array, "*b"] = quantity(default=0.0, doc="the host's time of a request to its first step")
    prompt_token_s: Float[Array, "*b"] = quantity(default=0.0, doc="the host's time of a token of a prompt")
    expert_overhead_s: Float[Array, "*b"] = quantity(default=0.0, doc="to issue a prompt to experts, of any model")
    expert_launch_s: Float[Array, "*b"] = quantity(default=0.0, doc="to issue a prompt to one expert of one layer")
    kernel_slowdown: Float[Array, "*b"] = quantity(low=0.1, high=1e3, default=1.0)
    launch_s: Float[Array, "*b"] = quantity(default=0.0, doc="the host's time to issue one kernel")
    workspace_bytes: Float[Array, "*b"] = quantity(default=0.0)
    split_batch: Float[Array, "*b"] = switch(default=1.0, doc="0: the whole batch passes one stage after another")
    engine_memory: EngineMemory = eqx.field(default_factory=EngineMemory)
    images: Float[Array, "*b"] = quantity(high=1e4, default=0.0, doc="of a prompt, beside its text")

    def part(self, layout: Layout) -> Array:
        """Sequences that one stage handles at a time."""
        return at_least(layout.plan.micro_batch / (1 + self.split_batch * (layout.plan.pp - 1)), 1.0)

    def parts(self, layout: Layout) -> Array:
        """Parts the batch is cut into."""
        return layout.plan.micro_batch / self.part(layout)

    def prefill_shard(self, layout: Layout) -> Shard:
        """All input tokens of one part."""
        queries = self.prompt_tokens() / layout.plan.cp
        return Shard(layout, self.precision, self.part(layout), queries, self.prompt_tokens())

    def decode_shard(self, layout: Layout) -> Shard:
        """One token of each sequence of one part, at the mean context."""
        context = (self.prompt_tokens() + 0.5 * self.output_tokens) / layout.plan.cp
        return Shard(layout, self.precision, self.part(layout), jnp.asarray(1.0), context, decode=True)

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Phases `prefill` and `decode` of one part on one stage."""
        ops: list[Op] = []
        for phase, shard in (("prefill", self.prefill_shard(layout)), ("decode", self.decode_shard(layout))):
            layers = self.layers_per_stage(layout)
            head = self.model.head_ops(shard, shard.sequences)
            ops += forward_ops(self.model.layer_ops(shard), layers, phase=phase)
            ops += forward_ops(head, jnp.asarray(1.0), phase=phase, edge=True)
            ops += self._encoded(layout) if phase == "prefill" else []
            for op in comm_ops(self.model.layer_comms(shard), layers, ("forward",), trained=False):
                ops.append(replace(op, phase=phase, local=None))
            nbytes = shard.tokens * self.model.hidden * self.precision.bytes_of("activations") / layout.plan.tp
            ops.append(CommOp("stage_send", "send", "pp", phase, nbytes, jnp.asarray(1.0)))
            ops.append(TransferOp("cache", phase, self._moved(layout, phase), jnp.asarray(1.0)))
        return tuple(ops)

    def _encoded(self, layout: Layout) -> list[Op]:
        """Passes of a vision encoder over the images of one part."""
        if self.model.vision is None:
            return []
        images = self.part(layout) * self.images / layout.plan.cp
        return encoder_ops(self.model.vision, layout, self.precision, images, phase="prefill")

    def _moved(self, layout: Layout, phase: str) -> Array:
        """Bytes of a part's cache that leave for the second tier once, and come back at every step."""
        tokens = self.prompt_tokens() if phase == "prefill" else self.prompt_tokens() + 0.5 * self.output_tokens
        return layout.plan.offload_kv_cache * self.part(layout) * self._kv_bytes(layout, tokens)

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Prefill fills the pipeline with the batch's parts; then every stage decodes one part after another.

        TTFT = (parts + p - 1) stage + head; TPOT = p (stage) + head + overhead, the time in which each sequence gets
        one token; a batch takes TTFT + (output - 1) TPOT.
        """
        plan, parts = layout.plan, self.parts(layout)
        prefill = one_pass(priced, "prefill", plan, self.kernel_slowdown, self.launch_s)
        decode = one_pass(priced, "decode", plan, self.kernel_slowdown, self.launch_s)
        fill, steps = parts + plan.pp - 1, self.output_tokens - 1
        ttft = fill * prefill.busy_s + parts * prefill.edge_s + self.step_overhead_s
        tpot = plan.pp * decode.busy_s + parts * decode.edge_s + self.step_overhead_s
        time = ttft + steps * tpot

        breakdown = {"prefill": fill * prefill.compute_s, "decode": steps * plan.pp * decode.compute_s}
        for axis in prefill.exposed_s:
            breakdown[axis] = fill * prefill.exposed_s[axis] + steps * plan.pp * decode.exposed_s[axis]
        breakdown["head"] = parts * (prefill.edge_s + steps * decode.edge_s)
        breakdown["overhead"] = (1 + steps) * self.step_overhead_s
        energy = parts * (prefill.energy_j + steps * decode.energy_j)
        sequences = plan.micro_batch * layout.dp
        flops = self.prompt_tokens() * self.model.forward_flops_per_token(0.5 * self.prompt_tokens())
        flops = flops + steps * self.model.forward_flops_per_token(self.prompt_tokens() + 0.5 * self.output_tokens)
        extra = {"ttft_s": self.first_s(ttft), "tpot_s": tpot, "decode_tokens_per_s": sequences / tpot}
        flops = flops + self.encoder_flops()
        return Timeline(time, breakdown, energy, sequences * self.output_tokens, sequences * flops, extra)

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Every part of the batch is prefilled once and decoded once per further token."""
        parts = self.parts(layout)
        return {"prefill": parts, "decode": parts * (self.output_tokens - 1)}

    def kv_bytes_per_sequence(self, layout: Layout) -> Array:
        """Key-value cache of one full sequence on one device."""
        return self._kv_bytes(layout, self.prompt_tokens() + self.output_tokens)

    def _kv_bytes(self, layout: Layout, tokens: Array) -> Array:
        held = self.model.attention.cache_bytes(tokens, layout.plan.tp, self.precision)
        return held * self.layers_per_stage(layout) / layout.plan.cp

    def weight_bytes(self, layout: Layout) -> Array:
        """Weights of the fullest stage with its part of embedding and head."""
        layers, plan = self.layers_per_stage(layout), layout.plan
        return held_weight_bytes(self.weight_block(layout), layers, self.model, self.precision, plan)

    def weight_block(self, layout: Layout) -> list[BlockOp]:
        """Operations of an average layer, with the weights that a device holds of it."""
        return self.model.layer_ops(self.decode_shard(layout))

    def prefill_tokens(self, layout: Layout) -> Array:
        """Tokens of the largest prefill step: a part's prompts, as many at a time as `STEP_TOKENS`, at least one."""
        prompt = self.prompt_tokens() / layout.plan.cp
        return at_most(self.part(layout) * prompt, at_least(prompt, STEP_TOKENS))

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Weights, key-value cache of the whole batch, and what the engine keeps beside."""
        layers, plan = self.layers_per_stage(layout), layout.plan
        weights = self.weight_bytes(layout)
        two_layers = jnp.minimum(2 / at_least(layers, 1.0), 1.0)
        cache = self.kv_bytes_per_sequence(layout) * plan.micro_batch
        tokens = self.engine_memory.profiled(self.prefill_tokens(layout))
        shard = Shard(layout, self.precision, tokens, jnp.asarray(1.0), self.prompt_tokens())
        beside = self.engine_bytes(self.model.layer_ops(shard), tokens, self.part(layout))
        return {"weights": (weights, weights * two_layers), "kv_cache": (cache, cache * two_layers)} | {
            name: (nbytes, nbytes) for name, nbytes in beside.items()
        }

    def memory_moments(self, layout: Layout) -> Moments:
        """Memory moments of an engine that prefills a batch, then decodes it."""
        rows = self.part(layout)
        shard = Shard(layout, self.precision, rows, jnp.asarray(1.0), self.prompt_tokens(), decode=True)
        return self.moments_of(self.footprint(layout), self.model.layer_ops(shard), rows)

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Divisibility of heads, devices, experts and the batch's parts; no stage without layers."""
        plan, model = layout.plan, self.model
        return {
            "devices": indivisible(layout.devices, plan.tp * plan.cp * plan.pp),
            "heads": indivisible(model.attention.heads, plan.tp),
            "layers": beyond(plan.pp, at_least(model.layers, 1.0)),
            "experts": unspread_ranks(model, layout, layout.dp * plan.cp) + plan.capacity_factor,
            "context": at_least(plan.ulysses - 1, 0.0) + plan.cp_order + at_least(plan.decode_cp - 1, 0.0),
            "batch": jnp.where(plan.micro_batch < 1, 1 / at_least(plan.micro_batch, 1e-6) - 1, 0.0),
        }

    @classmethod
    def example(cls) -> "StaticBatch":
        """Prompts of 512 tokens, answers of 64."""
        return cls(Transformer.example(), 512.0, 64.0)
