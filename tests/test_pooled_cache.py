"""Caches of continuous serving in a pool behind the accelerator's memory: room, time, one copy, proofs, simulations."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign import Certified, DesignSpace, Objective, Problem, designs
from codesign.commands.simulate import engine_of
from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.jaxprs import interpreted
from codesign.model.metrics import evaluate
from codesign.search.results import numbers_of
from codesign.simulation.serving import Requests, lengths, simulate_closed

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import curvature

BASE = (
    "calibration=h100_sxm_roofline", "framework=none", "workload=continuous", "model=llama31_70b", "plan=serving_node",
    "cluster.device_count=16", "plan.tp=8", "plan.micro_batch=512", "workload.input_tokens=8192",
)  # fmt: skip
POOL, THEN = "memory=hbm_and_photonic_pool", "memory=hbm_then_photonic_pool"
TOKEN = 80 * 2 * 8 * 128 * 2 / 8  # bytes of keys and values of a token on one of eight ranks
HBM, PORT = 4.0e12, 0.9e12  # bytes/s of the near tier and of what a port lets through
NEAR = "cluster.accelerator.hbm.tiers.hbm.bandwidth_bytes_per_s"
BETA = "cluster.accelerator.hbm.tiers.pool.port.beta_s_per_byte"


def scenario(*more):
    return scenario_from_config(*BASE, *more)


def numbers(*more):
    return numbers_of(scenario(*more))


@pytest.mark.slow
def test_a_step_reads_both_tiers_side_by_side():
    """The slower of (1 - s) / HBM and s / port; with all of it near, HBM alone."""
    memories = {share: numbers(POOL, f"plan.pool_kv_cache={share}") for share in (0.0, 0.1, 0.5, 1.0)}
    context = 8192 + 0.5 * 512
    steps = {share: result["tpot_s"] for share, result in memories.items()}
    read = 512 * context * TOKEN
    half, whole = (read * (max((1 - share) / HBM, share / PORT) - 1 / HBM) for share in (0.5, 1.0))
    assert (steps[0.5] - steps[0.0]) / (steps[1.0] - steps[0.0]) == pytest.approx(half / whole, rel=1e-3)
    assert 1.0 < (steps[1.0] - steps[0.0]) / whole < 1.5  # kernels reach less than all of a memory's rate
    assert steps[0.1] < steps[0.0]  # the port reads beside HBM


def test_readers_of_a_pool_share_it_as_in_a_fluid_simulation():
    """Sixteen accelerators read from HBM and pool until the last byte; rates are max-min fair at ports and pool."""
    memory = scenario(POOL, "plan.pool_kv_cache=0.4").cluster.accelerator.hbm
    memory = memory.placing("kv_cache", {"hbm": jnp.asarray(0.6), "pool": jnp.asarray(0.4)})
    pool = memory.tiers["pool"]
    for sharers, of_pool in ((16, 26.8e12), (64, 26.8e12), (16, 8e12)):
        shared = replace(
            memory,
            {"tiers.pool.sharers": jnp.asarray(float(sharers)), "tiers.pool.ports": jnp.asarray(float(sharers)),
             "tiers.pool.tier.bandwidth_bytes_per_s": jnp.asarray(of_pool)},
        )  # fmt: skip
        left = np.full((sharers, 2), [0.6e9, 0.4e9])  # bytes of HBM and of the pool
        now, port = 0.0, 1 / float(pool.port.beta_s_per_byte)
        while (left > 1e-3).any():
            reading = left[:, 1] > 1e-3
            rate = np.column_stack([
                np.where(left[:, 0] > 1e-3, HBM, 0.0),
                np.where(reading, min(port, of_pool / max(reading.sum(), 1)), 0.0),
            ])  # fmt: skip
            step = np.min(np.divide(left, rate, out=np.full_like(left, np.inf), where=rate > 0))
            left, now = np.maximum(left - rate * step, 0.0), now + step
        assert 1e9 / float(shared.bandwidth("kv_cache")) == pytest.approx(now, rel=1e-6)


@pytest.mark.slow
def test_near_first_is_what_an_allocator_of_blocks_does():
    """Blocks go near until none is left there; the share in the pool is the rest of them."""
    result = numbers(THEN)
    cache, block = result["memory_bytes.hbm/kv_cache"], 16 * TOKEN
    others = sum(v for k, v in result.items() if k.startswith("memory_bytes.hbm/")) - cache
    free, near, far = 141e9 - others, 0, 0
    for _ in range(int(cache / block)):
        if (near + 1) * block <= free:
            near += 1
        else:
            far += 1
    assert far > 0
    assert result["usage.hbm.hbm"] == pytest.approx(1.0, abs=1e-6)
    assert result["usage.hbm.hbm"] <= 1.0
    assert result["usage.hbm.pool"] == pytest.approx(far * block / 2e12, rel=1e-3)
    small = numbers(THEN, "plan.micro_batch=64")
    assert small["usage.hbm.pool"] == 0.0
    assert small["tpot_s"] == pytest.approx(numbers(POOL, "plan.pool_kv_cache=0", "plan.micro_batch=64")["tpot_s"])


def test_room_in_the_pool_is_a_limit():
    small = "cluster.accelerator.hbm.tiers.pool.tier.capacity_bytes=8e11"
    assert numbers(THEN)["usage.hbm.pool"] < 1 < numbers(THEN, small)["usage.hbm.pool"]


def test_the_energy_of_the_path_is_paid():
    """Of a byte in the pool 80 pJ on the port and 43.2 of memory, in HBM 31.2."""
    near, far = (scenario(POOL, f"plan.pool_kv_cache={share}").cluster for share in (0, 1))
    for cluster, share in ((near, 0.0), (far, 1.0)):
        memory = cluster.accelerator.hbm.placing(
            "kv_cache", {"hbm": jnp.asarray(1 - share), "pool": jnp.asarray(share)}
        )
        by_hand = (1 - share) * 3.12e-11 + share * (8.0e-11 + 4.32e-11)
        assert float(memory.energy("kv_cache")) == pytest.approx(by_hand, rel=1e-6)
    joules = [numbers(POOL, f"plan.pool_kv_cache={share}")["energy_j"] for share in (0, 0.2)]
    assert joules[1] != joules[0]


@pytest.mark.slow
def test_beginnings_lie_once_where_the_pool_keeps_one_copy():
    """10,000 of 4,096 tokens: 1.68 TB a rank, half of it for two replicas; brought at the port's rate."""
    given = ("workload.cached_ratio=0.5", "+workload.distinct_prefixes=10000")
    once = numbers(THEN, *given)
    twice = numbers(THEN, *given, "cluster.accelerator.hbm.tiers.pool.one_copy=[]")
    own = numbers(THEN, given[0])
    nbytes = 10000 * 4096 * TOKEN
    assert twice["memory_bytes.hbm/shared_prefixes"] == pytest.approx(nbytes, rel=1e-6)
    assert once["memory_bytes.hbm/shared_prefixes"] == pytest.approx(nbytes / 2, rel=1e-6)
    assert once["usage.hbm.pool"] == pytest.approx(twice["usage.hbm.pool"] / 2, rel=1e-6)
    assert once["prefix_fetch_s"] == pytest.approx(4096 * TOKEN / PORT, rel=1e-3)
    freed = own["memory_bytes.hbm/kv_cache"] - once["memory_bytes.hbm/kv_cache"]
    assert freed == pytest.approx(512 * 4096 * TOKEN, rel=1e-3)
    assert once["tpot_s"] != own["tpot_s"]  # decodes attend beginnings over the port


def test_what_prompts_compute_is_written_through():
    """A port so slow that writing a step's prompt tokens takes longer than the step."""
    slow = 1e-8  # s/byte: 100 MB/s
    given = (
        THEN,
        "workload.cached_ratio=0.01",
        "+workload.distinct_prefixes=10",
        f"{BETA}={slow}",
    )
    result = scenario(*given, "plan.micro_batch=8")
    flat = evaluate(result).flat()
    assert float(flat["breakdown_s.offload"]) > 0
    fast = evaluate(scenario(*given[:3], "plan.micro_batch=8")).flat()
    assert float(fast["breakdown_s.offload"]) < float(flat["breakdown_s.offload"])
    tokens = (8192 * 0.99) * TOKEN * slow  # of one prompt
    assert float(flat["time_s"]) > 8 * tokens  # of eight sequences' prompts in one answer


@pytest.mark.slow
def test_slopes_are_differences():
    base = scenario(POOL, "plan.pool_kv_cache=0.4")
    for path in (NEAR, BETA, "plan.pool_kv_cache"):
        at = float(_leaf(base, path))
        with jax.enable_x64(True):
            ends = [numbers_of(replace(base, {path: jnp.asarray(at * (1 + d))}))["tpot_s"] for d in (-1e-4, 1e-4)]
            slope = float(
                interpreted(jax.grad(lambda value, path=path: _tpot_s(replace(base, {path: value}))), always=True)(
                    jnp.asarray(at)
                )
            )
        assert slope == pytest.approx((ends[1] - ends[0]) / (2e-4 * at), rel=1e-3, abs=1e-25), path


def _tpot_s(one):
    return evaluate(one).extra["tpot_s"]


def _leaf(tree, path):
    for key in path.split("."):
        tree = tree[key] if isinstance(tree, dict) else getattr(tree, key)
    return tree


@pytest.mark.slow
@pytest.mark.parametrize("memory", [POOL, THEN])
def test_every_row_is_proven_with_the_share_in_the_plan(memory):
    """In the port's and HBM's rates; by the room as well while no capacity is searched."""
    axis = ["space.plan.pool_kv_cache=[0,0.25,0.5]"] if memory == POOL else []
    _, judgement, _ = curvature.walked([
        *BASE, memory, "space.plan={tp: [8], micro_batch: [256, 512], token_budget: [512]}", *axis,
        "+space.hardware.rate={_target_: codesign.study.design_space.Continuous, path: " + NEAR
        + ", low: 2e12, high: 8e12}",
        "+space.hardware.port={_target_: codesign.study.design_space.Continuous, path: " + BETA
        + ", low: 5e-13, high: 4e-12}",
    ])  # fmt: skip
    assert judgement.unproven == {}


@pytest.mark.slow
def test_a_search_takes_the_share_and_proves_it():
    """As all plans one by one say."""
    shares = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
    base = scenario(POOL)
    space = DesignSpace({"pool_kv_cache": shares, "micro_batch": (256.0, 512.0)})
    problem = Problem(base, space, Objective("usd_per_million_tokens"))
    trace = Certified(gap=1e-3).run(problem, 0)
    assert trace.certificate.certified
    best = designs(problem, trace, 0).iloc[0]
    result = {
        (share, batch): numbers(POOL, f"plan.pool_kv_cache={share}", f"plan.micro_batch={batch}")
        for share in shares
        for batch in (256, 512)
    }
    fits = {key: one for key, one in result.items() if max(v for k, v in one.items() if k.startswith("usage.")) <= 1}
    key = min(fits, key=lambda one: fits[one]["usd_per_million_tokens"])
    assert (best["var.pool_kv_cache"], best["var.micro_batch"]) == pytest.approx(key)


@pytest.mark.slow
def test_the_closed_form_is_near_the_simulation():
    """Engines whose blocks have the room of both tiers and whose steps read both."""
    design = (*BASE, POOL, "plan.micro_batch=64", "workload.input_cv=0.5", "workload.output_cv=0.5",
              "workload.input_tokens=2048", "plan.pool_kv_cache=0.6")  # fmt: skip
    one = scenario_from_config(*design)
    engine, group = engine_of(one)
    rng, closed = np.random.default_rng(61), numbers_of(one)
    asked = Requests(lengths(rng, 2048, 0.5, 2500), lengths(rng, 512, 0.5, 2500, least=2))
    served = simulate_closed(engine, asked, round(closed["concurrency"] / group))
    assert closed["tpot_s"] == pytest.approx(float(served.tpot_s.mean()), rel=0.03)
    room = (141e9 - 19e9) / 0.4 / TOKEN / 16
    assert engine.blocks == pytest.approx(room, rel=0.05)


def test_a_share_without_a_pool_is_refused_in_a_line():
    with pytest.raises(ConfigError, match=r"plan.pool_kv_cache places .* memory=hbm_and_photonic_pool") as error:
        numbers("plan.pool_kv_cache=0.5")
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"pool_kv_cache = 1.5"):
        scenario(POOL, "plan.pool_kv_cache=1.5")
    with pytest.raises(ConfigError, match=r"distinct_prefixes = 5 stands beside workload.prefix_cache"):
        scenario(POOL, "+workload.distinct_prefixes=5", "+workload.prefix_cache.prefix_tokens=100",
                 "+workload.prefix_cache.count=10")  # fmt: skip


def test_a_job_without_a_cache_leaves_the_pool_empty():
    training = ("framework=none", "model=llama2_7b", "cluster.device_count=8", "plan.tp=8", "workload.global_batch=8")
    assert numbers_of(scenario_from_config(*training, THEN))["usage.hbm.pool"] == 0.0
