"""Values that stand for codes: (codes - zero) * scale of int8 or uint8, by whatever ops and views a model says it.

What `affine_codes` finds follows from what each op computes, not from who wrote it: a conversion of bytes starts it,
sums with a whole number move its zero, products make its scale, views move its elements. Each step is taken only where
the codes, and the sums that are made of them, stay the whole numbers that they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.graph import Constant, Graph, Lit, Op, Operand, QuantizedStep, TensorType
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.value_ranges import has_seven_bits, range_of

CODES = (DType.I8, DType.U8)
FROM_U8 = 128
"""What an int8 is less than the uint8 that it stands for, where that has eight bits."""
_WHOLE = (DType.I32, DType.I64)
"""Types that have all codes less a zero point."""
_MOST_ZERO = 1 << 15
"""Zero points up to here; sums of products with larger ones may leave int32 anyway."""


@dataclass(frozen=True)
class Viewed:
    """A number for each element of a value that lies behind views: `operand` broadcasts to `shape`, then the views, the
    first one first, then the product's operand has its shape. One without views broadcasts to what is asked for."""

    operand: Operand
    shape: TensorType
    views: tuple[Op, ...] = ()


@dataclass(frozen=True)
class AffineCodes:
    """A product's operand: (codes - zero) * scales[0] * scales[1] .. in that order. zero: whole, between the numbers of
    `zeros`; None: 0. dtype: that of what is read as codes, i8 or u8; less: what an int8 is less than its code."""

    codes: Viewed
    dtype: DType
    less: int
    zero: Viewed | None
    zeros: tuple[int, int]
    scales: tuple[Viewed, ...]


class NotCodes(ValueError):
    """Why an operand that is made of codes does not stand for them."""


@dataclass(frozen=True)
class Facts:
    """A graph's producers, its constants, and the values that affine steps make of codes."""

    graph: Graph
    producers: Mapping[str, Op]
    constants: Mapping[str, Constant]
    chains: frozenset[Operand]

    def type_of(self, x: Operand) -> TensorType:
        return self.graph.type_of(x)


def facts_of(graph: Graph) -> Facts:
    """Of a graph."""
    producers = {out: op for op in graph.ops for out in op.outputs}
    return Facts(graph, producers, {c.name: c for c in graph.constants}, frozenset(_chains(graph)))


def _chains(graph: Graph) -> set[Operand]:
    """The values that conversions, products and sums make of codes, each element of its own. A conversion of floats to
    whole numbers rounds, and is none."""
    found: set[Operand] = {name for name, t in graph.types.items() if t.dtype in CODES}
    for op in graph.ops:
        if op.kind not in ("cast", "mul", "sub", "add"):
            continue
        (out,) = op.outputs
        t = graph.types[out]
        from_codes = op.inputs[:1] if op.kind in ("cast", "sub") else op.inputs
        rounds = op.kind == "cast" and t.dtype in _WHOLE and graph.type_of(op.inputs[0]).dtype is DType.F32
        steps = t.dtype is DType.F32 or (t.dtype in _WHOLE and op.kind != "mul" and not rounds)
        if steps and any(x in found and graph.type_of(x).shape == t.shape for x in from_codes):
            found.add(out)
    return found


def affine_codes(facts: Facts, value: str) -> AffineCodes | None:
    """What a value of f32 stands for; None for one that is not made of codes. Raises NotCodes where it is, in a form
    that sums of codes cannot have."""
    views: list[Op] = []
    name = value
    while is_view(op := facts.producers.get(name)):
        assert op is not None
        views.insert(0, op)
        name = op.value(0)
    if name in facts.constants:
        return _of_constant(facts, name, tuple(views))
    return _of_steps(facts, name, tuple(views))


def _of_constant(facts: Facts, name: str, views: tuple[Op, ...]) -> AffineCodes | None:
    q, t = facts.constants[name].quantized, facts.type_of(name)
    if q is None or q.dtype.is_float8:
        return None
    zero: Viewed | None = None
    zeros = (0, 0)
    scales: list[Viewed] = []
    for step in q.steps:
        if step.result is not DType.F32 or t.dtype is not DType.F32:
            raise NotCodes(f"its weight is rounded to {step.result}")
        if any(n not in (1, int_value(size)) for n, size in zip(step.runs, t.shape, strict=True)):
            raise NotCodes("its weight has scales of groups")
        table = Viewed(f"{name}.{step.table.name}", t, views)
        if step.kind == "mul":
            scales.append(table)
            continue
        if scales or zero is not None or step.kind == "add":
            raise NotCodes("numbers are added to its weight behind a scale, or twice")
        zeros = _zeros_of(step)
        zero = table
    codes, less = (q.codes, 0) if q.signed is None else (q.signed, FROM_U8)
    return AffineCodes(Viewed(f"{name}.{codes.name}", t, views), DType.I8, less, zero, zeros, tuple(scales))


def _zeros_of(step: QuantizedStep) -> tuple[int, int]:
    if step.limits is None or max(-step.limits[0], step.limits[1]) > _MOST_ZERO:
        raise NotCodes("its weight has zero points that are no whole numbers, or can be replaced")
    return step.limits


def _of_steps(facts: Facts, name: str, views: tuple[Op, ...]) -> AffineCodes | None:
    """Ops from the last to the first: products, one sum, conversions of whole numbers."""
    if facts.type_of(name).dtype is not DType.F32 or name not in facts.chains:
        return None
    shape = facts.type_of(name)
    scales: list[Viewed] = []
    zero: Viewed | None = None
    zeros = (0, 0)
    while (dtype := facts.type_of(name).dtype) not in CODES:
        op = facts.producers[name]
        if op.kind == "cast":
            name = op.value(0)
            continue
        name, other = _chain_and_other(facts, op)
        if op.kind == "mul" and dtype is DType.F32:
            if zero is not None:
                raise NotCodes("numbers are added to its activation behind a scale")
            scales.insert(0, Viewed(other, shape, views))
            continue
        if isinstance(other, Lit) and other.value == 0:
            continue
        if op.kind == "add" and isinstance(other, Lit):
            other = Lit(-other.value, other.dtype)
        elif op.kind == "add":
            raise NotCodes("numbers are added to its activation's codes")
        if zero is not None:
            raise NotCodes("zero points are subtracted twice from its activation's codes")
        zeros = _whole_range(facts, other)
        zero = Viewed(other, shape, views)
    dtype = facts.type_of(name).dtype
    less = 0 if dtype is DType.I8 or has_seven_bits(facts.graph, facts.producers, name) else FROM_U8
    return AffineCodes(Viewed(name, shape, views), dtype, less, zero, zeros, tuple(scales))


def _chain_and_other(facts: Facts, op: Op) -> tuple[str, Operand]:
    """The operand that is made of codes, and what is done to it."""
    shape = facts.type_of(op.outputs[0]).shape
    k = next(k for k, x in enumerate(op.inputs) if x in facts.chains and facts.type_of(x).shape == shape)
    return op.value(k), op.inputs[1 - k]


def _whole_range(facts: Facts, x: Operand) -> tuple[int, int]:
    """The least and the largest that a whole number may be. Raises NotCodes for one that may be any, or is none."""
    lo, hi = range_of(facts.graph, facts.producers, x)
    if not _is_whole(facts, x) or max(-lo, hi) > _MOST_ZERO:
        raise NotCodes("its activation has a zero point that may be any number")
    return int(lo), int(hi)


def _is_whole(facts: Facts, x: Operand) -> bool:
    """Whether a number is whole: an integer, or converted from one. One of float that was rounded may be NaN."""
    if isinstance(x, Lit):
        return float(x.value).is_integer()
    if not isinstance(x, str) or facts.type_of(x).dtype.is_int:
        return isinstance(x, str)
    op = facts.producers.get(x)
    if op is None or not (is_view(op) or op.kind == "cast"):
        return False
    return _is_whole(facts, op.inputs[0])
