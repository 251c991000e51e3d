"""Products with operands of 16 bits and results of f32: each value is converted once, weights at export."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.graph import Graph, Op, TensorType, make_attrs
from hardtack.codegen.ir.graph_ops import Elements, View
from hardtack.codegen.ir.graph_ops import facts as row_of
from hardtack.codegen.ir.types import DType
from hardtack.exporter.precision.choice import NARROWED, Choice, Kept, Precision
from hardtack.exporter.precision.counted import counted_operands, counted_values
from hardtack.exporter.precision.nested import narrow_inputs
from hardtack.exporter.rewrite.basic import remove_dead
from hardtack.exporter.rewrite.edit import Edit, Facts
from hardtack.exporter.rewrite.rules import CLEANING, Rule, simplify


@dataclass
class Report:
    """What became of a model's products. modules: the paths of all of them."""

    num_narrowed: int = 0
    kept: list[Kept] = field(default_factory=list)
    modules: set[str] = field(default_factory=set)


def narrow(graph: Graph, store: ConstantStore, precision: Precision, report: Report) -> Graph:
    """The graph with the operands of its products of f32 in precision's dtype, where that is safe; results stay f32."""
    rule = Rule("narrow", lambda graph, store: _narrowed(graph, store, precision, report, counted_values(graph, store)))
    return simplify(graph, store, (rule, *CLEANING))


def _narrowed(graph: Graph, store: ConstantStore, precision: Precision, report: Report, counted: set[str]) -> Graph:
    facts = Facts(graph)
    choice = Choice(facts, store, precision, counted)
    chosen = [op for op in graph.ops if choice.is_product(op) and _chosen(op, choice, report)]
    converted = _Conversions(facts, Edit(graph), precision.dtype, chosen)
    numbers = {id(op) for op in chosen}
    for op in graph.ops:
        if id(op) in numbers:
            converted.product(op)
        elif op.kind in ("cond", "while"):
            converted.control(_inside(op, store, precision, report, counted))
        else:
            converted.edit.keep(op)
    return converted.edit.done()


def _chosen(op: Op, choice: Choice, report: Report) -> bool:
    report.modules.add(op.origin.module)
    why = choice.why_kept(op)
    if why is not None:
        report.kept.append(Kept(op.outputs[0], op.origin.module, why))
    report.num_narrowed += why is None
    return why is None


def _inside(op: Op, store: ConstantStore, precision: Precision, report: Report, counted: set[str]) -> Op:
    """A cond or while with the products of its graphs narrowed."""
    attrs = dict(op.attrs)
    for name, graph in op.attrs:
        if isinstance(graph, Graph):
            known = counted_values(graph, store, counted_operands(op, name, store, counted))
            attrs[name] = remove_dead(_narrowed(graph, store, precision, report, known))
    return replace(op, attrs=make_attrs(**attrs))


class _Conversions:
    """The edit of one graph, and what has been converted so far."""

    def __init__(self, facts: Facts, edit: Edit, dtype: DType, chosen: list[Op]) -> None:
        self.edit = edit
        self._facts, self._dtype = facts, dtype
        self._made: dict[str, str] = {}
        self._only = _only_converted(facts, chosen)

    def product(self, op: Op) -> None:
        """op, of converted operands, under its own name."""
        count = NARROWED[op.kind]
        inputs = (*(self.converted(op.value(k), op) for k in range(count)), *op.inputs[count:])
        attrs = make_attrs(**{**dict(op.attrs), "dtype": DType.F32})
        self.edit.ops.append(self.edit.resolved(replace(op, inputs=inputs, attrs=attrs)))

    def control(self, op: Op) -> None:
        """op, with the operands converted outside that its graphs do nothing with but convert them."""
        inner, places = narrow_inputs(op, self._dtype)
        inputs = tuple(self.converted(op.value(k), op) if k in places else x for k, x in enumerate(op.inputs))
        self.edit.ops.append(self.edit.resolved(replace(inner, inputs=inputs)))

    def converted(self, value: str, reader: Op) -> str:
        """value in the dtype. Behind views its source is converted, so that all that is seen of it shares that."""
        if value not in self._made:
            self._made[value] = self._convert(value, reader)
        return self._made[value]

    def _convert(self, value: str, reader: Op) -> str:
        made = self._facts.producer.get(value)
        if made is not None and made.kind == "cast" and self._is_narrow(made.inputs[0]):
            return str(made.inputs[0])
        if made is not None and self._passes(made):
            source = self.converted(made.value(0), reader)
            stated = TensorType(self._dtype, self._facts.shape(value))
            return self.edit.emit(made.kind, source, like=made, attrs=made.attrs, stated=stated)
        like = made if made is not None else replace(reader, outputs=(value,))
        return self.edit.emit("cast", value, like=replace(like, outputs=(value,)), attrs=make_attrs(dtype=self._dtype))

    def _is_narrow(self, value: object) -> bool:
        return isinstance(value, str) and self._facts.graph.types[value].dtype is self._dtype

    def _passes(self, made: Op) -> bool:
        """True for a view whose source is converted in its place: of a slice, where nothing reads that as f32."""
        row = row_of(made)
        if row.view is not View.STRIDED:
            return False
        return row.elements is not Elements.PICKED or made.value(0) in self._only


def _only_converted(facts: Facts, chosen: list[Op]) -> set[str]:
    """What ops make for nothing but products that convert it, through views or not."""
    found: set[str] = set()
    narrowed = {id(op) for op in chosen}

    def converts(user: Op, value: str) -> bool:
        if id(user) in narrowed:
            return value not in user.inputs[NARROWED[user.kind] :]
        return row_of(user).view is View.STRIDED and user.outputs[0] in found

    for op in reversed(facts.graph.ops):
        for value in op.outputs:
            users = facts.users.get(value, ())
            if users and value not in facts.results and all(converts(u, value) for u in users):
                found.add(value)
    return found
