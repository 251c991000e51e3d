"""How the Triton backend spells dtypes, literals, scalar ops and integer expressions.

Half types are held in f32 registers, bools as int1. Where tl has no function, CUDA's libdevice has.
"""

from __future__ import annotations

import math

import numpy as np

from hardtack.codegen.ir.expr import Sym
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.types import HALF, INT_RANGE, DType
from hardtack.codegen.ops import COARSE_OPS

STORAGE: dict[DType, str] = {
    DType.F32: "fp32",
    DType.F64: "fp64",
    DType.F16: "fp16",
    DType.BF16: "bf16",
    DType.I8: "i8",
    DType.I16: "i16",
    DType.I32: "i32",
    DType.I64: "i64",
    DType.U8: "u8",
    DType.U16: "u16",
    DType.U32: "u32",
    DType.F8E4M3: "u8",
    DType.F8E5M2: "u8",
    DType.F8E8M0: "u8",
    DType.BOOL: "i8",
}
"""The element type in a signature: a bool is a byte of 0 or 1."""

MEMORY: dict[DType, str] = {
    DType.F32: "tl.float32",
    DType.F64: "tl.float64",
    DType.F16: "tl.float16",
    DType.BF16: "tl.bfloat16",
    DType.I8: "tl.int8",
    DType.I16: "tl.int16",
    DType.I32: "tl.int32",
    DType.I64: "tl.int64",
    DType.U8: "tl.uint8",
    DType.U16: "tl.uint16",
    DType.U32: "tl.uint32",
    DType.F8E4M3: "tl.uint8",
    DType.F8E5M2: "tl.uint8",
    DType.F8E8M0: "tl.uint8",
    DType.BOOL: "tl.int8",
}
"""The element type in memory."""

REGISTER: dict[DType, str] = MEMORY | {DType.F16: "tl.float32", DType.BF16: "tl.float32", DType.BOOL: "tl.int1"}
"""The type of a value while it is computed with."""


FLOAT8 = {DType.F8E4M3: "e4m3", DType.F8E5M2: "e5m2", DType.F8E8M0: "e8m0"}
"""What the helpers call the floats of 8 bits. Triton's own types for them exist on some GPUs only."""


FLOAT8_TYPES = {DType.F8E4M3: ("float8e4nv", "fp8e4nv"), DType.F8E5M2: ("float8e5", "fp8e5")}
"""Triton's own types, in a text and in a signature, for products where tensor cores take them."""


def pointer_type(dtype: DType) -> str:
    """A buffer's type in a kernel's signature."""
    return f"*{STORAGE[dtype]}"


def symbol(s: Sym) -> str:
    """The variable of a symbol: an axis by its own name, a size of the model, which the user names, behind `s_`."""
    return s.name if s.extent is not None else f"s_{s.name}"


def number(lit: Lit) -> str:
    """A literal as Python text that takes the type of what it is computed with; one with a type of its own where Triton
    would make it another: it takes tiny numbers for f64, compares f64 with what f32 has of others, and has one zero."""
    if lit.dtype is DType.BOOL:
        return "True" if lit.value else "False"
    return _plain(lit) if _is_plain(lit) else typed(lit)


def argument(lit: Lit) -> str:
    """A literal as the argument of a function, which takes a bare float for f32 and a bare integer for an i32."""
    weak = lit.dtype in (DType.F32, DType.I32, *HALF)
    return number(lit) if weak else typed(lit)


def typed(lit: Lit) -> str:
    """A literal as a scalar of its own type."""
    if lit.dtype is DType.BOOL:
        return f"tl.full((), {int(bool(lit.value))}, tl.int1)"
    if _is_negative_zero(lit):
        bits = 64 if lit.dtype is DType.F64 else 32
        return f"tl.full((), {-(1 << bits - 1)}, tl.int{bits}).to({REGISTER[lit.dtype]}, bitcast=True)"
    return f"tl.full((), {_plain(lit)}, {REGISTER[lit.dtype]})"


def _plain(lit: Lit) -> str:
    """The text of a number, of f32 and half types as f32 has it."""
    if not lit.dtype.is_float:
        return str(int(lit.value)) if lit.value >= 0 else f"({int(lit.value)})"
    value = float(lit.value) if lit.dtype is DType.F64 else _single(float(lit.value))
    if math.isnan(value) or math.isinf(value):
        return f'float("{value}")'
    return repr(value) if value >= 0 else f"({value!r})"


def _single(value: float) -> float:
    """The nearest f32."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _is_plain(lit: Lit) -> bool:
    if not lit.dtype.is_float:
        return True
    value, single = float(lit.value), _single(float(lit.value))
    if lit.dtype is DType.F64:
        takes_type = single == value or math.isnan(value)
    else:
        takes_type = not 0 < abs(single) < 2.0**-126
    return takes_type and not _is_negative_zero(lit)


def _is_negative_zero(lit: Lit) -> bool:
    return lit.dtype.is_float and lit.value == 0 and math.copysign(1.0, float(lit.value)) < 0


TL = {
    "floor": "tl.floor",
    "ceil": "tl.ceil",
    "abs": "tl.abs",
    "exp": "tl.exp",
    "exp2": "tl.exp2",
    "log": "tl.log",
    "log2": "tl.log2",
    "sin": "tl.sin",
    "cos": "tl.cos",
    "erf": "tl.erf",
    "rsqrt": "tl.rsqrt",
    "fma": "tl.fma",
    "where": "tl.where",
}
RENAMED = {"round": "nearbyint"}
"""Op -> its function of libdevice, where that has another name."""
OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "and": "&",
    "or": "|",
    "xor": "^",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
BOOL_OPERATORS = {
    "eq": "({0} ^ {1} ^ True)",
    "ne": "({0} ^ {1})",
    "lt": "(({0} ^ True) & {1})",
    "le": "(({0} ^ True) | {1})",
    "gt": "({0} & ({1} ^ True))",
    "ge": "({0} | ({1} ^ True))",
    "not": "({0} ^ True)",
}


SPELLED = frozenset(
    [
        *("cast", "bitcast", "max", "min", "shl", "shr", "div", "floordiv", "truncdiv", "remainder"),
        *("neg", "not", "sqrt", "reciprocal", "sigmoid", "isnan", "isinf", "sign"),
        *COARSE_OPS,
    ]
)
"""Ops that `compute` writes out, as it does operators and functions of Triton; all others are libdevice's."""


def is_of_libdevice(op: str) -> bool:
    """True for a function of libdevice, whose arguments must be of one shape."""
    return op not in SPELLED and op not in TL and op not in OPERATORS


def compute(op: str, args: tuple[str, ...], types: tuple[DType, ...], dtype: DType) -> str:
    """A scalar op. `args` are Triton expressions, `types` their dtypes, `dtype` the result's. The caller rounds what
    ops.rounds names.

    Quotients are rounded correctly. Integer divisors are nonzero here; the caller sees to it.
    """
    t = types[-1]
    if op == "cast":
        return _cast(args[0], types[0], dtype)
    if op == "bitcast":
        return _bitcast(args[0], types[0], dtype)
    if t is DType.BOOL and op in BOOL_OPERATORS:
        return BOOL_OPERATORS[op].format(*args)
    if op in OPERATORS:
        return f"({args[0]} {OPERATORS[op]} {args[1]})"
    if op in ("max", "min"):
        return _extreme(op, args) if t.is_float else f"tl.{op}imum({args[0]}, {args[1]})"
    if op == "pow" and not t.is_float:
        return f"int_pow({args[0]}, {args[1]}, {t.nbytes * 8})"
    if op == "gcd":
        return _gcd(args, t)
    if op in ("shl", "shr"):
        return f"shift_{'left' if op == 'shl' else 'right'}({args[0]}, {args[1]}, {t.nbytes * 8})"
    if op in ("div", "floordiv", "truncdiv", "remainder", "fmod"):
        return _division(op, args, t)
    if op in COARSE_OPS:
        return f"{op}({args[0]})"  # a helper
    if op in TL and not (op == "abs" and t.is_unsigned):
        return f"{TL[op]}({', '.join(args)})"
    a = args[0]
    simple = {
        "abs": a,
        # Triton negates by subtracting from 0, which has no sign
        "neg": f"({a} * -1.0)" if t.is_float else f"(0 - {a})" if t.is_unsigned else f"(-{a})",
        "not": f"({a} ^ {INT_RANGE[t][1]})" if t.is_unsigned else f"(~{a})",
        "sqrt": f"tl.sqrt({a})" if t is DType.F64 else f"tl.sqrt_rn({a})",
        "reciprocal": f"(1.0 / {a})" if t is DType.F64 else f"tl.div_rn({typed(Lit(1.0, DType.F32))}, {a})",
        "sigmoid": f"(1.0 / (1.0 + tl.exp(-{a})))",
        "isnan": f"({a} != {a})",
        "isinf": f'(tl.abs({a}) == float("inf"))',
        "sign": f"(({a} > 0).to({REGISTER[t]}) - ({a} < 0).to({REGISTER[t]}))",
    }
    return simple.get(op) or f"libdevice.{RENAMED.get(op, op)}({', '.join(args)})"


def rounded(a: str, half: DType) -> str:
    """A value rounded to a half type, and kept as f32."""
    return f"{a}.to({MEMORY[half]}).to(tl.float32)"


def _gcd(args: tuple[str, ...], t: DType) -> str:
    """The longest that Euclid takes is for neighbours in Fibonacci's sequence, 1.44 steps a bit."""
    a, b = args
    steps = t.nbytes * 8 * 3 // 2 + 2
    if t.is_unsigned:
        wide = "tl.int64" if t is DType.U32 else "tl.int32"
        return f"int_gcd({a}.to({wide}), {b}.to({wide}), {steps}).to({REGISTER[t]})"
    return f"int_gcd({a}, {b}, {steps})"


def _extreme(op: str, args: tuple[str, ...]) -> str:
    """max or min of floats: b of equals, among them zeros, and NaN if either is. tl.maximum has +0 above -0."""
    a, b = args
    better = ">" if op == "max" else "<"
    return f"tl.where({a} != {a}, {a}, tl.where({a} {better} {b}, {a}, {b}))"


def _cast(a: str, source: DType, target: DType) -> str:
    if source is target:
        return a
    if source.is_float8:
        return _cast(f"float_of_{FLOAT8[source]}({a})", DType.F32, target)
    if target.is_float8:
        return f"{FLOAT8[target]}_of_float({_cast(a, source, DType.F32)})"
    if target is DType.BOOL:
        return f"({a} != 0)"
    if target in HALF:  # eager comes from float64 by way of f32, and rounds twice
        return rounded(a if source in (DType.F32, *HALF) else f"{a}.to(tl.float32)", target)
    if source.is_float and not target.is_float:
        wide = target in (DType.I64, DType.U32) or (target is DType.U8 and source is DType.F64)
        whole = f"whole_i{64 if wide else 32}({a})"
        return whole if target in (DType.I32, DType.I64) else f"{whole}.to({REGISTER[target]})"
    return a if REGISTER[source] == REGISTER[target] else f"{a}.to({REGISTER[target]})"


def _bitcast(a: str, source: DType, target: DType) -> str:
    stored = f"{a}.to({MEMORY[source]})" if source in HALF else a
    bits = f"{stored}.to({MEMORY[target]}, bitcast=True)"
    return f"{bits}.to(tl.float32)" if target in HALF else bits


def _division(op: str, args: tuple[str, ...], t: DType) -> str:
    a, b = args
    if t.is_float:
        quotient = f"({a} / {b})" if t is DType.F64 else f"tl.div_rn({a}, {b})"
        spelled = {
            "div": quotient,
            "floordiv": f"float_floordiv({a}, {b})",
            "truncdiv": f"libdevice.trunc({quotient})",
            "remainder": f"float_remainder({a}, {b})",
            "fmod": f"libdevice.fmod({a}, {b})",
        }
        return spelled[op]
    if t.is_unsigned:
        return f"({a} {'//' if op in ('floordiv', 'truncdiv') else '%'} {b})"
    spelled = {
        "floordiv": f"int_floordiv({a}, {b})",
        "truncdiv": f"int_truncdiv({a}, {b})",
        "remainder": f"({a} - int_floordiv({a}, {b}) * {b})",
        "fmod": f"({a} - int_truncdiv({a}, {b}) * {b})",
    }
    return spelled[op]
