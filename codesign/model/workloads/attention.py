"""Attention sub-layers: multi-head, grouped-query, multi-query and multi-head latent attention."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import Module, integer, quantity, static
from ...core.smooth import at_least
from ..hardware import Work
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


class AbstractAttention(Module):
    """One attention sub-layer, from its norm to its residual addition."""

    heads: eqx.AbstractVar[Float[Array, "*b"]]

    @property
    def exchanges_heads(self) -> bool:
        """True if context ranks can exchange heads (`Plan.ulysses`)."""
        return False

    @property
    def decode_widths(self) -> tuple[Array, Array] | None:
        """Elements of a head's query and result while decoding; None where cached tokens cannot be divided."""
        return None

    @abc.abstractmethod
    def ops(self, shard: Shard, hidden: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """Arithmetic of one layer on one device."""

    @abc.abstractmethod
    def comms(self, shard: Shard, hidden: Array) -> list[BlockComm]:
        """Communication of one layer."""

    @abc.abstractmethod
    def parameters(self, hidden: Array) -> Array:
        """Weights of one layer, on all devices together."""

    def weights_by_class(self, hidden: Array) -> dict[str, Array]:
        """Class of weights (`number_formats.CLASSES`) -> how many, of an average layer."""
        return {"attention": self.parameters(hidden)}

    @abc.abstractmethod
    def cache_bytes(self, tokens: Array, tp: Array, precision: Precision) -> Array:
        """Cache bytes of a sequence of `tokens` while it is decoded: one layer, one tensor rank."""

    @abc.abstractmethod
    def flops_per_token(self, keys: Array) -> Array:
        """Forward FLOPs of the attention core for one token that attends `keys` tokens."""


class GroupedQueryAttention(AbstractAttention):
    """`heads` query heads that share `kv_heads` key-value heads: MHA where equal, MQA where kv_heads is 1.

    Key-value heads are replicated where there are fewer than tensor ranks. `fused` computes the core in one kernel
    that never writes the score matrix ([dao2022]); otherwise scores, softmax, dropout and values are four operations
    on a materialised matrix. `causal` 1 counts only the attended half. `redo_values` False stops a selective
    recomputation before the product with the values, whose result nothing needs. `gated_output` multiplies the result
    by a gate as wide as the queries; `values_from_keys` takes the keys' projection for the values too, but caches both;
    `cached` False caches nothing, as an encoder. `q_rank`: queries come from so many elements, which all tensor ranks
    compute (multi-matrix factorization [stepfun2025step3]).
    """

    heads: Float[Array, "*b"] = integer(low=1.0)
    kv_heads: Float[Array, "*b"] = integer(low=1.0)
    head_dim: Float[Array, "*b"] = integer(low=1.0)
    causal: Float[Array, "*b"] = quantity(high=1.0, default=1.0)
    fused: bool = static(default=True)
    separate_projections: bool = static(default=False)
    redo_values: bool = static(default=True)
    gated_output: bool = static(default=False)
    values_from_keys: bool = static(default=False)
    cached: bool = static(default=True)
    value_dim: Float[Array, "*b"] | None = integer(low=1.0, default=None, doc="of a value head; as head_dim")
    q_rank: Float[Array, "*b"] | None = integer(
        low=1.0, default=None, doc="elements; none: straight from the hidden state"
    )

    @property
    def _both_dims(self) -> Array:
        """Elements of a key and a value together."""
        return 2 * self.head_dim if self.value_dim is None else self.head_dim + self.value_dim

    @property
    def _result_dim(self) -> Array:
        """Elements of a head's result."""
        return self.head_dim if self.value_dim is None else self.value_dim

    def _query_columns(self, heads: Array) -> Array:
        """Columns of the projection of queries, and of their gates."""
        return heads * self.head_dim + (heads * self._result_dim if self.gated_output else 0.0)

    def _key_columns(self, kv_heads: Array) -> Array:
        """Columns of the projections of keys and values."""
        return kv_heads * (self.head_dim if self.values_from_keys else self._both_dims)

    def parameters(self, hidden: Array) -> Array:
        """Query, key, value and output projections."""
        if self._plain:
            return hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        queries, rest = (
            self._query_columns(self.heads),
            self._key_columns(self.kv_heads) + self.heads * self._result_dim,
        )
        if self.q_rank is None:
            return hidden * (queries + rest)
        return hidden * (self.q_rank + rest) + self.q_rank * queries

    @property
    def _plain(self) -> bool:
        return self.value_dim is None and self.q_rank is None and not (self.gated_output or self.values_from_keys)

    def cache_bytes(self, tokens: Array, tp: Array, precision: Precision) -> Array:
        """A key and a value for each token and each key-value head this rank holds."""
        held = tokens * self._cached(tp) * precision.bytes_of("kv_cache")
        return held if self.cached else 0.0 * held

    def _cached(self, tp: Array) -> Array:
        """Elements of one token."""
        return self._kv_heads(tp) * self._both_dims

    def flops_per_token(self, keys: Array) -> Array:
        """Two products of one query with every key and value."""
        return 2 * self.heads * self._both_dims * keys

    def _kv_heads(self, tp: Array) -> Array:
        return at_least(self.kv_heads / tp, 1.0)

    @property
    def exchanges_heads(self) -> bool:
        """True: queries, keys and values have heads."""
        return True

    @property
    def decode_widths(self) -> tuple[Array, Array] | None:
        """A head's own; None where nothing is cached."""
        return (self.head_dim, self._result_dim) if self.cached else None

    def comms(self, shard: Shard, hidden: Array) -> list[BlockComm]:
        """Tensor-parallel joins, the ring that passes keys and values round the context ranks, exchanges of heads."""
        layout, tp, exchanged = shard.layout, shard.layout.plan.tp, shard.layout.plan.ulysses
        again = jnp.maximum(layout.selective, layout.sequence_parallel_regather)
        chunk = exchanged * self._cached(tp * exchanged)
        read = self.heads / tp * self.head_dim + self._cached(tp)
        written = self.heads / tp * self._result_dim
        return [
            *tensor_parallel_comms("attention", shard, hidden, again=again),
            *context_comms(shard, chunk, read, written),
        ]

    def ops(self, shard: Shard, hidden: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """Norm, projections, core, output projection, residual."""
        tp, act = shard.layout.plan.tp, shard.precision.bytes_of("activations")
        sharded = shard.tokens * hidden * act / shard.outside
        width = self.heads * self._result_dim / tp
        out_bytes = shard.tokens * width * act
        return [
            branch("attention_branch", shard, hidden, 2, sharded=True, stored_bytes=sharded),
            norm("attention_norm", shard, hidden, vectors=norm_vectors),
            *self._projections(shard, hidden),
            *(self._fused_core(shard) if self.fused else self._core(shard, dropout)),
            *([gate(shard, width)] if self.gated_output else []),
            linear(
                "attention_out", shard, shard.tokens, width, hidden,
                stored_bytes=out_bytes, working_bytes=out_bytes + join_bytes(shard, hidden),
            ),
            *residual("attention", shard, hidden, dropout=dropout),
        ]  # fmt: skip

    def _projections(self, shard: Shard, hidden: Array) -> list[BlockOp]:
        """Query, key and value: one product, or three whose input gradients are then summed."""
        tokens, tp = shard.tokens, shard.layout.plan.tp
        width, kv_width = self._query_columns(self.heads / tp), self._kv_heads(tp) * self.head_dim
        saved_input, full_input = input_bytes(shard, hidden, shard.layout.keeps_no_core)
        both = {"stored_bytes": saved_input, "working_bytes": full_input}
        if self.q_rank is not None:
            down, between = self.q_rank + self._key_columns(self._kv_heads(tp)), tokens * self.q_rank
            between = between * shard.precision.bytes_of("activations")
            return [
                linear("attention_qkv", shard, tokens, hidden, down, **both),
                linear("attention_q_up", shard, tokens, self.q_rank, width, stored_bytes=between),
            ]
        if not self.separate_projections:
            columns = width + (2 * kv_width if self._plain else self._key_columns(self._kv_heads(tp)))
            return [linear("attention_qkv", shard, tokens, hidden, columns, **both)]
        return [
            branch("attention_qkv_branch", shard, hidden, 3, sharded=False, **both),
            linear("attention_q", shard, tokens, hidden, width),
            linear("attention_k", shard, tokens, hidden, kv_width),
            linear("attention_v", shard, tokens, hidden, self._kv_heads(tp) * self._result_dim),
        ]

    def _fused_core(self, shard: Shard) -> list[BlockOp]:
        """One kernel: q, k, v in, result out; the backward pass redoes the scores (2.5 times the products)."""
        tp, act = shard.layout.plan.tp, shard.precision.bytes_of("activations")
        heads, kv_heads, exchanged = self.heads / tp, self._kv_heads(tp), shard.layout.plan.ulysses
        attended = shard.keys - self.causal * half_span(shard)
        flops = 2 * shard.tokens * heads * self._both_dims * attended
        cache = shard.precision.bytes_of("kv_cache") if shard.decode else act
        kv_bytes = shard.sequences * kv_heads / exchanged * self._both_dims * shard.keys * cache
        q_bytes = shard.tokens * heads * self.head_dim * act

        def work(passes: float, q_reads: float, kv_reads: float) -> Work:
            return Work(
                passes * flops, q_reads * q_bytes + kv_reads * kv_bytes, shard.queries * exchanged, shard.keys,
                self.head_dim, shard.sequences * heads / exchanged, shard.sequences * kv_heads / exchanged,
            )  # fmt: skip

        # q and the new k, v are kept for the backward pass; the result belongs to the output projection
        new_kv = shard.tokens * kv_heads * self._both_dims * act
        stored = q_bytes + new_kv
        return [
            BlockOp(
                "attention_core", "attention_decode" if shard.decode else "attention_prefill",
                shard.precision.attention, work(1, 2, 1), work(2.5, 4, 2), None,
                stored_bytes=stored, working_bytes=stored + sent_bytes(shard, stored), gradient_bytes=stored, core=True,
            )
        ]  # fmt: skip

    def _core(self, shard: Shard, dropout: bool) -> list[BlockOp]:
        """Scores, softmax, dropout and values on a materialised score matrix.

        Under selective recomputation only queries, keys and values stay. Source: [korthikanti2022] eq. 1; FLOPs per
        element of [isaev2023].
        """
        tp, act = shard.layout.plan.tp, shard.precision.bytes_of("activations")
        redone = shard.layout.keeps_no_core
        batch = shard.sequences * self.heads / tp
        matrix = batch * shard.queries * shard.keys  # score elements
        vectors = batch * (shard.queries + shard.keys) * self.head_dim

        def product(name: str, stored: Array, full: Array, *, to_scores: bool) -> BlockOp:
            flops = 2 * matrix * self.head_dim
            nbytes = (vectors + matrix) * act
            cols, depth = (shard.keys, self.head_dim) if to_scores else (self.head_dim, shard.keys)
            once = Work(flops, nbytes, shard.queries, cols, depth, batch)
            both = Work(2 * flops, nbytes, shard.queries, cols, depth, batch)
            result = matrix if to_scores else batch * shard.queries * self.head_dim
            return BlockOp(
                name, "gemm", shard.precision.compute, once, both, None, stored_bytes=stored * act,
                working_bytes=full * act, gradient_bytes=result * act, core=to_scores or self.redo_values,
            )  # fmt: skip

        softmax = elementwise(
            "attention_softmax", matrix, forward=(5, 2 * act), backward=(8, 2 * act),
            stored_bytes=matrix * act * (1 - redone), working_bytes=matrix * act, gradient_bytes=matrix * act,
            core=True,
        )  # fmt: skip
        masked = (1, 2 * act + 1)
        drop = elementwise(
            "attention_score_dropout", matrix, forward=masked, backward=masked,
            stored_bytes=matrix * (1 - redone), working_bytes=matrix, gradient_bytes=matrix, core=True,
        )  # fmt: skip
        values = batch * shard.keys * self.head_dim
        return [
            product("attention_scores", vectors, vectors, to_scores=True),
            softmax,
            *([drop] if dropout else []),
            product("attention_values", values + matrix * (1 - redone), values + matrix, to_scores=False),
        ]


def half_span(shard: Shard) -> Array:
    """Half of the tokens over which a causal rank's work is spread evenly.

    A sequence in zigzag order gives each of cp ranks a piece from the front and one from the back: on average a token
    attends keys - cp queries / 2. In contiguous order the last rank of a ring, for which the others wait, attends
    keys - u queries / 2, where u ranks that exchange heads have its tokens together.
    """
    plan = shard.layout.plan
    return 0.5 * shard.queries * jnp.where(plan.cp_order > 0, plan.ulysses, plan.cp)


def sent_bytes(shard: Shard, nbytes: Array) -> Array:
    """Bytes of a copy that an exchange of heads sends while it brings another."""
    return jnp.where(shard.layout.plan.ulysses > 1, nbytes, 0.0)


def context_comms(shard: Shard, chunk: Array, read: Array, written: Array) -> list[BlockComm]:
    """Ring over cp / u context ranks, and all-to-all exchanges of heads among u of them, of one attention core.

    `chunk`, `read`, `written`: elements of a token's keys and values that the ring passes on, of its queries, keys and
    values before the core, of its result. Exchanges bring a rank the tokens of u ranks for 1 / u of the heads, and take
    the result back; the backward pass has the same the other way.

    Source: ring [liu2023ring], exchange of heads [jacobs2023], both [fang2024].
    """
    layout = shard.layout
    each = shard.tokens * shard.precision.bytes_of("activations")
    around = layout.plan.cp / layout.plan.ulysses - 1
    on = jnp.where(layout.plan.ulysses > 1, 1.0, 0.0)
    again = layout.selective * on
    return [
        BlockComm("attention_ring", "send", "cp", each * chunk, around, 2 * around, layout.selective * around),
        BlockComm("attention_heads_in", "all_to_all", "cp_heads", each * read, on, on, again),
        BlockComm("attention_heads_out", "all_to_all", "cp_heads", each * written, on, on, again),
    ]


def summed(parts: list[tuple[dict[str, Array], Array]]) -> dict[str, Array]:
    """Sums by name of several mappings, each times its share."""
    total: dict[str, Array] = {}
    for counts, share in parts:
        for name, count in counts.items():
            total[name] = total[name] + share * count if name in total else share * count
    return total


def gate(shard: Shard, width: Array) -> BlockOp:
    """Sigmoid of a gate times the attention's result, `width` elements a token of each."""
    act = shard.precision.bytes_of("activations")
    return elementwise("attention_gate", shard.tokens * width, forward=(4, 3 * act), backward=(8, 5 * act))


def input_bytes(shard: Shard, hidden: Array, redone: Array) -> tuple[Array, Array]:
    """Bytes of a tensor-parallel region's input (kept for its weight gradients, live while the layer is at work).

    With sequence parallelism each rank keeps its own share, and the gathered tensor beside it unless it is gathered
    again (`sequence_parallel_regather`, or the region is redone anyway); without it the whole tensor is kept.
    """
    layout = shard.layout
    full = shard.tokens * hidden * shard.precision.bytes_of("activations")
    shard_bytes = full / shard.outside * layout.scattered
    again = jnp.maximum(redone, layout.sequence_parallel_regather) * layout.scattered
    return full * (1 - again) + shard_bytes, full + shard_bytes


def join_bytes(shard: Shard, hidden: Array) -> Array:
    """Bytes of the buffer in which the ranks' partial results are reduced, alive while the layer is at work."""
    full = shard.tokens * hidden * shard.precision.bytes_of("activations")
    return jnp.where(shard.layout.plan.tp > 1, full / shard.outside, 0.0)


class LatentAttention(AbstractAttention):
    """Multi-head latent attention: keys and values live in a latent vector of `kv_rank` plus `rope_dim` elements.

    Prefill and training expand keys and values per head; decode absorbs the expansions into the query and output
    sides and attends the latent vector itself. The latent cache is not divided over tensor ranks.
    Source: [deepseek2024v2] section 2.1.
    """

    heads: Float[Array, "*b"] = integer(low=1.0)
    q_rank: Float[Array, "*b"] = integer(low=0.0, doc="0: queries straight from the hidden state")
    kv_rank: Float[Array, "*b"] = integer(low=1.0)
    nope_dim: Float[Array, "*b"] = integer(low=1.0)
    rope_dim: Float[Array, "*b"] = integer(low=0.0)
    value_dim: Float[Array, "*b"] = integer(low=1.0)
    causal: Float[Array, "*b"] = quantity(high=1.0, default=1.0)
    gated_output: bool = static(default=False)

    def _query_parameters(self, hidden: Array) -> Array:
        width = self.heads * (self.nope_dim + self.rope_dim)
        through_rank = self.q_rank * (hidden + width)
        return jnp.where(self.q_rank > 0, through_rank, hidden * width)

    def parameters(self, hidden: Array) -> Array:
        """Down- and up-projections of queries and of keys and values, and the output projection."""
        down = hidden * (self.kv_rank + self.rope_dim)
        up = self.kv_rank * self.heads * (self.nope_dim + self.value_dim)
        out = self.heads * self.value_dim * hidden
        return self._query_parameters(hidden) + down + up + (2 * out if self.gated_output else out)

    def cache_bytes(self, tokens: Array, tp: Array, precision: Precision) -> Array:
        """The latent vector and the rotary key of each token, on every tensor rank."""
        return tokens * self._cached(tp) * precision.bytes_of("kv_cache")

    def _cached(self, tp: Array) -> Array:
        """Elements of one token."""
        return (self.kv_rank + self.rope_dim) * jnp.ones_like(tp)

    def flops_per_token(self, keys: Array) -> Array:
        """Scores over nope + rope dimensions, values over value_dim."""
        return 2 * self.heads * (self.nope_dim + self.rope_dim + self.value_dim) * keys

    def comms(self, shard: Shard, hidden: Array) -> list[BlockComm]:
        """Tensor-parallel joins and the context ring: over latent vectors, or over heads that were exchanged."""
        layout, heads = shard.layout, self.heads / shard.layout.plan.tp
        again = jnp.maximum(layout.selective, layout.sequence_parallel_regather)
        scores = self.nope_dim + self.rope_dim
        expanded = heads * (scores + self.value_dim)
        chunk = jnp.where(layout.plan.ulysses > 1, expanded, self._cached(layout.plan.tp))
        return [
            *tensor_parallel_comms("attention", shard, hidden, again=again),
            *context_comms(shard, chunk, heads * scores + expanded, heads * self.value_dim),
        ]

    @property
    def exchanges_heads(self) -> bool:
        """True: keys and values are expanded to heads before the core."""
        return True

    @property
    def decode_widths(self) -> tuple[Array, Array]:
        """Elements of absorbed queries, which attend latent vectors, and of their results."""
        return self.kv_rank + self.rope_dim, self.kv_rank

    def ops(self, shard: Shard, hidden: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """Norm, projections, core, output projection, residual."""
        tp, act, tokens = shard.layout.plan.tp, shard.precision.bytes_of("activations"), shard.tokens
        heads = self.heads / tp
        query = heads * (self.nope_dim + self.rope_dim)
        latent = self.kv_rank + self.rope_dim
        q_in = jnp.where(self.q_rank > 0, self.q_rank, hidden)
        saved_input, full_input = input_bytes(shard, hidden, shard.layout.keeps_no_core)
        expanded = heads * (self.nope_dim + self.value_dim)
        sharded = tokens * hidden * act / shard.outside
        return [
            branch("attention_branch", shard, hidden, 2, sharded=True, stored_bytes=sharded),
            norm("attention_norm", shard, hidden, vectors=norm_vectors),
            linear("attention_down", shard, tokens, hidden, self.q_rank + latent,
                   stored_bytes=saved_input, working_bytes=full_input),
            linear("attention_q_up", shard, tokens, q_in, query, stored_bytes=tokens * self.q_rank * act),
            linear("attention_kv_up", shard, tokens, self.kv_rank, expanded, stored_bytes=tokens * latent * act),
            self._core(shard, heads),
            *(self._gate(shard, hidden, heads * self.value_dim) if self.gated_output else []),
            linear("attention_out", shard, tokens, heads * self.value_dim, hidden,
                   stored_bytes=tokens * heads * self.value_dim * act),
            *residual("attention", shard, hidden, dropout=dropout),
        ]  # fmt: skip

    def _gate(self, shard: Shard, hidden: Array, width: Array) -> list[BlockOp]:
        return [linear("attention_gate_in", shard, shard.tokens, hidden, width), gate(shard, width)]

    def _core(self, shard: Shard, heads: Array) -> BlockOp:
        act = shard.precision.bytes_of("activations")
        latent = self.kv_rank + self.rope_dim
        attended, exchanged = shard.keys - self.causal * half_span(shard), shard.layout.plan.ulysses
        scores, values = self.nope_dim + self.rope_dim, self.value_dim
        if shard.decode:  # absorbed: every head reads the one latent vector
            flops = 2 * shard.tokens * heads * (latent + self.kv_rank) * attended
            kv_bytes = shard.sequences * shard.keys * latent * shard.precision.bytes_of("kv_cache")
            q_bytes = shard.tokens * heads * (latent + self.kv_rank) * act
        else:
            flops = 2 * shard.tokens * heads * (scores + values) * attended
            kv_bytes = shard.sequences * shard.keys * heads / exchanged * (scores + values) * act
            q_bytes = shard.tokens * heads * (scores + values) * act

        def work(passes: float, reads: float) -> Work:
            return Work(
                passes * flops, reads * (q_bytes + kv_bytes), shard.queries * exchanged, shard.keys, scores,
                shard.sequences * heads / exchanged, shard.sequences,
            )  # fmt: skip

        stored = shard.tokens * heads * (2 * scores + values) * act
        kind = "mla_decode" if shard.decode else "mla_prefill"
        return BlockOp(
            "attention_core", kind, shard.precision.attention, work(1, 1), work(2.5, 2), None,
            stored_bytes=stored, working_bytes=stored + sent_bytes(shard, stored), gradient_bytes=stored, core=True,
        )  # fmt: skip
