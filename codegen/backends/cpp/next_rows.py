"""The next row, asked for while this one is finished.

A kernel that walks a row several times, such as a softmax or a norm, reads memory in its first walk only and computes
in the others. The lines of the next row are asked for in the last walk, so that memory works during both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hardtack.codegen.backends.cpp.cpp_body import Place
from hardtack.codegen.backends.cpp.cpp_spelling import expr
from hardtack.codegen.ir.expr import ONE, Expr, add, bounds
from hardtack.codegen.ir.expr_walk import free_syms, split_linear, substitute
from hardtack.codegen.ir.loops import Load
from hardtack.codegen.ir.schedule import Kernel, ScheduledNest

LEAST_NBYTES = 1 << 10
"""Of a row: shorter ones follow each other within a page, where the hardware's own prefetchers see them coming."""
MOST_NBYTES = 64 << 10
"""Of all rows that are asked for at once: a fraction of the second-level cache, which has this row as well."""


def requests(kernel: Kernel, places: Mapping[str, Place]) -> list[str]:
    """Statements for each vector of the last walk: they ask for what the first walk reads there at the next point.

    Behind the last row they name addresses behind a buffer, which is no access.
    """
    lines: dict[str, int] = {}
    for load, offset in _rows(kernel):
        place = places[load.buffer]
        nbytes = _most_nbytes(kernel.nests[0], place)
        if place.pointer and nbytes >= LEAST_NBYTES:
            lines[f"__builtin_prefetch({place.pointer} + {expr(offset)});"] = nbytes
    return list(lines) if sum(lines.values()) <= MOST_NBYTES else []


def _rows(kernel: Kernel) -> Iterator[tuple[Load, Expr]]:
    """Loads of rows in the first walk, and the same element of the next row by the axes of the last walk."""
    first, last = kernel.nests[0], kernel.nests[-1]
    if first is last or not kernel.outer or not _walks_rows(first) or not _walks_rows(last):
        return
    assert first.vector is not None
    assert last.vector is not None
    if first.vector.extent is not last.vector.extent:
        return
    point, walked = kernel.outer[-1].sym, first.vector.sym
    axes = {*(a.sym for a in kernel.outer), walked}
    for s in first.nest.body:
        if not isinstance(s, Load) or s.mask is not None or s.buffer in kernel.writes:
            continue
        (offset,) = s.index
        along, across = split_linear(offset, walked), split_linear(offset, point)
        if along is None or along[0] is not ONE or across is None or point not in free_syms(offset):
            continue
        if all(symbol in axes or symbol.extent is None for symbol in free_syms(offset)):
            yield s, substitute(add(offset, across[0]), {walked: last.vector.sym})


def _walks_rows(n: ScheduledNest) -> bool:
    """True if the nest has one loop, over the vectors of a row."""
    return n.vector is not None and not n.serial and not n.reduce


def _most_nbytes(n: ScheduledNest, place: Place) -> int:
    """Of a row; more than is asked for where that is not known."""
    assert n.vector is not None
    _, most = bounds(n.vector.extent)
    return MOST_NBYTES + 1 if most is None else int(most) * place.dtype.nbytes
