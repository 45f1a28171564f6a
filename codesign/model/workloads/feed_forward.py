"""Feed-forward sub-layers: dense (GELU or SwiGLU) and mixtures of experts."""

import abc
import dataclasses
import functools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import Module, integer, quantity, static, switch
from ...core.jax_typed import ones_like
from ...core.smooth import at_least, at_most, ceil, ratio
from ..hardware import Routing, Work
from .attention import input_bytes, join_bytes
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

__all__ = [
    "AbstractFeedForward", "DenseFeedForward", "ExpertLoad", "MixtureOfExperts", "busiest_ratio", "power_law",
]  # fmt: skip


# Uneven load of experts: the expected load of the busiest expert-parallel rank, dropped and padded tokens.
#
# Experts with shares p_1 >= ... >= p_E of all token copies lie at random on n ranks, k = E / n each; everybody waits
# for the busiest rank. The rank whose best-loaded expert is the j-th of such leaders holds that expert, number L_j,
# and k - 1 of those below it, drawn at random. With G_j(x) the chance that their sum is at most x,
#
#     P(max <= x) = w max(1 - sum_j (1 - G_j), 0) + (1 - w) prod_j G_j        w = 1 / (n - 1)
#     ratio       = n E[max] = n integral of P(max > x) dx
#
# The first rank has expert 1: one expert a rank is exact, and so are two ranks, of which one alone can have more than
# half. Between the two, ranks are weakly dependent (they share one sum). The distributions of sums are built from the
# last expert up, a subset of c + 1 of m + 1 experts having the new one with chance (c + 1) / (m + 1).
#
# Measured loads lie as they are, experts in order: the busiest rank of each layer, averaged over layers. A capacity
# factor C cuts each expert at C / E of the copies; what is beyond is dropped. `padded` experts work on C / E each, as
# do those of a plan with a capacity factor.
#
# Assumes: many tokens a rank, so that draws of single tokens even out; the placement is not chosen by load.
# Source: capacity [fedus2022]; the expected maximum is derived here.


BINS = 768  # of the load of a rank, from none to that of the k most loaded experts
MOST_EXPERTS = 4096
MOST_EXPONENT = 4.0
MOST_CAPACITY = 64.0

Shares = tuple[float, ...]


def power_law(exponent: float, experts: int) -> Shares:
    """Shares rank^-exponent of `experts`, the largest first; exponent 0 is uniform."""
    weights = np.arange(1.0, experts + 1) ** -exponent
    return tuple((weights / weights.sum()).tolist())


def _leaders(experts: int, ranks: int) -> list[int]:
    """Expected places (from 0) of each rank's most loaded expert.

    With j ranks begun and l experts placed, of E - l free places E - j k belong to ranks that have none.
    """
    each, places = experts // ranks, [1.0]
    for begun in range(1, ranks):
        gap = (experts - places[-1] + 1) / (experts - begun * each + 1)
        places.append(min(places[-1] + gap, experts))
    return [min(round(rank), experts) - 1 for rank in places]


@functools.cache
def busiest_ratio(shares: Shares, ranks: int) -> float:
    """Expected load of the busiest of `ranks` over their mean, experts placed at random.

    Args:
        shares: of the token copies, in any order; their sum may be below 1 where some are dropped.
        ranks: a divisor of their number.
    """
    loads = np.sort(np.asarray(shares))[::-1]
    experts = len(loads)
    each = experts // ranks
    if ranks == 1:
        return float(loads.sum())
    if each == 1 or loads[0] - loads[-1] < 1e-12:
        return float(loads[0] * each * ranks)
    step = loads[:each].sum() / (BINS - 1)
    grid = np.arange(BINS) * step
    counts = np.bincount(_leaders(experts, ranks), minlength=experts)
    sums = np.zeros((each, BINS))  # row c: distribution of the sum of c of the experts so far
    sums[0, 0] = 1.0
    union, product = np.zeros(BINS), np.ones(BINS)
    for so_far, index in enumerate(range(experts - 1, -1, -1)):
        if counts[index]:
            below = np.cumsum(sums[min(each - 1, so_far)])
            reached = np.interp(grid - loads[index], grid, below, left=0.0)
            union, product = union + counts[index] * (1 - reached), product * reached ** counts[index]
        chance = np.minimum(np.arange(each) / (so_far + 1), 1.0)[:, None]
        steps, part = divmod(loads[index] / step, 1.0)
        moved = np.zeros_like(sums)
        for bins, share in ((int(steps), 1 - part), (int(steps) + 1, part)):
            if bins < BINS:
                moved[1:, bins:] += share * sums[:-1, : BINS - bins]
        sums = (1 - chance) * sums + chance * moved
    weight = 1 / (ranks - 1)
    beyond = 1 - weight * np.maximum(1 - union, 0.0) - (1 - weight) * product
    result = float(np.sum(beyond) * step - 0.5 * step * beyond[0]) * ranks
    return max(result, float(loads.sum()))


def _as_tuples(layers: Sequence[Sequence[float]]) -> tuple[Shares, ...]:
    return tuple(tuple(map(float, layer)) for layer in layers)


class ExpertLoad(Module):
    """Load of the experts of a layer, by a power law or as measured, and what a capacity does to it.

    `experts` of the model; `exponent` of the power law, 0 uniform; `loads`, where measured, shares of each layer's
    experts in the order of their ranks. `capacity_factor` 0 sets no capacity.
    """

    experts: int = static()
    exponent: float = static(default=0.0)
    loads: tuple[Shares, ...] = static(default=(), converter=_as_tuples)
    capacity_factor: float = static(default=0.0)
    padded: bool = static(default=False)

    def __check_init__(self) -> None:
        if not 1 <= self.experts <= MOST_EXPERTS:
            raise ConfigError(f"experts = {self.experts:g} is outside [1, {MOST_EXPERTS:g}] of a load that is uneven")
        if not 0 <= self.exponent <= MOST_EXPONENT:
            raise ConfigError(f"exponent = {self.exponent:g} is outside [0, {MOST_EXPONENT:g}]")
        if self.capacity_factor and not 1 <= self.capacity_factor <= MOST_CAPACITY:
            raise ConfigError(
                f"capacity_factor = {self.capacity_factor:g} is neither 0, without capacity, nor of [1,"
                f" {MOST_CAPACITY:g}]: below 1 even experts drop tokens"
            )
        if self.padded and not self.capacity_factor:
            raise ConfigError("padded = true pads up to a capacity, but capacity_factor is 0 (Megatron:"
                              " --moe-pad-expert-input-to-capacity needs --moe-expert-capacity-factor)")  # fmt: skip
        for layer in self.loads:
            if len(layer) != self.experts or abs(sum(layer) - 1) > 1e-6 or min(layer) < 0:
                raise ConfigError(f"loads: a layer has {len(layer)} shares, not {self.experts} that sum to 1")

    def _layers(self) -> tuple[Shares, ...]:
        """Shares of the experts of each layer, those beyond the capacity cut."""
        shares = self.loads or (power_law(self.exponent, self.experts),)
        if not self.capacity_factor:
            return shares
        most = self.capacity_factor / self.experts
        return tuple(tuple(min(share, most) for share in layer) for layer in shares)

    def dropped_ratio(self) -> float:
        """Share of the token copies that no expert takes."""
        layers = self._layers()
        return 1 - sum(map(sum, layers)) / len(layers)

    def dropped(self, capacity_factor: Array) -> Array:
        """Share of the token copies that no expert takes at a capacity factor C of a plan; its own where that is 0.

        1 - mean over layers of sum_e min(p_e, C / E).
        """
        shares = jnp.asarray(self.loads or (power_law(self.exponent, self.experts),))
        most = capacity_factor[..., None, None] / self.experts
        served = jnp.sum(jnp.minimum(shares, most), axis=(-2, -1)) / len(shares)
        return jnp.where(capacity_factor > 0, at_least(1 - served, 0.0), self.dropped_ratio())

    def padded_share(self, capacity_factor: Array) -> Array:
        """Share of the experts' work that is padding: 1 - kept tokens / capacity where they are padded, else 0."""
        slots = self.capacity_factor if self.padded else 1.0
        factor = jnp.where(capacity_factor > 0, capacity_factor, slots)
        on = jnp.where(capacity_factor > 0, 1.0, float(self.padded))
        return on * (1 - (1 - self.dropped(capacity_factor)) / factor)

    def _ratio(self, ranks: int) -> float:
        layers = self._layers()
        if self.padded:
            return self.capacity_factor
        if not self.loads:
            return busiest_ratio(layers[0], ranks)
        held = [np.asarray(layer).reshape(ranks, -1).sum(axis=1).max() * ranks for layer in layers]
        return float(np.mean(held))

    def ratio(self, ranks: Array) -> Array:
        """Token copies that the busiest of `ranks` works on, over the mean of all that are routed.

        Exact at divisors of the experts, linear in the logarithm of the ranks between them.
        """
        divisors = [each for each in range(1, self.experts + 1) if self.experts % each == 0]
        values = [self._ratio(each) for each in divisors]
        result = jnp.zeros_like(ranks) + values[0]
        for low, high, before, after in zip(divisors, divisors[1:], values, values[1:], strict=False):
            span = np.log(high / low)
            result = result + (after - before) * at_most(at_least(jnp.log(ranks / low) / span, 0.0), 1.0)
        return result

    @classmethod
    def example(cls) -> "ExpertLoad":
        """Eight experts, the busiest with four times the load of the least busy."""
        return cls(8, 0.667)


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

    def sent_elements(self, hidden: Array, layers: Array, ranks: Array) -> tuple[Array, Array]:
        """Elements of a token that cross to a network on other devices, of an average layer: copies, and the whole.

        Copies go to the ranks among `ranks` that hold its experts, one to each; the whole to one of them, for what is
        no routed expert.
        """
        return 0.0 * ranks, hidden + 0.0 * layers

    def busiest(self, layout: Layout) -> Array:
        """Copies that the busiest rank takes over the mean."""
        return ones_like(layout.plan.ep)

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
    saved_input, full = inputs
    return [
        linear(f"{name}_up", shard, tokens, hidden, width * (1 + gated), stored_bytes=saved_input, working_bytes=full),
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
        inputs = input_bytes(shard, hidden, jnp.asarray(0.0))
        sharded = shard.tokens * hidden * act / shard.outside
        width = self.width / shard.layout.plan.tp
        return [
            branch("mlp_branch", shard, hidden, 2, sharded=True, stored_bytes=sharded),
            norm("mlp_norm", shard, hidden, vectors=norm_vectors),
            *mlp(shard, hidden, width, self.gated, inputs, fused=self.fused_activation, name="mlp"),
            *residual("mlp", shard, hidden, dropout=dropout),
        ]


def _most_touched(local: Array, held: Array, copies: Array, ranks: Array) -> Array:
    """Experts that the busiest of `ranks` reads, `local` of `held` on each, for so many token copies in all.

    An expert has none of the copies with chance q = (1 - 1 / held)^copies: of l experts l (1 - q) have some, give or
    take sqrt(l q (1 - q)). A step waits for the largest of n such numbers, about ln n / (1.13 + 0.15 ln n) deviations
    above their mean (within 1.6 % of the expected largest of 2 to 256 normal variates).

    Assumes: copies drawn evenly, each for itself. Fitted: the two constants, to nine such expectations by quadrature,
    n = 2 to 256; these and random draws are in `tests/test_expert_load.py`.
    """
    none = at_least((1 - 1 / held) ** copies, 1e-12)
    some = at_least(1 - none, 1e-12)
    several = jnp.log(ranks)
    above = several / (1.13 + 0.15 * several) * jnp.sqrt(local * none * some)
    return at_most(at_least(local * some + above, 1.0), local)


class MixtureOfExperts(AbstractFeedForward):
    """`experts` feed-forward networks of which each token visits `top_k`, plus shared ones that all visit.

    The first `dense_layers` layers are dense with `dense_width`. Experts are divided over the expert-parallel ranks
    and each expert over the tensor ranks: a rank dispatches its share of the token copies, and those that reach a
    tensor group are gathered there (with ep 1 nothing is dispatched, and the tokens are gathered as in a dense layer).
    `imbalance` is the most loaded rank's tokens over the mean, which `load` says by number of ranks. Ranks that do not
    divide the experts each hold as many
    whole ones as it takes: the redundant experts of a server, which training does not have. `latent`: routed experts
    work on so many elements of a token, to which one product leads and from which another leads back.

    Assumes: tokens spread evenly but for `imbalance`; few tokens read the experts of the busiest rank.
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

    def busiest(self, layout: Layout) -> Array:
        """Token copies of the busiest expert rank over the mean."""
        imbalance = self.imbalance if self.load is None else self.imbalance * self.load.ratio(layout.plan.ep)
        capacity = layout.plan.capacity_factor
        return jnp.where(capacity > 0, capacity, imbalance)  # padded: all ranks alike

    def sent_elements(self, hidden: Array, layers: Array, ranks: Array) -> tuple[Array, Array]:
        """Expected ranks that hold any of a token's experts, k drawn of n: n (1 - (1 - 1 / n)^k), at the least one.

        The whole where layers are dense, and for shared experts where a copy is no whole token. Assumes: experts drawn
        one by one; each rank has shared experts, and works them for tokens of which it has a copy anyway.
        """
        dense, some = self.dense_share(layers), jnp.where(self.shared_experts > 0, 1.0, 0.0)
        distinct = ranks * (1 - (1 - 1 / ranks) ** self.top_k)
        if self.latent is None:
            return (1 - dense) * distinct * hidden, dense * hidden
        return (1 - dense) * distinct * self.latent, (dense + (1 - dense) * some) * hidden

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
        copies = copies * self.busiest(layout)
        dispatch, combine = copies * shard.precision.bytes_of("dispatch"), copies * act
        folded = layout.expert_tp != layout.plan.tp
        # layers whose experts work on token copies alone
        apart = sparse * jnp.where((layout.plan.ep > 1) | folded, 1.0, 0.0)
        alone = apart * jnp.where(self.shared_experts > 0, 0.0, 1.0)  # and that have no use for the tokens themselves
        replicated = alone * (1 - layout.scattered)  # every rank had all tokens, and needs them again
        # experts on ranks that all have the same tokens: each works for its own, and their sums join
        shared = jnp.where((layout.plan.etp > 0) & (layout.sharing == 1), 1 - layout.scattered, 0.0)
        sent, apart, replicated = sparse * (1 - shared), apart * (1 - shared), replicated * (1 - shared)
        joined = 1 - alone * (1 - shared)
        joins = [scaled(comm, joined) for comm in tensor_parallel_comms("mlp", shard, hidden, again=again)]
        tp = layout.plan.tp
        group = layout.expert_tp / tp  # tensor ranks whose copies meet in the ranks of an expert
        return [
            *joins,
            BlockComm("moe_dispatch", "all_to_all", "ep", dispatch / tp, 1.0, 1.0, layout.full, sent),
            BlockComm("moe_dispatch_tp", "all_gather", "expert_tp", dispatch * group, 1.0, 1.0, again, apart),
            BlockComm("moe_combine_tp", "reduce_scatter", "expert_tp", combine * group, 1.0, 1.0, layout.full, apart),
            BlockComm("moe_combine", "all_to_all", "ep", combine / tp, 1.0, 1.0, layout.full, sent),
            BlockComm("mlp_tp", "all_gather", "tp", shard.tokens * hidden * act, 1.0, 1.0, layout.full, replicated),
        ]

    def ops(self, shard: Shard, hidden: Array, layers: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """Norm, router, shared experts, routed experts, residual; and the dense layers' share of dense products."""
        layout, act, tokens = shard.layout, shard.precision.bytes_of("activations"), shard.tokens
        dense = self.dense_share(layers)
        saved_input, full = input_bytes(shard, hidden, jnp.asarray(0.0))
        nothing = (jnp.zeros_like(saved_input), jnp.zeros_like(saved_input))  # the input is counted with the router
        never = jnp.asarray(0.0)
        sharded = tokens * hidden * act / shard.outside
        some = jnp.where(self.shared_experts > 0, 1.0, 0.0)
        # where there is none, another width stands in, zero times: a product without columns has no gradient
        shared_width = jnp.where(self.shared_experts > 0, self.shared_experts, 1.0) * self.expert_width / layout.plan.tp
        shared = mlp(shard, hidden, shared_width, self.gated, nothing, fused=never, name="moe_shared")
        dense_width = jnp.where(self.dense_width > 0, self.dense_width, self.expert_width) / layout.plan.tp
        dense_ops = mlp(shard, hidden, dense_width, self.gated, (saved_input, full), fused=never, name="mlp")
        router = linear(
            "moe_router",
            shard,
            tokens / shard.outside,
            hidden,
            self.experts,
            stored_bytes=saved_input,
            working_bytes=full,
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
        full, shard_bytes = each * (layout.expert_tp / layout.plan.tp), each / shard.outside * gathered
        again = layout.sequence_parallel_regather * gathered
        return full * (1 - again) + shard_bytes, full + shard_bytes

    def _routed(self, shard: Shard, hidden: Array) -> list[BlockOp]:
        """The grouped products of the experts that this rank holds."""
        layout, act = shard.layout, shard.precision.bytes_of("activations")
        depth = hidden if self.latent is None else self.latent
        local = ceil(self.experts / layout.plan.ep)  # whole ones: where ranks do not divide them, some are held twice
        group = layout.expert_tp / layout.plan.tp
        busiest = self.busiest(layout)
        rows = shard.tokens * self.top_k * busiest * group  # token copies that reach this rank
        width = self.expert_width / layout.expert_tp
        held = local * layout.plan.ep
        touched = _most_touched(local, held, rows * layout.plan.ep, layout.plan.ep)

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
        hidden_bytes = inner * (1 + self.gated) * act
        copies = [self.top_k * busiest * nbytes for nbytes in self._arrived_bytes(shard, depth)]
        return [
            grouped("moe_up", depth, width * (1 + self.gated), 0.0, *copies),
            elementwise(
                "moe_activation", inner, forward=(8, 2 * act), backward=(13, 2 * act),
                stored_bytes=hidden_bytes, gradient_bytes=hidden_bytes, extra_bytes=inner * self.gated * act,
            ),
            grouped("moe_down", width, depth, 1.0, inner * act, inner * act),
        ]  # fmt: skip
