"""Sorting and scans on CPUs, along any dimension of a dense value."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.nests import Template, TemplateNest, Workspace
from hardtack.codegen.ir.roles import Memory, Role, Sizes, only
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.cpu_workspace import sort_nbytes
from hardtack.codegen.lower.operands import around, row_major_operand
from hardtack.codegen.lower.rows import AnyScan, verify_kept
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.template import demand, template
from hardtack.codegen.machine.machine import Cpu


@dataclass(frozen=True)
class Sort(Template):
    """sort.h: x, dense and row-major, sorted along `dim`; the results are the values and their i64 places in x.

    top: only as many as the result has, as topk does.
    """

    dim: int
    descending: bool
    top: bool

    kind = "sort"
    machine = Cpu
    roles = (Role("x", "*shape", memory=Memory.WHOLE),)
    results = (Role("values", "*kept"), Role("places", "*kept", only(DType.I64)))
    dtypes = tuple(d for d in DType if not d.is_float8)

    @property
    def label(self) -> str:
        return "topk" if self.top else "sort"

    def workspace(self, nest: TemplateNest) -> Workspace:
        x = nest.operands[0]
        return Workspace(per_worker=sort_nbytes(around(x.shape, self.dim)[1], x.dtype.nbytes))

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        verify_kept(sizes.many("shape"), sizes.many("kept"), self.dim, self.top)


@dataclass(frozen=True)
class Scan(AnyScan):
    """scan.h: see AnyScan."""

    kind = "scan"
    machine = Cpu


@lowers("sort", "topk", on=Cpu)
def lower_sorted(low: Lowering, op: Op) -> None:
    """sort and topk along a dimension: rows are gathered to the end first where it is not the last."""
    demand(low, op, Sort)
    x = op.value(0)
    dim = op.int_attr("dim")
    view = row_major_operand(low, x, op)
    values, indices = low.buffers[op.outputs[0]], low.buffers[op.outputs[1]]
    top = op.kind == "topk"
    what = Sort(dim, op.bool_attr("largest" if top else "descending"), top)
    template(low, op, what, values, (view,), (indices.name,))


@lowers("scan", on=Cpu)
def lower_scan(low: Lowering, op: Op) -> None:
    demand(low, op, Scan)
    x = op.value(0)
    out = low.buffers[op.outputs[0]]
    view = row_major_operand(low, x, op)
    dim = op.int_attr("dim")
    template(low, op, Scan(op.str_attr("kind"), dim), out, (view,))
