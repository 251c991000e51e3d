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
    """One output at the example inputs, compared with that of the f32 model. absolute: the largest difference;
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
    return tuple(compare_tensors(n, x, y) for n, x, y in zip(wide.output_names, found, exact, strict=True))


def compare_tensors(name: str, found: torch.Tensor, exact: torch.Tensor) -> Accuracy:
    """The accuracy of one output, `found`, whose f32 result is `exact`."""
    top1 = _top1(found, exact)
    a, b = found.double(), exact.double()
    lost = b.isfinite() & ~a.isfinite()
    both = a.isfinite() & b.isfinite()
    a, b = a[both], b[both]
    if not b.numel():
        return Accuracy(name, 0.0, 0.0, math.inf, int(lost.sum()), 1.0, top1)
    absolute, largest = float((a - b).abs().max()), float(b.abs().max())
    noise, signal = float((a - b).square().sum()), float(b.square().sum())
    relative = 0.0 if absolute == 0 else absolute / largest if largest else math.inf
    snr = math.inf if noise == 0 else 10 * math.log10(signal / noise) if signal else -math.inf
    cosine = 1.0 if absolute == 0 else _cosine(a, b)
    return Accuracy(name, absolute, relative, snr, int(lost.sum()), cosine, top1)


def _cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    """Of vectors that differ: 0 if one of them is zero."""
    norms = float(torch.linalg.vector_norm(a)) * float(torch.linalg.vector_norm(b))
    return max(-1.0, min(1.0, float(a @ b) / norms)) if norms else 0.0


def _top1(found: torch.Tensor, exact: torch.Tensor) -> float | None:
    if not exact.is_floating_point() or not exact.numel() or not exact.dim() or exact.shape[-1] < 2:
        return None
    return float((found.argmax(-1) == exact.argmax(-1)).double().mean())
