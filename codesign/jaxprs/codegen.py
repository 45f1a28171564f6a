"""A list of operations written out as one Python function, so that little is spent between two of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .program import Equation

__all__ = ["written_calls"]


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
