"""Views that sizes decide: reshape, flatten, ravel or contiguous give a view of their operand where its strides fit, a
copy elsewhere; sum_to_size gives its operand where there is nothing to add up.

torch decides it for sizes from 2 on. At size 1 more strides fit: x.t().reshape(-1) is a view of x where one side is 1,
x[:, 1:].t().reshape(-1) where x has two columns.
The elements are the same; who writes to them in place can tell. What is noted here, runs.py tries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node

from hardtack.exporter.aliases import aliased_operands, is_composite, written_views
from hardtack.exporter.capture.small.sizes import Decision, equals
from hardtack.exporter.eager_views import is_view
from hardtack.exporter.origin import source_of
from hardtack.exporter.sizes.strides import is_dense


def view_decisions(ep: ExportedProgram) -> Iterator[Decision]:
    """That not all of certain sizes and strides are 1, for which such a node is a view and otherwise a copy or the
    reverse, where the program, not yet decomposed, writes to what it may be a view of.
    """
    for node in written_views(ep):
        if is_composite(node) and len(aliased_operands(node)) == 1 and isinstance(node.meta.get("val"), torch.Tensor):
            yield from _decisions(node)


def _decisions(node: Node) -> Iterator[Decision]:
    usual, found = is_view(node), list[set[sympy.Expr]]()
    operand = aliased_operands(node)[0].meta.get("val")
    ones = _ones(operand)
    # of channels_last and row-major, one size of 1 can make the same; eager mode then chooses by what it is given
    plain = not isinstance(operand, torch.Tensor) or is_dense(operand, tuple(range(operand.dim())))
    for count in range(1, _AT_ONCE + 1):
        for numbers in itertools.combinations(sorted(ones, key=str), count):
            at = _joined(ones[n] for n in numbers)
            if at is None or any(known <= set(numbers) for known in found):
                continue
            other = not _stays(node, at, usual)
            if not other and (plain or count > 1):
                continue
            found += [set(numbers)] if other else []
            trial = tuple((str(s), int(n)) for s, n in sorted(at.items(), key=str))
            yield Decision(sympy.Ne(sympy.prod(numbers), 1, evaluate=False), source_of(node), (trial,), asked=other)


_AT_ONCE = 3
"""How many sizes are taken to be 1 at once."""

Assignment = tuple[tuple[sympy.Symbol, sympy.Integer], ...]


def _stays(node: Node, at: Mapping[sympy.Symbol, sympy.Integer], usual: bool) -> bool:
    """True if the node is a view, or is none, as usual at these sizes too; where it has no result, a run will tell."""
    try:
        return is_view(node, at) is usual
    except Exception:  # whatever the op raises: it does not take these sizes
        return False


def _ones(value: object) -> dict[sympy.Expr, Assignment]:
    """The dynamic sizes and strides of a tensor, of one symbol each, and the symbols, with what makes them 1. One that
    several sizes do, such as n // 4, comes with the largest; for the smallest, which may be 1, stands n - size + 1.
    """
    if not isinstance(value, torch.Tensor):
        return {}
    numbers = {n.node.expr: n.node.shape_env for n in (*value.shape, *value.stride()) if isinstance(n, torch.SymInt)}
    found: dict[Assignment, sympy.Expr] = {}
    for number, env in [(s, env) for e, env in numbers.items() for s in (*e.free_symbols, e)]:
        if len(number.free_symbols) != 1:
            continue
        (symbol,) = number.free_symbols
        sizes = [sympy.Integer(n) for n in range(1, int(env.backed_var_to_val.get(symbol, 0)) + 1)]
        fits = [n for n in sizes if equals(number, {symbol: n}, 1)]
        for n in (*fits[:1], *fits[-1:]):
            found.setdefault(((symbol, n),), number if n == fits[-1] else symbol - n + 1)
    return {number: at for at, number in found.items()}


def _joined(assignments: Iterable[Assignment]) -> dict[sympy.Symbol, sympy.Integer] | None:
    """All of them at once; None if they give one symbol two sizes."""
    pairs = {pair for assignment in assignments for pair in assignment}
    return dict(pairs) if len(dict(pairs)) == len(pairs) else None
