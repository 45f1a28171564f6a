"""Searches one after the other."""

import numpy as np
import pytest

from codesign.config import study_from_config
from codesign.errors import ConfigError
from codesign.search import Chain, Trace
from codesign.search.chain import joined


def found(tp: float, claim: str, **counts: int) -> Trace:
    return Trace({"tp": np.array([tp])}, ["known"], counts, {claim: 1.0}, claim, {"best": tp})


def test_designs_join_and_the_last_one_claims():
    trace = joined([found(1.0, "grid", points=10, plans=3, feasible=2), found(8.0, "proof", points=5, plans=3)])
    assert trace.points["tp"].tolist() == [1.0, 8.0]
    assert len(trace.method) == 2
    assert trace.counts == {"points": 15, "plans": 3, "feasible": 2}
    assert (trace.claim, trace.certificate) == ("proof", {"best": 8.0})
    assert set(trace.seconds) == {"grid", "proof"}


def test_nothing_to_chain_is_refused():
    with pytest.raises(ConfigError, match=r"search\.searches"):
        Chain([])


def test_from_configuration():
    study = study_from_config("search=grid_then_proof", "search.searches.1.gap=0.01")
    assert [type(search).__name__ for search in study.search.searches] == ["Grid", "Certified"]
    assert study.search.searches[1].gap == 0.01
