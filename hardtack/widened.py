"""Which weights of few bits a bundle holds with more: so much an export says of a quantised model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.build import Built, Source
from hardtack.codegen.ir.constants import ConstantData, ConstantStore, ModuleTensor
from hardtack.codegen.ir.types import DType
from hardtack.codegen.plan.prepack import sources_of


@dataclass(frozen=True)
class Widened:
    """A tensor of the module and what the bundle holds in its place, in bytes; dtypes by name, such as "i8"."""

    name: str
    dtype: str
    nbytes: int
    stored_dtype: str
    stored_nbytes: int


def widened_weights(
    sources: Mapping[str, Source], store: ConstantStore, tensors: Mapping[str, ModuleTensor], built: Built
) -> tuple[Widened, ...]:
    """The integers and floats of 8 bits, by name, from which larger constants of floating point were computed that a
    target reads. What several entry points or targets hold counts once. tensors: the module's, by name.
    """
    found: dict[str, dict[str, tuple[DType, int]]] = {}
    for (entry_name, _), compiled in built.compiled.items():
        constants = {x.name: x for g in sources[entry_name].graphs for c in g.constants for x in (c, *c.parts())}
        for read in {*compiled.constants, *(x for p in compiled.prepacks.values() for x in sources_of(p))}:
            stored = store[constants[read].key]
            for name in constants[read].tensors if stored.dtype.is_float else ():
                if name in tensors and _is_wider(stored, tensors[name]):
                    found.setdefault(name, {})[constants[read].key] = stored.dtype, stored.array.nbytes
    return tuple(_row(name, tensors[name], tuple(held.values())) for name, held in sorted(found.items()))


def _is_wider(stored: ConstantData, tensor: ModuleTensor) -> bool:
    """True for integers and floats of 8 bits, each of one or two of a larger constant's numbers: for no scale or zero
    point."""
    codes = tensor.dtype in (DType.I8, DType.U8) or tensor.dtype.is_float8
    made_of = codes and stored.array.size <= 2 * math.prod(tensor.shape)
    return made_of and stored.array.nbytes > _nbytes(tensor)


def _row(name: str, own: ModuleTensor, held: Sequence[tuple[DType, int]]) -> Widened:
    return Widened(name, str(own.dtype), _nbytes(own), str(held[0][0]), sum(nbytes for _, nbytes in held))


def _nbytes(tensor: ModuleTensor) -> int:
    return tensor.dtype.nbytes * math.prod(tensor.shape)
