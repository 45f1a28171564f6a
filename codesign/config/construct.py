"""From a resolved configuration to objects: our own recursive constructor.

A mapping with `_target_` becomes an object of the class it names, which must stand in a menu of this package; a
mapping without stays a mapping; `provenance` blocks are lifted out. Whatever is wrong is said with the full dotted
path of the key, its value, and what is allowed.
"""

import dataclasses
import functools
import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.earlier_names import current_target
from ..core.errors import ConfigError, suggestion
from ..core.fields import as_leaf, as_leaves, check_integer, check_ranges
from ..core.json_yaml import is_list, is_mapping
from ..core.units import unit_of
from .plugins import REFUSED, plugin_classes
from .written import plain_number

MENUS = (
    "model.hardware", "model.slices", "model.scaling_laws", "model.reliability", "model.carbon",
    "model.networks.topology", "model.networks.fabrics", "model.networks.collectives", "model.workloads",
    "model.ownership", "model.scenario", "study.design_space", "study.objective", "executors", "search",
)  # fmt: skip
FACTORIES = {
    "codesign.model.workloads.from_config_json",
    "codesign.model.networks.fabrics.topology_from_file",
    "codesign.model.networks.fabrics.on_slice",
    "codesign.search.Cases",
    "codesign.search.Uncertain",
}
"""Functions, and classes of other rooms, that may be named beside the classes of the menus."""

BESIDE = ("provenance", "aliases", "prefixes", "relatives", "silicon", "like", "_target_")
"""Keys that are no arguments: where the numbers come from; names, relatives and silicon of a device for calibration;
what a pool is like; the class."""

HYDRA_ONLY = ("_args_", "_partial_", "_convert_", "_recursive_")
UNITS = {
    "B/s": "bytes per second", "s/B": "seconds per byte", "J/B": "joules per byte", "J/FLOP": "joules per FLOP",
    "$/B": "dollars per byte", "$/J": "dollars per joule", "$/W": "dollars per watt", "W/B": "watts per byte",
    "b/s": "bits per second", "B": "bytes", "$": "dollars", "s": "seconds", "J": "joules", "W": "watts", "Hz": "hertz",
}  # fmt: skip
"""Units in words."""

NO_UNIT = "; no unit is known of this name: is it a metric? (`codesign list limits`)"
WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}


class Construction(NamedTuple):
    """Result of the constructor on a mapping: the objects by key, and path -> origin of each documented number."""

    objects: dict[str, Any]
    provenance: dict[str, dict[str, Any]]


def build(resolved: dict[str, Any]) -> Construction:
    """Construct every entry of a resolved configuration and check the ranges of its numbers.

    Raises:
        ConfigError: the first thing that is wrong.
    """
    provenance: dict[str, dict[str, Any]] = {}
    objects = {key: _construct(value, key, provenance) for key, value in resolved.items() if key != "provenance"}
    for key, value in objects.items():
        check_ranges(value, key)
    return Construction(objects, provenance)


@functools.cache
def targets() -> dict[str, Callable[..., Any]]:
    """Collect the classes and factories that a `_target_` may name, by their names in the menus of subpackages."""
    result: dict[str, Callable[..., Any]] = {}
    for menu in MENUS:
        name = f"codesign.{menu}"
        module = importlib.import_module(name)
        for key, value in vars(module).items():
            concrete = inspect.isclass(value) and dataclasses.is_dataclass(value) and not inspect.isabstract(value)
            ours = str(getattr(value, "__module__", "")).startswith(name)
            if (concrete and ours and not key.startswith("_")) or f"{name}.{key}" in FACTORIES:
                result[f"{name}.{key}"] = value
    return result | plugin_classes()


def resolve(target: Any, path: str) -> Callable[..., Any]:
    """The class (or listed function) that `_target_` names.

    Raises:
        ConfigError: it is none of this package's menus.
    """
    if isinstance(target, str) and target not in plugin_classes():
        target = current_target(target)
    if isinstance(target, str) and target in targets():
        return targets()[target]
    if str(target).split(".")[0] not in {target_name.split(".")[0] for target_name in targets()}:
        raise ConfigError(f"{path} = {target!r} is refused: {REFUSED}")
    raise ConfigError(f"{path} = {target!r} is no class that may be named{suggestion(str(target), targets())}")


@functools.cache
def parameters(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Arguments of a class or function by name."""
    return dict(inspect.signature(target).parameters)


def _construct(node: Any, path: str, provenance: dict[str, dict[str, Any]]) -> Any:
    if is_list(node):
        return tuple(_construct(value, f"{path}.{index}", provenance) for index, value in enumerate(node))
    if not is_mapping(node):
        if node == "???":
            raise ConfigError(f"{path} is missing: give it a value")
        return node
    origins: Any = node.get("provenance") or {}
    if not is_mapping(origins) or not all(is_mapping(entry) for entry in origins.values()):
        raise ConfigError(f"{path}.provenance must map names of numbers to their origin: {{source: ..., kind: ...}}")
    for key, entry in origins.items():
        provenance[f"{path}.{key}"] = entry
    for key in HYDRA_ONLY:
        if key in node:
            raise ConfigError(f"{path}.{key} = {node[key]!r} is refused: only _target_ and arguments may stand here")
    target = node.get("_target_")
    made = {key: _construct(value, f"{path}.{key}", provenance) for key, value in node.items() if key not in BESIDE}
    if target is None:
        return {key: value for key, value in made.items() if value is not None}
    return _call(resolve(target, f"{path}._target_"), made, path)


def _call(target: Callable[..., Any], arguments: dict[str, Any], path: str) -> Any:
    """Construct; a null means `not given` here as in plain mappings: what is merged over a file can take a key away."""
    names, name = parameters(target), getattr(target, "__name__", str(target))
    arguments = {key: value for key, value in arguments.items() if value is not None}
    for key, value in arguments.items():
        if key not in names:
            shown = f" = {value!r}" if isinstance(value, str | int | float) else ""
            raise ConfigError(f"{path}.{key}{shown}: {name} has no such argument{suggestion(str(key), names)}")
    for key, parameter in names.items():
        if key not in arguments and parameter.default is inspect.Parameter.empty:
            raise ConfigError(f"{path}.{key} is missing: {name} needs it")
    if isinstance(target, type) and dataclasses.is_dataclass(target):
        for field in dataclasses.fields(target):
            if field.name in arguments:
                hint = typing.get_type_hints(target)[field.name] if isinstance(field.type, str) else field.type
                _check_field(arguments[field.name], field, hint, f"{path}.{field.name}")
    try:
        return _made(target, arguments)
    except ConfigError as error:
        raise ConfigError(_below(path, str(error))) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {str(error).splitlines()[0]}") from error


def _made(target: Any, arguments: dict[str, Any]) -> Any:
    return target(**arguments)


def _below(path: str, text: str) -> str:
    """Message of a class under the key where it stands: `search.gap` of a part is `search.proof.gap`."""
    if text.startswith(path):
        return text
    first, _, rest = text.partition(".")
    if first != "search" or not path.startswith("search."):
        return f"{path}: {text}"
    return f"{path}.{rest.removeprefix(path.rpartition('.')[2] + '.')}"


def _check_field(value: Any, field: dataclasses.Field[Any], hint: Any, path: str) -> None:
    """Refuse a value that the field, of this type, cannot hold."""
    converter = field.metadata.get("converter")
    if converter is as_leaf or ("words" in field.metadata and not isinstance(value, str)):
        if isinstance(value, bool) and not field.metadata["high"] <= 1:
            raise ConfigError(f"{path} = {str(value).lower()} is not a plain number{_of_unit(field.name)}")
        _check_number(value, path, field.name)
        check_integer(path, field.metadata, value)
    elif converter is as_leaves:
        if not is_mapping(value):
            raise ConfigError(f"{path} = {value!r} must be a mapping of names to numbers")
        for key, entry in value.items():
            if isinstance(entry, bool):
                raise ConfigError(f"{path}.{key} = {str(entry).lower()} is not a plain number{_of_unit(field.name)}")
            _check_number(entry, f"{path}.{key}", field.name)
    elif converter is None or converter is tuple:
        _check_type(value, hint, path)


def _check_number(value: Any, path: str, name: str) -> None:
    if isinstance(value, bool | int | float):
        return
    kind = "a list" if is_list(value) else "a mapping" if is_mapping(value) else f"a {type(value).__name__}"
    shown = repr(value) if isinstance(value, str | None) else kind
    listed = is_list(value) and path.startswith("plan.")
    several = f"; values to choose from belong to space.{path}" if listed else ""
    raise ConfigError(f"{path} = {shown} is not a plain number{_of_unit(name)}{_hint(value, name)}{several}")


def _of_unit(name: str) -> str:
    """` of bytes per second`: the unit that a name carries, in words where it has some."""
    unit = unit_of(f"x.{name}")
    return f" of {UNITS.get(unit, unit)}" if unit else ""


THOUSANDS = re.compile(r"(\d+)[kK]")
COUNTED = ("", "count", "tokens")


def _hint(value: Any, name: str) -> str:
    """The plain number that a text with a unit stands for; of `4k` both that people mean."""
    thousands = THOUSANDS.fullmatch(value) if isinstance(value, str) else None
    if thousands and unit_of(f"x.{name}") in COUNTED:
        return f" (did you mean {int(thousands[1]) * 1000} or {int(thousands[1]) * 1024}?)"
    number = plain_number(value, unit_of(f"x.{name}")) if isinstance(value, str) else None
    return "" if number is None else f" (did you mean {number:.6g}?)"


def _check_type(value: Any, hint: Any, path: str) -> None:
    """Refuse a value that its annotation does not admit; annotations that say nothing checkable admit all."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is dict and is_mapping(value):
        for key, entry in value.items():
            _check_type(entry, inner[1], f"{path}.{key}")
    elif origin is tuple and is_list(value) and inner[1:] == (Ellipsis,):
        for index, entry in enumerate(value):
            _check_type(entry, inner[0], f"{path}.{index}")
    elif not _admits(value, hint, origin, inner):
        kind = "a mapping without _target_" if is_mapping(value) else type(value).__name__
        shown = f"{kind} {value!r}" if isinstance(value, str | int | float) or is_list(value) else kind
        name = path.rpartition(".")[2]
        hinted = NO_UNIT if path.startswith("objective.") and not unit_of(f"x.{name}") else _hint(value, name)
        number = f"{_of_unit(name)}, not {shown}{hinted}" if hint is float else f", not {shown}"
        raise ConfigError(f"{path} must be {_wanted(hint)}{number}")


def _admits(value: Any, hint: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    if origin in (typing.Union, types.UnionType):
        return any(_admits(value, option, typing.get_origin(option), typing.get_args(option)) for option in inner)
    if origin in (dict, tuple, list):
        return isinstance(value, dict if origin is dict else tuple)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if inspect.isclass(hint) else True


def _wanted(hint: Any) -> str:
    """Name of what a reader may write for a type."""
    if hint in WORDS:
        return WORDS[hint]
    if typing.get_origin(hint) is dict:
        values = WORDS.get(typing.get_args(hint)[1], "a value").split()[-1]
        return f"a mapping of names to {values}s"
    if typing.get_origin(hint) is tuple:
        return "a list"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join("null" if one is types.NoneType else _wanted(one) for one in typing.get_args(hint))
    if not inspect.isclass(hint):
        return str(hint).replace("typing.", "")
    classes = [name for name, cls in targets().items() if inspect.isclass(cls) and issubclass(cls, hint)]
    return " or ".join(classes) if classes else hint.__name__
