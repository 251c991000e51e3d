"""Runs a compiled entry in Python: a plan interpreter over ctypes, to test code generation without the runtime."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from hardtack.codegen.backends.cpp.compiler import find_compiler
from hardtack.codegen.backends.cpp.toolchain import Unit, compile_library
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.constants import NUMPY_DTYPE, ConstantStore
from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.expr_walk import evaluate
from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.ir.plan import Copy, If, Instr, Launch, Value, While
from hardtack.codegen.machine.host import native_cpu
from hardtack.codegen.pipeline import CompiledEntry
from hardtack.codegen.plan.prepack import made

Array = npt.NDArray[np.generic]
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, TASK, ctypes.c_void_p)


class Parallel(ctypes.Structure):
    _fields_ = (("pool", ctypes.c_void_p), ("run", RUN), ("nworkers", ctypes.c_int32))


class KernelArgs(ctypes.Structure):
    _fields_ = (
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
        ("parallel", ctypes.POINTER(Parallel)),
        ("shared_workspace", ctypes.c_void_p),
        ("worker_workspace", ctypes.c_void_p),
        ("worker_stride", ctypes.c_int64),
    )


class KernelEntry(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("fn", ctypes.c_void_p))


class KernelTable(ctypes.Structure):
    _fields_ = (("abi_version", ctypes.c_uint32), ("count", ctypes.c_uint32), ("entries", ctypes.POINTER(KernelEntry)))


@RUN
def _reversed_tasks(pool, ntasks, task, closure):  # type: ignore[no-untyped-def]
    """Runs tasks last to first, alternating workers: a kernel that depends on their order gives other results."""
    for i in reversed(range(ntasks)):
        task(closure, i, i % 2)


@cache
def _build(sources: tuple[tuple[str, str], ...]) -> ctypes.CDLL:
    units = [Unit(n, s) for n, s in sources]
    library = compile_library(units, native_cpu(), find_compiler(), cache=KernelCache())
    fd, path = tempfile.mkstemp(suffix=".so")
    with os.fdopen(fd, "wb") as f:
        f.write(library)
    loaded = ctypes.CDLL(path)
    os.unlink(path)
    return loaded


def load_kernels(sources: Mapping[str, str]) -> dict[str, object]:
    """name -> callable for every kernel."""
    table = KernelTable.in_dll(_build(tuple(sorted(sources.items()))), "hardtack_kernels")
    prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(KernelArgs))
    return {table.entries[k].name.decode(): prototype(table.entries[k].fn) for k in range(table.count)}


class KernelFailed(RuntimeError):
    """A kernel returned another code than HT_KERNEL_OK."""


@dataclass
class Runner:
    """A compiled entry with its constants; `states` keep their content between calls."""

    graph: Graph
    compiled: CompiledEntry
    store: ConstantStore
    observer: Callable[[Launch, str, Array], None] | None = None

    def __post_init__(self) -> None:
        self.kernels = self.load()
        keys = {x.name: x.key for c in self.graph.constants for x in (c, *c.parts())}
        self.constants = {n: self.store[k].array for n, k in keys.items()}
        for name, request in self.compiled.prepacks.items():
            self.constants[name] = made(request, self.constants.__getitem__)
        self.reset()

    def load(self) -> dict[str, object]:
        """Every kernel by name, as `_launch` calls it."""
        return load_kernels(self.compiled.sources)

    def reset(self) -> None:
        """States to their first content."""
        self.states: dict[str, Array] = {}
        for s in self.graph.states:
            t = self.graph.types[s.name]
            shape = [evaluate(e, {}) for e in t.shape]
            zeros = np.zeros(shape, NUMPY_DTYPE[t.dtype])
            self.states[s.name] = zeros if s.init is None else self.store[s.init].array.copy()

    def __call__(self, *inputs: Array) -> tuple[Array, ...]:
        plan = self.compiled.plan
        sizes = {s.sym.name: int(inputs[s.input]) if s.dim is None else inputs[s.input].shape[s.dim] for s in plan.syms}

        def number(e: Expr) -> int:
            return evaluate(e, sizes)

        values = {v.name: v for v in plan.values}
        self.memory = Memory()
        arena = self.memory.take(number(plan.arena_nbytes))
        arrays: dict[str, Array] = {}
        for v in plan.values:
            arrays[v.name] = self._place(v, inputs, arena, [number(e) for e in v.shape], number)
        self._values = values
        self._run(plan.body, arrays, number)
        return tuple(arrays[n] for n in plan.outputs)

    def _run(self, body: Sequence[Instr], arrays: Mapping[str, Array], number: Callable[[Expr], int]) -> None:
        for i in body:
            if isinstance(i, Copy):
                np.copyto(arrays[i.dst], arrays[i.src].reshape(arrays[i.dst].shape))
            elif isinstance(i, If):
                self._run(i.then if arrays[i.cond].reshape(-1)[0] else i.orelse, arrays, number)
            elif isinstance(i, While):
                self._run(i.cond_body, arrays, number)
                while arrays[i.cond].reshape(-1)[0]:
                    self._run(i.body, arrays, number)
                    self._run(i.cond_body, arrays, number)
            else:
                assert isinstance(i, Launch)
                self._launch(i, arrays, number)
                self._observe(i, arrays, number)

    def _observe(self, i: Launch, arrays: Mapping[str, Array], number: Callable[[Expr], int]) -> None:
        record = next(k for k in self.compiled.plan.kernels if k.name == i.kernel)
        for b, p in zip(i.buffers, record.buffers, strict=True):
            if p.access != "read" and self.observer is not None:
                v = self._values[b]
                shape, strides = [[number(e) for e in x] for x in (v.shape, v.strides)]
                self.observer(i, b, as_strided(arrays[b], shape, [s * arrays[b].itemsize for s in strides]))

    def _place(self, v: Value, inputs: Sequence[Array], arena: Array, shape: list[int], number: object) -> Array:
        kind, at = v.storage
        dtype = NUMPY_DTYPE[v.dtype]
        if kind == "input":
            assert isinstance(at, int)
            return self._as_declared(inputs[at], v, shape, number)
        if kind == "constant":
            return np.ascontiguousarray(self.constants[str(at)])
        if kind == "state":
            return self.states[str(at)]
        if kind == "output":
            nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            return self.memory.take(nbytes).view(dtype).reshape(shape)
        offset = number(at)  # type: ignore[operator]
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return arena[offset : offset + nbytes].view(dtype)

    def _as_declared(self, given: Array, v: Value, shape: list[int], number: object) -> Array:
        """The input copied into the strides that the contract asks for."""
        strides = [number(e) * given.itemsize for e in v.strides]  # type: ignore[operator]
        flat = self.memory.take(given.size * given.itemsize).view(given.dtype)
        np.copyto(as_strided(flat, shape, strides), given)
        return flat

    def _launch(self, launch: Launch, arrays: Mapping[str, Array], number: object) -> None:
        values = [number(e) for e in launch.ints]  # type: ignore[operator]
        stride = -(-number(launch.per_worker) // 64) * 64  # type: ignore[operator]
        scratch = Memory()
        shared, workers = scratch.take(number(launch.shared)), scratch.take(stride * 2)  # type: ignore[operator]
        code = self._call(launch.kernel, [arrays[b] for b in launch.buffers], values, shared, workers, stride)
        self.memory.check(launch.kernel)
        scratch.check(f"{launch.kernel} (workspace)")
        if code:
            raise KernelFailed(f"{launch.kernel} returned {code}")

    def _call(
        self, kernel: str, buffers: Sequence[Array], values: Sequence[int], shared: Array, workers: Array, stride: int
    ) -> int:
        """Runs a kernel on two workers and gives what it returns."""
        # what is empty has no address, as a tensor of torch's has none
        addresses = [a.ctypes.data if a.size else None for a in buffers]
        pointers = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        ints = (ctypes.c_int64 * max(1, len(values)))(*values)
        parallel = Parallel(None, _reversed_tasks, 2)
        args = KernelArgs(pointers, ints, ctypes.pointer(parallel), shared.ctypes.data, workers.ctypes.data, stride)
        return int(self.kernels[kernel](ctypes.byref(args)))  # type: ignore[operator]


GUARD = 256
"""Bytes on each side of every block that no kernel may change."""
FILL = 0xA5


class Memory:
    """Blocks of bytes that start at multiples of 64, filled so that reading the undefined shows, with guards around."""

    def __init__(self) -> None:
        self.blocks: list[tuple[Array, int, int]] = []

    def take(self, nbytes: int) -> Array:
        """A new block."""
        raw = np.full(nbytes + 2 * GUARD + 64, FILL, np.uint8)
        start = GUARD + -(raw.ctypes.data + GUARD) % 64
        self.blocks.append((raw, start, start + nbytes))
        return raw[start : start + nbytes]

    def check(self, writer: str) -> None:
        """KernelFailed if a guard has changed."""
        for raw, start, end in self.blocks:
            outside = np.concatenate((raw[:start], raw[end:]))
            changed = np.flatnonzero(outside != FILL)
            if len(changed):
                at = [int(c) - start if c < start else int(c) - start + (end - start) for c in changed[[0, -1]]]
                block = f"a block of {end - start} bytes"
                raise KernelFailed(f"{writer} wrote outside of {block}, at bytes {at[0]} to {at[1]}")
