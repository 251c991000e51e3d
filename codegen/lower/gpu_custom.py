"""Ops with users' Triton and CUDA kernels (kernel_code.py): their text is the user's, launched as the user says."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.expr import ZERO, Expr, sym
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_ops import changed
from hardtack.codegen.ir.kernel_code import (
    CUDA_NUMBERS,
    CUDA_POINTERS,
    TRITON_KINDS,
    Argument,
    CudaCode,
    KernelCode,
    TritonCode,
)
from hardtack.codegen.ir.loops import Axis
from hardtack.codegen.ir.nests import Operand, TemplateNest
from hardtack.codegen.ir.roles import Extent, Sizes, need
from hardtack.codegen.lower.builder import Lowering, UnsupportedOp
from hardtack.codegen.lower.custom import UsersKernel, code_of, runs_on, without_kernel
from hardtack.codegen.lower.operands import copied, row_major_operand
from hardtack.codegen.lower.pointwise import copy_value
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.machine.machine import Gpu

WARP = 32
MOST_THREADS = 1024
"""Of a block of CUDA."""
MOST_SHARED_NBYTES = 232448
"""Of a block, on the GPUs that have most."""


@dataclass(frozen=True)
class KernelLaunch(UsersKernel):
    """A launch of a user's kernel on a GPU. grid: programs in x, y and z. What it writes to has its content before: the
    nest has no operand for it."""

    code: TritonCode | CudaCode
    grid: tuple[Expr, Expr, Expr]

    machine = Gpu

    def buffers(self, nest: TemplateNest) -> dict[tuple[str, int], str]:
        """Where what a parameter is passed lies, by its argument: ("tensor", k) or ("result", k)."""
        results = (nest.result, *nest.results)
        found = {("result", k): buffer for k, buffer in enumerate(results)}
        found |= {("tensor", k): buffer for k, buffer in zip(self.written, results[self.fresh :], strict=True)}
        return found | {("tensor", k): o.buffer for k, o in zip(self.read, nest.operands, strict=True)}

    @property
    def label(self) -> str:
        return self.code.function

    @property
    def read(self) -> tuple[int, ...]:
        return tuple(k for k in range(len(self.given)) if k not in self.written)

    def changed(self, nest: TemplateNest) -> frozenset[str]:
        return frozenset((nest.result, *nest.results)[self.fresh :])

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        need(all(a[0] in TRITON_KINDS for a in self.arguments), "an argument is of no kind")
        need(len(self.arguments) == len(self.code.parameters), "its arguments are not one a parameter")
        need(len(self.grid) == 3, f"its grid has {len(self.grid)} dimensions")
        for kind, count in (("tensor", len(self.given)), ("result", self.fresh)):
            named = {a[1] for a in self.arguments if a[0] == kind}
            need(named == {*range(count)}, f"it is passed {kind}s {sorted(named)} of {count}")
        return super().extents(nest)

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        for o in nest.operands:  # a kernel has no parameter for where it starts
            need(o.offset is ZERO, f"its operand in {o.buffer} starts at {o.offset}")


@dataclass(frozen=True)
class TritonCall(KernelLaunch):
    """A launch of a user's Triton kernel."""

    code: TritonCode

    kind = "triton_call"

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        for what, count, most in (("warps", self.code.num_warps, 32), ("CTAs", self.code.num_ctas, 16)):
            need(1 <= count <= most and count & (count - 1) == 0, f"it has {count} {what}")
        need(self.code.num_stages >= 0 and self.code.configs > 0, "it has a negative number of stages or of configs")
        return super().extents(nest)


@dataclass(frozen=True)
class CudaCall(KernelLaunch):
    """A launch of a user's CUDA kernel."""

    code: CudaCode

    kind = "cuda_call"

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        found = super().extents(nest)
        threads, shared_nbytes = self.code.threads, self.code.shared_nbytes
        need(WARP <= threads <= MOST_THREADS and threads % WARP == 0, f"its blocks have {threads} threads")
        need(0 <= shared_nbytes <= MOST_SHARED_NBYTES, f"its blocks have {shared_nbytes} bytes of shared memory")
        for a, stated in zip(self.arguments, self.code.parameters, strict=True):
            held = self._type_of(a)
            need(stated in held, f"a parameter of {stated} is passed {' or '.join(held)}")
        return found

    def _type_of(self, a: Argument) -> tuple[str, ...]:
        """The types in C++ of which a parameter may be that is passed an argument."""
        if a[0] in ("int", "float"):
            return tuple(CUDA_NUMBERS)[:2] if a[0] == "int" else tuple(CUDA_NUMBERS)[2:]
        types = self.given if a[0] == "tensor" else self.made
        element = CUDA_POINTERS[types[a[1]].dtype]
        changes = a[0] == "result" or a[1] in self.written
        return (f"{element}*" if changes else f"const {element}*",)


@lowers("custom", on=Gpu)
def lower_launch(low: Lowering, op: Op) -> None:
    code = code_of(op)
    if isinstance(code, KernelCode) or not runs_on(code, low.machine.device):
        raise UnsupportedOp(op.origin, low.machine.name, without_kernel(op))
    written = op.tuple_attr("written")
    for out, k in changed(op).items():
        if out not in low.in_place:
            copy_value(low, op.value(k), out, op)
    x, y, z = op.tuple_attr("grid")
    given = tuple(low.graph.type_of(x) for x in op.inputs)
    made = tuple(low.graph.types[x] for x in op.outputs)
    arguments, name = op.tuple_attr("arguments"), op.str_attr("op")
    what: KernelLaunch
    if isinstance(code, TritonCode):
        what = TritonCall(name, arguments, (), written, given, made, code, (x, y, z))
    else:
        what = CudaCall(name, arguments, (), written, given, made, code, (x, y, z))
    operands = tuple(_at_the_start(low, op.value(k), op) for k in what.read)
    first, *others = (low.buffers[x] for x in op.outputs)
    axes = tuple(Axis(sym(f"i{d}", extent=first.shape[d]), first.shape[d]) for d in first.order)
    names = tuple(b.name for b in others)
    name = low.fresh(first.name) if written else first.name  # beside the nest that copies
    low.emit(TemplateNest(name, what, axes, operands, first.name, names, op.origin))


def _at_the_start(low: Lowering, value: str, op: Op) -> Operand:
    """The value row-major from the start of a buffer on, copied where it is not."""
    found = row_major_operand(low, value, op)
    return found if found.offset is ZERO else copied(low, value, op, None)
