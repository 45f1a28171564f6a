"""Layouts that a serving engine can run, as its documentation states them.

A replica of tp ranks whose attention forms g groups, e of which share experts, is one engine with g e attention groups
of tp / g tensor ranks. Engines differ in what they accept of that:

| engine | attention groups of a dense model | groups beside expert parallelism | attention cut over some ranks only |
|---|---|---|---|
| vLLM | no: each group holds the whole network | no: tensor ranks x data ranks are the expert ranks | yes |
| SGLang | yes | yes | yes |
| TensorRT-LLM | yes | yes | no: over all ranks or over none |

All of them divide the key-value heads by the tensor ranks or copy each to as many ranks, and cut feed-forward networks
into equal columns.

Source: [vllm_parallel], [sglang_parallel], [trtllm_parallel].
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ...core.fields import static
from ...core.module import Module
from .lowering import indivisible
from .transformer import Transformer

__all__ = ["SupportedLayouts"]


class SupportedLayouts(Module):
    """Layouts that one engine accepts; by default everything.

    Args:
        engine: its name, for messages and for what a search says of its space.
        dense_groups: attention groups in a model without experts.
        groups_beside_experts: attention groups in replicas that share experts.
        partial_attention: groups of more than one tensor rank.
        whole_experts: experts that are spread are not cut besides.
        divided_heads: key-value heads divide by the tensor ranks of a group, or the ranks by the heads.
        divided_widths: columns of feed-forward networks divide by the ranks among which they are cut.
    """

    engine: str = static(default="")
    dense_groups: bool = static(default=True)
    groups_beside_experts: bool = static(default=True)
    partial_attention: bool = static(default=True)
    whole_experts: bool = static(default=False)
    divided_heads: bool = static(default=False)
    divided_widths: bool = static(default=False)

    def runs_groups(self, model: Transformer) -> bool:
        """True if a model's attention may be cut into groups at all."""
        return self.dense_groups or bool(model.has_experts)

    def violations(self, model: Transformer, plan: Any) -> dict[str, Array]:
        """By how much a plan breaks each rule of the engine; 0 where it keeps it.

        Args:
            model: what is served.
            plan: degrees of one pool.
        """
        groups, ranks = plan.attention_dp, plan.tp / plan.attention_dp
        none = jnp.zeros_like(groups * plan.ep)
        apart = none
        if not self.runs_groups(model):
            apart = apart + groups - 1
        if not self.groups_beside_experts:
            apart = apart + jnp.where(plan.ep > 1, groups - 1, 0.0)
        if not self.partial_attention:
            apart = apart + jnp.where(groups * plan.ep > 1, jnp.abs(ranks - 1), 0.0)
        heads = getattr(model.attention, "kv_heads", None) if self.divided_heads else None
        copied = none if heads is None else indivisible(jnp.maximum(heads, ranks), jnp.minimum(heads, ranks))
        cut = self._cut(model, plan) if self.divided_widths else none
        return {"engine_groups": apart, "engine_heads": none + copied, "engine_widths": none + cut}

    def _cut(self, model: Transformer, plan: Any) -> Array:
        """By how much columns do not divide: of experts, of dense layers beside them, or of the only network."""
        network: Any = model.feed_forward
        ranks = plan.tp / plan.attention_dp
        if not model.has_experts:
            width = getattr(network, "width", None)
            return jnp.zeros_like(ranks) if width is None else indivisible(width, plan.tp)
        each = jnp.where(plan.ep > 1, 1.0, plan.tp) if self.whole_experts else plan.tp
        dense = jnp.where(network.dense_width > 0, network.dense_width, ranks)
        return indivisible(network.expert_width, each) + indivisible(dense, ranks)

    def broken(self, rule: str, model: Transformer, plan: Any, pool: str = "") -> str | None:
        """One line on a rule that a plan breaks; None where it is none of these.

        Args:
            rule: as `violations` names it.
            model: what is served.
            plan: degrees of one pool.
            pool: what its fields begin with.
        """
        tp, groups, ep = (
            f"plan.{pool}{name} = {float(getattr(plan, name)):g}" for name in ("tp", "attention_dp", "ep")
        )
        runs = "; framework=none prices it all the same"
        if rule == "engine_groups":
            if not self.runs_groups(model):
                return f"{groups}: {self.engine} runs no attention groups of a model without experts{runs}"
            if not self.groups_beside_experts and float(plan.ep) > 1 and float(plan.attention_dp) > 1:
                said = f"{self.engine} spreads experts over all its ranks; take as many more replicas"
                return f"{groups} beside {ep}: {said}, plan.{pool}attention_dp = 1{runs}"
            return f"{groups} of {tp}: {self.engine} cuts attention over all ranks of an engine or over none{runs}"
        ranks = float(plan.tp / plan.attention_dp)
        if rule == "engine_heads":
            heads = float(getattr(model.attention, "kv_heads", 1.0))
            said = (
                f"{ranks:g} ranks of {self.engine} neither divide {heads:g} key-value heads nor are a multiple of them"
            )
            return f"{tp}, {groups}: {said}{runs}"
        if rule == "engine_widths":
            return f"{tp}: {self.engine} cuts feed-forward networks into equal columns, which these ranks do not{runs}"
        return None
