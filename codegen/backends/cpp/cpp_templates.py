"""Template kernels as C++: a call of a template from templates/cpp with the epilogue of the group.

One function a template: it gives the sizes as parameters, and the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.backends.cpp import calls_conv, calls_rows
from hardtack.codegen.backends.cpp.call import Call, Parameters
from hardtack.codegen.backends.cpp.cpp_body import storage_type
from hardtack.codegen.backends.cpp.cpp_loops import empty_checks, indent, refusal
from hardtack.codegen.backends.cpp.epilogue import epilogue
from hardtack.codegen.ir.expr import ONE, Expr, const, product
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Operand, Template, TemplateNest
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.lower.cpu_matmul import DynamicGemm, PackedGemm


@dataclass(frozen=True)
class Rendered:
    """A kernel's source and what its launch passes."""

    source: str
    ints: tuple[Expr, ...]


def render(kernel: Kernel, buffers: Mapping[str, Buffer], name: str) -> Rendered:
    """The source of a template kernel; `name` is the function."""
    anchor = kernel.anchor
    assert anchor is not None
    parameters = Parameters()
    memory = [b.name for b in kernel.buffers]
    pointers = [
        f"b{memory.index(o.buffer)} + {parameters.add(f'at{k}', o.offset)}" for k, o in enumerate(anchor.operands)
    ]
    call = CALLS[type(anchor.template)](anchor, pointers, parameters)
    outputs = {"RESULT": anchor.result, **{f"EXTRA{k}": r for k, r in enumerate(anchor.results)}}
    setup, call_text = list(call.setup), call.call
    for word, buffer in outputs.items():
        if buffer in memory:
            pointer = f"b{memory.index(buffer)}"
            setup, call_text = [x.replace(word, pointer) for x in setup], call_text.replace(word, pointer)
    lines: list[str] = []
    construction: list[str] = []
    if anchor.template.takes_epilogue:
        functor = epilogue(kernel, buffers, parameters)
        lines, construction = ["namespace {", *functor.definition, "}  // namespace", ""], [functor.construction]
    refusals = [
        refusal(parameters.add(f"points{k}", points), parameters.add(f"size{k}", size))
        for k, (points, size) in enumerate(empty_checks(kernel))
    ]
    arguments: list[str] = []
    for k, b in enumerate(kernel.buffers):
        t, const_ = storage_type(b.dtype), "" if b.name in kernel.writes else "const "
        arguments.append(f"{const_}{t}* const b{k} = static_cast<{const_}{t}*>(args->buffers[{k}]);")
    arguments += [f"const int64_t {n} = args->ints[{k}];" for k, n in enumerate(parameters.ints)]
    source = [
        *(f'#include "{h}"' for h in dict.fromkeys((*call.headers, "loops.h"))),
        "",
        *lines,
        f'extern "C" int32_t {name}(const HtKernelArgs* args) {{',
        *indent(
            [
                *arguments,
                "ht::Status status;",
                *refusals,
                *construction,
                *setup,
                f"const int32_t code = {call_text};",
                "return code != HT_KERNEL_OK ? code : status.code;",
            ]
        ),
        "}",
        "",
    ]
    return Rendered("\n".join(source), tuple(parameters.ints.values()))


def _gemm_packed(a: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    left = a.operands[0]
    m, n, k = product(x.extent for x in a.axes[:-1]), a.axes[-1].extent, left.shape[-1]
    sizes = [p.add("lda", left.strides[-2]), p.add("rows", m), p.add("columns", n), p.add("depth", k)]
    lda, rows, columns, depth = sizes
    call = f"ht::gemm_packed(args, {pointers[0]}, {lda}, {pointers[1]}, {rows}, {columns}, {depth}, epilogue)"
    return Call(("gemm.h",), (), call)


def _batch_strides(o: Operand) -> tuple[Expr, ...]:
    """(outer, inner) strides of up to two batch dimensions."""
    return (*(const(0),) * (4 - len(o.strides)), *o.strides[:-2])


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
        setup.append(f"const ht::MatrixBatch {side}{{{', '.join([pointer, *spelled])}}};")
    call = "ht::gemm_dynamic(args, shape, a, b, epilogue)"
    return Call(("gemm.h",), tuple(setup), call)


CALLS: dict[type[Template], Callable[[TemplateNest, Sequence[str], Parameters], Call]] = {
    **calls_conv.CALLS,
    **calls_rows.CALLS,
    PackedGemm: _gemm_packed,
    DynamicGemm: _gemm_dynamic,
}
"""Template -> how it is called."""
