"""GELU as one function, where its result is rounded to 16 bits."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
import math

import pytest
import torch

from hardtack.codegen.ir.graph import Graph, Lit
from hardtack.codegen.ir.types import DType
from hardtack.exporter.dtypes import TORCH_DTYPE
from tests.triton import template_runs
from tests.triton.template_runs import GraphOf


def gelu_graph(
    dtype: DType, numel: int, kind: str = "erf", factor: float | None = None, swapped: bool = False
) -> Graph:
    """x / 2 * (1 + erf(x * factor)) or x / 2 * (1 + tanh(factor * (x + 0.044715 x^3))) in f32. swapped: with the
    arguments in the other order."""
    g, shape, f32 = GraphOf(), [numel], DType.F32

    def op(kind: str, *args: object) -> str:
        return g.op(kind, *(reversed(args) if swapped else args), dtype=f32, shape=shape)

    g.input("x", dtype, shape)
    x = "x" if dtype is f32 else g.op("cast", "x", dtype=f32, shape=shape)
    if kind == "erf":
        inner = op("mul", x, Lit(math.sqrt(0.5) if factor is None else factor, f32))
    else:
        cube = op("mul", op("mul", x, x), x)
        inner = op("add", x, op("mul", cube, Lit(0.044715, f32)))
        inner = op("mul", inner, Lit(math.sqrt(2 / math.pi) if factor is None else factor, f32))
    share = op("add", op(kind, inner), Lit(1.0, f32))
    y = op("mul", op("mul", x, Lit(0.5, f32)), share)
    return g.done(y if dtype is f32 else g.op("cast", y, dtype=dtype, shape=shape))


def text_of(graph: Graph) -> str:
    (found,) = template_runs.kernels(template_runs.lowered(graph, "sm_90", {}), "sm_90", {})
    return found[1].text


def exact_gelu(x: torch.Tensor, kind: str) -> torch.Tensor:
    """In f64, also where the share of x is far below what 1 + erf can tell."""
    if kind == "erf":
        return x * torch.special.ndtr(x)
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


KINDS = pytest.mark.parametrize("kind", ["erf", "tanh"])


@KINDS
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_every_value(dtype: DType, kind: str) -> None:
    """At most 2^-14 of the value and 5e-8 are added to what rounding to 16 bits takes."""
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(TORCH_DTYPE[dtype])
    (y,) = template_runs.run(gelu_graph(dtype, every.numel(), kind), {"x": every})
    x = every.double()
    exact = exact_gelu(x, kind)
    finite = torch.isfinite(x)
    step = torch.finfo(y.dtype).eps * 2.0 ** torch.floor(torch.log2(exact.abs().clamp(min=torch.finfo(y.dtype).tiny)))
    off = (y.double() - exact).abs() - (step / 2 + exact.abs() * 2.0**-14 + 5e-8)
    worst = torch.where(finite, off, -1.0).argmax()
    assert off[worst] <= 0, f"gelu({x[worst]}) is {exact[worst]}, not {y[worst]}"
    assert torch.equal(torch.isnan(y), torch.isnan(every))
    assert y[every == math.inf].item() == math.inf
    assert abs(y[every == -math.inf].item()) < 1e-15


@KINDS
@pytest.mark.parametrize("swapped", [False, True])
def test_is_found(kind: str, swapped: bool) -> None:
    text = text_of(gelu_graph(DType.BF16, 64, kind, swapped=swapped)).partition("def kernel")[2]
    assert f"coarse_gelu{'_tanh' if kind == 'tanh' else ''}(" in text
    assert "0.044715" not in text
    assert f"coarse_{kind}(" not in text


@KINDS
def test_is_left_as_it_is(kind: str) -> None:
    """Results in f32, and what only looks similar."""
    assert "coarse_gelu" not in text_of(gelu_graph(DType.F32, 64, kind))
    assert "coarse_gelu" not in text_of(gelu_graph(DType.BF16, 64, kind, factor=0.7))


@pytest.mark.parametrize(("between", "coarse"), [(DType.F64, True), (DType.I32, False), (DType.BOOL, False)])
def test_what_jumps_is_of_all_digits(between: DType, coarse: bool) -> None:
    """Whether a sigmoid is 0 or 1 as a whole number: a coarse one is 0 below 1.2e-38, and eager's is not."""
    g = GraphOf()
    g.input("x", DType.F32, [64])
    y = g.cast(g.op("sigmoid", "x", dtype=DType.F32, shape=[64]), between)
    assert ("coarse_sigmoid(" in text_of(g.done(g.cast(y, DType.BF16)))) == coarse


def test_where_the_largest_is_is_of_all_digits() -> None:
    g = GraphOf()
    g.input("x", DType.F32, [8, 64])
    y = g.op("tanh", "x", dtype=DType.F32, shape=[8, 64])
    at = g.op("reduce", y, dtype=DType.I64, shape=[8], kind="argmax", dims=(1,), keepdim=False)
    assert "coarse_tanh(" not in text_of(g.done(g.cast(at, DType.F16)))
