"""JSON that every reader takes: numbers that are none, infinity and NaN, become null, all that JSON has for them."""

import json
import math
from typing import Any


def strict(value: Any) -> Any:
    """Convert a value to what JSON knows: mappings, lists, words, finite numbers, true, false and null.

    Arrays become lists, numbers of NumPy and JAX plain ones; anything else is written as a word.
    """
    if value is None or isinstance(value, bool | str):
        return value if not isinstance(value, str) else str(value)
    if isinstance(value, dict):
        return {str(key): strict(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [strict(entry) for entry in value]
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return strict(value.tolist()) if hasattr(value, "tolist") else str(value)


def dumps(value: Any, indent: int | None = None) -> str:
    """Strict JSON; the only place that writes any."""
    return json.dumps(strict(value), indent=indent, allow_nan=False)
