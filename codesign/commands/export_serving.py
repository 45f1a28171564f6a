"""`codesign export --to vllm`, `sglang` or `trtllm`: the command of each kind of serving engine of a design."""

import math
from collections.abc import Mapping

from ..core.errors import ConfigError
from .export_command import FILL_IN, Command, checked_text, comments, script
from .export_engines import (
    EngineGroup,
    about,
    add_memory,
    benchmark,
    engines,
    format_notes,
    load_notes,
    longest_request,
    spilled_gib,
)
from .export_plan import SERVED, Deployment

# `codesign export --to sglang`: one `sglang.launch_server` for each kind of engine.


SGLANG_WEIGHTS = {"fp8": "fp8", "int8": "w8a8_int8", "fp4": "nvfp4_online"}

SGLANG_CACHE = {"bf16": "bf16", "fp8": "fp8_e4m3", "fp4": "nvfp4"}

PLAIN = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
TRANSFER = "mooncake"


def sglang(found: Deployment) -> dict[str, str]:
    """A script with the commands.

    Raises:
        ConfigError: SGLang cannot run the plan.
    """
    found.refuse_unless(SERVED, "sglang")
    if found.of("cp") > 1:
        raise ConfigError(
            f"export: cp = {found.of('cp')}: SGLang carves context parallelism out of its tensor ranks, the plan adds"
            " devices to them; --to vllm has --prefill-context-parallel-size"
        )
    groups = engines(found)
    commands = [_sglang_command(found, group) for group in groups]
    text = script(found, "sglang", commands, load_notes(found, groups))
    return {"sglang.sh": text, **benchmark(found, groups, "sglang")}


def _sglang_command(found: Deployment, group: EngineGroup) -> Command:
    command = Command(["python", "-m", "sglang.launch_server"])
    about(found, group, command)
    command.add("--model-path", found.hub or f"{FILL_IN}-MODEL")
    _sglang_degrees(found, group, command)
    command.add("--max-running-requests", group.sequences * group.sharing)
    command.add("--chunked-prefill-size", group.chunk * group.ranks)
    if group.ranks > 1:
        command.note(f"both budgets are of the whole engine: SGLang divides them by its {group.ranks} attention groups")
    if not group.role:
        command.add("--enable-mixed-chunk")
        command.note("prompts ride with decodes in one step, as the model has it: --enable-mixed-chunk")
    command.add("--context-length", longest_request(found, group))
    add_memory(found, group, command, "--mem-fraction-static", "sglang")
    _formats(found, command, SGLANG_WEIGHTS, SGLANG_CACHE)
    if spilled_gib(found, group):
        command.add("--cpu-offload-gb", spilled_gib(found, group), "offload_weights")
    if group.role:
        command.add("--disaggregation-mode", group.role)
        command.add("--disaggregation-transfer-backend", TRANSFER)
        command.note("the backend of transfers is one of several: the plan says only that keys and values cross")
    return command


def _sglang_degrees(found: Deployment, group: EngineGroup, command: Command) -> None:
    ranks = group.tp * group.sharing
    command.add("--tp-size", ranks)
    command.add("--pp-size", group.pp)
    if group.ranks > 1:
        command.add("--attn-dp-size", group.ranks)
    if group.divided > 1:
        command.add("--decode-context-parallel-size", group.divided, "decode_cp")
    if group.sharing > 1:
        command.add("--ep-size", ranks)
        command.note(
            f"{group.sharing} replicas that share experts are one engine of {ranks} tensor ranks, each with whole"
            f" experts; the model has every expert and the dense layers cut over tp = {group.tp}"
        )
    if group.devices > found.domain:
        nodes = math.ceil(group.devices / found.domain)
        command.note(f"on {nodes} nodes: add --nnodes {nodes} --node-rank RANK --dist-init-addr ADDRESS:PORT on each")


def _formats(
    found: Deployment, command: Command, weight_words: Mapping[str, str], cache_words: Mapping[str, str]
) -> None:
    """Switches of the formats of weights and cache, by an engine's words for them."""
    weights, cache = found.format("weights"), found.format("kv_cache")
    if weights in PLAIN:
        command.add("--dtype", PLAIN[weights])
    elif weights in weight_words:
        command.add("--quantization", weight_words[weights])
    format_notes(found, command, switched=weights in weight_words)
    if cache in cache_words:
        command.add("--kv-cache-dtype", cache_words[cache])
    else:
        command.note(f"no switch: cache of keys and values in {cache}")


# `codesign export --to trtllm`: one `trtllm-serve` for each kind of engine, with a file of what has no switch.
#
# Not checked against a package: none with the parser was to be had. Names are those of
# `tensorrt_llm/commands/serve.py` and of the fields of `tensorrt_llm/llmapi/llm_args.py` in NVIDIA/TensorRT-LLM at
# commit 00209af.


TRTLLM_CACHE = {"bf16": "auto", "fp16": "auto", "fp8": "fp8", "fp4": "nvfp4"}


def trtllm(found: Deployment) -> dict[str, str]:
    """A script with the commands, and the file that each reads.

    Raises:
        ConfigError: TensorRT-LLM cannot run the plan.
    """
    found.refuse_unless(SERVED, "trtllm")
    groups, files = engines(found), dict[str, str]()
    commands: list[Command] = []
    for group in groups:
        _refuse_split(group)
        name = f"trtllm_{group.role}.yaml" if group.role else "trtllm.yaml"
        commands.append(_trtllm_command(found, group, name))
        files[name] = _options(found, group)
    return (
        {"trtllm.sh": script(found, "trtllm", commands, load_notes(found, groups))}
        | files
        | benchmark(found, groups, "trtllm")
    )


def _refuse_split(group: EngineGroup) -> None:
    """Attention is either cut over all ranks of an engine or over none."""
    if group.ranks > 1 and group.attention_tp > 1:
        raise ConfigError(
            f"export: TensorRT-LLM cuts attention over all ranks of an engine or over none, the plan over"
            f" {group.attention_tp} of {group.tp * group.sharing}; --to vllm and --to sglang can"
        )


def _trtllm_command(found: Deployment, group: EngineGroup, options: str) -> Command:
    command = Command(["trtllm-serve", found.hub or f"{FILL_IN}-MODEL"])
    about(found, group, command)
    command.add("--tp_size", group.tp * group.sharing)
    command.add("--pp_size", group.pp)
    if group.cp > 1:
        command.add("--cp_size", group.cp)
    if group.sharing > 1:
        command.add("--ep_size", group.sharing)
    command.add("--max_batch_size", group.of_a_group)
    command.add("--max_num_tokens", group.step_tokens)
    command.note("--max_batch_size and --max_num_tokens are taken to be those of one rank that attends alone")
    command.add("--max_seq_len", longest_request(found, group))
    command.add("--enable_chunked_prefill")
    command.add("--config", options)
    if group.role:
        command.add("--server_role", {"prefill": "context", "decode": "generation"}[group.role])
        command.note("--server_role needs a metadata server or a cluster's URI, which the plan does not name")
    if found.format("weights") not in ("bf16", "fp16", "fp32"):
        command.note(f"{found.format('weights')} weights: the checkpoint must be one, there is no switch")
    format_notes(found, command, switched=False)
    return command


def _options(found: Deployment, group: EngineGroup) -> str:
    """Content of the file for `--config`."""
    cache = found.format("kv_cache")
    lines = [f"enable_attention_dp: {str(group.ranks > 1).lower()}"]
    if cache in TRTLLM_CACHE:
        lines += ["kv_cache_config:", f"  dtype: {TRTLLM_CACHE[cache]}"]
    return comments([checked_text("trtllm")]) + "\n".join(lines) + "\n"


# `codesign export --to vllm`: one `vllm serve` for each kind of engine.


VLLM_WEIGHTS = {"fp8": "fp8", "int8": "int8_per_channel_weight_only", "fp4": "nvfp4_per_token"}

VLLM_CACHE = {"bf16": "auto", "fp16": "auto", "fp8": "fp8"}

CONNECTOR = "NixlConnector"
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}


def vllm(found: Deployment) -> dict[str, str]:
    """A script with the commands.

    Raises:
        ConfigError: vLLM cannot run the plan.
    """
    groups, commands = engines(found), vllm_commands(found)
    text = script(found, "vllm", commands, load_notes(found, groups))
    return {"vllm.sh": text, **benchmark(found, groups, "vllm")}


def vllm_commands(found: Deployment, target: str = "vllm") -> list[Command]:
    """One for each kind of engine.

    Raises:
        ConfigError: vLLM cannot run the plan.
    """
    found.refuse_unless(SERVED, target)
    if found.of("attention_dp") > 1 and found.is_dense:
        raise ConfigError(
            f"export: attention_dp = {found.of('attention_dp')} of a model without experts: data-parallel ranks of"
            " vLLM would each hold the whole feed-forward network; --to sglang has --attn-dp-size"
        )
    return [_vllm_command(found, group) for group in engines(found)]


def _vllm_command(found: Deployment, group: EngineGroup) -> Command:
    command = Command(["vllm", "serve", found.hub or f"{FILL_IN}-MODEL"])
    about(found, group, command)
    _vllm_degrees(found, group, command)
    command.add("--max-num-seqs", group.of_a_group)
    command.add("--max-num-batched-tokens", max(group.step_tokens, group.of_a_group))
    command.note(
        f"the budget of a step counts decoded tokens too: {group.chunk:,} of prompts and one a sequence; --max-num-seqs"
        " counts prompts under way besides decodes"
    )
    command.add("--max-model-len", longest_request(found, group))
    add_memory(found, group, command, "--gpu-memory-utilization", "vllm_0_21")
    _formats(found, command, VLLM_WEIGHTS, VLLM_CACHE)
    if spilled_gib(found, group):
        command.add("--cpu-offload-gb", spilled_gib(found, group), "offload_weights")
    if group.role:
        command.add("--kv-transfer-config.kv_connector", CONNECTOR)
        command.add("--kv-transfer-config.kv_role", ROLES[group.role])
        command.note("the connector is one of several: the plan says only that keys and values cross")
    return command


def _vllm_degrees(found: Deployment, group: EngineGroup, command: Command) -> None:
    command.add("--tensor-parallel-size", group.attention_tp)
    command.add("--pipeline-parallel-size", group.pp)
    if group.divided > 1:
        command.add("--decode-context-parallel-size", group.divided, "decode_cp")
    if group.cp > 1:
        command.add("--prefill-context-parallel-size", group.cp)
        command.note(f"cp = {group.cp}: vLLM shares out prompts like that; caches of decodes it cuts in its own way")
    if group.ranks > 1:
        command.add("--data-parallel-size", group.ranks)
        command.note(
            f"{group.ranks} data-parallel ranks attend sequences of their own and share the experts; --max-num-seqs and"
            " the budget are those of one rank"
        )
    if group.sharing > 1:
        command.add("--enable-expert-parallel")
    if group.sharing > 1 and group.tp > 1:
        command.note(
            f"ep = {group.sharing}: vLLM puts whole experts on each of the {group.ranks * group.attention_tp} ranks;"
            f" the model cut each over tp = {group.tp}: as many bytes, other messages"
        )
    if group.devices > found.domain:
        nodes = math.ceil(group.devices / found.domain)
        command.note(f"on {nodes} nodes: add --nnodes {nodes} --node-rank RANK --master-addr ADDRESS on each")
