"""simd.h and simd_math.h against torch: every storage type, every count of lanes, NaN, rounding and conversion."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap

import numpy as np
import pytest
import torch

from hardtack.codegen.machine.machine import Cpu
from tests.templates.conftest import all_builds, by_gcc
from tests.templates.cpu_kernels import Library, load_library

TYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "int8_t": torch.int8,
    "int16_t": torch.int16,
    "int32_t": torch.int32,
    "int64_t": torch.int64,
    "uint8_t": torch.uint8,
    "ht::bf16": torch.bfloat16,
    "ht::f16": torch.float16,
}
FLOATS = [name for name, dtype in TYPES.items() if dtype.is_floating_point]

# Binary and unary operations on whole arrays of T: out[i] = op(x[i], y[i]), any number of elements.
_ELEMENTWISE = """
#include <hardtack/kernel_abi.h>
#include "simd.h"
using namespace ht;
template <class T, class F>
static void each(const void* x, const void* y, void* out, int64_t numel, F f) {
  const T* a = static_cast<const T*>(x);
  const T* b = static_cast<const T*>(y);
  for (int64_t i = 0; i < numel; i += W) {
    const int n = static_cast<int>(numel - i < W ? numel - i : W);
    f(load_n(a + i, n), load_n(b + i, n), out, i, n);
  }
}
#define VALUES(expr) each<T>(b[0], b[1], b[2], i[1], [&](auto x, auto y, void* o, int64_t at, int n) { \\
  store_n(static_cast<T*>(o) + at, expr, n); })
#define TRUTHS(expr) each<T>(b[0], b[1], b[2], i[1], [&](auto x, auto y, void* o, int64_t at, int n) { \\
  store_n(static_cast<int32_t*>(o) + at, expr, n); })
#define CONVERTED(To) each<T>(b[0], b[1], b[2], i[1], [&](auto x, auto y, void* o, int64_t at, int n) { \\
  store_n(static_cast<To*>(o) + at, cast<reg<To>>(x), n); })
#define CODED(To) each<T>(b[0], b[1], b[2], i[1], [&](auto x, auto y, void* o, int64_t at, int n) { \\
  store_n(static_cast<To*>(o) + at, vcode<To>(x, y, bcast(200.0f)), n); })
"""
VALUES = {
    "copy": "x",
    "add": "x + y",
    "min": "vmin(x, y)",
    "max": "vmax(x, y)",
    "abs": "vabs(x)",
    "select": "select(lt(x, y), x, y)",
    "fma": "fma(x, y, x)",
    "bcast": "(y, bcast<reg<T>>(x[0]))",
}
ROUNDING = {name: f"v{name}(x)" for name in ("floor", "ceil", "trunc", "round", "sqrt")}
TRUTHS = {name: f"{name}(x, y)" for name in ("lt", "le", "gt", "ge", "eq", "ne")} | {"mask_of": "mask_of(x)"}
CASTS = list(TYPES)
CODES = ("uint8_t", "float")
"""What codes of floats are made as."""

# Moves and reductions of one vector: i[0] chooses, i[1] lanes, i[2] a stride.
_VECTOR = """
#include <hardtack/kernel_abi.h>
#include "simd.h"
using namespace ht;
"""
_VECTOR_BODY = """
  const T* x = static_cast<const T*>(b[0]);
  T* out = static_cast<T*>(b[2]);
  const int n = static_cast<int>(i[1]);
  switch (i[0]) {
    case 0: store_strided(out, i[2], load_n(x, n), n); break;
    case 1: store_n(out, load_strided(x, i[2], n), n); break;
    case 2: store_n(out, gather(x, load_n(static_cast<const int64_t*>(b[1]), n), n), n); break;
    case 3: store1(out, hsum(load(x))); break;
    case 4: store1(out, hprod(load(x))); break;
    case 5: store1(out, hmin(load(x))); break;
    case 6: store1(out, hmax(load(x))); break;
    case 7: *static_cast<int64_t*>(b[2]) = hany(mask_of(load(x))) + 2 * hall(mask_of(load(x))); break;
    case 8: store1(out, load1(x)); break;
    case 9: *static_cast<int64_t*>(b[2]) = W; break;
    case 10: store(out, iota<reg<T>>()); break;
    case 11: store(out, load(x)); break;
    case 12:
#if defined(HT_AVX512) || defined(HT_AVX2) || defined(HT_NEON)
      *static_cast<int64_t*>(b[2]) = 1;
#else
      *static_cast<int64_t*>(b[2]) = 0;
#endif
      break;
    default: return HT_KERNEL_ASSERT;
  }
  return HT_KERNEL_OK;
"""
_PROT_NONE = 0
STRIDED_STORE, STRIDED_LOAD, GATHER, HSUM, HPROD, HMIN, HMAX, TRUTH, ONE, LANES, IOTA, WHOLE, FUSES = range(13)


def _entry(name: str, ctype: str, head: str, body: str) -> str:
    return (
        f'{head}extern "C" int32_t {name}(const HtKernelArgs* args) {{\n  using T = {ctype};\n'
        f"  void* const* b = args->buffers;\n  const int64_t* i = args->ints;\n{body}}}\n"
    )


def _name(prefix: str, ctype: str) -> str:
    return f"{prefix}_{ctype.replace('ht::', '')}"


def _operations(ctype: str) -> list[str]:
    """The elementwise operations of a type, in the order of its kernel's switch."""
    codes = (f"code {to}" for to in CODES if ctype == "float")
    return [*VALUES, *(ROUNDING if ctype in FLOATS else ()), *TRUTHS, *(f"cast {to}" for to in CASTS), *codes]


def _sources() -> dict[str, str]:
    sources = {}
    for ctype in TYPES:
        cases = []
        for index, op in enumerate(_operations(ctype)):
            if op.startswith(("cast ", "code ")):
                call = f"{'CONVERTED' if op.startswith('cast ') else 'CODED'}({op[5:]})"
            else:
                call = f"TRUTHS(({TRUTHS[op]}))" if op in TRUTHS else f"VALUES(({(VALUES | ROUNDING)[op]}))"
            cases.append(f"    case {index}: {call}; break;\n")
        body = f"  switch (i[0]) {{\n{''.join(cases)}    default: return HT_KERNEL_ASSERT;\n  }}\n"
        body += "  return HT_KERNEL_OK;\n"
        sources[_name("each", ctype)] = _entry(_name("each", ctype), ctype, _ELEMENTWISE, body)
        sources[_name("vector", ctype)] = _entry(_name("vector", ctype), ctype, _VECTOR, _VECTOR_BODY)
    return sources


@functools.cache
def _load(target: Cpu, compiler: str | None) -> Library:
    return load_library(_sources(), target, compiler)


@pytest.fixture(scope="session", params=all_builds(by_gcc))
def simd(request: pytest.FixtureRequest) -> Library:
    """The kernels of this file, for every build."""
    return _load(*request.param)


def values(ctype: str, numel: int = 203) -> torch.Tensor:
    """Ordinary and awkward values of a type."""
    dtype = TYPES[ctype]
    if dtype.is_floating_point:
        special = torch.tensor([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, math.inf, -math.inf, math.nan, 3.0, 1e-6, -1e-41])
        x = torch.cat([special, torch.randn(numel - len(special)) * 20]).to(dtype)
        return x[torch.randperm(numel)]
    info = torch.iinfo(dtype)
    x = torch.randint(max(info.min, -100), min(info.max, 100), (numel,), dtype=dtype)
    x[3], x[7], x[11] = info.min, info.max, 0
    return x


def apply(simd: Library, ctype: str, op: str, x: torch.Tensor, y: torch.Tensor, out: torch.dtype) -> torch.Tensor:
    """The operation on whole arrays; checks that nothing is written behind the result."""
    guarded = torch.full((x.numel() + 64,), 77, dtype=out)
    status = simd.call(_name("each", ctype), [x, y, guarded], [_operations(ctype).index(op), x.numel()])
    assert status == 0
    assert bool((guarded[x.numel() :] == 77).all())
    return guarded[: x.numel()]


def assert_same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal bits, but for which NaN it is."""
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    if got.dtype.is_floating_point:
        number = ~torch.isnan(want)
        assert torch.equal(torch.signbit(got[number]), torch.signbit(want[number]))


@pytest.mark.parametrize("ctype", TYPES)
def test_values(simd: Library, ctype: str) -> None:
    x, y = values(ctype), values(ctype)
    dtype = TYPES[ctype]
    wide_x, wide_y = (x.float(), y.float()) if dtype.itemsize == 2 and dtype.is_floating_point else (x, y)
    wants = {
        "copy": x,
        "add": (wide_x + wide_y).to(dtype),
        "min": torch.minimum(x, y),
        "max": torch.maximum(x, y),
        "abs": torch.abs(x),
        "select": torch.where(x < y, x, y),
    }
    for op, want in wants.items():
        got = apply(simd, ctype, op, x, y, dtype)
        # A zero of either sign is a minimum of the two.
        assert_same(got + 0 if op in ("min", "max") else got, want + 0 if op in ("min", "max") else want)


@pytest.mark.parametrize("ctype", ["float", "double"])
def test_fma_rounds_once(simd: Library, ctype: str) -> None:
    eps = 2.0**-13 if ctype == "float" else 2.0**-27
    x = torch.full((33,), 1.0 + eps, dtype=TYPES[ctype])
    y = torch.full((33,), -1.0 + eps, dtype=TYPES[ctype])
    fused = apply(simd, ctype, "fma", x, y, TYPES[ctype])  # x * y + x = -1 + eps^2 + 1 + eps
    exact = torch.full((33,), eps + eps * eps, dtype=TYPES[ctype])
    separate = x * y + x
    assert not torch.equal(separate, exact)
    fuses = torch.zeros(1, dtype=torch.int64)
    simd.call("vector_float", [None, None, fuses], [FUSES, 0, 0])
    assert torch.equal(fused, exact if int(fuses) else separate)


@pytest.mark.parametrize("to", CODES)
def test_codes(simd: Library, to: str) -> None:
    """Of halves and the floats next to them, of what no int32 and no word holds, and of NaN, about zero points."""
    halves = torch.arange(-600, 600) / 2
    far = torch.tensor([3e38, 2.0**31, 65535.5, 32768.0, math.inf]).repeat(20)
    x = torch.cat([halves, halves * (1 + 2**-23), halves * (1 - 2**-23), far, -far, torch.full((20,), math.nan)])
    zero = torch.randint(-200, 300, x.shape).float()
    zero[::7], zero[3::7] = 16384, -16384
    got = apply(simd, "float", f"code {to}", x, zero, TYPES[to])
    assert_same(got, (x.round() + zero).clamp(0, 200).nan_to_num(0).to(TYPES[to]) + 0)


@pytest.mark.parametrize("ctype", FLOATS)
def test_rounding(simd: Library, ctype: str) -> None:
    x = values(ctype)
    for op, function in (("floor", torch.floor), ("ceil", torch.ceil), ("trunc", torch.trunc), ("round", torch.round)):
        assert_same(apply(simd, ctype, op, x, x, TYPES[ctype]), function(x))
    with np.errstate(invalid="ignore"):
        root = torch.from_numpy(np.sqrt(x.double().numpy()))  # rounded correctly; torch's, of MKL, is not on every CPU
    assert_same(apply(simd, ctype, "sqrt", x, x, TYPES[ctype]), root.to(TYPES[ctype]))


@pytest.mark.parametrize("ctype", TYPES)
def test_comparisons(simd: Library, ctype: str) -> None:
    x, y = values(ctype), values(ctype)
    y[::3] = x[::3]
    wants = {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y, "mask_of": x != 0}
    for op, want in wants.items():
        assert_same(apply(simd, ctype, op, x, y, torch.int32), -want.to(torch.int32))  # all bits of a lane, or none


@pytest.mark.parametrize("ctype", TYPES)
def test_casts(simd: Library, ctype: str) -> None:
    """Of values that the destination can hold: beyond them C++ and torch leave the result open."""
    x = values(ctype)
    if ctype in FLOATS:
        x = torch.nan_to_num(x, nan=1.0, posinf=90.0, neginf=-90.0).clamp(-100, 100)
    for to in CASTS:
        source = x.abs() if to == "uint8_t" and ctype in FLOATS else x
        got = apply(simd, ctype, f"cast {to}", source, source, TYPES[to])
        assert_same(got, source.to(TYPES[to]))


def test_negative_float_to_unsigned_byte_wraps(simd: Library) -> None:
    x = torch.tensor([-1.0, -3.5, 255.0])
    got = apply(simd, "float", "cast uint8_t", x, x, torch.uint8)
    assert got.tolist() == [255, 253, 255]


@pytest.mark.parametrize("ctype", ["ht::bf16", "ht::f16"])
def test_half_floats_exhaustively(simd: Library, ctype: str) -> None:
    """Every pattern is read as torch reads it, and every float that rounds somewhere near is written so."""
    dtype = TYPES[ctype]
    patterns = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype)
    assert_same(apply(simd, ctype, "cast float", patterns, patterns, torch.float32), patterns.float())
    between = patterns.float()[~torch.isnan(patterns)].sort().values
    middle = (between[1:].double() / 2 + between[:-1].double() / 2).float()
    infinity = torch.tensor(math.inf)
    for x in (middle, torch.nextafter(middle, infinity), torch.nextafter(middle, -infinity)):
        assert_same(apply(simd, "float", f"cast {ctype}", x, x, dtype), x.to(dtype))


@pytest.mark.parametrize("ctype", ["ht::bf16", "ht::f16"])
def test_no_number_stays_none_when_rounded(simd: Library, ctype: str) -> None:
    """Whatever its lower bits are: adding to them must not carry into the exponent or the sign."""
    patterns = [0x7F800001, 0x7F80FFFF, 0x7FC00000, 0x7FFF8000, 0x7FFFFFFF, 0x7FBFFFFF]
    x = torch.tensor(patterns + [p - (1 << 31) for p in patterns] * 3, dtype=torch.int32).view(torch.float32)
    assert bool(apply(simd, "float", f"cast {ctype}", x, x, TYPES[ctype]).isnan().all())


def lanes(simd: Library) -> int:
    """W of the build."""
    out = torch.zeros(1, dtype=torch.int64)
    simd.call("vector_float", [None, None, out], [LANES, 0, 0])
    return int(out)


@pytest.mark.parametrize("ctype", TYPES)
def test_strided_and_gathered(simd: Library, ctype: str) -> None:
    x, name = values(ctype), _name("vector", ctype)
    indices = torch.randint(0, x.numel(), (16,))
    for n in range(lanes(simd) + 1):
        out = torch.full((64,), 7, dtype=TYPES[ctype])
        want = out.clone()
        simd.call(name, [x, None, out], [STRIDED_STORE, n, 3])
        want[: 3 * n : 3] = x[:n]
        assert_same(out, want)
        for op, picked in ((STRIDED_LOAD, x[: 5 * n : 5]), (GATHER, x[indices[:n]])):
            out = torch.full((64,), 7, dtype=TYPES[ctype])
            simd.call(name, [x, indices, out], [op, n, 5])
            assert_same(out[:n], picked)
            assert bool((out[n:] == 7).all())


@pytest.mark.parametrize("ctype", TYPES)
def test_horizontal(simd: Library, ctype: str) -> None:
    w, name, dtype = lanes(simd), _name("vector", ctype), TYPES[ctype]
    x = torch.randint(1, 4, (w,)).to(dtype)  # exact in every type, whatever the order
    x[1:-1:2] = 1
    out = torch.zeros(w, dtype=dtype)
    wide = x.double()
    for op, want in ((HSUM, wide.sum()), (HMIN, wide.min()), (HMAX, wide.max()), (ONE, wide[0])):
        simd.call(name, [x, None, out], [op, w, 0])
        assert float(out[0]) == float(want)
    small = torch.where(torch.arange(w) < 3, 3, 1).to(dtype)
    simd.call(name, [small, None, out], [HPROD, w, 0])
    assert float(out[0]) == 27.0
    simd.call(name, [x, None, out], [IOTA, w, 0])
    assert out.double().tolist() == list(range(w))
    simd.call(name, [x, None, out], [WHOLE, w, 0])
    assert_same(out, x)


@pytest.mark.parametrize("ctype", ["float", "double"])
def test_horizontal_extrema_propagate_nan(simd: Library, ctype: str) -> None:
    w = lanes(simd)
    for at in range(w):
        x = torch.ones(w, dtype=TYPES[ctype])
        x[at] = math.nan
        for op in (HMIN, HMAX):
            out = torch.zeros(1, dtype=TYPES[ctype])
            simd.call(_name("vector", ctype), [x, None, out], [op, w, 0])
            assert bool(torch.isnan(out))


def test_any_and_all(simd: Library) -> None:
    w = lanes(simd)
    for x, want in ((torch.zeros(w), 0), (torch.ones(w), 3), (torch.arange(w).float(), 1)):
        out = torch.zeros(1, dtype=torch.int64)
        simd.call("vector_float", [x, None, out], [TRUTH, w, 0])
        assert int(out) == want


@pytest.mark.parametrize("ctype", TYPES)
def test_nothing_is_read_behind_the_last_lane(simd: Library, ctype: str) -> None:
    """The input ends where its page does, and the next page cannot be read: a wider load would end this process."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    view = ctypes.c_char.from_buffer(memory)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(ctypes.addressof(view) + page), page, _PROT_NONE) == 0
    whole = torch.frombuffer(memory, dtype=TYPES[ctype], count=page // TYPES[ctype].itemsize)
    for n in range(lanes(simd) + 1):
        x = whole[whole.numel() - n :]
        x.copy_(torch.arange(1, n + 1))
        assert_same(apply(simd, ctype, "copy", x, x, TYPES[ctype]), x)
