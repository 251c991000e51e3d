"""Lowering of conditionals, loops and reads of sizes: operands in memory, branches left as graphs for the pipeline to
compile."""

from __future__ import annotations

from hardtack.codegen.ir.expr import Sym
from hardtack.codegen.ir.graph import Graph, Op, Operand
from hardtack.codegen.ir.nests import ControlNest, ReadNest
from hardtack.codegen.lower.builder import Lowering, NestBuilder
from hardtack.codegen.lower.layout import row_major
from hardtack.codegen.lower.rules import lowers


def in_memory(low: Lowering, value: Operand, op: Op) -> str:
    """A row-major buffer that holds the value: its own, or a copy of a view, a scalar, or another layout."""
    if (
        isinstance(value, str)
        and value in low.buffers
        and low.buffers[value].order == row_major(len(low.buffers[value].shape))
    ):
        return value
    t = low.graph.type_of(value)
    buffer = low.temporary(f"{op.outputs[0] if op.outputs else op.kind}.operand", t.dtype, t.shape)
    b = NestBuilder(low, buffer.name, op.origin)
    index = b.loop(buffer.shape, buffer.order)
    b.store(buffer.name, index, b.load(value, index))
    b.done()
    return buffer.name


def _branches(op: Op, *names: str) -> tuple[Graph, ...]:
    return tuple(op.attr_of(n, Graph) for n in names)


@lowers("cond")
def lower_cond(low: Lowering, op: Op) -> None:
    predicate, *operands = (in_memory(low, x, op) for x in op.inputs)
    branches = _branches(op, "then", "orelse")
    low.emit(ControlNest(op.outputs[0], "cond", predicate, tuple(operands), op.outputs, branches, op.origin))


@lowers("while")
def lower_while(low: Lowering, op: Op) -> None:
    operands = tuple(in_memory(low, x, op) for x in op.inputs)
    branches = _branches(op, "cond", "body")
    low.emit(ControlNest(op.outputs[0], "while", None, operands, op.outputs, branches, op.origin))


@lowers("read")
def lower_read(low: Lowering, op: Op) -> None:
    sym = op.attr_of("sym", Sym)
    low.emit(ReadNest(f"read_{sym.name}", sym, in_memory(low, op.inputs[0], op), op.origin))
