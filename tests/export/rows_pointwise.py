"""Rows for pointwise ops: names of functions of torch, and lambdas."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.export.op_inputs import BOOL, WHOLE, Row, X, randn

UNARY = [
    "abs",
    "neg",
    "sign",
    "floor",
    "ceil",
    "trunc",
    "round",
    "exp",
    "exp2",
    "expm1",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "atan",
    "erf",
    "erfc",
    "sigmoid",
    "relu",
    "relu6",
    "square",
    "sgn",
    "isnan",
    "isinf",
    "logical_not",
    "positive",
    "frac",
    "nan_to_num",
    "deg2rad",
    "signbit",
]
POSITIVE = ["sqrt", "rsqrt", "reciprocal", "log", "log2", "log10", "log1p", "lgamma", "acosh"]
UNIT = ["asin", "acos", "atanh", "erfinv", "logit"]
ACTIVATIONS = [
    "gelu",
    "silu",
    "hardswish",
    "hardsigmoid",
    "elu",
    "selu",
    "celu",
    "leaky_relu",
    "softplus",
    "mish",
    "logsigmoid",
    "hardtanh",
    "softsign",
    "tanhshrink",
    "hardshrink",
    "softshrink",
    "glu",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "fmod",
    "maximum",
    "minimum",
    "atan2",
    "copysign",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "fmax",
    "fmin",
    "logical_and",
    "logical_or",
    "logical_xor",
    "xlogy",
    "hypot",
    "nextafter",
    "logaddexp",
]

LATTICE = torch.arange(-300, 300).reshape(60, 10) * 0.0723
"""Whose quotients by 0.0723 are near whole numbers, and on either side of them before they are rounded."""


def special_bessel(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    s, size = torch.special, x.abs() + 0.2
    first = s.bessel_j0(x), s.bessel_j1(x), s.bessel_y0(size), s.bessel_y1(size), s.spherical_bessel_j0(x)
    return *first, s.i1e(x), s.modified_bessel_k0(size), s.scaled_modified_bessel_k1(size), s.airy_ai(x)


def special_others(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    s, size = torch.special, x.abs() + 0.2
    first = s.erfcx(x), s.log_ndtr(x), s.ndtri(x.sigmoid()), s.zeta(size + 1, size), torch.polygamma(3, size)
    degrees = (size * 9).floor()
    return *first, s.shifted_chebyshev_polynomial_w(x, degrees), s.laguerre_polynomial_l(x, 4)


ROWS: list[Row] = [
    *((n, getattr(torch, n, None) or getattr(F, n), (X,)) for n in UNARY),
    *((n, getattr(torch, n), (X.abs() + 1.01,)) for n in POSITIVE),
    *((n, getattr(torch, n), (X.tanh().abs() * 0.9 + 0.01,)) for n in UNIT),
    *((n, getattr(F, n), (X * 3,)) for n in ACTIVATIONS),
    *((n, getattr(torch, n), (X * 3, randn(4, 8).abs() + 0.3)) for n in BINARY),
    ("special_bessel", special_bessel, (X * 3,)),
    ("special_others", special_others, (X,)),
    ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), (X,)),
    ("gelu_half", F.gelu, (X.bfloat16(),)),
    ("logit_eps", lambda x: torch.logit(x, 0.2), (X.sigmoid(),)),
    ("prelu", F.prelu, (X, randn(4))),
    ("int_add_float", lambda a, b: a + b, (WHOLE, X)),
    ("int_scalar", lambda a: (a + 1.5, a * 2, a // 3, a % 5, a / 4, a**2), (WHOLE,)),
    (
        "int_division",
        lambda a: (torch.div(a, 7, rounding_mode="trunc"), torch.div(a, 7, rounding_mode="floor")),
        (WHOLE,),
    ),
    (
        "float_division",
        lambda a: (torch.div(a, 0.7, rounding_mode="trunc"), torch.div(a, 0.7, rounding_mode="floor")),
        (X,),
    ),
    (
        "half_division_by_one",
        lambda a, one: tuple(torch.div(a, y, rounding_mode="trunc") for y in (one, one[0], 0.0723, a.flip(0))),
        (LATTICE.half(), torch.tensor([0.0723]).half()),
    ),
    (
        "one_number_on_either_side_of_halves",
        lambda x, s: (s * x, s / x, x * s, x / s, torch.div(s, x, rounding_mode="floor"), torch.fmod(s, x)),
        (LATTICE.half() + 1, torch.tensor(1.2345678)),
    ),
    (
        "half_division_by_one_bf16",
        lambda a, one: (torch.div(a, one, rounding_mode="trunc"), torch.div(a, one[0], rounding_mode="trunc")),
        (LATTICE.bfloat16(), torch.tensor([0.0723]).bfloat16()),
    ),
    *(
        (
            f"ldexp_{kind}",
            lambda x, e: (torch.ldexp(x, e), torch.ldexp(x.double(), e), torch.ldexp(x.sum(), e)),
            (x, e.mT),
        )
        for kind, x, e in (
            ("half", X.half(), torch.tensor([[0, 3, -20, 2**31 - 1]]).int()),
            ("bf16", X.bfloat16(), torch.tensor([[255, 7, 0, 130]], dtype=torch.uint8)),
            ("wrapped", X, torch.tensor([[2**32 + 1, -(2**40), 200, -140]])),
        )
    ),
    ("frac_of_zeros", lambda x: torch.frac(x).view(torch.int32), (torch.tensor([-0.0, 0.0, -2.0, 2.5, -1e-40]),)),
    ("ldexp_far", torch.ldexp, (X.double() * 2.0**-1000, torch.tensor([[2000, -60, -73, 1070]]).mT)),
    (
        "ldexp_of_a_half_power",
        lambda x, e: (torch.ldexp(x.double(), e), torch.ldexp(x, e)),
        (X, torch.tensor(1.3).half()),
    ),
    (
        "bce_dtypes",
        lambda x, t: (
            F.binary_cross_entropy_with_logits(x, t.half(), reduction="none"),
            F.binary_cross_entropy_with_logits(x.bfloat16(), t, pos_weight=t[0] + 1),
            F.binary_cross_entropy_with_logits(x, t.double(), weight=t, reduction="sum"),
        ),
        (X, X.sigmoid()),
    ),
    ("bool_arithmetic", lambda a: (a + a, a * a, a + 1, a.sum(), a.float()), (BOOL,)),
    ("bitwise", lambda a, b: (a & b, a | b, a ^ b, ~a, a << 2, a >> 1), (WHOLE, WHOLE.flip(0))),
    (
        "common_divisors",
        lambda a, b: (
            torch.gcd(a, b),
            torch.lcm(a, b),
            torch.gcd(a.int(), b),
            torch.lcm(a.to(torch.int8), b.to(torch.int8)),
        ),
        (WHOLE, WHOLE.flip(0)),
    ),
    ("compare_mixed", lambda a, b: (a > 2.5, b > 0, a == b), (WHOLE, X)),
    ("powers", lambda x: (x**2, x**3, x**0.5, x**-1, x**-0.5, x**1.7, 2.0**x, x**x), (X.abs() + 0.1,)),
    ("alpha", lambda x, y: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=0.5), torch.rsub(x, 3)), (X, X.flip(0))),
    ("clamp", lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0.1), x.clamp(max=0.1), x.clamp(1, -1)), (X,)),
    ("clamp_tensor", lambda x, y: (torch.clamp(x, min=y), torch.clamp(x, y, y + 1)), (X, randn(8))),
    ("where", lambda x, c: (torch.where(c, x, 0.0), torch.where(c, 1, x), x.masked_fill(c, -1e9)), (X, BOOL)),
    (
        "lerp",
        lambda x, y: (torch.lerp(x, y, 0.3), torch.addcmul(x, y, y, value=2), torch.addcdiv(x, y, y + 9)),
        (X, X * 2),
    ),
    ("casts", lambda x: (x.int(), x.long(), x.half(), x.double(), x.bool(), x.to(torch.uint8)), (X.abs() * 9,)),
    ("bitcast", lambda x: x.view(torch.int32), (X,)),
    ("promotion_0d", lambda x, s: x + s, (X.half(), torch.tensor(2.0, dtype=torch.float64))),
    ("round_decimals", lambda x: (torch.round(x, decimals=2), torch.round(x * 99, decimals=-1)), (X,)),
]
