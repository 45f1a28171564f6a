"""`codesign export`: launch commands, or files, for a design that a search found."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from ..core.atomic_files import write_files
from ..core.errors import ConfigError, suggestion
from ..report.run_folder import RunFolder, read_run
from ..study.objective import share_text
from .export_plan import FILL_IN, Command, Deployment, checked_version, closing, comments, deployment, opening
from .export_serving import EngineGroup, benchmark, engines, load_notes, sglang, trtllm, vllm, vllm_commands
from .export_trainers import maxtext, megatron
from .export_training import torchtitan

# `codesign export --to lws`, `dynamo` or `llm-d`: manifests of those that run engines of several nodes.
#
# No manifest was applied to a cluster. Fields are those of LeaderWorkerSet v1, of Dynamo's DynamoGraphDeployment
# v1alpha1 (options of its vLLM worker as in ai-dynamo 1.6.1) and of the values of llm-d's ModelService chart.


# `codesign export --to k8s`: one manifest around the `vllm serve` commands.


PORT = 8000
RESOURCES = {
    "mi": "amd.com/gpu", "tpu": "google.com/tpu", "trainium": "aws.amazon.com/neuron", "gaudi": "habana.ai/gaudi",
}  # fmt: skip
"""Beginnings of accelerators' names -> what their device plug-in calls one; others are NVIDIA's."""
NVIDIA = "nvidia.com/gpu"
RANK_LABEL = "metadata.labels['apps.kubernetes.io/pod-index']"


def k8s(deployment: Deployment) -> dict[str, str]:
    """One file of documents: a Deployment for engines of one node, a StatefulSet for each engine of several.

    Raises:
        ConfigError: vLLM cannot run the plan.
    """
    commands, groups = vllm_commands(deployment, "k8s"), engines(deployment)
    documents = [
        one for group, command in zip(groups, commands, strict=True) for one in _documents(deployment, group, command)
    ]
    notes = [
        *opening(deployment, "vllm"),
        f"{FILL_IN}: an image with vllm {checked_version('vllm')}; none is named here",
    ]
    notes += ["fields of the manifest are not checked against a cluster; probes, volumes and secrets are yours to add"]
    notes += [note for command in commands for note in command.notes]
    notes += [*load_notes(deployment, groups), *closing(deployment, commands)]
    text = comments(dict.fromkeys(notes)) + yaml.safe_dump_all(documents, sort_keys=False, width=200)
    return {"k8s.yaml": text, **benchmark(deployment, groups, "vllm")}


def _documents(deployment: Deployment, group: EngineGroup, command: Command) -> list[dict[str, Any]]:
    name = f"vllm-{group.role}" if group.role else "vllm"
    nodes = math.ceil(group.devices / deployment.domain)
    if nodes == 1:
        return [
            _workload("Deployment", name, group.count, _pod(deployment, group.devices, command.words())),
            _service(name),
        ]
    manifests: list[dict[str, Any]] = []
    for number in range(group.count):
        set_name = f"{name}-{number}" if group.count > 1 else name
        words = [*command.words(), "--nnodes", str(nodes), "--node-rank", "$(NODE_RANK)"]
        words += ["--master-addr", f"{set_name}-0.{set_name}"]
        pod = _pod(deployment, deployment.domain, words)
        rank = {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": RANK_LABEL}}}
        pod["containers"][0]["env"] = [rank]
        body = _workload("StatefulSet", set_name, nodes, pod)
        body["spec"] |= {"serviceName": set_name, "podManagementPolicy": "Parallel"}
        manifests += [body, _service(set_name, headless=True)]
    return manifests


def _pod(deployment: Deployment, devices: int, words: list[str]) -> dict[str, Any]:
    container = {
        "name": "engine", "image": f"{FILL_IN}-IMAGE", "command": words[:1], "args": words[1:],
        "ports": [{"containerPort": PORT}], "resources": {"limits": {resource_of(deployment): devices}},
    }  # fmt: skip
    return {"containers": [container]}


def resource_of(deployment: Deployment) -> str:
    """Name under which a cluster hands out this accelerator."""
    return next((one for start, one in RESOURCES.items() if deployment.accelerator.startswith(start)), NVIDIA)


def _workload(kind: str, name: str, count: int, pod: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": dict(labels)}, "spec": pod}
    spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _service(name: str, *, headless: bool = False) -> dict[str, Any]:
    spec: dict[str, Any] = {"clusterIP": "None"} if headless else {}
    spec |= {"selector": {"app": name}, "ports": [{"port": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


LEADER = "$(LWS_LEADER_ADDRESS)"
WORKER_INDEX = "$(LWS_WORKER_INDEX)"
KV_TRANSFER = "--kv-transfer-config."


def leader_worker_set(deployment: Deployment) -> dict[str, str]:
    """A LeaderWorkerSet for each kind of engine: as many groups as engines, as many pods a group as nodes.

    Raises:
        ConfigError: vLLM cannot run the plan.
    """
    commands, groups = vllm_commands(deployment, "lws"), engines(deployment)
    documents: list[dict[str, Any]] = []
    for group, command in zip(groups, commands, strict=True):
        name = f"vllm-{group.role}" if group.role else "vllm"
        nodes = _nodes(deployment, group)
        words = command.words()
        each = min(group.devices, deployment.domain)
        more = ["--nnodes", str(nodes), "--node-rank", WORKER_INDEX, "--master-addr", LEADER] if nodes > 1 else []
        body: dict[str, Any] = {"size": nodes, "leaderTemplate": _template(deployment, each, words + more, name)}
        body["workerTemplate"] = _template(
            deployment, each, [*words, *more, *(["--headless"] if nodes > 1 else [])], name
        )
        spec = {"replicas": group.count, "leaderWorkerTemplate": {"restartPolicy": "RecreateGroupOnPodRestart", **body}}
        documents.append(
            {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": name},
             "spec": spec}
        )  # fmt: skip
    return _written(deployment, "lws.yaml", documents, commands, groups, "a LeaderWorkerSet")


def dynamo(deployment: Deployment) -> dict[str, str]:
    """A DynamoGraphDeployment: a frontend, and a worker for each kind of engine.

    Raises:
        ConfigError: vLLM cannot run the plan.
    """
    commands, groups = vllm_commands(deployment, "dynamo"), engines(deployment)
    services: dict[str, Any] = {
        "Frontend": {
            "componentType": "frontend", "replicas": 1,
            "extraPodSpec": {"mainContainer": {"image": f"{FILL_IN}-IMAGE"}},
        }
    }  # fmt: skip
    for group, command in zip(groups, commands, strict=True):
        nodes, role = _nodes(deployment, group), group.role or "decode"
        words = command.words()
        switches = ["--model", words[2], *_without_transfer(words[3:])]
        if group.role:
            switches += ["--disaggregation-mode", group.role]
        service: dict[str, Any] = {
            "componentType": "worker", "replicas": group.count,
            "resources": {"limits": {"gpu": str(min(group.devices, deployment.domain))}},
            "extraPodSpec": {
                "mainContainer": {
                    "image": f"{FILL_IN}-IMAGE", "command": ["python3", "-m", "dynamo.vllm"], "args": switches,
                }
            },
        }  # fmt: skip
        if group.role:
            service["subComponentType"] = role
        if nodes > 1:
            service["multinode"] = {"nodeCount": nodes}
        services[f"Vllm{role.title()}Worker"] = service
    body = {
        "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "metadata": {"name": "vllm"},
        "spec": {"services": services},
    }  # fmt: skip
    return _written(
        deployment, "dynamo.yaml", [body], commands, groups, "Dynamo, whose connector replaces --kv-transfer-config"
    )


def llm_d(deployment: Deployment) -> dict[str, str]:
    """Values of llm-d's ModelService chart, whose `parallelism` says the degrees.

    Raises:
        ConfigError: vLLM cannot run the plan, or the model has no name on a hub.
    """
    commands, groups = vllm_commands(deployment, "llm-d"), engines(deployment)
    if not deployment.hub:
        raise ConfigError("export: --to llm-d names a model of a hub, and this run knows none; --to k8s takes a folder")
    values: dict[str, Any] = {
        "multinode": any(_nodes(deployment, group) > 1 for group in groups),
        "modelArtifacts": {"uri": f"hf://{deployment.hub}", "name": deployment.hub, "size": f"{FILL_IN}-SIZE"},
        "routing": {"servicePort": PORT, "proxy": {"enabled": len(groups) > 1}},
        "decode": {"create": True}, "prefill": {"create": False},
    }  # fmt: skip
    for group, command in zip(groups, commands, strict=True):
        words = command.words()[3:]
        parallelism, rest = {"tensor": 1, "data": 1}, list[str]()
        for at, word in enumerate(words):
            if word in ("--tensor-parallel-size", "--data-parallel-size"):
                parallelism[word.split("-")[2]] = int(words[at + 1])
            elif not (at and words[at - 1] in ("--tensor-parallel-size", "--data-parallel-size")):
                rest.append(word)
        container = {
            "name": "vllm", "image": f"{FILL_IN}-IMAGE", "modelCommand": "vllmServe", "args": rest,
            "ports": [{"containerPort": PORT, "name": "vllm"}],
            "resources": {"limits": {resource_of(deployment): min(group.devices, deployment.domain)}},
            "mountModelVolume": True,
        }  # fmt: skip
        values[group.role or "decode"] = {
            "create": True, "replicas": group.count, "parallelism": parallelism, "containers": [container],
        }  # fmt: skip
    return _written(deployment, "llm-d.yaml", [values], commands, groups, "the values of llm-d's ModelService chart")


def _without_transfer(words: list[str]) -> list[str]:
    """Switches without those of the connector, which Dynamo sets."""
    words_left, skip = list[str](), False
    for word in words:
        if not skip and not word.startswith(KV_TRANSFER):
            words_left.append(word)
        skip = word.startswith(KV_TRANSFER)
    return words_left


def _nodes(deployment: Deployment, group: EngineGroup) -> int:
    return math.ceil(group.devices / deployment.domain)


def _template(deployment: Deployment, devices: int, words: list[str], name: str) -> dict[str, Any]:
    container = {
        "name": "engine", "image": f"{FILL_IN}-IMAGE", "command": words[:1], "args": words[1:],
        "ports": [{"containerPort": PORT}], "resources": {"limits": {resource_of(deployment): devices}},
    }  # fmt: skip
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}


def _written(
    deployment: Deployment,
    name: str,
    documents: list[dict[str, Any]],
    commands: list[Command],
    groups: list[EngineGroup],
    what: str,
) -> dict[str, str]:
    """Comments about the whole, the documents, and the benchmark beside them."""
    notes = [
        *opening(deployment, "vllm"),
        f"{FILL_IN}: an image with vllm {checked_version('vllm')}; none is named here",
    ]
    notes.append(f"for {what}; fields are not checked against a cluster; probes, volumes and secrets are yours to add")
    notes += [note for command in commands for note in command.notes]
    notes += [*load_notes(deployment, groups), *closing(deployment, commands)]
    text = comments(dict.fromkeys(notes)) + yaml.safe_dump_all(documents, sort_keys=False, width=200)
    return {name: text, **benchmark(deployment, groups, "vllm")}


TARGETS: dict[str, Callable[[Deployment], dict[str, str]]] = {
    "vllm": vllm, "sglang": sglang, "trtllm": trtllm, "megatron": megatron, "torchtitan": torchtitan,
    "maxtext": maxtext, "k8s": k8s, "lws": leader_worker_set, "dynamo": dynamo, "llm-d": llm_d,
}  # fmt: skip
SHOWN = 5  # ranks that a message lists


def exported(run: Path | str, to: str, design: int = 1, *, anyway: bool = False) -> dict[str, str]:
    """Name of a file -> its text, for a design of a run, by its rank.

    Args:
        run: its folder.
        to: one of `TARGETS`.
        design: rank of the design.
        anyway: export a design that violates a limit of its study too, with a comment that says so.

    Raises:
        ConfigError: no such run, design or target, a design that breaks a limit, or a plan that the target cannot run.
    """
    if to not in TARGETS:
        raise ConfigError(f"export: --to {to!r} is not one of {', '.join(TARGETS)}{suggestion(to, TARGETS)}")
    folder = read_run(run)
    result = deployment(folder, design)
    if not result.feasible and not anyway:
        raise ConfigError(
            f"export: design {design} of {str(folder.path)!r} breaks {_broken(result)}; {_meeting(folder)};"
            " --anyway exports it all the same"
        )
    return TARGETS[to](result)


def _broken(deployment: Deployment) -> str:
    """Constraints that a design violates, as text, the worst first."""
    worst = sorted(deployment.broken.items(), key=lambda item: -item[1])
    used = [share_text(share, 1) + ("" if share == math.inf else " of what is allowed") for _, share in worst]
    shares = [f"{name} ({text})" for (name, _), text in zip(worst, used, strict=True)]
    return " and ".join(shares) or "a limit of its study or a rule of its plan"


def _meeting(run: RunFolder) -> str:
    """Text that lists the ranks of a run's feasible designs."""
    is_feasible = run.designs["feasible"].astype(bool)
    ranks = [f"{rank:g}" for rank in run.designs.loc[is_feasible, "rank"]]
    if not ranks:
        return "no design of this run keeps every limit"
    more = f" and {len(ranks) - SHOWN} more" if len(ranks) > SHOWN else ""
    return f"designs that keep every limit: {', '.join(ranks[:SHOWN])}{more}"


def export_design(run: str, to: str, design: int, out: str | None, *, anyway: bool = False) -> int:
    """Print the files one after another, or write them into a folder and print their names."""
    files = exported(run, to, design, anyway=anyway)
    if out is None:
        several = len(files) > 1
        for name, text in files.items():
            sys.stdout.write((f"# ---- {name}\n" if several else "") + text + ("\n" if several else ""))
        return 0
    folder = Path(out)
    write_files({folder / name: text for name, text in files.items()})
    for name in files:
        print(folder / name)
    return 0
