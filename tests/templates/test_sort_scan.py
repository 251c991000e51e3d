"""sort.h and scan.h against torch."""

from __future__ import annotations

import functools

import pytest
import torch

from hardtack.codegen.lower.cpu_workspace import sort_nbytes
from hardtack.codegen.machine.machine import Cpu
from tests.templates.conftest import main_targets
from tests.templates.cpu_kernels import Library, Workspace, load_library
from tests.templates.layouts import nbytes

TYPES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "float": torch.float32,
    "double": torch.float64,
    "int64_t": torch.int64,
    "int32_t": torch.int32,
    "uint8_t": torch.uint8,
}
SORT = """
#include "sort.h"
using namespace ht;
extern "C" int32_t sort_%(t)s(const HtKernelArgs* args) {
  const int64_t* n = args->ints;
  ht::sort_rows(args, static_cast<const %(t)s*>(args->buffers[0]), n[0], n[1], n[2], n[3], n[4] != 0,
                static_cast<%(t)s*>(args->buffers[1]), static_cast<int64_t*>(args->buffers[2]));
  return HT_KERNEL_OK;
}
"""
SCAN = """
#include "scan.h"
using namespace ht;
extern "C" int32_t scan_%(t)s(const HtKernelArgs* args) {
  const int64_t* n = args->ints;
  const %(t)s* x = static_cast<const %(t)s*>(args->buffers[0]);
  if (n[3] < 2) {
    ht::scan(args, n[3] == 0 ? ht::ScanKind::kSum : ht::ScanKind::kProduct, x,
             static_cast<%(out)s*>(args->buffers[1]), n[0], n[1], n[2]);
  } else {
    ht::scan_extreme(args, n[3] == 2, x, static_cast<%(t)s*>(args->buffers[1]),
                     static_cast<int64_t*>(args->buffers[2]), n[0], n[1], n[2]);
  }
  return HT_KERNEL_OK;
}
"""
SCAN_LOG = """
#include "scan_log.h"
using namespace ht;
extern "C" int32_t scan_log_%(t)s(const HtKernelArgs* args) {
  const int64_t* n = args->ints;
  const %(t)s* x = static_cast<const %(t)s*>(args->buffers[0]);
  ht::scan_logsumexp(args, x, static_cast<%(t)s*>(args->buffers[1]), n[0], n[1], n[2]);
  return HT_KERNEL_OK;
}
"""
SHAPES = [(1, 1, 1), (3, 17, 1), (2, 49, 5), (1, 1000, 1), (4, 300, 3), (70, 33, 1), (2, 5, 130), (2, 0, 3), (0, 4, 2)]


@functools.cache
def library(target: Cpu) -> Library:
    sources = {f"sort_{t}": SORT % {"t": t} for t in TYPES}
    for t, dtype in TYPES.items():
        sources[f"scan_{t}"] = SCAN % {"t": t, "out": t if dtype.is_floating_point else "int64_t"}
        if dtype.is_floating_point:
            sources[f"scan_log_{t}"] = SCAN_LOG % {"t": t}
    return load_library(sources, target)


def data(kind: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Values with many ties; for floats also NaN, infinities and both zeros."""
    generator = torch.Generator().manual_seed(seed)
    dtype = TYPES[kind]
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        wide = torch.randint(info.min, info.max, shape, generator=generator, dtype=torch.int64).to(dtype)
        narrow = torch.randint(0, 5, shape, generator=generator).to(dtype)
        return torch.where(torch.rand(shape, generator=generator) < 0.5, wide, narrow)
    x = torch.randn(shape, generator=generator, dtype=dtype)
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0], dtype=dtype)
    pick = special[torch.randint(0, len(special), shape, generator=generator)]
    return torch.where(torch.rand(shape, generator=generator) < 0.3, pick, x)


def bits(x: torch.Tensor) -> torch.Tensor:
    """For comparing -0 and NaN too."""
    return x.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]) if x.is_floating_point() else x


def sort_rows(
    target: Cpu, kind: str, x: torch.Tensor, k: int, descending: bool, nworkers: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    outer, n, inner = x.shape
    values, indices = x.new_empty(outer, k, inner), torch.empty(outer, k, inner, dtype=torch.int64)
    workspace = Workspace(per_worker=nbytes(sort_nbytes(n, x.element_size())))
    ints = [outer, n, inner, k, int(descending)]
    assert library(target).call(f"sort_{kind}", [x, values, indices], ints, workspace, nworkers) == 0
    return values, indices


@pytest.mark.parametrize("target", main_targets())
@pytest.mark.parametrize("kind", sorted(TYPES))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
def test_sort_is_torchs_stable_sort(target: Cpu, kind: str, shape: tuple[int, ...], descending: bool) -> None:
    x = data(kind, shape, 1)
    want = torch.sort(x, dim=1, stable=True, descending=descending)
    for nworkers in (1, 2):
        values, indices = sort_rows(target, kind, x, shape[1], descending, nworkers)
        assert torch.equal(indices, want.indices)
        assert torch.equal(bits(values), bits(want.values))


@pytest.mark.parametrize("target", main_targets())
@pytest.mark.parametrize("kind", sorted(TYPES))
@pytest.mark.parametrize("k", [0, 1, 3, 40, 300])
@pytest.mark.parametrize("largest", [False, True])
def test_topk_is_the_head_of_the_stable_sort(target: Cpu, kind: str, k: int, largest: bool) -> None:
    x = data(kind, (3, 300, 2), 2)
    order = torch.sort(x, dim=1, stable=True, descending=largest)
    values, indices = sort_rows(target, kind, x, k, largest)
    assert torch.equal(indices, order.indices[:, :k])
    assert torch.equal(bits(values), bits(order.values[:, :k].contiguous()))
    if x.is_floating_point():
        assert torch.equal(values.nan_to_num(), torch.topk(x, k, dim=1, largest=largest).values.nan_to_num())


@pytest.mark.parametrize("target", main_targets())
@pytest.mark.parametrize("kind", sorted(TYPES))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax", "cummin"])
def test_scans(target: Cpu, kind: str, shape: tuple[int, ...], op: str) -> None:
    x = data(kind, shape, 3)
    if op in ("cumsum", "cumprod") and x.is_floating_point():
        x = torch.randn(shape, dtype=x.dtype, generator=torch.Generator().manual_seed(4))
    want = getattr(torch, op)(x, dim=1)
    extreme = op in ("cummax", "cummin")
    out_dtype = x.dtype if extreme or x.is_floating_point() else torch.int64
    for nworkers in (1, 2):
        values, indices = torch.empty(shape, dtype=out_dtype), torch.full(shape, -1, dtype=torch.int64)
        ints = [*shape, ["cumsum", "cumprod", "cummax", "cummin"].index(op)]
        assert library(target).call(f"scan_{kind}", [x, values, indices], ints, nworkers=nworkers) == 0
        if extreme:
            assert torch.equal(indices, want.indices)
            torch.testing.assert_close(values, want.values, rtol=0, atol=0, equal_nan=True)
        else:
            rtol = {torch.float32: 1e-6, torch.float64: 1e-13}.get(x.dtype, 1e-2)
            torch.testing.assert_close(values, want, rtol=rtol, atol=1e-2 * (rtol == 1e-2))


@pytest.mark.parametrize("target", main_targets())
@pytest.mark.parametrize("kind", sorted(t for t, d in TYPES.items() if d.is_floating_point))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scan_of_logarithms(target: Cpu, kind: str, shape: tuple[int, ...]) -> None:
    """Numbers far apart, whose exponentials no type holds, infinities and NaN."""
    x = torch.randn(shape, dtype=TYPES[kind], generator=torch.Generator().manual_seed(4)) * 200
    x[:, : shape[1] // 3] = -torch.inf
    x[:1, shape[1] // 2 :: 7], x[-1:, shape[1] // 2 + 3 :: 9] = torch.inf, torch.nan
    want = x.logcumsumexp(1)
    for nworkers in (1, 2):
        out = torch.empty_like(x)
        assert library(target).call(f"scan_log_{kind}", [x, out], [*shape], nworkers=nworkers) == 0
        torch.testing.assert_close(out, want, equal_nan=True)
