"""The rule of bounds: no access leaves its buffer.

What is known of sizes here does not prove that of every right access: guards among sizes may be its reason, which
readers of the plan take into account where they prove all accesses once more. So an access is refused where it is known
to leave: at a corner of the axes, whatever the sizes are, or where all sizes are numbers at some point, and its mask
lets it.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from hardtack.codegen.ir.expr import Expr, Sym, bounds, const, never_negative
from hardtack.codegen.ir.expr_walk import evaluate, free_syms, substitute
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.loops import Arg, Axis, Buffer, Compute, Index, Load, LoopError, LoopNest, Stmt, Store, out_of
from hardtack.codegen.ir.nest_text import stmt_text
from hardtack.codegen.ir.reindex import within

SAMPLES = 48
"""Points at which an index without unknown sizes is computed."""
MOST_CORNERS = 16
"""Of the axes of one index: more are not looked at."""
_OPS: dict[str, Callable[..., int]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": operator.and_,
    "or": operator.or_,
}
"""What masks are made of."""


def verify_bounds(nest: LoopNest, buffers: Mapping[str, Buffer]) -> None:
    """Raise LoopError where a load or store is known to leave its buffer."""
    if any(bounds(a.extent)[1] == 0 for a in nest.axes):
        return
    for s in nest.body:
        if isinstance(s, (Load, Store)):
            for e, n in zip(s.index, buffers[s.buffer].shape, strict=True):
                if not (isinstance(e, Sym) and e.extent is n) and not within(e, n) and _leaves(s, e, n, nest):
                    raise LoopError(f"{e} leaves [0, {n}) in: {stmt_text(s)}")


def _leaves(s: Load | Store, e: Expr, n: Expr, nest: LoopNest) -> bool:
    """True if e, an index of the statement, is known not to lie in [0, n) at some point where the access is made."""
    mask = s.mask if isinstance(s, Load) else None
    if mask is None:
        used = tuple(a for a in nest.axes if a.sym in free_syms(e))
        return _beyond_at_corner(e, n, used) or bool(_points_beyond(e, n, used))
    points = _points_beyond(e, n, nest.axes)
    values = {str(out_of(x)): x for x in nest.body} if points else {}
    return any(_value(mask, values, p) for p in points)


def _beyond_at_corner(e: Expr, n: Expr, used: Sequence[Axis]) -> bool:
    ends = ((const(0), a.extent - 1) for a in used)
    for corner in itertools.islice(itertools.product(*ends), MOST_CORNERS):
        at = substitute(e, dict(zip((a.sym for a in used), corner, strict=True)))
        if never_negative(at - n) or never_negative(-1 - at):
            return True
    return False


@cache
def _points_beyond(e: Expr, n: Expr, axes: tuple[Axis, ...]) -> tuple[Mapping[str, int], ...]:
    """Points of the axes, of those that are tried, at which e does not lie in [0, n); none where a size is unknown."""
    known = {a.sym for a in axes}
    if not free_syms(n) <= known or not free_syms(e) <= known or any(free_syms(a.extent) for a in axes):
        return ()
    chosen = random.Random(0)
    last = {a.sym.name: evaluate(a.extent, {}) - 1 for a in axes}
    points = [{name: chosen.randint(0, k) for name, k in last.items()} for _ in range(SAMPLES)]
    points += [dict.fromkeys(last, 0), last]
    return tuple(p for p in points if not 0 <= evaluate(e, p) < evaluate(n, p))


def _value(a: Arg, values: Mapping[str, Stmt], at: Mapping[str, int]) -> int | None:
    """An integer or a condition at a point; None where it depends on what is not known there."""
    if isinstance(a, Lit):
        return int(a.value)
    s = values[a]
    if isinstance(s, Index):
        return evaluate(s.expr, at) if all(y.name in at for y in free_syms(s.expr)) else None
    if not isinstance(s, Compute) or s.op not in _OPS or any(isinstance(x, Lit) and x.dtype.is_float for x in s.args):
        return None
    args = [_value(x, values, at) for x in s.args]
    return None if None in args else int(_OPS[s.op](*args))
