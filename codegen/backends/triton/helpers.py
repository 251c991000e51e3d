"""Functions that kernels call: Triton text, put in front of a kernel that uses them."""

from __future__ import annotations

import re

HELPERS: dict[str, str] = {
    "int_floordiv": '''
@triton.jit
def int_floordiv(a, b):
    """The quotient rounded down; Triton's // rounds towards zero."""
    q = a // b
    r = a % b
    return tl.where((r != 0) & ((r < 0) ^ (b < 0)), q - 1, q)
''',
    "int_pow": '''
@triton.jit
def int_pow(a, n, BITS: tl.constexpr):
    """a to the power of n by squaring, wrapping; a negative n gives 0 unless a is 1 or -1."""
    result = a - a + 1
    base = a
    e = tl.where(n < 0, n - n, n)
    for _ in range(BITS):
        result = tl.where((e & 1) != 0, result * base, result)
        base = base * base
        e = e >> 1
    odd = (n & 1) != 0
    inverse = tl.where(a == 1, a, tl.where(a + 1 == 0, tl.where(odd, a, -a), a - a))
    return tl.where(n < 0, inverse, result)
''',
    "float_remainder": '''
@triton.jit
def float_remainder(a, b):
    """a - floor(a / b) * b, exactly: the result has b's sign."""
    r = libdevice.fmod(a, b)
    return tl.where((r != 0) & ((r < 0) ^ (b < 0)), r + b, r)
''',
    "float_floordiv": '''
@triton.jit
def float_floordiv(a, b):
    """The quotient rounded down, from the exact remainder; a / b where b is 0."""
    r = libdevice.fmod(a, b)
    q = (a - r) / b
    q = tl.where((r != 0) & ((r < 0) ^ (b < 0)), q - 1, q)
    below = tl.floor(q)
    whole = tl.where(q - below > 0.5, below + 1, below)
    out = tl.where(q != 0, whole, libdevice.copysign(q - q, a / b))
    return tl.where(b == 0, a / b, out)
''',
    "coarse_erf": '''
@triton.jit
def coarse_erf(x):
    """erf within 1.5e-7 (Abramowitz and Stegun 7.1.26), which is enough for a result that is rounded to 16 bits."""
    a = tl.abs(x)
    t = coarse_inverse(tl.fma(a, 0.3275911, 1.0))
    p = tl.fma(t, 1.061405429, -1.453152027)
    p = tl.fma(p, t, 1.421413741)
    p = tl.fma(p, t, -0.284496736)
    p = tl.fma(p, t, 0.254829592) * t
    y = tl.fma(-p, coarse_exp(-a * a), 1.0)
    return tl.where(x < 0, -y, y)
''',
    "coarse_sigmoid": """
@triton.jit
def coarse_sigmoid(x):
    return coarse_inverse(1.0 + coarse_exp(-x))
""",
    "coarse_inverse": '''
@triton.jit
def coarse_inverse(x):
    """1 / x within one unit in the last place, for x that is not subnormal."""
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
''',
    "coarse_exp": '''
@triton.jit
def coarse_exp(x):
    """exp, with subnormal results as zeros."""
    y = x * 1.4426950408889634
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [y], tl.float32, True, 1)
''',
    "larger": """
@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "smaller": """
@triton.jit
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "times": """
@triton.jit
def times(a, b):
    return a * b
""",
    "best_largest": '''
@triton.jit
def best_largest(a, i, b, j):
    """The larger value with its index, a NaN before all else, the smaller index of equals."""
    better = (a > b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = better | (equal & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)
''',
    "best_smallest": '''
@triton.jit
def best_smallest(a, i, b, j):
    """The smaller value with its index, a NaN before all else, the smaller index of equals."""
    better = (a < b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = better | (equal & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)
''',
}
"""name -> definition."""


def module_head(text: str) -> str:
    """Imports and the helpers that a kernel's text calls."""
    used: list[str] = []
    todo = text
    while more := [n for n in HELPERS if n not in used and re.search(rf"\b{n}\b", todo)]:
        used = [*more, *used]  # what a helper calls comes before it
        todo = "\n".join(HELPERS[n] for n in more)
    helpers = "\n".join(HELPERS[name] for name in used)
    lines = ["import triton", "import triton.language as tl"]
    if "libdevice." in text or "libdevice." in helpers:
        lines.append("from triton.language.extra.cuda import libdevice")
    return "\n".join(lines) + "\n\n" + (helpers + "\n" if used else "") + "\n"
