"""A small instance of every search of the menu: its own example, and variants that have expectations of their own."""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from contracts.problems import problem_of

from codesign.search import AbstractSearch, Amortised, Blackbox, Certified, Integer
from codesign.search.amortised.guesser import NetworkShape, TrainedPredictor
from codesign.search.amortised.network import Network
from codesign.search.blackbox.peers import AbstractBlackboxOptimizer
from codesign.testing import members

VALUES = (100e9, 300e9, 900e9)  # of `up`; levels of the fine grid
FOLDER = tempfile.TemporaryDirectory()  # removed when the tests end


def amortised() -> Amortised:
    """A network of random weights for the feasible problem: its answer is settled by gradients, and never proven."""
    problem = problem_of("feasible")
    shape, inputs = NetworkShape.of(problem.space), ("cluster.accelerator.price_usd",)
    parameters = Network(shape.outputs).init(jax.random.key(0), jnp.zeros(2))
    facts = {"goal": problem.objective.goal, "kind": "fitted", "seed": 0}
    limits = tuple(problem.objective.limits)
    guesser = TrainedPredictor("untrained", shape, inputs, limits, np.array([10.0, 13.0]), np.eye(2), parameters, facts)
    guesser.save(Path(FOLDER.name) / "untrained.npz")
    return Amortised(str(Path(FOLDER.name) / "untrained.npz"))


def peers() -> dict[str, type[AbstractBlackboxOptimizer]]:
    """The searches of others, each run by `Blackbox`."""
    return {cls.__name__: cls for cls in AbstractBlackboxOptimizer.__subclasses__()}


def snake(name: str) -> str:
    """`GridThenProof` is `grid_then_proof`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def of_peer(cls: type[AbstractBlackboxOptimizer]) -> Blackbox:
    """Few designs, of the slow one very few."""
    return Blackbox(cls.example(), evaluations={"Tpe": 12, "Random": 128}.get(cls.__name__, 64))


SEARCHES: dict[str, Callable[[], AbstractSearch]] = {
    snake(name): functools.partial(cls.example, problem_of("feasible"))
    for name, cls in members("search").items()
    if cls is not Blackbox
}
SEARCHES |= {snake(name): functools.partial(of_peer, cls) for name, cls in peers().items()}
SEARCHES |= {
    "amortised": amortised,
    "counted": lambda: Integer({"up": 100e9}, Certified(gap=5e-3, convexity_samples=64, batch_size=64, explain=False)),
}
"""Name -> a search; a new one is here by its `example`, and gets a line in the table of expectations."""


@functools.cache
def search_of(name: str) -> AbstractSearch:
    """Made once."""
    return SEARCHES[name]()
