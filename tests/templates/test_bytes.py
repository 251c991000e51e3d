"""bytes.h: products with weights of 8 bits, which are those of the same weights as float, bit by bit."""

from __future__ import annotations

import functools

import pytest
import torch

from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.machine import Cpu
from hardtack.codegen.plan.prepack import PACKINGS
from tests.templates.cpu_kernels import Library, load_library
from tests.templates.half_builds import build_params
from tests.templates.layouts import gemm_packed_workspace
from tests.templates.test_half import PACKED, SIZES, SOURCE

BYTES = """
#include "bytes.h"
extern "C" int32_t packed_bytes(const HtKernelArgs* args) {
  const int64_t* i = args->ints;
  const auto a = static_cast<const float*>(args->buffers[0]);
  const auto b = static_cast<const int8_t*>(args->buffers[1]);
  return ht::gemm_packed(args, a, i[3], b, i[0], i[1], i[2], Epilogue{static_cast<float*>(args->buffers[2]), 0, i[1]});
}
"""


@functools.cache
def _library(cpu: Cpu) -> Library:
    floats = SOURCE + PACKED % {"name": "floats", "t": "float"}
    return load_library({"packed_bytes": SOURCE + BYTES, "packed_floats": floats}, cpu)


@pytest.fixture(scope="session", params=build_params())
def library(request: pytest.FixtureRequest) -> Library:
    """For every build."""
    return _library(request.param)


def _products(library: Library, m: int, n: int, k: int, workers: int = 2) -> dict[str, torch.Tensor]:
    """Of the same numbers, as bytes and as float."""
    a, b = torch.randn(m, k + 3), torch.randint(-128, 128, (k, n)).to(torch.int8)
    found: dict[str, torch.Tensor] = {}
    for name, weights in (("bytes", b), ("floats", b.float())):
        out = torch.zeros(m, n)
        workspace = gemm_packed_workspace(m, n, weights=DType.I8 if name == "bytes" else None)
        buffers = [a, torch.from_numpy(PACKINGS["panels"](weights.numpy(), ())), out]
        assert library.call(f"packed_{name}", buffers, [m, n, k, k + 3], workspace, workers) == 0
        found[name] = out
    torch.testing.assert_close(found["bytes"].double(), a[:, :k].double() @ b.double(), rtol=1e-5, atol=1e-3 * k**0.5)
    return found


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_bytes_are_multiplied_as_the_floats_that_they_are(library: Library, size: tuple[int, int, int]) -> None:
    found = _products(library, *size)
    assert torch.equal(found["bytes"], found["floats"])


@pytest.mark.parametrize("columns", [1, 16, 17, 33, 70])
def test_every_height(library: Library, columns: int) -> None:
    """Up to more rows than have their panels made float."""
    for rows in range(1, 60):
        found = _products(library, rows, columns, 9)
        assert torch.equal(found["bytes"], found["floats"]), rows


def test_any_number_of_workers(library: Library) -> None:
    found = []
    for workers in (1, 2, 7):
        torch.manual_seed(0)
        found.append(_products(library, 100, 300, 200, workers)["bytes"])
    assert all(torch.equal(found[0], other) for other in found[1:])
