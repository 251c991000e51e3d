"""Libraries that would have the dynamic linker do more than map them, each made from a good one by one change."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

LOAD, DYNAMIC, STACK, RELRO = 1, 2, 0x6474E551, 0x6474E552
FLAGS, STRSZ, RELA, RELASZ, SYMTAB, GNU_HASH = 30, 10, 7, 8, 6, 0x6FFFFEF5
TYPE, PERMISSIONS, OFFSET, ADDRESS, FILE_NBYTES, NBYTES, ALIGNMENT = 0, 4, 8, 16, 32, 40, 48
"""Where a program header has what."""
_WIDTHS = {TYPE: "<I", PERMISSIONS: "<I"}


class Library:
    """A shared object of 64 bits to change in place."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        (self.table,) = struct.unpack_from("<Q", self.data, 32)
        (self.count,) = struct.unpack_from("<H", self.data, 56)

    def headers(self, kind: int) -> list[int]:
        """Where the program headers of a kind are."""
        places = [self.table + 56 * i for i in range(self.count)]
        return [p for p in places if struct.unpack_from("<I", self.data, p)[0] == kind]

    def get(self, header: int, field: int) -> int:
        (value,) = struct.unpack_from(_WIDTHS.get(field, "<Q"), self.data, header + field)
        return int(value)

    def put(self, header: int, field: int, value: int) -> None:
        struct.pack_into(_WIDTHS.get(field, "<Q"), self.data, header + field, value)

    def place(self, address: int) -> int:
        """Where in the file an address lies."""
        for h in self.headers(LOAD):
            start = self.get(h, ADDRESS)
            if start <= address < start + self.get(h, FILE_NBYTES):
                return self.get(h, OFFSET) + address - start
        raise ValueError(hex(address))

    def tag(self, number: int) -> int:
        """Where the entry of a dynamic tag is."""
        (dynamic,) = self.headers(DYNAMIC)
        at = self.place(self.get(dynamic, ADDRESS))
        while struct.unpack_from("<Q", self.data, at)[0] != number:
            at += 16
        return at

    def value(self, number: int) -> int:
        (value,) = struct.unpack_from("<Q", self.data, self.tag(number) + 8)
        return int(value)

    def set_tag(self, number: int, *entry: int) -> None:
        """The entry of a tag becomes another: (tag, value)."""
        struct.pack_into("<2Q", self.data, self.tag(number), *entry)

    def relocation(self, offset: int | None = None, info: int | None = None) -> None:
        """Changes the first relocation."""
        at = self.place(self.value(RELA))
        if offset is not None:
            struct.pack_into("<Q", self.data, at, offset)
        if info is not None:
            struct.pack_into("<Q", self.data, at + 8, info)

    def symbol(self, form: str, offset: int, value: int) -> None:
        """Changes a field of the first symbol."""
        struct.pack_into(form, self.data, self.place(self.value(SYMTAB)) + 24 + offset, value)

    def hash_word(self, index: int, value: int) -> None:
        """Changes a word of the hash table."""
        struct.pack_into("<I", self.data, self.place(self.value(GNU_HASH)) + 4 * index, value)


Change = Callable[[Library], object]


def _tag(number: int, value: int = 0) -> Change:
    return lambda lib: lib.set_tag(FLAGS, number, value)


def _header(kind: int, field: int, value: int, index: int = 0) -> Change:
    return lambda lib: lib.put(lib.headers(kind)[index], field, value)


def _notes(kind: int, file_nbytes: int = 64, nbytes: int | None = None) -> Change:
    """The ELF header is a segment of notes, too: as one, its first is of 1,179,403,647 bytes."""

    def change(lib: Library) -> None:
        (header,) = lib.headers(STACK)
        values = {TYPE: kind, FILE_NBYTES: file_nbytes, NBYTES: file_nbytes if nbytes is None else nbytes, ALIGNMENT: 8}
        for field, value in values.items():
            lib.put(header, field, value)

    return change


def _load_on_another(lib: Library) -> None:
    """The second segment is mapped over the first."""
    header = lib.headers(LOAD)[1]
    lib.put(header, ADDRESS, lib.get(header, OFFSET))


def _hidden_dynamic(lib: Library) -> None:
    """A good dynamic section where the header says that it is in the file, a bad one where it is loaded."""
    (header,) = lib.headers(DYNAMIC)
    at = lib.place(lib.get(header, ADDRESS))
    lib.put(header, OFFSET, len(lib.data))
    lib.data += lib.data[at : at + lib.get(header, FILE_NBYTES)]
    lib.set_tag(FLAGS, 12, lib.value(GNU_HASH))


def _in_dynamic(lib: Library) -> None:
    lib.relocation(offset=lib.get(lib.headers(DYNAMIC)[0], ADDRESS) + 8)


def _endless_dynamic(lib: Library) -> None:
    lib.set_tag(0, 24, 0)


def _writable_relocations(lib: Library) -> None:
    lib.set_tag(RELA, RELA, lib.get(lib.headers(DYNAMIC)[0], ADDRESS))


def _long_relocations(lib: Library) -> None:
    lib.set_tag(RELASZ, RELASZ, 24 * 2**40)


def _short_names(lib: Library) -> None:
    lib.set_tag(STRSZ, STRSZ, lib.value(STRSZ) - 1)


def _endless_chain(lib: Library) -> None:
    """The chain of the hash table has no end: its words are those of the names behind it."""
    words = 4 + 2 * struct.unpack_from("<I", lib.data, lib.place(lib.value(GNU_HASH)) + 8)[0]
    lib.hash_word(words, 2**31)


def _pack(lib: Library, form: str, at: int, value: int) -> None:
    """Changes a field of the file's header."""
    struct.pack_into(form, lib.data, at, value)


def _empty_segment(lib: Library) -> None:
    header = lib.headers(LOAD)[-1]
    lib.put(header, FILE_NBYTES, 0)
    lib.put(header, NBYTES, 0)


def _nothing_to_load(lib: Library) -> None:
    for header in lib.headers(LOAD):
        lib.put(header, TYPE, 0)


def _longer_dynamic(lib: Library) -> None:
    (header,) = lib.headers(DYNAMIC)
    lib.put(header, NBYTES, lib.get(header, NBYTES) + 16)


# x86-64: 37 is R_X86_64_IRELATIVE, 7 R_X86_64_JUMP_SLOT, 1 R_X86_64_64, 16 R_X86_64_DTPMOD64
CHANGES: dict[str, Change] = {
    "a symbol of a function that tells its address": lambda lib: lib.symbol("<B", 4, 0x1A),
    "a symbol of thread-local storage": lambda lib: lib.symbol("<B", 4, 0x16),
    "a symbol of a local binding": lambda lib: lib.symbol("<B", 4, 0x01),
    "a global symbol of a section": lambda lib: lib.symbol("<B", 4, 0x13),
    "a unique symbol": lambda lib: lib.symbol("<B", 4, 0xA1),
    "a symbol that is elsewhere": lambda lib: lib.symbol("<H", 6, 0),
    "a symbol without a name": lambda lib: lib.symbol("<I", 0, 2**31),
    "a relocation by a function": lambda lib: lib.relocation(info=37),
    "a relocation of a call": lambda lib: lib.relocation(info=1 << 32 | 7),
    "a relocation by a symbol": lambda lib: lib.relocation(info=1 << 32 | 1),
    "a relocation of thread-local storage": lambda lib: lib.relocation(info=16),
    "a relative relocation with a symbol": lambda lib: lib.relocation(info=1 << 32 | 8),
    "a relocation of code": lambda lib: lib.relocation(offset=0x10),
    "a relocation of another library": lambda lib: lib.relocation(offset=2**40),
    "a relocation before it": lambda lib: lib.relocation(offset=2**64 - 4096),
    "a relocation of the dynamic section": _in_dynamic,
    "relocations that can be written": _writable_relocations,
    "relocations beyond its end": _long_relocations,
    "more relative relocations than there are": lambda lib: lib.set_tag(0x6FFFFFF9, 0x6FFFFFF9, 2**32),
    "code at load": _tag(12),
    "code at unload": _tag(13),
    "an array of code at load": _tag(25),
    "an array of code at unload": _tag(26),
    "an array of code before load": _tag(32),
    "another library": _tag(1, 1),
    "a name of its own": _tag(14, 1),
    "a path for libraries": _tag(29, 1),
    "an auditor": _tag(0x6FFFFEFC, 1),
    "a filter": _tag(0x7FFFFFFF, 1),
    "relocations of code": _tag(22),
    "calls": _tag(23, 0x10),
    "packed relocations": _tag(36, 0x10),
    "another hash table": _tag(4, 0x10),
    "versions": _tag(0x6FFFFFF0, 0x10),
    "an unknown tag": _tag(0x60000123),
    "a tag twice": _tag(STRSZ, 1),
    "an entry size": _tag(9, 16),
    "flags": _tag(FLAGS, 0x18),
    "flags of its own": lambda lib: lib.set_tag(0x6FFFFFFB, 0x6FFFFFFB, 0x9),
    "no symbols": lambda lib: lib.set_tag(SYMTAB, 24, 0),
    "a dynamic section without an end": _endless_dynamic,
    "a dynamic section that is not the one in the file": _hidden_dynamic,
    "a dynamic section elsewhere": _header(DYNAMIC, ADDRESS, 2**20),
    "two dynamic sections": _header(STACK, TYPE, DYNAMIC),
    "names without an end": _short_names,
    "a hash table without buckets": lambda lib: lib.hash_word(0, 0),
    "a hash table with a filter of 3 words": lambda lib: lib.hash_word(2, 3),
    "a hash table beyond its end": lambda lib: lib.hash_word(0, 2**31),
    "a hash table of symbols beyond its end": _endless_chain,
    "segments that overlap": _load_on_another,
    "a segment that is writable and executable": _header(LOAD, PERMISSIONS, 7, 1),
    "a segment that cannot be read": _header(LOAD, PERMISSIONS, 1, 1),
    "a segment of no alignment": _header(LOAD, ALIGNMENT, 0),
    "a segment of 3 GiB": _header(LOAD, NBYTES, 3 * 2**30, 2),
    "a segment that wraps": _header(LOAD, NBYTES, 2**64 - 1, 2),
    "a segment with more in the file": _header(LOAD, NBYTES, 1),
    "thread-local storage": _header(STACK, TYPE, 7),
    "an interpreter": _header(STACK, TYPE, 3),
    "an executable stack": _header(STACK, PERMISSIONS, 7),
    "no stack": _header(STACK, TYPE, 4),
    "an unknown segment": _header(STACK, TYPE, 0x6FFFFFFF),
    "what is read-only elsewhere": _header(RELRO, ADDRESS, 0x100000),
    "what is read-only, far away": _header(RELRO, NBYTES, 2**63),
    "program headers elsewhere": _header(6, ADDRESS, 0x48),
    "of 32 bits": lambda lib: _pack(lib, "<B", 4, 1),
    "of the other byte order": lambda lib: _pack(lib, "<B", 5, 2),
    "of another version": lambda lib: _pack(lib, "<B", 6, 0),
    "for ARM of 32 bits": lambda lib: _pack(lib, "<H", 18, 40),
    "for aarch64": lambda lib: _pack(lib, "<H", 18, 183),
    "program headers of 64 bytes": lambda lib: _pack(lib, "<H", 54, 64),
    "no program headers": lambda lib: _pack(lib, "<H", 56, 0),
    "a note that ends outside of its segment": _notes(4),
    "a property that ends outside of its segment": _notes(0x6474E553),
    "a segment with half a note": _notes(4, 8),
    "notes with more in memory": _notes(4, 0, 8),
    "a segment aligned to 2^40": _header(LOAD, ALIGNMENT, 2**40),
    "a segment of nothing": _empty_segment,
    "nothing to load": _nothing_to_load,
    "a dynamic section with more in memory": _longer_dynamic,
    "a dynamic section that is read-only": _header(DYNAMIC, PERMISSIONS, 4),
    "no names": lambda lib: lib.set_tag(STRSZ, STRSZ, 0),
    "symbols of another size": lambda lib: lib.set_tag(11, 11, 25),
    "relocations of another size": lambda lib: lib.set_tag(9, 9, 25),
    "half a relocation": lambda lib: lib.set_tag(RELASZ, RELASZ, lib.value(RELASZ) + 1),
    "a hash table without a filter": lambda lib: lib.hash_word(2, 0),
    "a hash table with a wide shift": lambda lib: lib.hash_word(3, 32),
    "a hash table from the first symbol on": lambda lib: lib.hash_word(1, 0),
}


def cases(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Every bad library by name."""
    for what, change in CHANGES.items():
        library = Library(good)
        change(library)
        assert library.data != good, what
        yield f"library: {what}", bytes(library.data)
