"""Small clusters from plain constructors, on which contracts price what they are given."""

from ..collectives import Collectives, NetworkLevel, PairwiseAllToAll, RingAllGather, RingAllReduce, Send
from ..fabrics import FatTree, SwitchDomain
from ..hardware import Accelerator, Link, MemoryTier, Roofline
from ..scenario import Cluster, Facility, Host

KINDS = ("gemm", "moe_gemm", "attention_prefill", "attention_decode", "mla_prefill", "mla_decode")


def rings() -> Collectives:
    """Rings for everything that rings can do."""
    return Collectives(RingAllReduce(), RingAllGather(), RingAllGather(), PairwiseAllToAll(), Send())


def accelerator() -> Accelerator:
    """One accelerator of plausible numbers, kernels by roofline."""
    kernel = Roofline(t0_s=4e-6, compute_ratio=0.8, memory_ratio=0.8)
    return Accelerator(
        name="h100_like",
        peak_flops_per_s={"bf16": 989e12, "fp8": 1979e12, "vector": 67e12},
        hbm=MemoryTier(80e9, 3.35e12, energy_j_per_byte=40e-12, usd_per_byte=12e-9, reserved_bytes=4e9),
        kernels={kind: {"bf16": kernel} for kind in KINDS} | {k: {"any": kernel} for k in ("elementwise", "optimizer")},
        energy_j_per_flop={"bf16": 0.5e-12, "fp8": 0.25e-12, "vector": 1e-12},
        idle_w=100.0,
        tdp_w=560.0,
        price_usd=29e3,
    )


def cluster(devices: float = 1024.0) -> Cluster:
    """Nodes of eight on a tree."""
    network = {
        "scale_up": NetworkLevel(SwitchDomain(8.0, 450e9, 2e-6, 10e-12, 4e-9, 1e-10), rings()),
        "scale_out": NetworkLevel(FatTree(50e9, 6e-6, 1e-6, usd_per_bytes_per_s=8e-8), rings()),
    }
    host = Host(MemoryTier(512e9, 300e9, usd_per_byte=4e-9), Link(1e-5, 1 / 55e9), price_usd=6e3, power_w=150.0)
    return Cluster(accelerator(), host, network, devices, Facility())
