"""Products with operands of 16 bits and results of f32 on GPUs: each kind, against eager on rounded operands."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter

import torch

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.machine.data import H200
from hardtack.codegen.pipeline import compile_entry
from tests.codegen.compare import Compiled
from tests.export.checks import assert_same, entry
from tests.export.narrowed_products import Products, product_inputs, product_results
from tests.export.narrowing import narrow
from tests.triton.simulate import Simulator


def test_each_kind_of_product() -> None:
    """None by loops. Attention rounds the weights of its keys, too."""
    made, _ = narrow(Products().eval(), product_inputs())
    graph = entry(made).graph
    compiled = compile_entry(graph, {}, TritonBackend(H200))
    assert "reductions" not in {d.partner for d in compiled.decisions}
    got = Compiled(made, graph, compiled, Simulator(graph, compiled, made.store))(*product_inputs())
    want = product_results(torch.bfloat16)
    assert_same(got[:6] + got[9:], want[:6] + want[9:], rtol=1e-3, atol=1e-3)
    assert_same(got[6:9], want[6:9], rtol=1e-2, atol=1e-2)
