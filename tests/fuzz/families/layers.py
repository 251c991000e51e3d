"""Layers: convolutions, pools, norms, resizing, recurrences, folds."""

from __future__ import annotations

import torch

from tests.fuzz.draw import Drawer, Drawn, Family, Unfit
from tests.fuzz.families.forms import scale


def image(g: Drawer, rank: int, channels: tuple[int, ...], sizes: tuple[int, ...]) -> str:
    """[N, C, *spatial]"""
    r = g.r

    def fits(t: torch.Tensor) -> bool:
        return t.dtype == g.main and t.dim() == rank + 2 and not g.is_symbolic(t.shape[1]) and t.numel() > 0

    def new() -> str:
        batch = g.symbol() if g.dynamic and r.random() < 0.5 else r.choice((1, 2, 3))
        spatial = [r.choice(sizes) for _ in range(rank)]
        if g.dynamic and r.random() < 0.3:
            spatial[0] = g.symbol()
        return g.input((batch, r.choice(channels), *spatial), g.main)

    return g.operand(fits, new)


def convolution(g: Drawer, rank: int) -> tuple[str, str, int]:
    """A module, what it may be given, and its output channels."""
    r = g.r
    a = image(g, rank, (1, 2, 3, 4, 6, 8, 16, 17, 32), (3, 4, 5, 7, 8, 9, 16, 17) if rank < 3 else (3, 4, 5, 6))
    channels = g.value(a).shape[1]
    groups = r.choice([n for n in (1, 1, 2, 3, 4, channels) if n and channels % n == 0])
    out = groups * r.choice((1, 2, 3, 4, 8, 16))
    kernel = tuple(r.choice((1, 2, 3, 3, 5)) for _ in range(rank))
    stride, dilation = r.choice((1, 1, 2, 3)), r.choice((1, 1, 1, 2))
    bias = r.random() < 0.6
    if r.random() < 0.3:
        text = (
            f"nn.ConvTranspose{rank}d({channels}, {out}, {kernel}, stride={stride}, padding={r.choice((0, 1))}, "
            f"output_padding={r.randint(0, max(stride, dilation) - 1)}, groups={groups}, dilation={dilation}, bias={bias}, dtype={g.main})"
        )
    else:
        padding = r.choice((0, 1, 1, 2, "'same'" if stride == 1 else 0))
        mode = r.choice(("zeros",) * 5 + ("reflect", "replicate", "circular"))
        text = (
            f"nn.Conv{rank}d({channels}, {out}, {kernel}, stride={stride}, padding={padding}, dilation={dilation}, "
            f"groups={groups}, bias={bias}, padding_mode='{mode}', dtype={g.main})"
        )
    return g.inner(text), a, out


def _convolutions(g: Drawer) -> Drawn:
    r = g.r
    rank = r.choice((1, 2, 2, 2, 3))
    m, a, out = convolution(g, rank)
    sides = [r.choice((0, 0, 1, 2)) for _ in range(2 * rank)]
    forms = [
        f"{m}({a})",
        f"{m}({a})",
        f"{m}(F.pad({a}, {sides}))",
        f"{m}(F.pad({a}, {sides}, value={r.choice((1.5, -0.25))}))",
        f"{m}({a}) * {scale(g, (g.value(a).shape[0], out, *[1] * rank), g.main)}",
        f"F.relu({m}({a}))",
        f"F.silu({m}({a})) + 1",
        f"{m}({a}).mean((-1,))",
        f"{m}({a}) * 0.5",
    ]
    if rank == 2:
        norm = g.inner(f"nn.BatchNorm2d({out}, dtype={g.main})")
        forms += [f"{norm}({m}({a})).relu()", f"{m}({a}) * {g.weight((out, 1, 1))} + {g.weight((out, 1, 1))}"]
        forms += [f"{m}(F.pad({a}, [1, 1, 1, 1]))", f"{m}({a}).permute(0, 2, 3, 1) * 2"]
    return r.choice(forms)


def _pools(g: Drawer) -> Drawn:
    r = g.r
    rank = r.choice((1, 2, 2, 2, 3))
    a = image(g, rank, (1, 3, 4, 16), (4, 5, 7, 9, 16) if rank < 3 else (3, 4, 5))
    kernel = tuple(r.choice((1, 2, 3)) for _ in range(rank))
    stride, ceil = r.choice((1, 2, 3)), r.random() < 0.5
    padding = r.choice((0, 0, 1)) if min(kernel) > 1 else 0
    forms = [
        f"F.max_pool{rank}d({a}, {kernel}, {stride}, {padding}, 1, {ceil})",
        f"F.max_pool{rank}d({a}, {kernel}, {stride}, {padding}, 2, {ceil})",
        f"F.avg_pool{rank}d({a}, {kernel}, {stride}, {padding}, {ceil}, {r.random() < 0.5})",
        f"F.avg_pool{rank}d({a}.relu() + 1, {kernel}, {stride}) * 2",
        f"F.adaptive_avg_pool{rank}d({a}, {r.choice((1, 2, 3, 4))})",
        f"F.adaptive_max_pool{rank}d({a}, {r.choice((1, 2, 3))})",
        f"tuple(F.max_pool{rank}d({a}, 2, {stride}, return_indices=True))",
    ]
    if rank < 3:
        forms.append(f"F.lp_pool{rank}d({a}.abs(), 2, 2, {stride}, {ceil})")
    if rank == 2:
        forms += [
            f"F.avg_pool2d({a}, 2, {stride}, 0, {ceil}, True, 3)",
            f"F.unfold({a}, 2, 1, {padding}, {stride})",
            f"F.unfold({a}, 3, 2, 1, {stride})",
            f"F.fold(F.unfold({a}, 2), {a}.shape[-2:], 2)",
            f"F.pixel_shuffle({a}, 2)",
            f"F.pixel_unshuffle({a}, 2)",
            f"F.channel_shuffle({a}, 2)",
            f"F.grid_sample({a}, {a}[:, :1, :1].reshape({a}.shape[0], 1, -1, 2).tanh(), align_corners=False)",
        ]
    return r.choice(forms)


def _norms(g: Drawer) -> Drawn:
    r, a = g.r, g.floats(least=2)
    t = g.value(a)
    dtype, channels, last = t.dtype, t.shape[1], t.shape[-1]
    if g.is_symbolic(channels) or g.is_symbolic(last):
        return f"F.layer_norm({a}, ({a}.shape[-1],))"
    groups = r.choice([n for n in (1, 2, 3, 4, channels) if n and channels % n == 0] or [1])
    w, b = g.weight((last,), dtype), g.weight((last,), dtype)
    cw, cb, mean = (g.weight((channels,), dtype) for _ in range(3))
    var = g.weight((channels,), dtype, "positive")
    forms = [
        f"F.layer_norm({a}, ({last},), {w}, {b})",
        f"F.layer_norm({a}, ({last},))",
        f"F.layer_norm({a} + {g.partner(a)}, ({last},), {w}, {b})",
        f"F.group_norm({a}, {groups}, {cw}, {cb})",
        f"F.batch_norm({a}, {mean}, {var}, {cw}, {cb})",
        f"F.batch_norm({a}, {mean}, {var})",
        f"F.instance_norm({a})",
        f"F.instance_norm({a}, weight={cw}, bias={cb})",
        f"F.rms_norm({a}, ({last},), {w})",
        f"F.rms_norm({a}, ({last},), eps=1e-3)",
        f"F.layer_norm({a}.transpose(1, -1), ({channels},), {cw}, {cb})",
        f"F.local_response_norm({a}, 3)",
        f"F.prelu({a}, {cw})",
        f"{a} * torch.rsqrt({a}.pow(2).mean(-1, keepdim=True) + 1e-5) * {w}",
        f"({a} - {a}.mean(-1, keepdim=True)) / ({a}.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()",
    ]
    if not g.has_symbols(t):
        forms.append(f"F.layer_norm({a}, {tuple(t.shape[1:])})")
    return r.choice(forms)


def _resized(g: Drawer) -> Drawn:
    r = g.r
    rank = r.choice((1, 2, 2, 2, 3))
    sizes = (2, 3, 5, 7, 8)
    if g.dynamic and r.random() < 0.5:  # the scale times a size that may have no upper bound
        spatial = [g.symbol() if r.random() < 0.6 else r.choice(sizes) for _ in range(rank)]
        a = g.input((r.choice((1, 2)), r.choice((1, 3)), *spatial), g.main)
    else:
        a = image(g, rank, (1, 3, 4), sizes)
    smooth = {1: ("linear",), 2: ("bilinear", "bilinear", "bicubic"), 3: ("trilinear",)}[rank]
    mode = r.choice(("nearest", "nearest-exact", "area", *smooth))
    options = f", mode='{mode}'"
    if mode in smooth:
        options += f", align_corners={r.random() < 0.5}"
    if mode in ("bilinear", "bicubic") and r.random() < 0.25:
        # of results one wide eager has the first row in all others, too
        return f"F.interpolate({a}, size=({r.choice((1, 2, 4, 10))}, {r.choice((2, 3, 7))}){options}, antialias=True)"
    if r.random() < 0.5:
        exact = ", recompute_scale_factor=True" if r.random() < 0.2 else ""
        return f"F.interpolate({a}, scale_factor={r.choice((2, 0.5, 1.5, 3, 0.7, 2.3))}{options}{exact})"
    return f"F.interpolate({a}, size={tuple(r.choice((1, 2, 3, 4, 7, 10)) for _ in range(rank))}{options})"


def _recurrences(g: Drawer) -> Drawn:
    r = g.r
    if g.main is torch.float64:
        raise Unfit
    steps, batch, width, hidden = (
        r.choice((1, 3, 5)),
        r.choice((1, 2, 3)),
        r.choice((1, 4, 5, 17)),
        r.choice((3, 8, 17)),
    )
    if g.dynamic:
        steps = 11
    kind = r.choice(("LSTM", "GRU", "LSTM", "GRU", "RNN"))
    first, alone = r.random() < 0.5, r.random() < 0.15
    more = ", proj_size=2" if kind == "LSTM" and r.random() < 0.3 and not g.dynamic else ""
    more += ", nonlinearity='relu'" if kind == "RNN" and r.random() < 0.4 else ""
    m = g.inner(
        f"nn.{kind}({width}, {hidden}, {r.choice((1, 2))}, batch_first={first}, bidirectional={r.random() < 0.4}, "
        f"bias={r.random() < 0.8}, dtype={g.main}{more})"
    )
    shape = (steps, width) if alone else (batch, steps, width) if first else (steps, batch, width)
    x = g.input(shape, g.main, "normal")
    forms = [f"{m}({x})[0]", f"{m}({x})[0]", f"{m}({x}.flip(0))[0]", f"{m}({x})[0].relu() + 1"]
    forms.append(f"{m}({x})[1]" if kind != "LSTM" else f"tuple({m}({x})[1])")
    return r.choice(forms)


def _fourier(g: Drawer) -> Drawn:
    a = g.floats(least=1)
    if g.value(a).dtype is not torch.float32:
        raise Unfit
    spectrum = f"torch.fft.rfft({a}.nan_to_num(0, 9, -9))"
    return g.r.choice((f"{spectrum}.abs()", f"torch.view_as_real({spectrum})", f"{spectrum}.real"))


FAMILIES = (
    Family("convolutions", 3.5, _convolutions),
    Family("pools", 3, _pools),
    Family("norms", 3, _norms),
    Family("resizing", 2, _resized),
    Family("recurrences", 1, _recurrences),
    Family("transforms", 0.5, _fourier),
)
