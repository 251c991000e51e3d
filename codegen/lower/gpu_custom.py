"""Ops with users' kernels on GPUs: there is no such kernel for them."""

from __future__ import annotations

from hardtack.codegen.ir.graph import Op
from hardtack.codegen.lower.builder import Lowering, UnsupportedOp
from hardtack.codegen.lower.custom import without_kernel
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.machine.machine import Gpu


@lowers("custom", on=Gpu)
def refuse_custom(low: Lowering, op: Op) -> None:
    raise UnsupportedOp(op.origin, low.machine.name, without_kernel(op))
