"""Norms of two numbers by half as many powers.

(a / top)^p + (b / top)^p with top = max(a, b) has one power of one. It is one where top has an end and no number where
it has none, as top / top is: the other power is that of min(a, b) / top, and the sum is the same to the last bit.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from jax import lax

from ..jaxprs.program import Equation, Program, reduced


class _Pair(NamedTuple):
    """Slots of a norm: both numbers, the larger one, the exponent."""

    numbers: tuple[int, int]
    top: int
    exponent: int


def with_fewer_powers(program: Program) -> Program:
    """Rewrite norms of two numbers in a program without identities by fewer powers; exponents are at least one."""
    maker = {slot: equation for equation in program.equations for slot in equation.outputs}
    shapes, kinds, equations = list(program.shapes), list(program.kinds), list[Equation]()

    def put(like: Equation, primitive: Any, inputs: tuple[int, ...]) -> int:
        made = like._replace(name=primitive.name, primitive=primitive, params={}, inputs=inputs)
        shapes.append(shapes[inputs[0]])
        kinds.append(kinds[inputs[0]])
        equations.append(made._replace(outputs=(len(shapes) - 1,)))
        return len(shapes) - 1

    for equation in program.equations:
        pair = _pair_of(equation, maker)
        if pair is not None:
            least = put(equation, lax.min_p, pair.numbers)
            one = put(equation, lax.div_p, (pair.top, pair.top))
            share = put(equation, lax.div_p, (least, pair.top))
            equation = equation._replace(inputs=(one, put(equation, lax.pow_p, (share, pair.exponent))))
        equations.append(equation)
    return reduced(program._replace(equations=equations, shapes=shapes, kinds=kinds))


def _pair_of(equation: Equation, maker: Mapping[int, Equation]) -> _Pair | None:
    """Parts of a norm, if the equation is one: the sum of two powers of shares of the larger."""
    powers = [maker.get(slot) for slot in equation.inputs]
    if equation.name != "add" or not all(power is not None and power.name == "pow" for power in powers):
        return None
    (first, exponent), (second, other) = (power.inputs for power in powers if power is not None)
    shares = [maker.get(first), maker.get(second)]
    if exponent != other or not all(share is not None and share.name == "div" for share in shares):
        return None
    (one, top), (two, same) = (share.inputs for share in shares if share is not None)
    largest = maker.get(top)
    if top != same or one == two or largest is None or largest.name != "max" or {one, two} != {*largest.inputs}:
        return None
    return _Pair((one, two), top, exponent)
