"""Registry of the kinds of tables of measurements: the schema of each, in the order that decides between two."""

import pandas as pd

from .schema import Check, Schema, flag, integer, number, text, word

# Tables of single kernels and of memory.


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
    integer("batch_size", "sequences"),
    integer("q_len_tokens", "new tokens of each; 1 before more than one key is a decode step, all else prefill"),
    integer("kv_len_tokens", "keys of each, new ones included"),
)

GEMM = Schema(
    "gemm", "matrix products [m, k] x [k, n]",
    (GPU, FRAMEWORK, text("dtype", FORMAT), integer("m", "rows"), integer("n", "columns"), integer("k", "depth"),
     LATENCY),
    suite="kernels", fitted=True, carried=CARRIED,
)  # fmt: skip
ATTENTION = Schema(
    "attention", "attention, prefill or decode",
    (GPU, FRAMEWORK, text("attn_dtype", FORMAT), text("kv_cache_dtype", FORMAT), *SEQUENCES,
     integer("num_heads", "query heads"), integer("num_kv_heads", "key-value heads"), integer("head_dim", "of each"),
     LATENCY),
    suite="kernels", fitted=True, carried=CARRIED, checks=(HEADS, KEYS),
)  # fmt: skip
LATENT = Schema(
    "latent_attention", "multi-head latent attention, prefill or decode",
    (GPU, FRAMEWORK, text("mla_dtype", FORMAT), text("kv_cache_dtype", FORMAT), *SEQUENCES,
     integer("num_heads", "query heads"), LATENCY),
    suite="kernels", fitted=True, carried=CARRIED, checks=(KEYS,),
)  # fmt: skip
EXPERTS = Schema(
    "experts", "the grouped products of experts on one rank",
    (GPU, FRAMEWORK, text("dtype", FORMAT),
     text("distribution", "how tokens spread", ("balanced", "power_law_1.01", "power_law_1.2")),
     integer("num_tokens", "before routing"), integer("hidden_size", "width of a token"),
     integer("inter_size", "width of an expert, all ranks together"), integer("topk", "experts a token"),
     integer("num_experts", "all ranks together"), integer("moe_tp_size", "ranks that share an expert"),
     integer("moe_ep_size", "ranks that experts are spread over"), LATENCY),
    suite="kernels", fitted=True, carried=CARRIED, checks=(TOP_K,),
)  # fmt: skip
QUANTISE = Schema(
    "quantise", "element-wise passes that read 16 bits and write 8",
    (GPU, FRAMEWORK, text("quant_dtype", FORMAT), integer("m", "rows"), integer("k", "columns"), LATENCY),
    suite="kernels", fitted=True, carried=CARRIED, without=("n",),
)  # fmt: skip
POINTS = Schema(
    "published_gemm", "published rates of matrix products",
    (GPU, text("dtype", "number format", ("fp16", "bf16", "fp8")), integer("m", "rows"), integer("n", "columns"),
     integer("k", "depth"), number("tflops", "TFLOP/s", "achieved"),
     text("source", "who says so")),
    suite="unfitted", carried=("latency_us", "software"),
)  # fmt: skip
OPERATORS = Schema(
    "layer_operators", "operators of one layer as a framework runs them",
    (GPU, text("op", "operator; rows of unknown ones are set aside with a note"),
     integer("tp", "ranks the layer is spread over"), integer("num_tokens", "in the batch"), integer("hidden", "width"),
     integer("ffn_hidden", "width of the feed-forward"), integer("num_heads", "query heads"),
     integer("num_kv_heads", "key-value heads"), LATENCY),
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
    (GPU, integer("working_set_bytes", "read again and again; rows that fit a cache are set aside with a note", 1e15,
                "bytes"), number("read_gbytes_per_s", "GB/s", "achieved")),
    suite="unfitted", carried=("test", "spread_percent"),
)  # fmt: skip
KERNEL_KINDS = (
    GEMM, ATTENTION, LATENT, EXPERTS, QUANTISE, POINTS, OPERATORS, STREAMS, OCCUPANCY, SWEEP,
)  # fmt: skip


# Tables of power and of machines, and those that describe a folder.


BOARD = Schema(
    "kernel_power", "board power while one kernel repeats",
    (GPU, text("kernel", "what repeats"), text("dtype", "number format; rows of others than 16 and 8 bits set aside"),
     number("latency_us", "us", "of the kernel"), number("achieved_tflops", "TFLOP/s", "of its shape", zero=True),
     number("achieved_tbytes_per_s", "TB/s", "compulsory traffic", zero=True), number("power_w", "W", "of the board")),
    suite="power", fitted=True, carried=("config", "power_limit_w"),
)  # fmt: skip
SERVED = Schema(
    "serving_power", "power of served models in steady decoding",
    (GPU, text("model", "as the source writes it; rows of models without a configuration set aside"),
     text("architecture", "Dense Transformer, MoE ..."), text("weight_precision", "bfloat16, fp8 ..."),
     number("total_params_billions", "10^9", "weights"), integer("num_gpus", "of an instance"),
     integer("tp", "tensor parallel"), integer("ep", "expert parallel"), integer("dp", "attention by data"),
     number("avg_batch_size", "tokens", "sequences"),
     number("avg_output_tokens", "tokens", "of an answer"), number("output_tokens_per_s", "tokens/s", "of an instance"),
     number("median_itl_ms", "ms", "between tokens"), number("avg_power_w_per_gpu", "W", "of a board"),
     number("energy_j_per_output_token", "J", "of all boards")),
    suite="power", fitted=True,
    carried=("task", "activated_params_billions", "max_num_seqs", "p90_itl_ms", "p99_itl_ms", "avg_power_w_total"),
)  # fmt: skip
PEAKS = Schema(
    "peaks", "data-sheet peaks of devices, for all tables of the folder",
    (text("gpu", "the device"), number("dense_bf16_tflops", "TFLOP/s", "dense peak"),
     number("dense_fp8_tflops", "TFLOP/s", "dense peak").or_blank("it has none"),
     number("dense_fp4_tflops", "TFLOP/s", "dense peak").or_blank("it has none"),
     number("hbm_tbytes_per_s", "TB/s", "of the memory"),
     number("scaleup_link_gbytes_per_s_one_way", "GB/s", "of the links").or_blank("not known").if_there(),
     number("tdp_w", "W", "limit of the board").or_blank("not known").if_there()),
    why="read by the suites", carried=("memory_gb",),
)  # fmt: skip
MANIFEST = Schema(
    "manifest", "a list of the tables of a folder",
    (text("category", "folder"), text("table", "its name"), text("source_key", "where it comes from")),
    why="it describes the folder", carried=("shared_rows", "shared_kB"),
)  # fmt: skip
ENERGIES = Schema(
    "energy_per_bit", "single energies of memories and links",
    (text("link_or_memory", "what"), number("value", "J", "in its unit"), text("unit", "pJ_per_bit")),
    why="single figures; they are sources of the configuration", carried=("source", "evidence"),
)  # fmt: skip
SYSTEMS = Schema(
    "system_power", "single figures of nodes, racks and facilities",
    (text("hardware", "what"), text("quantity", "which"), text("unit", "of the value"),
     number("value", "J", "in its unit")),
    why="single figures; they are sources of the configuration", carried=("kind", "source", "evidence"),
)  # fmt: skip
PRICES = Schema(
    "prices", "public prices",
    (text("gpu", "of what"), text("item", "which"), number("value", "J", "in its unit"), text("unit", "of the value")),
    why="prices; they are sources of the configuration", carried=("date", "source"),
)  # fmt: skip

MACHINE_KINDS = (BOARD, SERVED, PEAKS, MANIFEST, ENERGIES, SYSTEMS, PRICES)


# Tables of collectives and of the exchange of experts.


OPERATION = text("collective", "all_reduce, all_gather, reduce_scatter, alltoall, sendrecv; others are set aside")
BYTES = integer("message_bytes", "the full buffer, as nccl-tests counts it", 1e15, "bytes")
MEMBERS = integer("num_gpus", "members of the group")
A_NODE = integer("gpus_per_node", "members on each node")
NODES = integer("num_nodes", "that the group spans")


def _not_all_nodes(rows: pd.DataFrame) -> pd.Series:
    return rows["num_gpus"] != rows["num_nodes"] * rows["gpus_per_node"]


TIMES = Check(
    "num_gpus is num_nodes times gpus_per_node", ("num_gpus", "num_nodes", "gpus_per_node"),
    _not_all_nodes,
)  # fmt: skip
WIDTHS = (
    integer("hidden_size", "width of a token"), integer("topk", "experts a token"), integer("num_experts", "in all"),
    integer("num_tokens", "of each rank"),
)  # fmt: skip

SMS = integer("num_sms", "processors that the library takes", zero=True).or_blank("as many as it usually takes")

SCALE_UP = Schema(
    "scale_up", "collectives of the vendor's library inside one scale-up domain",
    (GPU, OPERATION, MEMBERS, BYTES, LATENCY), suite="collectives", fitted=True,
    without=("cluster", "num_nodes", "algorithm", "inplace_latency_us", "kernel_source"),
    carried=("fabric", "nccl_version", "dtype", "gpus_per_node", "busbw_gbytes_per_s", "repeats", "source",
             "cuda_graph"),
)  # fmt: skip
CUSTOM = Schema(
    "custom_all_reduce", "all-reduces of inference frameworks",
    (GPU, word("kernel_source", "whose all-reduce"), MEMBERS, BYTES, LATENCY), suite="collectives", fitted=True,
    without=("collective",), carried=("framework", "framework_version", "busbw_gbytes_per_s"),
)  # fmt: skip
CLUSTERS = Schema(
    "clusters", "collectives across nodes",
    (GPU, text("cluster", "its name says the class of its network: 100G or 400G; rows of others are set aside with a "
               "note"), NODES, A_NODE, MEMBERS, OPERATION, BYTES, LATENCY),
    suite="collectives and across nodes", fitted=True, checks=(TIMES,),
    carried=("kind", "runs", "latency_p10_us", "latency_p90_us", "busbw_gbytes_per_s", "nccl_version", "dtype",
             "cuda_graph", "source"),
)  # fmt: skip
LOGS = Schema(
    "published_logs", "published logs of collectives",
    (text("source", "who says so"), GPU, text("fabric", "as the source calls it"), text("algorithm", "as it calls it"),
     MEMBERS, A_NODE, OPERATION, BYTES,
     number("latency_us", "us", "out of place").or_blank("the one in place is taken; neither: row set aside"),
     number("inplace_latency_us", "us", "in place").or_blank("the one out of place is taken")),
    suite="across nodes", carried=("busbw_gbytes_per_s", "inplace_busbw_gbytes_per_s"),
)  # fmt: skip
EXCHANGE = Schema(
    "expert_exchange", "dispatch and combine of experts, a row a phase",
    (GPU, text("comm_backend", "library"), text("phase", "of the exchange", ("dispatch", "combine")),
     text("comm_dtype", "of the payload: bfloat16, fp8, fp4, nvfp4, or default where nobody says; rows of others are "
                        "set aside with a note"),
     integer("ep_size", "ranks"), NODES, *WIDTHS, SMS, LATENCY),
    suite="expert exchange", fitted=True, checks=(TOP_K,), carried=("framework", "framework_version"),
)  # fmt: skip
DISPATCH = Schema(
    "dispatch_combine", "dispatch and combine of experts, both in a row",
    (GPU, text("mode", "of the library", ("normal", "low_latency")), NODES, *WIDTHS, SMS,
     number("dispatch_us", "us", "of the payload"), number("combine_us", "us", "of the payload"),
     number("dispatch_notify_us", "us", "of telling the counts", zero=True).or_blank("none"),
     number("combine_notify_us", "us", "of telling the counts", zero=True).or_blank("none")),
    suite="expert exchange", fitted=True, checks=(TOP_K,), carried=("sglang_version",),
)  # fmt: skip
BOTTLENECKS = Schema(
    "dispatch_rates", "published bottleneck rates of expert exchange",
    (text("gpu", "the class of device"), text("fabric", "its network"), integer("ep_size", "ranks"), NODES,
     number("dispatch_bottleneck_gbytes_per_s", "GB/s", "as defined by the source"),
     number("combine_bottleneck_gbytes_per_s", "GB/s", "as defined by the source")),
    why="rates of a bottleneck that the source defines, without the message sizes", carried=("num_sms",),
)  # fmt: skip
SWITCHED = Schema(
    "in_switch_rates", "bus bandwidth with and without reduction in the switches",
    (text("gpu", "the device"), MEMBERS, NODES, text("algorithm", "on or off"), text("collective", "operation"),
     number("busbw_gbytes_per_s", "GB/s", "of large messages"), text("source", "who says so")),
    why="figures without message sizes, some of them expectations", without=("message_bytes",),
)  # fmt: skip
COLLECTIVE_KINDS = (SCALE_UP, CUSTOM, CLUSTERS, LOGS, EXCHANGE, DISPATCH, BOTTLENECKS, SWITCHED)


# Tables of inference: static batches, served queues, published throughput.


MODEL = text("model", "as the source writes it; rows of models without a configuration are set aside with a note")
PRECISION = text("precision", "of weights and products: bf16, fp16, fp8, fp4 ...; rows of others are set aside")
INPUT = integer("input_tokens", "of a prompt")
OUTPUT = integer("output_tokens", "of an answer")
TP, PP = integer("tp", "tensor parallel"), integer("pp", "pipeline stages")
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
VERSION = text("backend_version", "of the engine: tells which runs of an export are those of another")
POOLS = tuple(
    column
    for pool in ("prefill", "decode")
    for column in (
        integer(f"{pool}_num_workers", "engines of the pool").or_blank("the row is set aside with a note"),
        integer(f"{pool}_tp_size", "tensor parallel"), integer(f"{pool}_pp_size", "pipeline stages"),
        integer(f"{pool}_attention_dp_size", "ranks that share attention by sequences", zero=True),
        integer(f"{pool}_moe_tp_size", "ranks that share an expert", zero=True),
        integer(f"{pool}_moe_ep_size", "ranks experts are spread over", zero=True),
    )
)  # fmt: skip


def _half_stated(rows: pd.DataFrame) -> pd.Series:
    rate, latency = rows["output_tokens_per_s_per_gpu"], rows["first_token_latency_ms"]
    return rate.isna() & latency.isna() | rate.notna() & rows["output_tokens"].isna()


def _longer_than_the_prompt(rows: pd.DataFrame) -> pd.Series:
    return rows["shared_prefix_tokens"] > rows["input_tokens"]


STATIC = Schema(
    "static_batches", "static batches",
    (GPU, text("precision", "of weights and products: bf16, fp16, fp8"), text("software", "engine"), MODEL,
     integer("batch_size", "sequences"), TP, INPUT, OUTPUT.or_blank("the first token alone"),
     number("output_tokens_per_s_per_gpu", "tokens/s", "of a device").or_blank("the first token's latency is compared"),
     number("first_token_latency_ms", "ms", "of the batch").or_blank("the throughput is compared")),
    suite="inference", carried=("total_latency_s",),
    checks=(Check("a throughput with its output_tokens, or a first token's latency",
                  ("output_tokens", "output_tokens_per_s_per_gpu", "first_token_latency_ms"),
                  _half_stated),),
)  # fmt: skip
THROUGHPUT = Schema(
    "maximum_throughput", "the most an engine serves, its batch its own choice",
    (GPU, MODEL, PRECISION,
     text("parallelism", "TPn (tensor) or DEPn (attention by data, experts spread); rows of others set aside"),
     integer("num_gpus", "of an instance"), INPUT, OUTPUT,
     number("output_tokens_per_s_per_gpu", "tokens/s", "of a device")),
    suite="maximum throughput",
)  # fmt: skip
MLPERF_INFERENCE = Schema(
    "mlperf_inference", "MLPerf inference results",
    (GPU, integer("num_accelerators", "of the system"), text("model", "the benchmark"), text("scenario", "of the load"),
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
     integer("batch_size", "requests at a time"),
     integer("concurrency", "requests at a time").or_blank("batch_size"), TP, PP,
     integer("attention_dp", "ranks that share attention by sequences", zero=True).or_blank("one"),
     integer("moe_tp", "ranks that share an expert", zero=True),
     integer("moe_ep", "ranks experts are spread over", zero=True),
     *CLOSED, VERSION.or_blank("not told apart").if_there(), ORIGIN.if_there()),
    suite="closed loop", carried=("measured_date", "work_in_progress"),
)  # fmt: skip
DISAGGREGATED = Schema(
    "disaggregated", "served models, prefill and decode apart",
    (GPU, MODEL, PRECISION.or_blank("as the name of the weights says, else 16 bits"), INPUT, OUTPUT,
     integer("concurrency", "requests at a time").or_blank("the row is set aside with a note"), *POOLS, *CLOSED,
     ORIGIN.if_there()),
    suite="disaggregated",
    carried=("prefill_batch_size", "decode_batch_size", "backend_version", "measured_date", "work_in_progress"),
)  # fmt: skip
RUN = text("run", "its name")
REQUESTS = number("request_rate_per_s", "1/s", "offered")
OPEN = Schema(
    "open_loop", "served models under a rate of requests",
    (RUN, MODEL, GPU, TP, integer("dp", "instances"),
     text("weights", "FP8, FP16 or BF16; rows of others are set aside"),
     integer("max_num_seqs", "sequences of a step at most"), INPUT,
     integer("shared_prefix_tokens", "of the prompt, the same in all", zero=True), OUTPUT, REQUESTS,
     integer("distinct_prompts", "different prompts of a run: the others are found in the prefix cache"),
     number("duration_s", "s", "of the stage"),
     integer("max_num_batched_tokens", "tokens of a step at most").if_there(), *MS),
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


# Tables of training steps.


DEVICES = integer("num_gpus", "of the run")
BATCH = integer("global_batch", "sequences of a step")
MICRO = integer("micro_batch", "sequences of a micro-batch")
SEQUENCE = integer("seq_tokens", "tokens of a sequence")

CP = integer("cp", "context parallel")

SHAPE = (integer("hidden", "width"), integer("num_heads", "query heads"), integer("num_layers", "layers"), SEQUENCE)

PRODUCTS_PRECISION = text(
    "precision", "of the products: bf16, fp16, fp8, mxfp8, fp8-cs, fp8-mx, nvfp4; others set aside"
)

RATE = "tokens/s"


def _not_integer(rows: pd.DataFrame) -> pd.Series:
    return (rows["num_gpus"] % (rows["tp"].fillna(1) * rows["pp"].fillna(1))) != 0


def _other_product(rows: pd.DataFrame) -> pd.Series:
    return rows["num_gpus"] != rows["tp"] * rows["pp"] * rows["dp"]


SPLIT = Check(
    "tp times pp divides num_gpus", ("tp", "pp", "num_gpus"),
    _not_integer,
)  # fmt: skip

RECOMPUTE = Schema(
    "recompute_steps", "training steps of Megatron, by method of recomputation",
    (GPU, *SHAPE, integer("vocab", "tokens known"), TP, PP, integer("virtual_pp", "stages on a device"), DEVICES, BATCH,
     MICRO, text("method", "selective or full recomputation"), number("iteration_time_s", "s", "of a step")),
    suite="training", fitted=True, checks=(SPLIT,),
    carried=("model", "dp", "mfu_percent_reported", "hfu_percent_reported", "mfu_percent_derived"),
)  # fmt: skip
RATES = Schema(
    "achieved_rates", "training of Megatron by achieved rate",
    (GPU, *SHAPE, integer("vocab", "tokens known"), text("experiment", "table1_weak_scaling, or another"),
     text("scheme", "PTD-P or ZeRO-3"), TP, PP, integer("dp", "replicas"), DEVICES, BATCH,
     MICRO.or_blank("the fastest of 1, 2, 4, 8, 16 that fits"),
     number("achieved_tflops_per_gpu_hw", "TFLOP/s", "of a device, recomputation counted")),
    suite="training", fitted=True, checks=(SPLIT,),
    carried=("params_billion", "peak_percent", "iteration_time_s_derived", "training_days_300b_tokens"),
)  # fmt: skip
SINGLE_NODE = Schema(
    "layout_steps", "training steps of GPTs by layout",
    (GPU, *SHAPE, TP, PP, integer("dp", "replicas"), DEVICES, BATCH, MICRO,
     number("iteration_time_ms", "ms", "of a step")),
    suite="training", fitted=True, carried=("mfu_percent_derived",),
    checks=(Check("num_gpus is tp times pp times dp", ("num_gpus", "tp", "pp", "dp"),
                  _other_product),),
)  # fmt: skip
SHARDED = Schema(
    "sharded_rates", "training of MPT under fully sharded data parallelism",
    (GPU, text("model", "MPT and its size; rows of unknown sizes are set aside with a note"), SEQUENCE, DEVICES, MICRO,
     BATCH, number("tokens_per_s_total", RATE, "of all devices"), PRODUCTS_PRECISION,
     text("fsdp_mixed_precision", "of gradients", ("DEFAULT", "PURE")),
     text("sharding", "what is sharded", ("FULL_SHARD", "SHARD_GRAD_OP")),
     flag("activation_checkpointing", "whether everything is recomputed")),
    suite="training", fitted=True,
    carried=("mfu_percent", "hfu_percent", "model_tflops_per_gpu", "grad_accum", "tokens_per_s_per_gpu", "num_params"),
)  # fmt: skip
BRIDGE = Schema(
    "named_model_rates", "training of named models by layout",
    (GPU, text("model", "as the source writes it; rows of models without a configuration are set aside with a note"),
     text("phase", "Pre-Training; rows of others are set aside with a note"), PRODUCTS_PRECISION, DEVICES, BATCH,
     MICRO, SEQUENCE, integer("fsdp", "devices that share the states", zero=True).or_blank("not sharded"), TP, PP, CP,
     integer("vp", "stages on a device").or_blank("one"), integer("ep", "expert parallel").or_blank("one"),
     number("tokens_per_s_per_gpu", RATE, "of a device"),
     text("release", "of the framework, year.month first").or_blank("before 26.06").if_there()),
    suite="training", fitted=True, checks=(SPLIT,),
    carried=("model_tflops_per_gpu", "peak_fraction_of_precision"),
)  # fmt: skip
FRONTIER = Schema(
    "frontier_rates", "published runs of frontier models",
    tuple(column.or_blank("row set aside with a note") if column.name not in ("gpu", "model", "num_gpus", "precision")
          else column for column in (
        GPU, text("model", "as the source writes it; rows without a step time are set aside with a note"), DEVICES, TP,
        CP, PP, SEQUENCE, BATCH, PRODUCTS_PRECISION, number("tflops_per_gpu", "TFLOP/s", "of the model, of a device"))),
    suite="training", checks=(SPLIT,),
    carried=("dp", "ep", "mfu_percent", "gpu_hours", "tokens_trillion", "tokens_per_s_per_gpu",
             "tflops_per_gpu_derived_6nd"),
)  # fmt: skip
MLPERF = Schema(
    "mlperf_training", "MLPerf training results with the layout of the run",
    tuple(column.or_blank("row set aside with a note") if column.name in (
        "seq_tokens", "tp", "pp", "cp", "precision_from_config_name", "median_step_time_s") else column for column in (
        GPU, text("benchmark", "rows of others than llama31_8b and llama31_405b are set aside with a note"), DEVICES,
        BATCH, SEQUENCE, TP, PP, CP,
        text("precision_from_config_name", "fp8 or fp4; rows of others are set aside with a note"),
        number("median_step_time_s", "s", "of a step"))),
    suite="MLPerf training", checks=(SPLIT,),
    carried=("submitter", "system", "num_nodes", "config_file", "runs", "model_tflops_per_gpu_derived",
             "bf16_peak_fraction_derived", "time_to_train_min"),
)  # fmt: skip
MEMORY = Schema(
    "recompute_memory", "memory by method of recomputation",
    (text("model", "size"), text("method", "of recomputation"),
     number("activations_percent_of_tp_baseline", "%", "of the first method")),
    why="read off a figure, without the run it belongs to", carried=("params_optimizer_gib", "activations_gib"),
)  # fmt: skip
TRAINING_KINDS = (RECOMPUTE, RATES, SINGLE_NODE, SHARDED, BRIDGE, FRONTIER, MLPERF, MEMORY)


# All kinds of tables, in the order that decides between two that require as many columns.


SCHEMAS: tuple[Schema, ...] = (*KERNEL_KINDS, *COLLECTIVE_KINDS, *TRAINING_KINDS, *SERVING_KINDS, *MACHINE_KINDS)
