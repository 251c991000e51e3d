"""Ops with users' kernels (kernel_code.py) on CPUs: a template whose text is the user's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from hardtack.codegen.ir.expr import Expr, sym
from hardtack.codegen.ir.graph import Op, TensorType
from hardtack.codegen.ir.graph_ops import changed
from hardtack.codegen.ir.kernel_code import ARGUMENT_KINDS, Argument, KernelCode, tensors_in
from hardtack.codegen.ir.loops import Axis
from hardtack.codegen.ir.nests import Operand, Template, TemplateNest, Workspace
from hardtack.codegen.ir.roles import Extent, Memory, Role, need, only
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.operands import operand, row_major_operand
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.machine.machine import Cpu


@dataclass(frozen=True)
class Custom(Template):
    """custom.h: a user's kernel. Fields as in graph.py's grammar; given, made: the operands and the results, the last
    of which are what becomes of the operands `written`. All are whole, but for `strided` operands. in_place: written
    ones whose memory the results have, with the content: the nest has no operand for them."""

    op: str
    code: KernelCode
    arguments: tuple[Argument, ...]
    strided: tuple[int, ...]
    written: tuple[int, ...]
    in_place: tuple[int, ...]
    given: tuple[TensorType, ...]
    made: tuple[TensorType, ...]
    shared: Expr
    per_worker: Expr

    kind = "custom"
    machine = Cpu
    roles = ()
    results = ()
    dtypes = tuple(DType)

    @property
    def label(self) -> str:
        return re.sub(r"\W", "_", self.op.partition(".")[2].partition(".")[0])

    @property
    def fresh(self) -> int:
        """How many results are no operand's next content."""
        return len(self.made) - len(self.written)

    @property
    def read(self) -> tuple[int, ...]:
        """The operands that the nest has, in their order."""
        return tuple(k for k in range(len(self.given)) if k not in self.in_place)

    def changed(self, nest: TemplateNest) -> frozenset[str]:
        results = (nest.result, *nest.results)[self.fresh :]
        return frozenset(r for r, k in zip(results, self.written, strict=True) if k in self.in_place)

    def workspace(self, nest: TemplateNest) -> Workspace:
        return Workspace(self.shared, self.per_worker)

    def operand_roles(self) -> tuple[Role, ...]:
        return tuple(
            Role(f"operand {k}", f"*x{k}", only(t.dtype), Memory.STRIDED if k in self.strided else Memory.WHOLE)
            for k, t in ((k, self.given[k]) for k in self.read)
        )

    def result_roles(self, nest: TemplateNest) -> tuple[Role, ...]:
        return tuple(Role(f"result {k}", f"*y{k}", only(t.dtype)) for k, t in enumerate(self.made))

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        places = range(len(self.given))
        need(tuple(tensors_in(self.arguments)) == tuple(places), "an operand is not one argument")
        need(all(a[0] in ARGUMENT_KINDS for a in self.arguments), "an argument is of no kind")
        need({*self.in_place} <= {*self.written} <= {*places}, f"it writes to {self.written}, in place {self.in_place}")
        need({*self.strided} <= {*places} - {*self.written}, f"it takes any strides of {self.strided}")
        written = tuple(self.given[k] for k in self.written)
        need(
            self.made[self.fresh :] == written, f"what it writes to is {written}, and becomes {self.made[self.fresh :]}"
        )
        stated = {f"*x{k}": t.shape for k, t in enumerate(self.given)}
        return {**stated, **{f"*y{k}": t.shape for k, t in enumerate(self.made)}}


@lowers("custom", on=Cpu)
def lower_custom(low: Lowering, op: Op) -> None:
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
        op.attr_of("code", KernelCode),
        op.tuple_attr("arguments"),
        strided,
        op.tuple_attr("written"),
        in_place,
        tuple(low.graph.type_of(x) for x in op.inputs),
        tuple(low.graph.types[x] for x in op.outputs),
        op.expr_attr("workspace"),
        op.expr_attr("worker_workspace"),
    )
    first, *others = (low.buffers[x] for x in op.outputs)
    axes = tuple(Axis(sym(f"i{d}", extent=first.shape[d]), first.shape[d]) for d in first.order)
    names = tuple(b.name for b in others)
    low.emit(TemplateNest(first.name, what, axes, tuple(operands), first.name, names, op.origin))
