"""What the templates of CPUs and GPUs that go along rows have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hardtack.codegen.ir.expr import ONE, Expr
from hardtack.codegen.ir.nests import Request, Template, TemplateNest
from hardtack.codegen.ir.roles import Memory, Role, Sizes, differ, exceeds, need
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.machine import Machine

RESULT = Role("result", "*shape")


def _added(first: DType) -> tuple[DType, ...]:
    return (first, DType.I64) if first.is_int else (first,)


@dataclass(frozen=True)
class AnyScan(Template):
    """Each element of x, dense and row-major, with all before it along `dim`. scan: sum, prod, max, min, or of floats
    logsumexp. Sums and products of integers may be i64."""

    scan: str
    dim: int

    roles = (Role("x", "*shape", memory=Memory.WHOLE),)
    results = (RESULT,)
    dtypes = tuple(d for d in DType if d is not DType.BOOL and not d.is_float8)

    @classmethod
    def why_not(cls, request: Request, machine: Machine) -> str | None:
        dtype, kind = request.operands[0].dtype, request.op.str_attr("kind")
        if kind == "logsumexp" and not dtype.is_float:
            return f"the template {cls.kind} takes no logsumexp of {dtype}"
        return super().why_not(request, machine)

    def result_roles(self, nest: TemplateNest) -> tuple[Role, ...]:
        return (replace(RESULT, dtypes=_added),) if self.scan in ("sum", "prod") else self.results

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        verify_dim(self.dim, sizes.many("shape"))
        need(self.scan in ("sum", "prod", "max", "min", "logsumexp"), f"it knows no {self.scan}")
        dtype = nest.operands[0].dtype
        need(self.scan != "logsumexp" or dtype.is_float, f"it takes no logsumexp of {dtype}")


def verify_dim(dim: int, shape: Sequence[Expr]) -> None:
    """Raise LoopError for a dimension that a shape does not have; a scalar is one row."""
    need(0 <= dim < max(1, len(shape)), f"its dimension {dim} is none of {len(shape)}")


def verify_kept(shape: Sequence[Expr], kept: Sequence[Expr], dim: int, top: bool) -> None:
    """Raise LoopError unless a shape is kept, but along `dim`, where the first elements may do: `top`."""
    verify_dim(dim, shape)
    need(len(shape) == len(kept), f"its result has {len(kept)} dimensions, expected {len(shape)}")
    for d, (n, k) in enumerate(zip(shape or (ONE,), kept or (ONE,), strict=True)):
        wrong = exceeds(k, n) if top and d == dim else differ(k, n)
        need(not wrong, f"its result has {k} along dimension {d}, x has {n}")
