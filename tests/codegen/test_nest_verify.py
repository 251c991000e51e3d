"""Nests that break the grammar of loops.py: each is refused with what is wrong, and its neighbours are not."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hardtack.codegen.ir.expr import Expr, const, maximum, sym
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.loops import (
    Arg,
    Assert,
    Axis,
    Buffer,
    Check,
    Compute,
    Index,
    Load,
    LoopError,
    LoopNest,
    Reduce,
    Stmt,
    Store,
)
from hardtack.codegen.ir.nest_verify import verify_nest
from hardtack.codegen.ir.types import DType

F32, I64, BOOL = DType.F32, DType.I64, DType.BOOL
N = sym("n")
R, C, K = sym("i", extent=4), sym("j", extent=8), sym("k", extent=N)
ROW, COLUMN, FREE = Axis(R, const(4)), Axis(C, const(8)), Axis(K, N)
REDUCED = Axis(C, const(8), "reduce")
AT = (R, C)


def _buffer(name: str, dtype: DType, *shape: Expr | int) -> Buffer:
    sizes = tuple(const(n) if isinstance(n, int) else n for n in shape)
    return Buffer(name, dtype, sizes, tuple(range(len(sizes))))


BUFFERS = {
    b.name: b
    for b in (
        _buffer("x", F32, 4, 8),
        _buffer("y", F32, 4, 8),
        _buffer("sums", F32, 4),
        _buffer("places", I64, 4),
        _buffer("flags", BOOL, 4),
        _buffer("rows", F32, N),
        _buffer("copy", F32, N),
    )
}
LOADED = Load("a", "x", AT)
KEPT = Store("y", AT, "a")
POSITIVE = Compute("p", "gt", ("a", Lit(0.0, F32)), BOOL)


def verified(*body: Stmt, axes: tuple[Axis, ...] = (ROW, COLUMN), serial: bool = False) -> None:
    verify_nest(LoopNest("it", axes, body, serial), BUFFERS)


def refused(message: str, *body: Stmt, axes: tuple[Axis, ...] = (ROW, COLUMN), serial: bool = False) -> None:
    with pytest.raises(LoopError, match=re.escape(message)) as caught:
        verified(*body, axes=axes, serial=serial)
    assert "nest it" in str(caught.value).splitlines()[1], "the message has no listing"


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((R, C + 100), "j + 100 leaves [0, 8) in: a = load x[i, j + 100]"),
        ((R, C + 1), "j + 1 leaves [0, 8)"),
        ((R - 3, C), "i - 3 leaves [0, 4)"),
        ((R, 2 * C), "2*j leaves [0, 8)"),
        ((const(4), C), "4 leaves [0, 4)"),
        ((R, 6 - C), "-1*j + 6 leaves [0, 8)"),
        ((R, maximum(C, 3) * maximum(3 - C, 2) - 1), "leaves [0, 8)"),
    ],
)
def test_loads_outside_of_their_buffer(index: tuple[Expr, ...], message: str) -> None:
    refused(message, Load("a", "x", index), KEPT)


@pytest.mark.parametrize("index", [K + N, K - N, K + 1, 2 * N - K])
def test_loads_outside_whatever_the_sizes_are(index: Expr) -> None:
    body = (Load("a", "rows", (index,)), Store("copy", (K,), "a"))
    refused(f"{index} leaves [0, n)", *body, axes=(FREE,))


@pytest.mark.parametrize("index", [K, N - K - 1, maximum(K - 3, 0), K // 2 + N // 2])
def test_loads_that_may_be_right(index: Expr) -> None:
    """The last one is for odd n only, which a guard may say."""
    verified(Load("a", "rows", (index,)), Store("copy", (K,), "a"), axes=(FREE,))


def _masked(condition: str, *args: Arg, at: Expr = C + 4) -> tuple[Stmt, ...]:
    """A load at column `at` where a condition holds; the values "at" and "first" are at and the flag of the row."""
    return (
        Index("at", at),
        Load("first", "flags", (R,)),
        Compute("in", condition, args, BOOL),
        Load("a", "x", (R, at), "in", Lit(0.0, F32)),
        KEPT,
    )


def test_a_mask_keeps_a_load_in_its_buffer() -> None:
    verified(*_masked("lt", "at", Lit(8, I64)))
    verified(*_masked("lt", "at", Lit(8, I64), at=C + 100))
    verified(*_masked("and", "first", Lit(True, BOOL)))  # which depends on what is read


@pytest.mark.parametrize("condition", ["le", "ge"])
def test_a_mask_that_does_not(condition: str) -> None:
    refused("j + 4 leaves [0, 8) in: a = load x[i, j + 4] if in else 0.0:f32", *_masked(condition, "at", Lit(8, I64)))


def test_a_nest_without_points_loads_nothing() -> None:
    none = Axis(sym("none", extent=0), const(0))
    verified(Load("a", "x", (R, const(99))), KEPT, axes=(ROW, COLUMN, none))


@pytest.mark.parametrize("serial", [False, True])
def test_stores_outside_of_their_buffer(serial: bool) -> None:
    refused(
        "99 leaves [0, 4) in: store sums[99] a",
        Load("a", "x", (const(0), const(0))), Store("sums", (const(99),), "a"), axes=(), serial=serial,
    )  # fmt: skip


def test_points_that_read_what_others_store() -> None:
    refused("other points store what is read in: a = load y[-1*i + 3, j]", Load("a", "y", (3 - R, C)), KEPT)
    verified(Load("a", "y", AT), KEPT)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ((LOADED, Load("b", "x", AT, "a", Lit(0.0, F32)), KEPT), "a mask of f32"),
        ((LOADED, POSITIVE, Load("b", "x", AT, "p", Lit(0, I64)), KEPT), "0:i64 for an element of f32"),
        ((LOADED, Check("c", "a", const(8)), KEPT), "an index of f32 in: c = check a in 8"),
        ((LOADED, Assert("a", "it is"), KEPT), "a condition of f32 in: assert a: 'it is'"),
        ((LOADED, Compute("b", "foo", ("a",), F32), KEPT), "unknown op foo in: b: f32 = foo(a)"),
        ((LOADED, Compute("b", "add", ("a",), F32), KEPT), "add takes 2 arguments, got 1 in: b: f32 = add(a)"),
        ((LOADED, Compute("b", "shl", ("a", "a"), F32), KEPT), "shl is not defined on (f32, f32) in:"),
        ((LOADED, Reduce("b", "sum", ("a",), F32), Store("y", AT, "b")), "a reduction without an axis in:"),
    ],
)
def test_values_that_a_statement_does_not_take(body: tuple[Stmt, ...], message: str) -> None:
    refused(message, *body)


def test_an_unknown_mode() -> None:
    refused("the unknown mode foo in: store y[i, j] foo= a", LOADED, replace(KEPT, mode="foo"), serial=True)


@pytest.mark.parametrize(
    ("kind", "args", "dtype", "buffer", "message"),
    [
        ("sum", ("a",), I64, "places", "a sum of f32 as i64"),
        ("sum", ("a", "a"), F32, "sums", "a sum of f32, f32 as f32"),
        ("all", ("a",), F32, "sums", "a all of f32 as f32"),
        ("any", ("a",), BOOL, "flags", "a any of f32 as bool"),
        ("foo", ("a",), F32, "sums", "the unknown reduction foo"),
        ("argmax", ("a",), I64, "places", "a argmax of f32 as i64"),
        ("argmin", ("a", "a"), I64, "places", "a argmin of f32, f32 as i64"),
        ("argmax", ("a", "at"), F32, "sums", "a argmax of f32, i64 as f32"),
        ("sum", ("a",), F32, "sums", ""),
        ("all", ("p",), BOOL, "flags", ""),
        ("argmin", ("a", "at"), I64, "places", ""),
    ],
)
def test_reductions(kind: str, args: tuple[Arg, ...], dtype: DType, buffer: str, message: str) -> None:
    body = (LOADED, POSITIVE, Index("at", C), Reduce("r", kind, args, dtype), Store(buffer, (R,), "r"))
    if message:
        refused(f"{message} in: r: {dtype} = reduce", *body, axes=(ROW, REDUCED))
    else:
        verified(*body, axes=(ROW, REDUCED))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ((replace(ROW, extent=const(400)), COLUMN), "the axis i has 400 points, and its symbol 4"),
        ((ROW, ROW, COLUMN), "the axis i stands twice"),
        ((ROW, replace(COLUMN, kind="serial")), "the axis j is of the kind serial"),
    ],
)
def test_axes(axes: tuple[Axis, ...], message: str) -> None:
    verified(LOADED, KEPT)
    refused(message, LOADED, KEPT, axes=axes)
