"""A Graph as text: one line a value, stable between runs, the same for equal graphs.

graph bert
sym   s0 = input_ids.size(0), 0 <= s0
input input_ids: i64[s0, s1] strides [s1, 1]
const encoder.weight: f32[384, 384] 9f86d081
state cache.0: f32[1, 4, 64, 8] -> index_put_1
view_3: f32[s0*s1, 384] = reshape(add_2)                                # view at model.py:31 in encoder.0
guard s0 == s2
return view_9 as 0
"""

from __future__ import annotations

from hardtack.codegen.ir.expr import Expr, to_text
from hardtack.codegen.ir.graph import Constant, Graph, Guard, Op, Operand, QuantizedStep, SymBinding
from hardtack.codegen.ir.types import DType

_RELATIONS = {"eq": "==", "ne": "!=", "le": "<=", "lt": "<"}


def to_text_graph(graph: Graph, origins: bool = True) -> str:
    """The whole graph; with `origins`, each op's source line as a comment. Nested graphs are indented below their
    op.
    """
    lines = [f"graph {graph.name}"]
    lines += [f"sym   {_binding(b)}" for b in graph.syms]
    for i in graph.inputs:
        final = "" if i.final is None else f" -> {i.final}"
        lines.append(f"input {i.name}: {graph.types[i.name]} strides [{', '.join(map(to_text, i.strides))}]{final}")
    for c in graph.constants:
        lines.append(f"const {c.name}: {graph.types[c.name]} {c.key[:8]}{_quantized_text(c)}")
    for s in graph.states:
        init = "zeros" if s.init is None else s.init[:8]
        lines.append(f"state {s.name}: {graph.types[s.name]} {init} -> {s.final or 'unchanged'}")
    lines += [f"guard {guard_text(g)}" for g in graph.guards]
    for op in graph.ops:
        lines += op_lines(op, graph, origins)
    lines += [f"return {v} as {n}" for v, n in zip(graph.outputs, graph.output_names, strict=True)]
    return "\n".join(lines) + "\n"


def _quantized_text(c: Constant) -> str:
    """` = i8 sub [1, 32] mul [1, 32]`: the dtype of the codes, then each step and its runs."""
    if c.quantized is None:
        return ""
    dtype = f"{c.quantized.dtype}" if c.quantized.bits == 8 else f"{c.quantized.dtype} of {c.quantized.bits} bits"
    return " ".join((f" = {dtype}", *map(step_text, c.quantized.steps)))


def step_text(s: QuantizedStep) -> str:
    """`mul [1, 32]`, the numbers' type where that is a float of 8 bits, whether they have a factor, and what the step
    is rounded to where that is no f32."""
    numbers = f" of {s.number}" if s.number.is_float8 else ""
    factor = " with a factor" if s.factor is not None else ""
    return f"{s.kind} {list(s.runs)}{numbers}{factor}" + (f" to {s.result}" if s.result is not DType.F32 else "")


def guard_text(guard: Guard) -> str:
    """`a == b`, in symbols."""
    return f"{to_text(guard.a)} {_RELATIONS[guard.relation]} {to_text(guard.b)}"


def op_lines(op: Op, graph: Graph, origins: bool = True) -> list[str]:
    """The op's line, then the lines of graphs in its attributes."""
    outputs = ", ".join(f"{o}: {graph.types.get(o, '?')}" for o in op.outputs)
    args = [operand_text(x) for x in op.inputs]
    nested = [(k, v) for k, v in op.attrs if isinstance(v, Graph)]
    args += [f"{k}={_attr_text(v)}" for k, v in op.attrs if not isinstance(v, Graph)]
    line = f"{outputs} = {op.kind}({', '.join(args)})" if outputs else f"{op.kind}({', '.join(args)})"
    if origins and (op.origin.op or op.origin.file):
        line = f"{line:<80}  # {op.origin}"
    lines = [line]
    for name, inner in nested:
        lines.append(f"  {name}:")
        lines += ["    " + text for text in to_text_graph(inner, origins).splitlines()]
    return lines


def operand_text(operand: Operand) -> str:
    """A value's name, a literal with its dtype, or an expression in braces."""
    return "{" + to_text(operand) + "}" if isinstance(operand, Expr) else str(operand)


def _attr_text(value: object) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_attr_text, value)) + ")"
    return to_text(value) if isinstance(value, Expr) else str(value)


def _binding(b: SymBinding) -> str:
    source = f"{b.input}.size({b.dim})" if b.dim is not None else f"value of {b.input}"
    source = "read" if b.input is None else source
    top = "" if b.sym.hi is None else f" <= {b.sym.hi}"
    return f"{b.sym.name} = {source}, {b.sym.lo} <= {b.sym.name}{top}"
