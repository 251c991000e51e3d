"""Conditions on sizes that torch noted and that say, most of the time, nothing of the program: that a size is not 1,
how products of sizes compare. torch asks so to sort strides and to tell broadcasts; but what a model asks of a tensor
may rest on them, too. conditions.py leaves them out, except where a run at a size that fails one is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy
from torch.export import ExportedProgram
from torch.utils._sympy import functions as sf

from hardtack.exporter.capture.conditions import asked_by_user, shape_env
from hardtack.exporter.capture.small.sizes import Decision, Trial
from hardtack.exporter.origin import asked_line
from hardtack.exporter.sizes.shapes import NO_NUMBER

_SIZES = (3, 2, 5, 4, 7, 16, 1, 0)
"""Tried in this order, one symbol at a time: first those that torch did not look at by itself."""
_MOST = 2
"""Sizes tried of each condition."""


def guard_decisions(ep: ExportedProgram) -> Iterator[Decision]:
    """Each condition that is left out, with sizes that fail it."""
    env = shape_env(ep)
    seen: set[sympy.Basic] = set()
    for found in env.guards if env is not None else ():
        expr = env.replace(found.expr)
        if expr in seen or isinstance(expr, sympy.Eq) or asked_by_user(found.sloc) or not _is_left_out(expr):
            continue
        seen.add(expr)
        fails = tuple(_failing(env, expr))
        if fails:
            yield Decision(expr, asked_line(found.sloc), fails, asked=False)


def _is_left_out(expr: sympy.Basic) -> bool:
    """True, too, for conditions on numbers that floating point makes of sizes."""
    plain = all(isinstance(f, _WHOLE) for f in expr.atoms(sympy.Function))
    return isinstance(expr, sympy.Ne) or not plain or any(_multiplies(e) for e in sympy.preorder_traversal(expr))


_WHOLE = (sf.FloorDiv, sf.CleanDiv, sf.Mod, sf.PythonMod, sf.Max, sf.Min)


def _multiplies(e: sympy.Basic) -> bool:
    if isinstance(e, sympy.Pow):
        return bool(e.free_symbols)
    return isinstance(e, sympy.Mul) and sum(bool(a.free_symbols) for a in e.args) > 1


def _failing(env: Any, expr: sympy.Basic) -> list[Trial]:
    """Sizes that fail it, of one symbol each, the others as in the example."""
    examples = env.backed_var_to_val
    found: list[Trial] = []
    for symbol in sorted(expr.free_symbols, key=str):
        for size in _SIZES:
            try:
                holds = expr.xreplace({**examples, symbol: sympy.Integer(size)})
            except NO_NUMBER:
                continue
            if holds in (False, sympy.false):
                found.append(((str(symbol), size),))
    return sorted(found, key=lambda trial: _SIZES.index(trial[0][1]))[:_MOST]
