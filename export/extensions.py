"""What users bring to an export: decompositions, lowerings and kernels of ops, and passes over the Graph.

An export has one `Extensions`, made for it and gone with it: nothing is registered anywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch._library.triton import triton_ops_to_kernels
from torch._ops import OpOverload, OpOverloadPacket

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.ir.kernel_code import KernelCode
from hardtack.exporter.errors import ExportError, InputSpecError, PluginError, SourceLine

TORCH_NAMESPACES = ("aten", "prims", "prim", "quantized_decomposed", "torchvision")
"""Of torch's own ops, which Hardtack converts or refuses; others are users' and other libraries'."""

Producer = tuple[str, str]
"""What the manifest says of it: a name and a version."""


Nbytes = int | Callable[..., Any]
"""Of a workspace: a number, or a function of the op's arguments, as lowerings get them, that gives a size."""


@dataclass(frozen=True)
class UserKernel:
    """A kernel of an op, and what it asks for. strided: names of arguments that may have any strides."""

    code: KernelCode
    strided: tuple[str, ...]
    workspace: Nbytes
    worker_workspace: Nbytes


@dataclass(frozen=True)
class CudaParameter:
    """A parameter of a CUDA kernel: its type in C++, and what it is passed, as "x.shape[0]"."""

    type: str
    passed: str


@dataclass(frozen=True)
class CudaUserKernel:
    """A CUDA kernel of an op, CUDA C++ with `function` in it. grid: blocks, block: threads of one, shared: bytes of its
    dynamic shared memory, workspace: bytes in global memory; numbers or functions of the op's arguments."""

    function: str
    source: str
    file: str
    parameters: tuple[CudaParameter, ...]
    grid: Any
    block: Any
    shared: Any
    workspace: Any
    strided: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        key = hashlib.sha256(f"{self.file}\0{self.source}".encode()).hexdigest()[:12]
        return f"{self.function} of {self.file} {key}"


@dataclass(frozen=True)
class Given:
    """A user's function for an op. what: "decomposition", "lowering", or "kernel", whose function is a UserKernel or
    a CudaUserKernel; by: who brought it, in words."""

    op: OpOverload
    what: str
    function: Any
    by: str
    producer: Producer

    def __str__(self) -> str:
        return f"the {self.what} of {self.op} of {self.by}"


@dataclass(frozen=True)
class UserPass:
    """A user's pass over the Graph: apply(graph, store) -> graph, which may put constants to the store."""

    name: str
    version: str
    apply: Callable[[Graph, ConstantStore], Graph]
    by: str
    producer: Producer

    def __str__(self) -> str:
        return f"the pass {self.name} {self.version} of {self.by}"


@dataclass(frozen=True)
class Contribution:
    """What a plug-in, or an argument, brings. by: who that is, in words; producer: of its functions for ops, None: each
    stands for itself, by the function's name."""

    by: str
    producer: Producer | None = None
    decompositions: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    lowerings: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    passes: tuple[UserPass, ...] = ()
    kernels: Mapping[Any, UserKernel] = field(default_factory=dict)
    cuda_kernels: Mapping[Any, CudaUserKernel] = field(default_factory=dict)


@dataclass(frozen=True)
class Extensions:
    """functions: the user's for each op, by its name as the conversion table has it. used: what had a part in the
    export so far, name -> version, for the manifest; called: the names of ops whose functions were called. gpus: all
    targets are GPUs, and functions of torch.library.triton_op stand for their ops. launching: the names of such ops in
    the program, and of those with CUDA kernels. cuda: the CUDA kernels, each in the place of what else its op has on
    GPUs."""

    functions: Mapping[str, Given] = field(default_factory=dict)
    passes: tuple[UserPass, ...] = ()
    used: dict[str, str] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    gpus: bool = False
    launching: set[str] = field(default_factory=set)
    cuda: Mapping[str, Given] = field(default_factory=dict)

    def for_gpus(self) -> Extensions:
        """The same for GPUs, noting into the same: without functions for ops that have Triton kernels, and with CUDA
        kernels for those that have them."""
        functions = {name: g for name, g in self.functions.items() if not is_triton_op(g.op)}
        return replace(self, functions={**functions, **self.cuda}, gpus=True)

    def of(self, what: str) -> dict[OpOverload, Given]:
        """The decompositions, the lowerings, or the kernels, by op."""
        return {g.op: g for g in self.functions.values() if g.what == what}

    def whole(self, name: str) -> Given | None:
        """The user's lowering or kernel of an op, by its name."""
        found = self.functions.get(name)
        return found if found is not None and found.what != "decomposition" else None

    def call(
        self,
        given: Given,
        where: SourceLine | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        first: tuple[Any, ...] = (),
        passing: tuple[type[Exception], ...] = (),
    ) -> Any:
        """What a user's function gives for the op's arguments, those that were left out with their defaults. first:
        what a lowering gets in front of them. PluginError for what it raises, but for exceptions of `passing`."""
        self.note(given)
        return self.tried(given, where, args, kwargs, first, passing)

    def note(self, given: Given) -> None:
        """It has a part in the export."""
        self.used.update([given.producer])
        self.called.add(str(given.op))

    def tried(
        self,
        given: Given,
        where: SourceLine | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        first: tuple[Any, ...] = (),
        passing: tuple[type[Exception], ...] = (),
    ) -> Any:
        """The same without a part in the export."""
        whole, named = with_defaults(given.op, args, kwargs)
        try:
            return given.function(*first, *whole, **named)
        except ExportError:
            raise
        except Exception as error:
            if isinstance(error, passing):
                raise
            raise PluginError(f"{given} raised {type(error).__name__}: {error}", where) from error


def with_defaults(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """All arguments of the op's schema: torch leaves out those that are as the schema has them."""
    whole, named = list(args), dict(kwargs)
    for stated in op._schema.arguments[len(args) :]:
        if stated.name in named:
            if not stated.kwarg_only:
                whole.append(named.pop(stated.name))
        elif stated.kwarg_only:
            named[stated.name] = _default(stated)
        else:
            whole.append(_default(stated))
    return whole, named


def _default(stated: Any) -> Any:
    """A default of a schema, which has dtypes as numbers."""
    value = stated.default_value
    return _DTYPES.get(value, value) if "ScalarType" in str(stated.real_type) and type(value) is int else value


_DTYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16,
    23: torch.float8_e5m2, 24: torch.float8_e4m3fn, 27: torch.uint16, 28: torch.uint32, 29: torch.uint64,
}  # fmt: skip
"""c10::ScalarType, as schemas have it."""


def extensions(contributions: Iterable[Contribution]) -> Extensions:
    """All of them as one. InputSpecError for an op that is none, for two functions of one op and for two passes of one
    name."""
    functions: dict[str, Given] = {}
    cuda: dict[str, Given] = {}
    passes: dict[str, UserPass] = {}
    for c in contributions:
        for what, into, given in (
            ("decomposition", functions, c.decompositions),
            ("lowering", functions, c.lowerings),
            ("kernel", functions, c.kernels),
            ("kernel", cuda, c.cuda_kernels),
        ):
            if not isinstance(given, Mapping):
                kind = type(given).__name__
                raise InputSpecError(f"the {what}s of {c.by} are a {kind}", fix="pass a dict of functions by op")
            for key, function in given.items():
                op = _op_of(key, c.by)
                _check(op, what, function, c.by)
                producer = c.producer or (f"{what} {op}", _path_of(function))
                _add(into, str(op), Given(op, what, function, c.by, producer))
        for p in c.passes:
            if p.name in passes:
                raise InputSpecError(f"{passes[p.name]} and {p} have one name", fix="leave one of them out")
            passes[p.name] = p
    return Extensions(functions, tuple(passes.values()), cuda=cuda)


def is_triton_op(op: object) -> bool:
    """True for an op of torch.library.triton_op."""
    return isinstance(op, OpOverload) and op._schema.name in triton_ops_to_kernels


def _check(op: OpOverload, what: str, function: Any, by: str) -> None:
    """InputSpecError for what cannot stand for the op."""
    if what == "kernel":
        _check_kernel(op, function, by)
    elif what == "lowering" and op._schema.is_mutable:
        raise InputSpecError(
            f"{by} has a lowering of {op}, which writes to its arguments",
            fix="give it a decomposition or a kernel, which may write in place",
        )
    elif not callable(function):
        raise InputSpecError(f"the {what} of {op} of {by} is a {type(function).__name__}, not a function")


def _check_kernel(op: OpOverload, kernel: UserKernel | CudaUserKernel, by: str) -> None:
    returns = op._schema.returns
    if any(r.alias_info is not None for r in returns):
        why = "gives an argument, or a view of one"
    elif any(str(r.type) != "Tensor" for r in returns):
        why = f"gives {', '.join(str(r.type) for r in returns)}, not tensors"
    elif isinstance(kernel, CudaUserKernel) and is_triton_op(op):
        why = "has Triton kernels already"
    elif not returns and not op._schema.is_mutable:
        why = "gives nothing, and writes to nothing"
    else:
        names = {a.name: a.alias_info is not None for a in op._schema.arguments}
        for name in kernel.strided:
            if names.get(name) is not False:
                what = "writes to" if name in names else "does not have"
                raise InputSpecError(f"the kernel of {op} of {by} takes any strides of {name}, which the op {what}")
        return
    raise InputSpecError(f"{by} has a kernel of {op}, which {why}", fix="give it a decomposition")


def _path_of(function: Any) -> str:
    if isinstance(function, UserKernel):
        return str(function.code)
    if isinstance(function, CudaUserKernel):
        return str(function)
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__name__)}"


def _add(functions: dict[str, Given], name: str, given: Given) -> None:
    other = functions.get(name)
    if other is not None:
        raise InputSpecError(f"there are two functions for one op: {other}, and {given}", fix="leave one of them out")
    functions[name] = given


def _op_of(key: Any, by: str) -> OpOverload:
    """The op that a key names: an overload, a packet with one overload, what torch.library.custom_op gives, or a name
    such as "mylib::op" or "mylib::op.overload"."""
    found = getattr(key, "_opoverload", key)
    if isinstance(key, str):
        found = _named(key)
    if isinstance(found, OpOverloadPacket):
        names = found.overloads()  # type: ignore[no-untyped-call]
        overloads = [o for o in names if not any(a.is_out for a in getattr(found, o)._schema.arguments)]
        if len(overloads) != 1:
            raise InputSpecError(
                f"{by} names the op {found}, which has the overloads {', '.join(overloads)}",
                fix=f'name one of them, as "{found}.{overloads[0]}"',
            )
        found = getattr(found, overloads[0])
    if not isinstance(found, OpOverload):
        raise InputSpecError(
            f"{by} has a function for {key!r}, which is no op that torch knows",
            fix='pass torch.ops.mylib.op, what torch.library.custom_op gave, or "mylib::op", and register the op first',
        )
    return found


def _named(key: str) -> Any:
    """The packet or overload of a name; the name for none."""
    space, colons, rest = key.partition("::")
    if not colons:
        space, _, rest = key.partition(".")
    name, _, overload = rest.partition(".")
    try:
        packet = getattr(getattr(torch.ops, space), name)
        return getattr(packet, overload) if overload else packet
    except (AttributeError, RuntimeError):
        return key
