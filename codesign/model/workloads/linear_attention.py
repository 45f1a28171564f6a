"""Attention without a growing cache: state-space and delta-rule layers, and models that mix them with others."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import integer, quantity, static
from ...core.smooth import at_least, ceil
from ...core.units import BYTES
from ..hardware import Work
from .attention import AbstractAttention, GroupedQueryAttention, input_bytes, join_bytes, summed
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


class LinearAttention(AbstractAttention):
    """A state of `key_dim` x `value_dim` numbers a head takes the place of the cache; `delta` corrects it by what it
    already predicts (gated delta rule), without it is only forgotten and added to (Mamba-2).

    Decoding reads and writes the state of every sequence once, 4 (6 with `delta`) FLOPs a number of it. Prompts and
    training go in chunks of C tokens, a head and token

        2 C (k + v) + 4 k v   [delta: + 2 C k + 2 C (k + v) + 2 k v + C^2]      FLOPs

    with scores inside a chunk and the state between chunks (C^2: the inverse of a triangular matrix). Backwards three
    times as much: both gradients, and the states once more. The state and the last `convolution` - 1 inputs of a short
    convolution are all that is cached.

    The output's gate and, with `forget_rank`, a forgetting rate of each key channel (Kimi delta attention) come from
    the hidden state at once or through so many elements.

    Assumes: the decode core runs at the speed of element-wise passes, chunks at that of batched matrix products: no
    measurement is fitted. Context ranks pass the state on, one after the other. Source: [dao2024mamba2],
    [yang2025deltanet].
    """

    heads: Float[Array, "*b"] = integer(low=1.0, doc="of values")
    key_heads: Float[Array, "*b"] = integer(low=1.0, doc="of queries and keys (groups)")
    key_dim: Float[Array, "*b"] = integer(low=1.0, doc="state size")
    value_dim: Float[Array, "*b"] = integer(low=1.0)
    convolution: Float[Array, "*b"] = integer(low=1.0, default=4.0, doc="tokens")
    chunk: Float[Array, "*b"] = integer(low=1.0, default=64.0, doc="tokens")
    delta: bool = static(default=True)
    state: str = static(default="fp32")
    gate_rank: Float[Array, "*b"] | None = integer(low=1.0, default=None, doc="of the output's gate; none: full")
    forget_rank: Float[Array, "*b"] | None = integer(low=1.0, default=None, doc="of a channel's rate; none: a head's")

    def _key_heads(self, tp: Array) -> Array:
        return at_least(self.key_heads / tp, 1.0)

    def _convolved(self, tp: Array) -> Array:
        """Channels of the convolution on one rank."""
        return 2 * self._key_heads(tp) * self.key_dim + self.heads / tp * self.value_dim

    def _projected(self, tp: Array) -> Array:
        """Columns of the input projection on one rank: queries, keys, values, the output's gate, gates a head."""
        heads = self.heads / tp
        if self.gate_rank is None and self.forget_rank is None:
            return self._convolved(tp) + heads * (self.value_dim + (2.0 if self.delta else 1.0))
        gate = heads * self.value_dim if self.gate_rank is None else self.gate_rank
        rate = heads if self.forget_rank is None else self.forget_rank
        return self._convolved(tp) + gate + rate + (heads if self.delta else 0.0)

    def _gates(self, shard: Shard) -> list[BlockOp]:
        """Second products of gates that come through a rank."""
        heads = self.heads / shard.layout.plan.tp
        through = (("gate", self.gate_rank, self.value_dim), ("forget", self.forget_rank, self.key_dim))
        return [
            linear(f"linear_{name}_up", shard, shard.tokens, rank, heads * dim)
            for name, rank, dim in through
            if rank is not None
        ]

    def _state_bytes(self, tp: Array) -> Array:
        """State of one sequence, one layer, one rank, bytes."""
        return self.heads / tp * self.key_dim * self.value_dim * BYTES[self.state]

    def parameters(self, hidden: Array) -> Array:
        """Input and output projections (the convolution's are left out, as norm vectors are)."""
        inner = hidden * (self._projected(jnp.ones_like(self.heads)) + self.heads * self.value_dim)
        for rank, dim in ((self.gate_rank, self.value_dim), (self.forget_rank, self.key_dim)):
            inner = inner if rank is None else inner + rank * self.heads * dim
        return inner

    def weights_by_class(self, hidden: Array) -> dict[str, Array]:
        """All of a class of their own."""
        return {"linear_attention": self.parameters(hidden)}

    def cache_bytes(self, tokens: Array, tp: Array, precision: Precision) -> Array:
        """The state and the convolution's inputs, however many tokens there are."""
        inputs = (self.convolution - 1) * self._convolved(tp) * precision.bytes_of("activations")
        return self._state_bytes(tp) + inputs + 0.0 * tokens

    def flops_per_token(self, keys: Array) -> Array:
        """FLOPs of the recurrence for one token, which no context lengthens."""
        return (6.0 if self.delta else 4.0) * self.heads * self.key_dim * self.value_dim + 0.0 * keys

    def comms(self, shard: Shard, hidden: Array) -> list[BlockComm]:
        """Tensor-parallel joins, and the state from one context rank to the next."""
        layout = shard.layout
        again = jnp.maximum(layout.selective, layout.sequence_parallel_regather)
        passed, around = shard.sequences * self._state_bytes(layout.plan.tp), layout.plan.cp - 1
        ring = BlockComm("linear_state", "send", "cp", passed, around, 2 * around, layout.selective * around)
        return [*tensor_parallel_comms("linear_attention", shard, hidden, again=again), ring]

    def ops(self, shard: Shard, hidden: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """Norm, projection, convolution, core, gated norm, output projection, residual."""
        tp, act, tokens = shard.layout.plan.tp, shard.precision.bytes_of("activations"), shard.tokens
        width, channels = self.heads / tp * self.value_dim, self._convolved(tp)
        saved, full = input_bytes(shard, hidden, shard.layout.keeps_no_core)
        sharded = tokens * hidden * act / shard.outside
        passed, out_bytes = 2 * act, tokens * width * act
        return [
            branch("linear_branch", shard, hidden, 2, sharded=True, stored_bytes=sharded),
            norm("linear_norm", shard, hidden, vectors=norm_vectors),
            linear("linear_in", shard, tokens, hidden, self._projected(tp), stored_bytes=saved, working_bytes=full),
            elementwise(
                "linear_convolution", tokens * channels, forward=(12, passed), backward=(24, 2 * passed),
                stored_bytes=tokens * channels * act,
            ),
            *self._gates(shard),
            self._core(shard),
            elementwise("linear_gate", tokens * width, forward=(13, 3 * act), backward=(21, 5 * act),
                        stored_bytes=2 * out_bytes),
            linear("linear_out", shard, tokens, width, hidden,
                   stored_bytes=out_bytes, working_bytes=out_bytes + join_bytes(shard, hidden)),
            *residual("linear", shard, hidden, dropout=dropout),
        ]  # fmt: skip

    def _core(self, shard: Shard) -> BlockOp:
        """The recurrence, token by token or in chunks."""
        tp, act = shard.layout.plan.tp, shard.precision.bytes_of("activations")
        heads, keys, values = self.heads / tp, self.key_dim, self.value_dim
        moved = shard.tokens * (self._convolved(tp) + heads * values) * act
        if shard.decode:
            flops = (6.0 if self.delta else 4.0) * shard.tokens * heads * keys * values
            work = Work(flops, 2 * shard.sequences * self._state_bytes(tp) + moved)
            return BlockOp("linear_core", "elementwise", "vector", work, work, None, core=True)
        chunk = self.chunk
        each = 2 * chunk * (keys + values) + 4 * keys * values
        if self.delta:
            each = each + 2 * chunk * (2 * keys + values) + 2 * keys * values + chunk**2
        chunks = shard.sequences * ceil(shard.queries / chunk)
        flops = shard.tokens * heads * each
        nbytes = moved + 2 * chunks * self._state_bytes(tp)

        def work_of(passes: float) -> Work:
            return Work(passes * flops, passes * nbytes, chunk, values, keys, chunks * heads)

        return BlockOp(
            "linear_core", "gemm", shard.precision.attention, work_of(1), work_of(3), None,
            stored_bytes=moved, working_bytes=moved, gradient_bytes=moved, core=True,
        )  # fmt: skip

    @classmethod
    def example(cls) -> "LinearAttention":
        """A small gated delta rule."""
        return cls(8.0, 4.0, 64.0, 64.0)


class AlternatingAttention(AbstractAttention):
    """Layers of two kinds: `share` of them have `other`, the rest `attention`; an average layer has both in parts."""

    attention: AbstractAttention
    other: AbstractAttention
    share: Float[Array, "*b"] = quantity(high=1.0, doc="of the layers that have the other")

    @property
    def heads(self) -> Array:
        """Query heads of the first kind, which tensor ranks divide."""
        return self.attention.heads

    @property
    def kv_heads(self) -> Array:
        """Key-value heads of the first kind, where there are some."""
        return getattr(self.attention, "kv_heads", self.heads)

    @property
    def causal(self) -> Array:
        """True where tokens see earlier ones alone."""
        return getattr(self.attention, "causal", jnp.asarray(1.0))

    def _mean(self, one: Array, other: Array) -> Array:
        return (1 - self.share) * one + self.share * other

    def ops(self, shard: Shard, hidden: Array, *, dropout: bool, norm_vectors: float) -> list[BlockOp]:
        """Operations of both kinds, scaled by their shares of the layers."""
        options = {"dropout": dropout, "norm_vectors": norm_vectors}
        full_ops = [scaled(op, 1 - self.share) for op in self.attention.ops(shard, hidden, **options)]
        return full_ops + [scaled(op, self.share) for op in self.other.ops(shard, hidden, **options)]

    def comms(self, shard: Shard, hidden: Array) -> list[BlockComm]:
        """Communication of both kinds, scaled by their shares of the layers."""
        full_comms = [scaled(comm, 1 - self.share) for comm in self.attention.comms(shard, hidden)]
        return full_comms + [scaled(comm, self.share) for comm in self.other.comms(shard, hidden)]

    def parameters(self, hidden: Array) -> Array:
        """Parameters of an average layer."""
        return self._mean(self.attention.parameters(hidden), self.other.parameters(hidden))

    def weights_by_class(self, hidden: Array) -> dict[str, Array]:
        """Weights by class of an average layer."""
        kinds = ((self.attention, 1 - self.share), (self.other, self.share))
        return summed([(kind.weights_by_class(hidden), share) for kind, share in kinds])

    def cache_bytes(self, tokens: Array, tp: Array, precision: Precision) -> Array:
        """Cache bytes of an average layer."""
        both = (kind.cache_bytes(tokens, tp, precision) for kind in (self.attention, self.other))
        return self._mean(*both)

    def flops_per_token(self, keys: Array) -> Array:
        """Flops per token of an average layer."""
        return self._mean(self.attention.flops_per_token(keys), self.other.flops_per_token(keys))

    @classmethod
    def example(cls) -> "AlternatingAttention":
        """Three of four layers without a growing cache."""
        return cls(GroupedQueryAttention(8.0, 4.0, 64.0), LinearAttention.example(), 0.75)
