"""Products whose right matrices are picked from others by an index, as experts are: read where they lie.

`weights[ids]` is a copy of as many matrices as there are ids, written and read again for one product. What is picked
becomes an operand of the product instead, and its address depends on the index.
"""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, Sym, sym
from hardtack.codegen.ir.expr_walk import free_syms, split_linear, substitute
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.loops import Arg
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.lower.builder import Lowering, NestBuilder
from hardtack.codegen.lower.operands import is_constant
from hardtack.codegen.lower.picked_codes import load_picked
from hardtack.codegen.lower.sums import matmul_as_reduction
from hardtack.codegen.lower.views import INDEX_MAPS, Idx, base_of
from hardtack.codegen.machine.machine import Cpu


@dataclass(frozen=True)
class Picked:
    """The right matrices [S, K, N] of a product: matrix s is made of the elements of `source` at `index`, in which
    `pick` stands for the number in picks[s]; `at` has the symbols of s, K and N, ZERO for sizes of 1."""

    source: str
    picks: str
    index: Idx
    pick: Sym
    at: Idx


_PICK = "pick"


def picked_matrices(low: Lowering, op: Op) -> Picked | None:
    """What a product reads where it lies; None where its right side is computed first, as for any other value.

    Several rows are multiplied by a template, of constants on CPUs; one row by anything.
    """
    found = _picked(low, op)
    if found is None:
        return None
    one_row = low.graph.types[op.value(0)].shape[-2] is ONE
    return found if one_row or (isinstance(low.machine, Cpu) and weights_of(low, found) is not None) else None


def _picked(low: Lowering, op: Op) -> Picked | None:
    shape = low.graph.types[op.value(1)].shape if op.kind == "matmul" else ()
    take = low.producers.get(base_of(low.producers, op.value(1))) if len(shape) == 3 else None
    if take is None or take.kind != "take" or len(take.inputs) != 2 or not isinstance(take.inputs[1], str):
        return None
    axes = [sym(f"m{d}", extent=n) for d, n in enumerate(shape)]
    at: Idx = tuple(ZERO if n is ONE else a for a, n in zip(axes, shape, strict=True))
    index, value = at, op.value(1)
    while value != take.outputs[0]:
        view = low.producers[value]
        source = view.value(0)
        index = INDEX_MAPS[view.kind](view, index, low.graph.types[source].shape, low.graph.types[value].shape)
        value = source
    (dim,), first, source = take.tuple_attr("dims"), take.int_attr("at"), take.value(0)
    rest = (*index[:first], *index[first + 1 :])
    one_index = low.graph.types[take.value(1)].shape == shape[:1]  # a view may have dropped the last ones
    if base_of(low.producers, source) in low.overwritten:
        return None  # by the time that the product reads it
    if not one_index or index[first] is not at[0] or any(axes[0] in free_syms(e) for e in rest):
        return None
    pick = sym(_PICK, extent=low.graph.types[source].shape[dim])
    return Picked(source, take.value(1), (*rest[:dim], pick, *rest[dim:]), pick, at)


def weights_of(low: Lowering, picked: Picked) -> Operand | None:
    """The matrices that are picked from, [E, K, N], where they are a constant of numbers; None where not."""
    if not is_constant(low, picked.source):
        return None
    name, at = low.locate(picked.source, picked.index)
    if name not in low.constants or name in low.quantized:
        return None
    offset = low.buffers[name].offset(at)
    strides: list[Expr] = []
    sizes = [_size(a) for a in (picked.pick, *picked.at[1:])]
    for a in (picked.pick, *picked.at[1:]):
        parts = split_linear(offset, a) if isinstance(a, Sym) else (ZERO, offset)
        if parts is None:
            return None
        strides.append(parts[0])
        offset = parts[1]
    return Operand(name, low.buffers[name].dtype, offset, tuple(sizes), tuple(strides))


def _size(axis: Expr) -> Expr:
    """Of a dimension, by its symbol; ONE for none."""
    return axis.extent if isinstance(axis, Sym) and axis.extent is not None else ONE


def picked_as_reduction(low: Lowering, op: Op, picked: Picked) -> None:
    """A sum over the inner dimension, each term's element of the right side at a place that its index names."""

    def right(b: NestBuilder, at: Idx) -> Arg:
        size = low.graph.types[picked.source].shape[picked.index.index(picked.pick)]
        number = b.check(b.load(picked.picks, (at[0],)), size)
        swap: dict[Expr, Expr] = {a: e for a, e in zip(picked.at, at, strict=True) if a is not ZERO}
        return load_picked(b, picked.source, tuple(substitute(e, {**swap, picked.pick: number}) for e in picked.index))

    low.decide(op.outputs[0], "reductions", "it reads the matrices that it picks where they lie")
    matmul_as_reduction(low, op, right)


def read_by_products_only(low: Lowering, take: Op) -> bool:
    """True for a take that nothing needs in memory: products read what it picks where it lies."""
    value = take.outputs[0]
    kept = {base_of(low.producers, x) for x in low.graph.outputs}
    kept |= {base_of(low.producers, x) for x in low.graph.finals().values()}
    readers = [*low.readers_of(value)]
    return bool(readers) and value not in kept and all(
        base_of(low.producers, op.value(0)) != value and picked_matrices(low, op) is not None
        if op.kind == "matmul" else False
        for op in readers
    )  # fmt: skip
