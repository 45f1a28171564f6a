"""The attack on certificates: studies follow from a seed, a bound that is too high is refuted, what is found counts."""

import dataclasses
import json
from pathlib import Path

import pytest

from codesign.jaxprs import evaluator as interpreting
from codesign.search import Problem
from codesign.study.objective import Objective

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def attack():
    """The benchmark's files, its settings of other modules taken back afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "qa")
        import attack
        import attack_goals
        import attack_one
        import attack_studies

        for module, name in ((interpreting, "PATIENCE"), (interpreting, "MANY")):
            patch.setattr(module, name, getattr(module, name))
        for name, few in (("DESIGNS", 512), ("CLOUD", 16), ("POLISHED", 2), ("BLOCK", 64)):
            patch.setattr(attack_one, name, few)
        patch.setattr(attack_studies, "LOOKS", 128)
        attack_one.prepared()
        yield attack, attack_goals, attack_one, attack_studies


@pytest.mark.slow
def test_a_study_follows_from_its_seed_and_a_bound_too_high_is_refuted(attack, monkeypatch):
    _, goals, one, studies = attack
    seed = next(seed for seed in range(99) if studies.kind_of(seed, 0) == "tables")
    given = studies.family(seed, 0)
    first, again = (goals.member(given, seed, 1) for _ in range(2))
    assert (first.form, first.objective.limits, first.truth) == (again.form, again.objective.limits, again.truth)
    assert {goals.member(given, seed, number).truth for number in range(40)} >= {goals.NOT}

    asked = goals.Asked(Objective("time_s"), goals.PROOF, goals.LOG_CONVEX, "metric")
    trace, rows = one.solved(Problem(given.scenario, given.space, asked.objective), asked, seed)
    monkeypatch.setattr(one, "member", lambda *_: asked)
    monkeypatch.setattr(one, "solved", lambda *_: (trace, rows))
    held = one.study(given, seed, 0)
    assert (held["verdict"], held["false"]) == ("proven", 0)
    assert held["margin"] >= 0
    trace.certificate = dataclasses.replace(trace.certificate, bound=1.01 * trace.certificate.bound)
    wrong = one.study(given, seed, 0)
    assert wrong["false"] == 1
    assert wrong["found"] < trace.certificate.bound
    assert set(json.loads(wrong["design"])) == {*given.space.plan, *given.space.hardware}


def test_a_false_certificate_or_lost_proofs_fail_the_run(attack, capsys):
    command, *_ = attack
    row = dict.fromkeys(command.COLUMNS, "") | {
        "study": 1, "kind": "dense", "truth": "log-convex", "verdict": "proven", "false": 0, "tried": 9, "margin": 0.1,
    }  # fmt: skip
    assert command.table([row] * 20, 3) == 0
    assert command.table([row] * 19 + [row | {"false": 1}], 3) == 1
    assert "FALSE: --seed 3 --study 1" in capsys.readouterr().out
    assert command.table([row] * 18 + [row | {"verdict": "tested"}] * 2, 3) == 1
