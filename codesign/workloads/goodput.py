"""Goodput: the most requests a second of which so many in a hundred keep a time to first token and one per token.

It is where the first of these meets its limit, all growing with the rate: the percentile of TTFT, that of TPOT, the
load of prompts, the room for decodes. Found by bisection and a step of Newton's method, which carries its derivatives
(implicit function theorem) through the balance of decodes and steps.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ConfigError
from ..fields import quantity
from .open_loop import Demand, OpenLoop, Times, open_loop
from .steady_state import FULLEST

__all__ = ["Agreement", "Day", "Goodput", "check_kept", "goodput", "most_kept", "replicas_by_hour", "used_shares"]

HALVINGS = 50  # of the logarithm of the rate
FEW_HALVINGS = 18  # of it, where the most is known
FEWEST = 1e-4  # of that
BEYOND = 1e6  # used shares of a limit that are told apart
LEAST, SPAN = 1e-6, 1e12  # requests/s at which nobody meets anybody, and how many times that is the most there is
SHARES = {0.5: "p50", 0.9: "p90", 0.99: "p99"}


class Agreement(eqx.Module):
    """Limits on the times of a request, which a share of all requests must keep."""

    ttft_s: Float[Array, "*b"] = quantity(low=1e-9)
    tpot_s: Float[Array, "*b"] = quantity(low=1e-9)
    share: float = eqx.field(static=True, default=0.99)

    def __check_init__(self) -> None:
        """A share that there is a percentile of."""
        if self.share not in SHARES:
            raise ConfigError(f"share = {self.share} of requests is none of {', '.join(map(str, SHARES))}")


class Goodput(NamedTuple):
    """Requests/s of one engine, what its requests see there, and used shares of what bounds it."""

    rate: Array
    seen: OpenLoop
    used: dict[str, Array]


def used_shares(times: Times, demand: Demand, agreed: Agreement, rate: Array) -> dict[str, Array]:
    """Of the limits and of the engine, at a rate."""
    return _used(open_loop(times, eqx.tree_at(lambda one: one.rate, demand, rate)), agreed)


shares_at = jax.jit(used_shares)


def _used(seen: OpenLoop, agreed: Agreement) -> dict[str, Array]:
    name = SHARES[agreed.share]
    return {
        "ttft_s": getattr(seen.ttft_s, name) / agreed.ttft_s, "tpot_s": getattr(seen.tpot_s, name) / agreed.tpot_s,
        "prompts": seen.load / FULLEST, "decodes": seen.fill,
    }  # fmt: skip


def _beyond(times: Times, demand: Demand, agreed: Agreement, log_rate: Array) -> Array:
    """Positive where the rate is more than is agreed."""
    return jnp.stack(list(used_shares(times, demand, agreed, jnp.exp(log_rate)).values())).max() - 1


def goodput(times: Times, demand: Demand, agreed: Agreement) -> Goodput:
    """The largest rate that keeps an agreement; next to nothing where no rate does (see `check_kept`).

    Args:
        times: of one engine's steps.
        demand: who asks; its rate does not count.
        agreed: limits.
    """
    return _between(times, demand, agreed, (jnp.asarray(math.log(LEAST)), math.log(SPAN)), HALVINGS)


def most_kept(times: Times, demand: Demand, agreed: Agreement, most: Array) -> Goodput:
    """As `goodput`, up to a rate that is more than the engine sustains, at least `FEWEST` of it: in fewer rounds."""
    lowest = jax.lax.stop_gradient(jnp.log(most)) + math.log(FEWEST)
    return _between(times, demand, agreed, (lowest, -math.log(FEWEST)), FEW_HALVINGS)


def _between(times: Times, demand: Demand, agreed: Agreement, range_: tuple[Array, float], halvings: int) -> Goodput:
    """The root in a range of logarithms of rates, from its least one."""
    fixed = jax.lax.stop_gradient((times, demand, agreed))
    low, span = range_

    def closer(_: Any, ends: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, at = ends
        beyond = jnp.clip(_beyond(*fixed, at), -BEYOND, BEYOND)
        low, high = jnp.where(beyond > 0, low, at), jnp.where(beyond > 0, at, high)
        return low, high, 0.5 * (low + high)

    *_, found = jax.lax.fori_loop(0, halvings, closer, (low, low + span, low + 0.5 * span))
    found = jax.lax.stop_gradient(found)
    rate = jnp.exp(_newton(times, demand, agreed, found, span * 2.0 ** (3 - halvings)))
    seen = open_loop(times, eqx.tree_at(lambda one: one.rate, demand, rate))
    return Goodput(rate, seen, _used(seen, agreed))


def _newton(times: Times, demand: Demand, agreed: Agreement, found: Array, furthest: float) -> Array:
    """A step of Newton's method from a logarithm of the rate, no longer than `furthest`, with derivatives."""
    slope = jax.jvp(lambda at: _beyond(times, demand, agreed, at), (found,), (jnp.ones_like(found),))
    value, grows = slope[0], jax.lax.stop_gradient(slope[1])
    way = jnp.clip(value, -BEYOND, BEYOND) / jnp.where(grows > 0, grows, jnp.inf)
    return found - jnp.clip(way, -furthest, furthest)


def check_kept(times: Times, demand: Demand, agreed: Agreement) -> None:
    """Refuse limits below what a request sees that is alone.

    Raises:
        ConfigError: the limit, the floor under it, and what would help.
    """
    alone = shares_at(times, demand, agreed, jnp.asarray(LEAST))
    helps = {
        "ttft_s": "more tokens a step, shorter prompts or faster arithmetic",
        "tpot_s": "faster memory, more tensor ranks or a smaller model",
    }
    for name, advice in helps.items():
        limit, used = float(getattr(agreed, name)), float(alone[name])
        if used > 1:
            raise ConfigError(
                f"{name} = {limit:.4g} s is {1 - 1 / used:.1%} below the {limit * used:.4g} s that {agreed.share:.0%}"
                f" of requests see alone on the engine: allow {limit * used * 1.01:.4g} or take {advice}"
            )


class Day(NamedTuple):
    """Replicas hour by hour, and accelerator-hours saved against as many as the busiest hour needs all day."""

    replicas: np.ndarray
    saved: float


def replicas_by_hour(rates: Sequence[float], of_one: float) -> Day:
    """How many replicas run when, each good for so many requests/s; at least one.

    Raises:
        ConfigError: an hour without a rate, or a replica that is good for nothing.
    """
    hours = np.asarray(rates, dtype=float)
    wrong = np.flatnonzero(~(np.isfinite(hours) & (hours >= 0)))
    if hours.ndim != 1 or not len(hours) or len(wrong):
        where = f"hour {wrong[0]} has a rate of {hours[wrong[0]]}" if len(wrong) else "there are no hours"
        raise ConfigError(f"daily load: {where}: give requests/s, 0 or more, for each hour")
    if not of_one > 0:
        raise ConfigError(f"daily load: a replica that is good for {of_one:g} requests/s serves nobody")
    replicas = np.maximum(np.ceil(hours / of_one - 1e-9), 1)
    return Day(replicas, float(1 - replicas.sum() / (replicas.max() * len(replicas))))
