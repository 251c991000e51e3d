"""Convolutions of int8 (conv.h, depthwise.h, int8.h) against float64, which has each sum: exact, by the builds of
test_int8.py. Padding adds a code that is not 0.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hardtack.codegen.ir.types import DType
from hardtack.codegen.plan.prepack import PACKINGS
from tests.templates.conftest import Build, all_builds, by_gcc, portable
from tests.templates.cpu_kernels import Library, load_library
from tests.templates.layouts import Conv
from tests.templates.sources import SHAPE
from tests.templates.test_conv import CONVS
from tests.templates.test_half_conv import SOURCE
from tests.templates.test_int8 import I8, OF_CODES7, builds

EVEN = [
    Conv(1, 64, (5, 40), 33, (3, 3), (1, 1), (1, 1)),
    Conv(2, 128, (5, 17), 40, (3, 3), (2, 2), (1, 1)),
    Conv(2, 64, (6, 20), 64, (1, 1)),
    Conv(1, 256, (5, 21), 64, (3, 3), (1, 1), (1, 1), groups=4),
]
"""Rows that lie as tiles of int8 read them, but for those at an image's edges."""
COLOURS = Conv(1, 3, (5, 37), 40, (3, 3), (2, 2), (1, 1))
"""Pixels of three channels, sixteen at a time, of which a filter row has no whole fours."""


KNOWN = [(3, 1), (3, 2), (5, 1), (5, 2)]
"""Widths of depthwise filters and strides that are known when they are compiled."""


@functools.cache
def _library(build: Build) -> Library:
    dense = _source("conv2d", "conv2d")
    seven = dense.replace("conv2d_int8", "conv2d_codes7").replace("ht::conv2d(", f"ht::conv2d{OF_CODES7}(")
    return load_library({"conv2d_int8": dense, "conv2d_codes7": seven}, *build)


@functools.cache
def _depthwise_library(build: Build) -> Library:
    known = {f"depthwise2d_{kw}_{step}": f"depthwise2d<{kw}, {step}>" for kw, step in KNOWN}
    calls = {"depthwise2d_0_0": "depthwise2d", **known}
    return load_library({f"{name}_int8": _source(name, call) for name, call in calls.items()}, *build)


def _source(name: str, call: str) -> str:
    shape = SHAPE[: SHAPE.index("  const Epilogue")].replace("i[19]", "i[19], i[20]")
    text = SOURCE % {"call": name, "name": "int8", "t": "int8_t", "shape": shape}
    text = text.replace(f"ht::{name}(", f"ht::{call}(").replace("float", "int32_t")
    return text.replace('#include "depthwise.h"', '#include "depthwise.h"\n#include "int8.h"')


@pytest.fixture(scope="session", params=builds())
def library(request: pytest.FixtureRequest) -> Library:
    """The convolution, for every build."""
    return _library(request.param)


@pytest.fixture(scope="session", params=all_builds(by_gcc, portable))
def depthwise_library(request: pytest.FixtureRequest) -> Library:
    """The convolution by channel, which multiplies no four numbers at once: instructions for that are not modelled."""
    return _depthwise_library(request.param)


def _random(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=I8)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("s", [*CONVS, *EVEN, COLOURS], ids=str)
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("fill", [0, -128, 5])
def test_conv(library: Library, s: Conv, channels_last: bool, fill: int) -> None:
    _check_conv(library, s, channels_last, fill, "conv2d_int8", _random(s.n, s.c, *s.size))


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("s", [*CONVS, *EVEN, COLOURS], ids=str)
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("fill", [0, 127])
def test_conv_of_codes_from_0_to_127(library: Library, s: Conv, channels_last: bool, fill: int) -> None:
    x = _random(s.n, s.c, *s.size)
    _check_conv(library, s, channels_last, fill, "conv2d_codes7", torch.where(x < 0, 127, x))


def _check_conv(library: Library, s: Conv, channels_last: bool, fill: int, name: str, x: torch.Tensor) -> None:
    weight = _random(s.oc, s.c // s.groups, *s.kernel)
    x = x.to(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    merged = int(s.merges_taps(DType.I8))
    panels: Any = PACKINGS["conv_quads"](weight.numpy(), (s.groups, merged))
    out = torch.zeros(s.n, *s.out_size(), s.oc, dtype=torch.int32)
    workspace = s.workspace(x.stride(1), DType.I8)
    buffers = [x, torch.from_numpy(panels.copy()), out]
    assert library.call(name, buffers, [*s.ints(x, s.out_size()), fill], workspace, 2) == 0
    assert torch.equal(out.double(), _wanted(s, x, weight, fill))


def _wanted(s: Conv, x: torch.Tensor, weight: torch.Tensor, fill: int) -> torch.Tensor:
    (top, left), (below, right) = s.padding, s.extra
    wide = F.pad(x.double(), (left, left + right, top, top + below), value=fill)
    return F.conv2d(wide, weight.double(), None, s.stride, 0, s.dilation, s.groups).permute(0, 2, 3, 1)


@pytest.mark.sweep(over="depthwise_library")
@pytest.mark.parametrize("c", [1, 7, 40])
@pytest.mark.parametrize("fill", [0, -128, 5])
@pytest.mark.parametrize("known", [(0, 0), *KNOWN])
def test_depthwise(depthwise_library: Library, c: int, fill: int, known: tuple[int, int]) -> None:
    kernel, stride = ((5, known[0]), (1, known[1])) if known[0] else ((3, 2), (2, 1))
    for size in ((1, 1), (3, 2), (7, 7), (9, 20)):
        for padding in ((0, 0), (1, 1), (2, kernel[1])):
            s = Conv(2, c, size, c, kernel, stride, padding, groups=c, extra=(1, 1))
            if min(s.out_size()) <= 0:
                continue
            x = _random(s.n, s.c, *s.size).to(memory_format=torch.channels_last)
            weight = _random(c, 1, *kernel)
            out = torch.zeros(s.n, *s.out_size(), c, dtype=torch.int32)
            packed = weight[:, 0].permute(1, 2, 0).contiguous()
            ints = [*s.ints(x, s.out_size()), fill]
            name, workspace = f"depthwise2d_{known[0]}_{known[1]}_int8", s.depthwise_workspace(x.stride(1), DType.I8)
            assert depthwise_library.call(name, [x, packed, out], ints, workspace, 2) == 0
            assert torch.equal(out.double(), _wanted(s, x, weight, fill))
