"""The parameter list of a compiled kernel, read from the head of its PTX and checked against what its text declares.

.visible .entry add_1f(
    .param .u64 .ptr .global .align 1 add_1f_param_0,
    .param .u32 add_1f_param_1,
    .param .align 64 .b8 add_1f_param_2[128]
)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[a-z]\d+)(?P<pointer>\s+\.ptr[^,\n]*?)?\s+[\w$]+"
    r"(?:\[(?P<count>\d+)\])?\s*(?:,|\)|$)"
)


class AbiError(RuntimeError):
    """A compiled kernel takes other parameters than this version of Hardtack expects of Triton."""


@dataclass(frozen=True)
class Param:
    """One .param: `nbytes` in all, `align`: 0 for its natural one."""

    nbytes: int
    align: int = 0

    def __str__(self) -> str:
        return f"{self.nbytes} aligned {self.align}" if self.align else str(self.nbytes)


def params(head: str) -> tuple[Param, ...]:
    """The .params of an .entry, in order; `head` ends where the body starts. AbiError for a text not understood."""
    listed = head[head.index("(") + 1 : head.rindex(")") + 1]
    found: list[Param] = []
    for m in _PARAM.finditer(listed):
        width = int(m["type"][1:]) // 8
        found.append(Param(width * int(m["count"] or 1), int(m["align"] or 0) if m["count"] else 0))
    if len(found) != listed.count(".param"):
        raise AbiError(f"the parameters of a kernel cannot be read from its PTX:\n{listed.strip()}")
    return tuple(found)


def check(function: str, found: Sequence[Param], expected: Sequence[Param]) -> None:
    """AbiError, with both lists, unless `found` is as `expected`."""
    if tuple(found) != tuple(expected):
        lists = [", ".join(map(str, x)) for x in (found, expected)]
        raise AbiError(
            f"kernel {function}: Triton compiled it to parameters of ({lists[0]}) bytes, expected ({lists[1]}); "
            "this version of Triton has another calling convention"
        )
