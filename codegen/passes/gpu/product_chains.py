"""What is computed of a product point by point, by constants of its columns: biases, and the scales of codes.

    Chain ::= Step*                  each reads the value before it, which nothing else reads
    Step  ::= cast | reshape that keeps the columns | op of the value with Lits, Vectors and shared values
    Vector ::= a constant [N], [1, N] or [.., 1, N], as it is or converted

Chains of products that have one activation are alike if only the constants differ: these are put side by side, as the
weights are, and the chain is computed once, of all columns. A shared value has one number for all columns (the scale of
a row), and is the same in each. A chain ends where numbers of 16 bits are made that products have as their results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hardtack.codegen.ir.expr import ONE, Expr, product
from hardtack.codegen.ir.graph import Graph, Lit, Op, Operand
from hardtack.codegen.ir.types import BYTES, DType
from hardtack.codegen.ops import SCALAR_OPS


@dataclass(frozen=True)
class Vector:
    """Numbers of columns: the constant, and the op that converts it, if any."""

    constant: str
    cast: Op | None


@dataclass(frozen=True)
class Step:
    """An op of a chain; vectors: by the place among its operands. value: that of the chain."""

    op: Op
    value: int
    vectors: Mapping[int, Vector]

    @property
    def result(self) -> str:
        return self.op.outputs[0]


Chain = tuple[Step, ...]


@dataclass(frozen=True)
class Chains:
    """Finds what follows products of a graph. readers: of each value, once for each operand; kept: values that are
    outputs or states."""

    graph: Graph
    producers: Mapping[str, Op]
    readers: Mapping[str, Sequence[Op]]
    kept: frozenset[str]
    constants: frozenset[str]

    def behind(self, op: Op) -> Chain:
        """The chain behind a product of two matrices."""
        of_bytes = self.graph.types[op.value(0)].dtype in BYTES
        steps = tuple(self._steps(op.outputs[0]))
        ends = [i for i, s in enumerate(steps) if s.vectors or (of_bytes and self._shares(s))]
        if not ends:
            return ()
        end = ends[-1] + 1
        while end < len(steps) and steps[end].op.kind == "cast" and not self._type(steps[end - 1]).is_half:
            end += 1
        return steps[:end]

    def signature(self, chain: Chain) -> tuple[object, ...]:
        """Equal for chains that differ in their vectors alone."""
        return tuple(self._signature(s) for s in chain)

    def is_bias(self, chain: Chain) -> bool:
        """True for a chain that adds one vector and converts: zeros stand in for it where a product has none."""
        computing = [s for s in chain if s.op.kind != "cast"]
        return len(computing) == 1 and computing[0].op.kind == "add" and len(computing[0].vectors) == 1

    def _steps(self, value: str) -> Iterator[Step]:
        columns = self.graph.types[value].shape[-1]
        while value not in self.kept and len(readers := self.readers.get(value, ())) == 1:
            step = self._step(readers[0], value, columns)
            if step is None:
                return
            yield step
            value = step.result

    def _step(self, op: Op, value: str, columns: Expr) -> Step | None:
        types = self.graph.types
        if len(op.outputs) != 1 or types[op.outputs[0]].shape[-1:] != (columns,):
            return None
        if product(types[op.outputs[0]].shape) is not product(types[value].shape):
            return None
        if op.kind == "reshape":
            return Step(op, 0, {})
        if op.kind not in SCALAR_OPS and op.kind != "cast":
            return None
        vectors: dict[int, Vector] = {}
        for k, x in enumerate(op.inputs):
            if x == value or isinstance(x, Lit):
                continue
            if isinstance(x, str) and (vector := self._vector(x, columns)) is not None:
                vectors[k] = vector
            elif not self._shared(x):
                return None
        return Step(op, op.inputs.index(value), vectors)

    def _vector(self, name: str, columns: Expr) -> Vector | None:
        shape = self.graph.types[name].shape
        if shape[-1:] != (columns,) or product(shape) is not columns:
            return None
        made = self.producers.get(name)
        if made is None:
            return Vector(name, None) if name in self.constants else None
        source = made.inputs[0] if made.kind == "cast" else None
        return Vector(str(source), made) if source in self.constants else None

    def _shared(self, x: Operand) -> bool:
        """True for a value that has one number for all columns."""
        return isinstance(x, str) and self.graph.types[x].shape[-1:] in ((), (ONE,))

    def _shares(self, step: Step) -> bool:
        return any(
            k != step.value and k not in step.vectors and isinstance(x, str) for k, x in enumerate(step.op.inputs)
        )

    def _type(self, step: Step) -> DType:
        return self.graph.types[step.result].dtype

    def _signature(self, step: Step) -> tuple[object, ...]:
        t = self.graph.types[step.result]
        vectors = {
            k: (self.graph.types[v.constant].dtype, len(self.graph.types[v.constant].shape), v.cast and v.cast.attrs)
            for k, v in step.vectors.items()
        }
        inputs = (
            "value" if k == step.value else vectors.get(k, (x if not isinstance(x, Lit) else (repr(x.value), x.dtype)))
            for k, x in enumerate(step.op.inputs)
        )
        return (step.op.kind, step.op.attrs, t.dtype, t.shape[:-1], *inputs)


def shared_values(chain: Chain) -> set[str]:
    """What all columns of the chain have in common."""
    return {
        x
        for s in chain
        for k, x in enumerate(s.op.inputs)
        if k != s.value and k not in s.vectors and isinstance(x, str)
    }


def outputs_of(chain: Chain, readers: Mapping[str, Sequence[Op]]) -> tuple[str, ...]:
    """What the chain computes, conversions of vectors that nothing else reads included."""
    casts = [v.cast.outputs[0] for s in chain for v in s.vectors.values() if v.cast is not None]
    return (*(c for c in casts if len(readers[c]) == 1), *(s.result for s in chain))


def with_inputs(op: Op, inputs: Mapping[int, Operand], out: str) -> Op:
    """The op with other operands at some places, and another result."""
    return replace(op, inputs=tuple(inputs.get(k, x) for k, x in enumerate(op.inputs)), outputs=(out,))
