"""Checks that parts agree, said in the words of the configuration: formats, legal plans, memory that fits."""

import dataclasses
import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxtyping import Array

from ..core.errors import ConfigError, suggestion
from ..core.fields import as_leaf, check_integer, get_path, replace
from ..core.smooth import used_share
from ..core.units import BYTES, GB
from ..jaxprs.evaluator import interpreted
from ..model.metrics import memory_by_class
from ..model.metrics.footprint import memory_limits
from ..model.metrics.money import ffn_pool, lifetime_limits, prefill_pool
from ..model.networks.collectives import OPERATIONS, Chosen
from ..model.networks.fabrics.contended import CALM_RATIO
from ..model.scenario import OTHERS, Scenario
from ..model.workloads import AbstractServing
from ..model.workloads.base import BESIDE
from ..model.workloads.goodput import AbstractOpenServing
from ..model.workloads.plan_fields import plan_field, plan_numbers, plan_value, words_of
from ..study.design_space import DesignSpace
from ..study.objective import POSITIVE, Objective, feasible, share_text
from .consistency import idle_fields
from .groups import PACKAGES, available, expand
from .memory_advice import TIERS, capacity_of, legal_values
from .memory_advice import does_not_fit as does_not_fit
from .memory_advice import shortage as shortage
from .memory_advice import smallest_change as smallest_change

__all__ = [
    "broken_plan", "check_encoder", "check_formats", "check_hopeful", "check_memory", "check_objective",
    "check_outcome", "check_plan", "check_reach", "check_variables", "not_held", "refuse_overruled",
    "refuse_overruled_count",
]  # fmt: skip


# Feasibility checks of a priced design: prefill memory, used shares, finite numbers.
#
# The decision is `objective.feasible`, as in every search.


HBM = "cluster.accelerator.hbm"  # of a pool, or without a pool's name of the cluster
PASSING = {"time_s", "tokens_per_s"}  # no design has them at 0; one without prices or energies costs or draws nothing
DOUBLED = 6  # times that a degree of the pool is doubled while one that fits is looked for
OWNERS = {"hbm": HBM, "ddr": "cluster.host.memory", "die": "cluster.accelerator.die"}


class PoolDegrees(NamedTuple):
    """A pool beside a cluster: its name, and the degrees that make a device hold less; an engine is their product."""

    name: str
    degrees: tuple[str, str]


POOLS = (
    PoolDegrees("prefill", ("prefill_tp", "prefill_pp")),
    PoolDegrees("ffn", ("ffn_ep", "ffn_tp")),
)


def check_pool_room(scenario: Scenario) -> None:
    """Refuse a pool whose weights and caches do not fit its memory.

    Raises:
        ConfigError: bytes missing, and the smallest degrees of the pool that would fit.
    """
    for pool in POOLS:
        used, usable = _bytes_of(scenario, pool)
        if feasible(float(used_share(used, usable)) - 1):
            continue
        ways = _ways(scenario, pool)
        helps = f"smallest change that fits: {', or '.join(ways)}" if ways else "no degrees of the pool would fit it"
        devices = float(getattr(scenario.plan, f"{pool.name}_devices"))
        raise ConfigError(
            f"the model does not fit: cluster.{pool.name}.{HBM} lacks {(used - usable) / GB:.1f} GB per device (needs"
            f" {used / GB:.1f}, has {usable / GB:.1f}) with plan.{pool.name}_devices = {devices:g}; {helps}"
        )


def _bytes_of(scenario: Scenario, pool: PoolDegrees) -> tuple[float, float]:
    used, usable = (float(number) for number in _pools(scenario)[pool.name])
    return used, usable


@functools.partial(interpreted, always=True)
def _pools(scenario: Scenario) -> dict[str, tuple[Array, Array]]:
    """(bytes that a device of each pool keeps, bytes that it may), none of none where there is no such pool."""
    work, layout = scenario.workload, scenario.layout
    nothing, result = 0.0 * layout.devices, dict[str, tuple[Array, Array]]()
    pool_bytes = {"prefill": (prefill_pool, work.prefill_bytes), "ffn": (ffn_pool, work.ffn_bytes)}
    for name, (bought, nbytes) in pool_bytes.items():
        pool = bought(scenario.cluster, layout)
        result[name] = (nothing, nothing)
        if pool is not None:
            result[name] = sum(nbytes(layout).values(), nothing), pool.usable_bytes()
    return result


@functools.partial(interpreted, always=True)
def _broken_numbers(scenario: Scenario) -> dict[str, Array]:
    return scenario.workload.violations(scenario.layout)


def _ways(scenario: Scenario, pool: PoolDegrees) -> list[str]:
    """Overrides with which the pool's share fits and no rule is broken, the fewest and smallest of each kind."""
    plan, devices = scenario.plan, f"{pool.name}_devices"
    first, second = pool.degrees
    result = list[str]()
    for one, two in sorted(itertools.product(range(DOUBLED + 1), repeat=2), key=lambda one: (sum(one), one[1])):
        degrees = {first: float(getattr(plan, first)) * 2**one, second: float(getattr(plan, second)) * 2**two}
        change = {name: value for name, value in degrees.items() if value != float(getattr(plan, name))}
        engine = math.prod(degrees.values())
        if engine > float(getattr(plan, devices)):  # a pool of one engine more than it has
            change[devices] = engine
        other = replace(scenario, {f"plan.{name}": value for name, value in change.items()})
        used, usable = _bytes_of(other, pool)
        legal = all(float(value) <= 0 for value in _broken_numbers(other).values())
        if change and legal and feasible(float(used_share(used, usable)) - 1):
            result.append(" ".join(f"plan.{name}={value:g}" for name, value in change.items()))
            if len(result) > 1:
                break
    return result


def check_outcome(scenario: Scenario, numbers: Mapping[str, float]) -> None:
    """Refuse a design that uses more of anything than there is, or whose numbers are none.

    Args:
        scenario: as it was priced.
        numbers: its metrics by name.

    Raises:
        ConfigError: the part that is used, by how much, and what would help; or the metric.
    """
    over = {
        name.removeprefix("usage."): share
        for name, share in numbers.items()
        if name.startswith("usage.") and not feasible(share - 1)
    }
    if over:
        name = max(over, key=lambda name: over[name] if over[name] == over[name] else math.inf)
        raise ConfigError(_share_beyond(scenario, name, over[name]))
    for name in sorted(POSITIVE & set(numbers)):
        value = numbers[name]
        if not 0 <= value < math.inf or (name in PASSING and value == 0):
            allowed = "above 0" if name in PASSING else "from 0 on"
            raise ConfigError(
                f"the design has no {name}: it is {value:g}, where a finite number {allowed} is allowed; take values"
                " that products have (`codesign list variables` shows usual ones)"
            )


def _share_beyond(scenario: Scenario, name: str, share: float) -> str:
    """One line on a used share."""
    part, _, limit = name.partition(".")
    if limit == OTHERS and part in scenario.cluster.network:
        return _crowded(scenario, part, share)
    owner = OWNERS.get(part, f"cluster.network.{part}" if part in scenario.cluster.network else part)
    if limit.startswith("hbm") and getattr(scenario.cluster, part, None) is not None:  # memory of a pool beside
        owner, limit = f"cluster.{part}.{HBM}", limit.partition(".")[2]
    tier_words = f"{limit} of {owner}" if limit else owner
    return f"usage.{name} = {share:.4g}: {share_text(share)} of {tier_words} would be used, at most 100% can be"


def _crowded(scenario: Scenario, level: str, share: float) -> str:
    """Message on a link that others fill."""
    key = f"cluster.network.{level}.fabric.background_bytes_per_s"
    value = float(get_path(scenario, key))
    return (
        f"{key} = {value:.4g}: others take {CALM_RATIO * share:.4g} of the rate of links that the plan uses"
        f" (usage.{level}.{OTHERS} = {share:.4g}); allowed: at most {CALM_RATIO:g} of it, beyond which no time can be"
        f" predicted; a smaller {key}, a smaller share that leaves the node or faster links help"
    )


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
    named = {name: getattr(scenario.cluster, name) for name in ("prefill", "later_stages", "ffn")}
    others = [(whose, pool.cluster.accelerator) for whose, pool in named.items() if pool is not None]
    for tensor, (whose, there) in itertools.product(ARITHMETIC, others):
        value = getattr(precision, tensor)
        if value in accelerator.peak_flops_per_s and value not in there.peak_flops_per_s:
            supported = ", ".join(sorted(set(there.peak_flops_per_s) - {"vector"}))
            raise ConfigError(
                f"workload.precision.{tensor} = {value!r}: {there.name} of cluster.{whose} has no peak for it"
                f" (it has {supported})"
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
            supported = ", ".join(sorted(set(accelerator.peak_flops_per_s) - {"vector"}))
            raise ConfigError(
                f"workload.precision.{tensor} = {value!r}: accelerator {accelerator.name} has no peak for it"
                f" (it has {supported})"
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


def check_objective(objective: Objective, scenario: Scenario) -> None:
    """Times of tokens are asked for where tokens are served, what rounding does where sums are rounded.

    Raises:
        ConfigError: naming the key and the workloads or algorithms that have it.
    """
    cluster, workload = scenario.cluster, scenario.workload
    if not isinstance(workload, AbstractServing):
        way_out = f"for serving workloads, not for {type(workload).__name__}: choose workload=serving or"
        _refuse_metrics(objective, SERVED, f"{way_out} workload=serving_fp8")
    if not isinstance(workload, AbstractOpenServing):
        _refuse_metrics(objective, UNDER_LOAD, "where requests come at a rate: choose workload=at_rate or goodput")
    if not cluster.quality((), scenario.layout):
        _refuse_metrics(
            objective, ROUNDED, "where sums are rounded: choose an algorithm that does, collective=scin_inq"
        )


def _refuse_metrics(objective: Objective, names: set[str], where_they_exist: str) -> None:
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


NO_POOL = "this job has no prompts"


def check_plan(scenario: Scenario) -> None:
    """Every rule of the workload must hold for the plan.

    Raises:
        ConfigError: the first broken rule with its numbers, and the nearest values that would be legal.
    """
    held, stages = (float(getattr(scenario.plan, name, 0.0)) for name in ("later_layers", "later_stages"))
    if held > 0 and stages == 0:  # would be read and forgotten
        raise ConfigError(
            f"plan.later_layers = {held:g} has no stage to be in: plan.later_stages = 0; set plan.later_stages to 1 or"
            " more, or leave plan.later_layers out"
        )
    apart = float(getattr(scenario.plan, "ffn_devices", 0.0))
    if apart > 0 and not scenario.workload.ffn_apart:  # the same
        raise ConfigError(f"plan.ffn_devices = {apart:g}: {type(scenario.workload).__name__} {BESIDE}")
    pool = float(getattr(scenario.plan, "prefill_devices", 0.0))
    if pool > 0 and not scenario.workload.two_pools:  # the same
        raise ConfigError(f"plan.prefill_devices = {pool:g}: {idle_fields(scenario).get('prefill_devices', NO_POOL)}")
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
    reason = scenario.workload.broken_rule(rule, scenario.layout)
    if reason:
        return reason
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
    check_pool_room(scenario)
    for limit, share in _life(scenario).items():
        if not feasible(float(share) - 1):
            raise ConfigError(_beyond(limit, float(share)))
    for tier, limits in _limits(scenario).items():
        for limit, share in limits.items():
            if not feasible(float(share) - 1):
                used = share_text(float(share))
                raise ConfigError(f"the design cannot be built: {used} of {tier}, {limit}, is used")


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


# Checks of a space on this hardware: values of plan fields, algorithms that a network offers, leaves.


MOST_LEVELS = 1_000_000  # of a variable's grid


def check_variables(space: DesignSpace, scenario: Scenario) -> None:
    """Every hardware variable must lead to a leaf of this scenario; another fabric or memory may have other leaves.

    Raises:
        ConfigError: what is missing, all variables that are, and how to go on without them.
    """
    for name, values in space.plan.items():
        for value in values:
            _check_listed(name, value)
        _refuse_repeated(name, plan_numbers(name, values), values)
    for name, variable in space.hardware.items():
        _refuse_along(name, variable)
    _check_algorithms(space, scenario)
    if "device_count" in space.plan:
        check_reach(scenario, max(map(float, space.plan["device_count"])))
    wrong: dict[str, ConfigError] = {}
    for name, variable in space.hardware.items():
        if variable.grid > MOST_LEVELS:
            raise ConfigError(f"space.hardware.{name}.grid = {variable.grid:,} levels: at most {MOST_LEVELS:,}")
        try:
            DesignSpace(hardware={name: variable}).check_paths(scenario)
        except ConfigError as error:
            wrong[name] = error
    if wrong:
        name, error = next(iter(wrong.items()))
        path = space.hardware[name].path
        absent = [g for g, prefix in PACKAGES.items() if path.startswith(f"{prefix}.") and not _has(scenario, prefix)]
        if absent:
            raise ConfigError(
                f"space.hardware.{name} needs a {absent[0]}: choose one, {absent[0]}={next(iter(available(absent[0])))}"
            ) from error
        also = f" (nor has it what {', '.join(list(wrong)[1:])} names)" if len(wrong) > 1 else ""
        without = " ".join(f"'~space.hardware.{name}'" for name in wrong)
        raise ConfigError(
            f"space.hardware.{name} does not exist on this hardware: {error}{also};"
            f" give it another path, choose another space (`codesign list space`), or leave it out: {without}"
        ) from error


COUNTS = ("cluster.device_count", "plan.device_count")


def refuse_overruled(space: DesignSpace, overrides: Sequence[str]) -> None:
    """Refuse a number of devices that is typed where the space lists numbers of its own, which would count instead.

    Raises:
        ConfigError: both, and how to say which is meant.
    """
    listed = space.plan.get("device_count", ())
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        if len(listed) and expand(key) in COUNTS and [f"{float(count):g}" for count in listed] != [value]:
            numbers = ", ".join(f"{float(count):g}" for count in listed)
            raise ConfigError(
                f"{key} = {value} would not count: space.plan.device_count lists {numbers};"
                f" take 'space.plan.device_count=[{value}]', or leave the list out: '~space.plan.device_count'"
            )


def refuse_overruled_count(scenario: Scenario, overrides: Sequence[str]) -> None:
    """Refuse a number of devices of the cluster where the plan has one of its own, which nobody typed.

    Raises:
        ConfigError: both, and what to type.
    """
    typed = {expand(text.lstrip("+").partition("=")[0]): text.partition("=")[2] for text in overrides}
    plan_count, said = scenario.plan.device_count, typed.get("cluster.device_count")
    if plan_count is None or said is None or "plan.device_count" in typed or said == f"{float(plan_count):g}":
        return
    raise ConfigError(
        f"cluster.device_count = {said} would not count: the plan has {float(plan_count):g} devices of its own; take"
        f" plan.device_count={said}"
    )


def not_held(space: DesignSpace, overrides: Sequence[str]) -> list[str]:
    """A line for each plan field that is typed and varies all the same, since the space lists values of its own."""
    lines = list[str]()
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        listed = space.plan.get(expand(key).removeprefix("plan."), ()) if expand(key).startswith("plan.") else ()
        if len(listed) and [str(one) for one in listed] != [value]:
            values = ", ".join(map(str, listed))
            lines.append(f"{key} = {value} does not hold it: space.{key} lists {values}; 'space.{key}=[{value}]' does")
    return lines


def _has(scenario: Scenario, path: str) -> bool:
    """True if something stands at a path that may be empty."""
    try:
        return get_path(scenario, path) is not None
    except ConfigError:
        return False


def _check_listed(name: str, value: Any) -> None:
    """A value of a plan's list must be one that the field may have.

    Raises:
        ConfigError: it is no number, or outside the field's range.
    """
    if words_of(name) and isinstance(value, str):
        plan_value(name, value)
        return
    field = plan_field(name)
    assert field is not None  # the space knows its fields
    if not isinstance(value, int | float) or (isinstance(value, bool) and field["high"] > 1):
        raise ConfigError(f"space.plan.{name}: {value!r} is not a number")
    if not field["low"] <= value <= field["high"] or not math.isfinite(value):
        raise ConfigError(f"space.plan.{name}: {value:g} is outside [{field['low']:g}, {field['high']:g}]")
    check_integer(f"space.plan.{name}", dict(field) | {"integer": field.get("integer") or field["low"] >= 1}, value)


def _refuse_repeated(name: str, numbers: Any, values: Sequence[Any]) -> None:
    """A value that stands twice in a list would be tried, and counted, twice.

    Raises:
        ConfigError: names it.
    """
    twice = next((index for index, count in enumerate(Counter(map(float, numbers)).values()) if count > 1), None)
    if twice is not None:
        value = list(Counter(map(float, numbers)))[twice]
        written = next(one for one, number in zip(values, numbers, strict=True) if float(number) == value)
        raise ConfigError(f"space.plan.{name} lists {written} twice; list each value once")


def _refuse_along(name: str, variable: Any) -> None:
    """A leaf that is named twice would move twice as far.

    Raises:
        ConfigError: names it.
    """
    paths = [variable.path, *variable.tied]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ConfigError(f"space.hardware.{name} names {twice} twice; name each leaf once in path and tied")


def _check_algorithms(space: DesignSpace, scenario: Scenario) -> None:
    """Algorithms that a space lists must be offered by some operation of some network level.

    Raises:
        ConfigError: none is left to the plan, or one that nobody offers.
    """
    levels = scenario.cluster.network.values()
    algorithms = [level.collectives.algorithm(operation) for level in levels for operation in OPERATIONS]
    offered = {name for one in algorithms if isinstance(one, Chosen) for name in one.options}
    for field in ("tp_algorithm", "data_algorithm"):
        for value in space.plan.get(field, ()):
            name = words_of(field)[round(float(plan_value(field, value)))]
            if name not in offered:
                have = f"it has {', '.join(sorted(offered))}" if offered else "collective=lumorph_chosen leaves some"
                raise ConfigError(f"space.plan.{field}: no network leaves the choice of {name} to the plan ({have})")
