"""The bias that a product starts from."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
from typing import Any

import pytest
import torch

from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.types import DType
from hardtack.codegen.tune.choice import KIND, Tuning, plan_fields
from hardtack.codegen.tune.gemm_plan import GemmPlan
from hardtack.codegen.tune.table import TableEntry, TuningTable
from tests.triton import template_cases as cases
from tests.triton import template_runs
from tests.triton.template_cases import Case
from tests.triton.template_runs import GraphOf, Prepared


def prepared(case: Case, plan: GemmPlan, **tensors: torch.Tensor) -> Prepared:
    """The case with this plan for its product."""
    low = template_runs.lowered(case.graph, "sm_90", case.sizes)
    (key,) = {d.subject for d in low.decisions if d.kind == KIND}
    table = TuningTable("sm_90", "3.6.0", {key: TableEntry(plan_fields(plan), 1)})
    out = template_runs.prepare(
        case.graph, {**case.tensors, **tensors}, case.sizes, tuning=Tuning((("user", table),))
    )  # fmt: skip
    assert any("yes, user table" in d for d in out.decisions), out.decisions
    return out


def text_of(made: Prepared) -> str:
    (kernel,) = [k for k in made.kernels if "tl.dot" in k.text]
    return kernel.text


TILES: dict[str, Any] = {
    "tile": GemmPlan("tile", 64, 32, 32, 4, 3, 1, ""),
    "stream": GemmPlan("stream", 128, 64, 64, 4, 3, 1, ""),
    "pair": GemmPlan("stream", 192, 64, 64, 4, 3, 1, ""),
    "grid": GemmPlan("stream", 64, 64, 64, 4, 3, 1, "", programs=4),
}


@pytest.mark.parametrize("name", TILES)
def test_products_start_from_a_bias(name: str) -> None:
    torch.manual_seed(0)
    case = cases.gemm(200, 136, 72, DType.F16, transposed=False, epilogue=True)
    made = prepared(case, TILES[name])
    text = text_of(made)
    assert "acc = tl.broadcast_to(first_" in text
    assert ("rest = tl.broadcast_to(first_" in text) == (name == "pair")
    made()
    cases.close(case, list(made.outputs), case.want(case.tensors))


def test_a_bias_of_f32_is_added_behind() -> None:
    """It may be so large that products added to it would lose digits that the result has."""
    torch.manual_seed(0)
    case = cases.gemm(64, 64, 64, DType.F32, transposed=False, epilogue=True)
    made = prepared(case, GemmPlan("tile", 64, 32, 32, 4, 3, 1, ""))
    assert "acc = tl.zeros(" in text_of(made)


def product_and(kind: str) -> str:
    """The kernel of relu(y + bias) for the product y, in f32 until then; or y is an output, too, read twice, rounded
    before, or has another bias."""
    g, shape, bf16, f32 = GraphOf(), [64, 64], DType.BF16, DType.F32
    g.input("a", bf16, shape)
    g.input("b", bf16, shape, constant=True)
    g.input("bias", bf16, [64, 1] if kind == "by rows" else [64], constant=True)
    dtype = bf16 if kind == "rounded before" else f32
    y = g.op("matmul", "a", "b", dtype=dtype, shape=shape)
    z = g.cast(g.op("add", y, g.cast("bias", dtype), dtype=dtype, shape=shape), bf16)
    z = g.op("max", z, Lit(0.0, bf16), dtype=bf16, shape=shape)
    if kind == "read twice":
        z = g.op("mul", z, g.cast(y, bf16), dtype=bf16, shape=shape)
    graph = g.done(z, y) if kind == "an output" else g.done(z)
    found = [k for _, k in template_runs.kernels(template_runs.lowered(graph, "sm_90", {}), "sm_90", {})]
    (kernel,) = [k for k in found if "tl.dot" in k.text]
    return kernel.text


def test_only_a_bias_of_columns_is_started_from() -> None:
    assert "acc = tl.broadcast_to(first_" in product_and("nothing else")
    for kind in ("an output", "read twice", "by rows", "rounded before"):
        assert "acc = tl.zeros(" in product_and(kind), kind


def key_of_case(case: Case) -> str:
    (key,) = {d.subject for d in template_runs.lowered(case.graph, "sm_90", case.sizes).decisions if d.kind == KIND}
    return key


def test_a_key_says_whether_something_costly_follows() -> None:
    for dynamic in (False, True):
        gelu = cases.gemm(64, 96, 64, DType.BF16, gelu=True, dynamic=dynamic)
        assert key_of_case(gelu).endswith(" splittable=1 heavy=1")
        relu = cases.gemm(64, 96, 64, DType.BF16, epilogue=True, dynamic=dynamic)
        assert key_of_case(relu).endswith(" splittable=1")
    # one row is bound by reading B, whatever follows
    assert key_of_case(cases.gemm(1, 96, 64, DType.BF16, gelu=True)).endswith(" splittable=1")
    # what is computed from a sum over the results is not computed of each of them
    g, shape = GraphOf(), [64, 64]
    g.input("a", DType.F32, shape)
    g.input("b", DType.F32, shape, constant=True)
    y = g.op("matmul", "a", "b", dtype=DType.F32, shape=shape)
    total = g.op("reduce", y, dtype=DType.F32, shape=[64], kind="sum", dims=(1,), keepdim=False)
    summed = Case("sum", g.done(g.op("exp", total, dtype=DType.F32, shape=[64])), {}, lambda t: [], DType.F32)
    assert key_of_case(summed).endswith(" splittable=1")
