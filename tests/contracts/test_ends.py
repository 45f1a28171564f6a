"""Every leaf of every option of conf/ at the ends of its legal range: finite, or refused in one line.

Zero, one and the largest, where they are legal; what is not legal stands in `refused_ends.csv`, and what is legal but
breaks a rule of the plan in REFUSED_BY_A_RULE. The options of a group that have one structure share a traced program.
"""

import csv
import pkgutil
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from contracts.choices import PLACES, built, chooses, nameless, options
from contracts.ends import FAR, Row, faults, field_of, probe, visits

import codesign
from codesign.config.plausibility import unusual
from codesign.core.errors import ConfigError
from codesign.core.fields import Module, check_ranges, get_path, replace, walk
from codesign.model.metrics import evaluate

pytestmark = pytest.mark.slow

TABLE = Path(__file__).with_name("refused_ends.csv")
ASKED = {"zero": 0.0, "one": 1.0, "largest": FAR}
LEAST_LEAVES = {
    "accelerator": 3000, "calibration": 200, "carbon": 50, "collective": 500, "die": 12, "fabric": 200, "facility": 12,
    "engine_memory": 40, "optimizer": 12,
    "framework": 24, "host": 60, "memory": 60, "model": 200, "ownership": 8, "path_energy": 12, "plan": 100,
    "scaling_law": 70,
    "reliability": 40, "kernel_correction": 0, "scale_out": 300, "stack": 12, "workload": 60,
}  # fmt: skip
"""Group -> leaves that are visited at the least: a walk that finds nothing proves nothing."""


@cache
def priced():
    return probe(lambda scenario: evaluate(scenario).flat())


@lru_cache(maxsize=1)  # a group's scenarios hold tens of megabytes, and no other test asks for them
def scenarios(group: str):
    return {choice: nameless(built(choice)) for choice in options(group)}


MEANT = {"accelerator=calculon_a100_80e", "accelerator=groq_3_lpu", "accelerator=arc_pro_b60"}
"""Options whose provenance says that their numbers are unusual (tests/test_plausibility.py)."""


def tried(tree, path: str):
    """(leaf, `Class.field`, legal range, 'zero', 'one' or 'largest', its value) of every leaf below a path."""
    for leaf, metadata, _ in walk(tree):
        if leaf.startswith(f"{path}."):
            for name, value in ASKED.items():
                yield leaf, field_of(tree, leaf), (metadata["low"], metadata["high"]), name, value


@cache
def asked_of(group: str) -> list[tuple[str, str, str, tuple[float, float], str, float]]:
    """(option, leaf, `Class.field`, legal range, what is asked, its value) of the first option that has the field."""
    result: dict[tuple[str, str, tuple[float, float], bool], Any] = {}
    for choice, scenario in scenarios(group).items():
        for leaf, field, (low, high), name, value in tried(scenario, PLACES[group]):
            key = (field, name, (low, high), low <= value <= high)
            result.setdefault(key, (choice, leaf, field, (low, high), name, value))
    return list(result.values())


def refused(group: str) -> set[tuple[str, str]]:
    """(`Class.field`, what is asked) that some option of a group refuses."""
    return {(field, name) for _, _, field, (low, high), name, value in asked_of(group) if not low <= value <= high}


def table_rows(*groups: str) -> list[list[str]]:
    """Rows of `refused_ends.csv`; `python tests/contracts/write_ends.py` writes those of all groups."""
    asked = [row for group in groups for row in asked_of(group)]
    ranges = {field: (f"{low:g}", f"{high:g}") for _, _, field, (low, high), _, _ in asked}
    no = set[tuple[str, str]]().union(*(refused(group) for group in groups))
    return [
        [field, *ends, *("refused" if (field, name) in no else "legal" for name in ASKED)]
        for field, ends in sorted(ranges.items())
    ]


def kept_rows() -> list[list[str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def check_refusal(choice: str, scenario: Any, leaf: str, value: float) -> None:
    """One line with key, value and range."""
    part, _, _ = leaf.rpartition(".")
    owner = get_path(scenario, part)
    while isinstance(owner, dict):
        part = part.rpartition(".")[0]
        owner = get_path(scenario, part)
    with pytest.raises(ConfigError) as told:
        check_ranges(replace(owner, {leaf.removeprefix(f"{part}."): value}), part)
    assert leaf.endswith(str(told.value).partition(" = ")[0]), choice
    assert f" = {value:g} is outside [" in str(told.value)
    assert "\n" not in str(told.value)


ANEW = "python tests/contracts/write_ends.py"


@pytest.mark.parametrize("group", PLACES)
def test_every_end_is_finite_or_breaks_a_rule(group, request):
    """And the option as it is is priced, breaks no rule it did not break before, and has numbers that matter.

    What is not legal is in the table, where a reader sees for every field whether zero, one and the largest are, and is
    refused in one line with key, value and range. A group is composed once for all of this.
    """
    if group == "workload":
        request.getfixturevalue("roomy")
    path, trees, wrong, leaves = PLACES[group], scenarios(group), [], set()
    for visit in visits(priced(), trees, path):
        wrong += faults([visit])
        leaves.add((visit.name, visit.row.leaf))
        if not visit.row.leaf:
            slopes = [slope for leaf, slope in visit.slopes.items() if leaf.startswith(f"{path}.")]
            if slopes and not any(slopes) and not chooses(get_path(trees[visit.name], path)):
                wrong.append(f"{visit}: nothing below {path} matters")
    assert not wrong, "\n".join(wrong)
    assert len(leaves) >= LEAST_LEAVES[group]
    for choice, scenario in trees.items():
        if choice not in MEANT:
            assert [one.text for one in unusual(scenario)] == [], choice
    kept = {row[0]: row[1:] for row in kept_rows()}
    for field, *ends in table_rows(group):
        listed = kept.get(field, [])
        assert listed[:2] == ends[:2], f"{TABLE.name} lacks {field}: {ANEW}"
        assert all(end == "legal" or end == other for end, other in zip(ends[2:], listed[2:], strict=True)), field
    for choice, leaf, _, (low, high), _, value in asked_of(group):
        if not low <= value <= high:
            check_refusal(choice, trees[choice], leaf, value)


def test_the_table_has_rows_of_fields_alone():
    """Each of a class that there is, with its range."""
    rows = kept_rows()
    assert rows[0] == ["field", "low", "high", *ASKED]
    assert len(rows) > 150
    for info in pkgutil.walk_packages(codesign.__path__, "codesign."):
        if info.name.startswith(("codesign.model", "codesign.study")):
            import_module(info.name)
    ranges = {
        (f"{cls.__name__}.{one.name}", f"{one.metadata['low']:g}", f"{one.metadata['high']:g}")
        for cls in below(Module) if is_dataclass(cls) for one in fields(cls) if "low" in one.metadata
    }  # fmt: skip
    assert [row for row in rows[1:] if tuple(row[:3]) not in ranges] == [], ANEW


def below(cls: type) -> set[type]:
    """A class and all that inherit from it."""
    return {cls}.union(*(below(one) for one in cls.__subclasses__()))


BROKEN = {
    "a start of nothing in a curve over logarithms": "cluster.network.scale_up.collectives.all_reduce.base_8_s",
    "a rate of nothing": "cluster.accelerator.hbm.bandwidth_bytes_per_s",
    "less than no price": "cluster.host.price_usd",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_leaf_that_is_broken_is_seen(name, monkeypatch):
    """The same visits with one end too many find it."""
    scenario, leaf = scenarios("host")["host=hgx"], BROKEN[name]
    too_low = -1e6 if "price" in leaf else 0.0
    monkeypatch.setattr("contracts.ends.rows_of", lambda tree, path: [Row(leaf, too_low)])
    result = faults(visits(priced(), {"broken": scenario}, "cluster"))
    assert len(result) == 1
    assert result[0].startswith(f"broken {leaf} = {too_low:g}: ")
