"""Tables of measurements: kinds declared by their columns, and one checked reader for all of them."""

from .folder import FoundTable as FoundTable
from .folder import Survey as Survey
from .folder import as_data as as_data
from .folder import as_text as as_text
from .folder import survey as survey
from .folder import tables as tables
from .folder import unread as unread
from .registry import SCHEMAS as SCHEMAS
from .schema import RULE as RULE
from .schema import Schema as Schema

__all__ = [
    "RULE",
    "SCHEMAS",
    "FoundTable",
    "Schema",
    "Survey",
    "as_data",
    "as_text",
    "survey",
    "tables",
    "unread",
]  # fmt: skip
