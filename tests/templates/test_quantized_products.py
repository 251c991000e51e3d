"""quantized.h: products with weights of codes, which are those of the same weights as float, bit by bit."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch

from tests.support.block_formats import FLOAT4
from tests.templates.conftest import Build, all_builds, by_gcc, portable, with_bf16
from tests.templates.cpu_kernels import Library, load_library
from tests.templates.layouts import ceil_div, gemm_packed_workspace, pack_columns, pack_gemm, pack_nibbles
from tests.templates.test_half import PACKED, SIZES, SOURCE

STEPS: tuple[tuple[str, ...], ...] = ((), ("subtract", "multiply"), ("multiply",), ("multiply", "add"))
_BOTH = STEPS[:2]
_TAKE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "subtract": operator.sub, "multiply": operator.mul, "add": operator.add
}  # fmt: skip

# Steps by number: a kernel for each type of codes has all of them, so that a library is four texts.
_CASE = """
  if (i[5] == {number}) {{
    const ht::QuantizedPanels<{types}> weights = {{codes, {{{tables}}}, i[2], i[4]}};
    return ht::gemm_quantized(args, a, i[3], weights, i[0], i[1], epilogue);
  }}"""
_KERNEL = """
#include "quantized.h"
extern "C" int32_t quantized_{name}(const HtKernelArgs* args) {{
  const int64_t* i = args->ints;
  const auto a = static_cast<const float*>(args->buffers[0]);
  const auto codes = static_cast<const {code}*>(args->buffers[1]);
  const Epilogue epilogue = {{static_cast<float*>(args->buffers[2]), 0, i[1]}};{cases}
  return -1;
}}
"""


@dataclass(frozen=True)
class Code:
    """How codes are stored: their type in C++, and the least and the greatest."""

    cpp: str
    least: int
    greatest: int
    steps: tuple[tuple[str, ...], ...]
    """Those that its kernel has."""
    float8: torch.dtype | None = None
    """What its bytes are the bits of."""
    numbers: tuple[float, ...] = ()
    """What codes stand for by themselves."""

    @property
    def name(self) -> str:
        """Of the kernel."""
        return self.cpp.removeprefix("ht::").lower()

    def random(self, k: int, n: int) -> torch.Tensor:
        """[k, n] codes as integers, of numbers that are finite; of floats every second row of normal ones alone."""
        codes = torch.randint(self.least, self.greatest + 1, (k, n))
        if self.float8 is not None:
            codes[1::2] |= 8
        return torch.where(self.floats(codes).isfinite(), codes, 8)

    def floats(self, codes: torch.Tensor) -> torch.Tensor:
        """What they stand for."""
        if self.numbers:
            return torch.tensor(self.numbers)[codes]
        return codes.float() if self.float8 is None else codes.to(torch.uint8).view(self.float8).float()

    def packed(self, codes: torch.Tensor) -> torch.Tensor:
        """As quantized.h documents them."""
        if self.greatest - self.least == 15:
            return pack_nibbles(codes - self.least)
        return pack_columns(codes.to(torch.int8 if self.least < 0 else torch.uint8), 77)


CODES = (
    Code("int8_t", -128, 127, STEPS), Code("uint8_t", 0, 255, _BOTH), Code("ht::SignedNibbles", -8, 7, STEPS),
    Code("ht::UnsignedNibbles", 0, 15, _BOTH),
    Code("ht::E2m1Nibbles", 0, 15, STEPS, None, (*FLOAT4, *(-x for x in FLOAT4))),
    Code("ht::E4m3", 0, 255, _BOTH, torch.float8_e4m3fn),
    Code("ht::E5m2", 0, 255, _BOTH, torch.float8_e5m2),
)  # fmt: skip
by_code = pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)


def _kernel(code: Code) -> str:
    cases = ""
    for number, steps in enumerate(code.steps):
        types = ", ".join([code.cpp, *(f"ht::{step.capitalize()}<float>" for step in steps)])
        tables = ", ".join(f"static_cast<const float*>(args->buffers[{3 + s}])" for s in range(len(steps)))
        cases += _CASE.format(number=number, types=types, tables=tables)
    return _KERNEL.format(name=code.name, code=code.cpp, cases=cases)


@functools.cache
def _library(build: Build) -> Library:
    kernels = {f"quantized_{code.name}": SOURCE + _kernel(code) for code in CODES}
    return load_library({**kernels, "packed_floats": SOURCE + PACKED % {"name": "floats", "t": "float"}}, *build)


@pytest.fixture(scope="session", params=all_builds(by_gcc, portable, with_bf16))
def library(request: pytest.FixtureRequest) -> Library:
    """For every build."""
    return _library(request.param)


@dataclass(frozen=True)
class Weights:
    """A weight [k, n]: codes, and for each step a table [groups, n]."""

    code: Code
    codes: torch.Tensor
    steps: tuple[str, ...]
    group: int
    tables: Sequence[torch.Tensor]

    def floats(self) -> torch.Tensor:
        """Step by step, each rounded."""
        w = self.code.floats(self.codes)
        for step, table in zip(self.steps, self.tables, strict=True):
            w = _TAKE[step](w, table.repeat_interleave(self.group, 0)[: len(w)])
        return w


def random_weights(code: Code, k: int, n: int, steps: tuple[str, ...], group: int) -> Weights:
    tables = [torch.randn(ceil_div(k, group), n) for _ in steps]
    return Weights(code, code.random(k, n), steps, group, tables)


def product(library: Library, a: torch.Tensor, w: Weights, workers: int = 2) -> torch.Tensor:
    """a's first k columns times the weight. Columns that there are not have NaN: it would show."""
    m, n, k = len(a), w.codes.shape[1], len(w.codes)
    out = torch.zeros(m, n)
    tables = [pack_columns(table, torch.nan) for table in w.tables]
    buffers = [a, w.code.packed(w.codes), out, *tables]
    group = w.group if w.steps else 0  # nobody reads it
    ints = [m, n, k, a.shape[1], group, w.code.steps.index(w.steps)]
    workspace = gemm_packed_workspace(m, n, dequantises=True)
    assert library.call(f"quantized_{w.code.name}", buffers, ints, workspace, workers) == 0
    return out


def float_product(library: Library, a: torch.Tensor, w: Weights) -> torch.Tensor:
    """The same of the weight as float."""
    m, n, k = len(a), w.codes.shape[1], len(w.codes)
    out = torch.zeros(m, n)
    buffers = [a, pack_gemm(w.floats()), out]
    assert library.call("packed_floats", buffers, [m, n, k, a.shape[1]], gemm_packed_workspace(m, n), 2) == 0
    return out


def same_bits(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Of numbers; any NaN is as good as another."""
    return torch.equal(x.view(torch.int32)[~x.isnan()], y.view(torch.int32)[~y.isnan()]) and torch.equal(
        x.isnan(), y.isnan()
    )


def _check(library: Library, m: int, w: Weights) -> None:
    a = torch.randn(m, len(w.codes) + 3)
    got, want = product(library, a, w), float_product(library, a, w)
    assert got.isfinite().all()
    assert same_bits(got, want), (m, w.codes.shape, w.steps, w.group)


@pytest.mark.sweep(over="library")
@by_code
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_codes_are_multiplied_as_the_floats_that_they_become(
    library: Library, size: tuple[int, int, int], code: Code
) -> None:
    m, n, k = size
    for steps, group in zip(code.steps, (8, 32, 128, 7), strict=False):
        _check(library, m, random_weights(code, k, n, steps, group))


@pytest.mark.parametrize("columns", [1, 16, 17, 33, 70, 300])
def test_every_height(library: Library, columns: int) -> None:
    """Of all codes where they become float in registers; more rows have them made float before, in turn."""
    for rows in range(1, 61):
        for code in CODES if rows <= 5 else (CODES[rows % len(CODES)],):
            _check(library, rows, random_weights(code, 9, columns, code.steps[1], 4))


@pytest.mark.sweep(over="library")
@by_code
@pytest.mark.parametrize("rows", [1, 4, 37])
def test_groups(library: Library, rows: int, code: Code) -> None:
    """Of one k, of all, of more than there are, and of lengths that divide neither k nor the blocks of it."""
    for k in (37, 2500):
        for number, group in enumerate((1, 8, 32, 128, 100, 999, k)):
            _check(library, rows, random_weights(code, k, 40, code.steps[number % (len(code.steps) - 1) + 1], group))
        whole, a = random_weights(code, k, 40, STEPS[1], k), torch.randn(rows, k)
        longer = dataclasses.replace(whole, group=1 << 40)
        assert same_bits(product(library, a, longer), float_product(library, a, whole))


@pytest.mark.sweep(over="library")
@by_code
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_any_number_of_workers(library: Library, rows: int, code: Code) -> None:
    weights, a = random_weights(code, 200, 700, STEPS[1], 32), torch.randn(rows, 200)
    found = [product(library, a, weights, workers) for workers in (1, 2, 7)]
    assert all(same_bits(found[0], other) for other in found[1:])
    assert same_bits(found[0], float_product(library, a, weights))


@pytest.mark.sweep(over="library")
@by_code
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 21])
def test_special_numbers_travel(library: Library, rows: int, code: Code) -> None:
    for steps in code.steps[1:]:
        weights = random_weights(code, 70, 50, steps, 8)
        for table in weights.tables:
            table[0, 0], table[1, 1], table[2, 2], table[3, 3:20] = torch.inf, torch.nan, -torch.inf, 0.0
            table[4, 20:40], table[5, 40:], table[:, 9] = -0.0, 1e-42, 3e38
        a = torch.randn(rows, 70)
        a[:, 64:] = -0.0
        assert same_bits(product(library, a, weights), float_product(library, a, weights)), steps


@by_code
def test_every_code(library: Library, code: Code) -> None:
    """Each is the number that it stands for, in every column and half of a byte."""
    values = torch.arange(code.least, code.greatest + 1)
    values = values[code.floats(values).isfinite()]
    codes = torch.stack([values.roll(j) for j in range(64)], 1)
    for rows in (4, len(values)):
        a = torch.eye(len(values))
        weights = Weights(code, codes, (), len(values), [])
        got = torch.cat([product(library, a[i : i + rows], weights) for i in range(0, len(a), rows)])
        assert torch.equal(got, code.floats(codes))


@by_code
def test_codes_that_are_no_numbers(library: Library, code: Code) -> None:
    """Infinities and NaNs of float8 are theirs, and change no other column."""
    codes = torch.arange(code.least, code.greatest + 1)[None]
    weights = Weights(code, codes, (), 1, [])
    for rows in (1, 3, 9):
        got = product(library, torch.ones(rows, 1), weights)
        torch.testing.assert_close(got, code.floats(codes).expand(rows, -1), rtol=0, atol=0, equal_nan=True)
