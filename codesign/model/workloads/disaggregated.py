"""Serving from two pools: prompts on accelerators of their own, decodes on the others; or both together."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.smooth import at_least, maximum
from .filled_steps import Filling, waits_of
from .ops import KV_TRANSFER, CommOp, Op
from .plan import Layout
from .prompt_pool import AbstractPromptPool, CutPrompt, either
from .schedule import Priced, Timeline, one_pass, total

HALF = 0.5  # of a prompt alone: waits of prompts that share steps are met there and at all of it; chosen


class DisaggregatedServing(AbstractPromptPool):
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
    the wait is that of `filled_steps` where a step takes all its time for prompts (F = N T) and where it takes half of
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

    def _apart(self, priced: Priced, layout: Layout) -> Timeline:
        """The pool that is full first paces both."""
        plan, pool, cut, load = layout.plan, layout.prefill, self.prompt(layout), layout.plan.prefill_max_utilisation
        plain = one_pass(priced, "decode", plan, self.kernel_slowdown, self.launch_s)
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
        extra["tokens_per_s_per_device"] *= layout.devices / (layout.devices + plan.prefill_devices)
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
            steps = Filling(jnp.ones_like(filled), filled, filled * cut.room / cut.filled, cut.room, cut.rest)
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
