"""How far the outputs of a narrowed graph lie from those of the one in f32."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.graph import Graph
from hardtack.exporter.reference import results


@dataclass(frozen=True)
class Accuracy:
    """One output at the example inputs, compared with that of the f32 graph. absolute: the largest difference;
    relative: that over the largest f32 result; snr: sum of squares over that of the differences, in dB (inf: equal).
    num_lost: elements that are finite in f32 and not here, which the other figures leave out."""

    output: str
    absolute: float
    relative: float
    snr: float
    num_lost: int


def compare_outputs(
    wide: Graph, narrowed: Graph, store: ConstantStore, inputs: Mapping[str, torch.Tensor]
) -> tuple[Accuracy, ...]:
    """The accuracy of each output of a narrowed graph. inputs: by name, of both graphs; states start as they do in a
    new session. Raises ReferenceFailure for inputs that the graph does not take."""
    with torch.no_grad():
        exact, found = results(wide, store, inputs), results(narrowed, store, inputs)
    return tuple(_accuracy(n, x, y) for n, x, y in zip(wide.output_names, found, exact, strict=True))


def _accuracy(name: str, found: torch.Tensor, exact: torch.Tensor) -> Accuracy:
    a, b = found.double(), exact.double()
    lost = b.isfinite() & ~a.isfinite()
    both = a.isfinite() & b.isfinite()
    a, b = a[both], b[both]
    if not b.numel():
        return Accuracy(name, 0.0, 0.0, math.inf, int(lost.sum()))
    absolute, largest = float((a - b).abs().max()), float(b.abs().max())
    noise, signal = float((a - b).square().sum()), float(b.square().sum())
    relative = 0.0 if absolute == 0 else absolute / largest if largest else math.inf
    snr = math.inf if noise == 0 else 10 * math.log10(signal / noise) if signal else -math.inf
    return Accuracy(name, absolute, relative, snr, int(lost.sum()))
