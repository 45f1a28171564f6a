"""Feed-forward sub-layers: dense (GELU or SwiGLU) and mixtures of experts."""

import abc
import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import integer, quantity, switch
from ...core.module import Module
from ...core.smooth import at_least, at_most, ceil, ratio
from ..hardware import Routing, Work
from .attention import input_bytes, join_bytes
from .expert_load import ExpertLoad
from .layer_operations import (
    BlockComm,
    BlockOp,
    Shard,
    branch,
    elementwise,
    linear,
    norm,
    residual,
    scaled,
    tensor_parallel_comms,
)
from .plan import Layout


class AbstractFeedForward(Module):
    """One feed-forward sub-layer, from its norm to its residual addition, averaged over the layers."""

    @abc.abstractmethod
    def ops(self, shard: Shard, hidden: Array, layers: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """Arithmetic of an average layer on one device."""

    @abc.abstractmethod
    def comms(self, shard: Shard, hidden: Array, layers: Array) -> list[BlockComm]:
        """Communication of an average layer."""

    @abc.abstractmethod
    def parameters(self, hidden: Array, layers: Array) -> Array:
        """Weights of an average layer, on all devices together."""

    @abc.abstractmethod
    def active_parameters(self, hidden: Array, layers: Array) -> Array:
        """Weights of an average layer that one token uses."""

    def weights_by_class(self, hidden: Array, layers: Array) -> dict[str, Array]:
        """Class of weights (`number_formats.CLASSES`) -> how many, of an average layer."""
        return {"dense": self.parameters(hidden, layers)}

    def capacity_shares(self, layout: Layout) -> dict[str, Array]:
        """Metrics of a capacity of experts, where the model has some of uneven load."""
        del layout
        return {}

    def dense_share(self, layers: Array) -> Array:
        """Share of layers whose network has no experts."""
        return jnp.ones_like(layers)


def mlp(
    shard: Shard, hidden: Array, width: Array, gated: Array, inputs: tuple[Array, Array], *, fused: Array, name: str
) -> list[BlockOp]:
    """Up-projection (twice as wide where gated), activation, down-projection. `width` is this rank's share.

    inputs: bytes of the input that are kept for the backward pass, and while the layer is at work.
    """
    act, tokens = shard.precision.bytes_of("activations"), shard.tokens
    inner = tokens * width
    stored = (1 - fused) * inner * (1 + gated) * act
    kept, whole = inputs
    return [
        linear(f"{name}_up", shard, tokens, hidden, width * (1 + gated), stored_bytes=kept, working_bytes=whole),
        elementwise(
            f"{name}_activation", inner, forward=(8, 2 * act), backward=(13, 2 * act),
            stored_bytes=stored, gradient_bytes=stored, extra_bytes=inner * gated * act,
        ),
        linear(
            f"{name}_down", shard, tokens, width, hidden,
            stored_bytes=inner * act, working_bytes=inner * act + join_bytes(shard, hidden),
        ),
    ]  # fmt: skip


class DenseFeedForward(AbstractFeedForward):
    """Two matrices and an activation (GELU, gated 0), or three with a gate (SwiGLU, gated 1).

    `fused_activation` 1 keeps nothing for the activation function's backward (a fused kernel redoes it).
    """

    width: Float[Array, "*b"] = integer(low=1.0, doc="intermediate size")
    gated: Float[Array, "*b"] = switch(default=0.0)
    fused_activation: Float[Array, "*b"] = switch(default=0.0)

    def parameters(self, hidden: Array, layers: Array) -> Array:
        """Up, gate and down."""
        return hidden * self.width * (2 + self.gated)

    def active_parameters(self, hidden: Array, layers: Array) -> Array:
        """All of them."""
        return self.parameters(hidden, layers)

    def comms(self, shard: Shard, hidden: Array, layers: Array) -> list[BlockComm]:
        """Tensor-parallel joins."""
        again = jnp.maximum(shard.layout.full, shard.layout.sequence_parallel_regather)
        return tensor_parallel_comms("mlp", shard, hidden, again=again)

    def ops(self, shard: Shard, hidden: Array, layers: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """Norm, two or three products, activation, residual."""
        act = shard.precision.bytes_of("activations")
        inputs = input_bytes(shard, hidden, shard.layout.full)
        sharded = shard.tokens * hidden * act / shard.outside
        width = self.width / shard.layout.plan.tp
        return [
            branch("mlp_branch", shard, hidden, 2, sharded=True, stored_bytes=sharded),
            norm("mlp_norm", shard, hidden, vectors=norm_vectors),
            *mlp(shard, hidden, width, self.gated, inputs, fused=self.fused_activation, name="mlp"),
            *residual("mlp", shard, hidden, dropout=dropout),
        ]


class MixtureOfExperts(AbstractFeedForward):
    """`experts` feed-forward networks of which each token visits `top_k`, plus shared ones that all visit.

    The first `dense_layers` layers are dense with `dense_width`. Experts are divided over the expert-parallel ranks
    and each expert over the tensor ranks: a rank dispatches its share of the token copies, and those that reach a
    tensor group are gathered there (with ep 1 nothing is dispatched, and the tokens are gathered as in a dense layer).
    `imbalance` is the most loaded rank's tokens over the mean, which `load` says by number of ranks. Ranks that do not
    divide the experts each hold as many
    whole ones as it takes: the redundant experts of a server, which training does not have. `latent`: routed experts
    work on so many elements of a token, to which one product leads and from which another leads back.

    Assumes: tokens spread evenly but for `imbalance`; the expected number of distinct experts touched by few tokens.
    Source: [fedus2022]; shared experts [dai2024].
    """

    experts: Float[Array, "*b"] = integer(low=1.0)
    top_k: Float[Array, "*b"] = integer(low=1.0)
    expert_width: Float[Array, "*b"] = integer(low=1.0)
    shared_experts: Float[Array, "*b"] = quantity(default=0.0)
    gated: Float[Array, "*b"] = switch(default=1.0)
    dense_layers: Float[Array, "*b"] = integer(default=0.0)
    dense_width: Float[Array, "*b"] = integer(default=0.0)
    imbalance: Float[Array, "*b"] = quantity(low=1.0, default=1.0)
    load: ExpertLoad | None = None
    latent: Float[Array, "*b"] | None = integer(low=1.0, default=None, doc="elements; none: the hidden size")

    def dense_share(self, layers: Array) -> Array:
        """Share of dense layers in all layers; no more are dense than there are."""
        return at_most(ratio(self.dense_layers, layers), 1.0)

    def _busiest(self, layout: Layout) -> Array:
        """Token copies of the busiest expert rank over the mean."""
        own = self.imbalance if self.load is None else self.imbalance * self.load.ratio(layout.plan.ep)
        capacity = layout.plan.capacity_factor
        return jnp.where(capacity > 0, capacity, own)  # padded: all ranks alike

    def capacity_shares(self, layout: Layout) -> dict[str, Array]:
        """Shares of token copies that are dropped, and of the experts' work that is padding."""
        if self.load is None:
            return {}
        factor = layout.plan.capacity_factor
        return {
            "dropped_token_ratio": self.load.dropped(factor),
            "padded_token_ratio": self.load.padded_share(factor),
        }

    def _parameters(self, hidden: Array, layers: Array, experts: Array) -> Array:
        matrices = hidden * (2 + self.gated)
        sparse = (experts + self.shared_experts) * self.expert_width * matrices + hidden * self.experts
        if self.latent is not None:
            routed = experts * self.expert_width * self.latent * (2 + self.gated)
            shared = self.shared_experts * self.expert_width * matrices
            sparse = routed + shared + hidden * (self.experts + 2 * self.latent)
        dense = self.dense_share(layers)
        return (1 - dense) * sparse + dense * self.dense_width * matrices

    def parameters(self, hidden: Array, layers: Array) -> Array:
        """Router, shared and routed experts; dense layers where there are some."""
        return self._parameters(hidden, layers, self.experts)

    def active_parameters(self, hidden: Array, layers: Array) -> Array:
        """Router, shared and the visited experts."""
        return self._parameters(hidden, layers, self.top_k)

    def routed_parameters(self, hidden: Array) -> Array:
        """Routed weights of a layer with experts."""
        return self._parameters(hidden, jnp.asarray(jnp.inf), self.experts)

    def routed_alone(self) -> "MixtureOfExperts":
        """Its layers with experts, none of them dense."""
        return dataclasses.replace(self, dense_layers=jnp.asarray(0.0))

    def weights_by_class(self, hidden: Array, layers: Array) -> dict[str, Array]:
        """Routed and shared experts, dense layers; router and products to a latent vector have no class."""
        matrices, sparse = 2 + self.gated, 1 - self.dense_share(layers)
        depth = hidden if self.latent is None else self.latent
        beside = self.experts if self.latent is None else self.experts + 2 * self.latent
        return {
            "experts": sparse * self.experts * self.expert_width * depth * matrices,
            "shared_experts": sparse * self.shared_experts * self.expert_width * hidden * matrices,
            "dense": (1 - sparse) * self.dense_width * hidden * matrices,
            "": sparse * hidden * beside,
        }

    def comms(self, shard: Shard, hidden: Array, layers: Array) -> list[BlockComm]:
        """Tensor-parallel joins, dispatch to the experts and combination of their results."""
        layout = shard.layout
        again = jnp.maximum(layout.full, layout.sequence_parallel_regather)
        act, sparse = shard.precision.bytes_of("activations"), 1 - self.dense_share(layers)
        copies = shard.tokens * self.top_k * (hidden if self.latent is None else self.latent)
        copies = copies * self._busiest(layout)
        dispatch, combine = copies * shard.precision.bytes_of("dispatch"), copies * act
        folded = layout.expert_tp != layout.plan.tp
        # layers whose experts work on token copies alone
        apart = sparse * jnp.where((layout.plan.ep > 1) | folded, 1.0, 0.0)
        alone = apart * jnp.where(self.shared_experts > 0, 0.0, 1.0)  # and that have no use for the tokens themselves
        whole = alone * (1 - layout.scattered)  # every rank had all tokens, and needs them again
        joins = [scaled(comm, 1 - alone) for comm in tensor_parallel_comms("mlp", shard, hidden, again=again)]
        tp = layout.plan.tp
        group = layout.expert_tp / tp  # tensor ranks whose copies meet in the ranks of an expert
        return [
            *joins,
            BlockComm("moe_dispatch", "all_to_all", "ep", dispatch / tp, 1.0, 1.0, layout.full, sparse),
            BlockComm("moe_dispatch_tp", "all_gather", "expert_tp", dispatch * group, 1.0, 1.0, again, apart),
            BlockComm("moe_combine_tp", "reduce_scatter", "expert_tp", combine * group, 1.0, 1.0, layout.full, apart),
            BlockComm("moe_combine", "all_to_all", "ep", combine / tp, 1.0, 1.0, layout.full, sparse),
            BlockComm("mlp_tp", "all_gather", "tp", shard.tokens * hidden * act, 1.0, 1.0, layout.full, whole),
        ]

    def ops(self, shard: Shard, hidden: Array, layers: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """Norm, router, shared experts, routed experts, residual; and the dense layers' share of dense products."""
        layout, act, tokens = shard.layout, shard.precision.bytes_of("activations"), shard.tokens
        dense = self.dense_share(layers)
        kept, whole = input_bytes(shard, hidden, layout.full)
        nothing = (jnp.zeros_like(kept), jnp.zeros_like(kept))  # the input is counted with the router
        never = jnp.asarray(0.0)
        sharded = tokens * hidden * act / shard.outside
        some = jnp.where(self.shared_experts > 0, 1.0, 0.0)
        # where there is none, another width stands in, zero times: a product without columns has no gradient
        shared_width = jnp.where(self.shared_experts > 0, self.shared_experts, 1.0) * self.expert_width / layout.plan.tp
        shared = mlp(shard, hidden, shared_width, self.gated, nothing, fused=never, name="moe_shared")
        dense_width = jnp.where(self.dense_width > 0, self.dense_width, self.expert_width) / layout.plan.tp
        dense_ops = mlp(shard, hidden, dense_width, self.gated, (kept, whole), fused=never, name="mlp")
        router = linear(
            "moe_router", shard, tokens / shard.outside, hidden, self.experts, stored_bytes=kept, working_bytes=whole
        )
        return [
            branch("mlp_branch", shard, hidden, 2, sharded=True, stored_bytes=sharded),
            norm("mlp_norm", shard, hidden, vectors=norm_vectors),
            scaled(router, 1 - dense),
            *[scaled(op, some * (1 - dense)) for op in shared],
            *[scaled(op, 1 - dense) for op in self._routed(shard, hidden)],
            *[scaled(op, 1 - dense) for op in self._latent(shard, hidden)],
            *[scaled(op, dense) for op in dense_ops],
            *residual("mlp", shard, hidden, dropout=dropout),
        ]

    def _latent(self, shard: Shard, hidden: Array) -> list[BlockOp]:
        """Products to and from the elements on which routed experts work, on each tensor rank's share of the tokens."""
        if self.latent is None:
            return []
        tokens = shard.tokens / shard.outside
        return [
            linear("moe_latent_down", shard, tokens, hidden, self.latent),
            linear("moe_latent_up", shard, tokens, self.latent, hidden),
        ]

    def _arrived_bytes(self, shard: Shard, depth: Array) -> tuple[Array, Array]:
        """Bytes of one copy of each token that reaches a rank: (kept, live), as of `input_bytes` among expert ranks."""
        layout = shard.layout
        each = shard.tokens * depth * shard.precision.bytes_of("activations")
        gathered = jnp.where(layout.expert_tp > 1, layout.scattered, 0.0)
        whole, own = each * (layout.expert_tp / layout.plan.tp), each / shard.outside * gathered
        again = jnp.maximum(layout.full, layout.sequence_parallel_regather) * gathered
        return whole * (1 - again) + own, whole + own

    def _routed(self, shard: Shard, hidden: Array) -> list[BlockOp]:
        """The grouped products of the experts that this rank holds."""
        layout, act = shard.layout, shard.precision.bytes_of("activations")
        depth = hidden if self.latent is None else self.latent
        local = ceil(self.experts / layout.plan.ep)  # whole ones: where ranks do not divide them, some are held twice
        group = layout.expert_tp / layout.plan.tp
        busiest = self._busiest(layout)
        rows = shard.tokens * self.top_k * busiest * group  # token copies that reach this rank
        width = self.expert_width / layout.expert_tp
        held = local * layout.plan.ep
        touched = at_least(local * (1 - (1 - 1 / held) ** (rows * layout.plan.ep)), 1.0)

        def grouped(name: str, depth: Array, cols: Array, back: float, stored: Array, working: Array) -> BlockOp:
            flops = 2 * rows * depth * cols
            nbytes = rows * (depth + cols) * act + touched * depth * cols * shard.precision.weight_bytes(name)
            everyone = shard.tokens * layout.plan.ep * group
            routing = Routing(everyone, self.top_k, self.experts, layout.expert_tp, busiest, back)
            work = Work(flops, nbytes, rows / local, cols, depth, local, touched, routing)
            return BlockOp(
                name, "moe_gemm", shard.precision.product(name), work, work, work,
                weights=local * depth * cols, stored_bytes=stored, working_bytes=working,
                gradient_bytes=rows * cols * act, expert=True,
            )  # fmt: skip

        inner = rows * width
        kept = inner * (1 + self.gated) * act
        copies = [self.top_k * busiest * nbytes for nbytes in self._arrived_bytes(shard, depth)]
        return [
            grouped("moe_up", depth, width * (1 + self.gated), 0.0, *copies),
            elementwise(
                "moe_activation", inner, forward=(8, 2 * act), backward=(13, 2 * act),
                stored_bytes=kept, gradient_bytes=kept, extra_bytes=inner * self.gated * act,
            ),
            grouped("moe_down", width, depth, 1.0, inner * act, inner * act),
        ]  # fmt: skip
