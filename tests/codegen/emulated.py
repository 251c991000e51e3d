"""A compiled entry whose kernels are built for aarch64 and run under qemu-user."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hardtack.codegen.backends.cpp.compiler import find_compiler
from hardtack.codegen.backends.cpp.toolchain import Unit, compile_library
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.machine.data import AARCH64
from tests.codegen.runner import Array, Runner
from tests.support import emulated_kernels
from tests.support.emulated_kernels import Place


class EmulatedRunner(Runner):
    """Runs each kernel in a process of an emulated CPU, which has nothing beyond Armv8-A."""

    target = AARCH64

    def load(self) -> dict[str, object]:
        units = [Unit(name, source) for name, source in sorted(self.compiled.sources.items())]
        data = compile_library(units, self.target, find_compiler(), cache=KernelCache())
        # the process opens the file when it starts: kept for as long as this is
        self._folder = tempfile.TemporaryDirectory(prefix="hardtack-kernels-")
        path = Path(self._folder.name) / "kernels.so"
        path.write_bytes(data)
        self._process = emulated_kernels.Runner(path, self.target)
        return {}

    def _call(
        self, kernel: str, buffers: Sequence[Array], values: Sequence[int], shared: Array, workers: Array, stride: int
    ) -> int:
        workspaces = array_place(shared), array_place(workers)
        return self._process.run(kernel, [array_place(a) for a in buffers], values, workspaces, stride, 2)


def array_place(array: Array) -> Place | None:
    """The place of an array in the bytes that were allocated with it; None for one without bytes."""
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    start, end = np.lib.array_utils.byte_bounds(whole)
    return Place(start, end - start, array.ctypes.data - start) if end > start and array.size else None
