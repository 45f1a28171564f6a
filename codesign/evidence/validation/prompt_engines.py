"""Engines that compute nothing but prompts, and how long a closed network of clients waits for them.

A step of such an engine takes up to `CHUNK` tokens in each of its attention groups, of one prompt or of several that
are short; what the groups share (experts, all-to-all) runs once for all of them. With N prompts in a full step, which
takes F, and T the first token of a prompt that meets nobody, x engines, C clients and `rate` requests a second:

    S = T + (F - T) rho,  rho = rate S / (N x), at most 1         a step takes longer, the more of it is filled
    G = (C - 1) / C  min(1, rate S / x)  S / 2                    a request finds a step under way, and waits for it
    V = (C - 1) / C  S / (N x)  rate (G + V)                      and then for those that waited before it
    B = (C - 1) / 2  F / (N x)                                    all clients start at once, half of them before it
    W = G + V + burst_ratio max(B - G - V, 0)

burst_ratio, of the engine, is the share of a run that is still as at its start; it was fitted on engines that do both
(`served_rows`). A prompt longer than a step takes several: F counts them. Mean value analysis; S, G and V are solved
together with `rate`, the steady state, which B does not move. With one place G + V is the mean wait of a queue with
equal times of service.

Source: [schweitzer1979] for what an arrival finds.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...core.smooth import at_least
from ...model.scenario import Scenario
from ...model.workloads import ContinuousServing
from ...model.workloads.mixed_step import MixedStep
from ...model.workloads.schedule import one_pass
from .batches import batches, grouped, vectorised
from .served_jobs import Job, continuous_sheet

ROUNDS = 400
DAMPED = 0.5


class PromptEngine(NamedTuple):
    """Engines by job: seconds of a prompt alone, of one in full steps, and how many prompts a full step takes."""

    alone_s: np.ndarray
    full_s: np.ndarray
    prompts: np.ndarray


class Clients(NamedTuple):
    """Closed networks: clients, engines that compute prompts, and share of a run that is as at its start, of each."""

    count: np.ndarray
    engines: np.ndarray
    burst_ratio: np.ndarray


def _full_step(one: Scenario) -> tuple[Array, Array]:
    """Seconds of a prompt in steps that are full in every group, and how many prompts are computed at a time."""
    layout, job = one.layout, one.workload
    assert isinstance(job, ContinuousServing)
    plan, none, alone = layout.plan, jnp.asarray(0.0), jnp.asarray(1.0)
    groups, tokens = plan.ep * plan.attention_dp, job.computed_tokens()
    mine = at_least(plan.token_budget / tokens, 1.0)
    keys = job.attended() + 0.5 * plan.token_budget / mine
    step = MixedStep(job.model, job.precision, none, alone, alone, plan.token_budget, mine, keys, plan.token_budget)
    ended = plan.attention_dp * plan.token_budget / tokens
    ops = step.lower(layout, job.layers_per_stage(layout), ended, phase="mixed", mixed=True, decodes=False)
    priced = list(zip(ops, one.cluster.price(ops, layout, {"mixed": alone}), strict=True))
    done = one_pass(priced, "mixed", plan, job.kernel_slowdown, job.launch_s)
    seconds = job.with_host_s(job.device_s(done, none, layout), none)
    return plan.pp * seconds * at_least(tokens / plan.token_budget, 1.0), plan.pp * groups * mine


_filled = vectorised(_full_step)


def prompt_engines(jobs: Sequence[Job], alone_s: np.ndarray, constants: Mapping[str, dict[str, float]]) -> PromptEngine:
    """Engines of a pool that computes prompts.

    Args:
        jobs: its engines.
        alone_s: seconds to the first token of a prompt that meets nobody (`served_rows.parts_of`).
        constants: of engines.

    Raises:
        ConfigError: a device lacks a number format.
    """
    full, prompts = grouped(batches([continuous_sheet(job, constants.get(job.engine, {})) for job in jobs]), _filled)
    return PromptEngine(alone_s, np.maximum(full, alone_s), prompts)  # more in a step never make it shorter


def closed_network(
    clients: Clients, engine: PromptEngine, decoding: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds at the engines that compute prompts, waiting included, of the decodes of an answer, and how many requests
    are at each of these engines at a time, each [n].

    Args:
        clients: see there, each [n].
        engine: see there, each [n].
        decoding: requests that are decoded at a time [n] -> seconds of an answer [n].
    """
    met, own = (clients.count - 1) / clients.count, engine.full_s / engine.prompts / clients.engines
    wait = gate = np.zeros(len(own))
    decoded, step, answer = clients.count, engine.alone_s, decoding(clients.count)
    for _ in range(ROUNDS):
        rate = clients.count / (step + gate + wait + answer)
        load = np.minimum(rate * step / (engine.prompts * clients.engines), 1.0)
        place = step / (engine.prompts * clients.engines)
        step = _nearer(step, engine.alone_s + (engine.full_s - engine.alone_s) * load)
        gate = _nearer(gate, met * np.minimum(rate * step / clients.engines, 1.0) * step / 2)
        wait = _nearer(wait, met * place * rate * (gate + wait))
        decoded = _nearer(decoded, rate * answer)
        answer = decoding(decoded)
    burst = (clients.count - 1) / 2 * own
    first = step + gate + wait + clients.burst_ratio * np.maximum(burst - gate - wait, 0.0)
    return first, answer, clients.count * first / (first + answer) / clients.engines


def _nearer(before: np.ndarray, found: np.ndarray) -> np.ndarray:
    return (1 - DAMPED) * before + DAMPED * found
