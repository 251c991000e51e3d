"""Calls of products with some of many constant matrices."""

from __future__ import annotations

from collections.abc import Sequence

from hardtack.codegen.backends.cpp.call import Call, Parameters, calls
from hardtack.codegen.ir.expr import product
from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.lower.cpu_picked import GroupedGemm, PickedGemm


@calls(PickedGemm)
def _gemm_picked(a: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    left, weights, picks = a.operands
    stride, lda = p.add("matrix_stride", left.strides[0]), p.add("lda", left.strides[1])
    apart = p.add("weight_stride", product(weights.shape[1:]))
    sizes = (picks.shape[0], weights.shape[0], a.axes[-2].extent, a.axes[-1].extent, left.shape[-1])
    names = [p.add(n, e) for n, e in zip(("batch", "count", "rows", "columns", "depth"), sizes, strict=True)]
    listed = ", ".join((pointers[0], stride, lda, pointers[1], apart, pointers[2], *names))
    return Call(("picked.h",), (), f"ht::gemm_picked(args, {listed}, epilogue)")


@calls(GroupedGemm)
def _gemm_grouped(a: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    left, weights, ends = a.operands
    lda, apart = p.add("lda", left.strides[0]), p.add("weight_stride", product(weights.shape[1:]))
    sizes = (ends.shape[0], a.axes[-2].extent, a.axes[-1].extent, left.shape[-1])
    names = [p.add(n, e) for n, e in zip(("groups", "rows", "columns", "depth"), sizes, strict=True)]
    listed = ", ".join((pointers[0], lda, pointers[1], apart, pointers[2], *names))
    return Call(("picked.h",), (), f"ht::gemm_grouped(args, {listed}, epilogue)")
