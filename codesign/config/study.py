"""From overrides to a study: the objects a run needs, and where their numbers come from."""

import contextlib
import functools
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from omegaconf import DictConfig

from ..core.errors import ConfigError, suggestion
from ..core.fields import check_ranges, walk, with_numpy
from ..core.json_yaml import is_list, is_mapping
from ..core.pretty import html_table, lines_text, number_text
from ..core.resources import conf_dir
from ..core.short_names import full_names
from ..executors import AbstractRunner
from ..jaxprs.evaluator import traced_alone
from ..model.metrics import evaluate
from ..model.scenario import Cluster, Scenario
from ..search import (
    AbstractSearch,
    Amortised,
    Blackbox,
    Certified,
    Gradient,
    Grid,
    GridThenGradient,
    GridThenProof,
    Mix,
    Problem,
    Report,
    Single,
    Trace,
    silent,
    under_assumption,
)
from ..search.results import Results, check_float64, collect
from ..study.design_space import Continuous, DesignSpace
from ..study.objective import Objective
from .checks import check_objective, refuse_overruled, refuse_overruled_count
from .composition import chosen_options, compose
from .construct import build
from .device_counts import COUNT, counts_of_job, left_open
from .groups import edition
from .parts_built import OVERRIDE, SCENARIO, choice, complete, overridden, plain, problem_of, scenario_of
from .plausibility import UnusualValue, unusual
from .starting import names, started
from .user_files import HEADER, as_folders, entries_of, groups_of_ours, own_files, read, shown, user_folders

__all__ = [
    "Study", "documented_scenario", "hardware_numbers", "scenario_from_config", "study_from_config",
    "study_from_plain", "study_from_resolved",
]  # fmt: skip


# Settings in a user's own files: whose numbers these are, and which file a complaint is about.


IN_SCENARIO = ("cluster.", "workload.", "plan.")


class Setting(NamedTuple):
    """A value that an own file sets: which file, the value, and whether the file says where it comes from."""

    file: str  # from here
    relative_path: str  # below its folder, wherever that lies: runs keep copies
    value: Any
    documented: bool

    @property
    def is_number(self) -> bool:
        """True if it is a number, perhaps with a unit."""
        return isinstance(self.value, int | float) or (isinstance(self.value, str) and self.value[:1] in "$0123456789")


def origins(overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """An origin for every number that an own file sets without one, so that what it inherits from is not credited."""
    return {
        key: {
            "source": one.relative_path,
            "kind": "assumed",
            "note": "own file that does not say where the number comes from",
        }
        for key, one in _chosen(overrides).items()
        if one.is_number and not one.documented and key.startswith(IN_SCENARIO)
    }


@contextlib.contextmanager
def naming_files(overrides: Sequence[str]) -> Generator[None, None, None]:
    """Put before a complaint about a key the own file that sets it."""
    try:
        yield
    except ConfigError as error:
        said = str(error)
        about = [key for key in _chosen(overrides) if said.startswith((f"{key} ", f"{key}.", f"{key}:"))]
        if not about or ".yaml" in said:
            raise
        raise ConfigError(f"{_chosen(overrides)[max(about, key=len)].file}: {said}") from error


def _chosen(overrides: Sequence[str]) -> dict[str, Setting]:
    """Settings of the own files among the options that these overrides choose."""
    if not user_folders():
        return {}
    try:
        return settings(chosen_options(list(overrides)))
    except ConfigError:
        return {}


def settings(options: Mapping[str, str]) -> dict[str, Setting]:
    """Dotted path -> what an own file sets there.

    Args:
        options: group -> option of what was chosen.
    """
    result: dict[str, Setting] = {}
    for group, option in options.items():
        for path in _inherited(group, option):
            text, node = read(path)
            header = HEADER.match(text)
            prefix = (header[1] if header else group).replace("_global_", "")
            documented_keys, values = set[str](), dict[str, Any]()
            _flatten({key: value for key, value in node.items() if key != "defaults"}, prefix, values, documented_keys)
            for key, value in values.items():
                documented = any(key == one or key.startswith(f"{one}.") for one in documented_keys)
                result[key] = Setting(shown(path), f"{group}/{path.name}", value, documented)
    return result


def refuse_overruled_options(overrides: Sequence[str]) -> None:
    """Refuse an own file that is chosen beside an experiment of ours which sets other values over it; of ours, say so.

    Raises:
        ConfigError: the file, the key, both values, and what to type for either.
    """
    typed: dict[str, str] = {}
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        typed[key] = value
    experiment = typed.get("experiment")
    named = {group: option for group, option in typed.items() if group in groups_of_ours() and group != "experiment"}
    if not experiment or not named or _inherited("experiment", experiment):
        return
    theirs = _values("experiment", experiment, [conf_dir()])
    for group, option in named.items():
        from_user = bool(_inherited(group, option))
        values = _values(group, option, user_folders() if from_user else [conf_dir()])
        lost = [key for key, value in values.items() if key in theirs.keys() - typed.keys() and theirs[key] != value]
        if lost and from_user:
            key = lost[0]
            raise ConfigError(
                f"{key}: experiment={experiment} sets {theirs[key]} over the {values[key]} of {group}={option}: type "
                f"{key}={values[key]} or {key}={theirs[key]}"
            )
        if lost:
            overruled = ", ".join(f"{key}={theirs[key]}" for key in lost)
            print(f"codesign: experiment={experiment} sets {overruled} over {group}={option}", file=sys.stderr)


def _values(group: str, option: str, folders: Sequence[Path]) -> dict[str, Any]:
    """Dotted path -> value of an option's file and those of its group that it is made from."""
    result: dict[str, Any] = {}
    for path in _inherited(group, option, folders):
        text, node = read(path)
        header = HEADER.match(text)
        prefix = (header[1] if header else group).replace("_global_", "")
        _flatten({key: value for key, value in node.items() if key != "defaults"}, prefix, result, set())
    return result


def _inherited(group: str, option: str, folders: Sequence[Path] | None = None) -> list[Path]:
    """The own file of an option, or that of other folders, and those of its group that it is made from, these first."""
    paths, wanted = list[Path](), [option]
    while wanted:
        name = wanted.pop().removesuffix(".yaml")
        for folder in user_folders() if folders is None else folders:
            path = folder / group / f"{name}.yaml"
            if path.is_file() and path not in paths:
                paths.append(path)
                wanted += [entry for entry in entries_of(read(path)[1], path) if isinstance(entry, str)]
    return paths[::-1]


def _flatten(node: Any, prefix: str, values: dict[str, Any], documented_keys: set[str]) -> None:
    """Values by dotted path, and the paths of which a block of provenance tells."""
    if not is_mapping(node):
        values[prefix] = node
        return
    for key, value in node.items():
        path = f"{prefix}.{key}" if prefix else str(key)
        if key != "provenance":
            _flatten(value, path, values, documented_keys)
        elif is_mapping(value):
            documented_keys |= {f"{prefix}.{name}" for name in value}


# Catalogue values of a study's hardware: the same choices of groups with no number overridden.


HARDWARE = (
    "accelerator", "calibration", "memory", "die", "stack", "host", "fabric", "collective", "scale_out",
    "kernel_correction",
)  # fmt: skip
ENGINE = ("framework", "workload", "model")  # whose kernels and exchange of tokens stand in place of the catalogue's
PLACES = ("accelerator", "host", "network")


def catalogue_numbers(overrides: Sequence[str], conf: Sequence[Path]) -> Mapping[str, float]:
    """Path -> number of the hardware that the options chosen by these overrides have in the catalogue.

    Args:
        overrides: of a study.
        conf: folders of own files that it was composed with.
    """
    with own_files(*conf):
        options = chosen_options(started(list(overrides)))
        groups = HARDWARE + (ENGINE if options.get("framework", "none") != "none" else ())
        return _catalogue(tuple(f"{group}={options[group]}" for group in groups if options.get(group)), edition())


@functools.lru_cache(maxsize=16)
def _catalogue(chosen: tuple[str, ...], _: Any) -> Mapping[str, float]:
    result = build({"cluster": plain(compose(["experiment=null", *chosen]))["cluster"]})
    return MappingProxyType(hardware_numbers(result.objects["cluster"]))


def hardware_numbers(cluster: Cluster) -> dict[str, float]:
    """Path -> number of each leaf of the accelerators, hosts and networks that is one."""
    result: dict[str, float] = {}
    for path, _, value in walk(with_numpy(cluster), "cluster"):
        if path.split(".")[1] in PLACES and np.ndim(value) == 0:
            result[path] = float(value)
    return result


SETTINGS = {"name", "seed", "provenance", "scale_out_native"}
FOR_THE_BEST = (Amortised, Blackbox, Certified, Gradient, Grid, GridThenGradient, GridThenProof)
"""Searches that ask for nothing but the best design: where there is only one, it is that."""
KINDS = {"space": DesignSpace, "objective": Objective, "search": AbstractSearch, "runner": AbstractRunner}
OPTIONAL_KINDS = {"runner"}


@dataclass(frozen=True)
class Study:
    """Study: all that `codesign optimize` runs.

    provenance: dotted path -> origin of the number there (source, at, kind, note); resolved: the configuration as
    plain mappings, as the run folder keeps it; conf: folders of own files that it was composed with.
    """

    scenario: Scenario
    space: DesignSpace
    objective: Objective
    search: AbstractSearch
    provenance: dict[str, dict[str, Any]]
    resolved: dict[str, Any]
    overrides: tuple[str, ...] = ()
    conf: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        """A name, legal numbers, and variables that keep them so."""
        if not self.name.strip():
            raise ConfigError("name = '' is empty: the run folder is called so")
        check_ranges(self.scenario)
        self.space.check(self.scenario)

    @functools.cached_property
    def unusual(self) -> tuple[UnusualValue, ...]:
        """Numbers and ranges that are legal, but that no product or paper has; each once for all workloads of a mix."""
        problems = self.search.problems.values() if isinstance(self.search, Mix) else [self.problem]
        return tuple(
            {one.text: one for p in problems for one in unusual(p.scenario, p.space, self.provenance)}.values()
        )

    @functools.cached_property
    def catalogue(self) -> Mapping[str, float]:
        """Path -> number that the catalogue has for the hardware; empty where only options of groups were chosen.

        Composed when first asked for: a run asks before it searches, so that nothing is composed after.
        """
        by_hand = any(
            path.startswith("cluster.") and path != "cluster.device_count" and origin.get("source") == OVERRIDE
            for path, origin in self.provenance.items()
        )
        if self.space.hardware or by_hand or names(self.overrides, "experiment"):
            return catalogue_numbers(self.overrides, self.conf)
        return {}

    def __repr__(self) -> str:
        """Return goal, limits, design space and search, a line each."""
        return lines_text(
            f"Study({self.name!r})", [(name, ", ".join(texts)) for name, texts in self._summary().items()]
        )

    def _repr_html_(self) -> str:
        """Return the display as an HTML table."""
        rows = [(name, ", ".join(texts)) for name, texts in self._summary().items()]
        return html_table(f"Study {self.name!r}", rows, note="its parts: scenario, space, objective, search")

    def _summary(self) -> dict[str, list[str]]:
        """Goal, limits, what varies in which range, and the search: of each the texts that say it."""
        goal, space = self.objective, self.space
        bounds = ((goal.limits, "at most"), (goal.floors, "at least"))
        summary = {
            "minimise" if goal.minimise else "maximise": [goal.goal],
            "limits": [f"{name} {how} {number_text(at, name)}" for of, how in bounds for name, at in of.items()],
            "plan": [f"{name} {' '.join(map(str, values))}" for name, values in space.plan.items()],
            "hardware": [
                f"{name} {number_text(one.low, one.path)} to {number_text(one.high, one.path)}"
                if isinstance(one, Continuous)
                else f"{name} {one.low:g} to {one.high:g}"
                for name, one in space.hardware.items()
            ],
            "search": [type(self.search).__name__],
        }
        return {name: texts for name, texts in summary.items() if texts}

    @functools.cached_property
    def problem(self) -> Problem:
        """Problem that the search is given."""
        return Problem(self.scenario, self.space, self.objective)

    def asking(self, **changes: Any) -> "Study":
        """Copy of the study with another objective: arguments of `Objective`, among them `custom` functions of metrics.

        Raises:
            ConfigError: no such argument, no such metric, or a value that the argument cannot have.
        """
        names = [field.name for field in fields(Objective)]
        for key, value in changes.items():
            if key not in names:
                raise ConfigError(
                    f"asking: {key} = {value!r}: an objective has no such argument{suggestion(key, names)}"
                )
            wanted = str if key in ("minimise", "maximise") else dict
            if not isinstance(value, wanted):
                kind = "the name of a metric" if wanted is str else "a mapping of names"
                raise ConfigError(f"asking: {key} = {value!r} must be {kind}, not {type(value).__name__}")
        objective = replace(self.objective, **changes)
        check_objective(objective, self.scenario)

        def check(scenario: Scenario) -> None:
            objective.check(evaluate(scenario))

        traced_alone(check, self.scenario)
        return replace(self, objective=objective)

    def solve(self, report: Report = silent) -> tuple[Results, Trace]:
        """Search and price what was found, as `codesign optimize` does, without a run folder.

        Raises:
            ConfigError: what the search refuses.
            CodesignError: not in float64.
        """
        check_float64()
        self.search.refuse(self.problem)
        trace = under_assumption(self.problem, self.search.run(self.problem, self.seed, report))
        return collect(self.problem, trace, self.seed, self.provenance), trace

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return str(self.resolved.get("name", "study"))

    @property
    def seed(self) -> int:
        """Seed of every random number."""
        return int(self.resolved.get("seed", 0))


Folders = Path | str | Sequence[Path | str] | None
"""One folder of own files beside ours, or several: `--conf` of the command line."""


def scenario_from_config(*overrides: str, conf: Folders = None) -> Scenario:
    """The scenario that these overrides name, such as `accelerator=b200`; the default experiment's without any.

    Args:
        overrides: as on the command line.
        conf: folder of own files, as `--conf` there.

    Raises:
        ConfigError: anything wrong in the configuration.
    """
    return documented_scenario(*overrides, conf=conf)[0]


def documented_scenario(*overrides: str, conf: Folders = None) -> tuple[Scenario, dict[str, dict[str, Any]]]:
    """Scenario that these overrides name, with the origin of its numbers.

    Raises:
        ConfigError: anything wrong in the configuration.
    """
    overrides = tuple(full_names(overrides))
    with own_files(*as_folders(conf)):
        composed = compose(_texts(overrides))
        refuse_overruled_options(overrides)
        with naming_files(overrides):
            resolved = plain(composed, overrides)
            _refuse_absent(resolved, SCENARIO)
            _check_settings(resolved)
            built = build({key: resolved[key] for key in SCENARIO})
            scenario = scenario_of(built)
            _refuse_unread(resolved)
            refuse_overruled_count(scenario, overrides)
        return scenario, built.provenance | origins(overrides) | overridden(overrides)


def study_from_config(*overrides: str, conf: Folders = None) -> Study:
    """The study that these overrides name, such as `experiment=serve_llama31_405b`; the default without any.

    Args:
        overrides: as on the command line.
        conf: folder of own files, as `--conf` there.

    Raises:
        ConfigError: anything wrong in the configuration.
    """
    overrides = tuple(full_names(overrides))
    with own_files(*as_folders(conf)):
        study = study_from_resolved(compose(_texts(overrides)), overrides)
    refuse_overruled(study.space, overrides)
    refuse_overruled_count(study.scenario, overrides)
    return study


def _texts(overrides: Sequence[Any]) -> list[str]:
    """Overrides as a list.

    Raises:
        ConfigError: one that is no text.
    """
    for given in overrides:
        if not isinstance(given, str):
            unpacked = "; unpack a list with *" if is_list(given) else ""
            raise ConfigError(
                f"override {given!r} is a {type(given).__name__}: give texts such as 'plan.tp=8'{unpacked}"
            )
    return list(overrides)


def study_from_resolved(config: DictConfig, overrides: tuple[str, ...] | list[str] = (), conf: Folders = None) -> Study:
    """The study of a composed configuration.

    Raises:
        ConfigError: anything wrong in it.
    """
    with own_files(*as_folders(conf)), naming_files(overrides):
        refuse_overruled_options(overrides)
        return _study(plain(config, overrides), overrides)


def study_from_plain(
    resolved: dict[str, Any], overrides: tuple[str, ...] | list[str] = (), conf: Folders = None
) -> Study:
    """Study of plain mappings in SI units, as a run folder keeps them.

    Raises:
        ConfigError: anything wrong in it.
    """
    with own_files(*as_folders(conf)), naming_files(overrides):
        return _study(_renewed(resolved), overrides)


def _renewed(resolved: dict[str, Any]) -> dict[str, Any]:
    """Convert a configuration that an earlier release kept: no number of workers was 0."""
    runner: Any = resolved.get("runner")
    if not is_mapping(runner) or runner.get("workers") != 0:
        return resolved
    return {**resolved, "runner": {key: value for key, value in runner.items() if key != "workers"}}


def _settle_goal(objective: dict[str, Any], overrides: Sequence[str]) -> None:
    """A goal that is typed takes the place of the file's; null takes one away, and does not bring back the class's."""
    typed = {text.lstrip("+").partition("=")[0] for text in overrides}
    for way, other in (("minimise", "maximise"), ("maximise", "minimise")):
        if objective.get(way, "") is None or (f"objective.{other}" in typed and f"objective.{way}" not in typed):
            objective[way] = ""


def _refuse_unread(resolved: dict[str, Any]) -> None:
    """Refuse keys at the top that nobody reads: they would be forgotten."""
    sections = {*SCENARIO, *KINDS, *SETTINGS}
    for key in resolved:
        if key not in sections:
            raise ConfigError(f"{key}: no such key at the top of a study{suggestion(key, sections)}")


def _check_settings(resolved: dict[str, Any]) -> None:
    """A seed and a name, of one design too: they stand in its configuration."""
    seed, name = resolved.get("seed", 0), resolved.get("name", "study")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ConfigError(
            f"seed = {_written(seed)} is not a whole number from 0 on, below 2^63; the usual one is seed=0"
        )
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise ConfigError(f"name = {_written(name)} is not a word: the run folder is called so, as in name=study")


def _written(value: Any) -> str:
    """A value as YAML has it: nothing is `null`."""
    return "null" if value is None else repr(value)


def _refuse_absent(resolved: dict[str, Any], keys: Iterable[str]) -> None:
    """Refuse a configuration that lacks a part, as where an override took it away, or has a list or a number there."""
    for key in keys:
        if resolved.get(key) is None:
            raise ConfigError(f"{key} is missing: a study needs it{choice(key)}")
        if not is_mapping(resolved[key]):
            raise ConfigError(f"{key} = {resolved[key]!r} must be a mapping of keys to values{choice(key)}")


def _study(resolved: dict[str, Any], overrides: tuple[str, ...] | list[str]) -> Study:
    _refuse_unread(resolved)
    sections = [key for key in (*SCENARIO, *KINDS) if key not in OPTIONAL_KINDS or resolved.get(key) is not None]
    _refuse_absent(resolved, sections)
    if "seed" not in resolved:
        raise ConfigError("seed is missing: a study needs it; the usual one is seed=0")
    _check_settings(resolved)
    if "goal" in resolved["objective"]:
        resolved["objective"]["minimise"] = resolved["objective"].pop("goal")
    _settle_goal(resolved["objective"], overrides)
    resolved = _counted(resolved, overrides)
    built = build({key: complete(resolved)[key] for key in sections})
    for key, kind in KINDS.items():
        if key in sections and not isinstance(built.objects[key], kind):
            raise ConfigError(f"{key} must be a {kind.__name__}, not {type(built.objects[key]).__name__}{choice(key)}")
    problem, search = problem_of(built), built.objects["search"]
    if isinstance(search, Mix):
        search = search.bound(_mixed(search, overrides))
        problem = next(iter(search.problems.values()))
    elif not problem.space.plan and not problem.space.hardware and isinstance(search, FOR_THE_BEST):
        search = Single()
    if "runner" in sections:
        search = search.over(built.objects["runner"])
    if problem.space.words:  # a run folder says what was searched, whatever the rules of axes are by then
        resolved["space"] |= {
            "plan": {k: [*v] for k, v in problem.space.plan.items()},
            "words": {**problem.space.words},
        }
    provenance = built.provenance | origins(overrides) | overridden(overrides)
    return Study(
        problem.scenario,
        problem.space,
        problem.objective,
        search,
        provenance,
        resolved,
        tuple(overrides),
        user_folders(),
    )


def _counted(resolved: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration with device counts to choose from, where requests are served and nothing says how many."""
    space: Mapping[str, Any] = resolved["space"]
    serves = "output_tokens" in (resolved.get("workload") or {})
    if not serves or not space.get("plan") or not left_open(overrides, resolved):  # nothing varies where none is listed
        return resolved
    counts = counts_of_job(scenario_of(build({key: resolved[key] for key in SCENARIO})))
    space = resolved["space"]
    return (
        {**resolved, "space": {**space, "plan": {**(space.get("plan") or {}), COUNT: counts}}} if counts else resolved
    )


def _mixed(mix: Mix, overrides: tuple[str, ...] | list[str]) -> dict[str, Problem]:
    """The problems of a mix: the study once more for each workload, with the overrides of its entry.

    Raises:
        ConfigError: an entry that cannot be built, naming it.
    """
    result: dict[str, Problem] = {}
    for name, entry in mix.entries.items():
        try:
            first = list(overrides) if names(entry.overrides, "experiment") else started(list(overrides))
            resolved = complete(plain(compose([*first, *entry.overrides]), [*first, *entry.overrides]))
            result[name] = problem_of(build({key: resolved[key] for key in (*SCENARIO, "space", "objective")}))
        except ConfigError as error:
            raise ConfigError(f"search.workloads.{name}: {error}") from error
    return result
