"""Sizes at which strides may be others than torch traced them, for a model that asks for them or depends on them.

Those of dimensions of size 1 are anything, and torch answers with those of larger ones; of an op whose result torch
lays out otherwise than eager mode does, it traces the wrong views at some sizes, although at the example's sizes the
two do the same. Nothing tells which sizes these are, so small ones are tried by runs.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import sympy
import torch
from torch.export import ExportedProgram

from hardtack.exporter.aliases import written_views
from hardtack.exporter.capture.conditions import shape_env
from hardtack.exporter.capture.small.sizes import Decision
from hardtack.exporter.capture.small.small_shapes import apart_from, input_symbols, small_sizes_of
from hardtack.exporter.errors import SourceLine
from hardtack.exporter.origin import source_of
from hardtack.exporter.sizes.shapes import NO_NUMBER
from hardtack.exporter.sizes.strides import contract_order, laid_out, otherwise_strided

_SIZES = (1, 2)
"""With 2 of them, x[1:] has one row."""


def stride_decisions(ep: ExportedProgram, where: SourceLine | None) -> Iterator[Decision]:
    """That no dynamic size of the inputs is as small as these. where: the line that asks, if it is known."""
    for small in small_sizes_of(ep, _SIZES):
        yield apart_from(small, where)


_AT_ONCE = 2
"""How many sizes are taken to be 1 at once: height and width."""


def layout_decisions(ep: ExportedProgram) -> Iterator[Decision]:
    """That no sizes are 1 at which an input is row-major and channels_last at once, where the program, not yet
    decomposed, writes through a view: what eager mode makes of such an input is laid out by strides that are the
    caller's choice, and what was a view of it may be a copy.
    """
    env, written = shape_env(ep), next(iter(written_views(ep)), None)
    if env is None or written is None:
        return
    inputs = [n.meta.get("val") for n in ep.graph.find_nodes(op="placeholder")]
    tensors = [x for x in inputs if isinstance(x, torch.Tensor) and any(isinstance(n, torch.SymInt) for n in x.shape)]
    found: list[set[sympy.Symbol]] = []
    for count in range(1, _AT_ONCE + 1):
        for symbols in itertools.combinations(input_symbols(ep), count):
            small = dict.fromkeys(symbols, sympy.Integer(1))
            at = {**env.backed_var_to_val, **small}
            if not any(known <= set(symbols) for known in found) and any(_is_laid_out_twice(x, at) for x in tensors):
                found.append(set(symbols))
                yield apart_from(small, source_of(written))


def _is_laid_out_twice(x: torch.Tensor, at: Mapping[sympy.Symbol, int]) -> bool:
    """Whether a tensor of these sizes, in the order of its dimensions, is laid out in the other of the two, too."""
    try:
        sizes = [int(n.node.expr.xreplace(at)) if isinstance(n, torch.SymInt) else n for n in x.shape]
    except NO_NUMBER:
        return False
    made = laid_out(torch.empty(sizes, device="meta"), contract_order(x))
    return otherwise_strided(made) is not made
