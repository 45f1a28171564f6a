"""Arithmetic intensity against bytes counted while attention is carried out block by block."""

import jax.numpy as jnp
import numpy as np
import pytest
from builders import serving
from slopes import values_and_slopes

from _lib.intensity import arithmetic_intensity, streamed_again_bytes
from codesign.core.fields import replace
from codesign.model.scenario import Scenario
from codesign.model.workloads import ComputeOp, Plan


def core(job: Scenario, phase: str) -> ComputeOp:
    """The attention core of one layer."""
    result = [op for op in job.workload.lower(job.layout) if op.name == "attention_core" and op.phase == phase]
    assert isinstance(result[0], ComputeOp)
    return result[0]


def read_by_blocks(queries: int, keys: int, block: int, *, causal: bool) -> int:
    """Keys that blocks of queries fetch one after the other, each only those that some query of it may see."""
    fetched = 0
    for start in range(0, queries, block):
        last = start + min(block, queries - start) - 1
        fetched += keys - queries + last + 1 if causal else keys
    return fetched


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("tokens", [256, 1024, 4096])
def test_streamed_keys_of_executed_blocks(tokens: int, causal: bool):
    job = replace(serving(1.0, Plan(micro_batch=3.0)), {"workload.input_tokens": float(tokens)})
    op = core(job, "prefill")
    model = job.workload.model
    per_key = 2 * 3 * float(model.attention.kv_heads) * float(model.attention.head_dim) * 2
    want = (read_by_blocks(tokens, tokens, 128, causal=causal) - tokens) * per_key
    assert float(streamed_again_bytes(op, 128.0, float(causal))) == pytest.approx(want, rel=1e-12)


def test_decode_and_short_prompts_read_keys_once():
    job = replace(serving(1.0, Plan(micro_batch=3.0)), {"workload.input_tokens": 100.0})
    assert float(streamed_again_bytes(core(job, "prefill"), 128.0, 1.0)) == 0
    assert float(streamed_again_bytes(core(job, "decode"), 128.0, 1.0)) == 0


@pytest.mark.slow
def test_intensity_is_flops_over_bytes_with_finite_slopes():
    job = serving(1.0, Plan(micro_batch=4.0))
    ops = [op for op in job.workload.lower(job.layout) if isinstance(op, ComputeOp) and op.phase == "decode"]
    flops, nbytes = (sum(float(getattr(op.work, n) * op.count) for op in ops) for n in ("flops", "nbytes"))
    assert float(arithmetic_intensity(job)["decode"]) == pytest.approx(flops / nbytes, rel=1e-12)

    def prefill(tokens):
        return arithmetic_intensity(replace(job, {"workload.input_tokens": tokens}), block_rows=128.0)["prefill"]

    tokens = jnp.asarray([1.0, 64.0, 128.0, 4096.0, 1e6])
    at = {"tokens": np.asarray(tokens)}
    values, slopes = values_and_slopes(lambda numbers: [prefill(numbers["tokens"])], {"tokens": 1.0}, at)
    value, slope = values[:, 0], slopes["tokens"][:, 0]
    assert np.isfinite(np.asarray(value)).all()
    assert np.isfinite(np.asarray(slope)).all()
    np.testing.assert_allclose(prefill(tokens[3]), value[3], rtol=1e-12)
    step = 1e-3
    difference = (prefill(tokens[3] + step) - prefill(tokens[3] - step)) / (2 * step)
    assert float(slope[3]) == pytest.approx(float(difference), rel=1e-5)
