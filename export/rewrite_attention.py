"""Attention written out, softmax(q @ k^T * scale + mask) @ v, recognised and made one op.

The probabilities must have no other use: a model that returns them keeps the written-out form.
"""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.expr import const, int_value
from hardtack.codegen.ir.graph import Graph, Lit, Op, Operand, TensorType, make_attrs
from hardtack.codegen.ir.types import DType
from hardtack.export.constants import load_tensor
from hardtack.export.editing import Edit, Facts

_VANISHING = -1e9


@dataclass(frozen=True)
class Match:
    """One attention: the last product, and its parts. `fill`: a mask given as (condition, value to put where it
    holds).
    """

    op: Op
    query: str
    keys_transposed: str
    value: str
    scale: float
    mask: str | None = None
    fill: tuple[str, float] | None = None


def recognise_attention(graph: Graph, store: ConstantStore) -> Graph:
    """Replace every match by an attention op."""
    facts, edit = Facts(graph), Edit(graph)
    for op in graph.ops:
        match = _match(facts, store, op) if op.kind == "matmul" else None
        if match is None:
            edit.keep(op)
        else:
            edit.renamed[op.outputs[0]] = _attention(facts, edit, match)
    return edit.done()


def _through(facts: Facts, value: Operand, kind: str) -> Operand:
    """What stands before an op of `kind` (cast, expand) that only value's user needs."""
    op = facts.made_by(value, kind)
    return op.inputs[0] if op is not None and isinstance(value, str) and _one_user(facts, value) else value


def _match(facts: Facts, store: ConstantStore, op: Op) -> Match | None:
    probabilities, value = op.inputs
    rank = len(facts.shape(op.outputs[0]))
    if rank not in (3, 4) or not isinstance(value, str):
        return None
    scores = _softmax_argument(facts, _through(facts, _through(facts, probabilities, "expand"), "cast"), rank - 1)
    if scores is None:
        return None
    scores = _through(facts, scores, "cast")
    mask: str | None = None
    fill: tuple[str, float] | None = None
    masked = facts.made_by(scores, "add")
    if masked is not None:
        pairs = (masked.inputs, masked.inputs[::-1])
        sides = [(a, b) for a, b in pairs if isinstance(b, str) and _product(facts, store, a) is not None]
        if not sides:
            return None
        scores, mask = sides[0][0], sides[0][1]
    else:
        scores, fill = _filled(facts, scores)
    found = _product(facts, store, scores)
    if found is None:
        return None
    q, k, scale = found
    q, k, factor = _prescaled(facts, store, q, k)
    if mask is not None and not _broadcasts(facts, mask, scores):
        return None
    return Match(op, q, k, value, scale * factor, mask, fill)


def _broadcasts(facts: Facts, mask: str, scores: Operand) -> bool:
    shape, target = facts.shape(mask), facts.shape(scores)
    return len(shape) <= len(target) and all(
        int_value(s) == 1 or s is t for s, t in zip(reversed(shape), reversed(target), strict=False)
    )


def _softmax_argument(facts: Facts, value: Operand, dim: int) -> Operand | None:
    """x where value = exp(x - max(x)) / sum(exp(x - max(x))) over `dim`, and nothing else needs the parts."""
    div = facts.made_by(value, "div")
    if div is None or not isinstance(value, str) or not facts.used_once(value):
        return None
    exp = facts.made_by(div.inputs[0], "exp")
    total = facts.made_by(div.inputs[1], "reduce")
    if exp is None or total is None or total.inputs[0] != div.inputs[0]:
        return None
    sub = facts.made_by(exp.inputs[0], "sub")
    top = facts.made_by(sub.inputs[1], "reduce") if sub is not None else None
    if sub is None or top is None or top.inputs[0] != sub.inputs[0]:
        return None
    kinds_fit = total.attr("kind") == "sum" and top.attr("kind") == "max"
    dims_fit = total.attr("dims") == (dim,) == top.attr("dims") and bool(total.attr("keepdim") and top.attr("keepdim"))
    x = sub.inputs[0]
    only_here = (
        isinstance(x, str) and {u.kind for u in facts.users[x]} == {"sub", "reduce"} and len(facts.users[x]) == 2
    )
    return x if kinds_fit and dims_fit and only_here and x not in facts.results else None


def _filled(facts: Facts, scores: Operand) -> tuple[Operand, tuple[str, float] | None]:
    """where(condition, very negative, scores), as (scores, (condition, number))."""
    where = facts.made_by(scores, "where")
    if where is None:
        return scores, None
    condition, number, rest = where.inputs
    if not isinstance(number, Lit) or not isinstance(condition, str) or float(number.value) > _VANISHING:
        return scores, None
    return (rest, (condition, float(number.value))) if _broadcasts(facts, condition, rest) else (scores, None)


def _number(facts: Facts, store: ConstantStore, x: Operand) -> float | None:
    if isinstance(x, Lit):
        return float(x.value)
    if isinstance(x, str) and x in facts.constants and all(int_value(s) == 1 for s in facts.shape(x)):
        return float(load_tensor(store, facts.constants[x].key).reshape(()))
    return None


def _scaled(facts: Facts, store: ConstantStore, value: Operand) -> tuple[Operand, float]:
    """(x, s) where value = x * s or x / (1 / s) with a number s; (value, 1) otherwise."""
    if not isinstance(value, str) or value in facts.results:
        return value, 1.0
    op = facts.producer.get(value)
    if op is None or op.kind not in ("mul", "div"):
        return value, 1.0
    a, b = op.inputs
    number = _number(facts, store, b)
    if number is None and op.kind == "mul":
        a, b = b, a
        number = _number(facts, store, b)
    if number is None or (op.kind == "div" and number == 0):
        return value, 1.0
    return a, number if op.kind == "mul" else 1.0 / number


def _product(facts: Facts, store: ConstantStore, scores: Operand) -> tuple[str, str, float] | None:
    """(q, k^T, scale) where scores = (q @ k^T) * scale."""
    inner, scale = (
        _scaled(facts, store, scores) if isinstance(scores, str) and _one_user(facts, scores) else (scores, 1.0)
    )
    op = facts.made_by(inner, "matmul")
    if op is None or not isinstance(inner, str) or not _one_user(facts, inner):
        return None
    q, k = op.inputs
    return (q, k, scale) if isinstance(q, str) and isinstance(k, str) else None


def _one_user(facts: Facts, value: str) -> bool:
    """True if value's only users are one op, or the two ops of a softmax that stands right behind."""
    users = facts.users.get(value, [])
    return value not in facts.results and (len(users) == 1 or {u.kind for u in users} == {"sub", "reduce"})


def _prescaled(facts: Facts, store: ConstantStore, q: str, k: str) -> tuple[str, str, float]:
    """q and k^T without a number that they were multiplied by before."""
    plain_q, a = _scaled(facts, store, q)
    plain_k, b = _scaled(facts, store, k)
    return str(plain_q), str(plain_k), a * b


def _attention(facts: Facts, edit: Edit, m: Match) -> str:
    q, kt, v = m.query, m.keys_transposed, m.value
    rank = len(facts.shape(m.op.outputs[0]))
    swap = (*range(rank - 2), rank - 1, rank - 2)
    k = edit.emit("permute", kt, like=m.op, attrs=make_attrs(dims=swap))
    mask = _mask(facts, edit, m)
    out_shape = facts.shape(m.op.outputs[0])
    if rank == 3:
        q, k, v = (_with_heads(edit, t, m.op) for t in (q, k, v))
        if mask is not None and len(edit.types[mask].shape) == 3:
            mask = _with_heads(edit, mask, m.op)
    operands = (q, k, v) if mask is None else (q, k, v, mask)
    out = edit.emit("attention", *operands, like=m.op, attrs=make_attrs(scale=float(m.scale), causal=False))
    return edit.reshape(out, out_shape, m.op)


def _with_heads(edit: Edit, value: str, like: Op) -> str:
    shape = edit.types[str(edit.resolve(value))].shape
    return edit.reshape(value, (shape[0], const(1), *shape[1:]), like)


def _mask(facts: Facts, edit: Edit, m: Match) -> str | None:
    """The mask in the type of the queries: as given, or made from the filled positions."""
    dtype = facts.graph.types[m.query].dtype
    if m.fill is not None:
        condition, number = m.fill
        return edit.emit("where", condition, Lit(_within(number, dtype), dtype), Lit(0.0, dtype), like=m.op)
    if m.mask is None:
        return None
    resolved = str(edit.resolve(m.mask))
    t: TensorType = edit.types[resolved]
    return resolved if t.dtype is dtype else edit.emit("cast", resolved, like=m.op, attrs=make_attrs(dtype=dtype))


def _within(number: float, dtype: DType) -> float:
    """-inf for a number that a half type cannot hold."""
    return float("-inf") if dtype is DType.F16 and number < -65504 else number
