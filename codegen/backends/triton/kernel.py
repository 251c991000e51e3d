"""TritonKernel: one rendered GPU kernel, and how its arguments and grid follow from the launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from hardtack.codegen.ir.expr import Expr, const
from hardtack.codegen.ir.graph import Origin
from hardtack.codegen.ir.kernel_code import CudaCode
from hardtack.codegen.ir.nests import Template, TemplateNest
from hardtack.codegen.ir.plan import MapSource
from hardtack.codegen.ir.schedule import Kernel

T = TypeVar("T", bound=Template)

ONE_PROGRAM: tuple[Expr, Expr, Expr] = (const(1), const(1), const(1))


@dataclass(frozen=True)
class Argument:
    """One parameter of the kernel's function, constexprs aside.

    type: "*bf16", "i32", "i64", "fp32" or "fp64", whose bits an int passes, or a tensor descriptor
    "tensordesc<bf16[128, 64]>". role: ("buffer", p), ("int", p), ("status",), ("site",) or ("map", m). divisible: it is
    known to be a multiple of 16 (buffers always are).
    """

    name: str
    type: str
    role: tuple[object, ...]
    divisible: bool = False


@dataclass(frozen=True)
class TritonKernel:
    """See the module's docstring.

    name: readable stem. text: a module with one @triton.jit function called NAME (helpers in front of it aside).
    arguments: the function's parameters in order, then `constexprs` by keyword. num_warps counts those of the tile,
    before warp specialisation adds its own; dependent: launched with the programmatic-dependent-launch attribute.
    whole: the text is a user's module, and nothing is put in front of it. cuda: it is a user's CUDA C++, with the types
    of its arguments in C++, which NVRTC compiles (cuda_compile.py).
    grid counts programs, without the factor num_ctas. buffers: the launch's, by role ("buffer", p); ints: likewise.
    """

    name: str
    text: str
    arguments: tuple[Argument, ...]
    constexprs: Mapping[str, object]
    buffers: tuple[str, ...]
    writes: frozenset[str]
    reads: frozenset[str]
    ints: tuple[Expr, ...]
    grid: tuple[Expr, Expr, Expr]
    origin: Origin
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    dependent: bool = False
    maps: tuple[MapSource, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    whole: bool = False
    cuda: CudaCode | None = None


def anchored(kernel: Kernel, what: type[T]) -> tuple[TemplateNest, T]:
    """The template that a kernel is made of, and its parameters."""
    assert kernel.anchor is not None
    assert isinstance(kernel.anchor.template, what)
    return kernel.anchor, kernel.anchor.template
