"""Small tables that lanes would read at a quotient are written out first."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.codegen.ir.expr import Expr, const, sym
from hardtack.codegen.ir.loops import Axis, Buffer, Compute, Load, LoopError, LoopNest, Store
from hardtack.codegen.ir.types import DType
from hardtack.codegen.passes.cpu.expand import expand, verify_expanded
from tests.codegen.compare import assert_same, compile_module, eager
from tests.codegen.graphs import compiled


class Norms(nn.Module):
    """Group norms of three channels a group between convolutions, whose values have their channels side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.norm, self.after = nn.Conv2d(8, 48, 3), nn.GroupNorm(16, 48), nn.Conv2d(48, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(F.silu(self.norm(self.before(x))))


def test_group_norms() -> None:
    torch.manual_seed(0)
    module = Norms().eval()
    nn.init.normal_(module.norm.weight)
    nn.init.normal_(module.norm.bias)
    dynamic = ({0: Dim("n", max=9), 2: Dim("h", min=3, max=50)},)
    whole = compile_module(module, (torch.randn(2, 8, 12, 12),), dynamic=dynamic)
    for shape in ((2, 8, 12, 12), (1, 8, 50, 12), (5, 8, 3, 12)):
        x = torch.randn(shape)
        assert_same(whole(x), eager(module, (x,)))


C, P = sym("c", extent=const(12)), sym("p", extent=const(9))
BUFFERS = {
    "x": Buffer("x", DType.F32, (const(9), const(12)), (0, 1)),
    "t": Buffer("t", DType.F32, (const(12),), (0,)),
    "out": Buffer("out", DType.F32, (const(9), const(12)), (0, 1)),
}


def reader(at: Expr, points: int = 9, columns: int = 12) -> LoopNest:
    """out[p, c] = x[p, c] * t[at]."""
    p, c = sym("p", extent=const(points)), sym("c", extent=const(columns))
    body = (
        Load("v0", "x", (p, c)),
        Load("v1", "t", (at,)),
        Compute("v2", "mul", ("v0", "v1"), DType.F32),
        Store("out", (p, c), "v2"),
    )
    return LoopNest("n", (Axis(p, const(points)), Axis(c, const(columns))), body)


def test_a_table_is_written_out_once() -> None:
    nests, buffers, (decision,) = expand([reader(C // 3)], BUFFERS)
    writer, made = nests
    assert isinstance(writer, LoopNest)
    assert isinstance(made, LoopNest)
    assert writer.loads() == (Load("v0", "t", (C // 3,)),)
    assert writer.stores() == (Store("t.expanded.0", (C,), "v0"),)
    assert made.loads()[1] == Load("v1", "t.expanded.0", (C,))
    assert buffers["t.expanded.0"].shape == (const(12),)
    assert decision.accepted


@pytest.mark.parametrize(
    ("nest", "why"),
    [
        (reader(C), "no quotient"),
        (reader(P // 3), "not the axis of the lanes"),
        (reader(C // 3, points=7), "as many points to write out as a seventh of those that read"),
        (reader(sym("c", extent=const(32)) // 16, columns=32), "parts that fill the lanes"),
        (replace(reader(C // 3), serial=True), "points in order"),
        (reader(C // 3 + P), "an element for each point"),
    ],
)
def test_what_gains_nothing_is_left_alone(nest: LoopNest, why: str) -> None:
    assert expand([nest], BUFFERS)[0] == (nest,), why


def test_a_table_that_the_nest_changes_is_left_alone() -> None:
    nest = reader(C // 3)
    stores = replace(nest, body=(*nest.body, Store("t", (C,), "v2", "add")))
    assert expand([stores], BUFFERS)[0] == (stores,)


@pytest.mark.parametrize("at", [C // 4, C % 3, C // 3 + 1])
def test_a_table_of_something_else_is_refused(at: Expr) -> None:
    nest = reader(C // 3)
    (writer, made), _, _ = expand([nest], BUFFERS)
    assert isinstance(writer, LoopNest)
    assert isinstance(made, LoopNest)
    verify_expanded(nest, made, writer)
    with pytest.raises(LoopError, match=r"n reads something else from t\.expanded\.0"):
        verify_expanded(nest, made, replace(writer, body=(Load("v0", "t", (at,)), *writer.body[1:])))
    wrong = replace(made, body=tuple(replace(s, index=(P,)) if s == made.loads()[1] else s for s in made.body))
    with pytest.raises(LoopError, match=r"n reads something else from t\.expanded\.0"):
        verify_expanded(nest, wrong, writer)


def test_what_one_worker_computes_takes_no_nest_that_all_could_share() -> None:
    """Statistics of a few groups are small; the points that they normalise are not."""

    class Apart(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.sum() * y

    entry = compiled(Apart(), torch.randn(64), torch.randn(1 << 20))
    why = [d.reason for d in entry.decisions if d.kind == "fuse" and not d.accepted]
    assert [w for w in why if w.startswith("only 1 outer points would be left")]
