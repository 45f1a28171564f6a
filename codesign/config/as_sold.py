"""Differences of a design's hardware from the catalogue: each number that differs, beside what its files say.

The catalogue's design is what the same choices of groups compose to, with no value set by hand or by an experiment and
nothing varied. Prices may differ without making another product.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from ..core.fields import with_numpy
from ..core.units import unit_of
from ..model.scenario import Scenario
from ..report.labels import variable
from ..study.design_space import ordered
from .plausibility import readable
from .study import Study, hardware_numbers

CLOSE = 1e-9  # relative; what a search rounds away
_SUFFIX = re.compile(r"_(bytes|flops|bits|s|j|w|hz|usd|mm2|mm)(_per_\w+)?$|_per_\w+$")


class Difference(NamedTuple):
    """One number of the hardware that is not the catalogue's."""

    path: str
    catalogue: float
    value: float

    @property
    def is_price(self) -> bool:
        """True if it is what the same product costs."""
        return "usd" in self.path.rpartition(".")[2]

    @property
    def text(self) -> str:
        """`HBM capacity 176 GB (catalogue: 80 GB)`."""
        unit = unit_of(self.path)
        shown, usual = (readable(number, unit) for number in (self.value, self.catalogue))
        return f"{self.name} {shown} (catalogue: {usual})"

    @property
    def name(self) -> str:
        """The leaf in words."""
        parts = [part for part in self.path.split(".")[1:] if part not in ("accelerator", "network", "fabric")]
        return variable(" ".join(_SUFFIX.sub("", part) for part in parts)).replace("  ", " ").strip()


def differences(study: Study, scenario: Scenario) -> tuple[Difference, ...]:
    """Numbers of a scenario's accelerators, hosts and networks that are not the catalogue's."""
    return tuple(_differing(study.catalogue, hardware_numbers(scenario.cluster)))


def differences_of_rows(study: Study, frame: pd.DataFrame) -> list[tuple[Difference, ...]]:
    """Differences of every design of a frame, which has a column `var.NAME` for each variable of the hardware.

    Only what a variable moves is read again for each of them.
    """
    catalogue = study.catalogue
    if not catalogue:
        return [()] * len(frame)
    cluster = hardware_numbers(study.scenario.cluster)
    return [
        tuple(_differing(catalogue, cluster | {path: value for path, value in moved.items() if path in cluster}))
        for moved in moved_by_rows(study, frame)
    ]


def moved_by_rows(study: Study, frame: pd.DataFrame) -> list[dict[str, float]]:
    """Path -> number of every leaf that a variable of the hardware moves, of every design of a frame."""
    plain, space = with_numpy(study.scenario), study.space
    names = [name for name in ordered(space.hardware) if f"var.{name}" in frame]
    columns = {name: frame[f"var.{name}"].to_numpy(dtype=float) for name in names}
    result: list[dict[str, float]] = []
    for at in range(len(frame)):
        moved: dict[str, Any] = {}
        for name, column in columns.items():
            moved |= space.hardware[name].leaves(plain, column[at], moved)
        result.append({path: float(value) for path, value in moved.items()})
    return result


def in_words(study: Study, frame: pd.DataFrame) -> dict[str, list[str]]:
    """Values of the hardware variables in each design, in absolute numbers: name -> text of every row."""
    rows, texts = moved_by_rows(study, frame), dict[str, list[str]]()
    for name, mover in study.space.hardware.items():
        if f"var.{name}" in frame:
            label = Difference(mover.path, 0.0, 0.0).name
            texts[label] = [readable(row[mover.path], unit_of(mover.path)) for row in rows]
    return texts


def _differing(catalogue: Mapping[str, float], numbers: dict[str, float]) -> Iterator[Difference]:
    for path, value in numbers.items():
        usual = catalogue.get(path)
        if usual is not None and usual != value and not abs(value - usual) <= CLOSE * abs(usual):
            yield Difference(path, usual, value)


def device_name(scenario: Scenario, differences: tuple[Difference, ...]) -> str:
    """The accelerator's name; `h100_sxm (modified)` where the product has other numbers."""
    name = scenario.cluster.accelerator.name
    device_paths = ("cluster.accelerator.", "cluster.network.scale_up.")
    return (
        f"{name} (modified)"
        if any(one.path.startswith(device_paths) and not one.is_price for one in differences)
        else name
    )


def as_plain(differences: tuple[Difference, ...]) -> list[dict[str, Any]]:
    """Differences in the plain form that a run folder stores."""
    return [one._asdict() | {"text": one.text} for one in differences]
