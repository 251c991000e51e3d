"""Programs as the export has them: captured and, where they say so, with products of 16 bits, small ones too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from hardtack import narrowing
from hardtack.exporter import Exported, narrowed, to_graphs
from hardtack.exporter.precision import DTYPES, Precision
from tests.fuzz.program import Program, build


def captured(program: Program) -> Exported:
    """The graph of a program."""
    found = to_graphs(build(program), program.arguments(), None, program.dynamic_shapes(), program.strict)
    return found if program.compute == "f32" else narrowed(found, Precision(DTYPES[program.compute], fewest=0))[0]


@contextmanager
def small_products() -> Iterator[None]:
    """Inside, an export with Options.compute leaves out no product for its size: those of programs are small."""
    with patch.object(narrowing, "Precision", partial(Precision, fewest=0)):
        yield
