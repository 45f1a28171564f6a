"""`codesign simulate` of a design whose prompts have a pool of their own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ..interpreting import interpreted
from ..metrics import priced_ops
from ..metrics.step_times import tabulated_steps
from ..scenario import Scenario
from ..simulation.serving import Engine, Requests, Served, TabulatedSteps, simulate_apart
from ..simulation.serving.serve import Report
from ..workloads import ContinuousServing, DisaggregatedServing
from ..workloads.goodput import check_stable, sustained
from ..workloads.open_loop import Demand, OpenLoop, TableTimes
from ..workloads.ops import HANDOVER
from ..workloads.pools_apart import decodes_of, pools_apart


@dataclasses.dataclass(frozen=True)
class Pools:
    """Engines of both pools, how many there are of each, seconds that the cache of one token crosses the link, and
    seconds that a prompt spends behind the first stage of its engine."""

    prefill: Engine
    decode: Engine
    counts: tuple[int, int]
    token_s: float
    drain_s: float

    def simulated(self, asked: Requests, report: Report) -> Served:
        """Requests one by one."""
        return simulate_apart(
            self.prefill, self.decode, self.counts, asked, lambda prompts: self.token_s * prompts,
            drain_s=self.drain_s, report=report,
        )  # fmt: skip

    def closed_form(self, asked: Requests) -> OpenLoop:
        """The closed form of these requests.

        Raises:
            ConfigError: prompts or decodes would pile up.
        """
        assert asked.arrivals is not None
        gaps, prompts, answers = np.diff(asked.arrivals), asked.prompts * 1.0, np.maximum(asked.outputs, 2) * 1.0
        context = float(prompts.mean() + 0.5 * (answers**2).mean() / answers.mean())
        most = min(self.decode.blocks * self.decode.block_tokens / context, float(self.decode.sequences))
        demand = Demand(
            rate=1 / gaps.mean(), input_tokens=prompts.mean(), output_tokens=answers.mean(),
            chunk=float(self.prefill.chunk), input_cv=prompts.std() / prompts.mean(),
            output_cv=answers.std() / answers.mean(), gap_cv=gaps.std() / gaps.mean(), most=most,
        )  # fmt: skip
        engines = (jnp.asarray(float(self.counts[0])), jnp.asarray(float(self.counts[1])))
        crossing = jnp.asarray(self.token_s * prompts.mean())
        decode = _traced(self.decode)
        found = jax.jit(pools_apart)(_traced(self.prefill), decode, demand, engines, crossing)
        alone = decodes_of(demand, engines[1])
        prompts = demand.rate / found.load
        check_stable(found, demand, lambda: jnp.minimum(prompts, engines[1] * sustained(decode, alone)))
        return found.later(self.drain_s)


def _traced(engine: Engine) -> TableTimes:
    table = engine.times
    assert isinstance(table, TabulatedSteps)
    return TableTimes(
        *map(jnp.asarray, (table.decodes, table.prompt_tokens, table.linear, table.context, table.pair_s))
    )


def has_two_pools(scenario: Scenario) -> bool:
    """Whether prompts of this design have accelerators of their own."""
    return isinstance(scenario.workload, DisaggregatedServing) and float(scenario.plan.prefill_devices) > 0


def pools_of(scenario: Scenario, decode: Engine, groups: float) -> Pools:
    """Both pools of a design, of which `decode` is an engine of one, `groups` in number."""
    work, pool, layout = scenario.workload, scenario.cluster.prefill, scenario.layout.prefill
    assert isinstance(work, DisaggregatedServing)
    assert pool is not None
    fields = {field.name: getattr(work, field.name) for field in dataclasses.fields(ContinuousServing)}
    own = dataclasses.replace(layout.plan, prefill_devices=jnp.asarray(0.0), device_count=layout.devices)
    steps = tabulated_steps(Scenario(pool.cluster, ContinuousServing(**fields), own))
    stages, chunk = float(own.pp), round(float(own.chunk))
    prefill = Engine(steps.times(1 / stages), budget=10**9, chunk=chunk)
    token_s, step = (
        float(_crossing_s(scenario)) / float(work.input_tokens),
        float(work.prompt(scenario.layout).largest()),
    )
    last = prefill.times.linear_s(0, step) + prefill.times.pair_s * step * float(work.attended())
    return Pools(prefill, decode, (round(float(layout.dp)), round(groups)), token_s, (stages - 1) * last)


@interpreted
def _crossing_s(scenario: Scenario) -> jax.Array:
    """Seconds in which the cache of a mean prompt crosses the link."""
    return jnp.asarray(sum(cost.time_s for op, cost in priced_ops(scenario) if op.phase == HANDOVER))
