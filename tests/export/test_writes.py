"""Writes in place through views: the Graph against eager, static and with each dimension dynamic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.exporter import CaptureError, MutationError, UnsupportedOpError, to_graphs
from hardtack.exporter.reference import ReferenceFailure, outputs, run
from tests.export.checks import assert_same, check, eager, entry, feed, kinds, ours
from tests.support.torch_versions import refused_before

ANY = Dim.DYNAMIC
X = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))

WRITES = [
    "y.diagonal().zero_()",
    "y.diagonal(1).add_(2)",
    "y.diagonal(-1, 0, 1).copy_(y.diagonal(1)[: y.diagonal(-1).shape[0]].clone())",
    "y.t()[1:].diagonal().fill_(3)",
    "y[1:].diagonal().copy_(y.sum(1)[: y[1:].diagonal().shape[0]])",
    "y.diagonal()[1:].mul_(2)",
    "y.diagonal()[y.diagonal() > 0] = 0",
    "y.diagonal().masked_fill_(y.diagonal() > 0, 5.0)",
    "y.diagonal().index_fill_(0, torch.tensor([0, 1]), 5.0)",
    "y[None].diagonal(0, 1, 2).neg_()",
    "y = torch.diagonal_scatter(y, torch.zeros(min(y.shape)))",
    "y.as_strided((2, 2), (6, 1)).zero_()",
    "y.as_strided((4,), (7,)).fill_(1)",
    "torch.as_strided(y, (3,), (2,), 1).add_(1)",
    "y = torch.as_strided_scatter(y, torch.zeros(2), (2,), (3,), 1)",
    "y.unfold(1, 2, 2).mul_(3)",
    "y.unfold(0, 3, 3)[0].zero_()",
    "y.t().unfold(1, 3, 3).select(-1, 1).add_(2)",
    "a, b = y.chunk(2); a.zero_(); b.add_(a)",
    "a, b = y.chunk(2); a.flatten().mul_(2); b.contiguous()[1:].zero_(); a.t().reshape(-1).add_(1)",
    "a, b = y.tensor_split(2, 1); a.flatten().mul_(2); b[0].ravel().neg_()",
    "a = y.split(2, 1); a[0].zero_(); a[1].add_(a[2])",
    "y[1:][1:][:, 1:].t()[0].add_(3)",
    "y.t()[torch.tensor([0, 1])] = 1.0",
    "y[1:].index_put_((torch.tensor([0, 0]),), torch.ones(2, y.shape[1]), accumulate=True)",
    "y.t().masked_fill_(y.t() > 0, -1.0)",
    "z = torch.empty_permuted(y.shape, (1, 0)); z.copy_(y); z[1:].zero_(); y = z + 1",
    "y.squeeze_(); y[1].zero_()",
]


def _marked(bodies: list[str]) -> list[Any]:
    old = refused_before(2, 12, CaptureError, "cannot trace index_fill_ of a view")
    return [pytest.param(b, marks=old) if "index_fill_" in b else b for b in bodies]


def _writer(body: str) -> Any:
    space: dict[str, Any] = {"torch": torch}
    exec("def f(x):\n    y = x.clone()\n    " + "\n    ".join(body.split("; ")) + "\n    return y, x + 1", space)
    return space["f"]


@pytest.mark.sweep(over="dims")
@pytest.mark.parametrize("body", _marked(WRITES))
@pytest.mark.parametrize("dims", [{}, {0: ANY}])
def test_a_view_is_written(body: str, dims: dict[int, Any]) -> None:
    check(_writer(body), (X,), (dims,))


@pytest.mark.parametrize(
    "body", _marked([w for w in WRITES if not {"chunk", "split", "unbind", "shape", "="} & set(w.split())])
)
def test_a_view_of_another_size_is_written(body: str) -> None:
    rows = 3 if "(-1, 0, 1)" in body else 5
    check(_writer(body), (X,), ({0: ANY},), [(torch.randn(rows, 6),)])


@pytest.mark.parametrize("rest", [0, 1, 2])
def test_what_lies_in_no_window_stays(rest: int) -> None:
    """torch's way to write windows back makes it zero."""
    check(_writer("y.unfold(0, 3, 3).mul_(2)"), (torch.randn(6 + rest, 2),), ({0: ANY},), [(torch.randn(10, 2),)])


@pytest.mark.parametrize(("size", "step"), [(2, 3), (3, 1)])
def test_windows_with_gaps_or_in_common(size: int, step: int) -> None:
    with pytest.raises(MutationError) as caught:
        to_graphs(lambda x: x.clone().unfold(0, size, step)[0].zero_(), (X,))
    assert caught.value.what == f"forward writes to windows of unfold(size={size}, step={step}) in place"
    assert caught.value.fix == "work on a clone of the windows, or use windows as wide as their step"


class Ring(nn.Module):
    """A buffer that is written through views of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, 4))
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.seen.sum(0)
        self.seen.diagonal().add_(x)
        self.seen.t()[1:].unfold(0, 3, 3).mul_(0.5)
        self.seen[:, 0].copy_(x)
        return before


def test_states_through_views() -> None:
    exported = to_graphs(Ring(), (torch.randn(4),))
    (state,) = entry(exported).graph.states
    assert state.final is not None
    graph, module, x = entry(exported).graph, Ring(), torch.randn(4)
    values = run(graph, exported.store, feed(graph, (x,)))
    assert_same(outputs(graph, values), [module(x)])
    assert_same([values[state.final]], [module.get_buffer("seen")])


def test_a_diagonal_is_selected() -> None:
    """No copy and no scatter: it fuses with what is around it."""
    assert "put" not in kinds(to_graphs(_writer("y.diagonal(1).mul_(2)"), (X,)))


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        ((4, 6), (6, 1), None),
        ((6, 4), (1, 6), 0),
        ((3, 2), (7, 2), 3),
        ((2, 3, 2), (1, 6, 1), None),
        ((2, 0), (1, 1), 9),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_as_strided_reads_memory(size: Any, stride: Any, offset: int | None, turned: bool) -> None:
    """Of a transposed tensor, too: not its rows, but what lies there."""
    check(lambda x: ((x * 2).t() if turned else x * 2).as_strided(size, stride, offset) + 1, (X,))


def test_as_strided_of_a_part() -> None:
    check(lambda x: (x * 2)[1:3].as_strided((2, 6), (6, 1), 6), (X,))
    with pytest.raises(UnsupportedOpError, match="as_strided stays inside its tensor: 0 <= -6 never holds"):
        to_graphs(lambda x: (x * 2)[1:3].as_strided((2, 6), (6, 1), 0), (X,))


@pytest.mark.parametrize("example", [X.t().contiguous().t(), X[1:], X[:2]])
def test_as_strided_where_the_example_lies_elsewhere(example: torch.Tensor) -> None:
    with pytest.raises(CaptureError) as caught:
        to_graphs(lambda x: x.as_strided((2, 6), (6, 1)), (example,))
    assert caught.value.what == (
        "as_strided reads memory by its place, and an example input is not contiguous or a part of another tensor"
    )
    assert caught.value.where is not None


def test_examples_that_are_views() -> None:
    """torch would ask for the sizes of what they are views of."""
    base = torch.randn(9, 6)
    exported = to_graphs(lambda x, y: (x * 2, y + 1), (base[:5], base[:1].expand(7, 6)), None, ({0: ANY}, {0: ANY}))
    graph = entry(exported).graph
    assert graph.guards == ()
    call = (torch.randn(3, 6), torch.randn(8, 6))
    assert_same(ours(exported, call), eager(lambda x, y: (x * 2, y + 1), call))
    assert set(feed(graph, call)) == {"x", "y"}


DROPPED = nn.Dropout(0.3).eval()


@pytest.mark.parametrize(
    "drop", [DROPPED, lambda y: F.dropout(y, 0.5, training=False), lambda y: F.dropout(y, 0.0, training=True)]
)
def test_dropout_outside_of_training_gives_the_tensor_itself(drop: Any) -> None:
    def written(x: torch.Tensor) -> Any:
        y = x * 2
        z = drop(y)
        y[0].add_(1)
        z[1].mul_(3)
        return z, y, drop(x)

    def in_a_branch(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda t: written(t)[0] * 1, lambda t: t + 1, (x,))

    check(written, (X,))
    check(in_a_branch, (X.abs(),))
    check(lambda x: torch.cond(x.sum() > 0, drop, lambda t: t + 1, (x,)), (X.abs(),))


def expanded_rows(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).unsqueeze(0).expand(3, -1, -1)
    y[:1] = y[-1:] + 1
    return y


def expanded_columns(x: torch.Tensor) -> torch.Tensor:
    rows, columns = torch.meshgrid(x[0] * 2, x[1] * 2, indexing="ij")
    rows[0].fill_(3)
    return rows + columns


def overlapping_rows(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).as_strided((2, 2), (1, 1))
    y[:1] = y[-1:].clone()
    return y + 0


@pytest.mark.parametrize("function", [expanded_rows, expanded_columns, overlapping_rows])
def test_writes_to_repeated_elements_are_refused(function: Any) -> None:
    with pytest.raises(MutationError) as caught:
        to_graphs(function, (X,))
    assert caught.value.what == (
        "forward writes in place to a tensor of which several elements are one number in memory"
    )
    assert caught.value.fix == "clone it before it is written to"


def test_writes_through_as_strided_without_repetition_are_compiled() -> None:
    def transposed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        z = y.as_strided((6, 1, 2), (1, 1, 12))
        z[1:] = z[:-1].clone()
        return y, z

    check(transposed, (X,))


def _flattened(y: torch.Tensor) -> torch.Tensor:
    return y.flatten()


def _beside_a_transposed_write(view: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    y.transpose(0, 1).masked_fill_(y.transpose(0, 1) > 0, 3)
    z = y.clone()
    view(z).mul_(2)
    w = view(y.t())
    w.add_(1)
    return y, z, w


VIEWS_BY_STRIDES = [
    _flattened,
    torch.ravel,
    lambda y: y.reshape(-1, 1),
    lambda y: y.contiguous(),
    lambda y: y.reshape_as(y.new_empty(1, *y.shape)),
    lambda y: y.unflatten(1, (1, -1)).flatten(1),
]
"""Views of a row-major tensor, copies of a transposed one."""


@pytest.mark.sweep(over="dynamic")
@pytest.mark.parametrize("view", VIEWS_BY_STRIDES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_write_in_place_is_seen_where_strides_make_a_view(view: Any, dynamic: bool) -> None:
    """Whatever strides torch gives to what it makes of y for the write in place before."""
    function = partial(_beside_a_transposed_write, view)
    shapes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},) if dynamic else None
    check(function, (X,), shapes, [(torch.randn(6, 5),), (torch.randn(3, 2),)] if dynamic else [])


def test_writes_by_strides_that_torch_cannot_follow_are_refused() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.transpose(0, 1).masked_fill_(y.transpose(0, 1) > 0, 3)
        y.flatten().mul_(2)
        return y

    with pytest.raises(MutationError) as caught:
        to_graphs(function, (X,))
    assert caught.value.what == (
        "forward writes in place to a view of a tensor, and then by other strides to another view of it"
    )


def test_a_view_that_eager_refuses_is_no_matter_of_writes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.flatten().mul_(2)
        return y.t().view(-1)

    with pytest.raises(CaptureError, match="tracing failed with"):
        to_graphs(function, (X,))


def test_a_write_to_rows_that_data_choose() -> None:
    """No question is asked about a stride that is data."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x[x[:, 0] > 0]
        y.unsqueeze(0)[:, :1].mul_(2)
        return y

    mixed = torch.tensor([-1.0, 1, 1])[:, None].expand(3, 40).contiguous()
    check(forward, (torch.ones(3, 40),), None, [(mixed,), (-torch.ones(3, 40),)])


def test_a_view_in_eager_that_is_traced_as_a_copy_is_refused() -> None:
    """relu of an image of one pixel is row-major in eager mode, so cat is, too; torch traces both as channels_last."""

    def function(image: torch.Tensor) -> torch.Tensor:
        x = F.avg_pool2d(image, 2)
        y = torch.cat([x, x * 2, torch.relu(x)], 2)
        y.contiguous().mul_(0.5)
        return y

    image = torch.randn(3, 2, 2, 2).to(memory_format=torch.channels_last)
    with pytest.raises(CaptureError) as caught:
        to_graphs(function, (image,))
    assert caught.value.what == "forward writes in place to what is a view in eager mode, and was traced as a copy"
    assert caught.value.where is not None
    assert caught.value.where.source == "y.contiguous().mul_(0.5)"
    check(function, (torch.randn(3, 2, 4, 4).to(memory_format=torch.channels_last),), None, [])


def _joined_and_written(x: torch.Tensor) -> torch.Tensor:
    y = torch.cat([x, x.flip(0)], -1)
    y.reshape(-1).mul_(2)
    return y


def test_a_channels_last_example_has_the_strides_of_the_contract_also_in_dimensions_of_size_1() -> None:
    """Pooling lays out what it makes by the stride of a batch of one, which the example had otherwise."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = F.max_pool1d(x, 2, 2, return_indices=True)[0]
        y.ravel().mul_(0.5)
        return y

    with pytest.raises(CaptureError) as caught:
        to_graphs(forward, (torch.randn(4, 1, 2).permute(1, 2, 0),))
    assert caught.value.what == (
        "forward writes in place to what is a view for the example as it is laid out, and a copy for one as the "
        "program takes it"
    )
    check(forward, (torch.randn(1, 4, 2).mT,), None, [])


@pytest.mark.parametrize("given", [torch.contiguous_format, torch.channels_last])
def test_strides_of_dimensions_of_size_1_decide_nothing(given: torch.memory_format) -> None:
    """An image of one pixel is row-major and channels_last at once; cat is laid out by the strides that say nothing."""
    image = torch.randn(5, 2, 1, 1).to(memory_format=given)
    with pytest.raises(CaptureError) as caught:
        to_graphs(_joined_and_written, (image,))
    assert caught.value.what == "forward writes in place to what is a " + (
        "view or a copy by the strides of dimensions of size 1, which are the caller's choice"
        if given is torch.contiguous_format
        else "copy for the example as it is laid out, and a view for one as the program takes it"
    )
    check(_joined_and_written, (torch.randn(5, 2, 3, 1).to(memory_format=given),), None, [])


@pytest.mark.parametrize("given", [torch.contiguous_format, torch.channels_last])
def test_strides_of_one_row_decide_nothing(given: torch.memory_format) -> None:
    """The same where only one size of the range makes both layouts one."""
    x = torch.randn(1, 2, 3, 1).to(memory_format=torch.channels_last)
    exported = check(_joined_and_written, (x,), ({2: Dim.DYNAMIC},), [(x[:, :, :2].clone(),)])
    with pytest.raises(ReferenceFailure, match=r"guard .* != 1 fails"):
        ours(exported, (torch.randn(1, 2, 1, 1).to(memory_format=given),))


def _through_a_moved_dimension(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.mT.contiguous() + 1
    moved = y.permute(2, 1, 0).movedim(0, -1)
    moved.masked_fill_(moved > 0, 3)
    return y, moved


@pytest.mark.parametrize("dynamic", [None, ({1: Dim.DYNAMIC},)])
def test_a_dimension_that_is_moved_is_no_reshape(dynamic: Any) -> None:
    """torch takes a permuted tensor without elements for one that has a view of the moved one's sizes."""
    check(_through_a_moved_dimension, (torch.randn(3, 2, 1),), dynamic, [(torch.randn(3, 5, 1),)] if dynamic else [])


GIVEN_BACK = [
    lambda y: y.type_as(y),
    torch.atleast_2d,
    lambda y: F.dropout(y, 0.5, False),
    lambda y: F.dropout1d(y, 0.5, False),
    lambda y: F.alpha_dropout(y, 0.5, False),
    lambda y: torch.einsum("ij->ji", y).t(),
    lambda y: torch.broadcast_tensors(y, y[:1])[0],
    lambda y: y.sum_to_size(y.shape),
]
"""The tensor itself or a view of it, of which torch's schemas say nothing."""


@pytest.mark.sweep(over="behind")
@pytest.mark.parametrize("before", [lambda y: y, lambda y: y.broadcast_to(y.shape), lambda y: y.mT.reshape(-1, 1)])
@pytest.mark.parametrize("given", GIVEN_BACK)
@pytest.mark.parametrize("behind", [lambda v: v, lambda v: v.to(v.dtype), torch.ravel, lambda v: v[:, :1].mT])
def test_a_write_to_what_is_given_back(before: Any, given: Any, behind: Any) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        v = given(before(y))
        w = behind(v)
        w.copy_(w.flip(0) * 3)
        return y, v

    check(function, (torch.randn(4, 3),), ({0: Dim.DYNAMIC},), [(torch.randn(n, 3),) for n in (2, 6)])


class Sorted(nn.Module):
    """sort gives its values the strides of x; by reshape and flatten they are then a view or a copy."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = x.sort(dim=1)
        y.flatten().mul_(2)
        return y


@pytest.mark.parametrize("keyword", [False, True])
@pytest.mark.parametrize("other", [X.t().contiguous().t(), X.t().contiguous().t()[:, 1:]])
def test_a_write_that_depends_on_the_strides_of_the_example_is_refused(other: torch.Tensor, keyword: bool) -> None:
    def export(x: torch.Tensor) -> None:
        to_graphs(Sorted().eval(), () if keyword else (x,), {"x": x} if keyword else None)

    given = other.stride()
    with pytest.raises(CaptureError) as caught:
        export(other)
    assert caught.value.what == (
        "forward writes in place to what is a copy for the example as it is laid out, and a view for one as the "
        "program takes it"
    )
    assert caught.value.where is not None
    assert caught.value.where.source == "y.flatten().mul_(2)"
    assert caught.value.fix == "call .contiguous() on the example, or .clone() on the tensor before"
    assert other.stride() == given
    export(other.contiguous())
    check(lambda x: Sorted()(x), (X[:, 1:],), None, [])


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.reshape(-1).mul_(2),
        lambda y: y.chunk(2)[1].flatten().add_(1),
        lambda y: y[1:].contiguous().zero_(),
        lambda y: y.t().unbind(0)[0].ravel().copy_(y[:, 1].clone()),
        lambda y: y.index_put_((torch.tensor([0]),), y.flatten()[:6].clone()),
    ],
)
def test_the_run_of_a_program_with_written_views_leaves_state_and_examples_alone(
    write: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Written views are looked at in a run on the example, which is the program's own state."""

    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache = nn.Buffer(X.clone())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            write(self.cache), write(y), y.flatten().add_(self.cache.flatten())
            return y

    module, x = Cache().eval(), X.clone()
    to_graphs(module, (x,))
    assert torch.equal(module.cache, X)
    assert torch.equal(x, X)
    check(module, (x,), None, [])


@pytest.mark.parametrize(
    "scatter",
    [
        lambda w: w.diagonal_scatter(w.diagonal() + 1),
        lambda w: w.select_scatter(w[0] + 1, 0, 0),
        lambda w: w.slice_scatter(w[:1] + 1, 0, 0, 1),
    ],
)
def test_a_scatter_into_windows_that_overlap_is_refused(scatter: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """In eager mode the copy overlaps like the windows, and more than the part is replaced."""
    with pytest.raises(MutationError) as caught:
        to_graphs(lambda x: scatter(x.unfold(0, 3, 1)), (torch.randn(6),))
    assert caught.value.what == (
        "forward replaces a part of a tensor of which several elements are one number in memory"
    )
    check(lambda x: scatter(x.unfold(0, 3, 3)), (torch.randn(7),), None, [])
    check(lambda x: scatter(x.unfold(0, 3, 1).clone()), (torch.randn(7),), None, [])
    check(lambda x: scatter(x.expand(4, 6)), (torch.randn(6),), None, [])


def test_a_write_beside_an_expanded_tensor_is_seen_in_it() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        z, w = y.unsqueeze(0).expand(3, -1, -1), y.expand(4, 6)
        y[0].add_(1)
        w[1].mul_(2)
        copied = z.clone()
        copied[:1] = 0
        return z, copied, y

    check(function, (X,))
