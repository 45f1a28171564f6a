"""Pipelines whose last stages are accelerators of a second kind: an executed schedule, money and memory, proofs."""

import itertools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign import Certified, DesignSpace, Objective, Problem, designs
from codesign.config import check_plan, scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.jaxprs import interpreted
from codesign.model.metrics import evaluate
from codesign.search.results import numbers_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import curvature

from _lib.failing_jobs import Kind, simulate_job

BASE = (
    "framework=none", "model=gpt3_175b", "plan=megatron_3d", "cluster.device_count=128", "plan.tp=8", "plan.pp=8",
    "plan.micro_batch=1", "workload.global_batch=64", "plan.virtual_stages=1", "plan.zero=1",
)  # fmt: skip
OTHER = ("workload=mixed_training", "later_stages=other")
FAILING = ("reliability=llama3",)
PEAK = "cluster.later_stages.cluster.accelerator.peak_flops_per_s.bf16"


def scenario(*more):
    return scenario_from_config(*BASE, *more)


def numbers(*more):
    return numbers_of(scenario(*more))


def planned(base, **fields):
    return replace(base, {f"plan.{name}": jnp.asarray(float(value)) for name, value in fields.items()})


def executed(times, head, count):
    """Seconds until the last backward of 1F1B, a stage's forward a third of its time, run as a list of operations."""
    stages = len(times)
    forward = [time / 3 for time in times]
    backward = [2 * time / 3 for time in times]
    backward[-1] += head
    lists = []
    for stage in range(stages):
        ahead = min(stages - stage, count)
        order = [("f", k) for k in range(ahead)]
        for k in range(count):
            order += [("b", k)] + ([("f", ahead + k)] if ahead + k < count else [])
        lists.append(order)
    done, free, place = {}, [0.0] * stages, [0] * stages
    while any(place[stage] < len(lists[stage]) for stage in range(stages)):
        for stage in range(stages):
            while place[stage] < len(lists[stage]):
                kind, k = lists[stage][place[stage]]
                if kind == "f":
                    needs = 0.0 if stage == 0 else done.get(("f", k, stage - 1))
                else:
                    needs = done.get(("f", k, stage)) if stage == stages - 1 else done.get(("b", k, stage + 1))
                if needs is None:
                    break
                free[stage] = max(free[stage], needs) + (forward if kind == "f" else backward)[stage]
                done[kind, k, stage] = free[stage]
                place[stage] += 1
    return max(free)


@pytest.mark.parametrize(
    ("early", "late", "head"), [(3.0, 3.0, 0.0), (3.0, 2.0, 0.5), (2.0, 3.0, 0.5), (5.0, 1.0, 1.0)]
)
def test_the_slowest_stage_paces_an_executed_schedule(early, late, head):
    """(m - 1) max(t, t' + h) + (p - q) t + q t' + h: never shorter than the schedule, and within a stage of it."""
    for p, q, m in itertools.product((4, 8), (1, 2, 3), (16, 64)):
        formula = (m - 1) * max(early, late + head) + (p - q) * early + q * late + head
        result = executed([early] * (p - q) + [late] * q, head, m)
        assert result <= formula * (1 + 1e-12)
        assert result == pytest.approx(formula, rel=0.06 if m < 64 else 0.02), (p, q, m)
        if early == late and head == 0:
            assert result == pytest.approx(formula, rel=1e-12)


@pytest.mark.slow
def test_alike_stages_take_the_time_of_one_kind():
    plain = numbers("workload=training")
    for stages in (0, 3):
        mixed = numbers("workload=mixed_training", "later_stages=same", f"plan.later_stages={stages}")
        for name in ("time_s", "capex_usd", "energy_j", "usd_per_million_tokens", "mfu", "provisioned_power_w"):
            assert mixed[name] == pytest.approx(plain[name], rel=1e-6), (stages, name)
    assert plain["usage.hbm"] == pytest.approx(mixed["usage.hbm"], rel=1e-6)


@pytest.mark.slow
def test_alike_stages_fail_and_emit_as_one_kind_does():
    told = ("goodput", "checkpoint_s", "carbon_kg", "carbon_made_kg", "capex_usd", "energy_j", "usd_per_million_tokens")
    plain = numbers("workload=training", *FAILING, "carbon=usa")
    for stages in (0, 4):
        mixed = numbers("workload=mixed_training", "later_stages=same", f"plan.later_stages={stages}", *FAILING,
                        "carbon=usa")  # fmt: skip
        for name in told:
            assert mixed[name] == pytest.approx(plain[name], rel=1e-6), (stages, name)
    assert mixed["usage.later_stages.spares"] == pytest.approx(mixed["usage.spares"], rel=1e-6)
    assert mixed["usage.spares"] > plain["usage.spares"]  # half as many spares each, which stand for half as much


@pytest.mark.slow
def test_a_job_of_two_kinds_fails_as_its_simulation_does():
    """Any device stops the job; the kind whose devices write longest sets the checkpoint."""
    words = (*OTHER, "plan.later_stages=3", "plan.later_layers=22", *FAILING, "reliability.store=host",
             "reliability.interval_s=900", "reliability.failures.device.mtbf_hours=300")  # fmt: skip
    base = scenario(*words)
    told, of = numbers_of(base), base.cluster.reliability
    saved, each = float(base.workload.saved_bytes(base.layout)), 128 / 8
    seconds = []
    for layers, cluster in (((96 - 3 * 22) / 5, base.cluster), (22, base.cluster.later_stages.cluster)):
        ways = [cluster.host.link.beta_s_per_byte, 1 / float(cluster.network["scale_out"].fabric.bandwidth_bytes_per_s)]
        seconds.append(saved * layers / 96 / each * max(float(way) for way in ways))
    assert told["checkpoint_s"] == pytest.approx(max(seconds), rel=0.02)
    kinds = [
        Kind(128 / float(one.devices_each) / (3600 * float(one.mtbf_hours)), float(one.lost_s), bool(one.replaced))
        for one in of.failures.values()
    ]
    restart = float(of.restart_s) + told["checkpoint_s"]
    result = simulate_job(kinds, 1e7, 900.0, told["checkpoint_s"], restart, 0)
    assert result.failures > 1000
    assert told["goodput"] == pytest.approx(result.goodput, rel=0.01)


@pytest.mark.slow
def test_what_two_kinds_emit_is_made_by_both():
    """Devices and spares of each kind by the account of one of them."""
    mixed = numbers(*OTHER, "plan.later_stages=3", "plan.later_layers=22", *FAILING, "carbon=usa")
    h100, b200 = (numbers("workload=training", f"accelerator={name}", *FAILING, "carbon=usa")
                  for name in ("h100_sxm", "b200"))  # fmt: skip
    made = 5 / 8 * h100["carbon_made_kg"] + 3 / 8 * b200["carbon_made_kg"]
    assert mixed["carbon_made_kg"] == pytest.approx(made, rel=1e-6)
    assert h100["carbon_made_kg"] != pytest.approx(b200["carbon_made_kg"], rel=1e-2)
    assert mixed["carbon_kg"] == pytest.approx(mixed["carbon_kg.embodied"] + mixed["carbon_kg.operational"], rel=1e-6)


@pytest.mark.slow
def test_both_kinds_are_paid_and_hold_their_layers():
    """Three of eight stages are B200: as many devices of theirs; their memory holds theirs."""
    result = numbers(*OTHER, "plan.later_stages=3", "plan.later_layers=22")
    h100 = numbers("workload=training")
    b200 = numbers("workload=training", "accelerator=b200")
    assert result["capex_usd"] == pytest.approx(5 / 8 * h100["capex_usd"] + 3 / 8 * b200["capex_usd"], rel=1e-3)
    assert result["provisioned_power_w"] == pytest.approx(
        5 / 8 * h100["provisioned_power_w"] + 3 / 8 * b200["provisioned_power_w"], rel=1e-3
    )
    fewer = numbers(*OTHER, "plan.later_stages=3", "plan.later_layers=12")
    assert result["usage.later_stages.hbm"] > fewer["usage.later_stages.hbm"]
    assert result["usage.hbm"] < fewer["usage.hbm"]
    assert result["violations.layers"] == fewer["violations.layers"] == 0.0
    assert numbers(*OTHER, "plan.later_stages=3", "plan.later_layers=21")["violations.layers"] > 0


@pytest.mark.slow
def test_layers_go_where_they_are_computed_quickly():
    """Of all ways to divide 96 layers over 4 + 4 stages the one whose stages are most alike is the quickest."""
    base = scenario(*OTHER, "plan.later_stages=4")
    ways = {late: numbers_of(planned(base, later_layers=late)) for late in range(1, 24)}
    legal = {late: one for late, one in ways.items() if one["violations.layers"] == 0}
    assert len(legal) == 23
    best = min(legal, key=lambda late: legal[late]["time_s"])
    pace = {late: max(one["stage_s"], one["later_stage_s"]) for late, one in legal.items()}
    assert best == min(pace, key=lambda late: pace[late])
    assert best > 12  # a B200 is quicker than an H100
    one, two = numbers("workload=training"), numbers("workload=training", "accelerator=b200")
    assert two["time_s"] < legal[best]["time_s"] < one["time_s"]


@pytest.mark.slow
def test_a_search_divides_layers_and_proves_it():
    base = scenario(*OTHER)
    space = DesignSpace(
        {
            "later_stages": (2.0, 4.0),
            "later_layers": tuple(float(n) for n in range(8, 23, 2)),
            "micro_batch": (1.0, 2.0),
        }
    )
    problem = Problem(base, space, Objective("time_s"))
    trace = Certified(gap=1e-3).run(problem, 0)
    assert trace.certificate.certified
    best = designs(problem, trace, 0).iloc[0]
    every = [
        numbers_of(planned(base, later_stages=q, later_layers=late, micro_batch=b))
        for q, late, b in itertools.product((2, 4), range(8, 23, 2), (1, 2))
    ]
    legal = [
        one["time_s"]
        for one in every
        if max(v for k, v in one.items() if k.startswith("violations.")) == 0
        and max(v for k, v in one.items() if k.startswith("usage.")) <= 1
    ]
    assert best["time_s"] == pytest.approx(min(legal), rel=1e-3)


@pytest.mark.slow
def test_slopes_are_differences_and_rows_are_proven():
    base = scenario(*OTHER, "plan.later_stages=4", "plan.later_layers=16")
    with jax.enable_x64(True):
        at = float(base.cluster.later_stages.cluster.accelerator.peak_flops_per_s["bf16"])
        ends = [numbers_of(replace(base, {PEAK: jnp.asarray(at * (1 + d))}))["time_s"] for d in (-1e-4, 1e-4)]
        slopes = interpreted(jax.grad(lambda value: evaluate(replace(base, {PEAK: value})).time_s), always=True)
        slope = float(slopes(jnp.asarray(at)))
    assert slope == pytest.approx((ends[1] - ends[0]) / (2e-4 * at), rel=1e-3, abs=1e-20)
    assert np.isfinite(slope)
    lasting = (*FAILING, "carbon=usa", "+objective.limits={carbon_kg: 1e6}", "+objective.floors={goodput: 0.1}")
    for more in ((), lasting):
        _, judgement, _ = curvature.walked([
            *BASE, *OTHER, *more, "space.plan={later_stages: [4], later_layers: [12, 16], micro_batch: [1]}",
            "+space.hardware.peak={_target_: codesign.study.design_space.Continuous, path: " + PEAK
            + ", low: 5e14, high: 4e15}",
        ])  # fmt: skip
        assert judgement.unproven == {}


@pytest.mark.slow
def test_what_does_not_belong_together_is_refused_in_a_line():
    for more, said in (
        (("workload=mixed_training",), "MixedTraining needs cluster.later_stages"),
        (("workload=training", "later_stages=other"), "Training uses no cluster.later_stages: choose workload=mixed"),
        ((*OTHER, "path_energy=photonic"), "cluster.path_energy counts accelerators of one kind"),
        ((*OTHER, "plan.later_stages=-1"), "plan.later_stages = -1 is outside"),
    ):
        with pytest.raises(ConfigError) as error:
            scenario(*more)
        assert said in str(error.value)
        assert "\n" not in str(error.value)


def test_layers_of_stages_that_there_are_not_are_refused():
    words = ["workload=mixed_training", "later_stages=same", "model=llama31_8b", "plan.later_layers=999"]
    with pytest.raises(ConfigError, match="999 has no stage to be in"):
        check_plan(scenario_from_config(*words))
