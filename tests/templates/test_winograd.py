"""winograd.h against torch in float64, and where numbers are not finite against conv.h, to the bit."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.templates.cpu_kernels import Library
from tests.templates.layouts import Conv, pack_conv


def conv(n: int, c: int, size: tuple[int, int], oc: int, padding: tuple[int, int] = (1, 1), **more: object) -> Conv:
    return dataclasses.replace(Conv(n, c, size, oc, (3, 3), padding=padding), **more)  # type: ignore[arg-type]


CONVS = [
    conv(1, 1, (1, 1), 1),
    conv(1, 16, (8, 8), 32),
    conv(2, 17, (5, 7), 33),  # tails of channels, of filters and of the image
    conv(1, 40, (6, 9), 48, padding=(0, 2)),
    conv(1, 20, (4, 3), 16, padding=(0, 0)),
    conv(1, 8, (2, 2), 8, padding=(3, 3)),  # windows that miss the input
    conv(2, 12, (6, 7), 70, padding=(0, 0), extra=(1, 1)),  # pads the bottom and right only
    conv(3, 24, (30, 26), 40),  # many tiles: over several images, in several units
    conv(1, 800, (5, 4), 40),
    conv(1, 300, (33, 34), 20),
    conv(0, 16, (4, 4), 8),
    conv(1, 48, (64, 64), 64),  # enough work for the threads
]


def run(library: Library, name: str, s: Conv, tensors: list[torch.Tensor], nworkers: int = 2) -> torch.Tensor:
    """What a template adds to zeros. tensors: x, weight as torch has it, bias."""
    x, weight, bias = tensors
    out = torch.zeros(s.n, *s.out_size(), s.oc)
    workspace = s.winograd_workspace() if name == "winograd2d" else s.workspace(1)
    buffers = [x, pack_conv(weight, 1), bias, out]
    assert library.call(name, buffers, s.ints(x, s.out_size()), workspace, nworkers) == 0
    return out


def random(s: Conv) -> list[torch.Tensor]:
    return [s.input(), torch.randn(s.oc, s.c, 3, 3), torch.randn(s.oc)]


def forward(tensors: list[torch.Tensor], s: Conv) -> torch.Tensor:
    x, weight, bias = (t.double() for t in tensors)
    padded = F.pad(x, (s.padding[1], s.padding[1] + s.extra[1], s.padding[0], s.padding[0] + s.extra[0]))
    return F.conv2d(padded, weight, bias).permute(0, 2, 3, 1)


def check(library: Library, s: Conv) -> None:
    tensors = random(s)
    out = run(library, "winograd2d", s, tensors)
    torch.testing.assert_close(out.double(), forward(tensors, s), rtol=1e-5, atol=2e-4)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("s", CONVS, ids=str)
def test_winograd(library: Library, s: Conv) -> None:
    check(library, s)


def test_winograd_of_a_channel_slice_and_a_crop(library: Library) -> None:
    s = conv(2, 20, (6, 7), 9)
    whole = torch.randn(2, 9, 10, 50).permute(0, 3, 1, 2)
    tensors = [whole[:, 5:25, 2:8, 1:8], *random(s)[1:]]
    out = run(library, "winograd2d", s, tensors)
    torch.testing.assert_close(out.double(), forward(tensors, s), rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("size", [(20, 24), (40, 40)])
def test_winograd_same_bits_for_any_number_of_workers(library: Library, size: tuple[int, int]) -> None:
    s = conv(1, 48, size, 70)
    tensors = random(s)
    first, *others = (run(library, "winograd2d", s, tensors, nworkers) for nworkers in (1, 2, 7))
    assert all(torch.equal(first, other) for other in others)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    s=st.builds(
        lambda n, c, size, oc, padding, extra: conv(n, c, size, oc, padding=padding, extra=extra),
        st.integers(1, 3), st.integers(1, 40), st.tuples(st.integers(1, 20), st.integers(1, 20)), st.integers(1, 70),
        st.tuples(st.integers(0, 3), st.integers(0, 3)), st.tuples(st.integers(0, 1), st.integers(0, 1)),
    ).filter(lambda s: min(s.out_size()) > 0)
)  # fmt: skip
def test_winograd_any_shape(library: Library, s: Conv) -> None:
    check(library, s)


def check_special(got: torch.Tensor, direct: torch.Tensor, eager: torch.Tensor, value: float) -> None:
    """By an infinity or a NaN, special results are eager's. By a number whose sums overflow, what conv.h has finite is
    finite; what it has not, for a partial sum overflows, may be finite here."""
    if math.isfinite(value):
        same_special(torch.where(got.isfinite(), 0.0, got), torch.where(got.isfinite(), 0.0, direct))
    else:
        same_special(got, eager)


def same_special(got: torch.Tensor, want: torch.Tensor) -> None:
    """NaN and infinities, with their signs, are where they are wanted, and no others."""
    special = torch.where(want.isfinite(), 0.0, want)
    torch.testing.assert_close(torch.where(got.isfinite(), 0.0, got), special, rtol=0, atol=0, equal_nan=True)


SPECIAL = (math.inf, -math.inf, math.nan, 3e38, -3e38)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("size", [(9, 11), (36, 35)])
@pytest.mark.parametrize("value", SPECIAL)
def test_a_special_input_touches_its_windows_alone(library: Library, value: float, size: tuple[int, int]) -> None:
    s = conv(2, 16, size, 40)
    x, weight, bias = random(s)
    plain = run(library, "winograd2d", s, [x, weight, bias])
    places = torch.zeros(s.n, 1, *size)
    for image, channel, y, z, sign in ((0, 3, 4, 5, 1), (0, 7, 4, 6, -1), (1, 0, 0, 0, 1), (1, 2, -1, -1, 1)):
        x[image, channel, y, z] = sign * value
        places[image, 0, y, z] = 1
    given = [x, weight, bias]
    out, direct = run(library, "winograd2d", s, given), run(library, "conv2d", s, given)
    check_special(out, direct, F.conv2d(x, weight, bias, padding=1).permute(0, 2, 3, 1), value)
    outside = F.conv2d(places, torch.ones(1, 1, 3, 3), padding=1)[:, 0] == 0
    assert torch.equal(out[outside], plain[outside])
    inside = direct.isfinite() & ~outside[..., None]
    torch.testing.assert_close(out[inside], direct[inside], rtol=1e-5, atol=1e32)


def test_what_is_not_finite_everywhere_has_the_bits_of_conv(library: Library) -> None:
    s = conv(1, 20, (11, 13), 33)
    x, weight, bias = random(s)
    x[:, 2] = 2e38
    given = [x, weight / 4, bias]
    out, direct = run(library, "winograd2d", s, given), run(library, "conv2d", s, given)
    same_special(out, direct)
    x[:, 2] = math.inf
    out, direct = run(library, "winograd2d", s, given), run(library, "conv2d", s, given)
    torch.testing.assert_close(out, direct, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("value", SPECIAL)
def test_special_filters(library: Library, value: float) -> None:
    s = conv(1, 16, (7, 10), 40, padding=(0, 0))
    x, weight, bias = random(s)
    weight[3, 2, 1, 1] = weight[5, 0, 0, 2] = weight[39, 1, 2, 2] = value
    weight[7, 1] = value
    weight[8] = 0
    weight[8, 1, 1, 0] = value
    given = [x, weight, bias]
    out, direct = run(library, "winograd2d", s, given), run(library, "conv2d", s, given)
    check_special(out, direct, F.conv2d(x, weight, bias).permute(0, 2, 3, 1), value)
    finite = direct.isfinite()
    largest = float((direct[finite]).abs().max())  # of an output channel with such a filter
    torch.testing.assert_close(out[finite], direct[finite], rtol=1e-5, atol=1e-6 * largest)
