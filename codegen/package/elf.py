"""The form of native code: read, never run."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from hardtack.codegen.package.errors import LoadError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_MACHINES = {62: "x86-64", 183: "aarch64"}
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SHARED_OBJECT = 3
_CUDA = 190
_NOBITS = 8


def check_library(data: memoryview, where: str, target: str) -> None:
    """Raises LoadError unless `data` is a whole 64-bit little-endian shared object for the machine of `target`."""
    if len(data) < _HEADER.size or bytes(data[:4]) != b"\x7fELF":
        raise LoadError("is not an ELF file", where)
    ident, kind, machine, _, _, table, _, _, _, entry_nbytes, count, *_ = _HEADER.unpack_from(data)
    if ident[4:7] != b"\x02\x01\x01":
        raise LoadError("is not a 64-bit little-endian ELF file of version 1", where)
    if kind != _SHARED_OBJECT:
        raise LoadError(f"is an ELF file of type {kind}, not a shared object", where)
    found = _MACHINES.get(machine, f"machine {machine}")
    name = target.partition(":")[2]
    if any(name.startswith(known) and known != found for known in _MACHINES.values()):
        raise LoadError(f"is for {found}, its target is {target}", where)
    if entry_nbytes != _SEGMENT.size or table + count * entry_nbytes > len(data):
        raise LoadError("its program headers lie outside the file", where)
    for index in range(count):
        _, _, offset, _, _, nbytes, *_ = _SEGMENT.unpack_from(data, table + index * entry_nbytes)
        if offset + nbytes > len(data):
            raise LoadError(f"segment {index} ends at byte {offset + nbytes}, the file at {len(data)}", where)


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
    if entry_nbytes != _SECTION.size or table + count * entry_nbytes > len(data) or names_at >= count:
        raise LoadError("its section headers lie outside the file", where)
    sections = [_SECTION.unpack_from(data, table + i * entry_nbytes) for i in range(count)]
    for index, (_, kind, _, _, offset, nbytes, *_) in enumerate(sections):
        if kind != _NOBITS and offset + nbytes > len(data):
            raise LoadError(f"section {index} ends at byte {offset + nbytes}, the file at {len(data)}", where)
    _, _, _, _, offset, nbytes, *_ = sections[names_at]
    names = bytes(data[offset : offset + nbytes])
    known = {names[s[0] : names.find(b"\0", s[0])] for s in sections}
    for function in functions:
        if b".text." + function.encode() not in known:
            raise LoadError(f"has no function {function!r}", where)
