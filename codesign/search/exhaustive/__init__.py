"""Every plan at every level, in blocks, with the best, the front and histograms of all."""

from .chunks import (
    Chunk,
    ChunkFolders,
    ChunkWork,
    Portion,
    PortionMerger,
    cut,
    edges_of,
    load_portion,
    merged,
    save_portion,
    screen_in_chunks,
)
from .grid import BLOCK, Grid, screen
from .sweep import Sweep, SweepResult, TopDesigns

__all__ = [
    "BLOCK", "Chunk", "ChunkFolders", "ChunkWork", "Grid", "Portion", "PortionMerger", "Sweep", "SweepResult",
    "TopDesigns", "cut", "edges_of", "load_portion", "merged", "save_portion", "screen", "screen_in_chunks",
]  # fmt: skip
