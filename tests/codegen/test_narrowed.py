"""Products with operands of 16 bits and results of f32 on CPUs: each kind, against eager on rounded operands."""

from __future__ import annotations

import pytest
import torch

from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.ir.types import DType
from hardtack.codegen.pipeline import compile_entry
from tests.codegen.compare import Compiled
from tests.codegen.runner import Runner
from tests.export.checks import assert_same, entry
from tests.export.narrowed_products import Products, product_inputs, product_results
from tests.export.narrowing import narrow

ATTENTION = [6, 7, 8]
"""Which of Products' results are attention's."""


@pytest.mark.parametrize(("dtype", "torch_dtype"), [(DType.BF16, torch.bfloat16), (DType.F16, torch.float16)])
def test_each_kind_of_product(dtype: DType, torch_dtype: torch.dtype) -> None:
    made, report = narrow(Products().eval(), product_inputs(), dtype=dtype)
    assert (report.num_narrowed, report.kept) == (10, [])
    graph = entry(made).graph
    compiled = compile_entry(graph, {}, CppBackend())
    got = Compiled(made, graph, compiled, Runner(graph, compiled, made.store))(*product_inputs())
    want = product_results(torch_dtype)
    sums, attended = [k for k in range(10) if k not in ATTENTION], ATTENTION
    assert_same([got[k] for k in sums], [want[k] for k in sums], rtol=1e-4, atol=1e-4)
    # Where bfloat16 is multiplied in pairs, the weights are rounded to it, too: half an ulp of the largest value, of 4.
    most = 2.0**-7 if dtype is DType.BF16 else 1e-4
    assert_same([got[k] for k in attended], [want[k] for k in attended], rtol=1e-4, atol=most)
