"""How near a run comes to what the machine can do: the share of the peak that bounds it."""

from __future__ import annotations

import math

import torch

from bench.measure import Measured
from bench.peaks import KERNELS, Peaks

DENSE = frozenset({
    "resnet50", "vit_b16", "bert_base_s128", "gemm_1024", "gemm_128x3072x768", "resnet_48_192px_b3",
    "vit_320_208px_b3", "bert_576_s77_b5", "neox_640_prefill_s384",
})  # fmt: skip
"""Models bound by multiply-adds."""
STREAMED = frozenset({"gpt2_decode", "llama_decode", "qwen3_896_decode", "neox_640_decode"})
"""Models bound by reading their weights, which no cache holds, for one row."""
_INSTRUCTIONS = {"float32": ("fma",), "bfloat16": ("fma", "dot", "tile"), "float16": ("fma",)}
"""What may compute a dtype: of these, the fastest is the peak."""


def share(measured: Measured, system: str, peaks: Peaks) -> tuple[str, float] | None:
    """A peak's kernel and the share of it that `system` reaches; None for a model that no single peak bounds, for one
    whose work nobody counted, in int8, of which no peak is measured, and where the system failed."""
    result, work = measured.results.get(system), measured.work
    if result is None or math.isnan(result.ms) or work is None or measured.dtype == "int8":
        return None
    if measured.model in STREAMED:
        nbytes = work.weight_nbytes(getattr(torch, measured.dtype))
        return "read", nbytes / (result.ms * 1e-3) / peaks["read"]
    if measured.model in DENSE:
        kernel = max((k for k in _INSTRUCTIONS[measured.dtype] if k in peaks), key=peaks.__getitem__)
        return kernel, work.flops / (result.ms * 1e-3) / peaks[kernel]
    return None


def text(found: tuple[str, float] | None) -> str:
    """Such as "91% of FMA f32"; "" for none."""
    return "" if found is None else f"{found[1]:.0%} of {KERNELS[found[0]].title}"
