"""Fleets of two pools: one pair as it is simulated alone, queues in a row, routers, prefixes, and the command."""

import dataclasses
import json

import numpy as np
import pytest

from codesign.commands.cli import main
from codesign.core.errors import ConfigError
from codesign.report.fleet_figures import fleet_figure, prompts_at
from codesign.simulation.fleet import RequestClass, conversations, simulate_two_pools
from codesign.simulation.serving import Engine, Requests, RooflineSteps, arrivals, lengths, simulate_apart

STEPS = RooflineSteps(fixed_s=2e-3, weights_s=5e-3, token_s=2e-5, read_s=1e-8, pair_s=1e-9)
PREFILL = Engine(STEPS, budget=10**9, chunk=2048)
DECODE = Engine(STEPS, budget=10**9, sequences=32, blocks=20_000)
ALONE = RooflineSteps(fixed_s=0.0, weights_s=0.0, token_s=1e-3, read_s=0.0, pair_s=0.0)


def link(tokens: np.ndarray) -> np.ndarray:
    return 1e-5 * tokens


def none(tokens: np.ndarray) -> np.ndarray:
    return 0.0 * tokens


def drawn(seed: int, count: int, rate: float, cv: float = 1.5) -> Requests:
    rng = np.random.default_rng(seed)
    return Requests(
        lengths(rng, 1500, 1.0, count), lengths(rng, 100, 0.7, count, least=1), arrivals(rng, rate, cv, count)
    )


@pytest.mark.parametrize("decode", [DECODE, dataclasses.replace(DECODE, accepted=1.7, verified=3)])
@pytest.mark.parametrize("router", ["round_robin", "least_outstanding", "one_queue"])
def test_one_pair_is_the_simulation_of_two_pools(router, decode):
    """To rounding: times of all requests and what they were at."""
    requests = drawn(0, 500, 12)
    alone = simulate_apart(PREFILL, decode, (1, 1), requests, link, drain_s=0.01, timeline=True)
    other = "round_robin" if router == "one_queue" else router
    pair = simulate_two_pools(PREFILL, decode, requests, link, routers=(router, other), drain_s=0.01)
    assert alone.handed is not None
    for name in ("began", "first", "ready"):
        assert np.array_equal(getattr(pair.handed, name), getattr(alone.handed, name))
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert getattr(pair.fleet.served, name) == pytest.approx(getattr(alone, name), rel=1e-9, abs=1e-12)


def test_one_queue_and_turns_are_the_simulation_of_several_engines():
    requests = drawn(1, 600, 60)
    alone = simulate_apart(PREFILL, DECODE, (3, 4), requests, link)
    pools = simulate_two_pools(
        PREFILL, DECODE, requests, link, replicas=(3, 4), routers=("one_queue", "round_robin")
    ).fleet.served
    assert np.array_equal(pools.ttft_s, alone.ttft_s)
    assert pools.tpot_s == pytest.approx(alone.tpot_s, rel=1e-9)
    assert pools.rate == pytest.approx(alone.rate)


def in_a_row(seed: int, count: int, load: float, mean: float) -> Requests:
    """Two servers of 1 ms a token, geometric lengths; an answer's first token is the prompt's."""
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.geometric(1 / mean, count), rng.geometric(1 / mean, count) + 1
    return Requests(prompts, outputs, arrivals(rng, load / (mean * 1e-3), 1.0, count))


ONE_AT_A_TIME = dataclasses.replace(DECODE, times=ALONE, sequences=1)
TOKEN_BY_TOKEN = Engine(ALONE, budget=10**9, chunk=1)


def lindley(came: np.ndarray, service: np.ndarray) -> np.ndarray:
    """When each leaves a server that takes them in order."""
    free, out = 0.0, np.zeros(len(came))
    for one, (at, needs) in enumerate(zip(came.tolist(), service.tolist(), strict=True)):
        out[one] = free = max(free, at) + needs
    return out


def test_queues_in_a_row_are_lindleys_recursions_one_after_the_other():
    requests = in_a_row(2, 400, 0.6, 12)
    pair = simulate_two_pools(TOKEN_BY_TOKEN, ONE_AT_A_TIME, requests, none)
    prompts = lindley(requests.arrivals, 1e-3 * requests.prompts)
    assert pair.handed.first == pytest.approx(prompts, rel=1e-9)
    assert pair.fleet.last == pytest.approx(lindley(prompts, 1e-3 * (requests.outputs - 1)), rel=1e-9)
    assert pair.prefill_busy == pytest.approx(
        1e-3 * requests.prompts.sum() / np.ptp(np.append(prompts, requests.arrivals[0]))
    )


@pytest.mark.slow
def test_queues_in_a_row_are_jacksons_within_one_percent():
    """M/M/1 after M/M/1 (Burke): each as if alone, by the recursion that the simulation is to rounding."""
    rng, count, load = np.random.default_rng(3), 2_000_000, 0.5
    came = np.cumsum(rng.exponential(1 / load, count))
    first = lindley(came, rng.exponential(1.0, count))
    last = lindley(first, rng.exponential(1.0, count))
    assert (first - came).mean() == pytest.approx(1 / (1 - load), rel=0.01)
    assert (last - first).mean() == pytest.approx(1 / (1 - load), rel=0.01)
    requests = in_a_row(4, 60_000, load, 40)
    pair = simulate_two_pools(TOKEN_BY_TOKEN, ONE_AT_A_TIME, requests, none)
    service = 0.04
    geometric = service * (1 + load / (1 - load) * (2 - 1 / 40) / 2)  # M/G/1 of geometric lengths
    assert (pair.handed.first - requests.arrivals).mean() == pytest.approx(geometric, rel=0.03)


@pytest.mark.parametrize("router", ["round_robin", "least_outstanding", "power_of_two"])
def test_prompts_by_turns_see_their_part_and_shorter_queues_wait_less(router):
    requests = drawn(5, 400, 40)
    pools = simulate_two_pools(PREFILL, DECODE, requests, link, replicas=(2, 2), routers=(router, router))
    assert (pools.handed.first > pools.handed.began).all()
    assert (pools.handed.ready > pools.handed.first).all()
    assert (pools.fleet.last >= pools.handed.first).all()
    assert set(pools.prefill_replica.tolist()) == {0, 1}
    if router == "round_robin":
        own = np.arange(0, len(requests), 2)
        alone = simulate_two_pools(PREFILL, DECODE, requests.chosen(own), link)
        assert pools.handed.ready[own] == pytest.approx(alone.handed.ready, rel=1e-12)


def test_prefixes_are_found_at_the_prefill_replica_that_has_them():
    rng = np.random.default_rng(6)
    classes = [RequestClass("agent", 600, 20, prefix_tokens=4096, prefixes=8, turns=5, think_s=4)]
    requests = conversations(rng, arrivals(rng, 1.0, 1.0, 80), classes, open_loop=True, answer_s=1.0)
    stored = dataclasses.replace(PREFILL, store_blocks=200, store_token_s=1e-8)
    result = {
        router: simulate_two_pools(
            stored, DECODE, requests, link, replicas=(3, 2), routers=(router, "least_outstanding")
        ).fleet
        for router in ("round_robin", "prefix_aware")
    }
    assert 0 < result["round_robin"].hit_rate < result["prefix_aware"].hit_rate < 1
    computed = result["prefix_aware"].served.counts
    assert computed["prompt_tokens"] + computed["hit_tokens"] == requests.prompts.sum()


DESIGN = (
    "model=llama31_8b", "accelerator=h100_sxm", "calibration=h100_sxm_roofline", "workload=disaggregated",
    "prefill=same", "cluster.device_count=4", "plan.prefill_devices=2", "plan.micro_batch=32", "plan.tp=1",
    "plan.pp=1",
)  # fmt: skip


@pytest.mark.slow
def test_the_command_simulates_as_without_replicas_where_it_is_the_design_itself(capsys):
    told = []
    for more in ([], ["--router", "one_queue,round_robin"]):
        assert main(["simulate", *DESIGN, "--rate", "10", "--requests", "600", "--json", *more]) == 0
        told.append(json.loads(capsys.readouterr().out))
    alone, fleet = told
    assert fleet["replicas"] == [2, 4]
    assert fleet["accelerators_per_replica"] == [1, 1]
    for name in ("ttft_s", "ttft_s.p99", "tpot_s", "e2e_s", "rate", "decodes"):
        assert fleet["simulated"][name] == pytest.approx(alone["simulated"][name], rel=1e-9)
        if name in alone["closed_form"]:
            assert fleet["closed_form"][name] == pytest.approx(alone["closed_form"][name], rel=1e-9)
    assert main(["simulate", *DESIGN, "--replicas", "3,6", "--requests", "400", "--slo", "ttft=1s"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "3 prefill replicas of 1 x h100_sxm and 6 decode replicas" in said
    assert "their links to the decode pool at work" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--replicas", "4"], "write prefill and decode replicas, as in 4,8"),
        (["--replicas", "4,8,2"], "write prefill and decode replicas, as in 4,8"),
        (["--replicas", "0,3"], "outside [1, 1024]"),
        (["--replicas", "a,b"], "no whole number"),
        (["--router", "one_queue"], "write one_queue,round_robin"),
        (["--router", "best,round_robin"], "'best' does not exist"),
        (["--router", "round_robin,round_robin,one_queue"], "write one router"),
        (["--prefix-cache", "20GB"], "take a trace with hash_ids"),
    ],
)
def test_what_is_wrong_with_two_pools_is_one_line(words, said, capsys):
    assert main(["simulate", *DESIGN, "--requests", "200", *words]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert said in told[-1]


def test_the_picture_has_prompts_at_prefill_replicas():
    requests = drawn(8, 300, 20)
    pools = simulate_two_pools(PREFILL, DECODE, requests, link, replicas=(2, 2))
    titles = [axes.get_title("left") + axes.get_title() for axes in fleet_figure(pools.fleet, {}, pools).axes]
    assert "prompts at a prefill replica: mean, least and most" in titles
    waiting = prompts_at(pools, pools.handed.came)
    assert waiting.shape == (2, 300)
    assert waiting.sum(0).min() >= 1  # who comes is there


WRONG = [
    ({"replicas": (0, 1)}, "pools of 0 and 1 replicas"),
    ({"routers": ("nearest", "round_robin")}, "'nearest' does not exist"),
    ({"routers": ("prefix_aware", "round_robin")}, "goes by hash_ids"),
]


@pytest.mark.parametrize(("more", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_cannot_be_is_one_line(more, said):
    with pytest.raises(ConfigError, match=said) as error:
        simulate_two_pools(PREFILL, DECODE, drawn(7, 20, 5), link, **more)
    assert "\n" not in str(error.value)
