"""Inputs that are wrong in ways that were once taken, misread, or answered with a traceback."""

import functools
import inspect
import shutil

import pytest
from example_run import write_run

from codesign.commands.cli import main
from codesign.commands.optimize import gap_text
from codesign.config import composition, conf_dir, groups, study_from_config
from codesign.config.written import plain_number
from codesign.core.errors import ConfigError, suggestion
from codesign.model.metrics import evaluate
from codesign.search import Progress
from codesign.search.base import proving

SMALL = "calibration=h100_sxm_roofline"


def line(capsys, *arguments: str) -> str:
    """The one line with which a command is refused."""
    assert main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    assert error.startswith("codesign: ")
    return error


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["evaluate", "accelerator=h100_s"], ["h100_s does not exist", "'h100_sxm'"]),
        (["evaluate", "accelerator=null"], ["accelerator = null", "name one of the options", "b200"]),
        (["evaluate", "search=pareto"], ["searches nothing", "'search=pareto' belongs to `codesign optimize`"]),
        (["evaluate", "objective.limits.capex_usd=1e6"], ["searches nothing", "`codesign optimize`"]),
        (["evaluate", "--top", "-3"], ["--top = -3", "at least 0"]),
        (["evaluate", "=3"], ["'=3' is no override"]),
        (["compare", "h100", "b200"], ["'h100' is no override", "did you mean accelerator=h100_sxm?"]),
        (["fit", "openai/gpt-oss-120b"], ["did you mean model=gpt_oss_120b?"]),
        (["evaluate", "cluster.device_count=true"], ["cluster.device_count = true is not a plain number"]),
        (["evaluate", "plan.tp=[4,8]"], ["plan.tp = a list", "values to choose from belong to space.plan.tp"]),
        (["optimize", "objective.limits.tpot_s=50ms"], ["objective.limits.tpot_s", "exists for serving"]),
        (["optimize", "objective.limits.capex_usd=55ms"], ["'55ms'", "measured in something else", "$55M"]),
        (["optimize", "objective.limits.ttft_s=1"], ["objective.limits.ttft_s", "serving", "workload=serving"]),
        (["optimize", "objective.minimise=tpot_s*capex_usd"], ["tpot_s exists for serving workloads"]),
    ],
)
def test_a_wrong_input_has_its_line(capsys, arguments, parts):
    text = line(capsys, *arguments)
    assert all(part in text for part in parts), text


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("50ms", "s", 0.05), ("450GB/s", "B/s", 4.5e11), ("400 Gbps", "B/s", 5e10), ("112Gb/s", "b/s", 1.12e11),
        ("80GiB", "B", 80 * 2.0**30), ("1.83GHz", "Hz", 1.83e9), ("989TFLOPS", "FLOP/s", 9.89e14), ("700W", "W", 700.0),
        ("1.4 MW", "W", 1.4e6), ("12kW", "W", 1.2e4), ("100ns", "s", 1e-7), ("$55M", "$", 5.5e7), ("$30,000", "$", 3e4),
        ("$0.08/kWh", "$/J", 0.08 / 3.6e6), ("2.4pJ/bit", "J/B", 1.92e-11), ("4 years", "s", 4 * 365.25 * 86400),
        ("30%", "", 0.3),
        ("2B tokens/day", "tokens/s", 2e9 / 86400), ("500M tokens/d", "tokens/s", 5e8 / 86400),
        ("fast", "s", None), ("5 parsec", "s", None), ("", "s", None), ("7", "s", None),
    ],
)  # fmt: skip
def test_a_number_with_a_unit_has_its_plain_value(text, unit, number):
    result = plain_number(text, unit)
    assert (result is None) if number is None else result == pytest.approx(number, rel=1e-12)


def test_what_begins_with_a_word_goes_before_what_is_spelt_like_it():
    assert suggestion("h100", ["h800", "h100_sxm", "h100_pcie"]) == " (did you mean 'h100_pcie' or 'h100_sxm'?)"
    assert suggestion("modle", ["mode", "model"]) == " (did you mean 'model'?)"
    assert suggestion("modell", ["mode", "model"]) == " (did you mean 'model'?)"
    assert suggestion("h80", ["h800", "h100_sxm"]) == " (did you mean 'h800'?)"
    assert suggestion("b20000", ["b200", "h100"]) == " (did you mean 'b200'?)"


@pytest.mark.parametrize("group", ["memory", "die", "experiment"])
def test_null_takes_away_what_a_study_need_not_have(group):
    study = study_from_config(SMALL, f"{group}=null", "model=gpt3_175b")
    assert study.scenario.cluster.accelerator.die is None


# Python


def unchecked(function):
    """A function without the tests' check of argument types, as users have it."""
    return inspect.unwrap(function)


STUDY = functools.cache(lambda: study_from_config(SMALL))


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda study: study.asking(minimise="latency"), "metric 'latency' does not exist"),
        (lambda study: study.asking(minimse="time_s"), "did you mean 'minimise'"),
        (lambda study: study.asking(minimise=3), "must be the name of a metric, not int"),
        (lambda study: study.asking(limits=[1.0]), "must be a mapping"),
        (lambda study: study.asking(limits={"tpot_s": 0.05}), "tpot_s exists for serving workloads"),
        (lambda study: unchecked(evaluate)(study), "prices a Scenario, not a Study: give its scenario"),
        (lambda study: unchecked(evaluate)(None), "not a NoneType"),
        (lambda _: unchecked(study_from_config)(["plan.tp=8"]), "is a list: give texts such as 'plan.tp=8'; unpack"),
        (lambda _: unchecked(study_from_config)(8), "override 8 is a int"),
    ],
)
def test_misuse_from_python_is_a_config_error(call, part):
    with pytest.raises(ConfigError) as caught:
        call(STUDY())
    assert part in str(caught.value)


def test_a_scenario_shows_its_numbers_with_their_units():
    study = study_from_config(SMALL)
    text = repr(study.scenario)
    for part in (
        "bandwidth_bytes_per_s=3.35 TB/s",
        "capacity_bytes=85.9 GB",
        "device_count=1024",
        "tp=8",
        "bf16: 989.4",
    ):
        assert part in text
    assert "f64[" not in text
    assert len(text) < 20_000
    assert len(repr(study)) < 1000


# Files that claim one device's measurements


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """A copy of the accelerators beside the other groups."""
    for path in conf_dir().iterdir():
        if path.name == "accelerator":
            shutil.copytree(path, tmp_path / path.name)
        else:
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.setattr(groups, "conf_dir", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize("arguments", [["list", "accelerator"], ["evaluate"], ["calibrate", "."], ["validate", "."]])
def test_a_copied_accelerator_does_not_take_the_originals_measurements(capsys, conf, arguments):
    shutil.copy(conf / "accelerator" / "h100_sxm.yaml", conf / "accelerator" / "my_chip.yaml")
    text = line(capsys, *arguments)
    assert "accelerator/my_chip.yaml: alias 'H100-SXM' stands in accelerator/h100_sxm.yaml too" in text


@pytest.mark.parametrize(
    ("names", "part"),
    [
        ("aliases:\n      - NVIDIA h100 sxm", "alias 'NVIDIA h100 sxm' stands in accelerator/h100_sxm.yaml too as "),
        ("aliases: [MINE]\n    prefixes: [H100]", "prefix 'H100'"),
        ("aliases: [MINE]\n    name: h100_sxm", "name 'h100_sxm'"),
        ("aliases: MINE", "must be a list of names, such as [MINE]"),
    ],
)
def test_spelling_prefixes_and_names_count_too(conf, names, part):
    text = f"cluster:\n  accelerator:\n    {names}\n"
    (conf / "accelerator" / "my_chip.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        groups.aliases()
    assert part in str(caught.value)


def test_a_name_of_its_own_is_taken(conf):
    original = (conf / "accelerator" / "h100_sxm.yaml").read_text(encoding="utf-8")
    mine = [row for row in original.splitlines() if not row.strip().startswith(("aliases:", "prefixes:"))]
    text = "\n".join(mine).replace("name: h100_sxm", "name: my_chip\n    aliases: [MY-CHIP]")
    (conf / "accelerator" / "my_chip.yaml").write_text(text, encoding="utf-8")
    assert groups.aliases()["MY-CHIP"] == "my_chip"


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"a: [", "mine.yaml, line 1: expected the node content"),
        (b"\xff\xfe", "can't decode byte 0xff"),
        (b"# @package cluster.host\nprice_usd: 1\nprice_usd: 2\n", "mine.yaml, line 3: found duplicate key price_usd"),
        (b"# @package cluster.host\nprice_usd: &a [*a]\n", "contains itself"),
        (b"# @package cluster.host\nprovenance: 3\n", "cluster.host.provenance must map names of numbers"),
        (b"", "cluster.host is missing"),
    ],
)
def test_a_file_that_cannot_be_read_has_its_line(capsys, conf, monkeypatch, content, part):
    monkeypatch.setattr(composition, "conf_dir", lambda: conf)
    (conf / "host").unlink()
    (conf / "host").mkdir()
    (conf / "host" / "mine.yaml").write_bytes(content)
    (conf / "host" / "hgx.yaml").write_text((conf_dir() / "host" / "hgx.yaml").read_text(encoding="utf-8"))
    composition._base.cache_clear()
    assert part in line(capsys, "evaluate", SMALL, "host=mine")
    assert main(["list", "host"]) == 0


@pytest.mark.slow
def test_a_damaged_run_has_its_line(capsys, tmp_path):
    run = write_run(tmp_path / "run")
    (run / "overrides.txt").write_bytes(b"\xff\xfe")
    assert "overrides.txt' cannot be read" in line(capsys, "report", str(run))
    (run / "overrides.txt").unlink()
    (run / "unusual.json").write_text("[1]", encoding="utf-8")
    assert "cannot be read as a list of texts" in line(capsys, "report", str(run))
    (run / "unusual.json").unlink()
    (run / "report.html").mkdir()
    assert "report.html': Is a directory" in line(capsys, "report", str(run))


# What is shown


def test_citations_in_brackets_are_no_markup(capsys):
    assert main(["list", "model"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    described = [text for text in groups.available("model").values() if "[" in text]
    assert described
    assert all(" ".join(text.split()) in shown for text in described)


def test_only_what_will_stand_is_called_proven():
    seen: list[Progress] = []
    for proven in (True, False):
        proving(seen.append, proven)(Progress("close", 1, 2, 3.0, 0.01))
    assert [gap_text(progress) for progress in seen] == ["proven within 1.00%", "gap to bound 1.00%, not proven"]
    assert not Progress("close", 1, 2, 3.0, 0.01).proven
