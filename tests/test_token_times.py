"""Time between tokens of an open loop: delays as a branching process, what decodes beside by hand, its bound."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.model.workloads.latency import Crowds, SlotWait, TokenTimes, token_times
from codesign.model.workloads.mean_step import Demand, EngineStep, RooflineTimes

PLAIN, TOKEN = 0.01, 1e-4
ROOMY = SlotWait(*map(jnp.asarray, (0.0, 0.0, 0.0)))


def times(**changes: float) -> RooflineTimes:
    """Steps of 10 ms, and 0.1 ms more for each prompt token."""
    told = {"fixed_s": PLAIN, "weights_s": 0.0, "token_s": TOKEN, "read_s": 0.0, "pair_s": 0.0} | changes
    return RooflineTimes(**{name: jnp.asarray(value) for name, value in told.items()})


def demand(**changes: float) -> Demand:
    """Two prompts a second of a tenth of a second each."""
    told = {"rate": 2.0, "input_tokens": 1000.0, "output_tokens": 51.0, "chunk": 1e4} | changes
    return Demand(**{name: jnp.asarray(value) for name, value in told.items()})


def steps_of(asked: Demand, decodes: float = 1e-9) -> tuple[EngineStep, Crowds]:
    """One prompt in each mixed step; shares and lengths agree with each other."""
    seconds = float(asked.input_tokens) * TOKEN
    mean = PLAIN / (1 - float(asked.rate) * seconds)
    share, mixed = float(asked.rate) * mean, PLAIN + seconds
    full = PLAIN + float(asked.chunk) * TOKEN
    told = map(jnp.asarray, (mean, PLAIN, mixed, share, 0.2, decodes, 0.2, full))
    return EngineStep(*told), Crowds(jnp.full(3, mixed), jnp.array([0.6, 0.3, 0.1]))


def branching(asked: Demand, mixed: float, runs: int = 400_000) -> np.ndarray:
    """Seconds a token: prompts that came in the mixed step before, then those that come while these are computed..."""
    rng, rate, prompt = np.random.default_rng(5), float(asked.rate), float(asked.input_tokens) * TOKEN
    cv, steps = float(asked.input_cv), float(asked.steps)

    def brought(counts: np.ndarray) -> np.ndarray:
        """Seconds of so many prompts each: gamma-distributed, with the same mean and variance as theirs."""
        if cv == 0:
            return counts * prompt
        shape = counts / cv**2
        return np.where(counts > 0, rng.gamma(np.maximum(shape, 1e-9), prompt * cv**2), 0.0)

    own = np.full(runs, steps * PLAIN)
    waits = brought(rng.poisson(rate * mixed, runs))
    total, came = own + waits, own + waits
    while came.any():
        came = brought(rng.poisson(rate * came))
        total += came
    return total / steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "cv", "answer"), [(2.0, 0.0, 51.0), (5.0, 0.0, 21.0), (5.0, 0.6, 101.0), (7.0, 0.3, 51.0)]
)
def test_delays_are_those_of_a_branching_process(rate: float, cv: float, answer: float) -> None:
    asked = demand(rate=rate, input_cv=cv, output_tokens=answer)
    at, crowds = steps_of(asked)
    result = token_times(times(), asked, at, crowds, jnp.asarray(0.0), ROOMY)
    drawn = branching(asked, float(at.mixed))
    assert float(result.mean_s) == pytest.approx(drawn.mean(), rel=0.005)
    assert float(result.variance) == pytest.approx(drawn.var(), rel=0.04)  # eight prompts stand for all
    assert float(result.crowd) == pytest.approx(0.0, abs=1e-15)
    assert float(result.percentiles().p99) == pytest.approx(np.quantile(drawn, 0.99), rel=0.04)


@pytest.mark.slow
def test_sequences_beside_by_hand() -> None:
    """Answers of one length, prompts that say nothing: of n decodes, n varies by n; over an own life 2/3 of that."""
    asked = demand(rate=1e-9, input_tokens=1e6, output_tokens=51.0)
    at, crowds = steps_of(demand(), decodes=16.0)
    slope = 1e-5
    result = token_times(times(), asked, at, crowds, jnp.asarray(slope), ROOMY)
    longer = 1 / (1 - slope * 16 / float(at.mean))
    # what is there lasts `longer` times an own life: 2 int_0^1 (1 - u) (1 - u / z) du = 1 - 1 / (3 z)
    assert float(result.crowd) == pytest.approx(slope**2 * 16 * longer * (1 - 1 / (3 * longer)), rel=1e-4)


def test_caches_of_many_lengths_vary_more() -> None:
    """Reading alone, prompts of next to nothing: a cache is uniform below its answer, E[c^2] = 4/3 E[c]^2."""
    read = 1e-7
    asked = demand(rate=1e-9, input_tokens=1.0, output_tokens=100_001.0)
    at, crowds = steps_of(demand(), decodes=16.0)
    slope = read * float(asked.context)
    result = token_times(times(read_s=read), asked, at, crowds, jnp.asarray(slope), ROOMY)
    longer = 1 / (1 - min(slope * 16 / float(at.mean), 0.95))
    assert float(result.crowd) == pytest.approx(4 / 3 * slope**2 * 16 * longer * (1 - 1 / (3 * longer)), rel=1e-3)


def test_no_step_is_longer_than_a_full_chunk() -> None:
    told = TokenTimes(*map(jnp.asarray, (0.02, 4e-4, 0.0, 0.01, 0.03)))
    result = told.percentiles()
    assert float(result.p99) == pytest.approx(0.03)
    assert float(result.p50) < 0.03
    free = told._replace(most_s=jnp.asarray(1.0)).percentiles()
    assert float(free.p99) > 0.05
    assert float(free.p50) == float(result.p50)


@pytest.mark.slow
def test_nothing_comes_and_nothing_varies() -> None:
    """Finite values and slopes where there is next to no load."""

    def mean(rate: jax.Array) -> jax.Array:
        asked = demand().at(rate)
        at, crowds = steps_of(demand())
        result = token_times(times(), asked, at._replace(share=rate * at.mean), crowds, jnp.asarray(0.0), ROOMY)
        return result.mean_s + result.variance

    for rate in (1e-12, 1e-6, 1e-2):
        assert np.isfinite(jax.grad(mean)(jnp.asarray(rate)))
