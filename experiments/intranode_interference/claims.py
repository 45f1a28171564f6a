"""Section 4.2 of the document on intra-node communication: its configurations and trends, by the closed form.

How much the closed form can be trusted is seen in packet simulations of our own (`simulate.py` writes `simulated.csv`).

The document prints no figures as numbers, so most of its claims are signs: 1 where the stated ordering holds.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from _lib.events import Links, simulate_events
from _lib.node_network import NodeNetwork
from _lib.queues import simulate_queues
from codesign.evidence.reproduction import Claim
from codesign.model.networks.fabrics.interference import (
    CoupledNode,
    RealLifeFatTree,
    carried_load,
    equal_switch_tree,
    flow_completion_s,
    intra_latency_s,
    saturation_load,
    throughput,
)
from codesign.report.findings import BLUE, GREEN, GREY, ORANGE, YELLOW, Label, headline, name_ends, panels, plain_ticks

KINDS = {  # of claims whose standing alone does not say it
    "input": r"U0(3[2-6]|4[3-9]|50|53)\b|^table 3 row \d: accelerators",
    "transcription": r"^U056: best throughput",  # nothing leaves the node: four times the links, four times the bytes
}
NAME, HERE = "intranode_interference", Path(__file__).parent
INTRA_BAR, FCT_BAR, THROUGHPUT_BAR, NODES_BAR = 0.05, 0.12, 0.12, 0.04
ACCELERATORS, LINKS, WIRE = 8.0, (16e9, 32e9, 64e9), 50e9
PATTERNS = {"C1": 0.20, "C2": 0.15, "C3": 0.10, "C4": 0.05, "C5": 0.0}
UNLIMITED = 1e9  # messages of buffer
MESSAGE, PACKET, HOP = 4096.0, 128.0, 6e-9
LOADS = np.linspace(0.05, 1.0, 20)  # the document's twenty


def node(link: Any, buffers: Any = UNLIMITED) -> CoupledNode:
    """The document's node; the width of the port and the size of buffers are not printed."""
    return CoupledNode(ACCELERATORS, link, WIRE, ACCELERATORS * link, MESSAGE, PACKET, buffer_messages=buffers)


@cache
def simulated() -> pd.DataFrame:
    """Every simulated point beside the closed form."""
    table = pd.read_csv(HERE / "simulated.csv")

    def column(name: str) -> Any:
        return jnp.asarray(table[name].to_numpy(dtype=float))

    one = CoupledNode(
        column("accelerators"), column("link_bytes_per_s"), column("nic_bytes_per_s"), column("port_bytes_per_s"),
        buffer_messages=column("buffer_messages"),
    )  # fmt: skip
    tree, load, beyond = RealLifeFatTree(column("nodes"), column("leaf_nodes")), column("load"), column("beyond")
    return table.assign(
        intra_model_s=np.asarray(intra_latency_s(one, load, beyond)),
        fct_model_s=np.where(table["beyond"] > 0, np.asarray(flow_completion_s(one, tree, load, beyond)), np.nan),
        carried_model=np.asarray(carried_load(one, load, beyond)),
    )


QUANTITIES = {  # name -> (simulation, model, method, bar)
    "intra-node latency": ("intra_latency_s", "intra_model_s", "queues", INTRA_BAR),
    "flow completion time": ("flow_completion_s", "fct_model_s", "queues", FCT_BAR),
    "saturated throughput": ("carried_load", "carried_model", "events", THROUGHPUT_BAR),
}
FITTED_ON = 32e9  # links of the runs on which MEMORY_RATIO was fitted
HELD_OUT = "fitted 1 on 20 (held out)"


def agreement_claims() -> list[Claim]:
    """Largest error of the closed form over each group of runs."""
    table, result = simulated(), []
    document = table["purpose"] == "document"
    groups = {
        "C1-C5 at 256 GB/s, 32 nodes (the runs of the fit)": document & (table["link_bytes_per_s"] == FITTED_ON),
        "C1-C5 at 128 and 512 GB/s, 32 nodes": document & (table["link_bytes_per_s"] != FITTED_ON),
    }
    groups |= {purpose: table["purpose"] == purpose for purpose in table["purpose"].unique() if purpose != "document"}
    for group, chosen in groups.items():
        for quantity, (seen, model, method, bar) in QUANTITIES.items():
            part = table[chosen & (table["method"] == method)].dropna(subset=[seen, model])
            if part.empty:
                continue
            error = (part[model] / part[seen] - 1).abs()
            standing = "fitted 1 on 20" if "fit" in group else HELD_OUT
            text = f"{quantity} against packet simulation, {group}: largest error over {len(part)} runs"
            text += f" (mean {error.mean():.1%})"
            result.append(Claim(NAME, text, None, None, bar, standing, error=float(error.max())))
    return result


def ordering(text: str, holds: Any) -> Claim:
    """A stated sign: 1 where it holds."""
    return Claim(NAME, text, 1.0, float(bool(holds)), 0.0, "published", error=float(not bool(holds)))


def saturations(buffers: float = UNLIMITED) -> np.ndarray:
    """[links, patterns] saturation loads of the closed form."""
    shares = [jnp.asarray(share) for share in PATTERNS.values()]
    return np.array([[float(saturation_load(node(link, buffers), share)) for share in shares] for link in LINKS])


def best_throughputs() -> np.ndarray:
    """[links, patterns, (inside, beyond)] payload bytes per second of a node when everything is offered."""
    full = jnp.asarray(1.0)
    return np.array(
        [[throughput(node(r), full, jnp.asarray(p)) for p in PATTERNS.values()] for r in LINKS], dtype=float
    )


def latencies(nodes: float, link: float, share: float, loads: Any) -> tuple[np.ndarray, np.ndarray]:
    """Intra-node latency and flow completion time of the closed form."""
    one, tree, at, p = node(link), equal_switch_tree(nodes), jnp.asarray(loads), jnp.asarray(share)
    return np.asarray(intra_latency_s(one, at, p)), np.asarray(flow_completion_s(one, tree, at, p))


def trends() -> list[Claim]:
    """The document's orderings, by the closed form, and by the simulations where they have the runs."""
    limits, finite, best = saturations(), saturations(8.0), best_throughputs()
    table = simulated()
    saturated = table[(table["purpose"] == "document") & (table["method"] == "events")]
    carried = saturated.pivot(index="link_bytes_per_s", columns="beyond", values="carried_load")
    near = latencies(32.0, 64e9, 0.2, [0.1 * limits[2, 0], 0.99 * limits[2, 0]])
    same_load = [latencies(32.0, r, 0.2, 0.4)[1] for r in LINKS]
    outgoing = np.diff(best[:, :4, 1], axis=0)
    return [
        ordering("U054: saturation load falls with the share that leaves the node (C5 to C1, where below 1)",
                 (np.diff(limits[2, :3]) > 0).all() and (np.diff(limits, axis=1) >= 0).all()),
        ordering("U054: the same with buffers of 8 messages", (np.diff(finite, axis=1) >= 0).all()),
        ordering("U054: the same in the packet simulation (within 1 % where the card does not limit)",
                 (np.diff(carried[[0.2, 0.15, 0.1, 0.05, 0.0]], axis=1) > -0.01).all()),
        ordering("U055: saturation load falls with the bandwidth inside (C1-C4, never rises)",
                 (np.diff(limits[:, :4], axis=0) <= 0).all() and (limits[2, :3] < limits[0, :3]).all()),
        ordering("U055: the same in the packet simulation (C1 and C2)",
                 (np.diff(carried[[0.2, 0.15]], axis=0) < 0.01).all()),
        ordering("U057: throughput between nodes grows with the bandwidth inside, up to the card's limit",
                 (outgoing >= -1e-3).all() and (best[-1, :4, 1] > best[0, :4, 1]).all()),
        ordering("section 4.2.3: C1 and C2 have the most throughput between nodes",
                 (best[1, :2, 1] > best[1, 2:, 1].max() * 0.9999).all()),
        ordering("section 4.2.3: C1 and C2 have the worst flow completion time (load 0.4, 512 GB/s)",
                 (np.diff([float(latencies(32.0, 64e9, p, 0.4)[1]) for p in list(PATTERNS.values())[:4]]) < 0).all()),
        ordering("section 4.2.3: latencies skyrocket near saturation (C1, 512 GB/s: FCT x 10 from 0.1 to 0.99)",
                 near[1][1] > 10 * near[1][0]),
        ordering("abstract: at one load (C1, 0.4) 512 instead of 256 GB/s inside delays messages between nodes",
                 same_load[2] > same_load[1]),
        ordering("section 4.2.3: past the card's limit (C1, 512 GB/s) a card twice as fast lets more through inside",
                 best[2, 0, 0] < float(throughput(doubled(), jnp.asarray(1.0), jnp.asarray(0.2)).inside)),
    ]  # fmt: skip


def doubled() -> CoupledNode:
    """The 512 GB/s node with a card of 800 Gb/s."""
    return CoupledNode(ACCELERATORS, LINKS[2], 2 * WIRE, ACCELERATORS * LINKS[2], buffer_messages=UNLIMITED)


def printed() -> list[Claim]:
    """Figures of sections 3.4 and 4.2 and table 3: inputs as the experiment uses them, results where there are any."""
    best, table = best_throughputs(), simulated()
    trees = {nodes: equal_switch_tree(nodes) for nodes in (32.0, 128.0)}
    large, small = (table[table["purpose"] == purpose] for purpose in ("128 nodes", "document"))
    pairs = large.merge(small[small["method"] == "queues"], on=["link_bytes_per_s", "beyond", "load"])
    apart = (pairs["intra_latency_s_x"] / pairs["intra_latency_s_y"] - 1).abs().max()

    def exact(text: str, paper: float, model: float, bar: float = 1e-6, standing: str = "published") -> Claim:
        return Claim(NAME, text, paper, model, bar, standing)

    shares = [
        exact(f"U0{32 + i}: {name} share between nodes, %", paper, 100 * PATTERNS[name])
        for i, (name, paper) in enumerate(zip(("C1", "C2", "C3", "C4"), (20, 15, 10, 5), strict=True))
    ]
    shares.append(
        Claim(NAME, "U036: C5 share between nodes, %", 0.0, 100 * PATTERNS["C5"], 0.0, "published", error=0.0)
    )
    return [
        *shares,
        exact("U043: accelerators a node", 8, ACCELERATORS),
        *[
            exact(f"U04{4 + i}: aggregate bandwidth inside, GB/s: C5 carried at full load", paper, best[i, 4, 0] / 1e9)
            for i, paper in enumerate((128, 256, 512))
        ],
        exact("U047: link between nodes, Gbit/s", 400, 8 * WIRE / 1e9),
        exact("U048: first flit through the network, ns", 6, HOP * 1e9),
        exact("U049: message, bytes", 4096, MESSAGE),
        exact("U050: loads a pattern", 20, len(LOADS)),
        Claim(NAME, "U051: warm-up, ms (ours: a quarter of each run; means settle within it)", 2.5, None, None,
              "not determined: a setting of the document's simulator, not a result"),
        Claim(NAME, "U052: measured, ms (ours: duration_s of simulated.csv)", 0.5, None, None,
              "not determined: a setting of the document's simulator, not a result"),
        exact("U053: packet inside the destination's node, bytes", 128, PACKET),
        exact("U056: best throughput inside, 512 over 128 GB/s (C5; paper: proportional)", 4,
              best[2, 4, 0] / best[0, 4, 0]),
        Claim(NAME, "U056: the same for C1 (stated for all; the document's next sentence contradicts it)",
              4.0, best[2, 0, 0] / best[0, 0, 0], None, "published"),
        ordering("U058: C5 improves with the bandwidth inside (throughput up, latency down)",
                 (np.diff(best[:, 4, 0]) > 0).all()
                 and (np.diff([float(latencies(32.0, r, 0.0, 0.5)[0]) for r in LINKS]) < 0).all()),
        Claim(NAME, "U059: intra-node latency of 128 over 32 nodes, packet simulation: largest difference", None, None,
              NODES_BAR, "published", error=float(apart)),
        exact("U060: throughput of 128 over 32 nodes", 4.0, whole(large) / whole(small), NODES_BAR),
        Claim(NAME, "section 4.2.3, note 2: throughput drops to zero past saturation (ours: a plateau)", 0.0,
              float(best[2, 0].sum() / (ACCELERATORS * LINKS[2])), None,
              "not determined: finite buffers with credits lose nothing, and no figure is printed"),
        *[
            exact(f"table 3 row {i + 1}: accelerators", paper, nodes * ACCELERATORS)
            for i, (nodes, paper) in enumerate(zip(trees, (256, 1024), strict=True))
        ],
        *[
            exact(f"table 3 row {i + 1}: switches of an RLFT of equal switches for {nodes:.0f} nodes", paper,
                  float(tree.switches()), standing="derived")
            for i, ((nodes, tree), paper) in enumerate(zip(trees.items(), (12, 24), strict=True))
        ],
        ordering("table 3: D-mod-K gives each link from spine to leaf one destination", one_destination_a_link()),
    ]  # fmt: skip


def whole(table: pd.DataFrame) -> float:
    """Simulated bytes per second of all nodes: C1 at 512 GB/s and half of the saturation load."""
    part = table[(table["method"] == "queues") & (table["link_bytes_per_s"] == 64e9) & (table["beyond"] == 0.2)]
    return float((part["nodes"] * (part["inside_bytes_per_s"] + part["beyond_bytes_per_s"])).iloc[1])


def one_destination_a_link() -> bool:
    """Whether the simulated routes share no link from spine to leaf between destinations."""
    links, seen = Links(NodeNetwork()), {}
    first, last = links.first["spine_down"], links.first["leaf_down"]
    for source in range(0, 256, 8):
        for target in range(0, 256, 8):
            if source != target:
                for link in links.route(source, target):
                    if first <= link < last:
                        seen.setdefault(link, set()).add(target)
    return all(len(targets) == 1 for targets in seen.values())


def rerun() -> list[Claim]:
    """Points of the table simulated again now, and the two simulations against each other where both are exact."""
    runs = _simulate()
    table = pd.read_csv(HERE / "simulated.csv")
    wanted = table[(table["purpose"] == "4 accelerators") & (table["method"] == "events")].iloc[0]
    net = runs.network(wanted["link_bytes_per_s"], nodes=8, accelerators=4)
    again = simulate_events(net, 1.0, wanted["beyond"], wanted["duration_s"], 0.4 * wanted["duration_s"], seed=2)
    roomy = NodeNetwork(4, 8, 2, buffer_messages=4000, card_messages=4000, tree_messages=4000)
    both = [simulate(roomy, 0.6, 0.1, 30e-6, 5e-6, seed=3) for simulate in (simulate_events, simulate_queues)]
    return [
        Claim(NAME, "a row of simulated.csv simulated again: carried load", float(wanted["carried_load"]),
              again.carried_load, 1e-5, "derived"),
        Claim(NAME, "flow completion time by events with roomy buffers against Lindley's recursion, ns",
              both[1].flow_completion_s * 1e9, both[0].flow_completion_s * 1e9, 1e-9, "derived"),
    ]  # fmt: skip


def _simulate() -> Any:
    specification = importlib.util.spec_from_file_location("intranode_simulate", HERE / "simulate.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def claims() -> list[Claim]:
    """What is printed, what is stated, and what the closed form is worth."""
    return [*printed(), *trends(), *agreement_claims(), *rerun()]


def tables() -> dict[str, pd.DataFrame]:
    """Saturation loads with unlimited buffers, and with 8 messages in front of each output."""
    frames = []
    for label, buffers in (("unlimited", UNLIMITED), ("8 messages", 8.0)):
        for link, row in zip(LINKS, saturations(buffers), strict=True):
            frames.append({"buffers": label, "GB/s inside": 8 * link / 1e9} | dict(zip(PATTERNS, row, strict=True)))
    return {"Saturation load": pd.DataFrame(frames)}


def figures() -> dict[str, Figure]:
    """The document's figures 5 and 6 for its two extreme nodes: closed form as lines, simulation as marks."""
    figure, rows = panels(4.9, 2, 4, sharex=True)
    for row, link in zip(rows, (LINKS[0], LINKS[2]), strict=True):
        ends = [
            point for name, colour in zip(PATTERNS, COLOURS, strict=True) if (point := _draw(row, link, name, colour))
        ]
        titles = ("inside, GB/s", "between, GB/s", "inside, ns", "between, ns")
        for axes, title in zip(row, titles, strict=True):
            axes.set_title(title, fontsize=8)
        row[0].set_ylabel(f"node of {8 * link / 1e9:.0f} GB/s")
        for axes in row[2:]:
            axes.set_yscale("log")
            plain_ticks(axes, "y", (100, 200, 500, 1000, 2000, 4000))
        name_ends(row[1], ends, 1.02)
    for axes in rows[1]:
        axes.set_xlabel("offered load, %")
    loads = saturations(8.0)
    few, many = (float(rates[0]) for rates in (loads[0], loads[-1]))
    headline(figure, f"Four times the bandwidth inside lets the card between nodes saturate at {many:.0%} of the load "
             f"instead of {few:.0%} (pattern C1), and the inside carries less then (lines: closed form, dots: "
             f"packets)")  # fmt: skip
    return {"Closed form and packet simulation": figure}


def _draw(axes: Any, link: float, pattern: str, colour: str) -> Label:
    """One pattern at one bandwidth: throughputs with the simulated switch buffers, latencies below saturation."""
    share, table = PATTERNS[pattern], simulated()
    moved = throughput(node(link, 8.0), jnp.asarray(LOADS), jnp.asarray(share))
    below = 0.97 * float(saturation_load(node(link), jnp.asarray(share))) > LOADS
    late = latencies(32.0, link, share, LOADS)
    runs = table[(table["purpose"] == "document") & (table["link_bytes_per_s"] == link) & (table["beyond"] == share)]
    queues, events = runs[runs["method"] == "queues"], runs[runs["method"] == "events"]
    for axis, line, column in zip(axes[:2], moved, ("inside_bytes_per_s", "beyond_bytes_per_s"), strict=True):
        axis.plot(100 * LOADS, np.asarray(line) / 1e9, color=colour, linewidth=1.2)
        axis.plot(100 * events["load"], events[column] / 1e9, "o", color=colour, markersize=3)
    for axis, line, column in zip(axes[2:], late, ("intra_latency_s", "flow_completion_s"), strict=True):
        if share or column == "intra_latency_s":
            axis.plot(100 * LOADS[below], 1e9 * line[below], color=colour, linewidth=1.2)
            axis.plot(100 * queues["load"], 1e9 * queues[column], "o", color=colour, markersize=3)
    return Label(100 * float(LOADS[-1]), float(np.asarray(moved[1])[-1]) / 1e9, pattern, colour)


COLOURS = (ORANGE, YELLOW, GREEN, BLUE, GREY)
