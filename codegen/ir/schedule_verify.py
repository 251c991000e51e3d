"""The rules of schedules: a loop tree computes the nests of its group, each access at the element that its nest meant.

What lives in scratch or in a register is a part of its buffer, seen from the kernel's outer point: at one outer point
all accesses are moved by the same distance, so that two meet there where they would have met in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hardtack.codegen.ir.expr import Expr, Sym, const, int_value, product
from hardtack.codegen.ir.expr_walk import free_syms, substitute
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Axis, Buffer, Load, LoopError, LoopNest, Source, Stmt, Store
from hardtack.codegen.ir.made_of import bodies, statements, verify_exprs, verify_walk
from hardtack.codegen.ir.nest_text import stmt_text
from hardtack.codegen.ir.nest_verify import verify_nest_of_kernel
from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.ir.reindex import equal, within
from hardtack.codegen.ir.schedule import Kernel, ScheduledNest, to_text_kernel


def verify_kernel(kernel: Kernel, group: Group | None, buffers: Mapping[str, Buffer]) -> None:
    """Raise LoopError, with the loop tree's text, where a kernel breaks the rules of its grammar or does not compute
    the group. group: None behind a pass on kernels, as in verify_tiled."""
    try:
        memory = {b for b, where in kernel.storage.items() if where.kind == "memory"}
        if {b.name for b in kernel.buffers} != memory or len(kernel.buffers) != len(memory):
            raise LoopError("the parameters are not the buffers in memory")
        for names, what in ((kernel.writes, "written"), (kernel.reads, "read")):
            if not names <= memory:
                raise LoopError(f"{min(names - memory)} is {what} outside, and not in memory")
        if kernel.anchor is not None:
            _verify_result(kernel, kernel.anchor)
        for p in kernel.prologue:
            _verify_accesses(kernel, p)
        for n in kernel.nests:
            _verify_axes(kernel, n)
            _verify_accesses(kernel, n.nest)
        _verify_registers(kernel)
        if group is None:
            for nest in (*kernel.prologue, *(n.nest for n in kernel.nests)):
                verify_nest_of_kernel(nest, buffers)
            return
        near = frozenset(b for b, where in kernel.storage.items() if where.kind != "memory")
        verify_tiles(kernel.prologue, group.prologue, buffers, near=near)
        verify_tiles([n.nest for n in kernel.nests], group.nests, buffers, kernel.outer, near)
    except LoopError as e:
        raise LoopError(f"kernel {kernel.name}: {e}\n{to_text_kernel(kernel)}") from None


def _verify_result(kernel: Kernel, anchor: TemplateNest) -> None:
    """The outer axes of a template's kernel number its result: the batch, the rows and the columns."""
    batch = anchor.template.batch_axes(anchor)
    parts = (anchor.axes[:batch], anchor.axes[batch:-1], anchor.axes[-1:])
    meant = [product(a.extent for a in part) for part in parts]
    if [a.extent for a in kernel.outer] != meant:
        raise LoopError(f"the outer axes are not the {', '.join(map(str, meant))} points of {anchor.name}")


def _verify_registers(kernel: Kernel) -> None:
    """A register is one element: all nests access it at one offset; a template's result, of halves, at two."""
    at: dict[str, Expr] = {}
    for s in (s for n in kernel.nests for s in n.nest.body if isinstance(s, (Load, Store))):
        if kernel.storage[s.buffer].kind != "register" or kernel.half_of(s) is not None:
            continue
        if at.setdefault(s.buffer, s.index[0]) is not s.index[0]:
            raise LoopError(f"the register {s.buffer} is accessed at {at[s.buffer]} and at {s.index[0]}")


def _verify_axes(kernel: Kernel, n: ScheduledNest) -> None:
    """Outer, serial, vector and reduce axes are together the nest's, each once and as long."""
    if n.nest.serial and not kernel.serial:
        raise LoopError(f"{n.nest.name} must run in order, and many workers run it")
    if kernel.flat:
        if n.serial or n.reduce or not kernel.outer or n.vector != kernel.walk[-1] or n.nest.axes != kernel.walk:
            raise LoopError(f"{n.nest.name} has loops of its own in a flat kernel")
        return
    lanes = () if n.vector is None else (n.vector,)
    loops = (*kernel.outer, *n.serial, *lanes, *n.reduce)
    if len(loops) != len(n.nest.axes) or set(loops) != set(n.nest.axes):
        raise LoopError(f"the loops of {n.nest.name} are not its axes")
    reduced = {*n.reduce, *(lanes if n.vector_reduces else ())}
    if reduced != set(n.nest.reduced):
        raise LoopError(f"the reduce loops of {n.nest.name} are not its reduce axes")


def _verify_accesses(kernel: Kernel, nest: LoopNest) -> None:
    empty = {a.sym for a in nest.axes if int_value(a.extent) == 0}
    nowhere = any(a.sym in empty for a in nest.parallel)
    for s in nest.body:
        if isinstance(s, (Load, Store)):
            _verify_access(kernel, s, nowhere or any(free_syms(e) & empty for e in s.index))


def _verify_access(kernel: Kernel, s: Load | Store, never: bool) -> None:
    """`never`: the access is in a loop without points."""
    where = kernel.storage.get(s.buffer)
    if where is None:
        raise LoopError(f"{s.buffer} has no storage")
    if len(s.index) != 1:
        raise LoopError(f"{s.buffer} is accessed by {len(s.index)} indices instead of one offset")
    if where.kind != "scratch" or never:
        return
    if where.numel is None:
        raise LoopError(f"the scratch {s.buffer} has no size")
    # a mask keeps an access within what its nest may read, wherever that is
    if not (isinstance(s, Load) and s.mask is not None) and not within(s.index[0], where.numel):
        raise LoopError(f"an offset into the scratch {s.buffer}, {s.index[0]}, may leave its {where.numel} elements")


def verify_tiles(
    nests: Sequence[LoopNest],
    members: Sequence[LoopNest],
    buffers: Mapping[str, Buffer],
    outer: Sequence[Axis] = (),
    near: frozenset[str] = frozenset(),
) -> None:
    """Raise LoopError unless the nests, whose accesses have one linear offset, compute the members of a group in their
    order, each once, and touch what these touch; members without points may be left out. near: buffers that are seen
    from the point of the axes `outer`, all accesses of one moved by one distance that depends on this point only."""
    made = [x.nest for n in nests for x in n.sources]
    members = [m for m in members if m in made or all(a.extent is not const(0) for a in m.axes)]
    if len(made) != len(members) or any(x is not m for x, m in zip(made, members, strict=True)):
        names = [", ".join(n.name for n in x) for x in (made, members)]
        raise LoopError(f"it computes {names[0] or 'nothing'} in place of {names[1] or 'nothing'}")
    moves: dict[str, Expr] = {b: const(0) for n in members for b in n.reads() | n.writes() if b not in near}
    at = {a.sym for a in outer}
    for n in nests:
        for source, body in bodies(n):
            verify_walk(n.axes, source)
            _verify_moved(body, source, buffers, at, moves)
        _verify_passed(n)


def _verify_moved(
    body: Sequence[Stmt], source: Source, buffers: Mapping[str, Buffer], outer: set[Sym], moves: dict[str, Expr]
) -> None:
    """The statements are the source's, and each access is moved as others of its buffer are."""
    for old, new, seen in statements(body, source):
        if isinstance(old, (Load, Store)) and isinstance(new, (Load, Store)):
            meant = seen(buffers[old.buffer].offset(old.index))
            _verify_move(old.buffer, meant - new.index[0], outer, moves, stmt_text(new))
        else:
            verify_exprs(old, new, seen)


def _verify_move(buffer: str, move: Expr, outer: set[Sym], moves: dict[str, Expr], what: str) -> None:
    inner = [s for s in free_syms(move) if s.extent is not None and s not in outer]
    distance = substitute(move, dict.fromkeys(inner, const(0)))
    if not equal(move, distance):
        raise LoopError(f"{what} is not where its nest meant, by {move}")
    if not equal(moves.setdefault(buffer, distance), distance):
        raise LoopError(f"{what} is moved by {distance}, and not by {moves[buffer]}")


def _verify_passed(nest: LoopNest) -> None:
    """Of a nest made of several: what an earlier one stores, a later one touches at the same point only."""
    written, read = dict[str, Expr](), dict[str, Expr]()
    for k, (_, body) in enumerate(bodies(nest)):
        accesses = [s for s in body if isinstance(s, (Load, Store))]
        for s in accesses if k else ():
            other = written.get(s.buffer, read.get(s.buffer) if isinstance(s, Store) else None)
            if other is not None and not equal(other, s.index[0]):
                raise LoopError(f"{stmt_text(s)} is at another point than what {nest.name} stores before it")
        for s in accesses:
            (written if isinstance(s, Store) else read)[s.buffer] = s.index[0]
