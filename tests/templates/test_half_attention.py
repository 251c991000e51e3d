"""attention.h of 16-bit numbers against torch's scaled_dot_product_attention in float64."""

from __future__ import annotations

import functools

import pytest
import torch

from hardtack.codegen.lower.cpu_workspace import attention_nbytes
from hardtack.codegen.machine.machine import Cpu
from tests.templates import test_attention
from tests.templates.conftest import all_targets
from tests.templates.cpu_kernels import Library, Workspace, load_library
from tests.templates.half_builds import DTYPES, STORAGE, bits, name_of
from tests.templates.layouts import nbytes
from tests.templates.test_attention import SHAPES, reference, tensors


def _source(t: str, name: str) -> str:
    """The kernel of test_attention, of other numbers; the scale stays a float."""
    source = test_attention.SOURCE.replace("attend(", f"attend_{name}(").replace("<float>", f"<{t}>")
    for k in (0, 1, 2):
        source = source.replace(f"<const float*>(args->buffers[{k}])", f"<const {t}*>(args->buffers[{k}])")
    return source.replace("<float*>(args->buffers[4])", f"<{t}*>(args->buffers[4])")


@functools.cache
def _library(target: Cpu) -> Library:
    return load_library({f"attend_{name_of(d)}": _source(t, name_of(d)) for d, t in STORAGE.items()}, target)


def _attend(
    target: Cpu, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, *, causal: bool = False
) -> torch.Tensor:
    (batch, heads, tq, d), kv_heads, (tk, dv) = q.shape, k.shape[1], v.shape[2:]
    out = torch.full((batch, heads, tq, dv), 7.0, dtype=q.dtype)
    kind, mask_strides = 0, [0, 0, 0, 0]
    if mask is not None:
        kind = 2 if mask.dtype == torch.bool else 1
        mask = mask.expand(batch, heads, tq, tk)
        mask_strides = list(mask.stride())
        mask = mask if mask.dtype == torch.bool else bits(mask)
    ints = [batch, heads, kv_heads, tq, tk, d, dv, kind, int(causal)]
    ints += [*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *mask_strides, *out.stride()[:3]]
    workspace = Workspace(per_worker=nbytes(attention_nbytes(tk, d, dv, DTYPES[q.dtype])))
    buffers = [bits(q), bits(k), bits(v), mask, bits(out), torch.tensor([d**-0.5])]
    assert _library(target).call(f"attend_{name_of(q.dtype)}", buffers, ints, workspace, 2) == 0
    return out


def _assert_close(got: torch.Tensor, want: torch.Tensor) -> None:
    """Computed in f32, rounded once."""
    half_ulp = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}[got.dtype]
    torch.testing.assert_close(got.float(), want, rtol=1.01 * half_ulp, atol=3e-6)


@pytest.mark.parametrize("target", all_targets())
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mode", ["plain", "causal", "bool", "added"])
def test_matches_torch(target: Cpu, dtype: torch.dtype, shape: tuple[int, ...], mode: str) -> None:
    q, k, v = (x.to(dtype) for x in tensors(*shape))
    batch, heads, tq, tk = shape[0], shape[1], shape[3], shape[4]
    mask = None
    if mode == "bool":
        mask = torch.rand(batch, 1, tq, tk) > 0.3
    elif mode == "added":
        mask = torch.randn(heads, tq, tk).to(dtype)
    got = _attend(target, q, k, v, mask, causal=mode == "causal")
    _assert_close(got, reference(q, k, v, mask, mode == "causal", None))


@pytest.mark.parametrize("target", all_targets())
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("tq", [1, 3, 40])
def test_strided_views(target: Cpu, dtype: torch.dtype, tq: int) -> None:
    """Heads interleaved in one projection: values of whole panels, which one row reads in place."""
    torch.manual_seed(0)
    qkv = torch.randn(2, 50, 3, 4, 32).to(dtype)
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
    _assert_close(_attend(target, q[:, :, :tq], k, v, None), reference(q[:, :, :tq], k, v, None, False, None))
