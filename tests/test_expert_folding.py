"""Parallel folding: experts over any part of the ranks of a stage, against ranks counted one by one."""

import itertools

import numpy as np
import pytest

from codesign import evaluate, scenario_from_config
from codesign.model.workloads import GroupedQueryAttention, Layout, MixtureOfExperts, Plan, Training, Transformer
from codesign.model.workloads.schedule import CommOp, ComputeOp

EXPERTS, TOP_K, WIDTH, HIDDEN = 16.0, 2.0, 512.0, 256.0
MODEL = Transformer(
    "experts", HIDDEN, 4.0, GroupedQueryAttention(8.0, 8.0, 32.0), MixtureOfExperts(EXPERTS, TOP_K, WIDTH), 1000.0
)
JOB = Training(MODEL, 1024.0, 64.0)
FOLDS = [
    dict(tp=2.0, ep=8.0, etp=1.0), dict(tp=4.0, ep=16.0, etp=1.0), dict(tp=1.0, ep=4.0, etp=2.0),
    dict(tp=2.0, cp=2.0, ep=2.0, etp=4.0), dict(tp=4.0, ep=2.0), dict(tp=4.0, ep=1.0, etp=1.0),
]  # fmt: skip


def ranks_of_experts(etp: int, ep: int, world: int) -> dict[tuple[int, int], list[int]]:
    """(part of an expert, its place among the experts) -> ranks that hold it, in Megatron's order etp, ep, replicas."""
    held: dict[tuple[int, int], list[int]] = {}
    replicas = range(world // (etp * ep))
    for rank, (_, index, part) in enumerate(itertools.product(replicas, range(ep), range(etp))):
        held.setdefault((part, index), []).append(rank)
    return held


@pytest.mark.parametrize("fold", FOLDS, ids=str)
def test_groups_are_those_of_ranks_counted_one_by_one(fold: dict[str, float]):
    plan = Plan(sequence_parallel=1.0, zero=1.0, **fold)
    layout = Layout(plan, 16.0)
    assert all(float(broken) == 0 for broken in JOB.violations(layout).values())
    etp, ep = round(fold.get("etp") or fold["tp"]), round(fold["ep"])
    held = ranks_of_experts(etp, ep, 16)
    for part, place in held:
        copies = held[part, place]
        assert len(copies) == float(layout.expert_replicas)
        assert float(layout.group("expert_data").size) == len(copies)
        if len(copies) > 1:
            assert float(layout.group("expert_data").stride) == copies[1] - copies[0]
    if ep > 1:
        assert float(layout.group("ep").stride) == held[0, 1][0] - held[0, 0][0]
    assert float(layout.group("ep").size) == ep
    assert float(layout.group("expert_tp").size) == etp


@pytest.mark.parametrize("fold", FOLDS, ids=str)
def test_tokens_and_weights_are_all_there_once(fold: dict[str, float]):
    """Rows of all ranks are the token copies of a stage; weights of one copy of the experts are the experts'."""
    layout = Layout(Plan(sequence_parallel=1.0, **fold), 16.0)
    shard = JOB.shard(layout)
    block = {op.name: op for op in MODEL.layer_ops(shard)}
    etp = fold.get("etp") or fold["tp"]
    sent = float(shard.tokens) / fold["tp"] * 16 * TOP_K  # of all ranks
    for name in ("moe_up", "moe_down"):
        rows = float(block[name].forward.rows * block[name].forward.batch)
        np.testing.assert_allclose(rows * 16, sent * etp, rtol=1e-12)  # each rank of an expert has all of its rows
        each = float(block[name].weights) * etp * fold["ep"]
        np.testing.assert_allclose(each, EXPERTS * HIDDEN * WIDTH * (2 if name == "moe_up" else 1), rtol=1e-12)
    flops = sum(float(block[name].forward.flops) for name in ("moe_up", "moe_down")) * 16
    np.testing.assert_allclose(flops, sent * 6 * HIDDEN * WIDTH, rtol=1e-12)
    comms = {comm.name: comm for comm in MODEL.layer_comms(shard)}
    if fold["ep"] > 1 or etp != fold["tp"]:
        np.testing.assert_allclose(float(comms["moe_dispatch"].nbytes), sent / 16 * HIDDEN * 2, rtol=1e-12)
        np.testing.assert_allclose(float(comms["moe_dispatch_tp"].nbytes), sent / 16 * HIDDEN * 2 * etp, rtol=1e-12)


def test_as_many_ranks_as_tp_is_what_nothing_said_means():
    said, silent = (JOB.footprint(Layout(Plan(tp=4.0, ep=2.0, etp=etp), 16.0)) for etp in (4.0, 0.0))
    assert {name: float(kept[0]) for name, kept in said.items()} == {n: float(kept[0]) for n, kept in silent.items()}


QWEN = "workload=training model=qwen3_235b_a22b accelerator=h800 cluster.device_count=256 space=fixed plan.zero=1"


@pytest.mark.slow
def test_a_published_layout_is_priced():
    """256 H800, tp 2, ep 8 over 4 data ranks, 96 chunks with embedding and head: 22.42 s were measured."""
    words = f"{QWEN} workload.sequence=4096 workload.global_batch=2048 plan.tp=2 plan.etp=1 plan.pp=32"
    words += " plan.virtual_stages=3 plan.ep=8 plan.micro_batch=1 plan.recompute=selective plan.sequence_parallel=1"
    metrics = evaluate(scenario_from_config(*words.split(), "plan.first_stage_less=1", "plan.last_stage_less=1"))
    assert all(float(broken) == 0 for broken in metrics.violations.values())
    assert float(metrics.time_s) == pytest.approx(22.42, rel=0.15)


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        ("plan.tp=2 plan.ep=8 plan.etp=0", "plan.ep = 8 must divide model experts"),
        ("plan.tp=2 plan.ep=8 plan.etp=2", "ep 8 * etp 2 does not divide the 8 ranks of a stage (Megatron: world ="),
        ("plan.tp=2 plan.ep=1 plan.etp=5", "plan.etp = 5 does not divide the expert width 1536"),
        ("plan.tp=2 plan.ep=3 plan.etp=1", "plan.ep = 3 must divide model experts = 128"),
    ],
)
def test_what_breaks_the_folding_is_said_in_one_line(plan: str, line: str):
    scenario = scenario_from_config(*QWEN.split(), "plan.pp=32", "plan.virtual_stages=3", *plan.split())
    layout = scenario.layout
    assert float(scenario.workload.violations(layout)["experts"]) > 0
    said = str(scenario.workload.broken_rule("experts", layout))
    assert line in said
    assert "\n" not in said


SERVED = "model=qwen3_235b_a22b accelerator=h100_sxm cluster.device_count=16 plan.pp=1 space=fixed plan.micro_batch=32"


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        ("plan.tp=8 plan.etp=2 plan.ep=2", "ep 2 * etp 2 ranks of experts are not 1 to 2 whole groups of tp 8"),
        ("plan.tp=4 plan.etp=1 plan.ep=12", "ep 12 * etp 1 ranks of experts are not 1 to 4 whole groups of tp 4"),
        ("plan.tp=8 plan.etp=8", "plan.etp = 8 equals plan.tp: write plan.etp = 0"),
        ("plan.tp=2 plan.etp=4", "plan.etp = 4 is more than plan.tp = 2"),
        ("plan.tp=4 plan.etp=5 plan.ep=4", "plan.etp = 5 does not divide the expert width 1536"),
        ("plan.tp=4 plan.ep=16", "1 spreads whole ones over the 16 ranks of a stage"),
        ("model=llama31_70b plan.tp=8 plan.etp=2", "llama31_70b has no experts"),
    ],
)
@pytest.mark.parametrize("workload", ["continuous", "static_batch"])
def test_an_engine_that_cannot_spread_its_experts_says_so_in_one_line(workload: str, plan: str, line: str):
    scenario = scenario_from_config(*SERVED.split(), *plan.split(), f"workload={workload}", "framework=none")
    assert float(scenario.workload.violations(scenario.layout)["experts"]) > 0
    said = str(scenario.workload.broken_rule("experts", scenario.layout))
    assert line in said
    assert "\n" not in said


@pytest.mark.parametrize("workload", ["continuous", "static_batch"])
@pytest.mark.parametrize("plan", ["plan.tp=8 plan.etp=1 plan.ep=8", "plan.tp=8 plan.etp=2 plan.ep=4"])
def test_experts_on_ranks_with_the_same_tokens_are_joined_by_the_all_reduce_of_a_dense_layer(workload, plan):
    """One tensor group: nobody sends a token. Each rank works on as many copies, and weights lie as they would, cut."""
    base = (*SERVED.split(), f"workload={workload}", "framework=none")
    folded, cut = (scenario_from_config(*base, *words.split()) for words in (plan, "plan.tp=8 plan.ep=1"))
    assert all(float(broken) == 0 for broken in evaluate(folded).violations.values())

    def sums(scenario):
        every = scenario.workload.lower(scenario.layout)
        comms = [op for op in every if isinstance(op, CommOp)]
        work = [op for op in every if isinstance(op, ComputeOp) and op.name.startswith("moe_")]
        axes = ("tp", "ep", "expert_tp")
        sent = {axis: sum(float(op.nbytes * op.count) for op in comms if op.axis == axis) for axis in axes}
        return sent, sum(float(op.work.flops * op.count) for op in work)

    (told, flops), (dense, expected) = sums(folded), sums(cut)
    assert told["tp"] == pytest.approx(dense["tp"])
    assert told["tp"] > 0
    assert told["ep"] == told["expert_tp"] == 0
    assert flops == pytest.approx(expected)
    weights = [np.asarray(scenario.workload.footprint(scenario.layout)["weights"]) for scenario in (folded, cut)]
    assert weights[0] == pytest.approx(weights[1])


def test_experts_over_several_tensor_groups_are_sent_for():
    """Two groups of eight: each rank sends an eighth of its group's copies."""
    base = (*SERVED.split(), "workload=static_batch", "framework=none", "plan.micro_batch=32")
    scenario = scenario_from_config(*base, "plan.tp=8", "plan.etp=1", "plan.ep=16")
    assert float(scenario.layout.sharing) == 2
    every = scenario.workload.lower(scenario.layout)
    sent = [op for op in every if isinstance(op, CommOp) and op.name == "moe_combine"]  # of prompts, of decodes
    rows = 32 * 8 * 4096 * 2 / 8  # sequences, experts of a token, hidden size, bytes
    assert [float(op.nbytes) for op in sent] == pytest.approx([2048 * rows, rows])
