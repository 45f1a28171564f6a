"""Attention cores as libraries run them: prefill with causal blocks, decode with split keys."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.jax_typed import asarray, ones_like
from .compute import AbstractChip, AbstractKernel, Chip, Work, log_linear, missed, p_norm, throttle, waves

BLOCK_ROWS = 128.0  # queries that one block of a fused kernel works on
SUSTAINED_S = 1e-3
SPLITS = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256], dtype=float)


class PrefillAttention(AbstractKernel):
    """Fused attention over new tokens: work, its longest block, per-row overheads, and a pass over q, k, v, o.

    t = t0 + p_norm((throttle g(D) F + longest + 512 batch (row_cost q + block_cost)) / (e P), Bm / (b W) + B / (c W))
    longest = longest_block 128 S g(D) F / (batch q (1 - q / 2 k)): one block of 128 queries over all keys
    Bm the bytes that miss the cache; g(D) the cost of a multiply-add at head dimension D over that at 128.

    Assumes: causal attention of q new tokens over k keys (rows, cols of `Work`), `batch` sequences x heads.
    Source: constants from `conf/calibration`; kernel as [dao2022].
    """

    long: ClassVar[bool] = True

    chip: AbstractChip = eqx.field(default_factory=Chip)
    t0_s: Float[Array, "*b"] = quantity(default=6e-6, doc="launch and drain")
    compute_ratio: Float[Array, "*b"] = quantity(low=1e-3, high=2.0, default=0.6)
    memory_ratio: Float[Array, "*b"] = quantity(low=1e-2, high=10.0, default=0.6)
    cache_ratio: Float[Array, "*b"] = quantity(low=0.1, high=100.0, default=3.0, doc="cache over memory bandwidth")
    cached_share: Float[Array, "*b"] = quantity(low=1e-3, high=10.0, default=0.3)
    row_cost: Float[Array, "*b"] = quantity(default=60.0)
    block_cost: Float[Array, "*b"] = quantity(default=2000.0)
    longest_block: Float[Array, "*b"] = quantity(default=0.5)
    norm: Float[Array, "*b"] = quantity(low=1.0, high=20.0, default=2.0)
    throttle_loss: Float[Array, "*b"] = quantity(high=2.0, default=0.05)
    cost_64: Float[Array, "*b"] = quantity(low=0.01, default=1.0, doc="a multiply-add at head dimension 64 over 128")
    cost_192: Float[Array, "*b"] = quantity(low=0.01, default=1.0)
    cost_256: Float[Array, "*b"] = quantity(low=0.01, default=1.0)
    cost_512: Float[Array, "*b"] = quantity(low=0.01, default=1.0)

    def time_s(self, work: Work, peak_flops_per_s: Array, bandwidth_bytes_per_s: Array) -> Array:
        """Seconds of one launch."""
        busy = work.flops + work.nbytes > 0
        flops, nbytes = jnp.where(busy, work.flops, 1.0), jnp.where(busy, work.nbytes, 1.0)
        values = (self.cost_64, ones_like(self.cost_64), self.cost_192, self.cost_256, self.cost_512)
        flops = flops * log_linear(work.depth, (64.0, 128.0, 192.0, 256.0, 512.0), values)
        attended = work.batch * work.rows * (1 - 0.5 * jnp.minimum(work.rows / work.cols, 1.0))
        longest = self.longest_block * BLOCK_ROWS * self.chip.processors / attended * flops
        overhead = 512 * work.batch * (self.row_cost * work.rows + self.block_cost)
        slower = throttle(self.throttle_loss, flops, self.chip.peak_flops_per_s, SUSTAINED_S)
        from_memory = missed(nbytes, nbytes, self.cached_share * self.chip.cache_bytes) / self.memory_ratio
        busy_s = p_norm(
            self.norm,
            (slower * flops + longest + overhead) / (self.compute_ratio * peak_flops_per_s),
            (from_memory + nbytes / self.cache_ratio) / bandwidth_bytes_per_s,
        )
        return jnp.where(busy, self.t0_s + busy_s, 0.0)


class DecodeAttention(AbstractKernel):
    """One query token a sequence against its cache, the keys cut into s splits over the processors.

    t = t0 + group_s groups v(G) / S + p_norm(Bm / (b W), B u(G) / (c W), F / (e P), slowest) + [s > 1] (split_s + ...)
    slowest = waves (B / (groups s) + k0 F / (batch k)) u(G) S / (r W): the processor with most keys
    G = query heads a key-value head (in tiles of `query_tile`); u, v what they cost, straight in log-log up to 32;
    above that another kernel serves them, whose cost grows with G.

    Assumes: `batch` sequences x query heads, `groups` sequences x key-value heads, cols keys. s is best on the chip
    measured.
    Source: constants from `conf/calibration`; split keys as flash-decoding.
    """

    long: ClassVar[bool] = True

    chip: AbstractChip = eqx.field(default_factory=Chip)
    t0_s: Float[Array, "*b"] = quantity(default=6e-6, doc="launch and drain")
    compute_ratio: Float[Array, "*b"] = quantity(low=1e-4, high=2.0, default=0.3)
    memory_ratio: Float[Array, "*b"] = quantity(low=1e-2, high=4.0, default=0.85)
    cache_ratio: Float[Array, "*b"] = quantity(low=0.1, high=100.0, default=4.0, doc="cache over memory bandwidth")
    processor_ratio: Float[Array, "*b"] = quantity(low=0.01, high=100.0, default=3.0, doc="S processors over memory")
    cached_share: Float[Array, "*b"] = quantity(low=1e-3, high=10.0, default=0.3)
    wave_rounding: Float[Array, "*b"] = quantity(high=1.0, default=0.5)
    fill_keys: Float[Array, "*b"] = quantity(default=64.0, doc="k0")
    norm: Float[Array, "*b"] = quantity(low=1.0, high=20.0, default=3.0)
    group_s: Float[Array, "*b"] = quantity(default=5e-7)
    split_s: Float[Array, "*b"] = quantity(default=2e-6)
    most_splits: Float[Array, "*b"] = quantity(low=1.0, default=100.0)
    traffic_2: Float[Array, "*b"] = quantity(low=0.01, default=1.1, doc="u at two query heads a key-value head")
    traffic_8: Float[Array, "*b"] = quantity(low=0.01, default=1.5)
    traffic_32: Float[Array, "*b"] = quantity(low=0.01, default=3.0)
    traffic_64: Float[Array, "*b"] = quantity(low=0.01, default=10.0)
    group_2: Float[Array, "*b"] = quantity(low=0.01, default=1.1, doc="v at two query heads a key-value head")
    group_8: Float[Array, "*b"] = quantity(low=0.01, default=1.5)
    group_32: Float[Array, "*b"] = quantity(low=0.01, default=4.0)
    group_64: Float[Array, "*b"] = quantity(low=0.01, default=10.0)
    query_tile: Float[Array, "*b"] = quantity(low=1.0, default=1.0, doc="query heads that share one pass at no cost")

    def _by_group(self, per_group: Array, two: Array, eight: Array, many: Array, beyond: Array) -> Array:
        below = log_linear(per_group, (1.0, 2.0, 8.0, 32.0), (ones_like(two), two, eight, many))
        return jnp.where(per_group > 32, beyond * per_group / 64, below)

    def _slowest(self, work: Work, nbytes: Array, traffic: Array, splits: Array, rate: Array) -> tuple[Array, Array]:
        """Seconds of the processor with most keys, and of the splits, for numbers of splits along the last axis."""
        rounds = waves(work.groups[..., None] * splits / self.chip.processors, self.wave_rounding)
        fill = self.fill_keys * work.flops / (work.batch * work.cols)
        share = (nbytes / work.groups)[..., None] / jnp.minimum(splits, self.most_splits) + fill[..., None]
        slowest = rounds * share * (traffic * self.chip.processors)[..., None]
        partial = 2 * splits * (work.flops / work.cols)[..., None] / (self.cache_ratio * rate)
        return slowest / (self.processor_ratio * rate), jnp.where(splits > 1, self.split_s + partial, 0.0)

    def time_s(self, work: Work, peak_flops_per_s: Array, bandwidth_bytes_per_s: Array) -> Array:
        """Seconds of one launch."""
        busy = work.flops + work.nbytes > 0
        nbytes = jnp.where(busy, work.nbytes, 1.0)
        per_group = jnp.maximum(work.batch / work.groups / self.query_tile, 1.0)
        traffic = self._by_group(per_group, self.traffic_2, self.traffic_8, self.traffic_32, self.traffic_64)
        per_block = self._by_group(per_group, self.group_2, self.group_8, self.group_32, self.group_64)
        memory_bytes = missed(nbytes, nbytes, self.cached_share * self.chip.cache_bytes) / self.memory_ratio
        cache_bytes = nbytes * traffic / self.cache_ratio

        def choose(chip: AbstractChip) -> Array:
            rate = chip.bandwidth_bytes_per_s
            slowest, split = self._slowest(work, nbytes, traffic, asarray(SPLITS), rate)
            shared = (memory_bytes / rate) ** 2 + (cache_bytes / rate) ** 2
            cost = jnp.sqrt(shared[..., None] + slowest**2) + split
            return asarray(SPLITS)[jnp.argmin(cost, axis=-1)][..., None]

        splits = jax.lax.stop_gradient(choose(self.chip))
        slowest, split = (x[..., 0] for x in self._slowest(work, nbytes, traffic, splits, bandwidth_bytes_per_s))
        busy_s = p_norm(
            self.norm,
            memory_bytes / bandwidth_bytes_per_s,
            cache_bytes / bandwidth_bytes_per_s,
            work.flops / (self.compute_ratio * peak_flops_per_s),
            slowest,
        )
        fixed = self.t0_s + self.group_s * work.groups * per_block / self.chip.processors
        return jnp.where(busy, fixed + busy_s + split, 0.0)
