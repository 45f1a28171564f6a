"""A fleet of replicas: one is the single engine, many are known queues, and nothing is lost by routing or failures."""

import collections
import dataclasses
import itertools
import time

import numpy as np
import pytest

from codesign.core.errors import ConfigError
from codesign.simulation.fleet import (
    ROUTERS,
    Failures,
    KeepSLO,
    LatencyLimits,
    RequestClass,
    Scaling,
    ScheduledScaling,
    TargetUtilisation,
    by_profile,
    conversations,
    dispersion,
    keeps_slo,
    markov_modulated,
    simulate_fleet,
    traffic_measures,
)
from codesign.simulation.fleet.routers import router_of
from codesign.simulation.serving import (
    Engine,
    Requests,
    RooflineSteps,
    TabulatedSteps,
    arrivals,
    lengths,
    simulate_open,
)

STEPS = RooflineSteps(2e-3, 5e-3, 2e-5, 1e-8, 1e-9)
ENGINE = Engine(STEPS, budget=2048, chunk=2048, sequences=64, block_tokens=16)
TOKENS = 1000  # of a prompt that a server of one unit takes a second for
SERVER = Engine(RooflineSteps(0.0, 0.0, 1 / TOKENS, 0.0, 0.0), budget=10**9, sequences=1)
"""One prompt at a time, whose tokens are its time: a queue with one server."""
CLASSES = (
    RequestClass("chat", 300, 200, share=3, prefix_tokens=2048, prefixes=200, turns=4, think_s=60),
    RequestClass("agent", 1500, 150, prefix_tokens=6144, prefixes=20, turns=12, think_s=4),
)


def plain(count: int, rate: float, seed: int = 0, cv: float = 1.0) -> Requests:
    rng = np.random.default_rng(seed)
    return Requests(lengths(rng, 500, 0.5, count), lengths(rng, 100, 0.5, count, 2), arrivals(rng, rate, cv, count))


def queue(count: int, load: float, servers: int, seed: int, *, fixed: bool) -> Requests:
    """Of a Poisson stream to so many servers of rate 1, with the means that are asked for, not nearly."""
    rng = np.random.default_rng(seed)
    drawn = rng.exponential(1.0, count)
    tokens = np.full(count, TOKENS) if fixed else np.maximum(np.rint(drawn * TOKENS / drawn.mean()), 1).astype(int)
    came = arrivals(rng, load * servers, 1.0, count)
    return Requests(tokens, np.ones(count, int), came * count / (load * servers * came[-1]))


def wait(requests: Requests, router: str, servers: int, seed: int = 0) -> float:
    """Mean seconds from a request's arrival to its end."""
    return float(simulate_fleet(SERVER, requests, router, replicas=servers, seed=seed).served.e2e_s.mean())


# --- the single engine


@pytest.mark.parametrize(
    "engine",
    [
        ENGINE,
        dataclasses.replace(ENGINE, blocks=900, sequences=40),
        dataclasses.replace(ENGINE, async_scheduling=True, host_s=6e-3, host_sequence_s=1e-5),
        dataclasses.replace(ENGINE, accepted=1.6, verified=3),
        dataclasses.replace(ENGINE, promised=True, blocks=2000),
    ],
    ids=["plain", "preempting", "asynchronous", "speculating", "promising"],
)
@pytest.mark.parametrize("router", ["round_robin", "power_of_two"])
def test_one_replica_is_the_single_engine(engine, router):
    """To the last bit: times of all requests, counts of all steps."""
    requests = plain(1500, 30, cv=2.0)
    alone, fleet = simulate_open(engine, requests), simulate_fleet(engine, requests, router).served
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert np.array_equal(getattr(alone, name), getattr(fleet, name))
    assert alone.summary() == fleet.summary()


def test_one_replica_with_a_store_is_the_single_engine_with_one():
    rng = np.random.default_rng(4)
    requests = conversations(rng, arrivals(rng, 0.3, 1.0, 100), CLASSES, open_loop=True, answer_s=5.0)
    engine = dataclasses.replace(ENGINE, store_blocks=800, store_token_s=1e-6)
    alone, fleet = simulate_open(engine, requests), simulate_fleet(engine, requests).served
    assert alone.summary() == fleet.summary()
    assert 0 < alone.counts["hit_tokens"] < requests.prompts.sum()


def test_replicas_by_turns_are_engines_that_each_see_their_part():
    """Steps that are cut elsewhere differ by rounding alone."""
    requests = plain(1500, 90)
    fleet = simulate_fleet(ENGINE, requests, "round_robin", replicas=3)
    for turn in range(3):
        own = np.arange(turn, 1500, 3)
        alone = simulate_open(ENGINE, requests.chosen(own))
        begin = len(own) - len(alone.ttft_s)
        assert (fleet.first - fleet.came)[own][begin:] == pytest.approx(alone.ttft_s, rel=1e-9, abs=1e-9)


# --- known queues


def test_turns_to_servers_are_lindleys_recursion():
    """To the last bit."""
    requests = queue(2000, 0.8, 3, 0, fixed=False)
    result = simulate_fleet(SERVER, requests, replicas=3)
    np.testing.assert_allclose(result.last, by_turns(requests, 3), rtol=1e-12)


def by_turns(requests: Requests, servers: int) -> np.ndarray:
    """Ends of requests that go to servers by turns: Lindley's recursion."""
    assert requests.arrivals is not None
    free, result = [0.0] * servers, list[float]()
    services = (requests.prompts / TOKENS).tolist()
    for one, (came, service) in enumerate(zip(requests.arrivals.tolist(), services, strict=True)):
        free[one % servers] = max(free[one % servers], came) + service
        result.append(free[one % servers])
    return np.array(result)


def time_by_turns(requests: Requests, servers: int) -> float:
    """Mean seconds of a request, by the recursion that `simulate_fleet` is held to here for a part of the stream."""
    part = requests.chosen(np.arange(10_000))
    np.testing.assert_allclose(simulate_fleet(SERVER, part, replicas=servers).last, by_turns(part, servers), rtol=1e-12)
    return float((by_turns(requests, servers) - requests.arrivals).mean())


@pytest.mark.slow
def test_turns_to_two_servers_are_erlang_arrivals():
    """E2/M/1: exponential services, every second arrival; the root of GI/M/1. Mean over seeds within 1 %."""
    load, root = 0.5, 0.5
    for _ in range(200):  # sigma = A*(mu (1 - sigma)), gaps of two exponentials of rate 2 load
        root = (2 * load / (2 * load + 1 - root)) ** 2
    result = np.mean([time_by_turns(queue(150_000, load, 2, seed, fixed=False), 2) for seed in range(4)])
    assert result == pytest.approx(1 / (1 - root), rel=0.01)


@pytest.mark.slow
def test_random_fixed_services_are_a_queue_of_one_server():
    """M/D/1 (Pollaczek and Khinchine): a Poisson stream split by sessions of one request each, at random."""
    load = 0.7
    result = np.mean([time_by_turns(queue(100_000, load, 1, seed, fixed=True), 1) for seed in range(4)])
    assert result == pytest.approx(1 + load / (2 * (1 - load)), rel=0.01)


@pytest.mark.slow
def test_slots_of_one_engine_are_servers():
    """M/M/c: answers of geometric lengths, steps of one length, c slots: Erlang's formula, within 1 % and a step."""
    servers, steps, load, count = 4, 400, 0.6, 40_000
    fixed = Engine(RooflineSteps(1 / steps, 0.0, 0.0, 0.0, 0.0), budget=10**9, sequences=servers)
    result = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        outputs = 1 + rng.geometric(1 / (steps - 1), count)
        came = arrivals(rng, load * servers * steps / outputs.mean(), 1.0, count)
        requests = Requests(np.ones(count, int), outputs, came)
        result.append(simulate_fleet(fixed, requests).served.e2e_s.mean())
    offered = load * servers
    terms = np.cumprod(np.concatenate([[1.0], offered / np.arange(1, servers + 1)]))
    queued = terms[-1] / (1 - load) / (terms[:-1].sum() + terms[-1] / (1 - load))
    mean = 1 + queued / (servers * (1 - load)) + 0.5 / steps
    assert np.mean(result) == pytest.approx(mean, rel=0.01)


@pytest.mark.slow
def test_two_choices_are_their_mean_field():
    """Many exponential servers at 0.9: sum of load^(2^i - 2), Mitzenmacher and Vvedenskaya; 1 % over 200 servers."""
    load, servers = 0.9, 200
    result = np.mean(
        [wait(queue(400_000, load, servers, seed, fixed=False), "power_of_two", servers) for seed in (0, 1)]
    )
    mean_field = sum(load ** (2.0**i - 2) for i in range(1, 12))
    assert result == pytest.approx(mean_field, rel=0.01)


def shortest(requests: Requests) -> np.ndarray:
    """Ends of requests that join the shorter of two queues, the next by turns where they are alike."""
    assert requests.arrivals is not None
    free, queues, turn, result = [0.0, 0.0], (collections.deque[float](), collections.deque[float]()), 0, list[float]()
    services = (requests.prompts / TOKENS).tolist()
    for came, service in zip(requests.arrivals.tolist(), services, strict=True):
        for ends in queues:
            while ends and ends[0] <= came:
                ends.popleft()
        turn = 1 - turn
        here = turn if len(queues[turn]) <= len(queues[1 - turn]) else 1 - turn
        free[here] = max(free[here], came) + service
        queues[here].append(free[here])
        result.append(free[here])
    return np.array(result)


@pytest.mark.slow
def test_the_shortest_of_two_queues():
    """Join the shortest queue of two exponential servers: stationary probabilities of its chain, cut at 40 each."""
    load, size = 0.6, 40
    rate, chain = 2 * load, np.zeros((size * size, size * size))
    for a in range(size):
        for b in range(size):
            here = a * size + b
            to = [(a + 1, b, rate)] if a < b else [(a, b + 1, rate)] if b < a else [
                (a + 1, b, rate / 2), (a, b + 1, rate / 2)]  # fmt: skip
            to += [(a - 1, b, 1.0)] * (a > 0) + [(a, b - 1, 1.0)] * (b > 0)
            for x, y, speed in to:
                if x < size and y < size:
                    chain[here, x * size + y] += speed
    system = np.vstack([(chain - np.diag(chain.sum(1))).T[:-1], np.ones(size * size)])
    held = np.linalg.solve(system, np.append(np.zeros(size * size - 1), 1.0))
    number = held @ np.add.outer(np.arange(size), np.arange(size)).ravel()
    streams = [queue(150_000, load, 2, seed, fixed=False) for seed in range(4)]
    part = streams[0].chosen(np.arange(20_000))
    told = simulate_fleet(SERVER, part, "least_outstanding", replicas=2)
    np.testing.assert_allclose(told.last, shortest(part), rtol=1e-12)
    result = np.mean([(shortest(one) - one.arrivals).mean() for one in streams])
    assert result == pytest.approx(number / rate, rel=0.01)


# --- conservation, routing, failures, scaling


@pytest.mark.parametrize("router", ROUTERS)
def test_every_request_is_answered_once_in_order(router):
    rng = np.random.default_rng(2)
    requests = conversations(rng, arrivals(rng, 1.0, 1.0, 150), CLASSES)
    engine = dataclasses.replace(ENGINE, store_blocks=500, chunk=4096, budget=4096)
    result = simulate_fleet(engine, requests, router, replicas=4, failures=Failures(60.0, 20.0), seed=1)
    assert result.failures > 0
    assert result.moved > 0
    assert np.isfinite(result.last).all()
    assert (result.first >= result.came).all()
    assert (result.last >= result.first).all()
    later = requests.after >= 0
    before = result.last[requests.after[later]]
    assert result.came[later] == pytest.approx(before + requests.think_s[later])  # a turn waits for the one before


def test_conversations_stay_where_they_are():
    rng = np.random.default_rng(2)
    requests = conversations(rng, arrivals(rng, 1.0, 1.0, 150), CLASSES)
    result = simulate_fleet(ENGINE, requests, "session_sticky", replicas=4)
    assert all(len(set(result.replica[requests.sessions == one])) == 1 for one in np.unique(requests.sessions))
    spread = simulate_fleet(ENGINE, requests, "round_robin", replicas=4)
    assert np.ptp(np.bincount(spread.replica)) <= 1


def test_prefixes_are_found_where_requests_go_to_them():
    rng = np.random.default_rng(3)
    requests = conversations(rng, arrivals(rng, 1.0, 1.0, 300), CLASSES)
    engine = dataclasses.replace(ENGINE, store_blocks=600)
    rates = {name: simulate_fleet(engine, requests, name, replicas=4).hit_rate for name in ROUTERS}
    assert rates["prefix_aware"] > rates["round_robin"] + 0.1
    assert rates["session_sticky"] > rates["round_robin"] + 0.1
    shared = simulate_fleet(dataclasses.replace(engine, store_blocks=2400), requests, replicas=4, shared_store=True)
    assert shared.hit_rate > rates["round_robin"] + 0.1  # one store that all reach needs no routing
    none = simulate_fleet(dataclasses.replace(engine, store_blocks=0), requests, replicas=4)
    assert none.hit_rate == 0


@pytest.mark.slow
def test_replicas_follow_the_load_and_are_paid_from_their_start():
    rng = np.random.default_rng(5)
    came = by_profile(rng, [5.0, 60.0, 5.0, 5.0], 300.0)
    count = len(came)
    requests = Requests(lengths(rng, 500, 0.5, count), lengths(rng, 100, 0.5, count, 2), came)
    for policy in (TargetUtilisation(20.0), KeepSLO(), ScheduledScaling([5.0, 60.0, 5.0, 5.0], 300.0, 20.0)):
        result = simulate_fleet(ENGINE, requests, "least_outstanding", scaling=Scaling(policy, slo=(0.5, 0.05)))
        assert np.isfinite(result.last).all()
    scheduled = result
    assert scheduled.starts >= 3
    ready = np.array([one[1] for one in scheduled.samples])
    when = np.array([one[0] for one in scheduled.samples])
    assert ready[(when > 320) & (when < 580)].min() == 5  # 60 / (0.7 20), there when the hour begins
    assert ready[when > 700].max() == 1
    assert scheduled.replica_s == pytest.approx(np.trapezoid([one[2] for one in scheduled.samples], when), rel=0.1)


def test_classes_have_limits_of_their_own():
    rng = np.random.default_rng(2)
    requests = conversations(rng, arrivals(rng, 1.0, 1.0, 150), CLASSES)
    result = simulate_fleet(ENGINE, requests, replicas=4)
    rows = result.by_class({"chat": LatencyLimits(1e-6, 1e-6), "": LatencyLimits(1e6, 1e6)})
    assert [(row["class"], row["attainment"], row["meets"]) for row in rows] == [
        ("chat", 0.0, False),
        ("agent", 1.0, True),
    ]


# --- traffic


def test_streams_have_the_rates_that_they_are_asked_for():
    rng = np.random.default_rng(0)
    came = markov_modulated(rng, (2.0, 20.0), (200.0, 50.0), 40_000)
    assert (np.diff(came) >= 0).all()
    assert len(came) / came[-1] == pytest.approx((2 * 200 + 20 * 50) / 250, rel=0.15)
    assert dispersion(came) > 20 > 2 > dispersion(arrivals(rng, 6.0, 1.0, 20_000))
    came = by_profile(rng, [1.0, 0.0, 9.0], 1000.0)
    counts = np.histogram(came, 3, (0, 3000))[0]
    assert counts[1] == 0
    assert counts[[0, 2]] == pytest.approx([1000, 9000], rel=0.1)


def test_a_conversation_begins_with_all_that_was_said():
    rng = np.random.default_rng(1)
    requests = conversations(rng, arrivals(rng, 1.0, 1.0, 60), CLASSES)
    for session in np.unique(requests.sessions):
        turns = np.flatnonzero(requests.sessions == session)
        for one, other in itertools.pairwise(turns):
            said = requests.hashes_of(one)
            assert requests.hashes_of(other)[: len(said)] == said
            assert requests.prompts[other] > requests.prompts[one] + requests.outputs[one]
    assert len(np.unique(requests.hashes)) == requests.hashes.max() + 1
    measures = traffic_measures(requests)
    assert 0.5 < measures["reused_ratio"] < 1
    assert measures["turns"] > 3


def test_what_cannot_be_is_one_line():
    requests = plain(100, 10)
    with pytest.raises(ConfigError, match="goes by a column session"):
        router_of("session_sticky", requests)
    with pytest.raises(ConfigError, match="goes by hash_ids"):
        simulate_fleet(ENGINE, requests, "prefix_aware", replicas=2)
    with pytest.raises(ConfigError, match="did you mean 'power_of_two'"):
        simulate_fleet(ENGINE, requests, "power_of_to", replicas=2)
    with pytest.raises(ConfigError, match="allowed are 1 to"):
        simulate_fleet(ENGINE, requests, replicas=0)
    with pytest.raises(ConfigError, match="needs requests with arrivals"):
        simulate_fleet(ENGINE, dataclasses.replace(requests, arrivals=None))
    with pytest.raises(ConfigError, match="must be above 0"):
        LatencyLimits(0.0, 1.0)
    with pytest.raises(ConfigError, match="least = 3 and most = 2"):
        Scaling(KeepSLO(), least=3, most=2)
    with pytest.raises(ConfigError, match="turns = 0"):
        RequestClass("a", 1, 1, turns=0)


@pytest.mark.slow
def test_a_million_requests_a_minute():
    """A light table of steps, 16 replicas, every router that needs no hashes."""
    requests = plain(50_000, 480)
    table = TabulatedSteps(
        [0.0, 32.0, 64.0], [0.0, 2048.0], np.array([[7e-3, 4.3e-2], [7.6e-3, 4.4e-2], [8.3e-3, 4.4e-2]]),
        np.full(3, 1e-8), 1e-9,
    )  # fmt: skip
    for router in ("round_robin", "least_outstanding", "power_of_two"):
        begun = time.process_time()
        simulate_fleet(dataclasses.replace(ENGINE, times=table), requests, router, replicas=16)
        assert 60 / (time.process_time() - begun) * len(requests) > 1e6


@pytest.mark.parametrize("rate", [5.0, 20.0, 40.0, 80.0])
@pytest.mark.parametrize("router", ["round_robin", "least_outstanding"])
def test_an_slo_is_kept_where_the_whole_simulation_attains_it(rate, router):
    """What stops at the first request too many that is late says what all requests say."""
    requests, verdicts = plain(400, rate, seed=3, cv=2.0), set()
    result = simulate_fleet(ENGINE, requests, router, replicas=2)
    late = [np.percentile(result.first - result.came, share) for share in (80, 95, 99)]
    for ttft_s in late:
        for share in (0.8, 0.95, 0.99):
            agreed = LatencyLimits(float(ttft_s), 1.0, share)
            verdict = keeps_slo(ENGINE, requests, agreed, router, replicas=2)
            assert verdict is (result.attainment(agreed) >= share)
            verdicts.add(verdict)
    assert verdicts == {True, False}
