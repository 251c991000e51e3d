"""float8.h against torch, bit by bit: each code, and floats of all magnitudes where rounding turns."""

from __future__ import annotations

import functools

import pytest
import torch

from hardtack.codegen.machine.machine import Cpu
from hardtack.exporter.dtypes import E4M3_LAST, E4M3_SATURATES
from tests.templates.conftest import all_builds, by_gcc
from tests.templates.cpu_kernels import Library, load_library

TYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
_KERNEL = """
#include <hardtack/kernel_abi.h>
#include "float8.h"
using namespace ht;
extern "C" int32_t NAME(const HtKernelArgs* args) {
  const FROM* from = static_cast<const FROM*>(args->buffers[0]);
  TO* to = static_cast<TO*>(args->buffers[1]);
  for (int64_t i = 0; i < args->ints[0]; i += W) {
    const int n = static_cast<int>(args->ints[0] - i < W ? args->ints[0] - i : W);
    store_n(to + i, NAME_OF(load_n(from + i, n)), n);
  }
  return HT_KERNEL_OK;
}
"""


def _source(function: str, source: str, target: str) -> str:
    text = _KERNEL.replace("NAME_OF", function).replace("NAME", f"k_{function}")
    return text.replace("FROM", source).replace("TO", target)


@functools.cache
def _load(target: Cpu, compiler: str | None) -> Library:
    sources = {f"k_float_of_{t}": _source(f"float_of_{t}", "uint8_t", "float") for t in TYPES}
    sources |= {f"k_{t}_of_float": _source(f"{t}_of_float", "float", "uint8_t") for t in TYPES}
    return load_library(sources, target, compiler)


@pytest.fixture(scope="session", params=all_builds(by_gcc))
def float8(request: pytest.FixtureRequest) -> Library:
    return _load(*request.param)


def apply(library: Library, function: str, x: torch.Tensor, out: torch.dtype) -> torch.Tensor:
    guarded = torch.full((x.numel() + 64,), 77, dtype=out)
    assert library.call(f"k_{function}", [x, guarded], [x.numel()]) == 0
    assert bool((guarded[x.numel() :] == 77).all())
    return guarded[: x.numel()]


@functools.cache
def floats() -> torch.Tensor:
    """Each sign, exponent and upper mantissa, with lower halves that are all zeros, all ones and few."""
    upper = torch.arange(-(2**15), 2**15, dtype=torch.int32) << 16
    lower = torch.tensor([0, 1, 2, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF], dtype=torch.int32)
    return (upper[:, None] | lower).flatten()[5:].clone().view(torch.float32)


@pytest.mark.parametrize("kind", TYPES)
def test_each_code_as_a_float(float8: Library, kind: str) -> None:
    codes = torch.arange(256).to(torch.uint8)
    got, want = apply(float8, f"float_of_{kind}", codes, torch.float32), codes.view(TYPES[kind]).float()
    number = ~want.isnan()
    assert torch.equal(got[number].view(torch.int32), want[number].view(torch.int32))
    assert bool(got[~number].isnan().all())
    assert torch.equal(got[~number].signbit(), want[~number].signbit())


@pytest.mark.parametrize("kind", TYPES)
def test_floats_are_rounded_as_torch_rounds_them(float8: Library, kind: str) -> None:
    x, dtype = floats(), TYPES[kind]
    if kind == "e4m3" and not E4M3_SATURATES:  # there the export puts a NaN before the conversion
        x = x[~(x.abs() > E4M3_LAST)]
    got, want = apply(float8, f"{kind}_of_float", x, torch.uint8), x.to(dtype).view(torch.uint8)
    assert got.tolist() == want.tolist()
