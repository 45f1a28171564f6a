"""Instant answers: near the certified optimum even from an untrained guess; files, slopes, refusals."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_mix import problem

from codesign.commands.left_files import read_evidence, write_evidence
from codesign.config import study_from_config
from codesign.core.errors import ConfigError
from codesign.core.untrusted_io import checksum
from codesign.jaxprs.evaluator import interpreted
from codesign.search import Amortised, Certified, Progress
from codesign.search.amortised.amortised import Instant, InstantAnswer, regret_text, with_plans
from codesign.search.amortised.guesser import FOLDER, NetworkShape, TrainedPredictor, shipped
from codesign.search.amortised.network import Network
from codesign.search.amortised.training.families import FAMILIES, StudyFamily
from codesign.search.amortised.training.network_training import losses
from codesign.search.branch_and_bound.bounding import SearchEffort
from codesign.search.branch_and_bound.branch_and_bound import BranchAndBound
from codesign.search.branch_and_bound.oracle import Programme
from codesign.verification import VerifiedProblem, derivation_of, verify
from codesign.verification.derivation import claim_of
from codesign.verification.model_answers import CheckedModel


def untrained(given) -> TrainedPredictor:
    """A network of random weights for a problem."""
    shape, inputs = NetworkShape.of(given.space), ("workload.global_batch", "cluster.accelerator.price_usd")
    parameters = Network(shape.outputs).init(jax.random.key(0), jnp.zeros(2))
    facts = {"goal": given.objective.goal, "kind": "fitted", "seed": 0}
    centre, whiten = np.array([7.0, 10.0, 2.0]), np.array([[1.0, 0.0], [0.5, 1.0], [0.0, 2.0]])
    return TrainedPredictor("made_up", shape, inputs, ("time_s",), centre, whiten, parameters, facts)


def test_every_output_scores_the_plans_that_have_its_two_values():
    shape = NetworkShape({"tp": (1.0, 2.0, 4.0), "pp": (1.0, 3.0), "zero": (0.0, 1.0, 2.0)}, ("x", "y"))
    first = shape.outputs - len(shape.pairs[0])
    pairs, logits = shape.split(jnp.eye(shape.outputs)[first:])
    scores, has = shape.scores(np.asarray(pairs)), shape.has(shape.table).astype(bool)
    assert len(scores) == 8 + 3 * 2 + 3 * 3 + 2 * 3  # values, and pairs of values of different fields
    for row, one, other in zip(scores, *shape.pairs, strict=True):
        assert np.array_equal(row, has[:, one] & has[:, other])
    assert not logits.any()


def test_hardware_suits_a_plan_by_each_of_its_values():
    shape = NetworkShape({"tp": (1.0, 2.0), "pp": (1.0, 3.0)}, ("x", "y"))
    logits = np.zeros((5, 2))
    logits[0, 0], logits[2, 0], logits[3, 1] = 1.0, 2.0, -9.0  # all plans; tp = 2; pp = 1
    u = shape.suits(logits, shape.has(np.array([[1.0, 1.0], [2.0, 3.0]])))
    assert u == pytest.approx(
        np.array([[1.1 / (1 + np.exp(-1.0)) - 0.05, -0.05], [1.1 / (1 + np.exp(-3.0)) - 0.05, 0.5]]), abs=1e-3
    )


@pytest.mark.slow
def test_settling_mends_even_an_untrained_guess():
    given = problem()
    instant = Instant(given, NetworkShape.of(given.space))
    answer = InstantAnswer(untrained(given), instant, given).run()
    plans = given.space.plans(given.scenario)
    table = np.stack([plans[name] for name in instant.shape.fields], axis=-1)
    listed = with_plans(instant.oracle, given, table)
    proven = BranchAndBound(Programme(listed), SearchEffort(gap=1e-3), 0).run()
    assert proven.gap < 1.1e-3
    assert proven.upper - 1e-3 <= answer.upper <= proven.upper + 0.01
    assert (table == answer.row).all(axis=1).any()


@pytest.mark.slow
def test_file_keeps_everything(tmp_path):
    given, path = problem(), tmp_path / "made_up.npz"
    guesser = untrained(given)
    guesser.save(path)
    again = TrainedPredictor.load(path)
    assert (again.shape, again.inputs, again.limits, again.facts) == (
        guesser.shape, guesser.inputs, guesser.limits, guesser.facts,
    )  # fmt: skip
    for one, other in zip(jax.tree.leaves(guesser.guess(given)), jax.tree.leaves(again.guess(given)), strict=True):
        assert other == pytest.approx(np.asarray(one), abs=2e-2)


def kept(guesser: TrainedPredictor, path, **changes) -> None:
    """The file of a network with some of its arrays exchanged; None leaves one out."""
    guesser.save(path)
    with np.load(path) as result:
        arrays = {name: result[name] for name in result.files} | changes
    arrays = {name: x for name, x in arrays.items() if x is not None and name != "checksum"}
    np.savez_compressed(path, allow_pickle=False, checksum=np.array(checksum(arrays)), **arrays)


WRONG = {
    "leaf.params/Dense_2/kernel": np.zeros((7, 3)), "leaf.params/Dense_0/bias": None, "leaf.params/more": np.zeros(2),
    "centre": np.zeros(5), "whiten": np.zeros(3), "leaf.params/Dense_1/bias": np.full(192, np.nan),
    "told": np.array("[1]"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_weights_of_another_shape_are_refused_in_one_line(tmp_path, name):
    path = tmp_path / "made_up.npz"
    kept(untrained(problem()), path, **{name: WRONG[name]})
    with pytest.raises(ConfigError, match=r"search\.weights = '.*made_up\.npz' ") as told:
        TrainedPredictor.load(path)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("key", ["facts", "inputs", "hardware", "limits", "family"])
def test_weights_that_do_not_say_what_they_are_for_are_refused(tmp_path, key):
    path, guesser = tmp_path / "made_up.npz", untrained(problem())
    guesser.save(path)
    with np.load(path) as result:
        told = json.loads(str(result["told"]))
    kept(guesser, path, told=np.array(json.dumps({name: x for name, x in told.items() if name != key})))
    with pytest.raises(ConfigError, match=f"it says no {key}"):
        TrainedPredictor.load(path)


DAMAGE = {
    "empty": lambda whole: b"",
    "text": lambda whole: b"not a checkpoint\n",
    "cut short": lambda whole: whole[: len(whole) // 2],
    "one array": lambda whole: b"\x93NUMPY\x01\x00" + whole[:200],
    "a zip of something else": lambda whole: whole.replace(b"told", b"tale"),
    "bits that fell over": lambda whole: whole[:2000] + bytes(x ^ 255 for x in whole[2000:4000]) + whole[4000:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_refused_in_one_line(tmp_path, damage):
    path = tmp_path / "made_up.npz"
    untrained(problem()).save(path)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(ConfigError, match="is damaged or holds no weights: give a file") as told:
        TrainedPredictor.load(path)
    assert "\n" not in str(told.value)


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
    with pytest.raises(ConfigError, match="is no file"):
        Amortised("nowhere.npz").refuse(given)


@pytest.mark.slow
def test_slope_of_the_training_loss_against_differences():
    given = problem()
    family = StudyFamily("made_up", (), ({"workload.global_batch": 1024.0},), {}, {}, {"time_s": (5.0, 9.0, False)})
    shape = NetworkShape.of(given.space)
    loss = losses(family, given, shape)
    row, u = jnp.array([1024.0, 6.0]), jnp.array([0.4, 0.6])
    plan = jnp.array([{"tp": 4.0, "pp": 8.0, "micro_batch": 2.0}.get(name, 1.0) for name in shape.fields])

    def at(u):
        return loss(given.scenario, row, plan, u)

    towards = jnp.array([0.6, -0.8])
    both = interpreted(lambda u: jax.jvp(at, (u,), (towards,)))
    _, slope = both(u)
    ahead, behind = both(u + 1e-5 * towards)[0], both(u - 1e-5 * towards)[0]
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


@pytest.mark.slow
def test_a_proven_answer_is_verified_and_an_unproven_one_claims_nothing(tmp_path):
    given, path = problem(), tmp_path / "made_up.npz"
    untrained(given).save(path)
    proof = Certified(gap=1e-2, convexity_samples=8, batch_size=64, explain=False)
    told: list[Progress] = []
    trace = Amortised(str(path), proof).run(given, 0, told.append)
    assert trace.certificate.certified, trace.claim
    assert told[-1].best == pytest.approx(trace.certificate.best)  # dollars, not their log
    assert told[-1].proven
    write_evidence(trace.evidence, tmp_path)
    stored = read_evidence(tmp_path)
    assert stored is not None
    certificate, objective = derivation_of(*stored), given.objective
    asked = VerifiedProblem(given.scenario, given.space, objective, objective.goal, targets=())
    model = CheckedModel(asked)
    answer = verify(asked, certificate.claim, certificate, 256, 0, model=model)
    assert answer.verified, answer.line
    assert answer.line.startswith("verified: no usd_per_million_tokens below")
    assert certificate.claim.bound is not None
    claim = dataclasses.replace(certificate.claim, bound=certificate.claim.bound * 1.01, best=None, gap=None, design={})
    lie = dataclasses.replace(certificate, claim=claim)
    assert "its bound is" in verify(asked, claim, lie, 0, 0, model=model).line

    alone = Amortised(str(path)).run(given, 0)
    claim = claim_of(alone.certificate.claimed())
    assert alone.evidence is None
    assert claim.best == pytest.approx(asked.priced({name: float(x[0]) for name, x in alone.points.items()})[0], 1e-9)
    line = verify(asked, claim, None, 256, 0, model=model).line
    assert line.startswith("nothing claimed to verify: the search proves nothing, what it found is as it says")
