"""Objects of a composed configuration: plain mappings in SI units, a scenario and a problem built of them."""

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..core.errors import ConfigError, suggestion
from ..core.fields import flattened, replace
from ..core.json_yaml import is_list, is_mapping
from ..core.units import unit_of
from ..core.untrusted_io import read_text
from ..model.hardware import Accelerator
from ..model.scenario import Cluster, Scenario
from ..model.workloads import AbstractPlan, AbstractServing, AbstractWorkload, Precision, Transformer
from ..report.labels import metric
from ..search import Problem
from .checks import check_encoder, check_formats, check_objective, check_reach, check_variables
from .consistency import check_experts, check_images, check_levels
from .construct import Construction
from .groups import available, expand, groups
from .traced_requests import with_prefixes, with_trace
from .written import in_unit

__all__ = [
    "OVERRIDE", "SCENARIO", "choice", "complete", "format_lines", "overridden", "plain", "problem_of",
    "published", "scenario_of",
]  # fmt: skip


# `workload.expert_load`: uneven load of a mixture's experts, by a power law or from a file of counts.
#
# exponent           of a power law of loads; 0 uniform
# path               CSV of measured counts: columns layer, expert, tokens, a row an expert of a layer
# capacity_factor    tokens that an expert takes at most, over the mean; those beyond are dropped
# padded             true: every expert works on its capacity


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
    said, fields = work["expert_load"], {key: value for key, value in work.items() if key != "expert_load"}
    if said is None:
        return {**resolved, "workload": fields}
    if not is_mapping(said):
        raise ConfigError(f"{KEY} = {said!r} must be a mapping with {', '.join(KEYS)}")
    for key in said:
        if key not in KEYS:
            raise ConfigError(f"{KEY}.{key} does not exist{suggestion(str(key), KEYS)}")
    model: Any = fields.get("model")
    if not is_mapping(model):
        raise ConfigError(f"{KEY}: this workload has no model with experts")
    changed, experts = _placed(model.get("feed_forward"), _numbers(said))
    if not experts:
        raise ConfigError(f"{KEY}: {model.get('name', 'this model')} has no experts")
    return {**resolved, "workload": {**fields, "model": {**model, "feed_forward": changed}}}


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
        load_fields = {key: value for key, value in load.items() if key != "path"} | {"experts": experts}
        if load["path"] is not None:
            load_fields["loads"] = _measured(load["path"], experts)
        return {**network, "load": load_fields}, experts
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


# Conversion of values with units in a configuration: keys that may have one, and the unit of each.


LEFT = ("provenance", "_target_", "name")
SECONDS = ("seconds",)
"""Settings of a search that are a time and do not say so by their ending."""


def in_si(node: Any, path: str = "", units: dict[str, str] | None = None) -> Any:
    """Convert a configuration to plain numbers: each that was written with a unit, in its leaf's.

    Args:
        node: of the configuration.
        path: where it stands.
        units: hardware variable -> unit, once they are known.

    Raises:
        ConfigError: a unit that its place does not have.
    """
    units = _units(node) if units is None else units
    if is_mapping(node):
        return {
            key: value if key in LEFT else in_si(value, f"{path}.{key}" if path else str(key), units)
            for key, value in node.items()
        }
    if is_list(node):
        return [in_si(value, path, units) for value in node]
    if not isinstance(node, str):
        return node
    unit = _unit(path, units)
    if not unit and not node.rstrip().endswith("%"):
        return node
    if unit == "count" and "/" in node:  # tokens/s, which pages show as a count
        unit = unit_of(path.rpartition(".")[2])
    result = in_unit(node, unit, path)
    return node if result is None else result


def _units(resolved: Any) -> dict[str, str]:
    """Hardware variable -> unit of the leaf that it moves; none of a ratio."""
    space: Any = resolved.get("space") if is_mapping(resolved) else None
    variables = space.get("hardware") if is_mapping(space) else None
    entries = variables.items() if is_mapping(variables) else ()
    return {name: unit_of(str(one["path"])) for name, one in entries if is_mapping(one) and "path" in one}


def _unit(path: str, units: dict[str, str]) -> str:
    first, *rest = path.split(".")
    if first == "objective" and len(rest) > 1 and rest[0] in ("limits", "floors"):
        return metric(".".join(rest[1:])).unit
    if first == "space":
        return units.get(rest[1], "") if len(rest) == 3 and rest[0] == "hardware" and rest[2] in ("low", "high") else ""
    if first == "search":
        if rest[-1] in SECONDS:
            return "s"
        return units.get(rest[1], "") if len(rest) == 2 and rest[0] in ("allowed_values", "step") else ""
    return unit_of(path) if first in ("cluster", "workload", "plan") else ""


# Number formats of weights by class: those of a checkpoint taken, arithmetic that the devices lack widened.


BLOCK_SCALED = ("blackwell",)
"""Generations whose engines multiply mxfp4 experts by mxfp8 activations; others expand them [trtllm_gpt_oss]."""

UNTOUCHED = {"weights": "bf16", "compute": "bf16"}
"""Precision where nobody chose one: a checkpoint's formats then take its place."""


def with_weight_formats(scenario: Scenario) -> Scenario:
    """The scenario with the formats of its checkpoint, where its precision asks for them, and arithmetic that is there.

    Raises:
        ConfigError: formats by class of a model that has no such classes.
    """
    precision = getattr(scenario.workload, "precision", None)
    if not isinstance(precision, Precision) or (precision.by_class is None and not precision.checkpoint):
        return scenario
    if precision.by_class is None and not isinstance(scenario.workload, AbstractServing):
        return scenario  # what is trained is not what was published
    model = getattr(scenario.workload, "model", None)
    if precision.by_class is not None and not isinstance(model, Transformer):
        raise ConfigError(
            f"workload.precision.by_class: {type(model).__name__} has no classes of weights; take weights and compute"
        )
    chosen = published(precision, model, _devices(scenario))
    return scenario if chosen == precision else replace(scenario, {"workload.precision": chosen})


def published(precision: Precision, model: object, devices: Sequence[Accelerator]) -> Precision:
    """The precision with the formats of its model's checkpoint, where it asks for them, as these devices multiply."""
    chosen = _of_checkpoint(precision, model)
    if chosen is not precision and all(a.generation in BLOCK_SCALED for a in devices):
        chosen = _block_scaled(chosen)
    if chosen.by_class is None:
        return chosen
    absent = tuple(one for one in chosen.by_class.products() if not all(_has(a, one) for a in devices))
    return dataclasses.replace(chosen, lacking=absent)


def _of_checkpoint(precision: Precision, model: object) -> Precision:
    """Formats that the model was published in, unless others were chosen."""
    formats = getattr(model, "formats", None)
    untouched = all(getattr(precision, name) == value for name, value in UNTOUCHED.items())
    if not precision.checkpoint or precision.by_class is not None or formats is None or not untouched:
        return precision
    cache = {"kv_cache": formats.kv_cache} if formats.kv_cache and precision.kv_cache == "bf16" else {}
    return dataclasses.replace(precision, by_class=formats, **cache)


def _block_scaled(precision: Precision) -> Precision:
    """Precision whose experts in mxfp4 meet activations of 8 bits."""
    formats = precision.by_class
    if formats is None or formats.experts != "mxfp4":
        return precision
    return dataclasses.replace(precision, by_class=dataclasses.replace(formats, experts="mxfp4_w4a8"))


def _devices(scenario: Scenario) -> list[Accelerator]:
    cluster = scenario.cluster
    others = [pool.cluster.accelerator for pool in (cluster.prefill, cluster.later_stages, cluster.ffn) if pool]
    return [cluster.accelerator, *others]


def _has(accelerator: Accelerator, number_format: str) -> bool:
    return number_format in accelerator.peak_flops_per_s


def format_lines(scenario: Scenario) -> list[str]:
    """Lines on formats by class: which they are, those that the devices lack, those that were not measured."""
    precision = getattr(scenario.workload, "precision", None)
    formats = getattr(precision, "by_class", None)
    model = getattr(scenario.workload, "model", None)
    if precision is None or formats is None or not isinstance(model, Transformer):
        return []
    classes = {kind for kind, count in model.weights_by_class().items() if kind and float(count) > 0}
    lines = [f"weights: {formats.told(classes)}; KV cache {precision.kv_cache}"]
    for accelerator in _devices(scenario):
        name, wide = accelerator.name, precision.compute
        lines += [f"{name} has no {one}: products in it run in {wide}" for one in precision.lacking]
        for one in formats.products():
            kernels = accelerator.kernels.get("moe_gemm" if "experts" in classes else "gemm") or {}
            if one not in precision.lacking and kernels and one not in kernels and "any" not in kernels:
                lines.append(f"{name}: products in {one} were not measured; kernels of the nearest format stand in")
    return list(dict.fromkeys(lines))


SCENARIO = ("cluster", "workload", "plan")
MAX_SCENARIOS = 8  # scenarios
OVERRIDE = "override"  # the source of a number that was set by hand
_scenarios: OrderedDict[Any, Scenario] = OrderedDict()


def complete(resolved: dict[str, Any]) -> dict[str, Any]:
    """Hardware variables written without a class: a ratio where they name a numerator, else a number.

    Raises:
        ConfigError: one that has no leaf, as where an override misspells the name of another.
    """
    given = resolved["space"].get("hardware")
    variables = given if is_mapping(given) else {}
    for name, variable in variables.items():
        if is_mapping(variable) and not variable.get("_target_"):
            if not {"path", "numerator"} & set(variable):
                others = [one for one in variables if one != name]
                hint = suggestion(str(name), others)
                raise ConfigError(f"space.hardware.{name}: no such variable here{hint}; one of your own needs a path")
            variable["_target_"] = f"codesign.study.design_space.{'Ratio' if 'numerator' in variable else 'Continuous'}"
    return resolved


def plain(config: DictConfig, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """A configuration as plain mappings in SI units, interpolations resolved, Hydra's own settings left out.

    Args:
        config: as it was composed.
        overrides: of these.

    Raises:
        ConfigError: an interpolation that leads nowhere, a unit that its place does not have, a trace that is none.
    """
    try:
        resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    except OmegaConfBaseException as error:
        raise ConfigError("; ".join(str(error).splitlines()[:1])) from error
    assert is_mapping(resolved)
    given = with_trace(in_si({str(key): value for key, value in resolved.items() if key != "hydra"}), overrides)
    return with_expert_load(with_prefixes(given))


def scenario_of(built: Construction) -> Scenario:
    """Build the scenario: what runs, on what, laid out how; parts of the right kinds.

    Raises:
        ConfigError: a part of another kind, a format or a reach that the hardware does not have.
    """
    for key, kind in {"cluster": Cluster, "workload": AbstractWorkload, "plan": AbstractPlan}.items():
        if not isinstance(built.objects[key], kind):
            raise ConfigError(f"{key} must be a {kind.__name__}, not {type(built.objects[key]).__name__}{choice(key)}")
    workload, plan = built.objects["workload"], built.objects["plan"]
    if not isinstance(plan, workload.plan_class):
        wanted = f"{type(workload).__name__} is laid out by a {workload.plan_class.__name__.removeprefix('Abstract')}"
        raise ConfigError(f"plan = {type(plan).__name__}: {wanted}; choose a plan of its own with plan=")
    scenario = with_weight_formats(Scenario(**{key: built.objects[key] for key in SCENARIO}))
    check_formats(scenario)
    check_encoder(scenario)
    check_reach(scenario)
    check_levels(scenario.cluster)
    check_experts(scenario)
    check_images(scenario)
    return scenario


def choice(key: str) -> str:
    """Hint at what to type for a part, where a group of its name has files of it."""
    return f"; choose one with {key}=NAME{suggestion('', available(key))}" if key in groups() else ""


def problem_of(built: Construction) -> Problem:
    """Build the problem that is searched, its variables checked."""
    scenario = _shared(scenario_of(built))
    space = built.objects["space"].settled(scenario)
    check_variables(space, scenario)
    check_objective(built.objects["objective"], scenario)
    return Problem(scenario, space, built.objects["objective"])


def _shared(scenario: Scenario) -> Scenario:
    """Return one object for equal scenarios, such as jobs that differ in a limit: tables are kept of objects."""
    leaves, structure = flattened(scenario)
    arrays = [np.asarray(leaf) for leaf in leaves]
    numbers = tuple((array.dtype.str, array.shape, array.tobytes()) for array in arrays)
    key = (structure, numbers, tuple((type(leaf).__name__, getattr(leaf, "weak_type", None)) for leaf in leaves))
    result = _scenarios.setdefault(key, scenario)
    _scenarios.move_to_end(key)
    if len(_scenarios) > MAX_SCENARIOS:
        _scenarios.popitem(last=False)
    return result


def overridden(overrides: tuple[str, ...] | list[str]) -> dict[str, dict[str, Any]]:
    """An origin for every number changed by hand, so that reports do not credit it to a datasheet."""
    entries: dict[str, dict[str, Any]] = {}
    for text in overrides:
        key, _, value = text.lstrip("+~").partition("=")
        path = expand(key)
        if path.split(".")[0] in SCENARIO and "." in path:
            entries[path] = {"source": OVERRIDE, "kind": "assumed", "note": f"set to {value} by hand"}
    return entries
