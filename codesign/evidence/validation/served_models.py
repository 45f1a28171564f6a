"""Models of the configuration that a table of served models names."""

import re

from ...config.model_names import model_option
from ...core.errors import ConfigError
from ...model.workloads import Transformer
from .trained_models import configured_model

__all__ = ["model_of", "option_of"]

SEES = re.compile(r"(^|[-/_ ])(VL|Omni)([-_ ]|$)", re.IGNORECASE)
"""Models that were measured with pictures in their prompts, of which tables say neither number nor size."""


def option_of(name: str) -> str:
    """The option of `model` that a published name means.

    Raises:
        ConfigError: none, or one that no number format of a table describes.
    """
    option = model_option(name)
    if option is None:
        raise ConfigError(f"model {name!r} has no configuration")
    if SEES.search(name):
        raise ConfigError(f"model {name!r} was measured with pictures, of which the table says neither number nor size")
    return option


def model_of(name: str) -> Transformer:
    """The model that a published name means.

    Raises:
        ConfigError: as `option_of`.
    """
    return configured_model(option_of(name))
