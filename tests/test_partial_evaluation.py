"""Along few numbers of a tree: values and slopes of the plain function, by fewer equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign import evaluate, get_path, replace, scenario_from_config
from codesign.core.jax_typed import is_traced
from codesign.core.smooth import maximum
from codesign.jaxprs import partial_evaluation
from codesign.jaxprs.partial_evaluation import FEW, partially_evaluated
from codesign.jaxprs.program import flatten
from codesign.model.metrics.evaluation import _evaluate

HBM, LINK = "cluster.accelerator.hbm.bandwidth_bytes_per_s", "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
SMALL = ("model=llama31_8b", "accelerator=h100_sxm", "cluster.device_count=8", "plan.tp=8")


def small(tree):
    """Known parts, products with zero, a maximum, a loop and an array."""
    a, b, c, rows = tree["a"], tree["b"], tree["c"], tree["rows"]
    known = jnp.exp(jnp.sin(b) + c) * jnp.cumsum(rows).sum()
    settled = jax.lax.fori_loop(0, 20, lambda _, x: 0.5 * (x + (a + c) / x), 1.0 + 0.0 * c)
    chosen = jnp.where(c > 1, a * b, a / b)
    return {"x": maximum(chosen * known, settled), "y": settled * rows, "z": known, "w": a * jnp.sin(a) * b}


TREE = {name: jnp.asarray(value) for name, value in {"a": 1.3, "b": 0.7, "c": 2.0, "rows": [0.5, 1.5, 2.5]}.items()}
ALONG = partially_evaluated(small)


def at(function, *names):
    """The function of so many of the numbers, as one vector, and where it is."""

    def moved(u):
        return function(TREE | {name: u[index] for index, name in enumerate(names)})

    return moved, jnp.stack([TREE[name] for name in names])


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("names", [("a", "c"), ("a", "b", "c")])
@pytest.mark.parametrize("way", [lambda f: f, jax.jacfwd, jax.jacrev])
def test_values_and_slopes_are_those_of_the_plain_function(names, way):
    (along, u), (plain, _) = at(ALONG, *names), at(small, *names)
    same(jax.jit(way(along))(u), jax.jit(way(plain))(u))
    same(jax.vmap(way(along))(jnp.stack([u, 1.1 * u])), jax.vmap(way(plain))(jnp.stack([u, 1.1 * u])))


def test_slopes_along_many_numbers_are_those_of_the_plain_function():
    rows = jnp.linspace(0.5, 2.0, FEW + 1)
    one, other = (jax.jit(jax.jacrev(lambda r, f=f: f(TREE | {"rows": r})))(rows) for f in (ALONG, small))
    same(one, other)


def test_only_what_the_moving_numbers_reach_is_traced():
    (along, u), (plain, _) = at(ALONG, "a"), at(small, "a")
    left, full = (flatten(jax.make_jaxpr(function)(u)).equations for function in (along, plain))
    assert not {"cumsum", "exp"}.intersection(str(one.inner or one.name) for one in left)
    assert {"cumsum", "exp"} <= {one.name for one in full}
    assert "cumsum" not in str(jax.make_jaxpr(along)(u))


def test_what_nobody_reads_is_not_compiled():
    along, u = at(ALONG, "a")
    whole = jax.jit(lambda u: along(u)).lower(u).as_text()
    part = jax.jit(jax.value_and_grad(lambda u: along(u)["x"])).lower(u).as_text()
    assert "sine" in whole
    assert "sine" not in part
    assert "cosine" not in part


def test_a_number_traced_around_it_without_a_slope_is_no_constant():
    def outer(c):
        return jax.grad(lambda a: ALONG(TREE | {"a": a, "c": c})["x"])(TREE["a"])

    def plain(c):
        return jax.grad(lambda a: small(TREE | {"a": a, "c": c})["x"])(TREE["a"])

    same(jax.jit(outer)(2.0), jax.jit(plain)(2.0))
    same(jax.jit(outer)(0.5), jax.jit(plain)(0.5))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_in_single_precision_and_traced_altogether_it_is_the_plain_function(dtype, monkeypatch):
    monkeypatch.setattr(partial_evaluation, "folded", None)  # not reached
    tree = jax.tree.map(lambda leaf: leaf.astype(dtype), TREE)
    same(jax.jit(ALONG)(tree), jax.jit(small)(tree))


def test_what_asks_python_for_a_number_is_traced_as_ever():
    def asking(tree):
        return jax.pure_callback(lambda a: np.sin(a), jax.ShapeDtypeStruct((), np.float64), tree["a"]) * tree["b"]

    result = jax.jit(lambda b: partially_evaluated(asking)(TREE | {"b": b}))(2.0)
    np.testing.assert_allclose(result, 2 * np.sin(1.3))


@pytest.mark.slow
@pytest.mark.parametrize("words", [("workload=training",), ("workload=continuous",)])
def test_a_model_along_two_numbers(words):
    """Values, slopes by differences, `jit` = `vmap` = plain, and a tenth of the equations."""
    scenario = scenario_from_config(*words, *SMALL)
    paths = (HBM, LINK)
    middle = [float(get_path(scenario, path)) for path in paths]

    def time_s(u, function=evaluate):
        return function(
            replace(scenario, {p: m * u[i] for i, (p, m) in enumerate(zip(paths, middle, strict=True))})
        ).time_s

    u = jnp.array([1.0, 0.9])
    value, slope = jax.jit(jax.value_and_grad(time_s))(u)
    np.testing.assert_allclose(value, jax.jit(lambda u: time_s(u, _evaluate))(u), rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(time_s)(jnp.stack([u, u]))[1], value, rtol=1e-12)
    np.testing.assert_allclose(time_s(u), value, rtol=1e-12)
    for index, step in enumerate(1e-5 * np.eye(2)):
        by = (float(time_s(u + step)) - float(time_s(u - step))) / 2e-5
        np.testing.assert_allclose(slope[index], by, rtol=1e-5, atol=1e-9 * value)
    few, full = (len(flatten(jax.make_jaxpr(lambda u, f=f: time_s(u, f))(u)).equations) for f in (evaluate, _evaluate))
    assert few * 5 < full


def test_a_number_that_is_put_into_a_tree_under_jit_stays_known():
    scenario = scenario_from_config(*SMALL)
    seen = []

    def put(x):
        tree = replace(scenario, {HBM: x * 1e12, LINK: 450e9})
        seen.append([is_traced(get_path(tree, path)) for path in (HBM, LINK)])
        return x

    jax.jit(put)(1.0)
    assert seen == [[True, False]]
