"""Convolutions of int8 (conv.h, int8.h) against float64, which has each sum: exact, by the builds of test_int8.py."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hardtack.codegen.ir.types import DType
from hardtack.codegen.plan.prepack import PACKINGS
from tests.templates.conftest import Build
from tests.templates.cpu_kernels import Library, load_library
from tests.templates.layouts import Conv
from tests.templates.sources import SHAPE
from tests.templates.test_conv import CONVS
from tests.templates.test_half_conv import SOURCE
from tests.templates.test_int8 import I8, builds

EVEN = [
    Conv(1, 64, (5, 40), 33, (3, 3), (1, 1), (1, 1)),
    Conv(2, 128, (5, 17), 40, (3, 3), (2, 2), (1, 1)),
    Conv(2, 64, (6, 20), 64, (1, 1)),
    Conv(1, 256, (5, 21), 64, (3, 3), (1, 1), (1, 1), groups=4),
]
"""Rows that lie as tiles of int8 read them, but for those at an image's edges."""


@functools.cache
def _library(build: Build) -> Library:
    shape = SHAPE[: SHAPE.index("  const Epilogue")]
    text = SOURCE % {"call": "conv2d", "name": "int8", "t": "int8_t", "shape": shape}
    sums = text.replace("float", "int32_t").replace(
        '#include "depthwise.h"', '#include "depthwise.h"\n#include "int8.h"'
    )
    return load_library({"conv2d_int8": sums}, *build)


@pytest.fixture(scope="session", params=builds())
def library(request: pytest.FixtureRequest) -> Library:
    """The convolution, for every build."""
    return _library(request.param)


def _random(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=I8)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("s", [*CONVS, *EVEN], ids=str)
@pytest.mark.parametrize("channels_last", [True, False])
def test_conv(library: Library, s: Conv, channels_last: bool) -> None:
    x, weight = _random(s.n, s.c, *s.size), _random(s.oc, s.c // s.groups, *s.kernel)
    x = x.to(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    merged = int(s.merges_taps(DType.I8))
    panels: Any = PACKINGS["conv_quads"](weight.numpy(), (s.groups, merged))
    out = torch.zeros(s.n, *s.out_size(), s.oc, dtype=torch.int32)
    workspace = s.workspace(x.stride(1), DType.I8)
    buffers = [x, torch.from_numpy(panels.copy()), out]
    assert library.call("conv2d_int8", buffers, s.ints(x, s.out_size()), workspace, 2) == 0
    wide = F.pad(x.double(), (0, s.extra[1], 0, s.extra[0]))
    want = F.conv2d(wide, weight.double(), None, s.stride, s.padding, s.dilation, s.groups)
    assert torch.equal(out.double(), want.permute(0, 2, 3, 1))
