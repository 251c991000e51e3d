"""Convolutions of int64, losses in chunks and batch norm that updates its moments, as graphs beside eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from hardtack.exporter import CaptureError, ExportError, to_graphs
from hardtack.exporter.reference import results
from hardtack.narrowing import input_tensors
from tests.export.checks import check

CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1, dilation=2), (2, 4, 11), (6, 4, 3)),
    "conv1d of groups": (lambda x, w, b: F.conv1d(x, w, b, padding="same", groups=2), (2, 4, 11), (6, 2, 3)),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=(0, 2)), (2, 3, 7, 6), (6, 3, 3, 2)),
    "conv2d of one": (lambda x, w, b: F.conv2d(x, w, b, groups=3), (3, 7, 6), (6, 1, 3, 2)),
    "conv3d": (lambda x, w, b: F.conv3d(x, w, b, dilation=(1, 2, 1)), (1, 2, 4, 5, 3), (6, 2, 2, 2, 3)),
    "transposed 1d": (
        lambda x, w, b: F.conv_transpose1d(x, w, b, stride=3, padding=1, output_padding=2), (2, 4, 5), (4, 6, 3),
    ),
    "transposed 2d": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=(1, 2), padding=(2, 0), groups=2, dilation=(1, 2)),
        (2, 4, 5, 3), (4, 3, 3, 2),
    ),
    "transposed 3d": (lambda x, w, b: F.conv_transpose3d(x, w, b), (1, 2, 2, 3, 2), (2, 6, 2, 1, 3)),
}  # fmt: skip


def found(
    function: Callable[..., Any], args: tuple[Any, ...], dynamic_shapes: Any = None
) -> Callable[..., list[Tensor]]:
    exported = to_graphs(function, args, dynamic_shapes=dynamic_shapes)
    entry = exported.entries["forward"]
    return lambda *args: results(entry.graph, exported.store, input_tensors(entry, args, {}))


@pytest.mark.parametrize("case", CASES)
def test_integer_convolutions(case: str) -> None:
    function, shape, kernel = CASES[case]
    x, w = (torch.randint(-(2**62), 2**62, n) for n in (shape, kernel))
    args = x, w, torch.arange(6)
    assert torch.equal(found(function, args)(*args)[0], function(*args))


def test_an_integer_convolution_of_any_batch() -> None:
    w = torch.randint(-9, 9, (5, 3, 3))
    call = found(lambda x: F.conv1d(x, w), (torch.ones(2, 3, 8, dtype=torch.int64),), [{0: Dim("n", max=64)}])
    for n in (0, 1, 2, 7):
        x = torch.randint(-9, 9, (n, 3, 8))
        assert torch.equal(call(x)[0], F.conv1d(x, w))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_batch_norm_with_update(dtype: torch.dtype) -> None:
    def function(x: Tensor, mean: Tensor, var: Tensor, w: Tensor) -> Any:
        mean, var = mean.clone(), var.clone()
        out = torch.ops.aten._batch_norm_with_update(x, w, -w, mean, var, 0.3, 1e-5)[0]
        return out, mean, var

    args = torch.randn(4, 3, 5).to(dtype), torch.randn(3).to(dtype), torch.rand(3).to(dtype), torch.randn(3).to(dtype)
    with torch.no_grad():
        want = function(*args)
    ulps = max(4 * torch.finfo(dtype).eps, 1e-5)  # of half types eager rounds the scale, too
    for g, w in zip(found(function, args)(*args), want, strict=True):
        torch.testing.assert_close(g, w, rtol=ulps, atol=ulps)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.skipif(not hasattr(nn, "LinearCrossEntropyOptions"), reason="this torch has no such loss")
def test_losses_in_chunks(dtype: torch.dtype, reduction: str) -> None:
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)

    def function(x: Tensor, w: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        more = {"weight": weight, "ignore_index": 3, "reduction": reduction, "options": options}
        return F.linear_cross_entropy(x, w, target, **more)

    args = (
        torch.randn(9, 4, dtype=dtype),
        torch.randn(7, 4, dtype=dtype),
        torch.arange(9) % 7,
        torch.rand(7, dtype=dtype),
    )
    with torch.no_grad():
        want = function(*args)
    torch.testing.assert_close(found(function, args)(*args)[0], want)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone().resize_(15, 2),
        lambda x: x.clone().resize_as_(torch.ones(3, 10)) * 2,
        lambda x: x.mT.clone().resize_(6, 5),
        lambda x: x.clone().resize_(2, 4) + 1,
        lambda x: x.mT.clone().resize_(3),
        lambda x: x.sum().resize_(1, 1),
        lambda x: x.clone().resize_(0, 3),
    ],
)
def test_resize_takes_what_lies_first_in_memory(function: Callable[[Tensor], Tensor]) -> None:
    check(function, (torch.randn(2, 3, 5),))


def test_resize_to_more_than_there_is_is_refused() -> None:
    with pytest.raises(ExportError, match="resize_ gives no more elements than there are: others hold nothing"):
        to_graphs(lambda x: x.clone().resize_(31), (torch.randn(2, 3, 5),))
    with pytest.raises(CaptureError, match=r"resize_ with torch\.channels_last is not supported"):
        to_graphs(lambda x: x.clone().resize_(1, 2, 3, 5, memory_format=torch.channels_last), (torch.randn(2, 3, 5),))
