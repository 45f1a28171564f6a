"""Tables of collectives and of the exchange of experts."""

import pandas as pd

from .kinds_kernels import GPU, LATENCY, TOP_K
from .schema import Check, Schema, number, text, whole, word

OPERATION = text("collective", "all_reduce, all_gather, reduce_scatter, alltoall, sendrecv; others are set aside")
BYTES = whole("message_bytes", "the full buffer, as nccl-tests counts it", 1e15, "bytes")
MEMBERS = whole("num_gpus", "members of the group")
A_NODE = whole("gpus_per_node", "members on each node")
NODES = whole("num_nodes", "that the group spans")


def _not_all_nodes(rows: pd.DataFrame) -> pd.Series:
    return rows["num_gpus"] != rows["num_nodes"] * rows["gpus_per_node"]


TIMES = Check(
    "num_gpus is num_nodes times gpus_per_node", ("num_gpus", "num_nodes", "gpus_per_node"),
    _not_all_nodes,
)  # fmt: skip
WIDTHS = (
    whole("hidden_size", "width of a token"), whole("topk", "experts a token"), whole("num_experts", "in all"),
    whole("num_tokens", "of each rank"),
)  # fmt: skip

SMS = whole("num_sms", "processors that the library takes", zero=True).or_blank("as many as it usually takes")

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
     whole("ep_size", "ranks"), NODES, *WIDTHS, SMS, LATENCY),
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
    (text("gpu", "the class of device"), text("fabric", "its network"), whole("ep_size", "ranks"), NODES,
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
