"""The number of devices of one design whose requests come at a rate, where nothing says how many there are."""

from omegaconf import OmegaConf

from ..config.checks import check_plan
from ..config.composition import compose
from ..config.device_counts import counts_of_demand, left_open
from ..core.errors import ConfigError
from ..core.fields import replace
from ..core.yaml_io import is_mapping
from ..model.scenario import Scenario
from ..search.results import numbers_of
from ..study.objective import feasible
from .legal_start import legal_start

COUNT = "cluster.device_count"


def sized(scenario: Scenario, overrides: list[str]) -> tuple[list[str], str]:
    """The override that names the least number of devices with which the design sustains its rate.

    Args:
        scenario: of these overrides.
        overrides: of the configuration.

    Returns:
        (one override, and a line that says so); nothing where a number was named or no rate needs one. Where no listed
        number suffices it is the largest, which is then refused with what would help.
    """
    counts = counts_of_demand(scenario)
    if not counts:
        return [], ""
    resolved = OmegaConf.to_container(compose(overrides), resolve=False)
    if not is_mapping(resolved) or not left_open(overrides, resolved):
        return [], ""
    for count in counts:
        asked = f"{COUNT}={count}"
        design = legal_start(replace(scenario, {COUNT: float(count)}), [*overrides, asked])[0]
        if _runs(design):
            line = f"{asked}, the least that sustains the rate with this plan; {COUNT}=64 says how many"
            return [asked], line
    return [f"{COUNT}={counts[-1]}"], ""


def _runs(scenario: Scenario) -> bool:
    """True if the plan is legal, fits and sustains its rate."""
    try:
        check_plan(scenario)
    except ConfigError:
        return False
    numbers = numbers_of(scenario)
    return all(feasible(value - 1) for name, value in numbers.items() if name.startswith("usage."))
