"""Convolutions on CPUs: of up to two spatial dimensions by constant weights; all others are loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

from hardtack.codegen.hints import size_hint
from hardtack.codegen.ir.expr import ONE, Expr, const, int_value, product
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Operand, Request, TemplateNest, Workspace
from hardtack.codegen.ir.roles import Extent, Memory, Role, Sizes, need, summed
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.convolution import Convolution, geometry, group_size
from hardtack.codegen.lower.cpu_integer_cost import EXACT_TAPS, QUAD
from hardtack.codegen.lower.cpu_plans import conv_plan, verify_cut
from hardtack.codegen.lower.cpu_workspace import (
    PANEL,
    conv_input_nbytes,
    conv_nbytes,
    gemm_nbytes,
    number,
    window_extent,
    winograd_numel,
    winograd_shared_numel,
)
from hardtack.codegen.lower.layout import channels_last
from hardtack.codegen.lower.operands import copied, prepacked, try_operand
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.sums import conv_as_reduction, conv_result, finish_conv
from hardtack.codegen.lower.template import first_that_can, request, template
from hardtack.codegen.lower.value_ranges import has_seven_bits
from hardtack.codegen.lower.winograd_cost import tiles_of, winograd_cost
from hardtack.codegen.machine.blocking import FLOAT_NBYTES
from hardtack.codegen.machine.machine import Cpu, Machine
from hardtack.codegen.tune.cut_plan import ConvCutShape, CutPlan

T = TypeVar("T")
AT_ONCE = {DType.BF16: 2, DType.I8: QUAD}
"""Channels that lie side by side in packed weights: PackedOf of the templates."""
_INPUT = Role("x", "N groups*C *S")


@dataclass(frozen=True)
class Window(Convolution):
    """A convolution of x [N, C, (H,) W] by packed weights. fill: what padding adds; 0 but of int8."""

    groups: int
    fill: int = field(default=0, kw_only=True)

    machine = Cpu
    roles = (_INPUT, Role("weights", f"groups O/{PANEL} *kernel C {PANEL}", memory=Memory.WHOLE))
    results = (Role("result", "N groups*O *P", summed),)
    dtypes: ClassVar[tuple[DType, ...]] = (DType.F32, DType.F16)

    @classmethod
    def why_not(cls, request: Request, machine: Machine) -> str | None:
        if not request.constant[1]:
            return "the weights are no constant"
        if len(request.result.shape) > 4:
            return "three spatial dimensions have no template"
        return super().why_not(request, machine)

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        need(len(self.kernel) <= 2, f"it has {len(self.kernel)} spatial dimensions")
        need(self.fill in self.fills(nest.operands[0].dtype), f"it is padded with {self.fill}")
        outputs = group_size(nest.axes[-1].extent, self.groups)
        return {**super().extents(nest), "groups": const(self.groups), "O": outputs}

    @classmethod
    def fills(cls, dtype: DType) -> range:
        """What may be padded with."""
        return range(-128, 128) if dtype is DType.I8 else range(1)

    def sizes(self, nest: TemplateNest) -> dict[str, Expr]:
        """The fields of templates/cpp/conv.h's ConvShape, in their order; one spatial dimension is the horizontal. The
        last one, fill, stands for int8 only."""
        x = nest.operands[0]
        n, *out, oc = (a.extent for a in nest.axes)
        oh, ow = _vertical_first(out, ONE)
        h, w = _vertical_first(x.shape[2:], ONE)
        stride_h, stride_w = _vertical_first(x.strides[2:], const(0))
        kernel, stride, dilation = (_vertical_first(v, 1) for v in (self.kernel, self.stride, self.dilation))
        pad = _vertical_first([before for before, _ in self.padding], 0)
        fill = {"fill": const(self.fill)} if x.dtype is DType.I8 else {}
        return {
            "n": n,
            "h": h,
            "w": w,
            "c": x.shape[1],
            "oh": oh,
            "ow": ow,
            "oc": oc,
            "kh": const(kernel[0]),
            "kw": const(kernel[1]),
            "stride_h": const(stride[0]),
            "stride_w": const(stride[1]),
            "pad_top": const(pad[0]),
            "pad_left": const(pad[1]),
            "dilation_h": const(dilation[0]),
            "dilation_w": const(dilation[1]),
            "groups": const(self.groups),
            "x_stride_n": x.strides[0],
            "x_stride_h": stride_h,
            "x_stride_w": stride_w,
            "x_stride_c": x.strides[1],
            **fill,
        }


def _vertical_first(values: Sequence[T], neutral: T) -> tuple[T, T]:
    return (neutral, values[0]) if len(values) == 1 else (values[0], values[1])


def _channels_apart(x: Operand) -> bool:
    """True if the template may find the channels not side by side, and copies the input."""
    return x.strides[1] is not ONE and x.shape[1] is not ONE


def _copied_input(x: Operand, f: dict[str, Expr]) -> Expr:
    """The shared workspace for the input, where channels are not side by side."""
    return conv_input_nbytes(f["n"], f["h"], f["w"], f["c"], x.dtype) if _channels_apart(x) else const(0)


def _sums_of_worker(f: dict[str, Expr], dtype: DType) -> Expr:
    return gemm_nbytes(product((f["n"], f["oh"], f["ow"])), f["oc"] // f["groups"], dtype)


@dataclass(frozen=True)
class Conv(Window):
    """conv.h: weights as [groups][ceil(Og/32)][K...][Cg][32]. plan: of a tuning table; None: the machine's blocks."""

    plan: CutPlan | None = field(default=None, kw_only=True)

    kind = "conv"

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        verify_cut(self.plan, ConvCutShape(1, 1, 1, self.groups, 1, 1, nest.operands[0].dtype))
        return super().extents(nest)

    def workspace(self, nest: TemplateNest) -> Workspace:
        f, x = self.sizes(nest), nest.operands[0]
        shared: Expr = const(0)
        channels = int_value(f["c"]) or 0
        if _channels_apart(x) or self.merges_taps(channels, x.dtype):
            height = window_extent(f["oh"], f["stride_h"], f["kh"], f["dilation_h"])
            width = window_extent(f["ow"], f["stride_w"], f["kw"], f["dilation_w"])
            shared = conv_input_nbytes(f["n"], height, width, f["c"], x.dtype)
        return Workspace(shared, conv_nbytes(f, x.dtype, self.plan))

    def merges_taps(self, channels: int, dtype: DType) -> bool:
        """True if the kernel lays the taps of a filter row side by side: conv.h's conv_merges_taps."""
        short = channels < number("kShortTap") or channels % AT_ONCE.get(dtype, 1) != 0
        return short and self.groups == 1 and self.dilation[-1] == 1 and self.kernel[-1] > 1


@dataclass(frozen=True)
class InterleavedConv(Conv):
    """conv.h: the same with weights some channels at once, side by side, as instructions add up their products; of taps
    side by side some of those. channels: of a group, which whole groups of neighbours do not tell."""

    channels: int

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        taps, rows = self.taps_and_rows()
        named: dict[str, Extent] = {"C": const(self.channels), "*taps": tuple(map(const, taps)), "R": const(rows)}
        return {**super().extents(nest), **named}

    def taps_and_rows(self) -> tuple[tuple[int, ...], int]:
        """The taps that stay apart, and the elements of each."""
        if self.merges_taps(self.channels, self.dtypes[0]):
            return self.kernel[:-1], self.kernel[-1] * self.channels
        return self.kernel, self.channels


def _interleaved(neighbours: int) -> tuple[Role, Role]:
    weights = f"groups O/{PANEL} *taps R/{neighbours} {PANEL} {neighbours}"
    return _INPUT, Role("weights", weights, memory=Memory.WHOLE)


class PairedConv(InterleavedConv):
    """conv.h and half.h: of bf16, in pairs: [groups][ceil(Og/32)][taps...][ceil(rows/2)][32][2]."""

    kind = "conv_paired"
    roles = _interleaved(AT_ONCE[DType.BF16])
    dtypes = (DType.BF16,)


@dataclass(frozen=True)
class QuadConv(InterleavedConv):
    """conv.h and int8.h: of int8, in fours, added up in int32: [groups][ceil(Og/32)][taps...][ceil(rows/4)][32][4].
    seven_bits: x, and what padding adds, is of numbers from 0 to 127."""

    seven_bits: bool = field(default=False, kw_only=True)

    kind = "conv_quads"
    roles = _interleaved(AT_ONCE[DType.I8])
    dtypes = (DType.I8,)

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        need(self.fill >= 0 or not self.seven_bits, f"its codes have seven bits, and it is padded with {self.fill}")
        return super().extents(nest)


class Winograd(Window):
    """winograd.h: filters of 3 x 3 in steps of 1, over channels that lie side by side; weights as Conv has them."""

    kind = "winograd"
    dtypes = (DType.F32,)

    @classmethod
    def why_not(cls, request: Request, machine: Machine) -> str | None:
        given, filters = geometry(request.op), request.operands[1].shape
        if given.transposed or given.groups > 1:
            return "the convolution is transposed or grouped"
        if tuple(map(int_value, filters[2:])) != (3, 3) or {*given.stride, *given.dilation} != {1}:
            return "the filter is not 3 x 3, in steps of 1"
        return super().why_not(request, machine)

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        need(self.kernel == (3, 3), f"its filter is {self.kernel}, expected (3, 3)")
        need({*self.stride, *self.dilation} == {1}, "its filter moves or reaches by more than 1")
        need(self.groups == 1, f"it has {self.groups} groups, expected 1")
        return super().extents(nest)

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        super().verify_sizes(nest, sizes)
        need(not _channels_apart(nest.operands[0]), "its channels do not lie side by side")

    def workspace(self, nest: TemplateNest) -> Workspace:
        f = self.sizes(nest)
        tiles = tiles_of(f["n"], f["oh"], f["ow"])
        return Workspace(
            winograd_shared_numel(tiles, f["c"], f["oc"]) * FLOAT_NBYTES, winograd_numel(tiles, f["c"]) * FLOAT_NBYTES
        )


class TransposedConv(Window):
    """conv_transposed.h: weights as [groups][ceil(Og/32)][K...][Cg][32]."""

    kind = "conv_transposed"

    @property
    def spreads(self) -> bool:
        return True

    def workspace(self, nest: TemplateNest) -> Workspace:
        f = self.sizes(nest)
        x = nest.operands[0]
        return Workspace(_copied_input(x, f), _sums_of_worker(f, x.dtype))


@dataclass(frozen=True)
class PairedTransposedConv(TransposedConv):
    """conv_transposed.h: the same of bf16: [groups][ceil(Og/32)][K...][ceil(Cg/2)][32][2]. channels: of a group."""

    channels: int

    kind = "conv_transposed_paired"
    roles = (_INPUT, Role("weights", f"groups O/{PANEL} *kernel C/2 {PANEL} 2", memory=Memory.WHOLE))
    dtypes = (DType.BF16,)

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        return {**super().extents(nest), "C": const(self.channels)}


class Depthwise(Window):
    """depthwise.h: one filter a channel, weights as [K...][C]. Of int8 the sums are int32, exact up to EXACT_TAPS."""

    kind = "depthwise"
    roles = (Role("x", "N groups *S"), Role("weights", "*kernel groups", memory=Memory.WHOLE))
    results = (Role("result", "N groups *P", summed),)
    dtypes = (DType.F32, DType.BF16, DType.F16, DType.I8)

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        taps = math.prod(self.kernel)
        need(nest.operands[0].dtype is not DType.I8 or taps <= EXACT_TAPS, f"its filter of int8 has {taps} taps")
        return super().extents(nest)

    def workspace(self, nest: TemplateNest) -> Workspace:
        return Workspace(_copied_input(nest.operands[0], self.sizes(nest)))


@lowers("conv", on=Cpu)
def lower_conv(low: Lowering, op: Op) -> None:
    what = _chosen(low, op)
    if what is None:
        conv_as_reduction(low, op)
        return
    out = low.buffers[op.outputs[0]]
    bias = op.inputs[2] if len(op.inputs) > 2 else None
    # templates write channels-last, which an output of the graph is not; a bias is an ordinary pointwise nest over the
    # template's result, which grouping makes an epilogue
    direct = bias is None and out.order == channels_last(len(out.shape))
    result = out if direct else conv_result(low, out, bias)
    _emit(low, op, what, result)
    if not direct:
        finish_conv(low, op, result, out, bias)


def _chosen(low: Lowering, op: Op) -> type[Window] | None:
    """The template for a convolution; None for loops."""
    what = first_that_can(low, op, _kinds_of(low, op))
    if what is not Conv or Winograd.why_not(request(low, op), low.machine) is not None:
        return what
    out = low.buffers[op.outputs[0]]
    n, oc, oh, ow = (size_hint(e, low.hints) for e in out.shape)
    channels = size_hint(low.graph.type_of(op.inputs[1]).shape[1], low.hints)
    assert isinstance(low.machine, Cpu)
    cost = winograd_cost(low.machine, (n, oh, ow), channels, oc)
    what = Winograd if cost.pays else Conv
    low.decide(out.name, what.kind, cost.reason)
    return what


def _kinds_of(low: Lowering, op: Op) -> tuple[type[Window], ...]:
    """Which templates a convolution is for."""
    window = geometry(op)
    if window.transposed:
        return TransposedConv, PairedTransposedConv
    outs, ins = (int_value(n) for n in low.graph.type_of(op.inputs[1]).shape[:2])
    return (Depthwise,) if window.groups > 1 and outs == window.groups and ins == 1 else (Conv, PairedConv, QuadConv)


def _emit(low: Lowering, op: Op, what: type[Window], result: Buffer) -> None:
    x, w, given = op.value(0), op.value(1), geometry(op)
    w_view = try_operand(low, w)
    assert w_view is not None, "a constant's views are folded at export"
    w_shape = [int_value(e) or 0 for e in w_view.shape]
    view = try_operand(low, x)
    # a copy costs one pass; a few channels are gathered by the template, which packs its patches anyway
    few = issubclass(what, Conv) and given.groups == 1 and w_shape[1] <= 4
    if view is None or (view.strides[1] is not ONE and view.shape[1] is not ONE and not few):
        view = copied(low, x, op, channels_last(len(result.shape)))
    fields = (tuple(w_shape[2:]), given.stride, given.padding, given.dilation, given.groups)
    channels = w_shape[0] // given.groups if given.transposed else w_shape[1]
    window = what(*fields, channels) if issubclass(what, (InterleavedConv, PairedTransposedConv)) else what(*fields)
    window = replace(window, fill=given.fill)
    if isinstance(window, QuadConv) and given.fill >= 0:
        window = replace(window, seven_bits=has_seven_bits(low.graph, low.producers, x))
    if isinstance(window, Conv):
        points = product((result.shape[0], *result.shape[2:]))
        io, taps = (w_shape[1], w_shape[0] // given.groups), math.prod(window.kernel)
        if len(set(given.stride)) == 1 and set(given.dilation) == {1}:  # what keys can say
            window = replace(window, plan=conv_plan(low, points, io, given.groups, taps, given.stride[0], view))
    template(low, op, window, result, (view, _pack_conv(low, w_view, window)))


def _pack_conv(low: Lowering, w: Operand, window: Window) -> Operand:
    """The weights as the template's class says."""
    shape, groups = [int_value(e) or 0 for e in w.shape], window.groups
    taps = shape[2:]
    if isinstance(window, Depthwise):
        return prepacked(low, "depthwise", w, (*taps, shape[0]), ())
    if isinstance(window, TransposedConv):
        panels, rows = -(-shape[1] // PANEL), shape[0] // groups
        if isinstance(window, PairedTransposedConv):
            packed = (groups, panels, *taps, -(-rows // 2), PANEL, 2)
            return prepacked(low, "conv_transposed_pairs", w, packed, (groups,))
        return prepacked(low, "conv_transposed", w, (groups, panels, *taps, rows, PANEL), (groups,))
    panels = -(-(shape[0] // groups) // PANEL)
    if isinstance(window, InterleavedConv):
        apart, rows = window.taps_and_rows()
        count = AT_ONCE[window.dtypes[0]]
        packed = (groups, panels, *apart, -(-rows // count), PANEL, count)
        kind = "conv_pairs" if isinstance(window, PairedConv) else "conv_quads"
        return prepacked(low, kind, w, packed, (groups, len(taps) - len(apart)))
    packed = (groups, panels, *taps, shape[1], PANEL)
    return prepacked(low, "conv", w, packed, (groups,))
