"""Convolutions of 16-bit numbers against torch in float64, on every build of half_builds.py."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from hardtack.codegen.ir.types import DType
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
  static constexpr int kOperations = 4;
  static constexpr bool kOneRow = false;
  struct Row { float* out; };
  HT_MEMBER Row row(int64_t, int64_t m) const { return {out + m * ld}; }
  HT_MEMBER void operator()(const Row& r, int64_t m, int64_t n, int count, ht::vec<float> acc) const {
    part(r, m, n, count, acc);
  }
  HT_MEMBER void part(const Row& r, int64_t, int64_t n, int count, ht::vec<float> acc) const {
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


# Depthwise convolutions whose filter's width and stride are known when they are compiled; of f32 as well.
_KNOWN = [(0, 0), (3, 1), (3, 2), (5, 1), (5, 2)]
_TYPES = {**STORAGE, torch.float32: "float"}


def _known_name(kw: int, stride: int, dtype: torch.dtype) -> str:
    return f"depthwise2d_{kw}_{stride}_{name_of(dtype)}"


def _known_source(kw: int, stride: int, dtype: torch.dtype) -> str:
    call = f"depthwise2d_{kw}_{stride}"
    source = SOURCE % {"call": call, "name": name_of(dtype), "t": _TYPES[dtype], "shape": _SHAPE}
    return source.replace(f"ht::{call}(", f"ht::depthwise2d<{kw}, {stride}>(")


@functools.cache
def _depthwise_library(cpu: Cpu, known: tuple[int, int], dtype: torch.dtype) -> Library:
    return load_library({_known_name(*known, d): _known_source(*known, d) for d in (dtype, torch.float32)}, cpu)


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
    out = _run(library, s, x, weight, nworkers)
    _assert_close(out, forward(x, weight, _no_bias(s.oc), s))
    return out


def _run(library: Library, s: Conv, x: torch.Tensor, weight: torch.Tensor, nworkers: int = 2) -> torch.Tensor:
    dtype = x.dtype
    bf16 = dtype is torch.bfloat16
    merged = bf16 and s.merges_taps(DTYPES[dtype])
    weights = packed("conv_pairs", weight, s.groups, int(merged)) if bf16 else packed("conv", weight, s.groups)
    out = torch.zeros(s.n, *s.out_size(), s.oc)
    workspace = s.workspace(x.stride(1), DTYPES[dtype])
    ints = s.ints(x, s.out_size())
    assert library.call(f"conv2d_{name_of(dtype)}", [bits(x), weights, out], ints, workspace, nworkers) == 0
    return out


@pytest.mark.sweep(over="library")
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


_EVEN = [
    Conv(1, 32, (9, 40), 33, (3, 3), (1, 1), (1, 1)),
    Conv(2, 64, (5, 17), 40, (3, 3), (2, 2), (1, 1)),
    Conv(1, 96, (4, 33), 70, (3, 3), (1, 1), (2, 2), (2, 2)),
    Conv(2, 64, (6, 20), 64, (1, 1)),
    Conv(1, 32, (3, 50), 20, (3, 5), (1, 2), (1, 2)),
    Conv(1, 128, (5, 21), 64, (3, 3), (1, 1), (1, 1), groups=4),
    Conv(1, 48, (6, 40), 40, (3, 3), (1, 1), (1, 1)),
    Conv(1, 80, (7, 30), 72, (1, 1)),
]
"""Rows that lie as tiles read them, but for those at an image's edges and ends; the last two leave half a tile of k."""


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("s", _EVEN, ids=str)
def test_whole_tiles_of_channels(library: Library, s: Conv, dtype: torch.dtype) -> None:
    _conv(library, s, dtype)


_WINDOWS = [
    Conv(3, 44, (13, 12), 44, (3, 3), (1, 1), (1, 1)),
    Conv(2, 48, (24, 24), 40, (3, 3), (2, 2), (1, 1)),  # four phases
    Conv(1, 20, (17, 19), 33, (5, 3), (3, 1), (2, 0)),
    Conv(1, 36, (9, 30), 32, (3, 3), (1, 1), (2, 2), (2, 2)),
    Conv(2, 40, (7, 25), 24, (2, 4), (1, 1), (0, 1), extra=(1, 2)),  # more zeros behind than in front
    Conv(1, 64, (28, 28), 64, (3, 3), (1, 1), (1, 1)),  # whole grains
    Conv(3, 48, (11, 11), 48, (3, 3), (1, 1), (1, 1), groups=3),
    Conv(2, 48, (6, 9), 48, (3, 3), (2, 2), (1, 1), groups=3),
    Conv(1, 16, (1, 70), 16, (1, 9), (1, 1), (0, 4)),
    Conv(1, 16, (3, 2), 8, (3, 3), (1, 1), (2, 2)),  # windows that are mostly zeros
]
"""Whose rows tiles read from a window: rows of pixels that end inside a tile, channels that fill no grain."""

_CHOICE = f"""
#include "conv.h"
extern "C" int32_t choice(const HtKernelArgs* args) {{
  const int64_t* i = args->ints;
  {_SHAPE}
  const auto x = static_cast<const ht::bf16*>(args->buffers[0]);
  const auto source = ht::detail::conv_source(s, x, x);
  const auto window = ht::detail::window_of<ht::MachineBlocks<ht::bf16>>(source, s.n, s.n * s.oh * s.ow);
  *static_cast<float*>(args->buffers[1]) = window.used();
  return HT_KERNEL_OK;
}}
"""


def _chooses_window(library: Library, s: Conv) -> bool:
    x, out = s.input().bfloat16(), torch.zeros(1)
    assert library.call("choice", [bits(x), out], s.ints(x, s.out_size())) == 0
    return bool(out.item())


@functools.cache
def _choice_library() -> Library:
    (tiles,) = (cpu for cpu in BUILDS if cpu.name == "tiles-model")
    return load_library({"choice": _CHOICE}, tiles)


def test_who_reads_windows() -> None:
    library = _choice_library()
    assert all(_chooses_window(library, s) for s in _WINDOWS)
    assert not _chooses_window(library, Conv(1, 64, (14, 14), 256, (1, 1)))  # one tap
    assert not _chooses_window(library, Conv(1, 512, (7, 7), 512, (3, 3), padding=(1, 1)))  # too many rows for nothing
    assert not _chooses_window(library, Conv(1, 64, (8, 256), 64, (3, 3), padding=(1, 1)))  # few tiles meet an end
    assert not _chooses_window(library, Conv(1, 2048, (24, 24), 16, (3, 3), padding=(1, 1)))  # no room


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("s", _WINDOWS, ids=str)
def test_windows(library: Library, s: Conv, dtype: torch.dtype) -> None:
    results = []
    for nworkers in (1, 2, 5):
        torch.manual_seed(0)
        results.append(_conv(library, s, dtype, nworkers))
    assert all(torch.equal(r, results[0]) for r in results)


_ODD = [
    Conv(1, 3, (9, 40), 33, (3, 3), (2, 2), (1, 1)),  # taps side by side, three of three channels
    Conv(1, 3, (5, 19), 64, (7, 7), (2, 2), (3, 3)),
    Conv(2, 17, (6, 15), 40, (1, 1)),
    Conv(1, 21, (7, 14), 20, (3, 3), (1, 1), (1, 1), (1, 2)),
    Conv(1, 35, (4, 13), 50, (1, 3), (1, 1), (0, 1), groups=5),
    Conv(1, 769, (2, 13), 8, (1, 1)),
]
"""With an odd number of channels in a tap, whose last one has another element behind it in the image."""


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("s", [*_ODD, *_WINDOWS], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_no_number_reaches_other_windows(library: Library, dtype: torch.dtype, s: Conv, channels_last: bool) -> None:
    """What lies behind the last channel of a tap is multiplied by nothing, not by zero."""
    torch.manual_seed(0)
    s = dataclasses.replace(s, channels_last=channels_last)
    for value in (torch.nan, torch.inf):
        x, weight = s.input().to(dtype), torch.randn(s.oc, s.c // s.groups, *s.kernel).to(dtype)
        x[0, 0, 1::3, 2::5] = value  # of the first group: what the others' taps end before, or the next pixel's
        want, out = forward(x, weight, _no_bias(s.oc), s), _run(library, s, x, weight)
        assert torch.equal(out.isfinite(), want.isfinite())
        torch.testing.assert_close(out.double(), want, rtol=2e-5, atol=5e-4, equal_nan=True)


@settings(max_examples=120, deadline=None)
@given(build=st.sampled_from(BUILDS), dtype=st.sampled_from(list(DTYPES)), s=small_convs(Conv.out_size))
def test_conv_any_shape(build: Cpu, dtype: torch.dtype, s: Conv) -> None:
    _conv(_library(build), s, dtype)


def _transposed(library: Library, s: Conv, dtype: torch.dtype) -> None:
    x, weight = s.input().to(dtype), torch.randn(s.c, s.oc // s.groups, *s.kernel).to(dtype)
    want = F.conv_transpose2d(
        x.double(), weight.double(), None, s.stride, s.padding, s.extra, s.groups, s.dilation
    ).permute(0, 2, 3, 1)  # fmt: skip
    kind = "conv_transposed_pairs" if dtype is torch.bfloat16 else "conv_transposed"
    out = torch.zeros(want.shape)
    buffers = [bits(x), packed(kind, weight, s.groups), out]
    ints = s.ints(x, s.transposed_out_size())
    workspace = s.transposed_workspace(x.stride(1), DTYPES[dtype])
    assert library.call(f"conv_transposed2d_{name_of(dtype)}", buffers, ints, workspace, 2) == 0
    _assert_close(out, want)


@settings(max_examples=80, deadline=None)
@given(build=st.sampled_from(BUILDS), dtype=st.sampled_from(list(DTYPES)), s=small_convs(Conv.transposed_out_size))
def test_transposed_any_shape(build: Cpu, dtype: torch.dtype, s: Conv) -> None:
    _transposed(_library(build), s, dtype)


@pytest.mark.parametrize("build", BUILDS, ids=lambda b: b.name)
def test_pixels_that_no_tap_of_a_transposed_convolution_reaches_are_zero(build: Cpu) -> None:
    """Eight of them, more than a microkernel has rows: a product without k, which tiles have no sums for."""
    s = Conv(1, 1, (1, 3), 1, kernel=(4, 1), stride=(1, 2), channels_last=False)
    _transposed(_library(build), s, torch.bfloat16)


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


# A count of each remainder by 64, by 32 and by 16 channels: four, two and one vectors of AVX-512, and parts of one.
_CHANNELS = (1, 15, 16, 31, 32, 33, 47, 48, 64, 65, 80, 97, 131)
_SPECIAL = (float("nan"), float("inf"), -float("inf"), -0.0, 1e-39, -1e-40, 6e-8, 6e4)


def _with_specials(t: torch.Tensor) -> torch.Tensor:
    """A tenth of the elements become NaN, infinities, zeros below 0, subnormals of either type and large numbers."""
    values = torch.tensor(_SPECIAL)[torch.randint(len(_SPECIAL), t.shape)]
    return torch.where(torch.rand(t.shape) < 0.1, values, t)


@pytest.mark.sweep(over=("cpu", "special"))
@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("known", _KNOWN, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("cpu", build_params())
def test_depthwise_sums_as_f32_does(cpu: Cpu, dtype: torch.dtype, known: tuple[int, int], special: bool) -> None:
    """Widened first or in the kernel, the numbers are the same and are summed in the same order: so are the results."""
    torch.manual_seed(0)
    kw, stride = known[0] or 7, known[1] or 1
    for c in _CHANNELS:
        for width in (1, 9, 21):
            s = Conv(2, c, (5, width), c, (3, kw), (1, stride), (1, kw // 2), groups=c)
            x, weight = s.input(), torch.randn(c, 1, *s.kernel)
            x = (_with_specials(x) if special else x).to(dtype).contiguous(memory_format=torch.channels_last)
            _assert_as_f32(_depthwise_library(cpu, known, dtype), s, known, x, weight.to(dtype))


def _assert_as_f32(library: Library, s: Conv, known: tuple[int, int], x: torch.Tensor, weight: torch.Tensor) -> None:
    taps = weight.reshape(s.c, *s.kernel).permute(1, 2, 0).contiguous()
    outs = []
    for a, w in ((bits(x), bits(taps)), (x.float(), taps.float())):
        dtype = x.dtype if a.dtype is torch.int16 else torch.float32
        out = torch.zeros(s.n, *s.out_size(), s.c)
        workspace = s.depthwise_workspace(x.stride(1), DTYPES.get(dtype, DType.F32))
        ints = s.ints(x, s.out_size())
        assert library.call(_known_name(*known, dtype), [a, w, out], ints, workspace, 2) == 0
        outs.append(out)
    assert torch.equal(outs[0].isnan(), outs[1].isnan())
    assert torch.equal(outs[0].nan_to_num(), outs[1].nan_to_num()), s
