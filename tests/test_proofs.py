"""Which shipped experiments are proven by the walk alone, without one sampled pair; the exceptions say why."""

import sys
from pathlib import Path

import pytest
from tiers import EXPERIMENTS, mostly_slow

from codesign.config import available

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import curvature

PROVEN = (
    *("train_gpt3_175b", "codesign_175b", "chip_175b", "serve_llama31_405b", "codesign_405b_serving"),
    *("serve_llama31_405b_static", "serve_deepseek_v3", "serve_any_schedule"),
    *("photonic_rack", "photonic_vs_nvl72", "folded_clos", "workload_mix", "intranode_codesign"),
    *("serve_llama31_405b_pool", "serve_dlrm", "calculon", "busy_node", "lumorph_choice", "scin_node"),
    *("fabrex_cables", "compute_optimal_machine"),
    *("pfa_offload", "disaggregation", "mixed_pools"),
    *("chip_mix", "model_for_edge_budget", "serve_fabrics", "shape_on_machine"),
)
EXCEPTIONS = {
    "serve_goodput": "workloads/goodput.py",  # steps with few decodes put together from others, and a queue
    "lumorph_rack": "collectives/radix.py",  # lanes divided in whole numbers, and the best of several algorithms
    "serve_dlrm_pool": "hardware/memory_pool.py",  # hits of a cache
    "serve_llama31_405b_edge": "it is concave",  # a cache in HBM and a pool, each as large as an edge leaves it
    "train_dlrm": "workloads/recommendation.py",  # two exchanges hidden behind 1.6 times the work there is
}


def judged(name):
    _, judgement, _ = curvature.walked([f"experiment={name}"])
    return judgement


@pytest.mark.parametrize("name", mostly_slow(PROVEN, quick=EXPERIMENTS))
def test_an_experiment_is_proven_by_the_walk(name):
    assert judged(name).unproven == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_an_exception_names_the_component(name):
    assert any(EXCEPTIONS[name] in why for why in judged(name).unproven.values())


def test_every_experiment_is_one_or_the_other():
    assert set(available("experiment")) == {*PROVEN, *EXCEPTIONS}
