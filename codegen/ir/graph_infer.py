"""The output types of a Graph op, from its operands' types: the rules that the graph verifier holds every op to.

graph_ops.py says which kind has which. Kinds whose output shape is free within limits (reshape, expand, slice, resize,
...) are checked against `stated`; all others are computed. `same(a, b)` decides whether two Exprs are equal: by normal
form, or because a guard says so. A rule raises ValueError with one sentence for an op that breaks it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.expr import Expr, Sym, as_expr, const, floordiv, int_value, product
from hardtack.codegen.ir.graph import Lit, Op, TensorType
from hardtack.codegen.ir.kernel_code import (
    ARGUMENT_KINDS,
    TRITON_KINDS,
    Argument,
    Code,
    CudaCode,
    TritonCode,
    tensors_in,
)
from hardtack.codegen.ir.types import DType
from hardtack.codegen.ops import SCALAR_OPS, result_dtype

Types = tuple[TensorType, ...]
Same = Callable[[Expr, Expr], bool]


@dataclass(frozen=True)
class Case:
    """One op with what its rule may look at."""

    op: Op
    args: Types
    stated: Types
    same: Same

    def attr(self, name: str) -> object:
        return self.op.attr(name)

    def int_attr(self, name: str) -> int:
        value = self.op.attr(name)
        need(isinstance(value, int) and not isinstance(value, bool), f"attribute {name} is not an int: {value!r}")
        return value  # type: ignore[return-value]

    def ints(self, name: str) -> tuple[int, ...]:
        value = self.op.attr(name)
        need(
            isinstance(value, tuple) and all(isinstance(v, int) for v in value),
            f"attribute {name} is not ints: {value!r}",
        )
        return value  # type: ignore[return-value]

    def dim(self, name: str, rank: int) -> int:
        """The attribute as a dimension of a tensor of `rank`; non-negative dims only, so that equal ops compare
        equal.
        """
        value = self.int_attr(name)
        need(0 <= value < rank, f"{name} {value} is outside of a tensor of rank {rank}")
        return value

    def same_shape(self, a: Sequence[Expr], b: Sequence[Expr]) -> bool:
        return len(a) == len(b) and all(self.same(x, y) for x, y in zip(a, b, strict=True))


def need(condition: bool, sentence: str) -> None:
    """Raise ValueError(sentence) unless condition holds."""
    if not condition:
        raise ValueError(sentence)


def broadcast(shapes: Sequence[Sequence[Expr]], same: Same) -> tuple[Expr, ...]:
    """numpy's broadcasting of shapes. ValueError for two sizes that neither are equal nor contain a 1."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Expr] = []
    for position in range(-rank, 0):
        size: Expr = const(1)
        for shape in shapes:
            if len(shape) < -position or int_value(shape[position]) == 1:
                continue
            if int_value(size) == 1:
                size = shape[position]
            else:
                need(
                    same(size, shape[position]), f"sizes {size} and {shape[position]} do not broadcast (dim {position})"
                )
        out.append(size)
    return tuple(out)


def pointwise_types(c: Case) -> Types:
    row = SCALAR_OPS[c.op.kind]
    attr = c.attr("dtype") if row.result == "attr" else None
    need(attr is None or isinstance(attr, DType), f"attribute dtype is not a DType: {attr!r}")
    dtype = result_dtype(row, tuple(a.dtype for a in c.args), attr)  # type: ignore[arg-type]
    if c.op.kind == "bitcast":
        need(dtype.nbytes == c.args[0].dtype.nbytes, f"bitcast of {c.args[0].dtype} to {dtype}: sizes differ")
    return (TensorType(dtype, broadcast([a.shape for a in c.args], c.same)),)


def full_types(c: Case) -> Types:
    need(c.args[0].shape == (), "the fill value is not a scalar")
    return (TensorType(c.args[0].dtype, c.stated[0].shape),)


def iota_types(c: Case) -> Types:
    c.dim("dim", len(c.stated[0].shape))
    return (TensorType(DType.I64, c.stated[0].shape),)


def reshape_types(c: Case) -> Types:
    before, after = c.args[0], c.stated[0]
    need(
        same_numel(before, after, c.same),
        f"reshape of {product(before.shape)} elements to {product(after.shape)}",
    )
    return (TensorType(before.dtype, after.shape),)


def same_numel(a: TensorType, b: TensorType, same: Same) -> bool:
    """Equal numbers of elements by form, or dim by dim where guards tell that sizes agree."""
    x, y = product(a.shape), product(b.shape)
    if x is y or same(x, y):
        return True
    left, right = ([n for n in t.shape if int_value(n) != 1] for t in (a, b))
    return len(left) == len(right) and all(map(same, left, right))


def permute_types(c: Case) -> Types:
    dims = c.ints("dims")
    need(sorted(dims) == list(range(len(c.args[0].shape))), f"dims {dims} are not a permutation of the input's dims")
    return (TensorType(c.args[0].dtype, tuple(c.args[0].shape[d] for d in dims)),)


def expand_types(c: Case) -> Types:
    source, target = c.args[0].shape, c.stated[0].shape
    need(len(source) <= len(target), f"expand cannot lower the rank from {len(source)} to {len(target)}")
    for s, t in zip(reversed(source), reversed(target), strict=False):
        need(int_value(s) == 1 or c.same(s, t), f"expand of size {s} to {t}")
    return (TensorType(c.args[0].dtype, target),)


def slice_types(c: Case) -> Types:
    x, dim, step = c.args[0], c.dim("dim", len(c.args[0].shape)), c.int_attr("step")
    need(step >= 1, f"step {step} is not positive; use flip")
    start = c.attr("start")
    need(isinstance(start, (int, Expr)), f"attribute start is no index: {start!r}")
    target = c.stated[0].shape
    need(len(target) == len(x.shape), f"slice changes the rank from {len(x.shape)} to {len(target)}")
    kept = [c.same(a, b) for i, (a, b) in enumerate(zip(x.shape, target, strict=True)) if i != dim]
    need(all(kept), f"slice along dim {dim} changes another dim")
    size, length, first = int_value(x.shape[dim]), int_value(target[dim]), int_value(start)  # type: ignore[arg-type]
    if size is not None and length is not None and first is not None and length > 0:
        need(first >= 0 and first + (length - 1) * step < size, f"slice {first}::{step} of {length} leaves size {size}")
    return (TensorType(x.dtype, target),)


def flip_types(c: Case) -> Types:
    rank = len(c.args[0].shape)
    need(all(0 <= d < rank for d in c.ints("dims")), f"dims {c.ints('dims')} are outside of rank {rank}")
    return (c.args[0],)


def cat_types(c: Case) -> Types:
    first = c.args[0]
    dim = c.dim("dim", len(first.shape))
    total: Expr = const(0)
    for a in c.args:
        need(a.dtype is first.dtype, f"cat of {first.dtype} and {a.dtype}")
        need(len(a.shape) == len(first.shape), f"cat of ranks {len(first.shape)} and {len(a.shape)}")
        rest = [c.same(p, q) for i, (p, q) in enumerate(zip(a.shape, first.shape, strict=True)) if i != dim]
        need(all(rest), f"cat along dim {dim} of {first} and {a}")
        total = total + a.shape[dim]
    return (TensorType(first.dtype, (*first.shape[:dim], total, *first.shape[dim + 1 :])),)


def pad_types(c: Case) -> Types:
    x, mode = c.args[0], c.attr("mode")
    lo, hi = _widths(c, "lo"), _widths(c, "hi")
    need(len(lo) == len(hi) == len(x.shape), "pad needs one width a dim in lo and in hi")
    need(mode in ("constant", "reflect", "replicate", "circular"), f"unknown pad mode {mode!r}")
    need(len(c.args) == (2 if mode == "constant" else 1), f"pad mode {mode} with {len(c.args)} operands")
    if mode == "constant":
        value = c.args[1]
        need(value.shape == () and value.dtype is x.dtype, f"pad value is {value}, expected a {x.dtype} scalar")
    return (TensorType(x.dtype, tuple(s + a + b for s, a, b in zip(x.shape, lo, hi, strict=True))),)


def _widths(c: Case, name: str) -> tuple[Expr, ...]:
    value = c.attr(name)
    need(isinstance(value, tuple), f"attribute {name} is not a tuple: {value!r}")
    return tuple(as_expr(w) for w in value)  # type: ignore[attr-defined]


def reduce_types(c: Case) -> Types:
    x, kind, dims = c.args[0], c.attr("kind"), c.ints("dims")
    rank = len(x.shape)
    need(
        tuple(sorted(set(dims))) == dims and all(0 <= d < rank for d in dims),
        f"dims {dims} not sorted within rank {rank}",
    )
    need(kind in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"), f"unknown reduction {kind!r}")
    if kind in ("any", "all"):
        need(x.dtype is DType.BOOL, f"{kind} of {x.dtype}, expected bool")
    if kind in ("sum", "prod"):
        need(x.dtype is not DType.BOOL, f"{kind} of bool: cast it first")
    if kind in ("argmax", "argmin"):
        need(len(dims) == 1, f"{kind} over {len(dims)} dims")
    if kind in ("max", "min", "argmax", "argmin"):
        need(all(int_value(x.shape[d]) != 0 for d in dims), f"{kind} over an empty dim")
    one: tuple[Expr, ...] = (const(1),)
    shape: list[Expr] = []
    for i, size in enumerate(x.shape):
        shape += ([] if not c.attr("keepdim") else one) if i in dims else (size,)
    return (TensorType(DType.I64 if kind in ("argmax", "argmin") else _reduced_dtype(c, x.dtype), tuple(shape)),)


def _reduced_dtype(c: Case, own: DType) -> DType:
    """The operand's, or i32 of a sum of i8."""
    dtype = dict(c.op.attrs).get("dtype", own)
    wide = c.attr("kind") == "sum" and own is DType.I8 and dtype is DType.I32
    need(wide or dtype is own, f"{c.attr('kind')} of {own} as {dtype}")
    return DType.I32 if wide else own


def moments_types(c: Case) -> Types:
    x, groups = c.args[0], c.int_attr("groups")
    need(len(x.shape) >= 2 and x.dtype.is_float, f"moments of {x}")
    channels = int_value(x.shape[1])
    need(groups > 0 and (channels is None or channels % groups == 0), f"{x.shape[1]} channels in {groups} groups")
    found = TensorType(DType.F32 if x.dtype in (DType.F16, DType.BF16) else x.dtype, (x.shape[0], const(groups)))
    return (found, found)


def scan_types(c: Case) -> Types:
    kind = c.attr("kind")
    need(kind in ("sum", "prod", "max", "min", "logsumexp"), f"unknown scan {kind!r}")
    need(kind != "logsumexp" or c.args[0].dtype.is_float, f"logsumexp of {c.args[0]}")
    c.dim("dim", len(c.args[0].shape))
    return (c.args[0],)


def sort_types(c: Case) -> Types:
    c.dim("dim", len(c.args[0].shape))
    return c.args[0], TensorType(DType.I64, c.args[0].shape)


def topk_types(c: Case) -> Types:
    x, out = c.args[0], c.stated[0]
    dim = c.dim("dim", len(x.shape))
    rest = [c.same(a, b) for i, (a, b) in enumerate(zip(x.shape, out.shape, strict=True)) if i != dim]
    need(all(rest), f"topk along dim {dim} changes another dim")
    k, size = int_value(out.shape[dim]), int_value(x.shape[dim])
    need(k is None or size is None or 0 <= k <= size, f"topk takes {k} of {size} elements")
    return TensorType(x.dtype, out.shape), TensorType(DType.I64, out.shape)


def assert_types(c: Case) -> Types:
    need(c.args[0].dtype is DType.BOOL, f"assert on {c.args[0].dtype}, expected bool")
    need(isinstance(c.attr("message"), str), "assert needs a message")
    return ()


def read_types(c: Case) -> Types:
    need(c.args[0] == TensorType(DType.I64, ()), f"read of {c.args[0]}, expected an i64 scalar")
    need(isinstance(c.attr("sym"), Sym), "read needs a symbol")
    return ()


def custom_types(c: Case) -> Types:
    """What is stated, and behind it the types of the operands that are written. Each operand is one argument."""
    code, arguments, written, strided = (c.attr(x) for x in ("code", "arguments", "written", "strided"))
    grid = c.attr("grid")
    need(isinstance(c.attr("op"), str) and isinstance(code, Code), "custom has no op, or no code")
    assert isinstance(arguments, tuple) and isinstance(written, tuple) and isinstance(strided, tuple)
    assert isinstance(grid, tuple)
    if isinstance(code, (TritonCode, CudaCode)):
        _need_launch(c, code, arguments, grid, len(c.stated) - len(written))
    else:
        need(all(a and a[0] in ARGUMENT_KINDS for a in arguments), f"custom has an argument of no kind: {arguments}")
        need(tuple(tensors_in(arguments)) == tuple(range(len(c.args))), "an operand of custom is not one argument")
        need(not grid, f"custom of C++ has a grid: {grid}")
    need(tuple(sorted({*written})) == written and {*written} <= {*range(len(c.args))}, f"custom writes {written}")
    need({*strided} <= {*range(len(c.args))} - {*written}, f"custom has strides of {strided}")
    need(len(c.stated) >= max(1, len(written)), f"custom gives {len(c.stated)} values, and writes {written}")
    return (*c.stated[: len(c.stated) - len(written)], *(c.args[k] for k in written))


def _need_launch(
    c: Case, code: TritonCode | CudaCode, arguments: tuple[Argument, ...], grid: tuple[Expr, ...], fresh: int
) -> None:
    """What a launch of a kernel on a GPU passes: an argument for each parameter, each operand and each fresh result at
    least once, and a grid of three."""
    need(all(a and a[0] in TRITON_KINDS for a in arguments), f"custom has an argument of no kind: {arguments}")
    need(len(arguments) == len(code.parameters), f"custom has {len(arguments)} arguments for {len(code.parameters)}")
    for kind, count in (("tensor", len(c.args)), ("result", fresh)):
        named = {a[1] for a in arguments if a[0] == kind}
        need(named == {*range(count)}, f"custom passes {kind}s {sorted(named)} of {count}")
    need(len(grid) == 3, f"custom has a grid of {len(grid)} dimensions, expected 3")
    need(not c.attr("strided"), "custom of a GPU has strides")


def window_size(size: Expr, kernel: int, stride: int, pad: tuple[Expr | int, Expr | int], dilation: int) -> Expr:
    """How many windows fit: floor((size + lo + hi - dilation * (kernel - 1) - 1) / stride) + 1."""
    return floordiv(size + pad[0] + pad[1] - dilation * (kernel - 1) - 1, stride) + 1


def literal_type(value: object) -> TensorType:
    """The type of an operand that is no value name: a Lit's, or i64 for an Expr."""
    if isinstance(value, Lit):
        return TensorType(value.dtype, ())
    as_expr(value)  # type: ignore[arg-type]
    return TensorType(DType.I64, ())
