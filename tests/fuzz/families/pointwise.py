"""Point by point: arithmetic, functions, activations, comparisons, casts, choices by a mask."""

from __future__ import annotations

from tests.fuzz.draw import Drawer, Drawn, Family
from tests.fuzz.families.forms import table
from tests.fuzz.tensors import DTYPES, INTS

FUNCTIONS = table(
    "functions",
    3,
    lambda g: g.floats(),
    """
    torch.relu({a})  *3
    torch.sigmoid({a})
    torch.tanh({a})
    torch.exp(-{a}.abs())
    torch.sin({a})
    torch.cos({a})
    {a}.abs()
    -{a}
    torch.floor({a})
    torch.ceil({a})
    torch.round({a})
    torch.round({a}, decimals=1)
    torch.trunc({a})
    torch.frac({a})
    torch.sign({a})
    torch.sgn({a})
    torch.erf({a})
    torch.erfc({a})
    torch.expm1({a}.clamp(-0.9, 0.9))
    torch.log1p({a}.abs())
    torch.sqrt({a}.abs() + 0.3)
    torch.rsqrt({a}.abs() + 0.3)
    {a}.square()
    torch.reciprocal({a}.abs() + 0.3)
    torch.log({a}.abs() + 0.3)
    torch.log2({a}.abs() + 0.3)
    torch.log10({a}.abs() + 0.3)
    torch.atan({a})
    torch.asinh({a})
    torch.sinh({a}.clamp(-3, 3))
    torch.cosh({a}.clamp(-3, 3))
    torch.tan({a}.clamp(-0.9, 0.9))
    torch.exp2({a}.clamp(-3, 3))
    torch.sinc({a})
    torch.logit({a}.clamp(-0.9, 0.9) * 0.4 + 0.5)
    torch.logit({a}, eps=0.1)
    torch.nan_to_num({a})
    torch.nan_to_num({a}, 1.0, 2.0, -2.0)
    torch.lgamma({a}.abs() + 0.3)
    torch.erfinv({a}.clamp(-0.9, 0.9))
    torch.acos({a}.clamp(-0.9, 0.9))
    torch.asin({a}.clamp(-0.9, 0.9))
    torch.atanh({a}.clamp(-0.9, 0.9))
    torch.acosh({a}.abs() + 1.1)
    torch.deg2rad({a})
    torch.isnan({a})
    torch.isinf({a})
    torch.isfinite({a})
    torch.signbit({a}.nan_to_num(0))
    torch.logical_not({a})
    torch.polar({a}.abs(), {a}).real
    torch.complex({a}, {a} * 0.5).abs()
    torch.view_as_complex(torch.stack([{a}, {a} * 0.5], -1)).abs()
    torch.view_as_complex(torch.stack([{a}, {a} * 0.5], -1)).conj().imag
    torch.view_as_real(torch.complex({a}, {a} * 0.5) * torch.complex({a}, {a}))
    torch.special.xlog1py({a}, {a}.abs())
    torch.float_power({a}.abs(), 2)
    torch.ldexp({a}, torch.tensor(2))
    torch.i0({a}.clamp(-9, 9))
    torch.special.i0e({a})
    torch.special.i1({a}.clamp(-9, 9))
    torch.special.i1e({a})
    torch.digamma({a}.abs() + 0.3)
    torch.polygamma(0, {a}.abs() + 0.3)
    torch.polygamma(1, {a}.float().abs() + 0.3)
    """,
)

ACTIVATIONS = table(
    "activations",
    2,
    lambda g: g.floats(),
    """
    F.gelu({a})  *3
    F.gelu({a}, approximate="tanh")  *2
    F.silu({a})  *3
    F.mish({a})
    F.hardswish({a})
    F.hardsigmoid({a})
    F.softplus({a})
    F.softplus({a}, 2, 1)
    F.elu({a})
    F.elu({a}, 0.5)
    F.selu({a})
    F.celu({a}, 0.7)
    F.leaky_relu({a}, 0.2)
    F.relu6({a})
    F.softsign({a})
    F.tanhshrink({a})
    F.logsigmoid({a})
    F.hardtanh({a}, -0.5, 0.7)
    F.softshrink({a}, 0.3)
    F.hardshrink({a}, 0.3)
    F.threshold({a}, 0.1, 2)
    F.gelu({a}) + {a} * {a}.sigmoid() - {a}
    """,
)

ARITHMETIC = table(
    "arithmetic",
    6,
    lambda g: g.floats(),
    """
    {a} + {b}  *4
    {a} - {b}  *3
    {a} * {b}  *4
    torch.rsub({a}, {b}, alpha=2)
    torch.add({a}, {b}, alpha=-0.5)
    {a} / (({b}) * ({b}) + 0.5)  *2
    torch.maximum({a}, {same})
    torch.minimum({a}, {b})
    torch.fmax({a}, {same})
    torch.fmin({a}, {b})
    torch.fmod({a}, {b})
    torch.remainder({a}, {b})
    torch.remainder({a}, -1.5)
    torch.remainder(2.5, {a}.abs() + 0.5)
    torch.atan2({a}, {same})
    torch.hypot({a}, {b})
    torch.nextafter({a}, {b})
    torch.copysign({a}, {b}.nan_to_num(0))
    torch.copysign({a}, -1.0)
    torch.pow({a}.abs() + 0.2, {b})
    torch.pow({a}, 2)
    torch.pow({a}, 3)
    torch.pow({a}.abs() + 0.1, -0.5)
    torch.pow(2.0, {a}.clamp(-3, 3))
    torch.floor_divide({a}, {b})
    torch.div({a}, {b}, rounding_mode="floor")
    torch.div({a}, {b}, rounding_mode="trunc")
    torch.logaddexp({a}, {same})
    torch.xlogy({a}, ({b}) * ({b}) + 0.1)
    torch.lerp({a}, {same}, 0.3)
    torch.lerp({a}, {same}, {same}.sigmoid())
    torch.heaviside({a}, {same})
    torch.addcmul({a}, {same}, {b}, value=0.5)
    torch.addcdiv({a}, {same}, {a}.abs() + 1, value=0.5)
    torch.where({a} > {b}, {a}, {b})
    torch.isclose({a}, {a} + 1e-6)
    {a} * {x}  *3
    {a} / {x}  *2
    {a} + {x}  *2
    {x} - {a}
    {x} / ({a}.abs() + 0.5)
    {a} * {x} + {b}  *2
    ({a} + {x}) * {x}
    {a} + {there}
    {a} * {there} - {a}
    {a} * {a} + {same} * {b}
    ({a} + {b}) * 0.5 - {same}
    """,
)

COMPARISONS = table(
    "comparisons",
    1.5,
    lambda g: g.anything(),
    """
    {a} > {x}
    {a} < {b}
    {a} >= 0
    {a} <= {same}
    {a} == {same}
    {a} != {x}
    {a} == 0
    0.5 > {a}
    {a}.masked_fill({mask}, 0.1) == 0.1
    {a}.clamp(max=-0.7) < -0.7
    1.1 <= {a}.clamp(min=1.1)
    """,
)

INTEGERS = table(
    "integers",
    3.5,
    lambda g: g.ints(),
    """
    {a} + {b}  *2
    {a} - {b}
    {a} * {b}  *2
    {a} & {b}
    {a} | {b}
    {a} ^ {b}
    torch.maximum({a}, {same})
    torch.minimum({a}, {same})
    5 & {a}
    {a} ^ 5
    torch.bitwise_or(7, {a})
    torch.logical_or({a}, {same})
    {a}.clamp(min={same})
    {a} + {there}
    torch.pow({a}, 2)
    torch.pow({a}, 3)
    {a} == {b}
    {a} < {b}
    ~{a}
    -{a}
    {a}.abs()
    {a}.sign()
    {a}.clamp(-3, 5)
    {a}.clamp(min=-1)
    {a} + True
    {a} * 0.5
    {a}.square()
    {a} == 3
    {a} < -1
    {a} >= 300
    torch.sin({a})
    {a}.relu()
    3 - {a}
    {a} + 0.5
    torch.logical_and({a}, {b})
    torch.where({a} > 2, {a}, -1)
    torch.where({mask}, {a}, {b})
    """,
)

DIVISIONS = table(
    "divisions of integers",
    1.2,
    lambda g: g.ints(),
    """
    {a} // {by}  *2
    {a} % {by}  *2
    torch.fmod({a}, {by})
    torch.div({a}, {by})
    torch.div({a}, {by}, rounding_mode="trunc")
    torch.div({a}, {by}, rounding_mode="floor")
    torch.floor_divide({a}, {by})
    torch.remainder({a}, {by})
    torch.gcd({a}, {same})
    torch.lcm({a} % 1000, {same})
    {a} % 2.5
    7 // ({a} | 1)
    {a} / 3
    F.pad({a} // {by}, (1, 2))
    torch.where({mask}, {a} % {by}, {a})
    """,
)

SHIFTS = table(
    "shifts",
    1,
    lambda g: g.ints(),
    """
    {a} << {bits}  *4
    {a} >> {bits}  *4
    torch.bitwise_left_shift({a}, {bits})
    torch.bitwise_right_shift({a}, {bits})
    1 << ({a} & 7)
    -1 << {a}
    5 >> {a}
    ({a} << {bits}) >> {i}
    """,
)

BOOLEANS = table(
    "booleans",
    1,
    lambda g: g.bools(),
    """
    {a} & {same}
    {a} | {same}
    {a} ^ {same}
    ~{a}
    {a} + {same}
    {a} * {same}
    {a}.sum({d})
    {a}.any({d})
    {a}.all()
    {a}.float().mean()
    {a} <= {same}
    {a}.cumsum({d})
    {a} * 3
    {a} + 1.5
    {a}.sum() / 2
    torch.logical_xor({a}, {same})
    {a}.int() - 1
    {a}.prod({d})
    {a}.amax({d})
    torch.maximum({a}, {same})
    {a}.to(torch.uint8) << 1
    """,
)

CHOICES = table(
    "choices",
    2.5,
    lambda g: g.anything(),
    """
    {a}.masked_fill({mask}, 1)  *2
    {a}.masked_fill({mask}, -inf)
    {a}.masked_fill({mask}[:1], 0)
    torch.where({mask}, {a}, {b})  *2
    torch.where({mask}, {a}, 0)
    torch.where({mask}, 1.0, {a})
    {a}.masked_fill({mask}, -inf).softmax(-1)
    {a} * {mask}
    {a}.clamp(min=-1)
    {a}.clamp(max=0.5)
    torch.clamp({a}, -1, 1)
    {a}.clamp(min={same})
    {a}.clamp(max={same}.amin())
    F.dropout({a}, 0.5, training=False)
    {a}.masked_fill({mask}, torch.tensor(2, dtype={a}.dtype))
    torch.where({mask}, 2, 3)
    torch.clamp({a}, {same}.amin(), {same}.amax())
    torch.where({mask}, {a}.unsqueeze(0), 3)
    {a}.masked_scatter({mask}, {a}.flip(0))
    """,
)


def _cast(g: Drawer) -> Drawn:
    """A float goes to an integer inside its range only: the rest is undefined in C++."""
    a = g.anything(0)
    name = g.r.choice(tuple(DTYPES))
    if g.value(a).is_floating_point() and name in INTS:
        least = "0" if name == "uint8" else "-100"
        return f"{a}.nan_to_num(0., 9., -9.).clamp({least}, 100).to(torch.{name})"
    return f"{a}.to(torch.{name})"


_BESIDE_TIES = (
    "(({a}.to({half}).double() + ({a}.to({half}).view(torch.int16) + 1).view({half}).double()) / 2 + 1e-9).to({half})"
)


def _rounded(g: Drawer) -> Drawn:
    """Half types on the way: each rounding of eager's must be there, and those that it does in two steps."""
    a = g.floats()
    half = g.r.choice(("torch.float16", "torch.bfloat16"))
    return g.r.choice(
        (
            f"(({a}.clamp(-9, 9).to({half}) + 1000) - 1000).to({g.main})",
            f"({a}.to({half}) * 3).to({g.main}) / 3",
            f"{a}.to({half}).float()",
            f"({a}.to({half}).exp() * 2 - 1).to({g.main})",
            _BESIDE_TIES.format(a=a, half=half),
            f"{a}.to({half}) * {g.number(g.main)}",
            f"({a}.to({half}) + {g.number(g.main)}) * {g.number(g.main)}",
        )
    )


FAMILIES = (
    FUNCTIONS,
    ACTIVATIONS,
    ARITHMETIC,
    COMPARISONS,
    INTEGERS,
    DIVISIONS,
    SHIFTS,
    BOOLEANS,
    CHOICES,
    Family("casts", 2, _cast),
    Family("roundings", 1, _rounded),
)
