"""Short names of numbers and choices: each means a path or a group, wherever overrides are taken."""

import json

import pytest

from codesign.commands.cli import main
from codesign.config import compose, scenario_from_config
from codesign.config.groups import available
from codesign.core.errors import ConfigError
from codesign.core.fields import get_path
from codesign.core.short_names import CHOICES, NUMBERS, full_name, full_names
from codesign.evidence.measurements.columns import number_path

BASE = ("model=llama31_8b", "workload=continuous", "framework=none")


@pytest.mark.parametrize(("text", "full"), [
    ("tp=8", "plan.tp=8"),
    ("gpu=h200", "accelerator=h200"),
    ("gpu=h200,b200", "accelerator=h200,b200"),
    ("tp=[4,8]", "space.plan.tp=[4,8]"),
    ("devices=[8,16]", "space.plan.device_count=[8,16]"),
    ("devices=64", "cluster.device_count=64"),
    ("isl=1000", "workload.input_tokens=1000"),
    ("plan.tp=8", "plan.tp=8"),
    ("tp", "tp"),
    ("search.tp=8", "search.tp=8"),
])  # fmt: skip
def test_a_short_name_means_a_path_or_a_group(text: str, full: str):
    assert full_name(text) == full
    assert full_names([text, "workload=training"]) == [full, "workload=training"]


def test_the_path_of_a_file_chooses_a_model():
    assert full_names(["model=mine/config.json"]) == ["model=hf_config", "model.path=mine/config.json"]
    assert full_names(["model=llama31_8b"]) == ["model=llama31_8b"]


@pytest.mark.parametrize(("typed", "said"), [
    ("concurrency=0", "concurrency = 0 is outside [1, 1e+09] (concurrency is plan.micro_batch)"),
    ("max_num_seqs=2.5", "max_num_seqs = 2.5 is not a whole number; take 2 or 3 (max_num_seqs is plan.micro_batch)"),
    ("isl=-4", "isl = -4 is outside"), ("plan.micro_batch=0", "plan.micro_batch = 0 is outside [1, 1e+09]"),
])  # fmt: skip
def test_a_wrong_number_is_told_by_the_name_that_was_typed(typed: str, said: str, capsys: pytest.CaptureFixture):
    assert main(["evaluate", "accelerator=h100", *BASE, "num_gpus=8", typed]) == 2
    assert f"codesign: {said}" in capsys.readouterr().err


def test_short_names_take_no_group_away_and_stand_for_numbers_that_are_there():
    scenario = scenario_from_config(*BASE)
    at_rate = scenario_from_config("model=llama31_8b", "workload=at_rate", "framework=none", "cluster.device_count=8")
    trained = scenario_from_config("model=llama31_8b", "accelerator=h200", "framework=none")
    for name, path in NUMBERS.items():
        assert number_path(name) == path
        where = at_rate if path.endswith("arrivals_per_s") else scenario
        where = trained if path in ("workload.global_batch", "workload.sequence") else where
        assert get_path(where, path) is not None, name
    config = compose(list(BASE))
    assert not [name for name in (*CHOICES, *NUMBERS) if name in config]
    assert all(available(group) for group in CHOICES.values())


@pytest.mark.parametrize(("text", "meant"), [("tpp=2", "tp"), ("devcies=8", "devices"), ("modle=x", "model")])
def test_a_misspelt_name_is_asked_back(text: str, meant: str):
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
        compose([*BASE, text])


@pytest.mark.slow
def test_a_command_takes_them(capsys: pytest.CaptureFixture):
    asked = ["gpu=h200", "model=llama31_8b", "workload=continuous", "isl=1000", "osl=200", "concurrency=16", "tp=1"]
    assert main(["evaluate", *asked, "devices=8", "--json"]) == 0
    short = json.loads(capsys.readouterr().out)
    assert main(["evaluate", *full_names(asked), "cluster.device_count=8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == short
    result = scenario_from_config(*asked, "devices=8")
    assert (float(result.plan.tp), float(result.cluster.device_count)) == (1, 8)


def test_open_requests_of_two_pools_are_their_clients():
    assert full_names(["workload=disaggregated_clients", "concurrency=64"])[1] == "workload.concurrency=64"
    assert full_names(["workload=continuous", "concurrency=64"])[1] == "plan.micro_batch=64"
