"""Cases of our own: what models do beside calling ops, as functions of tensors.

`FEATURES` has those that have static sizes, `SIZED` those with a first dimension that varies and a second size to run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.coverage import feature_modules
from tests.coverage.cases import Case, Made
from tests.coverage.feature_modules import Function

Call = Callable[..., Any]


def _x(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _ids(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(5))


def _set(x: Tensor, at: Any, value: Any) -> Tensor:
    out = x.clone()
    out[at] = value
    return out


def _zero_rows(x: Tensor) -> Tensor:
    for row in range(0, x.shape[0], 2):
        x = torch.cat((x[:row], torch.zeros_like(x[row : row + 1]), x[row + 1 :]))
    return x


class Pair(NamedTuple):
    """Results that have names."""

    mean: Tensor
    scale: Tensor


FEATURES: dict[str, tuple[Call, tuple[Any, ...]]] = {
    # data decides a number
    "item_as_number": (lambda x: x * x.sum().item(), (_x(3, 4),)),
    "item_of_int_as_number": (lambda x, n: x + n.item(), (_x(3, 4), torch.tensor(3))),
    "item_as_bool": (lambda x: torch.full((2,), bool((x > 0).all().item())), (_x(3, 4),)),
    "full_of_item": (lambda x: torch.full((2, 3), x.max().item()), (_x(3, 4),)),
    "item_as_index": (lambda x, i: x[i.item()], (_x(5, 4), torch.tensor(2))),
    "select_by_argmax": (lambda x: x.index_select(0, x.sum(1).argmax()[None]), (_x(5, 4),)),
    "tolist": (lambda x, i: x[i.tolist()[0]], (_x(5, 4), torch.tensor([1, 2]))),
    # data decides a size
    "nonzero": (lambda x: torch.nonzero(x > 0), (_x(3, 4),)),
    "nonzero_tuple": (lambda x: torch.nonzero(x > 0, as_tuple=True), (_x(3, 4),)),
    "nonzero_static": (lambda x: torch.nonzero_static(x > 0, size=5, fill_value=-1), (_x(3, 4),)),
    "argwhere": (lambda x: torch.argwhere(x > 0), (_x(3, 4),)),
    "mask_index": (lambda x: x[x > 0], (_x(3, 4),)),
    "mask_index_of_rows": (lambda x: x[x[:, 0] > 0] * 2, (_x(6, 4),)),
    "mask_index_and_product": (lambda x, w: x[x[:, 0] > 0] @ w, (_x(6, 4), _x(4, 3))),
    "mask_index_and_mean": (lambda x: x[x > 0].mean(), (_x(3, 4),)),
    "histogram": (lambda x: torch.histogram(x, 5), (_x(20),)),
    "segment_reduce": (
        lambda x: torch.segment_reduce(x, "max", lengths=torch.tensor([1, 3, 2])),
        (_x(6, 3),),
    ),
    "masked_write_of_several": (lambda x: x.index_put((x > 0,), x[x > 0] * 2), (_x(4, 5),)),
    "masked_select": (lambda x: torch.masked_select(x, x > 0).exp(), (_x(3, 4),)),
    "masked_write": (lambda x: _set(x, x > 0, 0.0), (_x(3, 4),)),
    "masked_scatter": (lambda x, y: x.masked_scatter(x > 0, y), (_x(3, 4), _x(3, 4))),
    "unique": (torch.unique, (_ids(5, 12),)),
    "unique_with_counts": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), (_ids(5, 12),)),
    "unique_consecutive": (torch.unique_consecutive, (_ids(3, 12),)),
    "repeat_interleave_by_tensor": (lambda x, n: torch.repeat_interleave(x, n, dim=0), (_x(4, 3), _ids(3, 4))),
    "repeat_interleave": (lambda x: torch.repeat_interleave(x, 3, dim=1), (_x(4, 3),)),
    "bincount": (torch.bincount, (_ids(5, 12),)),
    "bincount_of_length": (lambda x: torch.bincount(x, minlength=8)[:8], (_ids(5, 12),)),
    "histc": (lambda x: torch.histc(x, 5, -2, 2), (_x(30),)),
    "split_by_sizes_of_data": (lambda x, n: x[: n.item()], (_x(5, 4), torch.tensor(2))),
    # views and writes
    "write_row": (lambda x, y: _set(x, 1, y), (_x(3, 4), _x(4))),
    "write_slice": (lambda x, y: _set(x, (slice(None), slice(1, 3)), y), (_x(3, 4), _x(3, 2))),
    "write_step": (lambda x: _set(x, (slice(None), slice(None, None, 2)), 1.0), (_x(3, 4),)),
    "write_ellipsis": (lambda x, y: _set(x, (..., -1), y), (_x(2, 3, 4), _x(2, 3))),
    "write_by_index": (lambda x, i, y: _set(x, i, y), (_x(5, 4), torch.tensor([0, 3]), _x(2, 4))),
    "index_mixed": (lambda x, i: x[:, i, None, 1:3], (_x(4, 5, 6), torch.tensor([0, 3]))),
    "index_two": (lambda x, i, j: x[i, :, j], (_x(4, 5, 6), torch.tensor([0, 3]), torch.tensor([1, 2]))),
    "index_put_accumulate": (lambda x, i, y: x.index_put((i,), y, accumulate=True),
                             (_x(5, 4), torch.tensor([0, 3, 0]), _x(3, 4))),
    "as_strided": (lambda x: torch.as_strided(x, (3, 2), (4, 2), 1), (_x(3, 4),)),
    "as_strided_windows": (lambda x: x.as_strided((4, 3), (1, 1)).sum(1), (_x(6),)),
    "unfold": (lambda x: x.unfold(1, 3, 2), (_x(2, 9),)),
    "diagonal_write": (lambda x: x.diagonal_scatter(torch.zeros(3)), (_x(3, 4),)),
    "view_as_real": (lambda x: torch.view_as_real(torch.fft.rfft(x)), (_x(3, 8),)),
    "view_dtype": (lambda x: x.view(torch.int32), (_x(3, 4),)),
    "in_place_chain": (lambda x: x.clone().mul_(2).add_(1).clamp_(min=0), (_x(3, 4),)),
    "in_place_view": (lambda x: _set(x.t(), 0, 7.0).t(), (_x(3, 4),)),
    "loop_over_rows": (_zero_rows, (_x(5, 3),)),
    "unbind": (lambda x: [r * k for k, r in enumerate(x.unbind(0))], (_x(4, 3),)),
    "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="ij"), (_x(3), _x(4))),
    "einsum": (lambda a, b: torch.einsum("bhqd,bhkd->bhqk", a, b), (_x(2, 3, 4, 5), _x(2, 3, 6, 5))),
    "einsum_diagonal": (lambda a: torch.einsum("ii->i", a), (_x(4, 4),)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 1])), (_x(2, 3, 4), _x(3, 4, 5))),
    "block_diag": (torch.block_diag, (_x(2, 3), _x(3, 1))),
    "cartesian_prod": (torch.cartesian_prod, (_x(3), _x(4))),
    "roll_and_flip": (lambda x: x.roll((1, 2), (0, 1)).flip(1).rot90(1), (_x(3, 4),)),
    # what goes in and out
    "dict_of_results": (lambda x: {"a": x + 1, "b": [x * 2, (x - 1,)]}, (_x(3),)),
    "named_results": (lambda x: Pair(x.mean(), x.std()), (_x(3, 4),)),
    "none_among_results": (lambda x: (x + 1, None), (_x(3),)),
    "input_as_result": (lambda x: (x, x + 1), (_x(3),)),
    "constant_as_result": (lambda x: torch.arange(4), (_x(3),)),
    "one_result_twice": (lambda x: (lambda y: (y, y))(x + 1), (_x(3),)),
    "empty_tensor": (lambda x: torch.cat((x, x.new_zeros(0, 4))), (_x(3, 4),)),
    "rank_0": (lambda x: x * 2 + 1, (torch.tensor(3.0),)),
    "list_of_inputs": (lambda xs: torch.stack(xs).sum(0), ([_x(3), _x(3)],)),
    "dict_of_inputs": (lambda d: d["a"] @ d["b"], ({"a": _x(2, 3), "b": _x(3, 4)},)),
    "complex_input": (lambda x: (x * x.conj()).real, (torch.complex(_x(3, 4), _x(3, 4)),)),
    "complex_result": (torch.fft.fft, (_x(3, 8),)),
    "complex_product": (lambda a, b: a @ b, (torch.complex(_x(3, 4), _x(3, 4)), torch.complex(_x(4, 2), _x(4, 2)))),
    "transposed_input": (lambda x: x @ x.t(), (_x(4, 3).t(),)),
    "expanded_input": (lambda x: x + 1, (_x(1, 3).expand(4, 3),)),
    # random numbers
    "rand": (lambda x: torch.rand(3, 4) + x, (_x(3, 4),)),
    "randn_like": (lambda x: torch.randn_like(x) * 0 + x, (_x(3, 4),)),
    "randint": (lambda x: torch.randint(0, 5, (3,)), (_x(3),)),
    "bernoulli": (lambda x: torch.bernoulli(x.sigmoid()), (_x(3, 4),)),
    "multinomial": (lambda x: torch.multinomial(x.softmax(-1), 2), (_x(3, 4),)),
    "dropout_in_training": (lambda x: F.dropout(x, 0.5, training=True), (_x(3, 4),)),
    "gumbel": (lambda x: F.gumbel_softmax(x, hard=True), (_x(3, 4),)),
    "randperm": (lambda x: x[torch.randperm(5)], (_x(5, 2),)),
    "normal": (lambda x: torch.normal(x, 0.1), (_x(3, 4),)),
    # attention
    "sdpa": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (_x(2, 4, 6, 8), _x(2, 4, 9, 8), _x(2, 4, 9, 8))),
    "sdpa_causal": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (_x(2, 4, 6, 8),)),
    "sdpa_grouped": (lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
                     (_x(2, 4, 6, 8), _x(2, 2, 6, 8))),
    "sdpa_bool_mask": (lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m > 0),
                       (_x(2, 4, 6, 8), _x(6, 6))),
    "sdpa_dropout": (lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5), (_x(2, 4, 6, 8),)),
    # whole numbers and types
    "bit_ops": (lambda a, b: (a & b, a | b, a ^ b, ~a, a << 2, a >> 1), (_ids(99, 6), _ids(99, 6))),
    "floor_division": (lambda a: (a // 3, a % 3, torch.div(a, -3, rounding_mode="trunc")), (_ids(99, 6) - 50,)),
    "gcd_lcm": (lambda a, b: (torch.gcd(a, b), torch.lcm(a, b)), (_ids(99, 6), _ids(99, 6) + 1)),
    "nextafter": (lambda a, b: torch.nextafter(a, b), (_x(6), _x(6).flip(0))),
    "frexp": (torch.frexp, (_x(6),)),
    "ldexp": (lambda a, n: torch.ldexp(a, n), (_x(6), _ids(5, 6))),
    "to_dtypes": (lambda x: (x.half(), x.bfloat16(), x.double(), x.to(torch.int8), x.bool()), (_x(6),)),
    "promotion": (lambda a, b: a + b, (_ids(9, 6), _x(6).half())),
    "scalar_promotion": (lambda a: (a + 1.5, a * True, a / 2), (_ids(9, 6),)),
    # sorting, searching, sums
    "sort_stable": (lambda x: torch.sort(x, stable=True, descending=True), (_ids(4, 12),)),
    "topk_smallest": (lambda x: torch.topk(x, 3, largest=False), (_x(2, 9),)),
    "kthvalue": (lambda x: torch.kthvalue(x, 3), (_x(2, 9),)),
    "median": (lambda x: (x.median(), torch.median(x, 1), x.nanmedian()), (_x(3, 5),)),
    "mode": (lambda x: torch.mode(x, 1), (_ids(3, 3, 7),)),
    "searchsorted": (lambda s, v: torch.searchsorted(s, v, right=True), (_x(9).sort().values, _x(4))),
    "bucketize": (lambda v: torch.bucketize(v, torch.tensor([-1.0, 0.0, 1.0])), (_x(9),)),
    "cummax": (lambda x: torch.cummax(x, 1), (_x(3, 5),)),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x, 1), (_x(3, 5),)),
    "quantile": (lambda x: torch.quantile(x, torch.tensor([0.1, 0.5])), (_x(20),)),
    "cdist": (lambda a, b: torch.cdist(a, b), (_x(5, 3), _x(6, 3))),
    "cov": (torch.cov, (_x(3, 9),)),
    "corrcoef": (torch.corrcoef, (_x(3, 9),)),
    "scatter_reduce": (lambda x, i: x.scatter_reduce(0, i, x, "amax"), (_x(5, 4), _ids(5, 5, 4))),
    "segment_sums": (lambda x, i: torch.zeros(3, 4).index_add(0, i, x), (_x(5, 4), _ids(3, 5))),
    "trapezoid": (lambda x: torch.trapezoid(x, dx=0.5), (_x(3, 5),)),
    # linear algebra
    "inverse": (lambda x: torch.linalg.inv(x + 4 * torch.eye(3)), (_x(2, 3, 3),)),
    "solve": (lambda a, b: torch.linalg.solve(a + 4 * torch.eye(4), b), (_x(4, 4), _x(4, 2))),
    "cholesky": (lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(4)), (_x(4, 4),)),
    "qr": (torch.linalg.qr, (_x(5, 3),)),
    "eigh_values": (lambda x: torch.linalg.eigvalsh(x + x.mT), (_x(4, 4),)),
    "svd_values": (torch.linalg.svdvals, (_x(5, 3),)),
    "pinv": (torch.linalg.pinv, (_x(5, 3),)),
    "lstsq": (lambda a, b: torch.linalg.lstsq(a, b).solution, (_x(6, 3), _x(6, 2))),
    "matrix_exp": (torch.linalg.matrix_exp, (_x(4, 4),)),
    "det": (lambda x: (torch.linalg.det(x), torch.linalg.slogdet(x)), (_x(4, 4),)),
    "norms": (lambda x: (x.norm(), torch.linalg.norm(x, 1), torch.linalg.vector_norm(x, 3, dim=1)), (_x(4, 4),)),
    # losses and images
    "ctc_loss": (lambda x, t: F.ctc_loss(x.log_softmax(-1), t, (6, 6), (2, 3)), (_x(6, 2, 5), _ids(4, 2, 3) + 1)),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, ignore_index=2), (_x(6, 5), _ids(5, 6))),
    "grid_sample": (lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), (_x(1, 2, 5, 5), _x(1, 4, 4, 2))),
    "grid_sample_3d": (lambda x, g: F.grid_sample(x, g.tanh(), align_corners=True),
                       (_x(1, 2, 4, 4, 4), _x(1, 2, 3, 3, 3))),
    "affine_grid": (lambda t: F.affine_grid(t, (1, 2, 4, 5), align_corners=False), (_x(1, 2, 3),)),
    "antialiased_resize": (lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
                           (_x(1, 2, 9, 8),)),
    "bicubic_resize": (lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic"), (_x(1, 2, 5, 6),)),
    "adaptive_max_pool_with_indices": (lambda x: F.adaptive_max_pool2d(x, (2, 3), return_indices=True),
                                       (_x(1, 2, 7, 8),)),
    "max_unpool": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (_x(1, 2, 6, 6),)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (_x(1, 8, 3, 3),)),
    "fold": (lambda x: F.fold(F.unfold(x, 3, padding=1), (5, 6), 3, padding=1), (_x(1, 2, 5, 6),)),
    "fft_round_trip": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=9), (_x(3, 9),)),
    "stft": (lambda x: torch.stft(x, 16, window=torch.hann_window(16), return_complex=True).abs(), (_x(2, 64),)),
    "istft": (lambda x: torch.istft(torch.stft(x, 16, window=torch.hann_window(16), return_complex=True), 16,
                                    window=torch.hann_window(16)), (_x(2, 64),)),
    # control flow, loops and gradients
    "cond": (lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2, (x,)), (_x(3, 4),)),
    "while_loop": (feature_modules.doubled_until_large, (torch.ones(3),)),
    "scan": (feature_modules.running_product, (_x(5, 3),)),
    "associative_scan": (feature_modules.associative_sum, (_x(5, 3),)),
    "map": (feature_modules.each_row_scaled, (_x(5, 3), _x(3))),
    "vmap": (torch.vmap(lambda a, b: a @ b), (_x(4, 3, 2), _x(4, 2, 5))),
    "gradient": (feature_modules.gradient_of_a_norm, (_x(3, 4),)),
    "jacobian": (feature_modules.jacobian_of_a_softmax, (_x(4),)),
    "checkpoint": (feature_modules.recomputed, (_x(3, 4),)),
    "autograd_function": (feature_modules.Doubled.apply, (_x(3, 4),)),
    "flex_attention": (feature_modules.causal_flex, (_x(1, 2, 8, 16),)),
    "flex_attention_of_blocks": (feature_modules.windowed_flex, (_x(1, 2, 256, 16),)),
    "autocast": (feature_modules.in_bfloat16, (_x(4, 8), _x(8, 8))),
    "sparse_times_dense": (feature_modules.sparse_product, (_x(4, 3),)),
}  # fmt: skip

_ANY = torch.export.Dim.DYNAMIC
SIZED: dict[str, tuple[Call, tuple[int, ...], tuple[int, ...]]] = {
    "rows_that_vary": (lambda x: x.softmax(0) @ x.t(), (5, 4), (9, 4)),
    "reshape_of_rows": (lambda x: x.reshape(-1, 2, x.shape[1] // 2).sum(1), (5, 4), (1, 4)),
    "mask_of_rows": (lambda x: x.tril() + torch.ones(x.shape[0], 1), (5, 4), (2, 4)),
    "nonzero_of_rows": (lambda x: x[x[:, 0] > 0], (5, 4), (12, 4)),
    "arange_of_rows": (lambda x: x + torch.arange(x.shape[0])[:, None] / x.shape[0], (5, 4), (3, 4)),
    "sort_of_rows": (lambda x: torch.sort(x, 0).values, (5, 4), (12, 4)),
    "cdist_of_rows": (lambda x: torch.cdist(x, x), (5, 4), (7, 4)),
    "batch_of_lstm": (nn.LSTM(4, 6).eval(), (5, 2, 4), (9, 2, 4)),
    "resize_of_rows": (lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"), (3, 2, 5), (6, 2, 5)),
    "map_of_rows": (lambda x: feature_modules.each_row_scaled(x, torch.ones(4)), (5, 4), (8, 4)),
    "scan_of_rows": (feature_modules.running_product, (5, 4), (8, 4)),
    "guard_on_rows": (lambda x: x + 1 if x.shape[0] > 2 else x - 1, (5, 4), (7, 4)),
}


def cases() -> Iterator[Case]:
    for name, (function, args) in FEATURES.items():
        yield Case("features", name, functools.partial(_static, name, function, args))
    for name, (function, first, second) in SIZED.items():
        yield Case("features", name, functools.partial(_sized, function, first, second))
    for name, module in feature_modules.MODULES.items():
        yield Case("features", name, module)


_RANDOM = frozenset((
    "rand", "randint", "bernoulli", "multinomial", "dropout_in_training", "gumbel", "randperm", "normal",
    "sdpa_dropout",
))  # fmt: skip


def _static(name: str, function: Call, args: tuple[Any, ...]) -> Made:
    return Made(Function(function), args, by_value=name not in _RANDOM)


def _sized(function: Call, first: tuple[int, ...], second: tuple[int, ...]) -> Made:
    dims = ({0: _ANY},)
    return Made(Function(function), (_x(*first),), dynamic_shapes=(dims,), calls=((_x(*second),),))
