"""Frames of one design against what the model says of it as a whole."""

import pandas as pd
import pytest
from builders import serving, training

from codesign.model.metrics import evaluate
from codesign.model.workloads import Plan
from codesign.search.results import _ranked, ops

BARE = Plan(tp=8.0, recompute="selective", zero=1.0, dp_overlap=0.0, tp_overlap=0.0, cp_overlap=0.0)


@pytest.mark.parametrize("scenario", [training(plan=BARE), serving()], ids=["training", "serving"])
def test_ops_times_their_repeats_are_the_time_where_nothing_overlaps(scenario):
    frame = ops(scenario)
    time_s = float(evaluate(scenario).time_s)
    assert (frame["total_s"] * frame["repeats"]).sum() == pytest.approx(time_s, rel=1e-9)
    assert frame.groupby("phase")["repeats"].nunique().max() == 1


def test_designs_apart_in_a_small_number_only_are_two():
    """Seconds a byte of a port lie below 10^-12."""
    columns = {"var.port": [1.0e-12, 1.01e-12, 1.0e-12], "var.rate": [9e11] * 3}
    frame = pd.DataFrame(columns | {"feasible": True, "objective": [1.0, 2.0, 1.0], "excess": 0.0})
    assert _ranked(frame, maximise=False)["var.port"].tolist() == [1.0e-12, 1.01e-12]
