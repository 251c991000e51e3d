"""LoopNest: one loop over a space of axes with a flat body.

    LoopNest ::= LoopNest(name, axes, body, serial, origin)        the other kinds of nests are in nests.py
    Axis     ::= Axis(sym, extent, kind)         kind: parallel | reduce; reduce axes come last
    Stmt     ::= Load(out, buffer, index, mask, other)     out = mask ? buffer[index] : other
               | Compute(out, op, args)                     a row of ops.SCALAR_OPS; in kernels also of ops.COARSE_OPS
               | Index(out, expr)                           an Expr as an i64 value
               | Check(out, arg, size)                      arg as an index into [0, size): negatives count from the end
               | Assert(arg, message)                       the run fails where arg is false
               | Reduce(out, kind, args)                    over all reduce axes; sum prod max min any all argmax argmin
               | Store(buffer, index, value, mode)          mode: set | add | mul | max | min
    Arg      ::= value name (str) | Lit

The body is SSA: every out is defined once, before its uses. What depends on a Reduce runs once per point of the
parallel axes, everything before it once per point of all axes; a Store before it names the reduce axes. Indices are one
Expr a buffer dimension, over the axes, the graph's symbols and the outs of Checks (which may stand in Exprs as symbols
of their name, with their size as extent). A Load with a mask is not made where the mask is false.

A value of a half type is always one of that type: where an op computes it in f32 (ops.rounds) it is rounded, whatever
is inlined, fused or kept in a register. Sums and products over half types are of f32, and cast.

A nest is data: inlining, comparing, hashing and printing walk the same list. Values have dtypes: `dtypes(nest)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, Sym, const, product
from hardtack.codegen.ir.expr_walk import free_syms, substitute
from hardtack.codegen.ir.graph import Lit, Origin
from hardtack.codegen.ir.types import DType


@dataclass(frozen=True)
class Axis:
    """A loop axis: `sym` runs over [0, extent)."""

    sym: Sym
    extent: Expr
    kind: str = "parallel"


Arg = str | Lit


def exact(a: Arg | None) -> object:
    """What tells two arguments apart: Python has 0.0 == -0.0 and True == 1, kernels do not."""
    return (type(a.value), repr(a.value), a.dtype) if isinstance(a, Lit) else a


def is_same(a: Stmt, b: Stmt) -> bool:
    """True if two statements are one, to the sign of a zero."""
    return a is b or (a == b and repr(a) == repr(b))


@dataclass(frozen=True)
class Load:
    out: str
    buffer: str
    index: tuple[Expr, ...]
    mask: str | None = None
    other: Lit | None = None


@dataclass(frozen=True)
class Compute:
    out: str
    op: str
    args: tuple[Arg, ...]
    dtype: DType


@dataclass(frozen=True)
class Index:
    out: str
    expr: Expr


@dataclass(frozen=True)
class Check:
    out: str
    arg: Arg
    size: Expr


@dataclass(frozen=True)
class Assert:
    arg: Arg
    message: str


@dataclass(frozen=True)
class Reduce:
    """`args`: one value; for argmax and argmin the value and an i64 index, the smallest index of equals winning."""

    out: str
    kind: str
    args: tuple[Arg, ...]
    dtype: DType


@dataclass(frozen=True)
class Store:
    buffer: str
    index: tuple[Expr, ...]
    value: Arg
    mode: str = "set"


Stmt = Load | Compute | Index | Check | Assert | Reduce | Store


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory, dense. `order`: its dimensions from outermost to innermost in memory."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    order: tuple[int, ...]

    def strides(self) -> tuple[Expr, ...]:
        """Elements from one index to the next, for each logical dimension."""
        out: dict[int, Expr] = {}
        step: Expr = const(1)
        for d in reversed(self.order):
            out[d] = step
            step = self.shape[d] * step
        return tuple(out[d] for d in range(len(self.shape)))

    def offset(self, index: tuple[Expr, ...]) -> Expr:
        """The element offset of `index`."""
        total: Expr = const(0)
        for i, s in zip(index, self.strides(), strict=True):
            total = total + i * s
        return total

    def numel(self) -> Expr:
        n: Expr = const(1)
        for e in self.shape:
            n = n * e
        return n


def row_major_strides(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Elements from one index to the next, for each dimension of a dense tensor."""
    return tuple(product(shape[d + 1 :]) for d in range(len(shape)))


@dataclass(frozen=True)
class Source:
    """What a nest was made of by changing its axes: `points` gives each axis of `nest` in terms of the new ones."""

    nest: LoopNest
    points: tuple[Expr, ...]


@dataclass(frozen=True)
class LoopNest:
    """See the module's grammar. `serial`: the points must run in order (scatters into one place). `sources`: the nests
    of the stage before that this one computes over other axes, one after the other; none for a nest made anew."""

    name: str
    axes: tuple[Axis, ...]
    body: tuple[Stmt, ...]
    serial: bool = False
    origin: Origin = field(default=Origin(), compare=False)
    sources: tuple[Source, ...] = field(default=(), compare=False, repr=False)

    @property
    def parallel(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.kind == "parallel")

    @property
    def reduced(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.kind == "reduce")

    def stores(self) -> tuple[Store, ...]:
        return tuple(s for s in self.body if isinstance(s, Store))

    def loads(self) -> tuple[Load, ...]:
        return tuple(s for s in self.body if isinstance(s, Load))

    def reads(self) -> set[str]:
        """Buffers that are read, those that a Store updates included."""
        return {s.buffer for s in self.loads()} | {s.buffer for s in self.stores() if s.mode != "set"}

    def writes(self) -> set[str]:
        return {s.buffer for s in self.stores()}


def args_of(stmt: Stmt) -> tuple[Arg, ...]:
    """The SSA arguments of a statement, masks included, index symbols not."""
    if isinstance(stmt, Load):
        return (stmt.mask,) if stmt.mask is not None else ()
    if isinstance(stmt, (Compute, Reduce)):
        return stmt.args
    if isinstance(stmt, (Check, Assert)):
        return (stmt.arg,)
    if isinstance(stmt, Store):
        return (stmt.value,)
    return ()


def exprs_of(stmt: Stmt) -> tuple[Expr, ...]:
    """The Exprs in a statement."""
    if isinstance(stmt, (Load, Store)):
        return stmt.index
    if isinstance(stmt, Index):
        return (stmt.expr,)
    return (stmt.size,) if isinstance(stmt, Check) else ()


def out_of(stmt: Stmt) -> str | None:
    """The SSA value that a statement defines, if any."""
    return None if isinstance(stmt, (Store, Assert)) else stmt.out


def map_stmt(stmt: Stmt, names: Mapping[str, Arg], syms: Mapping[Expr, Expr]) -> Stmt:
    """The statement with values renamed (outs and args) and symbols replaced in its Exprs."""

    def arg(a: Arg) -> Arg:
        return names.get(a, a) if isinstance(a, str) else a

    def name(a: str) -> str:
        new = names.get(a, a)
        assert isinstance(new, str)
        return new

    def exprs(es: Iterable[Expr]) -> tuple[Expr, ...]:
        return tuple(substitute(e, syms) for e in es)

    if isinstance(stmt, Load):
        mask = None if stmt.mask is None else name(stmt.mask)
        return Load(name(stmt.out), stmt.buffer, exprs(stmt.index), mask, stmt.other)
    if isinstance(stmt, Compute):
        return Compute(name(stmt.out), stmt.op, tuple(arg(a) for a in stmt.args), stmt.dtype)
    if isinstance(stmt, Index):
        return Index(name(stmt.out), substitute(stmt.expr, syms))
    if isinstance(stmt, Check):
        return Check(name(stmt.out), arg(stmt.arg), substitute(stmt.size, syms))
    if isinstance(stmt, Assert):
        return Assert(arg(stmt.arg), stmt.message)
    if isinstance(stmt, Reduce):
        return Reduce(name(stmt.out), stmt.kind, tuple(arg(a) for a in stmt.args), stmt.dtype)
    return Store(stmt.buffer, exprs(stmt.index), arg(stmt.value), stmt.mode)


def substitute_axes(nest: LoopNest, axes: tuple[Axis, ...], syms: Mapping[Expr, Expr]) -> LoopNest:
    """The nest over other axes: `syms` gives each old axis symbol in terms of the new ones."""
    sources = tuple(
        replace(x, points=tuple(substitute(e, syms) for e in x.points)) for x in nest.sources or (source_of(nest),)
    )
    return replace(nest, axes=axes, body=tuple(map_stmt(s, {}, syms) for s in nest.body), sources=sources)


def source_of(nest: LoopNest) -> Source:
    """The nest as its own source."""
    return Source(nest, tuple(a.sym for a in nest.axes))


def dtypes(body: Iterable[Stmt], buffers: Mapping[str, Buffer]) -> dict[str, DType]:
    """The dtype of every value in a body."""
    out: dict[str, DType] = {}
    for s in body:
        if isinstance(s, Load):
            out[s.out] = buffers[s.buffer].dtype
        elif isinstance(s, (Index, Check)):
            out[s.out] = DType.I64
        elif isinstance(s, (Compute, Reduce)):
            out[s.out] = s.dtype
    return out


def phases(nest: LoopNest) -> tuple[list[Reduce], list[Stmt], list[Stmt]]:
    """The reductions of a nest, what runs at every point before them, and what runs once after them."""
    body, axes = nest.body, {a.sym for a in nest.reduced}
    reduces = [s for s in body if isinstance(s, Reduce)]
    outs = frozenset(r.out for r in reduces)
    stores = [s for s in body if isinstance(s, Store)]
    each = [s for s in stores if any(free_syms(e) & axes for e in s.index)]
    late_roots: list[Stmt] = [s for s in stores if s not in each]
    # an index that is checked for its refusal alone runs where its argument can
    used = [*_needed(body, [*reduces, *each], outs), *_needed(body, late_roots, outs)]
    alone = [s for s in body if isinstance(s, Check) and s not in used]
    late = [s for s in alone if any(isinstance(x, Reduce) for x in _needed(body, [s], frozenset()))]
    early = [s for s in alone if s not in late]
    before: list[Stmt] = [s for s in _needed(body, [*reduces, *each, *early], outs) if not isinstance(s, Reduce)]
    after: list[Stmt] = [s for s in _needed(body, [*late_roots, *late], outs) if not isinstance(s, Reduce)]
    return reduces, before, after


def _needed(body: Sequence[Stmt], roots: Sequence[Stmt], stop: frozenset[str]) -> list[Stmt]:
    """The statements that `roots` depend on, in order, not looking behind the values in `stop`."""
    wanted: set[str] = set()
    marked: set[int] = {id(r) for r in roots}
    for s in reversed(body):
        out = out_of(s)
        if id(s) in marked or (out is not None and out in wanted and out not in stop):
            marked.add(id(s))
            wanted |= {a for a in args_of(s) if isinstance(a, str)}
            wanted |= {y.name for e in exprs_of(s) for y in free_syms(e)}
    return [s for s in body if id(s) in marked and not (isinstance(s, Reduce) and out_of(s) in stop and s not in roots)]


class LoopError(AssertionError):
    """A nest breaks the grammar: a bug of ours, never the user's."""


def join(axes: Sequence[Axis]) -> Expr:
    """The number of a point of `axes`, row-major; an axis of extent 1 is always at 0."""
    out: Expr = ZERO
    for a in axes:
        if a.extent is not ONE:
            out = out * a.extent + a.sym
    return out
