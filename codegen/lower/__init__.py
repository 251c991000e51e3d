"""Lowering: each graph op becomes one or a few nests; views become index arithmetic and leave no nest behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hardtack.codegen.ir.graph import Graph, Op
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Nest
from hardtack.codegen.lower import pointwise
from hardtack.codegen.lower.builder import Lowering, Made, UnsupportedOp
from hardtack.codegen.lower.in_place import written_in_place
from hardtack.codegen.lower.layout import Order, row_major
from hardtack.codegen.machine.machine import Machine
from hardtack.codegen.notes import noted
from hardtack.codegen.tune.choice import NO_TUNING, Tuning


@dataclass(frozen=True)
class Lowered:
    """Nests in execution order, and every buffer that they mention.

    outputs: the buffer of each graph output. finals: name of a state or an input -> the buffer that holds its next
    content, for those that a run changes. in_place: a buffer that takes the memory of another one -> that one; of a
    state that is changed several times a chain (in_place.py).
    """

    graph: Graph
    nests: tuple[Nest, ...]
    buffers: Mapping[str, Buffer]
    prepacks: Mapping[str, Made]
    outputs: tuple[str, ...]
    finals: Mapping[str, str]
    in_place: Mapping[str, str]
    decisions: tuple[Decision, ...] = ()


def lower_graph(
    graph: Graph,
    orders: Mapping[str, Order],
    rules: Mapping[str, Callable[[Lowering, Op], None]],
    machine: Machine,
    hints: Mapping[str, int],
    tuning: Tuning = NO_TUNING,
) -> Lowered:
    """Graph -> nests. `orders` as layout.choose_orders gives them; `rules`: graph op kind -> how it is lowered;
    `tuning`: tables that choose plans of templates.

    Raises UnsupportedOp for a kind without a rule.
    """
    producers = {out: op for op in graph.ops for out in op.outputs}
    buffers = {
        name: Buffer(name, t.dtype, t.shape, orders[name])
        for name, t in graph.types.items()
        if not is_view(producers.get(name))
    }
    in_place, decisions = written_in_place(graph, producers, buffers)
    constants = frozenset(c.name for c in graph.constants)
    low = Lowering(
        graph, producers, buffers, machine, constants=constants, in_place=frozenset(in_place),
        overwritten=frozenset(in_place.values()), hints=hints, decisions=decisions, tuning=tuning,
        quantized={c.name: c.quantized for c in graph.constants if c.quantized is not None},
    )  # fmt: skip
    for op in graph.ops:
        if not is_view(op):
            if op.kind not in rules:
                raise UnsupportedOp(op.origin, machine.name, f"{op.kind} has no kernel")
            with noted("in the lowering of", op.origin):
                rules[op.kind](low, op)
    outputs = _output_buffers(low)
    finals = {x: _memory_of(low, final, orders[x]) for x, final in graph.finals().items() if final != x}
    return Lowered(graph, tuple(low.nests), low.buffers, low.prepacks, outputs, finals, in_place, tuple(low.decisions))


def _memory_of(low: Lowering, value: str, order: Order) -> str:
    """A buffer that holds exactly the value, in that order: a view is copied."""
    if value in low.buffers and value in low.producers and low.buffers[value].order == order:
        return value
    t = low.graph.types[value]
    name = low.fresh(f"{value}.out")
    low.buffers[name] = Buffer(name, t.dtype, t.shape, order)
    origin = low.producers[value].origin if value in low.producers else None
    op = Op("copy", (value,), (), (name,), origin) if origin else Op("copy", (value,), (), (name,))
    pointwise.copy_value(low, value, name, op)
    return name


def _output_buffers(low: Lowering) -> tuple[str, ...]:
    """One buffer an output: inputs, constants, states, views and repeated outputs are copied."""
    taken: set[str] = set()
    names: list[str] = []
    for value in low.graph.outputs:
        name = value if value in low.producers and value in low.buffers and value not in taken else None
        if name is None:
            t = low.graph.types[value]
            name = low.fresh(f"{value}.out")
            low.buffers[name] = Buffer(name, t.dtype, t.shape, row_major(len(t.shape)))
            pointwise.copy_value(low, value, name, Op("copy", (value,), (), (name,)))
        taken.add(name)
        names.append(name)
    return tuple(names)
