"""`codesign export --to megatron` and `--to maxtext`: commands of trainers.

Megatron's is `torchrun pretrain_gpt.py` with the switches of `megatron.training`.
"""

import functools
import itertools
import math
from collections.abc import Mapping

from ..core.errors import ConfigError
from ..model.workloads.plan import MEGATRON_MODULES, OFFLOAD_MODULES, RECOMPUTE, RECOMPUTE_MODULES
from ..model.workloads.recomputation import PLACES, REMAT_POLICIES, Networks, custom_policy, modules_of, plan_of_policy
from .export_plan import FILL_IN, TRAINED, Command, Deployment, script, supported_options, value_text
from .export_training import add_overlaps, assumed_overlaps, launcher, sequence_of, steps_of
from .launch.maxtext_arguments import catalogue_model
from .launch.switches import layout_text

ZERO = {2: "optim_grads", 3: "optim_grads_params"}  # stage -> strategy of Megatron-FSDP
FORMATS = {"fp8": ("--fp8-format", "hybrid"), "fp4": ("--fp4-format", "e2m1")}
OFFLOADED = (
    "attn_norm",
    "qkv_linear",
    "core_attn",
    "attn_proj",
    "mlp_norm",
)  # inputs of modules that may go to the host


def megatron(deployment: Deployment) -> dict[str, str]:
    """A script with the command.

    Raises:
        ConfigError: this trains nothing.
    """
    deployment.refuse_unless(TRAINED, "megatron")
    command = Command([*launcher(deployment), "pretrain_gpt.py"])
    command.note(
        "pretrain_gpt.py stands in the repository of Megatron-LM, not in the package; torchrun's own switches are not"
        " checked; data, tokenizer, learning rate, checkpoints, biases and --position-embedding-type are yours to add"
    )
    for part in (_model, _degrees, _batch, _memory, _formats):
        part(deployment, command)
    add_overlaps(deployment, command)
    return {"megatron.sh": script(deployment, "megatron", [command])}


def _model(deployment: Deployment, command: Command) -> None:
    """Shape, where the run knows it."""
    if not deployment.number("model", "layers"):
        command.note(f"{FILL_IN}: the model's shape, which stands in its own file and not in this run")
        return
    command.add("--num-layers", round(deployment.number("model", "layers")), "layers")
    command.add("--hidden-size", round(deployment.number("model", "hidden")), "hidden", "vocab")
    _attention(deployment, command)
    _feed_forward(deployment, command)
    if not deployment.number("model", "tied_embeddings"):
        command.add("--untie-embeddings-and-output-weights")
    if deployment.number("model", "norm_vectors", default=2.0) == 1:
        command.add("--normalization", "RMSNorm")
    if deployment.number("model", "vocab"):
        command.add("--vocab-size", round(deployment.number("model", "vocab")))


def _attention(deployment: Deployment, command: Command) -> None:
    heads, kv_heads = (
        deployment.number("model", "attention", "heads"),
        deployment.number("model", "attention", "kv_heads"),
    )
    command.add("--num-attention-heads", round(heads), "heads", "kv_heads")
    if deployment.number("model", "attention", "kv_rank"):
        command.add("--multi-latent-attention")
        ranks = {"--q-lora-rank": "q_rank", "--kv-lora-rank": "kv_rank", "--qk-head-dim": "nope_dim",
                 "--qk-pos-emb-head-dim": "rope_dim", "--v-head-dim": "value_dim"}  # fmt: skip
        for option, name in ranks.items():
            if deployment.number("model", "attention", name):
                command.add(option, round(deployment.number("model", "attention", name)))
        return
    if kv_heads and kv_heads < heads:
        command.add("--group-query-attention")
        command.add("--num-query-groups", round(kv_heads))
    if deployment.number("model", "attention", "head_dim"):
        command.add("--kv-channels", round(deployment.number("model", "attention", "head_dim")))


def _feed_forward(deployment: Deployment, command: Command) -> None:
    def of(name: str) -> int:
        return round(deployment.number("model", "feed_forward", name))

    command.taken.update({"width", "experts", "top_k", "expert_width"})
    if of("width") or of("dense_width"):
        command.add("--ffn-hidden-size", of("width") or of("dense_width"))
    gated = deployment.number("model", "feed_forward", "gated", default=1.0 if of("experts") else 0.0)
    if gated:
        command.add("--swiglu")
    if not of("experts"):
        return
    command.add("--num-experts", of("experts"))
    command.add("--moe-router-topk", of("top_k"))
    command.add("--moe-ffn-hidden-size", of("expert_width"))
    capacity = deployment.number("model", "feed_forward", "load", "capacity_factor")
    planned = deployment.plan["capacity_factor"]
    if planned or capacity:
        command.add("--moe-expert-capacity-factor", f"{planned or capacity:g}", "capacity_factor")
        if planned or deployment.number("model", "feed_forward", "load", "padded"):
            command.add("--moe-pad-expert-input-to-capacity")
    if of("shared_experts"):
        command.add("--moe-shared-expert-intermediate-size", of("shared_experts") * of("expert_width"))
    if of("dense_layers"):
        layers = round(deployment.number("model", "layers"))
        command.add("--moe-layer-freq", f"[0]*{of('dense_layers')}+[1]*{layers - of('dense_layers')}")


def _degrees(deployment: Deployment, command: Command) -> None:
    of = deployment.of
    command.add("--tensor-model-parallel-size", of("tp"), "tp")
    command.add("--pipeline-model-parallel-size", of("pp"), "pp")
    if of("virtual_stages") > 1:
        command.add("--num-virtual-stages-per-pipeline-rank", of("virtual_stages"), "virtual_stages")
    if of("schedule"):
        raise ConfigError(
            f"export: schedule = {value_text('schedule', deployment.plan['schedule'])}: Megatron-LM runs 1F1B,"
            " interleaved by virtual stages; no switch of a release defers weight gradients to fill a pipeline"
        )
    command.taken.add("schedule")
    _ends(deployment, command)
    if of("cp") > 1:
        command.add("--context-parallel-size", of("cp"), "cp")
        exchanged = of("ulysses")
        command.add("--cp-comm-type", "p2p" if exchanged == 1 else "a2a" if exchanged == of("cp") else "a2a+p2p")
        if 1 < exchanged < of("cp"):
            command.add("--hierarchical-context-parallel-sizes", (exchanged, of("cp") // exchanged))
    if of("ep") > 1:
        command.add("--expert-model-parallel-size", of("ep"), "ep")
    if deployment.has_experts:
        command.add("--expert-tensor-parallel-size", of("etp") or of("tp"), "etp")
    if of("sequence_parallel") and of("tp") > 1:
        command.add("--sequence-parallel")
    command.taken.update({"cp", "ulysses", "ep", "etp", "sequence_parallel"})
    command.note(f"data parallel: {deployment.replicas} replicas, which Megatron derives from the number of devices")


def _ends(deployment: Deployment, command: Command) -> None:
    """Shorter first and last stages: embedding and loss as one layer each, else the layout in words."""
    first, last, layers = (
        deployment.of("first_stage_less"),
        deployment.of("last_stage_less"),
        deployment.number("model", "layers"),
    )
    command.taken.update({"first_stage_less", "last_stage_less"})
    if first <= 1 and last <= 1:
        for less, part in ((first, "embedding"), (last, "loss")):
            if less:
                command.add(f"--account-for-{part}-in-pipeline-split")
    elif layers:
        text = layout_text(round(layers), deployment.of("pp") * deployment.of("virtual_stages"), first, last)
        command.add("--pipeline-model-parallel-layout", text)
    else:
        command.note(f"{FILL_IN}: --pipeline-model-parallel-layout, of a first stage with {first} layers less than"
                     f" others and a last one with {last}")  # fmt: skip


def _batch(deployment: Deployment, command: Command) -> None:
    command.add("--micro-batch-size", deployment.of("micro_batch"), "micro_batch")
    command.add("--global-batch-size", round(deployment.number("global_batch")) or FILL_IN)
    command.add("--seq-length", sequence_of(deployment) or FILL_IN, "context")
    command.add("--max-position-embeddings", sequence_of(deployment) or FILL_IN)
    if steps_of(deployment):
        command.add("--train-iters", steps_of(deployment), "tokens")
    else:
        command.note("the run prices one step: --train-iters or --train-samples are yours to add")


def _memory(deployment: Deployment, command: Command) -> None:
    _recompute(deployment, command)
    stage = math.ceil(deployment.plan["zero"])
    if deployment.optimizer == "Muon":
        _muon(deployment, command, stage)
    elif stage and deployment.replicas * deployment.of("cp") > 1:
        command.add("--use-distributed-optimizer")
    if stage in ZERO and deployment.replicas * deployment.of("cp") > 1:
        command.add("--use-megatron-fsdp")
        command.add("--data-parallel-sharding-strategy", ZERO[stage])
        command.add("--ckpt-format", "fsdp_dtensor")
        command.note("Megatron-FSDP wants CUDA_DEVICE_MAX_CONNECTIONS unset or above 1")
    elif deployment.of("tp") > 1 or deployment.of("cp") > 1:
        command.note(
            "before Blackwell, Megatron wants CUDA_DEVICE_MAX_CONNECTIONS=1 with tensor or context parallelism"
        )
    command.taken.add("zero")
    if deployment.plan["offload_optimizer"]:
        command.add("--optimizer-cpu-offload", None, "offload_optimizer")
        command.add("--optimizer-offload-fraction", f"{deployment.plan['offload_optimizer']:g}")
        command.add("--use-precision-aware-optimizer")
    if deployment.plan["offload_activations"]:
        _offload_activations(deployment, command)


def _muon(deployment: Deployment, command: Command, stage: int) -> None:
    """Muon by itself, or with whole matrices divided over data ranks.

    Raises:
        ConfigError: parameters or gradients that Megatron-FSDP cuts.
    """
    if stage > 1:
        raise ConfigError(
            f"export: zero = {stage} with Muon: Megatron-LM divides whole matrices over data ranks (dist_muon, zero 1);"
            " Megatron-FSDP cuts them"
        )
    command.add("--optimizer", "dist_muon" if stage else "muon")
    command.add("--muon-num-ns-steps", round(deployment.number("optimizer", "steps", default=5.0)))
    command.add("--muon-tp-mode", str(deployment.workload["optimizer"].get("tp_mode", "blockwise")))
    if stage:
        command.note("dist_muon sums gradients on every data rank; the model gives each rank its share of the sum")


def _offload_activations(deployment: Deployment, command: Command) -> None:
    """Modules whose inputs go to the host, as the plan names them, else those of attention.

    Raises:
        ConfigError: modules that Megatron does not take.
    """
    named = modules_of(deployment.plan["offload_modules"], OFFLOAD_MODULES)
    if "attn_proj" in named and "core_attn" not in named:
        raise ConfigError(
            "export: offload_modules has attn_proj without core_attn, whose result it reads: Megatron-LM offloads both"
        )
    if deployment.of("recompute") == 2:
        command.note(
            "offload_activations with recompute = full: Megatron-LM offloads inputs of modules, not those of whole"
            " layers that run again"
        )
    command.add("--fine-grained-activation-offloading", None, "offload_activations")
    command.add("--activation-offload-fraction", f"{deployment.plan['offload_activations']:g}")
    supported = tuple(name for name in named if name in OFFLOAD_MODULES[:-1])
    command.add("--offload-modules", supported or OFFLOADED)
    command.taken.update({"offload_modules"} if supported == named else ())
    if not named:
        command.note("the plan says what share of activations goes to the host, not of which modules: all inputs here")


def _recompute(deployment: Deployment, command: Command) -> None:
    """Selective is the attention core, with further modules beside it; full keeps a layer's input."""
    level = deployment.of("recompute")
    named = modules_of(deployment.plan["recompute_modules"], RECOMPUTE_MODULES)
    supported = tuple(name for name in named if name in MEGATRON_MODULES)
    command.taken.update(
        {"recompute", "partition_activations", *(("recompute_modules",) if supported == named else ())}
    )
    if level == 1 or (supported and level == 0):
        command.add("--recompute-granularity", "selective")
        command.add("--recompute-modules", (("core_attn",) if level == 1 else ()) + supported)
    if level == 2:
        command.add("--recompute-granularity", "full")
        share, stages = deployment.plan["recompute_share"], deployment.of("pp") * deployment.of("virtual_stages")
        ends = deployment.of("first_stage_less") + deployment.of("last_stage_less")
        each = share * (round(deployment.number("model", "layers")) + ends) / stages
        command.add("--recompute-method", "uniform" if share == 1 else "block")
        command.add("--recompute-num-layers", 1 if share == 1 else round(each), "recompute_share")
        if share < 1 and abs(round(each) - each) > 1e-9:
            command.note(f"recompute_share = {share:g}: {each:g} layers of a chunk, which Megatron takes whole")
        scattered = deployment.of("sequence_parallel") and deployment.of("tp") > 1
        if deployment.of("partition_activations") and deployment.of("tp") > 1 and not scattered:
            command.add("--distribute-saved-activations")


def _formats(deployment: Deployment, command: Command) -> None:
    command.add("--bf16")
    if deployment.format("compute") in FORMATS:
        command.add(*FORMATS[deployment.format("compute")])
    elif deployment.format("compute") not in ("bf16", "fp16"):
        command.note(f"no switch: products in {deployment.format('compute')}")
    if deployment.format("gradients") == "bf16":
        command.add("--grad-reduce-in-bf16")


# `codesign export --to maxtext`: `python -m maxtext.trainers.pre_train.train base.yml key=value ...`.


PROGRAM = ("python3", "-m", "maxtext.trainers.pre_train.train", "maxtext/configs/base.yml")
NAMED = ("decoder_layer_input", "query_proj", "context", "out_proj", "mlpwi", "mlpwo")
"""Tensors of a policy, those of queries, keys and values under the first."""
TOGETHER = {"query_proj": ("query_proj", "key_proj", "value_proj")}
NEAREST = ("minimal_with_context", "minimal", "full")
"""Level of recomputation -> the policy that comes nearest."""
QUANTISED = {"fp8": "fp8", "int8": "int8"}


def maxtext(deployment: Deployment) -> dict[str, str]:
    """A script with the command of each host.

    Raises:
        ConfigError: this trains nothing, or by a plan that MaxText cannot run.
    """
    deployment.refuse_unless(TRAINED, "maxtext")
    command = Command([*PROGRAM])
    _say(command, "run_name", f"{FILL_IN}-RUN")
    name = _names().get(str(deployment.model.get("name", ""))) if deployment.hub else None
    _say(command, "model_name", name or f"{FILL_IN}-MODEL")
    if name is None:
        command.note(f"{FILL_IN}: MaxText has no configuration of this model; write one under configs/models")
    command.note("the same command runs on every host of every slice; data, tokenizer and checkpoints are yours to add")
    for part in (_meshes, _batch_keys, _stages, _remat, _memory_keys):
        part(deployment, command)
    assumed_overlaps(deployment, command)
    return {"maxtext.sh": script(deployment, "maxtext", [command])}


@functools.cache
def _names() -> dict[str, str]:
    """Model of our catalogue -> name in MaxText, of several the first."""
    return {catalogue_model(name): name for name in reversed(supported_options("maxtext")["model_name"])}


def _say(command: Command, key: str, value: object, *taken: str) -> None:
    """`key=value`."""
    command.add(f"{key}={value}", None, *taken)


def _meshes(deployment: Deployment, command: Command) -> None:
    """Axes inside a slice (ICI) as far as it reaches, from tensor ranks to data ranks, then between slices (DCN).

    Raises:
        ConfigError: degrees that no meshes of MaxText have.
    """
    of = deployment.of
    ep, stage, dp = of("ep"), math.ceil(deployment.plan["zero"]), deployment.replicas
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
    left = deployment.domain
    for axis, size in sizes.items():
        inside = math.gcd(size, left)
        left //= inside
        if inside > 1 or axis == "fsdp":  # -1 where nothing is said
            _say(command, f"ici_{axis}_parallelism", inside)
        if size // inside > 1 or axis == "data":
            _say(command, f"dcn_{axis}_parallelism", size // inside)
    if deployment.devices > deployment.domain and left > 1:
        command.note(f"slices of {deployment.domain // left} devices each: degrees do not divide {deployment.domain}")
    if stage == 1:
        _say(command, "shard_optimizer_over_data", "true")
    if stage == 2:
        command.note("zero = 2: MaxText's fsdp axis shards parameters with gradients and optimizer states, as zero = 3")
    command.taken.update({"tp", "cp", "ulysses", "ep", "etp", "pp", "zero"})
    if of("cp") > 1:
        strategy = "usp" if mixed else "ulysses" if exchanged > 1 else "ring"
        _say(command, "context_parallel_strategy", strategy)
        zigzag = value_text("cp_order", deployment.plan["cp_order"]) == "zigzag"
        _say(command, "context_parallel_load_balance", "true" if zigzag else "false", "cp_order")
    if of("tp") > 1:
        command.taken.add("sequence_parallel")
        if not of("sequence_parallel"):
            command.note("sequence_parallel = 0: MaxText shards norms over tensor ranks where these divide the width")


def _batch_keys(deployment: Deployment, command: Command) -> None:
    """Sequences of a device, which may be parts of one; the rest is accumulated, or in the pipeline at once.

    Raises:
        ConfigError: a batch that does not divide, or micro-batches that the stages do not divide.
    """
    micro, total, stages = deployment.of("micro_batch"), round(deployment.number("global_batch")), deployment.of("pp")
    if total % (deployment.replicas * micro):
        raise ConfigError(f"export: a batch of {total} does not divide over {deployment.replicas} x {micro} sequences")
    passes, shared = total // (deployment.replicas * micro), deployment.of("tp") * deployment.of("cp")
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
    _say(command, "max_target_length", sequence_of(deployment) or FILL_IN, "context")
    if steps_of(deployment):
        _say(command, "steps", steps_of(deployment), "tokens")
    capacity = deployment.plan["capacity_factor"] or deployment.number(
        "model", "feed_forward", "load", "capacity_factor"
    )
    if capacity:
        _say(command, "capacity_factor", f"{capacity:g}", "capacity_factor")


def _stages(deployment: Deployment, command: Command) -> None:
    """Chunks of a circular pipeline, each of as many layers.

    Raises:
        ConfigError: another schedule, or stages of unequal length.
    """
    stages, chunks, layers = (
        deployment.of("pp"),
        deployment.of("virtual_stages"),
        round(deployment.number("model", "layers")),
    )
    word = value_text("schedule", deployment.plan["schedule"])
    if word != "1f1b":
        raise ConfigError(f"export: schedule = {word}: MaxText has a circular pipeline and no other schedule")
    if deployment.of("first_stage_less") or deployment.of("last_stage_less"):
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


def _remat(deployment: Deployment, command: Command) -> None:
    """The policy whose tensors are those of the plan, by name or tensor by tensor; else the nearest, with a note."""
    named = modules_of(deployment.plan["recompute_modules"], RECOMPUTE_MODULES)
    afar = modules_of(deployment.plan["offload_modules"], OFFLOAD_MODULES)
    level = deployment.of("recompute")
    far = frozenset(afar) if deployment.plan["offload_activations"] == 1 else frozenset[str]()
    words = _policies(_networks(deployment)).get((RECOMPUTE[level], frozenset(named), far))
    if deployment.plan["offload_activations"] not in (0, 1) or (deployment.plan["offload_activations"] and not afar):
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


def _networks(deployment: Deployment) -> Networks:
    """Feed-forward networks of the model of a run."""
    dense, shared = (
        bool(deployment.number("model", "feed_forward", name)) for name in ("dense_layers", "shared_experts")
    )
    return Networks(dense or not deployment.has_experts, deployment.has_experts, shared)


@functools.cache
def _policies(networks: Networks) -> dict[tuple[str, frozenset[str], frozenset[str]], dict[str, str]]:
    """Level, modules and offloaded modules of a plan -> keys that say them; policies with names go first."""
    result: dict[tuple[str, frozenset[str], frozenset[str]], dict[str, str]] = {}
    for name in REMAT_POLICIES:
        result.setdefault(_key(plan_of_policy(name, networks)), {"remat_policy": name})
    for places in itertools.product(PLACES, repeat=len(NAMED)):
        chosen = dict(zip(NAMED, places, strict=True))
        if chosen["decoder_layer_input"] == "remat":
            continue  # where the passes start again
        each = {tensor: location for name, location in chosen.items() for tensor in TOGETHER.get(name, (name,))}
        fields = custom_policy(each, networks)
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


def _memory_keys(deployment: Deployment, command: Command) -> None:
    """Host memory, pieces of the loss, formats."""
    if deployment.of("loss_chunks") > 1:
        _say(command, "num_vocab_tiling", deployment.of("loss_chunks"), "loss_chunks")
    for key, name in (("optimizer_memory_host_offload", "optimizer"), ("parameter_memory_host_offload", "weights")):
        if deployment.plan[f"offload_{name}"] == 1:
            _say(command, key, "true", f"offload_{name}")
    if deployment.optimizer == "Muon":
        _say(command, "opt_type", "muon")
    compute = deployment.format("compute")
    if compute in QUANTISED:
        _say(command, "quantization", QUANTISED[compute])
    elif compute not in ("bf16", "fp16"):
        command.note(f"no switch: products in {compute}")
