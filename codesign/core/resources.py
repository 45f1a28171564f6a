"""Location of the data files that ship with this package."""

import functools
from pathlib import Path

from .errors import ConfigError


@functools.cache
def conf_dir() -> Path:
    """The configurations: inside an installed package, else at the root of the project.

    Raises:
        ConfigError: neither is there.
    """
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "conf", package.parent / "conf"):
        if (candidate / "config.yaml").is_file():
            return candidate
    raise ConfigError(f"no configurations: neither {package / 'conf'} nor {package.parent / 'conf'} holds config.yaml")
