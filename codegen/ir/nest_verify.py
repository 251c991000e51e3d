"""The rules of nests: the grammar of loops.py, one writer for each element, nothing lost where axes were changed."""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.codegen.ir.bounds_verify import verify_bounds
from hardtack.codegen.ir.expr import const
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.loops import (
    Buffer,
    Check,
    Compute,
    Index,
    Load,
    LoopError,
    LoopNest,
    Reduce,
    Stmt,
    Store,
    args_of,
    exprs_of,
    out_of,
)
from hardtack.codegen.ir.made_of import bodies, statements, verify_exprs, verify_walk
from hardtack.codegen.ir.nest_text import stmt_text, to_text_nest
from hardtack.codegen.ir.nests import ControlNest, Nest, ReadNest, TemplateNest
from hardtack.codegen.ir.reindex import equal, why_not_injective, within
from hardtack.codegen.ir.types import DType
from hardtack.codegen.ir.value_verify import verify_axes, verify_values
from hardtack.codegen.ops import KERNEL_OPS, SCALAR_OPS, ScalarOp, result_dtype


def verify_nest(nest: Nest, buffers: Mapping[str, Buffer]) -> None:
    """Raise LoopError, with the nest's text, where a nest breaks the rules of the module's grammar."""
    what = (
        nest.template.label
        if isinstance(nest, TemplateNest)
        else "control"
        if isinstance(nest, ControlNest)
        else "read"
        if isinstance(nest, ReadNest)
        else "nest"
    )
    try:
        if not isinstance(nest, LoopNest):
            _verify_buffers(nest, buffers)
            return
        _verify_loop_nest(nest, buffers)
        _verify_stores(nest, buffers)
        verify_sources(nest)
        verify_bounds(nest, buffers)
    except LoopError as e:
        raise LoopError(f"{what} {nest.name}: {e}\n{to_text_nest(nest)}") from None


def _verify_buffers(nest: TemplateNest | ControlNest | ReadNest, buffers: Mapping[str, Buffer]) -> None:
    for name in nest.reads() | nest.writes():
        if name not in buffers:
            raise LoopError(f"unknown buffer {name}")
    if isinstance(nest, TemplateNest):
        nest.template.verify(nest, buffers)


def _verify_loop_nest(nest: LoopNest, buffers: Mapping[str, Buffer]) -> None:
    kinds = [a.kind for a in nest.axes]
    if kinds != sorted(kinds):
        raise LoopError("parallel axes must come before reduce axes")
    verify_axes(nest.axes)
    ranks = {b: len(buffers[b].shape) for b in nest.reads() | nest.writes() if b in buffers}
    _verify_body(nest, buffers, ranks, SCALAR_OPS)


def verify_nest_of_kernel(nest: LoopNest, buffers: Mapping[str, Buffer]) -> None:
    """Raise LoopError where the values of a nest that a pass on kernels has made break the grammar: accesses have one
    linear offset there, and ops may be those that only passes make."""
    _verify_body(nest, buffers, dict.fromkeys(nest.reads() | nest.writes(), 1), KERNEL_OPS)


def _verify_body(
    nest: LoopNest, buffers: Mapping[str, Buffer], ranks: Mapping[str, int], ops: Mapping[str, ScalarOp]
) -> None:
    """ranks: how many indices an access of each known buffer has."""
    types: dict[str, DType] = {}
    axis_names = {a.sym.name for a in nest.axes}
    after_reduce: set[str] = set()
    reduce_names = {a.sym.name for a in nest.reduced}
    for s in nest.body:
        for a in args_of(s):
            if isinstance(a, str) and a not in types:
                raise LoopError(f"{a} is used before it is defined in: {stmt_text(s)}")
        _verify_indices(s, axis_names, types, ranks)
        _verify_stored(s, types, buffers)
        verify_values(s, types, buffers[s.buffer].dtype if isinstance(s, (Load, Store)) else None, nest.axes)
        late = any(a in after_reduce for a in args_of(s)) or isinstance(s, Reduce)
        if late and not isinstance(s, Reduce):
            used = {y.name for e in exprs_of(s) for y in free_syms(e)}
            if used & reduce_names:
                raise LoopError(f"a reduce axis is used after the reduction in: {stmt_text(s)}")
        out = out_of(s)
        if out is not None:
            if out in types:
                raise LoopError(f"{out} is defined twice")
            types[out] = _verified_dtype(s, types, buffers, ops)
            if late:
                after_reduce.add(out)


def _verify_indices(s: Stmt, axis_names: set[str], types: Mapping[str, DType], ranks: Mapping[str, int]) -> None:
    for e in exprs_of(s):
        for y in free_syms(e):
            if y.extent is not None and y.name not in axis_names and y.name not in types:
                raise LoopError(f"unknown axis or index {y.name} in: {stmt_text(s)}")
    if isinstance(s, (Load, Store)):
        if s.buffer not in ranks:
            raise LoopError(f"unknown buffer {s.buffer} in: {stmt_text(s)}")
        if len(s.index) != ranks[s.buffer]:
            raise LoopError(f"{s.buffer} has rank {ranks[s.buffer]} in: {stmt_text(s)}")


def _verify_stored(s: Stmt, types: Mapping[str, DType], buffers: Mapping[str, Buffer]) -> None:
    """A value in a register is not converted on its way: it must have the buffer's type."""
    if isinstance(s, Store):
        given = types[s.value] if isinstance(s.value, str) else s.value.dtype
        if given is not buffers[s.buffer].dtype:
            raise LoopError(f"{s.buffer} is of {buffers[s.buffer].dtype}, not {given}, in: {stmt_text(s)}")
    if isinstance(s, Reduce) and s.kind in ("sum", "prod") and s.dtype.is_half:
        raise LoopError(f"a {s.kind} in {s.dtype} in: {stmt_text(s)}")


def _verified_dtype(
    s: Stmt, types: Mapping[str, DType], buffers: Mapping[str, Buffer], ops: Mapping[str, ScalarOp]
) -> DType:
    if isinstance(s, Load):
        return buffers[s.buffer].dtype
    if isinstance(s, (Index, Check)):
        return DType.I64
    assert isinstance(s, (Compute, Reduce))
    args = tuple(types[a] if isinstance(a, str) else a.dtype for a in s.args)
    if isinstance(s, Compute):
        if s.op not in ops:
            raise LoopError(f"unknown op {s.op} in: {stmt_text(s)}")
        try:
            got = result_dtype(ops[s.op], args, s.dtype)
        except ValueError as e:
            raise LoopError(f"{e} in: {stmt_text(s)}") from None
        if got is not s.dtype:
            raise LoopError(f"dtype {s.dtype} where {s.op} gives {got} in: {stmt_text(s)}")
    return s.dtype


def _verify_stores(nest: LoopNest, buffers: Mapping[str, Buffer]) -> None:
    """Points that run in any order set no element twice, and none outside of its buffer."""
    if nest.serial or any(a.extent is const(0) for a in nest.axes):
        return
    _verify_own_reads(nest)
    reduced = {a.sym for a in nest.reduced}
    for s in nest.stores():
        if s.mode != "set":
            raise LoopError(f"points in any order update {s.buffer} in: {stmt_text(s)}")
        each = any(free_syms(e) & reduced for e in s.index)
        axes = {a.sym: a.extent for a in (nest.axes if each else nest.parallel)}
        why = why_not_injective(s.index, axes)
        if why is not None:
            raise LoopError(f"{why} in: {stmt_text(s)}")
        for e, n in zip(s.index, buffers[s.buffer].shape, strict=True):
            if free_syms(e) & axes.keys() and not within(e, n):
                raise LoopError(f"{e} may leave [0, {n}) in: {stmt_text(s)}")


def _verify_own_reads(nest: LoopNest) -> None:
    """What a point reads of a buffer that the nest stores is its own element."""
    written = nest.writes()
    for load in nest.loads():
        for s in nest.stores() if load.buffer in written else ():
            if s.buffer == load.buffer and not all(map(equal, s.index, load.index)):
                raise LoopError(f"other points store what is read in: {stmt_text(load)}")


def verify_sources(nest: LoopNest) -> None:
    """Raise LoopError unless the nest computes what its sources do: at points that number theirs one to one, the same
    statements at the same elements."""
    for source, body in bodies(nest) if nest.sources else ():
        verify_walk(nest.axes, source)
        for old, new, seen in statements(body, source):
            verify_exprs(old, new, seen)
