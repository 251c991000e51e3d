"""The prologue of a one-row product as Triton: the row that every program computes for itself.

Where a program holds the whole row, all of it is computed once. Where it walks K in blocks, what reduces the row runs
once, over the whole row, and what is computed for each element runs block by block; a value that both need is computed
in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hardtack.codegen.backends.triton.reduce import Accumulator
from hardtack.codegen.backends.triton.sketch import Sketch
from hardtack.codegen.backends.triton.triton_body import Body, Coordinate, Place, Tile
from hardtack.codegen.backends.triton.triton_spelling import MEMORY, symbol
from hardtack.codegen.ir.expr import Expr, int_value
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.loops import LoopNest, dtypes, exprs_of, out_of, phases
from hardtack.codegen.ir.powers import power_of_two_from


@dataclass(frozen=True)
class RowText:
    """Lines before the loop over K, and lines in it that leave the block of the row at `k` in `left` [1, BLOCK_K].
    row: how many elements ROW has, a power of two; 0 where nothing is reduced."""

    once: list[str]
    each: list[str]
    row: int


def render_prologue(sketch: Sketch, block_k: int) -> RowText:
    """The text of the kernel's prologue, for the template gemm_vector."""
    writer = _Writer(sketch)
    nests, length = sketch.kernel.prologue, writer.length
    row = power_of_two_from(length)
    whole_row = Tile(("ROW",), {} if row == length else {0: "row_inside"})
    once: list[str] = []
    reducing = _before_reductions(nests)
    if any(n.axes for n in reducing):
        once.append(f"row = tl.arange(0, ROW){sketch.wide()}")
        once += [] if row == length else [f"row_inside = row < {length}"]
    once += writer.lines(reducing, "r", whole_row, Coordinate("row", frozenset({0})), {})
    scalars = {b for n in reducing if n.reduced or not n.axes for b in n.writes()}
    rest = [n for n in nests if n.axes and not n.writes() & scalars]
    # a name keeps its shape in a loop: what is computed for the whole row and again for each block takes a second one
    for b in set().union(*(n.writes() for n in rest)) & set().union(*(n.writes() for n in reducing)):
        before = writer.places[b]
        writer.places[b] = Place(before.dtype, register=f"{before.register}_block")
    each = writer.block(rest, "e", None if length % block_k == 0 else "k[None, :] < end", {})
    return RowText(once, each, row if any(n.axes for n in reducing) else 0)


def render_held(sketch: Sketch, inside: str | None) -> tuple[list[str], list[str]]:
    """For the template gemm_row: the lines that may stand before the wait for other kernels, which load constants, and
    those that leave the whole row in `left` [1, BLOCK_K]. inside: where `k` is in it, None for everywhere."""
    writer, kernel = _Writer(sketch), sketch.kernel
    tile, at = writer.tile(inside)
    known: Known = {}
    ahead = writer.loads(kernel.prologue, tile, at, kernel.constants, known)
    # what a barrier of a reduction would hold back is requested first
    first = writer.loads(kernel.prologue, tile, at, frozenset(writer.places), known)
    return ahead, [*first, *writer.block(kernel.prologue, "r", inside, known)]


def _before_reductions(nests: Sequence[LoopNest]) -> list[LoopNest]:
    """The nests that the reductions and the scalars need, and these themselves."""
    found: list[LoopNest] = []
    for n in reversed(nests):
        needed = any(n.writes() & m.reads() for m in found)
        if n.reduced or not n.axes or needed:
            found.insert(0, n)
    return found


Known = dict[tuple[str, Expr], tuple[str, frozenset[int]]]
"""Loads that are at hand: buffer and offset -> the value's name, and the dimensions that it varies along."""


class _Writer:
    """Writes nests with the values of the prologue in registers. length: of the row."""

    def __init__(self, sketch: Sketch) -> None:
        kernel, buffers = sketch.kernel, sketch.buffers
        nests, anchor = kernel.prologue, kernel.anchor
        assert anchor is not None
        length = int_value(nests[-1].axes[0].extent)
        assert length is not None
        self.sketch, self.row, self.length = sketch, anchor.operands[0].buffer, length
        private = frozenset(b for n in nests for b in n.writes())
        mentioned = {s for n in nests for x in n.body for e in exprs_of(x) for s in free_syms(e)}
        for s in sorted(mentioned, key=lambda s: s.name):
            if s.extent is None:
                sketch.ints[symbol(s)] = (s, "i64")
        self.places: dict[str, Place] = {}
        for k, b in enumerate(kernel.storage):
            if b in private:
                self.places[b] = Place(buffers[b].dtype, register=f"h{k}")
            elif kernel.storage[b].kind == "memory":
                self.places[b] = Place(buffers[b].dtype, sketch.pointer(b), constant=b not in kernel.writes)

    def tile(self, inside: str | None) -> tuple[Tile, Coordinate]:
        """The tile of the elements `k`, and these."""
        masks = {} if inside is None else {1: f"({inside})"}
        return Tile(("1", "BLOCK_K"), masks), Coordinate(f"k[None, :]{self.sketch.wide()}", frozenset({1}))

    def loads(
        self, nests: Sequence[LoopNest], tile: Tile, at: Coordinate, buffers: frozenset[str], known: Known
    ) -> list[str]:
        """What the nests load from `buffers` in memory, so that it is known."""
        out: list[str] = []
        for n in nests:
            for s in n.loads():
                place = self.places[s.buffer]
                if s.buffer not in buffers or not (place.pointer and place.constant) or s.mask is not None:
                    continue
                if (s.buffer, s.index[0]) not in known:
                    types = dtypes([s], self.sketch.buffers)
                    prefix = f"l{len(known)}_"
                    body = Body(self.places, types, tile, {a.sym: at for a in n.axes}, prefix, known=known)
                    body.write(s)
                    out += body.lines
        return out

    def block(self, nests: Sequence[LoopNest], stem: str, inside: str | None, known: Known) -> list[str]:
        """The nests for the elements `k` of the row, and `left`, which is 0 where these are not `inside`."""
        lines = self.lines(nests, stem, *self.tile(inside), known)
        target = self.places[self.row]
        value = f"{target.register}.to({MEMORY[target.dtype]})"  # rounded as in memory
        return [*lines, f"left = {value}" if inside is None else f"left = tl.where({inside}, {value}, 0.0)"]

    def lines(self, nests: Sequence[LoopNest], stem: str, tile: Tile, at: Coordinate, known: Known) -> list[str]:
        """The nests on a tile whose last dimension is the row's."""
        out: list[str] = []
        for number, n in enumerate(nests):
            body = Body(
                self.places,
                dtypes(n.body, self.sketch.buffers),
                tile,
                {a.sym: at for a in n.axes},
                f"{stem}{number}_",
                known=known,
            )
            reduces, before, after = phases(n)
            for s in before if reduces else n.body:
                body.write(s)
            for r in reduces:
                Accumulator(r, body, len(tile.extents) - 1).whole()
            for s in after if reduces else ():
                if out_of(s) not in body.names:
                    body.write(s)
            self.sketch.checks = self.sketch.checks or body.checks
            out += body.lines
        return out
