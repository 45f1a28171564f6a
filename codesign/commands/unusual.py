"""Remarks beside what a command prints: a study that nobody named, numbers that are unusual."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from omegaconf import OmegaConf

from ..config import Study
from ..config.composition import admit, combinations, composed
from ..config.device_counts import COUNT, left_open, listed
from ..config.plausibility import Unusual, unusual
from ..config.space_checks import not_held
from ..config.starting import framework_told, names, precision_told, told
from ..core.yaml_io import is_mapping
from ..search.results import Results, placed
from ..study.design_space import DesignSpace


def say_default(overrides: list[str]) -> None:
    """One line for each default that is taken: the study, the framework, the number formats."""
    for line in (told(overrides), framework_told(overrides), precision_told(overrides)):
        if line:
            print(f"codesign: {line}", file=sys.stderr)


def say_devices(overrides: list[str], space: DesignSpace | None = None) -> None:
    """One line where a study says nothing of how many devices there are.

    Args:
        overrides: as they were typed.
        space: of the study, which may have counts that its demand asks for.
    """
    if line := devices_taken(overrides, space):
        print(f"codesign: {line}", file=sys.stderr)


def say_not_held(study: Study, overrides: list[str]) -> None:
    """One line for each plan field that somebody typed and that varies all the same."""
    for line in not_held(study.space, overrides):
        print(f"codesign: {line}", file=sys.stderr)


def devices_taken(overrides: list[str], space: DesignSpace | None = None) -> str:
    """Line that says how many devices are taken where nothing asks, and how to ask; empty where something does."""
    if any("device_count" in text for text in overrides) or not names(overrides, "model", "workload", "accelerator"):
        return ""  # most are, which need not be composed
    resolved = OmegaConf.to_container(composed(combinations(admit(overrides))[0]), resolve=False)
    if not is_mapping(resolved) or not left_open(overrides, resolved):
        return ""
    if space is not None and COUNT in space.plan:
        return f"{listed(space.plan[COUNT])} devices, by what the job needs: cluster.device_count=64 says how many"
    return (
        f"{resolved['cluster']['device_count']:,} devices, since nothing says how many: cluster.device_count=64 does,"
        " 'space.plan.device_count=[64,128]' lets it vary"
    )


def warn(numbers: Iterable[Unusual]) -> None:
    """One line each for numbers that are legal but unusual, beside what a command prints."""
    for one in numbers:
        print(f"codesign: warning: {one.text}", file=sys.stderr)


def say_trace(provenance: Mapping[str, Mapping[str, Any]]) -> None:
    """One line where closed forms are not to be believed for the trace that a study names, and what is."""
    for key, origin in provenance.items():
        source, note = str(origin.get("source", "")), str(origin.get("note", ""))
        if key.endswith("arrival_cv") and source.startswith("trace ") and "codesign simulate" in note:
            print(f"codesign: {source}: {note}", file=sys.stderr)


def unusual_answer(study: Study, results: Results) -> tuple[Unusual, ...]:
    """Find what is unusual in the best design beyond the inputs: numbers that only several variables together bring."""
    told = study.unusual
    result = unusual(placed(study.problem, results.best), provenance=study.provenance)
    return tuple(
        one._replace(text=f"the best design: {one.text}") for one in result if not any(one.key in t.text for t in told)
    )
