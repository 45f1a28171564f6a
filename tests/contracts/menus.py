"""What each file of a config group builds."""

from functools import cache
from typing import Any

from omegaconf import OmegaConf

from codesign.config import build, compose
from codesign.config.groups import PACKAGES, conf_dir

OF_A_FILE = {"topology_file", "hf_config"}  # need a file of their own: tests/test_topology.py, tests/test_hub.py


def configs(group: str) -> list[str]:
    """Options of a config group that stand for themselves."""
    return [path.stem for path in sorted((conf_dir() / group).glob("*.yaml")) if path.stem not in OF_A_FILE]


@cache
def built(group: str, name: str) -> Any:
    """The object that an option describes, in the default study."""
    node = OmegaConf.select(compose([f"{group}={name}"]), PACKAGES[group])
    return build({group: OmegaConf.to_container(node, resolve=True)}).objects[group]
