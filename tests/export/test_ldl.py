"""LDL factors of symmetric and Hermitian matrices in compiled bundles, against eager's: pivots to the last number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor, linalg
from torch.export import Dim

import hardtack
from tests.export.checks import Called


def _numbers(*shape: int, dtype: torch.dtype = torch.float64, hermitian: bool = False) -> Tensor:
    """Symmetric, or Hermitian, if the last two sizes are equal."""
    a = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)
    if shape[-1] != shape[-2]:
        return a
    return a + (a.mH if hermitian else a.mT)


def _session(path: Path, function: Callable[..., Any], *args: Tensor, dims: Any = None) -> hardtack.Session:
    file, module = path / "m.pkg", Called(function).eval()
    hardtack.export(module, args, path=file, dynamic_shapes=dims, targets=("cpu:native",), progress=False)
    return hardtack.load(file).session()


def _same(got: Any, want: Any, tolerance: float = 1e-9) -> None:
    leaves = pytree.tree_leaves(got), pytree.tree_leaves(want)
    for k, (g, w) in enumerate(zip(*leaves, strict=True)):
        torch.testing.assert_close(
            torch.as_tensor(g), w, rtol=tolerance, atol=tolerance, msg=lambda m, k=k: f"result {k}: {m}"
        )


def _given(dtype: torch.dtype, hermitian: bool) -> list[Tensor]:
    """Matrices, with pivots of one and of two rows, and right sides for each."""

    def made(*shape: int) -> Tensor:
        return _numbers(*shape, dtype=dtype, hermitian=hermitian)

    hollow = made(3, 6, 6)
    hollow.diagonal(dim1=-2, dim2=-1).zero_()
    garbage_above = made(2, 5, 5).tril() + 9 * torch.ones(5, 5, dtype=dtype).triu(1)
    return [
        made(4, 7, 7), made(4, 7, 2), hollow, made(3, 6, 2), made(2, 1, 1), made(2, 1, 3), made(2, 0, 0), made(2, 0, 1),
        made(0, 3, 3), made(0, 3, 1), made(4, 5, 5).mT[::2], made(2, 2, 5).mT, garbage_above, made(2, 5, 1),
        made(3, 20, 20), made(3, 20, 2), made(70, 70), made(70, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("hermitian", [False, True], ids=["symmetric", "hermitian"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.complex64])
def test_equals_eager(tmp_path: Path, dtype: torch.dtype, hermitian: bool) -> None:
    def program(*given: Tensor) -> list[Any]:
        found: list[Any] = []
        for a, b in zip(given[::2], given[1::2], strict=True):
            ld, pivots, info = linalg.ldl_factor_ex(a, hermitian=hermitian)
            found.append((ld, pivots, info, *linalg.ldl_factor(a, hermitian=hermitian)))
            found.append(linalg.ldl_solve(ld, pivots, b, hermitian=hermitian))
        return found

    given = _given(dtype, hermitian)
    assert any((linalg.ldl_factor_ex(a, hermitian=hermitian).pivots < 0).any() for a in given[::2])
    _same(_session(tmp_path, program, *given)(*given), program(*given), 1e-9 if dtype is not torch.complex64 else 2e-3)


def test_batches_are_those_of_both(tmp_path: Path) -> None:
    """Eager reads behind its pivots here (torch 2.13), so that the solutions are shown to be some."""
    given = (
        _numbers(2, 1, 4, 4),
        _numbers(3, 4, 2),
        _numbers(5, 5),
        _numbers(3, 5, 1),
        _numbers(3, 4, 4),
        _numbers(4, 2),
    )

    def program(*given: Tensor) -> list[Tensor]:
        factors = [linalg.ldl_factor(a) for a in given[::2]]
        return [linalg.ldl_solve(*f, b) for f, b in zip(factors, given[1::2], strict=True)]

    found = [torch.as_tensor(x) for x in _session(tmp_path, program, *given)(*given)]
    assert [x.shape for x in found] == [(2, 3, 4, 2), (3, 5, 1), (3, 4, 2)]
    for a, b, x in zip(given[::2], given[1::2], found, strict=True):
        torch.testing.assert_close(a @ x, b.expand_as(x), rtol=1e-9, atol=1e-9)


def test_singular_ones_say_where(tmp_path: Path) -> None:
    matrices = torch.stack([torch.zeros(3, 3), torch.diag(torch.tensor([1.0, 0.0, 2.0])), torch.ones(3, 3)]).double()
    session = _session(tmp_path, linalg.ldl_factor_ex, matrices)
    _same(session(matrices), tuple(linalg.ldl_factor_ex(matrices)))


def test_the_imaginary_diagonal_of_hermitian_ones_is_not_read(tmp_path: Path) -> None:
    a = _numbers(3, 4, 4, dtype=torch.complex128, hermitian=True)
    dirty = a + 2j * torch.eye(4)
    session = _session(tmp_path, lambda a: linalg.ldl_factor_ex(a, hermitian=True), a)
    _same(session(dirty), session(a))


@pytest.mark.parametrize("what", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_lost(tmp_path: Path, what: float) -> None:
    a = _numbers(2, 4, 4)
    session = _session(tmp_path, linalg.ldl_factor_ex, a)
    for place in ((0, 0), (2, 1), (3, 3)):
        given = a.clone()
        given[0][place] = what
        ld = torch.as_tensor(session(given)[0])
        assert ld[0].tril().sum().isnan()
        assert ld[1].isfinite().all()


def test_sizes_that_vary(tmp_path: Path) -> None:
    n, batch = Dim("n", min=1, max=64), Dim("batch", max=9)

    def program(a: Tensor, b: Tensor) -> Tensor:
        ld, pivots, _ = linalg.ldl_factor_ex(a)
        return linalg.ldl_solve(ld, pivots, b)

    args = _numbers(2, 6, 6), _numbers(2, 6, 3)
    session = _session(tmp_path, program, *args, dims=(({0: batch, 1: n, 2: n}, {0: batch, 1: n}),))
    for size, count in ((6, 2), (1, 1), (5, 0), (33, 3)):
        a, b = _numbers(count, size, size), _numbers(count, size, 3)[..., :3]
        _same(session(a, b), program(a, b), 1e-7)


@pytest.mark.parametrize("function", [linalg.ldl_factor, lambda a: linalg.ldl_factor_ex(a, check_errors=True)])
def test_matrices_without_factors_stop_a_run(tmp_path: Path, function: Callable[..., Any]) -> None:
    a = _numbers(3, 3)
    session = _session(tmp_path, function, a)
    _same(session(a), tuple(function(a)))
    with pytest.raises(hardtack.RunError, match="an assertion of the model failed"):
        session(torch.zeros_like(a))


@pytest.mark.parametrize("pivots", [[1, 2, 4], [0, 2, 3], [-2, -2, -3], [-2, 2, 3], [1, 2, -3], [2, 1, 3], [-1, -1, 3]])
def test_pivots_of_no_factors(tmp_path: Path, pivots: list[int]) -> None:
    ld, good, _ = linalg.ldl_factor_ex(_numbers(3, 3))
    session = _session(tmp_path, linalg.ldl_solve, ld, good, _numbers(3, 2))
    with pytest.raises(hardtack.RunError, match="pivots are none of an LDL factorisation"):
        session(ld, torch.tensor(pivots, dtype=torch.int32), _numbers(3, 2))
