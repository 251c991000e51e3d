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
    """One output at one or several examples, compared with that of the f32 model. absolute: the largest difference;
    relative: that over the largest f32 result; snr: sum of squares over that of the differences, in dB (inf: equal).
    num_lost: elements that are finite in f32 and not here, which the figures before and `cosine` leave out. cosine: of
    the two as vectors; 1 for equal. top1: the share of rows, along the last dimension, whose largest element is the
    same one; None for an output that is not of floating point or has no such dimension of 2 or more."""

    output: str
    absolute: float
    relative: float
    snr: float
    num_lost: int
    cosine: float
    top1: float | None


def compare_outputs(
    wide: Graph, narrowed: Graph, store: ConstantStore, inputs: Mapping[str, torch.Tensor]
) -> tuple[Accuracy, ...]:
    """The accuracy of each output of a narrowed graph. inputs: by name, of both graphs; states start as they do in a
    new session. Raises ReferenceFailure for inputs that the graph does not take."""
    with torch.no_grad():
        exact, found = results(wide, store, inputs), results(narrowed, store, inputs)
    meters = [AccuracyMeter(name) for name in wide.output_names]
    for meter, x, y in zip(meters, found, exact, strict=True):
        meter.add(x, y)
    return tuple(m.result() for m in meters)


@dataclass
class AccuracyMeter:
    """Adds up what the accuracy of one output is made of, over examples of any shapes. noise, signal: sums of squares,
    of the differences and of the f32 results; found, product: of the others' squares, and of the products of both."""

    output: str
    absolute: float = 0.0
    largest: float = 0.0
    noise: float = 0.0
    signal: float = 0.0
    found: float = 0.0
    product: float = 0.0
    num_lost: int = 0
    num_same: int = 0
    num_rows: int = 0

    def add(self, found: torch.Tensor, exact: torch.Tensor) -> None:
        """Counts an example, whose f32 result is `exact`."""
        if exact.is_floating_point() and exact.numel() and exact.dim() and exact.shape[-1] > 1:
            same = found.argmax(-1) == exact.argmax(-1)
            self.num_same += int(same.sum())
            self.num_rows += same.numel()
        a, b = found.double(), exact.double()
        self.num_lost += int((b.isfinite() & ~a.isfinite()).sum())
        both = a.isfinite() & b.isfinite()
        a, b = a[both], b[both]
        if b.numel():
            self.absolute = max(self.absolute, float((a - b).abs().max()))
            self.largest = max(self.largest, float(b.abs().max()))
            self.noise += float((a - b).square().sum())
            self.signal += float(b.square().sum())
            self.found += float(a.square().sum())
            self.product += float(a @ b)

    def result(self) -> Accuracy:
        """Of all that were counted."""
        relative = 0.0 if self.absolute == 0 else self.absolute / self.largest if self.largest else math.inf
        snr = math.inf if self.noise == 0 else 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf
        top1 = self.num_same / self.num_rows if self.num_rows else None
        return Accuracy(self.output, self.absolute, relative, snr, self.num_lost, self._cosine(), top1)

    def _cosine(self) -> float:
        """1 for equal ones; of vectors that differ 0 if one of them is zero."""
        norms = math.sqrt(self.found) * math.sqrt(self.signal)
        if self.absolute == 0:
            return 1.0
        return max(-1.0, min(1.0, self.product / norms)) if norms else 0.0
