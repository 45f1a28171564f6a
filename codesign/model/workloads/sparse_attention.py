"""Attention to a part of the context: sliding windows, chunks, compressed entries, tokens an indexer chooses."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import Module, integer, quantity, static
from ...core.smooth import at_most
from ..hardware import Work
from .attention import AbstractAttention, GroupedQueryAttention, LatentAttention, half_span, input_bytes
from .layer_operations import (
    BlockComm,
    BlockOp,
    Precision,
    Shard,
    branch,
    elementwise,
    linear,
    norm,
    residual,
    scaled,
    tensor_parallel_comms,
)

# Attention that does not reach the whole context: sliding windows and chunks, in some or all layers.


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
            all_keys = shard.keys * ranks
            most = jnp.where(all_keys > self.window, 0.5 * self.window, all_keys) if self.chunked else self.window
            return dataclasses.replace(shard, keys=at_most(all_keys, most) / ranks)
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
        full = self.attention.cache_bytes(tokens, tp, precision)
        windowed = self.attention.cache_bytes(at_most(tokens, self.window), tp, precision)
        return (1 - self.share) * full + self.share * windowed

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


# Attention to compressed contexts: a window of tokens, and one entry for every few tokens before it.


class EntryIndex(Module):
    """A small index over compressed entries: `heads` queries of `dim` a token, one key an entry, `selected` seen."""

    selected: Float[Array, "*b"] = integer(low=1.0, doc="entries")
    heads: Float[Array, "*b"] = integer(low=1.0)
    dim: Float[Array, "*b"] = integer(low=1.0)

    @classmethod
    def example(cls) -> "EntryIndex":
        """64 entries, chosen by four heads."""
        return cls(64.0, 4.0, 32.0)


class CompressedAttention(AbstractAttention):
    """`heads` query heads that share one vector of `head_dim` a cached entry, key and value in one.

    Queries come through `q_rank`, results leave through `out_groups` groups of rank `out_rank`. A token sees the last
    `window` tokens and, with `ratio`, an entry for every `ratio` tokens, pooled with learned weights. With an `index`,
    those entries are scored (its own key is compressed as they are, both from windows that overlap by half) and the
    core sees the chosen ones; without, all of them.

    Assumes: the entries of a token's own group are seen as if complete; scores and choice as of `SparseAttention`.
    Source: [deepseekv4], compressed sparse and heavily compressed attention.
    """

    heads: Float[Array, "*b"] = integer(low=1.0)
    head_dim: Float[Array, "*b"] = integer(low=1.0)
    q_rank: Float[Array, "*b"] = integer(low=1.0)
    out_groups: Float[Array, "*b"] = integer(low=1.0)
    out_rank: Float[Array, "*b"] = integer(low=1.0)
    window: Float[Array, "*b"] = integer(low=1.0, doc="tokens")
    ratio: Float[Array, "*b"] | None = integer(low=1.0, default=None, doc="tokens an entry; none: the window alone")
    index: EntryIndex | None = None
    causal: Float[Array, "*b"] = quantity(high=1.0, default=1.0)

    def _pooled(self) -> Array:
        """Columns that compression adds to the input projection: a value and a weight, twice where windows overlap."""
        if self.ratio is None:
            return jnp.asarray(0.0)
        if self.index is None:
            return 2 * self.head_dim
        return 4 * (self.head_dim + self.index.dim) + self.index.heads

    def _indexed(self) -> Array:
        """Columns of the index's queries."""
        return jnp.asarray(0.0) if self.index is None else self.index.heads * self.index.dim

    def parameters(self, hidden: Array) -> Array:
        """Queries, entries, compression, index, grouped output."""
        width = self.heads * self.head_dim
        down = hidden * (self.q_rank + self.head_dim + self._pooled())
        out = width * self.out_rank + self.out_groups * self.out_rank * hidden
        return down + self.q_rank * (width + self._indexed()) + out

    def cache_bytes(self, tokens: Array, tp: Array, precision: Precision) -> Array:
        """The window, and an entry (with the index's key) for every `ratio` tokens, on every tensor rank."""
        held = at_most(tokens, self.window) * self.head_dim
        if self.ratio is not None:
            each = self.head_dim if self.index is None else self.head_dim + self.index.dim
            held = held + tokens / self.ratio * each
        return held * precision.bytes_of("kv_cache") * jnp.ones_like(tp)

    def _core_keys(self, mean: Array, *, alone: bool) -> Array:
        """Entries that a token sees which has `mean` tokens before it; `alone`: exactly so many, else on average."""
        near = at_most(mean, self.window) if alone else mean_seen(mean, self.window, chunked=False)
        if self.ratio is None:
            return near
        entries = mean / self.ratio
        if self.index is None:
            return near + entries
        most = self.index.selected
        return near + (at_most(entries, most) if alone else mean_seen(entries, most, chunked=False))

    def flops_per_token(self, keys: Array) -> Array:
        """Core over what is seen, index over all entries."""
        core = 4 * self.heads * self.head_dim * self._core_keys(keys, alone=False)
        return core if self.ratio is None else core + 2 * self._indexed() * keys / self.ratio

    def comms(self, shard: Shard, hidden: Array) -> list[BlockComm]:
        """Tensor-parallel joins and the context ring over the entries."""
        layout = shard.layout
        again = jnp.maximum(layout.selective, layout.sequence_parallel_regather)
        chunk = shard.tokens * self.head_dim * shard.precision.bytes_of("activations")
        around = layout.plan.cp - 1
        ring = BlockComm("attention_ring", "send", "cp", chunk, around, 2 * around, layout.selective * around)
        return [*tensor_parallel_comms("attention", shard, hidden, again=again), ring]

    def ops(self, shard: Shard, hidden: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """Norm, projections, index, core, grouped output projection, residual."""
        tp, act, tokens = shard.layout.plan.tp, shard.precision.bytes_of("activations"), shard.tokens
        width = self.heads / tp * self.head_dim
        saved_input, full_input = input_bytes(shard, hidden, shard.layout.keeps_no_core)
        sharded = tokens * hidden * act / shard.outside
        down, inner = self.q_rank + self.head_dim + self._pooled(), self.out_groups / tp * self.out_rank
        return [
            branch("attention_branch", shard, hidden, 2, sharded=True, stored_bytes=sharded),
            norm("attention_norm", shard, hidden, vectors=norm_vectors),
            linear("attention_down", shard, tokens, hidden, down, stored_bytes=saved_input, working_bytes=full_input),
            linear("attention_q_up", shard, tokens, self.q_rank, width, stored_bytes=tokens * self.q_rank * act),
            *self._scored(shard),
            self._core(shard),
            linear("attention_out_down", shard, tokens, width, self.out_rank, stored_bytes=tokens * width * act),
            linear("attention_out", shard, tokens, inner, hidden, stored_bytes=tokens * inner * act),
            *residual("attention", shard, hidden, dropout=dropout),
        ]

    def _mean(self, shard: Shard) -> Array:
        """Mean tokens before one."""
        ranks = shard.layout.plan.cp
        return shard.keys * ranks - 0.5 * self.causal * shard.queries * ranks

    def _scored(self, shard: Shard) -> list[BlockOp]:
        """Queries, scores of all entries, choice; on every tensor rank, as an entry has one key."""
        precision, index = shard.precision, self.index
        if index is None or self.ratio is None:
            return []
        entries = self._mean(shard) / self.ratio
        pairs, width = shard.tokens * entries / shard.layout.plan.cp, self._indexed()
        keys = shard.sequences * shard.keys / self.ratio * index.dim * precision.bytes_of("kv_cache")
        nbytes = keys + shard.tokens * width * precision.bytes_of("activations") + 4 * pairs

        def work(times: float) -> Work:
            rows = shard.queries * index.heads
            return Work(2 * times * pairs * width, times * nbytes, rows, entries, index.dim, shard.sequences)

        return [
            linear("index_queries", shard, shard.tokens, self.q_rank, width),
            BlockOp("index_scores", "gemm", precision.compute, work(1), work(2), None, core=True),
            elementwise("index_choice", pairs, forward=(2, 8), backward=(0, 0), core=True),
        ]

    def _core(self, shard: Shard) -> BlockOp:
        """All heads over the entries that a token sees, key and value in one vector."""
        act, heads = shard.precision.bytes_of("activations"), self.heads / shard.layout.plan.tp
        ranks = shard.layout.plan.cp
        seen = self._core_keys(self._mean(shard), alone=shard.decode) / ranks
        element = shard.precision.bytes_of("kv_cache") if shard.decode else act
        readers = shard.tokens if self.index is not None else shard.sequences  # each token reads its own choice
        nbytes = readers * seen * self.head_dim * element + 2 * shard.tokens * heads * self.head_dim * act
        flops = 4 * shard.tokens * heads * self.head_dim * seen
        stored = shard.tokens * heads * self.head_dim * act

        def work(passes: float, reads: float) -> Work:
            return Work(
                passes * flops, reads * nbytes, shard.queries, seen, self.head_dim,
                shard.sequences * heads, shard.sequences,
            )  # fmt: skip

        kind = "mla_decode" if shard.decode else "mla_prefill"
        return BlockOp(
            "attention_core", kind, shard.precision.attention, work(1, 1), work(2.5, 2), None,
            stored_bytes=stored, working_bytes=stored, gradient_bytes=stored, core=True,
        )  # fmt: skip

    @classmethod
    def example(cls) -> "CompressedAttention":
        """Every four tokens in one entry, 64 of them chosen."""
        plain = cls(8.0, 64.0, 128.0, 2.0, 64.0, 32.0)
        return dataclasses.replace(plain, ratio=4.0, index=EntryIndex.example())


# Sparse attention: an indexer chooses the tokens that latent or grouped-query attention sees.


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
        projections = [op for op in self.attention.ops(shard, hidden, **options) if not op.core]
        chosen = self.attention.ops(self._chosen(shard), hidden, **options)
        return [*projections, *(self._index(shard, hidden) if self.own else []), *[op for op in chosen if op.core]]

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
