"""Programs as the export has them: captured and, where they say so, with products of 16 bits, small ones too, or with
caches as codes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from hardtack import narrowing
from hardtack.exporter import Exported, narrowed, to_graphs, with_caches
from hardtack.exporter.precision import DTYPES, KeptState, Precision
from hardtack.exporter.program import EntryGraph
from hardtack.trees import flattener
from tests.fuzz.program import Program, build
from tests.fuzz.ways import Failed


def captured(program: Program) -> Exported:
    """The graph of a program."""
    return as_asked(
        program, to_graphs(build(program), program.arguments(), None, program.dynamic_shapes(), program.strict)
    )


def as_asked(program: Program, found: Exported) -> Exported:
    """The graph that was captured of a program, with what it asks for. Failed where other states than the program says
    become caches."""
    if program.compute != "f32":
        found, _ = narrowed(found, Precision(DTYPES[program.compute], fewest=0))
    if program.cache:
        found, choice, _ = with_caches(found, program.cache, ())
        check_caches(program, [c.name for c in choice.caches], choice.kept)
    return found


def check_caches(program: Program, names: Collection[str], kept: Iterable[KeptState], room: str = "") -> None:
    """Failed where other states than the program says became caches. room: as build() has it."""
    want = {f"{c}_{room}" if room else c for c in program.caches}
    own = {w.spec.name + (f"_{room}" if room else "") for w in program.weights}
    if set(names) & own != want:
        why = "; ".join(f"{k.name}: {k.reason}" for k in kept if k.name in want)
        more = ", ".join(sorted(set(names) & own - want))
        raise Failed("wrong", f"caches that are none: {more or 'none'}; no caches: {why or 'none'}")


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
