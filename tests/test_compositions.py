"""The committed matrix of compositions is whole and says why; a sample that covers every axis is run anew."""

import sys

import pytest

from codesign.evidence.reproduction import available, load

FOLDER = available()["compositions"]
SAMPLE = [  # every memory, job and goal, and the fabrics that are least alike
    ("circuits", "tiers", "dense training", "energy"),
    ("PCIe graph", "pool", "serving", "cost"),
    ("switch, priced by paths", "HBM only", "recommendation", "time"),
    ("in-network sums, quantised", "HBM only", "MoE training", "cost"),
    ("slice of circuits", "pool", "continuous", "energy"),
    ("queued node", "HBM only", "disaggregated", "time"),
    ("switch, shared", "tiers", "MoE training", "cost"),
    ("switch", "HBM only", "goodput", "cost"),
]


@pytest.fixture(scope="module")
def matrix():
    """The script that makes the matrix."""
    sys.path.insert(0, str(FOLDER))
    try:
        import matrix as module
    finally:
        sys.path.remove(str(FOLDER))
    return module


def test_every_cell_stands_in_the_table_with_a_verdict_and_a_reason(matrix):
    frame = load(FOLDER).matrix()
    result = set(frame[["fabric", "memory", "job", "goal"]].itertuples(index=False, name=None))
    assert result == set(matrix.cells())
    assert set(frame["verdict"]) <= {"certified", "not certified", "nothing fits"}
    without = frame[frame["verdict"] == "not certified"]
    assert (without["why"] != "").all()


def test_the_sample_covers_every_memory_job_and_goal(matrix):
    for place, names in ((1, matrix.MEMORIES), (2, matrix.JOBS), (3, matrix.GOALS)):
        assert {cell[place] for cell in SAMPLE} == set(names)


@pytest.mark.slow
@pytest.mark.parametrize("names", SAMPLE, ids=" ".join)
def test_a_cell_run_anew_is_the_committed_one(matrix, names):
    frame = load(FOLDER).matrix().set_index(["fabric", "memory", "job", "goal"])
    committed, again = frame.loc[names], matrix.cell(*names)
    assert again["verdict"] == committed["verdict"]
    assert again["unpriced"] == committed["unpriced"]
    assert again["value"] == pytest.approx(float(committed["value"]), rel=2 * matrix.GAP)
