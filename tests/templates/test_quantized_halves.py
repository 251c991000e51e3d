"""quantized.h: rows of bf16 and f16 times weights of codes, which are products with the same weights in 16 bits."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch

from hardtack.codegen.machine.machine import Cpu
from tests.support.block_formats import FLOAT4
from tests.templates.cpu_kernels import Library, load_library
from tests.templates.half_builds import DTYPES, STORAGE, Kind, bits, name_of, on_builds, packed
from tests.templates.layouts import ceil_div, gemm_packed_workspace, pack_columns, pack_gemm, pack_nibbles
from tests.templates.test_half import PACKED, SIZES, SOURCE
from tests.templates.test_quantized_products import same_bits

STEPS = ("nothing", "in turn", "at the end", "scaled")
"""No step; (code - number) * number, each rounded; only the product rounded; code * number, rounded."""
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
    case 3: return product<ht::Multiply<{t}>>(args);
  }}
  return -1;
}}
"""
CODES = {
    "bytes": ("int8_t", -128, 127), "nibbles": ("ht::SignedNibbles", -8, 7), "floats": ("ht::E4m3", 0, 255),
    "float4": ("ht::E2m1Nibbles", 0, 15),
}  # fmt: skip
INTEGERS = ("bytes", "nibbles")


@functools.cache
def _library(cpu: Cpu, dtype: torch.dtype, codes: str) -> Library:
    name = f"{codes}_{name_of(dtype)}"
    types = {**STORAGE, torch.float32: "float"}
    found = {f"packed_{name_of(t)}": SOURCE + PACKED % {"name": name_of(t), "t": types[t]} for t in types}
    found[f"quantized_{name}"] = SOURCE + _KERNEL.format(name=name, code=CODES[codes][0], t=STORAGE[dtype])
    return load_library(found, cpu)


@pytest.fixture(scope="session")
def library(request: pytest.FixtureRequest) -> Library:
    """For a kind."""
    return _library(*request.param)


def _few(place: int) -> tuple[Kind, ...]:
    """Of bfloat16, for whose products builds have instructions of their own; bytes and nibbles in turn."""
    return ((torch.bfloat16, INTEGERS[place % 2]),)


def with_codes(*codes: str) -> pytest.MarkDecorator:
    """Rows of both types times weights of these codes."""
    return on_builds(itertools.product(DTYPES, codes), _few)


def _weight(codes: torch.Tensor, steps: str, tables: list[torch.Tensor], group: int) -> torch.Tensor:
    """The numbers that codes become, rounded where `steps` says."""
    if steps == "nothing":
        return codes.to(tables[0].dtype)
    *zeros, scale = (t.repeat_interleave(group, 0)[: len(codes)] for t in tables)
    if steps == "scaled":
        return codes.to(scale.dtype) * scale
    (zero,) = zeros
    if steps == "in turn":
        return (codes.to(zero.dtype) - zero) * scale
    return ((codes.float() - zero.float()) * scale.float()).to(zero.dtype)


def _stored(codes: str, w: torch.Tensor) -> torch.Tensor:
    """Codes as panels have them."""
    if codes == "nibbles":
        return pack_nibbles(w + 8)
    if codes == "float4":
        return pack_nibbles(w)
    return pack_columns(w.to(torch.int8 if codes == "bytes" else torch.uint8), 77)


def _floats(codes: str, w: torch.Tensor) -> torch.Tensor:
    """What codes stand for."""
    if codes == "float4":
        return torch.tensor([*FLOAT4, *(-x for x in FLOAT4)])[w.long()]
    return w.to(torch.uint8).view(torch.float8_e4m3fn).float() if codes == "floats" else w.float()


def _product(
    library: Library, a: torch.Tensor, codes: str, w: torch.Tensor, steps: str, tables: list[torch.Tensor], group: int
) -> torch.Tensor:
    """a's first k columns times the weight. Columns that there are not have NaN: it would show."""
    m, (k, n), dtype = len(a), w.shape, a.dtype
    out = torch.zeros(m, n)
    buffers = [bits(a), _stored(codes, w), out, *(bits(pack_columns(t, torch.nan)) for t in tables)]
    workspace = gemm_packed_workspace(m, n, DTYPES[dtype], dequantises=True)
    ints = [m, n, k, a.shape[1], group, STEPS.index(steps)]
    assert library.call(f"quantized_{codes}_{name_of(dtype)}", buffers, ints, workspace, 2) == 0
    return out


def _compare(library: Library, a: torch.Tensor, weight: torch.Tensor, got: torch.Tensor) -> None:
    """With the product by the numbers: up to four rows are summed in float."""
    m, n, dtype, want = len(a), weight.shape[1], a.dtype, torch.zeros_like(got)
    if m <= 4:
        same, left, right = "float32", a.float(), pack_gemm(weight.float())
    else:
        same, left = name_of(dtype), bits(a)
        right = packed("pairs" if dtype is torch.bfloat16 else "panels", weight)
    workspace = gemm_packed_workspace(m, n, DTYPES[dtype])
    ints = [m, n, len(weight), a.shape[1]]
    assert library.call(f"packed_{same}", [left, right, want], ints, workspace, 2) == 0
    assert got.isfinite().all()
    assert same_bits(got, want)


def _check(library: Library, dtype: torch.dtype, codes: str, size: tuple[int, int, int], steps: str) -> None:
    (m, n, k), group, (_, least, greatest) = size, 8, CODES[codes]
    a, w = torch.randn(m, k + 3).to(dtype), torch.randint(least, greatest + 1, (k, n))
    tables = [torch.randn(ceil_div(k, group), n).to(dtype) for _ in range(2)]
    got = _product(library, a, codes, w, steps, tables, group)
    _compare(library, a, _weight(w, steps, tables, group), got)


@pytest.mark.parametrize("size", SIZES, ids=str)
@with_codes(*INTEGERS)
def test_codes_are_multiplied_as_the_numbers_that_they_become(
    library: Library, dtype: torch.dtype, codes: str, size: tuple[int, int, int]
) -> None:
    for steps in STEPS[:3]:
        _check(library, dtype, codes, size, steps)


@with_codes(*INTEGERS)
def test_every_height(library: Library, dtype: torch.dtype, codes: str) -> None:
    for rows in range(1, 61):
        _check(library, dtype, codes, (rows, 70, 9), STEPS[rows % 3])


@pytest.mark.parametrize("steps", STEPS[1:])
@with_codes(*CODES)
def test_groups_whose_products_are_two_fused_ones(library: Library, dtype: torch.dtype, codes: str, steps: str) -> None:
    """Whole zero points and scales that are not extreme, beside groups of which one column has another number."""
    _, least, greatest = CODES[codes]
    k, n, group = 90, 64, 10
    w = torch.randint(least, greatest + 1, (k, n))
    if codes == "floats":
        w[1::2] |= 8  # normal ones alone
    w = torch.where(_floats(codes, w).isfinite(), w, 8 if codes == "floats" else 0)
    zero = torch.randint(-20, 21, (k // group, n)).to(dtype)
    scale = (torch.rand(k // group, n) + 0.04).to(dtype)
    zero[1, 3], zero[2, 40], scale[3, 5], scale[4, 33], scale[5, 63], scale[6, 0] = 0.3, 150, -1, 0, 1e-6, 90
    tables = [scale] if steps == "scaled" else [zero, scale]
    for rows in (1, 2, 3, 4):
        a = torch.randn(rows, k).to(dtype)
        weight = _weight(_floats(codes, w), steps, tables, group)
        _compare(library, a, weight, _product(library, a, codes, w, steps, tables, group))


@with_codes(*CODES)
def test_every_product_of_a_code_and_a_scale(library: Library, dtype: torch.dtype, codes: str) -> None:
    """A row of the unit matrix gives the numbers of one code with every fifth scale; others are multiplied by zero."""
    scale = torch.arange(0, 1 << 16, 5).to(torch.int32).to(torch.uint16).view(dtype)[None]
    scale = scale[:, scale[0].abs() < torch.finfo(dtype).max / 1000]
    _, least, greatest = CODES[codes]
    listed = torch.arange(least, greatest + 1)
    listed = listed[_floats(codes, listed).isfinite()]
    for some in listed.split(4):
        w = some[:, None].expand(-1, scale.shape[1]).contiguous()
        got = _product(library, torch.eye(len(some)).to(dtype), codes, w, "scaled", [scale], len(some))
        assert torch.equal(got, (_floats(codes, w).to(dtype) * scale).float())
