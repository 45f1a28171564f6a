"""Attention that does not reach the whole context: sliding windows and chunks, in some or all layers."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import integer, quantity, static
from ...core.smooth import at_most
from .attention import AbstractAttention, GroupedQueryAttention, half_span
from .layer_operations import BlockComm, BlockOp, Precision, Shard, scaled


class LocalAttention(AbstractAttention):
    """Any attention, of which `share` of the layers see the last `window` tokens alone.

    Tokens whose positions are spread evenly up to twice their mean, p < 2 m, see on average

        E[min(p, w)] = v - v^2 / (4 m)      v = min(2 m, w)       a window of w tokens
        E[p mod w]   = v / 2                                      chunks of w tokens (`chunked`)

    which is m where the window is longer than the context; a decoding token sees min(keys, w), half of a full chunk.
    The cache of such a layer keeps at most w tokens, as engines with a cache of several kinds of layers do.

    Assumes: causal attention; attention sinks cost nothing (one more score a head); traffic of a prompt's keys falls
    with what is attended. Source: windows [beltagy2020]; the averages are derived here.
    """

    attention: AbstractAttention
    window: Float[Array, "*b"] = integer(low=1.0, doc="tokens")
    share: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="of the layers that have it")
    chunked: bool = static(default=False)

    @property
    def heads(self) -> Array:
        """Query heads."""
        return self.attention.heads

    @property
    def kv_heads(self) -> Array:
        """Key-value heads, where there are some."""
        return getattr(self.attention, "kv_heads", self.heads)

    @property
    def causal(self) -> Array:
        """True where tokens see earlier ones alone."""
        return getattr(self.attention, "causal", jnp.asarray(1.0))

    @property
    def exchanges_heads(self) -> bool:
        """True where its attention does."""
        return self.attention.exchanges_heads

    def seen(self, mean: Array) -> Array:
        """Mean keys of tokens that stand at `mean` on average."""
        return mean_seen(mean, self.window, chunked=self.chunked)

    def near(self, shard: Shard) -> Shard:
        """The shard of a layer with the window: the keys that its tokens see."""
        ranks = shard.layout.plan.cp
        if shard.decode:
            whole = shard.keys * ranks
            most = jnp.where(whole > self.window, 0.5 * self.window, whole) if self.chunked else self.window
            return dataclasses.replace(shard, keys=at_most(whole, most) / ranks)
        spread = self.causal * half_span(shard)  # from a token's mean position to the last one's
        return dataclasses.replace(shard, keys=self.seen(shard.keys - spread) + spread)

    def ops(self, shard: Shard, hidden: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """Its attention's, with a second core for the layers that have the window."""
        options = {"dropout": dropout, "norm_vectors": norm_vectors}
        everywhere = self.attention.ops(shard, hidden, **options)
        cores = [op for op in self.attention.ops(self.near(shard), hidden, **options) if op.core]
        local = [dataclasses.replace(scaled(op, self.share), name=f"local_{op.name}") for op in cores]
        return [scaled(op, 1 - self.share) if op.core else op for op in everywhere] + local

    def comms(self, shard: Shard, hidden: Array) -> list[BlockComm]:
        """Its attention's: the ring passes whole contexts in every layer, which no window needs beyond its length."""
        return self.attention.comms(shard, hidden)

    def parameters(self, hidden: Array) -> Array:
        """Windows have no weights."""
        return self.attention.parameters(hidden)

    def weights_by_class(self, hidden: Array) -> dict[str, Array]:
        """Weights of the inner attention by class."""
        return self.attention.weights_by_class(hidden)

    def cache_bytes(self, tokens: Array, tp: Array, precision: Precision) -> Array:
        """Whole contexts in some layers, windows in the others."""
        whole = self.attention.cache_bytes(tokens, tp, precision)
        kept = self.attention.cache_bytes(at_most(tokens, self.window), tp, precision)
        return (1 - self.share) * whole + self.share * kept

    def flops_per_token(self, keys: Array) -> Array:
        """FLOPs per token of an average layer; `keys` is a mean position."""
        near = self.attention.flops_per_token(self.seen(keys))
        return (1 - self.share) * self.attention.flops_per_token(keys) + self.share * near

    @classmethod
    def example(cls) -> "LocalAttention":
        """Half of the layers see 128 tokens."""
        return cls(GroupedQueryAttention(8.0, 4.0, 64.0), 128.0, 0.5)


def mean_seen(mean: Array, window: Array, *, chunked: bool) -> Array:
    """Mean keys, of the last `window` or of a chunk of so many, that tokens at positions up to 2 `mean` see."""
    reached = at_most(2 * mean, window)
    return 0.5 * reached if chunked else reached - 0.25 * reached**2 / mean
