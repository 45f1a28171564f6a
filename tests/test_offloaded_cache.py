"""Caches of keys and values in the second tier: room and time by hand, slopes, proofs, the simulation beside."""

import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import cluster, gpt3

from codesign.commands.simulate import engine_of
from codesign.config import scenario_from_config
from codesign.config.checks import shortage, smallest_change
from codesign.core.errors import ConfigError
from codesign.core.fields import check_ranges, replace
from codesign.core.units import GB
from codesign.jaxprs import interpreted
from codesign.model.metrics import evaluate
from codesign.model.scenario import Scenario
from codesign.model.workloads import ContinuousServing, GoodputServing, Plan, StaticBatch
from codesign.model.workloads.goodput import SLO
from codesign.search.results import numbers_of
from codesign.simulation.serving import Requests, lengths, simulate_closed

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import curvature

LENGTHS = {"input_tokens": 1024.0, "output_tokens": 257.0}
NEAR, FAR = "memory_bytes.hbm/kv_cache", "memory_bytes.ddr/kv_cache"


def numbers(work=ContinuousServing, more=None, **plan):
    laid = Plan(**({"tp": 16.0, "micro_batch": 16.0, "token_budget": 512.0} | plan))
    return numbers_of(Scenario(cluster(16.0), work(model=gpt3(), **LENGTHS, **(more or {})), laid))


@pytest.mark.slow
def test_room_by_hand():
    """Half of 96 layers' cache afar leaves half near, and two of the 96 layers of what is afar."""
    plain, half, all_ = (numbers(offload_kv_cache=share) for share in (0.0, 0.5, 1.0))
    assert half[FAR] == pytest.approx(0.5 * plain[NEAR])
    assert half[NEAR] == pytest.approx((0.5 + 0.5 * 2 / 96) * plain[NEAR])
    assert all_[NEAR] == pytest.approx(2 / 96 * plain[NEAR])
    assert all_["usage.ddr"] > 0


def test_time_by_hand():
    """Sixteen contexts cross the host's link in every step, all seen or all beside the kernels."""
    plain, seen, beside = (
        numbers(offload_kv_cache=share, offload_overlap=hidden)
        for share, hidden in ((0.0, 1.0), (1.0, 0.0), (1.0, 1.0))
    )
    link, layers, context = cluster(16.0).host.link, 96, 1024 + 0.5 * 257
    cache = 16 * context * 2 * 12288 * layers / 16 * 2  # keys and values of bf16 on one of 16 ranks
    crossing = float(link.alpha_s) + cache * float(link.beta_s_per_byte)
    added = seen["tpot_s"] - plain["tpot_s"]
    assert crossing <= added <= 1.1 * crossing  # a prompt's steps bring what it attends as well
    assert max(crossing, plain["tpot_s"]) * 0.999 <= beside["tpot_s"] < seen["tpot_s"]


@pytest.mark.parametrize("work", [StaticBatch, ContinuousServing], ids=["static", "continuous"])
def test_more_afar_is_less_near_and_no_faster(work):
    result = [numbers(work, offload_kv_cache=share, offload_overlap=0.5) for share in (0.0, 0.3, 0.6, 1.0)]
    for name, way in ((NEAR, -1), (FAR, 1), ("tpot_s", 1), ("energy_j", 1)):
        assert (way * np.diff([one[name] for one in result]) > 0).all(), name
    assert (np.diff([one["ttft_s"] for one in result]) >= 0).all()  # a prompt's kernels may hide all of it


@pytest.mark.slow
def test_goodput_has_the_same_choice():
    """A prompt's cache is as large whatever the rate: the agreement ends sooner with the cache afar."""
    plain, afar = (
        numbers(GoodputServing, {"slo": SLO(5.0, 0.2)}, offload_kv_cache=share, micro_batch=64.0)
        for share in (0.0, 1.0)
    )
    assert afar["requests_per_s"] < plain["requests_per_s"]
    assert afar[FAR] == pytest.approx(plain[NEAR])


@pytest.mark.slow
def test_slopes_are_differences():
    """By the link and by the share itself, where what crosses is seen."""
    base = Scenario(
        cluster(16.0), ContinuousServing(gpt3(), **LENGTHS),
        Plan(tp=16.0, micro_batch=16.0, token_budget=512.0, offload_kv_cache=0.7, offload_overlap=0.2),
    )  # fmt: skip
    for path in ("cluster.host.link.beta_s_per_byte", "plan.offload_kv_cache"):
        at = float(_leaf(base, path))
        ends = [numbers_of(replace(base, {path: jnp.asarray(at * (1 + d))}))["tpot_s"] for d in (-1e-5, 1e-5)]
        difference = (ends[1] - ends[0]) / (2e-5 * at)
        slope = _slope(base, path, at)
        assert slope == pytest.approx(difference, rel=1e-5), path
        assert slope > 0


def _leaf(scenario, path):
    for key in path.split("."):
        scenario = getattr(scenario, key)
    return scenario


def _slope(scenario, path, at):
    return float(
        interpreted(jax.grad(lambda value: evaluate(replace(scenario, {path: value})).extra["tpot_s"]), always=True)(
            jnp.asarray(at)
        )
    )


@pytest.mark.slow
def test_every_row_is_proven_where_the_cache_may_be_offloaded():
    """In links to the host and HBM; the share is a field of the plan."""
    _, judgement, _ = curvature.walked([
        "experiment=serve_llama31_405b", "space.plan.tp=[8]", "space.plan.pp=[1,2]", "space.plan.micro_batch=[32,64]",
        "space.plan.token_budget=[512]", "space.plan.offload_kv_cache=[0,0.5,1]", "plan.offload_overlap=0.5",
    ])  # fmt: skip
    assert judgement.unproven == {}


@pytest.mark.slow
def test_the_closed_form_is_near_the_simulation():
    """Steps that bring half of the cache, on an engine whose blocks have both tiers' room."""
    design = (
        "calibration=h100_sxm_roofline", "framework=none",
    "model=gpt3_175b", "plan=serving_node", "cluster.device_count=16",
        "workload=continuous", "plan.micro_batch=32", "workload.input_cv=0.5", "workload.output_cv=0.5",
        "workload.input_tokens=1024", "workload.output_tokens=512", "plan.offload_overlap=0.5",
    )  # fmt: skip
    near, half = (scenario_from_config(*design, f"plan.offload_kv_cache={share}") for share in (0, 0.5))
    (without, _), (engine, group) = engine_of(near), engine_of(half)
    assert engine.blocks == pytest.approx(without.blocks / (0.5 + 0.5 * 2 / 96), rel=1e-3)
    rng, closed = np.random.default_rng(61), numbers_of(half)
    asked = Requests(lengths(rng, 1024, 0.5, 2500), lengths(rng, 512, 0.5, 2500, least=2))
    served = simulate_closed(engine, asked, round(closed["concurrency"] / group))
    assert closed["tpot_s"] == pytest.approx(float(served.tpot_s.mean()), rel=0.02)
    assert closed["ttft_s"] == pytest.approx(float(served.ttft_s.mean()), rel=0.1)


def test_a_share_beyond_all_is_refused_in_a_line():
    with pytest.raises(ConfigError, match=r"plan.offload_kv_cache = 1.5 is outside \[0, 1\]") as error:
        check_ranges(Plan(offload_kv_cache=1.5), "plan")
    assert "\n" not in str(error.value)
    fewer = dataclasses.replace(cluster(16.0).host.memory, capacity_bytes=jnp.asarray(1 * GB))
    host = dataclasses.replace(cluster(16.0).host, memory=fewer)
    small = dataclasses.replace(cluster(16.0), host=host)
    plan = Plan(tp=16.0, micro_batch=16.0, token_budget=512.0, offload_kv_cache=1.0)
    assert float(evaluate(Scenario(small, ContinuousServing(gpt3(), **LENGTHS), plan)).usage["ddr"]) > 1


@pytest.mark.slow
def test_offloading_the_cache_is_among_what_would_help():
    """One sequence whose cache lacks more than all weights are: nothing else fits it on these devices."""
    laid = Plan(tp=16.0, micro_batch=1.0, token_budget=512.0)
    work = ContinuousServing(model=gpt3(), input_tokens=280000.0, output_tokens=2049.0)
    scenario = Scenario(cluster(16.0), work, laid)
    change = laid.changes()["offload_kv_cache"]
    assert change(0.0) == [1.0]
    assert change(1.0) == []
    assert shortage(scenario)
    assert smallest_change(scenario) == ["plan.offload_kv_cache=1"]
    near = replace(scenario, {"plan.offload_kv_cache": jnp.asarray(1.0)})
    assert not shortage(near)


@pytest.mark.slow
def test_sessions_between_two_turns_keep_their_room():
    """Four for each of sixteen decodes: prompt, answer and half a block each; no time; blocks that are left."""
    plain, kept = numbers(), numbers(more={"idle_sessions": 4.0})
    work = ContinuousServing(model=gpt3(), **LENGTHS)
    layout = Scenario(cluster(16.0), work, Plan(tp=16.0, micro_batch=16.0, token_budget=512.0)).layout
    token = float(work.kv_bytes_per_token(layout))
    assert kept[NEAR] - plain[NEAR] == pytest.approx(16 * 4 * (1024 + 257 + 8) * token)
    for name in ("ttft_s", "tpot_s", "requests_per_s"):
        assert kept[name] == plain[name]
    assert numbers(more={"idle_sessions": 4.0}, offload_kv_cache=1.0)[FAR] == pytest.approx(kept[NEAR])
    design = ("model=llama31_8b", "plan=serving_node", "workload=continuous", "cluster.device_count=1", "plan.tp=1",
              "plan.pp=1", "plan.micro_batch=8")  # fmt: skip
    (all_, _), (left, _) = (engine_of(scenario_from_config(*design, f"workload.idle_sessions={n}")) for n in (0, 4))
    assert all_.blocks - left.blocks == pytest.approx(8 * 4 * (2048 + 512 + 8) / 16, abs=1)
