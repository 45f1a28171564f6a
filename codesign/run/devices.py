"""What the devices of found designs are called: by the catalogue's name, or as modified where numbers differ."""

import pandas as pd

from ..config import Study
from ..config.as_sold import device_name, differences
from ..results import Results, placed
from ..scenario import Scenario
from ..search import Mix


def add_devices(study: Study, results: Results) -> None:
    """What the device of each design is called, and what of the best one's hardware is not the catalogue's."""
    if isinstance(study.search, Mix):
        return
    found = [differences(study, scenario) for scenario in _designed(study, results.designs)]
    names = [device_name(study.scenario, one) for one in found]
    results.designs = results.designs.assign(device=names if len(names) > 1 else names[0])
    results.catalogue = [one.text for one in found[0]]


def _designed(study: Study, frame: pd.DataFrame) -> list[Scenario]:
    """The scenario of each design, or of the first alone where the hardware is the same for all."""
    rows = frame if study.space.hardware else frame.head(1)
    return [placed(study.problem, row) for _, row in rows.iterrows()]
