"""Sizes of 0 and 1 at which a tensor of the program has other sizes than torch says.

torch computes sizes for dynamic sizes from 2 on: x[:1] has one row, x[:-1] one row less than x. Where x is empty that
is not so, and what the model makes of these numbers is wrong there. So each op of the program runs once more at these
sizes, without data, and where its results have other sizes than torch wrote down, runs.py tries the model.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from hardtack.exporter.capture.conditions import shape_env
from hardtack.exporter.capture.small.sizes import SMALL, Decision, Trial
from hardtack.exporter.errors import SourceLine
from hardtack.exporter.origin import source_of
from hardtack.exporter.sizes.shapes import NO_NUMBER

Assignment = dict[sympy.Symbol, sympy.Integer]


def shape_decisions(ep: ExportedProgram) -> Iterator[Decision]:
    """That a size of the inputs of a program, not yet decomposed, is not one at which torch's sizes are wrong: for each
    dynamic size alone, and all together.
    """
    env = shape_env(ep)
    if env is None:
        return
    for small in small_sizes_of(ep, SMALL):
        where = _first_other(ep, {**env.backed_var_to_val, **small})
        if where is not None:
            yield apart_from(small, source_of(where))


def small_sizes_of(ep: ExportedProgram, sizes: Sequence[int]) -> list[Assignment]:
    """Each of these sizes for each dynamic size of the inputs alone, the others as in the example, and for all."""
    symbols = input_symbols(ep)
    alone: list[Assignment] = [{s: sympy.Integer(n)} for s in symbols for n in sizes]
    return alone + ([{s: sympy.Integer(n) for s in symbols} for n in sizes] if len(symbols) > 1 else [])


def apart_from(small: Assignment, where: SourceLine | None) -> Decision:
    """That the sizes are not these, which nobody asked."""
    trial: Trial = tuple((str(s), int(n)) for s, n in small.items())
    return Decision(sympy.Or(*(sympy.Ne(s, n, evaluate=False) for s, n in small.items())), where, (trial,), asked=False)


def with_other_shapes(ep: ExportedProgram, decisions: Iterable[Decision]) -> Iterator[Decision]:
    """Of comparisons of several sizes that torch made for itself, those that fail where its shapes are wrong, with
    these sizes alone: elsewhere they change nothing that a program could tell.
    """
    env = shape_env(ep)
    if env is None:
        return
    symbols = {str(s): env.replace(s) for s in env.var_to_range}
    known: dict[Trial, bool] = {}
    for decision in decisions:
        for trial in decision.fails:
            if trial not in known:
                small = {symbols[name]: sympy.Integer(n) for name, n in trial if name in symbols}
                known[trial] = len(trial) > 1 and _first_other(ep, {**env.backed_var_to_val, **small}) is not None
        fails = tuple(t for t in decision.fails if known[t])
        if fails:
            yield replace(decision, fails=fails)


def input_symbols(ep: ExportedProgram) -> list[sympy.Symbol]:
    found: dict[sympy.Symbol, None] = {}
    for node in ep.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        for size in sizes:
            if isinstance(size, torch.SymInt):
                found.update(dict.fromkeys(sorted(size.node.expr.free_symbols, key=str)))
    return list(found)


def _first_other(ep: ExportedProgram, at: Assignment) -> Node | None:
    """The first node whose results have other sizes than torch says at these sizes of the inputs, or that has none."""
    nodes: list[Node] = [n for n in ep.graph.nodes if n.op != "output"]
    values: dict[Node, Any] = {}
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), _quiet():
        for node in nodes:
            try:
                values[node] = _value(node, values, at)
            except Exception:  # whatever the op raises: it does not take these sizes
                return node
    return None


def _value(node: Node, values: dict[Node, Any], at: Assignment) -> Any:
    """Raises _Impossible where torch says something else than what the op gives."""
    stated = pytree.tree_map(lambda x: _stated(x, at), node.meta.get("val"))
    if node.op != "call_function" or not _runs(node):
        return stated
    args, kwargs = pytree.tree_map_only(Node, values.__getitem__, (node.args, node.kwargs))
    found = node.target(*args, **kwargs)  # type: ignore[operator]
    if _sizes(found) != _sizes(stated):
        raise _Impossible
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch logs of ops that do not take a size: it is what is asked here."""
    log = logging.getLogger(FakeTensorMode.__module__)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _runs(node: Node) -> bool:
    """False for what takes the program's other graphs, and for what only data can tell."""
    graphs = any(a.op == "get_attr" for a in node.all_input_nodes)
    return not graphs and isinstance(node.target, torch._ops.OpOverload) and not _depends_on_data(node)


def _depends_on_data(node: Node) -> bool:
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    kinds = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
    return any(free_unbacked_symbols(v) for v in pytree.tree_leaves(values) if isinstance(v, kinds))


def _stated(x: Any, at: Assignment) -> Any:
    """What torch says of a value at these sizes: a tensor without data, or a number. Raises _Impossible."""
    if not isinstance(x, torch.Tensor):
        return _number(x, at)
    sizes = [_number(n, at) for n in x.shape]
    if any(isinstance(n, int) and n < 0 for n in sizes):
        raise _Impossible
    return x if any(n is None for n in sizes) else torch.empty(sizes, dtype=x.dtype, device=x.device)


class _Impossible(Exception):
    """A size below 0, a number divided by 0, or an op's result of another size."""


def _number(x: Any, at: Assignment) -> Any:
    """Of torch's symbolic numbers; None for the value of a tensor. Others are as they are."""
    if not isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return x
    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    try:
        found = x.node.expr.xreplace(at)
        return None if found.free_symbols else kinds[type(x)](found)
    except NO_NUMBER as error:
        raise _Impossible from error


def _sizes(value: Any) -> list[Any]:
    leaves = pytree.tree_leaves(value)
    return [tuple(t.shape) for t in leaves if isinstance(t, torch.Tensor)]
