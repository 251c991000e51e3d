"""Template kernels as Triton: which function fills which template, and which of them take an epilogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hardtack.codegen.backends.triton.attention import render_attention, render_combine
from hardtack.codegen.backends.triton.conv import render_conv
from hardtack.codegen.backends.triton.depthwise import render_depthwise
from hardtack.codegen.backends.triton.gemm import render_gemm
from hardtack.codegen.backends.triton.grouped import render_grouped
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.backends.triton.recurrent import render_recurrent
from hardtack.codegen.backends.triton.rows import render_count, render_merge, render_scan, render_sort
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.ir.loops import Buffer, TemplateNest
from hardtack.codegen.ir.schedule import Kernel

RENDERERS: dict[str, Callable[[Kernel, Mapping[str, Buffer]], TritonKernel]] = {
    "gemm": render_gemm,
    "grouped": render_grouped,
    "conv": render_conv,
    "depthwise": render_depthwise,
    "attention": render_attention,
    "attention_combine": render_combine,
    **dict.fromkeys(GATES, render_recurrent),
    "scan": render_scan,
    "sort_rows": render_sort,
    "sort_merge": render_merge,
    "sort_count": render_count,
}
"""Template kind -> its renderer."""

EPILOGUES = frozenset({"gemm", "grouped", "conv", "depthwise"})
"""The kinds whose results other nests can be computed from in registers."""


def batch_axes(anchor: TemplateNest) -> int:
    """How many of the anchor's axes its template counts as the batch."""
    count = dict(anchor.attrs).get("batch_axes", 0)
    assert isinstance(count, int)
    return count


def render(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """The kernel of a template group."""
    assert kernel.anchor is not None
    return RENDERERS[kernel.anchor.kind](kernel, buffers)
