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


KINDS = {"input_lengths": "prompts", "output_lengths": "outputs"}
"""Fields of workloads that say what lengths are, and whose."""


def kinds(asked: "Requests") -> dict[str, list[list[float]]]:
    """Lengths over their mean with shares and deviations, as `workloads.kinds` has them."""
    from ..model.workloads.kinds import kinds_of

    return {name: [list(row) for row in kinds_of(getattr(asked, whose))] for name, whose in KINDS.items()}


def moments(asked: "Requests") -> dict[str, float]:
    """What workloads that serve read of requests, by the names of their fields; rates where arrivals are known."""
    prompts, outputs = asked.prompts * 1.0, asked.outputs * 1.0
    spread = prompts.std() * outputs.std()
    found = {
        "input_tokens": prompts.mean(), "output_tokens": outputs.mean(), "input_cv": prompts.std() / prompts.mean(),
        "output_cv": outputs.std() / outputs.mean(),
        "correlation": np.clip(np.cov(prompts, outputs, bias=True)[0, 1] / spread, -1, 1) if spread > 0 else 0.0,
    }  # fmt: skip
    if asked.arrivals is not None:
        gaps = np.diff(asked.arrivals)
        found |= {"arrivals_per_s": 1 / gaps.mean(), "arrival_cv": gaps.std() / gaps.mean()}
    return {name: float(value) for name, value in found.items()}


def with_trace(resolved: dict[str, Any], overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The same configuration with the numbers of its trace, if it names one.

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
        said = _said(path, kept)
        _refuse_twice(path, said, overrides)
        origin = {"source": f"trace {path}", "kind": "derived", "note": "moment of its requests"}
        before: dict[str, Any] = kept.get("provenance") or {}
        origins = before | dict.fromkeys(said, origin)
        kept |= said | {"provenance": origins}
    return {**resolved, "workload": kept}


def _said(path: Any, work: Mapping[str, Any]) -> dict[str, Any]:
    """What the trace says of the fields that a workload has."""
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
    return {name: value for name, value in (moments(asked) | kinds(asked)).items() if name in known}


def _refuse_twice(path: str, said: Mapping[str, Any], overrides: Sequence[str]) -> None:
    for text in overrides:
        key, _, value = text.lstrip("+~").partition("=")
        name = expand(key).removeprefix("workload.")
        if expand(key).startswith("workload.") and name in said:
            number = "them as well" if name in KINDS else f"{said[name]:.6g}"
            raise ConfigError(
                f"workload.{name} = {value} stands beside {KEY} = {path!r}, which says {number}: leave one out"
            )
