"""Properties of Expr and of the index arithmetic built on it, against plain integers."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep import num_examples

from hardtack.codegen.ir.expr import (
    Expr,
    as_expr,
    bounds,
    const,
    floordiv,
    known_in_range,
    maximum,
    minimum,
    mod,
    never_negative,
    sym,
    to_text,
)
from hardtack.codegen.ir.expr_walk import evaluate, free_syms, split_linear, substitute
from hardtack.codegen.ir.loops import Axis, join
from hardtack.codegen.lower.views import delinearize, reshape_index
from hardtack.codegen.schedule.axes import mixed_radix, split_into

N = sym("n", 1, 9)
M = sym("m", 2, None)
A = sym("a", extent=N)
B = sym("b", extent=const(6))
C = sym("c", extent=M)
D = sym("d", -5, 7)
SYMS = (N, M, A, B, C, D)

Tree = tuple[object, ...] | int | str


@st.composite
def environments(draw: st.DrawFn) -> dict[str, int]:
    n, m = draw(st.integers(1, 9)), draw(st.integers(2, 40))
    return {
        "n": n,
        "m": m,
        "a": draw(st.integers(0, n - 1)),
        "b": draw(st.integers(0, 5)),
        "c": draw(st.integers(0, m - 1)),
        "d": draw(st.integers(-5, 7)),
    }


leaf = st.one_of(st.sampled_from([s.name for s in SYMS]), st.integers(-12, 12))
divisor = st.one_of(st.integers(1, 12), st.sampled_from(["n", "m"]), st.just(("*", "n", 3)), st.just(("+", "m", 1)))
trees = st.recursive(
    leaf,
    lambda t: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), t, t),
        st.tuples(st.sampled_from(["//", "%"]), t, divisor),
    ),
    max_leaves=9,
)


def build(t: Tree) -> Expr:
    if isinstance(t, int):
        return const(t)
    if isinstance(t, str):
        return next(s for s in SYMS if s.name == t)
    op, a, b = t[0], build(t[1]), build(t[2])  # type: ignore[arg-type]
    table = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b, "%": lambda: a % b}
    table |= {"min": lambda: minimum(a, b), "max": lambda: maximum(a, b)}
    return table[str(op)]()


def plain(t: Tree, env: dict[str, int]) -> int:
    if isinstance(t, int):
        return t
    if isinstance(t, str):
        return env[t]
    a, b = plain(t[1], env), plain(t[2], env)  # type: ignore[arg-type]
    table = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b, "%": lambda: a % b}
    table |= {"min": lambda: min(a, b), "max": lambda: max(a, b)}
    return table[str(t[0])]()


@settings(max_examples=num_examples(400), deadline=None)
@given(trees, environments())
def test_simplification_keeps_the_value_and_bounds_hold(t: Tree, env: dict[str, int]) -> None:
    e, value = build(t), plain(t, env)
    assert evaluate(e, env) == value
    lo, hi = bounds(e)
    assert lo is None or lo <= value
    assert hi is None or value <= hi


@settings(max_examples=num_examples(300), deadline=None)
@given(trees, trees, environments())
def test_what_is_known_is_true(t: Tree, u: Tree, env: dict[str, int]) -> None:
    a, b = build(t), build(u)
    x, y = plain(t, env), plain(u, env)
    if known_in_range(a, b):
        assert 0 <= x < y
    if a is b:
        assert x == y


@settings(max_examples=num_examples(400), deadline=None)
@given(trees, trees, st.sampled_from([-2, -1, 1, 3]), environments())
def test_what_is_known_not_to_be_negative_is_not(t: Tree, u: Tree, c: int, env: dict[str, int]) -> None:
    if never_negative(build(t) + build(u) * c):
        assert plain(t, env) + plain(u, env) * c >= 0


@pytest.mark.parametrize(
    "e",
    [
        N + floordiv(-N, 4),
        N - minimum(2, N),
        N - mod(N, 2),
        floordiv(2 * N + 3, 6) - mod(floordiv(2 * N + 3, 6), 2),
        M - floordiv(M + 1, 2) + minimum(0, N - 1),
    ],
    ids=to_text,
)
def test_what_parts_of_a_size_leave_is_not_negative(e: Expr) -> None:
    assert never_negative(e)
    assert not never_negative(e - 10)


def test_signs_of_long_sums_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each minimum that is taken off doubles the ways in which a sum may be known not to be negative."""
    rest = sum((mod(M, 2) * minimum(1, maximum(0, floordiv(M, 10) - 2**k)) for k in range(40)), const(0))
    asked: list[Expr] = []
    find_bounds = bounds
    monkeypatch.setattr("hardtack.codegen.ir.expr.bounds", lambda e: asked.append(e) or find_bounds(e))
    for k in range(40):
        rest -= minimum(1, maximum(0, floordiv(M, 10) - 2**k))
    assert not never_negative(rest)
    assert len(asked) < 20_000


def test_parts_of_a_size_lie_within_it_one_behind_the_other() -> None:
    quarter, digit, two = -floordiv(-N, 4), mod(N, 2), minimum(2, N)
    for part in (quarter, digit, two):
        assert known_in_range(sym("i", extent=part) + N - part, N), part
        assert not known_in_range(sym("i", extent=part) + N - part + 1, N), part
    assert known_in_range(sym("i", extent=N - 1) + quarter + 1, N + quarter)


def test_digits_by_a_size_lie_within_their_number() -> None:
    """What `x[2 * n]` is of `x[2, n]`: the axis over n is below 2."""
    for size in (N, M):
        row = floordiv(sym("p", extent=2 * size), size)
        assert known_in_range(2 * B + row, const(12))
        assert not known_in_range(2 * B + row, const(11))
        assert not known_in_range(2 * B + row - 1, const(12))
        assert known_in_range(B * size + floordiv(sym("p", extent=size * size), size), 6 * size)
        assert not known_in_range(B + floordiv(sym("p", extent=2 * size + 1), size), const(7))


def test_quotients_of_an_axis_lie_behind_a_size_that_is_rounded() -> None:
    """The second half of chunks of a length, as state-space models have them: 16 heads a chunk."""
    chunks = floordiv(M + mod(-mod(M, 256), 256), 256)
    chunk = floordiv(sym("i", extent=16 * chunks), 16)
    assert known_in_range(chunk, chunks)
    assert known_in_range(chunks + chunk, 2 * chunks)
    assert not known_in_range(chunks + chunk + 1, 2 * chunks)
    assert not known_in_range(chunks + chunk, 2 * chunks - 1)
    i = sym("i", extent=M)
    assert never_negative(16 * floordiv(i, 16) - i + 15)
    assert not never_negative(16 * floordiv(i, 16) - i + 14)


@settings(max_examples=num_examples(300), deadline=None)
@given(trees, st.integers(1, 6), st.sampled_from([N, M]), environments())
def test_substitution_is_evaluation(t: Tree, k: int, size: Expr, env: dict[str, int]) -> None:
    # within b's bounds, which are part of what was simplified with
    replacement = minimum((N * k + M) // 3, size, 5)
    env = {**env, "b": evaluate(replacement, env)}
    assert evaluate(substitute(build(t), {B: replacement}), env) == plain(t, env)


@settings(max_examples=num_examples(300), deadline=None)
@given(trees, environments(), st.sampled_from([A, B, C]))
def test_split_linear(t: Tree, env: dict[str, int], s: Expr) -> None:
    e = build(t)
    parts = split_linear(e, s)  # type: ignore[arg-type]
    if parts is not None:
        coefficient, rest = parts
        assert s not in free_syms(coefficient) | free_syms(rest)
        assert evaluate(coefficient * s + rest, env) == plain(t, env)


@given(trees)
@settings(max_examples=num_examples(100), deadline=None)
def test_equal_expressions_are_one_object_and_survive_pickling(t: Tree) -> None:
    e = build(t)
    assert build(t) is e
    assert pickle.loads(pickle.dumps(e)) is e


@given(st.lists(st.integers(2, 7), min_size=1, max_size=4))
def test_axes_joined_and_split_again(sizes: list[int]) -> None:
    axes = [Axis(sym(f"x{k}", extent=n), const(n)) for k, n in enumerate(sizes)]
    joined = join(axes)
    assert mixed_radix(joined) == tuple(a.sym for a in axes)
    total = math.prod(sizes)
    point = sym("p", extent=total)
    parts = split_into([a.sym for a in axes], point)
    for p in range(total):
        at = {a.sym.name: evaluate(parts[a.sym], {"p": p}) for a in axes}
        assert tuple(at.values()) == tuple(int(i) for i in np.unravel_index(p, sizes))
        assert evaluate(joined, at) == p
    assert substitute(joined, parts) is point


def test_mixed_radix_wants_every_point_once() -> None:
    i, j = sym("i", extent=4), sym("j", extent=5)
    assert mixed_radix(i * 5 + j) == (i, j)
    assert mixed_radix(i * 6 + j) is None
    assert mixed_radix(i * 5 + j + 1) is None
    assert mixed_radix(i + j) is None
    assert mixed_radix(i * N + A) == (i, A)


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two shapes with the same number of elements."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=5))

    def grouped() -> list[int]:
        order = draw(st.permutations(factors))
        shape: list[int] = []
        for f in order:
            if shape and draw(st.booleans()):
                shape[-1] *= f
            else:
                shape.append(f)
        return shape

    return grouped(), grouped()


@settings(max_examples=num_examples(150), deadline=None)
@given(reshapes(), st.booleans())
def test_reshape_index_is_numpys(shapes: tuple[list[int], list[int]], symbolic: bool) -> None:
    old, new = shapes
    sizes = {f"s{n}": n for n in set(old + new)}

    def dims(shape: list[int]) -> tuple[Expr, ...]:
        return tuple(sym(f"s{n}", 1) if symbolic and n > 2 else const(n) for n in shape)

    data = np.arange(math.prod(old)).reshape(old)
    want = data.reshape(new)
    out_dims = dims(new)
    axes = [sym(f"i{k}", extent=n) for k, n in enumerate(out_dims)]
    if symbolic and math.prod(1 for _ in new) and sorted(old) != sorted(new):
        return  # equal only for these values of the symbols
    index = reshape_index(out_dims, dims(old), tuple(axes))
    for at in np.ndindex(*new):
        env = {**sizes, **{f"i{k}": int(p) for k, p in enumerate(at)}}
        assert data[tuple(evaluate(e, env) for e in index)] == want[at]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_delinearize(shape: list[int]) -> None:
    total = math.prod(shape)
    p = sym("p", extent=total)
    index = delinearize(p if total > 1 else as_expr(0), tuple(const(n) for n in shape))
    for k in range(total):
        assert tuple(evaluate(e, {"p": k}) for e in index) == tuple(int(i) for i in np.unravel_index(k, shape))


def test_divisions_that_bounds_settle() -> None:
    assert floordiv(A, N) is const(0)
    assert mod(A, N) is A
    assert floordiv(B * N + A, N) is B
    assert mod(B * N + A, N) is A
    assert floordiv(B * 4 + 3, 4) is B
    assert (A // 4) * 4 + A % 4 is A
    size = sym("size")
    half = (size + 1) // 2
    assert known_in_range(sym("i", extent=half) + size - half, size)  # the second half behind the first
    assert not known_in_range(sym("i", extent=half) + size - half + 1, size)
    assert not known_in_range(sym("i", extent=half) + size - half - 1, size)
