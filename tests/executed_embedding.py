"""Embedding look-ups carried out on simulated devices: real rows, real messages, every byte and addition counted.

Knows nothing of the package's formulas: devices own blocks of tables, ask one another for what they need and add it up.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Device:
    """What one device did."""

    rows_read: int = 0
    row_bytes_read: int = 0
    additions: int = 0
    index_bytes_in: int = 0
    sum_bytes_out: Counter = field(default_factory=Counter)  # receiver -> bytes
    held_bytes: int = 0


@dataclass
class Run:
    """The pooled vectors [sample, table, dimension] and the devices' counters."""

    pooled: np.ndarray
    devices: list[Device]


def owner(table: int, row_piece: int, column_piece: int, pieces: tuple[int, int], tables_each: int) -> int:
    """Rank of a block: neighbouring ranks hold the row pieces, then the column pieces, of one group's tables."""
    rows, columns = pieces
    return (table // tables_each) * rows * columns + column_piece * rows + row_piece


def execute(
    tables: np.ndarray, indices: np.ndarray, devices: int, pieces: tuple[int, int], index_bytes: int, length_bytes: int
) -> Run:
    """Look `indices` [sample, table, pooling] up in `tables` [table, row, dimension] cut into pieces (rows, columns).

    Samples belong to devices in equal runs. Each device sends a holder the indices that the holder has, with the
    number of them for each sample and table; the holder adds its rows up and returns partial sums: first the row
    pieces of a block add theirs (each keeps the sum of an equal run of samples), then sums go to the samples' owners.
    """
    count, height, width = tables.shape
    samples = len(indices)
    rows, columns = pieces
    groups = devices // (rows * columns)
    each = -(-count // groups)
    made = [Device() for _ in range(devices)]
    piece_height, piece_width = height // rows, width // columns
    element = tables.itemsize
    home = samples // devices
    partial: dict[tuple[int, int, int], np.ndarray] = {}  # (table, row piece, column piece) -> [sample, piece width]
    for table in range(count):
        for r in range(rows):
            for c in range(columns):
                device = made[owner(table, r, c, pieces, each)]
                block = tables[
                    table, r * piece_height : (r + 1) * piece_height, c * piece_width : (c + 1) * piece_width
                ]
                device.held_bytes += block.size * element
                sums = np.zeros((samples, piece_width), tables.dtype)
                for sample in range(samples):
                    device.index_bytes_in += length_bytes
                    for index in indices[sample, table]:
                        if index // piece_height != r:
                            continue
                        device.index_bytes_in += index_bytes
                        device.rows_read += 1
                        device.row_bytes_read += piece_width * element
                        device.additions += piece_width
                        sums[sample] += block[index % piece_height]
                partial[table, r, c] = sums
    return Run(_send(partial, made, pieces, each, samples, home, count, width, element), made)


def _send(partial, made, pieces, each, samples, home, count, width, element) -> np.ndarray:
    """Partial sums to the owners of the samples, in two steps; returns what arrives."""
    rows, columns = pieces
    piece_width = width // columns
    pooled = np.zeros((samples, count, width))
    run = samples // rows
    for table in range(count):
        for c in range(columns):
            for keeper in range(rows):  # reduce-scatter: piece `keeper` ends with the sums of its run of samples
                part = slice(keeper * run, (keeper + 1) * run)
                holder, total = owner(table, keeper, c, pieces, each), partial[table, keeper, c][part].copy()
                for other in range(rows):
                    if other != keeper:
                        total += partial[table, other, c][part]
                        made[owner(table, other, c, pieces, each)].sum_bytes_out["rows"] += run * piece_width * element
                for sample in range(keeper * run, (keeper + 1) * run):
                    # ranks are paired so that a keeper holds the samples of the devices with its own place in a group
                    home_of = _home(sample, samples, rows, len(made))
                    if home_of != holder:
                        made[holder].sum_bytes_out["tables"] += piece_width * element
                    pooled[sample, table, c * piece_width : (c + 1) * piece_width] = total[sample - keeper * run]
    return pooled


def _home(sample: int, samples: int, rows: int, devices: int) -> int:
    """The device whose perceptrons need a sample: run k of the reduce-scatter serves the devices k modulo rows."""
    run = samples // rows
    place, within = divmod(sample, run)
    blocks = devices // rows
    return (within * blocks // run) * rows + place


def balanced_indices(rng, samples: int, count: int, pooling: int, height: int, row_pieces: int) -> np.ndarray:
    """Random rows of which every piece of a table gets an equal part in every sample."""
    piece = height // row_pieces
    place = np.arange(pooling) % row_pieces
    return place * piece + rng.integers(0, piece, (samples, count, pooling))
