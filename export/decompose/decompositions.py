"""Which torch ops are taken apart, and which reach the conversion table whole: a list of names.

torch's default table rewrites about 950 ops into its core set; the ops below are taken out of it because the Graph has
one op for them, or because the convert function writes a numerically better or shorter sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions

from hardtack.exporter.decompose import (
    antialiased_resizes,
    backward_ops,
    chunked_losses,
    fractional_pools,
    integer_convolutions,
    linear_algebra,
    packed_int4,
    quantized,
    segments,
    selections,
)
from hardtack.exporter.decompose.attention_in_ops import with_attention_in_ops
from hardtack.exporter.decompose.bags import embedding_bag, with_even_bags
from hardtack.exporter.decompose.dropouts import with_dropouts_as_views
from hardtack.exporter.decompose.grid_samples import grid_sample
from hardtack.exporter.decompose.higher_order import with_higher_order_ops_apart
from hardtack.exporter.decompose.reshape_writes import with_written_reshapes
from hardtack.exporter.decompose.user_decompositions import (
    check_called,
    check_decompositions,
    with_calls,
    with_users,
)
from hardtack.exporter.decompose.window_writes import with_written_windows
from hardtack.exporter.errors import CaptureError, MutationError, PluginError
from hardtack.exporter.extensions import Extensions

WHOLE = (
    "aten.scaled_dot_product_attention.default",
    "aten.lstm.input",
    "aten.gru.input",
    "aten.rnn_tanh.input",
    "aten.rnn_relu.input",
    "aten.linear.default",
    "aten.bernoulli.default",
    "aten.matmul.default",
    "aten.addmm.default",
    "aten.baddbmm.default",
    "aten.layer_norm.default",
    "aten.group_norm.default",
    "aten.rms_norm.default",
    "aten.instance_norm.default",
    "aten.batch_norm.default",
    "aten.softmax.int",
    "aten._safe_softmax.default",
    "aten.log_softmax.int",
    "aten.logsumexp.default",
    "aten.std.correction",
    "aten.std_mean.correction",
    "aten.silu.default",
    "aten.hardswish.default",
    "aten.hardsigmoid.default",
    "aten.mish.default",
    "aten.glu.default",
    "aten.selu.default",
    "aten.celu.default",
    "aten.softplus.default",
    "aten.threshold.default",
    "aten.prelu.default",
    "aten.log_sigmoid.default",
    "aten.relu6.default",
    "aten.pixel_shuffle.default",
    "aten.pixel_unshuffle.default",
    "aten.roll.default",
    "aten.one_hot.default",
    "aten.eye.default",
    "aten.eye.m",
    "aten.masked_fill.Scalar",
    "aten.masked_fill.Tensor",
    "aten.tril.default",
    "aten.triu.default",
    "aten.linspace.default",
    "aten.adaptive_avg_pool1d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten.adaptive_avg_pool3d.default",
    "aten.adaptive_max_pool1d.default",
    "aten.max_pool1d.default",
    "aten.max_pool2d.default",
    "aten.max_pool3d.default",
    "aten.avg_pool1d.default",
    "aten.upsample_nearest1d.vec",
    "aten.upsample_nearest2d.vec",
    "aten.upsample_nearest3d.vec",
    "aten._upsample_nearest_exact1d.vec",
    "aten._upsample_nearest_exact2d.vec",
    "aten._upsample_nearest_exact3d.vec",
    "aten.upsample_linear1d.vec",
    "aten.upsample_bilinear2d.vec",
    "aten.upsample_trilinear3d.vec",
    "aten.upsample_bicubic2d.vec",
    "aten.upsample_nearest1d.default",
    "aten.upsample_nearest2d.default",
    "aten.upsample_nearest3d.default",
    "aten._upsample_nearest_exact1d.default",
    "aten._upsample_nearest_exact2d.default",
    "aten._upsample_nearest_exact3d.default",
    "aten.upsample_linear1d.default",
    "aten.upsample_bilinear2d.default",
    "aten.upsample_trilinear3d.default",
    "aten.upsample_bicubic2d.default",
    "aten.reflection_pad1d.default",
    "aten.reflection_pad2d.default",
    "aten.reflection_pad3d.default",
    "aten.replication_pad1d.default",
    "aten.replication_pad2d.default",
    "aten.replication_pad3d.default",
    "aten.index_add.default",
    "aten.index_copy.default",
    "aten.index_fill.int_Scalar",
    "aten.index_fill.int_Tensor",
    "aten.slice_scatter.default",
    "aten.select_scatter.default",
    "aten.diagonal_scatter.default",
    "aten.split_with_sizes.default",
    "aten.stack.default",
    "aten.unbind.int",
)
"""Ops that the conversion table takes whole."""


TAKEN_APART = (
    "aten.narrow_copy.default",
    "aten.dist.default",
    "aten.permute_copy.default",
    "aten.unbind_copy.int",
)
"""Ops that torch's default table leaves whole although torch has a decomposition for them."""


def _lstm_cell(
    from_input: Tensor, from_hidden: Tensor, cell: Tensor, bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """A step of torch.nn.LSTMCell from both products (B, 4 H), gates in the order i, f, g, o: h', c', and the gates."""
    i, f, g, o = (_sum(from_input, bias) + _sum(from_hidden, hidden_bias)).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    fresh = f * cell + i * g
    return o * fresh.tanh(), fresh, torch.cat([i, f, g, o], 1)


def _gru_cell(
    from_input: Tensor, from_hidden: Tensor, hidden: Tensor, bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A step of torch.nn.GRUCell from both products (B, 3 H), gates in the order r, z, n: h', and training's memory."""
    (r, z, n), (hr, hz, hn) = (x.chunk(3, 1) for x in (_sum(from_input, bias), _sum(from_hidden, hidden_bias)))
    r, z = (r + hr).sigmoid(), (z + hz).sigmoid()
    n = (n + r * hn).tanh()
    return n + z * (hidden - n), torch.cat([r, z, n, hidden, hn], 1)


def _sum(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The k-th element where the mask holds is the k-th of the source; too short a source is an index out of range."""
    x, mask = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]
    chosen = mask.reshape(-1)
    position = (chosen.cumsum(0) - 1).clamp(min=0)
    return torch.where(chosen, source.reshape(-1).index_select(0, position), x.reshape(-1)).view(x.shape)


def _nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The places of the first `size` elements that are not 0, (size, rank), in order; fill_value where there are less.
    The k-th of them writes its place in row-major order at k, all others behind the end.
    """
    chosen = (x != 0).reshape(-1)
    rank = chosen.cumsum(0)
    at = torch.where(chosen & (rank <= size), rank - 1, size)
    places = torch.full((size + 1,), -1, dtype=torch.int64, device=x.device)
    places = places.scatter(0, at, torch.arange(chosen.numel(), device=x.device))[:size]
    found = places >= 0
    columns: list[Tensor] = []
    for n in reversed(x.shape):
        count = torch.scalar_tensor(n, dtype=torch.int64, device=x.device).clamp(min=1)  # max(n, 1) torch takes for n
        columns.insert(0, places % count)
        places = places // count
    rows = torch.stack(columns, 1) if columns else places.new_empty((size, 0))
    return torch.where(found.unsqueeze(1), rows, fill_value)


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    """0, 1, 2: none, mean, sum."""
    if reduction == 0:
        return loss
    return loss.mean() if reduction == 1 else loss.sum()


def _huber_loss(x: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    """Each step rounded to the dtype as eager does: a loss beyond 65504 in float16 is infinity before the mean."""
    z = (x - target).abs()
    limit = torch.full((), delta, dtype=x.dtype, device=x.device)
    return _reduced(torch.where(z < limit, z * 0.5 * z, limit * (z - limit * 0.5)), reduction)


def _soft_margin_loss(x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """log(1 + exp(-x * target)), each step rounded to the dtype as eager does: exp of 12 is infinity in float16."""
    return _reduced((-x * target).exp().log1p(), reduction)


def _bce_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """(1 - target) x - (1 + (pos_weight - 1) target) log(sigmoid(x)), in the target's dtype, rounded to it at each
    step, as eager does in place; torch's own decomposition rounds once, and that of 2.11 to what both are converted to.
    """
    log_sigmoid = torch.nn.functional.logsigmoid(x)
    if pos_weight is not None:
        log_sigmoid = (log_sigmoid * ((pos_weight - 1) * target + 1)).to(x.dtype)
    loss = (((1 - target) * x).to(target.dtype) - log_sigmoid).to(target.dtype)
    return _reduced(loss if weight is None else (loss * weight).to(target.dtype), reduction)


def _ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """x * 2^exponent. Of floats and integers it is exact, in x's dtype, however large the exponent; what else there is
    goes by a power in the dtype that eager takes. Of integers and one exponent in a half type torch traces float32, and
    eager gives the half.
    """
    if x.is_floating_point() and not exponent.is_floating_point() and exponent.dtype is not torch.bool:
        return _scaled(x, exponent)
    whole = not (x.is_floating_point() or x.is_complex())
    if whole and exponent.dim() == 0 and exponent.dtype in (torch.float16, torch.bfloat16):
        raise _other_dtype("ldexp", x, exponent, exponent.dtype)
    if whole or x.dtype is torch.float32:
        return x * torch.pow(2.0, exponent)
    return x * torch.full((), 2.0, dtype=x.dtype, device=x.device).pow(exponent)


def _scaled(x: Tensor, exponent: Tensor) -> Tensor:
    """x * 2^exponent, rounded where the result is subnormal only. Smaller types go through float64, which holds all
    powers that matter to them; float64 takes three factors, of which the first two round only what becomes 0.
    """
    power = exponent.to(torch.int32).long()  # as eager does: an int64 of 2^32 is 0
    if x.dtype is not torch.float64:
        return (x.double() * _power_of_two(power.clamp(-1022, 1023))).to(x.dtype)
    power = power.clamp(-2200, 2200)
    part = torch.div(power, 3, rounding_mode="trunc")
    return x * _power_of_two(part) * _power_of_two(part) * _power_of_two(power - 2 * part)


def _power_of_two(power: Tensor) -> Tensor:
    """2^power in float64 by its bits: 11 of exponent, which begins at 1023, before 52 of fraction."""
    return ((power + 1023) << 52).view(torch.float64)


def _other_dtype(op: str, x: Tensor, y: Tensor, eager: torch.dtype) -> CaptureError:
    return CaptureError(
        f"{op} of {x.dtype} and {y.dtype}: eager gives {eager}, torch.export another dtype",
        fix="convert both to one dtype",
    )


def _frac(x: Tensor) -> Tensor:
    """torch 2.11's own goes by the absolute value, which makes -0.0 of -0.0 where eager gives 0.0."""
    return x - x.trunc()


OWN: dict[str, Callable[..., Any]] = {
    "aten._embedding_bag.default": embedding_bag,
    "aten._embedding_bag_forward_only.default": embedding_bag,
    "aten._weight_int8pack_mm.default": quantized.int8pack_mm,
    "aten.fake_quantize_per_tensor_affine_cachemask.default": quantized.fake_quantize_per_tensor,
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default": quantized.fake_quantize_by_tensors,
    "aten.fake_quantize_per_channel_affine_cachemask.default": quantized.fake_quantize_per_channel,
    "aten.binary_cross_entropy_with_logits.default": _bce_with_logits,
    "aten.frac.default": _frac,
    "aten.ldexp.Tensor": _ldexp,
    "aten.masked_scatter.default": _masked_scatter,
    "aten.index_reduce.default": selections.index_reduce,
    "aten.frexp.Tensor": selections.frexp,
    "aten.nanmedian.default": selections.nanmedian,
    "aten.nanmedian.dim": selections.nanmedian_of_rows,
    "aten.mode.default": selections.mode,
    "aten._pdist_forward.default": selections.pdist,
    "aten.nonzero_static.default": _nonzero_static,
    "aten.fractional_max_pool2d.default": fractional_pools.fractional_max_pool2d,
    "aten.fractional_max_pool3d.default": fractional_pools.fractional_max_pool3d,
    "aten.segment_reduce.default": segments.segment_reduce,
    "aten.histogram.bin_ct": segments.histogram,
    "aten.histogram.bins_tensor": segments.histogram_between,
    "aten.grid_sampler_2d.default": grid_sample,
    "aten.grid_sampler_3d.default": grid_sample,
    "aten._upsample_bilinear2d_aa.default": antialiased_resizes.bilinear,
    "aten._upsample_bicubic2d_aa.default": antialiased_resizes.bicubic,
    "aten.convolution.default": integer_convolutions.convolution,
    "aten._thnn_fused_lstm_cell.default": _lstm_cell,
    "aten._thnn_fused_gru_cell.default": _gru_cell,
    **backward_ops.OWN,
    **linear_algebra.OWN,
}
"""Ops that torch has no decomposition for, or none that is right for all dtypes."""


_ONE_DTYPE = {"aten.huber_loss.default": _huber_loss, "aten.soft_margin_loss.default": _soft_margin_loss}
"""Losses of which eager gives the input's dtype, and torch.export the one that both operands are converted to; torch's
own decompositions of them round once where eager rounds each step.
"""


def _of_one_dtype(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def rule(x: Tensor, target: Tensor, *rest: Any, **more: Any) -> Any:
        if x.dtype != target.dtype:
            _, op, _ = _parts(name)
            raise _other_dtype(op, x, target, x.dtype)
        return plain(x, target, *rest, **more)

    return rule


def table() -> dict[Any, Callable[..., Any]]:
    """torch's default decompositions without those of WHOLE, with those of TAKEN_APART and OWN, and of the ops of
    quantised models. A fresh dict of what is registered now: libraries that are imported later bring more.
    """
    found = dict(torch.export.default_decompositions().items())  # type: ignore[no-untyped-call]
    for op in list(found):
        if str(op) in _WHOLE:
            del found[op]
    extra = [getattr(getattr(torch.ops.aten, name), overload) for _, name, overload in map(_parts, TAKEN_APART)]
    found.update(get_decompositions(extra))
    for name, plain in _ONE_DTYPE.items():
        _, op, overload = _parts(name)
        found[getattr(getattr(torch.ops.aten, op), overload)] = _of_one_dtype(name, plain)
    for name, decomposition in OWN.items():
        _, op, overload = _parts(name)
        found[getattr(getattr(torch.ops.aten, op), overload)] = decomposition
    return found | quantized.rules() | packed_int4.rules() | chunked_losses.rules()


def _parts(name: str) -> list[str]:
    return name.split(".")


_WHOLE = frozenset(WHOLE)


def decompose(ep: torch.export.ExportedProgram, extensions: Extensions) -> torch.export.ExportedProgram:
    """The program in core ops, WHOLE ones and those that users lower, functional: mutation is listed in its signature.
    MutationError for writes in place that torch cannot follow; PluginError for a user's decomposition.
    """
    check_decompositions(ep, extensions)
    traced = with_dropouts_as_views(with_attention_in_ops(ep))
    settled = with_written_reshapes(traced)
    prepared = with_calls(with_even_bags(with_written_windows(settled)), extensions)
    try:
        found = with_higher_order_ops_apart(prepared).run_decompositions(with_users(table(), ep, extensions))
    except (CaptureError, PluginError) as error:  # torch's interpreter has put words of its own behind ours
        raise type(error)(error.what, error.where, error.fix) from error
    except ValueError as error:
        if settled is traced or "Cannot view a tensor" not in str(error):
            raise
        raise MutationError(
            "forward writes in place to a view of a tensor, and then by other strides to another view of it",
            fix="write to the tensor itself, or to a clone of it",
        ) from error
    check_called(ep, extensions, "decomposition")
    return found  # type: ignore[no-any-return]
