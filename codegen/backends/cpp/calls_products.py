"""Calls of products."""

from __future__ import annotations

from collections.abc import Sequence

from hardtack.codegen.backends.cpp.call import Call, Parameters, blocks, calls, parameters, quad_blocks
from hardtack.codegen.backends.cpp.cpp_body import storage_type
from hardtack.codegen.ir.expr import ONE, Expr, const, product
from hardtack.codegen.ir.nests import Operand, TemplateNest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.cpu_matmul import DynamicGemm, PackedGemm, PairedGemm, QuadGemm, QuantizedGemm
from hardtack.codegen.lower.cpu_quantized import CodeStep


@calls(PackedGemm)
@calls(PairedGemm)
@calls(QuadGemm)
def _gemm_packed(a: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    left = a.operands[0]
    m, n, k = product(x.extent for x in a.axes[:-1]), a.axes[-1].extent, left.shape[-1]
    sizes = [p.add("lda", left.strides[-2]), p.add("rows", m), p.add("columns", n), p.add("depth", k)]
    lda, rows, columns, depth = sizes
    of = parameters(a, PackedGemm)
    cut = quad_blocks(of.seven_bits) if isinstance(of, QuadGemm) else blocks(of.plan, left)
    call = f"ht::gemm_packed{cut}(args, {pointers[0]}, {lda}, {pointers[1]}, {rows}, {columns}, {depth}, epilogue)"
    return Call(_headers(left.dtype), (), call)


def _headers(dtype: DType) -> tuple[str, ...]:
    return ("gemm.h", "int8.h") if dtype is DType.I8 else ("gemm.h",)


_STEPS = {"sub": "Subtract", "mul": "Multiply", "add": "Add"}
_CODES = {
    (DType.I8, 4): "ht::SignedNibbles",
    (DType.U8, 4): "ht::UnsignedNibbles",
    (DType.F8E4M3, 4): "ht::E2m1Nibbles",
    (DType.F8E4M3, 8): "ht::E4m3",
    (DType.F8E5M2, 8): "ht::E5m2",
}
"""Types of codes that stand for other numbers than what C++ takes their bytes for."""
_TABLES = {DType.F8E4M3: "ht::E4m3", DType.F8E8M0: "ht::E8m0"}
"""Of the numbers of tables, likewise."""


@calls(QuantizedGemm)
def _gemm_quantized(a: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    t, (left, codes, *others) = parameters(a, QuantizedGemm), a.operands
    tables = others[: len(t.steps)]
    m, n, k = product(x.extent for x in a.axes[:-1]), a.axes[-1].extent, left.shape[-1]
    sizes = [p.add("lda", left.strides[-2]), p.add("rows", m), p.add("columns", n), p.add("depth", k)]
    lda, rows, columns, depth = sizes
    stored = storage_type(codes.dtype)
    code = _CODES.get((codes.dtype, t.bits), stored)
    steps = (
        f"ht::{_STEPS[s.kind]}<{storage_type(s.result)}, {_table_type(s, table.dtype)}>"
        for s, table in zip(t.steps, tables, strict=True)
    )
    weights = f"ht::QuantizedPanels<{', '.join((code, *steps))}>"
    read = pointers[1] if code == stored else f"reinterpret_cast<const {code}*>({pointers[1]})"
    first = 2 + len(tables)
    listed = ", ".join(pointers[2:first]) or "nullptr"
    given = iter(pointers[first : 2 + len(others)])
    factors = ", ".join(f"*{next(given)}" if s.scaled else "1.0f" for s in t.steps)
    last = f", {{{factors}}}" if len(others) > len(tables) else ""
    setup = f"const {weights} weights = {{{read}, {{{listed}}}, {depth}, {t.group}{last}}};"
    call = f"ht::gemm_quantized{blocks(t.plan, left)}(args, {pointers[0]}, {lda}, weights, {rows}, {columns}, epilogue)"
    return Call(("quantized.h",), (setup,), call)


def _table_type(step: CodeStep, dtype: DType) -> str:
    stored = _TABLES.get(dtype) or storage_type(dtype)
    return f"ht::Factored<{stored}>" if step.scaled else stored


def _batch_strides(o: Operand) -> tuple[Expr, ...]:
    """(outer, inner) strides of up to two batch dimensions."""
    return (*(const(0),) * (4 - len(o.strides)), *o.strides[:-2])


@calls(DynamicGemm)
def _gemm_dynamic(a: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    left, right = a.operands
    batch = (*(ONE,) * (4 - len(left.shape)), *left.shape[:-2])
    m, n, k = a.axes[-2].extent, a.axes[-1].extent, left.shape[-1]
    names = [
        p.add(x, e) for x, e in zip(("outer", "inner", "rows", "columns", "depth"), (*batch, m, n, k), strict=True)
    ]
    setup = [f"const ht::DynamicShape shape{{{', '.join(names)}}};"]
    for side, o, pointer in (("a", left, pointers[0]), ("b", right, pointers[1])):
        strides = (*_batch_strides(o), *o.strides[-2:])
        spelled = [p.add(f"{side}_stride{i}", s) for i, s in enumerate(strides)]
        setup.append(f"const ht::MatrixBatch<{storage_type(o.dtype)}> {side}{{{', '.join([pointer, *spelled])}}};")
    call = f"ht::gemm_dynamic{blocks(parameters(a, DynamicGemm).plan, left)}(args, shape, a, b, epilogue)"
    return Call(_headers(left.dtype), tuple(setup), call)
