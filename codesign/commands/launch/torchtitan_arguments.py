"""Plans of torchtitan, by its command or its TOML file."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...core.errors import ConfigError, suggestion
from ...core.json_yaml import dumps, is_list, is_mapping
from ...model.workloads.plan import PER_OP
from ..export_training import RECIPES
from .shell import EngineProgram
from .switches import Switches, finished, is_integer, model_file, read_switches, switches_of_mapping, titan_ends

__all__ = ["FileText", "is_settings", "settings_program", "torchtitan_overrides"]

FileText = Callable[[str, EngineProgram], str | None]
SECTION = re.compile(r"(?m)^\[(training|parallelism|model|activation_checkpoint)\][ \t]*$")
FLAVOURS = {
    "8B": "llama31_8b",
    "70B": "llama31_70b",
    "405B": "llama31_405b",
    "671B": "deepseek_v3",
    "scout": "llama4_scout",
    "17bx16e": "llama4_scout",
    "17bx128e": "llama4_maverick",
    "32B": "qwen3_32b",
    "30B-A3B": "qwen3_30b_a3b",
    "235B-A22B": "qwen3_235b_a22b",
    "120b": "gpt_oss_120b",
    "20b": "gpt_oss_20b",
    "14B": "qwen3_14b",
}
"""Flavours of torchtitan -> models of the catalogue."""
TWO_CHUNKS = {"ZBVZeroBubble": "zb_v"}
"""Schedules of torch.distributed.pipelining with two chunks a rank -> those of plans."""
TITAN_LAYERS = "2"  # `selective_ac_option` of releases that have it, where nothing is said
SUPPORTED_SCHEDULES = ("", "1F1B", "Interleaved1F1B", *TWO_CHUNKS)


def is_settings(text: str) -> bool:
    """True if a text is a TOML file of torchtitan."""
    return bool(SECTION.search(text)) and "torchrun" not in text


def settings_program(text: str, what: str) -> EngineProgram:
    """A TOML file of torchtitan as the command that names it.

    Raises:
        ConfigError: no TOML.
    """
    _toml(text, what)
    return EngineProgram(("torchtitan.train", "--job.config_file", "settings.toml"), files={"settings.toml": text})


def torchtitan_overrides(
    one: EngineProgram, words: list[str], devices: int, file_text: FileText
) -> tuple[list[str], list[str]]:
    """Overrides of a training run, and lines of what was assumed.

    Args:
        one: the program, with its environment.
        words: its arguments.
        devices: that its launcher starts, 0 where nothing says it.
        file_text: of a file that it names; None where it cannot be read.

    Raises:
        ConfigError: an option that no release has, a number that is none, degrees that do not fit the devices.
    """
    policy = next((word.partition(":")[2] for word in words if word.startswith("activation-checkpoint:")), "")
    result = _titan_switches(one, [word for word in words if not word.startswith("activation-checkpoint:")], file_text)
    notes: list[str] = []
    option, layers, experts = _titan_model(result)
    section = "parallelism."
    tp, pp = (result.number(f"{section}{kind}-parallel-degree") for kind in ("tensor", "pipeline"))
    cp, ep = (result.number(f"{section}{kind}-parallel-degree") for kind in ("context", "expert"))
    replicate = result.number(f"{section}data-parallel-replicate-degree")
    devices, zero = _titan_sharding(result, devices, tp * pp * cp, replicate, pipelined=pp > 1)
    recomputed = _titan_recompute(result, policy, layers, notes)
    local = result.number("training.local-batch-size", default=8)
    micro = result.number(f"{section}pipeline-parallel-microbatch-size") if pp > 1 else local
    schedule = result.text(f"{section}pipeline-parallel-schedule")
    stages, first, last = _titan_stages(result, schedule, layers, pp, notes)
    sequence = (
        "0"
        if result.denied(f"{section}enable-sequence-parallel") or result.has(f"{section}no-enable-sequence-parallel")
        else "1"
    )
    plan = {
        "tp": str(tp),
        "pp": str(pp),
        "cp": str(cp),
        "ep": str(ep if experts else 1),
        "virtual_stages": str(stages),
        "micro_batch": str(micro),
        "zero": str(zero),
        "sequence_parallel": sequence if tp > 1 else "0",
        **recomputed,
    }
    expert_tp = result.number(f"{section}expert-tensor-parallel-degree")
    if experts and ep > 1 and expert_tp != tp:
        plan["etp"] = str(expert_tp)  # expert ranks take in the tensor ranks
    plan |= {f"{end}_stage_less": f"{less}" for end, less in (("first", first), ("last", last)) if less}
    if schedule in TWO_CHUNKS and pp > 1:
        plan["schedule"] = TWO_CHUNKS[schedule]
    if result.has("training.enable-cpu-offload"):
        plan |= dict.fromkeys(("offload_weights", "offload_gradients", "offload_optimizer"), "1")
    replicas = max((devices or tp * pp * cp) // (tp * pp * cp), 1)
    overrides = [f"model={option}", *_titan_workload(result, local * replicas)]
    return finished(overrides, plan, devices, tp * pp * cp, result, notes)


def _titan_sharding(result: Switches, devices: int, each: int, replicate: int, *, pipelined: bool) -> tuple[int, int]:
    """Devices of the job, 0 where nothing says them, and the ZeRO stage that its sharding amounts to.

    Args:
        result: the options.
        devices: that the launcher starts, 0 where nothing says it.
        each: devices of a replica.
        replicate: replicas that shard nothing among them.
        pipelined: True if a replica has several stages.
    """
    name = "parallelism.data-parallel-shard-degree"
    shard = result.text(name, default="-1")
    if shard != "-1":
        devices = devices or each * replicate * result.number(name)
    shards = shard != "1" and (not devices or devices // max(each, 1) > replicate)
    again = result.text("parallelism.fsdp-reshard-after-forward", default="default")
    return devices, (3 if again == "always" or (again == "default" and not pipelined) else 2) if shards else 0


def _titan_workload(result: Switches, batch: int) -> list[str]:
    """Overrides of the workload: format, sequence, and the global batch, `batch` where none is stated."""
    overrides = ["workload=training"]
    if re.search("(?i)float8|mx", result.text("model.converters") + result.text("quantize.linear")):
        overrides.append("workload.precision.compute=fp8")
    if result.text("training.global-batch-size", default="-1") != "-1":
        batch = result.number("training.global-batch-size")
    sequence = result.number("training.seq-len", default=2048)
    return [*overrides, f"workload.sequence={sequence}", f"workload.global_batch={batch}"]


def _titan_switches(one: EngineProgram, words: list[str], file_text: FileText) -> Switches:
    """Switches of the command, and below them those of the file that it names.

    Raises:
        ConfigError: there is no such file.
    """
    result = read_switches("torchtitan", words)
    name = result.text("job.config-file") or one.env.get("CONFIG_FILE", "")
    if not name:
        return result
    text = file_text(name, one)
    if text is None:
        raise ConfigError(f"--from: {name!r} cannot be read: No such file or directory")
    file = switches_of_mapping("torchtitan", dict(_flat(_toml(text, f"--from: {name!r}"))))
    return Switches("torchtitan", file.given | result.given, file.written | result.written)


def _titan_stages(switches: Switches, schedule: str, layers: int, pp: int, notes: list[str]) -> tuple[int, int, int]:
    """Stages of a device, and layers that the first and the last stage have less than others."""
    stages = 1
    first, last = titan_ends(switches, layers, pp)
    if pp > 1 and ("nterleaved" in schedule or schedule in TWO_CHUNKS):
        each = switches.number("parallelism.pipeline-parallel-layers-per-stage", default=0, low=0)
        stages = max((layers + first + last) // (pp * each), 1) if each and layers else 2
    if (layers + first + last) % (pp * stages):
        notes.append(f"{layers} layers with {first + last} for embedding and head: stages differ by a layer there")
        first = last = 0
    if schedule in TWO_CHUNKS and pp > 1:
        stages = 2
        if first + last:
            notes.append(f"{schedule} is modelled with stages of equal length, without places for embedding and head")
            first = last = 0
    if pp * stages == 2:  # both ends take as much from the only two: these are of equal length
        first, last = first - min(first, last), last - min(first, last)
    if pp > 1 and schedule not in SUPPORTED_SCHEDULES:
        notes.append(f"{schedule} is priced as 1F1B")
    return stages, first, last


def _titan_recompute(switches: Switches, policy: str, layers: int, notes: list[str]) -> dict[str, str]:
    """Fields of a plan for a policy: `selective` per operation, or of every so many layers the whole one.

    Raises:
        ConfigError: an option of it that is no number.
    """
    mode = policy or switches.text("activation-checkpoint.mode", default="selective")
    if mode in ("none", "full"):
        return {"recompute": mode}
    option = switches.text("activation-checkpoint.selective-ac-option")
    every = option or ("op" if policy or switches.has("module") else TITAN_LAYERS)
    if mode == "selective" and every != "op":
        if not is_integer(every):
            raise ConfigError(
                f"--from: activation_checkpoint.selective_ac_option = {every!r} is neither op nor a number"
            )
        if int(every) <= 1:
            return {"recompute": "full"}
        if not option:
            notes.append(f"selective_ac_option={every} (its default) runs each {every}. layer again whole")
        return {"recompute": "full", "recompute_share": f"{(layers // int(every)) / max(layers, 1):.12g}"}
    if mode != "selective":
        notes.append(f"activation checkpointing {mode} is priced as the attention core of every layer")
        return {"recompute": "selective"}
    return {"recompute": "none", "recompute_modules": PER_OP}


def _titan_model(switches: Switches) -> tuple[str, int, bool]:
    """Option, layers and whether it has experts.

    Raises:
        ConfigError: no configuration of torchtitan that is a model of the catalogue.
    """
    recipes = {config: option for option, (_, config) in RECIPES.items()}
    name, flavour = switches.text("config"), switches.text("model.flavor")
    option = recipes.get(name, "") or FLAVOURS.get(flavour, "")
    family = switches.text("model.name", "module")
    if option and flavour == "32B" and family and not family.startswith("qwen"):
        option = ""
    if not option:
        said = name or f"{family} {flavour}".strip()
        if not said:
            raise ConfigError(
                "--from: the command names no model: --model.name and --model.flavor, or --module and --config"
            )
        raise ConfigError(
            f"--from: {said!r} is no configuration of torchtitan that is a model of the catalogue"
            f"{suggestion(flavour or name, [*FLAVOURS, *recipes])}"
        )
    tree = model_file(option)
    return option, int(tree.get("layers", 0)), "experts" in (tree.get("feed_forward") or {})


def _toml(text: str, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise ConfigError(f"{what} is no TOML: {str(error).splitlines()[0][:120]}") from error


def _flat(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """`section.key` -> value; a list of words is one word with commas."""
    for section, part in tree.items():
        for key, value in part.items() if is_mapping(part) else ():
            if is_list(value):
                yield f"{section}.{key}", ",".join(map(str, value))
            else:
                yield f"{section}.{key}", dumps(value) if is_mapping(value) else value
