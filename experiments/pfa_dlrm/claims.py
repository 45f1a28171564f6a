"""Embedding pooling on 10 TB of tables: 128 H100 against a photonic appliance, over the document's 42 configurations.

The tables are cut by rows over 128 devices; the appliance is one processor with all tables in its memory. First the
package's own kernels and collectives of an H100 cluster with nothing fitted, then with one constant for both printed
averages, the time a framework takes to launch an exchange; beside it a roofline with a launch time for each average.
"""

import dataclasses
import functools
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.optimize import brentq

from codesign import Scenario, evaluate, replace, scenario_from_config
from codesign.evidence.reproduction import Claim
from codesign.model.hardware import Roofline
from codesign.model.networks.collectives import (
    Collectives,
    NetworkLevel,
    PairwiseAllToAll,
    RingAllGather,
    RingAllReduce,
    Send,
    Tuned,
)
from codesign.model.networks.fabrics import FatTree, SwitchDomain
from codesign.report.findings import BLUE, ORANGE, Label, headline, name_ends, panels, plain_ticks
from codesign.staging import at_many

NAME = "pfa_dlrm"
KINDS = {  # of claims whose standing alone does not say it
    "input": r"PFA-06[345]\b",
    "note": r"^PFA-0(10|67).*average of 42",  # what the launch times are fitted on
}
PAPER = {"nvlink": 22.8, "pcie": 28.3}  # section 7, averages of figure 14
TABLES, BATCHES, POOLING = (1, 2, 4, 8, 16, 32, 64), (128, 1024, 4096), (32, 64)  # section 7
TOTAL_BYTES, DIMENSION, DEVICES = 10e12, 32.0, 128.0  # section 7
APPLIANCE_BYTES_PER_S = 26.8e12  # section 6.1; sixteen ports of 7.2 Tb/s carry 14.4e12
PORT_BYTES_PER_S = 0.9e12
LINKS = {"nvlink": 360e9, "pcie": 51e9}  # assumed: 80 % of 450 and of 63 GB/s
INFINIBAND = 40e9  # assumed: 80 % of 50 GB/s
UTILISATION = 0.5  # assumed: of memory, rows of 128 bytes at random
START_S = 3e-6  # assumed: of a look-up kernel
FIT_BAR = 0.05
FABRICS = {"nvlink": "nvlink4", "pcie": "pcie_gen5"}
EXCHANGES = ("all_to_all", "reduce_scatter")  # of indices, of pooled vectors
ONE_BAR = 0.10  # of both averages from one constant

POINTS = list(itertools.product(TABLES, BATCHES, POOLING))
COLUMNS = {
    "workload.model.tables.count": [float(t) for t, _, _ in POINTS],
    "workload.model.tables.rows": [TOTAL_BYTES / (t * DIMENSION * 4) for t, _, _ in POINTS],
    "workload.model.tables.pooling": [float(p) for _, _, p in POINTS],
    "plan.micro_batch": [float(b) for _, b, _ in POINTS],
}


@functools.cache
def timer() -> Any:
    """Scenario -> seconds of a batch, for all 42 configurations in one call; one compilation for each structure."""

    def one(scenario: Scenario, values: dict[str, Any]) -> Any:
        return evaluate(replace(scenario, values)).time_s

    return at_many(one, (None, 0))


def seconds(scenario: Scenario) -> np.ndarray:
    """Time of each of `POINTS`."""
    return np.asarray(timer()(scenario, {path: jnp.asarray(column) for path, column in COLUMNS.items()}))


@functools.cache
def cluster(*overrides: str) -> Scenario:
    """128 H100 that hold the tables by rows, as the package prices them."""
    return scenario_from_config(
        "accelerator=h100_sxm", "model=embedding_10tb", "workload=recommendation", "plan=embedding_node",
        "workload.precision.activations=fp32", f"cluster.device_count={DEVICES:g}", f"plan.tp={DEVICES:g}",
        f"plan.row_shards={DEVICES:g}", *overrides,
    )  # fmt: skip


def appliance(scenario: Scenario, bandwidth: float = APPLIANCE_BYTES_PER_S) -> Scenario:
    """One processor in front of memory that holds everything."""
    memory = {"bandwidth_bytes_per_s": bandwidth, "capacity_bytes": 32e12}
    values = {f"cluster.accelerator.hbm.{name}": value for name, value in memory.items()}
    return replace(scenario, values | {"cluster.device_count": 1.0, "plan.tp": 1.0, "plan.row_shards": 1.0})


def plain(link: str, launch_s: float) -> Scenario:
    """The cluster with a roofline, two bandwidths and one launch time for each of its two collectives."""

    def level(fabric: Any, summing: float) -> NetworkLevel:
        exchange = Tuned(PairwiseAllToAll(), launch_s=launch_s)
        scatter = Tuned(RingAllGather(), launch_s=summing)
        return NetworkLevel(fabric, Collectives(RingAllReduce(), RingAllGather(), scatter, exchange, Send()))

    whole = cluster()
    network = {  # an exchange starts on both levels at once, a reduction on the inner one and goes on outside
        "scale_up": level(SwitchDomain(8.0, LINKS[link], 0.0), launch_s),
        "scale_out": level(FatTree(INFINIBAND, 0.0), 0.0),
    }
    kernels = {"elementwise": {"any": Roofline(t0_s=START_S, memory_ratio=UTILISATION)}}
    accelerator = dataclasses.replace(whole.cluster.accelerator, kernels=kernels)
    machine = dataclasses.replace(whole.cluster, accelerator=accelerator, network=network)
    return dataclasses.replace(whole, cluster=machine)


@functools.cache
def fitted_launch_s(link: str) -> float:
    """The launch time with which the average speed-up is the printed one: the average is affine in it."""
    one = seconds(appliance(plain(link, 0.0)))
    at_zero, at_one = (float(np.mean(seconds(plain(link, launch)) / one)) for launch in (0.0, 1e-6))
    return 1e-6 * (PAPER[link] - at_zero) / (at_one - at_zero)


def launched(link: str, launch_s: float) -> Scenario:
    """The package's own cluster, each exchange started by a framework that takes so long."""
    own = cluster(f"fabric={FABRICS[link]}")
    level = own.cluster.network["scale_up"]
    slower = {name: Tuned(getattr(level.collectives, name), launch_s=launch_s) for name in EXCHANGES}
    level = dataclasses.replace(level, collectives=dataclasses.replace(level.collectives, **slower))
    network = own.cluster.network | {"scale_up": level}
    return dataclasses.replace(own, cluster=dataclasses.replace(own.cluster, network=network))


@functools.cache
def mean_launched(link: str, launch_s: float) -> float:
    """Average speed-up of the appliance over it."""
    own = cluster(f"fabric={FABRICS[link]}")
    return float(np.mean(seconds(launched(link, launch_s)) / seconds(appliance(own))))


@functools.cache
def one_launch_s() -> float:
    """The launch time with which both averages are as far off, one above and one below: the least largest error.

    Zero where both are above what is printed without any: launches only slow the cluster down.
    """

    def product(launch_s: float) -> float:
        return float(np.sum([np.log(mean_launched(link, launch_s) / value) for link, value in PAPER.items()]))

    return float(brentq(product, 0.0, 2e-4, xtol=1e-8)) if product(0.0) < 0 else 0.0


@functools.cache
def grid() -> pd.DataFrame:
    """One row a configuration: times in seconds and speed-ups, fitted and untuned."""
    frame = pd.DataFrame(POINTS, columns=["tables", "batch", "pooling"])
    for link, fabric in FABRICS.items():
        fit, own = plain(link, round(fitted_launch_s(link), 7)), cluster(f"fabric={fabric}")
        for kind, scenario in (("fitted", fit), ("untuned", own)):
            frame[f"{link}_{kind}_s"] = seconds(scenario)
            frame[f"appliance_{kind}_s"] = seconds(appliance(scenario))
            frame[f"{link}_{kind}"] = frame[f"{link}_{kind}_s"] / frame[f"appliance_{kind}_s"]
    return frame


def mean_with(link: str, bandwidth: float) -> float:
    """Average speed-up, fitted constants, of an appliance whose memory is read at another rate."""
    scenario = plain(link, round(fitted_launch_s(link), 7))
    return float(np.mean(seconds(scenario) / seconds(appliance(scenario, bandwidth))))


def fewest_devices() -> float:
    """Smallest power of two of 80 GB devices that hold the tables."""
    count = 1.0
    while TOTAL_BYTES / count > 80e9:
        count *= 2
    return count


def table_bytes() -> float:
    """What `model=embedding_10tb` and the row-wise cut put on all devices together."""
    scenario = cluster()
    return float(scenario.workload.footprint(scenario.layout)["tables"][0] * DEVICES)


def ordering(text: str, smaller: float, larger: float) -> Claim:
    """A claim that one number exceeds another; its error is by how much it does not."""
    short = max(0.0, 1 - larger / smaller)
    return Claim(NAME, text, smaller, larger, 0.0, "derived", short)


def claims() -> list[Claim]:
    """Section 7, the document's abstract, and what the averages rest on."""
    frame = grid()
    mean = {name: float(frame[name].mean()) for name in frame if name.split("_")[-1] in ("fitted", "untuned")}
    launches = {link: fitted_launch_s(link) * 1e6 for link in PAPER}
    rows = [
        Claim(NAME, "PFA-063: size of the tables [TB]", 10.0, table_bytes() / 1e12, 1e-3, "published"),
        Claim(NAME, "PFA-064: 80 GB devices for the tables", DEVICES, fewest_devices(), 0.0, "published"),
        Claim(
            NAME,
            "PFA-065: embedding dimension",
            DIMENSION,
            float(cluster().workload.model.tables.dimension),
            0.0,
            "published",
        ),
    ]
    for claim, link in (("PFA-010, PFA-066", "nvlink"), ("PFA-067", "pcie")):
        standing = f"fitted 1 on 1 (launch {launches[link]:.1f} us)"
        text = f"{claim}: speed-up over {link}, average of 42"
        rows.append(Claim(NAME, text, PAPER[link], mean[f"{link}_fitted"], FIT_BAR, standing))
    for claim, link in (("PFA-066", "nvlink"), ("PFA-067", "pcie")):
        text = f"{claim}: the same, nothing fitted ({link})"
        rows.append(Claim(NAME, text, PAPER[link], mean[f"{link}_untuned"], None, "derived"))
    launch = one_launch_s()
    for claim, link in (("PFA-066", "nvlink"), ("PFA-067", "pcie")):
        text = f"{claim}: own kernels and collectives, one launch time for all, {launch * 1e6:.0f} us ({link})"
        rows.append(Claim(NAME, text, PAPER[link], mean_launched(link, launch), ONE_BAR, "fitted 1 on 2"))
    rows += [
        ordering("untuned: NVLink above 10", 10.0, mean["nvlink_untuned"]),
        ordering("untuned: PCIe above NVLink", mean["nvlink_untuned"], mean["pcie_untuned"]),
    ]
    same = plain("pcie", round(fitted_launch_s("nvlink"), 7))
    ratio = float(np.mean(seconds(same) / seconds(appliance(same)))) / mean["nvlink_fitted"]
    text = "PCIe over NVLink by bandwidth alone (one launch time for both)"
    rows.append(Claim(NAME, text, PAPER["pcie"] / PAPER["nvlink"], ratio, None, "derived"))
    for ports in (16, 1):
        text = f"speed-up over NVLink, memory read through {ports} port{'s' * (ports > 1)}"
        speed = mean_with("nvlink", ports * PORT_BYTES_PER_S)
        rows.append(Claim(NAME, text, None, speed, None, "derived: the port rate of section 3.3"))
    return rows


def tables() -> dict[str, pd.DataFrame]:
    """Every configuration."""
    frame = grid()
    return {"Every configuration": frame[[n for n in frame if not n.endswith("_s")]].round(3)}


def figures() -> dict[str, Any]:
    """Speed-up against the number of tables, a panel a batch: bands over pooling 32 to 64, fitted and not."""
    frame = grid()
    figure, ((*row,),) = panels(3.5, 1, len(BATCHES), sharey=True)
    for axes, batch in zip(row, BATCHES, strict=True):
        ends = []
        for link, word, colour in (("nvlink", "NVLink", BLUE), ("pcie", "PCIe", ORANGE)):
            for kind, alpha, line in (("fitted", 0.35, "-"), ("untuned", 0.15, "--")):
                part = frame[frame["batch"] == batch].pivot(index="tables", columns="pooling", values=f"{link}_{kind}")
                axes.fill_between(part.index, part[64], part[32], color=colour, alpha=alpha, linewidth=0)
                middle = part.mean(axis=1).to_numpy()
                axes.plot(part.index, middle, line, color=colour, linewidth=1.2)
                told = word if kind == "fitted" else f"{word}, not fitted"
                ends.append(Label(TABLES[-1], float(middle[-1]), told, colour))
        axes.axhline(1, color="0.4", linewidth=1)
        axes.set(xscale="log", yscale="log", xlabel="tables", ylim=(0.6, 200))
        axes.set_title(f"batch {batch:,}")
        plain_ticks(axes, "x", TABLES)
        plain_ticks(axes, "y", (1, 2, 5, 10, 20, 50, 100))
        if axes is row[-1]:
            name_ends(axes, ends)
    row[0].set_ylabel("times as fast as 128 H100")
    most, least = (float(getattr(frame["nvlink_fitted"], kind)()) for kind in ("max", "min"))
    raw = [float(frame[f"{link}_untuned"].mean()) for link in LINKS]
    headline(figure, f"The appliance wins where collectives take longer to start than to run: {most:.0f} times at one "
             f"table, {least:.1f} at 64 of a large batch; {raw[0]:.0f} and {raw[1]:.0f} on average where nothing is "
             f"fitted (printed: {PAPER['nvlink']:g} and {PAPER['pcie']:g})")  # fmt: skip
    return {"Speed-up over 128 H100": figure}
