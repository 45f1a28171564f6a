"""Small scenarios from plain constructors, for tests that need no configuration."""

from codesign.model.scenario import Scenario
from codesign.model.workloads import DenseFeedForward, GroupedQueryAttention, Plan, StaticBatch, Training, Transformer
from codesign.testing.contracts import accelerator as accelerator
from codesign.testing.contracts import cluster as cluster
from codesign.testing.contracts import rings as rings


def gpt3(**changes) -> Transformer:
    values = dict(
        name="gpt3", hidden=12288.0, layers=96.0, attention=GroupedQueryAttention(96.0, 96.0, 128.0),
        feed_forward=DenseFeedForward(49152.0), vocab=51200.0, tied_embeddings=1.0,
    )  # fmt: skip
    return Transformer(**(values | changes))


def training(devices: float = 1024.0, plan: Plan | None = None, model: Transformer | None = None) -> Scenario:
    plan = plan or Plan(tp=8.0, pp=8.0, virtual_stages=3.0, sequence_parallel=1.0, zero=1.0, recompute="selective")
    return Scenario(cluster(devices), Training(model or gpt3(), sequence=2048.0, global_batch=1024.0), plan)


def serving(devices: float = 16.0, plan: Plan | None = None) -> Scenario:
    plan = plan or Plan(tp=16.0, micro_batch=16.0)
    return Scenario(cluster(devices), StaticBatch(gpt3(), 1024.0, 256.0), plan)
