"""flex_attention in torch's ops: scores of all pairs, what the model's functions make of them, softmax, the values.

torch's own form for eager mode (math_attention), which maps the functions over batch, heads and both lengths by vmap,
is traced in place of the higher-order op: its results are eager's, and any score_mod and block mask is taken.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.flex_attention import math_attention
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_flatten, tree_unflatten

from hardtack.exporter.decompose.copies import copied


def with_flex_attention_in_ops(ep: ExportedProgram) -> ExportedProgram:
    """The program, or a copy of it in which math_attention is called."""
    op = torch.ops.higher_order.flex_attention
    if not any(node.target is op for node in ep.graph.nodes):
        return ep
    made = ep._update(copied(ep), ep.graph_signature)
    for node in list(made.graph.nodes):  # behind the verifier, which knows no functions of Python
        if node.target is op:
            _call_in_place_of(node, made.graph_module)
    made.graph_module.recompile()
    return made


def _call_in_place_of(node: Node, owner: GraphModule) -> None:
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
        return math_attention(*positional, **named)

    node.target, node.args, node.kwargs = call, tuple(args[k] for k in places), {}
    for user in bound:
        if not user.users:
            owner.graph.erase_node(user)
