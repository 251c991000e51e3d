"""All rows of the tables of torch calls, several of them as one module."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.export import rows_nn, rows_pointwise, rows_tensors
from tests.export.op_inputs import Row

ROWS: list[Row] = [*rows_pointwise.ROWS, *rows_tensors.ROWS, *rows_nn.ROWS]
GROUP = 12
GROUPS = [ROWS[i : i + GROUP] for i in range(0, len(ROWS), GROUP)]


class RowsModule(nn.Module):
    """Several rows as one module, which is exported once: the inputs of all rows in a line."""

    def __init__(self, rows: list[Row]) -> None:
        super().__init__()
        self.rows = rows
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> Any:
        rest = list(tensors)
        found: dict[str, Any] = {}
        for name, function, inputs in self.rows:
            found[name] = function(*(rest.pop(0) for _ in inputs))
        return found
