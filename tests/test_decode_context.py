"""Decode context parallelism: cached tokens divided over tensor ranks, against attention computed in parts."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from codesign import evaluate, scenario_from_config
from codesign.model.workloads import (
    AlternatingAttention,
    ContinuousServing,
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    Layout,
    Plan,
    Transformer,
)
from codesign.model.workloads.layer_operations import Precision
from codesign.model.workloads.mixed_step import MixedStep

HEADS, KV_HEADS, DIM, TP = 16, 2, 64, 8
GROUPED = GroupedQueryAttention(float(HEADS), float(KV_HEADS), float(DIM))
LATENT = LatentAttention(float(HEADS), 96.0, 64.0, 32.0, 16.0, 32.0)
MODEL = Transformer("small", 1024.0, 4.0, GROUPED, DenseFeedForward(4096.0, 1.0), 32000.0)
ROWS, CONTEXT = 32.0, 4096.0


def step(attention, divided: int, prompts: float = 1.0) -> tuple[MixedStep, Layout]:
    model = dataclasses.replace(MODEL, attention=attention)
    result = MixedStep(model, Precision(), ROWS, 1.0, CONTEXT, 512.0 * prompts, prompts, 1536.0, 512.0 * prompts)
    return result, Layout(Plan(tp=float(TP), micro_batch=ROWS, decode_cp=float(divided)), float(TP))


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("divided", [1, 2, 4])
def test_parts_of_the_cache_give_the_whole_result(divided: int):
    """Ranks that gather queries, attend their tokens and sum weighted results; counts of what they do and send."""
    rng, tokens, rows = np.random.default_rng(0), 96, 3
    queries = rng.normal(size=(rows, HEADS, DIM))
    keys, values = rng.normal(size=(2, tokens, KV_HEADS, DIM))
    each = HEADS // KV_HEADS
    whole = [softmax(queries[:, h] @ keys[:, h // each].T) @ values[:, h // each] for h in range(HEADS)]
    ranks_of_head = TP // KV_HEADS
    flops = sent = held = 0.0
    parts = np.array_split(np.arange(tokens), divided)
    results = np.zeros((rows, HEADS, DIM))
    own = HEADS // TP
    for rank in range(TP):  # ranks of one head: some divide its tokens, others hold copies
        group, place = divmod(rank % ranks_of_head, divided)
        first = (rank // ranks_of_head) * each + group * divided * own
        heads = range(first, first + own * divided)
        sent += rows * own * (divided - 1) * DIM
        held += len(parts[place]) * DIM * 2
        for head in heads:
            scores = queries[:, head] @ keys[parts[place], head // each].T
            flops += rows * len(parts[place]) * DIM * 4
            log_whole = np.log(np.exp(queries[:, head] @ keys[:, head // each].T).sum(axis=-1, keepdims=True))
            share = np.exp(np.log(np.exp(scores).sum(axis=-1, keepdims=True)) - log_whole)
            results[:, head] += share * (softmax(scores) @ values[parts[place], head // each])
    np.testing.assert_allclose(results, np.stack(whole, axis=1), rtol=1e-9)
    result, layout = step(GROUPED, divided)
    result = dataclasses.replace(result, decodes=float(rows), context=float(tokens))
    [core] = result.cores(layout, mixed=False)
    attended = tokens - 0.5 * divided  # the model lets a token attend half of itself
    np.testing.assert_allclose(float(core.forward.flops), flops / TP * attended / tokens, rtol=1e-12)
    comms = {comm.name: comm for comm in result.cache_comms(layout)}
    away = 1 - 1 / divided
    np.testing.assert_allclose(float(comms["decode_queries"].nbytes) * away, sent / TP * 2, rtol=1e-12)
    cache = float(GROUPED.cache_bytes(tokens / divided, float(TP), Precision()))
    np.testing.assert_allclose(cache, held / TP * 2, rtol=1e-12)


@pytest.mark.parametrize(("attention", "widths"), [(GROUPED, (64, 64)), (LATENT, (80, 64))])
def test_messages_by_hand(attention, widths: tuple[int, int]):
    result, layout = step(attention, 4)
    comms = {comm.name: comm for comm in result.cache_comms(layout)}
    heads = ROWS * HEADS / TP * 4
    assert float(comms["decode_queries"].nbytes) == heads * widths[0] * 2
    assert float(comms["decode_results"].nbytes) == heads * widths[1] * 2
    assert float(comms["decode_weights"].nbytes) == heads * 4 * 4
    cached = float(attention.cache_bytes(1024.0, float(TP), Precision()))  # before a chunk that ends at 1536
    assert float(comms["chunk_cache"].nbytes) == cached
    alone = {comm.name: comm for comm in step(attention, 1)[0].cache_comms(step(attention, 1)[1])}
    assert float(alone["chunk_cache"].nbytes) == 0
    group = layout.group("decode_cp")
    assert (float(group.size), float(group.stride)) == (4, 1)


def test_traffic_of_a_copied_head_falls_with_the_ranks_that_divide_it():
    read = [float(step(GROUPED, n)[0].cores(step(GROUPED, n)[1], mixed=False)[0].forward.nbytes) for n in (1, 4)]
    keys = ROWS * DIM * 2 * 2 * CONTEXT
    assert read[0] - read[1] == pytest.approx(keys * 3 / 4, rel=0.01)


def served(divided: int, **changed) -> tuple[ContinuousServing, Layout]:
    job = ContinuousServing(dataclasses.replace(MODEL, **changed), 1024.0, 256.0)
    return job, Layout(Plan(tp=float(TP), micro_batch=ROWS, decode_cp=float(divided)), float(TP))


def test_a_device_keeps_its_part_of_the_tokens():
    whole, parts = (float(job.kv_bytes(layout, jnp.asarray(1000.0))) for job, layout in (served(1), served(4)))
    assert whole == 4 * parts


@pytest.mark.parametrize(
    ("divided", "changed", "told"),
    [
        (3, {}, "does not divide the 8 tensor ranks of an attention group (vLLM"),
        (8, {}, "hold 2 key-value heads 4 times (vLLM"),
        (2, {"attention": AlternatingAttention.example()}, "keeps no cache that is divided by tokens"),
    ],
)
def test_rules(divided: int, changed: dict, told: str):
    job, layout = served(divided, **changed)
    assert float(job.violations(layout)["cache"]) > 0
    assert told in job.broken_rule("cache", layout)
    job, layout = served(1, **changed)
    assert float(job.violations(layout)["cache"]) == 0


@pytest.mark.slow
def test_more_sequences_fit_and_latent_steps_stay_short():
    base = ("workload=continuous", "space=fixed", "model=deepseek_v3", "accelerator=h200", "cluster.device_count=8")
    base = (*base, "plan.tp=8", "plan.micro_batch=64", "precision=fp8", "workload.input_tokens=32768")
    alone, both = (evaluate(scenario_from_config(*base, *more)) for more in ((), ("plan.decode_cp=8",)))
    assert float(both.memory_bytes["hbm/kv_cache"]) == pytest.approx(float(alone.memory_bytes["hbm/kv_cache"]) / 8)
    assert float(both.extra["tpot_s"]) < float(alone.extra["tpot_s"])
