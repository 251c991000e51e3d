"""The next row, asked for while this one is computed.

A kernel that walks a row several times, such as a softmax or a norm, reads memory in its first walk only, writes it in
the last, and computes in those between. There, or in the last of two walks, the lines of the next row are asked for,
and those that the last walk will write, so that memory works all the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hardtack.codegen.backends.cpp.cpp_body import Place
from hardtack.codegen.backends.cpp.cpp_spelling import expr
from hardtack.codegen.ir.expr import ONE, Expr, Sym, add, bounds
from hardtack.codegen.ir.expr_walk import free_syms, split_linear, substitute
from hardtack.codegen.ir.loops import Load, Store
from hardtack.codegen.ir.schedule import Kernel, ScheduledNest

LEAST_NBYTES = 1 << 10
"""Of a row: shorter ones follow each other within a page, where the hardware's own prefetchers see them coming."""
MOST_NBYTES = 64 << 10
"""Of all rows that are asked for at once: a fraction of the second-level cache, which has this row as well."""


_Row = tuple[str, Expr, Sym]
"""A buffer, an offset in it, the symbol that walks it."""


def requests(kernel: Kernel, places: Mapping[str, Place], walk: int) -> list[str]:
    """Statements for each vector of a walk, the kernel's nest of that number: of what the first walk reads there at the
    next point, and of what the last one writes there at this point, if that is still to come.

    Behind the last row they name addresses behind a buffer, which is no access.
    """
    if not kernel.outer or walk != _asking_walk(kernel):
        return []
    read = _lines(kernel, places, walk, _rows_to_read(kernel))
    both = read | _lines(kernel, places, walk, _rows_to_write(kernel, walk))
    return next((list(lines) for lines in (both, read) if read and sum(lines.values()) <= MOST_NBYTES), [])


def _lines(kernel: Kernel, places: Mapping[str, Place], walk: int, rows: Iterable[_Row]) -> dict[str, int]:
    """A statement for each row that is in memory and not short, and how many bytes the row has at most."""
    lines: dict[str, int] = {}
    for buffer, offset, walked in rows:
        place = places[buffer]
        nbytes = _most_nbytes(kernel.nests[walk], place)
        if place.pointer and nbytes >= LEAST_NBYTES:
            at = substitute(offset, {walked: _vector(kernel.nests[walk])})
            lines[f"__builtin_prefetch({place.pointer} + {expr(at)});"] = nbytes
    return lines


def _asking_walk(kernel: Kernel) -> int | None:
    """The last but one of the walks behind the first, which computes most; the last one where there is no other. None
    where the first and the last do not both walk rows of one length."""
    first, last = kernel.nests[0], kernel.nests[-1]
    if not _walks_rows(first) or not _walks_rows(last):
        return None
    extent = _vector(first).extent
    walks = [k for k, n in enumerate(kernel.nests) if k and _walks_rows(n) and _vector(n).extent is extent]
    return None if not walks or walks[-1] != len(kernel.nests) - 1 else walks[-2:][0]


def _rows_to_read(kernel: Kernel) -> Iterator[_Row]:
    """What the first walk loads, at the next point of the outer axis."""
    point, walked = kernel.outer[-1].sym, _vector(kernel.nests[0])
    for s in kernel.nests[0].nest.body:
        if isinstance(s, Load) and s.mask is None and s.buffer not in kernel.writes:
            (offset,) = s.index
            across = split_linear(offset, point)
            if across is not None and point in free_syms(offset) and _is_row(kernel, offset, walked):
                yield s.buffer, add(offset, across[0]), walked


def _rows_to_write(kernel: Kernel, walk: int) -> Iterator[_Row]:
    """What the last walk stores, unless that is the walk that asks."""
    last = kernel.nests[-1]
    if last is kernel.nests[walk]:
        return
    for s in last.nest.body:
        if isinstance(s, Store) and s.mode == "set" and s.buffer in kernel.writes:
            (offset,) = s.index
            if _is_row(kernel, offset, _vector(last)):
                yield s.buffer, offset, _vector(last)


def _is_row(kernel: Kernel, offset: Expr, walked: Sym) -> bool:
    """True if what is walked is contiguous, and its place known in front of the walk."""
    along = split_linear(offset, walked)
    axes = {*(a.sym for a in kernel.outer), walked}
    return along is not None and along[0] is ONE and all(s in axes or s.extent is None for s in free_syms(offset))


def _walks_rows(n: ScheduledNest) -> bool:
    """True if the nest has one loop, over the vectors of a row."""
    return n.vector is not None and not n.serial and not n.reduce


def _vector(n: ScheduledNest) -> Sym:
    assert n.vector is not None
    return n.vector.sym


def _most_nbytes(n: ScheduledNest, place: Place) -> int:
    """Of a row; more than is asked for where that is not known."""
    assert n.vector is not None
    _, most = bounds(n.vector.extent)
    return MOST_NBYTES + 1 if most is None else int(most) * place.dtype.nbytes
