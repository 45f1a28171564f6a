"""Plans of post-training by reinforcement: the trainer's layout, the rollout fleet beside it, how they take turns."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import integer, quantity, switch
from ...core.smooth import at_least
from ..networks.fabrics import Group
from .plan import MOST, AbstractModelPlan, Layout, Plan
from .plan_fields import Change, named

MODES = ("colocated", "synchronous", "one_step_off", "asynchronous")
COLOCATED, SYNCHRONOUS, ONE_STEP_OFF, ASYNCHRONOUS = (float(place) for place in range(len(MODES)))
ROLLOUT = "rollout_"
"""Begins the axes of the rollout fleet's groups."""
OWN_AXES = ("tp", "attention_tp", "expert_tp", "decode_cp", "ep", "pp")  # of an engine
SYNC, RESHARD = "weight_sync", "weight_reshard"


class PostTrainingPlan(AbstractModelPlan):
    """A `Plan` of the trainer, with `rollout_devices` of the devices set aside for rollouts.

    Fields of `Plan` lay out the trainer on what is left of the devices. `rollout_tp` devices are one engine, whose
    replicas that share experts are `rollout_ep`; it decodes up to `rollout_slots` responses together. Modes:

        colocated      all devices generate, then all train (`rollout_devices` = 0); with `swap` each part's state
                       leaves the memory while the other works, else both lie there
        synchronous    a step's rollouts, then its training, then new weights
        one_step_off   rollouts of the next step beside the training of this one; both wait for each other
        asynchronous   rollouts go on through new weights; `staleness` bounds how many responses, in steps, may have
                       begun before the weights of the step that they are for
    """

    mode: Float[Array, "*b"] = named("mode", MODES, COLOCATED, "how rollouts and training take turns")
    rollout_devices: Float[Array, "*b"] = integer(
        high=MOST, default=0.0, doc="devices that only generate; 0: all do both (colocated)"
    )
    rollout_tp: Float[Array, "*b"] = integer(low=1.0, high=MOST, default=1.0, doc="tensor parallel of a rollout engine")
    rollout_ep: Float[Array, "*b"] = integer(low=1.0, high=MOST, default=1.0, doc="expert parallel of rollout engines")
    rollout_slots: Float[Array, "*b"] = integer(
        low=1.0, high=1e6, default=64.0, doc="responses that a rollout engine decodes together, at most"
    )
    staleness: Float[Array, "*b"] = quantity(
        high=64.0, default=1.0, doc="steps of responses that may begin before a step's weights (asynchronous)"
    )
    swap: Float[Array, "*b"] = switch(default=1.0, doc="colocated: the part at rest leaves the first memory")

    axes: ClassVar[tuple[str, ...]] = (
        *AbstractModelPlan.axes, *(ROLLOUT + axis for axis in OWN_AXES), SYNC, RESHARD,
    )  # fmt: skip
    placed_as: ClassVar[Mapping[str, str]] = {
        **AbstractModelPlan.placed_as, ROLLOUT + "attention_tp": ROLLOUT + "tp", ROLLOUT + "expert_tp": ROLLOUT + "tp",
        ROLLOUT + "decode_cp": ROLLOUT + "tp",
    }  # fmt: skip
    said: ClassVar[tuple[str, ...]] = (
        "mode", "rollout_devices", "rollout_tp", "rollout_slots", *AbstractModelPlan.said,
    )  # fmt: skip

    def changes(self) -> dict[str, Change]:
        """Smaller plans of the trainer, and fewer responses together or more ranks of a rollout engine."""
        return super().changes() | {
            "rollout_slots": lambda x: [float(x // 2**i) for i in range(1, 7) if x >= 2**i],
            "rollout_tp": lambda x: [x * 2**i for i in range(1, 4)],
        }

    def together(self) -> Array:
        """1 where the same devices generate and train."""
        return jnp.where(self.rollout_devices > 0, 0.0, 1.0)

    def trainer(self, devices: Array) -> Layout:
        """Trainer's layout on what rollouts leave, at least one replica."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(Plan)}
        return Layout(Plan(**fields | {"device_count": None}), at_least(devices - self.rollout_devices, self.ranks()))

    def replicas(self, devices: Array) -> Array:
        """The trainer's."""
        return self.trainer(devices).dp

    def rollouts(self, devices: Array) -> Layout:
        """Layout of the rollout engines, at least one."""
        one = jnp.ones_like(self.rollout_tp)
        degrees = {"tp": self.rollout_tp, "ep": self.rollout_ep, "micro_batch": self.rollout_slots}
        alike = ("token_budget", "tp_overlap", "ep_overlap", "tp_algorithm", "data_algorithm")
        plan = Plan(**degrees, **{name: getattr(self, name) for name in alike})
        engines = jnp.where(self.rollout_devices > 0, self.rollout_devices, devices)
        return Layout(plan, at_least(engines, self.rollout_tp * self.rollout_ep * one))

    def members(self, axis: str, layout: Layout) -> Group:
        """Trainer's ranks come first, then the rollout engines; of these the groups are those of a plan that serves.

        New weights go from one of the trainer's ranks to all that hold the same part of an engine's weights; where
        devices are shared, those gather them.
        """
        trainer, rollouts = self.trainer(layout.devices), self.rollouts(layout.devices)
        if axis == SYNC:
            return Group(1 + (1 - self.together()) * rollouts.dp, self.rollout_tp)
        if axis == RESHARD:
            return Group(1 + self.together() * (rollouts.dp - 1), self.rollout_tp)
        if axis.startswith(ROLLOUT):
            return rollouts.plan.members(axis.removeprefix(ROLLOUT), rollouts)
        return trainer.plan.members(axis, trainer)

    def algorithm(self, axis: str) -> Array:
        """By what an axis is of an engine."""
        return super().algorithm(axis.removeprefix(ROLLOUT))

    def offloaded(self, data: str) -> Array | None:
        """Share of a class in the second tier: all of what is swapped."""
        return self.swap if data == "swapped" else super().offloaded(data)

    @classmethod
    def example(cls) -> "PostTrainingPlan":
        """One device that does both."""
        return cls()


def as_trained(layout: Layout) -> Layout:
    """The trainer's part of a layout."""
    return layout.plan.trainer(layout.devices)


def as_generated(layout: Layout) -> Layout:
    """The rollout fleet's part of a layout."""
    return layout.plan.rollouts(layout.devices)


def renamed(axis: str) -> str:
    """Name of an engine's axis among those of the whole plan."""
    return ROLLOUT + axis if axis in OWN_AXES else axis
