"""Convolution, attention, pooling, resizing and recurrence of the reference interpreter; adds to
ops.KERNELS.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from hardtack.codegen.ir.graph_infer_nn import GATES, attention_operands
from hardtack.exporter.reference.ops import KERNELS
from hardtack.exporter.reference.step import Step

_CONV = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


def _conv(s: Step) -> torch.Tensor:
    """Of half types in f32, rounded once behind the bias, if at all: oneDNN's kernels for 16 bits multiply infinities
    by zeros. Of int8 in f64, which is exact.
    """
    x, w = s.args[:2]
    bias = s.args[2] if len(s.args) == 3 else None
    wide = torch.promote_types(x.dtype, torch.float32) if x.is_floating_point() else torch.float64
    out = (_transposed if s.attr("transposed") else _plain)(s, x.to(wide), w.to(wide))
    return (out if bias is None else out + bias.view(-1, *([1] * (x.dim() - 2)))).to(s.dtype)


def _transposed(s: Step, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    n, pads = x.dim() - 2, s.attr("padding")
    out = _TRANSPOSED[n - 1](x, w, None, s.attr("stride"), 0, 0, s.attr("groups"), s.attr("dilation"))
    grow = [v for (_, hi), e in reversed(list(zip(pads, s.attr("output_padding"), strict=True))) for v in (0, e - hi)]
    for i, (lo, _) in enumerate(pads):
        grow[2 * (n - 1 - i)] = -lo
    return F.pad(out, grow)


def _plain(s: Step, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    n, pads = x.dim() - 2, s.attr("padding")
    fill = s.attr("fill") if "fill" in dict(s.op.attrs) else 0
    # torch takes no empty image, whatever its padding
    own = all(lo == hi for lo, hi in pads) and 0 not in x.shape[2:] and not fill
    if not own:
        x = F.pad(x, [v for pair in reversed(pads) for v in pair], value=fill)
    padding = [lo for lo, _ in pads] if own else 0
    return _CONV[n - 1](x, w, None, s.attr("stride"), padding, s.attr("dilation"), s.attr("groups"))


def _attention(s: Step) -> torch.Tensor:
    x = attention_operands("codes" in dict(s.op.attrs), s.args)
    k, v = x.k, x.v
    if x.scales:
        k, v = (
            (codes.float() * scales[..., None]).to(x.q.dtype) for codes, scales in zip((k, v), x.scales, strict=True)
        )
    q, k, v = (a.to(s.dtype) for a in (x.q, k, v))
    groups = q.shape[1] // k.shape[1] if k.shape[1] else 1
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    mask = x.mask
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(s.dtype)
    if s.attr("causal"):
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        if mask is None:
            mask = seen
        else:
            mask = mask & seen if mask.dtype == torch.bool else mask.masked_fill(~seen, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=s.attr("scale"))


def _windows(s: Step, x: torch.Tensor, fill: float) -> torch.Tensor:
    """x padded and cut into windows: [N, C, *out, *kernel]."""
    kernel, stride, dilation, pads = s.attr("kernel"), s.attr("stride"), s.attr("dilation"), s.attr("padding")
    x = F.pad(x, [v for pair in reversed(pads) for v in pair], value=fill)
    for i, k in enumerate(kernel):
        reach = dilation[i] * (k - 1) + 1
        x = x.unfold(2 + i, reach, stride[i])[..., :: dilation[i]]
    return x


def _lowest(x: torch.Tensor) -> float:
    return float("-inf") if x.is_floating_point() else torch.iinfo(x.dtype).min


def _pool(s: Step) -> torch.Tensor:
    x, n = s.args[0], len(s.attr("kernel"))
    dims = list(range(-n, 0))
    if s.attr("kind") == "max":
        return _windows(s, x, _lowest(x)).amax(dims)
    if x.dtype in (torch.float16, torch.bfloat16):  # the sum of a window may lie beyond what a half type holds
        return _quotient(_windows(s, x.float(), 0).sum(dims), _count(s, x)).to(x.dtype)
    return _quotient(_windows(s, x, 0).sum(dims), _count(s, x))


def _quotient(total: torch.Tensor, count: torch.Tensor | int) -> torch.Tensor:
    return total / count if total.is_floating_point() else torch.div(total, count, rounding_mode="trunc")


def _count(s: Step, x: torch.Tensor) -> torch.Tensor | int:
    """What an average divides by."""
    kernel = s.attr("kernel")
    if isinstance(s.attr("count"), int):
        return int(s.attr("count"))
    if s.attr("count") == "valid":
        return _windows(s, torch.ones_like(x[:1, :1]), 0).sum(list(range(-len(kernel), 0)))
    return int(math.prod(kernel))


def _pool_index(s: Step) -> torch.Tensor:
    x, n = s.args[0], len(s.attr("kernel"))
    windows = _windows(s, x, _lowest(x)).flatten(-n)
    flat = torch.arange(math.prod(x.shape[2:])).view(x.shape[2:]).expand(1, 1, *x.shape[2:]).to(torch.float64)
    places = _windows(s, flat, -1).flatten(-n).long()
    usable = places >= 0
    top = windows.amax(-1, True)
    hit = (windows == top) & usable
    first = hit.to(torch.uint8).argmax(-1, True)
    last_nan = torch.where(windows != windows, torch.arange(windows.shape[-1]), -1).amax(-1, True)
    first = torch.where(last_nan >= 0, last_nan, first)
    return places.expand_as(windows).gather(-1, first).squeeze(-1)


def _adaptive(s: Step) -> torch.Tensor:
    x, kind = s.args[0], s.attr("kind")
    n = x.dim() - 2
    name = f"adaptive_{kind}_pool{n}d"
    if 0 in s.shape:  # torch takes a batch of none, and no channels only without a batch
        return x.new_empty(s.shape)
    out: torch.Tensor = getattr(F, name)(x, s.shape[2:])
    return out


def _resize(s: Step) -> torch.Tensor:
    """Through the aten ops that take both the size and the user's scales."""
    x, mode, align, scales = s.args[0], s.attr("mode"), s.attr("align_corners"), s.attr("scales")
    n = x.dim() - 2
    if mode in ("nearest", "nearest-exact"):
        name = f"upsample_nearest{n}d" if mode == "nearest" else f"_upsample_nearest_exact{n}d"
        out: torch.Tensor = getattr(torch.ops.aten, name)(x, s.shape[2:], *scales)
        return out
    name = f"upsample_{('linear', 'bilinear', 'trilinear')[n - 1]}{n}d" if mode == "linear" else "upsample_bicubic2d"
    return getattr(torch.ops.aten, name)(x, s.shape[2:], align, *scales)  # type: ignore[no-any-return]


def _recurrent(s: Step) -> tuple[torch.Tensor, ...]:
    states = 2 if s.op.kind == "lstm" else 1
    x, start = s.args[0], s.args[1 : 1 + states]
    weights = list(s.args[1 + states :])
    if s.attr("reverse"):
        x = x.flip(0)
    first = [h.unsqueeze(0) for h in start]
    has_bias = bool(s.attr("has_bias"))
    if states == 2:
        y, h, c = torch.lstm(x, first, weights, has_bias, 1, 0.0, False, False, False)
        out: tuple[torch.Tensor, ...] = (y, h[0], c[0])
    else:
        layer = getattr(torch, s.op.kind)  # gru, rnn_tanh, rnn_relu
        y, h = layer(x, first[0], weights, has_bias, 1, 0.0, False, False, False)
        out = (y, h[0])
    return (out[0].flip(0), *out[1:]) if s.attr("reverse") else out


KERNELS.update(
    {
        "conv": _conv,
        "attention": _attention,
        "pool": _pool,
        "pool_index": _pool_index,
        "adaptive_pool": _adaptive,
        "resize": _resize,
        **dict.fromkeys(GATES, _recurrent),
    }
)
