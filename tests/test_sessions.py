"""Sessions between two turns: who comes back to a cache, what the others compute again, held against the simulation."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.commands.cli import main
from codesign.config import scenario_from_config
from codesign.config.memory_advice import does_not_fit, less_retained, shortage
from codesign.core.fields import as_leaf, replace
from codesign.model.workloads.continuous import ContinuousServing
from codesign.model.workloads.prefixes import computed_cv, kept_by, keys_before
from codesign.model.workloads.transformer import Transformer
from codesign.search.results import numbers_of
from codesign.simulation.serving import Engine, Requests, RooflineSteps, arrivals, simulate_open

STEPS = RooflineSteps(fixed_s=1e-3, weights_s=4e-3, token_s=2e-5, read_s=1e-9, pair_s=1e-10)
DESIGN = (
    "model=llama31_8b", "accelerator=h100_sxm", "calibration=h100_sxm_roofline", "workload=continuous",
    "framework=none",
    "cluster.device_count=1", "plan.tp=1", "plan.pp=1", "plan.micro_batch=8", "plan.token_budget=2048",
    "workload.input_tokens=4096", "workload.output_tokens=256", "workload.cached_ratio=0.8",
)  # fmt: skip


def values(*numbers):
    return tuple(jnp.asarray(float(number)) for number in numbers)


def test_shares_by_hand():
    assert float(kept_by(*values(3, 4))) == 0.75
    assert float(kept_by(*values(5, 4))) == float(kept_by(*values(0, 0))) == 1
    assert float(kept_by(*values(0, 4))) == 0


@pytest.mark.parametrize(("cv", "cached", "kept"), [(0.0, 0.8, 0.5), (0.6, 0.8, 0.3), (1.0, 0.5, 0.9)])
def test_moments_of_what_is_computed(cv, cached, kept):
    """Two kinds of prompts, with and without their cache: mean, variation and keys by their sums."""
    shares = np.array([kept, 1 - kept])
    parts = np.array([1 - cached, 1.0])
    mean, square = shares @ parts, (1 + cv**2) * (shares @ parts**2)
    assert float(computed_cv(*values(cv, cached, kept))) == pytest.approx(np.sqrt(square / mean**2 - 1))
    before = (shares * parts) @ np.array([cached, 0.0]) / mean
    assert float(keys_before(*values(cached, kept))) == pytest.approx(before)


def test_all_or_none_are_as_they_were():
    for kept, cached in ((1.0, 0.8), (0.0, 0.8), (0.5, 0.0)):
        assert float(computed_cv(*values(0.7, cached, kept))) == 0.7
    assert float(keys_before(*values(0.8, 1.0))) == 0.8
    assert float(keys_before(*values(0.8, 0.0))) == 0


@pytest.mark.parametrize("at", [(0.0, 0.8, 0.5), (0.6, 0.8, 0.3)])
@pytest.mark.parametrize("formula", [computed_cv, lambda cv, cached, kept: keys_before(cached, kept) + 0 * cv])
def test_slopes_are_those_of_differences_and_vmap_is_the_plain_call(formula, at):
    for index in range(3):
        small = np.eye(3)[index] * 1e-6
        low, high = (float(formula(*values(*(np.array(at) + sign * small)))) for sign in (-1, 1))
        slope = jax.grad(lambda *given: formula(*given), argnums=index)(*values(*at))
        assert float(slope) == pytest.approx((high - low) / 2e-6, rel=1e-4, abs=1e-6)
    plain = float(formula(*values(*at)))
    assert float(jax.jit(formula)(*values(*at))) == pytest.approx(plain, rel=1e-12)
    many = jax.vmap(formula)(*(jnp.stack([one, one]) for one in values(*at)))
    assert np.asarray(many) == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("room", [0.25, 0.5, 0.8])
def test_the_simulation_finds_as_many_caches_as_there_is_room_for(room):
    """Sixty sessions, turns in any order, the longest unused cache thrown out: hits over turns are room over need."""
    rng = np.random.default_rng(7)
    sessions, count, prefix, block = 60, 6000, 2048, 16
    prompts, outputs = np.full(count, prefix + 256), np.full(count, 16)
    asked = Requests(prompts, outputs, arrivals(rng, 2.0, 1.0, count), rng.integers(0, sessions, count), prefix)
    own = 2 * (prefix + 256 + 16) // block  # of those that are served at a time
    engine = Engine(
        STEPS, 10**9, chunk=2048, blocks=own + round(room * sessions * prefix / block), block_tokens=block,
        prefix_cache=True, watermark=0.0,
    )  # fmt: skip
    served = simulate_open(engine, asked)
    hits = served.counts["hit_tokens"] / (prefix * count)
    assert hits == pytest.approx(float(kept_by(*values(room, 1.0))), abs=0.05)


@pytest.mark.slow
def test_room_and_work_of_a_share():
    """Half of the caches take half of the room; their sessions compute a fifth, the others all of their prompt."""
    work = ContinuousServing(
        Transformer.example(),
        1000.0,
        101.0,
        cached_ratio=as_leaf(0.8),
        idle_sessions=as_leaf(4.0),
        input_cv=as_leaf(0.5),
    )
    half = dataclasses.replace(work, retained_share=as_leaf(0.5))
    assert float(half.computed_tokens()) == pytest.approx(0.5 * 200 + 0.5 * 1000)
    all_, some = (
        scenario_from_config(*DESIGN, "workload.idle_sessions=4", f"workload.retained_share={kept}")
        for kept in (1, 0.5)
    )
    none = scenario_from_config(*DESIGN)
    caches = [numbers_of(one)["memory_bytes.hbm/kv_cache"] for one in (none, some, all_)]
    assert caches[1] - caches[0] == pytest.approx(
        0.5 * (caches[2] - caches[0]), rel=0.05
    )  # and longer prompts under way
    assert numbers_of(some)["ttft_s"] > numbers_of(all_)["ttft_s"]


@pytest.mark.slow
def test_what_does_not_fit_says_which_share_would(capsys):
    scenario = scenario_from_config(*DESIGN, "workload.idle_sessions=20")
    (said,) = less_retained(scenario)
    share = float(said.partition("=")[2])
    assert 0.1 < share < 1
    assert said in does_not_fit(scenario, shortage(scenario))
    assert not shortage(replace(scenario, {"workload.retained_share": as_leaf(share)}))
    assert shortage(replace(scenario, {"workload.retained_share": as_leaf(share + 0.01)}))
    assert less_retained(scenario_from_config(*DESIGN)) == []
    assert main(["evaluate", *DESIGN, "workload.idle_sessions=20"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_share_is_simulated(capsys):
    """Half of the sessions hit: the closed form within 5 % between tokens, 15 % to the first."""
    arguments = ["simulate", *DESIGN, "workload.retained_share=0.5", "--requests", "2000", "--json"]
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    for name, bar in (("tpot_s", 0.05), ("ttft_s", 0.15)):
        assert told["closed_form"][name] == pytest.approx(told["simulated"][name], rel=bar), name
    hit = told["simulated"]["hit_tokens"] / told["simulated"]["finished"]
    assert hit == pytest.approx(0.5 * 0.8 * 4096, rel=0.1)
