"""A small run of `qa/independent_training.py` and `qa/independent_fronts.py`: claims hold, a false bound is seen."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from codesign.commands.cli import main


@pytest.mark.slow
def test_a_training_answer_holds_and_a_bound_that_is_raised_does_not(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "qa"))
    import independent_training

    monkeypatch.chdir(tmp_path)
    question = ["llama31_8b", "--tokens", "1T", "--days", "30d", "--on", "h200", "--devices", "64"]
    assert main(["train", *question]) == 0
    capsys.readouterr()
    (folder,) = Path("runs").glob("*/0")
    study = independent_training.composed(*(folder / "overrides.txt").read_text().split("\n")[:-1])
    told = json.loads((folder / "summary.json").read_text())["certificate"]
    made = independent_training.Trainer(study, np.random.default_rng(0), 128)
    plans = independent_training.with_answer(made.legal(200), folder, made)
    value, foreign = made.priced(plans), np.any(list(made.foreign(plans).values()), axis=0)
    assert value[-1] == pytest.approx(told["best"], rel=1e-9)
    assert not foreign[-1]
    assert foreign.any()
    assert value[~foreign].min() >= told["bound"] * (1 - 1e-6)


@pytest.mark.slow
def test_fronts_and_robust_designs_hold_and_a_bound_that_is_raised_does_not(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "qa"))
    import independent_fronts

    line, priced, false = independent_fronts.study(11, 3, "robust")
    assert line.startswith("holds robust")
    assert priced
    assert not false
    blended = independent_fronts.blended
    monkeypatch.setattr(independent_fronts, "blended", lambda *args: 0.99 * blended(*args))
    assert independent_fronts.study(11, 3, "robust")[2]
