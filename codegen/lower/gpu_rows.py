"""Sorting, scans and moments on GPUs, by rows."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.expr import ONE, Expr, bounds, int_value, product
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.nests import Template
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower import moments
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.operands import row_major_operand, whole
from hardtack.codegen.lower.plans import hint
from hardtack.codegen.lower.template import template
from hardtack.codegen.tune.row_plan import plan_moments, plan_scan, plan_sort


@dataclass(frozen=True)
class SortedRows(Template):
    """What sorts of x, dense and row-major, have in common. dim: of `shape`, which is x's; a scalar is one row."""

    dim: int
    shape: tuple[Expr, ...]
    descending: bool

    dtypes = tuple(DType)


@dataclass(frozen=True)
class SortRows(SortedRows):
    """Rows that one program holds, block_r of up to block_n elements: values and their i64 places in x; as the first
    step of a merge, sorted runs of items [lines, length] of i64, the key in the upper half and the place in the lower.
    """

    block_n: int
    block_r: int

    kind = "sort_rows"
    roles = ("x",)


@dataclass(frozen=True)
class SortMerge(SortedRows):
    """Items in sorted runs of `run` as items in runs twice as long, or as values and places."""

    run: int

    kind = "sort_merge"
    roles = ("x", "items")


@dataclass(frozen=True)
class SortCount(SortedRows):
    """Every element compared with every other of its row, block_n at a time: values and places."""

    block_n: int

    kind = "sort_count"
    roles = ("x",)


@dataclass(frozen=True)
class BlockScan(Template):
    """Each element of x, dense and row-major, with all before it along `dim`. scan: sum, prod, max, min or logsumexp.
    block: elements of a line and lines that a program holds."""

    scan: str
    dim: int
    block: tuple[int, int]

    kind = "scan"
    roles = ("x",)
    dtypes = tuple(DType)


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
    rows = (dim, shape, bool(op.attr("descending" if op.kind == "sort" else "largest")))
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


def lower_scan(low: Lowering, op: Op) -> None:
    x = op.value(0)
    view, dim = row_major_operand(low, x, op), op.attr("dim")
    assert isinstance(dim, int)
    length = view.shape[dim] if view.shape else ONE
    block = plan_scan(hint(low, length), hint(low, product(view.shape[dim + 1 :])))
    template(low, op, BlockScan(str(op.attr("kind")), dim, block), low.buffers[op.outputs[0]], (view,))


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
