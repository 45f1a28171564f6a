"""`codesign export --to trtllm`: one `trtllm-serve` for each kind of engine, with a file of what has no switch.

Not checked against a package: none with the parser was to be had. Names are those of `tensorrt_llm/commands/serve.py`
and of the fields of `tensorrt_llm/llmapi/llm_args.py` in NVIDIA/TensorRT-LLM at commit 00209af.
"""

from ..core.errors import ConfigError
from .export_bench import benchmark
from .export_command import FILL_IN, Command, checked_text, comments, script
from .export_engines import EngineGroup, about, engines, format_notes, load_notes
from .export_memory import longest_request
from .export_plan import SERVED, Deployment

CACHE = {"bf16": "auto", "fp16": "auto", "fp8": "fp8", "fp4": "nvfp4"}


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
        commands.append(_command(found, group, name))
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


def _command(found: Deployment, group: EngineGroup, options: str) -> Command:
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
    if cache in CACHE:
        lines += ["kv_cache_config:", f"  dtype: {CACHE[cache]}"]
    return comments([checked_text("trtllm")]) + "\n".join(lines) + "\n"
