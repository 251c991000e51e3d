"""The form of a native library: read, never run."""

from __future__ import annotations

import struct

from hardtack.codegen.package.errors import LoadError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_MACHINES = {62: "x86-64", 183: "aarch64"}
_SHARED_OBJECT = 3


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
