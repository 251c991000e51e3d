"""verify_graph: every op's types derived again, each value defined once and before its use, attributes well formed.

A graph that fails is a bug of the stage that made it, never the user's; the error prints the op and its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hardtack.codegen.ir.equalities import equality
from hardtack.codegen.ir.expr import Expr, Sym, as_expr
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.graph import Graph, Guard, Lit, Op, TensorType
from hardtack.codegen.ir.graph_infer import Same, literal_type
from hardtack.codegen.ir.graph_ops import derive
from hardtack.codegen.ir.graph_text import op_lines
from hardtack.codegen.ir.kernel_code import Code
from hardtack.codegen.ir.types import INT_RANGE, DType

_RELATIONS = ("eq", "ne", "le", "lt")


class GraphError(Exception):
    """A malformed Graph: what is wrong, and where."""


def verify_graph(graph: Graph, around: Sequence[Graph] = ()) -> Graph:
    """The same graph, proved well formed. around: of a branch or a body, the graphs that it lies in, whose symbols and
    guards it may use. Raises GraphError."""
    syms = frozenset(b.sym.name for g in around for b in g.syms)
    return _verify(graph, syms, tuple(guard for g in around for guard in g.guards))


def _verify(graph: Graph, outer_syms: frozenset[str], outer_guards: tuple[Guard, ...]) -> Graph:
    syms = outer_syms | {b.sym.name for b in graph.syms}
    _check_interface(graph, syms)
    same = equality((*outer_guards, *graph.guards))
    defined = {i.name for i in graph.inputs} | {c.name for c in graph.constants} | {s.name for s in graph.states}
    unread = [b.sym.name for b in graph.syms if b.input is None]
    syms -= frozenset(unread)
    for position, op in enumerate(graph.ops):
        try:
            if op.kind == "read":
                name = op.attr_of("sym", Sym).name
                _need(unread[:1] == [name], f"reads {name}, and the next symbol is {', '.join(unread[:1]) or 'none'}")
                syms |= {unread.pop(0)}
            _check_op(op, graph, defined, syms, same)
            for _, value in op.attrs:
                if isinstance(value, Graph):
                    _verify(value, syms, (*outer_guards, *graph.guards))
        except (ValueError, GraphError) as error:
            raise GraphError(f"{error}\n{_neighbours(graph, position)}") from error
        defined.update(op.outputs)
    _need(not unread, f"graph {graph.name} reads nowhere: {', '.join(unread)}")
    for name in (*graph.outputs, *graph.finals().values()):
        _need(name in defined, f"graph {graph.name} returns {name}, which nothing defines")
    for name, final in graph.finals().items():
        a, b = graph.types[name], graph.types[final]
        fits = a.dtype is b.dtype and len(a.shape) == len(b.shape) and all(map(same, a.shape, b.shape))
        what = "input" if any(i.name == name for i in graph.inputs) else "state"
        _need(fits, f"{what} {name} is {a}, its final value {b}")
    return graph


def _need(condition: bool, sentence: str) -> None:
    if not condition:
        raise GraphError(sentence)


def _check_interface(graph: Graph, syms: frozenset[str]) -> None:
    names = [i.name for i in graph.inputs] + [c.name for c in graph.constants] + [s.name for s in graph.states]
    names += [o for op in graph.ops for o in op.outputs]
    twice = sorted({n for n in names if names.count(n) > 1}) if len(set(names)) != len(names) else []
    _need(not twice, f"graph {graph.name} defines more than once: {', '.join(twice)}")
    missing = [n for n in names if n not in graph.types]
    _need(not missing, f"graph {graph.name} has no type for: {', '.join(missing)}")
    _need(len(graph.outputs) == len(graph.output_names), f"graph {graph.name}: one output name an output")
    _need(len(set(graph.output_names)) == len(graph.output_names), f"graph {graph.name}: output names repeat")
    for i in graph.inputs:
        _need(len(i.strides) == len(graph.types[i.name].shape), f"input {i.name}: one stride a dim")
    read = [b.input is None for b in graph.syms]
    _need(read == sorted(read), f"graph {graph.name}: symbols that are read stand behind those of inputs")
    for b in graph.syms:
        if b.input is None:
            continue
        shapes = {i.name: graph.types[i.name] for i in graph.inputs}
        _need(b.input in shapes, f"symbol {b.sym} is bound by {b.input}, which is no input")
        t = shapes[b.input]
        ok = t.shape[b.dim] is b.sym if b.dim is not None else t == TensorType(DType.I64, ())
        _need(ok, f"symbol {b.sym} is bound by {b.input} of {t}, dim {b.dim}")
    for g in graph.guards:
        _need(g.relation in _RELATIONS, f"unknown relation {g.relation!r} in guard {g.text!r}")
        _check_syms((g.a, g.b), syms, f"guard {g.text!r}")
    for name in names:
        _check_syms(graph.types[name].shape, syms, f"the type of {name}")


def _check_syms(exprs: tuple[Expr, ...], syms: frozenset[str], where: str) -> None:
    for e in exprs:
        unbound = sorted(s.name for s in free_syms(e) if s.name not in syms)
        _need(not unbound, f"{where} mentions {', '.join(unbound)}, which nothing binds")


def _check_op(op: Op, graph: Graph, defined: set[str], syms: frozenset[str], same: Same) -> None:
    args: list[TensorType] = []
    for x in op.inputs:
        if isinstance(x, str):
            _need(x in defined, f"{op.kind} reads {x} before it is defined")
            args.append(graph.types[x])
            continue
        _check_scalar(x, syms, op)
        args.append(literal_type(x))
    for value in _flat(v for _, v in op.attrs):
        _need(
            value is None or isinstance(value, (bool, int, float, str, DType, Expr, Graph, Code)),
            f"{op.kind} has an attribute of type {type(value).__name__}",
        )
        if isinstance(value, Expr):
            _check_syms((value,), syms, f"an attribute of {op.kind}")
    _need(list(op.attrs) == sorted(op.attrs, key=lambda kv: kv[0]), f"{op.kind}: attributes are not sorted")
    for name in op.outputs:
        _check_syms(graph.types[name].shape, syms, f"the type of {name}")
    stated = tuple(graph.types[o] for o in op.outputs)
    derived = derive(op, tuple(args), stated, same)
    _need(len(derived) == len(stated), f"{op.kind} has {len(stated)} outputs, expected {len(derived)}")
    for name, want, got in zip(op.outputs, derived, stated, strict=True):
        fits = want.dtype is got.dtype and len(want.shape) == len(got.shape) and all(map(same, want.shape, got.shape))
        _need(fits, f"{name} is stated as {got}, {op.kind} gives {want}")


def _check_scalar(x: Lit | Expr, syms: frozenset[str], op: Op) -> None:
    if isinstance(x, Expr):
        _check_syms((as_expr(x),), syms, f"an operand of {op.kind}")
        return
    kind_fits = (
        isinstance(x.value, bool)
        if x.dtype is DType.BOOL
        else isinstance(x.value, float)
        if x.dtype.is_float
        else isinstance(x.value, int) and not isinstance(x.value, bool)
    )
    _need(kind_fits, f"literal {x.value!r} is not a {x.dtype}")
    if x.dtype in INT_RANGE or x.dtype.is_float8:
        lo, hi = INT_RANGE.get(x.dtype, (0, 255))
        _need(lo <= x.value <= hi, f"literal {x.value} does not fit {x.dtype}")


def _flat(values: Iterator[object]) -> Iterator[object]:
    for v in values:
        if isinstance(v, tuple):
            yield from _flat(iter(v))
        else:
            yield v


def _neighbours(graph: Graph, position: int, reach: int = 2) -> str:
    """The op at `position`, marked, with the ops around it."""
    lines: list[str] = []
    for i in range(max(0, position - reach), min(len(graph.ops), position + reach + 1)):
        mark = ">" if i == position else " "
        lines.append(f"{mark} {op_lines(graph.ops[i], graph)[0]}")
    return "\n".join(lines)
