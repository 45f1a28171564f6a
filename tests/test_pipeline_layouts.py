"""Stages with fewer layers at their ends: read from commands, written, priced by hand, refused in one line."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign import scenario_from_config
from codesign.commands.launch import read_launch
from codesign.commands.launch.switches import ends_of_layout, layout_text
from codesign.core.errors import ConfigError
from codesign.model.workloads import DenseFeedForward, GroupedQueryAttention, Layout, Plan, Training, Transformer
from codesign.study.feasible_plans import violations

QWEN = (
    "torchrun --nproc-per-node 8 --nnodes 32 pretrain_gpt.py --num-layers 94 --hidden-size 4096"
    " --num-attention-heads 64 --num-query-groups 4 --kv-channels 128 --num-experts 128 --moe-router-topk 8"
    " --moe-ffn-hidden-size 1536 --ffn-hidden-size 12288 --untie-embeddings-and-output-weights --swiglu"
    " --pipeline-model-parallel-size 32 --expert-model-parallel-size 8 --use-distributed-optimizer"
    " --micro-batch-size 1 --global-batch-size 2048 --seq-length 4096 --sequence-parallel"
    " --tensor-model-parallel-size 2 --expert-tensor-parallel-size 1"
)
SPLIT = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"


def plan_of(tmp_path, words: str) -> dict[str, str]:
    path = tmp_path / "train.sh"
    path.write_text(f"{QWEN} {words}\n", encoding="utf-8")
    told = dict(one.split("=", 1) for one in read_launch(str(path)).overrides)
    return {key.removeprefix("plan."): value for key, value in told.items() if key.startswith("plan.")}


@pytest.mark.parametrize(
    "words",
    [
        f"--num-virtual-stages-per-pipeline-rank 3 {SPLIT}",
        f"--num-layers-per-virtual-pipeline-stage 1 {SPLIT}",
        "--pipeline-model-parallel-layout 'E|(t|)*94L'",
    ],
)
def test_embedding_and_loss_as_layers_of_94(tmp_path, words: str):
    result = plan_of(tmp_path, words)
    assert (result["pp"], result["virtual_stages"], result["ep"], result["etp"]) == ("32", "3", "8", "1")
    assert (result["first_stage_less"], result["last_stage_less"], result["pp_overlap"]) == ("1", "1", "1")


def test_layers_of_first_and_last_stage(tmp_path):
    result = plan_of(tmp_path, "--decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 2")
    assert (result["first_stage_less"], result["last_stage_less"]) == ("1", "1")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (f"--num-virtual-stages-per-pipeline-rank 2 {SPLIT}", "94 layers with 2 for embedding and loss do not divide"),
        ("--decoder-first-pipeline-num-layers 5", "89 layers do not divide over the 31 stages between"),
        ("--pipeline-model-parallel-layout 'Et|tL'", "has 2 chunks, no multiple of 32 stages"),
        ("--pipeline-model-parallel-layout 'E|(t|)*93L'", "has 95 chunks, no multiple of 32 stages"),
        ("--pipeline-model-parallel-layout 't|(t|)*94L'", "has no embedding E first"),
        ("--pipeline-model-parallel-layout 'E|(t|)*99999L'", "is longer than 100,000 layers"),
        ("--pipeline-model-parallel-layout 'E|(t|)*9L|((('", "has other words than E, t"),
    ],
)
def test_layouts_that_are_none_are_refused(tmp_path, words: str, line: str):
    with pytest.raises(ConfigError) as error:
        plan_of(tmp_path, words)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_layouts_come_back_from_their_words():
    rng = random.Random(7)
    for _ in range(200):
        pp, v, each = rng.randint(2, 12), rng.randint(1, 4), rng.randint(1, 5)
        first, last = rng.randint(0, each), rng.randint(0, each)
        if pp * v == 2 and (first and last):
            continue  # of two chunks the fuller is the measure
        layers = pp * v * each - first - last
        result = ends_of_layout(layout_text(layers, pp * v, first, last), layers, pp)
        assert (result.first, result.last, result.chunks, result.note) == (first, last, v, "")


def test_a_shorter_last_stage_waits_for_full_ones_unless_its_head_takes_longer():
    """By hand: m passes of the slowest stage, the others once to fill."""
    model = Transformer("gpt", 1024.0, 6.0, GroupedQueryAttention(8.0, 8.0, 128.0), DenseFeedForward(4096.0), 100.0)
    job = Training(model, 512.0, 8.0)
    forward, backward, covers = jnp.asarray(1.0), jnp.asarray(2.0), jnp.asarray(1.0)
    layout = Layout(Plan(pp=4.0, last_stage_less=2.0), 4.0)  # stages of 2, 2, 2 and 0 layers
    bubbles = float(job.bubbles(layout))
    assert bubbles == 3 - 1  # one stage has nothing to pass through
    for head in (1.0, 5.0):
        repeated, edge = job._paced(jnp.asarray(0.0), forward, backward, jnp.asarray(head), layout, covers)
        slowest = max(3.0, head)
        assert float(repeated + edge) == pytest.approx((8 - 1) * slowest + 3 * bubbles + head)


@pytest.mark.parametrize("ends", [(0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (0.0, 2.0), (3.0, 3.0)])
def test_rules_of_ends(ends: tuple[float, float]):
    """14 layers over 4 stages: with one or two at the ends 16; more than a stage has are no layout."""
    model = Transformer("gpt", 1024.0, 14.0, GroupedQueryAttention(8.0, 8.0, 128.0), DenseFeedForward(4096.0), 100.0)
    job = Training(model, 512.0, 8.0)
    layout = Layout(Plan(pp=4.0, first_stage_less=ends[0], last_stage_less=ends[1]), 4.0)
    legal = float(job.violations(layout)["layers"]) == 0
    assert legal == ((14 + sum(ends)) % 4 == 0 or sum(ends) == 0)
    stages = [float(stage.layers) for stage in job.stages(layout).values()]
    if sum(ends) and legal:
        np.testing.assert_allclose(stages[0] + 2 * stages[1] + stages[2], 14)


def test_a_schedule_in_v_shape_is_read(tmp_path):
    path = tmp_path / "titan.sh"
    words = "--module llama3 --config llama3_405b --parallelism.pipeline_parallel_degree 2 --training.seq_len 8192"
    more = "--parallelism.pipeline_parallel_schedule ZBVZeroBubble"
    path.write_text(f"torchrun --nproc-per-node 8 -m torchtitan.train {words} {more}\n", encoding="utf-8")
    told = dict(one.split("=", 1) for one in read_launch(str(path)).overrides)
    assert (told["plan.schedule"], told["plan.virtual_stages"], told["plan.pp"]) == ("zb_v", "2", "2")
    assert "plan.first_stage_less" not in told


def test_a_rule_at_its_edge_is_kept_however_it_is_compiled():
    """80 layers on 11 stages of 8: 8 (11 - 1) / 80 - 1 is 6e-17 where a compiler multiplies by a reciprocal."""
    scenario = scenario_from_config("model=llama31_70b", "workload=training", "plan.virtual_stages=1")
    stages = np.arange(1.0, 81.0)
    compiled = jax.jit(jax.vmap(violations, in_axes=(None, 0)))(scenario, {"pp": stages})["layers"]
    kept = np.ceil(80 / stages) * (stages - 1) <= 80
    assert kept[10]
    np.testing.assert_array_equal(np.asarray(compiled) <= 0, kept)
