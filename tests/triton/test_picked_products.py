"""Products of one row with matrices that an index picks, in GPU kernels, through Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from tests.codegen.compare import assert_same, eager, normal
from tests.codegen.test_picked_products import DEPTH, Codes, Experts
from tests.triton.test_loops import on_gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_experts(dtype: torch.dtype) -> None:
    module, args = Experts(dtype).eval(), (normal(4, DEPTH, dtype=dtype), torch.tensor([1, 4, 0, 1]))
    compiled = on_gpu(module, args)
    assert_same(compiled(*args), eager(module, args), 4)
    others = (args[0], torch.tensor([-1, 2, 2, -5]))
    assert_same(compiled(*others), eager(module, others), 4)


def test_experts_of_codes() -> None:
    module, args = Codes(torch.bfloat16).eval(), (normal(3, 48, dtype=torch.bfloat16), torch.tensor([4, 0, 4]))
    assert_same(on_gpu(module, args)(*args), eager(module, args), 4)
