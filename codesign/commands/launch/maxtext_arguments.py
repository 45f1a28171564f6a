"""Plans of MaxText: `python -m MaxText.train CONFIG key=value ...`, its meshes and rematerialisation."""

import math
import re
from collections.abc import Mapping
from typing import Any

from ...config import available
from ...config.model_names import model_option
from ...core.errors import ConfigError, suggestion
from ...model.workloads.recomputation import TENSORS, Networks, custom_policy, plan_of_policy
from .shell import EngineProgram
from .switches import model_file

__all__ = ["catalogue_model", "maxtext_overrides", "starts_maxtext"]

PROGRAM = re.compile(r"(?i)(^|[./])maxtext[./](trainers[./]pre_train[./])?train(\.py)?$")
ASSIGNED = re.compile(r"([A-Za-z_][\w.]*)=(.*)")
AXES = (
    "data", "fsdp", "fsdp_transpose", "sequence", "context", "tensor", "tensor_sequence", "expert", "pipeline",
    "tensor_transpose", "autoregressive", "context_autoregressive", "context_usp_ulysses", "diloco",
)  # fmt: skip
QUANTISED = ("fp8", "int8")
SHARDED = ("fsdp", "fsdp_transpose", "sequence")  # whose members hold parts of parameters and own samples or tokens
TENSOR = ("tensor", "tensor_transpose", "tensor_sequence")
QUIET = re.compile(
    r"run_name|base_output_directory|dataset_\w+|steps|enable_\w*checkpoint\w*|tokenizer_\w+|profiler|\w*profil\w*|"
    r"skip_\w+|hf_\w+|log_\w*|gcs_\w+|upload_\w+|xprof_\w+|async_checkpointing|reuse_example_batch|use_vertex_\w+|"
    r"vertex_\w+|metrics_file|checkpoint_\w+|learning_rate\w*|warmup_\w+|attention|sa_\w+|hardware|compile_\w+"
)
"""Keys without a part in time or memory here, or of kernels that are priced as measured."""
MODELS = {"deepseek3-671b": "deepseek_v3", "llama3-8b": "llama31_8b", "llama3-70b": "llama31_70b"}
"""Models of MaxText -> options whose names differ."""
HOST = {"optimizer": "optimizer_memory_host_offload", "weights": "parameter_memory_host_offload"}
"""Class of data -> the key that keeps it in the host's memory."""
LARGEST = 10**9


def starts_maxtext(one: EngineProgram) -> bool:
    """True if a command starts MaxText's training."""
    return _script_index(one) is not None


def _script_index(one: EngineProgram) -> int | None:
    return next((at for at, word in enumerate(one.words) if PROGRAM.search(word)), None)


def maxtext_overrides(one: EngineProgram, devices: int = 0) -> tuple[list[str], list[str]]:
    """Overrides of a training run, and lines of what was assumed.

    Args:
        one: the command.
        devices: that it runs on, where somebody says; a mesh of -1 takes what the others leave of them.

    Raises:
        ConfigError: a number that is none, a model or policy that does not exist, meshes that leave sizes open.
    """
    said: dict[str, str] = {}
    for word in one.words[(_script_index(one) or 0) + 1 :]:
        if result := ASSIGNED.fullmatch(word):
            said[result[1]] = result[2].strip("'\"")
    notes: list[str] = []
    meshes, model = _meshes(said, devices), _model(said)
    exchanged = meshes["context_usp_ulysses"]
    tp, cp = math.prod(meshes[axis] for axis in TENSOR), meshes["context"] * exchanged
    pp, ep, sharded = meshes["pipeline"], meshes["expert"], math.prod(meshes[axis] for axis in SHARDED)
    count = math.prod(meshes.values())
    each = float(said.get("per_device_batch_size", "12"))  # MaxText's own where nothing is said
    accumulated = _integer(said, "gradient_accumulation_steps", 1)
    batch, micro = each * count, each * tp * cp
    if micro != int(micro) or not 1 <= micro < LARGEST:
        raise ConfigError(f"--from: per_device_batch_size={each:g} is no whole batch of {tp * cp:,} devices together")
    plan = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "virtual_stages": 1, "micro_batch": int(micro)}
    if pp > 1:
        pieces = _integer(said, "num_pipeline_microbatches", pp)
        plan["micro_batch"] = max(int(micro * pp) // pieces, 1)
        plan["virtual_stages"] = _integer(said, "num_pipeline_repeats", 1)
    shared = said.get("shard_optimizer_over_data", "false").lower() == "true"
    plan |= {"zero": 3 if sharded * ep > 1 else int(shared), "sequence_parallel": int(tp > 1)}
    if cp > 1 and said.get("context_parallel_strategy") in ("ulysses", "usp"):
        plan["ulysses"] = cp if said["context_parallel_strategy"] == "ulysses" else exchanged
    if (pieces := _integer(said, "num_vocab_tiling", 1)) > 1:
        plan["loss_chunks"] = pieces
    plan |= {f"offload_{name}": 1 for name, key in HOST.items() if said.get(key, "false").lower() == "true"}
    fields = {**{key: str(value) for key, value in plan.items()}, **_remat(said, _networks(model))}
    if ep > 1 and tp > 1:
        fields["etp"] = str(tp)
    if said.get("context_parallel_load_balance", "true").lower() == "false" and cp > 1:
        fields["cp_order"] = "contiguous"
    overrides = [f"model={model}", "workload=training", "framework=maxtext"]
    overrides += [f"workload.sequence={_integer(said, 'max_target_length', 2048)}"]
    overrides += [f"workload.global_batch={int(batch * accumulated)}", f"cluster.device_count={count}"]
    if said.get("opt_type") == "muon":
        overrides.append("optimizer=muon")
    for name in QUANTISED:
        if name in said.get("quantization", ""):
            overrides.append(f"workload.precision.compute={name}")
            break
    if "capacity_factor" in said and float(_number(said, "capacity_factor")) > 0:
        overrides += [f"workload.expert_load.capacity_factor={said['capacity_factor']}"]
        overrides += ["workload.expert_load.padded=true"]  # of products over a whole capacity
    left = [key for key in said if not (key in READ or key.startswith(("ici_", "dcn_")) or QUIET.fullmatch(key))]
    if left:
        more = f" and {len(left) - 6} more" if len(left) > 6 else ""
        notes.append(f"not modelled: {', '.join(f'{key}={said[key][:40]}' for key in left[:6])}{more}")
    return [*overrides, *(f"plan.{key}={value}" for key, value in fields.items())], notes


READ = {
    "model_name", "per_device_batch_size", "max_target_length", "gradient_accumulation_steps", "remat_policy",
    "num_pipeline_microbatches", "num_pipeline_repeats", "context_parallel_load_balance", "capacity_factor", *TENSORS,
    "context_parallel_strategy", "num_vocab_tiling", "shard_optimizer_over_data", "opt_type", "quantization",
    "optimizer_memory_host_offload", "parameter_memory_host_offload", "num_layers_per_pipeline_stage",
}  # fmt: skip


def _meshes(said: Mapping[str, str], devices: int) -> dict[str, int]:
    """Axis -> members, inside slices and between them.

    Raises:
        ConfigError: -1, which takes what a machine leaves, where nobody says how many devices there are, for two axes,
            or of devices that the others do not divide.
    """
    sizes = {f"{network}_{axis}_parallelism": 1 for network in ("ici", "dcn") for axis in AXES}
    left = [key for key in sizes if said.get(key, "-1" if key == "ici_fsdp_parallelism" else "") == "-1"]
    for key in sizes.keys() - set(left):
        sizes[key] = _integer(said, key, 1)
    if left:
        rest, others = left[0], math.prod(sizes.values())
        if len(left) > 1:
            raise ConfigError(f"--from: {' and '.join(left)} are -1: one of them takes what is left of the devices")
        if not devices:
            raise ConfigError(
                f"--from: {rest}={said.get(rest, '-1 (its default)')} takes what is left of the devices, which the"
                f" command does not count; put cluster.device_count=NUMBER beside it or {rest}=NUMBER into it"
            )
        if devices % others:
            raise ConfigError(f"--from: {rest}=-1: the other meshes, {others:,} devices, do not divide {devices:,}")
        sizes[rest] = devices // others
    return {axis: sizes[f"ici_{axis}_parallelism"] * sizes[f"dcn_{axis}_parallelism"] for axis in AXES}


def _number(said: Mapping[str, str], key: str) -> float:
    try:
        value = float(said[key])
    except ValueError:
        value = math.nan
    if not -LARGEST < value < LARGEST:
        raise ConfigError(f"--from: {key}={said[key]!r} is no number")
    return value


def _integer(said: Mapping[str, str], key: str, default: int) -> int:
    text = said.get(key, str(default))
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise ConfigError(f"--from: {key}={text!r} is no whole number of at least 1")
    return int(text)


def catalogue_model(name: str) -> str:
    """Option of the catalogue for a model of MaxText; empty where it has none."""
    return MODELS.get(name) or model_option(name) or ""


def _model(said: Mapping[str, str]) -> str:
    """Option of the model.

    Raises:
        ConfigError: none is named, or one that the catalogue lacks.
    """
    name = said.get("model_name", "")
    if option := catalogue_model(name):
        return option
    hint = suggestion(name, available("model"))
    raise ConfigError(f"--from: model_name={name!r} is no model of MaxText that is one of the catalogue{hint}")


def _networks(option: str) -> Networks:
    """Feed-forward networks of a model of the catalogue."""
    part: Mapping[str, Any] = model_file(option).get("feed_forward") or {}
    routed = "experts" in part
    return Networks(not routed or bool(part.get("dense_layers")), routed, bool(part.get("shared_experts")))


def _remat(said: Mapping[str, str], networks: Networks) -> dict[str, str]:
    """Level and modules of a policy.

    Raises:
        ConfigError: no such policy, tensor or place.
    """
    policy = said.get("remat_policy", "full")
    try:
        if policy == "custom":
            return custom_policy({key: value for key, value in said.items() if key in TENSORS}, networks)
        return plan_of_policy(policy, networks)
    except ConfigError as error:
        raise ConfigError(f"--from: {error}") from None
