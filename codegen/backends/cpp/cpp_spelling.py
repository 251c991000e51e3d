"""How the C++ backend spells dtypes, literals, scalar ops and integer expressions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hardtack.codegen.ir.expr import Add, Const, Expr, FloorDiv, Max, Min, Mod, Mul, Sym, bounds
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.types import INT_RANGE, DType
from hardtack.codegen.ops import INT_DIVISIONS

STORAGE: dict[DType, str] = {
    DType.F32: "float",
    DType.F64: "double",
    DType.F16: "ht::f16",
    DType.BF16: "ht::bf16",
    DType.I8: "int8_t",
    DType.I16: "int16_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.U8: "uint8_t",
    DType.U16: "uint16_t",
    DType.U32: "uint32_t",
    DType.F8E4M3: "uint8_t",
    DType.F8E5M2: "uint8_t",
    DType.F8E8M0: "uint8_t",
    DType.BOOL: "ht::Bool",
}
"""The element type in memory."""

REGISTER: dict[DType, str] = STORAGE | {DType.F16: "float", DType.BF16: "float", DType.BOOL: "int32_t"}
"""The lane type in registers; a bool is a mask of 0 or -1."""


FLOAT8 = {DType.F8E4M3: "e4m3", DType.F8E5M2: "e5m2", DType.F8E8M0: "e8m0"}
"""What float8.h calls the floats of 8 bits."""


def register_type(dtype: DType) -> str:
    """The vector type that holds a value."""
    return f"ht::vec<{REGISTER[dtype]}>"


def literal(lit: Lit) -> str:
    """A literal as a vector with equal lanes."""
    return f"ht::bcast<{REGISTER[lit.dtype]}>({scalar_literal(lit.value, lit.dtype)})"


def scalar_literal(value: bool | int | float, dtype: DType) -> str:
    """A literal as one lane."""
    if dtype is DType.BOOL:
        return "-1" if value else "0"
    if dtype.is_float:
        return _float_literal(float(value), dtype)
    number = int(value)
    if number == INT_RANGE[DType.I64][0]:
        return "INT64_MIN"
    return f"static_cast<{REGISTER[dtype]}>({number})"


def _float_literal(value: float, dtype: DType) -> str:
    suffix = "" if dtype is DType.F64 else "f"
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    # a double's hexadecimal form is exact; the compiler rounds it to float once
    return f"static_cast<{REGISTER[dtype]}>({value.hex()})"


def symbol(s: Sym) -> str:
    """The C++ variable of a symbol: an axis by its own name, a size of the model, which the user names, behind `s_`."""
    return s.name if s.extent is not None else f"s_{s.name}"


def expr(e: Expr, names: Mapping[Sym, str] | None = None) -> str:
    """An Expr as C++ over int64_t; `names` spells symbols that are not C++ variables of their own name."""
    names = names or {}
    if isinstance(e, Const):
        return str(e.value)
    if isinstance(e, Sym):
        return names.get(e, symbol(e))
    if isinstance(e, Add):
        return "(" + " + ".join(expr(t, names) for t in e.terms) + ")"
    if isinstance(e, Mul):
        # in parentheses: as the divisor of / or %, a bare product would be divided by its first factor only
        return "(" + "*".join(expr(f, names) for f in e.factors) + ")"
    if isinstance(e, (FloorDiv, Mod)):
        a, b = expr(e.a, names), expr(e.b, names)
        if not _is_positive(e.b):
            b = f"ht::divisor({b})"
        if (bounds(e.a)[0] or -1) >= 0 or bounds(e.a)[0] == 0:
            return f"({a} {'/' if isinstance(e, FloorDiv) else '%'} {b})"
        return f"ht::{'floordiv' if isinstance(e, FloorDiv) else 'floormod'}({a}, {b})"
    assert isinstance(e, (Min, Max))
    out = expr(e.args[0], names)
    for arg in e.args[1:]:
        out = f"ht::{'least' if isinstance(e, Min) else 'most'}({out}, {expr(arg, names)})"
    return out


def _is_positive(e: Expr) -> bool:
    """False for a size that may be 0: what is divided by it is not used, but the division must not trap."""
    return (bounds(e)[0] or 0) > 0


def vector_expr(e: Expr, vectors: Mapping[Sym, str]) -> str:
    """An Expr as a vec<int64_t>; `vectors` spells the symbols that differ from lane to lane."""
    if isinstance(e, Sym) and e in vectors:
        return vectors[e]
    if isinstance(e, (Const, Sym)):
        return f"ht::bcast<int64_t>({expr(e)})"
    if isinstance(e, Add):
        return "(" + " + ".join(vector_expr(t, vectors) for t in e.terms) + ")"
    if isinstance(e, Mul):
        return "(" + "*".join(vector_expr(f, vectors) for f in e.factors) + ")"
    if isinstance(e, (FloorDiv, Mod)):
        name = "floordiv" if isinstance(e, FloorDiv) else "floormod"
        b = vector_expr(e.b, vectors)
        return f"ht::{name}({vector_expr(e.a, vectors)}, {b if _is_positive(e.b) else f'ht::divisor({b})'})"
    assert isinstance(e, (Min, Max))
    out = vector_expr(e.args[0], vectors)
    for arg in e.args[1:]:
        out = f"ht::{'least' if isinstance(e, Min) else 'most'}({out}, {vector_expr(arg, vectors)})"
    return out


FUNCTIONS: dict[str, str] = {
    "fma": "ht::fma",
    "eq": "ht::eq",
    "ne": "ht::ne",
    "lt": "ht::lt",
    "le": "ht::le",
    "gt": "ht::gt",
    "ge": "ht::ge",
    "where": "ht::select",
    "shl": "ht::shl",
    "shr": "ht::shr",
}
"""Op -> its function, where that is not ht::v<op> of vmath.h."""
OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&",
    "or": "|",
    "xor": "^",
}

BOOL_COMPARISONS = {
    "eq": "(~({} ^ {}))",
    "ne": "({} ^ {})",
    "lt": "(~{} & {})",
    "le": "(~{} | {})",
    "gt": "({} & ~{})",
    "ge": "({} | ~{})",
}
"""Comparisons of masks, whose true is -1 and so compares below false."""


def compute(op: str, args: tuple[str, ...], types: tuple[DType, ...], dtype: DType) -> str:
    """A scalar op on vectors. `args` are C++ expressions, `types` their dtypes, `dtype` the result's. The caller rounds
    what ops.rounds names."""
    if op == "cast":
        return _cast(args[0], types[0], dtype)
    if op == "bitcast":
        return f"ht::bitcast<{STORAGE[dtype]}, {STORAGE[types[0]]}>({args[0]})"
    if op == "code":
        return f"ht::vcode<{REGISTER[dtype]}>({', '.join(args)})"
    if op in INT_DIVISIONS:
        return _division(op, args, types[0])
    if op == "pow":
        return f"ht::vpow({', '.join(args)})" if dtype.is_float else f"ht::power({', '.join(args)})"
    if op in OPERATORS:
        return f"({args[0]} {OPERATORS[op]} {args[1]})"
    if types[0] is DType.BOOL and op in BOOL_COMPARISONS:
        return BOOL_COMPARISONS[op].format(*args)
    if op in FUNCTIONS:
        return f"{FUNCTIONS[op]}({', '.join(args)})"
    one = literal(Lit(1, types[0]))
    zero = literal(Lit(0, types[0]))
    simple: dict[str, str] = {
        "neg": f"(-{args[0]})",
        "not": f"(~{args[0]})",
        "reciprocal": f"({one} / {args[0]})",
        "isnan": f"ht::ne({args[0]}, {args[0]})",
        "isinf": f"ht::eq(ht::vabs({args[0]}), {literal(Lit(math.inf, types[0])) if types[0].is_float else zero})",
        "sign": _sign(args[0], types[0], one, zero),
    }
    return simple.get(op) or f"ht::v{op}({', '.join(args)})"


def _sign(a: str, t: DType, one: str, zero: str) -> str:
    """1, 0 or -1; 0 for a NaN, which compares with nothing."""
    if t.is_unsigned:
        return f"ht::select(ht::gt({a}, {zero}), {one}, {zero})"
    return f"ht::select(ht::gt({a}, {zero}), {one}, ht::select(ht::lt({a}, {zero}), -{one}, {zero}))"


def rounded(a: str, half: DType) -> str:
    """A vector of float rounded to a half type, and kept as float."""
    return f"ht::cast<{STORAGE[half]}>({a})"


def _cast(a: str, source: DType, target: DType) -> str:
    if source is target:
        return a
    if source.is_float8:
        return _cast(f"ht::float_of_{FLOAT8[source]}({a})", DType.F32, target)
    if target.is_float8:
        return f"ht::{FLOAT8[target]}_of_float({_cast(a, source, DType.F32)})"
    if target is DType.BOOL:
        return f"ht::mask_of({a})"
    if source is DType.BOOL:
        return f"ht::cast<{REGISTER[target]}>({a} & 1)"
    if target.is_half:
        return rounded(a, target)
    return a if REGISTER[source] == REGISTER[target] else f"ht::cast<{REGISTER[target]}>({a})"


def _division(op: str, args: tuple[str, ...], t: DType) -> str:
    a, b = args
    if t.is_float:
        spelled = {
            "floordiv": f"ht::vfloordiv({a}, {b})",
            "truncdiv": f"ht::vtrunc({a} / {b})",
            "remainder": f"ht::vremainder({a}, {b})",
            "fmod": f"ht::vfmod({a}, {b})",
        }
        return spelled[op]
    safe = f"ht::nonzero({b}, status, cnt)"
    quotient = "floor_quotient" if op in ("floordiv", "remainder") else "trunc_quotient"
    if op in ("floordiv", "truncdiv"):
        return f"ht::{quotient}({a}, {safe})"
    return f"({a} - ht::{quotient}({a}, {safe}) * {b})"


IDENTITY: dict[str, bool | int | float] = {"sum": 0, "prod": 1, "any": False, "all": True}


def identity(kind: str, dtype: DType) -> str:
    """The neutral lane of a reduction."""
    if kind in IDENTITY:
        return literal(Lit(IDENTITY[kind], dtype))
    largest = kind == "min"
    if dtype.is_float:
        return literal(Lit(math.inf if largest else -math.inf, dtype))
    if dtype is DType.BOOL:
        return literal(Lit(largest, dtype))
    return literal(Lit(INT_RANGE[dtype][1 if largest else 0], dtype))


COMBINE = {
    "sum": "({} + {})",
    "prod": "({} * {})",
    "max": "ht::vmax({}, {})",
    "min": "ht::vmin({}, {})",
    "any": "({} | {})",
    "all": "({} & {})",
}
"""Two partial results of a reduction into one."""

HORIZONTAL = {"sum": "ht::hsum", "prod": "ht::hprod", "max": "ht::hmax", "min": "ht::hmin"}
"""Lanes into one."""
