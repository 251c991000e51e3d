"""Attention in ops: with dropout, and over heads whose width varies."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.export import Dim

from tests.export.checks import check
from tests.export.op_inputs import randn
from tests.export.test_random_numbers import check_frequencies, drawn


def test_dropout_takes_weights_away_and_scales_the_rest() -> None:
    """Values of ones in a diagonal show the weights themselves."""
    q, keys = randn(4, 8, 100, 16), 100

    def attention(q: torch.Tensor, p: float) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, torch.eye(keys).expand(4, 8, keys, keys), dropout_p=p)

    (found,) = drawn(lambda q: attention(q, 0.3), q)
    kept = found != 0
    check_frequencies(kept.reshape(-1), [0.3, 0.7])
    torch.testing.assert_close(found[kept], attention(q, 0.0)[kept] / 0.7)


def test_dropout_of_all_leaves_nothing() -> None:
    (found,) = drawn(lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=1.0), randn(2, 3, 4))
    assert torch.equal(found, torch.zeros(2, 3, 4))


def test_a_head_whose_width_varies() -> None:
    """Also with a mask, of bools and of numbers, causal, and with heads of queries that share keys."""

    def program(q: torch.Tensor, k: torch.Tensor, looks: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.scaled_dot_product_attention(q, q, q, looks),
            F.scaled_dot_product_attention(q, q, q, bias),
            F.scaled_dot_product_attention(q, q, q, is_causal=True),
            F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
            F.scaled_dot_product_attention(q, q, q),
        ]

    looks, bias = randn(5, 5) > 0, randn(5, 5, seed=2)
    looks[1] = False
    width = Dim("width", max=64)
    sizes = ({3: width}, {3: width}, None, None)
    inputs = [(randn(2, 4, 5, n), randn(2, 2, 5, n, seed=1), looks, bias) for n in (8, 1, 3)]
    check(program, inputs[0], sizes, inputs[1:])
