"""attention.h as kernels of every type, and how they are called: for its tests and for the benchmark."""

from __future__ import annotations

import torch

from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.cpu_workspace import attention_nbytes
from tests.templates.cpu_kernels import Call, Library, Workspace
from tests.templates.half_builds import DTYPES, STORAGE, bits, name_of
from tests.templates.layouts import nbytes

_SOURCE = """
#include "attention.h"

extern "C" int32_t attend_%(name)s(const HtKernelArgs* args) {
  using T = %(t)s;
  const int64_t* n = args->ints;
  ht::Attention<T> a = {};
  a.batch = n[0], a.heads = n[1], a.kv_heads = n[2], a.tq = n[3], a.tk = n[4], a.d = n[5], a.dv = n[6];
  a.q = static_cast<const T*>(args->buffers[0]);
  a.k = static_cast<const T*>(args->buffers[1]);
  a.v = static_cast<const T*>(args->buffers[2]);
  a.mask_kind = static_cast<ht::MaskKind>(n[7]);
  a.mask = args->buffers[3];
  a.causal = n[8] != 0;
  a.scale = *static_cast<const float*>(args->buffers[5]);
  for (int i = 0; i < 3; i++) a.q_strides[i] = n[9 + i], a.k_strides[i] = n[12 + i], a.v_strides[i] = n[15 + i];
  for (int i = 0; i < 4; i++) a.mask_strides[i] = n[18 + i];
  ht::attention(args, a, ht::StridedOutput<T>{static_cast<T*>(args->buffers[4]), {n[22], n[23], n[24]}});
  return HT_KERNEL_OK;
}
"""
_NONE, _ADDED, _KEPT, _ADDED_FLOAT = range(4)  # MaskKind


def source(dtype: torch.dtype) -> tuple[str, str]:
    """The kernel of one type: its name and source."""
    name = f"attend_{name_of(dtype)}"
    return name, _SOURCE % {"name": name_of(dtype), "t": STORAGE.get(dtype, "float")}


SOURCES = dict(source(dtype) for dtype in (torch.float32, *DTYPES))


def _mask_kind(mask: torch.Tensor | None, dtype: torch.dtype) -> int:
    if mask is None:
        return _NONE
    if mask.dtype == torch.bool:
        return _KEPT
    return _ADDED if mask.dtype == dtype else _ADDED_FLOAT


def bind(
    library: Library,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    nworkers: int = 1,
) -> Call:
    """Attention of q [batch, heads, tq, d], k [batch, kv_heads, tk, d] and v [batch, kv_heads, tk, dv] into out
    [batch, heads, tq, dv], dense in their last dimensions. mask: as torch takes it.
    """
    (batch, heads, tq, d), kv_heads, (tk, dv) = q.shape, k.shape[1], v.shape[2:]
    kind, mask_strides = _mask_kind(mask, q.dtype), [0, 0, 0, 0]
    if mask is not None:
        mask = mask.expand(batch, heads, tq, tk)
        mask_strides = list(mask.stride())
        mask = bits(mask) if mask.dtype in DTYPES else mask
    ints = [batch, heads, kv_heads, tq, tk, d, dv, kind, int(causal)]
    ints += [*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *mask_strides, *out.stride()[:3]]
    factor = torch.tensor([scale if scale is not None else d**-0.5])
    stored = [bits(x) if x.dtype in DTYPES else x for x in (q, k, v, out)]
    buffers = [*stored[:3], mask, stored[3], factor]
    size = attention_nbytes(tk, d, dv, DTYPES.get(q.dtype, DType.F32))
    return library.bind(f"attend_{name_of(q.dtype)}", buffers, ints, Workspace(per_worker=nbytes(size)), nworkers)


def attend(
    library: Library,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    nworkers: int = 1,
) -> torch.Tensor:
    """The same, run once; raises AssertionError where the kernel fails or leaves its workspace."""
    out = torch.full((*q.shape[:3], v.shape[3]), 7.0, dtype=q.dtype)
    call = bind(library, q, k, v, out, mask=mask, causal=causal, scale=scale, nworkers=nworkers)
    assert call.run() == 0
    call.check_guards()
    return out
