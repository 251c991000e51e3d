"""Bundles for a GPU, run without one: the runtime works on the null driver, whose launches Triton's interpreter does.

What is exported has the kernels' launch records and no machine code, so nothing is compiled. Each access of a kernel is
checked: it lies in the allocation of one of the launch's pointers, what it loads was written, and it races with none.
"""

from __future__ import annotations

import base64
import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cubin import cubin
from null_driver import NullDriver

import hardtack
from hardtack.codegen.backends.triton import compile as triton_compile
from hardtack.codegen.backends.triton.compile import GpuCode, code_of
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.backends.triton.ptx import Param
from hardtack.codegen.ir.plan import GpuKernel
from hardtack.codegen.machine.data import gpu_of
from hardtack.codegen.machine.machine import Gpu
from tests.triton.accesses import checked
from tests.triton.simulate import constants, descriptor, load_kernel, pointed

TARGET = "cuda:sm_90"
FLOATS = {"fp32": ("i32", ctypes.c_float), "fp64": ("i64", ctypes.c_double)}
POINTERS = ("buffer", "status", "scratch", "null")


def code_without_compiling(kernel: TritonKernel, arch: str) -> GpuCode:
    """The kernel's launch record, and code that cannot run."""
    blocks = [a.type.partition("[")[2].rstrip("]>") for a in kernel.arguments if a.role[0] == "map"]
    metadata = {
        "name": kernel.name,
        "num_warps": kernel.num_warps,
        "num_ctas": kernel.num_ctas,
        "shared": 0,
        "global_scratch_size": 0,
        "profile_scratch_size": 0,
        "tensordesc_meta": [{"block_size": [int(n) for n in b.split(",")], "swizzle": 0} for b in blocks],
    }
    args, expected, _ = triton_compile._arguments(kernel, metadata)
    sizes = [(p.nbytes, a[0] in POINTERS) for a, p in zip(args, expected, strict=True)]
    answer = {
        "code": base64.b64encode(cubin(kernel.name, sizes)).decode(),
        "parameters": f"({', '.join(map(_declared, expected))})",
        "metadata": metadata,
    }
    return code_of(kernel, gpu_of(arch), answer)


def _declared(p: Param) -> str:
    return f".param .align {p.align} .b8 p[{p.nbytes}]" if p.align else f".param .u{8 * p.nbytes} p"


@dataclass
class Driven:
    """Does the launches of what `export` made. kernels: by function, with their records."""

    driver: NullDriver
    kernels: dict[str, tuple[TritonKernel, GpuKernel]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._loaded: dict[str, Any] = {}
        self.driver.compute(self._launch)

    def export(
        self, modules: Any, args: Any, path: Path, dynamic: Any = None, options: hardtack.Options | None = None
    ) -> hardtack.Model:
        """Modules by entry, or one, as a bundle, loaded on the null driver."""

        def compiled(kernels: list[TritonKernel], machine: Gpu, **_: Any) -> dict[str, GpuCode]:
            found = {k.name: code_without_compiling(k, machine.name) for k in kernels}
            self.kernels |= {k.name: (k, found[k.name].record) for k in kernels}
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hardtack.codegen.backends.triton.triton_backend.compile_kernels", compiled)
            hardtack.export(modules, args, path=path, dynamic_shapes=dynamic, targets=(TARGET,), options=options)
        return hardtack.load(path, device="cuda", cuda_driver=self.driver.path)

    def _launch(self, function: str, params: list[int], grid: tuple[int, ...]) -> None:
        kernel, record = self.kernels[function]
        if function not in self._loaded:
            self._loaded[function] = load_kernel(kernel)
        given = {a: at for a, at in zip(record.args, params, strict=True) if a[0] not in ("scratch", "null")}
        ranges: list[tuple[int, int]] = []
        args = {a.name: self._argument(a, given, ranges) for a in kernel.arguments}
        start = min((r[0] for r in ranges), default=0)
        written = self.driver.written(start, max((r[0] + r[1] for r in ranges), default=start) - start)
        ranges += [(_word(at), 4) for a, at in given.items() if a == ("status",)]
        programs = (grid[0] // record.cluster, *grid[1:])
        with np.errstate(all="ignore"), checked(ranges, (start, written)):
            self._loaded[function][programs](**args, **constants(kernel))

    def _argument(self, a: Any, given: Mapping[Any, int], ranges: list[tuple[int, int]]) -> Any:
        """A parameter as the interpreter takes it; `ranges` takes the memory that it points to."""
        kind = a.role[0]
        if kind == "int" and a.type in FLOATS:
            word, float_type = FLOATS[a.type]
            return float_type.from_address(given[*a.role, word]).value
        if kind == "int":
            return _integer(given[*a.role, a.type], a.type)
        if kind == "site":
            return _integer(given[a.role], "i32")
        if kind == "status":
            return torch.from_numpy(_bytes(_word(given[a.role]), 4).view(np.int32))
        address = _word(given[a.role])
        start, nbytes = self.driver.allocation(address)
        ranges.append((start, nbytes))
        memory = _bytes(address, start + nbytes - address)
        if kind == "buffer":
            return pointed(memory, a.type)
        m = a.role[1]
        rank = a.type.count(",") + 1
        shape = [_integer(given["map_shape", m, d], "i32") for d in range(rank)]
        strides = [_integer(given["map_stride", m, d], "i64") for d in range(rank)]
        return descriptor(memory, a.type, shape, strides)


def _word(at: int) -> int:
    return ctypes.c_uint64.from_address(at).value


def _integer(at: int, kind: str) -> int:
    return (ctypes.c_int32 if kind == "i32" else ctypes.c_int64).from_address(at).value


def _bytes(address: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)
