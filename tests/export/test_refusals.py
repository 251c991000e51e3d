"""Refusals of what torch refuses too, in sentences that say what to do; and of entry points that cannot be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hardtack.export import ExportError, InputSpecError, MutationError, UnsupportedOpError, to_graphs

X = torch.randn(8, 8)


class Sum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Plain:
    """No class that torch knows."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


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
            "use tensors in tuples, lists and dicts; torch.export.register_dataclass(Plain) makes a dataclass known",
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
            "use tensors in tuples, lists and dicts",
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
