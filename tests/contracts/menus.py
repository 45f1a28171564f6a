"""Members of a family: the concrete classes of its menu, and what each file of its config group builds."""

import inspect
from functools import cache
from types import ModuleType
from typing import Any

from omegaconf import OmegaConf

from codesign.config import build, compose
from codesign.config.groups import PACKAGES, conf_dir


def classes(menu: ModuleType, family: type) -> dict[str, type]:
    """Concrete classes of a menu by name."""
    return {
        name: cls
        for name, cls in vars(menu).items()
        if inspect.isclass(cls) and issubclass(cls, family) and not inspect.isabstract(cls)
    }


OF_A_FILE = {"topology_file", "hub"}  # need a file of their own: tests/test_topology.py, tests/test_hub.py


def configs(group: str) -> list[str]:
    """Options of a config group that stand for themselves."""
    return [path.stem for path in sorted((conf_dir() / group).glob("*.yaml")) if path.stem not in OF_A_FILE]


@cache
def built(group: str, name: str) -> Any:
    """The object that an option describes, in the default study."""
    node = OmegaConf.select(compose([f"{group}={name}"]), PACKAGES[group])
    return build({group: OmegaConf.to_container(node, resolve=True)}).objects[group]
