"""What a stranger is told on the way: stages of a search in words, devices that were taken, whose roofs are drawn."""

import ast
from pathlib import Path

import pytest
from example_run import example_ops
from rich.console import Console

import codesign.search
from codesign.commands.optimize import STAGES, SearchProgressBar, stage_of
from codesign.commands.remarks import devices_taken
from codesign.config import scenario_from_config
from codesign.report.series import roofline_ends, roofs
from codesign.search import Progress
from codesign.search.results import ops

NAMING = ("Progress", "_note", "note", "report_progress")  # calls whose first words name a stage


def named_stages() -> set[str]:
    """Every stage that a search names by a word, read from its source."""
    result: set[str] = set()
    for path in Path(codesign.search.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", "")) in NAMING:
                first = call.args[0] if call.args else None
                either = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
                result |= {each.value for each in either if isinstance(each, ast.Constant) and type(each.value) is str}
    return result


def test_every_stage_of_every_search_is_said_in_words():
    assert named_stages() == set(STAGES)


def test_a_stage_says_which_of_several_searches_it_is_of():
    assert stage_of("integer, 2 of 3, close").words == "integers, 2 of 3, tightening the open bounds"
    assert stage_of("cma-es").words == "cma-es"


def test_progress_without_a_terminal_is_a_sentence_a_stage(capsys):
    with SearchProgressBar(Console(width=160, force_terminal=False), lambda name, value: f"${value:g}") as watch:
        watch(Progress("incumbent", 129, 129, 11.0, goal="usd_per_million_tokens"))
        watch(Progress("bound", 100, 280, 11.0, 0.5, goal="usd_per_million_tokens", proven=True))
        watch(Progress("bound", 280, 280, 11.0, 1e-6, goal="usd_per_million_tokens", proven=True))
    assert capsys.readouterr().out.splitlines() == [
        "looking for a good design: 129 plans tried; best usd_per_million_tokens $11",
        "bounding every plan: 280 of 280 plans settled; best usd_per_million_tokens $11, proven within less than 0.01%",
    ]


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["accelerator=h200"], True),
        (["accelerator=h200,b200", "model=llama31_405b"], True),
        (["accelerator=h200", "cluster.device_count=64"], False),
        (["accelerator=h200", "space.plan.device_count=[8,16]"], False),
        (["workload=training_run", "space=shapes"], False),  # whose space lists how many
        (["experiment=serve_goodput", "accelerator=h200"], False),
        ([], False),  # the default experiment says so itself
    ],
)
def test_devices_that_nobody_asked_for_are_told(overrides, told):
    line = devices_taken(overrides)
    assert line.startswith("1,024 devices, since nothing says how many; name cluster.device_count") is told
    assert bool(line) is told


def test_a_count_of_the_plan_is_the_one_told():
    line = devices_taken(["workload=rl_post_training", "model=qwen25_7b", "accelerator=h20"])
    assert line.startswith("128 devices, since nothing says how many; name plan.device_count for another number")


def test_one_chip_has_roofs_without_its_name():
    result = roofs(example_ops(serving=True).query("kernel == kernel"))
    assert [(roof.named, roof.number_format, roof.peak) for roof in result] == [
        ("", "bf16", 989e12),
        ("", "vector", 67e12),
    ]


@pytest.mark.slow
def test_prompts_on_another_chip_are_held_against_its_own_roofs():
    scenario = scenario_from_config("experiment=mixed_pools", "plan.prefill_devices=16")
    frame = ops(scenario).query("kind == 'compute'")
    assert scenario.cluster.prefill is not None
    own, pool = scenario.cluster.accelerator, scenario.cluster.prefill.cluster.accelerator
    for device, chip in ((own.name, own), (pool.name, pool)):
        part = frame[frame["device"] == device]
        assert set(part["phase"]) & {"prefill", "prefill_rest"} == (set(part["phase"]) if chip is pool else set())
        assert set(part["bandwidth_bytes_per_s"]) == {float(chip.hbm.bandwidth())}
        assert all(row.peak_flops_per_s == float(chip.peak(row.number_format)) for row in part.itertuples())
        assert (part["achieved_flops_per_s"] <= part["peak_flops_per_s"]).all()
    result = roofs(frame[(frame["intensity"] > 0) & (frame["achieved_flops_per_s"] > 0)])
    assert {roof.named for roof in result} == {f"{own.name} ", f"{pool.name} "}
    low, high = roofline_ends(frame)
    assert all(low < roof.ridge < high for roof in result)
