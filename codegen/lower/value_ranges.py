"""Between which numbers the elements of a value lie, as far as the ops that make it say so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from hardtack.codegen.ir.graph import Graph, Lit, Op, Operand
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ir.types import INT_RANGE, DType

Range = tuple[float, float]
ANY: Range = (-math.inf, math.inf)
SEVEN_BITS: Range = (0, 127)
"""Bytes of which instructions may take the sign bit for a further digit."""


MOST_OPS = 64
"""In a row that are looked through."""
_WHOLE_NUMBERS = {DType.F64: 1 << 53, DType.F32: 1 << 24, DType.F16: 1 << 11, DType.BF16: 1 << 8}
"""Floats have all whole numbers up to these, so that none is rounded beyond a whole limit; those of 8 bits have not."""


def range_of(graph: Graph, producers: Mapping[str, Op], x: Operand) -> Range:
    """Limits of a number that is no NaN. producers: of each value the op that makes it.

    A NaN that becomes an integer is the lowest int32, cut to the type's bits: 0 in a byte. Wider integers that were
    made of a NaN lie outside of the limits that are given here.
    """
    return _Ranges(graph, producers, {}).of(x, MOST_OPS)


@dataclass(frozen=True)
class _Ranges:
    """found: of the values so far."""

    graph: Graph
    producers: Mapping[str, Op]
    found: dict[str, Range]

    def of(self, x: Operand, most: int) -> Range:
        """Of an operand, through so many ops."""
        if isinstance(x, Lit):
            return literal_number(x), literal_number(x)
        if not isinstance(x, str):
            return ANY
        if x not in self.found:
            self.found[x] = self._made(x, most)
        return self.found[x]

    def _made(self, x: str, most: int) -> Range:
        op, dtype = self.producers.get(x), self.graph.type_of(x).dtype
        own: Range = INT_RANGE[dtype] if dtype.is_int else ANY
        if op is None or most == 0:
            return own
        if is_view(op) or (op.kind == "pool" and op.str_attr("kind") == "max" and dtype.is_int):
            return self.of(op.inputs[0], most - 1)
        if op.kind == "round" or (op.kind in STEPS and literal_of(op) is not None and dtype is DType.F32):
            return stepped(op, self.of(next(y for y in op.inputs if not isinstance(y, Lit)), most - 1))
        if op.kind in ("min", "max", "cat"):
            ranges = [self.of(y, most - 1) for y in op.inputs]
            least = max if op.kind == "max" else min
            most_of = min if op.kind == "min" else max
            return least(lo for lo, _ in ranges), most_of(hi for _, hi in ranges)
        if op.kind == "code" and all(isinstance(y, Lit) for y in op.inputs[1:]):
            zero, top = (literal_number(y) for y in op.inputs[1:] if isinstance(y, Lit))
            lo, hi = (round(y) + zero if math.isfinite(y) else y for y in self.of(op.inputs[0], most - 1))
            return max(0, min(lo, top)), max(0, min(hi, top))
        if op.kind == "cast":
            return _converted(self.of(op.inputs[0], most - 1), dtype, own)
        if op.kind == "bitcast" and dtype.is_int and self.graph.type_of(op.inputs[0]).dtype.is_int:
            lo, hi = self.of(op.inputs[0], most - 1)
            return (lo, hi) if own[0] <= lo and hi <= own[1] else own
        return own


STEPS = ("min", "max", "mul", "add", "sub", "round")
"""Ops of one value of f32 and, but for `round`, a literal, of which `stepped` knows the limits."""


def literal_of(op: Op) -> Lit | None:
    """The one literal of an op of two operands whose other one is a value; None for any other op."""
    literals = [x for x in op.inputs if isinstance(x, Lit)]
    return literals[0] if len(op.inputs) == 2 and len(literals) == 1 else None


def literal_number(x: Lit) -> float:
    """A literal as kernels have it: one of f32 is rounded."""
    return float(np.float32(x.value)) if x.dtype is DType.F32 else float(x.value)


def stepped(op: Op, limits: Range) -> Range:
    """Limits behind an op of STEPS, in f32. Products and sums that may be rounded have the next numbers outside: a
    device may round a product and a sum at once."""
    if op.kind == "round":
        lo, hi = (round(x) if math.isfinite(x) else x for x in limits)
        return lo, hi
    literal = literal_of(op)
    assert literal is not None
    number = literal_number(literal)
    if op.kind in ("min", "max"):
        pick = min if op.kind == "min" else max
        return pick(limits[0], number), pick(limits[1], number)
    if not math.isfinite(number):
        return ANY
    if op.kind == "mul":
        return _outside(x * number for x in limits)
    turned = op.kind == "sub" and isinstance(op.inputs[0], Lit)
    ends = [number - x if turned else x - number if op.kind == "sub" else x + number for x in limits]
    whole = all(math.isfinite(x) and x.is_integer() for x in map(float, (*limits, number)))
    if whole and max(map(abs, ends)) <= _WHOLE_NUMBERS[DType.F32]:
        return min(ends), max(ends)
    return _outside(ends)


def _outside(ends: Iterable[float]) -> Range:
    """The floats next to limits that were computed in f64, in any order; ANY where one is no number. A product or sum
    that is 0 in f64 is 0."""
    found = sorted(ends)
    if any(map(math.isnan, found)):
        return ANY
    infinite = np.float32(np.inf)
    with np.errstate(over="ignore"):
        lo, hi = (np.nextafter(np.float32(x), side) for x, side in zip(found, (-infinite, infinite), strict=True))
    return (float(lo) if found[0] else 0.0), (float(hi) if found[1] else 0.0)


def _converted(limits: Range, dtype: DType, own: Range) -> Range:
    """Limits behind a conversion: whole ones, if the type has all whole numbers between them."""
    lo, hi = _whole(limits)
    if not math.isfinite(lo + hi):
        return own
    if dtype.is_int:
        return (lo, hi) if own[0] <= lo and hi <= own[1] else own
    most = _WHOLE_NUMBERS.get(dtype, 0)
    return (lo, hi) if -most <= lo and hi <= most else own


def _whole(limits: Range) -> Range:
    """The next whole numbers outside of limits."""
    lo, hi = limits
    return (math.floor(lo) if math.isfinite(lo) else lo), (math.ceil(hi) if math.isfinite(hi) else hi)


def has_seven_bits(graph: Graph, producers: Mapping[str, Op], x: Operand) -> bool:
    """Whether the bytes of a value, of int8 or uint8, are numbers from 0 to 127."""
    lo, hi = range_of(graph, producers, x)
    return SEVEN_BITS[0] <= lo and hi <= SEVEN_BITS[1]
