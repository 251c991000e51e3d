"""Inlining: a pointwise producer is computed inside its readers instead of being stored.

Legality and profit are separate. Legal: the producer writes each element once, from that element's index alone.
Profitable: it has one reader that needs each element once, or it is so cheap that computing it again costs less than a
load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hardtack.codegen.ir.expr import Const, Expr, Sym, maximum, sym
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.loops import (
    Arg,
    Assert,
    Buffer,
    Check,
    Compute,
    Index,
    Load,
    LoopNest,
    Reduce,
    Stmt,
    Store,
    args_of,
    exact,
    map_stmt,
    out_of,
)
from hardtack.codegen.ir.nests import Nest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.ops import INT_DIVISIONS, SCALAR_OPS
from hardtack.codegen.passes.passes import Buffers, Context, Decisions, NestPass, Scope
from hardtack.codegen.schedule.fusion_limits import LARGEST_BODY

NO_BUFFERS: Mapping[str, str] = {}
CHEAP = 3
"""Instructions an element that may be computed again for each reader."""


def inline(
    nests: Sequence[Nest],
    buffers: Mapping[str, Buffer],
    kept: frozenset[str],
    largest_body: int = LARGEST_BODY,
    in_place: Mapping[str, str] = NO_BUFFERS,
) -> tuple[tuple[Nest, ...], tuple[Decision, ...]]:
    """All nests with producers inlined where that is legal and pays. `kept`: buffers that must be stored anyway;
    `largest_body`: statements after which a nest takes no more producers but copies; in_place: as Scope has it.
    """
    work: list[Nest | None] = list(nests)
    reads = [n.reads() for n in nests]
    decisions: list[Decision] = []
    writers = writers_of(nests)
    for at, producer in enumerate(nests):
        current = work[at]
        if not isinstance(current, LoopNest) or not current.writes():
            continue
        (target, *_) = sorted(current.writes())
        readers = [i for i in range(at + 1, len(work)) if work[i] is not None and target in reads[i]]
        if not readers:
            continue
        why_not = why_illegal(current, buffers) or (
            "its buffer has other writers" if len(writers[target]) > 1 else None
        )
        why_not = why_not or why_too_late(current, at, readers[-1], writers, in_place)
        loops = [i for i in readers if isinstance(work[i], LoopNest) and not _updates(work[i], target)]
        stored_anyway = target in kept or len(loops) < len(readers)
        why_not = why_not or _why_unprofitable(current, [work[i] for i in loops], target, stored_anyway, largest_body)
        partner = ", ".join(n.name for i in loops if (n := work[i]) is not None)
        if why_not is not None:
            decisions.append(Decision("inline", producer.name, partner, False, why_not))
            continue
        for i in loops:
            consumer = work[i]
            assert isinstance(consumer, LoopNest)
            work[i] = joined = inline_into(consumer, current, target)
            reads[i] = joined.reads()
        decisions.append(Decision("inline", producer.name, partner, True, "computed where it is used"))
        if not stored_anyway:
            work[at] = None
    return tuple(n for n in work if n is not None), tuple(decisions)


def writers_of(nests: Sequence[Nest]) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for i, n in enumerate(nests):
        for name in n.writes():
            out.setdefault(name, []).append(i)
    return out


def why_too_late(
    producer: LoopNest, at: int, last: int, writers: Mapping[str, Sequence[int]], in_place: Mapping[str, str]
) -> str | None:
    """Why the nests up to the last reader can't read what the producer reads; None if they can."""
    for new, old in in_place.items():
        if old in producer.reads() and any(at < k <= last for k in writers[new]):
            return f"it reads {old}, whose memory {new} takes before its readers run"
    return None


def _updates(nest: Nest | None, buffer: str) -> bool:
    """True if the nest changes the buffer in place."""
    return isinstance(nest, LoopNest) and any(s.buffer == buffer and s.mode != "set" for s in nest.stores())


def why_illegal(nest: LoopNest, buffers: Mapping[str, Buffer]) -> str | None:
    """Why the nest can't be computed element by element elsewhere; None if it can."""
    if nest.serial:
        return "its points must run in order"
    if any(isinstance(s, (Reduce, Assert)) for s in nest.body):
        return "it reduces or asserts"
    stores = nest.stores()
    if len(stores) != 1 or stores[0].mode != "set":
        return "it stores more than once"
    shape = buffers[stores[0].buffer].shape
    seen: set[Expr] = set()
    for i, n in zip(stores[0].index, shape, strict=True):
        if isinstance(i, Sym) and i not in seen and i.extent is n:
            seen.add(i)
        elif not (isinstance(i, Const) and isinstance(n, Const) and n.value == 1):
            return "it writes a part of its buffer"
    return None if len(seen) == len(nest.axes) else "it writes an element more than once"


def cost(nest: LoopNest) -> int:
    """Rough instructions for one point, loads counted as one."""
    total = 0
    for s in nest.body:
        if isinstance(s, Compute):
            total += SCALAR_OPS[s.op].cost
        elif isinstance(s, (Load, Check)):
            total += 1
    return total


def _why_unprofitable(
    producer: LoopNest, readers: Sequence[Nest | None], buffer: str, stored_anyway: bool, largest_body: int
) -> str | None:
    loads = [(n, s) for n in readers if isinstance(n, LoopNest) for s in n.loads() if s.buffer == buffer]
    if not loads:
        return "only templates read it"
    n_loads = len(producer.loads())
    arithmetic = cost(producer) - n_loads
    if arithmetic == 0 and n_loads <= 1:
        return None
    if any(len(n.body) + len(producer.body) > largest_body for n, _ in loads):
        return f"a reader would pass {largest_body} statements"
    if stored_anyway:
        return None if cost(producer) <= 1 else "it is stored in any case"
    if arithmetic <= CHEAP and n_loads <= 1:
        return None
    if len(loads) > 1:
        return f"{len(loads)} readers and {cost(producer)} instructions an element"
    nest, load = loads[0]
    if repeats(nest, load):
        return f"its reader needs each element more than once, at {cost(producer)} instructions"
    return None


def repeats(nest: LoopNest, load: Load) -> bool:
    """True if the nest loads the same element at several of its points, as far as the index shows."""
    used = set().union(*(free_syms(e) for e in load.index)) if load.index else set()
    return any(a.sym not in used for a in nest.axes) or any(not _is_injective(e) for e in load.index)


def _is_injective(e: Expr) -> bool:
    """True if an index expression of one dimension mentions at most one axis (several overlap, as in windows)."""
    return len([s for s in free_syms(e) if s.extent is not None]) <= 1


def inline_into(consumer: LoopNest, producer: LoopNest, buffer: str) -> LoopNest:
    """The consumer with each load of `buffer` replaced by the producer's body at that index."""
    store = producer.stores()[0]
    body: list[Stmt] = []
    names: dict[str, Arg] = {}
    for s in consumer.body:
        if not (isinstance(s, Load) and s.buffer == buffer):
            body.append(map_stmt(s, names, {}))
            continue
        mask = names.get(s.mask, s.mask) if s.mask is not None else None
        assert mask is None or isinstance(mask, str)
        at = {i: e for i, e in zip(store.index, s.index, strict=True) if isinstance(i, Sym)}
        names[s.out] = _paste(body, producer, at, f"{s.out}.", mask, s)
    return tidy(replace(consumer, body=tuple(body)))


def _paste(
    body: list[Stmt], producer: LoopNest, at: Mapping[Sym, Expr], prefix: str, mask: str | None, load: Load
) -> Arg:
    """Append the producer's statements with its axes replaced; the argument that stands for its stored value."""
    names: dict[str, Arg] = {}
    syms: dict[Expr, Expr] = {axis: index for axis, index in at.items()}  # noqa: C416  (widens the key type)
    for s in producer.body:
        if isinstance(s, Store):
            value = names.get(s.value, s.value) if isinstance(s.value, str) else s.value
            # a load without a value for where its mask is false is not read there
            return value if mask is None or load.other is None else _masked(body, prefix, mask, value, load)
        out = out_of(s)
        assert out is not None
        names[out] = prefix + out
        pasted = map_stmt(s, names, syms)
        if mask is not None:
            pasted = _with_mask(body, pasted, mask)
        if isinstance(s, Check):
            assert isinstance(pasted, Check)
            syms[sym(s.out, extent=s.size)] = sym(pasted.out, extent=pasted.size)
        body.append(pasted)
    raise AssertionError("a producer without a store")


def _with_mask(body: list[Stmt], s: Stmt, mask: str) -> Stmt:
    """The statement as one that reads nothing and refuses nothing where the mask is false."""
    if isinstance(s, Load):
        return _masked_load(body, s, mask)
    if isinstance(s, Check):
        at = _where(body, f"{s.out}.at", mask, s.arg, Lit(0, DType.I64))
        return replace(s, arg=at, size=maximum(s.size, 1))
    if isinstance(s, Compute) and s.op in INT_DIVISIONS and s.dtype.is_int and isinstance(s.args[1], str):
        return replace(s, args=(s.args[0], _where(body, f"{s.out}.by", mask, s.args[1], Lit(1, s.dtype))))
    return s


def _where(body: list[Stmt], out: str, mask: str, value: Arg, other: Lit) -> str:
    body.append(Compute(out, "where", (mask, value, other), other.dtype))
    return out


def _masked_load(body: list[Stmt], load: Load, mask: str) -> Load:
    if load.mask is None:
        return replace(load, mask=mask, other=None)
    both = f"{load.out}.mask"
    body.append(Compute(both, "and", (mask, load.mask), DType.BOOL))
    return replace(load, mask=both)


def _masked(body: list[Stmt], prefix: str, mask: str, value: Arg, load: Load) -> Arg:
    assert load.other is not None
    return _where(body, f"{prefix}sel", mask, value, load.other)


def tidy(nest: LoopNest) -> LoopNest:
    """Equal statements merged, unused ones dropped, values renamed v0, v1, ... in order."""
    names: dict[str, Arg] = {}
    syms: dict[Expr, Expr] = {}
    seen: dict[object, str] = {}
    body: list[Stmt] = []
    for s in _live(nest.body):
        out = out_of(s)
        moved = map_stmt(s, names, syms)
        if out is None:
            body.append(moved)
            continue
        key = _key(moved)
        if key is None or key not in seen:
            new = f"v{len(body)}"
            names[out] = new
            moved = map_stmt(s, names, syms)
            body.append(moved)
            if key is not None:
                seen[key] = new
        else:
            names[out] = seen[key]
        if isinstance(s, Check):
            assert isinstance(moved, Check)
            target = names[out]
            assert isinstance(target, str)
            syms[sym(s.out, extent=s.size)] = sym(target, extent=moved.size)
    return replace(nest, body=tuple(body))


def _key(s: Stmt) -> object:
    """What makes two statements equal, their outs aside; None for those that are never merged."""
    if isinstance(s, Load):
        return ("load", s.buffer, s.index, s.mask, exact(s.other))
    if isinstance(s, Compute):
        return ("compute", s.op, tuple(exact(a) for a in s.args), s.dtype)
    if isinstance(s, Index):
        return ("index", s.expr)
    return ("check", s.arg, s.size) if isinstance(s, Check) else None


def _live(body: tuple[Stmt, ...]) -> list[Stmt]:
    """The statements that a store or an assertion needs; a Check is needed for its refusal, too."""
    needed: set[str] = set()
    kept: list[Stmt] = []
    for s in reversed(body):
        out = out_of(s)
        if out is not None and out not in needed and not isinstance(s, Check):
            continue
        kept.append(s)
        needed.update(a for a in args_of(s) if isinstance(a, str))
        if isinstance(s, (Load, Store, Index)):
            exprs = s.index if isinstance(s, (Load, Store)) else (s.expr,)
            needed.update(y.name for e in exprs for y in free_syms(e))
    kept.reverse()
    return kept


def _run(
    nests: tuple[Nest, ...], buffers: Buffers, scope: Scope, context: Context
) -> tuple[tuple[Nest, ...], Buffers, Decisions]:
    made, decisions = inline(nests, buffers, scope.kept, context.limits.largest_body, scope.in_place)
    return made, buffers, decisions


INLINE = NestPass("inline", _run)
"""Cheap producers are computed inside their readers: what has no kernel shortens every list that follows."""
