"""The rules of values: what each statement of a nest takes and gives, and the axes that it may name.

A mask and what is asserted are bools, an index that is checked is an i64, and what stands for a masked element has the
buffer's dtype: renderers convert nothing on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hardtack.codegen.ir.loops import Arg, Assert, Axis, Check, Load, LoopError, Reduce, Stmt, Store
from hardtack.codegen.ir.nest_text import stmt_text
from hardtack.codegen.ir.types import DType

MODES = frozenset({"set", "add", "mul", "max", "min"})
"""Of stores."""
_LOGICAL = frozenset({"any", "all"})
_PLACES = frozenset({"argmax", "argmin"})
_REDUCTIONS = frozenset({"sum", "prod", "max", "min"}) | _LOGICAL | _PLACES

Types = Mapping[str, DType]
"""The dtypes of the values that are defined so far."""


def verify_axes(axes: Sequence[Axis]) -> None:
    """Raise LoopError where an axis stands twice, or has another length than its symbol says."""
    names: set[str] = set()
    for a in axes:
        if a.sym.name in names:
            raise LoopError(f"the axis {a.sym.name} stands twice")
        names.add(a.sym.name)
        if a.kind not in ("parallel", "reduce"):
            raise LoopError(f"the axis {a.sym.name} is of the kind {a.kind}")
        if a.sym.extent is not a.extent:
            raise LoopError(f"the axis {a.sym.name} has {a.extent} points, and its symbol {a.sym.extent}")


def verify_values(s: Stmt, types: Types, dtype: DType | None, axes: Sequence[Axis]) -> None:
    """Raise LoopError where a statement takes or gives what it does not take or give. dtype: of the buffer of a load or
    store."""
    rule = _RULES.get(type(s))
    why = None if rule is None else rule(s, types, dtype, axes)
    if why is not None:
        raise LoopError(f"{why} in: {stmt_text(s)}")


def _of(a: Arg, types: Types) -> DType:
    return types[a] if isinstance(a, str) else a.dtype


def _why_no_load(s: Load, types: Types, dtype: DType | None, axes: Sequence[Axis]) -> str | None:
    if s.mask is not None and types[s.mask] is not DType.BOOL:
        return f"a mask of {types[s.mask]}"
    if s.other is not None and s.other.dtype is not dtype:
        return f"{s.other} for an element of {dtype}"
    return None


def _why_no_check(s: Check, types: Types, dtype: DType | None, axes: Sequence[Axis]) -> str | None:
    given = _of(s.arg, types)
    return None if given is DType.I64 else f"an index of {given}"


def _why_no_assert(s: Assert, types: Types, dtype: DType | None, axes: Sequence[Axis]) -> str | None:
    given = _of(s.arg, types)
    return None if given is DType.BOOL else f"a condition of {given}"


def _why_no_store(s: Store, types: Types, dtype: DType | None, axes: Sequence[Axis]) -> str | None:
    return None if s.mode in MODES else f"the unknown mode {s.mode}"


def _why_no_reduce(s: Reduce, types: Types, dtype: DType | None, axes: Sequence[Axis]) -> str | None:
    if s.kind not in _REDUCTIONS:
        return f"the unknown reduction {s.kind}"
    if all(a.kind != "reduce" for a in axes):
        return "a reduction without an axis"
    given = [_of(a, types) for a in s.args]
    if s.kind in _PLACES:
        right = len(given) == 2 and given[1] is DType.I64 is s.dtype
    else:
        right = given == [s.dtype] and (s.kind not in _LOGICAL or s.dtype is DType.BOOL)
    return None if right else f"a {s.kind} of {', '.join(map(str, given))} as {s.dtype}"


_RULES: dict[type, Callable[..., str | None]] = {
    Load: _why_no_load,
    Check: _why_no_check,
    Assert: _why_no_assert,
    Store: _why_no_store,
    Reduce: _why_no_reduce,
}
