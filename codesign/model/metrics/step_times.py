"""Seconds of an engine's steps on a design, over what they carry: what `simulation.serving` asks for."""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from ...core.jax_typed import asarray
from ...core.smooth import at_least
from ...jaxprs.evaluator import interpreted
from ...simulation.serving import TabulatedSteps
from ..scenario import Scenario
from ..workloads.continuous import AbstractContinuousServing
from ..workloads.mixed_step import MixedStep
from ..workloads.schedule import one_pass
from .cache_placement import with_cache_placed

LEVELS = 14  # numbers of decodes, and of prompt tokens, that are priced
NEAR = 8  # numbers of decodes on either side of the plan's that are priced one by one: tiles of kernels show there
LEAST = 32  # steps that are priced at once; more are in powers of two
MARGIN = 3.0  # a simulation may decode so many times the sequences of the plan


def step_s(
    scenario: Scenario,
    decodes: Array,
    context: Array,
    prompt_tokens: Array,
    keys: Array,
    shared: Array,
    *,
    mixed: bool,
    host: bool = True,
    alone: bool = False,
) -> Array:
    """One step of a pipeline's part, from the first stage to the last.

    Args:
        scenario: the design, its workload continuous batching.
        decodes: sequences of one attention group, each with `context` tokens.
        context: mean over the sequences.
        prompt_tokens: of the group; `shared` is the mean over all groups that step together.
        keys: mean over the prompt tokens.
        shared: see `prompt_tokens`.
        mixed: whether the step carries prompts at all.
        host: whether the engine's own time is part of it.
        alone: whether nothing is decoded in it (`decodes` is 0 then).
    """
    scenario = with_cache_placed(scenario)
    work, layout = scenario.workload, scenario.layout
    assert isinstance(work, AbstractContinuousServing)
    prompts = at_least(prompt_tokens / work.computed_tokens(), 1.0)
    step = MixedStep(
        work.model, work.precision, decodes, work.verified_tokens, context / layout.plan.cp,
        prompt_tokens / layout.plan.cp, prompts, keys + 0.5 * prompt_tokens / prompts, shared / layout.plan.cp,
        work.images_of(prompt_tokens / layout.plan.cp), work.drafted(),
    )  # fmt: skip
    first = shared / work.computed_tokens() if mixed else asarray(0.0)
    scored = layout.plan.attention_dp * (decodes * work.verified_tokens + first)
    ops = step.lower(layout, work.layers_per_stage(layout), scored, phase="mixed", mixed=mixed, decodes=not alone)
    ops.append(work.cache_in(layout, step, "mixed", prompts=mixed))
    costs = scenario.cluster.joining(layout.devices).price(ops, layout)
    done = one_pass(list(zip(ops, costs, strict=True)), "mixed", layout.plan, work.kernel_slowdown, work.launch_s)
    seconds = work.step_s(done, layout) if host else work.device_s(done, decodes, layout)
    return layout.plan.pp * seconds


@functools.cache
def _priced(mixed: bool, host: bool, alone: bool) -> Any:
    """`step_s` over lists of what is carried."""
    asked = functools.partial(step_s, mixed=mixed, host=host, alone=alone)
    return interpreted(jax.vmap(asked, in_axes=(None, 0, 0, 0, 0, 0)), always=True)


def _ask(scenario: Scenario, mixed: bool, host: bool, *columns: np.ndarray | float, alone: bool = False) -> np.ndarray:
    whole = np.broadcast_arrays(*map(np.asarray, columns))
    count = len(whole[0])
    more = (0, (1 << max(count - 1, LEAST - 1).bit_length()) - count)  # few lengths: each is a trace of its own
    result = _priced(mixed, host, alone)(scenario, *(np.pad(each, more, mode="edge") for each in whole))
    return np.asarray(result, dtype=float)[:count]


def tabulated_steps(
    scenario: Scenario,
    *,
    prompts: bool = True,
    host: bool = True,
    alone: bool = False,
    alike: float | None = None,
) -> TabulatedSteps:
    """Steps of one attention group of one part of a pipeline, which others have prompts for as well or not, with the
    engine's own time or without. Steps that decode nothing are as long as those that decode one sequence, unless
    `alone`: then prompts have them for themselves.

    Contexts enter by their slope at the plan's mean, the keys of prompts by theirs. Where other groups step together
    with this one, a step in which it has no prompts is as long as theirs with the share of steps in which they have;
    `alike` is their mean prompt tokens over those of this one, where the plan's rhythm does not say.
    """
    work, layout = scenario.workload, scenario.layout
    assert isinstance(work, AbstractContinuousServing)
    rhythm, context, keys = work.rhythm(layout), float(work.context()), float(work.attended())
    batch, chunk = float(rhythm.decodes), float(layout.plan.token_budget)
    around = np.rint(batch) + np.arange(-NEAR, NEAR + 1)
    decodes = np.unique(np.concatenate([np.rint(np.geomspace(1, MARGIN * batch + 1, LEVELS)), around[around >= 1]]))
    carries = float(rhythm.state.tokens)
    tokens = np.unique([*np.rint(np.geomspace(1, max(chunk, 2), LEVELS)), np.floor(carries), np.ceil(carries + 1e-9)])
    if alike is None:
        alike = float(rhythm.shared_tokens / rhythm.state.tokens)  # prompt tokens of all groups over those of this one
    short, long = (_ask(scenario, False, host, decodes, factor * context, 0.0, 0.0, 0.0) for factor in (0.5, 1.5))
    slope = np.maximum((long - short) / (decodes * context), 0.0)
    reading = slope * decodes * context
    plain = _ask(scenario, False, host, decodes, context, 0.0, 0.0, 0.0) - reading
    carried = np.repeat(decodes, len(tokens)), np.tile(tokens, len(decodes))
    near, far = (
        _ask(scenario, True, host, carried[0], context, carried[1], factor * keys, alike * carried[1])
        for factor in (1, 1.5)
    )
    usual_ones = (carried[1] >= 0.5 * carries) & (carried[1] <= 2 * carries)  # few tokens cost what a launch does
    pair = max(float(np.median(((far - near) / (0.5 * keys * carried[1]))[usual_ones])), 0.0)
    mixed = (near - pair * keys * carried[1]).reshape(len(decodes), len(tokens)) - reading[:, None]
    others = float((rhythm.mixed - rhythm.state.share) / at_least(1 - rhythm.state.share, 1e-9)) if prompts else 0.0
    middle: list[float] = [np.interp(carries, tokens, row) for row in mixed]
    usual = np.array(middle) + pair * keys * carries
    linear = np.column_stack([(1 - others) * plain + others * usual, mixed])
    first = linear[:1].copy()
    if alone:
        prompts_alone = _ask(scenario, True, host, 0.0, context, tokens, keys, alike * tokens, alone=True)
        first[0, 1:] = prompts_alone - pair * keys * tokens
    return TabulatedSteps(
        [0.0, *decodes.tolist()], [0.0, *tokens.tolist()], np.vstack([first, linear]),
        np.concatenate([slope[:1], slope]), pair,
    )  # fmt: skip
