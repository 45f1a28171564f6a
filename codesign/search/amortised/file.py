"""The file of a trained network: written by training, and read with distrust.

A file may be cut short, of another program, of another version or made for another network; whatever is wrong with it
is one line for the user, before anything is asked of the network.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from ...core.atomic_files import make_folder, writing
from ...core.errors import ConfigError
from ...core.jax_typed import shapes_of, zeros
from ...core.json_io import dumps
from ...core.untrusted_io import checksum, read_arrays
from ...core.yaml_io import is_list, is_mapping

TOLD = {"family": str, "plan": dict, "hardware": list, "inputs": list, "limits": list, "facts": dict}
"""Header fields of a file and their types."""

MOST_BYTES = 2**30  # of a file; networks of the packaged studies have 2 MiB

LEAF = "leaf."


def write(path: Path, told: dict[str, Any], centre: np.ndarray, whiten: np.ndarray, parameters: Any) -> None:
    """One compressed file: words, what makes the features, the parameters in half precision."""
    leaves = {f"{LEAF}{name}": np.asarray(leaf, dtype=np.float16) for name, leaf in flat(parameters).items()}
    make_folder(path.parent)
    arrays = {"told": np.array(dumps(told)), "centre": np.asarray(centre), "whiten": np.asarray(whiten)} | leaves
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
        told = json.loads(str(arrays["told"]))
        centre, whiten = (np.asarray(arrays[name], dtype=float) for name in ("centre", "whiten"))
        leaves = {n.removeprefix(LEAF): a.astype(np.float32) for n, a in arrays.items() if n.startswith(LEAF)}
        tree = _traversal().unflatten_dict(leaves, sep="/")
    except (ConfigError, ValueError, TypeError, KeyError, AttributeError):
        raise ConfigError(
            f"search.weights = {str(path)!r} is damaged or holds no weights:"
            " give a file that codesign train-amortised wrote"
        ) from None
    _check_told(path, told)
    return told, centre, whiten, tree


def check_numbers(path: Path, features: int, outputs: int, arrays: tuple[np.ndarray, np.ndarray, Any]) -> None:
    """Arrays must be those of a network of so many inputs and outputs, and numbers.

    Raises:
        ConfigError: the first array that is missing, of another shape, or not finite.
    """
    from .network import Network  # Flax takes a second to import: only for those who ask

    centre, whiten, parameters = arrays
    kept = whiten.shape[-1] if whiten.ndim == 2 else 0
    made = shapes_of(cast(Any, Network(outputs)).init, jax.random.key(0), zeros(max(kept, 1)))
    wanted = {"centre": (features,), "whiten": (features, kept)} | {
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


def _check_told(path: Path, told: Any) -> None:
    """The words must be all there, each of its kind."""
    if not is_mapping(told):
        raise _unfit(path, "what it says of itself is no mapping")
    if "plan" not in told:
        raise ConfigError(f"{path} is of an earlier version: train it again, codesign train-amortised")
    for name, kind in TOLD.items():
        if not isinstance(told.get(name), kind):
            raise _unfit(path, f"it says no {name}")
    if not isinstance(told["facts"].get("goal"), str):
        raise _unfit(path, "it says no goal")
    if not all(_numbers(values) for values in told["plan"].values()):
        raise _unfit(path, "values of its plan fields are no numbers")
    if not all(isinstance(name, str) for key in ("hardware", "inputs", "limits") for name in told[key]):
        raise _unfit(path, "names of its hardware, inputs or limits are no words")


def _numbers(values: Any) -> bool:
    return is_list(values) and bool(values) and all(isinstance(value, int | float) for value in values)


def _unfit(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"search.weights = {str(path)!r} fits no network: {why}; train it again, codesign train-amortised"
    )
