"""Passes over the Graph that users bring, each verified, cleaned up behind, and recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hardtack.codegen.ir.constants import ConstantData, ConstantStore
from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.graph import Constant, Graph, Origin, TensorType
from hardtack.codegen.ir.graph_text import to_text_graph
from hardtack.codegen.ir.graph_verify import verify_graph
from hardtack.exporter.errors import ExportError, PluginError
from hardtack.exporter.extensions import Extensions, UserPass
from hardtack.exporter.rewrite.rules import CLEANING, simplify


def run_user_passes(graph: Graph, store: ConstantStore, extensions: Extensions) -> tuple[Graph, dict[str, str]]:
    """The graph after the passes, in their order, and what each left, as text by "pass-" and its name, which no
    stage has. PluginError for a pass that
    raises, breaks a rule of Graphs, or changes what the entry point takes and gives, or what it was given."""
    texts: dict[str, str] = {}
    for p in extensions.passes:
        graph = simplify(_run(p, graph, store), store, CLEANING)
        extensions.used.update([p.producer])
        texts[f"pass-{p.name}"] = to_text_graph(graph) + "\n"
    return graph, texts


def _run(p: UserPass, graph: Graph, store: ConstantStore) -> Graph:
    """The pass works on copies: what it edits in place is told, and nothing else has it."""
    given = replace(graph, types=dict(graph.types))
    lent = ConstantStore(
        {k: ConstantData(d.dtype, _readable(d.array)) for k, d in store.data.items()}, set(store.inlined)
    )
    before = dict(lent.data)
    made = _applied(p, given, lent)
    if given != graph or any(lent.data.get(k) is not d for k, d in before.items()):
        raise PluginError(f"{p} edits in place what it is given, in entry {graph.name}", fix="give another Graph")
    if made is given:
        return graph
    _check(p, graph, made, lent)
    store.data.update({k: d for k, d in lent.data.items() if k not in before})
    return made


def _readable(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """The array, which cannot be written through this view."""
    view = array.view()
    view.flags.writeable = False
    return view


def _applied(p: UserPass, graph: Graph, store: ConstantStore) -> Graph:
    try:
        made = p.apply(graph, store)
    except ExportError:
        raise
    except Exception as error:
        raise PluginError(f"{p} raised {type(error).__name__}: {error}, in entry {graph.name}") from error
    if not isinstance(made, Graph):
        raise PluginError(f"{p} gives a {type(made).__name__}, not a Graph")
    return made


def _check(p: UserPass, graph: Graph, made: Graph, store: ConstantStore) -> None:
    try:
        verify_graph(made)
    except Exception as error:  # of a graph of any form the verifier may raise what Python raises
        raise PluginError(f"{p} gives a graph of entry {graph.name} that breaks the rules: {error}") from error
    for what, before, after in zip(_FACE, _face(graph), _face(made), strict=True):
        if before != after:
            raise PluginError(f"{p} changes the {what} of entry {graph.name}", fix="change what lies between only")
    for op in made.ops:
        if not isinstance(op.origin, Origin):
            raise PluginError(f"{p} has an op {op.kind} without an Origin, in entry {graph.name}")
    for c in made.constants:
        if not _has_content(made, c, store):
            raise PluginError(
                f"{p} has the constant {c.name} without a content of {made.types[c.name]}, in entry {graph.name}",
                fix="store.add(dtype, array) gives the key that a Constant needs",
            )


def _has_content(graph: Graph, c: Constant, store: ConstantStore) -> bool:
    t, found = graph.types[c.name], store.data.get(c.key)
    return found is not None and found.dtype is t.dtype and tuple(map(int_value, t.shape)) == found.array.shape


_FACE = ("name", "inputs", "outputs", "states", "sizes", "guards")


def _face(g: Graph) -> tuple[object, ...]:
    def types(names: tuple[str, ...]) -> tuple[TensorType, ...]:
        return tuple(g.types[n] for n in names)

    return (
        g.name,
        (tuple((replace(i, final=None), i.final is None) for i in g.inputs), types(tuple(i.name for i in g.inputs))),
        (g.output_names, types(g.outputs)),
        tuple((replace(s, final=None), s.final is None, g.types[s.name]) for s in g.states),
        g.syms,
        g.guards,
    )
