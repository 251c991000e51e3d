"""The table of facts about Graph ops: each kind has a meaning, a rule that lowers it, and a program that is tested."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import hardtack.exporter.reference.nn  # noqa: F401  # adds its kinds to KERNELS
from hardtack.codegen.ir import graph
from hardtack.codegen.ir.graph import Graph, Op
from hardtack.codegen.ir.graph_ops import GRAPH_OPS, Elements, View, facts
from hardtack.codegen.lower.rules import rules_on
from hardtack.codegen.lower.views import INDEX_MAPS
from hardtack.codegen.machine.machine import Cpu, Gpu
from hardtack.codegen.ops import SCALAR_OPS
from hardtack.exporter import to_graphs
from hardtack.exporter.reference import run_op
from hardtack.exporter.reference.ops import KERNELS
from tests.codegen.compare import Table
from tests.codegen.tables import suites_by_name

ROOT = Path(__file__).resolve().parents[2]
CONTROL = {"cond", "while"}
"""Kinds whose meaning is that of graphs within."""
TABLES = [
    "unary_float32",
    "binary_float32",
    "special_float32",
    "int_int64",
    "bool",
    "creation",
    "bitcast",
    "casts",
    "views",
    "index",
    "order_float32",
    "norm",
    "pool",
    "resize_align",
    "matmul",
    "attention",
    "recurrent",
    "conv",
    "reduce_bool",
]
"""Suites of tables*.py that have all kinds between them, but for those below."""
OTHERS = {
    "assert": ("tests/export/test_values.py", "torch._check"),
    "read": ("tests/front/test_value_sizes.py", "nonzero"),
    "cond": ("tests/export/test_capture.py", "torch.cond"),
    "while": ("tests/export/test_capture.py", "while_loop"),
    "grouped_matmul": ("tests/triton/test_grouped.py", "grouped_mm"),
    "custom": ("tests/front/test_cpp_kernels.py", "custom_op"),
    "fma": ("tests/templates/test_simd.py", "fma"),
    "code": ("tests/codegen/test_code_conversions.py", "to codes"),
}
"""Kind -> the file with its tests, and a word of them. No conversion gives fma, which the nests of resizing
have, and code, which is made for CPUs."""


def test_every_kind_has_a_row() -> None:
    """In the grammar of graph.py, in the reference interpreter, in the lowering; and none has a row but those."""
    grammar = (graph.__doc__ or "").split("Op kinds")[1].split("`attrs` hold")[0]
    named = set(re.findall(r"\w+", " ".join(re.findall(r"(?m)^  ([a-z][a-z_, ]*?)(?:  | \[|\n)", grammar))))
    assert named - {"pointwise"} | set(SCALAR_OPS) == set(GRAPH_OPS)
    assert set(KERNELS) | CONTROL | {"read"} == set(GRAPH_OPS)  # which gives the sizes of a run one more
    views = {kind for kind, row in GRAPH_OPS.items() if row.view is not View.NONE}
    assert views == set(INDEX_MAPS)
    for machine in (Cpu, Gpu):
        assert set(rules_on(machine)) | views == set(GRAPH_OPS)
        assert not set(rules_on(machine)) & views


def _ops(g: Graph) -> Iterator[Op]:
    for op in g.ops:
        yield op
        for _, value in op.attrs:
            if isinstance(value, Graph):
                yield from _ops(value)


def test_every_row_is_tested() -> None:
    """A row of the op tables, whose results are compared with eager's, becomes an op of each kind."""
    found: set[str] = set()
    suites = suites_by_name()
    for name in TABLES:
        exported = to_graphs(Table(suites[name].functions), tuple(suites[name].inputs[0]))
        found.update(op.kind for entry in exported.entries.values() for op in _ops(entry.graph))
    missing = set(GRAPH_OPS) - found - set(OTHERS)
    assert not missing, f"no row of tests/codegen/tables*.py has {sorted(missing)}"
    for kind, (file, word) in OTHERS.items():
        assert word in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no test of {kind}"


def test_the_kinds_of_an_unknown_op() -> None:
    with pytest.raises(ValueError, match="unknown op kind 'flop'"):
        facts(Op("flop", (), (), ()))


@pytest.mark.parametrize("kind", sorted(k for k, row in GRAPH_OPS.items() if row.elements is Elements.KEPT))
def test_what_keeps_elements_has_each_once(kind: str) -> None:
    for op, x, y in _moved(kind):
        assert sorted(y.flatten().tolist()) == sorted(x.flatten().tolist()), op


@pytest.mark.parametrize("kind", sorted(k for k, row in GRAPH_OPS.items() if row.view is View.STRIDED))
def test_a_strided_view_shares_its_operands_memory(kind: str) -> None:
    """constants.py finds a weight's part again by the strides that torch gives it."""
    for op, x, y in _moved(kind):
        assert y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr(), op


def _moved(kind: str) -> Iterator[tuple[Op, torch.Tensor, torch.Tensor]]:
    """Ops of a kind in small graphs, with the operand and the result that the reference interpreter gives."""
    functions = {
        "reshape": lambda x: x.reshape(4, 6),
        "permute": lambda x: x.permute(2, 0, 1),
        "expand": lambda x: x[:, :1].expand(2, 3, 4),
        "slice": lambda x: x[:, 1:, ::2],
    }
    x = torch.arange(24.0).reshape(2, 3, 4)
    (entry,) = to_graphs(functions[kind], (x,)).entries.values()
    values = {entry.graph.inputs[0].name: x}
    seen = 0
    for op in entry.graph.ops:
        given = values[str(op.inputs[0])]
        (values[op.outputs[0]],) = run_op(op, [given], (entry.graph.types[op.outputs[0]],), {})
        if op.kind == kind:
            seen += 1
            yield op, given, values[op.outputs[0]]
    assert seen
