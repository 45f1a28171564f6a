"""`codesign simulate` of a design whose prompts have a pool of their own."""

import dataclasses

import jax
import jax.numpy as jnp

from ..jaxprs.evaluator import interpreted
from ..model.metrics import priced_ops
from ..model.metrics.step_times import tabulated_steps
from ..model.scenario import Scenario
from ..model.workloads import ContinuousServing
from ..model.workloads.goodput import check_stable, sustained
from ..model.workloads.open_loop import OpenLoop
from ..model.workloads.ops import KV_TRANSFER
from ..model.workloads.pools_apart import decodes_of, pools_apart
from ..model.workloads.prompt_pool import AbstractPromptPool
from ..simulation.serving import Engine, Requests, Served, simulate_apart
from ..simulation.serving.serve import Report
from .simulate_forms import demand_of, traced, with_contexts


@dataclasses.dataclass(frozen=True)
class Pools:
    """Engines of both pools, how many there are of each, seconds that the cache of one token crosses the link, and
    seconds that a prompt spends behind the first stage of its engine."""

    prefill: Engine
    decode: Engine
    counts: tuple[int, int]
    token_s: float
    drain_s: float

    def simulated(self, asked: Requests, report: Report, *, timeline: bool = False) -> Served:
        """Requests one by one."""
        return simulate_apart(
            self.prefill, self.decode, self.counts, asked, lambda prompts: self.token_s * prompts,
            drain_s=self.drain_s, report=report, timeline=timeline,
        )  # fmt: skip

    def reseeded(self, seed: int) -> "Pools":
        """Copy whose accepted tokens are drawn with another seed."""
        return dataclasses.replace(self, decode=dataclasses.replace(self.decode, seed=seed))

    def closed_form(self, asked: Requests) -> OpenLoop:
        """The closed form of these requests.

        Raises:
            ConfigError: prompts or decodes would pile up.
        """
        demand = demand_of(self.decode, float(self.prefill.chunk), asked)
        engines = (jnp.asarray(float(self.counts[0])), jnp.asarray(float(self.counts[1])))
        crossing, decode = (
            jnp.asarray(self.token_s * asked.prompts.mean()),
            with_contexts(traced(self.decode), asked, demand),
        )
        seen = 1.5 if self.decode.async_scheduling else 0.5
        result = _apart(traced(self.prefill), decode, demand, engines, crossing, jnp.asarray(seen))
        alone = decodes_of(demand, engines[1])
        prompts = demand.rate / result.load
        check_stable(result, demand, lambda: jnp.minimum(prompts, engines[1] * sustained(decode, alone)))
        return result.later(self.drain_s).accepting(self.decode.accepted)


_apart = interpreted(pools_apart, always=True)


def pools_of(scenario: Scenario, decode: Engine, groups: float) -> Pools:
    """Prefill and decode pool of a design, of which `decode` is an engine of one, `groups` in number."""
    work, pool, layout = scenario.workload, scenario.cluster.prefill, scenario.layout.prefill
    assert isinstance(work, AbstractPromptPool)
    assert pool is not None
    names = {field.name for field in dataclasses.fields(ContinuousServing)} & {
        one.name for one in dataclasses.fields(work)
    }
    fields = {name: getattr(work, name) for name in names}
    own = dataclasses.replace(layout.plan, prefill_devices=jnp.asarray(0.0), device_count=layout.devices)
    alike = float(work.together(scenario.layout))
    steps = tabulated_steps(Scenario(pool.cluster, ContinuousServing(**fields), own), alone=True, alike=alike)
    stages, chunk = float(own.pp), round(float(own.token_budget))
    prefill = Engine(steps.times(1 / stages), budget=10**9, chunk=chunk)
    token_s, step = (
        float(_crossing_s(scenario)) / float(work.prompt_tokens()),
        float(work.prompt(scenario.layout).largest()),
    )
    last = prefill.times.linear_s(0, step) + prefill.times.pair_s * step * float(work.attended())
    counts = (round(float(work.prompt_engines(scenario.layout))), round(groups))
    return Pools(prefill, decode, counts, token_s, (stages - 1) * last)


@interpreted
def _crossing_s(scenario: Scenario) -> jax.Array:
    """Seconds in which the cache of a mean prompt crosses the link."""
    return jnp.asarray(sum(cost.time_s for op, cost in priced_ops(scenario) if op.phase == KV_TRANSFER))
