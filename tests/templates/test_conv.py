"""conv.h, conv_transposed.h and depthwise.h against torch in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.templates.cpu_kernels import Library, Workspace
from tests.templates.layouts import Conv, pack_conv, pack_conv_transposed

CONVS = [
    Conv(1, 1, (1, 1), 1, (1, 1)),
    Conv(2, 17, (5, 7), 33, (1, 1)),
    Conv(2, 40, (6, 5), 24, (1, 1), stride=(2, 2)),
    Conv(1, 20, (9, 8), 40, (3, 3), padding=(1, 1)),
    Conv(3, 16, (10, 11), 32, (3, 3), stride=(2, 1), padding=(1, 2)),
    Conv(1, 3, (20, 23), 32, (3, 3), stride=(2, 2), padding=(1, 1)),
    Conv(2, 3, (20, 23), 32, (3, 3), stride=(2, 2), extra=(1, 1)),  # pads the bottom and right only
    Conv(1, 4, (30, 31), 20, (7, 7), stride=(2, 2), padding=(3, 3)),
    Conv(1, 18, (12, 12), 10, (3, 2), padding=(2, 1), dilation=(2, 3)),
    Conv(2, 32, (7, 7), 48, (3, 3), padding=(1, 1), groups=2),
    Conv(1, 12, (7, 7), 8, (3, 3), padding=(1, 1), groups=4),
    Conv(1, 800, (3, 4), 40, (1, 1)),  # a tap longer than a k block
    Conv(1, 300, (5, 4), 40, (3, 3), padding=(1, 1)),  # taps over several k blocks
    Conv(1, 16, (12, 14), 5, (11, 9), padding=(5, 4)),  # more taps than a k block may have
    Conv(1, 17, (1, 50), 6, (1, 5), padding=(0, 4), dilation=(1, 2)),
    Conv(1, 16, (2, 2), 8, (3, 3), padding=(3, 3)),  # windows that miss the input
    Conv(0, 16, (4, 4), 8, (3, 3)),
    Conv(1, 16, (64, 64), 32, (3, 3), padding=(1, 1)),  # enough work for the threads
]


def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, s: Conv) -> torch.Tensor:
    padded = F.pad(x.double(), (s.padding[1], s.padding[1] + s.extra[1], s.padding[0], s.padding[0] + s.extra[0]))
    y = F.conv2d(padded, weight.double(), bias.double(), s.stride, 0, s.dilation, s.groups)
    return y.permute(0, 2, 3, 1)


def check(
    library: Library,
    name: str,
    buffers: list[torch.Tensor],
    ints: list[int],
    want: torch.Tensor,
    workspace: Callable[[int], Workspace],
    nworkers: int = 2,
) -> None:
    x, weight, bias = buffers
    out = torch.zeros(want.shape)
    assert library.call(name, [x, weight, bias, out], ints, workspace(x.stride(1)), nworkers) == 0
    torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=2e-4)


def check_conv(library: Library, s: Conv, nworkers: int = 2) -> None:
    x, bias = s.input(), torch.randn(s.oc)
    weight = torch.randn(s.oc, s.c // s.groups, *s.kernel)
    want = forward(x, weight, bias, s)
    ints = s.ints(x, s.out_size())
    check(library, "conv2d", [x, pack_conv(weight, s.groups), bias], ints, want, s.workspace, nworkers)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("s", CONVS, ids=str)
@pytest.mark.parametrize("channels_last", [True, False])
def test_conv(library: Library, s: Conv, channels_last: bool) -> None:
    check_conv(library, dataclasses.replace(s, channels_last=channels_last))


def test_conv_of_a_channel_slice_and_a_crop(library: Library) -> None:
    s = Conv(2, 20, (6, 7), 9, (3, 3), padding=(1, 1))
    whole = torch.randn(2, 9, 10, 50).permute(0, 3, 1, 2)
    x = whole[:, 5:25, 2:8, 1:8]
    weight, bias = torch.randn(9, 20, 3, 3), torch.randn(9)
    want = forward(x, weight, bias, s)
    check(library, "conv2d", [x, pack_conv(weight, 1), bias], s.ints(x, s.out_size()), want, s.workspace)


@pytest.mark.parametrize(
    "s",
    [
        Conv(1, 1024, (4, 7), 40, (1, 1)),
        Conv(1, 130, (5, 30), 40, (1, 2), (1, 1), (0, 1)),
        Conv(1, 200, (6, 25), 33, (2, 2), stride=(2, 2), padding=(1, 0)),
        Conv(1, 300, (5, 26), 70, (3, 3), padding=(1, 1), groups=2),
    ],
    ids=str,
)
def test_channels_that_share_a_set_of_the_cache(library: Library, s: Conv) -> None:
    """Channels of a wider input, 4096 numbers and a line more from one place to the next."""
    weight, bias = torch.randn(s.oc, s.c // s.groups, *s.kernel), torch.randn(s.oc)
    x, results = s.input(), []
    for apart in (4096, 4112):
        wide = torch.full((s.n, *s.size, apart), torch.nan).permute(0, 3, 1, 2)
        wide[:, : s.c] = x
        x = wide[:, : s.c]
        out = torch.zeros(s.n, *s.out_size(), s.oc)
        ints = s.ints(x, s.out_size())
        assert library.call("conv2d", [x, pack_conv(weight, s.groups), bias, out], ints, s.workspace(1)) == 0
        results.append(out)
    assert torch.equal(results[0], results[1])
    torch.testing.assert_close(results[0].double(), forward(x, weight, bias, s), rtol=1e-5, atol=2e-4)


def test_conv_same_bits_for_any_number_of_workers(library: Library) -> None:
    s = Conv(1, 48, (40, 40), 70, (3, 3), padding=(1, 1))
    x, weight, bias = s.input(), pack_conv(torch.randn(70, 48, 3, 3), 1), torch.randn(70)
    results = []
    for nworkers in (1, 2, 7):
        out = torch.zeros(1, 40, 40, 70)
        library.call("conv2d", [x, weight, bias, out], s.ints(x, s.out_size()), s.workspace(1), nworkers)
        results.append(out)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def small_convs(min_out: Callable[[Conv], tuple[int, int]]) -> st.SearchStrategy[Conv]:
    def pair(lo: int, hi: int) -> st.SearchStrategy[tuple[int, int]]:
        return st.tuples(st.integers(lo, hi), st.integers(lo, hi))

    return st.builds(
        lambda n, size, groups, c, oc, kernel, stride, padding, dilation, last: Conv(
            n, c * groups, size, oc * groups, kernel, stride, padding, dilation, groups, channels_last=last
        ),
        st.integers(1, 2), pair(1, 9), st.integers(1, 3), st.integers(1, 20), st.integers(1, 40), pair(1, 4),
        pair(1, 3), pair(0, 3), pair(1, 2), st.booleans(),
    ).filter(lambda s: min(min_out(s)) > 0)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(s=small_convs(Conv.out_size))
def test_conv_any_shape(library: Library, s: Conv) -> None:
    check_conv(library, s)


TRANSPOSED = [
    Conv(1, 1, (1, 1), 1, (1, 1)),
    Conv(2, 16, (5, 6), 24, (2, 2), stride=(2, 2)),
    Conv(1, 20, (4, 7), 33, (4, 4), stride=(2, 2), padding=(1, 1)),
    Conv(1, 20, (4, 7), 33, (3, 3), stride=(2, 3), padding=(1, 0), extra=(1, 2)),
    Conv(2, 12, (5, 5), 10, (3, 3), stride=(3, 2), dilation=(2, 3), groups=2),
    Conv(1, 8, (5, 5), 6, (1, 1), stride=(2, 2)),  # phases that no filter position reaches
    Conv(1, 8, (5, 5), 6, (3, 3), padding=(2, 2)),
    Conv(0, 8, (5, 5), 6, (3, 3)),
]


def check_transposed(library: Library, s: Conv) -> None:
    x, bias = s.input(), torch.randn(s.oc)
    weight = torch.randn(s.c, s.oc // s.groups, *s.kernel)
    y = F.conv_transpose2d(
        x.double(), weight.double(), bias.double(), s.stride, s.padding, s.extra, s.groups, s.dilation
    )
    ints = s.ints(x, s.transposed_out_size())
    packed = pack_conv_transposed(weight, s.groups)
    check(library, "conv_transposed2d", [x, packed, bias], ints, y.permute(0, 2, 3, 1), s.transposed_workspace)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("s", TRANSPOSED, ids=str)
@pytest.mark.parametrize("channels_last", [True, False])
def test_transposed(library: Library, s: Conv, channels_last: bool) -> None:
    check_transposed(library, dataclasses.replace(s, channels_last=channels_last))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(s=small_convs(Conv.transposed_out_size), extra=st.tuples(st.integers(0, 2), st.integers(0, 2)))
def test_transposed_any_shape(library: Library, s: Conv, extra: tuple[int, int]) -> None:
    for i in (0, 1):
        assume(extra[i] < max(s.stride[i], s.dilation[i]))
    check_transposed(library, dataclasses.replace(s, extra=extra))


def check_depthwise(library: Library, s: Conv, name: str = "depthwise2d") -> None:
    x, bias, weight = s.input(), torch.randn(s.oc), torch.randn(s.oc, 1, *s.kernel)
    want = forward(x, weight, bias, s)
    packed = weight.reshape(s.oc, *s.kernel).permute(1, 2, 0).contiguous()
    check(library, name, [x, packed, bias], s.ints(x, s.out_size()), want, s.depthwise_workspace)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("c", [1, 7, 16, 40, 100])
def test_depthwise_known_filter(library: Library, kernel: int, stride: int, c: int) -> None:
    for size in ((1, 1), (3, 2), (7, 7), (9, 20)):
        for padding in (0, 1, kernel // 2, kernel):
            s = Conv(2, c, size, c, (kernel, kernel), (stride, stride), (padding, padding), groups=c, extra=(1, 1))
            if min(s.out_size()) > 0:
                check_depthwise(library, s, f"depthwise2d_{kernel}_{stride}")


def test_depthwise_channels_first_and_threads(library: Library) -> None:
    s = Conv(1, 200, (28, 28), 200, (3, 3), padding=(1, 1), groups=200, channels_last=False)
    check_depthwise(library, s)
    check_depthwise(library, s, "depthwise2d_3_1")
    check_depthwise(library, dataclasses.replace(s, size=(1, 2000), padding=(1, 1)), "depthwise2d_3_1")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(s=small_convs(Conv.out_size), c=st.integers(1, 80))
def test_depthwise_any_shape(library: Library, s: Conv, c: int) -> None:
    check_depthwise(library, dataclasses.replace(s, c=c, oc=c, groups=c))
