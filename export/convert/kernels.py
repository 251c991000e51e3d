"""Ops with kernels that are no templates, users' and Hardtack's own: a Graph op `custom` with the arguments of the
call, in the order of the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from hardtack.codegen.ir.expr import Expr, as_expr, bounds
from hardtack.codegen.ir.kernel_code import Argument
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.complex import pairs_of
from hardtack.exporter.convert.table import ComplexValue, Number, Value
from hardtack.exporter.dtypes import from_torch
from hardtack.exporter.errors import PluginError, Refusal
from hardtack.exporter.extensions import Extensions, Given, Nbytes, UserKernel, with_defaults
from hardtack.exporter.functional_ops import is_written


def convert_kernel(
    b: Builder, extensions: Extensions, given: Given, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Value, ...]:
    """The results of the op's kernel, then what becomes of the arguments that the op writes to.

    args, kwargs: as lowerings get them. Raises Refusal for an argument that kernels do not get, and PluginError for a
    function that says how large a workspace is and raises, or gives no size.
    """
    kernel: UserKernel = given.function
    whole, named = with_defaults(given.op, args, kwargs)
    schema = given.op._schema.arguments
    call = _Call(b)
    places: dict[str, range] = {}
    for stated, value in zip(schema, [*whole, *(named[a.name] for a in schema[len(whole) :])], strict=True):
        first = len(call.tensors)
        call.arguments.append(call.argument(stated, value))
        places[stated.name] = range(first, len(call.tensors))
    types = [t for t in b.stated if t is not None]
    if len(types) != len(b.stated) or not types:
        raise Refusal("what it gives is not known to be tensors")
    for t in types:
        b.require_sizes(t)
    sizes = {w: _nbytes(b, extensions, given, w, getattr(kernel, w), args, kwargs) for w in _WORKSPACES}
    b.label = str(given.op).split(".")[1]
    return b.multi(
        "custom",
        *call.tensors,
        stated=types,
        op=str(given.op),
        code=kernel.code,
        arguments=call.arguments,
        grid=(),
        strided=[k for name in sorted(kernel.strided) for k in places[name]],
        written=[k for a in schema if is_written(a) for k in places[a.name]],
        **sizes,
    )


_WORKSPACES = ("workspace", "worker_workspace")


class _Call:
    """arguments: those of the call so far; tensors: the operands among them, complex ones as pairs."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.arguments: list[Argument] = []
        self.tensors: list[Value] = []

    def argument(self, stated: Any, value: Any) -> Argument:
        if isinstance(value, ComplexValue):
            self.tensors.append(pairs_of(self.builder, value))
            return ("pairs", len(self.tensors) - 1)
        if isinstance(value, Value):
            if isinstance(value, Number) or "Tensor" not in str(stated.type):
                raise Refusal(f"its argument {stated.name} depends on values of tensors, and is no tensor")
            self.tensors.append(value)
            return ("tensor", len(self.tensors) - 1)
        if isinstance(value, (list, tuple)):
            return ("list", tuple(self.argument(stated, x) for x in value))
        found = _plain(value, "float" in str(stated.type))
        if found is None:
            raise Refusal(f"its argument {stated.name} is a {type(value).__name__}, which kernels do not get")
        return found


def _plain(value: Any, is_float: bool) -> Argument | None:
    """An argument that is no tensor; None for what has no form in kernel.h."""
    if value is None:
        return ("none",)
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, (int, float)) and is_float:
        return ("float", float(value))
    if isinstance(value, torch.dtype):
        return ("dtype", from_torch(value))
    for kind, of in (("int", (int, Expr)), ("float", float), ("text", str)):
        if isinstance(value, of):
            return (kind, value)
    return None


def _nbytes(
    b: Builder,
    extensions: Extensions,
    given: Given,
    what: str,
    size: Nbytes,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Expr:
    """The size of a workspace."""
    if not callable(size):
        return as_expr(size)
    asked = replace(given, what=f"{what} of the kernel", function=size)
    found = extensions.tried(asked, b.line, args, kwargs, passing=(Refusal,))
    if not isinstance(found, (int, Expr)) or isinstance(found, bool):
        raise PluginError(f"{asked} gives a {type(found).__name__}, not a number of bytes", b.line)
    nbytes = as_expr(found)
    lo, hi = bounds(nbytes)
    if hi is not None and hi < 0:
        raise PluginError(f"{asked} gives {found} bytes", b.line)
    if lo is None or lo < 0:
        b.require("le", 0, nbytes, f"the {what} of a kernel")
    return nbytes
