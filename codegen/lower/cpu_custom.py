"""Ops with users' C++ kernels (kernel_code.py): a template whose text is the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hardtack.codegen.ir.expr import Expr, sym
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_ops import changed
from hardtack.codegen.ir.kernel_code import ARGUMENT_KINDS, KernelCode, tensors_in
from hardtack.codegen.ir.loops import Axis
from hardtack.codegen.ir.nests import Operand, TemplateNest, Workspace
from hardtack.codegen.ir.roles import Extent, need
from hardtack.codegen.lower.builder import Lowering, UnsupportedOp
from hardtack.codegen.lower.custom import UsersKernel, code_of, runs_on, without_kernel
from hardtack.codegen.lower.operands import operand, row_major_operand
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.machine.machine import Cpu


@dataclass(frozen=True)
class Custom(UsersKernel):
    """custom.h: a user's kernel. in_place: written operands whose memory the results have, with the content: the nest
    has no operand for them."""

    code: KernelCode
    in_place: tuple[int, ...]
    shared: Expr
    per_worker: Expr

    kind = "custom"
    machine = Cpu

    @property
    def read(self) -> tuple[int, ...]:
        return tuple(k for k in range(len(self.given)) if k not in self.in_place)

    def changed(self, nest: TemplateNest) -> frozenset[str]:
        results = (nest.result, *nest.results)[self.fresh :]
        return frozenset(r for r, k in zip(results, self.written, strict=True) if k in self.in_place)

    def workspace(self, nest: TemplateNest) -> Workspace:
        return Workspace(self.shared, self.per_worker)

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        need(tuple(tensors_in(self.arguments)) == tuple(range(len(self.given))), "an operand is not one argument")
        need(all(a[0] in ARGUMENT_KINDS for a in self.arguments), "an argument is of no kind")
        need({*self.in_place} <= {*self.written}, f"it writes to {self.written}, in place {self.in_place}")
        return super().extents(nest)


@lowers("custom", on=Cpu)
def lower_custom(low: Lowering, op: Op) -> None:
    code = code_of(op)
    if not isinstance(code, KernelCode) or not runs_on(code, low.machine.device):
        raise UnsupportedOp(op.origin, low.machine.name, without_kernel(op))
    strided = op.tuple_attr("strided")
    in_place = tuple(k for out, k in changed(op).items() if out in low.in_place)
    operands: list[Operand] = []
    for k in range(len(op.inputs)):
        if k in in_place:
            continue
        find: Callable[[Lowering, str, Op], Operand] = operand if k in strided else row_major_operand
        operands.append(find(low, op.value(k), op))
    what = Custom(
        op.str_attr("op"),
        op.tuple_attr("arguments"),
        strided,
        op.tuple_attr("written"),
        tuple(low.graph.type_of(x) for x in op.inputs),
        tuple(low.graph.types[x] for x in op.outputs),
        code,
        in_place,
        op.expr_attr("workspace"),
        op.expr_attr("worker_workspace"),
    )
    first, *others = (low.buffers[x] for x in op.outputs)
    axes = tuple(Axis(sym(f"i{d}", extent=first.shape[d]), first.shape[d]) for d in first.order)
    names = tuple(b.name for b in others)
    low.emit(TemplateNest(first.name, what, axes, tuple(operands), first.name, names, op.origin))
