"""Infinities and NaN reach the outputs whose windows hold them, and no other."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.codegen.compare import assert_same, eager
from tests.triton.test_loops import normal, on_gpu

CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "few channels": (nn.Conv2d(3, 2, (5, 2)), (1, 3, 9, 7)),
    "one channel, stride 2": (nn.Conv2d(1, 1, (2, 3), stride=2, padding=2), (1, 1, 16, 7)),
    "the first of ResNet": (nn.Conv2d(3, 8, 7, stride=2, padding=3), (1, 3, 12, 12)),
    "one dimension": (nn.Conv1d(2, 5, 3), (2, 2, 20)),
    "taps of many channels": (nn.Conv2d(24, 5, 3, padding=1), (1, 24, 5, 6)),
    "groups": (nn.Conv2d(8, 8, 3, groups=4), (1, 8, 6, 6)),
    "depthwise": (nn.Conv2d(8, 8, 3, groups=8), (1, 8, 6, 9)),
    "transposed": (nn.ConvTranspose2d(4, 3, 3, stride=2), (1, 4, 5, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_special_values_stay_in_their_windows(name: str) -> None:
    torch.manual_seed(0)
    module, shape = CASES[name]
    x = normal(*shape)
    flat = x.view(-1)
    flat[5], flat[len(flat) // 2], flat[-3] = torch.inf, torch.nan, -torch.inf
    want = eager(module.eval(), [x])
    assert want[0].isfinite().any()
    assert_same(on_gpu(module, [x])(x), want, 5)
