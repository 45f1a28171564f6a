"""Checks that parts agree, said in the words of the configuration: formats, legal plans, memory that fits."""

import dataclasses
import functools
import re

from jaxtyping import Array

from ..core.errors import ConfigError, suggestion
from ..core.fields import as_leaf
from ..core.units import BYTES
from ..jaxprs.evaluator import interpreted
from ..model.metrics import memory_by_class
from ..model.metrics.footprint import memory_limits
from ..model.metrics.lifetime import lifetime_limits
from ..model.scenario import Scenario
from ..model.workloads import AbstractServing
from ..model.workloads.under_load import AbstractOpenServing
from ..study.objective import Objective, feasible, share_text
from .legal_values import legal_values
from .outcome_checks import check_prefill_room
from .room import TIERS, capacity_of
from .room import does_not_fit as does_not_fit
from .room import shortage as shortage
from .room import smallest_change as smallest_change

ARITHMETIC = ("compute", "attention")
SERVED = {"ttft_s", "tpot_s", "decode_tokens_per_s"}  # of every kind; others exist for continuous batching alone
"""Metrics that only serving has."""

UNDER_LOAD = {f"{what}_p{share}_s" for what in ("ttft", "tpot", "e2e") for share in (50, 90, 99)}
"""Metrics that only serving has to which requests come at a rate."""

ROUNDED = {"log_perplexity_penalty", "log_perplexity_penalty_low", "log_perplexity_penalty_high"}
"""Metrics that only networks have that round what they sum."""

FIRST = ("heads", "interleaving", "devices")  # rules that explain others come first


def check_formats(scenario: Scenario) -> None:
    """Number formats must be known, and the accelerator must have a peak for those that compute.

    Raises:
        ConfigError: naming the key, the format and the known ones.
    """
    accelerator, precision = scenario.cluster.accelerator, scenario.workload.precision
    named = {"prefill": scenario.cluster.prefill, "later_stages": scenario.cluster.later_stages}
    whose, pool = next(((name, pool) for name, pool in named.items() if pool is not None), ("", None))
    there = accelerator if pool is None else pool.cluster.accelerator
    for tensor in ARITHMETIC:
        value = getattr(precision, tensor)
        if value in accelerator.peak_flops_per_s and value not in there.peak_flops_per_s:
            known = ", ".join(sorted(set(there.peak_flops_per_s) - {"vector"}))
            raise ConfigError(
                f"workload.precision.{tensor} = {value!r}: {there.name} of cluster.{whose} has no peak for it"
                f" (it has {known})"
            )
    for field in dataclasses.fields(precision):
        tensor, value = field.name, getattr(precision, field.name)
        if not isinstance(field.default, str):  # formats by class check their own
            continue
        if not isinstance(value, str):
            raise ConfigError(f"workload.precision.{tensor} = {value!r} is no number format{suggestion('', BYTES)}")
        if value not in BYTES and value != field.default:
            raise ConfigError(f"workload.precision.{tensor} = {value!r} is no number format{suggestion(value, BYTES)}")
        if tensor in ARITHMETIC and value not in accelerator.peak_flops_per_s:
            known = ", ".join(sorted(set(accelerator.peak_flops_per_s) - {"vector"}))
            raise ConfigError(
                f"workload.precision.{tensor} = {value!r}: accelerator {accelerator.name} has no peak for it"
                f" (it has {known})"
            )
    for name in accelerator.peak_flops_per_s:
        if name != "vector" and name not in BYTES:
            raise ConfigError(
                f"cluster.accelerator.peak_flops_per_s.{name} is no number format{suggestion(name, [*BYTES, 'vector'])}"
            )
    if "vector" not in accelerator.peak_flops_per_s:
        raise ConfigError("cluster.accelerator.peak_flops_per_s.vector is missing: element-wise work needs it")
    for name, formats in accelerator.kernels.items():
        if not formats:
            key = f"cluster.accelerator.kernels.{name}"
            raise ConfigError(f"{key} has no kernel: name one by its number format, {key}.any, or delete it: '~{key}'")
    if "elementwise" not in accelerator.kernels:
        raise ConfigError(
            "cluster.accelerator.kernels.elementwise is missing: classes without an entry fall back to it"
        )


def check_encoder(scenario: Scenario) -> None:
    """An encoder answers with nothing: its tokens attend those that come later.

    Raises:
        ConfigError: what it is good for.
    """
    model, tokens = getattr(scenario.workload, "model", None), getattr(scenario.workload, "output_tokens", 0.0)
    if model is None or getattr(getattr(model, "attention", None), "cached", True) or float(tokens) <= 1:
        return
    raise ConfigError(
        f"workload.output_tokens = {float(tokens):g}: {model.name} is an encoder, which generates nothing: choose"
        " workload=training, or workload.output_tokens=1 to encode alone"
    )


def check_asked(objective: Objective, scenario: Scenario) -> None:
    """Times of tokens are asked for where tokens are served, what rounding does where sums are rounded.

    Raises:
        ConfigError: naming the key and the workloads or algorithms that have it.
    """
    cluster, workload = scenario.cluster, scenario.workload
    if not isinstance(workload, AbstractServing):
        way_out = f"for serving workloads, not for {type(workload).__name__}: choose workload=serving or"
        _refuse_asked(objective, SERVED, f"{way_out} workload=serving_fp8")
    if not isinstance(workload, AbstractOpenServing):
        _refuse_asked(objective, UNDER_LOAD, "where requests come at a rate: choose workload=at_rate or goodput")
    if not cluster.quality((), scenario.layout):
        _refuse_asked(objective, ROUNDED, "where sums are rounded: choose an algorithm that does, collective=scin_inq")


def _refuse_asked(objective: Objective, names: set[str], where_they_exist: str) -> None:
    """Refuse goals and bounds on metrics that this scenario does not have."""
    bounds = [
        (f"objective.{group}.{name}", name) for group in ("limits", "floors") for name in getattr(objective, group)
    ]
    goal = "minimise" if objective.minimise else "maximise"
    for where, quantity in [(f"objective.{goal} = {objective.goal}", objective.goal), *bounds]:
        for name in sorted(names - set(objective.custom)):
            if re.search(rf"(?<![\w.]){name}(?![\w.])", quantity):
                raise ConfigError(f"{where}: {name} exists {where_they_exist}")


def check_reach(scenario: Scenario, devices: float | None = None) -> None:
    """The outermost network level must reach every device, unless axes are placed by hand.

    Args:
        scenario: what is checked.
        devices: how many there may be, where that is a plan field; the scenario's own if None.

    Raises:
        ConfigError: naming the level, its reach and the count.
    """
    cluster = scenario.cluster
    name, count = cluster.levels[-1], float(scenario.layout.devices) if devices is None else devices
    reach = float(cluster.joining(as_leaf(count)).network[name].fabric.reach())
    if not cluster.placement and count > reach:
        raise ConfigError(
            f"cluster.levels: the outermost, {name}, reaches {reach:g} of {_counted(scenario)} = {count:g} devices;"
            " add a level, choose another fabric or fewer devices"
        )


def check_plan(scenario: Scenario) -> None:
    """Every rule of the workload must hold for the plan.

    Raises:
        ConfigError: the first broken rule with its numbers, and the nearest values that would be legal.
    """
    rule = _first_broken(scenario)
    if rule:
        text = _broken(rule, scenario)
        raise ConfigError(text + legal_values(scenario, rule, text))


def broken_plan(scenario: Scenario) -> str:
    """The first broken rule with its numbers, without what would keep it; empty where every rule holds."""
    rule = _first_broken(scenario)
    return _broken(rule, scenario) if rule else ""


def _first_broken(scenario: Scenario) -> str:
    broken = [rule for rule, value in _violations(scenario).items() if not float(value) <= 0]
    return min(broken, key=lambda rule: (*FIRST, rule).index(rule), default="")


@functools.partial(interpreted, always=True)
def _violations(scenario: Scenario) -> dict[str, Array]:
    return scenario.workload.violations(scenario.layout)


def _broken(rule: str, scenario: Scenario) -> str:
    """A broken rule in numbers."""
    own = scenario.workload.broken_rule(rule, scenario.layout)
    if own:
        return own
    return f"the plan breaks the rule {rule!r} of {type(scenario.workload).__name__}"


def _counted(scenario: Scenario) -> str:
    """The key that says how many devices there are."""
    return "cluster.device_count" if scenario.plan.device_count is None else "plan.device_count"


def check_memory(scenario: Scenario) -> None:
    """Refuse a plan that keeps more than fits into memory.

    Raises:
        ConfigError: tier, bytes missing, and the smallest change that would fit.
    """
    missing = shortage(scenario)
    if missing:
        raise ConfigError(does_not_fit(scenario, missing))
    check_prefill_room(scenario)
    for limit, share in _life(scenario).items():
        if not feasible(float(share) - 1):
            raise ConfigError(_beyond(limit, float(share)))
    for place, limits in _limits(scenario).items():
        for limit, share in limits.items():
            if not feasible(float(share) - 1):
                used = share_text(float(share))
                raise ConfigError(f"the design cannot be built: {used} of {place}, {limit}, is used")


@functools.partial(interpreted, always=True)
def _life(scenario: Scenario) -> dict[str, Array]:
    """Used shares of what bounds a job over its life."""
    return lifetime_limits(scenario, scenario.cluster)


def _beyond(limit: str, share: float) -> str:
    """One line on a limit of a job over its life."""
    part, _, name = limit.partition(".")
    if part == "scaling_law":
        out = "choose another law with scaling_law=, or say that it is wanted with scaling_law.extrapolate=1"
        return f"workload.scaling_law: {name} lie {share:.3g} times outside the range that the law was fitted on: {out}"
    return f"cluster.reliability.spare_ratio: {share:.3g} times the spares are needed: raise it, or 0 waits for repairs"


@functools.partial(interpreted, always=True)
def _limits(scenario: Scenario) -> dict[str, dict[str, Array]]:
    """Place -> used share of each of its limits."""
    places = {TIERS["hbm"]: memory_limits(scenario.cluster, memory_by_class(scenario))}
    places["cluster.accelerator.die"] = scenario.cluster.accelerator.limits()
    for name in scenario.cluster.levels:
        places[f"cluster.network.{name}"] = scenario.cluster.network[name].limits()
    return places


def check_hopeful(scenario: Scenario) -> None:
    """Refuse what does not fit, and would under no plan, before anything is priced.

    Raises:
        ConfigError: by how much.
    """
    hopeless = scenario.workload.hopeless(scenario.layout, capacity_of(scenario))
    if hopeless and shortage(scenario):
        raise ConfigError(hopeless)
