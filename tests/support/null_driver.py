"""The null driver (runtime_cpp/tests/null_driver) for tests in Python: CUDA without a GPU."""

from __future__ import annotations

import ctypes
import gc
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(folder: Path) -> Path:
    """Compiles it, as CMake does for the C++ tests."""
    out = folder / "libhardtack_null_driver.so"
    sources = [str(ROOT / "runtime_cpp" / "tests" / "null_driver" / name) for name in ("driver.cpp", "state.cpp")]
    includes = [f"-I{ROOT / 'runtime_cpp' / name}" for name in ("src", "include")]
    subprocess.run(["c++", "-std=c++17", "-O1", "-shared", "-fPIC", *includes, *sources, "-o", str(out)], check=True)
    return out


class NullDriver:
    """A test's stay with it: `log` and `problems` give what was seen since the last time."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._library = ctypes.CDLL(self.path)
        self._library.ht_null_take.restype = ctypes.c_char_p
        self.log()
        self._take("problems")

    def _take(self, what: str) -> str:
        text: bytes = self._library.ht_null_take(what.encode())
        return text.decode()

    def log(self) -> list[str]:
        return self._take("log").splitlines()

    def set(self, name: str, value: str) -> None:
        self._library.ht_null_set(f"HARDTACK_NULL_{name}".encode(), value.encode())

    def finish(self) -> None:
        """Settings are back at their defaults; nothing was done wrong and nothing is left behind."""
        for name in ("DEVICES", "ARCH", "FAIL", "REPORT"):
            self.set(name, "")
        gc.collect()
        assert self._take("problems") == ""
        assert self._take("leaks") == ""
