"""Sums of pairs of 16-bit integers in PTX, taken apart.

From sm_90 on LLVM keeps two indices that fit in 8 or 16 bits in one register and adds to both at once (add.s16x2).
ptxas, of CUDA 12.8 and of 13.0, loses the constant where one half alone is needed of `{a, b} + {1, 2}`: it adds 0
(VIADD.16x2 R, R, 0x0). Each half by itself is right, and costs nothing next to what indices are for.

This file is read by worker.py, which has nothing of Hardtack on its path.
"""

from __future__ import annotations

import re

_PAIR = re.compile(
    r"^(?P<guard>\s*(?:@!?%p\d+\s+)?)(?P<op>\w[\w.]*)\.(?P<type>[su]16)x2\s+(?P<operands>[^;]+);", re.MULTILINE
)


def halves_apart(ptx: str) -> str:
    """The PTX with an operation for each half in place of one for both. Raises ValueError for one it does not know."""
    return _PAIR.sub(_apart, ptx)


def _apart(found: re.Match[str]) -> str:
    operands = [x.strip() for x in found["operands"].split(",")]
    if found["op"] not in ("add", "sub", "min", "max") or len(operands) != 3 or found["guard"].strip():
        raise ValueError(f"PTX has an operation on two halves of another kind: {found[0].strip()}")
    out, a, b = operands
    op = f"{found['op']}.{found['type']}"
    steps = (
        ".reg .b16 %half<4>",
        f"mov.b32 {{%half0, %half1}}, {a}",
        f"mov.b32 {{%half2, %half3}}, {b}",
        f"{op} %half0, %half0, %half2",
        f"{op} %half1, %half1, %half3",
        f"mov.b32 {out}, {{%half0, %half1}}",
    )
    return f"{found['guard']}{{ {'; '.join(steps)}; }}"
