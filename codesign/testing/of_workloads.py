"""Contract of every workload, laid out by its own plan on a small cluster: sums that add up, axes that exist."""

import jax
import numpy as np
from jaxtyping import Array

from ..core.fields import check_ranges, get_path, replace
from ..core.jax_typed import asarray, grad
from ..jaxprs.evaluator import interpreted
from ..model.metrics import Metrics, evaluate
from ..model.scenario import Scenario
from ..model.workloads import AbstractWorkload, CommOp
from .keeping import all_finite, must
from .small import cluster

RATES = (
    "cluster.accelerator.hbm.bandwidth_bytes_per_s", "cluster.network.scale_up.fabric.bandwidth_bytes_per_s",
    "cluster.network.scale_up.fabric.latency_s",
)  # fmt: skip


def scenario_of(workload: AbstractWorkload) -> Scenario:
    """The example plan of its family on as many devices as one replica has."""
    plan = workload.plan_class.example()
    return Scenario(cluster(float(plan.ranks())), workload, plan)


def legal_and_told_in_numbers(workload: AbstractWorkload) -> None:
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


PROMISES = (
    legal_and_told_in_numbers, parts_add_up_to_the_time, axes_exist, many_at_once_are_the_same,
    finite_slopes_in_the_hardware,
)  # fmt: skip
