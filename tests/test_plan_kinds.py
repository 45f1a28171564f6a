"""Shorter programs of one kind of plans say what the whole program says, in blocks of one plan and of many."""

import numpy as np
import pytest

from codesign import study_from_config
from codesign.search.exhaustive import Sweep
from codesign.staging import blocks
from codesign.staging.blocks import ONE, UNKNOWN, ZERO, codes_of

STUDIES = {
    "photonic": ["experiment=photonic_rack"],
    "serving": ["experiment=serve_llama31_405b"],
}


def test_what_is_known_of_rows():
    rows = np.array([[0.0, -0.0], [1.0, 1.0], [0.0, 1.0], [2.0, 2.0], [np.nan, 0.0]])
    assert codes_of(rows).tolist() == [ZERO, ONE, UNKNOWN, UNKNOWN, UNKNOWN]
    assert codes_of(np.array([[False, False], [True, True], [True, False]])).tolist() == [ZERO, ONE, UNKNOWN]


@pytest.fixture
def few_rows(monkeypatch):
    """Tables so short that most of the program is left for every point."""
    monkeypatch.setattr(blocks, "MOST_ROWS", 100)


@pytest.mark.slow
@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize(("name", "block"), [("photonic", 1), ("photonic", 4096), ("serving", 64)])
def test_short_programs_say_what_the_whole_program_says(name, block, monkeypatch):
    """Every number of every block, however many plans it has."""
    problem = study_from_config(*STUDIES[name]).problem
    whole = Sweep(problem, block, 4)
    monkeypatch.setattr(blocks, "WORTH", 1)
    short = Sweep(problem, block, 4)
    assert short.block_count == whole.block_count
    rng, fewest = np.random.default_rng(block), short.priced.operations
    for number in rng.choice(short.block_count, size=min(short.block_count, 60), replace=False):
        plan, level = short.block_at(int(number))
        fewest = min(fewest, short.priced.operations_at(plan))
        assert whole.priced.operations_at(plan) == whole.priced.operations
        for was, now in zip(
            whole.priced(plan, int(level[0]), len(level)), short.priced(plan, int(level[0]), len(level)), strict=True
        ):
            np.testing.assert_array_equal(now, was)
    assert fewest < short.priced.operations


@pytest.mark.usefixtures("few_rows")
def test_a_plan_without_exchange_has_half_the_operations(monkeypatch):
    monkeypatch.setattr(blocks, "WORTH", 1)
    priced = Sweep(study_from_config(*STUDIES["photonic"]).problem, 4, 4).priced
    lengths = [priced.operations_at(np.array([plan])) for plan in range(20)]
    assert max(lengths) < priced.operations / 2
