"""What this machine can do at most, measured: operations a second by instruction, and bytes a second out of memory.

The kernels in peak_kernels are built with Hardtack's own compiler for this CPU. Those of instructions that it lacks are
left out.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bench.worker import realtime_threads
from hardtack.codegen.machine.host import native_cpu
from hardtack.codegen.machine.machine import Cpu
from tests.templates.cpu_kernels import Library, load_library

_READ_NBYTES = 1 << 30
"""More than the caches of most machines hold."""
_SECONDS = 0.05
_ROUNDS = 7
_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18
_KERNELS = Path(__file__).parent / "peak_kernels"


class PeakError(RuntimeError):
    """The operating system keeps tile registers to itself."""


@dataclass(frozen=True)
class Kernel:
    """features: what the CPU must have, by the compilers' names. unit: of what it counts, a second."""

    title: str
    unit: str = "GFLOP/s"
    features: frozenset[str] = frozenset()


KERNELS = {
    "fma": Kernel("FMA f32"),
    "dot": Kernel("AVX512-BF16", features=frozenset({"avx512bf16"})),
    "tile": Kernel("AMX bf16", features=frozenset({"amx-tile", "amx-bf16"})),
    "read": Kernel("read", "GB/s"),
}
Peaks = dict[str, float]
"""Name of a kernel -> operations or bytes a second; those that the CPU lacks are not there."""


def sources(cpu: Cpu) -> dict[str, str]:
    """Name -> source of the kernels that `cpu` has the instructions for."""
    able = [name for name, kernel in KERNELS.items() if kernel.features <= set(cpu.features)]
    return {name: (_KERNELS / f"{name}.cpp").read_text() for name in able}


def measure_peaks(threads: Sequence[int], realtime: bool = False) -> dict[int, Peaks]:
    """The best of several rounds, by number of threads that work at once. realtime: as Settings has it.

    Raises ToolchainError where the kernels do not compile, and PeakError where Linux refuses tile registers.
    """
    cpu = native_cpu()
    kernels = sources(cpu)
    if "tile" in kernels:
        ask_for_tiles()
    library = load_library(kernels, cpu)
    memory = torch.ones(_READ_NBYTES // 4)
    return {n: {name: _rate(library, name, memory, n, realtime) for name in kernels} for n in threads}


def reader(threads: int) -> Callable[[], float]:
    """What reads memory from end to end once, by so many threads, and gives bytes a second. Raises ToolchainError."""
    cpu = native_cpu()
    library = load_library({"read": sources(cpu)["read"]}, cpu)
    parts = torch.ones(_READ_NBYTES // 16).tensor_split(threads)
    pool = ThreadPoolExecutor(threads)

    def read() -> float:
        begin = time.perf_counter()
        did = list(pool.map(lambda part: done(library, "read", 1, part), parts))
        return sum(did) / (time.perf_counter() - begin)

    return read


def larger(one: dict[int, Peaks], other: dict[int, Peaks]) -> dict[int, Peaks]:
    """The larger figure of two measurements of the same machine, since others may be busy on it in one of them."""
    return {n: {name: max(value, other[n][name]) for name, value in found.items()} for n, found in one.items()}


def ask_for_tiles() -> None:
    """Linux gives tile registers to a process that asks for them."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA):
        raise PeakError("this CPU has tile registers, and its operating system refuses them")


def _rate(library: Library, name: str, memory: Tensor, threads: int, realtime: bool) -> float:
    """Work a second of all threads together, each on its own part of the memory: the best round."""
    parts = memory.tensor_split(threads)
    start = threading.Barrier(threads)
    steps = _steps(library, name, memory)

    def work(part: Tensor) -> tuple[float, float, float]:
        start.wait()
        begin = time.perf_counter()
        did = done(library, name, steps, part)
        return did, begin, time.perf_counter()

    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, parts))  # there are as many threads from here on
        with realtime_threads() if realtime else nullcontext():
            for _ in range(_ROUNDS):
                did, begins, ends = zip(*pool.map(work, parts), strict=True)
                best = max(best, sum(did) / (max(ends) - min(begins)))
    return best


def _steps(library: Library, name: str, memory: Tensor) -> int:
    """As many as take a while; one step of reading goes through all of the memory."""
    if name == "read":
        return 1
    steps, seconds = 1000, 0.0
    while seconds < _SECONDS:
        steps *= 2
        begin = time.perf_counter()
        done(library, name, steps, memory)
        seconds = time.perf_counter() - begin
    return steps


def done(library: Library, name: str, steps: int, memory: Tensor) -> float:
    """How much a kernel has done in all its steps, which it says itself."""
    found = torch.zeros(2, dtype=torch.float64)  # the second is a sum, without which a compiler may leave all out
    library.bind(name, [found, memory], [steps, memory.numel()]).run()
    return float(found[0])


def sentence(peaks: dict[int, Peaks]) -> str:
    """Such as "Peaks, 1 thread: FMA f32 176 GFLOP/s, AMX bf16 absent, read 12.1 GB/s; 2 threads: ..."."""
    parts = [
        f"{n} thread{'s' if n > 1 else ''}: {', '.join(_text(name, found) for name in KERNELS)}"
        for n, found in peaks.items()
    ]
    return f"Peaks, {'; '.join(parts)}."


def _text(name: str, found: Peaks) -> str:
    kernel = KERNELS[name]
    if name not in found:
        return f"{kernel.title} absent"
    value = found[name] / 1e9
    return f"{kernel.title} {value:.0f} {kernel.unit}" if value >= 100 else f"{kernel.title} {value:.1f} {kernel.unit}"
