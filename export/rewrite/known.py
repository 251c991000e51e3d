"""What is known of a value that is computed at export, beside its numbers: the codes that it was made of, and what it
repeats."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hardtack.codegen.ir.constants import Recipe


@dataclass(frozen=True)
class Narrow:
    """Numbers as floats of 8 bits, one by one, and the one number of f32 with which these are multiplied, if any."""

    codes: torch.Tensor
    tensors: tuple[str, ...]
    recipe: Recipe | None
    factor: Known | None


@dataclass(frozen=True)
class Spread:
    """Numbers that a value repeats: it is numbers[index], element by element. recipe: of the numbers; narrow: what they
    were converted from."""

    numbers: torch.Tensor
    index: torch.Tensor
    recipe: Recipe | None
    narrow: Narrow | None = None


@dataclass(frozen=True)
class Known:
    """A value that is known at export. tensors, recipe: as a Constant has them. codes: what it was dequantised from;
    spread: what it repeats; of_bytes: all of it follows from constants of 8 bits and a few numbers."""

    value: torch.Tensor
    tensors: tuple[str, ...] = ()
    recipe: Recipe | None = None
    codes: Codes | None = None
    spread: Spread | None = None
    of_bytes: bool = False


@dataclass(frozen=True)
class Step:
    """`kind` (of dequantized.STEPS) with numbers that are spread over the weight's shape, in f32. result: what it is
    rounded to."""

    kind: str
    spread: Spread
    tensors: tuple[str, ...]
    result: torch.dtype


@dataclass(frozen=True)
class Codes:
    """Codes, and the steps that make a value of the same shape of them."""

    value: torch.Tensor
    tensors: tuple[str, ...]
    recipe: Recipe | None
    steps: tuple[Step, ...] = ()
