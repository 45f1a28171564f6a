"""Activations by module: bytes against the residuals that JAX saves under the same policy, passes counted by hand."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.ad_checkpoint import saved_residuals
from jax.ad_checkpoint import checkpoint_name

from codesign.core.errors import ConfigError
from codesign.model.workloads import (
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    Layout,
    MixtureOfExperts,
    Plan,
    Training,
    Transformer,
)
from codesign.model.workloads.lowering import layer_bytes
from codesign.model.workloads.plan import MEGATRON_MODULES, OFFLOAD_MODULES, RECOMPUTE_MODULES
from codesign.model.workloads.recomputation import (
    REMAT_POLICIES,
    Networks,
    custom_policy,
    modules_of,
    offloaded_share,
    plan_of_policy,
)
from codesign.model.workloads.schedule import CommOp, ComputeOp
from codesign.report.wording import PLAN_PREFIX, choices

SEQUENCE, HIDDEN, HEADS, KV_HEADS, WIDTH = 64, 32, 4, 2, 48
DENSE = Transformer(
    "small", float(HIDDEN), 4.0, GroupedQueryAttention(4.0, 2.0, 8.0), DenseFeedForward(float(WIDTH), 1.0), 128.0
)
EXPERTS = Transformer(
    "experts", 256.0, 4.0, LatentAttention(8.0, 64.0, 32.0, 16.0, 8.0, 16.0),
    MixtureOfExperts(16.0, 4.0, 128.0, 1.0, 1.0, 1.0, 512.0), 1000.0,
)  # fmt: skip
JOB, SPARSE = Training(DENSE, float(SEQUENCE), 8.0), Training(EXPERTS, 512.0, 16.0)


def stored(job: Training, **plan) -> float:
    layout = Layout(Plan(**plan), 8.0)
    return float(job._stored_per_layer(layout, job._block(layout)))


@jax.custom_vjp
def core(qkv):
    """A fused core keeps its inputs; its result is its reader's."""
    return qkv[:, :HIDDEN]


core.defvjp(
    lambda qkv: (core(qkv), qkv), lambda qkv, grad: (jnp.pad(grad, ((0, 0), (0, qkv.shape[1] - HIDDEN))) + qkv,)
)


def normed(x):
    return checkpoint_name(x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True)), "norm")


def layer(x, weights):
    qkv, out, up, down = weights
    context = checkpoint_name(core(checkpoint_name(normed(x) @ qkv, "qkv")), "context")
    y = checkpoint_name(x + context @ out, "out")
    both = checkpoint_name(normed(y) @ up, "up")
    inner = checkpoint_name(jax.nn.silu(both[:, :WIDTH]) * both[:, WIDTH:], "act")
    return y + inner @ down


def residual_bytes(names: set[str]) -> int:
    """Bytes that JAX keeps of a layer when these tensors are saved: arguments aside, the layer's input among them."""
    shapes = ((HIDDEN, HIDDEN + 2 * 16), (HIDDEN, HIDDEN), (HIDDEN, 2 * WIDTH), (WIDTH, HIDDEN))
    weights = [jnp.ones(shape, jnp.bfloat16) for shape in shapes]
    policy = jax.checkpoint_policies.save_only_these_names(*names)
    result = saved_residuals(jax.checkpoint(layer, policy=policy), jnp.ones((SEQUENCE, HIDDEN), jnp.bfloat16), weights)
    inside = sum(aval.size * aval.dtype.itemsize for aval, source in result if "argument" not in source)
    return inside + SEQUENCE * HIDDEN * 2


TENSORS = {"layernorm": {"norm"}, "qkv_proj": {"qkv"}, "context": {"context"}, "out_proj": {"out"}, "mlp_act": {"act"}}
TENSORS["mlp"] = {"up", "act"}


@pytest.mark.parametrize("count", range(len(TENSORS) + 1))
def test_bytes_are_the_residuals_that_jax_saves(count: int):
    for names in itertools.combinations(TENSORS, count):
        gone = set().union(*(TENSORS[name] for name in names))
        saved = residual_bytes({"norm", "qkv", "context", "out", "up", "act"} - gone)
        assert stored(JOB, recompute_modules="+".join(names) or "none") == saved, names


def torch_layer(x, weights):
    """A layer whose products are apart, in the order of torchtitan's; names of what its policy saves."""
    wq, wk, wv, wo, gate, up, down = weights
    read = normed(x)
    q, k, v = checkpoint_name(read @ wq, "1"), read @ wk, checkpoint_name(read @ wv, "3")
    y = x + checkpoint_name(core(jnp.concatenate([q, k, v], axis=1)), "context") @ wo
    read = normed(y)
    inner = jax.nn.silu(checkpoint_name(read @ gate, "5")) * (read @ up)
    return y + inner @ down


def test_per_op_keeps_what_jax_saves_of_every_second_product():
    """The result of down is the seventh product: torch saves it though nothing reads it, JAX does not."""
    wide = ((HIDDEN, HIDDEN), (HIDDEN, 16), (HIDDEN, 16), (HIDDEN, HIDDEN), (HIDDEN, WIDTH), (HIDDEN, WIDTH))
    weights = [jnp.ones(shape, jnp.bfloat16) for shape in (*wide, (WIDTH, HIDDEN))]
    policy = jax.checkpoint_policies.save_only_these_names("1", "3", "5", "context")
    result = saved_residuals(
        jax.checkpoint(torch_layer, policy=policy), jnp.ones((SEQUENCE, HIDDEN), jnp.bfloat16), weights
    )
    inside = sum(aval.size * aval.dtype.itemsize for aval, source in result if "argument" not in source)
    unread = SEQUENCE * HIDDEN * 2
    assert stored(JOB, recompute_modules="per_op") == inside + SEQUENCE * HIDDEN * 2 + unread


@pytest.mark.parametrize(
    ("job", "shares"),
    [
        (
            JOB,  # queries 1, keys 2, values 3, output 4, gate 5, up 6, down 7
            {"attention_qkv": 1 / 4, "attention_out": 1, "mlp_up": 1 / 2, "mlp_down": 0, "mlp_activation": 1},
        ),
        (
            SPARSE,  # queries down 1, up 2, latent 3, up 4, output 5, gate 6, up 7, down 8; the router is not counted
            {"attention_down": 0, "attention_q_up": 1, "attention_kv_up": 1, "attention_out": 0, "attention_core": 0}
            | {"mlp_up": 1 / 2, "mlp_down": 1, "moe_shared_up": 1 / 2, "moe_shared_down": 1, "moe_router": 1}
            | {"moe_up": 1, "moe_down": 1, "mlp_norm": 1},
        ),
    ],
    ids=["dense", "experts"],
)
def test_per_op_runs_every_second_product_again(job: Training, shares: dict[str, float]):
    layout = Layout(Plan(recompute_modules="per_op"), 8.0)
    block = {op.name: float(op.recomputed) for op in job._block(layout)}
    assert {name: block[name] for name in shares} == shares


def test_per_op_keeps_scattered_sums_and_exchanged_copies():
    alone, cut = (dict(recompute_modules="per_op"), dict(recompute_modules="per_op", tp=2.0, sequence_parallel=1.0))
    names = ("mlp_branch", "mlp_down", "moe_up", "moe_down")

    def kept(job: Training, **plan) -> dict[str, float]:
        layout = Layout(Plan(**plan), 8.0)
        return {op.name: float(op.stored_bytes) for op in job._block(layout) if op.name in names}

    whole = SEQUENCE * HIDDEN * 2
    assert kept(JOB, **alone) == {"mlp_branch": 0.0, "mlp_down": whole}
    assert kept(JOB, **cut) == {"mlp_branch": whole / 2, "mlp_down": 1.5 * whole}
    copies = 512 * 4 * 256 * 2
    assert (kept(SPARSE, **alone)["moe_up"], kept(SPARSE, **alone)["moe_down"]) == (0.0, 0.0)
    assert kept(SPARSE, **alone, ep=2.0)["moe_up"] == copies
    assert kept(SPARSE, **alone, ep=2.0)["moe_down"] == copies
    again = [op for op in JOB.lower(Layout(Plan(**cut), 8.0)) if isinstance(op, CommOp) and op.phase == "recompute"]
    counts = {(op.name, op.operation): float(op.count) for op in again if op.axis == "tp" and float(op.count)}
    assert counts == {("attention_tp", "all_gather"): 4.0, ("mlp_tp", "all_gather"): 4.0}


@pytest.mark.parametrize("other", [dict(recompute_modules="per_op+mlp"), dict(recompute=1.0), dict(recompute=2.0)])
def test_per_op_is_a_policy_of_its_own(other: dict):
    layout = Layout(Plan(**({"recompute_modules": "per_op"} | other)), 8.0)
    assert float(JOB.violations(layout)["modules"]) > 0
    assert "per_op" in str(JOB.broken_rule("modules", layout))


def products_of(jaxpr) -> int:
    """Matrix products of a traced program, those of functions in it too."""
    count = 0
    for equation in jaxpr.eqns:
        count += equation.primitive.name == "dot_general"
        for value in equation.params.values():
            for part in value if isinstance(value, list | tuple) else [value]:
                inner = getattr(part, "jaxpr", part)
                count += products_of(inner) if hasattr(inner, "eqns") else 0
    return count


def test_jax_redoes_only_what_a_gradient_reads():
    """Of two layers with full rematerialisation JAX runs three of four products again; down's result nobody reads."""
    shapes = ((HIDDEN, HIDDEN + 2 * 16), (HIDDEN, HIDDEN), (HIDDEN, 2 * WIDTH), (WIDTH, HIDDEN))
    weights = [jnp.ones(shape, jnp.bfloat16) for shape in shapes]

    def loss(x, weights):
        again = jax.checkpoint(layer)
        return jnp.sum(again(again(x, weights), weights) ** 2)

    traced = jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(jnp.ones((SEQUENCE, HIDDEN), jnp.bfloat16), weights)
    layout = Layout(Plan(recompute=2.0), 8.0)
    products = ("attention_qkv", "attention_out", "mlp_up", "mlp_down")
    again = {}
    for redo in (True, False):
        job = dataclasses.replace(JOB, redo_unread=redo)
        block = {op.name: op for op in job._block(layout)}
        again[redo] = sum(float(block[name].recomputed) for name in products)
    assert again == {True: 4.0, False: 3.0}
    assert products_of(traced.jaxpr) == 2 * (4 + 8 + again[False])


def test_sums_of_what_is_not_redone_are_not_sent_again():
    layout = Layout(Plan(recompute=2.0, tp=2.0), 8.0)
    sent = {}
    for redo in (True, False):
        ops = dataclasses.replace(JOB, redo_unread=redo).lower(layout)
        result = [op for op in ops if isinstance(op, CommOp) and op.phase == "recompute" and op.axis == "tp"]
        sent[redo] = {op.name: float(op.count) for op in result if float(op.count)}
    assert sent[True] == {"attention_tp": 4.0, "mlp_tp": 4.0}
    assert sent[False] == {"attention_tp": 4.0}


@pytest.mark.parametrize("job", [JOB, SPARSE], ids=["dense", "experts"])
@pytest.mark.parametrize("regather", [0.0, 1.0])
def test_a_share_of_the_layers_runs_again_whole(job: Training, regather: float):
    """Half of four layers: two keep their inputs, two keep all, as two layers of each kind; none of them: as `none`."""
    cut = dict(tp=2.0, sequence_parallel=1.0, sequence_parallel_regather=regather)
    every, some, none = (
        dict(recompute="full", recompute_share=1.0, **cut),
        dict(recompute="full", recompute_share=0.5, **cut),
        dict(recompute="none", **cut),
    )
    np.testing.assert_allclose(stored(job, **some), (stored(job, **every) + stored(job, **none)) / 2, rtol=1e-12)
    again, whole, kept = redone(job, **some), redone(job, **every), redone(job, **none)
    for name, count in whole.items():
        np.testing.assert_allclose(again[name], (count + kept.get(name, 0.0)) / 2, rtol=1e-12)
    layouts = [Layout(Plan(**plan), 8.0) for plan in (dict(recompute="full", recompute_share=0.0, **cut), none)]
    first, last = (job.footprint(layout) for layout in layouts)
    for name in first:
        np.testing.assert_allclose(first[name][0], last[name][0], rtol=1e-12)
    assert redone(job, recompute="full", recompute_share=0.0, **cut) == kept
    half = Layout(Plan(offload_activations=1.0, offload_modules="attn_norm", **some), 8.0)
    block = job._block(half)
    inputs = sum(float(op.stored_bytes) for op in block if op.name == "attention_branch")
    np.testing.assert_allclose(float(offloaded_share(block, half)), inputs / stored(job, **some), rtol=1e-12)


def test_words_of_a_share():
    design = {f"{PLAN_PREFIX}recompute": 2.0, f"{PLAN_PREFIX}recompute_share": 0.25}
    assert "full recompute of 25" in choices(design)
    assert "of the layers" in choices(design)
    assert "of the layers" not in choices(design | {f"{PLAN_PREFIX}recompute_share": 1.0})


def test_the_layer_at_work_is_one_that_is_redone():
    """Beside what all keep lies the whole working set of one layer that kept its input alone."""
    half, every = (
        float(JOB.moments(Layout(Plan(recompute="full", recompute_share=share), 8.0))["first", "backward"]["layer"][0])
        for share in (0.5, 1.0)
    )
    assert half == every


@pytest.mark.parametrize("policy", REMAT_POLICIES)
def test_policies_of_maxtext_save_what_jax_saves_under_their_names(policy: str):
    names = {"query_proj": "qkv", "out_proj": "out", "mlpwi": "up", "context": "context"}
    kept = set().union(*REMAT_POLICIES[policy])
    fields = plan_of_policy(policy)
    fields.pop("offload_activations", None), fields.pop("offload_modules", None)
    assert stored(JOB, **fields) == residual_bytes({names[name] for name in kept if name in names})


@pytest.mark.parametrize("policy", REMAT_POLICIES)
def test_policies_of_experts_are_legal_and_keep_no_copies_of_tokens(policy: str):
    """A policy that saves no product of a network keeps its input alone."""
    fields = plan_of_policy(policy, Networks(dense=True, routed=True, shared=True))
    layout = Layout(Plan(**fields), 8.0)
    assert all(float(broken) == 0 for broken in SPARSE.violations(layout).values())
    if "mlpwi" not in REMAT_POLICIES[policy][0] + REMAT_POLICIES[policy][1]:
        block = {op.name: float(op.stored_bytes) for op in SPARSE._block(layout)}
        full = layout.full > 0
        assert full or {name for name, kept in block.items() if kept and name.startswith(("moe_", "mlp_"))} <= {
            "mlp_branch"
        }


def test_offloaded_tensors_are_named_by_what_reads_them():
    fields = plan_of_policy("qkv_proj_offloaded")
    layout = Layout(Plan(**fields), 8.0)
    tokens = SEQUENCE * 2
    share = float(offloaded_share(JOB._block(layout), layout))
    np.testing.assert_allclose(share, tokens * 64 / (tokens * 64 + tokens * HIDDEN), rtol=1e-12)
    assert custom_policy({"decoder_layer_input": "offload"}) == {
        "recompute": "full", "offload_activations": "1", "offload_modules": "attn_norm",
    }  # fmt: skip
    full = Layout(Plan(recompute="full", offload_activations=1.0, offload_modules="attn_norm"), 8.0)
    assert float(offloaded_share(JOB._block(full), full)) == 1.0


TOKENS, TP = 512.0, 2.0
BY_HAND = {  # Megatron's modules, bytes of bf16 a token of a tensor rank, of one dense and three sparse layers
    "layernorm": 2 * 256 / TP * 2,
    "mla_up_proj": 8 / TP * (2 * 24 + 16) * 2,
    "moe_act": 3 / 4 * 4 * 128 / TP * 2,
    "mlp": 1 / 4 * 3 * 512 / TP * 2,
    "shared_experts": 3 / 4 * 3 * 128 / TP * 2,
    "moe": 3 / 4 * (3 * 128 / TP + 4 * (256 / TP + 3 * 128 / TP)) * 2,
}


@pytest.mark.parametrize("module", MEGATRON_MODULES)
def test_modules_of_megatron_by_hand(module: str):
    plan = {"tp": TP, "sequence_parallel": 1.0, "ep": 2.0, "micro_batch": 1.0}
    less = stored(SPARSE, **plan) - stored(SPARSE, **plan, recompute_modules=module)
    np.testing.assert_allclose(less / TOKENS, BY_HAND[module], rtol=1e-9)


def redone(job: Training, **plan) -> dict[str, float]:
    """Operation -> how often an average layer runs it again."""
    result: dict[str, float] = {}
    layout = Layout(Plan(**plan), 8.0)
    for op in job.lower(layout):
        if isinstance(op, ComputeOp | CommOp) and op.phase == "recompute":
            result[op.name] = result.get(op.name, 0.0) + float(op.count) / float(job.layers_per_stage(layout))
    return {name: count for name, count in result.items() if count}


def test_what_runs_again():
    assert redone(JOB, recompute_modules="layernorm") == {"attention_norm": 1.0, "mlp_norm": 1.0}
    assert redone(JOB, recompute="selective", recompute_modules="mlp") == {
        "attention_core": 1.0, "mlp_up": 1.0, "mlp_activation": 1.0, "mlp_down": 1.0, "mlp_tp": 1.0,
    }  # fmt: skip
    sparse = redone(SPARSE, ep=2.0, recompute_modules="moe")
    assert sparse["moe_dispatch"] == sparse["moe_combine"] == sparse["moe_up"] == sparse["moe_shared_up"] == 0.75
    assert "mlp_up" not in sparse
    up = {"attention_q_up": 1.0, "attention_kv_up": 1.0}
    assert redone(SPARSE, recompute_modules="mla_up_proj") == up
    assert redone(SPARSE, recompute_modules="qkv_proj") == {"attention_down": 1.0, **up}
    every = redone(JOB, recompute_modules="layernorm+qkv_proj+context+out_proj+mlp")
    full = redone(JOB, recompute="full")
    assert set(full) - set(every) == {"attention_residual", "mlp_residual", "attention_branch", "mlp_branch"} & set(
        full
    )
    assert stored(JOB, recompute_modules="layernorm+qkv_proj+context+out_proj+mlp") == stored(JOB, recompute="full")


@pytest.mark.slow
def test_no_module_keeps_more_and_none_is_free():
    plain, passes = stored(SPARSE), redone(SPARSE)
    for module in RECOMPUTE_MODULES:
        assert stored(SPARSE, recompute_modules=module) < plain
        assert len(redone(SPARSE, recompute_modules=module)) > len(passes)


@pytest.mark.slow
def test_one_trace_says_the_same_of_all_lists():
    plans = [Plan(recompute_modules=float(number), offload_activations=0.5, offload_modules=float(number % 256))
             for number in range(0, 1024, 7)]  # fmt: skip
    layouts = [Layout(plan, 8.0) for plan in plans]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layouts)

    def near(layout):
        block = JOB._block(layout)
        return layer_bytes(block, "stored_bytes"), offloaded_share(block, layout)

    answers = jax.jit(jax.vmap(near))(stacked)
    for row, layout in enumerate(layouts):
        for traced, plain in zip(answers, near(layout), strict=True):
            np.testing.assert_allclose(traced[row], plain, rtol=1e-12)


def test_half_of_some_modules_is_offloaded():
    """Near memory keeps what is not named, half of what is, and two layers' buffer of the other half."""
    layout = Layout(Plan(offload_activations=0.5, offload_modules="core_attn+attn_proj"), 8.0)
    plain = Layout(Plan(), 8.0)
    (whole, stays), (all_of_it, _) = (JOB.moments(one)["first", "backward"]["activations"] for one in (layout, plain))
    layer = stored(JOB)
    named = SEQUENCE * (64 + HIDDEN) * 2
    np.testing.assert_allclose(whole, all_of_it, rtol=1e-12)
    np.testing.assert_allclose(stays, 4 * (layer - named) + 2 * named, rtol=1e-12)
    far = float(JOB.afar_bytes(layout)["activations"])
    np.testing.assert_allclose(far, 4 * named, rtol=1e-12)


def test_lists_are_words_in_any_order():
    assert float(Plan(recompute_modules="moe_act+layernorm").recompute_modules) == 5.0
    assert modules_of(5.0, RECOMPUTE_MODULES) == ("layernorm", "moe_act")
    assert modules_of(Plan(offload_modules="mlp_norm").offload_modules, OFFLOAD_MODULES) == ("mlp_norm",)
    for wrong, told in (("moe_atc", "did you mean 'moe_act'"), ("moe+moe", "twice")):
        with pytest.raises(ConfigError, match=told):
            Plan(recompute_modules=wrong)
    with pytest.raises(ConfigError, match="remat_policy = 'minimum'"):
        plan_of_policy("minimum")
    with pytest.raises(ConfigError, match="decoder_layer_input = 'host'"):
        custom_policy({"decoder_layer_input": "host"})


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (dict(recompute="full", recompute_modules="mlp"), "Megatron: --recompute-modules is of granularity selective"),
        (dict(recompute_modules="moe_act+mla_up_proj"), "this model has no mla_up_proj, moe_act"),
    ],
)
def test_rules(plan: dict, told: str):
    layout = Layout(Plan(**plan), 8.0)
    rules = [rule for rule, broken in JOB.violations(layout).items() if float(broken) > 0]
    assert len(rules) == 1
    assert told in JOB.broken_rule(rules[0], layout)


def test_a_model_whose_layers_all_have_experts_has_no_dense_network():
    network = dataclasses.replace(EXPERTS.feed_forward, dense_layers=jnp.asarray(0.0))
    job = dataclasses.replace(SPARSE, model=dataclasses.replace(EXPERTS, feed_forward=network))
    layout = Layout(Plan(recompute_modules="mlp"), 8.0)
    assert float(SPARSE.violations(layout)["modules"]) == 0
    assert float(job.violations(layout)["modules"]) == 1
    assert "this model has no mlp" in job.broken_rule("modules", layout)
