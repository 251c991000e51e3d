"""Scales of blocks as cuBLAS wants them in memory, which torch calls SWIZZLE_32_4_4: tiles of 128 rows and 4 columns,
in each of which 4 groups of 32 rows lie side by side. What fills the last tiles means nothing."""

from __future__ import annotations

import torch

ROWS, COLUMNS = 128, 4
"""Of a tile."""


def swizzled_numel(rows: int, columns: int) -> int:
    """Of the scales of a matrix, with what fills the last tiles."""
    return -(-rows // ROWS) * ROWS * -(-columns // COLUMNS) * COLUMNS


def from_swizzled(scales: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """[rows, columns] of the swizzled_numel elements of `scales`, of any shape and dtype."""
    tiles = -(-rows // ROWS), -(-columns // COLUMNS)
    apart = scales.reshape(*tiles, 32, 4, COLUMNS).permute(0, 3, 2, 1, 4)
    return apart.reshape(tiles[0] * ROWS, tiles[1] * COLUMNS)[:rows, :columns]
