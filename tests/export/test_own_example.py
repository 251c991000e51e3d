"""Programs that would not take the example that they were captured with are refused, and so is any other call that the
program does not mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from hardtack.exporter import RangeError, to_graphs
from hardtack.exporter.reference import ReferenceFailure
from tests.export.checks import check, eager, ours

B = Dim("B")
ROWS = "dimension 0 of input x"
SMALL = (
    "declare the dimension of size 1 static, or give an example in which no dynamic size is 0 or 1, which torch "
    "captures as 2"
)
MORE = "give an example of 3 or more, or declare it static if it is always"


def refusal(function: Callable[..., Any], args: tuple[Any, ...], dynamic: Any, **how: Any) -> tuple[str, str]:
    """(what, fix) of the RangeError."""
    with pytest.raises(RangeError) as caught:
        to_graphs(function, args, how.get("kwargs"), dynamic, how.get("strict", False))
    what = caught.value.what
    assert what.startswith("the program does not take its own example: ")
    assert caught.value.fix is not None
    return what.removeprefix("the program does not take its own example: "), caught.value.fix


@pytest.mark.parametrize("dim", [B, Dim.DYNAMIC, Dim.AUTO])
@pytest.mark.parametrize("strict", [False, True])
def test_a_mask_of_one_row_beside_two(dim: Any, strict: bool) -> None:
    """It is captured as one of two rows, which makes both sizes one symbol."""
    found = refusal(lambda x, mask: x * mask, (torch.ones(2, 5), torch.ones(1, 5)), ({0: dim}, {0: dim}), strict=strict)
    assert found == (f"dimension 0 of input mask must be 2 beside {ROWS}, which is 2, and is 1", SMALL)


def test_a_mask_of_one_row_that_is_declared_static_is_broadcast() -> None:
    args = torch.randn(2, 5), torch.randn(1, 5)
    check(lambda x, mask: x * mask, args, ({0: Dim.DYNAMIC}, {}), [(torch.randn(3, 5), args[1])])


def test_sizes_that_the_example_has_unequal() -> None:
    what, fix = refusal(lambda x, y: torch.cat([x, y]), (torch.ones(2, 4), torch.ones(3, 4)), ({0: B}, {0: B}))
    assert what == f"dimension 0 of input y must be 2 beside {ROWS}, which is 2, and is 3"
    assert fix == "give an example in which the sizes agree, or declare each by a Dim of its own"


def test_sizes_of_keyword_arguments_and_of_a_dict() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, *, other: dict[str, torch.Tensor]) -> torch.Tensor:
            return x + other["b"]

    kwargs = {"other": {"b": torch.ones(1, 4)}}
    shapes = {"x": {0: Dim.DYNAMIC}, "other": {"b": {0: Dim.DYNAMIC}}}
    what, fix = refusal(Model().eval(), (torch.ones(2, 4),), shapes, kwargs=kwargs)
    assert what == f"dimension 0 of input other_b must be 2 beside {ROWS}, which is 2, and is 1"
    assert fix == SMALL


@pytest.mark.parametrize(("size", "function"), [(1, lambda x: x[-12:2] * 2), (0, lambda x: x.max(0)[0])])
def test_a_lower_bound(size: int, function: Callable[..., Any]) -> None:
    least = size + 1
    assert refusal(function, (torch.ones(size, 4),), ({0: Dim.DYNAMIC},)) == (
        f"{ROWS} must be {least} or more, and is {size}",
        f"give an example of {least} or more, or declare it static if it is always {size}",
    )
    check(function, (torch.randn(least, 4),), ({0: Dim.DYNAMIC},))


@pytest.mark.parametrize("dim", [B, Dim.DYNAMIC, Dim.AUTO])
def test_a_size_that_becomes_another_constant(dim: Any) -> None:
    assert refusal(lambda x: x[1:].relu(), (torch.ones(1, 4),), ({0: dim},)) == (
        f"{ROWS} was captured as 2 in place of 1, and the program holds for no other size",
        f"{MORE} 1",
    )
    check(lambda x: x[1:].relu(), (torch.randn(3, 4),), ({0: dim},), [(torch.randn(5, 4),)])


@pytest.mark.parametrize("size", [0, 1])
def test_a_view_that_holds_for_two_rows_alone(size: int) -> None:
    assert refusal(lambda x: x.view(2, -1), (torch.ones(size, 4),), ({0: Dim.AUTO},)) == (
        f"{ROWS} was captured as 2 in place of {size}, and the program holds for no other size",
        f"{MORE} {size}",
    )


def test_a_condition_names_its_sizes() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() if 2 * x.shape[0] < y.shape[0] + 1 else y.sum()

    args = torch.ones(1, 4), torch.ones(3, 4)
    assert refusal(forward, args, ({0: Dim.AUTO}, {0: Dim.AUTO})) == (
        f"it needs s1 + 1 <= 2*s0, but s0 = 1 ({ROWS}), s1 = 3 (dimension 0 of input y)",
        "give an example for which this holds, without dynamic sizes of 0 and 1, which torch captures as 2, or declare "
        "these dimensions static",
    )


def test_an_integer_of_1() -> None:
    what, fix = refusal(lambda x, n: x * 2 if n > 1 else x, (torch.ones(5), 1), ({}, Dim.DYNAMIC))
    assert what == "input n must be 2 or more, and is 1"
    assert fix == "give an example of 2 or more, or declare it static if it is always 1"


def _product(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n


def _product_of_rows(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n if x.shape[0] == n else x


def _product_of_twice_the_rows(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n if x.shape[0] * 2 == n else x


def _product_of_three(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n if n == 3 else x


@pytest.mark.parametrize(
    ("function", "n", "dims", "needs"),
    [
        (_product, 3, (B, B), None),
        (_product, 3, (Dim.DYNAMIC, Dim.DYNAMIC), None),
        (_product_of_rows, 3, (B, B), "input n: B_1 == B"),
        (_product_of_rows, 3, (Dim.DYNAMIC, Dim.DYNAMIC), "input n: s1 == s0"),
        (_product_of_twice_the_rows, 6, (Dim.DYNAMIC, Dim.DYNAMIC), "input n: s1 == 2*s0"),
        (_product_of_three, 3, (Dim.AUTO, Dim.AUTO), "input n: s1 == 3"),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_integers_are_what_the_caller_gives(
    function: Callable[..., Any], n: int, dims: tuple[Any, Any], needs: str | None, first: bool
) -> None:
    """An integer that is a size, or a number, in the program was taken from there: another one made no difference."""
    turned = (lambda n, x: function(x, n)) if first else function

    def call(x: torch.Tensor, k: int) -> tuple[Any, ...]:
        return (k, x) if first else (x, k)

    x = torch.randn(3, 2)
    exported = check(turned, call(x, n), call({0: dims[0]}, dims[1]))  # type: ignore[arg-type]
    if needs is None:
        (got,), (want,) = ours(exported, call(x, 5)), eager(turned, call(x, 5))
        torch.testing.assert_close(got, want)
        return
    with pytest.raises(ReferenceFailure) as caught:
        ours(exported, call(x, 5))
    assert "guard" in str(caught.value) or "expected" in str(caught.value)
    if not first:
        assert needs in str(caught.value)
