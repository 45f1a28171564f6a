"""Tables of training steps."""

import pandas as pd

from .kinds_kernels import GPU
from .schema import Check, Schema, flag, number, text, whole

DEVICES = whole("num_gpus", "of the run")
BATCH = whole("global_batch", "sequences of a step")
MICRO = whole("micro_batch", "sequences of a micro-batch")
SEQUENCE = whole("seq_tokens", "tokens of a sequence")
TP, PP, CP = whole("tp", "tensor parallel"), whole("pp", "pipeline stages"), whole("cp", "context parallel")
SHAPE = (whole("hidden", "width"), whole("num_heads", "query heads"), whole("num_layers", "layers"), SEQUENCE)
PRECISION = text("precision", "of the products: bf16, fp16, fp8, mxfp8, fp8-cs, fp8-mx, nvfp4; others set aside")
RATE = "tokens/s"


def _not_whole(rows: pd.DataFrame) -> pd.Series:
    return (rows["num_gpus"] % (rows["tp"].fillna(1) * rows["pp"].fillna(1))) != 0


def _other_product(rows: pd.DataFrame) -> pd.Series:
    return rows["num_gpus"] != rows["tp"] * rows["pp"] * rows["dp"]


SPLIT = Check(
    "tp times pp divides num_gpus", ("tp", "pp", "num_gpus"),
    _not_whole,
)  # fmt: skip

RECOMPUTE = Schema(
    "recompute_steps", "training steps of Megatron, by method of recomputation",
    (GPU, *SHAPE, whole("vocab", "tokens known"), TP, PP, whole("virtual_pp", "stages on a device"), DEVICES, BATCH,
     MICRO, text("method", "selective or full recomputation"), number("iteration_time_s", "s", "of a step")),
    suite="training", fitted=True, checks=(SPLIT,),
    carried=("model", "dp", "mfu_percent_reported", "hfu_percent_reported", "mfu_percent_derived"),
)  # fmt: skip
RATES = Schema(
    "achieved_rates", "training of Megatron by achieved rate",
    (GPU, *SHAPE, whole("vocab", "tokens known"), text("experiment", "table1_weak_scaling, or another"),
     text("scheme", "PTD-P or ZeRO-3"), TP, PP, whole("dp", "replicas"), DEVICES, BATCH,
     MICRO.or_blank("the fastest of 1, 2, 4, 8, 16 that fits"),
     number("achieved_tflops_per_gpu_hw", "TFLOP/s", "of a device, recomputation counted")),
    suite="training", fitted=True, checks=(SPLIT,),
    carried=("params_billion", "peak_percent", "iteration_time_s_derived", "training_days_300b_tokens"),
)  # fmt: skip
SINGLE_NODE = Schema(
    "layout_steps", "training steps of GPTs by layout",
    (GPU, *SHAPE, TP, PP, whole("dp", "replicas"), DEVICES, BATCH, MICRO,
     number("iteration_time_ms", "ms", "of a step")),
    suite="training", fitted=True, carried=("mfu_percent_derived",),
    checks=(Check("num_gpus is tp times pp times dp", ("num_gpus", "tp", "pp", "dp"),
                  _other_product),),
)  # fmt: skip
SHARDED = Schema(
    "sharded_rates", "training of MPT under fully sharded data parallelism",
    (GPU, text("model", "MPT and its size; rows of unknown sizes are set aside with a note"), SEQUENCE, DEVICES, MICRO,
     BATCH, number("tokens_per_s_total", RATE, "of all devices"), PRECISION,
     text("fsdp_mixed_precision", "of gradients", ("DEFAULT", "PURE")),
     text("sharding", "what is sharded", ("FULL_SHARD", "SHARD_GRAD_OP")),
     flag("activation_checkpointing", "whether everything is recomputed")),
    suite="training", fitted=True,
    carried=("mfu_percent", "hfu_percent", "model_tflops_per_gpu", "grad_accum", "tokens_per_s_per_gpu", "num_params"),
)  # fmt: skip
BRIDGE = Schema(
    "named_model_rates", "training of named models by layout",
    (GPU, text("model", "as the source writes it; rows of models without a configuration are set aside with a note"),
     text("phase", "Pre-Training; rows of others are set aside with a note"), PRECISION, DEVICES, BATCH,
     MICRO, SEQUENCE, whole("fsdp", "devices that share the states", zero=True).or_blank("not sharded"), TP, PP, CP,
     whole("vp", "stages on a device").or_blank("one"), whole("ep", "expert parallel").or_blank("one"),
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
        CP, PP, SEQUENCE, BATCH, PRECISION, number("tflops_per_gpu", "TFLOP/s", "of the model, of a device"))),
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
