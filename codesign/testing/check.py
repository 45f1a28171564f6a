"""Contract checks of a component: what it breaks, a line each."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .. import executors as distributing
from .. import search
from ..config.plugins import plugin_classes
from ..core.errors import ConfigError, suggestion
from ..model import hardware, workloads
from ..model.networks import collectives, fabrics
from . import contracts, search_contract
from .contracts import Broken

# Families of components: the base of each, where its members stand, and what each member promises.


Promise = Callable[[Any], None]


def _example(cls: Any) -> Any:
    return cls.example()


@dataclass(frozen=True)
class ComponentFamily:
    """base: class of its members; menu: package that lists those of this package; promises: of an example;
    example: class -> what these are asked of."""

    base: type
    menu: ModuleType
    promises: Sequence[Promise]
    example: Callable[[Any], Any] = _example


def _of_collective(promise: Callable[..., None]) -> Promise:
    def kept(algorithm: collectives.AbstractCollective) -> None:
        promise(algorithm, type(algorithm).operation, 0)

    kept.__name__ = promise.__name__
    return kept


def _log_convex(fabric: fabrics.AbstractFabric) -> None:
    for seed, group in enumerate(contracts.GROUPS[::3]):
        contracts.log_convex_in_every_continuous_leaf(type(fabric), group, seed)


FAMILIES = {
    "fabric": ComponentFamily(fabrics.AbstractFabric, fabrics, (*contracts.FABRIC_PROMISES, _log_convex)),
    "collective": ComponentFamily(
        collectives.AbstractCollective, collectives, [_of_collective(each) for each in contracts.COLLECTIVE_PROMISES]
    ),
    "kernel": ComponentFamily(hardware.AbstractKernel, hardware, contracts.KERNEL_PROMISES),
    "memory": ComponentFamily(hardware.AbstractMemory, hardware, contracts.MEMORY_PROMISES),
    "workload": ComponentFamily(workloads.AbstractWorkload, workloads, contracts.WORKLOAD_PROMISES),
    "runner": ComponentFamily(distributing.AbstractRunner, distributing, contracts.RUNNER_PROMISES),
    "search": ComponentFamily(
        search.AbstractSearch, search, search_contract.PROMISES, search_contract.FoundBySearch.of
    ),
}


def members(name: str) -> dict[str, type]:
    """Concrete classes of a family by name, those of plug-ins by `package.Class`.

    Raises:
        ConfigError: no such family; a plug-in that is not whole.
    """
    if name not in FAMILIES:
        raise ConfigError(f"family {name!r} does not exist{suggestion(name, FAMILIES)}")
    family = FAMILIES[name]
    known = {**vars(family.menu), **plugin_classes()}
    return {
        key: cls
        for key, cls in known.items()
        if inspect.isclass(cls) and issubclass(cls, family.base) and not inspect.isabstract(cls)
    }


def family_of(cls: type) -> str | None:
    """The family that a class belongs to; None where it is a part of something else."""
    return next((name for name, family in FAMILIES.items() if issubclass(cls, family.base)), None)


def broken(cls: type) -> list[str]:
    """Lines on what the example of a class does not keep; none where it keeps everything or has no contract."""
    name = family_of(cls)
    return list(_lines(cls, name)) if name else []


def chosen(names: Sequence[str] = ()) -> dict[str, type]:
    """Classes by name, all those of plug-ins where none is named; of a plug-in `package.Class` or `Class`.

    Raises:
        ConfigError: no such class, with a suggestion; a plug-in that is not whole.
    """
    every = {name: cls for family in FAMILIES for name, cls in members(family).items()}
    if not names:
        return {name: cls for name, cls in every.items() if "." in name}
    known = every | {name.rpartition(".")[2]: cls for name, cls in every.items()}
    for name in names:
        if name not in known:
            raise ConfigError(f"component {name!r} does not exist{suggestion(name, known)}")
    return {name: known[name] for name in names}


def faults_of_plugins() -> Iterator[str]:
    """Yield what the components of all plug-ins break of their contracts, a line each."""
    for cls in chosen().values():
        yield from broken(cls)


def _lines(cls: type, family: str) -> Iterator[str]:
    try:
        example = FAMILIES[family].example(cls)
    except Exception as error:
        yield f"{cls.__name__}: example() {_said(error)}"
        return
    for promise in FAMILIES[family].promises:
        try:
            promise(example)
        except Broken as error:
            yield f"{cls.__name__}: {error}"
        except Exception as error:
            yield f"{cls.__name__}: {promise.__name__.strip('_').replace('_', ' ')}: {_said(error)}"


def _said(error: Exception) -> str:
    """An error of somebody's code in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"fails with {type(error).__name__}: {lines[0] if lines else 'no reason given'}"
