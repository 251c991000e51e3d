"""Which products of a graph take 16 bits, and why the others stay f32."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.expr import int_value, product
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ir.types import DType
from hardtack.exporter.constants import load_tensor
from hardtack.exporter.dtypes import TORCH_DTYPE
from hardtack.exporter.precision.decisions import deciding_values
from hardtack.exporter.rewrite.edit import Facts

DTYPES = {"bf16": DType.BF16, "f16": DType.F16}
"""What products can be computed in, by the word that Options.compute has for it."""

NARROWED = {"matmul": 2, "grouped_matmul": 2, "conv": 2, "attention": 3}
"""Kinds of products, and how many of the first operands take the 16 bits. A convolution's bias, an attention's mask and
the ends of groups stay as they are."""

# fmt: off
_PRODUCTS = frozenset({
    "addbmm", "addmm", "addmv", "baddbmm", "bmm", "convolution", "dot", "einsum", "grouped_mm_fallback", "_grouped_mm",
    "gru", "linear", "lstm", "matmul", "mm", "mv", "rnn_relu", "rnn_tanh", "_scaled_mm", "scaled_dot_product_attention",
})
# fmt: on
"""torch's ops of which a product is what the user has written. Of others, such as a Fourier transform, it is a part,
and their accuracy is not that of a product."""

FEWEST_TERMS = 8
"""Of a sum of fewer, neither time nor memory is won; what has them are coordinates, frequencies, depths."""
FEWEST_MULTIPLICATIONS = 1 << 14
"""Below, converting costs more than the product."""
_LARGEST_LOSS = 2.0**-8
"""What rounding may do to weights, as ||w - rounded|| / ||w||: more than bf16 ever does to numbers that it holds."""


@dataclass(frozen=True)
class Precision:
    """dtype: of the operands of products. keep_f32: patterns of module paths whose products stay as they are, as
    Options has them. fewest: multiplications from which on a product is worth it."""

    dtype: DType
    keep_f32: tuple[str, ...] = ()
    fewest: int = FEWEST_MULTIPLICATIONS


@dataclass(frozen=True)
class Kept:
    """A product that stays f32: its value's name, the module that it stands in, and why."""

    value: str
    module: str
    reason: str


class Choice:
    """What of one graph's products is narrowed. counted: the values that follow from whole numbers alone."""

    def __init__(self, facts: Facts, store: ConstantStore, precision: Precision, counted: set[str]) -> None:
        self._facts, self._store, self._precision, self._counted = facts, store, precision, counted
        self._deciding = deciding_values(facts)
        self._kept_between_runs = {x for s in facts.graph.states for x in (s.name, s.final)}
        self._kept_between_runs |= {x for pair in facts.graph.finals().items() for x in pair}

    def is_product(self, op: Op) -> bool:
        """True for a product of f32, whether it stays so or not."""
        return op.kind in NARROWED and self._facts.graph.type_of(op.inputs[0]).dtype is DType.F32

    def why_kept(self, op: Op) -> str | None:
        """Why a product of f32 stays so; None for one that is narrowed. The reasons are those of docs/contract.md."""
        name = op.origin.op.removeprefix("aten.").removeprefix("transformers.")
        pattern = matching(op.origin.module, self._precision.keep_f32)
        operands = [x for x in op.inputs[: NARROWED[op.kind]] if isinstance(x, str)]
        if pattern is not None:
            return f"keep_f32 has {pattern!r}"
        if name and name not in _PRODUCTS:
            return f"a part of {name}"
        if any(x in self._counted for x in operands):
            return "an operand follows from whole numbers alone"
        if self._kept_between_runs.intersection(map(self._source, operands)):
            return "an operand is a state, all of which each run would convert"
        if self._deciding.intersection(op.outputs):
            return "its order or whole part decides what is read"
        terms, work = self._sizes(op)
        if terms is not None and terms < FEWEST_TERMS:
            return f"fewer than {FEWEST_TERMS} terms"
        if work is not None and work < self._precision.fewest:
            return "too small to gain"
        if not all(map(self._holds, operands)):
            return f"{self._precision.dtype} does not hold its weights"
        return None

    def _sizes(self, op: Op) -> tuple[int | None, int | None]:
        """(terms of each sum, multiplications); None where the inputs' sizes decide."""
        first, second = (self._facts.shape(x) for x in op.inputs[:2])
        if op.kind == "conv":
            channels = first[1] // op.int_attr("groups")
            terms = int_value(channels * product(second[2:]))
        else:
            terms = int_value(first[-1])
        results = int_value(product(self._facts.shape(op.outputs[0])))
        if op.kind == "attention":  # scores, too: as many rows as the result has, one for each key
            keys = int_value(second[2])
            results = None if results is None or keys is None else results * keys
        return terms, None if terms is None or results is None else terms * results

    def _source(self, value: str) -> str:
        """The value that a value is a view of; itself if it is none."""
        while is_view(made := self._facts.producer.get(value)):
            assert made is not None
            value = made.value(0)
        return value

    def _holds(self, value: str) -> bool:
        """True unless value is a constant that rounding to the dtype changes more than it changes any usual number."""
        constant = self._facts.constants.get(self._source(value))
        if constant is None:
            return True
        exact = load_tensor(self._store, constant.key).float()
        rounded = exact.to(TORCH_DTYPE[self._precision.dtype]).float()
        size = float(torch.linalg.vector_norm(exact))
        loss = float(torch.linalg.vector_norm(exact - rounded))
        # infinities and NaN of the model's own say nothing
        return not math.isfinite(size) or loss <= _LARGEST_LOSS * size


def matching(module: str, patterns: tuple[str, ...]) -> str | None:
    """The first pattern that names a module or one that it lies in."""
    return next((p for p in patterns if fnmatchcase(module, p) or fnmatchcase(module, f"{p}.*")), None)
