"""Whether joining products pays: seconds of their kernels, one by one and joined, with what each launch costs.

Joined, a result has no kernel of its own for what follows it point by point: that becomes a kernel that reads slices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hardtack.codegen.hints import size_hint
from hardtack.codegen.ir.expr import ONE, int_value, product
from hardtack.codegen.ir.graph import Graph, Op
from hardtack.codegen.ir.graph_ops import Elements, facts
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.ops import SCALAR_OPS
from hardtack.codegen.tune.choice import Tuning, key_of
from hardtack.codegen.tune.gemm_plan import GemmPlan, GemmShape, estimate


@dataclass(frozen=True)
class Branch:
    """A product and the value, it or it with a bias, that the rest of the graph reads."""

    op: Op
    result: str


def profit(
    graph: Graph,
    branches: Sequence[Branch],
    readers: Mapping[str, Sequence[Op]],
    hints: Mapping[str, int],
    machine: Gpu,
    tuning: Tuning,
) -> tuple[bool, str]:
    """Whether to join the products, and the figures that say so."""
    shapes = [_shape(graph, b.op, hints) for b in branches]
    whole = _joined_shape(shapes)
    measured = _measured((*shapes, whole), tuning)
    seconds = measured or [_seconds(s, machine, tuning) for s in (*shapes, whole)]
    apart = sum(seconds[:-1])
    lost, nbytes = _lost_epilogues(graph, branches, readers, hints)
    joined = seconds[-1] + lost * machine.waits.nest_floor_s + nbytes / machine.bandwidth
    rest = f" and {lost} kernels for what follows" if lost else ""
    how = "measured:" if measured else "about"
    reason = f"{how} {apart * 1e6:.1f} us apart, {joined * 1e6:.1f} us as {whole.m}x{whole.n}x{whole.k}{rest}"
    return joined < apart, reason


def _shape(graph: Graph, op: Op, hints: Mapping[str, int]) -> GemmShape:
    a, w = (graph.type_of(x) for x in op.inputs)
    m, k, n = (size_hint(e, hints) for e in (*a.shape, w.shape[1]))
    one_row = a.shape[0] is ONE
    unit = 16 // a.dtype.nbytes or 1
    streamable = all(int_value(x) is not None and int_value(x % unit) == 0 for x in (a.shape[1], w.shape[1]))
    return GemmShape(1, m, n, k, a.dtype, one_row, one_row, streamable)


def _joined_shape(shapes: Sequence[GemmShape]) -> GemmShape:
    n = sum(s.n for s in shapes)
    unit = 16 // shapes[0].dtype.nbytes or 1
    aligned = shapes[0].k % unit == 0 and n % unit == 0
    return replace(shapes[0], n=n, streamable=aligned)


def _measured(shapes: Sequence[GemmShape], tuning: Tuning) -> list[float]:
    """Seconds of all of the shapes from a tuning table; empty where it lacks one: measured times and estimates do not
    compare."""
    for _, table in tuning.levels:
        entries = [table.entries.get(key_of(s)) for s in shapes]
        found = [e for e in entries if e is not None]
        if len(found) == len(shapes):
            return [e.measured_ns * 1e-9 for e in found]
    return []


def _seconds(s: GemmShape, machine: Gpu, tuning: Tuning) -> float:
    """Of the product with its plan, and of the kernel that adds its parts where it has several."""
    plan, _ = tuning.choose(s, machine)
    assert isinstance(plan, GemmPlan)
    part = replace(s, batch=s.batch * plan.splits, k=-(-s.k // plan.splits))
    spent = _traffic(s, machine) if plan.variant in ("vector", "outer") else estimate(plan, part, machine)
    return machine.waits.product_floor_s + spent + (machine.waits.nest_floor_s if plan.splits > 1 else 0.0)


def _traffic(s: GemmShape, machine: Gpu) -> float:
    return (s.m * s.k + s.k * s.n + s.m * s.n) * s.dtype.nbytes / machine.bandwidth


def _lost_epilogues(
    graph: Graph, branches: Sequence[Branch], readers: Mapping[str, Sequence[Op]], hints: Mapping[str, int]
) -> tuple[int, float]:
    """How many kernels compute what a product's own kernel computed along with it before, and the bytes they move.

    What is computed element by element from several of the results is one kernel: gate and up of an MLP.
    """
    kept = {*graph.outputs, *graph.finals().values()}
    kernels: list[set[str]] = []
    nbytes = 0.0
    for b in branches:
        found = _computed_from(graph, b.result, readers, kept)
        if not found:
            continue
        t = graph.types[b.result]
        nbytes += 2.0 * size_hint(product(t.shape), hints) * t.dtype.nbytes
        shared = [k for k in kernels if k & found]
        kernels = [k for k in kernels if not k & found] + [found.union(*shared)]
    return len(kernels), nbytes


def _computed_from(graph: Graph, value: str, readers: Mapping[str, Sequence[Op]], kept: set[str]) -> set[str]:
    """What is computed from `value` element by element; `value` itself, where it is an output of the graph.

    Empty where another place of it is read as well: that was a kernel of its own before.
    """
    numel = product(graph.types[value].shape)
    found = {value} & kept
    todo, seen = [value], {value}
    while todo:
        at = todo.pop()
        for op in readers.get(at, ()):
            if facts(op).elements is Elements.PICKED:
                return set()
            out = op.outputs[0] if op.outputs else ""
            moved = facts(op).elements is Elements.KEPT
            computed = op.kind in SCALAR_OPS and product(graph.types[out].shape) is numel
            if out in seen or not (moved or computed):
                continue
            seen.add(out)
            todo.append(out)
            if computed or out in kept:
                found.add(out)
    return found
