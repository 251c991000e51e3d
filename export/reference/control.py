"""cond and while of the reference interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.graph import Graph
from hardtack.export.reference import Step, outputs, run


def run_control(step: Step, store: ConstantStore) -> tuple[torch.Tensor, ...]:
    """Run a cond's chosen branch, or a while's body as long as its condition gives true."""

    def call(name: str, args: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        graph = step.op.attr(name)
        assert isinstance(graph, Graph)
        inputs = {i.name: a for i, a in zip(graph.inputs, args, strict=True)}
        return tuple(outputs(graph, run(graph, store, inputs, sizes=step.sizes)))

    if step.op.kind == "cond":
        return call("then" if bool(step.args[0]) else "orelse", step.args[1:])
    carried, extra = list(step.args[: len(step.types)]), step.args[len(step.types) :]
    while bool(call("cond", [*carried, *extra])[0]):
        carried = list(call("body", [*carried, *extra]))
    return tuple(carried)
