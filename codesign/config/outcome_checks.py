"""Feasibility checks of a priced design: prefill memory, used shares, finite numbers.

The decision is `objective.feasible`, as in every search.
"""

import functools
import itertools
import math
from collections.abc import Mapping

from jaxtyping import Array

from ..core.errors import ConfigError
from ..core.fields import get_path, replace
from ..core.smooth import used_share
from ..core.units import GB
from ..jaxprs.evaluator import interpreted
from ..model.metrics.money import prefill_pool
from ..model.networks.fabrics.contended import CALM_RATIO
from ..model.scenario import OTHERS, Scenario
from ..study.objective import POSITIVE, feasible, share_text

__all__ = ["check_outcome", "check_prefill_room"]

POOL = "cluster.prefill.cluster.accelerator.hbm"
PASSING = {"time_s", "tokens_per_s"}  # no design has them at 0; one without prices or energies costs or draws nothing
DOUBLED = 6  # times that a degree of the pool is doubled while one that fits is looked for
OWNERS = {"hbm": POOL.replace("prefill.cluster.", ""), "ddr": "cluster.host.memory", "die": "cluster.accelerator.die"}


def check_prefill_room(scenario: Scenario) -> None:
    """Refuse a prefill pool whose weights and caches do not fit its memory.

    Raises:
        ConfigError: bytes missing, and the smallest degrees of the pool that would fit.
    """
    used, usable = (float(number) for number in _pool(scenario))
    if feasible(float(used_share(used, usable)) - 1):
        return
    ways = _ways(scenario)
    helps = f"smallest change that fits: {', or '.join(ways)}" if ways else "no degrees of the pool would fit it"
    raise ConfigError(
        f"the model does not fit: {POOL} lacks {(used - usable) / GB:.1f} GB per device (needs {used / GB:.1f},"
        f" has {usable / GB:.1f}) with plan.prefill_devices = {float(scenario.plan.prefill_devices):g}; {helps}"
    )


@functools.partial(interpreted, always=True)
def _pool(scenario: Scenario) -> tuple[Array, Array]:
    """(bytes that a device of the prefill pool keeps, bytes that it may), none of none where there is no pool."""
    pool = prefill_pool(scenario.cluster, scenario.layout)
    nothing = 0.0 * scenario.layout.devices
    if pool is None:
        return nothing, nothing
    return sum(scenario.workload.prefill_bytes(scenario.layout).values(), nothing), pool.usable_bytes()


@functools.partial(interpreted, always=True)
def _broken(scenario: Scenario) -> dict[str, Array]:
    return scenario.workload.violations(scenario.layout)


def _ways(scenario: Scenario) -> list[str]:
    """Overrides with which the pool's share fits and no rule is broken, the fewest and smallest of each kind."""
    plan = scenario.plan
    tensor, stages = float(plan.prefill_tp), float(plan.prefill_pp)
    result = list[str]()
    for tp, pp in sorted(itertools.product(range(DOUBLED + 1), repeat=2), key=lambda one: (sum(one), one[1])):
        change = {"prefill_tp": tensor * 2**tp, "prefill_pp": stages * 2**pp}
        change = {name: value for name, value in change.items() if value != float(getattr(plan, name))}
        engine = tensor * 2**tp * stages * 2**pp
        if engine > float(plan.prefill_devices):  # a pool of one engine more than it has
            change["prefill_devices"] = engine
        other = replace(scenario, {f"plan.{name}": value for name, value in change.items()})
        used, usable = (float(number) for number in _pool(other))
        legal = all(float(value) <= 0 for value in _broken(other).values())
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
        raise ConfigError(_beyond(scenario, name, over[name]))
    for name in sorted(POSITIVE & set(numbers)):
        value = numbers[name]
        if not 0 <= value < math.inf or (name in PASSING and value == 0):
            allowed = "above 0" if name in PASSING else "from 0 on"
            raise ConfigError(
                f"the design has no {name}: it is {value:g}, where a finite number {allowed} is allowed; take values"
                " that products have (`codesign list variables` shows usual ones)"
            )


def _beyond(scenario: Scenario, name: str, share: float) -> str:
    """One line on a used share."""
    part, _, limit = name.partition(".")
    if limit == OTHERS and part in scenario.cluster.network:
        return _crowded(scenario, part, share)
    owner = OWNERS.get(part, f"cluster.network.{part}" if part in scenario.cluster.network else part)
    place = f"{limit} of {owner}" if limit else owner
    return f"usage.{name} = {share:.4g}: {share_text(share)} of {place} would be used, at most 100% can be"


def _crowded(scenario: Scenario, level: str, share: float) -> str:
    """Message on a link that others fill."""
    key = f"cluster.network.{level}.fabric.background_bytes_per_s"
    value = float(get_path(scenario, key))
    return (
        f"{key} = {value:.4g}: others take {CALM_RATIO * share:.4g} of the rate of links that the plan uses"
        f" (usage.{level}.{OTHERS} = {share:.4g}); allowed: at most {CALM_RATIO:g} of it, beyond which no time can be"
        f" predicted; a smaller {key}, a smaller share that leaves the node or faster links help"
    )
