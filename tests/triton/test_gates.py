"""Gates and what they open as one product whose programs have both, through Triton's interpreter, beside eager mode."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from tests.codegen.compare import Compiled, differences, eager
from tests.support.code_layer import Layer
from tests.support.gates import GATES, Gate, width_of
from tests.triton.test_loops import on_gpu


def halved(compiled: Compiled) -> list[str]:
    """The kernels whose programs have columns of both halves."""
    return [text for text in compiled.entry.sources.values() if "= in_halves(" in text]


def holds(compiled: Compiled, module: nn.Module, x: torch.Tensor, coarse: float = 1.0) -> None:
    want = eager(module, (x,))
    assert not differences(compiled(x), want, coarse)


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("made", GATES.values(), ids=GATES)
@pytest.mark.sweep(over="dtype")
def test_gates_are_eagers(made: Callable[[], nn.Module], dtype: torch.dtype, rows: int) -> None:
    torch.manual_seed(0)
    module = made().eval().to(dtype)
    x = torch.randn(rows, width_of(module)).to(dtype)
    compiled = on_gpu(module, (x,))
    codes = any(isinstance(m, Layer) for m in module.modules())
    if rows == 1:
        assert len(halved(compiled)) == int(codes)
    if not codes:
        holds(compiled, module, x, 4)
        return
    exact = eager(module.double(), (x.double(),))  # eager mode rounds each weight, kernels of codes do not
    for got, want in zip(compiled(x), exact, strict=True):
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(got.double(), want, rtol=0, atol=max(4 * eps, 1e-5) * (1 + want.abs().max().item()))


def test_rows_that_vary() -> None:
    torch.manual_seed(1)
    module = Gate(nn.Linear(96, 112), lambda a, b: F.silu(a) * b).eval()
    compiled = on_gpu(module, (torch.randn(2, 7, 96),), ({0: Dim("batch", max=64), 1: Dim("length", max=64)},))
    assert halved(compiled)
    for batch, length in ((2, 7), (1, 1), (3, 40), (0, 4)):
        holds(compiled, module, torch.randn(batch, length, 96), 4)


class Kept(nn.Module):
    """The product is an output, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 48, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layer(x)
        return y, F.silu(y[:, :24]) * y[:, 24:]


@pytest.mark.parametrize("rows", [5, 40])
def test_a_product_that_is_needed_itself_is_stored_where_it_belongs(rows: int) -> None:
    torch.manual_seed(2)
    module, x = Kept().eval(), torch.randn(rows, 64)
    compiled = on_gpu(module, (x,))
    assert halved(compiled)
    holds(compiled, module, x, 4)


NO_GATES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one half": lambda y: y[:, :24].relu(),
    "quarters": lambda y: y[:, :12] * y[:, 12:24],
    "neighbours": lambda y: y[:, ::2] * y[:, 1::2],
    "uneven parts": lambda y: y[:, :20] * y[:, 20:40],
    "the other order": lambda y: y[:, :24] * y[:, 24:].flip(1),
}


@pytest.mark.parametrize("mixed", NO_GATES.values(), ids=NO_GATES)
def test_what_is_no_half_is_none(mixed: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(3)
    module, x = nn.Sequential(nn.Linear(64, 48), Then(mixed)).eval(), torch.randn(6, 64)
    compiled = on_gpu(module, (x,))
    assert not halved(compiled)
    holds(compiled, module, x, 4)


class Then(nn.Module):
    def __init__(self, mixed: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.mixed = mixed

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return self.mixed(y)
