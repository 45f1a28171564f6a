"""Prompts that fill steps of engines of their own: queues with known answers, slopes, the simulation beside them."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign.commands.simulate import engine_of, pools_of
from codesign.config import scenario_from_config
from codesign.jaxprs.evaluator import interpreted
from codesign.model.metrics import evaluate
from codesign.model.workloads.disaggregated import PrefillStepTimes, Waits, waits_of
from codesign.model.workloads.mean_step import Demand, RooflineTimes
from codesign.model.workloads.pools_apart import pools_apart
from codesign.simulation.serving import (
    Engine,
    Requests,
    RooflineSteps,
    arrivals,
    lengths,
    simulate_apart,
    simulate_open,
)

STEPS = {"fixed_s": 0.004, "weights_s": 0.006, "token_s": 4e-5, "read_s": 3e-8, "pair_s": 4e-10}


def filled(start: float, each: float, room: float, load: float, engines: float = 1.0, rests: float = 0.0,
           arrival_cv: float = 1.0, own_cv: float = 0.0) -> Waits:  # fmt: skip
    """Steps of `start` seconds and `each` more for a prompt, at a share of what full steps take."""
    one = start / room + each
    told = PrefillStepTimes(*map(jnp.asarray, (start + each, one, one * room, room, rests)))
    at = (load * engines / one, engines, arrival_cv, own_cv**2)
    return waits_of(told, *(jnp.asarray(value) for value in at))


@pytest.mark.parametrize("own_cv", [0.0, 0.7])
@pytest.mark.parametrize("load", [0.3, 0.8, 0.95])
def test_one_prompt_a_step_is_a_queue_with_one_server(load: float, own_cv: float):
    """Pollaczek's mean: half the second moment of the work that comes in a second, over what is left."""
    result = filled(0.2, 0.3, 1.0, load, own_cv=own_cv)
    rate = load / 0.5
    assert float(result.mean) == pytest.approx(rate * 0.25 * (1 + own_cv**2) / 2 / (1 - load), rel=1e-9)
    assert float(result.gate_s) == 0
    assert float(result.late) == pytest.approx(load)


def test_who_comes_while_a_step_runs_waits_for_its_end():
    """Steps as long whatever is in them, room for all, one in each moment: half a step on average, at any rate."""
    for load in (0.2, 0.6):
        result = filled(1.0, 1e-9, 1e4, load)
        assert float(result.mean) == pytest.approx(0.5, rel=0.02)
        assert float(result.load) == pytest.approx(load)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_more_engines_wait_less_and_clumps_more(load: float):
    one, four = filled(0.1, 0.02, 8.0, load), filled(0.1, 0.02, 8.0, load, engines=4.0)
    assert float(four.mean) < float(one.mean)
    assert float(filled(0.1, 0.02, 8.0, load, arrival_cv=2.0).mean) > float(one.mean)
    assert float(filled(0.1, 0.02, 8.0, load, own_cv=1.0).mean) > float(one.mean)


@jax.jit
@jax.value_and_grad
def mean_and_slope(start: jax.Array, *others: jax.Array) -> jax.Array:
    """Mean wait and its slope by what a step begins with."""
    return filled(start, *others).mean  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.floats(0, 10), st.floats(1e-6, 10), st.floats(1, 1e5), st.floats(1e-9, 1.5), st.integers(1, 4096),
       st.floats(0, 1), st.floats(0, 10), st.floats(0, 3))  # fmt: skip
def test_finite_with_slopes(start, each, room, load, engines, rests, arrival_cv, own_cv):
    """Also where more come than full steps take."""

    value, slope = mean_and_slope(start, each, room, load, float(engines), rests, arrival_cv, own_cv)
    assert math.isfinite(float(value))
    assert math.isfinite(float(slope))
    assert float(value) >= 0


@pytest.mark.slow
def test_slopes_are_those_of_differences_and_transformations_agree():
    at = jnp.asarray([0.11, 0.02, 7.0, 0.7, 3.0, 0.4, 1.3, 0.6])

    def told(values: jax.Array) -> jax.Array:
        result = filled(*values)  # type: ignore[arg-type]
        return jnp.stack([result.gate_s, result.late, result.queue_s, result.mean])

    slopes = interpreted(jax.jacfwd(told), always=True)(at)
    for index in range(len(at)):
        step = jnp.zeros(len(at)).at[index].set(1e-6 * at[index])
        near = (told(at + step) - told(at - step)) / (2e-6 * at[index])
        np.testing.assert_allclose(slopes[:, index], near, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(jax.jit(told)(at), told(at), rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(told)(jnp.stack([at, 0.9 * at]))[0], told(at), rtol=1e-12)


@functools.cache
def asked(prompt: float, cv: float, rate: float, count: int = 12_000) -> Requests:
    rng = np.random.default_rng(77)
    answers = lengths(rng, 64.0, 0.5, count, least=2)
    return Requests(lengths(rng, prompt, cv, count), answers, arrivals(rng, rate, 1.0, count))


def test_one_simulated_engine_does_what_an_engine_without_decodes_does():
    """First tokens of the pool, against the other simulation: answers of one token, which leave nothing to decode."""
    steps, requests = RooflineSteps(**STEPS), asked(700.0, 0.8, 18.0)
    pool = simulate_apart(Engine(steps, 10**9, chunk=2048), Engine(steps, 10**9), (1, 4), requests, np.zeros_like)
    ones = Requests(requests.prompts, np.ones_like(requests.outputs), requests.arrivals)
    plain = simulate_open(Engine(steps, 2048, chunk=2048), ones)
    np.testing.assert_allclose(pool.ttft_s, plain.ttft_s, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("engines", [1, 4])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.85])
@pytest.mark.parametrize(
    ("prompt", "cv", "chunk", "fixed"),
    [(512.0, 0.3, 4096.0, 0.004), (512.0, 0.3, 4096.0, 0.1), (1024.0, 0.5, 2048.0, 0.004), (3000.0, 0.2, 2048.0, 0.1),
     (256.0, 0.0, 8192.0, 0.004)],
)  # fmt: skip
def test_the_simulation_is_near(prompt: float, cv: float, chunk: float, fixed: float, load: float, engines: int):
    """Means within a fifth, the slowest hundredth within 45 %: steps that stream weights, compute, or both."""
    numbers = STEPS | {"fixed_s": fixed}
    times = RooflineTimes(**{name: jnp.asarray(value) for name, value in numbers.items()})
    pools, told = (jnp.asarray(float(engines)), jnp.asarray(8.0)), {"input_tokens": prompt, "output_tokens": 64.0}
    told |= {"chunk": chunk, "input_cv": cv, "output_cv": 0.5, "arrival_cv": 1.0, "most": 4096.0}

    def at(rate: float):
        demand = Demand(**{name: jnp.asarray(value) for name, value in (told | {"rate": rate}).items()})
        return pools_apart(times, times, demand, pools, jnp.asarray(1e-6))

    rate = load / float(at(1.0).load)
    result, engine = at(rate), Engine(RooflineSteps(**numbers), 10**9, chunk=int(chunk), sequences=4096)
    served = simulate_apart(engine, engine, (engines, 8), asked(prompt, cv, rate), np.zeros_like).summary()
    assert float(result.load) == pytest.approx(load)
    assert float(result.ttft_s.mean) == pytest.approx(served["ttft_s"], rel=0.2)
    assert float(result.ttft_s.p99) == pytest.approx(served["ttft_s.p99"], rel=0.45)


@pytest.mark.slow
@pytest.mark.parametrize(("prompt", "chunk"), [(256, 2048), (1000, 4096), (1024, 512)])
def test_a_plan_at_its_load_is_near_the_simulation(prompt: int, chunk: int):
    """The closed form of constants of the plan, at nearly the rate at which its steps are as full as it says."""
    scenario = scenario_from_config(
        "calibration=h100_sxm_roofline", "workload=disaggregated", "prefill=same", "plan=serving_node",
        "framework=none",
        "model=llama31_8b", f"workload.input_tokens={prompt}", "workload.input_cv=0.4", "workload.output_tokens=64",
        "plan.tp=2", "plan.prefill_tp=2", "plan.prefill_devices=2", "plan.prefill_max_utilisation=0.6",
        "plan.micro_batch=512",
        f"plan.prefill_token_budget={chunk}", "cluster.device_count=16",
    )  # fmt: skip
    closed = {name: float(value) for name, value in evaluate(scenario).flat().items()}
    assert closed["prefill_pool_utilisation"] == pytest.approx(0.6, rel=1e-6)
    pools = pools_of(scenario, *engine_of(scenario))
    served = pools.simulated(asked(float(prompt), 0.4, closed["requests_per_s"]), lambda done, total: None)
    assert closed["ttft_s"] == pytest.approx(float(served.ttft_s.mean()), rel=0.15)


@pytest.mark.slow
def test_short_prompts_share_steps():
    """A pool computes more of them a second the more there is room for in a step, and holds more of them."""
    design = (
        "workload=disaggregated", "prefill=same", "plan=serving_node", "model=deepseek_v3", "plan.prefill_tp=8",
        "plan.prefill_devices=8", "workload.input_tokens=512", "plan.micro_batch=512", "cluster.device_count=64",
    )  # fmt: skip
    few, many = (evaluate(scenario_from_config(*design, f"plan.prefill_token_budget={c}")).flat() for c in (512, 4096))
    assert float(few["prefill_pool_utilisation"]) == pytest.approx(float(many["prefill_pool_utilisation"]), rel=1e-6)
    assert float(many["requests_per_s"]) > 1.2 * float(few["requests_per_s"])
    assert float(many["usage.prefill.hbm"]) > float(few["usage.prefill.hbm"])
