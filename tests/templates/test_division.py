"""loops.h's quotient by a value that is the same in all lanes, against torch: to the last bit."""

from __future__ import annotations

import functools

import pytest
import torch

from hardtack.codegen.machine.machine import Cpu
from tests.templates.conftest import all_builds
from tests.templates.cpu_kernels import Library, load_library

_SOURCE = """
#include <hardtack/kernel_abi.h>
#include "loops.h"
extern "C" int32_t quotients_{0}(const HtKernelArgs* args) {{
  const {0}* a = static_cast<const {0}*>(args->buffers[0]);
  {0}* out = static_cast<{0}*>(args->buffers[2]);
  const ht::vec<{0}> b = ht::bcast<{0}>(*static_cast<const {0}*>(args->buffers[1]));
  for (int64_t i = 0; i < args->ints[0]; i += ht::W) {{
    const int n = static_cast<int>(ht::least(args->ints[0] - i, ht::W));
    ht::store_n(out + i, ht::div_uniform(ht::load_n(a + i, n), b), n);
  }}
  return HT_KERNEL_OK;
}}
"""
TYPES = {"float": torch.float32, "double": torch.float64}


@functools.cache
def _load(target: Cpu, compiler: str | None) -> Library:
    return load_library({f"quotients_{t}": _SOURCE.format(t) for t in TYPES}, target, compiler)


@pytest.fixture(scope="session", params=all_builds())
def library(request: pytest.FixtureRequest) -> Library:
    """The kernels of this file, for every build."""
    return _load(*request.param)


def quotients(library: Library, a: torch.Tensor, b: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Ours and torch's, as integers of the same bits, where a NaN is any other."""
    name = {v: k for k, v in TYPES.items()}[a.dtype]
    divisor, out = torch.full((1,), b, dtype=a.dtype), torch.full_like(a, 77.0)
    assert library.call(f"quotients_{name}", [a, divisor, out], [a.numel()]) == 0
    bits = torch.int32 if a.dtype is torch.float32 else torch.int64
    want = a / divisor.expand(a.shape).contiguous()
    return tuple(torch.where(x.isnan(), torch.nan, x).view(bits) for x in (out, want))  # type: ignore[return-value]


def divisors(dtype: torch.dtype) -> list[float]:
    """Of usual sizes, powers of two, next to them, and of sizes whose quotients or reciprocals are no usual numbers."""
    tiny, most = torch.finfo(dtype).tiny, torch.finfo(dtype).max
    eps = torch.finfo(dtype).eps
    usual = [1.0, 3.0, -1.7, 0.1, 7.0, 255.0, 49.0, 1 + eps, 2 - eps, 2.0**24, 2.0**25, -(2.0**-24), 2.0**-25]
    return [*usual, 0.0, -0.0, tiny, tiny / 8, most, -most, float("inf"), float("nan"), 2.0**100, 2.0**-100]


@pytest.mark.parametrize("dtype", TYPES.values(), ids=str)
def test_quotients_by_one_number_are_rounded_once(library: Library, dtype: torch.dtype) -> None:
    """Vectors of one magnitude each, from the smallest subnormal to the largest number."""
    step = 3 if dtype is torch.float32 else 31
    least, most = (-149, 127) if dtype is torch.float32 else (-1074, 1023)
    exponents = torch.arange(least, most + 1, step, dtype=torch.float64).repeat_interleave(48)
    signs = torch.where(torch.rand(exponents.shape) < 0.5, -1.0, 1.0)
    a = (signs * (1 + torch.rand(exponents.shape, dtype=torch.float64)) * torch.pow(2.0, exponents)).to(dtype)
    for b in divisors(dtype):
        ours, torchs = quotients(library, a, b)
        assert torch.equal(ours, torchs), b


@pytest.mark.parametrize("dtype", TYPES.values(), ids=str)
def test_quotients_of_mixed_vectors_are_rounded_once(library: Library, dtype: torch.dtype) -> None:
    """1e-40 / -1.7 among other numbers came out a unit too small, and a zero, an infinity or a NaN may be beside it."""
    rare = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, -1e-310, 3e4, 1e30], dtype=dtype)
    plain = torch.randn(5003, dtype=torch.float64).to(dtype)
    a = torch.where(torch.rand(5003) < 0.1, rare[torch.randint(0, len(rare), (5003,))], plain)
    for b in divisors(dtype):
        ours, torchs = quotients(library, a, b)
        assert torch.equal(ours, torchs), b


@pytest.mark.parametrize("b", [3.0, 1.7, 0.1, 5.0 / 3, 1.9999998807907104])
def test_quotients_of_all_significands_are_rounded_once(library: Library, b: float) -> None:
    a = torch.arange(0x3F800000, 0x40000000, 1, dtype=torch.int32).view(torch.float32)
    ours, torchs = quotients(library, a, b)
    assert torch.equal(ours, torchs)
