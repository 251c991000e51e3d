"""What follows a product of gates, point by point, is computed where both halves of its columns meet.

    y = x @ w + b;  out = silu(y[:, :n]) * y[:, n:]

A gate and what it opens are one product, whose epilogue has both at a point (Group.half). A bias or a scale between
them walks all columns, one at a time: computed inside of what reads both halves, it is in their way no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.loops import LoopNest
from hardtack.codegen.ir.nests import Nest, TemplateNest
from hardtack.codegen.passes.passes import Buffers, Context, Decisions, NestPass, Scope
from hardtack.codegen.passes.shared.inline import inline_into, why_illegal, why_too_late, writers_of
from hardtack.codegen.schedule.fuse import in_halves
from hardtack.codegen.schedule.fusion_limits import LARGEST_BODY

KIND = "gate"
"""Of the Decisions that are made here."""
Writers = Mapping[str, Sequence[int]]
"""The nests, by their numbers, that write a buffer."""


def inline_gates(nests: Sequence[Nest], buffers: Buffers, scope: Scope) -> tuple[tuple[Nest, ...], Decisions]:
    """The nests, with what walks a product's columns one by one inside of what reads both of their halves."""
    work: list[Nest | None] = list(nests)
    decisions: list[Decision] = []
    writers = writers_of(nests)
    for product in nests:
        if not isinstance(product, TemplateNest) or not product.template.takes_halves(product):
            continue
        chain = _chain(work, product.result, scope, writers, buffers)
        count, joined = _joined([n for _, n in chain], product, buffers)
        if joined is None:
            continue
        names = ", ".join(n.name for _, n in chain[:count])
        decisions.append(Decision(KIND, names, joined.name, True, "it reads both halves of the columns"))
        for at, _ in chain[:count]:
            work[at] = None
        work[chain[count][0]] = joined
    return tuple(n for n in work if n is not None), tuple(decisions)


def _chain(
    nests: Sequence[Nest | None], value: str, scope: Scope, writers: Writers, buffers: Buffers
) -> list[tuple[int, LoopNest]]:
    """The nests, with their numbers, each of which alone reads what the one before computes of one element."""
    found: list[tuple[int, LoopNest]] = []
    while (at := _only_reader(nests, value, scope)) is not None:
        nest = nests[at]
        if not isinstance(nest, LoopNest):
            break
        if any(why_too_late(n, k, at, writers, scope.in_place) is not None for k, n in found):
            break
        found.append((at, nest))
        if why_illegal(nest, buffers) is not None:
            break
        (value,) = nest.writes()
        if len(writers[value]) > 1:
            break
    return found


def _joined(chain: Sequence[LoopNest], product: TemplateNest, buffers: Buffers) -> tuple[int, LoopNest | None]:
    """The first nest of a chain that reads both halves, with those before it inside, and how many these are; None where
    there is none, or none before it."""
    joined = chain[0] if chain else None
    for count, reader in enumerate(chain[1:], 1):
        assert joined is not None
        (value,) = joined.writes()
        if in_halves(joined, product, buffers) is not None or len(joined.body) > LARGEST_BODY:
            break
        joined = inline_into(reader, joined, value)
        if in_halves(joined, product, buffers) is not None:
            return count, joined
    return 0, None


def _only_reader(nests: Sequence[Nest | None], buffer: str, scope: Scope) -> int | None:
    """The number of the nest that alone reads a buffer which nothing needs in memory."""
    readers = [i for i, n in enumerate(nests) if n is not None and buffer in n.reads()]
    return readers[0] if len(readers) == 1 and buffer not in scope.kept else None


def _run(
    nests: tuple[Nest, ...], buffers: Buffers, scope: Scope, context: Context
) -> tuple[tuple[Nest, ...], Buffers, Decisions]:
    made, decisions = inline_gates(nests, buffers, scope)
    return made, buffers, decisions


INLINE_GATES = NestPass("gates", _run)
"""A bias behind a product whose columns are read in two halves is added where these meet."""
