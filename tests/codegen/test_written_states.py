"""States that are written while others read, take over or are read from them: with eager's numbers and contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.codegen.compare import assert_same, compile_module

LAYERS, ROWS, WIDTH = 3, 4, 6
START = torch.arange(float(LAYERS * ROWS * WIDTH)).reshape(LAYERS, ROWS, WIDTH)
Step = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]


class States(nn.Module):
    """Two states, and what is done with them."""

    s: torch.Tensor
    t: torch.Tensor

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.register_buffer("s", START.clone())
        self.register_buffer("t", -START)

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return self.step(self, x, at)


def check(step: Step, *places: int) -> None:
    """The same results and contents as eager's, run after run."""
    module, given = States(step).eval(), States(step).eval()
    x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    compiled = compile_module(given, [x, torch.tensor([places[0]])])
    for at in places:
        with torch.no_grad():
            want = module(x, torch.tensor([at]))
        assert_same(compiled(x, torch.tensor([at])), [want])
        assert "s" in compiled.runner.states
        for name, content in compiled.runner.states.items():
            np.testing.assert_allclose(content, module.get_buffer(name).numpy(), rtol=1e-5, err_msg=name)


def taken_over(m: Any, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    m.s[0, at] = x[:1]
    m.t.copy_(m.s.clone())
    return x * 2


def written_alike(m: Any, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    m.s.copy_(m.t)
    m.s[0, at] = x[:1]
    m.t[0, at] = x[:1]
    return x * 2


def exchanged(m: Any, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    old = m.s.clone()
    m.s[0, at] = x[:1]
    new = m.s.clone()
    m.s.copy_(m.t)
    m.t.copy_(new)
    return old.sum() + x


@pytest.mark.parametrize("step", [taken_over, written_alike, exchanged])
def test_what_lies_in_one_states_memory_is_another_ones_content_too(step: Step) -> None:
    check(step, 1, 2, 0)


def longer_in_front(m: Any, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    y = m.s.reshape(LAYERS * ROWS, WIDTH).clone()
    y[at] = x[:1]
    m.s[0] = y[:ROWS]
    return x * 2


def longer_behind(m: Any, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    y = m.s[1:].reshape(-1, WIDTH).clone()
    y[at] = x[:1]
    m.s[1] = y[:ROWS]
    return x * 2


def twice(m: Any, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    y = m.s[0][None].expand(2, ROWS, WIDTH).reshape(2 * ROWS, WIDTH).clone()
    y[at] = x[:1]
    m.s[0] = y[:ROWS]
    return x * 2


def along_layers(m: Any, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    y = m.s.transpose(0, 1).flatten(0, 1)[:, None].clone()
    y[at] = x[:1, None]
    m.s[:, 0].copy_(y[:LAYERS, 0])
    return x * 2


def columns(m: Any, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    y = m.s.reshape(LAYERS * ROWS, WIDTH).clone()
    y[:, at] = x.sum() * torch.arange(float(LAYERS * ROWS))[:, None]
    m.s[0] = y[:ROWS]
    return x * 2


@pytest.mark.parametrize("step", [longer_in_front, longer_behind, twice, along_layers])
def test_a_part_of_what_was_written_is_no_write_to_the_part(step: Step) -> None:
    """An index counts from the end of what was written, and may lie behind the part."""
    check(step, 1, -1, 5)


def test_columns_of_what_is_longer() -> None:
    check(columns, 1, -1)


def picked_before(m: Any, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    picked = m.s[torch.cat([at, at * 0])]
    m.s.index_copy_(0, torch.tensor([0, 1]), picked + 1)
    return torch.bmm(x[:2, None], picked.mT)


def picked_late(m: Any, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    picked = m.s[torch.cat([at, at])]
    m.s[0] = x.sum()
    return torch.bmm(x[:2, None], picked.mT)


@pytest.mark.parametrize("step", [picked_before, picked_late])
def test_matrices_that_are_picked_before_they_are_overwritten(step: Step) -> None:
    check(step, 1, 0, 2)


class Dropped(nn.Module):
    """The first matrices of those that are picked."""

    def __init__(self, count: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.count = count
        self.w = nn.Buffer(torch.randn(5, WIDTH, 9, generator=torch.Generator().manual_seed(1)).to(dtype))

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x[: self.count, None].to(self.w.dtype), self.w[ids][: self.count])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("count", [1, 2])
def test_some_of_the_matrices_that_are_picked(count: int, dtype: torch.dtype) -> None:
    module, x = Dropped(count, dtype).eval(), torch.randn(ROWS, WIDTH)
    compiled = compile_module(Dropped(count, dtype).eval(), [x, torch.tensor([1, 4, 0, 1])])
    for ids in ([1, 4, 0, 1], [-1, 2, 2, 0]):
        assert_same(compiled(x, torch.tensor(ids)), [module(x, torch.tensor(ids))])
