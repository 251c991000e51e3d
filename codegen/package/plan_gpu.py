"""What holds for the kernels and launches of a CUDA or HIP target: docs/plan.md, "GPU kernels"."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import NoReturn

from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.plan_read import RawGpu, RawInstr, RawKernel, RawMapSource, RawPlan

Known = Callable[[int], int | None]
Range = tuple[int | None, int | None]
MAX_THREADS = 1024
MAX_SCRATCH_NBYTES = 2**31 - 1
MAX_SCRATCH_ALIGN = 256
MAX_ARGS_NBYTES = 4096
GRID_LIMITS = (2**31 - 1, 65535, 65535)
MAX_MAP_RANK = 5


@dataclass(frozen=True)
class Limits:
    """Of a kind of GPU. grid_threads: of all programs in x together; maps: whether there are tensor maps."""

    suffix: str
    warp_size: int
    shared_nbytes: int
    cluster: int
    maps: bool
    dependent: bool
    grid_threads: int


LIMITS = {
    "cuda": Limits(".cubin", 32, 232448, 16, True, True, 2**62),
    "hip": Limits(".hsaco", 64, 65536, 1, False, False, 2**32 - 1),
}
_MEMBER = re.compile(r"kernels/[0-9a-f]{32}(\.[a-z]+)\Z")
_FUNCTION = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,1023}\Z")
_SIZES = {"buffer": 8, "status": 8, "site": 4, "scratch": 8, "null": 8, "map": 128, "map_shape": 4, "map_stride": 8}


def arg_nbytes(arg: tuple[str, int, int]) -> int:
    """How wide a .param is; a tensor map is aligned to 64 bytes, everything else to its width."""
    return arg[2] if arg[0] == "int" else _SIZES[arg[0]]


def args_nbytes(args: Sequence[tuple[str, int, int]]) -> int:
    """The size of a kernel's parameters, each at the next multiple of its alignment."""
    total = 0
    for arg in args:
        size = arg_nbytes(arg)
        total = -(-total // min(size, 64)) * min(size, 64) + size
    return total


def check_gpu(
    plan: RawPlan, device: str, members: Container[str], ranges: Sequence[Range], constant: Known, nbytes: Known
) -> None:
    """Proves kernels and launches of a plan whose target is for `device`. Raises LoadError."""
    limits = LIMITS.get(device)
    for kernel in plan.kernels:
        if (kernel.gpu is not None) != (limits is not None):
            has = "has" if kernel.gpu is not None else "lacks"
            raise LoadError(f"kernel {kernel.name!r} {has} the record of a GPU kernel; it is for {device}", plan.where)
        if kernel.gpu is not None and limits is not None:
            _check_kernel(plan, kernel, kernel.gpu, limits, members)
    for i in plan.instructions():
        if i.op != "launch":
            continue
        kernel = plan.kernels[i.kernel]
        if bool(i.grid) != (kernel.gpu is not None):
            has = "has" if i.grid else "lacks"
            raise LoadError(f"{i.path}: {has} a grid, against its kernel {kernel.name!r}", plan.where)
        if kernel.gpu is not None and limits is not None:
            _check_grid(plan, i, kernel, kernel.gpu, limits, ranges)
            _check_maps(plan, i, kernel, kernel.gpu, constant, nbytes)


def _check_kernel(plan: RawPlan, kernel: RawKernel, g: RawGpu, limits: Limits, members: Container[str]) -> None:
    def refuse(problem: str) -> NoReturn:
        raise LoadError(f"kernel {kernel.name!r}: {problem}", plan.where)

    named = _MEMBER.match(g.member)
    if named is None or named[1] != limits.suffix or g.member not in members:
        refuse(f"its code {g.member!r} is not a listed member kernels/<32 hex digits>{limits.suffix}")
    if not _FUNCTION.match(g.function):
        refuse(f"{g.function!r} names no function")
    if not limits.warp_size <= g.threads <= MAX_THREADS or g.threads % limits.warp_size:
        refuse(f"{g.threads} threads; it must be a multiple of {limits.warp_size} up to {MAX_THREADS}")
    if g.shared_nbytes > limits.shared_nbytes:
        refuse(f"{g.shared_nbytes} bytes of shared memory; the limit is {limits.shared_nbytes}")
    if not 1 <= g.cluster <= limits.cluster:
        refuse(f"clusters of {g.cluster}; it must be 1 to {limits.cluster}")
    if g.dependent and not limits.dependent:
        refuse("it is launched dependently, which only CUDA has")
    if g.maps and not limits.maps:
        refuse("it has tensor maps, which only CUDA has")
    align = g.scratch_align
    if g.scratch_nbytes > MAX_SCRATCH_NBYTES or not 1 <= align <= MAX_SCRATCH_ALIGN or align & (align - 1):
        refuse(f"scratch of {g.scratch_nbytes} bytes aligned to {align}")
    if args_nbytes(g.args) > MAX_ARGS_NBYTES:
        refuse(f"{args_nbytes(g.args)} bytes of parameters; the limit is {MAX_ARGS_NBYTES}")
    for m, tensor_map in enumerate(g.maps):
        if not 1 <= len(tensor_map.block) <= MAX_MAP_RANK:
            refuse(f"tensor map {m} has {len(tensor_map.block)} dimensions; it must be 1 to {MAX_MAP_RANK}")
    for n, (kind, a, b) in enumerate(g.args):
        count = {"buffer": len(kernel.buffers), "int": kernel.num_ints}.get(kind, len(g.maps))
        if kind not in ("status", "site", "scratch", "null") and a >= count:
            what = {"buffer": "buffer", "int": "int"}.get(kind, "tensor map")
            refuse(f"args[{n}] is {what} {a}; there are {count}")
        if kind in ("map_shape", "map_stride") and b >= len(g.maps[a].block):
            refuse(f"args[{n}] is dimension {b} of tensor map {a}, which has {len(g.maps[a].block)}")


def _check_grid(
    plan: RawPlan, i: RawInstr, kernel: RawKernel, g: RawGpu, limits: Limits, ranges: Sequence[Range]
) -> None:
    for axis, e in enumerate(i.grid):
        lo, hi = ranges[e]
        limit = GRID_LIMITS[axis]
        if axis == 0:
            limit = min(limit, limits.grid_threads // g.threads) // g.cluster
        if (hi is not None and hi < 0) or (lo is not None and lo > limit):
            extent = hi if hi is not None and hi < 0 else lo
            problem = f"{extent} programs in dimension {axis} of kernel {kernel.name!r}; it must be 0 to {limit}"
            raise LoadError(f"{i.path}: {problem}", plan.where)


def _check_maps(plan: RawPlan, i: RawInstr, kernel: RawKernel, g: RawGpu, constant: Known, nbytes: Known) -> None:
    if len(i.maps) != len(g.maps):
        problem = f"{len(i.maps)} tensor maps for kernel {kernel.name!r}, which takes {len(g.maps)}"
        raise LoadError(f"{i.path}: {problem}", plan.where)
    for n, (source, fixed) in enumerate(zip(i.maps, g.maps, strict=True)):
        where = f"{i.path}.maps[{n}]"
        rank = len(fixed.block)
        if source.buffer >= len(i.buffers) or (len(source.shape), len(source.strides)) != (rank, rank):
            raise LoadError(f"{where}: its buffer or its {rank} dimensions do not exist", plan.where)
        value = plan.values[i.buffers[source.buffer]]
        if value.dtype is not fixed.dtype:
            raise LoadError(f"{where}: value {value.name!r} is {value.dtype}, not {fixed.dtype}", plan.where)
        misfit = _map_problem(source, value.dtype.nbytes, constant, nbytes(i.buffers[source.buffer]))
        if misfit:
            raise LoadError(f"{where}: {misfit}", plan.where)


def _map_problem(source: RawMapSource, itemsize: int, constant: Known, nbytes: int | None) -> str | None:
    """Why the hardware or the value cannot take the map, as far as its numbers are known; None: nothing is wrong."""
    offset = constant(source.offset)
    shape, strides = [constant(e) for e in source.shape], [constant(e) for e in source.strides]
    if offset is None or nbytes is None or None in shape or None in strides:
        return None
    sizes, steps = [n for n in shape if n is not None], [s for s in strides if s is not None]
    if offset < 0 or offset * itemsize % 16:
        return f"its offset of {offset} elements is not a multiple of 16 bytes"
    if any(not 0 <= n <= 2**32 - 1 for n in sizes):
        return f"its shape {sizes} is not within 0 to 2^32-1"
    if steps[-1] != 1 or any(s <= 0 or s * itemsize % 16 or s * itemsize >= 2**40 for s in steps[:-1]):
        return f"its strides {steps} do not end in 1 or are not multiples of 16 bytes"
    if 0 in sizes:
        return None
    reach = (offset + sum((n - 1) * s for n, s in zip(sizes, steps, strict=True)) + 1) * itemsize
    return f"it ends at byte {reach} of a value of {nbytes}" if reach > nbytes else None
