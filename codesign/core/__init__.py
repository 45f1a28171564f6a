"""Foundations that know nothing of clusters: leaves of the tree, units, smooth maxima, errors, files and text.

Names are imported when they are first asked for: errors and units need no JAX.
"""

from typing import TYPE_CHECKING

from .lazy import lazily

if TYPE_CHECKING:
    from .cost import Cost, overlap, partly_hidden_s, zero
    from .errors import CodesignError, ConfigError, DataError, WriteError
    from .fields import flattened, get_path, integer, part, quantity, range_of, replace, static, switch, walk
    from .smooth import TINY, at_least, at_most, ceil, floor, largest, maximum, operation, ratio, reading, used_share
    from .untrusted_io import checksum
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "TINY", "CodesignError", "ConfigError", "Cost", "DataError", "WriteError", "at_least", "at_most", "ceil",
    "checksum", "flattened", "floor", "get_path", "integer", "largest", "maximum", "operation", "overlap", "part",
    "partly_hidden_s", "quantity", "range_of", "ratio", "reading", "replace", "static", "switch", "used_share",
    "walk", "zero",
]  # fmt: skip
