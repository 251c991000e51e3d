"""Products of 16-bit numbers (half.h, tiles.h) against float64: by FMA, by instructions for pairs, by tiles."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hardtack.codegen.machine.machine import Cpu
from tests.templates.cpu_kernels import Library, load_library
from tests.templates.half_builds import BUILDS, DTYPES, STORAGE, bits, build_params, name_of, packed
from tests.templates.layouts import gemm_dynamic_workspace, gemm_packed_workspace

SOURCE = """
#include "gemm.h"
struct Epilogue {
  float* out;
  int64_t rows_per_batch, ld;
  static constexpr int kOperations = 4;
  static constexpr bool kOneRow = false;
  struct Row { float* out; };
  HT_MEMBER Row row(int64_t batch, int64_t m) const { return {out + (batch * rows_per_batch + m) * ld}; }
  HT_MEMBER void operator()(const Row& r, int64_t m, int64_t n, int count, ht::vec<float> acc) const {
    part(r, m, n, count, acc);
  }
  HT_MEMBER void part(const Row& r, int64_t, int64_t n, int count, ht::vec<float> acc) const {
    ht::store_n(r.out + n, acc + ht::load_n(r.out + n, count), count);  // an element handed over twice shows
  }
};
"""
PACKED = """
extern "C" int32_t packed_%(name)s(const HtKernelArgs* args) {
  const int64_t* i = args->ints;
  const auto a = static_cast<const %(t)s*>(args->buffers[0]), b = static_cast<const %(t)s*>(args->buffers[1]);
  const Epilogue epilogue = {static_cast<float*>(args->buffers[2]), 0, i[1]};
  return ht::gemm_packed(args, a, i[3], b, i[0], i[1], i[2], epilogue);
}
"""
DYNAMIC = """
extern "C" int32_t dynamic_%(name)s(const HtKernelArgs* args) {
  const int64_t* i = args->ints;
  const ht::DynamicShape shape = {i[0], i[1], i[2], i[3], i[4]};
  const ht::MatrixBatch<%(t)s> a = {static_cast<const %(t)s*>(args->buffers[0]), i[5], i[6], i[7], i[8]};
  const ht::MatrixBatch<%(t)s> b = {static_cast<const %(t)s*>(args->buffers[1]), i[9], i[10], i[11], i[12]};
  return ht::gemm_dynamic(args, shape, a, b, Epilogue{static_cast<float*>(args->buffers[2]), i[2], i[3]});
}
"""


def sources() -> dict[str, str]:
    """Both products, of both types."""
    found = {}
    for dtype, t in STORAGE.items():
        names = {"name": name_of(dtype), "t": t}
        found |= {
            f"packed_{name_of(dtype)}": SOURCE + PACKED % names,
            f"dynamic_{name_of(dtype)}": SOURCE + DYNAMIC % names,
        }
    return found


@functools.cache
def _library(cpu: Cpu) -> Library:
    return load_library(sources(), cpu)


@pytest.fixture(scope="session", params=build_params())
def library(request: pytest.FixtureRequest) -> Library:
    """The products of both types, for every build."""
    return _library(request.param)


def _packed_weights(b: torch.Tensor) -> torch.Tensor:
    return packed("pairs" if b.dtype is torch.bfloat16 else "panels", b)


def _assert_close(got: torch.Tensor, want: torch.Tensor, k: int) -> None:
    """Sums in f32 of products that are exact."""
    torch.testing.assert_close(got.double(), want, rtol=2e-5, atol=1e-5 * max(1.0, k) ** 0.5)


def _packed(
    library: Library, dtype: torch.dtype, m: int, n: int, k: int, pad: int = 3, nworkers: int = 1
) -> torch.Tensor:
    a, b = torch.randn(m, k + pad).to(dtype), torch.randn(k, n).to(dtype)
    out = torch.zeros(m, n)
    workspace = gemm_packed_workspace(m, n, DTYPES[dtype])
    buffers = [bits(a), _packed_weights(b), out]
    assert library.call(f"packed_{name_of(dtype)}", buffers, [m, n, k, k + pad], workspace, nworkers) == 0
    _assert_close(out, a[:, :k].double() @ b.double(), k)
    return out


SIZES = [
    (0, 5, 5), (5, 0, 5), (5, 5, 0), (1, 1, 1), (1, 33, 7), (4, 40, 31), (5, 32, 64), (12, 32, 1), (13, 64, 3),
    (17, 48, 33), (32, 32, 32), (33, 31, 17), (64, 16, 9), (7, 40, 768), (6, 33, 769), (193, 70, 101),
    (20, 300, 1600), (385, 65, 12), (70, 70, 96), (49, 33, 160),
]  # fmt: skip


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_packed(library: Library, dtype: torch.dtype, size: tuple[int, int, int]) -> None:
    _packed(library, dtype, *size, nworkers=2)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_packed_heights(library: Library, dtype: torch.dtype) -> None:
    for m in range(1, 50):
        _packed(library, dtype, m, 40, 11)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("size", [(200, 150, 1000), (3, 900, 1001), (1000, 20, 300)], ids=str)
def test_same_bits_for_any_number_of_workers(library: Library, dtype: torch.dtype, size: tuple[int, int, int]) -> None:
    results = []
    for nworkers in (1, 2, 5):
        torch.manual_seed(1)
        results.append(_packed(library, dtype, *size, nworkers=nworkers))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def _dynamic(library: Library, a: torch.Tensor, b: torch.Tensor, nworkers: int = 2) -> None:
    """a [outer, inner, m, k] and b [outer, inner, k, n], of any strides."""
    (outer, inner, m, k), n = a.shape, b.shape[-1]
    out = torch.zeros(outer, inner, m, n)
    ints = [outer, inner, m, n, k, *a.stride(), *b.stride()]
    workspace = gemm_dynamic_workspace(m, n, k, DTYPES[a.dtype])
    assert library.call(f"dynamic_{name_of(a.dtype)}", [bits(a), bits(b), out], ints, workspace, nworkers) == 0
    _assert_close(out, a.double() @ b.double(), k)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_dynamic(library: Library, dtype: torch.dtype, size: tuple[int, int, int], transposed: str) -> None:
    m, n, k = size
    a = torch.randn(1, 2, k, m).to(dtype).mT if "a" in transposed else torch.randn(1, 2, m, k).to(dtype)
    b = torch.randn(1, 2, n, k).to(dtype).mT if "b" in transposed else torch.randn(1, 2, k, n).to(dtype)
    _dynamic(library, a, b)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_dynamic_general_strides(library: Library, dtype: torch.dtype) -> None:
    a = torch.randn(3, 40, 2, 33).to(dtype).permute(0, 2, 1, 3)
    b = torch.randn(33, 64).to(dtype)[None, None].expand(3, 2, 33, 64)
    _dynamic(library, a, b)
    _dynamic(library, a[..., ::2], torch.randn(3, 2, 34, 64).to(dtype)[:, :, ::2, ::2])
    _dynamic(library, a[:, :, :3], b)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_rows_far_apart_and_one_for_all(library: Library, dtype: torch.dtype) -> None:
    """Tiles read rows where they lie: not those in one set of the cache, and those of no stride."""
    b = torch.randn(2, 1, 96, 70).to(dtype)
    for width in (128, 1024, 2048, 4096):
        _dynamic(library, torch.randn(2, 1, 70, width).to(dtype)[..., :96], b)
    _dynamic(library, torch.randn(2, 1, 1, 96).to(dtype).expand(2, 1, 70, 96), b)


@settings(max_examples=60, deadline=None)
@given(
    build=st.sampled_from(BUILDS), dtype=st.sampled_from(list(DTYPES)), m=st.integers(0, 70), n=st.integers(0, 70),
    k=st.integers(0, 70), few=st.booleans(),
)  # fmt: skip
def test_any_size(build: Cpu, dtype: torch.dtype, m: int, n: int, k: int, few: bool) -> None:
    library = _library(build)
    m = m % 5 if few else m
    _packed(library, dtype, m, n, k)
    _dynamic(library, torch.randn(2, 1, m, k).to(dtype), torch.randn(2, 1, n, k).to(dtype).mT)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_what_lies_beside_an_operand_is_not_read_as_a_number(library: Library, dtype: torch.dtype) -> None:
    """NaN behind each row of A, where k is odd and no whole tile: it would show in every sum."""
    for m in (1, 3, 20):
        a = torch.full((m, 40), torch.nan, dtype=dtype)
        a[:, :37] = torch.randn(m, 37).to(dtype)
        b = torch.randn(37, 33).to(dtype)
        out = torch.zeros(m, 33)
        workspace = gemm_packed_workspace(m, 33, DTYPES[dtype])
        library.call(f"packed_{name_of(dtype)}", [bits(a), _packed_weights(b), out], [m, 33, 37, 40], workspace)
        _assert_close(out, a[:, :37].double() @ b.double(), 37)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("k", [130, 201])
def test_rows_that_share_a_set_of_the_cache(library: Library, dtype: torch.dtype, k: int) -> None:
    """Rows 8 KiB apart are copied first, others may not be: the sums are the same."""
    a, b = torch.randn(25, k).to(dtype), torch.randn(k, 33).to(dtype)
    results = []
    for ld in (4096, k + 3):
        rows, out = torch.full((25, ld), torch.nan, dtype=dtype), torch.zeros(25, 33)
        rows[:, :k] = a
        workspace = gemm_packed_workspace(25, 33, DTYPES[dtype])
        library.call(f"packed_{name_of(dtype)}", [bits(rows), _packed_weights(b), out], [25, 33, k, ld], workspace)
        results.append(out)
    _assert_close(results[0], a.double() @ b.double(), k)
    assert torch.equal(results[0], results[1])


_SHORT, _LONG = (f"static constexpr int kOperations = {n};" for n in (4, 1000))


@functools.cache
def _both(cpu: Cpu) -> Library:
    """The product of bf16 with packed weights, and again with an epilogue that says it is too long for registers."""
    short = SOURCE + PACKED % {"name": "bfloat16", "t": STORAGE[torch.bfloat16]}
    assert _SHORT in short
    long = short.replace(_SHORT, _LONG).replace("packed_bfloat16", "packed_long")
    return load_library({"packed_bfloat16": short, "packed_long": long}, cpu)


@pytest.mark.sweep(over="cpu")
@pytest.mark.parametrize("cpu", build_params())
@pytest.mark.parametrize("k", [0, 1, 2, 17, 64, 129, 255, 257, 600])
def test_sums_in_registers_are_those_of_the_workspace(cpu: Cpu, k: int) -> None:
    for m in (1, 5, 11, 12, 13, 25, 49, 205):
        for n in (1, 15, 16, 17, 31, 33, 72):
            a, b = torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()
            results = []
            for name in ("packed_bfloat16", "packed_long"):
                out = torch.zeros(m + 1, n)
                workspace = gemm_packed_workspace(m, n, DTYPES[torch.bfloat16])
                buffers = [bits(a), _packed_weights(b), out]
                assert _both(cpu).call(name, buffers, [m, n, k, k], workspace, 2) == 0
                results.append(out)
            assert torch.equal(*results), (m, n, k)
            assert not results[0][m].any(), "a row behind the result changed"
            _assert_close(results[0][:m], a.double() @ b.double(), k)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_infinities_and_nan_travel(library: Library, dtype: torch.dtype) -> None:
    a, b = torch.ones(18, 8).to(dtype), torch.ones(8, 20).to(dtype)
    a[3, 2], a[5, 1], a[17, 7] = torch.inf, torch.nan, -torch.inf
    out = torch.zeros(18, 20)
    workspace = gemm_packed_workspace(18, 20, DTYPES[dtype])
    library.call(f"packed_{name_of(dtype)}", [bits(a), _packed_weights(b), out], [18, 20, 8, 8], workspace)
    torch.testing.assert_close(out.double(), a.double() @ b.double(), equal_nan=True)
