"""Decompositions that users bring: those of `export(decompositions=...)` and of plug-ins, and those that other
libraries have registered with torch for ops of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._decomp import global_decomposition_table
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from hardtack.exporter.decompose.copies import copied, graphs_of
from hardtack.exporter.errors import PluginError, SourceLine
from hardtack.exporter.extensions import TORCH_NAMESPACES, Extensions, Given
from hardtack.exporter.functional_ops import call_functional, tensors_of
from hardtack.exporter.memory import may_overlap
from hardtack.exporter.origin import source_of
from hardtack.exporter.triton_calls.triton_ops import as_recorded, function_of

Table = dict[Any, Callable[..., Any]]


def with_users(table: Table, ep: ExportedProgram, extensions: Extensions) -> Table:
    """The table with the users' functions in front of ours, and without the ops that they lower whole. Functions of ops
    whose sizes depend on values in the program are not checked: each run of a fake kernel gives other sizes."""
    given = {**_registered(), **extensions.of("decomposition")}
    depend = {n.target for n in _calls(ep.graph_module, given) if _depends_on_values(n)} if given else set()
    made = {op: (_called(g, extensions) if op in depend else _checked(g, extensions)) for op, g in given.items()}
    users = {op: made[op] for op in extensions.of("decomposition")}
    whole = {**extensions.of("lowering"), **extensions.of("kernel")}
    return {op: f for op, f in {**made, **table, **users}.items() if op not in whole}


def _depends_on_values(node: Node) -> bool:
    """True for a call whose results have sizes that depend on the values of tensors."""
    sizes = [s for t in _leaves(node.meta.get("val")) if isinstance(t, torch.Tensor) for s in t.shape]
    return any(free_unbacked_symbols(s) for s in sizes)


def has_decompositions(extensions: Extensions) -> bool:
    """True if there is a decomposition that is not Hardtack's or torch's own."""
    return bool(extensions.of("decomposition") or _registered())


def _registered() -> dict[OpOverload, Given]:
    """What torch._decomp.register_decomposition was given for ops of other libraries."""
    by = "torch._decomp.register_decomposition"
    return {
        op: Given(op, "decomposition", function, by, (f"decomposition {op}", by))
        for op, function in global_decomposition_table["post_autograd"].items()
        if isinstance(op, OpOverload) and op.namespace not in TORCH_NAMESPACES
    }


def _checked(given: Given, extensions: Extensions) -> Callable[..., Any]:
    """The function as torch traces it, wherever its op is called: what it gives is held beside the op's fake kernel."""

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        with disable_proxy_modes_tracing():
            stated = given.op(*args, **kwargs)
        made = extensions.call(given, None, args, kwargs)
        _compare(given, stated, made, None)
        return made

    return decomposition


def with_calls(ep: ExportedProgram, extensions: Extensions) -> ExportedProgram:
    """The program, or a copy of it in which ops that torch changes before it looks for decompositions are calls of the
    users' functions, or of the twins of ops with kernels: those that write to their arguments become functional,
    composite ones are taken apart."""
    given = {**extensions.of("decomposition"), **extensions.of("kernel")}
    launching = _of_triton(ep)
    extensions.launching.update(map(str, launching))
    with_cuda = {g.op: g for g in extensions.cuda.values()}
    extensions.launching.update(str(node.target) for node in _calls(ep.graph_module, with_cuda))
    users = {**{op: g for op, g in given.items() if _is_early(op)}, **(launching if extensions.gpus else {})}
    if not users or not any(True for _ in _calls(ep.graph_module, users)):
        return ep
    made = ep._update(copied(ep), ep.graph_signature)
    for node in _calls(made.graph_module, users):  # behind the verifier, which knows no functions of Python
        _check_memory(node, users[node.target])  # type: ignore[index]
        node.target = _called(users[node.target], extensions, node)  # type: ignore[index]
    made.graph_module.recompile()
    return made


def _check_memory(node: Node, given: Given) -> None:
    """PluginError where an op with a kernel writes to memory that another argument has, too: the kernel gets each
    written argument as memory of its own."""
    if given.what == "decomposition":
        return
    args, kwargs = pytree.tree_map_only(Node, lambda n: n.meta["val"], (node.args, node.kwargs))
    tensors = list(tensors_of(given.op, args, kwargs))
    for k, (t, written) in enumerate(tensors):
        for j, (other, _) in enumerate(tensors):
            if written and j != k and may_overlap(t, other):
                raise PluginError(
                    f"{given.op} writes to argument {k} among its tensors, whose memory argument {j} has, too",
                    source_of(node),
                    "pass a clone of one of them",
                )


def _is_early(op: OpOverload) -> bool:
    return op._schema.is_mutable or op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


def _of_triton(ep: ExportedProgram) -> dict[OpOverload, Given]:
    """The functions of the ops of torch.library.triton_op that a program calls."""
    found: dict[OpOverload, Given] = {}
    for part in graphs_of(ep.graph_module):
        for node in part.graph.nodes:
            function = function_of(node.target)
            if function is not None:
                by = "torch.library.triton_op"
                found[node.target] = Given(node.target, "function", function, by, ("", ""))
    return found


def _called(given: Given, extensions: Extensions, node: Node | None = None) -> Callable[..., Any]:
    def decomposition(*args: Any, **kwargs: Any) -> Any:
        if given.what == "kernel":
            return call_functional(given.op, *args, **kwargs)
        if given.what == "function":
            assert node is not None
            return _launched(given, extensions, node, args, kwargs)
        return extensions.call(given, None, args, kwargs)

    return decomposition


def _launched(given: Given, extensions: Extensions, node: Node, args: Any, kwargs: Any) -> Any:
    """What a function that calls Triton kernels gives, of arguments as they lay in memory where strides were asked for;
    PluginError where that is not what the op's fake kernel states."""
    where = source_of(node)
    recorded = pytree.tree_map_only(Node, lambda n: n.meta["val"], (node.args, node.kwargs))
    leaves, spec = pytree.tree_flatten((args, kwargs))
    laid_out = map(as_recorded, leaves, pytree.tree_leaves(recorded))
    args, kwargs = pytree.tree_unflatten(list(laid_out), spec)
    made = extensions.tried(given, where, args, kwargs)
    _compare(given, node.meta.get("val"), made, where)
    return made


def check_decompositions(ep: ExportedProgram, extensions: Extensions) -> None:
    """PluginError for a user's decomposition that raises, gives other dtypes or sizes than its op states, or writes to
    what its op does not, at the line that calls the op. What it computes is tried by nobody here: `hardtack compare`
    runs the op itself."""
    users = extensions.of("decomposition")
    for node in _calls(ep.graph_module, users) if users else ():
        if not _depends_on_values(node):
            _check(node, users[node.target], extensions)  # type: ignore[index]


def check_called(ep: ExportedProgram, extensions: Extensions, what: str) -> None:
    """PluginError for a user's function whose op the program calls, and which had no part in what became of it."""
    missing = {op: g for op, g in extensions.of(what).items() if str(op) not in extensions.called}
    for node in _calls(ep.graph_module, missing) if missing else ():
        if node.users:
            raise PluginError(
                f"{missing[node.target]} was not asked: torch takes the op apart before",  # type: ignore[index]
                source_of(node),
                f"give functions for the ops that it is made of, or a decomposition instead of a {what}",
            )


def _calls(module: GraphModule, ops: Mapping[OpOverload, Given]) -> Iterator[Node]:
    """Nodes that call one of the ops, in branches and loops, too."""
    for part in graphs_of(module):
        yield from (n for n in part.graph.nodes if n.op == "call_function" and n.target in ops)


def _check(node: Node, given: Given, extensions: Extensions) -> None:
    args, kwargs = pytree.tree_map_only(Node, lambda n: n.meta["val"], (node.args, node.kwargs))
    stated = node.meta.get("val")
    mode = detect_fake_mode((args, kwargs, stated))
    if mode is None:
        return
    where = source_of(node)
    kept = [t for t, written in tensors_of(given.op, args, kwargs) if not written]
    versions = [t._version for t in kept]
    with mode, torch.no_grad():
        made = extensions.tried(given, where, args, kwargs)
    _compare(given, stated, made, where)
    if versions != [t._version for t in kept]:
        raise PluginError(f"{given} writes to an argument, and the op does not", where, "work on a clone of it")
    memories = {t.untyped_storage()._cdata for t, _ in tensors_of(given.op, args, kwargs)}
    results = [] if stated is None else [t for t in _leaves(made) if isinstance(t, torch.Tensor)]
    if _is_early(given.op) and any(t.untyped_storage()._cdata in memories for t in results):
        raise PluginError(f"{given} gives an argument, or a view of one", where, "return a clone of it")


def _compare(given: Given, stated: Any, made: Any, where: SourceLine | None) -> None:
    """PluginError where a function's results are not those that the op's fake kernel gives."""
    several = isinstance(stated, (tuple, list))
    if several is not isinstance(made, (tuple, list)) and stated is not None:
        raise PluginError(f"{given} gives {_kind(made)}, and the op's fake kernel {_kind(stated)}", where)
    wanted, found = _leaves(stated), [] if stated is None else _leaves(made)
    if len(wanted) != len(found):
        raise PluginError(f"{given} gives {len(found)} results, and the op's fake kernel {len(wanted)}", where)
    for k, (want, got) in enumerate(zip(wanted, found, strict=True)):
        if not _alike(want, got):
            which = f" as result {k}" if len(wanted) > 1 else ""
            raise PluginError(f"{given} gives {_text(got)}{which}, and the op's fake kernel {_text(want)}", where)


def _kind(x: Any) -> str:
    return f"{len(x)} results" if isinstance(x, (tuple, list)) else _text(x)


def _leaves(x: Any) -> list[Any]:
    return [] if x is None else pytree.tree_leaves(x)


def _alike(want: Any, got: Any) -> bool:
    """The same dtype, and sizes that are equal whatever the dynamic ones are."""
    if not isinstance(want, torch.Tensor) or not isinstance(got, torch.Tensor):
        return isinstance(want, torch.Tensor) is isinstance(got, torch.Tensor)
    if want.dtype is not got.dtype or want.dim() != got.dim():
        return False
    return all(statically_known_true(a == b) for a, b in zip(want.shape, got.shape, strict=True))


def _text(x: Any) -> str:
    if not isinstance(x, torch.Tensor):
        return f"a {type(x).__name__}"
    return f"{str(x.dtype).removeprefix('torch.')}[{', '.join(map(str, x.shape))}]"
