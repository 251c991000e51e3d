"""scaled_dot_product_attention, kept whole."""

from __future__ import annotations

import math

from hardtack.codegen.ir.expr import int_value, product
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Value, converts


@converts("aten.scaled_dot_product_attention.default")
def _attention(
    b: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | Value | None = None,
    enable_gqa: bool = False,
) -> Value:
    """Any rank of at least 2 is brought to [batch, heads, length, width]; a mask follows its queries."""
    assert not dropout_p  # attention with dropout attention_in_ops.py has taken apart, and what follows, too
    assert not isinstance(scale, Value)
    if scale is None:
        width = int_value(query.shape[-1])
        assert width is not None
        scale = 1.0 / math.sqrt(width) if width else 1.0
    out_shape = b.result.shape
    if any(int_value(n) == 0 for n in out_shape):
        return b.full(out_shape, 0.0, b.result.dtype)
    query, key, value = _same_batch(b, query, key, value, enable_gqa)
    if attn_mask is not None:
        attn_mask = _four_dims_mask(b, attn_mask, query, key, enable_gqa)
    q, k, v = (_four_dims(b, t, enable_gqa) for t in (query, key, value))
    operands = (q, k, v) if attn_mask is None else (q, k, v, attn_mask)
    out = b.op("attention", *operands, scale=float(scale), causal=bool(is_causal))
    return b.reshape(out, out_shape)


def _same_batch(b: Builder, q: Value, k: Value, v: Value, grouped: bool) -> tuple[Value, Value, Value]:
    """Batch dims broadcast; where queries are grouped, keys and values keep their heads."""
    batch = b.result.shape[:-2]
    heads = [batch[-1:] if not grouped else t.shape[-3:-2] for t in (q, k, v)]
    return tuple(b.expand(t, (*batch[:-1], *h, *t.shape[-2:])) for t, h in zip((q, k, v), heads, strict=True))  # type: ignore[return-value]


def _four_dims(b: Builder, t: Value, grouped: bool) -> Value:
    """[..., L, E] as [batch, heads, L, E]; leading dims are merged into the batch."""
    if t.rank == 4:
        return t
    if t.rank == 2:
        return b.reshape(t, (1, 1, *t.shape))
    if t.rank == 3:
        return b.reshape(t, (1, *t.shape) if grouped else (t.shape[0], 1, *t.shape[1:]))
    return b.reshape(t, (product(t.shape[:-3]), *t.shape[-3:]))


def _four_dims_mask(b: Builder, mask: Value, q: Value, k: Value, grouped: bool) -> Value:
    if mask.dtype is not DType.BOOL:
        mask = b.to(mask, q.dtype)
    if q.rank == 4:
        return mask
    full = b.expand(mask, (*q.shape[:-2], q.shape[-2], k.shape[-2]))
    return _four_dims(b, full, grouped)
