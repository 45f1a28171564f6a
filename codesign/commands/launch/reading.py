"""`codesign evaluate --from COMMAND | FILE`: launch commands, scripts and manifests as overrides of a design."""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...config.engines import FIELD, EngineStart, engine_overrides
from ...core.errors import ConfigError
from ...core.json_yaml import is_mapping
from ...core.untrusted_io import read_text, tree_of_yaml
from .engine_plan import EnginePlan, LaunchedModel, format_overrides, model_of, plan_of, role_of
from .maxtext_arguments import maxtext_overrides, starts_maxtext
from .shell import EngineProgram, is_manifest, manifest_programs, programs
from .switches import Switches, is_integer, not_modelled_line, read_switches, switches_of_mapping
from .torchtitan_arguments import is_settings, settings_program
from .trainer_arguments import starts_training, training_overrides

__all__ = ["Launch", "read_launch", "with_launch"]


# Memory of a launch command once its accelerator is known: the engine's share, weights in the host's, lengths.


INPUT_SHARE = 0.8  # of the longest request, where the lengths at hand are longer


class CacheRoom(NamedTuple):
    """Share of the memory that an engine takes, GiB of weights in the host's, tokens of the longest request; 0: unsaid.

    engine: whose memory it is; sequences, tokens: whether the command says how many a step has.
    """

    utilisation: float = 0.0
    offload_gib: float = 0.0
    longest: int = 0
    engine: str = ""
    sequences: bool = True
    tokens: bool = True


def memory_overrides(room: CacheRoom, overrides: Sequence[str], said: AbstractSet[str]) -> tuple[list[str], list[str]]:
    """Overrides of memory and lengths, and lines about them.

    Args:
        room: of the command.
        overrides: of the design so far.
        said: keys that are overridden by hand, which stay as they are.

    Raises:
        ConfigError: a configuration that is wrong, or an offload of more than the weights.
    """
    if room == CacheRoom():
        return [], []
    from ...config.composition import compose  # with the first command that asks

    config = compose(list(overrides))
    result, notes = list[str](), list[str]()
    if room.engine and not any(key == "engine_memory" or key.startswith(FIELD) for key in said):
        result += _engine(room, config, notes)
    if room.engine.startswith("vllm") and not room.tokens and "plan.token_budget" not in said:
        result += _budget(overrides, result, config, notes)
    if room.longest:
        result += _lengths(config, room.longest, said, notes)
    if room.engine and not room.sequences and "plan.micro_batch" not in said:
        result += _fewer([*overrides, *result], notes)
    if room.offload_gib and "plan.offload_weights" not in said:
        result += _offload([*overrides, *result], room.offload_gib * 2**30, notes)
    return result, notes


def _engine(room: CacheRoom, config: Any, notes: list[str]) -> list[str]:
    """The engine's memory, the share that it takes and the step that it sizes its activations by."""
    device, capacity = config.cluster.accelerator, config.cluster.accelerator.hbm.get("capacity_bytes")
    if not isinstance(capacity, int | float):
        notes.append("the engine's share of memory is not modelled for a memory of several tiers")
        return [f"engine_memory={room.engine}"]
    said = [config.plan.get(name) for name in ("tp", "pp", "token_budget")]
    tp, pp, chunk = (float(value) if isinstance(value, int | float) else 1.0 for value in said)
    start = EngineStart(
        room.engine, room.utilisation, str(device.get("name", "")), float(capacity), tp, pp, chunk,
        room.sequences, room.tokens,
    )  # fmt: skip
    result = engine_overrides(start)
    if not room.utilisation:
        share = next(one.partition("=")[2] for one in result if one.startswith(f"{FIELD}.utilisation"))
        notes.append(f"the engine's share of memory is not said: {share}, its default")
    return result


def _budget(overrides: Sequence[str], engine: Sequence[str], config: Any, notes: list[str]) -> list[str]:
    """Prompt tokens of a step where the command states none: the engine's default for the device, less decodes."""
    if any(text.startswith("plan.token_budget=") for text in overrides):
        return []
    step_tokens = next((int(text.partition("=")[2]) for text in engine if text.startswith(f"{FIELD}.tokens=")), 0)
    if not step_tokens:
        notes.append("--max-num-batched-tokens is not said: plan.token_budget is the default of codesign")
        return []
    budget = max(step_tokens - math.ceil(float(config.plan.micro_batch) / float(config.plan.pp)), 1)
    notes.append(f"--max-num-batched-tokens is not said: {step_tokens}, its default, of which prompts take {budget}")
    return [f"plan.token_budget={budget}"]


def _fewer(overrides: Sequence[str], notes: list[str]) -> list[str]:
    """Reduce the batch to the sequences that fit, where the command does not state it and the default does not fit."""
    from ...config.study import scenario_from_config
    from ...jaxprs.evaluator import interpreted
    from ...model.metrics import cache_room, memory_by_class
    from ..setup import prepare_jax

    prepare_jax()
    scenario = scenario_from_config(*overrides)

    def numbers(one: Any) -> Any:
        layout = one.workload.laid_out(one.layout)
        used = memory_by_class(one, layout)
        return cache_room(one, layout, used), used["hbm/kv_cache"]

    planned = float(scenario.plan.micro_batch)
    room, cache = (float(value) for value in interpreted(numbers, always=True)(scenario))
    if not 0 < room < cache:
        return []
    fits = max(int(planned * room / cache), 1)
    notes.append(f"the cache has room for {fits} of {planned:g} sequences: plan.micro_batch={fits}")
    return [f"plan.micro_batch={fits}"]


def _lengths(config: Any, longest: float, said: AbstractSet[str], notes: list[str]) -> list[str]:
    """Lengths of requests that the engine takes, where those of the workload are longer."""
    tokens = [config.workload.get(name) for name in ("input_tokens", "output_tokens")]
    names = {"workload.input_tokens", "workload.output_tokens", "workload.trace"}
    if not all(isinstance(one, int | float) for one in tokens) or sum(tokens) <= longest:
        return []
    if said & names:
        notes.append(f"requests of {sum(tokens):g} tokens are longer than the {longest:g} that the engine takes")
        return []
    prompt = max(int(INPUT_SHARE * longest), 1)
    answer = max(int(longest) - prompt, 2)
    notes.append(f"requests of {prompt} + {answer} tokens: the longest that the engine takes")
    return [f"workload.input_tokens={prompt}", f"workload.output_tokens={answer}"]


def _offload(overrides: Sequence[str], held: float, notes: list[str]) -> list[str]:
    """Share of a device's weights that the host keeps."""
    from ...config.study import scenario_from_config
    from ...search.results import numbers_in, priced
    from ..setup import prepare_jax

    prepare_jax()
    numbers = numbers_in(priced(scenario_from_config(*overrides)))
    stored = sum(
        value for key, value in numbers.items() if key.startswith("memory_bytes.") and key.endswith("/weights")
    )
    if not stored:
        raise ConfigError("--from: --cpu-offload-gb: this workload stores no weights")
    if held > stored:
        notes.append(
            f"--cpu-offload-gb is more than the {stored / 2**30:.3g} GiB of weights of a device: all are offloaded"
        )
    return [f"plan.offload_weights={min(held / stored, 1.0):.6g}"]


READ = (
    "vllm serve MODEL, sglang serve --model-path MODEL, trtllm-serve MODEL, torchrun ... pretrain_gpt.py,"
    " torchrun -m torchtitan.train, python -m MaxText.train, docker run of such, or a file with one"
)
MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "sglang.launch_server": "sglang",
    "vllm.entrypoints.cli.main": "vllm",
    "dynamo.vllm": "vllm-dynamo",
    "dynamo.sglang": "sglang-dynamo",
    "dynamo.trtllm": "trtllm-dynamo",
    "sglang.srt.entrypoints.http_server": "sglang",
}
DOCKER = ("docker", "podman", "nerdctl", "docker.io")
DOCKER_FLAGS = re.compile(
    r"-[dit]{1,3}|--(rm|privileged|init|detach|interactive|tty|read-only|oom-kill-disable|publish-all|quiet|no-healthcheck)"
    r"|-[Pq]|--[\w-]+=.*|-[evpwhum].+=.*|-[ev]\S+"
)
IMAGES = re.compile(r"(?i)(^|/)([\w.-]*vllm[\w.-]*)(:[\w.-]+)?(@sha256:\w+)?$")
DYNAMO_FLAGS = (
    "--is-prefill-worker --is-decode-worker --publish-events-and-metrics --multimodal-processor --multimodal-worker"
    " --use-kv-events --enable-multimodal --frontend-decoding --publish-kv-events --publish-metrics"
    " --use-vllm-tokenizer --no-publish-kv-events --use-sglang-tokenizer --no-publish-metrics"
)
DYNAMO_VALUES = (
    "--disaggregation-mode --disaggregation-strategy --connector --endpoint --migration-limit --extra-engine-args"
    " --override-engine-args --custom-jinja-template --namespace --modality --store-kv --request-plane --event-plane"
    " --response-plane --discovery-backend --kv-block-size --benchmark-mode --health-check-payload --engine-route"
    " --ec-connector-backend --ec-storage-path --ec-consumer-mode --output-modalities"
)
DYNAMO_OPTIONS: dict[str, int] = {
    **dict.fromkeys(map(str, DYNAMO_FLAGS.split()), 0), **dict.fromkeys(map(str, DYNAMO_VALUES.split()), 1),
}  # fmt: skip
"""Options of Dynamo's workers that their engines do not have -> words that they take."""
QUIET_ENV = re.compile(
    r"_(LOG|LOGGING|CACHE|HOST|PORT|API_KEY|TIMEOUT|CONFIG|USAGE|DEBUG|NIXL|MODELSCOPE|WORKER_MULTIPROC|ALLOW|RPC|TRACE"
    r"|SERVER_DEV|ENGINE_READY|TARGET_DEVICE|PLUGINS|ROOT|DISABLE_COMPILE|SKIP|NO_USAGE|ASSETS|MEDIA|IMAGE|VIDEO|AUDIO|USE_V1)"
)
ENGINE_ENV = re.compile(r"(VLLM|SGLANG|SGL|TRTLLM|TLLM)_[A-Z0-9_]+")
COUNTED = re.compile(r"(?m)^# [\w ]*engine: .*; start ([0-9,]{1,12}|one) of these$")
MOST_TEXT = 2**20  # characters of a text of commands
SHOWN = 4


class Launch(NamedTuple):
    """Overrides that commands mean, a line for what no override takes, and what waits for the accelerator."""

    overrides: tuple[str, ...]
    left: tuple[str, ...]
    memory: CacheRoom = CacheRoom()


class Server(NamedTuple):
    """One engine that a command starts."""

    switches: Switches
    program: EngineProgram
    role: str
    leads: bool
    says_role: bool


def read_launch(source: str, *, model: str = "", devices: int = 0) -> Launch:
    """Overrides of a command, of a script or manifest, or of a file with one.

    Args:
        source: the text, or the path of a file.
        model: an override that chooses the model, which then need not be known by its name.
        devices: of the machine, where somebody says, for a program that takes all.

    Raises:
        ConfigError: no program that is read, a switch, choice or model that is not known.
    """
    result = _programs(source)
    servers = [server for one in result if (server := _server(one)) is not None]
    if servers:
        return _served(servers, model)
    trained = next((one for one in result if starts_training(one)), None)
    if trained is not None:
        overrides, notes = training_overrides(trained, _file_text)
        return Launch(tuple(overrides), tuple(notes))
    maxtext = next((one for one in result if starts_maxtext(one)), None)
    if maxtext is not None:
        overrides, notes = maxtext_overrides(maxtext, devices)
        return Launch(tuple(overrides), tuple(notes))
    start = " ".join(result[0].words[:3]) if result else source[:40]
    raise ConfigError(f"--from: {start!r} is no command that is read: {READ}")


def with_launch(source: str, overrides: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Overrides of a command, but for those keys that are overridden besides, and lines on what was read.

    Raises:
        ConfigError: see `read_launch`; memory that the engine's share leaves none of.
    """
    combined = list(overrides)
    chosen = next((one for one in combined if one.startswith("model=")), "")
    count = next((one.partition("=")[2] for one in combined if one.startswith("cluster.device_count=")), "")
    result = read_launch(source, model=chosen, devices=int(count) if is_integer(count) else 0)
    said = {one.partition("=")[0].lstrip("+~") for one in combined}
    read = [one for one in result.overrides if not {one.partition("=")[0], *_also(one)} & said]
    more, notes = memory_overrides(result.memory, [*read, *combined], said)
    read += more
    left = [line for line in result.left if not any(f"{key} is the default" in line for key in said)]
    return (*read, *combined), (f"read as: {' '.join(read)}", *left, *notes)


def _also(override: str) -> tuple[str, ...]:
    """Other keys that say what an override says."""
    key = override.partition("=")[0]
    if key.endswith("plan.device_count"):
        return ("cluster.device_count", "plan.device_count")
    if key.startswith("model."):
        return (f"workload.{key}",)
    return (key.removeprefix("workload."),) if key.startswith("workload.model.") else ()


def _programs(source: str) -> list[EngineProgram]:
    text, what = source, "--from"
    if len(source) < 4096 and "\n" not in source and os.path.isfile(source):
        text, what = read_text(Path(source), f"--from: file {source!r}", MOST_TEXT), f"--from: file {source!r}"
    elif re.fullmatch(r"\S+\.(sh|ya?ml|json|toml|txt)", source.strip()):
        raise ConfigError(f"--from: file {source.strip()!r} cannot be read: No such file or directory")
    if len(text) > MOST_TEXT:
        raise ConfigError(f"--from: {len(text):,} characters are no launch command; allowed: at most {MOST_TEXT:,}")
    if is_manifest(text):
        return manifest_programs(text, what)
    if is_settings(text):
        return [settings_program(text, what)]
    return _counted(text, programs(text))


def _counted(text: str, candidates: list[EngineProgram]) -> list[EngineProgram]:
    """Commands as often as the comments of `codesign export` say that each is started."""
    counts = [1 if one == "one" else int(one.replace(",", "") or 1) for one in COUNTED.findall(text)]
    starting = [one for one in candidates if _start(one) is not None]
    if len(counts) != len(starting):
        return candidates
    each = dict(zip(map(id, starting), counts, strict=True))
    return [replace(one, replicas=each.get(id(one), 1)) for one in candidates]


def _server(one: EngineProgram) -> Server | None:
    """The engine that a command starts; None where it starts none."""
    started = _start(one)
    if started is None:
        return None
    engine, words, role = started
    result = read_switches(engine, words)
    for option in ("config", "extra-llm-api-options"):
        if name := result.text(option):
            result = _with_file(result, engine, name, one)
            break
    if not result.model:
        result.model = result.text("model-path", "model", "model-tag")
    result.check_choices()
    later = result.has("headless") or result.number("node-rank", default=0, low=0) > 0 if _plain_rank(result) else False
    later = later or any(
        is_integer(result.text(name)) and int(result.text(name)) > 0
        for name in ("data-parallel-start-rank", "data-parallel-rank")
    )
    said = role_of(result) or role
    nodes = result.number("nnodes") if one.pods_are_nodes and is_integer(result.text("nnodes")) else 1
    one = replace(one, replicas=max(one.replicas // nodes, 1))
    return Server(result, one, said or one.role, not later, bool(said))


def _plain_rank(switches: Switches) -> bool:
    """True if a node's rank is a number; a variable of the shell may be any, so that the command leads."""
    return switches.has("headless") or is_integer(switches.text("node-rank", default="0"))


def _start(one: EngineProgram) -> tuple[str, list[str], str] | None:
    """Engine, words behind the program's name, and role by Dynamo's options."""
    words = list(one.words)
    if words[0].endswith("-dynamo"):
        return _of_dynamo(words[0].removesuffix("-dynamo"), words[1:])
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        follows = words[at + 1] if at + 1 < len(words) else ""
        if name == "vllm" and follows == "serve":
            return "vllm", words[at + 2 :], ""
        if name == "sglang" and follows == "serve":
            return "sglang", words[at + 2 :], ""
        if name == "trtllm-serve":
            rest = words[at + 1 :]
            return "trtllm", rest[1:] if rest[:1] == ["serve"] else rest, ""
        if word == "-m" and follows in MODULES:
            engine, rest = MODULES[follows], words[at + 2 :]
            if engine.endswith("-dynamo"):
                return _of_dynamo(engine.removesuffix("-dynamo"), rest)
            return engine, rest[1:] if follows.endswith("cli.main") else rest, ""
        script = re.search(r"(vllm/entrypoints/(?:openai/)?api_server|sglang/launch_server)\.py$", word)
        if script:
            return script[1].partition("/")[0], words[at + 1 :], ""
    return _of_image(words)


def _of_image(words: list[str]) -> tuple[str, list[str], str] | None:
    """The words behind an image of vLLM, whose entry point takes them; None of other commands."""
    if words[0].rpartition("/")[2] == "sudo":
        words = [word for word in words[1:] if word != "-E"]
    if not words or words[0].rpartition("/")[2] not in DOCKER or "run" not in words[1:4]:
        return None
    at = words.index("run") + 1
    while at < len(words) and words[at].startswith("-"):
        at += 1 if DOCKER_FLAGS.fullmatch(words[at]) else 2
    if at < len(words) and IMAGES.search(words[at]):
        rest = words[at + 1 :]
        return "vllm", rest[1:] if rest[:1] == ["serve"] else rest, ""
    return None


def _of_dynamo(engine: str, words: list[str]) -> tuple[str, list[str], str]:
    """Words without the options of Dynamo's own worker, and the role that those say."""
    role, rest, at = "", list[str](), 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        takes = DYNAMO_OPTIONS.get(name)
        if name == "--model-path" and engine != "sglang":
            rest.append(f"--model{equals}{value}")
        elif (takes is None and not name.startswith("--dyn-")) or (
            engine == "sglang" and name == "--disaggregation-mode"
        ):
            rest.append(words[at])
        else:
            follows = words[at + 1] if at + 1 < len(words) else "--"
            if takes != 0 and not equals and not follows.startswith("--"):
                at += 1
                value = words[at] if at < len(words) else ""
            if name == "--extra-engine-args" and engine == "trtllm":
                rest += ["--config", value]
            if name in ("--is-prefill-worker", "--disaggregation-mode") and value in ("", "prefill"):
                role = "prefill"
            if name in ("--is-decode-worker", "--disaggregation-mode") and value in ("", "decode"):
                role = role or "decode"
        at += 1
    return engine, rest, role


def _with_file(switches: Switches, engine: str, name: str, one: EngineProgram) -> Switches:
    """Switches with those of a file of settings; the command's own hold where both speak, but for TensorRT-LLM.

    Raises:
        ConfigError: a file that cannot be read, is no mapping, or has a key that no release knows.
    """
    text = _file_text(name, one)
    if text is None:
        if engine == "vllm" and "/" not in name and "." not in name:
            return switches
        raise ConfigError(f"--from: {switches.shown('config')} {name!r} cannot be read: No such file or directory")
    tree = tree_of_yaml(text, f"--from: {name}")
    if tree is None:
        return switches
    if not is_mapping(tree):
        raise ConfigError(f"--from: {name!r} should hold a mapping of options to values")
    file = switches_of_mapping(engine, tree)
    first, second = (file, switches) if engine != "trtllm" else (switches, file)
    return Switches(
        engine,
        first.given | second.given,
        first.written | second.written,
        switches.model or file.model or switches.text("model"),
    )


def _file_text(name: str, one: EngineProgram) -> str | None:
    """Text of a file that the commands write, that a manifest holds, or that lies on this machine."""
    for key, text in one.files.items():
        if key == name or key.rpartition("/")[2] == name.rpartition("/")[2]:
            return text
    return read_text(Path(name), f"--from: {name!r}", MOST_TEXT) if len(name) < 4096 and os.path.isfile(name) else None


def _served(servers: list[Server], chosen: str) -> Launch:
    """Overrides of engines that serve together: copies of one, or one kind for prompts and one for decodes."""
    omni = next((one for one in servers if one.switches.has("omni")), None)
    if omni is not None:
        raise ConfigError(
            f"--from: {omni.switches.model!r} is served with --omni as an image, audio or omni model, which no workload"
            " here serves: `codesign list model` names those of text"
        )
    pooling = next((one for one in servers if _pools(one.switches)), None)
    if pooling is not None:
        raise ConfigError(
            f"--from: {pooling.switches.model!r} is served as an embedding model, which no workload here serves"
        )
    leaders = [one for one in servers if one.leads] or servers[:1]
    first = next((one for one in leaders if one.role != "prefill"), leaders[0])
    model = _chosen(chosen, first.switches.model) if chosen else model_of(first.switches.model)
    notes: list[str] = []
    plans = [(one, plan_of(one.switches, model)) for one in leaders]
    decode = [(one, plan) for one, plan in plans if one.role != "prefill"]
    prefill = [(one, plan) for one, plan in plans if one.role == "prefill"]
    apart = any(one.role == "prefill" or one.says_role for one in leaders)  # a decode worker alone may do both
    main = _same(decode or prefill, notes)
    overrides = [*model.overrides]
    result, plan = main[0]
    overrides += format_overrides(result.switches, model, notes, "disaggregated" if apart else "continuous")
    overrides += [f"framework={result.switches.engine}"]
    count = sum(one.program.replicas * each.devices for one, each in main)
    overrides += [f"cluster.device_count={count}", *(f"plan.{key}={value}" for key, value in plan.plan.items())]
    if apart:
        device_count = [
            f"plan.device_count={count}",
            f"space.plan.device_count=[{count}]",
        ]  # the workload's list has others
        overrides += device_count
        overrides += _pool(_same(prefill or decode, notes), notes, missing=not (prefill and decode))
    overrides += [f"workload.{key}={value}" for key, value in plan.work.items()]
    device = next((one.program.device for one in leaders if one.program.device), "")
    overrides += [f"accelerator={device}"] if device else []
    memory = CacheRoom(
        plan.utilisation, plan.offload_gib, plan.longest, result.switches.engine,
        "micro_batch" in plan.plan, "token_budget" in plan.plan,
    )  # fmt: skip
    lines = [*plan.notes, *notes, *_left(leaders)]
    return Launch(tuple(overrides), tuple(dict.fromkeys(lines)), memory)


def _chosen(override: str, name: str) -> LaunchedModel:
    """The model that an override chooses in the place of the command's."""
    try:
        result = model_of(override.partition("=")[2])
    except ConfigError:
        result = LaunchedModel((), bool(re.search(r"(?i)moe|[ax]\d+b|deepseek|kimi|minimax", name)), "bf16", 0)
    return result._replace(overrides=())


def _pools(switches: Switches) -> bool:
    return (
        switches.text("runner") == "pooling"
        or switches.text("task") in ("embed", "embedding", "score", "classify", "reward")
        or switches.text("convert") in ("embed", "classify", "reward")
        or switches.has("is-embedding")
    )


def _same(servers: list[tuple[Server, EnginePlan]], notes: list[str]) -> list[tuple[Server, EnginePlan]]:
    """Engines of the first's plan and model; others are named and left out."""
    first, plan = servers[0]
    alike = [
        (one, each)
        for one, each in servers
        if each.plan == plan.plan
        and one.switches.model == first.switches.model
        and one.switches.engine == first.switches.engine
    ]
    others = [one for one, _ in servers if not any(one is reference for reference, _ in alike)]
    if others:
        named = ", ".join(
            dict.fromkeys(f"{one.switches.engine} {one.switches.model}".strip() for one in others[:SHOWN])
        )
        notes.append(f"{len(others)} more commands start other engines ({named}): only the first is priced")
    if len(alike) > 1 and len({id(one.program.files) for one, _ in alike}) == 1 and not first.role:
        ports = {one.switches.text("port") for one, _ in alike}
        if len(ports) == 1:  # the same command twice in a text
            return alike[:1]
    return alike


def _pool(servers: list[tuple[Server, EnginePlan]], notes: list[str], *, missing: bool) -> list[str]:
    """Overrides of the pool that computes prompts."""
    plan = servers[0][1]
    count = sum(one.program.replicas * each.devices for one, each in servers)
    fields = {
        "tp": "prefill_tp",
        "pp": "prefill_pp",
        "ep": "prefill_ep",
        "etp": "prefill_etp",
        "attention_dp": "prefill_attention_dp",
        "token_budget": "prefill_token_budget",
    }
    if missing:
        notes.append("engines of one role alone are given: as many of the other role are taken to run by the same plan")
    lines = [f"plan.{fields[key]}={value}" for key, value in plan.plan.items() if key in fields]
    return ["prefill=same", f"plan.prefill_devices={count}", *lines]


def _left(servers: list[Server]) -> list[str]:
    """Lines of switches and variables that no prediction takes."""
    lines = not_modelled_line(one.switches for one in servers)
    env: Mapping[str, str] = {key: value for one in servers for key, value in one.program.env.items()}
    named = [f"{key}={value}" for key, value in env.items() if ENGINE_ENV.fullmatch(key) and not QUIET_ENV.search(key)]
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    return lines + ([f"not modelled: variables {', '.join(named[:SHOWN])}{more}"] if named else [])
