"""Modules that predict tokens ahead: loaded and run where the model drafts with its own, else nowhere."""

import jax
import jax.numpy as jnp
import pytest

from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.jaxprs import interpreted
from codesign.model.metrics import evaluate

ONE = ("accelerator=h200", "workload=continuous", "framework=none", "plan.micro_batch=32", "cluster.device_count=8")
DEEPSEEK = ("model=deepseek_v3", *ONE)
DRAFTING = ("workload.verified_tokens=2", "workload.accepted_tokens=1.85", "workload.own_drafts=true")
ROUTED, SHARED, ROUTER = 256 * 3 * 7168 * 2048, 3 * 7168 * 2048, 7168 * 256
# queries through 1,536, keys and values through 512 and 64 of positions, 128 heads of 128 and 64
DOWN, UP = 7168 * (1536 + 576), 128 * (1536 * 192 + 512 * 256 + 128 * 7168)
ATTENTION, PROJECTION = DOWN + UP, 2 * 7168**2
MODULE = ATTENTION + ROUTED + SHARED + ROUTER + PROJECTION
EMBEDDING = 129280 * 7168


def weights(*overrides: str) -> float:
    """Bytes of weights on one device."""
    scenario = scenario_from_config(*overrides)
    layout = scenario.workload.laid_out(scenario.layout)
    by_class = sum(scenario.workload.held_weights(layout).values())
    nbytes = float(scenario.workload.weight_bytes(layout))
    assert float(by_class) == pytest.approx(nbytes, rel=1e-6)
    return nbytes


def test_the_published_counts_are_671_and_14_billion():
    """The report's 14 billion count embedding and head again, which a module shares: 11.6 of its own."""
    model = scenario_from_config(*DEEPSEEK).workload.model
    assert float(model.parameters()) == pytest.approx(671e9, rel=1e-3)
    assert float(model.ahead_parameters()) == MODULE == pytest.approx(11.6e9, rel=2e-3)
    assert pytest.approx(14e9, rel=0.05) == MODULE + 2 * EMBEDDING


@pytest.mark.slow
def test_weights_in_memory_have_the_module_exactly_where_it_drafts():
    """On 8 tensor ranks: experts, attention's heads an eighth each, what is not divided whole; two bytes each."""
    two_bytes = (*DEEPSEEK, "tp=8", "precision=bf16")
    plain = weights(*two_bytes)
    assert weights(*two_bytes, "workload.verified_tokens=2", "workload.draft_ratio=0.02") == plain
    more = weights(*two_bytes, *DRAFTING) - plain
    divided, whole = UP + ROUTED + SHARED, DOWN + ROUTER + PROJECTION
    norms = 4 * 7168 * 2.0
    assert more == pytest.approx(2 * (divided / 8 + whole), abs=4 * norms)
    published = [weights(*DEEPSEEK, "tp=8", "precision=checkpoint", *told) for told in ((), DRAFTING)]
    assert 0.5 * more < published[1] - published[0] < 0.6 * more  # fp8, but for router and projection


def test_the_module_has_a_cache_of_its_own():
    plain, own = (scenario_from_config(*DEEPSEEK, "tp=8", *told) for told in ((), DRAFTING))
    held = [float(one.workload.kv_bytes(one.layout, jnp.asarray(1.0))) for one in (plain, own)]
    assert held[1] / held[0] == pytest.approx(62 / 61)


def test_a_step_runs_a_module_and_the_head_for_each_token_drafted():
    """32 sequences of two tokens each: the products of one pass over 64 tokens, one over 32 for each further."""
    for drafted in (1, 3):
        told = (f"workload.verified_tokens={drafted + 1}", "workload.own_drafts=true")
        scenario = scenario_from_config("model=mimo_7b", *ONE, "tp=1", "cluster.device_count=1", *told)
        work, model = scenario.workload, scenario.workload.model
        ops = [op for op in work.lower(work.laid_out(scenario.layout)) if op.phase == "decode" and "draft_" in op.name]
        flops = {
            name: sum(float(op.count * op.work.flops) for op in ops if op.name.startswith(f"draft_{name}"))
            for name in ("ahead_projection", "head")
        }
        tokens = 32 * (drafted + 1) + 32 * (drafted - 1)
        assert flops["ahead_projection"] == pytest.approx(2 * tokens * 2 * float(model.hidden) ** 2, rel=1e-6)
        head = 2 * 32 * drafted * float(model.vocab * model.hidden)
        assert flops["head"] == pytest.approx(head, rel=0.02)  # and its norm and softmax


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["continuous", "at_rate", "disaggregated"])
def test_drafting_costs_time_and_prompts_pass_the_module_too(kind):
    more = ("prefill=same", "plan.prefill_devices=1") if kind == "disaggregated" else ()
    told = ("model=mimo_7b", *ONE, "tp=1", f"workload={kind}", "workload.verified_tokens=2", *more)
    without, own = (
        evaluate(scenario_from_config(*told, f"workload.own_drafts={said}")).flat() for said in ("false", "true")
    )
    layers = 36
    for name in ("ttft_s", "tpot_s"):
        assert 1.005 < float(own[name] / without[name]) < 1 + 12 / layers, name
    assert all(jnp.isfinite(value).all() for value in own.values())


@pytest.mark.slow
def test_steps_with_drafts_are_log_convex_in_hardware():
    """Slopes against finite differences; plain, `jit` and `vmap` agree."""
    base = scenario_from_config("model=mimo_7b", *ONE, "tp=1", *DRAFTING)

    def each(logs):
        changed = replace(base, {
            "cluster.accelerator.hbm.bandwidth_bytes_per_s": jnp.exp(logs[0]),
            "cluster.accelerator.peak_flops_per_s.bf16": jnp.exp(logs[1]),
        })  # fmt: skip
        return jnp.log(evaluate(changed).extra["tpot_s"])

    at, apart, once = jnp.log(jnp.array([4.8e12, 989e12])), jnp.array([0.7, -0.7]), jax.jit(each)
    slopes = interpreted(jax.grad(each), always=True)(at)
    for axis in range(2):
        along = 1e-5 * jnp.eye(2)[axis]
        numeric = (once(at + along) - once(at - along)) / 2e-5
        assert float(slopes[axis]) == pytest.approx(float(numeric), rel=1e-3, abs=1e-7)
    assert float(once(at)) <= float(once(at + apart) + once(at - apart)) / 2 + 1e-9
    assert float(once(at)) == pytest.approx(float(each(at)), rel=1e-9)
    assert float(jax.vmap(once)(at[None])[0]) == pytest.approx(float(once(at)), rel=1e-9)


def test_a_model_without_modules_cannot_draft_with_them():
    with pytest.raises(ConfigError, match=r"own_drafts = true: llama31_8b has no modules .*; allowed: false"):
        scenario_from_config("model=llama31_8b", *ONE, "workload.own_drafts=true")
