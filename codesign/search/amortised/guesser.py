"""The network of `amortised` with what it was trained on: what it is asked, what it says, and its file."""

import functools
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...core.errors import ConfigError
from ...core.fields import get_path
from ...core.jax_typed import asarray, jit, zeros
from ...study.design_space import DesignSpace
from ..base import Problem
from .file import check_numbers, read, write

FOLDER = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class NetworkShape:
    """Meaning of a network's outputs: plan fields with their values, and hardware variables.

    A plan's score is a sum over its values and pairs of its values, each with an output of its own; the hardware that
    suits it a sum over its values. (Demands on memory and links are products of degrees: sums in the logarithm.)
    """

    plan: dict[str, tuple[float, ...]]
    hardware: tuple[str, ...]

    @classmethod
    def of(cls, space: DesignSpace) -> "NetworkShape":
        """Return the shape of a space's network."""
        return cls(
            {name: tuple(sorted(_level(name, one) for one in values)) for name, values in space.plan.items()},
            space.names,
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the plan, in the order of tables."""
        return tuple(self.plan)

    @functools.cached_property
    def table(self) -> Float[np.ndarray, "plans fields"]:
        """Every combination of values."""
        return np.array(list(itertools.product(*self.plan.values())))

    @functools.cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Values whose pairs have a score, numbered over all fields; a value with itself is its own."""
        owner = np.repeat(np.arange(len(self.plan)), [len(values) for values in self.plan.values()])
        value = np.arange(len(owner))
        one, other = np.nonzero((owner[:, None] < owner) | (value[:, None] == value))
        return one, other

    @property
    def outputs(self) -> int:
        """Width of the last layer."""
        return len(self.hardware) * (1 + self.values) + len(self.pairs[0])

    @property
    def values(self) -> int:
        """Values of all fields together."""
        return sum(map(len, self.plan.values()))

    def has(self, table: Float[np.ndarray, "plans fields"]) -> Float[np.ndarray, "plans values"]:
        """1 where a plan has a value."""
        columns = zip(table.T, self.plan.values(), strict=True)
        result = [column[:, None] == np.array(values) for column, values in columns]
        return np.concatenate([np.zeros((len(table), 0)), *result], axis=1).astype(np.float32)

    def split(self, outputs: Any) -> tuple[Any, Any]:
        """Outputs -> ([..., values, values] scores of pairs, [..., 1 + values, hardware] logits of coordinates)."""
        shape, count = outputs.shape[:-1], len(self.hardware) * (1 + self.values)
        pairs = zeros((*shape, self.values, self.values), outputs.dtype).at[..., *self.pairs].set(outputs[..., count:])
        return pairs, outputs[..., :count].reshape(*shape, 1 + self.values, len(self.hardware))

    def scores(self, pairs: Float[np.ndarray, "*batch values values"]) -> Float[np.ndarray, "*batch plans"]:
        """Scores of every combination: plans are products of two halves, so only cross terms take a sum per plan."""
        first, second = self._halves
        a, b = first.shape[1], second.shape[1]
        inner = [((half @ part) * half).sum(axis=-1) for half, part in (
            (first, pairs[..., :a, :a]), (second, pairs[..., a:, a:])
        )]  # fmt: skip
        cross = first @ pairs[..., :a, a : a + b] @ second.T
        return (inner[0][..., :, None] + inner[1][..., None, :] + cross).reshape(*pairs.shape[:-2], -1)

    def suits(self, logits: Any, has: Any) -> Any:
        """Coordinates of the hardware for plans [..., plans, values], a little beyond the cube to reach its faces."""
        return 1.1 * jax.nn.sigmoid(logits[..., :1, :] + has @ logits[..., 1:, :]) - 0.05

    @functools.cached_property
    def _halves(self) -> tuple[np.ndarray, np.ndarray]:
        items, middle = list(self.plan.items()), (len(self.plan) + 1) // 2
        first, second = (NetworkShape(dict(half), ()) for half in (items[:middle], items[middle:]))
        return first.has(first.table), second.has(second.table)


def _level(name: str, value: Any) -> float:
    from ...model.workloads.plan_fields import plan_value

    return float(plan_value(name, value))


@dataclass(frozen=True)
class Guesser:
    """A trained network with what it was trained on.

    inputs: paths of the scenario and names of limits whose logs are its features; centre and whiten: what makes them
    uncorrelated; facts: seed, recipe and measured regret.
    """

    family: str
    shape: NetworkShape
    inputs: tuple[str, ...]
    limits: tuple[str, ...]
    centre: Float[np.ndarray, " logs"]
    whiten: Float[np.ndarray, "logs features"]
    parameters: Any
    facts: dict[str, Any]

    def features(self, problem: Problem) -> Float[np.ndarray, " features"]:
        """Logs of the inputs, uncorrelated."""
        values = [float(get_path(problem.scenario, path)) for path in self.inputs]
        values += [float(problem.objective.limits[name]) for name in self.limits]
        return (np.log(values) - self.centre) @ self.whiten

    def guess(self, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        """(scores of all plans, logits of their hardware: see `Shape.suits`)."""
        features = asarray(self.features(problem), dtype=jnp.float32)
        pairs, logits = map(np.asarray, self._network(self.parameters, features))
        return self.shape.scores(pairs), logits

    @functools.cached_property
    def _network(self) -> Any:
        from .network import Network  # Flax takes a second to import: only for those who ask

        network = cast(Any, Network(self.shape.outputs))

        def outputs(parameters: Any, features: Any) -> tuple[Any, Any]:
            return self.shape.split(network.apply(parameters, features))

        return jit(outputs)

    def misfit(self, problem: Problem) -> str:
        """Reason why the network does not apply to a study; empty if it does."""
        if NetworkShape.of(problem.space) != self.shape:
            return "its plan fields, their values or hardware variables differ"
        if tuple(sorted(problem.objective.limits)) != self.limits or problem.objective.goal != self.facts["goal"]:
            return f"its goal or limits differ ({self.facts['goal']} under {', '.join(self.limits)})"
        for path in self.inputs:
            try:
                get_path(problem.scenario, path)
            except ConfigError:
                return f"it has no {path}"
        return ""

    def save(self, path: Path) -> None:
        """One compressed file."""
        told = {
            "family": self.family, "plan": self.shape.plan, "hardware": self.shape.hardware, "inputs": self.inputs,
            "limits": self.limits, "facts": self.facts,
        }  # fmt: skip
        write(path, told, self.centre, self.whiten, self.parameters)

    @classmethod
    def load(cls, path: Path) -> "Guesser":
        """Read what `save` wrote.

        Raises:
            ConfigError: a file that is damaged, of an earlier version, no weights, or of a network of another shape.
        """
        told, centre, whiten, parameters = read(path)
        shape = NetworkShape({name: tuple(v) for name, v in told["plan"].items()}, tuple(told["hardware"]))
        inputs, limits = tuple(told["inputs"]), tuple(told["limits"])
        check_numbers(path, len(inputs) + len(limits), shape.outputs, (centre, whiten, parameters))
        return cls(told["family"], shape, inputs, limits, centre, whiten, parameters, told["facts"])


def shipped() -> list[Guesser]:
    """The networks that come with the package."""
    return [Guesser.load(path) for path in sorted(FOLDER.glob("*.npz"))]
