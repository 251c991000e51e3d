"""Whether an op gives a view or a copy in eager mode, which strides decide: asked of the op itself, with tensors that
have sizes and strides and no elements.

The program as traced does not always tell: of x[1:].reshape(-1) with a dynamic size, which might be left with nothing,
torch makes a copy where eager mode has a view.
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy
import torch
import torch.utils._pytree as pytree
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node

from hardtack.exporter.aliases import aliased_operands, is_composite

Sizes = Mapping[sympy.Symbol, sympy.Integer]


def is_view(node: Node, sizes: Sizes | None = None) -> bool:
    """True if the node's result lies in the memory of its one aliased operand, for the example's sizes with `sizes` in
    place of them. As traced, for a part of a list and where data decide.

    Raises what the op raises for sizes that it does not take.
    """
    (x,) = aliased_operands(node)
    if is_composite(node) and x in node.args:
        with FakeTensorMode():
            given = pytree.tree_map(lambda a: _example(a, sizes or {}), (node.args, node.kwargs))
            if not any(leaf is _UNKNOWN for leaf in pytree.tree_leaves(given)):
                args, kwargs = given
                return share_memory(args[node.args.index(x)], node.target(*args, **kwargs))  # type: ignore[operator]
    elif isinstance(node.target, OpOverload) and not is_composite(node):
        return True  # an op of torch's own that gives views gives nothing else
    return share_memory(x.meta["val"], node.meta["val"])


def share_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    """True if both lie in one memory."""
    return bool(x.untyped_storage()._cdata == y.untyped_storage()._cdata)


_UNKNOWN = object()
"""Stands for what data decide."""


def _example(x: object, sizes: Sizes) -> object:
    """An argument as in the example, tensors without their elements."""
    x = x.meta.get("val") if isinstance(x, Node) else x
    if isinstance(x, torch.Tensor):
        shape, strides = ([_number(n, sizes) for n in t] for t in (x.shape, x.stride()))
        if None in shape or None in strides:
            return _UNKNOWN
        return torch.empty_strided(shape, strides, dtype=x.dtype, device=x.device)  # type: ignore[arg-type]
    if isinstance(x, torch.SymInt):
        number = _number(x, sizes)
        return _UNKNOWN if number is None else number
    return _UNKNOWN if isinstance(x, (torch.SymBool, torch.SymFloat)) else x


def _number(n: int | torch.SymInt, sizes: Sizes) -> int | None:
    """A size or stride as in the example; None for one that data decide."""
    if not isinstance(n, torch.SymInt):
        return n
    value = n.node.expr.xreplace({**n.node.shape_env.backed_var_to_val, **sizes})
    return int(value) if value.is_number else None
