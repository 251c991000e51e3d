"""attention.h of 16-bit numbers against torch's scaled_dot_product_attention in float64, in every way that a target
multiplies them.
"""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from hardtack.codegen.machine.machine import Cpu
from tests.templates import attention_kernels
from tests.templates.cpu_kernels import Library, load_library
from tests.templates.half_builds import BUILDS, DTYPES, build_params, name_of
from tests.templates.test_attention import SHAPES, reference, tensors


@functools.cache
def _library(cpu: Cpu) -> Library:
    return load_library(dict(attention_kernels.source(dtype) for dtype in DTYPES), cpu)


@pytest.fixture(scope="session", params=build_params())
def library(request: pytest.FixtureRequest) -> Library:
    """Attention of both types, for every build."""
    return _library(request.param)


def _attend(
    library: Library, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool = False
) -> torch.Tensor:
    """With one worker and with two, whose results must be the same."""
    got = attention_kernels.attend(library, q, k, v, mask, causal=causal)
    again = attention_kernels.attend(library, q, k, v, mask, causal=causal, nworkers=2)
    assert torch.equal(got.view(torch.int16), again.view(torch.int16))
    return got


def _assert_close(got: torch.Tensor, want: torch.Tensor, v: torch.Tensor) -> None:
    """f16: computed in f32, rounded once. bf16: weights may be rounded, too, each by a share of what it is; that is
    half an ulp of the largest value at most, and much less of a sum of many.
    """
    if got.dtype is torch.float16:
        torch.testing.assert_close(got.float(), want, rtol=1.01 * 2.0**-11, atol=3e-6)
        return
    largest = v.float().abs().max().item() if v.numel() else 0.0
    torch.testing.assert_close(got.float(), want, rtol=1.01 * 2.0**-8, atol=3e-6 + largest * 2.0**-9)


SIZES = [
    *SHAPES,
    (1, 2, 2, 4, 70, 31, 64),
    (1, 2, 1, 7, 65, 1, 33),  # shared keys, a row of a tile in pairs with zeros
    (1, 1, 1, 33, 259, 65, 31),  # an odd number of keys in the last block
    (1, 2, 2, 96, 257, 96, 128),
    (1, 8, 2, 1, 300, 128, 128),
    (2, 2, 2, 6, 50, 2, 160),
]


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("mode", ["plain", "causal", "bool", "added", "added float"])
def test_matches_torch(library: Library, dtype: torch.dtype, shape: tuple[int, ...], mode: str) -> None:
    q, k, v = (x.to(dtype) for x in tensors(*shape))
    batch, heads, tq, tk = shape[0], shape[1], shape[3], shape[4]
    mask = None
    if mode == "bool":
        mask = torch.rand(batch, 1, tq, tk) > 0.3
    elif mode == "added":
        mask = torch.randn(heads, tq, tk).to(dtype)
    elif mode == "added float":
        mask = torch.randn(batch, 1, 1, tk)
    got = _attend(library, q, k, v, mask, causal=mode == "causal")
    _assert_close(got, reference(q, k, v, mask, mode == "causal", None), v)


@settings(max_examples=60, deadline=None)
@given(
    build=st.sampled_from(BUILDS), dtype=st.sampled_from(list(DTYPES)), tq=st.integers(1, 100),
    tk=st.integers(1, 300), d=st.integers(1, 70), dv=st.integers(1, 70), groups=st.sampled_from([1, 2]),
    few=st.booleans(), causal=st.booleans(),
)  # fmt: skip
def test_any_size(
    build: Cpu, dtype: torch.dtype, tq: int, tk: int, d: int, dv: int, groups: int, few: bool, causal: bool
) -> None:
    q, k, v = (x.to(dtype) for x in tensors(1, 2, groups, tq % 7 + 1 if few else tq, tk, d, dv))
    _assert_close(_attend(_library(build), q, k, v, None, causal=causal), reference(q, k, v, None, causal, None), v)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("tq", [1, 3, 4, 5, 40])
def test_strided_views(library: Library, dtype: torch.dtype, tq: int) -> None:
    """Heads interleaved in one projection: values of whole panels, which a few rows read in place."""
    qkv = torch.randn(2, 50, 3, 4, 32).to(dtype)
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
    _assert_close(_attend(library, q[:, :, :tq], k, v, None), reference(q[:, :, :tq], k, v, None, False, None), v)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("tq", [1, 3, 4, 5, 13, 40])
@pytest.mark.parametrize(("d", "dv"), [(37, 37), (33, 32), (64, 5)])
def test_what_lies_beside_an_operand_is_not_read_as_a_number(
    library: Library, dtype: torch.dtype, tq: int, d: int, dv: int
) -> None:
    """NaN behind each row of each operand and behind its last row."""
    tk = 45
    q, k, v = (torch.full((1, 2, rows + 1, 80), torch.nan, dtype=dtype) for rows in (tq, tk, tk))
    q, k, v = q[:, :, :tq, :d], k[:, :, :tk, :d], v[:, :, :tk, :dv]
    for x in (q, k, v):
        x.copy_(torch.randn(x.shape))
    _assert_close(_attend(library, q, k, v, None), reference(q, k, v, None, False, None), v)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("tq", [1, 4, 40])
def test_rows_that_see_nothing_are_zero(library: Library, dtype: torch.dtype, tq: int) -> None:
    q, k, v = (x.to(dtype) for x in tensors(1, 2, 2, tq, 600, 16, 16))
    mask = torch.ones(tq, 600, dtype=torch.bool)
    mask[0, :512] = False  # nothing in the first two key blocks
    mask[tq // 2] = False  # nothing at all
    additive = torch.zeros(tq, 600).masked_fill(~mask, float("-inf"))
    want = reference(q, k, v, mask, False, None)
    for chosen in (mask, additive, additive.to(dtype)):
        got = _attend(library, q, k, v, chosen)
        _assert_close(got, want, v)
        assert (got[:, :, tq // 2] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("tq", [2, 20])
def test_large_scores_and_nan(library: Library, dtype: torch.dtype, tq: int) -> None:
    q, k, v = (x.to(dtype) for x in tensors(1, 1, 1, tq, 300, 8, 8))
    q, k = q * 100, k * 100
    _assert_close(_attend(library, q, k, v, None), reference(q, k, v, None, False, None), v)
    q[0, 0, 1, 0] = float("nan")
    got = _attend(library, q, k, v, None)
    assert got[0, 0, 1].isnan().all()
    assert not got[0, 0, 0].isnan().any()


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("scale", [-5.0, 0.0, 1e-30, 7.0])
def test_scales(library: Library, dtype: torch.dtype, scale: float) -> None:
    """The largest score is the least product of a negative scale, and any of none; over three key blocks."""
    q, k, v = (x.to(dtype) for x in tensors(1, 2, 2, 40, 515, 16, 24))
    got = attention_kernels.attend(library, q, k, v, scale=scale)
    _assert_close(got, reference(q, k, v, None, False, scale), v)


@pytest.mark.parametrize("tq", [1, 4, 40])
def test_equal_values_are_their_mean(library: Library, tq: int) -> None:
    """What weights are divided by is the sum of what they were rounded to."""
    q, k, v = (x.bfloat16() for x in tensors(1, 2, 2, tq, 500, 64, 64))
    v[:] = 1.0
    assert (_attend(library, q, k, v, None) == 1).all()


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("shape", [(2, 128, 300), (2, 1, 700), (2, 6, 64)], ids=str)
def test_bf16_is_as_close_to_float64_as_eager(library: Library, shape: tuple[int, int, int], offset: float) -> None:
    heads, tq, tk = shape
    q, k, v = (x.bfloat16() for x in tensors(1, heads, heads, tq, tk, 64, 64))
    v = (v + offset).bfloat16()
    want = reference(q, k, v, None, False, None)
    got, eager = _attend(library, q, k, v, None), F.scaled_dot_product_attention(q, k, v)
    ours, theirs = ((x.float() - want).square().mean().sqrt().item() for x in (got, eager))
    assert ours < 1.05 * theirs
