"""What there is to choose from: the folders of `conf/` and the files in them."""

import functools
from pathlib import Path

from ..errors import ConfigError, suggestion

HIDDEN = {"hydra"}  # settings of the launcher, not of a design


def conf_dir() -> Path:
    """The configurations: inside an installed package, else at the root of the project.

    Raises:
        ConfigError: neither is there.
    """
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "conf", package.parent / "conf"):
        if (candidate / "config.yaml").is_file():
            return candidate
    raise ConfigError(f"no configurations: neither {package / 'conf'} nor {package.parent / 'conf'} holds config.yaml")


def groups() -> list[str]:
    """Config groups, in alphabetical order."""
    return sorted(path.name for path in conf_dir().iterdir() if path.is_dir() and path.name not in HIDDEN)


def describe(path: Path) -> str:
    """The first comment of a YAML file that is no directive to Hydra."""
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text.startswith("#") and not text.startswith("# @package"):
            return text.lstrip("# ").strip()
        if text and not text.startswith("#"):
            break
    return ""


def available(group: str | None = None) -> dict[str, str]:
    """Groups with their options, or the options of one group with a line on each.

    Raises:
        ConfigError: no such group, with a suggestion.
    """
    if group is None:
        return {name: ", ".join(available(name)) for name in groups()}
    if group not in groups():
        raise ConfigError(f"config group {group!r} does not exist{suggestion(group, groups())}")
    return {path.stem: describe(path) for path in sorted((conf_dir() / group).glob("*.yaml"))}


@functools.cache
def aliases() -> dict[str, str]:
    """Name of a device as tables of measurements write it -> accelerator option."""
    found = {}
    for path in sorted((conf_dir() / "accelerator").glob("*.yaml")):
        found[path.stem] = path.stem
        for line in path.read_text(encoding="utf-8").splitlines():
            key, _, rest = line.strip().partition(":")
            if key == "aliases":
                names = rest.split("#")[0].strip().strip("[]").split(",")
                found |= {name.strip(): path.stem for name in names if name.strip()}
    return found


PACKAGES = {
    "accelerator": "cluster.accelerator",
    "calibration": "cluster.accelerator.kernels",
    "memory": "cluster.accelerator.hbm",
    "die": "cluster.accelerator.die",
    "host": "cluster.host",
    "facility": "cluster.facility",
    "fabric": "cluster.network.scale_up.fabric",
    "collective": "cluster.network.scale_up.collectives",
    "scale_out": "cluster.network.scale_out",
    "model": "workload.model",
}
"""Where the content of a group lands, if not under the group's own name."""


SYNONYMS = {"objective.goal": "objective.minimise"}
"""Keys that say the same."""


def expand(key: str) -> str:
    """`model.path` -> `workload.model.path`: a key that starts with a group stands for the place of that group."""
    key = SYNONYMS.get(key, key)
    first, dot, rest = key.partition(".")
    return f"{PACKAGES[first]}{dot}{rest}" if dot and first in PACKAGES else key
