"""The container: a ZIP archive in one canonical form (docs/package.md, "Container").

The writer lays members out from their sizes alone; the reader parses the end records and the directory, and then asks
the same layout function what every header must be. What differs in one byte is refused, so no second way to write an
archive exists.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

from hardtack.codegen.package.errors import LoadError

Buffer = bytes | bytearray | memoryview
ALIGNMENT = 64
MAX_MEMBERS = 2**20
WEIGHTS_ALIGNMENT = 65536
_GROUPS = ("manifest.json", "plans/", "lib/", "kernels/", "debug/")
_NAME = re.compile(r"[A-Za-z0-9._/:-]{1,255}\Z")
_LIMIT32 = 0xFFFFFFFF
_LIMIT16 = 0xFFFF
_DOS_DATE = 0x0021
_MADE_BY = 0x0314
_ATTRIBUTES = 0x81A40000
_ZIP64_ID = 0x0001
_PADDING_ID = 0x4854
_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_END = struct.Struct("<IHHHHIIH")
_END64 = struct.Struct("<IQHHIIQQQQ")
_LOCATOR = struct.Struct("<IIQI")
_LOCAL_MAGIC, _CENTRAL_MAGIC = 0x04034B50, 0x02014B50
_END_MAGIC, _END64_MAGIC, _LOCATOR_MAGIC = 0x06054B50, 0x06064B50, 0x07064B50


@dataclass(frozen=True)
class Member:
    """A member to write: its name and its bytes, in pieces."""

    name: str
    chunks: Sequence[Buffer]

    @property
    def nbytes(self) -> int:
        return sum(memoryview(c).nbytes for c in self.chunks)


@dataclass(frozen=True)
class Entry:
    """A member of an archive: `offset` is where its data starts, in bytes from the start of the file."""

    name: str
    nbytes: int
    crc32: int
    header_offset: int
    offset: int


def sort_key(name: str) -> tuple[int, bytes]:
    """The order of members: by group, then by name."""
    for group, prefix in enumerate(_GROUPS):
        if name == prefix or (prefix.endswith("/") and name.startswith(prefix)):
            return group, name.encode()
    return len(_GROUPS) + (not name.endswith(".safetensors")), name.encode()


def name_problem(name: str) -> str | None:
    """Why `name` cannot name a member, or None."""
    if not _NAME.match(name):
        return "must be 1 to 255 of the characters A-Z a-z 0-9 . _ - / :"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "has an empty, '.' or '..' component"
    if sort_key(name)[0] > len(_GROUPS):
        return "is not manifest.json, *.safetensors or under plans/, lib/, kernels/ or debug/"
    return None


def alignment_of(name: str) -> int:
    """What the offset of the member's data is a multiple of, in bytes."""
    return WEIGHTS_ALIGNMENT if sort_key(name)[0] == len(_GROUPS) else ALIGNMENT


def _zip64_values(nbytes: int, header_offset: int | None) -> bytes:
    """The content of the ZIP64 extra field; `header_offset` None: of a local header. Empty where none is needed."""
    values = [nbytes, nbytes] if nbytes >= _LIMIT32 else []
    if header_offset is not None and header_offset >= _LIMIT32:
        values.append(header_offset)
    return struct.pack(f"<{len(values)}Q", *values)


def _zip64_block(values: bytes) -> bytes:
    return struct.pack("<HH", _ZIP64_ID, len(values)) + values if values else b""


def _version_needed(nbytes: int, header_offset: int) -> int:
    """4.5 for a member that has a ZIP64 field in either header, 2.0 for the others."""
    return 45 if max(nbytes, header_offset) >= _LIMIT32 else 20


def local_header(name: str, nbytes: int, crc32: int, header_offset: int) -> bytes:
    """The local header of a member whose header lies at `header_offset`, up to its data."""
    zip64 = _zip64_block(_zip64_values(nbytes, None))
    encoded = name.encode()
    fixed = _LOCAL.size + len(encoded) + len(zip64) + 4
    padding = -(header_offset + fixed) % alignment_of(name)
    if len(zip64) + 4 + padding > _LIMIT16:
        padding -= WEIGHTS_ALIGNMENT // 2  # an extra field has 16 bits for its length
    extra = zip64 + struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
    size32 = min(nbytes, _LIMIT32)
    needed = _version_needed(nbytes, header_offset)
    fields = (_LOCAL_MAGIC, needed, 0, 0, 0, _DOS_DATE, crc32, size32, size32, len(encoded), len(extra))
    return _LOCAL.pack(*fields) + encoded + extra


def central_header(entry: Entry) -> bytes:
    """The member's record in the central directory."""
    zip64 = _zip64_block(_zip64_values(entry.nbytes, entry.header_offset))
    encoded = entry.name.encode()
    size32 = min(entry.nbytes, _LIMIT32)
    offset32 = min(entry.header_offset, _LIMIT32)
    needed = _version_needed(entry.nbytes, entry.header_offset)
    sizes = (entry.crc32, size32, size32, len(encoded), len(zip64))
    fields = (_CENTRAL_MAGIC, _MADE_BY, needed, 0, 0, 0, _DOS_DATE, *sizes, 0, 0, 0, _ATTRIBUTES, offset32)
    return _CENTRAL.pack(*fields) + encoded + zip64


def end_records(count: int, directory_nbytes: int, directory_offset: int) -> bytes:
    """What follows the central directory."""
    out = b""
    if max(directory_nbytes, directory_offset) >= _LIMIT32 or count >= _LIMIT16:
        where = directory_offset + directory_nbytes
        out = _END64.pack(_END64_MAGIC, 44, 45, 45, 0, 0, count, count, directory_nbytes, directory_offset)
        out += _LOCATOR.pack(_LOCATOR_MAGIC, 0, where, 1)
    count16 = min(count, _LIMIT16)
    directory = (min(directory_nbytes, _LIMIT32), min(directory_offset, _LIMIT32))
    return out + _END.pack(_END_MAGIC, 0, 0, count16, count16, *directory, 0)


def lay_out(members: Iterable[Member]) -> list[Entry]:
    """Where every member goes. `members` are in archive order, with names that name_problem accepts."""
    entries: list[Entry] = []
    offset = 0
    for member in members:
        nbytes = member.nbytes
        start = offset + len(local_header(member.name, nbytes, 0, offset))
        entries.append(Entry(member.name, nbytes, 0, offset, start))
        offset = start + nbytes
    return entries


def write_archive(file: BinaryIO, members: Sequence[Member]) -> int:
    """Writes the archive and returns its size in bytes. Raises ValueError for members that are not in archive order."""
    names = [m.name for m in members]
    for name in names:
        problem = name_problem(name)
        if problem:
            raise ValueError(f"member name {name!r} {problem}")
    if names != sorted(set(names), key=sort_key):
        raise ValueError("members are not in archive order, or one stands twice")
    records: list[bytes] = []
    end = 0
    for member, placed in zip(members, lay_out(members), strict=True):
        crc = 0
        for chunk in member.chunks:
            crc = zlib.crc32(chunk, crc)
        entry = Entry(member.name, placed.nbytes, crc, placed.header_offset, placed.offset)
        file.write(local_header(entry.name, entry.nbytes, crc, entry.header_offset))
        for chunk in member.chunks:
            file.write(chunk)
        records.append(central_header(entry))
        end = entry.offset + entry.nbytes
    directory = b"".join(records)
    tail = end_records(len(members), len(directory), end)
    file.write(directory + tail)
    return end + len(directory) + len(tail)


def read_archive(data: memoryview) -> list[Entry]:
    """The members of the archive `data`, in order. Raises LoadError unless it is in canonical form.

    Checksums are not computed here: `check_crc32` does, so that weights need not be read.
    """
    count, directory_nbytes, directory_offset = _read_end(data)
    entries = list(_read_directory(data, count, directory_nbytes, directory_offset))
    _check_names(entries)
    end = 0
    for entry in entries:
        if entry.header_offset != end:
            raise LoadError(f"header lies at byte {entry.header_offset}, not at {end} where it must", entry.name)
        header = local_header(entry.name, entry.nbytes, entry.crc32, entry.header_offset)
        if bytes(data[end : end + len(header)]) != header:
            raise LoadError("local header is not what the directory asks for", entry.name)
        end = entry.offset + entry.nbytes
        if end > directory_offset:
            raise LoadError(f"data ends at byte {end}, after the directory's start at {directory_offset}", entry.name)
    if end != directory_offset:
        raise LoadError(f"directory lies at byte {directory_offset}, not at {end} where the members end", "container")
    return entries


def check_crc32(data: Buffer, entry: Entry) -> None:
    """Raises LoadError when `data`, the member's bytes, do not give its CRC-32."""
    found = zlib.crc32(data)
    if found != entry.crc32:
        raise LoadError(f"CRC-32 is {found:08x}; the container says {entry.crc32:08x}", entry.name)


def _read_end(data: memoryview) -> tuple[int, int, int]:
    """(members, directory nbytes, directory offset) of the end records, which must be the canonical ones."""
    size = len(data)
    if size < _END.size:
        raise LoadError(f"the file has {size} bytes; a bundle has at least {_END.size}", "container")
    start = size - _END.size
    magic, *_, count, directory_nbytes, directory_offset, _ = _END.unpack_from(data, start)
    if magic != _END_MAGIC:
        raise LoadError("no end record in the last 22 bytes: not a bundle, or cut short", "container")
    if _LIMIT32 in (directory_nbytes, directory_offset) or count == _LIMIT16:
        start -= _LOCATOR.size + _END64.size
        if start < 0 or struct.unpack_from("<I", data, start)[0] != _END64_MAGIC:
            raise LoadError("the ZIP64 end record is missing", "container")
        count, directory_nbytes, directory_offset = _END64.unpack_from(data, start)[7:]
    if count > MAX_MEMBERS:
        raise LoadError(f"it has {count} members; at most {MAX_MEMBERS} are read", "container")
    if directory_offset + directory_nbytes != start:
        raise LoadError(
            f"directory of {directory_nbytes} bytes at byte {directory_offset} does not end at byte {start}, "
            "where the end records start",
            "container",
        )
    if bytes(data[start:]) != end_records(count, directory_nbytes, directory_offset):
        raise LoadError("the end records are not in canonical form", "container")
    return count, directory_nbytes, directory_offset


def _read_directory(data: memoryview, count: int, nbytes: int, offset: int) -> Iterator[Entry]:
    position, end = offset, offset + nbytes
    for index in range(count):
        where = f"container: directory record {index}"
        if position + _CENTRAL.size > end:
            raise LoadError(f"the directory ends after {index} of {count} records", "container")
        fields = _CENTRAL.unpack_from(data, position)
        crc, size32, name_nbytes, extra_nbytes, offset32 = fields[7], fields[9], fields[10], fields[11], fields[16]
        name_end = position + _CENTRAL.size + name_nbytes
        record_end = name_end + extra_nbytes
        if fields[0] != _CENTRAL_MAGIC or record_end > end:
            raise LoadError("is not a directory record, or runs past the directory's end", where)
        name = bytes(data[name_end - name_nbytes : name_end]).decode("latin-1")
        problem = name_problem(name)
        if problem:
            raise LoadError(f"member name {name!r} {problem}", where)
        nbytes_, header_offset = _read_zip64(bytes(data[name_end:record_end]), size32, offset32, name)
        if nbytes_ > len(data) or header_offset > len(data):
            raise LoadError(f"{nbytes_} bytes at {header_offset} lie outside the file of {len(data)} bytes", name)
        start = header_offset + len(local_header(name, nbytes_, crc, header_offset))
        entry = Entry(name, nbytes_, crc, header_offset, start)
        if central_header(entry) != bytes(data[position:record_end]):
            raise LoadError("its directory record is not in canonical form", name)
        yield entry
        position = record_end
    if position != end:
        raise LoadError(f"the directory has {end - position} bytes after its last record", "container")


def _read_zip64(extra: bytes, size32: int, offset32: int, name: str) -> tuple[int, int]:
    """(nbytes, header offset), the 64-bit values put in where the 32-bit ones say so."""
    wanted = (16 if size32 == _LIMIT32 else 0) + (8 if offset32 == _LIMIT32 else 0)
    if not wanted:
        return size32, offset32
    if len(extra) != wanted + 4:
        raise LoadError("its ZIP64 extra field has the wrong size", name)
    values = list(struct.unpack(f"<{wanted // 8}Q", extra[4:]))
    header_offset = values.pop() if offset32 == _LIMIT32 else offset32
    return (values[0] if values else size32), header_offset


def _check_names(entries: Sequence[Entry]) -> None:
    names = [e.name for e in entries]
    if not names or names[0] != "manifest.json":
        raise LoadError("the first member must be manifest.json", "container")
    for before, after in pairwise(names):
        if before == after:
            raise LoadError(f"member {after!r} stands twice", "container")
        if sort_key(before) > sort_key(after):
            raise LoadError(f"member {after!r} stands after {before!r}, against the canonical order", "container")
