"""Plans of trainers: arguments of Megatron-LM and Megatron Bridge; torchtitan has a module of its own."""

import re
from collections.abc import Mapping
from typing import Any

from ...config import available
from ...config.model_names import hub_name, model_option
from ...core.errors import ConfigError, suggestion
from ...core.json_yaml import is_mapping
from ...model.workloads.plan import MEGATRON_MODULES, OFFLOAD_MODULES
from .shell import EngineProgram
from .switches import (
    Ends,
    Switches,
    finished,
    is_integer,
    megatron_ends,
    model_file,
    options_of,
    read_switches,
)
from .torchtitan_arguments import FileText, torchtitan_overrides

__all__ = ["starts_training", "training_overrides"]

SCRIPT = re.compile(r"(pretrain|finetune|setup_experiment|run_recipe|run_script)[\w-]*\.(py|sh)$")
OTHER_SCRIPT = re.compile(r"\.py$")
MEGATRON = ("--tensor-model-parallel-size", "--num-layers", "--micro-batch-size")  # tell a script of one's own
TITAN = re.compile(r"torchtitan[./]+(experiments[./]\w+[./])?train(\.py)?$|run_train\.sh$")
LAUNCHERS = {
    "--nproc-per-node": "local",
    "--nproc_per_node": "local",
    "--nnodes": "nodes",
    "--ntasks-per-node": "local",
    "--nodes": "nodes",
    "-N": "nodes",
    "--num_gpus": "all",
    "-np": "all",
}
FROM_ENVIRONMENT = {
    "NGPU": "local", "WORLD_SIZE": "all", "SLURM_NNODES": "nodes", "SLURM_NTASKS_PER_NODE": "local",
}  # fmt: skip
BRIDGE = {
    "-tp": "tensor-model-parallel-size",
    "-pp": "pipeline-model-parallel-size",
    "-cp": "context-parallel-size",
    "-ep": "expert-model-parallel-size",
    "-et": "expert-tensor-parallel-size",
    "-mb": "micro-batch-size",
    "-gb": "global-batch-size",
    "-vp": "num-virtual-stages-per-pipeline-rank",
    "--tensor_model_parallel_size": "tensor-model-parallel-size",
    "--virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
}
"""Short options of the scripts of Megatron Bridge -> those of Megatron-LM."""
BRIDGE_KEYS = {
    "virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "seq_length": "seq-length",
    "sequence_length": "seq-length",
    "train_iters": "train-iters",
    "use_distributed_optimizer": "use-distributed-optimizer",
}
BRIDGE_MODEL = ("--model_recipe_name", "--model_family_name", "-m", "--model_name", "--recipe", "-mr", "-mf")
BRIDGE_QUIET = re.compile(
    r"--?(gpu|g|account|a|partition|p|container_image|i|log_dir|l|wandb\w*|hf_token|compute_dtype|c|time_limit|t|domain|task|dryrun|d|model_size|s|gpus_per_node|gn)"
)
COMPUTE = re.compile(r"(?i)(fp8|fp4|nvfp4|mxfp8|bf16)")
ZERO = {"optim": 1, "optim_grads": 2, "optim_grads_params": 3, "no_shard": 0}
MUON = {"muon": 0, "dist_muon": 1}
"""Kinds of Muon -> ZeRO stage."""
CP_KINDS = ("p2p", "all_gather", "a2a", "a2a+p2p")
LATER_MODULES = (
    *("a2a_overlap_attn", "a2a_overlap_post_attn", "a2a_overlap_mlp", "fused_group_mlp", "dense_fc1", "pre_mlp"),
    *("routed_experts", "shared_fc1", "mhc", "gdn_norm_out"),
)
"""Modules of later releases of Megatron, with parts that this package does not tell apart."""
MAX_NUMBER = 10**9


def starts_training(one: EngineProgram) -> bool:
    """True if a command starts a trainer that is read."""
    return _script_index(one) is not None


def _script_index(one: EngineProgram) -> int | None:
    """Place of the trainer's name among the words."""
    is_megatron = any(word.partition("=")[0] in MEGATRON for word in one.words)
    for at, word in enumerate(one.words):
        if (
            SCRIPT.search(word)
            or TITAN.search(word)
            or word == "torchtitan.train"
            or (is_megatron and OTHER_SCRIPT.search(word))
        ):
            return at
    if is_megatron and one.words[0].rpartition("/")[2] in (
        "torchrun",
        "srun",
    ):  # a script under a name that is not known
        return next((at for at, word in enumerate(one.words) if at and "$" in word and "-" not in word), None)
    return None


def training_overrides(one: EngineProgram, file_text: FileText) -> tuple[list[str], list[str]]:
    """Overrides of a training run, and lines of what was assumed.

    Raises:
        ConfigError: an option that no release has, a number that is none, degrees that do not fit the devices.
    """
    at = _script_index(one) or 0
    devices = _devices(one, one.words[:at])
    if TITAN.search(one.words[at]) or one.words[at] == "torchtitan.train":
        overrides, notes = torchtitan_overrides(one, list(one.words[at + 1 :]), devices, file_text)
    else:
        overrides, notes = _megatron(list(one.words[at + 1 :]), devices, one)
    return overrides, [*_without_value(one.words[:at]), *notes]


def _launched(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """Options of a launcher with their values."""
    result: list[tuple[str, str]] = []
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in LAUNCHERS:
            result.append((name, value if equals else (words[number + 1] if number + 1 < len(words) else "")))
    return result


def _without_value(words: tuple[str, ...]) -> list[str]:
    """Lines on counts of nodes and processes that stand in variables which nothing sets."""
    return [
        f"{name} {value} has no value here, 1 is taken: set it before the command, or give cluster.device_count"
        for name, value in _launched(words)
        if "$" in value
    ]


def _devices(one: EngineProgram, words: tuple[str, ...]) -> int:
    """Processes that a launcher starts: nodes times those of one; 0 where nothing is said."""
    result: dict[str, int] = {}
    for name, value in _launched(words):
        most = value.rpartition(":")[2]  # of an elastic range
        if is_integer(most) and 0 < int(most) < MAX_NUMBER:
            result[LAUNCHERS[name]] = int(most)
    for name, what in FROM_ENVIRONMENT.items():
        if is_integer(one.env.get(name, "")):
            result.setdefault(what, int(one.env[name]))
    return result.get("all") or result.get("local", 0) * result.get("nodes", 1)


def _megatron(words: list[str], devices: int, one: EngineProgram) -> tuple[list[str], list[str]]:
    words, recipe, formats, counted = _plain_arguments(words)
    result = read_switches("megatron", words)
    result.check_choices()
    notes: list[str] = []
    tp, pp = result.number("tensor-model-parallel-size"), result.number("pipeline-model-parallel-size")
    cp, ep = result.number("context-parallel-size"), result.number("expert-model-parallel-size")
    plan: dict[str, str] = {"tp": str(tp), "pp": str(pp), "cp": str(cp)}
    model, layers, experts = _megatron_model(result, recipe, notes)
    expert_tp = result.number("expert-tensor-parallel-size", default=tp) if experts else tp
    if cp > 1 and (exchanged := _exchanged(result, cp, notes)) > 1:
        plan["ulysses"] = str(exchanged)
    plan["ep"] = str(ep if experts else 1)
    if experts and expert_tp != tp:
        plan["etp"] = str(expert_tp)
    stages = result.number("num-virtual-stages-per-pipeline-rank", default=0, low=0)
    each = result.number("num-layers-per-virtual-pipeline-stage", default=0, low=0)
    counted_too = [result.has(f"account-for-{part}-in-pipeline-split") for part in ("embedding", "loss")]
    stages = stages or (max((layers + sum(counted_too)) // (pp * each), 1) if each and layers else 1)
    ends = megatron_ends(result, layers, pp, stages) if pp > 1 else Ends()
    stages = ends.chunks or stages
    plan |= {f"{end}_stage_less": f"{less}" for end, less in (("first", ends.first), ("last", ends.last)) if less}
    notes += [ends.note] if ends.note else []
    if pp > 1:  # sends of interleaved stages run beside work unless it is denied, others never
        plan["pp_overlap"] = "1" if stages > 1 and not result.has("no-overlap-p2p-communication") else "0"
    if tp > 1 and (not recipe or result.has("tp-comm-overlap")):  # recipes switch it on themselves
        plan["tp_overlap"] = "1" if result.has("tp-comm-overlap") else "0"
    plan |= {"virtual_stages": str(stages if pp > 1 else 1), "micro_batch": str(result.number("micro-batch-size"))}
    plan["sequence_parallel"] = "1" if result.has("sequence-parallel") and tp > 1 else "0"
    plan["zero"] = str(_zero(result))
    plan["recompute"], modules = _recompute(result, notes)
    if modules:
        plan["recompute_modules"] = "+".join(modules)
    share = _recomputed_share(result, (layers + ends.first + ends.last) / pp, max(stages, 1), notes)
    if plan["recompute"] == "full" and share < 1:
        plan["recompute_share"] = f"{share:.12g}"
    if result.has("fine-grained-activation-offloading"):
        plan["offload_activations"] = f"{result.share('activation-offload-fraction') or 1.0:g}"
        if named := _modules(result, "offload-modules", OFFLOAD_MODULES, notes):
            plan["offload_modules"] = "+".join(named)
    if plan["recompute"] == "full" and tp > 1 and plan["sequence_parallel"] == "0":
        plan["partition_activations"] = "1" if result.has("distribute-saved-activations") else "0"
    if not result.has("overlap-grad-reduce"):
        plan["dp_overlap"] = "0"
        notes.append("without --overlap-grad-reduce gradients are exchanged after the backward pass: plan.dp_overlap=0")
    plan["offload_optimizer"] = "0"
    if result.has("optimizer-cpu-offload"):
        plan["offload_optimizer"] = f"{result.share('optimizer-offload-fraction') or 1.0:g}"
    overrides = [*model, "workload=training", *_formats(result, formats)]
    batch = {
        "sequence": result.number("seq-length", default=0, low=0),
        "global_batch": result.number("global-batch-size", default=0, low=0),
    }
    overrides += [f"workload.{key}={value}" for key, value in batch.items() if value]
    overrides += _megatron_optimizer(result, plan, notes)
    if experts and result.has("moe-expert-capacity-factor"):
        overrides.append(f"workload.expert_load.capacity_factor={result.text('moe-expert-capacity-factor')}")
        if result.has("moe-pad-expert-input-to-capacity"):
            overrides.append("workload.expert_load.padded=true")
    return finished(overrides, plan, devices or counted, tp * pp * cp, result, notes)


def _megatron_optimizer(switches: Switches, plan: dict[str, str], notes: list[str]) -> list[str]:
    """Overrides of an optimizer that is not Adam; its share of ZeRO goes into the plan."""
    optimizer = switches.text("optimizer")
    if optimizer not in MUON:
        notes += [] if optimizer in ("", "adam") else [
            f"not modelled: {switches.shown('optimizer')} {optimizer}: priced as adam"
        ]  # fmt: skip
        return []
    plan["zero"] = str(MUON[optimizer])
    mode = switches.text("muon-tp-mode")
    return [
        "optimizer=muon", *([f"workload.optimizer.tp_mode={mode}"] if mode else []),
        f"workload.optimizer.steps={switches.number('muon-num-ns-steps', default=5)}",
    ]  # fmt: skip


def _plain_arguments(words: list[str]) -> tuple[list[str], str, str, int]:
    """Arguments as Megatron-LM spells them, and what scripts of Megatron Bridge add: recipe, format, devices."""
    rest, recipe, formats, devices, at = list[str](), "", "", 0, 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        follows = value if equals else (words[at + 1] if at + 1 < len(words) else "")
        step = 1 if equals else 2
        if name in BRIDGE:
            rest += [f"--{BRIDGE[name]}", follows]
        elif name in BRIDGE_MODEL:
            recipe = follows if name != "--model_family_name" or not recipe else recipe
        elif name in ("--num_gpus", "-ng") and is_integer(follows):
            devices = min(int(follows), MAX_NUMBER)
        elif name in ("--compute_dtype", "-c"):
            formats = follows
        elif (
            name.startswith("-")
            and BRIDGE_QUIET.fullmatch(name)
            and name.lstrip("-").replace("_", "-") not in options_of("megatron")
        ):
            step = 1 if equals or follows.startswith("-") else 2
        elif equals and not name.startswith("-") and "." in name:
            key = name.rpartition(".")[2]
            plain = BRIDGE_KEYS.get(key, key.replace("_", "-"))
            if plain in options_of("megatron") and value.lower() != "null":
                rest += (
                    [f"--{plain}"]
                    if value.lower() == "true"
                    else []
                    if value.lower() == "false"
                    else [f"--{plain}", value]
                )
            step = 1
        else:
            rest.append(words[at])
            step = 1
        at += step
    return rest, recipe, formats, devices


def _zero(switches: Switches) -> int:
    strategy = switches.text("data-parallel-sharding-strategy")
    if switches.has("use-megatron-fsdp", "use-torch-fsdp2", "use-custom-fsdp"):
        return ZERO.get(strategy, 3)
    return 1 if switches.has("use-distributed-optimizer") else 0


def _exchanged(switches: Switches, cp: int, notes: list[str]) -> int:
    """Context ranks that exchange heads.

    Raises:
        ConfigError: another kind of communication, or sizes that are none.
    """
    kinds = switches.text("cp-comm-type", default="p2p").split()
    if len(set(kinds)) > 1:
        notes.append(f"not modelled: {switches.shown('cp-comm-type')} by layer; all layers as the first, {kinds[0]}")
    if kinds[0] not in CP_KINDS:
        raise ConfigError(
            f"--from: {switches.shown('cp-comm-type')} {kinds[0]!r} does not exist{suggestion(kinds[0], CP_KINDS)}"
        )
    if kinds[0] == "all_gather":
        notes.append(f"{switches.shown('cp-comm-type')} all_gather is priced as a ring, which moves as many bytes")
    if kinds[0] != "a2a+p2p":
        return cp if kinds[0] == "a2a" else 1
    sizes = switches.text("hierarchical-context-parallel-sizes").split()
    if len(sizes) != 2 or not all(map(is_integer, sizes)) or int(sizes[0]) * int(sizes[1]) != cp:
        raise ConfigError(
            f"--from: {switches.shown('cp-comm-type')} a2a+p2p takes --hierarchical-context-parallel-sizes of two"
            f" numbers whose product is the {cp} context ranks, not {' '.join(sizes)!r}"
        )
    return int(sizes[0])


def _recompute(switches: Switches, notes: list[str]) -> tuple[str, list[str]]:
    """Level and modules beside the attention core, which is Megatron's choice where none is named.

    Raises:
        ConfigError: a module that Megatron does not have.
    """
    level = switches.text("recompute-granularity")
    level = (
        level if level in ("full", "selective") else "selective" if switches.has("recompute-activations") else "none"
    )
    if level != "selective" or not switches.text("recompute-modules"):
        return level, []
    named = _modules(switches, "recompute-modules", ("core_attn", *MEGATRON_MODULES), notes)
    return ("selective" if "core_attn" in named else "none"), [name for name in named if name != "core_attn"]


def _recomputed_share(switches: Switches, layers: float, chunks: int, notes: list[str]) -> float:
    """Share of a stage's layers that full recomputation takes: all, or the first of each chunk (`block`)."""
    each = switches.number("recompute-num-layers", default=1, low=0)
    if switches.text("recompute-method") == "block":
        return min(each * chunks / max(layers, 1.0), 1.0)
    if each > 1 and switches.text("recompute-granularity") == "full":
        notes.append(f"--recompute-num-layers {each} with method uniform is priced as 1: inputs of all layers are kept")
    return 1.0


def _modules(switches: Switches, option: str, names: tuple[str, ...], notes: list[str]) -> list[str]:
    """Names of modules in the order in which plans join them.

    Raises:
        ConfigError: a name that Megatron does not have.
    """
    words = switches.text(option).replace(",", " ").split()
    for word in words:
        if word in LATER_MODULES:
            notes.append(f"not modelled: {switches.shown(option)} {word}")
        elif word not in names:
            raise ConfigError(
                f"--from: {switches.shown(option)} {word!r} is no module of Megatron{suggestion(word, names)}"
            )
    return [name for name in names if name in words]


def _formats(switches: Switches, formats: str) -> list[str]:
    """Number formats of products and gradients."""
    said = COMPUTE.search(formats)
    compute = "fp8" if switches.has("fp8-format") else "fp4" if switches.has("fp4-format") else ""
    if said and not compute:
        compute = {"fp8": "fp8", "mxfp8": "fp8", "fp4": "fp4", "nvfp4": "fp4"}.get(said[1].lower(), "")
    lines = [f"workload.precision.compute={compute}"] if compute else []
    return lines + (["workload.precision.gradients=bf16"] if switches.has("grad-reduce-in-bf16") else [])


def _megatron_model(switches: Switches, recipe: str, notes: list[str]) -> tuple[list[str], int, bool]:
    """Overrides of the model, its layers, and whether it has experts: a recipe's, or one of the shape that is said.

    Raises:
        ConfigError: neither is said.
    """
    layers, hidden = switches.number("num-layers", default=0, low=0), switches.number("hidden-size", default=0, low=0)
    if not layers or not hidden:
        name = recipe or switches.text("tokenizer-model", "hf-model-path", "pretrained-checkpoint")
        option = _named(name)
        if not option:
            raise ConfigError("--from: the command says no shape: --num-layers and --hidden-size, or a recipe's name")
        tree = model_file(option)
        return [f"model={option}"], int(tree.get("layers", 0)), "experts" in tree.get("feed_forward", {})
    shape = _shape(switches, layers, hidden)
    experts = "feed_forward.experts" in shape
    option = next((name for name in available("model") if _fits(model_file(name), shape)), "")
    if option:
        notes.append(f"the shape is that of {option}")
        return [f"model={option}"], layers, experts
    base = "deepseek_v3" if switches.has("multi-latent-attention") else "mixtral_8x7b" if experts else "llama31_8b"
    if base == "deepseek_v3" and not experts:
        raise ConfigError(
            "--from: --multi-latent-attention without --num-experts is no shape that is read from a command"
        )
    notes.append(f"the shape is no model's of the catalogue: {base} with numbers of the command")
    shape["tied_embeddings"] = int(not switches.has("untie-embeddings-and-output-weights"))
    shape.setdefault("vocab", switches.number("padded-vocab-size", default=0, low=0) or int(model_file(base)["vocab"]))
    return (
        [
            f"model={base}",
            "workload.model.name=custom",
            *(f"workload.model.{key}={value}" for key, value in shape.items()),
        ],
        layers,
        experts,
    )


def _named(name: str) -> str:
    """Option of a recipe's or a hub's name; empty where there is none."""
    if not name or len(name) > 200:
        return ""
    short = re.sub(r"_(pretrain|sft|peft|finetune)\w*$", "", name)
    if option := model_option(short):
        return option
    try:
        return hub_name(name).model
    except ConfigError:
        return ""


def _shape(switches: Switches, layers: int, hidden: int) -> dict[str, int]:
    """Numbers of a transformer as the file of a model has them."""
    heads = switches.number("num-attention-heads", default=max(hidden // 128, 1))
    shape = {"layers": layers, "hidden": hidden, "attention.heads": heads}
    experts = switches.number("num-experts", default=0, low=0)
    width = switches.number("ffn-hidden-size", default=4 * hidden)
    if switches.has("multi-latent-attention"):
        names = {
            "q-lora-rank": "q_rank",
            "kv-lora-rank": "kv_rank",
            "qk-head-dim": "nope_dim",
            "qk-pos-emb-head-dim": "rope_dim",
            "v-head-dim": "value_dim",
        }
        shape |= {
            f"attention.{name}": switches.number(option) for option, name in names.items() if switches.has(option)
        }
    else:
        grouped = switches.has("num-query-groups") and (
            switches.has("group-query-attention") or switches.denied("group-query-attention")
        )
        shape["attention.kv_heads"] = (
            switches.number("num-query-groups") if grouped or switches.has("num-query-groups") else heads
        )
        shape["attention.head_dim"] = switches.number("kv-channels", default=max(hidden // heads, 1))
    if experts:
        expert_width = switches.number("moe-ffn-hidden-size", default=width)
        shape |= {"feed_forward.experts": experts, "feed_forward.top_k": switches.number("moe-router-topk", default=2)}
        shape["feed_forward.expert_width"] = expert_width
        shared = switches.number("moe-shared-expert-intermediate-size", default=0, low=0)
        if shared:
            shape["feed_forward.shared_experts"] = max(shared // expert_width, 1)
        dense = re.match(r"\(?\[0\]\*([0-9]{1,3})", switches.text("moe-layer-freq").replace(" ", ""))
        if dense:
            shape |= {"feed_forward.dense_layers": int(dense[1]), "feed_forward.dense_width": width}
    else:
        shape |= {"feed_forward.width": width, "feed_forward.gated": int(switches.has("swiglu"))}
    if switches.has("vocab-size"):
        shape["vocab"] = switches.number("vocab-size")
    return shape


def _fits(tree: Mapping[str, Any], shape: Mapping[str, int]) -> bool:
    """True if a model's file has these numbers."""
    for key, value in shape.items():
        node: Any = tree
        for part in key.split("."):
            node = node.get(part) if is_mapping(node) else None
        if node != value and not (key == "attention.head_dim" and node is None) and not (key == "vocab" and node):
            return False
    return True
