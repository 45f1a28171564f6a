"""Loops, branches and row-wise functions of traced programs, run by NumPy at many points."""

import functools
import hashlib
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from ..core.jax_typed import make_jaxpr
from ..core.rowwise import ROW_ARGUMENTS, ROWWISE
from .numpy_primitives import behind, turned
from .program import Equation, Program, cached, flatten, written_calls, written_out

__all__ = ["DIGEST", "LOOPS", "ROWWISE", "Body", "Loop", "loop", "rows_at"]


# Loops of traced programs run by NumPy at many rows: what a loop repeats is one Python function of calls.
#
# Compiling a loop takes as long as running it on thousands of rows, and its results differ by rounding. Numbers have
# their rows behind their own axes. What a loop repeats and its state does not reach is done once, before the first
# round.


Arrays = Sequence[np.ndarray]


class Body:
    """A traced program at many rows.

    Args:
        closed: the program.
        fixed: how many of its first arguments stay as they are from call to call.
    """

    def __init__(self, closed: Any, fixed: int = 0):
        program = written_out(flatten(closed))
        moving = program.reached(program.inputs[fixed:])
        early = [equation for equation in program.equations if not moving.intersection(equation.outputs)]
        late = [equation for equation in program.equations if moving.intersection(equation.outputs)]
        read = {*program.outputs, *(slot for equation in late for slot in equation.inputs)}
        made = [slot for equation in early for slot in equation.outputs if slot in read]
        constants = {slot: np.reshape(value, (*np.shape(value), 1)) for slot, value in program.constants.items()}
        self._constants, first = list(constants.values()), program.inputs[:fixed]
        self._early = _function(program, early, first, made, list(constants))
        self._late = _function(program, late, (*program.inputs, *made), program.outputs, list(constants))

    def at(self, *fixed: np.ndarray) -> Callable[[Arrays], list[Any]]:
        """The program of its other arguments."""
        made = self._early(fixed, self._constants)
        return lambda moving: self._late((*fixed, *moving, *made), self._constants)

    def __call__(self, *inputs: np.ndarray) -> list[Any]:
        """All outputs, [own axes, rows or 1] each."""
        return self.at()(inputs)


def _function(
    program: Program, equations: Sequence[Equation], inputs: Sequence[int], outputs: Sequence[int], constants: list[int]
) -> Callable[[Arrays, Arrays], list[Any]]:
    calls = [_does(equation, [program.kinds[slot] for slot in equation.inputs]) for equation in equations]
    return written_calls(equations, calls, inputs, outputs, constants, {})


def _does(equation: Equation, kinds: Sequence[Any]) -> Callable[..., Any]:
    """Function that runs one equation; a loop gives a list."""
    if equation.name in LOOPS:
        return LOOPS[equation.name](**equation.params)
    if equation.name in ROWWISE:
        return turned(functools.partial(rows_at, equation.name, 1), 1)
    return behind(equation.primitive, equation.params, kinds, 1)


def _scan(
    jaxpr: Any, length: int, reverse: bool, num_consts: int, num_carry: int, **_: Any
) -> Callable[..., list[Any]]:
    """So many rounds: a state handed on, and of each round what is listed."""
    body, start = Body(jaxpr, num_consts), num_consts + num_carry

    def run(*inputs: np.ndarray) -> list[Any]:
        step, state, lists = body.at(*inputs[:num_consts]), list(inputs[num_consts:start]), inputs[start:]
        per_step: list[list[Any]] = []
        for step_index in range(length)[:: -1 if reverse else 1]:
            result = step([*state, *(each[step_index] for each in lists)])
            state = result[:num_carry]
            per_step.append(result[num_carry:])
        rounds = per_step[::-1] if reverse else per_step
        return [*state, *(np.stack(np.broadcast_arrays(*each)) for each in zip(*rounds, strict=True))]

    return run


def _while(
    cond_jaxpr: Any, cond_nconsts: int, body_jaxpr: Any, body_nconsts: int, **_: Any
) -> Callable[..., list[Any]]:
    """Until its condition is false; rows at which it is stay as they are."""
    condition, body, start = Body(cond_jaxpr, cond_nconsts), Body(body_jaxpr, body_nconsts), cond_nconsts + body_nconsts

    def run(*inputs: np.ndarray) -> list[Any]:
        holds, step = condition.at(*inputs[:cond_nconsts]), body.at(*inputs[cond_nconsts:start])
        state = list(inputs[start:])
        while (going := np.asarray(holds(state)[0])).any():
            result = step(state)
            state = (
                result if going.all() else [np.where(going, new, old) for new, old in zip(result, state, strict=True)]
            )
        return state

    return run


def _cond(branches: Sequence[Any], **_: Any) -> Callable[..., list[Any]]:
    """One of several programs, at each row another; those that no row takes are left out."""
    programs = [Body(each) for each in branches]

    def run(which: np.ndarray, *inputs: np.ndarray) -> list[Any]:
        taken = np.clip(which, 0, len(programs) - 1)
        numbers = np.unique(taken).tolist()
        result = programs[numbers[0]](*inputs)
        for number in numbers[1:]:
            outputs = programs[number](*inputs)
            result = [np.where(taken == number, new, old) for new, old in zip(outputs, result, strict=True)]
        return result

    return run


LOOPS: dict[str, Callable[..., Callable[..., list[Any]]]] = {"scan": _scan, "while": _while, "cond": _cond}
"""Primitive -> its settings -> what it does to arrays."""


# Loops of traced programs on many points: each distinct row of inputs done once, by NumPy.
#
# A fixed point (the step of an engine under load, the occupancy that gives a percentile) takes a thousand times as
# long as an elementary operation, and the parts of a search ask for the same rows again: the grid, the tables of a
# proof, the designs that are kept. Rows are known by a digest of their numbers; results are kept to a bound of
# memory. No loop is compiled, however many rows are asked for: a compiled fixed point differs by rounding, so that a
# design would depend on what was asked before it.


CACHED_PROGRAMS = 256
CACHE_BYTES = 64 << 20  # of results, a loop
LEAST_ROWS, MOST_ROWS = 8, 2048  # of one call of NumPy; a batch goes on until its slowest row has ended
WORKERS = min(2, os.cpu_count() or 1)
DIGEST = 16  # bytes: two rows of 10^9 share one with a chance of 10^-21


Row = tuple[Sequence[np.ndarray], int]
"""Results of a batch, and a row of them."""


class Loop:
    """A loop on rows: results of rows that were asked before are looked up.

    A row has the same bits in whatever batch it is done, and whatever was asked before: batches are whole vectors of
    the machine.
    """

    def __init__(self, bind: Callable[..., Any], several: bool) -> None:
        """
        Args:
            bind: arguments -> result(s), traceable by JAX.
            several: it returns a list.
        """
        self._several, self._bind = several, bind
        self._bodies: dict[Any, Body] = {}  # shapes and types of a row's inputs -> the loop
        self._cached: dict[bytes, Row] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        self.requested = self.done = 0

    def at(self, lead: int, *inputs: Any) -> Any:
        """Results of the loop, a list where it has several.

        Args:
            lead: axes of points in front of each input's own, each as long as there are points along it, or 1.
            inputs: numbers and arrays.
        """
        if lead == 0 or not inputs:
            parts = [np.reshape(x, (1,) * lead + np.shape(x))[()] for x in self.one(*inputs)]
            return parts if self._several else parts[0]
        arrays = [np.asarray(x) for x in inputs]
        points = np.broadcast_shapes(*(x.shape[:lead] for x in arrays))
        result = self.rows([_flat(x, lead, points) for x in arrays])
        parts = [x.reshape(*points, *x.shape[1:]) for x in result]
        return parts if self._several else parts[0]

    def at_behind(self, lead: int, *inputs: Any) -> Any:
        """`at` of inputs that have their axes of points behind their own."""
        front = [np.moveaxis(x, range(np.ndim(x) - lead, np.ndim(x)), range(lead)) for x in inputs]
        result = self.at(lead, *front)
        turned = [np.moveaxis(x, range(lead), range(np.ndim(x) - lead, np.ndim(x))) for x in self._listed(result)]
        return turned if self._several else turned[0]

    def one(self, *inputs: Any) -> list[Any]:
        """At one point, not kept.

        Args:
            inputs: numbers and arrays as the loop has them.
        """
        return [part[0] for part in self._computed([np.asarray(x)[None] for x in inputs], 1)]

    def rows(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """At many points.

        Args:
            inputs: [rows, *own shape] each, or [1, *own shape] of what is the same in all rows.
        Returns:
            [rows, *shape] each.
        """
        count = max(each.shape[0] for each in inputs)
        names = _names(inputs, count)
        first: dict[bytes, int] = {}
        for row, name in enumerate(names):
            first.setdefault(name, row)
        with self._lock:
            self.requested += count
            held = {name: self._cached[name] for name in first if name in self._cached}
        new = [name for name in first if name not in held]
        if new:
            places = np.array([first[name] for name in new])
            results = self._computed(
                [each if each.shape[0] == 1 < count else each[places] for each in inputs], len(new)
            )
            made: dict[bytes, Row] = {name: (results, row) for row, name in enumerate(new)}
            self._keep(made, results)
            held |= made
        return _gathered([held[name] for name in names])

    def _listed(self, output: Any) -> list[Any]:
        return list(output) if self._several else [output]

    def _keep(self, rows: dict[bytes, Row], results: Sequence[np.ndarray]) -> None:
        """Cache rows of results, emptied first where it would exceed its memory: a search asks again soon or never."""
        size = DIGEST * len(rows) + sum(part.nbytes for part in results)
        with self._lock:
            self.done += len(rows)
            if self._bytes + size > CACHE_BYTES:
                self._cached, self._bytes = {}, 0
            if size <= CACHE_BYTES:
                self._cached |= rows
                self._bytes += size

    def _computed(self, inputs: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
        pieces = list(_pieces(inputs, count))
        if len(pieces) == 1:
            done = [self._run(pieces[0])]
        else:
            with ThreadPoolExecutor(WORKERS) as pool:
                done = list(pool.map(self._run, pieces))
        return [np.concatenate(parts)[:count] for parts in zip(*done, strict=True)]

    def _run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        key = tuple((each.shape[1:], each.dtype) for each in inputs)
        if key not in self._bodies:
            row = [jax.ShapeDtypeStruct(each.shape[1:], each.dtype) for each in inputs]
            self._bodies[key] = Body(make_jaxpr(self._bind)(*row))
        with np.errstate(all="ignore"):
            result = self._bodies[key](*(np.ascontiguousarray(np.moveaxis(each, 0, -1)) for each in inputs))
        rows = len(inputs[0])
        return [np.moveaxis(np.broadcast_to(part, (*part.shape[:-1], rows)), -1, 0) for part in result]


def _gathered(rows: Sequence[Row]) -> list[np.ndarray]:
    """Arrays of these rows; nobody writes into the ones that they are kept in."""
    results = rows[0][0]
    if all(held is results for held, _ in rows):  # nearly always: computed together, and asked again together
        places = np.array([row for _, row in rows])
        return [part[places] for part in results]
    return [np.stack([held[at][row] for held, row in rows]) for at in range(len(results))]


def _flat(x: np.ndarray, lead: int, points: tuple[int, ...]) -> np.ndarray:
    """[rows, *own shape], or one row where all points are alike."""
    trailing = x.shape[lead:]
    if math.prod(x.shape[:lead]) == 1:
        return x.reshape(1, *trailing)
    return np.broadcast_to(x, (*points, *trailing)).reshape(-1, *trailing)


def _pieces(inputs: Sequence[np.ndarray], count: int) -> Iterator[list[np.ndarray]]:
    """Batches of all rows; where there are too few for a vector of the machine the last row comes again."""
    for start in range(0, count, MOST_ROWS):
        held = min(MOST_ROWS, count - start)
        rows = np.minimum(np.arange(max(held, LEAST_ROWS)), held - 1) + start
        yield [
            np.broadcast_to(each, (len(rows), *each.shape[1:])) if each.shape[0] == 1 else each[rows] for each in inputs
        ]


def _names(inputs: Sequence[np.ndarray], count: int) -> list[bytes]:
    """A digest of each row: the same whether an input is given a row each or once for all."""
    short = [_short(each) for each in inputs]
    columns = [np.broadcast_to(each, (count, each.shape[1])) for each in short]
    rows = np.ascontiguousarray(np.concatenate(columns, axis=1))
    return [hashlib.blake2b(row, digest_size=DIGEST).digest() for row in rows]  # a row is a buffer of bytes


def _short(values: np.ndarray) -> np.ndarray:
    """[rows, bytes]: the numbers of a row themselves, a digest of them where they are many."""
    flat = np.ascontiguousarray(values).reshape(values.shape[0], -1).view(np.uint8)
    if flat.shape[1] <= 4 * DIGEST:
        return flat
    digests = [hashlib.blake2b(row, digest_size=DIGEST).digest() for row in flat]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST)


def loop(primitive: Any, params: dict[str, Any]) -> Loop:
    """The loop of a traced program, the same one wherever its equation is asked for.

    Args:
        primitive: of JAX, one of LOOPS.
        params: its settings, among them the traced bodies, which are known by identity.
    """
    return _loop(primitive, tuple(sorted(params.items())))


@functools.lru_cache(maxsize=CACHED_PROGRAMS)
def _loop(primitive: Any, settings: tuple[tuple[str, Any], ...]) -> Loop:
    bind = functools.partial(primitive.bind, **primitive.get_bind_params(dict(settings)))
    return Loop(bind, primitive.multiple_results)


# Row-wise functions (`core.rowwise`) run by NumPy: rows that are equal to the last bit are computed once, and cached.
#
# A search asks for ten thousand plans, whose launches have a tenth as many shapes.


MOST_FUNCTIONS = 8  # functions with their other arguments, such as the weights of a network
MOST_BODIES = 256  # functions by the shapes of their arguments
MOST_VALUES = 1 << 19  # of each that are kept (memory: 0.3 kB a row)
FEWEST = 64  # rows worth looking for
PART = 224  # rows done at a time: in a cache, and a product of matrices too small for a library to start threads for
VECTOR = 32  # rows that a batch is a multiple of
_functions: OrderedDict[Any, "DistinctRows"] = OrderedDict()
_lock = threading.Lock()


class DistinctRows:
    """A row-wise function with a cache of its values.

    Args:
        body: the function of one row, its label and the other arguments.
        shared: the other arguments.
    """

    def __init__(self, body: Body, shared: Sequence[np.ndarray]):
        self._body, self._shared = body, [each[..., None] for each in shared]
        self._values: dict[bytes, float] = {}

    def at(
        self, rows: Float[np.ndarray, "n row"], labels: Float[np.ndarray, "k label"], which: Int[np.ndarray, " n"]
    ) -> Float[np.ndarray, " n"]:
        """Value of each row with the label that it has.

        A row has the same bits in whatever batch it is done, and whatever was asked before: batches are whole vectors
        of the machine.
        """
        if len(rows) < FEWEST:
            return self._computed(rows, labels[which])
        if len(self._values) > MOST_VALUES:
            self._values = {}
        values, keys = self._values, _bytes_of(np.concatenate([rows.view(np.uint8), _tags(labels)[which]], axis=1))
        missing = {key: index for index, key in enumerate(keys) if key not in values}
        if missing:
            places = np.fromiter(missing.values(), np.intp, len(missing))
            values.update(zip(missing, self._computed(rows[places], labels[which[places]]).tolist(), strict=True))
        return np.fromiter(map(values.__getitem__, keys), float, len(keys))

    def _computed(self, rows: np.ndarray, labels: np.ndarray) -> Float[np.ndarray, " n"]:
        result = np.empty(len(rows))
        for first in range(0, len(rows), PART):
            count = min(PART, len(rows) - first)
            places = np.minimum(np.arange(-(-count // VECTOR) * VECTOR), count - 1) + first
            result[first : first + count] = self._body(rows[places].T, labels[places].T, *self._shared)[0][:count]
        return result


def _bytes_of(rows: np.ndarray) -> list[bytes]:
    rows = np.ascontiguousarray(rows)
    return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel().tolist()


def _tags(labels: np.ndarray) -> np.ndarray:
    """A digest of each label, [labels, bytes]."""
    digests = [hashlib.blake2b(label, digest_size=DIGEST).digest() for label in _bytes_of(labels)]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(len(labels), DIGEST)


def rows_at(name: str, lead: int, *inputs: Any) -> Any:
    """Values of a row-wise function.

    Args:
        name: of `ROWWISE`.
        lead: axes of points in front of each argument's own, each as long as there are points along it, or 1.
        inputs: its arguments.
    """
    arrays = [np.asarray(each) for each in inputs]
    alike = [_of_all_points(each, lead) for each in arrays[ROW_ARGUMENTS:]]
    shared = [each for each in alike if each is not None]
    if len(shared) < len(alike):
        return _at_each_point(name, lead, arrays)
    ranks = [each.ndim - lead - 1 for each in arrays[:ROW_ARGUMENTS]]
    rows, labels = (
        each.reshape(*each.shape[:lead], *[1] * (max(ranks) - rank), *each.shape[lead:])
        for each, rank in zip(arrays, ranks, strict=False)
    )
    points = np.broadcast_shapes(rows.shape[:-1], labels.shape[:-1])
    listed = labels.reshape(-1, labels.shape[-1])
    which = np.broadcast_to(np.arange(len(listed)).reshape(labels.shape[:-1]), points).ravel()
    every = np.broadcast_to(rows, (*points, rows.shape[-1])).reshape(-1, rows.shape[-1])
    values = _distinct(name, rows, labels, shared).at(np.ascontiguousarray(every), listed, which)
    return values.reshape(points).astype(np.result_type(*arrays), copy=False)[()]


def _of_all_points(x: np.ndarray, lead: int) -> np.ndarray | None:
    """Value of an argument that is the same at all points; None where it is not."""
    first = x[(0,) * lead] if math.prod(x.shape[:lead]) else None
    return first if math.prod(x.shape[:lead]) == 1 or (first is not None and (x == first).all()) else None


def _distinct(name: str, rows: np.ndarray, labels: np.ndarray, shared: Sequence[np.ndarray]) -> DistinctRows:
    """The function of one row with these other arguments, and with what it has given."""
    digest = hashlib.blake2b(digest_size=16)
    for each in shared:
        digest.update(np.ascontiguousarray(each).tobytes())
    signature = (rows.shape[-1:], rows.dtype), (labels.shape[-1:], labels.dtype), *((x.shape, x.dtype) for x in shared)
    key = name, signature, digest.digest()
    with _lock:  # threads of one search ask for the same networks
        return cached(_functions, key, lambda: DistinctRows(_body(name, signature), shared), MOST_FUNCTIONS)


@functools.lru_cache(maxsize=MOST_BODIES)
def _body(name: str, kinds: tuple[tuple[tuple[int, ...], Any], ...]) -> Body:
    return Body(make_jaxpr(ROWWISE[name][1])(*(jax.ShapeDtypeStruct(*kind) for kind in kinds)))


def _at_each_point(name: str, lead: int, arrays: Sequence[np.ndarray]) -> Any:
    """The function with other arguments at each point."""
    points = np.broadcast_shapes(*(each.shape[:lead] for each in arrays))
    count, body = math.prod(points), _body(name, tuple((each.shape[lead:], each.dtype) for each in arrays))
    flat = [np.broadcast_to(each, (*points, *each.shape[lead:])).reshape(count, *each.shape[lead:]) for each in arrays]
    result = body(*(np.moveaxis(each, 0, -1) for each in flat))[0]
    result = np.broadcast_to(result, (*result.shape[:-1], count))
    return np.moveaxis(result, -1, 0).reshape(*points, *result.shape[:-1])[()]
