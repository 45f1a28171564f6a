"""Priorities and admission in a fleet, against Cobham's and Erlang's formulas."""

import collections
import dataclasses
import heapq
import math

import numpy as np
import pytest

from codesign import ConfigError
from codesign.simulation.fleet import LatencyLimits, simulate_fleet
from codesign.simulation.serving import Engine, Requests, RooflineSteps, arrivals

TOKENS = 1000
SERVER = Engine(RooflineSteps(0.0, 0.0, 1 / TOKENS, 0.0, 0.0), budget=10**9, sequences=1)


def classed(count: int, load: float, shares: tuple[float, ...], seed: int, means: tuple[float, ...]) -> Requests:
    """Poisson stream of classes with exponential services of these means at one server, the load as it is asked for."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(len(shares), count, p=shares)
    drawn = rng.exponential(1.0, count) * np.array(means)[kinds]
    tokens = np.maximum(np.rint(drawn * TOKENS), 1).astype(int)
    came = arrivals(rng, 1.0, 1.0, count)
    came *= tokens.sum() / TOKENS / load / came[-1]
    names = tuple(f"class{index}" for index in range(len(shares)))
    return Requests(tokens, np.ones(count, int), came, classes=kinds, class_names=names)


def cobham(requests: Requests) -> list[float]:
    """Mean waits of each class in order: W0 / ((1 - s_(k-1)) (1 - s_k)), of the services that were drawn."""
    assert requests.arrivals is not None
    span, service = float(requests.arrivals[-1]), requests.prompts / TOKENS
    first = float((service**2).sum()) / span / 2
    loads = [float(service[requests.classes == k].sum()) / span for k in range(len(requests.class_names))]
    sums = np.concatenate([[0.0], np.cumsum(loads)])
    return [first / ((1 - sums[k]) * (1 - sums[k + 1])) for k in range(len(loads))]


def waits(requests: Requests) -> list[float]:
    result = simulate_fleet(SERVER, requests)
    return by_class(requests, result.last - result.came - requests.prompts / TOKENS)


def by_class(requests: Requests, wait: np.ndarray) -> list[float]:
    return [float(wait[requests.classes == k].mean()) for k in range(len(requests.class_names))]


def head_of_line(requests: Requests) -> np.ndarray:
    """Waits at one server that is never idle while somebody waits: a clock and a heap of (class, who came first)."""
    assert requests.arrivals is not None
    came, service = requests.arrivals.tolist(), (requests.prompts / TOKENS).tolist()
    kinds, count, result = requests.classes.tolist(), len(requests.prompts), np.empty(len(requests.prompts))
    queue: list[tuple[int, int]] = []
    now, arrived = 0.0, 0
    for _ in range(count):
        now = now if queue else max(now, came[arrived])
        while arrived < count and came[arrived] <= now:
            heapq.heappush(queue, (kinds[arrived], arrived))
            arrived += 1
        _, served = heapq.heappop(queue)
        result[served] = now - came[served]
        now += service[served]
    return result


@pytest.mark.slow
def test_priorities_of_one_server_are_cobhams_formula():
    """Head of the line, M/G/1, three classes of different services; means over seeds within 1 %.

    Of one seed all waits are those of a dozen lines that know nothing of engines, which then stand for all seeds.
    """
    result, known = [], []
    for seed in range(12):
        requests = classed(120_000, 0.7, (0.3, 0.3, 0.4), seed, (0.7, 1.0, 1.3))
        requests = requests.served_first(["class0", "class1", "class2"])
        result.append(by_class(requests, head_of_line(requests)))
        known.append(cobham(requests))
        if seed == 0:
            told = simulate_fleet(SERVER, requests)
            wait = told.last - told.came - requests.prompts / TOKENS
            np.testing.assert_allclose(wait, head_of_line(requests), rtol=1e-9, atol=1e-6)
    assert np.mean(result, 0) == pytest.approx(np.mean(known, 0), rel=0.01)


def test_work_is_conserved_whoever_goes_first():
    """Kleinrock's law: the sum of load times wait is the same in any order, with services of one length."""
    requests = classed(4000, 0.8, (0.5, 0.5), 3, (1.0, 1.0))
    requests = dataclasses.replace(requests, prompts=np.full(4000, TOKENS))
    sums = []
    for order in ([], ["class0"], ["class1"]):
        one = requests.served_first(order) if order else requests
        result = simulate_fleet(SERVER, one)
        sums.append(float((result.last - result.came).sum()))
    assert sums[1:] == pytest.approx([sums[0]] * 2, rel=1e-9)
    first, second = waits(requests.served_first(["class1"]))
    assert second < 0.5 * first


def test_equal_priorities_are_first_come_first_served():
    requests = classed(2000, 0.8, (0.5, 0.5), 4, (1.0, 1.0))
    plain, alike = simulate_fleet(SERVER, requests), simulate_fleet(
        SERVER, dataclasses.replace(requests, priorities=np.zeros(2000, int))
    )  # fmt: skip
    assert np.array_equal(plain.last, alike.last)


def test_who_goes_last_gives_its_blocks_back():
    """Blocks for half of the sequences: the preempted ones are all of the class that goes last."""
    count = 40
    requests = Requests(
        np.full(count, 64), np.full(count, 200), np.arange(count) * 1e-3, classes=np.arange(count) % 2,
        class_names=("first", "last"),
    ).served_first(["first"])  # fmt: skip
    engine = Engine(RooflineSteps(1e-2, 0.0, 0.0, 0.0, 0.0), budget=4096, sequences=32, blocks=260)
    result = simulate_fleet(engine, requests)
    assert result.served.counts["preempted"] > 0
    ends = result.last - result.came
    assert ends[requests.classes == 0].max() < ends[requests.classes == 1].max()
    assert ends[requests.classes == 0].mean() < 0.7 * ends[requests.classes == 1].mean()


def blocked(servers: int, places: int, offered: float) -> float:
    """Share that M/M/c/K turns away; K = c is Erlang's loss formula."""
    weight = [1.0]
    for state in range(1, places + 1):
        weight.append(weight[-1] * offered / min(state, servers))
    return weight[-1] / sum(weight)


STEPS = 400  # of a mean answer


def answers(offered: float, seed: int, count: int) -> Requests:
    """Poisson stream of answers of exponential lengths."""
    rng = np.random.default_rng(seed)
    outputs = 1 + rng.geometric(1 / (STEPS - 1), count)
    return Requests(np.ones(count, int), outputs, arrivals(rng, offered * STEPS / outputs.mean(), 1.0, count))


def turned_away(requests: Requests, servers: int, places: int) -> np.ndarray:
    """Who is refused by so many slots and places, by a heap of the steps at which slots become free."""
    assert requests.arrivals is not None
    result = np.zeros(len(requests.outputs), bool)
    ends, queue, begun = list[int](), collections.deque[int](), 0.0
    for index, (came, steps) in enumerate(zip(requests.arrivals.tolist(), requests.outputs.tolist(), strict=True)):
        now = (came - begun) * STEPS  # in steps since somebody came to an idle engine
        while ends and ends[0] <= now:
            end = heapq.heappop(ends)
            if queue:
                heapq.heappush(ends, end + queue.popleft())
        if len(ends) + len(queue) == places:
            result[index] = True
        elif not ends:
            begun = came
            ends.append(steps)
        elif len(ends) < servers:
            heapq.heappush(ends, math.floor(now) + 1 + steps)
        else:
            queue.append(steps)
    return result


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "places", "offered"), [(4, 4, 3.0), (4, 8, 3.6), (1, 3, 0.8)])
def test_requests_that_are_turned_away_are_erlangs_formula(servers: int, places: int, offered: float):
    """Answers are decoded in slots by steps of one length; who is refused of one stream stands for all."""
    engine = Engine(RooflineSteps(1 / STEPS, 0.0, 0.0, 0.0, 0.0), budget=10**9, sequences=servers)
    one = answers(offered, 0, 30_000)
    told = simulate_fleet(engine, one, admitted={"": places})
    np.testing.assert_array_equal(np.isnan(told.last), turned_away(one, servers, places))
    assert told.refused == int(np.isnan(told.last).sum())
    result = np.mean([turned_away(answers(offered, seed, 120_000), servers, places).mean() for seed in range(4)])
    assert result == pytest.approx(blocked(servers, places, offered), rel=0.01)


def test_one_class_is_turned_away_for_another():
    requests = classed(3000, 1.6, (0.5, 0.5), 5, (1.0, 1.0)).served_first(["class0"])
    result = simulate_fleet(SERVER, requests, "least_outstanding", replicas=1, admitted={"class1": 3})
    rows = {row["class"]: row for row in result.by_class({"": LatencyLimits(30.0)})}
    assert rows["class0"]["refused"] == 0 < rows["class1"]["refused"]
    assert rows["class0"]["meets"]
    assert not rows["class1"]["meets"]
    assert math.isfinite(rows["class1"]["ttft_p99_s"])
    assert len(result.served.e2e_s) == int((~np.isnan(result.last[600:])).sum())


def test_what_admission_cannot_be_is_one_line():
    requests = classed(50, 0.5, (0.5, 0.5), 6, (1.0, 1.0))
    for admitted, text in (({"nobody": 3}, "no class nobody"), ({"class0": 0}, "at least 1")):
        with pytest.raises(ConfigError, match=text):
            simulate_fleet(SERVER, requests, admitted=admitted)
    with pytest.raises(ConfigError, match="no class x"):
        requests.served_first(["x"])
