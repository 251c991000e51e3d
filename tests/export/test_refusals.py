"""Refusals of what torch refuses too, in sentences that say what to do; and of entry points that cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import quantize_dynamic
from transformers import DynamicCache

from hardtack.exporter import (
    CaptureError,
    ExportError,
    InputSpecError,
    MutationError,
    TrainingModeError,
    UnsupportedOpError,
    to_graphs,
)
from hardtack.exporter.capture.torch_errors import translated
from tests.export.checks import check, ours

X = torch.randn(8, 8)


class Sum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Plain:
    """No class that torch knows."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


@dataclass
class Fields:
    """A dataclass that nobody has registered."""

    x: torch.Tensor


def writes_data(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.data[0] = 1
    return y


class WritesAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 1


class WritesView(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("whole", torch.zeros(8, 8))
        self.register_buffer("part", self.whole[:4])

    def forward(self, x: torch.Tensor) -> Any:
        self.whole.add_(x)
        return self.part * 1


class WritesInBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> Any:
        def counted(y: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
            n.add_(1)
            return y + n

        return torch.cond(x.sum() > 0, counted, lambda y, n: y - n, (x, self.count))


@pytest.mark.parametrize(
    ("kind", "module", "args", "what", "fix"),
    [
        (
            InputSpecError,
            lambda p: p.x,
            (Plain(X),),
            "the inputs contain a Plain, which torch cannot take apart",
            "pass the tensors that it holds, in tuples, lists and dicts",
        ),
        (
            InputSpecError,
            lambda p: p.x,
            (Fields(X),),
            "the inputs contain a Fields, which torch cannot take apart",
            "pass the tensors that it holds, in tuples, lists and dicts, or torch.export.register_dataclass(Fields)",
        ),
        (
            InputSpecError,
            lambda x: (x, DynamicCache()),
            (X,),
            "the outputs contain a DynamicCache, which torch cannot take apart",
            "return the tensors that it holds, in tuples, lists and dicts",
        ),
        (
            InputSpecError,
            quantize_dynamic(nn.Sequential(nn.Linear(8, 2)).eval(), {nn.Linear}),
            (X,),
            "0 is a quantised Linear",
            "export the module in floating point: quantised modules are not supported",
        ),
        (
            CaptureError,
            writes_data,
            (X,),
            "forward makes a tensor that torch cannot trace: by .data, or outside of torch",
            "use .detach() instead of .data, and torch's ops only",
        ),
        (
            CaptureError,
            lambda x: F.huber_loss(x.half(), x),
            (X,),
            "huber_loss of torch.float16 and torch.float32: eager gives torch.float16, torch.export another dtype",
            "convert both to one dtype",
        ),
        (
            CaptureError,
            lambda x: torch.ldexp(x.long(), x.sum().half()),
            (X,),
            "ldexp of torch.int64 and torch.float16: eager gives torch.float16, torch.export another dtype",
            "convert both to one dtype",
        ),
        (
            InputSpecError,
            Plain,
            (X,),
            "what is to be exported is the class Plain",
            "pass a module, a function or an ExportedProgram",
        ),
        (
            InputSpecError,
            lambda x: {1, 2},
            (X,),
            "the outputs contain a set, which torch cannot take apart",
            "return the tensors that it holds, in tuples, lists and dicts",
        ),
        (
            MutationError,
            WritesAttribute(),
            (X,),
            "forward writes to total, a tensor that is no registered buffer",
            'register it: self.register_buffer("total", ...); it becomes a state',
        ),
        (
            MutationError,
            WritesView(),
            (X,),
            "two buffers of the module share memory, and forward writes to it",
            "register one buffer, and take views of it in forward",
        ),
        (
            MutationError,
            WritesInBranch(),
            (X,),
            "a branch of torch.cond or the body of a loop writes to a tensor in place",
            "return the new value from the branch, and write it to the buffer outside",
        ),
    ],
)
def test_what_torch_says_badly(kind: type[ExportError], module: Any, args: Any, what: str, fix: str) -> None:
    if isinstance(module, nn.Module):
        module.eval()
    with pytest.raises(ExportError) as caught:
        to_graphs(module, args)
    assert (type(caught.value), caught.value.what, caught.value.fix) == (kind, what, fix)


@pytest.mark.parametrize(
    ("modules", "args", "what"),
    [
        ({}, None, "there is no entry point to export"),
        ({"a/b": Sum()}, {"a/b": (X, X)}, "an entry point cannot be called 'a/b'"),
        ({"a": Sum()}, (X, X), "args is a tuple, but there are entry points"),
        (nn.Linear(2, 2).state_dict(), None, "entry weight is a Tensor"),
    ],
)
def test_entry_points_that_cannot_be(modules: Any, args: Any, what: str) -> None:
    with pytest.raises(InputSpecError) as caught:
        to_graphs(modules, args)
    assert caught.value.what == what


class Resizes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(x, scale_factor=2, mode="bilinear")


def test_bytes_are_not_interpolated() -> None:
    with pytest.raises(UnsupportedOpError) as found:
        to_graphs(Resizes().eval(), (torch.zeros(1, 3, 4, 4, dtype=torch.uint8),))
    assert "resizing u8 by mode linear, which torch does in fixed point: convert to a float type first" in str(
        found.value
    )


def test_a_convolution_of_narrow_integers_is_refused() -> None:
    """As eager has none."""
    with pytest.raises(UnsupportedOpError) as found:
        to_graphs(lambda x, w: F.conv1d(x, w), (torch.zeros(1, 2, 8).int(), torch.zeros(3, 2, 3).int()))
    assert found.value.ops[0].reason == "a convolution of i32: convert its operands to a float type"


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x[:0].unflatten(0, (-1, 2**53 + 2)), [0, 2**53 + 2]),
        (lambda x: x.expand(2**50, 3)[:5] * 2, [2**50, 3]),
        (lambda x: x + x.new_ones(0, 2**43).sum(0)[:3], [0, 2**43]),
    ],
)
def test_a_tensor_larger_than_a_file_can_state_is_refused(function: Any, shape: list[int]) -> None:
    with pytest.raises(UnsupportedOpError) as found:
        to_graphs(function, (torch.randn(3),))
    assert f"a tensor of {shape}: its sizes, but for those of 0, must multiply to at most 2**42" in found.value.what


def test_a_softmax_of_integers_is_refused_as_in_torch() -> None:
    """In torch by a run; one of no elements, which runs, is refused here, too."""
    with pytest.raises(UnsupportedOpError) as found:
        to_graphs(lambda x: x.softmax(-1), (torch.zeros(0, 3, dtype=torch.bool),))
    assert found.value.ops[0].reason == "torch has no softmax of bool: convert the tensor to a floating dtype"


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (F.gelu, "erf is not defined on (i64)"),
        (F.silu, "sigmoid is not defined on (i64)"),
        (lambda x: torch.hypot(x, x), "div is not defined on (i64, i64)"),
        (lambda x: F.glu(x, 0), "sigmoid is not defined on (i64)"),
    ],
)
def test_what_eager_refuses_of_integers_is_refused_in_words(function: Any, part: str) -> None:
    with pytest.raises(UnsupportedOpError) as found:
        to_graphs(function, (torch.ones(4, 2, dtype=torch.int64),))
    assert found.value.ops[0].reason == f"it is made of others, and {part}: convert its operands first"


@torch.library.custom_op("hardtack_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("hardtack_tests::fill", mutates_args=("y",))
def fill(x: torch.Tensor, y: torch.Tensor) -> None:
    y.copy_(x)


def fills(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    fill(x, y)
    return y + 1


def prints(x: torch.Tensor) -> torch.Tensor:
    torch.ops.aten._print("here")
    return x + 1


CUSTOM = (
    "its code is unknown to the compiler; give its function in torch's ops, as "
    "export(decompositions={{'hardtack_tests::{}': function}}), or call it outside"
)


@pytest.mark.parametrize(
    ("function", "op", "reason", "line"),
    [
        (
            lambda x: twice(x) + 1,
            "hardtack_tests.twice.default",
            f"a custom op: {CUSTOM.format('twice')}",
            "twice(x) + 1",
        ),
        (
            fills,
            "hardtack_tests.fill.default",
            f"a custom op that writes to its arguments: {CUSTOM.format('fill')}",
            "fill(x, y)",
        ),
        (
            prints,
            "aten._print.default",
            "it has an effect outside of the program, such as a print: leave it out of forward",
            'torch.ops.aten._print("here")',
        ),
    ],
)
def test_ops_that_torch_wraps(function: Any, op: str, reason: str, line: str) -> None:
    """The op that the user calls, and not torch's wrapper of it."""
    with pytest.raises(UnsupportedOpError) as caught:
        to_graphs(function, (X,))
    (found,) = caught.value.ops
    assert (found.op, found.reason) == (op, reason)
    assert found.where is not None
    assert line in found.where.source


def test_a_part_in_training_mode() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 2))).eval()
    module[1][0].train()
    with pytest.raises(TrainingModeError) as caught:
        to_graphs(module, (X,))
    assert caught.value.what == "1.0, a Linear, is in training mode; the module around it is not"
    assert caught.value.fix == "call .eval() on the whole module after its last change"


class Halved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(x * 2)


def test_the_mode_of_a_graph_module_is_that_of_what_it_calls() -> None:
    """torch.export's modules stay in training mode, and have nothing that would be otherwise in the other."""
    program = torch.export.export(Halved().eval(), (X,)).module()
    assert program.training
    assert torch.equal(ours(to_graphs(program, (X,)), (X,))[0], X * 2)
    traced = torch.fx.symbolic_trace(Halved())
    assert torch.equal(ours(to_graphs(traced.eval(), (X,)), (X,))[0], X * 2)
    with pytest.raises(TrainingModeError, match=r"drop \(Dropout\) would behave as in training"):
        to_graphs(traced.train(), (X,))


@pytest.mark.parametrize("function", [torch.relu, torch.ones(8).add, partial(torch.add, alpha=2)])
def test_functions_of_c(function: Any) -> None:
    """They have no signature."""
    check(function, (X, X) if isinstance(function, partial) else (X,))


def test_a_tensor_for_the_arguments_of_an_entry() -> None:
    with pytest.raises(InputSpecError) as caught:
        to_graphs({"a": Sum().eval()}, {"a": X})
    assert caught.value.what == "args is a Tensor"


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        (
            "n=copy_, n.args[0]=empty_permuted, placeholders={arg1_1, arg0_1}, graph=graph():",
            f"an op writes in place to a view in a way that torch {torch.__version__} cannot trace",
            "take torch 2.12 or newer, or give the result a name: y = y.index_fill(..), y = y.diagonal_scatter(..)",
        ),
        (
            "This higher order operator doesn't work: Encountered input mutation during higher order op tracing",
            "a branch of torch.cond or the body of a loop writes to a tensor in place",
            "return the new value from the branch, and write it to the buffer outside",
        ),
    ],
)
def test_what_torch_2_11_says_badly(text: str, what: str, fix: str) -> None:
    found = translated(AssertionError(text))
    assert isinstance(found, ExportError)
    assert (found.what, found.fix) == (what, fix)


@pytest.mark.parametrize("exponent", [False, True])
def test_a_power_of_booleans_by_a_boolean_is_refused(exponent: bool) -> None:
    """Eager gives booleans; torch.export traces int64, and goes on with it."""

    class Power(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x**exponent

    assert (torch.tensor([True]) ** exponent).dtype is torch.bool, "what the message says of eager"
    with pytest.raises(ExportError) as raised:
        to_graphs(Power().eval(), (torch.tensor([True, False]),))
    assert (
        "a power of booleans by a boolean is boolean in eager, and int64 where torch.export traces it: write "
        "x | True for ** False, and x.clone() for ** True"
    ) in str(raised.value)
