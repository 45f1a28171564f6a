"""Sparse attention: an indexer chooses the tokens that latent or grouped-query attention sees."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import integer, static
from ...core.smooth import at_most
from ..hardware import Work
from .attention import AbstractAttention, GroupedQueryAttention, LatentAttention
from .layer_operations import BlockComm, BlockOp, Precision, Shard, elementwise, linear
from .local_attention import mean_seen


class SparseAttention(AbstractAttention):
    """Attention to the `selected` tokens, or blocks of so many in all, that a small indexer scores highest.

    The indexer has `index_heads` heads of `index_dim` that share one key a token, and scores the whole context; the
    core then attends at most `selected` tokens (latent vectors, in the absorbed form) of each token's own choice.
    Without an indexer of its `own`, a layer takes the choice of one before it.

    Assumes: scores are products in the format of the matrix products, keys of the index are cached in that of the
    cache; choosing passes over the scores twice, in fp32; trained and prefilled as served. Source: [deepseekv32].
    """

    attention: LatentAttention | GroupedQueryAttention
    selected: Float[Array, "*b"] = integer(low=1.0, doc="tokens")
    index_heads: Float[Array, "*b"] = integer(low=1.0)
    index_dim: Float[Array, "*b"] = integer(low=1.0)
    own: bool = static(default=True)

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
        return self.attention.causal

    def _attended(self, shard: Shard) -> Array:
        """Mean keys of a token before any is chosen."""
        return shard.keys - 0.5 * self.causal * shard.queries * shard.layout.plan.cp

    def _chosen(self, shard: Shard) -> Shard:
        """Every token by itself, with the keys chosen for it."""
        ranks = shard.layout.plan.cp
        if shard.decode:
            keys = at_most(shard.keys * ranks, self.selected) / ranks
        else:
            keys = mean_seen(self._attended(shard), self.selected, chunked=False)
        alone = {"sequences": shard.tokens, "queries": jnp.ones_like(shard.queries)}
        return dataclasses.replace(shard, **alone, keys=keys, decode=True)

    def _scores(self, shard: Shard) -> list[BlockOp]:
        """The indexer's scores and the choice; on every tensor rank, as the index has one key a token."""
        attended, precision = self._attended(shard), shard.precision
        pairs = shard.tokens * attended
        flops = 2 * pairs * self.index_heads * self.index_dim
        keys = shard.sequences * shard.keys * self.index_dim * precision.bytes_of("kv_cache")
        queries = shard.tokens * self.index_heads * self.index_dim * precision.bytes_of("activations")
        rows, nbytes = shard.queries * self.index_heads, keys + queries + 4 * pairs

        def work(times: float) -> Work:
            return Work(times * flops, times * nbytes, rows, attended, self.index_dim, shard.sequences)

        scores = BlockOp("index_scores", "gemm", precision.compute, work(1), work(2), None, core=True)
        choice = elementwise("index_choice", pairs, forward=(2, 8), backward=(0, 0), core=True)
        return [scores, choice]

    def ops(self, shard: Shard, hidden: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """Its attention's projections, the indexer, and the core over what is chosen."""
        options = {"dropout": dropout, "norm_vectors": norm_vectors}
        own = [op for op in self.attention.ops(shard, hidden, **options) if not op.core]
        chosen = self.attention.ops(self._chosen(shard), hidden, **options)
        return [*own, *(self._index(shard, hidden) if self.own else []), *[op for op in chosen if op.core]]

    def _queries_from(self, hidden: Array) -> Array:
        """Depth of the product that gives the index's queries: the latent queries where there are some."""
        return self.attention.q_rank if isinstance(self.attention, LatentAttention) else hidden

    def _key_columns(self) -> Array:
        """A key, and of latent attention a weight a head."""
        return self.index_dim + (self.index_heads if isinstance(self.attention, LatentAttention) else 0.0)

    def _index(self, shard: Shard, hidden: Array) -> list[BlockOp]:
        """Projections, scores and choice."""
        width = self.index_heads * self.index_dim
        return [
            linear("index_queries", shard, shard.tokens, self._queries_from(hidden), width),
            linear("index_keys", shard, shard.tokens, hidden, self._key_columns()),
            *self._scores(shard),
        ]

    def comms(self, shard: Shard, hidden: Array) -> list[BlockComm]:
        """Its attention's."""
        return self.attention.comms(shard, hidden)

    def parameters(self, hidden: Array) -> Array:
        """With the indexer's."""
        if not self.own:
            return self.attention.parameters(hidden)
        index = self._queries_from(hidden) * self.index_heads * self.index_dim
        return self.attention.parameters(hidden) + index + hidden * self._key_columns()

    def cache_bytes(self, tokens: Array, tp: Array, precision: Precision) -> Array:
        """All latent vectors, for any may be chosen, and the index's keys."""
        if not self.own:
            return self.attention.cache_bytes(tokens, tp, precision)
        index = tokens * self.index_dim * precision.bytes_of("kv_cache")
        return self.attention.cache_bytes(tokens, tp, precision) + index

    def flops_per_token(self, keys: Array) -> Array:
        """The indexer over all keys, attention over those chosen."""
        chosen = mean_seen(keys, self.selected, chunked=False)
        if not self.own:
            return self.attention.flops_per_token(chosen)
        return 2 * self.index_heads * self.index_dim * keys + self.attention.flops_per_token(chosen)

    @classmethod
    def example(cls) -> "SparseAttention":
        """A small one, of 64 tokens."""
        return cls(LatentAttention(8.0, 128.0, 64.0, 32.0, 16.0, 32.0), 64.0, 4.0, 32.0)
