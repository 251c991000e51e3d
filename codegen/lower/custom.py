"""What the lowering of ops with users' kernels (kernel_code.py) has in common."""

from __future__ import annotations

from hardtack.codegen.ir.graph import Graph, Op
from hardtack.codegen.ir.kernel_code import KernelCode


def without_kernel(op: Op) -> str:
    """Why an op with a C++ kernel alone cannot be computed, for UnsupportedOp."""
    code = op.attr_of("code", KernelCode)
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
