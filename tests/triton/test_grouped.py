"""Grouped products on GPU kernels through Triton's interpreter: one launch, whatever the offsets are."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from hardtack.codegen.ir.plan import Launch
from hardtack.codegen.ir.types import DType
from tests.codegen.compare import Compiled, assert_same, compile_module, eager
from tests.models.small_transformers import Picked
from tests.triton import template_cases as cases
from tests.triton.template_runs import run
from tests.triton.test_loops import normal, on_gpu

GROUPS, DEPTH, COLUMNS = 5, 40, 24


class Experts(nn.Module):
    """[M, K] by [G, K, N] in groups of rows, and what is computed from each element."""

    def __init__(self, dtype: torch.dtype, transposed: bool) -> None:
        super().__init__()
        shape = (GROUPS, COLUMNS, DEPTH) if transposed else (GROUPS, DEPTH, COLUMNS)
        self.weight = nn.Parameter(normal(*shape, seed=1).to(dtype))
        self.transposed = transposed

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        weight = self.weight.mT if self.transposed else self.weight
        return torch.relu(torch._grouped_mm(x, weight, offs=ends)) * 2


def wanted(module: Experts, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """In f64, rounded once; rows behind the last group are zeros."""
    weight = (module.weight.mT if module.transposed else module.weight).double()
    out = torch.zeros(x.shape[0], COLUMNS, dtype=torch.float64)
    for g, (first, last) in enumerate(itertools.pairwise([0, *ends.tolist()])):
        out[first:last] = x[first:last].double() @ weight[g]
    return torch.relu(out.to(x.dtype)) * 2


OFFSETS = ([8, 16, 24, 32, 40], [0, 0, 37, 37, 40], [3, 4, 21, 22, 30], [40] * 5, [0] * 5)


def check(compiled: Compiled, module: Experts, dtype: torch.dtype) -> None:
    x = normal(40, DEPTH).to(dtype)
    for ends in OFFSETS:
        at = torch.tensor(ends, dtype=torch.int32)
        assert_same(compiled(x, at), [wanted(module, x, at)])


def example(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(40, DEPTH).to(dtype), torch.tensor(OFFSETS[0], dtype=torch.int32)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_grouped_products_are_one_launch(dynamic: bool, transposed: bool) -> None:
    module, sizes = Experts(torch.bfloat16, transposed), ({0: torch.export.Dim.AUTO}, None) if dynamic else None
    compiled = on_gpu(module, example(torch.bfloat16), sizes)
    (launch,) = (i for i in compiled.entry.plan.body if isinstance(i, Launch))
    assert launch.kernel.startswith("grouped_")
    check(compiled, module, torch.bfloat16)


def test_offsets_that_no_caller_should_give_touch_no_other_memory() -> None:
    """The simulator's memory has guards around every buffer."""
    module = Experts(torch.bfloat16, False)
    compiled = on_gpu(module, example(torch.bfloat16))
    x, _ = example(torch.bfloat16)
    for ends in ([50, 9, -3, 2**31 - 1, 60], [-5, -4, -3, -2, -1], [40, 30, 20, 10, 0]):
        compiled(x, torch.tensor(ends, dtype=torch.int32))


@pytest.mark.parametrize("transposed", [False, True])
def test_on_a_cpu(transposed: bool) -> None:
    module = Experts(torch.bfloat16, transposed)
    check(compile_module(module.eval(), example(torch.bfloat16)), module, torch.bfloat16)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.F64])
def test_other_types(dtype: DType) -> None:
    case = cases.grouped([0, 9, 20, 20], 24, 33, 50, dtype)
    got = run(case.graph, case.tensors, case.sizes, "sm_90")
    cases.close(case, got, case.want(case.tensors))


def test_a_mixture_of_experts() -> None:
    """Every layer has two grouped products, and queries, keys and values in one."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 50}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 2}
    inner = transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, **heads)).eval()
    inner.set_experts_implementation("grouped_mm")
    module, tokens = Picked(inner, ("input_ids",), "logits", use_cache=False), torch.randint(0, 50, (1, 7))
    compiled = on_gpu(module, (tokens,))
    names = [i.kernel for i in compiled.entry.plan.body if isinstance(i, Launch)]
    assert sum(n.startswith("grouped_") for n in names) == 4
    assert_same(compiled(tokens), eager(module, (tokens,)))


class Stacked(nn.Module):
    """A batch of products by a weight each."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(normal(GROUPS, DEPTH, COLUMNS, seed=1).bfloat16())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.bmm(x, self.weight), torch._grouped_mm(x * 2, self.weight)


def test_stacked_weights_are_one_launch_a_product() -> None:
    module, x = Stacked(), normal(GROUPS, 16, DEPTH).bfloat16()
    compiled = on_gpu(module, (x,))
    names: list[Any] = [i.kernel.split("_")[0] for i in compiled.entry.plan.body if isinstance(i, Launch)]
    assert sorted(names) == ["gemm", "gemm", "mul"]
    products = x.double() @ module.weight.double()
    assert_same(compiled(x), [products.bfloat16(), (2 * products).bfloat16()])
