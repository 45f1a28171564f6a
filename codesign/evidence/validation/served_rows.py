"""What a served row is: model, layout and number format; and the one place where its service is predicted.

`service` is asked by every suite of served models: continuous batching (`ContinuousServing`) on the kernels and the
all-reduce of the row's engine, with what `calibration/frameworks/serving.yaml` adds. A client keeps C requests open and
starts with all of them at once. While one of them decodes its L tokens it meets the prompts of the others, each P long;
what of them it waits for before its first token it does not meet between tokens, so that a whole request takes as long:

    P = L (TPOT0 - f0) / C                 f0 a step without prompts, TPOT0 between tokens in the steady state
    W = ((n - 1) + burst_ratio (C - 1)) / 2 P,   at most (C - 1) P
    TTFT = request_overhead_s + client_overhead_s (C - 1) + max(T + W, expert_overhead_s),    TPOT = TPOT0 - W / L

T is the first token of a prompt that meets nobody. All prompts of the start wait for half of the others: burst_ratio is
the share of a run that is still like that, 1 where an engine takes prompts first and requests stay in step for ever.
Where all lengths are alike, n = cohort_prompts of the requests (at most C) end together and come together again; where
they vary, none do. expert_overhead_s is what the host takes to issue a prompt's launches of a model with experts, many
and small and outside of graphs: it goes on beside what accelerators do until then, and shows where they wait for it.
client_overhead_s is the time of a host that serves its clients one by one for each other request that is open.
Where the cache has room for fewer than all (`served_room`), those are C above, and each of them keeps `crowded` clients
waiting for its whole service (`workloads.waiting_room`).
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...config.groups import conf_dir
from ...core.yaml_io import read_yaml
from ...model.metrics import evaluate
from ...model.scenario import Scenario
from ...model.workloads import ContinuousServing
from ...model.workloads.schedule import one_pass
from ...model.workloads.waiting_room import room_wait_s
from .batches import batches, grouped, vectorised
from .served_jobs import Job, continuous_sheet, scenario

METHOD = "continuous batching at the concurrency, prompts beside decodes in steps of 8192 tokens"
STATIC = "static batches: no waiting, no prompts between decode steps"
WAITING = ("request_overhead_s", "expert_overhead_s", "client_overhead_s", "burst_ratio", "cohort_prompts")


class Service(NamedTuple):
    """Seconds of jobs to the first token and between tokens."""

    first_s: np.ndarray
    between_s: np.ndarray


def _first_and_between(one: Scenario):
    metrics = evaluate(one)
    return metrics.extra["ttft_s"], metrics.extra["tpot_s"]


def _rate_and_share(one: Scenario):
    metrics = evaluate(one)
    return metrics.tokens_per_s / one.cluster.device_count, metrics.usage["hbm"]


_priced, _rated = vectorised(_first_and_between), vectorised(_rate_and_share)


def static_service(jobs: Sequence[Job]) -> Service:
    """Of static batches of `sequences`: the first token of one prompt alone.

    Raises:
        ConfigError: a device lacks a number format.
    """
    together = [scenario(job, job.sequences) for job in jobs]
    alone = [scenario(job, 1.0) for job in jobs]
    first, between = grouped(batches([*together, *alone]), _priced)
    count = len(jobs)
    return Service(first[count:], between[:count])


@functools.cache
def stored_serving() -> dict[str, dict[str, float]]:
    """Constants of engines, as last fitted."""
    path = conf_dir() / "calibration" / "frameworks" / "serving.yaml"
    data = read_yaml(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {engine: dict(constants) for engine, constants in data.items() if engine != "provenance"}


def _steps(one: Scenario):
    """First token, between tokens, a step without prompts: as `evaluate` says, without memory and money."""
    layout, job = one.layout, one.workload
    assert isinstance(job, ContinuousServing)
    ops = job.lower(layout)
    costs = one.cluster.price(ops, layout, job.repeats(layout))
    priced = list(zip(ops, costs, strict=True))
    extra = job.timeline(priced, layout).extra
    plain = one_pass(priced, "decode", layout.plan, job.kernel_slowdown, job.launch_s)
    return extra["ttft_s"], extra["tpot_s"], job.step_s(plain, layout)


_stepped = vectorised(_steps)


class SteadyTimes(NamedTuple):
    """Seconds of jobs in the steady state: first token alone, between tokens, a step without prompts."""

    alone_s: np.ndarray
    between_s: np.ndarray
    decode_s: np.ndarray


class Waiters(NamedTuple):
    """What waiting depends on: requests that are served at a time, tokens of an answer, whether lengths vary, whether
    experts are chosen, and clients that wait for room for each request that is served."""

    sequences: np.ndarray
    output_tokens: np.ndarray
    varied: np.ndarray
    experts: np.ndarray
    crowded: np.ndarray | float = 0.0


def parts_of(jobs: Sequence[Job], constants: Mapping[str, dict[str, float]]) -> SteadyTimes:
    """What steps alone make of jobs; a prompt that meets nobody is priced once for all concurrencies.

    Raises:
        ConfigError: a device lacks a number format.
    """
    single: dict[Any, int] = {}
    members = [single.setdefault(_alone_key(job), len(single)) for job in jobs]
    first = {number: place for place, number in reversed(list(enumerate(members)))}
    lone = [jobs[first[number]]._replace(sequences=1.0) for number in range(len(single))]
    drawn = [continuous_sheet(job, constants.get(job.engine, {})) for job in (*jobs, *lone)]
    firsts, between, decode = grouped(batches(drawn), _stepped)
    count = len(jobs)
    return SteadyTimes(firsts[count:][members], between[:count], decode[:count])


def _alone_key(job: Job) -> Any:
    """What a lone prompt depends on."""
    return (id(job.cluster), id(job.model), *job[2:7], *job[8:10], job.engine, job.groups, job.varied)


def requests_of(jobs: Sequence[Job], crowded: np.ndarray | None = None) -> Waiters:
    """What waiting depends on, of jobs; `crowded`: clients that wait for room for each request that is served."""
    sequences, output = (np.array([getattr(job, name) for job in jobs]) for name in ("sequences", "output_tokens"))
    chosen = [hasattr(job.model.feed_forward, "experts") for job in jobs]
    varied, none = np.array([job.varied for job in jobs]), np.zeros(len(jobs))
    return Waiters(sequences, np.maximum(output, 2.0), varied, np.array(chosen), none if crowded is None else crowded)


def waiting(parts: SteadyTimes, requests: Waiters, constants: Mapping[str, np.ndarray | float]) -> Service:
    """Service of requests that wait for each other's prompts; see the module."""
    none = np.zeros(len(parts.alone_s))
    host, experts, client, ratio, cohort = (constants.get(name, none) for name in WAITING)
    prompt = requests.output_tokens * np.maximum(parts.between_s - parts.decode_s, 0.0) / requests.sequences
    together = np.where(requests.varied, 1.0, np.clip(cohort, 1.0, np.maximum(requests.sequences, 1.0)))
    others = requests.sequences - 1
    met = np.minimum((together - 1 + ratio * others) / 2, others) * prompt
    own = np.maximum(parts.alone_s + met, experts * requests.experts)
    between = parts.between_s - met / requests.output_tokens
    clients = requests.sequences * (1 + requests.crowded)
    room = room_wait_s(clients, requests.sequences, own + requests.output_tokens * between)
    return Service(host + client * (clients - 1) + room + own, between)


def service(
    jobs: Sequence[Job], constants: Mapping[str, dict[str, float]] | None = None, crowded: np.ndarray | None = None
) -> Service:
    """Predicted service of jobs under a concurrency of `sequences`.

    Args:
        jobs: what is served.
        constants: of engines, in place of those last fitted.
        crowded: as of `requests_of`.

    Raises:
        ConfigError: a device lacks a number format.
    """
    known = stored_serving() if constants is None else constants
    mine = [known.get(job.engine, {}) for job in jobs]
    added = {name: np.array([one.get(name, 0.0) for one in mine]) for name in WAITING}
    return waiting(parts_of(jobs, known), requests_of(jobs, crowded), added)


def fastest(jobs: Sequence[Job], most: float) -> np.ndarray:
    """Tokens per second and device at the best static batch, a power of two up to `most`, that fits; 0 if none does.

    Raises:
        ConfigError: a device lacks a number format.
    """
    sizes = 2.0 ** np.arange(np.log2(most) + 1)
    candidates = [scenario(job, size * job.replicas) for job in jobs for size in sizes]
    rate, share = grouped(batches(candidates), _rated)
    return np.where(share <= 1.0, rate, 0.0).reshape(len(jobs), len(sizes)).max(axis=1)
