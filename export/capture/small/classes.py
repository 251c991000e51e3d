"""Cross entropy with probabilities as targets divides by the number of samples, which torch.export writes as a
quotient: numbers of the input by classes. Without classes eager divides by 0; of n * classes // classes, n is left.
"""

from __future__ import annotations

from collections.abc import Iterator

import sympy
import torch
from torch.export import ExportedProgram

from hardtack.exporter.capture.small.sizes import Decision, equals
from hardtack.exporter.origin import source_of


def class_decisions(ep: ExportedProgram) -> Iterator[Decision]:
    """That there is a class, for each such loss of dynamic classes in a program that is not yet decomposed."""
    for node in ep.graph.nodes:
        if node.target is not torch.ops.aten.cross_entropy_loss.default:
            continue
        scores, targets = (n.meta["val"] for n in node.args[:2])
        classes = scores.shape[min(1, scores.dim() - 1)]
        if targets.dtype.is_floating_point and isinstance(classes, torch.SymInt):
            symbols = sorted(classes.node.expr.free_symbols, key=str)
            trials = tuple(((str(s), 0),) for s in symbols if equals(classes.node.expr, {s: sympy.Integer(0)}, 0))
            if trials:
                yield Decision(sympy.Ne(classes.node.expr, 0, evaluate=False), source_of(node), trials)
