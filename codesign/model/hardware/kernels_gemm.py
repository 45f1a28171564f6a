"""Matrix products as libraries run them: tiles, waves, split-K, caches; and grouped products of experts."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.jax_typed import asarray
from ...core.smooth import at_least
from .compute import AbstractChip, AbstractKernel, Chip, Work, missed, p_norm, throttle, waves

TILES = ((64, 64), (64, 128), (128, 128), (128, 256))
SPLITS = (1, 2, 8)  # a denser menu of tiles and splits explains the measurements no better
TILINGS = np.array([(rows, cols, split) for rows, cols in TILES for split in SPLITS], dtype=float)
SUSTAINED_S = 300e-6  # a product that runs longer meets the power limit


class Gemm(AbstractKernel):
    """`batch` products [m, k] x [k, n] cut into tiles of a x b, each column of k in s splits.

    t = t0 + q 3 m k / W + p_norm(arithmetic, cache traffic, memory traffic) + [s > 1] (split_s + 4 s m n / (c W))
    arithmetic = waves 2 a b (k/s + k0) small(a, b) S / (e P) throttle
    cache traffic = waves (min(m, a) + min(n, b)) k/s bytes S / (c W)
    memory traffic = (operands and result that miss the cache) / (b W)

    k0 is the depth a tile spends filling its pipeline; small(a, b) what small tiles lose; q the passes of an
    activation quantisation inside the kernel. The tiling is the one that is best on the chip measured.

    Assumes: shapes given in `Work` (rows m, cols n, depth k); flops and nbytes scale the time, shapes its efficiency.
    Source: constants from `conf/calibration`; waves and tiles as [nvidia_matmul_guide].
    """

    long: ClassVar[bool] = True

    chip: AbstractChip = eqx.field(default_factory=Chip)
    operand_bytes: Float[Array, "*b"] = quantity(low=0.1, high=8.0, default=2.0, doc="an element of either operand")
    t0_s: Float[Array, "*b"] = quantity(default=4e-6, doc="launch and drain")
    compute_ratio: Float[Array, "*b"] = quantity(low=1e-2, high=1.5, default=0.8)
    memory_ratio: Float[Array, "*b"] = quantity(low=1e-2, high=4.0, default=0.85)
    cache_ratio: Float[Array, "*b"] = quantity(low=0.1, high=100.0, default=4.0, doc="cache over memory bandwidth")
    fill_depth: Float[Array, "*b"] = quantity(default=100.0, doc="k0")
    small_tile_loss: Float[Array, "*b"] = quantity(high=10.0, default=0.2)
    wave_rounding: Float[Array, "*b"] = quantity(high=1.0, default=0.4)
    norm: Float[Array, "*b"] = quantity(low=1.0, high=20.0, default=3.0)
    cached_rows: Float[Array, "*b"] = quantity(low=1e-3, high=10.0, default=0.5, doc="share of cache, left operand")
    cached_cols: Float[Array, "*b"] = quantity(low=1e-3, high=10.0, default=0.1, doc="share of cache, right operand")
    throttle_loss: Float[Array, "*b"] = quantity(high=2.0, default=0.1)
    split_s: Float[Array, "*b"] = quantity(default=2e-6)
    quantise_passes: Float[Array, "*b"] = quantity(default=0.0)

    def _missed_bytes(self, work: Work, nbytes: Array) -> Array:
        """Memory traffic: the left operand and result share one part of the cache, the right operand has another."""
        left = work.batch * work.rows * work.depth * self.operand_bytes
        right = work.batch * work.cols * work.depth * self.operand_bytes
        result = work.batch * work.rows * work.cols * 2.0
        rows_cache = self.cached_rows * self.chip.cache_bytes
        cols_cache = self.cached_cols * self.chip.cache_bytes
        everything = left + right + result
        traffic = missed(left + result, left + result, rows_cache) + missed(right, everything, cols_cache)
        return traffic * nbytes / everything

    def _on_chip(self, work: Work, tiling: Array, peak: Array, bandwidth: Array) -> tuple[Array, Array, Array]:
        """Seconds of arithmetic at full speed, of cache traffic, and of the split, for tilings along the last axis."""
        tile_rows, tile_cols, split = tiling[..., 0], tiling[..., 1], tiling[..., 2]
        rows, cols, depth = work.rows[..., None], work.cols[..., None], work.depth[..., None] / split
        blocks = jnp.ceil(rows / tile_rows - 1e-6) * jnp.ceil(cols / tile_cols - 1e-6) * work.batch[..., None] * split
        rounds = waves(blocks / self.chip.processors, self.wave_rounding) * self.chip.processors
        small = (1 + self.small_tile_loss * 64 * (1 / tile_rows + 1 / tile_cols)) / (1 + self.small_tile_loss)
        flops = rounds * 2 * tile_rows * tile_cols * (depth + self.fill_depth) * small
        edges = jnp.minimum(rows, tile_rows) + jnp.minimum(cols, tile_cols)
        cache_rate = self.cache_ratio * bandwidth
        partial = 4 * work.batch[..., None] * rows * cols * split / cache_rate
        return (
            flops / (self.compute_ratio * peak),
            rounds * edges * depth * self.operand_bytes / cache_rate,
            jnp.where(split > 1, self.split_s + partial, 0.0),
        )

    def _tiling(self, work: Work, memory_s: Array) -> Array:
        """(tile rows, tile cols, splits) that is fastest on the chip measured."""
        chip, tilings = self.chip, asarray(TILINGS, dtype=float)  # float32 while a grid is screened
        arithmetic, cache, split = self._on_chip(work, tilings, chip.peak_flops_per_s, chip.bandwidth_bytes_per_s)
        cost = jnp.sqrt(arithmetic**2 + cache**2 + memory_s[..., None] ** 2) + split
        return tilings[jnp.argmin(cost, axis=-1)]

    def time_s(self, work: Work, peak_flops_per_s: Array, bandwidth_bytes_per_s: Array) -> Array:
        """Seconds of one launch."""
        busy = work.flops + work.nbytes > 0
        shape_flops = jnp.where(busy, 2 * work.batch * work.rows * work.cols * work.depth, 1.0)
        nbytes = jnp.where(busy, work.nbytes, 1.0)
        memory_bytes = self._missed_bytes(work, nbytes)
        frozen, memory_s = jax.lax.stop_gradient((work, memory_bytes / self.memory_ratio))
        tiling = jax.lax.stop_gradient(self._tiling(frozen, memory_s / self.chip.bandwidth_bytes_per_s))
        arithmetic, cache, split = (
            term[..., 0] for term in self._on_chip(work, tiling[..., None, :], peak_flops_per_s, bandwidth_bytes_per_s)
        )
        slower = throttle(self.throttle_loss, work.flops, self.chip.peak_flops_per_s, SUSTAINED_S)
        memory = memory_bytes / (self.memory_ratio * bandwidth_bytes_per_s)
        quantise = self.quantise_passes * 3 * work.batch * work.rows * work.depth / bandwidth_bytes_per_s
        busy_s = p_norm(self.norm, arithmetic * slower * work.flops / shape_flops, cache, memory)
        return jnp.where(busy, self.t0_s + quantise + busy_s + split, 0.0)


class GroupedGemm(AbstractKernel):
    """`batch` experts on one rank, each [rows, k] x [k, n] on average, `groups` of them with any row at all.

    t = t0 + row_s R + group_s T + p_norm(2 (R + pad T) (k + k0) n small / (e P), (weights + a activations) / (b W))
    R = rows x batch, T = groups; pad is what a partly filled tile wastes, small = 1 + m0 / (m0 + R/T) what short
    groups lose, a the passes over the activations.

    Assumes: rows spread over the touched experts; flops and nbytes scale the time, shapes its efficiency.
    Source: constants from `conf/calibration`.
    """

    long: ClassVar[bool] = True

    chip: AbstractChip = eqx.field(default_factory=Chip)
    operand_bytes: Float[Array, "*b"] = quantity(low=0.1, high=8.0, default=2.0, doc="a weight with its scales")
    t0_s: Float[Array, "*b"] = quantity(default=10e-6, doc="launch and drain")
    compute_ratio: Float[Array, "*b"] = quantity(low=1e-2, high=1.5, default=0.5)
    memory_ratio: Float[Array, "*b"] = quantity(low=1e-2, high=4.0, default=0.7)
    row_s: Float[Array, "*b"] = quantity(default=3e-9, doc="routing, per row")
    group_s: Float[Array, "*b"] = quantity(default=1e-7, doc="per touched expert")
    pad_rows: Float[Array, "*b"] = quantity(default=30.0)
    fill_depth: Float[Array, "*b"] = quantity(default=100.0, doc="k0")
    short_rows: Float[Array, "*b"] = quantity(default=20.0, doc="m0")
    activation_passes: Float[Array, "*b"] = quantity(default=1.5)
    norm: Float[Array, "*b"] = quantity(low=1.0, high=20.0, default=3.0)

    def time_s(self, work: Work, peak_flops_per_s: Array, bandwidth_bytes_per_s: Array) -> Array:
        """Seconds of one launch."""
        busy = work.flops + work.nbytes > 0
        rows = at_least(work.rows * work.batch, 1e-3)
        weights = work.groups * work.depth * work.cols * self.operand_bytes
        activations = rows * (work.depth + work.cols) * 2.0
        traffic = (weights + self.activation_passes * activations) * work.nbytes / (weights + activations)
        waste = (1 + self.pad_rows * work.groups / rows) * (1 + self.fill_depth / work.depth)
        short = 1 + self.short_rows / (self.short_rows + rows / work.groups)
        busy_s = p_norm(
            self.norm,
            jnp.where(busy, work.flops, 1.0) * waste * short / (self.compute_ratio * peak_flops_per_s),
            traffic / (self.memory_ratio * bandwidth_bytes_per_s),
        )
        fixed = self.t0_s + self.row_s * rows + self.group_s * work.groups
        return jnp.where(busy, fixed + busy_s, 0.0)
