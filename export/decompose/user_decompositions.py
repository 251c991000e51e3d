"""Decompositions that users bring: those of `export(decompositions=...)` and of plug-ins, and those that other
libraries have registered with torch for ops of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._decomp import global_decomposition_table
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from hardtack.exporter.decompose.copies import copied
from hardtack.exporter.errors import PluginError
from hardtack.exporter.extensions import Extensions, Given
from hardtack.exporter.origin import source_of

_TORCHS_OWN = ("aten", "prims", "prim", "quantized_decomposed", "torchvision")
"""Namespaces whose decompositions are chosen op by op in decompositions.py."""

Table = dict[Any, Callable[..., Any]]


def registered() -> Table:
    """What torch._decomp.register_decomposition was given for ops of other libraries."""
    found = global_decomposition_table["post_autograd"]
    return {op: f for op, f in found.items() if isinstance(op, OpOverload) and op.namespace not in _TORCHS_OWN}


def with_users(table: Table, extensions: Extensions) -> Table:
    """The table with the users' functions in front of ours, and without the ops that they lower whole."""
    users = {op: _called(given, extensions) for op, given in extensions.of("decomposition").items()}
    lowered = extensions.of("lowering")
    return {op: f for op, f in {**registered(), **table, **users}.items() if op not in lowered}


def with_written_arguments(ep: ExportedProgram, extensions: Extensions) -> ExportedProgram:
    """The program, or a copy of it in which ops that write to their arguments and have a user's decomposition are calls
    of that: torch makes such ops functional before it looks for decompositions."""
    users = {op: g for op, g in extensions.of("decomposition").items() if op._schema.is_mutable}
    if not users or not any(True for _ in _calls(ep.graph_module, users)):
        return ep
    made = ep._update(copied(ep), ep.graph_signature)
    for node in _calls(made.graph_module, users):  # behind the verifier, which knows no functions of Python
        node.target = _called(users[node.target], extensions)  # type: ignore[index]
    made.graph_module.recompile()
    return made


def _called(given: Given, extensions: Extensions) -> Callable[..., Any]:
    def decomposition(*args: Any, **kwargs: Any) -> Any:
        return extensions.call(given, None, args, kwargs)

    return decomposition


def check_decompositions(ep: ExportedProgram, extensions: Extensions) -> None:
    """PluginError for a user's decomposition that raises, or gives other dtypes or sizes than its op states, at the
    line that calls the op. What it computes is tried by nobody here: `hardtack compare` runs the op itself."""
    users = extensions.of("decomposition")
    for node in _calls(ep.graph_module, users) if users else ():
        _check(node, users[node.target], extensions)  # type: ignore[index]


def _calls(module: GraphModule, ops: dict[OpOverload, Given]) -> Iterator[Node]:
    """Nodes that call one of the ops, in branches and loops, too."""
    for part in module.modules():
        if isinstance(part, GraphModule):
            yield from (n for n in part.graph.nodes if n.op == "call_function" and n.target in ops)


def _check(node: Node, given: Given, extensions: Extensions) -> None:
    args, kwargs = pytree.tree_map_only(Node, lambda n: n.meta["val"], (node.args, node.kwargs))
    mode = detect_fake_mode((args, kwargs, node.meta.get("val")))
    if mode is None:
        return
    where = source_of(node)
    with mode, torch.no_grad():
        made = extensions.call(given, where, args, kwargs)
    stated, found = node.meta.get("val"), made
    pairs = list(zip(_leaves(stated), _leaves(found), strict=False))
    if len(_leaves(stated)) != len(_leaves(found)):
        raise PluginError(
            f"{given} gives {len(_leaves(found))} results, and the op's fake kernel {len(_leaves(stated))}", where
        )
    for k, (want, got) in enumerate(pairs):
        if not _alike(want, got):
            which = f" as result {k}" if len(pairs) > 1 else ""
            raise PluginError(f"{given} gives {_text(got)}{which}, and the op's fake kernel {_text(want)}", where)


def _leaves(x: Any) -> list[Any]:
    return [] if x is None else pytree.tree_leaves(x)


def _alike(want: Any, got: Any) -> bool:
    """Of symbolic sizes nothing is asked, which would decide them."""
    if not isinstance(want, torch.Tensor) or not isinstance(got, torch.Tensor):
        return isinstance(want, torch.Tensor) is isinstance(got, torch.Tensor)
    sizes = zip(want.shape, got.shape, strict=False)
    apart = any(type(a) is int and type(b) is int and a != b for a, b in sizes)
    return want.dtype is got.dtype and want.dim() == got.dim() and not apart


def _text(x: Any) -> str:
    if not isinstance(x, torch.Tensor):
        return f"a {type(x).__name__}"
    return f"{str(x.dtype).removeprefix('torch.')}[{', '.join(map(str, x.shape))}]"
