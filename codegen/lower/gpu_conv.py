"""Convolutions on GPUs: as products, depthwise, or by the template conv; weights as it reads them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hardtack.codegen.ir.expr import ONE, Expr, const, int_value, product
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Operand, TemplateNest
from hardtack.codegen.ir.roles import Extent, Role, need, only, summed
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower import gpu_conv_operands
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.convolution import Convolution, geometry, verify_parts_channels_last
from hardtack.codegen.lower.gpu_matmul import add_parts, emit_gemm
from hardtack.codegen.lower.gpu_plans import chosen, gpu, hint, verify_plan
from hardtack.codegen.lower.layout import channels_last
from hardtack.codegen.lower.operands import copied, is_constant, operand, prepacked, try_operand, whole
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.sums import conv_as_reduction, conv_result, finish_conv
from hardtack.codegen.lower.template import first_that_can, template
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.tune.conv_plan import ConvShape, DepthwisePlan, plan_depthwise
from hardtack.codegen.tune.gemm_plan import GemmPlan


class TiledWindow(Convolution):
    """See Convolution."""

    machine = Gpu
    dtypes = (DType.F32, DType.F16, DType.BF16)

    @property
    def before(self) -> tuple[int, ...]:
        """The padding in front of each dimension."""
        return tuple(lo for lo, _ in self.padding)


@dataclass(frozen=True)
class TiledConv(TiledWindow):
    """x [N, C, *S] with the weights [groups, O/groups, C/groups, taps]; the result channels-last, or with a plan that
    splits the sum its parts [parts, N, *S, O].

    batch: 1 if the first axis numbers parts.
    """

    plan: GemmPlan
    transposed: bool
    batch: int

    kind = "conv"
    roles = (Role("x", "N groups*C *S"), Role("weights", "groups O C taps"))

    @property
    def spreads(self) -> bool:
        return self.transposed

    def batch_axes(self, nest: TemplateNest) -> int:
        return self.batch

    def result_roles(self, nest: TemplateNest) -> tuple[Role, ...]:
        if self.plan.splits == 1:
            return (Role("result", "N groups*O *P", summed),)
        return (Role("result", "parts N groups*O *P", only(DType.F32)),)

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        verify_plan(self.plan)
        need(self.batch == int(self.plan.splits > 1), f"its batch has {self.batch} axes for {self.plan.splits} parts")
        need(self.plan.variant in ("taps", "flat"), f"it has no variant {self.plan.variant}")
        return {**super().extents(nest), "parts": const(self.plan.splits), "taps": const(prod(self.kernel))}

    def verify_order(self, order: tuple[int, ...]) -> None:
        (verify_parts_channels_last if self.batch else super().verify_order)(order)


@dataclass(frozen=True)
class TiledDepthwise(TiledWindow):
    """x [N, C, *S] with one filter a channel: weights [C, taps]; the result channels-last."""

    plan: DepthwisePlan

    kind = "depthwise"
    roles = (Role("x", "N C *S"), Role("weights", "C taps"))
    results = (Role("result", "N C *P", summed),)

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        verify_plan(self.plan)
        return {**super().extents(nest), "taps": const(prod(self.kernel))}


@lowers("conv", on=Gpu)
def lower_conv(low: Lowering, op: Op) -> None:
    """The convolution, channels-last; then the bias and the output's own layout as an ordinary nest."""
    w, out = op.value(1), low.buffers[op.outputs[0]]
    shape, window = low.graph.types[w].shape, geometry(op)
    depthwise = int_value(shape[0]) == window.groups > 1 and shape[1] is ONE and not window.transposed
    if first_that_can(low, op, (TiledDepthwise if depthwise else TiledConv,)) is None:
        conv_as_reduction(low, op)
        return
    order = channels_last(len(out.shape))
    bias = op.inputs[2] if len(op.inputs) > 2 else None
    direct = bias is None and out.order == order
    result = out if direct else conv_result(low, out, bias)
    matrices = gpu_conv_operands.as_product(low, op)
    if matrices is not None:
        emit_gemm(low, op, result, *matrices, is_constant(low, w))
    elif depthwise:
        _emit_depthwise(low, op, result, _channels_dense(low, op), w)
    else:
        _emit_conv(low, op, result)
    if not direct:
        finish_conv(low, op, result, out, bias)


def _channels_dense(low: Lowering, op: Op) -> Operand:
    """The input of a convolution with its channels side by side, copied where they are not."""
    x = op.value(0)
    view = try_operand(low, x)
    if view is None or (view.strides[1] is not ONE and view.shape[1] is not ONE):
        view = copied(low, x, op, channels_last(len(view.shape if view is not None else low.graph.types[x].shape)))
    return view


def _kernel(low: Lowering, op: Op) -> tuple[int, ...]:
    """Taps along each spatial dimension."""
    return tuple(int_value(n) or 0 for n in low.graph.type_of(op.inputs[1]).shape[2:])


def _emit_conv(low: Lowering, op: Op, result: Buffer) -> None:
    """The template conv, over a copy with longer runs where the channels are few."""
    w, given = op.value(1), geometry(op)
    groups, transposed = given.groups, given.transposed
    runs = gpu_conv_operands.windows(low, op)
    if runs is not None:
        view, weights = runs.x, runs.weights
        window = (runs.kernel, runs.stride, runs.padding, runs.dilation)
    else:
        view = _channels_dense(low, op)
        window = (_kernel(low, op), given.stride, given.padding, given.dilation)
        weights = conv_weights(low, op, w, groups, transposed)
    sizes = [hint(low, n) for n in weights.shape]
    channels = sizes[2] if runs is None else runs.run
    points = hint(low, product((result.shape[0], *result.shape[2:])))
    plan = chosen(low, ConvShape(points, channels, sizes[1], groups, sizes[3], view.dtype))
    choice = f"conv {plan.variant} {plan.block_m}x{plan.block_n}x{plan.block_k}, {plan.splits} parts"
    low.decide(op.outputs[0], choice, plan.reason)
    target = result
    if plan.splits > 1:
        by_part = (0, *(d + 1 for d in result.order))
        target = low.temporary(f"{op.outputs[0]}.parts", DType.F32, (const(plan.splits), *result.shape), by_part)
    what = TiledConv(*window, plan, transposed, int(plan.splits > 1))
    template(low, op, what, target, (view, weights))
    if plan.splits > 1:
        add_parts(low, op, target, result)


def _emit_depthwise(low: Lowering, op: Op, result: Buffer, x: Operand, w: str) -> None:
    """w: [C, 1, *taps]; constants are packed so that the channels of a tap lie side by side."""
    if is_constant(low, w):
        view = operand(low, w, op)
        channels, taps = view.shape[0], product(view.shape[2:])
        packed = prepacked(low, "depthwise", view, (int_value(taps) or 0, int_value(channels) or 0), ())
        filters = Operand(packed.buffer, packed.dtype, packed.offset, (channels, taps), (ONE, channels))
    else:
        each = conv_weights(low, op, w, int_value(result.shape[1]) or 0, False)
        filters = Operand(each.buffer, each.dtype, each.offset, each.shape[::3], each.strides[::3])
    kernel, given = _kernel(low, op), geometry(op)
    lines = hint(low, product((result.shape[0], *result.shape[2:-1])))
    width, lanes = hint(low, result.shape[-1]), hint(low, filters.shape[0])
    plan = plan_depthwise(lines, width, lanes, kernel, given.stride[-1], gpu(low))
    low.decide(result.name, f"depthwise {plan.runs} runs of {plan.run} by {plan.block_n}", plan.reason)
    what = TiledDepthwise(kernel, given.stride, given.padding, given.dilation, plan)
    template(low, op, what, result, (x, filters))


def conv_weights(low: Lowering, op: Op, w: str, groups: int, transposed: bool) -> Operand:
    """The weights as [groups, O/groups, C/groups, taps]: constants are packed so that channels lie side by side."""
    view = operand(low, w, op)
    first, second = view.shape[:2]
    taps = product(view.shape[2:])
    if is_constant(low, w):
        sizes = [int_value(n) or 0 for n in (first, second, taps)]
        outs, channels = (sizes[1], sizes[0] // groups) if transposed else (sizes[0] // groups, sizes[1])
        kind = "taps_transposed" if transposed else "taps_conv"
        packed = whole(low.buffers[prepacked(low, kind, view, (groups, outs, sizes[2], channels), (groups,)).buffer])
        order = (0, 1, 3, 2)
        return Operand(
            packed.buffer,
            packed.dtype,
            packed.offset,
            tuple(packed.shape[d] for d in order),
            tuple(packed.strides[d] for d in order),
        )
    step: Expr = ONE
    for n, stride in zip(reversed(view.shape[2:]), reversed(view.strides[2:]), strict=True):
        if n is not ONE and stride is not step:
            view = copied(low, w, op, None)
            break
        step = step * n
    per_group = first // groups
    if transposed:
        shape, steps = (second, per_group), (view.strides[1], view.strides[0])
    else:
        shape, steps = (per_group, second), (view.strides[0], view.strides[1])
    group_step = view.strides[0] * per_group
    return Operand(view.buffer, view.dtype, view.offset, (const(groups), *shape, taps), (group_step, *steps, const(1)))
