"""Kernel libraries for aarch64, run by kernel_runner.cpp under qemu-user.

One process serves all calls of a library. A kernel that it dies of fails the test that called it; the next call gets
a new process.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from hardtack.codegen.backends.cpp.toolchain import include_dirs
from hardtack.codegen.machine.data import AARCH64, AARCH64_BF16
from hardtack.codegen.machine.machine import Cpu
from tests.support.aarch64 import CXX, MAX, PLAIN, emulated, missing

EMULATED_CPUS = {AARCH64_BF16.name: MAX, AARCH64.name: PLAIN}
"""What qemu emulates, by target, best first."""


@functools.cache
def build_runner() -> Path:
    """Compiles kernel_runner.cpp for aarch64, once a process."""
    reason = missing()
    assert reason is None, reason
    folder = Path(tempfile.mkdtemp(prefix="hardtack-runner-"))
    program = folder / "kernel_runner"
    source = Path(__file__).parent / "kernel_runner.cpp"
    includes = [f"-I{path}" for path in include_dirs()]
    subprocess.run([CXX, "-std=c++17", "-O2", *includes, str(source), "-o", str(program)], check=True)
    return program


@dataclass(frozen=True)
class Place:
    """Where an array lies: the bytes at ``start`` that were allocated with it, and how far into them it begins."""

    start: int
    nbytes: int
    offset: int


def tensor_place(tensor: torch.Tensor | None) -> Place | None:
    """The place of a tensor in its storage; None for one without bytes."""
    if tensor is None or tensor.untyped_storage().nbytes() == 0:
        return None
    storage = tensor.untyped_storage()
    # not data_ptr(), which is 0 for a tensor without elements
    return Place(storage.data_ptr(), storage.nbytes(), tensor.storage_offset() * tensor.itemsize)


class Memory:
    """The regions that the arrays of a call lie in: what is sent, and what comes back."""

    def __init__(self) -> None:
        self._regions: dict[int, int] = {}  # start -> nbytes

    def place(self, place: Place | None) -> bytes:
        """Where an array lies over there: its region and the bytes before it."""
        if place is None:
            return struct.pack("<qQ", -1, 0)
        self._regions.setdefault(place.start, place.nbytes)
        return struct.pack("<qQ", list(self._regions).index(place.start), place.offset)

    def pack(self) -> bytes:
        """All regions with their bytes."""
        parts = [struct.pack("<I", len(self._regions))]
        for start, nbytes in self._regions.items():
            parts += [struct.pack("<QQ", nbytes, start), ctypes.string_at(start, nbytes)]
        return b"".join(parts)

    def read(self, stream: IO[bytes]) -> bool:
        """Takes the bytes of all regions from ``stream``; False where it ends."""
        for start, nbytes in self._regions.items():
            data = stream.read(nbytes)
            if len(data) != nbytes:
                return False
            ctypes.memmove(start, data, nbytes)
        return True


class Runner:
    """A process that has loaded the library at ``path``."""

    def __init__(self, path: Path, target: Cpu) -> None:
        self._command = emulated([str(build_runner()), str(path)], EMULATED_CPUS[target.name])
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self,
        name: str,
        buffers: Sequence[Place | None],
        ints: Sequence[int],
        workspaces: tuple[Place | None, Place | None],
        stride: int,
        nworkers: int,
    ) -> int:
        """Runs a kernel and returns its status; what lies at the places is then as it left it.

        ``workspaces``: the shared one, and that of the workers, each of whom has ``stride`` bytes of it. Raises
        AssertionError when the process ends: its status, and what it wrote on its standard error.
        """
        memory = Memory()
        places = [memory.place(place) for place in buffers]
        own = [memory.place(place) for place in workspaces]
        message = b"".join(
            (
                struct.pack("<I", len(name)),
                name.encode(),
                memory.pack(),
                struct.pack("<I", len(places)),
                *places,
                struct.pack(f"<I{len(ints)}q", len(ints), *ints),
                struct.pack("<i", nworkers),
                *own,
                struct.pack("<q", stride),
            )
        )
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(message)
            process.stdin.flush()
        except BrokenPipeError:
            raise self._ended(name) from None
        status = process.stdout.read(4)
        if len(status) != 4 or not memory.read(process.stdout):
            raise self._ended(name)
        return int.from_bytes(status, "little", signed=True)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=pipe)
            weakref.finalize(self, _stop, self._process)
        return self._process

    def _ended(self, name: str) -> AssertionError:
        assert self._process is not None
        _, said = self._process.communicate()
        status, self._process = self._process.returncode, None
        return AssertionError(f"kernel {name} ended its process, status {status}: {said.decode(errors='replace')}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.communicate()
