"""Operations that carry a name: each keeps what its rule promises, by random arguments of every kind it accepts.

Arguments are log-convex and log-concave functions, monomials and constants along random lines; the value of the
operation along the line must bend as the rule says, and its slope must be its own.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.core import smooth
from codesign.core.smooth import OPERATION
from codesign.curvature import CONCAVE, CONVEX
from codesign.curvature.operations import RULES
from codesign.model.hardware import compute
from codesign.model.networks.fabrics import contended
from codesign.model.reliability import failures

pytestmark = pytest.mark.slow

LINES, POINTS = 60, 33
DISCRETE = ("ceil", "floor")  # of constants of the plan only: nothing is promised of varied arguments


def operation(name):
    return next(getattr(room, name) for room in (smooth, compute, contended, failures) if hasattr(room, name))


def argument(kind, rng):
    """A function of the place t on a line, in [0, 1], of one kind, and what the walk calls it."""
    a, b, c, d = rng.uniform(-3, 3, 4)
    if kind == "constant":
        return lambda t: jnp.exp(a) + 0 * t
    if kind == "monomial":
        return lambda t: jnp.exp(a + b * t)
    if kind == "log-convex":
        return lambda t: jnp.exp(a + b * t) + jnp.exp(c + d * t)
    return lambda t: jnp.exp(c) / (jnp.exp(a + b * t) + jnp.exp(d * t))


KINDS = ("constant", "monomial", "log-convex", "log-concave")


def arity(name):
    return {"kinks": 1, "p_norm": 2, "ceil": 1, "floor": 1, "slowdown": 1, "growth": 1, "least_growth": 1}.get(name, 2)


def called(name, parts):
    """The operation on these arguments, as a function of t; a p-norm of power 1 to 9, kinks of a stack."""

    def value(t):
        given = [part(t) for part in parts]
        if name == "kinks":
            return operation(name)(jnp.stack([given[0], 2 * given[0] ** 0.5]))
        if name == "p_norm":
            return operation(name)(jnp.asarray(3.7), *given)
        if name == "used_share":  # some reserve is taken off, so that nothing may be left
            return operation(name)(given[0], given[1] - 0.5)
        return operation(name)(*given)

    return value


def promised(name, parts):
    """What the walk says of it, for a line as the box."""
    from codesign.curvature import Walk
    from codesign.staging import PlanTable, flatten

    program = flatten(jax.make_jaxpr(lambda t: [called(name, parts)(t)])(jnp.asarray(0.5)))
    (value,) = Walk(program, PlanTable({}), {}, program.inputs).outputs
    return value


@pytest.mark.parametrize("name", sorted(set(RULES) - set(DISCRETE)))
def test_what_a_rule_promises_holds(name):
    rng, kept = np.random.default_rng(sorted(RULES).index(name)), 0
    t = np.linspace(0, 1, POINTS)
    for line in range(LINES):
        kinds = [KINDS[(line // len(KINDS) ** place) % len(KINDS)] for place in range(arity(name))]
        parts = [argument(kind, rng) for kind in kinds]
        value, function = promised(name, parts), called(name, parts)
        seen, slope = jax.vmap(jax.value_and_grad(function))(jnp.asarray(t))
        seen = np.asarray(seen)
        finite = np.isfinite(seen)
        assert (seen[finite] >= value.low - 1e-9 * (1 + abs(value.low))).all(), (kinds, value)
        assert (seen[finite] <= value.high * (1 + 1e-9) + 1e-9).all(), (kinds, value)
        for bit, sign in ((CONVEX, 1), (CONCAVE, -1)):
            for curve, known in ((seen, value.plain), (np.log(np.where(seen > 0, seen, np.nan)), value.log)):
                if known & bit:
                    kept += 1
                    with np.errstate(invalid="ignore"):
                        bend = sign * (curve[1:-1] - 0.5 * (curve[:-2] + curve[2:]))
                    bend = bend[np.isfinite(bend)]
                    assert (bend <= 1e-9 * (1 + np.abs(seen[finite]).max(initial=0))).all(), (kinds, value)
        if value.plain or value.log:
            check_slopes(function, t, np.asarray(slope), seen)
    assert kept > LINES / 2


def check_slopes(function, t, slope, seen):
    """Slopes are those of the function, by differences; at a kink between those of its sides."""
    step = 1e-6
    left, right = (np.asarray(jax.vmap(function)(jnp.asarray(t + shift))) for shift in (-step, step))
    sides = np.stack([(seen - left) / step, (right - seen) / step])
    known = np.isfinite(sides).all(axis=0)
    slack = 1e-4 * (1 + np.abs(sides).max(axis=0))
    inside = (slope >= sides.min(axis=0) - slack) & (slope <= sides.max(axis=0) + slack)
    assert inside[known].all()


@pytest.mark.parametrize("name", DISCRETE)
def test_rounding_promises_nothing_of_what_is_varied(name):
    value = promised(name, [lambda t: 1e-3 * jnp.exp(t)])
    assert not value.plain
    assert not value.log
    assert "rounding" in value.why


def test_names_in_a_traced_program_are_those_of_the_rules():
    text = str(jax.make_jaxpr(lambda t: smooth.maximum(smooth.at_least(t, 1.0), smooth.ceil(2.5)))(1.0))
    assert all(f"name={OPERATION}{name}" in text for name in ("kink", "at_least", "ceil"))
