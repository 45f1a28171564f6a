"""Layers of several kinds: attention and feed-forward networks that differ from layer to layer."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import part, quantities
from .attention import AbstractAttention, GroupedQueryAttention, summed
from .feed_forward import AbstractFeedForward, DenseFeedForward, MixtureOfExperts
from .layer_operations import BlockComm, BlockOp, Precision, Scaled, Shard, scaled
from .linear_attention import LinearAttention
from .plan import Layout
from .sparse_attention import LocalAttention


def shares(kinds: dict[str, Any], layers: dict[str, Array]) -> dict[str, Array]:
    """Share of all layers that each kind has; layers of a name without a kind have none of it.

    Raises:
        ConfigError: a kind without a count.
    """
    for name in kinds:
        if name not in layers:
            raise ConfigError(f"layers.{name} is missing: how many layers are of that kind (has: {', '.join(layers)})")
    total = jnp.asarray(0.0)
    for count in layers.values():
        total = total + count
    return {name: layers[name] / total for name in kinds}


def average(of: dict[str, Array], kinds: dict[str, Any], value: Callable[[Any], Array]) -> Array:
    """Mean over the layers of what each kind has."""
    total = jnp.asarray(0.0)
    for name, share in of.items():
        total = total + share * value(kinds[name])
    return total


def parts(of: dict[str, Array], listed: Callable[[str], list[Scaled]]) -> list[Scaled]:
    """Operations of all kinds, each as often as an average layer has it."""
    return [scaled(one, share) for name, share in of.items() for one in listed(name)]


class MixedAttention(AbstractAttention):
    """Attention of several kinds by name, `layers` of each; a name without a kind: layers without attention.

    The first kind whose cache grows says which tensor-parallel degrees divide the heads.
    """

    kinds: dict[str, AbstractAttention] = part()
    layers: dict[str, Float[Array, "*b"]] = quantities()

    def _shares(self) -> dict[str, Array]:
        return shares(self.kinds, self.layers)

    def _first(self) -> AbstractAttention:
        """A kind with keys and values, where there is one."""
        growing = [kind for kind in self.kinds.values() if not isinstance(kind, LinearAttention)]
        return (growing or list(self.kinds.values()))[0]

    @property
    def heads(self) -> Array:
        """Query heads of the first kind whose cache grows."""
        return self._first().heads

    @property
    def kv_heads(self) -> Array:
        """Key-value heads of that kind, where there are some."""
        return getattr(self._first(), "kv_heads", self.heads)

    @property
    def exchanges_heads(self) -> bool:
        """True where all kinds do."""
        return all(kind.exchanges_heads for kind in self.kinds.values())

    @property
    def causal(self) -> Array:
        """True if tokens see earlier ones alone."""
        return getattr(self._first(), "causal", jnp.asarray(1.0))

    def ops(self, shard: Shard, hidden: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """All kinds', as often as there are layers of them."""
        options = {"dropout": dropout, "norm_vectors": norm_vectors}
        return parts(self._shares(), lambda name: self.kinds[name].ops(shard, hidden, **options))

    def comms(self, shard: Shard, hidden: Array) -> list[BlockComm]:
        """All kinds'."""
        return parts(self._shares(), lambda name: self.kinds[name].comms(shard, hidden))

    def parameters(self, hidden: Array) -> Array:
        """Parameters of an average layer."""
        return average(self._shares(), self.kinds, lambda kind: kind.parameters(hidden))

    def weights_by_class(self, hidden: Array) -> dict[str, Array]:
        """Weights by class of an average layer."""
        return summed([(self.kinds[name].weights_by_class(hidden), share) for name, share in self._shares().items()])

    def cache_bytes(self, tokens: Array, tp: Array, precision: Precision) -> Array:
        """Cache bytes of an average layer."""
        return average(self._shares(), self.kinds, lambda kind: kind.cache_bytes(tokens, tp, precision))

    def flops_per_token(self, keys: Array) -> Array:
        """Flops per token of an average layer."""
        return average(self._shares(), self.kinds, lambda kind: kind.flops_per_token(keys))

    @classmethod
    def example(cls) -> "MixedAttention":
        """Full attention, a window, and layers without attention."""
        full = GroupedQueryAttention(8.0, 4.0, 64.0)
        return cls({"full": full, "near": LocalAttention(full, 128.0)}, {"full": 1.0, "near": 2.0, "none": 1.0})


class MixedFeedForward(AbstractFeedForward):
    """Feed-forward networks of several kinds by name, `layers` of each; a name without a kind: layers without one."""

    kinds: dict[str, AbstractFeedForward] = part()
    layers: dict[str, Float[Array, "*b"]] = quantities()

    def _shares(self) -> dict[str, Array]:
        return shares(self.kinds, self.layers)

    def __getattr__(self, name: str) -> Any:
        """Numbers of the routed experts, of which only one kind has some (`experts`, `top_k`, ...)."""
        if name.startswith("_") or name in ("kinds", "layers"):
            raise AttributeError(name)
        for kind in self.kinds.values():
            if isinstance(kind, MixtureOfExperts):
                return getattr(kind, name)
        raise AttributeError(name)

    def ops(self, shard: Shard, hidden: Array, layers: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """All kinds', as often as there are layers of them."""
        options = {"dropout": dropout, "norm_vectors": norm_vectors}
        return parts(self._shares(), lambda name: self.kinds[name].ops(shard, hidden, layers, **options))

    def comms(self, shard: Shard, hidden: Array, layers: Array) -> list[BlockComm]:
        """All kinds'."""
        return parts(self._shares(), lambda name: self.kinds[name].comms(shard, hidden, layers))

    def parameters(self, hidden: Array, layers: Array) -> Array:
        """Parameters of an average layer."""
        return average(self._shares(), self.kinds, lambda kind: kind.parameters(hidden, layers))

    def sent_elements(self, hidden: Array, layers: Array, ranks: Array) -> tuple[Array, Array]:
        """Mean over the layers."""
        sent = {name: kind.sent_elements(hidden, layers, ranks) for name, kind in self.kinds.items()}
        both = (sum((share * sent[name][index] for name, share in self._shares().items()), jnp.asarray(0.0))
                for index in (0, 1))  # fmt: skip
        copies, elements = both
        return copies, elements

    def busiest(self, layout: Layout) -> Array:
        """Busiest rank over the mean, of the kind with experts."""
        experts = [kind for kind in self.kinds.values() if isinstance(kind, MixtureOfExperts)]
        return (experts or list(self.kinds.values()))[0].busiest(layout)

    def dense_share(self, layers: Array) -> Array:
        """Share of layers whose network has no experts, of the layers that have a network."""
        return average(self._shares(), self.kinds, lambda kind: kind.dense_share(layers))

    def active_parameters(self, hidden: Array, layers: Array) -> Array:
        """Active parameters of an average layer."""
        return average(self._shares(), self.kinds, lambda kind: kind.active_parameters(hidden, layers))

    def weights_by_class(self, hidden: Array, layers: Array) -> dict[str, Array]:
        """Weights by class of an average layer."""
        shares_of = self._shares().items()
        return summed([(self.kinds[name].weights_by_class(hidden, layers), share) for name, share in shares_of])

    @classmethod
    def example(cls) -> "MixedFeedForward":
        """Wide, narrow, and none."""
        kinds = {"wide": DenseFeedForward(2048.0), "narrow": DenseFeedForward(512.0)}
        return cls(kinds, {"wide": 1.0, "narrow": 2.0, "none": 1.0})
