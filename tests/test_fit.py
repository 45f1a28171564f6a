"""What makes a design fit: minimal sets against brute force, the chance near the edge, `codesign fit`."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest

from codesign.commands.cli import main
from codesign.config import scenario_from_config, study_from_config
from codesign.config.memory_advice import capacity_of, distance, minimal_changes, shortage, smallest_changes, used_of
from codesign.core.errors import ConfigError
from codesign.core.fields import as_leaf, replace
from codesign.model.metrics import chance_that_fits, evaluate
from codesign.model.metrics.footprint import SPREAD, factor, interval_bytes
from codesign.model.workloads.plan_fields import plan_value
from codesign.staging import at_many
from codesign.study import Objective

LARGE = (
    "model=llama31_70b", "workload=continuous", "accelerator=h100_sxm", "plan.tp=2", "cluster.device_count=8",
    "plan.micro_batch=64",
)  # fmt: skip


def by_brute_force(start, fields, fits, most, lists=()):
    """Every minimal set by trying every point of all fields, each at its own value too."""
    names = list(fields)
    good: dict[frozenset[str], float] = {}
    for values in itertools.product(*([start[name], *fields[name]] for name in names)):
        changed = {name: value for name, value in zip(names, values, strict=True) if value != start[name]}
        if changed and len(changed) <= most and fits(changed):
            away = distance(start, changed, lists)
            good[frozenset(changed)] = min(good.get(frozenset(changed), np.inf), away)
    return {one: away for one, away in good.items() if not any(other < one for other in good)}


@pytest.mark.parametrize("seed", range(12))
def test_minimal_sets_are_those_of_brute_force(seed):
    """Random weights of fields, and a point that must fall below a threshold; fields that do nothing are in no set."""
    draw = np.random.default_rng(seed)
    names = ["a", "b", "c", "d", "e"]
    start = dict.fromkeys(names, 8.0)
    fields = {name: sorted(draw.choice([1.0, 2.0, 4.0, 16.0], size=2, replace=False).tolist()) for name in names}
    weight = dict(zip(names, draw.choice([0.0, 0.5, 1.0, 2.0], size=5), strict=True))
    threshold = draw.uniform(-4, 4)

    def fits(point):
        return sum(weight[name] * np.log2(value / 8) for name, value in point.items()) <= threshold - 3

    result = minimal_changes(start, fields, lambda points: np.array([fits(point) for point in points]), 3)
    expected = by_brute_force(start, fields, fits, 3)
    assert {frozenset(one.values): pytest.approx(one.distance) for one in result} == expected
    assert [len(one.values) for one in result] == sorted(len(one.values) for one in result)


@pytest.mark.slow
def test_changes_of_a_plan_are_those_of_brute_force():
    scenario = scenario_from_config(*LARGE)
    assert shortage(scenario)
    start = {"plan.tp": 2.0, "plan.micro_batch": 64.0, "plan.pp": 1.0}
    fields = {"plan.tp": [4.0, 8.0], "plan.micro_batch": [32.0, 16.0, 1.0], "plan.pp": [2.0, 4.0]}

    def fits(point):
        other = replace(scenario, {path: as_leaf(value) for path, value in point.items()})
        broken = other.workload.violations(other.layout)
        return not shortage(other) and all(float(value) <= 0 for value in broken.values())

    result = minimal_changes(start, fields, lambda points: np.array([fits(point) for point in points]), 3)
    assert {frozenset(one.values): pytest.approx(one.distance) for one in result} == by_brute_force(
        start, fields, fits, 3
    )


@pytest.mark.parametrize("seed", range(6))
def test_lists_of_names_change_by_as_few_names_as_possible(seed):
    """Names save random amounts beside a field of numbers: against every list and every number."""
    draw = np.random.default_rng(seed)
    saved, start = draw.uniform(0.2, 2.0, size=4), {"list": float(draw.integers(4)), "batch": 8.0}
    fields = {"list": [float(one) for one in range(16) if one != start["list"]], "batch": [4.0, 2.0, 1.0]}
    wanted = draw.uniform(1.0, 5.0)

    def fits(point):
        both = start | point
        names = [index for index in range(4) if int(both["list"]) >> index & 1]
        return sum(saved[place] for place in names) + np.log2(8 / both["batch"]) >= wanted

    result = minimal_changes(start, fields, lambda points: np.array([fits(one) for one in points]), 2, ("list",))
    expected = by_brute_force(start, fields, fits, 2, ("list",))
    assert {frozenset(one.values): pytest.approx(one.distance) for one in result} == expected
    alone = [one for one in result if set(one.values) == {"list"}]
    for one in alone:
        other = int(one.values["list"]) ^ int(start["list"])
        fewer = [many for many in range(16) if many.bit_count() < other.bit_count()]
        assert not any(fits({"list": float(int(start["list"]) ^ many)}) for many in fewer if many)


TRAINED = (
    "model=llama31_8b", "workload=training", "accelerator=h100_sxm", "cluster.device_count=8",
    "workload.global_batch=64", "workload.sequence=8192", "plan.tp=1", "plan.pp=1", "plan.virtual_stages=1",
    "plan.zero=3", "plan.recompute=none", "plan.micro_batch=2",
)  # fmt: skip


@pytest.mark.slow
def test_modules_that_are_recomputed_are_the_fewest_that_fit():
    """Every list of the model's modules is tried: none with fewer of them fits."""
    scenario = scenario_from_config(*TRAINED)
    assert shortage(scenario)
    way = next(way for way in smallest_changes(scenario) if way[0].startswith("plan.recompute_modules="))
    assert len(way) == 1
    count = way[0].count("+") + 1
    assert not shortage(scenario_from_config(*TRAINED, *way))
    modules = ("layernorm", "mlp", "qkv_proj", "context", "out_proj", "mlp_act")
    for fewer in range(1, count):
        for names in itertools.combinations(modules, fewer):
            number = as_leaf(float(plan_value("recompute_modules", "+".join(names))))
            assert shortage(replace(scenario, {"plan.recompute_modules": number})), names


@pytest.mark.slow
def test_each_suggestion_fits_and_no_part_of_it_does():
    ways = smallest_changes(scenario_from_config(*LARGE))
    assert ways
    for way in ways:
        assert not shortage(scenario_from_config(*LARGE, *way))
        for left in range(1, len(way)):
            for part in itertools.combinations(way, left):
                assert shortage(scenario_from_config(*LARGE, *part))


@pytest.mark.slow
def test_the_batch_that_is_suggested_is_the_largest_that_fits():
    words = ("model=llama31_70b", "workload=continuous", "accelerator=h100_sxm", "plan.tp=4", "cluster.device_count=4",
             "workload.input_tokens=30000", "plan.micro_batch=100")  # fmt: skip
    way = next(way for way in smallest_changes(scenario_from_config(*words)) if way[0].startswith("plan.micro_batch"))
    largest = int(way[0].partition("=")[2])
    assert len(way) == 1
    assert not shortage(scenario_from_config(*words, f"plan.micro_batch={largest}"))
    assert shortage(scenario_from_config(*words, f"plan.micro_batch={largest + 1}"))
    assert largest & (largest - 1)  # halves of 100 would have missed it


def test_chances_near_the_edge():
    assert chance_that_fits(50.0, 10.0, 60.0) == pytest.approx(0.5)
    assert chance_that_fits(50.0, 10.0, 61.0) > 0.5 > chance_that_fits(50.0, 10.0, 59.0)
    assert chance_that_fits(70.0, 10.0, 60.0) == 0.0
    assert chance_that_fits(50.0, 0.0, 60.0) == 1.0
    for chance in (0.5, 0.8, 0.95):
        assert chance_that_fits(50.0, 10.0, 50.0 + 10.0 * factor(chance)) == pytest.approx(chance)
    low, high = interval_bytes(10.0)
    assert low * high == pytest.approx(100.0)
    drawn = 10.0 * np.exp(SPREAD * np.random.default_rng(1).standard_normal(40_000))
    assert np.mean((drawn > low) & (drawn < high)) == pytest.approx(0.9, abs=0.01)
    assert np.mean(50.0 + drawn <= 61.0) == pytest.approx(chance_that_fits(50.0, 10.0, 61.0), abs=0.01)


def test_a_chance_tightens_what_is_predicted_and_nothing_else():
    metrics = evaluate(scenario_from_config(*LARGE, "plan.tp=8"))
    plain, asked = Objective().usages(metrics), Objective(fits=0.95).usages(metrics)
    parts = {name: float(nbytes) for name, nbytes in metrics.memory_bytes.items() if name.startswith("hbm/")}
    guessed = parts["hbm/working"] + parts["hbm/graphs"]
    whole = sum(parts.values())
    assert float(asked["usage.hbm"] / plain["usage.hbm"]) == pytest.approx(
        (whole + (factor(0.95) - 1) * guessed) / whole, rel=1e-6
    )
    assert {name: float(share) for name, share in asked.items() if name != "usage.hbm"} == {
        name: float(share) for name, share in plain.items() if name != "usage.hbm"
    }
    assert {name: float(share) for name, share in Objective(fits=0.5).usages(metrics).items()} == pytest.approx(
        {name: float(share) for name, share in plain.items()}
    )
    with pytest.raises(ConfigError, match=r"objective\.fits = 1\.5 must be a chance from 0.5 to below 1, or 0"):
        Objective(fits=1.5)


@pytest.mark.slow
def test_a_search_with_a_chance_leaves_room(capsys, tmp_path, monkeypatch):
    """The proven best batch is smaller where memory has to suffice with 99 %, and `codesign verify` agrees."""
    monkeypatch.chdir(tmp_path)
    batches = [float(batch) for batch in range(150, 330, 4)]
    words = ("model=llama31_70b", "workload=continuous", "accelerator=h100_sxm", "cluster.device_count=4", "plan.tp=4",
             "space.plan.tp=[4]", "space.plan.pp=[1]", "space.plan.attention_dp=[1]", "space.plan.token_budget=[2048]",
             "space.plan.ep=[1]", f"space.plan.micro_batch={[int(one) for one in batches]}")  # fmt: skip
    plain, sure = study_from_config(*words), study_from_config(*words, "objective.fits=0.99")

    def largest(study):
        def used(batch):
            one = replace(study.scenario, {"plan.micro_batch": batch, "plan.token_budget": as_leaf(2048.0)})
            return study.objective.usages(evaluate(one))["usage.hbm"]

        return max(np.array(batches)[at_many(used)(np.array(batches)) <= 1])

    assert batches[0] < largest(sure) < largest(plain) < batches[-1]
    assert main(["optimize", *words, "objective.fits=0.99"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    capsys.readouterr()
    assert main(["verify", str(run)]) == 0
    assert "certificate" in capsys.readouterr().out
    result = pd.read_parquet(run / "designs.parquet").iloc[0]
    assert result["var.micro_batch"] <= largest(sure)


@pytest.mark.slow
def test_the_command_prints_moments_and_changes(capsys, tmp_path):
    picture = tmp_path / "memory.png"
    assert main(["fit", *LARGE, "--picture", str(picture)]) == 0
    told = capsys.readouterr().out
    for word in ("load", "profile run", "prefill", "decode", "captured graphs", "it does not fit", "smallest changes"):
        assert word in told
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["fit", *LARGE, "plan.tp=8", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["fits"] is True
    assert result["changes"] == []
    scenario = scenario_from_config(*LARGE, "plan.tp=8")
    assert result["bounds"]["hbm"]["used_bytes"] == pytest.approx(used_of(scenario)["hbm"])
    assert result["bounds"]["hbm"]["usable_bytes"] == pytest.approx(capacity_of(scenario)["hbm"])
    at_peak = max(sum(parts.values()) for parts in result["moments"].values())
    assert at_peak == pytest.approx(result["bounds"]["hbm"]["used_bytes"] + 3e9, rel=1e-5)


@pytest.mark.slow
def test_the_command_takes_training_and_launches(capsys):
    assert main(["fit", "model=gpt3_175b", "plan.tp=8", "plan.pp=8", "cluster.device_count=1024", "plan.zero=1"]) == 0
    told = capsys.readouterr().out
    assert "first stage" in told
    assert "last stage" in told
    assert "optimizer state" in told
    launch = "vllm serve openai/gpt-oss-120b --gpu-memory-utilization 0.95 --max-num-batched-tokens 1024"
    assert main(["fit", "--from", launch, "accelerator=h100_sxm"]) == 0
    told = capsys.readouterr().out
    assert "it fits (chance" in told
    assert "utilisation 0.95" in told
    assert main(["fit", "objective.minimise=time_s"]) == 2
    assert main(["evaluate", "--from", launch, "accelerator=h100_sxm"]) == 0
    assert "memory: fits with a chance of 5" in capsys.readouterr().out
