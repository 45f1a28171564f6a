"""The simulation of an engine: queues with known answers, a second plain engine, conservation, wrong input."""

import math

import numpy as np
import pytest
from plain_engine import PlainEngine

from codesign.core.errors import ConfigError
from codesign.simulation.serving import (
    Engine,
    Replica,
    Requests,
    RooflineSteps,
    TabulatedSteps,
    arrivals,
    lengths,
    read_trace,
    simulate_apart,
    simulate_closed,
    simulate_open,
)

STEPS = RooflineSteps(0.002, 0.01, 1e-5, 1e-7, 1e-9)


def drawn(seed: int, count: int, prompt: float = 400.0, answer: float = 60.0, rate: float = 0.0) -> Requests:
    rng = np.random.default_rng(seed)
    came = arrivals(rng, rate, 1.0, count) if rate else None
    return Requests(lengths(rng, prompt, 0.6, count), lengths(rng, answer, 0.5, count), came)


@pytest.mark.slow
def test_prompts_alone_are_a_queue_with_one_server():
    """M/D/1 and M/G/1: the wait is rho S (1 + v^2) / (2 (1 - rho)) (Pollaczek and Khinchine)."""
    rng, count, second = np.random.default_rng(3), 60_000, 0.1
    engine = Engine(RooflineSteps(0.0, second, 1e-12, 0.0, 0.0), budget=100)
    ones = np.ones(count, int)
    for sizes in (np.full(count, 100), 100 * rng.geometric(0.5, count)):
        mean, square = sizes.mean() / 100 * second, (sizes**2).mean() / 1e4 * second**2
        rate = 0.6 / mean
        served = simulate_open(engine, Requests(sizes, ones, arrivals(rng, rate, 1.0, count)))
        expected = mean + rate * square / (2 * (1 - rate * mean))
        assert served.ttft_s.mean() == pytest.approx(expected, rel=0.04)


def test_even_arrivals_below_the_rate_never_wait():
    engine = Engine(RooflineSteps(0.0, 0.1, 1e-12, 0.0, 0.0), budget=100)
    served = simulate_open(engine, Requests(np.full(500, 100), np.ones(500, int), np.arange(500) / 9.0))
    assert served.ttft_s == pytest.approx(0.1)


def test_decodes_share_the_processor():
    """A step as long as it has sequences: time in the system S / (1 - rho), whatever the lengths (M/G/1-PS)."""
    token, rate = 1e-3, 6.0
    for cv in (0.3, 1.0):
        rng = np.random.default_rng(5)
        answers = lengths(rng, 101.0, cv, 12_000, least=2)
        engine = Engine(RooflineSteps(0.0, 0.0, token, 0.0, 0.0), budget=10**6, sequences=10**6)
        requests = Requests(np.ones(len(answers), int), answers, arrivals(rng, rate, 1.0, len(answers)))
        served = simulate_open(engine, requests)
        mean = token * answers.mean()
        assert served.e2e_s.mean() == pytest.approx(mean / (1 - rate * mean), rel=0.1)


@pytest.mark.parametrize("seed", range(6))
def test_a_plain_engine_agrees(seed):
    """Blocks with owners, one step at a time: times of every request to rounding, with and without preemption."""
    rng = np.random.default_rng(seed)
    requests = drawn(seed, 120, rate=30.0)
    engine = Engine(
        STEPS, budget=int(rng.integers(100, 700)), chunk=int(rng.integers(64, 512)), sequences=int(rng.integers(4, 40)),
        blocks=int(rng.integers(220, 600)), block_tokens=int(rng.choice([1, 7, 16])) if seed else 16,
        host_s=1e-3, host_sequence_s=1e-5,
    )  # fmt: skip
    engine = engine if engine.blocks * engine.block_tokens > 3000 else Engine(STEPS, budget=512, blocks=240)
    concurrency = None if seed % 2 else 24
    plain = PlainEngine(engine, requests)
    first, last = plain.serve(concurrency)
    replica = Replica(engine, requests)
    following = concurrency or 0
    for request in range(following):
        replica.add(request)

    def done(_: int) -> None:
        nonlocal following
        if concurrency and following < len(requests):
            replica.add(following)
            following += 1

    while replica.finished < len(requests):
        while not concurrency and following < len(requests) and requests.arrivals[following] <= replica.now:
            replica.add(following)
            following += 1
        upcoming = requests.arrivals[following] if not concurrency and following < len(requests) else math.inf
        if not replica.step(upcoming, done):
            replica.now = upcoming
    np.testing.assert_allclose(replica.first, first, rtol=1e-9)
    np.testing.assert_allclose(replica.last, last, rtol=1e-9)
    assert replica.preempted == plain.preempted
    assert replica.pool.free == engine.blocks


def test_some_of_these_engines_preempt():
    engine, requests = Engine(STEPS, budget=512, blocks=240), drawn(0, 120)
    assert simulate_closed(engine, requests, 24).counts["preempted"] > 0


def test_requests_and_tokens_are_conserved():
    requests = drawn(1, 3000, rate=25.0)
    for engine in (Engine(STEPS, 2048), Engine(STEPS, 2048, async_scheduling=True, host_s=0.012)):
        served = simulate_open(engine, requests, timeline=True)
        assert served.counts["finished"] == len(requests)
        assert served.counts["prompt_tokens"] == requests.prompts.sum()
        assert served.counts["decode_tokens"] == (requests.outputs - 1).sum()
        table = np.array(served.timeline)
        assert (table[:, 2] * table[:, 3]).sum() == served.counts["decode_tokens"]
        assert np.all(np.diff(table[:, 0]) > 0)


def test_a_prefix_is_computed_once_and_its_blocks_are_shared():
    count = 400
    requests = Requests(np.full(count, 640), np.full(count, 20), None, np.zeros(count, int), 512)
    plain, cached = (simulate_closed(Engine(STEPS, 1024, prefix_cache=on), requests, 8) for on in (False, True))
    hits = cached.counts["hit_tokens"]
    assert cached.counts["prompt_tokens"] + hits == plain.counts["prompt_tokens"] == 640 * count
    assert hits >= 512 * (count - 8)
    assert cached.ttft_s.mean() < plain.ttft_s.mean()


def test_prefixes_nobody_uses_make_room():
    count = 300
    requests = Requests(np.full(count, 300), np.full(count, 30), None, np.arange(count) // 3, 256)
    served = simulate_closed(Engine(STEPS, 512, blocks=120, prefix_cache=True), requests, 4)
    assert served.counts["finished"] == count
    assert served.counts["hit_tokens"] > 0


def test_a_scheduler_one_step_ahead_sees_who_comes_a_step_later():
    """Half a step until the next begins, one that is decided already, and its own."""
    count, step = 4000, 0.01
    rng = np.random.default_rng(0)
    long = Requests(
        np.concatenate([[1], np.full(count, 1)]), np.concatenate([[10**7], np.full(count, 1)]),
        np.concatenate([[0.0], 1 + np.cumsum(rng.uniform(0.9, 1.1, count))]),
    )  # fmt: skip
    for ahead, steps in ((False, 1.5), (True, 2.5)):
        replica_engine = Engine(RooflineSteps(0.0, step, 1e-12, 0.0, 0.0), 64, async_scheduling=ahead)
        waits = _first_tokens(replica_engine, long)
        assert waits.mean() / step == pytest.approx(steps, rel=0.03)


def _first_tokens(engine: Engine, requests: Requests) -> np.ndarray:
    replica, place = Replica(engine, requests), 0
    while replica.finished < len(requests) - 1:
        while place < len(requests) and requests.arrivals[place] <= replica.now:
            replica.add(place)
            place += 1
        upcoming = requests.arrivals[place] if place < len(requests) else math.inf
        if not replica.step(upcoming, lambda _: None):
            replica.now = upcoming
    return (replica.first - requests.arrivals)[1:]


def test_pools_apart():
    """Prompts wait for their pool alone; the link's time goes to the second token."""
    requests = drawn(2, 4000, rate=20.0)
    prefill, decode = Engine(STEPS, 1024), Engine(STEPS, 1024, sequences=256)
    near = simulate_apart(prefill, decode, (2, 1), requests, lambda tokens: 0.0 * tokens)
    far = simulate_apart(prefill, decode, (2, 1), requests, lambda tokens: 1e-4 * tokens)
    assert far.ttft_s.mean() == near.ttft_s.mean()
    assert far.tpot_s.mean() > near.tpot_s.mean()
    later = requests.prompts[len(requests) // 5 :]  # those that are measured
    alone = np.array([STEPS.linear_s(0, tokens) + 0.5 * STEPS.pair_s * tokens**2 for tokens in later.tolist()])
    assert (near.ttft_s >= alone - 1e-12).all()
    assert near.counts["decode_tokens"] == (requests.outputs - 1).sum()


def test_seeds_scatter_little():
    means = [simulate_closed(Engine(STEPS, 1024), drawn(seed, 6000), 32).summary()["tpot_s"] for seed in range(5)]
    assert np.std(means) / np.mean(means) < 0.01


def test_tables_of_steps_meet_what_they_are_made_of():
    listed, tokens = [0.0, 8.0, 64.0], [0.0, 256.0, 2048.0]
    linear = np.array([[STEPS.linear_s(int(n), int(c)) for c in tokens] for n in listed])
    table = TabulatedSteps(listed, tokens, linear, np.full(3, 1e-7), 1e-9)
    assert table.linear_s(8, 256) == pytest.approx(STEPS.linear_s(8, 256))
    assert table.linear_s(36, 2048) == pytest.approx((linear[1, 2] + linear[2, 2]) / 2)
    assert table.linear_s(128, 0) == pytest.approx(linear[2, 0] + (linear[2, 0] - linear[1, 0]) / 56 * 64)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty", "arrival_s"]),
        ("arrival_s,input_tokens\n1,2\n", ["no column output_tokens"]),
        ("arrival_s,input_tokens,output_tokens\n0,10,5\n1,ten,5\n", ["line 3", "input_tokens", "'ten'", "no number"]),
        ("arrival_s,input_tokens,output_tokens\n0,10,5\n1,,5\n", ["line 3", "input_tokens", "is empty"]),
        ("arrival_s,input_tokens,output_tokens\n2,10,5\n1,10,5\n", ["line 3", "arrival_s is 1 s before", "sort"]),
        ("arrival_s,input_tokens,output_tokens\n2,10,5\n\n1,10,5\n", ["line 4", "arrival_s is 1 s before"]),
        ("arrival_s,input_tokens,output_tokens\n2,1,024,5\n3,10,5\n", ["line 2", "4 cells", "separators"]),
        ("arrival_s,input_tokens,input_tokens\n2,10,5\n", ["two columns input_tokens"]),
        ("arrival_s,input_tokens,output_tokens\n0,10,5\n1,nan,5\n", ["line 3", "input_tokens = 'nan' is no number"]),
        ("arrival_s,input_tokens,output_tokens\n0,10,5\n1,10\n", ["line 3", "output_tokens is empty"]),
        ("arrival_s,input_tokens,output_tokens\n0,10,5\n1,10,-5\n", ["line 3", "output_tokens = -5", "outside"]),
        ("arrival_s,input_tokens,output_tokens\n2,10,0\n", ["line 2", "output_tokens = 0", "outside"]),
    ],
)
def test_traces_with_gaps_or_text(text, words, tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_trace(path)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)


def test_a_trace_starts_at_zero(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n5,100,10\n6.5,200,20\n")
    result = read_trace(path)
    assert result.arrivals.tolist() == [0.0, 1.5]
    assert result.prompts.tolist() == [100, 200]


def test_what_never_fits_is_refused():
    with pytest.raises(ConfigError, match=r"request \d+ of \d+ tokens lacks \d+ of"):
        simulate_closed(Engine(STEPS, 512, blocks=4), drawn(0, 50), 4)
    with pytest.raises(ConfigError, match="open loop needs requests with arrivals"):
        simulate_open(Engine(STEPS, 512), drawn(0, 50))
    with pytest.raises(ConfigError, match="budget = 0"):
        Engine(STEPS, 0)
