"""Plans of serving engines: what the switches of vLLM, SGLang and TensorRT-LLM say of degrees, batches and memory."""

import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...config import available
from ...config.model_names import OPTIONS, hub_name, overrides_of_format, weight_format
from ...core.errors import ConfigError
from ...core.resources import conf_dir
from ...core.untrusted_io import read_text
from .switches import Switches, is_integer

__all__ = ["EnginePlan", "LaunchedModel", "format_overrides", "model_of", "plan_of", "role_of"]


# The model of a launch command: a hub's name, a folder or its `config.json`; formats of weights and cache.


DTYPES = {
    "auto": "",
    "bfloat16": "bf16",
    "bf16": "bf16",
    "half": "fp16",
    "float16": "fp16",
    "fp16": "fp16",
    "float": "fp32",
    "float32": "fp32",
    "fp32": "fp32",
}
IN_CHECKPOINT = re.compile('"(?:quant_method|quant_algo)": *"([A-Za-z0-9_-]+)"')
MODULES = re.compile(r'"(?:num_nextn_predict_layers|(?:num_)?mtp_(?:num_)?(?:hidden_)?(?:layers|modules))": *[1-9]')
"""Modules that predict ahead in a published file (`model.workloads.hub.AHEAD`)."""
FORMATS = re.compile(r"(?m)^formats:.*\n((?:[ ]+.*\n?)*)")


class LaunchedModel(NamedTuple):
    """Overrides that choose a model, whether it has experts, format of its published weights, layers (0: not known).

    published: the model's own file says the format of each class of its weights. ahead: it has modules that predict
    tokens ahead.
    """

    overrides: tuple[str, ...]
    experts: bool
    format: str
    layers: int
    published: bool = False
    ahead: bool = False


def model_of(name: str) -> LaunchedModel:
    """A model by a hub's name, the option of the catalogue, a folder with a `config.json`, or that file.

    Raises:
        ConfigError: none of these, or a model that no workload serves.
    """
    if not name:
        raise ConfigError("--from: the command names no model: 'vllm serve MODEL ...', or --model-path MODEL")
    path = Path(name)
    path = path if name.endswith(".json") else path / "config.json"
    if os.path.isfile(path):  # False of what can be no file: too long, or not printable
        text = read_text(path, "model")
        other = path.parent / "hf_quant_config.json"
        said = IN_CHECKPOINT.search(text) or (
            IN_CHECKPOINT.search(read_text(other, "model")) if other.is_file() else None
        )
        layers = re.search(r'"num_hidden_layers": *([0-9]{1,4})\b', text)
        result = weight_format(said[1].lower()) if said else "bf16"
        return LaunchedModel(
            ("model=hf_config", f"model.path={path}"),
            "experts" in text,
            result or "bf16",
            int(layers[1]) if layers else 0,
            published=True,
            ahead=bool(MODULES.search(text)),
        )
    if name in available("model"):
        return _of_catalogue(name, "bf16")
    try:
        row = hub_name(name)
    except ConfigError as error:
        raise ConfigError(f"--from: {error}") from None
    return _of_catalogue(row.model, row.format)


def _of_catalogue(option: str, published: str) -> LaunchedModel:
    path = conf_dir() / "model" / f"{option}.yaml"
    text = read_text(path, "model") if path.is_file() else ""
    layers = re.search(r"(?m)^layers: *([0-9]{1,4})\b", text)
    formats = FORMATS.search(text)
    formats_named = set(re.findall(r":\s*(\w+)\s*$", formats[1], re.MULTILINE)) if formats else set[str]()
    return LaunchedModel(
        (f"model={option}",),
        "experts:" in text,
        published,
        int(layers[1]) if layers else 0,
        any(one.startswith(published) for one in formats_named),
        "predicts_ahead:" in text,
    )


def format_overrides(switches: Switches, model: LaunchedModel, notes: list[str], workload: str) -> list[str]:
    """Overrides of the workload and its number formats; products are taken to be in the weights' format.

    Args:
        switches: of a server's command.
        model: of that command.
        notes: lines of what was taken; more are added.
        workload: option of the group `workload`, without number formats.
    """
    method = switches.text("quantization").lower()
    dtype = DTYPES.get(switches.text("dtype", default="auto").lower(), "")
    chosen = [f"workload={workload}"]
    cache = _cache(switches, notes)
    overrides = [f"workload.precision.kv_cache={cache}"] if cache else []
    if model.published:
        notes.append(f"the published checkpoint is in {model.format}: so are its weights here")
        return [*chosen, "precision=checkpoint", *overrides]
    weights = weight_format(method)
    if not weights and model.format not in ("bf16", ""):
        weights = model.format
        notes.append(f"the published checkpoint is in {weights}: so are its weights here")
    elif not weights and method not in ("", "none", "auto"):
        notes.append(f"--quantization {method} says no format that is known: weights are priced in two bytes")
    if weights in OPTIONS:
        said = overrides_of_format(weights, experts=model.experts and not method)
        defaults = [text for text in said if not overrides or not text.startswith("workload.precision.kv_cache")]
        return [*chosen, defaults[0], *overrides, *defaults[1:]]
    if dtype in ("fp16", "fp32"):
        return [*chosen, *(f"workload.precision.{tensor}={dtype}" for tensor in ("compute", "weights")), *overrides]
    return [*chosen, *overrides]


def _cache(switches: Switches, notes: list[str]) -> str:
    """Format of keys and values; empty where they are in two bytes."""
    text = switches.text("kv-cache-dtype").lower()
    if not text:
        text = str(switches.mapping("kv-cache-config").get("dtype", "")).lower()  # TensorRT-LLM
    if text in ("", "auto", "bf16", "bfloat16", "fp16", "float16", "half"):
        return ""
    if text.startswith(("fp8", "mxfp8")) and "mla" not in text:
        return "fp8"
    if text.startswith("fp8"):
        return "fp8"
    if text.startswith("int8"):
        return "int8"
    if "fp4" in text:
        return "fp4"
    notes.append(f"{switches.shown('kv-cache-dtype')} {text}: keys and values are priced in two bytes")
    return ""


ROLES = {
    "kv_producer": "prefill",
    "kv_consumer": "decode",
    "prefill": "prefill",
    "decode": "decode",
    "context": "prefill",
    "generation": "decode",
    "ctx": "prefill",
    "gen": "decode",
}
ACCEPTANCE = {"mtp": 0.85, "eagle": 0.7, "ngram": 0.3, "suffix": 0.3, "draft": 0.7, "medusa": 0.6, "dflash": 0.75}
"""Share of drafted tokens, one after another, that the model takes over.

Assumed, but for `mtp`: DeepSeek-V3's report has 0.85 to 0.90 for its first drafted token.
"""
DRAFTED_LAYERS = {"mtp": 1.0, "eagle": 1.0, "medusa": 0.2, "ngram": 0.0, "suffix": 0.0, "dflash": 0.3}
DRAFT_SHARE = 0.08  # of a step, a token of a draft model with a twelfth of the layers' work
MOST_DRAFTED = 63


@dataclass
class EnginePlan:
    """One engine as the plan's fields, by role; `devices` of one engine.

    plan: of `tp`, `pp`, `cp`, `ep`, `attention_dp`, `micro_batch`, `token_budget`. work: fields of the workload.
    utilisation: share of the memory that the engine takes, 0 where nothing is said.
    """

    devices: int
    plan: dict[str, int]
    work: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])
    longest: int = 0
    utilisation: float = 0.0
    offload_gib: float = 0.0


def plan_of(switches: Switches, model: LaunchedModel) -> EnginePlan:
    """The plan of a server's command.

    Raises:
        ConfigError: a number that is none, or degrees that do not fit each other.
    """
    readers = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}
    plan = readers[switches.engine](switches, model)
    _speculation(switches, model, plan)
    _memory(switches, plan)
    return plan


def role_of(switches: Switches) -> str:
    """`prefill`, `decode`, or nothing where an engine does both."""
    transfer = switches.mapping("kv-transfer-config")
    said = str(transfer.get("kv_role", "")) or switches.text("disaggregation-mode", "server-role").lower()
    return ROLES.get(said, "")


def _vllm(switches: Switches, model: LaunchedModel) -> EnginePlan:
    """Fields of the plan; see `export_serving` for what they are there."""
    tp, pp = switches.number("tensor-parallel-size"), switches.number("pipeline-parallel-size")
    cp, ranks = switches.number("prefill-context-parallel-size"), switches.number("data-parallel-size")
    local = switches.number("data-parallel-size-local", default=1)
    ranks = max(ranks, local)
    shared = switches.has("enable-expert-parallel") and model.experts
    groups = ranks if model.experts and not shared else 1
    notes: list[str] = []
    plan = {"tp": tp * groups, "pp": pp, "cp": cp, "ep": ranks if shared else 1, "attention_dp": groups}
    plan |= _divided(switches)
    if shared:
        plan |= _expert_plan(tp, tp * ranks, ranks)
    plan |= _sequences(switches, "max-num-seqs", groups, notes)
    longest = _longest(switches, "max-model-len", notes)
    if switches.has("max-num-batched-tokens"):
        decodes = -(-switches.number("max-num-seqs", default=0, low=0) // pp)
        plan["token_budget"] = max(switches.number("max-num-batched-tokens") - decodes, 1)
    if switches.denied("enable-chunked-prefill") and longest:
        plan["token_budget"] = max(plan.get("token_budget", 0), longest)
        notes.append("prompts are not cut into chunks: a step takes the longest whole")
    work = _caching(
        switches, off=switches.denied("enable-prefix-caching"), on=switches.has("enable-prefix-caching"), notes=notes
    )
    if switches.has("async-scheduling"):
        work["async_scheduling"] = "true"
    elif switches.denied("async-scheduling"):
        work["async_scheduling"] = "false"
    if switches.has("block-size") and is_integer(switches.text("block-size")):
        work["block_tokens"] = str(switches.number("block-size"))
    return EnginePlan(tp * pp * cp * ranks, plan, work, notes, longest)


def _expert_plan(tp: int, spread: int, sharing: int) -> dict[str, int]:
    """Expert ranks of engines that count tensor ranks among them: `spread` over `sharing` groups of `tp`."""
    cut = tp * sharing // spread
    return {"ep": sharing} if cut == tp else {"ep": spread, "etp": cut}


def _divided(switches: Switches) -> dict[str, int]:
    """Tensor ranks that divide cached tokens, where there are several."""
    ranks = switches.number("decode-context-parallel-size")
    return {"decode_cp": ranks} if ranks > 1 else {}


def _sglang(switches: Switches, model: LaunchedModel) -> EnginePlan:
    """Fields of the plan; see `export_serving` for what they are there."""
    ranks, pp = switches.number("tensor-parallel-size"), switches.number("pipeline-parallel-size")
    replicas, groups = switches.number("data-parallel-size"), switches.number("attention-data-parallel-size")
    if switches.has("enable-dp-attention") and groups == 1:
        groups, replicas = replicas, 1
    if ranks % groups:
        raise ConfigError(f"--from: {groups} attention groups do not divide {ranks} tensor ranks")
    expert_parallel = switches.number("expert-parallel-size") > 1 or switches.has("enable-ep-moe", "enable-deepep-moe")
    expert_parallel |= switches.text("moe-a2a-backend", default="none") not in (
        "none",
        "",
    )  # those set as many expert as tensor ranks
    full_experts = expert_parallel and model.experts
    spread = switches.number("expert-parallel-size") if switches.number("expert-parallel-size") > 1 else ranks
    if full_experts and ranks % spread:
        raise ConfigError(f"--from: {spread} expert ranks do not divide {ranks} tensor ranks")
    sharing = math.gcd(groups, spread) if full_experts else 1
    plan = {"tp": ranks // sharing, "pp": pp, "ep": sharing, "attention_dp": groups // sharing} | _divided(switches)
    notes: list[str] = []
    if full_experts:
        plan |= _expert_plan(ranks // sharing, spread, sharing)
    if switches.has("max-running-requests"):
        plan["micro_batch"] = max(switches.number("max-running-requests") // sharing, 1)
    else:
        notes.append("--max-running-requests is not said: plan.micro_batch is the default of codesign")
    longest = _longest(switches, "context-length", notes)
    if switches.text("chunked-prefill-size").startswith("-"):
        plan["token_budget"] = longest or 16384  # its --max-prefill-tokens where nothing is said
        notes.append("prompts are not cut into chunks: a step takes the longest whole")
    elif switches.has("chunked-prefill-size"):
        plan["token_budget"] = max(switches.number("chunked-prefill-size") // groups, 1)
    else:
        notes.append("--chunked-prefill-size is not said: plan.token_budget is the default of codesign")
    work = _caching(switches, off=switches.has("disable-radix-cache"), on=False, notes=notes)
    if switches.has("page-size"):
        work["block_tokens"] = str(switches.number("page-size"))
    interval = switches.number("scheduler-recv-interval")
    if interval > 1:  # who comes waits for half of the steps between two looks
        work["admission_steps"] = f"{(interval - 1) / 2:g}"
    return EnginePlan(ranks * pp * replicas, plan, work, notes, longest)


def _trtllm(switches: Switches, model: LaunchedModel) -> EnginePlan:
    """Fields of the plan; see `export_serving` for what they are there."""
    ranks, pp = switches.number("tensor-parallel-size"), switches.number("pipeline-parallel-size")
    cp = switches.number("context-parallel-size")
    experts = switches.number("moe-expert-parallel-size") if model.experts else 1
    if ranks % experts:
        raise ConfigError(f"--from: {experts} expert ranks do not divide {ranks} tensor ranks")
    alone = switches.has("enable-attention-dp")
    groups = ranks if alone else 1
    sharing = experts if alone else 1
    notes: list[str] = []
    plan = {"tp": ranks // sharing, "pp": pp, "cp": cp, "ep": sharing, "attention_dp": groups // sharing}
    plan |= _expert_plan(ranks // sharing, experts, sharing)
    plan |= _sequences(switches, "max-batch-size", groups // sharing, notes)
    longest = _longest(switches, "max-seq-len", notes)
    if switches.has("max-num-tokens"):
        decodes = -(-switches.number("max-batch-size", default=0, low=0) // pp)
        plan["token_budget"] = max(switches.number("max-num-tokens") - decodes, 1)
    else:
        notes.append("--max_num_tokens is not said: plan.token_budget is the default of codesign")
    reuse = switches.mapping("kv-cache-config").get("enable_block_reuse")
    work = _caching(switches, off=reuse is False or switches.has("disable-kv-cache-reuse"), on=False, notes=notes)
    tokens = switches.mapping("kv-cache-config").get("tokens_per_block")
    if isinstance(tokens, int) and 1 <= tokens <= 1e6:
        work["block_tokens"] = str(tokens)
    return EnginePlan(ranks * pp * cp, plan, work, notes, longest)


def _sequences(switches: Switches, option: str, groups: int, notes: list[str]) -> dict[str, int]:
    """Decoded together by a replica, whose groups have so many each."""
    if switches.has(option):
        return {"micro_batch": switches.number(option) * groups}
    notes.append(f"{switches.shown(option)} is not said: plan.micro_batch is the default of codesign")
    return {}


def _longest(switches: Switches, option: str, notes: list[str]) -> int:
    """Tokens of the longest request that is taken; 0 where nothing is said. A bound is no mean."""
    if not switches.has(option) or switches.text(option).lower() in ("auto", "-1"):
        return 0
    notes.append(
        f"{switches.shown(option)} is a bound: workload.input_tokens and output_tokens say what requests are priced"
    )
    return switches.number(option)


def _caching(switches: Switches, *, off: bool, on: bool, notes: list[str]) -> dict[str, str]:
    """Prefixes that are found again are the requests' affair; without a cache there are none."""
    if on:
        notes.append("prefix caching: workload.cached_ratio says what share of a prompt is found again")
    return {"cached_ratio": "0"} if off else {}


def _speculation(switches: Switches, model: LaunchedModel, plan: EnginePlan) -> None:
    """Tokens verified and taken over in a step, by the method that drafts them."""
    method, drafted = _drafting(switches)
    if not drafted:
        return
    drafted = min(drafted, MOST_DRAFTED)
    accepted = sum(ACCEPTANCE[method] ** power for power in range(drafted + 1))
    layers = DRAFTED_LAYERS.get(method, 0.0)
    ratio = drafted * (
        layers / model.layers if method in DRAFTED_LAYERS and model.layers else DRAFT_SHARE * (layers > 0)
    )
    ratio = drafted * DRAFT_SHARE if method == "draft" else ratio
    is_priced = method == "mtp" and model.ahead  # priced as what they are
    plan.work |= {"verified_tokens": str(drafted + 1), "accepted_tokens": f"{accepted:.4g}"}
    plan.work |= {"own_drafts": "true"} if is_priced else {"draft_ratio": f"{ratio:.4g}"}
    plan.notes.append(
        f"speculation ({method}, {drafted} tokens): {accepted:.3g} tokens a step are assumed; say"
        " workload.accepted_tokens as measured"
    )


def _drafting(switches: Switches) -> tuple[str, int]:
    """Method, one of `ACCEPTANCE`, and tokens drafted in a step; 0 where nothing is drafted."""
    config = switches.mapping("speculative-config")
    if switches.engine == "sglang":
        name = switches.text("speculative-algorithm").lower()
        steps = switches.number("speculative-num-steps", default=0, low=0)
        tokens = switches.number("speculative-num-draft-tokens", default=0, low=0)
        drafted = steps or max(tokens - 1, 0)
        default = 3 if name else 0
        return _method(name), (drafted or default if name else 0)
    if switches.engine == "trtllm":
        name = str(config.get("decoding_type", "")).lower()
        tokens = next((config[key] for key in ("num_nextn_predict_layers", "max_draft_len") if key in config), 1)
        return _method(name), _integer(tokens) if name else 0
    model = str(config.get("model", "")) or switches.text("speculative-model", "spec-model")
    name = str(config.get("method", "")) or switches.text("spec-method")
    name = name or ("ngram" if "ngram" in model else _guessed(model)) if config or model or name else ""
    said = config.get("num_speculative_tokens", config.get("num_draft_tokens"))
    tokens = (
        _integer(said)
        if said is not None
        else switches.number("num-speculative-tokens", "spec-tokens", default=0, low=0)
    )
    return _method(name), (tokens or 1 if name else 0)


def _guessed(model: str) -> str:
    return next((name for name in ("eagle", "mtp", "medusa", "dflash") if name in model.lower()), "draft_model")


def _method(name: str) -> str:
    """Kind of drafting that a name means."""
    plain = name.lower()
    if re.search("mtp|nextn|deepseek", plain):
        return "mtp"
    return next((kind for kind in ("eagle", "ngram", "suffix", "medusa", "dflash") if kind in plain), "draft")


def _integer(value: Any) -> int:
    """A number of tokens.

    Raises:
        ConfigError: none.
    """
    if isinstance(value, str) and is_integer(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1000:
        raise ConfigError(f"--from: {value!r} is no number of tokens that are drafted in a step: 0 to 1000")
    return value


SHARES = (
    *("gpu-memory-utilization", "device-memory-utilization", "mem-fraction-static"),
    *("kv-cache-free-gpu-memory-fraction", "kv-cache-free-gpu-mem-fraction", "free-gpu-memory-fraction"),
)
"""Options of the share of a device's memory that an engine takes, of all engines."""


def _share_of_cache(switches: Switches) -> float:
    """The share in TensorRT-LLM's settings of its cache; 0 where nothing is said."""
    said = switches.mapping("kv-cache-config").get("free_gpu_memory_fraction", 0.0)
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 <= said <= 1:
        raise ConfigError(f"--from: kv_cache_config: free_gpu_memory_fraction {said!r} is no number from 0 to 1")
    return float(said)


def _memory(switches: Switches, plan: EnginePlan) -> None:
    """Share of the memory that the engine takes, and weights that it leaves in the host's."""
    plan.utilisation = switches.share(*SHARES) or _share_of_cache(switches)
    text = switches.text("cpu-offload-gb")
    if text:
        try:
            plan.offload_gib = float(text)
        except ValueError:
            plan.offload_gib = -1.0
        if not 0 <= plan.offload_gib < 1e6:
            raise ConfigError(f"--from: {switches.shown('cpu-offload-gb')} {text!r} is no number of GiB from 0 to 1e6")
