"""The form of a CPU target's shared object (docs/package.md, "Libraries"): what the dynamic linker is asked to do.

A library is mapped and its own addresses are moved to where it lies; nothing else is allowed, so that loading runs none
of its code. What the linker reads is read here where the linker reads it, by address, and lies where no relocation
writes. runtime_cpp/src/library_check.cpp is the other reader of the same rules.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hardtack.codegen.package.errors import LoadError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<QQ")
_NOTE_HEADER = struct.Struct("<III")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_MACHINES = {62: "x86-64", 183: "aarch64"}
_RELATIVE = {62: 8, 183: 1027}
"""Machine -> the one type of relocation: R_X86_64_RELATIVE, R_AARCH64_RELATIVE."""
_SHARED_OBJECT = 3
_MAX_SEGMENTS = 64
_MAX_SPAN = 2**31
_PAGE = 4096
_EXECUTE, _WRITE, _READ = 1, 2, 4
_LOAD, _DYN, _NOTE, _PHDR = 1, 2, 4, 6
_EH_FRAME, _STACK, _RELRO, _PROPERTY = 0x6474E550, 0x6474E551, 0x6474E552, 0x6474E553
_SEGMENTS = (_LOAD, _DYN, _NOTE, _PHDR, _EH_FRAME, _STACK, _RELRO, _PROPERTY)
_ONCE = ((_DYN, "PT_DYNAMIC"), (_STACK, "PT_GNU_STACK"))
_NULL, _PLTGOT, _STRTAB, _SYMTAB, _RELA, _RELASZ, _RELAENT, _STRSZ, _SYMENT = 0, 3, 5, 6, 7, 8, 9, 10, 11
_BIND_NOW, _FLAGS, _GNU_HASH, _RELACOUNT, _FLAGS_1 = 24, 30, 0x6FFFFEF5, 0x6FFFFFF9, 0x6FFFFFFB
_TAGS = frozenset(
    {_PLTGOT, _STRTAB, _SYMTAB, _RELA, _RELASZ, _RELAENT, _STRSZ, _SYMENT}
    | {_BIND_NOW, _FLAGS, _GNU_HASH, _RELACOUNT, _FLAGS_1}
)
_NEEDED = (_STRTAB, _SYMTAB, _STRSZ, _SYMENT, _GNU_HASH)
_FIXED = {_SYMENT: _SYMBOL.size, _RELAENT: _RELOCATION.size}
_ALLOWED_BITS = {_FLAGS: 0x8, _FLAGS_1: 0x1}
"""Of the flags, DF_BIND_NOW and DF_1_NOW."""
_FUNCTION_LIKE = (0, 1, 2)
"""Types of symbols: none, object, function. Not STT_GNU_IFUNC, whose code the linker runs."""
_BINDINGS = (1, 2)
_LOCAL_SECTION = 3
"""The type and binding of a local symbol of a section, which GNU's ld for aarch64 writes and nobody looks for."""


@dataclass(frozen=True)
class _Segment:
    kind: int
    flags: int
    offset: int
    address: int
    file_nbytes: int
    nbytes: int
    alignment: int

    @property
    def end(self) -> int:
        return self.address + self.nbytes

    def first_page(self) -> int:
        return self.address & -self.alignment

    def last_page(self) -> int:
        return (self.end + self.alignment - 1) & -self.alignment


def _aligned(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


def check_library(data: memoryview, where: str, target: str) -> None:
    """Raises LoadError unless `data` is a shared object for the machine of `target` that runs nothing when loaded."""
    _Library(data, where).check(target)


def machine_of(target: str) -> str | None:
    """The machine that the name of a CPU target begins with, as in cpu:x86-64-v3; None where it says none."""
    name = target.partition(":")[2]
    return next((m for m in _MACHINES.values() if name.startswith(m)), None)


class _Library:
    def __init__(self, data: memoryview, where: str) -> None:
        self.data = data
        self.where = where

    def refuse(self, problem: str) -> LoadError:
        return LoadError(problem, self.where)

    def check(self, target: str) -> None:
        self.machine, table, count = self._header(target)
        self.segments = self._segments(table, count)
        self.loads = [s for s in self.segments if s.kind == _LOAD]
        self._check_loads()
        for s in self.segments:
            self._check_segment(s, table, count)
        for kind, name in _ONCE:
            found = sum(s.kind == kind for s in self.segments)
            if found != 1:
                raise self.refuse(f"it has {found} segments {name}, not one")
        dynamic = next(s for s in self.segments if s.kind == _DYN)
        tags = self._tags(dynamic)
        self._check_symbols(tags)
        self._check_relocations(tags, dynamic)

    def _header(self, target: str) -> tuple[int, int, int]:
        """(machine, where the program headers are, how many)"""
        if len(self.data) < _HEADER.size or bytes(self.data[:4]) != b"\x7fELF":
            raise self.refuse("is not an ELF file")
        ident, kind, machine, _, _, table, _, _, _, entry_nbytes, count, *_ = _HEADER.unpack_from(self.data)
        if ident[4:7] != b"\x02\x01\x01":
            raise self.refuse("is not a 64-bit little-endian ELF file of version 1")
        if kind != _SHARED_OBJECT:
            raise self.refuse(f"is an ELF file of type {kind}, not a shared object")
        found = _MACHINES.get(machine, f"machine {machine}")
        if machine not in _MACHINES or machine_of(target) not in (None, found):
            raise self.refuse(f"is for {found}, its target is {target}")
        if entry_nbytes != _SEGMENT.size or table + count * entry_nbytes > len(self.data):
            raise self.refuse("its program headers lie outside the file")
        if count > _MAX_SEGMENTS:
            raise self.refuse(f"it has {count} program headers; at most {_MAX_SEGMENTS} are read")
        return machine, table, count

    def _segments(self, table: int, count: int) -> list[_Segment]:
        segments = []
        for index in range(count):
            kind, flags, offset, address, _, file_nbytes, nbytes, alignment = _SEGMENT.unpack_from(
                self.data, table + index * _SEGMENT.size
            )
            if kind not in _SEGMENTS:
                raise self.refuse(f"it has a segment of type 0x{kind:x}, which no library of a bundle has")
            if offset + file_nbytes > len(self.data):
                raise self.refuse(f"segment {index} ends at byte {offset + file_nbytes}, the file at {len(self.data)}")
            if kind != _LOAD and (address > _MAX_SPAN or nbytes > _MAX_SPAN):
                raise self.refuse("a segment lies outside of what is loaded")
            segments.append(_Segment(kind, flags, offset, address, file_nbytes, nbytes, alignment))
        return segments

    def _check_loads(self) -> None:
        """What is mapped: in order, on pages of its own, never writable and executable at once."""
        before = 0
        for s in self.loads:
            good = s.alignment >= _PAGE and s.alignment & (s.alignment - 1) == 0 and s.alignment <= _MAX_SPAN
            if not good or (s.address - s.offset) % s.alignment or s.file_nbytes > s.nbytes or s.nbytes == 0:
                raise self.refuse("a segment that is loaded has sizes or an alignment that make no sense")
            if s.end > _MAX_SPAN:
                raise self.refuse("a segment that is loaded ends beyond 2 GiB")
            if s.first_page() < before:
                raise self.refuse("segments that are loaded overlap, or are out of order")
            if s.flags & _WRITE and s.flags & _EXECUTE:
                raise self.refuse("a segment is writable and executable")
            if not s.flags & _READ:
                raise self.refuse("a segment that is loaded cannot be read")
            before = s.last_page()
        if not self.loads:
            raise self.refuse("nothing of it is loaded")

    def _check_segment(self, s: _Segment, table: int, count: int) -> None:
        if s.kind == _STACK and s.flags & _EXECUTE:
            raise self.refuse("it asks for an executable stack")
        if s.kind == _RELRO:
            inside = any(
                load.flags & _WRITE and load.address <= s.address and s.end <= load.last_page() for load in self.loads
            )
            if not inside:
                raise self.refuse("what is to be made read-only lies outside of what is loaded")
        if s.kind in (_NOTE, _PROPERTY, _EH_FRAME):
            at = self.place(s.address, max(s.file_nbytes, s.nbytes), "a segment that is read")
            if s.kind != _EH_FRAME:
                self._check_notes(at, s)
        if s.kind == _PHDR:
            at = self.place(s.address, max(s.file_nbytes, s.nbytes), "the segment of its program headers")
            if at != table or s.nbytes != count * _SEGMENT.size:
                raise self.refuse("the segment of its program headers is elsewhere")

    def _check_notes(self, start: int, s: _Segment) -> None:
        """Each note of a segment ends in it: the linker goes from one to the next, and through the properties in them,
        by the sizes that they say.
        """
        if s.file_nbytes != s.nbytes:
            raise self.refuse("a segment of notes has more in memory")
        alignment = 8 if s.alignment == 8 else 4
        at = 0
        while at < s.nbytes:
            if at + _NOTE_HEADER.size > s.nbytes:
                raise self.refuse("a note lies outside of its segment")
            name_nbytes, nbytes, _ = _NOTE_HEADER.unpack_from(self.data, start + at)
            descriptor = _aligned(at + _NOTE_HEADER.size + name_nbytes, alignment)
            if descriptor + nbytes > s.nbytes:
                raise self.refuse("a note lies outside of its segment")
            at = _aligned(descriptor + nbytes, alignment)

    def place(self, address: int, nbytes: int, what: str) -> int:
        """Where in the file `nbytes` at an address lie: all of them in one segment that nothing writes to."""
        for s in self.loads:
            if s.address <= address and address + nbytes <= s.address + s.file_nbytes and not s.flags & _WRITE:
                return s.offset + address - s.address
        raise self.refuse(f"{what} lies outside of what is loaded read-only")

    def _tags(self, dynamic: _Segment) -> dict[int, int]:
        """The dynamic section, read at its address, up to its end mark."""
        nbytes, at = dynamic.file_nbytes, -1
        for s in self.loads:
            if s.address <= dynamic.address and dynamic.address + nbytes <= s.address + s.file_nbytes:
                at = s.offset + dynamic.address - s.address if s.flags & _WRITE else -1
        if at < 0 or not dynamic.flags & _WRITE or dynamic.nbytes != nbytes:
            raise self.refuse("its dynamic section lies outside of what is loaded writable")
        tags: dict[int, int] = {}
        for where in range(at, at + nbytes - _DYNAMIC.size + 1, _DYNAMIC.size):
            tag, value = _DYNAMIC.unpack_from(self.data, where)
            if tag == _NULL:
                break
            if tag not in _TAGS:
                raise self.refuse(f"its dynamic section has the tag 0x{tag:x}, which no library of a bundle has")
            if tag in tags:
                raise self.refuse(f"its dynamic section has the tag 0x{tag:x} twice")
            if value != _FIXED.get(tag, value) or value & ~_ALLOWED_BITS.get(tag, value):
                raise self.refuse(f"its dynamic section has the tag 0x{tag:x} with 0x{value:x}")
            tags[tag] = value
        else:
            raise self.refuse("its dynamic section does not end")
        for tag in _NEEDED:
            if tag not in tags:
                raise self.refuse(f"its dynamic section lacks the tag 0x{tag:x}")
        return tags

    def _check_symbols(self, tags: dict[int, int]) -> None:
        names_nbytes = tags[_STRSZ]
        names = self.place(tags[_STRTAB], names_nbytes, "its table of names")
        if names_nbytes == 0 or self.data[names + names_nbytes - 1] != 0:
            raise self.refuse("its table of names does not end")
        count = self._num_symbols(tags[_GNU_HASH])
        at = self.place(tags[_SYMTAB], count * _SYMBOL.size, "its table of symbols")
        table = self.data[at : at + count * _SYMBOL.size]
        for index, (name, info, _, defined_in, _, _) in enumerate(_SYMBOL.iter_unpack(table)):
            if index == 0:
                continue
            if name >= names_nbytes:
                raise self.refuse(f"the name of its symbol {index} lies outside of its table of names")
            ordinary = info & 15 in _FUNCTION_LIKE and info >> 4 in _BINDINGS
            if not ordinary and info != _LOCAL_SECTION:
                raise self.refuse(f"its symbol {index} is of type {info & 15} and binding {info >> 4}")
            if defined_in == 0:
                raise self.refuse(f"its symbol {index} is to be found elsewhere")

    def _num_symbols(self, address: int) -> int:
        """The number of symbols, as the hash table tells: chains lie one behind the other, the last one ends them."""
        what = "its hash table"
        at = self.place(address, 16, what)
        num_buckets, first, bloom, shift = struct.unpack_from("<4I", self.data, at)
        if num_buckets == 0 or bloom == 0 or bloom & (bloom - 1) or shift > 31 or first == 0:
            raise self.refuse("its hash table makes no sense")
        chains = address + 16 + 8 * bloom + 4 * num_buckets
        at = self.place(address, chains - address, what)
        buckets = struct.unpack_from(f"<{num_buckets}I", self.data, at + 16 + 8 * bloom)
        if any(0 < b < first for b in buckets):
            raise self.refuse("its hash table makes no sense")
        index = max(buckets)
        if index == 0:
            return int(first)
        while True:
            at = self.place(chains + 4 * (index - first), 4, what)
            index += 1
            if self.data[at] & 1:
                return int(index)

    def _check_relocations(self, tags: dict[int, int], dynamic: _Segment) -> None:
        """Each moves an address of the library, inside of what is writable, and not what the linker itself reads."""
        if _RELA not in tags and _RELASZ not in tags:
            return
        if not {_RELA, _RELASZ, _RELAENT} <= set(tags) or tags[_RELASZ] % _RELOCATION.size:
            raise self.refuse("its table of relocations makes no sense")
        nbytes = tags[_RELASZ]
        at = self.place(tags[_RELA], nbytes, "its table of relocations")
        if tags.get(_RELACOUNT, 0) > nbytes // _RELOCATION.size:
            raise self.refuse("its table of relocations makes no sense")
        writable = [s for s in self.loads if s.flags & _WRITE]
        for index, (offset, info, _) in enumerate(_RELOCATION.iter_unpack(self.data[at : at + nbytes])):
            if info != _RELATIVE[self.machine]:
                kind, symbol = info & 0xFFFFFFFF, info >> 32
                raise self.refuse(f"its relocation {index} is of type {kind} and of symbol {symbol}")
            if not _inside(writable, offset) or _overlap(offset, dynamic):
                raise self.refuse(f"its relocation {index} writes to address 0x{offset:x}")


def _inside(segments: Sequence[_Segment], address: int) -> bool:
    return any(s.address <= address and address + 8 <= s.end for s in segments)


def _overlap(address: int, s: _Segment) -> bool:
    return address < s.end and s.address < address + 8
