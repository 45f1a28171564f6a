"""`codesign fleet`: classes as they are written, sizes that fill boxes, the answer and its verification."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from codesign.commands import fleet_options
from codesign.commands.cli import main
from codesign.commands.fleet_classes import FleetClass, classes_of, said_classes
from codesign.commands.fleet_options import numbers_at_once, options_on, placed, replica_sizes, slopes
from codesign.commands.mixed_fleet import replica_plan
from codesign.commands.parser import parsed
from codesign.core.errors import ConfigError

CHAT = "chat:rate=20/s,input=800,output=100,ttft_p99=500ms,tpot_p99=50ms"
BATCH = "batch:rate=300/min,input=2000,output=200,ttft_p99=30s,tpot_p99=200ms"
SMALL = ("space.plan.micro_batch=[16,64,256]", "space.plan.token_budget=[512,2048,8192]", "space.plan.pp=[1,2]")
COMMAND = [
    "fleet", "llama31_8b", "--on", "h100_sxm,b200", "--own", "h100_sxm=8", "--devices", "1,2", "--class", CHAT,
    "--class", BATCH, *SMALL,
]  # fmt: skip


def test_a_class_is_read():
    chat, batch = classes_of([CHAT, BATCH])
    assert chat == FleetClass("chat", 20.0, 800.0, 100.0, 0.5, 0.05)
    assert (batch.rate, batch.attainment) == (5.0, 0.99)
    assert chat.leaves["workload.slo.ttft_s"] == 0.5


def test_requests_of_one_kind_need_no_class():
    words = ["--rate", "20/s", "--input", "800", "--output", "100", "--ttft-p99", "500ms"]
    options = parsed(["fleet", "llama31_8b", "--on", "h200", *words, "--tpot-p99", "50ms"])
    only, chat = classes_of(said_classes(options))[0], classes_of([CHAT])[0]
    assert only == dataclasses.replace(chat, name="requests")
    with pytest.raises(ConfigError, match="--output is missing"):
        said_classes(parsed(["fleet", "llama31_8b", "--on", "h200", *words[:4]]))


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        ([], "name a class of requests"),
        (["rate=3/s"], "no name before a colon"),
        (["chat:input=800,output=1,ttft_p99=1s,tpot_p99=1s"], "rate is missing"),
        (["chat:rate=fast,input=1,output=1"], "no rate of requests"),
        (["chat:rate=3/s,inputs=800"], "did you mean 'input'"),
        (["chat:rate=3/s,rate=4/s"], "rate twice"),
        (["chat:rate=3/s,input=8,output=8,ttft_p99=1s"], "tpot_p99 is missing"),
        (["chat:rate=3/s,input=8,output=8,ttft_p99=1s,tpot_p90=1s"], "on one percentile"),
        (["chat:rate=3/s,input=8,output=8,ttft_p99=1s,ttft_p50=1s,tpot_p99=1s"], "there 2 times"),
        (["chat:rate=3/s,input=8,output=8,ttft_p99=1,tpot_p99=1s"], "of what"),
        (["chat:rate=3/s,input=8,output=8,ttft_p99=1s,tpot_p99=1s,cached=2"], r"in \[0, 0.99\]"),
        ([CHAT, CHAT], "named twice"),
    ],
)
def test_a_class_that_is_none_is_one_line(texts, line):
    with pytest.raises(ConfigError, match=line) as error:
        classes_of(texts)
    assert "\n" not in str(error.value)


def test_a_labelled_trace_brings_rates_and_lengths(tmp_path: Path):
    rng = np.random.default_rng(0)
    came, kinds = np.cumsum(rng.exponential(0.1, 400)), rng.integers(2, size=400)
    rows = [f"{t:.6f},{800 + 400 * k},{100 + 50 * k},{'ab'[k]}" for t, k in zip(came, kinds, strict=True)]
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,class\n" + "\n".join(rows), encoding="utf-8")
    limits = "ttft_p99=1s,tpot_p99=50ms"
    one, two = classes_of([f"a:{limits}", f"b:{limits}"], str(path))
    assert (one.input, two.input, two.output) == (800.0, 1200.0, 150.0)
    assert one.rate + two.rate == pytest.approx(400 / (came[-1] - came[0]))
    assert one.cv == pytest.approx(1.0, abs=0.25)
    for texts, line in (([f"a:{limits}"], "no limits for its class b"), ([f"c:{limits}"], "no such class")):
        with pytest.raises(ConfigError, match=line):
            classes_of(texts, str(path))


def test_replicas_fill_boxes():
    assert replica_sizes(8, 0.5) == [1, 2, 4, 8]
    assert replica_sizes(8, 3.0) == [4, 8]
    assert replica_sizes(8, 9.0) == [16, 32]
    assert replica_sizes(72, 1.0) == [1, 2, 4, 8, 24, 72]
    assert replica_sizes(8, 1.0, [2, 16]) == [2, 16]
    for wrong in ([3], [2, 12], [4, 6]):
        with pytest.raises(ConfigError, match="fill boxes of 8"):
            replica_sizes(8, 1.0, wrong)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--own", "h100_sxm"], "write --own h100_sxm=64"),
        (["--own", "h200=8"], "not among --on"),
        (["--most", "b200=2.5"], "no whole number of devices"),
        (["--requests", "3"], "at least 500"),
        (["--confidence", "2"], "no share between 0 and 1"),
        (["--budget", "much"], "no number above 0"),
        (["--ttft-p99", "2s"], "--ttft-p99 2s beside --class: write it there"),
    ],
)
def test_options_that_are_none_are_one_line(words, line, capsys):
    assert main(["fleet", "llama31_8b", "--on", "h100_sxm,b200", "--class", CHAT, *words]) == 2
    told = capsys.readouterr().err
    assert line in told
    assert told.count("\n") == 1


@pytest.mark.slow
def test_the_fastest_plan_of_each_size_is_that_of_all_plans():
    """Plans that are evaluated once are none that would have served more."""
    classes = classes_of([CHAT, BATCH])
    overrides = ["model=llama31_8b", *SMALL]
    result = options_on("h100_sxm", classes, overrides, "goodput", sizes=[1, 2])
    for one in result.classes:
        study = fleet_options.study_from_config(*result.overrides[0.99])
        plans = study.space.settled(one.scenario).plans(one.scenario)
        rows = [{name: float(values[at]) for name, values in plans.items()} for at in range(len(plans["tp"]))]
        excess, rate = numbers_at_once(
            [placed(one.scenario, row) for row in rows],
            lambda account, study=study: [
                study.objective.excess(account.metrics), account.metrics.extra["requests_per_s"]
            ],
        )  # fmt: skip
        for option in one.options:
            alone = [
                good for row, over, good in zip(rows, excess, rate, strict=True)
                if over <= 1e-6 and row["device_count"] == option.devices
                and row["tp"] * row["pp"] == option.devices
            ]  # fmt: skip
            assert option.rate == pytest.approx(max(alone), rel=1e-9)
        assert one.looked_at >= len({row["micro_batch"] for row in rows})


@pytest.mark.slow
def test_the_answer_is_kept_and_verified(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*COMMAND, "--json", "--requests", "500"]) == 0
    told = json.loads(capsys.readouterr().out)
    folder = next(Path("runs").iterdir())
    assert json.loads((folder / "fleet.json").read_text(encoding="utf-8"))["usd_per_month"] == told["usd_per_month"]
    assert (folder / "fleet.png").is_file()
    for one in told["classes"]:
        served = sum(pool["requests_per_s"] for pool in told["pools"] if pool["class"] == one["name"])
        assert served == pytest.approx(one["rate"])
    assert all(row["meets"] for row in told["replay"])
    assert main(["verify", str(folder), "--attack", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"]
    for change, line in (
        (lambda it: it["certificate"].update(bound=2 * it["certificate"]["bound"]), "leaves prove"),
        (lambda it: it["certificate"]["options"][0].update(rate=1e3), "are stated, the model says"),
        (lambda it: it["pools"].pop(), "pools has"),
        (lambda it: it["certificate"].pop("nodes"), "cannot be read"),
        (lambda it: it["kinds"][0].update(bought=0.5), "kinds[0].bought is 0.5, derived is"),
        (lambda it: it.update(usd_per_month=it["usd_per_month"] / 2), "usd_per_month is"),
        (lambda it: it.update(floor_usd_per_month=it["bound_usd_per_month"]), "floor_usd_per_month is"),
        (lambda it: it["certificate"]["kinds"][0].update(watts=1.0), "watts is 1, the model's is"),
        (lambda it: it["classes"][0].update(ttft_s=9.0), "ttft_s is 9, asked for is"),
        (lambda it: it.update(command="codesign list"), "asks for no fleet"),
    ):
        false = json.loads(json.dumps(told))
        change(false)
        (folder / "fleet.json").write_text(json.dumps(false), encoding="utf-8")
        assert main(["verify", str(folder), "--attack", "0", "--json"]) == 1
        assert line in json.loads(capsys.readouterr().out)["answer"]


@pytest.mark.slow
def test_rates_of_a_confidence_are_those_of_the_draws(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["fleet", "llama31_8b", "--on", "h100_sxm", "--devices", "1", "--class", CHAT, *SMALL]
    assert main([*words, "--confidence", "0.9", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    folder = next(Path("runs").iterdir())
    assert main(["verify", str(folder), "--attack", "0", "--json"]) == 0
    capsys.readouterr()
    assert told["certificate"]["options"]
    for change, line in (
        (lambda it: it.update(confidence=0.99), "confidence is 0.99, asked for is 0.9"),
        (lambda it: [one.update(rate=1.01 * one["rate"]) for one in it["certificate"]["options"]], "the draws say"),
    ):
        false = json.loads(json.dumps(told))
        change(false)
        (folder / "fleet.json").write_text(json.dumps(false), encoding="utf-8")
        assert main(["verify", str(folder), "--attack", "0", "--json"]) == 1
        assert line in json.loads(capsys.readouterr().out)["answer"]


@pytest.mark.slow
def test_a_fleet_solved_again_after_a_change_is_refused(tmp_path: Path, monkeypatch, capsys):
    """A small run of `qa/tamper_fleet.py`: the proof is right for what the file then says, the file is not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "qa"))
    import tamper_fleet

    words = ["fleet", "llama31_8b", "--on", "h100_sxm", "--devices", "1,2", "--class", CHAT, "--own", "h100_sxm=8"]
    assert main([*words, *SMALL]) == 0
    few = ("boxes of one device", "more boxes owned", "half the load", "rates lowered by no replay", "one size alone")
    monkeypatch.setattr(tamper_fleet, "CHANGES", {name: tamper_fleet.CHANGES[name] for name in few})
    monkeypatch.setattr("sys.argv", ["tamper_fleet.py", *map(str, Path("runs").iterdir())])
    capsys.readouterr()
    assert tamper_fleet.main() == 0, capsys.readouterr().out


@pytest.mark.slow
def test_limits_that_no_plan_keeps_say_by_how_much(capsys):
    words = ["fleet", "llama31_8b", "--on", "h100_sxm", "--devices", "1,2", *SMALL]
    assert main([*words, "--class", CHAT.replace("50ms", "1ms")]) == 2
    told = capsys.readouterr().err
    assert "tpot_p99 = 0.001 s is" in told
    assert "below" in told
    assert "allow" in told
    assert main([*words, "--class", CHAT, "--own", "h100_sxm=8", "--most", "h100_sxm=0", "--class",
                 BATCH.replace("300/min", "900/s")]) == 2  # fmt: skip
    assert "of the load can be" in capsys.readouterr().err
    assert main([*words[: -len(SMALL)], "--own", "h100_sxm=4", "--class", CHAT]) == 2
    assert "whole boxes of 8" in capsys.readouterr().err


@pytest.mark.slow
def test_a_limits_worth_is_the_slope_of_the_rate():
    """The rate of the plan at limits a little apart; and confidence never raises a rate."""
    one = classes_of([CHAT])[0]
    result = options_on("h100_sxm", [one], ["model=llama31_8b", *SMALL], "goodput", sizes=[1])
    own = result.classes[0]
    other = dataclasses.replace(one, ttft_s=one.ttft_s * 1.001)
    again = options_on("h100_sxm", [other], ["model=llama31_8b", *SMALL], "goodput", sizes=[1]).classes[0]
    assert again.plans[0] == own.plans[0]
    slope = (again.options[0].rate - own.options[0].rate) / (one.ttft_s * 0.001)
    assert slopes(own, own.plans[0], "ttft_s") == pytest.approx(slope, rel=0.02)
    sure = options_on("h100_sxm", [one], ["model=llama31_8b", *SMALL], "goodput", sizes=[1], confidence=0.9)
    assert 0 < sure.classes[0].options[0].rate <= own.options[0].rate


def test_sizes_that_no_fast_plan_serves_in_draws_are_looked_at_with_every_batch():
    plans = {"device_count": np.array([1.0, 1, 1, 1, 2, 2]), "micro_batch": np.array([4.0, 4, 8, 16, 4, 8])}
    rows = fleet_options._PlanRows(plans, {}, np.zeros(6, int), np.zeros(6, int))
    rate = np.array([1.0, 2.0, 3.0, 4.0, 1.0, 2.0])
    others = fleet_options._of_every_batch(rows, np.arange(6), rate, [3, 5], np.array([0.0, 1.5]))
    assert others == [1, 2]  # of one device the fastest of batches 4 and 8; two devices are served


@pytest.mark.parametrize(("etp", "text"), [(0.0, "tp2 pp1 ep2 mb8 budget64"), (1.0, "tp2 pp1 ep2 etp1 mb8 budget64")])
def test_the_plan_of_a_replica_says_that_experts_are_whole(etp, text):
    plan = {"tp": 2.0, "pp": 1.0, "ep": 2.0, "attention_dp": 1.0, "micro_batch": 8.0, "token_budget": 64.0}
    assert replica_plan(plan | {"etp": etp, "prefill_devices": 0.0}) == text
