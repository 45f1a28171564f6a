"""Phase diagrams of multiruns: what was varied, which lines change, what is left out."""

import pandas as pd
import pytest

from codesign.report.findings import phase_diagram, phases_of, varied


@pytest.mark.parametrize(
    ("overrides", "found"),
    [
        (["a=1 b=2", "a=3 b=2"], ("a", [1.0, 3.0])),
        (["a=1 b=2", "a=3 b=4"], None),
        (["a=x", "a=y"], None),
        (["a=1", "b=1"], None),
    ],
)
def test_one_number_is_varied_or_nothing_is_drawn(overrides, found):
    assert varied(overrides) == found


def test_lines_of_the_lower_part_are_those_that_change_in_order_of_the_number():
    frame = pd.DataFrame(
        {"overrides": [f"limit={n} tp=4" for n in (30, 10, 20, 5)], "feasible": [True, True, True, False],
         "objective": [1.0, 3.0, 2.0, 9.0], "var.tp": [8.0, 4.0, 4.0, 1.0], "var.pp": 2.0,
         "var.recompute": [0, 2, 1, 0], "var.up": [9e11, 1e11, 5e11, 1e11],
         "active_constraints": ["hbm 99.0%; dp 3% of time", "capex_usd 100.0%", "hbm 98.0%", ""]}
    )  # fmt: skip
    figure = phases_of(frame, "time_s", {"up": "B/s"})
    assert figure is not None
    upper, lower = figure.axes
    assert upper.get_lines()[0].get_ydata().tolist() == [3.0, 2.0, 1.0]
    assert [tick.get_text() for tick in lower.get_xticklabels()] == ["10", "20", "30"]
    assert [tick.get_text() for tick in lower.get_yticklabels()] == ["tp", "recompute", "up", "binds first"]
    words = [text.get_text() for text in lower.texts]
    assert words[3:6] == ["full", "selective", "none"]
    assert words[9:] == ["capex_usd", "hbm", "hbm"]
    assert phases_of(frame.iloc[:2], "time_s", {}) is None


def test_nothing_changes():
    figure = phase_diagram(["1", "2"], pd.Series([1.0, 1.0]), pd.DataFrame({"tp": [1, 1]}), along="x", label="y")
    assert not list(figure.axes[1].texts)
