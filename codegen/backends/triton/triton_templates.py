"""Template kernels as Triton: which function fills which template."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hardtack.codegen.backends.triton.depthwise import render_depthwise
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.backends.triton.triton_attention import render_attention, render_combine
from hardtack.codegen.backends.triton.triton_conv import render_conv
from hardtack.codegen.backends.triton.triton_gemm import render_gemm
from hardtack.codegen.backends.triton.triton_grouped import render_grouped
from hardtack.codegen.backends.triton.triton_recurrence import render_recurrent
from hardtack.codegen.backends.triton.triton_rows import render_count, render_merge, render_scan, render_sort
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Template
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.lower.gpu_attention import AttentionCombine, TiledAttention
from hardtack.codegen.lower.gpu_conv import TiledConv, TiledDepthwise
from hardtack.codegen.lower.gpu_grouped import Grouped
from hardtack.codegen.lower.gpu_matmul import Gemm
from hardtack.codegen.lower.gpu_recurrence import TiledRecurrence
from hardtack.codegen.lower.gpu_rows import BlockScan, SortCount, SortMerge, SortRows

RENDERERS: dict[type[Template], Callable[[Kernel, Mapping[str, Buffer]], TritonKernel]] = {
    Gemm: render_gemm,
    Grouped: render_grouped,
    TiledConv: render_conv,
    TiledDepthwise: render_depthwise,
    TiledAttention: render_attention,
    AttentionCombine: render_combine,
    TiledRecurrence: render_recurrent,
    BlockScan: render_scan,
    SortRows: render_sort,
    SortMerge: render_merge,
    SortCount: render_count,
}
"""Template -> its renderer."""


def render(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """The kernel of a template group."""
    assert kernel.anchor is not None
    return RENDERERS[type(kernel.anchor.template)](kernel, buffers)
