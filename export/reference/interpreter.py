"""Run a Graph op by op in eager torch: the oracle for every later stage, and the interpreter of constant folding.

The meaning of each kind is that of codegen.ir.graph's grammar; the functions here are as plain as they can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

import hardtack.exporter.reference.custom
import hardtack.exporter.reference.nn  # noqa: F401  (both add their kinds to KERNELS)
from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.expr import Sym
from hardtack.codegen.ir.expr_walk import evaluate, free_syms
from hardtack.codegen.ir.graph import Graph, Op, Operand, TensorType, uses
from hardtack.exporter.constants import load_tensor, parts_of
from hardtack.exporter.dtypes import TORCH_DTYPE
from hardtack.exporter.reference.control_flow import run_control
from hardtack.exporter.reference.ops import KERNELS
from hardtack.exporter.reference.step import Env, ReferenceFailure, Step


def bind_sizes(graph: Graph, inputs: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """The symbols' values for these inputs. ReferenceFailure for inputs of a wrong shape, dtype, or that break a
    guard.
    """
    sizes: dict[str, int] = {}
    for b in graph.syms:
        if b.input is None:
            continue
        given = inputs[b.input]
        size = sizes[b.sym.name] = int(given) if b.dim is None else given.shape[b.dim]
        if size < b.sym.lo or (b.sym.hi is not None and size > b.sym.hi):
            raise ReferenceFailure(f"{b.sym.name} is {size}, expected {b.sym.lo} to {b.sym.hi}")
    for i in graph.inputs:
        want, given = graph.types[i.name], inputs[i.name]
        shape = [evaluate(s, sizes) for s in want.shape]
        if list(given.shape) != shape or given.dtype != TORCH_DTYPE[want.dtype]:
            raise ReferenceFailure(f"input {i.name} is {given.dtype} {list(given.shape)}, expected {want} = {shape}")
    _check_guards(graph, sizes)
    return sizes


def _check_guards(graph: Graph, sizes: Env) -> None:
    """ReferenceFailure for a guard on known sizes that fails."""
    compare = {"eq": int.__eq__, "ne": int.__ne__, "le": int.__le__, "lt": int.__lt__}
    for g in graph.guards:
        if any(s.name not in sizes for s in free_syms(g.a) | free_syms(g.b)):
            continue
        a, b_ = evaluate(g.a, sizes), evaluate(g.b, sizes)
        if not compare[g.relation](a, b_):
            raise ReferenceFailure(f"guard {g.text} fails: {a}, {b_}")


def run(
    graph: Graph,
    store: ConstantStore,
    inputs: Mapping[str, torch.Tensor],
    states: Mapping[str, torch.Tensor] | None = None,
    sizes: Env | None = None,
) -> dict[str, torch.Tensor]:
    """Every value of the graph, by name.

    inputs: one tensor an input; complex ones stand for their pairs. states: their content at the start; those not given
    start with `init`. `sizes` serves nested graphs, whose symbols are bound outside. Raises ReferenceFailure for inputs
    that the graph does not take, and for an assert that fails.
    """
    inputs = _as_pairs(inputs)
    bound = dict(sizes) if sizes is not None else bind_sizes(graph, inputs)
    values = _given(graph, store, inputs, states or {}, bound)
    for op in graph.ops:
        _compute(op, graph, values, bound, store)
    return values


def results(graph: Graph, store: ConstantStore, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """The graph's outputs, in order, with states as they are in a new session."""
    return results_and_states(graph, store, inputs, {})[0]


def results_and_states(
    graph: Graph, store: ConstantStore, inputs: Mapping[str, torch.Tensor], states: Mapping[str, torch.Tensor]
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """The graph's outputs, in order, and what its states are behind the run. states: as for `run`. Of the other values,
    each is dropped behind its last reader."""
    inputs = _as_pairs(inputs)
    sizes = bind_sizes(graph, inputs)
    values = _given(graph, store, inputs, states, sizes)
    ends = {s.name: s.name if s.final is None else s.final for s in graph.states}
    last = {x: k for k, op in enumerate(graph.ops) for x in (*op.outputs, *uses(op))}
    for k, op in enumerate(graph.ops):
        _compute(op, graph, values, sizes, store)
        for x in {*op.outputs, *uses(op)}.difference(graph.outputs, ends.values()):
            if last[x] == k:
                del values[x]
    return outputs(graph, values), {name: values[end] for name, end in ends.items()}


def _as_pairs(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: parts_of(t) if t.is_complex() else t for name, t in inputs.items()}


def _given(
    graph: Graph,
    store: ConstantStore,
    inputs: Mapping[str, torch.Tensor],
    states: Mapping[str, torch.Tensor],
    sizes: Env,
) -> dict[str, torch.Tensor]:
    """The values that no op makes."""
    values = dict(inputs)
    for c in graph.constants:
        values[c.name] = load_tensor(store, c.key)
    for s in graph.states:
        values[s.name] = _state(graph, store, s.name, s.init, states, sizes)
    return values


def _compute(
    op: Op, graph: Graph, values: dict[str, torch.Tensor], sizes: dict[str, int], store: ConstantStore
) -> None:
    """Put the outputs of one op to the values; what it reads, to the sizes."""
    args = [values[x] if isinstance(x, str) else x for x in op.inputs]
    if op.kind == "read":
        sym, size = op.attr_of("sym", Sym), int(Step(op, args, (), sizes).args[0])
        if size < sym.lo or (sym.hi is not None and size > sym.hi):
            raise ReferenceFailure(f"{sym.name} is {size}, expected {sym.lo} to {sym.hi}")
        sizes[sym.name] = size
        _check_guards(graph, sizes)
        return
    types = tuple(graph.types[o] for o in op.outputs)
    values.update(zip(op.outputs, run_op(op, args, types, sizes, store), strict=True))


def _state(
    graph: Graph, store: ConstantStore, name: str, init: str | None, given: Mapping[str, torch.Tensor], sizes: Env
) -> torch.Tensor:
    if name in given:
        return given[name]
    if init is not None:
        return load_tensor(store, init).clone()
    t = graph.types[name]
    return torch.zeros([evaluate(s, sizes) for s in t.shape], dtype=TORCH_DTYPE[t.dtype])


def run_op(
    op: Op,
    args: Sequence[torch.Tensor | Operand],
    types: Sequence[TensorType],
    sizes: Env,
    store: ConstantStore | None = None,
) -> tuple[torch.Tensor, ...]:
    """The outputs of one op. args: a tensor for each value operand; literals and Exprs as they stand in the graph."""
    step = Step(op, args, types, sizes)
    if op.kind in ("cond", "while"):

        def nested(graph: Graph, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            inputs = {i.name: a for i, a in zip(graph.inputs, given, strict=True)}
            return outputs(graph, run(graph, store or ConstantStore(), inputs, sizes=sizes))

        return run_control(step, nested)
    found = KERNELS[op.kind](step)
    results = found if isinstance(found, tuple) else (found,)
    for result, t in zip(results, types, strict=True):
        shape = [evaluate(s, sizes) for s in t.shape]
        if list(result.shape) != shape or result.dtype != TORCH_DTYPE[t.dtype]:
            raise ReferenceFailure(f"{op.kind} gave {result.dtype} {list(result.shape)}, its type is {t} = {shape}")
    return results


def outputs(graph: Graph, values: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """The graph's outputs, in order, from what `run` gave."""
    return [values[o] for o in graph.outputs]
