"""The kernel cache: compiled objects on disk, found by the hash of everything that made them.

Safe with any number of processes at once: an entry appears by one atomic rename and is never changed afterwards. A
damaged entry is noticed by its stored hash, removed and built again. The oldest used entries go when the cache
outgrows its limit, which is looked at once a minute: a walk through a full cache takes longer than many a kernel.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

DEFAULT_LIMIT_NBYTES = 2 << 30
_LAYOUT = "v1"  # changes when the form of an entry changes; old folders are then simply not read
_DIGEST_NBYTES = hashlib.sha256().digest_size
_TEMPORARY_PREFIX = "new-"
_TEMPORARY_LIFETIME_S = 3600.0  # a temporary older than this belongs to a process that died
_WALK_EVERY_S = 60.0  # what is compiled meanwhile, some 10 MB, may be beyond the limit
_WALKED = "walked"  # an empty file, whose time says when any process walked last
_TRIM_TO = 0.8  # of the limit: so that a full cache is not walked and trimmed at every export


class CacheError(RuntimeError):
    """The kernel cache's folder cannot be used."""


def default_cache_dir() -> Path:
    """``$HARDTACK_CACHE``, or ``hardtack`` under the user's XDG cache folder."""
    chosen = os.environ.get("HARDTACK_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hardtack"


class KernelCache:
    """A folder of byte strings by hexadecimal key.

    ``root`` defaults to ``default_cache_dir()``; ``limit_nbytes`` bounds what ``trim`` leaves. Whoever has put entries
    calls ``trim_if_due``.
    """

    def __init__(self, root: Path | None = None, limit_nbytes: int = DEFAULT_LIMIT_NBYTES) -> None:
        self.root = default_cache_dir() if root is None else root
        self.limit_nbytes = limit_nbytes
        self._entries = self.root / _LAYOUT

    def _path(self, key: str) -> Path:
        return self._entries / key[:2] / key

    def get(self, key: str) -> bytes | None:
        """The bytes stored under ``key``, or None. A damaged entry counts as absent and is removed."""
        path = self._path(key)
        try:
            stored = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable("read", error) from error
        digest, data = stored[:_DIGEST_NBYTES], stored[_DIGEST_NBYTES:]
        if len(digest) < _DIGEST_NBYTES or hashlib.sha256(data).digest() != digest:
            path.unlink(missing_ok=True)
            return None
        # The time of the last use, which trim goes by. Where another process trimmed the entry just now, or the folder
        # is read-only, the bytes in hand are good all the same.
        with contextlib.suppress(OSError):
            os.utime(path)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Stores ``data`` under ``key``. Raises CacheError when the folder cannot be written."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX, dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(data).digest())
                    file.write(data)
                os.replace(temporary, path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise self._unusable("write", error) from error

    def trim_if_due(self) -> int:
        """``trim``, unless any process did within the last minute; returns the bytes removed. Raises CacheError when
        the folder cannot be written."""
        stamp = self._entries / _WALKED
        with contextlib.suppress(FileNotFoundError):
            if abs(time.time() - stamp.stat().st_mtime) < _WALK_EVERY_S:  # a time to come is that of another clock
                return 0
        try:
            self._entries.mkdir(parents=True, exist_ok=True)
            stamp.touch()
        except OSError as error:
            raise self._unusable("write", error) from error
        return self.trim()

    def trim(self) -> int:
        """Removes the least recently used entries once the total is over the limit; returns the bytes removed."""
        entries = sorted(self._stats(), key=lambda entry: entry[0])
        total = sum(nbytes for _, nbytes, _ in entries)
        if total <= self.limit_nbytes:
            return 0
        removed = 0
        for _, nbytes, path in entries:
            if total - removed <= self.limit_nbytes * _TRIM_TO:
                break
            Path(path).unlink(missing_ok=True)
            removed += nbytes
        return removed

    def keep_source(self, name: str, source: str) -> Path:
        """Writes a source that failed to compile where the user can look at it, and returns its path."""
        folder = self.root / "failed"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / name
            path.write_text(source, encoding="utf-8")
        except OSError as error:
            raise self._unusable("write", error) from error
        return path

    def _stats(self) -> Iterator[tuple[float, int, str]]:
        """(last use, size in bytes, path) of every entry; removes what dead processes left behind."""
        stale = time.time() - _TEMPORARY_LIFETIME_S
        if not self._entries.is_dir():
            return
        folders = [place.path for place in os.scandir(self._entries) if place.is_dir()]
        for entry in itertools.chain.from_iterable(map(os.scandir, folders)):
            try:
                stat = entry.stat()
            except FileNotFoundError:
                continue  # trimmed by another process
            if entry.name.startswith(_TEMPORARY_PREFIX):
                if stat.st_mtime < stale:
                    Path(entry).unlink(missing_ok=True)
                continue
            yield stat.st_mtime, stat.st_size, entry.path

    def _unusable(self, verb: str, error: OSError) -> CacheError:
        return CacheError(
            f"cannot {verb} the kernel cache at {self.root}: {error.strerror or error}; "
            "set HARDTACK_CACHE to a folder that can be written"
        )
