"""One thin slice of each source document: the same interfaces, the same scenario, the same search."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import training
from contracts.menus import built
from slopes import values_and_slopes

from codesign.config.groups import PACKAGES
from codesign.core.fields import get_path, replace, walk
from codesign.model.hardware import CachedPool, Link, MemoryTier
from codesign.model.metrics import evaluate
from codesign.model.networks.collectives import NetworkLevel
from codesign.model.scenario import Scenario
from codesign.model.workloads import Plan
from codesign.search import Grid, Problem
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective

UP, OUT = "cluster.network.scale_up", "cluster.network.scale_out"


def exposed(**changes) -> Plan:
    """A plan whose communication nothing hides, so that a network's number is seen in the step time."""
    return Plan(**(dict(tp=8.0, pp=8.0, zero=1.0, recompute="selective", dp_overlap=0.0) | changes))


def with_parts(plan: Plan, parts: dict) -> Scenario:
    """The builders' cluster with whole parts exchanged, as a configuration group would."""
    scenario = training(plan=plan)
    cluster, accelerator = scenario.cluster, scenario.cluster.accelerator
    up, out = cluster.network["scale_up"], cluster.network["scale_out"]
    up = NetworkLevel(parts.get("fabric", up.fabric), parts.get("collective", up.collectives))
    values = {name: getattr(accelerator, name) for name in accelerator.__dataclass_fields__}
    values["hbm"] = parts.get("memory", accelerator.hbm)
    values = {name: getattr(cluster, name) for name in cluster.__dataclass_fields__} | {
        "accelerator": type(accelerator)(**values),
        "network": {"scale_up": up, "scale_out": parts.get("scale_out", out)},
    }
    return Scenario(type(cluster)(**values), scenario.workload, plan)


# Slice -> config options, plan, a number that is the slice's own and its bounds, whether more of it is better.
SLICES = {
    "scin": ({"collective": "scin"}, exposed(), f"{UP}.collectives.all_reduce.buffer_bytes", 8e3, 64e3, True),
    "lumorph": (
        {"fabric": "lightpath", "collective": "lumorph"}, exposed(tp=32.0, pp=1.0),
        f"{UP}.fabric.reconfiguration_s", 3.7e-6, 3e-5, False,  # interferometers are not set faster
    ),
    "fabrex": ({"fabric": "fabrex_pcie"}, exposed(tp=16.0), f"{UP}.fabric.crossings", 1.0, 4.0, True),
    "contended": (
        {"scale_out": "infiniband_ndr_contended"}, exposed(), f"{OUT}.fabric.background_bytes_per_s", 1e9, 45e9, False,
    ),
    "pool": (
        {"memory": "photonic_pool"}, exposed(), "cluster.accelerator.hbm.port.beta_s_per_byte", 2e-13, 1e-11, False,
    ),
}  # fmt: skip


@cache
def scenario_of(name: str) -> Scenario:
    options, plan = SLICES[name][:2]
    return with_parts(plan, {group: built(group, option) for group, option in options.items()})


def headline(scenario: Scenario):
    metrics = evaluate(scenario)
    return jnp.stack([
        metrics.time_s, metrics.usd_per_million_tokens, metrics.energy_j, metrics.capex_usd,
        metrics.provisioned_power_w, metrics.usage["hbm"],
    ])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SLICES)
def test_priced_and_differentiable_in_every_number_of_its_own(name):
    scenario, (options, _, path, low, high, more_is_better) = scenario_of(name), SLICES[name]
    places = tuple(PACKAGES[group] for group in options)
    numbers = {key: value for key, _, value in walk(scenario) if key.startswith(places)}

    def at(numbers):
        return headline(replace(scenario, numbers))

    values, slopes = values_and_slopes(at, numbers, {path: np.geomspace(low, high, 4)})
    assert np.isfinite(values).all()
    assert (values > 0).all()
    assert all(np.isfinite(slope).all() for slope in slopes.values())
    assert (slopes[path] != 0).any()
    seconds = values[:, 0] if more_is_better else values[::-1, 0]
    assert (np.diff(seconds) <= 1e-12 * seconds[0]).all()
    assert seconds[-1] < seconds[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SLICES)
def test_found_by_the_search(name):
    """Four plans and three levels of the slice's own number: the exhaustive search takes the better end."""
    _, _, path, low, high, more_is_better = SLICES[name]
    space = DesignSpace(
        plan={"micro_batch": [1, 2], "recompute": ["selective", "full"]},
        hardware={"own": Continuous(path, low, high, grid=3)},
    )
    trace = Grid(batch_size=256, top_k=8).run(Problem(scenario_of(name), space, Objective("time_s")), seed=0)
    assert trace.counts["points"] == 12
    assert trace.counts["feasible"] >= 3
    assert trace.points["own"][0] == pytest.approx(high if more_is_better else low)


class TestNetworks:
    """What a tensor-parallel all-reduce of the scenario costs, against the documents."""

    @staticmethod
    def all_reduce(name: str, nbytes: float, axis: str = "tp", changes: dict | None = None) -> float:
        scenario = replace(scenario_of(name), changes or {})
        return float(scenario.cluster.communicate("all_reduce", axis, jnp.asarray(nbytes), scenario.layout).time_s)

    def test_in_network(self):
        system = {f"{UP}.fabric.latency_s": 500e-9, f"{UP}.fabric.bandwidth_bytes_per_s": 450e9}
        assert self.all_reduce("scin", 2**24, changes=system) == pytest.approx(48.25e-6, rel=1e-3)

    def test_photonic_circuits(self):
        whole = {f"{UP}.fabric.wavelengths": 0.0, "plan.tp": 128.0}
        assert self.all_reduce("lumorph", 8e6, changes=whole) == pytest.approx(88.1e-6, abs=0.05e-6)

    def test_pcie_over_both_boxes_at_the_bus_bandwidth_of_its_crossings(self):
        seconds = self.all_reduce("fabrex", 1e9)
        bus_bandwidth = 2 * 15 / 16 * 1e9 / (seconds - 30 * (1e-6 + 4 * 0.15e-6))
        assert bus_bandwidth == pytest.approx(4 * 26.08e9, rel=1e-3)

    def test_contended_card_leaves_forty_of_fifty(self):
        free = self.all_reduce("contended", 1e9, "data", {f"{OUT}.fabric.background_bytes_per_s": 0.0})
        taken = self.all_reduce("contended", 1e9, "data")
        shared = jnp.asarray([free, taken]) - self.all_reduce("contended", 1.0, "data")
        assert float(shared[1] / shared[0]) == pytest.approx(50 / 40, rel=0.01)


class TestCachedPool:
    """The pooled tier in place of a device's memory."""

    near = MemoryTier(80e9, 3.35e12, energy_j_per_byte=4e-11, usd_per_byte=12e-9)
    far = MemoryTier(2e12, 400e9, energy_j_per_byte=1e-10, usd_per_byte=4e-9, static_w_per_byte=1e-11)

    def pool(self, hit=0.9, **changes) -> CachedPool:
        return CachedPool(self.near, self.far, Link(0.0, 1 / 900e9, 8e-11), hit, **changes)

    def test_bandwidth_is_the_harmonic_mean_of_hits_and_misses(self):
        assert float(self.pool().bandwidth()) == pytest.approx(1 / (0.9 / 3.35e12 + 0.1 / 400e9))
        assert float(self.pool(hit=1.0).bandwidth()) == pytest.approx(3.35e12)
        assert float(self.pool(hit=0.0).bandwidth()) == pytest.approx(400e9)

    def test_a_narrow_port_bounds_misses_and_where_the_cache_is_remote_hits_too(self):
        narrow = CachedPool(self.near, self.far, Link(0.0, 1 / 100e9), 0.5)
        assert float(narrow.bandwidth()) == pytest.approx(1 / (0.5 / 3.35e12 + 0.5 / 100e9))
        assert float(self.pool(hit=1.0, remote_cache=1.0).bandwidth()) == pytest.approx(900e9)

    def test_energy_counts_the_cache_the_pool_and_the_port(self):
        assert float(self.pool().energy()) == pytest.approx(4e-11 + 0.1 * (1e-10 + 8e-11))
        assert float(self.pool(remote_cache=1.0).energy()) == pytest.approx(4e-11 + 0.1 * 1e-10 + 8e-11)

    def test_price_power_and_capacity(self):
        pool = self.pool()
        assert float(pool.usable_bytes()) == 2e12
        assert float(pool.price_usd()) == pytest.approx(80 * 12 + 2000 * 4)
        assert float(self.pool(usd_per_port_bytes_per_s=4e-9).price_usd()) == pytest.approx(80 * 12 + 2000 * 4 + 3600)
        assert float(pool.static_power_w()) == pytest.approx(20)
        assert float(pool.peak_power_w()) == pytest.approx(3.35e12 * 4e-11 + 400e9 * (1e-10 + 8e-11) + 20)
        assert float(pool.peak_power_w()) >= float(pool.bandwidth() * pool.energy() + pool.static_power_w())

    @pytest.mark.slow
    def test_a_model_that_fits_nowhere_else_fits_and_costs_what_it_is(self):
        small = exposed(tp=1.0, pp=1.0, zero=0.0)
        near, pooled = with_parts(small, {"memory": self.near}), with_parts(small, {"memory": self.pool()})
        assert float(evaluate(near).usage["hbm"]) > 1
        metrics = evaluate(pooled)
        assert float(metrics.usage["hbm"]) == pytest.approx(float(evaluate(near).usage["hbm"]) * 80e9 / 2e12)
        dearer = float(metrics.capex_usd - evaluate(near).capex_usd)
        assert dearer == pytest.approx(1024 * 2000 * 4, rel=1e-6)

    @pytest.mark.parametrize("path", ["hit_ratio", "port.beta_s_per_byte", "cache.bandwidth_bytes_per_s"])
    def test_slopes_agree_with_finite_differences(self, path):
        pool = CachedPool(self.near, self.far, Link(0.0, 1 / 300e9), 0.9)
        start = float(get_path(pool, path))

        def bandwidth(factor):
            return replace(pool, {path: start * factor}).bandwidth()

        numeric = (bandwidth(1 + 1e-6) - bandwidth(1 - 1e-6)) / 2e-6
        assert float(jax.grad(bandwidth)(1.0)) == pytest.approx(float(numeric), rel=1e-4)
        assert float(numeric) != 0

    def test_the_port_is_what_the_appliance_delivers(self):
        """26.8 TB/s to one accelerator is more than its port carries; the configuration keeps to the port."""
        pool = built("memory", "photonic_pool")
        assert float(pool.cache.bandwidth_bytes_per_s) * 16 == pytest.approx(26.8e12)
        assert float(pool.bandwidth()) < 0.9e12
        free = replace(pool, {"port.beta_s_per_byte": 1e-18, "hit_ratio": 1.0})
        assert float(free.bandwidth()) == pytest.approx(1.675e12)
