"""Hit rates from the room of a prefix cache: Che's approximation beside caches that are replayed, slopes, bounds."""

import itertools
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.model.workloads.prefix_reuse import HitCurve, curve_of_rates, curve_of_reuse, power_bounds
from codesign.simulation.fleet import RequestClass, conversations, reuse_of
from codesign.simulation.serving import Requests, arrivals
from codesign.simulation.serving.cache_blocks import PrefixStore

CLASSES = (
    RequestClass("chat", 300, 200, share=3, prefix_tokens=2048, prefixes=200, turns=4, think_s=60),
    RequestClass("agent", 1500, 150, prefix_tokens=6144, prefixes=20, turns=12, think_s=4),
    RequestClass("documents", 3000, 150, prefix_tokens=10240, prefixes=2000, zipf=0.8),
)
SHARES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of the different blocks that there is room for


def trace(seed: int, count: int) -> Requests:
    rng = np.random.default_rng(seed)
    return conversations(rng, arrivals(rng, 1.2, 1.5, count), CLASSES, open_loop=True, answer_s=8.0)


def replayed(requests: Requests, room: int) -> float:
    """Share of blocks found by a cache, written without the package's."""
    held: OrderedDict[int, None] = OrderedDict()
    result = 0
    for request in range(len(requests)):
        blocks = requests.hashes_of(request)
        result += sum(1 for _ in itertools.takewhile(held.__contains__, blocks))
        for block in reversed(blocks):
            held.pop(block, None)
            held[block] = None
        while len(held) > room:
            held.popitem(last=False)
    return result / len(requests.hashes)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_a_trace_of_conversations_is_met_within_two_points(seed):
    requests = trace(seed, 400 if seed == 0 else 2500)
    reuse = reuse_of(requests)
    curve = curve_of_reuse(reuse)
    for share in SHARES:
        room = max(int(share * reuse.blocks), 1)
        assert float(curve.hit(jnp.asarray(float(room)))) == pytest.approx(replayed(requests, room), abs=0.02)


def test_the_store_finds_what_another_cache_finds():
    requests = trace(5, 120)
    for room in (3, 200, 1500):
        store, result = PrefixStore(room), 0
        for request in range(len(requests)):
            blocks = requests.hashes_of(request)
            count = store.leading(blocks)
            store.use(blocks, count)
            store.put(blocks)
            result += count
        assert result / len(requests.hashes) == pytest.approx(replayed(requests, room), abs=1e-12)


@pytest.mark.slow
def test_independent_references_meet_the_closed_form_within_one_percent():
    """Zipf's law over 2,000 blocks, prompts of one block: Che's limit."""
    rng = np.random.default_rng(0)
    rates = np.arange(1, 2001.0) ** -0.9
    drawn = rng.choice(2000, 400_000, p=rates / rates.sum())
    requests = Requests(np.full(len(drawn), 512), np.ones(len(drawn), int), hashes=drawn,
                        hash_starts=np.arange(len(drawn) + 1))  # fmt: skip
    curve = curve_of_rates(jnp.asarray(rates))
    for room in (50, 200, 800):
        assert float(curve.hit(jnp.asarray(float(room)))) == pytest.approx(replayed(requests, room), rel=0.01)


def test_limits_by_hand():
    alike = curve_of_rates(jnp.ones(100))  # every block as likely: the share that there is room for
    rooms = jnp.asarray([0.0, 10.0, 50.0, 99.9])
    assert np.asarray(jax.vmap(alike.hit)(rooms)) == pytest.approx(np.asarray(rooms) / 100, abs=1e-3)
    assert float(alike.room_for(jnp.asarray(0.25))) == pytest.approx(25, rel=1e-3)
    # a b c a b c: every block is back after two others, so room for three finds all, for two none
    turns = Requests(np.full(30, 512), np.ones(30, int), hashes=np.arange(30) % 3, hash_starts=np.arange(31))
    curve = curve_of_reuse(reuse_of(turns))
    assert [float(curve.hit(jnp.asarray(room))) for room in (0.0, 2.0, 3.0, 9.0)] == pytest.approx([0, 0, 0.9, 0.9])
    new = Requests(np.full(5, 512), np.ones(5, int), hashes=np.arange(5), hash_starts=np.arange(6))
    assert float(curve_of_reuse(reuse_of(new)).hit(jnp.asarray(100.0))) == 0


def curves() -> list[HitCurve]:
    return [curve_of_reuse(reuse_of(trace(3, 150))), curve_of_rates(jnp.arange(1, 500.0) ** -0.8)]


def inside(curve: HitCurve) -> tuple[float, float]:
    """Rooms that are not so large that nothing is missed but by rounding."""
    some = np.asarray(curve.shares[1:]) < 1 - 1e-6
    rooms = np.asarray(curve.rooms[1:])[some]
    return float(rooms[0]), float(rooms[-1])


@pytest.mark.parametrize("which", [0, 1])
def test_slopes_are_those_of_differences_and_vmap_is_the_plain_call(which):
    curve = curves()[which]
    rooms = np.geomspace(3.3, float(curve.rooms[-1]) * 1.5, 40)
    each = [float(curve.hit(jnp.asarray(room))) for room in rooms]
    assert np.asarray(jax.jit(jax.vmap(curve.hit))(jnp.asarray(rooms))) == pytest.approx(each, abs=1e-12)
    assert (np.diff(each) >= -1e-12).all()
    for room in rooms:
        slope = float(jax.grad(curve.hit)(jnp.asarray(room)))
        step = 1e-7 * room
        ahead, behind = (float(curve.hit(jnp.asarray(room + by))) for by in (step, -step))
        knots = np.abs(np.asarray(curve.rooms) - room).min()
        if knots > 2 * step:
            assert slope == pytest.approx((ahead - behind) / (2 * step), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("which", [0, 1])
def test_monomials_never_exceed_what_is_missed_and_touch_it(which):
    curve = curves()[which]
    bounds = power_bounds(curve)
    rooms = np.geomspace(*inside(curve), 400)
    missed = 1 - np.array([float(curve.hit(jnp.asarray(room))) for room in rooms])
    least = np.asarray(bounds.missed(jnp.asarray(rooms)))
    assert (least <= missed * (1 + 1e-9)).all()
    touched = np.isclose(1 - np.asarray(curve.shares[1:]), np.asarray(bounds.missed(curve.rooms[1:])), rtol=1e-9)
    assert touched.sum() >= 2
    logs = np.log(np.asarray(bounds.missed(jnp.asarray(rooms))))
    assert (logs[1:-1] <= 0.5 * (logs[:-2] + logs[2:]) + 1e-12).all()  # log-convex in the logarithm of the room


def test_the_share_that_is_missed_is_not_log_convex_as_said():
    """Blocks alike: 1 - C / n; of a trace, near no room."""
    curve = curve_of_rates(jnp.ones(100))
    missed = [np.log(1 - float(curve.hit(jnp.asarray(room)))) for room in (20.0, 40.0, 80.0)]
    assert missed[1] > 0.5 * (missed[0] + missed[2])
