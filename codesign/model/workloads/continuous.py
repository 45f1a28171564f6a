"""Serving a transformer as engines do it: continuous batching with prompts in chunks."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ...core.computed_once import computed_once
from ...core.errors import ConfigError
from ...core.fields import integer, quantity, static
from ...core.smooth import at_least, at_most, maximum
from .base import Moments
from .broken_rules import SupportedLayouts, batching_violations, broken_batching
from .engine_memory import EngineMemory
from .kinds import Kinds, known_kinds
from .layer_operations import BlockOp, Precision
from .lowering import held_weight_bytes
from .mixed_step import MixedStep
from .plan import Layout
from .prefixes import PrefixCaching, PrefixHits, computed_cv, keys_before
from .schedule import Op, Pass, Priced, Timeline, TransferOp, one_pass
from .served import AbstractServing
from .steady_state import FULLEST, SOME_IDLE, GroupPrompts, Lockstep, Rhythm, SteadyState, steady_state
from .transformer import Transformer


class AbstractContinuousServing(AbstractServing):
    """A closed loop: a replica always decodes `plan.micro_batch` sequences, one that ends is followed by the next.

    Each step decodes every sequence by one token and takes up to `plan.token_budget` prompt tokens of those who have
    come. With f0 the time of a step without and f1 of one with prompts, L decode steps an answer, and shares and steps
    as in `steady_state`:

        TPOT = (1 - m) f0 + m f1                  requests/s = B / (L ((1 - p) f0 + p f1))
        TTFT = (k + w) f1                         concurrency = B + requests/s TTFT

    (where the last chunks of prompts are part of a chunk, that part counts; the rest as f0). An engine that does not
    look after every step who has come lets a request wait for `admission_steps` a of them: TTFT is a f0 longer, and the
    prompts of 2 a steps are computed together, by all attention groups at once.

    m, p, k, w are constants of the plan: with B and the chunk in it, all times are sums of step times with constant
    factors, log-convex in hardware. A replica is tp x cp x pp devices; with pp stages as many parts of the batch are
    under way, each decoded once a round. `plan.attention_dp` groups, and replicas that share experts (`ep`), step
    together: a step is mixed where any of them has prompts.

    Lengths vary with `input_cv` and `output_cv` (standard deviation over mean), `correlation` between them; lognormal
    unless `input_lengths` and `output_lengths` are known (`kinds`); of a prompt with `images`, text and images vary
    together. A share `cached_ratio` of each prompt is found in the prefix cache: it needs no time, but its room. For
    each sequence that decodes the caches of `idle_sessions` between two turns stay, prompt and answer whole, or of a
    share `retained_share` of them: the others compute their prompt again. With speculation a step verifies
    `verified_tokens` of each sequence, of which `accepted_tokens` are right, and drafting adds `draft_ratio` of the
    step. `own_drafts` are those of the model's own modules (`predicts_ahead`), which are then loaded and run: a pass
    over all tokens of the step for the first token drafted, one over the decoding sequences for each further, each with
    the head. `step_overhead_s` and `sequence_overhead_s` are the engine's own time a step and a sequence in it,
    `request_overhead_s` that of a request before its first step. `sampling_s` is what sampling a token takes for each
    word of the vocabulary (0 where the likeliest is taken; top-p sorts all scores), `expert_layer_s` what a layer of
    experts adds to a step. An `async_scheduling` engine prepares a step beside the one before it: the longer of its own
    time and the kernels' counts, and who comes is seen a step later.

    A share `plan.offload_kv_cache` of the cache lies in the second tier: each step brings what it attends over the
    host's link, beside the kernels as far as `plan.offload_overlap` hides it, two layers of it near at a time.

    With `prefix_cache` the share of prompts in a prefix cache is no number but follows from the room that the design
    leaves its caches (`PrefixCaching`): `metrics.cache_placement` puts what they find in its place (`PrefixHits`)
    before a design is priced. What is found elsewhere than in the first memory is brought beside the layers of the step
    in which its prompt begins; where n of them begin in a step that is
    (1 - min(n, 1)) f1 + min(n, 1) max(f1, max(n, 1) fetch).
    What prompts compute is written through to these memories, the other way of the same links: a step takes no less.
    Where `distinct_prefixes` of the beginnings that `cached_ratio` finds are different, each is kept once a replica, or
    once in a pool that keeps one copy (`metrics.cache_placement`).

    `time_s` is that of one decoded answer, in which as many requests are answered as are decoded together.
    Assumes: room for the mean sequence with the block it fills; what is decoded is spread evenly over groups and
    replicas; chunks of one prompt follow each other through the stages; latent attention expands no context again;
    attention to some tokens of an offloaded cache brings all of them.
    Source: closed form of this package, held against `simulation.serving`; chunks beside decodes [agrawal2024].
    """

    model: Transformer
    input_tokens: Float[Array, "*b"] = quantity(low=1.0, usual=(1.0, 1e7, "the longest published context"))
    output_tokens: Float[Array, "*b"] = quantity(low=2.0, usual=(2.0, 1e7, "the longest published context"))
    input_cv: Float[Array, "*b"] = quantity(high=10.0, default=0.0)
    output_cv: Float[Array, "*b"] = quantity(high=10.0, default=0.0)
    correlation: Float[Array, "*b"] = quantity(low=-1.0, high=1.0, default=0.0)
    cached_ratio: Float[Array, "*b"] = quantity(high=0.999, default=0.0, doc="share of a prompt in the prefix cache")
    idle_sessions: Float[Array, "*b"] = quantity(high=1e6, default=0.0, doc="between two turns, for each that decodes")
    retained_share: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="share of idle sessions whose cache stays")
    accepted_tokens: Float[Array, "*b"] = quantity(low=1.0, high=64.0, default=1.0, doc="of a sequence in one step")
    verified_tokens: Float[Array, "*b"] = quantity(low=1.0, high=64.0, default=1.0, doc="of a sequence in one step")
    draft_ratio: Float[Array, "*b"] = quantity(high=10.0, default=0.0, doc="time of drafting over that of a step")
    precision: Precision = Precision()
    step_overhead_s: Float[Array, "*b"] = quantity(default=0.0)
    sequence_overhead_s: Float[Array, "*b"] = quantity(default=0.0)
    request_overhead_s: Float[Array, "*b"] = quantity(default=0.0, doc="the host's time of a request to its first step")
    prompt_token_s: Float[Array, "*b"] = quantity(default=0.0, doc="the host's time of a token of a prompt")
    expert_overhead_s: Float[Array, "*b"] = quantity(default=0.0, doc="to issue a prompt to experts, of any model")
    expert_launch_s: Float[Array, "*b"] = quantity(default=0.0, doc="to issue a prompt to one expert of one layer")
    sampling_s: Float[Array, "*b"] = quantity(default=0.0, doc="to choose a token, for each word of the vocabulary")
    expert_layer_s: Float[Array, "*b"] = quantity(default=0.0, doc="of a layer in a step, beside products")
    kernel_slowdown: Float[Array, "*b"] = quantity(low=0.1, high=1e3, default=1.0)
    launch_s: Float[Array, "*b"] = quantity(default=0.0, doc="the host's time to issue one kernel")
    workspace_bytes: Float[Array, "*b"] = quantity(default=0.0)
    block_tokens: Float[Array, "*b"] = integer(low=1.0, high=1e6, default=16.0, doc="of a block of the cache")
    admission_steps: Float[Array, "*b"] = quantity(
        high=1e6, default=0.0, doc="without prompts, that a request waits until the engine looks who has come"
    )
    async_scheduling: bool = static(default=False)
    own_drafts: bool = static(default=False)
    input_lengths: Kinds = known_kinds("input_lengths")
    output_lengths: Kinds = known_kinds("output_lengths")
    engine_memory: EngineMemory = eqx.field(default_factory=EngineMemory)
    layouts: SupportedLayouts = eqx.field(default_factory=SupportedLayouts)
    images: Float[Array, "*b"] = quantity(high=1e4, default=0.0, doc="of a prompt, beside its text")
    prefix_cache: PrefixCaching | PrefixHits | None = None
    distinct_prefixes: Float[Array, "*b"] | None = quantity(
        low=1.0, high=1e12, default=None, doc="different beginnings among those found; none: each request has its own"
    )

    def __check_init__(self) -> None:
        """A model drafts with modules that it has; what caches hold is known or follows from their room."""
        given = ("cached_ratio", "idle_sessions", "distinct_prefixes")
        for name in given if isinstance(self.prefix_cache, PrefixCaching) else ():
            value = getattr(self, name)
            if value is not None and not isinstance(value, Tracer) and (np.asarray(value) > 0).any():
                raise ConfigError(
                    f"workload.{name} = {np.asarray(value).max():g} stands beside workload.prefix_cache, by"
                    " which hits follow from room: leave one out"
                )
        if self.own_drafts and not self.model.predicts_ahead:
            raise ConfigError(
                f"workload.own_drafts = true: {self.model.name} has no modules that predict ahead; allowed: false, with"
                " workload.draft_ratio for the time of another draft"
            )

    def drafted(self) -> Array | None:
        """Tokens that the model's own modules draft of a sequence in one step; none where they are not loaded."""
        return self.verified_tokens - 1 if self.own_drafts else None

    def module_block(self, layout: Layout) -> list[BlockOp]:
        """See `AbstractServing`."""
        return self.decode_step(layout).module_ops(layout) if self.own_drafts else []

    def prefix_hits(self) -> PrefixHits | None:
        """Hits of prefix caches, once their room is known."""
        return self.prefix_cache if isinstance(self.prefix_cache, PrefixHits) else None

    def found_ratio(self) -> Array:
        """Share of prompt tokens that a cache holds."""
        hits = self.prefix_hits()
        return self.retained_share * self.cached_ratio if hits is None else hits.share

    @computed_once
    def computed_tokens(self) -> Array:
        """Tokens of a prompt that no cache holds."""
        return self.prompt_tokens() * (1 - self.found_ratio())

    @computed_once
    def computed_cv(self) -> Array:
        """Variation of these."""
        hits = self.prefix_hits()
        return computed_cv(self.input_cv, self.cached_ratio, self.retained_share) if hits is None else hits.cv

    def computed_lengths(self) -> Kinds:
        """Lengths of what is computed of prompts; none where caches hold the rest: its variation stands for them."""
        return self.input_lengths if self.prefix_hits() is None else ()

    def with_fetches(self, done: Pass, tokens: Array) -> Pass:
        """A step of so many prompt tokens, with what its prompts find elsewhere brought beside its layers."""
        hits = self.prefix_hits()
        if hits is None:
            return done
        begin = tokens / self.computed_tokens()
        some = at_most(begin, 1.0)
        busy = (1 - some) * done.busy_s + some * maximum(done.busy_s, at_least(begin, 1.0) * hits.fetch_s)
        busy = maximum(busy, tokens * hits.write_s)
        exposed = done.exposed_s | {"offload": done.exposed_s["offload"] + busy - done.busy_s}
        energy = done.energy_j + begin * hits.fetch_j + tokens * hits.write_j
        return dataclasses.replace(done, busy_s=busy, exposed_s=exposed, energy_j=energy)

    @computed_once
    def context(self) -> Array:
        """Mean context of a decoding sequence: long answers are met more often, E[I O]/E[O] + E[O^2]/(2 E[O])."""
        prompt = self.prompt_tokens() * at_least(1 + self.correlation * self.input_cv * self.output_cv, 0.0)
        return prompt + 0.5 * self.output_tokens * (1 + self.output_cv**2)

    @computed_once
    def attended(self) -> Array:
        """Mean keys of a prompt token that is computed: E[I^2]/(2 E[I]), the cached part before them."""
        hits = self.prefix_hits()
        if hits is not None:
            return hits.keys * self.prompt_tokens()
        before = keys_before(self.cached_ratio, self.retained_share)
        return 0.5 * (1 + before) * self.prompt_tokens() * (1 + self.input_cv**2)

    def laid_out(self, layout: Layout) -> Layout:
        """With the rhythm of steps."""
        return Layout(layout.plan, layout.devices, self.rhythm(layout))

    def rhythm(self, layout: Layout) -> Rhythm:
        """Rhythm of steps: what they carry, by the plan alone."""
        if layout.rhythm is not None:
            return layout.rhythm
        plan = layout.plan
        steps = (self.output_tokens - 1) / self.accepted_tokens
        tokens = self.computed_tokens()
        decodes = self.clients_of_group(layout) / self.overload(layout)
        varies, kinds = self.computed_cv(), self.computed_lengths()
        together = 1 + 2 * self.admission_steps * decodes / steps  # prompts that are admitted at once
        batches = jnp.maximum(decodes / together, jnp.minimum(decodes, 1.0))
        size, spread = tokens * (decodes / batches), varies / jnp.sqrt(together)
        state = steady_state(batches, steps, size, spread, plan.token_budget, kinds=kinds)
        groups = jnp.where(self.admission_steps > 0, 1.0, self.step_groups(layout))
        mixed, met = (
            jnp.where(groups > 1, 1 - at_least(1 - own, 0.0) * at_least(1 - state.share, 0.0) ** (groups - 1), own)
            for own in (state.share, state.met)
        )
        return Rhythm(state, at_least(decodes, 1.0), steps, mixed, met, state.tokens * state.share / mixed)

    def step_groups(self, layout: Layout) -> Array:
        """Attention groups that step together: those of all replicas that share experts."""
        return layout.plan.attention_dp * (at_least(layout.sharing, 1.0) if self.model.has_experts else 1.0)

    def company(self, layout: Layout, decodes: Array) -> GroupPrompts:
        """Prompts that groups that step together bring each other, where each decodes so many sequences [n]."""
        rhythm, groups = self.rhythm(layout), self.step_groups(layout)
        varies, kinds = self.computed_cv(), self.computed_lengths()
        state = steady_state(
            decodes, rhythm.steps, self.computed_tokens(), varies, layout.plan.token_budget, kinds=kinds
        )
        share = at_least(state.share, 1e-6)  # steps of which all or none have prompts keep finite slopes
        idle = at_least(1 - share, SOME_IDLE)
        nobody = idle ** at_least(groups - 1, 0.0)
        alike = jnp.where(groups > 1, share / (1 - idle * nobody), 1.0)
        return GroupPrompts(1 - nobody, state.tokens * jnp.ones_like(decodes), alike, idle)

    def clients_of_group(self, layout: Layout) -> Array:
        """Requests that are open at a time in one attention group, on one stage of the pipeline."""
        plan = layout.plan
        return at_least(plan.micro_batch / (plan.pp * plan.attention_dp), 1.0)

    def overload(self, layout: Layout) -> Array:
        """Open requests for each decoded sequence; 1 where steps have room for all prompts."""
        del layout
        return jnp.asarray(1.0)

    def sequences(self, layout: Layout) -> Array:
        """Sequences that are decoded at a time on all devices."""
        return layout.plan.micro_batch * layout.dp / self.overload(layout)

    @computed_once
    def mixed_step(self, layout: Layout) -> MixedStep:
        """The operations of a step with prompts."""
        plan, rhythm = layout.plan, self.rhythm(layout)
        tokens = rhythm.state.tokens / plan.cp
        prompts = at_least(rhythm.state.tokens / self.computed_tokens(), 1.0)
        keys = self.attended() + 0.5 * rhythm.state.tokens / prompts
        return MixedStep(
            self.model, self.precision, rhythm.decodes, self.verified_tokens, self.context() / plan.cp,
            tokens, prompts, keys, rhythm.shared_tokens / plan.cp, self.images_of(tokens), self.drafted(),
        )  # fmt: skip

    @computed_once
    def decode_step(self, layout: Layout) -> MixedStep:
        """The operations of a step without prompts."""
        mixed, none = self.mixed_step(layout), jnp.asarray(0.0)
        return MixedStep(
            self.model, self.precision, mixed.decodes, mixed.queries, mixed.context, none, jnp.asarray(1.0), none, none,
            drafted=mixed.drafted,
        )  # fmt: skip

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Phases `decode` and `mixed`: one step of each kind on one stage."""
        layers, rhythm = self.layers_per_stage(layout), self.rhythm(layout)
        answers = rhythm.decodes * self.verified_tokens
        first = rhythm.shared_tokens / self.computed_tokens()  # prompts that end in a mixed step
        groups = layout.plan.attention_dp
        plain, mixed = self.decode_step(layout), self.mixed_step(layout)
        ops = plain.lower(layout, layers, groups * answers, phase="decode", mixed=False)
        ops += mixed.lower(layout, layers, groups * (answers + first), phase="mixed", mixed=True)
        return (*ops, self.cache_in(layout, plain, "decode"), self.cache_in(layout, mixed, "mixed", prompts=True))

    def cache_in(self, layout: Layout, step: MixedStep, phase: str, *, prompts: bool = False) -> Op:
        """Transfer of a step's cache from the second tier; what it writes goes the other way at once."""
        nbytes = step.decodes * self.kv_bytes(layout, step.context * layout.plan.cp)
        if prompts:
            nbytes = nbytes + step.prompts * self.kv_bytes(layout, step.keys)
        return TransferOp("cache_in", phase, layout.plan.offload_kv_cache * nbytes, jnp.asarray(1.0))

    def kept_near(self, layout: Layout) -> Array:
        """Share of the cache in the first memory: what is not offloaded, and two layers of what is."""
        afar = layout.plan.offload_kv_cache
        return 1 - afar + afar * self.two_layers(layout)

    def step_s(self, done: Pass, layout: Layout) -> Array:
        """A whole step: the stage, the head and what the engine adds."""
        decodes = self.rhythm(layout).decodes
        return self.with_host_s(self.device_s(done, decodes, layout), decodes)

    def device_s(self, done: Pass, decodes: Array, layout: Layout) -> Array:
        """Accelerator seconds of a step: kernels, drafting, token sampling."""
        return (done.busy_s + done.edge_s) * (1 + self.draft_ratio) + self.unlisted_s(decodes, layout)

    def host_s(self, decodes: Array) -> Array:
        """The engine's own time of a step of so many sequences."""
        return self.step_overhead_s + self.sequence_overhead_s * decodes

    def with_host_s(self, device_s: Array, decodes: Array) -> Array:
        """A step of the device with the engine's own time after it, or beside it."""
        host = self.host_s(decodes)
        return maximum(device_s, host) if self.async_scheduling else device_s + host

    def overhead_s(self, done: Pass, layout: Layout) -> Array:
        """Overhead of a step: drafting and the engine's own time, as far as it is exposed."""
        if self.async_scheduling:
            return self.step_s(done, layout) - done.busy_s - done.edge_s
        decodes = self.rhythm(layout).decodes
        return (done.busy_s + done.edge_s) * self.draft_ratio + (
            self.host_s(decodes) + self.unlisted_s(decodes, layout)
        )

    def unlisted_s(self, decodes: Array, layout: Layout) -> Array:
        """Kernel seconds of a step of so many sequences that no operation stands for."""
        choosing = self.sampling_s * self.model.vocab * decodes * self.verified_tokens
        has_experts = hasattr(self.model.feed_forward, "experts")
        return choosing + self.expert_layer_s * self.layers_per_stage(layout) if has_experts else choosing

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Shares of both kinds of steps; see the class."""
        plan, rhythm = layout.plan, self.rhythm(layout)
        plain = one_pass(priced, "decode", plan, self.kernel_slowdown, self.launch_s)
        mixed = one_pass(priced, "mixed", plan, self.kernel_slowdown, self.launch_s)
        mixed = self.with_fetches(mixed, rhythm.state.tokens)
        f0, f1 = self.step_s(plain, layout), self.step_s(mixed, layout)
        mixed_share, met = rhythm.mixed * rhythm.state.counted, self._met(layout)
        step = (1 - mixed_share) * f0 + mixed_share * f1
        tpot = plan.pp * ((1 - met) * f0 + met * f1) / self.accepted_tokens
        worked = self._waiting(layout, f0, f1) + (plan.pp - 1) * f1
        ttft = self.first_s(worked) + self._later_s(layout, worked, tpot) + self.admission_steps * plan.pp * f0
        if self.async_scheduling:
            ttft = ttft + plan.pp * step
        rounds = rhythm.steps * plan.pp
        time, sequences = rounds * step, self.sequences(layout)
        often = self.repeats(layout)
        energy = sum(often[name] * done.energy_j for name, done in (("decode", plain), ("mixed", mixed)))
        return Timeline(
            time, self._breakdown({"decode": plain, "mixed": mixed}, often, layout), energy,
            sequences * self.output_tokens, sequences * self._flops(),
            self._extra(layout, ttft, tpot, time), self._billed(sequences, mixed_share * (f1 - f0) / step),
            working_s=rounds * self.unlisted_s(rhythm.decodes, layout),
        )  # fmt: skip

    def _met(self, layout: Layout) -> Array:
        """Share of a sequence's decode steps that count as steps with prompts."""
        rhythm = self.rhythm(layout)
        return rhythm.met * rhythm.state.counted

    def _waiting(self, layout: Layout, f0: Array, f1: Array) -> Array:
        """From the arrival of a request to its first token, on one stage; another stage's prompts are on the way."""
        state = self.rhythm(layout).state
        own = state.own_steps * (state.own_counted * f1 + (1 - state.own_counted) * f0)
        return own + self._steps_before(layout, state) * f1

    def _steps_before(self, layout: Layout, state: SteadyState) -> Array:
        """Steps with prompts of others that a request waits for."""
        del layout
        return state.waiting_steps

    def _later_s(self, layout: Layout, worked: Array, tpot: Array) -> Array:
        """Delay of the first token by other clients, for a request that is `worked` on until then, seconds."""
        del layout, tpot
        return 0.0 * worked

    def _breakdown(self, passes: dict[str, Pass], often: dict[str, Array], layout: Layout) -> dict[str, Array]:
        """Parts of the time of one answer."""
        result = {name: often[name] * done.compute_s for name, done in passes.items()}
        result |= {axis: jnp.asarray(0.0) for axis in (*passes["decode"].exposed_s, "head", "overhead")}
        for name, done in passes.items():
            for axis, exposed in done.exposed_s.items():
                result[axis] = result[axis] + often[name] * exposed
            result["head"] = result["head"] + often[name] * done.edge_s
            result["overhead"] = result["overhead"] + often[name] * self.overhead_s(done, layout)
        return result

    def _flops(self) -> Array:
        """FLOPs of one request that the model itself needs."""
        prompt = self.computed_tokens() * self.model.forward_flops_per_token(self.attended())
        prompt = prompt + self.encoder_flops() * (1 - self.found_ratio())
        return prompt + (self.output_tokens - 1) * self.model.forward_flops_per_token(self.context())

    def _extra(self, layout: Layout, ttft: Array, tpot: Array, time: Array) -> dict[str, Array]:
        sequences = self.sequences(layout)
        requests = sequences / time
        hits = self.prefix_hits()
        return ({} if hits is None else hits.metrics()) | {
            "ttft_s": ttft, "tpot_s": tpot, "e2e_s": ttft + (self.output_tokens - 1) * tpot,
            "decode_tokens_per_s": sequences / tpot, "tokens_per_s_per_user": 1 / tpot,
            "tokens_per_s_per_device": requests * self.output_tokens / layout.devices,
            "requests_per_s": requests, "concurrency": sequences + requests * ttft,
            "hybrid_step_share": self.rhythm(layout).mixed, "prefill_utilisation": self.rhythm(layout).state.load,
        }  # fmt: skip

    def _billed(self, sequences: Array, prompts: Array) -> dict[str, tuple[Array, Array]]:
        """Prompts pay for what they add to the time of steps, answers for the rest."""
        share = jnp.maximum(prompts, 0.0)
        return {
            "input": (share, sequences * self.prompt_tokens()),
            "output": (1 - share, sequences * self.output_tokens),
        }

    @computed_once
    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Steps of each kind while one answer is decoded."""
        rhythm = self.rhythm(layout)
        rounds, counted = rhythm.steps * layout.plan.pp, rhythm.mixed * rhythm.state.counted
        return {"decode": rounds * (1 - counted), "mixed": rounds * counted}

    def kv_bytes(self, layout: Layout, tokens: Array) -> Array:
        """Key-value cache of a sequence of `tokens` on one device."""
        tp = layout.plan.tp / layout.plan.attention_dp
        held = self.model.attention.cache_bytes(tokens / layout.plan.decode_cp, tp, self.precision)
        layers = self.layers_per_stage(layout) + (self.model.predicts_ahead if self.own_drafts else 0)
        return held * layers / layout.plan.cp

    def kv_bytes_per_token(self, layout: Layout) -> Array:
        """Key-value cache of one token of a mean sequence on one device."""
        return self.kv_bytes(layout, self.context()) / self.context()

    def held_tokens(self, layout: Layout) -> Array:
        """Cached tokens of one attention group: of decoding sequences with their blocks, and of prompts under way."""
        prompts = self.rhythm(layout).state.share * self.prompt_tokens() * (1 + self.input_cv**2)
        return self.decoding_tokens(layout) + prompts

    def decoding_tokens(self, layout: Layout) -> Array:
        """Tokens in an attention group's cache without prompts: decoding sequences, and sessions between turns."""
        idle = (
            self.retained_share
            * self.idle_sessions
            * (self.prompt_tokens() + self.output_tokens + 0.5 * self.block_tokens)
        )
        return self.rhythm(layout).decodes * layout.plan.pp * (self.context() + 0.5 * self.block_tokens + idle)

    def weight_bytes(self, layout: Layout) -> Array:
        """Weights of the fullest stage with its part of embedding and head."""
        layers, plan = self.layers_per_stage(layout), layout.plan
        nbytes = held_weight_bytes(self.weight_block(layout), layers, self.model, self.precision, plan)
        return sum(self.loaded_ahead(layout).values(), nbytes)

    def weight_block(self, layout: Layout) -> list[BlockOp]:
        """Operations of an average layer, with the weights that a device holds of it."""
        return self.decode_step(layout).layer_ops(layout)

    def profile_tokens(self, layout: Layout) -> Array:
        """Tokens of the largest step of a group: a full token budget beside decodes."""
        decodes = at_least(layout.plan.micro_batch / (layout.plan.pp * layout.plan.attention_dp), 1.0)
        return self.engine_memory.profiled(layout.plan.token_budget + decodes * self.verified_tokens)

    def profiled_block(self, layout: Layout, tokens: Array) -> list[BlockOp]:
        """Operations of an average layer in a step of so many prompt tokens, as a device of the engine keeps them."""
        return self.full_step(layout, tokens).layer_ops(layout)

    def full_step(self, layout: Layout, tokens: Array) -> MixedStep:
        """A step of so many prompt tokens in each group, as an engine runs it to see its memory."""
        one, none = jnp.asarray(1.0), jnp.asarray(0.0)
        return MixedStep(self.model, self.precision, none, one, one, tokens, one, one, tokens)

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Weights, key-value cache of all that is under way, and what the engine keeps beside."""
        weights = self.weight_bytes(layout)
        two_layers = self.two_layers(layout)
        token, result = self.kv_bytes_per_token(layout), self.found_ratio() * self.prompt_tokens()
        cache, begun = token * self.held_tokens(layout), dict[str, tuple[Array, Array]]()
        if self.distinct_prefixes is not None:  # kept once each, not in each sequence
            own = at_most(result, self.context())
            cache = cache - token * own * self.rhythm(layout).decodes * layout.plan.pp
            once = token * result * self.distinct_prefixes
            begun = {"shared_prefixes": (once, once)}
        tokens, plan = self.profile_tokens(layout), layout.plan
        rows = plan.micro_batch / (plan.pp * plan.attention_dp) * self.verified_tokens
        beside = self.engine_bytes(self.profiled_block(layout, tokens / plan.cp), tokens / plan.cp, rows)
        kept = {"weights": (weights, weights * two_layers), "kv_cache": (cache, cache * two_layers)}
        return kept | begun | {name: (nbytes, nbytes) for name, nbytes in beside.items()}

    def memory_moments(self, layout: Layout) -> Moments:
        """Memory moments of an engine that prefills beside decodes."""
        rows = at_least(layout.plan.micro_batch / (layout.plan.pp * layout.plan.attention_dp), 1.0)
        rows = rows * self.verified_tokens
        return self.moments_of(self.footprint(layout), self.profiled_block(layout, rows), rows)

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Divisibility, no stage or group without work, prompts that keep up, and what the engine runs."""
        return batching_violations(self, layout) | self.layouts.violations(self.model, layout.plan)

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """Prompts that pile up, parts without a sequence, groups that no engine or this engine does not run."""
        return self.layouts.broken(rule, self.model, layout.plan) or broken_batching(self, rule, layout)

    @classmethod
    def example(cls) -> "AbstractContinuousServing":
        """Prompts of 512 tokens, answers of 64."""
        return cls(Transformer.example(), 512.0, 64.0)


ROUNDING = 1e-9  # of the room for prompts, so that steps that are full break no rule by it


class ContinuousServing(AbstractContinuousServing):
    """Prompts beside decodes on the same accelerators: see `AbstractContinuousServing`.

    Where `clients` of a closed loop stay in step (`Lockstep`), a request waits for a of their prompts, I / q of a step
    with q prompt tokens each, if that is more than w, and meets as many less between tokens:

        TTFT = (k + max(w, a I / q)) f1        TPOT = (1 - m (1 - a / B)) f0 + m (1 - a / B) f1

    Where prompts ask for more than steps take, rho = B I / (c L) > 1 with c prompt tokens a step and L steps of an
    answer, every step is full and a cycle takes rho L of them. B / rho sequences are decoded at a time, the other
    clients wait for their prompts:

        TTFT = max(k, (rho - 1) L) f1        TPOT = (1 - m) f0 + m f1,  m = min(1, (B - 1) k / L)
    """

    clients: Lockstep = eqx.field(default_factory=Lockstep)

    def _before(self, layout: Layout) -> Array:
        return self.clients.prompts_before(layout.plan.micro_batch, (self.input_cv > 0) | (self.output_cv > 0))

    def overload(self, layout: Layout) -> Array:
        """Clients for each decoded sequence; above 1 where they queue for prefill."""
        steps = (self.output_tokens - 1) / self.accepted_tokens
        load = self.clients_of_group(layout) * self.computed_tokens() / (steps * layout.plan.token_budget)
        return at_least(load / (FULLEST - ROUNDING), 1.0)

    def _met(self, layout: Layout) -> Array:
        rhythm = self.rhythm(layout)
        apart = 1 - self._before(layout) / at_least(layout.plan.micro_batch, 1.0)
        others = (self.clients_of_group(layout) - 1) * rhythm.state.own_steps / rhythm.steps
        return jnp.where(self.overload(layout) > 1, at_most(others, 1.0), super()._met(layout) * apart)

    def _waiting(self, layout: Layout, f0: Array, f1: Array) -> Array:
        over, rhythm = self.overload(layout), self.rhythm(layout)
        cycle = jnp.maximum((over - 1) * rhythm.steps * layout.plan.pp, rhythm.state.own_steps)
        return jnp.where(over > 1, cycle * f1, super()._waiting(layout, f0, f1))

    def _steps_before(self, layout: Layout, state: SteadyState) -> Array:
        together = self._before(layout) * self.computed_tokens() / state.tokens
        return jnp.maximum(super()._steps_before(layout, state), layout.plan.pp * together)

    def _later_s(self, layout: Layout, worked: Array, tpot: Array) -> Array:
        served = self.first_s(worked) - self.received_s() + (self.output_tokens - 1) * tpot
        return self.clients.later_s(layout.plan.micro_batch, served)
