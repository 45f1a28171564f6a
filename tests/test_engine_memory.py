"""Memory of inference engines: formulas by hand, slopes, shares and their inverse, starts that engines logged."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import as_leaf, replace
from codesign.jaxprs.evaluator import interpreted
from codesign.model.metrics import cache_budget, cache_room, cache_tokens, evaluate, memory_by_class, memory_moments
from codesign.model.workloads import EngineMemory, Plan
from codesign.model.workloads.engine_memory import ProfileRun

GIB = 2**30
ENGINES = ("vllm", "vllm_0_21", "sglang", "trtllm")
STORED = {"weights": 40e9, "kv_cache": 8e9, "working": 4e9, "graphs": 1e9}
DENSE = ("model=llama31_8b", "workload=continuous", "accelerator=h100_sxm", "plan.tp=1", "cluster.device_count=1")


def stored(**changes: float):
    return {name: jnp.asarray(nbytes) for name, nbytes in (STORED | changes).items()}


@interpreted
def _memory(scenario):
    layout = scenario.workload.laid_out(scenario.layout)
    used = memory_by_class(scenario, layout)
    room = cache_room(scenario, layout, used)
    budget = cache_budget(scenario, layout, used)
    return used, room, cache_tokens(scenario, layout, room), (0.0 if budget is None else budget.room_bytes)


def memory(*overrides: str):
    """Bytes by class, room for a cache, its tokens, room in the engine's share."""
    return jax.tree.map(float, _memory(scenario_from_config(*overrides)))


def test_a_dense_layer_at_its_peak():
    """8B: hidden 4096, width 14336, vocabulary 128256: a gated layer of 8192 + 32 tokens, or a sort of 1024 rows."""
    used, _, _, _ = memory(*DENSE, "engine_memory=vllm", "workload.engine_memory.fragmentation=0.0")
    tokens = 8192 + 32
    layer = 2 * (2 * tokens * 4096) + 2 * tokens * (2 * 14336 + 14336)
    assert used["hbm/working"] == pytest.approx(layer, rel=1e-6)
    sort = 2 * tokens * 4096 + 1024 * 128256 * 38
    used, _, _, _ = memory(
        *DENSE,
        "engine_memory=vllm",
        "workload.engine_memory.fragmentation=0.0",
        "workload.engine_memory.sequences=1024",
    )
    assert used["hbm/working"] == pytest.approx(sort, rel=1e-6)


def test_routed_experts_share_two_buffers():
    """Qwen3-235B on four ranks: 8 of 128 experts of 1536, hidden 4096: the summed down-products are the widest."""
    used, _, _, _ = memory(
        "model=qwen3_235b_a22b", "workload=continuous", "accelerator=h100_sxm", "plan.tp=4", "cluster.device_count=4",
        "engine_memory=sglang", "workload.engine_memory.fragmentation=0.0", "workload.engine_memory.workspace_bytes=0",
    )  # fmt: skip
    tokens, hidden, width = 8192 + 32, 4096, 1536 / 4
    stream = 2 * tokens * hidden
    assert used["hbm/working"] == pytest.approx(3 * stream + 2 * 8 * tokens * (hidden + width), rel=1e-6)


@pytest.mark.parametrize(("rows", "graphs"), [(1, 2), (2, 3), (4, 4), (32, 11), (256, 67), (1024, 67)])
def test_graphs_are_captured_for_small_batches_and_every_eighth(rows, graphs):
    one = EngineMemory(graph_bytes=1.0)
    assert float(one.graphs_bytes(jnp.asarray(float(rows)))) == graphs
    sizes = {size for size in (1, 2, 4, *range(8, 513, 8)) if size <= min(2 * rows, 512)}
    assert len(sizes) == graphs


def test_shares_of_all_of_weights_and_cache_and_of_what_is_left():
    capacity, plan = jnp.asarray(80e9), Plan(tp=2.0)
    total = EngineMemory(utilisation=0.9).budget(capacity, plan, stored())
    assert float(total.room_bytes) == pytest.approx(0.9 * 0.99 * 80e9 - 2 * 906e6 - 44e9)
    inside = EngineMemory(utilisation=0.9, graphs_inside=True).budget(capacity, plan, stored())
    assert float(total.room_bytes - inside.room_bytes) == pytest.approx(1e9)
    static = EngineMemory(share_of="static", utilisation=0.9).budget(capacity, plan, stored())
    assert float(static.room_bytes) == pytest.approx(0.9 * (0.99 * 80e9 - 0.5e9 - 2 * 906e6) - 40e9)
    free = EngineMemory(share_of="free", utilisation=0.9).budget(capacity, plan, stored())
    assert float(free.room_bytes) == pytest.approx(0.9 * (0.99 * 80e9 - 0.5e9 - 2 * 906e6 - 44e9))
    alone = EngineMemory(utilisation=0.9).budget(capacity, Plan(), stored())
    assert float(alone.room_bytes - total.room_bytes) == pytest.approx(2 * 906e6)  # one rank opens no communicator


@pytest.mark.parametrize("share_of", ["total", "static", "free"])
def test_the_share_that_is_needed_leaves_no_room(share_of):
    capacity, plan = jnp.asarray(80e9), Plan(tp=2.0)
    share = float(EngineMemory(share_of=share_of, utilisation=1.0).needed_share(capacity, plan, stored()))
    exact = EngineMemory(share_of=share_of, utilisation=share).budget(capacity, plan, stored())
    assert float(exact.used_bytes) == pytest.approx(float(exact.budget_bytes), rel=1e-6)
    assert float(exact.room_bytes) == pytest.approx(8e9, rel=1e-5)


def test_slopes_are_those_of_finite_differences_and_jit_and_vmap_say_the_same():
    one, plan = EngineMemory(utilisation=0.9), Plan(tp=2.0)

    def room(capacity, nbytes):
        return one.budget(capacity, plan, stored(working=0.0) | {"working": nbytes}).room_bytes

    capacity, nbytes = jnp.asarray(80e9), jnp.asarray(4e9)
    slope = jax.grad(room, (0, 1))(capacity, nbytes)
    for index, step in ((0, 1e6), (1, 1e6)):
        low, high = [capacity, nbytes], [capacity, nbytes]
        low[index], high[index] = low[index] - step, high[index] + step
        assert float(slope[index]) == pytest.approx(float(room(*high) - room(*low)) / (2 * step), rel=1e-3)
    plain = float(room(capacity, nbytes))
    assert float(jax.jit(room)(capacity, nbytes)) == pytest.approx(plain, rel=1e-6)
    many = jax.vmap(room, (0, None))(jnp.stack([capacity, 2 * capacity]), nbytes)
    assert float(many[0]) == pytest.approx(plain, rel=1e-6)


def test_finite_over_the_legal_box_and_never_less_for_more():
    one = EngineMemory()
    corners = [0.0, 1.0, 1e3, 1e12]
    for layer in corners:
        for logits in corners:
            run = ProfileRun(*map(jnp.asarray, (1.0, 1.0, layer, 1.0, logits)))
            more = run._replace(layer_bytes=run.layer_bytes * 2, logits=run.logits * 2)
            nbytes = float(one.working_bytes(run))
            assert 0 <= nbytes < math.inf
            assert float(one.working_bytes(more)) >= nbytes
    rows = jnp.asarray([1.0, 3.0, 17.0, 255.0, 1e7])
    assert np.all(np.diff(np.asarray(jax.vmap(one.graphs_bytes)(rows))) >= 0)


def test_wrong_shares_are_one_line():
    with pytest.raises(ConfigError, match=r"engine_memory\.utilisation = 1\.2 is outside \[0, 1\]"):
        EngineMemory(utilisation=1.2)
    with pytest.raises(ConfigError, match=r"engine_memory\.share_of = 'half' is not one of total, static, free"):
        EngineMemory(share_of="half")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_is_priced(engine):
    result = evaluate(scenario_from_config(*DENSE, f"engine_memory={engine}", "workload.engine_memory.utilisation=0.9"))
    assert 0 < float(result.usage["hbm.engine"]) <= 1
    assert float(result.memory_bytes["hbm/graphs"]) > 0


def test_the_class_is_the_file_of_vllm():
    """What a workload takes that names no engine."""
    named = scenario_from_config(*DENSE, "engine_memory=vllm").workload.engine_memory
    for field in dataclasses.fields(EngineMemory):
        mine, theirs = getattr(named, field.name), getattr(EngineMemory(), field.name)
        if isinstance(mine, str | bool):
            assert mine == theirs
        else:
            assert float(mine) == pytest.approx(float(theirs), rel=2e-3), field.name


def test_a_static_batch_is_prefilled_in_steps():
    """128 prompts of 2048 tokens at once would hold 256 Ki tokens of activations; an engine takes 8192 at a time."""
    words = ("model=llama31_8b", "workload=static_batch", "accelerator=h100_sxm", "plan.tp=1", "cluster.device_count=1")
    scenario = scenario_from_config(*words, "plan.micro_batch=128")
    few = replace(scenario, {"plan.micro_batch": as_leaf(64.0)})
    many, less = (float(one.workload.footprint(one.layout)["working"][0]) for one in (scenario, few))
    assert many == pytest.approx(less, rel=1e-6)
    layer = 1.05 * 8192 * 2 * (2 * 4096 + 3 * 14336)
    assert many == pytest.approx(layer, rel=1e-6)


def test_the_cache_is_of_whole_blocks_and_moments_peak_at_the_footprint():
    scenario = scenario_from_config(*DENSE)
    layout = scenario.workload.laid_out(scenario.layout)
    used = memory_by_class(scenario, layout)
    tokens = float(cache_tokens(scenario, layout, cache_room(scenario, layout, used)))
    assert tokens % 16 == 0
    moments = memory_moments(scenario, layout)
    assert list(moments) == ["load", "profile run", "prefill", "decode"]
    near = sum(float(nbytes) for name, nbytes in used.items() if name.startswith("hbm/"))
    totals = {name: sum(map(float, parts.values())) for name, parts in moments.items()}
    assert totals["prefill"] == pytest.approx(near, rel=1e-6)
    assert max(totals.values()) == totals["prefill"]
    assert totals["load"] < totals["decode"] <= totals["prefill"]


def test_experts_in_mxfp4_are_padded_when_they_are_loaded():
    """gpt-oss-120b: 2880 becomes 3072 and 2944; 65.97 GiB were loaded on an H100 (vLLM, Marlin kernels)."""
    used, _, _, _ = memory(
        "model=gpt_oss_120b", "workload=continuous", "precision=checkpoint", "accelerator=h100_sxm", "plan.tp=1",
        "cluster.device_count=1",
    )  # fmt: skip
    assert used["hbm/weights"] / GIB == pytest.approx(65.97, rel=0.004)


@pytest.mark.parametrize("words", [
    ("model=llama31_8b", "workload=static_batch", "plan.pp=2"), ("model=gpt_oss_120b", "precision=checkpoint"),
    ("model=deepseek_v3", "precision=fp8_block", "plan.tp=8"), ("model=qwen3_235b_a22b",),
])  # fmt: skip
def test_weights_by_class_add_up_to_those_of_a_device(words):
    work = () if any(word.startswith("workload") for word in words) else ("workload=continuous",)
    scenario = scenario_from_config(*words, *work, "accelerator=h200")
    layout = scenario.workload.laid_out(scenario.layout)
    held = scenario.workload.held_weights(layout)
    assert sum(map(float, held.values())) == pytest.approx(float(scenario.workload.weight_bytes(layout)), rel=1e-5)


STEP = ("workload.engine_memory.sequences=1024", "workload.engine_memory.tokens=8192")
LOGGED = {
    "vLLM, Qwen3-235B-FP8 on four H100": (
        ("model=qwen3_235b_a22b", "precision=fp8_block", "workload.precision.kv_cache=bf16", "accelerator=h100_sxm",
         "plan.tp=4", "cluster.device_count=4", "engine_memory=vllm", "workload.engine_memory.utilisation=0.9", *STEP),
        8.11, 178_880, 80,
    ),
    "SGLang, the same": (
        ("model=qwen3_235b_a22b", "precision=fp8_block", "workload.precision.kv_cache=bf16", "accelerator=h100_sxm",
         "plan.tp=4", "cluster.device_count=4", "engine_memory=sglang", "workload.engine_memory.utilisation=0.93"),
        None, 367_404, 80,
    ),
    "vLLM, Kimi-K2-Thinking on eight H200": (
        ("model=kimi_k25", "precision=checkpoint", "accelerator=h200", "plan.tp=8", "cluster.device_count=8",
         "engine_memory=vllm", "workload.engine_memory.utilisation=0.9", *STEP),
        46.80, 715_072, 141,
    ),
    "vLLM, gpt-oss-120b on one H100": (
        ("model=gpt_oss_120b", "precision=checkpoint", "accelerator=h100_sxm", "plan.tp=1", "cluster.device_count=1",
         "plan.token_budget=1024", "engine_memory=vllm", "workload.engine_memory.utilisation=0.95", STEP[0]),
        1.71, None, 80,
    ),
}  # fmt: skip
"""Room for the cache that engines logged when they started: GiB a device, tokens; memory of the device.

Source: vllm-project/vllm issues 21348 and 27508, vllm-project/recipes (Kimi-K2-Think.md, 8959cf6). Nothing is fitted.
"""


def test_activations_of_a_profile_run_that_was_logged():
    """Llama-3-8B, 256 sequences: "PyTorch activation peak memory 1.26GiB" (vllm-project/vllm, pull request 10511)."""
    used, _, _, _ = memory(
        *DENSE, "engine_memory=vllm", "workload.engine_memory.sequences=256", "workload.engine_memory.tokens=8192"
    )
    assert used["hbm/working"] / GIB == pytest.approx(1.26, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("case", LOGGED)
def test_rooms_that_engines_logged(case):
    overrides, gib, tokens, device = LOGGED[case]
    _, _, result, room = memory("workload=continuous", *overrides)
    if gib is not None:
        assert abs(room / GIB - gib) < 0.01 * device
    if tokens is not None:
        assert result == pytest.approx(tokens, rel=0.08)


@pytest.mark.slow
@pytest.mark.parametrize(("accelerator", "fits"), [("h20", False), ("h20_3e", True)])
def test_a_model_that_ran_on_one_of_two_memories(accelerator, fits):
    """DeepSeek-V3.2 on eight H20 started with 141 GB and not with 96 (vLLM, its defaults)."""
    _, _, _, room = memory(
        "model=deepseek_v32", "workload=continuous", "precision=checkpoint", f"accelerator={accelerator}", "plan.tp=8",
        "cluster.device_count=8", "engine_memory=vllm", "workload.engine_memory.utilisation=0.9", *STEP,
    )  # fmt: skip
    assert (room > 0) == fits
