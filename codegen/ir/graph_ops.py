"""The kinds of Graph ops, each with what the stages of the compiler know of it. codegen/ops.py has the same of scalars.

A stage asks this table and lists nothing that it says. What a kind is lowered to is registered by the rooms that
lower (codegen/lower/), its meaning by the reference interpreter; tests/codegen/test_graph_ops.py holds them together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from hardtack.codegen.ir import graph_infer as basic
from hardtack.codegen.ir import graph_infer_nn as nn
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_infer import Case, Same, Types
from hardtack.codegen.ops import SCALAR_OPS, UndefinedOp


class Order(Enum):
    """In which order of dimensions a result is kept in memory; codegen/lower/layout.py."""

    ROW_MAJOR = "row-major"
    CHANNELS_LAST = "(N, *S, C) from rank 3 on"
    OF_OPERAND = "that of an operand of its rank, if one is not row-major"
    OF_EQUAL = "that of an operand of its shape, if one is not row-major"
    HEADS_INSIDE = "(B, T, H, E): joining the heads again is a view"


class Elements(Enum):
    """Where the elements of a result come from."""

    COMPUTED = "computed from one or many"
    KEPT = "those of the operand, each once"
    REPEATED = "those of the operand, some of them several times"
    PICKED = "those at other places of the operands"
    PLACED = "those of the operands, among others or where an index says"


class View(Enum):
    """How a result that needs no memory of its own is found in its operand's."""

    NONE = "it has memory of its own"
    STRIDED = "by strides and an offset, or else by index arithmetic"
    INDEXED = "by index arithmetic: strides would be negative"


def _none(op: Op) -> tuple[int, ...]:
    return ()


@dataclass(frozen=True)
class GraphOp:
    """A row. infer: its type rule. changes: the operands that the op writes to, whose memory its last results, as many,
    may take. opaque: nobody here knows what it computes, so that it is neither computed at export nor merged with one
    that looks the same."""

    kind: str
    infer: Callable[[Case], Types]
    order: Order = Order.ROW_MAJOR
    elements: Elements = Elements.COMPUTED
    view: View = View.NONE
    changes: Callable[[Op], tuple[int, ...]] = _none
    opaque: bool = False


_ROWS = (
    *(GraphOp(kind, basic.pointwise_types, Order.OF_EQUAL) for kind in SCALAR_OPS),
    GraphOp("full", basic.full_types),
    GraphOp("iota", basic.iota_types),
    GraphOp("reshape", basic.reshape_types, elements=Elements.KEPT, view=View.STRIDED),
    GraphOp("permute", basic.permute_types, elements=Elements.KEPT, view=View.STRIDED),
    GraphOp("expand", basic.expand_types, elements=Elements.REPEATED, view=View.STRIDED),
    GraphOp("slice", basic.slice_types, Order.OF_OPERAND, Elements.PICKED, View.STRIDED),
    GraphOp("flip", basic.flip_types, elements=Elements.PICKED, view=View.INDEXED),
    GraphOp("cat", basic.cat_types, Order.OF_OPERAND, Elements.PICKED),
    GraphOp("pad", basic.pad_types, Order.OF_OPERAND, Elements.PLACED),
    GraphOp("take", nn.take_types, elements=Elements.PICKED),
    GraphOp("put", nn.put_types, elements=Elements.PLACED, changes=lambda op: (0,)),
    GraphOp("gather", nn.gather_types, elements=Elements.PICKED),
    GraphOp("scatter", nn.scatter_types, elements=Elements.PLACED),
    GraphOp("assert", basic.assert_types),
    GraphOp("read", basic.read_types, opaque=True),
    GraphOp("reduce", basic.reduce_types, Order.OF_OPERAND),
    GraphOp("moments", basic.moments_types),
    GraphOp("scan", basic.scan_types),
    GraphOp("sort", basic.sort_types),
    GraphOp("topk", basic.topk_types),
    GraphOp("pool", nn.pool_types, Order.CHANNELS_LAST),
    GraphOp("pool_index", nn.pool_index_types, Order.CHANNELS_LAST),
    GraphOp("adaptive_pool", nn.adaptive_types, Order.CHANNELS_LAST),
    GraphOp("resize", nn.resize_types, Order.CHANNELS_LAST),
    GraphOp("matmul", nn.matmul_types),
    GraphOp("grouped_matmul", nn.grouped_types),
    GraphOp("conv", nn.conv_types, Order.CHANNELS_LAST),
    GraphOp("attention", nn.attention_types, Order.HEADS_INSIDE),
    *(GraphOp(kind, nn.recurrent_types) for kind in nn.GATES),
    GraphOp("custom", basic.custom_types, changes=lambda op: op.tuple_attr("written"), opaque=True),
    GraphOp("cond", nn.cond_types),
    GraphOp("while", nn.while_types),
)
GRAPH_OPS = {row.kind: row for row in _ROWS}
"""kind -> GraphOp."""


def facts(op: Op) -> GraphOp:
    """The row of an op. ValueError if its kind has none."""
    row = GRAPH_OPS.get(op.kind)
    if row is None:
        raise ValueError(f"unknown op kind {op.kind!r}")
    return row


def changed(op: Op | None) -> dict[str, int]:
    """The results that may take an operand's memory, with its place; none for no op."""
    places = () if op is None else facts(op).changes(op)
    return dict(zip(op.outputs[len(op.outputs) - len(places) :], places, strict=True)) if op is not None else {}


def _takes_float8(row: GraphOp, op: Op) -> bool:
    """True for what moves elements, and for products; the table of scalar ops says it of those."""
    computes = (op.kind == "put" and op.attr("accumulate")) or (op.kind == "scatter" and op.attr("reduce") != "none")
    moves = row.elements is not Elements.COMPUTED and not computes
    return moves or op.kind in SCALAR_OPS or op.kind in ("matmul", "attention", "full", "custom", "cond", "while")


def is_view(op: Op | None) -> bool:
    """True if the op's result is found in its operand's memory by index arithmetic."""
    return op is not None and facts(op).view is not View.NONE


def derive(op: Op, args: Types, stated: Types, same: Same) -> Types:
    """The output types of `op`. args: one an operand; stated: those that the graph gives.

    ValueError, with a sentence, if the op is malformed or its kind unknown.
    """
    row = facts(op)
    codes = next((a.dtype for a in args if a.dtype.is_float8), None)
    if codes is not None and not _takes_float8(row, op):
        raise UndefinedOp(f"{op.kind} is not defined on {codes}")
    try:
        return row.infer(Case(op, args, stated, same))
    except KeyError as missing:
        raise ValueError(str(missing.args[0])) from missing
    except IndexError as missing:
        raise ValueError(f"{op.kind} has too few operands or outputs") from missing
