"""Windows, chunks, chosen tokens and states: against brute force, executed recurrences and plain attention."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from builders import cluster
from hypothesis import given
from hypothesis import strategies as st
from slopes import values_and_slopes
from test_models import CONF, model, shard

from codesign.config import build
from codesign.model.metrics import evaluate
from codesign.model.scenario import Scenario
from codesign.model.workloads import (
    AlternatingAttention,
    GroupedQueryAttention,
    LatentAttention,
    Layout,
    LinearAttention,
    LocalAttention,
    Plan,
    Precision,
    SparseAttention,
    StaticBatch,
    Training,
    Transformer,
)
from codesign.model.workloads.sparse_attention import mean_seen

HIDDEN = jnp.asarray(1024.0)
PLAIN = GroupedQueryAttention(8.0, 2.0, 128.0)
LATENT = LatentAttention(8.0, 256.0, 128.0, 64.0, 32.0, 64.0)
KINDS = [LocalAttention, SparseAttention, LinearAttention, AlternatingAttention]


def cores(attention, part):
    ops = attention.ops(part, HIDDEN, dropout=False, norm_vectors=1.0)
    return [op for op in ops if op.core]


def flops(attention, part) -> float:
    return sum(float(op.forward.flops * op.per_layer) for op in cores(attention, part))


@pytest.mark.slow
@given(st.integers(1, 4000), st.integers(1, 6000), st.booleans())
def test_mean_of_keys_seen_is_that_of_a_count(tokens, window, chunked):
    """Token p (from 0) sees p + 1/2 earlier keys on average, as a triangle has half of its square."""
    positions = np.arange(tokens) + 0.5
    seen = positions % window if chunked else np.minimum(positions, window)
    result = float(mean_seen(jnp.asarray(tokens / 2), jnp.asarray(float(window)), chunked=chunked))
    full = tokens % window if chunked and tokens > window else 0  # the formula is of whole chunks
    assert result == pytest.approx(seen.mean(), rel=1e-12 + 1 / min(tokens, window) + full / tokens, abs=0.5)


@pytest.mark.parametrize(("tokens", "window"), [(4096, 128), (4096, 3000), (64, 128)])
def test_core_of_a_prompt_counts_the_pairs_that_are_seen(tokens, window):
    pairs = np.minimum(np.arange(tokens) + 0.5, window).sum()
    local = LocalAttention(PLAIN, float(window))
    assert flops(local, shard(tokens=float(tokens))) == pytest.approx(4 * 8 * 128 * pairs, rel=2e-3)


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("cp", [1.0, 4.0])
def test_a_window_beyond_the_context_is_no_window(decode, cp):
    part = shard(tokens=512.0, decode=decode, keys=2048.0, cp=cp)
    local = LocalAttention(PLAIN, 1e5, 0.3)
    assert flops(local, part) == pytest.approx(flops(PLAIN, part), rel=1e-12)
    moved = [sum(float(op.forward.nbytes * op.per_layer) for op in cores(one, part)) for one in (local, PLAIN)]
    assert moved[0] == pytest.approx(moved[1], rel=1e-12)
    one, precision = jnp.asarray(1.0), Precision()
    assert float(local.cache_bytes(jnp.asarray(2048.0), one, precision)) == 2048 * 2 * 2 * 128 * 2


def test_decoding_in_a_window_reads_the_window():
    part = shard(tokens=16.0, decode=True, keys=50_000.0)
    (whole,), (far, near) = cores(PLAIN, part), cores(LocalAttention(PLAIN, 1000.0, 0.25), part)
    assert float(far.per_layer) == 0.75
    assert float(near.per_layer) == 0.25
    read = [float(op.forward.nbytes) - 2 * 16 * 8 * 128 * 2 for op in (whole, near)]  # less queries and results
    assert read[0] / read[1] == pytest.approx(50)
    half = cores(LocalAttention(PLAIN, 1000.0, chunked=True), part)[1]
    assert float(half.forward.flops) == pytest.approx(float(near.forward.flops) / 2, rel=2e-3)


def test_cache_of_gpt_oss_by_hand():
    """18 of 36 layers keep 128 tokens."""
    served = StaticBatch(model("gpt_oss_120b"), input_tokens=90_000.0, output_tokens=10_000.0)
    each = 2 * 8 * 64 * 2
    assert float(served.kv_bytes_per_sequence(Layout(Plan(), 1.0))) == 18 * each * 100_000 + 18 * each * 128


def test_state_of_qwen3_next_by_hand():
    """12 layers cache; 36 hold 32 heads of 128 x 128 in fp32 and three inputs of the convolution."""
    next_80b = model("qwen3_next_80b_a3b")
    state = 36 * (32 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 32 * 128) * 2)
    for tokens in (1000, 100_000):
        served = StaticBatch(next_80b, input_tokens=tokens - 100.0, output_tokens=100.0)
        whole = float(served.kv_bytes_per_sequence(Layout(Plan(), 1.0)))
        assert whole == pytest.approx(state + 12 * 2 * 2 * 256 * 2 * tokens, rel=1e-12)


def test_decoding_with_a_state_reads_and_writes_it_whatever_the_context():
    linear = LinearAttention(8.0, 4.0, 64.0, 32.0)
    short, long = (cores(linear, shard(tokens=16.0, decode=True, keys=keys))[0] for keys in (10.0, 1e6))
    assert float(short.forward.nbytes) == float(long.forward.nbytes)
    moved = 16 * (2 * 4 * 64 + 2 * 8 * 32) * 2
    assert float(short.forward.nbytes) == 2 * 16 * 8 * 64 * 32 * 4 + moved


class Counted:
    """Products of matrices, counted."""

    def __init__(self):
        self.flops = 0.0

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        self.flops += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return left @ right


def recurrence(q, k, v, beta, *, delta: bool) -> np.ndarray:
    state, result = np.zeros((k.shape[1], v.shape[1])), []
    for query, key, value, rate in zip(q, k, v, beta, strict=True):
        known = state.T @ key if delta else 0.0
        state = state + rate * np.outer(key, value - known)
        result.append(state.T @ query)
    return np.array(result)


def in_chunks(q, k, v, beta, size: int, product: Counted, *, delta: bool) -> np.ndarray:
    """The recurrence as kernels run it: scores inside a chunk, a state between chunks ([yang2025deltanet])."""
    state, result = np.zeros((k.shape[1], v.shape[1])), []
    for start in range(0, len(q), size):
        part = slice(start, start + size)
        queries, keys, values, rates = q[part], k[part], v[part], beta[part, None]
        new = rates * values
        if delta:
            within = np.tril(rates * product(keys, keys.T), -1)
            inverse = np.linalg.inv(np.eye(size) + within)
            product.flops += size**3
            new = product(inverse, rates * values) - product(product(inverse, rates * keys), state)
        scores = np.tril(product(queries, keys.T))
        result.append(product(scores, new) + product(queries, state))
        state = state + product(keys.T, new)
    return np.concatenate(result)


@pytest.mark.parametrize("delta", [False, True])
def test_flops_of_chunks_are_those_of_an_executed_recurrence(delta):
    rng, tokens, size, keys, values = np.random.default_rng(0), 96, 16, 12, 20
    q, k, v = (rng.normal(size=(tokens, width)) / 4 for width in (keys, keys, values))
    beta, product = rng.uniform(size=tokens), Counted()
    result = in_chunks(q, k, v, beta, size, product, delta=delta)
    assert result == pytest.approx(recurrence(q, k, v, beta, delta=delta), rel=1e-9, abs=1e-12)
    linear = LinearAttention(1.0, 1.0, float(keys), float(values), chunk=float(size), delta=delta)
    assert flops(linear, shard(tokens=float(tokens))) == pytest.approx(product.flops, rel=1e-12)


def test_choosing_all_is_latent_attention_and_an_index():
    part = shard(tokens=16.0, decode=True, keys=1500.0)
    scores, choice, core = cores(SparseAttention(LATENT, 2048.0, 4.0, 32.0), part)
    (own,) = cores(LATENT, part)
    assert float(core.forward.flops) == float(own.forward.flops)
    assert float(core.forward.nbytes) == float(own.forward.nbytes)
    assert float(scores.forward.flops) == 2 * 16 * 1499.5 * 4 * 32
    assert float(choice.forward.nbytes) == 8 * 16 * 1499.5


def test_a_long_context_costs_the_index_alone():
    sparse = SparseAttention(LATENT, 2048.0, 4.0, 32.0)
    near, far = (cores(sparse, shard(tokens=16.0, decode=True, keys=keys)) for keys in (1e4, 1e5))
    assert float(near[2].forward.nbytes) == float(far[2].forward.nbytes)
    assert float(far[0].forward.flops) == pytest.approx(10 * float(near[0].forward.flops), rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_tensor_ranks_share_the_work(kind):
    whole, eighth = (flops(kind.example(), shard(tokens=4096.0, tp=tp)) for tp in (1.0, 4.0))
    shared = 4 if kind is not SparseAttention else 1  # every rank scores the whole index
    assert whole / eighth == pytest.approx(shared, rel=0.01) or shared == 1 < whole / eighth < 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "job"),
    [
        (LocalAttention, Training),
        (SparseAttention, StaticBatch),
        (LinearAttention, Training),
        (AlternatingAttention, StaticBatch),
    ],
)
def test_priced_with_gradients(kind, job):
    """Finite over factors of bandwidth and context, and slopes that central differences confirm."""
    small = dataclasses.replace(Transformer.example(), attention=kind.example())
    plan = Plan(tp=2.0, micro_batch=1.0 if job is Training else 8.0)

    def seconds(numbers):
        if job is Training:
            work = Training(small, sequence=numbers["tokens"], global_batch=16.0)
        else:
            work = StaticBatch(small, numbers["tokens"], 256.0)
        machine = cluster(8.0)
        hbm = machine.accelerator.hbm
        hbm = dataclasses.replace(hbm, bandwidth_bytes_per_s=numbers["rate"] * hbm.bandwidth_bytes_per_s)
        machine = dataclasses.replace(machine, accelerator=dataclasses.replace(machine.accelerator, hbm=hbm))
        return [evaluate(Scenario(machine, work, plan)).time_s]

    step, rates = 1e-5, np.array([0.1, 1.0, 30.0])
    rates = np.concatenate([rates * (1 - step), rates, rates * (1 + step)])
    columns = {"rate": rates, "tokens": np.tile([50.0, 700.0, 30_000.0], 3)}
    values, slopes = values_and_slopes(seconds, {"rate": 1.0, "tokens": 1.0}, columns)
    low, middle, high = values.reshape(3, 3)
    assert np.isfinite(middle).all()
    assert np.isfinite(slopes["tokens"]).all()
    assert slopes["rate"][3:6, 0] == pytest.approx((high - low) / (2 * step * rates[3:6]), rel=1e-5)
    assert (slopes["rate"][3:6, 0] < 0).all()


def test_each_shipped_kind_is_composed_from_yaml():
    result = {type(model(path.stem).attention).__name__ for path in CONF.glob("*.yaml") if "hf_config" not in path.stem
             and "attention:" in path.read_text(encoding="utf-8")}  # fmt: skip
    assert {"LocalAttention", "SparseAttention", "AlternatingAttention", "LatentAttention"} <= result
    assert build({"model": yaml.safe_load((CONF / "llama4_scout.yaml").read_text())}).objects["model"].attention.chunked
