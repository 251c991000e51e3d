"""Units of users' C++ text: what stands in front of it, and what is said of it where it does not compile or link."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hardtack.codegen.ir.kernel_code import KernelCode

_UNDEFINED = re.compile(r"undefined (?:symbol|reference to|hidden symbol)[:\s`']+([\w.$]+)")
FREESTANDING = (
    "a bundle's library needs no other: C++ text may include hardtack/kernel.h, the compiler's own headers (stdint.h, "
    "immintrin.h) and what it defines itself (docs/extending.md)"
)


def symbol_of(code: KernelCode) -> str:
    """The name that a user's function has in the library: functions of one name in several texts are several."""
    return f"ht_user_{code.key}_{code.function}"


def unit_text(codes: Iterable[KernelCode]) -> str:
    """The unit of functions that stand in one text. They are declared in front, so that their names are as symbol_of
    says and a function of another form is told at its line; lines count from the text's first."""
    found = sorted(set(codes), key=lambda c: c.function)
    lines = ["#include <hardtack/kernel.h>", 'extern "C" {']
    lines += [f'int32_t {c.function}(const ht_kernel_call* call) __asm__("{symbol_of(c)}");' for c in found]
    lines += ["}", f'#line 1 "{_quoted(found[0].file)}"', str(found[0].source), ""]
    return "\n".join(lines)


def _quoted(file: str) -> str:
    return file.replace("\\", "\\\\").replace('"', '\\"')


def link_problem(output: str, codes: Iterable[KernelCode]) -> str | None:
    """What a linker's output says of users' texts, in words; None where it names nothing that they lack."""
    missing = list(dict.fromkeys(_UNDEFINED.findall(output)))
    symbols = {symbol_of(c): c for c in codes}
    absent = [f"{symbols[m].file} defines no function {symbols[m].function}" for m in missing if m in symbols]
    if absent:
        return f"{'; '.join(absent)}: it must be int32_t(const ht_kernel_call*), in no namespace, and not static"
    names = ", ".join(missing)
    return f"the text calls {names}, which nothing defines: {FREESTANDING}" if names else None
