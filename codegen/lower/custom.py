"""What the lowering of ops with users' kernels (kernel_code.py) has in common."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hardtack.codegen.ir.graph import Graph, Op, TensorType
from hardtack.codegen.ir.kernel_code import Argument, Code, CudaCode, TritonCode
from hardtack.codegen.ir.nests import Template, TemplateNest
from hardtack.codegen.ir.roles import Extent, Memory, Role, need, only
from hardtack.codegen.ir.types import DType


@dataclass(frozen=True)
class UsersKernel(Template):
    """A user's kernel. Fields as in graph.py's grammar; given, made: the operands and the results, the last of which
    are what becomes of the operands `written`. All are whole, but for `strided` operands."""

    op: str
    arguments: tuple[Argument, ...]
    strided: tuple[int, ...]
    written: tuple[int, ...]
    given: tuple[TensorType, ...]
    made: tuple[TensorType, ...]

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
        """The operands that the nest has, in their order: a result has the content of others already."""
        raise NotImplementedError

    def operand_roles(self) -> tuple[Role, ...]:
        return tuple(
            Role(f"operand {k}", f"*x{k}", only(t.dtype), Memory.STRIDED if k in self.strided else Memory.WHOLE)
            for k, t in ((k, self.given[k]) for k in self.read)
        )

    def result_roles(self, nest: TemplateNest) -> tuple[Role, ...]:
        return tuple(Role(f"result {k}", f"*y{k}", only(t.dtype)) for k, t in enumerate(self.made))

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        places = range(len(self.given))
        need({*self.strided} <= {*places} - {*self.written}, f"it takes any strides of {self.strided}")
        need({*self.written} <= {*places}, f"it writes to {self.written}")
        written = tuple(self.given[k] for k in self.written)
        need(
            self.made[self.fresh :] == written, f"what it writes to is {written}, and becomes {self.made[self.fresh :]}"
        )
        stated = {f"*x{k}": t.shape for k, t in enumerate(self.given)}
        return {**stated, **{f"*y{k}": t.shape for k, t in enumerate(self.made)}}


def code_of(op: Op) -> Code:
    """The kernel of a custom op."""
    found = op.attr("code")
    assert isinstance(found, Code), f"code of {op.kind} is {found!r}"
    return found


def runs_on(code: Code, device: str) -> bool:
    """Whether a kernel is for a kind of device, cpu, cuda or hip."""
    if isinstance(code, CudaCode):
        return device == "cuda"
    return isinstance(code, TritonCode) is (device != "cpu")


def without_kernel(op: Op) -> str:
    """Why an op with a kernel for other devices cannot be computed, for UnsupportedOp."""
    code = code_of(op)
    if isinstance(code, TritonCode):
        return (
            f"its kernel, {code.function}, is Triton's, for GPUs; call it in an op of torch.library.triton_op and give "
            'CPUs a function of it, as export(decompositions={"mylib::op": function}) or kernels={"mylib::op": '
            "CppKernel(...)}, or leave these targets out: there is no kernel of it"
        )
    if isinstance(code, CudaCode):
        return (
            f"its kernel, {code.function}, is CUDA C++, for NVIDIA's GPUs; give the op a decomposition or a lowering, "
            "which all targets take, or leave these targets out: there is no kernel of it"
        )
    what = "a function of the program, for CPUs" if code.host else "C++ for CPUs"
    return (
        f"its kernel, {code.function}, is {what}; give the op a decomposition or a "
        "lowering, which all targets take, or leave these targets out: there is no kernel of it"
    )


def custom_ops(graph: Graph) -> list[Op]:
    """The ops with users' kernels, in branches and loops, too."""
    found: list[Op] = []
    for op in graph.ops:
        found += [op] if op.kind == "custom" else []
        for _, value in op.attrs:
            found += custom_ops(value) if isinstance(value, Graph) else []
    return found
