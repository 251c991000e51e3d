"""NVRTC, NVIDIA's compiler of CUDA C++ as a library: found where PyPI's package has it, called through ctypes.

It needs no GPU and no driver. Each call of it compiles in this process; what it gives depends on its version, the text
and the options alone.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")
"""Those that have the library, the newest first."""
REQUIREMENT = "hardtack[cuda]"


class NvrtcError(RuntimeError):
    """NVRTC is not there, or a user's CUDA kernel does not compile or fit."""


class DoesNotCompile(Exception):
    """What NVRTC says of a text."""


@dataclass(frozen=True)
class Compiled:
    """cubin: machine code; ptx: the assembly that it was made of."""

    cubin: bytes
    ptx: str


@dataclass(frozen=True)
class Nvrtc:
    """The library at a place. version: of its package; of a library without one its own, with the hash of its file."""

    version: str
    library: Any

    def compile(self, text: str, file: str, options: Sequence[str], headers: dict[str, str]) -> Compiled:
        """A text for one architecture. headers: what it may include, by name. DoesNotCompile with NVRTC's log."""
        program = ctypes.c_void_p()
        names, texts = (_strings(list(x)) for x in (headers.keys(), headers.values()))
        self._call(
            "nvrtcCreateProgram", ctypes.byref(program), text.encode(), file.encode(), len(headers), texts, names
        )
        try:
            status = self.library.nvrtcCompileProgram(program, len(options), _strings(options))
            if status:
                said = self._bytes("nvrtcGetProgramLog", program).rstrip(b"\0").decode(errors="replace").strip()
                raise DoesNotCompile(said or self._message(status))
            ptx = self._bytes("nvrtcGetPTX", program).rstrip(b"\0").decode()
            return Compiled(self._bytes("nvrtcGetCUBIN", program), ptx)
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def architectures(self) -> tuple[int, ...]:
        """Those that it compiles for: 90 for sm_90."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", found)
        return tuple(found)

    def _bytes(self, function: str, program: ctypes.c_void_p) -> bytes:
        nbytes = ctypes.c_size_t()
        self._call(f"{function}Size", program, ctypes.byref(nbytes))
        found = ctypes.create_string_buffer(nbytes.value)
        self._call(function, program, found)
        return found.raw

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self.library, function)(*arguments)
        if status:
            raise NvrtcError(f"{function} of NVRTC {self.version} fails: {self._message(status)}")

    def _message(self, status: int) -> str:
        say = self.library.nvrtcGetErrorString
        say.restype = ctypes.c_char_p
        return str(say(status).decode())


def _strings(texts: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(texts))(*(t.encode() for t in texts))


@cache
def nvrtc() -> Nvrtc:
    """The library of the first package that is installed, else one in a folder of such a package. NvrtcError where
    there is none, or it does not load."""
    found = _packaged() or _loose()
    if found is None:
        raise NvrtcError(
            f"users' CUDA kernels are compiled by NVRTC, which is not installed: pip install '{REQUIREMENT}', or "
            f"pip install {PACKAGES[0]}"
        )
    path, version = found
    try:
        for beside in sorted(path.parent.glob("libnvrtc-builtins.so.*")):  # NVRTC 13.0 asks for it by name alone
            ctypes.CDLL(str(beside))
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise NvrtcError(f"NVRTC {version} does not load: {error}") from error
    return Nvrtc(version, library)


def _packaged() -> tuple[Path, str] | None:
    for name in PACKAGES:
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in sorted(package.files or (), key=str):
            if file.name.startswith("libnvrtc.so"):
                return Path(str(package.locate_file(file))), package.version
    return None


def _loose() -> tuple[Path, str] | None:
    """nvidia/*/lib/libnvrtc.so.* of the folders where modules are looked for."""
    for folder in sys.path:
        found = sorted(Path(folder or ".").glob("nvidia/*/lib/libnvrtc.so.[0-9]*"))
        if found:
            path = found[-1]
            content = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
            return path, f"{path.name.rpartition('.')[2]}+{content}"
    return None
