"""Plans of trainers: arguments of Megatron-LM and Megatron Bridge, and of torchtitan by its command or TOML."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...config import available
from ...config.groups import read_yaml
from ...config.model_names import hub_name, model_option
from ...core.errors import ConfigError, suggestion
from ...core.json_yaml import dumps, is_list, is_mapping
from ...core.resources import conf_dir
from ...model.workloads.plan import MEGATRON_MODULES, OFFLOAD_MODULES, PER_OP
from ..export_training import RECIPES
from .shell import EngineProgram
from .switches import (
    Ends,
    Switches,
    is_whole,
    megatron_ends,
    not_modelled_line,
    options_of,
    read_switches,
    switches_of_mapping,
    titan_ends,
)

__all__ = ["is_settings", "settings_program", "starts_training", "training_overrides"]

FileText = Callable[[str, EngineProgram], str | None]
SCRIPT = re.compile(r"(pretrain|finetune|setup_experiment|run_recipe|run_script)[\w-]*\.(py|sh)$")
OTHER_SCRIPT = re.compile(r"\.py$")
MEGATRON = ("--tensor-model-parallel-size", "--num-layers", "--micro-batch-size")  # tell a script of one's own
TITAN = re.compile(r"torchtitan[./]+(experiments[./]\w+[./])?train(\.py)?$|run_train\.sh$")
SECTION = re.compile(r"(?m)^\[(training|parallelism|model|activation_checkpoint)\][ \t]*$")
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
ZERO = {"optim": 1, "optim_grads": 2, "optim_grads_params": 3, "no_shard": 0}
TWO_CHUNKS = {"ZBVZeroBubble": "zb_v"}
"""Schedules of torch.distributed.pipelining with two chunks a rank -> those of plans."""
MUON = {"muon": 0, "dist_muon": 1}
"""Kinds of Muon -> ZeRO stage."""
CP_KINDS = ("p2p", "all_gather", "a2a", "a2a+p2p")
LATER_MODULES = (
    *("a2a_overlap_attn", "a2a_overlap_post_attn", "a2a_overlap_mlp", "fused_group_mlp", "dense_fc1", "pre_mlp"),
    *("routed_experts", "shared_fc1", "mhc", "gdn_norm_out"),
)
"""Modules of later releases of Megatron, with parts that this package does not tell apart."""
TITAN_LAYERS = "2"  # `selective_ac_option` of releases that have it, where nothing is said
KNOWN_SCHEDULES = ("", "1F1B", "Interleaved1F1B", *TWO_CHUNKS)
MAX_NUMBER = 10**9


def starts_training(one: EngineProgram) -> bool:
    """True if a command starts a trainer that is read."""
    return _place(one) is not None


def _place(one: EngineProgram) -> int | None:
    """Place of the trainer's name among the words."""
    own = any(word.partition("=")[0] in MEGATRON for word in one.words)
    for at, word in enumerate(one.words):
        if (
            SCRIPT.search(word)
            or TITAN.search(word)
            or word == "torchtitan.train"
            or (own and OTHER_SCRIPT.search(word))
        ):
            return at
    if own and one.words[0].rpartition("/")[2] in ("torchrun", "srun"):  # a script under a name that is not known
        return next((at for at, word in enumerate(one.words) if at and "$" in word and "-" not in word), None)
    return None


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


def training_overrides(one: EngineProgram, file_text: FileText) -> tuple[list[str], list[str]]:
    """Overrides of a training run, and lines of what was assumed.

    Raises:
        ConfigError: an option that no release has, a number that is none, degrees that do not fit the devices.
    """
    at = _place(one) or 0
    devices = _devices(one, one.words[:at])
    if TITAN.search(one.words[at]) or one.words[at] == "torchtitan.train":
        return _titan(one, list(one.words[at + 1 :]), devices, file_text)
    return _megatron(list(one.words[at + 1 :]), devices, one)


def _devices(one: EngineProgram, words: tuple[str, ...]) -> int:
    """Processes that a launcher starts: nodes times those of one; 0 where nothing is said."""
    result: dict[str, int] = {}
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        value = value if equals else (words[number + 1] if number + 1 < len(words) else "")
        if name in LAUNCHERS:
            value = value.rpartition(":")[2]  # of an elastic range the most
            if is_whole(value) and 0 < int(value) < MAX_NUMBER:
                result[LAUNCHERS[name]] = int(value)
    for name in ("NGPU", "WORLD_SIZE"):
        if is_whole(one.env.get(name, "")):
            result.setdefault("local" if name == "NGPU" else "all", int(one.env[name]))
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
    return _finished(overrides, plan, devices or counted, tp * pp * cp, result, notes)


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
        elif name in ("--num_gpus", "-ng") and is_whole(follows):
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
    if len(sizes) != 2 or not all(map(is_whole, sizes)) or int(sizes[0]) * int(sizes[1]) != cp:
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


def _modules(switches: Switches, option: str, known: tuple[str, ...], notes: list[str]) -> list[str]:
    """Names of modules in the order in which plans join them.

    Raises:
        ConfigError: a name that Megatron does not have.
    """
    words = switches.text(option).replace(",", " ").split()
    for word in words:
        if word in LATER_MODULES:
            notes.append(f"not modelled: {switches.shown(option)} {word}")
        elif word not in known:
            raise ConfigError(
                f"--from: {switches.shown(option)} {word!r} is no module of Megatron{suggestion(word, known)}"
            )
    return [name for name in known if name in words]


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
        tree = _tree(option)
        return [f"model={option}"], int(tree.get("layers", 0)), "experts" in tree.get("feed_forward", {})
    shape = _shape(switches, layers, hidden)
    experts = "feed_forward.experts" in shape
    option = next((name for name in available("model") if _fits(_tree(name), shape)), "")
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
    shape.setdefault("vocab", switches.number("padded-vocab-size", default=0, low=0) or int(_tree(base)["vocab"]))
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
        own = switches.number("moe-ffn-hidden-size", default=width)
        shape |= {"feed_forward.experts": experts, "feed_forward.top_k": switches.number("moe-router-topk", default=2)}
        shape["feed_forward.expert_width"] = own
        shared = switches.number("moe-shared-expert-intermediate-size", default=0, low=0)
        if shared:
            shape["feed_forward.shared_experts"] = max(shared // own, 1)
        dense = re.match(r"\(?\[0\]\*([0-9]{1,3})", switches.text("moe-layer-freq").replace(" ", ""))
        if dense:
            shape |= {"feed_forward.dense_layers": int(dense[1]), "feed_forward.dense_width": width}
    else:
        shape |= {"feed_forward.width": width, "feed_forward.gated": int(switches.has("swiglu"))}
    if switches.has("vocab-size"):
        shape["vocab"] = switches.number("vocab-size")
    return shape


def _tree(option: str) -> Mapping[str, Any]:
    """A model's file, whichever package it is written for."""
    path = conf_dir() / "model" / f"{option}.yaml"
    node: Any = read_yaml(path) if path.is_file() else {}
    for key in ("workload", "model"):
        node = node.get(key, node) if is_mapping(node) else {}
    return node if is_mapping(node) else {}


def _fits(tree: Mapping[str, Any], shape: Mapping[str, int]) -> bool:
    """True if a model's file has these numbers."""
    for key, value in shape.items():
        node: Any = tree
        for part in key.split("."):
            node = node.get(part) if is_mapping(node) else None
        if node != value and not (key == "attention.head_dim" and node is None) and not (key == "vocab" and node):
            return False
    return True


def _titan(one: EngineProgram, words: list[str], devices: int, file_text: FileText) -> tuple[list[str], list[str]]:
    policy = next((word.partition(":")[2] for word in words if word.startswith("activation-checkpoint:")), "")
    result = _titan_switches(one, [word for word in words if not word.startswith("activation-checkpoint:")], file_text)
    notes: list[str] = []
    option, layers, experts = _titan_model(result)
    section = "parallelism."
    tp, pp = (result.number(f"{section}{kind}-parallel-degree") for kind in ("tensor", "pipeline"))
    cp, ep = (result.number(f"{section}{kind}-parallel-degree") for kind in ("context", "expert"))
    replicate = result.number(f"{section}data-parallel-replicate-degree")
    shard = result.text(f"{section}data-parallel-shard-degree", default="-1")
    if shard != "-1":
        devices = devices or tp * pp * cp * replicate * result.number(f"{section}data-parallel-shard-degree")
    shards = shard != "1" and (not devices or devices // max(tp * pp * cp, 1) > replicate)
    again = result.text(f"{section}fsdp-reshard-after-forward", default="default")
    zero = (3 if again == "always" or (again == "default" and pp == 1) else 2) if shards else 0
    recomputed = _titan_recompute(result, policy, notes)
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
    total = result.text("training.global-batch-size", default="-1")
    replicas = max((devices or tp * pp * cp) // (tp * pp * cp), 1)
    batch = local * replicas if total == "-1" else result.number("training.global-batch-size")
    overrides = [f"model={option}", "workload=training"]
    if re.search("(?i)float8|mx", result.text("model.converters") + result.text("quantize.linear")):
        overrides.append("workload.precision.compute=fp8")
    overrides += [
        f"workload.sequence={result.number('training.seq-len', default=2048)}",
        f"workload.global_batch={batch}",
    ]
    return _finished(overrides, plan, devices, tp * pp * cp, result, notes)


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
    if pp > 1 and schedule not in KNOWN_SCHEDULES:
        notes.append(f"{schedule} is priced as 1F1B")
    return stages, first, last


def _titan_recompute(switches: Switches, policy: str, notes: list[str]) -> dict[str, str]:
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
        if not is_whole(every):
            raise ConfigError(
                f"--from: activation_checkpoint.selective_ac_option = {every!r} is neither op nor a number"
            )
        if int(every) <= 1:
            return {"recompute": "full"}
        notes.append(
            f"selective_ac_option={every}{'' if option else ' (its default)'} runs each {every}. layer again whole;"
            " priced as the attention core of every layer"
        )
        return {"recompute": "selective"}
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
    tree = _tree(option)
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


def _finished(
    overrides: list[str], plan: Mapping[str, str], devices: int, ranks: int, switches: Switches, notes: list[str]
) -> tuple[list[str], list[str]]:
    """Overrides with the number of devices, and lines.

    Raises:
        ConfigError: devices that the degrees do not divide.
    """
    if devices and devices % ranks:
        raise ConfigError(
            f"--from: {devices:,} devices are no multiple of the {ranks:,} that tensor, pipeline and context ranks take"
        )
    if not devices:
        notes.append(
            f"no launcher says how many devices there are: {ranks:,}, one replica; cluster.device_count says more"
        )
    lines = [f"cluster.device_count={devices or ranks}", *(f"plan.{key}={value}" for key, value in plan.items())]
    return [*overrides, *lines], [*notes, *not_modelled_line([switches])]
