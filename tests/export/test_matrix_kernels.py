"""Kernels of matrices (export/kernels/) in compiled bundles: against eager's where results are unique, else by what
they must satisfy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor, linalg, nn
from torch.export import Dim

import hardtack
from hardtack.codegen.lower.builder import UnsupportedOp
from hardtack.codegen.package.bundle import open_bundle

N = 20
"""Rows for which there is no form in other ops."""


def _numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


SQUARE, RIGHT = _numbers(2, N, N), _numbers(2, N, 3)
POSITIVE = SQUARE @ SQUARE.mT + torch.eye(N)
TALL, WIDE = _numbers(2, 5, 3), _numbers(3, 5)
LOW_RANK = _numbers(6, 2) @ _numbers(2, 5)
GIVEN: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "qr": (lambda a, b: (*linalg.qr(a), *linalg.qr(b)), (TALL, WIDE)),
    "complete qr": (lambda a, b: (*linalg.qr(a, "complete"), *linalg.qr(b, "complete")), (TALL, WIDE)),
    "r of qr": (lambda a, b: (linalg.qr(a, "r").R, linalg.qr(b, "r").R), (TALL, WIDE)),
    "qr of zeros": (lambda a: linalg.qr(a * 0), (TALL,)),
    "qr of large numbers": (lambda a: linalg.qr(a * 1e300), (TALL,)),
    "geqrf": (torch.geqrf, (TALL,)),
    "householder_product": (lambda a: linalg.householder_product(*torch.geqrf(a)), (TALL,)),
    "ormqr": (lambda a, c: torch.ormqr(*torch.geqrf(a), c), (TALL, _numbers(2, 5, 4))),
    "ormqr, transposed": (lambda a, c: torch.ormqr(*torch.geqrf(a), c, transpose=True), (TALL, _numbers(2, 5, 4))),
    "ormqr from the right": (lambda a, c: torch.ormqr(*torch.geqrf(a), c, left=False), (TALL, _numbers(2, 4, 5))),
    "ormqr from the right, transposed": (
        lambda a, c: torch.ormqr(*torch.geqrf(a), c, left=False, transpose=True),
        (TALL, _numbers(2, 4, 5)),
    ),
    "eigvalsh": (lambda a: linalg.eigvalsh(a + a.mH), (SQUARE,)),
    "eigvalsh of the upper triangle": (lambda a: linalg.eigvalsh(a, UPLO="U"), (SQUARE,)),
    "svdvals": (lambda a, b, c: (linalg.svdvals(a), linalg.svdvals(b), linalg.svdvals(c)), (TALL, WIDE, SQUARE)),
    "pinv": (lambda a, b, c: (linalg.pinv(a), linalg.pinv(b), linalg.pinv(c)), (TALL, WIDE, LOW_RANK)),
    "pinv of nothing": (lambda a: (linalg.pinv(a[:0]), linalg.pinv(a[:, :0], hermitian=False)), (SQUARE,)),
    "pinv with tolerances": (lambda a: (linalg.pinv(a, rtol=0.3), linalg.pinv(a, atol=1.0)), (SQUARE,)),
    "hermitian pinv": (lambda a: linalg.pinv(a, hermitian=True), (POSITIVE,)),
    "matrix_rank": (lambda a, b: (linalg.matrix_rank(a), linalg.matrix_rank(b)), (TALL, LOW_RANK)),
    "cond": (linalg.cond, (SQUARE,)),
    "nuclear norm": (lambda a: linalg.norm(a, "nuc"), (WIDE,)),
    "lu": (lambda a, b, c: (*linalg.lu(a), *linalg.lu(b), *linalg.lu(c)), (TALL, WIDE, SQUARE)),
    "lu_factor": (lambda a, b: (*linalg.lu_factor(a), *linalg.lu_factor(b)), (WIDE, SQUARE)),
    "lu_factor_ex": (lambda a: linalg.lu_factor_ex(a * (torch.arange(N) != 3)), (SQUARE,)),
    "lu_unpack": (lambda a: torch.lu_unpack(*linalg.lu_factor(a)), (TALL,)),
    "lu_solve": (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), (SQUARE, RIGHT)),
    "lu_solve of the adjoint": (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b, adjoint=True), (SQUARE, RIGHT)),
    "cholesky": (lambda a: (linalg.cholesky(a), linalg.cholesky(a, upper=True)), (POSITIVE,)),
    "cholesky_ex": (lambda a: linalg.cholesky_ex(a - 9 * torch.eye(N)).info, (POSITIVE,)),
    "cholesky_solve": (lambda a, b: torch.cholesky_solve(b, linalg.cholesky(a)), (POSITIVE, RIGHT)),
    "cholesky_inverse": (lambda a: torch.cholesky_inverse(linalg.cholesky(a)), (POSITIVE,)),
    "triangles": (
        lambda a, b: (
            linalg.solve_triangular(a, b, upper=True),
            linalg.solve_triangular(a[0], b, upper=False),
            linalg.solve_triangular(a / 9, b, upper=False, unitriangular=True),
            linalg.solve_triangular(a, b.mT, upper=True, left=False),
        ),
        (POSITIVE, RIGHT),
    ),
    "inv": (linalg.inv, (SQUARE,)),
    "solve": (lambda a, b: (linalg.solve(a, b), linalg.solve(a, b[..., 0]), linalg.solve(a[0], b)), (SQUARE, RIGHT)),
    "solve from the right": (lambda a, b: linalg.solve(a, b.mT, left=False), (SQUARE, RIGHT)),
    "det": (lambda a: (linalg.det(a), *linalg.slogdet(a)), (SQUARE,)),
    "tensorinv": (lambda a: linalg.tensorinv(a.reshape(4, 5, N)), (SQUARE[0],)),
    "matrix_exp": (linalg.matrix_exp, (_numbers(3, 4, 4) * torch.tensor([0.1, 2.0, 9.0]).reshape(3, 1, 1),)),
    "matrix_exp of what is not finite": (lambda a: linalg.matrix_exp(a / 0).isfinite().any(), (WIDE[:, :3],)),
}  # fmt: skip


OF_DOUBLE = ("qr of large numbers",)
"""1e300 is no float."""
DTYPES = {"f64": torch.float64, "f32": torch.float32, "c128": torch.complex128, "c64": torch.complex64}


def made_complex(a: Tensor) -> Tensor:
    """Matrices in other unitary bases, that of rows and of columns alike where there are as many: of the same rank,
    and Hermitian where they were symmetric."""
    left, right = (linalg.qr(torch.complex(_numbers(n, n), _numbers(n, n, 1)[..., 0])).Q for n in a.shape[-2:])
    return left @ a.to(torch.complex128) @ right.mH


class Every(nn.Module):
    """All functions side by side; dtype: of what they get."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, given: Mapping[str, tuple[Tensor, ...]]) -> dict[str, Any]:
        return {name: pytree.tree_leaves(GIVEN[name][0](*args)) for name, args in given.items()}


def _given(dtype: torch.dtype) -> dict[str, tuple[Tensor, ...]]:
    names = [n for n in GIVEN if dtype in (torch.float64, torch.complex128) or n not in OF_DOUBLE]
    return {
        name: tuple((made_complex(t) if dtype.is_complex else t).to(dtype) for t in GIVEN[name][1]) for name in names
    }


@pytest.fixture(scope="module", params=DTYPES.values(), ids=DTYPES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, torch.dtype]:
    """Results of a bundle, with two threads, and eager's."""
    dtype: torch.dtype = request.param
    path, given = tmp_path_factory.mktemp("matrices") / "m.pkg", _given(dtype)
    hardtack.export(Every(dtype).eval(), (given,), path=path, targets=("cpu:native",), progress=False)
    return hardtack.load(path, threads=2)(given), Every(dtype)(given), dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_exponentials_of_half_types_are_rounded_once(dtype: torch.dtype, tmp_path: Path) -> None:
    a = (_numbers(2, 3, 3) / 4).to(dtype)
    got = _through(tmp_path, linalg.matrix_exp, a)(a)
    torch.testing.assert_close(got, linalg.matrix_exp(a.float()).to(dtype), rtol=0, atol=0)


def test_equals_eager(both: tuple[Any, Any, torch.dtype]) -> None:
    got, want, dtype = both
    tolerance = 1e-9 if dtype in (torch.float64, torch.complex128) else 2e-3
    for name in want:
        for g, w in zip(got[name], want[name], strict=True):
            torch.testing.assert_close(
                torch.as_tensor(g), w, rtol=tolerance, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}"
            )


def _through(tmp_path: Path, function: Callable[..., Any], *args: Tensor, dims: Any = None) -> hardtack.Session:
    class Module(nn.Module):
        def forward(self, *args: Tensor) -> Any:
            return function(*args)

    path = tmp_path / "m.pkg"
    hardtack.export(Module().eval(), args, path=path, dynamic_shapes=dims, targets=("cpu:native",), progress=False)
    return hardtack.load(path).session()


@pytest.mark.parametrize(
    "matrix", [TALL, WIDE, SQUARE, LOW_RANK, TALL * 0, torch.ones(4, 4), _numbers(1, 3, 3) * 1e-200]
)
@pytest.mark.parametrize("of_complex", [False, True], ids=["real", "complex"])
def test_singular_vectors(tmp_path: Path, matrix: Tensor, of_complex: bool) -> None:
    matrix = matrix.double()
    matrix = made_complex(matrix) if of_complex else matrix
    session = _through(tmp_path, lambda a: (*linalg.svd(a), *linalg.svd(a, full_matrices=False)), matrix)
    found = [torch.as_tensor(t) for t in session(matrix)]
    for u, s, vh in (found[:3], found[3:]):
        k = s.shape[-1]
        torch.testing.assert_close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], matrix, rtol=1e-13, atol=1e-13)
        for product in (u.mH @ u, vh @ vh.mH):
            torch.testing.assert_close(product, torch.eye(product.shape[-1], dtype=matrix.dtype).expand_as(product))
        torch.testing.assert_close(s, linalg.svdvals(matrix))
    assert [t.shape for t in found[:3]] == [t.shape for t in linalg.svd(matrix)]
    assert [t.shape for t in found[3:]] == [t.shape for t in linalg.svd(matrix, full_matrices=False)]


@pytest.mark.parametrize("matrix", [POSITIVE, SQUARE + SQUARE.mT, torch.eye(3), torch.tensor([[0.0, 1], [1, 0]]),
                                    torch.zeros(2, 2), LOW_RANK @ LOW_RANK.mT])  # fmt: skip
@pytest.mark.parametrize("of_complex", [False, True], ids=["real", "complex"])
def test_eigenvectors(tmp_path: Path, matrix: Tensor, of_complex: bool) -> None:
    matrix = made_complex(matrix) if of_complex else matrix.double()
    values, vectors = map(torch.as_tensor, _through(tmp_path, linalg.eigh, matrix)(matrix))
    torch.testing.assert_close(values, linalg.eigvalsh(matrix), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(matrix @ vectors, vectors * values[..., None, :], rtol=1e-11, atol=1e-11)
    product = vectors.mH @ vectors
    torch.testing.assert_close(product, torch.eye(product.shape[-1], dtype=matrix.dtype).expand_as(product))


def test_sizes_that_vary(tmp_path: Path) -> None:
    """From as many rows as columns on: torch's own shapes of qr and pinv have a branch there."""
    rows, batch = Dim("rows", min=4, max=64), Dim("batch", max=9)

    def program(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        q, r = linalg.qr(a)
        return q, r, linalg.solve(b, b.sum(-1)), linalg.det(b), linalg.pinv(a)

    session = _through(
        tmp_path, program, _numbers(2, N, 3), SQUARE, dims=({0: batch, 1: rows}, {0: batch, 1: rows, 2: rows})
    )
    for n, k in ((20, 2), (4, 1), (7, 0), (64, 3)):
        a, b = _numbers(k, n, 3), _numbers(k, n, n) + 9 * torch.eye(n)
        for g, w in zip(session(a, b), program(a, b), strict=True):
            torch.testing.assert_close(torch.as_tensor(g), w, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("what", [float("nan"), float("inf")])
@pytest.mark.parametrize("places", [(..., ...), (1, 0), (0, 1), (2, 2)])
def test_what_is_not_finite_is_not_lost(tmp_path: Path, places: Any, what: float) -> None:
    """Iterations end, whatever they are given, and comparisons with NaN hide none."""
    a = _numbers(2, 3, 3)
    a = a + a.mT
    session = _through(
        tmp_path, lambda a: (linalg.svdvals(a), *linalg.eigh(a), linalg.matrix_exp(a), linalg.qr(a).R), a
    )
    a[0][places] = what
    if places != (0, 1):  # eigh reads the lower triangle
        assert torch.as_tensor(session(a)[1])[0].isnan().all()
        assert torch.as_tensor(session(a)[2])[0].isnan().all()
    singular, _, _, exponential, r = (torch.as_tensor(t) for t in session(a))
    assert singular[0].isnan().all()
    assert exponential[0].isnan().all()
    assert not r[0].isfinite().all()
    for of_two in (singular, exponential, r):
        assert of_two[1].isfinite().all()


@pytest.mark.parametrize("function", [
    linalg.inv, linalg.cholesky, lambda a: linalg.cholesky_ex(a, check_errors=True),
    lambda a: linalg.lu_factor_ex(a, check_errors=True),
])  # fmt: skip
def test_matrices_without_factors_stop_a_run(tmp_path: Path, function: Callable[..., Any]) -> None:
    session = _through(tmp_path, function, POSITIVE)
    session(POSITIVE)
    with pytest.raises(hardtack.RunError, match="an assertion of the model failed"):
        session(torch.zeros_like(POSITIVE))


def test_pivots_that_are_no_rows(tmp_path: Path) -> None:
    pivots = torch.tensor([1, 2, 3], dtype=torch.int32)
    session = _through(tmp_path, lambda a, p: torch.lu_unpack(a, p), _numbers(3, 3), pivots)
    with pytest.raises(hardtack.RunError, match="a pivot is no row of the matrix"):
        session(_numbers(3, 3), pivots + 1)


def test_other_targets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOp) as raised:
        hardtack.export(lambda a: linalg.qr(a).R, (_numbers(3, 3),), path=tmp_path / "m.pkg", targets=("cuda:sm_90",))
    assert "its kernel, ht_linalg_qr, is C++ for CPUs" in str(raised.value)


def test_the_manifest_names_them(tmp_path: Path) -> None:
    _through(tmp_path, lambda a: linalg.qr(a).R, TALL)
    with open_bundle(tmp_path / "m.pkg") as bundle:
        (kernel,) = bundle.manifest.user_kernels
    assert (kernel.op, kernel.function, kernel.host) == ("aten.linalg_qr.default", "ht_linalg_qr", False)
