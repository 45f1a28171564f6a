"""Small clusters from plain constructors, on which contracts price what they are given."""

from ..core.fields import as_leaf, as_leaves
from ..core.jax_typed import arrays, asarray
from ..model.hardware import AbstractKernel, Accelerator, Link, MemoryTier, Roofline
from ..model.networks.collectives import Collectives, NetworkLevel, PairwiseAllToAll, RingAllGather, RingAllReduce, Send
from ..model.networks.fabrics import FatTree, SwitchDomain
from ..model.scenario import Cluster, Facility, Host

KINDS = ("gemm", "moe_gemm", "attention_prefill", "attention_decode", "mla_prefill", "mla_decode")


def rings() -> Collectives:
    """Rings for everything that rings can do."""
    return Collectives(RingAllReduce(), RingAllGather(), RingAllGather(), PairwiseAllToAll(), Send())


def accelerator() -> Accelerator:
    """One accelerator of plausible numbers, kernels by roofline."""
    kernel = Roofline(t0_s=asarray(4e-6), compute_ratio=asarray(0.8), memory_ratio=asarray(0.8))
    kernels: dict[str, dict[str, AbstractKernel]] = {kind: {"bf16": kernel} for kind in KINDS}
    kernels |= {kind: {"any": kernel} for kind in ("elementwise", "optimizer")}
    return Accelerator(
        name="h100_like",
        peak_flops_per_s=as_leaves({"bf16": 989e12, "fp8": 1979e12, "vector": 67e12}),
        hbm=MemoryTier(
            *arrays(80e9, 3.35e12),
            energy_j_per_byte=asarray(40e-12),
            usd_per_byte=asarray(12e-9),
            reserved_bytes=asarray(4e9),
        ),
        kernels=kernels,
        energy_j_per_flop=as_leaves({"bf16": 0.5e-12, "fp8": 0.25e-12, "vector": 1e-12}),
        idle_w=asarray(100.0),
        tdp_w=asarray(560.0),
        price_usd=asarray(29e3),
    )


def cluster(devices: float = 1024.0) -> Cluster:
    """Nodes of eight on a tree."""
    network = {
        "scale_up": NetworkLevel(SwitchDomain(*arrays(8.0, 450e9, 2e-6, 10e-12, 4e-9, 1e-10)), rings()),
        "scale_out": NetworkLevel(FatTree(*arrays(50e9, 6e-6, 1e-6), usd_per_bytes_per_s=asarray(8e-8)), rings()),
    }
    memory = MemoryTier(*arrays(512e9, 300e9), usd_per_byte=asarray(4e-9))
    host = Host(memory, Link(*arrays(1e-5, 1 / 55e9)), price_usd=asarray(6e3), power_w=asarray(150.0))
    return Cluster(accelerator(), host, network, as_leaf(devices), Facility())
