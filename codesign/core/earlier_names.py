"""Names of release 0.1: how run folders, files and command lines written with them are read.

A run folder carries the number of its schema in `versions.json`; one without a number is of schema 1 (release 0.1).
Every table here goes with release 0.3.
"""

import functools
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import ConfigError
from .json_yaml import is_list, is_mapping

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CLAIM_COLUMNS", "GROUPS", "SCHEMA", "current_command", "current_frame", "current_group", "current_key",
    "current_metrics", "current_name", "current_override", "current_path", "current_target", "current_text",
    "mentions", "migrated", "migrated_config", "say_once", "schema_of",
]  # fmt: skip

SCHEMA = 2
"""Schema of the run folders that this release writes."""

MOVED = {
    "codesign.hardware.": "codesign.model.hardware.",
    "codesign.slices.": "codesign.model.slices.",
    "codesign.quality.": "codesign.model.scaling_laws.",
    "codesign.reliability.": "codesign.model.reliability.",
    "codesign.carbon.": "codesign.model.carbon.",
    "codesign.topology.": "codesign.model.networks.topology.",
    "codesign.fabrics.": "codesign.model.networks.fabrics.",
    "codesign.collectives.": "codesign.model.networks.collectives.",
    "codesign.workloads.Agreement": "codesign.model.workloads.SLO",
    "codesign.workloads.": "codesign.model.workloads.",
    "codesign.ownership.Bought": "codesign.model.ownership.OnPremises",
    "codesign.ownership.Rented": "codesign.model.ownership.Cloud",
    "codesign.ownership.": "codesign.model.ownership.",
    "codesign.scenario.": "codesign.model.scenario.",
    "codesign.space.": "codesign.study.design_space.",
    "codesign.objective.": "codesign.study.objective.",
    "codesign.distributing.Alone": "codesign.executors.Serial",
    "codesign.distributing.": "codesign.executors.",
    "codesign.search.Optimiser": "codesign.search.Optimizer",
    "codesign.search.Whole": "codesign.search.Integer",
}
"""Beginning of a `_target_` in release 0.1 -> in this one; the first that fits counts."""

RENAMED = {"codesign.workloads.Serving": "codesign.model.workloads.StaticBatch"}
"""Full `_target_` in release 0.1 -> in this one."""

COMMANDS = {"new": "scaffold", "check": "check-plugin", "day": "autoscale", "query": "sql"}

GROUPS = {"paths": "path_energy", "residual": "kernel_correction", "quality": "scaling_law", "mode": "hardware"}
"""Config group -> its name now."""

OPTIONS = {
    ("runner", "alone"): "serial", ("ownership", "bought"): "on_premises", ("ownership", "rented"): "cloud",
    ("model", "hub"): "hf_config", ("search", "whole"): "integer", ("hardware", "buy"): "catalogue",
    ("hardware", "design"): "free",
}  # fmt: skip
"""(group as it is called now, option) -> the option's name now."""

PLAN = {
    "reduce_often": "reduce_grads_every_microbatch", "regather": "sequence_parallel_regather",
    "scatter_sends": "scatter_gather_p2p", "shard_checkpoints": "partition_activations", "chunk": "token_budget",
    "prefill_chunk": "prefill_token_budget", "prefill_load": "prefill_max_utilisation",
}  # fmt: skip
"""Field of a plan -> its name now."""

METRICS = {
    "mixed_ratio": "hybrid_step_share", "prompt_load": "prefill_utilisation", "batch_used": "slot_utilisation",
    "place_wait_ratio": "queued_share", "place_wait_s": "queue_wait_s", "link_busy": "transfer_utilisation",
    "prefill_busy": "prefill_pool_utilisation", "decode_busy": "decode_pool_utilisation",
    "agreement_prompts": "slo_prefill_utilisation", "agreement_decodes": "slo_slot_utilisation",
    "agreement_ttft_s": "slo_ttft_ratio", "agreement_tpot_s": "slo_tpot_ratio",
    "unsustained_ratio": "overload_probability",
}  # fmt: skip
"""Metric -> its name now."""

WORKLOADS = {
    "agreement": "slo", "gap_cv": "arrival_cv", "choice_s": "sampling_s",
    "staged_collectives": "copy_before_collective",
    "kept_ratio": "retained_share", "asynchronous": "async_scheduling", "prompt_kinds": "input_lengths",
    "answer_kinds": "output_lengths", "quality": "scaling_law",
}  # fmt: skip
SEARCHES = {"keep": "top_k", "block": "batch_size", "pairs": "convexity_samples"}
KEYS: dict[str, dict[str, str]] = {
    "model.workloads.Plan": PLAN,
    "model.workloads.ShapedPlan": PLAN,
    "model.workloads.SLO": {"share": "attainment"},
    "model.workloads.": WORKLOADS,
    "model.scenario.Facility": {"busy_ratio": "utilisation"},
    "model.scenario.Cluster": {"paths": "path_energy"},
    "model.ownership.OnPremises": {"upkeep_ratio": "maintenance_ratio"},
    "model.hardware.Accelerator": {"residual": "kernel_correction"},
    "model.networks.fabrics.Contended": {"one_queue_ratio": "head_of_line_share"},
    "study.design_space.": {"along": "tied"},
    "search.Uncertain": {"along": "tied"},
    "search.Certified": SEARCHES | {"batch": "plans_per_round"},
    "search.Pareto": {"block": "batch_size", "pairs": "convexity_samples", "batch": "plans_per_round"},
    "search.Inverse": {"most": "maximise"},
    "search.Integer": {"units": "step", "values": "allowed_values"},
    "search.Mix": {"block": "batch_size", "pairs": "convexity_samples", "how": "aggregate"},
    "search.Robust": {"how": "aggregate"},
    "search.Blackbox": {"keep": "top_k", "peer": "optimizer", "also": "objectives"},
    "search.CmaEs": {"most": "max_population"},
    "search.": SEARCHES | {"optimiser": "optimizer"},
}
"""Beginning of a class's name after `codesign.` -> argument and its name now; the first that fits counts."""

GONE = {"model.networks.fabrics.PathEnergy": {"counting": "physical"}}
"""Class -> argument that it has no more and the one value of it that means what this release does without asking."""

PARTS = {"quality": "scaling_law", "handover": "kv_transfer", "binds": "active_constraints", "whole": "integer"}
"""Part of a group of metrics (`usage.quality.parameters`, `capex.handover`), or a column, -> its name now."""
CLAIM_COLUMNS = {"bar": "tolerance", "standing": "provenance", "kind": "evidence"}
"""Column of claims of `codesign reproduce` -> its name now; JSON has both."""
CLAIMS = {
    "best found, no proof": "heuristic solution, no certificate",
    "best found, nothing": "heuristic solution, nothing",
}
"""Beginning of a claim -> how it begins now."""

LEAVES = {
    **WORKLOADS, "busy_ratio": "utilisation", "paths": "path_energy", "upkeep_ratio": "maintenance_ratio",
    "residual": "kernel_correction", "one_queue_ratio": "head_of_line_share",
}  # fmt: skip
"""Name of a leaf, or of a node above it, -> its name now."""

_NAMES = METRICS | PLAN | PARTS
_METRIC = re.compile(rf"\b({'|'.join(METRICS)})(?=\b|_low\b|_high\b)")
_KEYS = {*METRICS, *PLAN, *LEAVES, *(key for keys in (*KEYS.values(), *GONE.values()) for key in keys)}
_MENTIONED = re.compile(rf"\b({'|'.join(_KEYS)})\b|codesign\.\w+\.")
_ENDS = re.compile(r"(.*?)(_low|_high|)")
_IN_DEFAULTS = re.compile(r"^(\s*-\s+(?:override\s+)?/?)(\w+)((?:@[\w.]+)?\s*:\s*)(\w*)", re.MULTILINE)
_HEADER = re.compile(r"\A((?:\s*\n)*#\s*@package\s+\S*?)\b(paths|residual|quality)\b")


@functools.cache
def say_once(old: str, new: str) -> None:
    """One line on a name of an earlier release, once a process."""
    print(f"codesign: {old} is {new} since release 0.2; the old name goes with release 0.3", file=sys.stderr)


def current_command(word: str) -> str:
    """A command by the name of this release."""
    if word in COMMANDS:
        say_once(f"codesign {word}", f"codesign {COMMANDS[word]}")
    return COMMANDS.get(word, word)


def current_target(target: str, *, warn: bool = True) -> str:
    """A `_target_` by the name of this release; an earlier one prints one line of warning, once a process."""
    if target in RENAMED:
        if warn:
            say_once(f"_target_ {target}", RENAMED[target])
        return RENAMED[target]
    for old, new in MOVED.items():
        if target.startswith(old):
            if warn:
                rest = "*" if old.endswith(".") else ""
                say_once(f"_target_ {old}{rest}", f"{new}{rest}")
            return new + target.removeprefix(old)
    return target


def current_group(group: str, option: str, *, warn: bool = True) -> tuple[str, str]:
    """A group and one of its options by the names of this release."""
    new = GROUPS.get(group, group)
    chosen = OPTIONS.get((new, option), option)
    if warn and (new, chosen) != (group, option):
        say_once(f"{group}={option}", f"{new}={chosen}")
    return new, chosen


def keys_of(target: object) -> Mapping[str, str]:
    """Earlier names of arguments of a class, which is named as in this release."""
    name = str(target).removeprefix("codesign.")
    return next((keys for start, keys in KEYS.items() if name.startswith(start)), dict[str, str]())


def current_key(key: str, target: object, path: str, *, warn: bool = True) -> str:
    """A key where a class stands, by the name of this release.

    Args:
        key: as it is written.
        target: name of the class, as in this release.
        path: of the mapping, which says where fields of plans are listed without a class.
        warn: print a line.
    """
    keys = (
        PLAN
        if path == "space.plan"
        else METRICS
        if path in ("objective.limits", "objective.floors")
        else keys_of(target)
    )
    new = keys.get(key, key)
    if warn and new != key:
        say_once(f"{path}.{key}" if path else key, f"{path}.{new}" if path else new)
    return new


def current_metrics(text: str, *, warn: bool = True) -> str:
    """A metric, or an expression over metrics, by the names of this release."""
    new = _METRIC.sub(lambda match: METRICS[match[1]], text)
    if warn and new != text:
        say_once(f"metric {text}", new)
    return new


def current_name(name: str) -> str:
    """A column: `var.chunk`, `mixed_ratio_low`, `usage.quality.parameters`."""
    return ".".join(_current(part) for part in name.split("."))


def current_path(path: str) -> str:
    """A path to a leaf: `cluster.facility.busy_ratio`, `plan.chunk`."""
    first, *rest = path.split(".")
    keys = PLAN if first == "plan" else LEAVES
    return ".".join([first, *(keys.get(part, part) for part in rest)])


def _current(part: str) -> str:
    result = _ENDS.fullmatch(part)
    assert result is not None
    return _NAMES.get(result[1], result[1]) + result[2]


def current_frame(frame: "pd.DataFrame", schema: int) -> "pd.DataFrame":
    """A table of a run folder of this schema, by the names of this release."""
    if schema >= SCHEMA:
        return frame
    result = frame.rename(columns=lambda name: current_name(str(name)))
    for column, renamed in (("path", current_path), ("method", current_name)):
        if column in result:
            result[column] = [renamed(entry) if isinstance(entry, str) else entry for entry in result[column]]
    return result


def current_text(text: str) -> str:
    """A YAML file of a user's own: its groups and options by the names of this release (keys: see `migrated`)."""

    def replaced(match: re.Match[str]) -> str:
        group, option = current_group(match[2], match[4])
        return f"{match[1]}{group}{match[3]}{option}"

    header = _HEADER.sub(lambda header_match: header_match[1] + GROUPS[header_match[2]], text)
    return _IN_DEFAULTS.sub(replaced, header)


def current_override(text: str) -> str:
    """`quality=hoffmann` and `residual.folder=x` by the names of groups and options of this release."""
    key, equals, value = text.partition("=")
    bare = key.lstrip("+~")
    group, dot, rest = bare.partition(".")
    if dot or not equals:
        new, chosen = GROUPS.get(group, group), value
    else:
        new = GROUPS.get(group, group)
        chosen = re.sub(r"\w+", lambda word: OPTIONS.get((new, word[0]), word[0]), value)
    if (new, chosen) == (group, value):
        return text
    say_once(f"{group}{dot}{rest}{equals}{value}", f"{new}{dot}{rest}{equals}{chosen}")
    return f"{key[: len(key) - len(bare)]}{new}{dot}{rest}{equals}{chosen}"


def mentions(text: str) -> bool:
    """Return whether a text contains a name of release 0.1."""
    return _MENTIONED.search(text) is not None


def schema_of(versions: dict[str, Any], path: str) -> int:
    """Schema of a run folder, of its `versions.json`.

    Raises:
        ConfigError: it is of a later release, or no number.
    """
    schema = versions.get("schema", 1)
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise ConfigError(f"{path}: versions.json says schema = {schema!r}; allowed: a whole number from 1 to {SCHEMA}")
    if schema > SCHEMA:
        raise ConfigError(f"{path} has schema {schema}; this release reads up to {SCHEMA}")
    return schema


def migrated(tree: Any, schema: int) -> Any:
    """Names of metrics and columns in a summary or a certificate of this schema, as keys and as texts."""
    if schema >= SCHEMA:
        return tree
    if is_mapping(tree):
        return {current_name(str(key)): migrated(value, schema) for key, value in tree.items()}
    if is_list(tree):
        return [migrated(value, schema) for value in tree]
    if not isinstance(tree, str):
        return tree
    begun = next((old for old in CLAIMS if tree.startswith(old)), "")
    return current_metrics(CLAIMS.get(begun, begun) + tree.removeprefix(begun), warn=False)


def migrated_config(tree: Any, schema: int, path: str = "", *, warn: bool = False) -> Any:
    """A configuration, as of a run folder of this schema, by the names of this release.

    Raises:
        ConfigError: what it asks for is gone.
    """
    if schema >= SCHEMA:
        return tree
    if is_list(tree):
        return [migrated_config(value, schema, path, warn=warn) for value in tree]
    if not is_mapping(tree):
        return current_metrics(tree, warn=warn) if isinstance(tree, str) and path.startswith("objective.") else tree
    named: Any = tree.get("_target_")
    target = current_target(named, warn=warn) if isinstance(named, str) else ""
    renamed: dict[str, Any] = {}
    gone = GONE.get(target.removeprefix("codesign."), {})
    for key, value in tree.items():  # what is merged over a file stands behind what it has
        if key in gone:
            if value != gone[key]:
                raise ConfigError(f"{path}.{key} = {value!r} is gone since release 0.2: all is {gone[key]} now")
            continue
        new = current_key(str(key), target, path, warn=warn)
        renamed[new] = _merged(renamed.get(new), value)
    result: dict[str, Any] = {}
    for key, value in renamed.items():
        if key == "provenance" and is_mapping(value):
            result[key] = {current_key(str(name), target, path, warn=False): entry for name, entry in value.items()}
        elif key == "_target_":
            result[key] = target or value
        else:
            result[key] = migrated_config(value, schema, f"{path}.{key}" if path else key, warn=warn)
    return result


def _merged(below: Any, above: Any) -> Any:
    if not (is_mapping(below) and is_mapping(above)):
        return above
    return {**below, **{key: _merged(below.get(key), value) for key, value in above.items()}}
