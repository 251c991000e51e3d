"""Ops that torch works out by the strides of their operands: while a program is traced, an operand that is a part of a
tensor of dynamic sizes is copied first.

reshape of a slice is a view where the strides happen to fit, and torch notes the answer as a condition on the sizes:
x[:, ::2].flatten() would hold for even sizes only. The elements are the same either way; only who writes to the result
in place could tell the view from the copy, and then nothing is copied. Whether a tensor is laid out channels-last is
answered by the example's sizes, without a condition: torch asks it of each that has four or five dimensions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
import torch._prims_common as prims
import torch.utils._pytree as pytree
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses.fake_impls import get_fast_op_impls
from torch.export import ExportedProgram

from hardtack.exporter.aliases import written_views
from hardtack.exporter.capture.torch_patches.patch import Patch
from hardtack.exporter.capture.torch_patches.whole_shapes import traced_only, within_mode
from hardtack.exporter.sizes.strides import example_size

PATCHES = (
    Patch(
        name="reshapes of parts",
        replaces=("rules of aten.reshape, aten.flatten and aten.einsum",),
        why="whether x[:, ::2].flatten() is a view is a condition on the sizes: the program would hold for even ones",
        issues=(146315,),
    ),
    Patch(
        name="layouts of images",
        replaces=("torch._prims_common.are_strides_like_channels_last_or_false",),
        why="whether an image is laid out channels-last is asked of dynamic strides, and a condition each time",
    ),
)

_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd, DispatchKey.Meta)


def _ops() -> tuple[OpOverload, ...]:
    aten = torch.ops.aten
    return aten.reshape.default, aten.flatten.using_ints, aten.einsum.default


def _dense(x: Any) -> Any:
    """x, copied where it has symbolic sizes or strides and is no permuted whole tensor."""
    if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
        return x
    sizes, strides = list(map(_expr, x.shape)), list(map(_expr, x.stride()))
    if not any(e.free_symbols for e in (*sizes, *strides)):
        return x
    expected: sympy.Basic = sympy.Integer(1)
    left = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1]
    while left:
        found = next((p for p in left if sympy.expand(p[1] - expected) == 0), None)
        if found is None:
            return x.clone(memory_format=torch.contiguous_format)
        left.remove(found)
        expected *= found[0]
    return x


def _expr(size: int | torch.SymInt) -> sympy.Basic:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def _of_dense(op: OpOverload) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        args = pytree.tree_map(_dense, args)
        return op._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)

    return function


def writes_through(ep: ExportedProgram) -> bool:
    """True if a program writes in place to a result of one of these ops, or to a view of one."""
    return any(n.target in _ops() for n in written_views(ep))


def _by_example(original: Callable[..., bool]) -> Callable[..., bool]:
    """The question about sizes and strides as one about those of the example, where there are some."""

    def function(*given: Any) -> bool:
        found = [[example_size(s) for s in numbers] for numbers in given]
        return original(*(given if any(None in numbers for numbers in found) else found))

    return function


@contextlib.contextmanager
def dense_operands(wanted: bool = True) -> Iterator[None]:
    """Inside, torch asks less of strides and, if `wanted`, traces the ops of dense tensors. Not for several threads."""
    ops = _ops() if wanted else ()
    fast, laid_out = get_fast_op_impls(), prims.are_strides_like_channels_last_or_false
    saved = {op: dict(op.py_kernels) for op in ops}
    for op in ops:
        function = _of_dense(op)
        fast[op] = within_mode(function)
        op.py_kernels.update(dict.fromkeys(_KEYS, traced_only(op, function)))
        op._dispatch_cache.clear()
    prims.are_strides_like_channels_last_or_false = _by_example(laid_out)
    try:
        yield
    finally:
        prims.are_strides_like_channels_last_or_false = laid_out
        for op in ops:
            del fast[op]
            op.py_kernels.clear()
            op.py_kernels.update(saved[op])
            op._dispatch_cache.clear()
