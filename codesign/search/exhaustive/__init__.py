"""Every plan at every level, in blocks, with the best, the front and histograms of all."""

from .chunk_files import load_portion, save_portion
from .chunk_work import ChunkWork
from .chunks import Chunk, Gathering, Portion, cut, edges_of, merged
from .distributed import ChunkFolders, screen_in_chunks
from .grid import BLOCK, Grid, screen
from .stream import Kept
from .sweep import Screened, Sweep

__all__ = [
    "BLOCK", "Chunk", "ChunkFolders", "ChunkWork", "Gathering", "Grid", "Kept", "Portion", "Screened", "Sweep", "cut",
    "edges_of", "load_portion", "merged", "save_portion", "screen", "screen_in_chunks",
]  # fmt: skip
