"""Texts of the skeleton of a workload: a family with its model, its plan, its words, and a study of it."""

WORKLOAD = '''"""What a {title} is: say it in one line."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from codesign.core import quantity, static
from codesign.model.hardware import Work
from codesign.model.networks.fabrics import Group
from codesign.model.workloads import (
    AbstractPlan,
    AbstractWorkload,
    CommOp,
    ComputeOp,
    Layout,
    Op,
    Precision,
    Priced,
    Timeline,
    Words,
    indivisible,
    total,
)
from jaxtyping import Array, Float


class {cls}Model(eqx.Module):
    """`layers` products of `rows` rows with a square matrix of width `hidden`."""

    hidden: Float[Array, "*b"] = quantity(low=1.0)
    layers: Float[Array, "*b"] = quantity(low=1.0)
    name: str = static(default="{name}")


class {cls}Plan(AbstractPlan):
    """What may be chosen: ranks that cut every matrix (tp), items of one batch."""

    axes: ClassVar[tuple[str, ...]] = ("tp",)

    tp: Float[Array, "*b"] = quantity(low=1.0, high=64.0, default=1.0)
    items: Float[Array, "*b"] = quantity(low=1.0, high=1e6, default=64.0, doc="in one batch of a replica")
    device_count: Float[Array, "*b"] | None = quantity(low=1.0, default=None)

    def ranks(self) -> Array:
        """Devices of one replica."""
        return self.tp

    def members(self, axis: str, layout: Layout) -> Group:
        """Neighbouring devices."""
        del axis, layout
        return Group(self.tp, jnp.ones_like(self.tp))


class {cls}(AbstractWorkload):
    """Batches of `plan.items`, one after the other.

    Assumes: what is sent hides behind nothing. Source: where the formulas stand.
    """

    plan_class: ClassVar[type[AbstractPlan]] = {cls}Plan
    words: ClassVar[Words] = Words(
        "{title}", "batch", "item", ("time_s", "items_per_s"),
        metrics={{"time_s": ("Time of a batch", "s"), "items_per_s": ("Items per second", "count")}},
        parts={{"work": "products", "tp": "sums over tp"}},
        memory={{"items": "items of a batch"}},
        plan={{"items": "{{:g}} items a batch"}},
    )  # fmt: skip

    model: {cls}Model
    precision: Precision = Precision()

    @classmethod
    def example(cls) -> "{cls}":
        """A small one: what `codesign check-plugin` prices."""
        return cls({cls}Model(4096.0, 16.0))

    def number_format(self) -> str:
        """Of the products."""
        return self.precision.compute

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """What one device does in one batch."""
        plan, width = layout.plan, self.model.hidden
        weights, act = (self.precision.bytes_of(name) for name in ("weights", "activations"))
        cut = width / plan.tp
        work = Work(2 * plan.items * width * cut, weights * width * cut + 2 * act * plan.items * width,
                    plan.items, cut, width)  # fmt: skip
        return (
            ComputeOp("products", "gemm", self.precision.compute, "batch", work, self.model.layers),
            CommOp("sums", "all_reduce", "tp", "batch", act * plan.items * width, self.model.layers),
        )

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Products, then sums; `flops` are those of the model, whatever a plan computes twice."""
        work, sums = total(priced, "batch", ComputeOp), total(priced, "batch", CommOp, ("tp",))
        seconds, items = work.time_s + sums.time_s, layout.plan.items * layout.dp
        flops = 2 * items * self.model.hidden**2 * self.model.layers
        parts, energy = {{"work": work.time_s, "tp": sums.time_s}}, work.energy_j + sums.energy_j
        return Timeline(seconds, parts, energy, items, flops, {{"items_per_s": items / seconds}})

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Everything once a batch."""
        return {{"batch": jnp.ones_like(self.model.layers)}}

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Weights, of which a layer stays near where the rest is offloaded, and two layers of items."""
        weights = self.precision.bytes_of("weights") * self.model.hidden**2 * self.model.layers / layout.plan.tp
        items = 2 * self.precision.bytes_of("activations") * layout.plan.items * self.model.hidden
        return {{"weights": (weights, weights / self.model.layers), "items": (items, items)}}

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Whole replicas, whole columns."""
        tp = layout.plan.tp
        return {{"devices": indivisible(layout.devices, tp), "columns": indivisible(self.model.hidden, tp)}}

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """In numbers."""
        tp, hidden = float(layout.plan.tp), float(self.model.hidden)
        return f"plan.tp = {{tp:g}} does not divide model.hidden = {{hidden:g}}" if rule == "columns" else None
'''

WORKLOAD_FILES = {
    "workload": """# {title}: what it does, in one line
_target_: {package}.{cls}
precision:
  _target_: codesign.model.workloads.Precision
""",
    "model": """# @package workload.model
# {title}: its sizes, in one line
_target_: {package}.{cls}Model
name: {name}
hidden: 4096
layers: 16
""",
    "plan": """# On one device, 64 items at once
_target_: {package}.{cls}Plan
items: 64
""",
    "space": """# Ranks and items; width of the links
_target_: codesign.study.design_space.DesignSpace
plan:
  tp: [1, 2, 4, 8]
  items: [16, 64, 256]
hardware:
  scale_up_bandwidth:
    path: cluster.network.scale_up.fabric.bandwidth_bytes_per_s
    low: 100.0e+9
    high: 900.0e+9
    grid: 3
""",
    "experiment": """# @package _global_
# {title} on eight H100: fewest dollars an item, a batch in a tenth of a second
defaults:
  - override /workload: {name}
  - override /model: {name}
  - override /plan: {name}
  - override /space: {name}
  - override /objective: cheapest_tokens
  - override /search: certified

name: {name}
cluster:
  device_count: 8
objective:
  limits:
    time_s: 0.1
""",
}
