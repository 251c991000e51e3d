"""The rule of bounds: no access leaves its buffer.

What is known of sizes here does not prove that of every right access: guards among sizes may be its reason, which
readers of the plan take into account where they prove all accesses once more. So an access is refused where it is known
to leave: at a corner of the axes, whatever the sizes are, or where all sizes are numbers at some point. What has a mask
is not made where it would leave.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

from hardtack.codegen.ir.expr import Expr, Sym, bounds, const, never_negative
from hardtack.codegen.ir.expr_walk import evaluate, free_syms, substitute
from hardtack.codegen.ir.loops import Axis, Buffer, Load, LoopError, LoopNest, Store
from hardtack.codegen.ir.nest_text import stmt_text
from hardtack.codegen.ir.reindex import within

SAMPLES = 48
"""Points at which an index without unknown sizes is computed."""
MOST_CORNERS = 16
"""Of the axes of one index: more are not looked at."""


def verify_bounds(nest: LoopNest, buffers: Mapping[str, Buffer]) -> None:
    """Raise LoopError where a load or store is known to leave its buffer."""
    if any(bounds(a.extent)[1] == 0 for a in nest.axes):
        return
    for s in nest.body:
        if not isinstance(s, Store) and not (isinstance(s, Load) and s.mask is None):
            continue
        for e, n in zip(s.index, buffers[s.buffer].shape, strict=True):
            if not (isinstance(e, Sym) and e.extent is n) and not within(e, n) and _leaves(e, n, nest.axes):
                raise LoopError(f"{e} leaves [0, {n}) in: {stmt_text(s)}")


def _leaves(e: Expr, n: Expr, axes: Sequence[Axis]) -> bool:
    """True if e is known not to lie in [0, n) at some point of the axes."""
    used = [a for a in axes if a.sym in free_syms(e)]
    if _beyond_at_corner(e, n, used):
        return True
    known = {a.sym for a in used}
    if not free_syms(n) <= known or free_syms(e) != known or any(free_syms(a.extent) for a in used):
        return False
    size = evaluate(n, {})
    return any(not 0 <= evaluate(e, values) < size for values in _points(used))


def _beyond_at_corner(e: Expr, n: Expr, used: Sequence[Axis]) -> bool:
    ends = ((const(0), a.extent - 1) for a in used)
    for corner in itertools.islice(itertools.product(*ends), MOST_CORNERS):
        at = substitute(e, dict(zip((a.sym for a in used), corner, strict=True)))
        if never_negative(at - n) or never_negative(-1 - at):
            return True
    return False


def _points(axes: Sequence[Axis]) -> Iterator[dict[str, int]]:
    chosen = random.Random(0)
    last = {a.sym.name: evaluate(a.extent, {}) - 1 for a in axes}
    for _ in range(SAMPLES):
        yield {name: chosen.randint(0, n) for name, n in last.items()}
