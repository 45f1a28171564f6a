"""Serving at a rate: percentiles of what requests see as metrics, and goodput under an SLO, for studies."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.jax_typed import traced_for_all
from ...core.smooth import at_least
from .arriving_load import Demand
from .continuous import AbstractContinuousServing
from .goodput import SLO, Answering, OneEngine, most_at
from .kinds import table_of
from .mixed_step import MixedStep
from .open_loop import OpenLoop
from .ops import Op
from .plan import Layout
from .schedule import Pass, Priced, Timeline, alongside, one_pass
from .steady_state import FULLEST
from .words import OPEN_SERVING, Words

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

    def seen(self, rate: Array) -> OpenLoop:
        """At so many requests/s of all engines together."""
        own = OneEngine(self.times, self.demand).seen(rate / self.count)
        return own.noticing(self.ahead).accepting(self.accepted)


class Answered(NamedTuple):
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

    def weights(self, decodes: Array, prompt_tokens: Array) -> Array:
        """Weights of the priced steps, together 1; [decodes, prompt tokens]."""
        return between(self.decodes, decodes)[..., :, None] * between(self.tokens, prompt_tokens)[..., None, :]

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """See the class."""
        del context, keys
        return (self.weights(decodes, prompt_tokens) * self.seconds).sum((-1, -2))


@traced_for_all
def between(nodes: Array, value: Array) -> Array:
    """Shares of neighbouring nodes that make up a value."""
    width = jnp.maximum(nodes[1:] - nodes[:-1], 1e-9)
    passed = jnp.clip((jnp.asarray(value)[..., None] - nodes[:-1]) / width, 0.0, 1.0)
    one, none = jnp.ones_like(passed[..., :1]), jnp.zeros_like(passed[..., :1])
    return jnp.concatenate([one, passed], -1) - jnp.concatenate([passed, none], -1)


class AbstractOpenServing(AbstractContinuousServing):
    """Continuous serving of requests that arrive at a rate; `plan.micro_batch` is the most sequences that are decoded.

    Gaps between requests have the variation `arrival_cv`. Each of dp x attention_dp x pp engines takes its part of
    them. All metrics are those at a rate: mean and percentiles (`ttft_p99_s`, `tpot_p90_s`, `e2e_p50_s`) from
    `open_loop`, over nine priced steps; `time_s` is that in which as many requests are answered as are decoded at a
    time.

    Assumes: what `open_loop` does; engines that step together meet as many prompts of the others as with their
    batches full; the memory of a full batch is kept free; an engine without requests draws as much as with one.
    Source: closed form of this package, held against `simulation.serving`.
    """

    words: ClassVar[Words] = OPEN_SERVING

    arrival_cv: Float[Array, "*b"] = quantity(high=10.0, default=1.0, doc="variation of gaps between arrivals")

    def nodes(self, layout: Layout) -> tuple[Array, Array]:
        """Decodes and prompt tokens of the steps that are priced."""
        most = self.rhythm(layout).decodes
        one, chunk = jnp.ones_like(most), layout.plan.token_budget * jnp.ones_like(most)
        last = len(DECODES) - 1
        between = [most ** (row / last) for row in range(1, last)]
        return jnp.stack([one, *between, most]), jnp.stack([0 * one, at_least(chunk / SHORTER, 1.0), chunk])

    def step_of(self, layout: Layout, decodes: Array, tokens: Array | None) -> MixedStep:
        """The operations of a step of one attention group."""
        plain = self.decode_step(layout)
        if tokens is None:
            return MixedStep(
                self.model, self.precision, decodes, plain.queries, plain.context, plain.prompt_tokens, plain.prompts,
                plain.keys, plain.shared_tokens, drafted=plain.drafted,
            )  # fmt: skip
        rhythm, prompts = self.rhythm(layout), at_least(tokens / self.computed_tokens(), 1.0)
        alike = rhythm.shared_tokens / rhythm.state.tokens
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
                step = self.step_of(layout, decodes[row], tokens[column])
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
    def answered(self, asked: Answering, most: Array) -> Answered:
        """At which rate, of at most so many requests/s, and what is seen there."""

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """At the rate that is served."""
        passes, (decodes, tokens) = self._passes(priced, layout), self.nodes(layout)
        seconds = self._seconds(passes, layout, decodes[:, None])
        rhythm = self.rhythm(layout)
        others = 1 - at_least(1 - rhythm.state.share, 0.0) ** at_least(self.step_groups(layout) - 1, 0.0)
        usual = (between(tokens, rhythm.state.tokens) * seconds).sum(-1)
        plain = (1 - others) * seconds[:, 0] + others * usual
        times = NodeTimes(decodes, tokens, jnp.concatenate([plain[:, None], seconds[:, 1:]], axis=1))
        count, steps = self.engines(layout), rhythm.steps
        asked = Engines(times, self.demand(layout), count, self.accepted_tokens, float(self.async_scheduling))
        answered = self.answered(asked, count * rhythm.decodes / (steps * times.seconds[-1, 0]))
        rate, seen, share = answered.rate, answered.seen, answered.seen.hybrid_step_share
        rate = jnp.minimum(rate, count * seen.decodes / (steps * seen.step_s))  # who finds no place is not answered
        carried = jnp.minimum(rate / count * seen.step_s * self.computed_tokens() / share, tokens[2])
        weight = (1 - share) * times.weights(seen.decodes, 0 * share) + share * times.weights(seen.decodes, carried)
        return self.told(passes, weight, answered._replace(rate=rate), layout)

    def told(self, passes: Pass, weight: Array, answered: Answered, layout: Layout) -> Timeline:
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

    def answered(self, asked: Answering, most: Array) -> Answered:
        """At the given rate; where sequences find no place in the long run, they wait for ever."""
        del most
        seen = asked.seen(self.arrivals_per_s)
        late = jnp.where(seen.fill > 1, LATE_S * (seen.fill - 1), 0.0)
        used = {"prompts": seen.load / FULLEST, "decodes": seen.fill}
        return Answered(self.arrivals_per_s, seen.later(late), {}, used)


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

    def answered(self, asked: Answering, most: Array) -> Answered:
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
        return Answered(result.rate, result.seen, used, limits)


class ServingAtRate(AbstractServingAtRate):
    """Prompts beside decodes on the same accelerators: see `AbstractServingAtRate`."""


class GoodputServing(AbstractGoodputServing):
    """Prompts beside decodes on the same accelerators: see `AbstractGoodputServing`."""
