"""`codesign verify` of listed values and whole numbers: the proof of every combination holds, and lies are named."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from builders import training

from codesign.commands.left_files import read_evidence, write_evidence
from codesign.commands.verify import _check_frame
from codesign.report.run_folder import RunFolder
from codesign.search import Certified, Integer, Problem, Trace
from codesign.study.design_space import Continuous, DesignSpace, Ratio
from codesign.study.objective import Objective
from codesign.verification import Refuted, VerifiedProblem, coverage, derivation_of, verify
from codesign.verification.model_answers import CheckedModel

pytestmark = pytest.mark.slow

GOAL = "capex_usd * provisioned_power_w ** 0.5"  # the model's times are not compiled for these tests
SPACE = DesignSpace(
    plan={"pp": [4, 8, 16], "zero": [0, 1], "recompute": ["none", "full"]},
    hardware={
        "hbm": Continuous("cluster.accelerator.hbm.capacity_bytes", 8e9, 300e9),
        "ddr": Ratio("cluster.host.memory.capacity_bytes", "cluster.accelerator.hbm.capacity_bytes", 0.5, 4.0),
        "up": Continuous("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 100e9, 900e9),
    },
)  # fmt: skip
PROBLEM = Problem(training(), SPACE, Objective(GOAL, limits={"capex_usd": 60e6}))
UNITS, VALUES = {"hbm": 16e9}, {"up": [450e9, 225e9, 900e9], "ddr": [1.0, 0.5]}
ASKED = VerifiedProblem(
    PROBLEM.scenario, SPACE, PROBLEM.objective, GOAL, targets=("capex_usd",), values=VALUES, units=UNITS
)  # fmt: skip


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Integer(UNITS, Certified(convexity_samples=8, batch_size=64, explain=False), VALUES).run(PROBLEM, 0)


@pytest.fixture(scope="module")
def model() -> CheckedModel:
    return CheckedModel(ASKED)


@pytest.fixture
def stored(trace, tmp_path) -> tuple[dict, dict]:
    write_evidence(trace.evidence, tmp_path)
    result = read_evidence(tmp_path)
    assert result is not None
    return result


def answer_of(header: dict, tables: dict, model: CheckedModel) -> str:
    try:
        certificate = derivation_of(header, tables)
    except Refuted as result:
        return f"not verified: {result}"
    return verify(ASKED, certificate.claim, certificate, 0, 0, model=model).line


def kept(stored: tuple[dict, dict], mine: np.ndarray) -> tuple[dict, dict]:
    """Only these nodes, everything else consistent with that."""
    header, tables = stored
    cuts = tables["cuts"]
    some = mine[cuts["node"]]
    number = np.cumsum(mine) - 1
    less = {
        "nodes": {name: column[mine] for name, column in tables["nodes"].items()} | {"number": np.arange(mine.sum())},
        "points": tables["points"],
        "cuts": {name: column[some] for name, column in cuts.items()},
    }
    less["cuts"]["node"] = number[less["cuts"]["node"]]
    return header | {"counts": header["counts"] | {"nodes": int(mine.sum()), "cuts": int(some.sum())}}, less


def test_an_honest_proof_of_every_combination_is_verified(trace, stored, model):
    """One listed variable is the ratio to another that is free: no scenario holds it, and yet it is held."""
    certificate = derivation_of(*stored)
    answer = verify(ASKED, certificate.claim, certificate, 2048, 1, model=model)
    assert answer.verified, answer.line
    assert answer.line.startswith(f"verified: no {GOAL} below")
    assert certificate.held == ("ddr", "up")
    assert certificate.variables == ("hbm",)
    assert answer.numbers["plans"] == 6 * len(SPACE.plans(PROBLEM.scenario)["pp"])
    assert any("with every value of ddr (2), up (3)" in text for text in answer.checks)
    assert answer.numbers["bound"] == pytest.approx(trace.certificate.bound, rel=1e-8)
    assert answer.numbers["bound"] <= answer.numbers["best_of_attack"] <= trace.certificate.best * (1 + 1e-9)
    assert answer.numbers["held"] > 2000
    design = certificate.claim.design
    assert design["hbm"] / UNITS["hbm"] == round(design["hbm"] / UNITS["hbm"])
    assert design["up"] in VALUES["up"]


def test_where_nothing_is_proven_the_attack_still_keeps_to_listed_values(trace, stored, model):
    claim = dataclasses.replace(derivation_of(*stored).claim, bound=None, gap=None)
    answer = verify(ASKED, claim, None, 512, 0, model=model)
    assert answer.line.startswith("nothing claimed to verify: the search proves nothing, what it found is as it says")
    assert answer.numbers["best_of_attack"] >= trace.certificate.bound


def test_a_combination_dropped_is_named(stored, model):
    header, tables = stored
    nodes = tables["nodes"]
    less = kept(stored, (nodes["low.up"] != 1) | (nodes["low.ddr"] != 0))
    told = answer_of(*less, model)
    assert (
        told
        == "not verified: search.allowed_values: 1 of 6 combinations are in no node; the first: ddr 0.5, up 4.5e+11"
    )
    held = header["held"] | {"up": header["held"]["up"][:2]}
    less = kept(stored, nodes["low.up"] < 2)
    told = answer_of(less[0] | {"held": held}, less[1], model)
    assert told == "not verified: search.allowed_values.up: the certificate has other values than the study"
    one = np.arange(len(nodes["number"])) != 3
    told = answer_of(*kept(stored, one), model)
    assert "legal plans are in no node; the first: pp " in told
    assert "up " in told
    opened = {"nodes": nodes | {"high.up": np.minimum(nodes["low.up"] + 1, 2)}}
    assert "leaves a listed variable open" in answer_of(header, tables | opened, model)


def test_where_plans_with_their_values_are_too_many_each_combination_is_checked(stored, model, monkeypatch):
    whole = derivation_of(*stored)
    plans = len(SPACE.plans(PROBLEM.scenario)["pp"])
    monkeypatch.setattr(coverage, "MOST_COVERED", 20)
    result = coverage.cover(whole, ASKED, model)
    assert (result.plans, result.exact) == (6 * plans, True)
    few = dataclasses.replace(whole, low=whole.low[1:], high=whole.high[1:], best=whole.best[:, 1:])
    with pytest.raises(Refuted, match=r"^ddr .*, up .*: 1 of .* legal plans are in no node; the first: pp "):
        coverage.cover(few, ASKED, model)


def test_values_that_decide_which_plans_are_legal_are_not_taken_for_covered():
    count = Continuous("cluster.device_count", 512.0, 4096.0)
    space = DesignSpace(SPACE.plan, {"devices": count})
    asked = dataclasses.replace(ASKED, space=space, values={"devices": [1024.0, 2048.0]}, units={})
    with pytest.raises(Refuted, match=r"search.allowed_values.devices decides which plans are legal"):
        coverage._same_rules(asked)


def test_a_bound_raised_above_one_combination_is_refused_at_its_node(stored, model):
    header, tables = stored
    claim = header["claim"] | {"bound": header["claim"]["bound"] * 1.001, "best": None, "gap": None, "design": {}}
    told = answer_of(header | {"claim": claim}, tables, model)
    assert told.startswith("not verified: node")
    assert "up " in told
    assert "its bound is" in told


def test_a_best_design_between_whole_numbers_or_listed_values_is_refused(stored, model, tmp_path):
    header, tables = stored
    claim = header["claim"]
    for change, words in (
        ({"hbm": claim["design"]["hbm"] + 4e9}, "of search.step.hbm, not whole"),
        ({"up": claim["design"]["up"] * 1.1}, "is not listed in search.allowed_values.up"),
    ):
        told = answer_of(header | {"claim": claim | {"design": claim["design"] | change}}, tables, model)
        assert told.startswith("not verified: best design: ")
        assert told.endswith(words)
        row = {f"var.{name}": value for name, value in (claim["design"] | change).items()} | {"feasible": True}
        folder = RunFolder(tmp_path, {}, pd.DataFrame([row]))
        with pytest.raises(Refuted, match=rf"^designs.parquet: the best design: .* {words}"):
            _check_frame(ASKED, folder, derivation_of(header, tables).claim)
