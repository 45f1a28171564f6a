"""Goodput: the most requests a second of which so many in a hundred keep a time to first token and one per token.

It is where the first of these meets its limit, all growing with the rate: the percentile of TTFT, that of TPOT, the
load of prompts, the room for decodes. Found by halving and then by secants, in one loop that is never differentiated:
slopes are those of the solution (implicit function theorem), from one evaluation there along each number that moves.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import quantity
from ...core.matrix_slopes import Moving, stored_matrix, stored_product
from ...core.module import Module
from ...jaxprs.evaluator import interpreted
from .open_loop import Demand, OpenLoop, Times, open_loop
from .steady_state import FULLEST

__all__ = [
    "SLO", "Answering", "Goodput", "OneEngine", "RateLimit", "check_kept", "check_stable", "goodput", "most_at",
    "sustained", "used_shares",
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

    def seen(self, rate: Array) -> OpenLoop:
        """At so many requests a second."""
        ...


class OneEngine(NamedTuple):
    """Steps of an engine and who asks it; the demand's own rate does not count."""

    times: Times
    demand: Demand

    def seen(self, rate: Array) -> OpenLoop:
        """See `Answering`."""
        return open_loop(self.times, self.demand.at(rate))


def used_shares(times: Times, demand: Demand, agreed: SLO, rate: Array) -> dict[str, Array]:
    """Used shares of the SLO's limits and of the engine, at a rate."""
    return agreed.used(OneEngine(times, demand).seen(rate), rate)


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
    return _between(OneEngine(times, demand), agreed, (jnp.asarray(math.log(LEAST)), math.log(SPAN)), HALVINGS)


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
    """The root, halved and then cut where a secant is near zero; what is seen is that of the last round.

    So the engine is traced and compiled once for a value, and once more for its slopes: those of the solution.
    """
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
    result, seen = _root(asked, agreed, low, span, halvings)
    moving = Moving(primals, tangents)

    def around(at: Array) -> tuple[Array, OpenLoop]:
        asked, agreed, _ = moving.tree(at[1:])
        rate = jnp.exp(at[0])
        seen = asked.seen(rate)
        return _most(seen, agreed, rate), seen

    (used, _), slopes = stored_matrix(around, jnp.concatenate([result[None], moving.at]))
    # Squares of times overflow at prompts of 1e30 tokens: what is no number there moves nothing.
    slopes = jax.tree.map(lambda each: jnp.where(jnp.isfinite(each), each, 0.0), slopes)
    grows, rises = slopes[0][0], slopes[0][1:]
    # Where the largest share is not 1, no rate of the range is the root: then it moves with the range.
    there = (grows > 0) & (jnp.abs(used - 1) <= grows * span * 2.0 ** (3 - halvings))
    ends = jnp.zeros_like(rises) if isinstance(tangents[2], SymbolicZero) else jnp.zeros_like(rises).at[-1].set(1.0)
    steps = jnp.where(there, -rises / jnp.where(there, grows, 1.0), ends)
    whole = jax.tree.map(lambda each: each[..., 1:] + each[..., :1] * steps, slopes[1])
    return (result, seen), stored_product((steps, whole), moving.way)


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


def over_the_rate(asked: str, rate: float, kept: float, why: str, helps: str) -> str:
    """One line on a rate that the engines do not sustain: by how much, and what would help."""
    return (
        f"{asked} is {rate / kept:.4g} times the {kept:.4g} that the engines sustain, {why}:"
        f" lower it to {0.98 * kept:.3g}, or take {helps}, or more accelerators"
    )
