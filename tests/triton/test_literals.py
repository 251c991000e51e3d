"""Literals in Triton's kernels: each has all its digits, its sign and its type."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
import math

import pytest
import torch
import torch.nn.functional as F

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.backends.triton.triton_spelling import argument, number, typed
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.data import H200
from tests.codegen.compare import compile_module, eager
from tests.codegen.runner import KernelFailed
from tests.triton.simulate import Simulator

ODD, MOST = 2**53 + 1, 2**63 - 1


class Literals(torch.nn.Module):
    """In operators, functions, masked loads and filled tensors."""

    def forward(self, d: torch.Tensor, f: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
        return [
            *(d * (1 / 6), d + 0.1, d.clamp(min=0.3), torch.where(d > 0, d, 0.7), F.pad(d, (1, 1), value=0.2)),
            *(d * 5e-324, torch.where(d > 0, d, 1e-310), d * math.inf, torch.where(d > 0, d, math.nan), d + 1e300),
            *(f * 1e-40, f.clamp(min=1e-40), torch.where(f > 0, f, 1e-40), f * -0.0, F.pad(f, (1, 1), value=-0.0)),
            *(
                torch.where(f > 0, f, -0.0),
                torch.where(d > 0, d, -0.0),
                -f,
                -d,
                torch.full_like(f, -0.0) + f * 0.0,
            ),
            *(
                n + ODD,
                torch.where(n > 0, n, ODD),
                n.clamp(min=-(2**63)),
                F.pad(n, (1, 1), value=ODD),
                n * 0 + MOST,
            ),
        ]


def test_every_place() -> None:
    d = torch.tensor([0.0, -0.0, 1.0, -3.5, 5e-324, 1e300, 0.25, -1e-310], dtype=torch.float64)
    args = (d, d.float().clone(), torch.arange(8) - 4)
    module = Literals().eval()
    got = compile_module(module, args, None, None, TritonBackend(H200), Simulator)(*args)
    for k, (g, w) in enumerate(zip(got, eager(module, args), strict=True)):
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True, msg=lambda m, k=k: f"output {k}: {m}")
        if g.dtype.is_floating_point:
            assert torch.equal(torch.signbit(g) & (g == 0), torch.signbit(w) & (w == 0)), f"output {k}: sign of zero"


@pytest.mark.parametrize("number", [0.1, 1.1, -0.7, 16777217.0, 1e-310, 1e39])
def test_comparisons_have_all_digits(number: float) -> None:
    """Triton's comparisons take a bare float for f32, whatever they compare it with."""

    class Comparisons(torch.nn.Module):
        def forward(self, d: torch.Tensor) -> list[torch.Tensor]:
            return [d < number, d <= number, d > number, d >= number, d == number, d != number]

    exact = torch.tensor(number, dtype=torch.float64)
    below, above = (torch.nextafter(exact, torch.full_like(exact, to)) for to in (-math.inf, math.inf))
    module, args = Comparisons().eval(), (torch.stack([exact, exact.float().double(), below, above]),)
    got = compile_module(module, args, None, None, TritonBackend(H200), Simulator)(*args)
    for g, w in zip(got, eager(module, args), strict=True):
        assert g.tolist() == w.tolist()


@pytest.mark.parametrize(
    ("literal", "bare", "argued"),
    [
        (Lit(0.1, DType.F32), "0.10000000149011612", "0.10000000149011612"),
        (Lit(1e300, DType.F32), 'float("inf")', 'float("inf")'),
        (Lit(0.1, DType.F64), "tl.full((), 0.1, tl.float64)", "tl.full((), 0.1, tl.float64)"),
        (Lit(0.5, DType.F64), "0.5", "tl.full((), 0.5, tl.float64)"),
        (Lit(-2, DType.I64), "(-2)", "tl.full((), (-2), tl.int64)"),
        (Lit(3, DType.I32), "3", "3"),
        (Lit(True, DType.BOOL), "True", "tl.full((), 1, tl.int1)"),
        (Lit(0.1, DType.BF16), "0.10009765625", "0.10009765625"),
    ],
)
def test_spelling(literal: Lit, bare: str, argued: str) -> None:
    assert number(literal) == bare
    assert argument(literal) == argued


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16])
def test_negative_zero_has_its_bits(dtype: DType) -> None:
    literal = Lit(-0.0, dtype)
    assert number(literal) == typed(literal)
    assert "bitcast=True" in number(literal)


class ByZero(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x % 0, torch.div(x, 0, rounding_mode="floor")


def test_a_division_by_zero_fails_where_there_is_something_to_divide() -> None:
    none, some = torch.zeros(0, dtype=torch.int32), torch.ones(3, dtype=torch.int32)
    for got in compile_module(ByZero().eval(), (none,), backend=TritonBackend(H200), runner=Simulator)(none):
        assert got.numel() == 0
    with pytest.raises(KernelFailed, match="returned 2"):
        compile_module(ByZero().eval(), (some,), backend=TritonBackend(H200), runner=Simulator)(some)
