"""Buffers and waves of SCIN's in-switch accelerator: Little's law, closed form and packets."""

import functools
from dataclasses import replace as with_changes

import jax.numpy as jnp
import pandas as pd
from matplotlib.figure import Figure
from scipy.optimize import brentq

from _lib.in_switch import SwitchedAccelerator, simulate
from codesign import scenario_from_config
from codesign.evidence.reproduction import Claim
from codesign.model.networks.collectives import InNetworkAllReduce, NetworkLevel, Quantised
from codesign.model.networks.fabrics import Group
from codesign.report.findings import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    YELLOW,
    Label,
    headline,
    name_ends,
    panels,
    plain_ticks,
)

NAME = "scin_waves"
KINDS = {  # of claims whose standing alone does not say it
    "input": r": configured",
    "transcription": r"S025 least buffer: B|S030 ",
}
BUFFER = 65536.0
WAVES = (1, 2, 4, 8, 16)
TABLES = (16384.0, 32768.0, 65536.0, 131072.0, 262144.0)
SIZES = [2.0**power for power in range(12, 26)]


@functools.cache
def level(collective: str = "scin") -> NetworkLevel:
    """A configured scale-up network."""
    return scenario_from_config("fabric=scin", f"collective={collective}").cluster.network["scale_up"]


def switch() -> InNetworkAllReduce:
    """The configured accelerator."""
    algorithm = level().collectives.all_reduce
    assert isinstance(algorithm, InNetworkAllReduce)
    return algorithm


def seconds(nbytes: float, buffer_bytes: float, waves: float) -> float:
    """Closed form with another table; waves may be smaller than any that can be built."""
    group = Group(8.0)
    changed = with_changes(switch(), buffer_bytes=buffer_bytes, wave_bytes=buffer_bytes / waves)
    return float(changed.cost(jnp.asarray(nbytes), group, level().fabric.link(group)).time_s)


def payload_rate() -> float:
    """Of all switches together."""
    return 1 / float(switch().seconds_per_byte(level().fabric.link(Group(8.0))))


def share(buffer_bytes: float, waves: float) -> float:
    """Of the payload rate, for an unending message."""
    return 1e12 / (seconds(2e12, buffer_bytes, waves) - seconds(1e12, buffer_bytes, waves)) / payload_rate()


@functools.cache
def share_in_packets(buffer_bytes: float, waves: int) -> float:
    """The same between 1 and 3 MiB of the packet-level simulation."""
    design = with_changes(SwitchedAccelerator(), members=2, table_bytes=buffer_bytes, waves=waves)
    short, long = (simulate(size * 2.0**20, design).seconds for size in (1, 3))
    return 2.0**21 / (long - short) / payload_rate()


def least_buffer() -> float:
    """Bytes per switch and member at which very many waves just fill the link."""
    return float(brentq(lambda size: share(size, 1e6) - 0.999999, 1e4, 1e6))


def least_buffer_in_packets() -> float:
    """The least number of configured waves that fills the link in the simulation, in bytes."""
    wave = float(switch().wave_bytes)
    return next(count * wave for count in range(8, 33) if share_in_packets(count * wave, count) > 0.99)


def claims() -> list[Claim]:
    """Sections 3.4, 4.3, 4.4."""
    inq = level("scin_inq").collectives.all_reduce
    assert isinstance(inq, Quantised)
    assert isinstance(inq.inner, InNetworkAllReduce)
    scale = inq.inner.wave_bytes - switch().wave_bytes
    link = level().fabric.link(Group(8.0))
    law = payload_rate() / switch().switches * (link.alpha_s + switch().response_s)
    fitted = "fitted 1 on 1"
    result = [
        Claim(NAME, "S025 least buffer: B (2L + L_acc), bytes", float(law), least_buffer(), 0.01, "derived"),
        Claim(
            NAME,
            "S025 least buffer: packets, bytes in waves of 4 KB",
            float(law),
            least_buffer_in_packets(),
            None,
            "derived",
        ),
        Claim(NAME, "S077 one wave: share of full rate, about 2/3", 2 / 3, share(BUFFER, 1), None, fitted),
        Claim(NAME, "S077 one wave: packets, about 2/3", 2 / 3, share_in_packets(BUFFER, 1), None, fitted),
        Claim(NAME, "S078 16 waves: share of full rate", 1.0, share(BUFFER, 16), 0.02, fitted),
        Claim(NAME, "S078 16 waves: packets", 1.0, share_in_packets(BUFFER, 16), 0.02, fitted),
    ]
    differences = [abs(share(BUFFER, waves) / share_in_packets(BUFFER, waves) - 1) for waves in WAVES]
    text = "shares: closed form against packets, 1 to 16 waves, largest difference"
    result.append(Claim(NAME, text, None, None, 0.04, "derived", error=max(differences)))
    configured = [
        ("S068 table with scale factors, KB", 66, inq.inner.buffer_bytes / 1024),
        ("S074 waves per table", 16, switch().buffer_bytes / switch().wave_bytes),
        ("S075 data of a wave, bytes", 4096, switch().wave_bytes),
        ("S030 S076 scale factors of a wave, bytes", 128, scale),
        ("S030 scale factors that 4 KB need, bytes", 128, 4096 / inq.block_elements * inq.scale_bytes),
    ]
    return result + [Claim(NAME, f"{t}: configured", float(p), float(m), 1e-3, "published") for t, p, m in configured]


def tables() -> dict[str, pd.DataFrame]:
    """Shares by closed form and packets."""
    columns = ("buffer bytes", "waves", "closed form", "packets")
    rows = [
        dict(zip(columns, (int(size), waves, share(size, waves), share_in_packets(size, waves)), strict=True))
        for size, waves in [(BUFFER, w) for w in WAVES] + [(size, 1) for size in TABLES if size != BUFFER]
    ]  # fmt: skip
    return {"Share of the payload rate": pd.DataFrame(rows)}


def figures() -> dict[str, Figure]:
    """Bandwidth over message size, without waves by table and with 64 KB by number of waves."""
    figure, ((without, regulated),) = panels(3.4, 1, 2, sharey=True)
    colours = (SKY, BLUE, GREEN, YELLOW, ORANGE)
    ends: tuple[list[Label], list[Label]] = ([], [])
    for colour, size in zip(colours, TABLES, strict=True):
        values = [n / seconds(n, size, 1) / 1e9 for n in SIZES]
        without.plot(SIZES, values, color=colour, linewidth=1.4)
        ends[0].append(Label(SIZES[-1], values[-1], f"{size / 1024:.0f} KB", colour))
    for colour, waves in zip(colours, WAVES, strict=True):
        values = [n / seconds(n, BUFFER, waves) / 1e9 for n in SIZES]
        regulated.plot(SIZES, values, color=colour, linewidth=1.4)
        ends[1].append(Label(SIZES[-1], values[-1], f"{waves} wave" + ("s" if waves > 1 else ""), colour))
    titles = ("one wave, by the table's size", f"table of {BUFFER / 1024:.0f} KB, by waves")
    for axes, title, named in zip((without, regulated), titles, ends, strict=True):
        axes.axhline(payload_rate() / 1e9, color=GREY, linewidth=1, linestyle=":")
        axes.set(xscale="log", xlabel="message, bytes", title=title)
        plain_ticks(axes, "x", (2**13, 2**17, 2**21, 2**25), ("8 k", "128 k", "2 M", "32 M"))
        name_ends(axes, named)
    without.set_ylabel("message / time, GB/s")
    one, many = share(BUFFER, 1), share(BUFFER, 16)
    apart = max(abs(share(BUFFER, waves) / share_in_packets(BUFFER, waves) - 1) for waves in WAVES)
    headline(figure, f"Sixteen waves make a table of {BUFFER / 1024:.0f} KB carry {many:.0%} of the link (dotted) "
             f"where one "
             f""
             f"wave carries {one:.0%}; four times the table without waves carries less (packets: within "
             f"{apart:.1%})")  # fmt: skip
    return {"Buffers and waves": figure}
