"""Sizes for which an op has no result: a condition on the inputs refuses them; for others the result is eager's.

torch traces with sizes from 2 on, and takes for granted what holds from there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.codegen.ir.expr import sym
from hardtack.codegen.ir.graph import Origin, TensorType
from hardtack.codegen.ir.types import DType
from hardtack.exporter import CaptureError, RangeError, to_graphs
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.reference import ReferenceFailure
from tests.export.checks import Called, assert_same, check, eager, entry, ours
from tests.support.torch_versions import refused_before

OPS: list[tuple[Any, tuple[int, ...], int]] = [
    (lambda x: x.diagonal(1), (0, 0), 1),
    (lambda x: x.diagonal(-1), (0, 9), 1),
    (lambda x: x.diagonal(), (0, 1), 1),
    (lambda x: x.mT.diagonal(2), (0, 3), 5),
    (lambda x: torch.zeros(x.shape[0] - 2, 3) + x.sum(), (0, 3), 4),
    (lambda x: torch.arange(1, x.shape[0]), (0, 3), 3),
    (lambda x: x[1:], (0, 3), 1),
    (lambda x: x[1:-1:2], (0, 3), 2),
    (lambda x: torch.diff(x, dim=0), (0, 3), 1),
    (lambda x: x.narrow(0, 1, 2), (0, 3), 3),
    (lambda x: x.unfold(0, 3, 2), (0, 3), 3),
    (lambda x: x.unfold(0, 1, 1), (0, 3), 1),
    (lambda x: F.pad(x, (-1, 0)), (3, 0), 2),
    (lambda x: F.pad(x, (-2, 1)), (3, 0), 3),
    (lambda x: x.topk(2, 0)[0], (0, 3), 3),
    (lambda x: F.interpolate(x, scale_factor=0.5, mode="linear"), (1, 2, 0), 2),
    (lambda x: F.interpolate(x, size=4), (1, 0, 2), 1),
    (nn.Conv1d(2, 3, 3), (1, 2, 0), 3),
    (nn.Conv1d(2, 3, 3, padding=1), (1, 2, 0), 1),
    (nn.Conv2d(2, 3, (2, 1), 3, padding=1), (1, 2, 0, 4), 1),
    (nn.ConvTranspose1d(2, 3, 3, padding=1), (1, 2, 0), 1),
    (nn.ConvTranspose2d(2, 3, 2, 3, padding=1), (1, 2, 0, 4), 2),
    (lambda x: F.avg_pool2d(x, (3, 1)), (1, 2, 0, 4), 3),
    (lambda x: F.max_pool2d(x, 2, return_indices=True), (0, 2, 4, 4), 0),
    (nn.GRU(3, 4), (0, 2, 3), 1),
    (nn.GroupNorm(2, 4), (0, 4, 3), 0),
    (lambda x: x.index_fill(0, torch.arange(1), 2.0), (0, 0), 0),
]
"""A module, the shape of its input with 0 for each dynamic dim, and the size from which on it must run: torch asks for
more than eager needs of some.
"""


@pytest.mark.parametrize(("module", "shape", "least"), OPS)
def test_sizes_without_a_result(module: Callable[..., Any], shape: tuple[int, ...], least: int) -> None:
    def call(size: int) -> tuple[torch.Tensor]:
        return (torch.randn([n or size for n in shape]),)

    module = module.eval() if isinstance(module, nn.Module) else module
    exported = to_graphs(module, call(8), None, ({d: Dim.DYNAMIC for d, n in enumerate(shape) if n == 0},))
    for size in range(7):
        x = call(size)
        if _runs(module, *x) and (size >= least or _runs(partial(ours, exported), x)):
            assert_same(ours(exported, x), eager(module, x))
        else:
            with pytest.raises(ReferenceFailure, match=r"guard .* fails|expected \d+ to"):
                ours(exported, x)


def _runs(function: Callable[..., Any], *args: Any) -> bool:
    try:
        function(*args)
    except (RuntimeError, ValueError, IndexError, ReferenceFailure):
        return False
    return True


def test_a_size_that_is_what_is_left() -> None:
    """Too large a size is refused as a small one is."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, torch.zeros(10 - x.shape[0], 3)])

    exported = check(forward, (torch.randn(8, 3),), ({0: Dim.DYNAMIC},), [(torch.randn(4, 3),)])
    with pytest.raises(ReferenceFailure, match=r"guard .* fails|expected \d+ to"):
        ours(exported, (torch.randn(11, 3),))


def test_pixels_in_pairs() -> None:
    exported = check(
        lambda x: F.pixel_unshuffle(x, 2), (torch.randn(1, 1, 8, 4),), ({2: Dim.DYNAMIC},), [(torch.randn(1, 1, 6, 4),)]
    )
    with pytest.raises(ReferenceFailure, match=r"guard .* fails"):
        ours(exported, (torch.randn(1, 1, 7, 4),))


def test_sizes_that_the_model_gives_as_numbers_stay_numbers() -> None:
    """torch makes s0 // (s0 // 2) of the 2 in view(-1, 2, 1), which no elements turn into 0 // 0."""

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, columns = x.view(-1, 2, 1), x.view(-1, 1, 2)
        return rows, (rows @ columns).sum(0), x.unflatten(0, (-1, 4)) * 2, x.reshape(1, -1, 1, 4).sum(1)

    others = [(torch.randn(n),) for n in (0, 4, 12)]
    exported = check(forward, (torch.randn(8),), ({0: Dim.DYNAMIC},), others)
    graph = entry(exported).graph
    assert [str(graph.types[o]) for o in graph.outputs] == [
        "f32[s0//2, 2, 1]",
        "f32[2, 2]",
        "f32[s0//4, 4]",
        "f32[1, 1, 4]",
    ]


def test_a_size_that_a_condition_fixes_is_no_literal() -> None:
    """n // 2 == 1 is what torch asks of this example; the program ran for n = 4, and its results had n = 2's shape."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.mT.clone()
        w = y.tensor_split(2, -1)[0].mT.reshape(-1)
        w.add_(w)
        return w, y

    def image(n: int) -> tuple[torch.Tensor]:
        return (torch.randn(1, 2, n, 1).to(memory_format=torch.channels_last),)

    exported = check(function, image(2), ({2: Dim.DYNAMIC},))
    with pytest.raises(ReferenceFailure, match=r"guard .* == 1 fails"):
        ours(exported, image(4))


def test_a_size_that_would_be_negative() -> None:
    graph = entry(to_graphs(lambda x: x.diagonal(1), (torch.randn(9, 5),), None, ({1: Dim.DYNAMIC},))).graph
    assert [b.sym.lo for b in graph.syms] == [1]


def test_the_sentence_of_a_negative_size() -> None:
    """Of two sizes no lowest one follows: the condition itself is said."""
    b = Builder()
    b.origin = Origin(op="aten.diagonal")
    b.require_sizes(TensorType(DType.F32, (sym("n") - sym("m"),)))
    assert [g.text for g in b.guards] == ["aten.diagonal has a result: m <= n"]


@refused_before(2, 13, RangeError, "takes the number of classes for the example's")
@pytest.mark.parametrize("shape", [(2, 0, 3), (0,)])
def test_cross_entropy_over_no_classes(shape: tuple[int, ...]) -> None:
    """Eager gives NaN; torch.export divides n * classes by classes, so the range begins at one."""
    dim = shape.index(0)

    def call(classes: int) -> tuple[torch.Tensor]:
        return (torch.randn([n or classes for n in shape]),)

    exported = check(
        lambda x: F.cross_entropy(x, x.softmax(dim)), call(5), ({dim: Dim.DYNAMIC},), [call(n) for n in (1, 2, 9)]
    )
    with pytest.raises(ReferenceFailure, match=r"is 0, expected 1 to None"):
        ours(exported, (torch.randn(shape),))
    check(lambda x: F.cross_entropy(x, x.softmax(dim), reduction="none"), call(5), ({dim: Dim.DYNAMIC},))


def test_a_stride_divided_by_a_size_that_may_be_none() -> None:
    """Of x.unflatten(0, (-1, 2)) a stride is n // (n // 2), which is no number where n is 1."""

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.unflatten(0, (-1, 2)).sum(0)
        z = y.flatten()
        y[:1].mul_(0.5)
        return y, z

    dims = ({0: 2 * Dim("half", max=512)},)
    exported = check(forward, (torch.randn(12, 1, 1),), dims, [(torch.randn(n, 1, 1),) for n in (2, 4, 50)])
    with pytest.raises(ReferenceFailure):
        ours(exported, (torch.randn(3, 1, 1),))


def _written(view: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        view(y).exp_().mul_(0.5)
        return y, y + 1

    return forward


VIEWS_OF_ONE = [
    lambda y: y.t().reshape(-1),
    lambda y: y[:, :3].contiguous(),
    lambda y: y[:1].expand(y.shape[0], 4).flatten(),
    lambda y: y.t().ravel(),
    lambda y: y.sum_to_size(1, 4),
]
"""A view of y where y has one row, a copy elsewhere."""


@pytest.mark.sweep(over="traced")
@pytest.mark.parametrize("view", VIEWS_OF_ONE)
@pytest.mark.parametrize("traced", [False, True])
def test_a_view_of_one_row_only_is_written(view: Callable[[torch.Tensor], torch.Tensor], traced: bool) -> None:
    """torch decides between view and copy for sizes from 2 on; no line of the model asks."""
    forward, x = _written(view), (torch.randn(5, 4),)
    program: Any = forward
    if traced:
        program = torch.export.export(Called(forward), x, dynamic_shapes=(({0: Dim.DYNAMIC},),), strict=False)
        exported = to_graphs(program)
    else:
        exported = check(forward, x, ({0: Dim.DYNAMIC},), [(torch.randn(3, 4),)])
    assert_same(ours(exported, (torch.randn(7, 4).fill_(0.25),)), eager(forward, (torch.full((7, 4), 0.25),)))
    with pytest.raises(ReferenceFailure, match=r"guard .* != 1 fails"):
        ours(exported, (torch.randn(1, 4),))


WRITES_FOR_SOME = [
    lambda v: v.masked_fill_(v > 0, 3),
    lambda v: v.masked_fill_(v < 0, 3),
    lambda v: v.clamp_(-2.5, 2.5),
    lambda v: v.abs_(),
]
"""Writes that change some numbers only: of a row of two, perhaps none."""


@pytest.mark.parametrize("write", WRITES_FOR_SOME)
def test_a_view_of_one_row_only_is_written_for_some_numbers(write: Callable[[torch.Tensor], Any]) -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.t() * 1
        write(y[1:].ravel())
        return y, y + 1

    exported = check(forward, (torch.randn(5, 3),), ({0: Dim.DYNAMIC},), [(torch.randn(3, 3),)])
    with pytest.raises(ReferenceFailure, match=r"guard .* != 1 fails"):
        ours(exported, (torch.randn(1, 3),))


@pytest.mark.parametrize("other", [torch.relu, lambda x: -F.relu(-x), lambda x: x.clamp(-2.5, 2.5)])
def test_a_branch_for_one_row_that_differs_for_some_numbers(other: Callable[[torch.Tensor], torch.Tensor]) -> None:
    exported = check(lambda x: x * 1 if x.shape[0] > 1 else other(x), (torch.randn(5, 3),), ({0: Dim.DYNAMIC},))
    with pytest.raises(ReferenceFailure, match=r"guard .* fails"):
        ours(exported, (torch.randn(1, 3),))


def test_a_view_of_one_column_of_a_channels_last_input_is_written() -> None:
    """The sizes tried are laid out as the example is: row-major, the module differs from the program at every size."""
    x = torch.randn(5, 1, 2).permute(1, 2, 0)
    exported = check(_written(torch.ravel), (x,), ({2: Dim.DYNAMIC},), [(torch.randn(3, 1, 2).permute(1, 2, 0),)])
    with pytest.raises(ReferenceFailure, match=r"guard .* != 1 fails"):
        ours(exported, (torch.randn(1, 1, 2).permute(1, 2, 0),))


def test_a_view_of_any_size_is_written_for_one_row_too() -> None:
    """What is a view for all sizes needs no condition: the program is tried with one row."""
    check(_written(lambda y: y.reshape(-1)), (torch.randn(5, 4),), ({0: Dim.DYNAMIC},), [(torch.randn(1, 4),)])


def test_the_sentence_of_a_view_of_one_row_only() -> None:
    with pytest.raises(RangeError) as caught:
        to_graphs(_written(VIEWS_OF_ONE[0]), (torch.randn(5, 4),), None, ({0: Dim("n", min=1)},))
    assert caught.value.what == (
        "the declared range of n (from 1) would be narrowed: the program needs n != 1, but n = 1 fails"
    )


@pytest.mark.sweep(over="file")
@pytest.mark.parametrize("file", ["<stdin>", "<string>", "<torch_package_0>.model.py", "/somewhere/model.py"])
@pytest.mark.parametrize("condition", ["x.shape[0] == 1", "2 > x.size(0)", "min(x.shape[0], 2) == 1"])
def test_conditions_of_code_without_a_file(file: str, condition: str) -> None:
    """What is typed at a prompt asks, too: for size 1 the other branch ran, since torch alone seemed to ask."""
    space: dict[str, Any] = {}
    exec(compile(f"def forward(x):\n    return x + 1 if {condition} else x - 1\n", file, "exec"), space)
    exported = to_graphs(space["forward"], (torch.randn(9, 3),), None, ({0: Dim.DYNAMIC},))
    x = torch.randn(2, 3)
    assert_same(ours(exported, (x,)), (x - 1,))
    with pytest.raises(ReferenceFailure, match=r"guard .* fails"):
        ours(exported, (torch.randn(1, 3),))


def test_a_size_that_is_broadcast_because_it_is_one() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = x.diagonal(-1)  # min(1, n - 1) elements
        return y + one, torch.where(one > 0, y, one), one.expand(3, 2), x[:, 0] * one

    exported = to_graphs(f, (torch.randn(9, 1), torch.randn(2)), None, ({0: Dim("n")}, None))
    for n in range(6):
        args = torch.randn(n, 1), torch.randn(2)
        if n >= 2:
            assert_same(ours(exported, args), f(*args))
        else:
            with pytest.raises(ReferenceFailure, match="expected 2 to"):
                ours(exported, args)


def test_a_size_of_at_most_one_that_is_not_broadcast_may_be_none() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = x.diagonal(-1)
        return one + one, one * one.expand(3, -1), y + one

    exported = to_graphs(f, (torch.randn(9, 1), torch.randn(1)), None, ({0: Dim.DYNAMIC}, None))
    for n in (1, 2, 5):
        args = torch.randn(n, 1), torch.randn(1)
        assert_same(ours(exported, args), f(*args))


def test_attention_is_not_tried_with_other_numbers_of_keys_and_values() -> None:
    """torch's fused kernel reads beyond the shorter ones, or, in 2.11, ends the process that exports."""
    refused: set[tuple[int, int]] = set()

    class Attention(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            try:
                if not torch.compiler.is_exporting():  # torch 2.13 would note that the two are equal
                    F.scaled_dot_product_attention(q, k, v)
            except ValueError:
                refused.add((k.shape[2], v.shape[2]))
                raise
            return v * 2 if v.shape[2] != 1 else v + v

    heads = [torch.randn(2, 4, n, 8) for n in (5, 11, 11)]
    to_graphs(Attention().eval(), tuple(heads), {}, ({}, {2: Dim.DYNAMIC}, {2: Dim.DYNAMIC}), False)
    assert refused == {(11, 1)}


def test_convolutions_of_a_row_are_tried_with_other_strides_without_onednn() -> None:
    """Its kernel ends the process for these strides of dimensions of size 1."""

    class Row(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(1000, 8, 1, stride=3, padding=2, dilation=2, groups=2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.conv(x)
            y.reshape(-1).add_(1)  # a view or a copy by those strides, so that both are tried
            return y

    with pytest.raises(CaptureError, match="a view or a copy by the strides of dimensions of size 1"):
        to_graphs(Row().eval(), (torch.randn(1, 1000, 1),))


def test_views_of_attention_are_tried_in_the_layout_of_its_kernel() -> None:
    """A view that torch traces there fails where attention runs as products, as it does for one token and no keys."""

    class Attention(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            heads = x.unflatten(-1, (4, 8)).transpose(1, 2)
            out = F.scaled_dot_product_attention(heads, heads, heads, is_causal=bool(x.shape[1] > 1))
            return out.transpose(1, 2).reshape(*x.shape[:2], -1).contiguous()

    example, dynamic = torch.randn(2, 6, 32), ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)
    others = [(torch.randn(rows, tokens, 32),) for rows, tokens in ((1, 1), (1, 5), (3, 1), (4, 9))]
    check(Attention().eval(), (example,), dynamic, others)
