"""`codesign export --to vllm`, `sglang` or `trtllm`: the command of each kind of serving engine of a design."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

from ..core.errors import ConfigError
from ..core.jax_typed import asarray
from ..core.resources import conf_dir
from ..core.untrusted_io import read_yaml_file
from ..model.workloads import EngineMemory, Plan, from_config_json
from .export_plan import CONTINUOUS, FILL_IN, SERVED, WIDTH, Command, Deployment, checked_text, comments, script

# Engines that serve a design: number of each kind, devices, and sequences and tokens of a step.


DEGREES = ("tp", "pp", "cp", "ep", "etp", "attention_dp", "micro_batch", "token_budget")
POOL = (
    *("prefill_devices", "prefill_tp", "prefill_pp", "prefill_ep", "prefill_etp", "prefill_attention_dp"),
    "prefill_token_budget",
)


@dataclasses.dataclass(frozen=True)
class EngineGroup:
    """Engines of one kind. An engine is `sharing` replicas of tp x cp x pp devices that share experts.

    spread: ranks over which experts are spread. groups: of tensor ranks in a replica that attend sequences of their
    own. sequences: decoded together by a replica.
    """

    role: str
    count: int
    tp: int
    pp: int
    cp: int
    sharing: int
    spread: int
    groups: int
    sequences: int
    chunk: int
    divided: int = 1

    @property
    def devices(self) -> int:
        """Devices of one engine."""
        return self.tp * self.pp * self.cp * self.sharing

    @property
    def attention_tp(self) -> int:
        """Ranks that share one sequence's heads."""
        return self.tp // self.groups

    @property
    def ranks(self) -> int:
        """Attention groups of an engine, each with a scheduler of its own."""
        return self.groups * self.sharing

    @property
    def of_a_group(self) -> int:
        """Sequences that one attention group decodes together."""
        return max(math.ceil(self.sequences / self.groups), 1)

    @property
    def step_tokens(self) -> int:
        """Prompt tokens of a step and one of each sequence that decodes in it."""
        return self.chunk + math.ceil(self.of_a_group / self.pp)


def engines(deployment: Deployment) -> list[EngineGroup]:
    """Group the engines of a deployment: one group, or one for prefill and one for decode.

    Raises:
        ConfigError: tensor ranks that attention groups do not divide.
    """
    of, pool = deployment.of, deployment.of("prefill_devices")
    if of("tp") % of("attention_dp"):
        raise ConfigError(f"export: attention_dp = {of('attention_dp')} does not divide tp = {of('tp')}")
    sharing = _sharing(of("tp"), of("ep"), of("etp"))
    decode = EngineGroup(
        role="decode" if pool else "", count=max(deployment.replicas // sharing, 1), tp=of("tp"), pp=of("pp"),
        cp=of("cp"), sharing=sharing, spread=of("ep"), groups=of("attention_dp"), sequences=of("micro_batch"),
        chunk=of("token_budget"), divided=of("decode_cp"),
    )  # fmt: skip
    if not pool:
        return [decode]
    sharing = _sharing(of("prefill_tp"), of("prefill_ep"), of("prefill_etp"))
    ranks = of("prefill_tp") * of("prefill_pp") * sharing
    prefill = EngineGroup(
        role="prefill", count=max(pool // ranks, 1), tp=of("prefill_tp"), pp=of("prefill_pp"), cp=1,
        sharing=sharing, spread=of("prefill_ep"), groups=of("prefill_attention_dp"),
        sequences=of("prefill_pp") * of("prefill_attention_dp"),  # a prompt a stage and group
        chunk=of("prefill_token_budget") or of("token_budget"),
    )  # fmt: skip
    return [prefill, decode]


def _sharing(tp: int, ep: int, etp: int) -> int:
    """Replicas that share experts, as `Layout.sharing` has it."""
    return max(ep * (etp or tp) // tp, 1)


def longest(deployment: Deployment) -> int:
    """Tokens of prompt and answer; 0 where lengths vary, so that their mean is no bound."""
    if deployment.number("input_cv") or deployment.number("output_cv"):
        return 0
    return math.ceil(mean_request(deployment))


def mean_request(deployment: Deployment) -> float:
    """Tokens of a mean prompt, its images among them, and of its answer."""
    tokens, images = deployment.number("input_tokens") + deployment.number("output_tokens"), deployment.number("images")
    if not images:
        return tokens
    vision = from_config_json(
        str(deployment.model.get("path", "")), image_patches=int(deployment.model.get("image_patches", 0))
    )
    assert vision.vision is not None  # a run with images is of a model that sees
    return tokens + images * float(vision.vision.tokens_per_image())


def about(deployment: Deployment, group: EngineGroup, command: Command) -> None:
    """Note the number of engines to start and their devices, with a remark if an engine exceeds a node."""
    kind = f"{group.role} engine" if group.role else "engine"
    times = f"start {group.count:,} of these" if group.count > 1 else "start one of these"
    command.note(f"{kind}: {group.devices} devices; {times}", *DEGREES, *POOL)
    if group.devices > deployment.domain:
        command.note(f"an engine is larger than a node of {deployment.domain} devices")


def load_notes(deployment: Deployment, groups: list[EngineGroup]) -> list[str]:
    """Notes on what the model takes for granted of requests and of what stands in front of the engines."""
    seen = f" and {deployment.number('images'):g} images" if deployment.number("images") else ""
    mean = f"{deployment.number('input_tokens'):g} tokens{seen} in, {deployment.number('output_tokens'):g} out"
    notes = [f"sized for requests of {mean}, of which a replica decodes {groups[-1].sequences} together"]
    if deployment.number("arrivals_per_s"):
        notes.append(f"assumed: {deployment.number('arrivals_per_s'):g} requests/s for all engines together")
    if not longest(deployment):
        notes.append(
            f"lengths vary (input_cv {deployment.number('input_cv'):g}, output_cv {deployment.number('output_cv'):g}):"
            " the longest context is what the caches of the design hold; no longer one would fit"
        )
    if sum(group.count for group in groups) > 1:
        notes.append("assumed: a router in front that spreads requests evenly; it is no part of these commands")
    if groups[-1].role:
        notes.append("assumed: every prompt is computed in the prefill pool, its keys and values then cross to decode")
    if deployment.work not in CONTINUOUS:
        notes.append("assumed: static batches; the engine batches continuously and will differ")
    draft = "the model's own modules draft (MTP)" if deployment.workload.get("own_drafts") else "the draft is yours"
    for name, text in (
        ("cached_ratio", "share of a prompt found in the prefix cache"),
        ("accepted_tokens", f"tokens of a sequence right in one step of speculation, to configure: {draft}"),
    ):
        usual = 1.0 if name == "accepted_tokens" else 0.0
        if deployment.number(name, default=usual) != usual:
            notes.append(f"assumed: {name} = {deployment.number(name):g} ({text})")
    return notes


def format_notes(deployment: Deployment, command: Command, switched: bool) -> None:
    """Note what switches do not say about number formats."""
    compute, weights = deployment.format("compute"), deployment.format("weights")
    if switched:
        command.note(f"{weights} weights: made of the checkpoint when it is loaded; leave out the switch if it is one")
    if compute != weights:
        command.note(f"assumed: products in {compute} of {weights} weights; the engine chooses that by the checkpoint")
    for tensor in ("attention", "dispatch", "activations"):
        if deployment.format(tensor) != "bf16":
            command.note(f"no switch: {tensor} in {deployment.format(tensor)}")


def spilled_gib(deployment: Deployment, group: EngineGroup) -> int:
    """GiB of weights of one device that the plan keeps in the host's memory, rounded up."""
    return (
        math.ceil(deployment.spilled_bytes / 2**30)
        if deployment.plan["offload_weights"] and group.role != "prefill"
        else 0
    )


# Memory of an exported engine: its share of a device's memory and its longest request, by the design's own account.


STEP = 0.01  # of a share, rounded up
FULLEST = 0.97  # share beyond which engines have no room for what no account holds


def longest_request(deployment: Deployment, group: EngineGroup) -> int:
    """Tokens of the longest request: prompt and answer where all are alike, else what the caches of a group hold.

    Engines refuse to start where a request of this length would not fit alone.
    """
    if longest(deployment):
        return longest(deployment)
    mean = mean_request(deployment)
    return max(math.floor(mean * group.of_a_group), math.ceil(mean))


def add_memory(deployment: Deployment, group: EngineGroup, command: Command, option: str, engine: str) -> None:
    """The least share of a device's memory that has room for what the design stores, by the engine's own account.

    Args:
        deployment: the design.
        group: its engines; those of a pool for prompts alone store less, which the account does not tell apart.
        command: that the switch is added to.
        option: its name.
        engine: option of the group `engine_memory`.
    """
    if not deployment.capacity_bytes or not deployment.stored() or group.role == "prefill":
        return
    degrees: dict[str, Any] = {
        name: deployment.plan[name] for name in ("tp", "pp", "cp", "ep", "etp") if name in deployment.plan
    }
    plan = Plan(**degrees)
    near = dict.fromkeys(("weights", "kv_cache", "working", "graphs"), 0.0) | dict(deployment.memory)
    stored = {name: asarray(nbytes) for name, nbytes in near.items()}
    share = float(_memory_of(engine).needed_share(asarray(deployment.capacity_bytes), plan, stored))
    command.add(option, f"{min(math.ceil(share / STEP) * STEP, FULLEST):.2f}")
    if share > FULLEST:
        command.note(f"the design fills {share:.1%} of the memory: {option} {FULLEST} leaves room for fewer sequences")


@functools.cache
def _memory_of(engine: str) -> EngineMemory:
    """The memory of an engine that is given a share."""
    result = read_yaml_file(conf_dir() / "engine_memory" / f"{engine}.yaml", f"engine_memory/{engine}.yaml")
    names = {field.name for field in dataclasses.fields(EngineMemory)}
    settings: dict[str, Any] = {key: value for key, value in result.items() if key in names}
    settings["utilisation"] = 1.0
    return EngineMemory(**settings)


# The command that would measure what a design of serving promises: `vllm bench serve`, which any engine answers.


FILE = "benchmark.sh"
BACKENDS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
ROUNDS = 8  # of requests, for each that is under way: a closed loop has forgotten its start by then
FEWEST = 200
MOST_RATIO = 0.99  # of the range of random lengths


def benchmark(deployment: Deployment, groups: list[EngineGroup], engine: str) -> dict[str, str]:
    """The benchmark's script, with the predicted figures above it.

    A closed loop keeps as many requests under way as the engines of the design decode; an open one sends them at the
    rate of the study, with gaps of the same variation (burstiness is 1 / variation squared).
    """
    command = Command(["vllm", "bench", "serve"])
    command.add("--backend", BACKENDS.get(engine, "vllm"))
    command.add("--base-url", "http://localhost:8000" if engine != "sglang" else "http://localhost:30000")
    command.add("--model", deployment.hub or f"{FILL_IN}-MODEL")
    command.add("--dataset-name", "random")
    command.add("--random-input-len", round(deployment.number("input_tokens", default=2048)))
    command.add("--random-output-len", round(deployment.number("output_tokens", default=512)))
    spread = max(deployment.number("input_cv"), deployment.number("output_cv"))
    if spread:
        command.add("--random-range-ratio", f"{min(math.sqrt(3) * spread, MOST_RATIO):.2f}")
        command.note("lengths are drawn evenly around their mean, with the variation of the study where that can be")
    decode = groups[-1]
    under_way = max(decode.sequences * decode.sharing * decode.count, 1)
    rate = deployment.number("arrivals_per_s")
    if rate:
        command.add("--request-rate", f"{rate:g}")
        variation = deployment.number("arrival_cv", default=1.0)
        if variation and variation != 1:
            command.add("--burstiness", f"{1 / variation**2:.4g}")
    else:
        command.add("--max-concurrency", under_way)
    command.add("--num-prompts", max(ROUNDS * under_way, FEWEST) if not rate else max(math.ceil(600 * rate), FEWEST))
    command.add("--ignore-eos")
    command.add("--percentile-metrics", "ttft,tpot,itl,e2el")
    command.add("--save-result")
    for name, unit in (("ttft_s", "s to the first token"), ("tpot_s", "s a token after it")):
        if name in deployment.predicted:
            command.note(f"predicted: {deployment.predicted[name]:.4g} {unit}")
    if deployment.predicted.get("tokens_per_s"):
        command.note(f"predicted: {deployment.predicted['tokens_per_s']:,.0f} tokens/s")
    if deployment.number("images"):
        command.note(f"it sends text alone: {deployment.number('images'):g} images a request are yours to add")
    if sum(group.count for group in groups) > 1:
        command.note("the URL is that of the router in front of all engines")
    command.note("`codesign import` reads the file that it saves, beside the measurements of `codesign validate`")
    head = [checked_text("vllm_bench"), f"{deployment.title}: what would measure its prediction"]
    assert all(len(line) < 3 * WIDTH for line in head)
    return {FILE: comments(head) + command.text()}


# `codesign export --to sglang`: one `sglang.launch_server` for each kind of engine.


SGLANG_WEIGHTS = {"fp8": "fp8", "int8": "w8a8_int8", "fp4": "nvfp4_online"}

SGLANG_CACHE = {"bf16": "bf16", "fp8": "fp8_e4m3", "fp4": "nvfp4"}

PLAIN = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
TRANSFER = "mooncake"


def sglang(deployment: Deployment) -> dict[str, str]:
    """A script with the commands.

    Raises:
        ConfigError: SGLang cannot run the plan.
    """
    deployment.refuse_unless(SERVED, "sglang")
    if deployment.of("cp") > 1:
        raise ConfigError(
            f"export: cp = {deployment.of('cp')}: SGLang carves context parallelism out of its tensor ranks, the plan"
            " adds devices to them; --to vllm has --prefill-context-parallel-size"
        )
    groups = engines(deployment)
    commands = [_sglang_command(deployment, group) for group in groups]
    text = script(deployment, "sglang", commands, load_notes(deployment, groups))
    return {"sglang.sh": text, **benchmark(deployment, groups, "sglang")}


def _sglang_command(deployment: Deployment, group: EngineGroup) -> Command:
    command = Command(["python", "-m", "sglang.launch_server"])
    about(deployment, group, command)
    command.add("--model-path", deployment.hub or f"{FILL_IN}-MODEL")
    _sglang_degrees(deployment, group, command)
    command.add("--max-running-requests", group.sequences * group.sharing)
    command.add("--chunked-prefill-size", group.chunk * group.ranks)
    if group.ranks > 1:
        command.note(f"both budgets are of the whole engine: SGLang divides them by its {group.ranks} attention groups")
    if not group.role:
        command.add("--enable-mixed-chunk")
        command.note("prompts ride with decodes in one step, as the model has it: --enable-mixed-chunk")
    command.add("--context-length", longest_request(deployment, group))
    add_memory(deployment, group, command, "--mem-fraction-static", "sglang")
    _formats(deployment, command, SGLANG_WEIGHTS, SGLANG_CACHE)
    if spilled_gib(deployment, group):
        command.add("--cpu-offload-gb", spilled_gib(deployment, group), "offload_weights")
    if group.role:
        command.add("--disaggregation-mode", group.role)
        command.add("--disaggregation-transfer-backend", TRANSFER)
        command.note("the backend of transfers is one of several: the plan says only that keys and values cross")
    return command


def _sglang_degrees(deployment: Deployment, group: EngineGroup, command: Command) -> None:
    ranks = group.tp * group.sharing
    command.add("--tp-size", ranks)
    command.add("--pp-size", group.pp)
    if group.ranks > 1:
        command.add("--attn-dp-size", group.ranks)
    if group.divided > 1:
        command.add("--decode-context-parallel-size", group.divided, "decode_cp")
    if group.spread > 1:
        command.add("--ep-size", group.spread)
    if group.sharing > 1:
        command.note(f"{group.sharing} replicas that share experts are one engine of {ranks} tensor ranks")
    if group.devices > deployment.domain:
        nodes = math.ceil(group.devices / deployment.domain)
        command.note(f"on {nodes} nodes: add --nnodes {nodes} --node-rank RANK --dist-init-addr ADDRESS:PORT on each")


def _formats(
    deployment: Deployment, command: Command, weight_words: Mapping[str, str], cache_words: Mapping[str, str]
) -> None:
    """Switches of the formats of weights and cache, by an engine's words for them."""
    weights, cache = deployment.format("weights"), deployment.format("kv_cache")
    if weights in PLAIN:
        command.add("--dtype", PLAIN[weights])
    elif weights in weight_words:
        command.add("--quantization", weight_words[weights])
    format_notes(deployment, command, switched=weights in weight_words)
    if cache in cache_words:
        command.add("--kv-cache-dtype", cache_words[cache])
    else:
        command.note(f"no switch: cache of keys and values in {cache}")


# `codesign export --to trtllm`: one `trtllm-serve` for each kind of engine, with a file of what has no switch.
#
# Not checked against a package: none with the parser was to be had. Names are those of
# `tensorrt_llm/commands/serve.py` and of the fields of `tensorrt_llm/llmapi/llm_args.py` in NVIDIA/TensorRT-LLM at
# commit 00209af.


TRTLLM_CACHE = {"bf16": "auto", "fp16": "auto", "fp8": "fp8", "fp4": "nvfp4"}


def trtllm(deployment: Deployment) -> dict[str, str]:
    """A script with the commands, and the file that each reads.

    Raises:
        ConfigError: TensorRT-LLM cannot run the plan.
    """
    deployment.refuse_unless(SERVED, "trtllm")
    groups, files = engines(deployment), dict[str, str]()
    commands: list[Command] = []
    for group in groups:
        _refuse_split(group)
        name = f"trtllm_{group.role}.yaml" if group.role else "trtllm.yaml"
        commands.append(_trtllm_command(deployment, group, name))
        files[name] = _options(deployment, group)
    return (
        {"trtllm.sh": script(deployment, "trtllm", commands, load_notes(deployment, groups))}
        | files
        | benchmark(deployment, groups, "trtllm")
    )


def _refuse_split(group: EngineGroup) -> None:
    """Attention is either cut over all ranks of an engine or over none."""
    if group.ranks > 1 and group.attention_tp > 1:
        raise ConfigError(
            f"export: TensorRT-LLM cuts attention over all ranks of an engine or over none, the plan over"
            f" {group.attention_tp} of {group.tp * group.sharing}; --to vllm and --to sglang can"
        )


def _trtllm_command(deployment: Deployment, group: EngineGroup, options: str) -> Command:
    command = Command(["trtllm-serve", deployment.hub or f"{FILL_IN}-MODEL"])
    about(deployment, group, command)
    command.add("--tp_size", group.tp * group.sharing)
    command.add("--pp_size", group.pp)
    if group.cp > 1:
        command.add("--cp_size", group.cp)
    if group.spread > 1:
        command.add("--ep_size", group.spread)
    command.add("--max_batch_size", group.of_a_group)
    command.add("--max_num_tokens", group.step_tokens)
    command.note("--max_batch_size and --max_num_tokens are taken to be those of one rank that attends alone")
    command.add("--max_seq_len", longest_request(deployment, group))
    command.add("--enable_chunked_prefill")
    command.add("--config", options)
    if group.role:
        command.add("--server_role", {"prefill": "context", "decode": "generation"}[group.role])
        command.note("--server_role needs a metadata server or a cluster's URI, which the plan does not name")
    if deployment.format("weights") not in ("bf16", "fp16", "fp32"):
        command.note(f"{deployment.format('weights')} weights: the checkpoint must be one, there is no switch")
    format_notes(deployment, command, switched=False)
    return command


def _options(deployment: Deployment, group: EngineGroup) -> str:
    """Content of the file for `--config`."""
    cache = deployment.format("kv_cache")
    lines = [f"enable_attention_dp: {str(group.ranks > 1).lower()}"]
    if cache in TRTLLM_CACHE:
        lines += ["kv_cache_config:", f"  dtype: {TRTLLM_CACHE[cache]}"]
    return comments([checked_text("trtllm")]) + "\n".join(lines) + "\n"


# `codesign export --to vllm`: one `vllm serve` for each kind of engine.


VLLM_WEIGHTS = {"fp8": "fp8", "int8": "int8_per_channel_weight_only", "fp4": "nvfp4_per_token"}

VLLM_CACHE = {"bf16": "auto", "fp16": "auto", "fp8": "fp8"}

CONNECTOR = "NixlConnector"
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}


def vllm(deployment: Deployment) -> dict[str, str]:
    """A script with the commands.

    Raises:
        ConfigError: vLLM cannot run the plan.
    """
    groups, commands = engines(deployment), vllm_commands(deployment)
    text = script(deployment, "vllm", commands, load_notes(deployment, groups))
    return {"vllm.sh": text, **benchmark(deployment, groups, "vllm")}


def vllm_commands(deployment: Deployment, target: str = "vllm") -> list[Command]:
    """One for each kind of engine.

    Raises:
        ConfigError: vLLM cannot run the plan.
    """
    deployment.refuse_unless(SERVED, target)
    if deployment.of("attention_dp") > 1 and deployment.is_dense:
        raise ConfigError(
            f"export: attention_dp = {deployment.of('attention_dp')} of a model without experts: data-parallel ranks of"
            " vLLM would each hold the whole feed-forward network; --to sglang has --attn-dp-size"
        )
    return [_vllm_command(deployment, group) for group in engines(deployment)]


def _vllm_command(deployment: Deployment, group: EngineGroup) -> Command:
    command = Command(["vllm", "serve", deployment.hub or f"{FILL_IN}-MODEL"])
    about(deployment, group, command)
    _vllm_degrees(deployment, group, command)
    command.add("--max-num-seqs", group.of_a_group)
    command.add("--max-num-batched-tokens", max(group.step_tokens, group.of_a_group))
    command.note(
        f"the budget of a step counts decoded tokens too: {group.chunk:,} of prompts and one a sequence; --max-num-seqs"
        " counts prompts under way besides decodes"
    )
    command.add("--max-model-len", longest_request(deployment, group))
    add_memory(deployment, group, command, "--gpu-memory-utilization", "vllm_0_21")
    _formats(deployment, command, VLLM_WEIGHTS, VLLM_CACHE)
    if spilled_gib(deployment, group):
        command.add("--cpu-offload-gb", spilled_gib(deployment, group), "offload_weights")
    if group.role:
        command.add("--kv-transfer-config.kv_connector", CONNECTOR)
        command.add("--kv-transfer-config.kv_role", ROLES[group.role])
        command.note("the connector is one of several: the plan says only that keys and values cross")
    return command


def _vllm_degrees(deployment: Deployment, group: EngineGroup, command: Command) -> None:
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
    if group.spread > 1:
        command.add("--enable-expert-parallel")
    if 1 < group.spread < group.tp * group.sharing:
        command.note(
            f"ep = {group.spread}: vLLM puts whole experts on each of the {group.ranks * group.attention_tp} ranks;"
            f" the model cut each over {group.tp * group.sharing // group.spread} of them"
        )
    if group.devices > deployment.domain:
        nodes = math.ceil(group.devices / deployment.domain)
        command.note(f"on {nodes} nodes: add --nnodes {nodes} --node-rank RANK --master-addr ADDRESS on each")
