"""From overrides to a study: the objects a run needs, and where their numbers come from."""

from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..errors import ConfigError, suggestion
from ..objective import Objective
from ..scenario import Scenario
from ..search import AbstractSearch, Mix, Problem
from ..space import DesignSpace
from .checks import check_formats
from .composition import compose
from .construct import Built, build
from .groups import expand

SCENARIO = ("cluster", "workload", "plan")
SETTINGS = {"name", "seed", "provenance", "scale_out_native"}
KINDS = {"space": DesignSpace, "objective": Objective, "search": AbstractSearch}


@dataclass(frozen=True)
class Study:
    """What `codesign optimize` runs.

    provenance: dotted path -> origin of the number there (source, at, kind, note); resolved: the configuration as
    plain mappings, as the run folder keeps it.
    """

    scenario: Scenario
    space: DesignSpace
    objective: Objective
    search: AbstractSearch
    provenance: dict[str, dict[str, Any]]
    resolved: dict[str, Any]
    overrides: tuple[str, ...] = ()

    @property
    def problem(self) -> Problem:
        """What the search is given."""
        return Problem(self.scenario, self.space, self.objective)

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return str(self.resolved.get("name", "study"))

    @property
    def seed(self) -> int:
        """Of every random number."""
        return int(self.resolved.get("seed", 0))


def scenario_from_config(*overrides: str) -> Scenario:
    """The scenario of the default experiment with these overrides, such as `accelerator=b200`.

    Raises:
        ConfigError: anything wrong in the configuration.
    """
    resolved = plain(compose(list(overrides)))
    return _scenario(build({key: resolved[key] for key in SCENARIO}))


def study_from_config(*overrides: str) -> Study:
    """The study of the default experiment with these overrides, such as `experiment=serve_llama31_405b`.

    Raises:
        ConfigError: anything wrong in the configuration.
    """
    return study_from_resolved(compose(list(overrides)), overrides)


def study_from_resolved(config: DictConfig, overrides: tuple[str, ...] | list[str] = ()) -> Study:
    """The study of a composed configuration.

    Raises:
        ConfigError: anything wrong in it.
    """
    resolved = plain(config)
    known = {*SCENARIO, *KINDS, *SETTINGS}
    for key in resolved:
        if key not in known:
            raise ConfigError(f"{key}: no such key at the top of a study{suggestion(key, known)}")
    for key in (*SCENARIO, *KINDS):
        if key not in resolved:
            raise ConfigError(f"{key} is missing: a study needs it")
    if isinstance(resolved["seed"], bool) or not isinstance(resolved["seed"], int):
        raise ConfigError(f"seed = {resolved['seed']!r} is not a whole number")
    if "goal" in resolved["objective"]:
        resolved["objective"]["minimise"] = resolved["objective"].pop("goal")
    built = build({key: resolved[key] for key in (*SCENARIO, *KINDS)})
    for key, kind in KINDS.items():
        if not isinstance(built.objects[key], kind):
            raise ConfigError(f"{key} must be a {kind.__name__}, not {type(built.objects[key]).__name__}")
    problem, search = _problem(built), built.objects["search"]
    if isinstance(search, Mix):
        search = search.bound(_mixed(search, overrides))
        problem = next(iter(search.problems.values()))
    provenance = built.provenance | _overridden(overrides)
    parts = (problem.scenario, problem.space, problem.objective, search)
    return Study(*parts, provenance=provenance, resolved=resolved, overrides=tuple(overrides))


def _problem(built: Built) -> Problem:
    """What is searched, its variables checked."""
    scenario = _scenario(built)
    _check_variables(built.objects["space"], scenario)
    return Problem(scenario, built.objects["space"], built.objects["objective"])


def _mixed(mix: Mix, overrides: tuple[str, ...] | list[str]) -> dict[str, Problem]:
    """The problems of a mix: the study once more for each workload, with the overrides of its entry.

    Raises:
        ConfigError: an entry that cannot be built, naming it.
    """
    found = {}
    for name, entry in mix.entries.items():
        try:
            resolved = plain(compose([*overrides, *entry.overrides]))
            found[name] = _problem(build({key: resolved[key] for key in (*SCENARIO, "space", "objective")}))
        except ConfigError as error:
            raise ConfigError(f"search.workloads.{name}: {error}") from error
    return found


def _check_variables(space: DesignSpace, scenario: Scenario) -> None:
    """Every hardware variable must lead to a leaf of this scenario; another fabric or memory may have other leaves.

    Raises:
        ConfigError: what is missing, all variables that are, and how to go on without them.
    """
    wrong = {}
    for name, variable in space.hardware.items():
        try:
            DesignSpace(hardware={name: variable}).check(scenario)
        except ConfigError as error:
            wrong[name] = error
    if wrong:
        name, error = next(iter(wrong.items()))
        also = f" (nor has it what {', '.join(list(wrong)[1:])} names)" if len(wrong) > 1 else ""
        without = " ".join(f"'~space.hardware.{name}'" for name in wrong)
        raise ConfigError(
            f"space.hardware.{name} does not exist on this hardware: {error}{also};"
            f" give it another path, choose another space (`codesign list space`), or leave it out: {without}"
        ) from error


def plain(config: DictConfig) -> dict[str, Any]:
    """A configuration as plain mappings, interpolations resolved, Hydra's own settings left out.

    Raises:
        ConfigError: an interpolation that leads nowhere.
    """
    try:
        resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    except OmegaConfBaseException as error:
        raise ConfigError("; ".join(str(error).splitlines()[:1])) from error
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items() if key != "hydra"}


def _scenario(built: Built) -> Scenario:
    from ..scenario import Cluster
    from ..workloads import AbstractWorkload, Plan

    for key, kind in {"cluster": Cluster, "workload": AbstractWorkload, "plan": Plan}.items():
        if not isinstance(built.objects[key], kind):
            raise ConfigError(f"{key} must be a {kind.__name__}, not {type(built.objects[key]).__name__}")
    scenario = Scenario(**{key: built.objects[key] for key in SCENARIO})
    check_formats(scenario)
    return scenario


def _overridden(overrides: tuple[str, ...] | list[str]) -> dict[str, dict[str, Any]]:
    """An origin for every number changed by hand, so that reports do not credit it to a datasheet."""
    entries = {}
    for text in overrides:
        key, _, value = text.lstrip("+~").partition("=")
        path = expand(key)
        if path.split(".")[0] in SCENARIO and "." in path:
            entries[path] = {"source": "override", "kind": "assumed", "note": f"set to {value} by hand"}
    return entries
