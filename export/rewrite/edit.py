"""What every rewrite needs: who makes a value, who uses it, and a way to emit replacement ops."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from hardtack.codegen.ir.equalities import equality
from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.graph import Constant, Graph, Input, Op, Operand, State, TensorType
from hardtack.codegen.ir.graph_infer import broadcast, literal_type
from hardtack.codegen.ir.graph_ops import derive

Attrs = tuple[tuple[str, object], ...]
_Held = TypeVar("_Held", State, Input)


def index_shape(shapes: Sequence[Sequence[Expr]]) -> tuple[Expr, ...]:
    """Index tensors' shapes, broadcast, of an op that has been verified: sizes that are not 1 are equal."""
    return broadcast(shapes, lambda a, b: True)


class Facts:
    """Producers and uses of a graph's values."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producer: dict[str, Op] = {o: op for op in graph.ops for o in op.outputs}
        self.constants: dict[str, Constant] = {c.name: c for c in graph.constants}
        self.users: dict[str, list[Op]] = {}
        for op in graph.ops:
            for x in {x for x in op.inputs if isinstance(x, str)}:
                self.users.setdefault(x, []).append(op)
        self.results = {*graph.outputs, *graph.finals().values()}

    def made_by(self, value: Operand, kind: str) -> Op | None:
        """The op of `kind` that makes value, else None."""
        op = self.producer.get(value) if isinstance(value, str) else None
        return op if op is not None and op.kind == kind else None

    def used_once(self, value: str) -> bool:
        """True if one op reads value, once, and it is no result of the graph."""
        users = self.users.get(value, [])
        return len(users) == 1 and users[0].inputs.count(value) == 1 and value not in self.results

    def is_constant(self, value: Operand) -> bool:
        return isinstance(value, str) and value in self.constants

    def shape(self, value: Operand) -> tuple[Expr, ...]:
        return self.graph.type_of(value).shape


class Edit:
    """The ops of a graph while a rule replaces some: `emit` for new ones, `keep` for old ones, `rename` for values."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ops: list[Op] = []
        self.types: dict[str, TensorType] = dict(graph.types)
        self.same = equality(graph.guards)
        self.renamed: dict[str, str] = {}

    def resolve(self, value: Operand) -> Operand:
        while isinstance(value, str) and value in self.renamed:
            value = self.renamed[value]
        return value

    def keep(self, op: Op) -> None:
        """An op as it is, but for renamed operands."""
        self.ops.append(self.resolved(op))

    def resolved(self, op: Op) -> Op:
        """The op with renamed operands; itself if it has none."""
        inputs = tuple(map(self.resolve, op.inputs))
        return op if all(map(operator.is_, inputs, op.inputs)) else replace(op, inputs=inputs)

    def emit(
        self, kind: str, /, *inputs: Operand, like: Op, attrs: Attrs = (), stated: TensorType | None = None
    ) -> str:
        """A new op with one output, with the origin of `like`; returns the output's name."""
        operands = tuple(map(self.resolve, inputs))
        op = Op(kind, operands, attrs, (), like.origin)
        types = tuple(self.types[x] if isinstance(x, str) else literal_type(x) for x in operands)
        found = derive(op, types, () if stated is None else (stated,), self.same)[0]
        name = self._fresh(like.outputs[0])
        self.types[name] = found
        self.ops.append(replace(op, outputs=(name,)))
        return name

    def _fresh(self, wish: str) -> str:
        base, n = f"{wish}.r", 0
        while f"{base}{n}" in self.types:
            n += 1
        return f"{base}{n}"

    def reshape(self, value: str, shape: tuple[Expr, ...], like: Op) -> str:
        """value in another shape; itself if it has it."""
        t = self.types[str(self.resolve(value))]
        return value if t.shape == shape else self.emit("reshape", value, like=like, stated=TensorType(t.dtype, shape))

    def done(self) -> Graph:
        """The edited graph."""
        states, inputs = tuple(map(self._behind, self.graph.states)), tuple(map(self._behind, self.graph.inputs))
        outputs = tuple(str(self.resolve(o)) for o in self.graph.outputs)
        made = replace(self.graph, ops=tuple(self.ops), types=self.types, states=states, outputs=outputs)
        return replace(made, inputs=inputs)

    def _behind(self, held: _Held) -> _Held:
        """A state or an input with the value that it has behind a run of the edited graph."""
        return held if held.final is None else replace(held, final=str(self.resolve(held.final)))
