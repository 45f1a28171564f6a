"""Constraints that cost little are looked at first: they settle plans as all rows together do."""

import numpy as np
import pytest

from codesign import study_from_config
from codesign.search.branch_and_bound.bounding import SearchEffort
from codesign.search.branch_and_bound.branch_and_bound import BranchAndBound
from codesign.search.branch_and_bound.certified import RowsOfProblem
from codesign.search.branch_and_bound.evidence import Recorder
from codesign.search.branch_and_bound.oracle import Programme
from codesign.staging import tables

SERVED = (
    "search=certified", "accelerator=h100_sxm", "workload=at_rate", "model=llama31_70b", "framework=vllm",
    "workload.arrivals_per_s=4", "++objective.limits.tpot_p99_s=0.08", "++space.plan.device_count=[2,4,8]",
    "space.plan.micro_batch=[16,64,256]", "space.plan.token_budget=[512,2048]", "space.plan.etp=[0]",
)  # fmt: skip


@pytest.fixture(scope="module")
def oracle():
    """A few plans, with small tables, so that most numbers are computed for every point, as where plans are many."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "FEW_ROWS", 20)
        yield RowsOfProblem(512, 0)(study_from_config(*SERVED).problem)


@pytest.mark.slow
def test_cheap_rows_are_those_of_all(oracle):
    assert "usage.hbm" in oracle.cheap
    assert "goal" not in oracle.cheap
    assert "tpot_p99_s" not in oracle.cheap
    plan, u = np.arange(oracle.count), np.zeros((oracle.count, 0))
    some, every = oracle.screening(plan, u), oracle.tangents(plan, u, 1.0)
    for row, name in enumerate(oracle.names):
        if name in oracle.cheap:
            np.testing.assert_array_equal(some.exact[:, row], every.exact[:, row])
            np.testing.assert_array_equal(some.affine[:, row], every.affine[:, row])
        else:
            assert (some.affine[:, row, 0] < every.affine[:, row, 0]).all()


@pytest.mark.slow
def test_what_is_screened_out_breaks_a_limit_and_nothing_else_is(oracle):
    search = BranchAndBound(Programme(oracle), SearchEffort(gap=1e-9), 0, recorder=Recorder())
    search.screen()
    out = search.bounding.lower == np.inf
    exact, _ = oracle.values(np.arange(oracle.count), np.zeros((oracle.count, 0)))
    cheap = [row for row, name in enumerate(oracle.names) if name in oracle.cheap]
    np.testing.assert_array_equal(out, exact[:, cheap].max(axis=1) > 0)
    assert 0 < out.sum() < oracle.count
    result = search.run()
    feasible = exact[(exact[:, 1:] <= 0).all(axis=1)]
    assert result.upper == pytest.approx(feasible[:, 0].min(), abs=1e-9)
    assert result.lower == pytest.approx(result.upper, abs=1e-6)
