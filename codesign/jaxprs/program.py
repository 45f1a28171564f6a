"""A traced function as one flat list of equations over numbered slots.

Calls are written out where they stand, but for operations that carry a name of this package (`smooth.operation`): those
stay one equation, because what they are cannot be read off their parts.
"""

import functools
import operator
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from ..core.errors import ConfigError
from ..core.smooth import OPERATION

__all__ = [
    "DERIVED", "Equation", "Program", "cached", "chained", "flatten", "inside", "key_of", "likeness", "reduced",
    "written_calls", "written_out",
]  # fmt: skip


CALLS = {
    **dict.fromkeys(("jit", "pjit", "remat", "remat2", "checkpoint", "in_few_kernels"), "jaxpr"),
    **dict.fromkeys(("closed_call", "core_call"), "call_jaxpr"),
    **dict.fromkeys(("custom_vjp_call", "custom_vjp_call_jaxpr"), "call_jaxpr"),
}
"""Primitive that runs a program -> the parameter that holds it. Slopes of one's own in reverse are left out: what is
written here is differentiated forward, by the program itself."""
DERIVED = {"custom_jvp_call": "call_jaxpr"}
"""Primitives that hold a program whose derivatives may be custom, as `CALLS` hold others: each stays one equation."""
OUTWARD = ("pure_callback", "io_callback", "outside_call", "infeed", "outfeed")
"""Primitives that leave the program for something that cannot be read."""
PACKAGE = Path(__file__).parents[1]
TRICKS = ("smooth.py",)  # files that only pass on what others ask for
EITHER_WAY = ("add", "mul", "max", "min")  # equal to the last bit whichever comes first
MOST_OPERATIONS = 4096  # named, of different arguments
_operations: OrderedDict[Any, Any] = OrderedDict()
OUTSIDE = ("/jax/", "/equinox/", "/functools.py", "/contextlib.py")


class Equation(NamedTuple):
    """One elementary operation, or one that carries a name of this package.

    name: of the primitive, or of the operation; inner: its program, if it has one; traceback: of what asked for it, or
    file, line and function of that in words.
    """

    name: str
    primitive: Any
    params: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    inner: Any
    traceback: Any

    @property
    def where(self) -> str:
        """File, line and function of the model that wrote this operation."""
        if isinstance(self.traceback, str):
            return self.traceback
        seen: Sequence[Any] = self.traceback.frames if self.traceback else ()
        frame = next((frame for frame in seen if _is_ours(frame.file_name)), None)
        if frame is None:
            return "an operation outside this package"
        return f"{_shown(frame.file_name)}:{frame.line_num} ({frame.function_name.replace('.<locals>', '')})"


class Program(NamedTuple):
    """Equations in order; `constants` holds what is a plain array from the start."""

    equations: list[Equation]
    constants: dict[int, np.ndarray]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: list[tuple[int, ...]]
    kinds: list[np.dtype]

    def reached(self, slots: Collection[int]) -> frozenset[int]:
        """Slots that anything flows to from these, these included."""
        result = set(slots)
        for equation in self.equations:
            if result.intersection(equation.inputs):
                result.update(equation.outputs)
        return frozenset(result)


def cached(store: OrderedDict[Any, Any], key: Any, make: Callable[[], Any], most: int) -> Any:
    """Cached value of a key, made where it is missing; the least recently used entry is dropped."""
    if key not in store:
        store[key] = make()
        if len(store) > most:
            store.popitem(last=False)
    store.move_to_end(key)
    return store[key]


@functools.lru_cache(maxsize=4096)
def _is_ours(file: str) -> bool:
    return not any(part in file for part in OUTSIDE) and not file.endswith(TRICKS) and not file.startswith("<")


@functools.lru_cache(maxsize=4096)
def _shown(file: str) -> str:
    """Name of a file as a proof tells it: below this package, or alone."""
    path = Path(file)
    return str(path.relative_to(PACKAGE) if path.is_relative_to(PACKAGE) else path.name)


def _is_as_written(inner: Any) -> bool:
    """True if a named program was written here, and is not its slope: a name alone can be anybody's."""
    text = str(inner.jaxpr.debug_info.func_src_info or "").partition(" at ")[2].rpartition(":")[0]
    return Path(text).is_relative_to(PACKAGE) and len(inner.jaxpr.outvars) == 1


@functools.lru_cache(maxsize=4096)
def _one_of(name: str, inner: Any) -> Any:
    """The first program met that is the same operation of the same arguments: JAX may trace one several times."""
    if inner.consts:
        return inner
    arguments = tuple((aval.shape, aval.dtype.str, bool(aval.weak_type)) for aval in inner.in_avals)
    return cached(_operations, (name, arguments, str(inner)), lambda: inner, MOST_OPERATIONS)


def flatten(closed: Any) -> Program:
    """The equations of a traced function: none twice, none that no output needs."""
    return _Flat().program(closed)


class _Flat:
    """Equations in a row, each the first of its kind: what is met again is neither written nor entered again."""

    def __init__(self) -> None:
        self._listed: list[Equation] = []
        self._constants: dict[int, np.ndarray] = {}
        self._shapes: list[tuple[int, ...]] = []
        self._kinds: list[np.dtype] = []
        self._opened: dict[int, tuple[Any, Any]] = {}  # programs that came open, each with itself closed
        self._seen: dict[Any, Sequence[int]] = {}  # constants, equations and called programs -> slots

    def program(self, closed: Any) -> Program:
        """Flat program of a traced function."""
        inputs = self._new(closed.jaxpr.invars)
        outputs = self._inline(closed, inputs)
        equations = _needed(self._listed, outputs)
        read = {slot for equation in equations for slot in equation.inputs}.union(outputs)
        constants = {slot: value for slot, value in self._constants.items() if slot in read}
        return Program(equations, constants, tuple(inputs), tuple(outputs), self._shapes, self._kinds)

    def _new(self, variables: Sequence[Any]) -> list[int]:
        first = len(self._shapes)
        self._shapes.extend(tuple(variable.aval.shape) for variable in variables)
        self._kinds.extend(variable.aval.dtype for variable in variables)
        return list(range(first, len(self._shapes)))

    def _constant(self, value: Any) -> int:
        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._seen:
            self._seen[key] = [len(self._shapes)]
            self._constants[len(self._shapes)] = array
            self._shapes.append(array.shape)
            self._kinds.append(array.dtype)
        return self._seen[key][0]

    def _inline(self, closed: Any, arguments: Sequence[int]) -> Sequence[int]:
        """Slots of the outputs of a program at these slots."""
        called = (id(closed), *arguments)
        if called not in self._seen:
            jaxpr = closed.jaxpr
            slots = {
                variable: self._constant(value) for variable, value in zip(jaxpr.constvars, closed.consts, strict=True)
            }
            slots |= dict(zip(jaxpr.invars, arguments, strict=True))
            for equation in jaxpr.eqns:
                outputs = self._written(equation, self._slots(slots, equation.invars))
                slots |= dict(zip(equation.outvars, outputs, strict=True))
            self._seen[called] = self._slots(slots, jaxpr.outvars)
        return self._seen[called]

    def _slots(self, slots: dict[Any, int], variables: Sequence[Any]) -> list[int]:
        return [self._constant(v.val) if isinstance(v, Literal) else slots[v] for v in variables]

    def _closed(self, equation: Any, holder: str) -> Any:
        """The program that an equation runs; one without constants of its own is closed once."""
        inner = equation.params[holder]
        if isinstance(inner, ClosedJaxpr):
            return inner
        if id(inner) not in self._opened:
            self._opened[id(inner)] = (inner, ClosedJaxpr(inner, ()))
        return self._opened[id(inner)][1]

    def _written(self, equation: Any, inputs: Sequence[int]) -> Sequence[int]:
        """Slots of what an equation of JAX gives."""
        name = equation.primitive.name
        holder = CALLS.get(name) or DERIVED.get(name)
        inner: Any = self._closed(equation, holder) if holder else None
        title = str(equation.params.get("name", "")) if holder else ""
        named = name in CALLS and title.startswith(OPERATION) and _is_as_written(inner)
        if name in CALLS and not named:
            return self._inline(inner, inputs)
        name, inner = (title, _one_of(title, inner)) if named else (name, inner)
        traceback = equation.source_info.traceback
        if name in OUTWARD:
            where = Equation(name, None, {}, (), (), None, traceback).where
            raise ConfigError(
                f"{where}: {name} asks Python for a number: a traced model can only hold functions of JAX"
            )
        flat_equation = Equation(name, equation.primitive, equation.params, tuple(inputs), (), inner, traceback)
        key = key_of(flat_equation, flat_equation.inputs)
        if key not in self._seen:
            self._seen[key] = self._new(equation.outvars)
            self._listed.append(flat_equation._replace(outputs=tuple(self._seen[key])))
        return self._seen[key]


def chained(first: Program, second: Program, fed: Mapping[int, int], also: Sequence[int] = ()) -> Program:
    """Chain two programs into one, whose outputs are those of the second and the slots `also` of the first.

    Inputs `fed` of the second are slots of the first; its other inputs stand behind those of the first.
    """
    shift = len(first.shapes)

    def moved(slots: Sequence[int]) -> tuple[int, ...]:
        return tuple(fed.get(slot, slot + shift) for slot in slots)

    later = [e._replace(inputs=moved(e.inputs), outputs=moved(e.outputs)) for e in second.equations]
    joined = Program(
        [*first.equations, *later],
        first.constants | {slot + shift: value for slot, value in second.constants.items()},
        (*first.inputs, *moved([slot for slot in second.inputs if slot not in fed])),
        (*moved(second.outputs), *also),
        [*first.shapes, *second.shapes],
        [*first.kinds, *second.kinds],
    )
    return reduced(joined)


def written_out(program: Program, left: Collection[str] = ()) -> Program:
    """Inline a program to primitives alone, equations kept for their slopes or their name included; equal results.

    Args:
        program: any.
        left: names of primitives that stay as they are, such as `DERIVED`: what is inlined has the slopes of its parts.
    """
    inlined = program
    while any(_opens(equation, left) for equation in inlined.equations):
        listed, constants = list[Equation](), dict(inlined.constants)
        shapes, kinds = list(inlined.shapes), list(inlined.kinds)
        same: dict[int, int] = {}
        for equation in inlined.equations:
            inputs = tuple(same.get(slot, slot) for slot in equation.inputs)
            if not _opens(equation, left):
                listed.append(equation if inputs == equation.inputs else equation._replace(inputs=inputs))
                continue
            inner, shift = inside(equation.inner), len(shapes)
            renamed_slots = dict(zip(inner.inputs, inputs, strict=True))
            for part in inner.equations:
                moved = [
                    tuple(renamed_slots.get(slot, slot + shift) for slot in slots)
                    for slots in (part.inputs, part.outputs)
                ]
                listed.append(part._replace(inputs=moved[0], outputs=moved[1]))
            constants |= {slot + shift: value for slot, value in inner.constants.items()}
            shapes += inner.shapes
            kinds += inner.kinds
            result = [renamed_slots.get(slot, slot + shift) for slot in inner.outputs]
            same |= dict(zip(equation.outputs, result, strict=True))
        outputs = tuple(same.get(slot, slot) for slot in inlined.outputs)
        inlined = Program(listed, constants, inlined.inputs, outputs, shapes, kinds)
    return reduced(inlined)


def _opens(equation: Equation, left: Collection[str]) -> bool:
    return equation.inner is not None and equation.primitive.name not in left


@functools.lru_cache(maxsize=4096)
def inside(closed: Any) -> Program:
    """`flatten` of an operation, which a model has a hundred times."""
    return flatten(closed)


def reduced(program: Program) -> Program:
    """Remove common subexpressions and what no output needs from a program."""
    same: dict[int, int] = {}
    seen: dict[Any, tuple[int, ...]] = {}
    for slot, value in program.constants.items():
        key = (value.dtype.str, value.shape, value.tobytes())
        same[slot] = seen.setdefault(key, (slot,))[0]
    retained: list[Equation] = []
    settings: dict[int, Any] = {}  # of parameters: copies of an operation share them
    number: dict[Any, int] = {}  # of settings, which take long to compare
    now = same.get
    for equation in program.equations:
        name, _, params, given, results, inner, _ = equation
        inputs = tuple([now(slot, slot) for slot in given])
        identity = id(params) if inner is None else id(inner)
        if identity not in settings:
            of_key = key_of(equation, ())[-1]
            settings[identity] = number.setdefault(of_key, len(number))
        key = (name, tuple(sorted(inputs)) if name in EITHER_WAY else inputs, settings[identity])
        outputs = seen.setdefault(key, results)
        if outputs is results:
            retained.append(equation if inputs == given else equation._replace(inputs=inputs))
        else:
            same |= dict(zip(results, outputs, strict=True))
    outputs = tuple(same.get(slot, slot) for slot in program.outputs)
    return program._replace(equations=_needed(retained, outputs), outputs=outputs)


_name_of = operator.itemgetter(0)


def key_of(equation: Equation, inputs: tuple[Any, ...]) -> Any:
    """Equations of equal keys do the same, to inputs of which this is said."""
    if equation.name in EITHER_WAY and all(isinstance(one, int) for one in inputs):
        inputs = tuple(sorted(inputs))
    if equation.inner is not None:
        return (equation.name, inputs, id(equation.inner))
    settings = equation.params.items()
    key = (equation.name, inputs, tuple(sorted(settings, key=_name_of) if len(settings) > 1 else settings))
    try:
        hash(key)
    except TypeError:
        return (equation.name, inputs, id(equation.params))
    return key


def likeness(program: Program, *, values: bool = True) -> Any:
    """Programs of equal likeness do the same; slot by slot, where their `constants` do not differ.

    Args:
        program: of any origin: two traces of the same functions are alike.
        values: whether numbers that are known count, or only their shapes and types.
    """
    numbers = (
        (slot, value.shape, value.dtype.str, value.tobytes() if values else b"")
        for slot, value in sorted(program.constants.items())
    )
    inputs = tuple((slot, program.shapes[slot], str(program.kinds[slot])) for slot in program.inputs)
    equations = tuple(
        (
            _kind_of(equation),
            equation.inputs,
            equation.outputs,
            tuple(program.shapes[slot] for slot in equation.outputs),
        )
        for equation in program.equations
    )
    return (tuple(numbers), inputs, program.outputs, equations)


def _kind_of(equation: Equation) -> Any:
    """Key of an equation's operation; custom slopes are told apart by where they were written down."""
    if equation.inner is None or equation.primitive.name in DERIVED:
        return key_of(equation, ())
    return (equation.name, likeness(inside(equation.inner)))


def _needed(equations: list[Equation], outputs: Sequence[int]) -> list[Equation]:
    wanted, needed = set(outputs), list[Equation]()
    for equation in reversed(equations):
        if not wanted.isdisjoint(equation.outputs):
            wanted.update(equation.inputs)
            needed.append(equation)
    return needed[::-1]


# A list of operations written out as one Python function, so that little is spent between two of them.


def written_calls(
    equations: Sequence[Equation],
    calls: Sequence[Callable[..., Any]],
    inputs: Sequence[int],
    outputs: Sequence[int],
    constants: Sequence[int],
    again: Mapping[int, int],
) -> Callable[[Sequence[Any], Iterable[Any]], list[Any]]:
    """A Python function of inputs and constants, one call after the other.

    Args:
        equations: primitives alone.
        calls: what does each of them.
        inputs, outputs, constants: slots of what is given, asked for and known.
        again: place of an equation -> slot of the argument that it writes over.

    A name whose number nobody reads any more is given to the next, so that little memory is held.
    """
    last = {slot: index for index, equation in enumerate(equations) for slot in equation.inputs}
    last |= dict.fromkeys((*outputs, *constants), len(equations))
    space: dict[str, Any] = {}
    names, free, made = {slot: f"c{slot}" for slot in constants}, list[str](), 0

    def fresh() -> str:
        nonlocal made
        if free:
            return free.pop()
        made += 1
        return f"x{made}"

    names |= {slot: fresh() for slot in dict.fromkeys(inputs)}
    lines = [f"    [{', '.join(names[slot] for slot in inputs)}] = given"] if inputs else []
    lines += [f"    [{', '.join(names[slot] for slot in constants)}] = known"] if constants else []
    for index, (equation, call) in enumerate(zip(equations, calls, strict=True)):
        space[f"f{index}"] = call
        read = ", ".join(names[slot] for slot in equation.inputs)
        if index in again:
            read += f", out={names[again[index]]}"
        for slot in dict.fromkeys(equation.inputs):
            if last[slot] == index and names[slot].startswith("x"):
                free.append(names[slot])
        written = [fresh() for _ in equation.outputs]
        names |= dict(zip(equation.outputs, written, strict=True))
        target = f"[{', '.join(written)}]" if equation.primitive.multiple_results else written[0]
        lines.append(f"    {target} = f{index}({read})")
        free += [names[slot] for slot in equation.outputs if slot not in last]
    lines.append(f"    return [{', '.join(names[slot] for slot in outputs)}]")
    exec("def run(given, known):\n" + "\n".join(lines), space)  # written from numbers and names of our own alone
    return space["run"]
