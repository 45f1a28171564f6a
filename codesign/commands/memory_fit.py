"""`codesign fit`: what lies in a device's memory when, whether it fits, and the smallest changes that would."""

import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from ..config.checks import check_plan
from ..config.legal_start import legal_start
from ..config.memory_advice import capacity_of, smallest_changes, used_of
from ..config.plausibility import unusual
from ..config.study import documented_scenario
from ..core.atomic_files import write_bytes
from ..core.jax_typed import asarray
from ..core.json_yaml import dumps
from ..core.smooth import used_share
from ..jaxprs.evaluator import interpreted
from ..model.metrics import cache_room, cache_tokens, chance_that_fits, memory_by_class, memory_moments
from ..model.metrics.footprint import predicted_bytes
from ..model.scenario import Scenario
from ..model.workloads import AbstractServing
from ..model.workloads.continuous import AbstractContinuousServing
from ..report.labels import MEMORY_CLASSES, TIERS
from ..study.objective import feasible
from .remarks import warn
from .setup import prepare_jax
from .terminal import console, job_text, plain_table

__all__ = ["chance_text", "fit_design"]

GIB = 2**30
ENGINE = "engine"
MOMENTS = ("load", "profile run", "prefill", "decode")  # of what serves, in their order
STAGES = ("first", "middle", "last")  # of a pipeline
SURE = 0.995  # chance from which nothing is said of it
NEGLIGIBLE = 5e6  # bytes of a class of weights that are not named
SHOWN = 5  # sets of changes


class MemoryFit(NamedTuple):
    """Predicted memory of a design: bytes by moment and class, limits, room for the KV cache, chance that it fits."""

    moments: dict[str, dict[str, float]]
    bounds: dict[str, tuple[float, float]]
    capacity_bytes: float
    room_bytes: float
    room_tokens: float
    chance: float
    weights: dict[str, float]
    outside: tuple[float, float]

    @property
    def fits(self) -> bool:
        """True if the predicted bytes stay within every limit."""
        return all(feasible(float(used_share(used, usable)) - 1) for used, usable in self.bounds.values())


def fit_design(overrides: list[str], *, as_json: bool = False, picture: str = "", remarks: Sequence[str] = ()) -> None:
    """Print what lies in a device's memory at each moment; of a design that does not fit, what would make it.

    Args:
        overrides: of the configuration.
        as_json: bytes by moment and class, bounds, chance and changes as one object.
        picture: PNG file to write.
        remarks: lines of how the overrides came about, for stderr.

    Raises:
        ConfigError: bad configuration, a plan that breaks a rule, a file that cannot be written.
    """
    prepare_jax()
    scenario, provenance = documented_scenario(*overrides)
    scenario, instead = legal_start(scenario, overrides)
    check_plan(scenario)
    result = fitted(scenario)
    for line in (*remarks, *([f"codesign: {instead}"] if instead else [])):
        print(line, file=sys.stderr)
    warn(unusual(scenario, provenance=provenance))
    changes = [] if result.fits else smallest_changes(scenario)
    if as_json:
        print(dumps(_as_dict(result, changes), indent=2))
    else:
        _show(console(), scenario, result, changes)
    if picture:
        _draw(Path(picture), scenario, result)


def chance_text(scenario: Scenario) -> str:
    """One line on the chance that a design fits its memory; empty where it is as good as sure."""
    chance = fitted(scenario).chance
    return f"memory: fits with a chance of {chance:.0%}" if chance < SURE else ""


def fitted(scenario: Scenario) -> MemoryFit:
    """The memory of a design."""
    moments, room, tokens, parts, (weights, outside) = _traced(scenario)
    moments = {
        when: {name: float(nbytes) for name, nbytes in tier_bytes.items()} for when, tier_bytes in moments.items()
    }
    capacity, used = capacity_of(scenario), used_of(scenario)
    counted, guessed, inside = (float(one) for one in parts)
    chance = chance_that_fits(counted, guessed, capacity["hbm"])
    if ENGINE in capacity:
        chance = min(chance, chance_that_fits(used[ENGINE] - inside, inside, capacity[ENGINE]))
    hbm = scenario.cluster.accelerator.hbm
    capacity_bytes = float(getattr(hbm, "capacity_bytes", hbm.usable_bytes()))
    beside = {"reserved": capacity_bytes - float(hbm.usable_bytes())}
    names = sorted(moments, key=_order)
    moments = {when: beside | moments[when] for when in names}
    bounds = {tier: (used[tier], capacity[tier]) for tier in capacity}
    held = {name: float(nbytes) for name, nbytes in weights.items() if float(nbytes)}
    context, links = (float(one) for one in outside)
    return MemoryFit(moments, bounds, capacity_bytes, float(room), float(tokens), chance, held, (context, links))


@functools.partial(interpreted, always=True)
def _traced(scenario: Scenario) -> tuple[Any, Any, Any, Any, Any]:
    """Bytes by moment, room for a cache in bytes and tokens, counted and predicted bytes; weights, what is outside."""
    layout = scenario.workload.laid_out(scenario.layout)
    used = memory_by_class(scenario, layout)
    counted, guessed = predicted_bytes(used, "hbm")
    work = scenario.workload
    room = cache_room(scenario, layout, used) if isinstance(work, AbstractServing) else asarray(0.0 * counted)
    blocks = isinstance(work, AbstractContinuousServing)
    tokens = cache_tokens(scenario, layout, room) if blocks else 0.0 * counted
    near = {name.partition("/")[2]: nbytes for name, nbytes in used.items() if name.startswith("hbm/")}
    inside = work.engine_memory.predicted_inside(near) if isinstance(work, AbstractServing) else 0.0 * counted
    outside, weights = (0.0 * counted, 0.0 * counted), dict[str, Any]()
    if isinstance(work, AbstractServing):
        outside, weights = work.engine_memory.outside_bytes(layout.plan), work.held_weights(layout)
    return (
        memory_moments(scenario, layout),
        room,
        tokens,
        (counted, guessed + 0.0 * counted, inside),
        (weights, outside),
    )


def _order(moment: str) -> tuple[int, str]:
    """Sort key of a moment: load to decode of an engine, first to last stage of a pipeline."""
    places = [MOMENTS.index(moment)] if moment in MOMENTS else []
    places += [at for at, stage in enumerate(STAGES) if moment.startswith(stage)]
    return (places[0] if places else 0, moment)


def _as_dict(fit: MemoryFit, changes: Sequence[Sequence[str]]) -> dict[str, Any]:
    bounds = {name: {"used_bytes": used, "usable_bytes": usable} for name, (used, usable) in fit.bounds.items()}
    return {
        "fits": fit.fits, "chance": fit.chance, "moments": fit.moments, "bounds": bounds,
        "weights": fit.weights, "context_bytes": fit.outside[0], "communication_bytes": fit.outside[1],
        "cache_room_bytes": fit.room_bytes, "cache_tokens": fit.room_tokens,
        "changes": [list(change) for change in changes],
    }  # fmt: skip


def _show(out: Console, scenario: Scenario, fit: MemoryFit, changes: Sequence[Sequence[str]]) -> None:
    classes = list(dict.fromkeys(name for parts in fit.moments.values() for name in parts))
    ordered = [name for name in MEMORY_CLASSES if name in classes]
    ordered += [name for name in classes if name not in MEMORY_CLASSES]
    peak = max(fit.moments.values(), key=lambda parts: sum(parts.values()))
    rows = [
        (
            MEMORY_CLASSES.get(name, (name.replace("_", " "), ""))[0],
            *(_gib(parts.get(name, 0.0)) for parts in fit.moments.values()),
            f"{peak.get(name, 0.0) / fit.capacity_bytes:.1%}",
        )
        for name in ordered
        if any(parts.get(name) for parts in fit.moments.values())
    ]
    totals = [sum(parts.values()) for parts in fit.moments.values()]
    rows.append(("all", *map(_gib, totals), f"{max(totals) / fit.capacity_bytes:.1%}"))
    title = f"{job_text(scenario)}: memory of a device [GiB]"
    out.print(plain_table(title, rows, "class", *fit.moments, "of the device at its peak"))
    if fit.weights:
        formats = scenario.workload.precision.by_class
        listed = (
            f"{(name or 'router and norms').replace('_', ' ')} {_gib(nbytes)}"
            + (f" ({getattr(formats, name)})" if formats is not None and name else "")
            for name, nbytes in sorted(fit.weights.items(), key=lambda item: -item[1])
            if nbytes > NEGLIGIBLE
        )
        out.print(f"weights: {', '.join(listed)}", highlight=False)
    if any(fit.outside):
        context, links = map(_gib, fit.outside)
        out.print(f"of the reserve: context {context}, communication {links}", highlight=False)
    for name, (used, usable) in fit.bounds.items():
        if used or name != "ddr":
            out.print(f"{_bound(name, scenario)}: {used / GIB:.4g} of {usable / GIB:.4g} GiB", highlight=False)
    if fit.room_tokens > 0:
        text = f"room for KV cache: {fit.room_bytes / GIB:.4g} GiB a device, {fit.room_tokens:,.0f} tokens an engine"
        out.print(text, highlight=False)
    out.print(_verdict(fit, changes), highlight=False)


def _verdict(fit: MemoryFit, changes: Sequence[Sequence[str]]) -> str:
    """Say whether the design fits: the chance near the edge, and the smallest changes that would make it fit."""
    edge = f" (chance {fit.chance:.0%})" if 1 - SURE < fit.chance < SURE else ""
    if fit.fits:
        return f"it fits{edge}"
    if not changes:
        return f"it does not fit{edge}; no change of plan or up to 256 times the devices would make it"
    listed = "".join(f"\n  {' '.join(change)}" for change in changes[:SHOWN])
    return f"it does not fit{edge}; smallest changes that do:{listed}"


def _bound(name: str, scenario: Scenario) -> str:
    work = scenario.workload
    if name == ENGINE and isinstance(work, AbstractServing):
        engine = work.engine_memory
        of = {"total": "the engine", "static": "weights and cache", "free": "the cache"}[engine.share_of]
        return f"share of {of} (utilisation {engine.utilisation:g})"
    return f"{TIERS.get(name, name)} without its reserve"


def _gib(nbytes: float) -> str:
    return f"{nbytes / GIB:.2f}"


def _draw(path: Path, scenario: Scenario, fit: MemoryFit) -> None:
    from ..report.figures import memory_picture  # brings matplotlib

    lines: Mapping[str, float] = {"capacity": fit.capacity_bytes}
    write_bytes(path, memory_picture(fit.moments, lines, job_text(scenario)))
    print(f"codesign: picture: {path}", file=sys.stderr)
