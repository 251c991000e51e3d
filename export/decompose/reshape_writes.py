"""Writes in place through reshape, flatten, contiguous and the like: views of their operand where strides fit, copies
elsewhere.

torch makes a program functional by writing new tensors for old ones, whose strides may be others than those of the
tensor that was written to: y.flatten() behind y.transpose(0, 1).zero_() is then a copy, where it was a view. So what
each is in eager mode is put down in the program before it is decomposed, and the tensor that such a view was
made of begins with the strides that it had. Where later writes change them once more, torch refuses the view.
"""

from __future__ import annotations

import torch
import torch.utils._pytree as pytree
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from hardtack.exporter.aliases import aliased_operands, is_composite, written_views
from hardtack.exporter.decompose.copies import copied
from hardtack.exporter.eager_views import is_view, share_memory
from hardtack.exporter.sizes.strides import example_size, is_dense

aten = torch.ops.aten


def with_written_reshapes(ep: ExportedProgram) -> ExportedProgram:
    """The program, or a copy of it in which each written result of such an op is a view or a copy, as in eager."""
    found = {n.name: is_view(n) for n in written_reshapes(ep)}
    if not found:
        return ep
    module = copied(ep)
    nodes = [n for n in module.graph.nodes if n.name in found]
    for owner in dict.fromkeys(_owner(n) for n in nodes if found[n.name]):
        _settle(module.graph, owner)
    for node in nodes:
        (_as_view if found[node.name] else _as_copy)(module.graph, node)
    module.recompile()
    return ep._update(module, ep.graph_signature)


def written_reshapes(ep: ExportedProgram) -> list[Node]:
    """The nodes whose result matters as a view, and which strides decide to be one or a copy."""
    return [n for n in written_views(ep) if _may_copy(n)]


def _may_copy(node: Node) -> bool:
    """True for an op that torch makes of others and whose one result has the elements of its one operand in order."""
    if not is_composite(node) or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    operands = aliased_operands(node)
    if len(operands) != 1 or operands[0] not in node.args[:1]:
        return False
    return not share_memory(operands[0].meta["val"], node.meta["val"]) or _is_reshaped(node)


def _owner(view: Node) -> Node:
    """The tensor that a view is made of, in the end."""
    while len(aliased_operands(view)) == 1 and is_view(view):
        (view,) = aliased_operands(view)
    return view


def _settle(graph: Graph, owner: Node) -> None:
    """Row-major in the functional program, too, if the result of this op is."""
    value = owner.meta["val"]
    if owner.op != "call_function" or not _has_its_memory(owner) or not is_dense(value, tuple(range(value.dim()))):
        return
    plain = _before(graph, owner)
    owner.target, owner.args = aten.clone.default, (plain,)
    owner.kwargs = {"memory_format": torch.contiguous_format}


def _has_its_memory(node: Node) -> bool:
    """True for a tensor that lies in the memory of no operand; a part of a list, such as chunk's, does."""
    value = node.meta["val"]
    given = pytree.tree_leaves([n.meta.get("val") for n in node.all_input_nodes])
    places = [x.untyped_storage()._cdata for x in given if isinstance(x, torch.Tensor)]
    return isinstance(value, torch.Tensor) and value.untyped_storage()._cdata not in places


def _before(graph: Graph, node: Node) -> Node:
    """The node once more, in front of it; the node itself, which may be an output, keeps its name and its users."""
    with graph.inserting_before(node):
        made = graph.create_node(node.op, node.target, node.args, node.kwargs)
    made.meta = dict(node.meta)
    return made


def _is_reshaped(node: Node) -> bool:
    """True for a result that Tensor.view gives, too: with other sizes at the same place, and strides to fit. Asked of
    the example's sizes first: of symbolic ones torch gives a view of what is permuted as if it were row-major.
    """
    x, out = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
    sizes, strides, wanted = (list(map(example_size, t)) for t in (x.shape, x.stride(), out.shape))
    if None in (*sizes, *strides, *wanted):
        return False
    try:
        torch.empty_strided(sizes, strides, device="meta").view(wanted)  # type: ignore[arg-type]
        plain = x.view(out.shape)
    except (RuntimeError, ValueError):
        return False
    return all(map(_same, (*plain.stride(), plain.storage_offset()), (*out.stride(), out.storage_offset())))


def _same(a: int | torch.SymInt, b: int | torch.SymInt) -> bool:
    """True if they are known to be equal; no question is asked about sizes."""
    x, y = (n.node.expr if isinstance(n, torch.SymInt) else n for n in (a, b))
    return bool(x == y)


def _as_view(graph: Graph, node: Node) -> None:
    """operand.view(sizes), the sizes those that the op gives."""
    reshaped = _before(graph, node)
    sizes: list[int | Node] = []
    for d, n in enumerate(node.meta["val"].shape):
        if isinstance(n, torch.SymInt):
            with graph.inserting_before(node):
                size = graph.call_function(aten.sym_size.int, (reshaped, d))
            size.meta = {**node.meta, "val": n}
            sizes.append(size)
        else:
            sizes.append(n)
    node.target, node.args, node.kwargs = aten.view.default, (node.args[0], sizes), {}


def _as_copy(graph: Graph, node: Node) -> None:
    """The op of a copy of its operand."""
    x = node.args[0]
    assert isinstance(x, Node)
    with graph.inserting_before(node):
        copy = graph.call_function(aten.clone.default, (x,), {"memory_format": torch.contiguous_format})
    copy.meta = {**x.meta, "val": x.meta["val"].clone(memory_format=torch.contiguous_format)}
    node.args = (copy, *node.args[1:])
