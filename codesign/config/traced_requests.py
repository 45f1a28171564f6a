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

from ..core.errors import ConfigError
from ..core.yaml_io import is_mapping
from .construct import parameters, resolve
from .groups import expand

if TYPE_CHECKING:
    from ..simulation.serving import Requests

__all__ = ["moments", "with_trace"]

KEY = "workload.trace"
NEEDED = ("input_cv", "output_cv")  # by which a workload is known whose requests may differ


MOST_CV = 10.0  # of gaps, that workloads take; a trace with more is priced with this

CHECKED_CV = 5.0
"""Variation of gaps up to which closed forms of waiting are within 8 % of a simulation; at 8 they are 24 % low."""
WINDOW = 50  # requests, on average, of the windows in which arrivals are counted
DISPERSED = 4.0  # times the dispersion of counts that the gaps alone would bring: the rate itself varies

KINDS = {"input_lengths": "prompts", "output_lengths": "outputs"}
"""Fields of workloads that say what lengths are, and whose."""


def kinds(asked: "Requests") -> dict[str, list[list[float]]]:
    """Lengths over their mean with shares and deviations, as `workloads.kinds` has them."""
    from ..model.workloads.kinds import kinds_of

    return {name: [list(row) for row in kinds_of(getattr(asked, whose))] for name, whose in KINDS.items()}


def moments(asked: "Requests") -> dict[str, float]:
    """Moments of requests that serving workloads read, by the names of their fields; rates where arrivals are known."""
    prompts, outputs = asked.prompts * 1.0, asked.outputs * 1.0
    spread = prompts.std() * outputs.std()
    result = {
        "input_tokens": prompts.mean(), "output_tokens": outputs.mean(), "input_cv": prompts.std() / prompts.mean(),
        "output_cv": outputs.std() / outputs.mean(),
        "correlation": np.clip(np.cov(prompts, outputs, bias=True)[0, 1] / spread, -1, 1) if spread > 0 else 0.0,
    }  # fmt: skip
    if asked.arrivals is not None:
        gaps = np.diff(asked.arrivals)
        result |= {"arrivals_per_s": 1 / gaps.mean(), "arrival_cv": min(gaps.std() / gaps.mean(), MOST_CV)}
    if asked.cached_ratio:
        result["cached_ratio"] = min(asked.cached_ratio, 0.999)
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
    kept = {key: value for key, value in work.items() if key != "trace"}
    path = work["trace"]
    if path is not None:
        said, doubt = _said(path, kept)
        _refuse_twice(path, said, overrides)
        origin = {"source": f"trace {path}", "kind": "derived", "note": "moment of its requests"}
        before: dict[str, Any] = kept.get("provenance") or {}
        origins: dict[str, Any] = before | dict.fromkeys(said, origin)
        if doubt and "arrival_cv" in said:
            origins["arrival_cv"] = origin | {"note": doubt}
        kept |= said | {"provenance": origins}
    return {**resolved, "workload": kept}


def doubts(asked: "Requests", path: str) -> str:
    """Reason not to trust closed forms of waiting for a trace, and the alternative; empty if they may be trusted.

    They know gaps by mean and variation, as of one rate: not bursts beyond `CHECKED_CV`, and not a rate that rises
    and falls over hours, which shows in counts of arrivals that vary more than such gaps would make them.
    """
    if asked.arrivals is None:
        return ""
    gaps = np.diff(asked.arrivals)
    cv = float(gaps.std() / gaps.mean())
    windows = len(asked.arrivals) // WINDOW
    spread = 0.0
    if windows >= 4 * DISPERSED:
        counts = np.histogram(asked.arrivals, windows)[0]
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
        raise ConfigError(f"{KEY} = {path!r} is no path of a CSV file")
    target = resolve(work.get("_target_"), "workload._target_")
    known = parameters(target)
    if not all(name in known for name in NEEDED):
        raise ConfigError(
            f"{KEY} = {path!r}: requests of {target.__name__} are all alike: choose a workload that batches"
            " continuously, such as workload=continuous, at_rate or goodput"
        )
    from ..simulation.serving import read_trace  # with the first trace that is read

    asked = read_trace(path, timed=False)
    said = {name: value for name, value in (moments(asked) | kinds(asked)).items() if name in known}
    if work.get("prefix_cache") is not None:
        said.pop("cached_ratio", None)  # follows from room
    return said, doubts(asked, path)


def _refuse_twice(path: str, said: Mapping[str, Any], overrides: Sequence[str]) -> None:
    for text in overrides:
        key, _, value = text.lstrip("+~").partition("=")
        name = expand(key).removeprefix("workload.")
        if expand(key).startswith("workload.") and name in said:
            number = "them as well" if name in KINDS else f"{said[name]:.6g}"
            raise ConfigError(
                f"workload.{name} = {value} stands beside {KEY} = {path!r}, which says {number}: leave one out"
            )
