"""The form of a GPU's code: read, never run."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from hardtack.codegen.package.errors import LoadError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_CUDA = 190
_AMD = 224
_AMD_PROCESSORS = {"gfx942": 0x4C}
"""Architecture -> its number in the lowest byte of an ELF header's flags."""
_NOBITS = 8
_DYNSYM = 11
_SYMBOL = struct.Struct("<IBBHQQ")
_DESCRIPTOR_NBYTES = 64
_MAX_NAME_NBYTES = 1023


def check_kernels(data: memoryview, where: str, arch: str, functions: Iterable[str]) -> None:
    """Raises LoadError unless `data` is whole code for a GPU of `arch` ("sm_90", "gfx942") that has the `functions`."""
    (check_cubin if arch.startswith("sm_") else check_hsaco)(data, where, arch, functions)


def check_cubin(data: memoryview, where: str, arch: str, functions: Iterable[str]) -> None:
    """Raises LoadError unless `data` is whole CUDA code for `arch` ("sm_90") that has all the `functions`."""
    if len(data) < _HEADER.size or bytes(data[:4]) != b"\x7fELF":
        raise LoadError("is not an ELF file", where)
    ident, _, machine, _, _, _, table, flags, _, _, _, entry_nbytes, count, names_at = _HEADER.unpack_from(data)
    if ident[4:6] != b"\x02\x01" or machine != _CUDA:
        raise LoadError(f"is for ELF machine {machine}, not CUDA code ({_CUDA}) of 64 bits", where)
    # CUDA 13 moved the architecture's number: EI_OSABI tells the two layouts apart
    found = f"sm_{(flags >> 8 if ident[7] == 0x41 else flags) & 0xFF}"
    if found != arch:
        raise LoadError(f"is for {found}, its target is for {arch}", where)
    sections = _sections(data, where, table, entry_nbytes, count)
    if names_at >= count:
        raise LoadError("its section headers lie outside the file", where)
    _, _, _, _, offset, nbytes, *_ = sections[names_at]
    names = bytes(data[offset : offset + nbytes])
    known = {_name(names, s[0]) for s in sections}
    for function in functions:
        if b".text." + function.encode() not in known:
            raise LoadError(f"has no function {function!r}", where)


def check_hsaco(data: memoryview, where: str, arch: str, functions: Iterable[str]) -> None:
    """Raises LoadError unless `data` is a whole code object for `arch` ("gfx942") that has all the `functions`.

    A function is a symbol, and its kernel descriptor of 64 bytes another one, with ".kd" behind its name.
    """
    if len(data) < _HEADER.size or bytes(data[:4]) != b"\x7fELF":
        raise LoadError("is not an ELF file", where)
    ident, _, machine, _, _, _, table, flags, _, _, _, entry_nbytes, count, *_ = _HEADER.unpack_from(data)
    if ident[4:6] != b"\x02\x01" or machine != _AMD:
        raise LoadError(f"is for ELF machine {machine}, not code for AMD GPUs ({_AMD}) of 64 bits", where)
    if arch not in _AMD_PROCESSORS:
        raise LoadError(f"its target is for {arch}; this reader knows {', '.join(_AMD_PROCESSORS)}", where)
    if flags & 0xFF != _AMD_PROCESSORS[arch]:
        wanted = _AMD_PROCESSORS[arch]
        raise LoadError(f"is for AMD processor {flags & 0xFF:#x}, its target is for {arch} ({wanted:#x})", where)
    sections = _sections(data, where, table, entry_nbytes, count)
    if sum(kind == _DYNSYM for _, kind, *_ in sections) > 1:  # many on one another would take longer than the file is
        raise LoadError("it has several tables of dynamic symbols", where)
    known = _descriptors(data, sections)
    for function in functions:
        if function.encode() + b".kd" not in known:
            raise LoadError(f"has no function {function!r}", where)


def _sections(data: memoryview, where: str, table: int, entry_nbytes: int, count: int) -> list[tuple[int, ...]]:
    """The section headers, each of which lies in the file with what it describes. Raises LoadError."""
    if entry_nbytes != _SECTION.size or table + count * entry_nbytes > len(data):
        raise LoadError("its section headers lie outside the file", where)
    sections = [_SECTION.unpack_from(data, table + i * entry_nbytes) for i in range(count)]
    for index, (_, kind, _, _, offset, nbytes, *_) in enumerate(sections):
        if kind != _NOBITS and offset + nbytes > len(data):
            raise LoadError(f"section {index} ends at byte {offset + nbytes}, the file at {len(data)}", where)
    return sections


def _descriptors(data: memoryview, sections: Sequence[tuple[int, ...]]) -> set[bytes | None]:
    """The names of symbols of a kernel descriptor's size that the file defines for others."""
    found: set[bytes | None] = set()
    for _, kind, _, _, offset, nbytes, link, *_ in sections:
        if kind != _DYNSYM or link >= len(sections) or sections[link][1] == _NOBITS:
            continue
        names = bytes(data[sections[link][4] : sections[link][4] + sections[link][5]])
        for at in range(offset, offset + nbytes - _SYMBOL.size + 1, _SYMBOL.size):
            name, _, _, defined_in, _, size = _SYMBOL.unpack_from(data, at)
            if defined_in != 0 and size == _DESCRIPTOR_NBYTES:
                found.add(_name(names, name))
    return found - {None}


def _name(names: bytes, at: int) -> bytes | None:
    """The name at a place of a table of names; None for one that does not end, or not soon: names may overlap, so that
    long ones would take more room than the file.
    """
    end = names.find(b"\0", at, at + _MAX_NAME_NBYTES + 1)
    return names[at:end] if end >= 0 else None
