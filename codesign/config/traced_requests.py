"""`workload.trace`: a CSV file of requests in place of the moments of lengths and gaps that closed forms read.

    input_tokens, output_tokens    means
    input_cv, output_cv            standard deviation over mean of all requests
    correlation                    of both lengths, so that E[I O] is that of the file
    arrivals_per_s, arrival_cv         where it says when requests come: 1 / mean gap, deviation of gaps over their mean
    input_lengths, output_lengths     lengths as they are, in two dozen groups (`workloads.kinds`)

A configuration keeps these numbers, with the file as their origin: a run is read again without the file.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import ConfigError, suggestion
from ..core.json_yaml import is_mapping
from ..model.metrics.cache_placement import PRICED
from .construct import parameters, resolve
from .groups import expand

if TYPE_CHECKING:
    from ..simulation.serving import Requests

__all__ = ["CHECKED_CV", "curves_of", "doubts", "moments", "with_prefixes", "with_trace"]


# `workload.prefix_cache`: a trace with hashes of its blocks, or numbers of popular prefixes, as reuse that is priced.
#
#     workload.prefix_cache=FILE               the same as workload.prefix_cache.trace=FILE
#     workload.prefix_cache.trace=FILE         tables of `TracedPrefixes`; with .router=NAME of who comes to which cache
#     workload.prefix_cache.prefix_tokens=P    `PopularPrefixes`, with .count, .zipf and .affinity
#
# A configuration keeps the tables, with the file as their origin: a run is read again without the file.


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
    described: dict[str, Any] = {"_target_": f"{MODULE}.PrefixCaching"} | entries
    if trace is None:
        return described | {"reuse": {"_target_": f"{MODULE}.PopularPrefixes"} | popular}
    if not isinstance(trace, str):
        raise ConfigError(f"{KEY} = {trace!r} is no path of a trace")
    from ..simulation.serving import read_trace  # with the first trace that is read

    stream = read_trace(trace, timed=False)
    if not stream.hashed or not len(stream.hashes):
        raise ConfigError(
            f"{KEY} = {trace!r} does not say which blocks prompts begin with: take a trace with hash_ids, or give"
            " workload.cached_ratio"
        )
    if router == "session_sticky" and not len(stream.sessions):
        raise ConfigError(f"{KEY}.router = {router!r} goes by a column session, which {trace!r} does not have")
    origin = {"source": f"trace {trace}", "kind": "derived", "note": f"Che's approximation, {router or ROUTED[0]}"}
    reuse = {
        "_target_": f"{MODULE}.TracedPrefixes", "curves": curves_of(stream, router or ROUTED[0]),
        "provenance": {"curves": origin},
    }  # fmt: skip
    return described | {"reuse": reuse}


def curves_of(requests: "Requests", router: str) -> list[list[Any]]:
    """Tables of requests for each number of caches that leaves enough to each; see `TracedPrefixes`.

    Conversations stay with a cache where a router goes by them, or by prefixes that they have alone; without
    conversations to tell, prefix-aware routing makes one cache of all, each of so many having its part of the room.
    """
    result: list[list[Any]] = []
    together = router == "prefix_aware" and not len(requests.sessions)
    all_requests = _rows(requests, [np.arange(len(requests))]) if together else []
    for count in CACHES:
        if len(requests) // count < FEWEST and count > 1:
            break
        if together:
            result.append([float(count), [[row[0] / count, *row[1:]] for row in all_requests]])
            continue
        turns = requests.sessions % count if router in STICKY else np.arange(len(requests)) % count
        parts = [np.flatnonzero(turns == one) for one in range(min(count, SAMPLED))]
        result.append([float(count), _rows(requests, [part for part in parts if len(part)])])
    return result


def _rows(requests: "Requests", parts: list[np.ndarray]) -> list[list[float]]:
    """Room, share found, variation of what is computed and its keys, mean over caches that see these requests."""
    from ..model.workloads.prefix_reuse import curve_of_reuse
    from ..simulation.fleet import reuse_of

    size, mean = requests.hash_tokens, float(requests.prompts.mean())
    caches: list[tuple[Any, np.ndarray, np.ndarray, np.ndarray]] = []
    most = 2.0
    for part in parts:
        reuse, prompts = reuse_of(requests.chosen(part)), requests.prompts[part] * 1.0
        sizes = np.diff(requests.hash_starts)[part]
        caches.append((curve_of_reuse(reuse), reuse.ages, sizes, prompts))
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


TRACE_KEY = "workload.trace"

NEEDED = ("input_cv", "output_cv")  # by which a workload is known whose requests may differ


MOST_CV = 10.0  # of gaps, that workloads take; a trace with more is priced with this

CHECKED_CV = 5.0
"""Variation of gaps up to which closed forms of waiting are within 8 % of a simulation; at 8 they are 24 % low."""
WINDOW = 50  # requests, on average, of the windows in which arrivals are counted
DISPERSED = 4.0  # times the dispersion of counts that the gaps alone would bring: the rate itself varies

KINDS = {"input_lengths": "prompts", "output_lengths": "outputs"}
"""Fields of workloads that say what lengths are, and whose."""


def kinds(requests: "Requests") -> dict[str, list[list[float]]]:
    """Lengths over their mean with shares and deviations, as `workloads.kinds` has them."""
    from ..model.workloads.kinds import kinds_of

    return {name: [list(row) for row in kinds_of(getattr(requests, whose))] for name, whose in KINDS.items()}


def moments(requests: "Requests") -> dict[str, float]:
    """Moments of requests that serving workloads read, by the names of their fields; rates where arrivals are known."""
    prompts, outputs = requests.prompts * 1.0, requests.outputs * 1.0
    spread = prompts.std() * outputs.std()
    result = {
        "input_tokens": prompts.mean(), "output_tokens": outputs.mean(), "input_cv": prompts.std() / prompts.mean(),
        "output_cv": outputs.std() / outputs.mean(),
        "correlation": np.clip(np.cov(prompts, outputs, bias=True)[0, 1] / spread, -1, 1) if spread > 0 else 0.0,
    }  # fmt: skip
    if requests.arrivals is not None:
        gaps = np.diff(requests.arrivals)
        result |= {"arrivals_per_s": 1 / gaps.mean(), "arrival_cv": min(gaps.std() / gaps.mean(), MOST_CV)}
    if requests.cached_ratio:
        result["cached_ratio"] = min(requests.cached_ratio, 0.999)
    return {name: float(value) for name, value in result.items()}


def with_trace(resolved: dict[str, Any], overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Copy of a configuration with the numbers of its trace, if it names one.

    Args:
        resolved: plain mappings.
        overrides: what was typed: a number that the trace says must not stand beside it.

    Raises:
        ConfigError: a file that is no trace, a workload whose requests are all alike, a number that is said twice.
    """
    work: Any = resolved.get("workload")
    if not is_mapping(work) or "trace" not in work:
        return resolved
    fields = {key: value for key, value in work.items() if key != "trace"}
    path = work["trace"]
    if path is not None:
        said, doubt = _said(path, fields)
        _refuse_twice(path, said, overrides)
        origin = {"source": f"trace {path}", "kind": "derived", "note": "moment of its requests"}
        before: dict[str, Any] = fields.get("provenance") or {}
        origins: dict[str, Any] = before | dict.fromkeys(said, origin)
        if doubt and "arrival_cv" in said:
            origins["arrival_cv"] = origin | {"note": doubt}
        fields |= said | {"provenance": origins}
    return {**resolved, "workload": fields}


def doubts(requests: "Requests", path: str) -> str:
    """Reason not to trust closed forms of waiting for a trace, and the alternative; empty if they may be trusted.

    They know gaps by mean and variation, as of one rate: not bursts beyond `CHECKED_CV`, and not a rate that rises
    and falls over hours, which shows in counts of arrivals that vary more than such gaps would make them.
    """
    if requests.arrivals is None:
        return ""
    gaps = np.diff(requests.arrivals)
    cv = float(gaps.std() / gaps.mean())
    windows = len(requests.arrivals) // WINDOW
    spread = 0.0
    if windows >= 4 * DISPERSED:
        counts = np.histogram(requests.arrivals, windows)[0]
        spread = float(counts.var() / counts.mean()) / max(cv**2, 1.0)
    if cv <= CHECKED_CV and spread <= DISPERSED:
        return ""
    why = f"its arrivals come in bursts (gaps deviate by {cv:.3g} times their mean)"
    if cv <= CHECKED_CV:
        why = f"its rate of arrivals varies (counts vary {spread:.3g} times as much as its gaps tell)"
    return f"{why}, for which closed forms of waiting were not checked: believe `codesign simulate ... --trace {path}`"


def _said(path: Any, work: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Fields of a workload as the trace sets them, and doubts about closed forms."""
    if not isinstance(path, str):
        raise ConfigError(f"{TRACE_KEY} = {path!r} is no path of a CSV file")
    target = resolve(work.get("_target_"), "workload._target_")
    names = parameters(target)
    if not all(name in names for name in NEEDED):
        raise ConfigError(
            f"{TRACE_KEY} = {path!r}: requests of {target.__name__} are all alike: choose a workload that batches"
            " continuously, such as workload=continuous, at_rate or goodput"
        )
    from ..simulation.serving import read_trace  # with the first trace that is read

    stream = read_trace(path, timed=False)
    said = {name: value for name, value in (moments(stream) | kinds(stream)).items() if name in names}
    if work.get("prefix_cache") is not None:
        said.pop("cached_ratio", None)  # follows from room
    return said, doubts(stream, path)


def _refuse_twice(path: str, said: Mapping[str, Any], overrides: Sequence[str]) -> None:
    for text in overrides:
        key, _, value = text.lstrip("+~").partition("=")
        name = expand(key).removeprefix("workload.")
        if expand(key).startswith("workload.") and name in said:
            number = "them as well" if name in KINDS else f"{said[name]:.6g}"
            raise ConfigError(
                f"workload.{name} = {value} stands beside {TRACE_KEY} = {path!r}, which says {number}: leave one out"
            )
