"""Contracts of components: promises that every collective, fabric, kernel, memory, runner and workload keeps."""

import dataclasses
import operator
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from ..core.fields import as_leaf, as_leaves, check_ranges, get_path, replace, walk
from ..core.jax_typed import arrays, asarray, grad, jacrev, jit, ones, zeros
from ..executors import AbstractRunner
from ..jaxprs.evaluator import interpreted
from ..model.hardware import AbstractKernel, AbstractMemory, Accelerator, Link, MemoryTier, Roofline, Work
from ..model.metrics import Metrics, evaluate
from ..model.networks.collectives import (
    AbstractCollective,
    Collectives,
    NetworkLevel,
    PairwiseAllToAll,
    Quantised,
    RingAllGather,
    RingAllReduce,
    Send,
)
from ..model.networks.fabrics import AbstractFabric, FatTree, Group, SwitchDomain
from ..model.scenario import Cluster, Facility, Host, Scenario
from ..model.workloads import AbstractWorkload, CommOp

# Helpers of contracts: a promise raises where it is broken, slopes are finite.


class ContractViolation(AssertionError):
    """A promise is not kept; one line on what was seen."""


def must(condition: Any, what: str) -> None:
    """Refuse what is not kept everywhere.

    Raises:
        Broken: saying what.
    """
    if not bool(np.all(np.asarray(condition))):
        raise ContractViolation(what)


def all_finite(tree: Any) -> bool:
    """True if every number of a tree is finite."""
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))


# Contract of every fabric: legal links for every group, finite slopes, log-convexity in what is continuous.


GROUPS = [Group(*arrays(n, s)) for n in (1, 2, 3, 8, 16, 300) for s in (1, 2, 8, 64)]
TIMES = 20.0  # factor around the example, up and down, within which log-convexity is looked at


def outputs(fabric: AbstractFabric, group: Group) -> Array:
    """All outputs of a fabric that are continuous in the hardware: seconds, joules, dollars, watts."""
    link = fabric.link(group)
    return jnp.stack(jnp.broadcast_arrays(
        link.alpha_s, link.beta_s_per_byte, link.energy_j_per_byte, link.reconfiguration_s,
        fabric.capex_usd(), fabric.static_power_w(), *fabric.limits().values(),
        *fabric.counts(asarray(1024.0)).values(),
    ))  # fmt: skip


fabric_slopes = interpreted(jacrev(outputs, argnums=(0, 1)))


def legal_and_sensible_for_every_group(fabric: AbstractFabric) -> None:
    """Numbers in their ranges, at least one device within reach, nothing negative."""
    check_ranges(fabric)
    must(fabric.reach() >= 1, "reach() is less than one device")
    for group in GROUPS:
        link = fabric.link(group)
        must(link.beta_s_per_byte > 0, "link() has no time per byte")
        must([float(leaf) >= 0 for leaf in jax.tree.leaves(link)], "link() has a negative number")
    must(fabric.capex_usd() >= 0, "capex_usd() is negative")
    must(fabric.static_power_w() >= 0, "static_power_w() is negative")


def background_traffic_never_helps(fabric: AbstractFabric) -> None:
    """A loaded link is no faster."""
    for group in GROUPS:
        loaded = fabric.link(Group(group.size, group.stride, asarray(1e9)))
        must(loaded.beta_s_per_byte >= fabric.link(group).beta_s_per_byte, "others on the link make it faster")


def finite_slopes_in_every_leaf_and_in_the_group(fabric: AbstractFabric) -> None:
    """Searches go along them."""
    for group in GROUPS[::5]:
        must(all_finite(fabric_slopes(fabric, group)), f"slopes are not finite for a group of {float(group.size):g}")


def jit_and_vmap_equal_the_plain_call(fabric: AbstractFabric) -> None:
    """All groups at once."""

    def stacked(*leaves: Array) -> Array:
        return jnp.stack(leaves)

    groups = jax.tree.map(stacked, *GROUPS)
    together = jit(jax.vmap(outputs, in_axes=(None, 0)))(fabric, groups)
    must(np.isclose(together, [outputs(fabric, g) for g in GROUPS], rtol=1e-12), "one group alone has another link")


FABRIC_PROMISES = (
    legal_and_sensible_for_every_group, background_traffic_never_helps, finite_slopes_in_every_leaf_and_in_the_group,
    jit_and_vmap_equal_the_plain_call,
)  # fmt: skip


@cache
def _by_logs(cls: type[AbstractFabric]) -> tuple[Array, Callable[..., Array]]:
    """(logs of the leaves that move, (point, group) -> outputs) of an example; compiled once for all groups."""
    example: Any = cls.example()
    values = {path: float(value) for path, _, value in walk(example)}
    moves = np.array([value > 0 and not any(name in path for name in cls.whole) for path, value in values.items()])
    given = asarray(list(values.values()))

    @jit
    def priced(point: Array, group: Group) -> Array:
        moved = jnp.where(moves, jnp.exp(point), given)
        return outputs(replace(example, dict(zip(values, moved, strict=True))), group) + 1e-30

    return jnp.log(jnp.where(moves, given, 1.0)), priced


def log_convex_in_every_continuous_leaf(cls: type[AbstractFabric], group: Group, seed: int) -> None:
    """Leaves around the example, up and down; whole numbers, which decide the group's path, stay."""
    start, priced = _by_logs(cls)
    rng = np.random.default_rng(seed)
    a, b = (start + np.log(TIMES) * asarray(rng.uniform(-1, 1, len(start))) for _ in range(2))
    middle, ends = jnp.log(priced((a + b) / 2, group)), (jnp.log(priced(a, group)) + jnp.log(priced(b, group))) / 2
    must(middle - ends < 1e-9, "not log-convex in its continuous numbers (name whole ones in `whole`)")


# Contract of every kernel model: work of every kind answered, no work for nothing, better hardware never slower.


PEAK, BANDWIDTH = 1e15, 3e12
SHAPES = (
    Work(*arrays(2 * 4096.0**3, 6 * 4096.0**2, 4096.0, 4096.0, 4096.0)),  # a square product
    Work(*arrays(2 * 4096.0**2, 2 * 4096.0**2, 1.0, 4096.0, 4096.0)),  # one row
    Work(*arrays(4.0 * 64 * 2048 * 128, 2.0 * 64 * 2048 * 128, 1.0, 2048.0, 128.0, 64.0, 8.0)),  # one new token
    Work(*arrays(4.0 * 64 * 2048**2 * 128, 8.0 * 64 * 2048 * 128, 2048.0, 2048.0, 128.0, 64.0, 8.0)),  # of a prompt
    Work(*arrays(0.0, 1e6)),  # traffic alone
)
"""Work of every kind a kernel may be given; a kernel that is made for another kind must answer all the same."""


def _seconds(kernel: AbstractKernel, work: Work, peak: Array, bandwidth: Array) -> Array:
    return asarray(kernel.time_s(work, peak, bandwidth))


_kernel_slopes = interpreted(grad(_seconds, argnums=(0, 1, 2, 3)))


def takes_time_for_work_and_none_for_nothing(kernel: AbstractKernel) -> None:
    """Positive and finite for every shape, zero for none."""
    check_ranges(kernel)
    peak, bandwidth = asarray(PEAK), asarray(BANDWIDTH)
    for work in SHAPES:
        must(_seconds(kernel, work, peak, bandwidth) > 0, "time_s() of work is not positive")
    must(_seconds(kernel, Work(*arrays(0.0, 0.0)), peak, bandwidth) == 0, "time_s() of no work is not zero")


def better_hardware_is_never_slower(kernel: AbstractKernel) -> None:
    """Twice the peak, twice the bandwidth; and more traffic is never faster."""
    for work in SHAPES:
        base = _seconds(kernel, work, asarray(PEAK), asarray(BANDWIDTH))
        better = _seconds(kernel, work, asarray(2 * PEAK), asarray(2 * BANDWIDTH))
        more = dataclasses.replace(work, nbytes=1.5 * work.nbytes)
        must(better <= base * (1 + 1e-12), "twice the peak and bandwidth take longer")
        must(
            _seconds(kernel, more, asarray(PEAK), asarray(BANDWIDTH)) >= base * (1 - 1e-12),
            "more bytes take less",
        )


def finite_kernel_slopes(kernel: AbstractKernel) -> None:
    """Check that slopes in the work, the hardware and the kernel's own numbers are finite, also without work."""
    for work in (*SHAPES, Work(*arrays(0.0, 0.0))):
        must(all_finite(_kernel_slopes(kernel, work, asarray(PEAK), asarray(BANDWIDTH))), "slopes are not finite")


KERNEL_PROMISES = (takes_time_for_work_and_none_for_nothing, better_hardware_is_never_slower, finite_kernel_slopes)


# Contract of every memory: answers for every class of data, nothing negative, finite slopes.


STORED = {"weights": 4e10, "kv_cache": 1e10}
MOVED = 1e6


def answers(memory: AbstractMemory) -> dict[str, Array]:
    """All values that a scenario asks of a memory, by name."""
    stored = {name: asarray(nbytes) for name, nbytes in STORED.items()}
    summary = {"usable_bytes()": memory.usable_bytes(), "price_usd()": memory.price_usd()}
    summary |= {"static_power_w()": memory.static_power_w(), "peak_power_w()": memory.peak_power_w()}
    for name in ("", *STORED):
        summary |= {f"bandwidth({name!r})": memory.bandwidth(name), f"energy({name!r})": memory.energy(name)}
        summary[f"added_bytes({name!r})"] = memory.added_bytes(asarray(MOVED), name)
    summary |= {f"edge_bytes_per_s()[{name!r}]": rate for name, rate in memory.edge_bytes_per_s().items()}
    return summary | {f"limits()[{name!r}]": share for name, share in memory.limits(stored).items()}


_memory_slopes = interpreted(jacrev(answers), always=True)


def answers_are_numbers_that_make_sense(memory: AbstractMemory) -> None:
    """Finite, none negative, bandwidths positive."""
    check_ranges(memory)
    for name, value in answers(memory).items():
        must(jnp.isfinite(value) & (value >= 0), f"{name} is {float(value):g}")
        must(value > 0 or not name.startswith("bandwidth"), f"{name} is not positive")


def finite_memory_slopes(memory: AbstractMemory) -> None:
    """Check that slopes in every number of the memory are finite."""
    must(all_finite(_memory_slopes(memory)), "slopes are not finite")


MEMORY_PROMISES = (answers_are_numbers_that_make_sense, finite_memory_slopes)


# Contract of every runner: each task is done, in whatever order; errors of work are raised; no tasks, no results.


TASKS = tuple(range(7))


def does_every_task_once(runner: AbstractRunner) -> None:
    """More tasks than workers."""
    results = sorted(result for result in runner.results(operator.neg, TASKS) if result is not None)
    must(results == sorted(map(operator.neg, TASKS)), f"results() of {len(TASKS)} tasks are {results}")


def raises_what_work_raises(runner: AbstractRunner) -> None:
    """Check that an exception of the work arrives with its message."""
    try:
        list(runner.results(int, ("no number",)))
    except ValueError as error:
        must("no number" in str(error), f"what work raises arrives as {str(error)!r}")
        return
    must(False, "what work raises is lost")


def has_nothing_to_do_where_there_is_nothing(runner: AbstractRunner) -> None:
    """And tells what it needs before, not within."""
    runner.refuse()
    must(list(runner.results(int, ())) == [], "no tasks leave results")
    must(runner.count >= 1 and runner.chunk_s > 0, "count or chunk_s is not positive")


RUNNER_PROMISES = (does_every_task_once, raises_what_work_raises, has_nothing_to_do_where_there_is_nothing)


# Small clusters from plain constructors, on which contracts price what they are given.


KINDS = ("gemm", "moe_gemm", "attention_prefill", "attention_decode", "mla_prefill", "mla_decode")


def rings() -> Collectives:
    """Rings for everything that rings can do."""
    return Collectives(RingAllReduce(), RingAllGather(), RingAllGather(), PairwiseAllToAll(), Send())


def accelerator() -> Accelerator:
    """One accelerator of plausible numbers, kernels by roofline."""
    kernel = Roofline(t0_s=asarray(4e-6), compute_ratio=asarray(0.8), memory_ratio=asarray(0.8))
    kernels: dict[str, dict[str, AbstractKernel]] = {kind: {"bf16": kernel} for kind in KINDS}
    kernels |= {kind: {"any": kernel} for kind in ("elementwise", "optimizer")}
    return Accelerator(
        name="h100_like",
        peak_flops_per_s=as_leaves({"bf16": 989e12, "fp8": 1979e12, "vector": 67e12}),
        hbm=MemoryTier(
            *arrays(80e9, 3.35e12),
            energy_j_per_byte=asarray(40e-12),
            usd_per_byte=asarray(12e-9),
            reserved_bytes=asarray(4e9),
        ),
        kernels=kernels,
        energy_j_per_flop=as_leaves({"bf16": 0.5e-12, "fp8": 0.25e-12, "vector": 1e-12}),
        idle_w=asarray(100.0),
        tdp_w=asarray(560.0),
        price_usd=asarray(29e3),
    )


def cluster(devices: float = 1024.0) -> Cluster:
    """Nodes of eight on a tree."""
    network = {
        "scale_up": NetworkLevel(SwitchDomain(*arrays(8.0, 450e9, 2e-6, 10e-12, 4e-9, 1e-10)), rings()),
        "scale_out": NetworkLevel(FatTree(*arrays(50e9, 6e-6, 1e-6), usd_per_bytes_per_s=asarray(8e-8)), rings()),
    }
    memory = MemoryTier(*arrays(512e9, 300e9), usd_per_byte=asarray(4e-9))
    host = Host(memory, Link(*arrays(1e-5, 1 / 55e9)), price_usd=asarray(6e3), power_w=asarray(150.0))
    return Cluster(accelerator(), host, network, as_leaf(devices), Facility())


# Contract of every workload, laid out by its own plan on a small cluster: sums that add up, axes that exist.


RATES = (
    "cluster.accelerator.hbm.bandwidth_bytes_per_s", "cluster.network.scale_up.fabric.bandwidth_bytes_per_s",
    "cluster.network.scale_up.fabric.latency_s",
)  # fmt: skip


def scenario_of(workload: AbstractWorkload) -> Scenario:
    """The example plan of its family on as many devices as one replica has."""
    plan = workload.plan_class.example()
    return Scenario(cluster(float(plan.ranks())), workload, plan)


def legal_and_described_by_numbers(workload: AbstractWorkload) -> None:
    """The example plan keeps every rule; time, energy and tokens are positive and finite, memory is not negative."""
    scenario = scenario_of(workload)
    check_ranges(scenario)
    metrics = evaluate(scenario)
    broken = [rule for rule, value in metrics.violations.items() if float(value) > 0]
    must(not broken, f"{type(workload.plan_class.example()).__name__}.example() breaks the rules {', '.join(broken)}")
    for name in ("time_s", "energy_j", "tokens_per_s"):
        value = float(metrics.get(name))
        must(np.isfinite(value) and value > 0, f"{name} is {value:g}")
    for name, nbytes in metrics.memory_bytes.items():
        must(nbytes >= 0, f"memory of {name} is negative")


def parts_add_up_to_the_time(workload: AbstractWorkload) -> None:
    """`breakdown_s` sums to `time_s`."""
    metrics = evaluate(scenario_of(workload))
    parts = sum(float(part) for part in metrics.breakdown_s.values())
    must(np.isclose(parts, float(metrics.time_s), rtol=1e-9), f"breakdown_s sums to {parts:g}, not to time_s")


def axes_exist(workload: AbstractWorkload) -> None:
    """Every group that talks is one of the plan's axes and has a member."""
    layout = scenario_of(workload).layout
    for op in workload.lower(layout):
        if isinstance(op, CommOp):
            must(layout.group(op.axis).size >= 1, f"the group of axis {op.axis!r} has less than one member")


def many_at_once_are_the_same(workload: AbstractWorkload) -> None:
    """Three bandwidths in one batch: every metric has the batch's shape."""
    scenario = scenario_of(workload)
    scales = asarray([0.5, 1.0, 2.0])

    def one(scale: Array) -> Metrics:
        return evaluate(replace(scenario, {RATES[0]: scale * get_path(scenario, RATES[0])}))

    times = np.asarray(interpreted(jax.vmap(one), always=True)(scales).time_s)
    must(times.shape == (3,), f"time_s of three scenarios has the shape {times.shape}")
    must(np.isclose(times[1], float(evaluate(scenario).time_s), rtol=1e-9), "a batch has another time than one alone")
    must(np.diff(times) <= 1e-12 * times[0], "more bandwidth takes longer")


def finite_slopes_in_the_hardware(workload: AbstractWorkload) -> None:
    """Searches go along them."""
    scenario = scenario_of(workload)

    def seconds(values: list[Array]) -> Array:
        return evaluate(replace(scenario, dict(zip(RATES, values, strict=True)))).time_s

    result = interpreted(grad(seconds), always=True)([get_path(scenario, path) for path in RATES])
    must(all_finite(result), "slopes of the time in bandwidths and latency are not finite")


WORKLOAD_PROMISES = (
    legal_and_described_by_numbers, parts_add_up_to_the_time, axes_exist, many_at_once_are_the_same,
    finite_slopes_in_the_hardware,
)  # fmt: skip


# Contract of every algorithm of a collective operation, on links and groups drawn at random.


SIZES = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 48.0, 64.0, 1024.0)
POINTS = 48
ROUNDING = 1e-12


class LinkDraws(NamedTuple):
    """One question: logs of alpha, beta and reconfiguration time; bytes; members."""

    logs: Array
    nbytes: Array
    size: Array


def wired(alpha: ArrayLike, beta: ArrayLike, setup: ArrayLike) -> Link:
    """Sixteen lanes of a plausible energy."""
    return Link(asarray(alpha), asarray(beta), asarray(1e-11), asarray(setup), lanes=asarray(16.0))


def draw(seed: int) -> LinkDraws:
    """Random points: 15 ns to 0.1 ms, 10 MB/s to 10 TB/s, a byte to 10 TB, every size above one."""
    rng = np.random.default_rng(seed)
    logs = np.stack(
        [rng.uniform(-18, -9, POINTS), rng.uniform(-30, -16, POINTS), rng.uniform(-18, -9, POINTS)], axis=-1
    )
    size = rng.choice(SIZES[1:], POINTS)
    return LinkDraws(asarray(logs), jnp.exp(asarray(rng.uniform(0, 30, POINTS))), asarray(size))


@jit
def costs(algorithm: AbstractCollective, points: LinkDraws) -> Array:
    """[2, points] seconds and joules; compiled once for each structure."""

    def one(point: LinkDraws) -> Array:
        alpha, beta, setup = jnp.exp(point.logs)
        cost = algorithm.cost(point.nbytes, Group(point.size), wired(alpha, beta, setup))
        return jnp.stack(jnp.broadcast_arrays(cost.time_s, cost.energy_j))

    return jax.vmap(one, out_axes=1)(points)


@interpreted
def collective_slopes(algorithm: AbstractCollective, nbytes: Array, size: Array, link: Link) -> tuple[Any, ...]:
    """Derivatives of seconds and joules in everything."""

    def both(algorithm: AbstractCollective, nbytes: Array, size: Array, link: Link) -> Array:
        cost = algorithm.cost(nbytes, Group(size), link)
        return jnp.stack(jnp.broadcast_arrays(cost.time_s, cost.energy_j))

    return jacrev(both, argnums=(0, 1, 2, 3))(algorithm, nbytes, size, link)


def more_bytes_are_never_cheaper(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """Up to a hundred times as many."""
    less = draw(seed)
    more = less._replace(nbytes=less.nbytes * np.random.default_rng(seed).uniform(1, 100, POINTS))
    must(costs(algorithm, more) >= costs(algorithm, less) * (1 - ROUNDING), "more bytes are cheaper")


def never_faster_than_the_wire(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """Check against the bytes a member must send: all into a sum or to a partner, else all but its own part."""
    points = draw(seed)
    share = 1.0 if operation in ("all_reduce", "send") else (points.size - 1) / points.size
    if isinstance(algorithm, Quantised):
        share = share * algorithm.wire_ratio(Group(asarray(2.0)))
    wire = share * points.nbytes * jnp.exp(points.logs[:, 1])
    must(costs(algorithm, points)[0] >= wire * (1 - 1e-9), f"{operation} is faster than its bytes are on the wire")


def log_convex_in_the_link(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """Check that the time is log-convex in the link, where the class says so."""
    if not algorithm.log_convex:
        return
    a = draw(seed)
    b = a._replace(logs=draw(seed + 1).logs)
    middle = a._replace(logs=(a.logs + b.logs) / 2)
    seconds_a, seconds_b, halfway = (jnp.log(costs(algorithm, point)[0]) for point in (a, b, middle))
    must(halfway <= (seconds_a + seconds_b) / 2 + 1e-9, "the time is not log-convex in the link, and log_convex is set")


def a_group_of_one_is_free(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """Nobody to talk to."""
    points = draw(seed)
    must(costs(algorithm, points._replace(size=ones(POINTS))) == 0, "a group of one is not free")


def nothing_to_move_is_free(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """No bytes, no time."""
    points = draw(seed)
    must(costs(algorithm, points._replace(nbytes=zeros(POINTS))) == 0, "no bytes are not free")


def finite_slopes_in_everything(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """At the ends too: no bytes, one member, no latency."""
    for alpha, setup in ((1e-6, 5e-6), (0.0, 0.0)):
        link = wired(alpha, 1e-9, setup)
        for size, nbytes in ((1.0, 0.0), (1.0, 1e6), (2.0, 0.0), (2.0, 1.0), (48.0, 1e9)):
            result = collective_slopes(algorithm, asarray(nbytes), asarray(size), link)
            must(all_finite(result), f"slopes of {nbytes:g} bytes among {size:g} are not finite")


def one_at_a_time_is_the_same(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """Check that points evaluated one at a time give the same as many together."""
    points = draw(seed)
    together = costs(algorithm, points)
    for index in range(0, POINTS, 16):
        alpha, beta, setup = (float(x) for x in jnp.exp(points.logs[index]))
        link = wired(alpha, beta, setup)
        cost = algorithm.cost(points.nbytes[index], Group(asarray(float(points.size[index]))), link)
        alone = np.array([float(cost.time_s), float(cost.energy_j)])
        must(np.isclose(alone, together[:, index], rtol=ROUNDING), "one question alone has another answer")


AT_RANDOM = (more_bytes_are_never_cheaper, never_faster_than_the_wire, log_convex_in_the_link)
ALWAYS = (
    a_group_of_one_is_free, nothing_to_move_is_free, finite_slopes_in_everything, one_at_a_time_is_the_same,
)  # fmt: skip

COLLECTIVE_PROMISES = (*AT_RANDOM, *ALWAYS)
