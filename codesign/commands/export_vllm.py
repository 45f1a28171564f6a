"""`codesign export --to vllm`: one `vllm serve` for each kind of engine."""

import math

from ..core.errors import ConfigError
from .export_bench import benchmark
from .export_command import FILL_IN, Command, script
from .export_engines import EngineGroup, about, engines, format_notes, load_notes, spilled_gib
from .export_memory import add_memory, longest_request
from .export_plan import SERVED, Deployment

WEIGHTS = {"fp8": "fp8", "int8": "int8_per_channel_weight_only", "fp4": "nvfp4_per_token"}
CACHE = {"bf16": "auto", "fp16": "auto", "fp8": "fp8"}
PLAIN = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
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
    return [_command(found, group) for group in engines(found)]


def _command(found: Deployment, group: EngineGroup) -> Command:
    command = Command(["vllm", "serve", found.hub or f"{FILL_IN}-MODEL"])
    about(found, group, command)
    _degrees(found, group, command)
    command.add("--max-num-seqs", group.of_a_group)
    command.add("--max-num-batched-tokens", max(group.step_tokens, group.of_a_group))
    command.note(
        f"the budget of a step counts decoded tokens too: {group.chunk:,} of prompts and one a sequence; --max-num-seqs"
        " counts prompts under way besides decodes"
    )
    command.add("--max-model-len", longest_request(found, group))
    add_memory(found, group, command, "--gpu-memory-utilization", "vllm_0_21")
    _formats(found, command)
    if spilled_gib(found, group):
        command.add("--cpu-offload-gb", spilled_gib(found, group), "offload_weights")
    if group.role:
        command.add("--kv-transfer-config.kv_connector", CONNECTOR)
        command.add("--kv-transfer-config.kv_role", ROLES[group.role])
        command.note("the connector is one of several: the plan says only that keys and values cross")
    return command


def _degrees(found: Deployment, group: EngineGroup, command: Command) -> None:
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


def _formats(found: Deployment, command: Command) -> None:
    weights, cache = found.format("weights"), found.format("kv_cache")
    if weights in PLAIN:
        command.add("--dtype", PLAIN[weights])
    elif weights in WEIGHTS:
        command.add("--quantization", WEIGHTS[weights])
    format_notes(found, command, switched=weights in WEIGHTS)
    if cache in CACHE:
        command.add("--kv-cache-dtype", CACHE[cache])
    else:
        command.note(f"no switch: cache of keys and values in {cache}")
