"""Every fabric with every memory under every job and goal: evaluated, optimised over a small space, proven or not.

A cell is a scenario of configurations that ship, the plans of its job, and what is free of its hardware: rates and
latencies of its networks, its memory. No budget is set, so what an optimum leaves inside its range has a price in the
goal; what it drives to a bound is named, with whether money, power or a limit of the part would have held it back.

Run as a script, all cells are written to `matrix.csv` beside it (`--only TEXT` runs those whose name contains it).
"""

import argparse
import functools
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from codesign.config import scenario_from_config
from codesign.errors import CodesignError
from codesign.fields import get_path
from codesign.metrics import Metrics, evaluate
from codesign.objective import Objective
from codesign.run.setup import prepare_jax
from codesign.scenario import Scenario
from codesign.search import Certified, Problem
from codesign.space import Continuous, DesignSpace

HERE = Path(__file__).parent
UP, OUT, NEAR = "cluster.network.scale_up.fabric", "cluster.network.scale_out.fabric", "cluster.accelerator.hbm"
GAP, SECONDS = 0.002, 20.0
EDGE = 1e-3  # of a range's logarithm: nearer to its end is at it
UNPRICED = 1e-9  # elasticity of money, power and limits below which nothing holds a number back
STEP = 1.01  # by which a number is moved to see what it costs

FABRICS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {  # overrides; variable -> path
    "switch": (("fabric=nvlink4",), {"rate": f"{UP}.bandwidth_bytes_per_s", "latency": f"{UP}.latency_s"}),
    "switch, shared": (("fabric=nvlink4_shared",), {"rate": f"{UP}.inner.bandwidth_bytes_per_s"}),
    "switch, priced by paths": (("fabric=nvlink4", "paths=photonic"), {"rate": f"{UP}.bandwidth_bytes_per_s"}),
    "in-network sums": (("fabric=scin", "collective=scin"), {"rate": f"{UP}.bandwidth_bytes_per_s"}),
    "in-network sums, quantised": (("fabric=scin", "collective=scin_inq"), {"rate": f"{UP}.bandwidth_bytes_per_s"}),
    "circuits": (
        ("fabric=lightpath", "collective=lumorph"),
        {"rate": f"{UP}.bandwidth_bytes_per_s", "setting": f"{UP}.reconfiguration_s"},
    ),
    "circuits, best of algorithms": (
        ("fabric=lightpath", "collective=lumorph_best"),
        {"rate": f"{UP}.bandwidth_bytes_per_s", "setting": f"{UP}.reconfiguration_s"},
    ),
    "circuits from optics": (
        ("fabric=lightpath_optics", "collective=lumorph"),
        {"waveguides": f"{UP}.port.waveguides", "line": f"{UP}.port.bits_per_s"},
    ),
    "PCIe tree": (("fabric=fabrex_pcie", "collective=ring"), {"cable": f"{UP}.transfers_per_s"}),
    "PCIe graph": (
        ("fabric=fabrex_2s_2rp_split_flat", "collective=ring"),
        {"port": f"{UP}.links.port.transfers_per_s", "mesh": f"{UP}.links.xgmi.bandwidth_bytes_per_s"},
    ),
    "folded Clos outside": (
        ("fabric=nvlink4", "scale_out=infiniband_ndr_clos"),
        {"rate": f"{UP}.bandwidth_bytes_per_s"},
    ),
    "rails outside": (("fabric=nvlink4", "scale_out=rail_optimised_ndr"), {"rate": f"{UP}.bandwidth_bytes_per_s"}),
}
CARDS = {"rails outside": f"{OUT}.links.rail.bits_per_s"}  # path of the outer rate where it has another name

STACKS = {"stacks": (f"{NEAR}.capacity_bytes", (f"{NEAR}.bandwidth_bytes_per_s",))}
TIERS = {
    "stacks": (f"{NEAR}.tiers.hbm.capacity_bytes", (f"{NEAR}.tiers.hbm.bandwidth_bytes_per_s",)),
    "far tier": (f"{NEAR}.tiers.cxl.bandwidth_bytes_per_s", ()),
}
POOL = {
    "cache": (f"{NEAR}.cache.capacity_bytes", (f"{NEAR}.cache.bandwidth_bytes_per_s",)),
    "pool port": (f"{NEAR}.port.beta_s_per_byte", ()),
}
MEMORIES: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, tuple[str, ...]]]]] = {
    "HBM only": ((), STACKS),
    "tiers": (("memory=hbm_cxl_ssd",), TIERS),
    "pool": (("memory=photonic_pool",), POOL),
}

JOBS: dict[str, tuple[tuple[str, ...], dict[str, tuple[float, ...]]]] = {
    "dense training": (
        ("workload=training", "model=llama2_7b", "plan=data_parallel", "workload.global_batch=256", "plan.zero=1",
         "cluster.device_count=64"),
        {"tp": (4.0, 8.0), "micro_batch": (1.0, 2.0)},
    ),
    "MoE training": (
        ("workload=training", "model=mixtral_8x7b", "plan=data_parallel", "workload.global_batch=256", "plan.zero=1",
         "plan.ep=8", "plan.recompute=full", "cluster.device_count=64"),
        {"tp": (2.0, 4.0), "micro_batch": (1.0, 2.0)},
    ),
    "serving": (
        ("workload=serving", "model=llama31_70b", "plan=serving_node", "workload.input_tokens=1024",
         "workload.output_tokens=128", "cluster.device_count=16"),
        {"tp": (8.0, 16.0), "micro_batch": (8.0, 16.0)},
    ),
    "recommendation": (
        ("workload=recommendation", "model=dlrm_criteo", "plan=embedding_node", "cluster.device_count=16"),
        {"tp": (8.0, 16.0), "micro_batch": (4096.0, 8192.0)},
    ),
}  # fmt: skip

GOALS = {"time": "time_s", "energy": "joules_per_token", "cost": "usd_per_million_tokens"}


def ranged(scenario: Scenario, path: str, along: tuple[str, ...] = ()) -> Continuous:
    """From a half to twice what ships."""
    value = float(get_path(scenario, path))
    return Continuous(path, 0.5 * value, 2.0 * value, along=along)


@functools.cache
def problem(fabric: str, memory: str, job: str) -> tuple[Scenario, DesignSpace]:
    """The scenario of a cell, and what may be chosen in it."""
    wires, ways = FABRICS[fabric]
    stores, held = MEMORIES[memory]
    work, plan = JOBS[job]
    scenario = scenario_from_config("calibration=h100_sxm_roofline", *wires, *stores, *work)
    hardware = {name: ranged(scenario, path) for name, path in ways.items()}
    hardware["cards"] = ranged(scenario, CARDS.get(fabric, f"{OUT}.bandwidth_bytes_per_s"))
    hardware |= {name: ranged(scenario, path, along) for name, (path, along) in held.items()}
    return scenario, DesignSpace(plan, hardware)


def place_of(variable: Continuous, value: float) -> str:
    """Where in its range a value lies."""
    part = np.log(value / variable.low) / np.log(variable.high / variable.low)
    return "low" if part < EDGE else "high" if part > 1 - EDGE else "inside"


def held_back(space: DesignSpace, scenario: Scenario, point: Mapping[str, float], name: str) -> list[str]:
    """What changes in money, power or a limit when one number of a design moves."""

    def at(value: float) -> Metrics:
        return evaluate(space.place(scenario, dict(point) | {name: value}))

    value = point[name]
    away = value / STEP if value * STEP > space.hardware[name].high else value * STEP
    here, there = at(value).flat(), at(away).flat()
    kept = [key for key in here if key in ("capex_usd", "provisioned_power_w") or key.startswith("usage.")]
    return [key for key in kept if abs(float(there[key]) - float(here[key])) > UNPRICED * abs(float(here[key]))]


def cell(fabric: str, memory: str, job: str, goal: str) -> dict[str, Any]:
    """One row of the matrix."""
    row: dict[str, Any] = {"fabric": fabric, "memory": memory, "job": job, "goal": goal}
    try:
        scenario, space = problem(fabric, memory, job)
        trace = Certified(gap=GAP, seconds=SECONDS).run(Problem(scenario, space, Objective(GOALS[goal])), 0)
    except CodesignError as error:
        return row | {"verdict": "refused", "why": str(error)}
    found = trace.certificate
    names = [*space.plan, *space.hardware]
    point = {name: float(np.asarray(trace.points[name])[0]) for name in names}
    metrics = evaluate(space.place(scenario, point))
    edges, free = [], []
    for name, variable in space.hardware.items():
        assert isinstance(variable, Continuous)
        place = place_of(variable, point[name])
        if place != "inside":
            edges.append(f"{name} {place}")
            if not held_back(space, scenario, point, name):
                free.append(name)
    unproven = found.get("convexity", {}).get("unproven", {})
    fits = max([0.0, *(float(share) for share in metrics.usage.values())])
    feasible = fits <= 1 + 1e-6 and not any(float(value) > 0 for value in metrics.violations.values())
    verdict = "nothing fits" if not feasible else "certified" if found.get("certified") else "not certified"
    return row | {
        "verdict": verdict,
        "why": "; ".join(sorted({str(text) for text in unproven.values()})) or ("" if found.get("certified") else
                                                                                 str(found.get("reason", ""))),
        "value": float(metrics.get(GOALS[goal])),
        "gap": found.get("gap"),
        "fullest": fits,
        "at a bound": ", ".join(edges),
        "unpriced": ", ".join(free),
    }  # fmt: skip


def cells() -> Iterator[tuple[str, str, str, str]]:
    """All of them."""
    yield from itertools.product(FABRICS, MEMORIES, JOBS, GOALS)


def main() -> None:
    """Run the matrix and write it down, every row as soon as it is there."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--only", default="", help="cells whose names, joined by spaces, contain this")
    reader.add_argument("--out", default=str(HERE / "matrix.csv"))
    options = reader.parse_args()
    prepare_jax()
    rows = []
    for names in cells():
        if options.only and options.only not in " ".join(names):
            continue
        rows.append(cell(*names))
        print(len(rows), *names, "|", rows[-1]["verdict"], "|", rows[-1].get("at a bound", ""), flush=True)
        pd.DataFrame(rows).to_csv(options.out, index=False, float_format="%.6g", lineterminator="\n")


if __name__ == "__main__":
    main()
