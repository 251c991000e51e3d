"""attention.h as kernels of every type, and how they are called: for its tests and for the benchmark."""

from __future__ import annotations

from collections.abc import Sequence

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
_CODE_SOURCE = """
#include "attention.h"

extern "C" int32_t attend_%(name)s(const HtKernelArgs* args) {
  using T = %(t)s;
  using Code = %(code)s;
  const int64_t* n = args->ints;
  ht::Attention<T> a = {};
  a.batch = n[0], a.heads = n[1], a.kv_heads = n[2], a.tq = n[3], a.tk = n[4], a.d = n[5], a.dv = n[6];
  a.q = static_cast<const T*>(args->buffers[0]);
  a.mask_kind = static_cast<ht::MaskKind>(n[7]);
  a.mask = args->buffers[3];
  a.causal = n[8] != 0;
  a.scale = *static_cast<const float*>(args->buffers[5]);
  ht::RowCodes<Code> rows[2] = {};
  for (int side = 0; side < 2; side++) {
    rows[side].codes = static_cast<const Code*>(args->buffers[1 + side]);
    rows[side].scales = static_cast<const float*>(args->buffers[6 + side]);
    for (int i = 0; i < 3; i++) {
      rows[side].strides[i] = n[12 + 3 * side + i];
      rows[side].scale_strides[i] = n[25 + 3 * side + i];
    }
  }
  for (int i = 0; i < 3; i++) a.q_strides[i] = n[9 + i];
  for (int i = 0; i < 4; i++) a.mask_strides[i] = n[18 + i];
  const ht::StridedOutput<T> output{static_cast<T*>(args->buffers[4]), {n[22], n[23], n[24]}};
  ht::attention(args, a, rows[0], rows[1], output);
  return HT_KERNEL_OK;
}
"""
CODES = {torch.int8: "int8_t", torch.float8_e4m3fn: "ht::E4m3"}
"""What keys and values may be codes of, and their type in C++."""
_NONE, _ADDED, _KEPT, _ADDED_FLOAT = range(4)  # MaskKind


def _name(dtype: torch.dtype, codes: torch.dtype | None) -> str:
    return name_of(dtype) + ("" if codes is None else f"_of_{name_of(codes)}")


def source(dtype: torch.dtype, codes: torch.dtype | None = None) -> tuple[str, str]:
    """The kernel of one type, with keys and values of codes or without: its name and source."""
    name = _name(dtype, codes)
    text = _SOURCE if codes is None else _CODE_SOURCE
    holes = {"name": name, "t": STORAGE.get(dtype, "float"), "code": "" if codes is None else CODES[codes]}
    return f"attend_{name}", text % holes


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
    scales: Sequence[torch.Tensor] = (),
) -> Call:
    """Attention of q [batch, heads, tq, d], k [batch, kv_heads, tk, d] and v [batch, kv_heads, tk, dv] into out
    [batch, heads, tq, dv], dense in their last dimensions. mask: as torch takes it. scales: of k and v, where these are
    codes, [batch, kv_heads, tk].
    """
    (batch, heads, tq, d), kv_heads, (tk, dv) = q.shape, k.shape[1], v.shape[2:]
    kind, mask_strides = _mask_kind(mask, q.dtype), [0, 0, 0, 0]
    if mask is not None:
        mask = mask.expand(batch, heads, tq, tk)
        mask_strides = list(mask.stride())
        mask = bits(mask) if mask.dtype in DTYPES else mask
    ints = [batch, heads, kv_heads, tq, tk, d, dv, kind, int(causal)]
    ints += [*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *mask_strides, *out.stride()[:3]]
    ints += [stride for x in scales for stride in x.stride()]
    factor = torch.tensor([scale if scale is not None else d**-0.5])
    stored = [bits(x) if x.dtype in DTYPES else x for x in (q, k, v, out)]
    stored = [x.view(torch.uint8) if x.dtype is torch.float8_e4m3fn else x for x in stored]
    buffers = [*stored[:3], mask, stored[3], factor, *scales]
    size = attention_nbytes(tk, d, dv, DTYPES.get(q.dtype, DType.F32), bool(scales))
    name = _name(q.dtype, k.dtype if scales else None)
    return library.bind(f"attend_{name}", buffers, ints, Workspace(per_worker=nbytes(size)), nworkers)


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
    scales: Sequence[torch.Tensor] = (),
) -> torch.Tensor:
    """The same, run once; raises AssertionError where the kernel fails or leaves its workspace."""
    out = torch.full((*q.shape[:3], v.shape[3]), 7.0, dtype=q.dtype)
    call = bind(library, q, k, v, out, mask=mask, causal=causal, scale=scale, nworkers=nworkers, scales=scales)
    assert call.run() == 0
    call.check_guards()
    return out
