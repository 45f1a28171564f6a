"""Serving from two pools: prompts on accelerators of their own, decodes on the others; or both together."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.smooth import TINY, at_least, at_most, maximum
from .continuous import AbstractContinuousServing
from .lowering import beyond, held_weight_bytes, indivisible, unspread_ranks
from .mixed_step import MixedStep
from .plan import AbstractModelPlan, Layout
from .schedule import KV_TRANSFER, CommOp, Op, Pass, Priced, Timeline, one_pass, total
from .steady_state import FULLEST, chunks, whole_chunks

__all__ = [
    "AbstractPromptPool",
    "AbstractTwoPools",
    "DisaggregatedServing",
    "PrefillStepTimes",
    "Waits",
    "either",
    "waits_of",
]


# A pool of accelerators that computes prompts for others that decode: steps, memory, rules, and the way of a cache.


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
        engine = pool.plan.tp * pool.plan.pp
        devices = jnp.where(two, layout.plan.prefill_devices, engine)
        beside = {
            "prefill_devices": indivisible(devices, engine),
            "prefill_attention_groups": indivisible(pool.plan.tp, pool.plan.attention_dp),
            "prefill_heads": indivisible(
                self.model.attention.heads, at_least(pool.plan.tp / pool.plan.attention_dp, 1.0)
            ),
            "prefill_layers": beyond(pool.plan.pp, at_least(self.model.layers, 1.0)),
            "prefill_experts": unspread_ranks(self.model, pool, devices / engine),
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
            "prefill_layers": (
                f"plan.prefill_pp = {float(pool.pp):g} exceeds model layers ="
                f" {float(self.model.layers):g}: a stage has one or more"
            ),
            "prefill_experts": (
                f"plan.prefill_ep = {float(pool.ep):g} must be at most twice the model's experts and divide the"
                f" {float(layout.prefill_devices) / float(pool.tp * pool.pp):g} engines of the pool"
                if not float(pool.etp)
                else f"plan: prefill_ep {float(pool.ep):g} * prefill_etp {float(pool.etp):g} ranks of experts are not"
                f" whole groups of prefill_tp {float(pool.tp):g} that divide the pool; prefill_etp is below prefill_tp"
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


# Waiting time of prompts for engines that fill their steps with as many as there is room for.
#
# A step takes s of its own and b for each prompt in it, N at most: T = s + b alone, P = s / N + b for each in full
# steps. x engines take prompts from one queue, each l of them a second. Those that come while all engines are at work
# are in the next step that begins, together: the more come, the longer are steps. With S a step and n prompts in it,
# a = l E[S] those that come between two ends of steps, none with probability p, r = l b, w the probability that all
# engines are at work, and z the squared variation of times between ends, 0 of one engine, (x - 1) / (x + 1) of
# engines that do not know of each other,
#
#     w = (a / E[n])^k,  k = sqrt(2 (x + 1)) - 1,  p = (1 + z a)^(-1 / z)
#     1 / E[n] = 1 - w + w (1 - p) / a,  E[S] = s + b E[n]
#     m = w E[n] / a,  c = 1 + z - 1 / x
#     E[S^2] = (s^2 + 2 s b E[n] + b^2 (1 - m (1 - p) + m a (g^2 + c a) + v^2 E[n])) / (1 - r^2 m / x)
#     G = w (c E[S] + E[S^2] / (x E[S])) (1 / (2 x) + r)
#
# G is the rest of a step that runs and what those add who come into the same step; g, v vary gaps between arrivals
# and prompts. Where N is large there is nothing else to wait for; where N = 1 it is the queue of prompts one after
# the other, Q(P); between them
#
#     W = (1 - 1 / N) (G - Q(b)) + Q(P) + B,    Q(t) = (l t)^k / (x (1 - l t)) t (g^2 + v^2) / 2
#     B = rho^(1 - 1 / x + k (2 - 1 / N)) phi F / (2 N),    rho = l P
#
# W is exact for one engine where N = 1 and no prompt has a rest; else it is near: G for one engine but for p alone,
# and by z and w for more. B is for those who share the last step of a prompt that is no multiple of a step, phi of
# them, in full steps of F. Chosen against 96 simulations, not derived: how W goes from one end to the other, the
# power of the load in B, and how W is drawn for percentiles (within a step where all engines are at work, else
# exponential).
#
# Source: closed form of this package, held against `simulation.serving.simulate_apart`; Q and w [sakasegawa1977].


ROUNDS = 8  # of the fixed point of E[n]; chosen against the same simulations


class PrefillStepTimes(NamedTuple):
    """Steps of an engine: seconds of a mean prompt alone, of one in full steps, of a full step; prompts in a full step,
    at least 1; share of prompts that are no multiple of a step."""

    alone_s: Array
    filled_s: Array
    step_s: Array
    room: Array
    rests: Array


class Waits(NamedTuple):
    """Mean seconds until a step begins and for those who share it, within its length; probability of waiting in a
    queue, mean seconds of those that do; share of full steps that is used: too much at 1."""

    gate_s: Array
    late: Array
    queue_s: Array
    load: Array

    @property
    def mean(self) -> Array:
        """Mean wait of all requests, seconds."""
        return self.gate_s + self.late * self.queue_s


def waits_of(steps: PrefillStepTimes, rate: Array, engines: Array, arrival_cv: Array, own_cv2: Array) -> Waits:
    """Waits of a prompt beyond the steps it takes alone.

    Args:
        steps: of one engine.
        rate: prompts/s of all engines.
        engines: how many there are.
        arrival_cv: variation of gaps between arrivals.
        own_cv2: squared variation of seconds of prompts.
    """
    asked = rate * steps.filled_s / engines
    each = at_most(asked, FULLEST) / steps.filled_s
    power, varied = jnp.sqrt(2 * (engines + 1)) - 1, arrival_cv**2 + own_cv2
    more = 1 - 1 / steps.room
    one = at_least((steps.filled_s - steps.alone_s / steps.room) / at_least(more, 1e-9), 0.0)
    one = at_most(at_most(one, steps.filled_s), steps.alone_s)
    start, load = steps.alone_s - one, each * one
    mixed = (engines - 1) / (engines + 1)
    apart, count = 1 + mixed - 1 / engines, at_least(each * start / (1 - load), 1.0)
    step = start + one * count
    for _ in range(ROUNDS):
        come = each * step
        waiting = at_most(come / count, 1.0) ** power
        count = 0.5 * (count + 1 / (1 - waiting + waiting * _some(come, mixed)))
        step = start + one * count
    come = each * step
    waiting = at_most(come / count, 1.0) ** power
    alone = 1 - count * waiting * _some(come, mixed)  # share of steps that begin when somebody comes
    even = count * waiting * (arrival_cv**2 + apart * come)
    square = start**2 + 2 * start * one * count + one**2 * (alone + even + own_cv2 * count)
    square = square / (1 - load**2 * count * waiting / (engines * come))
    gap = apart * step + square / (engines * step)
    gate = waiting * gap * (0.5 / engines + load)
    full = each * steps.filled_s
    late = full**power
    behind = full ** (1 - 1 / engines) * late ** (1 + more)  # a queue, not only engines at work
    beside = behind * steps.step_s * steps.rests / (2 * steps.room)
    gated = more * at_least(gate - load**power * _queue(one, load, engines, varied), 0.0)
    gate, queue = gated + beside, late * _queue(steps.filled_s, full, engines, varied)
    few = (1 - waiting) * gated  # of few who wait some wait long
    often = (late * queue + waiting * few) / at_least(queue + few, TINY)
    return Waits(gate - few, often, (queue + few) / at_least(often, TINY), asked)


def _some(come: Array, mixed: Array) -> Array:
    """Probability over mean of those who come between two ends of steps, that there are any."""
    few = come < 1e-6
    come = jnp.where(few, 1.0, come)
    log = jnp.where(mixed > 0, jnp.log1p(mixed * come) / jnp.where(mixed > 0, mixed, 1.0), come)
    return jnp.where(few, 1.0, -jnp.expm1(-log) / come)


def _queue(seconds: Array, load: Array, engines: Array, varied: Array) -> Array:
    """Mean wait of those that wait for an engine that takes one after the other."""
    return seconds / (engines * (1 - load)) * varied / 2


HALF = 0.5  # of a prompt alone: waits of prompts that share steps are met there and at all of it; chosen


class AbstractTwoPools(AbstractPromptPool):
    """Continuous serving with a prefill pool: `plan.prefill_devices` accelerators (`Cluster.prefill`) compute prompts.

    The x engines of that pool (`prefill_tp` x `prefill_pp` devices; x counts `prefill_attention_dp` groups) take
    prompts from one queue and fill steps of `prefill_token_budget` tokens with them, N at a time where prompts are
    short, else N = 1. Keys and values cross the pool's link, and a replica of the others decodes. With T the seconds
    that a prompt keeps an engine busy alone, F in steps that are full, D those of its last stages, C the crossing, f0 a
    step of B decodes, L steps an answer, y replicas, and rho = `plan.prefill_max_utilisation` how full steps of an
    engine, or its link, may be:

        1 / rate = max(F / (rho N x), C / (rho x), L f0 / (y B))            the pool that is full sets the rate
        TTFT = T + D + alpha T + beta F / N
        TPOT = (f0 + (C + f0 / 2) (1 + u^2) / L) / accepted_tokens

    u is the variation of answers. alpha and beta, of rho, N, x and the variations of prompts and gaps, are such that
    the wait is that of filled steps where a step takes all its time for prompts (F = N T) and where it takes half of
    T whatever is in it, or between both where it would fall from there; steps that stream weights alone are waited for
    longer than that, the more so the more prompts share them. All factors are constants of the plan, so that times stay
    sums and maxima of step times, log-convex in the hardware of both pools. Where the other pool is full first, steps
    are filled by less than rho: the wait is shorter, the energy of a prompt larger than is said. With `prefill_devices`
    = 0 it is `ContinuousServing`: both ways to serve stand in one space.

    Assumes: seconds of a prompt in proportion to its length; links that hold nobody up below rho; devices of both ends
    of a crossing send and take at the same rate; rests of prompts are alike; hosts of both pools receive a request, one
    after the other.
    Source: two pools [zhong2024]; held against `simulation.serving.simulate_apart`.
    """

    arrival_cv: Float[Array, "*b"] = quantity(high=10.0, default=1.0, doc="variation of gaps between arrivals")

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Phases `decode` and `mixed` here; `prefill`, `prefill_rest` and `kv_transfer` on and from the pool beside."""
        cut, ops = self.prompt(layout), list(super().lower(layout))
        for phase, tokens in (("prefill", cut.tokens), ("prefill_rest", cut.rest_tokens)):
            ops += self.prompt_ops(layout, phase, tokens)
        return (*ops, self.kv_transfer(layout))

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Together or apart, as the plan says."""
        return either(layout, super().timeline(priced, layout), self._apart(priced, layout))

    def decode_pass(self, priced: Priced, layout: Layout) -> Pass:
        """A step without prompts on one stage, priced."""
        return one_pass(priced, "decode", layout.plan, self.kernel_slowdown, self.launch_s)

    def devices_beside(self, layout: Layout) -> Array:
        """Accelerators of the pools beside those that decode."""
        return layout.plan.prefill_devices

    def _apart(self, priced: Priced, layout: Layout) -> Timeline:
        """The pool that is full first paces both."""
        plan, pool, cut, load = layout.plan, layout.prefill, self.prompt(layout), layout.plan.prefill_max_utilisation
        plain = self.decode_pass(priced, layout)
        f0, crossing = self.step_s(plain, layout), total(priced, KV_TRANSFER, CommOp)
        whole, rest = (self.prompt_pass(priced, layout, phase) for phase in ("prefill", "prefill_rest"))
        seconds = [self.prompt_step_s(one) for one in (whole, rest)]
        alone, filled = cut.whole * seconds[0] + cut.rest * seconds[1], cut.filled * seconds[0]
        stage = jnp.where(cut.whole > 0, seconds[0], (1 - load) * seconds[1] + load * seconds[0])
        sequences, engines = plan.micro_batch * layout.dp, self.prompt_engines(layout)
        rounds = self.rhythm(layout).steps * plan.pp
        paced = sequences / (load * engines) * maximum(filled / cut.room, crossing.time_s)
        time = maximum(rounds * f0, paced)
        waits = self.waits(cut, load, engines)
        ttft = (1 + waits[0]) * alone + waits[1] * filled / cut.room + (pool.plan.pp - 1) * stage
        ttft = self.first_s(ttft) + self.received_s()
        once = (1 + self.output_cv**2) / self.rhythm(layout).steps
        tpot = (plan.pp * f0 * (1 + self.steps_before() * once) + crossing.time_s * once) / self.accepted_tokens
        often = cut.steps(load)
        beside = sequences / engines * (often[0] * whole.energy_j + often[1] * rest.energy_j + crossing.energy_j)
        parts = self._breakdown({"decode": plain, "mixed": plain}, {"decode": rounds, "mixed": 0.0 * rounds}, layout)
        extra = self._extra(layout, ttft, tpot, time)
        extra |= {"hybrid_step_share": jnp.asarray(0.0), "prefill_utilisation": load * paced / time}
        extra["concurrency"] = sequences * rounds * f0 / time + extra["requests_per_s"] * ttft
        extra["tokens_per_s_per_device"] *= layout.devices / (layout.devices + self.devices_beside(layout))
        extra |= {"prefill_pool_utilisation": load * paced / time, "decode_pool_utilisation": rounds * f0 / time}
        extra["transfer_utilisation"] = sequences / engines * crossing.time_s / time
        parts["unmatched"] = time - rounds * f0
        return Timeline(
            time, parts, rounds * plain.energy_j, sequences * self.output_tokens, sequences * self._flops(), extra,
            self._billed(sequences, jnp.asarray(0.0)), beside,
            working_s=rounds * self.unlisted_s(self.rhythm(layout).decodes, layout),
        )  # fmt: skip

    def waits(self, cut: CutPrompt, load: Array, engines: Array) -> tuple[Array, Array]:
        """Mean wait, as multiples of the seconds of a prompt alone and of one in full steps."""

        def found(filled: Array) -> Array:
            steps = PrefillStepTimes(jnp.ones_like(filled), filled, filled * cut.room / cut.filled, cut.room, cut.rest)
            return waits_of(steps, load * engines / filled, engines, self.arrival_cv, self.computed_cv() ** 2).mean

        short, one = cut.room > 1, jnp.ones_like(cut.room)
        shares = [(1 - share) / cut.room + share for share in (HALF, 1.0)]
        half, each = (found(one * share) for share in shares)
        by_filled = at_least((each - half) / jnp.where(short, shares[1] - shares[0], 1.0), 0.0)
        by_alone = 0.5 * (half + each - by_filled * (shares[0] + shares[1]))
        return jnp.where(short, at_least(by_alone, -1.0), 0.0), jnp.where(short, by_filled, each)

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Steps of each kind while one answer is decoded."""
        two, cut, together = layout.plan.prefill_devices > 0, self.prompt(layout), super().repeats(layout)
        prompts = jnp.where(two, layout.plan.micro_batch * layout.dp / self.prompt_engines(layout), 0.0)
        rounds, often = self.rhythm(layout).steps * layout.plan.pp, cut.steps(layout.plan.prefill_max_utilisation)
        return {
            "decode": jnp.where(two, rounds, together["decode"]), "mixed": jnp.where(two, 0.0, together["mixed"]),
            "prefill": prompts * often[0], "prefill_rest": prompts * often[1], KV_TRANSFER: prompts,
        }  # fmt: skip


class DisaggregatedServing(AbstractTwoPools):
    """Prompts on a pool of their own where `plan.prefill_devices` says so, else beside decodes: `AbstractTwoPools`."""
