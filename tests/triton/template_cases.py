"""Graphs of one template op with their inputs and what torch says of them: for the interpreter and for a real GPU."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F

from hardtack.codegen.ir.expr import Expr, sym
from hardtack.codegen.ir.graph import Constant, Graph, Lit, Quantized, QuantizedStep
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.ir.types import DType
from hardtack.exporter.dtypes import TORCH_DTYPE
from tests.triton.template_runs import GraphOf

Tensors = Mapping[str, torch.Tensor]
FLOAT8_EPS = 2.0**-14
"""Of a sum of floats of 8 bits as tensor cores have it."""


@dataclass(frozen=True)
class Case:
    """want: the outputs in f64 (or exact), from the tensors moved to any device. sizes: of the graph's symbols.
    sum_eps: what each of `terms` may be off in a sum that is not of f64, relative to it."""

    name: str
    graph: Graph
    tensors: Tensors
    want: Callable[[Tensors], Sequence[torch.Tensor]]
    dtype: DType
    sizes: Mapping[str, int] = field(default_factory=dict)
    exact: bool = False
    terms: int = 1
    sum_eps: float = torch.finfo(torch.float32).eps


def close(case: Case, got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> None:
    """Fails where a result differs by more than its dtype's rounding and that of a sum of `terms` terms."""
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape, f"{case.name}: shape {tuple(g.shape)} where {tuple(w.shape)} is right"
        if case.exact:
            assert torch.equal(torch.nan_to_num(g.double(), 7e9), torch.nan_to_num(w.double(), 7e9)), case.name
            continue
        eps = torch.finfo(g.dtype).eps
        scale = w.abs().max().item() if w.numel() else 0.0
        sums = case.sum_eps if g.dtype != torch.float64 else torch.finfo(torch.float64).eps
        tolerance = 2 * eps * (1 + scale) + 4 * sums * math.sqrt(case.terms) * (1 + scale)
        torch.testing.assert_close(
            g.double(), w.double(), rtol=0, atol=tolerance, equal_nan=True, msg=lambda m: f"{case.name}: {m}"
        )


def _normal(dtype: DType, *shape: int) -> torch.Tensor:
    return torch.randn(*shape).mul(40 if dtype is DType.I8 else 1).to(TORCH_DTYPE[dtype])


def _dims(shape: Sequence[int], dynamic: Sequence[int], sizes: dict[str, int]) -> list[int | Expr]:
    """The shape with dimensions in `dynamic` as symbols."""
    out: list[int | Expr] = list(shape)
    for d in dynamic:
        name = f"s{len(sizes)}"
        sizes[name] = shape[d]
        out[d] = sym(name)
    return out


def gemm(
    m: int,
    n: int,
    k: int,
    dtype: DType,
    batch: Sequence[int] = (),
    transposed: bool = True,
    constant: bool = True,
    epilogue: bool = False,
    dynamic: bool = False,
    left: str = "rows",
    gelu: bool = False,
) -> Case:
    """[batch, M, K] times [K, N] ([N, K] transposed); a constant B is shared by the batch. left: how A lies in memory:
    rows, columns (transposed), or heads (the batch's last dimension inside the rows). epilogue: a bias, a residual and
    relu; gelu: a bias and gelu, instead."""
    g, sizes = GraphOf(), dict[str, int]()
    lead: list[int | Expr] = list(batch)
    rows: int | Expr = _dims([m], [0], sizes)[0] if dynamic else m
    rank = len(lead) + 2
    shape, real = [*lead, rows, k], [*batch, m, k]
    order = list(range(rank))
    if left == "columns":
        order[-1], order[-2] = order[-2], order[-1]
    elif left == "heads" and batch:
        order[-2], order[-3] = order[-3], order[-2]
    g.input("a", dtype, [shape[d] for d in order])
    a = "a" if order == sorted(order) else g.op("permute", "a", dtype=dtype, shape=shape, dims=tuple(order))
    weight = [n, k] if transposed else [k, n]
    outer = [] if constant else list(batch)
    g.input("b", dtype, [*outer, *weight], constant=constant)
    b, outer_rank = "b", len(outer)
    if transposed:
        dims = (*range(outer_rank), outer_rank + 1, outer_rank)
        b = g.op("permute", b, dtype=dtype, shape=[*outer, k, n], dims=dims)
    if constant and batch:
        b = g.op("expand", b, dtype=dtype, shape=[*lead, k, n])
    result = [*lead, rows, n]
    if epilogue or gelu:
        y = g.linear(a, b, g.input("bias", dtype, [n], constant=True), dtype, result)
    else:
        bytes_ = dtype.nbytes == 1
        y = g.bytes_product(a, b, result) if bytes_ else g.op("matmul", a, b, dtype=dtype, shape=result)
    tensors = {"a": _normal(dtype, *(real[d] for d in order)), "b": _normal(dtype, *outer, *weight)}
    if epilogue:
        g.input("residual", dtype, result)
        y = g.op("add", y, "residual", dtype=dtype, shape=result)
        y = g.op("max", y, Lit(0.0, dtype), dtype=dtype, shape=result)
        tensors |= {"bias": _normal(dtype, n), "residual": _normal(dtype, *batch, m, n)}
    if gelu:
        wide = g.cast(y, DType.F32)
        inner = g.op("mul", wide, Lit(math.sqrt(0.5), DType.F32), dtype=DType.F32, shape=result)
        share = g.op("add", g.op("erf", inner, dtype=DType.F32, shape=result), Lit(1.0, DType.F32), dtype=DType.F32,
                     shape=result)  # fmt: skip
        half = g.op("mul", wide, Lit(0.5, DType.F32), dtype=DType.F32, shape=result)
        y = g.op("cast", g.op("mul", half, share, dtype=DType.F32, shape=result), dtype=dtype, shape=result)
        tensors["bias"] = _normal(dtype, n)

    def want(t: Tensors) -> list[torch.Tensor]:
        other = t["b"].double().mT if transposed else t["b"].double()
        out = t["a"].double().permute(order) @ other  # every order used is its own inverse
        if gelu:
            return [torch.nn.functional.gelu(out + t["bias"].double())]
        return [torch.relu(out + t["bias"].double() + t["residual"].double()) if epilogue else out]

    name = f"gemm {[*batch, m, n, k]} {dtype} {'NK' if transposed else 'KN'}{' dynamic' if dynamic else ''} {left}"
    made = Case(name, g.done(y), tensors, want, dtype, sizes, exact=dtype is DType.I8, terms=max(1, k))
    return replace(made, sum_eps=FLOAT8_EPS) if dtype.is_float8 else made


def scaled_bytes(m: int, n: int, k: int, dtype: DType, dynamic: bool = False, fast: bool = False) -> Case:
    """[M, K] times the transpose of [N, K], both of int8 or floats of 8 bits (fast: FLOAT8_SUMS); scales of rows and of
    columns, a bias, and the result in bf16."""
    g, sizes = GraphOf(), dict[str, int]()
    rows = _dims([m], [0], sizes)[0] if dynamic else m
    wide, out = DType.F32, [rows, n]
    g.input("a", dtype, [rows, k])
    b = g.op("permute", g.input("b", dtype, [n, k], constant=True), dtype=dtype, shape=[k, n], dims=(1, 0))
    y = g.cast(g.bytes_product("a", b, out, fast), wide)
    for scale, shape in (("rows", [rows, 1]), ("columns", [n])):
        y = g.op("mul", y, g.input(scale, wide, shape, constant=scale == "columns"), dtype=wide, shape=out)
    y = g.op("add", y, g.input("bias", wide, [n], constant=True), dtype=wide, shape=out)
    tensors = {"a": _normal(dtype, m, k), "b": _normal(dtype, n, k), "rows": torch.rand(m, 1) / 64}
    tensors |= {"columns": torch.rand(n) / 64, "bias": torch.randn(n)}

    def want(t: Tensors) -> list[torch.Tensor]:
        product = t["a"].double() @ t["b"].double().mT
        return [product * t["rows"].double() * t["columns"].double() + t["bias"].double()]

    name = f"scaled bytes {[m, n, k]} {dtype}{' dynamic' if dynamic else ''}{' fast' if fast else ''}"
    return Case(name, g.done(g.cast(y, DType.BF16)), tensors, want, DType.BF16, sizes, terms=k)


def codes(m: int, n: int, k: int, dtype: DType, bits: int, group: int, stored: DType = DType.I8) -> Case:
    """[M, K] times the transpose of codes [N, K] of `bits`, of which groups along K share a scale; a bias. stored: what
    codes are, signed or floats of 8 bits."""
    g = GraphOf()
    g.input("a", dtype, [m, k])
    g.input("b", dtype, [n, k])
    g.inputs.pop()
    scales = QuantizedStep("mul", Constant("mul0", "b.mul0"), (1, group), dtype, dtype)
    g.constants.append(Constant("b", "b", quantized=Quantized(Constant("codes", "b.codes"), (scales,), stored, bits)))
    b = g.op("permute", "b", dtype=dtype, shape=[k, n], dims=(1, 0))
    y = g.linear("a", b, g.input("bias", dtype, [n], constant=True), dtype, [m, n])
    whole = torch.randint(-(1 << (bits - 1)), 1 << (bits - 1), (n, k)).to(TORCH_DTYPE[stored])
    table = (torch.rand(n, k // group) / (1 << bits)).to(TORCH_DTYPE[dtype])
    made = whole.to(TORCH_DTYPE[dtype]) * table.repeat_interleave(group, 1)
    tensors = {"a": _normal(dtype, m, k), "b": made, "b.codes": whole, "b.mul0": table, "bias": _normal(dtype, n)}

    def want(t: Tensors) -> list[torch.Tensor]:
        return [t["a"].double() @ t["b"].double().mT + t["bias"].double()]

    return Case(f"codes {[m, n, k]} {dtype} {bits} bits of {stored}, {group}", g.done(y), tensors, want, dtype, terms=k)


def grouped(
    ends: Sequence[int], m: int, n: int, k: int, dtype: DType, transposed: bool = True, dynamic: bool = False
) -> Case:
    """[M, K] times [G, K, N] ([G, N, K] transposed), and a ReLU; the groups end at rows `ends`."""
    g, sizes = GraphOf(), dict[str, int]()
    rows: int | Expr = _dims([m], [0], sizes)[0] if dynamic else m
    count = len(ends)
    weight = [count, n, k] if transposed else [count, k, n]
    g.input("a", dtype, [rows, k])
    b = g.input("b", dtype, weight, constant=True)
    if transposed:
        b = g.op("permute", b, dtype=dtype, shape=[count, k, n], dims=(0, 2, 1))
    g.input("ends", DType.I32, [count])
    y = g.op("grouped_matmul", "a", b, "ends", dtype=dtype, shape=[rows, n])
    y = g.op("max", y, Lit(0.0, dtype), dtype=dtype, shape=[rows, n])
    tensors = {"a": _normal(dtype, m, k), "b": _normal(dtype, *weight), "ends": torch.tensor(ends, dtype=torch.int32)}

    def want(t: Tensors) -> list[torch.Tensor]:
        other = t["b"].double().mT if transposed else t["b"].double()
        out = torch.zeros(m, n, dtype=torch.float64, device=other.device)
        for index, (first, last) in enumerate(itertools.pairwise([0, *ends])):
            out[first:last] = t["a"][first:last].double() @ other[index]
        return [torch.relu(out)]

    name = f"grouped {[m, n, k]} of {count} {dtype} {'NK' if transposed else 'KN'}{' dynamic' if dynamic else ''}"
    return Case(name, g.done(y), tensors, want, dtype, sizes, terms=k)


def attention(
    shape: tuple[int, int, int, int, int, int, int],
    dtype: DType,
    causal: bool = False,
    mask: str = "",
    heads_inside: bool = False,
    dynamic: bool = False,
    codes: DType | None = None,
) -> Case:
    """shape: batch, heads, key heads, queries, keys, head size of q and k, of v. heads_inside: [B, T, H, D]. codes:
    what k and v are of, with scales of f32 for their rows, beside q of `dtype`."""
    b, h, kv, t, s, d, e = shape
    g, sizes = GraphOf(), dict[str, int]()
    tq, tk = _dims([t, s], [0, 1] if dynamic else [], sizes)
    tensors = {}
    names = []
    for name, dims, real in (
        ("q", [b, h, tq, d], [b, h, t, d]),
        ("k", [b, kv, tk, d], [b, kv, s, d]),
        ("v", [b, kv, tk, e], [b, kv, s, e]),
    ):
        own = dtype if codes is None or name == "q" else codes
        tensors[name] = _normal(own, *real)
        if not heads_inside:
            names.append(g.input(name, own, dims))
            continue
        g.input(name, own, [dims[0], dims[2], dims[1], dims[3]])
        tensors[name] = tensors[name].transpose(1, 2).contiguous()
        names.append(g.op("permute", name, dtype=own, shape=dims, dims=(0, 2, 1, 3)))
    for name in ("k_scales", "v_scales") if codes is not None else ():
        names.append(g.input(name, DType.F32, [b, kv, tk]))
        tensors[name] = torch.rand(b, kv, s) / (40 if codes is DType.I8 else 1)
    if mask:
        kind = DType.BOOL if mask == "keep" else dtype
        names.append(g.input("mask", kind, [1, 1, tq, tk]))
        keep = torch.rand(1, 1, t, s) > 0.3
        keep[:, :, t // 2 + 1 :: 7] = False
        tensors["mask"] = (
            keep if mask == "keep" else torch.where(keep, torch.randn(1, 1, t, s), -math.inf).to(TORCH_DTYPE[dtype])
        )
    scale = 1 / math.sqrt(d)
    of_codes = {} if codes is None else {"codes": True}
    y = g.op("attention", *names, dtype=dtype, shape=[b, h, tq, e], scale=scale, causal=causal, **of_codes)

    def want(x: Tensors) -> list[torch.Tensor]:
        q, k, v = (x[n].transpose(1, 2) if heads_inside else x[n] for n in "qkv")
        if codes is not None:
            k, v = ((c.float() * x[n][..., None]).to(q.dtype) for c, n in ((k, "k_scales"), (v, "v_scales")))
        q, k, v = (o.double() for o in (q, k, v))
        k, v = (o.repeat_interleave(h // kv, 1) for o in (k, v))
        scores = q @ k.mT * scale
        if causal:
            scores = scores.masked_fill(torch.ones(t, s, device=q.device).tril() == 0, -math.inf)
        if mask == "keep":
            scores = scores.masked_fill(~x["mask"], -math.inf)
        elif mask:
            scores = scores + x["mask"].double()
        return [torch.softmax(scores, -1).nan_to_num(0.0) @ v]

    name = f"attention {list(shape)} {dtype}{' causal' if causal else ''} {mask}{' dynamic' if dynamic else ''}"
    name += f" of {codes}" if codes is not None else ""
    # the weights are rounded to the operands' type before they are multiplied with the values
    return Case(name, g.done(y), tensors, want, dtype, sizes, terms=s + 1)


def convolution(
    x: Sequence[int],
    out: int,
    kernel: Sequence[int],
    dtype: DType,
    groups: int = 1,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    transposed: bool = False,
    constant: bool = True,
    bias: bool = True,
    dynamic: bool | Sequence[int] = False,
) -> Case:
    """A convolution of 1 to 3 dimensions, its bias and a ReLU; the output in the contract's own order.

    dynamic: the dimensions of x that are symbols; True for the batch.
    """
    spatial = len(x) - 2
    weight = [x[1], out // groups, *kernel] if transposed else [out, x[1] // groups, *kernel]
    tensors = {"x": _normal(dtype, *x), "w": _normal(dtype, *weight)}
    if bias:
        tensors["b"] = _normal(dtype, out)
    functions = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d) if transposed else (
        F.conv1d, F.conv2d, F.conv3d
    )  # fmt: skip

    def want(t: Tensors) -> list[torch.Tensor]:
        call = functions[spatial - 1]
        given = t["b"].double() if bias else None
        wide = call(  # type: ignore[operator]
            t["x"].double(), t["w"].double(), given, stride=stride, padding=padding, dilation=dilation, groups=groups
        )
        return [wide.relu()]

    sizes: dict[str, int] = {}
    g = GraphOf()
    dims = _dims(x, [0] if dynamic is True else dynamic or [], sizes)
    g.input("x", dtype, dims)
    g.input("w", dtype, weight, constant=constant)
    names = ["x", "w"]
    if bias:
        names.append(g.input("b", dtype, [out], constant=True))
    size = [
        (n - 1) * stride - 2 * padding + dilation * (k - 1) + 1
        if transposed
        else (n + 2 * padding - dilation * (k - 1) - 1) // stride + 1
        for n, k in zip(dims[2:], kernel, strict=True)
    ]
    shape = [dims[0], out, *size]
    y = g.op(
        "conv",
        *names,
        dtype=dtype,
        shape=shape,
        stride=(stride,) * spatial,
        padding=((padding, padding),) * spatial,
        dilation=(dilation,) * spatial,
        groups=groups,
        transposed=transposed,
        output_padding=(0,) * spatial,
    )
    y = g.op("max", y, Lit(0.0, dtype), dtype=dtype, shape=shape)
    name = f"{'transposed ' if transposed else ''}conv {list(x)} to {out} by {list(kernel)} groups {groups} {dtype}"
    return Case(name, g.done(y), tensors, want, dtype, sizes, terms=math.prod(weight[1:]) + 1)


def sort(
    shape: Sequence[int],
    dim: int,
    dtype: DType,
    k: int | None = None,
    descending: bool = False,
    longest: int | None = -1,
) -> Case:
    """sort, or topk with `k`; longest: the bound of a dynamic dimension, -1 for a static one."""
    x = torch.randn(*shape) * 4
    if dtype is DType.BOOL:
        x = x > 0
    elif dtype.is_float and x.numel() > 5:
        flat = x.reshape(-1)
        flat[:5] = torch.tensor([0.0, math.nan, math.inf, -0.0, -math.inf])
        flat[-1] = flat[-2]
    elif dtype is DType.U8:
        x = x.abs()
    tensors = {"x": x.to(TORCH_DTYPE[dtype])}
    sizes: dict[str, int] = {}
    dims: list[int | Expr] = list(shape)
    if longest != -1:
        sizes["s0"] = shape[dim]
        dims[dim] = sym("s0", 0, longest)
    g = GraphOf()
    g.input("x", dtype, dims)
    result = [k if k is not None and d == dim else n for d, n in enumerate(dims)]
    attrs = {"descending": descending} if k is None else {"largest": descending}
    kind = "sort" if k is None else "topk"
    outputs = g.ops_of(kind, "x", results=[(dtype, result), (DType.I64, result)], dim=dim, **attrs)

    def want(t: Tensors) -> list[torch.Tensor]:
        values, indices = torch.sort(t["x"], dim=dim, descending=descending, stable=True)
        length = shape[dim] if k is None else k
        return [values.narrow(dim, 0, length), indices.narrow(dim, 0, length)]

    return Case(f"{kind} {list(shape)} dim {dim} {dtype}", g.done(*outputs), tensors, want, dtype, sizes, exact=True)


def scan(shape: Sequence[int], dim: int, dtype: DType, kind: str, out: DType | None = None) -> Case:
    """A running sum, prod, max or min."""
    out = out or dtype
    x = torch.randn(*shape) if dtype.is_float else torch.randint(-3, 4, tuple(shape)).abs()
    if kind == "prod" and dtype.is_float:
        x = 1 + 0.01 * x
    if kind in ("max", "min") and dtype.is_float and x.numel() > 4:
        x.view(-1)[4] = math.nan
    g = GraphOf()
    g.input("x", dtype, shape)
    y = g.op("scan", "x", dtype=out, shape=shape, kind=kind, dim=dim)

    def want(t: Tensors) -> list[torch.Tensor]:
        wide = t["x"].double() if dtype.is_float else t["x"].long()
        if kind in ("sum", "prod"):
            return [wide.cumsum(dim) if kind == "sum" else wide.cumprod(dim)]
        return [(wide.cummax(dim) if kind == "max" else wide.cummin(dim)).values]

    exact = not out.is_float or kind in ("max", "min")
    tensors = {"x": x.to(TORCH_DTYPE[dtype])}
    terms = max(1, shape[dim])
    return Case(f"scan {kind} {list(shape)} {dtype}", g.done(y), tensors, want, out, exact=exact, terms=terms)


def recurrent(
    kind: str,
    steps: int,
    batch: int,
    width: int,
    hidden: int,
    dtype: DType,
    bias: bool = True,
    reverse: bool = False,
    dynamic: bool = False,
) -> Case:
    """One layer of a recurrence in one direction."""
    lstm = kind == "lstm"
    gates = GATES[kind]
    sizes: dict[str, int] = {}
    t, b = _dims([steps, batch], [0, 1] if dynamic else [], sizes)
    g = GraphOf()
    tensors: dict[str, torch.Tensor] = {}
    names = []
    shapes: list[tuple[str, list[int | Expr], list[int]]] = [
        ("x", [t, b, width], [steps, batch, width]),
        ("h0", [b, hidden], [batch, hidden]),
        *([("c0", [b, hidden], [batch, hidden])] if lstm else []),
        ("w_ih", [gates * hidden, width], [gates * hidden, width]),
        ("w_hh", [gates * hidden, hidden], [gates * hidden, hidden]),
        *([(n, [gates * hidden], [gates * hidden]) for n in ("b_ih", "b_hh")] if bias else []),
    ]
    for name, dims, real in shapes:
        # weights that do not make small differences of a state larger with every step
        tensors[name] = (torch.randn(*real) * (real[-1] ** -0.5 if name[:2] == "w_" else 0.3)).to(TORCH_DTYPE[dtype])
        names.append(g.input(name, dtype, dims, constant=name[:2] in ("w_", "b_")))
    states = [(dtype, [b, hidden])] * (2 if lstm else 1)
    outputs = g.ops_of(kind, *names, results=[(dtype, [t, b, hidden]), *states], reverse=reverse, has_bias=bias)

    def want(given: Tensors) -> list[torch.Tensor]:
        w = {n: x.double() for n, x in given.items()}
        h, c = w["h0"], w.get("c0")
        zero = torch.zeros(gates * hidden, dtype=torch.float64, device=h.device)
        ys: list[torch.Tensor] = []
        for i in reversed(range(steps)) if reverse else range(steps):
            left = (w["x"][i] @ w["w_ih"].mT + w.get("b_ih", zero)).chunk(gates, -1)
            right = (h @ w["w_hh"].mT + w.get("b_hh", zero)).chunk(gates, -1)
            if c is not None:
                gi, gf, gg, go = (x + y for x, y in zip(left, right, strict=True))
                c = gf.sigmoid() * c + gi.sigmoid() * gg.tanh()
                h = go.sigmoid() * c.tanh()
            elif gates == 1:
                h = (left[0] + right[0]).tanh() if kind == "rnn_tanh" else (left[0] + right[0]).relu()
            else:
                r, z = ((x + y).sigmoid() for x, y in zip(left[:2], right[:2], strict=True))
                n = (left[2] + r * right[2]).tanh()
                h = (1 - z) * n + z * h
            ys.append(h)
        y = torch.stack(ys[::-1] if reverse else ys) if ys else w["x"].new_zeros(0, batch, hidden)
        return [y, h] if c is None else [y, h, c]

    name = f"{kind} {[steps, batch, width, hidden]} {dtype}{' reverse' if reverse else ''}"
    # the state is rounded to its type at every step, and errors of one step enter the next
    return Case(name, g.done(*outputs), tensors, want, dtype, sizes, terms=(width + hidden) * 16)
