"""Functions that kernels call: Triton text, put in front of a kernel that uses them."""

from __future__ import annotations

import re

from hardtack.codegen.backends.triton.helpers_codes import CODE_HELPERS, FLOAT8_HELPERS
from hardtack.codegen.backends.triton.helpers_fragments import FRAGMENT_HELPERS, MMA_HELPERS
from hardtack.codegen.machine.machine import Gpu

HELPERS: dict[str, str] = {
    "int_truncdiv": '''
@triton.jit
def int_truncdiv(a, b):
    """The quotient rounded towards zero; by -1 a negation, which wraps where the division is undefined."""
    negates = b + 1 == 0
    return tl.where(negates, a - a - a, a // tl.where(negates, b - b + 1, b))
''',
    "int_floordiv": '''
@triton.jit
def int_floordiv(a, b):
    """The quotient rounded down."""
    q = int_truncdiv(a, b)
    r = a - q * b
    return tl.where((r != 0) & ((r < 0) ^ (b < 0)), q - 1, q)
''',
    "int_gcd": '''
@triton.jit
def int_gcd(a, b, STEPS: tl.constexpr):
    """The greatest common divisor of |a| and |b| by Euclid's steps, as many as numbers of so many bits may need."""
    a = tl.abs(a)
    b = tl.abs(b)
    for _ in range(STEPS):
        over = a == 0
        rest = b - int_truncdiv(b, tl.where(over, a - a + 1, a)) * a
        b = tl.where(over, b, a)
        a = tl.where(over, a, rest)
    return b
''',
    "in_halves": '''
@triton.jit
def in_halves(columns, HALF, BLOCK: tl.constexpr):
    """The columns of a program that takes half of its BLOCK from the first HALF columns of all, and the rest from the
    columns as far behind these."""
    place = columns % BLOCK
    return place // (BLOCK // 2) * HALF + columns // BLOCK * (BLOCK // 2) + place % (BLOCK // 2)
''',
    "halves_of": '''
@triton.jit
def halves_of(x):
    """x [rows, columns] as its first half of the columns, and its second."""
    return tl.split(tl.permute(tl.reshape(x, (x.shape[0], 2, x.shape[1] // 2)), (0, 2, 1)))
''',
    "shift_left": '''
@triton.jit
def shift_left(a, b, BITS: tl.constexpr):
    """a << b; 0 where b is negative or not below the width."""
    inside = (b >= 0) & (b < BITS)
    return tl.where(inside, a << tl.where(inside, b, b - b), a - a)
''',
    "shift_right": '''
@triton.jit
def shift_right(a, b, BITS: tl.constexpr):
    """a >> b, the sign moved in, which is all there is where b is negative or not below the width."""
    inside = (b >= 0) & (b < BITS)
    return tl.where(inside, a >> tl.where(inside, b, b - b), tl.where(a < 0, a - a - 1, a - a))
''',
    "whole_i32": '''
@triton.jit
def whole_i32(a):
    """A float as an i32, rounded towards zero; NaN and what an i32 cannot hold give the lowest."""
    inside = (a >= -2147483648.0) & (a < 2147483648.0)
    return tl.where(inside, tl.where(inside, a, 0.0).to(tl.int32), tl.full((), -2147483648, tl.int32))
''',
    "whole_i64": '''
@triton.jit
def whole_i64(a):
    """A float as an i64 likewise."""
    inside = (a >= -9223372036854775808.0) & (a < 9223372036854775808.0)
    return tl.where(inside, tl.where(inside, a, 0.0).to(tl.int64), tl.full((), -9223372036854775808, tl.int64))
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
    "inverse": '''
@triton.jit
def inverse(b):
    """A power of two, the negative of b times it, and the inverse of that product, which is a normal number."""
    size = tl.abs(b)
    scale = tl.where(size < 1e-30, 1.8446744073709552e19, tl.where(size > 1e30, 5.421010862427522e-20, b - b + 1.0))
    scale = tl.where(b - b == 0, scale, 1.0)
    scaled = b * scale
    return scale, scaled * -1.0, tl.div_rn(scale - scale + 1.0, scaled)
''',
    "quotient": '''
@triton.jit
def quotient(a, scale, minus, inverse):
    """a / b, with what `inverse` gives for b: a product, set right by what is left of a (Markstein, 1990)."""
    q = a * inverse
    better = tl.fma(tl.fma(q, minus, a), inverse, q)
    return tl.where((better == better) & (q != 0), better, q) * scale
''',
    "coarse_erf": '''
@triton.jit
def coarse_erf(x):
    """erf within 1.5e-7: 1 - 2^(a P(a)) of a = |x|, P fitted so that errors fall where erf comes close to 1, as a
    GELU wants it. One use of the slow unit for special functions, where the usual approximations take two."""
    a = tl.abs(x)
    p = tl.fma(a, -3.3660311601124704e-05, 0.0003480411251075566)
    p = tl.fma(p, a, -0.0011698865564540029)
    p = tl.fma(p, a, -0.0013011206174269319)
    p = tl.fma(p, a, 0.0287148579955101)
    p = tl.fma(p, a, -0.14869007468223572)
    p = tl.fma(p, a, -0.9183734059333801)
    p = tl.fma(p, a, -1.6279114484786987)
    y = 1.0 - coarse_exp2(p * a)
    sign = x.to(tl.int32, bitcast=True) & -2147483648
    return (y.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
''',
    "coarse_gelu": '''
@triton.jit
def coarse_gelu(x):
    """x / 2 * (1 + erf(x / sqrt(2))) within 2^-14 of its value and 5e-8: max(x, 0) - a * 2^P(a) of a = |x|, where
    2^P(a) is the share of a normal distribution beyond a. What is far below 0 ends as 0, and so does -inf."""
    a = tl.minimum(tl.abs(x), 16.0)
    p = tl.fma(a, -0.0003732347977347672, 0.006317704450339079)
    p = tl.fma(p, a, -0.04980545863509178)
    p = tl.fma(p, a, -0.4621237814426422)
    p = tl.fma(p, a, -1.1500288248062134)
    p = tl.fma(p, a, -1.000072956085205)
    return less_product(tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL), a, coarse_exp2(p))
''',
    "coarse_gelu_tanh": '''
@triton.jit
def coarse_gelu_tanh(x):
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) likewise."""
    a = tl.minimum(tl.abs(x), 8.0)
    p = tl.fma(a, 0.0004708759661298245, -0.006072258576750755)
    p = tl.fma(p, a, 0.022046392783522606)
    p = tl.fma(p, a, -0.06764156371355057)
    p = tl.fma(p, a, -0.4507313370704651)
    p = tl.fma(p, a, -1.1528143882751465)
    p = tl.fma(p, a, -0.9999314546585083)
    return less_product(tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL), a, coarse_exp2(p))
''',
    "coarse_tanh": '''
@triton.jit
def coarse_tanh(x):
    """tanh within 3e-7, and of small arguments within 2e-6 of its value."""
    s = x * x
    small = tl.fma(tl.fma(tl.fma(s, -0.053968254, 0.13333333), s, -0.33333334), s, 1.0) * x
    large = tl.fma(-2.0, coarse_inverse(1.0 + coarse_exp2(x * 2.8853900817779268)), 1.0)
    return tl.where(s < 0.0625, small, large)
''',
    "coarse_sigmoid": """
@triton.jit
def coarse_sigmoid(x):
    return coarse_inverse(1.0 + coarse_exp2(x * -1.4426950408889634))
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
    """exp, with subnormal results, which bfloat16 has as f32 has them."""
    y = x * 1.4426950408889634
    return tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [y], tl.float32, True, 1)
''',
    "coarse_exp2": '''
@triton.jit
def coarse_exp2(y):
    """2 to the power of y, with subnormal results as zeros."""
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [y], tl.float32, True, 1)
''',
    "tile_product": '''
@triton.jit
def tile_product(left, right, total=None):
    """left @ right, added to `total`; an f32 is taken as the sum of two TF32 numbers and loses 2^-22 of it at most."""
    return tl.dot(left, right, total, input_precision="tf32x3")
''',
    "less_product": '''
@triton.jit
def less_product(x, a, b):
    """x - a * b, rounded once: Triton spells -a as 0 - a, which is an instruction of its own."""
    return tl.inline_asm_elementwise(
        "{ .reg .f32 t; neg.f32 t, $2; fma.rn.f32 $0, t, $3, $1; }", "=f,f,f,f", [x, a, b], tl.float32, True, 1
    )
''',
    "opaque": '''
@triton.jit
def opaque(x):
    """x, of which the compiler then knows nothing: LLVM takes a choice of a maximum for a maximum, also of a NaN."""
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
''',
    "opaque_wide": '''
@triton.jit
def opaque_wide(x):
    """The same for f64."""
    return tl.inline_asm_elementwise("mov.b64 $0, $1;", "=d,d", [x], tl.float64, True, 1)
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
    "log_plus": '''
@triton.jit
def log_plus(a, b):
    """log(e^a + e^b); an infinity stays what it is, and NaN wins. log(1 + y) is that of the rounded u = 1 + y, times
    y / (u - 1): of a small y the logarithm of u has few digits left."""
    high = larger(a, b)
    y = tl.exp(smaller(a, b) - high)
    u = 1.0 + y
    grown = tl.where(u == 1.0, y, tl.log(u) * (y / tl.where(u == 1.0, 1.0, u - 1.0)))
    return tl.where(tl.abs(high) == float("inf"), high, high + grown)
''',
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
HIP_HELPERS: dict[str, str] = {
    "opaque": '''
@triton.jit
def opaque(x):
    """x; nothing is known that hides it."""
    return x
''',
    "opaque_wide": '''
@triton.jit
def opaque_wide(x):
    """x; nothing is known that hides it."""
    return x
''',
    "tile_product": '''
@triton.jit
def tile_product(left, right, total=None):
    """left @ right, added to `total`."""
    return tl.dot(left, right, total, input_precision="ieee")
''',
    "coarse_inverse": '''
@triton.jit
def coarse_inverse(x):
    """1 / x."""
    return 1.0 / x
''',
    "coarse_exp": '''
@triton.jit
def coarse_exp(x):
    """exp."""
    return tl.exp2(x * 1.4426950408889634)
''',
    "coarse_exp2": '''
@triton.jit
def coarse_exp2(y):
    """2 to the power of y."""
    return tl.exp2(y)
''',
    "less_product": '''
@triton.jit
def less_product(x, a, b):
    """x - a * b, rounded once."""
    return tl.fma(0.0 - a, b, x)
''',
}
"""Those that have another definition for AMD GPUs: the ones above are written in NVIDIA's assembly, or for its TF32."""


def module_head(text: str, machine: Gpu) -> str:
    """Imports and the helpers that a kernel's text calls, as the machine has them."""
    known = HELPERS | CODE_HELPERS | FRAGMENT_HELPERS
    if machine.device == "hip":
        known |= HIP_HELPERS
    else:
        known |= MMA_HELPERS
        if machine.tensor_flops.float8:
            known |= FLOAT8_HELPERS
    used: list[str] = []
    todo = text
    while more := [n for n in known if n not in used and re.search(rf"\b{n}\b", todo)]:
        used = [*more, *used]  # what a helper calls comes before it
        todo = "\n".join(known[n] for n in more)
    helpers = "\n".join(known[name] for name in used)
    lines = ["import triton", "import triton.language as tl"]
    if "libdevice." in text or "libdevice." in helpers:
        lines.append(f"from triton.language.extra.{machine.device} import libdevice")
    return "\n".join(lines) + "\n\n" + (helpers + "\n" if used else "") + "\n"
