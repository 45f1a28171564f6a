"""`workload.expert_load`: uneven load of a mixture's experts, by a power law or from a file of counts.

exponent           of a power law of loads; 0 uniform
path               CSV of measured counts: columns layer, expert, tokens, a row an expert of a layer
capacity_factor    tokens that an expert takes at most, over the mean; those beyond are dropped
padded             true: every expert works on its capacity
"""

import dataclasses
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, suggestion
from ..core.untrusted_io import read_text
from ..core.yaml_io import is_mapping

__all__ = ["with_expert_load"]

KEY = "workload.expert_load"
KEYS = ("exponent", "path", "capacity_factor", "padded")
COLUMNS = ["layer", "expert", "tokens"]
TARGET = "codesign.model.workloads.ExpertLoad"
MOST_ROWS = 500_000


def with_expert_load(resolved: dict[str, Any]) -> dict[str, Any]:
    """Copy of a configuration whose experts carry the load that `workload.expert_load` says, if it says one.

    Raises:
        ConfigError: keys that are none, a model without experts, a file that is no table of their counts.
    """
    work: Any = resolved.get("workload")
    if not is_mapping(work) or "expert_load" not in work:
        return resolved
    said, kept = work["expert_load"], {key: value for key, value in work.items() if key != "expert_load"}
    if said is None:
        return {**resolved, "workload": kept}
    if not is_mapping(said):
        raise ConfigError(f"{KEY} = {said!r} must be a mapping with {', '.join(KEYS)}")
    for key in said:
        if key not in KEYS:
            raise ConfigError(f"{KEY}.{key} does not exist{suggestion(str(key), KEYS)}")
    model: Any = kept.get("model")
    if not is_mapping(model):
        raise ConfigError(f"{KEY}: this workload has no model with experts")
    changed, experts = _placed(model.get("feed_forward"), _numbers(said))
    if not experts:
        raise ConfigError(f"{KEY}: {model.get('name', 'this model')} has no experts")
    return {**resolved, "workload": {**kept, "model": {**model, "feed_forward": changed}}}


def _numbers(said: Any) -> dict[str, Any]:
    """Fields of the load beside its counts.

    Raises:
        ConfigError: two loads, or a value of another kind.
    """
    if said.get("path") is not None and said.get("exponent"):
        raise ConfigError(f"{KEY}: path and exponent say two loads; keep one")
    result: dict[str, Any] = {"_target_": TARGET}
    for key in ("exponent", "capacity_factor"):
        value = said.get(key, 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{KEY}.{key} = {value!r} is not a plain number")
        result[key] = float(value)
    padded = said.get("padded", False)
    if padded not in (True, False):
        raise ConfigError(f"{KEY}.padded = {padded!r} is neither true nor false")
    return result | {"padded": bool(padded), "path": said.get("path")}


def _placed(network: Any, load: dict[str, Any]) -> tuple[Any, int]:
    """(a feed-forward network, or one of several kinds, with the load where it has experts; how many it has)."""
    if not is_mapping(network):
        return network, 0
    if "experts" in network:
        experts = int(network["experts"])
        own = {key: value for key, value in load.items() if key != "path"} | {"experts": experts}
        if load["path"] is not None:
            own["loads"] = _measured(load["path"], experts)
        return {**network, "load": own}, experts
    kinds, most, said = dict[str, Any](), 0, network.get("kinds")
    for name, kind in said.items() if is_mapping(said) else ():
        kinds[name], experts = _placed(kind, load)
        most = max(most, experts)
    return ({**network, "kinds": kinds} if kinds else network), most


def _measured(path: Any, experts: int) -> list[list[float]]:
    """Shares of each layer's experts.

    Raises:
        ConfigError: no such table, a layer that lacks an expert or has no tokens.
    """
    if not isinstance(path, str):
        raise ConfigError(f"{KEY}.path = {path!r} is no path of a CSV file")
    lines = read_text(Path(path), f"{KEY}.path = {path!r}").splitlines()
    if not lines or [name.strip() for name in lines[0].split(",")] != COLUMNS:
        raise ConfigError(f"{KEY}.path = {path!r}: the first line must be {','.join(COLUMNS)}")
    if len(lines) > MOST_ROWS:
        raise ConfigError(f"{KEY}.path = {path!r}: {len(lines):,} rows are more than {MOST_ROWS:,}")
    counts: dict[int, dict[int, float]] = {}
    for number, line in enumerate(lines[1:], start=2):
        row = _row(line)
        if row is None or row.expert >= experts or row.expert in counts.get(row.layer, {}):
            raise ConfigError(
                f"{KEY}.path = {path!r}, line {number}: {line[:60]!r} is no layer, expert of 0 to {experts - 1} named"
                " once, and count of tokens"
            )
        counts.setdefault(row.layer, {})[row.expert] = row.tokens
    for layer, each in counts.items():
        if len(each) != experts or not sum(each.values()) > 0:
            raise ConfigError(
                f"{KEY}.path = {path!r}: layer {layer} has {len(each)} experts and {sum(each.values()):g} tokens, not"
                f" {experts} experts with tokens"
            )
    if not counts:
        raise ConfigError(f"{KEY}.path = {path!r} has no rows")
    return [[each[index] / sum(each.values()) for index in range(experts)] for each in counts.values()]


@dataclasses.dataclass(frozen=True)
class _Count:
    layer: int
    expert: int
    tokens: float


def _row(line: str) -> _Count | None:
    """One row of the table; None where it is none."""
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 16 for part in parts):
        return None
    return _Count(int(parts[0]), int(parts[1]), float(parts[2]))
