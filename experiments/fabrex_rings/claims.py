"""Default rings of RCCL against optimised ones on split-flat: three ways between the boxes, or four."""

from types import ModuleType

import numpy as np
from matplotlib.figure import Figure

from codesign.evidence.reproduction import Claim, experiments_folder, load
from codesign.model.networks.fabrics import RoutedTopology
from codesign.report import links_frame, topology_figure

NAME = "fabrex_rings"
KINDS = {  # of claims whose standing alone does not say it
    "transcription": r"printed change from its own rates",
    "fitted": r"default rings|relative change|optimised over default",
}
TOPOLOGY = "2s-2rp-split-flat"
MEASURED = {"all_reduce": (75, 88), "reduce_scatter": (83, 108), "all_gather": (66, 99)}  # GB/s default, optimised
PRINTED_CHANGE = {"all_reduce": 17, "reduce_scatter": 30, "all_gather": 50}  # per cent of the default
RAILS = {"default": 3, "optimised": 4}


def topologies() -> ModuleType:
    """The experiment that fits the rate of a cable."""
    return load(experiments_folder() / "fabrex_topologies")


def with_rails(made: RoutedTopology, rails: int) -> RoutedTopology:
    """The same fabric with rings on so many ways out of a box."""
    return RoutedTopology(made.shape, made.links, rails=rails)


def cable_rate(shared: ModuleType) -> float:
    """GB/s, fitted on the table of five topologies alone; this table is not used."""
    made = {name: shared.fabric(name) for name in shared.MEASURED}
    cable = 1e-9 / float(made[TOPOLOGY].links["port"].seconds_per_byte())
    return shared.fitted_rate(list(made), {name: shared.bus_bandwidth(f) / cable for name, f in made.items()})


def rates() -> dict[str, float]:
    """GB/s with each number of rails."""
    shared = topologies()
    made = shared.with_rate(shared.fabric(TOPOLOGY), cable_rate(shared))
    return {name: shared.bus_bandwidth(with_rails(made, rails)) for name, rails in RAILS.items()}


def claims() -> list[Claim]:
    """Six rates, three changes, and the mean ratio that the noise of single rows hides."""
    model, rows = rates(), []
    standing = "derived: cable from fabrex_topologies, 3 of 4 rails read from this table"
    for operation, values in MEASURED.items():
        for (name, rate), value in zip(model.items(), values, strict=True):
            text = f"{operation} with {name} rings ({RAILS[name]} rails): bus bandwidth, GB/s"
            rows.append(Claim(NAME, text, value, rate, None, standing))
    ratio = model["optimised"] / model["default"]
    for operation, change in PRINTED_CHANGE.items():
        rows.append(
            Claim(NAME, f"{operation}: relative change, % of the default", change, 100 * (ratio - 1), None, standing)
        )
        default, optimised = MEASURED[operation]
        text = f"{operation}: printed change from its own rates, % of the default"
        rows.append(Claim(NAME, text, change, 100 * (optimised / default - 1), 0.03, "published"))
    measured = float(np.exp(np.mean([np.log(b / a) for a, b in MEASURED.values()])))
    rows.append(Claim(NAME, "optimised over default, geometric mean of the three", measured, ratio, 0.05, standing))
    return rows + noise()


def noise() -> list[Claim]:
    """One topology stands in two tables of the document."""
    shared = topologies().MEASURED[TOPOLOGY]
    other = {"all_gather": shared[0], "all_reduce": shared[1]}
    reason = "not determined: two tables of the document disagree, the noise of its data"
    return [
        Claim(NAME, f"{operation} on {TOPOLOGY}: five topologies (paper) against optimised rings (model), GB/s",
              value, float(MEASURED[operation][1]), None, reason)
        for operation, value in other.items()
    ]  # fmt: skip


def figures() -> dict[str, Figure]:
    """Which links the rings use."""
    made, parts, used = topologies().fabric(TOPOLOGY), {}, []
    for name, rails in RAILS.items():
        links = links_frame(*with_rails(made, rails).group_load(16, 1))
        parts[f"{name} rings, {rails} rails"] = links
        used.append(int((links["used"] > 0.99).sum()))
    told = f"A fourth rail spreads the ring over both domains: {used[0]} cables are full before, {used[-1]} after"
    return {"Load of every link": topology_figure(parts, found=told)}
