"""A small instance of every search of the menu."""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from contracts.problems import problem_of

from codesign.search import (
    AbstractSearch,
    Amortised,
    Blackbox,
    Cases,
    Certified,
    CmaEs,
    Descent,
    DifferentialEvolution,
    Gradient,
    Grid,
    GridThenGradient,
    GridThenProof,
    Inverse,
    Mix,
    Nsga2,
    Pareto,
    Random,
    Robust,
    Single,
    Tpe,
    Uncertain,
    Whole,
)
from codesign.search.amortised.guesser import Guesser, NetworkShape
from codesign.search.amortised.network import Network

VALUES = (100e9, 300e9, 900e9)  # of `up`; levels of the fine grid
FOLDER = tempfile.TemporaryDirectory()  # removed when the tests end
PROOF = Certified(gap=5e-3, pairs=64, block=64, explain=False)
WORST_AS_IT_STANDS = Cases({"price": Uncertain("cluster.accelerator.price_usd", (0.9, 1.0))})


def amortised() -> Amortised:
    """A network of random weights for the feasible problem: its answer is settled by gradients, and never proven."""
    problem = problem_of("feasible")
    shape, inputs = NetworkShape.of(problem.space), ("cluster.accelerator.price_usd",)
    parameters = Network(shape.outputs).init(jax.random.key(0), jnp.zeros(2))
    facts = {"goal": problem.objective.goal, "kind": "fitted", "seed": 0}
    limits = tuple(problem.objective.limits)
    guesser = Guesser("untrained", shape, inputs, limits, np.array([10.0, 13.0]), np.eye(2), parameters, facts)
    guesser.save(Path(FOLDER.name) / "untrained.npz")
    return Amortised(str(Path(FOLDER.name) / "untrained.npz"))


SEARCHES: dict[str, Callable[[], AbstractSearch]] = {
    "single": Single,
    "grid": lambda: Grid(block=64, keep=4),
    "certified": lambda: Certified(gap=1e-3, pairs=64, block=64),
    "grid_then_proof": lambda: GridThenProof(Grid(block=64, keep=4), PROOF),
    "whole": lambda: Whole({}, PROOF, {"up": VALUES}),
    "counted": lambda: Whole({"up": 100e9}, PROOF),
    "inverse": lambda: Inverse("up", proof=PROOF),
    "robust": lambda: Robust(WORST_AS_IT_STANDS, proof=PROOF),
    "mix": lambda: Mix({"one": {}}, gap=1e-2, pairs=64, block=64),
    "pareto": lambda: Pareto(levels=2, between=1, gap=5e-3, pairs=64, block=64),
    "grid_then_gradient": lambda: GridThenGradient(64, keep=4, candidates=2, descent=Descent(starts=2, steps=10)),
    "gradient": lambda: Gradient(starts=2, steps=10, near=2, candidates=2, rounds=3, block=64),
    "amortised": amortised,
    "random": lambda: Blackbox(Random(batch=64), evaluations=128),
    "tpe": lambda: Blackbox(Tpe(batch=4), evaluations=12),
    "cma_es": lambda: Blackbox(CmaEs(batch=8), evaluations=64),
    "nsga2": lambda: Blackbox(Nsga2(batch=8), evaluations=64),
    "differential_evolution": lambda: Blackbox(DifferentialEvolution(batch=8), evaluations=64),
}
"""Name -> a search; a new one adds a line here and a line to the table of expectations."""


@functools.cache
def search_of(name: str) -> AbstractSearch:
    """Made once."""
    return SEARCHES[name]()
