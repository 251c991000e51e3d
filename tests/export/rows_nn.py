"""Rows for products, normalisation, convolution, pooling and attention."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F

from tests.export.op_inputs import IMAGE, WHOLE, Row, X, randn

ROWS: list[Row] = [
    ("matmul", lambda x: (x @ x.mT, x @ x[0].T, x[0] @ x.mT, x @ x[0, 0], x[0, 0] @ x[0].T, x[0, 0] @ x[0, 0]), (X,)),
    (
        "batched",
        lambda x: (torch.bmm(x, x.mT), torch.baddbmm(x[..., :4], x, x.mT, beta=0.5, alpha=2), x[:, None] @ x.mT),
        (X,),
    ),
    (
        "linear",
        lambda x, w, b: (F.linear(x, w, b), F.linear(x, w), torch.addmm(b, x[0], w.T, alpha=0.5)),
        (X, randn(5, 8), randn(5)),
    ),
    (
        "einsum",
        lambda x: (torch.einsum("bij,bkj->bik", x, x), torch.einsum("bij->ji", x), torch.outer(x[0, 0], x[0, 1])),
        (X,),
    ),
    (
        "grouped_mm",
        lambda x, w, ends: (
            torch._grouped_mm(x, w, offs=ends),
            torch._grouped_mm(x, w.mT.contiguous().mT, offs=ends, out_dtype=torch.bfloat16),
            torch._grouped_mm(w, w.mT.contiguous()),
        ),
        (randn(24, 16).bfloat16(), randn(3, 16, 8).bfloat16(), torch.tensor([8, 8, 24], dtype=torch.int32)),
    ),
    ("int_matmul", lambda x: (x @ x.mT, x[0] @ x[0].T), (WHOLE,)),
    (
        "linear_of_integers",
        lambda x: (F.linear(x, x[0]), F.linear(x, x[0], x[0, :, 0]), F.linear(x, x[0, 0])),
        (WHOLE,),
    ),
    ("tensordot", lambda x: (torch.tensordot(x, x, ([1, 2], [1, 2])), torch.kron(x[0], x[0])), (X,)),
    (
        "layer_norm",
        lambda x, w: (F.layer_norm(x, (8,), w, w), F.layer_norm(x, (4, 8)), F.rms_norm(x, (8,), w)),
        (X, randn(8)),
    ),
    (
        "native_norms",
        lambda x, w: [
            found * 0 if d.itemsize == 2 else found  # types and shapes alone: values round
            for d in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
            for e in (None, d, *([torch.float32] if d.itemsize == 2 else []))
            for f in (
                lambda x, w, v: torch.ops.aten.native_group_norm(x, w, v, 2, 4, 90, 2, 1e-5),
                lambda x, w, v: torch.ops.aten.native_layer_norm(x.mT.transpose(1, 3), [4], w, v, 1e-5),
            )
            for found in f(x.to(d), *((w.to(e), w.to(e)) if e else (None, None)))
        ],
        (IMAGE, randn(4)),
    ),
    (
        "losses_beyond_a_half",  # infinite on the way, before a mean that is not
        lambda x, y: [
            loss(x, y, reduction=reduction)
            for loss in (F.soft_margin_loss, partial(F.huber_loss, delta=300.0), F.mse_loss, F.smooth_l1_loss)
            for reduction in ("none", "mean", "sum")
        ],
        tuple((t * 300).half() for t in (randn(8, 10), randn(8, 10))),
    ),
    (
        "windows_beyond_a_half",
        lambda x: (F.avg_pool1d(x, 3, 1), F.avg_pool2d(x, 3, 2)),
        (randn(1, 6, 6).half() + 60000,),
    ),
    (
        "bilinear_half",
        lambda x, w: [F.bilinear(h, h, w.half()) for h in ((x.half() + 1001) * 2, x.half() * 3)],
        (X, randn(3, 8, 8)),
    ),
    ("group_norm", lambda x, w: (F.group_norm(x, 2, w, w), F.instance_norm(x), F.group_norm(x, 4)), (IMAGE, randn(4))),
    (
        "pool_of_constant_nothing",
        lambda x: F.adaptive_avg_pool3d(torch.ones(0, 4, 5, 6).cumsum(0), 2) * x.sum(),
        (X,),
    ),
    ("batch_norm", lambda x, w: F.batch_norm(x, w, w.abs() + 0.1, w, w), (IMAGE, randn(4))),
    ("softmax", lambda x: (x.softmax(1), x.log_softmax(2), F.softmin(x, 0)), (X,)),
    ("local_response_norm", lambda x: F.local_response_norm(x, 3), (IMAGE,)),
    (
        "conv2d",
        lambda x, w: (F.conv2d(x, w), F.conv2d(x, w, padding=1, stride=2), F.conv2d(x, w, dilation=2, padding=2)),
        (IMAGE, randn(6, 4, 3, 3)),
    ),
    (
        "conv_groups",
        lambda x, w: (F.conv2d(x, w, groups=4), F.conv2d(x[0], w, groups=4, padding="same")),
        (IMAGE, randn(8, 1, 3, 3)),
    ),
    (
        "conv1d_3d",
        lambda x, w, y, v: (F.conv1d(x, w, padding=2), F.conv3d(y, v)),
        (X, randn(5, 4, 3), IMAGE[:, None], randn(2, 1, 2, 2, 2)),
    ),
    (
        "conv_transpose",
        lambda x, w, b: (
            F.conv_transpose2d(x, w, b),
            F.conv_transpose2d(x, w, b, 2, 1, 1),
            F.conv_transpose2d(x, w, stride=3, dilation=2),
        ),
        (IMAGE, randn(4, 5, 3, 3), randn(5)),
    ),
    ("conv_transpose_groups", lambda x, w: F.conv_transpose2d(x, w, groups=2, stride=2), (IMAGE, randn(4, 3, 3, 3))),
    (
        "max_pool",
        lambda x: (
            F.max_pool2d(x, 2),
            F.max_pool2d(x, 3, 2, 1),
            F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.max_pool2d(x, 2, 1, 0, 2),
        ),
        (IMAGE,),
    ),
    ("max_pool_indices", lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (IMAGE,)),
    (
        "pool_1d_3d",
        lambda x, y: (
            F.max_pool1d(x, 2),
            F.avg_pool1d(x, 3, 1, 1),
            F.max_pool3d(y, 2),
            F.avg_pool3d(y, 2, ceil_mode=True),
        ),
        (X, IMAGE),
    ),
    (
        "avg_pool",
        lambda x: (
            F.avg_pool2d(x, 2),
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.avg_pool2d(x, 2, divisor_override=3),
        ),
        (IMAGE,),
    ),
    (
        "avg_pool_of_integers",
        lambda x: (
            F.avg_pool1d(x, 2),
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, True, False),
            F.avg_pool2d(x, 2, divisor_override=-3),
            F.lp_pool2d(x, 2, 2),
        ),
        (WHOLE,),
    ),
    (
        "avg_pool_ceil",
        lambda x: (
            F.avg_pool2d(x, 3, 2, 1, True),
            F.avg_pool2d(x, 3, 2, 0, True),
            F.avg_pool2d(x, 3, 2, 1, True, False),
        ),
        (IMAGE,),
    ),
    (
        "adaptive_pool",
        lambda x: (
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, (4, 3)),
            F.adaptive_max_pool2d(x, 2),
            F.adaptive_max_pool2d(x, (4, 3), return_indices=True),
            F.adaptive_max_pool2d(torch.where(x > 1, torch.nan, x), (2, 7), return_indices=True),
            F.adaptive_max_pool2d(x[0], (5, 10), return_indices=True),
            F.adaptive_max_pool1d(x[0], 4, return_indices=True),
            F.adaptive_max_pool3d(x, (3, 2, 4), return_indices=True),
            F.adaptive_max_pool2d(x, (0, 3), return_indices=True),
            F.adaptive_max_pool2d(x, 1),
            F.adaptive_avg_pool1d(x[0], 5),
        ),
        (IMAGE,),
    ),
    ("lp_pool", lambda x: F.lp_pool2d(x, 2, 3), (IMAGE,)),
    (
        "resize_nearest",
        lambda x: (
            F.interpolate(x, scale_factor=2),
            F.interpolate(x, (5, 13)),
            F.interpolate(x, (5, 13), mode="nearest-exact"),
        ),
        (IMAGE,),
    ),
    (
        "resize_linear",
        lambda x: [
            F.interpolate(x, (12, 7), mode=m, align_corners=a) for m in ("bilinear", "bicubic") for a in (False, True)
        ],
        (IMAGE,),
    ),
    (
        "resize_scale",
        lambda x: (
            F.interpolate(x, scale_factor=1.5, mode="bilinear"),
            F.interpolate(x, scale_factor=1.5, mode="bilinear", recompute_scale_factor=True),
            F.interpolate(x[0], 20, mode="linear"),
            F.interpolate(x[None], (3, 4, 5), mode="trilinear"),
        ),
        (IMAGE,),
    ),
    (
        "grid_sample",
        lambda x, g: [
            F.grid_sample(x, g.tanh() * 1.1, m, p, align_corners=False)
            for m, p in (("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection"))
        ],
        (IMAGE, randn(2, 5, 6, 2)),
    ),
    (
        "grid_sample_3d",
        lambda x, g: [F.grid_sample(x, g, m, "border", align_corners=True) for m in ("bilinear", "nearest")],
        (randn(1, 2, 3, 4, 5), randn(1, 2, 3, 2, 3)),
    ),
    (
        "attention",
        lambda x: (
            F.scaled_dot_product_attention(x, x, x),
            F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True),
        ),
        (X,),
    ),
    (
        "attention_mask",
        lambda x, m: (
            F.scaled_dot_product_attention(x, x, x, attn_mask=m > 0),
            F.scaled_dot_product_attention(x, x, x, attn_mask=m, scale=0.3),
        ),
        (X, randn(4, 4)),
    ),
    (
        "grouped_queries",
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (randn(2, 4, 5, 8), randn(2, 2, 6, 8)),
    ),
    (
        "fourier",
        lambda x: (
            torch.fft.rfft(x).abs(),
            torch.view_as_real(torch.fft.fft(x, dim=1)),
            torch.fft.irfft(torch.fft.rfft(x, dim=1), 4, dim=1),
        ),
        (X,),
    ),
    (
        "fourier_of_samples_that_cancel",
        lambda x: (torch.fft.rfft(x).real == 0, torch.fft.fft(x).imag == 0, torch.fft.ifft(x).real == 0),
        (torch.tensor([[1.0, 0.25, 1.0, -1.5], [0.0, 0.5, 0.0, 0.5], [1.0, 0.25, -1.0, -1.5]]).repeat(4, 1),),
    ),
    (
        "fourier_of_infinities",
        lambda x: (torch.fft.rfft(x).imag[:, ::2], torch.fft.fft(x).imag[:, ::2], torch.fft.rfft(x[:, :2]).imag),
        (torch.tensor([[1.0, float("inf"), 2.0, -1.0], [float("nan"), 1.0, 2.0, 3.0]]),),
    ),
    (
        "fourier_2d",
        lambda x: (torch.fft.fft2(x).real, torch.fft.irfft2(torch.fft.rfft2(x) * 2, s=(9, 10), norm="ortho")),
        (IMAGE,),
    ),
    ("stft", lambda x: torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs(), (randn(2, 64),)),
    ("rotary", lambda x: _rotated(x), (X,)),
    (
        "windows",
        lambda x: x + torch.hann_window(4) + torch.hamming_window(4, False, 0.6) + torch.kaiser_window(4, True, 7.0),
        (randn(3, 4),),
    ),
    ("complex_made", lambda x: _complex_made(x), (X,)),
    ("complex", lambda x: _complex_parts(torch.complex(x, x.flip(0))), (X,)),
    ("complex_half", lambda x: _complex_products((x * 200).half()), (X,)),
    ("complex_quotients", lambda x: [_complex_quotients(x * s) for s in (1e-25, 1.0, 1e25)], (X,)),
]


def _rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions by complex multiplication."""
    angle = torch.outer(torch.arange(4.0), 1 / 10000 ** (torch.arange(0, 8, 2) / 8))
    turn = torch.polar(torch.ones_like(angle), angle)
    pairs = torch.view_as_complex(x.reshape(3, 4, 4, 2))
    return torch.view_as_real(pairs * turn).flatten(2)


def _complex_made(x: torch.Tensor) -> list[torch.Tensor]:
    """Real operands, complex results: by dtype, and by a number."""
    c = torch.complex64
    made = (
        *(torch.linspace(0, 1, 5, dtype=c), torch.linspace(3, 1, 5, dtype=torch.complex128), torch.eye(3, dtype=c)),
        *(torch.logspace(0, 1, 5, dtype=c), torch.full((2,), 1.5, dtype=c), torch.full((2,), 1 + 2j)),
        *(torch.zeros(3, dtype=c), torch.ones_like(x, dtype=c), torch.full_like(x, 2 - 1j, dtype=c)),
        *(x.new_full((2,), 1j, dtype=c), torch.scalar_tensor(1.5, dtype=c), x.to(c), x.double().to(torch.complex128)),
        *(x.sum(dtype=c), x.mean(dtype=c), x.cumsum(0, dtype=c), x * 1j, x + (1 + 2j), 1j - x, x - 2j, x / (1 + 2j)),
    )
    return [torch.view_as_real(z) for z in made]


def _complex_products(x: torch.Tensor) -> torch.Tensor:
    """Parts that float16 has, as differences of products that it has not."""
    return torch.view_as_real(torch.complex(x, x * 0.5) * torch.complex(x, x))


def _complex_quotients(x: torch.Tensor) -> list[torch.Tensor]:
    """Of numbers whose squares float32 does not have."""
    z = torch.complex(x, x.flip(0))
    return [torch.view_as_real(q) for q in (z / z.roll(1), x / z, (1 / z) * x)]


def _complex_parts(z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Real results of complex arithmetic."""
    quotient, matrix = (z + 1) / (z - 2j * z), z @ z.mT
    return (
        z.abs(),
        z.angle(),
        quotient.real,
        quotient.imag,
        torch.view_as_real(z.conj() * z.sum(1, keepdim=True)),
        matrix.real,
    )
