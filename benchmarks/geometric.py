"""One plan of a problem as a geometric programme of CVXPY, read from the traced model: a second opinion on optima.

Nothing of `codesign.search` but the problem itself is used: no tangents, no reading of maxima, no bounds.
"""

import math
from typing import Any

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np

from codesign.metrics import evaluate
from codesign.search import Problem

OPTIONS = {
    cp.CLARABEL: {"max_iter": 500, "tol_gap_abs": 1e-7, "tol_gap_rel": 1e-7, "tol_feas": 1e-7},
    cp.SCS: {"eps_abs": 1e-6, "eps_rel": 1e-6, "max_iters": 50000},
}
REARRANGED = ("slice", "squeeze", "broadcast_in_dim", "reshape", "concatenate", "transpose", "copy")
UNCHANGED = ("convert_element_type", "copy_p", "stop_gradient")


class Sum:
    """A sum of positive expressions with signed weights: differences may stand where they cancel again."""

    def __init__(self, terms: dict[int, tuple[float, Any]]):
        self.terms = terms

    def whole(self) -> Any:
        """As one expression of CVXPY."""
        if not all(weight > 0 for weight, _ in self.terms.values()):
            raise NotImplementedError("a difference is no posynomial")
        return sum(weight * expression for weight, expression in self.terms.values())


class Quotient:
    """Something over a difference: no posynomial, but at most 1 where numerator + subtrahend is at most minuend."""

    def __init__(self, numerator: Any, denominator: Sum):
        self.numerator, self.denominator = numerator, denominator

    def at_most_one(self) -> Any:
        """The constraint."""
        kept = Sum({key: term for key, term in self.denominator.terms.items() if term[0] > 0})
        return _add(self.numerator, _add(kept, self.denominator, -1.0)).whole() / kept.whole() <= 1


def atom(expression: Any) -> Any:
    """An expression that is not looked into; a number stays one."""
    return Sum({id(expression): (1.0, expression)}) if isinstance(expression, cp.Expression) else float(expression)


def _known(value: Any) -> bool:
    return not isinstance(value, Sum)


ONE = cp.Constant(1.0)


def _terms(value: Any) -> dict[int, tuple[float, Any]]:
    return {id(ONE): (float(value), ONE)} if _known(value) else value.terms


def _add(a: Any, b: Any, sign: float = 1.0) -> Any:
    if _known(a) and _known(b):
        return a + sign * b
    terms = dict(_terms(a))
    for key, (weight, expression) in _terms(b).items():
        before = terms.pop(key, (0.0,))[0]
        if abs(before + sign * weight) > 1e-12 * abs(weight):  # else they cancel
            terms[key] = (before + sign * weight, expression)
    total = Sum(terms)
    return total if total.terms else 0.0


def _mul(a: Any, b: Any) -> Any:
    if _known(a) and _known(b):
        return a * b
    if _known(a) or _known(b):
        number, other = (a, b) if _known(a) else (b, a)
        return (
            Sum({key: (float(number) * weight, each) for key, (weight, each) in other.terms.items()}) if number else 0.0
        )
    return atom(a.whole() * b.whole())


def _div(a: Any, b: Any) -> Any:
    if _known(b) and b == 0:
        return math.nan  # of a branch that is not taken
    if _known(b):
        return _mul(a, 1.0 / b) if not _known(a) else a / b
    if any(weight < 0 for weight, _ in b.terms.values()):
        return Quotient(a, b)
    if _known(a):
        return atom(float(a) / b.whole()) if a else 0.0
    return atom(a.whole() / b.whole()) if a.terms else 0.0


def _max(a: Any, b: Any) -> Any:
    if _known(a) and _known(b):
        return max(a, b)
    if (_known(a) and math.isnan(a)) or (_known(b) and math.isnan(b)):
        return math.nan
    if _known(a) or _known(b):
        number, other = (a, b) if _known(a) else (b, a)
        return other if number <= 0 else atom(cp.maximum(float(number), other.whole()))
    return atom(cp.maximum(a.whole(), b.whole())) if a.terms and b.terms else (a if a.terms else b)


def _positive(a: Any, b: Any) -> Any:
    """a > b, a != b, for the only question that a positive expression answers: against nothing."""
    if _known(a) and _known(b):
        return a > b
    if _known(b) and b <= 0:
        return bool(a.terms)
    raise NotImplementedError("a comparison that depends on the hardware")


def _power(a: Any, b: Any) -> Any:
    return a**b if _known(a) else atom(a.whole() ** float(b))


def _choose(which: Any, *cases: Any) -> Any:
    return cases[int(which)]


MOVES = (_choose,)
RULES = {
    "add": _add, "add_any": _add, "sub": lambda a, b: _add(a, b, -1.0), "mul": _mul, "div": _div, "max": _max,
    "gt": _positive, "ne": _positive, "pow": _power,
}  # fmt: skip


def _elementwise(rule: Any, *arrays: Any) -> np.ndarray:
    arrays = np.broadcast_arrays(*(np.asarray(each, dtype=object) for each in arrays))
    out = np.empty(arrays[0].shape, dtype=object)
    for place in np.ndindex(out.shape):
        try:
            if any(isinstance(each[place], Quotient) for each in arrays) and rule not in MOVES:
                raise NotImplementedError("a quotient by a difference is only ever held against its bound")
            out[place] = rule(*(each[place] for each in arrays))
        except NotImplementedError:
            out[place] = math.nan  # of a branch that is not taken, or the goal refuses it
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


def _evaluate(jaxpr: Any, consts: Any, inputs: Any) -> list[Any]:
    """Values of a jaxpr's outputs, from those equations only that they need."""
    values = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, inputs, strict=True))
    needed = {v for v in jaxpr.outvars if not hasattr(v, "val")}
    asked = []
    for equation in reversed(jaxpr.eqns):
        if needed & set(equation.outvars):
            asked.append(equation)
            needed |= {v for v in equation.invars if not hasattr(v, "val")}
    for equation in reversed(asked):
        taken = [v.val if hasattr(v, "val") else values[v] for v in equation.invars]
        values.update(zip(equation.outvars, _one(equation, taken), strict=True))
    return [v.val if hasattr(v, "val") else values[v] for v in jaxpr.outvars]


def _one(equation: Any, taken: list[Any]) -> list[Any]:
    name = equation.primitive.name
    if not any(np.asarray(each).dtype == object for each in taken):
        out = equation.primitive.bind(*taken, **equation.params)
        return list(out) if equation.primitive.multiple_results else [out]
    if "jaxpr" in equation.params:
        inner = equation.params["jaxpr"]
        return _evaluate(inner.jaxpr, inner.consts, taken)
    if name in REARRANGED:
        return [_rearranged(equation, taken)]
    if name in UNCHANGED:
        return [taken[0]]
    if name == "integer_pow":
        return [_elementwise(lambda a: _power(a, equation.params["y"]), taken[0])]
    if name == "select_n":
        return [_elementwise(_choose, *taken)]
    if name not in RULES:
        raise NotImplementedError(f"{name} has no rule")
    return [_elementwise(RULES[name], *taken)]


def optimum(problem: Problem, plan: dict[str, float]) -> float:
    """Log of the least goal of one plan over the box of hardware; inf where nothing keeps all constraints."""
    hardware = problem.space.hardware
    names = problem.space.names

    def rows(values: dict[str, Any]) -> list[Any]:
        metrics = evaluate(problem.space.place(problem.scenario, plan | values))
        return [metrics.get(problem.objective.goal), *problem.objective.usages(metrics).values()]

    middle = {name: jnp.asarray(math.sqrt(hardware[name].low * hardware[name].high)) for name in names}
    traced = jax.make_jaxpr(rows)(middle)
    scaled = {name: cp.Variable(pos=True) for name in names}  # of the middle, so that all are near 1
    inputs = []
    for name in sorted(names):
        value = np.empty((), dtype=object)
        value[()] = atom(float(middle[name]) * scaled[name])
        inputs.append(value)
    goal, *used = (np.asarray(out, dtype=object)[()] for out in _evaluate(traced.jaxpr, traced.consts, inputs))
    limits = [share.at_most_one() for share in used if isinstance(share, Quotient)]
    used = [share for share in used if not isinstance(share, Quotient)]
    if any(_known(share) and not math.isfinite(share) for share in used):
        raise NotImplementedError("a constraint that is no posynomial")
    limits += [share.whole() <= 1 for share in used if not _known(share)]
    if any(_known(share) and share > 1 for share in used):
        return math.inf
    for name in names:
        limits += [scaled[name] >= hardware[name].low / float(middle[name])]
        limits += [scaled[name] <= hardware[name].high / float(middle[name])]
    programme = cp.Problem(cp.Minimize(goal.whole()), limits)
    for solver in (cp.CLARABEL, cp.SCS):
        try:
            programme.solve(gp=True, solver=solver, **OPTIONS[solver])
            break
        except cp.error.SolverError:
            continue
    if programme.status not in ("optimal", "optimal_inaccurate"):
        return math.inf
    return math.log(programme.value)
