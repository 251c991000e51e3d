"""Gates and what they open as one product whose programs have both, on the GPU, beside eager mode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.gpu.support import assert_close, eager, exported
from tests.support.gates import GATES, width_of


@pytest.mark.parametrize("rows", [1, 4, 16, 40, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("made", GATES.values(), ids=GATES)
def test_gates_are_eagers(
    made: Callable[[], nn.Module], dtype: torch.dtype, rows: int, tmp_path: Path, target: str
) -> None:
    torch.manual_seed(0)
    module = made().eval().to(dtype).cuda()
    example = torch.randn(rows, width_of(module), device="cuda").to(dtype)
    session = exported(module, (example,), tmp_path, target).session()
    for seed in range(3):  # plain, captured, replayed
        torch.manual_seed(seed)
        x = torch.randn_like(example)
        assert_close([session(x)], eager(module, (x,)), 4)
