"""torch.cond and while_loop: branches and bodies become Graphs in the attributes of cond and while ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.symfloat import bool_scalar
from hardtack.exporter.convert.table import Result, Value, converts
from hardtack.exporter.errors import Refusal


def _tensors(b: Builder, operands: Sequence[Any], what: str) -> list[Value]:
    """Operands as tensors; sizes and numbers become scalars."""
    made: list[Value] = []
    for o in operands:
        if isinstance(o, Value):
            made.append(o)
        elif isinstance(o, (bool, int, Expr)):
            made.append(b.tensor(b.cast(o, DType.BOOL if isinstance(o, bool) else DType.I64)))
        else:
            raise Refusal(f"{what} with an operand of type {type(o).__name__}")
    return made


def _branch(walk: Any, module: Any, operands: list[Value], name: str) -> Graph:
    assert isinstance(module, GraphModule)
    found: Graph = walk.branch(module, operands, name)
    return found


@converts("cond")
def _cond(b: Builder, predicate: Any, true: Any, false: Any, operands: Sequence[Any] = (), *, walk: Any) -> Result:
    if isinstance(predicate, bool):
        raise Refusal("cond on a Python bool: use a Python if")
    if isinstance(predicate, torch.SymBool):
        predicate = bool_scalar(b, walk.sizes, predicate)
    given = _tensors(b, operands, "cond")
    origin, label = b.origin, b.label
    then, orelse = (_branch(walk, m, given, n) for m, n in ((true, "then"), (false, "orelse")))
    b.origin, b.label = origin, label
    scalar = b.reshape(b.to(predicate, DType.BOOL), ())
    return b.multi("cond", scalar, *given, then=then, orelse=orelse)


@converts("while_loop")
def _while(b: Builder, test: Any, body: Any, carried: Sequence[Any], extra: Sequence[Any] = (), *, walk: Any) -> Result:
    given = _tensors(b, [*carried, *extra], "while_loop")
    condition = _branch(walk, test, given, "condition")
    loop = _branch(walk, body, given, "body")
    return b.multi("while", *given, cond=condition, body=loop)
