"""Names of the devices of found designs: the catalogue's, or marked as modified where numbers differ."""

from ..config import Study
from ..config.as_sold import device_name, differences_of_rows
from ..model.scenario import Scenario
from ..search import Mix
from ..search.results import Results


def all_devices(scenario: Scenario) -> float:
    """Accelerators, those of a prefill pool among them."""
    layout = scenario.layout
    return float(layout.devices) + float(getattr(layout.plan, "prefill_devices", 0.0))


def prepare_devices(study: Study) -> None:
    """Compose the catalogue's hardware, which `add_devices` compares with: files may change while a search runs."""
    if not isinstance(study.search, Mix):
        _ = study.catalogue


def add_devices(study: Study, results: Results) -> None:
    """Add the name of each design's device, and what of the best one's hardware is not the catalogue's."""
    if isinstance(study.search, Mix):
        return
    rows = results.designs if study.space.hardware else results.designs.head(1)  # else the same hardware for all
    result = differences_of_rows(study, rows)
    names = [device_name(study.scenario, one) for one in result]
    results.designs = results.designs.assign(device=names if len(names) > 1 else names[0])
    results.catalogue = [one.text for one in result[0]]
