"""Linear algebra of matrices: LU with partial pivoting, Cholesky, LDL, and solving by their factors.

Of small real ones, a step for each row, in ops that every target has: all matrices of a batch take a step together. Of
larger ones, complex ones, or sizes that vary, what is left whole is the factors and the solution by a triangle, for
which there are kernels (export/kernels/).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

MOST_ROWS = 16


class Factors(NamedTuple):
    """L and U in one matrix [..., n, n]; rows: of A, in the order of L's [..., n]; pivots: LAPACK's, counted from 1;
    even: 1 or -1, by how often rows were exchanged; info: the first pivot that is 0, counted from 1, or 0."""

    lu: Tensor
    rows: Tensor
    pivots: Tensor
    even: Tensor
    info: Tensor


def _is_small(a: Tensor) -> bool:
    """Whether the matrices take a step for each row."""
    m, n = a.shape[-2:]
    return not a.is_complex() and isinstance(m, int) and isinstance(n, int) and m == n <= MOST_ROWS


def _factors(a: Tensor) -> Factors:
    if not _is_small(a):
        whole, given, found = torch.ops.aten.linalg_lu_factor_ex.default(a)
        return Factors(whole, _rows(whole, given), given, _even(a, given), found)
    n = a.shape[-1]
    batch, places = a.shape[:-2], torch.arange(n, device=a.device)
    rows = places.expand(*batch, n)
    even, info = a.new_ones(batch), torch.zeros(batch, dtype=torch.int64, device=a.device)
    pivots: list[Tensor] = []
    lu = a
    for k in range(n):
        chosen = lu[..., k:, k].abs().argmax(-1, keepdim=True) + k
        order = torch.where(places == k, chosen, torch.where(places == chosen, k, places))
        lu = lu.gather(-2, order.unsqueeze(-1).expand(lu.shape))
        rows = rows.gather(-1, order)
        even = torch.where(chosen.squeeze(-1) == k, even, -even)
        pivots.append(chosen + 1)
        pivot = lu[..., k, k]
        info = torch.where((pivot == 0) & (info == 0), k + 1, info)
        share = lu[..., :, k] / torch.where(pivot == 0, 1, pivot).unsqueeze(-1)
        share = torch.where(places > k, share, 0)
        above = torch.where(places > k, lu[..., k, :], 0)
        lu = lu - share.unsqueeze(-1) * above.unsqueeze(-2)
        lu = torch.where((places[:, None] > k) & (places[None] == k), share.unsqueeze(-1), lu)
    made = torch.cat(pivots, -1) if pivots else rows
    return Factors(lu, rows, made.to(torch.int32), even, info.to(torch.int32))


def _rows(lu: Tensor, pivots: Tensor) -> Tensor:
    """The rows of A in the order that pivots exchange them to; there may be none."""
    p = torch.real(torch.ops.aten.lu_unpack.default(lu, pivots, False)[0])
    places = torch.arange(p.shape[-1], dtype=p.dtype, device=p.device)
    return (p * places.unsqueeze(-1)).sum(-2).long()


def _even(a: Tensor, pivots: Tensor) -> Tensor:
    """1 or -1, by how often rows were exchanged."""
    exchanged = (pivots != torch.arange(1, pivots.shape[-1] + 1, device=a.device)).sum(-1)
    return (1 - 2 * (exchanged % 2)).to(a.dtype)


def _by_triangle(a: Tensor, b: Tensor, upper: bool, unit: bool) -> Tensor:
    """X of A X = B, A of one triangle [..., n, n]: row by row, each taken out of what is left of B."""
    if not _is_small(a):
        a = a.expand(*b.shape[:-2], *a.shape[-2:])
        found: Tensor = torch.ops.aten.linalg_solve_triangular.default(a, b, upper=upper, unitriangular=unit)
        return found
    n = a.shape[-1]
    places = torch.arange(n, device=a.device)
    rows: list[Tensor] = []
    for k in range(n)[:: -1 if upper else 1]:
        row = b[..., k : k + 1, :]
        if not unit:
            row = row / a[..., k : k + 1, k : k + 1]
        rows.append(row)
        open_rows = places < k if upper else places > k
        b = b - torch.where(open_rows, a[..., :, k], 0).unsqueeze(-1) * row
    return torch.cat(rows[:: -1 if upper else 1], -2) if rows else b.clone()


def _common(a: Tensor, b: Tensor) -> torch.Size:
    """The batch of both."""
    shape: torch.Size = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    return shape


def _solution(f: Factors, b: Tensor, transposed: bool = False) -> Tensor:
    """X of A X = B, or of A^T X = B: U^T L^T, and rows go back to where they were."""
    shape = (*_common(f.lu, b), *b.shape[-2:])
    b = b.expand(shape)
    rows = f.rows.argsort(-1) if transposed else f.rows
    order = rows.unsqueeze(-1).expand(*shape[:-2], *rows.shape[-1:], shape[-1])
    if transposed:
        lower = _by_triangle(f.lu.mT, b, False, False)
        return _by_triangle(f.lu.mT, lower, True, True).gather(-2, order)
    lower = _by_triangle(f.lu, b.gather(-2, order), False, True)
    return _by_triangle(f.lu, lower, True, False)


def _diagonal(f: Factors) -> Tensor:
    return f.lu.diagonal(dim1=-2, dim2=-1)


def det(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    f = _factors(a)
    return f.even * _diagonal(f).prod(-1), f.lu, f.pivots


def slogdet(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    f = _factors(a)
    diagonal = _diagonal(f)
    return f.even * diagonal.sgn().prod(-1), diagonal.abs().log().sum(-1), f.lu, f.pivots


def inv_ex(a: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    f = _factors(a)
    if check_errors:
        _check(f.info, "linalg.inv_ex")
    return _solution(f, torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)), f.info


def solve_ex(
    a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of B as vectors, where it has a dimension less than A."""
    f = _factors(a)
    if check_errors:
        _check(f.info, "linalg.solve_ex")
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    wide = b.unsqueeze(-1) if vector else b if left else b.mT
    x = _solution(f, wide, transposed=not left)
    return (x.squeeze(-1) if vector else x if left else x.mT), f.lu, f.pivots, f.info


def lu_factor_ex(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    if not (pivot and _is_small(a)) and not check_errors:
        return NotImplemented  # type: ignore[no-any-return]  # left as it is
    lu, pivots, info = _lu(a, pivot)
    if check_errors:
        _check(info, "linalg.lu_factor_ex")
    return lu, pivots, info


def _lu(a: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
    if pivot and _is_small(a):
        f = _factors(a)
        return f.lu, f.pivots, f.info
    lu, pivots, info = torch.ops.aten.linalg_lu_factor_ex.default(a, pivot=pivot)
    return lu, pivots, info


def lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """Of factors: the exchanges of rows are done again, in order. Of the adjoint all but A is conjugated instead."""
    small = _is_small(lu)
    places = torch.arange(lu.shape[-1], device=lu.device)
    rows = places.expand(pivots.shape) if small else _rows(lu, pivots)
    for k in range(lu.shape[-1] if small else 0):
        chosen = pivots[..., k : k + 1].long() - 1
        rows = rows.gather(-1, torch.where(places == k, chosen, torch.where(places == chosen, k, places)))
    b = b.conj() if adjoint else b
    found = _solution(Factors(lu, rows, pivots, pivots, pivots), b if left else b.mT, transposed=adjoint == left)
    found = found.conj() if adjoint else found
    return found if left else found.mT


def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    if left and not _is_small(a) and a.shape[:-2] == b.shape[:-2]:
        return NotImplemented  # type: ignore[no-any-return]  # left as it is
    return _solved(a, b, upper, left, unitriangular)


def _solved(a: Tensor, b: Tensor, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    if not left:
        return _solved(a.mT, b.mT, not upper, unitriangular=unitriangular).mT
    shape = _common(a, b)
    return _by_triangle(a.expand(*shape, *a.shape[-2:]), b.expand(*shape, *b.shape[-2:]), upper, unitriangular)


def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    used = a.mT if transpose else a
    return _solved(used, b, upper != transpose, unitriangular=unitriangular), a.clone()


def cholesky_ex(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    if not _is_small(a) and not check_errors:
        return NotImplemented  # type: ignore[no-any-return]  # left as it is
    found, info = _cholesky(a, upper)
    if check_errors:
        _check(info, "linalg.cholesky_ex")
    return found, info


def _cholesky(a: Tensor, upper: bool) -> tuple[Tensor, Tensor]:
    """Column by column. info: the first pivot that is not above 0, counted from 1, behind which all is NaN."""
    if not _is_small(a):
        found, info = torch.ops.aten.linalg_cholesky_ex.default(a, upper=upper)
        return found, info
    n = a.shape[-1]
    places = torch.arange(n, device=a.device)
    a = a.mT if upper else a  # of the triangle that LAPACK reads
    info = torch.zeros(a.shape[:-2], dtype=torch.int64, device=a.device)
    columns: list[Tensor] = []
    for k in range(n):
        pivot = a[..., k, k]
        info = torch.where(~(pivot > 0) & (info == 0), k + 1, info)
        column = torch.where(places >= k, a[..., :, k], 0) * pivot.rsqrt().unsqueeze(-1)
        column = torch.where(places == k, pivot.sqrt().unsqueeze(-1), column)
        columns.append(column.unsqueeze(-1))
        a = a - column.unsqueeze(-1) * column.unsqueeze(-2)
    lower = torch.cat(columns, -1) if columns else a.clone()
    return (lower.mT if upper else lower), info.to(torch.int32)


def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mH if upper else factor
    return _solved(lower.mH, _solved(lower, b, False), True)


def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    return cholesky_solve(torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device), factor, upper)


def ldl_factor_ex(a: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    if not check_errors:
        return NotImplemented  # type: ignore[no-any-return]  # left as it is
    ld, pivots, info = torch.ops.aten.linalg_ldl_factor_ex.default(a, hermitian=hermitian)
    _check(info, "linalg.ldl_factor_ex")
    return ld, pivots, info


def ldl_factor(a: Tensor, *, hermitian: bool = False) -> tuple[Tensor, Tensor]:
    ld, pivots, info = torch.ops.aten.linalg_ldl_factor_ex.default(a, hermitian=hermitian)
    _check(info, "linalg.ldl_factor")
    return ld, pivots


def ldl_solve(ld: Tensor, pivots: Tensor, b: Tensor, *, hermitian: bool = False) -> Tensor:
    batch = _common(ld, b)
    if ld.shape[:-2] == b.shape[:-2]:
        return NotImplemented  # type: ignore[no-any-return]  # left as it is
    whole = [t.expand(*batch, *t.shape[-2:]) for t in (ld, b)]
    pivots = pivots.expand(*batch, pivots.shape[-1])
    found: Tensor = torch.ops.aten.linalg_ldl_solve.default(whole[0], pivots, whole[1], hermitian=hermitian)
    return found


def _check(info: Tensor, api_name: str) -> None:
    """Says at run time that a matrix has no factors, as eager does."""
    message = f"{api_name}: a matrix is singular, or not positive definite"
    torch.ops.aten._assert_async.msg((info == 0).all(), message)


def inv(a: Tensor) -> Tensor:
    found, info = inv_ex(a)
    _check(info, "linalg.inv")
    return found


def tensorinv(a: Tensor, ind: int = 2) -> Tensor:
    rows = math.prod(a.shape[:ind])
    return inv(a.reshape(rows, -1)).reshape(*a.shape[ind:], *a.shape[:ind])


def solve(a: Tensor, b: Tensor, *, left: bool = True) -> Tensor:
    found, _, _, info = solve_ex(a, b, left=left)
    _check(info, "linalg.solve")
    return found


def cholesky(a: Tensor, *, upper: bool = False) -> Tensor:
    found, info = _cholesky(a, upper)
    _check(info, "linalg.cholesky")
    return found


def lu_factor(a: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    lu, pivots, info = _lu(a, pivot)
    _check(info, "linalg.lu_factor")
    return lu, pivots


def pinv(a: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Tensor:
    """By singular values, or eigenvalues of what is hermitian; those within the tolerance count as 0."""
    if any(isinstance(n, int) and n == 0 for n in a.shape):
        return torch.zeros_like(a.mT)
    if hermitian:
        values, right = torch.linalg.eigh(a)
        left, sizes = right, values.abs()
    else:
        left, values, transposed = torch.linalg.svd(a, full_matrices=False)
        right, sizes = transposed.mH, values
    usual = torch.sym_max(*a.shape[-2:]) * torch.finfo(a.dtype).eps  # type: ignore[no-untyped-call]
    if rtol is None:
        rtol = torch.full_like(sizes[..., :1], usual) if atol is None else torch.where(atol > 0, 0.0, usual)[..., None]
    else:
        rtol = rtol.unsqueeze(-1)
    small = rtol * sizes.amax(-1, keepdim=True)
    if atol is not None:
        small = torch.maximum(atol.unsqueeze(-1).expand_as(small), small)
    inverse = torch.where(sizes > small, 1 / torch.where(sizes > small, values, 1), 0)
    found: Tensor = (right * inverse.unsqueeze(-2)) @ left.mH
    return found


def matrix_exp(a: Tensor) -> Any:
    """Of 16 bits in float32, rounded once; others as they are."""
    if a.dtype not in (torch.float16, torch.bfloat16):
        return NotImplemented
    return torch.linalg.matrix_exp(a.float()).to(a.dtype)


OWN: dict[str, Callable[..., Any]] = {
    "aten.linalg_matrix_exp.default": matrix_exp,
    "aten.linalg_inv.default": inv,
    "aten.inverse.default": inv,
    "aten.linalg_solve.default": solve,
    "aten.linalg_cholesky.default": cholesky,
    "aten.cholesky.default": lambda a, upper=False: cholesky(a, upper=upper),
    "aten.linalg_lu_factor.default": lu_factor,
    "aten.linalg_ldl_factor.default": ldl_factor,
    "aten.linalg_ldl_factor_ex.default": ldl_factor_ex,
    "aten.linalg_ldl_solve.default": ldl_solve,
    "aten._linalg_det.default": det,
    "aten._linalg_slogdet.default": slogdet,
    "aten.linalg_inv_ex.default": inv_ex,
    "aten._linalg_solve_ex.default": solve_ex,
    "aten.linalg_lu_factor_ex.default": lu_factor_ex,
    "aten.linalg_lu_solve.default": lu_solve,
    "aten.linalg_solve_triangular.default": solve_triangular,
    "aten.triangular_solve.default": triangular_solve,
    "aten.linalg_cholesky_ex.default": cholesky_ex,
    "aten.cholesky_solve.default": cholesky_solve,
    "aten.cholesky_inverse.default": cholesky_inverse,
    "aten.linalg_tensorinv.default": tensorinv,
    "aten.linalg_pinv.atol_rtol_tensor": pinv,
}
"""Ops of torch -> their functions."""
