"""GELU found in a nest: its five or nine ops on f32 as one, where the result is rounded to 16 bits anyway."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hardtack.codegen.ir.coarse_verify import verify_coarse
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import (
    Arg,
    Assert,
    Check,
    Compute,
    LoopError,
    LoopNest,
    Reduce,
    Stmt,
    Store,
    args_of,
    is_same,
    out_of,
)
from hardtack.codegen.ir.nest_text import stmt_text
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import DType
from hardtack.codegen.passes.gpu.kernel_nests import GpuKernelIr, nests_of, with_nests
from hardtack.codegen.passes.gpu.precision import coarse_values
from hardtack.codegen.passes.passes import Buffers, Context, KernelPass

GELU, GELU_TANH = "coarse_gelu", "coarse_gelu_tanh"
"""The ops of ops.COARSE_OPS that take their place."""
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


def _run(kernel: GpuKernelIr, buffers: Buffers, following: Group | None, context: Context) -> GpuKernelIr:
    nests = nests_of(kernel)
    if not any(isinstance(s, Compute) and s.op in ("erf", "tanh") for n in nests for s in n.body):
        return kernel
    # a row that programs compute for themselves hides behind their reads of a matrix, and stays as it is
    kept = len(kernel.prologue) if isinstance(kernel, Kernel) else 0
    found = list(zip(nests, coarse_values(kernel, buffers), strict=True))
    return with_nests(kernel, [*nests[:kept], *(with_gelus(nest, coarse) for nest, coarse in found[kept:])])


_DEFINITIONS: Mapping[str, Callable[[float], float]] = {
    GELU: lambda x: 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0))),
    GELU_TANH: lambda x: 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
}
_OPS: Mapping[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "erf": math.erf,
    "tanh": math.tanh,
}
_SAMPLES = (-6.5, -3.0, -1.1, -0.3, 0.0, 0.2, 1.3, 2.5, 7.0)
_OFF = 1e-5


def verify_gelus(before: GpuKernelIr, after: GpuKernelIr, buffers: Buffers) -> None:
    """Raise LoopError unless the kernel is the one before, but for values that GELUs compute in place of other ops:
    each is rounded to 16 bits wherever it goes, and is computed from its argument, as it was, at some numbers."""
    olds, news = nests_of(before), nests_of(after)
    if len(olds) != len(news) or with_nests(after, olds) != before:
        raise LoopError("the kernel is another one")
    for old, new in zip(olds, news, strict=True):
        if replace(new, body=old.body) != old:
            raise LoopError(f"{new.name} is another nest")
        _verify_body(old, new)
    verify_coarse(after)


def _verify_body(old: LoopNest, new: LoopNest) -> None:
    """What is left of the statements stands in its order, once, and everything that does something is left."""
    known = {s.out: s for s in old.body if isinstance(s, Compute)}
    left = list(old.body)
    defined: set[str] = set()
    for s in new.body:
        missing = [a for a in args_of(s) if isinstance(a, str) and a not in defined]
        if missing:
            raise LoopError(f"{new.name} uses {missing[0]}, which nothing computes any more")
        was = s
        if not any(is_same(s, o) for o in old.body):
            _verify_gelu(new.name, s, known)
            was = known[out_of(s) or ""]
        if was not in left:
            raise LoopError(f"{new.name} does at another place, or twice: {stmt_text(s)}")
        dropped, left = left[: left.index(was)], left[left.index(was) + 1 :]
        _verify_dropped(new.name, dropped)
        defined.add(out_of(s) or "")
    _verify_dropped(new.name, left)


def _verify_dropped(nest: str, dropped: Sequence[Stmt]) -> None:
    if lost := [s for s in dropped if isinstance(s, (Store, Check, Assert, Reduce))]:
        raise LoopError(f"{nest} does no more: {stmt_text(lost[0])}")


def _verify_gelu(nest: str, s: Stmt, known: Mapping[str, Compute]) -> None:
    meaning = _DEFINITIONS.get(s.op) if isinstance(s, Compute) else None
    if meaning is None or not isinstance(s, Compute) or not isinstance(s.args[0], str) or s.out not in known:
        raise LoopError(f"{nest} has computed nothing like: {stmt_text(s)}")
    if len(s.args) != 1 or {s.dtype, known[s.out].dtype} != {DType.F32}:
        raise LoopError(f"{nest} computes a GELU of one f32 number otherwise: {stmt_text(s)}")
    for x in _SAMPLES:
        was = _value(s.out, s.args[0], x, known)
        if was is None or abs(was - meaning(x)) > _OFF * max(1.0, abs(x)):
            raise LoopError(f"{nest}: {stmt_text(s)} is {meaning(x)!r} of {x}, and was {was}")


def _value(arg: Arg, argument: str, x: float, known: Mapping[str, Compute]) -> float | None:
    """What a value was where `argument` is x; None where it depends on anything else."""
    if isinstance(arg, Lit):
        return float(arg.value)
    if arg == argument:
        return x
    s = known.get(arg)
    if s is None or s.op not in _OPS or s.dtype is not DType.F32:
        return None
    args = [_value(a, argument, x, known) for a in s.args]
    return None if None in args else _OPS[s.op](*args)


FUSE_GELU = KernelPass("gelu", _run, verify_gelus)
"""The ops of a GELU become one, where its result is rounded to 16 bits anyway."""
