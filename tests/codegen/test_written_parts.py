"""Writes to parts whose place is a size: kernels that lie inside of the tensor by a guard, not by the sizes' ranges."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.codegen.compare import compile_module
from tests.export.checks import assert_same, eager


class Parts(nn.Module):
    """Rows x are written into copies of p, at places that sizes say."""

    def forward(self, x: torch.Tensor, p: torch.Tensor) -> list[torch.Tensor]:
        n = x.shape[0]
        found = [p.clone() for _ in range(8)]
        found[0][3 : 3 + n] = x
        found[1][n : 2 * n] = x
        found[2][-n:].add_(x)
        found[3][n:, 1:3].fill_(7)
        found[4][:n].mul_(2)
        found[5].narrow(0, 2, n).copy_(x)
        found[6][n] = x[0]
        return [*found[:7], torch.slice_scatter(found[7], x, 0, 1, 1 + n)]


def test_rows_at_a_place_that_is_a_size() -> None:
    example = (torch.randn(5, 4), torch.randn(20, 4))
    compiled = compile_module(Parts().eval(), example, ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}))
    for n, size in ((5, 20), (2, 9), (9, 18), (7, 31)):
        args = (torch.randn(n, 4), torch.randn(size, 4))
        assert_same(compiled(*args), eager(Parts(), args))


class Split(nn.Module):
    """Each part of a tensor of n rows is written to; how long they are torch decides by n % parts."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        y = x * 2
        for i, part in enumerate(y.tensor_split(self.parts)):
            part[..., 0] = part[..., -1] + i
        return [y, y.sum(1)]


@pytest.mark.parametrize(("parts", "sizes"), [(2, (11, 13)), (3, (11, 14))])
def test_parts_of_two_lengths(parts: int, sizes: tuple[int, ...]) -> None:
    compiled = compile_module(Split(parts).eval(), (torch.randn(11, 4),), ({0: Dim.DYNAMIC},))
    for n in sizes:
        x = (torch.randn(n, 4),)
        assert_same(compiled(*x), eager(Split(parts), x))
