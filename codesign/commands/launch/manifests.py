"""Commands that a manifest runs: containers of Kubernetes, KServe, LeaderWorkerSet, Dynamo, llm-d values and Compose.

A container is any mapping with `command`, `args` or (in the values of llm-d) `modelCommand`. How often it runs and for
what (prefill, decode) is told by the keys, names and labels above it.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...config.groups import aliases, plain_name
from ...core.errors import ConfigError
from ...core.untrusted_io import tree_of_yaml
from ...core.yaml_io import is_mapping
from .shell import EngineProgram, filled, programs

__all__ = ["is_manifest", "manifest_programs"]

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
    if isinstance(node, list):
        for one in node:
            yield from _walk(one, above, files)
        return
    if not is_mapping(node) or node.get("kind") == "ConfigMap" or node.get("create") is False:
        return
    above = _told(node, above)
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


def _told(node: Mapping[str, Any], above: EngineProgram) -> EngineProgram:
    """Replicas, role and environment that a mapping sets for the containers below it."""
    meta = node.get("metadata")
    words = [
        str(node.get(key, "")) for key in ("subComponentType", "componentRole", "disaggregationMode", "type", "name")
    ]
    labels = [*(meta.get("labels") or {}).values()] if is_mapping(meta) and is_mapping(meta.get("labels")) else []
    words += [str(one) for one in (*labels, meta.get("name", "") if is_mapping(meta) else "")]
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
    if isinstance(parallel := node.get("parallelism"), dict):
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
    if not isinstance(node, list):
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
    own = _environment(node.get("env"))
    model_command = node.get("modelCommand")
    served = env.get("MODEL_URI", "").removeprefix("hf://")
    if model_command == "vllmServe":
        words = ["vllm", "serve", served, *_parallel(env), *_list(node.get("args"))]
    elif words and "vllm" in image.rpartition("/")[2] and re.match(r"-|[\w.-]+/[\w.-]+$", words[0]):
        words = ["vllm", "serve", *words]
    elif not words and served and "VLLM_ADDITIONAL_ARGS" in own:
        words = ["vllm", "serve", served, *_parallel(env), *_split(own["VLLM_ADDITIONAL_ARGS"])]
    if not words:
        return
    for name, engine in DYNAMO.items():
        if name in words:
            start = ["--model" if word == "--model-path" and engine == "vllm" else word for word in words]
            words = [f"{engine}-dynamo", *start[words.index(name) + 1 :]]
    text = " ".join(words)
    if not (STARTS.search(text) or words[0].endswith("-dynamo")):
        return
    variables = env | own
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
    return [str(one) for one in node if not isinstance(one, dict | list)] if isinstance(node, list) else []


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
