"""The wait for a place: known queues by hand, sums that are added up, derivatives, the simulation beside it."""

import math
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign.jaxprs import interpreted
from codesign.model.workloads.latency import SlotWait, place_wait
from codesign.model.workloads.mean_step import Demand, EngineStep, RooflineTimes
from codesign.model.workloads.open_loop import open_loop
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

STEP = 0.01
ENGINE = {"fixed_s": 0.004, "weights_s": 0.006, "token_s": 4e-5, "read_s": 3e-8, "pair_s": 4e-10}


def waited(most: float, load: float, grows: float = 0.0, **changes: float) -> SlotWait:
    """Of an engine whose full steps take 10 ms, `grows` of that for its sequences; lengths of answers vary by 1."""
    steps = 1000.0
    told = {"rate": load * most / (steps * STEP), "input_tokens": 100.0, "output_tokens": 1 + steps, "chunk": 1e9}
    told |= {"elsewhere": 1.0, "output_cv": 1.0, "most": most} | changes
    demand = Demand(**{name: jnp.asarray(value) for name, value in told.items()})
    parts = {"fixed_s": STEP * (1 - grows), "weights_s": 0.0, "token_s": STEP * grows / most}
    times = RooflineTimes(**{name: jnp.asarray(parts.get(name, 0.0)) for name in (*parts, "read_s", "pair_s")})
    step = jnp.asarray(STEP)
    none = jnp.asarray(0.0)
    at = EngineStep(step, step, step, jnp.asarray(1e-9), none, jnp.asarray(load * most), none, step)
    return place_wait(times, demand, at)


def erlang_c(most: int, load: float) -> float:
    """Probability that all servers of an M/M/c queue are busy."""
    blocked = 1.0
    for count in range(1, most + 1):
        blocked = load * most * blocked / (count + load * most * blocked)
    return blocked / (1 - load * (1 - blocked))


@pytest.mark.parametrize("most", [1, 2, 8, 64, 512])
@pytest.mark.parametrize("load", [0.5, 0.8, 0.95])
def test_steps_of_one_length_make_servers(most: int, load: float) -> None:
    """Places are the servers of M/M/c: Erlang's formula, and answers of 10 s over the places that are left."""
    result, exact = waited(most, load), erlang_c(most, load)
    assert float(result.late) == pytest.approx(exact, rel=0.02, abs=0.02 if most < 4 else 1e-6)
    assert float(result.seconds) == pytest.approx(10 / most / (1 - load), rel=1e-6)
    assert float(result.load) == pytest.approx(load, rel=1e-9)


@pytest.mark.parametrize("most", [1, 4, 32])
@pytest.mark.parametrize("load", [0.5, 0.9])
def test_steps_that_grow_as_sequences_make_one_server(most: int, load: float) -> None:
    """With no other cost the engine is one server that is shared: as many or more are there with rho^c."""
    assert float(waited(most, load, grows=1.0).late) == pytest.approx(load**most, rel=0.05)


@pytest.mark.parametrize("grows", [0.2, 0.7])
@pytest.mark.parametrize(("most", "load"), [(3, 0.6), (40, 0.9), (300, 0.97)])
def test_between_them_the_product_is_added_up(grows: float, most: int, load: float) -> None:
    counts = np.arange(1, most + 1)
    ways = np.cumsum(np.log(load * most * (1 - grows + grows * counts / most) / counts))
    fewer = np.exp(np.concatenate([[0.0], ways[:-1]]) - ways[-1]).sum()
    assert float(waited(most, load, grows).late) == pytest.approx(1 / (1 + (1 - load) * fewer), rel=0.02)


def test_who_comes_in_clumps_waits_more():
    even, poisson, clumped = (waited(32.0, 0.8, arrival_cv=cv) for cv in (0.5, 1.0, 2.0))
    assert float(even.late) < float(poisson.late) < float(clumped.late)
    assert float(even.mean) < float(poisson.mean) < float(clumped.mean)
    assert float(clumped.seconds) == pytest.approx(float(poisson.seconds) * (4 + 1) / 2, rel=1e-9)


@jax.jit
@jax.value_and_grad
def mean_and_slope(load: jax.Array, most: jax.Array, grows: jax.Array, *cv: jax.Array) -> jax.Array:
    """Mean wait and its slope by the load."""
    return waited(most, load, grows, arrival_cv=cv[0], output_cv=cv[1]).mean  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.floats(1, 4096), st.floats(1e-6, 1.5), st.floats(0, 1), st.floats(0, 10), st.floats(0, 3)
)  # fmt: skip
def test_finite_with_slopes(most: float, load: float, grows: float, arrival_cv: float, output_cv: float) -> None:
    """Also where more come than find a place, and where next to nobody does."""

    value, slope = mean_and_slope(load, most, grows, arrival_cv, output_cv)
    assert math.isfinite(float(value))
    assert math.isfinite(float(slope))
    assert float(value) >= 0
    assert float(slope) >= 0


@pytest.mark.slow
def test_slopes_are_those_of_differences():
    """Of late and seconds, along load, places, what steps grow by and both variations."""
    at = (24.0, 0.85, 0.4, 1.5, 0.7)

    def told(*values: jax.Array) -> jax.Array:
        most, load, grows, arrival_cv, output_cv = values
        result = waited(most, load, grows, arrival_cv=arrival_cv, output_cv=output_cv)  # type: ignore[arg-type]
        return jnp.stack([result.late, result.seconds, result.load])

    slopes = interpreted(jax.jacfwd(told, tuple(range(5))), always=True)(*map(jnp.asarray, at))
    for index, value in enumerate(at):
        step = 1e-5 * value
        ends = [
            told(*(jnp.asarray(other + way * step * (i == index)) for i, other in enumerate(at))) for way in (1, -1)
        ]
        np.testing.assert_allclose(slopes[index], (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_one_place_is_a_queue_with_one_server():
    """An M/G/1 queue of whole requests: Pollaczek's formula, for whoever redoes it by hand."""
    step, steps, rate = 0.01, 100.0, 0.7
    told = {"fixed_s": step, "weights_s": 0.0, "token_s": 0.0, "read_s": 0.0, "pair_s": 0.0}
    asked = {"rate": rate, "input_tokens": 10.0, "output_tokens": 1 + steps, "chunk": 100.0, "most": 1.0}
    result = open_loop(
        RooflineTimes(**{name: jnp.asarray(value) for name, value in told.items()}),
        Demand(**{name: jnp.asarray(value) for name, value in asked.items()}),
    )
    service = (1 + steps) * step  # its prompt takes a step
    exact = rate * service**2 / (2 * (1 - rate * service))
    assert float(result.places.mean) == pytest.approx(exact, rel=0.02)
    assert float(result.ttft_s.mean) == pytest.approx(exact + step, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(("most", "rate", "arrival_cv"), [(4, 1.7, 1.0), (24, 8.5, 1.0), (24, 7.0, 2.0)])
def test_the_simulation_is_near(most: int, rate: float, arrival_cv: float) -> None:
    """Conditions in which first tokens would be several times too early without it."""
    asked = {"rate": rate, "input_tokens": 500.0, "output_tokens": 200.0, "chunk": 2048.0, "input_cv": 0.4}
    asked |= {"output_cv": 0.5, "arrival_cv": arrival_cv, "most": float(most)}
    result = open_loop(
        RooflineTimes(**{name: jnp.asarray(value) for name, value in ENGINE.items()}),
        Demand(**{name: jnp.asarray(value) for name, value in asked.items()}),
    )
    rng, count = np.random.default_rng(61), 40_000
    requests = Requests(
        lengths(rng, 500.0, 0.4, count),
        lengths(rng, 200.0, 0.5, count, least=2),
        arrivals(rng, rate, arrival_cv, count),
    )
    engine = Engine(RooflineSteps(**ENGINE), 10**9, chunk=2048, sequences=most)
    served = simulate_open(engine, requests).summary()
    assert float(result.places.mean) > 0.3 * served["ttft_s"]
    assert float(result.ttft_s.mean) == pytest.approx(served["ttft_s"], rel=0.1 if arrival_cv == 1 else 0.18)
    assert float(result.ttft_s.p99) == pytest.approx(served["ttft_s.p99"], rel=0.15)
    assert float(result.e2e_s.p50) == pytest.approx(served["e2e_s.p50"], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("most", "output_cv"), [(4, 0.5), (4, 1.0), (24, 1.0)])
def test_whole_requests_of_two_pools_wait_once(most: int, output_cv: float) -> None:
    """Times between tokens count a wait by 1 / length, the more the shorter; a request counts it once."""
    rate, rng, count = 3.4 * most / 4, np.random.default_rng(61), 40_000
    asked = {"rate": rate, "input_tokens": 500.0, "output_tokens": 200.0, "chunk": 2048.0, "input_cv": 0.4}
    asked |= {"output_cv": output_cv, "arrival_cv": 1.0, "most": float(most)}
    times = RooflineTimes(**{name: jnp.asarray(value) for name, value in ENGINE.items()})
    demand = Demand(**{name: jnp.asarray(value) for name, value in asked.items()})
    result = pools_apart(times, times, demand, (jnp.asarray(2.0), jnp.asarray(2.0)), jnp.asarray(0.01))
    requests = Requests(
        lengths(rng, 500.0, 0.4, count),
        lengths(rng, 200.0, output_cv, count, least=2),
        arrivals(rng, rate, 1.0, count),
    )
    engine = Engine(RooflineSteps(**ENGINE), 10**9, chunk=2048, sequences=most)
    served = simulate_apart(engine, engine, (2, 2), requests, lambda tokens: 2e-5 * tokens).summary()
    for share in ("mean", "p50", "p90", "p99"):
        name = "e2e_s" if share == "mean" else f"e2e_s.{share}"
        assert float(getattr(result.e2e_s, share)) == pytest.approx(served[name], rel=0.1)
    assert float(result.e2e_s.mean) == pytest.approx(served["e2e_s"], rel=0.06)
