"""Higher-order ops that are taken apart (export/decompose/higher_order.py): flex_attention, map and scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as over_rows
from torch._higher_order_ops.scan import scan
from torch.export import Dim
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tests.export.checks import Called, check
from tests.export.op_inputs import randn

ANY = Dim.DYNAMIC
SLOPES = torch.tensor([0.5, 0.25])


def _module(function: Callable[..., Any]) -> Called:
    module = Called(function)
    module.eval()
    return module


def _causal(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return torch.where(i >= j, score, -float("inf"))


def _sloped(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score + SLOPES[h] * (j - i)


def _capped(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return 5 * torch.tanh(score / 5)


@pytest.mark.parametrize("score_mod", [_causal, _sloped, _capped, None])
def test_scores_of_a_model_with_lengths_that_vary(score_mod: Any) -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, score_mod=score_mod, scale=0.3)

    q, k = randn(2, 2, 6, 8), randn(2, 2, 6, 8, seed=1)
    lengths = ({2: ANY},) * 3
    shorter = tuple(t[:, :, :2] for t in (q, k, k))
    check(_module(attention), (q, k, k + 1), lengths, [shorter, tuple(torch.cat([t, t], 2) for t in (q, k, k))])


def test_fewer_heads_of_keys() -> None:
    def attention(q: Tensor, k: Tensor) -> Any:
        return flex_attention(q, k, k, score_mod=_causal, enable_gqa=True)

    check(_module(attention), (randn(2, 4, 6, 8), randn(2, 2, 6, 8)))


def test_a_block_mask_of_the_model() -> None:
    def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i >= j) & (i - j < 40)

    def attention(q: Tensor) -> Any:
        mask = create_block_mask(near, None, None, q.shape[2], q.shape[2], device="cpu")
        return flex_attention(q, q, q, block_mask=mask)

    check(_module(attention), (randn(1, 2, 256, 8),), atol=1e-4)


def test_rows_without_any_key() -> None:
    """Their results are 0, as eager's."""

    def none_first(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.where(i > j, score, -float("inf"))

    check(_module(lambda q: flex_attention(q, q, q, score_mod=none_first)), (randn(1, 1, 4, 8),))


def _map(x: Tensor, scale: Tensor) -> Any:
    return over_rows(lambda row, s: (row * s + row.sum(), row.max()), x, scale)


def test_a_map_over_rows_that_vary() -> None:
    check(_module(_map), (randn(5, 3), randn(3)), ({0: ANY}, None), [(randn(k, 3), randn(3)) for k in (1, 2, 100)])


def test_a_map_inside_of_a_branch() -> None:
    def program(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda y: over_rows(lambda r: r * r.sum(), y), lambda y: y.clone(), (x,))

    check(_module(program), (randn(5, 3),), None, [(randn(5, 3, seed=4),), (-randn(5, 3).abs(),)])


def _products(x: Tensor, scale: Tensor) -> Any:
    def step(carried: tuple[Tensor, Tensor], row: Tensor) -> Any:
        product, total = carried
        return (product * row * scale, total + row), (product.sum(), row * total)

    return scan(step, (torch.ones(3), torch.zeros(3)), x)


def test_a_scan_of_a_fixed_number() -> None:
    check(_module(_products), (randn(5, 3), randn(3)))


def test_a_scan_of_rows_that_vary() -> None:
    check(_module(_products), (randn(5, 3), randn(3)), ({0: ANY}, None), [(randn(k, 3), randn(3)) for k in (1, 2, 100)])


def test_a_scan_of_small_whole_numbers() -> None:
    """Whose results are of their type, as their sums are not."""

    def program(x: Tensor) -> Any:
        return scan(lambda c, r: (c + r, c * r), torch.zeros(3, dtype=torch.int32), x)

    check(_module(program), (torch.arange(15, dtype=torch.int32).reshape(5, 3),), ({0: ANY},))


def test_a_scan_of_many_rows() -> None:
    check(_module(_products), (randn(70, 3) / 9 + 1, torch.ones(3)))


def test_a_scan_from_the_end() -> None:
    def program(x: Tensor) -> Any:
        return scan(lambda c, r: (c + r, c * r), torch.zeros(3), x, reverse=True)

    check(_module(program), (randn(5, 3),))
