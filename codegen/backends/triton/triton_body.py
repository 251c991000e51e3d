"""Statements of a nest as lines of Triton, on tiles of any rank.

A tile has dimensions, each with the text of its extent and, where points of it may lie outside, of its mask (shaped to
broadcast). Every symbol is a Coordinate: its text, and the dimensions along which it varies. Values broadcast: one that
varies along dimension 1 of 2 has shape [1, B1], one that varies along none is a scalar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hardtack.codegen.backends.triton.triton_spelling import (
    MEMORY,
    OPERATORS,
    argument,
    compute,
    is_of_libdevice,
    number,
    rounded,
    symbol,
    typed,
)
from hardtack.codegen.ir.expr import (
    Add,
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Mul,
    Sym,
    bounds,
    sym,
)
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.loops import Arg, Assert, Check, Compute, Index, Load, Stmt, Store
from hardtack.codegen.ir.types import HALF, DType
from hardtack.codegen.ops import INT_DIVISIONS, rounds

INDEX_OUT_OF_RANGE = 1
ASSERT_FAILED = 2
"""As runtime_cpp/include/hardtack/kernel_abi.h numbers them."""

NOWHERE: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Coordinate:
    """A symbol in the text, the tile dimensions it varies along, and the mask of where it may be used."""

    text: str
    dims: frozenset[int] = NOWHERE
    mask: str | None = None


@dataclass(frozen=True)
class Tile:
    """extents: the text of each dimension's extent. masks: by dimension, where not all its points are inside."""

    extents: tuple[str, ...] = ()
    masks: Mapping[int, str] = field(default_factory=dict)

    def shape(self, dims: frozenset[int]) -> str:
        """The shape of a value that varies along `dims`."""
        inner = ", ".join(e if d in dims else "1" for d, e in enumerate(self.extents))
        return f"({inner},)" if len(self.extents) == 1 else f"({inner})"

    @property
    def dims(self) -> frozenset[int]:
        return frozenset(range(len(self.extents)))


@dataclass
class Place:
    """A buffer as Triton names it: `pointer` for memory, `register` for a value that stays in a variable.

    One that is both is stored and stays in a variable for the nests that follow. `written`: the register holds it;
    `dims`: the tile dimensions that the register varies along; `constant`: nothing in the kernel writes its memory.
    Registers have REGISTER's types: f32 for half types.
    """

    dtype: DType
    pointer: str = ""
    register: str = ""
    dims: frozenset[int] = NOWHERE
    written: bool = False
    constant: bool = False


@dataclass
class Body:
    """Writes statements into `lines`.

    coordinates: every axis and graph symbol that the statements mention (a graph symbol left out is a variable of its
    own name). prefix keeps the values of several nests apart. known: loads of constant memory that are at hand.
    chosen: values that are one of two others.
    """

    places: Mapping[str, Place]
    types: Mapping[str, DType]
    tile: Tile
    coordinates: dict[Sym, Coordinate]
    prefix: str = ""
    lines: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    dims: dict[str, frozenset[int]] = field(default_factory=dict)
    checks: bool = False
    known: dict[tuple[str, Expr], tuple[str, frozenset[int]]] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)
    _terms: dict[Expr, str] = field(default_factory=dict)
    _inverses: dict[str, str] = field(default_factory=dict)

    # values

    def dtype(self, a: Arg) -> DType:
        return a.dtype if isinstance(a, Lit) else self.types[a]

    def dims_of(self, args: Iterable[Arg]) -> frozenset[int]:
        """The dimensions along which something computed from `args` varies."""
        return NOWHERE.union(*(self.dims[a] for a in args if isinstance(a, str)))

    def arg(self, a: Arg) -> str:
        """An argument with a type of its own."""
        return self.names[a] if isinstance(a, str) else argument(a)

    def define(self, out: str, code: str, dims: frozenset[int]) -> str:
        """A new value; its name."""
        self.names[out] = self.prefix + out.replace(".", "_")
        self.dims[out] = dims
        self.lines.append(f"{self.names[out]} = {code}")
        return self.names[out]

    def mask(self, dims: frozenset[int], extra: Iterable[str | None] = ()) -> str | None:
        """The condition that a point along `dims` is inside, and `extra` holds."""
        parts = [self.tile.masks[d] for d in sorted(dims) if d in self.tile.masks]
        parts += [e for e in extra if e is not None]
        parts = list(dict.fromkeys(parts))
        return " & ".join(parts) if parts else None

    def full(self, text: str, dims: frozenset[int], wanted: frozenset[int]) -> str:
        """A value that varies along `dims`, spread out along `wanted`."""
        return text if dims >= wanted else f"tl.broadcast_to({text}, {self.tile.shape(dims | wanted)})"

    # integer expressions

    def dims_of_expr(self, e: Expr) -> frozenset[int]:
        found = NOWHERE
        for s in symbols_of(e):
            if s in self.coordinates:
                found |= self.coordinates[s].dims
        return found

    def masks_of_expr(self, e: Expr) -> list[str]:
        """Where a checked index in e is in range."""
        found = (self.coordinates[s].mask for s in sorted(symbols_of(e), key=symbol) if s in self.coordinates)
        return [m for m in found if m is not None]

    def expr(self, e: Expr) -> str:
        """An Expr as text; quotients and remainders become named values of their own."""
        if isinstance(e, Const):
            return str(e.value) if e.value >= 0 else f"({e.value})"
        if isinstance(e, Sym):
            return self.coordinates[e].text if e in self.coordinates else symbol(e)
        if isinstance(e, Add):
            return "(" + " + ".join(self.expr(t) for t in e.terms) + ")"
        if isinstance(e, Mul):
            return "(" + " * ".join(self.expr(f) for f in e.factors) + ")"
        if e not in self._terms:
            code = self._term(e)
            self._terms[e] = name = f"{self.prefix}i{len(self._terms)}"
            self.lines.append(f"{name} = {code}")
        return self._terms[e]

    def _term(self, e: Expr) -> str:
        if isinstance(e, (FloorDiv, Mod)):
            left, right = self.expr(e.a), self.expr(e.b)
            low = bounds(e.a)[0]
            if low is not None and low >= 0:
                return f"{left} {'//' if isinstance(e, FloorDiv) else '%'} {right}"
            # both round towards zero in Triton; divisors are positive
            down = f"({left} - tl.where({left} < 0, {right} - 1, 0)) // {right}"
            return down if isinstance(e, FloorDiv) else f"{left} - {down} * {right}"
        assert isinstance(e, (Min, Max))
        name = "minimum" if isinstance(e, Min) else "maximum"
        out = self.expr(e.args[0])
        for a in e.args[1:]:
            out = f"tl.{name}({out}, {self.expr(a)})"
        return out

    # statements

    def write(self, s: Stmt) -> None:
        """Any statement but Reduce."""
        if isinstance(s, Load):
            self._load(s)
        elif isinstance(s, Compute):
            self._compute(s)
        elif isinstance(s, Index):
            dims = self.dims_of_expr(s.expr)
            wide = f"tl.cast({self.expr(s.expr)}, tl.int64)"
            self.define(s.out, wide, dims)
        elif isinstance(s, Check):
            self._check(s)
        elif isinstance(s, Assert):
            self.fail_where(f"({self.arg(s.arg)} == 0)", self.dims_of([s.arg]), ASSERT_FAILED)
        else:
            assert isinstance(s, Store)
            self._store(s)

    def _compute(self, s: Compute) -> None:
        dims = self.dims_of(s.args)
        types = tuple(self.dtype(a) for a in s.args)
        # operators give a bare literal the other argument's type; functions need one that has it
        bare = s.op in OPERATORS and any(isinstance(a, str) for a in s.args)
        args = tuple(number(a) if bare and isinstance(a, Lit) else self.arg(a) for a in s.args)
        chosen = s.op in ("max", "min") or (s.op == "where" and isinstance(s.args[0], Lit))
        if chosen or all(isinstance(a, Lit) for a in s.args):
            args = tuple(typed(a) if isinstance(a, Lit) else t for a, t in zip(s.args, args, strict=True))
        divisor = s.args[1] if s.op == "div" and s.dtype is not DType.F64 else None
        if isinstance(divisor, str) and self.dims[divisor] < dims:
            quotient = f"quotient({args[0]}, {self._inverse(divisor)})"
            self.define(s.out, rounded(quotient, s.dtype) if s.dtype in HALF else quotient, dims)
            return
        if s.op in INT_DIVISIONS and not types[0].is_float:
            args = (typed(s.args[0]) if isinstance(s.args[0], Lit) else args[0], self._divisor(s))
        if is_of_libdevice(s.op) or s.op in ("floordiv", "remainder"):
            args = tuple(
                self.full(typed(a) if isinstance(a, Lit) else t, self.dims_of([a]), dims)
                for t, a in zip(args, s.args, strict=True)
            )
        if s.op == "where" and s.dtype.is_float:
            hide = "opaque_wide" if s.dtype is DType.F64 else "opaque"
            args = tuple(f"{hide}({t})" if a in self.chosen else t for t, a in zip(args, s.args, strict=True))
        if s.op in ("max", "min", "where"):
            self.chosen.add(s.out)
        code = compute(s.op, args, types, s.dtype)
        self.define(s.out, rounded(code, s.dtype) if rounds(s.op, s.dtype) else code, dims)

    def _inverse(self, divisor: str) -> str:
        """What `quotient` needs of a divisor, computed once for the many points that it divides."""
        if divisor not in self._inverses:
            stem = f"{self.prefix}{divisor}".replace(".", "_")
            parts = [f"{stem}_{part}" for part in ("scale", "scaled", "inverse")]
            self._inverses[divisor] = ", ".join(parts)
            whole = self.full(self.names[divisor], self.dims[divisor], self.dims[divisor])
            self.lines.append(f"{self._inverses[divisor]} = inverse({whole})")
        return self._inverses[divisor]

    def _divisor(self, s: Compute) -> str:
        """An integer divisor, a 0 reported and replaced by 1."""
        b = s.args[1]
        if isinstance(b, Lit):
            if b.value == 0:  # each point fails, if there is one
                a = typed(s.args[0]) if isinstance(s.args[0], Lit) else self.names[s.args[0]]
                self.fail_where(f"({a} == {a})", self.dims_of(s.args[:1]), ASSERT_FAILED)
            return typed(b if b.value else Lit(1, b.dtype))
        self.fail_where(f"({self.names[b]} == 0)", self.dims[b], ASSERT_FAILED)
        name = f"{self.prefix}{s.out}_by".replace(".", "_")
        self.lines.append(f"{name} = tl.where({self.names[b]} == 0, {typed(Lit(1, self.types[b]))}, {self.names[b]})")
        return name

    def _load(self, s: Load) -> None:
        place = self.places[s.buffer]
        if place.register and place.written:
            if s.mask is None:
                self.names[s.out], self.dims[s.out] = place.register, place.dims
                return
            other = self.arg(s.other if s.other is not None else Lit(0, place.dtype))
            dims = place.dims | self.dims[s.mask]
            self.define(s.out, f"tl.where({self.names[s.mask]}, {place.register}, {other})", dims)
            return
        (offset,) = s.index
        again = place.constant and s.mask is None and not self.masks_of_expr(offset)
        if again and (s.buffer, offset) in self.known:
            self.names[s.out], self.dims[s.out] = self.known[s.buffer, offset]
            return
        dims = self.dims_of_expr(offset)
        at = f"{place.pointer} + {self.expr(offset)}"
        extra = self.masks_of_expr(offset)
        if s.mask is not None:
            extra.append(self.names[s.mask])
            wanted = self.dims[s.mask]
            if not dims >= wanted:
                at, dims = f"tl.broadcast_to({at}, {self.tile.shape(dims | wanted)})", dims | wanted
        mask = self.mask(dims, extra)
        other_text = ""
        if s.mask is not None and mask is not None:
            lit = s.other if s.other is not None else Lit(0, place.dtype)
            other_text = f", other={int(bool(lit.value)) if place.dtype is DType.BOOL else argument(lit)}"
        given = "" if mask is None else f", mask={mask}"
        name = self.define(s.out, loaded(f"tl.load({at}{given}{other_text})", place.dtype), dims)
        if again:
            self.known[s.buffer, offset] = (name, dims)

    def _check(self, s: Check) -> None:
        """An index into [0, size), counted from the end when negative; accesses by one outside of it are not made."""
        size = self.expr(s.size)
        dims = self.dims_of([s.arg])
        raw = self.arg(s.arg)
        name = self.define(s.out, f"tl.where({raw} < 0, {raw} + {size}, {raw})", dims)
        good = f"{name}_good"
        self.lines.append(f"{good} = ({name} >= 0) & ({name} < {size})")
        self.fail_where(f"({good} == 0)", dims, INDEX_OUT_OF_RANGE)
        self.coordinates[sym(s.out, extent=s.size)] = Coordinate(name, dims, good)

    def fail_where(self, bad: str, dims: frozenset[int], code: int) -> None:
        """Report the first failure of the run where `bad` holds at a point inside the tile."""
        self.checks = True
        inside = self.mask(dims)
        text = bad if inside is None else f"{bad} & {inside}"
        count = f"({text}).to(tl.int32)"
        self.lines.append(f"if {count if not dims else f'tl.max({count})'} != 0:")
        self.lines.append(f"    tl.atomic_cas(status, 0, site * 256 + {code})")

    def _store(self, s: Store) -> None:
        place = self.places[s.buffer]
        value, dims = self.arg(s.value), self.dims_of([s.value])
        if place.register:
            if isinstance(s.value, Lit):
                value = typed(s.value)
            self.lines.append(f"{place.register} = {value}")
            place.dims, place.written = dims, True
            if not place.pointer:
                return
        (offset,) = s.index
        where = self.dims_of_expr(offset)
        at = f"{place.pointer} + {self.expr(offset)}"
        if not where >= dims:
            at, where = f"tl.broadcast_to({at}, {self.tile.shape(where | dims)})", where | dims
        mask = self.mask(where, self.masks_of_expr(offset))
        given = "" if mask is None else f", mask={mask}"
        if s.mode == "set":
            self.lines.append(f"tl.store({at}, {stored(value, place.dtype)}{given})")
            return
        if isinstance(s.value, Lit):
            value = typed(s.value)
        name = {"add": "add", "max": "max", "min": "min"}[s.mode]
        value = self.full(value, dims, where)
        self.lines.append(f'tl.atomic_{name}({at}, {value}{given}, sem="relaxed")')


def symbols_of(e: Expr) -> frozenset[Sym]:
    return free_syms(e)


def loaded(code: str, dtype: DType) -> str:
    """A loaded value in its register's type."""
    if dtype is DType.BOOL:
        return f"({code} != 0)"
    return f"{code}.to(tl.float32)" if dtype in HALF else code


def stored(value: str, dtype: DType) -> str:
    """A register's value in its type in memory."""
    if value in ("True", "False"):
        return str(int(value == "True"))
    return f"{value}.to({MEMORY[dtype]})" if dtype is DType.BOOL else value
