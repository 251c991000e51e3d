"""Sorting, scans and moments on GPUs, by rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hardtack.codegen.ir.expr import ONE, Expr, bounds, const, int_value, product
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.nests import Template, TemplateNest
from hardtack.codegen.ir.roles import Extent, Memory, Role, Sizes, exceeds, need, only
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower import moments
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.gpu_plans import hint, is_power_of_two
from hardtack.codegen.lower.operands import around, row_major_operand, whole
from hardtack.codegen.lower.rows import AnyScan, verify_dim, verify_kept
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.template import demand, template
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.tune.row_plan import plan_moments, plan_scan, plan_sort

X = Role("x", "*shape", memory=Memory.WHOLE)
ITEMS = Role("items", "lines length", only(DType.I64), Memory.WHOLE)
SORTED = (Role("values", "*kept"), Role("places", "*kept", only(DType.I64)))


@dataclass(frozen=True)
class SortedRows(Template):
    """What sorts of x, dense and row-major, have in common. dim: of `shape`, which is x's; a scalar is one row."""

    dim: int
    shape: tuple[Expr, ...]
    descending: bool

    machine = Gpu
    roles: ClassVar[tuple[Role, ...]] = (X,)
    results = SORTED
    dtypes = tuple(d for d in DType if not d.is_float8)

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        verify_dim(self.dim, self.shape)
        _, length, _ = around(self.shape, self.dim)
        lines = product((*self.shape[: self.dim], *self.shape[self.dim + 1 :]))
        scalar = not nest.operands[0].shape and product(self.shape) is ONE
        return {"*shape": () if scalar else self.shape, "lines": lines, "length": length}

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        if nest.results:
            verify_kept(sizes.many("shape"), sizes.many("kept"), self.dim, True)


class Runs(SortedRows):
    """Sorts whose result may be items, one step of several."""

    dtypes = tuple(d for d in DType if d.nbytes < 8 and not d.is_float8)

    def result_roles(self, nest: TemplateNest) -> tuple[Role, ...]:
        return self.results if nest.results else (ITEMS,)


@dataclass(frozen=True)
class SortRows(Runs):
    """Rows that one program holds, block_r of up to block_n elements: values and their i64 places in x; as the first
    step of a merge, sorted runs of items [lines, length] of i64, the key in the upper half and the place in the lower.
    """

    block_n: int
    block_r: int

    kind = "sort_rows"

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        super().verify_sizes(nest, sizes)
        need(is_power_of_two(self.block_n) and is_power_of_two(self.block_r), "its blocks are no powers of two")
        short = not nest.results or not exceeds(sizes["length"], const(self.block_n))
        need(short, f"its rows have {sizes['length']} elements, a program sorts {self.block_n}")


@dataclass(frozen=True)
class SortMerge(Runs):
    """Items in sorted runs of `run` as items in runs twice as long, or as values and places."""

    run: int

    kind = "sort_merge"
    roles = (X, ITEMS)

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        super().verify_sizes(nest, sizes)
        need(is_power_of_two(self.run), f"its runs have {self.run} elements, no power of two")
        last = not nest.results or not exceeds(sizes["length"], const(2 * self.run))
        need(last, f"its rows have {sizes['length']} elements, of which it sorts {2 * self.run}")


@dataclass(frozen=True)
class SortCount(SortedRows):
    """Every element compared with every other of its row, block_n at a time: values and places."""

    block_n: int

    kind = "sort_count"

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        super().verify_sizes(nest, sizes)
        need(is_power_of_two(self.block_n), f"its blocks have {self.block_n} elements, no power of two")


@dataclass(frozen=True)
class BlockScan(AnyScan):
    """See AnyScan. block: elements of a line and lines that a program holds."""

    block: tuple[int, int]

    kind = "scan"
    machine = Gpu

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        super().verify_sizes(nest, sizes)
        need(len(self.block) == 2 and all(map(is_power_of_two, self.block)), f"its blocks are {self.block}")


@lowers("sort", "topk", on=Gpu)
def lower_sorted(low: Lowering, op: Op) -> None:
    """sort and topk: one kernel for short rows, else runs that are merged, or by counting."""
    x = op.value(0)
    view = row_major_operand(low, x, op)
    values, indices = (low.buffers[o] for o in op.outputs)
    dim = op.int_attr("dim")
    shape = view.shape or (ONE,)
    length, lines = shape[dim], product((*shape[:dim], *shape[dim + 1 :]))
    known = int_value(length)
    plan = plan_sort(hint(low, length), bounds(length)[1], known is not None, hint(low, lines), view.dtype)
    low.decide(values.name, f"{op.kind} by {plan.way}", plan.reason)
    rows = (dim, shape, op.bool_attr("descending" if op.kind == "sort" else "largest"))
    results = (indices.name,)
    if plan.way == "count":
        template(low, op, SortCount(*rows, plan.block_n), values, (view,), results)
        return
    first = SortRows(*rows, plan.block_n, plan.block_r)
    if plan.way == "rows":
        template(low, op, first, values, (view,), results)
        return
    items = low.temporary(f"{values.name}.items", DType.I64, (lines, length))
    template(low, op, first, items, (view,))
    run = plan.block_n
    for k in range(plan.passes):
        last = k == plan.passes - 1
        target = values if last else low.temporary(f"{values.name}.items", DType.I64, (lines, length))
        template(low, op, SortMerge(*rows, run), target, (view, whole(items)), results if last else ())
        items, run = target, 2 * run


@lowers("scan", on=Gpu)
def lower_scan(low: Lowering, op: Op) -> None:
    demand(low, op, BlockScan)
    view, dim = row_major_operand(low, op.value(0), op), op.int_attr("dim")
    length = view.shape[dim] if view.shape else ONE
    block = plan_scan(hint(low, length), hint(low, product(view.shape[dim + 1 :])))
    template(low, op, BlockScan(op.str_attr("kind"), dim, block), low.buffers[op.outputs[0]], (view,))


@lowers("moments", on=Gpu)
def lower_moments(low: Lowering, op: Op) -> None:
    """A program for each group, or parts of all groups."""
    m = moments.Moments(low, op)
    n, groups, each, points = (hint(low, e) for e in (m.mean.shape[0], m.groups, m.each, m.points))
    parts, reason = plan_moments(n * groups, each, points, m.last)
    low.decide(m.mean.name, f"moments in {parts} parts" if parts else "moments of whole groups", reason)
    if parts:
        moments.by_parts(m, parts)
    else:
        moments.by_group(m)
