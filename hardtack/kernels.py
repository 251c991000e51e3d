"""Kernels that an export can be given for ops of one's own (docs/extending.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ABI = 1
"""The version of hardtack/kernel.h, HT_CALL_ABI_VERSION. A kernel for a later one is refused."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HOST_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,255}")
_PARAMETER = re.compile(r"(const )?([a-z][a-z0-9_]*) ?(\*)? ?([A-Za-z_]\w*(?:\[\d+\])?(?:\.\w+(?:\[\d+\])?)?)")
_DATES = re.compile(r"\b__(?:DATE|TIME|TIMESTAMP)__\b")
Nbytes = int | Callable[..., Any]
CUDA_ABI = 1
"""The version of hardtack/cuda_kernel.h, HT_CUDA_ABI_VERSION, and of how a CudaKernel is passed its arguments."""


@dataclass(frozen=True)
class CppKernel:
    """C++ text with a function that computes an op on CPUs, compiled into the bundle for each CPU target.

    function: its name, int32_t function(const ht_kernel_call*) of hardtack/kernel.h. source: the text, or path: the
    file that has it, read now. strided: names of tensor arguments that it takes with any strides; all others are
    row-major, copied where they are not. workspace: bytes that it needs besides, and worker_workspace: for each thread;
    a number, or a function of the op's arguments as lowerings get them that gives one, or a size made of theirs. abi:
    the version of hardtack/kernel.h that it was written for.
    """

    function: str
    source: str | None = None
    path: str | os.PathLike[str] | None = None
    strided: tuple[str, ...] = ()
    workspace: Nbytes = 0
    worker_workspace: Nbytes = 0
    abi: int = ABI
    text: str = field(init=False, repr=False)
    file: str = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.function, str) or not _IDENTIFIER.fullmatch(self.function):
            raise ValueError(f"CppKernel.function is {self.function!r}; it must be the name of a C++ function")
        if (self.source is None) is (self.path is None):
            raise ValueError(f"CppKernel of {self.function} has {_both(self.source)}; give one of source and path")
        _check(self, self.function)
        object.__setattr__(self, "strided", tuple(self.strided))
        object.__setattr__(self, "text", _text(self))
        object.__setattr__(self, "file", f"{self.function}.cpp" if self.path is None else Path(self.path).name)


def _text(kernel: CppKernel | CudaKernel) -> str:
    """The text that was given, or that of the file."""
    if kernel.path is None:
        return str(kernel.source)
    try:
        return Path(kernel.path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        what = type(kernel).__name__
        raise ValueError(f"{what}.path of {kernel.function} cannot be read: {kernel.path}: {why}") from error


def _both(source: str | None) -> str:
    return "neither source nor path" if source is None else "both source and path"


@dataclass(frozen=True)
class HostKernel:
    """A function of the program that loads the bundle computes an op on CPUs: it registers it by this name before
    (ht_register_op, hardtack.register_op). Fields as of CppKernel."""

    name: str
    strided: tuple[str, ...] = ()
    workspace: Nbytes = 0
    worker_workspace: Nbytes = 0
    abi: int = ABI

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _HOST_NAME.fullmatch(self.name):
            raise ValueError(f"HostKernel.name is {self.name!r}; it must be 1 to 255 of A-Z a-z 0-9 . _ : / -")
        _check(self, self.name)
        object.__setattr__(self, "strided", tuple(self.strided))


@dataclass(frozen=True)
class CudaKernel:
    """CUDA C++ with a kernel that computes an op on NVIDIA's GPUs, compiled into the bundle for each CUDA target.

    function: its name, extern "C" __global__ void. source: the text, or path: the file that has it, read now.
    arguments: one text for each parameter of the function, in order: its type in C++, and what it is passed, as
    "const float* x", "float* result", "int64_t x.numel", "int32_t x.shape[0]", "int64_t x.stride[0]", "float scale" and
    "uint8_t* workspace". Tensors are row-major. grid: blocks in x, y and z, block: threads of a block, a multiple of
    32, shared: bytes of its dynamic shared memory, workspace: bytes of memory for the launch; each a number, or a
    function of the op's arguments as lowerings get them that gives one, or a size made of theirs; grid may be a tuple
    of up to three, block and shared are the same for all sizes. abi: the version of this that it was written for.
    """

    function: str
    source: str | None = None
    path: str | os.PathLike[str] | None = None
    arguments: tuple[str, ...] = field(kw_only=True)
    grid: Any = field(kw_only=True)
    block: Any = field(kw_only=True)
    shared: Nbytes = field(default=0, kw_only=True)
    workspace: Nbytes = field(default=0, kw_only=True)
    abi: int = field(default=CUDA_ABI, kw_only=True)
    text: str = field(init=False, repr=False)
    file: str = field(init=False)
    parameters: tuple[tuple[str, str], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.function, str) or not _IDENTIFIER.fullmatch(self.function):
            raise ValueError(f"CudaKernel.function is {self.function!r}; it must be the name of a function")
        if (self.source is None) is (self.path is None):
            raise ValueError(f"CudaKernel of {self.function} has {_both(self.source)}; give one of source and path")
        if not isinstance(self.abi, int) or not 1 <= self.abi <= CUDA_ABI:
            raise ValueError(
                f"the kernel {self.function} is written for version {self.abi} of hardtack/cuda_kernel.h, and this "
                f"Hardtack has {CUDA_ABI}: use a kernel for it, or a newer Hardtack"
            )
        for name in ("block", "shared", "workspace"):
            size = getattr(self, name)
            if not callable(size) and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
                raise ValueError(f"CudaKernel.{name} of {self.function} is {size!r}; it must be a number or a function")
        object.__setattr__(self, "text", _text(self))
        object.__setattr__(self, "file", f"{self.function}.cu" if self.path is None else Path(self.path).name)
        object.__setattr__(self, "parameters", tuple(map(self._parameter, self.arguments)))
        named = _DATES.search(self.text)
        if named is not None:
            raise ValueError(
                f"{self.file} names {named[0]}: a kernel of one text is one kernel, whenever it is compiled"
            )

    def _parameter(self, text: str) -> tuple[str, str]:
        """The type, and what is passed."""
        found = _PARAMETER.fullmatch(text) if isinstance(text, str) else None
        if found is None or (found[1] and not found[3]):
            raise ValueError(
                f"CudaKernel.arguments of {self.function} has {text!r}; each must be a type and what is passed, as "
                '"const float* x" or "int64_t x.shape[0]"'
            )
        return f"{found[1] or ''}{found[2]}{found[3] or ''}", found[4]


Kernel = CppKernel | HostKernel | CudaKernel


def _check(kernel: CppKernel | HostKernel, name: str) -> None:
    """ValueError for names of arguments that are none, workspaces that are no sizes, and for a version that this
    Hardtack does not have."""
    what, strided, abi = type(kernel).__name__, kernel.strided, kernel.abi
    if not isinstance(strided, (tuple, list)) or not all(isinstance(x, str) for x in strided):
        raise ValueError(f"{what}.strided of {name} is {strided!r}; it must be a tuple of names of arguments")
    if not isinstance(abi, int) or not 1 <= abi <= ABI:
        raise ValueError(
            f"the kernel {name} is written for version {abi} of hardtack/kernel.h, and this Hardtack has {ABI}: use a "
            "kernel for it, or a newer Hardtack"
        )
    for field_, size in (("workspace", kernel.workspace), ("worker_workspace", kernel.worker_workspace)):
        if not callable(size) and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
            raise ValueError(f"{what}.{field_} of {name} is {size!r}; it must be bytes, or a function")
