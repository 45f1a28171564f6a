"""Configurations become objects, and whatever is wrong with one is said on one line."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from codesign.config import (
    available,
    build,
    check_memory,
    check_plan,
    compose,
    composition,
    scenario_from_config,
    study_from_config,
)
from codesign.config import groups as groups_of_files
from codesign.config.checks import shortage, smallest_change
from codesign.config.construct import targets
from codesign.config.groups import conf_dir, groups, search_path
from codesign.config.parts_built import plain
from codesign.core.errors import ConfigError
from codesign.core.fields import get_path
from codesign.model.scenario import Scenario
from codesign.search.results import Results
from codesign.study.design_space import Continuous, Ratio

FABRIC = "cluster.network.scale_up.fabric"


def message(function, *arguments) -> str:
    """The one line with which a call is refused."""
    with pytest.raises(ConfigError) as caught:
        function(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


def refused(*overrides: str) -> str:
    return message(study_from_config, *overrides)


# What a configuration may say


def test_the_default_is_gpt3_on_1024_h100():
    scenario = scenario_from_config()
    assert isinstance(scenario, Scenario)
    assert scenario.workload.model.name == "gpt3_175b"
    assert scenario.cluster.accelerator.name == "h100_sxm"
    assert float(scenario.cluster.device_count) == 1024


def test_an_accelerator_brings_its_fabric_along_and_another_can_be_chosen():
    native = scenario_from_config("accelerator=b200")
    assert float(get_path(native, f"{FABRIC}.bandwidth_bytes_per_s")) == 900e9  # NVLink 5, per direction
    other = scenario_from_config("accelerator=b200", "fabric=nvlink4")
    assert other.cluster.accelerator.name == "b200"
    assert float(get_path(other, f"{FABRIC}.bandwidth_bytes_per_s")) == 450e9


@pytest.mark.parametrize("key", [f"{FABRIC}.latency_s", "fabric.latency_s"])
def test_a_group_stands_for_the_place_where_it_lands(key):
    assert float(get_path(scenario_from_config(f"{key}=3e-6"), f"{FABRIC}.latency_s")) == 3e-6


def test_an_argument_that_no_file_spells_out_can_be_set():
    resolved = plain(compose([]))
    assert "pp_overlap" not in resolved["plan"]
    assert float(scenario_from_config("plan.pp_overlap=0.25").plan.pp_overlap) == 0.25


def test_limits_may_name_any_metric():
    assert study_from_config("objective.limits.joules_per_token=3").objective.limits["joules_per_token"] == 3


def test_a_variable_of_the_hardware_needs_no_class():
    path, ddr = "cluster.accelerator.hbm.capacity_bytes", "cluster.host.memory.capacity_bytes"
    study = study_from_config(
        "~space.hardware.hbm_to_ddr",
        f"space.hardware.far={{path: {ddr}, low: 1e10, high: 1e11}}",
        f"space.hardware.share={{numerator: {path}, denominator: {ddr}, low: 0.1, high: 1}}",
    )
    assert study.space.hardware["far"] == Continuous(ddr, 1e10, 1e11)
    assert study.space.hardware["share"] == Ratio(path, ddr, 0.1, 1)


def test_two_variables_on_one_leaf_are_refused_with_the_way_out():
    path = "cluster.accelerator.hbm.capacity_bytes"
    text = refused(f"space.hardware.hbm={{path: {path}, low: 1e10, high: 1e11}}")
    assert text.startswith(f"{path} is moved by space.hardware.hbm")
    assert "'~space.hardware.hbm_to_ddr'" in text


@pytest.mark.slow
def test_a_study_is_solved_with_a_goal_of_ones_own(monkeypatch):
    """Search and pricing are given the changed objective, not the file's."""

    def priced(problem, trace, *_):
        frame = pd.DataFrame({"goal": [problem.objective.goal], "method": trace.method})
        return Results(frame, frame, frame, frame)

    monkeypatch.setattr("codesign.config.study.collect", priced)
    study = study_from_config("experiment=calculon").asking(minimise="own", custom={"own": lambda m: m.time_s})
    results, trace = study.solve()
    assert results.best.to_dict() == {"goal": "own", "method": "single"}
    assert trace.points["tp"].tolist() == [8]


def test_a_null_takes_an_argument_away():
    tier = {"_target_": "codesign.model.hardware.MemoryTier", "capacity_bytes": 8e9, "bandwidth_bytes_per_s": 1e12}
    made = build({"tier": tier | {"reserved_bytes": None, "no_such_key": None}}).objects["tier"]
    assert float(made.reserved_bytes) == 0


def test_provenance_is_lifted_out_with_its_full_path():
    link = {"_target_": "codesign.model.hardware.Link", "alpha_s": 1e-6, "beta_s_per_byte": 1e-11}
    entry = {"source": "somewhere2020", "kind": "published"}
    built = build({"network": {"link": link | {"provenance": {"alpha_s": entry}}}})
    assert built.provenance == {"network.link.alpha_s": entry}
    assert float(built.objects["network"]["link"].alpha_s) == 1e-6


def test_a_number_set_by_hand_is_not_credited_to_its_datasheet():
    path = "cluster.accelerator.hbm.bandwidth_bytes_per_s"
    assert study_from_config().provenance.get(path, {}).get("source") != "override"
    entry = study_from_config("accelerator.hbm.bandwidth_bytes_per_s=4.0e12").provenance[path]
    assert entry["source"] == "override"
    assert "4.0e12" in entry["note"]


def test_a_model_is_read_from_the_file_its_hub_publishes(tmp_path):
    path = tmp_path / "config.json"
    published = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096}
    published |= {"intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
    published |= {"num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False}
    path.write_text(json.dumps(published))
    model = scenario_from_config("model=hf_config", f"model.path={path}").workload.model
    assert (float(model.layers), float(model.attention.kv_heads)) == (32, 8)


def test_every_group_has_described_options():
    for group in groups():
        for option, text in available(group).items():
            assert text, f"conf/{group}/{option}.yaml needs a first line that says what it is"


# What is refused


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("plan.tpp=8", ["plan.tpp", "'tp'"]),
        ("acelerator=b200", ["acelerator", "'accelerator'"]),
        ("cluster.network.scaleup.fabric.latency_s=0", ["scaleup", "cluster.network", "'scale_up'"]),
        ("accelerator=b2000", ["accelerator = b2000", "'b200'"]),
        ("+fabric.latency=1e-6", [f"{FABRIC}.latency", "'latency_s'"]),
        ("accelerator.peak_flops_per_s.bf17=1e15", ["bf17", "'bf16'"]),
        ("+accelerator.peak_flops_per_s.bf17=1e15", ["bf17", "'bf16'"]),
        ("objective.limits.capex_us=1", ["objective.limits: metric 'capex_us'", "'capex_usd'"]),
        ("space.hardware.hbm_to_ddr.tied=[cluster.accelerator.hbm.bandwidth]", ["'bandwidth_bytes_per_s'"]),
    ],
)
def test_a_misspelt_key_gets_a_suggestion(override, parts):
    from codesign.commands.optimize import check_study

    text = message(lambda: check_study(study_from_config(override)))
    assert all(part in text for part in parts), text
    assert "did you mean" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("fabric.bandwidth_bytes_per_s=450GB", ["'450GB'", "B/s, such as 900GB/s"]),
        ("workload.sequence=4k", ["'4k'", "did you mean 4000"]),
        ("fabric.latency_s=fast", ["'fast'", "plain number of seconds"]),
        ("fabric.latency_s=[1, 2]", ["a list", "plain number of seconds"]),
        ("accelerator.peak_flops_per_s=1e15", ["peak_flops_per_s", "mapping of names to numbers"]),
        ("accelerator.hbm=3", ["cluster.accelerator.hbm must be", "codesign.model.hardware.MemoryTier"]),
        ("search.grid.batch_size=many", ["search.grid.batch_size must be a whole number", "'many'"]),
        ("seed=x", ["seed = 'x' is not a whole number"]),
        ("seed=-3", ["seed = -3 is not a whole number from 0 on"]),
        ("space.plan.tp=[a]", ["space.plan.tp: 'a' is not a number"]),
        ("space.plan.tp=[nan]", ["space.plan.tp: nan is outside"]),
        ("space.plan.zero=[1, 7]", ["space.plan.zero: 7 is outside [0, 3]"]),
        ("objective.limits.capex_usd=nan", ["objective.limits.capex_usd = nan must be a positive number"]),
        ("space.hardware.hbm_to_ddr.grid=1000000000", ["1,000,000,000 levels", "at most 1,000,000"]),
        ("cluster.levels=[]", ["levels is empty"]),
        ("cluster.levels=[scale_up]", ["scale_up, reaches 8 of cluster.device_count = 1024 devices"]),
        ("search.proof.gap=0", ["search.proof.gap = 0 must be positive"]),
        ("plan.micro_batch=0", ["plan.micro_batch = 0 is outside [1, 1e+09]"]),
        ("accelerator=null", ["accelerator = null", "name one of the options"]),
        ("hydra.run.dir=elsewhere", ["with -m only"]),
        ("plan.recompute=selectiv", ["plan", "recompute = 'selectiv'", "'selective'"]),
        ("workload.precision.compute=bf17", ["workload.precision.compute = 'bf17'", "'bf16'"]),
        ("model=hf_config", ["workload.model.path is missing"]),
    ],
)
def test_a_wrong_unit_or_type_is_named(override, parts):
    text = refused(override)
    assert all(part in text for part in parts), text


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("fabric.bandwidth_bytes_per_s=-1", f"{FABRIC}.bandwidth_bytes_per_s = -1 is outside [1, inf]"),
        ("cluster.device_count=0", "cluster.device_count = 0 is outside [1, inf]"),
        ("facility.pue=0.5", "cluster.facility.pue = 0.5 is outside [1, 4]"),
        ("plan.zero=5", "plan.zero = 5 is outside [0, 3]"),
        ("accelerator.hbm.capacity_bytes=nan", "cluster.accelerator.hbm.capacity_bytes = nan is outside [0, inf]"),
    ],
)
def test_a_number_outside_its_range_is_named_with_the_range(override, expected):
    assert refused(override) == expected


@pytest.mark.parametrize(
    "target", ["os.system", "builtins.eval", "subprocess.Popen", "jax.numpy.array", "codesign.config.construct.build"]
)
def test_nothing_outside_the_menus_can_be_named(target):
    assert f"{FABRIC}._target_ = '{target}' is" in refused(f"fabric._target_={target}")


def test_a_refused_target_is_never_called(tmp_path):
    trace = tmp_path / "called"
    node = {"_target_": "os.system", "command": f"touch {trace}"}
    assert "refused" in message(build, {"cluster": node})
    assert not trace.exists()


@pytest.mark.parametrize("key", ["_partial_", "_args_", "_convert_", "_recursive_"])
def test_hydras_other_directives_are_refused(key):
    node = {"_target_": "codesign.model.hardware.Link", "alpha_s": 0.0, "beta_s_per_byte": 0.0, key: True}
    assert f"link.{key}" in message(build, {"link": node})


def test_abstract_classes_cannot_be_named():
    assert "codesign.model.networks.fabrics.SwitchDomain" in targets()
    assert "codesign.model.networks.fabrics.AbstractFabric" not in targets()


def test_a_missing_argument_is_named():
    node = {"_target_": "codesign.model.hardware.Link", "alpha_s": 1e-6}
    assert message(build, {"link": node}) == "link.beta_s_per_byte is missing: Link needs it"


def test_a_format_that_the_accelerator_lacks_is_refused():
    text = refused("workload=training_fp8", "accelerator=a100_80gb")
    assert "a100_80gb has no peak for it" in text
    assert "bf16" in text


def test_several_values_need_a_multirun():
    assert "add -m" in message(compose, ["plan.tp=1,2"])


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["plan.tp=7"], "plan.tp = 7 does not divide model heads = 96"),
        (["plan.pp=7"], "plan: tp 8 * pp 7 does not divide cluster.device_count = 1024"),
        (["plan.micro_batch=3"], "plan.micro_batch = 3 times 16 replicas does not divide workload.global_batch = 1024"),
        (["plan.pp=1"], "plan.virtual_stages = 3 needs a pipeline, but plan.pp = 1"),
    ],
)
def test_a_plan_that_breaks_a_rule_is_refused_with_its_numbers(overrides, expected):
    text = message(check_plan, scenario_from_config(*overrides))
    assert text.startswith(expected)
    assert "(Megatron: " in text
    assert "; take plan." in text


def test_a_fabric_without_the_leaves_of_the_space_names_all_variables_and_the_way_out():
    text = refused("fabric=lightpath_optics", "space.hardware.hbm_to_ddr.numerator=cluster.accelerator.hbm.size")
    assert text.startswith("space.hardware.scale_up_bandwidth does not exist on this hardware")
    assert "hbm_to_ddr" in text
    assert text.endswith("'~space.hardware.scale_up_bandwidth' '~space.hardware.hbm_to_ddr'")
    assert "needs a die: choose one, die=h100_sxm" in refused("space=chip")
    study = study_from_config("fabric=lightpath_optics", "space.hardware.scale_up_bandwidth=null")
    assert set(study.space.hardware) == {"scale_out_bandwidth", "hbm_to_ddr"}


# What does not fit


def test_a_model_that_fits_is_let_through():
    scenario = scenario_from_config()
    assert shortage(scenario) == {}
    check_memory(scenario)


@pytest.mark.slow
def test_a_model_that_fits_nowhere_says_where_how_much_and_what_would_help():
    overrides = ["plan=data_parallel", "calibration=h100_sxm_roofline"]
    scenario = scenario_from_config(*overrides)
    missing = shortage(scenario)
    text = message(check_memory, scenario)
    assert f"cluster.accelerator.hbm lacks {missing['hbm'] / 1e9:.1f} GB per device" in text
    change = smallest_change(scenario)
    assert change
    assert text.endswith("smallest change that fits: " + " ".join(change))
    mended = scenario_from_config(*overrides, *change)
    check_plan(mended)
    check_memory(mended)
    for one in change:  # nothing in it is superfluous
        assert len(change) == 1 or shortage(scenario_from_config(*overrides, *(c for c in change if c != one)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["++objective.limits.capex_usd=5e7"],
        ["experiment=photonic_rack", "workload.global_batch=512", "++space.plan.tp=[1,2]"],
        ["~memory", "experiment=serve_llama31_405b", "~objective.limits", "+a.b=3"],
    ],
)
def test_composed_is_what_hydra_composes(overrides: list[str]) -> None:
    """Files are composed once for each choice of groups, values are put in afterwards: the same, twice in a row."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        whole = hydra_compose("config", overrides=[*search_path(), *overrides])
    for _ in range(2):
        result = composition.composed(overrides)
        assert OmegaConf.to_yaml(result) == OmegaConf.to_yaml(whole)
        result.seed = -1  # what a caller does to it is its own


@pytest.mark.slow
def test_a_file_that_changed_is_composed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a configuration edited while a notebook is open."""
    shutil.copytree(conf_dir(), tmp_path / "conf")
    for module in (composition, groups_of_files):
        monkeypatch.setattr(module, "conf_dir", lambda: tmp_path / "conf")
    assert composition.composed([]).seed != 77
    file = tmp_path / "conf" / "config.yaml"
    file.write_text(re.sub(r"(?m)^seed: .*$", "seed: 77", file.read_text(encoding="utf-8")), encoding="utf-8")
    assert composition.composed([]).seed == 77


@pytest.mark.slow
def test_a_goal_that_is_typed_takes_the_place_of_the_files():
    few = ("model=llama31_8b", "accelerator=h200", "workload=static_batch")
    assert study_from_config(*few, "objective.maximise=tokens_per_s").objective.goal == "tokens_per_s"
    assert study_from_config(*few, "objective=most_tokens", "objective.minimise=time_s").objective.maximise == ""
    with pytest.raises(ConfigError, match="exactly one goal"):
        study_from_config(*few, "objective.minimise=time_s", "objective.maximise=mfu")


@pytest.mark.slow
def test_what_an_override_said_is_not_changed_by_who_changes_its_configuration():
    """The same text is read once."""
    asked = ["space.plan.tp=[1,2]", "objective.limits={capex_usd: 5e7}"]
    first = compose(asked)
    first.space.plan.tp.append(4)
    first.objective.limits.capex_usd = 1.0
    again = compose(asked)
    assert list(again.space.plan.tp) == [1, 2]
    assert again.objective.limits.capex_usd == 5e7
