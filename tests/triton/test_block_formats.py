"""Weights of MXFP4, MXFP8 and NVFP4 in GPU kernels, through Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from tests.codegen.test_block_formats import Picked, assert_bytes
from tests.support.block_formats import FORMATS, Blocks
from tests.triton.test_codes import by_codes, tiled
from tests.triton.test_loops import on_gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.sweep(over="dtype")
def test_each_weight_is_eagers(kind: str, dtype: torch.dtype) -> None:
    """Rows of the unit matrix pick weights: one row by codes, few in tiles, many of numbers that a nest makes."""
    module = Blocks(128, 40, kind, dtype).eval()
    want, unit = module.weight().mT, torch.eye(128).to(dtype)
    for rows in (1, 6, 70):
        compiled = on_gpu(module, (unit[:rows],))
        assert_bytes(compiled)
        assert bool(by_codes(compiled)) == (rows == 1)
        assert tiled(compiled) == (rows == 6 and kind != "nvfp4")
        for first in range(0, 128 - rows + 1, 32 if rows == 1 else rows):
            (got,) = compiled(unit[first : first + rows].clone())
            assert torch.equal(got, want[first : first + rows] + 0.0), (rows, first)


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_are_picked_from_codes(kind: str) -> None:
    module, ids = Picked(kind).eval(), torch.arange(40)
    compiled = on_gpu(module, (ids,))
    assert_bytes(compiled)
    (got,) = compiled(ids)
    assert torch.equal(got.view(torch.int16), module(ids).view(torch.int16))
