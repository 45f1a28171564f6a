"""Every plan at every level, in blocks, with the best, the front and histograms of all."""

from .chunks import (
    Chunk,
    ChunkFolders,
    ChunkWork,
    Gathering,
    Portion,
    cut,
    edges_of,
    load_portion,
    merged,
    save_portion,
    screen_in_chunks,
)
from .grid import BLOCK, Grid, screen
from .sweep import Screened, Sweep, TopDesigns

__all__ = [
    "BLOCK", "Chunk", "ChunkFolders", "ChunkWork", "Gathering", "Grid", "Portion", "Screened", "Sweep", "TopDesigns",
    "cut", "edges_of", "load_portion", "merged", "save_portion", "screen", "screen_in_chunks",
]  # fmt: skip
