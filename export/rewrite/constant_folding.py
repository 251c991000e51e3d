"""Ops on constants only, computed while the model is exported."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.graph import Constant, Graph, Op, Operand, TensorType, uses
from hardtack.codegen.ir.graph_ops import View as Viewed
from hardtack.codegen.ir.graph_ops import facts
from hardtack.codegen.ir.types import DType
from hardtack.codegen.ops import SCALAR_OPS
from hardtack.exporter.constants import store_tensor
from hardtack.exporter.reference import run_op
from hardtack.exporter.rewrite.dequantized import (
    STEPS,
    codes_of_step,
    converted,
    known_constant,
    literal,
    quantized,
    settled,
    viewed,
)
from hardtack.exporter.rewrite.known import Known

_GROWTH = 4
_FREE_NBYTES = 1 << 20
_SOURCES = ("full", "iota")
_NEVER = ("assert", "read", "cond", "while")
_INTEGERS = (DType.I32, DType.I64)


def _nbytes(t: TensorType) -> int | None:
    """Bytes of a tensor of constant shape, else None; also where a dimension beside the symbolic one is 0."""
    sizes = [ex.int_value(s) for s in t.shape]
    return None if None in sizes else math.prod(s or 0 for s in sizes) * t.dtype.nbytes


def fold(graph: Graph, store: ConstantStore) -> Graph:
    """Every op whose operands are constants or literals computed now, except where that makes a constant much larger.

    An op is folded if its results take at most four times the bytes of its operands, or at most 1 MiB. What is not
    worth keeping is folded only as an operand of other folded ops: `full` and `iota`; what repeats a constant, and wide
    integers on the way from codes of 8 bits to a weight, which count for what they are made of; constants of half types
    in f32 for scalar ops, which convert as they load.
    """
    return _Folding(graph, store).run()


class _Folding:
    """constants: those of the graph. known: what was computed, until its last reader has been folded. pending: ops that
    are folded only where their reader is, by output.
    """

    def __init__(self, graph: Graph, store: ConstantStore) -> None:
        self.graph, self.store = graph, store
        self.constants = {c.name: c for c in graph.constants}
        self.known: dict[str, Known] = {}
        self.pending: dict[str, Op] = {}
        self.kept: list[Op] = []
        self.read = {*graph.outputs, *graph.finals().values()}  # by what is not folded
        self.readers = Counter(x for op in graph.ops for x in set(uses(op)))
        self.scalar = _read_by_scalar_ops(graph)

    def run(self) -> Graph:
        for op in self.graph.ops:
            if self._waits(op):
                self.pending[op.outputs[0]] = op
                self._keep(op)
            elif self._foldable(op):
                self._compute(op)
            else:
                self._keep(op)
            self._forget(op)
        made = tuple(self._constant(name, known) for name, known in self.known.items())
        return replace(self.graph, ops=tuple(self.kept), constants=(*self.constants.values(), *made))

    def _constant(self, name: str, known: Known) -> Constant:
        key = store_tensor(self.store, known.value)
        return Constant(name, key, known.tensors, known.recipe, quantized(known, self.store))

    def _is_known(self, x: Operand) -> bool:
        return x in self.constants or x in self.known

    def _waits(self, op: Op) -> bool:
        """True for what is folded only where its reader is."""
        if op.kind in _SOURCES:
            return _is_static(op, self.graph)
        if not op.inputs or not isinstance(op.inputs[0], str):
            return False
        if _widens(op, self.graph) and self._is_known(op.inputs[0]):
            return op.outputs[0] in self.scalar
        repeats = op.kind == "expand" and self._is_known(op.inputs[0])
        moves = facts(op).view is Viewed.STRIDED and self._is_larger(op.inputs[0])
        return (repeats or moves or self._is_on_the_way(op)) and self._can_compute(op) and not self._foldable(op)

    def _is_on_the_way(self, op: Op) -> bool:
        """True for integers that are made of codes of 8 bits, as models do that take zero points from them."""
        if op.kind not in ("cast", "sub", "add") or self.graph.types[op.outputs[0]].dtype not in _INTEGERS:
            return False
        of_codes = self.graph.type_of(op.inputs[0]).dtype in (DType.I8, DType.U8) and op.kind == "cast"
        return of_codes or self._is_larger(op.inputs[0])

    def _is_larger(self, x: Operand) -> bool:
        """True for what waits since it is larger than what it is made of."""
        op = self.pending.get(x) if isinstance(x, str) else None
        return op is not None and op.kind not in _SOURCES and not _widens(op, self.graph)

    def _keep(self, op: Op) -> None:
        self.kept.append(op)
        self.read.update(uses(op))

    def _forget(self, op: Op) -> None:
        """Drops what nothing reads any more."""
        for x in set(uses(op)):
            self.readers[x] -= 1
            if not self.readers[x] and x not in self.read:
                self.known.pop(x, None)

    def _can_compute(self, op: Op) -> bool:
        names = [x for x in op.inputs if isinstance(x, str)]
        never = op.kind in _NEVER or facts(op).opaque or any(isinstance(x, Expr) for x in op.inputs)
        if never or not names or _has_symbols(op):
            return False
        sized = all(_nbytes(self.graph.types[o]) is not None for o in op.outputs)
        return sized and all(self._is_known(n) or n in self.pending for n in names)

    def _foldable(self, op: Op) -> bool:
        if not self._can_compute(op):
            return False
        total = sum(_nbytes(self.graph.types[o]) or 0 for o in op.outputs)
        return total <= _FREE_NBYTES or total <= _GROWTH * self._nbytes_behind(op)

    def _nbytes_behind(self, op: Op) -> int:
        """Of an op's operands, as they are stored."""
        names = [x for x in op.inputs if isinstance(x, str)]
        larger = [self._nbytes_behind(self.pending[n]) for n in names if self._is_larger(n)]
        return sum(larger) + sum(_nbytes(self.graph.types[n]) or 0 for n in names if not self._is_larger(n))

    def _compute(self, op: Op) -> None:
        operands = tuple(map(self._operand, op.inputs))
        values = run_op(op, tuple(map(_value, operands)), tuple(self.graph.types[o] for o in op.outputs), {})
        for name, value in zip(op.outputs, values, strict=True):
            self.known[name] = _known(op, operands, value, self.store)

    def _operand(self, x: Operand) -> Known | Operand:
        """A value as it is known, a literal as it is."""
        if not isinstance(x, str):
            return x
        if x in self.known:
            return self.known[x]
        if x in self.constants:
            return known_constant(self.constants[x], self.store)
        op = self.pending[x]
        operands = tuple(map(self._operand, op.inputs))
        (value,) = run_op(op, tuple(map(_value, operands)), (self.graph.types[x],), {})
        return _known(op, operands, value, self.store)


def _value(x: Known | Operand) -> torch.Tensor | Operand:
    return x.value if isinstance(x, Known) else x


def _known(op: Op, operands: Sequence[Known | Operand], value: torch.Tensor, store: ConstantStore) -> Known:
    """A result of an op, and what is known of it beside its numbers."""
    known = _described(op, operands, value, store)
    sources = [x for x in operands if isinstance(x, Known)]
    return replace(known, value=settled(value), of_bytes=all(x.of_bytes for x in sources))


def _described(op: Op, operands: Sequence[Known | Operand], value: torch.Tensor, store: ConstantStore) -> Known:
    sources = [x for x in operands if isinstance(x, Known)]
    tensors = tuple(sorted({t for x in sources for t in x.tensors}))
    if not sources:
        return Known(value)
    first = sources[0]
    if facts(op).view is Viewed.STRIDED:
        return viewed(op, first, value)
    if op.kind == "cast":
        return converted(first, value)
    if op.kind in STEPS:
        given = [x if isinstance(x, Known) else literal(x) for x in operands]
        return Known(value, tensors, codes=codes_of_step(op.kind, given, value, store))
    return Known(value, tensors)


def _read_by_scalar_ops(graph: Graph) -> set[str]:
    """The values that nothing but scalar ops reads."""
    others = {x for op in graph.ops if op.kind not in SCALAR_OPS for x in uses(op)}
    others |= {*graph.outputs, *graph.finals().values()}
    return set(graph.types) - others


def _widens(op: Op, graph: Graph) -> bool:
    """True for numbers of a half type in f32."""
    return op.kind == "cast" and graph.type_of(op.inputs[0]).dtype.is_half and op.attr("dtype") is DType.F32


def _is_static(op: Op, graph: Graph) -> bool:
    symbolic = any(isinstance(x, (str, Expr)) for x in op.inputs)
    return not symbolic and all(_nbytes(graph.types[o]) is not None for o in op.outputs)


def _has_symbols(op: Op) -> bool:
    def symbolic(v: object) -> bool:
        if isinstance(v, tuple):
            return any(map(symbolic, v))
        return isinstance(v, Expr) and ex.int_value(v) is None

    return any(symbolic(v) for _, v in op.attrs)
