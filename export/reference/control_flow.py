"""cond and while of the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from hardtack.codegen.ir.graph import Graph
from hardtack.exporter.reference.step import Step


def run_control(
    step: Step, run: Callable[[Graph, Sequence[torch.Tensor]], list[torch.Tensor]]
) -> tuple[torch.Tensor, ...]:
    """Run a cond's chosen branch, or a while's body as long as its condition gives true.

    run: gives the outputs of a graph inside of the op for its inputs, both in order.
    """

    def call(name: str, args: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        graph = step.op.attr(name)
        assert isinstance(graph, Graph)
        return tuple(run(graph, args))

    if step.op.kind == "cond":
        return call("then" if bool(step.args[0]) else "orelse", step.args[1:])
    carried, extra = list(step.args[: len(step.types)]), step.args[len(step.types) :]
    while bool(call("cond", [*carried, *extra])[0]):
        carried = list(call("body", [*carried, *extra]))
    return tuple(carried)
