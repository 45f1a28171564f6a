"""Where more bandwidth inside the nodes stops helping a training step, and which network card lets it help again.

All by the gradient of the step time: one compiled function gives time and slopes for a batch of (bandwidth inside,
card, queues); bisection on the slope finds the bandwidth from which on it is flat.
"""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import Scenario, evaluate, get_path, replace, scenario_from_config
from codesign.evidence.reproduction import Claim
from codesign.model import sent_per_step
from codesign.model.networks.fabrics.interference import CoupledNode, equal_switch_tree, network_s
from codesign.report.findings import BLUE, GREEN, GREY, ORANGE, Label, beside, headline, name_ends, panels, plain_ticks
from codesign.staging import at_many

NAME = "intranode_codesign"
INSIDE = "cluster.network.scale_up.fabric.inner.bandwidth_bytes_per_s"
CARD = "cluster.network.scale_out.fabric.bandwidth_bytes_per_s"
ONE_QUEUE = "cluster.network.scale_up.fabric.head_of_line_share"
FLAT = 0.1  # of the slope d ln time / d ln bandwidth: a tenth more bandwidth buys less than a hundredth of the step
LOWEST, HIGHEST, POINTS, ROUNDS = 4e9, 4e12, 24, 3
DOCUMENT_CARD, OWN_CARD, NODE = 50e9 / 8, 50e9, 8.0  # one 400 Gb/s card for eight accelerators; one for each
NVLINK4, NVLINK5 = 450e9, 900e9
CARDS = {  # rate of the card, share of traffic in one queue
    "50 GB/s a node": (DOCUMENT_CARD, 1.0), "50 GB/s an accelerator": (OWN_CARD, 1.0),
    "50 GB/s an accelerator, virtual channels": (OWN_CARD, 0.0), "100 GB/s an accelerator": (2 * OWN_CARD, 1.0),
}  # fmt: skip


@cache
def scenario() -> Scenario:
    """The scenario of the experiment."""
    return scenario_from_config(f"experiment={NAME}")


def _time_and_slopes(point: Any, base: Scenario) -> Any:
    """Log bandwidths inside and of the card, share of one queue -> step time, its slopes by both logs."""

    def log_time(logs: Any) -> Any:
        changes = {INSIDE: jnp.exp(logs[0]), CARD: jnp.exp(logs[1]), ONE_QUEUE: point[2]}
        return jnp.log(evaluate(replace(base, changes)).time_s)

    value, slopes = jax.value_and_grad(log_time)(point[:2])
    return jnp.exp(value), slopes


@cache
def _compiled() -> Any:
    return at_many(_time_and_slopes, (0, None))


def curve(inside: np.ndarray, card: float | np.ndarray, one_queue: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """[POINTS] step times and [POINTS, 2] slopes."""
    columns = (np.log(inside), np.log(card), one_queue)
    points = np.stack([np.broadcast_to(column, POINTS) for column in columns], axis=-1)
    time, slopes = _compiled()(jnp.asarray(points), scenario())
    return np.asarray(time), np.asarray(slopes)


@cache
def knee(card: float, one_queue: float = 1.0) -> float:
    """The bandwidth inside from which on the step is flat in it, by bisection on the slope in rounds of POINTS."""
    low, high = LOWEST, HIGHEST
    for _ in range(ROUNDS):
        inside = np.geomspace(low, high, POINTS)
        steep = -curve(inside, card, one_queue)[1][:, 0] >= FLAT
        last = int(np.flatnonzero(steep)[-1])
        low, high = inside[last], inside[min(last + 1, POINTS - 1)]
    return float(np.sqrt(low * high))


def restoring_card(inside: float) -> float:
    """The slowest card with which the step still depends on a given bandwidth inside."""
    low, high = 1e9, 4e12
    for _ in range(ROUNDS):
        cards = np.geomspace(low, high, POINTS)
        steep = -curve(np.full(POINTS, inside), cards)[1][:, 0] >= FLAT
        first = int(np.flatnonzero(steep)[0])
        low, high = cards[max(first - 1, 0)], cards[first]
    return float(np.sqrt(low * high))


@cache
def mix() -> tuple[float, float]:
    """Bytes an accelerator sends in a step, inside and beyond its node."""
    base = scenario()
    levels = [base.cluster.network[name] for name in base.cluster.levels]
    ops, repeats = base.workload.lower(base.layout), base.workload.repeats(base.layout)
    inside, beyond = sent_per_step(ops, levels, base.layout, repeats)
    return float(inside), float(beyond)


def message_time(inside: np.ndarray, card: float, time: np.ndarray) -> np.ndarray:
    """Time of a 4 KiB message from card to card at the plan's mean load, over that in an empty network."""
    sent = mix()
    nodes = float(get_path(scenario(), "cluster.device_count")) / NODE
    wire = card * NODE * 4160 / 4096
    node = CoupledNode(NODE, jnp.asarray(inside), wire, NODE * jnp.asarray(inside))
    load, tree = jnp.asarray(sum(sent) / (inside * time)), equal_switch_tree(nodes)
    share = jnp.asarray(sent[1] / sum(sent))
    loaded, empty = (network_s(node, tree, each, share) for each in (load, 1e-9 * load))
    return np.asarray(loaded / empty)


def claims() -> list[Claim]:
    """The finding as orderings, then what the product adds: where, and what would mend it."""
    share = mix()[1] / sum(mix())
    own, shared, separate = knee(OWN_CARD), knee(DOCUMENT_CARD), knee(OWN_CARD, 0.0)
    around = np.geomspace(own / 4, own * 4, POINTS)
    time, slopes = curve(around, OWN_CARD)
    delay = message_time(around, OWN_CARD, time)
    restored = restoring_card(NVLINK4)
    fast = {card: float(curve(np.full(POINTS, NVLINK4), card)[0][0]) for card in (OWN_CARD, restored)}
    free = float(curve(np.full(POINTS, NVLINK4), OWN_CARD, 0.0)[0][0])

    def told(text: str, model: float) -> Claim:
        return Claim(NAME, text, None, model, None, "derived")

    def ordering(text: str, holds: bool) -> Claim:
        return Claim(NAME, text, 1.0, float(holds), 0.0, "derived", error=float(not holds))

    return [
        ordering("U055: the faster the inside, the less it brings: slope of the step time shrinks at every step",
                 bool((np.diff(-slopes[:, 0]) <= 1e-9).all())),
        ordering("section 4.2.3: past the knee the step is flat in the bandwidth inside (|slope| < 0.1 up to 4 x)",
                 bool((-slopes[around > own * 1.01, 0] < FLAT).all())),
        ordering("section 4.2.3: ... and steep in the card's (slope larger than in the bandwidth inside)",
                 bool((slopes[around > own * 1.01, 1] < slopes[around > own * 1.01, 0]).all())),
        ordering("abstract: more bandwidth inside delays messages between nodes (from card to card, throughout)",
                 bool((np.diff(delay) > 0).all())),
        ordering("section 4.2.3: a faster card moves the knee up in proportion (within 5 %)",
                 abs(own / shared / (OWN_CARD / DOCUMENT_CARD) - 1) < 0.05),
        ordering("the card found by gradient at NVLink 4 puts the knee there (within 5 %)",
                 abs(knee(restored) / NVLINK4 - 1) < 0.05),
        told("share of the plan's traffic that leaves its node (document's C1: 0.20)", share),
        told("bandwidth inside beyond which the step no longer improves, one 50 GB/s card a node, GB/s", shared / 1e9),
        told("the same with one 50 GB/s card an accelerator, GB/s", own / 1e9),
        told("the same with a virtual channel for each destination, GB/s", separate / 1e9),
        told("card an accelerator that lets NVLink 4 (450 GB/s) help again, GB/s", restored / 1e9),
        told("card an accelerator that lets NVLink 5 (900 GB/s) help again, GB/s", restoring_card(NVLINK5) / 1e9),
        told("step at NVLink 4 and 50 GB/s cards, s", fast[OWN_CARD]),
        told("step at NVLink 4 and the restoring card, s", fast[restored]),
        told("step at NVLink 4, 50 GB/s cards and virtual channels, s", free),
    ]  # fmt: skip


def sweep() -> pd.DataFrame:
    """Step time, slopes and message times over the bandwidth inside, for both cards and for separate queues."""
    inside, frames = np.geomspace(16e9, 1.8e12, POINTS), []
    for label, (card, queue) in CARDS.items():
        time, slopes = curve(inside, card, queue)
        columns = {
            "inside_bytes_per_s": inside,
            "step_s": time,
            "slope_inside": slopes[:, 0],
            "slope_card": slopes[:, 1],
        }
        frames.append(pd.DataFrame({"card": label} | columns | {"message_slowdown": message_time(inside, card, time)}))
    return pd.concat(frames, ignore_index=True)


def tables() -> dict[str, pd.DataFrame]:
    """The sweep behind the figure."""
    return {"Bandwidth inside": sweep()}


def figures() -> dict[str, Figure]:
    """Step time with the bandwidth from which on it is flat, and the delay of messages between nodes."""
    figure, ((left, right),) = panels(3.6, 1, 2, sharex=True)
    ends = [[], []]
    for (label, part), colour in zip(sweep().groupby("card", sort=False), (GREY, ORANGE, GREEN, BLUE), strict=True):
        inside = part["inside_bytes_per_s"].to_numpy() / 1e9
        card, queue = CARDS[str(label)]
        flat = knee(card, queue) / 1e9
        for axes, name, into in ((left, "step_s", ends[0]), (right, "message_slowdown", ends[1])):
            values = part[name].to_numpy()
            axes.plot(inside, values, color=colour)
            into.append(Label(inside[-1], values[-1], str(label).replace(" an accelerator", " each"), colour))
            at = float(np.exp(np.interp(np.log(flat), np.log(inside), np.log(values))))
            axes.plot([flat], [at], "o", color=colour, markersize=5)
            if axes is left:
                where = (-4, -3) if queue == 0 else (0, 5)
                beside(axes, f"{flat:.0f}", flat, at, colour, where)
    for axes, text in ((left, "step time, s"), (right, "message from card to card, over an empty network")):
        axes.set(xscale="log", yscale="log", xlabel="bandwidth inside the node, GB/s an accelerator")
        axes.set_title(text)
        plain_ticks(axes, "x", (20, 50, 100, 200, 500, 1000))
    plain_ticks(left, "y", (0.2, 0.3, 0.5, 1, 2, 3))
    plain_ticks(right, "y", (1, 1.5, 2, 3, 4))
    shown = [Label(x, y, text.replace(", virtual channels", ",\nvirtual channels"), colour)
             for x, y, text, colour in ends[1]]  # fmt: skip
    name_ends(right, shown)
    headline(figure, f"With one 50 GB/s card each, nothing is gained beyond {knee(OWN_CARD) / 1e9:.0f} GB/s inside; "
             f"virtual channels move that to {knee(OWN_CARD, 0.0) / 1e9:.0f} (dots: a tenth more rate buys less than a "
             "hundredth of the step)")  # fmt: skip
    return {"Where bandwidth inside stops helping": figure}
