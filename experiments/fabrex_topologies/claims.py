"""Bus bandwidth of 16 accelerators on five PCIe topologies, from their graphs and one rate of a cable."""

import functools

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import replace
from codesign.config import build, compose, plain
from codesign.evidence.reproduction import Claim
from codesign.model.hardware import pcie
from codesign.model.networks.fabrics import Group, RoutedTopology
from codesign.model.networks.topology import PcieBoxes, crossings, limit
from codesign.report import links_frame, topology_figure

NAME = "fabrex_topologies"
KINDS = {  # of claims whose standing alone does not say it
    "input": r"GIG-(01|04|08|09|10)\b",
    "transcription": r"GIG-17\b",
    "fitted": r"GIG-(06|07|18)\b|^ranking|without a fit",
}
COLLECTIVES = ("all_gather", "all_reduce", "broadcast")
MEASURED = {  # GB/s, "Default vs split topology"
    "1s-2rp-split-cascade": (56, 54, 54),
    "1s-1rp-std-cascade": (56, 54, 54),
    "1s-2rp-std-cascade": (25, 25, 25),
    "2s-2rp-split-flat": (92, 100, 107),
    "2s-2rp-std-flat": (27, 27, 27),
}
HELD_OUT = "2s-2rp-split-flat"
EVERYONE = Group(16.0)
FITTED = "fitted 1 on 15, graph inferred"


@functools.cache
def fabric(name: str) -> RoutedTopology:
    """The topology as `fabric=fabrex_<name>` builds it."""
    node = plain(compose([f"fabric=fabrex_{name.replace('-', '_')}"]))["cluster"]["network"]["scale_up"]["fabric"]
    return build({"fabric": node}).objects["fabric"]


def shape_of(made: RoutedTopology) -> PcieBoxes:
    assert isinstance(made.shape, PcieBoxes)
    return made.shape


def bus_bandwidth(made: RoutedTopology) -> float:
    """GB/s of a ring over all 16: n/(n-1) cancels against the ring's own factor."""
    return 1e-9 / float(made.link(EVERYONE).beta_s_per_byte)


def with_rate(made: RoutedTopology, gigabytes_per_s: float) -> RoutedTopology:
    """The same graph with another payload rate on every PCIe cable, by way of the lanes' rate."""
    cables = [kind for kind in made.links if kind != "xgmi"]
    factor = gigabytes_per_s * 1e9 * float(made.links["port"].seconds_per_byte())
    path = "links.{}.transfers_per_s"
    return replace(made, {path.format(kind): float(made.links[kind].transfers_per_s) * factor for kind in cables})


def fitted_rate(names: list[str], parts: dict[str, float]) -> float:
    """The rate of a cable with the least squared error of logarithms."""
    return float(np.exp(np.mean([np.log(value / parts[name]) for name in names for value in MEASURED[name]])))


def errors(predicted: dict[str, float]) -> np.ndarray:
    """|model / measured - 1| of every number."""
    return np.array([abs(predicted[name] / value - 1) for name in predicted for value in MEASURED[name]])


def ordered_alike(predicted: dict[str, float]) -> float:
    """Share of the pairs of topologies that the model tells apart which every measured collective orders alike."""
    right, asked = 0, 0
    for a in predicted:
        for b in predicted:
            if predicted[a] < predicted[b] * (1 - 1e-6):
                asked += 1
                right += all(x < y for x, y in zip(MEASURED[a], MEASURED[b], strict=True))
    return right / asked


def claims() -> list[Claim]:
    """The 15 rates with one fitted constant, without a fit, and one topology from the other four."""
    fabrics = {name: fabric(name) for name in MEASURED}
    cable = 1e-9 / float(fabrics[HELD_OUT].links["port"].seconds_per_byte())
    parts = {name: bus_bandwidth(made) / cable for name, made in fabrics.items()}
    rate = fitted_rate(list(MEASURED), parts)
    fitted = {name: bus_bandwidth(with_rate(made, rate)) for name, made in fabrics.items()}
    rows = []
    for name, values in MEASURED.items():
        for collective, value in zip(COLLECTIVES, values, strict=True):
            text = f"{name} {collective}: bus bandwidth, GB/s"
            rows.append(Claim(NAME, text, value, fitted[name], 0.15, FITTED))
    result = errors(fitted)
    rows += [
        Claim(NAME, "mean error of the 15 (error: itself)", None, float(result.mean()), 0.05, FITTED,
              error=float(result.mean())),
        Claim(NAME, "largest error of the 15 (error: itself)", None, float(result.max()), 0.15, FITTED,
              error=float(result.max())),
        Claim(NAME, "ranking: share of pairs ordered as every collective orders them", 1.0, ordered_alike(fitted), 0.0,
              "derived"),
    ]  # fmt: skip
    return rows + unfitted(fabrics) + held_out(fabrics, parts) + stated(fabrics, parts, rate)


def unfitted(fabrics: dict[str, RoutedTopology]) -> list[Claim]:
    """The same without a fit: Gen4 x16 at a payload of 128 bytes, with and without acknowledgements."""
    rows = []
    for text, ack in (("acknowledgements in the data's way", 8.0), ("acknowledgements free", 0.0)):
        paths = {f"links.{kind}.dllp_bytes": ack for kind in ("port", "uplink", "root")}
        result = errors({name: bus_bandwidth(replace(made, paths)) for name, made in fabrics.items()})
        rate = 1e-9 / float(pcie(4, dllp_bytes=ack).seconds_per_byte())
        words = f"mean error without a fit, {text}, a cable {rate:.2f} GB/s (error: itself)"
        rows.append(Claim(NAME, words, None, float(result.mean()), 0.05, "published", error=float(result.mean())))
    return rows


def held_out(fabrics: dict[str, RoutedTopology], parts: dict[str, float]) -> list[Claim]:
    """Split-flat from the other four."""
    rate = fitted_rate([name for name in MEASURED if name != HELD_OUT], parts)
    value = bus_bandwidth(with_rate(fabrics[HELD_OUT], rate))
    result = errors({HELD_OUT: value})
    rows = [
        Claim(
            NAME,
            f"held out, {HELD_OUT} {collective} from the other four: GB/s",
            measured,
            value,
            None,
            "held out, graph inferred",
        )
        for collective, measured in zip(COLLECTIVES, MEASURED[HELD_OUT], strict=True)
    ]
    text = f"held out, {HELD_OUT}: mean error, a cable {rate:.2f} GB/s (error: itself)"
    return [
        *rows,
        Claim(NAME, text, None, float(result.mean()), 0.08, "held out, graph inferred", error=float(result.mean())),
    ]


def stated(fabrics: dict[str, RoutedTopology], parts: dict[str, float], rate: float) -> list[Claim]:
    """What the text says in numbers."""
    shapes = {name: shape_of(made) for name, made in fabrics.items()}
    flat, cascade = shapes["2s-2rp-split-flat"], shapes["1s-1rp-std-cascade"]
    cable = 1e-9 / float(fabrics[HELD_OUT].links["port"].seconds_per_byte())
    rates = {generation: 1e-9 / float(pcie(generation).seconds_per_byte()) for generation in (3, 4, 5, 6)}
    nearest = min(rates, key=lambda generation: abs(np.log(rates[generation] / rate)))
    twice = replace(fabrics[HELD_OUT], {f"links.{kind}.transfers_per_s": 32e9 for kind in ("port", "uplink", "root")})
    topology = fabrics[HELD_OUT].topology()
    most = crossings(topology, np.arange(8), np.arange(8, 16)).rate / float(topology.bandwidth_bytes_per_s.min())
    raw = float(pcie(5).transfers_per_s * pcie(5).lanes) / 1e9
    order = "not determined: an order of magnitude, no measurement"
    return [
        Claim(NAME, "GIG-01 accelerators in a box (input)", 8, flat.leaves * flat.per_leaf, 0.0, "published"),
        Claim(NAME, "GIG-02 InfiniBand or RoCE, Gbit/s", 400, None, None, "not determined: rate of NDR, an input"),
        Claim(NAME, "GIG-03 InfiniBand or RoCE latency, us", 1, None, None, order),
        Claim(NAME, "GIG-04 PCIe, up to Gbit/s: Gen5 x16 before encoding", 512, raw, 1e-9, "derived"),
        Claim(NAME, "GIG-05 PCIe latency, ns", 1, None, None, order),
        Claim(NAME, "GIG-06 PCIe generation nearest to the fitted rate of a cable", 4, nearest, 0.0, "derived"),
        Claim(NAME, "GIG-07 connections of the fullest top switch (the document: at most)", 6,
              max(shape.connections() for shape in shapes.values()), 0.0, "derived"),
        Claim(NAME, "GIG-08 cards of a cascade box (input)", 2, cascade.uplinks, 0.0, "published"),
        Claim(NAME, "GIG-09 cards of a flat box (input)", 4, flat.uplinks, 0.0, "published"),
        Claim(NAME, "GIG-10 topologies (input)", 5, len(fabrics), 0.0, "published"),
        Claim(NAME, "GIG-17 bus bandwidth of Gen5 over Gen4", 2, bus_bandwidth(twice) / parts[HELD_OUT] / cable, 0.02,
              "derived"),
        Claim(NAME, "GIG-18 split against standard, flat boxes (the rate of a cable cancels)", 3.7,
              parts[HELD_OUT] / parts["2s-2rp-std-flat"], 0.15, "derived"),
        Claim(NAME, "independent crossings of split-flat: rings against the linear programme", most, parts[HELD_OUT],
              1e-6, "derived"),
    ]  # fmt: skip


def tables() -> dict[str, pd.DataFrame]:
    """Which cable limits each topology."""
    rows = []
    for name in MEASURED:
        topology, load = fabric(name).group_load(16, 1)
        rows.append({"topology": name, "a ring over all 16": limit(topology, load)})
    return {"Which cable limits": pd.DataFrame(rows)}


def figures() -> dict[str, Figure]:
    """The graphs, links coloured by the load of a ring over all 16."""
    parts, rates = {}, {}
    for name in MEASURED:
        made = fabric(name)
        rates[name] = bus_bandwidth(made)
        parts[f"{name}, {rates[name]:.0f} GB/s"] = links_frame(*made.group_load(16, 1))
    best, worst = max(rates, key=lambda name: rates[name]), min(rates, key=lambda name: rates[name])
    told = (f"The same 16 accelerators carry a ring at {rates[best]:.0f} GB/s on {best}, at {rates[worst]:.0f} on "
            f"{worst}: what counts is how many cables cross between the halves")  # fmt: skip
    return {"Load of every link": topology_figure(parts, found=told)}
