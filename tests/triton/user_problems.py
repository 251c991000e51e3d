"""Models whose Triton kernels cannot be exported: python -m tests.triton.user_problems prints what each export says."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.export import Dim
from torch.library import triton_op, wrap_triton

import hardtack
from tests.triton.user_models import ROWS, Adds, accumulate_kernel, add_kernel, head_kernel

GPU = ("cuda:sm_90",)
WIDTH = np.float32(3)


@triton.jit
def misspelt_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.no_such_function(x))


@triton.jit
def helper(x):
    return x + tl.arange(0, 3)


@triton.jit
def calling_kernel(x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(x_ptr + tl.arange(0, BLOCK), helper(x))


@triton.jit
def foreign_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), np.pi)


@triton.jit
def large_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at[:, None] * BLOCK + at)
    tl.store(out_ptr + at[:, None] * BLOCK + at, tl.dot(x, tl.trans(x)))


@triton_op("hardtack_triton_problems::lies", mutates_args={})
def lies(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(add_kernel)[(1,)](x, x, out, x.numel(), BLOCK=64)
    return out


@lies.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0])


def misspelt(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(misspelt_kernel)[(1,)](x, out, BLOCK=16)
    return out


def called(x: Tensor) -> Tensor:
    y = x + 1
    wrap_triton(calling_kernel)[(1,)](y, BLOCK=16)
    return y


def foreign(x: Tensor) -> Tensor:
    y = x + 1
    wrap_triton(foreign_kernel)[(1,)](y, BLOCK=16)
    return y


def large(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(large_kernel)[(1,)](x, out, 256)
    return out


def strided(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(add_kernel)[(1,)](x[:, 1:], x, out, 30, BLOCK=64)
    return out


def shared(x: Tensor) -> Tensor:
    y = x + 1
    wrap_triton(accumulate_kernel)[(1,)](y, y[1:], 20, BLOCK=64)
    return y


def short(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(head_kernel)[(1,)](x, out, BLOCK=64)
    return out


def extra(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(head_kernel)[(1,)](x, out, 5, BLOCK=64, SIZE=2)
    return out


def gridded(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(head_kernel)[(x.sum(),)](x, out, 5, BLOCK=64)
    return out


def counted(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(head_kernel)[(1,)](x, out, x.shape[0] / 2, BLOCK=64)
    return out


def listed(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(head_kernel)[(1,)](x, out, 5, BLOCK=(64, 1))
    return out


def constant(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(head_kernel)[(1,)](x, out, 5, BLOCK=triton.next_power_of_2(x.shape[0]))
    return out


def plain(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(head_kernel)[(1,)](x, out, 5, BLOCK=64)
    return out


def turned(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(head_kernel)[(1,)](x * 1j, out, 5, BLOCK=64)
    return out


def lying(x: Tensor) -> Tensor:
    return lies(x) + 1


def written(x: Tensor) -> Tensor:
    wrap_triton(accumulate_kernel)[(1,)](x, x, 5, BLOCK=64)
    return x + 1


X = torch.ones(4, 10)
CASES: dict[str, Callable[[str], Any]] = {
    f.__name__: (lambda path, f=f: hardtack.export(f, (X,), path=path, targets=GPU))
    for f in (misspelt, called, foreign, strided, shared, short, extra, gridded, listed, lying, written)
} | {
    "large": lambda path: hardtack.export(large, (torch.ones(256, 256),), path=path, targets=GPU),
    "counted": lambda path: hardtack.export(counted, (X,), path=path, targets=GPU, dynamic_shapes=(ROWS,)),
    "constant": lambda path: hardtack.export(
        constant, (X,), path=path, targets=GPU, dynamic_shapes=({0: Dim("rows", min=1, max=64)},)
    ),
    "complex": lambda path: hardtack.export(turned, (X + 1j,), path=path, targets=GPU),
    "measured": lambda path: hardtack.export(
        Adds().eval(), (X, X), path=path, targets=GPU, options=hardtack.Options(compute="bf16")
    ),
    "on CPUs": lambda path: hardtack.export(plain, (X,), path=path),
    "on both": lambda path: hardtack.export(plain, (X,), path=path, targets=("cpu:native", *GPU)),
    "op on CPUs": lambda path: hardtack.export(Adds().eval(), (X, X), path=path),
    "op on both": lambda path: hardtack.export(Adds().eval(), (X, X), path=path, targets=("cpu:native", *GPU)),
}


def main() -> None:
    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            try:
                case(f"{folder}/m.pkg")
                found[name] = ["", ""]
            except Exception as error:  # whatever it is, the test says what it should be
                found[name] = [type(error).__name__, str(error)]
        assert not list(Path(folder).iterdir()), "nothing may be written"
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
