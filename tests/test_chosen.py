"""An algorithm as a field of the plan: the option that it names, by name everywhere, refused where nobody offers it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.config import scenario_from_config, study_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.model.hardware import Link
from codesign.model.metrics import evaluate
from codesign.model.networks.collectives import Chosen, Fastest, RadixAllReduce, RingAllReduce, SipacAllReduce
from codesign.model.networks.fabrics import ALGORITHMS, Group
from codesign.model.workloads import Layout, Plan
from codesign.study.design_space import shown

OPTIONS = {"ring": RingAllReduce(), "sipac": SipacAllReduce(radix=4.0), "radix_2": RadixAllReduce()}
LINK = Link(7e-7, 1 / 300e9, 2e-11, 3.7e-6, lanes=16.0)
RACK = ("experiment=lumorph_rack", "collective=lumorph_chosen")


def seconds(algorithm, name, nbytes=1e6):
    group = Group(16.0, algorithm=float(ALGORITHMS.index(name)))
    return float(algorithm.cost(jnp.asarray(nbytes), group, LINK).time_s)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_plan_s_option_and_no_other(name):
    assert seconds(Chosen(OPTIONS), name) == seconds(OPTIONS[name], name)


def test_what_is_not_offered_takes_the_first_that_is():
    assert seconds(Chosen(OPTIONS), "all_to_all") == seconds(OPTIONS["ring"], "ring")


@pytest.mark.parametrize("nbytes", [1e3, 1e6, 1e9])
def test_the_best_choice_is_what_a_tuner_takes(nbytes):
    best = min(seconds(Chosen(OPTIONS), name, nbytes) for name in OPTIONS)
    assert best == seconds(Fastest(OPTIONS), "ring", nbytes)


def test_slopes_and_batches_over_the_choice():
    def told(choice, logs):
        link = Link(jnp.exp(logs[0]), jnp.exp(logs[1]), 0.0, 3.7e-6, lanes=16.0)
        return Chosen(OPTIONS).cost(jnp.asarray(1e6), Group(16.0, algorithm=choice), link).time_s

    logs, choices = jnp.log(jnp.asarray([7e-7, 3e-12])), jnp.arange(5.0)
    together = jax.jit(jax.vmap(told, in_axes=(0, None)))(choices, logs)
    np.testing.assert_allclose(together, [told(choice, logs) for choice in choices], rtol=1e-12)
    for choice in choices:
        slope = jax.grad(told, argnums=1)(choice, logs)
        differences = [(told(choice, logs + step) - told(choice, logs - step)) / 2e-6 for step in 1e-6 * jnp.eye(2)]
        np.testing.assert_allclose(slope, differences, rtol=1e-5)


def test_each_axis_has_its_own():
    layout = Layout(Plan(tp=4.0, tp_algorithm="sipac", data_algorithm="radix_4"), 16.0)
    named = {axis: shown("tp_algorithm", float(layout.group(axis).algorithm)) for axis in ("tp", "data", "pp")}
    assert named == {"tp": "sipac", "data": "radix_4", "pp": "radix_4"}


@pytest.mark.slow
def test_reaches_the_step_and_is_never_better_than_the_tuner():
    base = scenario_from_config(*RACK)
    tuned = float(evaluate(scenario_from_config("experiment=lumorph_rack")).time_s)
    times = [
        float(evaluate(replace(base, {"plan.tp_algorithm": float(k), "plan.data_algorithm": float(k)})).time_s)
        for k in range(len(ALGORITHMS))
    ]
    assert len(set(times)) > 3
    assert min(times) >= tuned * (1 - 1e-9)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [(("plan.tp_algorithm=rign",), "did you mean 'ring'"),
     (("+space.plan.tp_algorithm=[ring, radx_2]",), "did you mean 'radix_2'"),
     (("collective=lumorph", "+space.plan.data_algorithm=[ring]"), "collective=lumorph_chosen")],
)  # fmt: skip
def test_a_choice_that_is_none_is_refused_in_one_line(overrides, words):
    with pytest.raises(ConfigError) as told:
        study_from_config(*RACK, *overrides)
    assert words in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("options", "words"), [({}, "is empty"), ({"rign": RingAllReduce()}, "did you mean 'ring'")])
def test_options_under_names_that_a_plan_knows(options, words):
    with pytest.raises(ConfigError, match=words):
        Chosen(options)
