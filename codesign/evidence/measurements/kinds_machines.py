"""Tables of power and of machines, and those that describe a folder."""

from .kinds_kernels import GPU
from .schema import EVERYTHING, Schema, flag, number, text, whole

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
     number("total_params_billions", "10^9", "weights"), whole("num_gpus", "of an instance"),
     whole("tp", "tensor parallel"), whole("ep", "expert parallel"), whole("dp", "attention by data"),
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

APP = ("hidden", "feedforward", "seq_size", "attn_heads", "attn_size", "num_blocks")
COUNTS = ("num_procs", "tensor_par", "pipeline_par", "data_par", "batch_size", "microbatch_size",
          "pipeline_interleaving")  # fmt: skip
SWITCHES = ("fused_activation", "optimizer_sharding", "seq_par_ag_redo", "data_par_overlap", "weight_offload",
            "activations_offload", "optimizer_offload", "training")  # fmt: skip
CHOICES = ("datatype", "attention_type", "activation_recompute", "tensor_par_comm_type", "tensor_par_overlap")
ANSWERS = (
    "proc_mem_tier1_cap_req", "proc_mem_tier2_cap_req", "fw_time", "bw_time", "recompute_time", "optim_step_time",
    "bubble_time", "tp_comm_exposed_time", "recomm_exposed_time", "pp_comm_exposed_time", "dp_comm_exposed_time",
)  # fmt: skip
CALCULON = Schema(
    "calculon", "runs of Calculon with their inputs",
    (text("id", "of the run"), text("system", "of Calculon"), *(whole(f"app_{name}", "of the model") for name in APP),
     *(whole(f"exe_{name}", "of the execution") for name in COUNTS),
     *(whole(f"exe_{name}_par_net", "which network", 1.0, zero=True) for name in ("tensor", "pipeline", "data")),
     *(flag(f"exe_{name}", "of the execution") for name in SWITCHES),
     *(text(f"exe_{name}", "of the execution") for name in CHOICES), number("total_time", "s", "Calculon's answer"),
     *(number(name, "bytes" if name.startswith("proc") else "s", "Calculon's answer", zero=True).if_there()
       for name in ANSWERS)),
    suite="calculon", carried=EVERYTHING,
)  # fmt: skip
MACHINE_KINDS = (BOARD, SERVED, PEAKS, MANIFEST, ENERGIES, SYSTEMS, PRICES, CALCULON)
