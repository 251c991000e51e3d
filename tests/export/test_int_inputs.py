"""Python ints that a call may change: what is computed from them, up to what values, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from hardtack.exporter import CaptureError, InputSpecError, UnsupportedOpError, to_graphs
from hardtack.exporter.reference import ReferenceFailure
from tests.export.checks import Called, assert_same, check, eager, entry, ours

X = torch.arange(3)
LARGEST = 2**53


@pytest.mark.parametrize(
    ("function", "most"),
    [
        (lambda x, k: x + (k * k) % 7, math.isqrt(2**61)),
        (lambda x, k: x * (k**3 // 5), 2**20),
        (lambda x, k: x + (k * x.shape[0]) % 11, LARGEST),
        (lambda x, k: x + (k + 5) // 2, LARGEST),
        (lambda x, k: x * (k - 7), LARGEST),
    ],
)
def test_products_stay_within_64_bits(function: Callable[..., Any], most: int) -> None:
    """k * k of 2**33 is 4 of 7, not what is left of it in 64 bits."""
    dims = ({0: Dim("n")}, Dim("k"))
    exported = check(function, (X, 9), dims, [(torch.arange(5), 0), (X, 1), (X, 1000)])
    largest = most if most < LARGEST else LARGEST - 1
    args = (X, largest)
    assert torch.equal(ours(exported, args)[0], eager(function, args)[0])
    with pytest.raises(ReferenceFailure):
        ours(exported, (X, 2 * most))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, k: x + math.ceil(k * 0.5),
        lambda x, k: x + math.floor(k / 3),
        lambda x, k: x + round(k / 2),
        lambda x, k: x << math.ceil(k * 0.5) % 8,
    ],
)
def test_floats_of_large_ints(function: Callable[..., Any]) -> None:
    """Beyond 2**53 floating point has not every int, and ceil(k * 0.5) is not that of whole numbers."""
    exported = check(function, (X, 5), (None, Dim.DYNAMIC), [(X, 0), (X, 1), (X, LARGEST - 1), (X, LARGEST)])
    with pytest.raises(ReferenceFailure, match=r"^s0 is 9007199254740993, expected 0 to 9007199254740992$"):
        ours(exported, (X, LARGEST + 1))


def test_a_quotient_of_ints_is_rounded_once() -> None:
    """1 / (2**53 + 1) is less than 1 / 2**53, which is what two roundings make of it."""
    x = torch.tensor([3.0, 7.0], dtype=torch.float64)

    def function(x: torch.Tensor, k: int) -> torch.Tensor:
        return x * (1 / (k + 1))

    exported = check(function, (x, 5), (None, Dim.DYNAMIC), [(x, 0)])
    assert torch.equal(ours(exported, (x, LARGEST - 1))[0], eager(function, (x, LARGEST - 1))[0])
    assert [g.text for g in entry(exported).graph.guards] == ["s0 + 1 <= 9007199254740992"]
    with pytest.raises(ReferenceFailure, match="s0 \\+ 1 <= 9007199254740992"):
        ours(exported, (x, LARGEST))
    assert not entry(check(lambda x, k: x * (k / 3), (x, 5), (None, Dim.DYNAMIC))).graph.guards


@pytest.mark.parametrize(("example", "dim"), [(LARGEST + 1, Dim.DYNAMIC), (3, Dim("k", max=LARGEST + 1))])
def test_an_int_that_is_too_large(example: int, dim: Any) -> None:
    with pytest.raises(InputSpecError) as caught:
        to_graphs(lambda x, k: x * k, (X, example), None, (None, dim))
    assert caught.value.what == "k may be 9007199254740993, and a dynamic int is at most 2**53"
    assert caught.value.fix == "give it as a tensor of rank 0, or as a constant: leave it out of dynamic_shapes"


def test_an_open_range_is_no_smaller_for_a_product() -> None:
    """The limit of a product is a guard, and no reason to refuse Dim("k")."""
    graph = entry(check(lambda x, k: x * (k * k), (X, 3), (None, Dim("k")))).graph
    assert [g.text for g in graph.guards] == ["k*k <= 2305843009213693952"]
    assert not entry(check(lambda x, k: x * k + k // 2, (X, 3), (None, Dim("k")))).graph.guards


@pytest.mark.parametrize(
    "function",
    [
        lambda x, k: x + torch.linspace(0, k, 3),
        lambda x, k: x + torch.linspace(k, -1, 3),
        lambda x, k: x + torch.linspace(k / 4, 2 * k, 3, dtype=torch.float64),
        lambda x, k: x + torch.linspace(k, 5, 1),
    ],
)
def test_linspace_between_ints_that_are_given(function: Callable[..., Any]) -> None:
    check(function, (X, 4), (None, Dim.DYNAMIC), [(X, 0), (X, 1), (X, 7), (X, 1000)])


def test_limits_of_integers_by_a_number() -> None:
    """torch takes them in the integers' dtype, so they are made whole, and hold for the example's number only."""
    x = torch.arange(-4, 4, dtype=torch.int32)
    hardtanh = torch.nn.functional.hardtanh
    exported = check(lambda x, k: hardtanh(x, -(k % 3), k % 3), (x, 5), (None, Dim.DYNAMIC), [(x, 8)])
    with pytest.raises(ReferenceFailure, match=r"-\(PythonMod\(s0, 3\)\) == -2"):
        ours(exported, (x, 3))


INTEGERS = [2**24 + 1, -(2**24) - 1, 2**30 + 1, 2, 1, 0]
FLOATS = [0.1, 1.7, 9.0, -1.0, math.nan]


@pytest.mark.parametrize("threshold", [(1.7, 7.9), (0.1, 0.7), (-1.5, -2.5)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_thresholds(dtype: torch.dtype, threshold: tuple[float, float]) -> None:
    """Numbers beside integers lose their fraction, and integers beyond 2^24 no digit; 16 bits are compared as f32."""
    module = torch.nn.Threshold(*threshold).eval()
    x = torch.tensor(FLOATS if dtype.is_floating_point else INTEGERS).to(dtype)
    (found,) = ours(to_graphs(module, (x,)), (x,))
    assert_same([found], [module(x)], rtol=0, atol=0)


def test_a_threshold_that_is_given() -> None:
    class Threshold(torch.nn.Module):
        def forward(self, x: torch.Tensor, k: int) -> torch.Tensor:
            return torch.nn.functional.threshold(x, k * 0.5, k + 0.25)

    exported = to_graphs(Threshold().eval(), (X, 9), None, (None, Dim.AUTO), strict=True)
    for k in (9, 1, 8589934597):
        assert_same(ours(exported, (X, k)), [Threshold()(X, k)], rtol=0, atol=0)


@pytest.mark.parametrize("number", [math.inf, math.nan], ids=str)
def test_integers_have_no_infinite_threshold(number: float) -> None:
    with pytest.raises(UnsupportedOpError, match=f"the scalar {number} cannot be converted to i64"):
        to_graphs(torch.nn.Threshold(number, 1).eval(), (X,))


def test_roots_are_the_nearest_float64() -> None:
    """MKL's, which torch takes on Intel's CPUs, are not: its root of 2^53 ends in 154, the nearest in 156."""
    x = torch.rand(10_000, dtype=torch.float64)
    (found,) = ours(to_graphs(Called(torch.sqrt).eval(), (x,)), (x,))
    assert found.tolist() == [math.sqrt(v) for v in x.tolist()]


def test_a_slice_by_a_comparison() -> None:
    """torch refuses it in C, where the last line that Python knows is one of ours."""
    with pytest.raises(CaptureError) as caught:
        to_graphs(lambda x, k: x[(k == 3) :], (X, 2), None, (None, Dim("k")))
    assert caught.value.what == (
        "tracing failed with TypeError: slice indices must be integers or None or have an __index__ method"
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_a_tensor_made_of_a_number_is_a_tensor(dtype: torch.dtype) -> None:
    """torch makes one of the weight of lerp; as a number, it took float64 to float32."""

    def function(x: torch.Tensor, k: int) -> tuple[torch.Tensor, ...]:
        return torch.lerp(x, x * 2, k), torch.lerp(x, x * 2, k / 4), torch.lerp(x, x * 2, x.shape[0])

    x = torch.linspace(-1, 1, 3).to(dtype)
    check(function, (x, 4), ({0: Dim.DYNAMIC}, Dim.DYNAMIC), [(x, 0), (x, 1), (x[:2], 2)])


def test_tensors_of_numbers_are_promoted_like_tensors() -> None:
    def function(x: torch.Tensor, k: int) -> torch.Tensor:
        made = torch.full((), k / 4, dtype=torch.float64) - 1
        return made * torch.full((), k / 2, dtype=torch.float32) + x

    check(function, (X, 3), (None, Dim.DYNAMIC), [(X, 0), (X, 9)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_number_of_the_run_is_rounded_to_a_half_type_where_a_known_one_is(dtype: torch.dtype) -> None:
    """By each op but a product or quotient behind `*` and `/`: it was computed with in f32 everywhere."""

    def function(x: torch.Tensor, k: int) -> tuple[torch.Tensor, ...]:
        n = 0.1 * k
        return n - x, x - n, x + n, n * x, x * n, x / n, n / x, x.fmod(n), x.remainder(n), x // n, x.clamp(min=n), x > n

    x = torch.randn(500, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    check(function, (x, 9), (None, Dim.DYNAMIC), [(x, 7), (x, 13)], atol=0)
