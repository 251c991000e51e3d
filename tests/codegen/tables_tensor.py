"""Rows of the op table: reductions, views, joins, indexing, sorting, scans."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch.export import Dim

from tests.codegen.compare import Function, Suite

AUTO3 = ({0: Dim.AUTO, 1: Dim.AUTO, 2: Dim.AUTO},)
DIMS: tuple[tuple[int, ...], ...] = ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2))


def reduction_rows(dtype: torch.dtype) -> dict[str, Function]:
    """Each reduction over every set of axes of a rank 3 tensor."""
    rows: dict[str, Function] = {}
    for dims in DIMS:
        at = "".join(map(str, dims))
        keep = len(dims) == 2
        rows[f"sum_{at}"] = lambda x, d=dims, k=keep: x.sum(d, keepdim=k)
        if dtype is not torch.bool:
            rows[f"amax_{at}"] = lambda x, d=dims, k=keep: x.amax(d, keepdim=k)
            rows[f"amin_{at}"] = lambda x, d=dims, k=keep: x.amin(d, keepdim=k)
        rows[f"any_all_{at}"] = lambda x, d=dims, k=keep: ((x > 0).any(d, keepdim=k), (x >= 0).all(d, keepdim=k))
        if dtype.is_floating_point:
            rows[f"mean_{at}"] = lambda x, d=dims, k=keep: x.mean(d, keepdim=k)
            rows[f"var_{at}"] = lambda x, d=dims, k=keep: (x.var(d, keepdim=k, correction=0), x.std(d, correction=0))
            rows[f"logsumexp_{at}"] = lambda x, d=dims: torch.logsumexp(x, d)
            rows[f"norm_{at}"] = lambda x, d=dims: torch.linalg.vector_norm(x, dim=d)
    for d in range(3):
        if dtype is not torch.bool:
            rows[f"prod_{d}"] = lambda x, d=d: (x * (0.5 if x.is_floating_point() else 1)).prod(d)
            rows[f"argmax_{d}"] = lambda x, d=d: (x.argmax(d), x.argmin(d, keepdim=True))
            rows[f"max_with_index_{d}"] = lambda x, d=d: (x.max(d), x.min(d))
        if dtype.is_floating_point:
            rows[f"softmax_{d}"] = lambda x, d=d: (F.softmax(x, d), F.log_softmax(x, d))
    if dtype in (torch.float32, torch.bfloat16):  # whose variance leaves the type
        rows["std_far"] = lambda x: ((x * 2.0**80).std(0), (x * 2.0**-90).std(1), (x * 2.0**100).std())
    if dtype is not torch.bool:
        rows["arg_all"] = lambda x: (x.argmax(), x.argmin())
    rows["of_computed"] = lambda x: ((x * 2 + 1).sum(1), (x * x).sum(-1), (x.transpose(0, 1) + 1).sum(0))
    rows["twice"] = lambda x: (
        x.sum(-1).sum(-1),
        x.sum(0, keepdim=True) + x,
        x.sum(-1, keepdim=True) * x.sum(1, keepdim=True),
    )
    rows["flattened"] = lambda x: (x.flatten(1).sum(1), x.flatten().sum(), x.reshape(-1, x.shape[2]).sum(0))
    return rows


def reduced(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.rand(shape, generator=g) > 0.4
    if dtype.is_floating_point:
        return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)
    return torch.randint(-3 if dtype is not torch.uint8 else 0, 4, shape, generator=g).to(dtype)


def reduction_suites() -> Iterator[Suite]:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool):
        name = f"reduce_{str(dtype)[6:]}"
        scale = 40.0 if dtype is torch.bfloat16 else 4.0
        rows = reduction_rows(dtype)
        if dtype is torch.bfloat16:  # eager rounds means and differences to 16 bits on the way
            rows = {k: f for k, f in rows.items() if not k.startswith(("var", "twice", "prod"))}
        yield Suite(name, rows, [[reduced((5, 7, 37), dtype, 1)]], None, scale)
        if dtype in (torch.float32, torch.int64):
            more = [
                reduced(s, dtype, k) for k, s in enumerate(((4, 6, 35), (1, 1, 1), (2, 3, 70), (1, 17, 1), (33, 2, 5)))
            ]
            yield Suite(f"{name}_dynamic", rows, [[x] for x in more], AUTO3, 4.0)
    empty = {
        "sum": lambda x: (x.sum(0), x.sum(1), x.sum(), x.prod(0), x.any(0), x.all(1), x.sum((0, 1), keepdim=True)),
        "pointwise": lambda x: (x + 1, x.t() * 2, torch.cat([x, x]), x.flatten(), x[:, 1:]),
        "matmul": lambda x: (x @ x.t(), x.t() @ x),
        "softmax": lambda x: (x.softmax(1), x.cumsum(1), x.sort(1)),
    }
    args = [reduced((s, 5), torch.float32, 1) for s in (3, 0, 1, 2)]
    yield Suite("empty", empty, [[a] for a in args], ({0: Dim("n", min=0, max=64)},))
    yield Suite(
        "large_reductions",
        large_rows(),
        [[reduced((300, 517), torch.float32, 2), reduced((2, 70000), torch.float32, 3)]],
        None,
        20.0,
    )
    ties = torch.tensor(
        [[1.0, 3.0, 3.0, 2.0] * 12, [math.nan, 1.0, math.nan, 5.0] * 12, [-math.inf] * 48, [0.0, -0.0] * 24]
    )
    rows = {
        "argmax": lambda x: (x.argmax(1), x.argmax(0), x.argmin(1), x.argmin(0), x.argmax(), x.argmin()),
        "max": lambda x: (x.amax(1), x.amax(0), x.amin(1), x.amin(0), x.max(), x.min()),
        "max_with_index": lambda x: (x.max(1), x.max(0), x.min(1), x.min(0)),
        "tail": lambda x: (x[:, :17].argmax(1), x[:, 1:38].argmax(1), x[:, :5].argmin(1), x[:, :3].amax(1)),
        "any": lambda x: ((x > 2).any(1), x.isnan().any(1), x.isnan().all(1), (x == x).all(0)),
        "softmax": lambda x: (x.softmax(1), x.log_softmax(1), x.nan_to_num().softmax(0)),
        "sum": lambda x: (x.sum(1), x.mean(0), x.nan_to_num(neginf=-1).sum(1)),
    }
    yield Suite("ties", rows, [[ties], [ties.flip(1)], [ties.roll(1, 1)]])


def large_rows() -> dict[str, Function]:
    """Sizes that several workers share."""
    return {
        "columns": lambda x, y: (x.sum(0), x.amax(0), x.argmax(0), x.mean(0)),
        "rows": lambda x, y: (x.sum(1), x.var(1), x.softmax(1), x.argmin(1), y.sum(1), y.amin(1)),
        "all": lambda x, y: (x.sum(), x.amax(), y.mean(), y.norm()),
        "pointwise": lambda x, y: (x * 2 + 1, y.sigmoid(), x[:, :1] * x),
        "centred": lambda x, y: ((x - x.mean(0)) / (x.std(0) + 1e-5), (x - x.mean()) / x.std()),
    }


def view_rows() -> dict[str, Function]:
    """x [4, 6, 35]: chains of views, and what is computed on them."""
    return {
        "permute": lambda x: (x.permute(2, 0, 1), x.permute(1, 2, 0) * 2, x.transpose(0, 2).contiguous() + 1),
        "reshape": lambda x: (x.reshape(24, 35), x.flatten() + 1, x.view(4, 3, 2, 5, 7) * 2, x.reshape(35, 24).sum(1)),
        "permute_reshape": lambda x: (x.permute(0, 2, 1).reshape(4, -1), x.permute(2, 0, 1).reshape(7, -1) + 1),
        "reshape_permute": lambda x: (
            x.view(4, 2, 3, 35).transpose(1, 2).reshape(4, 6, 35) + x,
            x.view(4, 6, 5, 7).permute(0, 2, 1, 3).reshape(20, 42).relu(),
        ),
        "slice": lambda x: (x[1:], x[:, 1:5:2], x[..., -3:], x[:, ::3, ::4] + 1, x[-1], x[:, 2], x[..., 0], x[2:2]),
        "flip": lambda x: (x.flip(0), x.flip(1, 2) + x, x.flip(-1).sum(-1), x.flip(0)[1:].flip(0)),
        "expand": lambda x: (
            x[:1].expand(3, 6, 35) * 2,
            x[..., :1].expand(4, 6, 8).sum(-1),
            x[None].expand(2, 4, 6, 35) + 0.5,
        ),
        "unsqueeze": lambda x: (x.unsqueeze(1) + x.unsqueeze(2), x[:, None, :, :1].squeeze(1), x[:1].squeeze(0)),
        "cat": lambda x: (
            torch.cat([x, x * 2], 0),
            torch.cat([x, x[:, :2], x[:, 3:]], 1),
            torch.cat([x.exp(), x.relu()], -1) + 1,
            torch.cat([x.sum(-1), x.amax(-1)], 1),
            torch.cat([x, x, x], 2).sum(2),
        ),
        "cat_permuted": lambda x: (
            torch.cat([x.transpose(0, 1), x.transpose(0, 1)], 1).relu(),
            torch.cat([x.flip(0), x])[2:6],
        ),
        "stack": lambda x: (
            torch.stack([x, x + 1], 0),
            torch.stack([x, x * 3], -1).flatten(2),
            torch.stack([x[0], x[1]], 1),
        ),
        "split": lambda x: [a * k for k, a in enumerate(x.split([10, 20, 5], -1))] + [a + 1 for a in x.chunk(3, 1)],
        "unbind": lambda x: (x.unbind(1)[2], sum(x.unbind(0))),
        "pad": lambda x: (
            F.pad(x, (1, 2)),
            F.pad(x, (0, 3, 2, 0), value=1.5) * 2,
            F.pad(x, (-1, -2, 1, -1)),
            F.pad(x, (3, 4), mode="reflect"),
            F.pad(x, (2, 1), mode="replicate"),
            F.pad(x, (5, 3), mode="circular"),
            F.pad(x.relu(), (1, 1, 1, 1)).sum(-1),
        ),
        "pad_2d": lambda x: (F.pad(x, (2, 3, 1, 2), mode="reflect"), F.pad(x[None], (1, 1, 2, 2), mode="replicate")),
        "roll": lambda x: (x.roll(3, -1), x.roll((1, -2), (0, 1)), x.roll(5)),
        "repeat": lambda x: (x.repeat(2, 1, 1), x[:, :1].repeat(1, 3, 2), x.repeat_interleave(2, 1)),
        "tile_unfold": lambda x: (x.unfold(2, 5, 3).sum(-1), x.unfold(1, 2, 1)),
        "diagonal": lambda x: (x[0, :, :6].diagonal(), x[..., :6].diagonal(1, 1, 2) * 2),
        "movedim": lambda x: (x.movedim(0, 2), x.swapaxes(0, 1).relu()),
        "mixed": lambda x: (x.permute(2, 0, 1)[1:30:2].flip(0).reshape(15, 24).t().softmax(0), x[:, [3, 1]].flip(1)),
        "scatter_slices": lambda x: (
            torch.slice_scatter(x, x[:, :2] * 0, 1, 2, 4),
            torch.select_scatter(x, x[:, 0] * 2, 1, 3),
        ),
        "assign": lambda x: assigned(x),
        "pixel_shuffle": lambda x: (
            F.pixel_shuffle(x[:, :4].reshape(1, 16, 5, 7), 2),
            F.pixel_unshuffle(x[None, ..., :34], 2),
        ),
        "contract": lambda x: torch.einsum("abc,adc->bd", x, x),
        "outer": lambda x: torch.outer(x[0, 0], x[0, 1]),
    }


def assigned(x: torch.Tensor) -> torch.Tensor:
    """Slices assigned in place, several times."""
    y = x.clone()
    y[:, 1:3] = 2.0
    y[..., ::2] += x[..., ::2]
    y[0] *= 3
    return y + y.flip(0)


def dynamic_view_rows() -> dict[str, Function]:
    return {
        "reshape": lambda x: (x.flatten(), x.flatten(1) * 2, x.flatten(0, 1) + 1, x.permute(0, 2, 1).flatten(1)),
        "heads": lambda x: (
            x.view(x.shape[0], x.shape[1], 2, 3).transpose(1, 2).reshape(x.shape[0] * 2, x.shape[1], 3) * 2
        ),
        "back": lambda x: (x.flatten(0, 1) * 2).view(x.shape) + x.transpose(0, 1).contiguous().transpose(0, 1),
        "slice": lambda x: (x[:1], x[:, -1:], x[:, :1] + x, x[..., 1:5:2]),
        "cat": lambda x: (torch.cat([x, x * 2], 0), torch.cat([x, x[:, :1]], 1), torch.cat([x, x], 2).sum(1)),
        "pad": lambda x: (F.pad(x, (1, 2, 3, 0)), F.pad(x, (2, 2), mode="replicate")),
        "flip": lambda x: (x.flip(0), x.flip(1, 2) + x),
        "stack": lambda x: torch.stack([x, x + 1], 1).flatten(0, 1),
        "causal": lambda x: x @ x.transpose(1, 2) + torch.full((x.shape[1], x.shape[1]), -1e9).triu(1),
        "expand": lambda x: x[:, :1].expand(-1, x.shape[1], -1) + x.mean(1, keepdim=True),
    }


def index_rows() -> dict[str, Function]:
    """x [5, 6, 7] f32, i [4] i64 in [-5, 5), j [4] in [-6, 6), k [5, 6, 3] in [0, 7), m [5, 6] bool, table [11, 8]"""
    return {
        "take": lambda x, i, j, k, m, t: (x[i], x[:, j], x[i, j], x[i, :, j], x[i[:, None], j], x[..., i + 1]),
        "embedding": lambda x, i, j, k, m, t: (
            F.embedding(i.abs(), t),
            t[k[0]] * 2,
            F.embedding(j.abs().int(), t).sum(0),
        ),
        "index_select": lambda x, i, j, k, m, t: (x.index_select(0, i.abs() % 5), x.index_select(2, j.abs())),
        "gather": lambda x, i, j, k, m, t: (
            x.gather(2, k),
            x.gather(0, k % 5),
            x.transpose(1, 2).gather(1, k.transpose(1, 2)),
        ),
        "take_along": lambda x, i, j, k, m, t: torch.take_along_dim(x, x.argsort(2), 2),
        "of_computed": lambda x, i, j, k, m, t: (x.exp()[i] + 1, x[(i + 1) % 5].sum(0), x[x.argmax(0)[0, :2]]),
        "put": lambda x, i, j, k, m, t: (
            x.index_put((i[:2],), x[:2] * 0),
            x.index_put((i[:1], j[:1]), torch.tensor(3.0)),
            x.index_put((i, j), x[i, j], accumulate=True),
            torch.index_put(x, (i,), x[:4], accumulate=True).relu(),
        ),
        "index_add": lambda x, i, j, k, m, t: (
            x.index_add(0, i.abs() % 5, x[:4]),
            x.index_copy(1, torch.tensor([2, 4]), x[:, :2]),
        ),
        "index_fill": lambda x, i, j, k, m, t: x.index_fill(1, torch.tensor([0, 3]), -1.0),
        "scatter": lambda x, i, j, k, m, t: (
            x.scatter(2, torch.arange(3).expand(5, 6, 3), x[..., :3] * 2),
            x.scatter_add(2, k, x[..., :3]),
            x.scatter_add(0, k % 5, x[..., :3]),
            x.scatter(1, k[:, :1] % 6, 9.0),
        ),
        "scatter_reduce": lambda x, i, j, k, m, t: tuple(
            x.scatter_reduce(2, k, x[..., :3] + 1, r, include_self=True) for r in ("sum", "prod", "amax", "amin")
        ),
        "scatter_reduce_without_self": lambda x, i, j, k, m, t: tuple(
            x.scatter_reduce(2, k, x[..., :3] + 1, r, include_self=s)
            for r, s in (
                ("sum", False),
                ("prod", False),
                ("amax", False),
                ("amin", False),
                ("mean", False),
                ("mean", True),
            )
        ),
        "scatter_reduce_of_integers": lambda x, i, j, k, m, t: tuple(
            k.scatter_reduce(2, k % 3, k * 5 - 7, r, include_self=s)
            for r in ("sum", "prod", "amax", "amin", "mean")
            for s in (False, True)
        ),
        "masked": lambda x, i, j, k, m, t: (x.masked_fill(m[..., None], 0.0), torch.where(m[..., None], x, -x)),
        "one_hot": lambda x, i, j, k, m, t: F.one_hot(k[..., 0], 7).sum(1),
        "assign": lambda x, i, j, k, m, t: index_assigned(x, i, j),
        "int_put": lambda x, i, j, k, m, t: (k.index_put((i,), k[:4] * 2, accumulate=True), m.index_put((i,), m[:4])),
    }


def rotated_rows() -> dict[str, Function]:
    """x [n, 3] and y [m, 3]: parts of a cat whose places are in the result only where m is at most n."""

    def turned(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        k = x.shape[0] - y.shape[0]
        return [x[k:], x[:k]]

    return {
        "two": lambda x, y: torch.cat(turned(x, y)),
        "behind": lambda x, y: torch.cat(turned(x.relu(), y)).sum(1) + 1,
        "ten": lambda x, y: torch.cat([*turned(x, y), *[y[:1]] * 8]),
    }


def index_assigned(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[i] = 1.0
    y[:, j] = y[:, j] * 2
    y[i, :, j] = 3.0  # the indices' dimensions come first, since they are not adjacent
    y[i[:2], None, j[:2]] += x[0, 0, 0]
    return y.sum(0) + x[0]


def order_rows() -> dict[str, Function]:
    """x [5, 33] with ties and specials."""
    return {
        "sort": lambda x: (
            x.sort(dim=1, stable=True),
            x.sort(dim=0, stable=True, descending=True),
            x.sort(dim=1, descending=True, stable=True),
        ),
        "argsort": lambda x: (x.argsort(dim=1, stable=True), x.t().argsort(dim=0, descending=True, stable=True)),
        "sort_computed": lambda x: (x * 2 + 1).sort(dim=1, stable=True)[0].sum(1),
        "topk": lambda x: (
            x.topk(4, 1)[0],
            x.topk(3, 0, largest=False)[0],
            x.topk(33, 1)[0],
            (x + 1).topk(1, 1)[0] * 2,
        ),
        "kthvalue": lambda x: x.kthvalue(3, 1)[0],
        "cumsum": lambda x: (x.cumsum(1), x.cumsum(0), (x + 1).cumsum(1) * 2, x.t().cumsum(0)),
        "cumprod": lambda x: ((x % 2 + 1).cumprod(0), (x % 2).cumprod(1)),
    }


HISTOGRAMS = ((62, 0, 14), (30, 0, 22), (5, 0.1, 1.1), (5, 0.1, 0.7), (5, -2, 2))


def histogram_suites() -> Iterator[Suite]:
    """Whole numbers, many of them on an edge."""
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        x = torch.cat([torch.arange(23), torch.tensor([0.1, 0.7, 1.1, 1.19921875])]).to(dtype)
        rows = {f"{b}_{lo}_{hi}": lambda x, a=(b, lo, hi): torch.histc(x, *a) for b, lo, hi in HISTOGRAMS}
        yield Suite(f"histogram_{str(dtype)[6:]}", rows, [[x]])


def picked_code_rows() -> dict[str, Function]:
    """Rows and elements of constants of few bits, by indices i [3, 4]."""
    g = torch.Generator().manual_seed(6)
    byte, unsigned = (
        torch.randint(-128, 128, (20, 33), generator=g).to(torch.int8),
        torch.randint(0, 256, (20, 32), generator=g),
    )
    half, scales = torch.randint(-8, 8, (20, 33), generator=g).to(torch.int8), torch.rand(20, 1, generator=g) + 0.1
    groups, zeros = torch.rand(20, 4, 1, generator=g) + 0.1, torch.randint(0, 9, (20, 4, 1), generator=g).float()
    nibbles = torch.randint(0, 16, (20, 4, 8), generator=g).to(torch.uint8)
    return {
        "bytes": lambda i: torch.nn.functional.embedding(i % 20, byte.float() * scales) + 1,
        "unsigned": lambda i: (unsigned.to(torch.uint8).float() - 128)[i] * 0.5,
        "halves": lambda i: torch.nn.functional.embedding(i % 20, half.float() * scales),
        "groups": lambda i: ((nibbles.float() - zeros) * groups).reshape(20, 32)[i, i % 32],
        "columns": lambda i: (half.float() * scales).t()[i],
    }


def suites() -> Iterator[Suite]:
    yield from reduction_suites()
    yield from histogram_suites()
    yield Suite("picked_codes", picked_code_rows(), [[torch.tensor([[0, 19, 3, 7], [-1, 2, 2, 5], [18, 0, 11, -20]])]])
    g = torch.Generator().manual_seed(5)
    x = torch.randn(4, 6, 35, generator=g)
    yield Suite("views", view_rows(), [[x]], None, 5.0)
    ints = {k: f for k, f in view_rows().items() if k not in ("mixed", "pad_2d", "pad", "cat", "contract")}
    yield Suite("views_int64", ints, [[torch.randint(-9, 9, (4, 6, 35), generator=g)]])
    sizes = ((4, 5, 6), (1, 1, 6), (2, 1, 6), (1, 9, 6), (3, 2, 6))
    args = [[torch.randn(s, generator=g)] for s in sizes]
    yield Suite("views_dynamic", dynamic_view_rows(), args, ({0: Dim.AUTO, 1: Dim.AUTO},), 5.0)
    pairs = [[torch.randn(n, 3, generator=g), torch.randn(m, 3, generator=g)] for n, m in ((7, 5), (9, 1), (40, 2))]
    yield Suite("cat_rotated", rotated_rows(), pairs, ({0: Dim.AUTO}, {0: Dim.AUTO}))
    i = torch.tensor([3, -5, 0, -1])
    j = torch.tensor([-6, 5, 2, 2])
    k = torch.randint(0, 7, (5, 6, 3), generator=g)
    table = torch.randn(11, 8, generator=g)
    yield Suite(
        "index",
        index_rows(),
        [[torch.randn(5, 6, 7, generator=g), i, j, k, torch.rand(5, 6, generator=g) > 0.5, table]],
    )
    for dtype in (torch.float32, torch.int64, torch.float64, torch.int32):
        ties = torch.randint(-4, 5, (5, 33), generator=g).to(dtype)
        rows = order_rows()
        if dtype.is_floating_point:
            ties[0, :4] = torch.tensor([math.inf, -math.inf, 3.5, -3.5], dtype=dtype)
            rows["cummax"] = lambda x: (x.cummax(1)[0], x.cummin(0)[0])
            rows["logcumsumexp"] = lambda x: (
                *(y.logcumsumexp(d) for d in (0, 1) for y in (x, x * 100 - 150, x.masked_fill(x < 4, -math.inf))),
                x.masked_fill(x > 3, math.nan).flip(1).logcumsumexp(1),
                torch.stack([x, -x], 2).logcumsumexp(1),
            )
        yield Suite(f"order_{str(dtype)[6:]}", rows, [[ties]])
    nans = torch.randn(3, 20, generator=g)
    nans[0, ::3], nans[1, 5] = math.nan, -math.inf
    rows = {
        "sort": lambda x: (x.sort(dim=1, stable=True), x.sort(dim=1, descending=True, stable=True)),
        "topk": lambda x: x.topk(5, 1)[0],
    }
    yield Suite("order_nan", rows, [[nans]])
    dynamic = {
        "sort": lambda x: x.sort(dim=1, stable=True),
        "cumsum": lambda x: (x.cumsum(1), x.cumsum(0)),
        "logcumsumexp": lambda x: ((x * 100).logcumsumexp(1), x.logcumsumexp(0)),
        "topk": lambda x: x.topk(2, 1)[0],
    }
    args = [[torch.randn(s, generator=g)] for s in ((5, 40), (1, 2), (2, 3), (3, 1000))]
    yield Suite("order_dynamic", dynamic, args, ({0: Dim("n", max=99), 1: Dim("m", min=2, max=9999)},))
