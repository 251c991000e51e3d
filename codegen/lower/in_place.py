"""Which writes take the memory of what they write to: a state, an input that is written, or what an earlier write made.

A write to a part of a value, such as a row of a cache, gives another value in the graph. Where nothing reads the old
one any more, the new one is the old one's memory with the part changed. So a cache of all layers, written once a layer,
is a chain of values in one memory, which starts at the state and ends at its next content:

    k -> put.1 -> put.2 -> ... -> final

Until nests are grouped each value of a chain has a buffer of its own, so that store_verify.py can tell which one a nest
means and shows that it is read before the next one is written. From then on the chain is one buffer, and what reads and
writes it keeps its order as with any buffer (one_name).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hardtack.codegen.ir.graph import Graph, Op, uses
from hardtack.codegen.ir.graph_ops import changed, is_view
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.loops import Buffer, Load, LoopNest, Store
from hardtack.codegen.ir.nests import Nest, ReadNest, TemplateNest
from hardtack.codegen.lower.views import base_of

AT_THE_END = "the end of the run"


def written_in_place(
    graph: Graph, producers: Mapping[str, Op], buffers: Mapping[str, Buffer]
) -> tuple[dict[str, str], list[Decision]]:
    """value -> the one whose memory it takes; and why others of a state's chain take none."""
    readers = _readers(graph, producers)
    held = _held(graph)
    found: dict[str, str] = {}
    decisions: list[Decision] = []
    writes = [(k, op, *change) for k, op in enumerate(graph.ops) for change in changed(op).items()]
    for k, op, out, place in writes:
        source = op.inputs[place]
        if not isinstance(source, str) or not (source in held or source in changed(producers.get(source))):
            continue
        other = _reads_it_still(op, place, readers.get(source, ()), k, source, producers)
        if other is not None:
            decisions.append(_copied(out, source, f"{other} reads {source} as it was"))
        elif buffers[source].order != buffers[out].order:
            decisions.append(_copied(out, source, "the two lie in memory in another order"))
        else:
            found[out] = source
    for name, final in held.items():
        end, first = name, None
        while (step := next((v for v, x in found.items() if x == end), None)) is not None:
            end, first = step, first or step
        if first is not None and (end != final or end in graph.outputs):
            why = "it is an output, too" if end == final else f"the next content of {name} is not {end}"
            decisions.append(_copied(first, name, why))
            del found[first]
    return found, decisions


def _held(graph: Graph) -> dict[str, str | None]:
    """What has a memory that outlives the run and may be written to -> its next content."""
    return {**{s.name: s.final for s in graph.states}, **graph.finals()}


def _copied(out: str, source: str, why: str) -> Decision:
    return Decision("in place", out, source, False, f"{source} is copied: {why}")


def _readers(graph: Graph, producers: Mapping[str, Op]) -> dict[str, list[tuple[int, str]]]:
    """value in memory -> the places in the order of the graph, and the names, of the ops that read it or a view of it.
    What is read when the run ends is read behind all ops."""
    found: dict[str, list[tuple[int, str]]] = {}
    for k, op in enumerate(graph.ops):
        if not is_view(op):
            for name in uses(op):
                found.setdefault(base_of(producers, name), []).append((k, f"{op.kind} {', '.join(op.outputs)}"))
    finals = [final for name, final in graph.finals().items() if final != name]
    kept = [name for name, final in _held(graph).items() if final in (None, name)]
    for name in (*graph.outputs, *finals, *kept):
        found.setdefault(base_of(producers, name), []).append((len(graph.ops), AT_THE_END))
    return found


def _reads_it_still(
    op: Op, operand: int, readers: Iterable[tuple[int, str]], place: int, source: str, producers: Mapping[str, Op]
) -> str | None:
    """What reads the value when the op, at a place in the order of the graph, has begun to write to its operand; None
    if nothing."""
    others = (x for k, x in enumerate(op.inputs) if k != operand and isinstance(x, str))
    if any(base_of(producers, x) == source for x in others):
        return "the write itself"
    return next((name for k, name in readers if k > place), None)


def root_of(in_place: Mapping[str, str], buffer: str) -> str:
    """The first of the values in a buffer's memory."""
    while buffer in in_place:
        buffer = in_place[buffer]
    return buffer


def last_names(in_place: Mapping[str, str]) -> dict[str, str]:
    """Each value of a chain but the last -> the last, whose name stands for the memory once nests are grouped."""
    following = {old: new for new, old in in_place.items()}
    found: dict[str, str] = {}
    for name in following:
        end = name
        while end in following:
            end = following[end]
        found[name] = end
    return found


def one_name(nests: Sequence[Nest], names: Mapping[str, str]) -> tuple[Nest, ...]:
    """The nests, buffers called as `names` says."""
    return tuple(n if not (n.reads() | n.writes()) & names.keys() else _called(n, names) for n in nests)


def _called(nest: Nest, names: Mapping[str, str]) -> Nest:
    def named(buffer: str) -> str:
        return names.get(buffer, buffer)

    if isinstance(nest, LoopNest):
        body = (replace(s, buffer=named(s.buffer)) if isinstance(s, (Load, Store)) else s for s in nest.body)
        return replace(nest, body=tuple(body))
    if isinstance(nest, TemplateNest):
        operands = tuple(replace(o, buffer=named(o.buffer)) for o in nest.operands)
        return replace(nest, operands=operands, result=named(nest.result), results=tuple(map(named, nest.results)))
    if isinstance(nest, ReadNest):
        return replace(nest, source=named(nest.source))
    predicate = None if nest.predicate is None else named(nest.predicate)
    operands_, results = (tuple(map(named, x)) for x in (nest.operands, nest.results))
    return replace(nest, predicate=predicate, operands=operands_, results=results)
