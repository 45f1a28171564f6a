"""Constants fitted to measurements."""

from .calibrate import calibrate as calibrate
from .fit import Score as Score
from .fit import score as score

__all__ = [
    "Score", "calibrate", "score",
]  # fmt: skip
