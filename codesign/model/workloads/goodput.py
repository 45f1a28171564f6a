"""Goodput: the most requests a second of which so many in a hundred keep a time to first token and one per token.

It is where the first of these meets its limit, all growing with the rate: the percentile of TTFT, that of TPOT, the
load of prompts, the room for decodes. Found by halving and then by secants, in one loop that is never differentiated:
slopes are those of the solution (implicit function theorem), from one evaluation there along each number that moves.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import Module, quantity
from ...core.jax_typed import traced_for_all
from ...core.matrix_slopes import MovingLeaves, stored_matrix, stored_product
from ...core.smooth import at_least, bounded
from ...jaxprs.evaluator import interpreted
from .base import OPEN_SERVING, FamilyVocabulary
from .continuous import AbstractContinuousServing
from .kinds import table_of
from .mixed_step import MixedStep
from .open_loop import Demand, OpenLoop, Times, open_loop
from .plan import Layout
from .schedule import Op, Pass, Priced, Timeline, alongside, one_pass
from .steady_state import FULLEST, SOME_IDLE, GroupPrompts

__all__ = [
    "ENGINE", "FOREVER_S", "HELPS", "SHORTER", "SLO", "SLO_SHARES", "AbstractGoodputServing", "AbstractOpenServing",
    "AbstractServingAtRate", "Answering", "Goodput", "GoodputResult", "GoodputServing", "NodeTimes", "RateLimit",
    "ServingAtRate", "below_the_floor", "between", "check_kept", "check_stable", "goodput", "most_at", "over_the_rate",
    "shares_at", "sustained", "used_shares",
]  # fmt: skip


HALVINGS = 50  # of the logarithm of the rate
FEW_HALVINGS = 18  # of it, where the most is known
SECANTS = 8  # of them that are cuts at a secant
LAST = 2  # rounds more: one more cut, and what is seen at it
FEWEST = 1e-4  # of that
BEYOND = 1e6  # used shares of a limit that are told apart
LEAST, SPAN = 1e-6, 1e12  # requests/s at which nobody meets anybody, and how many times that is the most there is
FOREVER_S = 1e15  # an SLO that everything keeps that does not pile up
HELPS = {
    "ttft_s": "more tokens a step, shorter prompts or faster arithmetic",
    "tpot_s": "faster memory, more tensor ranks or a smaller model",
}  # fmt: skip
"""Limit -> what brings a request that is alone below it."""
SHARES = {0.5: "p50", 0.9: "p90", 0.99: "p99"}


class SLO(Module):
    """Limits on the times of a request, which a share of all requests must keep."""

    ttft_s: Float[Array, "*b"] = quantity(low=1e-9)
    tpot_s: Float[Array, "*b"] = quantity(low=1e-9)
    attainment: float = eqx.field(static=True, default=0.99)

    def __check_init__(self) -> None:
        """A share that there is a percentile of."""
        if self.attainment not in SHARES:
            raise ConfigError(f"attainment = {self.attainment} of requests is none of {', '.join(map(str, SHARES))}")

    def used(self, seen: OpenLoop, rate: Array) -> dict[str, Array]:
        """See `RateLimit`."""
        del rate
        name = SHARES[self.attainment]
        return {
            "ttft_s": getattr(seen.ttft_s, name) / self.ttft_s, "tpot_s": getattr(seen.tpot_s, name) / self.tpot_s,
            "prompts": seen.load / FULLEST, "decodes": seen.fill,
        }  # fmt: skip


class Goodput(NamedTuple):
    """Requests/s of one engine, what its requests see there, and used shares of what bounds it."""

    rate: Array
    seen: OpenLoop
    used: dict[str, Array]


@runtime_checkable
class RateLimit(Protocol):
    """Interface of what bounds the rate of requests; a tree of numbers."""

    def used(self, seen: OpenLoop, rate: Array) -> dict[str, Array]:
        """Used shares, all growing with the rate; it ends where the largest is 1."""
        ...


@runtime_checkable
class Answering(Protocol):
    """Interface of engines that answer requests at any rate, by their step times; a tree of numbers."""

    def seen(self, rate: Array, solved: Any = None) -> OpenLoop:
        """At so many requests a second; `solved` is that of an earlier evaluation of these numbers."""
        ...


class EngineLoad(NamedTuple):
    """Steps of an engine and who asks it; the demand's own rate does not count."""

    times: Times
    demand: Demand

    def seen(self, rate: Array, solved: Any = None) -> OpenLoop:
        """See `Answering`."""
        return open_loop(self.times, self.demand.at(rate), solved)


def used_shares(times: Times, demand: Demand, agreed: SLO, rate: Array) -> dict[str, Array]:
    """Used shares of the SLO's limits and of the engine, at a rate."""
    return agreed.used(EngineLoad(times, demand).seen(rate), rate)


shares_at = jax.jit(used_shares)


def _most(seen: OpenLoop, agreed: RateLimit, rate: Array) -> Array:
    """The largest used share."""
    return jnp.stack(list(agreed.used(seen, rate).values())).max()


def goodput(times: Times, demand: Demand, agreed: SLO) -> Goodput:
    """The largest rate that meets an SLO; next to nothing where no rate does (see `check_kept`).

    Args:
        times: of one engine's steps.
        demand: who asks; its rate does not count.
        agreed: limits.
    """
    return _between(EngineLoad(times, demand), agreed, (jnp.asarray(math.log(LEAST)), math.log(SPAN)), HALVINGS)


def most_at(asked: Answering, agreed: RateLimit, most: Array) -> Goodput:
    """Largest rate within a limit, between `FEWEST` of an unsustainable rate and that rate: in fewer rounds."""
    lowest = jnp.log(most) + math.log(FEWEST)
    return _between(asked, agreed, (lowest, -math.log(FEWEST)), FEW_HALVINGS)


def _between(asked: Answering, agreed: RateLimit, range_: tuple[Array, float], halvings: int) -> Goodput:
    """The root in a range of logarithms of rates, from its least one, and what is seen there."""
    low, span = range_
    result, seen = _root(asked, agreed, low, span, halvings)
    rate = jnp.exp(result)
    return Goodput(rate, seen, agreed.used(seen, rate))


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _root(asked: Answering, agreed: RateLimit, low: Array, span: float, halvings: int) -> tuple[Array, OpenLoop]:
    """The root, and what is seen there.

    The engine is traced and compiled once for a value, and once more for its slopes: those of the solution.
    """
    result, seen = _last_round(asked, agreed, low, span, halvings)
    return result, seen._replace(solved=None)


def _last_round(asked: Answering, agreed: RateLimit, low: Array, span: float, halvings: int) -> tuple[Array, OpenLoop]:
    """The root, halved and then cut where a secant is near zero; what is seen is that of the last round."""
    clear = jnp.asarray(BEYOND)
    nothing = jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), jax.eval_shape(asked.seen, low))

    def closer(round_: Array, state: tuple[Any, ...]) -> tuple[Any, ...]:
        (low, below, high, above, at, last), *_ = state
        rate = jnp.exp(at)
        seen = asked.seen(rate)
        beyond = jnp.clip(_most(seen, agreed, rate) - 1, -BEYOND, BEYOND)
        over = beyond > 0
        # An end that stays twice counts for less (Anderson and Bjorck), so that both ends come near.
        less = 1 - beyond / jnp.where(over, above, below)
        less = jnp.where(last * beyond > 0, jnp.where(less > 0, less, 0.5), 1.0)
        low, high = jnp.where(over, low, at), jnp.where(over, at, high)
        below, above = jnp.where(over, below * less, beyond), jnp.where(over, beyond, above * less)
        middle, secant = 0.5 * (low + high), low - below * (high - low) / (above - below)
        halved = (round_ < halvings - SECANTS) | ~((secant >= low) & (secant <= high))  # at an end that is a root, stay
        return (low, below, high, above, jnp.where(halved, middle, secant), beyond), at, seen

    ends = (low, -clear, low + span, clear, low + 0.5 * span, jnp.zeros_like(clear))
    _, result, seen = jax.lax.fori_loop(0, halvings + LAST, closer, (ends, low, nothing))
    return result, seen


@functools.partial(_root.defjvp, symbolic_zeros=True)
def _(
    span: float, halvings: int, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[tuple[Array, OpenLoop], tuple[Array, OpenLoop]]:
    """Implicit function theorem: one evaluation at the root, along its rate and each number that moves."""
    asked, agreed, low = primals
    result, seen = _last_round(asked, agreed, low, span, halvings)
    moving = MovingLeaves(primals, tangents)

    def around(at: Array) -> tuple[Array, OpenLoop]:
        asked, agreed, _ = moving.tree(at[1:])
        rate = jnp.exp(at[0])
        again = asked.seen(rate, seen.solved)._replace(solved=None)
        return _most(again, agreed, rate), again

    (used, there), slopes, tree = stored_matrix(around, jnp.concatenate([result[None], moving.at]))
    # Squares of times overflow at prompts of 1e30 tokens: what is no number there moves nothing.
    slopes = jnp.where(jnp.isfinite(slopes), slopes, 0.0)
    grows, rises = slopes[0, 0], slopes[0, 1:]
    # Where the largest share is not 1, no rate of the range is the root: then it moves with the range.
    crosses = (grows > 0) & (jnp.abs(used - 1) <= grows * span * 2.0 ** (3 - halvings))
    ends = jnp.zeros_like(rises) if isinstance(tangents[2], SymbolicZero) else jnp.zeros_like(rises).at[-1].set(1.0)
    steps = jnp.where(crosses, -rises / jnp.where(crosses, grows, 1.0), ends)
    moved = stored_product(jnp.concatenate([steps[None], slopes[1:, 1:] + slopes[1:, :1] * steps]), moving.way)
    return (result, there), (moved[0], tree(moved)[1])


def check_kept(times: Times, demand: Demand, agreed: SLO) -> None:
    """Refuse limits below what a request sees that is alone.

    Raises:
        ConfigError: the limit, the floor under it, and what would help.
    """
    alone = shares_at(times, demand, agreed, jnp.asarray(LEAST))
    for name in HELPS:
        limit, used = float(getattr(agreed, name)), float(alone[name])
        if used > 1:
            raise ConfigError(below_the_floor(name, limit, limit * used, agreed.attainment))


def below_the_floor(name: str, limit: float, floor: float, share: float) -> str:
    """One line on a limit that a request does not keep that is alone: by how much, and what would help."""
    return (
        f"{name} = {limit:.4g} s is {1 - limit / floor:.1%} below {floor:.4g} s, the p{100 * share:.0f} of requests"
        f" that are alone on the engine: allow {floor * 1.01:.4g} s, or take {HELPS[name.rpartition('.')[2]]}"
    )


@functools.partial(interpreted, always=True)
def sustained(times: Times, demand: Demand) -> Array:
    """Requests/s of one engine at which neither prompts nor decodes pile up yet."""
    forever = jnp.asarray(FOREVER_S)
    return goodput(times, demand, SLO(forever, forever)).rate


def check_stable(found: OpenLoop, demand: Demand, most: Callable[[], Array], engines: float = 1.0) -> None:
    """Refuse a rate at which prompts or decodes pile up.

    Args:
        found, demand: of one engine.
        most: requests/s that it sustains.
        engines: how many share the requests.

    Raises:
        ConfigError: by how much, and what would help.
    """
    load, fill = float(found.load), float(found.fill)
    if load < FULLEST and fill < 1:
        return
    if load >= FULLEST:
        why = f"since prefill would fill {load:.4g} of every step of plan.token_budget = {float(demand.chunk):g} tokens"
        helps = "more prompt tokens a step"
    else:
        together = f"{float(found.decodes) * max(fill, 1):.4g} sequences together"
        why = f"{together} on an engine are {fill - 1:+.1%} of the {float(demand.most):.4g} that have room"
        helps = "more memory or slots"
    rate, kept = (engines * float(value) for value in (demand.rate, most()))
    raise ConfigError(over_the_rate(f"{rate:.4g} requests/s", rate, kept, why, helps))


def over_the_rate(wanted: str, rate: float, kept: float, why: str, helps: str) -> str:
    """One line on a rate that the engines do not sustain: by how much, and what would help."""
    return (
        f"{wanted} is {rate / kept:.4g} times the {kept:.4g} that the engines sustain, {why}:"
        f" lower it to {0.98 * kept:.3g}, or take {helps}, or more accelerators"
    )


# Serving at a rate: percentiles of what requests see as metrics, and goodput under an SLO, for studies.


SHORTER = 8.0  # times fewer prompt tokens of short mixed steps
DECODES = ("decode_one", "decode_few", "decode_some", "decode_many", "decode")  # evenly spaced in log
MIXED = (("mixed_one_short", "mixed_one"), ("mixed_short", "mixed"))
LEAST_LEFT_S = 1e-9  # of a limit on the first token that the host alone takes up
LATE_S = 1e9  # of TTFT for each time that sequences exceed their places
SHOWN = ("mean", "p50", "p90", "p99")
ENGINE = "engine"  # how used shares of an engine begin in `Metrics.usage`
SLO_SHARES = {
    "ttft_s": "ttft_ratio", "tpot_s": "tpot_ratio", "prompts": "prefill_utilisation", "decodes": "slot_utilisation",
}  # fmt: skip
"""Used share of a limit -> the end of its metric's name."""
MET = 1.01  # used share of an SLO above which it is kept at no rate; where it ends is found nearer than that


class Engines(NamedTuple):
    """So many engines, each of which answers its part of all requests; answers are counted in steps.

    accepted: tokens that a step brings a sequence; ahead: steps that pass before an engine sees who has come.
    """

    times: "NodeTimes"
    demand: Demand
    count: Array
    accepted: Array
    ahead: Array | float

    def seen(self, rate: Array, solved: Any = None) -> OpenLoop:
        """At so many requests/s of all engines together."""
        own = EngineLoad(self.times.lines(), self.demand).seen(rate / self.count, solved)
        return own.noticing(self.ahead).accepting(self.accepted)


class GoodputResult(NamedTuple):
    """Requests/s of all engines, what they see, metrics of its own, used shares of what bounds it."""

    rate: Array
    seen: OpenLoop
    more: dict[str, Array]
    usage: dict[str, Array]


class NodeTimes(NamedTuple):
    """Seconds of steps between few that were priced: some numbers of decodes, two of prompt tokens and none.

    Contexts and keys are those that they were priced at.
    """

    decodes: Array
    tokens: Array
    seconds: Array  # [decodes, no prompts or short or whole chunks]
    theirs: Array | None = None  # [decodes] of a step without prompts of one's own in which another engine has some
    idle: Array | None = None  # [decodes] share of steps in which an engine has no prompts
    others: Array | float = 0.0  # engines that step together with one

    def crowd(self, decodes: Array) -> Array:
        """Share of steps in which another engine has prompts: not straight between priced steps, `idle` nearly is."""
        assert self.idle is not None
        return 1 - at_least((between(self.decodes, decodes) * self.idle).sum(-1), SOME_IDLE) ** self.others

    def weights(self, decodes: Array, prompt_tokens: Array) -> Array:
        """Weights of the priced steps, together 1; [decodes, prompt tokens]."""
        return between(self.decodes, decodes)[..., :, None] * between(self.tokens, prompt_tokens)[..., None, :]

    def lines(self) -> "StepLines":
        """Lines between these nodes."""
        columns = [self.seconds[:, :1], jnp.diff(self.seconds, axis=1)]
        if self.theirs is not None and self.idle is not None:
            columns.append(jnp.stack([self.theirs - self.seconds[:, 0], self.idle], axis=1))
        table = jnp.concatenate(columns, axis=1)
        return StepLines(
            self.decodes[:-1], _widths(self.decodes), self.tokens[:-1], _widths(self.tokens), table[0],
            jnp.diff(table, axis=0), self.others if self.theirs is not None else None,
        )  # fmt: skip

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """See the class."""
        return self.lines().step_s(decodes, context, prompt_tokens, keys)


class StepLines(NamedTuple):
    """`NodeTimes` by the lines between its nodes, for whoever evaluates it often.

    begins, widths: of the ways between decodes, and between prompt tokens; first: at the fewest decodes, seconds
    without prompts, what each way between prompt tokens adds, seconds that others' prompts add, share of steps without
    them; rises: of these along each way between decodes.
    """

    begins: Array
    widths: Array
    prompts_begin: Array
    prompts_widths: Array
    first: Array
    rises: Array
    others: Array | float | None

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """See `NodeTimes`."""
        del context, keys
        ways = len(self.prompts_begin)
        at = self.first + (_share_passed(self.begins, self.widths, decodes)[..., None] * self.rises).sum(-2)
        passed = _share_passed(self.prompts_begin, self.prompts_widths, prompt_tokens)
        alone = at[..., 0] + (passed * at[..., 1 : ways + 1]).sum(-1)
        if self.others is None:
            return alone
        crowd = 1 - at_least(at[..., -1], SOME_IDLE) ** self.others
        return alone + crowd * at[..., -2] * (1 - passed[..., 0])


def _widths(nodes: Array) -> Array:
    return jnp.maximum(jnp.diff(nodes), 1e-9)


def _share_passed(begins: Array, widths: Array, value: Array) -> Array:
    return bounded((jnp.asarray(value)[..., None] - begins) / widths, 0.0, 1.0)


def _passed(nodes: Array, value: Array) -> Array:
    """Shares of the ways between neighbouring nodes that lie below a value."""
    return _share_passed(nodes[:-1], _widths(nodes), value)


@traced_for_all
def between(nodes: Array, value: Array) -> Array:
    """Shares of neighbouring nodes that make up a value."""
    passed = _passed(nodes, value)
    one, none = jnp.ones_like(passed[..., :1]), jnp.zeros_like(passed[..., :1])
    return jnp.concatenate([one, passed], -1) - jnp.concatenate([passed, none], -1)


class AbstractOpenServing(AbstractContinuousServing):
    """Continuous serving of requests that arrive at a rate; `plan.micro_batch` is the most sequences that are decoded.

    Gaps between requests have the variation `arrival_cv`. Each of dp x attention_dp x pp engines takes its part of
    them. All metrics are those at a rate: mean and percentiles (`ttft_p99_s`, `tpot_p90_s`, `e2e_p50_s`) from
    `open_loop`, over nine priced steps; `time_s` is that in which as many requests are answered as are decoded at a
    time.

    Engines that step together (`step_groups`) all take as long as one that has prompts. With n sequences in each, n / L
    prompts come to it in a step (`steady_state`), whatever a step takes: so many engines have prompts, not as many as
    with full batches.

    Assumes: what `open_loop` does; who decodes less than one sequence meets the prompts of others as with one; the
    memory of a full batch is kept free; an engine without requests draws as much as with one.
    Source: closed form of this package, held against `simulation.serving`.
    """

    words: ClassVar[FamilyVocabulary] = OPEN_SERVING

    arrival_cv: Float[Array, "*b"] = quantity(high=10.0, default=1.0, doc="variation of gaps between arrivals")

    def nodes(self, layout: Layout) -> tuple[Array, Array]:
        """Decodes and prompt tokens of the steps that are priced."""
        most = self.rhythm(layout).decodes
        one, chunk = jnp.ones_like(most), layout.plan.token_budget * jnp.ones_like(most)
        last = len(DECODES) - 1
        between = [most ** (row / last) for row in range(1, last)]
        return jnp.stack([one, *between, most]), jnp.stack([0 * one, at_least(chunk / SHORTER, 1.0), chunk])

    def company_of_nodes(self, layout: Layout) -> GroupPrompts:
        """Company at each priced number of decodes."""
        return self.company(layout, self.nodes(layout)[0])

    def step_of(self, layout: Layout, decodes: Array, tokens: Array | None, row: int = -1) -> MixedStep:
        """The operations of a step of one attention group, in the company of groups with as many decodes as `row`."""
        plain = self.decode_step(layout)
        if tokens is None:
            return MixedStep(
                self.model, self.precision, decodes, plain.queries, plain.context, plain.prompt_tokens, plain.prompts,
                plain.keys, plain.shared_tokens, drafted=plain.drafted,
            )  # fmt: skip
        prompts, alike = at_least(tokens / self.computed_tokens(), 1.0), self.company_of_nodes(layout).alike[row]
        own = tokens / layout.plan.cp
        return MixedStep(
            self.model, self.precision, decodes, plain.queries, plain.context, own, prompts,
            self.attended() + 0.5 * tokens / prompts, alike * own, self.images_of(own), plain.drafted,
        )  # fmt: skip

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """One phase for each priced step, of one stage: `decode` and `mixed` are the fullest."""
        layers, groups = self.layers_per_stage(layout), layout.plan.attention_dp
        (decodes, tokens), ops = self.nodes(layout), list[Op]()
        for row, phase in enumerate(DECODES):
            scored = groups * decodes[row] * self.verified_tokens
            step = self.step_of(layout, decodes[row], None)
            ops += step.lower(layout, layers, scored, phase=phase, mixed=False)
            ops.append(self.cache_in(layout, step, phase))
        for row, phases in zip((0, -1), MIXED, strict=True):
            for column, phase in zip((1, 2), phases, strict=True):
                step = self.step_of(layout, decodes[row], tokens[column], row)
                ended = step.shared_tokens * layout.plan.cp / self.computed_tokens()
                scored = groups * (decodes[row] * self.verified_tokens + ended)
                ops += step.lower(layout, layers, scored, phase=phase, mixed=True)
                ops.append(self.cache_in(layout, step, phase, prompts=True))
        return tuple(ops)

    def _passes(self, priced: Priced, layout: Layout) -> Pass:
        """Priced steps [decodes, prompt tokens]; with few decodes prompts add what they do between one and all."""

        def done(phases: Sequence[str]) -> Pass:
            alike = one_pass(alongside(priced, phases), phases[0], layout.plan, self.kernel_slowdown, self.launch_s)
            return jax.tree.map(lambda each: jnp.broadcast_to(each, len(phases)), alike)

        decodes, _ = self.nodes(layout)
        share = (decodes - decodes[0]) / at_least(decodes[-1] - decodes[0], 1.0)
        alike = self.company_of_nodes(layout).alike  # what others' prompts add goes with how many have them
        span = alike[-1] - alike[0]
        share = jnp.where(span > 1e-6, (alike - alike[0]) / at_least(span, 1e-6), share)

        def table(plain: Array, mixed: Array) -> Array:
            one, all_ = mixed.reshape(2, 2)
            more = (1 - share)[:, None] * (one - plain[0]) + share[:, None] * (all_ - plain[-1])
            return jnp.concatenate([plain[:, None], plain[:, None] + more], axis=1)

        result = jax.tree.map(table, done(DECODES), done((*MIXED[0], *MIXED[1])))
        return self.with_fetches(result, self.nodes(layout)[1])

    def _seconds(self, done: Pass, layout: Layout, decodes: Array) -> Array:
        """Steps from the first stage to the last."""
        return layout.plan.pp * self.with_host_s(self.device_s(done, decodes, layout), decodes)

    def engines(self, layout: Layout) -> Array:
        """Attention groups of all replicas and stages."""
        return layout.dp * layout.plan.attention_dp * layout.plan.pp

    def demand(self, layout: Layout) -> Demand:
        """Requests of one engine, at any rate."""
        rhythm, rate = self.rhythm(layout), jnp.ones_like(self.input_tokens)
        return Demand(
            rate=rate, input_tokens=self.computed_tokens(), output_tokens=1 + rhythm.steps,
            chunk=layout.plan.token_budget,
            input_cv=self.computed_cv(), output_cv=self.output_cv, arrival_cv=self.arrival_cv, most=rhythm.decodes,
            elsewhere=jnp.zeros_like(rate), prompts=table_of(self.computed_lengths()),
            answers=table_of(self.output_lengths),
        )  # fmt: skip

    @abc.abstractmethod
    def answered(self, asked: Answering, most: Array) -> GoodputResult:
        """At which rate, of at most so many requests/s, and what is seen there."""

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """At the rate that is served."""
        passes, (decodes, tokens) = self._passes(priced, layout), self.nodes(layout)
        seconds = self._seconds(passes, layout, decodes[:, None])
        rhythm, company = self.rhythm(layout), self.company_of_nodes(layout)
        own, usual = between(tokens, 0 * company.tokens), between(tokens, company.tokens)
        others = at_least(self.step_groups(layout) - 1, 0.0)
        times = NodeTimes(decodes, tokens, seconds, (usual * seconds).sum(-1), company.idle, others)
        count, steps = self.engines(layout), rhythm.steps
        asked = Engines(
            times, self.demand(layout), count, self.accepted_tokens, self.admission_steps + self.async_scheduling
        )
        answered = self.answered(asked, count * rhythm.decodes / (steps * times.seconds[-1, 0]))
        rate, seen, share = answered.rate, answered.seen, answered.seen.hybrid_step_share
        rate = jnp.minimum(rate, count * seen.decodes / (steps * seen.step_s))  # who finds no place is not answered
        carried = jnp.minimum(rate / count * seen.step_s * self.computed_tokens() / share, tokens[2])
        weight = (1 - share) * times.weights(seen.decodes, 0 * share) + share * times.weights(seen.decodes, carried)
        alone = weight[:, :1]  # no prompts of one's own: those of others
        weight = jnp.concatenate([0 * alone, weight[:, 1:]], axis=1)
        crowd = times.crowd(seen.decodes)
        weight = weight + alone * ((1 - crowd) * own + crowd * usual)
        return self.told(passes, weight, answered._replace(rate=rate), layout)

    def told(self, passes: Pass, weight: Array, answered: GoodputResult, layout: Layout) -> Timeline:
        """Timeline of `weight` of each priced step, over as many rounds as an answer takes."""
        rate, seen, more, usage = answered
        rounds = self.rhythm(layout).steps * layout.plan.pp
        sequences = seen.decodes * self.engines(layout)
        time = sequences / rate
        mean = jax.tree.map(lambda each: rounds * (weight * each).sum(), passes)
        parts = {"compute": mean.compute_s} | mean.exposed_s | {"head": mean.edge_s}
        parts["overhead"] = at_least(time - sum(parts.values()), 0.0)  # rounding may take it below
        extra = self._seen(layout, seen, rate) | more
        return Timeline(
            time, parts, mean.energy_j, sequences * self.output_tokens, sequences * self._flops(), extra,
            self._billed(sequences, jnp.asarray(0.0)),
            usage={f"{ENGINE}.{name}": share for name, share in usage.items()},
            working_s=rounds * self.unlisted_s(seen.decodes, layout),
        )  # fmt: skip

    def _seen(self, layout: Layout, seen: OpenLoop, requests: Array) -> dict[str, Array]:
        """Metrics by name."""
        seen = seen.later(self.first_overhead_s())
        result = {"ttft": seen.ttft_s, "tpot": seen.tpot_s, "e2e": seen.e2e_s}
        extra = {
            f"{name}_s" if share == "mean" else f"{name}_{share}_s": getattr(values, share)
            for name, values in result.items() for share in SHOWN
        }  # fmt: skip
        answered, hits = requests * self.output_tokens, self.prefix_hits()
        extra |= {} if hits is None else hits.metrics()
        return extra | {
            "requests_per_s": requests, "concurrency": requests * seen.e2e_s.mean,
            "decodes": seen.decodes * self.engines(layout), "tokens_per_s_per_user": 1 / seen.tpot_s.mean,
            "tokens_per_s_per_device": answered / layout.devices, "hybrid_step_share": seen.hybrid_step_share,
            "prefill_utilisation": seen.load, "slot_utilisation": seen.fill, "queued_share": seen.places.late,
            "queue_wait_s": seen.places.mean,
        }  # fmt: skip

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Repeats of each phase as with the batch full; none of the other priced steps."""
        return super().repeats(layout) | dict.fromkeys((*DECODES[:2], *MIXED[0], MIXED[1][0]), jnp.asarray(0.0))

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Rules of the base class except `prompts`, on prompts that fill every step of a full batch: fewer may come."""
        return {name: value for name, value in super().violations(layout).items() if name != "prompts"}


class AbstractServingAtRate(AbstractOpenServing):
    """`AbstractOpenServing` at `arrivals_per_s` requests a second of all engines together."""

    arrivals_per_s: Float[Array, "*b"] = quantity(low=1e-9, high=1e12, default=1.0)

    def answered(self, asked: Answering, most: Array) -> GoodputResult:
        """At the given rate; where sequences find no place in the long run, they wait for ever."""
        del most
        seen = asked.seen(self.arrivals_per_s)
        late = jnp.where(seen.fill > 1, LATE_S * (seen.fill - 1), 0.0)
        used = {"prompts": seen.load / FULLEST, "decodes": seen.fill}
        return GoodputResult(self.arrivals_per_s, seen.later(late), {}, used)


class AbstractGoodputServing(AbstractOpenServing):
    """`AbstractOpenServing` at the largest rate that meets an SLO on the times of requests.

    So `tokens_per_s` is the goodput and `usd_per_million_tokens` the price of a token that keeps it: to be minimised,
    as `power_w / tokens_per_s` is. A design that keeps it at no rate is infeasible.
    """

    slo: SLO = eqx.field(default_factory=lambda: SLO(2.0, 0.05))

    def under(self, first_token: Array) -> "AbstractGoodputServing":
        """By as much earlier must the model's first tokens be to meet the SLO."""
        earlier = dataclasses.replace(self.slo, ttft_s=self.slo.ttft_s / first_token)
        return dataclasses.replace(self, slo=earlier)

    def answered(self, asked: Answering, most: Array) -> GoodputResult:
        """At the largest rate."""
        host = self.first_overhead_s()
        left = dataclasses.replace(self.slo, ttft_s=at_least(self.slo.ttft_s - host, LEAST_LEFT_S))
        result = most_at(asked, left, most)
        shares = result.used | {"ttft_s": (result.used["ttft_s"] * left.ttft_s + host) / self.slo.ttft_s}
        used = {f"slo_{SLO_SHARES[name]}": share for name, share in shares.items()}
        limits = {
            name.removesuffix("_s"): jnp.where(share > MET, share, jnp.minimum(share, 1.0))
            for name, share in shares.items()
        }
        return GoodputResult(result.rate, result.seen, used, limits)


class ServingAtRate(AbstractServingAtRate):
    """Prompts beside decodes on the same accelerators: see `AbstractServingAtRate`."""


class GoodputServing(AbstractGoodputServing):
    """Prompts beside decodes on the same accelerators: see `AbstractGoodputServing`."""
