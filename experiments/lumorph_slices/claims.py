"""Slices of a shared rack of 64: who is refused on circuits, tori, cubes and servers, and what a formula says of it."""

import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
import pandas as pd

from _lib.circuit_schedule import factorisations
from codesign.evidence.reproduction import Claim
from codesign.model.slices import (
    MIXES,
    AbstractAllocator,
    CircuitRack,
    DemandMix,
    FixedServers,
    SchedulerOutcome,
    SharedRack,
    SubCubes,
    TorusCuboids,
    effective_ratio,
    simulate,
)
from codesign.report.findings import BLUE, GREEN, ORANGE, PURPLE, YELLOW, Label, headline, name_ends, panels
from codesign.staging import at_many

KINDS = {  # of claims whose standing alone does not say it
    "input": r"LUM-03\b",
    "note": r"of the notes|^notes, (?!SiPAC)|notes' effective capacity",
}
NAME, LOAD, ARRIVALS = "lumorph_slices", 0.8, 30_000
RACK = 64  # accelerators of each
RACKS: dict[str, Callable[[], AbstractAllocator]] = {
    "LUMORPH, 8 fibers a server": CircuitRack,
    "torus 4x4x4, cuboids": TorusCuboids,
    "SiPAC(2,6)": lambda: SubCubes(2, 6),
    "SiPAC(4,3)": lambda: SubCubes(4, 3),
    "fixed 8-GPU servers": FixedServers,
}
NOTES = {  # acceptance by accelerators, utilisation; in the order of MIXES
    "LUMORPH, 8 fibers a server": ((0.786, 0.618), (0.768, 0.600), (0.825, 0.652)),
    "torus 4x4x4, cuboids": ((0.655, 0.515), (0.700, 0.549), (0.703, 0.555)),
    "SiPAC(2,6)": ((0.630, 0.497), (0.649, 0.506), (0.635, 0.505)),
    "SiPAC(4,3)": ((0.533, 0.421), (0.496, 0.383), (0.476, 0.374)),
    "fixed 8-GPU servers": ((0.678, 0.536), (0.737, 0.578), (0.681, 0.538)),
}
ANALYTICAL = ((0.780, 0.624), (0.758, 0.606), (0.821, 0.657))
EFFECTIVE = {"torus 4x4x4, cuboids": 0.88, "SiPAC(2,6)": 0.91, "SiPAC(4,3)": 0.91, "fixed 8-GPU servers": 0.97}
LUMORPH = "LUMORPH, 8 fibers a server"


@functools.cache
def outcome(system: str, mix: str) -> SchedulerOutcome:
    """Simulated, with the same tenants for every system."""
    return simulate(RACKS[system](), MIXES[mix], LOAD, ARRIVALS)


def analytical(mix: DemandMix, system: str = LUMORPH, ratio: float | None = None) -> tuple[float, float]:
    """Kaufman-Roberts with sizes rounded up to the system's volumes and its effective capacity, the notes' or this."""
    (acceptance,) = accepted(mix, system, [LOAD], [EFFECTIVE.get(system, 1.0) if ratio is None else ratio])
    return acceptance, LOAD * acceptance


@functools.cache
def _formula(mix: DemandMix, system: str) -> Callable[..., np.ndarray]:
    """Kaufman-Roberts at many loads and effective capacities, traced once."""
    volumes = tuple(RACKS[system]().volume(size) for size in mix.sizes)

    def acceptance(load: jax.Array, ratio: jax.Array) -> jax.Array:
        return SharedRack(RACK, load, ratio, mix.sizes, volumes, mix.weights).acceptance(RACK)

    return at_many(acceptance, (0, 0))


def accepted(mix: DemandMix, system: str, loads: Sequence[float], ratios: Sequence[float]) -> list[float]:
    """Share of the accelerators granted at each load, with each effective capacity."""
    columns = np.broadcast_arrays(np.asarray(loads, float), np.asarray(ratios, float))
    return _formula(mix, system)(*columns).tolist()


def points(text: str, paper: float | None, model: float, bar: float | None, standing: str) -> Claim:
    """A claim whose error is a difference of shares."""
    return Claim(NAME, text, paper, model, bar, standing, error=None if paper is None else abs(model - paper))


def claims() -> list[Claim]:
    """Bars first, then every row of the notes, then what the document says of slices."""
    result = []
    for index, (name, mix) in enumerate(MIXES.items()):
        formula, standing = analytical(mix), "fitted 5 on 1" if mix.weights else "derived"
        text = f"Kaufman-Roberts, {name}: acceptance of the notes (error: difference)"
        result.append(points(text, ANALYTICAL[index][0], formula[0], 0.001, standing))
        text = f"Kaufman-Roberts, {name}: utilisation of the notes (error: difference)"
        result.append(points(text, ANALYTICAL[index][1], formula[1], 0.001, standing))
        found = outcome(LUMORPH, name)
        text = f"simulation of LUMORPH against Kaufman-Roberts, {name}: acceptance (error: difference)"
        result.append(points(text, formula[0], found.acceptance, 0.015, "derived"))
        text = f"simulation of LUMORPH against Kaufman-Roberts, {name}: utilisation (error: difference)"
        result.append(points(text, formula[1], found.utilisation, 0.015, "derived"))
        for system in list(RACKS)[1:]:
            gain = found.acceptance - outcome(system, name).acceptance
            text = f"LUMORPH at or above {system}, {name}: gain in acceptance"
            result.append(Claim(NAME, text, None, gain, 0.0, "derived", error=max(0.0, -gain)))
    for index, name in enumerate(MIXES):
        for system, rows in NOTES.items():
            found = outcome(system, name)
            bar = 0.02 if system.startswith("SiPAC") else None
            text = f"notes, {system}, {name}: acceptance (error: difference; where to place is not printed)"
            result.append(points(text, rows[index][0], found.acceptance, bar, "derived"))
            text = f"notes, {system}, {name}: utilisation (error: difference)"
            result.append(points(text, rows[index][1], found.utilisation, bar, "derived"))
        for system in EFFECTIVE:
            text = (
                f"formula with the notes' effective capacity against simulation, {system}, {name} (error: difference)"
            )
            result.append(
                points(text, outcome(system, name).acceptance, analytical(MIXES[name], system)[0], None, "derived")
            )
    return result + sipac() + document()


def sipac() -> list[Claim]:
    """SiPAC's formula with a capacity for each mix, and what one for all mixes could do at best."""
    result = []
    for system in (name for name in RACKS if name.startswith("SiPAC")):
        needed = {}
        for name, mix in MIXES.items():
            needed[name] = effective_ratio(RACKS[system], mix, LOAD, ARRIVALS // 2, seed=1)
            told = analytical(mix, system, needed[name])[0]
            text = f"formula with the capacity of {system} for {name}, of other tenants, against simulation: acceptance"
            result.append(points(text, outcome(system, name).acceptance, told, 0.02, "derived"))
        seen = {name: outcome(system, name).acceptance for name in MIXES}
        ratios = np.linspace(min(needed.values()), max(needed.values()), 12).tolist()
        apart = [np.abs(np.array(accepted(mix, system, [LOAD], ratios)) - seen[name]) for name, mix in MIXES.items()]
        worst = float(np.max(apart, axis=0).min())
        told = ", ".join(f"{name}: {ratio:.3f}" for name, ratio in needed.items())
        text = f"least largest difference of {system} with any one effective capacity for all mixes (each: {told})"
        result.append(Claim(NAME, text, None, worst, None, "derived"))
    return result


def document() -> list[Claim]:
    """LUM-03 and what only circuits can place."""
    result = []
    circuits, servers = CircuitRack(2, 4), FixedServers(2, 4)
    circuits.taken = servers.taken = 0b0011_0011
    text = "LUM-14: largest slice when two accelerators of each of two servers are free; without circuits"
    fixed = servers.largest()
    result.append(Claim(NAME, f"{text} {fixed}", 4.0, float(circuits.largest()), 0.0, "derived"))
    shapes = sum(1 for _ in factorisations(6))
    text = f"LUM-15: a slice of six is placed (and may be wired {shapes} ways), GPUs"
    handle = CircuitRack().find(6)
    result.append(Claim(NAME, text, 6.0, float(handle.mask.bit_count()) if handle else 0.0, 0.0, "derived"))
    wafer = CircuitRack(2, 32)
    handle = wafer.allocate(32)
    alone = float(handle is not None and not handle.fibers) * 32
    result.append(Claim(NAME, "LUM-03: largest slice on one wafer without a fiber", 32.0, alone, 0.0, "published"))
    return result


def tables() -> dict[str, pd.DataFrame]:
    """Everything the simulation saw."""
    rows = [
        {"system": system, "mix": mix, **vars(outcome(system, mix))} for mix in MIXES for system in RACKS
    ]  # fmt: skip
    names = {"requests": "requests granted", "fragmented": "refused with enough free", "stranded": "1 - largest / free"}
    return {"Simulated slices": pd.DataFrame(rows).rename(columns=names)}


def figures() -> dict:
    """Acceptance over load on the uniform mix: formula as lines, simulation as dots over three seeds."""
    loads, mix = (0.4, 0.6, 0.8, 1.0, 1.2), MIXES["uniform 1-16"]
    figure, ((axes,),) = panels(3.6)
    axes.set(
        xlabel="offered accelerators over those there are", ylabel="share of accelerators granted", xlim=(0.3, 1.3)
    )
    fine, ends, apart, full = np.linspace(0.3, 1.3, 41), [], 0.0, {}
    for system, colour in zip(RACKS, (BLUE, ORANGE, GREEN, PURPLE, YELLOW), strict=True):
        ratio = [EFFECTIVE.get(system, 1.0)]
        seen = np.array([[simulate(RACKS[system](), mix, load, 4_000, seed).acceptance for seed in range(3)]
                         for load in loads])  # fmt: skip
        middle, told = seen.mean(axis=1), accepted(mix, system, fine, ratio)
        axes.plot(fine, told, color=colour, linewidth=1.3)
        axes.errorbar(loads, middle, yerr=[middle - seen.min(axis=1), seen.max(axis=1) - middle], fmt="o", color=colour,
                      markersize=3.5, capsize=2)  # fmt: skip
        apart = max(apart, float(np.abs(np.array(accepted(mix, system, loads, ratio)) - middle).max()))
        ends.append(Label(1.3, told[-1], system, colour))
        full[system] = float(middle[loads.index(1.0)])
    name_ends(axes, ends)
    first, rest = next(iter(full)), list(full.values())[1:]
    headline(figure, f"Circuits grant more of a shared rack than wiring does: {full[first]:.0%} of what is asked at "
             f"full "
             f""
             f"load against {min(rest):.0%} to {max(rest):.0%}; the formula (lines) is within {100 * apart:.0f} "
             f"points of "
             "the simulation (dots, three seeds)")  # fmt: skip
    return {"Acceptance over load": figure}
