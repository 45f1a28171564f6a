"""`--explain`: every column and row that a table of the terminal has is explained, with its unit."""

import pytest
from example_run import example_designs

from codesign.commands import compare as comparing
from codesign.commands.cli import main
from codesign.commands.designs_table import shown_columns
from codesign.commands.evaluate import sections
from codesign.commands.remarks import COLUMNS, metric_meaning, metric_unit, of_hardware, of_plan, of_table
from codesign.commands.terminal import SHORT
from codesign.config import scenario_from_config, study_from_config
from codesign.report.side_by_side import columns
from codesign.search.results import numbers_in, ops, priced

JOBS = (
    ("experiment=train_gpt3_175b",),
    ("model=llama31_8b", "workload=static_batch", "accelerator=h200", "cluster.device_count=8"),
    ("experiment=serve_goodput",),
    ("experiment=disaggregation",),
    ("experiment=folded_clos",),
    ("experiment=compute_optimal_machine",),
    ("experiment=serve_dlrm",),
)
UNKNOWN = "as the study defines it"


@pytest.mark.slow
@pytest.mark.parametrize("overrides", JOBS, ids=lambda job: job[-1])
def test_every_row_of_an_evaluation_is_explained(overrides):
    scenario = scenario_from_config(*overrides)
    account, words = priced(scenario), scenario.workload.words
    assert [name for name in account.metrics.flat() if not metric_meaning(name, words)] == []
    capacity = {"hbm": 80e9, "ddr": 1e12}
    for table in sections(numbers_in(account), {}, ops(scenario, account), capacity, 10, words.item):
        told = {one.label: one for one in table.explained(words)}
        assert not [one for one in told.values() if UNKNOWN in one.meaning or not one.meaning], table.title
        if table.labels:  # rows that show a metric; those of operations have columns that are explained
            assert [
                row[0].removeprefix("[bold]") for row in table.rows if row[0].removeprefix("[bold]") not in told
            ] == []
        else:
            assert set(table.heads) <= set(told)


@pytest.mark.parametrize("serving", [False, True])
def test_every_column_of_the_table_of_designs_is_explained(serving):
    frame = example_designs(serving)
    study = study_from_config("experiment=train_gpt3_175b")
    words, hardware = study.scenario.workload.words, of_hardware(study)
    kept, rest = shown_columns(frame, width=90)
    for one in (*kept, *rest):
        (told,) = of_table([(one.head, one.name)], (), words, hardware)
        assert told.label == one.head
        assert told.meaning
        assert UNKNOWN not in told.meaning
        assert one.name or told.meaning.startswith("varied: cluster."), one.head
    assert any(not one.name for one in kept)


def test_words_of_a_plan_are_those_of_the_frame():
    told = {one.label: one.meaning for one in of_plan(["var.tp", "var.dp", "var.sequence_parallel", "time_s"])}
    assert set(told) == {"tp", "dp", "sp"}
    assert told["tp"].startswith("plan.tp: ")
    every = {one.label for one in of_plan([f"var.{name}" for name in SHORT])}
    assert len(every) >= len({short.strip() for short, _ in SHORT.values()} - {"pp", "ep", "budget", "by tp"})


@pytest.mark.parametrize(
    ("name", "unit"),
    [("tokens_per_s", "tokens/s"), ("decode_tokens_per_s", "tokens/s"), ("tokens_per_s_per_user", "tokens/s"),
     ("mfu", "share"), ("usage.hbm", "share"), ("time_s", "s"), ("concurrency", ""), ("capex_usd", "$")],
)  # fmt: skip
def test_units_of_metrics(name, unit):
    assert metric_unit(name) == unit


@pytest.mark.slow
def test_a_comparison_explains_its_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = ("accelerator=h200", "model=llama31_405b", "workload=static_batch_fp8", "cluster.device_count=8,16")
    asked += ("space.plan.tp=[8]", "space.plan.pp=[1]", "space.plan.micro_batch=[32,64]")
    seen = []
    show = comparing.show
    monkeypatch.setattr(comparing, "show", lambda found, *rest: (seen.append(found), show(found, *rest)))
    assert main(["compare", *asked, "search=grid", "--explain"]) == 0
    printed = capsys.readouterr().out
    _, _, below = printed.partition("What this means")
    (result,) = seen
    heads = [comparing._head(result, name).replace("\n", " ") for name in columns(result)]
    for head in ("candidate", *heads, "best in draws", "plan, active constraints", "tp", "mb"):
        assert [line for line in below.splitlines() if line.startswith(f"{head} ")], head
    assert COLUMNS["wins"] in below
    assert below.index(COLUMNS["wins"]) < below.index("page: ")


@pytest.mark.slow
def test_what_is_not_asked_for_is_not_explained(capsys):
    job = ("calibration=h100_sxm_roofline",)
    assert main(["evaluate", *job]) == 0
    plain = capsys.readouterr().out
    assert "What this means" not in plain
    assert main(["evaluate", *job, "--explain"]) == 0
    explained = capsys.readouterr().out
    assert explained.count("What this means") == 5
    assert "tensor-parallel" in explained
    assert set(plain.splitlines()) <= set(explained.splitlines())


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["evaluate", "--explain", "--json"], "leave out --json"),
        (["optimize", "--explain", "--cfg", "job"], "leave out --cfg"),
    ],
)
def test_what_shows_no_table_has_nothing_to_explain(capsys, arguments, part):
    assert main(arguments) == 2
    assert part in capsys.readouterr().err
