"""The bytes of constants: content-addressed, so that equal weights are kept once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hardtack.codegen.ir.types import DType

NUMPY_DTYPE: dict[DType, np.dtype[np.generic]] = {dtype: dtype.numpy for dtype in DType}
"""The numpy dtype that holds a DType's elements."""


@dataclass(frozen=True)
class View:
    """Elements of a flat array: the one at `index` lies at offset + index . strides. All count elements."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


COMPUTED = {"sums": DType.I32}
"""Packings that compute numbers of their own dtype, and move no elements: they have no recipe."""


@dataclass(frozen=True)
class Packing:
    """A layout of codegen/plan/prepack.py and its numbers."""

    kind: str
    params: tuple[int, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """How a constant is made of the tensor `source` of the module: seen as flat and row-major, then each view in turn a
    new row-major array of the one before, then the packing. Nothing is computed: elements only move, or repeat.

    into: the elements of the constant that this gives, in a constant that is joined of several; None: all of them.
    """

    source: str
    views: tuple[View, ...] = ()
    packing: Packing | None = None
    into: View | None = None


@dataclass(frozen=True)
class ModuleTensor:
    """A parameter or buffer as its module has it; `aliases`: other names of the same tensor, sorted."""

    dtype: DType
    shape: tuple[int, ...]
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ConstantData:
    """A contiguous array of `shape`; bf16 is held as its bits in uint16."""

    dtype: DType
    array: npt.NDArray[np.generic]

    def key(self) -> str:
        """sha256 over dtype, shape and bytes, in hex: the name of this content."""
        digest = hashlib.sha256(f"{self.dtype}{list(self.array.shape)}".encode())
        digest.update(np.ascontiguousarray(self.array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


@dataclass
class ConstantStore:
    """key -> content. Grows while a model is captured and prepared; stages after that only read it.

    inlined: the module's tensors whose values decided how the graph was rewritten, or stand in it as literals.
    """

    data: dict[str, ConstantData] = field(default_factory=dict)
    inlined: set[str] = field(default_factory=set)

    def add(self, dtype: DType, array: npt.NDArray[np.generic]) -> str:
        """Keep `array` (copied only if it is not contiguous) and return its key."""
        entry = ConstantData(dtype, np.ascontiguousarray(array).reshape(array.shape))
        key = entry.key()
        self.data.setdefault(key, entry)
        return key

    def __getitem__(self, key: str) -> ConstantData:
        return self.data[key]
