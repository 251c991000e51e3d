"""Matrix products on CPUs: by a constant matrix in packed panels, or of two values; f64 is computed by loops."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from hardtack.codegen.ir.expr import ONE, Expr, const, int_value, product
from hardtack.codegen.ir.graph import Op, uses
from hardtack.codegen.ir.loops import LoopError
from hardtack.codegen.ir.nests import Operand, Request, Template, TemplateNest, Workspace
from hardtack.codegen.ir.roles import Extent, Memory, Role, Sizes, differ, need, only, summed
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.code_matrix import CODES, NUMBERS, STEPS, TABLES
from hardtack.codegen.lower.cpu_picked import lower_picked
from hardtack.codegen.lower.cpu_plans import product_plan, verify_cut
from hardtack.codegen.lower.cpu_quantized import CodeStep, packed_codes
from hardtack.codegen.lower.cpu_workspace import PANEL, gemm_dynamic_nbytes, gemm_nbytes
from hardtack.codegen.lower.operands import copied, operand, prepacked
from hardtack.codegen.lower.picked_products import picked_matrices
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.sums import matmul_as_reduction
from hardtack.codegen.lower.template import first_that_can, template
from hardtack.codegen.lower.value_ranges import has_seven_bits
from hardtack.codegen.machine.machine import Cpu, Machine
from hardtack.codegen.tune.cut_plan import CutPlan, CutShape


@dataclass(frozen=True)
class PackedGemm(Template):
    """gemm.h: a [.., M, K], its rows dense, times a constant matrix in panels [ceil(N/32), K, 32]. plan: of a tuning
    table; None: the machine's own blocks."""

    plan: CutPlan | None = field(default=None, kw_only=True)

    kind = "gemm_packed"
    machine = Cpu
    roles = (
        Role("a", "*ones M K", memory=Memory.ROWS),
        Role("panels", f"N/{PANEL} K {PANEL}", memory=Memory.WHOLE),
    )
    results = (Role("result", "*rows N", summed),)
    dtypes: ClassVar[tuple[DType, ...]] = (DType.F32, DType.F16)
    takes_epilogue = True

    @classmethod
    def why_not(cls, request: Request, machine: Machine) -> str | None:
        if not request.constant[1]:
            return "the matrix is no constant"
        if any(n is not ONE for n in request.result.shape[:-2]):
            return "a batch of matrices is not packed"
        return super().why_not(request, machine)

    def workspace(self, nest: TemplateNest) -> Workspace:
        rows, columns = product(a.extent for a in nest.axes[:-1]), nest.axes[-1].extent
        return Workspace(per_worker=gemm_nbytes(rows, columns, nest.operands[0].dtype, self.plan))

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        verify_cut(self.plan, CutShape(1, 1, 1, 1, nest.operands[0].dtype, True, True))
        return {"M": product(a.extent for a in nest.axes[:-1])}

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        need(not differ(product(sizes.many("ones")), ONE), "its operand a is a batch of matrices")


@dataclass(frozen=True)
class QuantizedGemm(PackedGemm):
    """quantized.h: a [.., M, K], its rows dense, times a constant matrix of codes in panels, made numbers of a's type
    by steps, each with a table [ceil(N/32), ceil(K/group), 32], and one number [1] behind all tables for each that is
    scaled. bits: of a code; of 4, two of K share a byte."""

    steps: tuple[CodeStep, ...]
    group: int
    bits: int

    kind = "gemm_quantized"
    roles = (PackedGemm.roles[0], Role("codes", f"N/{PANEL} K {PANEL}", only(*CODES), memory=Memory.WHOLE))
    dtypes: ClassVar[tuple[DType, ...]] = NUMBERS

    def operand_roles(self) -> tuple[Role, ...]:
        codes = Role("codes", f"N/{PANEL} K/{8 // self.bits} {PANEL}", only(*CODES), memory=Memory.WHOLE)
        sizes = f"N/{PANEL} K/{self.group} {PANEL}"
        tables = (Role(f"{s.kind}{k}", sizes, only(*TABLES), memory=Memory.WHOLE) for k, s in enumerate(self.steps))
        factors = (Role(f"factor{k}", "1", only(DType.F32)) for k, s in enumerate(self.steps) if s.scaled)
        return (self.roles[0], codes, *tables, *factors)

    def workspace(self, nest: TemplateNest) -> Workspace:
        rows, columns = product(a.extent for a in nest.axes[:-1]), nest.axes[-1].extent
        return Workspace(per_worker=gemm_nbytes(rows, columns, nest.operands[0].dtype, self.plan, dequantises=True))

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        need(self.bits in (4, 8), f"its codes have {self.bits} bits")
        need(self.group > 0, f"its group is of {self.group}")
        wrong = [f"{s.kind} to {s.result}" for s in self.steps if s.kind not in STEPS or s.result not in NUMBERS]
        need(not wrong, f"its steps have {', '.join(wrong)}")
        if self.steps and nest.operands[0].dtype is not DType.F32:
            last = self.steps[-1].result
            need(last is nest.operands[0].dtype, f"its last step gives {last}, which rows of another type multiply")
        return super().extents(nest)

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        super().verify_sizes(nest, sizes)
        need(not differ(sizes["K"] % self.group, const(0)), f"its group of {self.group} does not divide {sizes['K']}")


def _interleaved(neighbours: int) -> tuple[Role, Role]:
    panels = f"N/{PANEL} K/{neighbours} {PANEL} {neighbours}"
    return (PackedGemm.roles[0], Role("panels", panels, memory=Memory.WHOLE))


@dataclass(frozen=True)
class InterleavedGemm(PackedGemm):
    """The same with some neighbours of K side by side in the panels, as instructions add up their products at once.
    depth: K, which whole groups of neighbours do not tell."""

    depth: int

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        return {**super().extents(nest), "K": const(self.depth)}


@dataclass(frozen=True)
class PairedGemm(InterleavedGemm):
    """gemm.h and half.h: of bf16, in pairs."""

    kind = "gemm_paired"
    roles = _interleaved(2)
    dtypes = (DType.BF16,)


@dataclass(frozen=True)
class QuadGemm(InterleavedGemm):
    """gemm.h and int8.h: of int8, in fours, added up in int32. seven_bits: a is of numbers from 0 to 127."""

    seven_bits: bool = field(default=False, kw_only=True)

    kind = "gemm_quads"
    roles = _interleaved(4)
    dtypes = (DType.I8,)


@dataclass(frozen=True)
class DynamicGemm(Template):
    """gemm.h: a [(B, (B2,)) M, K] times b [(B, (B2,)) K, N], neither known before the run. plan: as
    PackedGemm has it."""

    plan: CutPlan | None = None

    kind = "gemm_dynamic"
    machine = Cpu
    roles = (Role("a", "*batch M K"), Role("b", "*batch K N"))
    results = (Role("result", "*outer M N", summed),)
    dtypes = (DType.F32, DType.BF16, DType.F16, DType.I8)
    takes_epilogue = True

    def batch_axes(self, nest: TemplateNest) -> int:
        return len(nest.axes) - 2

    def workspace(self, nest: TemplateNest) -> Workspace:
        rows, columns, depth = nest.axes[-2].extent, nest.axes[-1].extent, nest.operands[0].shape[-1]
        return Workspace(per_worker=gemm_dynamic_nbytes(rows, columns, depth, nest.operands[0].dtype, self.plan))

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        dense = nest.operands[1].strides[-1] is ONE
        verify_cut(self.plan, CutShape(1, 1, 1, 1, nest.operands[0].dtype, False, dense))
        return {}

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        batch, outer = sizes.many("batch"), sizes.many("outer")
        need(len(batch) <= 2, f"its batch has {len(batch)} dimensions, of which it steps through two")
        if differ(product(batch), product(outer)):
            raise LoopError(f"its batch is of {product(batch)}, expected {product(outer)}")


@lowers("matmul", on=Cpu)
def lower_matmul(low: Lowering, op: Op) -> None:
    a, b = op.value(0), op.value(1)
    out = low.buffers[op.outputs[0]]
    picked = picked_matrices(low, op)
    if picked is not None:
        lower_picked(low, op, picked)
        return
    chosen = first_that_can(low, op, (PackedGemm, PairedGemm, QuadGemm, DynamicGemm))
    if chosen is None:
        matmul_as_reduction(low, op)
        return
    a_view, b_view = operand(low, a, op), operand(low, b, op)
    if chosen is DynamicGemm:
        views = _in_two_batch_dims(low, op, a_view, b_view)
        template(low, op, DynamicGemm(product_plan(low, *views, constant=False)), out, views)
        return
    plan = product_plan(low, a_view, b_view, constant=True)
    rows = _unit_last(low, a, a_view, op)
    codes = packed_codes(low, b_view) if a_view.dtype in QuantizedGemm.dtypes else None
    if codes is not None:
        quantized = QuantizedGemm(codes.steps, codes.group, codes.bits, plan=plan)
        template(low, op, quantized, out, (rows, *codes.operands))
        return
    depth = int_value(b_view.shape[-2]) or 0
    what = chosen(depth, plan=plan) if issubclass(chosen, InterleavedGemm) else PackedGemm(plan=plan)
    if isinstance(what, QuadGemm):
        what = replace(what, seven_bits=has_seven_bits(low.graph, low.producers, a))
    template(low, op, what, out, (rows, pack_matrix(low, b_view)))


def _in_two_batch_dims(low: Lowering, op: Op, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """The operands with their leading dimensions joined into two at most: the template steps through no more. Where
    strides stand against it, a is copied, then b."""
    views = [a, b]
    for side, name in enumerate(uses(op)):
        if len(_batch_joined(*views)[0].shape) <= 4:
            break
        views[side] = copied(low, name, op, None)
    return _batch_joined(*views)


def _batch_joined(a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """Leading dimensions that follow one another evenly in both operands as one; those of size 1 left out."""
    lead = len(a.shape) - 2
    sizes: list[Expr] = []
    steps: list[list[Expr]] = []
    for n, *step in zip(a.shape[:lead], a.strides[:lead], b.strides[:lead], strict=True):
        if n is ONE:
            continue
        if sizes and all(outer is inner * n for outer, inner in zip(steps[-1], step, strict=True)):
            sizes[-1], steps[-1] = sizes[-1] * n, step
        else:
            sizes.append(n)
            steps.append(step)
    return tuple(  # type: ignore[return-value]
        Operand(
            o.buffer,
            o.dtype,
            o.offset,
            (*sizes, *o.shape[lead:]),
            (*(step[side] for step in steps), *o.strides[lead:]),
        )
        for side, o in enumerate((a, b))
    )


def _unit_last(low: Lowering, value: str, view: Operand, op: Op) -> Operand:
    """The packed GEMM reads rows whose elements lie side by side."""
    good = view.strides[-1] is ONE or view.shape[-1] is ONE
    return view if good else copied(low, value, op, None)


def pack_matrix(low: Lowering, b_view: Operand) -> Operand:
    """A constant [.., K, N] as panels [ceil(N/32), K, 32], of bf16 [ceil(N/32), ceil(K/2), 32, 2], of int8 [ceil(N/32),
    ceil(K/4), 32, 4]; leading dimensions have size 1."""
    k, n = (int_value(e) or 0 for e in b_view.shape[-2:])
    matrix = Operand(b_view.buffer, b_view.dtype, b_view.offset, b_view.shape[-2:], b_view.strides[-2:])
    if matrix.dtype is DType.BF16:
        return prepacked(low, "pairs", matrix, (-(-n // PANEL), -(-k // 2), PANEL, 2), ())
    if matrix.dtype is DType.I8:
        return prepacked(low, "quads", matrix, (-(-n // PANEL), -(-k // 4), PANEL, 4), ())
    return prepacked(low, "panels", matrix, (-(-n // PANEL), k, PANEL), ())
