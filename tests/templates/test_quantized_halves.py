"""quantized.h: rows of bf16 and f16 times weights of codes, which are products with the same weights in 16 bits."""

from __future__ import annotations

import functools

import pytest
import torch

from hardtack.codegen.machine.machine import Cpu
from tests.templates.cpu_kernels import Library, load_library
from tests.templates.half_builds import DTYPES, STORAGE, bits, build_params, name_of, packed
from tests.templates.layouts import ceil_div, gemm_packed_workspace, pack_columns, pack_gemm, pack_nibbles
from tests.templates.test_half import PACKED, SIZES, SOURCE
from tests.templates.test_quantized_products import same_bits

STEPS = ("nothing", "in turn", "at the end")
"""No step; (code - number) * number, each rounded; only the product rounded."""
_KERNEL = """
#include "quantized.h"
template <class... Steps>
int32_t product(const HtKernelArgs* args) {{
  const int64_t* i = args->ints;
  ht::QuantizedPanels<{code}, Steps...> weights = {{static_cast<const {code}*>(args->buffers[1]), {{}}, i[2], i[4]}};
  for (size_t t = 0; t < sizeof...(Steps); t++) weights.tables[t] = args->buffers[3 + t];
  const Epilogue epilogue = {{static_cast<float*>(args->buffers[2]), 0, i[1]}};
  return ht::gemm_quantized(args, static_cast<const {t}*>(args->buffers[0]), i[3], weights, i[0], i[1], epilogue);
}}
extern "C" int32_t quantized_{name}(const HtKernelArgs* args) {{
  switch (args->ints[5]) {{
    case 0: return product<>(args);
    case 1: return product<ht::Subtract<{t}>, ht::Multiply<{t}>>(args);
    case 2: return product<ht::Subtract<float, {t}>, ht::Multiply<{t}>>(args);
  }}
  return -1;
}}
"""
CODES = {"bytes": ("int8_t", -128, 127), "nibbles": ("ht::SignedNibbles", -8, 7)}


@functools.cache
def _library(cpu: Cpu) -> Library:
    found = {"packed_float32": SOURCE + PACKED % {"name": "float32", "t": "float"}}
    for dtype, t in STORAGE.items():
        found[f"packed_{name_of(dtype)}"] = SOURCE + PACKED % {"name": name_of(dtype), "t": t}
        for codes, (code, _, _) in CODES.items():
            name = f"{codes}_{name_of(dtype)}"
            found[f"quantized_{name}"] = SOURCE + _KERNEL.format(name=name, code=code, t=t)
    return load_library(found, cpu)


@pytest.fixture(scope="session", params=build_params())
def library(request: pytest.FixtureRequest) -> Library:
    """For every build."""
    return _library(request.param)


def _weight(codes: torch.Tensor, steps: str, tables: list[torch.Tensor], group: int) -> torch.Tensor:
    """The numbers that codes become, rounded where `steps` says."""
    if steps == "nothing":
        return codes.to(tables[0].dtype)
    zero, scale = (t.repeat_interleave(group, 0)[: len(codes)] for t in tables)
    if steps == "in turn":
        return (codes.to(zero.dtype) - zero) * scale
    return ((codes.float() - zero.float()) * scale.float()).to(zero.dtype)


def _check(library: Library, dtype: torch.dtype, codes: str, size: tuple[int, int, int], steps: str) -> None:
    """Columns that there are not have NaN: it would show. Up to four rows are summed in float."""
    (m, n, k), group, (_, least, greatest) = size, 8, CODES[codes]
    a, w = torch.randn(m, k + 3).to(dtype), torch.randint(least, greatest + 1, (k, n))
    tables = [torch.randn(ceil_div(k, group), n).to(dtype) for _ in range(2)]
    weight = _weight(w, steps, tables, group)
    stored = pack_nibbles(w + 8) if codes == "nibbles" else pack_columns(w.to(torch.int8), 77)
    got, want = torch.zeros(m, n), torch.zeros(m, n)
    buffers = [bits(a), stored, got, *(bits(pack_columns(t, torch.nan)) for t in tables)]
    workspace = gemm_packed_workspace(m, n, DTYPES[dtype], dequantises=True)
    ints = [m, n, k, k + 3, group, STEPS.index(steps)]
    assert library.call(f"quantized_{codes}_{name_of(dtype)}", buffers, ints, workspace, 2) == 0
    if m <= 4:
        same, left, right = "float32", a.float(), pack_gemm(weight.float())
    else:
        same, left = name_of(dtype), bits(a)
        right = packed("pairs" if dtype is torch.bfloat16 else "panels", weight)
    workspace = gemm_packed_workspace(m, n, DTYPES[dtype])
    assert library.call(f"packed_{same}", [left, right, want], ints[:4], workspace, 2) == 0
    assert got.isfinite().all()
    assert same_bits(got, want), (size, steps)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_codes_are_multiplied_as_the_numbers_that_they_become(
    library: Library, dtype: torch.dtype, codes: str, size: tuple[int, int, int]
) -> None:
    for steps in STEPS:
        _check(library, dtype, codes, size, steps)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_every_height(library: Library, dtype: torch.dtype) -> None:
    for rows in range(1, 61):
        _check(library, dtype, tuple(CODES)[rows % 2], (rows, 70, 9), STEPS[rows % 3])
