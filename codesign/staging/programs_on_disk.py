"""Programs as JSON, so that the next process need not trace them.

An equation is a primitive of JAX with its settings. Operations that carry a name of this package are written as their
name and what they were asked of, and traced again when read. What has no words here is not kept: a text is kept only
where it gives back the same program, equation by equation.
"""

import base64
import enum
import functools
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import jax
import jax.extend.core.primitives
import numpy as np
from jax import lax

from ..core.jax_typed import make_jaxpr
from ..core.smooth import NAMED
from ..jaxprs.program import DERIVED, Equation, Program, flatten, key_of
from .again import told_apart
from .trees_on_disk import PACKAGE, CannotBeKept

SETTINGS: dict[str, Any] = {
    kind.__name__: kind for kind in (lax.GatherDimensionNumbers, lax.GatherScatterMode, lax.RoundingMethod)
}
"""Kinds of settings that are more than numbers and words."""


def program_as_plain(program: Program) -> Any:
    """A program as lists and words.

    Raises:
        CannotBeKept: where they would not give back the same one.
    """
    told, kinds = kinds_as_plain(program.equations)
    equations, places = list[Any](), dict[str, int]()
    for kind, equation in zip(kinds, program.equations, strict=True):
        where = places.setdefault(equation.where, len(places))
        equations.append([kind, equation.inputs, equation.outputs, where])
    known = [[slot, value.dtype.str, value.shape, as_text(value)] for slot, value in program.known.items()]
    plain = {
        "kinds": told, "equations": equations, "places": list(places), "known": known, "inputs": program.inputs,
        "outputs": program.outputs, "shapes": program.shapes, "types": [kind.str for kind in program.kinds],
    }  # fmt: skip
    if not _same(program_from_plain(plain), program):
        raise CannotBeKept("another program comes back")
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
        known = {
            slot: np.frombuffer(base64.b64decode(text), dtype=kind).reshape(shape)
            for slot, kind, shape, text in plain["known"]
        }
        shapes, types = [tuple(shape) for shape in plain["shapes"]], [np.dtype(kind) for kind in plain["types"]]
        return Program(equations, known, tuple(plain["inputs"]), tuple(plain["outputs"]), shapes, types)
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CannotBeKept("no program") from error


def kinds_as_plain(equations: Sequence[Equation]) -> tuple[list[Any], list[int]]:
    """(what there is to do, which of it each equation does).

    Raises:
        CannotBeKept: something has no words.
    """
    places: dict[Any, int] = {}
    told, kinds, first = list[Any](), list[int](), list[Equation]()
    for equation in equations:
        key = (key_of(equation, ()), _avals(equation))
        if key not in places:
            plain = _kind(equation)
            # An operation that was traced twice is one kind: the text must not tell how often JAX traced it.
            alike = (k for k, one in enumerate(told) if one == plain and does_the_same(first[k], equation))
            places[key] = next(alike, len(told))
            if places[key] == len(told):
                told.append(plain)
                first.append(equation)
        kinds.append(places[key])
    return told, kinds


def kinds_from_plain(told: Sequence[Any]) -> list[Equation]:
    """Equations that do this, of no slots.

    Raises:
        CannotBeKept: something is nothing of ours.
    """
    return [_equation(*each) for each in told]


def equations_as_plain(program: Program) -> list[Any]:
    """Write what a program does in lists and words that no other has; without what is known and who wrote it.

    Raises:
        CannotBeKept: where they might be those of another.
    """
    told, kinds = kinds_as_plain(program.equations)
    ours = dict(zip(kinds, program.equations, strict=True))
    if not all(does_the_same(ours[kind], equation) for kind, equation in enumerate(kinds_from_plain(told))):
        raise CannotBeKept("another operation comes back")
    used = sorted({*program.inputs, *(s for e in program.equations for s in (*e.inputs, *e.outputs))})
    each = [(kind, len(e.inputs), *e.inputs, *e.outputs) for kind, e in zip(kinds, program.equations, strict=True)]
    shapes = [[program.shapes[slot], program.kinds[slot].str] for slot in used]
    return [told, as_text([n for e in each for n in e]), program.inputs, program.outputs, as_text(used), shapes]


def as_text(numbers: Sequence[int] | np.ndarray) -> str:
    """The bytes of an array, or of whole numbers."""
    return base64.b64encode(np.ascontiguousarray(numbers).tobytes()).decode()


def _same(one: Program, other: Program) -> bool:
    """True if two programs are the same, slot by slot."""
    if [(*e.inputs, -1, *e.outputs) for e in one.equations] != [(*e.inputs, -1, *e.outputs) for e in other.equations]:
        return False
    kinds = {(id(a.params), id(b.params)): (a, b) for a, b in zip(one.equations, other.equations, strict=True)}
    return (
        one._replace(equations=[], known={}) == other._replace(equations=[], known={})
        and [(slot, told_apart(value)) for slot, value in one.known.items()]
        == [(slot, told_apart(value)) for slot, value in other.known.items()]
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
            raise CannotBeKept(f"{equation.name} is no primitive that can be found again")
        return [equation.name, [[name, _setting(value)] for name, value in equation.params.items()]]
    operation = NAMED.get(equation.name)
    if operation is None or equation.primitive.name in DERIVED or not operation.__module__.startswith(PACKAGE + "."):
        raise CannotBeKept(f"{equation.name} is no operation of this package")
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
        raise CannotBeKept(f"{module} is not of this package")
    import_module(module)
    arguments = [jax.ShapeDtypeStruct(tuple(shape), np.dtype(kind), weak_type=weak) for shape, kind, weak in avals]
    (result,) = flatten(make_jaxpr(NAMED[name])(*arguments)).equations
    if result.name != name:
        raise CannotBeKept(f"{name} is another operation")
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
    raise CannotBeKept(f"a setting of {name}")


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
    """Every primitive of JAX by its name."""
    places: Sequence[Any] = (jax.extend.core.primitives, lax)
    result = [getattr(place, name) for place in places for name in dir(place) if name.endswith("_p")]
    return {primitive.name: primitive for primitive in result}
