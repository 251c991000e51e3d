"""Template kernels as C++: a call of a template from templates/cpp with the epilogue of the group.

Files calls_*.py have a function for each: it gives the sizes as parameters, and the call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hardtack.codegen.backends.cpp.call import Parameters, spellers
from hardtack.codegen.backends.cpp.cpp_body import storage_type
from hardtack.codegen.backends.cpp.cpp_loops import empty_checks, indent, refusal
from hardtack.codegen.backends.cpp.epilogue import epilogue
from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.schedule import Kernel


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
    call = spellers()[type(anchor.template)](anchor, pointers, parameters)
    outputs = {"RESULT": anchor.result, **{f"EXTRA{k}": r for k, r in enumerate(anchor.results)}}
    places = {word: f"b{memory.index(buffer)}" for word, buffer in outputs.items() if buffer in memory}
    setup, call_text = [_placed(x, places) for x in call.setup], _placed(call.call, places)
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
        *call.declarations,
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


def _placed(text: str, places: Mapping[str, str]) -> str:
    """With the pointers of outputs in place of the words for them."""
    return _OUTPUT.sub(lambda word: places.get(word[0], word[0]), text)


_OUTPUT = re.compile(r"\b(?:RESULT|EXTRA\d+)\b")
