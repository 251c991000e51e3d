"""Op -> its kernel. The text of a kernel is a file of this folder behind the headers that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from hardtack.codegen.ir.expr import Expr, maximum, minimum
from hardtack.codegen.ir.kernel_code import KernelCode
from hardtack.codegen.ir.types import DType
from hardtack.exporter.errors import Refusal
from hardtack.exporter.extensions import Given, UserKernel

_FOLDER = Path(__file__).parent
_DOUBLE = 8
"""Bytes of what kernels compute in; complex numbers have two."""


@dataclass(frozen=True)
class _Own:
    """A function of a file. numbers: how many doubles, or pairs of them, a thread needs, of the op's arguments as
    lowerings get them."""

    function: str
    file: str
    numbers: Callable[..., Any]


def _sides(a: Any) -> tuple[Expr, Expr, Expr]:
    """Rows, columns, and the smaller number of both. Refusal for what is no matrix of f32 or f64, or pairs of them."""
    if a.dtype not in (DType.F32, DType.F64):
        raise Refusal(f"its kernel is of float32 and float64, and this is {a.dtype.value}")
    m: Expr
    n: Expr
    m, n = a.shape[-2:]
    return m, n, minimum(m, n)


def _qr(a: Any, mode: str) -> Expr:
    m, n, most = _sides(a)
    return m * n + most + m + n + m * (m if mode == "complete" else most)


def _geqrf(a: Any) -> Expr:
    m, n, most = _sides(a)
    return m * n + most + n


def _householder_product(a: Any, tau: Any) -> Expr:
    m, n, _ = _sides(a)
    count: Expr = tau.shape[-1]
    return m * n * 2 + count + n


def _ormqr(a: Any, tau: Any, c: Any, left: bool, transpose: bool) -> Expr:
    m, n, _ = _sides(a)
    rows, columns, _ = _sides(c)
    return m * n + rows * columns + maximum(rows, columns)


def _eigh(a: Any, uplo: str, compute_v: bool) -> Expr:
    n = _sides(a)[0]
    return n * n * 2 + n


def _svd(a: Any, full_matrices: bool, compute_uv: bool, driver: str | None) -> Expr:
    rows, columns, n = _sides(a)
    m = maximum(rows, columns)
    return m * n + n * n + m * (m if full_matrices else n) + n * 2


def _eig(a: Any) -> Expr:
    n = _sides(a)[0]
    return n * n * 6 + n * 5


def _lu_factor(a: Any, pivot: bool, check_errors: bool) -> Expr:
    m, n, _ = _sides(a)
    if not pivot:
        raise Refusal("without pivots there are no factors on CPUs")
    return m * n


def _lu(a: Any, pivot: bool) -> Expr:
    m, _, most = _sides(a)
    return _lu_factor(a, pivot, False) + m + most


def _lu_unpack(lu: Any, pivots: Any, unpack_data: bool, unpack_pivots: bool) -> Expr:
    m, n, _ = _sides(lu)
    return m * n + m


def _ldl_factor(a: Any, hermitian: bool, check_errors: bool) -> Expr:
    n = _sides(a)[0]
    return n * n


def _ldl_solve(ld: Any, pivots: Any, b: Any, hermitian: bool) -> Expr:
    n = _sides(ld)[0]
    rows, columns, _ = _sides(b)
    return n * n + rows * columns


def _cholesky(a: Any, upper: bool, check_errors: bool) -> Expr:
    m, n, _ = _sides(a)
    return m * n


def _solve_triangular(a: Any, b: Any, upper: bool, left: bool, unitriangular: bool) -> Expr:
    m, n, _ = _sides(a)
    rows, columns, _ = _sides(b)
    return m * n + rows * columns


def _matrix_exp(a: Any) -> Expr:
    m, n, _ = _sides(a)
    return m * n * 3


_OWN: Mapping[str, _Own] = {
    "aten.linalg_qr.default": _Own("ht_linalg_qr", "qr.cpp", _qr),
    "aten.geqrf.default": _Own("ht_geqrf", "qr.cpp", _geqrf),
    "aten.linalg_householder_product.default": _Own("ht_householder_product", "qr.cpp", _householder_product),
    "aten.ormqr.default": _Own("ht_ormqr", "qr.cpp", _ormqr),
    "aten._linalg_eigh.default": _Own("ht_linalg_eigh", "eigh.cpp", _eigh),
    "aten.linalg_eig.default": _Own("ht_linalg_eig", "eig.cpp", _eig),
    "aten._linalg_svd.default": _Own("ht_linalg_svd", "svd.cpp", _svd),
    "aten.linalg_lu_factor_ex.default": _Own("ht_linalg_lu_factor_ex", "lu.cpp", _lu_factor),
    "aten.linalg_lu.default": _Own("ht_linalg_lu", "lu.cpp", _lu),
    "aten.lu_unpack.default": _Own("ht_lu_unpack", "lu.cpp", _lu_unpack),
    "aten.linalg_ldl_factor_ex.default": _Own("ht_linalg_ldl_factor_ex", "ldl.cpp", _ldl_factor),
    "aten.linalg_ldl_solve.default": _Own("ht_linalg_ldl_solve", "ldl.cpp", _ldl_solve),
    "aten.linalg_cholesky_ex.default": _Own("ht_linalg_cholesky_ex", "triangles.cpp", _cholesky),
    "aten.linalg_solve_triangular.default": _Own("ht_linalg_solve_triangular", "triangles.cpp", _solve_triangular),
    "aten.linalg_matrix_exp.default": _Own("ht_linalg_matrix_exp", "exponential.cpp", _matrix_exp),
}
_HEADERS: Mapping[str, tuple[str, ...]] = {"qr.cpp": ("reflections.h",), "eig.cpp": ("reflections.h",)}
"""In front of a file, behind scalars.h and matrices.h, which all have."""


def has_own_kernel(name: str) -> bool:
    """Whether there is a kernel of Hardtack's own for an op."""
    return name in _OWN


@cache
def own_kernel(name: str, of_complex: bool) -> Given:
    """Hardtack's kernel of an op, by its name. of_complex: of calls with complex operands, which it gets as pairs."""
    own = _OWN[name]
    _, packet, overload = name.split(".")
    op = getattr(getattr(torch.ops.aten, packet), overload)

    def nbytes(*args: Any, **kwargs: Any) -> Any:
        return own.numbers(*args, **kwargs) * (2 * _DOUBLE if of_complex else _DOUBLE)

    code = KernelCode(own.function, _text(own.file, of_complex), own.file)
    return Given(op, "kernel", UserKernel(code, (), 0, nbytes), "Hardtack", ("hardtack", ""))


def _text(file: str, of_complex: bool) -> str:
    names = ("scalars.h", "matrices.h", *_HEADERS.get(file, ()), file)
    texts = [(_FOLDER / name).read_text(encoding="utf-8") for name in names]
    return "\n".join(["#define HT_COMPLEX"] * of_complex + texts)
