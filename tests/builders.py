"""Small scenarios from plain constructors, for tests that need no configuration."""

from codesign.collectives import Collectives, NetworkLevel, PairwiseAllToAll, RingAllGather, RingAllReduce, Send
from codesign.fabrics import FatTree, SwitchDomain
from codesign.hardware import Accelerator, Link, MemoryTier, Roofline
from codesign.scenario import Cluster, Facility, Host, Scenario
from codesign.workloads import DenseFeedForward, GroupedQueryAttention, Plan, Serving, Training, Transformer


def rings() -> Collectives:
    return Collectives(RingAllReduce(), RingAllGather(), RingAllGather(), PairwiseAllToAll(), Send())


def accelerator() -> Accelerator:
    kernel = Roofline(t0_s=4e-6, compute_ratio=0.8, memory_ratio=0.8)
    kinds = ("gemm", "moe_gemm", "attention_prefill", "attention_decode", "mla_prefill", "mla_decode")
    return Accelerator(
        name="h100_like",
        peak_flops_per_s={"bf16": 989e12, "fp8": 1979e12, "vector": 67e12},
        hbm=MemoryTier(80e9, 3.35e12, energy_j_per_byte=40e-12, usd_per_byte=12e-9, reserved_bytes=4e9),
        kernels={kind: {"bf16": kernel} for kind in kinds} | {k: {"any": kernel} for k in ("elementwise", "optimizer")},
        energy_j_per_flop={"bf16": 0.5e-12, "fp8": 0.25e-12, "vector": 1e-12},
        idle_w=100.0,
        tdp_w=560.0,
        price_usd=29e3,
    )


def cluster(devices: float = 1024.0) -> Cluster:
    network = {
        "scale_up": NetworkLevel(SwitchDomain(8.0, 450e9, 2e-6, 10e-12, 4e-9, 1e-10), rings()),
        "scale_out": NetworkLevel(FatTree(50e9, 6e-6, 1e-6, usd_per_bytes_per_s=8e-8), rings()),
    }
    host = Host(MemoryTier(512e9, 300e9, usd_per_byte=4e-9), Link(1e-5, 1 / 55e9), price_usd=6e3, power_w=150.0)
    return Cluster(accelerator(), host, network, devices, Facility())


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
    return Scenario(cluster(devices), Serving(gpt3(), 1024.0, 256.0), plan)
