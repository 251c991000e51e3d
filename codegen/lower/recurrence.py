"""What the recurrences of CPUs and GPUs have in common: the template, the op's operands, the biases."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hardtack.codegen.ir.expr import ONE, Expr, const
from hardtack.codegen.ir.graph import Op, uses
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Operand, Template, TemplateNest
from hardtack.codegen.ir.roles import Extent, Memory, Role, need
from hardtack.codegen.lower.builder import Lowering, NestBuilder, lit_of
from hardtack.codegen.lower.operands import copied, operand, try_operand


@dataclass(frozen=True)
class AnyRecurrence(Template):
    """All steps of a recurrence: the inputs are projected already, [T * B, gates * H]; w is the hidden weights. h0
    [B, H]; then c0 of an lstm, or the n gate's hidden bias of a gru. Results: y [T, B, H], the last h, and of an lstm
    the last c.

    cell: the graph op's kind. reverse: from the last step to the first.
    """

    cell: str
    reverse: bool

    results = (Role("y", "T B H"), Role("last h", "B H"), Role("last c", "B H"))

    @property
    def label(self) -> str:
        return self.cell

    def operand_roles(self) -> tuple[Role, ...]:
        *shared, last = self.roles
        if self.cell == "lstm":
            return (*shared, replace(last, name="c0", optional=False))
        return (*shared, Role("bias", "H", memory=Memory.ROWS, optional=True)) if self.cell == "gru" else tuple(shared)

    def result_roles(self, nest: TemplateNest) -> tuple[Role, ...]:
        return self.results if self.cell == "lstm" else self.results[:-1]

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        need(self.cell in GATES, f"it knows no {self.cell}")
        return {"gates": const(GATES[self.cell])}


PROJECTED = Role("projected", "T*B gates*H", memory=Memory.WHOLE)
STATES = (
    Role("h0", "B H", memory=Memory.ROWS),
    Role("c0 or bias", "B H", memory=Memory.ROWS, optional=True),
)


@dataclass(frozen=True)
class Parts:
    """The values that a recurrent op takes, by name. states: h0, and c0 of an lstm. biases: b_ih and b_hh, or none."""

    x: str
    states: tuple[str, ...]
    w_ih: str
    w_hh: str
    biases: tuple[str, ...]


def parts_of(op: Op) -> Parts:
    """The operands of a recurrent op."""
    x, *rest = uses(op)
    count = 2 if op.kind == "lstm" else 1
    w_ih, w_hh, *biases = rest[count:]
    return Parts(x, tuple(rest[:count]), w_ih, w_hh, tuple(biases))


@dataclass(frozen=True)
class Projection:
    """The product of the inputs of all steps, rows [T * B, I], with their weights [I, gates * H]."""

    rows: Operand
    weights: Operand
    result: Buffer


def projection(low: Lowering, op: Op, parts: Parts) -> Projection:
    """The operands, copied where strides stand against it, and a buffer for the result."""
    y = low.buffers[op.outputs[0]]
    steps, batch, width = low.graph.types[parts.x].shape
    result = low.temporary(f"{y.name}.gates", y.dtype, (steps * batch, low.graph.types[parts.w_ih].shape[0]))
    x = operand(low, parts.x, op) if _dense_rows(low, parts.x) else copied(low, parts.x, op, None)
    rows = Operand(x.buffer, x.dtype, x.offset, (steps * batch, width), x.strides[1:])
    w = operand(low, parts.w_ih, op)
    return Projection(rows, Operand(w.buffer, w.dtype, w.offset, w.shape[::-1], w.strides[::-1]), result)


def states_of(low: Lowering, op: Op, parts: Parts) -> tuple[Operand, ...]:
    """The first states, each row dense."""
    views = (operand(low, name, op) for name in parts.states)
    return tuple(
        v if v.strides[-1] is ONE or v.shape[-1] is ONE else copied(low, name, op, None)
        for v, name in zip(views, parts.states, strict=True)
    )


def with_biases(low: Lowering, op: Op, projected: Buffer, biases: tuple[str, ...]) -> Buffer:
    """The projections with b_ih, and with b_hh but for the GRU's n gate, which adds it inside the reset."""
    if not biases:
        return projected
    gated = low.temporary(f"{op.outputs[0]}.biased", projected.dtype, projected.shape)
    b = NestBuilder(low, gated.name, op.origin)
    row, gate = b.loop(gated.shape, gated.order)
    value = b.load_buffer(projected.name, (row, gate))
    value = b.compute("add", value, b.load(biases[0], (gate,)))
    mask, other = None, None
    if op.kind == "gru":
        mask, other = b.compute("lt", b.index(gate), b.index(projected.shape[1] // 3 * 2)), lit_of(0, projected.dtype)
    hidden_bias = b.load(biases[1], (gate,), mask, other)
    b.store(gated.name, (row, gate), b.compute("add", value, hidden_bias))
    b.done()
    return gated


def inner_bias(low: Lowering, op: Op, parts: Parts, hidden: Expr) -> tuple[Operand, ...]:
    """The part of a gru's b_hh that stands inside its reset; nothing for other cells."""
    if op.kind != "gru" or not parts.biases:
        return ()
    bias = operand(low, parts.biases[1], op)
    if bias.strides[0] is not ONE:
        bias = copied(low, parts.biases[1], op, None)
    return (Operand(bias.buffer, bias.dtype, bias.offset + hidden * 2, (hidden,), (ONE,)),)


def _dense_rows(low: Lowering, x: str) -> bool:
    """True if x [T, B, I] is row-major as it stands, so that [T*B, I] is a view."""
    view = try_operand(low, x)
    if view is None:
        return False
    steps, batch, width = view.strides
    return (width is ONE or view.shape[2] is ONE) and (steps is batch * view.shape[1] or view.shape[0] is ONE)
