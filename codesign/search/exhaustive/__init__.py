"""Every plan at every level, in blocks, with the best, the front and histograms of all."""

from .grid import BLOCK as BLOCK
from .grid import Grid as Grid
from .grid import Screened as Screened
from .grid import Sweep as Sweep
from .grid import screen as screen

__all__ = [
    "BLOCK", "Grid", "Screened", "Sweep", "screen",
]  # fmt: skip
