"""The ops of quantised models taken apart: `quantized_decomposed.*`, which convert_pt2e writes, and others of aten.

A number q of few bits stands for (q - zero_point) * scale. Each rule rounds where torch's kernel, in Python, does, and
reads scales and zero points that are tensors where they are: that kernel takes numbers out of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Number = float | Tensor
"""A scale, a zero point or a limit: of Python, or the only element of a tensor."""
_MOST_INT64 = 2.0**63 - 2.0**39
"""The largest number of f32 that int64 holds."""


def _quantize_per_tensor(
    x: Tensor, scale: Number, zero_point: Number, quant_min: Number, quant_max: Number, dtype: torch.dtype
) -> Tensor:
    """x of f32 or a half type, of any shape: clamp(round(x / scale) + zero_point, quant_min, quant_max) in `dtype`.
    x is multiplied by 1 / scale, which is computed in float64 and rounded to f32."""
    inverse = 1.0 / (scale.double() if isinstance(scale, Tensor) else scale)
    at = (x.float() * _scalar(inverse, torch.float32)).round() + _scalar(zero_point, torch.float32)
    return _clamped(at, quant_min, quant_max).to(dtype)


def _dequantize_per_tensor(
    x: Tensor,
    scale: Number,
    zero_point: Number,
    quant_min: Number,
    quant_max: Number,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """(x - zero_point) * scale in out_dtype, f32 if None; x of `dtype` is converted first."""
    out = out_dtype or torch.float32
    precise = torch.float64 if out == torch.float64 else torch.float32
    return (x.to(out) - _scalar(zero_point, precise)) * _scalar(scale, precise)


def _quantize_per_channel(
    x: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """As per tensor, with scales and zero points of shape (x.shape[axis],), in what f32 and theirs promote to."""
    scales, zero_points = _along(x, axis, scales), _along(x, axis, zero_points)
    return ((x.float() * (1.0 / scales)).round() + zero_points).clamp(quant_min, quant_max).to(dtype)


def _dequantize_per_channel(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """As per tensor, with scales and zero points of shape (x.shape[axis],); the difference is one of integers."""
    centred = x if zero_points is None else x - _along(x, axis, zero_points)
    return (centred * _along(x, axis, scales)).to(out_dtype or torch.float32)


def _choose_qparams(x: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A scale (1,) of float64, at least eps, and a zero point (1,) of int64 for which quant_min to quant_max reach from
    the least to the largest of x, and 0."""
    least, most = _reach(x)
    scale = torch.maximum((most - least) / float(quant_max - quant_min), _one(x, eps))
    zero_point = quant_min - (least / scale).round().to(torch.int32)
    return scale.double(), zero_point.clamp(quant_min, quant_max).long()


def _choose_qparams_symmetric(
    x: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The same for a range that reaches as far below 0 as above it: its zero point is 0, of uint8 128."""
    least, most = _reach(x)
    scale = torch.maximum(torch.maximum(-least, most) / (float(quant_max - quant_min) / 2), _one(x, eps))
    middle = 128 if dtype == torch.uint8 else 0
    return scale.double(), torch.full((1,), middle, dtype=torch.int64, device=x.device)


def _choose_qparams_per_token(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scales (.., 1) by the largest magnitude of each row, for int8, and zero points of 0, of the same dtype."""
    scales = x.abs().amax(-1, keepdim=True)
    scales = (scales.float() if scales.dtype == torch.float16 else scales).clamp(min=1e-5) / 127
    return scales, torch.zeros_like(scales)


def _choose_qparams_per_token_asymmetric(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scales (.., 1) of float64 and zero points of int64 for int8, by the least and the largest of each row: the zero
    point is exact at that end of the range which errs more."""
    quant_min, quant_max = -128, 127
    least, most = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    scale = ((most - least) / float(quant_max - quant_min)).clamp(min=torch.finfo(torch.float32).eps)
    low, high = least / scale, most / scale
    zero_point = torch.where((quant_min + low) + (quant_max + high) > 0, quant_min - low, quant_max - high)
    return scale.double(), zero_point.clamp(quant_min, quant_max).round().long()


def _quantize_per_token(
    x: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """Rows of x with a scale and a zero point (.., 1) each, which is added before rounding."""
    return (x * (1.0 / scales) + zero_points).round().clamp(quant_min, quant_max).to(dtype)


def _dequantize_per_token(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """(x - zero_points) * scales, with one (.., 1) of each a row, rounded to output_dtype at the end."""
    return ((x - zero_points) * scales).to(output_dtype)


def _quantize_per_channel_group(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int = 128,
) -> Tensor:
    """x (N, K) in groups of K, with a scale and a zero point (N, K / group_size) each."""
    groups = _groups(x, scales, group_size)
    quantized = _quantize_per_token(
        groups, scales.reshape(-1, 1), zero_points.reshape(-1, 1), quant_min, quant_max, dtype
    )
    return quantized.reshape(x.shape)


def _dequantize_per_channel_group(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """x (N, K) in groups of K, with a scale and a zero point (N, K / group_size) each."""
    groups = _groups(x, scales, group_size)
    centred = groups if zero_points is None else groups - zero_points.reshape(-1, 1)
    return (centred * scales.reshape(-1, 1)).reshape(x.shape).to(output_dtype)


def _convert_element_type(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype)


def int8pack_mm(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """aten._weight_int8pack_mm: x (M, K) times the transpose of int8 (N, K), whose rows have scales (N,). Of half types
    in f32, rounded once."""
    return ((x.float() @ weight.float().mT) * scales.float()).to(x.dtype)


def fake_quantize_per_tensor(
    x: Tensor, scale: Number, zero_point: Number, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """aten.fake_quantize_per_tensor_affine_cachemask: x rounded to what so many numbers stand for, in its dtype, and
    whether each is between the least and the largest. The scale, its inverse and what it multiplies are of f32."""
    numbers = (n if isinstance(n, Tensor) else torch.full((), n, device=x.device) for n in (scale, zero_point))
    scale, zero_point = (n.reshape(()) for n in numbers)
    steps, inside = _steps(x, scale.float(), zero_point, quant_min, quant_max)
    return (steps.float() * scale.float()).to(x.dtype), inside


def fake_quantize_by_tensors(
    x: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams: the same where enabled is 1, else x itself."""
    out, inside = fake_quantize_per_tensor(x, scale, zero_point, quant_min, quant_max)
    on = enabled.reshape(()) == 1
    return torch.where(on, out, x), inside | ~on


def fake_quantize_per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """aten.fake_quantize_per_channel_affine_cachemask: with scales and zero points of shape (x.shape[axis],)."""
    scale = _along(x, axis, scale).float()
    steps, inside = _steps(x, scale, _along(x, axis, zero_point), quant_min, quant_max, _MOST_INT64)
    return (steps * scale).to(x.dtype), inside


def _steps(
    x: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, most: float = torch.inf
) -> tuple[Tensor, Tensor]:
    """How many steps of the scale x is from 0, within the limits, in f32 or float64; and where it is within them. NaN,
    and what is beyond `most`, is the least that there is, as eager's conversion to int64 has it on a CPU."""
    wide = x if x.dtype == torch.float64 else x.float()
    at = (wide * (1.0 / scale)).round() + zero_point.to(wide.dtype)
    at = torch.where(at.abs() <= most, at, -torch.inf)
    return at.clamp(quant_min, quant_max) - zero_point.to(wide.dtype), (at >= quant_min) & (at <= quant_max)


def _scalar(number: Number, dtype: torch.dtype) -> Number:
    """A number as one of Python is taken beside a tensor: it does not decide the dtype of the result."""
    return number.reshape(()).to(dtype) if isinstance(number, Tensor) else number


def _clamped(x: Tensor, least: Number, most: Number) -> Tensor:
    if isinstance(least, Tensor) or isinstance(most, Tensor):
        lo, hi = (torch.as_tensor(_scalar(n, x.dtype), dtype=x.dtype, device=x.device) for n in (least, most))
        return torch.minimum(torch.maximum(x, lo), hi)
    return x.clamp(least, most)


def _along(x: Tensor, axis: int, numbers: Tensor) -> Tensor:
    shape = [1] * x.dim()
    shape[axis] = numbers.shape[0]
    return numbers.view(shape)


def _reach(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.amin().clamp(max=0), x.amax().clamp(min=0)


def _one(x: Tensor, number: float) -> Tensor:
    return torch.full((1,), number, dtype=torch.float32, device=x.device)


def _groups(x: Tensor, scales: Tensor, group_size: int) -> Tensor:
    """(-1, group_size); a group larger than the rows is a row, where each has one scale."""
    one = group_size > x.shape[-1] and scales.shape[-1] == 1
    return x.reshape(-1, x.shape[-1] if one else group_size)


_RULES: dict[str, Callable[..., Any]] = {
    "quantize_per_tensor.default": _quantize_per_tensor,
    "quantize_per_tensor.tensor": _quantize_per_tensor,
    "quantize_per_tensor.tensor2": _quantize_per_tensor,
    "dequantize_per_tensor.default": _dequantize_per_tensor,
    "dequantize_per_tensor.tensor": _dequantize_per_tensor,
    "dequantize_per_tensor.tensor2": _dequantize_per_tensor,
    "quantize_per_channel.default": _quantize_per_channel,
    "dequantize_per_channel.default": _dequantize_per_channel,
    "choose_qparams.tensor": _choose_qparams,
    "choose_qparams_symmetric.tensor": _choose_qparams_symmetric,
    "choose_qparams_per_token.default": _choose_qparams_per_token,
    "choose_qparams_per_token_asymmetric.default": _choose_qparams_per_token_asymmetric,
    "_choose_qparams_per_token_asymmetric_impl.default": _choose_qparams_per_token_asymmetric,
    "quantize_per_token.default": _quantize_per_token,
    "dequantize_per_token.default": _dequantize_per_token,
    "quantize_per_channel_group.default": _quantize_per_channel_group,
    "dequantize_per_channel_group.default": _dequantize_per_channel_group,
    "convert_element_type.no_fuse": _convert_element_type,
}


def rules() -> dict[Any, Callable[..., Any]]:
    """The decompositions of the `quantized_decomposed.*` that are registered: importing a quantiser does that,
    and so does loading a program that one has made.
    """
    found: dict[Any, Callable[..., Any]] = {}
    for name, rule in _RULES.items():
        op, overload = name.split(".")
        packet = getattr(torch.ops.quantized_decomposed, op, None)
        if packet is not None and overload in packet.overloads():
            found[getattr(packet, overload)] = rule
    return found
