"""Instant answers: near the certified optimum even from an untrained guess; files, slopes, refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_mix import problem

from codesign.config import study_from_config
from codesign.errors import ConfigError
from codesign.interpreting import interpreted
from codesign.search import Amortised, Certified
from codesign.search.amortised import regret_text
from codesign.search.amortised_guesser import FOLDER, Guesser, Shape, shipped
from codesign.search.amortised_network import Network
from codesign.search.amortised_training import FAMILIES, Family, losses


def untrained(given) -> Guesser:
    """A network of random weights for a problem."""
    shape, inputs = Shape.of(given.space), ("workload.global_batch", "cluster.accelerator.price_usd")
    parameters = Network(shape.outputs).init(jax.random.key(0), jnp.zeros(3))
    facts = {"goal": given.objective.goal, "kind": "fitted", "seed": 0}
    return Guesser(
        "made_up", shape, inputs, ("time_s",), np.array([[7.0, 10.0, 2.0], [1.0, 1.0, 1.0]]), parameters, facts
    )


def test_rounding_and_solving_mend_even_an_untrained_guess(tmp_path):
    given, path = problem(), tmp_path / "made_up.npz"
    untrained(given).save(path)
    trace = Amortised(str(path)).run(given, 0)
    best = Certified(gap=1e-3, pairs=64, explain=False).run(given, 0).certificate["best"]
    from codesign.results import designs

    row = designs(given, trace, 0).iloc[0]
    assert row["feasible"]
    assert best * 0.999 <= row["objective"] <= best * 1.01


def test_file_keeps_everything(tmp_path):
    given, path = problem(), tmp_path / "made_up.npz"
    guesser = untrained(given)
    guesser.save(path)
    again = Guesser.load(path)
    assert (again.shape, again.inputs, again.limits, again.facts) == (
        guesser.shape, guesser.inputs, guesser.limits, guesser.facts,
    )  # fmt: skip
    for one, other in zip(jax.tree.leaves(guesser.guess(given)), jax.tree.leaves(again.guess(given)), strict=True):
        assert other == pytest.approx(np.asarray(one), abs=2e-2)


def test_a_network_says_which_studies_it_does_not_fit():
    given = problem()
    guesser = untrained(given)
    assert not guesser.misfit(given)
    other = dataclasses.replace(given, objective=dataclasses.replace(given.objective, limits={"capex_usd": 1e8}))
    assert "limits differ" in guesser.misfit(other)
    narrower = dataclasses.replace(given.space, plan=given.space.plan | {"tp": [8]})
    assert "plan fields" in guesser.misfit(dataclasses.replace(given, space=narrower))
    with pytest.raises(ConfigError, match="has no network for this study"):
        Amortised().run(given, 0)
    with pytest.raises(ConfigError, match="is no file"):
        Amortised("nowhere.npz").run(given, 0)


def test_slope_of_the_training_loss_against_differences():
    given = problem()
    family = Family("made_up", (), ({"workload.global_batch": 1024.0},), {}, {}, {"time_s": (5.0, 9.0, False)})
    shape = Shape.of(given.space)
    loss = losses(family, given, shape)
    row, y = jnp.array([1024.0, 6.0]), jnp.array([np.log(5.0), np.log(6.0), np.log(1.4), 0.4, 0.6])
    categories = jnp.array([1.0])
    assert list(shape.degrees) == ["tp", "pp", "micro_batch"]

    def at(y):
        return loss(given.scenario, row, y, categories, jnp.asarray(20.0), jnp.asarray(4.0))

    towards = jnp.array(
        [0.0, 0.0, 0.0, 0.6, -0.8]
    )  # hardware alone: ceilings of a plan have slopes of their own making
    both = interpreted(lambda y: jax.jvp(at, (y,), (towards,)))
    _, slope = both(y)
    ahead, behind = both(y + 1e-5 * towards)[0], both(y - 1e-5 * towards)[0]
    assert abs(float(slope)) > 1e-2
    assert float(slope) == pytest.approx(float(ahead - behind) / 2e-5, rel=1e-4)


def test_shipped_networks_are_small_fit_their_studies_and_say_where_they_come_from():
    known = {guesser.family: guesser for guesser in shipped()}
    assert set(known) == set(FAMILIES)
    for name, guesser in known.items():
        assert (FOLDER / f"{name}.npz").stat().st_size < 300e3
        assert guesser.facts["kind"] == "fitted"
        assert guesser.facts["recipe"] == f"codesign train-amortised {name}"
        assert "held out" in regret_text(guesser.facts)
        assert not guesser.misfit(study_from_config(*FAMILIES[name].overrides).problem)
