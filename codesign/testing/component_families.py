"""Families of components: the base of each, where its members stand, and what each member promises."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .. import executors as distributing
from .. import search
from ..config.plugins import plugin_classes
from ..core.errors import ConfigError, suggestion
from ..model import hardware, workloads
from ..model.networks import collectives, fabrics
from . import of_collectives, of_fabrics, of_kernels, of_memories, of_runners, of_searches, of_workloads

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
    for seed, group in enumerate(of_fabrics.GROUPS[::3]):
        of_fabrics.log_convex_in_every_continuous_leaf(type(fabric), group, seed)


FAMILIES = {
    "fabric": ComponentFamily(fabrics.AbstractFabric, fabrics, (*of_fabrics.PROMISES, _log_convex)),
    "collective": ComponentFamily(
        collectives.AbstractCollective, collectives, [_of_collective(each) for each in of_collectives.PROMISES]
    ),
    "kernel": ComponentFamily(hardware.AbstractKernel, hardware, of_kernels.PROMISES),
    "memory": ComponentFamily(hardware.AbstractMemory, hardware, of_memories.PROMISES),
    "workload": ComponentFamily(workloads.AbstractWorkload, workloads, of_workloads.PROMISES),
    "runner": ComponentFamily(distributing.AbstractRunner, distributing, of_runners.PROMISES),
    "search": ComponentFamily(search.AbstractSearch, search, of_searches.PROMISES, of_searches.FoundBySearch.of),
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
