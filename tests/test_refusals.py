"""Refusals of what people type first: each names what was meant, what is missing, or how far a limit is missed."""

import types

import pandas as pd
import pytest

from codesign.commands.cli import main
from codesign.commands.infeasible import refuse_infeasible
from codesign.commands.parser import parsed
from codesign.commands.plain_values import count_of, days, number, rate
from codesign.commands.questions import training_question
from codesign.config import compose
from codesign.config.groups import available
from codesign.core.errors import ConfigError
from codesign.search.certificate import RequiredRelaxation

SERVED = ("evaluate", "model=llama31_8b", "workload=continuous", "accelerator=h100_sxm", "framework=none")
CAPACITY = "cluster.accelerator.hbm.capacity_bytes=80"


def limited(limits: dict[str, float], floors: dict[str, float] | None = None):
    """A study of which only limits matter."""
    objective = types.SimpleNamespace(limits=limits, floors=floors or {})
    return types.SimpleNamespace(
        objective=objective, space=types.SimpleNamespace(hardware={}), scenario=types.SimpleNamespace()
    )


@pytest.mark.parametrize(("over", "line"), [
    (1.0004, "objective.limits.tpot_s (50.02 ms, 50 ms allowed)"),
    (1.000002, "objective.limits.tpot_s (50.0001 ms, 50 ms allowed)"),
    (1.25, "objective.limits.tpot_s (62.5 ms, 50 ms allowed)"),
])  # fmt: skip
def test_a_missed_limit_is_written_with_digits_that_tell_it_from_what_is_allowed(over: float, line: str):
    nearest = pd.Series({"feasible": False, "limit.tpot_s": over})
    with pytest.raises(ConfigError) as error:
        refuse_infeasible(limited({"tpot_s": 0.05}), nearest, None)
    assert line in str(error.value)


def test_a_floor_and_what_would_be_enough_are_written_so_too():
    study = limited({"tpot_s": 0.05}, {"tokens_per_s": 1000.0})
    nearest = pd.Series({"feasible": False, "limit.tokens_per_s": 1.0004})
    with pytest.raises(ConfigError, match=r"floors\.tokens_per_s \(999\.6, 1 k asked for\)"):
        refuse_infeasible(study, nearest, None)
    proof = types.SimpleNamespace(infeasible=(RequiredRelaxation("tpot_s", factor=1.0004, alone=True, together=None),))
    with pytest.raises(ConfigError, match=r"objective\.limits\.tpot_s = 50\.02 ms instead of 50 ms"):
        refuse_infeasible(study, nearest, proof)


@pytest.mark.parametrize("words", [
    "serve", "serve --rate 30/s", "train", "train llama31_8b --on h200", "fleet", "buy", "verify", "reproduce",
])  # fmt: skip
def test_what_is_missing_comes_with_an_example_that_has_it(words: str, capsys: pytest.CaptureFixture):
    try:
        parsed(words.split())
    except SystemExit:
        line = capsys.readouterr().err
        assert f"as in `codesign {words.split()[0]} " in line
        assert "OVERRIDE" not in line
        assert "\n" not in line.strip()
    else:
        assert words in ("verify", "reproduce")  # which can go without


@pytest.mark.parametrize(("word", "meant"), [
    ("gpus", "accelerator"), ("GPU", "accelerator"), ("devices", "accelerator"), ("engines", "framework"),
    ("backend", "framework"), ("models", "model"),
])  # fmt: skip
def test_everyday_words_for_groups_are_asked_back(word: str, meant: str, capsys: pytest.CaptureFixture):
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
        available(word)
    assert main(["list", word]) == 2
    assert f"did you mean '{meant}'" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["inference", "serve"])
def test_inference_is_asked_back_as_the_workloads_that_serve(word: str):
    with pytest.raises(ConfigError, match="did you mean 'serving', 'continuous' or 'at_rate'"):
        compose([f"workload={word}"])


def test_several_values_are_sent_to_the_command_that_compares():
    with pytest.raises(ConfigError, match=r"names several values: `codesign compare` .* add -m to `codesign optimize`"):
        compose(["model=llama31_8b,llama31_70b"])


def test_a_capacity_without_its_unit_is_asked_back(capsys: pytest.CaptureFixture):
    assert main([*SERVED, "cluster.device_count=8", "plan.tp=8", CAPACITY]) == 2
    line = capsys.readouterr().err
    assert "capacity_bytes = 80 (80 B) is unusual" in line
    assert "for 80 GB write 8e+10" in line


@pytest.mark.slow
def test_a_table_of_memory_says_so_too(capsys: pytest.CaptureFixture):
    assert main(["fit", *SERVED[1:], CAPACITY]) == 0
    assert "for 80 GB write 8e+10" in capsys.readouterr().err


@pytest.mark.parametrize(("read", "value"), [
    (lambda: rate("30 per second"), 30), (lambda: rate("2 million per day"), 2e6 / 86400),
    (lambda: count_of("15 trillion tokens", "--tokens"), 15e12),
    (lambda: count_of("1.5e3 billion", "--tokens"), 1.5e12),
    (lambda: days("2 weeks"), 14 * 86400), (lambda: number("2 seconds", "s", "--ttft", "2s"), 2),
    (lambda: number("20 milliseconds", "s", "--tpot", "20ms"), 0.02),
    (lambda: number("3 minutes", "s", "--e2e", "2s"), 180),
    (lambda: number("$5 million", "$", "--budget", "$5M"), 5e6),
    (lambda: number("5 million", "$", "--budget", "$5M"), 5e6),
])  # fmt: skip
def test_amounts_and_times_may_be_words(read, value: float):
    assert read() == pytest.approx(value, rel=1e-12)


def test_a_rate_of_tokens_is_no_rate_of_requests():
    with pytest.raises(ConfigError, match="counts tokens; write requests"):
        rate("30 tokens/s")


def test_fewer_tokens_than_a_step_has_are_asked_back():
    asked = parsed(["train", "llama31_8b", "--on", "h200", "--tokens", "15", "--days", "90"])
    with pytest.raises(ConfigError, match=r"--tokens 15 is less than one step of 4\.19M tokens"):
        training_question(asked)
