"""Where a kernel comes from that Hardtack did not write, and the arguments of ops that have one.

    Code       ::= KernelCode(function, source, file)             C++ for CPUs, or a function of the program
                 | TritonCode(function, text, file, parameters, constexprs, num_warps, num_stages, num_ctas, options)
                 | CudaCode(function, source, file, parameters, threads, shared_nbytes)
    Argument   ::= ("none",) | ("tensor", k) | ("pairs", k) | ("int", int or Expr) | ("float", float) | ("bool", bool)
                 | ("text", str) | ("dtype", DType) | ("list", (Argument, ...)) | ("result", j)

k counts the op's operands, in their order. Of pairs the op has a complex tensor, and the kernel its parts as a last
dimension of 2; results of the op that are complex are pairs, too. Arguments of C++ stand in the order of the op's
schema in torch. Those of Triton and of CUDA C++ are one a parameter: tensors, ints, floats, and results: the op's j-th
one, which is written without being read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from hardtack.codegen.ir.types import DType

Argument = tuple[Any, ...]
ARGUMENT_KINDS = ("none", "tensor", "pairs", "int", "float", "bool", "text", "dtype", "list")
TRITON_KINDS = ("tensor", "int", "float", "result")
TRITON_POINTERS = {
    DType.F32: "*fp32", DType.F64: "*fp64", DType.F16: "*fp16", DType.BF16: "*bf16", DType.F8E4M3: "*fp8e4nv",
    DType.F8E5M2: "*fp8e5", DType.F8E8M0: "*u8", DType.I8: "*i8", DType.I16: "*i16", DType.I32: "*i32",
    DType.I64: "*i64", DType.U8: "*u8", DType.U16: "*u16", DType.U32: "*u32", DType.BOOL: "*u1",
}  # fmt: skip
"""What Triton takes a tensor of torch for."""
CUDA_POINTERS = {
    DType.F32: "float", DType.F64: "double", DType.F16: "ht_half", DType.BF16: "ht_bfloat16", DType.F8E4M3: "uint8_t",
    DType.F8E5M2: "uint8_t", DType.F8E8M0: "uint8_t", DType.I8: "int8_t", DType.I16: "int16_t", DType.I32: "int32_t",
    DType.I64: "int64_t", DType.U8: "uint8_t", DType.U16: "uint16_t", DType.U32: "uint32_t", DType.BOOL: "bool",
}  # fmt: skip
"""As what CUDA C++ has an element of a tensor (templates/cuda/cuda_kernel.h)."""
CUDA_NUMBERS = {"int32_t": "i32", "int64_t": "i64", "float": "fp32", "double": "fp64"}
"""The types of C++ in which CUDA kernels take numbers, as launches have them."""


@dataclass(frozen=True)
class KernelCode:
    """A user's kernel (hardtack/kernel.h): C++ text with a function in it. file: what messages call the text. Without a
    text the program that loads the bundle registers the function."""

    function: str
    source: str | None = None
    file: str = ""

    @property
    def host(self) -> bool:
        """Whether the program that loads the bundle has it."""
        return self.source is None

    @property
    def key(self) -> str:
        """The hash of the text and of its name, which is in its messages."""
        return hashlib.sha256(f"{self.file}\0{self.source}".encode()).hexdigest()[:12]

    def __str__(self) -> str:
        return f"{self.function} of the program" if self.host else f"{self.function} of {self.file} {self.key}"


@dataclass(frozen=True)
class TritonParameter:
    """A parameter of a Triton kernel that is no constexpr. type: the one that the kernel asks for, "" for that of what
    is passed. specialised: what is known of a number, that it is 1 or a multiple of 16, may decide the code; aligned:
    that it is a multiple of 16."""

    name: str
    type: str = ""
    specialised: bool = True
    aligned: bool = True


@dataclass(frozen=True)
class TritonType:
    """A type of Triton as the value of a constexpr, by Triton's name for it: fp32."""

    name: str


Constexpr = bool | int | float | str | TritonType | None


class DeviceCode:
    """What users' kernels for GPUs have in common: classes of frozen data."""

    function: str
    file: str
    host: ClassVar[bool] = False

    @property
    def key(self) -> str:
        """The hash of all that decides what is computed."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    def __str__(self) -> str:
        return f"{self.function} of {self.file} {self.key}"


@dataclass(frozen=True)
class TritonCode(DeviceCode):
    """A user's Triton kernel: a module's text with the function in it, whose head is `def NAME(` in its place.

    constexprs: the values of its other parameters, by name. options: of Triton's compiler, by name. file: what messages
    call the text. configs: how many the kernel had to choose from, of which this is the first.
    """

    function: str
    text: str
    file: str
    parameters: tuple[TritonParameter, ...]
    constexprs: tuple[tuple[str, Constexpr], ...]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    options: tuple[tuple[str, object], ...] = ()
    configs: int = 1


@dataclass(frozen=True)
class CudaCode(DeviceCode):
    """A user's CUDA C++ with a function extern "C" __global__ in it. file: what messages call the text. parameters: the
    function's, by their types in C++. threads: of a block; shared_nbytes: its dynamic shared memory."""

    function: str
    source: str
    file: str
    parameters: tuple[str, ...]
    threads: int
    shared_nbytes: int = 0


Code = KernelCode | TritonCode | CudaCode


def tensors_in(arguments: tuple[Argument, ...]) -> Iterator[int]:
    """The operands that stand in the arguments, in order."""
    for kind, *rest in arguments:
        if kind in ("tensor", "pairs"):
            yield rest[0]
        elif kind == "list":
            yield from tensors_in(rest[0])
