"""Clients who wait for room in the cache: by hand, beside the simulation, and as rows of served models see it."""

from types import SimpleNamespace

import numpy as np
import pytest

from codesign.evidence.validation.row_overrides import measured_cluster, model_of
from codesign.evidence.validation.served_rows import MEMORY_SHARE, Job, in_room, room_of, service, shared_out
from codesign.model.workloads.steady_state import RoomTaken, fitting, room_wait_s
from codesign.simulation.serving import Engine, Requests, RooflineSteps, simulate_closed

PROMPT, ANSWER, BLOCK = 400, 200, 16
STEPS = RooflineSteps(fixed_s=2e-3, weights_s=8e-3, token_s=2e-5, read_s=1e-7, pair_s=1e-10)


def test_half_of_the_clients_wait_for_as_long_as_the_others_are_served():
    held = RoomTaken(np.array([100.0]), np.array([20.0]), np.array([4.0]), np.array([8.0]))
    assert fitting(held, np.array([False])) == 20  # what all share is there once
    assert fitting(held, np.array([True])) == 10
    assert room_wait_s(np.array([20.0, 8.0]), np.array([10.0, 8.0]), np.array([3.0, 3.0])).tolist() == [3.0, 0.0]


def simulated(clients: int, blocks: int, promised: bool, prefix: int = 0):
    count = 40 * clients
    prefixes = np.zeros(count if prefix else 0, int)
    requests = Requests(np.full(count, PROMPT), np.full(count, ANSWER), prefixes=prefixes, prefix_tokens=prefix)
    engine = Engine(STEPS, budget=2048, blocks=blocks, block_tokens=BLOCK, promised=promised, prefix_cache=prefix > 0)
    return simulate_closed(engine, requests, clients)


@pytest.mark.parametrize("promised", [False, True])
@pytest.mark.parametrize(("room", "clients"), [(16, 20), (16, 32), (16, 64), (40, 60)])
def test_the_simulation_waits_as_long(promised, room, clients):
    """So many requests fit at once; what they take is that of as many clients with room for all.

    Who is taken back waits between tokens, not before the first: there the two are apart, together they are as long.
    """
    mean, whole = PROMPT + ANSWER / 2 + BLOCK / 2, PROMPT + ANSWER + BLOCK / 2
    blocks = int(room * (whole if promised else mean) / BLOCK) + 1
    full, alone = simulated(clients, blocks, promised), simulated(room, 10**6, promised)
    waits = room_wait_s(np.array([clients]), np.array([room]), np.array([alone.e2e_s.mean()]))
    expected = float(waits[0] + alone.ttft_s.mean())
    near = 0.05 if promised else 0.2
    assert full.ttft_s.mean() == pytest.approx(expected, rel=0.12 if promised else 0.4)
    assert full.tpot_s.mean() == pytest.approx(alone.tpot_s.mean(), rel=near)
    assert full.e2e_s.mean() == pytest.approx(alone.e2e_s.mean() * clients / room, rel=0.06)
    assert (full.counts["preempted"] == 0) == promised


def test_a_prefix_that_all_share_takes_no_room_of_theirs():
    shared, room = 256, 16
    own = PROMPT - shared + ANSWER + BLOCK / 2
    blocks = int((room * own + shared) / BLOCK) + 1
    full, alone = simulated(32, blocks, True, shared), simulated(room, 10**6, True, shared)
    assert full.ttft_s.mean() == pytest.approx(alone.e2e_s.mean() + alone.ttft_s.mean(), rel=0.12)


def crowded(engine: str, sequences: float) -> Job:
    return Job(measured_cluster("H100-SXM"), model_of("Llama-3.1-8B"), "bf16", 1.0, 1.0, 1.0, False, sequences,
               4096.0, 2048.0, engine)  # fmt: skip


@pytest.mark.slow
def test_an_engine_has_room_for_what_its_share_of_the_memory_leaves():
    """8.03 G weights of 2 bytes in 0.9 of 85.9 GB; 131 kB a token; activations of a step take 3 GB."""
    token, block, taken_by = 32 * 8 * 128 * 2 * 2, 8, 16.06e9 + 3.2e9
    taken, promised = (float(room_of([crowded(engine, 64.0)])[0]) for engine in ("vllm", "trtllm"))
    assert taken == pytest.approx((MEMORY_SHARE * 85.9e9 - taken_by) / token / (4096 + 1024 + block), rel=0.03)
    assert promised == pytest.approx(MEMORY_SHARE * (85.9e9 - taken_by) / token / (4096 + 2048 + block), rel=0.03)
    kept, waits = in_room([crowded("vllm", 64.0), crowded("vllm", 2 * taken)])
    assert [job.sequences for job in kept] == [64.0, pytest.approx(taken, rel=0.03)]
    assert waits == pytest.approx([0.0, 1.0], abs=0.05)
    tight = crowded("vllm", 512.0)._replace(model=model_of("Qwen3-32B"), number_format="bf16", input_tokens=128.0)
    assert np.isfinite(room_of([tight])[0])
    assert room_of([tight._replace(model=model_of("Llama-3.1-70B"))])[0] == np.inf  # its weights are beyond the device


@pytest.mark.slow
def test_who_waits_for_room_does_so_before_the_first_token():
    kept, waits = in_room([crowded("trtllm", 400.0)])
    priced = service(kept, crowded=waits)
    assert priced.first_s[0] == pytest.approx(400 / kept[0].sequences * 2048 * priced.between_s[0], rel=1.0)
    assert priced.first_s[0] > 2048 * priced.between_s[0]


@pytest.mark.parametrize(("row", "count", "groups", "experts", "found"), [
    ((16.0, 64.0, 4.0), 4.0, 4.0, True, (64.0, 4.0)),  # groups are stated
    ((28.0, 112.0, float("nan")), 4.0, 1.0, True, (112.0, 4.0)),  # and here they are not
    ((13.0, 416.0, 1.0), 2.0, 1.0, False, (13.0, 1.0)),  # thirty-two engines
    ((13.0, 416.0, float("nan")), 2.0, 1.0, False, (13.0, 1.0)),
    ((16.0, 64.0, 4.0), 4.0, 1.0, True, (64.0, 1.0)),  # a group's part of the clients of ranks that attend together
    ((64.0, 64.0, 1.0), 2.0, 1.0, False, (64.0, 1.0)),
    ((64.0, float("nan"), float("nan")), 2.0, 1.0, True, (64.0, 1.0)),
])  # fmt: skip
def test_clients_of_several_batches_are_those_of_groups_or_engines(row, count, groups, experts, found):
    named = SimpleNamespace(**dict(zip(("batch_size", "concurrency", "attention_dp"), row, strict=True)))
    assert shared_out(named, count, groups, experts) == found
