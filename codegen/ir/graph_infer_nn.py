"""The type rules of the larger Graph ops: matmul, convolution, attention, pooling, indexing, recurrence, control flow.

graph_infer.py says what a rule is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hardtack.codegen.ir.expr import Expr, int_value
from hardtack.codegen.ir.graph import Graph, TensorType
from hardtack.codegen.ir.graph_infer import Case, Types, broadcast, need, window_size
from hardtack.codegen.ir.types import BYTES, DType

T = TypeVar("T")
CODES = (DType.I8, DType.F8E4M3)
"""What keys and values of an attention may be codes of."""
FLOAT8_SUMS = ("float8", "float8_fast")
"""How a product of what were floats of 8 bits may be added up, besides in f32: as tensor cores do that, which keep
some 14 bits; into a sum of f32 from time to time, or never."""


def matmul_types(c: Case) -> Types:
    a, b = c.args
    known = a.dtype.is_float or a.dtype in BYTES
    need(a.dtype is b.dtype and known, f"matmul of {a.dtype} and {b.dtype}")
    need(len(a.shape) == len(b.shape) >= 2, f"matmul of ranks {len(a.shape)} and {len(b.shape)}")
    need(c.same_shape(a.shape[:-2], b.shape[:-2]), f"matmul batch dims differ: {a} and {b}")
    need(c.same(a.shape[-1], b.shape[-2]), f"matmul inner sizes differ: {a.shape[-1]} and {b.shape[-2]}")
    sums = dict(c.op.attrs).get("sums", "")
    need(sums in ("", *FLOAT8_SUMS), f"matmul adds up as {sums!r}")
    need(bool(sums) or not a.dtype.is_float8, f"matmul of {a.dtype} does not say how it adds up")
    need(not sums or a.dtype.is_float8 or _result_dtype(c) is DType.F32, f"matmul of {a.dtype} adds up as {sums}")
    return (TensorType(_result_dtype(c), (*a.shape[:-1], b.shape[-1])),)


def _result_dtype(c: Case) -> DType:
    """The operands', or f32 where a product of half types is not rounded to theirs; of floats of 8 bits always f32, of
    int8 int32."""
    own = c.args[0].dtype
    dtype = dict(c.op.attrs).get("dtype", own)
    wide = DType.F32 if own.is_half or own.is_float8 else own if own.is_float else DType.I32
    fits = dtype is wide or (own.is_float and dtype is own)
    need(isinstance(dtype, DType) and fits, f"{c.op.kind} of {own} as {dtype}")
    return dtype  # type: ignore[return-value]


def grouped_types(c: Case) -> Types:
    a, b, ends = c.args
    need(a.dtype is b.dtype and a.dtype.is_float, f"grouped matmul of {a.dtype} and {b.dtype}")
    ranks = tuple(len(t.shape) for t in c.args)
    need(ranks == (2, 3, 1), f"grouped matmul of ranks {ranks}")
    need(c.same(a.shape[1], b.shape[1]), f"grouped matmul inner sizes differ: {a.shape[1]} and {b.shape[1]}")
    need(c.same(b.shape[0], ends.shape[0]), f"{b.shape[0]} matrices for {ends.shape[0]} groups")
    need(ends.dtype in (DType.I32, DType.I64), f"groups end at {ends.dtype}")
    return (TensorType(_result_dtype(c), (a.shape[0], b.shape[2])),)


def _pairs(value: object, count: int) -> tuple[tuple[int, int], ...]:
    ok = isinstance(value, tuple) and len(value) == count and all(isinstance(p, tuple) and len(p) == 2 for p in value)
    need(ok, f"padding is not {count} (lo, hi) pairs: {value!r}")
    return value  # type: ignore[return-value]


def conv_types(c: Case) -> Types:
    x, w = c.args[0], c.args[1]
    spatial = len(x.shape) - 2
    need(1 <= spatial <= 3 and len(w.shape) == len(x.shape), f"conv of {x} by {w}")
    need(w.dtype is x.dtype and (x.dtype.is_float or x.dtype is DType.I8), f"conv of {x.dtype} and {w.dtype}")
    result = _result_dtype(c)
    stride, dilation, groups = c.ints("stride"), c.ints("dilation"), c.int_attr("groups")
    extra = c.ints("output_padding")
    padding = _pairs(c.attr("padding"), spatial)
    need(len(stride) == len(dilation) == len(extra) == spatial, "conv attributes do not have one entry a spatial dim")
    kernel = [int_value(k) for k in w.shape[2:]]
    need(all(k is not None for k in kernel), f"conv kernel size is not constant: {w}")
    transposed = bool(c.attr("transposed"))
    need(x.dtype.is_float or not transposed, f"conv of {x.dtype}, transposed")
    fill = dict(c.op.attrs).get("fill")
    fits = fill is None if x.dtype.is_float else isinstance(fill, int) and -128 <= fill < 128
    need(fits, f"conv of {x.dtype} that is padded with {fill}")
    channels = w.shape[0] if transposed else w.shape[1] * groups
    need(int_value(channels) != 0, f"conv of {x}, which has no channels")
    need(c.same(x.shape[1], channels), f"conv input has {x.shape[1]} channels, the weight wants {channels}")
    out_channels = w.shape[1] * groups if transposed else w.shape[0]
    if len(c.args) == 3:
        fits = c.args[2].dtype is result and c.same_shape(c.args[2].shape, (out_channels,))
        need(fits, f"conv bias is {c.args[2]}, expected {result}[{out_channels}]")
    sizes: list[Expr] = []
    for i, size in enumerate(x.shape[2:]):
        k, (lo, hi) = kernel[i] or 0, padding[i]
        if transposed:
            sizes.append((size - 1) * stride[i] - lo - hi + dilation[i] * (k - 1) + extra[i] + 1)
        else:
            sizes.append(window_size(size, k, stride[i], (lo, hi), dilation[i]))
    return (TensorType(result, (x.shape[0], out_channels, *sizes)),)


@dataclass(frozen=True)
class AttentionOperands(Generic[T]):
    """What an attention is given, one of each operand: such as its type. scales: of k and v, where these are codes."""

    q: T
    k: T
    v: T
    scales: tuple[T, ...]
    mask: T | None


def attention_operands(codes: bool, given: Sequence[T]) -> AttentionOperands[T]:
    """given: one of each operand of an attention, in their order. codes: whether its keys and values are such."""
    count = 5 if codes else 3
    return AttentionOperands(
        given[0], given[1], given[2], tuple(given[3:count]), given[count] if len(given) > count else None
    )


def attention_types(c: Case) -> Types:
    codes = dict(c.op.attrs).get("codes")
    need(codes in (None, True), f"attention has codes {codes}")
    x = attention_operands(codes is not None, c.args)
    q, k, v = x.q, x.k, x.v
    need(len(q.shape) == len(k.shape) == len(v.shape) == 4, "attention operands are not of rank 4")
    if x.scales:
        need(
            q.dtype.is_float and k.dtype is v.dtype and k.dtype in CODES, f"attention of {q.dtype} and codes {k.dtype}"
        )
        for scales in x.scales:
            fits = scales.dtype is DType.F32 and c.same_shape(scales.shape, k.shape[:3])
            need(fits, f"scales {scales} are not those of rows {k}")
    else:
        need(q.dtype is k.dtype is v.dtype and q.dtype.is_float, "attention operands differ in dtype or are not float")
    need(c.same_shape(k.shape[:3], v.shape[:3]), f"attention keys {k} and values {v} differ")
    need(
        c.same(q.shape[0], k.shape[0]) and c.same(q.shape[3], k.shape[3]), f"attention queries {q} and keys {k} differ"
    )
    heads, groups = int_value(q.shape[1]), int_value(k.shape[1])
    if heads is not None and groups is not None:
        need(groups > 0 and heads % groups == 0, f"{heads} query heads are not a multiple of {groups} key heads")
    need(isinstance(c.attr("scale"), float) and isinstance(c.attr("causal"), bool), "attention needs scale and causal")
    result = _result_dtype(c)
    if x.mask is not None:
        mask = x.mask
        need(mask.dtype in (DType.BOOL, q.dtype, result), f"attention mask of {mask.dtype}")
        target = (*q.shape[:3], k.shape[2])
        need(c.same_shape(broadcast([mask.shape, target], c.same), target), f"mask {mask} does not broadcast")
    return (TensorType(result, (*q.shape[:3], v.shape[3])),)


def _index_shape(c: Case, indices: Types) -> tuple[Expr, ...]:
    need(bool(indices) and all(i.dtype.is_int for i in indices), "indices must be integers")
    return broadcast([i.shape for i in indices], c.same)


def take_types(c: Case) -> Types:
    x, indices, dims, at = c.args[0], c.args[1:], c.ints("dims"), c.int_attr("at")
    need(len(dims) == len(indices) == len(set(dims)), f"take along dims {dims} with {len(indices)} indices")
    need(all(0 <= d < len(x.shape) for d in dims), f"take along dims {dims} of rank {len(x.shape)}")
    rest = [s for i, s in enumerate(x.shape) if i not in dims]
    need(0 <= at <= len(rest), f"take puts the index dims at {at} of {len(rest)}")
    _check_wraps(c)
    return (TensorType(x.dtype, (*rest[:at], *_index_shape(c, indices), *rest[at:])),)


def put_types(c: Case) -> Types:
    x, value, indices, dims, at = c.args[0], c.args[1], c.args[2:], c.ints("dims"), c.int_attr("at")
    ascending = list(dims) == sorted(set(dims)) and all(0 <= d < len(x.shape) for d in dims)
    need(
        ascending and len(dims) == len(indices), f"put along dims {dims} of rank {len(x.shape)}, {len(indices)} indices"
    )
    need(value.dtype is x.dtype, f"put of {value.dtype} into {x.dtype}")
    rest = [n for d, n in enumerate(x.shape) if d not in dims]
    need(0 <= at <= len(rest), f"put has the index dims at {at} of {len(rest)}")
    _check_wraps(c)
    target = (*rest[:at], *_index_shape(c, indices), *rest[at:])
    need(c.same_shape(broadcast([value.shape, target], c.same), target), f"put of {value} where {target} is indexed")
    return (x,)


def _check_wraps(c: Case) -> None:
    given = dict(c.op.attrs).get("wraps")
    need(given is None or given is False, f"wraps is {given}")


def gather_types(c: Case) -> Types:
    x, index = c.args
    c.dim("dim", len(x.shape))
    need(index.dtype.is_int and len(index.shape) == len(x.shape), f"gather from {x} by {index}")
    return (TensorType(x.dtype, index.shape),)


def scatter_types(c: Case) -> Types:
    x, index, src = c.args
    c.dim("dim", len(x.shape))
    need(c.attr("reduce") in ("none", "sum", "prod", "amax", "amin"), f"unknown scatter reduction {c.attr('reduce')!r}")
    need(index.dtype.is_int and src.dtype is x.dtype, f"scatter of {src} into {x} by {index}")
    need(len(x.shape) == len(index.shape) == len(src.shape), f"scatter of {src} into {x} by {index}: ranks differ")
    return (x,)


def _pooled(c: Case) -> TensorType:
    x = c.args[0]
    spatial = len(x.shape) - 2
    kernel, stride, dilation = c.ints("kernel"), c.ints("stride"), c.ints("dilation")
    padding = _pairs(c.attr("padding"), spatial)
    need(
        len(kernel) == len(stride) == len(dilation) == spatial >= 1,
        "pool attributes do not have one entry a spatial dim",
    )
    sizes = [window_size(s, kernel[i], stride[i], padding[i], dilation[i]) for i, s in enumerate(x.shape[2:])]
    return TensorType(x.dtype, (*x.shape[:2], *sizes))


def pool_types(c: Case) -> Types:
    count = c.attr("count")
    need(c.attr("kind") in ("max", "avg"), f"unknown pool {c.attr('kind')!r}")
    need(count in ("kernel", "padded", "valid") or isinstance(count, int), f"unknown count {count!r}")
    return (_pooled(c),)


def pool_index_types(c: Case) -> Types:
    return (TensorType(DType.I64, _pooled(c).shape),)


def _resized(c: Case) -> Types:
    x, out = c.args[0], c.stated[0]
    need(len(out.shape) == len(x.shape) >= 3, f"{c.op.kind} from {x} to {out}")
    need(c.same_shape(out.shape[:2], x.shape[:2]), f"{c.op.kind} changes batch or channels: {x} to {out}")
    return (TensorType(x.dtype, out.shape),)


def resize_types(c: Case) -> Types:
    need(c.attr("mode") in ("nearest", "nearest-exact", "linear", "cubic"), f"unknown resize mode {c.attr('mode')!r}")
    need(isinstance(c.attr("align_corners"), bool), "resize needs align_corners")
    scales = c.attr("scales")
    need(isinstance(scales, tuple) and len(scales) == len(c.args[0].shape) - 2, "resize needs one scale a spatial dim")
    return _resized(c)


def adaptive_types(c: Case) -> Types:
    need(c.attr("kind") in ("max", "avg"), f"unknown pool {c.attr('kind')!r}")
    return _resized(c)


GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Recurrences, with the number of rows of weights for each hidden unit."""


def recurrent_types(c: Case) -> Types:
    gates, states = GATES[c.op.kind], 2 if c.op.kind == "lstm" else 1
    has_bias = bool(c.attr("has_bias"))
    need(isinstance(c.attr("reverse"), bool), "a recurrent op needs reverse")
    need(len(c.args) == 1 + states + (4 if has_bias else 2), f"{c.op.kind} with {len(c.args)} operands")
    x, h = c.args[0], c.args[1]
    need(len(x.shape) == 3 and len(h.shape) == 2, f"{c.op.kind} of {x} with state {h}")
    hidden = h.shape[1]
    want: list[Sequence[Expr]] = [(x.shape[1], hidden)] * states
    want += [(hidden * gates, x.shape[2]), (hidden * gates, hidden)] + [(hidden * gates,)] * (2 if has_bias else 0)
    for given, shape in zip(c.args[1:], want, strict=True):
        need(
            given.dtype is x.dtype and c.same_shape(given.shape, shape),
            f"{c.op.kind} operand {given}, expected {list(shape)}",
        )
    y = TensorType(x.dtype, (*x.shape[:2], hidden))
    return (y, *(TensorType(x.dtype, (x.shape[1], hidden)) for _ in range(states)))


def _graph_attr(c: Case, name: str) -> Graph:
    value = c.attr(name)
    need(isinstance(value, Graph), f"attribute {name} is not a Graph")
    return value  # type: ignore[return-value]


def _fits(c: Case, graph: Graph, args: Types, name: str) -> None:
    given = tuple(graph.types[i.name] for i in graph.inputs)
    ok = len(given) == len(args) and all(
        g.dtype is a.dtype and c.same_shape(g.shape, a.shape) for g, a in zip(given, args, strict=True)
    )
    need(ok, f"{name} takes ({', '.join(map(str, given))}), given ({', '.join(map(str, args))})")


def cond_types(c: Case) -> Types:
    need(c.args[0] == TensorType(DType.BOOL, ()), f"the predicate is {c.args[0]}, expected a bool scalar")
    branches = [_graph_attr(c, "then"), _graph_attr(c, "orelse")]
    for graph, name in zip(branches, ("then", "orelse"), strict=True):
        _fits(c, graph, c.args[1:], name)
    a, b = (tuple(g.types[o] for o in g.outputs) for g in branches)
    need(a == b, f"the branches give ({', '.join(map(str, a))}) and ({', '.join(map(str, b))})")
    return a


def while_types(c: Case) -> Types:
    test, body = _graph_attr(c, "cond"), _graph_attr(c, "body")
    _fits(c, test, c.args, "cond")
    _fits(c, body, c.args, "body")
    need([test.types[o] for o in test.outputs] == [TensorType(DType.BOOL, ())], "cond must give one bool scalar")
    carried = tuple(body.types[o] for o in body.outputs)
    need(carried == c.args[: len(carried)], f"body gives ({', '.join(map(str, carried))})")
    return carried
