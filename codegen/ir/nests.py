"""Nest: what the stages between lowering and kernels work on: loops, template kernels, control flow.

    Nest         ::= LoopNest(...)                       loops.py
                   | TemplateNest(name, template, axes, operands, result, results, origin)
                   | ControlNest(name, kind, predicate, operands, results, branches, origin)
                   | ReadNest(name, sym, source, origin)
    Template     ::= a frozen dataclass, one class a template: its fields are the kernel's parameters; its operands and
                     results are Roles (roles.py)
    Operand      ::= Operand(buffer, dtype, offset, shape, strides)

A template's class stands in the file of codegen/lower/ that emits it; what renders it is registered for the class in a
file of the backend. tests/codegen/test_templates.py holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

from hardtack.codegen.ir.expr import ZERO, Expr, Sym, const
from hardtack.codegen.ir.graph import Graph, Op, Origin, TensorType
from hardtack.codegen.ir.loops import Axis, Buffer, Load, LoopError, LoopNest, Store
from hardtack.codegen.ir.roles import Extent, Role, Sizes, need, verify_inside, verify_memory
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.machine import Cpu, Gpu, Machine


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
    `buffer`, read by `programs` programs. columns: of the matrix, that each of them waits for long enough to compute
    something beside."""

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

    kind: its name in texts and names of kernels. machine: the kind that it is for. roles: of its operands in order; the
    last ones may be optional. results: of the result and of further ones. dtypes: that the first operand may have.
    takes_epilogue: nests behind it can be computed of its results in registers, point by point.
    """

    kind: ClassVar[str]
    machine: ClassVar[type[Cpu] | type[Gpu]]
    roles: ClassVar[tuple[Role, ...]]
    results: ClassVar[tuple[Role, ...]]
    dtypes: ClassVar[tuple[DType, ...]]
    takes_epilogue: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The name in texts and names of kernels, where parameters have a say in it."""
        return self.kind

    @classmethod
    def why_not(cls, request: Request, machine: Machine) -> str | None:
        """Why the template cannot compute an op on a machine; None if it can."""
        return cls.why_not_of(request.operands[0].dtype, machine)

    @classmethod
    def why_not_of(cls, dtype: DType, machine: Machine) -> str | None:
        """Why it cannot compute anything of a first operand of that dtype on a machine; None if it can."""
        if not isinstance(machine, cls.machine):
            return f"the template {cls.kind} is for {'CPUs' if cls.machine is Cpu else 'GPUs'}"
        return None if dtype in cls.dtypes else f"the template {cls.kind} takes no {dtype}"

    def batch_axes(self, nest: TemplateNest) -> int:
        """How many of the nest's axes number the batch; those between them and the last one number the rows."""
        return 0

    def row_operand(self, nest: TemplateNest) -> RowOperand | None:
        """The first operand, where the template's programs can compute it for themselves: a prologue."""
        return None

    def takes_halves(self, nest: TemplateNest) -> bool:
        """True if a program may have as many columns of the first half as of the second, those that lie as far into
        it, so that an epilogue reads both at one point."""
        return False

    @property
    def takes_addend(self) -> bool:
        """True if its sums may start from a vector that is added to them: a pass of GPUs."""
        return False

    def changed(self, nest: TemplateNest) -> frozenset[str]:
        """The results that have content before, of which it may leave a part as it is."""
        return frozenset()

    def workspace(self, nest: TemplateNest) -> Workspace:
        """What a C++ kernel needs. A GPU's has its memory in blocks."""
        return Workspace()

    def parameters(self) -> tuple[tuple[str, object], ...]:
        """The fields by name, in the alphabet's order."""
        return tuple(sorted((f.name, getattr(self, f.name)) for f in fields(self)))

    def operand_roles(self) -> tuple[Role, ...]:
        """The roles of the operands, where parameters have a say in them."""
        return self.roles

    def result_roles(self, nest: TemplateNest) -> tuple[Role, ...]:
        """The roles of the results, where parameters or their number have a say in them."""
        return self.results

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        """What the parameters and axes say of names in roles. LoopError for parameters that are wrong by themselves;
        no operand but the first has been looked at."""
        return {}

    def verify_order(self, order: tuple[int, ...]) -> None:
        """Raise LoopError for an order of the result's dimensions in memory in which the kernel does not write it."""
        need(order == tuple(range(len(order))), f"its result is in the order {order}, expected row-major")

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        """Raise LoopError for sizes that roles agree in, but not with the parameters or what the kernel can do."""

    def verify(self, nest: TemplateNest, buffers: Mapping[str, Buffer]) -> None:
        """Raise LoopError for a nest that breaks what the class says of it."""
        roles, results = self.operand_roles(), self.result_roles(nest)
        least = sum(not role.optional for role in roles)
        if not least <= len(nest.operands) <= len(roles):
            raise LoopError(f"it has {len(nest.operands)} operands, expected {', '.join(map(str, roles))}")
        if 1 + len(nest.results) != len(results):
            raise LoopError(f"it has {1 + len(nest.results)} results, expected {', '.join(map(str, results))}")
        result = buffers[nest.result]
        first = nest.operands[0].dtype if nest.operands else result.dtype
        if first not in self.dtypes:
            raise LoopError(f"its first operand is {first}, expected {', '.join(map(str, self.dtypes))}")
        if tuple(a.extent for a in nest.axes) != tuple(result.shape[d] for d in result.order):
            raise LoopError(f"its axes are not the dimensions of {result.name} in the order of memory")
        self.verify_order(result.order)
        sizes = Sizes(self.extents(nest))
        computes = all(a.extent is not ZERO for a in nest.axes)  # over no batch nothing is read, whatever the views
        for role, o in zip(roles, nest.operands, strict=False):
            _verify_operand(role, o, first, buffers[o.buffer], sizes)
            if computes:
                verify_inside(o.shape, o.strides, o.offset, buffers[o.buffer].shape, f"its operand {role.name}")
        for role, name in zip(results, (nest.result, *nest.results), strict=True):
            _verify_result(role, buffers[name], first, sizes, name == nest.result)
        sizes.agree()
        self.verify_sizes(nest, sizes)


def _verify_operand(role: Role, o: Operand, first: DType, buffer: Buffer, sizes: Sizes) -> None:
    whose = f"its operand {role.name}"
    if o.dtype is not buffer.dtype:
        raise LoopError(f"{whose} is {o.dtype}, but the buffer {buffer.dtype}")
    _verify_dtype(role, o.dtype, first, whose)
    if len(o.shape) != len(o.strides):
        raise LoopError(f"{whose} has {len(o.shape)} dimensions and {len(o.strides)} strides")
    sizes.take(role, o.shape, whose)
    verify_memory(role, o.shape, o.strides, whose)


def _verify_result(role: Role, buffer: Buffer, first: DType, sizes: Sizes, is_first: bool) -> None:
    """The template's class says in which order the first one may lie; the others are row-major."""
    whose = f"its {role.name}"
    _verify_dtype(role, buffer.dtype, first, whose)
    sizes.take(role, buffer.shape, whose)
    need(is_first or buffer.order == tuple(range(len(buffer.order))), f"{whose} is not row-major")


def _verify_dtype(role: Role, dtype: DType, first: DType, whose: str) -> None:
    allowed = role.dtypes(first)
    if dtype not in allowed:
        raise LoopError(f"{whose} is {dtype}, expected {', '.join(map(str, allowed))}")


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


@dataclass(frozen=True)
class ReadNest:
    """A size that is known from here on, done by the plan: `sym` takes the value of `source`, an i64 buffer with one
    element. Nothing that stands behind it is computed before it."""

    name: str
    sym: Sym
    source: str
    origin: Origin = field(default=Origin(), compare=False)

    def reads(self) -> set[str]:
        return {self.source}

    def writes(self) -> set[str]:
        return set()


Nest = LoopNest | TemplateNest | ControlNest | ReadNest


def walk_buffers(nests: Iterable[Nest]) -> Iterator[str]:
    """Every buffer that the nests mention, in order of first mention."""
    seen: dict[str, None] = {}
    for n in nests:
        names: Iterable[str]
        if isinstance(n, ControlNest):
            names = (*sorted(n.reads()), *n.results)
        elif isinstance(n, ReadNest):
            names = (n.source,)
        elif isinstance(n, TemplateNest):
            names = (*(o.buffer for o in n.operands), n.result, *n.results)
        else:
            names = (s.buffer for s in n.body if isinstance(s, (Load, Store)))
        for name in names:
            seen.setdefault(name)
    return iter(seen)
