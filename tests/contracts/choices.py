"""Options of conf/ as scenarios: the default with one other part, alike where their structure is.

Kernels by roofline keep the programs small wherever kernels are not what is tested.
"""

import re
from dataclasses import fields
from dataclasses import replace as change
from functools import cache

import jax

from codesign.config import available, compose, conf_dir, plain, scenario_from_config, study_from_resolved
from codesign.config.groups import PACKAGES
from codesign.model.networks.collectives import Chosen, Fastest
from codesign.model.networks.fabrics import RoutedTopology
from codesign.model.networks.topology import Crossbar

BESIDE = {"prefill", "later_stages", "ffn", "precision"}  # made of the same parts as the cluster; has no numbers
PLACES = {group: path for group, path in PACKAGES.items() if group not in BESIDE}
PLACES |= {"workload": "workload", "plan": "plan"}
"""Config group -> path of what it describes."""

SMALL = "calibration=h100_sxm_roofline"
FIXED = {
    "model=hf_config",
    "fabric=topology_file",
}  # need a file of their own: tests/test_hub.py, tests/test_topology.py
COMPANIONS = {"workload=recommendation": "model=dlrm_criteo", "model=dlrm": "workload=recommendation"}
COMPANIONS |= {"model=embedding": "workload=recommendation", "space=recommendation": "experiment=serve_dlrm"}
COMPANIONS |= {"space=chip": "experiment=chip_175b", "space=photonic": "experiment=photonic_rack"}
COMPANIONS |= {"space=serving_chip": "model=llama31_8b workload=continuous die=h100_sxm"}
COMPANIONS |= {"space=folded_clos": "experiment=folded_clos"}
COMPANIONS |= {"workload=disaggregated": "prefill=same", "prefill": "workload=disaggregated"}
COMPANIONS |= {"workload=mixed_training": "later_stages=same", "later_stages": "workload=mixed_training"}
COMPANIONS |= {"workload=attention_ffn": "prefill=same ffn=same", "ffn": "workload=attention_ffn prefill=same"}
COMPANIONS |= {"space=attention_ffn": "workload=attention_ffn prefill=same ffn=same"}
COMPANIONS |= {"space=disaggregated": "experiment=disaggregation"}
COMPANIONS |= {"scaling_law": "workload=training_run", "space=shapes": "experiment=compute_optimal_machine"}
COMPANIONS |= dict.fromkeys(("framework=vllm", "framework=sglang", "framework=trtllm"), "workload=static_batch")
COMPANIONS |= {"framework=vllm_sampled": "workload=continuous", "framework=vllm_async": "workload=at_rate"}
COMPANIONS |= {"engine_memory": "workload=continuous"}
COMPANIONS |= {"collective=sue": "plan.sequence_parallel=0"}  # whose all-reduce alone has numbers
COMPANIONS |= {"model=dit": "workload=images", "model=flux": "workload=images", "plan=image": "workload=images"}
COMPANIONS |= {"space=image": "workload=images"}
COMPANIONS |= {"plan=rl": "workload=rl_post_training", "space=rl": "workload=rl_post_training model=llama31_8b"}
COMPANIONS |= {"experiment=calculon": "search=grid"}  # one design: nothing to prove
"""Start of a choice -> the other parts that its family needs."""


def options(*groups: str) -> list[str]:
    choices = [f"{group}={option}" for group in groups for option in available(group)]
    native = {f"calibration={name}" for name in native_calibrations()}
    return [choice for choice in choices if choice not in FIXED | native]


@cache
def native_calibrations() -> set[str]:
    """Those that an accelerator brings along, tested with it."""
    files = (conf_dir() / "accelerator").glob("*.yaml")
    return {name for file in files for name in re.findall(r"/calibration: (\w+)", file.read_text(encoding="utf-8"))}


def companions(choice: str) -> list[str]:
    """The other parts that a choice needs: its own, else those of its family."""
    starts = [start for start in COMPANIONS if choice.startswith(start)]
    chosen = [choice] if choice in COMPANIONS else starts
    return [part for start in chosen for part in COMPANIONS[start].split()]


def built(choice: str):
    """The default scenario with one other part, in a number format that its accelerator has."""
    overrides = [choice] if choice.startswith(("accelerator", "calibration", "experiment")) else [SMALL, choice]
    overrides += companions(choice)
    if not choice.startswith("accelerator"):
        return scenario_from_config(*overrides)
    config = compose(overrides)
    if "bf16" in plain(config)["cluster"]["accelerator"]["peak_flops_per_s"]:
        return study_from_resolved(config).scenario
    return scenario_from_config(*overrides, "workload.precision.compute=fp16", "workload.precision.attention=fp16")


def unlabelled(fabric):
    """A routed topology without its shape, which is there for reports: the program sees the tables alone."""
    if not isinstance(fabric, RoutedTopology):
        return fabric
    other = object.__new__(RoutedTopology)
    for field in fields(fabric):
        object.__setattr__(other, field.name, getattr(fabric, field.name))
    object.__setattr__(other, "shape", Crossbar(2))
    return other


def as_used(accelerator, precision):
    """Without its name and what no operation uses; each kernel under the format that asks for it."""
    used = sorted({precision.compute, precision.attention, "vector"})

    def some(by_format):
        return {name: numbers for name, numbers in by_format.items() if name in used}

    return change(
        accelerator,
        name="any",
        generation="any",
        peak_flops_per_s=some(accelerator.peak_flops_per_s),
        energy_j_per_flop=some(accelerator.energy_j_per_flop),
        kernels={
            kind: {name: without_label(accelerator.kernel(kind, name)) for name in used} for kind in accelerator.kernels
        },
    )


def without_label(kernel):
    """Without the name of what its constants were fitted on, which learned factors alone read."""
    return change(kernel, chip=change(kernel.chip, label="")) if hasattr(kernel, "chip") else kernel


def nameless(scenario):
    """Without the names and formats that keep scenarios of one structure from sharing a compiled program."""
    cluster, workload = scenario.cluster, scenario.workload
    network = {name: change(level, fabric=unlabelled(level.fabric)) for name, level in cluster.network.items()}
    cluster = change(cluster, accelerator=as_used(cluster.accelerator, workload.precision), network=network)
    return change(scenario, cluster=cluster, workload=change(workload, model=change(workload.model, name="any")))


def chooses(part) -> bool:
    """Whether it holds a choice among algorithms, whose winner may have no numbers of its own."""
    kinds = (Chosen, Fastest)
    return any(isinstance(leaf, kinds) for leaf in jax.tree.leaves(part, is_leaf=lambda n: isinstance(n, kinds)))
