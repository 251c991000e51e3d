"""How convolution templates are called: conv.h, winograd.h, conv_transposed.h, depthwise.h."""

from __future__ import annotations

from collections.abc import Sequence

from hardtack.codegen.backends.cpp.call import Call, Parameters, blocks, calls, parameters, quad_blocks
from hardtack.codegen.ir.expr import ONE, Expr, int_value
from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.cpu_conv import (
    Conv,
    Depthwise,
    PairedConv,
    PairedTransposedConv,
    QuadConv,
    TransposedConv,
    Window,
    Winograd,
)


def _shape(anchor: TemplateNest, p: Parameters) -> tuple[str, dict[str, Expr]]:
    """The ConvShape as a C++ initialiser, and its fields."""
    fields = parameters(anchor, Window).sizes(anchor)
    names = [p.add(f"conv_{k}", v) for k, v in fields.items()]
    return f"const ht::ConvShape shape{{{', '.join(names)}}};", fields


@calls(Conv)
@calls(PairedConv)
def _conv(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    setup, _ = _shape(anchor, p)
    cut = blocks(parameters(anchor, Conv).plan, anchor.operands[0])
    return Call(("conv.h",), (setup,), f"ht::conv2d{cut}(args, shape, {pointers[0]}, {pointers[1]}, epilogue)")


@calls(QuadConv)
def _conv_quads(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    setup, _ = _shape(anchor, p)
    cut = quad_blocks(parameters(anchor, QuadConv).seven_bits)
    call = f"ht::conv2d{cut}(args, shape, {pointers[0]}, {pointers[1]}, epilogue)"
    return Call(_headers("conv.h", anchor), (setup,), call)


@calls(Winograd)
def _winograd(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    setup, _ = _shape(anchor, p)
    return Call(("winograd.h",), (setup,), f"ht::winograd2d(args, shape, {pointers[0]}, {pointers[1]}, epilogue)")


@calls(TransposedConv)
@calls(PairedTransposedConv)
def _conv_transposed(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    setup, _ = _shape(anchor, p)
    call = f"ht::conv_transposed2d(args, shape, {pointers[0]}, {pointers[1]}, epilogue)"
    return Call(("conv_transposed.h",), (setup,), call)


@calls(Depthwise)
def _depthwise(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    setup, f = _shape(anchor, p)
    kw, sw = int_value(f["kw"]), int_value(f["stride_w"])
    special = kw in (3, 5) and sw in (1, 2) and f["dilation_w"] is ONE
    sizes = f"<{kw}, {sw}>" if special else ""
    call = f"ht::depthwise2d{sizes}(args, shape, {pointers[0]}, {pointers[1]}, epilogue)"
    return Call(_headers("depthwise.h", anchor), (setup,), call)


def _headers(own: str, anchor: TemplateNest) -> tuple[str, ...]:
    """The template's own, and that of int8, which has what is special in its type."""
    return (own, "int8.h") if anchor.operands[0].dtype is DType.I8 else (own,)
