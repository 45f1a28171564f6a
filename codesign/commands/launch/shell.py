"""Programs that a text of a shell starts: their words, variables of their environment, files written on the way.

No shell runs. Words are split as POSIX says (quotes, escapes, comments, continuations), variables that the text sets
are filled in, arrays and `here` documents too; substitutions of commands are left as they stand.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...config.groups import aliases, plain_name
from ...core.errors import ConfigError
from ...core.json_yaml import is_list, is_mapping
from ...core.untrusted_io import tree_of_yaml

__all__ = ["EngineProgram", "is_manifest", "manifest_programs", "programs"]


ASSIGNED = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?-([^}]*))?\}|\$([A-Za-z_]\w*)|\$\(([A-Za-z_]\w*)\)")
CONTINUED = re.compile(r"(?:\\[ \t]*(?:#[^\n]*)?\n|[ \t]*\n(?=[ \t]*--?[A-Za-z]))")
HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n(.*?)\n[ \t]*\2[ \t]*(?=\n|$)", re.DOTALL)
REDIRECTED = re.compile(r"(?:(?<=\s)[0-9])?&?>{1,2}\s*&?\s*[^\s;&|]*|<(?![A-Za-z<])\s*[^\s;&|]*")
PLACEHOLDER = re.compile(r"<[A-Za-z][\w ./:-]*>")
PROMPT = re.compile(r"(?m)^[ \t]*(?:\$|>>>|#\s*(?=vllm serve\b))[ \t]+")
BATCH = re.compile(r"(?m)^#SBATCH[ \t]+(--nodes|-N|--ntasks-per-node|--gpus-per-node|--ntasks|-n)[= \t]+(?:\w+:)?(\d+)")
SET_BY_SLURM = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "-N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",), "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "--ntasks": ("SLURM_NTASKS",), "-n": ("SLURM_NTASKS",),
}  # fmt: skip
"""Option of a batch script -> variables that Slurm sets by it."""
ENDS = (";", "&", "|", "\n")
MOST_WORDS = 20_000
MOST_FILLED = 100_000  # characters of a word once variables are filled in


@dataclass(frozen=True)
class EngineProgram:
    """Words of one command, the variables set for it alone, and files that stand in the text: name -> content.

    replicas: times it runs. pods_are_nodes: those are the nodes of one engine where it spans several (StatefulSet).
    role: `prefill` or `decode` by what stands around it. device: option of the group `accelerator`, where one is named.
    """

    words: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, str] = field(default_factory=dict[str, str])
    replicas: int = 1
    role: str = ""
    pods_are_nodes: bool = False
    device: str = ""


def programs(text: str) -> list[EngineProgram]:
    """Commands of a text, in order.

    Raises:
        ConfigError: a quote that is not closed, or a text too long for a command.
    """
    files: dict[str, str] = {}
    text = _without_documents(text.replace("\r\n", "\n"), files)
    variables = {name: count for option, count in BATCH.findall(text) for name in SET_BY_SLURM[option]}
    arrays: dict[str, list[str]] = {}
    result: list[EngineProgram] = []
    for words in _statements(CONTINUED.sub(" ", PROMPT.sub("", text))):
        env, rest = _assignments(words, variables, arrays)
        filled_words = [word for one in rest for word in _expanded(one, {**variables, **env}, arrays)]
        if filled_words:
            result.append(EngineProgram(tuple(filled_words), {**variables, **env}, files))
        else:
            variables |= env
    return [inner for one in result for inner in _unwrapped(one)]


def _without_documents(text: str, files: dict[str, str]) -> str:
    """The text without `cat > FILE <<EOF ... EOF`, whose content is kept under the file's name."""

    def keep(match: re.Match[str]) -> str:
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()] + match[3]
        target = re.search(r">\s*(\S+)|\btee\s+(?:-a\s+)?(\S+)", line)
        if target:
            files[(target[1] or target[2]).strip("'\"")] = match[4]
        return match[3]

    return HEREDOC.sub(keep, text)


def _statements(text: str) -> Iterator[list[str]]:
    """Words between the ends of statements; `(` and `)` are words of their own, for arrays."""
    words: list[str] = []
    for count, word in enumerate(_words(text)):
        if count > MOST_WORDS:
            raise ConfigError(f"--from: more than {MOST_WORDS:,} words are no launch command")
        if word[0] in ENDS and len(word) == 1:
            if words:
                yield words
            words = []
        else:
            words.append(word)
    if words:
        yield words


def _words(text: str) -> Iterator[str]:
    """Words and operators; a word in single quotes keeps its dollar signs behind a zero byte."""
    at, end = 0, len(text)
    word: list[str] | None = None
    depth = 0  # of $( and ${
    while at < end:
        char = text[at]
        if char == "\\" and at + 1 < end:
            word = [*(word or []), text[at + 1]]
            at += 2
            continue
        if char in "'\"":
            close = _closing(text, at)
            inner = text[at + 1 : close]
            inner = inner.replace("$", "\0") if char == "'" else re.sub(r"\\([\\\"$`])", r"\1", inner)
            word = (word or []) + [inner]
            at = close + 1
            continue
        if text.startswith(("${", "$("), at):
            close = _balanced(text, at + 1)
            word = (word or []) + [text[at : close + 1]]
            at = close + 1
            continue
        quiet = depth == 0 and word is None
        if char == "#" and quiet:
            at = text.find("\n", at)
            at = end if at < 0 else at
            continue
        placeholder = PLACEHOLDER.match(text, at) if char == "<" else None
        if placeholder:
            word = (word or []) + [placeholder[0]]
            at = placeholder.end()
            continue
        redirect = REDIRECTED.match(text, at) if char in "<>" or ((char.isdigit() or char == "&") and quiet) else None
        if redirect and redirect.end() > at and any(one in redirect[0] for one in "<>"):
            if word is not None:
                yield "".join(word)
                word = None
            at = redirect.end()
            continue
        if char in " \t" or char in ENDS or char in "()":
            if word is not None:
                yield "".join(word)
                word = None
            if char not in " \t":
                yield char
            at += 1
            continue
        word = (word or []) + [char]
        at += 1
    if word is not None:
        yield "".join(word)


def _closing(text: str, at: int) -> int:
    """Place of the quote that closes the one at a place."""
    quote = text[at]
    close = at + 1
    while close < len(text) and text[close] != quote:
        close += 2 if quote == '"' and text[close] == "\\" else 1
    if close >= len(text):
        shown = text[at : at + 60].splitlines()[0]
        raise ConfigError(f"--from: the text cannot be read as words of a shell: no closing quotation after {shown!r}")
    return close


def _balanced(text: str, at: int) -> int:
    """Place of the bracket that closes the one at a place; the end of its word where none does."""
    opened, closed, depth = text[at], {"{": "}", "(": ")"}[text[at]], 0
    for index in range(at, len(text)):
        depth += (text[index] == opened) - (text[index] == closed)
        if not depth:
            return index
    return len(text) - 1


def _assignments(
    words: list[str], variables: dict[str, str], arrays: dict[str, list[str]]
) -> tuple[dict[str, str], list[str]]:
    """Variables set before a command, and the words after them; `NAME=( ... )` fills an array."""
    env, rest = dict[str, str](), list(words)
    while rest and (rest[0] in ("export", "set", "declare", "env", "local", "readonly", "-x", "then", "do", "else")):
        rest = rest[1:]
    while rest and (match := ASSIGNED.fullmatch(rest[0])):
        if not match[2] and len(rest) > 1 and rest[1] == "(":
            close = rest.index(")") if ")" in rest else len(rest)
            more = [word for one in rest[2:close] for word in _expanded(one, variables | env, arrays)]
            arrays[match[1]] = (arrays.get(match[1], []) if "+=" in rest[0] else []) + more
            rest = rest[close + 1 :]
        else:
            env[match[1]] = filled(match[2], variables | env)
            rest = rest[1:]
    return env, [word for word in rest if word not in ("(", ")")]


def _expanded(word: str, variables: dict[str, str], arrays: dict[str, list[str]]) -> Iterable[str]:
    """Words that a word becomes: an array's, those of a variable that stands alone, or itself with variables filled."""
    alone = re.fullmatch(r"\$\{?([A-Za-z_]\w*)(?:\[[@*]\])?\}?", word)
    if alone and alone[1] in arrays:
        return arrays[alone[1]]
    if alone and alone[1] in variables:
        try:
            return shlex.split(filled(variables[alone[1]], variables))
        except ValueError:
            return [variables[alone[1]]]
    return [filled(word, variables).replace("\0", "$")]


def filled(text: str, variables: dict[str, str]) -> str:
    """A text with the variables that are known, or that have a default, in the place of their names."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3] or match[4]
        return variables.get(name, match[2] if match[2] is not None else match[0])

    for _ in range(4):  # variables of variables
        before, text = text, VARIABLE.sub(value, text)
        if text == before or len(text) > MOST_FILLED:
            break
    return text[:MOST_FILLED]


def _unwrapped(one: EngineProgram) -> Iterator[EngineProgram]:
    """Commands inside `bash -c "..."`, with the variables around them."""
    for word in one.words[1:]:
        if " " in word.strip() and re.search(
            r"\bvllm\s+serve\b|api_server|launch_server|trtllm-serve|sglang\s+serve", word
        ):
            for inner in programs(word):
                yield replace(inner, env=one.env | inner.env, files=one.files | inner.files)
            return
    yield one


# Commands that a manifest runs: containers of Kubernetes, KServe, LeaderWorkerSet, Dynamo, llm-d values and Compose.
#
# A container is any mapping with `command`, `args` or (in the values of llm-d) `modelCommand`. How often it runs and
# for what (prefill, decode) is told by the keys, names and labels above it.


KINDS = re.compile(
    r"(?m)^\s*(apiVersion|kind|services|modelArtifacts|decode|prefill|multinode|containers|modelArtifactsURI)\s*:"
)
ROLES = {"prefill": "prefill", "decode": "decode"}
STARTS = re.compile(
    r"\bvllm\s+serve\b|api_server|launch_server|trtllm-serve|sglang\s+serve|dynamo\.(?:vllm|sglang|trtllm)|pretrain_gpt"
)
PRODUCT = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "gpu.nvidia.com/class", "amd.com/gpu.product")
DEVICES = re.compile(r"(nvidia\.com|amd\.com|google\.com|habana\.ai|aws\.amazon\.com)/(gpu|tpu|gaudi|neuron)$|^gpu$")
DYNAMO = {"dynamo.vllm": "vllm", "dynamo.sglang": "sglang", "dynamo.trtllm": "trtllm"}
MOST_COPIES = 1_000_000


def is_manifest(text: str) -> bool:
    """True if a text is YAML with keys of a manifest rather than lines of a shell."""
    return bool(KINDS.search(text)) and not re.match(r"\s*(#![^\n]*sh\b|vllm |python|docker |podman )", text)


def manifest_programs(text: str, what: str) -> list[EngineProgram]:
    """Commands of every container that starts an engine.

    Raises:
        ConfigError: text that is no YAML, or in which no container starts a known engine.
    """
    trees = [
        tree_of_yaml(part, what) for part in re.split(r"(?m)^---[ \t]*(?:#[^\n]*)?$", _plain(text)) if part.strip()
    ]
    maps = _config_maps(trees)
    result = [one for tree in trees for one in _walk(tree, EngineProgram(()), maps)]
    if not result:
        raise ConfigError(
            f"{what}: no container of it starts vLLM, SGLang, TensorRT-LLM or Megatron by command or args"
        )
    return result


def _plain(text: str) -> str:
    """Text without the templates of Helm that stand alone on a line; those inside a value become words."""
    text = re.sub(r"(?m)^[ \t]*\{\{-?.*?-?\}\}[ \t]*$", "", text)
    return re.sub(r"\{\{-?\s*(.*?)\s*-?\}\}", lambda match: re.sub(r"[\"'{}:#]", "", match[1]) or "value", text)


def _config_maps(trees: Sequence[Any]) -> dict[str, str]:
    """File name -> text of every ConfigMap."""
    result: dict[str, str] = {}
    for tree in trees:
        if is_mapping(tree) and tree.get("kind") == "ConfigMap" and is_mapping(tree.get("data")):
            result |= {str(name): str(value) for name, value in tree["data"].items()}
    return result


def _walk(node: Any, above: EngineProgram, files: Mapping[str, str]) -> Iterator[EngineProgram]:
    """Containers below a node, each with what stands above it."""
    if is_list(node):
        for one in node:
            yield from _walk(one, above, files)
        return
    if not is_mapping(node) or node.get("kind") == "ConfigMap" or node.get("create") is False:
        return
    above = _updated(node, above)
    yield from _container(node, above, files)
    for key, value in node.items():
        if key in ("command", "args", "env"):
            continue
        role = next((ROLES[word] for word in ROLES if word in str(key).lower()), above.role)
        inner = replace(above, role=role) if is_mapping(value) or isinstance(value, list) else above
        if key in ("worker", "workerTemplate", "workerSpec") and (
            key == "workerTemplate" or is_mapping(node.get("template"))
        ):
            continue  # the others of a group run the leader's command
        yield from _walk(value, inner, files)


def _updated(node: Mapping[str, Any], above: EngineProgram) -> EngineProgram:
    """Replicas, role and environment that a mapping sets for the containers below it."""
    meta = node.get("metadata")
    words = [
        str(node.get(key, "")) for key in ("subComponentType", "componentRole", "disaggregationMode", "type", "name")
    ]
    labels = meta.get("labels") if is_mapping(meta) else None
    words += [str(one) for one in (labels.values() if is_mapping(labels) else ())]
    words += [str(meta.get("name", "")) if is_mapping(meta) else ""]
    role = next((ROLES[key] for key in ROLES for word in words if key in word.lower()), above.role)
    copies = _count(node.get("replicas"))
    pods = above.pods_are_nodes or node.get("kind") == "StatefulSet"
    env = above.env | _environment(node.get("env")) | _environment(node.get("envs"))
    model = node.get("model")
    if is_mapping(model) and isinstance(uri := model.get("uri") or model.get("storageUri"), str):
        env = env | {"MODEL_URI": uri}
    artifacts = node.get("modelArtifacts")
    if is_mapping(artifacts):
        uri = str(artifacts.get("uri", ""))
        env = env | {"MODEL_URI": str(artifacts.get("name") or uri)}
    if is_mapping(parallel := node.get("parallelism")):
        env = env | {f"PARALLELISM_{str(key).upper()}": str(value) for key, value in parallel.items()}
    return replace(
        above,
        role=role,
        replicas=min(above.replicas * copies, MOST_COPIES),
        pods_are_nodes=pods,
        env=env,
        device=_device(node) or above.device,
    )


def _count(value: Any) -> int:
    """A number of copies; 1 where none is said."""
    try:
        return min(max(int(value), 1), MOST_COPIES)
    except (TypeError, ValueError, OverflowError):
        return 1


def _environment(node: Any) -> dict[str, str]:
    """Variables of a container: a list of names and values, a mapping, or a list of NAME=VALUE."""
    if is_mapping(node):
        return {str(key): str(value) for key, value in node.items() if not isinstance(value, dict | list)}
    if not is_list(node):
        return {}
    result = {str(one["name"]): str(one.get("value", "")) for one in node if is_mapping(one) and one.get("name")}
    pairs = (one.partition("=") for one in node if isinstance(one, str) and "=" in one)
    return result | {name: value for name, _, value in pairs}


def _device(node: Mapping[str, Any]) -> str:
    """Option of the group `accelerator` that a node selector names; empty where none does."""
    selector = node.get("nodeSelector")
    if not is_mapping(selector):
        return ""
    called = {plain_name(alias): option for alias, option in aliases().items()}
    for key in PRODUCT:
        name = plain_name(str(selector.get(key, "")).removeprefix("nvidia-"))
        if name in called:
            return called[name]
    return ""


def _container(node: Mapping[str, Any], above: EngineProgram, files: Mapping[str, str]) -> Iterator[EngineProgram]:
    """The engine that a container starts, if it starts one."""
    words = [*_list(node.get("command")), *_list(node.get("args"))]
    image = str(node.get("image", ""))
    env = above.env
    container_env = _environment(node.get("env"))
    model_command = node.get("modelCommand")
    served = env.get("MODEL_URI", "").removeprefix("hf://")
    if model_command == "vllmServe":
        words = ["vllm", "serve", served, *_parallel(env), *_list(node.get("args"))]
    elif words and "vllm" in image.rpartition("/")[2] and re.match(r"-|[\w.-]+/[\w.-]+$", words[0]):
        words = ["vllm", "serve", *words]
    elif not words and served and "VLLM_ADDITIONAL_ARGS" in container_env:
        words = ["vllm", "serve", served, *_parallel(env), *_split(container_env["VLLM_ADDITIONAL_ARGS"])]
    if not words:
        return
    for name, engine in DYNAMO.items():
        if name in words:
            start = ["--model" if word == "--model-path" and engine == "vllm" else word for word in words]
            words = [f"{engine}-dynamo", *start[words.index(name) + 1 :]]
    text = " ".join(words)
    if not (STARTS.search(text) or words[0].endswith("-dynamo")):
        return
    variables = env | container_env
    inner = next((word for word in words[1:] if "\n" in word or (" " in word.strip() and STARTS.search(word))), None)
    copies = replace(above, env=variables, files=dict(files))
    if inner is not None:
        for one in programs(inner):
            if STARTS.search(" ".join(one.words)):
                given = [filled(word, variables | one.env) for word in one.words]
                yield replace(copies, words=_dynamo(given), env=variables | one.env, files={**files, **one.files})
        return
    yield replace(copies, words=tuple(filled(word, variables) for word in words))


def _dynamo(words: list[str]) -> tuple[str, ...]:
    for name, engine in DYNAMO.items():
        if name in words:
            return (f"{engine}-dynamo", *words[words.index(name) + 1 :])
    return tuple(words)


def _parallel(env: Mapping[str, str]) -> list[str]:
    """Switches of the `parallelism` that the values of llm-d and KServe have beside a container."""
    names = {"TENSOR": "--tensor-parallel-size", "DATA": "--data-parallel-size", "PIPELINE": "--pipeline-parallel-size"}
    result = [
        word for key, option in names.items() if (value := env.get(f"PARALLELISM_{key}")) for word in (option, value)
    ]
    return result + (["--enable-expert-parallel"] if env.get("PARALLELISM_EXPERT", "").lower() == "true" else [])


def _list(node: Any) -> list[str]:
    """Words of `command` or `args`: a list, or one line."""
    if isinstance(node, str):
        return _split(node)
    return [str(one) for one in node if not isinstance(one, dict | list)] if is_list(node) else []


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
