"""Measurement tables of each kernel model: rows converted to work, and the range of every constant."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...core.errors import DataError
from ...model.hardware import (
    AbstractKernel,
    DecodeAttention,
    Elementwise,
    Gemm,
    GroupedGemm,
    PrefillAttention,
    Roofline,
)
from ..measurements import SCHEMAS, survey, tables
from .gpus import FORMATS, Device, Peaks, device

Columns = dict[str, np.ndarray]
Range = tuple[float, float, float]  # start, low, high

ROUTING = {  # distribution -> tokens of the most loaded rank over the mean, touched experts over an even spread's
    "balanced": (1.0, 1.0),
    "power_law_1.01": (1.99, 0.95),
    "power_law_1.2": (2.31, 0.85),
}
"""Medians of a joint fit with the kernel constants over every device, framework and number format."""

MLA_QUERY, MLA_VALUE, MLA_LATENT, MLA_ABSORBED = (
    192.0,
    128.0,
    576.0,
    1088.0,
)  # [deepseek2024v2]: 128 + 64, 512 + 64, + 512


class KernelTable(NamedTuple):
    """A class of measured kernels.

    works turns rows into one or more launches, each a column set of `Work`; the prediction is their sum. scaling says
    how a constant changes from chip to chip: exponents of peak and of memory bandwidth, each per processor;
    scaling_of_kin also between chips of a generation, which run the same code.
    """

    name: str
    pattern: str
    required: tuple[str, ...]
    format_column: str
    model: type[AbstractKernel]
    ranges: dict[str, Range]
    works: Callable[[pd.DataFrame], list[Columns]]
    operand: bool = False  # the model has operand_bytes
    chip: bool = True  # the model has a chip
    fixed: dict[str, float] = {}  # noqa: RUF012 (a constant of the class)
    scaling: dict[str, tuple[float, float]] = {}  # noqa: RUF012
    scaling_of_kin: dict[str, tuple[float, float]] = {}  # noqa: RUF012
    latency: str = "latency_us"


def _column(rows: pd.DataFrame, name: str) -> np.ndarray:
    return rows[name].to_numpy(dtype=float)


def _bytes_of(rows: pd.DataFrame, column: str) -> np.ndarray:
    return rows[column].map(lambda name: FORMATS[name][2] if name in FORMATS else 2.0).to_numpy(dtype=float)


def gemm_works(rows: pd.DataFrame) -> list[Columns]:
    """[m, k] x [k, n] with a 16-bit result."""
    m, n, k = (_column(rows, c) for c in ("m", "n", "k"))
    element = _bytes_of(rows, "dtype")
    return [{"flops": 2 * m * n * k, "nbytes": (m * k + n * k) * element + 2 * m * n, "rows": m, "cols": n, "depth": k}]


def prefill_works(rows: pd.DataFrame) -> list[Columns]:
    """Causal attention of q new tokens over k keys."""
    bs, q, k, heads, kv, dim = (
        _column(rows, c)
        for c in ("batch_size", "q_len_tokens", "kv_len_tokens", "num_heads", "num_kv_heads", "head_dim")
    )
    pairs = bs * heads * (q * k - 0.5 * q * (q - 1))
    nbytes = 2 * bs * kv * k * dim * _bytes_of(rows, "kv_cache_dtype") + 2 * bs * heads * q * dim * 2
    shape = {"rows": q, "cols": k, "depth": dim, "batch": bs * heads, "groups": bs * kv}
    return [{"flops": 4 * pairs * dim, "nbytes": nbytes, **shape}]


def decode_works(rows: pd.DataFrame) -> list[Columns]:
    """One query token a sequence against its cache."""
    bs, k, heads, kv, dim = (
        _column(rows, c) for c in ("batch_size", "kv_len_tokens", "num_heads", "num_kv_heads", "head_dim")
    )
    nbytes = 2 * bs * kv * k * dim * _bytes_of(rows, "kv_cache_dtype") + 2 * bs * heads * dim * 2
    shape = {"rows": np.ones_like(k), "cols": k, "depth": dim, "batch": bs * heads, "groups": bs * kv}
    return [{"flops": 4 * bs * heads * k * dim, "nbytes": nbytes, **shape}]


def mla_prefill_works(rows: pd.DataFrame) -> list[Columns]:
    """Latent attention with keys and values expanded per head."""
    bs, q, k, heads = (_column(rows, c) for c in ("batch_size", "q_len_tokens", "kv_len_tokens", "num_heads"))
    width = MLA_QUERY + MLA_VALUE
    pairs = bs * heads * (q * k - 0.5 * q * (q - 1))
    nbytes = bs * heads * width * (k * _bytes_of(rows, "kv_cache_dtype") + 2 * q)
    depth = np.full_like(q, MLA_QUERY)
    shape = {"rows": q, "cols": k, "depth": depth, "batch": bs * heads, "groups": bs}
    return [{"flops": 2 * pairs * width, "nbytes": nbytes, **shape}]


def mla_decode_works(rows: pd.DataFrame) -> list[Columns]:
    """Latent attention with the expansions absorbed: every head reads the one latent vector."""
    bs, k, heads = (_column(rows, c) for c in ("batch_size", "kv_len_tokens", "num_heads"))
    nbytes = bs * k * MLA_LATENT * _bytes_of(rows, "kv_cache_dtype") + 2 * bs * heads * MLA_ABSORBED
    depth = np.full_like(k, MLA_QUERY)
    shape = {"rows": np.ones_like(k), "cols": k, "depth": depth, "batch": bs * heads, "groups": bs}
    return [{"flops": 2 * bs * heads * k * MLA_ABSORBED, "nbytes": nbytes, **shape}]


def moe_works(rows: pd.DataFrame) -> list[Columns]:
    """The two grouped products of the most loaded rank: up with gate, then down."""
    tokens, hidden, inner, top_k, experts, tp, ep = (
        _column(rows, c)
        for c in ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
    )
    routing = rows["distribution"].map(lambda name: ROUTING.get(str(name), ROUTING["balanced"]))
    load = np.where(ep > 1, [r[0] for r in routing], 1.0)
    spread = np.asarray([r[1] for r in routing])
    even = (rows["distribution"] == "balanced").to_numpy()
    local, width, mean = experts / ep, inner / tp, tokens * top_k / ep
    drawn = local * (1 - np.exp(-np.minimum(mean / local * spread, 50.0)))
    touched = np.where(even, np.minimum(local, np.maximum(mean, 1.0)), np.maximum(drawn, 1.0))
    routed, element = mean * load, _bytes_of(rows, "dtype")

    routing = {"tokens": tokens, "visits": top_k, "experts": experts, "shards": tp, "load": load}

    def product(depth: np.ndarray, cols: np.ndarray, back: float) -> Columns:
        nbytes = touched * depth * cols * element + routed * (depth + cols) * 2
        shape = {"rows": routed / local, "cols": cols, "depth": depth, "batch": local, "groups": touched}
        shape |= routing | {"back": np.full_like(tokens, back)}
        return {"flops": 2 * routed * depth * cols, "nbytes": nbytes, **shape}

    return [product(hidden, 2 * width, 0.0), product(width, hidden, 1.0)]


def elementwise_works(rows: pd.DataFrame) -> list[Columns]:
    """Reads bf16 and writes bytes, a row at a time."""
    m, k = _column(rows, "m"), _column(rows, "k")
    return [{"flops": 0 * m, "nbytes": 3 * m * k, "rows": m, "cols": k}]


US = 1e-6
GEMM: dict[str, Range] = {
    "t0_s": (4 * US, 0.3 * US, 40 * US), "compute_ratio": (0.8, 0.1, 1.2), "memory_ratio": (0.85, 0.1, 1.2),
    "cache_ratio": (4, 0.5, 20), "fill_depth": (100, 1, 2000), "small_tile_loss": (0.2, 1e-3, 2),
    "wave_rounding": (0.4, 0.01, 1), "norm": (3, 1, 12), "cached_rows": (0.5, 0.02, 4), "cached_cols": (0.1, 0.02, 4),
    "throttle_loss": (0.1, 1e-3, 1), "split_s": (2 * US, 0.01 * US, 20 * US), "quantise_passes": (0.05, 1e-3, 5),
}  # fmt: skip
PREFILL: dict[str, Range] = {
    "t0_s": (6 * US, 0.3 * US, 60 * US), "compute_ratio": (0.6, 0.02, 1.5), "memory_ratio": (0.6, 0.02, 2),
    "cache_ratio": (3, 0.2, 50), "cached_share": (0.3, 0.01, 1.2), "row_cost": (60, 0.1, 5000),
    "block_cost": (2000, 0.1, 1e6), "longest_block": (0.5, 0.01, 8), "norm": (2, 1, 12),
    "throttle_loss": (0.05, 1e-3, 1), "cost_64": (1.3, 0.2, 5), "cost_192": (1, 0.2, 5), "cost_256": (1, 0.1, 10),
    "cost_512": (1, 0.05, 20),
}  # fmt: skip
DECODE: dict[str, Range] = {
    "t0_s": (6 * US, 0.3 * US, 60 * US), "compute_ratio": (0.3, 3e-3, 1.2), "memory_ratio": (0.85, 0.1, 1.2),
    "cache_ratio": (4, 0.3, 20), "processor_ratio": (3, 0.1, 20), "cached_share": (0.3, 0.02, 1.2),
    "wave_rounding": (0.5, 0.01, 1), "fill_keys": (64, 1, 2000), "norm": (3, 1, 12),
    "group_s": (0.5 * US, 1e-3 * US, 20 * US), "split_s": (2 * US, 0.01 * US, 20 * US), "most_splits": (100, 1, 512),
    "traffic_2": (1.1, 0.2, 20), "traffic_8": (1.5, 0.2, 50), "traffic_32": (3, 0.2, 100), "traffic_64": (10, 0.5, 500),
    "group_2": (1.1, 0.1, 20), "group_8": (1.5, 0.1, 50), "group_32": (4, 0.1, 100), "group_64": (10, 0.3, 500),
}  # fmt: skip
GROUPED: dict[str, Range] = {
    "t0_s": (10 * US, 0.5 * US, 150 * US), "compute_ratio": (0.5, 0.02, 1.2), "memory_ratio": (0.7, 0.02, 1.2),
    "row_s": (2.5e-9, 5e-12, 1e-6), "group_s": (1e-7, 5e-10, 1e-5), "pad_rows": (30, 0.1, 600),
    "fill_depth": (100, 1, 5000), "short_rows": (20, 0.1, 2000), "activation_passes": (1.5, 0.05, 20),
    "norm": (3, 1, 12),
}  # fmt: skip
ELEMENTWISE: dict[str, Range] = {
    "t0_s": (4 * US, 0.3 * US, 60 * US), "memory_ratio": (0.85, 0.05, 2), "cache_ratio": (3, 0.2, 50),
    "cached_share": (0.5, 0.02, 1.2), "row_s": (7e-8, 1e-10, 1e-5), "norm": (4, 1, 12),
}  # fmt: skip

SCALED_GEMM = {"cache_ratio": (1.0, -1.0)}  # caches are built to feed the arithmetic, not in step with the memory
SCALED_CACHE = {"cache_ratio": (0.0, -1.0)}  # as many bytes a cycle from each processor's cache
SCALED_GROUPED = {"pad_rows": (0.5, 0.0), "fill_depth": (0.5, 0.0)}
"""Between cuts of one generation, whose tiles are the same: these wait for operands and for arithmetic. Of exponents 0,
1/2 and 1 the middle one errs least on all devices left out (medians 20.2, 19.7 and 20.1 %)."""
SCALED_PREFILL = SCALED_CACHE | {"row_cost": (1.0, 0.0), "block_cost": (1.0, 0.0)}
"""A row or block costs a processor the same time outside its matrix units: more of faster ones' FLOPs."""

COMMON = ("gpu", "framework", "latency_us")
GQA = ("kv_cache_dtype", "batch_size", "q_len_tokens", "kv_len_tokens", "num_heads", "num_kv_heads", "head_dim")
MLA = ("mla_dtype", "kv_cache_dtype", "num_heads", "batch_size", "q_len_tokens", "kv_len_tokens")
MOE = ("dtype", "distribution", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
       "moe_ep_size")  # fmt: skip

TABLES = (
    KernelTable("gemm", "gemm_*.csv", (*COMMON, "dtype", "m", "n", "k"), "dtype", Gemm, GEMM, gemm_works, True,
                scaling=SCALED_GEMM),
    KernelTable(
        "attention_prefill", "attention_context_*.csv", (*COMMON, "attn_dtype", *GQA), "attn_dtype",
        PrefillAttention, PREFILL, prefill_works, scaling=SCALED_PREFILL,
    ),
    KernelTable(
        "attention_decode", "attention_generation_*.csv", (*COMMON, "attn_dtype", *GQA), "attn_dtype",
        DecodeAttention, DECODE, decode_works, scaling=SCALED_CACHE,
    ),
    KernelTable(
        "mla_prefill", "mla_context*.csv", (*COMMON, *MLA), "mla_dtype", PrefillAttention,
        {key: PREFILL[key] for key in PREFILL if not key.startswith("cost_")}, mla_prefill_works,
        scaling=SCALED_PREFILL,
    ),
    KernelTable(
        "mla_decode", "mla_generation*.csv", (*COMMON, *MLA), "mla_dtype", DecodeAttention, DECODE, mla_decode_works,
        fixed={"query_tile": 32.0}, scaling=SCALED_CACHE,
    ),
    KernelTable("moe_gemm", "moe_*.csv", (*COMMON, *MOE), "dtype", GroupedGemm, GROUPED, moe_works, True,
                scaling_of_kin=SCALED_GROUPED),
    KernelTable(
        "elementwise", "elementwise_*.csv", (*COMMON, "quant_dtype", "m", "k"), "quant_dtype", Elementwise,
        ELEMENTWISE, elementwise_works, scaling=SCALED_CACHE,
    ),
)  # fmt: skip

ROOFLINE: dict[str, Range] = {
    "t0_s": (5 * US, 0.3 * US, 150 * US), "compute_ratio": (0.6, 1e-3, 1.5), "memory_ratio": (0.7, 1e-3, 4),
}  # fmt: skip
ROOFLINES = tuple(
    table._replace(
        name=f"{table.name}_roofline",
        model=Roofline,
        ranges=ROOFLINE,
        operand=False,
        chip=False,
        fixed={},
        scaling={},
        scaling_of_kin={},
    )
    for table in TABLES
)
"""Tables of `TABLES` read as three constants: for searches over very many designs."""


# Measured tables of kernels, chosen by their columns, and split into groups with a device each.


KINDS = {  # class of kernel -> kind of table; of attention, decode or not
    "gemm": ("gemm", None), "attention_prefill": ("attention", False), "attention_decode": ("attention", True),
    "mla_prefill": ("latent_attention", False), "mla_decode": ("latent_attention", True), "moe_gemm": ("experts", None),
    "elementwise": ("quantise", None),
}  # fmt: skip
LEAST_ROWS = 10  # of a group, for a fit whose held-out part says anything
PEAKS = ("dense_bf16_tflops", "dense_fp8_tflops", "dense_fp4_tflops", "hbm_tbytes_per_s")
LINK = "scaleup_link_gbytes_per_s_one_way"


class TableGroup(NamedTuple):
    """Rows of one class, device, framework and number format, as work and measured seconds."""

    table: KernelTable
    device: Device
    framework: str
    number_format: str
    peak_flops_per_s: float
    operand_bytes: float
    works: list[Columns]
    measured_s: np.ndarray

    @property
    def label(self) -> str:
        """For progress and messages."""
        return f"{self.table.name} {self.number_format} {self.device.name} {self.framework}"


def unknown(directory: Path) -> list[str]:
    """A line for every table below a folder that nothing is fitted on.

    Raises:
        DataError: no such folder, a file that is no table, or one that lacks columns of the kind it resembles.
    """
    result = survey(directory)
    fitted = {schema.name for schema in SCHEMAS if schema.fitted} | {"peaks", "manifest"}
    rest = [*result.others, *(table.shown for table in result.tables if table.schema.name not in fitted)]
    return [f"{shown}: nothing is fitted on this table" for shown in sorted(rest)]


def peak_rows(directory: Path) -> pd.DataFrame:
    """Every row of the tables of peaks below a folder; empty where there is none.

    Raises:
        DataError: a damaged table, or one device twice.
    """
    frames = [table.rows([]).assign(table=table.shown) for table in tables(directory, "peaks")]
    if not frames:
        return pd.DataFrame(columns=["gpu"])
    rows = pd.concat(frames, ignore_index=True)
    again = rows[rows["gpu"].duplicated()]
    if len(again):
        raise DataError(f"{again['table'].iloc[0]}: gpu {again['gpu'].iloc[0]} is described twice; allowed: once")
    return rows


def read_peaks(directory: Path) -> dict[str, Peaks]:
    """Device -> peaks, as the folder says them; empty where it does not.

    Raises:
        DataError: see `peak_rows`.
    """
    rows = peak_rows(directory)
    link = rows[LINK] if LINK in rows else pd.Series(np.nan, index=rows.index)
    rates = [rows[name].to_numpy(dtype=float) * 1e12 for name in PEAKS] if len(rows) else []
    columns = zip(*rates, link.to_numpy(dtype=float) * 1e9, strict=True) if len(rows) else ()
    return {str(gpu): Peaks(*row) for gpu, row in zip(rows["gpu"], columns, strict=True)}


def format_key(table: KernelTable, row_format: str, cache_format: str | None) -> str:
    """Our key for a number format; a different cache format is part of it."""
    ours = FORMATS[row_format][0] if row_format in FORMATS else row_format
    if table.name == "elementwise":
        return "any"
    if cache_format is None or cache_format == row_format:
        return ours
    cache = FORMATS[cache_format][0] if cache_format in FORMATS else cache_format
    return f"{ours}_kv_{cache}"


def kernel_groups(
    directory: Path, messages: list[str], classes: tuple[KernelTable, ...] = TABLES, least: int = 1
) -> Iterator[TableGroup]:
    """Every group of every kernel table below a folder.

    Args:
        messages: what was set aside and why is added here.
        least: rows that a group must have to be of use.
    """
    folder = read_peaks(directory)
    frames_by_kind: dict[str, pd.DataFrame] = {}  # kind -> rows: prefill and decode stand in the same tables
    for table in classes:
        kind, decode = KINDS[table.name]
        if kind not in frames_by_kind:
            frames = [result.rows(messages) for result in tables(directory, kind)]
            frames_by_kind[kind] = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
        rows = frames_by_kind[kind]
        if decode is not None and len(rows):
            rows = rows[is_decode(rows) == decode]
        if len(rows):
            for group in _split(table, rows, folder, messages):
                if len(group.measured_s) >= least:
                    yield group
                else:
                    few = f"{len(group.measured_s)} rows set aside, a fit needs {least}"
                    messages.append(f"{group.label}: {few}")


def is_decode(rows: pd.DataFrame) -> pd.Series:
    """Mask of attention rows that are decode steps: one query token before more than one key."""
    return (rows["q_len_tokens"] == 1) & (rows["kv_len_tokens"] > 1)


def _split(
    table: KernelTable, rows: pd.DataFrame, folder: dict[str, Peaks], messages: list[str]
) -> Iterator[TableGroup]:
    keys = ["gpu", "framework", table.format_column]
    if "kv_cache_dtype" in table.required:
        keys.append("kv_cache_dtype")
    for key, group in rows.groupby(keys, sort=True):
        gpu, framework, row_format, *cache = key
        unknown = [name for name in (row_format, *cache) if name not in FORMATS]
        if unknown:
            messages.append(f"{table.name}: {len(group)} rows of {gpu} with number format {unknown[0]!r} set aside")
            continue
        try:
            who = device(str(gpu), folder)
        except DataError as error:
            messages.append(f"{table.name}: {len(group)} rows set aside: {error}")
            continue
        _, column, element = FORMATS[row_format]
        peak = who.peaks.flops(0 if table.name == "elementwise" else column)
        yield TableGroup(
            table, who, str(framework), format_key(table, row_format, cache[0] if cache else None), peak, element,
            table.works(group), group[table.latency].to_numpy(dtype=float) * 1e-6,
        )  # fmt: skip
