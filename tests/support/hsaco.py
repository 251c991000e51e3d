"""A code object for AMD GPUs as far as readers look at it: an ELF file with the symbols of a function, and no code."""

from __future__ import annotations

import struct

GFX942 = 0x4C


def hsaco(
    function: str, processor: int = GFX942, machine: int = 224, descriptor_nbytes: int = 64, num_symbols: int = 0
) -> bytes:
    """A code object with `function` and its kernel descriptor, which is a symbol of `descriptor_nbytes`, behind symbols
    without a name.
    """
    names = b"\0" + function.encode() + b"\0" + function.encode() + b".kd\0"
    code = struct.pack("<IBBHQQ", 1, 0x12, 3, 3, 0, 64)
    descriptor = struct.pack("<IBBHQQ", 2 + len(function), 0x11, 3, 3, 0, descriptor_nbytes)
    dynsym, dynstr, text, shstrtab = 11, 3, 1, 3
    symbols = bytes(24 * (1 + num_symbols)) + code + descriptor
    sections = [("", 0, b"", 0), (".dynsym", dynsym, symbols, 2), (".dynstr", dynstr, names, 0)]
    sections += [(".text", text, bytes(128), 0), (".shstrtab", shstrtab, b"", 0)]
    titles = b"".join(name.encode() + b"\0" for name, *_ in sections)
    sections[-1] = (".shstrtab", shstrtab, titles, 0)
    ident = b"\x7fELF\x02\x01\x01\x40\x03" + bytes(7)
    flags = 0x500 | processor
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 3, machine, 1, 0, 0, 64, flags, 64, 0, 0, 64, len(sections), len(sections) - 1
    )
    table, data, name_at = b"", b"", 0
    for name, kind, content, link in sections:
        offset = 64 + 64 * len(sections) + len(data)
        table += struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, offset, len(content), link, 0, 1, 24 * (link > 0))
        data += content
        name_at += len(name) + 1
    return header + table + data
