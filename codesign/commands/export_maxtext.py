"""`codesign export --to maxtext`: `python -m maxtext.trainers.pre_train.train base.yml key=value ...`."""

import functools
import itertools
import math
from collections.abc import Mapping

from ..core.errors import ConfigError
from ..model.workloads.plan import OFFLOAD_MODULES, RECOMPUTE, RECOMPUTE_MODULES
from ..model.workloads.recomputation import PLACES, REMAT_POLICIES, custom_policy, modules_of, plan_of_policy
from .export_command import FILL_IN, Command, known_options, script
from .export_plan import TRAINED, Deployment, value_text
from .export_training import assumed_overlaps, sequence_of, steps_of
from .launch.maxtext_arguments import catalogue_model

__all__ = ["maxtext"]

PROGRAM = ("python3", "-m", "maxtext.trainers.pre_train.train", "maxtext/configs/base.yml")
NAMED = ("decoder_layer_input", "query_proj", "context", "out_proj", "mlpwi", "mlpwo")
"""Tensors of a policy, those of queries, keys and values under the first."""
TOGETHER = {"query_proj": ("query_proj", "key_proj", "value_proj")}
NEAREST = ("minimal_with_context", "minimal", "full")
"""Level of recomputation -> the policy that comes nearest."""
QUANTISED = {"fp8": "fp8", "int8": "int8"}


def maxtext(found: Deployment) -> dict[str, str]:
    """A script with the command of each host.

    Raises:
        ConfigError: this trains nothing, or by a plan that MaxText cannot run.
    """
    found.refuse_unless(TRAINED, "maxtext")
    command = Command([*PROGRAM])
    _say(command, "run_name", f"{FILL_IN}-RUN")
    name = _names().get(str(found.model.get("name", ""))) if found.hub else None
    _say(command, "model_name", name or f"{FILL_IN}-MODEL")
    if name is None:
        command.note(f"{FILL_IN}: MaxText has no configuration of this model; write one under configs/models")
    command.note("the same command runs on every host of every slice; data, tokenizer and checkpoints are yours to add")
    for part in (_meshes, _batch, _stages, _remat, _memory):
        part(found, command)
    assumed_overlaps(found, command)
    return {"maxtext.sh": script(found, "maxtext", [command])}


@functools.cache
def _names() -> dict[str, str]:
    """Model of our catalogue -> name in MaxText, of several the first."""
    return {catalogue_model(name): name for name in reversed(known_options("maxtext")["model_name"])}


def _say(command: Command, key: str, value: object, *taken: str) -> None:
    """`key=value`."""
    command.add(f"{key}={value}", None, *taken)


def _meshes(found: Deployment, command: Command) -> None:
    """Axes inside a slice (ICI) as far as it reaches, from tensor ranks to data ranks, then between slices (DCN).

    Raises:
        ConfigError: degrees that no meshes of MaxText have.
    """
    of = found.of
    ep, stage, dp = of("ep"), math.ceil(found.plan["zero"]), found.replicas
    if ep > 1 and dp % ep:
        raise ConfigError(f"export: ep = {ep} does not divide the {dp} data ranks, of which MaxText takes expert ranks")
    if ep > 1 and of("etp") not in (0, of("tp")):
        raise ConfigError(f"export: etp = {of('etp')}: MaxText cuts each expert over its tensor ranks, tp = {of('tp')}")
    if ep > 1 and stage < 3:
        raise ConfigError(
            f"export: ep = {ep} with zero = {stage}: MaxText's expert axis shards parameters, as zero = 3"
        )
    exchanged = of("ulysses")
    ring = of("cp") // exchanged
    mixed = exchanged > 1 and ring > 1
    sizes = {
        "tensor": of("tp"),
        "context_usp_ulysses": exchanged if mixed else 1,
        "context": ring if mixed else of("cp"),
        "expert": ep,
        "fsdp": dp // ep if stage >= 2 else 1,
        "data": 1 if stage >= 2 else dp,
        "pipeline": of("pp"),
    }
    left = found.domain
    for axis, size in sizes.items():
        inside = math.gcd(size, left)
        left //= inside
        if inside > 1 or axis == "fsdp":  # -1 where nothing is said
            _say(command, f"ici_{axis}_parallelism", inside)
        if size // inside > 1 or axis == "data":
            _say(command, f"dcn_{axis}_parallelism", size // inside)
    if found.devices > found.domain and left > 1:
        command.note(f"slices of {found.domain // left} devices each: degrees do not divide {found.domain}")
    if stage == 1:
        _say(command, "shard_optimizer_over_data", "true")
    if stage == 2:
        command.note("zero = 2: MaxText's fsdp axis shards parameters with gradients and optimizer states, as zero = 3")
    command.taken.update({"tp", "cp", "ulysses", "ep", "etp", "pp", "zero"})
    if of("cp") > 1:
        strategy = "usp" if mixed else "ulysses" if exchanged > 1 else "ring"
        _say(command, "context_parallel_strategy", strategy)
        zigzag = value_text("cp_order", found.plan["cp_order"]) == "zigzag"
        _say(command, "context_parallel_load_balance", "true" if zigzag else "false", "cp_order")
    if of("tp") > 1:
        command.taken.add("sequence_parallel")
        if not of("sequence_parallel"):
            command.note("sequence_parallel = 0: MaxText shards norms over tensor ranks where these divide the width")


def _batch(found: Deployment, command: Command) -> None:
    """Sequences of a device, which may be parts of one; the rest is accumulated, or in the pipeline at once.

    Raises:
        ConfigError: a batch that does not divide, or micro-batches that the stages do not divide.
    """
    micro, total, stages = found.of("micro_batch"), round(found.number("global_batch")), found.of("pp")
    if total % (found.replicas * micro):
        raise ConfigError(f"export: a batch of {total} does not divide over {found.replicas} x {micro} sequences")
    passes, shared = total // (found.replicas * micro), found.of("tp") * found.of("cp")
    if stages > 1 and passes % stages:
        raise ConfigError(
            f"export: {passes} micro-batches over pp = {stages}: MaxText takes num_pipeline_microbatches that its"
            " stages divide"
        )
    each = micro / shared * (passes / stages if stages > 1 else 1)
    _say(command, "per_device_batch_size", f"{each:.12g}", "micro_batch")
    if stages == 1 and passes > 1:
        _say(command, "gradient_accumulation_steps", passes)
    if stages > 1:
        _say(command, "num_pipeline_microbatches", passes)
    _say(command, "max_target_length", sequence_of(found) or FILL_IN, "context")
    if steps_of(found):
        _say(command, "steps", steps_of(found), "tokens")
    capacity = found.plan["capacity_factor"] or found.number("model", "feed_forward", "load", "capacity_factor")
    if capacity:
        _say(command, "capacity_factor", f"{capacity:g}", "capacity_factor")


def _stages(found: Deployment, command: Command) -> None:
    """Chunks of a circular pipeline, each of as many layers.

    Raises:
        ConfigError: another schedule, or stages of unequal length.
    """
    stages, chunks, layers = found.of("pp"), found.of("virtual_stages"), round(found.number("model", "layers"))
    word = value_text("schedule", found.plan["schedule"])
    if word != "1f1b":
        raise ConfigError(f"export: schedule = {word}: MaxText has a circular pipeline and no other schedule")
    if found.of("first_stage_less") or found.of("last_stage_less"):
        raise ConfigError("export: first_stage_less and last_stage_less: MaxText's stages are of equal length")
    command.taken.add("virtual_stages")
    if stages == 1:
        return
    if layers % (stages * chunks):
        raise ConfigError(
            f"export: {layers} layers do not divide over pp {stages} * virtual_stages {chunks} of MaxText"
        )
    _say(command, "num_layers_per_pipeline_stage", layers // (stages * chunks) or FILL_IN)
    _say(command, "num_pipeline_repeats", chunks)
    command.note("MaxText's stages run all forward passes before the backward ones; the model has 1F1B")


def _remat(found: Deployment, command: Command) -> None:
    """The policy whose tensors are those of the plan, by name or tensor by tensor; else the nearest, with a note."""
    named = modules_of(found.plan["recompute_modules"], RECOMPUTE_MODULES)
    afar = modules_of(found.plan["offload_modules"], OFFLOAD_MODULES)
    level = found.of("recompute")
    far = frozenset(afar) if found.plan["offload_activations"] == 1 else frozenset[str]()
    words = _policies().get((RECOMPUTE[level], frozenset(named), far))
    if found.plan["offload_activations"] not in (0, 1) or (found.plan["offload_activations"] and not afar):
        words = None  # a tensor goes whole
    command.taken.update({"recompute", "partition_activations"})
    if words is None:
        _say(command, "remat_policy", NEAREST[level])
        said = f"recompute = {RECOMPUTE[level]}" + (f" with {'+'.join(named)}" if named else "")
        command.note(f"{said}: MaxText always runs norms and activation functions again; {NEAREST[level]} is nearest")
        return
    for key, value in words.items():
        _say(command, key, value)
    command.taken.update({"recompute_modules", "offload_modules", "offload_activations"})


@functools.cache
def _policies() -> dict[tuple[str, frozenset[str], frozenset[str]], dict[str, str]]:
    """Level, modules and offloaded modules of a plan -> keys that say them; policies with names go first."""
    result: dict[tuple[str, frozenset[str], frozenset[str]], dict[str, str]] = {}
    for name in REMAT_POLICIES:
        result.setdefault(_key(plan_of_policy(name)), {"remat_policy": name})
    for places in itertools.product(PLACES, repeat=len(NAMED)):
        chosen = dict(zip(NAMED, places, strict=True))
        if chosen["decoder_layer_input"] == "remat":
            continue  # where the passes start again
        each = {tensor: place for name, place in chosen.items() for tensor in TOGETHER.get(name, (name,))}
        fields = custom_policy(each)
        said = {key: value for key, value in each.items() if value != ("device" if key == NAMED[0] else "remat")}
        result.setdefault(_key(fields), {"remat_policy": "custom", **said})
    return result


def _key(fields: Mapping[str, str]) -> tuple[str, frozenset[str], frozenset[str]]:
    modules, afar = fields.get("recompute_modules", ""), fields.get("offload_modules", "")
    return (
        fields["recompute"],
        frozenset(filter(None, modules.split("+"))),
        frozenset(filter(None, afar.split("+"))),
    )


def _memory(found: Deployment, command: Command) -> None:
    """Host memory, pieces of the loss, formats."""
    if found.of("loss_chunks") > 1:
        _say(command, "num_vocab_tiling", found.of("loss_chunks"), "loss_chunks")
    for key, name in (("optimizer_memory_host_offload", "optimizer"), ("parameter_memory_host_offload", "weights")):
        if found.plan[f"offload_{name}"] == 1:
            _say(command, key, "true", f"offload_{name}")
    if found.optimizer == "Muon":
        _say(command, "opt_type", "muon")
    compute = found.format("compute")
    if compute in QUANTISED:
        _say(command, "quantization", QUANTISED[compute])
    elif compute not in ("bf16", "fp16"):
        command.note(f"no switch: products in {compute}")
