"""What the lowering rules share: the context of a graph being lowered, and a builder of loop nests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hardtack.codegen.ir.constants import Packing, View
from hardtack.codegen.ir.expr import ONE, ZERO, Const, Expr, Sym, as_expr, bounds, known_in_range, sym
from hardtack.codegen.ir.graph import Graph, Lit, Op, Operand, Origin, Quantized, uses
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.loops import (
    Arg,
    Axis,
    Buffer,
    Check,
    Compute,
    Index,
    Load,
    LoopNest,
    Reduce,
    Stmt,
    Store,
    exact,
)
from hardtack.codegen.ir.nests import Nest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.views import Idx, broadcast_index, resolve
from hardtack.codegen.machine.machine import Machine
from hardtack.codegen.ops import SCALAR_OPS, result_dtype
from hardtack.codegen.tune.choice import NO_TUNING, Tuning


class UnsupportedOp(ValueError):
    """An op that a backend has no kernel for; the message names the op and the user's line."""

    def __init__(self, origin: Origin, device: str, why: str) -> None:
        super().__init__(f"{origin}: {why} on {device}")
        self.origin = origin


@dataclass(frozen=True)
class Prepack:
    """A constant to be made at export: `kind` names the packing, applied to a view of the constant `source`."""

    kind: str
    source: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    params: tuple[int, ...] = ()


@dataclass(frozen=True)
class JoinPart:
    """What a joined constant takes of the constant `source`, and where it goes. Both views have one shape, but for a
    packing, of what the first one picks."""

    source: str
    view: View
    into: View
    packing: Packing | None = None


@dataclass(frozen=True)
class Join:
    """A constant of `shape` to be made at export of several: zeros, then each part's elements where they belong."""

    shape: tuple[int, ...]
    parts: tuple[JoinPart, ...]


Made = Prepack | Join
"""How a constant is made at export of the graph's."""


@dataclass
class Lowering:
    """A graph on its way to nests. `buffers` has every value that may be in memory; views have none.

    machine: what it is built for; of CPUs of one layout, the first. hints: example sizes of symbols by name, for
    decisions of profit. tuning: where plans of templates come from, before the cost model. owners: the buffers of
    lower/gpu_last_writes.py, by places. in_place: values that take the memory of `overwritten` ones. quantized: of
    constants by name, what they were dequantised from.
    """

    graph: Graph
    producers: Mapping[str, Op]
    buffers: dict[str, Buffer]
    machine: Machine
    nests: list[Nest] = field(default_factory=list)
    prepacks: dict[str, Made] = field(default_factory=dict)
    constants: frozenset[str] = frozenset()
    in_place: frozenset[str] = frozenset()
    overwritten: frozenset[str] = frozenset()
    counter: int = 0
    hints: Mapping[str, int] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    tuning: Tuning = NO_TUNING
    owners: dict[tuple[object, ...], str] = field(default_factory=dict)
    quantized: Mapping[str, Quantized] = field(default_factory=dict)

    def decide(self, subject: str, choice: str, reason: str) -> None:
        """Record a choice of kernel."""
        self.decisions.append(Decision("template", subject, choice, True, reason))

    def fresh(self, stem: str) -> str:
        """A buffer or nest name that nothing else has."""
        self.counter += 1
        return f"{stem}.{self.counter}"

    def temporary(self, stem: str, dtype: DType, shape: Iterable[Expr], order: tuple[int, ...] | None = None) -> Buffer:
        """A buffer for a value that the graph does not name."""
        dims = tuple(shape)
        buffer = Buffer(self.fresh(stem), dtype, dims, order or tuple(range(len(dims))))
        self.buffers[buffer.name] = buffer
        return buffer

    @cached_property
    def readers(self) -> Mapping[str, tuple[Op, ...]]:
        """value -> the graph's ops that read it."""
        found: dict[str, dict[int, Op]] = {}
        for k, op in enumerate(self.graph.ops):
            for name in uses(op):
                found.setdefault(name, {})[k] = op
        return {name: tuple(ops.values()) for name, ops in found.items()}

    def readers_of(self, value: str) -> Iterator[Op]:
        """The ops that read a value or views of it."""
        for op in self.readers.get(value, ()):
            if is_view(op):
                for out in op.outputs:
                    yield from self.readers_of(out)
            else:
                yield op

    def locate(self, value: str, index: Idx) -> tuple[str, Idx]:
        """Buffer and index behind a value's element, views followed."""
        return resolve(self.graph, self.producers, value, index)

    def emit(self, nest: Nest) -> None:
        self.nests.append(nest)


class NestBuilder:
    """Builds one LoopNest. Values are SSA names; `loop` makes the parallel axes from a buffer's shape and order."""

    def __init__(self, lowering: Lowering, name: str, origin: Origin) -> None:
        self.low, self.name, self.origin = lowering, name, origin
        self.axes: list[Axis] = []
        self.body: list[Stmt] = []
        self.types: dict[str, DType] = {}
        self._memo: dict[object, str] = {}

    def _out(self, dtype: DType) -> str:
        name = f"v{len(self.types)}"
        self.types[name] = dtype
        return name

    def axis(self, extent: Expr, kind: str = "parallel") -> Expr:
        """A new axis' symbol; 0 for an extent of 1, which needs no loop."""
        if extent is ONE:
            return ZERO
        stem = "i" if kind == "parallel" else "r"
        s = sym(f"{stem}{len(self.axes)}", extent=extent)
        self.axes.append(Axis(s, extent, kind))
        return s

    def loop(self, shape: tuple[Expr, ...], order: tuple[int, ...]) -> Idx:
        """Parallel axes over `shape`, outermost first in `order`; the logical index."""
        index: dict[int, Expr] = {d: self.axis(shape[d]) for d in order}
        return tuple(index[d] for d in range(len(shape)))

    def _add(self, key: object, stmt: Stmt) -> str:
        # equal statements give one value: loads repeated through views are made once
        if key not in self._memo:
            self.body.append(stmt)
            self._memo[key] = stmt.out  # type: ignore[union-attr]
        else:
            del self.types[stmt.out]  # type: ignore[union-attr]
        return self._memo[key]

    def load(self, value: Operand, index: Idx, mask: str | None = None, other: Lit | None = None) -> Arg:
        """value[index] as an SSA argument, through views; scalars need no index."""
        if isinstance(value, Lit):
            return value
        if isinstance(value, Expr):
            return self.index(value)
        buffer, at = self.low.locate(value, index)
        return self.load_buffer(buffer, at, mask, other)

    def load_buffer(self, buffer: str, index: Idx, mask: str | None = None, other: Lit | None = None) -> str:
        out = self._out(self.low.buffers[buffer].dtype)
        return self._add(("load", buffer, index, mask, exact(other)), Load(out, buffer, index, mask, other))

    def broadcast(self, value: Operand, index: Idx) -> Arg:
        """value at an output index, numpy's broadcasting rules applied."""
        if not isinstance(value, str):
            return self.load(value, ())
        return self.load(value, broadcast_index(self.low.graph.types[value].shape, index))

    def dtype(self, arg: Arg) -> DType:
        return self.types[arg] if isinstance(arg, str) else arg.dtype

    def compute(self, op: str, *args: Arg, dtype: DType | None = None) -> str:
        """A scalar op of the table."""
        result = result_dtype(SCALAR_OPS[op], tuple(self.dtype(a) for a in args), dtype)
        key = ("compute", op, tuple(map(exact, args)), result)
        return self._add(key, Compute(self._out(result), op, args, result))

    def cast(self, arg: Arg, dtype: DType) -> Arg:
        return arg if self.dtype(arg) is dtype else self.compute("cast", arg, dtype=dtype)

    def wide(self, arg: Arg) -> Arg:
        """arg in the type in which sums of it are taken: f32 for the half types."""
        return self.cast(arg, DType.F32) if self.dtype(arg).is_half else arg

    def index(self, expr: Expr) -> Arg:
        """An Expr as an i64 value."""
        if isinstance(expr, Const):
            return Lit(expr.value, DType.I64)
        return self._add(("index", expr), Index(self._out(DType.I64), expr))

    def check(self, arg: Arg, size: Expr, wraps: bool = True) -> Sym:
        """A data-dependent index as a symbol that may stand in Exprs. wraps: a negative one counts from the end, else
        it is out of range."""
        wide = self.cast(arg, DType.I64)
        if not wraps:
            negative = self.compute("lt", wide, Lit(0, DType.I64))
            wide = self.compute("where", negative, self.index(size), wide)
        name = self._add(("check", wide, size), Check(self._out(DType.I64), wide, size))
        return check_symbol(name, size)

    def all_of(self, conditions: list[str]) -> str | None:
        """The conjunction; None for no condition."""
        result: str | None = None
        for c in conditions:
            result = c if result is None else self.compute("and", result, c)
        return result

    def inside(self, index: Expr, size: Expr) -> list[str]:
        """The conditions 0 <= index < size that are not known to hold."""
        if known_in_range(index, size):
            return []
        conditions: list[str] = []
        value = self.index(index)
        if (bounds(index)[0] or 0) < 0 or bounds(index)[0] is None:
            conditions.append(self.compute("ge", value, Lit(0, DType.I64)))
        conditions.append(self.compute("lt", value, self.index(as_expr(size))))
        return conditions

    def reduce(self, kind: str, *args: Arg, dtype: DType) -> str:
        """A reduction over the reduce axes; sums and products of half types are accumulated in f32 and rounded once."""
        if dtype.is_half and kind in ("sum", "prod"):
            total = self.reduce(kind, *(self.cast(a, DType.F32) for a in args), dtype=DType.F32)
            return self.compute("cast", total, dtype=dtype)
        out = self._out(dtype)
        self.body.append(Reduce(out, kind, args, dtype))
        return out

    def total(self, value: Arg) -> Arg:
        """The sum over the reduce axes; the value itself where there are none."""
        reduced = any(a.kind == "reduce" for a in self.axes)
        return self.reduce("sum", value, dtype=self.dtype(value)) if reduced else value

    def store(self, buffer: str, index: Idx, value: Arg, mode: str = "set") -> None:
        self.body.append(Store(buffer, index, value, mode))

    def done(self, serial: bool = False) -> None:
        """Finish: parallel axes first, the nest goes to the lowering."""
        axes = sorted(self.axes, key=lambda a: a.kind != "parallel")
        self.low.emit(LoopNest(self.name, tuple(axes), tuple(self.body), serial, self.origin))


def check_symbol(name: str, size: Expr) -> Sym:
    """The symbol by which Exprs refer to a Check's result."""
    return sym(name, extent=size)


def start(low: Lowering, op: Op, out: str | None = None) -> tuple[NestBuilder, Buffer, Idx]:
    """A nest that walks the buffer of op's (first) output in memory order."""
    buffer = low.buffers[out or op.outputs[0]]
    builder = NestBuilder(low, buffer.name, op.origin)
    return builder, buffer, builder.loop(buffer.shape, buffer.order)


def lit_of(value: bool | int | float, dtype: DType) -> Lit:
    """A literal of `dtype` from any Python number."""
    if dtype.is_float:
        return Lit(float(value), dtype)
    return Lit(bool(value) if dtype is DType.BOOL else int(value), dtype)
