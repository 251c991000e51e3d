"""A graph whose caches are codes with a scale for each row: quantised where rows are written, and read as codes by
attention, as numbers by all else.

A value of a cache, a view of it, or what is picked of it is two values then: codes, and scales of the same rank with 1
where a row's elements lie. Numbers are made of both at the op that reads them, of as much as it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.expr import ONE, Expr, product
from hardtack.codegen.ir.graph import Graph, Lit, Op, State, TensorType, make_attrs, uses
from hardtack.codegen.ir.graph_infer_nn import attention_operands
from hardtack.codegen.ir.types import DType
from hardtack.exporter.constants import load_tensor, store_tensor
from hardtack.exporter.dtypes import TORCH_DTYPE
from hardtack.exporter.precision.caches import SCALE, Cache, written_values
from hardtack.exporter.rewrite.edit import Edit, index_shape
from hardtack.exporter.rewrite.rules import CLEANING, Rule, simplify

LARGEST = {DType.I8: 127.0, DType.F8E4M3: 448.0}
"""The number that the largest element of a row becomes."""


@dataclass
class Reads:
    """What reads the caches of a model. num_attentions: that take codes; widened: the other ops, by where they stand,
    for which numbers are made first."""

    num_attentions: int = 0
    widened: list[str] = field(default_factory=list)


def with_codes(graph: Graph, store: ConstantStore, caches: Sequence[Cache], reads: Reads) -> Graph:
    """The graph with those of the caches that it has as states of codes and of scales. Their first contents are put to
    the store, what reads them to `reads`."""
    names = {s.name for s in graph.states}
    here = [c for c in caches if c.name in names]
    if not here:
        return graph
    return simplify(graph, store, (Rule("cache", lambda g, s: _Caches(g, here, reads).rewritten(s)), *CLEANING))


def quantised_rows(rows: torch.Tensor, codes: DType) -> tuple[torch.Tensor, torch.Tensor]:
    """(codes, scales) of rows along the last dimension, as a run makes them."""
    wide = rows.to(TORCH_DTYPE[SCALE])
    scales = wide.abs().amax(-1, keepdim=True) / LARGEST[codes]
    found = (wide / torch.where(scales == 0, 1.0, scales)).clamp(-LARGEST[codes], LARGEST[codes])
    return (found.round() if codes is DType.I8 else found).to(TORCH_DTYPE[codes]), scales


@dataclass(frozen=True)
class _Pair:
    """codes, scales: values. row: the dimension along which elements have one scale. dtype: of the numbers."""

    codes: str
    scales: str
    row: int
    dtype: DType


class _Caches:
    """The edit of one graph. pairs: what the graph's values of caches have become."""

    def __init__(self, graph: Graph, caches: Sequence[Cache], reads: Reads) -> None:
        self._reads = reads
        self._graph, self._caches = graph, {c.name: c for c in caches}
        self._edit = Edit(graph)
        self._chains = {x: c for c in caches for x in written_values(c.name, graph)}
        self._pairs: dict[str, _Pair] = {}

    def rewritten(self, store: ConstantStore) -> Graph:
        for c in self._caches.values():
            shape = self._graph.types[c.name].shape
            self._edit.types[c.name] = TensorType(c.codes, shape)
            self._edit.types[c.scales] = TensorType(SCALE, (*shape[:-1], ONE))
            self._pairs[c.name] = _Pair(c.name, c.scales, len(shape) - 1, c.dtype)
        for op in self._graph.ops:
            self._take(op)
        outputs = tuple(self._at_the_end(o, "an output") for o in self._graph.outputs)
        states = tuple(x for s in self._graph.states for x in self._states_of(s, store))
        inputs = tuple(
            i if i.final is None else replace(i, final=self._at_the_end(i.final, f"input {i.name}"))
            for i in self._graph.inputs
        )
        made = self._edit.done()
        inputs = tuple(i if i.final is None else replace(i, final=str(self._edit.resolve(i.final))) for i in inputs)
        made = replace(made, inputs=inputs)
        return replace(made, outputs=tuple(str(self._edit.resolve(o)) for o in outputs), states=states)

    def _states_of(self, s: State, store: ConstantStore) -> tuple[State, ...]:
        cache = self._caches.get(s.name)
        if cache is None:
            return (s if s.final is None else replace(s, final=self._at_the_end(s.final, f"state {s.name}")),)
        final = None if s.final is None else self._pairs[s.final]
        inits: tuple[str | None, str | None] = (None, None)
        if s.init is not None:
            codes, scales = quantised_rows(load_tensor(store, s.init), cache.codes)
            inits = (store_tensor(store, codes), store_tensor(store, scales))
        return (
            State(cache.name, inits[0], None if final is None else final.codes),
            State(cache.scales, inits[1], None if final is None else final.scales),
        )

    def _at_the_end(self, value: str, reader: str) -> str:
        """What a run leaves of a value: its numbers, where it is one of a cache."""
        if value not in self._pairs:
            return value
        self._reads.widened.append(reader)
        return self._numbers(value, Op("cast", (), (), ()))

    def _take(self, op: Op) -> None:
        """Takes an op of the graph over: with codes for what is a cache, or with numbers."""
        source = self._pairs.get(op.inputs[0]) if op.inputs and isinstance(op.inputs[0], str) else None
        if source is not None and op.kind == "put" and op.outputs[0] in self._chains:
            self._pairs[op.outputs[0]] = self._written(op, source, self._chains[op.outputs[0]])
        elif source is not None and (seen := self._seen(op, source)) is not None:
            self._pairs[op.outputs[0]] = seen
        elif op.kind == "attention" and (codes := self._attention(op)) is not None:
            self._edit.ops.append(codes)
            self._reads.num_attentions += 1
        else:
            numbers = {x: self._numbers(x, op) for x in dict.fromkeys(uses(op)) if x in self._pairs}
            self._reads.widened += [str(op.origin)] if numbers else []
            inputs = tuple(numbers.get(x, x) if isinstance(x, str) else x for x in op.inputs)
            self._edit.keep(replace(op, inputs=inputs) if numbers else op)

    def _numbers(self, value: str, like: Op) -> str:
        """What a value's codes stand for, made for the op that reads it."""
        pair = self._pairs[value]
        like = replace(like, outputs=(value,))
        exact = self._edit.emit("cast", pair.codes, like=like, attrs=make_attrs(dtype=SCALE))
        exact = self._edit.emit("mul", exact, pair.scales, like=like)
        if pair.dtype is SCALE:
            return exact
        return self._edit.emit("cast", exact, like=like, attrs=make_attrs(dtype=pair.dtype))

    def _attention(self, op: Op) -> Op | None:
        """An attention of codes, for one whose keys and values are rows of caches, both or none; else None."""
        given = attention_operands("codes" in dict(op.attrs), op.inputs)
        sides = [self._pairs.get(x) if isinstance(x, str) else None for x in (given.k, given.v)]
        pairs = [p for p in sides if p is not None and p.row == 3]
        q = self._graph.type_of(given.q).dtype
        if len(pairs) < 2 or any(p.dtype is not q for p in pairs) or given.q in self._pairs:
            return None
        mask = () if given.mask is None else (given.mask,)
        if any(x in self._pairs for x in mask):
            return None
        scales = [
            self._edit.reshape(p.scales, self._graph.type_of(x).shape[:3], replace(op, outputs=(p.scales,)))
            for p, x in zip(pairs, (given.k, given.v), strict=True)
        ]
        inputs = (given.q, *(p.codes for p in pairs), *scales, *mask)
        return self._edit.resolved(replace(op, inputs=inputs, attrs=make_attrs(**dict(op.attrs), codes=True)))

    def _written(self, op: Op, source: _Pair, cache: Cache) -> _Pair:
        """Rows put to codes, and their scales to scales."""
        codes, scales = self._quantised(*self._rows(op), op, cache.codes)
        made = [
            self._edit.emit("put", old, new, *op.inputs[2:], like=op, attrs=op.attrs)
            for old, new in ((source.codes, codes), (source.scales, scales))
        ]
        return _Pair(made[0], made[1], source.row, source.dtype)

    def _rows(self, op: Op) -> tuple[str, int]:
        """What a put writes, with a row for each row that it writes, and the dimension of their elements."""
        dims, at, types = op.tuple_attr("dims"), op.int_attr("at"), self._edit.types
        whole = self._graph.type_of(op.inputs[0]).shape
        rest = [n for d, n in enumerate(whole) if d not in dims]
        picks = index_shape([self._graph.type_of(i).shape for i in op.inputs[2:]])
        row = len(rest) - 1 if at == len(rest) else len(rest) + len(picks) - 1
        full = TensorType(self._graph.type_of(op.inputs[0]).dtype, (*rest[:at], *picks, *rest[at:]))
        value = op.inputs[1]
        if isinstance(value, str) and value in self._pairs:
            self._reads.widened.append(str(op.origin))
            value = self._numbers(value, op)
        if not isinstance(value, str):
            return self._edit.emit("full", value, like=op, stated=full), row
        # a value that is broadcast has its rows' numbers once only, if it has rows
        shape = types[str(self._edit.resolve(value))].shape
        own = row - (len(full.shape) - len(shape))
        if own >= 0 and shape[own] is full.shape[row]:
            return value, own
        return self._edit.emit("expand", value, like=op, stated=full), row

    def _quantised(self, value: str, row: int, op: Op, dtype: DType) -> tuple[str, str]:
        """(codes, scales) of rows along a dimension; quantised_rows says how."""

        def made(op_kind: str, *inputs: str | Lit, **attrs: object) -> str:
            return self._edit.emit(op_kind, *inputs, like=op, attrs=make_attrs(**attrs))

        wide = value
        if self._edit.types[str(self._edit.resolve(value))].dtype is not SCALE:
            wide = made("cast", value, dtype=SCALE)
        largest = made("reduce", made("abs", wide), kind="max", dims=(row,), keepdim=True)
        scales = made("div", largest, Lit(LARGEST[dtype], SCALE))
        divisors = made("where", made("eq", scales, Lit(0.0, SCALE)), Lit(1.0, SCALE), scales)
        found = made("max", made("div", wide, divisors), Lit(-LARGEST[dtype], SCALE))
        found = made("min", found, Lit(LARGEST[dtype], SCALE))
        if dtype is DType.I8:
            found = made("round", found)
        return made("cast", found, dtype=dtype), scales

    def _seen(self, op: Op, source: _Pair) -> _Pair | None:
        """A view of codes and scales, or what is picked of them; None for an op that is another, or that rows do not
        survive."""
        shape = self._graph.types[op.outputs[0]].shape if op.outputs else ()
        row = _row_behind(op, source.row, self._graph.type_of(op.inputs[0]).shape, shape)
        if row is None:
            return None

        def seen(value: str, shape: Sequence[Expr]) -> str:
            stated = TensorType(self._edit.types[str(self._edit.resolve(value))].dtype, tuple(shape))
            return self._edit.emit(op.kind, value, *op.inputs[1:], like=op, attrs=op.attrs, stated=stated)

        cut = op.kind == "slice" and op.int_attr("dim") == source.row  # parts of rows have the scales of these
        ones = tuple(ONE if d == row else n for d, n in enumerate(shape))
        scales = source.scales if cut else seen(source.scales, ones)
        return _Pair(seen(source.codes, shape), scales, row, source.dtype)


def _row_behind(op: Op, row: int, before: Sequence[Expr], after: Sequence[Expr]) -> int | None:
    """The dimension of a row's elements behind an op; None where rows do not stay rows, or for an op that computes."""
    if op.kind == "permute":
        return op.tuple_attr("dims").index(row)
    if op.kind == "slice":
        return row
    if op.kind == "expand":
        return row + len(after) - len(before)
    if op.kind == "take":
        dims, at = op.tuple_attr("dims"), op.int_attr("at")
        place = sum(d not in dims for d in range(row))
        picks = len(after) - (len(before) - len(dims))
        return None if row in dims else place if place < at else place + picks
    if op.kind == "reshape":
        outer = product(before[:row])
        return next((d for d, n in enumerate(after) if n is before[row] and product(after[:d]) is outer), None)
    return None


__all__ = ["LARGEST", "Reads", "quantised_rows", "with_codes"]
