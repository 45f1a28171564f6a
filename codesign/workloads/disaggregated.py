"""Serving from two pools: prompts on accelerators of their own, decodes on the others; or both together."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import quantity
from ..smooth import maximum
from .ops import HANDOVER, CommOp, Op
from .plan import Layout
from .prompt_pool import AbstractPromptPool, either
from .schedule import Priced, Timeline, one_pass, total


class DisaggregatedServing(AbstractPromptPool):
    """As `ContinuousServing`, where `plan.prefill_devices` accelerators beside (`Cluster.prefill`) compute prompts.

    Each of their x engines (`prefill_tp` x `prefill_pp` devices; x counts `prefill_attention_dp` groups) takes one
    prompt at a time, in steps of `prefill_chunk` tokens, from one queue; its keys and values cross the pool's link, and
    a replica of the others decodes. With S the seconds that a prompt keeps an engine busy, D those of its last stages,
    T the crossing, f0 a step of B decodes, L steps an answer, y replicas, and rho = `plan.prefill_load` what an engine
    or its link may be busy:

        1 / rate = max(S / (rho x), T / (rho x), L f0 / (y B))              the pool that is full sets the rate
        TTFT = S + D + W                W = rho^(sqrt(2 (x + 1)) - 1) / (x (1 - rho)) S (a^2 + v^2) / 2
        TPOT = (f0 + (T + f0 / 2) (1 + u^2) / L) / accepted_tokens

    a, v, u are the variations of gaps between arrivals, prompts and answers. All factors are constants of the plan, so
    that times stay sums and maxima of step times, log-convex in the hardware of both pools. Where the other pool is
    full first, engines are busy for less than rho and the wait is shorter than is said. With `prefill_devices` = 0 it
    is `ContinuousServing`: both ways to serve stand in one space.

    Assumes: seconds of a prompt in proportion to its length; links that hold nobody up below rho; devices of both ends
    of a crossing send and take at the same rate; rests of prompts are alike.
    Source: [sakasegawa1977]; two pools [zhong2024]; held against `simulation.serving.simulate_apart`.
    """

    gap_cv: Float[Array, "*b"] = quantity(high=10.0, default=1.0, doc="variation of gaps between arrivals")

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Phases `decode` and `mixed` here; `prefill`, `prefill_rest` and `handover` on and from the pool beside."""
        cut, ops = self.prompt(layout), list(super().lower(layout))
        for phase, tokens in (("prefill", cut.tokens), ("prefill_rest", cut.rest_tokens)):
            ops += self.prompt_ops(layout, phase, tokens)
        return (*ops, self.handover(layout))

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Together or apart, as the plan says."""
        return either(layout, super().timeline(priced, layout), self._apart(priced, layout))

    def _apart(self, priced: Priced, layout: Layout) -> Timeline:
        """The pool that is full first paces both."""
        plan, pool, cut, load = layout.plan, layout.prefill, self.prompt(layout), layout.plan.prefill_load
        plain = one_pass(priced, "decode", plan, self.kernel_slowdown, self.launch_s)
        f0, crossing = self.step_s(plain, layout), total(priced, HANDOVER, CommOp)
        whole, rest = (self.prompt_pass(priced, layout, phase) for phase in ("prefill", "prefill_rest"))
        seconds = [self.prompt_step_s(one) for one in (whole, rest)]
        busy = cut.whole * seconds[0] + cut.rest * seconds[1]
        stage = jnp.where(cut.whole > 0, *seconds)
        sequences, engines = plan.micro_batch * layout.dp, self.prompt_engines(layout)
        rounds = self.rhythm(layout).steps * plan.pp
        paced = sequences / (load * engines) * maximum(busy, crossing.time_s)
        time = maximum(rounds * f0, paced)
        late = load ** (jnp.sqrt(2 * (engines + 1)) - 1) / (engines * (1 - load))
        ttft = (1 + late * 0.5 * (self.gap_cv**2 + self.computed_cv() ** 2)) * busy + (pool.plan.pp - 1) * stage
        ttft = self.first_s(ttft)
        once = (1 + self.output_cv**2) / self.rhythm(layout).steps
        tpot = (plan.pp * f0 * (1 + self.steps_before() * once) + crossing.time_s * once) / self.accepted_tokens
        beside = sequences / engines * (cut.whole * whole.energy_j + cut.rest * rest.energy_j + crossing.energy_j)
        parts = self._breakdown({"decode": plain, "mixed": plain}, {"decode": rounds, "mixed": 0.0 * rounds}, layout)
        extra = self._extra(layout, ttft, tpot, time)
        extra |= {"mixed_ratio": jnp.asarray(0.0), "prompt_load": load * paced / time}
        extra["concurrency"] = sequences * rounds * f0 / time + extra["requests_per_s"] * ttft
        extra["tokens_per_s_per_device"] *= layout.devices / (layout.devices + plan.prefill_devices)
        extra |= {"prefill_busy": load * paced / time, "decode_busy": rounds * f0 / time}
        extra["link_busy"] = sequences / engines * crossing.time_s / time
        parts["unmatched"] = time - rounds * f0
        return Timeline(
            time, parts, rounds * plain.energy_j, sequences * self.output_tokens, sequences * self._flops(), extra,
            self._billed(sequences, jnp.asarray(0.0)), beside,
            working_s=rounds * self.unlisted_s(self.rhythm(layout).decodes, layout),
        )  # fmt: skip

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Steps of each kind while one answer is decoded."""
        two, cut, together = layout.plan.prefill_devices > 0, self.prompt(layout), super().repeats(layout)
        prompts = jnp.where(two, layout.plan.micro_batch * layout.dp / self.prompt_engines(layout), 0.0)
        rounds = self.rhythm(layout).steps * layout.plan.pp
        return {
            "decode": jnp.where(two, rounds, together["decode"]), "mixed": jnp.where(two, 0.0, together["mixed"]),
            "prefill": prompts * cut.whole, "prefill_rest": prompts * cut.rest, HANDOVER: prompts,
        }  # fmt: skip
