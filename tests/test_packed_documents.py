"""Documents packed into sequences: attention against lengths drawn one by one, all else as without."""

import dataclasses

import numpy as np
import pytest
from test_training_memory import JOB

from codesign.model.workloads import Layout, Plan


def core_flops(document: float, cv: float, **plan: float) -> float:
    job = dataclasses.replace(JOB, sequence=65536.0, document_tokens=document, document_cv=cv)
    block = {op.name: op for op in job.model.layer_ops(job.shard(Layout(Plan(**plan), 8.0)))}
    return float(block["attention_core"].forward.flops)


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0])
def test_work_of_attention_is_that_of_lengths_drawn_one_by_one(cv: float):
    """Pairs of a token and an earlier one of its document, in a million documents cut where a sequence ends."""
    rng, mean = np.random.default_rng(5), 512.0
    lengths = rng.gamma(1 / cv**2, mean * cv**2, size=200_000) if cv else np.full(200_000, mean)
    pairs_a_token = (lengths**2).sum() / 2 / lengths.sum()
    whole = core_flops(0.0, 0.0) / 65536 / (65536 / 2)  # FLOPs of a pair
    assert core_flops(mean, cv) / whole / 65536 == pytest.approx(pairs_a_token, rel=0.02)


def test_limits():
    """No documents, and documents as long as a sequence: the sequence; the rest of a layer does not see them."""
    assert core_flops(65536.0, 0.0) == core_flops(0.0, 0.0) == core_flops(1e9, 1.0)
    assert core_flops(512.0, 0.0, cp=4.0) == pytest.approx(core_flops(512.0, 0.0) / 4)
    packed, plain = (dataclasses.replace(JOB, document_tokens=length) for length in (128.0, 0.0))
    layout = Layout(Plan(tp=2.0, sequence_parallel=1.0), 8.0)
    for ours, theirs in zip(packed._block(layout), plain._block(layout), strict=True):
        np.testing.assert_allclose(float(ours.stored_bytes), float(theirs.stored_bytes), rtol=1e-12)
        if not ours.core and ours.forward is not None:
            np.testing.assert_allclose(float(ours.forward.flops), float(theirs.forward.flops), rtol=1e-12)
    assert float(packed.model_flops_per_step()) < float(plain.model_flops_per_step())
