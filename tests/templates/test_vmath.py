"""vmath.h: the errors that its comments state, over dense samples, and the special values that torch gives."""

from __future__ import annotations

import functools
from collections.abc import Callable

import mpmath  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import pytest
import torch

from hardtack.codegen.machine.machine import Cpu
from tests.templates.conftest import all_targets, main_targets
from tests.templates.cpu_kernels import Library, load_library

Array = npt.NDArray[np.floating]

# Largest error in ulp: (float, double). exp_nonpositive has a test of its own.
UNARY = {
    "exp": (1.1, 1.0), "exp2": (0.9, 0.9), "expm1": (1.6, 1.8), "log": (0.8, 0.9), "log2": (1.0, 1.1),
    "log10": (1.0, 1.0), "log1p": (1.4, 0.9), "tanh": (1.5, 1.4), "sigmoid": (2.0, 2.0), "erf": (1.0, 3.0),
    "erfc": (4.2, 3.6), "erfinv": (2.5, 2.8), "sin": (1.5, 2.3), "cos": (1.6, 2.2), "tan": (2.9, 3.6),
    "asin": (2.3, 2.1), "acos": (1.1, 1.2), "atan": (1.3, 1.5), "sinh": (2.2, 2.3), "cosh": (1.5, 1.4),
    "asinh": (1.8, 1.8), "acosh": (2.0, 1.9), "atanh": (2.0, 1.9), "rsqrt": (1.5, 1.5), "lgamma": (0.51, 4.1),
}  # fmt: skip
BINARY = {"pow": (0.51, 1.5), "atan2": (1.5, 1.5), "fmod": (0.0, 0.0), "remainder": (0.501, 0.501)}
SPECIAL = [
    0.0, 1.0, np.inf, np.nan, 0.5, 2.0, 3.0, 1e-40, 1e-45, 3.4e38, 0.25, 1.25, 0.75, 1.75, 8.0, 88.72, 103.9, 9.5,
]  # fmt: skip

_KERNEL = """
#include <hardtack/kernel_abi.h>
#include "vmath.h"
using namespace ht;
extern "C" int32_t functions_%(t)s(const HtKernelArgs* args) {
  const %(t)s* x = static_cast<const %(t)s*>(args->buffers[0]);
  const %(t)s* y = static_cast<const %(t)s*>(args->buffers[1]);
  %(t)s* out = static_cast<%(t)s*>(args->buffers[2]);
  const int64_t n = args->ints[0];
  switch (args->ints[1]) {%(cases)s
  }
  return -1;
}
"""
_CASE = """
    case %(number)d:
      for (int64_t i = 0; i < n; i += W) {
        const int m = n - i < W ? static_cast<int>(n - i) : W;
        store_n(out + i, v%(f)s(load_n(x + i, m)%(more)s), m);
      }
      return HT_KERNEL_OK;"""
FUNCTIONS = [*UNARY, *BINARY, "exp_nonpositive", "exp2_short"]
"""By number: a kernel for each type has all of them; the last is there for float alone."""


def sources() -> dict[str, str]:
    """The kernel of either type."""
    found = {}
    for t, functions in (("float", FUNCTIONS), ("double", FUNCTIONS[:-1])):
        cases = ""
        for number, f in enumerate(functions):
            cases += _CASE % {"number": number, "f": f, "more": ", load_n(y + i, m)" if f in BINARY else ""}
        found[f"functions_{t}"] = _KERNEL % {"t": t, "cases": cases}
    return found


@functools.cache
def library(target: Cpu) -> Library:
    return load_library(sources(), target)


def call(target: Cpu, name: str, x: Array, y: Array | None = None) -> Array:
    a, b = torch.from_numpy(x), torch.from_numpy(x if y is None else y)
    out = torch.empty_like(a)
    kind = "float" if x.dtype == np.float32 else "double"
    assert library(target).call(f"functions_{kind}", [a, b, out], [x.size, FUNCTIONS.index(name)]) == 0
    return np.asarray(out.numpy())


def samples(dtype: npt.DTypeLike, count: int, seed: int = 0) -> Array:
    """Random bit patterns, uniform values at many scales, the neighbourhood of one, and special values."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        bits = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32).astype(dtype)
    parts = [bits]
    for scale in (1e-10, 1e-3, 0.1, 0.5, 1, 2, 5, 10, 30, 100, 700, 1e5, 1e7, 1e12):
        parts.append(rng.uniform(-scale, scale, count // 4).astype(dtype))
    near = (1 + rng.uniform(-1e-2, 1e-2, count // 4)).astype(dtype)
    special = np.array(SPECIAL, dtype=dtype)
    return np.concatenate([*parts, near, -near, special, -special])


def ulps(got: Array, want: Array) -> Array:
    """|got - want| in units of the spacing of ``got``'s type at ``want``; infinite where NaN or infinity disagree."""
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        spacing = np.spacing(np.abs(rounded)).astype(want.dtype)
        top = np.spacing(np.finfo(got.dtype).max)
        spacing = np.where(np.isfinite(spacing), spacing, want.dtype.type(top))
        error = np.abs(got.astype(want.dtype) - want) / spacing
    agree = (np.isnan(got) & np.isnan(rounded)) | (np.isinf(got) & (got == rounded))
    differ = (np.isnan(got) != np.isnan(rounded)) | (np.isinf(got) != np.isinf(rounded))
    return np.where(agree, 0, np.where(differ, np.inf, error))


def assert_close(name: str, got: Array, want: Array, limit: float, *inputs: Array) -> None:
    error = ulps(got, want)
    worst = int(np.argmax(error))
    where = ", ".join(repr(x[worst]) for x in inputs)
    assert error[worst] <= limit, f"{name}({where}): {got[worst]!r} is {error[worst]:.2f} ulp off {want[worst]!r}"
    zero = (want == 0) & (got == 0)
    assert (np.signbit(got[zero]) == np.signbit(want[zero])).all(), f"{name}: a zero of the wrong sign"


def in_wider(name: str, *inputs: Array) -> Array:
    """In the C library's long double, which is the same on every machine; by torch in double what C has not."""
    with np.errstate(all="ignore"):
        if name in BY_MPMATH:
            wide = [torch.from_numpy(x.astype(np.float64)) for x in inputs]
            return np.asarray(getattr(torch, name)(*wide).numpy())
        function = EXTENDED.get(name) or getattr(np, name)
        return np.asarray(function(*(x.astype(np.longdouble) for x in inputs)))


@pytest.mark.parametrize("target", all_targets())
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.filterwarnings("ignore:.*encountered in cast")
def test_float_unary(target: Cpu, name: str) -> None:
    x = samples(np.float32, 40_000)
    if name == "lgamma":  # torch's own double lgamma is not good enough near the negative zeros
        with np.errstate(invalid="ignore"):
            whole = (np.abs(x) < 1e7) & (x == np.trunc(x))
        x = x[(x > 0) | (x < -20) | np.isnan(x) | whole]
    got = call(target, name, x)
    assert_close(name, got, in_wider(name, x), UNARY[name][0], x)


def pairs(dtype: npt.DTypeLike, name: str, count: int) -> tuple[Array, Array]:
    x = samples(dtype, count)
    rng = np.random.default_rng(1)
    y = rng.permutation(x)
    if name == "pow":
        x = np.concatenate([x, rng.uniform(0, 100, count).astype(dtype), rng.uniform(0.5, 1.5, count).astype(dtype)])
        y = np.concatenate([y, rng.uniform(-20, 20, count).astype(dtype), rng.uniform(-300, 300, count).astype(dtype)])
    special = np.array([*SPECIAL, *(-s for s in SPECIAL)], dtype=dtype)
    a, b = np.meshgrid(special, special)
    return np.concatenate([x, a.ravel()]), np.concatenate([y, b.ravel()])


@pytest.mark.parametrize("target", all_targets())
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.filterwarnings("ignore:.*encountered in cast")
def test_float_binary(target: Cpu, name: str) -> None:
    x, y = pairs(np.float32, name, 40_000)
    assert_close(name, call(target, name, x, y), in_wider(name, x, y), BINARY[name][0], x, y)


def _sigmoid(x: Array) -> Array:
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


def _remainder(x: Array, y: Array) -> Array:
    r = np.fmod(x, y)
    return np.where((r != 0) & ((r < 0) != (y < 0)), r + y, r)


EXTENDED: dict[str, Callable[..., Array]] = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan2": np.arctan2, "pow": np.power, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": _sigmoid, "remainder": _remainder,
}  # fmt: skip
BY_MPMATH = ("erf", "erfc", "erfinv", "lgamma")


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs an extended long double for the reference")
@pytest.mark.parametrize("target", main_targets())
@pytest.mark.parametrize("name", [name for name in (*UNARY, *BINARY) if name not in BY_MPMATH])
@pytest.mark.filterwarnings("ignore:.*encountered in cast")
def test_double(target: Cpu, name: str) -> None:
    inputs = pairs(np.float64, name, 8000) if name in BINARY else (samples(np.float64, 8000),)
    got = call(target, name, *inputs)
    with np.errstate(all="ignore"):
        function = EXTENDED.get(name) or getattr(np, name)
        want = function(*(x.astype(np.longdouble) for x in inputs))
    limit = (UNARY.get(name) or BINARY[name])[1]
    assert_close(name, got, want, limit, *inputs)


LIMITS: dict[str, dict[float, float]] = {
    "erf": {np.inf: 1.0, -np.inf: -1.0},
    "erfc": {np.inf: 0.0, -np.inf: 2.0},
    "erfinv": {1.0: np.inf, -1.0: -np.inf, **dict.fromkeys((2.0, -2.0, np.inf, -np.inf), np.nan)},
    "lgamma": dict.fromkeys((0.0, -1.0, -2.0, np.inf, -np.inf), np.inf),
}
"""Where the functions have no value, or one at infinity."""


def _exactly(name: str, x: float) -> np.longdouble:
    with mpmath.workdps(40):
        value = {
            "erf": mpmath.erf,
            "erfc": mpmath.erfc,
            "erfinv": mpmath.erfinv,
            "lgamma": lambda v: mpmath.loggamma(mpmath.mpf(v)),
        }[name](mpmath.mpf(x))
        high = float(value)
        return np.longdouble(high) + np.longdouble(float(value - mpmath.mpf(high)))


@pytest.mark.parametrize("target", main_targets())
@pytest.mark.parametrize("name", BY_MPMATH)
def test_double_by_mpmath(target: Cpu, name: str) -> None:
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(-scale, scale, 120) for scale in (1e-12, 1e-3, 0.5, 0.999999, 3, 6, 26)])
    if name == "erfinv":
        x = np.concatenate([x[np.abs(x) < 1], 1 - 10 ** -rng.uniform(1, 15.5, 200)])
    elif name == "lgamma":
        x = np.concatenate([np.abs(x), rng.uniform(0, 1e4, 100), 10 ** rng.uniform(-300, 300, 100)])
    want = np.array([_exactly(name, float(v)) for v in x])
    assert_close(name, call(target, name, x), want, UNARY[name][1], x)
    special = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, np.inf, -np.inf, np.nan])
    expected = [LIMITS[name].get(v, np.nan if np.isnan(v) else None) for v in special]
    exact = np.array(
        [float(_exactly(name, float(v))) if e is None else e for v, e in zip(special, expected, strict=True)]
    )
    np.testing.assert_allclose(call(target, name, special), exact, rtol=1e-15)


@pytest.mark.parametrize("target", all_targets())
def test_lgamma_between_the_negative_integers(target: Cpu) -> None:
    x = -np.random.default_rng(6).uniform(0, 30, 300)
    want = np.array([float(mpmath.re(mpmath.loggamma(mpmath.mpf(v)))) for v in x])
    np.testing.assert_allclose(call(target, "lgamma", x), want, rtol=1e-14, atol=2e-14)


@pytest.mark.parametrize("target", main_targets())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_nonpositive(target: Cpu, dtype: npt.DTypeLike) -> None:
    lowest = -87 if dtype is np.float32 else -708
    x = np.linspace(lowest, 0, 100_001).astype(dtype)
    want = np.exp(x.astype(np.longdouble))
    assert_close("exp_nonpositive", call(target, "exp_nonpositive", x), want, 1.1, x)
    edge = np.array([-np.inf, lowest - 1, -1e30, np.nan, -0.0], dtype=dtype)
    np.testing.assert_array_equal(call(target, "exp_nonpositive", edge), np.array([0, 0, 0, np.nan, 1], dtype=dtype))


@pytest.mark.parametrize("target", main_targets())
def test_exp2_short(target: Cpu) -> None:
    """A two-hundredth of bfloat16's half ulp, and 0 for what no normal number is."""
    x = np.concatenate([np.linspace(-126, 2, 100_001), np.arange(-126, 3), np.linspace(-1, 1, 9_999)]).astype(
        np.float32
    )
    want = np.exp2(x.astype(np.float64))
    assert np.abs(call(target, "exp2_short", x) / want - 1).max() < 2.0**-17
    edge = np.array([-np.inf, -126.01, -1e30, np.nan, -0.0, 0.0], dtype=np.float32)
    np.testing.assert_array_equal(call(target, "exp2_short", edge), np.array([0, 0, 0, np.nan, 1, 1], dtype=np.float32))
