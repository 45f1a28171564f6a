"""Closed forms of the requests that `codesign simulate` serves, and bounds on any order of serving them."""

import dataclasses

import numpy as np

from ..core.jax_typed import asarray
from ..jaxprs.evaluator import interpreted
from ..model.workloads.goodput import check_stable, sustained
from ..model.workloads.kinds import kinds_of, table_of
from ..model.workloads.mean_step import BesideHost, LongerContexts
from ..model.workloads.open_loop import Demand, OpenLoop, TableTimes, Times, open_loop
from ..simulation.serving import Engine, Requests, Served, TabulatedSteps, least_token_s, mean_request, most_rate

__all__ = ["bounds", "demand_of", "form_numbers", "open_form", "traced", "with_contexts"]


def traced(engine: Engine) -> Times:
    """Steps of an engine, as closed forms ask for them."""
    table = engine.times
    assert isinstance(table, TabulatedSteps)
    times = TableTimes(*map(asarray, (table.decodes, table.prompt_tokens, table.linear, table.context, table.pair_s)))
    if not engine.async_scheduling:
        return times
    return BesideHost(times, asarray(engine.host_s), asarray(engine.host_sequence_s))


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


def bounds(engine: Engine, requests: Requests, served: Served, group: float) -> dict[str, float]:
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
