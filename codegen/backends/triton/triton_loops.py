"""Loop kernels as Triton: prints a TiledKernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hardtack.codegen.backend import NAME
from hardtack.codegen.backends.triton.kernel import ONE_PROGRAM, Argument, TritonKernel
from hardtack.codegen.backends.triton.reduce import Accumulator
from hardtack.codegen.backends.triton.triton_body import NOWHERE, Body, Coordinate, Place, Tile
from hardtack.codegen.backends.triton.triton_spelling import pointer_type, symbol
from hardtack.codegen.ir.expr import ONE, ZERO, Expr, Sym, bounds, const, floordiv, mod
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.loops import Buffer, Compute, Load, LoopNest, Store, dtypes, exprs_of, out_of, phases
from hardtack.codegen.ir.tiles import Dim, TiledKernel, TileNest
from hardtack.codegen.ir.types import DType

INDENT = "    "


def indent(lines: Sequence[str]) -> list[str]:
    """The lines one level deeper."""
    return [INDENT + line if line else line for line in lines]


def render(kernel: TiledKernel, buffers: Mapping[str, Buffer], part: bool = False) -> TritonKernel:
    """The kernel's Triton source and launch. part: as a part of a launch, whose first parameter is the program's number
    within the part."""
    writer = _Writer(kernel, buffers, "program" if part else "tl.program_id(0)")
    lines = writer.text()
    symbols = _symbols(kernel)
    arguments = [
        Argument(f"b{k}", pointer_type(b.dtype), ("buffer", k), divisible=True) for k, b in enumerate(kernel.buffers)
    ]
    for k, s in enumerate(symbols):
        arguments.append(Argument(symbol(s), int_type(s), ("int", k), divisible=mod(s, 16) is ZERO))
    if writer.checks:
        arguments += [Argument("status", "*i32", ("status",), True), Argument("site", "i32", ("site",))]
    constexprs = {block_name(d): d.block for d in kernel.grid if d.block > 1}
    constexprs |= {block_name(d): d.block for d in writer.inner_dims}
    names = [*(["program"] if part else []), *(a.name for a in arguments), *(f"{n}: tl.constexpr" for n in constexprs)]
    if kernel.wide:
        lines = [*(f"{symbol(s)} = {symbol(s)}.to(tl.int64)" for s in symbols if int_type(s) == "i32"), *lines]
    head = ["@triton.jit", f"def {NAME}({', '.join(names)}):", *indent([f'"""{_origins(kernel)}"""'])]
    text = "\n".join([*head, *indent(lines), ""])
    return TritonKernel(
        kernel.name,
        text,
        tuple(arguments),
        constexprs,
        tuple(b.name for b in kernel.buffers),
        kernel.writes,
        kernel.reads,
        tuple(symbols),
        ONE_PROGRAM if kernel.serial or not kernel.grid else (_programs(kernel), const(1), const(1)),
        kernel.origin,
        num_warps=kernel.num_warps,
    )


def int_type(s: Sym) -> str:
    """The type of an integer parameter: 32 bits where its bounds allow."""
    hi = bounds(s)[1]
    return "i32" if hi is not None and hi < 1 << 31 else "i64"


def block_name(d: Dim) -> str:
    """The constant that holds how many points of an axis a tile takes."""
    return f"{d.name.upper()}BLOCK"


def _programs(kernel: TiledKernel) -> Expr:
    total: Expr = ONE
    for d in kernel.grid:
        total = total * _blocks(d)
    return total


def _blocks(d: Dim) -> Expr:
    return floordiv(d.axis.extent + d.block - 1, d.block)


def _origins(kernel: TiledKernel) -> str:
    """The framework ops that the kernel computes: no file or line, which would keep equal layers apart."""
    names = [n.nest.origin.op for n in kernel.nests if n.nest.origin.op]
    return ", ".join(dict.fromkeys(names)).replace('"', "'") or kernel.name


def _symbols(kernel: TiledKernel) -> list[Sym]:
    """The graph's symbols that the kernel needs at run time, by name."""
    exprs = [d.axis.extent for d in kernel.grid]
    exprs += [n.inner.axis.extent for n in kernel.nests if n.inner is not None]
    exprs += [e for n in kernel.nests for s in n.nest.body for e in exprs_of(s)]
    found = {s for e in exprs for s in free_syms(e) if s.extent is None}
    return sorted(found, key=lambda s: s.name)


@dataclass
class _Writer:
    """The kernel's text, nest after nest. program: its number in the grid; registers: what each register holds now: the
    dimensions it varies along."""

    kernel: TiledKernel
    buffers: Mapping[str, Buffer]
    program: str
    tile: Tile = field(default_factory=Tile)
    coordinates: dict[Sym, Coordinate] = field(default_factory=dict)
    registers: dict[str, frozenset[int]] = field(default_factory=dict)
    checks: bool = False
    sizes: dict[Expr, str] = field(default_factory=dict)
    known: dict[tuple[str, Expr], tuple[str, frozenset[int]]] = field(default_factory=dict)
    head: list[str] = field(default_factory=list)

    def size(self, e: Expr) -> str:
        """A size that the whole kernel may mention, computed at its head where it takes a division."""
        if e not in self.sizes:
            body = Body({}, {}, self.tile, {}, prefix=f"s{len(self.sizes)}_")
            self.sizes[e] = body.expr(e)
            self.head += body.lines
        return self.sizes[e]

    @property
    def inner_dims(self) -> tuple[Dim, ...]:
        """The inner dimensions, each once."""
        found = {n.inner.name: n.inner for n in self.kernel.nests if n.inner is not None}
        return tuple(found.values())

    def text(self) -> list[str]:
        if self.kernel.serial:
            return self._serial()
        lines = self._grid()
        for d in self.inner_dims:
            if not d.looped:
                lines += self._inner(d, "")
        lines += self._ahead()
        for number, nests in enumerate(self.kernel.passes):
            if nests[0].barrier:
                lines.append("tl.debug_barrier()")
            inner = nests[0].inner
            if inner is not None and inner.looped:
                lines += self._loop(nests, inner, number)
            else:
                lines += self._straight(nests[0], number)
        return [*self.head, *lines]

    def _ahead(self) -> list[str]:
        """The first loads of what the kernel never writes; nests find them in `known`."""
        lines: list[str] = []
        for k, n in enumerate(self.kernel.nests):
            body = self._body(n, n.nest, f"a{k}_")
            for s in n.nest.loads():
                fixed = all(x in self.coordinates for x in free_syms(s.index[0]) if x.extent is not None)
                new = (s.buffer, s.index[0]) not in self.known and len(self.known) < self.kernel.ahead
                if fixed and new and s.mask is None and body.places[s.buffer].constant:
                    body.write(s)
            lines += body.lines
        return lines

    # coordinates

    def _grid(self) -> list[str]:
        """The grid's axes, and the tile's dimensions: the blocks of the grid first, the inner axis last."""
        dims = [d for d in self.kernel.grid if d.block > 1]
        rank = len(dims) + bool(self.inner_dims)
        extents = [block_name(d) for d in dims]
        if self.inner_dims:
            extents.append("RBLOCK")  # each nest's own: see _tile_of
        lines: list[str] = []
        masks: dict[int, str] = {}
        rest = self.program
        if self.kernel.wide:
            rest += ".to(tl.int64)"
        for k in range(len(self.kernel.grid) - 1, -1, -1):
            d = self.kernel.grid[k]
            number = rest
            if k > 0:
                count = self.size(_blocks(d))
                lines.append(f"program{k} = {rest}")
                number, rest = f"(program{k} % {count})", f"(program{k} // {count})"
            lines += self._axis(d, number, dims, rank, masks)
        self.tile = Tile(tuple(extents), masks)
        return lines

    def _axis(self, d: Dim, number: str, dims: list[Dim], rank: int, masks: dict[int, str]) -> list[str]:
        if d.block == 1:
            self.coordinates[d.axis.sym] = Coordinate(d.name)
            return [f"{d.name} = {number}"]
        at = dims.index(d)
        spread = "" if rank == 1 else "[" + ", ".join(":" if i == at else "None" for i in range(rank)) + "]"
        self.coordinates[d.axis.sym] = Coordinate(d.name, frozenset({at}))
        block = block_name(d)
        lines = [f"{d.name} = ({number} * {block} + tl.arange(0, {block})){spread}"]
        if not d.whole:
            masks[at] = f"{d.name}_in"
            lines.append(f"{d.name}_in = {d.name} < {self.size(d.axis.extent)}")
        return lines

    def _inner(self, d: Dim, first: str) -> list[str]:
        """The inner coordinate of a chunk that starts at `first`, or of the whole row."""
        rank = len(self.tile.extents)
        spread = "" if rank == 1 else "[None, :]"
        start = f"{first} + " if first else ""
        block = block_name(d)
        wide = ".to(tl.int64)" if self.kernel.wide else ""
        lines = [f"{d.name} = {start}tl.arange(0, {block}){spread}{wide}"]
        self.coordinates[d.axis.sym] = Coordinate(d.name, frozenset({rank - 1}))
        if not d.whole:
            lines.append(f"{d.name}_in = {d.name} < {self.size(d.axis.extent)}")
        return lines

    def _tile_of(self, inner: Dim | None) -> Tile:
        if inner is None:
            return self.tile
        at = len(self.tile.extents) - 1
        masks = dict(self.tile.masks)
        if not inner.whole:
            masks[at] = f"{inner.name}_in"
        return Tile((*self.tile.extents[:-1], block_name(inner)), masks)

    # nests

    def _body(self, n: TileNest, nest: LoopNest, prefix: str) -> Body:
        places: dict[str, Place] = {}
        memory = [b.name for b in self.kernel.buffers]
        for k, (b, where) in enumerate(self.kernel.storage.items()):
            held = b in n.registers
            place = Place(self.buffers[b].dtype, f"b{memory.index(b)}" if b in memory else "")
            place.constant = b not in self.kernel.writes
            if where != "memory" and (held or b in nest.writes()):
                place.register, place.written = f"g{k}", held
                place.dims = self.registers.get(b, NOWHERE)
            places[b] = place
        types = dtypes(nest.body, self.buffers)
        return Body(places, types, self._tile_of(n.inner), dict(self.coordinates), prefix, known=self.known)

    def _finish(self, body: Body) -> None:
        self.checks = self.checks or body.checks
        for b, place in body.places.items():
            if place.written:
                self.registers[b] = place.dims

    def _straight(self, n: TileNest, number: int) -> list[str]:
        reduces, before, after = phases(n.nest)
        body = self._body(n, n.nest, f"n{number}_")
        if not reduces:
            for s in n.nest.body:
                body.write(s)
        else:
            assert n.inner is not None
            for s in before:
                body.write(s)
            for r in reduces:
                Accumulator(r, body, _reduced_dim(body)).whole()
            for s in after:
                if out_of(s) not in body.names:
                    body.write(s)
        self._finish(body)
        return [_comment(n), *body.lines]

    def _loop(self, nests: Sequence[TileNest], inner: Dim, number: int) -> list[str]:
        """One walk over chunks for all nests of a pass; what follows their reductions comes behind it."""
        before_loop: list[str] = []
        outside = dict(self.known)  # what a chunk has loaded is gone behind the loop
        chunk = self._inner(inner, f"{inner.name}_at")
        behind: list[str] = []
        comments: list[str] = []
        for k, n in enumerate(nests):
            comments.append(_comment(n))
            prefix = f"n{number}_{k}_" if len(nests) > 1 else f"n{number}_"
            reduces, before, after = phases(n.nest)
            body = self._body(n, n.nest, prefix)
            for s in before if reduces else n.nest.body:
                body.write(s)
            found = [Accumulator(r, body, _reduced_dim(body)) for r in reduces]
            for a in found:
                before_loop += a.start()
                a.update()
            chunk += body.lines
            self._finish(body)
            if reduces:
                late = self._body(n, n.nest, prefix)
                late.lines, late.known = behind, dict(outside)
                for a in found:
                    a.finish(late)
                for s in after:
                    late.write(s)
                self._finish(late)
        self.known = outside
        extent = self.size(inner.axis.extent)
        head = f"for {inner.name}_at in range(0, {extent}, {block_name(inner)}):"
        return [*comments, *before_loop, head, *indent(chunk), *behind]

    # points in order

    def _serial(self) -> list[str]:
        """One program; a barrier after each point, since the next one may read what it has written."""
        (n,) = self.kernel.nests
        (d,) = self.kernel.grid
        self.coordinates[d.axis.sym] = Coordinate(d.name)
        body = self._body(n, n.nest, "n0_")
        for s in n.nest.body:
            if isinstance(s, Store):
                _update(body, s)
            else:
                body.write(s)
        self._finish(body)
        extent = self.size(d.axis.extent)
        start = [f"{d.name} = tl.cast(point, tl.int64)"] if self.kernel.wide else [f"{d.name} = point"]
        return [
            *self.head,
            _comment(n),
            f"for point in range(0, {extent}):",
            *indent([*start, *body.lines, "tl.debug_barrier()"]),
        ]


def _update(body: Body, s: Store) -> None:
    """An update of one element by loading and storing it."""
    if s.mode == "set":
        body.write(s)
        return
    t = body.places[s.buffer].dtype
    boolean = {"add": "or", "mul": "and", "max": "or", "min": "and"}
    old, new = f"{s.buffer}_old", f"{s.buffer}_new"
    body.types = {**body.types, old: t, new: t}
    body.write(Load(old, s.buffer, s.index))
    body.write(Compute(new, boolean[s.mode] if t is DType.BOOL else s.mode, (old, s.value), t))
    body.write(Store(s.buffer, s.index, new))


def _reduced_dim(body: Body) -> int:
    """The tile dimension of the inner axis."""
    return len(body.tile.extents) - 1


def _comment(n: TileNest) -> str:
    return f"# {n.nest.origin.op or n.nest.name}"
