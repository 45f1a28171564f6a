"""Expressions as objectives: what they say, what they refuse, what they do to a proof."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import serving, training

from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.jaxprs.evaluator import interpreted
from codesign.model.metrics import evaluate
from codesign.search import Blackbox, Certified, Grid, Inverse, Problem
from codesign.search.base import refuse_without_logarithm
from codesign.search.branch_and_bound.model_oracle import Oracle
from codesign.search.branch_and_bound.oracle import rows_of
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import POSITIVE, Expression, Objective

UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
VALUES = {"time_s": 2.0, "joules_per_token": 9.0, "usage.hbm": 0.5, "capex_usd": 4.0, "tokens_per_s": 3.0}


def value(text: str) -> float:
    return float(Expression(text).value(lambda name: jnp.asarray(VALUES[name])))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time_s ** 0.5 * joules_per_token", 2**0.5 * 9),
        ("2 * (time_s + 3) / usage.hbm - 1", 19.0),
        ("max(time_s, capex_usd, 3)", 4.0),
        ("min(time_s, capex_usd)", 2.0),
        ("sqrt(joules_per_token) ** -1", 1 / 3),
        ("-time_s + 2 ** (1 + 1)", 2.0),
    ],
)
def test_value(text, expected):
    assert value(text) == pytest.approx(expected, rel=1e-12)


GROWS = (
    "time_s", "time_s ** 0.5 * joules_per_token + 2 * capex_usd", "max(time_s, 2 * capex_usd) ** 2", "1 / tokens_per_s",
    "sqrt(time_s) / mfu",
)  # fmt: skip
SHRINKS = (
    "tokens_per_s", "1 / (time_s + capex_usd)", "tokens_per_s / capex_usd", "(time_s + 1) ** -2",
    "min(tokens_per_s, 1 / capex_usd)",
)  # fmt: skip
NEITHER = (
    "time_s - 1", "capex_usd / time_s", "capex_usd + tokens_per_s", "max(tokens_per_s, time_s)",
    "min(time_s, capex_usd)", "time_s * (capex_usd - 3)",
)  # fmt: skip


def test_the_walk_reads_the_form_of_limits_and_floors():
    """What grows with costs may be limited, what shrinks may have a floor; the rest is not proven either way."""
    texts = (*GROWS, *SHRINKS, *NEITHER)
    limits, floors = ({form.format(text): 1.0 for text in texts} for form in ("({}) * 1", "1 * ({})"))
    space = DesignSpace({"tp": [4, 8]}, {"up": Continuous(UP, 150e9, 900e9)})
    problem = Problem(training(), space, Objective("time_s", limits=limits, floors=floors))
    unproven = Oracle(problem, rows_of(problem), 16).judged().unproven
    for text in texts:
        limited, floored = unproven.get(f"({text}) * 1"), unproven.get(f"1 * ({text})")
        assert (limited is None) == (text in GROWS), (text, limited)
        assert floored if text in NEITHER else text in GROWS or not floored, (text, floored)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tme_s * 2", "did you mean 'time_s'"),
        ("median(time_s)", "'median' is no function of an expression"),
        ("maxx(time_s, 2)", "did you mean 'max'"),
        ("time_s ** capex_usd", "a power must be a number"),
        ("time_s **", "cannot be read"),
        ("__import__('os').system('true')", "no metric, number or operation"),
        ("(lambda: 1)()", "no metric, number or operation"),
        ("time_s if 1 else 2", "no metric, number or operation"),
        ("time_s[0]", "no metric, number or operation"),
        ("time_s ** 9 ** 9 ** 9 ** 9", "cannot be read"),
        ("sqrt(time_s, 2)", "sqrt takes one argument"),
        ("(" * 400 + "time_s" + ")" * 400, "cannot be read"),
        ("time_s + " * 200 + "1", "at most 1000 characters"),
        ("True * time_s", "no metric, number or operation"),
    ],
)
def test_refused_in_one_line(text, message):
    def study():
        objective = Objective(text)
        jax.eval_shape(lambda scenario: objective.check(evaluate(scenario)), training())

    with pytest.raises(ConfigError) as error:
        study()
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "objective.minimise" in str(error.value)


@pytest.mark.slow
def test_goals_limits_and_functions_agree_with_plain_arithmetic():
    metrics = evaluate(training())
    product = float(metrics.time_s) ** 0.5 * float(metrics.joules_per_token)
    own = Objective("own", custom={"own": lambda m: m.time_s**0.5 * m.joules_per_token})
    for objective in (Objective("time_s ** 0.5 * joules_per_token"), own):
        assert float(objective.log_goal(metrics)) == pytest.approx(np.log(product), rel=1e-12)
    limited = Objective("2 * own", limits={"own / 3": product / 6}, custom=own.custom)
    assert float(limited.excess(metrics)) == pytest.approx(1.0, rel=1e-9)
    assert float(limited.made(metrics)["own / 3"]) == pytest.approx(product / 3)


@pytest.mark.parametrize(
    ("text", "positive"),
    [
        ("time_s ** -2 * (capex_usd + 3) / max(mfu, 1)", True),
        ("+sqrt(time_s)", True),
        ("time_s - 1", False),
        ("time_s * 0", False),
        ("usage.hbm", False),
        ("breakdown_s.offload + time_s", False),
    ],
)
def test_form_says_what_stays_above_zero(text, positive):
    assert Expression(text).positive(POSITIVE) == positive
    assert Objective(text).logged() == ([] if positive else [("objective.minimise", text)])


def test_ranks_order_goals_of_any_sign():
    """Where a goal is positive its rank is its log; through zero and below it still says which is less."""
    values = [-1e9, -3.0, -1e-3, 0.0, 1e-3, 2.0, 1e12]
    metrics = evaluate(training())
    low, high = (
        [Objective(a, maximise=b, custom={"own": lambda _, v=v: jnp.asarray(v)}) for v in values]
        for a, b in (("own", ""), ("", "own"))
    )
    for objectives, sign in ((low, 1), (high, -1)):
        ranks = [float(objective.rank(metrics)) for objective in objectives]
        assert (np.diff(ranks) * sign > 0).all()
        assert ranks[-2] == pytest.approx(sign * np.log(2.0))
        back = [objective.goal_at(rank) for objective, rank in zip(objectives, ranks, strict=True)]
        assert back == pytest.approx(values, rel=1e-9, abs=1e-29)


@pytest.mark.parametrize("value", [-2.0, 0.0])
def test_what_is_not_above_zero_misses_every_floor(value):
    floored = Objective("time_s", floors={"own": 1.0}, custom={"own": lambda _: jnp.asarray(value)})
    assert float(floored.excess(evaluate(training()))) == np.inf


def test_a_goal_without_logarithm_is_refused_by_searches_that_take_it():
    space = DesignSpace({"tp": [4, 8]}, {"up": Continuous(UP, 150e9, 900e9)})
    problem = Problem(training(), space, Objective("time_s - 20"))
    for search in (Grid(), Blackbox(), Inverse("up")):
        refuse_without_logarithm(search, problem)
    with pytest.raises(ConfigError, match=r"objective.minimise = 'time_s - 20' is -.* take search=grid"):
        refuse_without_logarithm(Certified(), problem)


@pytest.mark.slow
def test_gradient_and_vmap():
    objective, scenario = Objective("max(time_s, 0.5 * time_s) * capex_usd ** 0.25"), training()

    def loss(bandwidth):
        return objective.log_goal(evaluate(replace(scenario, {UP: bandwidth})))

    points = jnp.array([200e9, 450e9])
    slopes = interpreted(jax.vmap(jax.grad(loss)))(points)
    step = 1e-4 * points
    around = interpreted(jax.vmap(loss))
    np.testing.assert_allclose(slopes, (around(points + step) - around(points - step)) / (2 * step), rtol=1e-5)


def test_form_decides_on_the_proof():
    """One goal keeps the certificate; the form of another denies it, whatever random pairs show."""
    space = DesignSpace({"tp": [4, 8]}, {"up": Continuous(UP, 150e9, 900e9)})
    limits = {"max(capex_usd, 1.0)": 6e7}

    def certificate(goal: str):
        trace = Certified(convexity_samples=16, explain=False, batch_size=16).run(
            Problem(training(), space, Objective(goal, limits=limits)), 0
        )
        return trace.certificate, trace.claim

    kept, _ = certificate("time_s ** 0.5 * capex_usd")
    assert kept.certified is True
    denied, claim = certificate("time_s ** 0.5 * (capex_usd - 1)")
    assert denied.certified is False
    assert denied.convexity.worst["goal"] < 1e-9  # the pairs alone would have let it pass
    assert "goal: sub of log-convex" in claim
    assert "objective.py" in claim


@pytest.mark.parametrize(
    ("scenario", "rate"),
    [(training, "tokens_per_s"), (training, "mfu"), (serving, "decode_tokens_per_s")],
)
def test_the_reciprocal_of_any_rate_keeps_the_certificate(scenario, rate):
    space = DesignSpace({"tp": [4, 8]}, {"up": Continuous(UP, 150e9, 900e9)})
    problem = Problem(scenario(), space, Objective(f"1 / {rate}"))
    assert Oracle(problem, rows_of(problem), 16).judged().unproven == {}
