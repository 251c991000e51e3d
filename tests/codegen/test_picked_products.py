"""Products with matrices that an index picks, and grouped products, on CPUs: read where they lie, as eager has them."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.codegen.ir.nests import Template
from hardtack.codegen.lower.cpu_picked import GroupedGemm, PickedGemm
from tests.codegen.compare import assert_same, compile_module, eager, normal
from tests.codegen.runner import KernelFailed
from tests.codegen.template_nests import GPU, lowered
from tests.models.small_transformers import Picked

EXPERTS, DEPTH, COLUMNS = 5, 37, 70
HALVES = (torch.bfloat16, torch.float16)


class Experts(nn.Module):
    """Matrices that an index picks times rows, in the ways in which models spell it."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Parameter(normal(EXPERTS, COLUMNS, DEPTH, seed=1, dtype=dtype) * 0.2)
        self.turned = nn.Parameter(normal(EXPERTS, DEPTH, COLUMNS, seed=2, dtype=dtype) * 0.2)
        self.bias = nn.Parameter(normal(EXPERTS, COLUMNS, seed=3, dtype=dtype))

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        columns = torch.bmm(self.linear[ids], x.unsqueeze(-1)).squeeze(-1) + self.bias[ids]
        rows = F.silu(torch.bmm(x.unsqueeze(1), self.turned[ids]).squeeze(1)) * columns
        selected = torch.einsum("sk,snk->sn", x, self.linear.index_select(0, ids.remainder(EXPERTS)))
        embedded = torch.matmul(
            x[:, None], F.embedding(ids.remainder(EXPERTS), self.turned.flatten(1)).view(-1, DEPTH, COLUMNS)
        )
        half = torch.bmm(self.linear[:, 32:][ids], x.unsqueeze(-1))
        several = torch.matmul(torch.stack([x, x * 2, x + 1], 1), self.turned[ids])
        return columns, rows, selected, embedded, half, several


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_experts_that_an_index_picks(dtype: torch.dtype) -> None:
    module = Experts(dtype).eval()
    args = [normal(4, DEPTH, dtype=dtype), torch.tensor([1, 4, 0, 1])]
    compiled = compile_module(module, args, ({0: Dim("s", min=2, max=99)}, {0: Dim("s", min=2, max=99)}))
    for ids in ([1, 4, 0, 1], [-1, 2], [3] * 9, [-5, 4, 0, -2, 2]):
        given = [normal(len(ids), DEPTH, seed=len(ids), dtype=dtype), torch.tensor(ids)]
        assert_same(compiled(*given), eager(module, given), 4)
    for bad in ([0, 5], [-6, 0]):
        with pytest.raises(KernelFailed):
            compiled(normal(2, DEPTH, dtype=dtype), torch.tensor(bad))


class Wide(nn.Module):
    """What the template has no type for, and what is no constant."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(normal(EXPERTS, COLUMNS, DEPTH, dtype=torch.float64))

    def forward(self, x: torch.Tensor, w: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = torch.bmm(self.w[ids], x.double().unsqueeze(-1)).squeeze(-1)
        return wide, torch.bmm(w[ids], x.unsqueeze(-1)), torch.bmm(w[ids], torch.stack([x, x], -1)), w[ids] * 2


def test_what_no_template_computes() -> None:
    module, args = Wide().eval(), [normal(3, DEPTH), normal(4, 6, DEPTH), torch.tensor([3, 0, 3])]
    compiled = compile_module(module, args)
    assert_same(compiled(*args), eager(module, args), 4)
    said = [d.reason for d in compiled.entry.decisions if d.kind == "template"]
    assert "it reads the matrices that it picks where they lie" in said


class Grouped(nn.Module):
    def __init__(self, dtype: torch.dtype, turned: bool) -> None:
        super().__init__()
        shape = (EXPERTS, 40, DEPTH + 3) if turned else (EXPERTS, DEPTH + 3, 40)
        self.weight, self.turned = nn.Parameter(normal(*shape, dtype=dtype)), turned

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch._grouped_mm(x, self.weight.mT if self.turned else self.weight, offs=ends)) * 2


@pytest.mark.parametrize("turned", [False, True])
def test_rows_in_groups(turned: bool) -> None:
    dtype = torch.bfloat16
    module = Grouped(dtype, turned).eval()
    first = [8, 16, 24, 32, 40]
    compiled = compile_module(
        module,
        [normal(40, 40, dtype=dtype), torch.tensor(first, dtype=torch.int32)],
        ({0: Dim("m", min=2, max=99)}, None),
    )
    weight = (module.weight.mT if turned else module.weight).double()
    for ends in (first, [0, 0, 37, 37, 40], [3, 4, 21, 22, 30], [40] * 5, [0] * 5, [1, 1, 1, 2, 2]):
        x = normal(max(ends[-1], 2), 40, dtype=dtype)
        want = torch.zeros(x.shape[0], 40, dtype=torch.float64)
        for g, (begin, end) in enumerate(itertools.pairwise([0, *ends])):
            want[begin:end] = x[begin:end].double() @ weight[g]
        assert_same(compiled(x, torch.tensor(ends, dtype=torch.int32)), [torch.relu(want.to(dtype)) * 2])


def test_templates_read_what_is_picked() -> None:
    low = lowered(Experts(torch.float32).eval(), normal(4, DEPTH), torch.tensor([1, 4, 0, 1]))
    assert sum(isinstance(getattr(n, "template", None), PickedGemm) for n in low.nests) == 6
    grouped = lowered(
        Grouped(torch.bfloat16, False).eval(),
        normal(8, 40, dtype=torch.bfloat16),
        torch.tensor([8] * 5, dtype=torch.int32),
    )
    assert sum(isinstance(getattr(n, "template", None), GroupedGemm) for n in grouped.nests) == 1


def test_on_gpus_one_row_reads_what_it_picks() -> None:
    """Several rows of a matrix are multiplied by tensor cores, which read a copy."""
    low = lowered(
        Experts(torch.bfloat16).eval(), normal(4, DEPTH, dtype=torch.bfloat16), torch.tensor([1, 4, 0, 1]), backend=GPU
    )
    assert sum(n.name.startswith("index") for n in low.nests) == 2  # the biases, and the copy for several rows


class Codes(nn.Module):
    """Experts of int8 with a scale a row."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randint(-127, 128, (EXPERTS, 64, 48), dtype=torch.int8))
        self.register_buffer("scales", normal(EXPERTS, 64, 1, dtype=dtype).abs() * 0.01)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return torch.bmm((self.codes.to(x.dtype) * self.scales)[ids], x.unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_experts_of_codes_stay_codes(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = Codes(dtype).eval()
    args = [normal(3, 48, dtype=dtype), torch.tensor([4, 0, 4])]
    compiled = compile_module(module, args)
    assert any(".codes." in name for name in compiled.entry.prepacks)
    assert "mul" not in compiled.entry.constants
    assert_same(compiled(*args), eager(module, args), 4)


@pytest.mark.parametrize(("way", "kind"), [("batched_mm", PickedGemm), ("grouped_mm", GroupedGemm)])
def test_a_mixture_of_experts_as_transformers_has_it(way: str, kind: type[Template]) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 50}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 2}
    inner = transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, **heads)).eval()
    inner.set_experts_implementation(way)
    module, tokens = Picked(inner, ("input_ids",), "logits", use_cache=False).eval(), torch.randint(0, 50, (1, 7))
    assert sum(isinstance(getattr(n, "template", None), kind) for n in lowered(module, tokens).nests) == 4
    compiled = compile_module(module, (tokens,))
    assert_same(compiled(tokens), eager(module, (tokens,)), 10)
