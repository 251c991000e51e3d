"""Programs compiled without a file, by a backend that is given: for Triton's interpreter, and for single rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hardtack.api import size_hints
from hardtack.codegen.backend import Backend
from hardtack.codegen.pipeline import CompiledEntry, compile_entry
from hardtack.exporter import Exported, to_graphs
from hardtack.exporter.reference import bind_sizes
from tests.codegen.compare import Compiled
from tests.codegen.runner import Runner
from tests.fuzz.capture import graph_inputs
from tests.fuzz.judge import Call
from tests.fuzz.program import Program, build


@dataclass(frozen=True)
class Direct:
    """A program, compiled; `run` gives the results of calls on one set of states."""

    program: Program
    exported: Exported
    entry: CompiledEntry
    compiled: Compiled

    def run(self, calls: Sequence[Call]) -> list[list[torch.Tensor]]:
        self.compiled.runner.reset()
        return [self.compiled(*self._taken(call)) for call in calls]

    def _taken(self, call: Call) -> tuple[torch.Tensor, ...]:
        """The inputs of a call. ReferenceFailure where the graph's guards refuse them: nothing else looks here."""
        (entry,) = self.exported.entries.values()
        given = graph_inputs(entry, call.arguments(self.program))
        bind_sizes(self.compiled.graph, given)
        return tuple(given.values())


def compile_program(
    program: Program,
    backend: Backend,
    runner: type[Runner] = Runner,
    capture: Callable[..., Exported] = to_graphs,
) -> Direct:
    """Capture, compile and load, with the example's sizes as hints as in an export."""
    arguments = program.arguments()
    exported = capture(build(program), arguments, None, program.dynamic_shapes(), program.strict)
    (found,) = exported.entries.values()
    entry = compile_entry(found.graph, size_hints(found, arguments, {}), backend)
    loaded = Compiled(exported, found.graph, entry, runner(found.graph, entry, exported.store))
    return Direct(program, exported, entry, loaded)
