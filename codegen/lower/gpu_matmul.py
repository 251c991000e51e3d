"""Matrix products on GPUs: one template, in variants that the plan names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, const, int_value, product
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_infer_nn import FLOAT8_SUMS
from hardtack.codegen.ir.loops import Buffer, LoopError
from hardtack.codegen.ir.nests import Operand, RowOperand, Template, TemplateNest
from hardtack.codegen.ir.roles import Extent, Role, Sizes, need, only, summed
from hardtack.codegen.ir.types import BYTES, DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder
from hardtack.codegen.lower.gpu_heavy_readers import heavy_behind
from hardtack.codegen.lower.gpu_plans import chosen, hint, verify_plan
from hardtack.codegen.lower.operands import prepacked
from hardtack.codegen.lower.template import template
from hardtack.codegen.machine.machine import Gpu, Machine
from hardtack.codegen.tune.gemm_plan import GemmPlan, GemmShape

FLOATS = (DType.F32, DType.F64, DType.F16, DType.BF16)
MOST_INT8_TERMS = (1 << 17) - 1
"""Of products of int8, so that their sum does not leave int32: some tensor cores saturate where others wrap."""
VARIANTS = ("tile", "stream", "vector", "outer")
"""Of GemmPlan."""


@dataclass(frozen=True)
class Gemm(Template):
    """a [..., M, K] times b [..., K, N].

    constant: b is known at export. batch: leading axes of the result that number the batch; with a plan that splits K
    the first of them numbers the parts. sums: of FLOAT8_SUMS for floats of 8 bits, else empty.
    """

    plan: GemmPlan
    constant: bool
    batch: int
    sums: str

    kind = "gemm"
    machine = Gpu
    roles = (Role("a", "*batch M K"), Role("b", "*batch K N"))
    dtypes: ClassVar[tuple[DType, ...]] = (*FLOATS, *BYTES)
    takes_epilogue = True

    @classmethod
    def why_not_of(cls, dtype: DType, machine: Machine) -> str | None:
        if dtype.is_float8 and isinstance(machine, Gpu) and not machine.tensor_flops.float8:
            return f"tensor cores of {machine.name} take no {dtype}"
        return super().why_not_of(dtype, machine)

    def batch_axes(self, nest: TemplateNest) -> int:
        return self.batch

    def result_roles(self, nest: TemplateNest) -> tuple[Role, ...]:
        parts = only(part_dtype(nest.operands[0].dtype))
        return (Role("result", "*axes", summed if self.plan.splits == 1 else parts),)

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        """Of the axes, since a result may be channels-last: the last one numbers the columns."""
        verify_plan(self.plan)
        parts, axes = int(self.plan.splits > 1), [a.extent for a in nest.axes]
        need(parts <= self.batch < len(axes), f"its batch has {self.batch} of {len(axes)} axes")
        if parts and axes[0] is not const(self.plan.splits):
            raise LoopError(f"it has {self.plan.splits} parts on {axes[0]}")
        batch, rows = tuple(axes[parts : self.batch]), product(axes[self.batch : -1])
        return {"*batch": batch, "M": rows, "N": axes[-1]}

    def verify_order(self, order: tuple[int, ...]) -> None:
        """Any will do: the kernel knows batch, rows and columns."""

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        variant, dtype = self.plan.variant, nest.operands[0].dtype
        need(variant in VARIANTS, f"it has no variant {variant}")
        need((variant == "outer") >= (dtype is DType.F64), f"its variant {variant} takes no f64")
        need(self.sums in (FLOAT8_SUMS if dtype.is_float8 else ("",)), f"it adds up {dtype} as {self.sums!r}")
        if dtype in BYTES:
            need(variant in ("tile", "stream"), f"its variant {variant} takes no {dtype}")
            depth = self.plan.block_k
            need(depth >= 32, f"tensor cores take 32 of {dtype} along K, its blocks have {depth}")
        if dtype is DType.I8:
            terms = int_value(sizes["K"])
            few = terms is not None and terms <= MOST_INT8_TERMS
            need(few, f"sums of {sizes['K']} products of int8 may leave int32")

    @property
    def takes_addend(self) -> bool:
        # a bias in sums of few bits would lose its own
        return self.plan.variant in ("tile", "stream") and self.sums != "float8_fast"

    def holds_row(self, nest: TemplateNest) -> bool:
        """True if a program holds all of a's only row while it walks b's columns."""
        rows, length = product(x.extent for x in nest.axes[:-1]), int_value(nest.operands[0].shape[-1])
        one = self.plan.variant == "vector" and self.plan.programs > 0 and rows is ONE
        return one and length is not None and length <= self.plan.block_k

    def row_operand(self, nest: TemplateNest) -> RowOperand | None:
        """a of a one-row product, where it is a buffer's only content."""
        plan, a = self.plan, nest.operands[0]
        if plan.variant != "vector":
            return None
        rows, columns = product(x.extent for x in nest.axes[:-1]), int_value(nest.axes[-1].extent)
        length = int_value(a.shape[-1])
        one = rows is const(plan.splits) and product(a.shape[:-1]) is ONE
        dense = a.offset is ZERO and a.strides[-1] is ONE
        if not one or columns is None or length is None or length < 2 or not dense:
            return None
        tiles = -(-columns // plan.block_n)
        if not self.holds_row(nest):
            return RowOperand(a.buffer, length, plan.block_n, plan.splits * tiles)
        programs = min(tiles, plan.programs)
        return RowOperand(a.buffer, length, -(-columns // programs), programs)


def by_columns(low: Lowering, b: Operand) -> Operand:
    """A constant matrix with K innermost: one row times it reads long runs of memory, and tensor cores take TF32 and
    bytes in no other order."""
    k, n = b.shape[-2:]
    if b.strides[-2] is ONE or k is ONE or n is ONE or product(b.shape[:-2]) is not ONE:
        return b
    matrix = Operand(b.buffer, b.dtype, b.offset, (k, n), b.strides[-2:])
    packed = prepacked(low, "columns", matrix, (int_value(n) or 0, int_value(k) or 0), ())
    lead = len(b.shape) - 2
    return Operand(packed.buffer, b.dtype, ZERO, b.shape, (*(ZERO,) * lead, ONE, k))


def emit_gemm(
    low: Lowering,
    op: Op,
    out: Buffer,
    a: Operand,
    b: Operand,
    constant: bool,
    copy_a: Callable[[], Operand] | None = None,
) -> None:
    """out [..., M, N] = a [..., M, K] b [..., K, N]. Leading dimensions along which b is the same become rows.

    copy_a: gives a as a row-major copy, for rows that are not evenly spaced.
    """
    if copy_a is not None and _shared(b) and _foldable(a, b) > 0:
        a = copy_a()
    lead = _foldable(a, b)
    a = Operand(
        a.buffer,
        a.dtype,
        a.offset,
        (*a.shape[:lead], product(a.shape[lead:-1]), a.shape[-1]),
        (*a.strides[:lead], row_stride(a), a.strides[-1]),
    )
    b = Operand(b.buffer, b.dtype, b.offset, (*b.shape[:lead], *b.shape[-2:]), (*b.strides[:lead], *b.strides[-2:]))
    # of another op the product is a part, and what is computed of it is not in the graph
    heavy = op.kind in ("matmul", "conv") and heavy_behind(low, op.outputs[0])
    shape = gemm_shape(low, out, a, b, heavy)
    plan = chosen(low, shape)
    low.decide(out.name, f"gemm {plan.variant} {plan.block_m}x{plan.block_n}x{plan.block_k}", plan.reason)
    sums = op.str_attr("sums") if a.dtype.is_float8 else ""
    emit_parts(low, op, Gemm(plan, constant, lead, sums), out, (a, b))


def emit_parts(low: Lowering, op: Op, gemm: Gemm, out: Buffer, operands: tuple[Operand, ...]) -> None:
    """The product in as many parts as its plan has, and what adds them up. gemm.batch: of `out`."""
    if gemm.plan.splits == 1:
        template(low, op, gemm, out, operands)
        return
    by_part = (0, *(d + 1 for d in out.order))
    dtype = part_dtype(operands[0].dtype)
    parts = low.temporary(f"{out.name}.parts", dtype, (const(gemm.plan.splits), *out.shape), by_part)
    template(low, op, replace(gemm, batch=gemm.batch + 1), parts, operands)
    add_parts(low, op, parts, out)


def part_dtype(first: DType) -> DType:
    """Of the parts of a product whose K is split, by the dtype of its operands."""
    return DType.I32 if first is DType.I8 else DType.F32


def _shared(b: Operand) -> bool:
    """True if all matrices of the batch are one."""
    return all(n is ONE or int_value(s) == 0 for n, s in zip(b.shape[:-2], b.strides[:-2], strict=True))


def _foldable(a: Operand, b: Operand | None) -> int:
    """How many leading dimensions stay a batch; those behind them join the rows of a. b: None where all of the batch
    have one matrix."""
    lead = len(a.shape) - 2
    row = row_stride(a)
    while lead > 0:
        d = lead - 1
        shared = b is None or b.shape[d] is ONE or int_value(b.strides[d]) == 0
        following = row * product(a.shape[lead:-1])
        if not (a.shape[d] is ONE or (shared and a.strides[d] is following)):
            break
        lead = d
    return lead


def as_rows(a: Operand, copy_a: Callable[[], Operand]) -> Operand:
    """a [..., K] as [M, K], copied where its rows are not evenly spaced."""
    if _foldable(a, None):
        a = copy_a()
    return replace(a, shape=(product(a.shape[:-1]), a.shape[-1]), strides=(row_stride(a), a.strides[-1]))


def row_stride(a: Operand) -> Expr:
    """Elements from one row to the next: the stride of the innermost row dimension that is not 1."""
    for n, s in zip(reversed(a.shape[:-1]), reversed(a.strides[:-1]), strict=True):
        if n is not ONE:
            return s
    return a.strides[-2]


def gemm_shape(low: Lowering, out: Buffer, a: Operand, b: Operand, heavy: bool) -> GemmShape:
    """What the plan of a product depends on. heavy: behind one of several rows, as GemmShape has it."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    along_k = a.strides[-1] is ONE and b.strides[-2] is ONE
    return GemmShape(
        hint(low, product(a.shape[:-2])),
        hint(low, m),
        hint(low, n),
        hint(low, k),
        a.dtype,
        depth_first=b.strides[-2] is ONE,
        one_row=m is ONE,
        streamable=_streamable(a) and _streamable(b) and (along_k or a.dtype not in BYTES),
        heavy=heavy and m is not ONE,
    )


def _streamable(o: Operand) -> bool:
    """True if bulk copies can read the matrix: one dense dimension, all else in steps of 16 bytes."""
    unit = 16 // o.dtype.nbytes
    rows, columns = o.strides[-2:]
    other = rows if columns is ONE else columns
    dense = columns is ONE or rows is ONE
    return dense and other is not ONE and int_value(other % unit) == 0 and int_value(o.offset % unit) == 0


def add_parts(low: Lowering, op: Op, parts: Buffer, out: Buffer) -> None:
    """out = the sum of `parts` [S, ...] over its first dimension."""
    b = NestBuilder(low, out.name, op.origin)
    index = b.loop(out.shape, out.order)
    part = b.axis(parts.shape[0], "reduce")
    total = b.reduce("sum", b.load_buffer(parts.name, (part, *index)), dtype=parts.dtype)
    b.store(out.name, index, b.cast(total, out.dtype))
    b.done()
