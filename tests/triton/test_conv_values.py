"""Convolutions of infinities and NaN: a window takes what lies in it, and nothing of what it is loaded with."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter

import pytest
import torch
from torch import nn

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.machine.data import H200
from tests.codegen.compare import assert_same, compile_module, eager
from tests.triton.simulate import Simulator

CONVOLUTIONS = {
    "few channels": nn.Conv2d(3, 2, (5, 2)),
    "one channel": nn.Conv2d(1, 4, (2, 3), stride=2, padding=2, padding_mode="circular"),
    "a stem": nn.Conv2d(3, 8, 7, stride=2, padding=3),
    "rows of points": nn.Conv1d(2, 3, 4, stride=3),
    "groups": nn.Conv2d(6, 4, 3, groups=2),
    "many channels": nn.Conv2d(20, 8, 3, padding=1),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_what_is_not_finite_stays_in_its_windows(name: str) -> None:
    module = CONVOLUTIONS[name].eval()
    size = (9,) * (len(module.kernel_size))
    x = torch.randn(1, module.in_channels, *size, generator=torch.Generator().manual_seed(0))
    flat = x.view(-1)
    flat[5], flat[40 % flat.numel()], flat[-1] = float("nan"), float("inf"), -float("inf")
    found = compile_module(module, (x,), backend=TritonBackend(H200), runner=Simulator)(x)
    assert_same(found, eager(module, (x,)), 4)
