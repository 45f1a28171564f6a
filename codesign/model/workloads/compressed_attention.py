"""Attention to compressed contexts: a window of tokens, and one entry for every few tokens before it."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import integer, quantity
from ...core.module import Module
from ...core.smooth import at_most
from ..hardware import Work
from .attention import AbstractAttention, input_bytes
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
    tensor_parallel_comms,
)
from .local_attention import mean_seen


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
        kept, whole = input_bytes(shard, hidden, shard.layout.selective)
        sharded = tokens * hidden * act / shard.outside
        down, inner = self.q_rank + self.head_dim + self._pooled(), self.out_groups / tp * self.out_rank
        return [
            branch("attention_branch", shard, hidden, 2, sharded=True, stored_bytes=sharded),
            norm("attention_norm", shard, hidden, vectors=norm_vectors),
            linear("attention_down", shard, tokens, hidden, down, stored_bytes=kept, working_bytes=whole),
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
