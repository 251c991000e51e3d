"""How the templates without epilogue are called: attention.h, recurrent.h, sort.h, scan.h."""

from __future__ import annotations

from collections.abc import Sequence

from hardtack.codegen.backends.cpp.call import Call, Parameters, calls, parameters
from hardtack.codegen.backends.cpp.cpp_body import storage_type
from hardtack.codegen.ir.expr import ONE, Expr, const, product
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Operand, TemplateNest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.cpu_attention import Attention
from hardtack.codegen.lower.cpu_recurrence import PackedRecurrence
from hardtack.codegen.lower.cpu_rows import Scan, Sort
from hardtack.codegen.lower.operands import around


def _padded(values: Sequence[Expr], rank: int, neutral: Expr) -> list[Expr]:
    return [neutral] * (rank - len(values)) + list(values)


def _strides(o: Operand, rank: int) -> list[Expr]:
    """Strides of `rank` dimensions, 0 where the operand has size 1 and is broadcast."""
    strides = [const(0) if n is ONE else s for s, n in zip(o.strides, o.shape, strict=True)]
    return _padded(strides, rank, const(0))


@calls(Attention)
def _attention(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    what = parameters(anchor, Attention)
    x, at = what.operands_of(anchor), what.pointers_of(pointers)
    sizes = what.shape(anchor)
    result = Buffer(anchor.result, x.q.dtype, sizes, what.order)
    batch, (h, tq, e) = product(sizes[:-3]), sizes[-3:]
    names = ("batch", "heads", "kv_heads", "tq", "tk", "d", "dv")
    numbers = (batch, h, x.k.shape[-3], tq, x.k.shape[-2], x.q.shape[-1], e)
    fields = [p.add(name, n) for name, n in zip(names, numbers, strict=True)]
    for side, o, pointer in zip("qkv", (x.q, x.k, x.v), (at.q, at.k, at.v), strict=True):
        in_place = side == "q" or not what.codes
        fields += [pointer if in_place else "nullptr", _steps(p, f"{side}_stride", o) if in_place else "{0, 0, 0}"]
    if x.mask is None or at.mask is None:
        fields += ["ht::MaskKind::kNone", "nullptr", "{0, 0, 0, 0}"]
    else:
        kind = "kKeep" if x.mask.dtype is DType.BOOL else "kAdd" if x.mask.dtype is x.q.dtype else "kAddFloat"
        fields += [f"ht::MaskKind::{kind}", at.mask, _steps(p, "mask_stride", x.mask, 4)]
    fields += ["true" if what.causal else "false", f"static_cast<float>({what.scale.hex()})"]
    out = [p.add(f"out_stride{i}", s) for i, s in enumerate(_padded(result.strides()[:-1], 3, const(0)))]
    t = storage_type(x.q.dtype)
    setup = [
        f"const ht::Attention<{t}> attention{{{', '.join(fields)}}};",
        f"const auto output = ht::strided_output(RESULT, {', '.join(out)});",
    ]
    codes = ""
    if what.codes:
        code = "ht::E4m3" if x.k.dtype.is_float8 else "int8_t"
        sides = zip("kv", (x.k, x.v), (at.k, at.v), x.scales, at.scales, strict=True)
        for side, o, pointer, scales, scale_pointer in sides:
            setup.append(
                f"const ht::RowCodes<{code}> {side}_codes{{reinterpret_cast<const {code}*>({pointer}), "
                f"{_steps(p, f'{side}_stride', o)}, {scale_pointer}, {_steps(p, f'{side}_scale_stride', scales)}}};"
            )
        codes = "k_codes, v_codes, "
    call = f"(ht::attention(args, attention, {codes}output), HT_KERNEL_OK)"
    return Call(("attention.h",), tuple(setup), call)


def _steps(p: Parameters, name: str, o: Operand, count: int = 3) -> str:
    """The strides of `count` dimensions: of the last four all but the last one, of rows as of their scales."""
    strides = _strides(o, max(count, len(o.shape)))[:count]
    return "{" + ", ".join(p.add(f"{name}{i}", s) for i, s in enumerate(strides)) + "}"


_CELLS = {"lstm": "kLstm", "gru": "kGru", "rnn_tanh": "kTanh", "rnn_relu": "kRelu"}


@calls(PackedRecurrence)
def _recurrent(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    what = parameters(anchor, PackedRecurrence)
    lstm, cell = what.cell == "lstm", _CELLS[what.cell]
    projected, _, *rest = anchor.operands
    steps, batch, hidden = (p.add(x, a.extent) for x, a in zip(("steps", "batch", "hidden"), anchor.axes, strict=True))
    width = projected.shape[-1]
    sizes = [p.add("step_stride", anchor.axes[1].extent * width), p.add("row_stride", width)]
    h0, c0 = rest[0], rest[1] if lstm else None
    h0_stride = p.add("h0_stride", h0.strides[0])
    c0_stride = p.add("c0_stride", c0.strides[0]) if c0 is not None else "0"
    bias = pointers[3] if what.cell == "gru" and len(pointers) > 3 else "nullptr"
    y_step = p.add("y_step", anchor.axes[1].extent * anchor.axes[2].extent)
    fields = [
        f"ht::CellKind::{cell}",
        steps,
        batch,
        hidden,
        "true" if what.reverse else "false",
        pointers[0],
        f"{{{sizes[0]}, {sizes[1]}}}",
        pointers[1],
        bias,
        pointers[2],
        h0_stride,
        pointers[3] if lstm else "nullptr",
        c0_stride,
        "RESULT",
        f"{{{y_step}, {hidden}}}",
        "EXTRA1" if lstm else "nullptr",
        hidden,
        "EXTRA0",
        hidden,
    ]
    setup = (f"const ht::Recurrent recurrent{{{', '.join(fields)}}};",)
    return Call(("recurrent.h",), setup, f"(ht::recurrent<ht::CellKind::{cell}>(args, recurrent), HT_KERNEL_OK)")


def _rows(p: Parameters, shape: tuple[Expr, ...], dim: int) -> list[str]:
    """outer, n, inner of `shape` around the dimension, as parameters."""
    return [p.add(x, e) for x, e in zip(("outer", "length", "inner"), around(shape, dim), strict=True)]


@calls(Sort)
def _sorted(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    x, what = anchor.operands[0], parameters(anchor, Sort)
    sizes = _rows(p, x.shape, what.dim)
    k = p.add("count", anchor.axes[what.dim].extent if anchor.axes else ONE)
    element = "uint8_t" if x.dtype is DType.BOOL else storage_type(x.dtype)
    descending = "true" if what.descending else "false"
    source = f"reinterpret_cast<const {element}*>({pointers[0]})"
    target = f"reinterpret_cast<{element}*>(RESULT)"
    call = f"ht::sort_rows<{element}>(args, {source}, {', '.join(sizes)}, {k}, {descending}, {target}, EXTRA0)"
    return Call(("sort.h",), (), f"({call}, HT_KERNEL_OK)")


@calls(Scan)
def _scan(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call:
    what = parameters(anchor, Scan)
    sizes, kind = _rows(p, anchor.operands[0].shape, what.dim), what.scan
    if kind == "logsumexp":
        call = f"ht::scan_logsumexp(args, {pointers[0]}, RESULT, {', '.join(sizes)})"
        return Call(("scan_log.h",), (), f"({call}, HT_KERNEL_OK)")
    if kind in ("sum", "prod"):
        which = "ht::ScanKind::kSum" if kind == "sum" else "ht::ScanKind::kProduct"
        call = f"ht::scan(args, {which}, {pointers[0]}, RESULT, {', '.join(sizes)})"
    else:
        largest = "true" if kind == "max" else "false"
        nowhere = "static_cast<int64_t*>(nullptr)"
        call = f"ht::scan_extreme(args, {largest}, {pointers[0]}, RESULT, {nowhere}, {', '.join(sizes)})"
    return Call(("scan.h",), (), f"({call}, HT_KERNEL_OK)")
