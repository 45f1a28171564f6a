"""Compose `conf/` and overrides into one resolved configuration; Hydra's complaints become one line with a hint.

`group=option` chooses a file. `dotted.key=value` changes a value; the key may be any the configuration shows or any
argument of the class that stands there (`_target_`), so nobody has to know which defaults a file spells out.
"""

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import yaml
from hydra import compose as hydra_compose
from hydra import version as hydra_version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, flag_override, open_dict
from omegaconf.errors import OmegaConfBaseException

from ..core.earlier_names import current_key, current_override, current_target, mentions, migrated_config
from ..core.errors import ConfigError, either, is_text, suggestion
from ..core.json_yaml import is_list, is_mapping
from ..core.resources import conf_dir
from ..core.short_names import CHOICES, NUMBERS, WORDS
from .construct import parameters, resolve
from .engines import CHANGING, with_engine
from .groups import (
    PACKAGES,
    Edition,
    accelerator_option,
    aliases,
    available,
    check_part,
    edition,
    expand,
    folders,
    group_suggestion,
    groups,
    plain_name,
    search_path,
)
from .model_names import model_option
from .plain_composition import Composition, as_config, cached, compose_plainly
from .starting import started
from .user_files import user_folders
from .written import in_unit

# Purchase prices of accelerators in one file: `prices=NAME` in place of what each one's own file says.
#
# A file of the group `prices` lists whole products, memory included, before host and network, as sellers quote them:
#
#     # mine/prices/quotes.yaml        codesign compare --conf mine prices=quotes accelerator=h200,b200 ...
#     usd_per_device: {h200: $31k, b200: 42000}
#
# The price of an accelerator is then what is listed less its memory at the catalogue's price of a byte, so that a
# search that varies the memory still pays for it. What is typed as `cluster.accelerator.price_usd=...` holds over
# both.


GROUP = "prices"
LISTED = "usd_per_device"
KEYS = (LISTED, "provenance")
BYTES = ("capacity_bytes", "usd_per_byte")
ASSUMED_ORIGIN = {"source": "assumption", "kind": "assumed"}  # of a list that says nothing of where it comes from


def with_prices(config: DictConfig) -> DictConfig:
    """The configuration with the listed price of its accelerator, and without the list.

    Raises:
        ConfigError: a key that says nothing, an accelerator without a listed price, a price that is none or is less
            than that of the memory, a memory whose price is not that of so many bytes.
    """
    if GROUP not in config:
        return config
    group_config: Any = OmegaConf.to_container(config[GROUP], resolve=True) if config[GROUP] is not None else {}
    with open_dict(config):
        del config[GROUP]
    listed = _listed_prices(group_config)
    accelerator = OmegaConf.select(config, "cluster.accelerator")
    name = str(accelerator.get("name", ""))
    if name not in listed:
        raise ConfigError(
            f"{GROUP}.{LISTED} has no price of {name!r}{suggestion(name, listed)}; give one under that name"
        )
    usd, memory = _usd(name, listed[name]), _memory_usd(accelerator)
    if usd <= memory:
        raise ConfigError(
            f"{GROUP}.{LISTED}.{name} = {usd:g} USD is not more than its memory costs, {memory:,.0f} USD; "
            "allowed: the price of the whole device"
        )
    origins: dict[str, dict[str, Any]] = group_config.get("provenance") or {}
    origin = {**(origins.get(f"{LISTED}.{name}") or ASSUMED_ORIGIN)}
    note = "; ".join(filter(None, [origin.get("note", ""), f"{usd:,.0f} USD listed less memory, {memory:,.0f} USD"]))
    with open_dict(accelerator):
        accelerator.price_usd = usd - memory
        accelerator.provenance = OmegaConf.merge(
            accelerator.get("provenance") or {}, {"price_usd": origin | {"note": note}}
        )
    return config


def _listed_prices(group_config: Any) -> Mapping[str, Any]:
    """Accelerator -> its price as it is written."""
    for key in group_config if is_mapping(group_config) else ():
        if key not in KEYS:
            raise ConfigError(f"{GROUP}: no key {key!r}{suggestion(str(key), KEYS)}")
    listed = group_config.get(LISTED) if is_mapping(group_config) else None
    if not is_mapping(listed) or not listed:
        raise ConfigError(f"{GROUP}: it lists no price; write `{LISTED}: {{h200: 31000}}`")
    return {str(name): value for name, value in listed.items()}


def _usd(name: str, written: Any) -> float:
    """A listed price."""
    value: Any = in_unit(written, "$", f"{GROUP}.{LISTED}.{name}") if isinstance(written, str) else written
    sound = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    if not sound:
        raise ConfigError(f"{GROUP}.{LISTED}.{name} = {written!r} is no price; allowed: dollars, such as 31000 or $31k")
    return float(value)


def _memory_usd(accelerator: DictConfig) -> float:
    """Price of the product's memory by the catalogue, $."""
    memory: Any = accelerator.get("hbm") or {}
    values: list[Any] = [memory.get(key) for key in BYTES]
    if not all(isinstance(value, int | float) for value in values):
        raise ConfigError(
            f"{GROUP}: a listed price is of {accelerator.get('name', '')} with its own memory; "
            "allowed: no memory=..., or cluster.accelerator.price_usd=... for what the device costs without"
        )
    return float(values[0]) * float(values[1])


EXPERT_LOAD = "workload.expert_load"
OPEN = {
    "cluster.facility.ownership.usd_per_device_h",
    "cluster.facility.ownership.region_ratio",
    "cluster.ffn.like",
    "cluster.later_stages.like",
    "cluster.prefill.like",
    "objective.limits",
    "objective.floors",
    "space.plan",
    "space.hardware",
    "search.workloads",
    "search.step",
    "search.allowed_values",
}
"""Mappings whose keys the user chooses; what they may name is checked by the class that takes them."""

DID = "did you mean"  # of a suggestion that names one
OPTIONAL = {
    "memory", "die", "stack", "path_energy", "prefill", "later_stages", "ffn", "experiment", "hardware", "ownership",
    "kernel_correction", "framework",
    "reliability", "carbon", "scaling_law", "precision", "optimizer", "engine_memory", "runner", "prices",
}  # fmt: skip
"""Groups that may be left out: an accelerator has a memory of its own, a die is one of the design's choices."""

_override: Any = vars(ConfigLoaderImpl)["_apply_overrides_to_config"].__func__  # Hydra offers it in no other way
LONGEST = 10_000  # characters of an override; the longest that anything here writes has 300
RESOLVER = re.compile(r"\$\{\s*[\w.]+\s*:")
"""`${oc.env:NAME}` and its like: what they find would be written into the run folder and its page."""

POOLS = (PACKAGES["prefill"], PACKAGES["later_stages"], PACKAGES["ffn"])
"""Parts of a cluster that may be like another cluster."""

OF_A_POOL = ("accelerator", "host", "network", "levels", "device_count", "_target_")
"""Keys of a configuration that a pool which is like it takes over."""


def compose(overrides: list[str]) -> DictConfig:
    """The configuration that these overrides ask for.

    Raises:
        ConfigError: a key, option or value that does not exist.
    """
    for text in overrides:
        if text.lstrip("+~").startswith("hydra"):
            raise ConfigError(f"{text}: settings of Hydra take effect with -m only")
        if _parse(text).is_sweep_override():
            raise ConfigError(
                f"{text} names several values: `codesign compare` puts the best design of each side by side,"
                " or add -m to `codesign optimize` to run them all"
            )
    aliases()  # refuses accelerators that claim the same measurements
    return composed(admit(overrides))


def admit(overrides: list[str]) -> list[str]:
    """The overrides as Hydra takes them: unknown groups, options and keys refused, defaults of classes opened.

    Raises:
        ConfigError: naming the key and what is close to it.
    """
    parsed = [_meant(_parse(_without(_expanded(current_override(text))))) for text in started(overrides)]
    chosen = [item for item in parsed if _is_group(item)]
    for item in chosen:
        _check_options(item)
    values = [item for item in parsed if not _is_group(item)]
    if not any(_is_ours(item) for item in values):
        return [str(item.input_line) for item in parsed]
    base = _base(tuple(_first(item) for item in chosen), edition())
    return [_admit_value(item, base) if _is_ours(item) else str(item.input_line) for item in parsed]


@functools.lru_cache(maxsize=64)
def _base(chosen: tuple[str, ...], edition_of_files: Edition) -> Any:
    """Compose these groups of this edition of the files, as plain mappings that nobody may change."""
    special = any(isinstance(_parse(text).value(), dict) or mentions(text) for text in chosen)
    with contextlib.suppress(yaml.YAMLError, RecursionError, HydraException, OmegaConfBaseException, ValueError):
        made = {} if special else _with_choices(chosen, edition_of_files)
        if made and not any(_like_of(made, pool) for pool in POOLS):
            return made
    return OmegaConf.to_container(composed(list(chosen)), resolve=False)  # or says what is wrong


def _like_of(config: Any, pool: str) -> Any:
    """Key `like` of a pool in a plain configuration; None where there is none."""
    for key in (*pool.split("."), "like"):
        config = config.get(key) if is_mapping(config) else config
    return config


def combinations(overrides: list[str]) -> list[list[str]]:
    """The overrides of each job, where some of these list several values.

    Raises:
        ConfigError: values that cannot be listed, such as an interval.
    """
    return BasicSweeper.split_arguments([_listed(_parse(text)) for text in overrides], None)[0]


def _listed(item: Override) -> Override:
    """One value, or several that are named one by one."""
    if item.is_sweep_override() and (not item.is_discrete_sweep() or isinstance(item.value(), Glob)):
        raise ConfigError(f"{item.input_line}: list the values, as in {item.key_or_group}=A,B or range(1,4)")
    return item


def _is_ours(item: Override) -> bool:
    """A plain `key=value` on the configuration itself."""
    plain = not (item.is_add() or item.is_force_add() or item.is_delete())
    return plain and not _is_group(item) and item.key_or_group.split(".")[0] != "hydra"


def _is_group(item: Override) -> bool:
    return item.key_or_group in groups() or "/" in item.key_or_group


def _expanded(text: str) -> str:
    """`model.path=x` -> `workload.model.path=x`."""
    key, equals, value = text.partition("=")
    bare = key.lstrip("+~")
    return key[: len(key) - len(bare)] + expand(bare) + equals + value


def _without(text: str) -> str:
    """`memory=null` -> `~memory`: of groups that a study need not have, null takes the choice away."""
    group, _, value = text.partition("=")
    return f"~{group}" if group in OPTIONAL and value in ("null", "None") else text


@functools.lru_cache(maxsize=512)
def _parse(text: str) -> Override:
    """An override, which nobody may change: the same text is asked for several times."""
    if len(text) > LONGEST:
        raise ConfigError(f"override {text[:40]!r}... has {len(text):,} characters; allowed: at most {LONGEST:,}")
    if not is_text(text):
        raise ConfigError(f"override {text!r} is no text of UTF-8")
    called = RESOLVER.search(text)
    if called:
        raise ConfigError(
            f"override {text!r}: {called[0]}...}} asks for something outside the configuration; allowed: numbers, "
            "words and references to other keys, such as ${cluster.host}"
        )
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        special = """ (quote what has special characters, inside too: 'key="a=b"', 'key=["a=b"]')"""
        hint = special if "=" in text else " (write key=value)"
        raise ConfigError(f"cannot read the override {text!r}{hint}") from error


def _choices(item: Override) -> list[str]:
    """Options that a group override names, one or several."""
    _listed(item)
    if item.is_sweep_override():
        return [str(choice) for choice in item.sweep_string_iterator()]
    value = item.value()
    return [str(entry) for entry in value] if is_list(value) else [str(value)]


def _first(item: Override) -> str:
    line = item.input_line or ""
    return f"{line.split('=', 1)[0]}={_choices(item)[0]}" if item.is_sweep_override() else line


def _check_options(item: Override) -> None:
    group = item.key_or_group
    if not item.is_delete() and not item.is_sweep_override() and item.value() == []:
        alone = f" ({group}=null takes it away)" if group in OPTIONAL else ""
        hint = suggestion("", available(group)) if group in groups() else ""
        raise ConfigError(f"{group} = [] names no option{alone}{hint}")
    if item.is_delete() or group.split("/")[0] == "hydra" or group not in groups():
        if group.split("/")[0] not in {"hydra", *groups()}:
            raise ConfigError(f"config group {group!r} does not exist{group_suggestion(group)}")
        check_part(group, [] if item.is_delete() else _choices(item))
        return
    hint = available(group)
    for choice in _choices(item):
        if choice in ("None", "null"):
            alone = f" (alone, {group}=null takes it away)" if group in OPTIONAL else ""
            raise ConfigError(f"{group} = null: name one of the options{alone}{suggestion('', hint)}")
        if choice not in hint:
            raise ConfigError(f"{group} = {choice} does not exist{_named_so(group, choice, hint)}")


SERVING_WORDS, SERVING = ("inference", "infer", "serve", "generation", "llm"), ("serving", "continuous", "at_rate")
"""Everyday words for a workload that answers requests, and those that do: of clients, of an engine, at a rate."""
SHORT = {"hf": "hf_config"}
"""Models that are chosen by a shorter word too."""


def _meant(item: Override) -> Override:
    """`model=Qwen/Qwen3-32B` -> `model=qwen3_32b`, `accelerator=H100` -> `accelerator=h100_sxm`.

    A model may be chosen by the name that a hub or a table gives it, an accelerator by that of a table or a seller.
    """
    if item.key_or_group not in ("model", "accelerator") or item.is_delete() or isinstance(item.value(), dict):
        return item
    choices, named = _choices(item), model_option if item.key_or_group == "model" else accelerator_option
    options = [SHORT.get(choice) or named(choice) or choice for choice in choices]
    if options == choices:
        return item
    key, text = str(item.input_line).partition("=")[0], ",".join(options)
    return _parse(f"{key}=[{text}]" if is_list(item.value()) else f"{key}={text}")


def _named_so(group: str, choice: str, options: Iterable[str]) -> str:
    """A suggestion; of accelerators, what tables of measurements call so comes first."""
    if group == "workload" and choice in SERVING_WORDS:
        return f" (did you mean {either([*SERVING])}?)"
    if group == "model":
        spelt = re.sub(r"[\W_]+", "_", choice.rsplit("/", 1)[-1].lower().replace(".", ""))
        return f"{suggestion(spelt, options)} (or model=hf_config model.path=CONFIG.JSON)"
    if group != "accelerator":
        return suggestion(choice, options)
    called = {plain_name(alias): option for alias, option in aliases().items()}.get(plain_name(choice))
    others = [option for option in options if option.startswith(choice.lower()) and option != called]
    if called is None:
        return suggestion(choice, options)
    return f" (did you mean {either([called, *others])}?)"


def _admit_value(item: Override, base: Any) -> str:
    """`key=value` where the key exists, `++key=value` where the class that stands there has such an argument."""
    item = _current(item, base)
    node, keys = base, item.key_or_group.split(".")
    _check_shape(item, base)
    if item.key_or_group in OPEN or ".".join(keys[:2]) == EXPERT_LOAD:
        return f"++{item.input_line}"
    for depth, key in enumerate(keys):
        if is_list(node) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        elif is_mapping(node) and key in node:
            node = node[key]
        elif is_mapping(node) and (key in _arguments(node) or ".".join(keys[:depth]) in OPEN):
            return f"++{item.input_line}"
        else:
            names = {*_arguments(node), *(node if is_mapping(node) else ())} - {"_target_", "provenance"}
            names |= set(groups()) if depth == 0 else set()
            prefix = ".".join(keys[:depth])
            if depth == 0 and key in OPTIONAL:
                which = suggestion("", available(key))
                raise ConfigError(f"{item.input_line}: no {key} is chosen that could have it; add {key}=NAME{which}")
            if is_mapping(node):
                near = suggestion(key, {*names, *CHOICES, *NUMBERS, *WORDS} if depth == 0 else names)
                near = near if DID in near else suggestion(key, names)
                raise ConfigError(f"{item.key_or_group}: no key {key!r} in {prefix or 'the configuration'}{near}")
            raise ConfigError(f"{item.key_or_group}: {prefix} is a value, it has no {key!r}")
    return str(item.input_line)


def _current(item: Override, base: Any) -> Override:
    """Rename keys of release 0.1 in an override to the keys of this release."""
    node, keys = base, item.key_or_group.split(".")
    if not mentions(item.key_or_group):
        return item
    for depth, key in enumerate(keys):
        if is_mapping(node) and key not in node:
            keys[depth] = current_key(key, _target_of(node), ".".join(keys[:depth]))
        node = node.get(keys[depth]) if is_mapping(node) else None
    _, equals, value = str(item.input_line).partition("=")
    return _parse(".".join(keys) + equals + value)


def _target_of(node: Any) -> str:
    return current_target(str(node.get("_target_", "")), warn=False)


def _check_shape(item: Override, base: Any) -> None:
    """Refuse a list where a mapping stands, and a mapping or a number where a list stands."""
    node = base
    for key in item.key_or_group.split("."):
        node = node.get(key) if is_mapping(node) else None
    value = None if item.is_sweep_override() else item.value()
    if is_mapping(node) and is_list(value):
        hint = suggestion("", [str(key) for key in node if key not in ("_target_", "provenance")])
        raise ConfigError(f"{item.input_line}: {item.key_or_group} is a mapping, not a list{hint}")
    kind = "a mapping" if is_mapping(value) else "a number" if isinstance(value, int | float) else ""
    if is_list(node) and kind and not item.key_or_group.startswith("space."):
        raise ConfigError(f"{item.input_line}: {item.key_or_group} is a list, not {kind}: write [A,B]")


def _arguments(node: Any) -> list[str]:
    if is_mapping(node) and "_target_" in node:
        return list(parameters(resolve(node["_target_"], "_target_")))
    return []


def composed(overrides: list[str]) -> DictConfig:
    """Compose the overrides that `admit` returned.

    Raises:
        ConfigError: what it complains of.
    """
    try:
        parsed = [_parse(text) for text in overrides]
        values = [item for item in parsed if not _is_group(item)]
        if any(_is_group(item) and isinstance(item.value(), dict) for item in parsed):  # Hydra takes these as values
            return _chosen(tuple(overrides), edition())
        groups_chosen = tuple(str(item.input_line) for item in parsed if _is_group(item))
        config = _chosen(groups_chosen, edition())
        late = [item for item in values if item.key_or_group.startswith(tuple(f"{pool}.cluster." for pool in POOLS))]
        early = [item for item in values if item not in late]
        _override(early, config)  # jobs that choose alike compose their files once
        for pool in POOLS:
            config = _with_pool(config, pool, [text for text in groups_chosen if text.startswith(f"{GROUP}=")])
        _override(late, config)
        if not any(mentions(text) for text in overrides):
            return config
        before = OmegaConf.to_container(config, resolve=False)
        assert is_mapping(before)
        tree = _by_current_names(before)
        return config if tree is before else OmegaConf.create(tree)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{mark.name}, line {mark.line + 1}: " if mark else ""
        raise ConfigError(f"{where}{getattr(error, 'problem', None) or error}") from error
    except RecursionError as error:
        raise ConfigError("a file of the configuration contains itself (an alias of YAML inside its anchor)") from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ConfigError("; ".join(itertools.islice(lines, 2)) or type(error).__name__) from error


def _with_pool(config: DictConfig, pool: str, priced: list[str]) -> DictConfig:
    """A pool made of the options that its `like` names (`accelerator: b200`): `cluster.prefill`, for instance.

    It costs what the list of prices says that was chosen, if one was.

    Raises:
        ConfigError: no such group or option.
    """
    like = OmegaConf.select(config, f"{pool}.like")
    if like is None:
        return config
    try:
        chosen = [f"{group}={option}" for group, option in like.items()] + priced
        other = OmegaConf.to_container(composed(admit(chosen)), resolve=True)
    except ConfigError as error:
        raise ConfigError(f"{pool}.like: {error}") from error
    assert is_mapping(other)
    part = {key: other["cluster"][key] for key in OF_A_POOL}
    stated: Any = OmegaConf.select(config, f"{pool}.cluster") or {}
    with open_dict(config):
        OmegaConf.select(config, pool).cluster = OmegaConf.merge(part, stated)
    return config


@contextlib.contextmanager
def _hydra() -> Generator[None, None, None]:
    """Hydra made ready to compose; within a job that it runs itself, what it knows of that job is put back after."""
    running = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        hydra_version.setbase("1.3")
        files = create_config_search_path(f"file://{conf_dir()}")
        Hydra.create_main_hydra2(task_name="codesign", config_search_path=files)
        yield
    finally:
        GlobalHydra.instance().hydra = running


def _chosen(overrides: tuple[str, ...], edition_of_files: Edition) -> DictConfig:
    """Composition of this edition of the files with engine and prices, which whoever asks may change."""
    return _struct(_with_choices(overrides, edition_of_files))


def _struct(plain: dict[str, Any]) -> DictConfig:
    config = as_config(plain)
    OmegaConf.set_struct(config, True)  # as Hydra leaves it
    return config


@functools.lru_cache(maxsize=64)
def _with_choices(overrides: tuple[str, ...], edition_of_files: Edition) -> dict[str, Any]:
    """A composition after its engine and list of prices, as plain mappings that nobody may change."""
    full_config = _full_composition(overrides, edition_of_files).config
    work = full_config.get("workload")
    if GROUP not in full_config and is_mapping(work) and not CHANGING & work.keys():
        return full_config
    config = with_prices(with_engine(_struct(full_config)))
    plain = OmegaConf.to_container(config, resolve=False)
    assert is_mapping(plain)
    return plain


@functools.lru_cache(maxsize=64)
def _full_composition(overrides: tuple[str, ...], edition_of_files: Edition) -> Composition:
    """The configuration and its options, which nobody may change."""
    return cached(overrides, edition_of_files, lambda: _composed_anew(overrides))


def _composed_anew(overrides: tuple[str, ...]) -> Composition:
    ours = [text for text in overrides if not text.lstrip("+~").startswith("hydra")]
    made = compose_plainly([str(conf_dir()), *map(str, folders())], [_parse(text) for text in ours])
    made = made or _by_hydra(ours)
    return made._replace(config=_by_current_names(made.config)) if user_folders() else made


def _by_hydra(overrides: list[str]) -> Composition:
    with _hydra():
        config = hydra_compose("config", overrides=[*search_path(), *overrides], return_hydra_config=True)
    chosen = {str(group): str(option) for group, option in config.hydra.runtime.choices.items() if option}
    with flag_override(config, ["struct", "readonly"], False):
        del config["hydra"]
    plain = OmegaConf.to_container(config, resolve=False)
    assert is_mapping(plain)
    return Composition(plain, {group: chosen[group] for group in chosen if not group.startswith("hydra/")})


def _by_current_names(config: dict[str, Any]) -> dict[str, Any]:
    tree = migrated_config(config, 1, warn=True)
    assert is_mapping(tree)
    return config if tree == config else tree


def chosen_options(overrides: list[str]) -> dict[str, str]:
    """Group -> option of what these overrides, and whatever an experiment or a part brings, choose in the end."""
    picked = tuple(text for text in admit(overrides) if _is_group(_parse(text)))
    return dict(_full_composition(picked, edition()).options)
