"""`codesign export --to k8s`: one manifest around the `vllm serve` commands."""

import math
from typing import Any

import yaml

from .export_bench import benchmark
from .export_command import FILL_IN, Command, checked_version, closing, comments, opening
from .export_engines import EngineGroup, engines, load_notes
from .export_plan import Deployment
from .export_vllm import vllm_commands

PORT = 8000
RESOURCES = {
    "mi": "amd.com/gpu", "tpu": "google.com/tpu", "trainium": "aws.amazon.com/neuron", "gaudi": "habana.ai/gaudi",
}  # fmt: skip
"""Beginnings of accelerators' names -> what their device plug-in calls one; others are NVIDIA's."""
NVIDIA = "nvidia.com/gpu"
RANK_LABEL = "metadata.labels['apps.kubernetes.io/pod-index']"


def k8s(found: Deployment) -> dict[str, str]:
    """One file of documents: a Deployment for engines of one node, a StatefulSet for each engine of several.

    Raises:
        ConfigError: vLLM cannot run the plan.
    """
    commands, groups = vllm_commands(found, "k8s"), engines(found)
    documents = [
        one for group, command in zip(groups, commands, strict=True) for one in _documents(found, group, command)
    ]
    notes = [*opening(found, "vllm"), f"{FILL_IN}: an image with vllm {checked_version('vllm')}; none is named here"]
    notes += ["fields of the manifest are not checked against a cluster; probes, volumes and secrets are yours to add"]
    notes += [note for command in commands for note in command.notes]
    notes += [*load_notes(found, groups), *closing(found, commands)]
    text = comments(dict.fromkeys(notes)) + yaml.safe_dump_all(documents, sort_keys=False, width=200)
    return {"k8s.yaml": text, **benchmark(found, groups, "vllm")}


def _documents(found: Deployment, group: EngineGroup, command: Command) -> list[dict[str, Any]]:
    name = f"vllm-{group.role}" if group.role else "vllm"
    nodes = math.ceil(group.devices / found.domain)
    if nodes == 1:
        return [_workload("Deployment", name, group.count, _pod(found, group.devices, command.words())), _service(name)]
    found_documents: list[dict[str, Any]] = []
    for number in range(group.count):
        own = f"{name}-{number}" if group.count > 1 else name
        words = [*command.words(), "--nnodes", str(nodes), "--node-rank", "$(NODE_RANK)"]
        words += ["--master-addr", f"{own}-0.{own}"]
        pod = _pod(found, found.domain, words)
        rank = {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": RANK_LABEL}}}
        pod["containers"][0]["env"] = [rank]
        body = _workload("StatefulSet", own, nodes, pod)
        body["spec"] |= {"serviceName": own, "podManagementPolicy": "Parallel"}
        found_documents += [body, _service(own, headless=True)]
    return found_documents


def _pod(found: Deployment, devices: int, words: list[str]) -> dict[str, Any]:
    container = {
        "name": "engine", "image": f"{FILL_IN}-IMAGE", "command": words[:1], "args": words[1:],
        "ports": [{"containerPort": PORT}], "resources": {"limits": {resource_of(found): devices}},
    }  # fmt: skip
    return {"containers": [container]}


def resource_of(found: Deployment) -> str:
    """Name under which a cluster hands out this accelerator."""
    return next((one for start, one in RESOURCES.items() if found.accelerator.startswith(start)), NVIDIA)


def _workload(kind: str, name: str, count: int, pod: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": dict(labels)}, "spec": pod}
    spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _service(name: str, *, headless: bool = False) -> dict[str, Any]:
    spec: dict[str, Any] = {"clusterIP": "None"} if headless else {}
    spec |= {"selector": {"app": name}, "ports": [{"port": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
