"""`codesign export --to sglang`: one `sglang.launch_server` for each kind of engine."""

import math

from ..core.errors import ConfigError
from .export_bench import benchmark
from .export_command import FILL_IN, Command, script
from .export_engines import EngineGroup, about, engines, format_notes, load_notes, spilled_gib
from .export_memory import add_memory, longest_request
from .export_plan import SERVED, Deployment

WEIGHTS = {"fp8": "fp8", "int8": "w8a8_int8", "fp4": "nvfp4_online"}
CACHE = {"bf16": "bf16", "fp8": "fp8_e4m3", "fp4": "nvfp4"}
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
    commands = [_command(found, group) for group in groups]
    text = script(found, "sglang", commands, load_notes(found, groups))
    return {"sglang.sh": text, **benchmark(found, groups, "sglang")}


def _command(found: Deployment, group: EngineGroup) -> Command:
    command = Command(["python", "-m", "sglang.launch_server"])
    about(found, group, command)
    command.add("--model-path", found.hub or f"{FILL_IN}-MODEL")
    _degrees(found, group, command)
    command.add("--max-running-requests", group.sequences * group.sharing)
    command.add("--chunked-prefill-size", group.chunk * group.ranks)
    if group.ranks > 1:
        command.note(f"both budgets are of the whole engine: SGLang divides them by its {group.ranks} attention groups")
    if not group.role:
        command.add("--enable-mixed-chunk")
        command.note("prompts ride with decodes in one step, as the model has it: --enable-mixed-chunk")
    command.add("--context-length", longest_request(found, group))
    add_memory(found, group, command, "--mem-fraction-static", "sglang")
    _formats(found, command)
    if spilled_gib(found, group):
        command.add("--cpu-offload-gb", spilled_gib(found, group), "offload_weights")
    if group.role:
        command.add("--disaggregation-mode", group.role)
        command.add("--disaggregation-transfer-backend", TRANSFER)
        command.note("the backend of transfers is one of several: the plan says only that keys and values cross")
    return command


def _degrees(found: Deployment, group: EngineGroup, command: Command) -> None:
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
