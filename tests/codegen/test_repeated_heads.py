"""Attention whose keys and values are repeated for the queries that share them: templates read them where they lie."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.nests import TemplateNest
from tests.codegen.compare import assert_same, compile_module, eager, normal
from tests.codegen.template_nests import CPU, GPU, Backend, lowered

Repeat = Callable[[torch.Tensor], torch.Tensor]


def expanded(x: torch.Tensor) -> torch.Tensor:
    """As transformers has it."""
    b, h, s, d = x.shape
    return x[:, :, None].expand(b, h, 3, s, d).reshape(b, h * 3, s, d)


def tiled(x: torch.Tensor) -> torch.Tensor:
    """All heads, three times: neighbours differ."""
    return x.repeat(1, 3, 1, 1)


def behind(x: torch.Tensor) -> torch.Tensor:
    """Repeated behind the tokens, [B, S, H, D]."""
    b, h, s, d = x.shape
    return x.transpose(1, 2)[:, :, :, None].expand(b, s, h, 3, d).reshape(b, s, h * 3, d).transpose(1, 2)


class Attention(torch.nn.Module):
    def __init__(self, keys: Repeat, values: Repeat) -> None:
        super().__init__()
        self.keys, self.values = keys, values

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, self.keys(k), self.values(v))


CASES = [(expanded, expanded, True), (behind, behind, True), (tiled, tiled, False), (expanded, tiled, False)]


def _inputs(queries: int) -> tuple[torch.Tensor, ...]:
    return normal(2, 6, queries, 16), normal(2, 2, 20, 16, seed=2), normal(2, 2, 20, 8, seed=3)


@pytest.mark.parametrize("backend", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(("keys", "values", "once"), CASES)
def test_neighbouring_heads_that_are_one_are_read_once(
    keys: Repeat, values: Repeat, once: bool, backend: Backend
) -> None:
    low = lowered(Attention(keys, values).eval(), *_inputs(1), backend=backend)
    (nest,) = [n for n in low.nests if isinstance(n, TemplateNest) and n.template.kind == "attention"]
    assert [int_value(o.shape[1]) for o in nest.operands] == ([6, 2, 2] if once else [6, 6, 6])
    assert any("copy" in n.name for n in low.nests) != once


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize(("keys", "values", "once"), CASES)
def test_results_are_those_of_eager(keys: Repeat, values: Repeat, once: bool, queries: int) -> None:
    module, args = Attention(keys, values).eval(), _inputs(queries)
    assert_same(compile_module(module, args)(*args), eager(module, args), 5)
