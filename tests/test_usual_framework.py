"""The framework that people run: taken where a study starts from catalogue products, never over what is named."""

from pathlib import Path

import numpy as np
import pytest
from tiers import mostly_slow

from codesign.commands.cli import main
from codesign.config import compose, scenario_from_config
from codesign.config.composition import admit, chosen_options
from codesign.config.groups import available
from codesign.config.starting import CLOSED, NONE, OPEN, TRAINING, TYPICAL, started, usual_framework
from codesign.config.user_files import own_files
from codesign.core.errors import ConfigError
from codesign.model.metrics import evaluate
from codesign.search.results import numbers_of
from codesign.uncertainty.draws import source_names
from codesign.uncertainty.metrics import metrics_under_draws
from codesign.uncertainty.spreads import NEW, PHYSICS, find


@pytest.mark.parametrize(("overrides", "framework"), [
    (["model=llama31_8b"], "nemo_h100"),
    (["accelerator=b200"], "nemo"),
    (["accelerator=a100_80gb", "workload=training_fp8"], "megatron"),
    (["workload=continuous", "accelerator=tpu7x"], "vllm"),
    (["workload=at_rate_fp8"], "vllm_async"),
    (["workload=disaggregated_goodput"], "vllm_async"),
    (["accelerator=tpu7x"], "maxtext"),
    (["accelerator=mi300x"], TYPICAL),  # nobody measured training there
    (["workload=recommendation"], NONE),
    (["workload=static_batch"], NONE),  # static batches: no engine that people run
    (["accelerator=h100_sxm,h200"], "nemo_h100"),
    (["accelerator=h100_sxm,b200"], NONE),  # a sweep has one framework, or none
])  # fmt: skip
def test_what_is_usual_by_job_and_generation(overrides, framework):
    assert usual_framework(overrides) == framework
    assert (f"framework={framework}" in admit(overrides)) == (framework != NONE)


def test_every_usual_framework_is_an_option():
    assert {*TRAINING.values(), TYPICAL, CLOSED, OPEN} <= {*available("framework")}


@pytest.mark.parametrize("overrides", [
    ["experiment=serve_llama31_405b"], ["experiment=serve_llama31_405b", "accelerator=b200"], [],
    ["model=llama31_8b", "framework=none"], ["workload=continuous", "framework=sglang"],
])  # fmt: skip
def test_experiments_and_what_is_named_stay_as_they_are(overrides):
    assert [text for text in admit(overrides) if text.startswith("framework=")] == [
        text for text in overrides if text.startswith("framework=")
    ]


def test_it_can_be_asked_for_beside_an_experiment():
    result = admit(["experiment=serve_llama31_405b", "workload=continuous", "framework=auto"])
    assert "framework=vllm" in result
    assert "framework=auto" not in result
    assert chosen_options(["workload=continuous"])["framework"] == "vllm"


def test_a_file_of_ones_own_is_judged_by_what_it_is_made_from(tmp_path: Path):
    path = tmp_path / "accelerator" / "mine.yaml"
    path.parent.mkdir()
    path.write_text("# @package _global_\n# A chip\ndefaults: [h200, _self_]\ncluster:\n  accelerator: {name: mine}\n")
    with own_files(tmp_path):
        assert usual_framework(["accelerator=mine"]) == "nemo_h100"
        assert usual_framework(["accelerator=nowhere"]) == TYPICAL


@pytest.mark.parametrize("accelerator", mostly_slow(["h200", "b200", "mi300x", "tpu7x"], quick=["mi300x"]))
def test_intervals_lie_around_what_a_named_engine_predicts(accelerator: str):
    """Errors of jobs whose engine nobody named are of one sign: an engine's own time is missing there, not here."""
    asked = (f"accelerator={accelerator}", "workload=continuous", "cluster.device_count=8")
    result = scenario_from_config(*asked)
    assert all(name.endswith(", framework named") for name in source_names(result))
    plain = scenario_from_config(*asked, "framework=none")
    assert not any("named" in name for name in source_names(plain))


def test_the_typical_framework_is_the_middle_of_measured_jobs():
    middle = find("source", ("training",), PHYSICS, NEW).at(np.asarray(0.5))
    typical = scenario_from_config("accelerator=mi300x", "workload=training")
    assert float(typical.workload.kernel_slowdown) == pytest.approx(np.exp(middle), rel=5e-4)
    assert source_names(typical) == source_names(scenario_from_config("framework=none"))


@pytest.mark.parametrize(("overrides", "words"), [
    (["workload.framework_errors=typcal"], ["workload.framework_errors = 'typcal'", "did you mean 'typical'"]),
    (["workload=continuous", "framework=typical"], ["a training framework runs no ContinuousServing", "vllm"]),
])  # fmt: skip
def test_what_no_framework_is_has_its_line(overrides, words):
    with pytest.raises(ConfigError) as error:
        scenario_from_config("model=llama31_8b", *overrides)
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), str(error.value)


ONE_A_GENERATION = (
    "a100_80gb", "ascend_950pr", "arc_pro_b60", "b200", "gaudi3", "h100_sxm", "l40s", "maia_200", "mi250x", "mi300x",
    "mi355x", "mi455x", "rtx_pro_6000", "rubin", "tpu7x", "tpu_8t", "tpu_v5p", "tpu_v6e", "trainium2", "trainium4",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("accelerator", "workload"), [
    *((name, "training") for name in ONE_A_GENERATION), *((name, "continuous") for name in ("h200", "mi300x", "tpu7x")),
])  # fmt: skip
def test_headlines_lie_in_the_middle_of_their_intervals(accelerator: str, workload: str):
    asked = (f"accelerator={accelerator}", "model=llama31_8b", f"workload={workload}", "cluster.device_count=64")
    result = scenario_from_config(*asked)
    told, drawn = numbers_of(result), metrics_under_draws(result)
    for name in ("ttft_s", "tpot_s", "tokens_per_s") if workload == "continuous" else ("time_s", "tokens_per_s"):
        low, high = np.quantile(drawn[name], [0.25, 0.75])
        assert low <= told[name] <= high, name


@pytest.mark.slow
def test_one_line_says_what_was_taken(capsys: pytest.CaptureFixture):
    asked = ["evaluate", "model=llama31_8b", "workload=continuous", "cluster.device_count=8", "--json"]
    assert main(asked) == 0
    assert "framework=vllm, what usually runs this; framework=none prices kernels alone" in capsys.readouterr().err
    assert main([*asked, "framework=none"]) == 0
    assert "what usually runs" not in capsys.readouterr().err
    assert compose(asked[1:4]).workload.request_overhead_s > 0


@pytest.mark.parametrize(("workload", "model"), [
    ("training", "llama31_8b"), ("serving", "llama31_8b"), ("recommendation", "dlrm_criteo"), ("images", "dit_xl_2"),
])  # fmt: skip
def test_none_is_a_framework_of_every_workload(workload, model):
    scenario_from_config(f"workload={workload}", f"model={model}", "framework=none")


def test_a_framework_hides_what_its_constants_were_fitted_under():
    """Slowdowns of NeMo are of steps whose tensor-parallel joins and sends ran beside work; what a study says stays."""
    taken = scenario_from_config("framework=nemo_h100").plan
    assert (float(taken.tp_overlap), float(taken.pp_overlap)) == (1.0, 1.0)
    said = scenario_from_config("framework=nemo_h100", "plan.pp_overlap=0").plan
    assert (float(said.tp_overlap), float(said.pp_overlap)) == (1.0, 0.0)
    bare = scenario_from_config("framework=none").plan
    assert (float(bare.tp_overlap), float(bare.pp_overlap)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("overlaps", "said"),
    [
        ("{send: 1}", "no key 'send'"),
        ("{pp: 2}", "is no share from 0 to 1"),
        ("1", "must be a mapping with tp, cp"),
    ],
)
def test_overlaps_that_are_none_are_one_line(tmp_path: Path, overlaps: str, said: str):
    (tmp_path / "framework").mkdir()
    text = f"# @package workload\n# of our own\nkernel_slowdown: 1.1\noverlaps: {overlaps}\n"
    (tmp_path / "framework" / "ours.yaml").write_text(text, encoding="utf-8")
    with own_files(tmp_path), pytest.raises(ConfigError, match=said):
        scenario_from_config("framework=ours")


QWEN = (
    "model=qwen3_235b_a22b", "workload=training", "framework=auto", "accelerator=h800", "cluster.device_count=256",
    "workload.sequence=4096", "plan.pp=32", "plan.virtual_stages=3", "plan.ep=8", "plan.first_stage_less=1",
    "plan.last_stage_less=1", "plan.zero=1",
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "measured_s"),
    [
        ("workload.global_batch=4096 plan.tp=1 plan.micro_batch=4 plan.recompute=full", 42.537),
        ("workload.global_batch=2048 plan.tp=2 plan.etp=1 plan.sequence_parallel=1 plan.micro_batch=1"
         " plan.recompute=selective", 22.42),
    ],
)  # fmt: skip
def test_two_published_layouts_of_235_billion_parameters(words: str, measured_s: float):
    """Issue 658 of Pai-Megatron-Patch, 256 H800, used for no fit: 15.8 and 4.9 % late."""
    scenario = scenario_from_config(*started([*QWEN, *words.split()]))
    assert float(evaluate(scenario).time_s) == pytest.approx(measured_s, rel=0.16)


@pytest.mark.parametrize(
    ("words", "workload", "framework"),
    [("isl=1000 model=llama31_8b", "continuous", "vllm"), ("request_rate=2", "at_rate", "vllm_async"),
     ("workload.output_tokens=200 workload=goodput", "goodput", "vllm_async"), ("sequence=4096", "", ""),
     ("accelerator=H100 model=llama31_8b", "", "nemo_h100")],
)  # fmt: skip
def test_numbers_of_requests_say_that_something_is_served(words: str, workload: str, framework: str):
    """And names of tables bring the framework that options bring."""
    chosen = dict(word.split("=", 1) for word in started(words.split()))
    assert (chosen.get("workload", ""), chosen.get("framework", "")) == (workload, framework)


def test_the_formats_of_a_checkpoint_are_found_by_its_hub_name():
    words = ["workload=continuous", "accelerator=H100"]
    assert ("precision=checkpoint" in started([*words, "model=openai/gpt-oss-120b"])) is True
    assert ("precision=checkpoint" in started([*words, "model=gpt_oss_120b"])) is True
