"""Two searches one after the other."""

import numpy as np

from codesign.config import study_from_config
from codesign.search import Certificate, GridThenProof, Trace
from codesign.search.grid_then_proof import joined


def found(tp: float, claim: str, **counts: int) -> Trace:
    return Trace({"tp": np.array([tp])}, ["known"], counts, {claim: 1.0}, claim, Certificate(best=tp))


def test_designs_join_and_the_last_one_claims():
    trace = joined([found(1.0, "grid", points=10, plans=3, feasible=2), found(8.0, "proof", points=5, plans=3)])
    assert trace.points["tp"].tolist() == [1.0, 8.0]
    assert len(trace.method) == 2
    assert trace.counts == {"points": 15, "plans": 3, "feasible": 2}
    assert (trace.claim, trace.certificate) == ("proof", Certificate(best=8.0))
    assert set(trace.seconds) == {"grid", "proof"}


def test_from_configuration():
    study = study_from_config("search=grid_then_proof", "search.proof.gap=0.01", "search.grid.top_k=8")
    assert isinstance(study.search, GridThenProof)
    assert (study.search.proof.gap, study.search.grid.top_k) == (0.01, 8)


def test_where_nothing_varies_any_search_prices_the_one_design():
    study = study_from_config("experiment=calculon", "search=certified")
    trace = study.search.run(study.problem, 0)
    assert {name: trace.points[name].tolist() for name in ("tp", "pp", "zero")} == {"tp": [8], "pp": [8], "zero": [2]}
    assert trace.method == ["single"]
    assert "neither space.plan nor space.hardware" in trace.claim
