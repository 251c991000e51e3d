"""Products of few rows with codes whose lanes hold what NVIDIA's tensor cores take of both operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.ir.roles import Sizes, need
from hardtack.codegen.ir.types import HALF
from hardtack.codegen.lower.gpu_code_rows import runs_of
from hardtack.codegen.lower.gpu_quantized import CodeGemm
from hardtack.codegen.tune.code_plan import FRAGMENT_CODES, FRAGMENT_ROWS, FragmentPlan


@dataclass(frozen=True)
class CodeFragments(CodeGemm):
    """Codes become numbers of 16 bits, which hold them all, in the registers that loads leave them in. Steps are
    affine: they are taken with sums of a run's products, as if no step's result had been rounded."""

    kind = "gemm_code_fragments"

    @property
    def takes_addend(self) -> bool:
        """False: a step's scale comes behind the products, and the sums that it scales begin with nothing."""
        return False

    def takes_halves(self, nest: TemplateNest) -> bool:
        """A warp has columns of one half, or, where it is alone, its lanes have one of each."""
        return True

    @property
    def fragment_plan(self) -> FragmentPlan:
        need(isinstance(self.plan, FragmentPlan), "its plan does not say which codes a lane has")
        return cast(FragmentPlan, self.plan)

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        super().verify_sizes(nest, sizes)
        plan, k = self.fragment_plan, int_value(sizes["K"]) or 0
        rows, codes = (o.dtype for o in nest.operands[:2])
        need(rows in HALF, f"its rows are {rows}")
        need((codes, self.bits) in FRAGMENT_CODES, f"its codes are {codes} in {self.bits} bits")
        need(plan.variant == "tile" and plan.block_m == FRAGMENT_ROWS, f"it has tiles of {plan.block_m} rows")
        need(plan.words in (1, 2, 4), f"a lane loads {plan.words} words at once")
        need(plan.warps_k * plan.warps_n == plan.warps, f"{plan.warps_k} warps along K do not divide {plan.warps}")
        columns, depth = plan.blocks(self.bits)
        need(plan.block_n == columns, f"its warps have {columns} columns of {plan.block_n}")
        need(plan.block_k == depth, f"its warps have {depth} codes of {plan.block_k}")
        need(k % plan.lane_codes(self.bits) == 0, f"{plan.lane_codes(self.bits)} codes of a lane do not divide {k}")
        cut = [run for run in runs_of(self.steps) if run < k and run % plan.quad_codes(self.bits)]
        need(not cut, f"{plan.quad_codes(self.bits)} codes of four lanes cut runs of {cut}")
