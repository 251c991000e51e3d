"""Sizes at which strides may be others than torch traced them, for a model that asks for them or depends on them.

Those of dimensions of size 1 are anything, and torch answers with those of larger ones; of an op whose result torch
lays out otherwise than eager mode does, it traces the wrong views at some sizes, although at the example's sizes the
two do the same. Nothing tells which sizes these are, so small ones are tried by runs.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch.export import ExportedProgram

from hardtack.exporter.capture.small.sizes import Decision
from hardtack.exporter.capture.small.small_shapes import apart_from, small_sizes_of
from hardtack.exporter.errors import SourceLine

_SIZES = (1, 2)
"""With 2 of them, x[1:] has one row."""


def stride_decisions(ep: ExportedProgram, where: SourceLine | None) -> Iterator[Decision]:
    """That no dynamic size of the inputs is as small as these. where: the line that asks, if it is known."""
    for small in small_sizes_of(ep, _SIZES):
        yield apart_from(small, where)
