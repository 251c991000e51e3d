"""Which weights of few bits a bundle holds with more: so much an export says of a quantised model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hardtack.codegen.ir.constants import ModuleTensor
from hardtack.codegen.ir.types import DType
from hardtack.exporter import Exported


@dataclass(frozen=True)
class Widened:
    """A tensor of the module and what the bundle holds in its place, in bytes; dtypes by name, such as "i8"."""

    name: str
    dtype: str
    nbytes: int
    stored_dtype: str
    stored_nbytes: int


def widened_weights(exported: Exported) -> tuple[Widened, ...]:
    """The integers of 8 bits from which larger constants of floating point were computed, by name. One that several
    entry points hold counts once.
    """
    found: dict[str, dict[str, DType]] = {}
    for entry in exported.entries.values():
        for c in entry.graph.constants:
            stored = exported.store[c.key]
            small = [t for t in c.tensors if exported.tensors[t].dtype in (DType.I8, DType.U8)]
            if stored.dtype.is_float and stored.array.nbytes > sum(_nbytes(exported.tensors[t]) for t in small):
                for name in small:
                    found.setdefault(name, {})[c.key] = stored.dtype
    return tuple(_row(name, exported, keys) for name, keys in sorted(found.items()))


def _row(name: str, exported: Exported, keys: Mapping[str, DType]) -> Widened:
    own = exported.tensors[name]
    stored = sum(exported.store[key].array.nbytes for key in keys)
    return Widened(name, str(own.dtype), _nbytes(own), str(next(iter(keys.values()))), stored)


def _nbytes(tensor: ModuleTensor) -> int:
    count = tensor.dtype.nbytes
    for n in tensor.shape:
        count *= n
    return count
