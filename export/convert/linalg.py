"""Matrix products and convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.graph_infer import broadcast
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.blocks import block_scales
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.pointwise import promoted
from hardtack.exporter.convert.reductions import p_norm
from hardtack.exporter.convert.sums import coefficient
from hardtack.exporter.convert.table import Value, converts
from hardtack.exporter.dtypes import from_torch
from hardtack.exporter.errors import Refusal


def product(b: Builder, x: Value, y: Value, wide: bool = False) -> Value:
    """torch.matmul for ranks 1 and up: batch dims broadcast; a weight of rank 2 makes one large 2-d product. wide: the
    result of half types stays in f32, for what is added before it is rounded."""
    if not x.dtype.is_float:
        return _integer_product(b, x, y)
    if x.rank == 1 and y.rank == 1:
        total = b.reduce(b.pw("mul", b.wide(x), b.wide(y)), "sum", [0], False)
        return total if wide else b.to(total, x.dtype)
    if x.rank == 1:
        out = product(b, b.unsqueeze(x, 0), y, wide)
        return b.reshape(out, (*out.shape[:-2], out.shape[-1]))
    if y.rank == 1:
        out = product(b, x, b.unsqueeze(y, 1), wide)
        return b.reshape(out, out.shape[:-1])
    if y.rank == 2:
        rows = b.reshape(x, (ex.product(x.shape[:-1]), x.shape[-1]))
        return b.reshape(b.matmul(rows, y, wide), (*x.shape[:-1], y.shape[-1]))
    batch = broadcast_batch(b, x, y)
    left = b.expand(x, (*batch, *x.shape[-2:]))
    right = b.expand(y, (*batch, *y.shape[-2:]))
    return b.matmul(left, right, wide)


def broadcast_batch(b: Builder, x: Value, y: Value) -> tuple[ex.Expr, ...]:
    """The batch dims of a product, broadcast."""
    return broadcast([x.shape[:-2], y.shape[:-2]], b.same)


def _integer_product(b: Builder, x: Value, y: Value) -> Value:
    """Whole numbers are multiplied and summed without a GEMM."""
    if x.dtype is DType.BOOL:
        raise Refusal("a product of bool, which torch does not have: convert to a number type first")
    if x.rank == 1 or y.rank == 1:
        left = b.unsqueeze(x, 0) if x.rank == 1 else x
        right = b.unsqueeze(y, 1) if y.rank == 1 else y
        return b.reshape(_integer_product(b, left, right), b.result.shape)
    wide = b.pw("mul", b.unsqueeze(x, -1), b.unsqueeze(y, -3))
    return b.reduce(wide, "sum", [wide.rank - 2], False)


@converts("aten.matmul.default", "aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default")
def _matmul(b: Builder, x: Value, y: Value) -> Value:
    return product(b, x, y)


@converts("aten.mm.dtype", "aten.bmm.dtype")
def _matmul_dtype(b: Builder, x: Value, y: Value, out_dtype: Any) -> Value:
    dtype = from_torch(out_dtype)
    return product(b, b.to(x, dtype), b.to(y, dtype))


@converts("aten._int_mm.default")
def _int_mm(b: Builder, x: Value, y: Value) -> Value:
    """int8 (M, K) times int8 (K, N), added up in int32."""
    return b.op("matmul", x, y, dtype=DType.I32)


@converts("out_dtype")
def _out_dtype(b: Builder, op: Any, dtype: Any, *args: Any) -> Value:
    """The higher-order op `out_dtype`: of products of int8 in int32, which torchao writes so for GPUs."""
    of, name = from_torch(dtype), str(op)
    int8 = all(isinstance(x, Value) and x.dtype is DType.I8 for x in args)
    if name not in ("aten.mm.default", "aten.bmm.default") or of is not DType.I32 or not int8:
        raise Refusal(f"{name} with results of {of}: out_dtype is supported for products (mm, bmm) of int8 in int32")
    return b.op("matmul", *args, dtype=DType.I32)


@converts("aten._scaled_mm.default")
def _scaled_mm(
    b: Builder,
    x: Value,
    weight: Value,
    scale_x: Value,
    scale_weight: Value,
    bias: Value | None = None,
    scale_result: Value | None = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Value:
    """x (M, K) times a weight (K, N), both floats of 8 bits, times their scales, of all or (M, 1) and (1, N), and a
    bias (N,): in f32, rounded once to out_dtype, x's own if None. Tensor cores may add up as eager has them do. Scales
    of blocks multiply the operands, in f32."""
    out = x.dtype if out_dtype is None else from_torch(out_dtype)
    if scale_result is not None and out.is_float8:  # eager takes no notice of it for others
        raise Refusal(
            f"a scaled product with a scale of its result, of {out}, is not supported: take the result as bfloat16 or "
            "float32, and divide by the scale before it is made float8"
        )
    scales = _scales(b, x, weight, scale_x, scale_weight)
    if scales is not None:  # before blocks: of a depth of 128 or less both have the same shapes
        sums = "float8_fast" if use_fast_accum else "float8"
        made = b.op("matmul", b.to(x, DType.F32), b.to(weight, DType.F32), sums=sums)
        for scale in scales:
            made = b.pw("mul", made, scale)
    else:
        made = _product_of_blocks(b, x, weight, scale_x, scale_weight)
    return b.to(made if bias is None else b.pw("add", made, b.to(bias, DType.F32)), out)


def _scales(b: Builder, x: Value, weight: Value, scale_x: Value, scale_weight: Value) -> list[Value] | None:
    """What a scaled product is multiplied by: two numbers, or one for each row and each column; else None."""
    given = [scale_x, scale_weight]
    if all(ex.product(s.shape) is ex.ONE for s in given):
        return [b.reshape(s, ()) for s in given]
    wanted = ((x.shape[0], ex.ONE), (ex.ONE, weight.shape[1]))
    fits = all(s.rank == 2 and all(map(b.same, s.shape, w)) for s, w in zip(given, wanted, strict=True))
    return given if fits else None


def _product_of_blocks(b: Builder, x: Value, weight: Value, scale_x: Value, scale_weight: Value) -> Value:
    """A product in f32 of operands that their blocks' scales multiply."""
    columns = b.swap(weight, 0, 1)
    scales = block_scales(b, (x, columns), (scale_x, scale_weight))
    if scales is None:
        raise Refusal(
            f"a scaled product with scales {scale_x.type} and {scale_weight.type} is not supported: it takes one for "
            f"each operand, ({x.shape[0]}, 1) and (1, {weight.shape[1]}), or float32 for blocks of 1 x 128 or "
            "128 x 128 along a depth that is fixed"
        )
    left, right = (b.pw("mul", b.to(v, DType.F32), s) for v, s in zip((x, columns), scales, strict=True))
    return b.op("matmul", left, b.swap(right, 0, 1))


@converts("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")
def _grouped_mm(
    b: Builder, x: Value, y: Value, offs: Value | None = None, bias: Value | None = None, out_dtype: Any = None
) -> Value:
    """Rows of x [M, K] by groups that end at the offsets, each by its matrix of y [G, K, N]."""
    if bias is not None:
        raise Refusal("a bias in a grouped product is not supported: add it afterwards")
    if out_dtype is not None and from_torch(out_dtype) is not x.dtype:
        raise Refusal(f"a grouped product of {x.dtype} that gives another dtype is not supported: cast its result")
    if offs is None:
        return product(b, x, y)
    if (x.rank, y.rank) != (2, 3):
        raise Refusal(f"a grouped product of ranks {x.rank} and {y.rank} is not supported: only groups of rows are")
    return b.op("grouped_matmul", x, y, offs)


@converts("aten.linear.default")
def _linear(b: Builder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x @ weight^T + bias, on x flattened to rows."""
    if weight.rank == 1 or not x.dtype.is_float:
        out = product(b, x, weight if weight.rank == 1 else b.swap(weight, 0, 1))
        return b.pw("add", out, bias) if bias is not None else out
    rows = x if x.rank == 2 else b.reshape(x, (ex.product(x.shape[:-1]), x.shape[-1]))
    out = b.matmul(rows, b.swap(weight, 0, 1), wide=bias is not None)
    if bias is not None:
        out = b.to(b.pw("add", out, bias), x.dtype)
    return b.reshape(out, (*x.shape[:-1], weight.shape[0]))


def _scaled(b: Builder, x: Value, factor: Any) -> Value:
    """Of whole numbers by the whole part of a factor, as eager takes it here, and refuses it in sums."""
    if isinstance(factor, float) and not x.dtype.is_float and math.isfinite(factor):
        factor = int(factor)
    return x if factor == 1 else b.pw("mul", x, coefficient(b, factor, x.dtype))


@converts("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def _addmm(b: Builder, x: Value, m: Value, n: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    """beta * x + alpha * (m @ n), rounded once; with beta 0, x does not matter, even if it is NaN."""
    return _added(b, x, product(b, m, n, wide=beta != 0 or alpha != 1), beta, alpha)


def _added(b: Builder, x: Value, out: Value, beta: Any, alpha: Any) -> Value:
    out = _scaled(b, out, alpha)
    return b.to(out if beta == 0 else b.pw("add", out, _scaled(b, b.to(x, out.dtype), beta)), b.result.dtype)


@converts("aten.addbmm.default")
def _addbmm(b: Builder, x: Value, m: Value, n: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _added(b, x, b.reduce(product(b, m, n, wide=True), "sum", [0], False), beta, alpha)


@converts("aten._cdist_forward.default")
def _cdist(b: Builder, x: Value, y: Value, p: float, compute_mode: int | None) -> Value:
    """The p-norm of the difference of every row of x and every row of y."""
    difference = b.pw("sub", b.wide(b.unsqueeze(x, -2)), b.wide(b.unsqueeze(y, -3)))
    return b.to(p_norm(b, difference, p, [difference.rank - 1], False), x.dtype)


@converts("aten._trilinear.default")
def _trilinear(
    b: Builder,
    i1: Value,
    i2: Value,
    i3: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Value:
    """The product of three tensors, each with dims of size 1 put in, summed over some dims. As in eager, what i3 does
    not have is summed first, and rounded to i1's dtype; the products of each sum are not.
    """
    parts: list[Value] = []
    for t, dims in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for d in sorted(dims):
            t = b.unsqueeze(t, d)
        parts.append(b.wide(t))
    first = [d for d in sumdim if d in expand3]
    left = b.pw("mul", parts[0], parts[1])
    if first:
        left = b.reduce(left, "sum", first, True)
    left = b.wide(b.to(left, i1.dtype))
    return b.to(b.reduce(b.pw("mul", left, parts[2]), "sum", list(sumdim), False), i1.dtype)


@converts("aten.outer.default")
def _outer(b: Builder, x: Value, y: Value) -> Value:
    _, result = promoted(x, y)
    return b.pw("mul", b.unsqueeze(x, 1), y, dtype=result)


@converts("aten.convolution.default")
def _convolution(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """x [N, C, *S] or [C, *S]; see Graph's conv."""
    spatial = weight.rank - 2
    if not x.dtype.is_float:
        raise Refusal(f"a convolution of {x.dtype}: convert its operands to a float type")
    if not 1 <= spatial <= 3:
        raise Refusal(f"convolution over {spatial} dims")
    batched = x.rank == weight.rank
    if int_value(x.shape[x.rank - spatial - 1]) == 0:
        return b.full(b.result.shape, 0, x.dtype)  # torch's result has no channels either
    image = x if batched else b.unsqueeze(x, 0)
    if any(int_value(k) is None for k in weight.shape):
        raise Refusal("convolution with a kernel whose size is dynamic")

    def each(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values) if len(values) == spatial else (values[0],) * spatial

    operands = (image, weight) if bias is None else (image, weight, bias)
    for i, (size, p) in enumerate(zip(image.shape[2:], each(padding), strict=True)):
        b.require("le", 1, size, "the convolution needs a point")
        b.require("le", 1, b.result.shape[i - spatial], "the convolution has a result")
        if not transposed:
            reach = each(dilation)[i] * ((int_value(weight.shape[2 + i]) or 1) - 1) + 1
            b.require("le", reach, size + 2 * p, "the convolution's kernel fits into its padded input")
    out = b.op(
        "conv",
        *operands,
        stride=each(stride),
        padding=tuple((p, p) for p in each(padding)),
        dilation=each(dilation),
        groups=groups,
        transposed=bool(transposed),
        output_padding=each(output_padding) if transposed else (0,) * spatial,
    )
    return out if batched else b.reshape(out, out.shape[1:])
