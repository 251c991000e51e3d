"""Rows of the op table: norms, pools, resizing, matrix products, attention, recurrences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from tests.codegen.compare import FLOATS, Function, Suite, normal


def norm_rows() -> dict[str, Function]:
    """x [3, 8, 5, 9]"""
    w, b = normal(9, seed=2), normal(9, seed=3)
    c, d = normal(8, seed=4), normal(8, seed=5)
    running = nn.BatchNorm2d(8).eval()
    running.running_mean, running.running_var = normal(8, seed=6), normal(8, seed=7).abs() + 0.1
    return {
        "layer_norm": lambda x: (F.layer_norm(x, (9,)), F.layer_norm(x, (9,), w, b), F.layer_norm(x, x.shape[2:])),
        "rms_norm": lambda x: (F.rms_norm(x, (9,), w), x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
        "group_norm": lambda x: (F.group_norm(x, 4, c, d), F.group_norm(x, 1), F.group_norm(x, 8, c, d).relu()),
        "instance_norm": lambda x: F.instance_norm(x, weight=c, bias=d),
        "norms_of_large_numbers": lambda x: (
            F.group_norm(x * 1e22, 4, c, d),
            F.layer_norm(x * 1e22, (9,), w, b),
            F.instance_norm(x * 1e22, weight=c, bias=d),
            (x * 1e22).var(1),
        ),
        "batch_norm": running,
        "normalize": lambda x: (F.normalize(x, dim=1), F.normalize(x, dim=-1)),
        "glu": lambda x: F.glu(x, 1),
        "prelu": lambda x: F.prelu(x, c),
        "softmax_scaled": lambda x: F.softmax(x / 3 - 1, -1) * x,
        "log_softmax": lambda x: F.log_softmax(x, 1).exp().sum(1),
        "layer_norm_residual": lambda x: F.layer_norm(x + x.flip(-1), (9,), w, b) + x,
        "two_norms": lambda x: F.layer_norm(F.layer_norm(x, (9,), w, b).relu(), (9,)),
        "softmax_of_norm": lambda x: F.layer_norm(x, (9,)).softmax(-1).sum(1),
    }


def norm_suites() -> Iterator[Suite]:
    yield Suite("norm", norm_rows(), [[normal(3, 8, 5, 9)]], None, 10.0)
    yield Suite(
        "norm_dynamic",
        norm_rows(),
        [[normal(n, 8, m, 9)] for n, m in ((3, 5), (1, 2), (2, 9))],
        ({0: Dim.AUTO, 2: Dim.AUTO},),
        10.0,
    )


def pool_rows() -> dict[str, Function]:
    """x [2, 5, 13, 16]"""
    return {
        "max": lambda x: (
            F.max_pool2d(x, 2),
            F.max_pool2d(x, 3, 2, 1),
            F.max_pool2d(x, (2, 3), (1, 2), (1, 1), (1, 1)),
        ),
        "max_dilated": lambda x: (F.max_pool2d(x, 3, 1, 1, dilation=2), F.max_pool2d(x, 3, 2, 1, ceil_mode=True)),
        "max_ceil": lambda x: F.max_pool2d(x, 3, 2, 0, ceil_mode=True),
        "max_index": lambda x: (
            F.max_pool2d(x, 2, return_indices=True),
            F.max_pool2d(x, 3, 2, 1, return_indices=True, ceil_mode=True),
            F.max_pool2d(x, 3, 1, 1, 2, return_indices=True),
        ),
        "avg": lambda x: (
            F.avg_pool2d(x, 2),
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        ),
        "avg_ceil": lambda x: (
            F.avg_pool2d(x, 3, 2, 0, ceil_mode=True),
            F.avg_pool2d(x, 3, 2, 1, True, True),
            F.avg_pool2d(x, 3, 2, 1, True, False),
            F.avg_pool2d(x, 2, 2, divisor_override=3),
        ),
        "adaptive_avg": lambda x: (
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, (5, 4)),
            F.adaptive_avg_pool2d(x, (7, 3)),
        ),
        "adaptive_max": lambda x: (F.adaptive_max_pool2d(x, 1), F.adaptive_max_pool2d(x, (5, 7))),
        "adaptive_up": lambda x: F.adaptive_avg_pool2d(x[..., :3, :4], (6, 6)),
        "one_dim": lambda x: (
            F.max_pool1d(x[0], 3, 2),
            F.avg_pool1d(x[0], 4, 3, 1),
            F.adaptive_avg_pool1d(x[0], 5),
            F.adaptive_max_pool1d(x[0], 3),
        ),
        "three_dims": lambda x: (F.max_pool3d(x, 2), F.avg_pool3d(x, (2, 3, 2)), F.adaptive_avg_pool3d(x, (2, 3, 5))),
        "of_computed": lambda x: (F.max_pool2d(x.relu() + 1, 2) * 2, F.avg_pool2d(x.exp(), 2).sum(1)),
        "mean": lambda x: x.mean((2, 3)) + x.amax((2, 3)),
    }


def pool_suites() -> Iterator[Suite]:
    images = [[normal(n, 5, h, w)] for n, h, w in ((2, 13, 16), (1, 14, 18), (3, 20, 17))]
    yield Suite("pool", pool_rows(), images[:1])
    sized = {k: f for k, f in pool_rows().items() if k not in ("three_dims", "one_dim")}
    yield Suite("pool_dynamic", sized, images, ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},))
    ints = {k: f for k, f in pool_rows().items() if k in ("max", "max_dilated", "max_ceil", "max_index")}
    ints["adaptive_index"] = lambda x: F.adaptive_max_pool2d(x, 1, return_indices=True)
    ints["low_index"] = lambda x: F.max_pool2d(x.clamp_max(-math.inf), 3, 2, 1, return_indices=True)
    yield Suite(
        "pool_f64", {k: f for k, f in pool_rows().items() if "adaptive" not in k}, [[x[0].double()] for x in images[:1]]
    )
    kept = ("max", "max_dilated", "max_index", "avg", "avg_ceil")
    whole = {k: f for k, f in pool_rows().items() if k in kept}
    whole["one_dim"] = lambda x: (F.avg_pool1d(x[0], 4, 3, 1), F.lp_pool2d(x, 2, 2))
    whole["three_dims"] = lambda x: F.avg_pool3d(x, (2, 3, 2))
    yield Suite("pool_i64", whole, [[(normal(2, 5, 13, 16) * 9).long()]])
    yield Suite(
        "pool_nan",
        ints,
        [[images[0][0].masked_fill(images[0][0] > 1.5, math.nan).masked_fill(images[0][0] < 0, -math.inf)]],
    )


def resize_rows(align: bool) -> dict[str, Function]:
    """x [2, 3, 7, 10]"""
    rows: dict[str, Function] = {
        "bilinear": lambda x: (
            F.interpolate(x, (14, 20), mode="bilinear", align_corners=align),
            F.interpolate(x, (5, 13), mode="bilinear", align_corners=align),
            F.interpolate(x, scale_factor=1.7, mode="bilinear", align_corners=align),
            F.interpolate(x, (1, 1), mode="bilinear", align_corners=align),
        ),
        "bicubic": lambda x: (
            F.interpolate(x, (14, 9), mode="bicubic", align_corners=align),
            F.interpolate(x, scale_factor=2.5, mode="bicubic", align_corners=align),
        ),
        "linear": lambda x: F.interpolate(x[0], 23, mode="linear", align_corners=align),
        "places": lambda x: [
            F.grid_sample(x, x[..., :2].tanh() * 1.2, mode, padding, align)
            for mode, padding in (("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection"))
        ],
        "places of three": lambda x: F.grid_sample(x[:, None], x[:, None, ..., :3].tanh(), align_corners=align),
        "trilinear": lambda x: F.interpolate(x[None], (4, 9, 7), mode="trilinear", align_corners=align),
    }
    if not align:
        for mode in ("nearest", "nearest-exact"):
            rows[mode] = lambda x, mode=mode: (
                F.interpolate(x, (14, 20), mode=mode),
                F.interpolate(x, (5, 13), mode=mode),
                F.interpolate(x, scale_factor=3, mode=mode),
                F.interpolate(x, scale_factor=(0.6, 1.3), mode=mode),
                F.interpolate(x[0], 17, mode=mode),
                F.interpolate(x.relu(), (7, 20), mode=mode) + 1,
            )
    return rows


def scaled_rows(*factors: Any) -> dict[str, Function]:
    """x [2, 3, h, w]: factors that are no ratio of sizes, and results as large as the input or twice as large by chance"""
    up, same = factors[:2]
    rows: dict[str, Function] = {
        mode: lambda x, mode=mode: [F.interpolate(x, scale_factor=f, mode=mode) for f in factors]
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")
    }
    for mode in ("nearest", "nearest-exact", "linear"):
        rows[f"{mode}_1d"] = lambda x, mode=mode: [F.interpolate(x[0], scale_factor=f, mode=mode) for f in factors[:2]]
    for mode in ("nearest", "nearest-exact", "trilinear"):
        rows[f"{mode}_3d"] = lambda x, mode=mode: F.interpolate(x[None], scale_factor=(same, up, same), mode=mode)
    rows["align"] = lambda x: [
        F.interpolate(x, scale_factor=f, mode=m, align_corners=True)
        for f in factors[:2]
        for m in ("bilinear", "bicubic")
    ]
    rows["recomputed"] = lambda x: [
        F.interpolate(x, scale_factor=f, mode=m, recompute_scale_factor=True)
        for f in factors
        for m in ("nearest", "nearest-exact", "bilinear")
    ]
    rows["large"] = lambda x: [
        F.interpolate(x, scale_factor=(f, 47.25), mode=m) for f in factors[:2] for m in ("nearest", "nearest-exact")
    ]
    return rows


def resize_suites() -> Iterator[Suite]:
    for align in (False, True):
        name = f"resize_{'align' if align else 'half'}"
        yield Suite(name, resize_rows(align), [[normal(2, 3, 7, 10)]], None, 20.0)
        yield Suite(f"{name}_f64", resize_rows(align), [[normal(2, 3, 7, 10, dtype=torch.float64)]])
    images = [[normal(n, 3, 7, 10)] for n in (2, 1, 3)]
    yield Suite("resize_half_dynamic", resize_rows(False), images, ({0: Dim.AUTO},), 20.0)
    yield Suite("resize_antialias", antialiased_rows((3, 4), (20, 31), (9, 5)), [[normal(2, 3, 9, 33)]])
    # a point of these is a program of Triton's, and takes an interpreter 10 ms
    images = [[normal(1, 2, h, w)] for h, w in ((8, 11), (40, 7), (10, 13))]
    free = ({2: Dim.AUTO, 3: Dim.AUTO},)
    yield Suite("resize_antialias_dynamic", antialiased_rows((3, 4), (10, 13)), images, free)
    for dtype in (*FLOATS, torch.uint8):
        name, sizes = str(dtype).removeprefix("torch."), ((3, 4), (8, 21), (4, 3), (21, 5))
        images = [[normal(2, 3, h, w, dtype=dtype) if dtype.is_floating_point else whole(2, 3, h, w)] for h, w in sizes]
        images[0][0][0, 0, 0, :2] = torch.tensor([math.inf, math.nan]) if dtype.is_floating_point else 255
        fixed, free = scaled_rows(2.3, 1.2, 0.45, (1.4, 2.6)), scaled_rows(2.25, 1.25, 0.75, (1.375, 2.625))
        scale = 40.0 if dtype is torch.float32 else 4.0 if dtype.itemsize == 2 else 1.0
        if not dtype.is_floating_point:
            fixed = {k: f for k, f in fixed.items() if k.startswith("nearest") or k == "large"}
        yield Suite(f"resize_scale_{name}", fixed, images[:1], None, scale)
        if dtype in FLOATS[:2]:
            images[:2] = images[1::-1]  # an example of which no result has the size 1
            yield Suite(f"resize_scale_dynamic_{name}", free, images, ({2: Dim.AUTO, 3: Dim.AUTO},), scale)


def antialiased_rows(*sizes: tuple[int, int]) -> dict[str, Function]:
    return {
        f"{mode}_{h}x{w}": lambda x, size=(h, w), mode=mode: F.interpolate(x, size=size, mode=mode, antialias=True)
        for mode in ("bilinear", "bicubic")
        for h, w in sizes
    }


def whole(*shape: int) -> torch.Tensor:
    """Bytes, all different as long as they last."""
    return torch.arange(math.prod(shape)).reshape(shape).to(torch.uint8)


def matmul_rows(w: dict[str, torch.Tensor]) -> dict[str, Function]:
    """a [3, 5, 37], b [3, 37, 18], v [37]; weights w: k37 [37, 70], n40 [40, 37]"""
    return {
        "mm": lambda a, b, v: (a[0] @ b[0], b[1].t() @ a[1].t(), a.flatten(0, 1) @ b[2]),
        "bmm": lambda a, b, v: (torch.bmm(a, b), a @ b + 1, torch.bmm(b.transpose(1, 2), a.transpose(1, 2))),
        "broadcast": lambda a, b, v: (a @ b[0], a[0] @ b, a[:, None] @ b, a[:, None] @ b[None]),
        "vector": lambda a, b, v: (a @ v, v @ b, v @ v, torch.mv(a[0], v), v[None] @ b[0], a[:, :1] @ b),
        "constant": lambda a, b, v: (a @ w["k37"], F.linear(a, w["n40"]), v @ w["k37"], b.transpose(1, 2) @ w["k37"]),
        "linear": lambda a, b, v: (
            F.linear(a, w["n40"], w["k37"][0, :40]).relu(),
            F.gelu(F.linear(a[0], w["n40"], w["k37"][0, :40])),
            F.linear(a.relu(), w["n40"][:1]),
            F.linear(v, w["n40"]).sigmoid(),
        ),
        "addmm": lambda a, b, v: (
            torch.addmm(b[0, :5], a[0], b[0], beta=0.5, alpha=2),
            torch.baddbmm(b[:, :5], a, b),
            torch.addmm(w["k37"][0, :70], a[0], w["k37"]),
        ),
        "residual": lambda a, b, v: (F.linear(a, w["n40"][:37], v) + a, (a @ b) * (a @ b).sigmoid()),
        "constant_left": lambda a, b, v: (w["n40"] @ b, w["n40"] @ b[0]),
        "norm_between": lambda a, b, v: F.linear(F.layer_norm(F.linear(a, w["n40"]), (40,)).relu(), w["n40"].t()),
        "gram": lambda a, b, v: (
            a @ a.transpose(1, 2),
            torch.einsum("bij,bjk->bk", a, b),
            torch.einsum("bij,bij->b", a, a),
        ),
        "strided": lambda a, b, v: (a[..., ::2] @ b[:, ::2], a[:, 1::2] @ b[..., 3:], a.flip(1) @ b.flip(2)),
        "split": lambda a, b, v: [x * (k + 1) for k, x in enumerate(F.linear(a, w["n40"]).split([10, 10, 20], -1))],
        "heads": lambda a, b, v: F.linear(a, w["n40"]).view(3, 5, 4, 10).transpose(1, 2) * 2,
        "softmax": lambda a, b, v: (a @ b).softmax(-1) @ b.transpose(1, 2),
    }


def matmul_suites() -> Iterator[Suite]:
    weights = {"k37": normal(37, 70, seed=8), "n40": normal(40, 37, seed=9)}
    args = [[normal(n, 5, 37, seed=10), normal(n, 37, 18, seed=11), normal(37, seed=12)] for n in (3,)]
    yield Suite("matmul", matmul_rows(weights), args, None, 60.0)
    doubles = {k: t.double() for k, t in weights.items()}
    yield Suite("matmul_f64", matmul_rows(doubles), [[a.double() for a in args[0]]], None, 60.0)
    long = normal(520, 37, seed=13)
    dynamic = {
        "mm": lambda a, b: (a[0] @ b[0].t(), a @ b.transpose(1, 2)),
        "linear": lambda a, b: (F.linear(a, weights["n40"]).relu(), F.linear(a.flatten(0, 1), weights["n40"]) * 2),
        "weight": lambda a, b: (a @ weights["k37"]).softmax(-1),
        "scores": lambda a, b: (a @ b.transpose(1, 2)).softmax(-1) @ b,
        "piece": lambda a, b: (F.linear(a, long[: a.shape[1]]), a.transpose(1, 2) @ long[: a.shape[1]]),
        "piece_from": lambda a, b: F.linear(a, long[a.shape[1] : a.shape[1] + 8]),
    }
    shapes = ((3, 5, 4), (1, 1, 1), (2, 33, 2), (1, 2, 90))
    many = [[normal(n, s, 37), normal(n, t, 37, seed=2)] for n, s, t in shapes]
    names = ({0: Dim("batch", max=64), 1: Dim("m", max=512)}, {0: Dim("batch", max=64), 1: Dim("n", max=512)})
    yield Suite("matmul_dynamic", dynamic, many, names, 60.0)


def int8_matmul_rows(w: dict[str, torch.Tensor]) -> dict[str, Function]:
    """a [m, 37] and b [37, n] of int8, x [m, 37]; weights w: n40 [40, 37], of int8, s40 and b40 [40]"""

    def scaled(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(a, w["n40"].t()).float() * x[:, :1] * w["s40"] + w["b40"]

    def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
        return (x / scale).round().clamp(-128, 127).to(torch.int8), scale

    def layer(x: torch.Tensor) -> torch.Tensor:
        small, scale = quantised(x)
        return torch._int_mm(small, w["n40"].t()) * scale * w["s40"] + w["b40"]

    def wide(a: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(a, w["n40"].t())

    return {
        "values": lambda a, b, x: (torch._int_mm(a, b), torch._int_mm(b.t(), a.t())),
        "constant": lambda a, b, x: (wide(a), wide(a)[:, :7], torch._int_mm(a, w["n40"][:33].t())),
        "scaled": lambda a, b, x: (scaled(a, x), scaled(a, x).relu(), F.gelu(scaled(a, x)), scaled(a, x).half()),
        "residual": lambda a, b, x: scaled(a, x)[:, :37] + x,
        "integers": lambda a, b, x: (wide(a) + 3, wide(a).clamp(-1000, 900) >> 2, wide(a).to(torch.int8), wide(a) * 7),
        "strided": lambda a, b, x: (torch._int_mm(a[:, ::2], w["n40"][:, ::2].t()), torch._int_mm(a[:, 1::2], b[1::2])),
        "quantised": lambda a, b, x: (layer(x), F.layer_norm(layer(x), (40,)), torch._int_mm(quantised(x)[0], b)),
        "twice": lambda a, b, x: (wide(a).float().softmax(-1), wide(a).amax(-1), wide(a).sum(0)),
    }


def int8_matmul_suites() -> Iterator[Suite]:
    weights = {"n40": whole(40, 37).view(torch.int8), "s40": normal(40, seed=8) * 0.01, "b40": normal(40, seed=9)}
    weights["n40"][0], weights["n40"][1] = -128, 127

    def args(m: int, n: int) -> list[torch.Tensor]:
        a, b = whole(m, 37).view(torch.int8).clone(), whole(37, n).view(torch.int8).clone()
        a[0], b[:, 0] = -128, -128
        return [a, b, normal(m, 37, seed=10)]

    rows = int8_matmul_rows(weights)
    yield Suite("matmul_int8", rows, [args(19, 23)], None, 60.0)
    yield Suite("matmul_int8_one_row", {k: v for k, v in rows.items() if k != "values"}, [args(1, 23)], None, 60.0)
    size = Dim("m", max=4096)
    names = ({0: size}, {1: Dim("n", max=4096)}, {0: size})
    yield Suite("matmul_int8_dynamic", rows, [args(*s) for s in ((19, 23), (2, 5), (7, 32), (130, 70))], names, 60.0)
    depth = Dim("k", max=4096)
    of_depth = {
        "values": lambda a, b: (torch._int_mm(a, b), torch._int_mm(a, b).float() * 0.5),
        "gram": lambda a, b: torch._int_mm(a, a.t()),
    }
    many = [[whole(9, k).view(torch.int8), whole(k, 21).view(torch.int8)] for k in (37, 2, 1100)]
    yield Suite("matmul_int8_depth", of_depth, many, ({1: depth}, {0: depth}), 60.0)


def attention_rows() -> dict[str, Function]:
    """q [2, 4, 7, 16], k and v [2, 4, 9, 16], keep [2, 1, 7, 9] bool, bias [7, 9]"""
    sdpa = F.scaled_dot_product_attention
    return {
        "plain": lambda q, k, v, m, b: (sdpa(q, k, v), sdpa(q, k, v, scale=0.3), sdpa(q, k, v[..., :5])),
        "masked": lambda q, k, v, m, b: (
            sdpa(q, k, v, m),
            sdpa(q, k, v, b),
            sdpa(q, k, v, b[None, None].expand(2, 4, 7, 9)),
        ),
        "causal": lambda q, k, v, m, b: (sdpa(q, k, v, is_causal=True), sdpa(k, k, v, is_causal=True)),
        "grouped": lambda q, k, v, m, b: sdpa(q, k[:, :2], v[:, :2], m, enable_gqa=True),
        "grouped_causal": lambda q, k, v, m, b: sdpa(q, k[:, :1], v[:, :1], is_causal=True, enable_gqa=True),
        "by_hand": lambda q, k, v, m, b: ((q @ k.transpose(2, 3)) * 0.25 + b).softmax(-1) @ v,
        "by_hand_masked": lambda q, k, v, m, b: (q @ k.transpose(2, 3)).masked_fill(~m, -math.inf).softmax(-1) @ v,
        "one_query": lambda q, k, v, m, b: sdpa(q[:, :, :1], k, v, m[:, :, :1]),
        "heads_joined": lambda q, k, v, m, b: sdpa(q, k, v).transpose(1, 2).flatten(2) + 1,
        "three_dims": lambda q, k, v, m, b: sdpa(q[0], k[0], v[0]),
        "broadcast": lambda q, k, v, m, b: (
            sdpa(q[:1], k, v, m),
            sdpa(q, k[:1], v[:1], b),
            sdpa(q, k, v[:, :1], m[:1, 0]),
            sdpa(q[:, :1], k, v, is_causal=True),
            sdpa(q, k[:, :1], v[:1, :1], m),
            sdpa(q[0], k, v),
            sdpa(q[:, None], k[None], v[None], b),
        ),
        "broadcast_grouped": lambda q, k, v, m, b: (
            sdpa(q[:1], k[:, :2], v[:, :2], m, enable_gqa=True),
            sdpa(q, k[:1, :2], v[:1, :2], enable_gqa=True),
            sdpa(q[0], k[0, :2], v[0, :2], b, enable_gqa=True),
        ),
        "rotated": lambda q, k, v, m, b: sdpa(torch.cat([-q[..., 8:], q[..., :8]], -1), k * 2, v.relu()),
    }


def attention_suites() -> Iterator[Suite]:
    keep = torch.rand(2, 1, 7, 9, generator=torch.Generator().manual_seed(4)) > 0.4
    keep[..., 0] = True
    qkv = [normal(2, 4, t, 16, seed=t) for t in (7, 9, 10)]
    args = [[qkv[0], qkv[1], qkv[2][:, :, :9].contiguous(), keep, normal(7, 9, seed=3)]]
    yield Suite("attention", attention_rows(), args, None, 20.0)
    sdpa = F.scaled_dot_product_attention
    rows = {
        "plain": lambda q, k: (sdpa(q, k, k), sdpa(q, k, k * 2).transpose(1, 2).flatten(2)),
        "causal": lambda q, k: sdpa(q, q, q, is_causal=True),
        "broadcast": lambda q, k: (
            sdpa(q[:1], k, k),
            sdpa(q, k[:1], k[:1]),
            sdpa(q[:1], k[:, :2], k[:, :2], enable_gqa=True),
        ),
        "masked": lambda q, k: sdpa(q, k, k, torch.arange(k.shape[2]) <= torch.arange(q.shape[2])[:, None]),
    }
    sizes = ((2, 7, 9), (1, 1, 1), (1, 70, 33), (2, 2, 300))
    sets = [[normal(n, 4, t, 16), normal(n, 4, s, 16, seed=5)] for n, t, s in sizes]
    dims = ({0: Dim("batch", max=64), 2: Dim("t", max=512)}, {0: Dim("batch", max=64), 2: Dim("s", max=512)})
    yield Suite("attention_dynamic", rows, sets, dims, 20.0)


def recurrent_rows() -> dict[str, nn.Module]:
    """x [3, 6, 10]"""
    torch.manual_seed(3)
    return {
        "lstm": nn.LSTM(10, 20, batch_first=True),
        "lstm_two_layers": nn.LSTM(10, 33, 2, batch_first=True, bidirectional=True),
        "lstm_no_bias": nn.LSTM(10, 8, bias=False),
        "gru": nn.GRU(10, 20, batch_first=True),
        "gru_two_layers": nn.GRU(10, 7, 2, bidirectional=True),
        "gru_no_bias": nn.GRU(10, 32, bias=False, batch_first=True),
        "rnn": nn.RNN(10, 20, batch_first=True),
        "rnn_relu_two_layers": nn.RNN(10, 33, 2, bidirectional=True, nonlinearity="relu"),
        "rnn_no_bias": nn.RNN(10, 7, bias=False),
        "lstm_head": Head(nn.LSTM(10, 20, batch_first=True), nn.Linear(20, 4)),
        "gru_after_linear": Head(nn.GRU(10, 20), nn.Linear(20, 4)),
        "gru_of_part_of_a_bias": PartOfBias(),
    }


class PartOfBias(nn.Module):
    """A GRU whose biases are every other element of a vector, which is not known at export."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.r, self.b = (nn.Parameter(torch.randn(*s) * 0.3) for s in ((24, 10), (24, 8), (48,)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b = self.b + x[0, 0, 0]
        weights = [self.w, self.r, b[::2], b[1::2]]
        return torch.gru(x, x.new_zeros(1, x.shape[1], 8), weights, True, 1, 0.0, False, False, False)[0]


class Head(nn.Module):
    def __init__(self, rnn: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.rnn, self.head = rnn, head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x.relu())[0]).softmax(-1)


def written_out_rows() -> dict[str, nn.Module]:
    """x [3, 3, 10], a fixed number of steps."""
    torch.manual_seed(4)
    return {
        "lstm_projected": nn.LSTM(10, 20, proj_size=7, batch_first=True),
        "lstm_projected_two_layers": nn.LSTM(10, 9, 2, proj_size=8, batch_first=True, bidirectional=True),
        "lstm_projected_no_bias": nn.LSTM(10, 8, bias=False, proj_size=1, batch_first=True),
        "projected_head": Head(nn.LSTM(10, 20, proj_size=5, batch_first=True), nn.Linear(5, 4)),
    }


def recurrent_suites() -> Iterator[Suite]:
    # each step is kernels of its own: a first, one in the middle and a last are all that there is to it
    yield Suite(
        "recurrent_written_out",
        written_out_rows(),
        [[normal(n, 3, 10)] for n in (3, 1, 0, 5)],
        ({0: Dim.AUTO},),
        20.0,
    )
    yield Suite(
        "recurrent_written_out_f16", {k: f.half() for k, f in written_out_rows().items()}, [[normal(3, 3, 10).half()]]
    )
    rows = recurrent_rows() | written_out_rows()
    yield Suite("recurrent_f64", {k: f.double() for k, f in rows.items()}, [[normal(3, 3, 10, dtype=torch.float64)]])
    yield Suite("recurrent", recurrent_rows(), [[normal(3, 6, 10)]], None, 20.0)
    yield Suite("recurrent_f16", {k: f.half() for k, f in recurrent_rows().items()}, [[normal(3, 6, 10).half()]])
    yield Suite(
        "recurrent_bf16", {k: f.bfloat16() for k, f in recurrent_rows().items()}, [[normal(3, 6, 10).bfloat16()]]
    )
    yield Suite(
        "recurrent_dynamic",
        recurrent_rows(),
        [[normal(n, t, 10)] for n, t in ((3, 6), (2, 2), (5, 17))],
        ({0: Dim.AUTO, 1: Dim.AUTO},),
        20.0,
    )


def suites() -> Iterator[Suite]:
    yield from norm_suites()
    yield from pool_suites()
    yield from resize_suites()
    yield from matmul_suites()
    yield from int8_matmul_suites()
    yield from attention_suites()
    yield from recurrent_suites()
