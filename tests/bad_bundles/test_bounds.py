"""Reading a hostile file takes time and memory in proportion to it; of a sparse one, to what is there."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable
from pathlib import Path

import corpus
import hostile_files
import pytest

READERS: dict[str, Callable[[Path], str]] = {"python": corpus.python_error, "runtime": corpus.runtime_error}
MEGABYTE = 2**20
NBYTES_A_BYTE = {"python": 100, "runtime": 40}
"""docs/package.md, "Limits"."""


def _status(key: str) -> int:
    """A size of this process in bytes, as the system counts it."""
    found = re.search(rf"^{key}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _cost(reader: str, path: Path) -> tuple[float, int, str]:
    """The seconds of this process, the bytes beyond those that it has, and what the reader says."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    start = time.process_time()
    error = READERS[reader](path)
    return time.process_time() - start, _status("VmHWM") - before, error


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", hostile_files.GROWING)
def test_time_and_memory_grow_as_the_file_does(what: str, reader: str, tmp_path: Path) -> None:
    make, n = hostile_files.GROWING[what]
    path = tmp_path / "hostile.pkg"
    seconds = []
    for size in (n, 4 * n):
        path.write_bytes(make(size))
        first, nbytes, _ = _cost(reader, path)
        seconds.append(min(first, _cost(reader, path)[0]))
        assert nbytes < 32 * MEGABYTE + NBYTES_A_BYTE[reader] * path.stat().st_size, (nbytes, path.stat().st_size)
    # Linear: 4 times. Quadratic: 16 times. What takes no time at all tells nothing; Python collects garbage meanwhile.
    assert seconds[1] < {"python": 9, "runtime": 7}[reader] * max(seconds[0], 0.02), seconds


@pytest.mark.parametrize("reader", READERS)
def test_a_proof_ends(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "long.pkg"
    path.write_bytes(hostile_files.parts(7000))
    seconds, nbytes, error = _cost(reader, path)
    assert "too many to be proved" in error
    assert nbytes < 32 * MEGABYTE + NBYTES_A_BYTE[reader] * path.stat().st_size
    assert seconds < 5  # against minutes of comparing dimensions


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", hostile_files.SPARSE)
def test_a_sparse_file_costs_what_is_there(what: str, reader: str, tmp_path: Path) -> None:
    path = tmp_path / "sparse.pkg"
    hostile_files.SPARSE[what](path)
    room = hostile_files.room_nbytes(path)
    if room > path.stat().st_size // 16:
        pytest.skip("this file system has no sparse files")
    seconds, nbytes, error = _cost(reader, path)
    assert error != ""
    assert nbytes < 32 * MEGABYTE + NBYTES_A_BYTE[reader] * room, (nbytes, room)
    assert seconds < 5  # against terabytes of zeros that are read
