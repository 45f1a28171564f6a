"""Two pools at a rate: percentiles of what requests see as metrics, and goodput under an SLO, for studies."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import Module, quantity
from ...core.smooth import at_least
from .disaggregated import AbstractPromptPool, either
from .goodput import (
    SHORTER,
    AbstractGoodputServing,
    AbstractOpenServing,
    AbstractServingAtRate,
    Answering,
    GoodputResult,
    NodeTimes,
    between,
    most_at,
)
from .open_loop import Demand, OpenLoop
from .plan import Layout
from .pools_apart import pools_apart, prompt_s
from .prefixes import keys_before
from .schedule import KV_TRANSFER, CommOp, Op, Pass, Priced, Timeline, total
from .steady_state import FULLEST, Lockstep

__all__ = [
    "AbstractPoolsUnderLoad", "ClosedLoop", "DisaggregatedAtRate", "DisaggregatedClients",
    "DisaggregatedGoodput", "PromptTimes", "TwoQueues",
]  # fmt: skip


PROMPTS = ("prefill_one", "prefill_short", "prefill_half", "prefill", "prefill_long")
"""Priced steps of prompts: one token, few, half a chunk, a chunk, and one whose tokens attend more."""

LONGER = 2.0  # times as many keys as a mean token's attends the last


class PromptTimes(NamedTuple):
    """Seconds of a prompt's steps between few that were priced at the mean keys, and of each query and key more.

    Few tokens take what streaming the weights does, many what arithmetic does: between the second and the third of four
    priced steps the longer of the lines through the first two and the last two counts, no more than the straight line.
    """

    tokens: Array
    seconds: Array
    keys: Array
    pair_s: Array

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """Seconds of a step of prompts alone: nothing is decoded beside them."""
        del decodes, context
        straight = (between(self.tokens, prompt_tokens) * self.seconds).sum(-1)
        slopes = jnp.diff(self.seconds)[::2] / jnp.maximum(jnp.diff(self.tokens)[::2], 1e-9)
        lines = self.seconds[::3] + slopes * (prompt_tokens - self.tokens[::3])
        usual = jnp.minimum(straight, jnp.maximum(lines[0], lines[1]))
        return jnp.maximum(usual + self.pair_s * prompt_tokens * (keys - self.keys), 0.0)


class TwoQueues(NamedTuple):
    """Engines of both pools, how many there are of each, seconds of a mean prompt's cache on its way, and of all that
    comes behind the first stage of a prompt: its last stages, and the host of the engine that decodes."""

    prefill: PromptTimes
    decode: NodeTimes
    demand: Demand
    engines: tuple[Array, Array]
    transfer_s: Array
    behind_s: Array
    accepted: Array
    before: Array | float

    def lone_s(self) -> Array:
        """Seconds to the first token of a mean prompt that meets nobody."""
        return prompt_s(self.prefill, self.demand).mean() + self.behind_s

    def filled_s(self) -> Array:
        """Seconds of an engine for each prompt where its steps are full."""
        chunk, tokens = self.demand.chunk, self.demand.input_tokens
        none = jnp.asarray(0.0)
        return tokens / chunk * self.prefill.step_s(none, none, chunk, 0.5 * tokens)

    def seen(self, rate: Array, solved: Any = None) -> OpenLoop:
        """At so many requests/s of both pools together."""
        asked = self.demand.at(rate)
        result = pools_apart(self.prefill, self.decode, asked, self.engines, self.transfer_s, self.before, solved)
        return result.later(self.behind_s).accepting(self.accepted)


class AbstractPoolsUnderLoad(AbstractPromptPool, AbstractOpenServing):
    """`AbstractOpenServing` where `plan.prefill_devices` accelerators beside may compute prompts.

    With two pools all metrics are those of `pools_apart`: a queue of prompts before x engines, the way of the cache,
    and y engines that decode, at the same rate. `plan.prefill_max_utilisation` is no limit here: the rate or the
    SLO says how busy the pool is (`prefill_pool_utilisation`).

    Assumes: what `pools_apart` and `DisaggregatedServing` do; of attention groups of the pool that step together all
    have prompts, so that TTFT is too long where they are mostly idle. Percentiles are no log-convex functions of
    hardware: no search proves anything of them.
    """

    def together(self, layout: Layout) -> Array:
        """All groups: how busy the pool is follows from the rate."""
        return jnp.ones_like(layout.plan.prefill_max_utilisation)

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Steps of the decoding engines, and phases `PROMPTS` and `kv_transfer` on and from the pool beside."""
        ops, (tokens, attended) = list(super().lower(layout)), self.prompt_nodes(layout)
        for row, phase in enumerate(PROMPTS):
            ops += self.prompt_ops(layout, phase, tokens[row], attended[row])
        return (*ops, self.kv_transfer(layout))

    def prompt_nodes(self, layout: Layout) -> tuple[Array, Array]:
        """Tokens of the prompt steps that are priced, and keys that each token attends."""
        own, one = self.attended(), jnp.ones_like(self.attended())
        chunk = layout.prefill.plan.token_budget * one
        few, half = jnp.maximum(chunk / SHORTER, 1.0), jnp.maximum(chunk / 2, 1.0)
        return jnp.stack([one, few, half, chunk, chunk]), jnp.stack([own, own, own, own, LONGER * own])

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Together or apart, as the plan says."""
        return either(layout, super().timeline(priced, layout), self._apart(priced, layout))

    def _apart(self, priced: Priced, layout: Layout) -> Timeline:
        """At the rate that both pools answer."""
        pool, rhythm, crossing = layout.prefill, self.rhythm(layout), total(priced, KV_TRANSFER, CommOp)
        done = [self.prompt_pass(priced, layout, phase) for phase in PROMPTS]
        (tokens, attended), stages = self.prompt_nodes(layout), jnp.stack([self.prompt_step_s(one) for one in done])
        longer = jnp.maximum(stages[4] - stages[3], 0.0) / (tokens[4] * (attended[4] - attended[3]))
        usual = attended[0] - self.prompt_tokens() * keys_before(
            self.cached_ratio, self.retained_share
        )  # beyond those that every token attends
        prompts = PromptTimes(tokens[:4], stages[:4], usual, longer)
        cut, engines = self.prompt(layout), self.prompt_engines(layout)
        last = between(tokens[:4], cut.largest()) @ stages[:4]
        passes, (decodes, nodes) = self._passes(priced, layout), self.nodes(layout)
        seconds = self._seconds(jax.tree.map(lambda each: each[:, 0], passes), layout, decodes)
        times = NodeTimes(decodes, nodes, seconds[:, None] * jnp.ones((1, 3)))
        count, steps = self.engines(layout), rhythm.steps
        asked = TwoQueues(
            prompts, times, dataclasses.replace(self.demand(layout), chunk=pool.plan.token_budget),
            (engines, count), crossing.time_s, (pool.plan.pp - 1) * last + self.received_s(),
            self.accepted_tokens, self.steps_before(),
        )  # fmt: skip
        answered = self.answered(asked, count * rhythm.decodes / (steps * seconds[-1]))
        seen = answered.seen
        rate = jnp.minimum(answered.rate, count * seen.decodes / (steps * seen.step_s))
        told = self.told(passes, times.weights(seen.decodes, jnp.asarray(0.0)), answered._replace(rate=rate), layout)
        load = jnp.minimum(rate * cut.filled * stages[3] / (cut.room * engines), 1.0)
        return self._beside(told, rate, asked, layout, crossing.energy_j + self._prompt_j(done, layout, load))

    def _prompt_j(self, done: list[Pass], layout: Layout, load: Array) -> Array:
        """Joules of one device that computes a mean prompt, where so much of its steps is filled."""
        cut, (tokens, _) = self.prompt(layout), self.prompt_nodes(layout)
        each, (whole, rests) = jnp.stack([one.energy_j for one in done[:4]]), cut.steps(load)
        return whole * each[3] + rests * (between(tokens[:4], cut.rest_tokens) @ each)

    def _beside(self, told: Timeline, rate: Array, asked: TwoQueues, layout: Layout, joules: Array) -> Timeline:
        """With what the prefill pool adds."""
        each = rate / asked.engines[0]
        extra = dict(told.extra)
        extra["tokens_per_s_per_device"] *= layout.devices / (layout.devices + layout.plan.prefill_devices)
        extra |= {
            "prefill_pool_utilisation": extra["prefill_utilisation"],
            "transfer_utilisation": each * asked.transfer_s,
        }
        extra["decode_pool_utilisation"] = extra["slot_utilisation"]
        beside = each * told.time_s * joules
        return Timeline(
            told.time_s, told.breakdown_s, told.energy_j, told.tokens, told.model_flops, extra, told.billed, beside,
            usage=told.usage, working_s=told.working_s,
        )  # fmt: skip

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Repeats of each phase as with full batches, with as many prompts as are decoded meanwhile."""
        two, cut, together = layout.plan.prefill_devices > 0, self.prompt(layout), super().repeats(layout)
        prompts = jnp.where(two, layout.plan.micro_batch * layout.dp / self.prompt_engines(layout), 0.0)
        rounds = self.rhythm(layout).steps * layout.plan.pp
        result = jax.tree.map(lambda often: jnp.where(two, 0.0, often), together)
        result["decode"] = jnp.where(two, rounds, together["decode"])
        none = jnp.zeros_like(prompts)
        return (
            result | dict.fromkeys(PROMPTS, none) | {"prefill": prompts * (cut.whole + cut.rest), KV_TRANSFER: prompts}
        )


class DisaggregatedAtRate(AbstractPoolsUnderLoad, AbstractServingAtRate):
    """Colocated and disaggregated serving, at a rate: see `AbstractPoolsUnderLoad`, `AbstractServingAtRate`."""


class DisaggregatedGoodput(AbstractPoolsUnderLoad, AbstractGoodputServing):
    """Colocated and disaggregated serving, at the highest rate that meets an SLO: see `AbstractGoodputServing`."""


# Two pools in a closed loop: clients that each send a request when they have the answer to the last.


class ClosedLoop(Module):
    """Clients with one request open each, and their host: Little's law says at which rate they send.

    Where prompts or decodes are full before, the other clients wait for them. All start at once: `start` says what
    share of a run is still so, when of the prompts before a pool of x engines half are computed before one's own.
    """

    concurrency: Float[Array, "*b"] = quantity(low=1.0)
    received_s: Float[Array, "*b"] = quantity(default=0.0)
    issued_s: Float[Array, "*b"] = quantity(default=0.0)
    start: Lockstep = eqx.field(default_factory=Lockstep)

    def host_s(self, seen: OpenLoop) -> Array:
        """Host seconds of a first token: launches are issued beside what accelerators do until then."""
        return self.received_s + at_least(self.issued_s - seen.ttft_s.mean, 0.0)

    def open_at(self, seen: OpenLoop, rate: Array) -> Array:
        """Requests that are open at a time."""
        return rate * (seen.e2e_s.mean + self.host_s(seen))

    def used(self, seen: OpenLoop, rate: Array) -> dict[str, Array]:
        """Used shares of the clients, of steps of prompts, and of places of decodes."""
        return {
            "clients": self.open_at(seen, rate) / self.concurrency, "prompts": seen.load / FULLEST,
            "decodes": seen.fill,
        }  # fmt: skip

    def answered(self, asked: Answering, most: Array) -> tuple[Array, OpenLoop]:
        """Requests/s, of at most so many, and what they see with their host."""
        result = most_at(asked, self, most)
        rate, seen = result.rate, result.seen
        waiting = at_least(self.concurrency - self.open_at(seen, rate), 0.0) / rate
        seen = seen.later(self.host_s(seen) + waiting)
        if not isinstance(asked, TwoQueues):
            return rate, seen
        engines, waited = asked.engines[0], at_least(result.seen.ttft_s.mean + waiting - asked.lone_s(), 0.0)
        burst = at_least(0.5 * (self.concurrency - 1) * asked.filled_s() / engines - waited, 0.0)
        others = at_least(rate * (result.seen.ttft_s.mean + waiting) / engines - 1, 0.0)
        return rate, seen.later(self.start.start_share() * burst + self.start.client_overhead_s * others)


class DisaggregatedClients(AbstractPoolsUnderLoad):
    """Colocated and disaggregated serving of `concurrency` clients, each with one request open (`AbstractOpenServing`).

    They see what requests see that arrive at their rate, evenly spaced: a client sends when it has its answer, so that
    no crowd comes while others wait (`arrival_cv` 0 by default). See `ClosedLoop`, with burst_ratio and
    client_overhead_s of `clients`.

    `handover_s` of `clients` is the hosts', from the end of a prompt to its first decode.

    Assumes: two choices made on measured rows of two pools, gaps without variation and a host of each pool; without a
    pool nobody is in step, as `ContinuousServing` knows it (`Lockstep`), which is the form that was fitted there.
    Source: Little's law; held against an event simulation of clients (`tests/test_clients_of_pools.py`).
    """

    concurrency: Float[Array, "*b"] = quantity(low=1.0, high=1e9, default=64.0, doc="clients, each with one request")
    arrival_cv: Float[Array, "*b"] = quantity(high=10.0, default=0.0, doc="variation of gaps between requests")
    clients: Lockstep = eqx.field(default_factory=Lockstep)

    def answered(self, asked: Answering, most: Array) -> GoodputResult:
        """At the rate of the clients."""
        received, issued = self.received_s(), self.issuing_s()
        if isinstance(asked, TwoQueues):  # the second host, which nothing is issued beside, is in what they see
            issued = issued + received
            received = received + self.clients.handover_s
        loop = ClosedLoop(self.concurrency, received, issued, self.clients)
        rate, seen = loop.answered(asked, most)
        return GoodputResult(
            rate, seen.later(-self.first_overhead_s()), {}, {}
        )  # `_seen` adds it, as nothing would hide it

    def _seen(self, layout: Layout, seen: OpenLoop, requests: Array) -> dict[str, Array]:
        """Metrics by name; all clients have a request open, whoever waits."""
        return super()._seen(layout, seen, requests) | {"concurrency": self.concurrency}
