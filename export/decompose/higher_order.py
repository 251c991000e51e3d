"""Higher-order ops in torch's ops: what they do with functions of the model is traced in their place.

flex_attention is torch's own form for eager mode (math_attention): scores of all pairs, what the model's functions make
of them, mapped over batch, heads and both lengths by vmap, softmax, the values. Its results are eager's, and any
score_mod and block mask is taken. A map is its function by vmap, for all rows at once, as many as there are. A scan is
its function a row, or, of many rows or of a number that varies, a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import math_attention
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_flatten, tree_unflatten

from hardtack.exporter.decompose.copies import copied, graphs_of


def _map(body: Callable[..., Any], mapped: Sequence[Any], extra: Sequence[Any] = ()) -> Any:
    return torch.vmap(body, in_dims=(*[0] * len(mapped), *[None] * len(extra)))(*mapped, *extra)


def _scan(
    combine: Callable[..., Any], first: Sequence[Tensor], rows: Sequence[Tensor], extra: Sequence[Any] = ()
) -> list[Tensor]:
    """What is carried in the end, then the results of all rows."""
    count = rows[0].shape[0]
    if not isinstance(count, int) or not 1 <= count <= MOST_UNROLLED:
        return _scan_by_a_loop(combine, first, rows, extra)
    carried, results = list(first), []
    for i in range(count):
        found = combine(*carried, *(x[i] for x in rows), *extra)
        carried, made = list(found[: len(first)]), found[len(first) :]
        results.append(made)
    return [*carried, *(torch.stack(r) for r in zip(*results, strict=True))]


def _scan_by_a_loop(
    combine: Callable[..., Any], first: Sequence[Tensor], rows: Sequence[Tensor], extra: Sequence[Any]
) -> list[Tensor]:
    count, carries = rows[0].shape[0], len(first)
    some = (x.new_zeros(x.shape[1:]) for x in rows)
    sample = combine(*first, *some, *extra)[carries:]  # for types and shapes; nothing reads its values
    results = [y.new_zeros((count, *y.shape)) for y in sample]
    begin = torch.zeros((), dtype=torch.int64, device=rows[0].device)

    def goes_on(i: Tensor, *_: Any) -> Tensor:
        return i < count

    def step(i: Tensor, *given: Any) -> tuple[Any, ...]:
        carried, written = given[:carries], given[carries : carries + len(results)]
        at = i.reshape(1)
        taken = (x.index_select(0, at).squeeze(0) for x in given[carries + len(results) :][: len(rows)])
        found = combine(*carried, *taken, *given[carries + len(results) + len(rows) :])
        made = (w.index_copy(0, at, y.unsqueeze(0)) for w, y in zip(written, found[carries:], strict=True))
        return (i + 1, *found[:carries], *made)

    loop = torch.ops.higher_order.while_loop
    found = loop(goes_on, step, (begin, *(t.clone() for t in first), *results), (*rows, *extra))
    return list(found[1:])


MOST_UNROLLED = 64
"""Rows of a scan that become that many copies of its function."""
_IN_OPS: dict[str, Callable[..., Any]] = {"flex_attention": math_attention, "map_impl": _map, "scan": _scan}
"""Name -> what computes it, of the same arguments."""


def with_higher_order_ops_apart(ep: ExportedProgram) -> ExportedProgram:
    """The program, or a copy of it in which functions are called in place of the ops of _IN_OPS."""
    if not any(_function(node) for graph in graphs_of(ep.graph_module) for node in graph.graph.nodes):
        return ep
    made = ep._update(copied(ep), ep.graph_signature)
    for graph in graphs_of(made.graph_module):  # behind the verifier, which knows no functions of Python
        for node in list(graph.graph.nodes):
            if (function := _function(node)) is not None:
                _call_in_place_of(node, graph, function)
        graph.recompile()
    return made


def _function(node: Node) -> Callable[..., Any] | None:
    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return None
    return _IN_OPS.get(node.target.__name__)


def _call_in_place_of(node: Node, owner: GraphModule, function: Callable[..., Any]) -> None:
    """The call of the function with the arguments of the higher-order op. The functions of the model are modules of the
    program: the call has them bound, as torch takes modules among arguments for parameters."""
    bound: dict[Node, Any] = {}
    for user in node.all_input_nodes:
        if user.op == "get_attr" and isinstance(found := getattr(owner, str(user.target)), GraphModule):
            bound[user] = found
    args, spec = tree_flatten((node.args, node.kwargs))
    places = [k for k, a in enumerate(args) if not (isinstance(a, Node) and a in bound)]

    def call(*given: Any) -> Any:
        whole = [bound.get(a) if isinstance(a, Node) else a for a in args]
        for k, value in zip(places, given, strict=True):
            whole[k] = value
        positional, named = tree_unflatten(whole, spec)
        return function(*positional, **named)

    node.target, node.args, node.kwargs = call, tuple(args[k] for k in places), {}
    for user in bound:
        if not user.users:
            owner.graph.erase_node(user)
