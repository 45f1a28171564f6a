"""`objective_fn`: a study's goal and limits as one pure function, against the model that it stands for."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from codesign import ObjectiveFunction, Problem, evaluate, objective_fn, study_from_config
from codesign.core.errors import ConfigError
from codesign.jaxprs import evaluator
from codesign.study import DesignSpace

STUDIES = {
    "training": (("experiment=codesign_175b",), {"tp": 8, "pp": 8, "micro_batch": 2}),
    "continuous": (("experiment=serve_llama31_405b",), {}),
    "recommendation": (("experiment=train_dlrm",), {}),
}
SIZES = {"training": 1_500, "continuous": 3_000, "recommendation": 1_500}  # equations of a trace


@pytest.fixture(scope="module")
def made():
    result = dict[str, tuple[Problem, ObjectiveFunction]]()

    def of(name: str) -> tuple[Problem, ObjectiveFunction]:
        if name not in result:
            overrides, plan = STUDIES[name]
            study = study_from_config(*overrides)
            legal = study.space.plans(study.scenario)
            chosen = plan or {field: float(values[len(values) // 2]) for field, values in legal.items()}
            result[name] = study.problem, objective_fn(study, chosen)
        return result[name]

    return of


def points(function: ObjectiveFunction, count: int, seed: int = 0) -> jax.Array:
    return jax.random.uniform(jax.random.key(seed), (count, len(function.names)))


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_it_is_the_model_and_its_slopes_are_the_models(name: str, made):
    """Goal and limits as `evaluate` has them; slopes as finite differences; compiled, batched and plain alike."""
    problem, function = made(name)
    for u in points(function, 3):
        values = {variable: float(value) for variable, value in function.values(u).items()}
        metrics = evaluate(problem.space.place(problem.scenario, function.plan | values))
        rows = function.rows(u)
        assert float(rows["goal"]) == pytest.approx(float(problem.objective.log_goal(metrics)), rel=1e-9, abs=1e-12)
        for limit, share in problem.objective.usages(metrics).items():
            if float(share) > 1e-6:
                assert float(rows[limit]) == pytest.approx(float(np.log(share)), rel=1e-9, abs=1e-9), limit
        expected = float(problem.objective.loss(metrics, function.penalty))
        value, slope = function.value_and_grad(u)
        assert float(value) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert float(function.at(values)) == pytest.approx(float(value), rel=1e-9, abs=1e-9)
        for index in range(len(u)):
            step = jnp.zeros_like(u).at[index].set(1e-6)
            difference = (float(function(u + step)) - float(function(u - step))) / 2e-6
            assert float(slope[index]) == pytest.approx(difference, rel=1e-4, abs=1e-5), function.names[index]


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_it_is_small(name: str, made):
    _, function = made(name)
    traced = jax.make_jaxpr(function.rows)(points(function, 1)[0])
    assert len(traced.jaxpr.eqns) <= SIZES[name]


@pytest.mark.slow
@pytest.mark.usefixtures("roomy")
def test_the_rate_of_an_agreement_has_slopes():
    """Goodput, a root: few equations; slopes as finite differences where a limit binds and where no rate keeps it."""
    study = study_from_config("experiment=serve_goodput")
    plan = {name: float(getattr(study.scenario.plan, name)) for name in study.space.plan}
    function = objective_fn(study, plan)
    assert len(jax.make_jaxpr(function.rows)(points(function, 1)[0]).jaxpr.eqns) <= 1_000
    value = jax.jit(function)
    for u in jnp.array([[0.8, 0.7], [0.6, 0.9], [0.05, 0.5]]):
        result, slope = function.value_and_grad(u)
        assert float(result) == pytest.approx(float(value(u)), rel=1e-12)
        for index in range(len(u)):
            step = jnp.zeros_like(u).at[index].set(1e-5)
            difference = (float(value(u + step)) - float(value(u - step))) / 2e-5
            assert float(slope[index]) == pytest.approx(difference, rel=1e-5, abs=1e-6), (u, index)
    single = jax.jit(function)(u.astype(jnp.float32))
    assert single.dtype == jnp.float32
    assert float(single) == pytest.approx(float(value(u)), rel=2e-5)
    several = points(function, 3) * 0.5 + 0.5
    mapped = evaluator.interpreted(jax.vmap(function), always=True)(several)
    np.testing.assert_allclose(mapped, [value(u) for u in several], rtol=1e-12)
    np.testing.assert_allclose(function(several[0]), value(several[0]), rtol=1e-12)


@pytest.mark.slow
def test_it_can_be_batched_compiled_and_differentiated_twice(made):
    _, function = made("training")
    several = points(function, 4)
    plain = jnp.stack([function(u) for u in several])
    np.testing.assert_allclose(jax.vmap(function)(several), plain, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(function)(several[0]), plain[0], rtol=1e-12)
    slope = jax.grad(function)(several[0])
    forward = evaluator.interpreted(jax.jacfwd(function), always=True)(several[0])
    np.testing.assert_allclose(slope, forward, rtol=1e-9)
    np.testing.assert_allclose(slope, function.value_and_grad(several[0])[1], rtol=1e-9)
    curved = evaluator.interpreted(jax.hessian(function), always=True)(several[0])
    np.testing.assert_allclose(curved, curved.T, atol=1e-9)


@pytest.mark.slow
def test_the_first_slopes_compile_nothing(made, monkeypatch):
    """By NumPy, in either precision, as JAX has them compiled; inside what JAX compiles they are part of it."""
    _, function = made("training")
    several = points(function, 3)
    compiled = jax.jit(jax.vmap(jax.value_and_grad(function)))(several)
    own = jax.jit(jax.vmap(function.value_and_grad))(several)
    monkeypatch.setattr(evaluator, "quick_jit", lambda *_, **__: pytest.fail("compiled"))
    for index, u in enumerate(several):
        value, slope = function.value_and_grad(u)
        for found in ((value, slope), jax.tree.map(lambda each, at=index: each[at], own)):
            np.testing.assert_allclose(found[0], compiled[0][index], rtol=1e-12)
            np.testing.assert_allclose(found[1], compiled[1][index], rtol=1e-9, atol=1e-12)
        single = function.value_and_grad(u.astype(jnp.float32))
        assert single[1].dtype == jnp.float32
        np.testing.assert_allclose(single[1], slope, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_it_runs_in_single_precision(made):
    """In the precision of u, as an accelerator screens designs: 2e-5 off at most where all steps round to float32."""
    _, function = made("continuous")
    several = points(function, 50)
    single = jax.jit(jax.vmap(function))(several.astype(jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, jax.vmap(function)(several), rtol=2e-5, atol=2e-5)


@pytest.mark.slow
def test_descending_it_finds_what_a_search_finds(made):
    """Adam from 32 starts at the plan of the best design ends within 1 % of the proven best of that plan."""
    from codesign import Certified, solve

    problem, function = made("training")
    alone = DesignSpace(plan={n: [v] for n, v in function.plan.items()}, hardware=problem.space.hardware)
    answer = solve(Problem(problem.scenario, alone, problem.objective), Certified())
    rule = optax.adam(optax.cosine_decay_schedule(0.05, 300))

    def descend(u: jax.Array) -> jax.Array:
        def step(carry, _):
            u, state = carry
            updates, state = rule.update(jax.jacfwd(function)(u), state)
            return (jnp.clip(optax.apply_updates(u, updates), 0.0, 1.0), state), None

        return jax.lax.scan(step, (u, rule.init(u)), length=300)[0][0]

    ends = jax.jit(jax.vmap(descend))(points(function, 32, seed=1))
    best = float(jnp.exp(jax.vmap(function)(ends).min()))
    assert answer.bound is not None
    assert answer.bound <= best <= 1.01 * answer.bound


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"tpp": 8}, "plan 'tpp' is no plan field of the space (did you mean 'tp'?)"),
        ({"tp": 8, "pp": 7}, "breaks"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(plan: dict[str, float], says: str, made):
    problem, _ = made("training")
    with pytest.raises(ConfigError, match=re.escape(says)):
        objective_fn(problem, plan)


def test_other_names_are_refused(made):
    _, function = made("training")
    with pytest.raises(ConfigError, match="'compute' has no value: the variables are compute"):
        function.at({})
    with pytest.raises(ConfigError, match="'computer' is no variable of the space"):
        function.at({"computer": 1.0})


def test_nothing_to_differentiate_is_refused(made):
    problem, _ = made("training")
    space = DesignSpace(plan=dict(problem.space.plan), hardware={})
    with pytest.raises(ConfigError, match=r"space\.hardware is empty"):
        objective_fn(Problem(problem.scenario, space, problem.objective))
