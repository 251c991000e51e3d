"""How convolution templates are called: conv.h, conv_transposed.h, depthwise.h."""

from __future__ import annotations

from collections.abc import Sequence

from hardtack.codegen.backends.cpp.call import Call, Parameters
from hardtack.codegen.backends.cpp.workspace import conv_input_nbytes, gemm_nbytes, number, window_extent
from hardtack.codegen.ir.expr import Expr, const, int_value, product
from hardtack.codegen.ir.loops import Operand, TemplateNest
from hardtack.codegen.lower.views import ONE


def _pairs(anchor: TemplateNest, name: str) -> tuple[int, int]:
    """A spatial attribute as (vertical, horizontal); one dimension is horizontal."""
    value = anchor.attr(name)
    assert isinstance(value, tuple)
    ints = [int(v[0]) if isinstance(v, tuple) else int(v) for v in value]
    neutral = 0 if name == "padding" else 1
    return (neutral, ints[0]) if len(ints) == 1 else (ints[0], ints[1])


def _spatial(values: Sequence[Expr], neutral: Expr) -> tuple[Expr, Expr]:
    return (neutral, values[0]) if len(values) == 1 else (values[0], values[1])


def _shape(anchor: TemplateNest, p: Parameters) -> tuple[str, dict[str, Expr]]:
    """The ConvShape as a C++ initialiser, and its fields."""
    x = anchor.operands[0]
    n, *out, oc = (a.extent for a in anchor.axes)
    oh, ow = _spatial(out, ONE)
    h, w = _spatial(x.shape[2:], ONE)
    kernel, stride, pad, dilation = (_pairs(anchor, k) for k in ("kernel", "stride", "padding", "dilation"))
    stride_h, stride_w = _spatial(x.strides[2:], const(0))
    groups = anchor.attr("groups")
    assert isinstance(groups, int)
    fields: dict[str, Expr] = {
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
        "groups": const(groups),
        "x_stride_n": x.strides[0],
        "x_stride_h": stride_h,
        "x_stride_w": stride_w,
        "x_stride_c": x.strides[1],
    }
    names = [p.add(f"conv_{k}", v) for k, v in fields.items()]
    return f"const ht::ConvShape shape{{{', '.join(names)}}};", fields


def _channels_apart(x: Operand) -> bool:
    """True if the template may find the channels not side by side, and copies the input."""
    return x.strides[1] is not ONE and x.shape[1] is not ONE


def _conv(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    setup, f = _shape(anchor, p)
    x = anchor.operands[0]
    few = (
        (int_value(f["c"]) or 0) < number("kShortTap")
        and f["groups"] is ONE
        and f["dilation_w"] is ONE
        and f["kw"] is not ONE
    )
    shared: Expr = const(0)
    if _channels_apart(x) or few:
        height = window_extent(f["oh"], f["stride_h"], f["kh"], f["dilation_h"])
        width = window_extent(f["ow"], f["stride_w"], f["kw"], f["dilation_w"])
        shared = conv_input_nbytes(f["n"], height, width, f["c"])
    m = product((f["n"], f["oh"], f["ow"]))
    per_worker = gemm_nbytes(m, f["oc"] // f["groups"])
    call = f"ht::conv2d(args, shape, {pointers[0]}, {pointers[1]}, epilogue)"
    return Call(("conv.h",), (setup,), call, shared, per_worker)


def _copied_input(x: Operand, f: dict[str, Expr]) -> Expr:
    """The shared workspace for the input, where channels are not side by side."""
    return conv_input_nbytes(f["n"], f["h"], f["w"], f["c"]) if _channels_apart(x) else const(0)


def _conv_transposed(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    setup, f = _shape(anchor, p)
    m = product((f["n"], f["oh"], f["ow"]))
    per_worker = gemm_nbytes(m, f["oc"] // f["groups"])
    call = f"ht::conv_transposed2d(args, shape, {pointers[0]}, {pointers[1]}, epilogue)"
    return Call(("conv_transposed.h",), (setup,), call, _copied_input(anchor.operands[0], f), per_worker)


def _depthwise(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    setup, f = _shape(anchor, p)
    kw, sw = int_value(f["kw"]), int_value(f["stride_w"])
    special = kw in (3, 5) and sw in (1, 2) and f["dilation_w"] is ONE
    sizes = f"<{kw}, {sw}>" if special else ""
    call = f"ht::depthwise2d{sizes}(args, shape, {pointers[0]}, {pointers[1]}, epilogue)"
    return Call(("depthwise.h",), (setup,), call, _copied_input(anchor.operands[0], f))


CALLS = {"conv": _conv, "conv_transposed": _conv_transposed, "depthwise": _depthwise}
"""Template kind -> how it is called."""
