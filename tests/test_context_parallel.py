"""Context parallelism by ring, by exchange of heads, by both: against ranks that hold tokens and send arrays."""

import dataclasses

import jax
import numpy as np
import pytest
from test_training_memory import MODEL

from codesign.model.workloads import GroupedQueryAttention, LatentAttention, Layout, LocalAttention, Plan, Training
from codesign.model.workloads.layer_operations import BlockComm, BlockOp

SEQUENCE, HEADS, KV_HEADS, DIM = 64, 16, 8, 128
GROUPED = dataclasses.replace(MODEL, attention=GroupedQueryAttention(float(HEADS), float(KV_HEADS), float(DIM)))
LATENT = dataclasses.replace(MODEL, attention=LatentAttention(float(HEADS), 64.0, 32.0, 24.0, 8.0, 16.0))
JOB = Training(GROUPED, float(SEQUENCE), 8.0)
CUTS = [(4, 1), (4, 2), (4, 4), (8, 2), (8, 8), (2, 2)]


def parts(job: Training, **plan: float) -> tuple[dict[str, BlockOp], dict[str, BlockComm], Layout]:
    layout = Layout(Plan(**plan), 8.0)
    shard = job.shard(layout)
    ops = {op.name: op for op in job.model.layer_ops(shard)}
    return ops, {comm.name: comm for comm in job.model.layer_comms(shard)}, layout


def tokens_of(cp: int, ulysses: int, order: str) -> list[list[int]]:
    """Positions of each ring place, whose `ulysses` ranks have them together after the exchange."""
    ring = cp // ulysses
    if order == "contiguous":
        return np.arange(SEQUENCE).reshape(ring, -1).tolist()
    pieces = np.arange(SEQUENCE).reshape(2 * ring, -1)
    return [[*pieces[index], *pieces[2 * ring - 1 - index]] for index in range(ring)]


@pytest.mark.parametrize(("cp", "ulysses"), CUTS)
@pytest.mark.parametrize("order", ["zigzag", "contiguous"])
@pytest.mark.parametrize("job", [JOB, Training(LATENT, float(SEQUENCE), 8.0)], ids=["grouped", "latent"])
def test_work_of_the_slowest_rank_is_counted_pair_by_pair(job: Training, cp: int, ulysses: int, order: str):
    """A token at position i attends i + 1/2 on average of what a causal kernel computes of its own piece."""
    ops, _, _ = parts(job, cp=float(cp), ulysses=float(ulysses), cp_order=order)
    pairs = max(sum(place + 0.5 for place in each) for each in tokens_of(cp, ulysses, order)) * HEADS / ulysses
    dims = 2 * DIM if job is JOB else 24 + 8 + 16
    np.testing.assert_allclose(float(ops["attention_core"].forward.flops), 2 * pairs * dims, rtol=1e-12)


def exchanged(cp: int, ulysses: int, widths: dict[str, int]) -> tuple[float, float]:
    """Bytes that a rank sends, of bf16: (heads of some tensors exchanged once, keys and values round the ring)."""
    rng, ring = np.random.default_rng(cp), cp // ulysses
    held = {(r, u): {name: rng.normal(size=(SEQUENCE // cp, HEADS if name in "qo" else KV_HEADS, width))
                     for name, width in widths.items()} for r in range(ring) for u in range(ulysses)}  # fmt: skip
    sent, after = 0.0, {}
    for r, u in held:
        mine = {}
        for name in widths:
            arrive = [np.array_split(held[r, other][name], ulysses, axis=1)[u] for other in range(ulysses)]
            sent += sum(piece.size for other, piece in enumerate(arrive) if other != u) * 2 / len(held)
            mine[name] = np.concatenate(arrive)
        after[r, u] = mine
    passed = sum(each[name].size for each in after.values() for name in "kv") * 2 / len(held) * (ring - 1)
    return sent, passed


@pytest.mark.parametrize(("cp", "ulysses"), CUTS)
def test_bytes_are_those_of_arrays_that_are_sent(cp: int, ulysses: int):
    _, comms, layout = parts(JOB, cp=float(cp), ulysses=float(ulysses))
    before, around = exchanged(cp, ulysses, {"q": DIM, "k": DIM, "v": DIM})
    result, _ = exchanged(cp, ulysses, {"o": DIM, "k": 0, "v": 0})
    away = 1 - 1 / ulysses
    for name, bytes_sent in (("attention_heads_in", before), ("attention_heads_out", result)):
        comm = comms[name]
        assert float(comm.forward) == float(comm.backward) == float(ulysses > 1)
        np.testing.assert_allclose(float(comm.nbytes * comm.forward) * away, bytes_sent, rtol=1e-12)
    ring = comms["attention_ring"]
    np.testing.assert_allclose(float(ring.nbytes * ring.forward), around, rtol=1e-12)
    assert float(ring.backward) == 2 * float(ring.forward)
    assert float(layout.group("cp_heads").size * layout.group("cp").size) == cp


def test_ranks_that_exchange_heads_are_neighbours():
    layout = Layout(Plan(tp=2.0, cp=8.0, ulysses=4.0), 32.0)
    heads, ring = layout.group("cp_heads"), layout.group("cp")
    assert (float(heads.size), float(heads.stride)) == (4, 2)
    assert (float(ring.size), float(ring.stride)) == (2, 8)


def test_latent_attention_passes_latent_vectors_or_its_share_of_heads():
    job = Training(LATENT, float(SEQUENCE), 8.0)
    ring, both = (parts(job, cp=4.0, ulysses=u)[1]["attention_ring"] for u in (1.0, 2.0))
    assert float(ring.nbytes) == SEQUENCE / 4 * (32 + 8) * 2
    assert float(both.nbytes) == SEQUENCE / 4 * 2 * HEADS / 2 * (24 + 8 + 16) * 2


def test_a_copy_lies_in_memory_while_heads_are_exchanged():
    kept = SEQUENCE / 4 * (HEADS + 2 * KV_HEADS) * DIM * 2
    alone, both = (parts(JOB, cp=4.0, ulysses=u)[0]["attention_core"] for u in (1.0, 4.0))
    assert float(alone.working_bytes) == float(alone.stored_bytes) == float(both.stored_bytes) == kept
    assert float(both.working_bytes) == 2 * kept


def test_windows_are_spread_as_evenly_as_they_reach():
    """A window far shorter than a rank's tokens is as much work in either order."""
    local = dataclasses.replace(GROUPED, attention=LocalAttention(GROUPED.attention, 2.0))
    work = [
        float(parts(Training(local, 4096.0, 8.0), cp=4.0, cp_order=order)[0]["local_attention_core"].forward.flops)
        for order in ("zigzag", "contiguous")
    ]
    np.testing.assert_allclose(work[1], work[0], rtol=1e-3)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (dict(cp=4.0, ulysses=3.0), "plan.ulysses = 3 does not divide plan.cp = 4"),
        (dict(cp=8.0, ulysses=8.0, tp=2.0), "does not divide 8 key-value heads (Transformer Engine"),
        (dict(cp_order="contiguous"), "needs context ranks"),
    ],
)
def test_rules(plan: dict, told: str):
    layout = Layout(Plan(**plan), 16.0)
    assert float(JOB.violations(layout)["context"]) > 0
    assert told in JOB.broken_rule("context", layout)


def test_one_trace_says_the_same_of_all_cuts():
    layouts = [
        Layout(Plan(cp=float(cp), ulysses=float(u), cp_order=order), 8.0) for cp, u in CUTS for order in (0.0, 1.0)
    ]

    def numbers(layout):
        shard = JOB.shard(layout)
        core = next(op for op in GROUPED.layer_ops(shard) if op.name == "attention_core")
        return core.forward.flops, core.forward.nbytes, [c.nbytes * c.forward for c in GROUPED.layer_comms(shard)]

    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *layouts)
    answers = jax.jit(jax.vmap(numbers))(stacked)
    for row, layout in enumerate(layouts):
        for traced, plain in zip(jax.tree.leaves(answers), jax.tree.leaves(numbers(layout)), strict=True):
            np.testing.assert_allclose(traced[row], plain, rtol=1e-12)
