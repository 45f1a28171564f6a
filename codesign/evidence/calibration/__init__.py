"""Constants fitted to measurements."""

from .calibrate import calibrate as calibrate
from .prediction_errors import Score as Score
from .prediction_errors import score as score

__all__ = [
    "Score", "calibrate", "score",
]  # fmt: skip
