"""Second moments of what a layer is given."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class Moments:
    """sums (K, K), float32: of x xᵀ over num_rows rows x of K numbers, each scaled to length 1, since a few rows of
    huge numbers, as transformers have them at special tokens, would decide over all others. Rows of zeros do not
    count."""

    sums: torch.Tensor
    num_rows: int = 0

    def add(self, rows: torch.Tensor) -> None:
        """Counts rows (R, K) of float32."""
        lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        scaled = (rows / lengths)[lengths[:, 0] > 0]
        self.sums.addmm_(scaled.T, scaled)
        self.num_rows += len(scaled)

    @property
    def is_enough(self) -> bool:
        """True for at least as many rows as numbers in a row: with fewer, there are changes of weights that none of the
        rows shows."""
        return self.num_rows >= len(self.sums)
