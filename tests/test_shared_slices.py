"""Slices that a shared rack gives: fibers that their jobs feel, and what a formula tells of racks with borders."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import pytest

from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.model.networks.collectives import RadixAllReduce
from codesign.model.networks.fabrics import Group, OpticalCircuit, on_slice
from codesign.model.slices import (
    MIXES,
    CircuitRack,
    EffectiveRatios,
    FixedServers,
    SharedRack,
    SubCubes,
    TorusCuboids,
    effective_ratio,
    effective_ratios,
    simulate,
)

CIRCUITS = OpticalCircuit(64.0, 300e9, 7e-7, 3.7e-6, wavelengths=16.0, fiber_bytes_per_s=300e9)
HALF = [4, 4, 4, 4, 8, 8, 8, 8]


class TestFibers:
    @pytest.mark.parametrize(("per_member", "ends"), [(0.0, 2), (0.5, 2), (1.0, 4), (9.0, 8)])
    def test_members_share_what_the_allocator_gave(self, per_member, ends):
        """Four members in each of four servers behind 2 fibers, or as many as they would like and there are."""
        link = on_slice(CIRCUITS, 16, HALF, 8, 8, per_member).link(Group(16.0))
        assert float(1 / link.beta_s_per_byte) == pytest.approx(min(300e9, ends * 300e9 / 4))

    def test_a_group_inside_one_server_has_full_rate(self):
        assert float(1 / on_slice(CIRCUITS, 16, HALF, 8, 8).link(Group(4.0)).beta_s_per_byte) == pytest.approx(300e9)

    def test_a_slice_in_one_server_needs_no_fibers(self):
        assert float(1 / on_slice(CIRCUITS, 8, [8, 0], 8, 0).link(Group(8.0)).beta_s_per_byte) == pytest.approx(300e9)

    def test_two_servers_take_a_fiber_each_and_the_fuller_one_decides(self):
        link = on_slice(CIRCUITS, 9, [2, 0], 8, 4).link(Group(9.0))  # 8 members in one, one in the other
        assert float(1 / link.beta_s_per_byte) == pytest.approx(300e9 / 8)

    @pytest.mark.parametrize(("taken", "words"), [([8, 8], "finds no place"), ([9, 0], "0 to 8"), ([4, 4], "no place")])
    def test_a_rack_without_a_place_refuses_in_one_line(self, taken, words):
        with pytest.raises(ConfigError, match=words) as told:
            on_slice(CIRCUITS, 12, taken, 8, 8)
        assert "\n" not in str(told.value)

    def test_more_fibers_shorten_the_job_s_collectives_up_to_its_own_rate(self):
        times = [
            float(RadixAllReduce(radix=4.0).cost(jnp.asarray(1e9), Group(16.0), on_slice(
                CIRCUITS, 16, HALF, 8, 8, wish).link(Group(16.0))).time_s)
            for wish in (0.0, 0.75, 1.0, 2.0)
        ]  # fmt: skip
        assert times[0] > times[1] > times[2] == times[3]

    def test_the_option_of_the_configuration(self):
        fabric = scenario_from_config("fabric=lightpath_slice", "collective=lumorph", "cluster.device_count=16",
                                      "plan.tp=16", "plan.pp=1").cluster.network["scale_up"].fabric  # fmt: skip
        assert (float(fabric.server_endpoints), float(fabric.server_fibers)) == (4.0, 2.0)


RACKS = {
    "circuits": (CircuitRack, (1.0, 1.0, 1.0)),
    "circuits of 256": (lambda: CircuitRack(32, 8, 8), (1.0, 1.0, 1.0)),
    "torus": (TorusCuboids, (0.915, 1.007, 0.970)),
    "SiPAC(4,3)": (lambda: SubCubes(4, 3), (0.931, 1.063, 0.937)),
    "SiPAC(2,6)": (lambda: SubCubes(2, 6), (0.936, 1.016, 0.969)),
    "SiPAC(4,4)": (lambda: SubCubes(4, 4), None),
}
"""Racks and the effective ratios of the uniform mix, as conf/facility has them; None: found here."""


@cache
def told(name):
    """Acceptance over load by the formula."""
    make, ratios = RACKS[name]
    mix = MIXES["uniform 1-16"]
    fields = (EffectiveRatios(*ratios) if ratios else effective_ratios(make, mix, arrivals=12_000))._asdict()
    volumes = tuple(make().volume(size) for size in mix.sizes)
    rack = SharedRack(float(make().capacity), sizes=mix.sizes, volumes=volumes, **fields)
    return jax.jit(lambda load: dataclasses.replace(rack, load=load).acceptance())


class TestFormula:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", RACKS)
    @pytest.mark.parametrize("load", [0.15, 0.4, 0.65, 1.1, 2.0, 8.0])
    def test_within_two_points_of_the_simulation(self, name, load):
        make, _ = RACKS[name]
        seen = simulate(make(), MIXES["uniform 1-16"], load, 12_000, seed=5, look_every=10**9).acceptance
        assert float(told(name)(jnp.asarray(load))) == pytest.approx(seen, abs=0.02)

    @pytest.mark.slow
    def test_the_files_of_the_configuration_hold_these_ratios(self):
        for option, name in (
            ("shared_rack", "circuits"),
            ("shared_rack_torus", "torus"),
            ("shared_rack_sipac", "SiPAC(4,3)"),
        ):
            rack = scenario_from_config(f"facility={option}").cluster.facility.tenancy
            result = tuple(float(getattr(rack, field)) for field in EffectiveRatios._fields)
            assert result == pytest.approx(RACKS[name][1], rel=1e-6)

    @pytest.mark.parametrize("capacity", [256.0, 512.0, 1024.0, 4096.0])
    def test_no_capacity_that_is_allowed_is_cut_off(self, capacity):
        """Larger racks grant more, never more than all."""
        small, large = (SharedRack(room, 0.8, sizes=(4, 16)) for room in (capacity / 2, capacity))
        assert float(small.acceptance()) <= float(large.acceptance()) + 1e-9 <= 1.0 + 1e-9
        assert float(dataclasses.replace(large, load=2.0).acceptance()) == pytest.approx(0.5, abs=0.03)

    def test_a_rack_that_never_holds_a_size_is_refused(self):
        with pytest.raises(ConfigError, match="never places a slice of 9"):
            effective_ratio(lambda: FixedServers(1, 8), MIXES["uniform 1-16"])

    def test_cubes_beyond_64_are_simulated(self):
        rack = SubCubes(4, 4)
        handles = [rack.allocate(16) for _ in range(16)]
        assert all(handles)
        assert rack.allocate(1) is None
        rack.release(handles[7])
        assert rack.largest() == 16
