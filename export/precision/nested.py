"""Inputs of the graphs inside of a cond or while that are only converted there: converted once, outside."""

from __future__ import annotations

from dataclasses import replace

from hardtack.codegen.ir.graph import Graph, Op, TensorType, make_attrs
from hardtack.codegen.ir.types import DType
from hardtack.exporter.rewrite.edit import Edit, Facts


def narrow_inputs(op: Op, dtype: DType) -> tuple[Op, frozenset[int]]:
    """The op with such inputs in the dtype, and which of its operands these are. What a loop carries stays as it is."""
    graphs = {name: graph for name, graph in op.attrs if isinstance(graph, Graph)}
    first = 1 if op.kind == "cond" else 0
    carried = 0 if op.kind == "cond" else len(op.outputs)
    places: set[int] = set()
    for k in range(first + carried, len(op.inputs)):
        uses = [_use(graph, graph.inputs[k - first].name, dtype) for graph in graphs.values()]
        if isinstance(op.inputs[k], str) and any(u is True for u in uses) and False not in uses:
            places.add(k)
    if not places:
        return op, frozenset()
    attrs = dict(op.attrs)
    for name, graph in graphs.items():
        attrs[name] = _taking(graph, {graph.inputs[k - first].name for k in places}, dtype)
    return replace(op, attrs=make_attrs(**attrs)), frozenset(places)


def _use(graph: Graph, value: str, dtype: DType) -> bool | None:
    """True for an input that is only converted, None for one that nothing reads."""
    facts = Facts(graph)
    users = facts.users.get(value, [])
    if value in facts.results:
        return False
    return all(u.kind == "cast" and u.attr("dtype") is dtype for u in users) if users else None


def _taking(graph: Graph, names: set[str], dtype: DType) -> Graph:
    """The graph with the inputs `names` in the dtype, and without their conversions."""
    edit = Edit(graph)
    for name in names:
        edit.types[name] = TensorType(dtype, graph.types[name].shape)
    for op in graph.ops:
        if op.kind == "cast" and op.inputs[0] in names:
            edit.renamed[op.outputs[0]] = op.value(0)
            del edit.types[op.outputs[0]]
        else:
            edit.keep(op)
    return edit.done()
