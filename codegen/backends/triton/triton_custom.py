"""Users' Triton kernels: their text as it is, with what is known of the numbers that they are passed."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from hardtack.codegen.backends.triton.kernel import Argument, TritonKernel, anchored
from hardtack.codegen.backends.triton.sketch import divisor
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.ir.expr import ONE, Expr, as_expr, bounds, const
from hardtack.codegen.ir.kernel_code import TRITON_POINTERS, Constexpr, TritonParameter
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.lower.gpu_custom import TritonCall

FLOAT_WORDS = {"fp32": ("<f", "<i"), "fp64": ("<d", "<q")}
"""Of a float parameter, how its bits become the integer that a launch passes."""
NARROW = 2**31


@renders(TritonCall)
def render_launch(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands and results by the pointers of their buffers, which are multiples of 16."""
    anchor, what = anchored(kernel, TritonCall)
    lies = what.buffers(anchor)
    memory = [b.name for b in kernel.buffers]
    arguments: list[Argument] = []
    constexprs: dict[str, Constexpr] = dict(what.code.constexprs)
    ints: list[Expr] = []
    for p, (kind, value) in zip(what.code.parameters, what.arguments, strict=True):
        if kind in ("tensor", "result"):
            buffer = lies[kind, value]
            type_ = p.type or TRITON_POINTERS[buffers[buffer].dtype]
            at = p.specialised and p.aligned
            arguments.append(Argument(p.name, type_, ("buffer", memory.index(buffer)), at))
        elif kind == "int" and as_expr(value) is ONE and p.specialised:
            constexprs[p.name] = 1
        else:
            argument, word = _number(p, kind, value, len(ints))
            arguments.append(argument)
            ints.append(word)
    return TritonKernel(
        kernel.name,
        what.code.text,
        tuple(arguments),
        constexprs,
        tuple(memory),
        kernel.writes,
        kernel.reads,
        tuple(ints),
        what.grid,
        kernel.origin,
        what.code.num_warps,
        what.code.num_stages,
        what.code.num_ctas,
        options=dict(what.code.options),
        whole=True,
    )


def _number(p: TritonParameter, kind: str, value: float | Expr, at: int) -> tuple[Argument, Expr]:
    """A parameter that is a number, and what a launch passes as its int number `at`."""
    if kind == "float":
        type_ = p.type or "fp32"
        packed, word = FLOAT_WORDS[type_]
        return Argument(p.name, type_, ("int", at)), const(*struct.unpack(word, struct.pack(packed, value)))
    size = as_expr(value)  # type: ignore[arg-type]
    multiple = p.specialised and p.aligned and divisor(size) == 16
    return Argument(p.name, p.type or _int_type(size), ("int", at), multiple), size


def _int_type(size: Expr) -> str:
    """The type in which every value that the number may have fits, as Triton chooses it for each."""
    least, most = bounds(size)
    narrow = least is not None and most is not None and least >= -NARROW and most < NARROW
    return "i32" if narrow else "i64"
