"""Rows that one-row products compute for themselves: what moves into them, what does not, and the numbers."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.machine.data import H200
from tests.codegen.compare import Compiled, assert_same, compile_module, eager
from tests.codegen.runner import KernelFailed
from tests.triton.simulate import Simulator


class Layer(nn.Module):
    """f(x..., *weights) where the weights, drawn once, are constants."""

    def __init__(self, f: Callable[..., object], shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        weights = (torch.randn(s, generator=draw) / s[-1] ** 0.5 for s in shapes)
        self.weights = nn.ParameterList(nn.Parameter(w.to(dtype), requires_grad=False) for w in weights)
        self.f = f

    def forward(self, *args: Tensor) -> object:
        return self.f(*args, *self.weights)


def row(width: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Tensor:
    return torch.randn(1, width, generator=torch.Generator().manual_seed(seed)).to(dtype)


def compiled(
    f: Callable[..., object], shapes: Sequence[tuple[int, ...]], args: Sequence[Tensor], tolerance: float = 4
) -> Compiled:
    """The function as GPU kernels, compared with eager torch in the interpreter."""
    module = Layer(f, shapes, args[0].dtype).eval()
    got = compile_module(module, args, backend=TritonBackend(H200), runner=Simulator)
    assert_same(got(*args), eager(module, args), tolerance)
    return got


def prologues(c: Compiled) -> list[tuple[bool, str]]:
    return [(d.accepted, d.reason) for d in c.entry.decisions if d.kind == "prologue"]


def launches(c: Compiled) -> int:
    return len(c.entry.plan.body)


def rms_norm(x: Tensor, scale: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * scale


def gated(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("width", [64, 200, 1500])
def test_a_norm_is_computed_by_the_product(dtype: torch.dtype, width: int) -> None:
    c = compiled(lambda x, s, w: F.linear(rms_norm(x, s), w), [(width,), (70, width)], [row(width, dtype)])
    assert launches(c) == 1
    assert prologues(c)[0][0]


@pytest.mark.parametrize(("width", "columns"), [(64, 90), (300, 90), (9000, 1100)])
def test_a_gate_is_computed_by_the_product(width: int, columns: int) -> None:
    c = compiled(lambda x, w: F.linear(gated(x), w), [(columns, width)], [row(2 * width)])
    assert launches(c) == 1


def test_a_layer_norm_with_two_reductions_and_an_epilogue() -> None:
    def f(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.gelu(F.linear(F.layer_norm(x + y, x.shape[-1:]), w, b))

    c = compiled(f, [(90, 200), (90,)], [row(200, torch.float32), row(200, torch.float32, 1)])
    assert launches(c) == 1


def test_what_others_read_stays_in_memory() -> None:
    def f(x: Tensor, y: Tensor, s: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.exp(x) + y
        return total, F.linear(rms_norm(total, s), w)

    c = compiled(f, [(128,), (66, 128)], [row(128), row(128, seed=1)])
    assert [ok for ok, _ in prologues(c)] == [True]
    assert launches(c) == 2


def test_two_products_compute_the_same_row() -> None:
    def f(x: Tensor, s: Tensor, v: Tensor, w: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        normed = rms_norm(x, s)
        return torch.tanh(F.linear(normed, v)), F.linear(normed, w) @ u

    c = compiled(f, [(128,), (66, 128), (80, 128), (80, 80)], [row(128)])
    assert [ok for ok, _ in prologues(c)][:1] == [True]


def test_the_row_is_rounded_where_memory_would_round_it() -> None:
    """A product by the identity gives the row itself."""

    def f(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return F.linear(x * y, w)

    width = 128
    module = Layer(f, [(width, width)], torch.bfloat16).eval()
    module.weights[0].copy_(3 * torch.eye(width))
    args = [row(width), row(width, seed=1)]
    got = compile_module(module, args, backend=TritonBackend(H200), runner=Simulator)
    assert launches(got) == 1
    assert torch.equal(got(*args)[0], module(*args))


def test_a_sum_in_parts_computes_the_row_in_each() -> None:
    c = compiled(lambda x, s, w: F.linear(rms_norm(x, s), w), [(2048,), (6, 2048)], [row(2048, torch.float32)])
    assert any("parts" in v.name for v in c.entry.plan.values)
    assert [ok for ok, _ in prologues(c)] == [True]


def test_a_division_by_zero_in_the_row_is_reported() -> None:
    def f(x: Tensor, y: Tensor, z: Tensor, w: Tensor) -> Tensor:
        return F.linear(torch.cat([x // y, z]), w)

    x, y, z = torch.arange(1500), torch.arange(1500) % 7 - 8, row(501, torch.float32)[0]
    module = Layer(f, [(3, 2001)], torch.float32).eval()
    got = compile_module(module, [x, y, z], backend=TritonBackend(H200), runner=Simulator)
    assert [ok for ok, _ in prologues(got)] == [True]
    assert_same(got(x, y, z), eager(module, [x, y, z]), 4)
    y[1499] = 0
    with pytest.raises(KernelFailed, match="returned 2 at launch"):
        got(x, y, z)


REFUSED: dict[str, tuple[Callable[..., object], list[tuple[int, ...]], list[Tensor], str]] = {
    "the row is an output": (
        lambda x, w: ((h := gated(x)), F.linear(h, w)),
        [(90, 64)],
        [row(128)],
        "it is an output or a state",
    ),
    "another kernel reads the row": (
        lambda x, w: F.linear(h := gated(x), w) + torch.softmax(h, -1).sum(),
        [(90, 64)],
        [row(128)],
        "reads it, too",
    ),
    "dear functions for few columns": (
        lambda x, w: F.linear(torch.lgamma(x.abs() + 1), w),
        [(600, 4096)],
        [row(4096)],
        "instructions an element for 2 columns",
    ),
    "too long to be reduced": (
        lambda x, s, w: F.linear(rms_norm(x, s), w),
        [(9000,), (3, 9000)],
        [row(9000)],
        "a row of 9000 elements is too long to be reduced in registers",
    ),
    "too many bytes": (
        lambda x, w: F.linear(gated(x), w),
        [(2, 20000)],
        [row(40000)],
        "every program would read 80000 bytes for the row, more than 65536",
    ),
    "too many programs": (
        lambda x, s, w: F.linear(rms_norm(x, s), w),
        [(16,), (17000, 16)],
        [row(16, torch.float32)],
        "1063 programs would reduce the row, more than 1056",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_stay_kernels(name: str) -> None:
    f, shapes, args, reason = REFUSED[name]
    module = Layer(f, shapes, args[0].dtype).eval()
    c = compile_module(module, args, backend=TritonBackend(H200), runner=Simulator)
    ((accepted, said),) = prologues(c)
    assert not accepted
    assert reason in said


def test_what_the_epilogue_reads_stays_in_memory() -> None:
    def f(x: Tensor, y: Tensor, s: Tensor, w: Tensor) -> Tensor:
        total = torch.exp(x) + y
        return total + F.linear(rms_norm(total, s), w)

    c = compiled(f, [(128,), (128, 128)], [row(128), row(128, seed=1)])
    assert [ok for ok, _ in prologues(c)] == [True]
    assert launches(c) == 2


def test_a_row_that_a_scatter_changes_is_read_behind_it() -> None:
    """The copy is not computed in the product's programs: they would not see what the scatter writes."""

    def changed(x: Tensor, w: Tensor) -> Tensor:
        place, value = torch.tensor([3]), torch.tensor([5.0])
        return F.linear(torch.index_put(x.sigmoid(), (place,), value), w)

    found = compiled(changed, [(2, 16)], (row(16, torch.float32).flatten(),))
    assert any(not accepted and reason.endswith("writes it, too") for accepted, reason in prologues(found))
