"""Posynomials read from a traced function: what a geometric programme can be written with.

A number that depends on the variables is a sum of monomials with signed weights (differences may stand where they
cancel again); a maximum, and a product or power of sums, is a new variable that is at least each of its parts.
"""

import functools
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from codesign.core import TINY

LONGEST = 64  # terms of a product that is multiplied out
REARRANGED = ("slice", "squeeze", "broadcast_in_dim", "reshape", "concatenate", "transpose", "copy", "stack")
UNCHANGED = ("convert_element_type", "copy_p", "stop_gradient")
Monomial = tuple[tuple[int, float], ...]
"""(variable, power) pairs, by rising variable."""


def _times(a: Monomial, b: Monomial, sign: float = 1.0) -> Monomial:
    powers = dict(a)
    for variable, power in b:
        powers[variable] = powers.get(variable, 0.0) + sign * power
    return tuple(sorted((variable, power) for variable, power in powers.items() if power))


@dataclass(frozen=True)
class Posynomial:
    """Sum of weight x monomial; every variable is 1 in the middle of the box, so the weights add to the value there."""

    terms: dict[Monomial, float]

    @property
    def middle(self) -> float:
        """Value where every variable is 1."""
        return sum(self.terms.values())

    @property
    def positive(self) -> bool:
        """Whether no difference is left."""
        return all(weight > 0 for weight in self.terms.values())

    def scaled(self, factor: float) -> "Posynomial":
        """Times a number."""
        return Posynomial({monomial: factor * weight for monomial, weight in self.terms.items()})

    def split(self) -> tuple["Posynomial", "Posynomial"]:
        """(minuend, subtrahend) of a difference."""
        kept = {m: w for m, w in self.terms.items() if w > 0}
        return Posynomial(kept), Posynomial({m: -w for m, w in self.terms.items() if w < 0})

    def over(self, monomial: "Posynomial") -> "Posynomial":
        """Divided by one term.

        Raises:
            NotImplementedError: the divisor has more: the quotient is no posynomial.
        """
        if len(monomial.terms) != 1:
            raise NotImplementedError("division by a sum is no posynomial")
        ((below, weight),) = monomial.terms.items()
        return Posynomial({_times(m, below, -1.0): w / weight for m, w in self.terms.items()})

    def renamed(self, number: dict[int, int]) -> "Posynomial":
        """With other numbers of the variables."""
        return Posynomial({tuple((number[v], power) for v, power in m): w for m, w in self.terms.items()})


@dataclass(frozen=True)
class Quotient:
    """Something over a difference: no posynomial, but at most 1 where numerator + subtrahend is at most minuend."""

    numerator: Any
    denominator: Posynomial

    def parts(self) -> tuple[Posynomial, Posynomial]:
        """What is together at most 1 exactly where the quotient is; the first scales with the numerator."""
        minuend, subtrahend = self.denominator.split()
        return posynomial(self.numerator).over(minuend), subtrahend.over(minuend)


def posynomial(value: Any) -> Posynomial:
    """A number as one."""
    return value if isinstance(value, Posynomial) else Posynomial({(): float(value)} if value else {})


def added(a: Any, b: Any, sign: float = 1.0) -> Any:
    """a + sign b; terms that cancel leave nothing."""
    if not isinstance(a, Posynomial) and not isinstance(b, Posynomial):
        return a + sign * b
    terms = dict(posynomial(a).terms)
    for monomial, weight in posynomial(b).terms.items():
        before = terms.pop(monomial, 0.0)
        if abs(before + sign * weight) > 1e-12 * abs(weight):
            terms[monomial] = before + sign * weight
    return Posynomial(terms) if terms else 0.0


@dataclass
class Reader:
    """Evaluates a traced function in posynomials.

    extents: least and largest value of each variable; least: (part, variable) where the part is at most the variable.
    """

    extents: list[tuple[float, float]]
    least: list[tuple[Posynomial, int]] = field(default_factory=list)
    known: dict[Any, Posynomial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Rules of the primitives."""
        self.inputs = len(self.extents)
        self.rules = {
            "add": added, "add_any": added, "sub": lambda a, b: added(a, b, -1.0), "mul": self.product,
            "div": self.quotient, "max": self.largest, "gt": _above, "ne": _above, "pow": self.power,
            "le": lambda a, b: not _above(a, b),
        }  # fmt: skip

    def variable(self, index: int) -> np.ndarray:
        """An input of the traced function."""
        return _boxed(Posynomial({((index, 1.0),): 1.0}))

    def extent(self, value: Posynomial) -> tuple[float, float]:
        """Bounds of a sum of positive terms over the box."""
        ends = np.array([
            [weight * math.prod(self.extents[v][(power < 0) ^ end] ** power for v, power in monomial) for end in (0, 1)]
            for monomial, weight in value.terms.items()
        ])  # fmt: skip
        low, high = ends.sum(axis=0)
        return float(low), float(high)

    def bounded(self, *parts: Posynomial) -> Posynomial:
        """A variable that is at least each part."""
        if not all(part.positive for part in parts):
            raise NotImplementedError("a maximum of differences")
        key = frozenset(frozenset(part.terms.items()) for part in parts)
        if key not in self.known:
            scale, index = max(part.middle for part in parts), len(self.extents)
            low, high = np.max([self.extent(part) for part in parts], axis=0) / scale
            self.extents.append((float(low), float(high)))
            self.least += [(part.scaled(1 / scale), index) for part in parts]
            self.known[key] = Posynomial({((index, 1.0),): scale})
        return self.known[key]

    def reached(self, rows: list[Posynomial]) -> tuple[list[int], list[Posynomial]]:
        """(inputs and the variables that rows depend on, definitions of these: posynomials that are at most 1).

        Raises:
            NotImplementedError: something is divided by a variable that stands for a maximum.
        """
        used, todo, definitions = set(range(self.inputs)), list(rows), []
        while todo:
            row = todo.pop()
            if any(power < 0 and variable >= self.inputs for monomial in row.terms for variable, power in monomial):
                raise NotImplementedError("division by a maximum is no posynomial")
            new = {variable for monomial in row.terms for variable, _ in monomial} - used
            used |= new
            parts = [(part, variable) for part, variable in self.least if variable in new]
            todo += [part for part, _ in parts]
            definitions += [part.over(Posynomial({((variable, 1.0),): 1.0})) for part, variable in parts]
        return sorted(used), definitions

    def largest(self, a: Any, b: Any) -> Any:
        """The maximum; without a new variable where one part is the larger all over the box."""
        if not isinstance(a, Posynomial) and not isinstance(b, Posynomial):
            return max(a, b)
        if any(not isinstance(each, Posynomial) and math.isnan(each) for each in (a, b)):
            return math.nan
        for one, other in ((a, b), (b, a)):
            if not isinstance(one, Posynomial) and one <= 0:
                return other
        a, b = posynomial(a), posynomial(b)
        for one, other in ((a, b), (b, a)):
            if all(weight <= other.terms.get(monomial, 0.0) for monomial, weight in one.terms.items()):
                return other
            if one.positive and other.positive and self.extent(one)[1] <= self.extent(other)[0]:
                return other
        return self.bounded(a, b)

    def product(self, a: Any, b: Any) -> Any:
        """a b: multiplied out where that is short."""
        if not isinstance(a, Posynomial) or not isinstance(b, Posynomial):
            number, other = (b, a) if isinstance(a, Posynomial) else (a, b)
            if not isinstance(other, Posynomial):
                return number * other
            return other.scaled(float(number)) if number else 0.0
        if len(a.terms) * len(b.terms) > LONGEST and a.positive and b.positive:
            a, b = (self.bounded(each) if len(each.terms) > 1 else each for each in (a, b))
        total: Any = 0.0
        for (m, v), (n, w) in itertools.product(a.terms.items(), b.terms.items()):
            total = added(total, Posynomial({_times(m, n): v * w}))
        return total

    def quotient(self, a: Any, b: Any) -> Any:
        """a / b."""
        if not isinstance(b, Posynomial):
            if b == 0:
                return math.nan  # of a branch that is not taken
            return self.product(a, 1.0 / b) if isinstance(a, Posynomial) else a / b
        if not b.positive:
            return Quotient(a, b)
        return posynomial(a).over(b) if isinstance(a, Posynomial) or a else 0.0

    def power(self, a: Any, b: Any) -> Any:
        """a to a known power."""
        b = float(b)
        if not isinstance(a, Posynomial):
            return a**b
        base = a if len(a.terms) == 1 or b < 0 else self.bounded(a)
        if len(base.terms) > 1:
            raise NotImplementedError("the reciprocal of a sum is no posynomial")
        ((monomial, weight),) = base.terms.items()
        return Posynomial({tuple((variable, power * b) for variable, power in monomial): weight**b})

    def run(self, jaxpr: Any, consts: Any, inputs: Any) -> list[Any]:
        """Values of a jaxpr's outputs, from those equations only that they need."""
        values = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, inputs, strict=True))
        needed, asked = {v for v in jaxpr.outvars if not hasattr(v, "val")}, []
        for equation in reversed(jaxpr.eqns):
            if needed & set(equation.outvars):
                asked.append(equation)
                needed |= {v for v in equation.invars if not hasattr(v, "val")}
        for equation in reversed(asked):
            taken = [v.val if hasattr(v, "val") else values[v] for v in equation.invars]
            values.update(zip(equation.outvars, self._equation(equation, taken), strict=True))
        return [v.val if hasattr(v, "val") else values[v] for v in jaxpr.outvars]

    def _equation(self, equation: Any, taken: list[Any]) -> list[Any]:
        name = equation.primitive.name
        inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        if inner is not None:
            return self.run(inner.jaxpr, inner.consts, taken)
        if not any(isinstance(each, np.ndarray) and each.dtype == object for each in taken):
            if name in NUMBERS:
                return [NUMBERS[name](*taken)]
            out = equation.primitive.bind(*map(jnp.asarray, taken), **equation.params)
            return list(map(np.asarray, out)) if equation.primitive.multiple_results else [np.asarray(out)]
        if name in REARRANGED:
            return [_rearranged(equation, taken)]
        if name in UNCHANGED:
            return [taken[0]]
        if name == "select_n":
            return [_elementwise(lambda which, *cases: cases[int(which)], *taken)]
        if name == "reduce_max":
            return [_reduced(self.largest, taken[0], equation.params["axes"])]
        rule = self.rules.get(name)
        if name == "integer_pow":
            rule = lambda a: self.power(a, equation.params["y"])  # noqa: E731
        if rule is None:
            raise NotImplementedError(f"{name} has no rule")
        return [_elementwise(_careful(rule), *taken)]


def _reduced(combine: Any, values: np.ndarray, axes: Any) -> np.ndarray:
    """Elements along these axes taken together, two at a time."""
    kept = [axis for axis in range(values.ndim) if axis not in axes]
    rows = values.transpose(*kept, *axes).reshape(*(values.shape[axis] for axis in kept), -1)
    result = np.empty(rows.shape[:-1], dtype=object)
    for place in np.ndindex(result.shape):
        result[place] = functools.reduce(combine, rows[place])
    return result


NUMBERS = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "gt": np.greater, "lt": np.less, "le": np.less_equal, "ge": np.greater_equal, "ne": np.not_equal,
    "and": np.logical_and, "floor": np.floor, "ceil": np.ceil, "abs": np.abs, "stop_gradient": np.asarray,
}  # fmt: skip
"""Of numbers that depend on no variable, what NumPy answers sooner than the compiler."""


def _boxed(value: Any) -> np.ndarray:
    box = np.empty((), dtype=object)
    box[()] = value
    return box


def _above(a: Any, b: Any) -> bool:
    """a > b, a != b, for the only question that a positive expression answers: against nothing, or next to nothing.

    A difference under a quotient counts as positive: where it bounds a share, it has to be.
    """
    if not isinstance(a, Posynomial) and not isinstance(b, Posynomial):
        return a > b
    if not isinstance(b, Posynomial) and b <= TINY:
        return True
    raise NotImplementedError("a comparison that depends on the hardware")


def _careful(rule: Any) -> Any:
    """Of a branch that is not taken there may be no posynomial; a goal or limit refuses what comes of it."""

    def careful(*parts: Any) -> Any:
        try:
            return math.nan if any(isinstance(part, Quotient) for part in parts) else rule(*parts)
        except NotImplementedError:
            return math.nan

    return careful


def _elementwise(rule: Any, *arrays: Any) -> np.ndarray:
    arrays = np.broadcast_arrays(*(np.asarray(each, dtype=object) for each in arrays))
    out = np.empty(arrays[0].shape, dtype=object)
    for place in np.ndindex(out.shape):
        out[place] = rule(*(each[place] for each in arrays))
    return out


def _rearranged(equation: Any, inputs: list[np.ndarray]) -> np.ndarray:
    """What moves elements without looking at them, done on their places."""
    flat = [value for each in inputs for value in np.asarray(each, dtype=object).ravel().tolist()]
    starts = np.cumsum([0, *(np.size(each) for each in inputs)])
    places = [jnp.arange(np.size(each)).reshape(np.shape(each)) + starts[i] for i, each in enumerate(inputs)]
    moved = np.asarray(equation.primitive.bind(*places, **equation.params))
    out = np.empty(moved.shape, dtype=object)
    for place in np.ndindex(out.shape):
        out[place] = flat[int(moved[place])]
    return out
