"""Nest: what the stages between lowering and kernels work on: loops, template kernels, control flow.

    Nest         ::= LoopNest(...)                       loops.py
                   | TemplateNest(name, template, axes, operands, result, results, origin)
                   | ControlNest(name, kind, predicate, operands, results, branches, origin)
    Template     ::= a frozen dataclass, one class a template: its fields are the kernel's parameters
    Operand      ::= Operand(buffer, dtype, offset, shape, strides)

A template's class stands in the file of codegen/lower/ that emits it; a backend has a table from the class to what
renders it. tests/codegen/test_templates.py holds classes and tables together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

from hardtack.codegen.ir.expr import Expr, const
from hardtack.codegen.ir.graph import Graph, Op, Origin, TensorType
from hardtack.codegen.ir.loops import Axis, Buffer, Load, LoopError, LoopNest, Store
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.machine import Machine


@dataclass(frozen=True)
class Operand:
    """A template's tensor argument: a buffer through an affine view: offset and one stride (elements) a view dim."""

    buffer: str
    dtype: DType
    offset: Expr
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]


@dataclass(frozen=True)
class Request:
    """What a template is asked whether it can compute. operands: one a graph operand, with whether it is a constant."""

    op: Op
    operands: tuple[TensorType, ...]
    constant: tuple[bool, ...]
    result: TensorType


@dataclass(frozen=True)
class RowOperand:
    """A template's first operand that its programs can compute for themselves: a dense row of `length` elements in
    `buffer`, read by `programs` programs, by `columns` columns each."""

    buffer: str
    length: int
    columns: int
    programs: int


@dataclass(frozen=True)
class Workspace:
    """Bytes that a kernel needs besides its operands: of all workers together, and of each."""

    shared: Expr = const(0)
    per_worker: Expr = const(0)


@dataclass(frozen=True)
class Template:
    """A kernel that is written by hand, with its parameters; see the module's grammar.

    kind: its name in texts and names of kernels. roles: of its operands in order; those that end with "?" may be left
    out, the last ones first. dtypes: that the first operand may have. takes_epilogue: nests behind it can be computed
    of its results in registers, point by point.
    """

    kind: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]
    dtypes: ClassVar[tuple[DType, ...]]
    takes_epilogue: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The name in texts and names of kernels, where parameters have a say in it."""
        return self.kind

    @classmethod
    def why_not(cls, request: Request, machine: Machine) -> str | None:
        """Why the template cannot compute an op on a machine; None if it can."""
        dtype = request.operands[0].dtype
        return None if dtype in cls.dtypes else f"the template {cls.kind} takes no {dtype}"

    def batch_axes(self, nest: TemplateNest) -> int:
        """How many of the nest's axes number the batch; those between them and the last one number the rows."""
        return 0

    def row_operand(self, nest: TemplateNest) -> RowOperand | None:
        """The first operand, where the template's programs can compute it for themselves: a prologue."""
        return None

    @property
    def takes_addend(self) -> bool:
        """True if its sums may start from a vector that is added to them: a pass of GPUs."""
        return False

    def workspace(self, nest: TemplateNest) -> Workspace:
        """What a C++ kernel needs. A GPU's has its memory in blocks."""
        return Workspace()

    def parameters(self) -> tuple[tuple[str, object], ...]:
        """The fields by name, in the alphabet's order."""
        return tuple(sorted((f.name, getattr(self, f.name)) for f in fields(self)))

    def verify(self, nest: TemplateNest, buffers: Mapping[str, Buffer]) -> None:
        """Raise LoopError for a nest that breaks what the class says of it."""
        least = sum(not role.endswith("?") for role in self.roles)
        if not least <= len(nest.operands) <= len(self.roles):
            raise LoopError(f"it has {len(nest.operands)} operands, expected {', '.join(self.roles)}")
        if nest.operands[0].dtype not in self.dtypes:
            raise LoopError(
                f"its first operand is {nest.operands[0].dtype}, expected {', '.join(map(str, self.dtypes))}"
            )
        for role, o in zip(self.roles, nest.operands, strict=False):
            if o.dtype is not buffers[o.buffer].dtype:
                raise LoopError(f"its operand {role} is {o.dtype}, but the buffer {buffers[o.buffer].dtype}")
            if len(o.shape) != len(o.strides):
                raise LoopError(f"its operand {role} has {len(o.shape)} dimensions and {len(o.strides)} strides")
        result = buffers[nest.result]
        if tuple(a.extent for a in nest.axes) != tuple(result.shape[d] for d in result.order):
            raise LoopError(f"its axes are not the dimensions of {result.name} in the order of memory")


@dataclass(frozen=True)
class TemplateNest:
    """An op that a template kernel computes.

    `axes` span the output (all parallel), outermost first in the order of `result`'s memory; `result` is the buffer
    that takes the output, dim by dim. An epilogue reads the result at exactly the point (axes). `results`: further
    outputs.
    """

    name: str
    template: Template
    axes: tuple[Axis, ...]
    operands: tuple[Operand, ...]
    result: str
    results: tuple[str, ...]
    origin: Origin = field(default=Origin(), compare=False)

    def reads(self) -> set[str]:
        return {o.buffer for o in self.operands}

    def writes(self) -> set[str]:
        return {self.result, *self.results}


@dataclass(frozen=True)
class ControlNest:
    """A conditional or a loop, done by the plan: its branches are graphs of their own, compiled to their own kernels.

    kind cond: branches (then, orelse), both take `operands`; `predicate` is a bool buffer with one element.
    kind while: branches (cond, body), both take `results` (the carried values, which start as the first operands) and
    the operands left over. `operands` and `results` are row-major buffers.
    """

    name: str
    kind: str
    predicate: str | None
    operands: tuple[str, ...]
    results: tuple[str, ...]
    branches: tuple[Graph, ...]
    origin: Origin = field(default=Origin(), compare=False)

    def reads(self) -> set[str]:
        return {*self.operands, *((self.predicate,) if self.predicate is not None else ())}

    def writes(self) -> set[str]:
        return set(self.results)


Nest = LoopNest | TemplateNest | ControlNest


def walk_buffers(nests: Iterable[Nest]) -> Iterator[str]:
    """Every buffer that the nests mention, in order of first mention."""
    seen: dict[str, None] = {}
    for n in nests:
        names: Iterable[str]
        if isinstance(n, ControlNest):
            names = (*sorted(n.reads()), *n.results)
        elif isinstance(n, TemplateNest):
            names = (*(o.buffer for o in n.operands), n.result, *n.results)
        else:
            names = (s.buffer for s in n.body if isinstance(s, (Load, Store)))
        for name in names:
            seen.setdefault(name)
    return iter(seen)
