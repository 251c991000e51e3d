"""Users' CUDA kernels: their text as it is, with the buffers and numbers that they are passed."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from hardtack.codegen.backends.triton.kernel import Argument, TritonKernel, anchored
from hardtack.codegen.backends.triton.triton_custom import FLOAT_WORDS
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.ir.expr import Expr, as_expr, const
from hardtack.codegen.ir.kernel_code import CUDA_NUMBERS
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.lower.gpu_custom import WARP, CudaCall


@renders(CudaCall)
def render_cuda(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands and results by the pointers of their buffers, floats by their bits."""
    anchor, what = anchored(kernel, CudaCall)
    lies = what.buffers(anchor)
    memory = [b.name for b in kernel.buffers]
    arguments: list[Argument] = []
    ints: list[Expr] = []
    for n, (type_, (kind, value)) in enumerate(zip(what.code.parameters, what.arguments, strict=True)):
        if kind in ("tensor", "result"):
            arguments.append(Argument(f"p{n}", type_, ("buffer", memory.index(lies[kind, value])), True))
            continue
        arguments.append(Argument(f"p{n}", type_, ("int", len(ints))))
        if kind == "float":
            packed, word = FLOAT_WORDS[CUDA_NUMBERS[type_]]
            ints.append(const(*struct.unpack(word, struct.pack(packed, value))))
        else:
            ints.append(as_expr(value))
    return TritonKernel(
        kernel.name,
        what.code.source,
        tuple(arguments),
        {},
        tuple(memory),
        kernel.writes,
        kernel.reads,
        tuple(ints),
        what.grid,
        kernel.origin,
        what.code.threads // WARP,
        whole=True,
        cuda=what.code,
    )
