"""The scalar op table: every operation that may stand in a pointwise graph op or in a loop nest's Compute.

Passes on kernels of GPUs make a few more, which have a table beside it: COARSE_OPS. No graph and no nest has these, and
no CPU needs to spell them.

One row an op: its name, how many arguments, how the result's dtype follows, and whether it is cheap enough to be
computed again rather than stored. Semantics are torch's for the same dtype: floats follow IEEE (max and min propagate
NaN), integers wrap, comparisons give bool. Arguments of one op have one dtype unless the row says otherwise;
conversions are explicit `cast`s.
"""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.types import DType


@dataclass(frozen=True)
class ScalarOp:
    """A row of the table.

    result: "same" (as the arguments), "bool", "attr" (given by the op's `dtype` attribute).
    domain: the kinds it accepts, a subset of "fib8" (float, int, bool, floats of 8 bits), or "h" (floats that
        registers hold as f32).
    cost: rough number of simple instructions for one element, used to choose between storing and computing again.
    facts: letters. e: exact, of a half type for values of it, or it rounds itself; any other result is rounded. s: an
        error of its arguments is not larger in the result than that of a sum or product. z: an integer divisor of 0 is
        an HT_KERNEL_ASSERT.
    """

    name: str
    arity: int
    result: str
    domain: str
    cost: int
    facts: str
    doc: str

    @property
    def is_exact(self) -> bool:
        return "e" in self.facts

    @property
    def is_steady(self) -> bool:
        return "s" in self.facts

    @property
    def asserts_divisor(self) -> bool:
        return "z" in self.facts


def _rows(*rows: tuple[str, int, str, str, int, str, str]) -> dict[str, ScalarOp]:
    return {row[0]: ScalarOp(*row) for row in rows}


SCALAR_OPS: dict[str, ScalarOp] = _rows(
    ("add", 2, "same", "fi", 1, "s", "a + b"),
    ("sub", 2, "same", "fi", 1, "s", "a - b"),
    ("mul", 2, "same", "fi", 1, "s", "a * b"),
    ("div", 2, "same", "f", 4, "s", "a / b in floating point"),
    ("floordiv", 2, "same", "fi", 8, "z", "a / b rounded down; an integer b of 0 is an HT_KERNEL_ASSERT"),
    ("truncdiv", 2, "same", "fi", 8, "z", "a / b rounded towards zero; an integer b of 0 is an HT_KERNEL_ASSERT"),
    ("remainder", 2, "same", "fi", 8, "z", "a - floordiv(a, b) * b: the result has b's sign"),
    ("fmod", 2, "same", "fi", 8, "z", "the remainder with a's sign, as C's fmod"),
    ("gcd", 2, "same", "i", 60, "", "greatest common divisor by Euclid's steps on |a| and |b|; that of 0 and b is |b|"),
    ("pow", 2, "same", "fi", 30, "", "a to the power of b"),
    ("max", 2, "same", "fi", 1, "es", "the larger, b of equals; NaN if either is"),
    ("min", 2, "same", "fi", 1, "es", "the smaller, b of equals; NaN if either is"),
    ("atan2", 2, "same", "f", 30, "", "the angle of (b, a)"),
    ("copysign", 2, "same", "f", 2, "e", "a with b's sign"),
    ("and", 2, "same", "ib", 1, "", "bitwise, or logical for bool"),
    ("or", 2, "same", "ib", 1, "", "bitwise, or logical for bool"),
    ("xor", 2, "same", "ib", 1, "", "bitwise, or logical for bool"),
    ("shl", 2, "same", "i", 1, "", "a << b; 0 where b is negative or not below the width"),
    ("shr", 2, "same", "i", 1, "", "a >> b, arithmetic for signed types; only the sign is left for such b"),
    ("eq", 2, "bool", "fib", 1, "e", "a == b"),
    ("ne", 2, "bool", "fib", 1, "e", "a != b"),
    ("lt", 2, "bool", "fib", 1, "e", "a < b"),
    ("le", 2, "bool", "fib", 1, "e", "a <= b"),
    ("gt", 2, "bool", "fib", 1, "e", "a > b"),
    ("ge", 2, "bool", "fib", 1, "e", "a >= b"),
    ("where", 3, "same", "fib8", 1, "es", "a ? b : c; a is bool, b and c have the result's dtype"),
    ("fma", 3, "same", "f", 1, "s", "a * b + c, rounded once or twice"),
    (
        "code",
        3,
        "attr",
        "f",
        3,
        "",
        "round(a) + b between 0 and c, 0 for NaN, as attribute `dtype`: see below",
    ),
    ("neg", 1, "same", "fi", 1, "es", "-a"),
    ("abs", 1, "same", "fi", 1, "e", "|a|"),
    ("sign", 1, "same", "fi", 2, "e", "-1, 0 or 1; 0 for NaN"),
    ("not", 1, "same", "ib", 1, "", "bitwise, or logical for bool"),
    ("floor", 1, "same", "f", 1, "e", "rounded down"),
    ("ceil", 1, "same", "f", 1, "e", "rounded up"),
    ("trunc", 1, "same", "f", 1, "e", "rounded towards zero"),
    ("round", 1, "same", "f", 1, "e", "rounded to nearest, ties to even"),
    ("sqrt", 1, "same", "f", 6, "", "square root"),
    ("rsqrt", 1, "same", "f", 8, "", "1 / sqrt(a)"),
    ("reciprocal", 1, "same", "f", 4, "", "1 / a"),
    ("exp", 1, "same", "f", 12, "", "e^a"),
    ("exp2", 1, "same", "f", 12, "", "2^a"),
    ("expm1", 1, "same", "f", 20, "", "e^a - 1"),
    ("log", 1, "same", "f", 14, "", "natural logarithm"),
    ("log2", 1, "same", "f", 14, "", "logarithm to base 2"),
    ("log10", 1, "same", "f", 14, "", "logarithm to base 10"),
    ("log1p", 1, "same", "f", 20, "", "log(1 + a)"),
    ("sin", 1, "same", "f", 20, "", "sine of a, in radians"),
    ("cos", 1, "same", "f", 20, "", "cosine of a, in radians"),
    ("tan", 1, "same", "f", 26, "", "tangent of a, in radians"),
    ("asin", 1, "same", "f", 24, "", "inverse sine"),
    ("acos", 1, "same", "f", 24, "", "inverse cosine"),
    ("atan", 1, "same", "f", 20, "", "inverse tangent"),
    ("sinh", 1, "same", "f", 24, "", "hyperbolic sine"),
    ("cosh", 1, "same", "f", 24, "", "hyperbolic cosine"),
    ("tanh", 1, "same", "f", 20, "s", "hyperbolic tangent"),
    ("asinh", 1, "same", "f", 30, "", "inverse hyperbolic sine"),
    ("acosh", 1, "same", "f", 30, "", "inverse hyperbolic cosine"),
    ("atanh", 1, "same", "f", 30, "", "inverse hyperbolic tangent"),
    ("erf", 1, "same", "f", 20, "", "error function"),
    ("erfc", 1, "same", "f", 30, "", "1 - erf(a)"),
    ("erfinv", 1, "same", "f", 40, "", "inverse error function"),
    ("lgamma", 1, "same", "f", 60, "", "log |gamma(a)|"),
    ("sigmoid", 1, "same", "f", 14, "s", "1 / (1 + e^-a)"),
    ("isnan", 1, "bool", "f", 1, "e", "a is NaN"),
    ("isinf", 1, "bool", "f", 1, "e", "a is infinite"),
    ("cast", 1, "attr", "fib8", 1, "es", "a as attribute `dtype`: float to int as below, anything to bool is a != 0"),
    ("bitcast", 1, "attr", "fi8", 1, "e", "the same bits as attribute `dtype`, of the same size"),
)
"""name -> ScalarOp.

A cast of a float to an integer truncates. What the type cannot hold gives what torch gives on x86: NaN and
all that leaves i32 or i64 the lowest integer; i8, i16, u8 and u16 the low bits of the i32 (u8 of an f64, and u32: of
the i64). A cast to or from a float of 8 bits goes by way of f32. To f8e4m3fn, which has no infinity, what lies beyond
its largest number becomes that, by sign; to f8e5m2 it becomes infinite.

A code is made of f32, as u8 or f32. Its zero point b is whole, up to 2^14 from 0, its limit c whole, from 0 to 255.
CPUs alone have it.
"""

COARSE_OPS: dict[str, ScalarOp] = _rows(
    ("coarse_erf", 1, "same", "h", 12, "", "erf within 1.5e-7"),
    ("coarse_exp", 1, "same", "h", 2, "", "e^a, as 2^(a * log2(e))"),
    ("coarse_gelu", 1, "same", "h", 10, "", "a / 2 * (1 + erf(a / sqrt(2))) within 2^-14 of its value and 5e-8"),
    ("coarse_gelu_tanh", 1, "same", "h", 11, "", "GELU by tanh, a / 2 * (1 + tanh(..)), likewise"),
    ("coarse_sigmoid", 1, "same", "h", 4, "s", "1 / (1 + e^-a) likewise"),
    ("coarse_tanh", 1, "same", "h", 10, "s", "tanh within 3e-7, of small a within 2e-6 of its value"),
)
"""Functions of f32 with more digits than 16 bits hold, and fewer than f32 does, for results that are rounded to 16 bits
wherever they go (coarse_verify.py); backends/triton/helpers.py has the definitions."""

COARSE_FORMS = {"erf": "coarse_erf", "exp": "coarse_exp", "sigmoid": "coarse_sigmoid", "tanh": "coarse_tanh"}
"""Op -> the coarse one that is meant to be the same function. The GELUs stand for several ops: passes/gpu/gelu.py."""

KERNEL_OPS = SCALAR_OPS | COARSE_OPS
"""What a kernel may compute once passes have been there."""

INT_DIVISIONS = frozenset(name for name, row in SCALAR_OPS.items() if row.asserts_divisor)
"""The ops whose integer divisor of 0 is an HT_KERNEL_ASSERT."""


def rounds(op: str, dtype: DType) -> bool:
    """True if a result of `dtype` is computed in f32 and then rounded."""
    return dtype.is_half and not KERNEL_OPS[op].is_exact


def accepts(op: ScalarOp, dtype: DType) -> bool:
    """True if `op` is defined on arguments of `dtype`."""
    if dtype.is_float8:
        return "8" in op.domain
    if dtype.is_float:
        return "f" in op.domain or ("h" in op.domain and dtype is not DType.F64)
    return ("b" if dtype is DType.BOOL else "i") in op.domain


class UndefinedOp(ValueError):
    """A scalar op of dtypes that the table does not have for it."""


def result_dtype(op: ScalarOp, args: tuple[DType, ...], attr: DType | None) -> DType:
    """The dtype of op(args). `attr` is the op's dtype attribute, needed where result is "attr".

    Raises UndefinedOp, with the op and the dtypes, for a combination that the table does not have, and ValueError for
    another count of arguments.
    """
    if len(args) != op.arity:
        raise ValueError(f"{op.name} takes {op.arity} arguments, got {len(args)}")
    data = args[1:] if op.name == "where" else args
    if op.name == "where" and args[0] is not DType.BOOL:
        raise ValueError(f"where needs a bool condition, got {args[0]}")
    if any(d is not data[0] for d in data) or not accepts(op, data[0]):
        raise UndefinedOp(f"{op.name} is not defined on ({', '.join(map(str, args))})")
    if op.result == "bool":
        return DType.BOOL
    if op.result == "attr":
        if attr is None:
            raise ValueError(f"{op.name} needs a dtype attribute")
        return attr
    return data[0]
