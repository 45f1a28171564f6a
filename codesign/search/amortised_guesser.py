"""The network of `amortised` with what it was trained on: what it is asked, what it says, and its file."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import ConfigError
from ..fields import get_path
from ..space import DesignSpace
from .base import Problem

DEGREES = ("tp", "pp", "cp", "ep", "virtual_stages", "micro_batch", "row_shards", "column_shards")
"""Fields of a plan that are relaxed to real numbers, in the logarithm; of the others each value is a category."""

FOLDER = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class Shape:
    """What a network's outputs mean: its degrees and categories with their values, and the hardware variables."""

    degrees: dict[str, tuple[float, ...]]
    categories: dict[str, tuple[float, ...]]
    hardware: tuple[str, ...]

    @classmethod
    def of(cls, space: DesignSpace) -> "Shape":
        """Of a space."""
        lists = {name: tuple(sorted(map(_level, values))) for name, values in space.plan.items()}
        degrees = {name: values for name, values in lists.items() if name in DEGREES}
        return cls(degrees, {n: v for n, v in lists.items() if n not in degrees}, space.names)

    @property
    def outputs(self) -> int:
        """Width of the last layer."""
        return len(self.degrees) + len(self.hardware) + sum(map(len, self.categories.values()))

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the plan, in the order of tables."""
        return (*self.degrees, *self.categories)

    def split(self, outputs: Any) -> tuple[Any, dict[str, Any], Any]:
        """Outputs -> ([..., degrees] logs, category -> logits, [..., hardware] coordinates)."""
        n, m = len(self.degrees), len(self.hardware)
        low = jnp.log(jnp.array([values[0] for values in self.degrees.values()]))
        high = jnp.log(jnp.array([values[-1] for values in self.degrees.values()]))
        unit = jnp.clip(1.1 * jax.nn.sigmoid(outputs[..., : n + m]) - 0.05, 0.0, 1.0)
        logits, first = {}, n + m
        for name, values in self.categories.items():
            logits[name] = outputs[..., first : first + len(values)]
            first += len(values)
        return low + (high - low) * unit[..., :n], logits, unit[..., n:]


def _level(value: Any) -> float:
    from ..workloads.plan import recompute_level

    return float(recompute_level(value))


@dataclass(frozen=True)
class Guesser:
    """A trained network with what it was trained on.

    inputs: paths of the scenario and names of limits whose logs are its features; scale: their mean and spread; facts:
    seed, recipe and measured regret.
    """

    family: str
    shape: Shape
    inputs: tuple[str, ...]
    limits: tuple[str, ...]
    scale: Float[np.ndarray, "2 features"]
    parameters: Any
    facts: dict[str, Any]

    def features(self, problem: Problem) -> Float[np.ndarray, " features"]:
        """Logs of the inputs, scaled."""
        values = [float(get_path(problem.scenario, path)) for path in self.inputs]
        values += [float(problem.objective.limits[name]) for name in self.limits]
        return (np.log(values) - self.scale[0]) / self.scale[1]

    def guess(self, problem: Problem) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
        """(logs of degrees, category -> logits, coordinates of the hardware)."""
        from .amortised_network import Network  # Flax takes a second to import: only for those who ask

        outputs = Network(self.shape.outputs).apply(self.parameters, jnp.asarray(self.features(problem)))
        degrees, logits, u = self.shape.split(outputs)
        return np.asarray(degrees), {name: np.asarray(v) for name, v in logits.items()}, np.asarray(u, dtype=float)

    def misfit(self, problem: Problem) -> str:
        """Why the network says nothing about a study; empty where it does."""
        if Shape.of(problem.space) != self.shape:
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
        leaves = {f"leaf.{name}": leaf for name, leaf in flat(self.parameters)}
        told = {
            "family": self.family, "degrees": self.shape.degrees, "categories": self.shape.categories,
            "hardware": self.shape.hardware, "inputs": self.inputs, "limits": self.limits, "facts": self.facts,
        }  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, allow_pickle=False, told=np.array(json.dumps(told)), scale=self.scale, **leaves)

    @classmethod
    def load(cls, path: Path) -> "Guesser":
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as found:
            told = json.loads(str(found["told"]))
            tree: dict[str, Any] = {}
            for name in found.files:
                if name.startswith("leaf."):
                    _put(tree, name.removeprefix("leaf.").split("/"), found[name].astype(np.float32))
            lists = [{k: tuple(v) for k, v in told[part].items()} for part in ("degrees", "categories")]
            shape = Shape(lists[0], lists[1], tuple(told["hardware"]))
            return cls(
                told["family"], shape, tuple(told["inputs"]), tuple(told["limits"]), found["scale"], tree, told["facts"]
            )


def flat(tree: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Names and values of a tree of mappings."""
    for key, value in tree.items():
        here = f"{path}/{key}" if path else key
        if hasattr(value, "items"):
            yield from flat(value, here)
        else:
            yield here, np.asarray(value, dtype=np.float16)


def _put(tree: dict[str, Any], keys: list[str], value: np.ndarray) -> None:
    for key in keys[:-1]:
        tree = tree.setdefault(key, {})
    tree[keys[-1]] = value


def shipped() -> list[Guesser]:
    """The networks that come with the package."""
    return [Guesser.load(path) for path in sorted(FOLDER.glob("*.npz"))]
