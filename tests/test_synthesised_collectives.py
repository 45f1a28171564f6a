"""Synthesised schedules as collectives: beside the dynamic programme, executed rounds, bounds; taken where better."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from _lib.circuit_synthesis import bound_s, every
from codesign import Certified, DesignSpace, Objective, Problem, designs
from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.model.hardware import Link
from codesign.model.networks.collectives import (
    Circuits,
    RadixAllReduce,
    SynthesisedAllGather,
    SynthesisedAllReduce,
    best_schedule,
)
from codesign.model.networks.collectives import schedule_s as seconds
from codesign.model.networks.fabrics import ALGORITHMS, Group
from codesign.search.results import numbers_of

RACK = Circuits()
LINK = Link(0.7e-6, 1 / 300e9, 1e-11, 3.7e-6, lanes=16.0)
SIZES = (65536.0, 1e6, 8e6, 1e9)


def taken(algorithm, members, nbytes, link=LINK):
    return algorithm.cost(jnp.asarray(nbytes), Group(jnp.asarray(float(members))), link)


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("members", [2, 6, 8, 12, 16, 48, 64, 256])
def test_at_its_own_size_it_is_the_best_of_the_class(members, nbytes):
    """The dynamic programme, and for small groups every schedule one by one; above what no schedule beats."""
    result = float(taken(SynthesisedAllReduce(for_bytes=nbytes), members, nbytes).time_s)
    assert result == pytest.approx(best_schedule(members, nbytes, RACK)[0], rel=1e-6)
    assert result >= bound_s(members, nbytes, RACK) * (1 - 1e-6)
    if members <= 12:
        assert result == pytest.approx(min(seconds(one, nbytes, RACK) for one in every(members)), rel=1e-6)
    assert result <= float(taken(RadixAllReduce(radix=4.0), members, nbytes).time_s) * (1 + 1e-6)


def test_elsewhere_it_is_its_schedule():
    """That of 64 kB on a gigabyte, and on a rack whose circuits are set ten times as slowly."""
    schedule = best_schedule(64, SIZES[0], RACK)[1]
    result = float(taken(SynthesisedAllReduce(for_bytes=SIZES[0]), 64, 1e9).time_s)
    assert result == pytest.approx(seconds(schedule, 1e9, RACK), rel=1e-6)
    slow = Link(0.7e-6, 1 / 300e9, 1e-11, 3.7e-5, lanes=16.0)
    result = float(taken(SynthesisedAllReduce(for_bytes=SIZES[0]), 64, 1e6, slow).time_s)
    assert result == pytest.approx(seconds(schedule, 1e6, Circuits(setup_s=3.7e-5)), rel=1e-6)


@pytest.mark.parametrize("members", [4, 12, 64, 256])
def test_half_of_it_gathers(members):
    """(1 - 1/n) of the buffer at least, and one way in half of the rounds of its own schedule."""
    for nbytes in SIZES:
        result = float(taken(SynthesisedAllGather(for_bytes=nbytes), members, nbytes).time_s)
        assert result == pytest.approx(best_schedule(members, nbytes, RACK, both_ways=False)[0], rel=1e-6)
        assert result >= 3.7e-6 + 0.7e-6 + (1 - 1 / members) * nbytes / 300e9 - 1e-12
        assert result <= float(taken(SynthesisedAllReduce(for_bytes=nbytes), members, nbytes).time_s) * (1 + 1e-6)


def test_members_without_a_schedule_quarter():
    for members in (19, 300):
        result, other = (
            taken(algorithm, members, 1e6) for algorithm in (SynthesisedAllReduce(), RadixAllReduce(radix=4.0))
        )
        assert float(result.time_s) == pytest.approx(float(other.time_s))
        assert float(result.energy_j) == pytest.approx(float(other.energy_j))
    assert float(taken(SynthesisedAllReduce(), 1, 1e6).time_s) == 0.0
    assert float(taken(SynthesisedAllReduce(), 8, 0.0).time_s) == 0.0


def test_fewer_lanes_than_it_was_found_for_serve_partners_in_waves():
    """Eight partners over one lane: eight times in a row, and as much longer on the wire."""
    algorithm = SynthesisedAllReduce(for_bytes=9e6)
    wire = 2 * 8 / 9 * 9e6 * 1e-9
    one, many = (
        float(taken(algorithm, 9, 9e6, Link(0.0, 1e-9, 0.0, 1e-3, lanes=lanes)).time_s) for lanes in (1.0, 8.0)
    )
    schedule = best_schedule(9, 9e6, RACK)[1]
    assert many == pytest.approx(wire + 1e-3 * (2 * len(schedule) - 1), rel=1e-6)
    waves = max(block.partners() for block in schedule)
    assert one == pytest.approx(wire + waves * 1e-3 * (2 * len(schedule) - 1), rel=1e-6)


def test_slopes_are_differences():
    algorithm = SynthesisedAllReduce()
    with jax.enable_x64(True):
        for index in range(4):
            numbers = [0.7e-6, 1 / 300e9, 1e-11, 3.7e-6]

            def spent(value, place=index, numbers=numbers):
                own = [*numbers[:place], value, *numbers[place + 1 :]]
                return taken(algorithm, 48, 1e6, Link(*map(jnp.asarray, own), lanes=jnp.asarray(16.0))).time_s

            at = numbers[index]
            slope = float(jax.grad(spent)(jnp.asarray(at)))
            difference = (float(spent(jnp.asarray(at * 1.001))) - float(spent(jnp.asarray(at * 0.999)))) / (0.002 * at)
            assert slope == pytest.approx(difference, rel=1e-6, abs=1e-12)


def test_a_rack_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="for_bytes = 0 of SynthesisedAllReduce is not positive") as error:
        SynthesisedAllReduce(for_bytes=0)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_search_takes_it_where_it_is_better_and_proves_it():
    """Decoding on circuits: small messages want few settings; as pricing every choice by itself says."""
    names = ("ring", "radix_2", "radix_4", "synthesised_64k", "synthesised_8m", "synthesised_1g")
    base = (
        "calibration=h100_sxm_roofline", "framework=none", "workload=static_batch", "model=llama31_70b",
        "plan=serving_node", "fabric=lightpath", "collective=lumorph_chosen", "cluster.device_count=64", "plan.tp=64",
        "plan.micro_batch=8", "workload.input_tokens=128", "workload.output_tokens=512",
    )  # fmt: skip
    one = scenario_from_config(*base)
    places = tuple(float(ALGORITHMS.index(name)) for name in names)
    problem = Problem(one, DesignSpace({"tp_algorithm": places}), Objective("time_s"))
    trace = Certified(gap=1e-4).run(problem, 0)
    assert trace.certificate.certified
    best = designs(problem, trace, 0).iloc[0]
    every_one = {name: numbers_of(scenario_from_config(*base, f"plan.tp_algorithm={name}"))["time_s"] for name in names}
    quickest = min(every_one, key=lambda name: every_one[name])
    assert quickest.startswith("synthesised")
    assert every_one[quickest] < 0.97 * min(every_one[name] for name in names[:3])
    assert ALGORITHMS[round(float(best["var.tp_algorithm"]))] == quickest
    others = [word for word in base if "collective" not in word]
    fastest = numbers_of(scenario_from_config(*others, "collective=lumorph_synthesised"))
    assert fastest["time_s"] <= every_one[quickest] * (1 + 1e-6)
    assert np.isfinite(fastest["time_s"])
