"""Device memory of an inference engine beside weights and cache: profile run, captured graphs, buffers; room for cache.

An engine loads its weights, runs one step of `tokens` tokens and `sequences` sampled rows to see what activations take
at their peak, gives what its share of the device leaves to the cache, and captures decode graphs:

    peak = max(layer, hidden states + logits) (1 + fragmentation) + workspace
    layer = residual stream and normalised input + max(attention, dense, routed experts)

where a dense network has the outputs of its up-projection and of its activation at a time, routed experts two buffers
that their products share (max(up, down), and the activation) beside the summed output, and attention all of its
products. A sampler sorts all logits: rows x vocabulary x `logit_bytes` at its peak. Graphs are captured for 1, 2, 4 and
every eighth number of sequences up to twice `sequences`, at most `max_captured`.

Constants are those of vLLM; files of the group `engine_memory` have those of the other engines, with sources.
Assumes: an engine's activations are freed when they were read last; logits of one pipeline stage alone.
Source: the profile runs of [vllm_source] and [sglang_source].
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import Module, integer, quantity, static
from ...core.smooth import at_least, at_most, ceil, floor
from .layer_operations import BlockOp, Precision
from .number_formats import WEIGHT_FORMATS, class_of
from .plan import Plan

__all__ = ["CacheBudget", "EngineMemory", "ProfileRun", "layer_peak_bytes", "padding_bytes"]

SHARES = ("total", "static", "free")
CAPTURE_STEP = 8.0  # sequences between captured graphs
SMALL_GRAPHS = 3.0  # of 1, 2 and 4 sequences
PADDED = {"mxfp4": (256.0, 128.0)}
"""Format of experts -> multiples to which hidden size and width of an expert are padded when they are loaded.

Source: [vllm_source], `mxfp4.py`, Marlin kernels, which it takes on devices without arithmetic in the format.
"""


class ProfileRun(NamedTuple):
    """The step by which an engine sizes its activations: tokens of a rank, sampled rows, bytes at the layers' peak."""

    tokens: Array
    rows: Array
    layer_bytes: Array
    hidden_bytes: Array
    logits: Array


class CacheBudget(NamedTuple):
    """Bytes of a device for the cache, and what is in its place: `used` of `budget` is feasible up to 1."""

    room_bytes: Array
    used_bytes: Array
    budget_bytes: Array


class EngineMemory(Module):
    """Memory of an engine beside weights and cache, and the share of the device's memory that it takes.

    `utilisation` is the share of the visible memory that the engine takes (0: as much as the design stores); by
    `share_of` it is of everything that the engine allocates (`total`: `--gpu-memory-utilization`), of weights and cache
    alone (`static`: `--mem-fraction-static`) or of what is left for the cache once the rest is there (`free`:
    `free_gpu_memory_fraction`). `sequences` and `tokens` of the profile run are the plan's where they are 0;
    `graphs_inside`: captured graphs count into the share. `visible_ratio`: what a driver shows of the capacity.
    """

    share_of: str = static(default="total")
    utilisation: float = static(default=0.0)
    graphs_inside: bool = static(default=False)
    sequences: Float[Array, "*b"] = integer(high=1e7, default=0.0, doc="rows of the profile run; 0: those of the plan")
    tokens: Float[Array, "*b"] = integer(high=1e9, default=0.0, doc="of the profile run; 0: those of the plan")
    logit_bytes: Float[Array, "*b"] = quantity(default=38.0, doc="of a logit at the sampler's peak")
    graph_bytes: Float[Array, "*b"] = quantity(default=25.2e6, doc="of a captured graph")
    max_captured: Float[Array, "*b"] = quantity(default=512.0, doc="sequences of the largest captured graph")
    workspace_bytes: Float[Array, "*b"] = quantity(default=0.0, doc="of attention kernels")
    fragmentation: Float[Array, "*b"] = quantity(high=1.0, default=0.05, doc="of activations, that the allocator adds")
    visible_ratio: Float[Array, "*b"] = quantity(low=0.5, high=1.0, default=0.99, doc="of the capacity")
    context_bytes: Float[Array, "*b"] = quantity(default=0.5e9, doc="of the driver's context and loaded kernels")
    communicator_bytes: Float[Array, "*b"] = quantity(default=906e6, doc="of a group of ranks")
    communicators: Float[Array, "*b"] = quantity(default=2.0, doc="that an engine of several ranks opens")

    def __check_init__(self) -> None:
        """Refuse a share that is none."""
        if self.share_of not in SHARES:
            raise ConfigError(f"engine_memory.share_of = {self.share_of!r} is not one of {', '.join(SHARES)}")
        share = self.utilisation
        if not isinstance(share, int | float) or not (math.isfinite(share) and 0 <= share <= 1):
            raise ConfigError(f"engine_memory.utilisation = {share!r} is outside [0, 1]")

    def rows(self, planned: Array, tokens: Array) -> Array:
        """Sampled at once: no more than there are tokens."""
        return at_least(at_most(jnp.where(self.sequences > 0, self.sequences, planned), tokens), 1.0)

    def profiled(self, planned: Array) -> Array:
        """Tokens of the profile run, at least one."""
        return at_least(jnp.where(self.tokens > 0, self.tokens, planned), 1.0)

    def working_bytes(self, run: ProfileRun) -> Array:
        """Activations at their peak, with workspaces."""
        peak = jnp.maximum(run.layer_bytes, run.hidden_bytes + run.logits * self.logit_bytes)
        return peak * (1 + self.fragmentation) + self.workspace_bytes

    def graphs_bytes(self, rows: Array) -> Array:
        """Bytes of all captured graphs."""
        largest = at_most(2 * jnp.where(self.sequences > 0, self.sequences, rows), self.max_captured)
        return (at_most(largest, SMALL_GRAPHS) + floor(largest / CAPTURE_STEP)) * self.graph_bytes

    def outside_bytes(self, plan: Plan) -> tuple[Array, Array]:
        """Bytes of the context, and of communication buffers: both lie in what an accelerator's file reserves."""
        ranks = plan.tp * plan.pp * plan.cp * plan.ep
        return self.context_bytes, jnp.where(ranks > 1, self.communicators * self.communicator_bytes, 0.0)

    def budget(self, capacity: Array, plan: Plan, stored: dict[str, Array]) -> CacheBudget:
        """Cache budget of the engine's share; of the whole visible memory where no share is given.

            total   u v C - communication - weights - working (- graphs)
            static  u (v C - context - communication) - weights
            free    u (v C - context - communication - weights - working)

        Args:
            capacity: bytes of the device.
            plan: of the engine.
            stored: class -> bytes of the device's first memory.
        """
        capacity_bytes, used, outside = self._accounts(capacity, plan, stored)
        budget = (self.utilisation or 1.0) * capacity_bytes - outside
        return CacheBudget(budget - (used - stored["kv_cache"]), used, budget)

    def needed_share(self, capacity: Array, plan: Plan, stored: dict[str, Array]) -> Array:
        """The least share that has room for all of this: the inverse of `budget`."""
        capacity_bytes, used, outside = self._accounts(capacity, plan, stored)
        return (used + outside) / capacity_bytes

    def predicted_inside(self, stored: dict[str, Array]) -> Array:
        """Bytes of what the share has to hold that are predicted, not counted."""
        if self.share_of != "total":
            return 0.0 * stored["working"]
        return stored["working"] + (stored["graphs"] if self.graphs_inside or not self.utilisation else 0.0)

    def _accounts(self, capacity: Array, plan: Plan, stored: dict[str, Array]) -> tuple[Array, Array, Array | float]:
        """Bytes of which the share is one, bytes that it has to hold, and bytes of it that neither of them has."""
        context, links = self.outside_bytes(plan)
        visible = self.visible_ratio * capacity
        cache, weights, graphs = stored["kv_cache"], stored["weights"], stored["graphs"]
        if self.share_of == "free":
            return visible - context - links - weights - stored["working"], cache, 0.0
        if self.share_of == "static" and self.utilisation:
            return visible - context - links, weights + cache, 0.0
        used = weights + cache + stored["working"]
        if self.graphs_inside or not self.utilisation:
            used = used + graphs
        return visible, used, links if self.utilisation else links + context

    @classmethod
    def example(cls) -> "EngineMemory":
        """An example: vLLM."""
        return cls()


def layer_peak_bytes(block: list[BlockOp], stream: Array) -> Array:
    """Activations of the layer that takes most: those of its largest sub-layer beside the residual stream.

    Args:
        block: operations of an average layer.
        stream: bytes of the hidden states of all tokens.
    """
    attention, dense, routed, shared = (jnp.asarray(0.0) for _ in range(4))
    sizes: dict[str, tuple[Array, Array]] = {}
    for op in block:
        there = jnp.where(op.per_layer > 0, 1.0, 0.0)
        if op.kernel == "gemm" and not op.core and class_of(op.name) in ("attention", "linear_attention"):
            attention = attention + op.gradient_bytes * jnp.minimum(op.per_layer, 1.0)
        for name in ("mlp_up", "mlp_down", "moe_up", "moe_down", "moe_shared_up", "moe_shared_down"):
            if op.name == name:
                sizes[name] = there * op.gradient_bytes, there * op.stored_bytes
    if "mlp_up" in sizes:
        dense = sizes["mlp_up"][0] + sizes["mlp_down"][1]
    if "moe_up" in sizes:
        routed = jnp.maximum(sizes["moe_up"][0], sizes["moe_down"][0]) + sizes["moe_down"][1] + stream
        shared = sizes["moe_shared_down"][0]
    return 2 * stream + jnp.maximum(attention, jnp.maximum(dense, routed + shared))


def padding_bytes(block: list[BlockOp], layers: Array, hidden: Array, precision: Precision) -> Array | None:
    """Bytes by which experts grow when they are loaded (`PADDED`); None of formats that are loaded as they are."""
    formats = precision.by_class
    multiples = PADDED.get(formats.experts) if formats is not None else None
    if multiples is None:
        return None
    added = jnp.asarray(0.0)
    for op in block:
        if op.name == "moe_down" and op.forward is not None:
            width = op.forward.depth
            grown = _padded(hidden, multiples[0]) * _padded(width, multiples[1]) - 1
            each = WEIGHT_FORMATS[formats.experts].nbytes if formats is not None else 0.0
            matrices = sum((one.weights for one in block if one.expert), jnp.asarray(0.0))
            added = added + matrices * grown * each * op.per_layer * layers
    return added


def _padded(size: Array, multiple: float) -> Array:
    """Ratio of a size, rounded up to a whole multiple, to the size itself."""
    return ceil(size / multiple) * multiple / size
