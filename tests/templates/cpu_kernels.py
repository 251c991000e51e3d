"""Compiles kernel sources with the project's toolchain and calls them from Python, for tests and benchmarks.

Workspaces are given exactly as large as asked for, between guard bytes that every call checks.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from hardtack._native import cpu_features
from hardtack.codegen.backends.cpp.compiler import find_compiler
from hardtack.codegen.backends.cpp.toolchain import Unit, compile_library
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.machine.data import AARCH64, CPUS
from hardtack.codegen.machine.host import native_cpu
from hardtack.codegen.machine.machine import Cpu
from tests.support.emulated_kernels import EMULATED_CPUS, Runner, tensor_place

_GUARD_NBYTES = 256
_GUARD_BYTE = 0xA5

_Task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
_Run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, _Task, ctypes.c_void_p)


class _Parallel(ctypes.Structure):
    _fields_ = [("pool", ctypes.c_void_p), ("run", _Run), ("nworkers", ctypes.c_int32)]


class _Args(ctypes.Structure):
    _fields_ = [
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
        ("parallel", ctypes.POINTER(_Parallel)),
        ("shared_workspace", ctypes.c_void_p),
        ("worker_workspace", ctypes.c_void_p),
        ("worker_stride", ctypes.c_int64),
    ]


_Kernel = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(_Args))


class _Entry(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("fn", _Kernel)]


class _Table(ctypes.Structure):
    _fields_ = [("abi_version", ctypes.c_uint32), ("count", ctypes.c_uint32), ("entries", ctypes.POINTER(_Entry))]


@dataclass(frozen=True)
class Workspace:
    """Bytes that a kernel asks for, as in the templates' struct of that name."""

    shared: int = 0
    per_worker: int = 0


def runnable_targets() -> list[Cpu]:
    """The known targets that this machine can run.

    The runtime says what the CPU has, and asks the system for tile registers: without it their first use is SIGILL.
    """
    here, has = native_cpu().arch, set(cpu_features().split())
    return [t for t in CPUS.values() if t.arch == here and has.issuperset(t.features)]


def emulated_targets() -> list[Cpu]:
    """The known targets that only an emulator runs here, whether it is there or not."""
    return [CPUS[name] for name in EMULATED_CPUS if CPUS[name].arch != native_cpu().arch]


def _run_serially(_pool: int, ntasks: int, task: Callable[..., None], closure: int) -> None:
    for index in range(ntasks):
        task(closure, index, 0)


def _run_threaded(nworkers: int, _pool: int, ntasks: int, task: Callable[..., None], closure: int) -> None:
    """Worker w takes every nworkers-th task, from the last to the first: an order that no kernel may rely on."""

    def work(worker: int) -> None:
        for index in reversed(range(worker, ntasks, nworkers)):
            task(closure, index, worker)

    with ThreadPoolExecutor(nworkers) as pool:
        list(pool.map(work, range(nworkers)))


class Library(ABC):
    """A kernel library, in this process or in an emulated one."""

    @abstractmethod
    def bind(
        self,
        name: str,
        buffers: Sequence[torch.Tensor | None],
        ints: Sequence[int],
        workspace: Workspace = Workspace(),
        nworkers: int = 1,
    ) -> Call:
        """A kernel with its arguments, to be run any number of times."""

    def call(
        self,
        name: str,
        buffers: Sequence[torch.Tensor | None],
        ints: Sequence[int],
        workspace: Workspace = Workspace(),
        nworkers: int = 1,
    ) -> int:
        """Runs a kernel once and returns its status; raises AssertionError when it left its workspace."""
        call = self.bind(name, buffers, ints, workspace, nworkers)
        status = call.run()
        call.check_guards()
        return status


class Call(ABC):
    """One kernel bound to buffers, integers and workspaces, which it keeps alive."""

    def __init__(
        self, buffers: Sequence[torch.Tensor | None], ints: Sequence[int], workspace: Workspace, nworkers: int
    ) -> None:
        self.buffers, self.ints, self.nworkers = list(buffers), list(ints), nworkers
        self._workspace = workspace
        self.stride = (workspace.per_worker + 63) // 64 * 64 + _GUARD_NBYTES
        self.shared = _guarded(workspace.shared)
        self.private = _guarded(self.stride * nworkers - _GUARD_NBYTES)

    @abstractmethod
    def run(self, repeat: int = 1) -> int:
        """Runs the kernel ``repeat`` times and returns the last status."""

    def check_guards(self) -> None:
        """Raises AssertionError when a run has written beyond its workspace."""
        shared, private = self._workspace.shared, self._workspace.per_worker
        assert bool((self.shared[shared:] == _GUARD_BYTE).all()), "the kernel left its shared workspace"
        for worker in range(self.nworkers):
            guard = self.private[worker * self.stride + private : (worker + 1) * self.stride]
            assert bool((guard == _GUARD_BYTE).all()), f"worker {worker} left its workspace"


class LoadedLibrary(Library):
    """A library in this process."""

    def __init__(self, path: Path) -> None:
        self._dll = ctypes.CDLL(str(path))
        table = _Table.in_dll(self._dll, "hardtack_kernels")
        self._kernels = {table.entries[i].name.decode(): table.entries[i].fn for i in range(table.count)}

    def bind(
        self,
        name: str,
        buffers: Sequence[torch.Tensor | None],
        ints: Sequence[int],
        workspace: Workspace = Workspace(),
        nworkers: int = 1,
    ) -> Call:
        """A kernel with its arguments, to be run any number of times."""
        return _LoadedCall(self._kernels[name], buffers, ints, workspace, nworkers)


class _LoadedCall(Call):
    def __init__(
        self,
        fn: Callable[..., int],
        buffers: Sequence[torch.Tensor | None],
        ints: Sequence[int],
        workspace: Workspace,
        nworkers: int,
    ) -> None:
        super().__init__(buffers, ints, workspace, nworkers)
        self._fn = fn
        self._pointers = (ctypes.c_void_p * len(buffers))(*(None if t is None else t.data_ptr() for t in buffers))
        self._numbers = (ctypes.c_int64 * len(ints))(*ints)
        run = _Run(_run_serially if nworkers == 1 else functools.partial(_run_threaded, nworkers))
        self._parallel = _Parallel(None, run, nworkers)
        shared, private = self.shared.data_ptr(), self.private.data_ptr()
        parallel = ctypes.pointer(self._parallel)
        self._args = _Args(self._pointers, self._numbers, parallel, shared, private, self.stride)

    def run(self, repeat: int = 1) -> int:
        status = 0
        for _ in range(repeat):
            status = self._fn(ctypes.byref(self._args))
        return int(status)


class EmulatedLibrary(Library):
    """A library for another architecture, in a process of its own."""

    def __init__(self, path: Path, target: Cpu) -> None:
        self._runner = Runner(path, target)

    def bind(
        self,
        name: str,
        buffers: Sequence[torch.Tensor | None],
        ints: Sequence[int],
        workspace: Workspace = Workspace(),
        nworkers: int = 1,
    ) -> Call:
        """A kernel with its arguments, to be run any number of times."""
        return _EmulatedCall(self._runner, name, buffers, ints, workspace, nworkers)


class _EmulatedCall(Call):
    def __init__(
        self,
        runner: Runner,
        name: str,
        buffers: Sequence[torch.Tensor | None],
        ints: Sequence[int],
        workspace: Workspace,
        nworkers: int,
    ) -> None:
        super().__init__(buffers, ints, workspace, nworkers)
        self._runner, self._name = runner, name

    def run(self, repeat: int = 1) -> int:
        status = 0
        for _ in range(repeat):
            workspaces = tensor_place(self.shared), tensor_place(self.private)
            buffers = [tensor_place(tensor) for tensor in self.buffers]
            status = self._runner.run(self._name, buffers, self.ints, workspaces, self.stride, self.nworkers)
        return status


def _guarded(nbytes: int) -> torch.Tensor:
    """``nbytes`` and a guard, 64-byte aligned, all of it guard bytes."""
    raw = torch.full((nbytes + _GUARD_NBYTES + 64,), _GUARD_BYTE, dtype=torch.uint8)
    start = -raw.data_ptr() % 64
    return raw[start : start + nbytes + _GUARD_NBYTES]


@functools.cache
def _cache_dir() -> Path:
    """Beside the machine's other temporary files, by user: a second test run finds its kernels compiled."""
    return Path(os.environ.get("HARDTACK_TEST_CACHE", Path(tempfile.gettempdir()) / f"hardtack-test-{os.getuid()}"))


def compile_bytes(sources: Mapping[str, str], target: Cpu, compiler: str | None = None) -> bytes:
    """A library of ``sources``: kernel name to C++ source."""
    units = [Unit(name, source) for name, source in sources.items()]
    return compile_library(units, target, find_compiler(compiler), cache=KernelCache(_cache_dir()), jobs=2)


def load_library(sources: Mapping[str, str], target: Cpu, compiler: str | None = None) -> Library:
    """The same, loaded into this process, or into one under qemu-user where ``target`` is of another architecture."""
    data = compile_bytes(sources, target, compiler)
    path = _cache_dir() / f"{hashlib.sha256(data).hexdigest()}.so"
    if not path.exists():
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(data)
        fresh.rename(path)
    return LoadedLibrary(path) if target.arch == native_cpu().arch else EmulatedLibrary(path, target)


__all__ = [
    "AARCH64",
    "Call",
    "Library",
    "Workspace",
    "compile_bytes",
    "emulated_targets",
    "load_library",
    "runnable_targets",
]
