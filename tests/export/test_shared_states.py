"""Buffers that entry points share: by name, whatever arguments are called."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hardtack.exporter import InputSpecError, to_graphs


class Keys(nn.Module):
    """Writes rows to a buffer; returns what they are together with those before."""

    def __init__(self, buffer: torch.Tensor, name: str = "k") -> None:
        super().__init__()
        self.register_buffer(name, buffer)
        self.name = name

    def write(self, row: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        buffer: torch.Tensor = getattr(self, self.name)
        buffer[at] = row
        return row @ buffer.mT


class OfK(Keys):
    def forward(self, k: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return self.write(k, at)


class OfX(Keys):
    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return self.write(x, at)


class Reads(Keys):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ getattr(self, self.name).mT  # type: ignore[no-any-return]


ROW, AT = torch.ones(1, 4), torch.tensor([1])


def test_a_state_that_is_called_as_an_argument_has_one_name_everywhere() -> None:
    shared = torch.zeros(3, 4)
    modules = {"prefill": OfK(shared).eval(), "decode": OfX(shared).eval()}
    exported = to_graphs(modules, {"prefill": (ROW, AT), "decode": (ROW, AT)})
    for entry, arguments in (("prefill", ["k", "at"]), ("decode", ["x", "at"])):
        graph = exported.entries[entry].graph
        assert [s.name for s in graph.states] == ["k.state"]
        assert [i.name for i in graph.inputs] == arguments


def test_other_states_have_their_own_names() -> None:
    graph = to_graphs(OfX(torch.zeros(3, 4)).eval(), (ROW, AT)).entries["forward"].graph
    assert [s.name for s in graph.states] == ["k"]


def test_a_buffer_under_two_names_is_refused() -> None:
    shared = torch.zeros(3, 4)
    modules = {"write": OfX(shared).eval(), "read": Reads(shared, "other").eval()}
    with pytest.raises(InputSpecError) as caught:
        to_graphs(modules, {"write": (ROW, AT), "read": (ROW,)})
    assert str(caught.value) == (
        "other of entry point read is the buffer that entry point write has as k, which is changed by a run: entry "
        "points share states by name\n  To fix: register it as k there, too"
    )


def test_a_buffer_under_two_names_that_no_run_changes_is_two_constants() -> None:
    shared = torch.ones(3, 4)
    modules = {"one": Reads(shared).eval(), "two": Reads(shared, "other").eval()}
    assert set(to_graphs(modules, {"one": (ROW,), "two": (ROW,)}).entries) == {"one", "two"}
