"""attention.h against torch's scaled_dot_product_attention."""

from __future__ import annotations

import functools

import pytest
import torch

from hardtack.codegen.machine.machine import Cpu
from tests.templates import attention_kernels
from tests.templates.conftest import all_targets
from tests.templates.cpu_kernels import Library, load_library


@functools.cache
def library(target: Cpu) -> Library:
    return load_library(dict([attention_kernels.source(torch.float32)]), target)


def attend(
    target: Cpu,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    nworkers: int = 1,
) -> torch.Tensor:
    return attention_kernels.attend(library(target), q, k, v, mask, causal=causal, scale=scale, nworkers=nworkers)


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float | None
) -> torch.Tensor:
    wide = None if mask is None else (mask if mask.dtype == torch.bool else mask.double())
    return torch.nn.functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), attn_mask=wide, is_causal=causal, scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    ).float()  # fmt: skip


def tensors(batch: int, heads: int, kv_heads: int, tq: int, tk: int, d: int, dv: int) -> list[torch.Tensor]:
    torch.manual_seed(tq * 1000 + tk)
    return [
        torch.randn(batch, heads, tq, d), torch.randn(batch, kv_heads, tk, d), torch.randn(batch, kv_heads, tk, dv),
    ]  # fmt: skip


SHAPES = [
    (1, 1, 1, 1, 1, 1, 1),
    (2, 3, 3, 5, 7, 16, 16),
    (1, 2, 2, 128, 128, 64, 64),
    (1, 4, 2, 97, 300, 40, 24),  # key blocks, odd sizes
    (2, 8, 2, 1, 513, 64, 64),  # decoding, shared keys
    (1, 2, 1, 1, 700, 33, 96),
    (1, 6, 2, 3, 40, 20, 20),
    (1, 2, 2, 200, 33, 8, 72),
    (2, 2, 2, 3, 0, 8, 8),  # no keys
    (1, 2, 2, 0, 5, 8, 8),
    (0, 2, 2, 3, 5, 8, 8),
]


@pytest.mark.sweep(over="target")
@pytest.mark.parametrize("target", all_targets())
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mode", ["plain", "causal", "bool", "float"])
def test_matches_torch(target: Cpu, shape: tuple[int, ...], mode: str) -> None:
    q, k, v = tensors(*shape)
    batch, heads, tq, tk = shape[0], shape[1], shape[3], shape[4]
    mask = None
    if mode == "bool":
        mask = torch.rand(batch, 1, tq, tk) > 0.3
    elif mode == "float":
        mask = torch.randn(heads, tq, tk)
    want = reference(q, k, v, mask, mode == "causal", None)
    got = attend(target, q, k, v, mask, causal=mode == "causal")
    torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-6)
    again = attend(target, q, k, v, mask, causal=mode == "causal", nworkers=2)
    assert torch.equal(got, again)


@pytest.mark.parametrize("target", all_targets())
def test_strided_views_and_scale(target: Cpu) -> None:
    """Heads interleaved in one projection, as transformers lay them out; values dense in place."""
    torch.manual_seed(0)
    qkv = torch.randn(2, 50, 3, 4, 32)
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
    got = attend(target, q, k, v, scale=0.3)
    torch.testing.assert_close(got, reference(q, k, v, None, False, 0.3), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("target", all_targets())
@pytest.mark.parametrize("tq", [1, 40])
def test_rows_that_see_nothing_are_zero(target: Cpu, tq: int) -> None:
    q, k, v = tensors(1, 2, 2, tq, 600, 16, 16)
    mask = torch.ones(tq, 600, dtype=torch.bool)
    mask[tq // 2] = False  # nothing at all
    mask[0, :512] = tq == 1 and tq // 2 != 0  # nothing in the first two key blocks
    additive = torch.zeros(tq, 600).masked_fill(~mask, float("-inf"))
    want = reference(q, k, v, mask, False, None)
    assert (want[:, :, tq // 2] == 0).all()
    for given in (mask, additive):
        got = attend(target, q, k, v, given)
        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-6)
        assert (got[:, :, tq // 2] == 0).all()


@pytest.mark.parametrize("target", all_targets())
def test_large_scores_and_nan(target: Cpu) -> None:
    q, k, v = tensors(1, 1, 1, 20, 300, 8, 8)
    q, k = q * 300, k * 300
    torch.testing.assert_close(attend(target, q, k, v), reference(q, k, v, None, False, None), rtol=2e-5, atol=2e-6)
    q[0, 0, 3, 0] = float("nan")
    got = attend(target, q, k, v)
    assert got[0, 0, 3].isnan().all()
    assert not got[0, 0, 4].isnan().any()
