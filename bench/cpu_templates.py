"""Measures the CPU templates on the shapes of real models, against the FMA units' rate and torch in the same run.

    python bench/cpu_templates.py [--target x86-64-v4] [--only conv] [--rounds 9]

One thread. Each round runs the FMA loop, the template and torch one after the other, so that a change of clock speed
touches all three; times are the thread's CPU time, so that other programs cost less. The table shows medians, the share
of the FMA rate (median of per-round ratios) and torch's time over the template's. Inputs and outputs are the same
buffers in every call, so what fits a cache stays there; torch allocates its outputs, which costs it page faults in the
large ones.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

import hardtack.codegen  # noqa: F401  (before the project's folder, whose hardtack/ is only a part of the package)
from hardtack.codegen.ir.types import DType
from hardtack.codegen.plan.prepack import PACKINGS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.templates import attention_kernels, half_builds
from tests.templates.cpu_kernels import Call, Library, Workspace, load_library, runnable_targets
from tests.templates.layouts import Conv, gemm_dynamic_workspace, gemm_packed_workspace, pack_conv, pack_gemm
from tests.templates.sources import SHAPE, kernel

# The epilogue of a layer with bias and relu, which stores and reads nothing back.
_EPILOGUE = """
struct Store {
  float* out;
  const float* bias;
  int64_t rows_per_batch, ld;
  static constexpr int kOperations = 4;
  static constexpr bool kOneRow = false;
  struct Row { float* out; };
  HT_MEMBER Row row(int64_t batch, int64_t m) const { return {out + (batch * rows_per_batch + m) * ld}; }
  HT_MEMBER void operator()(const Row& r, int64_t m, int64_t n, int count, ht::vec<float> acc) const {
    part(r, m, n, count, acc);
  }
  HT_MEMBER void part(const Row& r, int64_t, int64_t n, int count, ht::vec<float> acc) const {
    ht::store_n(r.out + n, ht::vmax(acc + ht::load_n(bias + n, count), ht::vec<float>{}), count);
  }
};
"""

# The same of sums of int8: times a scale of the row and one of the column.
_SCALED = """
struct Scaled {
  float* out;
  const float *bias, *rows, *columns;
  int64_t ld;
  static constexpr int kOperations = 6;
  static constexpr bool kOneRow = false;
  struct Row { float* out; float scale; };
  HT_MEMBER Row row(int64_t, int64_t m) const { return {out + m * ld, rows[m]}; }
  HT_MEMBER void operator()(const Row& r, int64_t m, int64_t n, int count, ht::vec<int32_t> acc) const {
    part(r, m, n, count, acc);
  }
  HT_MEMBER void part(const Row& r, int64_t, int64_t n, int count, ht::vec<int32_t> acc) const {
    const ht::vec<float> x = __builtin_convertvector(acc, ht::vec<float>) * ht::bcast(r.scale);
    const ht::vec<float> y = x * ht::load_n(columns + n, count) + ht::load_n(bias + n, count);
    ht::store_n(r.out + n, ht::vmax(y, ht::vec<float>{}), count);
  }
};
"""

# Sums of int8 as the next layer's codes, as a quantised convolution ends: zero point, scales, bias, ReLU6, rounding.
_REQUANTISED = """
struct Requantised {
  int8_t* out;
  const int32_t* sums;
  const float *scales, *bias;
  int64_t ld;
  static constexpr int kOperations = 15;
  static constexpr bool kOneRow = false;
  struct Row {};
  HT_MEMBER Row row(int64_t, int64_t) const { return {}; }
  template <class C>
  HT_MEMBER void point(int64_t m, int64_t n, C count, ht::vec<int32_t> acc) const {
    const ht::vec<float> x = ht::cast<float>(acc - ht::ld(sums + n, count) * ht::bcast<int32_t>(-3));
    const ht::vec<float> y = x * ht::bcast(0.01f) * ht::ld(scales + n, count) + ht::ld(bias + n, count);
    const ht::vec<float> z = ht::vmin(ht::bcast(6.0f), ht::vmax(ht::bcast(0.0f), y)) * ht::bcast(42.5f);
    const auto signless = ht::bitcast<int8_t, uint8_t>(ht::vcode<uint8_t>(z, ht::bcast(0.0f), ht::bcast(255.0f)));
    ht::st(out + m * ld + n, signless ^ ht::bcast<int8_t>(-128), count);
  }
  HT_MEMBER void operator()(const Row& r, int64_t m, int64_t n, int count, ht::vec<int32_t> acc) const {
    if (count == ht::W) point(m, n, ht::Full{}, acc);
    else part(r, m, n, count, acc);
  }
  HT_MEMBER void part(const Row&, int64_t m, int64_t n, int count, ht::vec<int32_t> acc) const {
    point(m, n, ht::Part{count}, acc);
  }
};
"""

_FMA_LOOP = """
  ht::vec<float> acc[12];
  for (int j = 0; j < 12; j++) acc[j] = ht::bcast(static_cast<float>(j));
  const ht::vec<float> x = ht::bcast(b[0][0]), y = ht::bcast(b[0][1]);
  for (int64_t k = 0; k < i[0]; k++) {
    HT_UNROLL_ALL
    for (int j = 0; j < 12; j++) acc[j] = ht::fma(acc[j], x, y);
  }
  for (int j = 0; j < 12; j++) b[0][2] += ht::hsum(acc[j]);
  return 0;
"""
_FMA_STEPS = 1_000_000


def _source(name: str, header: str, call: str, shape: str = SHAPE) -> str:
    source = kernel(name, header, shape.replace("Epilogue", "Store") + call.replace("Epilogue", "Store"))
    return source.replace('extern "C"', f'{_EPILOGUE}extern "C"')


_HALF_GEMM = """
  const auto x = static_cast<const T*>(args->buffers[0]), weights = static_cast<const T*>(args->buffers[1]);
  return ht::gemm_packed(args, x, i[3], weights, i[0], i[1], i[2], Epilogue{b[3], b[2], 0, i[1]});"""
_INT8_GEMM = """
  const auto x = static_cast<const int8_t*>(args->buffers[0]), weights = static_cast<const int8_t*>(args->buffers[1]);
  const Scaled scaled = {b[3], b[2], b[4], b[5], i[1]};
  return ht::gemm_packed(args, x, i[3], weights, i[0], i[1], i[2], scaled);"""
_HALF_CONV = """
  using T = const ht::bf16*;
  return ht::conv2d(args, s, static_cast<T>(args->buffers[0]), static_cast<T>(args->buffers[1]), epilogue);"""
_INT8_CONV = """
  const auto x = static_cast<const int8_t*>(args->buffers[0]), weights = static_cast<const int8_t*>(args->buffers[1]);
  const auto out = static_cast<int8_t*>(args->buffers[3]);
  const Requantised requantised = {out, static_cast<const int32_t*>(args->buffers[4]), b[5], b[2], s.oc};
  return ht::conv2d<ht::MachineBlocks<int8_t>, %s>(args, s, x, weights, requantised);"""
_INT8_SHAPE = SHAPE[: SHAPE.index("  const Epilogue")].replace("i[19]", "i[19], i[20]")
SOURCES = {
    **{
        name: kernel(name, "conv.h int8.h loops.h", _INT8_SHAPE + _INT8_CONV % elements).replace(
            'extern "C"', f'{_REQUANTISED}extern "C"'
        )
        for name, elements in {"conv_int8": "int8_t", "conv_codes7": "ht::code7"}.items()
    },
    **{
        f"gemm_{half_builds.name_of(dtype)}": _source(
            f"gemm_{half_builds.name_of(dtype)}", "gemm.h", f"using T = {t};{_HALF_GEMM}", ""
        )
        for dtype, t in half_builds.STORAGE.items()
    },
    "gemm_int8": _source("gemm_int8", "gemm.h int8.h", _INT8_GEMM, "").replace('extern "C"', f'{_SCALED}extern "C"'),
    **attention_kernels.SOURCES,
    "fma": kernel("fma", "blocks.h", _FMA_LOOP),
    "gemm": _source(
        "gemm",
        "gemm.h",
        "return ht::gemm_packed(args, b[0], i[3], b[1], i[0], i[1], i[2], Epilogue{b[3], b[2], 0, i[1]});",
        "",
    ),
    "dynamic": _source(
        "dynamic",
        "gemm.h",
        """
  const ht::DynamicShape shape = {i[0], i[1], i[2], i[3], i[4]};
  const ht::MatrixBatch<float> x = {b[0], i[5], i[6], i[7], i[8]}, y = {b[1], i[9], i[10], i[11], i[12]};
  return ht::gemm_dynamic(args, shape, x, y, Epilogue{b[3], b[2], shape.m, shape.n});""",
        "",
    ),
    "winograd": _source("winograd", "winograd.h", "return ht::winograd2d(args, s, b[0], b[1], epilogue);"),
    "conv": _source("conv", "conv.h", "return ht::conv2d(args, s, b[0], b[1], epilogue);"),
    "conv_bfloat16": _source("conv_bfloat16", "conv.h", _HALF_CONV),
    **{
        f"depthwise_{kw}_{stride}": _source(
            f"depthwise_{kw}_{stride}",
            "depthwise.h",
            f"return ht::depthwise2d<{kw}, {stride}>(args, s, b[0], b[1], epilogue);",
        )
        for kw in (3, 5)
        for stride in (1, 2)
    },
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One call of a template, and torch's call for the same result."""

    label: str
    flops: float
    ours: Call
    torch: Callable[[], object]


@dataclass(frozen=True)
class Attention:
    """Sizes of attention."""

    heads: int
    kv_heads: int
    tq: int
    tk: int
    d: int
    causal: bool = False

    def __str__(self) -> str:
        heads = f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads}/{self.kv_heads}"
        return f"{heads}x{self.tq}x{self.tk}x{self.d}{' causal' if self.causal else ''}"


def gemm(library: Library, m: int, n: int, k: int) -> Case:
    """a[m, k] times packed weights [k, n]."""
    a, b, bias, out = torch.randn(m, k), torch.randn(k, n), torch.randn(n), torch.empty(m, n)
    packed, workspace = pack_gemm(b), gemm_packed_workspace(m, n)
    ours = library.bind("gemm", [a, packed, bias, out], [m, n, k, k], workspace)

    return Case(f"gemm {m}x{n}x{k}", 2.0 * m * n * k, ours, lambda: torch.addmm(bias, a, b).relu_())


def half_gemm(library: Library, dtype: torch.dtype, m: int, n: int, k: int) -> Case:
    """The same of 16-bit numbers, with a result in f32; torch's is of 16 bits."""
    a, b, bias, out = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype), torch.randn(n), torch.empty(m, n)
    weights = half_builds.packed("pairs" if dtype is torch.bfloat16 else "panels", b)
    weights = weights.clone()  # torch's memory begins at a cache line, as a bundle's; numpy's need not
    workspace = gemm_packed_workspace(m, n, half_builds.DTYPES[dtype])
    name, short = f"gemm_{half_builds.name_of(dtype)}", bias.to(dtype)
    ours = library.bind(name, [half_builds.bits(a), weights, bias, out], [m, n, k, k], workspace)
    return Case(f"{name} {m}x{n}x{k}", 2.0 * m * n * k, ours, lambda: torch.addmm(short, a, b).relu_())


def int8_gemm(library: Library, m: int, n: int, k: int) -> Case:
    """a[m, k] times packed weights [k, n], of int8, with scales of rows and columns."""
    a, b = (torch.randint(-128, 128, size, dtype=torch.int8) for size in ((m, k), (k, n)))
    bias, rows, columns, out = torch.randn(n), torch.rand(m), torch.rand(n), torch.empty(m, n)
    packed = torch.from_numpy(PACKINGS["quads"](b.numpy(), ())).clone()  # as in half_gemm
    workspace = gemm_packed_workspace(m, n, DType.I8)
    ours = library.bind("gemm_int8", [a, packed, bias, out, rows, columns], [m, n, k, k], workspace)
    row = rows[:, None]

    def theirs() -> object:
        return (torch._int_mm(a, b) * row * columns + bias).relu_()

    return Case(f"gemm_int8 {m}x{n}x{k}", 2.0 * m * n * k, ours, theirs)


def dynamic(library: Library, batch: int, m: int, n: int, k: int, transposed: bool) -> Case:
    """A batch of a[m, k] times b[k, n], or b[n, k] transposed."""
    a = torch.randn(1, batch, m, k)
    b = torch.randn(1, batch, n, k).mT if transposed else torch.randn(1, batch, k, n)
    out, bias = torch.empty(1, batch, m, n), torch.zeros(n)
    ints, workspace = [1, batch, m, n, k, *a.stride(), *b.stride()], gemm_dynamic_workspace(m, n, k)
    ours = library.bind("dynamic", [a, b, bias, out], ints, workspace)

    label = f"matmul {batch}x{m}x{n}x{k}{' b^T' if transposed else ''}"
    return Case(label, 2.0 * batch * m * n * k, ours, lambda: torch.matmul(a, b))


def _label(kind: str, s: Conv) -> str:
    layout = "" if s.channels_last else " NCHW"
    many = f"{s.n}x" if s.n > 1 else ""
    apart = f" g{s.groups}" if 1 < s.groups < s.c else ""
    return f"{kind} {many}{s.size[0]}x{s.size[1]}x{s.c}->{s.oc} k{s.kernel[0]} s{s.stride[0]}{apart}{layout}"


def half_conv(library: Library, s: Conv) -> Case:
    """A convolution of bf16 with a result in f32; torch's is of 16 bits."""
    dtype = torch.bfloat16
    x, bias = s.input().to(dtype), torch.randn(s.oc)
    weight = torch.randn(s.oc, s.c // s.groups, *s.kernel).to(dtype)
    out = torch.empty(s.n, *s.out_size(), s.oc)
    kind = half_builds.DTYPES[dtype]
    packed = half_builds.packed("conv_pairs", weight, s.groups, int(s.merges_taps(kind))).clone()  # as in half_gemm
    workspace, ints = s.workspace(x.stride(1), kind), s.ints(x, s.out_size())
    ours = library.bind("conv_bfloat16", [half_builds.bits(x), packed, bias, out], ints, workspace)
    like_x, short = weight.to(memory_format=torch.channels_last), bias.to(dtype)

    def theirs() -> object:
        return F.conv2d(x, like_x, short, s.stride, s.padding, s.dilation, s.groups).relu_()

    flops = 2.0 * out.numel() * s.kernel[0] * s.kernel[1] * s.c / s.groups
    return Case(_label("conv_bfloat16", s), flops, ours, theirs)


def int8_conv(library: Library, s: Conv, name: str = "conv_int8") -> Case:
    """A convolution of int8 that gives codes, of codes from 0 to 127 by the kernel for these; torch's is of float32."""
    least = -128 if name == "conv_int8" else 0
    x = torch.randint(least, 128, (s.n, *s.size, s.c), dtype=torch.int8).permute(0, 3, 1, 2)
    weight = torch.randint(-128, 128, (s.oc, s.c // s.groups, *s.kernel), dtype=torch.int8)
    bias, scales, sums = torch.randn(s.oc), torch.rand(s.oc), torch.randint(-999, 999, (s.oc,), dtype=torch.int32)
    out = torch.empty(s.n, *s.out_size(), s.oc, dtype=torch.int8)
    packed = torch.from_numpy(PACKINGS["conv_quads"](weight.numpy(), (s.groups, int(s.merges_taps(DType.I8))))).clone()
    workspace, ints = s.workspace(x.stride(1), DType.I8), [*s.ints(x, s.out_size()), 3]
    ours = library.bind(name, [x, packed, bias, out, sums, scales], ints, workspace)
    wide, like_x = x.float(), weight.float().to(memory_format=torch.channels_last)

    def theirs() -> object:
        return F.conv2d(wide, like_x, bias, s.stride, s.padding, s.dilation, s.groups).relu_()

    flops = 2.0 * out.numel() * s.kernel[0] * s.kernel[1] * s.c / s.groups
    return Case(_label(name, s), flops, ours, theirs)


def conv(library: Library, s: Conv, winograd: bool = False) -> Case:
    """A convolution; torch gets the same memory format. winograd: by winograd.h, whose operations count as if it were
    computed directly."""
    x, bias = s.input(), torch.randn(s.oc)
    weight = torch.randn(s.oc, s.c // s.groups, *s.kernel)
    oh, ow = s.out_size()
    out = torch.empty(s.n, oh, ow, s.oc)
    depthwise = s.groups == s.c
    if depthwise:
        name, workspace = f"depthwise_{s.kernel[1]}_{s.stride[1]}", s.depthwise_workspace(x.stride(1))
        packed = weight.reshape(s.oc, *s.kernel).permute(1, 2, 0).contiguous()
    elif winograd:
        name, workspace, packed = "winograd", s.winograd_workspace(), pack_conv(weight, 1)
    else:
        name, workspace, packed = "conv", s.workspace(x.stride(1)), pack_conv(weight, s.groups)
    ints = s.ints(x, (oh, ow))
    like_x = weight.to(memory_format=torch.channels_last) if s.channels_last else weight
    ours = library.bind(name, [x, packed, bias, out], ints, workspace)

    def theirs() -> object:
        return F.conv2d(x, like_x, bias, s.stride, s.padding, s.dilation, s.groups).relu_()

    flops = 2.0 * s.n * oh * ow * s.oc * s.kernel[0] * s.kernel[1] * s.c / s.groups
    kind = "dw" if depthwise else name
    return Case(_label(kind, s), flops, ours, theirs)


def attention(library: Library, dtype: torch.dtype, shape: Attention) -> Case:
    """Queries over keys and values whose heads lie side by side, as projections leave them."""
    q, k, v = (
        torch.randn(1, rows, heads, shape.d).to(dtype).transpose(1, 2)
        for rows, heads in ((shape.tq, shape.heads), (shape.tk, shape.kv_heads), (shape.tk, shape.kv_heads))
    )
    out = torch.empty(1, shape.tq, shape.heads, shape.d, dtype=dtype).transpose(1, 2)
    ours = attention_kernels.bind(library, q, k, v, out, causal=shape.causal)

    def theirs() -> object:
        grouped = shape.heads != shape.kv_heads
        return F.scaled_dot_product_attention(q, k, v, is_causal=shape.causal, enable_gqa=grouped)

    seen = shape.tk * shape.tq / (2 if shape.causal else 1)
    return Case(f"attention_{half_builds.name_of(dtype)} {shape}", 4.0 * shape.heads * shape.d * seen, ours, theirs)


_GEMMS = [
    (12544, 96, 16), (3136, 144, 24), (784, 240, 40), (196, 480, 80), (196, 672, 112), (49, 1152, 192),
    (49, 1280, 320), (3136, 24, 144), (784, 40, 240), (128, 3072, 768), (128, 768, 3072), (16, 1536, 384),
    (1, 1000, 2048), (4, 1000, 2048), (1024, 1024, 1024),
]  # fmt: skip
_HALVES = [(128, 3072, 768), (128, 768, 3072), (16, 1536, 384), (1, 4096, 4096), (1024, 1024, 1024)]
_ATTENTION = [
    *(Attention(12, 12, t, t, 64) for t in (128, 197, 512, 1024)), Attention(32, 8, 1024, 1024, 64, causal=True),
    Attention(12, 12, 1, 1024, 64), Attention(32, 8, 1, 1024, 64), Attention(16, 16, 256, 256, 80),
]  # fmt: skip
_DYNAMIC = [(12, 128, 128, 64, True), (12, 128, 64, 128, False), (1, 512, 512, 512, False), (12, 1, 512, 64, True)]


def _same(c: int, oc: int, size: int, kernel: int, stride: int, groups: int = 1, channels_last: bool = True) -> Conv:
    pad = (kernel // 2, kernel // 2)
    return Conv(
        1, c, (size, size), oc, (kernel, kernel), (stride, stride), pad, groups=groups, channels_last=channels_last
    )


_CONVS = [
    _same(128, 256, 28, 1, 2),
    _same(16, 96, 112, 1, 1), _same(112, 672, 14, 1, 1), _same(3, 32, 224, 3, 2),
    _same(3, 32, 224, 3, 2, channels_last=False), _same(3, 64, 224, 7, 2),
    _same(96, 96, 112, 3, 2, 96), _same(144, 144, 56, 3, 1, 144), _same(240, 240, 28, 5, 1, 240),
    _same(672, 672, 14, 5, 1, 672), _same(1152, 1152, 7, 5, 1, 1152), _same(144, 144, 56, 5, 2, 144),
]  # fmt: skip
_HALF_CONVS = [
    *(_same(c, c, size, 3, 1) for c, size in ((64, 128), (64, 56), (128, 28), (256, 14))),
    *(Conv(3, c, (size, size), c, (3, 3), padding=(1, 1)) for c, size in ((44, 48), (84, 24), (164, 12))),
    *(Conv(3, c, (size, size), c, (3, 3), padding=(1, 1), groups=c // 16) for c, size in ((160, 11), (64, 22))),
    _same(64, 256, 56, 1, 1), _same(16, 96, 112, 1, 1), _same(3, 32, 224, 3, 2, channels_last=False),
]  # fmt: skip
"""Of resnets, regnets and mobilenets, of one image and of three."""
_INT8_CONVS = [
    _same(16, 96, 112, 1, 1), _same(24, 144, 56, 1, 1), _same(96, 24, 56, 1, 1), _same(32, 192, 28, 1, 1),
    _same(192, 32, 28, 1, 1), _same(64, 384, 14, 1, 1), _same(384, 64, 14, 1, 1), _same(160, 960, 7, 1, 1),
    _same(960, 160, 7, 1, 1), _same(64, 64, 56, 1, 1), _same(64, 256, 56, 1, 1), _same(128, 128, 28, 3, 1),
    _same(128, 128, 56, 3, 2), _same(3, 32, 224, 3, 2),
]  # fmt: skip
"""Of mobilenets and resnets."""
_FILTERED = [
    _same(c, oc, size, 3, 1) for size, c, oc in (
        (56, 64, 64), (28, 128, 128), (14, 256, 256), (7, 512, 512), (64, 64, 64), (32, 128, 128), (32, 512, 512),
        (224, 64, 64), (112, 128, 128), (56, 256, 256), (28, 512, 512), (14, 512, 512), (56, 128, 32), (80, 128, 128),
        (160, 32, 32), (24, 64, 64), (96, 64, 64), (128, 16, 16),
    )
]  # fmt: skip
"""Filters of 3 x 3 in steps of 1, of resnet50, unet, vgg16, densenet121, detectors and super-resolution."""


def cases(library: Library) -> list[Case]:
    """Every case of the table, in its order."""
    return [
        *(gemm(library, *size) for size in _GEMMS),
        *(half_gemm(library, dtype, *size) for dtype in half_builds.DTYPES for size in _HALVES),
        *(int8_gemm(library, *size) for size in (*_HALVES, (1, 3072, 768), (4, 4096, 4096))),
        *(dynamic(library, *size) for size in _DYNAMIC),
        *(conv(library, s) for s in _CONVS),
        *(half_conv(library, s) for s in _HALF_CONVS),
        *(int8_conv(library, s, name) for s in _INT8_CONVS for name in ("conv_int8", "conv_codes7")),
        *(attention(library, dtype, s) for dtype in (torch.float32, *half_builds.DTYPES) for s in _ATTENTION),
        *(conv(library, s, winograd) for s in _FILTERED for winograd in (False, True)),
    ]


def _seconds(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


def measure(library: Library, case: Case, rounds: int, lanes: int) -> str:
    """One line of the table."""
    peak_call = library.bind("fma", [torch.zeros(4)], [_FMA_STEPS], Workspace())
    repeat = max(1, int(1e9 / (case.flops + 1e6)))
    ours, theirs, shares = [], [], []
    case.ours.run()
    for _ in range(rounds):
        fma = _seconds(peak_call.run)
        peak = _FMA_STEPS * 12 * lanes * 2 / fma
        ours.append(_seconds(lambda: case.ours.run(repeat)) / repeat)
        theirs.append(_seconds(lambda: [case.torch() for _ in range(repeat)]) / repeat)
        shares.append(case.flops / ours[-1] / peak)
    t, q = statistics.median(ours), statistics.median(theirs)
    return (
        f"{case.label:40} {case.flops / t / 1e9:7.1f} {statistics.median(shares):6.0%} {t * 1e6:9.1f} {q * 1e6:9.1f} "
        f"{statistics.median(b / a for a, b in zip(ours, theirs, strict=True)):6.2f}"
    )


def main() -> None:
    """Prints the table."""
    targets = {target.name: target for target in runnable_targets()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=sorted(targets), default=runnable_targets()[0].name)
    parser.add_argument("--only", default="", help="only cases whose label holds this")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    target = targets[options.target]
    library = load_library(SOURCES, target)
    print(f"{target.name}, torch {torch.__version__}, one thread")
    print(f"{'':40} {'GFLOP/s':>7} {'of FMA':>6} {'us':>9} {'torch us':>9} {'ratio':>6}")
    for case in cases(library):
        if options.only in case.label:
            print(measure(library, case, options.rounds, target.vector_nbytes // 4), flush=True)


if __name__ == "__main__":
    main()
