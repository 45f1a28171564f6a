"""SCIN's all-reduce against software rings and NVLS, and its FPGA prototype; closed forms beside packets.

Numbers of the configuration are read from `conf/`, never typed in again; the packet-level simulation takes them too.
"""

import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from _lib.in_switch import SwitchedAccelerator, simulate
from codesign import replace, scenario_from_config
from codesign.evidence.reproduction import Claim
from codesign.model.networks.collectives import AbstractCollective, InNetworkAllReduce, NetworkLevel, Quantised
from codesign.model.networks.fabrics import Group
from codesign.report.findings import BLUE, GREEN, GREY, ORANGE, Label, headline, name_ends, panels, plain_ticks

NAME = "scin_allreduce"
KINDS = {  # of claims whose standing alone does not say it
    "input": r": configured",
    "transcription": r"S0(19|20|23|28|47|66|67)\b",
    "fitted": r"16 MiB",
}
SMALL, LARGE, HUGE = 512.0, 2.0**24, 1e13
SIZES = [2.0**power for power in range(7, 27)]
SIMULATED = [2.0**power for power in range(9, 22)]


@functools.cache
def level(collective: str, fabric: str = "scin") -> NetworkLevel:
    """A configured scale-up network."""
    return scenario_from_config(f"fabric={fabric}", f"collective={collective}").cluster.network["scale_up"]


def seconds(name: str, nbytes: float, members: float = 8, fabric: str = "scin") -> float:
    """All-reduce time of a configuration."""
    network, group = level(name, fabric), Group(float(members))
    cost = network.collectives.all_reduce.cost(jnp.asarray(float(nbytes)), group, network.fabric.link(group))
    return float(cost.time_s)


def speedup(name: str, nbytes: float, members: float = 8) -> float:
    """Over the software ring."""
    return seconds("scin_ring", nbytes, members) / seconds(name, nbytes, members)


def rate(name: str, members: float = 8) -> float:
    """Bytes per second of an unending message."""
    return HUGE / (seconds(name, 2 * HUGE, members) - seconds(name, HUGE, members))


def accelerator(algorithm: AbstractCollective) -> InNetworkAllReduce:
    """The in-switch accelerator inside a configured all-reduce."""
    inner = algorithm.inner if isinstance(algorithm, Quantised) else algorithm
    assert isinstance(inner, InNetworkAllReduce)
    return inner


def design(name: str, fabric: str, members: int) -> SwitchedAccelerator:
    """The same numbers for the simulation."""
    network = level(name, fabric)
    switch, link = accelerator(network.collectives.all_reduce), network.fabric.link(Group(float(members)))
    cycle = 1 / float(switch.clock_hz)
    return SwitchedAccelerator(
        members=members,
        switches=int(switch.switches),
        link_bytes_per_s=1 / float(link.beta_s_per_byte),
        latency_s=float(link.alpha_s) / 2,
        payload_bytes=float(switch.payload_bytes),
        header_bytes=float(switch.header_bytes),
        request_bytes=float(switch.request_bytes),
        response_bytes=float(switch.acknowledgement_bytes),
        table_bytes=float(switch.buffer_bytes),
        waves=round(float(switch.buffer_bytes / switch.wave_bytes)),
        response_s=float(switch.response_s),
        arithmetic_s=float(switch.arithmetic_cycles) * cycle,
        bubble_s=float(switch.bubble_cycles) * cycle,
    )


@functools.cache
def simulated(name: str, nbytes: float, members: int = 2) -> float:
    """Seconds packet by packet. Members in step see the same however many they are: two are enough."""
    algorithm = level(name).collectives.all_reduce
    ratio = float(algorithm.wire_ratio()) if isinstance(algorithm, Quantised) else 1.0
    outcome = simulate(nbytes * ratio, design(name, "scin", members))
    assert all(result == outcome.expected for result in outcome.sums)
    return outcome.seconds


def against_packets(name: str) -> float:
    """Largest relative difference of closed form and simulation over the sizes."""
    return max(abs(seconds(name, nbytes) / simulated(name, nbytes) - 1) for nbytes in SIMULATED)


def without_synchronisation(nbytes: float, by: Callable[[float], float]) -> float:
    """The prototype's times leave the synchronisation out: one trip."""
    trip = float(level("scin_prototype", "scin_prototype").fabric.link(Group(4.0)).alpha_s)
    return by(nbytes) - trip


def prototype(nbytes: float) -> float:
    """Closed form of the prototype, synchronisation left out."""
    return without_synchronisation(nbytes, lambda n: seconds("scin_prototype", n, 4, "scin_prototype"))


def prototype_simulated(nbytes: float) -> float:
    """The prototype packet by packet, synchronisation left out."""
    machine = design("scin_prototype", "scin_prototype", 4)
    return without_synchronisation(nbytes, lambda n: simulate(n, machine).seconds)


def claims() -> list[Claim]:
    """Every number of sections 2, 3.5, 4.1 and 4.3."""
    return [*speedups(), *simulations(), *prototype_claims(), *ring_claims(), *inputs(), *undetermined()]


def speedups() -> list[Claim]:
    """Over the software ring, at the sizes where the printed numbers hold, with the asymptotes beside them."""
    fitted = "fitted 1 on 1"
    nvls = 2 * float(level("nvls").fabric.link(Group(8.0)).alpha_s)  # all tell all, before and after

    def claim(text: str, paper: float, model: float, bar: float | None, standing: str = "derived") -> Claim:
        return Claim(NAME, text, paper, model, bar, standing)

    return [
        claim("S066 payload rate: asymptote of SCIN, GB/s", 360.0, rate("scin") / 1e9, 0.01, "published"),
        claim("S001 S069 SCIN, small: 512 B over the ring", 8.7, speedup("scin", SMALL), 0.05, fitted),
        claim("S071 SCIN, large: 16 MiB over the ring (size not printed)", 2.0, speedup("scin", LARGE), 0.05),
        claim("S071 SCIN, asymptote: unending message over the ring", 2.0, speedup("scin", HUGE), None),
        claim("S002 S072 INQ, large: 16 MiB over the ring", 3.8, speedup("scin_inq", LARGE), 0.05),
        claim("S002 S072 INQ, asymptote: unending message", 3.8, speedup("scin_inq", HUGE), None),
        claim("S070 NVLS, small: 512 B over the ring, about 4", 4.0, speedup("nvls", SMALL), 0.15),
        claim("S073 NVLS, large: 16 MiB over the ring, about 2", 2.0, speedup("nvls", LARGE), None),
        claim("S073 NVLS, asymptote: unending message", 2.0, speedup("nvls", HUGE), None),
        Claim(
            NAME, "SCIN, 16 members: 512 B over the ring (figure)", None, speedup("scin", SMALL, 16), None, "derived"
        ),
        claim(
            "S028 INQ over SCIN: unending message",
            1.94,
            seconds("scin", HUGE) / seconds("scin_inq", HUGE),
            0.01,
            "published",
        ),
        claim("S067 synchronisation: two links, ns", 500.0, synchronisation() * 1e9, 0.01, "published"),
        claim("S023 synchronisation: saved against NVLS, per cent", 50.0, 100 * (1 - synchronisation() / nvls), 0.01),
    ]


def synchronisation() -> float:
    """What SCIN's time contains of it."""
    network, group = level("scin"), Group(8.0)
    without = replace(network, {"collectives.all_reduce.synchronised": 0.0})
    cost = without.collectives.all_reduce.cost(jnp.asarray(SMALL), group, network.fabric.link(group))
    return seconds("scin", SMALL) - float(cost.time_s)


def simulations() -> list[Claim]:
    """Closed forms against packets."""
    return [
        Claim(NAME, f"{name}: closed form against packets, 512 B to 1 MiB, largest difference", None, None, 0.04,
              "derived", error=against_packets(name))
        for name in ("scin", "scin_inq")
    ]  # fmt: skip


def prototype_claims() -> list[Claim]:
    """Two whole numbers of cycles are fitted on the two times; the utilisation and its losses follow."""
    small, large = prototype(4096.0), prototype(LARGE)
    packets = max(abs(prototype_simulated(4096.0) / 2.62e-6 - 1), abs(prototype_simulated(LARGE) / 2.27e-3 - 1))
    switch = accelerator(level("scin_prototype", "scin_prototype").collectives.all_reduce)
    burst = LARGE / 4096
    bubbles = burst * float(switch.bubble_cycles) / float(switch.clock_hz) / large
    overhead = float((switch.header_bytes + switch.request_bytes) / (switch.payload_bytes + 2 * switch.header_bytes))
    encoding = 1 - 1 / float(level("scin_prototype", "scin_prototype").fabric.link(Group(4.0)).beta_s_per_byte) / 8e9
    fitted = "fitted 2 on 2"
    return [
        Claim(NAME, "S044 prototype 4 KB: us without synchronisation", 2.62, small * 1e6, 0.01, fitted),
        Claim(NAME, "S045 prototype 16 MB: ms without synchronisation", 2.27, large * 1e3, 0.01, fitted),
        Claim(NAME, "S046 prototype utilisation: per cent of 8 GB/s", 92.4, 100 * LARGE / large / 8e9, 0.01, fitted),
        Claim(NAME, "S047 prototype, encoding: per cent, 64B/66B, about", 3.0, 100 * encoding, None, "published"),
        Claim(NAME, "S048 prototype, bubbles: per cent, about", 3.0, 100 * bubbles, None, fitted),
        Claim(NAME, "S049 prototype, protocol: per cent, headers, about", 1.0, 100 * overhead, None, "derived"),
        Claim(NAME, "S064 simulator against prototype: largest difference of our packets", None, None, 0.06, fitted,
              error=packets),
    ]  # fmt: skip


def ring_claims() -> list[Claim]:
    """The baseline's rounds and rate."""
    network, group = level("scin_ring"), Group(8.0)
    rounds = seconds("scin_ring", 1e-6) / (2 * float(network.fabric.link(group).alpha_s))
    share = rate("scin_ring") / rate("scin")
    return [
        Claim(NAME, "S019 ring rounds: 2 (N - 1) at N = 8", 14.0, rounds, 0.01, "published"),
        Claim(NAME, "S020 ring rate: N / (2 (N - 1)) of the payload rate at N = 8", 8 / 14, share, 0.01, "published"),
    ]


def inputs() -> list[Claim]:
    """Printed constants, read back from the configurations."""
    scin, proto = level("scin"), level("scin_prototype", "scin_prototype")
    isa, small = accelerator(scin.collectives.all_reduce), accelerator(proto.collectives.all_reduce)
    inq = accelerator(level("scin_inq").collectives.all_reduce)
    link, wire = scin.fabric.link(Group(8.0)), proto.fabric.link(Group(4.0))
    lanes = 66 / 64 / float(wire.beta_s_per_byte) * 8e-9
    nvl72 = level("ring", "nvl72").fabric
    rows = [
        ("S022 GPUs in GB200 NVL72", 72, nvl72.reach()),
        ("S032 prototype endpoints", 4, proto.fabric.reach()),
        ("S033 S034 S035 prototype link, both directions, Gbit/s", 128, 2 * lanes),
        ("S036 S038 prototype header, bytes (one flit)", 32, small.header_bytes),
        ("S037 prototype clock, MHz", 250, small.clock_hz / 1e6),
        ("S039 prototype packet payload, bytes", 4096, small.payload_bytes),
        ("S040 prototype wave, bytes", 4096, small.wave_bytes),
        ("S041 S042 S043 prototype link latency, ns (20 + 70 cycles)", 360, wire.alpha_s / 2 * 1e9),
        ("S054 members", 8, scin.fabric.reach()),
        ("S055 switches", 4, isa.switches),
        ("S031 S056 packet payload, bytes", 128, isa.payload_bytes),
        ("S057 packet header, bytes", 16, isa.header_bytes),
        ("S058 read request, bytes", 16, isa.request_bytes),
        ("S059 write response, bytes", 16, isa.acknowledgement_bytes),
        ("S060 link latency, ns", 250, link.alpha_s / 2 * 1e9),
        ("S061 link bandwidth, both directions, GB/s", 900, 2e-9 / link.beta_s_per_byte),
        ("S062 latency of the adders, cycles", 20, isa.arithmetic_cycles),
        ("S063 latency with quantisation, cycles", 100, inq.arithmetic_cycles),
    ]
    return [Claim(NAME, f"{text}: configured", float(p), float(m), 1e-3, "published") for text, p, m in rows]


def undetermined() -> list[Claim]:
    """What no model of time says."""
    rows = [
        ("S024 header field of 1 bit", 1.0, "fits into the 16 B header, changes no time"),
        ("S026 address of 48 bits", 48.0, "instructions are loaded before, changes no time"),
        ("S050 switch FPGA, look-up tables, per cent", 7.0, "needs the circuit"),
        ("S051 switch FPGA, flip-flops, per cent", 5.0, "needs the circuit"),
        ("S052 switch FPGA, block RAM, per cent", 23.0, "needs the circuit"),
        ("S053 switch FPGA, transceivers, per cent", 12.0, "needs the circuit"),
    ]
    return [Claim(NAME, f"{text}: {why}", paper, None, None, "not determined") for text, paper, why in rows]


def tables() -> dict[str, pd.DataFrame]:
    """Times and speedups over message size."""
    names = ("scin_ring", "nvls", "scin", "scin_inq")
    rows = [
        {"members": members, "bytes": int(nbytes)} | {f"{n} us": seconds(n, nbytes, members) * 1e6 for n in names}
        for members in (8, 16)
        for nbytes in SIZES[::3]
    ]  # fmt: skip
    return {"All-reduce times": pd.DataFrame(rows)}


def figures() -> dict[str, Figure]:
    """Bandwidth with the simulation's points, and speedups over the ring for 8 and 16 members."""
    figure, (row,) = panels(3.4, 1, 3)
    styles = {"scin_inq": ("SCIN + INQ", ORANGE), "scin": ("SCIN", BLUE), "nvls": ("NVLS", GREEN)}
    ends: list[list[Label]] = [[], [], []]
    apart = []
    for name, (label, colour) in (styles | {"scin_ring": ("ring", GREY)}).items():
        values = [n / seconds(name, n) / 1e9 for n in SIZES]
        row[0].plot(SIZES, values, color=colour, linewidth=1.4)
        ends[0].append(Label(SIZES[-1], values[-1], label, colour))
    for name in ("scin", "scin_inq"):
        points = np.array([n / simulated(name, n) / 1e9 for n in SIMULATED])
        row[0].plot(SIMULATED, points, "o", color=styles[name][1], markersize=4, markerfacecolor="none")
        apart += [abs(seconds(name, n) / simulated(name, n) - 1) for n in SIMULATED]
    for place, members in ((1, 8), (2, 16)):
        for name, (label, colour) in styles.items():
            values = [speedup(name, n, members) for n in SIZES]
            row[place].plot(SIZES, values, color=colour, linewidth=1.4)
            ends[place].append(Label(SIZES[-1], values[-1], label, colour))
        row[place].axhline(1, color="0.4", linewidth=1)
        row[place].set_ylim(0, None)
    titles = ("message / time, GB/s", "over the ring, 8 members", "over the ring, 16 members")
    for axes, title, named in zip(row, titles, ends, strict=True):
        axes.set(xscale="log", xlabel="message, bytes", title=title)
        plain_ticks(axes, "x", (2**10, 2**15, 2**20, 2**25), ("1 k", "32 k", "1 M", "32 M"))
        name_ends(axes, named)
    small, large = speedup("scin", SIZES[0]), speedup("scin", SIZES[-1])
    headline(figure, f"Sums in the switch are {small:.1f} times as fast as the ring on small messages of 8 members, "
             f"{large:.1f} times on large ones, {speedup('scin_inq', SIZES[-1]):.1f} where they are quantised; packets "
             f"(circles) differ from the closed form by at most {max(apart):.0%}")  # fmt: skip
    return {"All-reduce over message size": figure}
