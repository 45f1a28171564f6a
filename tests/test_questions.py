"""Plain questions: values as people write them, counts from a demand, studies that they stand for, wrong words."""

import re
import shlex
import types
from pathlib import Path

import pandas as pd
import pytest

import codesign
from codesign import study_from_config
from codesign.commands import ask
from codesign.commands.ask import _candidate_space, _with_counts, _with_every_degree
from codesign.commands.buy import jobs_of
from codesign.commands.candidates import Candidate, study_of
from codesign.commands.cli import main
from codesign.commands.parser import parsed
from codesign.commands.plain_values import accelerators, count_of, model_overrides, number, rate
from codesign.commands.questions import serving_question, training_question
from codesign.commands.what_to_buy import Margin
from codesign.config.device_counts import between, device_counts, least_devices, left_out, more_devices
from codesign.core.errors import ConfigError
from codesign.report.side_by_side import space_sentences

SERVE = ("serve", "llama31_8b", "--on", "h200")


@pytest.mark.parametrize(("text", "per_s"), [
    ("30/s", 30.0), ("30rps", 30.0), ("30 requests/s", 30.0), ("1800/min", 30.0), ("2M/day", 2e6 / 86400),
])  # fmt: skip
def test_rates_as_people_write_them(text, per_s):
    assert rate(text) == pytest.approx(per_s, rel=1e-12)


@pytest.mark.parametrize(("text", "value"), [
    ("512", 512.0), ("2k", 2e3), ("15T", 15e12), ("4,194,304", 4194304.0), ("1.5M tokens", 1.5e6), ("7B", 7e9),
])  # fmt: skip
def test_counts_as_people_write_them(text, value):
    assert count_of(text, "--tokens") == value


def test_names_of_accelerators_and_models_are_those_of_hubs_and_tables():
    assert accelerators("H200, NVIDIA-B200,h200") == ["h200", "b200"]
    assert model_overrides("meta-llama/Llama-3.1-8B-Instruct") == ["model=llama31_8b"]
    assert model_overrides("some/config.json") == ["model=hf_config", "model.path=some/config.json"]
    assert number("$5M", "$", "--budget", "$5M") == number("5M", "$", "--budget", "$5M") == 5e6


def test_counts_are_parts_of_a_box_and_whole_boxes_from_the_bound_on():
    assert device_counts(0.3) == [1, 2, 4, 8]
    assert device_counts(3.0) == [4, 8, 16, 24, 32]
    many = device_counts(500.0)
    assert len(many) <= 5
    assert many[0] >= 500
    assert many[-1] == 5000
    assert all(count % 8 == 0 for count in many)
    assert more_devices(many)[0] >= many[-1]


def test_counts_beside_the_best_one_are_those_that_the_list_left_out():
    many = device_counts(500.0)
    beside = between(many, many[3])
    assert many[3] in beside
    assert many[2] < min(beside)
    assert max(beside) < many[4]
    assert len(beside) <= 13
    assert between([16, 32, 64], 32) == [24, 32, 40, 48, 56]
    assert between([16, 32, 64], 64) == [40, 48, 56, 64]
    assert between([16, 32, 64], 32, batch=3) == [24, 32, 48]  # 40 and 56 do not share three sequences evenly
    assert between([2, 4, 8], 4) == [4]
    assert between([16, 32, 64], 32, batch=512) == [32]
    assert between([16, 32, 64], 32, batch=512, stages=32) == [24, 32, 40, 48, 56]  # three, five, seven stages
    assert left_out([16, 32, 64], 512, 32) == [24, 40, 48, 56]
    assert left_out([16, 32, 64], 512, 3) == [24, 48]


def test_fewer_devices_than_the_bound_cannot_reach_the_demand():
    scenario = study_from_config("model=llama31_8b", "accelerator=h200", "workload=continuous").scenario
    active = float(scenario.workload.model.active_parameters())
    peak = float(scenario.cluster.accelerator.peak_flops_per_s["bf16"])
    assert least_devices(scenario, 2 * active * 1e6) == pytest.approx(2 * active * 1e6 / peak)
    assert 0.05 < least_devices(scenario, 0.0) < 1.0  # its weights: 16 GB of 141


@pytest.mark.parametrize(("words", "expected"), [
    ((*SERVE, "--rate", "30"), "write 30/s"),
    ((*SERVE, "--rate", "fast"), "write 30/s"),
    ((*SERVE, "--rate", "-3/s"), "--rate"),
    ((*SERVE, "--rate", "5/s", "--clients", "4"), "exclude each other"),
    ((*SERVE, "--ttft-p99", "2s"), "add --rate 30/s"),
    ((*SERVE, "--rate", "5/s", "--tpot", "50"), "of what? write 2s or 50ms"),
    ((*SERVE, "--rate", "5/s", "--tpot", "50GB"), "measured in something else"),
    ((*SERVE, "--rate", "5/s", "--ttft-p99", "soon"), "write 2s or 50ms"),
    ((*SERVE, "--budget", "five"), "write $5M"),
    ((*SERVE, "--power", "3"), "of what? write 2MW"),
    ((*SERVE, "--devices", "many"), "--devices"),
    ((*SERVE, "--devices", ","), "--devices"),
    ((*SERVE, "--input", "-1"), "--input"),
    ((*SERVE, "--output", "0"), "--output"),
    ((*SERVE, "--pools", "both"), "add --rate"),
    ((*SERVE, "--pools", "none"), "invalid choice"),
    ((*SERVE, "--format", "fp8_bloc"), "did you mean 'fp8_block'"),
    ((*SERVE, "--trace", "no.csv"), "no.csv"),
    ((*SERVE, "--engine", "vlm"), "did you mean 'vllm'"),
    ((*SERVE, "--region", "europe-wst4"), "did you mean 'europe_west4'"),
    ((*SERVE, "--rate", "-3/s"), "write 30/s"),
    ((*SERVE, "--confidence", "1.5"), "write 0.9 or 90%"),
    ((*SERVE, "--confidence", "sure"), "write 0.9 or 90%"),
    ((*SERVE, "--confidence", "0.9", "search=grid"), "leave out 'search=grid'"),
    ((*SERVE, "plan.tq=3"), "plan.tq"),
    ((*SERVE, "50ms"), "is no override"),
    (("serve", "llama31_8c", "--on", "h200"), "did you mean 'llama31_8b'"),
    (("serve", "llama31_8b", "--on", "h2000"), "--on h2000"),
    (("serve", "llama31_8b", "--on", ","), "name at least one accelerator"),
    (("serve", "llama31_8b"), "--on"),
    (("serve", "llama31_8b", "--gpu", "h100"), "did you mean '--on'"),
    (("serve", "llama31_8b", "--on", "a100_80gb", "--format", "fp8"), "fp8"),
    (("train", "llama31_8b", "--tokens", "15T", "--days", "soon", "--on", "h200"), "write 90, 90d or 2160h"),
    (("train", "llama31_8b", "--tokens", "15T", "--days", "0", "--on", "h200"), "no number above 0"),
    (("train", "llama31_8b", "--tokens", "lots", "--days", "90d", "--on", "h200"), "write 512, 2k, 4M or 15T"),
    (("train", "llama31_8b", "--tokens", "15T", "--on", "h200"), "--days"),
    (("train", "llama31_8b", "--tokens", "1e30", "--days", "1d", "--on", "h200"), "more than"),
])  # fmt: skip
def test_wrong_words_are_one_line_that_says_what_to_type(words, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(list(words))
    except SystemExit as left:
        code = left.code
    told = capsys.readouterr().err
    assert code == 2
    assert len(told.strip().splitlines()) == 1
    assert expected in told
    assert not list(tmp_path.iterdir())


def test_degrees_that_are_typed_are_those_of_the_answer(capsys):
    """A number beside a space that searches it would change nothing: `tp=8` would be answered with TP 1."""
    assert main([*SERVE, "--rate", "5/s", "tp=8", "concurrency=64", "num_gpus=16", "--show-config"]) == 0
    space = study_from_config(*shlex.split(capsys.readouterr().out.splitlines()[-1])[2:]).space.plan
    assert (tuple(space["tp"]), tuple(space["micro_batch"]), tuple(space["device_count"])) == ((8,), (64,), (16,))
    train = ["train", "llama31_8b", "--tokens", "1T", "--days", "30", "--on", "h200", "pp=2", "plan.recompute=full"]
    assert main([*train, "--show-config"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert "space.plan.pp=[2]" in line
    assert "space.plan.recompute=[full]" in line
    assert main([*SERVE, "--devices", "8", "num_gpus=16", "--rate", "5/s"]) == 2
    assert "--devices 8 and cluster.device_count=16: leave one out" in capsys.readouterr().err


TIMED = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{n / 2},{900 + n},{90 + n}\n" for n in range(20))
UNTIMED = re.sub(r"(?m)^[^,]*,", "", TIMED)


def test_a_trace_says_lengths_and_rate(tmp_path, capsys):
    """As the help of `--trace` shows it: nothing that the trace says stands beside it."""
    path, untimed = tmp_path / "requests.csv", tmp_path / "lengths.csv"
    path.write_text(TIMED)
    untimed.write_text(UNTIMED)
    assert main([*SERVE, "--trace", str(path), "--show-config"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    work = study_from_config(*shlex.split(line)[2:]).scenario.workload
    assert (float(work.arrivals_per_s), float(work.input_tokens)) == pytest.approx((2.0, 909.5))
    assert main([*SERVE, "--trace", str(untimed), "--rate", "3/s", "--show-config"]) == 0
    assert "workload.arrivals_per_s=3.0" in capsys.readouterr().out
    assert main([*SERVE, "--trace", str(untimed)]) == 2
    assert "does not say when requests come, or all come at once: add --rate 30/s" in capsys.readouterr().err
    assert main([*SERVE, "--trace", str(path), "--rate", "3/s"]) == 2
    assert "says 2 requests/s: leave out --rate" in capsys.readouterr().err


def test_a_question_is_the_study_that_its_commands_compose(capsys):
    words = [*SERVE, "--rate", "5/s", "--tpot-p99", "50ms", "--budget", "$5M", "--input", "1k", "--devices", "8,16"]
    assert main([*words, "--show-config"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    study = study_from_config(*shlex.split(line)[2:])
    assert study.objective.limits == {"tpot_p99_s": 0.05, "capex_usd": 5e6}
    assert float(study.scenario.workload.arrivals_per_s) == 5.0
    assert float(study.scenario.workload.input_tokens) == 1000.0
    assert list(study.space.plan["device_count"]) == [8, 16]


def test_a_region_is_rented_in(capsys):
    """Its ratio is in the study, and nothing is assumed to be owned."""
    assert main([*SERVE, "--rate", "5/s", "--region", "europe-west4", "--show-config"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    owner = study_from_config(*shlex.split(line)[2:]).scenario.cluster.facility.ownership
    assert owner.region == "europe_west4"
    for words, assumed in ((["--region", "us-east1"], False), (["ownership=cloud"], False), ([], True)):
        options = parsed([*SERVE, *words])
        question = serving_question(options)
        assert any(what.startswith("owned") for what, _ in question.assumed) == assumed
    job = parsed(["buy", "--on", "h200", "--serve", "llama31_8b --rate 5/s", "--region", "us-east1"])
    (one,) = jobs_of(job, parsed)
    assert "++cluster.facility.ownership.region=us-east1" in one.question.candidates[0].overrides


@pytest.mark.slow
def test_a_model_is_served_in_the_formats_it_was_published_in(capsys):
    words = ["serve", "deepseek_v3", "--on", "h200", "--rate", "5/s", "--show-config"]
    assert main(words) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    precision = study_from_config(*shlex.split(line)[2:]).scenario.workload.precision
    assert precision.by_class.experts == "fp8_block"
    assert main([*words, "--format", "bf16"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert study_from_config(*shlex.split(line)[2:]).scenario.workload.precision.by_class is None


@pytest.mark.slow
def test_a_budget_between_the_listed_counts_is_no_infeasibility(capsys, tmp_path, monkeypatch):
    """Of 16, 32 and 64 devices 16 are too slow and 32 too dear; 24 do it, in three stages."""
    monkeypatch.chdir(tmp_path)
    words = ["llama31_8b", "--tokens", "1T", "--days", "60d"]
    assert main(["train", *words, "--on", "h200", "--budget", "$1.5M"]) == 0
    assert "answer   24 x h200" in capsys.readouterr().out
    assert main(["train", *words, "--on", "h200", "--budget", "$1M"]) == 2
    said = " ".join(capsys.readouterr().out.split())
    assert "capex_usd = $1.32 M instead of $1 M" in said


@pytest.mark.slow
def test_what_is_kept_costs_least_over_the_horizon(capsys, tmp_path, monkeypatch):
    """A token costs least on 32 devices, which are done in half the time and stand idle then."""
    monkeypatch.chdir(tmp_path)
    assert main(["buy", "--on", "h200", "--train", "llama31_8b --tokens 1T --days 60d"]) == 0
    assert "answer   24 x h200: $1.55 M over 4 years" in capsys.readouterr().out


def test_a_training_question_says_which_fields_of_a_plan_stay():
    words = ["train", "llama31_8b", "--tokens", "1T", "--days", "30d", "--on", "h200"]
    told = dict(training_question(parsed(words)).assumed)
    (how,) = (how for what, how in told.items() if "loss in one piece" in what)
    for text in how.split(", "):
        study_from_config("model=llama31_8b", "space=every_training_plan", text)
    more = training_question(parsed([*words, "space.plan.loss_chunks=[1,16]"])).assumed
    assert not any("loss in one piece" in what for what, _ in more)


def test_a_training_question_is_a_limit_on_the_step(capsys):
    words = ["train", "llama31_8b", "--tokens", "1T", "--days", "30d", "--on", "h200"]
    assert main([*words, "--show-config"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    study = study_from_config(*shlex.split(line)[2:])
    work = study.scenario.workload
    steps = 1e12 / (float(work.global_batch) * float(work.sequence))
    assert study.objective.limits["time_s"] * steps == pytest.approx(30 * 86400)


@pytest.mark.slow
def test_an_answer_says_what_to_buy_and_is_verified(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    narrow = ("space.plan.tp=[1,2]", "space.plan.micro_batch=[32,128]", "space.plan.token_budget=[512,2048]")
    words = [*SERVE, "--rate", "40/s", "--ttft-p99", "1s", "--tpot-p99", "40ms", *narrow]
    words[words.index("h200")] = "h200,h100_sxm"
    assert main(words) == 0
    told = capsys.readouterr().out
    assert told.startswith("asked    least cost of llama31_8b on h200, h100_sxm: 40 requests/s, TTFT p99 at most 1s")
    answer = next(line for line in told.splitlines() if line.startswith("answer"))
    assert "a month" in answer
    assert "keeps all limits in" in told
    folder = next(tmp_path.glob("runs/*"))
    assert main(["verify", str(folder), "--attack", "64"]) == 0
    assert "verified: 2 of 2 jobs" in capsys.readouterr().out


@pytest.mark.slow
def test_the_count_is_the_least_that_does(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from codesign.report.run_folder import read_run

    narrow = ("space.plan.tp=[2]", "space.plan.micro_batch=[64]", "space.plan.token_budget=[2048]")
    words = [*SERVE, "--rate", "120/s", "--tpot-p99", "40ms", *narrow]
    assert main(words) == 0
    capsys.readouterr()
    best = int(read_run(next(tmp_path.glob("runs/*/0"))).best["var.device_count"])
    assert best > 8
    smaller = best - 8 if best > 8 else best // 2
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--devices", str(smaller)]) == 2


@pytest.mark.slow
def test_a_confidence_is_kept_in_that_share_of_draws(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    narrow = ("space.plan.tp=[2]", "space.plan.micro_batch=[32,64,128]", "space.plan.token_budget=[2048]")
    words = [*SERVE, "--rate", "120/s", "--tpot-p99", "20ms", *narrow]
    shares = []
    for more in ([], ["--confidence", "0.9"]):
        assert main([*words, *more]) == 0
        line = next(line for line in capsys.readouterr().out.splitlines() if "keeps all limits in" in line)
        shares.append(int(line.split("%")[0].split()[-1]))
    assert shares[0] < 90 <= shares[1]
    folder = max(tmp_path.glob("runs/*"), key=lambda path: path.stat().st_mtime)
    assert main(["verify", str(folder / "0"), "--attack", "64"]) == 0


@pytest.mark.slow
def test_of_plans_that_cost_the_same_one_with_room_is_taken(capsys, tmp_path, monkeypatch):
    """One box of 8 either way: the cheapest plan by a hair, or one that keeps the limits in nine of ten draws."""
    monkeypatch.chdir(tmp_path)
    narrow = ("space.plan.tp=[1,2,4]", "space.plan.micro_batch=[32,64,128]", "space.plan.token_budget=[512,2048,8192]")
    words = [*SERVE, "--rate", "32/s", "--ttft-p99", "1s", "--tpot-p99", "12ms", *narrow]
    shares, bought = [], []
    for dearer in (-1.0, ask.SAME_COST):
        monkeypatch.setattr(ask, "SAME_COST", dearer)
        assert main(words) == 0
        told = capsys.readouterr().out.splitlines()
        shares.append(next(int(line.split("%")[0].split()[-1]) for line in told if "keeps all limits in" in line))
        bought.append(next(line.split(",")[0] for line in told if line.startswith("answer")))
    assert shares[0] < 90 <= shares[1]
    assert bought[0] == bought[1] == "answer   8 x h200 (1 box of 8): $10.7 k a month"
    folder = max(tmp_path.glob("runs/*"), key=lambda path: path.stat().st_mtime)
    assert main(["verify", str(folder), "--attack", "64"]) == 0


@pytest.mark.parametrize("words", [
    "serve m --onn h100", "serve m --on h100 --confidnce 0.9", "serve m --on h100 --ttft-p9 1s9 --rat3 3/s",
    "serve m --on h100 --buget 5M", "serve m --enginee vllm --on h100", "serve m --on h100 --formt fp8",
    "train m --tokns 15T", "train m --on h100 --dayz 90", "train m --on h100 --tokens 15T --sequnce 4k",
    "fleet m --onn h100", "fleet m --clas chat:rate=1/s --trce t", "fleet m --mostt h100=8", "buy --onn h100",
    "verify r --atack 3", "optimize --jsonn", "compare --explian", "evaluate --jsno", "simulate --replicaz 3",
    "autoscale --laod day:3", "explore r --prot 1",
])  # fmt: skip
def test_a_misspelt_option_is_named_with_what_was_meant(words):
    with pytest.raises(ConfigError, match="unknown option") as error:
        parsed(words.split())
    assert "did you mean '--" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_margin_that_is_too_wide_gives_way_to_a_narrower_one(tmp_path, monkeypatch):
    """Designs of narrower margins cost less; the cheapest that keeps the chance is taken, with its folder."""
    study = types.SimpleNamespace(objective=None)

    def designed(cost: float) -> Candidate:
        return Candidate("h200", {}, (), study=study, designs=pd.DataFrame({"objective": [cost]}))

    def searched(candidate, counts, folder, number):
        (folder / number).mkdir()
        (folder / number / "cost").write_text(repr(candidate))
        return designed(candidate)

    for enough, cost, words in (
        (1.2, 1.4142, "1.41 times slower"),
        (1.1, 1.1892, "1.19 times"),
        (1.9, 2.0, "2.00 times"),
    ):
        (tmp_path / str(enough) / "0").mkdir(parents=True)
        (tmp_path / str(enough) / "0" / "cost").write_text("2.0")
        monkeypatch.setattr(ask, "with_margin", lambda candidate, asked, margin: margin.slower)
        monkeypatch.setattr(ask, "_search", searched)
        monkeypatch.setattr(
            ask, "share_within_limits", lambda one, _, least=enough: float(one.best["objective"] > least)
        )
        result = ask._narrower(
            0.9, designed(0.5), designed(2.0), designed(1.0), Margin(2.0, 2.0), [8], tmp_path / str(enough), "0"
        )
        assert result.best["objective"] == pytest.approx(cost, rel=1e-3)
        assert words in result.margin
        assert float((tmp_path / str(enough) / "0" / "cost").read_text()) == pytest.approx(cost, rel=1e-3)
        assert [path.name for path in (tmp_path / str(enough)).iterdir()] == ["0"]


def test_a_proof_with_a_margin_says_that_it_is_one_of_the_margin():
    row = {"candidate": "h200", "certified": True, "space": "9 plans", "feasible": True, "rank": 1, "objective": 1.0}
    told = []
    for margin in ("", Margin(1.5, 2.0).text()):
        joint = types.SimpleNamespace(table=pd.DataFrame([row | {"margin": margin}]))
        joint.feasible = joint.table
        told += space_sentences(joint)
    row["gap"] = 0.00095
    joint = types.SimpleNamespace(table=pd.DataFrame([row]), feasible=pd.DataFrame([row]))
    assert space_sentences(joint) == ["h200: proven within 0.095 % of the best of 9 plans."]
    assert told[0] == "h200: proven the best of 9 plans."
    assert "1.50 times slower and first tokens 2.00 times later, of 9 plans; a cheaper one may" in told[1]


@pytest.mark.slow
def test_a_question_from_python_has_the_table_of_the_command(tmp_path, capsys):
    """One row of one product, priced, in a folder that holds the slide."""
    asked = {"rate": "5/s", "ttft_p99": "2s", "tpot_p99": "50ms", "input": 500, "output": 100, "devices": [1, 2]}
    result = codesign.serve("llama31_8b", "space.plan.micro_batch=[32,64]", on=["h200"], root=tmp_path, **asked)
    assert len(result.table) == 1
    assert float(result.table["usd_per_million_tokens"].iloc[0]) > 0
    assert (Path(result.facts["folder"]) / "slide.html").is_file()
    capsys.readouterr()


@pytest.mark.parametrize(("options", "named"), [
    ({"ttft_p99": "2 parsecs"}, "parsecs"),
    ({"tttf_p99": "2s"}, "unknown option '--tttf-p99' (did you mean '--ttft-p99'?)"),
    ({"rate": "fast"}, "fast"), ({"confidence": "often"}, "--confidence"),
])  # fmt: skip
def test_a_wrong_question_from_python_is_a_line(options, named, tmp_path):
    with pytest.raises(codesign.ConfigError, match=re.escape(named)):
        codesign.serve("llama31_8b", on="h200", root=tmp_path, **({"rate": "5/s"} | options))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_two_pools_have_every_degree_where_their_plans_are_few():
    asked = serving_question(parsed(["serve", "llama31_8b", "--on", "h100", "--rate", "40/s", "--pools", "apart"]))
    candidate = asked.candidates[0]
    place = _candidate_space(asked, candidate)
    lists = {}
    for name, one in (("powers", candidate), ("every", _with_every_degree(candidate, place, [8, 24]))):
        lists[name] = study_of(_with_counts(one, [8, 24])).space.plan
    assert 3 not in lists["powers"]["pp"]
    assert {1, 2, 3, 6} <= {*lists["every"]["pp"]}
    assert {0, 8, 16, 24} == {*lists["every"]["prefill_devices"]}
    assert {*lists["powers"]["tp"]} <= {*lists["every"]["tp"]}
    many = range(8, 129, 8)
    assert _with_every_degree(candidate, place, many) is candidate


def test_a_degree_that_the_user_listed_stays():
    words = ["serve", "llama31_8b", "--on", "h100", "--rate", "40/s", "--pools", "apart", "space.plan.tp=[1,2]"]
    asked = serving_question(parsed(words))
    place = _candidate_space(asked, asked.candidates[0])
    assert not [text for text in place.finer if text.startswith("space.plan.tp=")]
    assert "space.plan.prefill_tp=every" in place.finer


@pytest.mark.parametrize(("claim", "certified", "beginning"), [
    ("certified", True, "proven the best of"),
    ("no certificate: 9 combinations are too many for a proof; all that are legal were searched", False,
     "looked at, without proof:"),
    ("no certificate: 9 combinations of plan values are too many to bound; 1,304 plans were searched",
     False, "without proof, 1,304 plans were searched of"),
])  # fmt: skip
def test_a_search_of_some_plans_does_not_say_that_all_were_looked_at(claim, certified, beginning):
    row = {"candidate": "h800", "feasible": True, "space": "every layout", "margin": "", "claim": claim}
    (text,) = space_sentences(types.SimpleNamespace(
        table=pd.DataFrame([row | {"certified": certified}]), feasible=pd.DataFrame([row | {"certified": certified}])
    ))  # fmt: skip
    assert text == f"h800: {beginning} every layout."
