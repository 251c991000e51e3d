"""Gates and what they open as one product whose programs have both, through Triton's interpreter, beside eager mode."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardtack.codegen.tune import code_plan
from tests.codegen.compare import Compiled, differences, eager
from tests.support.code_layer import Layer
from tests.support.gates import GATES, Codes, Gate, width_of
from tests.triton.test_loops import on_gpu


def halved(compiled: Compiled) -> list[str]:
    """The kernels whose programs have columns of both halves."""
    return [text for text in compiled.entry.sources.values() if "= in_halves(" in text]


@pytest.mark.parametrize("rows", [1, 5])
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
    if codes:
        near(compiled, module, x)
    else:
        assert not differences(compiled(x), eager(module, (x,)), 4)


def near(compiled: Compiled, module: nn.Module, x: torch.Tensor) -> None:
    """Eager mode rounds each weight, kernels of codes do not: held against float64."""
    exact = eager(module.double(), (x.double(),))
    for got, want in zip(compiled(x), exact, strict=True):
        atol = max(4 * torch.finfo(x.dtype).eps, 1e-5) * (1 + want.abs().max().item())
        torch.testing.assert_close(got.double(), want, rtol=0, atol=atol)


@pytest.mark.parametrize("narrow", [{4: 8, 8: 4}, {4: 0, 8: 0}], ids=["one warp's columns", "several"])
def test_a_row_by_fragments(narrow: dict[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose lanes have two columns: of a warp that is alone one of each half, of others both of one."""
    monkeypatch.setattr(code_plan, "FEWEST_COLUMNS_OF_ONE_ROW", 0)
    monkeypatch.setattr(code_plan, "NARROW_PROGRAMS", narrow)
    torch.manual_seed(4)
    module = Gate(Codes(256, 648, 4, 128), lambda a, b: F.silu(a) * b).eval().bfloat16()
    x = torch.randn(1, 256).bfloat16()
    compiled = on_gpu(module, (x,))
    (text,) = halved(compiled)
    assert "= add_products(" in text
    near(compiled, module, x)


class Kept(nn.Module):
    """The product is an output, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Codes(512, 1056)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = F.linear(x, self.layer.weight(x.dtype))
        return y, F.silu(y[:, :528]) * y[:, 528:]


def test_a_product_that_is_needed_itself_is_stored_where_it_belongs() -> None:
    torch.manual_seed(2)
    module, x = Kept().eval(), torch.randn(1, 512)
    compiled = on_gpu(module, (x,))
    assert halved(compiled)
    near(compiled, module, x)


NO_GATES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one half": lambda y: y[:, :528].relu(),
    "quarters": lambda y: y[:, :264] * y[:, 264:528],
    "neighbours": lambda y: y[:, ::2] * y[:, 1::2],
    "uneven parts": lambda y: y[:, :520] * y[:, 520:1040],
    "the other order": lambda y: y[:, :528] * y[:, 528:].flip(1),
}


@pytest.mark.parametrize("mixed", NO_GATES.values(), ids=NO_GATES)
def test_what_is_no_half_is_none(mixed: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(3)
    module, x = nn.Sequential(Codes(512, 1056), Then(mixed)).eval(), torch.randn(1, 512)
    compiled = on_gpu(module, (x,))
    assert not halved(compiled)
    near(compiled, module, x)


class Then(nn.Module):
    def __init__(self, mixed: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.mixed = mixed

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return self.mixed(y)
