"""Bound that no order of serving beats at a rate, as a study over boxes: a kind of step that must occur, as a plan.

On each of E engines a second has y steps of every kind (at least b decodes and q prompt tokens, at most b' and q'; f
seconds at least). Whatever the order in which requests are served, with L decode steps and I computed prompt tokens of
a request on average, lambda requests/s of all engines, T agreed between tokens and F to the first,

    sum y (b' + v q') >= lambda (L + v I)                tokens, v what a prompt token counts as
    sum y f           <= E                               an engine makes one step after the other
    sum y f b         <= lambda (O - 1) T                Little's law of whoever decodes, O tokens an answer
    sum y f q / pp    <= lambda I F                      whose prompt is in a step waits for it

With weights 1, w, u >= 0 of the last three, each over its right side, some kind that occurs keeps

    f (lambda / E + w b / ((O - 1) T) + u q / (pp I F)) (L + v I)  <=  (b' + v q') (1 + w + u)

or the sum over all would break. So a study whose plans are kinds of steps and whose limit is this row has all designs
in it on which any schedule meets the SLO: its least price is a bound for all of them, whatever v, w and u are.
No step need be convex in what it carries. For a kind the row is a power of lambda and sums of it times a step's time:
log-convex in hardware and rate, where step times are. The best v, w, u at one design are the dual solution of the
linear programme of `simulation.serving.no_scheduler`, of which this is the bound over a box.

Source: linear programming duality (a combination of rows), Little's law; derived here, held against the simulation.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import quantity
from ...core.smooth import at_least, ceil
from .base import FamilyVocabulary
from .continuous import AbstractContinuousServing
from .lowering import forward_ops
from .mixed_step import MixedStep
from .plan import Layout, Plan
from .schedule import Op, Pass, Priced, Timeline, one_pass

PHASE = "step"
ENGINE = "engine.schedule"  # the row, among used shares
WIDEST = 100.0  # of a spacing
LEAST_LEFT_S = 1e-9  # of a limit on the first token that the host alone takes up
KEYS, HEAVY = ("device_count", "tp", "pp"), ("prompt_worth", "tpot_weight", "ttft_weight")
HEAVIEST = 1e6  # weight
ALONE = ("cp", "ep", "attention_dp")  # degrees by which several engines step together


class AnySchedule(AbstractContinuousServing):
    """Lower bounds at `arrivals_per_s` requests/s, under `ttft_s` and `tpot_s`, of any order of serving.

    A plan's `micro_batch` and `chunk` say which kind of step is looked at, of one engine: up to so many decodes, and
    those divided by `decode_spacing` or more; up to so many prompt tokens, and all but one of them divided by
    `prompt_spacing` or more (none, where `chunk` is 1). Lists of both must leave no gap (`check_lists`) and end at the
    most that any schedule puts into a step. Prices, powers and memory of a design are lower bounds as well: of energy
    only what idles is counted, and the memory of one step. Times agreed are means, `tpot_s` over tokens and `ttft_s`
    over prompt tokens; whoever keeps them for every request keeps them so.

    Assumes: decodes of a step have the mean context and prompt tokens the mean keys; a step takes at most `dip` less
    than one that carries less; no experts that are spread, no attention groups and no context parallelism, which make
    engines step together. Where kernels and collectives are formulas, the walk of `curvature` proves that steps take
    no less (`dip` = 0); calibrated kernels take whole tiles and are faster where these are full:
    `benchmarks/any_schedule.py dips` looks by how much.
    """

    words: ClassVar[FamilyVocabulary] = FamilyVocabulary(
        "serving in any order",
        "request",
        headline=("requests_per_s", "tokens_per_s", "least_step_s"),
        metrics={"time_s": ("Time between requests", "s"), "least_step_s": ("Step that must occur", "s")},
        assuming="no step takes more than the share workload.dip less than one that carries less (tested, not proven)",
    )

    arrivals_per_s: Float[Array, "*b"] = quantity(low=1e-9, high=1e12, default=1.0)
    ttft_s: Float[Array, "*b"] = quantity(low=1e-9, high=1e15, default=1e15, doc="agreed, mean over prompt tokens")
    tpot_s: Float[Array, "*b"] = quantity(low=1e-9, high=1e15, default=1e15, doc="agreed, mean over tokens")
    prompt_worth: Float[Array, "*b"] = quantity(
        high=HEAVIEST, default=0.0, doc="decodes that a prompt token counts as (v)"
    )
    tpot_weight: Float[Array, "*b"] = quantity(high=HEAVIEST, default=0.0, doc="of the time between tokens (w)")
    ttft_weight: Float[Array, "*b"] = quantity(high=HEAVIEST, default=0.0, doc="of the time to a first token (u)")
    weights: tuple[tuple[float, ...], ...] = eqx.field(
        static=True, default=(), converter=lambda rows: tuple(tuple(map(float, row)) for row in rows)
    )
    decode_spacing: float = eqx.field(static=True, default=1.1)
    prompt_spacing: float = eqx.field(static=True, default=1.5)
    dip: float = eqx.field(static=True, default=0.02)

    def __check_init__(self) -> None:
        """Kinds that are no narrower than a number; weights that are none below nothing."""
        for row in self.weights:
            if len(row) != len(KEYS) + len(HEAVY) or not all(0 <= value <= HEAVIEST for value in row):
                raise ConfigError(
                    f"workload.weights: {list(row)} is no {', '.join((*KEYS, *HEAVY))} up to {HEAVIEST:g}"
                )
        for name in ("decode_spacing", "prompt_spacing"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= WIDEST:
                raise ConfigError(f"workload.{name} = {value!r} must be a number from 1 to {WIDEST:g}")
        if isinstance(self.dip, bool) or not isinstance(self.dip, int | float) or not 0 <= self.dip < 1:
            raise ConfigError(f"workload.dip = {self.dip!r} must be a number from 0 to less than 1")

    def carried(self, plan: Any) -> tuple[Array, Array, Array, Array]:
        """Decodes and prompt tokens of a kind: the fewest of both, the most of both."""
        some = at_least(plan.token_budget - 1, 0.0) / at_least(plan.token_budget - 1, 1.0)  # 0 where the chunk is 1
        tokens = _least(at_least(plan.token_budget - 1, 1.0), self.prompt_spacing) * some
        alone = jnp.where(plan.micro_batch > 1, 1.0, 1 - some)  # of one decode or none, prompts may be alone
        return _least(plan.micro_batch, self.decode_spacing) * alone, tokens, plan.micro_batch, plan.token_budget * some

    def check_lists(self, listed: Mapping[str, Sequence[Any]]) -> None:
        """Refuse lists of kinds that leave steps out: what is proven would be of fewer schedules than is said.

        Raises:
            ConfigError: two values and what lies between them, or a list that does not begin at one.
        """
        super().check_lists(listed)
        for at, name in ((0, "micro_batch"), (1, "token_budget")):
            values = sorted({float(value) for value in listed.get(name, ())})
            if not values or values[0] != 1:
                raise ConfigError(f"space.plan.{name} must be listed and begin at 1: kinds of steps leave no gap")
            plans = [Plan(**{"micro_batch": 2.0, "token_budget": 2.0, name: value}) for value in values[1:]]
            for plan, before in zip(plans, (float(1 - at), *values[1:]), strict=False):
                first = float(self.carried(plan)[at])
                if first > before + 1:
                    raise ConfigError(
                        f"space.plan.{name}: steps of {before + 1:g} to {first - 1:g} are of no kind: list a value"
                        f" between {before:g} and {float(getattr(plan, name)):g}, or more spacing"
                    )

    def mixed_step(self, layout: Layout) -> MixedStep:
        """The least of a kind; see `carried`."""
        decodes, tokens, *_ = self.carried(layout.plan)
        prompts = at_least(tokens / self.computed_tokens(), 1.0)
        keys = self.attended() + 0.5 * tokens / prompts
        return MixedStep(
            self.model, self.precision, decodes, self.verified_tokens, self.context(), tokens, prompts, keys, tokens,
            self.images_of(tokens), self.drafted(),
        )  # fmt: skip

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Phase `step`: one of the least of its kind, on one stage; attention of what it carries."""
        layers, step = self.layers_per_stage(layout), self.mixed_step(layout)
        scored = step.decodes * self.verified_tokens + step.prompt_tokens / self.computed_tokens()
        ops = step.around(layout, layers, scored, phase=PHASE)
        some = dataclasses.replace(
            step, decodes=at_least(step.decodes, 1.0), prompt_tokens=at_least(step.prompt_tokens, 1.0)
        )
        for part, present in ((True, step.decodes), (False, step.prompt_tokens)):
            cores = forward_ops(some.cores(layout, mixed=not part, decodes=part), layers, phase=PHASE)
            ops += [dataclasses.replace(op, count=op.count * jnp.minimum(present, 1.0)) for op in cores]
        return tuple(ops)

    def least_s(self, done: Pass, layout: Layout) -> Array:
        """Least seconds of a step of the kind, from the first stage to the last."""
        decodes = self.carried(layout.plan)[0]
        return (1 - self.dip) * layout.plan.pp * self.with_host_s(self.device_s(done, decodes, layout), decodes)

    def weights_of(self, layout: Layout) -> list[Array]:
        """v, w and u of a plan: those of its devices and degrees where `weights` has a row of them."""
        result = [jnp.asarray(getattr(self, name)) for name in HEAVY]
        for count, tp, pp, *degrees in self.weights:
            mine = (layout.devices == count) & (layout.plan.tp == tp) & (layout.plan.pp == pp)
            result = [jnp.where(mine, value, usual) for value, usual in zip(degrees, result, strict=True)]
        return result

    def row(self, step: Array, layout: Layout) -> Array:
        """Used share of the combination of rows: at most 1 for a kind that must occur."""
        worth, between, before = self.weights_of(layout)
        decodes, tokens, most_decodes, most_tokens = self.carried(layout.plan)
        prompt, steps = self.computed_tokens(), (self.output_tokens - 1) / self.accepted_tokens
        answer, engines = (self.output_tokens - 1) * self.tpot_s, layout.dp * layout.plan.pp
        first = at_least(self.ttft_s - self.received_s(), LEAST_LEFT_S)
        waits = between * decodes / answer + before * tokens / (layout.plan.pp * prompt * first)
        row = (steps + worth * prompt) / (1 + between + before)
        return step * (self.arrivals_per_s / engines + waits) * (row / (most_decodes + worth * most_tokens))

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Timeline as long as the mean time between two arrivals."""
        done = one_pass(priced, PHASE, layout.plan, self.kernel_slowdown, self.launch_s)
        step, time, rate = self.least_s(done, layout), 1 / self.arrivals_per_s, self.arrivals_per_s
        extra = {"requests_per_s": rate, "least_step_s": step, "tokens_per_s_per_device": self._each(rate, layout)}
        return Timeline(
            time, {"waiting": time}, jnp.asarray(0.0), self.output_tokens, self._flops(), extra,
            usage={ENGINE: self.row(step, layout)},
        )  # fmt: skip

    def _each(self, rate: Array, layout: Layout) -> Array:
        return rate * self.output_tokens / layout.devices

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """None: what steps move, no schedule moves less than."""
        del layout
        return {PHASE: jnp.asarray(0.0)}

    def held_tokens(self, layout: Layout) -> Array:
        """Tokens in the cache of the decodes of one step, with mean contexts."""
        return self.carried(layout.plan)[0] * self.context()

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Rules of the base class except `prompts` and `batch`; degrees that make engines step together are illegal."""
        rules = super().violations(layout)
        together = jnp.asarray(0.0)
        for name in ALONE:
            together = together + at_least(getattr(layout.plan, name) - 1, 0.0)
        return {name: value for name, value in rules.items() if name not in ("prompts", "batch")} | {
            "engines_together": together
        }

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """Engines that step together."""
        if rule == "engines_together":
            given = ", ".join(f"plan.{name} = {float(getattr(layout.plan, name)):g}" for name in ALONE)
            return f"{given}: a bound on any schedule is of engines that step alone (each of them 1)"
        return super().broken_rule(rule, layout)


def _least(most: Array, spacing: float) -> Array:
    """The least whole number of a kind that ends at `most`, at least 1; what rounds is a number lower."""
    return at_least(ceil(most / spacing), 1.0)
