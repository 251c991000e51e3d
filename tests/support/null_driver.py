"""The null driver (runtime_cpp/tests/null_driver) for tests in Python: CUDA without a GPU."""

from __future__ import annotations

import ctypes
import gc
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).parents[2]


def build(folder: Path) -> Path:
    """Compiles it, as CMake does for the C++ tests."""
    out = folder / "libhardtack_null_driver.so"
    sources = [str(ROOT / "runtime_cpp" / "tests" / "null_driver" / name) for name in ("driver.cpp", "state.cpp")]
    includes = [f"-I{ROOT / 'runtime_cpp' / name}" for name in ("src", "include")]
    subprocess.run(["c++", "-std=c++17", "-O1", "-shared", "-fPIC", *includes, *sources, "-o", str(out)], check=True)
    return out


COMPUTE = ctypes.CFUNCTYPE(
    None,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_uint,
    ctypes.POINTER(ctypes.c_uint),
)
Compute = Callable[[str, list[int], tuple[int, ...]], None]
"""A launch's function, where its parameters are, and its grid."""


class NullDriver:
    """A test's stay with it: `log` and `problems` give what was seen since the last time."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._library = ctypes.CDLL(self.path)
        self._library.ht_null_take.restype = ctypes.c_char_p
        self._library.ht_null_written.restype = ctypes.c_void_p
        self._library.ht_null_allocation.restype = ctypes.c_bool
        self._compute: object = None
        self.failures: list[BaseException] = []
        self.log()
        self._take("problems")

    def _take(self, what: str) -> str:
        text: bytes = self._library.ht_null_take(what.encode())
        return text.decode()

    def problems(self) -> list[str]:
        return self._take("problems").splitlines()

    def log(self) -> list[str]:
        return self._take("log").splitlines()

    def set(self, name: str, value: str) -> None:
        self._library.ht_null_set(f"HARDTACK_NULL_{name}".encode(), value.encode())

    def compute(self, work: Compute) -> None:
        """Launches do `work` from here on; what it raises is in `failures` and raised by `finish`."""

        def call(name: bytes, params: Any, num_params: int, grid: Any) -> None:
            try:
                work(name.decode(), [int(params[k]) for k in range(num_params)], tuple(grid[k] for k in range(3)))
            except BaseException as e:  # it cannot pass through the driver
                self.failures.append(e)

        self._compute = COMPUTE(call)
        self._library.ht_null_compute(self._compute)

    def allocation(self, address: int) -> tuple[int, int]:
        """The start and size of the device memory around an address; for use in `compute` alone."""
        start, nbytes = ctypes.c_uint64(), ctypes.c_size_t()
        known = self._library.ht_null_allocation(ctypes.c_uint64(address), ctypes.byref(start), ctypes.byref(nbytes))
        assert known, f"0x{address:x} is not on the device"
        return start.value, nbytes.value

    def written(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """By byte: whether it was written since it was allocated. It may be changed."""
        at = self._library.ht_null_written(ctypes.c_uint64(address))
        return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(at), np.uint8)

    def finish(self) -> None:
        """Settings are back at their defaults; nothing was done wrong and nothing is left behind."""
        for name in ("DEVICES", "ARCH", "FAIL", "REPORT"):
            self.set(name, "")
        self._library.ht_null_compute(None)
        gc.collect()
        assert self.failures == []
        assert self._take("problems") == ""
        assert self._take("leaks") == ""
