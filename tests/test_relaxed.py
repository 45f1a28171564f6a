"""Relaxed descent: every optimizer runs, coordinates mean what they say, and the result is the exhaustive one."""

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from builders import serving, training

from codesign.core.errors import ConfigError
from codesign.search import Certified, Gradient, Optimizer, Problem, Transformation
from codesign.search.descent import relaxed
from codesign.search.descent.gradient import OPTIMIZERS, TRANSFORMATIONS
from codesign.search.descent.relaxed import KINDS, Relaxation
from codesign.search.results import designs
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective

UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
NEEDED = {"clip": {"max_delta": 1.0}, "clip_by_block_rms": {"threshold": 1.0}, "clip_by_global_norm": {"max_norm": 1.0},
          "adaptive_grad_clip": {"clipping": 0.1}, "ema": {"decay": 0.9}, "scale": {"step_size": 1.0},
          "trace": {"decay": 0.9}}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_descends(name):
    """A bowl, behind a clipped gradient; none may depend on more than the gradient."""
    chain = Optimizer(name, 0.05, before=(Transformation("clip_by_global_norm", {"max_norm": 1.0}),)).build(60)

    def bowl(x):
        return jnp.sum((x - 0.3) ** 2)

    def step(carry, _):
        x, state = carry
        updates, state = chain.update(jax.grad(bowl)(x), state, x)
        return (optax.apply_updates(x, updates), state), None

    start = jnp.array([0.9, 0.8])
    (end, _), _ = jax.lax.scan(step, (start, chain.init(start)), None, length=60)
    assert float(bowl(end)) < float(bowl(start))


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_every_transformation_can_stand_in_a_chain(name):
    chain = Optimizer("sgd", 0.1, before=(Transformation(name, NEEDED.get(name, {})),)).build(4)
    x = {"a": jnp.array([0.5, 0.2])}
    updates, _ = chain.update({"a": jnp.array([0.1, -0.2])}, chain.init(x), x)
    assert np.isfinite(np.asarray(updates["a"])).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Optimizer("adam", options={"b3": 1.0}), "adam has no such option .known: b1, b2"),
        (lambda: Transformation("clipp"), "did you mean 'clip'"),
        (lambda: Transformation("clip_by_global_norm"), "max_norm"),
        (lambda: Relaxation.of(DesignSpace({"tp": [1, 2]}), "log3"), "did you mean 'log2'"),
        (lambda: Gradient(starts=0), "must be positive"),
    ],
)
def test_bad_choices_are_refused_in_one_line(make, words):
    with pytest.raises(ConfigError, match=words) as error:
        make()
    assert "\n" not in str(error.value)


SPACE = DesignSpace({"tp": [1, 2, 4, 8], "zero": [0, 1, 2], "recompute": ["none", "full"], "micro_batch": [1, 4]})


@pytest.mark.parametrize("kind", KINDS)
def test_coordinates_reach_every_value(kind):
    """At the coordinate of a value the field has it, and between two the relaxed ones lie between."""
    relaxation = Relaxation.of(SPACE, kind)
    end = jnp.asarray(1.0)
    for tp, zero in ((1.0, 0.0), (4.0, 2.0), (8.0, 1.0)):
        if kind == "gumbel":
            x = 100.0 * jnp.concatenate(
                [jnp.asarray(v == at) for v, at in zip(relaxation.values.values(), (tp, zero, 2.0, 4.0), strict=True)]
            )
        else:
            x = jnp.array([np.log2(tp) / 3, zero / 2, 1.0, 1.0])
        fields = relaxation.fields(x, jnp.zeros_like(x), end)
        assert {n: round(float(v), 6) for n, v in fields.items()} == {
            "tp": tp,
            "zero": zero,
            "recompute": 2.0,
            "micro_batch": 4.0,
        }


def test_straight_through_rounds_forward_and_slopes_backward():
    relaxation, none = Relaxation.of(SPACE, "straight_through"), jnp.zeros(4)
    x = jnp.array([0.4, 0.4, 0.2, 0.2])
    at = relaxation.fields(x, none, jnp.asarray(0.0))
    assert float(at["tp"]) == 2.0
    assert float(at["zero"]) == 1.0
    slope = jax.grad(lambda x: relaxation.fields(x, none, jnp.asarray(0.0))["tp"])(x)[0]
    assert float(slope) == pytest.approx(3 * np.log(2) * 2**1.2, rel=1e-6)  # of 8^x


def test_nearest_plans_by_brute_force():
    relaxation = Relaxation.of(SPACE, "log2")
    plans = SPACE.plans(training())
    x = np.random.default_rng(0).uniform(size=(5, 4))
    settled = relaxation.settled(x)
    table = np.stack([np.log2(plans["tp"]), plans["zero"], plans["recompute"], np.log2(plans["micro_batch"])], axis=-1)
    for row, result in zip(settled, relaxation.nearest(settled, plans, 3), strict=True):
        distance = ((table - row) ** 2).sum(axis=1)
        np.testing.assert_allclose(np.sort(distance[result]), np.sort(distance)[:3])


@pytest.mark.slow
def test_finds_the_certified_optimum_of_a_small_space():
    space = DesignSpace({"tp": [4, 8, 16], "micro_batch": [1, 4, 16, 64]}, {"up": Continuous(UP, 100e9, 900e9)})
    problem = Problem(serving(), space, Objective("usd_per_million_tokens", limits={"tpot_s": 0.03}))
    trace = Gradient(starts=4, steps=10, near=2, candidates=4, batch_size=16, gap=1e-5).run(problem, seed=1)
    frame = designs(problem, trace, 1)
    assert frame.iloc[0]["feasible"]
    assert "no certificate" in trace.claim
    proven = Certified(gap=1e-5, convexity_samples=8, batch_size=16, explain=False).run(problem, 0).certificate
    assert frame.iloc[0]["objective"] == pytest.approx(proven.best, rel=1e-4)


def test_a_descent_is_compiled_anew_where_the_question_differs(monkeypatch):
    """And kept where it is the same, made again; what both descents take from a problem: tests/test_search.py."""
    compiled = []

    def counting(_, space, objective, relaxation):
        compiled.append((space, objective, relaxation))
        return lambda carry, *_: carry

    monkeypatch.setattr(Gradient, "_compiled", counting)
    monkeypatch.setattr(relaxed, "_descents", OrderedDict())
    asked = [
        (steps, kind, tp, most)
        for steps, kind, tp in [(2, "log2", 8), (3, "log2", 8), (2, "gumbel", 8), (2, "log2", 16)]
        for most in (900e9, 901e9)
    ]
    for steps, kind, tp, most in asked:
        compiled.clear()
        for seed in (0, 1):
            space = DesignSpace({"tp": [4, tp]}, {"up": Continuous(UP, 100e9, most)})
            search, problem = Gradient(starts=2, steps=steps, relaxation=kind), Problem(training(), space, Objective())
            assert len(list(search._descents(problem, Relaxation.of(space, kind), seed))) == 1 + steps
        assert len(compiled) == 1, (steps, kind, tp, most)


def test_an_interrupted_descent_shows_the_plans_next_to_its_starts():
    space = DesignSpace({"tp": [4, 8], "micro_batch": [1, 2]}, {"up": Continuous(UP, 150e9, 900e9)})
    problem = Problem(training(), space, Objective("time_s"))

    def impatient(progress):
        raise KeyboardInterrupt

    trace = Gradient(starts=4, batch_size=16).run(problem, 0, impatient)
    assert trace.claim.startswith("interrupted: heuristic solution")
    assert trace.counts["solved"] == 0
    assert len(trace.method) == len(trace.points["tp"]) > 0
