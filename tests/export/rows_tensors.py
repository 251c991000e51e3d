"""Rows for views, creation, reductions and indexing."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.export.op_inputs import BOOL, IDS, IMAGE, WHOLE, Row, X, ints, randn

ROWS: list[Row] = [
    (
        "reshape",
        lambda x: (x.view(12, 8), x.flatten(1), x.unflatten(2, (2, 4)), x.unsqueeze(1), x[:, None].squeeze(1)),
        (X,),
    ),
    ("permute", lambda x: (x.permute(2, 0, 1), x.transpose(0, 2), x.mT, x.movedim(0, 2), x.swapaxes(0, 1)), (X,)),
    ("slice", lambda x: (x[1:], x[:, 1:3], x[..., ::2], x[..., -3:], x[:, :-1], x[0], x[..., -1], x[5:]), (X,)),
    ("split", lambda x: (*x.split(3, 2), *x.chunk(3, 1), *x.unbind(0), *torch.tensor_split(x, 3, 2)), (X,)),
    (
        "copy_",
        lambda x: (x.clone().copy_(0.5), x.int().copy_(2.5), x.to(torch.bool).copy_(x[0]), x.half().copy_(x)),
        (X,),
    ),
    ("cat", lambda x: (torch.cat([x, x * 2], 1), torch.stack([x, x], -1), torch.hstack([x, x])), (X,)),
    ("cat_promoted", lambda x, y: torch.cat([x, y]), (X, WHOLE)),
    ("expand", lambda x: (x[:, :1].expand(3, 5, 8), x.repeat(2, 1, 3), x.tile(2), x.broadcast_to(2, 3, 4, 8)), (X,)),
    ("repeat_interleave", lambda x: x.repeat_interleave(3, 1), (X,)),
    ("flip", lambda x: (x.flip(0, 2), x.roll(1, 0), x.roll((1, -2), (0, 2)), x.roll(5), x.rot90(1, (0, 1))), (X,)),
    ("pad", lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 0, -1, 2), value=3.0)), (X,)),
    ("pad_modes", lambda x: [F.pad(x, (1, 2, 2, 1), mode=m) for m in ("reflect", "replicate", "circular")], (IMAGE,)),
    (
        "pad_1d_3d",
        lambda x, y: (F.pad(x, (2, 1), mode="reflect"), F.pad(y, (1,) * 6, mode="replicate")),
        (X, IMAGE[None]),
    ),
    ("unfold", lambda x: (x.unfold(2, 3, 2), x.unfold(1, 2, 1), F.unfold(x[:, None], (2, 3))), (X,)),
    (
        "diagonal",
        lambda x: (x.diagonal(0, 1, 2), x.diagonal(1), torch.diag_embed(x[0]), torch.diagonal(x, -1, 1, 2)),
        (X,),
    ),
    (
        "pixel",
        lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[..., :8, :], 2), F.channel_shuffle(x, 2)),
        (IMAGE,),
    ),
    ("as_strided", lambda x: x.contiguous().as_strided((8, 3, 4), (1, 32, 8)), (X,)),
    ("fold", lambda x: F.fold(x.reshape(1, 12, 8), (3, 5), (2, 2)), (X,)),
    ("arange", lambda x: x + torch.arange(8) + torch.arange(1, 17, 2) + torch.arange(0, 1, 0.125), (X,)),
    ("arange_size", lambda x: torch.arange(x.shape[0]) * torch.arange(-3, x.shape[0] - 3), (X,)),
    ("linspace", lambda x: x + torch.linspace(-1, 2, 8), (X,)),
    ("like", lambda x: (torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 3), x.new_full((2,), 4.0)), (X,)),
    ("eye", lambda x: (x @ torch.eye(8), torch.eye(3, 5)), (X,)),
    ("tril", lambda x: (x.tril(), x.triu(1), x.tril(-1), torch.ones(4, 4).triu(2) + x[..., :4]), (X,)),
    ("tril_indices", lambda x: torch.tril_indices(4, 8) + 0 * x[0, 0, 0].long(), (X,)),
    ("no_indices", lambda x: (torch.tril_indices(0, 3) + 1, torch.triu_indices(2, 3, 7), x.long().angle()), (X,)),
    ("one_hot", lambda i: F.one_hot(i, 50), (IDS,)),
    ("sum", lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.sum(dtype=torch.float64)), (X,)),
    ("sum_int", lambda x: (x.sum(), x.to(torch.int8).sum(1), x.prod(2), x.float().mean(1)), (WHOLE % 3,)),
    ("mean", lambda x: (x.mean(), x.mean(1), x.mean((1, 2), keepdim=True), x.prod(1)), (X,)),
    (
        "extremes",
        lambda x: (x.max(), x.min(1).values, x.max(2).indices, x.amax((0, 1)), x.argmin(), x.aminmax(dim=1).max),
        (X,),
    ),
    ("first_of_equals", lambda x: (x.argmax(2), x.argmin(2), x.max(2).indices), (WHOLE % 3,)),
    ("any_all", lambda x: ((x > 1).any(), (x > 0).all(1), (x > 2).any(2, keepdim=True)), (X,)),
    (
        "any_over_no_dimension",
        lambda x: (x.any(()), x.all((), keepdim=True), x.any(dim=None), (x > 0).to(torch.uint8).all(())),
        (X.round(),),
    ),
    ("bool_extremes", lambda x: (x.max(), x.min(), x.amax(1), x.max(1).values, x.any(2)), (BOOL,)),
    (
        "variance",
        lambda x: (x.var(1), x.std(2), x.var((0, 1), correction=0), *torch.var_mean(x, 2, keepdim=True), x.std()),
        (X,),
    ),
    ("norms", lambda x: [torch.linalg.vector_norm(x, p, 2) for p in (2, 1, 0, 3, torch.inf, -torch.inf)], (X,)),
    (
        "norms_of_one",
        lambda x: [torch.linalg.vector_norm(x * s, p, 2, True) / s for p in (2, 3, -2, 0.5, 0) for s in (1e-30, 1e30)],
        (X[:, :, :1],),
    ),
    ("normalize", lambda x: (F.normalize(x, dim=2), F.cosine_similarity(x, x.flip(1), 2), x.norm()), (X,)),
    ("scans", lambda x: (x.cumsum(1), x.cumprod(2), x.logcumsumexp(1), x.cummax(2).values, x.cummin(1).values), (X,)),
    ("scan_indices", lambda x: (x.cummax(2).indices, x.cummin(1).indices), (WHOLE % 4,)),
    ("logsumexp", lambda x: (x.logsumexp(1), x.logsumexp((0, 2))), (X,)),
    (
        "sorting",
        lambda x: (*x.sort(1), *x.sort(2, descending=True), x.argsort(0), *x.topk(3, 2), *x.kthvalue(2, 1)),
        (X,),
    ),
    ("topk_smallest", lambda x: x.topk(2, 1, largest=False).values, (X,)),
    ("median", lambda x: (*x.median(2), *x.median(1, keepdim=True), x.median(), x[:, :, :7].median(2).values), (X,)),
    (
        "eye",
        lambda x: (torch.eye(300)[250:] * 2, torch.eye(5, 400, dtype=torch.int64), x @ torch.eye(x.shape[-1])),
        (X,),
    ),
    (
        "xlogy_of_numbers",
        lambda x: (torch.xlogy(x, 2.0), torch.xlogy(2, x.abs()), torch.special.xlogy(x, 3), torch.xlogy(0.0, x)),
        (X,),
    ),
    (
        "strides_of_results",
        lambda x: (
            x.mT.index_fill(1, torch.tensor([0, 2]), 3.0),
            torch.lerp(x.mT, x.abs().mT.contiguous(), 0.25),
        ),
        (X,),
    ),
    ("histogram", lambda x: torch.histc(x, 10, -2, 2), (X,)),
    *(
        (
            f"histogram_{str(dtype)[6:]}_{k}",
            lambda x, a=limits: torch.histc(x, *a),
            (torch.cat([torch.arange(23), torch.tensor([0.1, 0.7, 1.1, 1.19921875])]).to(dtype),),
        )
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
        for k, limits in enumerate([(62, 0, 14), (30, 0, 22), (5, 0.1, 1.1), (5, 0.1, 0.7), (5, -2, 2)])
    ),
    (
        "bucketize",
        lambda x: (torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5])), torch.searchsorted(torch.arange(8.0), x)),
        (X,),
    ),
    (
        "bucketize_promotes",
        lambda x, i, one: (
            torch.bucketize(x.bfloat16(), torch.tensor([0.334, 1.419])),
            torch.bucketize(x.bfloat16(), torch.tensor([0.334, 1.419]), right=True),
            torch.bucketize(i, torch.tensor([2.0**24])),
            torch.bucketize(i.to(torch.uint8), torch.tensor([40, 300])),
            torch.bucketize(one, torch.tensor([1.0])),
            torch.bucketize(one[None], torch.tensor([1.0])),
            torch.searchsorted(torch.tensor([44, 45], dtype=torch.uint8), i[3]),
        ),
        (
            torch.linspace(0.3, 1.5, 400),
            torch.tensor([2**24, 2**24 + 1, 45, 300]),
            torch.tensor(1.00000001, dtype=torch.float64),
        ),
    ),
    ("count_nonzero", lambda x: (torch.count_nonzero(x > 0), torch.count_nonzero(x, 1)), (X,)),
    ("cdist", lambda x: (torch.cdist(x, x[:, :2]), torch.cdist(x, x, p=1.0)), (X,)),
    ("embedding", lambda i, w: (F.embedding(i, w), w[i], w.index_select(0, i[0])), (IDS, randn(50, 6))),
    (
        "embedding_bag",
        lambda i, w: [F.embedding_bag(i, w, mode=m) for m in ("sum", "mean", "max")],
        (IDS, randn(50, 6)),
    ),
    (
        "embedding_bag_whole",
        lambda i, w, at: [
            torch.ops.aten._embedding_bag(w.to(d), i.to(k), at.to(k), False, m, False, None, last, pad)
            for d in (torch.float32, torch.float64)
            for k in (torch.int64, torch.int32)
            for m in (0, 1, 2)
            for last in (False, True)
            for pad in (-1, 2)
        ],
        (torch.tensor([0, 1, 2, 2, 4, 3]), randn(6, 5), torch.tensor([0, 2, 2, 5, 6])),
    ),
    (
        "embedding_bags",
        lambda i, at, w, by: (
            *(F.embedding_bag(i, w, at, mode=m, padding_idx=2) for m in ("sum", "mean", "max")),
            F.embedding_bag(i, w, at, mode="sum", per_sample_weights=by),
            F.embedding_bag(i, w, at, mode="mean", include_last_offset=True),
        ),
        (torch.tensor([1, 2, 2, 3, 9, 0, 2]), torch.tensor([0, 2, 2, 5, 6, 7]), randn(10, 6), randn(7)),
    ),
    ("advanced", lambda x, i: (x[i], x[:, i], x[:, :, i], x[i, i], x[i, :, i], x[:, i[:, None], i]), (X, ints(3, 2))),
    ("negative_index", lambda x, i: x[i - 3], (X, ints(3, 2))),
    (
        "index_put",
        lambda x, i, v: (x.index_put((i,), v), x.index_put((i, i), v[0, 0], accumulate=True)),
        (X, ints(3, 2), randn(2, 4, 8)),
    ),
    ("masked_put", lambda x, m: x.index_put((m,), torch.tensor(5.0)), (X, BOOL)),
    ("masked_scatter", lambda x, m, v: (x.masked_scatter(m, v), x.masked_scatter(m[0], v)), (X, BOOL, randn(3, 4, 9))),
    ("assign", lambda x, i: _assigned(x, i), (X, ints(3, 2))),
    ("gather", lambda x, i: (x.gather(1, i), x.take_along_dim(i, 1), x.take(i)), (X, ints(4, 3, 2, 8))),
    (
        "scatter",
        lambda x, i, s: (
            x.scatter(1, i, s),
            x.scatter(1, i, 2.0),
            x.scatter_add(1, i, s),
            x.scatter_reduce(1, i, s, "amax"),
            *(x.scatter_reduce(1, i, s, r, include_self=False) for r in ("sum", "prod", "amax", "amin", "mean")),
            x.scatter_reduce(1, i, s, "mean"),
            x.sum().scatter_reduce(0, i[0, 0, 0] * 0, s.sum(), "prod", include_self=False),
        ),
        (X, ints(4, 3, 2, 8), randn(3, 2, 8)),
    ),
    (
        "scattered_slices",
        lambda x, s: (
            torch.slice_scatter(x, s, 1, 1, 3),
            torch.slice_scatter(x, s, 1, 0, 4, 2),
            torch.select_scatter(x, s[:, 0], 1, 2),
        ),
        (X, randn(3, 2, 8)),
    ),
    (
        "index_add",
        lambda x, i, s: (x.index_add(1, i, s, alpha=2), x.index_copy(1, i, s), x.index_fill(1, i, 3)),
        (X, torch.tensor([2, 0]), randn(3, 2, 8)),
    ),
]


def _assigned(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    """In-place writes to a copy."""
    y = x.clone()
    y[:, 1] = 2.0
    y[0, :, 2:4] = y[1, :, :2]
    y[i] += 1
    y[..., -1].mul_(3)
    return y
