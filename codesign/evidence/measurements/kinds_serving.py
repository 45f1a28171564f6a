"""Tables of inference: static batches, served queues, published throughput."""

import pandas as pd

from .kinds_kernels import GPU
from .schema import Check, Schema, number, text, whole

MODEL = text("model", "as the source writes it; rows of models without a configuration are set aside with a note")
PRECISION = text("precision", "of weights and products: bf16, fp16, fp8, fp4 ...; rows of others are set aside")
INPUT = whole("input_tokens", "of a prompt")
OUTPUT = whole("output_tokens", "of an answer")
TP, PP = whole("tp", "tensor parallel"), whole("pp", "pipeline stages")
MS = tuple(
    number(f"{what}_{which}_ms", "ms", meaning)
    for what, which, meaning in (
        ("ttft", "mean", "to the first token"), ("ttft", "p90", "the same, 90th percentile"),
        ("ttft", "p99", "the same, 99th"), ("itl", "mean", "between tokens"), ("e2e", "mean", "of a request"),
        ("e2e", "p90", "the same, 90th percentile"), ("e2e", "p99", "the same, 99th"),
    )
)  # fmt: skip
CLOSED = (
    text("backend", "engine"), number("ttft_ms", "ms", "to the first token"), number("tpot_ms", "ms", "between tokens"),
)  # fmt: skip
ORIGIN = text("origin", "whose run: InferenceX draws each length from four fifths of what is stated up to it").or_blank(
    "lengths are those stated"
)
POOLS = tuple(
    column
    for pool in ("prefill", "decode")
    for column in (
        whole(f"{pool}_num_workers", "engines of the pool").or_blank("the row is set aside with a note"),
        whole(f"{pool}_tp_size", "tensor parallel"), whole(f"{pool}_pp_size", "pipeline stages"),
        whole(f"{pool}_attention_dp_size", "ranks that share attention by sequences", zero=True),
        whole(f"{pool}_moe_tp_size", "ranks that share an expert", zero=True),
        whole(f"{pool}_moe_ep_size", "ranks experts are spread over", zero=True),
    )
)  # fmt: skip


def _half_told(rows: pd.DataFrame) -> pd.Series:
    rate, latency = rows["output_tokens_per_s_per_gpu"], rows["first_token_latency_ms"]
    return rate.isna() & latency.isna() | rate.notna() & rows["output_tokens"].isna()


def _longer_than_the_prompt(rows: pd.DataFrame) -> pd.Series:
    return rows["shared_prefix_tokens"] > rows["input_tokens"]


STATIC = Schema(
    "static_batches", "static batches",
    (GPU, text("precision", "of weights and products: bf16, fp16, fp8"), text("software", "engine"), MODEL,
     whole("batch_size", "sequences"), TP, INPUT, OUTPUT.or_blank("the first token alone"),
     number("output_tokens_per_s_per_gpu", "tokens/s", "of a device").or_blank("the first token's latency is compared"),
     number("first_token_latency_ms", "ms", "of the batch").or_blank("the throughput is compared")),
    suite="inference", carried=("total_latency_s",),
    checks=(Check("a throughput with its output_tokens, or a first token's latency",
                  ("output_tokens", "output_tokens_per_s_per_gpu", "first_token_latency_ms"),
                  _half_told),),
)  # fmt: skip
THROUGHPUT = Schema(
    "maximum_throughput", "the most an engine serves, its batch its own choice",
    (GPU, MODEL, PRECISION,
     text("parallelism", "TPn (tensor) or DEPn (attention by data, experts spread); rows of others set aside"),
     whole("num_gpus", "of an instance"), INPUT, OUTPUT,
     number("output_tokens_per_s_per_gpu", "tokens/s", "of a device")),
    suite="maximum throughput",
)  # fmt: skip
MLPERF_INFERENCE = Schema(
    "mlperf_inference", "MLPerf inference results",
    (GPU, whole("num_accelerators", "of the system"), text("model", "the benchmark"), text("scenario", "of the load"),
     text("weight_dtype", "of the weights"), number("result", "tokens/s", "of the system"),
     text("result_units", "Tokens/s; rows of others are set aside with a note"),
     INPUT.if_there(), OUTPUT.if_there()),
    suite="maximum throughput",
    carried=("submitter", "gpu_as_submitted", "num_nodes", "division", "power_result", "power_units", "software",
             "mlperf_id"),
)  # fmt: skip
AGGREGATED = Schema(
    "closed_loop", "served models at a concurrency, one engine",
    (GPU, MODEL, PRECISION.or_blank("as the name of the weights says, else 16 bits"), INPUT, OUTPUT,
     whole("batch_size", "requests at a time"),
     whole("concurrency", "requests at a time").or_blank("batch_size"), TP, PP,
     whole("attention_dp", "ranks that share attention by sequences", zero=True).or_blank("one"),
     whole("moe_tp", "ranks that share an expert", zero=True),
     whole("moe_ep", "ranks experts are spread over", zero=True),
     *CLOSED, ORIGIN.if_there()),
    suite="closed loop", carried=("backend_version", "measured_date", "work_in_progress"),
)  # fmt: skip
DISAGGREGATED = Schema(
    "disaggregated", "served models, prefill and decode apart",
    (GPU, MODEL, PRECISION.or_blank("as the name of the weights says, else 16 bits"), INPUT, OUTPUT,
     whole("concurrency", "requests at a time").or_blank("the row is set aside with a note"), *POOLS, *CLOSED,
     ORIGIN.if_there()),
    suite="disaggregated",
    carried=("prefill_batch_size", "decode_batch_size", "backend_version", "measured_date", "work_in_progress"),
)  # fmt: skip
RUN = text("run", "its name")
REQUESTS = number("request_rate_per_s", "1/s", "offered")
OPEN = Schema(
    "open_loop", "served models under a rate of requests",
    (RUN, MODEL, GPU, TP, whole("dp", "instances"), text("weights", "FP8, FP16 or BF16; rows of others are set aside"),
     whole("max_num_seqs", "sequences of a step at most"), INPUT,
     whole("shared_prefix_tokens", "of the prompt, the same in all", zero=True), OUTPUT, REQUESTS,
     whole("distinct_prompts", "different prompts of a run: the others are found in the prefix cache"),
     number("duration_s", "s", "of the stage"),
     whole("max_num_batched_tokens", "tokens of a step at most").if_there(), *MS),
    suite="open loop", without=("peer",), carried=("gpu_memory_utilization", "kv_offload", "workload"),
    checks=(Check("the shared prefix is part of the prompt", ("input_tokens", "shared_prefix_tokens"),
                  _longer_than_the_prompt),),
)  # fmt: skip
PEERS = Schema(
    "open_loop_peers", "what peer models predict for served models under a rate of requests",
    (RUN, REQUESTS, text("peer", "who predicts"),
     *(column.or_blank("the peer does not say") for column in MS)),
    suite="open loop",
)  # fmt: skip
OBSERVED = Schema(
    "observed_requests", "single requests of an observed run",
    (number("arrival_s", "s", "when it was sent, after the first", zero=True), INPUT, OUTPUT,
     number("ttft_s", "s", "to the first token").or_blank("the request failed"),
     number("tpot_s", "s", "of each token after the first").or_blank("the request failed, or has one token"),
     number("e2e_s", "s", "to the last token").or_blank("the request failed")),
    why="the run that they are of is compared", carried=("error",),
)  # fmt: skip
SERVING_KINDS = (STATIC, THROUGHPUT, MLPERF_INFERENCE, AGGREGATED, DISAGGREGATED, OPEN, PEERS, OBSERVED)
