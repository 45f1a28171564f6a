"""Schedules found for circuits: exact against all of them, carried out round by round, beside the published ones."""

import math

import numpy as np
import pytest

from _lib.circuit_synthesis import bound_s, carried_out, divide_and_conquer, every
from codesign.model.networks.collectives import Circuits, RadixBlock
from codesign.model.networks.collectives import best_schedule as best
from codesign.model.networks.collectives import schedule_s as seconds

RACK = Circuits()
SIZES = (1e3, 6.4e4, 1e6, 8e6, 1e9)


def by_rounds(schedule, members, nbytes, rack=RACK):
    """Time and what members end with, from messages and circuits alone."""
    values = np.arange(1.0, members * members + 1).reshape(members, members) ** 2
    expected, standing, spent = values.sum(axis=0), set(), 0.0
    for messages, circuits in carried_out(schedule, members):
        if circuits != standing:
            spent, standing = spent + rack.setup_s, circuits
        partners = max(sum(a == member for a, _ in circuits) for member in range(members))
        before = values.copy()
        for one in messages:
            assert (one.source, one.target) in circuits
            new = before[one.source, one.chunks]
            values[one.target, one.chunks] = values[one.target, one.chunks] + new if one.adds else new
        longest = max(len(one.chunks) for one in messages) / members
        spent += rack.alpha_s + longest * nbytes * rack.loss(partners) / rack.bytes_per_s
    assert (values == expected).all()
    return spent


@pytest.mark.parametrize("members", [2, 4, 6, 8, 12])
def test_every_schedule_sums_and_takes_its_formula_s_time(members):
    for schedule in every(members):
        if all(block.partners() <= RACK.lanes for block in schedule):
            assert seconds(schedule, 1e6, RACK) == pytest.approx(by_rounds(schedule, members, 1e6), rel=1e-12)


@pytest.mark.parametrize("members", [4, 6, 8, 12, 16, 24])
@pytest.mark.parametrize("nbytes", SIZES)
def test_none_of_all_is_quicker(members, nbytes):
    result, schedule = best(members, nbytes, RACK)
    assert result == pytest.approx(min(seconds(one, nbytes, RACK) for one in every(members)), rel=1e-12)
    assert result == pytest.approx(by_rounds(schedule, members, nbytes), rel=1e-12)
    assert result >= bound_s(members, nbytes, RACK)


def published(members, radix, nbytes):
    """LUMORPH-2 and -4 as schedules: circuits set round by round."""
    rounds = round(math.log(members, radix))
    return seconds(tuple(RadixBlock((radix,), False) for _ in range(rounds)), nbytes, RACK)


@pytest.mark.parametrize("members", [64, 256])
@pytest.mark.parametrize("nbytes", SIZES)
def test_never_slower_than_the_published_ones_and_than_divide_and_conquer(members, nbytes):
    result, schedule = best(members, nbytes, RACK)
    greedy, _ = divide_and_conquer(members, RACK, nbytes)
    others = [greedy, *(published(members, radix, nbytes) for radix in (2, 4))]
    assert bound_s(members, nbytes, RACK) <= result <= min(others) * (1 + 1e-12)
    assert math.prod(block.product() for block in schedule) == members


def test_what_it_saves_of_small_and_large_buffers():
    """256 members: two thirds of LUMORPH-4's time on 64 kB, 6 % on a gigabyte."""
    small, large = (best(256, nbytes, RACK)[0] / published(256, 4, nbytes) for nbytes in (6.4e4, 1e9))
    assert small == pytest.approx(0.324, abs=0.001)
    assert large == pytest.approx(0.942, abs=0.001)


def test_setting_circuits_for_nothing_leaves_few_rounds():
    """At no set-up time every round gets circuits of its own; at a long one all stand from the start."""
    quick, slow = (best(64, 1e6, Circuits(setup_s=setup))[1] for setup in (0.0, 1.0))
    assert all(len(block.factors) == 1 for block in quick)
    assert len(slow) == 1
