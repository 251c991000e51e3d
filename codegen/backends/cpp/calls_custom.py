"""Calls of users' kernels: custom.h, with the arguments as hardtack/kernel.h has them."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

from hardtack.codegen.backends.cpp.call import Call, Parameters, calls, parameters
from hardtack.codegen.backends.cpp.user_code import symbol_of
from hardtack.codegen.ir.expr import Expr, product
from hardtack.codegen.ir.kernel_code import Argument
from hardtack.codegen.ir.loops import row_major_strides
from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.cpu_custom import Custom

_CODES = {DType.BOOL: 6, DType.BF16: 4, DType.F8E4M3: 10, DType.F8E5M2: 12, DType.F8E8M0: 14}
"""DLDataTypeCode of those that have one of their own."""

_PLAIN = frozenset(string.ascii_lowercase + string.digits + " _-.,:;/()[]{}+*=<>")


@calls(Custom)
def _custom(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    what = parameters(anchor, Custom)
    results = ("RESULT", *(f"EXTRA{k}" for k in range(len(anchor.results))))
    places = dict(zip(what.written, results[what.fresh :], strict=True))
    lines: list[str] = []
    given: list[str] = []
    operands = {k: (o, pointer) for k, o, pointer in zip(what.read, anchor.operands, pointers, strict=True)}
    for k, t in enumerate(what.given):
        if k in places and k in operands:
            nbytes = p.add(f"nbytes{k}", product(t.shape) * t.dtype.nbytes)
            lines.append(f"ht::copy_bytes({places[k]}, {operands[k][1]}, {nbytes});")
        strides = operands[k][0].strides if k in what.strided else row_major_strides(t.shape)
        pointer = places[k] if k in places else operands[k][1]
        given.append(_tensor(p, lines, f"x{k}", pointer, t.dtype, t.shape, strides))
    made = [
        _tensor(p, lines, f"y{k}", results[k], t.dtype, t.shape, row_major_strides(t.shape))
        for k, t in enumerate(what.made[: what.fresh])
    ]
    lines += _array("ht_tensor", "given", given)
    lines += _array("ht_tensor", "made", made)
    lines += _array("ht_argument", "arguments", [_argument(p, lines, a) for a in what.arguments])
    lines += [
        "ht_kernel_call call = {};",
        f"call.num_arguments = {len(what.arguments)};",
        f"call.num_results = {len(made)};",
        f"call.arguments = {'arguments' if what.arguments else 'nullptr'};",
        f"call.results = {'made' if made else 'nullptr'};",
    ]
    nbytes = p.add("workspace_nbytes", what.shared)
    if what.code.host:
        lines.append("call.user_data = args->host->user_data;")
        return Call(("custom.h",), tuple(lines), f"ht::custom(args, args->host->fn, call, {nbytes})")
    name = symbol_of(what.code)
    declared = f'extern "C" int32_t {name}(const ht_kernel_call* call);'
    return Call(("custom.h",), tuple(lines), f"ht::custom(args, {name}, call, {nbytes})", (declared, ""))


def _array(of: str, name: str, items: Sequence[str]) -> list[str]:
    return [f"const {of} {name}[] = {{{', '.join(items)}}};"] if items else []


def _tensor(
    p: Parameters,
    lines: list[str],
    name: str,
    pointer: str,
    dtype: DType,
    shape: Sequence[Expr],
    strides: Sequence[Expr],
) -> str:
    """An ht_tensor; its sizes are parameters of the kernel. lines: take what is declared in front."""
    arrays = []
    for stem, values in (("shape", shape), ("strides", strides)):
        numbers = [p.add(f"{name}_{stem}{d}", e) for d, e in enumerate(values)]
        lines += _array("int64_t", f"{name}_{stem}", numbers)
        arrays.append(f"{name}_{stem}" if numbers else f"{name}_scalar")
    if not shape:
        lines.append(f"const int64_t {name}_scalar[1] = {{1}};")
    return f"ht::tensor({pointer}, {_dtype(dtype)}, {len(shape)}, {arrays[0]}, {arrays[1]})"


def _dtype(dtype: DType) -> str:
    code = _CODES.get(dtype, 2 if dtype.is_float else 1 if dtype.is_unsigned else 0)
    return f"ht_dtype{{{code}, {8 * dtype.nbytes}, 1}}"


def _argument(p: Parameters, lines: list[str], argument: Argument, name: str = "argument") -> str:
    """An ht_argument. Numbers that may be sizes are parameters, so that layers of other sizes share the kernel."""
    kind, *rest = argument
    if kind == "none":
        return "ht::none()"
    value = rest[0]
    if kind in ("tensor", "pairs"):
        return f"ht::tensor_argument(&given[{value}])"
    if kind == "int":
        return f"ht::integer({p.add(f'{name}{len(p.ints)}', value)})"
    if kind == "float":
        return f"ht::real({_double(value)})"
    if kind == "bool":
        return f"ht::boolean({'true' if value else 'false'})"
    if kind == "text":
        return f"ht::text({_literal(value)})"
    if kind == "dtype":
        return f"ht::element({_dtype(value)})"
    items = [_argument(p, lines, a, f"{name}_item") for a in value]
    items_name = f"list{len(lines)}"
    lines += _array("ht_argument", items_name, items)
    return f"ht::list({items_name if items else 'nullptr'}, {len(items)})"


def _double(value: float) -> str:
    if math.isnan(value):
        return '__builtin_nan("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf()"
    return value.hex()


def _literal(text: str) -> str:
    """A string literal: octal, which ends after three digits whatever follows; capitals, too, since words of them stand
    for pointers (call.py)."""
    plain = "".join(c if c in _PLAIN else "".join(f"\\{b:03o}" for b in c.encode()) for c in text)
    return f'"{plain}"'
