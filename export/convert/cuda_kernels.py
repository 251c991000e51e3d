"""Ops with users' CUDA kernels: a Graph op `custom` with an argument for each parameter of the kernel, and a grid."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hardtack.codegen.ir.expr import Expr, as_expr, bounds, const, int_value, product
from hardtack.codegen.ir.graph import TensorType
from hardtack.codegen.ir.kernel_code import CUDA_POINTERS, Argument, CudaCode
from hardtack.codegen.ir.loops import row_major_strides
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Number, Value
from hardtack.exporter.errors import PluginError, Refusal
from hardtack.exporter.extensions import CudaUserKernel, Extensions, Given, with_defaults
from hardtack.exporter.functional_ops import is_written

GRID_LIMITS = (2**31 - 1, 65535, 65535)
_PART = re.compile(r"(\w+)(?:\[(\d+)\])?(?:\.(?:(numel)|(shape|stride)\[(\d+)\]))?")
_ELEMENTS = {text: dtype for dtype, text in reversed(CUDA_POINTERS.items())}
_RANGES = {"int32_t": (-(2**31), 2**31 - 1), "int64_t": (-(2**63), 2**63 - 1)}


def convert_cuda_kernel(
    b: Builder, extensions: Extensions, given: Given, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Value, ...]:
    """The results of the op's kernel, then what becomes of the arguments that the op writes to.

    args, kwargs: as lowerings get them. Raises PluginError for parameters that do not fit what they are passed, and for
    a grid or a block that cannot be.
    """
    kernel: CudaUserKernel = given.function
    whole, named = with_defaults(given.op, args, kwargs)
    schema = given.op._schema.arguments
    values = dict(zip((a.name for a in schema), [*whole, *(named[a.name] for a in schema[len(whole) :])], strict=True))
    stated = [t for t in b.stated if t is not None]
    if len(stated) != len(b.stated):
        raise Refusal("what it gives is not known to be tensors")
    for t in stated:
        b.require_sizes(t)
    results = stated[: len(given.op._schema.returns)]  # behind them what the op writes to
    ask = _Asked(b, extensions, given, args, kwargs)
    call = _Call(b, given, values, {a.name for a in schema if is_written(a)}, results, ask)
    arguments = [call.argument(p.type, p.passed) for p in kernel.parameters]
    call.check_complete()
    grid = _grid(b, ask)
    code = CudaCode(
        kernel.function,
        kernel.source,
        kernel.file,
        tuple(p.type for p in kernel.parameters),
        ask.number("block", kernel.block, (32, 1024)),
        ask.number("shared", kernel.shared, (0, 2**31 - 1)),
    )
    if code.threads % 32:
        raise ask.problem("block", f"gives {code.threads} threads; it must be a multiple of 32, up to 1024")
    b.label = str(given.op).split(".")[1]
    written = sorted(call.changed.values())
    made = b.multi(
        "custom",
        *call.tensors,
        stated=[*results, *call.workspaces, *(call.tensors[k].type for k in written)],
        op=str(given.op),
        code=code,
        arguments=arguments,
        grid=grid,
        strided=(),
        written=written,
        workspace=0,
        worker_workspace=0,
    )
    became = dict(zip(written, made[len(results) + len(call.workspaces) :], strict=True))
    return (*made[: len(results)], *(became[call.changed[a.name]] for a in schema if is_written(a)))


def _grid(b: Builder, ask: _Asked) -> list[Expr]:
    """How many blocks there are in x, y and z: each at least 1, which becomes a check of the inputs."""
    found = ask.sizes("grid", ask.kernel.grid)
    if not 1 <= len(found) <= 3:
        raise ask.problem("grid", f"gives {len(found)} sizes; it must be 1 to 3")
    for axis, (size, most) in enumerate(zip(found, GRID_LIMITS, strict=False)):
        lo, hi = bounds(size)
        if (hi is not None and hi < 1) or (lo is not None and lo > most):
            blocks = hi if hi is not None and hi < 1 else lo
            raise ask.problem("grid", f"gives {blocks} blocks in dimension {axis}; it must be 1 to {most}")
        b.require("le", 1, size, f"the grid of the CUDA kernel {ask.kernel.function}")
        if hi is None or hi > most:
            b.require("le", size, most, f"the grid of the CUDA kernel {ask.kernel.function}")
    return [*found, *[const(1)] * (3 - len(found))]


@dataclass(frozen=True)
class _Asked:
    """What a kernel's own functions say of a call."""

    builder: Builder
    extensions: Extensions
    given: Given
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def kernel(self) -> CudaUserKernel:
        found: CudaUserKernel = self.given.function
        return found

    def problem(self, what: str, words: str) -> PluginError:
        return PluginError(f"the {what} of {self.given} {words}", self.builder.line)

    def sizes(self, what: str, stated: Any) -> tuple[Expr, ...]:
        """One size, or a tuple of them, or what a function of the op's arguments gives of these."""
        found = stated
        if isinstance(stated, Callable):  # type: ignore[arg-type]
            asked = replace(self.given, what=f"{what} of the kernel", function=stated)
            found = self.extensions.tried(asked, self.builder.line, self.args, self.kwargs, passing=(Refusal,))
        several = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        for x in several:
            if not isinstance(x, (int, Expr)) or isinstance(x, bool):
                raise self.problem(what, f"gives a {type(x).__name__}, which is no size")
        return tuple(map(as_expr, several))

    def number(self, what: str, stated: Any, limits: tuple[int, int]) -> int:
        """A number that is the same for all sizes."""
        found = self.sizes(what, stated)
        value = int_value(found[0]) if len(found) == 1 else None
        if len(found) > 1:
            raise self.problem(what, f"gives {len(found)} sizes; it must be one number")
        if value is None:
            raise self.problem(what, "depends on a dynamic size; it must be one number for all sizes")
        if not limits[0] <= value <= limits[1]:
            raise self.problem(what, f"gives {value}; it must be {limits[0]} to {limits[1]}")
        return value


class _Call:
    """What a launch is passed. tensors: the operands; read: the places of those that are read, by the value; changed:
    of those that are written, by the op's argument; workspaces: results that nobody reads."""

    def __init__(
        self,
        builder: Builder,
        given: Given,
        values: Mapping[str, Any],
        written: set[str],
        results: Sequence[TensorType],
        ask: _Asked,
    ) -> None:
        self.builder, self.given, self.values, self.ask = builder, given, values, ask
        self.written, self.results = written, results
        self.tensors: list[Value] = []
        self.workspaces: list[TensorType] = []
        self.read: dict[str, int] = {}
        self.changed: dict[str, int] = {}
        self.passed: set[str] = set()

    def problem(self, passed: str, words: str) -> PluginError:
        return PluginError(f"{self.given} is passed {passed}, {words}", self.builder.line)

    def argument(self, type_: str, passed: str) -> Argument:
        """What the parameter of a type is passed. PluginError where it does not fit."""
        part = _PART.fullmatch(passed)
        if part is None:
            raise self.problem(passed, "which is none of x, x.numel, x.shape[0], x.stride[0], result[0] and workspace")
        if passed == "workspace":
            return self._workspace(type_)
        found = self._found(part[1], part[2], passed)
        if part[3] is not None or part[4] is not None:
            return self._number(type_, passed, self._size(found, part[3] or part[4], part[5], passed))
        if isinstance(found, (int, float, Expr)):
            return self._number(type_, passed, found)
        if isinstance(found, TensorType):
            self._need_pointer(type_, passed, found.dtype, writes=True)
            self.passed.add(f"result[{int(part[2] or 0)}]")
            return ("result", int(part[2] or 0))
        writes = part[1] in self.written
        self._need_pointer(type_, passed, found.dtype, writes=writes)
        self.passed.add(part[1])
        return ("tensor", self._place(found, part[1] if writes else None))

    def _found(self, name: str, index: str | None, passed: str) -> Any:
        """The op's argument or result of a name."""
        if name == "result" and name not in self.values:
            at = int(index or 0)
            if at >= len(self.results):
                raise self.problem(passed, f"and the op has {len(self.results)} results")
            return self.results[at]
        if name not in self.values or index is not None:
            raise self.problem(passed, f"and the op has the arguments {', '.join(self.values)}")
        found = self.values[name]
        if isinstance(found, Number) or not isinstance(found, (Value, int, float, Expr)):
            kind = "number of the run" if isinstance(found, Number) else type(found).__name__
            raise self.problem(passed, f"which is a {kind}: kernels get tensors, sizes and numbers")
        return found

    def _size(self, of: Any, what: str, dim: str | None, passed: str) -> Expr:
        if not isinstance(of, (Value, TensorType)):
            raise self.problem(passed, "and that is no tensor")
        if what == "numel":
            return product(of.shape)
        if int(dim or 0) >= len(of.shape):
            raise self.problem(passed, f"and it has {len(of.shape)} dimensions")
        return (of.shape if what == "shape" else row_major_strides(of.shape))[int(dim or 0)]

    def _number(self, type_: str, passed: str, value: float | Expr) -> Argument:
        if type_ in ("float", "double") and isinstance(value, float):
            return ("float", value)
        if type_ not in _RANGES or isinstance(value, float):
            kind = "float" if isinstance(value, float) else "whole number"
            raise self.problem(passed, f"a {kind}, as {type_}; it must be {_NUMBER_TYPES[kind]}")
        size, (least, most) = as_expr(int(value) if isinstance(value, bool) else value), _RANGES[type_]
        lo, hi = bounds(size)
        if (hi is not None and hi < least) or (lo is not None and lo > most):
            raise self.problem(passed, f"which is {hi if hi is not None and hi < least else lo}, as {type_}")
        if type_ == "int32_t":
            why = f"{passed} of the CUDA kernel {self.ask.kernel.function} as int32_t"
            self.builder.require("le", size, most, why)
            self.builder.require("le", least, size, why)
        return ("int", size)

    def _need_pointer(self, type_: str, passed: str, dtype: DType, *, writes: bool) -> None:
        want = f"{'' if writes else 'const '}{CUDA_POINTERS[dtype]}*"
        if type_ != want:
            raise self.problem(passed, f"a tensor of {dtype}, as {type_}; it must be {want}")

    def _place(self, value: Value, written: str | None) -> int:
        """Which of the operands a tensor is: one that is read stands once, and apart from what is `written`."""
        places = self.read if written is None else self.changed
        key = value.name if written is None else written
        if key not in places:
            places[key] = len(self.tensors)
            self.tensors.append(value)
        return places[key]

    def _workspace(self, type_: str) -> Argument:
        element = _ELEMENTS.get(type_.removesuffix("*"))
        if element is None or not type_.endswith("*"):
            raise self.problem("workspace", f"as {type_}; it must be a pointer, as uint8_t*")
        if self.workspaces:
            raise self.problem("workspace", "twice; there is one")
        nbytes = self.ask.sizes("workspace", self.ask.kernel.workspace)
        if len(nbytes) != 1:
            raise self.ask.problem("workspace", f"gives {len(nbytes)} sizes; it must be one number of bytes")
        lo, hi = bounds(nbytes[0])
        if hi is not None and hi < 1:
            raise self.ask.problem("workspace", f"gives {hi} bytes, and the kernel takes one")
        if lo is None or lo < 0:
            self.builder.require("le", 0, nbytes[0], "the workspace of a kernel")
        numel = -(-nbytes[0] // const(element.nbytes))
        self.workspaces.append(TensorType(element, (numel,)))
        return ("result", len(self.results))

    def check_complete(self) -> None:
        """PluginError where the kernel is not passed what it must write."""
        want = {f"result[{k}]" for k in range(len(self.results))} | self.written
        left = sorted(want - self.passed)
        if left:
            raise PluginError(f"{self.given} is not passed {', '.join(left)}, which it must write", self.builder.line)
        if not callable(self.ask.kernel.workspace) and self.ask.kernel.workspace and not self.workspaces:
            raise PluginError(f"{self.given} asks for a workspace, and takes none", self.builder.line)


_NUMBER_TYPES = {"float": "float or double", "whole number": "int32_t or int64_t"}
