"""The rules of groups: nests run together compute what they computed alone, in an order that all of them can bear.

Each nest is the one that fusion was given, at points that number its points one to one (its sources say which), so that
each element is still stored once. What one member writes and another one touches is the same element at the same point:
of the template's result in an epilogue, of the outer axes in a loop group, whose points run side by side. And no nest,
in its group or across groups, runs before what it has to run behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.group import Group, conflicts, same_digit, to_text
from hardtack.codegen.ir.loops import Assert, Axis, Buffer, Check, LoopError, LoopNest, Reduce
from hardtack.codegen.ir.nest_verify import verify_nest
from hardtack.codegen.ir.nests import Nest, ReadNest, TemplateNest
from hardtack.codegen.ir.reindex import equal
from hardtack.codegen.ir.store_verify import apart


def verify_group(group: Group, buffers: Mapping[str, Buffer]) -> None:
    """Raise LoopError, with the group's text, where a group breaks the rules of the module's grammar."""
    try:
        for n in group.members():
            verify_nest(n, buffers)
        if group.prologue:
            _verify_prologue(group, buffers)
        if group.siblings:
            _verify_siblings(group, buffers)
        elif group.control is not None:
            if group.anchor is not None or group.nests:
                raise LoopError("a control group has one member")
        elif group.anchor is not None:
            _verify_epilogue(group, buffers)
        else:
            _verify_loops(group)
    except LoopError as e:
        raise LoopError(f"group {group.name}: {e}\n{to_text(group)}") from None


def _verify_epilogue(group: Group, buffers: Mapping[str, Buffer]) -> None:
    """Point for point: what a nest touches of the group's values is the element of its own point."""
    anchor = group.anchor
    assert anchor is not None
    if group.half is not None:
        _verify_halves(anchor, group.half)
    written: dict[str, list[Expr]] = {anchor.result: [*group.result_offsets()]}
    read: dict[str, list[Expr]] = {b: [] for b in (*anchor.reads(), *anchor.results)}
    for n in group.nests:
        if n.axes != group.walk:
            raise LoopError(f"the epilogue {n.name} walks other axes than the template")
        if n.serial or any(isinstance(s, (Reduce, Assert)) for s in n.body):
            raise LoopError(f"the epilogue {n.name} reduces, asserts, or must run in order")
        for load in n.loads():
            at = buffers[load.buffer].offset(load.index)
            if load.buffer in anchor.results:
                raise LoopError(f"the epilogue {n.name} reads {load.buffer}, which it is not given")
            if load.buffer in written and not any(equal(at, w) for w in written[load.buffer]):
                raise LoopError(f"the epilogue {n.name} reads {load.buffer} at another point than its own")
            read.setdefault(load.buffer, []).append(at)
        for s in n.stores():
            at = buffers[s.buffer].offset(s.index)
            if s.buffer in read and (not read[s.buffer] or not all(equal(at, r) for r in read[s.buffer])):
                raise LoopError(f"the epilogue {n.name} writes {s.buffer}, which other points read")
            written.setdefault(s.buffer, []).append(at)


def _verify_halves(anchor: TemplateNest, half: Axis) -> None:
    """The template takes them, and they are halves."""
    if not anchor.template.takes_halves(anchor):
        raise LoopError(f"the template {anchor.template.label} takes no halves")
    if half.kind != "parallel" or half.extent * 2 is not anchor.axes[-1].extent or half in anchor.axes:
        raise LoopError(f"{half.extent} columns are no half of {anchor.axes[-1].extent}")


def _verify_prologue(group: Group, buffers: Mapping[str, Buffer]) -> None:
    """Every nest walks the row or one point, each value is private and read where it was computed."""
    anchor = group.anchor
    if anchor is None or group.prologue[-1].writes() != {anchor.operands[0].buffer}:
        raise LoopError("the prologue does not end with the template's first operand")
    row = next(a for a in group.prologue[-1].axes)
    private = group.private()
    elsewhere = {o.buffer for o in anchor.operands[1:]}.union(*(n.reads() for n in group.nests))
    if private & elsewhere:
        raise LoopError("something besides the template's first operand is read from the prologue")
    written: dict[str, Expr] = {}
    for n in group.prologue:
        if n.serial or any(isinstance(s, (Assert, Check)) for s in n.body):
            raise LoopError(f"{n.name} of the prologue checks, asserts or must run in order")
        if [(a.sym, a.extent) for a in n.axes] not in ([], [(row.sym, row.extent)]):
            raise LoopError(f"{n.name} of the prologue walks other points than those of the row")
        for load in n.loads():
            there = written.get(load.buffer)
            if load.buffer in private and (there is None or there is not buffers[load.buffer].offset(load.index)):
                raise LoopError(f"{n.name} reads {load.buffer} at another point than the one just computed")
        for s in n.stores():
            if s.mode != "set" or s.buffer in written:
                raise LoopError(f"{n.name} updates {s.buffer} of the prologue")
            written[s.buffer] = buffers[s.buffer].offset(s.index)
    changed = sorted(group.writes() & group.reads_of_prologue())
    if changed:
        raise LoopError(f"the prologue reads {changed[0]}, which other programs of the kernel write")


def _verify_siblings(group: Group, buffers: Mapping[str, Buffer]) -> None:
    """Each is a loop group by itself, and none touches what another one writes."""
    if (
        group.nests
        or group.anchor is not None
        or group.control is not None
        or group.prologue
        or len(group.siblings) < 2
    ):
        raise LoopError("a group of siblings has two or more and nothing else")
    for k, g in enumerate(group.siblings):
        if g.siblings or g.anchor is not None or g.control is not None:
            raise LoopError(f"the sibling {g.name} is no loop group")
        verify_group(g, buffers)
        for other in group.siblings[:k]:
            shared = sorted(conflicts(g, other))
            if shared:
                raise LoopError(f"the siblings {other.name} and {g.name} share {shared[0]}, which is written")


def _verify_loops(group: Group) -> None:
    """Every nest starts with the outer axes; of a buffer that a nest writes, the group's nests touch at an outer point
    only what is written there."""
    written: dict[str, list[tuple[Expr, ...]]] = {}
    read: dict[str, list[tuple[Expr, ...]]] = {}
    for n in group.nests:
        if n.axes[: len(group.outer)] != group.outer:
            raise LoopError(f"{n.name} does not start with the outer axes")
        if n.serial and len(group.nests) > 1:
            raise LoopError(f"{n.name} must run in order and is not alone")
        for load in n.loads():
            _verify_same_point(group, f"{n.name} reads {load.buffer}", written.get(load.buffer, ()), load.index)
        for store in n.stores():
            before = (*read.get(store.buffer, ()), *written.get(store.buffer, ()))
            _verify_same_point(group, f"{n.name} writes {store.buffer}", before, store.index)
        for load in n.loads():
            read.setdefault(load.buffer, []).append(load.index)
        for store in n.stores():
            written.setdefault(store.buffer, []).append(store.index)


def _verify_same_point(group: Group, what: str, before: Iterable[tuple[Expr, ...]], index: tuple[Expr, ...]) -> None:
    """Where an index is one of those of `before`, the outer axes are at one point."""
    for other in before:
        for axis in group.outer:
            if not any(same_digit(i, j, axis.sym) for i, j in zip(other, index, strict=True)):
                raise LoopError(f"{what} across the outer axis {axis.sym.name}")


def verify_grouping(nests: Sequence[Nest], groups: Sequence[Group], aliases: Mapping[str, str]) -> None:
    """Raise LoopError unless the groups compute the nests, each once, and none before another that it depends on.

    aliases: buffers that share the memory of another one, whose name stands for both.
    """
    at: dict[int, list[tuple[int, int]]] = {}
    number = {id(n): k for k, n in enumerate(nests)}
    for g, group in enumerate(groups):
        prologue = {id(n) for n in group.prologue}
        for k, n in enumerate(group.members()):
            for was in _made_of(n):
                if id(was) not in number:
                    raise LoopError(f"group {group.name} computes {n.name}, which nothing asked for")
                if at.get(number[id(was)]) and id(n) not in prologue:
                    raise LoopError(f"group {group.name} computes {n.name} once more")
                at.setdefault(number[id(was)], []).append((g, k))
    for k, n in enumerate(nests):
        if k not in at:
            raise LoopError(f"no group computes {n.name}")
    _verify_dependences(nests, at, aliases)
    _verify_reads(nests, at)


def _made_of(n: Nest) -> tuple[Nest, ...]:
    return tuple(s.nest for s in n.sources) if isinstance(n, LoopNest) and n.sources else (n,)


def _verify_dependences(
    nests: Sequence[Nest], at: Mapping[int, Sequence[tuple[int, int]]], aliases: Mapping[str, str]
) -> None:
    """Of two nests that touch one buffer, which at least one of them writes, the first is still first."""
    touched: dict[str, list[tuple[int, bool]]] = {}
    for k, n in enumerate(nests):
        reads, writes = ({aliases.get(b, b) for b in x} for x in (n.reads(), n.writes()))
        for b in sorted(reads | writes):
            for other, wrote in touched.get(b, ()):
                if (wrote or b in writes) and not _ordered(at[other], at[k]) and not _apart(nests[other], n, b):
                    raise LoopError(f"{n.name} runs before {nests[other].name}, and both touch {b}")
            touched.setdefault(b, []).append((k, b in writes))


def _verify_reads(nests: Sequence[Nest], at: Mapping[int, Sequence[tuple[int, int]]]) -> None:
    """What stands behind a read may depend on its symbol, and is still behind it."""
    for k, n in enumerate(nests):
        if not isinstance(n, ReadNest):
            continue
        for later in range(k + 1, len(nests)):
            if min(at[later]) < max(at[k]):
                raise LoopError(f"{nests[later].name} runs before {n.name}, and stood behind it")


def _ordered(first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]]) -> bool:
    """True if `first` has been computed wherever `second` is: before all of them, or, where several groups compute it
    for themselves, in each of them."""
    if len(first) > 1:
        return all(any(p[0] == q[0] and p < q for p in first) for q in second)
    return max(first) < min(second)


def _apart(first: Nest, second: Nest, buffer: str) -> bool:
    """True if the two set parts of the buffer that have nothing in common, and read nothing of it."""
    if not isinstance(first, LoopNest) or not isinstance(second, LoopNest):
        return False
    if any(n.serial or buffer in n.reads() for n in (first, second)):
        return False
    a, b = ([s.index for s in n.stores() if s.buffer == buffer] for n in (first, second))
    return all(apart(x, y) for x in a for y in b)
