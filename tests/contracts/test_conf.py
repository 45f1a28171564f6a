"""Every file in conf/ is built, evaluated and differentiated, one at a time against the default.

Parametrised from the folder: a new YAML is tested the day it is added. Kernels by roofline keep the programs small
wherever kernels are not what is tested.
"""

import re
from dataclasses import fields
from dataclasses import replace as change
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.collectives import Fastest
from codesign.config import available, compose, conf_dir, scenario_from_config, study_from_config
from codesign.config.groups import PACKAGES
from codesign.config.plausibility import unusual
from codesign.config.study import SCENARIO, plain, study_from_resolved
from codesign.fabrics import RoutedTopology
from codesign.fields import get_path, walk
from codesign.interpreting import interpreted
from codesign.metrics import evaluate
from codesign.run.optimize import check_study
from codesign.topology import Crossbar

SMALL = "calibration=h100_sxm_roofline"
FIXED = {"model=hub", "fabric=topology_file"}  # need a file of their own: tests/test_hub.py, tests/test_topology.py
PARTS = ("accelerator", "fabric", "collective", "memory", "die", "host", "facility", "scale_out", "model")
COMPANIONS = {"workload=recommendation": "model=dlrm_criteo", "model=dlrm": "workload=recommendation"}
COMPANIONS |= {"model=embedding": "workload=recommendation", "space=recommendation": "experiment=serve_dlrm"}
COMPANIONS |= {"space=chip": "experiment=chip_175b", "space=photonic": "experiment=photonic_rack"}
COMPANIONS |= {"space=folded_clos": "experiment=folded_clos"}
COMPANIONS |= {"experiment=calculon": "search=grid"}  # one design: nothing to prove
"""Start of a choice -> the other part that its family needs."""
MEANT = {"calculon_a100_80e"}
"""Accelerators whose provenance says that their numbers are unusual (tests/test_plausibility.py)."""
STUDY = ("space", "objective", "search", "experiment")


def options(*groups: str) -> list[str]:
    choices = [f"{group}={option}" for group in groups for option in available(group)]
    return [choice for choice in choices if choice not in FIXED]


def native_calibrations() -> set[str]:
    """Those that an accelerator brings along, tested with it."""
    files = (conf_dir() / "accelerator").glob("*.yaml")
    return {name for file in files for name in re.findall(r"/calibration: (\w+)", file.read_text(encoding="utf-8"))}


def built(choice: str):
    """The default scenario with one other part, in a number format that its accelerator has."""
    overrides = [choice] if choice.startswith(("accelerator", "calibration", "experiment")) else [SMALL, choice]
    overrides += [other for start, other in COMPANIONS.items() if choice.startswith(start)]
    if not choice.startswith("accelerator"):
        return scenario_from_config(*overrides)
    config = compose(overrides)
    if "bf16" in plain(config)["cluster"]["accelerator"]["peak_flops_per_s"]:
        return study_from_resolved(config).scenario
    return scenario_from_config(*overrides, "workload.precision.compute=fp16", "workload.precision.attention=fp16")


@cache
def value_and_slopes(path: str):
    """Scenario -> time and cost in one number, and its slopes by what lies below `path`; traced once a structure."""

    def both(scenario):
        def logs(part):
            metrics = evaluate(eqx.tree_at(lambda tree: get_path(tree, path), scenario, part))
            return jnp.log(metrics.time_s) + jnp.log(metrics.energy_j + 1.0) + jnp.log(metrics.capex_usd + 1.0)

        return jax.value_and_grad(logs)(get_path(scenario, path))

    return interpreted(both)


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
        peak_flops_per_s=some(accelerator.peak_flops_per_s),
        energy_j_per_flop=some(accelerator.energy_j_per_flop),
        kernels={kind: {name: accelerator.kernel(kind, name) for name in used} for kind in accelerator.kernels},
    )


def nameless(scenario):
    """Without the names and formats that keep scenarios of one structure from sharing a compiled program."""
    cluster, workload = scenario.cluster, scenario.workload
    network = {name: change(level, fabric=unlabelled(level.fabric)) for name, level in cluster.network.items()}
    cluster = change(cluster, accelerator=as_used(cluster.accelerator, workload.precision), network=network)
    return change(scenario, cluster=cluster, workload=change(workload, model=change(workload.model, name="any")))


def assert_sound(scenario, path: str) -> None:
    """Finite positive time and cost, finite derivatives by every number below `path`; nothing that is unusual."""
    if scenario.cluster.accelerator.name not in MEANT:
        assert not [one.text for one in unusual(scenario)]
    value, slopes = value_and_slopes(path)(nameless(scenario))
    assert np.isfinite(float(value))
    found = {name: float(slope) for name, _, slope in walk(slopes, path)}
    wrong = [name for name, slope in found.items() if not np.isfinite(slope)]
    assert not wrong, f"derivatives that are not finite: {wrong}"
    assert any(found.values()) or not found or chooses(get_path(scenario, path)), f"nothing below {path} matters"


def chooses(part) -> bool:
    """Whether it holds a choice among algorithms, whose winner may have no numbers of its own."""
    return any(isinstance(leaf, Fastest) for leaf in jax.tree.leaves(part, is_leaf=lambda n: isinstance(n, Fastest)))


@pytest.mark.parametrize("choice", options(*PARTS))
def test_every_part_is_priced_and_differentiated(choice):
    assert_sound(built(choice), PACKAGES[choice.split("=")[0]])


@pytest.mark.parametrize("choice", [c for c in options("calibration") if c.split("=")[1] not in native_calibrations()])
def test_every_other_calibration_is_priced_and_differentiated(choice):
    assert_sound(built(choice), PACKAGES["calibration"])


@pytest.mark.parametrize("choice", options("workload", "plan"))
def test_every_workload_and_plan_is_priced_and_differentiated(choice):
    assert_sound(built(choice), choice.split("=")[0])


@pytest.mark.parametrize("choice", options(*STUDY))
def test_every_study_can_start(choice):
    """Paths, metric names and legal plans are there, no range is unusual; nothing is searched."""
    overrides = [choice]
    if choice.startswith("space=serving"):
        overrides += ["workload=serving"]
    overrides += [other for start, other in COMPANIONS.items() if choice.startswith(start)]
    if choice == "space=fixed":
        overrides += ["objective.limits={}"]
    study = study_from_config(*overrides)
    assert not [one.text for one in study.unusual]
    check_study(study)


def test_a_resolved_configuration_builds_the_same_study():
    """What a run folder keeps is enough to build the study again."""
    config = compose([])
    first, again = study_from_resolved(config), study_from_resolved(type(config)(plain(config)))
    assert jax.tree.structure(first.scenario) == jax.tree.structure(again.scenario)
    for key in SCENARIO:
        one, other = (jax.tree.leaves(getattr(study.scenario, key)) for study in (first, again))
        assert [float(leaf) for leaf in one] == [float(leaf) for leaf in other]
