"""Every fabric with every memory under every job and goal: evaluated, optimised over a small space, proven or not.

A cell is a scenario of configurations that ship, the plans of its job, and what is free of its hardware: rates and
latencies of its networks, its memory. No budget is set, so what an optimum leaves inside its range has a price in the
goal; what it drives to a bound is named, with whether money, power or a limit of the part would have held it back.

Run as a script, all cells are written to `matrix.csv` beside it (`--only TEXT` runs those whose name contains it).
"""

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from codesign import (
    Certified,
    CodesignError,
    Continuous,
    DesignSpace,
    Objective,
    Problem,
    Scenario,
    Trace,
    designs,
    get_path,
    prepare_jax,
    scenario_from_config,
)

HERE = Path(__file__).parent
UP, OUT, NEAR = "cluster.network.scale_up.fabric", "cluster.network.scale_out.fabric", "cluster.accelerator.hbm"
GAP, SECONDS = 0.002, 20.0
EDGE = 1e-3  # of a range's logarithm: nearer to its end is at it
UNPRICED = 1e-9  # elasticity of money, power and limits below which nothing holds a number back
STEP = 1.01  # by which a number is moved to see what it costs

FABRICS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {  # overrides; variable -> path
    "switch": (("fabric=nvlink4",), {"rate": f"{UP}.bandwidth_bytes_per_s", "latency": f"{UP}.latency_s"}),
    "switch, shared": (("fabric=nvlink4_shared",), {"rate": f"{UP}.inner.bandwidth_bytes_per_s"}),
    "switch, priced by paths": (("fabric=nvlink4", "path_energy=photonic"), {"rate": f"{UP}.bandwidth_bytes_per_s"}),
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
    "queued node": (
        ("fabric=nvlink4_queued", "scale_out=infiniband_ndr_queued"),
        {"rate": f"{UP}.inner.bandwidth_bytes_per_s", "others": f"{UP}.background_bytes_per_s"},
    ),
    "slice of circuits": (
        ("fabric=lightpath_slice", "collective=lumorph"),
        {"fiber": f"{UP}.fiber_bytes_per_s", "setting": f"{UP}.reconfiguration_s"},
    ),
}
CARDS = {  # path of the outer rate where it has another name
    "rails outside": f"{OUT}.links.rail.bits_per_s",
    "queued node": f"{OUT}.inner.bandwidth_bytes_per_s",
}

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
        ("workload=static_batch", "model=llama31_70b", "plan=serving_node", "workload.input_tokens=1024",
         "workload.output_tokens=128", "cluster.device_count=16"),
        {"tp": (8.0, 16.0), "micro_batch": (8.0, 16.0)},
    ),
    "continuous": (
        ("workload=continuous", "model=llama31_70b", "plan=serving_node", "workload.input_tokens=1024",
         "workload.output_tokens=128", "plan.token_budget=2048", "cluster.device_count=16"),
        {"tp": (8.0, 16.0), "micro_batch": (16.0, 32.0)},
    ),
    "goodput": (
        ("workload=goodput", "model=llama31_70b", "plan=serving_node", "workload.input_tokens=1024",
         "workload.output_tokens=128", "plan.token_budget=2048", "cluster.device_count=16"),
        {"tp": (8.0, 16.0), "micro_batch": (16.0, 32.0)},
    ),
    "disaggregated": (
        ("workload=disaggregated", "prefill=same", "model=llama31_70b", "plan=serving_node",
         "workload.input_tokens=1024", "workload.output_tokens=128", "plan.token_budget=2048",
         "plan.prefill_devices=16", "cluster.device_count=16"),
        {"tp": (8.0, 16.0), "micro_batch": (16.0, 32.0)},
    ),
    "recommendation": (
        ("workload=recommendation", "model=dlrm_criteo", "plan=embedding_node", "cluster.device_count=16"),
        {"tp": (8.0, 16.0), "micro_batch": (4096.0, 8192.0)},
    ),
}  # fmt: skip

UNLIKE = ("switch", "in-network sums, quantised", "queued node", "slice of circuits")
"""Fabrics on which goodput is asked for."""

GOALS = {"time": "time_s", "energy": "joules_per_token", "cost": "usd_per_million_tokens"}


def ranged(scenario: Scenario, path: str, along: tuple[str, ...] = ()) -> Continuous:
    """From a half to twice what ships, the same in a prefill pool."""
    value = float(get_path(scenario, path))
    if scenario.cluster.prefill is not None:
        along = (*along, *(f"cluster.prefill.{each}" for each in (path, *along)))
    return Continuous(path, 0.5 * value, 2.0 * value, tied=along)


@functools.cache
def composed(*overrides: str) -> Scenario:
    """A scenario that ships."""
    return scenario_from_config("calibration=h100_sxm_roofline", "framework=none", *overrides)


@functools.cache
def problem(fabric: str, memory: str, job: str) -> tuple[Scenario, DesignSpace]:
    """The scenario of a cell, put together from those of its three parts, and what may be chosen in it."""
    wires, ways = FABRICS[fabric]
    stores, held = MEMORIES[memory]
    work, plan = JOBS[job]
    cluster, asked = composed(*wires).cluster, composed(*work)
    near = composed(*stores).cluster.accelerator.hbm
    cluster = dataclasses.replace(
        cluster,
        accelerator=dataclasses.replace(cluster.accelerator, hbm=near),
        device_count=asked.cluster.device_count,
    )
    pool = asked.cluster.prefill
    if pool is not None:  # of the same accelerators, memories and networks
        cluster = dataclasses.replace(cluster, prefill=dataclasses.replace(pool, cluster=cluster))
    scenario = dataclasses.replace(asked, cluster=cluster)
    ways = ways | {"cards": CARDS.get(fabric, f"{OUT}.bandwidth_bytes_per_s")}
    paths = {name: (path, ()) for name, path in ways.items()} | held
    return scenario, DesignSpace(plan, {name: ranged(scenario, *each) for name, each in paths.items()})


def place_of(variable: Continuous, value: float) -> str:
    """Where in its range a value lies."""
    part = np.log(value / variable.low) / np.log(variable.high / variable.low)
    return "low" if part < EDGE else "high" if part > 1 - EDGE else "inside"


def beside(space: DesignSpace, point: Mapping[str, float]) -> dict[str, np.ndarray]:
    """The design, and for each number of its hardware the design with that number moved inwards."""
    names = list(space.hardware)
    columns = {name: np.full(len(names) + 1, value) for name, value in point.items()}
    for index, name in enumerate(names, start=1):
        inwards = STEP if place_of(space.hardware[name], point[name]) == "low" else 1 / STEP
        columns[name][index] *= inwards
    return columns


def held_back(priced: pd.DataFrame, place: int) -> bool:
    """Whether money, power or a limit changes when one number of a design moves."""
    kept = [name for name in priced if name in ("capex_usd", "provisioned_power_w") or name.startswith("usage.")]
    here, there = (priced[kept].iloc[row].to_numpy(dtype=float) for row in (0, place))
    return bool((np.abs(there - here) > UNPRICED * np.abs(here)).any())


def cell(fabric: str, memory: str, job: str, goal: str) -> dict[str, Any]:
    """One row of the matrix."""
    row: dict[str, Any] = {"fabric": fabric, "memory": memory, "job": job, "goal": goal}
    try:
        scenario, space = problem(fabric, memory, job)
        asked = Problem(scenario, space, Objective(GOALS[goal]))
        trace = Certified(gap=GAP, seconds=SECONDS).run(asked, 0)
    except CodesignError as error:
        return row | {"verdict": "refused", "why": str(error)}
    result = trace.certificate
    point = {name: float(np.asarray(trace.points[name])[0]) for name in (*space.plan, *space.hardware)}
    points = beside(space, point)
    count = len(space.hardware) + 1
    priced = designs(asked, Trace(points, ["cell"] * count), 0)
    order = [int(np.argmin(sum(abs(priced[f"var.{n}"] / points[n][k] - 1) for n in points))) for k in range(count)]
    priced = priced.iloc[order].reset_index(drop=True)
    edges = {name: place_of(space.hardware[name], point[name]) for name in space.hardware}
    bound = [name for name, place in edges.items() if place != "inside"]
    free = [name for name in bound if not held_back(priced, 1 + list(edges).index(name))]
    certified, unproven = result.certified, result.convexity.unproven if result.convexity else {}
    why = "; ".join(sorted({str(text) for text in unproven.values()})) or result.reason
    feasible = bool(priced["feasible"].iloc[0])
    return row | {
        "verdict": "nothing fits" if not feasible else "certified" if certified else "not certified",
        "why": "" if certified else why,
        "value": float(priced[GOALS[goal]].iloc[0]),
        "gap": result.gap,
        "at a bound": ", ".join(f"{name} {edges[name]}" for name in bound),
        "unpriced": ", ".join(free),
    }


def cells() -> Iterator[tuple[str, str, str, str]]:
    """All of them; goodput, whose plans take minutes each, on fabrics that are least alike."""
    for fabric, memory, job, goal in itertools.product(FABRICS, MEMORIES, JOBS, GOALS):
        if job != "goodput" or (fabric in UNLIKE and memory == "HBM only" and goal == "cost"):
            yield fabric, memory, job, goal


def main() -> None:
    """Run the matrix and write it down, row by row; the last matrix stays until this one is whole."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--only", default="", help="cells whose names, joined by spaces, contain this")
    reader.add_argument("--out", default=str(HERE / "matrix.csv"))
    options = reader.parse_args()
    prepare_jax()
    rows, partial = [], Path(f"{options.out}.partial")
    for names in cells():
        if options.only and options.only not in " ".join(names):
            continue
        rows.append(cell(*names))
        print(len(rows), *names, "|", rows[-1]["verdict"], "|", rows[-1].get("at a bound", ""), flush=True)
        pd.DataFrame(rows).to_csv(partial, index=False, float_format="%.6g", lineterminator="\n")
    partial.replace(options.out)


if __name__ == "__main__":
    main()
