"""Constants fitted to measurements."""

from .calibrate import calibrate as calibrate
from .scores import Score as Score
from .scores import score as score

__all__ = [
    "Score", "calibrate", "score",
]  # fmt: skip
