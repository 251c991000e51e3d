"""Convolutions of 16-bit numbers against torch in float64, on every build of half_builds.py."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from hardtack.codegen.machine.machine import Cpu
from tests.templates.cpu_kernels import Library, load_library
from tests.templates.half_builds import BUILDS, DTYPES, STORAGE, bits, build_params, name_of, packed
from tests.templates.layouts import Conv
from tests.templates.sources import SHAPE
from tests.templates.test_conv import CONVS, forward, small_convs

SOURCE = """
#include "conv_transposed.h"
#include "depthwise.h"
struct Epilogue {
  float* out;
  int64_t ld;
  struct Row { float* out; };
  HT_MEMBER Row row(int64_t, int64_t m) const { return {out + m * ld}; }
  HT_MEMBER void operator()(const Row& r, int64_t, int64_t n, int count, ht::vec<float> acc) const {
    ht::store_n(r.out + n, acc + ht::load_n(r.out + n, count), count);  // an element handed over twice shows
  }
};
extern "C" int32_t %(call)s_%(name)s(const HtKernelArgs* args) {
  const int64_t* i = args->ints;
  %(shape)s
  const auto x = static_cast<const %(t)s*>(args->buffers[0]), weights = static_cast<const %(t)s*>(args->buffers[1]);
  return ht::%(call)s(args, s, x, weights, Epilogue{static_cast<float*>(args->buffers[2]), s.oc});
}
"""
_SHAPE = SHAPE[: SHAPE.index("  const Epilogue")]


@functools.cache
def _library(cpu: Cpu) -> Library:
    calls = ("conv2d", "conv_transposed2d", "depthwise2d")
    return load_library(
        {
            f"{call}_{name_of(dtype)}": SOURCE % {"call": call, "name": name_of(dtype), "t": t, "shape": _SHAPE}
            for dtype, t in STORAGE.items()
            for call in calls
        },
        cpu,
    )


@pytest.fixture(scope="session", params=build_params())
def library(request: pytest.FixtureRequest) -> Library:
    """The convolutions of both types, for every build."""
    return _library(request.param)


def _no_bias(oc: int) -> torch.Tensor:
    return torch.zeros(oc)


def _assert_close(out: torch.Tensor, want: torch.Tensor) -> None:
    """Sums in f32 of products that are exact."""
    torch.testing.assert_close(out.double(), want, rtol=2e-5, atol=5e-4)


def _conv(library: Library, s: Conv, dtype: torch.dtype, nworkers: int = 2) -> torch.Tensor:
    x, weight = s.input().to(dtype), torch.randn(s.oc, s.c // s.groups, *s.kernel).to(dtype)
    want = forward(x, weight, _no_bias(s.oc), s)
    bf16 = dtype is torch.bfloat16
    merged = bf16 and s.merges_taps(DTYPES[dtype])
    weights = packed("conv_pairs", weight, s.groups, int(merged)) if bf16 else packed("conv", weight, s.groups)
    out = torch.zeros(want.shape)
    workspace = s.workspace(x.stride(1), DTYPES[dtype])
    ints = s.ints(x, s.out_size())
    assert library.call(f"conv2d_{name_of(dtype)}", [bits(x), weights, out], ints, workspace, nworkers) == 0
    _assert_close(out, want)
    return out


@pytest.mark.parametrize("s", CONVS, ids=str)
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_conv(library: Library, s: Conv, channels_last: bool, dtype: torch.dtype) -> None:
    _conv(library, dataclasses.replace(s, channels_last=channels_last), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_same_bits_for_any_number_of_workers(library: Library, dtype: torch.dtype) -> None:
    results = []
    for nworkers in (1, 2, 7):
        torch.manual_seed(0)
        results.append(_conv(library, Conv(1, 48, (40, 40), 70, (3, 3), padding=(1, 1)), dtype, nworkers))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@settings(max_examples=120, deadline=None)
@given(build=st.sampled_from(BUILDS), dtype=st.sampled_from(list(DTYPES)), s=small_convs(Conv.out_size))
def test_conv_any_shape(build: Cpu, dtype: torch.dtype, s: Conv) -> None:
    _conv(_library(build), s, dtype)


@settings(max_examples=80, deadline=None)
@given(build=st.sampled_from(BUILDS), dtype=st.sampled_from(list(DTYPES)), s=small_convs(Conv.transposed_out_size))
def test_transposed_any_shape(build: Cpu, dtype: torch.dtype, s: Conv) -> None:
    x, weight = s.input().to(dtype), torch.randn(s.c, s.oc // s.groups, *s.kernel).to(dtype)
    want = F.conv_transpose2d(
        x.double(), weight.double(), None, s.stride, s.padding, s.extra, s.groups, s.dilation
    ).permute(0, 2, 3, 1)  # fmt: skip
    kind = "conv_transposed_pairs" if dtype is torch.bfloat16 else "conv_transposed"
    out = torch.zeros(want.shape)
    buffers = [bits(x), packed(kind, weight, s.groups), out]
    ints = s.ints(x, s.transposed_out_size())
    workspace = s.transposed_workspace(x.stride(1), DTYPES[dtype])
    assert _library(build).call(f"conv_transposed2d_{name_of(dtype)}", buffers, ints, workspace, 2) == 0
    _assert_close(out, want)


@settings(max_examples=60, deadline=None)
@given(build=st.sampled_from(BUILDS), dtype=st.sampled_from(list(DTYPES)), s=small_convs(Conv.out_size))
def test_depthwise_any_shape(build: Cpu, dtype: torch.dtype, s: Conv) -> None:
    s = dataclasses.replace(s, groups=s.c, oc=s.c)
    x, weight = s.input().to(dtype), torch.randn(s.c, 1, *s.kernel).to(dtype)
    want = forward(x, weight, _no_bias(s.oc), s)
    out = torch.zeros(want.shape)
    workspace = s.depthwise_workspace(x.stride(1), DTYPES[dtype])
    buffers, ints = [bits(x), packed("depthwise", weight), out], s.ints(x, s.out_size())
    assert _library(build).call(f"depthwise2d_{name_of(dtype)}", buffers, ints, workspace, 2) == 0
    _assert_close(out, want)
