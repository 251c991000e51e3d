"""Ops with CUDA kernels that several tests have, and models that call them. Their functions are the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hardtack import CppKernel, CudaKernel

HEAD = "#include <hardtack/cuda_kernel.h>\n"
SCALE = (
    HEAD
    + """
extern "C" __global__ void scale(const float* __restrict__ x, float* y, int64_t n, float by) {
  const int64_t i = blockIdx.x * int64_t{256} + threadIdx.x;
  if (i < n) y[i] = x[i] * by;
}
"""
)


@torch.library.custom_op("hardtack_cuda::scale", mutates_args=())
def scale(x: Tensor, by: float = 2.0) -> Tensor:
    return x * by


@scale.register_fake
def _(x: Tensor, by: float = 2.0) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def blocks(n: Any, size: int) -> Any:
    """How many blocks of a size n elements take."""
    return -(-n // size)


def scaling(source: str = SCALE, **given: Any) -> CudaKernel:
    return CudaKernel(
        "scale",
        source,
        **{
            "arguments": ("const float* x", "float* result", "int64_t x.numel", "float by"),
            "grid": lambda x, by: blocks(x.shape[0] * x.shape[1], 256),
            "block": 256,
            **given,
        },
    )


HALVES = (
    HEAD
    + """
extern "C" __global__ void add_halves(const ht_half* x, const ht_bfloat16* y, ht_bfloat16* sum, ht_half* product,
                                      int32_t n) {
  const int32_t i = blockIdx.x * 128 + threadIdx.x;
  if (i >= n) return;
  const float a = ht_to_float(x[i]), b = ht_to_float(y[i]);
  sum[i] = ht_to_bfloat16(a + b);
  product[i] = ht_to_half(a * b);
}
"""
)


@torch.library.custom_op("hardtack_cuda::add_halves", mutates_args=())
def add_halves(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (x.float() + y.float()).bfloat16(), (x.float() * y.float()).half()


@add_halves.register_fake
def _(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return y.new_empty(y.shape), x.new_empty(x.shape)


ADD_HALVES = CudaKernel(
    "add_halves",
    HALVES,
    arguments=(
        "const ht_half* x",
        "const ht_bfloat16* y",
        "ht_bfloat16* result[0]",
        "ht_half* result[1]",
        "int32_t x.shape[0]",
    ),
    grid=lambda x, y: (blocks(x.shape[0], 128),),
    block=128,
)

SUMS = (
    HEAD
    + """
// One block a row: threads add what they have in double to shared memory, and keep it in the workspace, too.
extern "C" __global__ void sum_rows(const float* x, int64_t columns, int64_t step, double* kept, float* sums) {
  extern __shared__ double part[];
  double total = 0;
  for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) total += x[blockIdx.x * step + j];
  kept[blockIdx.x * blockDim.x + threadIdx.x] = total;
  __threadfence_block();
  __syncthreads();
  part[threadIdx.x] = kept[blockIdx.x * blockDim.x + threadIdx.x];
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = static_cast<float>(part[0]);
}
"""
)


@torch.library.custom_op("hardtack_cuda::sum_rows", mutates_args=())
def sum_rows(x: Tensor) -> Tensor:
    return x.double().sum(1).float()


@sum_rows.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty((x.shape[0],))


SUM_ROWS = CudaKernel(
    "sum_rows",
    SUMS,
    arguments=(
        "const float* x",
        "int64_t x.shape[1]",
        "int64_t x.stride[0]",
        "double* workspace",
        "float* result",
    ),
    grid=lambda x: x.shape[0],
    block=64,
    shared=64 * 8,
    workspace=lambda x: x.shape[0] * 64 * 8,
)

COUNTS = (
    HEAD
    + """
extern "C" __global__ void count(float* total, const float* x, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) total[i] += x[i];
}
"""
)


@torch.library.custom_op("hardtack_cuda::count", mutates_args={"total"})
def count(total: Tensor, x: Tensor) -> None:
    total += x


@count.register_fake
def _(total: Tensor, x: Tensor) -> None:
    return None


COUNT = CudaKernel(
    "count",
    COUNTS,
    arguments=("float* total", "const float* x", "int64_t total.numel"),
    grid=lambda total, x: blocks(x.shape[0] * x.shape[1], 32),
    block=32,
)
ON_CPUS = CppKernel(
    "scale",
    """#include <hardtack/kernel.h>
int32_t scale(const ht_kernel_call* call) {
  const ht_tensor& x = *call->arguments[0].value.tensor;
  const float by = static_cast<float>(call->arguments[1].value.real);
  const float* from = static_cast<const float*>(x.data);
  for (int64_t i = 0; i < ht_numel(&x); ++i) static_cast<float*>(call->results[0].data)[i] = from[i] * by;
  return 0;
}
""",
)


class Scales(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return scale(x, 1.5)


class Scaled(nn.Module):
    """The kernel between others, of a value that is no whole tensor."""

    def forward(self, x: Tensor) -> Tensor:
        return scale(x[:, 1:].T * 2, 0.5) + 1


class Halves(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total, product = add_halves(x, y)
        return total * 2, product


class Sums(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return sum_rows(x) * 2


class Counts(nn.Module):
    """A state, and a value that is used besides."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(3, 40))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        count(self.total, x)
        doubled = x * 2
        again = doubled.clone()
        count(again, doubled)
        return self.total * 1, doubled, again


@dataclass(frozen=True)
class Case:
    """A model, inputs of several sizes, and what its export is given."""

    module: Any
    inputs: tuple[tuple[Tensor, ...], ...]
    kernels: Mapping[Any, Any]
    dynamic: Any = None


def _rows(*sizes: int) -> tuple[tuple[Tensor, ...], ...]:
    torch.manual_seed(0)
    return tuple((torch.randn(n, 40),) for n in sizes)


ROWS = ({0: torch.export.Dim("rows", max=4096)},)
_N = torch.export.Dim("n", max=1 << 20)
CASES = {
    "scales": Case(Scales, _rows(4, 7, 100, 1), {scale: scaling()}, ROWS),
    "scaled": Case(Scaled, _rows(4, 7, 100), {scale: scaling()}, ROWS),
    "halves": Case(
        Halves,
        tuple((torch.randn(n).half(), torch.randn(n).bfloat16()) for n in (5, 128, 1000)),
        {add_halves: ADD_HALVES},
        ({0: _N}, {0: _N}),
    ),
    "sums": Case(Sums, _rows(4, 7, 100), {sum_rows: SUM_ROWS}, ROWS),
    "counts": Case(Counts, _rows(3, 3), {count: COUNT}),
}


def replaced(kernel: CudaKernel, **given: Any) -> CudaKernel:
    """The kernel with other fields."""
    names = ("arguments", "grid", "block", "shared", "workspace")
    return CudaKernel(kernel.function, kernel.text, **{**{n: getattr(kernel, n) for n in names}, **given})
