"""gemm.h against torch in float64: sizes around every block boundary, strides, batches, threads."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.templates import sources
from tests.templates.conftest import Build, all_builds, by_gcc_for_aarch64, with_bf16
from tests.templates.cpu_kernels import Library, Workspace, load_library
from tests.templates.layouts import gemm_dynamic_workspace, gemm_packed_workspace, pack_gemm

# (m, n, k): nothing, single elements, every row count, panel and vector edges, k blocks of 768, chunks of 192 rows.
SIZES = [
    (0, 5, 5), (5, 0, 5), (5, 5, 0), (1, 1, 1), (1, 33, 7), (12, 32, 1), (13, 64, 3), (25, 31, 17), (128, 16, 9),
    (7, 40, 768), (6, 33, 769), (193, 70, 100), (20, 300, 1600), (385, 65, 12),
]  # fmt: skip


def assert_close(got: torch.Tensor, want: torch.Tensor, k: int) -> None:
    """Within the rounding of a sum of k products of normal variates."""
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=4e-6 * max(1.0, k) ** 0.5 + 1e-6)


@functools.cache
def _library(build: Build) -> Library:
    return load_library({name: sources.ALL[name] for name in ("gemm_packed", "gemm_dynamic")}, *build)


@pytest.fixture(scope="session", params=all_builds(by_gcc_for_aarch64, with_bf16))
def library(request: pytest.FixtureRequest) -> Library:
    """Both products, for every build; of g++, which takes four times as long, they stand for all templates."""
    return _library(request.param)


def packed(library: Library, m: int, n: int, k: int, lda: int, nworkers: int = 1) -> None:
    a = torch.randn(m, lda)
    b = torch.randn(k, n)
    bias = torch.randn(n)
    out = torch.zeros(m, n)
    status = library.call(
        "gemm_packed", [a, pack_gemm(b), bias, out], [m, n, k, lda], gemm_packed_workspace(m, n), nworkers
    )
    assert status == 0
    assert_close(out, a[:, :k].double() @ b.double() + bias, k)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("nworkers", [1, 2])
def test_packed(library: Library, size: tuple[int, int, int], nworkers: int) -> None:
    packed(library, *size, lda=size[2] + 5, nworkers=nworkers)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("m", range(1, 26))
def test_packed_heights(library: Library, m: int) -> None:
    for n in (8, 24, 32, 50):
        packed(library, m, n, 10, lda=10)


# Around the least k that is copied, whole lines and k blocks; rows of whole pages, which are fourths of an Arm CPU's
# cache, too.
@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("k", [127, 128, 129, 145, 300, 767, 1025, 2049, 4097])
@pytest.mark.parametrize("lda", [5120, 8192])
def test_rows_that_share_a_set_of_the_cache(library: Library, k: int, lda: int) -> None:
    """They are copied first; so the sums are those, bit for bit, of rows a line further apart."""
    b, bias = torch.randn(k, 70), torch.randn(70)
    for m in (5, 9, 12, 31):
        a, results = torch.randn(m, k), []
        for row in (lda, lda + 16):
            rows = torch.full((m, row), torch.nan)
            rows[:, :k] = a
            out = torch.zeros(m, 70)
            ints, workspace = [m, 70, k, row], gemm_packed_workspace(m, 70)
            assert library.call("gemm_packed", [rows, pack_gemm(b), bias, out], ints, workspace) == 0
            results.append(out)
        assert torch.equal(results[0], results[1])
        assert_close(results[0], a.double() @ b.double() + bias, k)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(m=st.integers(0, 210), n=st.integers(0, 140), k=st.integers(0, 40), pad=st.integers(0, 3))
def test_packed_any_size(library: Library, m: int, n: int, k: int, pad: int) -> None:
    packed(library, m, n, k, lda=k + pad)


@pytest.mark.parametrize("size", [(400, 300, 1000), (3, 900, 1000), (1000, 20, 300)], ids=str)
def test_same_bits_for_any_number_of_workers(library: Library, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b, bias = torch.randn(m, k), pack_gemm(torch.randn(k, n)), torch.randn(n)
    results = []
    for nworkers in (1, 2, 5):
        out = torch.zeros(m, n)
        library.call("gemm_packed", [a, b, bias, out], [m, n, k, k], gemm_packed_workspace(m, n), nworkers)
        results.append(out)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_unaligned_operands(library: Library) -> None:
    m, n, k = 30, 45, 21
    a = torch.randn(m * k + 1)[1:].reshape(m, k)
    b = torch.randn(k, n)
    shifted = torch.empty(pack_gemm(b).numel() + 3)[3:]
    shifted.copy_(pack_gemm(b).reshape(-1))
    out = torch.zeros(m * n + 1)[1:].reshape(m, n)
    library.call("gemm_packed", [a, shifted, torch.zeros(n), out], [m, n, k, k], gemm_packed_workspace(m, n))
    assert_close(out, a.double() @ b.double(), k)


def dynamic(library: Library, a: torch.Tensor, b: torch.Tensor, nworkers: int = 1) -> None:
    """a [outer, inner, m, k] and b [outer, inner, k, n], of any strides."""
    outer, inner, m, k = a.shape
    n = b.shape[-1]
    out = torch.zeros(outer, inner, m, n)
    bias = torch.randn(n)
    ints = [outer, inner, m, n, k, *a.stride(), *b.stride()]
    workspace: Workspace = gemm_dynamic_workspace(m, n, k)
    assert library.call("gemm_dynamic", [a, b, bias, out], ints, workspace, nworkers) == 0
    assert_close(out, a.double() @ b.double() + bias, k)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
def test_dynamic(library: Library, size: tuple[int, int, int], transposed: str) -> None:
    m, n, k = size
    a = torch.randn(1, 2, k, m).mT if "a" in transposed else torch.randn(1, 2, m, k)
    b = torch.randn(1, 2, n, k).mT if "b" in transposed else torch.randn(1, 2, k, n)
    dynamic(library, a, b, nworkers=2)


def test_dynamic_broadcast_and_general_strides(library: Library) -> None:
    a = torch.randn(3, 40, 2, 33).permute(0, 2, 1, 3)  # heads beside one another, as attention has them
    b = torch.randn(33, 64)[None, None].expand(3, 2, 33, 64)
    dynamic(library, a, b)
    dynamic(library, a[..., ::2], torch.randn(3, 2, 34, 64)[:, :, ::2, ::2])
    dynamic(library, a[:, :, :5], b, nworkers=2)  # few rows: B is read in place
    dynamic(library, torch.randn(50, 3, 1, 1), torch.randn(50, 3, 1, 1), nworkers=2)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    outer=st.integers(0, 3), inner=st.integers(1, 3), m=st.integers(0, 40), n=st.integers(0, 100), k=st.integers(0, 40)
)
def test_dynamic_any_size(library: Library, outer: int, inner: int, m: int, n: int, k: int) -> None:
    dynamic(library, torch.randn(outer, inner, m, k), torch.randn(outer, inner, n, k).mT)
