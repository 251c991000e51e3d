"""Products on GPUs with constants that were dequantised, whose codes stay in memory as they are.

Few rows are bound by reading: templates read the codes. More have a matrix of numbers made first, by a kernel, in
memory that is used again for what comes later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from hardtack.codegen.ir.expr import ONE, ZERO, const, int_value
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.nests import Operand, RowOperand, TemplateNest
from hardtack.codegen.ir.roles import Extent, Role, Sizes, need, only
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder
from hardtack.codegen.lower.code_matrix import CODES, NUMBERS, STEPS, TABLES
from hardtack.codegen.lower.gpu_code_rows import CodeRows, TableStep, runs_of, store_numbers
from hardtack.codegen.lower.gpu_matmul import Gemm
from hardtack.codegen.tune.code_plan import WORD_BITS, RowPlan


@dataclass(frozen=True)
class CodeGemm(Gemm):
    """a [M, K] times codes [N, K] in rows of bytes, from which steps make numbers, each with a table [N, K/run], and
    one number [1] behind all tables for each that is scaled. bits: of a code; of 4, two neighbours share a byte."""

    steps: tuple[TableStep, ...]
    bits: int

    dtypes = NUMBERS

    def operand_roles(self) -> tuple[Role, ...]:
        codes = Role("codes", "N K" if self.bits == 8 else "N K/2", only(*CODES))
        tables = (Role(f"{s.kind}{k}", f"N K/{s.run}", only(*TABLES)) for k, s in enumerate(self.steps))
        factors = (Role(f"factor{k}", "1", only(DType.F32)) for k, s in enumerate(self.steps) if s.scaled)
        return (Role("a", "M K"), codes, *tables, *factors)

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        need(self.bits in (4, 8), f"its codes have {self.bits} bits")
        wrong = [f"{s.kind} of {s.run}" for s in self.steps if s.kind not in STEPS or s.run < 1]
        need(not wrong, f"its steps have {', '.join(wrong)}")
        need(self.constant, "its codes are known at export")
        need(self.batch == int(self.plan.splits > 1), f"it has {self.batch} axes of a batch")
        need(not self.plan.programs, f"its plan is a grid's of {self.plan.programs} programs")
        if self.steps and nest.operands[0].dtype is not DType.F32:
            last = self.steps[-1].result
            need(last is nest.operands[0].dtype, f"its last step gives {last}, which rows of another type multiply")
        found = super().extents(nest)
        del found["*batch"]
        return found

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        super().verify_sizes(nest, sizes)
        k = int_value(sizes["K"])
        need(k is not None and all(k % s.run == 0 for s in self.steps), f"a run does not divide {k}")


@dataclass(frozen=True)
class CodeRow(CodeGemm):
    """Of one row. A step is affine, so that the codes of a word are multiplied and added up first, and the steps are
    taken with that sum and with the sum of the word's a: as if no step's result had been rounded."""

    kind = "gemm_code_row"

    @property
    def row_plan(self) -> RowPlan:
        need(isinstance(self.plan, RowPlan), "its plan does not say which codes a lane has")
        return cast(RowPlan, self.plan)

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        super().verify_sizes(nest, sizes)
        runs = (int_value(sizes["K"]) or 0, *runs_of(self.steps))
        plan = self.row_plan
        need(plan.variant == "vector" and plan.block_m == 1, f"its plan is a {plan.variant}'s")
        need(sizes["M"] is ONE, f"it has {sizes['M']} rows, and multiplies one")
        need(plan.warps_k * plan.warps_n == plan.warps, f"{plan.warps_k} warps along K do not divide {plan.warps}")
        columns, codes = plan.blocks(self.bits)
        need(plan.block_n == columns, f"its warps have {columns} columns of {plan.block_n}")
        need(plan.block_k == codes, f"its lanes have {codes} codes of {plan.block_k}")
        cut = [run for run in (*runs, self.plan.block_k) if run * self.bits % WORD_BITS]
        need(not cut, f"{cut} codes of {self.bits} bits are no whole words")

    def takes_halves(self, nest: TemplateNest) -> bool:
        """What opens a gate is not computed by the next product (row_operand), and costs a launch."""
        return self.plan.block_n > 1

    def row_operand(self, nest: TemplateNest) -> RowOperand | None:
        """None: what computes a does not hide behind reads of codes, which take as many instructions themselves, and
        codes are asked for while another kernel computes it."""
        return None


@dataclass(frozen=True)
class CodeTile(CodeGemm):
    """Of few rows, in tiles: the codes of a tile become numbers, rounded as the model rounds them."""

    kind = "gemm_code_tile"

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        super().verify_sizes(nest, sizes)
        plan, k = self.plan, int_value(sizes["K"]) or 0
        need(plan.variant == "tile", f"its plan is a {plan.variant}'s")
        uneven = any(n % plan.block_k for n in (k, *runs_of(self.steps)))
        need(not uneven, f"blocks of {plan.block_k} cut a run")
        wrong = [str(s.result) for s in self.steps if s.result not in NUMBERS]
        need(not wrong, f"its steps give {', '.join(wrong)}")


def dequantised_copy(low: Lowering, op: Op, codes: CodeRows, b: Operand) -> Operand:
    """The constant b [.., K, N] as numbers, made by a nest each time, K innermost."""
    buffer = low.temporary(f"{b.buffer}.numbers", b.dtype, (const(codes.n), const(codes.k)))
    store_numbers(NestBuilder(low, buffer.name, op.origin), codes, buffer)
    lead = (ZERO,) * (len(b.shape) - 2)
    return Operand(buffer.name, b.dtype, ZERO, b.shape, (*lead, ONE, const(codes.k)))
