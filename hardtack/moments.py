"""Second moments of what a layer is given, and how far few rows are to be believed."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class Moments:
    """sums (K, K), float32: of x xᵀ over num_rows rows x of K numbers, each scaled to length 1, since a few rows of
    huge numbers, as transformers have them at special tokens, would decide over all others. squares: the sum, over rows
    and all i ≠ j, of (x_i x_j)². Rows of zeros do not count."""

    sums: torch.Tensor
    num_rows: int = 0
    squares: float = 0.0

    def add(self, rows: torch.Tensor) -> None:
        """Counts rows (R, K) of float32."""
        lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        rows = (rows / lengths)[lengths[:, 0] > 0]
        self.sums.addmm_(rows.T, rows)
        self.num_rows += len(rows)
        powers = rows.double().square()
        self.squares += float(powers.sum(1).square().sum() - powers.square().sum())

    @property
    def is_enough(self) -> bool:
        """True for at least as many rows as numbers in a row: with fewer, there are changes of weights that none of the
        rows shows."""
        return self.num_rows >= len(self.sums)

    def shrunk(self) -> torch.Tensor:
        """The sums with what lies beside the diagonal made smaller, (K, K): by the part of it that chance accounts for.
        Of few rows many a correlation is chance, and few is left of it; of one row nothing.

        Source: Schäfer, Strimmer: A shrinkage approach to large-scale covariance matrix estimation (2005), target D,
        the diagonal: the part is the sum of the variances of the mean products of two numbers, over the sum of the
        squares of these means, at most 1.
        """
        diagonal = torch.diag(self.sums.diagonal())
        means = (self.sums - diagonal).double() / max(self.num_rows, 1)
        total = float(means.square().sum())
        if self.num_rows < 2 or not total:
            return diagonal
        variance = (self.squares / self.num_rows - total) / (self.num_rows - 1)
        part = min(1.0, max(0.0, variance / total))
        return diagonal + (self.sums - diagonal) * (1 - part)
