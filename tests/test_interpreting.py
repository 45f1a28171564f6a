"""NumPy in place of the compiler: the same numbers of the same types. Whole models: tests/test_workloads.py."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from codesign.jaxprs import evaluator as interpreting
from codesign.jaxprs import program as equations
from codesign.jaxprs.evaluator import behind, doer, interpreted

REAL = np.random.default_rng(0).uniform(0.2, 3.0, (3, 4))
WHOLE = np.arange(-6, 6).reshape(3, 4)
TRUTH = REAL > 1.0

polynomial = getattr(lax, "polynomial", lambda x, terms: sum(term * x**at for at, term in enumerate(terms)))  # JAX 0.12

FUNCTIONS = {
    "arithmetic": lambda x, n, t: (x + 2 * x - x / 3, -x, jnp.abs(n), n + n * n - 1, n // 4, n % 5),
    "extremes": lambda x, n, t: (jnp.maximum(x, 1.0), jnp.minimum(n, 2), jnp.clip(x, 0.5, 1.5), x.max(1), n.min()),
    "powers": lambda x, n, t: (x**0.3, x**3, x**-2, n**3, jnp.sqrt(x), jnp.exp(x), jnp.log(x), lax.sign(x - 1)),
    "rounding": lambda x, n, t: (
        jnp.floor(x),
        jnp.ceil(x),
        jnp.round(x),
        jnp.round(n / 2),
        lax.round(n / 2),
        lax.stop_gradient(x),
    ),
    "polynomials": lambda x, n, t: (polynomial(x, [0.5, 1.0, 0.0, -2.0]), polynomial(x, [x[:1], x[1:2]])),
    "places": lambda x, n, t: (jnp.argmin(x, 1), jnp.argmax(x, 0), lax.iota(jnp.int32, 4), jnp.argmin(t, 1)),
    "comparisons": lambda x, n, t: (x > 1, x >= x.T[0, 0], n < 0, n <= 0, n == 1, n != 1, jnp.isfinite(1 / n)),
    "truth": lambda x, n, t: (t & (n > 0), t | (n > 0), ~t, ~n, n & 3, n | 8, t.astype(int), jnp.where(t, x, n)),
    "choice": lambda x, n, t: lax.select_n(n[:, 0] % 3, x[:, 0], x[:, 1], x[:, 2]),
    "shapes": lambda x, n, t: (
        x.T,
        x.reshape(2, 6),
        x[1:, ::2],
        x[0],
        x[:, None] + n[None],
        jnp.squeeze(x[:1]),
        *lax.split(x, (1, 3), 1),
    ),
    "joined": lambda x, n, t: (jnp.stack([x, x]), jnp.concatenate([x, 1.0 * n], 1), jnp.broadcast_to(x[0], (5, 4))),
    "sums": lambda x, n, t: (x.sum(), x.sum(0), n.sum(1), x.mean(), jnp.cumsum(x, 1), x @ x.T),
    "picked": lambda x, n, t: (
        x[n % 3],
        x[:, n[0] % 4],
        x[n[0] % 3, n[1] % 4],
        jnp.take_along_axis(x, n[:, :2] % 4, 1),
        x.at[n[0]].get(mode="fill", fill_value=7.0),
        x.at[n[0]].get(mode="clip"),
        x.at[2 + n[0]].get(mode="fill"),
        jnp.take(x, n[1] % 4, axis=1),
        lax.dynamic_slice(x, (n[0, 1], n[2, 0]), (2, 2)),
    ),
    "picked in batches": lambda x, n, t: (
        jax.vmap(lambda y, m: (y[m % 4], y[m[0] % 4], y[m + 2]))(x, n),
        jax.vmap(lambda m: x[m % 3], 1)(n),
        jax.vmap(lambda y: y[n[0] % 4])(x),
        jax.vmap(lambda y: jnp.take(y, n[0, 1] % 4))(x),
    ),
    "by JAX": lambda x, n, t: (x[n % 3], jnp.argmin(x), jnp.sort(x), lax.fori_loop(0, 3, lambda i, y: y * x, x)),
    "nothing": lambda x, n, t: (x, jnp.asarray(3.0), 1.0 / jnp.zeros(2), jnp.log(jnp.zeros(()))),
    "inner": lambda x, n, t: (jax.jit(lambda y: y + x)(x), jax.nn.relu(x - 1), jax.grad(lambda y: jnp.sum(y**3))(x)),
    "batches": lambda x, n, t: jax.vmap(lambda y, m: (y * m, jnp.where(m > 0, y, y[0]), jnp.stack([y[0], y[1]])))(x, n),
    "slopes": lambda x, n, t: (jax.jacfwd(lambda y: jnp.max(y, 1) ** 2)(x), jax.jacrev(lambda y: y[:, 1] / y[:, 0])(x)),
}


@pytest.mark.parametrize("real", [np.float64, np.float32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_as_compiled(name, real):
    arguments = (jnp.asarray(REAL, real), jnp.asarray(WHOLE, jnp.int32), jnp.asarray(TRUTH))
    mine, compiled = interpreted(FUNCTIONS[name])(*arguments), jax.jit(FUNCTIONS[name])(*arguments)
    assert jax.tree.structure(mine) == jax.tree.structure(compiled)
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(compiled), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-15 if real is np.float64 else 1e-6)


def test_traced_once_and_compiled_when_it_runs_often(monkeypatch):
    monkeypatch.setattr(interpreting, "PATIENCE", 3)
    traces, compilations = [], []
    monkeypatch.setattr(interpreting, "quick_jit", lambda f, once: lambda *a: compilations.append(1) or jax.jit(f)(*a))

    def double(x):
        traces.append(1)
        return 2 * x

    run = interpreted(double)
    assert [float(run(jnp.asarray(float(i)))) for i in range(5)] == [0, 2, 4, 6, 8]
    assert len(compilations) == 2
    assert len(traces) == 1  # the compiler takes what was traced
    assert run(jnp.ones(3)).tolist() == [2, 2, 2]  # another program, run by NumPy again
    assert len(compilations) == 2
    assert run(jnp.ones(interpreting.MANY + 1)).sum() == 2 * interpreting.MANY + 2
    assert len(compilations) == 3


def test_what_jax_traces_is_compiled_with_what_is_around_it():
    run = interpreted(lambda x: jnp.sin(x) * x, once=False)
    x = jnp.asarray(REAL)
    np.testing.assert_allclose(jax.vmap(run)(x), run(x), rtol=1e-15)
    np.testing.assert_allclose(jax.jit(run)(x), run(x), rtol=1e-15)
    np.testing.assert_allclose(jax.grad(lambda x: run(x).sum())(x), jnp.sin(x) + x * jnp.cos(x), rtol=1e-15)


PRODUCTS = [  # shapes of both sides, which axes are summed over, which go side by side
    ((3, 7), (7, 4), (((1,), (0,)), ((), ()))),
    ((7,), (7, 4), (((0,), (0,)), ((), ()))),
    ((2, 3, 7), (2, 7, 4), (((2,), (1,)), ((0,), (0,)))),
    ((7,), (7,), (((0,), (0,)), ((), ()))),
]


@pytest.mark.parametrize(("left", "right", "numbers"), PRODUCTS)
@pytest.mark.parametrize("points", [(5,), (5, 4), (1, 4)])
def test_sums_of_products_at_many_points(left, right, numbers, points):
    """Also where one side is the same at all points, and with axes of points in front and behind."""
    rng = np.random.default_rng(0)

    def product(x, y):
        return jax.lax.dot_general(x, y, numbers)

    equation = jax.make_jaxpr(product)(np.zeros(left), np.zeros(right)).jaxpr.eqns[0]
    at_once = product
    for _ in points:
        at_once = jax.vmap(at_once)
    lead = len(points)
    for shared in ((1,) * lead, points):
        x, y = rng.normal(size=points + left), rng.normal(size=shared + right)
        wanted = np.asarray(at_once(x, np.broadcast_to(y, points + right)))
        result = doer(equation.primitive, equation.params, [np.float64] * 2, lead)(x, y)
        np.testing.assert_allclose(np.broadcast_to(result, wanted.shape), wanted, rtol=1e-13, atol=1e-13)
        turned = (np.moveaxis(part, range(lead), range(-lead, 0)) for part in (x, y))
        result = behind(equation.primitive, equation.params, [np.float64] * 2, lead)(*turned)
        result = np.broadcast_to(np.moveaxis(result, range(-lead, 0), range(lead)), wanted.shape)
        np.testing.assert_allclose(result, wanted, rtol=1e-13, atol=1e-13)


def chosen(x, places):
    """Rows of a table, chosen by number; some lie outside."""
    return x[places]


LOOKED_UP = {
    "rows": (chosen, (6, 3), (4,)),
    "pairs": (lambda x, places: x[places[..., 0], places[..., 1]], (6, 3), (4, 2)),
    "of each": (lambda x, places: jnp.take_along_axis(x, places, axis=1), (4, 6), (4, 2)),
    "clipped": (lambda x, places: jnp.take(x, places, axis=1, mode="clip"), (2, 6), (3,)),
    "among others": (
        lambda x, places: lax.pad(x, x[0, 0], ((2, -1, 2), (-1, 3, 0), (0, 0, 1))[: x.ndim]),
        (4, 3),
        (1,),
    ),
    "filled": (lambda x, places: x.at[places].get(mode="fill", fill_value=-1.0), (6,), (5,)),
    "least": (lambda x, places: jnp.argmin(x, axis=1) + 0 * places[0], (4, 6), (1,)),
    "largest": (lambda x, places: jnp.argmax(x, axis=0) + 0 * places[0], (4, 6), (1,)),
}


PADDED = [c for c in itertools.product(range(5), (-6, -2, 0, 3), (-5, -1, 0, 2), range(3))
          if c[1] + c[2] + max(c[0] + (c[0] - 1) * c[3], 0) >= 0]  # fmt: skip


@pytest.mark.slow
def test_what_is_put_among_others():
    """Numbers before, behind and between, or cut off, of none to four numbers; three points, or one for all."""
    assert len(PADDED) > 100
    rng = np.random.default_rng(0)
    for size, *config in PADDED:
        x, value, configs = rng.normal(size=(3, size, 2)), rng.normal(size=1), (tuple(config), (1, -1, 0))
        equation = jax.make_jaxpr(lambda x, value, c=configs: lax.pad(x, value, c))(x[0], value[0]).jaxpr.eqns[-1]
        result = doer(equation.primitive, equation.params, [np.float64] * 2, 1)(x, value)
        wanted = np.stack([lax.pad(one, value[0], configs) for one in x])
        assert result.shape == wanted.shape
        assert np.array_equal(result, wanted), (size, config)


@pytest.mark.parametrize("name", LOOKED_UP)
@pytest.mark.parametrize("points", [(5,), (5, 4), (1, 4)])
def test_what_is_looked_up_at_many_points(name, points):
    """With axes of points in front and behind, where either argument is the same along some of them; ties and no
    numbers among those of which the least is asked.
    """
    function, own, places = LOOKED_UP[name]
    rng, lead = np.random.default_rng(0), len(points)
    traced = jax.make_jaxpr(function)(np.zeros(own), np.zeros(places, dtype=int))
    at_once = function
    for _ in points:
        at_once = jax.vmap(at_once)
    shapes = itertools.product(*[[(1,) * lead, (*points[:-1], 1), points]] * 2)
    for of_x, of_places in shapes:
        x = np.round(rng.normal(size=of_x + own), 1)
        x.flat[rng.integers(0, x.size, 2)] = np.nan
        at = rng.integers(-2 if name != "of each" else 0, 7 if name != "of each" else 6, size=of_places + places)
        wanted = np.asarray(at_once(np.broadcast_to(x, points + own), np.broadcast_to(at, points + places)))
        turned = [np.moveaxis(part, range(lead), range(-lead, 0)) for part in (x, at)]
        program, slots = equations.flatten(traced), dict[int, np.ndarray]()
        slots |= {slot: np.reshape(value, (*value.shape, *(1,) * lead)) for slot, value in program.constants.items()}
        slots |= dict(zip(program.inputs, turned, strict=True))
        for equation in program.equations:
            kinds = [program.kinds[slot] for slot in equation.inputs]
            result = behind(equation.primitive, equation.params, kinds, lead)(*[slots[s] for s in equation.inputs])
            slots |= dict(zip(equation.outputs, result if isinstance(result, list) else [result], strict=True))
        result = np.moveaxis(slots[program.outputs[0]], range(-lead, 0), range(lead))
        np.testing.assert_array_equal(np.broadcast_to(result, wanted.shape), wanted)


def test_what_a_crossed_function_reads_is_what_it_depends_on():
    """Numbers that no result depends on may be anything, of those that one does none may."""
    given = {"price": np.float64(3.0), "size": np.float64(4.0), "rate": np.float64(5.0)}
    run = interpreting.crossed(
        lambda given, point: {"rule": given["size"] - point["tp"], "other": given["rate"] * 0 + 1}
    )
    values = {"tp": np.array([1.0, 2.0])}
    assert [float(each) for each in run.read(given, values)] == [5.0, 4.0]  # as JAX orders them: rate, size
    np.testing.assert_allclose(run(given, values)["rule"], [3.0, 2.0])
    assert run(given | {"price": np.float64(9.0)}, values)["rule"].tolist() == [3.0, 2.0]


def test_of_a_crossed_function_some_results_alone_are_computed(monkeypatch):
    """They are those of the whole function, and operations of the others are not run."""
    rng = np.random.default_rng(0)
    given = {"size": np.float64(4.0), "rate": np.float64(5.0)}

    def function(given, point):
        shared = jnp.exp(point["tp"] * given["size"])
        return {"a": shared + point["pp"], "b": jnp.sin(shared), "c": given["rate"] * point["pp"], "d": shared}

    run, plain = interpreting.crossed(function), vars(interpreting)["_run"]
    values = {"tp": rng.random(3), "pp": rng.random(4)}
    whole, ran = run(given, values), list[int]()
    monkeypatch.setattr(
        interpreting, "_run", lambda program, *told: ran.append(len(program.steps)) or plain(program, *told)
    )
    for asked in ([0], [1], [2], [3], [1, 2], [3, 0], []):
        told = run(given, values, asked)
        for place, name in enumerate("abcd"):
            if place in asked:
                np.testing.assert_array_equal(told[name], whole[name])
                assert told[name].shape == whole[name].shape
            else:
                assert told[name] is None
    assert ran == [3, 3, 1, 2, 4, 3, 0]
