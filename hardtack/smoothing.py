"""Static scales of activations, with a factor for each channel that the weights take back."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

_EXPONENTS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""How much of the difficulty goes from activations to weights: 0 is none, 1 makes all channels alike."""
MOST_ROWS = 512
"""Rows of which the errors of results are taken."""
_LEAST = 2.0**-8
"""Of the largest magnitude: less than that counts as that of a channel, so that one that data hardly show is not cut
off at what was seen."""


@dataclass
class Sample:
    """largest (K,), float32: the largest magnitude of each channel of rows of K numbers. rows: up to 512 of them
    that are not zero, each as likely as any other to be there."""

    largest: torch.Tensor
    rows: torch.Tensor
    num_rows: int = 0
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def add(self, rows: torch.Tensor) -> None:
        """Counts rows (R, K) of float32, R at least 1. Behind the first 512 each draws a place among all so far, and
        takes it if it is below 512 (Vitter, algorithm R)."""
        self.largest = torch.maximum(self.largest, rows.abs().amax(0))
        rows = rows[rows.any(1)]
        free = MOST_ROWS - len(self.rows)
        self.rows = torch.cat((self.rows, rows[:free]))
        more = rows[free:]
        begin = self.num_rows + len(rows) - len(more)
        drawn = torch.rand(len(more), generator=self.generator, dtype=torch.float64)
        places = (drawn * torch.arange(begin + 1, begin + len(more) + 1)).long().tolist()
        for row, place in zip(more, places, strict=True):
            if place < MOST_ROWS:
                self.rows[place] = row
        self.num_rows += len(rows)


def smoothing_divisors(weight: torch.Tensor, sample: Sample) -> torch.Tensor:
    """What activations (..., K) are divided by, and the columns of weight (N, K) multiplied with, before both are
    rounded: float32 (K,), such that the largest magnitude of all activations stays what it was; ones where these are
    best.

    Source: Xiao, Lin, Seznec, Wu, Demouth, Han: SmoothQuant (ICML 2023, arXiv:2211.10438), equation 4:
    max|X_k|^a / max|W_k|^(1-a). The exponent a is the one of a few whose results are nearest to the exact ones: of each
    half of the sample with factors and scale by the other half, so that what is cut off in rows that calibration has
    not shown counts, each row the same however long it is.
    """
    wide, middle = weight.float(), len(sample.rows) // 2
    halves = (sample.rows[:middle], sample.rows[middle:]) if middle else (sample.rows, sample.rows)
    errors = [sum(_error(wide, a, *pair) for pair in (halves, halves[::-1])) for a in _EXPONENTS]
    return _by_exponent(wide, sample.largest, _EXPONENTS[errors.index(min(errors))])


def _error(weight: torch.Tensor, exponent: float, shown: torch.Tensor, judged: torch.Tensor) -> float:
    """The sum of squares by which results of rows are off, of rows of length 1, with factors and scale by others."""
    largest = shown.abs().amax(0)
    divisors = _by_exponent(weight, largest, exponent)
    made = weight * divisors
    found = _rounded(judged / divisors, largest.max() / 127.5) @ _rounded(made, _row_scales(made)).T
    lengths = torch.linalg.vector_norm(judged, dim=1, keepdim=True)
    return float(((found - judged @ weight.T) / lengths).square().sum())


def _by_exponent(weight: torch.Tensor, largest: torch.Tensor, exponent: float) -> torch.Tensor:
    """By equation 4, so large that no activation grows beyond the largest."""
    if exponent == 0:
        return torch.ones_like(largest)
    given = largest.clamp(min=float(largest.max()) * _LEAST)
    columns = weight.abs().amax(0)
    columns = columns.clamp(min=max(float(columns.max()) * _LEAST, torch.finfo(torch.float32).tiny))
    made = given**exponent / columns ** (1 - exponent)
    return made * ((largest / made).max() / largest.max())


def _row_scales(weight: torch.Tensor) -> torch.Tensor:
    return (weight.abs().amax(1, keepdim=True) / 127.5).clamp(min=torch.finfo(torch.float32).eps)


def _rounded(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (x / scale).round().clamp(-128, 127) * scale
