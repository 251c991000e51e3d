"""Models that ask for the strides of a tensor, or write to what contiguous() gives: refused where strides decide that
are the caller's choice, or that were traced unlike they are in eager mode.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

from hardtack.exporter import CaptureError, to_graphs
from hardtack.exporter.reference import ReferenceFailure
from tests.export.checks import check, ours


def _contiguous_and_written(x: torch.Tensor) -> torch.Tensor:
    y = torch.cat([x, x.flip(0)], -1)
    y.contiguous().mul_(0.5)
    return y


def _by_strides(x: torch.Tensor) -> torch.Tensor:
    y = torch.cat([x, x.flip(0)], -1)
    return y * 2 if y.is_contiguous() else y


def _by_the_first_stride(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.cat([x, x], -1).stride(-1) == 1 else x


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("given", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("function", [_contiguous_and_written, _by_strides, _by_the_first_stride])
def test_questions_about_strides_that_decide_nothing_are_refused(
    function: Callable[[torch.Tensor], torch.Tensor], given: torch.memory_format, strict: bool
) -> None:
    """torch notes nothing of contiguous() where it gives its tensor back, nor of what was asked of strides."""
    with pytest.raises(CaptureError) as caught:
        to_graphs(function, (torch.randn(5, 2, 1, 1).to(memory_format=given),), strict=strict)
    assert caught.value.what == (
        "what forward gives depends on the strides of dimensions of size 1, which are the caller's choice"
    )
    if not strict:
        assert caught.value.where is not None
        assert caught.value.where.source in inspect.getsource(function)
    assert caught.value.fix == "ask for shapes instead of strides, and call .clone() on what is written in place"
    check(function, (torch.randn(5, 2, 3, 1).to(memory_format=given),), None, [], strict=strict)


@pytest.mark.parametrize("strict", [False, True])
def test_a_grey_image_may_be_asked_for_its_strides(strict: bool) -> None:
    """Where both layouts give the same, the module exports."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2 if x.is_contiguous() else x * 2.0
        y.contiguous().relu_()
        return y.reshape(y.shape[0], -1)

    check(function, (torch.randn(2, 1, 6, 6),), strict=strict)


def _contiguous_behind_a_write(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    z = y.contiguous()
    y[:1].sigmoid_()
    return z


def _by_the_last_stride(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.stride(-1) == 1 else x


def _copied_and_written(y: torch.Tensor) -> torch.Tensor:
    z = y.contiguous()
    y[:1].mul_(2)
    return z


def _asked(y: torch.Tensor) -> torch.Tensor:
    return y * 2 if y.is_contiguous() else y + 1


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("use", [_copied_and_written, _asked])
@pytest.mark.parametrize(
    ("op", "name"),
    [
        (lambda x, y: torch.div(x, y, rounding_mode="floor"), "aten.div.Tensor_mode"),
        (torch.copysign, "aten.copysign.Tensor"),
    ],
    ids=["div", "copysign"],
)
def test_strides_that_torch_traces_unlike_eager_are_refused(
    op: Callable[..., torch.Tensor], name: str, use: Callable[[torch.Tensor], torch.Tensor], strict: bool
) -> None:
    """A transposed matrix stays so in eager mode, where torch traces a row-major result: what contiguous() gives
    is a copy then, of which nothing is traced.
    """

    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return use(op((x * 2).t(), y))

    with pytest.raises(CaptureError) as caught:
        to_graphs(forward, (torch.randn(3, 4), torch.tensor(0.5)), strict=strict)
    assert caught.value.what == (
        f"what forward gives depends on the strides of what {name} gives, which is traced with others than in "
        "eager mode"
    )
    assert (
        caught.value.fix == "call .contiguous() on the tensors that it is given, or ask for shapes instead of strides"
    )
    check(lambda x, y: use(op((x * 2).t().contiguous(), y)), (torch.randn(3, 4), torch.tensor(0.5)), strict=strict)


def test_strides_that_are_traced_unlike_eager_and_change_nothing_are_no_matter() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.copysign((x * 2).t(), y)
        z = z if z.is_contiguous() else z.contiguous()
        return z + 1

    check(forward, (torch.randn(3, 4), torch.tensor(-0.5)))


def test_a_part_of_a_dynamic_size_that_is_asked_whether_it_is_contiguous() -> None:
    """It is copied while it is traced, so that no size must be even; a view has a step."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x[:, ::2].flatten()
        return y * 2 if y.is_contiguous() else y + 1

    with pytest.raises(CaptureError, match=r"depends on the strides of what aten\.flatten\.using_ints gives"):
        to_graphs(forward, (torch.randn(5, 8),), None, ({1: Dim.DYNAMIC},))
    check(forward, (torch.randn(5, 8),))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("function", [_contiguous_behind_a_write, _by_the_last_stride])
def test_a_transposed_example_that_is_asked_for_its_strides_is_refused(
    function: Callable[[torch.Tensor], torch.Tensor], strict: bool
) -> None:
    """torch traces the row-major tensor that callers will give, of which contiguous() is no copy."""
    x = torch.randn(3, 4).t()
    with pytest.raises(CaptureError) as caught:
        to_graphs(function, (x,), strict=strict)
    assert caught.value.what == (
        "what forward gives depends on the strides of an example that is not row-major, as the program takes it"
    )
    assert strict or caught.value.where is not None
    assert caught.value.fix == (
        "call .contiguous() on the example, or ask for shapes, not strides, and .clone() what is written in place"
    )
    check(function, (x.contiguous(),), strict=strict)
    check(lambda x: _contiguous_behind_a_write(x) if x.dim() > 2 else x.contiguous() * 2, (x,), strict=strict)


def test_torch_forgets_how_an_export_asked_for_layouts() -> None:
    """Its bytecode analysis remembers the methods of tensors for as long as a process lives."""
    program = """
import torch
from hardtack.exporter import to_graphs
to_graphs(lambda x: x * 2 if x.is_contiguous() else x, (torch.randn(3, 4),))
from torch._dynamo.variables.tensor import all_tensor_attrs
assert all_tensor_attrs["is_contiguous"] is torch._C.TensorBase.is_contiguous, all_tensor_attrs["is_contiguous"]
assert "is_contiguous" not in torch.Tensor.__dict__
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    "function",
    [lambda x: x + sum(x[:, 1:].flip(-1).stride()), lambda x: x * x[:, :1].expand_as(x).view_as(x).stride(0)],
)
def test_a_number_made_of_strides_is_tried_for_one_row(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """torch answers with the stride of many rows; that of a single one is anything."""
    exported = check(function, (torch.randn(5, 3),), ({0: Dim.DYNAMIC},))
    with pytest.raises(ReferenceFailure, match=r"guard .* fails"):
        ours(exported, (torch.randn(1, 3),))


def test_places_in_what_is_traced_with_other_strides_are_refused() -> None:
    """logsigmoid of a transposed matrix is row-major in eager mode, and traced as transposed."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.logsigmoid(x.mT).as_strided((2,), (1,)) * 2

    with pytest.raises(CaptureError) as caught:
        to_graphs(function, (torch.randn(5, 3),))
    assert caught.value.what == (
        "what forward gives depends on the strides of what aten.log_sigmoid.default gives, which is traced with "
        "others than in eager mode"
    )
    check(lambda x: F.logsigmoid(x).as_strided((2,), (1,)) * 2, (torch.randn(5, 3),))


@pytest.mark.parametrize(
    "op",
    [lambda x: x + x[:1], lambda x: x.argsort(-1).float(), lambda x: x.unfold(0, 2, 1)[..., 0] + 0],
    ids=["add", "argsort", "unfold"],
)
def test_strides_of_one_column_that_torch_traces_unlike_eager_are_refused(
    op: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Of a dynamic size torch traces a result's stride in a dimension of size 1 as 1, where eager has that of what the
    result was made of. The strides were the same, but for those, and the difference passed for the usual rounding.
    """

    def forward(x: torch.Tensor) -> torch.Tensor:
        made = op(x.mT.contiguous())
        return made + sum(made.stride())

    with pytest.raises(CaptureError) as caught:
        to_graphs(forward, (torch.randn(8, 1, 5),), dynamic_shapes=({0: Dim("n")},))
    assert caught.value.what == "what forward asks of strides was answered otherwise than in eager mode"
    assert caught.value.where is not None
    assert caught.value.where.source == "return made + sum(made.stride())"
    assert caught.value.fix == "ask for shapes instead of strides, and call .clone() on what is written in place"


@pytest.mark.parametrize("dims", [(2,), (2, 3)])
def test_sizes_at_which_an_image_is_laid_out_twice(dims: tuple[int, ...]) -> None:
    """An image of one pixel is row-major and channels_last at once, and eager mode makes channels_last of it what was
    traced as row-major: ravel() is a copy then. The program is not for that size.
    """

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([x, x.roll(1, 0)], -1)
        y.ravel().add_(1)
        return y

    shape = (4, 3, 5, 6 if len(dims) > 1 else 1)
    exported = check(
        forward, (torch.randn(shape),), (dict.fromkeys(dims, Dim.DYNAMIC),), [(torch.randn(4, 3, 2, shape[3]),)]
    )
    with pytest.raises(ReferenceFailure):
        ours(exported, (torch.randn(4, 3, *(1 for _ in dims), *shape[2 + len(dims) :]),))
