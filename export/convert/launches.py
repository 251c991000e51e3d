"""Launches of users' Triton kernels (triton_calls/launch_ops.py): a Graph op `custom`."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from hardtack.codegen.ir.expr import Expr, as_expr
from hardtack.codegen.ir.kernel_code import Argument
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Number, Value
from hardtack.exporter.errors import Refusal
from hardtack.exporter.triton_calls.launch_ops import LaunchOp, is_empty


def convert_launch(
    b: Builder, launch: LaunchOp, node: Node, given: Sequence[Value], sizes: Sequence[int | Expr]
) -> tuple[Value, ...]:
    """What becomes of the memory that a launch writes to. What had no content is a result; all else is an operand.

    Raises Refusal for numbers that the values of tensors decide.
    """
    if any(isinstance(s, Value) for s in sizes):
        raise Refusal("its arguments or its grid depend on values of tensors, and are no sizes")
    if any(isinstance(x, Number) for x in given):
        raise Refusal("a number of the run is among its tensors")
    nodes = node.args[0]
    assert isinstance(nodes, (list, tuple))
    empty = [k for k in launch.written if is_empty(nodes[k])]
    kept = [k for k in range(len(given)) if k not in empty]
    changed = [k for k in launch.written if k in kept]
    places: dict[int, Argument] = {k: ("result", j) for j, k in enumerate(empty)}
    places |= {k: ("tensor", j) for j, k in enumerate(kept)}
    made = b.multi(
        "custom",
        *(given[k] for k in kept),
        stated=[given[k].type for k in (*empty, *changed)],
        op=str(node.target),
        code=launch.code,
        arguments=[_argument(a, places, sizes) for a in launch.arguments],
        grid=[as_expr(n) for n in sizes[-3:]],
        strided=(),
        written=[kept.index(k) for k in changed],
        workspace=0,
        worker_workspace=0,
    )
    results = dict(zip((*empty, *changed), made, strict=True))
    return tuple(results[k] for k in launch.written)


def _argument(a: Argument, places: dict[int, Argument], sizes: Sequence[int | Expr]) -> Argument:
    if a[0] == "tensor":
        return places[a[1]]
    return ("int", as_expr(sizes[a[1]])) if a[0] == "int" else a
