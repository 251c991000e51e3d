"""Functions of one tensor: each in each dtype, of ordinary and of special numbers, in one element and in many.

Infinities, NaN, zeros of either sign, numbers that are subnormal or overflow, integers where floats are meant: which
dtype comes out, and what, is said function by function in torch. digamma and trigamma are asked where eager does not
reflect: beside their poles ours are closer.
"""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.cases import case
from tests.fuzz.combinations import combination, in_turn, number_of
from tests.fuzz.families.forms import rows
from tests.fuzz.program import Program

FUNCTIONS = rows("""
    {a}.abs()
    -{a}
    {a}.sign()
    {a}.sgn()
    {a}.floor()
    {a}.ceil()
    {a}.trunc()
    {a}.round()
    {a}.round(decimals=1)
    {a}.frac()
    {a}.exp()
    {a}.exp2()
    {a}.expm1()
    {a}.log()
    {a}.log2()
    {a}.log10()
    {a}.log1p()
    {a}.sqrt()
    {a}.rsqrt()
    {a}.reciprocal()
    {a}.square()
    {a} ** 3
    {a} ** 0.5
    {a} ** -1
    {a} ** -2
    {a} ** 0
    {a} ** 2.5
    2 ** {a}
    0.5 ** {a}
    {a}.float_power(2)
    {a}.sin()
    {a}.cos()
    {a}.tan()
    {a}.asin()
    {a}.acos()
    {a}.atan()
    {a}.sinh()
    {a}.cosh()
    {a}.tanh()
    {a}.asinh()
    {a}.acosh()
    {a}.atanh()
    {a}.erf()
    {a}.erfc()
    {a}.erfinv()
    {a}.sigmoid()
    {a}.logit()
    {a}.logit(0.1)
    {a}.lgamma()
    {a}.abs().digamma()
    {a}.sinc()
    {a}.i0()
    torch.special.i0e({a})
    torch.special.i1({a})
    torch.special.i1e({a})
    torch.special.ndtr({a})
    torch.special.log_ndtr({a})
    torch.special.ndtri({a})
    torch.special.entr({a})
    torch.special.erfcx({a})
    torch.special.bessel_j0({a})
    torch.special.bessel_y0({a})
    torch.special.zeta({a}, 2)
    torch.polygamma(1, {a}.to(torch.float32).abs() + 0.6)
    torch.xlogy({a}, {a})
    torch.deg2rad({a})
    torch.rad2deg({a})
    torch.angle({a})
    torch.isnan({a})
    torch.isinf({a})
    torch.isfinite({a})
    torch.isposinf({a})
    torch.isneginf({a})
    torch.isreal({a})
    torch.nan_to_num({a})
    torch.nan_to_num({a}, 1, 2, -2)
    torch.logical_not({a})
    ~{a}
    {a}.clamp(-1, 1)
    {a}.clamp(min=0.5)
    {a}.clamp(max=-0.0)
    {a}.relu()
    F.relu6({a})
    F.elu({a})
    F.elu({a}, 0.5)
    F.celu({a}, 2)
    F.selu({a})
    F.gelu({a})
    F.gelu({a}, approximate="tanh")
    F.silu({a})
    F.mish({a})
    F.softplus({a})
    F.softplus({a}, 2, 1)
    F.softsign({a})
    F.hardtanh({a}, -2, 0.5)
    F.hardsigmoid({a})
    F.hardswish({a})
    F.hardshrink({a})
    F.softshrink({a})
    F.tanhshrink({a})
    F.leaky_relu({a}, 0.1)
    F.logsigmoid({a})
    F.threshold({a}, 0.1, 20)
    F.rrelu({a})
    F.glu(torch.stack([{a}, {a}]), 0)
    {a}.to(torch.float16)
    {a}.to(torch.bfloat16)
    {a}.to(torch.float64)
    {a}.to(torch.int64)
    {a}.to(torch.int32)
    {a}.to(torch.int8)
    {a}.to(torch.uint8)
    {a}.bool()
    {a}.nextafter({a} + 1)
    torch.frexp({a})[0]
    torch.frexp({a})[1]
    torch.heaviside({a}, {a})
    torch.hypot({a}, {a})
    torch.atan2({a}, {a}.flip(0))
    torch.cumsum({a}, 0)
    {a}.bitwise_not()
    {a} << 3
    {a} >> 1
    {a} % 3
    {a} // 2
    {a} / 3
    {a} * 2.5
    {a} + 1e10
    1 - {a}
    7 / {a}
    7 // {a}
    torch.fmod({a}, 2)
    torch.remainder({a}, -2)
    torch.div({a}, 2, rounding_mode="trunc")
    {a} == 0
    {a} != {a}
    {a} < 1
    {a} >= 0.5
    torch.where({a} > 0, {a}, 0)
    torch.lerp({a}, {a} + 1, 0.3)
    torch.diff({a}, dim=0)
""")

DTYPES = ("", "f16", "bf16", "f64", "i64", "i32", "u8", "bool")
SHAPES = ("67", "4,5", "1")
FILLS = ("special", "normal")

COUNT = number_of(FUNCTIONS, FILLS, SHAPES, DTYPES)


def function(seed: int) -> Program:
    """The program of a seed: COUNT of them, then the same again behind or in front of a sum, or of a part."""
    turn, (text, fill, shape, dtype) = combination(seed, FUNCTIONS, FILLS, SHAPES, DTYPES)
    around = in_turn(("{f}", "({f}) * 1", "({f})[1:]", "({f}).to(torch.float32) + 1"), turn)
    found = case(f"x0[{shape}]{dtype} : {around.replace('{f}', text).replace('{a}', 'x0')}", seed)
    return replace(found, inputs=tuple(replace(i, fill=fill) for i in found.inputs))
