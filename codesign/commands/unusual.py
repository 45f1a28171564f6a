"""What is told beside what a command prints: a study that nobody named, numbers that are unusual."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ..config import Study
from ..config.composition import admit, combinations, composed
from ..config.plausibility import Unusual, unusual
from ..config.space_checks import not_held
from ..config.starting import framework_told, names, told
from ..core.resources import conf_dir
from ..core.yaml_io import read_yaml
from ..search.results import Results, placed


def say_default(overrides: list[str]) -> None:
    """One line where nothing was named that a study is about, or no framework, so that a default is taken."""
    for line in (told(overrides), framework_told(overrides)):
        if line:
            print(f"codesign: {line}", file=sys.stderr)


def say_devices(overrides: list[str]) -> None:
    """One line where a study says nothing of how many devices there are, and so has as many as the base has."""
    if line := devices_taken(overrides):
        print(f"codesign: {line}", file=sys.stderr)


def say_not_held(study: Study, overrides: list[str]) -> None:
    """One line for each plan field that somebody typed and that varies all the same."""
    for line in not_held(study.space, overrides):
        print(f"codesign: {line}", file=sys.stderr)


def devices_taken(overrides: list[str]) -> str:
    """How many devices are taken where nothing is asked, and how to ask; empty where something is.

    An experiment, a space with `device_count`, a file of the user's with another number are such a word.
    """
    if any("device_count" in text for text in overrides) or not names(overrides, "model", "workload", "accelerator"):
        return ""
    if names(overrides, "experiment"):
        return ""
    config = composed(combinations(admit(overrides))[0])
    usual = read_yaml((conf_dir() / "config.yaml").read_text(encoding="utf-8"))["cluster"]["device_count"]
    if "device_count" in (config.space.get("plan") or {}) or config.cluster.device_count != usual:
        return ""
    return (
        f"{usual:,} devices, since nothing says how many: cluster.device_count=64 does,"
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
    """What is unusual about the best design beyond the inputs: numbers that only several variables together bring."""
    told = study.unusual
    found = unusual(placed(study.problem, results.best), provenance=study.provenance)
    return tuple(
        one._replace(text=f"the best design: {one.text}") for one in found if not any(one.key in t.text for t in told)
    )
