"""Foundations that know nothing of clusters: leaves of the tree, units, smooth maxima, errors, files and text.

Names are imported when they are first asked for: errors and units need no JAX.
"""

from typing import TYPE_CHECKING

from .lazy import lazily

if TYPE_CHECKING:
    from .cost import Cost as Cost
    from .cost import overlap as overlap
    from .cost import partly_hidden_s as partly_hidden_s
    from .cost import zero as zero
    from .errors import CodesignError as CodesignError
    from .errors import ConfigError as ConfigError
    from .errors import DataError as DataError
    from .errors import WriteError as WriteError
    from .fields import flattened as flattened
    from .fields import get_path as get_path
    from .fields import integer as integer
    from .fields import part as part
    from .fields import quantity as quantity
    from .fields import range_of as range_of
    from .fields import replace as replace
    from .fields import static as static
    from .fields import switch as switch
    from .fields import walk as walk
    from .smooth import TINY as TINY
    from .smooth import at_least as at_least
    from .smooth import at_most as at_most
    from .smooth import ceil as ceil
    from .smooth import floor as floor
    from .smooth import largest as largest
    from .smooth import maximum as maximum
    from .smooth import operation as operation
    from .smooth import ratio as ratio
    from .smooth import reading as reading
    from .smooth import used_share as used_share
    from .untrusted_io import checksum as checksum
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "cost": ("Cost", "overlap", "partly_hidden_s", "zero"),
            "errors": ("CodesignError", "ConfigError", "DataError", "WriteError"),
            "fields": (
                "flattened",
                "get_path",
                "integer",
                "part",
                "quantity",
                "range_of",
                "replace",
                "static",
                "switch",
                "walk",
            ),
            "smooth": (
                "TINY",
                "at_least",
                "at_most",
                "ceil",
                "floor",
                "largest",
                "maximum",
                "operation",
                "ratio",
                "reading",
                "used_share",
            ),
            "untrusted_io": ("checksum",),
        },
    )

__all__ = [
    "TINY", "CodesignError", "ConfigError", "Cost", "DataError", "WriteError", "at_least", "at_most", "ceil",
    "checksum", "flattened", "floor", "get_path", "integer", "largest", "maximum", "operation", "overlap", "part",
    "partly_hidden_s", "quantity", "range_of", "ratio", "reading", "replace", "static", "switch", "used_share",
    "walk", "zero",
]  # fmt: skip
