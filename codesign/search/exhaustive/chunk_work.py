"""Chunks computed by whatever process is asked to: a study goes there once, and is traced there once."""

import contextlib
from pathlib import Path

import numpy as np

from ...core.errors import ConfigError
from ..sent_problem import AbstractSentWork
from .chunk_files import save_portion
from .chunks import Chunk, Portion, run, study_of
from .sweep import Sweep

_ready: dict[str, Sweep] = {}  # of the study that this process worked on last


class ChunkWork(AbstractSentWork):
    """Computes chunks of one study, here or in another process, which traces the model once.

    Args:
        sweep: over all blocks.
        edges: of the histogram.
        folder: that a worker leaves its chunk in, where it sees it: then no chunk is lost with whoever asked for it.
    """

    def __init__(self, sweep: Sweep, edges: np.ndarray, folder: str = ""):
        self.problem, self.block, self.keep = sweep.problem, sweep.size, sweep.keep
        self.study, self.edges = study_of(sweep), edges
        self.folder = folder
        _ready.clear()
        _ready[self.study] = sweep

    def _sweep(self) -> Sweep:
        sweep = _ready.get(self.study)
        if sweep is None:
            sweep = Sweep(self.problem, self.block, self.keep)
            if study_of(sweep) != self.study:
                raise ConfigError("a worker reads another study than it was given: install the same version everywhere")
            _ready.clear()
            _ready[self.study] = sweep
        return sweep

    def __call__(self, chunk: Chunk) -> Portion:
        """Compute one chunk."""
        sweep = self._sweep()
        portion = run(sweep, chunk, self.edges)
        if self.folder and Path(self.folder).is_dir():
            with contextlib.suppress(
                OSError
            ):  # a disk that is full, or not there to be written: whoever asked tries too
                save_portion(portion, sweep, Path(self.folder))
        return portion
