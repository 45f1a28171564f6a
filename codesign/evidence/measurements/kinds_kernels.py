"""Tables of single kernels and of memory."""

import pandas as pd

from .schema import Check, Schema, number, text, whole, word

GPU = text("gpu", "the device, by a name or alias of conf/accelerator; rows of others are set aside with a note")
LATENCY = number("latency_us", "us", "time of one launch")
FRAMEWORK = word("framework", "whose kernels: constants of another are taken, and said so, where it has none")
CARRIED = ("framework_version", "source", "repeats", "bytes_moved")
FORMAT = "number format: bfloat16, float16, half, fp8, fp8_block, nvfp4 ...; rows of others are set aside with a note"


def _fewer_groups(rows: pd.DataFrame) -> pd.Series:
    return rows["num_kv_heads"] > rows["num_heads"]


def _no_more_keys(rows: pd.DataFrame) -> pd.Series:
    return rows["kv_len_tokens"] < rows["q_len_tokens"]


def _more_than_there_are(rows: pd.DataFrame) -> pd.Series:
    return rows["topk"] > rows["num_experts"]


HEADS = Check("no more key-value heads than heads", ("num_heads", "num_kv_heads"), _fewer_groups)
KEYS = Check("at least as many keys as queries", ("q_len_tokens", "kv_len_tokens"), _no_more_keys)
TOP_K = Check("no more experts a token than experts", ("topk", "num_experts"), _more_than_there_are)
SEQUENCES = (
    whole("batch_size", "sequences"),
    whole("q_len_tokens", "new tokens of each; 1 before more than one key is a decode step, all else prefill"),
    whole("kv_len_tokens", "keys of each, new ones included"),
)

GEMM = Schema(
    "gemm", "matrix products [m, k] x [k, n]",
    (GPU, FRAMEWORK, text("dtype", FORMAT), whole("m", "rows"), whole("n", "columns"), whole("k", "depth"), LATENCY),
    suite="kernels", fitted=True, carried=CARRIED,
)  # fmt: skip
ATTENTION = Schema(
    "attention", "attention, prefill or decode",
    (GPU, FRAMEWORK, text("attn_dtype", FORMAT), text("kv_cache_dtype", FORMAT), *SEQUENCES,
     whole("num_heads", "query heads"), whole("num_kv_heads", "key-value heads"), whole("head_dim", "of each"),
     LATENCY),
    suite="kernels", fitted=True, carried=CARRIED, checks=(HEADS, KEYS),
)  # fmt: skip
LATENT = Schema(
    "latent_attention", "multi-head latent attention, prefill or decode",
    (GPU, FRAMEWORK, text("mla_dtype", FORMAT), text("kv_cache_dtype", FORMAT), *SEQUENCES,
     whole("num_heads", "query heads"), LATENCY),
    suite="kernels", fitted=True, carried=CARRIED, checks=(KEYS,),
)  # fmt: skip
EXPERTS = Schema(
    "experts", "the grouped products of experts on one rank",
    (GPU, FRAMEWORK, text("dtype", FORMAT),
     text("distribution", "how tokens spread", ("balanced", "power_law_1.01", "power_law_1.2")),
     whole("num_tokens", "before routing"), whole("hidden_size", "width of a token"),
     whole("inter_size", "width of an expert, all ranks together"), whole("topk", "experts a token"),
     whole("num_experts", "all ranks together"), whole("moe_tp_size", "ranks that share an expert"),
     whole("moe_ep_size", "ranks that experts are spread over"), LATENCY),
    suite="kernels", fitted=True, carried=CARRIED, checks=(TOP_K,),
)  # fmt: skip
QUANTISE = Schema(
    "quantise", "element-wise passes that read 16 bits and write 8",
    (GPU, FRAMEWORK, text("quant_dtype", FORMAT), whole("m", "rows"), whole("k", "columns"), LATENCY),
    suite="kernels", fitted=True, carried=CARRIED, without=("n",),
)  # fmt: skip
POINTS = Schema(
    "published_gemm", "published rates of matrix products",
    (GPU, text("dtype", "number format", ("fp16", "bf16", "fp8")), whole("m", "rows"), whole("n", "columns"),
     whole("k", "depth"), number("tflops", "TFLOP/s", "achieved"),
     text("source", "who says so")),
    suite="unfitted", carried=("latency_us", "software"),
)  # fmt: skip
OPERATORS = Schema(
    "layer_operators", "operators of one layer as a framework runs them",
    (GPU, text("op", "operator; rows of unknown ones are set aside with a note"),
     whole("tp", "ranks the layer is spread over"), whole("num_tokens", "in the batch"), whole("hidden", "width"),
     whole("ffn_hidden", "width of the feed-forward"), whole("num_heads", "query heads"),
     whole("num_kv_heads", "key-value heads"), LATENCY),
    suite="unfitted", carried=("model",), checks=(HEADS,),
)  # fmt: skip
STREAMS = Schema(
    "published_streams", "published rates of memory streams",
    (GPU, text("operation", "of the stream"), number("tbytes_per_s", "TB/s", "achieved")),
    suite="unfitted", carried=("source",),
)  # fmt: skip
OCCUPANCY = Schema(
    "stream_occupancy", "memory streams against occupancy",
    (GPU, text("operation", "of the stream"),
     number("occupancy_percent", "%", "of the threads a chip may hold; rows below the fullest are set aside with a "
            "note"), number("gbytes_per_s", "GB/s", "achieved")),
    suite="unfitted", carried=("block_size", "threads"),
)  # fmt: skip
SWEEP = Schema(
    "read_sweep", "reads against the working set",
    (GPU, whole("working_set_bytes", "read again and again; rows that fit a cache are set aside with a note", 1e15,
                "bytes"), number("read_gbytes_per_s", "GB/s", "achieved")),
    suite="unfitted", carried=("test", "spread_percent"),
)  # fmt: skip
KERNEL_KINDS = (
    GEMM, ATTENTION, LATENT, EXPERTS, QUANTISE, POINTS, OPERATORS, STREAMS, OCCUPANCY, SWEEP,
)  # fmt: skip
