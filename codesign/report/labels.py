"""Words, units and colours: what a column is called, how its numbers are written, which colour its parts have.

Colours follow Okabe and Ito where categories are few; where they are many, a hue names the family (arithmetic blue,
communication orange to brown, waiting grey) and lightness the member, so that they survive colour blindness and grey
printing.
"""

import math
from dataclasses import dataclass
from typing import Any

from ..core.interval_text import UNBOUNDED
from ..core.units import HOUR_S, KWH, UNPREFIXED_UNITS, YEAR_S, unit_of
from ..model.workloads.base import OTHERS, FamilyVocabulary

THIN = "\u202f"  # narrow no-break space between a number and its unit
DASH, MINUS, TIMES, HYPHEN = "\u2013", "\u2212", "\u00d7", "\u2011"  # the hyphen does not break a line
OTHER_COLOUR = "#9a9a9a"
COLOURS = (
    "#2f6fb0",
    "#e69f00",
    "#009e73",
    "#8fc1e8",
    "#d55e00",
    "#cc79a7",
    "#12365f",
    "#f6cf74",
)  # of others

PARTS = {  # of the time: name -> (label, colour), in the order of a bar
    "forward": ("forward", "#8fc1e8"),
    "backward": ("backward", "#2f6fb0"),
    "recompute": ("recompute", "#12365f"),
    "prefill": ("prefill", "#8fc1e8"),
    "decode": ("decode", "#2f6fb0"),
    "mixed": ("decode with prompts", "#8fc1e8"),
    "head": ("embedding and head", "#cfe3f4"),
    "optimizer": ("optimizer", "#009e73"),
    "lookup": ("embedding look-up", "#009e73"),
    "update": ("embedding update", "#00543d"),
    "far": ("rows of the second tier", "#cc79a7"),
    "bottom": ("bottom perceptron", "#8fc1e8"),
    "top": ("interaction and top perceptron", "#2f6fb0"),
    "indices": ("indices sent", "#f6cf74"),
    "sums": ("pooled vectors sent", "#e69f00"),
    "tp": ("tensor-parallel comm.", "#e69f00"),
    "cp": ("context-parallel comm.", "#f6cf74"),
    "ep": ("expert-parallel comm.", "#d55e00"),
    "pp": ("pipeline comm.", "#a35200"),
    "dp": ("data-parallel comm.", "#5e2f00"),
    "offload": ("offload", "#cc79a7"),
    "bubble": ("pipeline bubble", "#c4c4c4"),
    "unmatched": ("waiting for the prefill pool", "#999999"),
    "ffn": ("waiting for the FFN pool", "#b6a27f"),
    "overhead": ("framework overhead", "#7d7d7d"),
}
MEMORY_CLASSES = {
    "weights": ("weights", "#2f6fb0"),
    "gradients": ("gradients", "#8fc1e8"),
    "optimizer": ("optimizer state", "#009e73"),
    "activations": ("activations", "#e69f00"),
    "kv_cache": ("KV cache", "#d55e00"),
    "shared_prefixes": ("beginnings of prompts, kept once", "#b8860b"),
    "tables": ("embedding tables", "#009e73"),
    "dense": ("perceptrons", "#2f6fb0"),
    "kept": ("kept for the backward pass", "#e69f00"),
    "working": ("working set", "#c4c4c4"),
    "graphs": ("captured graphs", "#7d7d7d"),
    "reserved": ("context, communication, reserve", "#e3e3e3"),
}
TIERS = {"hbm": "HBM", "ddr": "DDR (second tier)"}
COMPONENTS = {  # of capex and power
    "accelerator": "accelerators",
    "hbm": "HBM",
    "host": "hosts",
    "ddr": "DDR",
    "scale_up": "scale-up network",
    "scale_out": "scale-out network",
    "facility": "facility overhead",
}
KERNELS = {  # class -> (label, colour, marker); the longest matching prefix counts
    "gemm": ("GEMM", "#0072b2", "o"),
    "attention": ("attention", "#e69f00", "s"),
    "moe": ("MoE GEMM", "#d55e00", "D"),
    "elementwise": ("element-wise", "#009e73", "^"),
    "optimizer": ("optimizer", "#cc79a7", "v"),
}
KINDS = {  # of provenance, least sure first; what was chosen for this study last
    "unstated": ("no provenance", "#4d4d4d"),
    "assumed": ("assumed", "#d55e00"),
    "fitted": ("fitted", "#e69f00"),
    "derived": ("derived", "#cc79a7"),
    "measured": ("measured", "#009e73"),
    "published": ("published", "#56b4e9"),
    "datasheet": ("datasheet", "#0072b2"),
    "override": ("set by an override", "#a08a5b"),
    "variable": ("design variable", "#b5bcc4"),
}


@dataclass(frozen=True)
class Metric:
    """Label and unit of a metric. `unit` as in `number`."""

    label: str
    unit: str = ""

    def text(self, value: Any, digits: int = 3) -> str:
        """The value with its unit; what grows without end has none."""
        if value == math.inf:
            return UNBOUNDED
        return number(value, self.unit, digits, zeros=True)


METRICS = {
    "time_s": Metric("Step time", "s"),
    "ttft_s": Metric("Time to first token", "s"),
    "tpot_s": Metric("Time per output token", "s"),
    "e2e_s": Metric("Time of a whole request", "s"),
    "tokens_per_s_per_user": Metric("Tokens per second per user", "count"),
    "requests_per_s": Metric("Requests per second", "count"),
    "concurrency": Metric("Requests under way", "count"),
    "usd_per_million_input_tokens": Metric("Cost per million input tokens", "$"),
    "usd_per_million_output_tokens": Metric("Cost per million output tokens", "$"),
    "tokens_per_s": Metric("Tokens per second", "count"),
    "decode_tokens_per_s": Metric("Decoded tokens per second", "count"),
    "decode_tokens_per_s_per_device": Metric("Decoded tokens per second per decoding accelerator", "count"),
    "tokens_per_s_per_device": Metric("Tokens per second per accelerator", "count"),
    "mfu": Metric("MFU", "%"),
    "energy_j": Metric("Energy", "J"),
    "joules_per_token": Metric("Energy per token", "J"),
    "power_w": Metric("Mean power", "W"),
    "provisioned_power_w": Metric("Provisioned power", "W"),
    "capex_usd": Metric("Capex", "$"),
    "usd_per_million_tokens": Metric("Cost per million tokens", "$"),
    "usage.hbm": Metric("HBM", "%"),
    "usage.ddr": Metric("DDR", "%"),
}


def is_number(value: Any) -> bool:
    """True if there is a finite number to show."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def number(value: Any, unit: str = "", digits: int = 3, *, zeros: bool = False) -> str:
    """A number with its unit as a reader wants it; a dash where there is none.

    Args:
        value: in SI units; a fraction where the unit is `%`.
        unit: `%`, `$`, `count` (a prefix, no unit), none (a plain number), or the name of a unit that takes prefixes.
        digits: significant ones.
        zeros: keep trailing zeros, so that the numbers of a column agree.
    """
    if not is_number(value):
        return DASH
    if unit == "%":
        return f"{100 * value:.{max(digits - 2, 0)}f}{THIN}%"
    if unit == "$":
        return money(value, digits, zeros=zeros)
    if unit == "$/J":
        return f"{money(value * KWH, digits)} per kWh"
    if unit == "W/(B/s)":  # what moves a bit
        return number(value / 8, "J/bit", digits, zeros=zeros)
    if unit.startswith("$/"):  # prices per byte or FLOP read best per giga-unit
        scale, prefix = (1e9, "G") if abs(value) < 1e-3 else (1.0, "")
        return f"{money(value * scale, digits)} per {prefix}{unit[2:]}"
    if unit == "s" and abs(value) >= 2 * HOUR_S:
        return _long_time(value, digits)
    if unit in UNPREFIXED_UNITS:
        return f"{plain(value, digits)}{THIN}{unit}"
    if not unit or (unit == "count" and abs(value) < 1):
        return plain(value, digits)
    factor, prefixed = axis_prefix(abs(float(f"{value:.{digits}g}")), "" if unit == "count" else unit)
    return f"{_significant(value / factor, digits, zeros)}{THIN}{prefixed}".rstrip()


def _long_time(seconds: float, digits: int) -> str:
    for factor, name in ((YEAR_S, "years"), (24 * HOUR_S, "days")):
        if seconds >= 2 * factor:
            return f"{seconds / factor:.{digits}g}{THIN}{name}"
    return f"{seconds / HOUR_S:.{digits}g}{THIN}h"


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, so many digits behind the point; 0 where nothing is left of it."""
    text = f"{value:+.{digits}f}"
    return text.replace("-", MINUS) if float(text) else "0"


def plain(value: float, digits: int = 3) -> str:
    """A number without unit: whole numbers in full with thousands marks, others to so many digits."""
    if float(value).is_integer() and abs(value) < 1e7:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def money(usd: float, digits: int = 3, *, zeros: bool = True) -> str:
    """Dollars: $0.518, $30.7 M; trailing zeros stay, as prices have them, unless they are not wanted."""
    if not math.isfinite(usd):
        return f"${usd}"
    scale, suffix = next(
        (scale, f"{THIN}{word}" if word else "")
        for scale, word, end in ((1.0, "", 1e4), (1e3, "k", 1e3), (1e6, "M", 1e3), (1e9, "bn", math.inf))
        if abs(round(usd / scale, _decimals(usd / scale, digits))) < end  # $999,999 is $1.00 M
    )
    return f"${_significant(usd / scale, digits, zeros)}{suffix}"


def _significant(value: float, digits: int, zeros: bool) -> str:
    """So many significant digits, never an exponent between 1e-4 and 1e5."""
    if value == 0 or not 1e-4 <= abs(value) < 1e5:
        return f"{value:.{digits}g}"
    text = f"{value:,.{_decimals(value, digits)}f}"
    return text if zeros or "." not in text else text.rstrip("0").rstrip(".")


def _decimals(value: float, digits: int) -> int:
    """Digits behind the point that leave so many significant ones once the value is rounded: 2 of 0.9996 in three."""
    rounded = abs(float(f"{value:.{digits}g}"))
    return max(digits - 1 - math.floor(math.log10(rounded)), 0) if rounded else 0


def metric(name: str, words: FamilyVocabulary = OTHERS) -> Metric:
    """Label and unit of a metric, first by the job's family; else its name, with the unit that this carries."""
    if name in words.metrics:
        return Metric(*words.metrics[name])
    result = METRICS.get(name, Metric(name.replace("_", " ").replace(".", " "), unit_of(name)))
    label = result.label.replace("tokens", "output tokens") if sold(name, words) else result.label
    return Metric(counted(label, words.item), result.unit)


def sold(name: str, words: FamilyVocabulary) -> bool:
    """True if a price is of the tokens that come out, as that of serving is."""
    return name == "usd_per_million_tokens" and words.item == "token" and words.job == "serving"


def counted(text: str, item: str) -> str:
    """Words about tokens as words about what the job counts."""
    return text.replace("token", item).replace("Token", item.capitalize())


def variable(name: str) -> str:
    """A hardware variable in words: `scale_up_bandwidth` is `scale-up bandwidth`, `hbm_to_ddr` is `HBM:DDR`."""
    for word, shown in (
        ("scale_up", "scale-up"),
        ("scale_out", "scale-out"),
        ("_to_", ":"),
        ("hbm", "HBM"),
        ("ddr", "DDR"),
    ):
        name = name.replace(word, shown)
    return name.removesuffix("_seconds_per_byte").removesuffix("_bits_per_s").replace("_", " ")


def per_bit(value: float, unit: str) -> str:
    """An energy per byte as optics are quoted: ` (76.1 pJ/bit)`; nothing for other units."""
    return f" ({number(value / 8, 'J/bit')})" if unit == "J/B" else ""


def kernel_class(kernel: str) -> str:
    """The class whose colour a kernel has: `attention_prefill` is `attention`."""
    matches = [name for name in KERNELS if kernel.startswith(name)]
    return max(matches, key=len) if matches else kernel


def component(name: str) -> str:
    """A part of capex or power."""
    return COMPONENTS.get(name, name.replace("_", " "))


def axis_prefix(largest: float, unit: str) -> tuple[float, str]:
    """(factor, unit with prefix) that bring the largest value of an axis to between 1 and 1000."""
    for factor, prefix in _PREFIXES:
        if largest >= factor:
            return factor, prefix + unit
    return (1e-12, "p" + unit) if largest > 0 else (1.0, unit)


_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""),
             (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))  # fmt: skip


# Meaning of each metric, in a line: for `codesign list metrics` and whoever writes a limit.


MEANINGS = {
    "time_s": "time of one training step, or of one batch of requests",
    "ttft_s": "time to first token: from a request's arrival to its first token, at the design's load",
    "tpot_s": "time per output token of a request, after the first",
    "e2e_s": "a whole request, from arrival to its last token",
    "tokens_per_s": "throughput of the cluster: trained tokens, or tokens that come out where requests are served",
    "tokens_per_s_per_user": "what one request sees: 1 / tpot_s",
    "tokens_per_s_per_device": "throughput over the number of accelerators; serving: of output tokens",
    "decode_tokens_per_s": "output tokens per second while decoding",
    "requests_per_s": "requests served per second in steady state",
    "concurrency": "requests in flight",
    "hybrid_step_share": "share of steps that carry prefill tokens as well as decodes",
    "stage_s": "forward and backward of a micro-batch on one of a pipeline's first stages",
    "later_stage_s": "the same on one of its last stages, of the second kind of accelerator, the head included",
    "prefill_utilisation": "share of the prefill token budget in use; below 1, or prompts queue without bound",
    "slot_utilisation": "mean share of an engine's batch slots (plan.micro_batch) in use",
    "queued_share": "share of requests that find all batch slots of an engine taken, and queue",
    "queue_wait_s": "mean queueing delay for a batch slot; part of ttft_s, or with a prefill pool of tpot_s",
    "prefix_hit_rate": "share of prompt tokens that prefix caches hold, in the room that the design leaves them",
    "prefix_hit_rate_hbm": "the part of prefix_hit_rate that the first memory answers",
    "prefix_hit_rate_pool": "the part of prefix_hit_rate that pooled memory answers",
    "prefix_hit_rate_host": "the part of prefix_hit_rate that host memory answers",
    "prefix_hit_rate_store": "the part of prefix_hit_rate that a store over the network answers",
    "prefix_room_tokens_hbm": "tokens that one replica's prefix cache has room for in the first memory",
    "prefix_room_tokens_pool": "tokens of prefixes that those who share a pool have room for in it",
    "prefix_room_tokens_host": "tokens that one replica's prefix cache has room for in host memory",
    "prefix_room_tokens_store": "tokens that a store of prefixes over the network has room for",
    "prefix_fetch_s": "time to bring what a mean prompt finds elsewhere than in the first memory",
    "transfer_utilisation": "utilisation of the link that carries KV caches between two pools",
    "decodes": "sequences decoded at once, over all engines",
    "decode_tokens_per_s_per_device": "decoded tokens/s over the accelerators of attention and of the FFN pool",
    "attention_busy_ratio": "share of a decode step in which attention devices work, where an FFN pool is apart",
    "ffn_busy_ratio": "share of a decode step in which the FFN pool works",
    "ffn_link_busy_ratio": "share of a decode step in which activations cross to or from the FFN pool",
    "prefill_pool_utilisation": "share of the time that the prefill pool computes",
    "decode_pool_utilisation": "share of the time that the decode pool computes",
    "slo_prefill_utilisation": "prefill load over what an engine sustains; up to 1 the queue is stable",
    "slo_slot_utilisation": "batch slots needed over those of an engine; up to 1 the queue is stable",
    "slo_ttft_ratio": "time to first token at the percentile of the SLO, over its limit; met up to 1",
    "slo_tpot_ratio": "time per output token at the percentile of the SLO, over its limit; met up to 1",
    "rollout_s": "rollouts of one step of RL post-training; asynchronous: until enough responses are complete",
    "training_s": "log-probabilities and updates of one step of RL post-training",
    "scoring_s": "log-probabilities of one step, of old policy, reference and reward model; part of training_s",
    "weight_sync_s": "new weights on their way to the rollout engines, once a step",
    "switch_s": "state swapped out and in between rollouts and training on shared devices, once a step",
    "rollout_utilisation": "share of the time that rollout devices generate",
    "trainer_utilisation": "share of the time that the trainer's devices score and update",
    "responses_per_s": "responses generated and trained on per second",
    "mean_response_tokens": "mean length of a response, those at the maximum cut",
    "rollout_memory_bytes": "memory of a rollout device at its fullest moment",
    "trainer_memory_bytes": "memory of a trainer's device at its peak",
    "samples_per_s": "samples per second of a recommendation model",
    "lookups_per_s": "rows of embedding tables read per second",
    "embedding_s": "time of one batch in its embedding tables",
    "hit_ratio": "share of rows that the first memory tier answers",
    "dropped_token_ratio": "share of the token copies that experts at their capacity do not take",
    "padded_token_ratio": "share of the experts' work that is padding up to their capacity",
    "mfu": "model FLOP/s over the accelerators' dense peak of the number format",
    "arithmetic_intensity": "FLOPs of all kernels over the bytes that they move to and from the accelerator's memory",
    "collective_s": "mean time of the longest single collective or send, waits for others' bursts with it",
    "collective_p99_s": "the same, of the slowest of a hundred",
    "communication_share": "share of the time of a step or batch that communication takes, as far as nothing hides it",
    "energy_j": "energy of one step or batch, facility's overhead included",
    "joules_per_token": "energy per token, the facility's overhead included",
    "power_w": "mean power, the facility's overhead included",
    "provisioned_power_w": "power that must be there: every part at its most, the facility's overhead included",
    "capex_usd": "price of accelerators, memory, hosts, networks, and of the facility per provisioned watt",
    "usd_per_million_tokens": "capex written off over its life in use, and energy; serving: per million output tokens",
    "usd_per_million_input_tokens": "the same, the share that prompts take, per million input tokens",
    "usd_per_million_output_tokens": "the same, the share that answers take, per million output tokens",
    "log_perplexity_penalty": "what rounded sums add to the logarithm of perplexity",
    "overload_probability": "probability, over the model's errors, that the engines are overloaded",
    "acceptance": "share of the accelerators asked for that tenants of a shared rack get",
    "goodput": "productive share of the time: without failures, repeated work and checkpoints",
    "availability": "share of the time that replicas serve, failures taken off",
    "failures_per_day": "failures of the whole cluster that stop the job, per day",
    "checkpoint_s": "time to write one checkpoint",
    "checkpoint_interval_s": "work between two checkpoints, as long as is best",
    "time_to_train_s": "duration of the whole run, failures and checkpoints included",
    "energy_to_train_j": "energy of the whole run, failures and the facility's overhead included",
    "usd_to_train": "cost of the whole run: capex written off over its duration, and energy",
    "run_tokens": "tokens trained on, in all",
    "run_flops": "model FLOPs of the whole run",
    "parameters": "parameters of the model",
    "active_parameters": "parameters that one token uses",
    "loss": "loss that the model reaches, by a scaling law, in nats per token",
    "loss_reducible": "part of the loss that a larger model or more data would take off",
    "loss_beyond": "factor by which model or data lie outside the range that the scaling law was fitted on",
    "carbon_kg": "carbon of one step or batch: operation, and manufacture over its life in use",
    "carbon_made_kg": "carbon of making the whole cluster",
    "carbon_g_per_million_tokens": "carbon per million tokens, operation and manufacture",
    "carbon_to_train_kg": "carbon of the whole run",
    "usage": "used share of a memory or of what bounds a network; feasible up to 1",
    "violations": "how far a rule of the plan is broken; 0 where it is kept",
    "memory_bytes": "bytes per device",
    "breakdown_s": "part of the time of a step or batch, as far as nothing hides it",
    "count": "parts of a network that the devices need",
    "capex": "part of the price",
    "power": "part of the provisioned power, before the facility",
}


def meaning(name: str) -> str:
    """Meaning of a metric or of a part of a metric group; empty for an unknown one."""
    if name in MEANINGS:
        return MEANINGS[name]
    group, _, part = name.partition(".")
    if part and group in MEANINGS:
        return f"{_part(group, part)}: {MEANINGS[group]}"
    base = name.removesuffix("_low").removesuffix("_high")
    return f"end of the interval of {base}" if base != name and base in MEANINGS else ""


def _part(group: str, part: str) -> str:
    """A part of a group in words: `tensor-parallel comm.` of the time, `KV cache in HBM` of the memory."""
    first, _, rest = part.partition("/" if group == "memory_bytes" else ".")
    if group == "memory_bytes":
        memory_class = MEMORY_CLASSES[rest][0] if rest in MEMORY_CLASSES else rest.replace("_", " ")
        return f"{memory_class} in {TIERS.get(first, first)}"
    if group == "usage":
        return TIERS.get(first, first.replace("_", " ")) + (f", {rest.replace('_', ' ')}" if rest else "")
    if group == "breakdown_s" and part in PARTS:
        return PARTS[part][0]
    return component(part) if group in ("capex", "power") else part.replace("_", " ").replace(".", ": ")
