"""Attention written out, softmax(q @ k^T * scale + mask) @ v, recognised and made one op.

The probabilities must have no other use: a model that returns them keeps the written-out form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.expr import const, int_value, product
from hardtack.codegen.ir.graph import Graph, Lit, Op, Operand, make_attrs
from hardtack.codegen.ir.types import DType
from hardtack.exporter.constants import load_tensor
from hardtack.exporter.rewrite.edit import Edit, Facts

_VANISHING = -1e9


@dataclass(frozen=True)
class Scores:
    """scale * (query @ keys) + the sum of factor * mask, and very negative where a fill's condition holds.

    keys: the keys transposed, as the product has them.
    """

    query: str
    keys: str
    scale: float
    masks: tuple[tuple[str, float], ...] = ()
    fills: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Match:
    """One attention: the last product, its scores and its values."""

    op: Op
    scores: Scores
    value: str


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
    if rank < 3 or not isinstance(value, str):
        return None
    argument = _softmax_argument(facts, _through(facts, _through(facts, probabilities, "expand"), "cast"), rank - 1)
    if argument is None:
        return None
    scores = _scores(facts, store, _through(facts, argument, "cast"))
    if scores is None or (rank > 4 and (scores.masks or scores.fills)):
        return None
    query, keys, factor = _prescaled(facts, store, scores.query, scores.keys)
    return Match(op, replace(scores, query=query, keys=keys, scale=scores.scale * factor), value)


def _scores(facts: Facts, store: ConstantStore, value: Operand) -> Scores | None:
    """Take scales, masks and fills off, outermost first, until the product of queries and keys appears."""
    factor, target = 1.0, value
    masks: list[tuple[str, float]] = []
    fills: list[tuple[str, float]] = []
    while isinstance(value, str) and _one_user(facts, value):
        op = facts.producer.get(value)
        if op is None:
            return None
        if op.kind == "matmul":
            q, k = op.inputs
            both = isinstance(q, str) and isinstance(k, str)
            return Scores(str(q), str(k), factor, tuple(masks), tuple(fills)) if both else None
        inner, number = _scaled(facts, store, value)
        if inner != value:
            value, factor = inner, factor * number
            continue
        inner, fill = _filled(facts, value)
        if fill is not None:
            fills.append((fill[0], fill[1] * factor))
            value = inner
            continue
        sides = _added_mask(facts, op) if op.kind == "add" else None
        if sides is None or not _broadcasts(facts, sides[1], target):
            return None
        value = sides[0]
        masks.append((sides[1], factor))
    return None


def _added_mask(facts: Facts, op: Op) -> tuple[str, str] | None:
    """(scores, mask): the side of a sum that leads to a product is the scores."""
    for a, m in (op.inputs, op.inputs[::-1]):
        if isinstance(a, str) and isinstance(m, str) and _leads_to_product(facts, a):
            return a, m
    return None


def _leads_to_product(facts: Facts, value: Operand, depth: int = 8) -> bool:
    """True if a matmul stands behind a chain of scales, masks and fills."""
    op = facts.producer.get(value) if isinstance(value, str) else None
    if op is None or depth == 0:
        return False
    if op.kind == "matmul":
        return True
    passes = op.kind in ("mul", "div", "add", "where", "cast")
    return passes and any(_leads_to_product(facts, x, depth - 1) for x in op.inputs)


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
        store.inlined.update(facts.constants[x].tensors)
        return float(load_tensor(store, facts.constants[x].key).reshape(()))
    return None


def _scaled(facts: Facts, store: ConstantStore, value: Operand) -> tuple[Operand, float]:
    """(x, s) where value = x * s or x / (1 / s) with a number s; (value, 1) otherwise."""
    if not isinstance(value, str) or value in facts.results:
        return value, 1.0
    narrow = facts.made_by(value, "cast")
    # a half type times a number is of f32 and rounded
    op = facts.producer.get(value if narrow is None else str(narrow.inputs[0]))
    if op is None or op.kind not in ("mul", "div"):
        return value, 1.0
    a, b = op.inputs
    number = _number(facts, store, b)
    if number is None and op.kind == "mul":
        a, b = b, a
        number = _number(facts, store, b)
    if number is None or (op.kind == "div" and number == 0):
        return value, 1.0
    if narrow is not None:
        wide = facts.made_by(a, "cast")
        if wide is None or facts.graph.type_of(wide.inputs[0]).dtype is not facts.graph.types[value].dtype:
            return value, 1.0
        a = wide.inputs[0]
    return a, number if op.kind == "mul" else 1.0 / number


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
    q, v = m.scores.query, m.value
    rank = len(facts.shape(m.op.outputs[0]))
    swap = (*range(rank - 2), rank - 1, rank - 2)
    k = edit.emit("permute", m.scores.keys, like=m.op, attrs=make_attrs(dims=swap))
    mask = _mask(facts, edit, m)
    out_shape = facts.shape(m.op.outputs[0])
    if rank != 4:
        q, k, v = (_four_dims(edit, t, m.op) for t in (q, k, v))
        if mask is not None and len(edit.types[mask].shape) == 3:
            mask = _four_dims(edit, mask, m.op)
    operands = (q, k, v) if mask is None else (q, k, v, mask)
    attrs = make_attrs(scale=float(m.scores.scale), causal=False)
    return edit.reshape(edit.emit("attention", *operands, like=m.op, attrs=attrs), out_shape, m.op)


def _four_dims(edit: Edit, value: str, like: Op) -> str:
    """[B, L, E] as [B, 1, L, E]; leading dims of more than four merged."""
    shape = edit.types[str(edit.resolve(value))].shape
    if len(shape) == 3:
        return edit.reshape(value, (shape[0], const(1), *shape[1:]), like)
    return edit.reshape(value, (product(shape[:-3]), *shape[-3:]), like)


def _mask(facts: Facts, edit: Edit, m: Match) -> str | None:
    """The sum of all masks and fills, in the type of the queries; None if there are none."""
    dtype = facts.graph.types[m.scores.query].dtype
    parts: list[str] = []
    for mask, factor in m.scores.masks:
        name = str(edit.resolve(mask))
        if edit.types[name].dtype is not dtype:
            name = edit.emit("cast", name, like=m.op, attrs=make_attrs(dtype=dtype))
        parts.append(name if factor == 1 else edit.emit("mul", name, Lit(factor, dtype), like=m.op))
    for condition, number in m.scores.fills:
        parts.append(edit.emit("where", condition, Lit(_within(number, dtype), dtype), Lit(0.0, dtype), like=m.op))
    total = parts[0] if parts else None
    for part in parts[1:]:
        total = edit.emit("add", str(total), part, like=m.op)
    return total


def _within(number: float, dtype: DType) -> float:
    """-inf for a number that a half type cannot hold."""
    return float("-inf") if dtype is DType.F16 and number < -65504 else number
