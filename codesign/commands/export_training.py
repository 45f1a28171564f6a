"""Common parts of trainers' commands: the launcher, the steps of a run, what is taken to hide behind what."""

import math

from .export_command import Command
from .export_plan import Deployment

HIDDEN = {"tp_overlap": "tensor", "cp_overlap": "context", "ep_overlap": "expert", "dp_overlap": "data",
          "pp_overlap": "pipeline"}  # fmt: skip
DEGREE = {"tp_overlap": "tp", "cp_overlap": "cp", "ep_overlap": "ep", "pp_overlap": "pp"}


def launcher(found: Deployment) -> list[str]:
    """`torchrun` on as many nodes as the devices need; the address of the first is the shell's to know."""
    per_node = min(found.domain, found.devices)
    nodes = math.ceil(found.devices / per_node)
    first = ["torchrun", "--nproc-per-node", f"{per_node}"]
    if nodes == 1:
        return [*first, "--standalone"]
    return [*first, "--nnodes", f"{nodes}", "--rdzv-backend", "c10d", "--rdzv-endpoint", "$HEAD_NODE:29500"]


def sequence_of(found: Deployment) -> int:
    """Tokens of a sequence, as the plan chose or as configured."""
    return round(found.plan.get("context", found.number("sequence")))


def steps_of(found: Deployment) -> int:
    """Steps of a whole run; 0 where the run priced one step."""
    tokens = found.plan.get("tokens", found.number("tokens"))
    batch = sequence_of(found) * found.number("global_batch")
    return math.ceil(tokens / batch) if batch else 0


def add_overlaps(found: Deployment, command: Command) -> None:
    """Megatron's switches for what the plan hides; how much is hidden is an assumption of the model."""
    if found.replicas > 1 and found.plan["dp_overlap"]:
        command.add("--overlap-grad-reduce")
        if found.plan["zero"]:
            command.add("--overlap-param-gather")
    if found.of("tp") > 1 and found.plan["tp_overlap"] and found.of("sequence_parallel"):
        command.add("--tp-comm-overlap")
    assumed_overlaps(found, command)


def assumed_overlaps(found: Deployment, command: Command) -> None:
    """Note the share of each kind of communication that the model assumes to be overlapped with compute."""
    there = {name: found.of(DEGREE[name]) if name in DEGREE else found.replicas for name in HIDDEN}
    told = [f"{HIDDEN[name]} {found.plan[name]:.0%}" for name in HIDDEN if there[name] > 1]
    if told:
        command.note(f"assumed: communication that hides behind work, {', '.join(told)}; an engine shows what it does")
    command.taken.update(HIDDEN)
