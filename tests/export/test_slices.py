"""Slices and single elements counted from the end, for sizes where there are none: eager's result, or a guard."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from checks import entry
from torch import Tensor, nn
from torch.export import Dim

from hardtack.codegen.ir.expr_walk import evaluate
from hardtack.export import to_graphs

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "the last row": lambda x: x[-1],
    "the last row, kept": lambda x: x[-1:],
    "three rows": lambda x: x[-3:],
    "all but the last": lambda x: x[:-1],
    "a row": lambda x: x[2],
    "some rows": lambda x: x[1:3],
    "every other row from the end": lambda x: x[-4::2],
    "split off": lambda x: x.tensor_split((1, -1))[2],
}


class Of(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x) * 2


@pytest.mark.parametrize("dim", [Dim("n", max=64), Dim.DYNAMIC])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_small_sizes(name: str, dim: object) -> None:
    """For each size the graph has eager's shape, or a guard or the symbol's range refuses it."""
    graph = entry(to_graphs(Of(FUNCTIONS[name]).eval(), (torch.randn(11, 3),), None, ({0: dim},))).graph
    (binding,) = graph.syms
    relations = {"le": int.__le__, "lt": int.__lt__, "eq": int.__eq__, "ne": int.__ne__}
    taken = []
    for n in range(12):
        at = {binding.sym.name: n}
        if n < binding.sym.lo or not all(
            relations[g.relation](evaluate(g.a, at), evaluate(g.b, at)) for g in graph.guards
        ):
            continue
        taken.append(n)
        shape = [evaluate(e, at) for e in graph.types[graph.outputs[0]].shape]
        assert shape == list(FUNCTIONS[name](torch.randn(n, 3)).shape), n
    assert taken[-7:] == list(range(5, 12))
