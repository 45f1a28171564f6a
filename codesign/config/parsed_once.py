"""Files of the configuration as Hydra reads them, each parsed once a process: one that is written anew is read anew.

Composing asks for some dozen files each time, and parsing one takes longer than all that is done with it afterwards.
"""

import functools
import os
import pickle  # in this process alone: what is read back was written by it

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult

SCHEME = "parsed"


class ParsedOnceSource(FileConfigSource):
    """Hydra's source of files under a scheme of its own; each asks for a copy, since Hydra changes what it is given."""

    @staticmethod
    def scheme() -> str:
        """Scheme that its addresses begin with."""
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        """A file's content and header.

        Raises:
            ConfigLoadError, YAMLError: it is missing or no YAML.
        """
        try:
            told = os.stat(os.path.join(self.path, self._normalize_file_name(config_path)))
        except OSError:
            return super().load_config(config_path)  # says what is missing
        return pickle.loads(_parsed(self.provider, self.path, config_path, told.st_mtime_ns, told.st_size))


@functools.lru_cache(maxsize=4096)
def _parsed(provider: str, folder: str, config_path: str, *_: int) -> bytes:
    """A file of this age and size, pickled: read back in a seventh of the time of a copy."""
    return pickle.dumps(FileConfigSource.load_config(ParsedOnceSource(provider, f"{SCHEME}://{folder}"), config_path))


def parsed_once(folder: str) -> str:
    """The address of a folder for Hydra's search path."""
    Plugins.instance().register(ParsedOnceSource)
    return f"{SCHEME}://{folder}"
