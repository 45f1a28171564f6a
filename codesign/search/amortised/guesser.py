"""The network of `amortised` with what it was trained on: what it is asked, what it says, and its file."""

import functools
import itertools
import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...core.atomic_files import make_folder, writing
from ...core.errors import ConfigError
from ...core.fields import get_path
from ...core.jax_typed import asarray, jit, shapes_of, zeros
from ...core.json_yaml import dumps, is_list, is_mapping
from ...core.untrusted_io import checksum, read_arrays
from ...study.design_space import DesignSpace
from ..base import Problem

# The file of a trained network: written by training, and read with distrust.
#
# A file may be cut short, of another program, of another version or made for another network; whatever is wrong with
# it is one line for the user, before anything is asked of the network.


HEADER_TYPES = {"family": str, "plan": dict, "hardware": list, "inputs": list, "limits": list, "facts": dict}
"""Header fields of a file and their types."""

MOST_BYTES = 2**30  # of a file; networks of the packaged studies have 2 MiB

LEAF = "leaf."


def write(path: Path, header: dict[str, Any], centre: np.ndarray, whiten: np.ndarray, parameters: Any) -> None:
    """One compressed file: words, what makes the features, the parameters in half precision."""
    leaves = {f"{LEAF}{name}": np.asarray(leaf, dtype=np.float16) for name, leaf in flat(parameters).items()}
    make_folder(path.parent)
    arrays = {"told": np.array(dumps(header)), "centre": np.asarray(centre), "whiten": np.asarray(whiten)} | leaves
    with writing(path) as file:
        np.savez_compressed(file, allow_pickle=False, checksum=np.array(checksum(arrays)), **arrays)


def read(path: Path) -> tuple[dict[str, Any], np.ndarray, np.ndarray, Any]:
    """(words, centre, whiten, parameters) as written.

    Raises:
        ConfigError: it cannot be read, is of an earlier version, or is not whole.
    """
    try:
        arrays = read_arrays(path, str(path), most=MOST_BYTES)
        noted = str(arrays.pop("checksum", ""))
        if noted != checksum(arrays):
            raise ValueError("its checksum is not that of its numbers")
        header = json.loads(str(arrays["told"]))
        centre, whiten = (np.asarray(arrays[name], dtype=float) for name in ("centre", "whiten"))
        leaves = {n.removeprefix(LEAF): a.astype(np.float32) for n, a in arrays.items() if n.startswith(LEAF)}
        tree = _traversal().unflatten_dict(leaves, sep="/")
    except (ConfigError, ValueError, TypeError, KeyError, AttributeError):
        raise ConfigError(
            f"search.weights = {str(path)!r} is damaged or holds no weights:"
            " give a file that codesign train-amortised wrote"
        ) from None
    _check_header(path, header)
    return header, centre, whiten, tree


def check_numbers(path: Path, features: int, outputs: int, arrays: tuple[np.ndarray, np.ndarray, Any]) -> None:
    """Arrays must be those of a network of so many inputs and outputs, and numbers.

    Raises:
        ConfigError: the first array that is missing, of another shape, or not finite.
    """
    from .network import Network  # Flax takes a second to import: only for those who ask

    centre, whiten, parameters = arrays
    components = whiten.shape[-1] if whiten.ndim == 2 else 0
    made = shapes_of(cast(Any, Network(outputs)).init, jax.random.key(0), zeros(max(components, 1)))
    wanted = {"centre": (features,), "whiten": (features, components)} | {
        name: leaf.shape for name, leaf in flat(made).items()
    }
    result = {"centre": centre, "whiten": whiten} | flat(parameters)
    for name in sorted(wanted.keys() | result.keys()):
        has, needs = np.shape(result[name]) if name in result else None, wanted.get(name)
        if has != needs:
            raise _unfit(path, f"{name} has shape {has or 'none'}, this network needs {needs or 'none'}")
        if not np.isfinite(result[name]).all():
            raise _unfit(path, f"{name} holds numbers that are not finite")


def flat(tree: Any) -> dict[str, Any]:
    """Names and values of a tree of mappings."""
    return _traversal().flatten_dict(tree, sep="/")


def _traversal() -> Any:
    """Flax takes a second to import: only for those who ask."""
    return import_module("flax.traverse_util")


def _check_header(path: Path, header: Any) -> None:
    """The words must be all there, each of its kind."""
    if not is_mapping(header):
        raise _unfit(path, "what it says of itself is no mapping")
    if "plan" not in header:
        raise ConfigError(f"{path} is of an earlier version: train it again, codesign train-amortised")
    for name, kind in HEADER_TYPES.items():
        if not isinstance(header.get(name), kind):
            raise _unfit(path, f"it says no {name}")
    if not isinstance(header["facts"].get("goal"), str):
        raise _unfit(path, "it says no goal")
    if not all(_numbers(values) for values in header["plan"].values()):
        raise _unfit(path, "values of its plan fields are no numbers")
    if not all(isinstance(name, str) for key in ("hardware", "inputs", "limits") for name in header[key]):
        raise _unfit(path, "names of its hardware, inputs or limits are no words")


def _numbers(values: Any) -> bool:
    return is_list(values) and bool(values) and all(isinstance(value, int | float) for value in values)


def _unfit(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"search.weights = {str(path)!r} fits no network: {why}; train it again, codesign train-amortised"
    )


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
class TrainedPredictor:
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
        header = {
            "family": self.family, "plan": self.shape.plan, "hardware": self.shape.hardware, "inputs": self.inputs,
            "limits": self.limits, "facts": self.facts,
        }  # fmt: skip
        write(path, header, self.centre, self.whiten, self.parameters)

    @classmethod
    def load(cls, path: Path) -> "TrainedPredictor":
        """Read what `save` wrote.

        Raises:
            ConfigError: a file that is damaged, of an earlier version, no weights, or of a network of another shape.
        """
        header, centre, whiten, parameters = read(path)
        shape = NetworkShape({name: tuple(v) for name, v in header["plan"].items()}, tuple(header["hardware"]))
        inputs, limits = tuple(header["inputs"]), tuple(header["limits"])
        check_numbers(path, len(inputs) + len(limits), shape.outputs, (centre, whiten, parameters))
        return cls(header["family"], shape, inputs, limits, centre, whiten, parameters, header["facts"])


def shipped() -> list[TrainedPredictor]:
    """The networks that come with the package."""
    return [TrainedPredictor.load(path) for path in sorted(FOLDER.glob("*.npz"))]
