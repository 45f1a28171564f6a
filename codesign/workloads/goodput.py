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

__all__ = ["Agreement", "Day", "Goodput", "check_kept", "goodput", "replicas_by_hour", "used_shares"]

HALVINGS = 50  # of the logarithm of the rate
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
    fixed = jax.lax.stop_gradient((times, demand, agreed))

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        more = _beyond(*fixed, middle) > 0
        return jnp.where(more, ends[0], middle), jnp.where(more, middle, ends[1])

    low = jnp.asarray(math.log(LEAST))
    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (low, low + math.log(SPAN)))
    found = jax.lax.stop_gradient(0.5 * (low + high))
    slope = jax.jvp(lambda log_rate: _beyond(*fixed, log_rate), (found,), (jnp.ones_like(found),))[1]
    slope = jax.lax.stop_gradient(jnp.where(slope > 0, slope, jnp.inf))
    rate = jnp.exp(found - _beyond(times, demand, agreed, found) / slope)
    seen = open_loop(times, eqx.tree_at(lambda one: one.rate, demand, rate))
    return Goodput(rate, seen, _used(seen, agreed))


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
