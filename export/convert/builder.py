"""Builder: the Graph under construction, and the small vocabulary in which convert functions speak.

Every method emits at most one op and types it by the rules of codegen.ir.graph_infer, so a wrong op fails where it
is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.expr import Expr, Sym, as_expr, const, int_value
from hardtack.codegen.ir.expr_walk import evaluate, free_syms
from hardtack.codegen.ir.graph import Guard, Lit, Op, Operand, Origin, TensorType, make_attrs
from hardtack.codegen.ir.graph_ops import derive
from hardtack.codegen.ir.types import INT_RANGE, DType
from hardtack.codegen.ops import SCALAR_OPS
from hardtack.exporter import dtypes
from hardtack.exporter.convert.table import Scalar, Size, Value
from hardtack.exporter.dtypes import TORCH_DTYPE, from_torch
from hardtack.exporter.errors import Refusal, SourceLine
from hardtack.exporter.sizes.shapes import make_guards

Arg = Value | Scalar | Lit
_WRAPPING = frozenset((
    "eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "div", "floordiv", "truncdiv", "remainder", "fmod", "and",
    "or", "xor", "shl", "shr",
))  # fmt: skip
"""Ops of whose integer scalars torch takes the low bits."""


class Builder:
    """Ops, types and guards so far, with the user's `lines` that guards come from; `origin`, `line` and `label` are
    those of the op being converted, `stated` its torch types. `examples` are the sizes that torch
    traced with, by symbol. `reads` are the sizes that the run reads, by names that are not `reserved`; `rng`: the
    state of random numbers, once there was a draw, of `num_drawn` in all; inside: of a branch or a loop, which has no
    states and reads nothing.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.types: dict[str, TensorType] = {}
        self.guards: list[Guard] = []
        self.lines: dict[Guard, SourceLine | None] = {}
        self.origin = Origin()
        self.line: SourceLine | None = None
        self.label = "v"
        self.stated: tuple[TensorType | None, ...] = ()
        self.made: dict[str, tuple[Value, torch.Tensor]] = {}
        self.examples: dict[str, int] = {}
        self.reads: list[Sym] = []
        self.reserved: frozenset[str] = frozenset()
        self.rng: Value | None = None
        self.num_drawn: Expr = const(0)
        self.inside = False

    def name(self, wish: str) -> str:
        """`wish`, or wish.1, wish.2, ... if it is taken."""
        if wish not in self.types:
            return wish
        n = 1
        while f"{wish}.{n}" in self.types:
            n += 1
        return f"{wish}.{n}"

    def declare(self, wish: str, type_: TensorType) -> Value:
        """A value that no op defines: an input, a constant or a state."""
        name = self.name(wish)
        self.types[name] = type_
        return Value(name, type_)

    def constant(self, name: str, content: torch.Tensor) -> Value:
        """A constant that conversion needs; asked for twice by the same name and dtype, it is made once."""
        key = f"{name}_{from_torch(content.dtype)}"
        if key not in self.made:
            shape = tuple(const(int(s)) for s in content.shape)
            self.made[key] = self.declare(key, TensorType(from_torch(content.dtype), shape)), content
        return self.made[key][0]

    def traced(self, size: Expr) -> int | None:
        """What a size was while torch traced the program; None where torch has not kept that."""
        if not all(s.name in self.examples for s in free_syms(size)):
            return None
        return evaluate(size, self.examples)

    def read(self, number: Value, most: int | None, least: int = 0) -> Sym:
        """A size that is known from here on: the value of an i64 scalar, from `least` to `most` (None: no bound)."""
        if self.inside:
            raise Refusal(
                "a size that the run computes inside of a branch or a loop: compute it outside, and pass it in"
            )
        count = len(self.reads)
        name = next(n for n in (f"u{count}{'_' * k}" for k in range(64)) if n not in self.reserved)
        sym = ex.sym(name, least, most)
        self.reads.append(sym)
        self.multi("read", number, sym=sym)
        return sym

    def require(self, relation: str, a: Size, b: Size, why: str) -> None:
        """State that a relation of sizes must hold; it becomes an input check unless it is known to hold."""
        try:
            found = make_guards(relation, as_expr(a), as_expr(b))
        except Refusal as refusal:
            raise Refusal(f"{why}: {refusal}") from refusal
        for g in found:
            if not any((g.relation, g.a, g.b) == (h.relation, h.a, h.b) for h in self.guards):
                self.guards.append(Guard(g.relation, g.a, g.b, f"{why}: {g.text}"))
                self.lines[self.guards[-1]] = self.line

    def require_sizes(self, type_: TensorType | None) -> None:
        """State that no size of a result is negative: torch has traced with sizes from 2 on."""
        for size in () if type_ is None else type_.shape:
            lo = ex.bounds(size)[0]
            if lo is None or lo < 0:
                self.require("le", 0, size, f"{self.origin.op} has a result")

    def same(self, a: Expr, b: Expr) -> bool:
        """True; sizes that torch knows to be equal but whose forms differ become a guard. False if they cannot be
        equal.
        """
        if a is b:
            return True
        lo, hi = ex.bounds(a - b)
        if (lo is not None and lo > 0) or (hi is not None and hi < 0):
            return False
        self.require("eq", a, b, f"sizes that {self.origin.op or 'an op'} takes to be equal")
        return True

    @property
    def result(self) -> TensorType:
        """The type that torch gives for the (first) output of the op being converted."""
        found = self.stated[0]
        assert found is not None
        return found

    def multi(
        self, kind: str, /, *operands: Arg, stated: Sequence[TensorType] = (), **attrs: object
    ) -> tuple[Value, ...]:
        """Emit an op of any kind; `stated` gives output types where the kind leaves them open."""
        if kind in SCALAR_OPS:
            operands = self._with_ones(operands)
        inputs = tuple(self._operand(o) for o in operands)
        op = Op(kind, inputs, make_attrs(**attrs), (), self.origin)
        types = tuple(self._type(o) for o in inputs)
        derived = derive(op, types, tuple(stated), self.same)
        names: list[str] = []
        for t in derived:
            names.append(self.declare(self.label, t).name)
        self.ops.append(Op(kind, inputs, op.attrs, tuple(names), self.origin))
        return tuple(Value(n, t) for n, t in zip(names, derived, strict=True))

    def op(self, kind: str, /, *operands: Arg, stated: TensorType | None = None, **attrs: object) -> Value:
        """Emit an op with one output."""
        return self.multi(kind, *operands, stated=() if stated is None else (stated,), **attrs)[0]

    def _with_ones(self, operands: tuple[Arg, ...]) -> tuple[Arg, ...]:
        """The operands of a pointwise op, each cut to the ones of its shape that the others have not."""
        shapes = {o.shape for o in operands if isinstance(o, Value)}
        if len(shapes) < 2:
            return operands
        rank = max(map(len, shapes))
        sizes = [{s[d] for s in shapes if len(s) >= -d} for d in range(-rank, 0)]
        target = [next((s for s in found if self.traced(s) != 1), None) for found in sizes]
        return tuple(self.cut_to_ones(o, target) if isinstance(o, Value) else o for o in operands)

    def cut_to_ones(self, x: Value, target: Sequence[Expr | None]) -> Value:
        """x with a 1 where its size is 1 for every size that torch knows and `target`, to which it is broadcast, has
        another: min(1, n - 1), of n from 2 on. None in `target`: there x stays as it is.
        """
        shape = x.shape
        for d in range(-min(x.rank, len(target)), 0):
            size, wanted = shape[d], target[d]
            broadcast = wanted is not None and wanted is not size and self.traced(wanted) != 1
            if broadcast and int_value(size) is None and self.traced(size) == 1:
                self.require("eq", size, 1, f"{self.origin.op or 'an op'} broadcasts it")
                x = self.slice(x, x.rank + d, 0, 1)
        return x

    def _operand(self, o: Arg) -> Operand:
        if isinstance(o, Value):
            return o.name
        if isinstance(o, (Lit, Expr)):
            return o
        dtype = DType.BOOL if isinstance(o, bool) else DType.I64 if isinstance(o, int) else DType.F64
        return Lit(o, dtype)

    def _type(self, o: Operand) -> TensorType:
        if isinstance(o, str):
            return self.types[o]
        return TensorType(o.dtype if isinstance(o, Lit) else DType.I64, ())

    def cast(self, x: Arg, dtype: DType) -> Value | Lit:
        """x as `dtype`; nothing is emitted for a value that has it, literals are converted here."""
        if isinstance(x, Lit):
            return x if x.dtype is dtype else literal(_number(x), dtype)
        if isinstance(x, (bool, int, float)):
            return literal(x, dtype)
        if isinstance(x, Expr):
            constant = int_value(x)
            if constant is not None:
                return literal(constant, dtype)
            return self.op("cast", x, dtype=dtype)
        return self.to(x, dtype)

    def pw(self, kind: str, *args: Arg, dtype: DType | None = None) -> Value:
        """A pointwise op on args cast to `dtype` (given, or that of the first Value)."""
        dtype = dtype or next(a.dtype for a in args if isinstance(a, (Value, Lit)))
        if kind in _WRAPPING and not dtype.is_float:
            args = tuple(literal(a, dtype, wraps=True) if isinstance(a, int) else a for a in args)
        return self.op(kind, *(self.cast(a, dtype) for a in args))

    def where(self, condition: Value, a: Arg, b: Arg, dtype: DType) -> Value:
        """condition ? a : b."""
        return self.op("where", condition, self.cast(a, dtype), self.cast(b, dtype))

    def tensor(self, x: Value | Lit, dtype: DType | None = None) -> Value:
        """x as a value: literals become a rank-0 full."""
        if isinstance(x, Value):
            return x if dtype is None else self.to(x, dtype)
        return self.op("full", x, stated=TensorType(x.dtype, ()))

    def to(self, x: Value, dtype: DType) -> Value:
        """x cast to dtype, as a Value."""
        if x.dtype is dtype:
            return x
        if dtype is DType.F8E4M3 and not dtypes.E4M3_SATURATES:
            x = self._within_e4m3(x)
        return self.op("cast", x, dtype=dtype)

    def _within_e4m3(self, x: Value) -> Value:
        """x as f32, a NaN of its sign where torch makes that of what float8_e4m3fn cannot hold."""
        x = self.to(x, DType.F32)
        beyond = self.pw("gt", self.op("abs", x), dtypes.E4M3_LAST)
        return self.where(beyond, self.pw("copysign", math.nan, x, dtype=DType.F32), x, DType.F32)

    def wide(self, x: Value) -> Value:
        """x in the type in which torch accumulates: f32 for the half types."""
        return self.to(x, DType.F32) if x.dtype.is_half else x

    def reshape(self, x: Value, shape: Sequence[Size]) -> Value:
        """The same elements, another shape."""
        target = tuple(as_expr(s) for s in shape)
        if target == x.shape:
            return x
        return self.op("reshape", x, stated=TensorType(x.dtype, target))

    def permute(self, x: Value, dims: Sequence[int]) -> Value:
        order = tuple(d % x.rank for d in dims)
        return x if order == tuple(range(x.rank)) else self.op("permute", x, dims=order)

    def swap(self, x: Value, a: int, b: int) -> Value:
        """x with two dims exchanged."""
        order = list(range(x.rank))
        order[a], order[b] = order[b], order[a]
        return self.permute(x, order)

    def expand(self, x: Value, shape: Sequence[Size]) -> Value:
        target = tuple(as_expr(s) for s in shape)
        if target == x.shape:
            return x
        return self.op("expand", self.cut_to_ones(x, target), stated=TensorType(x.dtype, target))

    def slice(self, x: Value, dim: int, start: Size, length: Size, step: int = 1) -> Value:
        """length elements of dim from start, every step-th. What is not known to lie inside becomes an input check."""
        size, first, count = x.shape[dim], as_expr(start), as_expr(length)
        if first is const(0) and step == 1 and count is size:
            return x
        if int_value(count) != 0:
            why = f"{self.origin.op or 'slice'} stays inside its input"
            self.require("le", 0, first, why)  # the last element is no element of none
            self.require("le", first + (count - 1) * step + 1, size, why)
        shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
        begin: Size = int_value(first) if int_value(first) is not None else first  # type: ignore[assignment]
        return self.op("slice", x, stated=TensorType(x.dtype, shape), dim=dim, start=begin, step=step)

    def select(self, x: Value, dim: int, index: Size) -> Value:
        """x at `index` of `dim`, that dim left out."""
        one = self.slice(x, dim, index, 1)
        return self.reshape(one, (*x.shape[:dim], *x.shape[dim + 1 :]))

    def unsqueeze(self, x: Value, dim: int) -> Value:
        at = dim % (x.rank + 1)
        return self.reshape(x, (*x.shape[:at], 1, *x.shape[at:]))

    def cat(self, parts: Sequence[Value], dim: int) -> Value:
        if len(parts) == 1:
            return parts[0]
        first, at = parts[0].shape, dim % parts[0].rank
        # sizes that a guard makes equal get one form: each part is stored up to its own
        same = [self.expand(x, (*first[:at], x.shape[at], *first[at + 1 :])) for x in parts]
        return self.op("cat", *same, dim=at)

    def pad(self, x: Value, lo: Sequence[Size], hi: Sequence[Size], value: Scalar = 0) -> Value:
        """x with constant borders; negative widths crop."""
        if all(int_value(w) == 0 for w in (*lo, *hi)):
            return x
        fill = self.cast(value, x.dtype)
        return self.op("pad", x, fill, lo=tuple(map(_attr, lo)), hi=tuple(map(_attr, hi)), mode="constant")

    def full(self, shape: Sequence[Size], value: Arg, dtype: DType) -> Value:
        fill = self.cast(value, dtype)
        if isinstance(fill, Value):
            return self.expand(fill, shape)
        return self.op("full", fill, stated=TensorType(dtype, tuple(as_expr(s) for s in shape)))

    def iota(self, size: Size) -> Value:
        """0, 1, ... size - 1 as i64."""
        return self.op("iota", stated=TensorType(DType.I64, (as_expr(size),)), dim=0)

    def reduce(self, x: Value, kind: str, dims: Sequence[int], keepdim: bool, empty_ok: bool = False) -> Value:
        """A reduction over dims. The extreme of nothing is refused, by a guard if need be, unless `empty_ok`: then
        it is the identity, and the caller makes sure that no element of the model's result shows it.
        """
        order = tuple(sorted({d % max(x.rank, 1) for d in dims}))
        if x.rank == 0:
            return self._reduce_scalar(x, kind)
        if kind in ("max", "min", "argmax", "argmin") and not empty_ok:
            for d in order:
                self.require("le", 1, x.shape[d], f"{kind} needs an element")
        return self.op("reduce", x, kind=kind, dims=order, keepdim=bool(keepdim))

    def _reduce_scalar(self, x: Value, kind: str) -> Value:
        if kind == "sum" and x.dtype.is_float:
            return self.pw("add", x, 0.0)  # a sum begins at 0, to which -0 adds nothing
        return self.full((), 0, DType.I64) if kind.startswith("arg") else x

    def mean(self, x: Value, dims: Sequence[int], keepdim: bool) -> Value:
        """The arithmetic mean of a float tensor, in its own dtype."""
        return self.over(self.reduce(x, "sum", dims, keepdim), x, dims)

    def over(self, total: Value, x: Value, dims: Sequence[int]) -> Value:
        """A sum of x over dims divided by how many there are."""
        count = ex.product(x.shape[d % x.rank] for d in dims) if x.rank else const(1)
        size = int_value(count)
        if size == 1:
            return total
        if size is not None and size & (size - 1) == 0 and size > 0:
            return self.pw("mul", total, 1.0 / size)
        return self.pw("div", total, count)

    def matmul(self, a: Value, b: Value, wide: bool = False) -> Value:
        """a @ b; of half types in f32, if `wide`."""
        return self.op("matmul", a, b, dtype=DType.F32) if wide and a.dtype.is_half else self.op("matmul", a, b)


def _attr(size: Size) -> Size:
    value = int_value(size)
    return size if value is None else value


def _float8_literal(value: float, dtype: DType) -> Lit:
    most = torch.finfo(TORCH_DTYPE[dtype]).max
    if math.isfinite(value) and abs(value) > most:
        raise Refusal(f"the scalar {value} does not fit {dtype} ({-most} to {most})")
    return Lit(int(torch.tensor(value).to(TORCH_DTYPE[dtype]).view(torch.uint8)), dtype)


def _number(x: Lit) -> bool | int | float:
    """What a literal stands for."""
    if not x.dtype.is_float8:
        return x.value
    return float(torch.tensor(x.value, dtype=torch.uint8).view(TORCH_DTYPE[x.dtype]))


def literal(value: Any, dtype: DType, wraps: bool = False) -> Lit:
    """A Python number as a literal of `dtype`, converted as torch converts a scalar: by its low bits where the op
    `wraps` or the number is -255 to -1 and the type u8. Refusal for others that do not fit.
    """
    if dtype is DType.BOOL:
        return Lit(bool(value), dtype)
    if dtype.is_float:
        return Lit(float(value), dtype)
    if dtype.is_float8:
        return _float8_literal(float(value), dtype)
    if isinstance(value, float) and not math.isfinite(value):
        raise Refusal(f"the scalar {value} cannot be converted to {dtype}")
    whole = int(value)
    lo, hi = INT_RANGE[dtype]
    if not (wraps or (lo or -hi) <= whole <= hi) or whole.bit_length() > 64:
        raise Refusal(f"the scalar {whole} does not fit {dtype} ({lo} to {hi})")
    return Lit((whole - lo) % (hi - lo + 1) + lo, dtype)
