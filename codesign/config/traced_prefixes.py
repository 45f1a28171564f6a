"""`workload.prefix_cache`: a trace with hashes of its blocks, or numbers of popular prefixes, as reuse that is priced.

    workload.prefix_cache=FILE               the same as workload.prefix_cache.trace=FILE
    workload.prefix_cache.trace=FILE         tables of `TracedPrefixes`; with .router=NAME of who comes to which cache
    workload.prefix_cache.prefix_tokens=P    `PopularPrefixes`, with .count, .zipf and .affinity

A configuration keeps the tables, with the file as their origin: a run is read again without the file.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import ConfigError, suggestion
from ..core.yaml_io import is_mapping
from ..model.metrics.prefix_room import PRICED
from .construct import resolve

if TYPE_CHECKING:
    from ..simulation.serving import Requests

__all__ = ["curves_of", "with_prefixes"]

KEY = "workload.prefix_cache"
MODULE = "codesign.model.workloads"
KNOTS = 40  # rows of a table, at most
CACHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # that requests are spread over
SAMPLED = 4  # caches of each number that are looked at: all are alike
FEWEST = 50  # requests of a cache, of fewer no table tells
STICKY = ("prefix_aware", "session_sticky")
ROUTED = ("round_robin", "least_outstanding", "power_of_two", *STICKY)
POPULAR = ("prefix_tokens", "count", "zipf", "affinity")


def with_prefixes(resolved: dict[str, Any]) -> dict[str, Any]:
    """Copy of a configuration whose prefix cache is an object's description.

    Raises:
        ConfigError: a file that is no trace or has no hashes, keys that do not go together, a workload without.
    """
    work: Any = resolved.get("workload")
    given = work.get("prefix_cache") if is_mapping(work) else None
    if given is None or (is_mapping(given) and "_target_" in given):
        return resolved
    target = resolve(work.get("_target_"), "workload._target_")
    if target not in PRICED:
        raise ConfigError(
            f"{KEY}: {target.__name__} is not priced with one; choose workload=continuous, at_rate or goodput, or give"
            " workload.cached_ratio"
        )
    entries: dict[str, Any] = dict(given) if is_mapping(given) else {"trace": given}
    return {**resolved, "workload": dict(work) | {"prefix_cache": _described(entries)}}


def _described(entries: dict[str, Any]) -> dict[str, Any]:
    trace, router = entries.pop("trace", None), entries.pop("router", None)
    popular = {name: entries.pop(name) for name in POPULAR if name in entries}
    if (trace is None) == (not popular):
        raise ConfigError(
            f"{KEY}: give either a trace with hash_ids ({KEY}=FILE) or popular prefixes ({KEY}.prefix_tokens=4096"
            f" {KEY}.count=50)"
        )
    if router is not None and (trace is None or router not in ROUTED):
        hint = f": {KEY}.affinity=1 sends prompts with one prefix to one cache" if trace is None else ""
        raise ConfigError(f"{KEY}.router = {router!r} is none of a trace's{hint or suggestion(str(router), ROUTED)}")
    known: dict[str, Any] = {"_target_": f"{MODULE}.PrefixCaching"} | entries
    if trace is None:
        return known | {"reuse": {"_target_": f"{MODULE}.PopularPrefixes"} | popular}
    if not isinstance(trace, str):
        raise ConfigError(f"{KEY} = {trace!r} is no path of a trace")
    from ..simulation.serving import read_trace  # with the first trace that is read

    asked = read_trace(trace, timed=False)
    if not asked.hashed or not len(asked.hashes):
        raise ConfigError(
            f"{KEY} = {trace!r} does not say which blocks prompts begin with: take a trace with hash_ids, or give"
            " workload.cached_ratio"
        )
    if router == "session_sticky" and not len(asked.sessions):
        raise ConfigError(f"{KEY}.router = {router!r} goes by a column session, which {trace!r} does not have")
    origin = {"source": f"trace {trace}", "kind": "derived", "note": f"Che's approximation, {router or ROUTED[0]}"}
    reuse = {
        "_target_": f"{MODULE}.TracedPrefixes", "curves": curves_of(asked, router or ROUTED[0]),
        "provenance": {"curves": origin},
    }  # fmt: skip
    return known | {"reuse": reuse}


def curves_of(asked: "Requests", router: str) -> list[list[Any]]:
    """Tables of requests for each number of caches that leaves enough to each; see `TracedPrefixes`.

    Conversations stay with a cache where a router goes by them, or by prefixes that they have alone; without
    conversations to tell, prefix-aware routing makes one cache of all, each of so many having its part of the room.
    """
    result: list[list[Any]] = []
    together = router == "prefix_aware" and not len(asked.sessions)
    whole = _rows(asked, [np.arange(len(asked))]) if together else []
    for count in CACHES:
        if len(asked) // count < FEWEST and count > 1:
            break
        if together:
            result.append([float(count), [[row[0] / count, *row[1:]] for row in whole]])
            continue
        turns = asked.sessions % count if router in STICKY else np.arange(len(asked)) % count
        parts = [np.flatnonzero(turns == one) for one in range(min(count, SAMPLED))]
        result.append([float(count), _rows(asked, [part for part in parts if len(part)])])
    return result


def _rows(asked: "Requests", parts: list[np.ndarray]) -> list[list[float]]:
    """Room, share found, variation of what is computed and its keys, mean over caches that see these requests."""
    from ..model.workloads.prefix_reuse import curve_of_reuse
    from ..simulation.fleet import reuse_of

    size, mean = asked.hash_tokens, float(asked.prompts.mean())
    caches: list[tuple[Any, np.ndarray, np.ndarray, np.ndarray]] = []
    most = 2.0
    for part in parts:
        reuse, own = reuse_of(asked.chosen(part)), asked.prompts[part] * 1.0
        sizes = np.diff(asked.hash_starts)[part]
        caches.append((curve_of_reuse(reuse), reuse.ages, sizes, own))
        most = max(most, float(reuse.blocks))
    rooms = np.unique(np.concatenate([[0], np.rint(np.geomspace(1, most, KNOTS))]))
    rows: list[list[float]] = []
    for room in rows_of(rooms, caches, size):
        rows.append([room[0] * size, min(max(room[1], rows[-1][1] if rows else 0.0), 0.999), room[2], room[3] / mean])
    return rows


def _at(room: float, curve: Any) -> Any:
    """Share of the uses that a cache of so many blocks finds."""
    return np.interp(room, np.asarray(curve.rooms), np.asarray(curve.shares))


def rows_of(
    rooms: np.ndarray, caches: list[tuple[Any, np.ndarray, np.ndarray, np.ndarray]], size: int
) -> list[tuple[float, float, float, float]]:
    """Blocks, share found, variation of what is computed, mean keys: of all prompts of these caches together."""
    result: list[tuple[float, float, float, float]] = []
    listed: list[float] = rooms.tolist()
    for room in listed:
        left: list[np.ndarray] = []
        held: list[np.ndarray] = []
        for curve, ages, sizes, prompts in caches:
            share = float(_at(room, curve))
            within = np.quantile(ages, share, method="lower") if share > 0 else -1.0  # so many are younger
            starts = np.minimum(np.cumsum(sizes) - sizes, len(ages))
            hits = np.add.reduceat(np.append(ages <= within, False), starts)
            held.append(np.minimum(np.where(sizes > 0, hits, 0) * size, prompts - 1))
            left.append(prompts - held[-1])
        computed, before = np.concatenate(left), np.concatenate(held)
        keys = float((computed * (before + 0.5 * computed)).sum() / computed.sum())
        share = float(before.sum() / (computed.sum() + before.sum()))
        result.append((room, share, float(computed.std() / computed.mean()), keys))
    return result
