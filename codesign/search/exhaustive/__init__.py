"""Every plan at every level, in blocks, with the best, the front and histograms of all."""

from .grid import BLOCK, Grid, Screened, Sweep, screen

__all__ = [
    "BLOCK", "Grid", "Screened", "Sweep", "screen",
]  # fmt: skip
