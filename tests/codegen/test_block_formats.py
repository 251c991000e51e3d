"""Weights of MXFP4, MXFP8 and NVFP4 on CPUs: codes and scales stay bytes, and give eager's numbers bit by bit."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.codegen.compare import Compiled, assert_same, compile_module
from tests.support.block_formats import FORMATS, Blocks


def assert_bytes(compiled: Compiled) -> None:
    """What a target reads of the weight is codes, scales and a factor."""
    assert all(any(part in name for part in (".codes", ".mul0", ".factor0")) for name in compiled.entry.prepacks), list(
        compiled.entry.prepacks
    )
    assert not compiled.entry.constants


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("bits", [False, True])
@pytest.mark.sweep(over=("dtype", "bits"))
def test_each_weight_is_eagers(kind: str, dtype: torch.dtype, bits: bool) -> None:
    """Rows of the unit matrix pick weights: one, a few, made in registers, and many, made before."""
    module = Blocks(192, 72, kind, dtype, bits).eval()
    want, unit = module.weight().mT, torch.eye(192).to(dtype)
    for rows in (1, 3, 40):
        compiled = compile_module(module, (unit[:rows],))
        for first in range(0, 192 - rows + 1, max(rows, 16)):
            (got,) = compiled(unit[first : first + rows].clone())
            assert torch.equal(got, want[first : first + rows] + 0.0), (rows, first)


@pytest.mark.parametrize("kind", FORMATS)
def test_products(kind: str) -> None:
    module = Blocks(96, 130, kind, torch.bfloat16).eval()
    for rows in (1, 4, 5, 70):
        x = torch.randn(rows, 96, generator=torch.Generator().manual_seed(rows)).bfloat16()
        compiled = compile_module(module, (x,))
        assert_bytes(compiled)
        assert_same(compiled(x), [module(x)])


class Picked(torch.nn.Module):
    """Rows of a weight of blocks."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = Blocks(64, 40, kind, torch.bfloat16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids, self.layer.weight())


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_are_picked_from_codes(kind: str) -> None:
    module, ids = Picked(kind).eval(), torch.arange(40)
    compiled = compile_module(module, (ids,))
    assert_bytes(compiled)
    (got,) = compiled(ids)
    assert torch.equal(got.view(torch.int16), module(ids).view(torch.int16))
