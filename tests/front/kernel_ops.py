"""Ops with C++ kernels that several tests have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hardtack
from hardtack import CppKernel
from hardtack.codegen.ir.kernel_code import KernelCode
from hardtack.exporter import to_graphs
from hardtack.exporter.extensions import Contribution, UserKernel, extensions

HEAD = "#include <hardtack/kernel.h>\n"
CLIP = (
    HEAD
    + """
int32_t clip(const ht_kernel_call* call) {
  const ht_tensor& x = *call->arguments[0].value.tensor;
  const double scale = call->arguments[1].value.real;
  if (scale < 0) return ht_fail(call, "the scale is negative");
  if (scale > 100) return -7;
  const float* from = static_cast<const float*>(x.data);
  float* to = static_cast<float*>(call->results[0].data);
  for (int64_t i = 0; i < ht_numel(&x); ++i) {
    const float v = from[i] < -1 ? -1 : from[i] > 1 ? 1 : from[i];
    to[i] = v * static_cast<float>(scale);
  }
  return 0;
}
"""
)


@torch.library.custom_op("hardtack_kernels::clip", mutates_args=())
def clip(x: Tensor, scale: float = 2.0) -> Tensor:
    return torch.from_numpy(x.numpy().clip(-1, 1)) * scale


@clip.register_fake
def _(x: Tensor, scale: float = 2.0) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype)


class Clips(nn.Module):
    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.scale = scale
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return clip(x * 1.5, self.scale) + 1


def exported(tmp_path: Path, module: Any, args: tuple[Any, ...], **given: Any) -> hardtack.Model:
    hardtack.export(module, args, path=tmp_path / "m.pkg", targets=("cpu:native",), **given)
    return hardtack.load(tmp_path / "m.pkg")


KERNEL = CppKernel("clip", CLIP)


COUNT = (
    HEAD
    + """
int32_t count(const ht_kernel_call* call) {
  const ht_tensor& total = *call->arguments[0].value.tensor;
  const ht_tensor& x = *call->arguments[1].value.tensor;
  float* const sums = static_cast<float*>(total.data);
  for (int64_t i = 0; i < ht_numel(&x); ++i) sums[i] += static_cast<const float*>(x.data)[i];
  if (call->num_results == 1) *static_cast<float*>(call->results[0].data) = sums[0];
  return 0;
}
"""
)


@torch.library.custom_op("hardtack_kernels::count", mutates_args={"total"})
def count(total: Tensor, x: Tensor) -> Tensor:
    total += x
    return total.flatten()[0].clone()


@count.register_fake
def _(total: Tensor, x: Tensor) -> Tensor:
    return total.new_empty(())


ROWS = (
    HEAD
    + """
namespace {
struct Job { const float* from; float* to; int64_t columns; char* memory; int64_t stride; };
void row(void* closure, int64_t i, int32_t worker) {
  const Job& job = *static_cast<const Job*>(closure);
  double* const sums = reinterpret_cast<double*>(job.memory + worker * job.stride);
  double total = 0;
  for (int64_t j = 0; j < job.columns; ++j) sums[j] = total += job.from[i * job.columns + j];
  for (int64_t j = 0; j < job.columns; ++j) job.to[i * job.columns + j] = static_cast<float>(sums[j]);
}
}  // namespace
int32_t rows(const ht_kernel_call* call) {
  const ht_tensor& x = *call->arguments[0].value.tensor;
  if (call->worker_nbytes < 8 * x.shape[1] || call->worker_nbytes % 64 != 0) return ht_fail(call, "too small");
  if (call->workspace_nbytes != 4 * ht_numel(&x)) return ht_fail(call, "the workspace is of another size");
  float* const turned = static_cast<float*>(call->workspace);
  for (int64_t i = 0; i < ht_numel(&x); ++i) turned[i] = -static_cast<const float*>(x.data)[i];
  Job job = {turned, static_cast<float*>(call->results[0].data), x.shape[1],
             static_cast<char*>(call->worker_workspace), call->worker_nbytes};
  call->parallel->run(call->parallel->pool, x.shape[0], row, &job);
  return 0;
}
"""
)


@torch.library.custom_op("hardtack_kernels::rows", mutates_args=())
def rows(x: Tensor) -> Tensor:
    return (-x).double().cumsum(1).float()


@rows.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty(x.shape)


def user(function: str, source: str = CLIP, **given: Any) -> UserKernel:
    asked = {"strided": (), "workspace": 0, "worker_workspace": 0, **given}
    return UserKernel(KernelCode(function, source, f"{function}.cpp"), **asked)


def graph_of(function: Any, *args: Any, **kernels: UserKernel) -> Any:
    brought = extensions([Contribution("a test", kernels={f"hardtack_kernels::{k}": v for k, v in kernels.items()})])
    (entry,) = to_graphs(function, args, extensions=brought).entries.values()
    return entry.graph
