"""Training in one pipeline whose last stages run on accelerators of a second kind."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from ...core.computed_once import computed_once
from ...core.errors import ConfigError
from ...core.fields import static
from ...core.smooth import at_least, at_most, ceil, maximum
from .lowering import indivisible
from .plan import Layout
from .schedule import LATER, Op, Priced, Timeline
from .training import AbstractTraining
from .training_memory import Classes, StageMemory, peak
from .transformer import Transformer


class StagesOfOneKind(AbstractTraining):
    """The stages of one kind of accelerator: their layers, and what they hold at their places in the pipeline."""

    later: bool = static(default=False)

    def layers_per_stage(self, layout: Layout) -> Array:
        """Layers that the plan gives a later stage; the others have equal parts of the rest."""
        plan = layout.plan
        after = jnp.where(plan.later_layers > 0, plan.later_layers, ceil(self.model.layers / plan.pp))
        if self.later:
            return after
        return (self.model.layers - after * plan.later_stages) / at_least(plan.pp - plan.later_stages, 1.0)

    @computed_once
    def stages(self, layout: Layout) -> dict[str, StageMemory]:
        """First and second stage of this kind, and the last of the pipeline where it is of this kind."""
        plan, layers, none = layout.plan, self.layers_per_stage(layout), jnp.asarray(0.0)
        begin = plan.pp - plan.later_stages if self.later else none
        count = plan.later_stages if self.later else plan.pp - plan.later_stages
        ends = jnp.where(plan.later_stages > 0, 1.0 if self.later else 0.0, 0.0 if self.later else 1.0)
        alone = 2 - self.model.tied_embeddings
        first = none if self.later else jnp.where(plan.pp > 1, 1.0, alone)
        last = at_least(plan.pp - 1, 0.0)
        return {
            "first": StageMemory(layers, first, self.in_flight(layout, begin), copies=jnp.asarray(1.0)),
            "middle": StageMemory(
                jnp.where(count > 1, layers, 0.0), none, self.in_flight(layout, at_most(begin + 1, last)),
                copies=jnp.asarray(1.0),
            ),
            "last": StageMemory(
                ends * layers, ends * jnp.where(plan.pp > 1, 1.0, alone), self.in_flight(layout, last), scores=True,
                copies=jnp.asarray(1.0),
            ),
        }  # fmt: skip


class MixedTraining(AbstractTraining):
    """One optimizer step in a pipeline of p stages of which the last q, `plan.later_stages`, are accelerators of
    `Cluster.later_stages`, each with l' = `plan.later_layers` layers, the first p - q with (L - q l') / (p - q) each.

    A micro-batch goes through the pipeline as fast as its slowest stage; 1F1B fills and drains it once. With t and t'
    the forward and backward of a stage of either kind, h the head on the last stage:

        T = (m - 1) max(t, t' + h) + h
            + max((p - q - 1) t + q t' + e, (p - q) t + (q - 1) t' + e')

    where e and e' are the first forward with the parameters it gathers, the last backward with the gradients it
    exchanges, and the update of either kind. Alike stages give the time of `Training`. Devices are those of both kinds
    together: q / p of them are of the second.

    Assumes: a message costs what it does on the networks of the kind that sends and of the kind that receives, each a
    part of its stage; data ranks exchange gradients among their own kind; one chunk a stage.
    Source: closed form of this package, held against an executed schedule (`tests/test_mixed_training.py`).
    """

    two_kinds: ClassVar[bool] = True

    def of_kind(self, later: bool) -> StagesOfOneKind:
        """The stages of one kind."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return StagesOfOneKind(**values, later=later)

    def layers_per_stage(self, layout: Layout) -> Array:
        """Layers of one of the first stages."""
        return self.of_kind(False).layers_per_stage(layout)

    def stages(self, layout: Layout) -> dict[str, StageMemory]:
        """Memory of the stages of the first kind."""
        return self.of_kind(False).stages(layout)

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Operations of a stage of either kind, those of the second in phases `later_...`."""
        there = self.of_kind(True).lower(layout)
        renamed = (dataclasses.replace(op, phase=LATER + op.phase) for op in there)
        return (*self.of_kind(False).lower(layout), *renamed)

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Repeats of each phase, for both kinds alike."""
        first_kind = super().repeats(layout)
        return first_kind | {LATER + phase: often for phase, often in first_kind.items()}

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """See the class."""
        plan, m = layout.plan, self.micro_batches(layout)
        here = [(op, cost) for op, cost in priced if not op.phase.startswith(LATER)]
        there = [
            (dataclasses.replace(op, phase=op.phase.removeprefix(LATER)), cost)
            for op, cost in priced
            if op.phase.startswith(LATER)
        ]
        one, two = self.of_kind(False).pieces(here, layout), self.of_kind(True).pieces(there, layout)
        first_s, other = one.forward + one.backward, two.forward + two.backward
        q, p = plan.later_stages, plan.pp
        some = q > 0
        head = jnp.where(some, two.head, one.head)
        slowest = jnp.where(some, maximum(first_s, other + two.head), first_s + one.head)
        ends = one.first + one.last + one.step + (p - q - 1) * first_s + q * other
        also = jnp.where(some, two.first + two.last + two.step + (p - q) * first_s + (q - 1) * other, 0.0)
        time = (m - 1) * slowest + head + maximum(ends, also) + self.step_overhead_s

        breakdown = {name: m * part.compute_s for name, part in one.passes.items()}
        for axis in one.passes["forward"].exposed_s:
            breakdown[axis] = sum(m * part.exposed_s[axis] for part in one.passes.values())
        breakdown["dp"] = breakdown["dp"] + (one.last - one.backward) + (one.first - one.forward) + one.gathers
        breakdown["offload"] = breakdown["offload"] + one.step - one.gathers - one.updated
        breakdown |= {"head": jnp.where(some, 0.0, m * one.head), "optimizer": one.updated}
        breakdown["overhead"] = self.step_overhead_s + 0 * time
        breakdown["bubble"] = time - sum(breakdown.values())
        extra = {"stage_s": first_s, "later_stage_s": jnp.where(some, other + two.head, 0.0)}
        return Timeline(
            time, breakdown, one.energy_j, self.tokens_per_step(), self.model_flops_per_step(), extra,
            beside_j=jnp.where(some, two.energy_j, 0.0),
        )  # fmt: skip

    def moments(self, layout: Layout) -> dict[tuple[str, str], Classes]:
        """Memory of the stages of the first kind."""
        return self.of_kind(False).moments(layout)

    def later_bytes(self, layout: Layout) -> dict[str, Array]:
        """Class of data -> bytes per device of the second kind, at the moment and stage of its peak."""
        work = self.of_kind(True)
        result = peak(work.moments(layout), layout)
        classes: dict[str, Array] = {}
        for name, (total, buffer) in result.items():
            afar = layout.plan.offloaded(name)
            share = 0.0 if afar is None else afar
            classes[name] = jnp.where(layout.plan.later_stages > 0, (1 - share) * total + share * buffer, 0.0)
        return classes

    def writers(self, layout: Layout) -> tuple[Array, Array]:
        """Devices of all layers, were all stages as one of either kind; of one kind where the other has no stage.

        Assumes: embeddings and head weigh as much a layer as the rest.
        """
        plan, per_stage = layout.plan, [self.of_kind(later).layers_per_stage(layout) for later in (False, True)]
        first, second = (layout.devices / plan.pp * self.model.layers / at_least(one, 1.0) for one in per_stage)
        return first, jnp.where(plan.later_stages > 0, second, first)

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Rules of one kind; whole layers that add up, one chunk a stage in 1F1B, a stage of the first kind."""
        plan, layers = layout.plan, self.layers_per_stage(layout)
        uneven = indivisible(layers, jnp.asarray(1.0)) + at_least(1 - layers, 0.0)
        chunks = (plan.virtual_stages - 1) + plan.schedule + plan.first_stage_less + plan.last_stage_less
        kinds = at_least(plan.later_stages - (plan.pp - 1), 0.0)
        return super().violations(layout) | {"layers": uneven + kinds, "schedule": chunks}

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """Layers that do not add up, stages that are too many, another schedule."""
        plan, layers = layout.plan, float(self.model.layers)
        p, q, after = float(plan.pp), float(plan.later_stages), float(self.of_kind(True).layers_per_stage(layout))
        if rule == "layers" and q >= p:
            return f"plan.later_stages = {q:g} leaves no stage of plan.pp = {p:g} to the first kind of accelerator"
        if rule == "layers":
            left = layers - after * q
            return (
                f"{layers:g} layers leave {left:g} for {p - q:g} stages of the first kind, after {q:g} with {after:g}"
                " each (plan.later_layers)"
            )
        if rule == "schedule":
            return "workload=mixed_training takes plan.schedule=1f1b, plan.virtual_stages=1 and stages of whole layers"
        return super().broken_rule(rule, layout)

    def __check_init__(self) -> None:
        """Refuse a job without backward pass."""
        if self.forward_only:
            raise ConfigError("workload.forward_only = true: MixedTraining trains; choose workload=training")

    @classmethod
    def example(cls) -> "MixedTraining":
        """Eight sequences of 512 tokens."""
        return cls(Transformer.example(), 512.0, 8.0)
