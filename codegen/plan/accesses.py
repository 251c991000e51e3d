"""What a kernel accesses of each buffer, found from the nests and the template that it was made of.

The plan carries it (docs/plan.md, "Calls"), and readers prove that it lies inside the values and that what is read was
written. So a fill must be exact: an element that might not be written belongs to none. A touch may be too large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hardtack.codegen.ir.expr import (
    ONE,
    ZERO,
    Expr,
    FloorDiv,
    Sym,
    add,
    bounds,
    divide_exactly,
    largest,
    maximum,
    product,
    terms_of,
)
from hardtack.codegen.ir.expr_walk import free_syms, split_linear
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Buffer, Load, LoopNest, Store
from hardtack.codegen.ir.nests import Nest, TemplateNest
from hardtack.codegen.ir.plan import Access, span
from hardtack.codegen.ir.reindex import equal


def accesses_of(group: Group, buffers: Mapping[str, Buffer], memory: Sequence[str]) -> tuple[tuple[Access, ...], ...]:
    """What the group's kernel does to each buffer of `memory`. The group has been verified."""
    found: dict[str, dict[Access, None]] = {b: {} for b in memory}
    for nest in group.members():
        for name, access in _of_nest(nest, buffers):
            empty = buffers[name].numel() is ZERO or ZERO in access.shape
            if name in found and not empty:  # of a product over no batch: as of one over some
                found[name][access] = None
    return tuple(_shortened(buffers[b], tuple(found[b])) for b in memory)


Accesses = tuple[tuple[Access, ...], ...]


def tighter(a: Accesses, b: Accesses) -> Accesses:
    """What a kernel accesses, of what two launches with the same ints were given: what holds of one holds of both.

    Raises ValueError where neither is known to lie inside the other.
    """
    return tuple(_tighter_of_buffer(one, other) for one, other in zip(a, b, strict=True))


def _tighter_of_buffer(a: tuple[Access, ...], b: tuple[Access, ...]) -> tuple[Access, ...]:
    """Nothing, where one of both buffers has no elements: the kernel then touches none of the other, either."""
    if not (a and b) and not any(x.fills for x in (*a, *b)):
        return ()
    if len(a) != len(b):
        raise ValueError(f"one kernel and the same ints, but other accesses: {a} and {b}")
    return tuple(_tighter(x, y) for x, y in zip(a, b, strict=True))


def _tighter(x: Access, y: Access) -> Access:
    if x == y or _flat(x) == _flat(y):
        return x
    if not (x.fills or y.fills):
        for one, other in ((x, y), (y, x)):
            least = bounds(_last(other) - _last(one))[0]
            if one.offset is other.offset and least is not None and least >= 0:
                return one
    raise ValueError(f"one kernel and the same ints, but other accesses: {x} and {y}")


def _flat(a: Access) -> Access:
    """The same elements in as few dimensions as there can be: those whose rows follow each other without a gap are one,
    as of a whole buffer, of as many rows of a longer one, or of every second element. Dimensions of one element, whose
    strides say nothing, are left out.
    """
    joined: list[tuple[Expr, Expr]] = []  # size and stride, from the innermost on
    for n, stride in zip(reversed(a.shape), reversed(a.strides), strict=True):
        if n is ONE:
            continue
        if joined and stride is joined[-1][0] * joined[-1][1]:
            joined[-1] = (n * joined[-1][0], joined[-1][1])
        else:
            joined.append((n, stride))
    joined.reverse()
    return Access(a.fills, a.offset, tuple(n for n, _ in joined), tuple(stride for _, stride in joined))


def _last(a: Access) -> Expr:
    """The last element of a box whose strides are not negative."""
    return add(a.offset, *((n - 1) * stride for n, stride in zip(a.shape, a.strides, strict=True)))


def _shortened(buffer: Buffer, accesses: tuple[Access, ...]) -> tuple[Access, ...]:
    """Without touches of what another touch has whole: of a buffer, or of a part of a longer one."""
    fills = tuple(a for a in accesses if a.fills)
    if span(buffer.numel(), True) in fills:
        return (span(buffer.numel(), True),)
    touches = [a for a in accesses if not a.fills]
    for whole in [a for a in touches if _flat(a).strides in ((), (ONE,))]:
        if whole in touches:
            touches = [a for a in touches if a is whole or not _lies_in(a, whole)]
    return (*fills, *touches)


def _lies_in(a: Access, whole: Access) -> bool:
    """Whether a box is known to be in one without gaps."""
    ends = (a.offset - whole.offset, _last(whole) - _last(a))
    return all(lo is not None and lo >= 0 for lo, _ in map(bounds, ends))


def _of_nest(nest: Nest, buffers: Mapping[str, Buffer]) -> Iterator[tuple[str, Access]]:
    if isinstance(nest, TemplateNest):
        for o in nest.operands:
            yield o.buffer, Access(False, o.offset, o.shape, o.strides)
        changed = nest.template.changed(nest)
        yield nest.result, span(product(a.extent for a in nest.axes), nest.result not in changed)
        for name in nest.results:  # each template writes its further results as a whole, too
            yield name, span(buffers[name].numel(), name not in changed)
    elif isinstance(nest, LoopNest):
        for s in nest.body:
            if isinstance(s, Load):
                yield s.buffer, _touched(s, buffers[s.buffer])
            elif isinstance(s, Store):
                yield s.buffer, _filled(nest, s, buffers[s.buffer]) or _touched(s, buffers[s.buffer])


def _touched(s: Load | Store, buffer: Buffer) -> Access:
    """A box that has each element: up to the largest index where it is known, else all of a dimension.

    Not wider than need be: the same kernel may be launched on a part of one buffer and on the whole of another.
    """
    passed = not isinstance(s, Load) or s.mask is None
    sizes = [_end(e, n) or (_passed(e) if passed else None) or n for e, n in zip(s.index, buffer.shape, strict=True)]
    return _box(False, buffer, [ZERO] * len(sizes), sizes)


def _passed(e: Expr) -> Expr | None:
    """The extent of an axis that is an index by itself: each of its places is accessed, for what guards say of sizes
    where nothing else is known to.
    """
    if not isinstance(e, Sym) or e.extent is None or any(y.extent is not None for y in free_syms(e.extent)):
        return None
    least = bounds(e.extent)[0]
    return e.extent if least is not None and least >= 0 else maximum(e.extent, ZERO)


def _end(e: Expr, size: Expr) -> Expr | None:
    """One more than the largest value of an index, if that is known not to pass the size of the dimension."""
    for digits in (False, True):
        top = _top(e, digits)
        if top is None or any(y.extent is not None for y in free_syms(top)):
            continue
        end, left = top + 1, bounds(size - top - 1)[0]
        if left is not None and left >= 0:
            least = bounds(end)[0]
            return end if least is not None and least >= 0 else maximum(end, ZERO)
    return None


def _top(e: Expr, digits: bool) -> Expr | None:
    """An upper bound of an index, one of its digits, or a quotient: e.a < k * b means e.a // b < k."""
    if not isinstance(e, FloorDiv):
        return largest(e, digits)
    least, top = bounds(e.b)[0], _top(e.a, digits)
    if top is None or least is None or least < 1:
        return None
    exact = divide_exactly(top + 1, e.b)
    return top // e.b if exact is None else exact - 1


def _filled(nest: LoopNest, s: Store, buffer: Buffer) -> Access | None:
    """The box of which a store writes each element; None where that is not known."""
    if nest.serial or s.mode != "set":
        return None
    reduced = {a.sym for a in nest.reduced}
    each = any(free_syms(e) & reduced for e in s.index)
    axes = {a.sym: a.extent for a in (nest.axes if each else nest.parallel)}
    if any(y not in axes and y.extent is not None for e in s.index for y in free_syms(e)):
        return None  # an index that data decides
    lows, sizes = [], []
    for e, n in zip(s.index, buffer.shape, strict=True):
        low, size = _range(e, axes) or (ZERO, n)
        lows.append(low)
        sizes.append(size)
    # as many points as elements, no element twice, none outside: all of them
    if equal(product(axes.values()), product(sizes)):
        return _box(True, buffer, lows, sizes)
    return _spread(s, axes, buffer)


def _range(e: Expr, axes: Mapping[Sym, Expr]) -> tuple[Expr, Expr] | None:
    """The least value and the number of values up to the largest, where e is linear in the axes, or a digit of one."""
    low, high = e, e
    for axis in sorted(free_syms(e) & axes.keys(), key=lambda y: y.name):
        below, above = split_linear(low, axis), split_linear(high, axis)
        if below is None or above is None or free_syms(below[0]) & axes.keys():
            return _digits(e, axes)
        least, most = bounds(below[0])
        if least is not None and least >= 0:
            low, high = below[1], add(above[1], above[0] * (axes[axis] - 1))
        elif most is not None and most <= 0:
            low, high = add(below[1], below[0] * (axes[axis] - 1)), above[1]
        else:
            return None
    return low, high - low + 1


def _digits(e: Expr, axes: Mapping[Sym, Expr]) -> tuple[Expr, Expr] | None:
    """The same where e is a term without axes and others that are never negative: (i // 12) % 8 + 16 has 16 to 23."""
    low = add(*(t for t in terms_of(e) if not free_syms(t) & axes.keys()))
    varying = e - low
    least = bounds(varying)[0]
    if least is None or least < 0:
        return None
    tops = (_top(varying, digits) for digits in (True, False))
    top = next((t for t in tops if t is not None and not free_syms(t) & axes.keys()), None)
    return None if top is None else (low, top + 1)


def _spread(s: Store, axes: Mapping[Sym, Expr], buffer: Buffer) -> Access | None:
    """A box with gaps: the offset is linear in the axes, each of which is one dimension of it."""
    offset = buffer.offset(s.index)
    strides: list[Expr] = []
    for axis in axes:
        parts = split_linear(offset, axis)
        if parts is None or free_syms(parts[0]) & axes.keys():
            return None
        strides.append(parts[0])
        offset = parts[1]
    return Access(True, offset, tuple(axes.values()), tuple(strides))


def _box(fills: bool, buffer: Buffer, lows: Sequence[Expr], sizes: Sequence[Expr]) -> Access:
    if all(a is b for a, b in zip(sizes, buffer.shape, strict=True)):
        return span(buffer.numel(), fills)
    return Access(fills, buffer.offset(tuple(lows)), tuple(sizes), buffer.strides())
