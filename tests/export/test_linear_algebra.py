"""Linear algebra of small matrices, in ops that every target has, against eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, linalg
from torch.export import Dim

from hardtack.exporter import to_graphs
from tests.export.checks import check, entry, ours

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "inv": lambda a, b, s: linalg.inv(a),
    "inverse": lambda a, b, s: torch.inverse(s),
    "inv_ex": lambda a, b, s: linalg.inv_ex(a),
    "det": lambda a, b, s: linalg.det(a),
    "det of a singular one": lambda a, b, s: linalg.det(a.tril(-1)),
    "slogdet": lambda a, b, s: linalg.slogdet(a),
    "logdet": lambda a, b, s: torch.logdet(s),
    "solve": lambda a, b, s: linalg.solve(a, b),
    "solve of vectors": lambda a, b, s: linalg.solve(a, b[..., 0]),
    "solve from the right": lambda a, b, s: linalg.solve(a, b.mT, left=False),
    "solve from the right by factors": lambda a, b, s: torch.ops.aten._linalg_solve_ex(a, b.mT, left=False),
    "solve for many": lambda a, b, s: linalg.solve(a[0], b),
    "solve_ex": lambda a, b, s: linalg.solve_ex(a, b),
    "lu_factor": lambda a, b, s: linalg.lu_factor(a),
    "lu_solve": lambda a, b, s: linalg.lu_solve(*linalg.lu_factor(a), b),
    "lu_solve from the right": lambda a, b, s: linalg.lu_solve(*linalg.lu_factor(a), b.mT, left=False),
    "lu_solve of the adjoint": lambda a, b, s: linalg.lu_solve(*linalg.lu_factor(a), b, adjoint=True),
    "lu_solve of both": lambda a, b, s: linalg.lu_solve(*linalg.lu_factor(a), b.mT, left=False, adjoint=True),
    "cholesky": lambda a, b, s: linalg.cholesky(s),
    "upper cholesky": lambda a, b, s: linalg.cholesky(s, upper=True),
    "cholesky_solve": lambda a, b, s: torch.cholesky_solve(b, linalg.cholesky(s)),
    "cholesky_inverse": lambda a, b, s: torch.cholesky_inverse(linalg.cholesky(s, upper=True), upper=True),
    "lower triangle": lambda a, b, s: linalg.solve_triangular(s, b, upper=False),
    "upper triangle": lambda a, b, s: linalg.solve_triangular(s, b, upper=True),
    "triangle from the right": lambda a, b, s: linalg.solve_triangular(s, b.mT, upper=True, left=False),
    "unit triangle": lambda a, b, s: linalg.solve_triangular(s, b, upper=False, unitriangular=True),
    "negative power": lambda a, b, s: linalg.matrix_power(a, -2),
}


def matrices(n: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Some of which rows have to be exchanged, right sides, and some that are positive definite."""
    generator = torch.Generator().manual_seed(n)
    a = torch.randn(3, n, n, generator=generator)
    if n > 1:
        a[1, 0] = 0
        a[1, 0, n - 1] = 2
    positive = a @ a.mT + torch.eye(n)
    return a.to(dtype), torch.randn(3, n, 2, generator=generator).to(dtype), positive.to(dtype)


@pytest.mark.sweep(share=2)
@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_eager(name: str, n: int) -> None:
    function, args = FUNCTIONS[name], matrices(n, torch.float64)
    want = function(*args)
    found = ours(to_graphs(lambda a, b, s: function(a, b, s), args), args)
    for got, exact in zip(found, want if isinstance(want, tuple) else (want,), strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-11, atol=1e-12)


def test_a_dynamic_batch_in_float32() -> None:
    a, b, s = matrices(3, torch.float32)
    dims = ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})
    others = [tuple(t[:k] for t in (a, b, s)) for k in (0, 1, 2)]

    def program(a: Tensor, b: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        return linalg.solve(a, b), linalg.det(a), linalg.cholesky(s)

    check(program, (a, b, s), dims, others, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("inv", "linalg.inv: a matrix is singular, or not positive definite"),
        ("solve", "linalg.solve: a matrix is singular, or not positive definite"),
        ("lu_factor", "linalg.lu_factor: a matrix is singular, or not positive definite"),
        ("cholesky", "linalg.cholesky: a matrix is singular, or not positive definite"),
    ],
)
def test_matrices_without_factors_stop_a_run(name: str, says: str) -> None:
    args = matrices(3, torch.float64)
    function = FUNCTIONS[name]
    exported = to_graphs(lambda a, b, s: function(a, b, s), args)
    a, b, s = (t.clone() for t in args)
    a[2, :, 1], s[1] = 0, -s[1]
    with pytest.raises(Exception, match=f"^{says}$"):
        ours(exported, (a, b, s))
    info = ours(to_graphs(lambda a: linalg.inv_ex(a).info, (a,)), (a,))[0]
    assert torch.equal(info, linalg.inv_ex(a).info)


@pytest.mark.sweep(share=2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_complex_ones_equal_eager(name: str) -> None:
    """Their triangles are conjugates: what is right for real numbers would be wrong in silence."""
    function, (a, b, _) = FUNCTIONS[name], matrices(4, torch.float64)
    a, b = torch.complex(a, a.flip(-1).sin()), torch.complex(b, b.flip(0))
    args = (a, b, a @ a.mH + torch.eye(4))
    want = function(*args)
    exported = to_graphs(lambda a, b, s: function(a, b, s), args)
    found = ours(exported, args)
    for k, (got, exact) in enumerate(zip(found, want if isinstance(want, tuple) else (want,), strict=True)):
        got = torch.view_as_complex(got.contiguous()) if k in entry(exported).complex.outputs else got
        torch.testing.assert_close(got, exact, rtol=1e-11, atol=1e-12)
