"""Every plan that tuning may choose gives right results, in Triton's interpreter."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
from collections.abc import Callable

import pytest
import torch

from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.data import H200
from hardtack.codegen.tune.candidates import candidates
from hardtack.codegen.tune.choice import KIND, Tuning, plan_fields, shape_of
from hardtack.codegen.tune.table import TableEntry, TuningTable
from tests.triton import template_cases as cases
from tests.triton import template_runs
from tests.triton.template_cases import Case

CASES: dict[str, Callable[[], Case]] = {
    "tiles": lambda: cases.gemm(40, 72, 200, DType.BF16, epilogue=True),
    "tiles f32": lambda: cases.gemm(40, 72, 200, DType.F32, batch=(2,), constant=False),
    "one row": lambda: cases.gemm(1, 96, 600, DType.F16, epilogue=True),
    "one row, rows of B": lambda: cases.gemm(1, 96, 600, DType.F16, transposed=False),
    "few channels": lambda: cases.convolution([1, 3, 9, 7], 20, [3, 3], DType.F32, padding=1),
    "channels": lambda: cases.convolution([1, 24, 9, 7], 20, [3, 3], DType.BF16, padding=1, groups=2),
    "attention": lambda: cases.attention((1, 4, 4, 70, 70, 32, 16), DType.F16, causal=True),
    "attention of a cache": lambda: cases.attention((1, 8, 2, 1, 300, 32, 32), DType.BF16, mask="keep"),
}


@pytest.mark.parametrize("name", CASES)
def test_every_candidate(name: str) -> None:
    torch.manual_seed(0)
    case = CASES[name]()
    want = case.want(case.tensors)
    (key,) = {d.subject for d in template_runs.lowered(case.graph, "sm_90", {}).decisions if d.kind == KIND}
    plans = candidates(shape_of(key), H200)
    assert len(plans) > 3
    for plan in plans:
        table = TuningTable("sm_90", "3.6.0", {key: TableEntry(plan_fields(plan), 1)})
        prepared = template_runs.prepare(case.graph, case.tensors, tuning=Tuning((("user", table),)))
        assert any("yes, user table" in d for d in prepared.decisions), plan
        prepared()
        cases.close(case, list(prepared.outputs), want)
