"""What float64 makes of a number lies within the bound of the walk, and goals that lose their digits are not proven."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_programs import BINARY, PLANS, UNARY, walked

from codesign.core.smooth import largest, maximum, used_share
from codesign.curvature import operations, rounding_rules
from codesign.jaxprs.numpy_primitives import doer, several
from codesign.model.hardware.compute import p_norm
from codesign.model.networks.fabrics.contended import slowdown
from codesign.model.reliability.failures import growth, least_growth
from codesign.staging import flatten, written_out

TRAPS = [
    lambda x: slowdown(jnp.abs(x)),
    lambda x: growth(jnp.abs(x)),
    lambda x: least_growth(jnp.abs(x)),
    lambda x: x * 1e300,
    lambda x: x * 1e-200,
    lambda x: x + 1e12,
    lambda x: x - 1e6,
    lambda x: x**40,
    jnp.expm1,
    jnp.log1p,
    jnp.tanh,
    jnp.cbrt,
    jax.lax.rsqrt,
    lambda x: x**3,
    lambda x: x**-2,
    jnp.square,
    lambda x: jnp.abs(x) ** 0.025,
    lambda x: x.astype(jnp.float32),
    lambda x: x.astype(jnp.float32).astype(float),
    lambda x: jnp.prod(jnp.stack([x, x, 0.5 + x])),
    lambda x: jnp.cumsum(jnp.stack([x, 2 * x, -x]))[-1],
    lambda x: jnp.dot(jnp.stack([x, x * x]), jnp.array([3.0, -0.1])),
    lambda x: largest(jnp.stack([jnp.abs(x), jnp.abs(x) + 1e-9, 0.3 + 0 * x])),
    jnp.exp2,
    jnp.round,
    jnp.floor,
    lambda x: jnp.log(1 + 1e-18 * x),
    lambda x: (x + 1e17) - 1e17,
    lambda x: 1e20 * jnp.log1p(1e-9 * x),
    lambda x: (1e-9 * x + 1.0) - 1.0,
    lambda x: used_share(jnp.abs(x) + 0.1, 5.0 - x),
    lambda x: jnp.linalg.norm(jnp.stack([x, 1.5 + 0 * x])),
]


BY_NUMPY = {"cbrt": np.cbrt, "rsqrt": lambda x: 1 / np.sqrt(x)}  # JAX has no extended precision


def random_traps(rng, steps):
    """(a, b, u, v) -> every number on the way, many of them made to lose digits or to leave float64."""
    choices = []
    for step in range(steps):
        kinds = (BINARY, UNARY, TRAPS)[int(rng.choice(3, p=[0.5, 0.2, 0.3]))]
        choices.append((kinds, int(rng.integers(len(kinds))), int(rng.integers(5 + step)), int(rng.integers(5 + step))))

    def model(a, b, u, v):
        values = [b, u, 5.0**u, 0.2 * 30.0**v, 2.0 * 9.0 ** (u - 0.4 * v)]
        for kinds, kind, i, j in choices:
            values.append(kinds[kind](values[i], values[j]) if kinds is BINARY else kinds[kind](values[i]))
        return values

    return model


def computed_and_real(model, rng, points=24):
    """Every number of a model at the same points of every plan: in float64, and in extended precision wherever the
    hardware reaches it; what it does not move is a constant of the plan after all.
    """
    half = jnp.asarray(0.5)
    program = written_out(flatten(jax.make_jaxpr(model)(half, half, half, half)))
    plans = np.array([(a, b) for a in PLANS["a"] for b in PLANS["b"]]).repeat(points, axis=0)
    u = rng.uniform(size=(points, 2))
    u[::4] = np.round(u[::4])
    u = np.tile(u, (12, 1))
    given = dict(zip(program.inputs, (*plans.T, *u.T), strict=True))
    mine = {slot: value[None] for slot, value in program.constants.items()} | given
    real = dict(mine) | {slot: mine[slot].astype(np.longdouble) for slot in program.inputs[2:]}
    for equation in program.equations:
        kinds = [program.kinds[slot] for slot in equation.inputs]
        for slots, kind in ((mine, np.float64), (real, np.longdouble)):
            settings, values = equation.params, [slots[slot] for slot in equation.inputs]
            extended = any(np.asarray(value).dtype == np.longdouble for value in values)
            if extended and "new_dtype" in settings and np.issubdtype(settings["new_dtype"], np.floating):
                settings = settings | {"new_dtype": kind}
            done = BY_NUMPY.get(equation.name) or doer(equation.primitive, settings, kinds, 1)
            with np.errstate(all="ignore"):
                slots |= dict(zip(equation.outputs, several(done(*values)), strict=True))
        for slot in equation.outputs:
            if real[slot].dtype == np.longdouble and unmoved(mine[slot], points) and unmoved(real[slot], points):
                real[slot] = mine[slot]
    return [[np.broadcast_to(slots[slot], (len(u),)) for slot in program.outputs] for slots in (mine, real)]


def unmoved(values, points):
    """Whether numbers are the same at all points of each plan."""
    each = np.asarray(values).reshape(-1, points, *values.shape[1:]) if len(values) > 1 else values[None]
    return bool(((each == each[:, :1]) | np.isnan(each)).all())


def check_bounds(model, rng):
    """How many finite bounds were held against numbers."""
    values, walk = walked(model, ordered=False)
    held = 0
    for number, (value, error, mine, real) in enumerate(
        zip(values, walk.rounding, *computed_and_real(model, rng), strict=True)
    ):
        where = f"number {number}: {value} {error}"
        if error.absolute == np.inf:
            continue
        with np.errstate(all="ignore"):
            usual = error.relative * np.abs(real) < 0.01 if error.steep else np.full(mine.shape, fill_value=True)
            finite, both = np.isfinite(mine), usual & np.isfinite(mine) & np.isfinite(real)
            assert (finite == np.isfinite(real))[usual].all(), where
            off, size = np.abs(mine[both] - real[both]), np.abs(real[both])
        factor = np.maximum(size, 1.0) if error.steep else 1.0
        held += 1
        assert (off <= error.absolute * factor * np.maximum(size if error.steep else 1.0, 1.0)).all(), where
        if error.relative < np.inf:
            assert (off <= error.relative * size * factor * 1.01).all(), where
        some = size[size > 0]
        assert (some >= error.least * (1 - 1e-9)).all(), where
        assert (some <= error.most * (1 + 1e-9)).all(), where
    return held


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_what_is_computed_lies_within_the_bound(first):
    held = 0
    for seed in range(first, first + 50):
        rng = np.random.default_rng(seed)
        held += check_bounds(random_traps(rng, 8), rng)
    assert held > 350


def test_every_named_operation_has_a_bound():
    assert set(rounding_rules.OPERATIONS) == set(operations.RULES)


POSITIVE = {
    "sums": lambda a, b, x, y: sum((x * k + y / k for k in range(1, 40)), start=x),
    "products": lambda a, b, x, y: (x * y) ** 3 / (x + y) ** 2 * (1 + x * a),
    "powers and maxima": lambda a, b, x, y: maximum(x**1.7 + a, y**-0.4) * jnp.exp(x) + jnp.sqrt(y),
    "norms": lambda a, b, x, y: p_norm(jnp.asarray(2.5), x, y, x * y) * largest(jnp.stack([x, y, x / y])),
    "a root of a high power": lambda a, b, x, y: ((x + y) ** 40) ** (1 / 40),
    "a difference of what is far apart": lambda a, b, x, y: x / (40.0 - y),
    "a share of what is left": lambda a, b, x, y: used_share(x, 29.0 - y),
    "a scaling and back": lambda a, b, x, y: (x * 1e300) / 1e300 + y,
    "log of one and more": lambda a, b, x, y: jnp.log1p(1e-17 * x) * 1e17 + y,
}


@pytest.mark.parametrize("name", POSITIVE)
def test_what_does_not_cancel_keeps_its_digits(name):
    """Ranges over orders of magnitude do not matter."""
    _, walk = walked(lambda a, b, u, v: [jnp.log(POSITIVE[name](a, b, 5.0**u, 30.0**v))])
    assert walk.rounding[0].absolute < 1e-12


LOSSES = {
    "a large offset": (lambda x, y: jnp.exp((x + 8e15) - 8e15), "sub"),
    "an offset in a sum": (lambda x, y: (x + 1e12 + y) - 1e12, "sub"),
    "a cast inside": (lambda x, y: x.astype(jnp.float32) * y, ""),
    "log of one and hardly more": (lambda x, y: jnp.log(1 + 1e-14 * x) * 1e14, "log"),
    "log of one and what is lost beside it": (lambda x, y: y + jnp.exp(jnp.log(1 + 1e-18 * x) * 1e18), "log"),
    "what a step of rounding decides": (lambda x, y: jnp.where((x + 1e17) - 1e17 < 10.0, x, 0.5 * x), ""),
    "a large exponent": (lambda x, y: jnp.exp(1e9 * jnp.log(x) - 1e9 * jnp.log(x)), ""),
    "overflow": (lambda x, y: 1 / (jnp.exp(1e3 * x) + y), "overflow in exp"),
    "overflow between": (lambda x, y: (x * 1e308) / 1e308, "overflow in mul"),
    "underflow between": (lambda x, y: (x * 1e-320) / 1e-320, "underflow in mul"),
    "underflow of an exponential": (lambda x, y: jnp.exp(-300 * x), "underflow in exp"),
    "a sign that rounding hides": (lambda x, y: x + 1 / (2 + ((9.0 - x + 1e17) - 1e17)), "sub"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_what_loses_its_digits_is_not_proven_and_the_operation_is_named(name):
    from codesign.curvature.walk import TOLERATED, reason

    function, words = LOSSES[name]
    (value,), walk = walked(lambda a, b, u, v: [jnp.log(function(5.0**u, 30.0**v))])
    (error,) = walk.rounding
    assert not value.constant
    assert not error.absolute <= TOLERATED
    assert words in reason(error)


def test_an_offset_that_is_small_enough_keeps_the_proof():
    _, walk = walked(lambda a, b, u, v: [jnp.log((5.0**u + 100.0) - 100.0)])
    assert 1e-14 < walk.rounding[0].absolute < 1e-12
