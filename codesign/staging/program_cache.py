"""Cache of traced programs on disk: programs and the structure of trees as JSON, under a hash of what made them."""

import base64
import contextlib
import dataclasses
import enum
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.extend.core.primitives
import numpy as np
from jax import lax

from ..core.disk_cache import cached_text, keeps
from ..core.disk_cache import key_of as key_of_text
from ..core.jax_typed import configured, make_jaxpr, unflatten
from ..core.jax_typed import flatten as flatten_tree
from ..core.json_yaml import dumps
from ..core.rowwise import ROWWISE
from ..core.smooth import NAMED
from ..jaxprs.program import DERIVED, Equation, Program, flatten, key_of
from .again import fingerprint

# Structures of trees as JSON: what a tree is made of, without its numbers.
#
# Only classes of this package are written and read back; what else a structure has in it, somebody's own class or a
# function, is refused, so that nothing is ever read that says less than what it was.


PACKAGE = __name__.partition(".")[0]


class NotCacheable(Exception):
    """Raised for what has no words here, or is no text that `structure_as_plain` wrote."""


class _Leaf:
    """Stands where a number is."""


def structure_as_plain(structure: Any) -> Any:
    """A structure as lists and words; two are equal exactly where these are.

    Raises:
        CannotBeKept: where something in it is not of this package and no plain Python.
    """
    leaves = [_Leaf() for _ in range(structure.num_leaves)]
    places = {id(leaf): index for index, leaf in enumerate(leaves)}
    return _plain(unflatten(structure, leaves), places)


def structure_from_plain(plain: Any) -> Any:
    """The structure that `structure_as_plain` told.

    Raises:
        CannotBeKept: it is none.
    """
    leaves: dict[int, _Leaf] = {}
    try:
        result, structure = flatten_tree(_read(plain, leaves))
    except (AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
        raise NotCacheable("no structure") from error
    if [id(leaf) for leaf in result] != [id(leaves.get(index)) for index in range(len(result))]:
        raise NotCacheable("leaves in another order")
    return structure


def _plain(node: Any, places: Mapping[int, int]) -> Any:
    """One node, what is below it included: a list that begins with what it is."""
    if id(node) in places:
        return ["leaf", places[id(node)]]
    if node is None or type(node) in (bool, int, str):
        return node
    if type(node) is float:
        return ["float", node.hex()]
    if type(node) in (list, tuple):
        return [type(node).__name__, *(_plain(part, places) for part in node)]
    if type(node) is dict:
        entries = cast(dict[Any, Any], node).items()
        return ["dict", *([_plain(key, places), _plain(value, places)] for key, value in entries)]
    kind = cast(type[Any], type(node))
    if not _is_ours(kind):
        raise NotCacheable(f"{kind.__name__} is not of this package")
    name = [kind.__module__, kind.__qualname__]
    if isinstance(node, tuple):
        return ["named", *name, *(_plain(part, places) for part in cast(tuple[Any, ...], node))]
    fields = [field.name for field in dataclasses.fields(node)] if dataclasses.is_dataclass(node) else None
    if fields is None or set(vars(node)) != set(fields):
        raise NotCacheable(f"{type(node).__name__} is more than its fields")
    return ["object", *name, *([field, _plain(getattr(node, field), places)] for field in fields)]


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == PACKAGE and "<" not in kind.__qualname__


def _read(plain: Any, leaves: dict[int, _Leaf]) -> Any:
    if not isinstance(plain, list):
        return plain
    what, *parts = cast(list[Any], plain)
    if what == "leaf":
        return leaves.setdefault(parts[0], _Leaf())
    if what == "float":
        return float.fromhex(parts[0])
    if what in ("list", "tuple"):
        read = [_read(part, leaves) for part in parts]
        return read if what == "list" else tuple(read)
    if what == "dict":
        return {_read(key, leaves): _read(value, leaves) for key, value in parts}
    kind, fields = _class(*parts[:2]), parts[2:]
    if what == "named" and issubclass(kind, tuple):
        return cast(Any, tuple).__new__(kind, [_read(part, leaves) for part in fields])
    if what == "object" and dataclasses.is_dataclass(kind):
        return _object(kind, fields, leaves)
    raise NotCacheable(f"no node: {what!r}")


def _object(kind: type, fields: Sequence[Any], leaves: dict[int, _Leaf]) -> Any:
    """An object as JAX puts one together: field by field, without its constructor."""
    result = cast(Any, object).__new__(kind)
    for name, value in fields:
        object.__setattr__(result, name, _read(value, leaves))
    return result


def _class(module: str, name: str) -> type:
    if module.partition(".")[0] != PACKAGE:
        raise NotCacheable(f"{module} is not of this package")
    result: Any = import_module(module)
    for part in name.split("."):
        result = getattr(result, part)
    if not isinstance(result, type):
        raise NotCacheable(f"{name} is no class")
    return result


# Cache on disk of what takes long to make, shared by all processes: JSON, under a hash of its origin.
#
# Beside what is asked for the hash has every module of this package, and JAX, NumPy and Python themselves. What has
# no words is not kept, nor is what does not come back as it was.


SOURCES = Path(__file__).parent.parent

Made = TypeVar("Made")


def made_once(
    kind: str,
    identity: Callable[[], Iterable[Any]],
    make: Callable[[], Made],
    as_plain: Callable[[Made], Any],
    from_plain: Callable[[Any], Made],
    most: int,
) -> Made:
    """Return what `make` gives, read from disk where an earlier process had it made of the same.

    Args:
        kind: folder.
        identity: lists and words that say what it is made of; asked where anything is kept at all.
        make: makes it.
        as_plain: says it in lists and words; it looks whether the same comes back.
        from_plain: what they say.
        most: texts that are kept.
    """
    if not keeps():
        return make()
    try:
        key = key_of_text([*(dumps(part) for part in identity()), *_depends_on()])
    except NotCacheable:
        return make()
    result: list[Made] = []

    def text() -> str:
        result.append(make())
        with contextlib.suppress(NotCacheable):
            return dumps(as_plain(result[-1]))
        return ""

    def is_readable(text: str) -> bool:
        with contextlib.suppress(NotCacheable):
            result.append(from_plain(_tree(text)))
        return bool(result)

    cached_text(kind, key, text, is_readable, most)
    return result[-1]


def _tree(text: str) -> Any:
    """Parse a text as JSON.

    Raises:
        CannotBeKept: nothing.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotCacheable("no text of ours") from error


def _depends_on() -> Iterator[str]:
    """Versions and sources that everything depends on that is made here."""
    yield from (version("jax"), version("jaxlib"), version("numpy"), version("equinox"), sys.version)
    yield str(configured("jax_enable_x64"))
    yield _modules()


@functools.cache
def _modules() -> str:
    """A hash of every module of this package."""
    files = sorted(SOURCES.rglob("*.py"))
    return key_of_text(part for file in files for part in (str(file.relative_to(SOURCES)), file.read_bytes()))


# Programs as JSON, so that the next process need not trace them.
#
# An equation is a primitive of JAX with its settings. Operations that carry a name of this package are written as
# their name and what they were asked of, and traced again when read. What has no words here is not kept: a text is
# kept only where it gives back the same program, equation by equation.


SETTINGS: dict[str, Any] = {
    kind.__name__: kind for kind in (lax.GatherDimensionNumbers, lax.GatherScatterMode, lax.RoundingMethod)
}
"""Kinds of settings that are more than numbers and words."""


def program_as_plain(program: Program) -> Any:
    """A program as lists and words.

    Raises:
        CannotBeKept: where they would not give back the same one.
    """
    plain_kinds, kinds = kinds_as_plain(program.equations)
    equations, places = list[Any](), dict[str, int]()
    for kind, equation in zip(kinds, program.equations, strict=True):
        where = places.setdefault(equation.where, len(places))
        equations.append([kind, equation.inputs, equation.outputs, where])
    constants = [[slot, value.dtype.str, value.shape, as_text(value)] for slot, value in program.constants.items()]
    plain = {
        "kinds": plain_kinds, "equations": equations, "places": list(places), "known": constants,
        "inputs": program.inputs, "outputs": program.outputs, "shapes": program.shapes,
        "types": [kind.str for kind in program.kinds],
    }  # fmt: skip
    if not _same(program_from_plain(plain), program):
        raise NotCacheable("another program comes back")
    return plain


def program_from_plain(plain: Any) -> Program:
    """The program that `program_as_plain` told.

    Raises:
        CannotBeKept: it is none.
    """
    try:
        kinds = kinds_from_plain(plain["kinds"])
        listed: list[tuple[int, list[int], list[int], int]] = plain["equations"]
        equations = [
            kinds[kind]._replace(inputs=tuple(inputs), outputs=tuple(outputs), traceback=plain["places"][where])
            for kind, inputs, outputs, where in listed
        ]
        constants = {
            slot: np.frombuffer(base64.b64decode(text), dtype=kind).reshape(shape)
            for slot, kind, shape, text in plain["known"]
        }
        shapes, types = [tuple(shape) for shape in plain["shapes"]], [np.dtype(kind) for kind in plain["types"]]
        return Program(equations, constants, tuple(plain["inputs"]), tuple(plain["outputs"]), shapes, types)
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError) as error:
        raise NotCacheable("no program") from error


def kinds_as_plain(equations: Sequence[Equation]) -> tuple[list[Any], list[int]]:
    """(what there is to do, which of it each equation does).

    Raises:
        CannotBeKept: something has no words.
    """
    places: dict[Any, int] = {}
    plain_kinds, kinds, first = list[Any](), list[int](), list[Equation]()
    for equation in equations:
        key = (key_of(equation, ()), _avals(equation))
        if key not in places:
            plain = _kind(equation)
            # An operation that was traced twice is one kind: the text must not tell how often JAX traced it.
            alike = (k for k, one in enumerate(plain_kinds) if one == plain and does_the_same(first[k], equation))
            places[key] = next(alike, len(plain_kinds))
            if places[key] == len(plain_kinds):
                plain_kinds.append(plain)
                first.append(equation)
        kinds.append(places[key])
    return plain_kinds, kinds


def kinds_from_plain(plain_kinds: Sequence[Any]) -> list[Equation]:
    """Equations that do this, of no slots.

    Raises:
        CannotBeKept: something is nothing of ours.
    """
    return [_equation(*each) for each in plain_kinds]


def equations_as_plain(program: Program) -> list[Any]:
    """Write what a program does in lists and words that no other has; without what is known and who wrote it.

    Raises:
        CannotBeKept: where they might be those of another.
    """
    plain_kinds, kinds = kinds_as_plain(program.equations)
    ours = dict(zip(kinds, program.equations, strict=True))
    if not all(does_the_same(ours[kind], equation) for kind, equation in enumerate(kinds_from_plain(plain_kinds))):
        raise NotCacheable("another operation comes back")
    used = sorted({*program.inputs, *(s for e in program.equations for s in (*e.inputs, *e.outputs))})
    each = [(kind, len(e.inputs), *e.inputs, *e.outputs) for kind, e in zip(kinds, program.equations, strict=True)]
    shapes = [[program.shapes[slot], program.kinds[slot].str] for slot in used]
    return [plain_kinds, as_text([n for e in each for n in e]), program.inputs, program.outputs, as_text(used), shapes]


def as_text(numbers: Sequence[int] | np.ndarray) -> str:
    """The bytes of an array, or of whole numbers."""
    return base64.b64encode(np.ascontiguousarray(numbers).tobytes()).decode()


def _same(one: Program, other: Program) -> bool:
    """True if two programs are the same, slot by slot."""
    if [(*e.inputs, -1, *e.outputs) for e in one.equations] != [(*e.inputs, -1, *e.outputs) for e in other.equations]:
        return False
    kinds = {(id(a.params), id(b.params)): (a, b) for a, b in zip(one.equations, other.equations, strict=True)}
    return (
        one._replace(equations=[], constants={}) == other._replace(equations=[], constants={})
        and [(slot, fingerprint(value)) for slot, value in one.constants.items()]
        == [(slot, fingerprint(value)) for slot, value in other.constants.items()]
        and all(does_the_same(*both) for both in kinds.values())
    )


def does_the_same(one: Equation, other: Equation) -> bool:
    """Named operations do where they were traced to the same text: that of a slope of its own is by its name ours."""
    if (one.name, one.primitive, one.inner is None) != (other.name, other.primitive, other.inner is None):
        return False
    if one.inner is other.inner and one.inner is not None:
        return True
    if one.inner is not None:
        return str(one.inner) == str(other.inner) and _avals(one) == _avals(other)
    return repr(one.params) == repr(other.params)


def _avals(equation: Equation) -> tuple[Any, ...]:
    """Shapes and types that a named operation was traced with."""
    if equation.inner is None:
        return ()
    return tuple((a.shape, a.dtype.str, bool(a.weak_type)) for a in equation.inner.in_avals)


def _kind(equation: Equation) -> list[Any]:
    """Operation of an equation: (a primitive's name, its settings), or (an operation's name, its module, arguments)."""
    if equation.inner is None:
        if _primitives().get(equation.name) is not equation.primitive:
            raise NotCacheable(f"{equation.name} is no primitive that can be found again")
        return [equation.name, [[name, _setting(value)] for name, value in equation.params.items()]]
    operation = NAMED.get(equation.name)
    if operation is None or equation.primitive.name in DERIVED or not operation.__module__.startswith(PACKAGE + "."):
        raise NotCacheable(f"{equation.name} is no operation of this package")
    return [equation.name, operation.__module__, _avals(equation)]


def _equation(name: str, *how: Any) -> Equation:
    """An equation that does this, of no slots."""
    if len(how) == 1:
        return Equation(name, _primitives()[name], {key: _value(value) for key, value in how[0]}, (), (), None, "")
    module, avals = how
    return _named(name, module, tuple((tuple(shape), kind, bool(weak)) for shape, kind, weak in avals))


@functools.lru_cache(maxsize=1024)
def _named(name: str, module: str, avals: tuple[tuple[tuple[int, ...], str, bool], ...]) -> Equation:
    """An operation that carries a name of this package, traced with these arguments."""
    if module.partition(".")[0] != PACKAGE:
        raise NotCacheable(f"{module} is not of this package")
    import_module(module)
    arguments = [jax.ShapeDtypeStruct(tuple(shape), np.dtype(kind), weak_type=weak) for shape, kind, weak in avals]
    (result,) = flatten(make_jaxpr(NAMED[name])(*arguments)).equations
    if result.name != name:
        raise NotCacheable(f"{name} is another operation")
    return result


def _setting(value: Any) -> Any:
    """A setting of a primitive, as a list that begins with what it is, or itself."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return ["float", value.hex()]
    if isinstance(value, np.dtype):
        return ["type", value.str]
    if isinstance(value, np.integer):
        number = cast(np.integer[Any], value)
        return ["integer", number.dtype.str, int(number)]
    name = type(value).__name__
    if SETTINGS.get(name) is type(value):
        return [name, *([value.name] if isinstance(value, enum.Enum) else map(_setting, value))]
    if type(value) is tuple:
        return ["tuple", *map(_setting, cast(tuple[Any, ...], value))]
    raise NotCacheable(f"a setting of {name}")


def _value(plain: Any) -> Any:
    """The setting that `_setting` told."""
    if not isinstance(plain, list):
        return plain
    what, *parts = cast(list[Any], plain)
    if what == "float":
        return float.fromhex(parts[0])
    if what == "type":
        return np.dtype(parts[0])
    if what == "integer":
        return np.dtype(parts[0]).type(parts[1])
    values = [_value(part) for part in parts]
    if what == "tuple":
        return tuple(values)
    kind = SETTINGS[what]
    return kind[values[0]] if issubclass(kind, enum.Enum) else kind(*values)


@functools.cache
def _primitives() -> dict[str, Any]:
    """Every primitive of JAX, and every row-wise function, by its name."""
    places: Sequence[Any] = (jax.extend.core.primitives, lax)
    result = [getattr(module, name) for module in places for name in dir(module) if name.endswith("_p")]
    return {
        primitive.name: primitive for primitive in (*result, *(row_primitive for row_primitive, _ in ROWWISE.values()))
    }


# A model traced once for all processes: the program is kept on disk, under a hash of all that it depends on.
#
# That is the structure of what is traced, shapes and types of its numbers, every module of this package, and JAX,
# NumPy and Python themselves. A trace that has anything of somebody else's in it is not kept, nor is one that does
# not come back as it was.


MAX_TEXTS = 256  # texts (disk: 0.2 MB each), more than all experiments have


class TracedProgram(NamedTuple):
    """A program, and of what its outputs are the leaves: `structure` with shapes and types `avals`."""

    program: Program
    structure: Any
    avals: tuple[jax.ShapeDtypeStruct, ...]


def traced_once(
    make: Callable[[], TracedProgram], structure: Any, avals: Sequence[jax.ShapeDtypeStruct]
) -> TracedProgram:
    """Return the trace that `make` gives, read from disk where an earlier process had it made of the same structure.

    Args:
        make: traces.
        structure: of what is traced.
        avals: shapes and types of its numbers.
    """
    return made_once(
        "programs",
        lambda: [[structure_as_plain(structure), _plain_avals(avals)]],
        make,
        _as_plain,
        _from_plain,
        MAX_TEXTS,
    )


def _as_plain(traced: TracedProgram) -> Any:
    structure = structure_as_plain(traced.structure)
    if structure_from_plain(structure) != traced.structure:
        raise NotCacheable("another structure comes back")
    return [program_as_plain(traced.program), structure, _plain_avals(traced.avals)]


def _from_plain(plain: Any) -> TracedProgram:
    try:
        program, structure, avals = plain
        avals_read = tuple(jax.ShapeDtypeStruct(tuple(shape), np.dtype(kind)) for shape, kind in avals)
    except (TypeError, ValueError) as error:
        raise NotCacheable("no trace") from error
    return TracedProgram(program_from_plain(program), structure_from_plain(structure), avals_read)


def _plain_avals(avals: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
    return [[aval.shape, aval.dtype.str] for aval in avals]
