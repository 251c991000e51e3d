"""`*.safetensors` members: a tensor for each distinct content, aligned, in name order (docs/package.md, "Weights")."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hardtack.codegen.ir.constants import NUMPY_DTYPE, ConstantData
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package import canonical
from hardtack.codegen.package.canonical import Fields, check_int, check_text
from hardtack.codegen.package.errors import LoadError

ALIGNMENT = 256
_PAD = "__pad_"
_MAX_RANK = 64
_MAX_HEADER_NBYTES = 100_000_000  # the safetensors library's own limit
_DTYPES = {dtype.safetensors: dtype for dtype in DType}


@dataclass(frozen=True)
class Tensor:
    """A tensor of a weights member: its bytes are [begin, end) from the start of the member."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def numel(self) -> int:
        return numel_of(self.shape)


def numel_of(shape: Sequence[int]) -> int:
    """The number of elements of a tensor of `shape`."""
    out = 1
    for n in shape:
        out *= n
    return out


def assign(constants: Sequence[tuple[str, ConstantData]]) -> dict[str, str]:
    """Constant name -> tensor name: the first name, in order, of the constants of equal dtype, numel and bytes.

    Raises ValueError for a name that safetensors or the padding keeps for itself, or that stands twice.
    """
    first: dict[tuple[str, int, bytes], str] = {}
    out: dict[str, str] = {}
    for name, constant in sorted(constants, key=lambda c: c[0]):
        if name in out:
            raise ValueError(f"two constants are named {name!r}")
        if name == "__metadata__" or name.startswith(_PAD):
            raise ValueError(f"a constant cannot be named {name!r}: weight files use that name themselves")
        data = _bytes_of(constant)
        content = (constant.dtype.value, constant.array.size, hashlib.sha256(data).digest())
        out[name] = first.setdefault(content, name)
    return out


def _bytes_of(constant: ConstantData) -> memoryview:
    stored = np.ascontiguousarray(constant.array, dtype=NUMPY_DTYPE[constant.dtype])
    return stored.reshape(-1).view(np.uint8).data


def write(tensors: Mapping[str, ConstantData]) -> list[bytes | memoryview]:
    """The member's bytes, in pieces; tensors are not copied."""
    header: dict[str, object] = {}
    pieces: list[bytes | memoryview] = []
    offset = pads = 0
    for name in sorted(tensors):
        data = _bytes_of(tensors[name])
        gap = -offset % ALIGNMENT
        if gap:
            header[f"{_PAD}{pads}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [offset, offset + gap]}
            pieces.append(bytes(gap))
            offset, pads = offset + gap, pads + 1
        end = offset + data.nbytes
        header[name] = {
            "dtype": tensors[name].dtype.safetensors,
            "shape": list(tensors[name].array.shape),
            "data_offsets": [offset, end],
        }
        pieces.append(data)
        offset = end
    text = canonical.dumps(header)
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    return [struct.pack("<Q", len(text)) + text, *pieces]


def header_nbytes(data: memoryview, where: str) -> int:
    """Where the header of a safetensors file ends. Raises LoadError."""
    if len(data) < 8:
        raise LoadError(f"has {len(data)} bytes; a safetensors file has at least 8", where)
    (nbytes,) = struct.unpack_from("<Q", data)
    if nbytes > min(len(data) - 8, _MAX_HEADER_NBYTES):
        raise LoadError(f"its header of {nbytes} bytes does not fit in its {len(data)} bytes", where)
    return 8 + int(nbytes)


def read(data: memoryview, where: str) -> dict[str, Tensor]:
    """The member's tensors by name, padding left out. Raises LoadError unless they cover the member in order.

    The header's JSON may be spelled in any way: weights can be replaced by those of another writer.
    """
    start = header_nbytes(data, where)
    if start % ALIGNMENT:
        raise LoadError(f"its header ends at byte {start}, not at a multiple of {ALIGNMENT}", where)
    document = canonical.loads(bytes(data[8:start]), where, any_spelling=True)
    header = Fields(document, where)
    assert isinstance(document, dict)
    tensors = [_tensor(header, name, start) for name in document]
    _check_layout(tensors, start, len(data), where)
    return {t.name: t for t in tensors if not t.name.startswith(_PAD)}


def read_foreign(data: memoryview, where: str) -> dict[str, ConstantData]:
    """The tensors of a safetensors file of any writer, in place; bf16 as its bits. Raises LoadError.

    Order, alignment and gaps are free here, and metadata is left out; every tensor lies inside the file.
    """
    start = header_nbytes(data, where)
    document = canonical.loads(bytes(data[8:start]), where, any_spelling=True)
    header = Fields(document, where)
    assert isinstance(document, dict)
    out: dict[str, ConstantData] = {}
    for name in document:
        if name == "__metadata__" or name.startswith(_PAD):
            continue
        tensor = _tensor(header, name, start)
        if tensor.end > len(data):
            raise LoadError(f"tensor {name!r} ends at byte {tensor.end}, the file at {len(data)}", where)
        out[name] = ConstantData(tensor.dtype, array_of(data, tensor))
    return out


def _tensor(header: Fields, name: str, start: int) -> Tensor:
    where = header.where
    check_text(name, where, "a tensor's name")
    fields = Fields(header.raw(name), where, f"tensor {name!r}")
    dtype = _DTYPES[fields.choice("dtype", tuple(_DTYPES))]
    shape = fields.all("shape", lambda v, w, p: check_int(v, w, p, 0, 2**48))
    offsets = fields.all("data_offsets", lambda v, w, p: check_int(v, w, p, 0))
    fields.done()
    if len(shape) > _MAX_RANK:
        raise LoadError(f"tensor {name!r} has {len(shape)} dimensions; at most {_MAX_RANK} are known", where)
    if len(offsets) != 2:
        raise LoadError(f"tensor {name!r}.data_offsets has {len(offsets)} numbers, not 2", where)
    tensor = Tensor(name, dtype, shape, start + offsets[0], start + offsets[1])
    if offsets[1] - offsets[0] != tensor.numel * dtype.nbytes:
        raise LoadError(
            f"tensor {name!r} has offsets {list(offsets)}, {offsets[1] - offsets[0]} bytes; "
            f"its dtype and shape need {tensor.numel * dtype.nbytes}",
            where,
        )
    return tensor


def _check_layout(tensors: Sequence[Tensor], start: int, end: int, where: str) -> None:
    """No byte uncovered, no overlap; tensors in name order and aligned; padding of U8."""
    position, previous = start, ""
    # a tensor without elements lies where the next one starts
    for t in sorted(tensors, key=lambda t: (t.begin, t.end, t.name)):
        if t.begin != position:
            raise LoadError(f"tensor {t.name!r} starts at byte {t.begin} of the member, not at {position}", where)
        if t.name.startswith(_PAD):
            if t.dtype is not DType.U8:
                raise LoadError(f"padding {t.name!r} is {t.dtype}, not u8", where)
        elif t.begin % ALIGNMENT:
            raise LoadError(f"tensor {t.name!r} starts at byte {t.begin}, not at a multiple of {ALIGNMENT}", where)
        elif previous and t.name < previous:
            raise LoadError(f"tensor {t.name!r} lies after {previous!r}, against the order of names", where)
        else:
            previous = t.name
        position = t.end
    if position != end:
        raise LoadError(f"its tensors end at byte {position}, the member at {end}", where)


def array_of(data: memoryview, tensor: Tensor) -> npt.NDArray[np.generic]:
    """The tensor's content as a read-only view of the member; bf16 as its bits in uint16."""
    flat = np.frombuffer(data[tensor.begin : tensor.end], dtype=NUMPY_DTYPE[tensor.dtype])
    return flat.reshape(tensor.shape)
