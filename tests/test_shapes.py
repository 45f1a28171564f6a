"""The model's shape as a choice of the plan: what follows, what is refused, and the same prices as the model itself."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import gpt3, training

from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.jaxprs.evaluator import interpreted
from codesign.model.metrics import evaluate
from codesign.model.scenario import Scenario
from codesign.model.workloads import (
    AlternatingAttention,
    GroupedQueryAttention,
    LatentAttention,
    LinearAttention,
    LocalAttention,
    MixtureOfExperts,
    Plan,
    Precision,
    ShapedPlan,
    TrainingRun,
)
from codesign.search import Certified
from codesign.search.base import Problem
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective

OTHER = {"hidden": 6144.0, "layers": 48.0}


def run(plan: ShapedPlan | Plan, **changes) -> Scenario:
    job = TrainingRun(gpt3(**changes), 2048.0, 512.0, tokens=1e11)
    return Scenario(training(64.0).cluster, job, plan)


def shaped(**shape) -> ShapedPlan:
    return ShapedPlan(tp=8.0, recompute="selective", zero=1.0, **shape)


@pytest.mark.slow
def test_a_shape_is_priced_as_the_model_of_that_shape():
    """Heads and feed-forward width follow the hidden size; everything but the loss is that of the model itself."""
    ours = evaluate(run(shaped(**OTHER)))
    model = dataclasses.replace(
        gpt3(**OTHER), attention=GroupedQueryAttention(48.0, 96.0, 128.0),
        feed_forward=dataclasses.replace(gpt3().feed_forward, width=24576.0),
    )  # fmt: skip
    theirs = evaluate(Scenario(training(64.0).cluster, TrainingRun(model, 2048.0, 512.0, tokens=1e11), Plan(
        tp=8.0, recompute="selective", zero=1.0)))  # fmt: skip
    for name, value in theirs.flat().items():
        if not name.startswith("violations"):
            assert float(ours.get(name)) == pytest.approx(float(value), rel=1e-12), name
    assert float(ours.violations["whole heads"]) > 0  # 96 KV heads among 48


def test_kinds_of_attention_are_chosen_by_how_often_one_is_full():
    own = GroupedQueryAttention(96.0, 8.0, 128.0)
    windows = gpt3(attention=LocalAttention(own, 128.0, 0.5))
    chosen = shaped(full_every=4.0, window=512.0, kv_heads=16.0).shaped(windows).attention
    assert (float(chosen.share), float(chosen.window), float(chosen.attention.kv_heads)) == (0.75, 512.0, 16.0)
    assert float(shaped(full_every=1.0).shaped(windows).attention.share) == 0
    states = gpt3(attention=AlternatingAttention(own, LinearAttention(32.0, 16.0, 128.0, 128.0), 0.75))
    wider = shaped(full_every=8.0, hidden=2 * float(gpt3().hidden)).shaped(states).attention
    assert (float(wider.share), float(wider.heads), float(wider.other.heads)) == (0.875, 192.0, 64.0)
    with pytest.raises(ConfigError, match=r"plan\.full_every: the model's GroupedQueryAttention has no full_every"):
        shaped(full_every=4.0).shaped(gpt3(attention=own))
    with pytest.raises(ConfigError, match=r"plan\.window: the model's AlternatingAttention has no window"):
        shaped(window=64.0).shaped(states)


def test_the_rank_of_latent_attention_is_chosen():
    latent = gpt3(attention=LatentAttention(96.0, 1536.0, 512.0, 128.0, 64.0, 128.0))
    narrow, wide = (shaped(kv_rank=rank).shaped(latent) for rank in (256.0, 1024.0))
    for model, rank in ((narrow, 256), (wide, 1024)):
        cached = model.attention.cache_bytes(jnp.asarray(1000.0), jnp.asarray(1.0), Precision())
        assert float(cached) == 1000 * 2 * (rank + 64)
    assert float(narrow.parameters()) < float(wide.parameters())
    with pytest.raises(ConfigError, match=r"plan\.kv_rank: the model's GroupedQueryAttention has no kv_rank"):
        shaped(kv_rank=256.0).shaped(gpt3())


def test_what_is_not_given_stays_and_widths_are_whole_tiles():
    plan = shaped(hidden=1000.0)
    model = plan.shaped(gpt3())
    assert float(model.feed_forward.width) == 4096.0
    assert float(model.layers) == 96.0
    assert shaped().shaped(gpt3()).hidden == gpt3().hidden
    mixture = gpt3(feed_forward=MixtureOfExperts(8.0, 2.0, 1024.0))
    wider = shaped(hidden=24576.0, experts=16.0).shaped(mixture)
    assert (float(wider.feed_forward.experts), float(wider.feed_forward.expert_width)) == (16.0, 2048.0)
    with pytest.raises(ConfigError, match=r"plan\.experts: the model's DenseFeedForward has no experts"):
        shaped(experts=8.0).shaped(gpt3())


@pytest.mark.slow
def test_relaxed_shapes_have_slopes():
    """Money of a run over hidden size and layers, widths not rounded, against differences."""
    start = jnp.asarray([12288.0, 96.0])

    def usd(x):
        plan = dataclasses.replace(shaped(), hidden=x[0], layers=x[1], width=4 * x[0])
        return evaluate(dataclasses.replace(run(plan), plan=plan)).get("usd_to_train")

    slopes = np.asarray(interpreted(jax.grad(usd), always=True)(start))
    step = np.array([12288.0, 96.0]) * 1e-6
    moved = interpreted(jax.vmap(usd), always=True)(start + jnp.asarray([[step[0], 0], [-step[0], 0]]))
    assert slopes[0] == pytest.approx(float(moved[0] - moved[1]) / (2 * step[0]), rel=1e-4)
    assert np.all(slopes > 0)


@pytest.mark.slow
def test_listed_shapes_are_certified_with_the_machine():
    """A small space of shapes and plans, one number of hardware: proven, and no better by hand."""
    scenario = run(shaped(kv_heads=8.0))
    path = "cluster.accelerator.hbm.bandwidth_bytes_per_s"
    space = DesignSpace(
        {"hidden": [2048.0, 3072.0, 4096.0], "layers": [12.0, 24.0], "tp": [1.0, 8.0]},
        {"bandwidth": Continuous(path, 1e12, 4e12)},
    )
    problem = Problem(scenario, space, Objective("usd_to_train", floors={"parameters": 2.5e9}))
    problem.space.check(scenario)
    trace = Certified(gap=1e-3, explain=False).run(problem, 0)
    assert trace.certificate is not None
    assert trace.certificate.certified
    best = {name: float(column[0]) for name, column in trace.points.items()}
    plans = space.plans(scenario)
    assert len(plans["tp"]) == 12
    result = float(evaluate(space.place(scenario, best)).get("usd_to_train"))
    for row in range(0, 12, 5):
        point = {name: column[row] for name, column in plans.items()} | {"bandwidth": best["bandwidth"]}
        there = evaluate(space.place(scenario, point))
        if float(there.get("parameters")) >= 2.5e9 and float(there.usage["hbm"]) <= 1:
            assert float(there.get("usd_to_train")) >= result * (1 - 1e-3)


@pytest.mark.slow
def test_tokens_and_context_of_the_plan_take_the_place_of_the_job_s():
    job = evaluate(run(shaped()))
    other = evaluate(run(shaped(tokens=2e11, context=4096.0)))
    assert float(other.get("run_tokens")) == 2 * float(job.get("run_tokens"))
    assert float(other.tokens_per_s) * float(other.time_s) == pytest.approx(512 * 4096)
    assert float(replace(run(shaped()), {"workload.tokens": 5.0}).workload.tokens) == 5.0
