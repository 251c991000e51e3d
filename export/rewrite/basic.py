"""Rewrites that need no arithmetic: dead ops, equal ops, chains of views."""

from __future__ import annotations

from dataclasses import replace

from hardtack.codegen.ir.graph import Graph, Op, make_attrs
from hardtack.codegen.ir.graph_infer import same_numel
from hardtack.codegen.ir.graph_ops import facts
from hardtack.exporter.rewrite.edit import Edit


def remove_dead(graph: Graph) -> Graph:
    """Ops, constants and types that no output, state or assert needs are left out."""
    live = {*graph.outputs, *graph.finals().values()}
    kept: list[Op] = []
    for op in reversed(graph.ops):
        if op.kind in ("assert", "read") or live.intersection(op.outputs):
            kept.append(op)
            live.update(x for x in op.inputs if isinstance(x, str))
    ops = tuple(reversed(kept))
    constants = tuple(c for c in graph.constants if c.name in live)
    names = {i.name for i in graph.inputs} | {s.name for s in graph.states} | {c.name for c in constants}
    names |= {o for op in ops for o in op.outputs}
    types = {n: t for n, t in graph.types.items() if n in names}
    return replace(graph, ops=ops, constants=constants, types=types)


def common_subexpressions(graph: Graph) -> Graph:
    """Of equal ops on equal operands, the first; of constants with equal content, the first.

    Constants of different tensors of the module stay apart, so that one of them can be replaced in the bundle.
    """
    edit = Edit(graph)
    first_constant: dict[object, str] = {}
    for c in graph.constants:
        kept = first_constant.setdefault((c.key, c.tensors, c.recipe, c.quantized), c.name)
        if kept != c.name and graph.types[kept] == graph.types[c.name]:
            edit.renamed[c.name] = kept
    seen: dict[tuple[object, ...], tuple[str, ...]] = {}
    for op in graph.ops:
        if op.kind == "assert" or facts(op).opaque:
            edit.keep(op)
            continue
        inputs = tuple(map(edit.resolve, op.inputs))
        # literals of 0.0 and -0.0, or 1 and True, are equal for Python and not for us
        key = (op.kind, tuple(map(repr, inputs)), repr(op.attrs), tuple(graph.types[o] for o in op.outputs))
        if key in seen:
            edit.renamed.update(zip(op.outputs, seen[key], strict=True))
        else:
            seen[key] = op.outputs
            edit.keep(op)
    return edit.done()


def merge_views(graph: Graph) -> Graph:
    """reshape of reshape, permute of permute, expand of expand become one; views that change nothing vanish. Two
    reshapes stay two where each is right by a guard of its own, and no guard says that of both together.
    """
    edit = Edit(graph)
    producer: dict[str, Op] = {}
    for op in graph.ops:
        new = _merged(edit.resolved(op), producer, edit)
        if _changes_nothing(new, edit):
            edit.renamed[new.outputs[0]] = str(new.inputs[0])
            continue
        edit.ops.append(new)
        producer.update(dict.fromkeys(new.outputs, new))
    return edit.done()


def _merged(op: Op, producer: dict[str, Op], edit: Edit) -> Op:
    source = producer.get(op.inputs[0]) if op.inputs and isinstance(op.inputs[0], str) else None
    if source is None or source.kind != op.kind:
        return op
    if op.kind == "expand":
        return replace(op, inputs=source.inputs)
    if op.kind == "reshape":
        before, after = edit.types[str(source.inputs[0])], edit.types[op.outputs[0]]
        return replace(op, inputs=source.inputs) if same_numel(before, after, edit.same) else op
    if op.kind == "permute":
        inner, outer = source.attr("dims"), op.attr("dims")
        assert isinstance(inner, tuple)
        assert isinstance(outer, tuple)
        return replace(op, inputs=source.inputs, attrs=make_attrs(dims=[inner[d] for d in outer]))
    return op


def _changes_nothing(op: Op, edit: Edit) -> bool:
    if op.kind not in ("reshape", "expand", "permute", "cast") or not isinstance(op.inputs[0], str):
        return False
    if op.kind == "permute":
        dims = op.attr("dims")
        return dims == tuple(range(len(edit.types[op.outputs[0]].shape)))
    return edit.types[op.inputs[0]] == edit.types[op.outputs[0]]


def permute_as_reshape(graph: Graph) -> Graph:
    """A permute that only moves dims of size 1 is a reshape."""
    ops: list[Op] = []
    for op in graph.ops:
        if op.kind == "permute" and isinstance(op.inputs[0], str):
            dims, shape = op.attr("dims"), graph.types[op.inputs[0]].shape
            assert isinstance(dims, tuple)
            live = [d for d in dims if repr(shape[d]) != "1"]
            if live == sorted(live):
                op = replace(op, kind="reshape", attrs=())
        ops.append(op)
    return replace(graph, ops=tuple(ops))
