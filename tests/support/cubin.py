"""CUDA code as far as readers look at it: an ELF file with one function and its parameters. Nothing in it can run."""

from __future__ import annotations

import struct
from collections.abc import Sequence

POINTER, I32, I64, MAP = (8, True), (4, False), (8, False), (128, False)
"""Parameters: (nbytes, whether it is a pointer)."""


def cubin(function: str, params: Sequence[tuple[int, bool]], arch: int = 90) -> bytes:
    """A cubin for sm_<arch> with `function`."""
    sections = [("", 0, b""), (".shstrtab", 3, b""), (f".nv.info.{function}", 0x70000000, _params(params))]
    sections.append((f".text.{function}", 1, bytes(64)))
    names = b"".join(name.encode() + b"\0" for name, _, _ in sections)
    sections[1] = (".shstrtab", 3, names)
    ident = b"\x7fELF\x02\x01\x01\x33" + bytes(8)
    flags = arch << 16 | 0x500 | arch
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 2, 190, 1, 0, 0, 64, flags, 64, 0, 0, 64, len(sections), 1)
    table, data, name_at = b"", b"", 0
    for name, kind, content in sections:
        offset = 64 + 64 * len(sections) + len(data)
        table += struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, offset, len(content), 0, 0, 1, 0)
        data += content
        name_at += len(name) + 1
    return header + table + data


def _params(params: Sequence[tuple[int, bool]]) -> bytes:
    """EIATTR_KPARAM_INFO records: ordinal, offset, and size and kind in one word."""
    out, offset = b"", 0
    for ordinal, (nbytes, pointer) in enumerate(params):
        align = min(nbytes, 64)
        offset = -(-offset // align) * align
        bits = nbytes << 18 | 0x1F000 | (0x400 if pointer else 0)
        out += struct.pack("<BBHIHHI", 4, 0x17, 12, 0, ordinal, offset, bits)
        offset += nbytes
    return out
