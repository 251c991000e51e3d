"""Batch norm that is asked for in training by a module in eval mode: its running statistics are states."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import hardtack
from hardtack.errors import InputError
from tests.export.checks import check
from tests.export.op_inputs import randn


class Norm(nn.Module):
    def __init__(self, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.tensor([0.5, -1.0, 2.0]))
        self.register_buffer("var", torch.tensor([1.0, 0.5, 3.0]))
        self.weight, self.bias = nn.Parameter(torch.tensor([1.0, 2.0, 0.5])), nn.Parameter(torch.tensor([0.0, 1, -1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, self.mean, self.var, self.weight, self.bias, True, self.momentum, 1e-5)


@pytest.mark.parametrize("momentum", [0.1, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=["f32", "f64", "bf16"])
def test_outputs_and_running_statistics_are_eagers(momentum: float, dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.randn(4, 3, 5, 2, generator=torch.Generator().manual_seed(0), dtype=dtype)
    out = tmp_path / "norm.pkg"
    module = Norm(momentum).to(dtype).eval()
    hardtack.export(module, (x,), path=out, dynamic_shapes=({0: Dim("n", max=9)},), targets=("cpu:native",))
    session, eager = hardtack.load(out).session(), Norm(momentum).to(dtype).eval()
    for n, scale in ((4, 1.0), (1, 3.0), (9, 0.5)):
        given = torch.cat([x, x + 1, x])[:n] * scale + scale
        near = 2e-2 if dtype is torch.bfloat16 else 1e-5
        torch.testing.assert_close(session(given), eager(given), rtol=near, atol=near)
        for name, want in (("mean", eager.mean), ("var", eager.var)):
            found = torch.from_numpy(session.read_state(name))
            found = found.view(dtype) if dtype is torch.bfloat16 else found
            torch.testing.assert_close(found, want, rtol=near, atol=near)


def test_moments_of_a_batch_that_has_no_part() -> None:
    """They have no elements."""
    mean, var = torch.tensor([0.5, -1.0]), torch.tensor([1.0, 0.5])
    check(lambda x: torch.native_batch_norm(x, None, None, mean, var, False, 0.1, 1e-5), (randn(4, 2, 3),))


def test_one_value_of_a_channel_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "norm.pkg"
    dynamic = ({0: Dim.DYNAMIC},)
    hardtack.export(Norm(0.1).eval(), (torch.randn(4, 3),), path=out, dynamic_shapes=dynamic, targets=("cpu:native",))
    with pytest.raises(InputError):
        hardtack.load(out)(torch.randn(1, 3))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        Norm(0.1).eval()(torch.randn(1, 3))
