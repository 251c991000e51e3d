"""Products of what codes stand for become products of the codes: int8 by int8, added up in int32.

    y = matmul((a - za) * sa, (b - zb) * sb)
becomes
    y = (matmul(a, b) - za * sum(b) - zb * (sum(a) - K * za)) * sa * sb

where sums are over K, those of constants made at export. All but the scales is whole, and exact: what could leave int32
stays a product of float32, and so does one whose scales or zero points differ along K. A convolution, on CPUs, is the
same product; its padding becomes one of the codes, with the code that stands for 0. uint8 becomes int8: 128 less, or as
it is where it has seven bits. A Decision says of each product of codes what became of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hardtack.codegen.ir.expr import ONE, Expr, int_value, sym
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.graph import Graph, Lit, Op, Operand, make_attrs
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.cpu_integer_cost import EXACT_TAPS, conv_cost, is_depthwise
from hardtack.codegen.lower.value_ranges import has_seven_bits
from hardtack.codegen.lower.views import base_of, broadcast_index, resolve
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.passes.passes import Context, Decisions, GraphPass
from hardtack.codegen.passes.shared.affine_codes import AffineCodes, Facts, NotCodes, Viewed, affine_codes, facts_of
from hardtack.codegen.passes.shared.code_values import Edit, codes_of, edit_of, number_of, zero_of
from hardtack.codegen.passes.shared.window_sums import window_sums

KIND = "integers"
"""Of the Decisions that are made here: subject is the product."""
_LIMIT = 1 << 31
_CODE = 128
"""The largest distance of an int8 from 0."""


@dataclass(frozen=True)
class _Operands:
    """What the operands of a product stand for. summed: the dimensions of each that are added up; depth: their size."""

    a: AffineCodes
    b: AffineCodes
    summed: tuple[tuple[int, ...], tuple[int, ...]]
    depth: int


def multiply_codes(graph: Graph, context: Context) -> tuple[Graph, Decisions]:
    """The graph with products of codes in the place of products of what they stand for."""
    facts, edit = facts_of(graph), edit_of(graph)
    decisions: list[Decision] = []
    for op in graph.ops:
        rule = _RULES.get(op.kind)
        found, reason = None, ""
        try:
            if rule is not None and (found := _operands(facts, op)) is not None:
                reason = _why(facts, op, found, context)
        except NotCodes as why:
            decisions.append(Decision(KIND, op.outputs[0], "int8", False, str(why)))
            found = None
        if rule is None or found is None:
            edit.ops.append(op)
            continue
        rule(edit, op, found)
        decisions.append(Decision(KIND, op.outputs[0], "int8", True, reason))
    return (edit.done() if any(d.accepted for d in decisions) else graph), tuple(decisions)


def _why(facts: Facts, op: Op, given: _Operands, context: Context) -> str:
    """Why a product of codes is one of int8. Raises NotCodes for one that takes longer so."""
    machine = context.machine
    if op.kind != "conv":
        one_row = facts.type_of(op.outputs[0]).shape[-2] is ONE
        if isinstance(machine, Gpu) and one_row and base_of(facts.producers, op.value(1)) in facts.constants:
            raise NotCodes("one row is bound by reading the matrix, as codes either way")
        return "both operands are codes"
    if isinstance(machine, Gpu):
        raise NotCodes("GPUs have no convolution of int8")
    seven_bits = has_seven_bits(facts.graph, facts.producers, given.a.codes.operand)
    cost = conv_cost(facts.graph, op, context.hints, machine, seven_bits, _zeros(given.b) != (0, 0))
    if not cost.pays:
        raise NotCodes(cost.reason)
    return cost.reason


def _operands(facts: Facts, op: Op) -> _Operands | None:
    """The operands of a product of codes; None for a product of anything else. Raises NotCodes for one of codes that
    stays a product of float32."""
    names = op.value(0), op.value(1)
    if any(facts.type_of(x).dtype is not DType.F32 for x in names):
        return None
    sides: list[AffineCodes] = []
    reasons: list[str] = []
    for x in names:
        try:
            made = affine_codes(facts, x)
        except NotCodes as why:
            reasons.append(str(why))
            continue
        if made is None:
            return None
        sides.append(made)
    if reasons:
        raise NotCodes("; ".join(reasons))
    summed = _summed(facts, op)
    a, b = sides
    for x, side, dims in zip(names, sides, summed, strict=True):
        for what in (*side.scales, *(() if side.zero is None else (side.zero,))):
            if _varies(facts, x, what, dims):
                raise NotCodes("a scale or a zero point differs along what is added up")
    if op.kind != "conv" and any(_in_half_a_byte(facts, x) for x in names):
        raise NotCodes("its weight has codes of 4 bits, which are stored in half a byte")
    if op.kind == "conv" and _zeros(b) != (0, 0) and is_depthwise(facts.graph, op):
        raise NotCodes("its filters have zero points, one for each channel: sums of windows are as many products")
    if op.kind == "conv" and any(n for pair in op.tuple_attr("padding") for n in pair):
        _check_padding(facts, a)
    return _Operands(a, b, summed, _depth(facts, op, a, b, summed[1]))


def _in_half_a_byte(facts: Facts, x: str) -> bool:
    """Whether an operand of a product is a constant that kernels of float32 read as 4 bits; convolutions have no such
    kernel."""
    constant = facts.constants.get(base_of(facts.producers, x))
    return constant is not None and constant.quantized is not None and constant.quantized.bits == 4


def _summed(facts: Facts, op: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rank = len(facts.type_of(op.inputs[0]).shape)
    if op.kind == "conv":
        _check_conv(facts, op)
        return tuple(range(1, rank)), tuple(range(1, rank))
    return (rank - 1,), (rank - 2,)


def _varies(facts: Facts, operand: str, what: Viewed, dims: Sequence[int]) -> bool:
    """Whether numbers that go with an operand's codes differ along some of its dimensions."""
    shape = facts.type_of(operand).shape
    if not isinstance(what.operand, str):
        return False
    own = _shape_of(facts, what)
    if all(n is ONE for n in own):
        return False
    index = tuple(sym(f"a{d}", extent=n) for d, n in enumerate(shape))
    _, at = resolve(facts.graph, facts.producers, operand, index)
    used = frozenset().union(*map(free_syms, broadcast_index(own, at)))
    return any(index[d] in used for d in dims)


def _shape_of(facts: Facts, what: Viewed) -> tuple[Expr, ...]:
    """Of numbers that go with codes: a table of a constant has one for each block."""
    assert isinstance(what.operand, str)
    if what.operand in facts.graph.types:
        return facts.type_of(what.operand).shape
    return edit_of(facts.graph).parts[what.operand][1].shape


def _depth(facts: Facts, op: Op, a: AffineCodes, b: AffineCodes, dims: Sequence[int]) -> int:
    """How many products are added up. Raises NotCodes where their sum could leave int32."""
    depth = 1
    for d in dims:
        depth *= int_value(facts.type_of(op.inputs[1]).shape[d]) or 0
    if not depth:
        raise NotCodes("how many products are added up is known at run time only")
    most = depth * (_CODE + _farthest(a)) * (_CODE + _farthest(b))
    if most >= _LIMIT:
        raise NotCodes(f"sums of {depth} products may leave int32")
    return depth


def _zeros(x: AffineCodes) -> tuple[int, int]:
    """Limits of the zero point of codes as int8."""
    return x.zeros[0] - x.less, x.zeros[1] - x.less


def _farthest(x: AffineCodes) -> int:
    return max(map(abs, _zeros(x)))


def _check_conv(facts: Facts, op: Op) -> None:
    """Raises NotCodes for a convolution that has no kernel of integers."""
    w = facts.type_of(op.inputs[1]).shape
    if base_of(facts.producers, op.value(1)) not in facts.constants:
        raise NotCodes("a convolution by weights that are no constant is one of float32")
    if op.attr("transposed"):
        raise NotCodes("a transposed convolution is one of float32")
    if len(w) > 4:
        raise NotCodes("a convolution of three spatial dimensions is one of float32")
    taps = math.prod(int_value(n) or 0 for n in w[2:])
    if is_depthwise(facts.graph, op) and taps > EXACT_TAPS:
        raise NotCodes(f"a depthwise convolution of {taps} taps is one of float32")


def _check_padding(facts: Facts, x: AffineCodes) -> None:
    """Raises NotCodes where no code, the same for all images, stands for what is padded, which is 0."""
    lo, hi = _zeros(x)
    if lo < -_CODE or hi >= _CODE:
        raise NotCodes(f"its padding has no code: its zero point may be {lo if lo < -_CODE else hi}")
    if x.zero is not None and isinstance(x.zero.operand, str) and any(n is not ONE for n in _shape_of(facts, x.zero)):
        raise NotCodes("its padding has several codes")


def _matmul(edit: Edit, op: Op, given: _Operands) -> None:
    a, b = (codes_of(edit, op, x) for x in (given.a, given.b))
    za, zb = (zero_of(edit, op, x, dims) for x, dims in zip((given.a, given.b), given.summed, strict=True))
    total = edit.emit(op, "matmul", a, b, attrs=make_attrs(dtype=DType.I32))
    if za is not None:
        total = _less(edit, op, total, _sum(edit, op, b, given.summed[1], keepdim=True), za)
    if zb is not None:
        sums: Operand = _sum(edit, op, a, given.summed[0], keepdim=True)
        if za is not None:
            all_zeros = _times(edit, op, za, Lit(given.depth, DType.I32))
            sums = edit.emit(op, "sub", sums, all_zeros)
        total = _less(edit, op, total, sums, zb)
    scales = [
        number_of(edit, op, s, dims) for x, dims in zip((given.a, given.b), given.summed, strict=True) for s in x.scales
    ]
    _scaled(edit, op, total, scales, None)


def _conv(edit: Edit, op: Op, given: _Operands) -> None:
    x, w = (codes_of(edit, op, side) for side in (given.a, given.b))
    zero = zero_of(edit, op, given.a, given.summed[0])
    attrs = {**dict(op.attrs), "dtype": DType.I32, "fill": 0}
    if isinstance(zero, Lit) and any(n for pair in op.tuple_attr("padding") for n in pair):
        attrs["fill"] = zero.value  # one of the codes, of which a zero point without padding need not be
    elif isinstance(zero, str):
        x = _padded(edit, op, x, zero)
        attrs["padding"] = tuple((0, 0) for _ in op.tuple_attr("padding"))
    made = replace(op, attrs=make_attrs(**attrs))
    total = edit.emit(op, "conv", x, w, attrs=made.attrs)
    if zero is not None:
        sums = _along_channels(edit, op, _sum(edit, op, w, given.summed[1], keepdim=False))
        total = _less(edit, op, total, sums, zero)
    filter_zero = zero_of(edit, op, given.b, given.summed[1])
    if filter_zero is not None:
        windows = window_sums(edit, made, x)
        if zero is not None:
            windows = edit.emit(op, "sub", windows, _times(edit, op, zero, Lit(given.depth, DType.I32)))
        total = _less(edit, op, total, windows, _along_channels(edit, op, filter_zero))
    scales = [number_of(edit, op, s, given.summed[0]) for s in given.a.scales]
    scales += [_along_channels(edit, op, number_of(edit, op, s, given.summed[1])) for s in given.b.scales]
    _scaled(edit, op, total, scales, op.inputs[2] if len(op.inputs) > 2 else None)


def _padded(edit: Edit, op: Op, x: str, zero: str) -> str:
    """The codes with what the convolution's own padding adds, where the code for that is computed as the model runs."""
    lo, hi = ((0, 0, *(pair[k] for pair in op.tuple_attr("padding"))) for k in (0, 1))
    if not any((*lo, *hi)):
        return x
    fill = edit.emit(op, "cast", zero, attrs=make_attrs(dtype=DType.I8))
    return edit.emit(op, "pad", x, fill, attrs=make_attrs(lo=lo, hi=hi, mode="constant"))


def _along_channels(edit: Edit, op: Op, x: Operand) -> Operand:
    """Numbers of output channels, which come first in them, as the second dimension of a result."""
    if not isinstance(x, str) or not edit.types[x].shape:
        return x
    rank = len(edit.types[op.outputs[0]].shape)
    return edit.emit(op, "reshape", x, shape=(ONE, edit.types[x].shape[0], *(ONE,) * (rank - 2)))


def _sum(edit: Edit, op: Op, x: str, dims: Sequence[int], *, keepdim: bool) -> str:
    attrs = make_attrs(kind="sum", dims=tuple(dims), keepdim=keepdim, dtype=DType.I32)
    return edit.emit(op, "reduce", x, attrs=attrs)


def _times(edit: Edit, op: Op, x: Operand, y: Lit) -> Operand:
    return Lit(int(x.value) * int(y.value), x.dtype) if isinstance(x, Lit) else edit.emit(op, "mul", x, y)


def _less(edit: Edit, op: Op, total: str, sums: Operand, zero: Operand) -> str:
    return edit.emit(op, "sub", total, edit.emit(op, "mul", sums, zero))


def _scaled(edit: Edit, op: Op, total: str, scales: Sequence[Operand], bias: Operand | None) -> None:
    """The result, under the name that it had."""
    behind = [("mul", s) for s in scales]
    if bias is not None:
        behind.append(("add", _along_channels(edit, op, bias)))
    out = op.outputs[0]
    found = edit.emit(op, "cast", total, attrs=make_attrs(dtype=DType.F32), name="" if behind else out)
    for k, (kind, number) in enumerate(behind):
        found = edit.emit(op, kind, found, number, name=out if k + 1 == len(behind) else "")


_RULES: dict[str, Callable[[Edit, Op, _Operands], None]] = {"matmul": _matmul, "conv": _conv}

INTEGER_PRODUCTS = GraphPass("integers", multiply_codes)
"""Products of what codes stand for become products of int8."""
