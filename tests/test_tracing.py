"""What the tests trace is what JAX traces: equation by equation, with the line of the model that wrote it."""

import jax
import pytest
import tracing
from contracts.choices import built, nameless

from codesign.metrics import evaluate
from codesign.staging import flatten

FORGOTTEN = "an operation outside this package"  # JAX does not know who asked for a choice that it has traced before


def told(scenario):
    """All that a traced evaluation says, and the lines that wrote it."""
    program = flatten(jax.jit(lambda tree: evaluate(tree).flat()).trace(scenario).jaxpr)
    equations = [(one.name, str(one.params), one.inputs, one.outputs) for one in program.equations]
    known = {slot: (value.dtype, value.tolist()) for slot, value in program.known.items()}
    rest = known, program.inputs, program.outputs, program.shapes, program.kinds
    return equations, [one.where for one in program.equations], rest


@pytest.mark.parametrize("choice", ["workload=disaggregated", "fabric=lightpath"])
def test_it_is_traced_as_usual(choice):
    scenario = nameless(built(choice))
    with tracing.as_usual():
        equations, lines, rest = told(scenario)
    others, other_lines, other_rest = told(scenario)
    assert len(equations) > 1000
    for place, (one, other) in enumerate(zip(equations, others, strict=True)):
        assert one == other, place
    assert rest == other_rest
    assert {one for one, other in zip(lines, other_lines, strict=True) if one != other} <= {FORGOTTEN}


def test_plain_numbers_are_traced_as_usual():
    """Numbers that take the type of what they meet and numbers that do not, with and without axes."""

    def asked(weak, strong, many):
        plain = [weak + 1, 1 - weak, 2.0 * weak, 1 / weak, weak / 3, weak > 0, weak <= 1.0, weak * True]
        mixed = [
            weak + strong,
            strong * weak,
            strong - 1,
            2 / strong,
            strong > 0,
            many * weak,
            weak - many,
            many / many,
        ]
        mixed += [3 * strong, 1 - strong, strong <= 1, many + 1, (weak > 0) & (strong > 0), (many > 0) & (weak > 0)]
        for greatest in (jax.numpy.maximum, jax.numpy.minimum):
            mixed += [greatest(one, other) for one in (weak, strong, many) for other in (weak, strong, many, 0.0, 1)]
            mixed += [greatest(0.0, weak), greatest(1, many)]
        for name in ("log", "exp", "sqrt", "log1p", "expm1", "abs"):
            mixed += [getattr(jax.numpy, name)(one) for one in (weak, strong, many, 2.0)]
        chosen = [jax.numpy.where(weak > 0, one, 0.0) for one in (weak, strong, many)]
        chosen += [jax.numpy.where(strong > 0, weak, other) for other in (weak, strong, many, 1)]
        return plain + mixed + chosen

    numbers = (1.0, jax.numpy.float64(2.0), jax.numpy.arange(3.0))
    quick = jax.make_jaxpr(asked, return_shape=True)(*numbers)
    with tracing.as_usual():
        usual = jax.make_jaxpr(lambda *given: asked(*given), return_shape=True)(*numbers)
    assert [(one.dtype, one.shape, one.weak_type) for one in quick[0].out_avals] == [
        (one.dtype, one.shape, one.weak_type) for one in usual[0].out_avals
    ]
    first, second = flatten(quick[0]), flatten(usual[0])
    assert [(one.name, str(one.params), one.inputs) for one in first.equations] == [
        (one.name, str(one.params), one.inputs) for one in second.equations
    ]
