"""Serving from two pools: prompts on accelerators of their own, decodes on the others; or both together."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import quantity
from ..smooth import at_least, at_most, maximum
from .continuous import AbstractContinuousServing
from .lowering import indivisible, weights_held
from .mixed_step import MixedStep
from .ops import HANDOVER, CommOp, Op
from .plan import Layout
from .schedule import Pass, Priced, Timeline, one_pass, total
from .steady_state import chunks, whole_chunks


class CutPrompt(NamedTuple):
    """How an engine of the prefill pool cuts up a mean prompt: whole steps, and one with the rest of its tokens.

    tokens of a whole step, how many there are; tokens of the rest, in what share of prompts there is one.
    """

    tokens: Array
    whole: Array
    rest_tokens: Array
    rest: Array

    def largest(self) -> Array:
        """Tokens of its largest step."""
        return jnp.where(self.whole > 0, self.tokens, self.rest_tokens)


class DisaggregatedServing(AbstractContinuousServing):
    """As `ContinuousServing`, where `plan.prefill_devices` accelerators beside (`Cluster.prefill`) compute prompts.

    Each of their x engines (`prefill_tp` x `prefill_pp` devices) takes one prompt at a time, in steps of `plan.chunk`
    tokens, from one queue; its keys and values cross the pool's link, and a replica of the others decodes. With S the
    seconds that a prompt keeps an engine busy, D those of its last stages, T the crossing, f0 a step of B decodes, L
    steps an answer, y replicas, and rho = `plan.prefill_load` what an engine or its link may be busy:

        1 / rate = max(S / (rho x), T / (rho x), L f0 / (y B))              the pool that is full sets the rate
        TTFT = S + D + W                W = rho^(sqrt(2 (x + 1)) - 1) / (x (1 - rho)) S (a^2 + v^2) / 2
        TPOT = (f0 + (T + f0 / 2) (1 + u^2) / L) / accepted_tokens

    a, v, u are the variations of gaps between arrivals, prompts and answers. All factors are constants of the plan, so
    that times stay sums and maxima of step times, log-convex in the hardware of both pools. Where the other pool is
    full first, engines are busy for less than rho and the wait is shorter than is said. With `prefill_devices` = 0 it
    is `ContinuousServing`: both ways to serve stand in one space.

    Assumes: seconds of a prompt in proportion to its length; links that hold nobody up below rho; devices of both ends
    of a crossing send and take at the same rate; rests of prompts are alike.
    Source: [sakasegawa1977]; two pools [zhong2024]; held against `simulation.serving.simulate_apart`.
    """

    two_pools: ClassVar[bool] = True

    gap_cv: Float[Array, "*b"] = quantity(high=10.0, default=1.0, doc="variation of gaps between arrivals")

    def prompt(self, layout: Layout) -> CutPrompt:
        """See `CutPrompt`; constants of the plan."""
        tokens, chunk = self.computed_tokens(), layout.plan.chunk
        whole = whole_chunks(tokens, self.input_cv, chunk)
        rest = at_least(chunks(tokens, self.input_cv, chunk) - whole, 0.0)
        left = at_least(tokens - whole * chunk, 0.0) / jnp.where(rest > 0, rest, 1.0)
        return CutPrompt(chunk, whole, at_least(left, 1.0), rest)

    def prompt_step(self, tokens: Array) -> MixedStep:
        """A step of so many tokens of one prompt."""
        none, one = jnp.asarray(0.0), jnp.asarray(1.0)
        keys = self.attended() + 0.5 * tokens
        return MixedStep(self.model, self.precision, none, one, one, tokens, one, keys, tokens)

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Phases `decode` and `mixed` here; `prefill`, `prefill_rest` and `handover` on and from the pool beside."""
        pool, cut = layout.prefill, self.prompt(layout)
        layers, ops = self.layers_per_stage(pool), list(super().lower(layout))
        for phase, tokens in (("prefill", cut.tokens), ("prefill_rest", cut.rest_tokens)):
            ended = at_most(tokens / self.computed_tokens(), 1.0)
            step = self.prompt_step(tokens)
            ops += step.lower(pool, layers, ended, phase=phase, mixed=True, decodes=False)
        cache = maximum(self.kv_bytes(pool, self.input_tokens), self.kv_bytes(layout, self.input_tokens))
        return (*ops, CommOp("cache", "send", "pools", HANDOVER, cache, jnp.asarray(1.0)))

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Together or apart, as the plan says."""
        together, apart = super().timeline(priced, layout), self._apart(priced, layout)
        extra = {name: together.extra.get(name, jnp.asarray(0.0)) for name in apart.extra}
        breakdown = {name: together.breakdown_s.get(name, jnp.asarray(0.0)) for name in apart.breakdown_s}
        together = Timeline(
            together.time_s, breakdown, together.energy_j, together.tokens, together.model_flops, extra,
            together.billed, working_s=together.working_s,
        )  # fmt: skip
        two = layout.plan.prefill_devices > 0
        return jax.tree.map(lambda one, other: jnp.where(two, other, one), together, apart)

    def _apart(self, priced: Priced, layout: Layout) -> Timeline:
        """The pool that is full first paces both."""
        plan, pool, cut, load = layout.plan, layout.prefill, self.prompt(layout), layout.plan.prefill_load
        plain = one_pass(priced, "decode", plan, self.kernel_slowdown, self.launch_s)
        f0, crossing = self.step_s(plain, layout), total(priced, HANDOVER, CommOp)
        whole, rest = (
            one_pass(priced, phase, pool.plan, self.kernel_slowdown, self.launch_s)
            for phase in ("prefill", "prefill_rest")
        )
        seconds = [self._prompt_step_s(one) for one in (whole, rest)]
        busy = cut.whole * seconds[0] + cut.rest * seconds[1]
        stage = jnp.where(cut.whole > 0, *seconds)
        sequences, engines = plan.micro_batch * layout.dp, pool.dp
        rounds = self.rhythm(layout).steps * plan.pp
        paced = sequences / (load * engines) * maximum(busy, crossing.time_s)
        time = maximum(rounds * f0, paced)
        late = load ** (jnp.sqrt(2 * (engines + 1)) - 1) / (engines * (1 - load))
        ttft = (1 + late * 0.5 * (self.gap_cv**2 + self.input_cv**2)) * busy + (pool.plan.pp - 1) * stage
        ttft = ttft + self.first_overhead_s()
        once = (1 + self.output_cv**2) / self.rhythm(layout).steps
        seen = 1.5 if self.asynchronous else 0.5  # steps that run before the one that it joins
        tpot = (plan.pp * f0 * (1 + seen * once) + crossing.time_s * once) / self.accepted_tokens
        beside = sequences / engines * (cut.whole * whole.energy_j + cut.rest * rest.energy_j + crossing.energy_j)
        parts = self._breakdown({"decode": plain, "mixed": plain}, {"decode": rounds, "mixed": 0.0 * rounds}, layout)
        extra = self._extra(layout, ttft, tpot, time)
        extra |= {"mixed_ratio": jnp.asarray(0.0), "prompt_load": load * paced / time}
        extra["concurrency"] = sequences * rounds * f0 / time + extra["requests_per_s"] * ttft
        extra["tokens_per_s_per_device"] *= layout.devices / (layout.devices + plan.prefill_devices)
        extra |= {"prefill_busy": load * paced / time, "decode_busy": rounds * f0 / time}
        extra["link_busy"] = sequences / engines * crossing.time_s / time
        parts["unmatched"] = time - rounds * f0
        return Timeline(
            time, parts, rounds * plain.energy_j, sequences * self.output_tokens, sequences * self._flops(), extra,
            self._billed(sequences, jnp.asarray(0.0)), beside,
            working_s=rounds * self.unlisted_s(self.rhythm(layout).decodes, layout),
        )  # fmt: skip

    def _prompt_step_s(self, done: Pass) -> Array:
        """A step of an engine of the prefill pool on one stage."""
        device = done.busy_s + done.edge_s
        return maximum(device, self.step_overhead_s) if self.asynchronous else device + self.step_overhead_s

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Steps of each kind while one answer is decoded."""
        two, cut, together = layout.plan.prefill_devices > 0, self.prompt(layout), super().repeats(layout)
        prompts = jnp.where(two, layout.plan.micro_batch * layout.dp / layout.prefill.dp, 0.0)
        rounds = self.rhythm(layout).steps * layout.plan.pp
        return {
            "decode": jnp.where(two, rounds, together["decode"]), "mixed": jnp.where(two, 0.0, together["mixed"]),
            "prefill": prompts * cut.whole, "prefill_rest": prompts * cut.rest, HANDOVER: prompts,
        }  # fmt: skip

    def held_tokens(self, layout: Layout) -> Array:
        """As its base; prompts under way are the other pool's where there is one."""
        both = super().held_tokens(layout)
        decodes = self.rhythm(layout).decodes * layout.plan.pp * (self.context() + 0.5 * self.block_tokens)
        return jnp.where(layout.plan.prefill_devices > 0, decodes, both)

    def prefill_bytes(self, layout: Layout) -> dict[str, Array]:
        """Weights, the cache of a prompt that is computed and of one that is sent, activations of a step."""
        pool, step = layout.prefill, self.prompt_step(self.prompt(layout).largest())
        layers = self.layers_per_stage(pool)
        block, widest = step.layer_ops(pool), jnp.asarray(0.0)
        for op in block:
            widest = at_least(widest, op.stored_bytes)
        held = weights_held(block, layers, expert=False) + weights_held(block, layers, expert=True)
        single = jnp.where(pool.plan.pp > 1, 1.0, 2 - self.model.tied_embeddings)
        weights = held + self.model.vocab * self.model.hidden / pool.plan.tp * single
        prompts = 2 * self.input_tokens * (1 + self.input_cv**2)
        found = {
            "weights": weights * self.precision.bytes_of("weights"),
            "kv_cache": self.kv_bytes_per_token(pool) * prompts, "working": 2 * widest + self.workspace_bytes,
        }  # fmt: skip
        return {name: jnp.where(layout.plan.prefill_devices > 0, nbytes, 0.0) for name, nbytes in found.items()}

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Rules of both pools; prompts fill no step where they have engines of their own."""
        rules, pool, two = super().violations(layout), layout.prefill, layout.plan.prefill_devices > 0
        experts = getattr(self.model.feed_forward, "experts", pool.plan.ep)
        engine = pool.plan.tp * pool.plan.pp
        beside = {
            "prefill_devices": indivisible(jnp.where(two, layout.plan.prefill_devices, engine), engine),
            "prefill_heads": indivisible(self.model.attention.heads, pool.plan.tp),
            "prefill_experts": indivisible(experts, pool.plan.ep) + indivisible(pool.dp, pool.plan.ep),
        }
        rules["prompts"] = jnp.where(two, 0.0, rules["prompts"])
        return rules | {name: jnp.where(two, value, 0.0) for name, value in beside.items()}

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """Devices of the prefill pool that make no whole engines."""
        pool = layout.prefill.plan
        engine = f"plan.prefill_tp {float(pool.tp):g} * plan.prefill_pp {float(pool.pp):g}"
        texts = {
            "prefill_devices": f"{engine} does not divide plan.prefill_devices = {float(layout.prefill_devices):g}",
            "prefill_heads": (
                f"plan.prefill_tp = {float(pool.tp):g} does not divide model heads ="
                f" {float(self.model.attention.heads):g}"
            ),
            "prefill_experts": (
                f"plan.prefill_ep = {float(pool.ep):g} must divide the model's experts and the"
                f" {float(layout.prefill.dp):g} engines of the pool"
            ),
        }
        return texts.get(rule) or super().broken_rule(rule, layout)
