"""Models with Triton kernels of users, each beside the same in torch's ops: for user_exports.py, which exports them
where Triton compiles, and for tests that run them where it interprets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.export import Dim
from torch.library import triton_op, wrap_triton

from hardtack import CppKernel

ROWS = {0: Dim("rows", min=0, max=4096)}
LIMIT = tl.constexpr(0.5)


@triton.jit
def clipped(x):
    """Not beyond LIMIT."""
    return tl.minimum(x, LIMIT)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    y = tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, clipped(x + y), mask=inside)


@triton_op("hardtack_triton_tests::add", mutates_args={})
def add(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    n = out.numel()
    wrap_triton(add_kernel)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=64)
    return out


class Adds(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return add(x * 2, y) + 1


@triton.jit
def affine_kernel(
    x_ptr,
    bias_ptr,
    out_ptr,
    rows,
    columns,
    x_row,
    x_column,
    out_row,
    scale,
    shift,
    negate,
    HAS_BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """x[rows, columns] through strides; a number in f32 between two sizes."""
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * x_row + column * x_column, mask=inside, other=0.0)
    y = x * scale + shift
    if HAS_BIAS:
        y += tl.load(bias_ptr + column, mask=inside, other=0.0)
    if negate:
        y = -y
    tl.store(out_ptr + row * out_row + column, y, mask=inside)


@triton_op("hardtack_triton_tests::affine", mutates_args={})
def affine(x: Tensor, bias: Tensor | None, scale: float, negate: bool) -> Tensor:
    rows, columns = x.shape
    out = x.new_empty((rows, columns))
    grid = (rows, triton.cdiv(columns, 32))
    wrap_triton(affine_kernel)[grid](
        x, bias, out, rows, columns, x.stride(0), x.stride(1), out.stride(0), scale, 0.1, negate, bias is not None, 32
    )
    return out


class Affine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(-1, 1, 48))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return affine(x, self.bias, 1e-3, False), affine(x.t(), None, -2.5, True), affine(x.t() + 1, None, 1.0, False)

    def wanted(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x * 1e-3 + 0.1 + self.bias, x.t() * 2.5 - 0.1, x.t() + 1 + 0.1


@triton.jit
def accumulate_kernel(total_ptr, x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    old = tl.load(total_ptr + at, mask=inside)
    tl.store(total_ptr + at, old + tl.load(x_ptr + at, mask=inside), mask=inside)


@triton_op("hardtack_triton_tests::accumulate", mutates_args={"total"})
def accumulate(total: Tensor, x: Tensor) -> None:
    n = x.numel()
    wrap_triton(accumulate_kernel)[(triton.cdiv(n, 32),)](total, x, n, BLOCK=32)


class Totals(nn.Module):
    """A state that a kernel changes where it lies, one of which a kernel changes a row, and a value that is copied."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(50))
        self.register_buffer("table", torch.ones(3, 50))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        accumulate(self.total, x)
        accumulate(self.table[1], x)
        y = x * 2
        z = y + 1
        accumulate(y, z)
        return self.total * 1, y, z

    def wanted(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.total += x
        self.table[1] += x
        return self.total * 1, x * 4 + 1, x * 2 + 1


@triton.jit
def head_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """The first BLOCK elements, or fewer."""
    at = tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=inside), mask=inside)


class Plain(nn.Module):
    """Kernels that forward calls by itself, wrapped or not, which write to a part of what there is."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rest = torch.full_like(x, 3.0)
        head_kernel[(1,)](x, rest, 5, BLOCK=16, num_warps=2)
        halves = torch.empty_like(x)
        n = x.shape[0] * 10
        wrap_triton(accumulate_kernel)[(triton.cdiv(n, 32),)](rest, x, n, BLOCK=32)
        wrap_triton(head_kernel)[(1,)](x, halves, 8, 16)
        return rest, halves.view(-1)[:8] + 1

    def wanted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rest = torch.full_like(x, 3.0)
        rest.view(-1)[:5] = x.view(-1)[:5]
        return rest + x, x.view(-1)[:8] + 1


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 1024}, num_warps=8),
        triton.Config({"BLOCK": 16}, num_warps=1, num_stages=2),
        triton.Config({"BLOCK": 32}),
    ],
    key=["columns"],
    prune_configs_by={"early_config_prune": lambda configs, named, **_: [c for c in configs if c.kwargs["BLOCK"] < 64]},
)
@triton.heuristics({"EVEN": lambda args: args["columns"] % args["BLOCK"] == 0, "TWICE": lambda args: args["BLOCK"] * 2})
@triton.jit
def sums_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr, EVEN: tl.constexpr, TWICE: tl.constexpr):
    """The sum of each row; TWICE is 32 for the config that is left and first."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        if EVEN:
            total += tl.load(x_ptr + row * columns + at).to(tl.float32)
        else:
            total += tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(total) + TWICE)


@triton_op("hardtack_triton_tests::sums", mutates_args={})
def sums(x: Tensor) -> Tensor:
    out = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    wrap_triton(sums_kernel)[(x.shape[0],)](x, out, x.shape[1])
    return out


class Tuned(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return sums(x), sums(x[:, :40].contiguous())

    def wanted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.float().sum(1) + 32, x[:, :40].float().sum(1) + 32


@triton.jit
def product_kernel(a_ptr, b_ptr, out_ptr, m, n, k, dtype: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype)
    for start in range(0, k, BLOCK):
        depth = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + rows[:, None] * k + depth, mask=(rows[:, None] < m) & (depth < k), other=0.0)
        b = tl.load(b_ptr + depth[:, None] * n + columns, mask=(depth[:, None] < k) & (columns < n), other=0.0)
        total += tl.dot(a, b)
    tl.store(out_ptr + rows[:, None] * n + columns, total, mask=(rows[:, None] < m) & (columns < n))


@triton_op("hardtack_triton_tests::product", mutates_args={})
def product(a: Tensor, b: Tensor) -> Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(m, 16), triton.cdiv(n, 16))
    wrap_triton(product_kernel)[grid](a, b, out, m, n, k, tl.float32, 16)
    return out


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.register_buffer("weight", torch.randn(20, 24).bfloat16())

    def forward(self, x: Tensor) -> Tensor:
        return product((x + 1).bfloat16(), self.weight).relu()

    def wanted(self, x: Tensor) -> Tensor:
        return ((x + 1).bfloat16().float() @ self.weight.float()).relu()


@triton.jit
def pick_kernel(x_ptr, mask_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    index = tl.load(index_ptr + at, mask=inside, other=0)
    x = tl.load(x_ptr + index, mask=inside & tl.load(mask_ptr + at, mask=inside, other=False), other=-1)
    tl.store(out_ptr + at, x, mask=inside)


class Picks(nn.Module):
    """bools, whole numbers, and a kernel inside of a branch."""

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.empty_like(index, dtype=torch.int32)
        n = index.shape[0]
        wrap_triton(pick_kernel)[(triton.cdiv(n, 16),)](x, index > 2, index, out, n, BLOCK=16)
        flag = (index.sum() > 0).reshape(())
        return out, torch.cond(flag, lambda o: add(o.float(), o.float()), lambda o: o.float() * 1, (out,))

    def wanted(self, x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.where(index > 2, x[index], -1)
        return out, (2 * out.float()).clamp(max=0.5) if index.sum() > 0 else out.float()


CLIP = r"""
#include <hardtack/kernel.h>

int32_t clipped_sum(const ht_kernel_call* call) {
  const float* x = static_cast<const float*>(call->arguments[0].value.tensor->data);
  const float* y = static_cast<const float*>(call->arguments[1].value.tensor->data);
  float* to = static_cast<float*>(call->results[0].data);
  for (int64_t i = 0; i < ht_numel(&call->results[0]); ++i) to[i] = x[i] + y[i] < 0.5f ? x[i] + y[i] : 0.5f;
  return 0;
}
"""


class Mixed(nn.Module):
    """Weights and a state on both kinds of devices; an op with a C++ kernel on CPUs, and one with a decomposition."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(10, 10)
        self.register_buffer("total", torch.zeros(10))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = add(self.layer(x), x)
        accumulate(self.total, y.sum(0))
        return y * 2, self.total + 1

    def wanted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = (self.layer(x) + x).clamp(max=0.5)
        self.total += y.sum(0)
        return y * 2, self.total + 1


def accumulated(total: Tensor, x: Tensor) -> None:
    total.add_(x)


@dataclass(frozen=True)
class Case:
    """A model, its inputs (the first are the example), and its dynamic sizes. given: what else its export is given, by
    name; targets: for which."""

    module: Callable[[], Any]
    inputs: tuple[tuple[Tensor, ...], ...]
    dynamic: Any = None
    given: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = ("cuda:sm_90",)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


CASES = {
    "adds": Case(Adds, tuple((_normal(n, 10), _normal(n, 10) + 1) for n in (7, 16, 1, 0)), (ROWS, ROWS)),
    "affine": Case(Affine, ((_normal(33, 48),), (_normal(1, 48),), (_normal(64, 48),)), (ROWS,)),
    "totals": Case(Totals, ((_normal(50),), (_normal(50) + 1,))),
    "plain": Case(Plain, tuple((_normal(n, 10),) for n in (4, 9, 2)), (ROWS,)),
    "tuned": Case(Tuned, tuple((_normal(n, 48).half(),) for n in (3, 8)), (ROWS,)),
    "products": Case(Products, tuple((_normal(n, 20),) for n in (17, 1, 32)), (ROWS,)),
    "picks": Case(Picks, tuple((torch.arange(20).int(), torch.arange(n) % 7) for n in (20, 5)), (None, ROWS)),
}


BOTH = ("cuda:sm_90", "cpu:native")
CASES |= {
    "mixed": Case(
        Mixed,
        tuple((_normal(n, 10),) for n in (6, 1, 16)),
        (ROWS,),
        {"kernels": {add: CppKernel("clipped_sum", CLIP)}, "decompositions": {accumulate: accumulated}},
        BOTH,
    ),
    "cpu": Case(
        Mixed,
        tuple((_normal(n, 10),) for n in (6, 1, 16)),
        (ROWS,),
        {"decompositions": {add: lambda x, y: (x + y).clamp(max=0.5), accumulate: accumulated}},
        ("cpu:native",),
    ),
}


def wanted(module: Any, args: tuple[Tensor, ...]) -> Any:
    """What torch's own ops give."""
    if isinstance(module, Adds):
        x, y = args
        return (x * 2 + y).clamp(max=0.5) + 1
    return module.wanted(*args)
