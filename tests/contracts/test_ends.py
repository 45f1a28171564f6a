"""Every leaf of every option of conf/ at the ends of its legal range: finite, or refused in one line.

Zero, one and the largest, where they are legal; what is not legal stands in `refused_ends.csv`, and what is legal but
breaks a rule of the plan in REFUSED_BY_A_RULE. The options of a group that have one structure share a traced program.
"""

import csv
from functools import cache
from pathlib import Path

import pytest
from contracts.choices import PLACES, built, chooses, nameless, options
from contracts.ends import FAR, Row, faults, field_of, probe, visits

from codesign.config.plausibility import unusual
from codesign.core.errors import ConfigError
from codesign.core.fields import check_ranges, get_path, replace, walk
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


@cache
def scenarios(group: str):
    return {choice: nameless(built(choice)) for choice in options(group)}


@pytest.mark.parametrize("group", PLACES)
def test_every_end_is_finite_or_breaks_a_rule(group):
    """And the option as it is is priced, breaks no rule it did not break before, and has numbers that matter."""
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


MEANT = {"accelerator=calculon_a100_80e", "accelerator=groq_3_lpu", "accelerator=arc_pro_b60"}
"""Options whose provenance says that their numbers are unusual (tests/test_plausibility.py)."""


def test_no_option_is_unusual():
    for group in PLACES:
        for choice, scenario in scenarios(group).items():
            if choice not in MEANT:
                assert [one.text for one in unusual(scenario)] == [], choice


def tried(tree, path: str):
    """(leaf, `Class.field`, legal range, 'zero', 'one' or 'largest', its value) of every leaf below a path."""
    for leaf, metadata, _ in walk(tree):
        if leaf.startswith(f"{path}."):
            for name, value in ASKED.items():
                yield leaf, field_of(tree, leaf), (metadata["low"], metadata["high"]), name, value


@cache
def refusals() -> dict[tuple[str, str], tuple[str, str, float]]:
    """(`Class.field`, what is asked) -> (option, leaf, value) of the first option that refuses it."""
    result = {}
    for group, path in PLACES.items():
        for choice, scenario in scenarios(group).items():
            for leaf, field, (low, high), name, value in tried(scenario, path):
                if not low <= value <= high:
                    result.setdefault((field, name), (choice, leaf, value))
    return result


def table_rows() -> list[list[str]]:
    """Rows of `refused_ends.csv`; `python tests/contracts/write_ends.py` writes them."""
    ranges = {}
    for group, path in PLACES.items():
        for scenario in scenarios(group).values():
            for _, field, (low, high), _, _ in tried(scenario, path):
                ranges[field] = (f"{low:g}", f"{high:g}")
    return [
        [field, *ends, *("refused" if (field, name) in refusals() else "legal" for name in ASKED)]
        for field, ends in sorted(ranges.items())
    ]


def test_the_table_says_what_is_refused():
    """Zero, one and the largest of every field: a reader sees there what is legal."""
    rows = table_rows()
    with TABLE.open(encoding="utf-8", newline="") as file:
        kept = list(csv.reader(file))
    assert kept[0] == ["field", "low", "high", *ASKED]
    anew = "python tests/contracts/write_ends.py"
    assert [row for row in rows if row not in kept] == [], f"{TABLE.name} lacks these rows: {anew}"
    assert [row for row in kept[1:] if row not in rows] == [], f"{TABLE.name} has rows of no field: {anew}"
    assert len(rows) > 150


def test_what_is_refused_is_refused_in_one_line_with_key_value_and_range():
    assert len(refusals()) > 100
    for choice, leaf, value in refusals().values():
        scenario = scenarios(choice.split("=")[0])[choice]
        part, _, _ = leaf.rpartition(".")
        owner = get_path(scenario, part)
        while isinstance(owner, dict):
            part = part.rpartition(".")[0]
            owner = get_path(scenario, part)
        with pytest.raises(ConfigError) as told:
            check_ranges(replace(owner, {leaf.removeprefix(f"{part}."): value}), part)
        assert leaf.endswith(str(told.value).partition(" = ")[0])
        assert f" = {value:g} is outside [" in str(told.value)
        assert "\n" not in str(told.value)


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
