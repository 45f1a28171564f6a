"""LUMORPH's all-reduce against weak and strong baselines, and closed forms against schedules carried out."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from _lib.circuit_schedule import Rack, all_reduce, ring_all_reduce, rotations
from codesign.evidence.reproduction import Claim
from codesign.model.hardware import Link
from codesign.model.networks.collectives import (
    AbstractCollective,
    CliqueAllReduce,
    DoubleBinaryTreeAllReduce,
    Fastest,
    RadixAllReduce,
    RingAllReduce,
    SipacAllReduce,
    TreeAllReduce,
)
from codesign.model.networks.fabrics import Group, OpticalCircuit
from codesign.report.findings import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    YELLOW,
    Label,
    name_ends,
    panels,
    plain_ticks,
)
from codesign.report.findings import headline as found

NAME = "lumorph_allreduce"
KINDS = {  # of claims whose standing alone does not say it
    "input": r"\(input\)|LUM-(06|16|25|26)\b",
    "note": r"^notes,|\(notes: |^us to set circuits at which|^most GPUs, of the sizes|^MB above which|^CHK-10",
}
ALPHA_S, DELTA_S, RATE = 0.7e-6, 3.7e-6, 300e9  # LUM-22, LUM-12, LUM-21
RANKS = (64, 128, 256)
CIRCUIT, SWITCH = Link(ALPHA_S, 1 / RATE, 0.0, DELTA_S), Link(ALPHA_S, 1 / RATE)
SIZES = np.geomspace(1e3, 4e9, 133)

LUMORPH = {"L2": RadixAllReduce(radix=2.0), "L4": RadixAllReduce(radix=4.0)}
WEAK = {"ring": RingAllReduce(), "tree, stored and forwarded": TreeAllReduce()}
STRONG = {"tree, pipelined": DoubleBinaryTreeAllReduce(), "halving/doubling": RadixAllReduce(radix=2.0)}
STANDING = {"SiPAC(4)": SipacAllReduce(radix=4.0)}


@jax.jit
def _seconds(algorithm: AbstractCollective, nbytes, size, link):
    return jax.vmap(lambda m, n: algorithm.cost(m, Group(n), link).time_s)(nbytes, size)


def seconds(algorithm: AbstractCollective, nbytes, size, link: Link = CIRCUIT) -> np.ndarray:
    """Times for every pair of message size and ranks (broadcast)."""
    m, n = np.broadcast_arrays(np.asarray(nbytes, dtype=float), np.asarray(size, dtype=float))
    return np.asarray(_seconds(algorithm, jnp.asarray(m.ravel()), jnp.asarray(n.ravel()), link)).reshape(m.shape)


def chain_like_tree_s(nbytes: float, size: int) -> float:
    """NCCL's tree where every member is a node of its own chain: 2 (n - 1) alpha + 2 m / B (from the notes)."""
    return 2 * (size - 1) * ALPHA_S + 2 * nbytes / RATE


def everything(nbytes, size) -> dict[str, np.ndarray]:
    """Times of all algorithms; the packet-switched ones on the ideal switch."""
    result = {name: seconds(algorithm, nbytes, size) for name, algorithm in (LUMORPH | STANDING).items()}
    for name, algorithm in (WEAK | STRONG).items():
        result[name] = seconds(algorithm, nbytes, size, SWITCH)
    return result


def executed() -> list[Claim]:
    """Largest difference of a closed form from its schedule, and whether every member ends with the sum."""
    shapes = [(3, 2), (4, 3), (4, 4), (4, 4, 3), (4, 4, 4), (4, 4, 4, 2), (4, 4, 4, 4), (2,) * 6, (2,) * 7, (2,) * 8]
    worst = {"reconfigured radix": 0.0, "SiPAC on standing circuits": 0.0, "static ring": 0.0}
    wrong, excess = 0.0, 0.0
    for factors in shapes:
        size, places = math.prod(factors), len(factors)
        start = np.random.default_rng(size).integers(-99, 99, (size, size)).astype(float)
        runs = [
            ("reconfigured radix", RadixAllReduce(radix=float(factors[0])), all_reduce(factors), start, None),
            ("static ring", RingAllReduce(), ring_all_reduce(size) if size <= 64 else None, start, 1),
        ]
        if len(set(factors)) == 1:
            parts, ways = np.tile(start, places), places * (factors[0] - 1)
            algorithm = SipacAllReduce(radix=float(factors[0]))
            runs.append(("SiPAC on standing circuits", algorithm, all_reduce(factors, rotations(places)), parts, ways))
        for name, algorithm, rounds, values, standing in runs:
            if rounds is None:
                continue
            rack = Rack(ALPHA_S, DELTA_S, RATE, splitting="ideal", standing=standing, always=True)
            out = rack.run(rounds, values, 8e6)
            wrong += float(np.abs(out.values - values.sum(axis=0)).max())
            excess = max(excess, float(np.abs(out.sent - 2 * (1 - 1 / size)).max()))
            worst[name] = max(worst[name], abs(float(seconds(algorithm, 8e6, size)) / out.seconds - 1))
    text = "executed schedules, n = 6 to 256: sum wrong by (bar: exactly 0)"
    claims = [Claim(NAME, text, None, wrong, 0.0, "derived", error=wrong)]
    text = "executed schedules: bytes sent beyond 2 (1 - 1/n) of the buffer"
    claims.append(Claim(NAME, text, None, excess, 1e-12, "derived", error=excess))
    for name, error in worst.items():
        text = f"{name}: largest difference of the closed form from the schedule"
        claims.append(Claim(NAME, text, None, error, 1e-6, "derived", error=error))
    return claims


def headline() -> list[Claim]:
    """The 80 % and the 74 %, each against what it holds, and against what it does not."""

    def less(time, other) -> float:
        return float(100 * (1 - time / other))

    claims = []
    at = everything(7.4e6, 256)
    for name in WEAK:
        value = less(at["L4"], at[name])
        text = f"LUM-20: % less time, L4, 256 GPUs, 7.4 MB (fitted), against {name} (error in points from 79.5)"
        claims.append(Claim(NAME, text, 80.0, value, 0.015, "fitted 1 on 1", error=abs(value - 79.5) / 100))
    for name in STRONG:
        text = f"% less time, L4, 256 GPUs, 7.4 MB, against {name} (strong baseline)"
        claims.append(Claim(NAME, text, None, less(at["L4"], at[name]), None, "derived"))
    at, chain = everything(1024.0, 256), chain_like_tree_s(1024.0, 256)
    value = less(at["L2"], chain)
    text = "LUM-20: % less time, L2, 256 GPUs, 1 KB, against NCCL's chain-like tree (error in points from 79.5)"
    claims.append(Claim(NAME, text, 80.0, value, 0.015, "fitted 1 on 1", error=abs(value - 79.5) / 100))
    for name in ("ring", "tree, stored and forwarded", "tree, pipelined", "halving/doubling"):
        text = f"% less time, L2, 256 GPUs, 1 KB, against {name}"
        claims.append(Claim(NAME, text, None, less(at["L2"], at[name]), None, "derived"))
    times = everything(SIZES[:, None], np.array(RANKS)[None, :])
    best = np.minimum(times["L2"], times["L4"])
    most = less(1.0, 1 / (best / times["tree, pipelined"]).min())
    text = "most % less time than the pipelined tree, any size, 64 to 256 GPUs (notes: never more than 22)"
    claims.append(Claim(NAME, text, 22.0, most, 0.01, "derived", error=max(0.0, most - 22.0) / 100))
    text = "least ratio of LUMORPH's time to halving/doubling on the ideal switch (notes: the switch always wins)"
    ratio = float((best / times["halving/doubling"]).min())
    claims.append(Claim(NAME, text, None, ratio, 0.0, "derived", error=max(0.0, 1 - ratio)))
    reason = "neither operating point nor definition is printed; with L4 and 256 GPUs it holds against the ring at"
    near = SIZES[np.abs(100 * (1 - times["L4"][:, 2] / times["ring"][:, 2]) - 74).argmin()] / 1e6
    claims.append(Claim(NAME, "LUM-01: 74 % faster", 74.0, None, None, f"not determined: {reason} {near:.0f} MB"))
    return claims


def table_of_the_notes() -> list[Claim]:
    """Every time of the table in the notes, in us."""
    columns = ("ring", "tree, stored and forwarded", "tree, pipelined", "halving/doubling", "L2", "L4", "SiPAC(4)")
    printed = {
        (64, 64e3): (88.6, 11.0, 10.9, 8.8, 53.2, 26.8, 4.6),
        (128, 8e6): (230.7, 383, 104, 62.7, 114.5, 88.1, 58.5),
        (256, 8e6): (410, 438, 109, 64.3, 123.5, 88.3, 58.7),
        (256, 1e9): (6998, 53345, 7188, 6652, 6711, 6676, 6646),
    }
    claims = []
    for (size, nbytes), row in printed.items():
        times = everything(nbytes, size)
        for name, value in zip(columns, row, strict=True):
            text, bar = f"notes, {size} GPUs, {nbytes / 1e6:g} MB: us of {name}", 0.01
            if name == "SiPAC(4)" and size == 128:  # not a power of four
                text += ": the short dimension idles in rounds that all end together, which the notes leave out"
                bar = None
            claims.append(Claim(NAME, text, value, float(times[name]) * 1e6, bar, "published"))
    return claims


def trade_offs() -> list[Claim]:
    """Where radices cross, how slow circuits may be, what small tenants should do."""
    claims = []
    small = jnp.asarray(1.0)
    for radix, printed in ((2, (6.7, 12.0, 21.6)), (4, (14.0, 21.5, 43.9))):
        algorithm = RadixAllReduce(radix=float(radix))
        for size, value in zip(RANKS, printed, strict=True):

            def behind(delta, algorithm=algorithm, size=size):
                group, link = Group(float(size)), Link(ALPHA_S, 1 / RATE, 0.0, delta)
                ring = RingAllReduce().cost(small, group, link).time_s
                return algorithm.cost(small, group, link).time_s - ring

            lag, slope = jax.value_and_grad(behind)(DELTA_S)
            text = f"us to set circuits at which L{radix} and the ring break even, {size} GPUs, small messages"
            claims.append(Claim(NAME, text, value, float(DELTA_S - lag / slope) * 1e6, 0.01, "derived"))
    some, whole = np.array([2, 4, 6, 8, 12, 16, 32, 48, 64, 128, 256]), np.arange(2, 257)
    for name, last in (("L4", 12), ("L2", 32)):
        loses = [r[seconds(LUMORPH[name], 1.0, r) >= seconds(RingAllReduce(), 1.0, r)] for r in (some, whole)]
        result, any_size = float(loses[0].max()), int(loses[1].max())
        text = (
            f"most GPUs, of the sizes studied, at which a static ring beats {name}, small messages (of any: {any_size})"
        )
        claims.append(Claim(NAME, text, float(last), result, 0.0, "derived"))
    equal = RadixAllReduce(radix=4.0, splitting="equal")
    sizes = np.geomspace(1e6, 1e8, 4001)
    for size, value in zip(RANKS, (12.0, 12.0, 16.0), strict=True):
        ahead = seconds(LUMORPH["L2"], sizes, size) < seconds(equal, sizes, size)
        result = float(sizes[ahead.argmax()]) / 1e6
        note = "; the notes charge the loss in the round with one partner too" if size == 128 else ""
        text = f"MB above which L2 beats L4 if a channel splits into B/r, {size} GPUs{note}"
        claims.append(Claim(NAME, text, value, result, None if note else 0.02, "derived"))
    times = [seconds(LUMORPH[name], SIZES[:, None], np.array(RANKS)[None, :]) for name in ("L2", "L4")]
    text = "CHK-10: L4 beats L2 at every size when the channel splits ideally (share of points)"
    share = float((times[1] <= times[0]).mean())
    claims.append(Claim(NAME, text, 1.0, share, 0.0, "derived"))
    return claims


def document() -> list[Claim]:
    """What the document states about the rack, read back from the objects that price it."""
    rack = OpticalCircuit(256.0, 300e9, ALPHA_S, DELTA_S, wavelengths=16.0)
    link = rack.link(Group(256.0))
    read = [
        ("LUM-04: wavelengths per tile", 16.0, link.lanes),
        ("LUM-12: us to set circuits", 3.7, link.reconfiguration_s * 1e6),
        ("LUM-21: GB/s per direction", 300.0, 1e-9 / link.beta_s_per_byte),
        ("LUM-22: alpha, us", 0.7, link.alpha_s * 1e6),
        ("LUM-23: alpha with set-up, us", 4.4, (link.alpha_s + link.reconfiguration_s) * 1e6),
    ]
    claims = [Claim(NAME, f"{text} (input)", paper, float(value), 1e-6, "published") for text, paper, value in read]
    for number, size in zip((17, 18, 19), RANKS, strict=True):
        claims.append(Claim(NAME, f"LUM-{number}: GPUs simulated (input)", float(size), float(size), None, "published"))
    for number, radix in ((25, 2), (26, 4)):
        partners = float(len(all_reduce((radix,) * 2)[0]) / radix**2)
        text = f"LUM-{number}: radix of LUMORPH-{radix}, partners of the executed schedule and self"
        claims.append(Claim(NAME, text, float(radix), partners + 1, 0.0, "published"))
    sipac = all_reduce((2, 2, 2), rotations(3))
    members, ports = len({m.source for m in sipac[0]}), len({m.target for m in sipac[0] if m.source == 0})
    text = f"LUM-16: GPUs of SiPAC(2, 3) as executed ({ports} standing circuits each)"
    claims.append(Claim(NAME, text, 8.0, float(members), 0.0, "published"))
    clique = all_reduce((4,))
    text = "LUM-06: accelerators joined all to all by one round of circuits"
    claims.append(Claim(NAME, text, 4.0, float(len({m.source for m in clique[0]})), 0.0, "published"))
    six = {name: float(seconds(algorithm, 1e8, 6)) for name, algorithm in (LUMORPH | WEAK).items()}
    text = "LUM-15: six GPUs take the ring for large buffers: ring's time over the best other (100 MB)"
    ratio = six["ring"] / min(six["L2"], six["L4"], six["tree, stored and forwarded"])
    claims.append(Claim(NAME, text, None, ratio, 0.0, "derived", error=max(0.0, ratio - 1)))
    return claims


def claims() -> list[Claim]:
    """All of it."""
    return [*executed(), *headline(), *document(), *trade_offs(), *table_of_the_notes()]


def tables() -> dict[str, pd.DataFrame]:
    """What a tenant should set up, by its size and message, in whole wavelengths."""
    best = Fastest({
        "ring": RingAllReduce(), "all-to-all": CliqueAllReduce(), "SiPAC(2)": SipacAllReduce(radix=2.0),
        "SiPAC(4)": SipacAllReduce(radix=4.0), "LUMORPH-2": RadixAllReduce(radix=2.0),
        "LUMORPH-4": RadixAllReduce(radix=4.0),
    })  # fmt: skip
    link = Link(ALPHA_S, 1 / RATE, 0.0, DELTA_S, lanes=16.0)
    ranks, sizes = (4, 8, 16, 64, 256), (1e3, 1e5, 1e6, 1e7, 1e9)
    pairs = jnp.asarray([(m, n) for n in ranks for m in sizes])
    index = np.asarray(jax.jit(jax.vmap(lambda p: best.winner(p[0], Group(p[1]), link)))(pairs)).reshape(len(ranks), -1)
    rows = [{"GPUs": n} | {f"{m / 1e6:g} MB": best.names()[i] for m, i in zip(sizes, row, strict=True)}
            for n, row in zip(ranks, index, strict=True)]  # fmt: skip
    return {"Best circuits for a tenant": pd.DataFrame(rows)}


def figures() -> dict:
    """Times over the fastest way to do it, by message size, for the three rack sizes; weak baselines dashed."""
    figure, (row,) = panels(3.6, 1, 3, sharey=True)
    names = [*LUMORPH, *STANDING, *WEAK, *STRONG]
    colours = dict(zip(names, (BLUE, SKY, GREEN, GREY, YELLOW, ORANGE, PURPLE), strict=True))
    for axes, size in zip(row, RANKS, strict=True):
        times = everything(SIZES, size)
        least, starts = np.min(list(times.values()), axis=0), []
        for name in names:
            style = "--" if name in WEAK else ":" if name in STRONG else "-"
            over = times[name] / least
            axes.plot(SIZES / 1e6, over, style, color=colours[name], linewidth=1.4)
            starts.append(Label(SIZES[0] / 1e6, float(over[0]), name.replace(", stored and forwarded", ", whole"),
                                colours[name]))  # fmt: skip
        axes.set(title=f"{size} GPUs", xlabel="buffer, MB", xscale="log", yscale="log", ylim=(0.72, 90))
        plain_ticks(axes, "x", (1e-3, 0.1, 10, 1e3), ("0.001", "0.1", "10", "1,000"))
        if axes is row[0]:
            axes.set_xlim(1e-7, 1e4)  # room for names where the lines begin
            name_ends(axes, starts, 0.02)
    plain_ticks(row[0], "y", (1, 2, 5, 10, 20, 50))
    row[0].set_ylabel("time over the fastest")
    times = everything(SIZES, RANKS[-1])
    least = np.min(list(times.values()), axis=0)
    wins = SIZES[times["L4"] <= times["ring"] * (1 + 1e-9)]
    small = float(times["L4"][0] / least[0])
    found(figure, f"On {RANKS[-1]} GPUs radix 4 beats the ring up to {wins[-1] / 1e6:,.0f} MB, but on small buffers "
          f"standing "
          f""
          f"circuits are {small:.0f} times as fast as it, and pipelined trees and halving on an ideal switch are "
          f"faster "
          "too")  # fmt: skip
    return {"All-reduce time": figure}
