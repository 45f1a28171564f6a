"""Pre-training of CelestiSim's model family: plans found by this package, and the traffic of any plan.

A model of the family has as many heads as layers, a feed-forward four times as wide as the hidden state, and no
vocabulary. Systems differ in memory, scale-up domain and the way to outside memory; arithmetic and scale-out network
are those of an H100 cluster for all of them.

Source: [ding2025pfa] sections 3.4 and 5.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from _lib.celestisim_counting import counted_j
from codesign.config import scenario_from_config
from codesign.core import replace
from codesign.model import Scenario
from codesign.model.metrics import evaluate, ledger
from codesign.model.networks.fabrics import PathEnergy
from codesign.staging import at_many

__all__ = ["System", "fastest_plans", "moved_kj", "plan_grid", "template", "timed_plans"]

BATCH = 3072.0
STORE_BYTES = 1e18  # an external store that never fills
DEGREES = {
    "tp": (2, 4, 8, 16),
    "pp": (2, 4, 8, 16, 32, 64),
    "micro_batch": (1, 2, 3, 4, 6, 12),
    "virtual_stages": (1, 2, 4, 8, 16),
    "recompute": (0, 1),
}
"""Plans that are tried. One tensor rank and one stage are left out: the tables have both energies in every cell."""

OUTSIDE = ("weights", "activations", "gradients", "optimizer")
"""State that lives outside the accelerator on every system: the tables report offloading in every cell as well."""

PLAN = tuple(DEGREES)
MODEL = {
    "layers": ("workload.model.layers", "workload.model.attention.heads", "workload.model.attention.kv_heads"),
    "hidden": ("workload.model.hidden",),
    "head_dim": ("workload.model.attention.head_dim",),
}


@dataclass(frozen=True)
class System:
    """What one accelerator has: outside memory and the way to it, and the scale-up domain it sits in."""

    outside_bytes: float
    outside_bytes_per_s: float
    scale_up_devices: float
    scale_up_bytes_per_s: float


SYSTEMS = {
    "nvidia_baseline": System(STORE_BYTES, 55e9, 8, 450e9),  # a store behind PCIe Gen5; NVLink 4
    "pfmm_2tb_only": System(2000e9, 900e9, 16, 900e9),  # one module; a port carries 7.2 Tb/s
    "pfmm_4tb_only": System(4000e9, 900e9, 16, 900e9),
    "pfmm_6tb_only": System(6000e9, 900e9, 16, 900e9),
}


@functools.cache
def template() -> Scenario:
    """A step of the family on H100 accelerators, kernels by roofline; every number above is replaced in it."""
    return scenario_from_config(
        "accelerator=h100_sxm", "calibration=h100_sxm_roofline", "workload=training", "model=gpt3_175b",
        "framework=none",
        "plan=data_parallel", f"workload.global_batch={BATCH}", "workload.model.vocab=0", "plan.sequence_parallel=1",
        "workload.precision.gradients=bf16",
    )  # fmt: skip


def _placed(scenario: Scenario, row: dict[str, Array]) -> Scenario:
    """The scenario of one model, system and plan."""
    leaves: dict[str, Any] = {path: row[name] for name, paths in MODEL.items() for path in paths}
    leaves["workload.model.feed_forward.width"] = 4 * row["hidden"]
    leaves |= {f"plan.{name}": row[name] for name in (*PLAN, "zero")}
    leaves |= {f"plan.offload_{name}": jnp.asarray(1.0) for name in OUTSIDE}
    leaves["cluster.device_count"] = row["devices"]
    if "outside_bytes" in row:
        leaves |= {
            "cluster.network.scale_up.fabric.endpoints": row["scale_up_devices"],
            "cluster.network.scale_up.fabric.bandwidth_bytes_per_s": row["scale_up_bytes_per_s"],
            "cluster.host.link.beta_s_per_byte": 1 / row["outside_bytes_per_s"],
            "cluster.host.memory.capacity_bytes": row["outside_bytes"],
        }
    return replace(scenario, leaves)


def _kept_bytes(scenario: Scenario) -> tuple[Array, Array]:
    """Bytes (near, outside) of an accelerator; what lies outside is streamed tensor by tensor, no layer stays near."""
    near, outside = jnp.asarray(0.0), jnp.asarray(0.0)
    for name, (whole, _) in scenario.workload.footprint(scenario.layout).items():
        near, outside = (near, outside + whole) if name in OUTSIDE else (near + whole, outside)
    return near, outside


@functools.cache
def _timed() -> Callable[..., Any]:
    """(model and system, plans) -> seconds of each plan and by how much it breaks a rule or a memory."""

    def one(base: Scenario, shared: dict[str, Array], plan: dict[str, Array]) -> tuple[Array, Array]:
        scenario = _placed(base, shared | plan)
        metrics = evaluate(scenario)
        near, outside = _kept_bytes(scenario)
        hbm, store = scenario.cluster.accelerator.hbm.usable_bytes(), scenario.cluster.host.memory.usable_bytes()
        worst = jnp.maximum(near / hbm, outside / store) - 1
        for broken in metrics.violations.values():
            worst = jnp.maximum(worst, jnp.where(broken > 0, broken, -1.0))
        outgrown = shared["scale_up_devices"] < plan["tp"]
        return metrics.time_s, jnp.where(outgrown, 1.0, worst)

    return at_many(one, in_axes=(None, None, 0))


def plan_grid() -> dict[str, np.ndarray]:
    """Every combination of `DEGREES`, one array a field."""
    table = np.array(list(itertools.product(*DEGREES.values())), dtype=float)
    return {name: table[:, column] for column, name in enumerate(DEGREES)}


def timed_plans(models: pd.DataFrame, devices: float, *, sharded: bool = False) -> pd.DataFrame:
    """Every plan that fits, for each model on each system.

    Args:
        models: columns model, layers, hidden, head_dim.
        devices: accelerators of the cluster, the same for all.
        sharded: replicas keep a share of the optimizer's state each (ZeRO stage 1).

    Returns:
        Columns of `models`, `system`, the fields of the plan, `zero` and `time_s`.
    """
    grid, parts = plan_grid(), []
    for model, (name, system) in itertools.product(models.to_dict("records"), SYSTEMS.items()):
        shared = {key: float(model[key]) for key in MODEL} | {key: float(value) for key, value in vars(system).items()}
        shared |= {"devices": float(devices), "zero": float(sharded)}
        seconds, excess = _timed()(template(), shared, grid)
        timed = pd.DataFrame(grid | {"zero": float(sharded), "time_s": seconds})[excess <= 1e-9]
        parts.append(timed.assign(**{str(key): value for key, value in model.items()}, system=name))
    columns = [*models.columns, "system", *grid, "zero", "time_s"]
    return pd.concat(parts, ignore_index=True)[columns]


def fastest_plans(timed: pd.DataFrame) -> pd.DataFrame:
    """The fastest of `timed_plans` for each model on each system; a pair that no plan fits is absent."""
    return timed.loc[timed.groupby(["model", "system"], sort=False)["time_s"].idxmin()].reset_index(drop=True)


SCHEMES = ("tp", "pp", "offload")


@functools.cache
def _moved(*, counted: bool) -> Callable[..., Any]:
    def one(base: Scenario, paths: PathEnergy, row: dict[str, Array]) -> dict[str, Array]:
        scenario = _placed(base, row)
        if counted:
            return counted_j(scenario, paths)
        return {scheme: entry.energy_j(paths) for scheme, entry in ledger(scenario, paths).items() if scheme in SCHEMES}

    return at_many(one, in_axes=(None, None, 0))


def moved_kj(plans: pd.DataFrame, paths: PathEnergy, *, counted: bool) -> dict[str, np.ndarray]:
    """Scheme -> kJ of data movement in one step, a number a row of plans, as the tables count or of what moves.

    Traffic of a global batch does not depend on the replicas but for their own exchange; rows without `devices` are
    one replica, those without `virtual_stages` are not interleaved, those without `zero` shard nothing.
    """
    alone = {"devices": plans["tp"] * plans["pp"], "virtual_stages": 1.0, "zero": 0.0}
    frame = plans.assign(**{name: value for name, value in alone.items() if name not in plans})
    columns = {key: frame[key].to_numpy(dtype=float) for key in (*MODEL, *PLAN, "zero", "devices")}
    moved = _moved(counted=counted)(template(), paths, columns)
    return {scheme: np.asarray(joules) / 1e3 for scheme, joules in moved.items()}
