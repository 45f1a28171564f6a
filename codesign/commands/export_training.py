"""Common parts of trainers' commands, and `codesign export --to torchtitan`: `torchrun -m torchtitan.train`."""

import math

from ..core.errors import ConfigError
from ..model.workloads.plan import PER_OP, RECOMPUTE_MODULES
from ..model.workloads.recomputation import modules_of
from .export_plan import FILL_IN, TRAINED, Command, Deployment, script, value_text

# Common parts of trainers' commands: the launcher, the steps of a run, what is taken to hide behind what.


HIDDEN = {"tp_overlap": "tensor", "cp_overlap": "context", "ep_overlap": "expert", "dp_overlap": "data",
          "pp_overlap": "pipeline"}  # fmt: skip
DEGREE = {"tp_overlap": "tp", "cp_overlap": "cp", "ep_overlap": "ep", "pp_overlap": "pp"}


def launcher(deployment: Deployment) -> list[str]:
    """`torchrun` on as many nodes as the devices need; the address of the first is the shell's to know."""
    per_node = min(deployment.domain, deployment.devices)
    nodes = math.ceil(deployment.devices / per_node)
    first = ["torchrun", "--nproc-per-node", f"{per_node}"]
    if nodes == 1:
        return [*first, "--standalone"]
    return [*first, "--nnodes", f"{nodes}", "--rdzv-backend", "c10d", "--rdzv-endpoint", "$HEAD_NODE:29500"]


def sequence_of(deployment: Deployment) -> int:
    """Tokens of a sequence, as the plan chose or as configured."""
    return round(deployment.plan.get("context", deployment.number("sequence")))


def steps_of(deployment: Deployment) -> int:
    """Steps of a whole run; 0 where the run priced one step."""
    tokens = deployment.plan.get("tokens", deployment.number("tokens"))
    batch = sequence_of(deployment) * deployment.number("global_batch")
    return math.ceil(tokens / batch) if batch else 0


def add_overlaps(deployment: Deployment, command: Command) -> None:
    """Megatron's switches for what the plan hides; how much is hidden is an assumption of the model."""
    if deployment.replicas > 1 and deployment.plan["dp_overlap"]:
        command.add("--overlap-grad-reduce")
        if deployment.plan["zero"]:
            command.add("--overlap-param-gather")
    if deployment.of("tp") > 1 and deployment.plan["tp_overlap"] and deployment.of("sequence_parallel"):
        command.add("--tp-comm-overlap")
    assumed_overlaps(deployment, command)


def assumed_overlaps(deployment: Deployment, command: Command) -> None:
    """Note the share of each kind of communication that the model assumes to be overlapped with compute."""
    there = {name: deployment.of(DEGREE[name]) if name in DEGREE else deployment.replicas for name in HIDDEN}
    lines = [f"{HIDDEN[name]} {deployment.plan[name]:.0%}" for name in HIDDEN if there[name] > 1]
    if lines:
        command.note(f"assumed: communication that hides behind work, {', '.join(lines)}; an engine shows what it does")
    command.taken.update(HIDDEN)


# `codesign export --to torchtitan`: `torchrun -m torchtitan.train` with overrides of one of its configurations.


RECIPES = {
    "llama31_8b": ("llama3", "llama3_8b"),
    "llama31_70b": ("llama3", "llama3_70b"),
    "llama31_405b": ("llama3", "llama3_405b"),
    "deepseek_v3": ("deepseek_v3", "deepseek_v3_671b"),
    "qwen3_32b": ("qwen3", "qwen3_32b"),
    "gpt_oss_20b": ("gpt_oss", "gpt_oss_20b"),
    "gpt_oss_120b": ("gpt_oss", "gpt_oss_120b"),
}
"""Model of our catalogue -> module and configuration of torchtitan."""

TORCHTITAN_RECOMPUTE = ("none", "selective", "full")

SCHEDULES = {"1f1b": "1F1B", "zb_v": "ZBVZeroBubble"}
"""Schedule of a plan -> that of torch.distributed.pipelining."""


def torchtitan(deployment: Deployment) -> dict[str, str]:
    """A script with the command.

    Raises:
        ConfigError: this trains nothing, or by a plan that torchtitan cannot run.
    """
    deployment.refuse_unless(TRAINED, "torchtitan")
    command = Command([*launcher(deployment), "-m", "torchtitan.train"])
    recipe = RECIPES.get(str(deployment.model.get("name", ""))) if deployment.hub else None
    for option, name in zip(
        ("--module", "--config"), recipe or (f"{FILL_IN}-MODULE", f"{FILL_IN}-CONFIG"), strict=True
    ):
        command.add(option, name)
    if not recipe:
        command.note(f"{FILL_IN}: torchtitan has no configuration of this model; write one and name it")
    command.note("torchrun's own switches are not checked; what the configuration says beside these holds")
    for part in (_titan_degrees, _sharding, _titan_batch, _titan_memory, _titan_formats):
        part(deployment, command)
    assumed_overlaps(deployment, command)
    policy = "selective" if _is_per_op(deployment) else TORCHTITAN_RECOMPUTE[deployment.of("recompute")]
    if deployment.of("recompute") == 2 and deployment.plan["recompute_share"] < 1:
        command.note(
            f"recompute_share = {deployment.plan['recompute_share']:g}: this release of torchtitan recomputes all"
            " layers or none; earlier ones every N-th (selective_ac_option)"
        )
        command.taken.add("recompute_share")
    command.add(f"activation-checkpoint:{policy}")
    return {"torchtitan.sh": script(deployment, "torchtitan", [command])}


def _titan_degrees(deployment: Deployment, command: Command) -> None:
    of = deployment.of
    for option, name in (("tensor", "tp"), ("pipeline", "pp"), ("context", "cp"), ("expert", "ep")):
        command.taken.add(name)
        factor = of("tp") if name == "ep" and of("ep") > 1 and not of("etp") else 1
        degree = of(name) * factor
        command.add(f"--parallelism.{option}_parallel_degree", degree)
    command.taken.add("etp")
    if of("etp") > 1:
        command.note(f"no switch: etp = {of('etp')}: torchtitan has whole experts on each expert rank")
    if of("ep") > 1 and of("tp") > 1 and not of("etp"):
        command.note(
            f"ep = {of('ep')}: torchtitan's expert ranks take in the tensor ranks ({of('ep') * of('tp')} with whole"
            f" experts); the model cut each expert over tp = {of('tp')}"
        )
    if of("tp") > 1 and not of("sequence_parallel"):
        command.add("--parallelism.no-enable-sequence-parallel")
    command.taken.add("sequence_parallel")
    if of("pp") > 1:
        command.add("--parallelism.pipeline_parallel_schedule", _schedule(deployment), "schedule")
        layers, stages = deployment.number("model", "layers"), of("pp") * of("virtual_stages")
        command.add(
            "--parallelism.pipeline_parallel_layers_per_stage",
            math.ceil((layers + of("first_stage_less") + of("last_stage_less")) / stages) or FILL_IN,
            "virtual_stages",
        )
        for end in ("first", "last"):
            name = f"{end}_stage_less"
            command.add(f"--parallelism.pipeline_parallel_{name}_layers", of(name), name)


def _schedule(deployment: Deployment) -> str:
    """Name of the schedule in torch.distributed.pipelining.

    Raises:
        ConfigError: it has none of this kind.
    """
    word = value_text("schedule", deployment.plan["schedule"])
    if word not in SCHEDULES:
        raise ConfigError(
            f"export: schedule = {word}: torchtitan has {', '.join(SCHEDULES)}, and none of one chunk a stage that"
            " defers weight gradients, nor of two copies"
        )
    return "Interleaved1F1B" if word == "1f1b" and deployment.of("virtual_stages") > 1 else SCHEDULES[word]


def _sharding(deployment: Deployment, command: Command) -> None:
    """ZeRO 2 and 3 are FSDP without and with parameters dropped after the forward pass; 1 has no match."""
    stage, replicas = math.ceil(deployment.plan["zero"]), deployment.replicas
    if not stage and deployment.of("ep") > deployment.of("cp"):
        raise ConfigError("export: ep without zero: torchtitan takes expert ranks out of those that shard parameters")
    command.add("--parallelism.data_parallel_replicate_degree", 1 if stage else replicas)
    command.add("--parallelism.data_parallel_shard_degree", replicas if stage else 1)
    if stage:
        command.add("--parallelism.fsdp_reshard_after_forward", "always" if stage == 3 else "never")
    if stage == 1:
        command.note("zero = 1: torchtitan shards no optimizer alone; this shards gradients and parameters with it")
    elif stage == 2:
        command.note("zero = 2: parameters are sharded between steps too, and kept whole from forward to backward")
    command.taken.add("zero")


def _titan_batch(deployment: Deployment, command: Command) -> None:
    """Without stages a step of accumulation is one micro-batch; with stages it is all of them in the pipeline."""
    total, micro = round(deployment.number("global_batch")), deployment.of("micro_batch")
    if total % deployment.replicas:
        raise ConfigError(f"export: a batch of {total} sequences does not divide over {deployment.replicas} replicas")
    local = total // deployment.replicas if deployment.of("pp") > 1 else micro
    command.add("--training.local_batch_size", local or FILL_IN, "micro_batch")
    command.add("--training.global_batch_size", total or FILL_IN)
    if deployment.of("pp") > 1:
        command.add("--parallelism.pipeline_parallel_microbatch_size", micro)
    command.add("--training.seq_len", sequence_of(deployment) or FILL_IN, "context")
    if steps_of(deployment):
        command.add("--training.steps", steps_of(deployment), "tokens")
    else:
        command.note("the run prices one step: --training.steps is as the configuration says")


def _is_per_op(deployment: Deployment) -> bool:
    """True if the plan has torchtitan's own selective policy."""
    return modules_of(deployment.plan["recompute_modules"], RECOMPUTE_MODULES) == (PER_OP,)


def _titan_memory(deployment: Deployment, command: Command) -> None:
    command.taken.update({"recompute", *(("recompute_modules",) if _is_per_op(deployment) else ())})
    if deployment.of("recompute") == 1:
        command.note(
            "recompute: selective is the attention core in the model; torchtitan's saves that and runs every second"
            " product again (recompute_modules=per_op)"
        )
    shares = {name: deployment.plan[f"offload_{name}"] for name in ("weights", "gradients", "optimizer")}
    if all(shares.values()):
        command.add("--training.enable_cpu_offload")
        command.note("the host takes parameters, gradients and optimizer states whole; the plan says shares")
        command.taken.update(f"offload_{name}" for name in shares)
    elif any(shares.values()):
        command.note("--training.enable_cpu_offload would take parameters, gradients and optimizer states together")


def _titan_formats(deployment: Deployment, command: Command) -> None:
    if deployment.optimizer == "Muon":
        command.note("no switch: Muon; torchtitan has Adam and AdamW")
    command.add("--training.mixed_precision_param", "bfloat16")
    command.add("--training.mixed_precision_reduce", "float32")
    if deployment.format("compute") != "bf16":
        command.note(f"no switch: products in {deployment.format('compute')}; converters stand in the configuration")
    if deployment.format("gradients") != "fp32":
        command.note(f"no switch: gradients reduced in {deployment.format('gradients')}")
