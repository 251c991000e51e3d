"""Neighbouring passes over a row become one, and only where the second reads what the first has just written."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hardtack.codegen.ir.expr import Expr, const, sym
from hardtack.codegen.ir.loops import Axis, Check, Compute, Load, LoopNest, Reduce, Store
from hardtack.codegen.ir.types import DType
from hardtack.codegen.schedule.cpu_row_walks import joined_passes
from tests.codegen.compare import Table, assert_same, compile_module, eager

F32 = DType.F32
OUT, ROW, RED = sym("o", extent=4), sym("i", extent=32), sym("r", extent=32)
OUTER = Axis(OUT, const(4))


def writer(serial: bool = False) -> LoopNest:
    body = (Load("v0", "x", (OUT * 32 + ROW,)), Compute("v1", "exp", ("v0",), F32), Store("row", (ROW,), "v1"))
    return LoopNest("writer", (OUTER, Axis(ROW, const(32))), body, serial)


def summer(at: Expr = RED, numel: int = 32) -> LoopNest:
    body = (Load("v0", "row", (at,)), Reduce("v1", "sum", ("v0",), F32), Store("sum", (const(0),), "v1"))
    return LoopNest("summer", (OUTER, Axis(sym("r", extent=numel), const(numel), "reduce")), body)


def test_a_row_is_written_and_summed_in_one_pass() -> None:
    (joined,) = joined_passes([writer(), summer()], 1)
    assert [a.sym for a in joined.axes] == [OUT, RED]
    assert [type(s).__name__ for s in joined.body] == ["Load", "Compute", "Store", "Load", "Reduce", "Store"]
    assert joined.body[2] == Store("row", (RED,), "v1_row")


@pytest.mark.parametrize(
    "nests",
    [
        [writer(), summer(at=31 - RED)],  # another place of the row than the one just written
        [writer(), summer(at=sym("r", extent=16), numel=16)],  # half a row
        [writer(serial=True), summer()],
        [summer(), writer()],
        [LoopNest("check", writer().axes, (Check("v9", "v0", const(4)), *writer().body)), summer()],
    ],
)
def test_others_stay_apart(nests: list[LoopNest]) -> None:
    assert joined_passes(nests, 1) == nests


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_norms_equal_eager_in_every_float_type(dtype: torch.dtype) -> None:
    """In the half types the row is rounded when it is written, and read again rounded."""
    x, y = torch.randn(5, 3, 67, dtype=dtype), torch.randn(5, 3, 67, dtype=dtype)
    table = Table({
        "layer_norm": lambda a, b: F.layer_norm(a + b, (67,)),
        "softmax": lambda a, b: F.softmax(a * 2 + b, -1),
        "written_row": lambda a, b: [(a * b).exp(), (a * b).exp().sum(-1)],
    })  # fmt: skip
    assert_same(compile_module(table, (x, y))(x, y), eager(table, (x, y)), scale=4)
