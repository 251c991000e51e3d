"""Programs in which it shows whether every value of a half type is rounded, for every way in which values stay inside a
kernel. Each gives the same bits on every machine: sums are exact in f32, the rest is one rounding an op. Products are
checked against f64, because what a CPU's half product rounds depends on its instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.codegen.compare import eager

HALVES = (torch.float16, torch.bfloat16)
LARGE = {torch.float16: 60000.0, torch.bfloat16: 3e38}

_exact: list[bool] = []


def product(f: Callable[..., torch.Tensor], *args: torch.Tensor) -> torch.Tensor:
    """f(*args); in f64 and rounded once, while `exactly` computes."""
    return f(*(a.double() for a in args)).to(args[0].dtype) if _exact else f(*args)


def exactly(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """What the module gives, flattened, with its products exact."""
    _exact.append(True)
    try:
        return eager(module, args)
    finally:
        _exact.pop()


PROGRAMS: dict[str, Callable[..., Any]] = {
    "inlined": lambda x, w: (x + 1000) - 1000,
    "overflow": lambda x, w: x * LARGE[x.dtype] - x * LARGE[x.dtype],
    "between nests": lambda x, w: (y := x + 1000, y - 1000, y.float()),
    "in a row": lambda x, w: (y := x + 1000, (y - y.amax(-1, keepdim=True)).float()),
    "behind a reduction": lambda x, w: (x.sum(-1) + 4096 - 4096, x.amax(-1) * 3 - 1000),
    "numbers": lambda x, w: (x * 0.1, x / 0.3, x + 0.1, x.clamp(-0.1, 0.1), torch.where(x > 0, x, 0.1).float()),
    "a filled tensor": lambda x, w: (torch.full_like(x, 0.1) * 3, (torch.full_like(x, 0.1) + x).float()),
    "comparisons": lambda x, w: (torch.full_like(x, 0.1) >= 0.1, x / 3 == (x / 3).clone(), (x / 3) * 3 == x),
    "a product": lambda x, w: ((y := product(torch.matmul, x, w)).float(), y - 2 * x[:, :1]),
    "a row by a column": lambda x, w: product(torch.matmul, x[0], w[:, 0]),
    "a biased product": lambda x, w: product(F.linear, x, w.T, w[0] + 0.25),
    "addmm": lambda x, w: product(lambda *a: torch.addmm(*a, beta=0.5, alpha=2.0), w[0] + 0.25, x, w),
    "a convolution": lambda x, w: product(F.conv1d, x[None], w.T[:, :24].reshape(-1, 8, 3), w[0] + 0.25),
    "an average": lambda x, w: product(lambda x: F.avg_pool1d(x, 4), x),
    "padding": lambda x, w: F.pad(x, (1, 1), value=0.1).float(),
    "a sum with a factor": lambda x, w: (torch.add(x, w[0, 0], alpha=0.3), torch.sub(x, x, alpha=0.3)),
}
"""name -> a function of x [8, 48] and w [48, 16], whole numbers."""


def whole(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The arguments of every program."""
    g = torch.Generator().manual_seed(0)
    x, w = (torch.randint(-9, 10, shape, generator=g) for shape in ((8, 48), (48, 16)))
    return x.to(dtype), w.to(dtype)


class Programs(torch.nn.Module):
    """All of them at once."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> dict[str, Any]:
        return {name: f(x, w) for name, f in PROGRAMS.items()}


def same_bits(got: list[torch.Tensor], want: list[torch.Tensor]) -> None:
    """Equal, NaN for NaN."""
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)
