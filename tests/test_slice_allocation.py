"""Slices of a shared rack: allocators, the simulation, and the blocking recursion against enumeration."""

import itertools
from math import comb, factorial, fsum

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.core.errors import ConfigError
from codesign.model.scenario import Facility
from codesign.model.slices import (
    MIXES,
    CircuitRack,
    DemandMix,
    FixedServers,
    SharedRack,
    SubCubes,
    TorusCuboids,
    simulate,
)
from codesign.model.slices.fragmentation import blocking

RACKS = {
    "circuits": CircuitRack, "servers": FixedServers, "torus": TorusCuboids, "cube_2": lambda: SubCubes(2, 6),
    "cube_4": lambda: SubCubes(4, 3),
}  # fmt: skip


class TestAllocators:
    @pytest.mark.parametrize("name", RACKS)
    def test_tenants_never_overlap_and_leave_nothing_behind(self, name):
        rack, random, held = RACKS[name](), np.random.default_rng(1), []
        for _ in range(1000):
            if held and random.random() < 0.5:
                handle, _ = held.pop(random.integers(len(held)))
                rack.release(handle)
            else:
                size, before = int(random.integers(1, 17)), rack.taken
                handle = rack.allocate(size)
                if handle is not None:
                    assert handle.mask & before == 0
                    assert handle.mask.bit_count() == rack.volume(size) >= size
                    held.append((handle, size))
            assert rack.taken == sum(handle.mask for handle, _ in held)
        for handle, _ in held:
            rack.release(handle)
        assert rack.free == rack.capacity == rack.largest() == 64
        assert (rack.fibers or [8] * 8) == [8] * 8

    @pytest.mark.parametrize("name", RACKS)
    def test_largest_is_the_largest(self, name):
        rack, random = RACKS[name](), np.random.default_rng(2)
        for size in random.integers(1, 9, 9):
            rack.allocate(int(size))
        result = [size for size in range(1, 65) if rack.find(size) is not None]
        assert rack.largest() == rack.volume(max(result))

    def test_what_is_not_taken_cannot_be_released(self):
        rack = CircuitRack()
        handle = rack.allocate(4)
        rack.release(handle)
        with pytest.raises(ConfigError, match="not allocated"):
            rack.release(handle)

    def test_scattered_accelerators_make_a_slice_with_circuits_only(self):
        """The document's User 4: four chips, free here and there."""
        circuits, servers = CircuitRack(2, 4), FixedServers(2, 4)
        for rack in (circuits, servers):
            rack.taken = 0b0011_0011
        assert circuits.find(4).mask == 0b1100_1100
        assert circuits.find(4).fibers == ((0, 1), (1, 1))
        assert servers.find(4) is None

    def test_fibers_run_out(self):
        rack = CircuitRack(2, 4, fibers=1)
        rack.taken = 0b0000_0001
        assert rack.allocate(5).fibers == ((1, 1), (0, 1))
        assert rack.fibers == [0, 0]
        rack.taken = 0b0011_0011
        assert rack.find(4) is None
        assert rack.largest() == 2

    def test_cuboids_of_a_torus(self):
        torus = TorusCuboids((4, 4, 4))
        assert [v for v in torus.shapes if v <= 16] == [1, 2, 3, 4, 6, 8, 9, 12, 16]
        assert len(torus.shapes[1]) == 64
        assert len(torus.shapes[2]) == 3 * 64  # a pair along each axis, round the edges too
        assert len(torus.shapes[64]) == 1
        assert (torus.volume(5), torus.volume(7), torus.volume(13)) == (6, 8, 16)

    @pytest.mark.parametrize(("radix", "places"), [(2, 6), (4, 3)])
    def test_sub_cubes(self, radix, places):
        cube = SubCubes(radix, places)
        for count in range(places + 1):
            assert len(cube.shapes[radix**count]) == comb(places, count) * radix ** (places - count)
        assert cube.volume(radix + 1) == radix**2

    def test_servers_are_given_whole_beyond_one(self):
        rack = FixedServers()
        assert (rack.volume(7), rack.volume(9), rack.volume(65)) == (7, 16, None)
        rack.allocate(1)
        assert rack.allocate(56) is not None
        assert rack.allocate(7) is not None
        assert rack.free == 0


class TestBlocking:
    @staticmethod
    def enumerated(offered, volumes, capacity):
        """Refusals from the product form over every state, term by term."""
        tops = [range(capacity // v + 1) for v in volumes]
        total, refused = 0.0, np.zeros(len(volumes))
        for held in itertools.product(*tops):
            taken = sum(n * v for n, v in zip(held, volumes, strict=True))
            if taken <= capacity:
                weight = np.prod([a**n / factorial(n) for a, n in zip(offered, held, strict=True)])
                total += weight
                refused += weight * np.array([taken + v > capacity for v in volumes])
        return refused / total

    @pytest.mark.parametrize("capacity", [5, 8, 13])
    def test_recursion_against_every_state(self, capacity):
        offered, volumes = [1.2, 0.7, 0.4], (1, 3, 4)
        exact = self.enumerated(offered, volumes, capacity)
        result = blocking(jnp.asarray(offered), volumes, jnp.asarray(float(capacity)), 16)
        np.testing.assert_allclose(result, exact, rtol=1e-12)

    def test_real_capacity_lies_between_whole_ones(self):
        def at(capacity):
            return float(SharedRack(capacity, 0.8 * 12 / capacity).acceptance())

        assert at(12.5) == pytest.approx((at(12.0) + at(13.0)) / 2)

    @pytest.mark.slow
    def test_slopes_agree_with_finite_differences_and_large_racks_do_not_overflow(self):
        def acceptance(load, ratio):
            return SharedRack(700.0, load, ratio).acceptance()

        slopes = jax.grad(acceptance, argnums=(0, 1))(0.9, 0.9507)
        step = 1e-6
        numeric = [
            (acceptance(0.9 + step, 0.9507) - acceptance(0.9 - step, 0.9507)) / (2 * step),
            (acceptance(0.9, 0.9507 + step) - acceptance(0.9, 0.9507 - step)) / (2 * step),
        ]
        np.testing.assert_allclose(slopes, numeric, rtol=1e-5)
        assert slopes[0] < 0 < slopes[1]

    @pytest.mark.parametrize(("mix", "printed"), [("uniform 1-16", 0.780), ("3, 5, 6, 7, 10, 12", 0.821)])
    def test_analytical_rows_of_the_notes(self, mix, printed):
        rack = SharedRack(64.0, 0.8, sizes=MIXES[mix].sizes)
        assert float(rack.acceptance()) == pytest.approx(printed, abs=5e-4)
        assert float(rack.utilisation()) == pytest.approx(0.8 * printed, abs=5e-4)

    @staticmethod
    def by_hand(rack: SharedRack) -> float:
        """Acceptance by the textbook's recursion over a list of states, scaled down whenever it grows large."""
        capacity, weights = int(rack.capacity), rack.weights or (1.0,) * len(rack.sizes)
        asked = [weight * size for weight, size in zip(weights, rack.sizes, strict=True)]
        slices = float(rack.load) * capacity / sum(asked)
        state = [1.0]
        for taken in range(1, capacity + 1):
            flows = zip(asked, rack.sizes, strict=True)
            state.append(slices * sum(part * state[taken - size] for part, size in flows if size <= taken) / taken)
            if state[-1] > 1e200:
                state = [each / 1e200 for each in state]
        granted = [1 - fsum(state[max(capacity + 1 - size, 0) :]) / fsum(state) for size in rack.sizes]
        return sum(part * share for part, share in zip(asked, granted, strict=True)) / sum(asked)

    @pytest.mark.parametrize("capacity", [64, 256, 257, 512, 1024, 4096])
    @pytest.mark.parametrize("load", [0.1, 0.8, 1.2, 10.0])
    @pytest.mark.parametrize("mix", MIXES)
    def test_large_racks_against_the_recursion_by_hand(self, capacity, load, mix):
        rack = SharedRack(float(capacity), load, sizes=MIXES[mix].sizes, weights=MIXES[mix].weights)
        result = float(rack.acceptance())
        assert 0 <= result <= 1
        assert result == pytest.approx(self.by_hand(rack), rel=1e-10)

    @pytest.mark.parametrize("capacity", [512, 1024])
    def test_large_racks_against_the_scheduler(self, capacity):
        """What was 1.136 and 50 once: slices of one size and of several; few at once, so that many generations pass."""
        for sizes in ((capacity // 32,), (5, 24, 64, 100)):
            seen = simulate(CircuitRack(1, capacity), DemandMix(sizes), load=0.95, arrivals=3_000, look_every=10**6)
            rack = SharedRack(float(capacity), 0.95, sizes=sizes)
            assert seen.acceptance == pytest.approx(float(rack.acceptance()), abs=0.03)

    def test_every_legal_rack_accepts_a_share_and_has_slopes(self):
        ends = itertools.product((1.0, 1.5, 255.7, 256.3, 1000.0, 4095.5, 4096.0), (1e-3, 1.0, 10.0), (0.1, 1.0))
        capacity, load, ratio = jnp.array(list(ends)).T

        def acceptance(*point):
            return SharedRack(*point, sizes=(1, 5, 16)).acceptance()

        value, slopes = jax.jit(jax.vmap(jax.value_and_grad(acceptance, argnums=(0, 1, 2))))(capacity, load, ratio)
        assert ((value >= 0) & (value <= 1)).all()
        assert all(bool(jnp.isfinite(slope).all()) for slope in slopes)

    @pytest.mark.parametrize("wrong", [dict(volumes=(1, 2)), dict(sizes=(2, 3), volumes=(2, 2))])
    def test_volumes_that_do_not_fit_the_sizes_are_refused(self, wrong):
        with pytest.raises(ConfigError, match="volumes"):
            SharedRack(64.0, **wrong)

    def test_a_rack_that_holds_no_slice_is_refused(self):
        with pytest.raises(ConfigError, match=r"capacity = 4 times effective_ratio = 0.5 holds no slice of volumes"):
            SharedRack(4.0, effective_ratio=0.5, sizes=(3, 8))

    @pytest.mark.parametrize("wrong", [dict(sizes=()), dict(sizes=(0, 3)), dict(sizes=(1, 2), weights=(1.0, 0.0))])
    def test_sizes_and_weights_of_nothing_are_refused(self, wrong):
        with pytest.raises(ConfigError, match=r"(sizes|weights) = .* must be"):
            SharedRack(64.0, **wrong)


class TestSimulation:
    @pytest.mark.parametrize("mix", MIXES)
    def test_a_rack_without_borders_is_the_recursion(self, mix):
        result = simulate(CircuitRack(1, 64), MIXES[mix], arrivals=8_000)
        rack = SharedRack(64.0, 0.8, sizes=MIXES[mix].sizes, weights=MIXES[mix].weights)
        assert result.acceptance == pytest.approx(float(rack.acceptance()), abs=0.015)
        assert result.utilisation == pytest.approx(float(rack.utilisation()), abs=0.015)
        assert result.fragmented == result.stranded == 0

    def test_a_single_kind_of_request_is_erlang_b(self):
        result = simulate(CircuitRack(1, 10), DemandMix((1,)), load=1.0, arrivals=8_000)
        terms = [10.0**n / factorial(n) for n in range(11)]
        assert 1 - result.requests == pytest.approx(terms[-1] / sum(terms), abs=0.015)

    def test_the_same_tenants_for_every_rack(self):
        first, second = (simulate(TorusCuboids(), MIXES["uniform 1-16"], arrivals=500, seed=3) for _ in range(2))
        assert first == second
        assert first.fragmented > 0.05


def test_a_facility_with_tenants_pays_for_what_they_leave_idle():
    alone, shared = Facility(), Facility(tenancy=SharedRack(64.0, 0.8, effective_ratio=0.88))
    assert float(alone.in_use_ratio()) == 1
    assert float(shared.in_use_ratio()) == pytest.approx(0.8 * float(shared.service()["acceptance"]))
    assert 0.4 < float(shared.in_use_ratio()) < 0.6
