"""A file's bytes, mapped for reading."""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from pathlib import Path


class MappedFile:
    """Raises OSError where the file cannot be opened or mapped. `data` is good until `close`."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None
            self._fd = os.dup(file.fileno())
        self.data = memoryview(self._mapping if self._mapping is not None else b"")

    def hole_nbytes(self, start: int, end: int) -> int:
        """How many of the bytes [start, end) are holes of a sparse file: zeros that take no room there."""
        total, at = 0, start
        while at < end:
            try:
                data = min(os.lseek(self._fd, at, os.SEEK_DATA), end)
                total, at = total + data - at, data
                at = end if at == end else os.lseek(self._fd, at, os.SEEK_HOLE)
            except OSError as error:
                return total + end - at if error.errno == errno.ENXIO else total  # a hole up to the file's end
        return total

    def close(self) -> None:
        """Lets go of the file; a view that is still held keeps the mapping."""
        os.close(self._fd)
        if self._mapping is None:
            return
        with suppress(BufferError):
            self._mapping.close()
