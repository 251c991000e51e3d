"""Launches of users' Triton kernels as ops of torch: one op for each kernel with its constants, opaque and functional.

    launch_of(given: Tensor[], sizes: SymInt[]) -> Tensor[]

given: the memory that the kernel is passed, each once, as row-major tensors; sizes: the numbers among its arguments,
then the grid; the results are what becomes of the memory that the kernel writes to. A call of a kernel while a model is
traced becomes a call of its op, and copies of what that gives to the tensors that were written. Ops have nothing of any
export: they stay where torch keeps ops, and are named by their content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Node

from hardtack.codegen.ir.kernel_code import Argument, Constexpr, TritonCode, TritonParameter, TritonType
from hardtack.exporter.errors import CaptureError, SourceLine
from hardtack.exporter.memory import is_same_part, may_overlap
from hardtack.exporter.origin import calling_line, portable
from hardtack.exporter.sizes.strides import example_size, is_dense
from hardtack.exporter.triton_calls.kernel_text import file_of, is_jitted, module_text
from hardtack.exporter.triton_calls.written_tensors import written_tensors

NAMESPACE = "hardtack_triton"
_LIBRARIES: list[torch.library.Library] = []  # what they define goes with them
_LAUNCHES: dict[str, LaunchOp] = {}


@dataclass(frozen=True)
class LaunchOp:
    """arguments: one for each parameter of code; ("int", j) is the j-th size. written: of the given memory."""

    code: TritonCode
    arguments: tuple[Argument, ...]
    written: tuple[int, ...]


EMPTY = frozenset(
    f"aten.{name}"
    for name in (
        "empty.memory_format", "empty_like.default", "empty_permuted.default", "empty_strided.default",
        "new_empty.default", "new_empty_strided.default",
    )
)  # fmt: skip
"""Ops that give memory without content."""


def is_empty(node: Any) -> bool:
    """True for a node of a program without writes that has no content: what a kernel writes to it, is all there is."""
    while isinstance(node, Node) and str(node.target) == "aten.permute.default":
        node = node.args[0]
    return isinstance(node, Node) and str(node.target) in EMPTY


def launch_of(op: object) -> LaunchOp | None:
    """What an op launches; None for any other op."""
    return _LAUNCHES.get(str(op)) if isinstance(op, OpOverload) else None


def call_kernel(kernel: Any, given: Mapping[str, Any], grids: Sequence[Sequence[Any]]) -> None:
    """Trace a call of a kernel by torch's own terms: an Autotuner, or a function of triton.jit, a value for each of its
    parameters, and a grid for each of its configs, of which the first is taken.

    CaptureError for what a launch cannot have.
    """
    where = calling_line()
    configs = getattr(kernel, "configs", None)
    config = configs[0] if configs else None
    function = kernel if config is None else kernel.fn
    assert is_jitted(function)
    values = _values(function, {**given, **({} if config is None else config.kwargs)}, where)
    text, functions = module_text(function)
    call = _Call(function, where)
    for p in function.params:
        call.keep_constant(p, values[p.name])
    written = written_tensors(function, functions, values, where)
    for p in function.params:
        if p.name not in call.constexprs:
            call.take(p, values[p.name], p.name in written)
    call.check_overlaps()
    call.sizes += [_size(x, f"its grid has a {type(x).__name__}", function, where) for x in grids[0]]
    code = TritonCode(
        function.__name__,
        text,
        portable(file_of(function)),
        tuple(call.parameters),
        tuple(call.constexprs.items()),
        *_shape(config),
        options=_options(config),
        configs=len(configs or (1,)),
    )
    op = op_of(LaunchOp(code, tuple(call.arguments), tuple(sorted(call.written))))
    made = op(call.memory, call.sizes)
    for k, new in zip(sorted(call.written), made, strict=True):
        order = call.orders[k]
        call.originals[k].copy_(_permuted(new, tuple(order.index(d) for d in range(len(order)))))


class _Call:
    """What a launch passes. memory: the tensors, row-major; originals: as the kernel was given them; orders: their
    dimensions from the outermost to the innermost."""

    def __init__(self, function: Any, where: SourceLine | None) -> None:
        self.function, self.where = function, where
        self.parameters: list[TritonParameter] = []
        self.arguments: list[Argument] = []
        self.constexprs: dict[str, Constexpr] = {}
        self.memory: list[Tensor] = []
        self.originals: list[Tensor] = []
        self.orders: list[tuple[int, ...]] = []
        self.written: set[int] = set()
        self.sizes: list[Any] = []

    def keep_constant(self, p: Any, value: Any) -> None:
        """A parameter that is a constexpr: as it says, or by what it is passed."""
        if p.is_constexpr or value is None or isinstance(value, bool):
            self.constexprs[p.name] = self._constexpr(p.name, value)

    def take(self, p: Any, value: Any, written: bool) -> None:
        """Any other one."""
        self.arguments.append(self._argument(p.name, value, written))
        self.parameters.append(
            TritonParameter(
                p.name,
                str(p.annotation_type or ""),
                not p.do_not_specialize,
                not p.do_not_specialize_on_alignment,
            )
        )

    def _argument(self, name: str, value: Any, written: bool) -> Argument:
        if isinstance(value, Tensor):
            k = self._place(name, value)
            if written:
                self.written.add(k)
            return ("tensor", k)
        if isinstance(value, float):
            return ("float", value)
        self.sizes.append(_size(value, f"its argument {name} is a {type(value).__name__}", self.function, self.where))
        return ("int", len(self.sizes) - 1)

    def _constexpr(self, name: str, value: Any) -> Constexpr:
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise self.refusal(
                f"its constexpr {name} depends on a dynamic size, and there is one kernel for all sizes",
                "pass a number that holds for all of them, or leave the dimension static",
            )
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if type(value).__name__ == "dtype" and type(value).__module__.startswith("triton."):
            return TritonType(str(value.name))
        raise self.refusal(
            f"its constexpr {name} is a {type(value).__name__}", "pass a number, a text or a type of Triton"
        )

    def _place(self, name: str, value: Tensor) -> int:
        """Which of the memory a tensor is: what is passed twice is one, and what overlaps otherwise is refused."""
        order = self._order(name, value)
        for k, other in enumerate(self.originals):
            if is_same_part(value, other):
                return k
        self.memory.append(_permuted(value, order))
        self.originals.append(value)
        self.orders.append(order)
        return len(self.memory) - 1

    def _order(self, name: str, value: Tensor) -> tuple[int, ...]:
        """The dimensions from the outermost to the innermost of a tensor without gaps."""
        found = dense_order(value)
        if found is not None:
            return found
        strides = ", ".join(map(str, value.stride()))
        raise self.refusal(
            f"its argument {name} has the strides ({strides}) of a part of a tensor, or of a broadcast one",
            "pass x.contiguous(), with that one's strides",
        )

    def refusal(self, what: str, fix: str) -> CaptureError:
        return CaptureError(f"the Triton kernel {self.function.__name__} cannot be launched: {what}", self.where, fix)

    def check_overlaps(self) -> None:
        """CaptureError where what the kernel writes to shares memory with something else that it is passed."""
        for k in sorted(self.written):
            for j, other in enumerate(self.originals):
                if j != k and may_overlap(other, self.originals[k]):
                    raise self.refusal(
                        "it writes to a tensor that shares memory with another argument", "pass a clone of one of them"
                    )


def _permuted(t: Tensor, order: tuple[int, ...]) -> Tensor:
    return t if order == tuple(range(t.dim())) else t.permute(order)


def dense_order(t: Tensor) -> tuple[int, ...] | None:
    """The dimensions of a tensor without gaps, from the outermost to the innermost; None for one with gaps."""
    plain = tuple(range(t.dim()))
    by_stride = tuple(sorted(plain, key=lambda d: -(example_size(t.stride()[d]) or 0)))
    return next((order for order in (plain, by_stride) if is_dense(t, order)), None)


def _size(value: Any, what: str, function: Any, where: SourceLine | None) -> Any:
    if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
        return value
    raise CaptureError(
        f"the Triton kernel {function.__name__} cannot be launched: {what}, which is no size",
        where,
        "pass tensors, sizes and numbers; what the values of tensors decide is no argument and no grid",
    )


def _values(function: Any, given: Mapping[str, Any], where: SourceLine | None) -> dict[str, Any]:
    """A value for each parameter, those with defaults too."""
    found: dict[str, Any] = {}
    for p in function.params:
        if p.name in given:
            value = given[p.name]
            found[p.name] = value.value if type(value).__name__ == "constexpr" else value
        elif p.has_default:
            found[p.name] = p.default
        else:
            raise CaptureError(f"the Triton kernel {function.__name__} is called without its argument {p.name}", where)
    unknown = sorted(given.keys() - found.keys())
    if unknown:
        raise CaptureError(
            f"the Triton kernel {function.__name__} is called with {', '.join(unknown)}, which it does not have", where
        )
    return found


def _shape(config: Any) -> tuple[int, int, int]:
    """num_warps, num_stages and num_ctas: Triton's own without a config."""
    if config is None:
        return 4, 3, 1
    return int(config.num_warps), int(config.num_stages), int(config.num_ctas)


def _options(config: Any) -> tuple[tuple[str, object], ...]:
    maxnreg = getattr(config, "maxnreg", None)
    return () if maxnreg is None else (("maxnreg", int(maxnreg)),)


def op_of(launch: LaunchOp) -> OpOverload:
    """The op of a launch, defined where it is new."""
    content = hashlib.sha256(repr(launch).encode()).hexdigest()[:12]
    name = f"{launch.code.function}_{content}"
    packet = getattr(torch.ops, NAMESPACE)
    full = f"{NAMESPACE}.{name}.default"
    if full not in _LAUNCHES:
        library: Any = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
        library.define(f"{name}(Tensor[] given, SymInt[] sizes) -> Tensor[]")
        library.impl(name, _running(launch), "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", _stating(launch), lib=library)
        _LIBRARIES.append(library)
        _LAUNCHES[full] = launch
    found = getattr(packet, name).default
    assert isinstance(found, OpOverload)
    return found


def _stating(launch: LaunchOp) -> Any:
    def state(given: list[Tensor], sizes: list[Any]) -> list[Tensor]:
        return [given[k].new_empty(given[k].shape) for k in launch.written]

    return state


def _running(launch: LaunchOp) -> Any:
    def run(given: list[Tensor], sizes: list[int]) -> list[Tensor]:
        raise RuntimeError(
            f"the Triton kernel {launch.code.function} runs on GPUs, in a bundle or in its own model: there is no "
            "function of it that eager PyTorch could run by itself"
        )

    return run
