"""Quotients by one number for a row, a product and a correction: special numbers come out as in eager mode."""

from __future__ import annotations

import math

import pytest
import torch

from tests.codegen.compare import compile_module

SPECIAL = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 7.0, 1 / 3)
DIVISORS = (*SPECIAL, 3.0, -3.0, 1e30, -1e-30, 2.5e-39)


class Quotient(torch.nn.Module):
    def forward(self, x: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x / d, x.amax(1), x.amin(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_special_numbers(dtype: torch.dtype) -> None:
    x = torch.tensor(SPECIAL, dtype=dtype)
    rows = torch.stack([x.roll(i).repeat(4)[:37] for i in range(len(SPECIAL))] + [v.expand(37) for v in x])
    compiled = compile_module(Quotient().eval(), (rows, torch.tensor(2.0, dtype=dtype)))
    for divisor in DIVISORS:
        d = torch.tensor(divisor, dtype=dtype)
        got, largest, least = compiled(rows, d)
        want = rows / d
        assert torch.equal(got.isnan(), want.isnan())
        assert torch.equal(torch.signbit(got)[~want.isnan()], torch.signbit(want)[~want.isnan()])
        torch.testing.assert_close(got, want, rtol=2 * torch.finfo(dtype).eps, atol=1e-44, equal_nan=True)
        for ours, theirs in ((largest, rows.amax(1)), (least, rows.amin(1))):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
