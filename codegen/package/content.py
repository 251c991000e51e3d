"""BundleContent: everything that a bundle says, before it is bytes.

BundleContent ::= entries, targets, plans {(entry, target): Plan}, constants, states, producer, numerics, kernels,
                  debug, parameters, recipes, user_kernels
EntryContent  ::= name, syms, inputs, outputs, in_tree, out_tree       the contract, the same for every target
TargetContent ::= name ("cpu:x86-64-v4"), device, requires (CPU features), library (bytes of the shared object)
                | name ("cuda:sm_90"), device "cuda", requires ("sm_90",), no library: its plans name members kernels/
                | name ("hip:gfx942"), device "hip", requires ("gfx942",), likewise
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from hardtack.codegen.ir.constants import ConstantData, ModuleTensor, Recipe
from hardtack.codegen.ir.expr import Expr, Sym
from hardtack.codegen.ir.plan import Plan
from hardtack.codegen.ir.types import DType

Tree = Mapping[str, object]
"""A pytree as data: docs/package.md, last paragraph of "manifest.json". A const of type float is allowed here."""


@dataclass(frozen=True)
class TensorContent:
    """An input or output; `strides` in elements. complex: elements are complex numbers of parts of this dtype, which
    plans have as a last dimension of 2, and shape and strides have not. written: an input that runs write to."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    complex: bool = False
    written: bool = False


@dataclass(frozen=True)
class ComplexPorts:
    """What of an entry point is complex for its callers, where the graph has pairs: inputs and states by name, outputs
    by number."""

    inputs: frozenset[str] = frozenset()
    outputs: frozenset[int] = frozenset()
    states: frozenset[str] = frozenset()


@dataclass(frozen=True)
class EntryContent:
    """An entry point's contract. `in_tree` is a tuple of (args tuple, kwargs dict)."""

    name: str
    syms: tuple[Sym, ...]
    inputs: tuple[TensorContent, ...]
    outputs: tuple[TensorContent, ...]
    in_tree: Tree
    out_tree: Tree


@dataclass(frozen=True)
class TargetContent:
    """A target and its library, None without kernels of the CPU.

    `requires`: CPU features by the compilers' -m flags, or the one GPU architecture.
    """

    name: str
    device: str
    requires: tuple[str, ...]
    library: bytes | None = field(repr=False)

    @property
    def library_member(self) -> str | None:
        """Where the library lies in the bundle."""
        if self.library is None:
            return None
        return f"lib/{self.name.partition(':')[2] or self.name}.so"


@dataclass(frozen=True)
class StateContent:
    """A state that sessions keep. `init`: the name of the constant it starts from, or None for zeros. complex: as of a
    TensorContent; the constant has the parts as a last dimension."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    init: str | None
    complex: bool = False


@dataclass(frozen=True)
class UserKernelContent:
    """An op with a kernel of a user's. function: of the bundle's own code, or, `host`, of the program that loads it."""

    op: str
    function: str
    host: bool


@dataclass(frozen=True)
class BundleContent:
    """See the module's grammar. `targets` best first; `kernels` and `debug` map member names to their bytes; those of
    `kernels` are what `kernel_member` gives.

    parameters: the module's tensors that can be replaced, by name. recipes: how constants are made of them.
    user_kernels: in the order of their ops.
    """

    entries: tuple[EntryContent, ...]
    targets: tuple[TargetContent, ...]
    plans: Mapping[tuple[str, str], Plan]
    constants: tuple[tuple[str, ConstantData], ...]
    states: tuple[StateContent, ...] = ()
    producer: Mapping[str, str] = field(default_factory=dict)
    numerics: Mapping[str, str] = field(default_factory=dict)
    kernels: Mapping[str, bytes] = field(default_factory=dict)
    debug: Mapping[str, bytes] = field(default_factory=dict)
    parameters: Mapping[str, ModuleTensor] = field(default_factory=dict)
    recipes: Mapping[str, tuple[Recipe, ...]] = field(default_factory=dict)
    user_kernels: tuple[UserKernelContent, ...] = ()


def plan_member(entry: str, target: str) -> str:
    """The name of the member that holds a plan."""
    return f"plans/{entry}.{target}.json"


KERNEL_SUFFIX = {"cuda": ".cubin", "hip": ".hsaco"}
"""Kind of GPU -> how the members that hold its code end."""


def kernel_member(code: bytes, device: str = "cuda") -> str:
    """The name of the member that holds a GPU kernel's code: equal code lies there once."""
    return f"kernels/{hashlib.sha256(code).hexdigest()[:32]}{KERNEL_SUFFIX[device]}"
