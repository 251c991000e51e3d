"""Products with some of many constant matrices on CPUs: packed one behind the other, and read where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hardtack.codegen.ir.constants import Packing, View
from hardtack.codegen.ir.expr import Expr, const, int_value
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Operand, Template, TemplateNest, Workspace
from hardtack.codegen.ir.roles import Extent, Memory, Role, need, only, summed
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Join, JoinPart, Lowering
from hardtack.codegen.lower.cpu_workspace import PANEL, gemm_nbytes
from hardtack.codegen.lower.grouped_sums import grouped_as_reduction
from hardtack.codegen.lower.operands import copied, is_constant, numbers_of, operand, try_operand, whole
from hardtack.codegen.lower.picked_products import Picked, picked_as_reduction, weights_of
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.template import template
from hardtack.codegen.machine.machine import Cpu

_INDEX = only(DType.I32, DType.I64)


@dataclass(frozen=True)
class WeightsGemm(Template):
    """picked.h: constant matrices [E, K, N] in panels [E, ceil(N/32), ceil(K/pack), 32, pack], of bf16 pairs of K.
    depth: K, which whole pairs do not tell; pack: neighbours of K that lie side by side."""

    depth: int
    pack: int

    machine = Cpu
    dtypes: ClassVar[tuple[DType, ...]] = (DType.F32, DType.BF16, DType.F16)
    takes_epilogue = True

    def operand_roles(self) -> tuple[Role, ...]:
        a, weights, index = self.roles
        return (a, Role(weights.name, f"E N/{PANEL} K/{self.pack} {PANEL} {self.pack}", memory=Memory.WHOLE), index)

    def workspace(self, nest: TemplateNest) -> Workspace:
        rows, columns = nest.axes[-2].extent, nest.axes[-1].extent
        return Workspace(per_worker=gemm_nbytes(rows, columns, nest.operands[0].dtype, None))

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        need(self.pack in (1, 2), f"{self.pack} neighbours of K lie side by side")
        return {"K": const(self.depth)}


@dataclass(frozen=True)
class PickedGemm(WeightsGemm):
    """Matrices a [S, M, K], their rows dense, each times the one of the weights that the index names."""

    kind = "gemm_picked"
    roles = (
        Role("a", "S M K", memory=Memory.ROWS),
        Role("weights", "E N K", memory=Memory.WHOLE),
        Role("picks", "S", _INDEX, memory=Memory.WHOLE),
    )
    results = (Role("result", "S M N", summed),)

    def batch_axes(self, nest: TemplateNest) -> int:
        return 1


@dataclass(frozen=True)
class GroupedGemm(WeightsGemm):
    """Rows of a [M, K] times the weights, of which the ends [E] say where each one's rows end, ascending."""

    kind = "gemm_grouped"
    roles = (
        Role("a", "M K", memory=Memory.ROWS),
        Role("weights", "E N K", memory=Memory.WHOLE),
        Role("ends", "E", _INDEX, memory=Memory.WHOLE),
    )
    results = (Role("result", "M N", summed),)


def lower_picked(low: Lowering, op: Op, picked: Picked) -> None:
    """One template for constants; anything else, and what is stored as codes, as a reduction."""
    weights = weights_of(low, picked)
    if weights is None or weights.dtype not in PickedGemm.dtypes:
        picked_as_reduction(low, op, picked)
        return
    packed, pack = packed_weights(low, weights)
    operands = (_rows(low, op.value(0), op), packed, _dense(low, picked.picks, op))
    template(low, op, PickedGemm(_depth(weights), pack), low.buffers[op.outputs[0]], operands)


@lowers("grouped_matmul", on=Cpu)
def lower_grouped(low: Lowering, op: Op) -> None:
    """Likewise."""
    a, w, ends = op.value(0), op.value(1), op.value(2)
    weights = try_operand(low, w) if is_constant(low, w) else None
    dtype = low.graph.types[a].dtype
    why_not = (
        f"the template {GroupedGemm.kind} takes no {dtype}" if dtype not in GroupedGemm.dtypes
        else "the matrices are no constant" if weights is None or weights.buffer not in low.constants
        else "the matrices are stored as codes" if weights.buffer in low.quantized
        else None
    )  # fmt: skip
    if why_not is not None or weights is None:
        low.decide(op.outputs[0], "reductions", why_not or "")
        grouped_as_reduction(low, op)
        return
    packed, pack = packed_weights(low, weights)
    operands = (_rows(low, a, op), packed, _dense(low, ends, op))
    template(low, op, GroupedGemm(_depth(weights), pack), low.buffers[op.outputs[0]], operands)


def packed_weights(low: Lowering, weights: Operand) -> tuple[Operand, int]:
    """A constant [E, K, N] as panels, matrix by matrix, and how many of K lie side by side in them."""
    view = numbers_of(weights)
    count, k, n = view.shape
    pack = 2 if weights.dtype is DType.BF16 else 1
    shape = (count, -(-n // PANEL), -(-k // pack), PANEL, pack)
    numel = shape[1] * shape[2] * PANEL * pack
    packing = Packing("pairs" if pack == 2 else "panels")
    parts = tuple(
        JoinPart(
            weights.buffer,
            View(view.offset + e * view.strides[0], view.shape[1:], view.strides[1:]),
            View(e * numel, (numel,), (1,)),
            packing,
        )
        for e in range(count)
    )
    name = f"{weights.buffer}.experts.{view.offset}.{'.'.join(map(str, (*view.shape, *view.strides)))}"
    if name not in low.prepacks:
        low.buffers[name] = Buffer(name, weights.dtype, tuple(map(const, shape)), tuple(range(len(shape))))
        low.prepacks[name] = Join(shape, parts)
    return whole(low.buffers[name]), pack


def _depth(weights: Operand) -> int:
    return int_value(weights.shape[1]) or 0


def _rows(low: Lowering, value: str, op: Op) -> Operand:
    """The value with its rows dense."""
    view = operand(low, value, op)
    one: Expr = const(1)
    return view if view.strides[-1] is one or view.shape[-1] is one else copied(low, value, op, None)


def _dense(low: Lowering, value: str, op: Op) -> Operand:
    """A vector of integers that lie side by side, of 32 or 64 bits."""
    view = operand(low, value, op)
    one: Expr = const(1)
    return view if view.strides[-1] is one or view.shape[-1] is one else copied(low, value, op, None)
