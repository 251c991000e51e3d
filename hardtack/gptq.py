"""Weights rounded so that a linear layer's results change little on the data that it was seen to get: GPTQ."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_DAMPING = 0.1
"""What is added to the diagonal of the moments, of its mean: what the data say little of is trusted less. The paper has
0.01, with a hundred times the rows; bench/quantised_accuracy.py tells them apart."""
_BLOCK = 32
"""Columns whose errors are spread over the columns behind them at once."""


def gptq_codes(
    weight: torch.Tensor, scales: torch.Tensor, moments: torch.Tensor, lowest: int, highest: int
) -> torch.Tensor:
    """Whole numbers for weight (N, K), float32 (N, K), from lowest to highest; code * scale stands for a weight.

    scales (N, G), of which each is shared by K / G neighbours of a row, are not changed. moments (K, K): the
    sum of x xᵀ over rows x like those that the layer is given. The error is that of the results,
    tr((W - Q) moments (W - Q)ᵀ); where rounding each weight to its nearest number has a smaller one for a row, that row
    is so.

    Source: Frantar, Ashkboos, Hoefler, Alistarh: GPTQ (ICLR 2023, arXiv:2210.17323), algorithm 1, with columns in the
    order of falling moments, and scales that are known before it begins. Columns are rounded one by one; what is lost
    in one is made good, as far as its correlation goes, by those that are not rounded yet: with U the upper Cholesky
    factor of the inverse of the moments, column j gets -(w_i - q_i) / U_ii * U_ij.
    """
    wide, spread = weight.float(), scales.float().repeat_interleave(weight.shape[1] // scales.shape[1], 1)
    nearest = (wide / spread).round().clamp(lowest, highest)
    order = moments.diagonal().argsort(descending=True)
    factor = _inverse_factor(moments[order][:, order])
    found = torch.empty_like(nearest)
    with _one_thread():
        found[:, order] = _rounded(wide[:, order], spread[:, order], factor, lowest, highest)
    errors = [result_errors(wide - codes * spread, moments) for codes in (found, nearest)]
    return torch.where((errors[0] <= errors[1])[:, None], found, nearest)


def result_errors(difference: torch.Tensor, moments: torch.Tensor) -> torch.Tensor:
    """Of each row of weights (N, K) the sum of squares of its results: its part of tr(W moments Wᵀ), float32 (N,)."""
    wide = difference.float()
    return ((wide @ moments) * wide).sum(1).clamp(min=0)


def _inverse_factor(moments: torch.Tensor) -> torch.Tensor:
    """The upper Cholesky factor of the inverse of the moments, damped; in float32, computed in float64. Inputs that are
    always zero count as others of the damping's size."""
    damped = moments.double()
    mean = damped.diagonal().mean()
    damped.diagonal().add_(_DAMPING * (mean if mean > 0 else 1.0))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    factor: torch.Tensor = torch.linalg.cholesky(inverse, upper=True)
    return factor.float()


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Inside, torch computes in one thread: steps of a few microseconds take longer where they are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _rounded(
    weight: torch.Tensor, scales: torch.Tensor, factor: torch.Tensor, lowest: int, highest: int
) -> torch.Tensor:
    """The codes of a weight (N, K) whose columns are rounded from the first to the last."""
    left, spread = weight.T.contiguous(), scales.T.contiguous()  # a column lies in one piece
    codes, depth = torch.empty_like(left), len(left)
    for begin in range(0, depth, _BLOCK):
        end = min(begin + _BLOCK, depth)
        errors = torch.empty_like(left[begin:end])
        for at in range(begin, end):
            codes[at] = (left[at] / spread[at]).round_().clamp_(lowest, highest)
            errors[at - begin] = (left[at] - codes[at] * spread[at]) / factor[at, at]
            left[at + 1 : end].addr_(factor[at, at + 1 : end], errors[at - begin], alpha=-1)
        left[end:].addmm_(factor[begin:end, end:].T, errors, alpha=-1)
    return codes.T
