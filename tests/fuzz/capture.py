"""Programs as the export has them: captured and, where they say so, with products of 16 bits, small ones too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from hardtack import narrowing
from hardtack.exporter import Exported, narrowed, to_graphs
from hardtack.exporter.precision import DTYPES, Precision
from hardtack.exporter.program import EntryGraph
from hardtack.trees import flattener
from tests.fuzz.program import Program, build


def captured(program: Program) -> Exported:
    """The graph of a program."""
    found = to_graphs(build(program), program.arguments(), None, program.dynamic_shapes(), program.strict)
    return found if program.compute == "f32" else narrowed(found, Precision(DTYPES[program.compute], fewest=0))[0]


def graph_inputs(entry: EntryGraph, arguments: Sequence[Any]) -> dict[str, torch.Tensor]:
    """The arguments of a call by the names of the graph's inputs, dynamic ints as tensors. InputError for another
    constant than the example's.
    """
    leaves = flattener(entry.in_tree, entry.graph.name)(tuple(arguments), {})
    return {i.name: torch.as_tensor(x) for i, x in zip(entry.graph.inputs, leaves, strict=True)}


@contextmanager
def small_products() -> Iterator[None]:
    """Inside, an export with Options.compute leaves out no product for its size: those of programs are small."""
    with patch.object(narrowing, "Precision", partial(Precision, fewest=0)):
        yield
