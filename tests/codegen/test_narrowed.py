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


@pytest.mark.parametrize(("dtype", "torch_dtype"), [(DType.BF16, torch.bfloat16), (DType.F16, torch.float16)])
def test_each_kind_of_product(dtype: DType, torch_dtype: torch.dtype) -> None:
    made, report = narrow(Products().eval(), product_inputs(), dtype=dtype)
    assert (report.num_narrowed, report.kept) == (10, [])
    graph = entry(made).graph
    compiled = compile_entry(graph, {}, CppBackend())
    got = Compiled(made, graph, compiled, Runner(graph, compiled, made.store))(*product_inputs())
    assert_same(got, product_results(torch_dtype), rtol=1e-4, atol=1e-4)
