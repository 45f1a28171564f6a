"""Goals that are functions of one's own: any of JAX is read or refused in one line, and nothing ends in a traceback."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import training

from codesign.core.errors import ConfigError
from codesign.search import Certified, Problem
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective

SPACE = DesignSpace(
    {"pp": [4, 8]},
    {
        "hbm": Continuous("cluster.accelerator.hbm.capacity_bytes", 8e9, 300e9),
        "up": Continuous("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 1e11, 9e11),
    },
)
SEARCH = Certified(gap=1e-2, seconds=10.0, batch_size=64, convexity_samples=64, explain=False)


def searched(goal):
    objective = Objective("own", limits={"capex_usd": 60e6}, custom={"own": goal})
    return SEARCH.run(Problem(training(), SPACE, objective), 0)


def money(m):
    return m.capex_usd / 1e7


@jax.custom_vjp
def _twice(x):
    return 2 * x


_twice.defvjp(lambda x: (2 * x, None), lambda _, slope: (7 * slope,))  # the slope is a lie, and nobody asks for it

READ = {
    "a checkpoint": jax.checkpoint(lambda m: money(m) + m.time_s),
    "a checkpoint in a call in a checkpoint": jax.checkpoint(jax.jit(jax.checkpoint(lambda m: jnp.exp(money(m))))),
    "slopes of one's own in reverse": lambda m: _twice(money(m)) + m.time_s,
    "a slope": lambda m: jax.grad(lambda x: x**2)(money(m)),
    "a map": lambda m: jnp.sum(jax.vmap(lambda x: x * money(m))(jnp.arange(1.0, 4.0))),
    "a norm": lambda m: jnp.linalg.norm(jnp.stack([money(m), m.time_s])),
    "a choice that the box decides": lambda m: jnp.where(money(m) > 1.0, money(m), 2 * money(m)),
    "a number of Python": lambda m: 3,
}
TOLD = {
    "a branch": (lambda m: jax.lax.cond(money(m) > 5, lambda x: x, lambda x: 2 * x, money(m)), "cond of"),
    "a scan": (lambda m: jax.lax.scan(lambda a, _: (a + money(m), a), m.time_s, None, length=3)[0], "scan of"),
    "a loop": (lambda m: jax.lax.while_loop(lambda a: a < 1e3, lambda a: 2 * a, money(m)), "while of"),
    "a soft maximum": (lambda m: jax.nn.softplus(money(m)), "custom_jvp_call of"),
    "whole numbers": (lambda m: money(m).astype(int) + 1.0, ""),
    "single precision": (lambda m: 2 * money(m).astype(jnp.float32), ""),
    "the place of the largest": (lambda m: jnp.argmax(jnp.stack([money(m), m.time_s])) + 1.0, ""),
    "no number anywhere": (lambda m: jnp.log(-money(m)), "no number"),
    "overflow": (lambda m: jnp.exp(1e4 * money(m)), "rounding: overflow in exp at test_own_goals.py"),
    "lost digits": (lambda m: jnp.exp((money(m) + 8e15) - 8e15), "rounding: its log is off by any amount"),
}  # fmt: skip
REFUSED = {
    "one of many": (lambda m: jnp.stack([money(m)]), "gives an array of shape (1,) where one number is needed"),
    "several": (lambda m: jnp.stack([money(m), m.time_s]), "gives an array of shape (2,) where one number is needed"),
    "a text": (lambda m: "3", "gives '3', which is no number"),
    "nothing": (lambda m: None, "gives None, which is no number"),
    "all metrics": (lambda m: m, "gives a Metrics, which is no number"),
    "a complex number": (lambda m: money(m) + 1j, "gives complex128 where a real number is needed"),
    "a mistake": (lambda m: [][1], "fails: IndexError: list index out of range"),
    "no such metric": (lambda m: m.nothing, "fails: AttributeError: 'Metrics' object has no attribute 'nothing'"),
    "no argument": (lambda: 3.0, "fails: TypeError:"),
    "a number too soon": (lambda m: float(money(m)), "write it with jax.numpy"),
    "an if": (lambda m: money(m) if money(m) > 3 else 2 * money(m), "jnp.where in the place of if"),
    "numpy": (lambda m: np.log(money(m)), "without float() or numpy"),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_can_be_read_is_proven(name):
    trace = searched(READ[name])
    assert trace.certificate.certified, trace.claim


@pytest.mark.parametrize("name", TOLD)
def test_what_cannot_be_proven_is_told_in_one_line(name):
    goal, words = TOLD[name]
    trace = searched(goal)
    assert not trace.certificate.certified
    assert trace.certificate.bound is None
    assert "no certificate: " in trace.claim
    assert words in trace.claim
    assert "\n" not in trace.claim


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_goal_is_refused_in_one_line(name):
    goal, words = REFUSED[name]
    with pytest.raises(ConfigError) as result:
        searched(goal)
    assert str(result.value).startswith("objective.custom.own ")
    assert words in str(result.value)
    assert "\n" not in str(result.value)


def test_what_leaves_the_program_is_refused_with_its_place():
    def outside(m):
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((), np.float64), money(m))

    with pytest.raises(ConfigError, match=r"test_own_goals.py:\d+ \(.*outside\): pure_callback asks Python"):
        searched(outside)
