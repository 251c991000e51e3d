"""Comparison step by step of a model that writes one state several times."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import hardtack
from hardtack.comparison import compare


class Cache(nn.Module):
    k: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.zeros(3, 4, 8))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        for i in range(3):
            self.k[i].index_copy_(0, at, x.tanh())
            x = x + self.k[i].cumsum(0)[-1:]
        return x


def test_the_last_write_of_a_state_is_compared(tmp_path: Path) -> None:
    path, args = tmp_path / "m.pkg", (torch.randn(1, 8), torch.tensor([2]))
    hardtack.export(Cache().eval(), args, path=path, targets=["cpu:x86-64-v3"], progress=False)
    found = compare(hardtack.load(path, device="cpu"), Cache().eval(), args, steps=True)
    written = [d for d in found.steps if d.shape == (3, 4, 8)]
    assert len(written) == 1
    assert all(d.relative <= d.allowed for d in found.steps), found.steps


class Turns(nn.Module):
    sign: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sign", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sign.mul_(-1)
        return self.sign * x


def test_steps_begin_from_the_states_that_outputs_begin_from(tmp_path: Path) -> None:
    """Eager changes the module's buffers, and the graph that steps are compared with starts from these."""
    path, args, module = tmp_path / "m.pkg", (torch.randn(3, 2),), Turns().eval()
    hardtack.export(module, args, path=path, targets=["cpu:x86-64-v3"], progress=False)
    found = compare(hardtack.load(path, device="cpu"), module, args, steps=True)
    assert found.steps
    assert all(d.absolute == 0 for d in (*found.outputs, *found.steps)), found
