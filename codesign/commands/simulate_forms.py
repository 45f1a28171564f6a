"""Closed forms of the requests that `codesign simulate` serves, and bounds on any order of serving them."""

import dataclasses
from typing import Any

import numpy as np

from ..core.errors import ConfigError
from ..core.jax_typed import asarray
from ..jaxprs.evaluator import interpreted
from ..model.workloads.goodput import check_stable, sustained
from ..model.workloads.kinds import kinds_of, table_of
from ..model.workloads.mean_step import HostOverlap, LongerContexts
from ..model.workloads.open_loop import Demand, OpenLoop, TableTimes, Times, open_loop
from ..model.workloads.prefix_reuse import curve_of_reuse
from ..simulation.fleet import reuse_of
from ..simulation.serving import Engine, Requests, ServedTimes, TabulatedSteps, least_token_s, mean_request, most_rate

__all__ = [
    "FEWEST", "bounds", "cached_tokens", "closed_form_of", "demand_of", "form_numbers", "in_closed_form", "load_of",
    "open_form", "traced", "with_contexts",
]  # fmt: skip

FEWEST = 100  # requests that a simulation says anything of


def traced(engine: Engine) -> Times:
    """Steps of an engine, as closed forms ask for them."""
    table = engine.times
    assert isinstance(table, TabulatedSteps)
    times = TableTimes(*map(asarray, (table.decodes, table.prompt_tokens, table.linear, table.context, table.pair_s)))
    if not engine.async_scheduling:
        return times
    return HostOverlap(times, asarray(engine.host_s), asarray(engine.host_sequence_s))


def demand_of(engine: Engine, chunk: float, requests: Requests, cached: float | np.ndarray = 0.0) -> Demand:
    """Demand on an engine that decodes: rate and moments of these requests, answers counted in steps.

    Args:
        engine: one that decodes.
        chunk: prompt tokens of a step where prompts are computed.
        requests: requests with arrivals.
        cached: tokens of each prompt that a cache holds, of all alike or of each.
    """
    assert requests.arrivals is not None
    gaps, prompts, answers = np.diff(requests.arrivals), requests.prompts * 1.0, np.maximum(requests.outputs, 2) * 1.0
    steps = 1 + (answers - 1) / engine.accepted
    varied = prompts if np.ndim(cached) == 0 else prompts - cached
    return Demand(
        rate=1 / gaps.mean(), input_tokens=prompts.mean() - np.mean(cached), output_tokens=steps.mean(),
        chunk=asarray(chunk), input_cv=varied.std() / varied.mean(), output_cv=answers.std() / answers.mean(),
        arrival_cv=gaps.std() / gaps.mean(),
        most=asarray(min(engine.blocks * engine.block_tokens / context_of(requests), float(engine.sequences))),
        prompts=table_of(kinds_of(prompts - cached)), answers=table_of(kinds_of(steps - 1)),
    )  # fmt: skip


def context_of(requests: Requests) -> float:
    """Mean context of a decode."""
    answers = np.maximum(requests.outputs, 2) * 1.0
    return float(requests.prompts.mean() + 0.5 * (answers**2).mean() / answers.mean())


def with_contexts(times: Times, requests: Requests, demand: Demand, cached: float | np.ndarray = 0.0) -> Times:
    """Steps that read what these requests have in the cache."""
    more = asarray(context_of(requests)) - demand.context
    computed = requests.prompts - cached
    before = cached if np.ndim(cached) == 0 else (cached * computed).sum() / computed.sum()
    return LongerContexts(times, more, asarray(before))


def open_form(engine: Engine, requests: Requests, cached: float | np.ndarray, group: float) -> OpenLoop:
    """The open loop's closed form of one of `group` engines, `cached` tokens of each prompt (or of all) in the cache.

    Raises:
        ConfigError: prompts or decodes would pile up.
    """
    demand = demand_of(engine, float(engine.chunk), requests, cached)
    times = with_contexts(traced(engine), requests, demand, cached)
    result = _open(times, demand)
    check_stable(result, demand, lambda: sustained(times, demand), group)
    return result.noticing(float(engine.async_scheduling)).accepting(engine.accepted)


_open = interpreted(open_loop, always=True)


def bounds(engine: Engine, requests: Requests, served: ServedTimes, group: float) -> dict[str, float]:
    """Bounds on any order of serving these requests on this design: a token's mean time at this rate, requests/s."""
    times = engine.times
    assert isinstance(times, TabulatedSteps)
    cached = requests.prefix_tokens if len(requests.prefixes) else 0
    means = mean_request(requests, min(engine.sequences, engine.blocks), cached)
    means = dataclasses.replace(means, steps=means.steps / engine.accepted)
    return {
        "tpot_s": least_token_s(times, means, served.rate) / engine.accepted,
        "requests_per_s": group * most_rate(times, means),
    }  # fmt: skip


def form_numbers(form: OpenLoop) -> dict[str, float]:
    """A closed form by the names of `Served.summary`."""
    numbers = {"decodes": float(form.decodes), "hybrid_step_share": float(form.hybrid_step_share)}
    for name, values in (("ttft_s", form.ttft_s), ("tpot_s", form.tpot_s), ("e2e_s", form.e2e_s)):
        numbers |= {name: float(values.mean)}
        numbers |= {f"{name}.{share}": float(getattr(values, share)) for share in ("p50", "p90", "p99")}
    return numbers


# One replica of a fleet: which requests come to it, and what its prefix cache holds of them.


ROUNDS = 2  # of prompts under way and the times that they take


class Cached:
    """Prompt tokens of each request that a cache is expected to hold, and their share of all."""

    def __init__(self, tokens: np.ndarray, prompts: np.ndarray) -> None:
        self.tokens, self.hit_rate = tokens, float(tokens.sum() / prompts.sum())


def in_closed_form(engine: Engine, requests: Requests, router: str, replicas: int) -> tuple[Requests, Any, Cached]:
    """Requests of one replica, its closed form, and what caches hold; prompts under way by the times that it says."""
    cached = cached_tokens(engine, requests, router, replicas)
    share, form = closed_form_of(engine, requests, cached, replicas)
    for _ in range(ROUNDS if engine.store_blocks else 0):
        cached = cached_tokens(engine, requests, router, replicas, float(form.ttft_s.mean))
        share, form = closed_form_of(engine, requests, cached, replicas)
    return share, form, cached


def _caches(requests: Requests, router: str, replicas: int, room: float) -> list[tuple[np.ndarray, float]]:
    """Requests that come to each cache, and its room.

    Conversations stay with a replica where a router goes by them, or by prefixes that they have alone; others see
    every N-th request. Without conversations to tell, prefix-aware routing is taken to make one cache of all.
    """
    everybody = np.arange(len(requests))
    if router in ("prefix_aware", "session_sticky") and len(requests.sessions):
        turns = requests.sessions % replicas
        return [(everybody[turns == one], room) for one in range(replicas) if (turns == one).any()]
    if router == "prefix_aware":
        return [(everybody, room * replicas)]
    return [(everybody[one::replicas], room) for one in range(replicas)]


def cached_tokens(engine: Engine, requests: Requests, router: str, replicas: int, ttft_s: float = 0.0) -> Cached:
    """Tokens that caches of all replicas hold, by Che's approximation; see `workloads.prefix_reuse`.

    Prompts under way hold their blocks beside the room: as many come a second, for `ttft_s`, those of many blocks
    longer in proportion.
    """
    prompts = requests.prompts
    if not engine.store_blocks:
        shared = (
            requests.prefix_tokens * (requests.prefixes >= 0) if engine.prefix_cache and len(requests.prefixes) else 0
        )
        return Cached(np.minimum(np.zeros(len(prompts)) + shared, prompts - 1), prompts)
    result = np.zeros(len(prompts))
    for chosen, room in _caches(requests, router, replicas, engine.store_blocks):
        reuse = reuse_of(requests.chosen(chosen))
        sizes = np.diff(requests.hash_starts)[chosen]
        assert requests.arrivals is not None
        mean = max(float(sizes.mean()), 1e-9)
        under_way = float((sizes.astype(float) ** 2).sum()) / mean / float(np.ptp(requests.arrivals)) * ttft_s
        room += under_way
        curve = curve_of_reuse(reuse)
        share = float(curve.hit(asarray(float(room))))
        ages = reuse.ages
        within = np.quantile(ages, share, method="lower") if share > 0 else -1.0  # so many are younger
        hits = np.add.reduceat(np.append(ages <= within, False), np.minimum(np.cumsum(sizes) - sizes, len(ages)))
        result[chosen] = np.minimum(np.where(sizes > 0, hits, 0) * requests.hash_tokens, prompts[chosen] - 1)
    return Cached(result, prompts)


def closed_form_of(engine: Engine, requests: Requests, cached: Cached, replicas: int) -> tuple[Requests, Any]:
    """Closed form of one replica that gets every N-th request."""
    first_share = np.arange(0, len(requests), replicas)
    if len(first_share) < FEWEST:
        raise ConfigError(
            f"{len(requests)} requests over {replicas} replicas leave {len(first_share)} to one: at least {FEWEST}"
        )
    share = requests.chosen(first_share)
    return share, open_form(engine, share, cached.tokens[first_share], float(replicas))


def load_of(form: Any) -> float:
    """Share of prompt steps or of slots that is used, whichever is more."""
    return max(float(form.load), float(form.fill))
