"""A pool of accelerators that computes prompts for others that decode: steps, memory, rules, and the way of a cache."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...core.smooth import at_least, maximum
from .continuous import AbstractContinuousServing
from .lowering import held_weight_bytes, indivisible, unspread
from .mixed_step import MixedStep
from .ops import KV_TRANSFER, CommOp, Op
from .plan import AbstractModelPlan, Layout
from .schedule import Pass, Priced, Timeline, one_pass
from .steady_state import chunks, whole_chunks

__all__ = ["AbstractPromptPool", "CutPrompt", "either"]


class CutPrompt(NamedTuple):
    """Steps of a mean prompt that is alone on an engine of the prefill pool: whole steps, and one with the rest.

    tokens of a whole step, how many there are; tokens of the rest, in what share of prompts there is one; how many
    prompts a whole step has room for, at least one; how many whole steps a prompt takes where all steps are.
    """

    tokens: Array
    whole: Array
    rest_tokens: Array
    rest: Array
    room: Array
    filled: Array

    def largest(self) -> Array:
        """Tokens of its largest step."""
        return jnp.where(self.whole > 0, self.tokens, self.rest_tokens)

    def steps(self, load: Array) -> tuple[Array, Array]:
        """Whole steps and rests that an engine runs for a prompt, where so much of its steps is filled."""
        together = 1 + load * (self.room - 1)
        return ((1 - load) * self.whole + load * self.filled) / together, (1 - load) * self.rest / together


class AbstractPromptPool(AbstractContinuousServing):
    """Continuous batching whose prompts may have `plan.prefill_devices` accelerators beside (`Cluster.prefill`).

    Each engine of that pool (`prefill_tp` x `prefill_pp` devices) takes prompts first come first served, in steps of up
    to `prefill_token_budget` tokens (`token_budget`, where that is 0): of one that is long, of several that are short,
    and the rest of one beside the start of the next. With `prefill_attention_dp` groups of its tensor ranks it does so
    for each of them: they attend apart and step together (see `together`). With `prefill_devices` = 0 prompts are
    computed beside decodes.

    Alone a prompt takes `CutPrompt.whole` steps and a rest, where all steps are full `CutPrompt.filled` steps; how many
    of either an engine runs at a load is `CutPrompt.steps`.
    """

    two_pools: ClassVar[bool] = True

    def prompt(self, layout: Layout) -> CutPrompt:
        """See `CutPrompt`; constants of the plan."""
        tokens, chunk = self.computed_tokens(), layout.prefill.plan.token_budget
        whole = whole_chunks(tokens, self.computed_cv(), chunk, self.input_lengths)
        rest = at_least(chunks(tokens, self.computed_cv(), chunk, self.input_lengths) - whole, 0.0)
        left = at_least(tokens - whole * chunk, 0.0) / jnp.where(rest > 0, rest, 1.0)
        return CutPrompt(
            chunk, whole, at_least(left, 1.0), rest, at_least(chunk / tokens, 1.0), at_least(tokens / chunk, 1.0)
        )

    def prompt_engines(self, layout: Layout) -> Array:
        """Concurrent steps of the prefill pool: one for each attention group."""
        return layout.prefill.dp * layout.prefill.plan.attention_dp

    def together(self, layout: Layout) -> Array:
        """Share of an engine's attention groups that have a prompt in a step that carries any, at the pool's load."""
        groups = layout.prefill.plan.attention_dp
        return (1 + (groups - 1) * layout.plan.prefill_max_utilisation) / groups

    def prompt_step(self, layout: Layout, tokens: Array, attended: Array | None = None) -> MixedStep:
        """A step of so many tokens, of as many prompts as these are of, each of which attends the mean keys or those
        given."""
        none, one = jnp.asarray(0.0), jnp.asarray(1.0)
        prompts, shared = at_least(tokens / self.computed_tokens(), 1.0), self.together(layout)
        keys = (self.attended() if attended is None else attended) + 0.5 * tokens / prompts
        return MixedStep(
            self.model, self.precision, none, one, one, tokens, prompts, keys, shared * tokens,
            self.images_of(tokens), self.drafted(),
        )  # fmt: skip

    def prompt_ops(self, layout: Layout, phase: str, tokens: Array, attended: Array | None = None) -> list[Op]:
        """Operations of such a step on one stage of the pool."""
        pool, step = layout.prefill, self.prompt_step(layout, tokens, attended)
        ended = pool.plan.attention_dp * self.together(layout) * tokens / self.computed_tokens()
        return step.lower(pool, self.layers_per_stage(pool), ended, phase=phase, mixed=True, decodes=False)

    def prompt_pass(self, priced: Priced, layout: Layout, phase: str) -> Pass:
        """One such step, priced."""
        return one_pass(priced, phase, layout.prefill.plan, self.kernel_slowdown, self.launch_s)

    def prompt_step_s(self, done: Pass) -> Array:
        """Its seconds on one stage."""
        device = done.busy_s + done.edge_s
        return maximum(device, self.step_overhead_s) if self.async_scheduling else device + self.step_overhead_s

    def steps_before(self) -> float:
        """Decode steps that run before the one that a cache from the pool joins."""
        return 1.5 if self.async_scheduling else 0.5

    def kv_transfer(self, layout: Layout) -> Op:
        """The cache of a mean prompt on its way."""
        pool = layout.prefill
        cache = maximum(self.kv_bytes(pool, self.prompt_tokens()), self.kv_bytes(layout, self.prompt_tokens()))
        return CommOp("cache", "send", "pools", KV_TRANSFER, cache, jnp.asarray(1.0))

    def held_tokens(self, layout: Layout) -> Array:
        """Cached tokens of one attention group; prompts under way are the prefill pool's where there is one."""
        apart = layout.plan.prefill_devices > 0
        return jnp.where(apart, self.decoding_tokens(layout), super().held_tokens(layout))

    def prefill_bytes(self, layout: Layout) -> dict[str, Array]:
        """Weights, the cache of prompts that are computed and of those that are sent, activations of a full step."""
        pool, cut = layout.prefill, self.prompt(layout)
        tokens = self.engine_memory.profiled(cut.tokens) / pool.plan.cp
        layers = self.layers_per_stage(pool)
        block = self.full_step(pool, tokens).layer_ops(pool)
        weights = held_weight_bytes(block, layers, self.model, self.precision, pool.plan)
        weights = sum(self.loaded_ahead(pool).values(), weights)
        prompts = 2 * cut.room * self.prompt_tokens() * (1 + self.input_cv**2)
        beside = self.engine_bytes(block, tokens, cut.room)
        result = {"weights": weights, "kv_cache": self.kv_bytes_per_token(pool) * prompts} | beside
        return {name: jnp.where(layout.plan.prefill_devices > 0, nbytes, 0.0) for name, nbytes in result.items()}

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Rules of both pools; prompts fill no step where they have engines of their own."""
        rules, pool, two = super().violations(layout), layout.prefill, layout.plan.prefill_devices > 0
        experts = getattr(self.model.feed_forward, "experts", pool.plan.ep)
        engine = pool.plan.tp * pool.plan.pp
        devices = jnp.where(two, layout.plan.prefill_devices, engine)
        beside = {
            "prefill_devices": indivisible(devices, engine),
            "prefill_attention_groups": indivisible(pool.plan.tp, pool.plan.attention_dp),
            "prefill_heads": indivisible(
                self.model.attention.heads, at_least(pool.plan.tp / pool.plan.attention_dp, 1.0)
            ),
            "prefill_experts": unspread(experts, pool.plan.ep) + indivisible(devices / engine, pool.plan.ep),
        }
        beside |= {f"prefill_{name}": value for name, value in self.layouts.violations(self.model, pool.plan).items()}
        if "prompts" in rules:
            rules["prompts"] = jnp.where(two, 0.0, rules["prompts"])
        return rules | {name: jnp.where(two, value, 0.0) for name, value in beside.items()}

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """Devices of the prefill pool that make no whole engines."""
        pool = layout.prefill.plan
        engine = f"plan.prefill_tp {float(pool.tp):g} * plan.prefill_pp {float(pool.pp):g}"
        texts = {
            "prefill_devices": f"{engine} does not divide plan.prefill_devices = {float(layout.prefill_devices):g}",
            "prefill_attention_groups": (
                f"plan.prefill_attention_dp = {float(pool.attention_dp):g} does not divide plan.prefill_tp ="
                f" {float(pool.tp):g}"
            ),
            "prefill_heads": (
                f"plan.prefill_tp = {float(pool.tp):g}{_groups(pool)} does not divide model heads ="
                f" {float(self.model.attention.heads):g}"
            ),
            "prefill_experts": (
                f"plan.prefill_ep = {float(pool.ep):g} must be at most twice the model's experts and divide the"
                f" {float(layout.prefill_devices) / float(pool.tp * pool.pp):g} engines of the pool"
            ),
        }
        engine = (
            self.layouts.broken(rule.removeprefix("prefill_"), self.model, pool, "prefill_")
            if rule.startswith("prefill_engine")
            else None
        )
        return engine or texts.get(rule) or super().broken_rule(rule, layout)


def _groups(pool: AbstractModelPlan) -> str:
    """The attention groups of a pool, where it has several."""
    return f" / plan.prefill_attention_dp {float(pool.attention_dp):g}" if float(pool.attention_dp) > 1 else ""


def either(layout: Layout, together: Timeline, apart: Timeline) -> Timeline:
    """One of two ways to serve, by the plan; what only two pools have is 0 of one."""
    extra = {name: together.extra.get(name, jnp.asarray(0.0)) for name in apart.extra}
    breakdown = {name: together.breakdown_s.get(name, jnp.asarray(0.0)) for name in apart.breakdown_s}
    together = Timeline(
        together.time_s, breakdown, together.energy_j, together.tokens, together.model_flops, extra,
        together.billed, usage=together.usage, working_s=together.working_s,
    )  # fmt: skip
    two = layout.plan.prefill_devices > 0
    return jax.tree.map(lambda one, other: jnp.where(two, other, one), together, apart)
