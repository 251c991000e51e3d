"""Kernels of matrices of complex numbers at their edges, and eigenvalues of general matrices, in compiled bundles."""

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
from hardtack.exporter import UnsupportedOpError, to_graphs
from tests.export.checks import Called


def _numbers(*shape: int, dtype: torch.dtype = torch.complex128) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


def _session(path: Path, function: Callable[..., Any], *args: Tensor, dims: Any = None) -> hardtack.Session:
    file, module = path / "m.pkg", Called(function).eval()
    hardtack.export(module, args, path=file, dynamic_shapes=dims, targets=("cpu:native",), progress=False)
    return hardtack.load(file).session()


def _same(got: Any, want: Any) -> None:
    leaves = pytree.tree_leaves(got), pytree.tree_leaves(want)
    for k, (g, w) in enumerate(zip(*leaves, strict=True)):
        torch.testing.assert_close(
            torch.as_tensor(g), w.resolve_conj(), rtol=1e-9, atol=1e-9, msg=lambda m, k=k: f"result {k}: {m}"
        )


def _determined(a: Tensor, b: Tensor) -> list[Tensor]:
    """What is determined of square matrices and right sides."""
    positive = a @ a.mH + torch.eye(a.shape[-1])
    factor = linalg.cholesky(positive)
    return [
        *linalg.qr(a), factor, torch.cholesky_solve(b, factor), linalg.solve(a, b), linalg.inv(a), linalg.det(a),
        *linalg.lu(a), linalg.lu_solve(*linalg.lu_factor(a), b, adjoint=True), linalg.svdvals(a), linalg.pinv(a),
        linalg.eigvalsh(positive), linalg.matrix_exp(a / 4), linalg.solve_triangular(a, b, upper=True),
    ]  # fmt: skip


EDGES: dict[str, tuple[Tensor, Tensor]] = {
    "of one row": (_numbers(2, 1, 1), _numbers(2, 1, 3)),
    "of none": (_numbers(2, 0, 0), _numbers(2, 0, 3)),
    "none of them": (_numbers(0, 3, 3), _numbers(0, 3, 2)),
    "not contiguous": (_numbers(3, 4, 4).mH[::2], _numbers(2, 4, 4).mT[..., ::2]),
    "of other batches": (_numbers(2, 1, 3, 3), _numbers(4, 3, 2)),
}


def test_edges(tmp_path: Path) -> None:
    def program(*given: Tensor) -> list[list[Tensor]]:
        return [_determined(a, b) for a, b in zip(given[::2], given[1::2], strict=True)]

    args = tuple(t for pair in EDGES.values() for t in pair)
    session = _session(tmp_path, program, *args)
    for name, got, want in zip(EDGES, session(*args), program(*args), strict=True):
        for k, (g, w) in enumerate(zip(got, want, strict=True)):
            said = f"{name}, result {k}"
            torch.testing.assert_close(torch.as_tensor(g), w, rtol=1e-9, atol=1e-9, msg=lambda m, s=said: f"{s}: {m}")


def test_sizes_that_vary(tmp_path: Path) -> None:
    rows, batch = Dim("rows", min=4, max=64), Dim("batch", max=9)

    def program(a: Tensor, b: Tensor) -> list[Tensor]:
        values, vectors = linalg.eig(b)
        unlike = b @ vectors - vectors * values.unsqueeze(-2)
        return [*linalg.qr(a), linalg.solve(b, b.sum(-1)), linalg.pinv(a), linalg.svdvals(b), unlike]

    args = _numbers(2, 20, 3), _numbers(2, 20, 20)
    session = _session(tmp_path, program, *args, dims=({0: batch, 1: rows}, {0: batch, 1: rows, 2: rows}))
    for n, k in ((20, 2), (4, 1), (7, 0), (64, 3)):
        a, b = _numbers(k, n, 3), _numbers(k, n, n) + 9 * torch.eye(n)
        _same(session(a, b), program(a, b))


def test_determinants_of_sizes_that_vary_are_refused() -> None:
    n = Dim("n", min=2, max=9)
    with pytest.raises(
        UnsupportedOpError, match="a product of complex numbers along a dynamic dimension: make it static"
    ):
        to_graphs(Called(linalg.det).eval(), (_numbers(3, 3),), dynamic_shapes=(({0: n, 1: n},),))


@pytest.mark.parametrize("what", [complex("nan"), complex(0, float("inf"))])
def test_what_is_not_finite_is_not_lost(tmp_path: Path, what: complex) -> None:
    def program(a: Tensor) -> tuple[Tensor, ...]:
        return (linalg.svdvals(a), *linalg.eigh(a), *linalg.eig(a), *linalg.eig(a.real), linalg.matrix_exp(a))

    a = _numbers(2, 3, 3)
    session = _session(tmp_path, program, a)
    a[0, 2, 1] = what
    for k, found in enumerate(map(torch.as_tensor, session(a))):
        if k not in (5, 6) or what != what:  # of the real part, where that is finite
            assert found[0].isnan().all(), k
        assert found[1].isfinite().all(), k


def test_numbers_at_the_end_of_the_range(tmp_path: Path) -> None:
    """Of which magnitudes are no numbers, and eager's results none."""
    a = torch.tensor([[1.5, 1.3 + 1.3j, 0], [1.3 - 1.3j, -1, 0], [0, 0, 0.5]], dtype=torch.complex128)
    given = a * 1e308

    def program(a: Tensor) -> tuple[Tensor, ...]:
        values, vectors = linalg.eigh(a / 4)
        return values, vectors.abs(), linalg.eigvals(a / 4), linalg.svdvals(a / 4)

    values, sizes, general, singular = map(torch.as_tensor, _session(tmp_path, program, given)(given))
    want = linalg.eigvalsh(a / 4)
    torch.testing.assert_close(values / 1e308, want)
    torch.testing.assert_close(sizes, linalg.eigh(a).eigenvectors.abs())
    torch.testing.assert_close((general / 1e308).real.sort().values, want)
    torch.testing.assert_close(singular / 1e308, want.abs().sort(descending=True).values)


GENERAL: dict[str, Tensor] = {
    "drawn": _numbers(3, 6, 6),
    "large": _numbers(1, 40, 40),
    "of one row": _numbers(2, 1, 1),
    "of two rows": _numbers(9, 2, 2),
    "of none": _numbers(2, 0, 0),
    "none of them": _numbers(0, 3, 3),
    "zeros": torch.zeros(2, 4, 4),
    "a unit": torch.eye(4)[None],
    "a cycle": torch.eye(5).roll(1, 0)[None],
    "a rotation": torch.tensor([[[0.0, 1.0], [-1.0, 0.0]]]),
    "not diagonalisable": torch.eye(5).roll(1, 1).triu()[None] + 2 * torch.eye(5),
    "a triangle": _numbers(2, 5, 5).triu(),
    "of rank 1": _numbers(2, 5, 1) @ _numbers(2, 1, 5),
    "of rows of other sizes": _numbers(2, 5, 5) * torch.logspace(-9, 9, 5)[:, None] / torch.logspace(-9, 9, 5),
    "tiny": _numbers(2, 4, 4) * 1e-300,
    "huge": _numbers(2, 4, 4) * 1e300,
    "whole numbers": (_numbers(20, 5, 5).real * 2).round(),
    "not contiguous": _numbers(3, 4, 4).mT[::2],
}


def _of(dtype: torch.dtype) -> dict[str, Tensor]:
    """The matrices in a dtype; real parts for a real one."""
    single = dtype in (torch.float32, torch.complex64)
    return {
        name: (a if dtype.is_complex or not a.is_complex() else a.real).to(dtype)
        for name, a in GENERAL.items()
        if not (single and name in ("tiny", "huge", "of rows of other sizes"))
    }


def _paired(found: Tensor, want: Tensor) -> Tensor:
    """The numbers of `want` [n], each beside the nearest one of `found`."""
    left, pairs = list(want), []
    for x in found:
        pairs.append(left.pop(min(range(len(left)), key=lambda k: abs(left[k] - x))))
    return torch.stack(pairs) if pairs else want


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.float32, torch.complex64])
def test_eigenvalues_of_general_matrices(tmp_path: Path, dtype: torch.dtype) -> None:
    given = _of(dtype)

    def program(*matrices: Tensor) -> list[tuple[Tensor, ...]]:
        return [(*linalg.eig(a), linalg.eigvals(a)) for a in matrices]

    found = _session(tmp_path, program, *given.values())(*given.values())
    eps = torch.finfo(dtype).eps
    for (name, a), (values, vectors, alone) in zip(given.items(), pytree.tree_map(torch.as_tensor, found), strict=True):
        assert torch.equal(values, alone), name
        assert (values.dtype, vectors.dtype) == (dtype.to_complex(), dtype.to_complex())
        assert (values.shape, vectors.shape) == (a.shape[:-1], a.shape)
        unit = 1 if not a.numel() else max(float(a.abs().max()), torch.finfo(dtype).tiny)
        wide = (a / unit).to(torch.complex128)
        far = wide @ vectors.to(wide.dtype) - vectors * (values / unit).to(wide.dtype).unsqueeze(-2)
        assert not a.numel() or far.abs().max() < 1e3 * eps, name
        torch.testing.assert_close(vectors.norm(dim=-2), torch.ones(a.shape[:-1], dtype=dtype.to_real()), msg=name)
        if name not in ("not diagonalisable", "whole numbers", "of rank 1"):  # whose digits are lost in eager, too
            for got, want in zip(values / unit, linalg.eigvals(a / unit), strict=True):
                torch.testing.assert_close(_paired(got, want), got, rtol=1e4 * eps, atol=1e4 * eps)
        if not dtype.is_complex:
            _check_conjugates(values, vectors)


def _check_conjugates(values: Tensor, vectors: Tensor) -> None:
    """Of real matrices: exactly real eigenvalues with real vectors, others one behind its conjugate."""
    for row, columns in zip(values, vectors.mT, strict=True):
        k = 0
        while k < len(row):
            if row[k].imag == 0:
                assert (columns[k].imag == 0).all()
                k += 1
                continue
            assert row[k].imag > 0
            assert torch.equal(row[k + 1], row[k].conj().resolve_conj())
            assert torch.equal(columns[k + 1], columns[k].conj().resolve_conj())
            k += 2


def test_simple_eigenvalues_have_eager_s_order(tmp_path: Path) -> None:
    given = [
        torch.diag(torch.tensor([3.0, -1.0, 2.0])),
        torch.tensor([[0.0, 1.0], [-1.0, 0.0]]),
        torch.ones(2, 2).triu(),
    ]

    def program(*matrices: Tensor) -> list[Tensor]:
        return [linalg.eigvals(a) for a in matrices]

    _same(_session(tmp_path, program, *given)(*given), program(*given))
