"""Assignment of classes to pools: brute force, duals by solving again, the exact check, and what cannot be."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from codesign import ConfigError
from codesign.search.assignment import (
    AssignedFleet,
    AssignmentLimits,
    DeviceKind,
    PoolOption,
    _bound,
    _continued,
    _relaxed,
    _scaled,
    assign,
    assignment_program,
)
from codesign.verification import Refuted, check_assignment

OLD = DeviceKind("old", 8, 4.0, 0.5, 1000.0, 500.0, owned_boxes=2, most_boxes=0)
NEW = DeviceKind("new", 8, 6.0, 0.5, 2000.0, 900.0)


def options_of(seed: int, classes: int = 2) -> tuple[dict[str, float], list[PoolOption]]:
    rng = np.random.default_rng(seed)
    result, rates = [], {}
    for one in range(classes):
        name = f"c{one}"
        rates[name] = float(rng.uniform(4, 20))
        base = float(rng.uniform(0.5, 2.0))
        for kind, faster in (("old", 1.0), ("new", float(rng.uniform(1.2, 3.0)))):
            for size in (2, 8):
                rate = base * faster * size * float(rng.uniform(0.8, 1.1))
                power = 0.1 * size * float(rng.uniform(0.8, 1.2))
                result.append(PoolOption(name, kind, size, rate, power, 0.5 * power))
    return rates, result


def stated(rates: dict[str, float], found: AssignedFleet, limits: AssignmentLimits) -> dict:
    bounds = {"budget": limits.capex_usd, "power": limits.watts}
    return {
        "rates": rates, "options": [one._asdict() for one in found.options],
        "kinds": [dataclasses.asdict(kind) for kind in found.kinds],
        "limits": {name: value for name, value in bounds.items() if math.isfinite(value)},
        "replicas": list(found.replicas), "bought": list(found.bought), "owned": list(found.owned),
        "usd_per_s": found.usd_per_s, "bound": found.bound, "nodes": [list(node) for node in found.nodes],
    }  # fmt: skip


def brute_force(rates: dict[str, float], options: list[PoolOption], kinds: list[DeviceKind]) -> float:
    """Cheapest of every number of replicas of one class at a time, joined over devices that all of them take."""
    tables = []
    for name, rate in rates.items():
        own = [one for one in options if one.request_class == name]
        ranges = [range(math.ceil(rate / one.rate) + 1) for one in own]
        best: dict[tuple[int, ...], float] = {}
        for counts in itertools.product(*ranges):
            if sum(n * one.rate for n, one in zip(counts, own, strict=True)) < rate * (1 - 1e-9):
                continue
            used = tuple(
                sum(n * one.devices for n, one in zip(counts, own, strict=True) if one.kind == kind.name)
                for kind in kinds
            )
            usd = sum(n * one.usd_per_s for n, one in zip(counts, own, strict=True))
            best[used] = min(best.get(used, math.inf), usd)
        tables.append(best)
    least = math.inf
    for parts in itertools.product(*(table.items() for table in tables)):
        usd = sum(each for _, each in parts)
        for index, kind in enumerate(kinds):
            boxes = math.ceil(sum(used[index] for used, _ in parts) / kind.box)
            owned = min(boxes, kind.owned_boxes)
            if kind.most_boxes is not None and boxes - owned > kind.most_boxes:
                usd = math.inf
                break
            usd += kind.box * (owned * kind.owned_usd_per_s + (boxes - owned) * kind.held_usd_per_s)
        least = min(least, usd)
    return least


@pytest.mark.parametrize("seed", range(6))
def test_the_programme_finds_what_brute_force_finds(seed: int):
    rates, options = options_of(seed)
    rates = {name: 0.5 * rate for name, rate in rates.items()}
    result = assign(rates, options, [OLD, NEW])
    assert result.usd_per_s == pytest.approx(brute_force(rates, options, [OLD, NEW]), rel=1e-9)
    assert result.floor <= result.bound * (1 + 1e-9) <= result.usd_per_s * (1 + 1e-9)
    assert result.relaxed_usd_per_s <= result.bound * (1 + 1e-6)
    assert result.gap < 1e-4
    assert len(check_assignment(stated(rates, result, AssignmentLimits()))) == 2


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_the_box_have_the_optima_that_another_solver_finds(seed: int):
    """From the basis of another part, and from none; the bound of the dual is the optimum, a ray proves that none is.

    All boxes are within the programme's, some with ends that meet, some without a point.
    """
    rng, (rates, options) = np.random.default_rng(seed), options_of(seed, classes=3)
    program = assignment_program(rates, options, [OLD, NEW], AssignmentLimits(watts=300_000.0))
    scaled, none, basis, empty = _scaled(program), np.zeros_like(program.cost), None, 0
    for turn in range(60):
        high = np.rint(program.high * rng.uniform(0.0, 1.0, len(none)) ** (0.1 if turn % 3 else 2.0))
        low = np.floor(high * rng.uniform(0.0, 1.0, len(none)) ** 8)
        other = _relaxed(scaled, low, high)
        for start in (None, basis):
            found = _continued(scaled, low, high, start)
            assert found is not None
            result, basis = found
            dual = result.dual * scaled.factors
            assert (dual >= 0).all()
            if other is None:
                assert math.isinf(result.value)
                assert _bound(program, dual, low, high, none) > 0
                empty += 1
                continue
            assert result.value == pytest.approx(other.value, rel=1e-9)
            assert _bound(program, dual, low, high, program.cost) == pytest.approx(other.value, rel=1e-7)
            assert ((result.x >= low) & (result.x <= high)).all()
    assert 6 < empty < 110


def test_prices_are_slopes_of_the_linear_programme():
    """Solved again with a little more of a class, of the stock, of power: central differences."""
    rates, options = options_of(3)
    rates = {name: 5 * rate for name, rate in rates.items()}
    limits = AssignmentLimits(watts=300_000.0)
    result = assign(rates, options, [OLD, NEW], limits, 1)
    step = 1e-4
    for name in rates:
        ends = [
            assign(rates | {name: rates[name] * (1 + sign * step)}, options, [OLD, NEW], limits, 1).relaxed_usd_per_s
            for sign in (1, -1)
        ]
        assert result.prices["class", name] == pytest.approx((ends[0] - ends[1]) / (2 * step * rates[name]), rel=1e-5)
    more = assign(rates, options, [dataclasses.replace(OLD, owned_boxes=3), NEW], limits, 1)
    assert result.box_worth["old"] == pytest.approx(result.relaxed_usd_per_s - more.relaxed_usd_per_s, rel=1e-5)
    assert result.box_worth["old"] > 0


def test_power_and_budget_have_prices():
    rates, options = options_of(1)
    rates = {name: 5 * rate for name, rate in rates.items()}
    free = assign(rates, options, [OLD, NEW])
    boxes = sum(free.bought) + sum(free.owned)
    watts = 8 * (900.0 * sum(free.bought) + 500.0 * sum(free.owned))
    bound = assign(rates, options, [OLD, NEW], AssignmentLimits(watts=watts * (1 - 1e-3)))
    assert bound.usd_per_s >= free.usd_per_s
    assert boxes
    assert bound.prices["power", ""] >= 0
    check_assignment(stated(rates, bound, AssignmentLimits(watts=watts * (1 - 1e-3))))


def test_a_tight_stock_is_used_where_it_is_worth_most():
    """One box of old devices, two classes of equal loads: the class that loses least on them goes there."""
    options = [
        PoolOption("same", "old", 8, 10.0, 0.0), PoolOption("same", "new", 8, 10.0, 0.0),
        PoolOption("faster", "old", 8, 5.0, 0.0), PoolOption("faster", "new", 8, 20.0, 0.0),
    ]  # fmt: skip
    result = assign({"same": 10.0, "faster": 20.0}, options, [dataclasses.replace(OLD, owned_boxes=1), NEW])
    assert result.replicas == (1, 0, 0, 1)
    assert result.usd_per_s == pytest.approx(8 * 0.5 + 8 * 6.0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda it: it | {"bound": it["usd_per_s"] * 1.01}, "the leaves prove"),
        (lambda it: it | {"usd_per_s": it["usd_per_s"] * 0.9}, "are stated"),
        (lambda it: it | {"replicas": [0] * len(it["replicas"])}, "is not kept"),
        (lambda it: it | {"replicas": [0.5, *it["replicas"][1:]]}, "not whole"),
        (lambda it: it | {"nodes": [[-1, 0, (-1, -1), [1e6] * 4, False]]}, "the leaves prove"),
        (lambda it: it | {"nodes": [[-1, 0, (-1, -1), [-1.0] * 4, False]]}, "multipliers that are none"),
        (lambda it: it | {"nodes": [[-1, 0, (-1, -1), [0.0] * 4, True]]}, "not shown to be empty"),
        (lambda it: it | {"nodes": [[0, 0, (0, 0), [], False]]}, "there twice"),
        (lambda it: it | {"options": [one | {"devices": 3} for one in it["options"]]}, "gaps"),
    ],
)
def test_a_false_certificate_is_refuted(change, text: str):
    rates, options = options_of(2)
    result = assign(rates, options, [OLD, NEW])
    told = stated(rates, result, AssignmentLimits())
    check_assignment(told)
    with pytest.raises(Refuted, match=text):
        check_assignment(change(told))


def test_where_nothing_serves_all_the_line_says_how_much():
    rates, options = options_of(0)
    few = [dataclasses.replace(OLD, owned_boxes=1), dataclasses.replace(NEW, most_boxes=0)]
    with pytest.raises(ConfigError, match=r"8 old owned.*at most \d+\.\d% of the load"):
        assign({name: 50 * rate for name, rate in rates.items()}, options, few)
    with pytest.raises(ConfigError, match="within budget"):
        assign(rates, options, [dataclasses.replace(OLD, owned_boxes=0), NEW], AssignmentLimits(capex_usd=1.0))
    with pytest.raises(ConfigError, match="box = 0"):
        DeviceKind("none", 0, 1.0)


def test_the_bound_grows_with_every_cost():
    """A dearer kind never makes the fleet cheaper, and twice all costs are twice the optimum."""
    rates, options = options_of(4)
    result = assign(rates, options, [OLD, NEW])
    dearer = assign(rates, options, [OLD, dataclasses.replace(NEW, held_usd_per_s=7.0)])
    assert dearer.usd_per_s >= result.usd_per_s * (1 - 1e-9)
    twice = assign(
        rates, [one._replace(usd_per_s=2 * one.usd_per_s, least_usd_per_s=2 * one.least_usd_per_s) for one in options],
        [dataclasses.replace(kind, held_usd_per_s=2 * kind.held_usd_per_s, owned_usd_per_s=2 * kind.owned_usd_per_s)
         for kind in (OLD, NEW)],
    )  # fmt: skip
    assert twice.usd_per_s == pytest.approx(2 * result.usd_per_s, rel=1e-9)
