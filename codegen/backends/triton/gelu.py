"""GELU found in a nest: its five or nine ops on f32 as one, where the result is rounded to 16 bits anyway."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hardtack.codegen.backends.triton.precision import coarse_values
from hardtack.codegen.backends.triton.tiled import TiledKernel
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.loops import Arg, Buffer, Compute, LoopNest, Stmt, args_of, out_of
from hardtack.codegen.ir.types import DType

GELU, GELU_TANH = "gelu", "gelu_tanh"
"""The ops that take their place. No other room knows them: helpers.py computes them."""
_TOLERANCE = 1e-6


def with_gelus(nest: LoopNest, coarse: frozenset[str]) -> LoopNest:
    """The nest with each x / 2 * (1 + erf(x / sqrt(2))) among its `coarse` values as one op, and with each
    x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))."""
    known: dict[str, Compute] = {}
    body: list[Stmt] = []
    for s in nest.body:
        if isinstance(s, Compute):
            known[s.out] = s
            s = (_gelu(s, known) or s) if s.out in coarse else s
        body.append(s)
    return nest if tuple(body) == tuple(nest.body) else replace(nest, body=_used(body))


def tiled_with_gelus(kernel: TiledKernel, buffers: Mapping[str, Buffer]) -> TiledKernel:
    """The same of all nests of a kernel."""
    coarse = {id(n): c for n, c in zip(kernel.nests, coarse_values(kernel, buffers), strict=True)}
    passes = tuple(tuple(replace(n, nest=with_gelus(n.nest, coarse[id(n)])) for n in p) for p in kernel.passes)
    return replace(kernel, passes=passes)


def _gelu(s: Compute, known: Mapping[str, Compute]) -> Compute | None:
    """The op that `s` is the last of, if it is one's."""
    for half, share in _orders(s, "mul", known):
        x = _scaled(half, 0.5, known)
        for one, inner in _orders(share, "add", known):
            function = known.get(inner) if isinstance(inner, str) else None
            if x is None or not _close(one, 1.0) or function is None:
                continue
            if function.op == "erf" and _scaled(function.args[0], math.sqrt(0.5), known) == x:
                return Compute(s.out, GELU, (x,), s.dtype)
            if function.op == "tanh" and _with_cube(_scaled(function.args[0], math.sqrt(2 / math.pi), known), x, known):
                return Compute(s.out, GELU_TANH, (x,), s.dtype)
    return None


def _with_cube(a: str | None, x: str, known: Mapping[str, Compute]) -> bool:
    """True if `a` is x + 0.044715 * x^3."""
    for first, second in _orders(a, "add", known) if a is not None else ():
        cube = _scaled(second, 0.044715, known)
        squares = _orders(cube, "mul", known) if first == x and cube is not None else ()
        if any(right == x and (x, x) in _orders(left, "mul", known) for left, right in squares):
            return True
    return False


def _scaled(a: Arg, factor: float, known: Mapping[str, Compute]) -> str | None:
    """x where `a` is x * factor."""
    for number, x in _orders(a, "mul", known):
        if _close(number, factor) and isinstance(x, str):
            return x
    return None


def _orders(a: Arg | Compute, op: str, known: Mapping[str, Compute]) -> Sequence[tuple[Arg, Arg]]:
    """The two arguments of `a` in both orders, where it is that op of f32."""
    s = known.get(a) if isinstance(a, str) else a
    if not isinstance(s, Compute) or s.op != op or s.dtype is not DType.F32:
        return ()
    left, right = s.args
    return ((left, right), (right, left))


def _close(a: Arg, value: float) -> bool:
    return isinstance(a, Lit) and math.isclose(float(a.value), value, rel_tol=_TOLERANCE)


def _used(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The body without the computed values that nothing uses."""
    used: set[str] = set()
    kept: list[Stmt] = []
    for s in reversed(body):
        if isinstance(s, Compute) and out_of(s) not in used:
            continue
        used |= {a for a in args_of(s) if isinstance(a, str)}
        kept.append(s)
    return tuple(reversed(kept))
