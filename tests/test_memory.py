"""Memories: hit ratios against an executed cache, sharing against an executed pool, placement, edge, bad input."""

import itertools
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.config import build, scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace, walk
from codesign.jaxprs.evaluator import interpreted
from codesign.model.hardware import (
    CachedPool,
    Link,
    MemoryTier,
    Placement,
    SharedPool,
    Shoreline,
    TieredMemory,
    WorkingSet,
    ZipfLru,
)
from codesign.model.metrics import evaluate
from codesign.model.metrics.footprint import memory_limits
from codesign.search import Certified, Problem
from codesign.search.base import Trace
from codesign.search.results import designs
from codesign.study import Continuous, DesignSpace, Objective


def executed_hit_ratio(items: int, exponent: float, room: int, accesses: int = 60_000) -> float:
    """A least-recently-used cache, access by access, counted after it has warmed up."""
    generator = np.random.default_rng(7)
    weight = np.arange(1, items + 1) ** -exponent
    asked = generator.choice(items, size=accesses, p=weight / weight.sum())
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for step, item in enumerate(asked):
        hit = item in cache
        hits += hit and step >= accesses // 2
        cache.pop(item, None)
        cache[item] = None
        if len(cache) > room:
            cache.popitem(last=False)
    return hits / (accesses - accesses // 2)


@pytest.mark.parametrize(("exponent", "room"), [(0.0, 500), (0.8, 20), (0.8, 500), (1.2, 100)])
def test_lru_hits_are_those_of_an_executed_cache(exponent, room):
    model = ZipfLru(exponent, 2000.0, 64.0)
    assert float(model.ratio(jnp.asarray(room * 64.0))) == pytest.approx(
        executed_hit_ratio(2000, exponent, room), abs=0.015
    )


@pytest.mark.slow
def test_hit_ratio_is_smooth_up_to_everything():
    model = ZipfLru(1.05, 1e9, 128.0)
    sizes = jnp.asarray([1e3, 1e6, 1e9, 6.4e10, 1.28e11, 1e12])
    hits = jax.vmap(model.ratio)(sizes)
    assert np.all(np.diff(hits) >= 0)
    assert float(hits[-1]) == 1.0
    slope = jax.grad(lambda size: model.ratio(size))(1e9)
    step = 1e5
    finite = (model.ratio(jnp.asarray(1e9 + step)) - model.ratio(jnp.asarray(1e9 - step))) / (2 * step)
    assert float(slope) == pytest.approx(float(finite), rel=1e-4)


def test_transfers_of_half_size_reach_half_the_bandwidth():
    tier = MemoryTier(80e9, 3e12, half_bytes=8e6)
    assert float(8e6 / (8e6 + tier.added_bytes(jnp.asarray(8e6)))) == pytest.approx(0.5)
    slow = MemoryTier(80e9, 3e12, latency_s=1e-6)
    assert float((3e6 + slow.added_bytes(jnp.asarray(3e6))) / 3e12) == pytest.approx(1e-6 + 1e-6)


def test_read_ahead_hides_misses_behind_hits():
    near, far, port = MemoryTier(40e9, 3e12), MemoryTier(2e12, 1e12), Link(0.0, 1 / 1e12)
    serial, ahead = (CachedPool(near, far, port, 0.75, prefetch=share) for share in (0.0, 1.0))
    assert float(serial.bandwidth()) == pytest.approx(1 / (0.75 / 3e12 + 0.25 / 1e12))
    assert float(ahead.bandwidth()) == pytest.approx(1 / max(0.75 / 3e12, 0.25 / 1e12))


def test_a_model_of_hits_takes_the_place_of_the_number():
    near, far, port = MemoryTier(40e9, 3e12), MemoryTier(2e12, 1e12), Link(0.0, 1 / 1e12)
    pool = CachedPool(near, far, port, hits=WorkingSet(160e9))
    assert float(pool.hit()) == pytest.approx(0.25)
    gain = jax.grad(lambda size: replace(pool, {"cache.capacity_bytes": size}).bandwidth())(40e9)
    assert float(gain) > 0
    with pytest.raises(ConfigError, match="exactly one of hit_ratio"):
        CachedPool(near, far, port)


def shared(**changes) -> SharedPool:
    values = dict(tier=MemoryTier(32e12, 26.8e12), port=Link(0.0, 1 / 0.9e12), ports=16.0, sharers=16.0)
    return SharedPool(**(values | changes))


def executed_share(sharers: int, activity: float, slots: int = 20_000) -> float:
    """Mean time per byte of one accelerator when others pull in each slot with this probability, fair sharing."""
    others = np.random.default_rng(3).binomial(sharers - 1, activity, size=slots)
    rate = 26.8e12 / (1 + others)
    return slots / float(np.sum(rate))


@pytest.mark.parametrize("activity", [0.0, 0.3, 1.0])
def test_sharing_is_never_faster_than_an_executed_pool(activity):
    ours = 1 / float(shared(activity=activity, port_bound=0.0).bandwidth())
    executed = executed_share(16, activity)
    assert executed * (1 - 1e-6) <= ours <= 1.35 * executed
    if activity in (0.0, 1.0):
        assert ours == pytest.approx(executed)


def test_ports_bound_the_pool():
    assert float(shared().bandwidth()) == pytest.approx(0.9e12)
    assert float(shared(sharers=1.0, ports_per_accelerator=16.0).bandwidth()) == pytest.approx(14.4e12)
    assert float(shared(sharers=1.0, ports_per_accelerator=16.0).port_load()) == pytest.approx(26.8 / 14.4)
    assert float(shared(sharers=1.0, port_bound=0.0).bandwidth()) == pytest.approx(26.8e12)
    assert float(shared(ports=4.0).bandwidth()) == pytest.approx(4 * 0.9e12 / 16)


def tiered(prefetch: float = 0.0, **shares: float) -> TieredMemory:
    tiers = {"hbm": MemoryTier(80e9, 3e12, energy_j_per_byte=32e-12), "pool": shared()}
    placement = {"kv_cache": Placement(shares or {"hbm": 0.75, "pool": 0.25})}
    return TieredMemory(tiers, placement, near="hbm", prefetch=prefetch)


def test_every_class_takes_the_time_of_its_tiers():
    assert float(tiered().bandwidth("weights")) == pytest.approx(3e12)
    assert float(tiered().bandwidth("kv_cache")) == pytest.approx(1 / (0.75 / 3e12 + 0.25 / 0.9e12))
    assert float(tiered(prefetch=1.0).bandwidth("kv_cache")) == pytest.approx(1 / max(0.75 / 3e12, 0.25 / 0.9e12))


def test_every_tier_must_hold_its_part():
    limits = tiered().limits({"weights": jnp.asarray(40e9), "kv_cache": jnp.asarray(160e9)})
    assert float(limits["hbm"]) == pytest.approx((40e9 + 0.75 * 160e9) / 80e9)
    assert float(limits["pool"]) == pytest.approx(0.25 * 160e9 / 2e12)
    assert float(limits["placed.kv_cache"]) == pytest.approx(1.0)


def test_what_fits_tier_by_tier_fits_in_all():
    """Capacities, shares and data at random: the used share of all is never above the fullest tier's."""
    generator, spread = np.random.default_rng(5), 0.0
    for _ in range(200):
        near, far = generator.uniform(1e10, 2e11), generator.uniform(1e10, 1e13)
        share = generator.uniform(0, 1)
        memory = replace(tiered(hbm=share, pool=1 - share),
                         {"tiers.hbm.capacity_bytes": near, "tiers.pool.tier.capacity_bytes": far})  # fmt: skip
        stored = {name: jnp.asarray(generator.uniform(0, 3e11)) for name in ("weights", "kv_cache", "working")}
        limits = memory.limits(stored)
        whole = sum(float(nbytes) for nbytes in stored.values()) / float(memory.usable_bytes())
        fullest = max(float(limits[name]) for name in memory.tiers)
        assert whole <= fullest * (1 + 1e-5)
        spread = max(spread, fullest / whole)
    assert spread > 10  # a full tier beside an empty one


def test_the_room_of_all_tiers_together_is_told_and_limits_nothing():
    """Its used share is no log-convex function of capacities; that of every tier is, and says more."""
    metrics = evaluate(scenario_from_config("model=llama31_8b", "workload=static_batch", "memory=hbm_cxl_ssd"))
    plain = evaluate(scenario_from_config("model=llama31_8b", "workload=static_batch"))
    assert "usage.hbm" in metrics.flat()
    assert "implied" not in metrics.flat()
    shares = Objective().usages(metrics)
    assert "usage.hbm" not in shares
    assert {"usage.hbm.hbm", "usage.hbm.cxl", "usage.hbm.ssd"} <= set(shares)
    assert "usage.hbm" in Objective(fits=0.9).usages(metrics)
    assert "usage.hbm" in Objective().usages(plain)


@pytest.mark.slow
def test_capacities_of_tiers_are_chosen_with_a_proof():
    """The cheapest sizes of two tiers against every pair of a fine grid."""
    base = scenario_from_config("model=llama31_8b", "workload=static_batch", "memory=hbm_cxl_ssd", "framework=none",
                                "calibration=h100_sxm_roofline", "plan.tp=1", "cluster.device_count=8")  # fmt: skip
    near, far = (f"cluster.accelerator.hbm.tiers.{name}.capacity_bytes" for name in ("hbm", "cxl"))
    space = DesignSpace(
        {"micro_batch": (8.0, 16.0)}, {"near": Continuous(near, 1.8e10, 1.6e11), "far": Continuous(far, 1e8, 5e11)}
    )
    problem = Problem(base, space, Objective("usd_per_million_tokens"))
    trace = Certified(gap=1e-4).run(problem, 0)
    assert trace.certificate.certified
    best = float(designs(problem, trace, 0)["usd_per_million_tokens"].iloc[0])
    sizes = np.array(
        list(itertools.product((8.0, 16.0), np.geomspace(1.8e10, 1.6e11, 40), np.geomspace(1e8, 5e11, 40)))
    )
    columns = dict(zip(("micro_batch", "near", "far"), sizes.T, strict=True))
    grid = designs(problem, Trace(columns, ["grid"] * len(sizes)), 0)
    least = float(grid[grid["feasible"]]["usd_per_million_tokens"].min())
    assert best <= least * (1 + 1e-4)
    assert least <= best * 1.03  # the grid's own step


def test_time_is_log_convex_in_shares_and_bandwidths():
    """Along a line in the logarithms the middle is never above the mean of the ends."""
    paths = ("tiers.hbm.bandwidth_bytes_per_s", "tiers.pool.tier.bandwidth_bytes_per_s",
             "placement.kv_cache.shares.hbm", "placement.kv_cache.shares.pool")  # fmt: skip
    generator, memory = np.random.default_rng(11), tiered(prefetch=0.4)

    def log_time(logs):
        return -jnp.log(replace(memory, dict(zip(paths, jnp.exp(logs), strict=True))).bandwidth("kv_cache"))

    start = jnp.log(jnp.asarray([3e12, 26.8e12, 0.5, 0.5]))
    ends = start + jnp.asarray(generator.normal(0, 1.0, size=(2, 50, 4)))
    first, second, middle = (jax.vmap(log_time)(point) for point in (ends[0], ends[1], ends.mean(0)))
    assert np.all(np.asarray(middle) <= 0.5 * np.asarray(first + second) + 1e-9)


def test_edge_is_shared_by_stacks_links_and_ports():
    edge = Shoreline(60.0, {"hbm": 100e9, "scale_up": 50e9, "pool": 500e9})
    rates = tiered().edge_bytes_per_s() | {"scale_up": jnp.asarray(450e9)}
    assert float(edge.used_mm(rates)) == pytest.approx(3e12 / 100e9 + 450e9 / 50e9 + 0.9e12 / 500e9)
    price = jax.grad(lambda mm: Shoreline(mm, edge.bytes_per_s_per_mm).used_share(rates))(60.0)
    assert float(price) == pytest.approx(-float(edge.used_share(rates)) / 60.0)


def test_the_edge_of_a_study_by_hand():
    """72 mm: 4 TB/s of stacks at 11 mm a TB/s, 450 GB/s of links at 0.5 Tb/s/mm, one port at 4 Tb/s/mm."""
    cluster = scenario_from_config("experiment=serve_llama31_405b_edge").cluster
    share = memory_limits(cluster, {})["shoreline"]
    assert float(share) == pytest.approx((4 * 11 + 450 / 62.5 + 900 / 500) / 72, rel=1e-3)


def _tier(capacity: float, rate: float) -> MemoryTier:
    return MemoryTier(capacity, rate, 32e-12, 4e-9, 1e-11, 3e9, 1e-7, 1e5)


MEMORIES = {
    "tier": _tier(80e9, 3e12),
    "cached pool": CachedPool(
        _tier(72e9, 1.7e12), _tier(2e12, 4e11), Link(1e-7, 1e-12, 8e-11), 0.9, 0.4, None, 0.3, 4e-9
    ),
    "pool with a working set": CachedPool(
        _tier(72e9, 1.7e12), _tier(2e12, 4e11), Link(1e-7, 1e-12, 8e-11), hits=WorkingSet(200e9), remote_cache=0.4
    ),
    "pool with a hot set": CachedPool(
        _tier(72e9, 1.7e12), _tier(2e12, 4e11), Link(1e-7, 1e-12, 8e-11), hits=ZipfLru(1.05, 1e9, 128.0)
    ),
    "shared pool": SharedPool(
        _tier(32e12, 20e12), Link(5e-7, 1.1e-12, 8e-11), 12.0, 16.0, 1.5, 0.7, 0.6, usd_per_port=300.0
    ),
    "tiers": TieredMemory(
        {"hbm": _tier(80e9, 3e12), "cxl": _tier(5e11, 6e10)},
        {"kv_cache": Placement({"hbm": 0.75, "cxl": 0.25})},
        near="hbm",
        prefetch=0.3,
    ),
}


def answers(memory) -> jnp.ndarray:
    """The logarithms of everything a scenario asks of a memory."""
    stored = {"weights": jnp.asarray(40e9), "kv_cache": jnp.asarray(100e9)}
    told = [memory.bandwidth("kv_cache"), memory.energy("kv_cache"), memory.price_usd(), memory.static_power_w()]
    told += [memory.peak_power_w(), memory.added_bytes(jnp.asarray(1e6), "kv_cache"), memory.usable_bytes()]
    told += [*memory.limits(stored).values(), *memory.edge_bytes_per_s().values()]
    return jnp.log(jnp.stack([jnp.asarray(each) for each in told]))


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMORIES)
def test_finite_over_the_legal_box_with_slopes_as_differences_say(name):
    memory = MEMORIES[name]
    leaves = {path: (float(value), meta) for path, meta, value in walk(memory) if float(value) > 0}
    start = jnp.asarray([value for value, _ in leaves.values()])

    def told(values):
        return answers(replace(memory, dict(zip(leaves, values, strict=True))))

    value_and_slopes = interpreted(jax.vmap(lambda at: (told(at), jax.jacfwd(told)(at))))
    step = 1e-5 * start
    around = start + jnp.concatenate([jnp.diag(step), -jnp.diag(step)])
    generator, draws = np.random.default_rng(5), []
    for value, meta in leaves.values():
        low, high = max(meta["low"], 1e-3 * value), min(meta["high"], 1e3 * value)
        draws.append(np.exp(generator.uniform(np.log(low), np.log(high), 40)))
    reserved = [path.endswith("reserved_bytes") for path in leaves]  # what is left must be positive
    box = np.where(reserved, 1e6, np.stack(draws, axis=-1))
    values, slopes = value_and_slopes(jnp.concatenate([start[None], around, jnp.asarray(box)]))
    assert np.isfinite(values).all()
    assert np.isfinite(slopes).all()
    count = len(leaves)
    differences = (values[1 : 1 + count] - values[1 + count : 1 + 2 * count]) / (2 * step[:, None])
    scale = np.asarray(start)[None, :]
    np.testing.assert_allclose(np.asarray(slopes[0]) * scale, np.asarray(differences).T * scale, atol=1e-7, rtol=1e-5)


EXCEPTIONS = {  # what the classes name as not log-convex: shares that stand as 1 - x, and hits of a capacity
    "cached pool": ("hit_ratio", "remote_cache", "prefetch"),
    "pool with a working set": ("hits.", "remote_cache", "prefetch", "cache.capacity_bytes", "cache.reserved_bytes"),
    "pool with a hot set": ("hits.", "cache.capacity_bytes", "cache.reserved_bytes"),
    "shared pool": ("activity",),
    "tiers": ("prefetch",),
}


@pytest.mark.parametrize("name", MEMORIES)
def test_costs_are_log_convex_in_every_number_but_the_exceptions(name):
    memory = MEMORIES[name]
    start = {path: float(value) for path, _, value in walk(memory) if float(value) > 0}
    start = {path: value for path, value in start.items() if not path.startswith(EXCEPTIONS.get(name, ("-",)))}

    def costs(logs):
        tree = replace(memory, dict(zip(start, jnp.exp(logs), strict=True)))
        nbytes = jnp.asarray(1e6)
        transfer = (nbytes + tree.added_bytes(nbytes, "kv_cache")) / tree.bandwidth("kv_cache")
        limits = tree.limits({"weights": nbytes, "kv_cache": nbytes})
        used = [share for limit, share in limits.items() if not limit.startswith("placed")]
        used = used or [nbytes / tree.usable_bytes()]  # of several tiers, each must hold its part
        told = [transfer, *used, tree.energy("kv_cache"), tree.price_usd(), tree.static_power_w()]
        told += [tree.peak_power_w()]
        return jnp.log(jnp.stack([jnp.asarray(each) for each in told]))

    generator = np.random.default_rng(13)
    ends = np.log(list(start.values())) + generator.normal(0, 1.0, (2, 200, len(start)))
    reserved = [path.endswith("reserved_bytes") for path in start]
    ends[..., reserved] = np.log(1e6)
    first, second, middle = np.asarray(interpreted(jax.vmap(jax.vmap(costs)))(jnp.stack([*ends, ends.mean(0)])))
    assert np.isfinite(middle).all()
    assert np.all(middle <= 0.5 * (first + second) + 1e-9)


TIER = {"_target_": "codesign.model.hardware.MemoryTier", "capacity_bytes": 8e10, "bandwidth_bytes_per_s": 3e12}
PORT = {"_target_": "codesign.model.hardware.Link", "alpha_s": 0, "beta_s_per_byte": 1e-12}


def refusal(tree: dict) -> str:
    with pytest.raises(ConfigError) as error:
        build({"memory": tree})
    assert "\n" not in str(error.value)
    return str(error.value)


def test_bad_memories_are_refused_in_one_line():
    pool = {"_target_": "codesign.model.hardware.SharedPool", "tier": TIER, "port": PORT, "ports": 0, "sharers": 8}
    assert refusal(pool) == "memory.ports = 0 is outside [1, inf]"
    shares = {"_target_": "codesign.model.hardware.Placement", "shares": {"hbm": 0.5, "pool": 0.4}}
    tiers = {"_target_": "codesign.model.hardware.TieredMemory", "near": "hbm", "placement": {"kv_cache": shares}}
    tiers["tiers"] = {"hbm": TIER, "pool": TIER}
    assert "memory.placement.kv_cache: shares sum to 0.9, not to 1" in refusal(tiers)
    whole = shares | {"shares": {"hbm": 0.5, "pol": 0.5}}
    assert "memory tier 'pol' does not exist (did you mean" in refusal(tiers | {"placement": {"kv_cache": whole}})
    empty = tiers | {"tiers": {"hbm": TIER, "pool": TIER | {"capacity_bytes": 0}}, "placement": {}}
    assert "tiers.pool has no capacity" in refusal(empty)
